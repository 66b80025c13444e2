"""FormulaReport -> sections: the formula beside PyTorch and a file, and beside the config as it was."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

from analyzer.formulas.reasons import NO_TERM
from analyzer.formulas.record import FormulaReport, MatchedBy, Reason, Side
from analyzer.formulas.rows import PartRow, TermRow
from analyzer.render.options import RenderOptions
from analyzer.render.pieces import Cell, Code, Column, Line, Row, Section, Table
from analyzer.units import format_count, format_many, format_others, format_signed

__all__ = ["check_section", "what_if_section"]

_TITLES = {"census": "PyTorch", "model": "ONNX"}


def check_section(report: FormulaReport, rows: Sequence[TermRow], options: RenderOptions) -> Section:
    """Each term with what the sides have, the verdict, and the reason of every difference."""
    checked = report.checked
    sides = [side for side in (checked.census, checked.model) if side is not None]
    if not sides or report.is_symbolic:
        return ()
    compared = [row for row in rows if row.is_compared]
    titles = ("formula", *(_TITLES[side.kind] for side in sides), "difference")
    columns = (Column("term"), *(Column(title, is_number=True) for title in titles))
    found = [_numbers(row.value, *(_on(row, side) for side in sides)) for row in compared]
    made = [
        *_table_rows(
            compared,
            found,
            lambda part: _numbers(part.value, *(_on(part, side) for side in sides)),
            lambda part: part.differs,
            options,
        )
    ]
    unmatched = [sum(side.unmatched.values()) for side in sides]
    if any(unmatched):
        made.append(_row(NO_TERM, _numbers(0, *unmatched)))
    totals = _numbers(report.formula.total, *(side.total for side in sides))
    made.append(_row("total", totals, is_total=True))
    names = [Line((f"{_TITLES[side.kind]}: ", Code(side.name), _basis(side))) for side in sides]
    errors = [Line((f"error: {error}",)) for side in sides for error in side.errors]
    told = (
        *_verdicts(report, compared, sides),
        *errors,
        *_reasons(report, options),
        *_unmatched(report, options),
    )
    return (*names, Table(columns, tuple(made)), *told)


def _basis(side: Side) -> str:
    """What told which part a file's tensors belong to."""
    return "" if side.kind == "census" else f", by {_BASES[side.matched_by]}"


_BASES = {
    MatchedBy.NAMES: "the names in it",
    MatchedBy.CONTENTS: "names and contents of PyTorch's tensors",
    MatchedBy.UNBALANCED: "names of PyTorch's tensors, with which it does not balance: see reconcile",
    MatchedBy.SHAPES: "names and shapes of PyTorch's tensors",
}


def _on(row: TermRow | PartRow, side: Side) -> int:
    return (row.census if side.kind == "census" else row.model) or 0


def _numbers(formula: int, *sides: int) -> list[str]:
    """The formula, the sides, and what the last of them has more."""
    return [*map(format_count, (formula, *sides)), format_signed(sides[-1] - formula)]


def _row(name: str, numbers: Iterable[str], level: int = 0, *, is_total: bool = False) -> Row:
    cells: list[Cell] = [(name,), *((number,) for number in numbers)]
    return Row(tuple(cells), level, is_total)


def _table_rows(
    rows: Sequence[TermRow],
    numbers: Sequence[list[str]],
    part_numbers: Callable[[PartRow], list[str]],
    is_told: Callable[[PartRow], bool],
    options: RenderOptions,
) -> Iterable[Row]:
    """A row for each term, and below it those parts that there is something to tell of."""
    for row, shown in zip(rows, numbers, strict=True):
        yield _row(row.name, shown)
        told = [] if row.is_alone else [part for part in row.parts if options.verbose or is_told(part)]
        yield from (_row(part.name, part_numbers(part), 1) for part in told)


def _verdicts(report: FormulaReport, rows: Sequence[TermRow], sides: Sequence[Side]) -> list[Line]:
    """Whether each side has what the formula says."""
    same = [side for side in sides if _is_same(rows, side) and not side.errors]
    lines = []
    if same:
        has = f"{' and '.join(_TITLES[side.kind] for side in same)} {'have' if len(same) > 1 else 'has'}"
        lines.append(Line((f"{has} what the formula says, part by part",), is_strong=True))
    for side in sides:
        if side not in same:
            is_settled = side is report.checked.side and report.checked.agrees
            lines.append(Line((_difference(report, side, is_settled=is_settled),), is_strong=True))
    return lines


