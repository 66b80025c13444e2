"""The page of `time` on a generation loop: time of the first token, each further one and all, also by group."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from analyzer.account.ledger import Group, natural_order
from analyzer.documents.generation import GenerationComponent, GenerationDocument, GenerationPoint
from analyzer.documents.saved.timing import rebuild_timing
from analyzer.documents.time import TimeDocument
from analyzer.pages.page import (
    Block,
    Cell,
    Chart,
    Code,
    Column,
    Detail,
    Figure,
    Formatted,
    Kind,
    Notes,
    Page,
    Row,
    Table,
    Tone,
)
from analyzer.pages.shared import natural_list, report_group_rule, title_groups
from analyzer.pages.time import describe_timing, list_doubts, name_provider, name_row, outside
from analyzer.records import replace
from analyzer.text import format_count, format_many, printable, short_ms, shorten
from analyzer.timing.generation import Step, size_of
from analyzer.timing.inputs.roles import Roles
from analyzer.timing.record import Axis, Timing
from analyzer.timing.rows import make_rows


def describe_generation(document: GenerationDocument) -> Page:
    """Describe a loop: time of the first token, a further one and all; files, groups; with `-v` each file alone."""
    return Page(
        kind="generation",
        question="How long generation takes",
        subject=document.model.path,
        about=f"{document.provider} on {document.device}",
        answer=_answer(document),
        figures=tuple(_figures(document)),
        blocks=tuple(_blocks(document)),
    )


def _answer(document: GenerationDocument) -> str:
    loop = document.loop
    return (
        f"{short_ms(document.first_token_ms)} ms to the first token, then {_each_token(document)} ms each; "
        f"{short_ms(document.total_ms)} ms for {format_many(loop.new_tokens, 'token')} at {_sizes(document)} on "
        f"{name_provider(document.provider)}"
    )


def _each_token(document: GenerationDocument) -> str:
    return _format_range(short_ms(document.token_ms.first), short_ms(document.token_ms.last))


def _format_range(*texts: str) -> str:
    """Return the first and the last text as a range; one text if they are equal.

    >>> _format_range("1.20", "1.20"), _format_range("1.20", "1.31"), _format_range("128")
    ('1.20', '1.20 to 1.31', '128')
    """
    return " to ".join(dict.fromkeys((texts[0], texts[-1])))


def _sizes(document: GenerationDocument) -> str:
    """Return the sizes of the loop, in words."""
    loop = document.loop
    source = () if loop.source is None else (f"source {format_count(loop.source)}",)
    return natural_list([f"batch {format_count(loop.batch)}", *source, f"prompt {format_count(loop.prompt)}"])


def _figures(document: GenerationDocument) -> Iterator[Figure]:
    loop = document.loop
    yield Figure("First token", f"{short_ms(document.first_token_ms)} ms", _sizes(document))
    rate = document.tokens_per_second
    sequences = f" of {format_many(loop.batch, 'sequence')}" if loop.batch > 1 else ""
    if rate is not None:
        second = f"{rate:,.3g}" if rate < _DIGITS else f"{rate:,.0f}"
        phrase = f"{second} tokens a second{sequences} after the first"
        yield Figure("Further token", f"{_each_token(document)} ms", f"{second} a second{sequences}", phrase)
    yield Figure(f"All {format_count(loop.new_tokens)}", f"{short_ms(document.total_ms)} ms")


_DIGITS = 100


def _blocks(document: GenerationDocument) -> Iterator[Block]:
    yield Notes(tuple(_doubts(document)), detail=Detail.FIRST, tone=Tone.WARN)
    yield _components(document)
    yield _groups(document)
    first = document.components[0].points[0].timing
    yield Notes((*report_group_rule(first.match, first.groups_from), *_assumptions(document)))
    for component in document.components:
        for point in component.points:
            yield from _alone(_title(component, document, point), point.timing)


def _doubts(document: GenerationDocument) -> Iterator[str]:
    """List doubts about the times, with the files that each concerns."""
    names_by_doubt: dict[str, list[str]] = {}
    for component in document.components:
        for point in component.points:
            name = _name(component, document, point)
            for doubt in list_doubts(point.timing):
                names_by_doubt.setdefault(doubt, []).append(name)
    for doubt, names in names_by_doubt.items():
        yield f"{', '.join(names)}: {doubt}"
    loop = document.loop
    if loop.source_decided_by is not None and loop.source_decided_by.startswith("default"):
        yield (
            f"no file fixes the length of the encoder's output: {format_count(loop.source or 0)} is a guess, and a "
            "longer output makes each token slower; give it with --shape encoder_sequence=N"
        )
    if document.token_ms.last < _FASTER * document.token_ms.first:
        yield "a token with the longer cache took less than one with the shorter: something else was running then"
    others = [each.component for each in document.components if each.step is Step.OTHER]
    if others:
        listed = ", ".join(map(printable, others))
        yield f"{listed}: its name does not show its step in the loop, so its time is in no sum"


def _assumptions(document: GenerationDocument) -> Iterator[str]:
    """Tell the assumptions behind the sums."""
    yield (
        "each file is measured alone, with random inputs of the sizes that it has in the loop; the sums leave out the "
        "choice of tokens, and the transfer of the cache between runs"
    )
    if len(document.loop.caches) > 1:
        first, last = map(format_count, document.loop.caches)
        yield f"between caches of {first} and {last} tokens the time of a run is assumed to grow linearly"


_FASTER = 0.9
"""Ratio of a token's time with the longer cache to one with the shorter, below which it is a warning."""


