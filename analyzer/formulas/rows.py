"""FormulaReport -> its rows: the terms and parts of the formula, beside what PyTorch, a file or the config has.

A row is also there for what only one of these has: a pooler that the class lacks, a matrix that `--set` took away.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from analyzer.formulas.record import FormulaReport, PartCount, TermCount

__all__ = ["PartRow", "TermRow", "make_rows"]


@dataclass(frozen=True, slots=True)
class PartRow:
    """One part, with what each has of it; None where there is no such side."""

    key: str
    count: PartCount | None
    """None where the formula has none."""
    before: int | None
    census: int | None
    model: int | None

    @property
    def term(self) -> str:
        return self.key.partition("/")[0]

    @property
    def name(self) -> str:
        return self.key.partition("/")[2]

    @property
    def value(self) -> int:
        return 0 if self.count is None else self.count.value

    @property
    def actual(self) -> int | None:
        """What the judged side has: the file, else PyTorch."""
        return self.census if self.model is None else self.model

    @property
    def differs(self) -> bool:
        """Whether a side has another number."""
        return any(side not in (None, self.value) for side in (self.census, self.model))


@dataclass(frozen=True, slots=True)
class TermRow:
    """One term, and its parts."""

    name: str
    count: TermCount | None
    """None where the formula has none."""
    parts: tuple[PartRow, ...]

    @property
    def value(self) -> int:
        return sum(part.value for part in self.parts)

    @property
    def before(self) -> int | None:
        return _total(part.before for part in self.parts)

    @property
    def census(self) -> int | None:
        return _total(part.census for part in self.parts)

    @property
    def model(self) -> int | None:
        return _total(part.model for part in self.parts)

    @property
    def actual(self) -> int | None:
        return _total(part.actual for part in self.parts)

    @property
    def counted(self) -> TermRow:
        """The same with those parts that the formula has."""
        return replace(self, parts=tuple(part for part in self.parts if part.count is not None))

    @property
    def is_alone(self) -> bool:
        """Whether the term is its only part, which need not be said twice."""
        return len(self.parts) == 1 and self.parts[0].name == self.name

    @property
    def is_compared(self) -> bool:
        """Whether the formula, PyTorch or the file has it: not only the unchanged config."""
        return self.count is not None or bool(self.census or self.model)


def _total(numbers: Iterable[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


def make_rows(report: FormulaReport) -> tuple[TermRow, ...]:
    """Every term of the formula, in its order, and whatever another side has besides."""
    counted = {part.key: part for part in report.formula.parts}
    before = None if report.before is None else {part.key: part.value for part in report.before.parts}
    census, model = (
        None if side is None else side.counts for side in (report.checked.census, report.checked.model)
    )
    keys = _merge(list(counted), list(before or ()))
    keys += sorted({*(census or ()), *(model or ())}.difference(keys))
    rows: dict[str, list[PartRow]] = {}
    for key in keys:
        sides = (None if side is None else side.get(key, 0) for side in (before, census, model))
        row = PartRow(key, counted.get(key), *sides)
        rows.setdefault(row.term, []).append(row)
    terms = {term.name: term for term in report.formula.terms}
    return tuple(TermRow(name, terms.get(name), tuple(parts)) for name, parts in rows.items())


def _merge(first: Sequence[str], second: Sequence[str]) -> list[str]:
    """Both, each in its order.

    >>> _merge(["a", "b", "d"], ["a", "c", "d", "e"])
    ['a', 'c', 'b', 'd', 'e']
    """
    merged, known, position = list(first), set(first), 0
    for key in second:
        if key in known:
            position = merged.index(key) + 1
        else:
            merged.insert(position, key)
            position += 1
    return merged
