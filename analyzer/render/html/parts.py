"""What the documents of several commands have in common -> blocks: groups, findings, facts on a model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from analyzer.findings.catalog import EXPLANATIONS
from analyzer.render.html.blocks import Block, Cell, Column, Fact, Facts, Finding, Findings, Grid
from analyzer.render.html.reading import View
from analyzer.render.html.wording import bytes_of, cell, ms, share, show, texts
from analyzer.render.sentences.findings import worst_first

__all__ = [
    "Beside",
    "Keys",
    "compact",
    "describe_findings",
    "describe_groups",
    "facts",
    "list_findings",
    "name",
    "number",
]


@dataclass(slots=True)
class Keys:
    """Gives every block of a page a key of its own."""

    count: int = 0

    def next(self) -> str:
        self.count += 1
        return f"block-{self.count}"


@dataclass(frozen=True, slots=True)
class Beside:
    """What other documents of the page say that belongs next to this one's numbers."""

    keys: Keys = field(default_factory=Keys)
    times: Mapping[str, float] = field(default_factory=dict)
    """Milliseconds of each group, by its name."""
    formula: View | None = None


def name(title: str) -> Column:
    """A column of names from files."""
    return Column(title, is_code=True)


def number(title: str) -> Column:
    """A column of numbers."""
    return Column(title, is_number=True)


def compact(blocks: Iterable[Block | None]) -> tuple[Block, ...]:
    """Those that are there."""
    return tuple(block for block in blocks if block is not None)


def facts(*pairs: tuple[str, str | None], title: str = "") -> Facts:
    """Those of the names and values that have one."""
    return Facts(tuple(Fact(label, show(value)) for label, value in pairs if value), title)


def describe_groups(view: View, beside: Beside, parameters: int | None, *, is_pytorch: bool = False) -> Grid:
    """The groups of a document, PyTorch's own or the file's, with times where a timing has groups of these names."""
    rows = view.rows("groups")
    known = any(row.has("trainable") for row in rows)
    times = beside.times if any((row.text("group") or "") in beside.times for row in rows) else {}
    columns = (
        name(_group_title(view, is_pytorch=is_pytorch)),
        number("parameters"),
        number("share"),
        *((number("trainable"), number("frozen")) if known else ()),
        number("stored elements"),
        number("bytes"),
        number("tensors"),
        number("nodes"),
        *((number("ms"),) if times else ()),
    )
    return Grid(
        beside.keys.next(),
        "Groups",
        columns,
        tuple(_group_row(row, parameters, known, times) for row in rows),
        _group_total(view, rows, parameters, known, times),
    )


def _group_title(view: View, *, is_pytorch: bool) -> str:
    by, depth = view.text("by"), view.count("depth")
    by = "scope in PyTorch" if is_pytorch and by == "scope" else by
    return "group" if not by else f"{show(by)}, depth {depth}" if depth is not None else show(by)


def _group_row(
    row: View, parameters: int | None, known: bool, times: Mapping[str, float]
) -> tuple[Cell, ...]:
    group, mine = row.text("group"), row.count("parameters")
    cells: list[Cell] = [show(group), cell(mine), share(mine, parameters)]
    if known:
        cells += [cell(row.count("trainable")), cell(row.count("frozen"))]
    cells += [cell(row.count(key)) for key in ("stored_elements", "bytes", "tensors", "nodes")]
    if times:
        cells.append(ms(times.get(group or "")))
    return tuple(cells)


def _group_total(
    view: View, rows: Sequence[View], parameters: int | None, known: bool, times: Mapping[str, float]
) -> tuple[Cell, ...]:
    """Sums, where no tensor is in several groups; none otherwise, for they would be too large."""
    if view.count("overlap") or view.count("ungrouped"):
        return ()
    keys = ["stored_elements", "bytes", "tensors", "nodes"]
    sums = [
        sum(row.count(key) or 0 for row in rows) for key in (["trainable", "frozen"] if known else []) + keys
    ]
    whole = sum(row.count("parameters") or 0 for row in rows)
    timed = ms(sum(times.values())) if set(times) <= {row.text("group") for row in rows} else ""
    return ("total", whole, share(whole, parameters), *sums, *((timed,) if times else ()))


def describe_findings(view: View) -> tuple[Block, ...]:
    """The findings of a document."""
    return (Findings(list_findings(view.rows("findings"))),)


def list_findings(rows: Iterable[View], model: str = "") -> tuple[Finding, ...]:
    """Each with what the catalogue says of its kind; the gravest first."""
    found = sorted((_finding(row, model) for row in rows), key=lambda each: each.id)
    return tuple(worst_first(found, lambda each: each.severity))


def _finding(row: View, model: str) -> Finding:
    identity = row.text("id") or ""
    known = EXPLANATIONS.get(identity)
    paragraphs: tuple[tuple[str, str], ...] = ()
    if known is not None:
        paragraphs = (
            ("What it means", known.meaning),
            ("What it costs", known.cost),
            ("How to mend it", known.mend),
        )
    nbytes = row.count("bytes") if row.has("bytes") else None
    return Finding(
        id=show(identity),
        severity=show(row.text("severity")),
        message=show(row.text("message"), 4000),
        subjects=texts(row.names("subjects") if row.has("subjects") else ()),
        nbytes="" if nbytes is None else bytes_of(nbytes),
        title=known.title if known is not None else "",
        paragraphs=tuple((heading, text) for heading, text in paragraphs if text),
        model=show(row.text("model")) if row.has("model") else model,
    )
