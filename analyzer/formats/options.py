"""Options for showing a report; apart from the renderers, so that JSON need not load those of text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from analyzer.records import Frozen


class RenderOptions(Frozen):
    """Amount and width of the output, and documents to show beside it."""

    rows: int = 20
    """Number of rows of a long table before `[N others]`; 0 shows all."""
    width: int = 80
    """Columns of the terminal."""
    color: bool = False
    ascii: bool = False
    """Whether the output encoding has ASCII characters only."""
    verbose: bool = False
    """Whether to name the rule that decided each tensor."""
    beside: tuple[Mapping[str, Any], ...] = ()
    """JSON documents of saved reports that an HTML page shows beside its own."""