def _is_same(rows: Sequence[TermRow], side: Side) -> bool:
    return not side.unmatched and all(part.value == _on(part, side) for row in rows for part in row.parts)


def _difference(report: FormulaReport, side: Side, *, is_settled: bool) -> str:
    what, difference = _TITLES[side.kind], side.total - report.formula.total
    if side.errors and not difference:
        return f"DIFFERS: {what} counts what the formula says, and does not hold it"
    if not difference and is_settled:
        return f"{what} has what the formula says, as far as names tell"
    if not difference:
        return f"DIFFERS: {what} has as many parameters, but others"
    has = f"{what} has {format_many(abs(difference), 'parameter')} {'more' if difference > 0 else 'fewer'}"
    return f"{has}, and what became of them is known" if is_settled else f"DIFFERS: {has}"


def _reasons(report: FormulaReport, options: RenderOptions) -> list[Line]:
    """Why each part differs; parts with one reason in common share a line."""
    reasons = report.checked.reasons
    alike: dict[str, list[Reason]] = defaultdict(list)
    for reason in reasons:
        alike[reason.sentence].append(reason)
    lines = [line for each in alike.values() for line in _told(each)]
    shown = lines[: options.rows] if options.rows else lines
    if left := len(lines) - len(shown):
        shown.append(Line((f"[{format_many(left, 'other')}, in JSON]",)))
    rest = (report.checked.difference or 0) - sum(reason.elements for reason in reasons)
    if rest:
        shown.append(Line((f"{format_signed(rest)}: nothing explains it",)))
    return shown


_FEW = 2
"""Parts that each have a line, though their reason is the same."""


def _told(reasons: Sequence[Reason]) -> Iterator[Line]:
    """A line for each part, or one for all where they are many."""
    if len(reasons) > _FEW:
        terms = dict.fromkeys(reason.part.partition("/")[0] for reason in reasons)
        elements = format_signed(sum(reason.elements for reason in reasons))
        names = [piece for term in terms for piece in (", ", Code(term))][1:]
        yield Line((*names, f": {elements}, {reasons[0].sentence}"))
        return
    for reason in reasons:
        told = f": {format_signed(reason.elements)}, {reason.sentence}"
        yield Line((Code(_short(reason.part)), *_where(reason), told))


def _where(reason: Reason) -> Cell:
    """The group of a ledger that a part is, where its name does not say it."""
    return () if reason.group in ("", reason.part.partition("/")[2]) else (" (", Code(reason.group), ")")


def _unmatched(report: FormulaReport, options: RenderOptions) -> Iterator[Line]:
    """What belongs to no term, the largest first; a few of what is most of a side, which says so by itself."""
    side = report.checked.side
    if side is None:
        return
    found = sorted(side.unmatched.items(), key=lambda item: (-item[1], item[0]))
    is_most = 2 * sum(side.unmatched.values()) > side.total and not options.verbose
    shown = found[:_FEW] if is_most else found[: options.rows or None]
    for name, elements in shown:
        yield Line((f"{NO_TERM} {_TITLES[side.kind]}: ", Code(name), f" {format_count(elements)}"))
    if left := found[len(shown) :]:
        elements = sum(each for _, each in left)
        yield Line((f"{NO_TERM} {_TITLES[side.kind]}: {format_others(len(left))} {format_count(elements)}",))


def _short(key: str) -> str:
    """A part's key; of a term that is its only part, its name."""
    term, _, part = key.partition("/")
    return term if term == part else key


def what_if_section(report: FormulaReport, rows: Sequence[TermRow], options: RenderOptions) -> Section:
    """What `--set` changes, term by term."""
    if report.before is None or report.is_symbolic:
        return ()
    columns = (
        Column("what if"),
        *(Column(title, is_number=True) for title in ("before", "now", "difference")),
    )
    told = [row for row in rows if row.count is not None or row.before]
    found = [_numbers(row.before or 0, row.value) for row in told]
    made = [
        *_table_rows(
            told,
            found,
            lambda part: _numbers(part.before or 0, part.value),
            lambda part: (part.before or 0) != part.value,
            options,
        ),
        _row("total", _numbers(report.before.total, report.formula.total), is_total=True),
    ]
    is_stored = any(row.before != row.value for row in told)
    nothing = () if is_stored else (Line(("nothing that is stored changes",)),)
    return (Table(columns, tuple(made)), *nothing)
