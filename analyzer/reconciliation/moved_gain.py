"""Rule: a factor for each channel that moved from a norm's gain and bias into the weights behind it.

SmoothQuant divides what a norm gives by s and multiplies the weights that read it by s (Xiao et al. 2022,
arXiv:2211.10438, equation 3), so that activations are easier to quantize: g' = g / s, b' = b / s, and
W'[o, i] = W[o, i] * s[i]. The gain tells s; it is believed where all that reads the norm's output multiplies it by
such a weight: then the model computes what it did.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from analyzer.ledger import Entry, Role
from analyzer.manifest import Parameter
from analyzer.model import Node, StoredTensor
from analyzer.model.operators import CARRIES, DECODES, Kind, kind_of
from analyzer.reconciliation.books import Books
from analyzer.reconciliation.lines import RETYPED, Computed, Line, Piece
from analyzer.reconciliation.scaled import ScaledFit, fit_scaled, tolerance_of
from analyzer.scopes import module_of

__all__ = ["match_moved_gain"]

Vector = npt.NDArray[np.float64]

_KEEPS = DECODES | {"Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"}
"""Operators past which a stored tensor is followed: none of them cuts, joins or turns a vector round."""


@dataclass(frozen=True, slots=True)
class _Weight:
    """A weight that reads what the norm gives, and what it is with the factor taken back."""

    entry: Entry
    parameter: Parameter
    fit: ScaledFit


def match_moved_gain(books: Books) -> None:
    """Explain norms whose gain was divided by the factors that all weights behind it were multiplied by."""
    if books.contents.mode == "none":
        return
    for suspect in list(books.suspects):
        entry, gain = suspect.entry, suspect.tensor
        factors = _factors(books, entry, gain) if isinstance(gain, Parameter) else None
        if factors is None or not isinstance(gain, Parameter) or gain.name in books.parameters:
            continue
        flow = _flow(books, entry)
        if flow is None:
            continue
        last, bias_entry = flow
        bias = books.tensor(f"{module_of(gain.name)}.bias")
        if (bias_entry is None) != (not isinstance(bias, Parameter)):
            continue
        if bias_entry is not None and not _divides(books, bias_entry, bias, factors):
            continue
        weights = _weights(books, last, factors)
        if weights:
            _settle(books, entry, gain, bias_entry, bias, weights)


def _factors(books: Books, entry: Entry, gain: Parameter) -> Vector | None:
    """What the gain of each channel was divided by; None where that is not known, or is no factor."""
    known = books.contents.originals.vector(gain.name) if len(gain.shape) == 1 else None
    stored = None if known is None else _vector(books, entry, known.size)
    if known is None or stored is None:
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        factors = known / stored
    return factors if bool((np.isfinite(factors) & (factors > 0)).all()) else None


def _vector(books: Books, entry: Entry, size: int) -> Vector | None:
    if books.contents.numel(entry) != size or sum(dim != 1 for dim in books.contents.shape(entry)) > 1:
        return None
    look = books.contents.at(entry, np.arange(size, dtype=np.int64))
    return None if look is None or look[1] is not None else look[0].astype(np.float64)


def _divides(books: Books, entry: Entry, bias: object, factors: Vector) -> bool:
    """Whether a stored bias, multiplied by the factors, is PyTorch's."""
    known = books.contents.originals.vector(bias.name) if isinstance(bias, Parameter) else None
    stored = None if known is None else _vector(books, entry, known.size)
    if known is None or stored is None or known.size != factors.size:
        return False
    room = tolerance_of(books.contents, entry) * np.abs(known)
    return bool((np.abs(stored * factors - known) <= room).all())


def _flow(books: Books, entry: Entry) -> tuple[Node, Entry | None] | None:
    """The node that gives what a norm gives, and the entry of its bias; None where the entry is no norm's gain."""
    readers = books.ledger.wiring.readers(entry.tensor, past=_KEEPS)
    if len(readers) != 1:
        return None
    node, slot = readers[0]
    if kind_of(node) is Kind.NORMALIZES and node.is_standard and slot == 1:
        name = node.inputs[2] if len(node.inputs) > 2 else ""
        return (
            (node, _entry_at(books, node, name))
            if len(node.outputs) == 1 or not any(node.outputs[1:])
            else None
        )
    if node.op_type != "Mul":
        return None
    following = books.ledger.wiring.readers(node)
    if len(following) != 1 or following[0].node.op_type != "Add":
        return node, None
    added = following[0].node
    other = added.inputs[1 - following[0].slot] if len(added.inputs) == 2 else ""
    found = _entry_at(books, added, other)
    return (node, None) if found is None else (added, found)


