"""Rule: a factor for each channel that was multiplied into the linear layer, or the convolution, before it.

LayerScale gives gamma * (W x + b) (Touvron et al. 2021, equation 8); an optimizer stores gamma * W and gamma * b. The
factor is a parameter of the weight's own block of which the file holds nothing else, and of several in a block each is
in the weight that computes in its place.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from analyzer.ledger import Entry, Role, natural_order
from analyzer.manifest import Parameter
from analyzer.reconciliation.books import Books
from analyzer.reconciliation.lines import RETYPED, Computed, Line, Piece
from analyzer.reconciliation.scaled import ScaledFit, fit_scaled, fit_vector

__all__ = ["match_layer_scale"]

Vector = npt.NDArray[np.float64]

_BLOCK = re.compile(r"(?:.*\.)?\d+(?=\.)")
"""The path of a name up to its last number: the block that the tensor is in."""


@dataclass(frozen=True, slots=True)
class _Found:
    gamma: Parameter
    weight: Parameter
    entry: Entry
    fit: ScaledFit
    bias: Parameter | None
    bias_entry: Entry | None


def match_layer_scale(books: Books) -> None:
    """Explain weights and biases that are PyTorch's times one free vector of their block."""
    if books.contents.mode == "none":
        return
    gammas = [p for p in books.free_parameters() if _is_factor(books, p)]
    found: dict[str, list[_Found]] = defaultdict(list)
    used = set()
    for gamma in gammas:
        pair = next((f for f in _find(books, gamma) if f.entry.tensor.key not in used), None)
        if pair is not None:
            used.add(pair.entry.tensor.key)
            found[_block(gamma.name)].append(pair)
    for pairs in found.values():
        pairs.sort(key=lambda pair: natural_order(pair.gamma.name))
        places = [_place(books, pair.entry) for pair in pairs]
        if places == sorted(places):
            for pair in pairs:
                _settle(books, pair)


def _block(name: str) -> str:
    found = _BLOCK.match(name)
    return found.group() if found else ""


def _is_factor(books: Books, parameter: Parameter) -> bool:
    leaf = parameter.name.rpartition(".")[2]
    is_vector = parameter.numel == max(parameter.shape, default=0) > 1
    is_own = leaf != "bias" and not any(
        books.tensor(f"{name.removesuffix('weight')}bias") for name in parameter.names
    )
    return is_vector and is_own and not books.contents.originals.is_constant(parameter)


def _place(books: Books, entry: Entry) -> int:
    return min((node.position for node in books.users(entry)), default=-1)


def _find(books: Books, gamma: Parameter) -> Iterator[_Found]:
    block = _block(gamma.name)
    factors = books.contents.originals.vector(gamma.name)
    if factors is None:
        return
    factors = factors.reshape(-1)
    for weight in books.free_parameters():
        is_near = f"{weight.name}.".startswith(f"{block}.") or not block
        is_matrix = len(weight.shape) > 1 and weight.shape[0] == factors.size and weight.numel > factors.size
        if not (is_near and is_matrix):
            continue
        for entry in _candidates(books, weight):
            fit = fit_scaled(books.contents, entry, weight, factors, 0)
            if fit is None:
                continue
            bias = books.tensor(f"{weight.name.removesuffix('weight')}bias")
            if not isinstance(bias, Parameter):
                yield _Found(gamma, weight, entry, fit, None, None)
                continue
            bias_entry = _find_bias(books, entry, bias, factors)
            if bias_entry is not None:
                yield _Found(gamma, weight, entry, fit, bias, bias_entry)


def _candidates(books: Books, weight: Parameter) -> Iterator[Entry]:
    suspected = [suspect.entry for suspect in books.suspects if suspect.tensor is weight]
    for entry in (*suspected, *books.free_entries()):
        is_like = books.contents.numel(entry) == weight.numel and entry.role is Role.PARAMETER
        if is_like and not books.is_elsewhere(entry, weight):
            yield entry


def _find_bias(books: Books, weight: Entry, bias: Parameter, factors: Vector) -> Entry | None:
    """The stored bias, of the node that reads the weight or of the one behind, that is PyTorch's times the factors."""
    values = books.contents.originals.vector(bias.name)
    if values is None or values.size != factors.size:
        return None
    expected = values.reshape(-1) * factors
    wiring = books.ledger.wiring
    users = list(books.users(weight))
    near = {node.place for node in users} | {r.node.place for node in users for r in wiring.readers(node)}
    suspected = [suspect.entry for suspect in books.suspects]
    free = (e for e in (*suspected, *books.free_entries()) if books.contents.numel(e) == factors.size)
    for entry in free:
        is_near = entry.role is Role.PARAMETER and any(node.place in near for node in books.users(entry))
        if is_near and fit_vector(books.contents, entry, expected, np.abs(expected)) is not None:
            return entry
    return None


def _settle(books: Books, found: _Found) -> None:
    rule = f"{found.fit.evidence}:layerscale {found.gamma.name}"
    moved = tuple(line for line in found.fit.chain if line not in RETYPED)
    retyped = tuple(line for line in found.fit.chain if line in RETYPED)
    layout = found.fit.layout
    piece = Piece(found.entry.tensor.key, layout.shape, layout.axes, computed=Computed(rule))
    keys = {found.entry.tensor.key} | ({found.bias_entry.tensor.key} if found.bias_entry else set())
    books.suspects = [s for s in books.suspects if s.entry.tensor.key not in keys]
    chain = (*moved, Line.FOLDED_WEIGHTNORM, *retyped)
    books.hold(found.weight, found.entry, chain, rule, found.fit.error, pieces=(piece,))
    books.merge(found.gamma, found.entry, Line.FOLDED_WEIGHTNORM, rule, None)
    if found.bias is not None and found.bias_entry is not None:
        books.hold(found.bias, found.bias_entry, (Line.FOLDED_WEIGHTNORM,), rule)