# the files


def _components(document: GenerationDocument) -> Table:
    """Return the table of files with time and number of runs in the loop; the rows sum to the whole."""
    rows = tuple(
        Row(
            (
                Formatted(None, each.step.value),
                each.component,
                _tokens(each, document),
                _caches(each),
                Formatted(
                    _mean(each),
                    _format_range(*(short_ms(point.timing.latency_ms.mean) for point in each.points)),
                ),
                each.times,
                Formatted(None, "") if each.total_ms is None else each.total_ms,
                Formatted(None, "") if each.share is None else each.share,
            )
        )
        for each in document.components
    )
    columns = (
        Column("step"),
        Column("file", Kind.NAME, room=8),
        Column("tokens", Kind.AMOUNT, room=6),
        Column("cache", Kind.AMOUNT, room=5),
        Column("mean ms", Kind.AMOUNT, room=9),
        Column("times", Kind.AMOUNT, room=7),
        Column("ms in all", Kind.MS, room=9),
        Column("share", Kind.SHARE, room=4, is_bar=True),
    )
    blank = Formatted(None, "")
    title = f"{format_many(document.loop.new_tokens, 'token')}"
    whole = 1.0 if document.total_ms else None
    total = (title, "", *(blank,) * 4, document.total_ms, whole)
    return Table(columns, rows, title="step", total=total, is_whole=True)


def _mean(component: GenerationComponent) -> float:
    means = [point.timing.latency_ms.mean for point in component.points]
    return (means[0] + means[-1]) / 2


def _tokens(component: GenerationComponent, document: GenerationDocument) -> Cell:
    """Return how many tokens of each sequence a file is fed; empty if it takes no tokens."""
    axes = _axes(component.points[0])
    found = [size_of(axes, role) for role in _TOKENS[component.step]]
    sizes = [size for size in found if size is not None]
    return Formatted(sizes[0], format_count(sizes[0])) if sizes else Formatted(None, "")


_TOKENS = {
    Step.ENCODE: (Roles.SEQUENCE, Roles.ENCODER),
    Step.PREFILL: (Roles.DECODER, Roles.SEQUENCE),
    Step.DECODE: (Roles.DECODER, Roles.SEQUENCE),
    Step.OTHER: (Roles.SEQUENCE,),
}


def _axes(point: GenerationPoint) -> tuple[Axis, ...]:
    return tuple(
        Axis(row.input, row.position, row.name, row.role, row.size, row.decided_by)
        for row in point.timing.axes
    )


def _caches(component: GenerationComponent) -> Cell:
    sizes = [point.cache for point in component.points if point.cache is not None]
    return Formatted(sizes[0], _format_range(*map(format_count, sizes))) if sizes else Formatted(None, "")


def _name(component: GenerationComponent, document: GenerationDocument, point: GenerationPoint) -> str:
    """Return the name of a measurement: its file; with several measurements of it also the step, and the cache."""
    name = printable(shorten(component.component, _LONGEST))
    if sum(each.component == component.component for each in document.components) > 1:
        name = f"{name} for {component.step}"
    if len(component.points) > 1:
        name = f"{name} (cache {format_count(point.cache or 0)})"
    return name


_LONGEST = 40


# the groups


