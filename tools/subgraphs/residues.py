"""Tensors that are known to be in another block than their layer, with the cause."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["KNOWN", "NOTHING", "Known"]


@dataclass(frozen=True, slots=True)
class Known:
    """A cell whose blocks are not exactly its layers."""

    found: int | None
    """Number of blocks; None if it is the number of layers."""
    misplaced: int
    """Stored elements of learned tensors in other blocks, by the numbers of the blocks."""
    cause: str


NOTHING = Known(None, 0, "exact")

KNOWN: Mapping[str, Known] = {}
"""Known differences by the name of the cell, `<architecture>/<form>/<named|nameless>`."""
