"""Rule: a weight norm that was multiplied out.

W = g * v / ||v||, the norm over all axes but one (Salimans and Kingma 2016, equation 2; torch.nn.utils.weight_norm).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from analyzer.content import decode_values
from analyzer.ledger import Entry, Role
from analyzer.manifest import Parameter, WeightNorm
from analyzer.reconciliation.books import Books
from analyzer.reconciliation.lines import Computed, Line, Piece
from analyzer.reconciliation.scaled import fit_scaled

__all__ = ["match_folded_weightnorm"]

Vector = npt.NDArray[np.float64]


def match_folded_weightnorm(books: Books) -> None:
    """Explain weights that are a direction and a length of PyTorch's, neither of which is stored."""
    for norm in books.manifest.weight_norms if books.contents.mode != "none" else ():
        direction, length = books.tensor(norm.direction), books.tensor(norm.length)
        if not isinstance(direction, Parameter) or not isinstance(length, Parameter):
            continue
        if direction.name in books.parameters or length.name in books.parameters:
            continue
        scale = _scale(books, norm, direction)
        for entry in _candidates(books, direction) if scale is not None else ():
            assert scale is not None
            axis = 0 if norm.axis is None else norm.axis
            factors = np.full(direction.shape[0], scale[0]) if norm.axis is None else scale
            fit = fit_scaled(books.contents, entry, direction, factors, axis)
            if fit is not None:
                rule = f"{fit.evidence}:weightnorm {norm.weight}"
                chain = (Line.FOLDED_WEIGHTNORM, *fit.chain)
                product = Computed(f"weightnorm {norm.weight}")
                piece = Piece(entry.tensor.key, fit.layout.shape, fit.layout.axes, computed=product)
                books.suspects = [s for s in books.suspects if s.entry.tensor.key != entry.tensor.key]
                books.hold(direction, entry, chain, rule, fit.error, pieces=(piece,))
                books.merge(length, entry, Line.FOLDED_WEIGHTNORM, rule, None)
                break


def _candidates(books: Books, direction: Parameter) -> list[Entry]:
    suspected = [suspect.entry for suspect in books.suspects]
    free = [entry for entry in (*suspected, *books.free_entries()) if entry.tensor.key not in books.entries]
    return [e for e in free if books.contents.numel(e) == direction.numel and e.role is Role.PARAMETER]


def _scale(books: Books, norm: WeightNorm, direction: Parameter) -> Vector | None:
    """The factor g / ||v|| of each channel: from the manifest, or from the values."""
    if norm.scale is not None:
        return decode_values(norm.scale, np.dtype("<f8")).astype(np.float64)
    values = books.contents.originals.values(direction)
    length = books.contents.originals.vector(norm.length)
    if values is None or length is None:
        return None
    others = tuple(number for number in range(values.ndim) if number != norm.axis)
    sizes = np.sqrt(np.square(values.astype(np.float64)).sum(axis=others))
    return np.atleast_1d(length.ravel() / sizes)
