"""Formula -> bytes: its terms at several precisions, and a decoder's key-value cache.

Weights only: activations, the runtime and its workspace come on top.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from analyzer.formulas.record import BLOCK, CacheSize, Formula, PartCount

__all__ = ["CacheBytes", "Footprint", "Precision", "cache_bytes", "weigh"]

_SCALE_BITS = 16
"""A block's scale: one fp16, and no zero point."""


class Precision(enum.Enum):
    """How parameters are stored: bits of an element of a matrix, bits of one of a vector, and whether in blocks."""

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
        """Bytes of one part: vectors stay at fp16 where matrices are quantized, each block of a matrix has a scale.

        Blocks are counted in each of the part's repetitions; a matrix whose rows are no multiple of the block takes a
        little more.
        """
        matrix = part.each - part.vectors
        bits = matrix * self.matrix_bits + part.vectors * self.vector_bits
        if self.is_blocked:
            bits += -(-matrix // block) * _SCALE_BITS
        return part.times * -(-bits // 8)


@dataclass(frozen=True, slots=True)
class Footprint:
    """Bytes of the parameters at one precision."""

    precision: Precision
    terms: tuple[tuple[str, int], ...]
    """(term, bytes), in the formula's order."""

    @property
    def nbytes(self) -> int:
        return sum(nbytes for _, nbytes in self.terms)


def weigh(formula: Formula, block: int = BLOCK) -> tuple[Footprint, ...]:
    """The bytes of every term at every precision."""
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


@dataclass(frozen=True, slots=True)
class CacheBytes:
    """The key-value cache of one sequence at fp16."""

    token: int
    """Bytes for each token."""
    source_token: int
    """Bytes for each position of the encoder."""
    tokens: int
    """Tokens that it is computed for: those asked for, else the model's context."""
    kept: int
    """Of them, those that are kept: a window may be smaller."""
    source_tokens: int

    @property
    def nbytes(self) -> int:
        """Bytes of one sequence of `tokens`."""
        return self.kept * self.token + self.source_tokens * self.source_token


_CACHE_BYTES = 2
"""An element at fp16."""


def cache_bytes(cache: CacheSize, tokens: int | None = None) -> CacheBytes:
    """What the cache of one sequence takes at fp16.

    Args:
        cache: its elements.
        tokens: how long the sequence is; None for as many as the model is made for, or 1 where it has no bound.
    """
    length = tokens if tokens is not None else cache.context or 1
    return CacheBytes(
        token=_CACHE_BYTES * cache.token,
        source_token=_CACHE_BYTES * cache.source_token,
        tokens=length,
        kept=length if cache.window is None else min(length, cache.window),
        source_tokens=cache.source_context or length if cache.source_token else 0,
    )
