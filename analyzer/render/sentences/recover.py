"""Recovery -> sentences: whose names its tensors get, what is to be said of which, and why what is lost is lost."""

from __future__ import annotations

from collections import defaultdict

from analyzer.content import SAMPLES
from analyzer.model import label
from analyzer.reconciliation.lines import Line
from analyzer.recover import Recovery
from analyzer.units import printable

__all__ = ["list_reasons", "tell_source"]


_DIFFERING = "other values than PyTorch has: the file's were taken"
_GUESSED = "square, and nothing that was compared tells it from its transpose"


def list_reasons(recovery: Recovery) -> dict[str, list[str]]:
    """What there is to say of tensors, and of which."""
    by_reason: dict[str, list[str]] = defaultdict(list)
    for tensor in recovery.lossy:
        by_reason[f"not every bit: {tensor.loss}"].append(tensor.name)
    for tensor in recovery.tensors:
        if tensor.line is Line.DIFFERING:
            by_reason[_DIFFERING].append(tensor.name)
    for name in recovery.guessed:
        by_reason[_GUESSED].append(name)
    for lost in recovery.lost:
        by_reason[f"not recovered: {lost.reason}"].append(lost.name)
    for found in recovery.unnamed:
        by_reason[f"without a name: {found.reason}"].append(label(found.key))
    return dict(by_reason)


def tell_source(recovery: Recovery) -> str:
    """The file, whose names its tensors get, and how far values were compared."""
    result = recovery.reconciliation
    source = result.manifest.source
    names = ", ".join(value for key in ("class", "source", "weights") if (value := source.get(key)))
    compared = {
        "none": "values not compared",
        "sampled": f"values compared at {SAMPLES} positions of each tensor",
        "full": "whole values compared",
    }[result.content]
    against = f" with the names of {names}" if names else ""
    return printable(f"{result.ledger.model.path}{against}; {compared}")
