"""What is known to stand in another block than its layer, with the cause; and why some files cannot exist."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["KNOWN", "NOTHING", "Known"]


@dataclass(frozen=True, slots=True)
class Known:
    """A cell whose blocks are not exactly its layers."""

    found: int | None
    """Blocks; None where that is the number of layers."""
    misplaced: int
    """Stored elements of learned tensors that stand elsewhere, by the numbers of the blocks."""
    cause: str


NOTHING = Known(None, 0, "exact")

KNOWN: Mapping[str, Known] = {}
"""By the name of the cell, `<architecture>/<form>/<named|nameless>`."""
