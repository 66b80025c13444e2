"""The page of `compare` on two models: changes from the old one to the new one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec import UNSET

from analyzer.documents.compare import (
    ComparedMacs,
    CompareDocument,
    DeclaredPair,
    GroupPair,
    Pair,
    Statuses,
    TensorPair,
    TensorSide,
)
from analyzer.pages.page import (
    Block,
    Cell,
    Chart,
    Column,
    Detail,
    Fact,
    Facts,
    Figure,
    Formatted,
    Kind,
    Notes,
    Page,
    Row,
    Table,
    Tone,
)
from analyzer.pages.shared import format_macs, report_group_rule, report_macs, title_groups
from analyzer.text import (
    format_bytes,
    format_change,
    format_count,
    format_many,
    format_shape,
    format_signed,
    format_signed_bytes,
    short_count,
    short_share,
    shorten,
)

GROUPS, TENSORS = "groups", "tensors"


def describe_comparison(document: CompareDocument) -> Page:
    """Describe a comparison: a summary line, groups, and the tensors that differ, the largest change first."""
    sides = Facts((Fact("old", document.a), Fact("new", document.b)), detail=Detail.FIRST)
    return Page(
        kind="compare",
        question="What changed?",
        subject="",
        answer=_answer(document),
        figures=tuple(_figures(document)),
        blocks=(sides, *_blocks(document)),
        title=f"{document.a} -> {document.b}" if document.a != document.b else document.a,
    )


def _blocks(document: CompareDocument) -> Iterator[Block]:
    yield Notes(tuple(_absent(document)), detail=Detail.FIRST, tone=Tone.WARN)
    yield Notes(tuple(_remarks(document)), detail=Detail.FIRST)
    yield Notes(tuple(report_group_rule(document.match, document.groups_from.a, document.groups_from.b)))
    groups = _groups(document)
    if any(row.cells[4] for row in groups.rows):
        yield _chart()
    yield groups
    yield _tensors(document)
    yield _table_differences("declarations", document.declared)
    yield _table_differences("notes of the file", document.file_notes or [])
    yield _totals(document)


def _answer(document: CompareDocument) -> str:
    """Return the summary, in one line."""
    if document.same_file:
        return "the same file"
    if _is_same(document):
        return f"no difference in the compared parts{', except notes' if document.file_notes else ''}"
    totals = document.totals
    is_followed = document.followed is not None and document.followed.whole
    is_wired_differently = document.wiring is not None and not document.wiring.alike
    changes = [
        _parameters(document),
        _size(totals.bytes),
        _work(document),
        *_tensor_changes(document.tensors, is_followed=is_followed),
        *_scale_changes(document.tensors),
        *_declaration_changes(document),
        "different wiring" if is_wired_differently and not totals.parameters.change else "",
    ]
    return "; ".join(filter(None, changes))


def _is_same(document: CompareDocument) -> bool:
    totals = document.totals
    pairs = (totals.parameters, totals.stored_elements, totals.stored_bytes, totals.bytes, totals.tensors)
    nodes = totals.nodes.change if totals.nodes is not None else 0
    is_wired_differently = document.wiring is not None and not document.wiring.alike
    tensors = document.changes.tensors
    return not (
        any(pair.change for pair in pairs)
        or nodes
        or tensors.added
        or tensors.removed
        or tensors.changed
        or is_wired_differently
        or document.declared
    )


def _parameters(document: CompareDocument) -> str:
    pair = document.totals.parameters
    followed = document.followed
    if followed is not None and followed.whole and not (pair.change and _has_role_change(document)):
        counts = f"{format_count(pair.a)} -> {format_count(pair.b)}"
        if followed.cut:
            return f"the same parameters, {format_many(followed.cut, 'tensor')} only in part ({counts})"
        if pair.change:
            return f"the same parameters, stored differently ({counts})"
        return f"the same {format_many(pair.a, 'parameter')}, stored differently"
    if not pair.change:
        other = ", different values" if _have_other_values(document) else ""
        return f"same {format_many(pair.a, 'parameter')}{other}"
    share = f" ({format_change(pair.change / pair.a)})" if pair.a else ""
    return f"{format_count(pair.a)} -> {format_many(pair.b, 'parameter')}{share}"


def _has_role_change(document: CompareDocument) -> bool:
    """Whether a tensor of both sides is a parameter on one side only, because nothing reads it on the other."""
    both = ((pair.a, pair.b) for pair in document.tensors if pair.a is not None and pair.b is not None)
    return any((a.role == "parameter") != (b.role == "parameter") for a, b in both)


def _have_other_values(document: CompareDocument) -> bool:
    """Whether tensors were followed by content, and some were not found on the other side."""
    return document.followed is not None and not document.followed.whole


def _size(pair: Pair) -> str:
    if not pair.change:
        return f"same size, {format_many(pair.a, 'byte')}"
    exact = f"{format_count(pair.a)} -> {format_many(pair.b, 'byte')}"
    if not pair.a:
        return exact
    change = format_change(pair.change / pair.a)
    if change.startswith("x "):
        return f"{change[2:]} times as large ({exact})"
    word = "larger" if pair.change > 0 else "smaller"
    return f"{short_share(abs(pair.change) / pair.a)} {word} ({exact})"


def _work(document: CompareDocument) -> str:
    pair = document.totals.macs
    if pair is UNSET or not pair.change:
        return ""
    share = f" ({format_change(pair.change / pair.a)})" if pair.a else ""
    return f"{short_count(pair.a)} -> {short_count(pair.b)} MACs{share}"


_FEW = 3


_LAYOUT_CHANGES = frozenset(
    {"transposed", "reshaped", "concatenated", "folded-batchnorm", "folded-pointwise"}
)
"""Lines of the bridge that tell a change of a tensor which its dtype does not show."""


def _tensor_changes(tensors: Sequence[TensorPair], *, is_followed: bool) -> Iterator[str]:
    """Tell changed dtypes and layouts, added and gone tensors; no renames and constants if all were followed."""
    types = Counter(
        (pair.a.dtype, pair.b.dtype)
        for pair in tensors
        if pair.a is not None and pair.b is not None and pair.a.dtype != pair.b.dtype
    )
    for (old, new), count in types.most_common(_FEW):
        yield f"{format_many(count, 'tensor')} {old} -> {new}"
    moved = Counter(
        p.line for p in tensors if p.a is not None and p.b is not None and p.line in _LAYOUT_CHANGES
    )
    yield from (f"{format_many(count, 'tensor')} {line}" for line, count in moved.most_common(_FEW))
    alone = [p for p in tensors if p.line is not None and (p.a is None or p.b is None)]
    merged = {id(p.a or p.b) for p in alone}
    if packed := sum(p.line not in _LAYOUT_CHANGES or p.line == "concatenated" for p in alone):
        yield f"{format_many(packed, 'tensor')} packed with others"
    for word, sides in (
        ("added", [p.b for p in tensors if p.a is None]),
        ("gone", [p.a for p in tensors if p.b is None]),
    ):
        known = [side for side in sides if side is not None and id(side) not in merged]
        scales = sum(side.role == "quantization" for side in known)
        learned = sum(side.role == "parameter" for side in known)
        others = len(known) - scales - learned
        if learned:
            yield f"{format_many(learned, 'learned tensor')} {word}"
        if scales:
            yield f"{format_count(scales)} {'scale or zero point' if scales == 1 else 'scales and zero points'} {word}"
        if others and not (scales or learned or is_followed):
            yield f"{format_many(others, 'other tensor')} {word}"
    renamed = sum(1 for p in tensors if p.a is not None and p.b is not None and p.a.name != p.b.name)
    if renamed and not is_followed:
        yield f"{format_many(renamed, 'tensor')} renamed"


def _scale_changes(tensors: Sequence[TensorPair]) -> Iterator[str]:
    """Tell how many scales and zero points have other values."""
    count = sum(
        pair.b is not None and pair.b.role == "quantization" and list(pair.changed) == ["values"]
        for pair in tensors
    )
    if count:
        yield f"{format_count(count)} {'scale or zero point' if count == 1 else 'scales and zero points'} changed"


def _has_scales(document: CompareDocument) -> bool:
    """Whether scales were compared; values in saved reports and remote files never are."""
    sides = ((pair.a, pair.b) for pair in document.tensors)
    return document.file_notes is not UNSET and any(
        a is not None and b is not None and a.role == b.role == "quantization" for a, b in sides
    )


def _figures(document: CompareDocument) -> Iterator[Figure]:
    totals = document.totals
    for label, pair in (("Parameters", totals.parameters), ("Stored elements", totals.stored_elements)):
        yield Figure(label, format_signed(pair.change), f"{format_count(pair.a)} -> {format_count(pair.b)}")
    size = totals.bytes
    yield Figure(
        "On disk", format_signed_bytes(size.change), f"{format_bytes(size.a)} -> {format_bytes(size.b)}"
    )
    tensors = totals.tensors
    yield Figure(
        "Tensors", format_signed(tensors.change), f"{format_count(tensors.a)} -> {format_count(tensors.b)}"
    )


def _absent(document: CompareDocument) -> Iterator[str]:
    """Tell which side lacks data of its tensors, so that its bytes and values say little."""
    for word, sides in (("old", [p.a for p in document.tensors]), ("new", [p.b for p in document.tensors])):
        absent = sum(1 for side in sides if side is not None and side.stored_elements > 0 and not side.bytes)
        if absent:
            yield f"the bytes of the {word} model leave out {format_many(absent, 'tensor')} without data"


def _declaration_changes(document: CompareDocument) -> Iterator[str]:
    """Tell changed versions of operator sets, and how many other declarations changed, without names from a file."""
    opsets = [each for each in document.declared if _OPERATOR_SET.fullmatch(each.what)][:_FEW]
    for each in opsets:
        what = "opset" if each.what == "opset ai.onnx" else each.what
        yield f"{what} {each.a or 'none'} -> {each.b or 'none'}"
    others = len(document.declared) - len(opsets)
    if others:
        yield f"{format_count(others)} {'declaration' if others == 1 else 'declarations'} changed"


_OPERATOR_SET = re.compile(r"opset [A-Za-z0-9_.-]{1,40}")
"""Version of an imported domain whose name is safe to write in a sentence."""


def _table_differences(title: str, pairs: Sequence[DeclaredPair]) -> Table:
    """Return the table of declarations that differ, one row each."""
    rows = tuple(
        Row(tuple(shorten(text or "none", _LONGEST) for text in (each.what, each.a, each.b)))
        for each in pairs
    )
    columns = (Column(title, room=9), Column("old", room=9), Column("new", room=9))
    return Table(columns, rows, title=title, others=f"other {title}")


_LONGEST = 80
"""Most characters of a declaration in the table."""


def _remarks(document: CompareDocument) -> Iterator[str]:
    """Tell how many tensors and groups came, went and changed, and how far the two files were compared."""
    if not document.same_file:
        yield "; ".join(
            f"{what}: {_counted(changes)}"
            for what, changes in (("tensors", document.changes.tensors), ("groups", document.changes.groups))
        )
    values = document.values_compared
    if values is not None:
        where = "in full" if values.content == "full" else "at fixed positions"
        unknown = f", {format_many(values.unknown, 'tensor')} could not be compared" if values.unknown else ""
        alike = format_many(values.equal + values.differing, "tensor")
        incomparable = sum(
            pair.status == "changed" and list(pair.changed) != ["values"] for pair in document.tensors
        )
        others = (
            f"; not compared: {format_many(incomparable, 'tensor')} with different type, shape, role or size"
            if incomparable
            else ""
        )
        yield f"values compared {where}: {alike}, {format_count(values.differing)} differ{unknown}{others}"
    elif document.followed is not None:
        how = "" if document.followed.content == "full" else ", at sampled positions"
        matched = format_many(document.followed.tensors, "learned tensor")
        rest = "" if document.followed.whole else "; others by name, or not at all"
        if document.followed.tensors:
            yield f"{matched} matched by content, also if transposed, cast or quantized{how}{rest}"
        else:
            yield f"no learned tensor is in both, even if transposed, cast or quantized{how}"
    elif document.changes.tensors.unchanged and not document.same_file:
        caveat = ", except scales and zero points" if _has_scales(document) else ""
        yield f"values were not compared{caveat} (--content full); unchanged means the same type, shape, role and size"
    if document.wiring is not None and document.wiring.alike:
        yield "wiring: both compute the same with their weights"
    elif document.wiring is not None:
        first = f", first in {document.wiring.first}" if document.wiring.first else ""
        yield f"wiring: differs from the old model{first}; verify tests whether they compute the same"
    if document.file_notes is not UNSET and not document.same_file and _is_same(document):
        yield "the files differ in bytes; names of nodes, notes on nodes and values were not compared"
    if document.macs is not UNSET:
        yield from _report_macs(document.macs)
    if document.totals.nodes is None:
        yield "nodes: not compared, because a saved report lacks their number"
    contents = (document.content.a, document.content.b)
    if len(set(contents)) > 1 and "none" in contents:
        side = ("old", "new")[contents.index("none")]
        yield f"contents of the {side} model were not read: only there, copies count separately"


def _report_macs(macs: ComparedMacs) -> Iterator[str]:
    """Tell the sizes at which the work was counted; for each side if they differ."""
    if macs.a == macs.b:
        yield from report_macs(macs.a)
        return
    for word, side in (("old", macs.a), ("new", macs.b)):
        yield from (f"{word}: {line}" for line in report_macs(side))


def _counted(counts: Statuses) -> str:
    parts = [
        f"{format_count(number)} {status}"
        for status in ("unchanged", "added", "removed", "changed")
        if (number := getattr(counts, status))
    ]
    return ", ".join(parts) or "none"


def _share(pair: Pair) -> float | None:
    return pair.change / pair.a if pair.a else None


def _changed(pair: Pair, status: str) -> Cell:
    """Return the change in percent; in words if there is no old or new one, or no change."""
    if status in ("added", "removed"):
        return Formatted(_share(pair), status)
    share = _share(pair)
    return Formatted(0.0, "unchanged") if not pair.change else Formatted(share, format_change(share))


_GROUPS = (
    Column("", Kind.NAME),
    Column("parameters", Kind.COUNT, room=9),
    Column("change", Kind.SIGNED, room=7),
    Column("bytes", Kind.BYTES, room=6),
    Column("change", Kind.SIGNED_BYTES, room=5),
    Column("bytes in %", Kind.RATIO, room=9),
    Column("old parameters", Kind.COUNT, is_hidden=True),
    Column("old bytes", Kind.BYTES, is_hidden=True),
)


def _groups(document: CompareDocument) -> Table:
    title = title_groups(document.by, document.depth)
    known = [
        pair
        for pair in document.groups
        if any((pair.parameters.a, pair.parameters.b, pair.bytes.a, pair.bytes.b)) or _has_macs(pair)
    ]
    rows = [_group(pair) for pair in known]
    for pair, sign in ((document.ungrouped, 1), (document.overlap, -1)):
        if pair.group and (pair.bytes.a or pair.bytes.b):
            rows.append(_group(pair, sign))
    totals = document.totals
    stored = totals.stored_bytes
    total = (
        "total",
        totals.parameters.b,
        totals.parameters.change,
        stored.b,
        stored.change,
        Formatted(_share(stored), "unchanged" if not stored.change else format_change(_share(stored))),
        totals.parameters.a,
        stored.a,
        *_total_macs(document),
    )
    columns = (Column(title, Kind.NAME), *_GROUPS[1:], *(_MACS if document.macs is not UNSET else ()))
    return Table(columns, tuple(rows), title=title, total=total, is_long=True, key=GROUPS)


def _group(pair: GroupPair, sign: int = 1) -> Row:
    parameters, size = pair.parameters, pair.bytes
    return Row(
        (
            pair.group,
            sign * parameters.b,
            sign * parameters.change,
            sign * size.b,
            sign * size.change,
            _changed(size, pair.status),
            sign * parameters.a,
            sign * size.a,
            *_macs(pair, sign),
        )
    )


_MACS = (Column("MACs", Kind.COUNT, room=7), Column("change", Kind.SIGNED, room=6))


def _has_macs(pair: GroupPair) -> bool:
    return pair.macs is not UNSET and bool(pair.macs.a or pair.macs.b)


def _macs(pair: GroupPair, sign: int) -> tuple[Cell, ...]:
    """Return the last cells of a row: MACs and their change, which is unknown if the work of any node is."""
    if pair.macs is UNSET:
        return ()
    uncounted = pair.nodes_without_macs
    unknown = (0, 0) if uncounted is UNSET else (uncounted.a, uncounted.b)
    change: Cell = Formatted(None, "unknown") if any(unknown) else sign * pair.macs.change
    return format_macs(sign * pair.macs.b, unknown[1]), change


def _total_macs(document: CompareDocument) -> tuple[Cell, ...]:
    pair = document.totals.macs
    if document.macs is UNSET or pair is UNSET:
        return ()
    unknown = document.macs.a.unknown, document.macs.b.unknown
    change: Cell = Formatted(None, "unknown") if any(unknown) else pair.change
    return format_macs(pair.b, unknown[1]), change


def _tensors(document: CompareDocument) -> Table:
    differing = [pair for pair in document.tensors if pair.status != "unchanged"]
    columns = (
        Column("tensors that differ", Kind.NAME),
        Column("status", room=7),
        Column("what", Kind.PROSE, room=8),
        Column("bytes", Kind.BYTES, room=1),
        Column("change", Kind.SIGNED_BYTES, room=9),
        Column("was", Kind.NAME, room=0),
        Column("found by", room=0),
    )
    rows = tuple(
        Row(
            (
                pair.name,
                str(pair.status),
                "; ".join(_notes(pair)),
                pair.bytes.b,
                pair.bytes.change,
                _old_name(pair),
                "" if pair.matched_by == "name" else str(pair.matched_by or ""),
            )
        )
        for pair in differing
    )
    return Table(columns, rows, title="tensors that differ", is_long=True, brief=_BRIEF, key=TENSORS)


_BRIEF = 5
"""Number of tensors that are shown at first: the groups already tell where the change is."""


def _notes(pair: TensorPair) -> Iterator[str]:
    """Tell the differences of a pair, or describe its only side."""
    a, b = pair.a, pair.b
    if a is None or b is None:
        one = a or b
        assert one is not None  # a pair has a side
        yield f"{one.dtype} {format_shape(tuple(one.shape))}"
        if pair.line is not None:
            yield f"stored with another: {pair.line}"
        yield from _copies((("", one),))
        return
    if a.dtype != b.dtype:
        yield f"{a.dtype} -> {b.dtype}"
    if a.shape != b.shape:
        yield f"{format_shape(tuple(a.shape))} -> {format_shape(tuple(b.shape))}"
    if a.role != b.role:
        yield f"{a.role} -> {b.role}"
    if "values" in pair.changed:
        yield "different values"
    if pair.line in _LAYOUT_CHANGES and a.shape == b.shape:
        yield str(pair.line)
    if "parameters" in pair.changed and a.shape == b.shape:
        yield f"{format_count(pair.parameters.a)} -> {format_many(pair.parameters.b, 'parameter')}"
    if "parameters" in pair.changed:
        yield from _copies(((" in the old model", a), (" in the new model", b)))


def _old_name(pair: TensorPair) -> str:
    return pair.a.name if pair.a is not None and pair.b is not None and pair.a.name != pair.b.name else ""


def _copies(sides: Sequence[tuple[str, TensorSide]]) -> Iterator[str]:
    for where, side in sides:
        if side.copy_of is not None:
            yield f"copy of {side.copy_of}{where}"


def _totals(document: CompareDocument) -> Table:
    totals = document.totals
    pairs = (
        ("parameters", totals.parameters),
        ("stored elements", totals.stored_elements),
        ("stored bytes", totals.stored_bytes),
        ("bytes on disk", totals.bytes),
        ("tensors", totals.tensors),
        ("nodes", totals.nodes),
        ("MACs", None if totals.macs is UNSET else totals.macs),
    )
    rows = tuple(
        Row((name, pair.a, pair.b, pair.change, Formatted(_share(pair), format_change(_share(pair)))))
        for name, pair in pairs
        if pair is not None
    )
    columns = (
        Column("totals"),
        Column("old", Kind.COUNT, room=8),
        Column("new", Kind.COUNT, room=8),
        Column("change", Kind.SIGNED, room=9),
        Column("share", Kind.RATIO, room=9),
    )
    return Table(columns, rows, title="totals", detail=Detail.MORE, is_whole=True)


def _chart() -> Chart:
    """Draw the largest changes as bars to both sides of 0."""
    measures = [["change of bytes", [["change", 4]]], ["change of parameters", [["change", 2]]]]
    data = {"name": 0, "most": 30, "measures": measures}
    summary = (
        "Bars to both sides of nothing: how much more or less each group has; the table has the numbers."
    )
    return Chart(GROUPS, "What changed, by group", "bars", data, summary)