def _entry_at(books: Books, node: Node, name: str) -> Entry | None:
    """The stored tensor of a name, as a node sees it, past what moves it or decodes it."""
    provider = books.ledger.wiring.find(node.graph_path, name) if name else None
    while isinstance(provider, Node) and provider.op_type in _KEEPS and provider.inputs:
        provider = books.ledger.wiring.find(provider.graph_path, provider.inputs[0])
    return books.find(provider.key) if isinstance(provider, StoredTensor) else None


def _weights(books: Books, node: Node, factors: Vector) -> list[_Weight]:
    """The weights that multiply what a node gives, if nothing else reads it and all are scaled by the factors."""
    outputs = {
        name for graph in books.ledger.model.graphs for name in graph.outputs if graph.path == node.graph_path
    }
    if outputs.intersection(node.outputs):
        return []
    found: list[_Weight] = []
    for reader, slot in books.ledger.wiring.readers(node, past=CARRIES):
        weight = None if kind_of(reader) is not Kind.PRODUCT else _weight_at(books, reader, slot, factors)
        if weight is None:
            return []
        found.append(weight)
    return found


def _weight_at(books: Books, node: Node, slot: int, factors: Vector) -> _Weight | None:
    """The weight of a product whose other factor is read at an input."""
    for place, name in enumerate(node.inputs[:2]):
        entry = _entry_at(books, node, name) if place != slot else None
        for parameter in _candidates(books, entry) if entry is not None else ():
            assert entry is not None
            for axis, dim in enumerate(parameter.shape):
                if dim != factors.size:
                    continue
                fit = fit_scaled(books.contents, entry, parameter, factors, axis)
                if fit is None or fit.evidence != books.contents.evidence:
                    continue
                if books.contents.fit(entry, parameter) is not None:
                    return None  # codes so coarse that they are the weight without the factor too
                uses = books.contents.uses(entry, fit.layout.shape, fit.layout.axes)
                if uses and all(use.summed == axis for use in uses):
                    return _Weight(entry, parameter, fit)
    return None


def _candidates(books: Books, entry: Entry) -> Iterator[Parameter]:
    """The matrices that an entry may hold: the one of its name, else any, what is held already (a tied one) last."""
    if entry.tensor.key in books.entries or entry.role is not Role.PARAMETER:
        return
    named = [suspect.tensor for suspect in books.suspects if suspect.entry.tensor.key == entry.tensor.key]
    others = sorted(books.manifest.parameters, key=lambda parameter: parameter.name in books.parameters)
    for tensor in named or others:
        if (
            isinstance(tensor, Parameter)
            and len(tensor.shape) == 2
            and tensor.numel == books.contents.numel(entry)
        ):
            yield tensor


def _settle(
    books: Books,
    entry: Entry,
    gain: Parameter,
    bias_entry: Entry | None,
    bias: object,
    weights: list[_Weight],
) -> None:
    rule = f"{books.contents.evidence}:moved-gain {module_of(gain.name)}"
    touched = {entry.tensor.key, *(weight.entry.tensor.key for weight in weights)}
    divided = Computed(f"{gain.name} / s")
    _hold(books, gain, entry, rule, divided)
    if bias_entry is not None and isinstance(bias, Parameter) and bias.name not in books.parameters:
        touched.add(bias_entry.tensor.key)
        _hold(books, bias, bias_entry, rule, Computed(f"{bias.name} / s"))
    for weight in weights:
        before = tuple(line for line in weight.fit.chain if line not in RETYPED)
        after = tuple(line for line in weight.fit.chain if line in RETYPED)
        layout = weight.fit.layout
        piece = Piece(
            weight.entry.tensor.key,
            layout.shape,
            layout.axes,
            computed=Computed(f"{weight.parameter.name} * s"),
        )
        chain = (*before, Line.FOLDED_POINTWISE, *after)
        if weight.parameter.name in books.parameters:
            books.copy(weight.parameter, weight.entry, rule)
            continue
        books.hold(weight.parameter, weight.entry, chain, rule, weight.fit.error, pieces=(piece,))
    books.suspects = [s for s in books.suspects if s.entry.tensor.key not in touched]


def _hold(books: Books, parameter: Parameter, entry: Entry, rule: str, computed: Computed) -> None:
    shape = books.contents.shape(entry)
    piece = Piece(entry.tensor.key, shape, tuple(range(len(shape))), computed=computed)
    changed = books.contents.changes(entry, parameter) or ()
    books.hold(parameter, entry, (Line.FOLDED_POINTWISE, *changed), rule, None, pieces=(piece,))
