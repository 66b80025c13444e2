"""How a report is shown as text; apart from the renderer, so that who wants JSON need not load it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["TextOptions"]


@dataclass(frozen=True, slots=True)
class TextOptions:
    """How much is shown, and how wide."""

    rows: int = 20
    """Rows of a long table before `[N others]`; 0 shows all."""
    width: int = 80
    color: bool = False
    verbose: bool = False
    """Also say by which rule each tensor was decided."""
