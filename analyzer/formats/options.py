"""How a report is shown; apart from the renderers, so that who wants JSON need not load those of text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from analyzer.records import Frozen


class RenderOptions(Frozen):
    """How much is shown, how wide, and what beside it."""

    rows: int = 20
    """Rows of a long table before `[N others]`; 0 shows all."""
    width: int = 80
    """Columns of the terminal."""
    color: bool = False
    ascii: bool = False
    """The encoding of what is printed to has no other characters."""
    verbose: bool = False
    """Also say by which rule each tensor was decided."""
    beside: tuple[Mapping[str, Any], ...] = ()
    """JSON documents of saved reports that an HTML page shows beside its own."""
