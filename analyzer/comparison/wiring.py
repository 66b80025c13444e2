"""Two ledgers -> whether both models compute alike with their weights, whatever these are, and from where on not."""

from __future__ import annotations

from analyzer.comparison.record import WiringPair
from analyzer.errors import ModelReadError
from analyzer.fingerprint import Fingerprint, take_fingerprint
from analyzer.ledger import Ledger, Role
from analyzer.model import Key

__all__ = ["compare_wiring"]


def compare_wiring(a: Ledger, b: Ledger) -> WiringPair | None:
    """Whether the outputs have one digest with each weight under its PyTorch name, as far as both files tell names.

    None where a side is a saved report, is remote, or calls too much for one look.
    """
    is_named = all(_tells_names(side) for side in (a, b))
    ours, theirs = (_take(side, is_named=is_named) for side in (a, b))
    if ours is None or theirs is None:
        return None
    if ours.outputs == theirs.outputs:
        return WiringPair(alike=True)
    return WiringPair(alike=False, first=ours.first_difference(theirs))


def _tells_names(ledger: Ledger) -> bool:
    """Whether each learned tensor has a PyTorch name."""
    return all(entry.sources for entry in ledger.entries if entry.role is Role.PARAMETER)


def _take(ledger: Ledger, *, is_named: bool) -> Fingerprint | None:
    if ledger.live is None or ledger.model.traffic is not None:
        return None
    weights: dict[Key, str] = {
        entry.tensor.key: f"{entry.tensor.shape} {entry.sources if is_named else ''}"
        for entry in ledger.entries
        if entry.role in (Role.PARAMETER, Role.BUFFER)
    }
    try:
        return take_fingerprint(ledger.model, ledger.wiring, ledger.live, weights, ledger.traced_scopes)
    except ModelReadError:  # the file is not any more what was counted
        return None
