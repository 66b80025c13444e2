"""Entries that are learned by their name alone -> those that are causal masks by what they hold, which are buffers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from analyzer.ledger import Entry, Evidence, Role
from analyzer.model import StoredTensor
from analyzer.tables import is_mask

__all__ = ["settle_masks"]

_LEAST_POSITIONS = 3
"""Positions from which a mask is told from any matrix of two values."""


def settle_masks(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Enter causal masks as buffers: GPT-2 and those after it call theirs `attn.bias`, as a linear layer its bias.

    Only names are overruled: what the exporter notes, or an operator reads as weights, stays what it is.
    """
    for entry in entries:
        is_named = entry.role is Role.PARAMETER and entry.evidence is Evidence.NAME
        if is_named and _is_causal_mask(entry.tensor):
            yield replace(entry, role=Role.BUFFER, decided_by="content:causal-mask", parameters=0)
        else:
            yield entry


def _is_causal_mask(tensor: StoredTensor) -> bool:
    """Whether it says which positions each sees: itself, and all or the nearest before it, and none after.

    A few places are looked at first, so that no other square weight is read for it.
    """
    shape = tensor.shape
    if len(shape) < 2 or shape[-1] != shape[-2] or tensor.numel != shape[-1] ** 2:
        return False
    size = shape[-1]
    if size < _LEAST_POSITIONS:
        return False
    few = tensor.payload.at(np.array([0, size, size + 1, size**2 - 1, 1, size - 1], np.int64))
    if few is None or few.dtype.kind not in "biufV":
        return False
    seen, hidden = few[:4].astype(np.float64), few[4:].astype(np.float64)
    if not ((seen == seen[0]).all() and (hidden == hidden[0]).all() and seen[0] != hidden[0]):
        return False
    array = tensor.payload.array()
    if array is None:
        return False
    values = array.reshape(size, size).astype(np.float64)
    is_clear = bool(
        (values[np.triu_indices(size, 1)] == hidden[0]).all() and (values.diagonal() == seen[0]).all()
    )
    return is_clear and is_mask(values)