def _groups(document: GenerationDocument) -> Table:
    """Return the table of each group's time in each step, and for all tokens."""
    measured = [(each, point.timing) for each in document.components for point in each.points]
    timings = [rebuild_timing(timing) for _, timing in measured]
    scales = [timing.points[0].scale for timing in timings]
    weights = [(each.times or 0) / len(each.points) for each, _ in measured]
    columns = list(_columns(document))
    whole = document.total_ms

    def row(name: str, ms: Sequence[float], level: int = 0, *, stays: bool = False) -> Row:
        sums = (math.fsum(ms[at] for at in places) for _, places in columns)
        total = math.fsum(weight * each for weight, each in zip(weights, ms, strict=True))
        return Row((name, *sums, total, total / whole if whole else None), level, stays=stays)

    def scaled(ms: Iterable[float]) -> list[float]:
        return [each * scale for each, scale in zip(ms, scales, strict=True)]

    rows = [each for each in make_rows(_joined(timings), 0)[0] if any(each.ms)]
    table_rows = [row(name_row(each), scaled(each.ms), each.level) for each in rows]
    documents = [timing for _, timing in measured]
    first = documents[0]
    if first.by == "group":
        balance = first.group_balance
        table_rows.append(
            row(balance.ungrouped.group, scaled(each.ungrouped_ms for each in documents), stays=True)
        )
        table_rows.append(
            row(balance.overlap.group, scaled(-each.overlap_ms for each in documents), stays=True)
        )
    (unattributed, _), (overhead, _) = outside(first)
    table_rows.append(row(unattributed, scaled(each.unattributed_ms for each in documents), stays=True))
    rest = [
        each.latency_ms.mean - (each.profiled_latency_ms.mean - each.overhead_ms) * scale
        for each, scale in zip(documents, scales, strict=True)
    ]
    table_rows.append(row(overhead, rest, stays=True))
    title = title_groups(first.by, first.depth)
    means = [each.latency_ms.mean for each in documents]
    return Table(
        (
            Column(title, Kind.NAME),
            *(Column(name, Kind.MS, room=8) for name, _ in columns),
            Column("ms in all", Kind.MS, room=9),
            Column("share", Kind.SHARE, room=9, is_bar=True),
        ),
        tuple(table_rows),
        title=title,
        total=(*row("the mean run", means).cells[:-2], whole, 1.0 if whole else None),
        notes=("ms are scaled to sum to the mean run without the profiler; in all: of all runs of the loop",),
        is_whole=first.by == "group",
        order=len(columns) + 1,
        others="other group",
    )


def _columns(document: GenerationDocument) -> Iterator[tuple[str, list[int]]]:
    """Yield a column for each step, or two for two cache lengths: its title, and the measurements that it sums."""
    places: dict[Step, list[list[int]]] = {}
    at = 0
    for component in document.components:
        count = len(component.points)
        places.setdefault(component.step, []).append(list(range(at, at + count)))
        at += count
    for step, found in places.items():
        caches = document.loop.caches if step is Step.DECODE and max(map(len, found)) > 1 else ()
        if caches:
            yield f"{step}, {format_count(caches[0])}", [each[0] for each in found]
            yield f"{step}, {format_count(caches[-1])}", [each[-1] for each in found]
        else:
            yield step.value, [each[0] for each in found]


def _joined(timings: Sequence[Timing]) -> Timing:
    """Join all measurements as points of one timing, whose groups are those of all files by name."""
    groups: dict[tuple[str, ...], Group] = {}
    for timing in timings:
        for group in timing.grouping.groups:
            known = groups.get(group.label)
            if known is None or known.parameters < group.parameters:
                groups[group.label] = group
    first = timings[0]
    points = tuple(timing.points[0] for timing in timings)
    ordered = list(groups.values())
    if first.grouping.by != "group":
        ordered.sort(key=lambda group: tuple(map(natural_order, group.label)))
    return replace(first, grouping=replace(first.grouping, groups=tuple(ordered)), points=points)


# each file by itself


def _title(component: GenerationComponent, document: GenerationDocument, point: GenerationPoint) -> str:
    """Return the name of a measurement in titles, which have no room for file names: its step, number and cache."""
    alike = [each for each in document.components if each.step is component.step]
    number = f" {alike.index(component) + 1}" if len(alike) > 1 else ""
    cache = f" (cache {format_count(point.cache or 0)})" if len(component.points) > 1 else ""
    return f"{component.step}{number}{cache}"


def _alone(name: str, document: TimeDocument) -> Iterator[Block]:
    """Yield the blocks of `time` on one file, for `-v`."""
    page = describe_timing(document)
    phrases = (figure.phrase for figure in page.figures if figure.phrase)
    yield Notes(((Code(document.model.path), f": {page.answer}"), *phrases), name, Detail.MORE)
    for block in page.blocks:
        if isinstance(block, Chart) or (isinstance(block, Notes) and block.tone is Tone.WARN):
            continue
        title = f"{name}: {block.title}" if block.title else ""
        if isinstance(block, Table):
            yield replace(block, title=title, detail=Detail.MORE, key="")
        else:
            yield replace(block, title=title, detail=Detail.MORE)
