"""Cells that are known not to balance, with their exact residues and causes; and why some cells cannot exist."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["KNOWN", "NOTHING", "Known", "explain_absence"]


@dataclass(frozen=True, slots=True)
class Known:
    """A cell that does not balance."""

    elements: Mapping[str, int]
    """Elements by line of the bridge, against the manifest of the export."""
    cause: str
    checkpoint: Mapping[str, int] | None = None
    """The same against the checkpoint; None if equal."""

    @property
    def checkpoint_elements(self) -> Mapping[str, int]:
        return self.elements if self.checkpoint is None else self.checkpoint


NOTHING = Known({}, "balances")

KNOWN: Mapping[str, Known] = {
    "t5/static/qdq": Known(
        {"missing": 32 * 4},
        "The decoder's three positions pick three of the 32 rows of its table of relative positions; the few values "
        "are quantized as an activation is, and no rule finds them in the table.",
    ),
}
"""Known residues, by the name of the cell. `make whole` checks each of them, in `tests/test_matrix.py`."""

_ABSENCES: tuple[tuple[str, str], ...] = (
    (
        "'aten::diff'",
        "transformers compares the positions of a decoder that has no attention mask, and the TorchScript exporter has "
        "no translation of that comparison",
    ),
)
"""Parts of error messages, and their causes."""


def explain_absence(reason: str) -> str:
    """Return the reason why a cell cannot exist: its error, and the cause if known."""
    return next((f"{why} ({reason})" for part, why in _ABSENCES if part in reason), reason)
