"""FormulaReport -> its rows: terms and parts with the counts of all sides, and bytes at several precisions.

A part that only one side has gets a row too: a pooler that the class lacks, a matrix that `--set` removed.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence

from analyzer.formulas.record import BLOCK, CacheSize, Formula, FormulaReport, PartCount, TermCount
from analyzer.records import Frozen, replace

# Bytes of weights only, without activations, the runtime and its workspace.


_SCALE_BITS = 16
"""Bits of a block's scale: one fp16, and no zero point."""


class Precision(enum.Enum):
    """Storage of parameters: bits of a matrix element, bits of a vector element, and whether matrices are in blocks."""

    FP32 = ("fp32", 32, 32, False)
    FP16 = ("fp16", 16, 16, False)
    INT8 = ("int8", 8, 16, True)
    INT4 = ("4-bit", 4, 16, True)

    def __init__(self, label: str, matrix_bits: int, vector_bits: int, is_blocked: bool) -> None:
        self.label = label
        self.matrix_bits = matrix_bits
        self.vector_bits = vector_bits
        self.is_blocked = is_blocked

    def nbytes(self, part: PartCount, block: int = BLOCK) -> int:
        """Return the bytes of one part: quantization keeps vectors at fp16, and gives each block of a matrix a scale.

        Blocks are counted in each repetition of the part; a matrix whose rows are no multiple of the block takes a
        little more.
        """
        matrix = part.each - part.vectors
        bits = matrix * self.matrix_bits + part.vectors * self.vector_bits
        if self.is_blocked:
            bits += -(-matrix // block) * _SCALE_BITS
        return part.times * -(-bits // 8)


class Footprint(Frozen):
    """Bytes of the parameters at one precision."""

    precision: Precision
    terms: tuple[tuple[str, int], ...]
    """Pairs of term and bytes, in the formula's order."""

    @property
    def nbytes(self) -> int:
        return sum(nbytes for _, nbytes in self.terms)


def weigh(formula: Formula, block: int = BLOCK) -> tuple[Footprint, ...]:
    """Return the bytes of every term at every precision."""
    return tuple(
        Footprint(
            precision,
            tuple(
                (term.name, sum(precision.nbytes(part, block) for part in term.parts))
                for term in formula.terms
            ),
        )
        for precision in Precision
    )


class CacheBytes(Frozen):
    """The key-value cache of one sequence at fp16."""

    token: int
    """Bytes for each token."""
    source_token: int
    """Bytes for each position of the encoder."""
    tokens: int
    """Number of tokens that the cache is computed for: the requested length, else the model's context."""
    kept: int
    """Number of these tokens that are kept: a window may be smaller."""
    source_tokens: int

    @property
    def nbytes(self) -> int:
        """Bytes of one sequence of `tokens`."""
        return self.kept * self.token + self.source_tokens * self.source_token


_CACHE_BYTES = 2
"""Bytes of an element at fp16."""


def cache_bytes(cache: CacheSize, tokens: int | None = None) -> CacheBytes:
    """Return the cache of one sequence at fp16.

    Args:
        cache: its elements.
        tokens: length of the sequence; None for as many as the model is made for, or 1 where it has no bound.
    """
    length = tokens if tokens is not None else cache.context or 1
    return CacheBytes(
        token=_CACHE_BYTES * cache.token,
        source_token=_CACHE_BYTES * cache.source_token,
        tokens=length,
        kept=length if cache.window is None else min(length, cache.window),
        source_tokens=cache.source_context or length if cache.source_token else 0,
    )


class PartRow(Frozen):
    """One part, with the count of each side; None where there is no such side."""

    key: str
    count: PartCount | None
    """Formula's count; None where it lacks the part."""
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
        """Count of the judged side: the file, else PyTorch."""
        return self.census if self.model is None else self.model

    @property
    def differs(self) -> bool:
        """Whether a side's count differs from the formula's."""
        return any(side not in (None, self.value) for side in (self.census, self.model))


class TermRow(Frozen):
    """One term, and its parts."""

    name: str
    count: TermCount | None
    """Formula's count; None where it lacks the term."""
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
        """Row with only those parts that the formula has."""
        return replace(self, parts=tuple(part for part in self.parts if part.count is not None))

    @property
    def is_alone(self) -> bool:
        """Whether the term has a single part of the same name, so that one line is enough."""
        return len(self.parts) == 1 and self.parts[0].name == self.name

    @property
    def is_compared(self) -> bool:
        """Whether the formula, PyTorch or the file has the term, and not only the unchanged config."""
        return self.count is not None or bool(self.census or self.model)


def _total(numbers: Iterable[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


def make_rows(report: FormulaReport) -> tuple[TermRow, ...]:
    """Return every term of the formula, in its order, and then those that only another side has."""
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
    """Merge two sequences, keeping the order of each.

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
