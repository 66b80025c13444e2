"""Rule: a frozen BatchNorm that an export computed in advance, a factor and a summand for each channel.

x * scale + shift with scale = weight / sqrt(running_var + eps) and shift = bias - running_mean * scale, as the forward
of DETR's and torchvision's `FrozenBatchNorm2d` writes it. A state dict does not say that the four are buffers.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from analyzer.classify.structure import find_origin
from analyzer.ledger import Entry, Role, natural_order
from analyzer.manifest import BatchNorm, Parameter
from analyzer.model import Key, Node, StoredTensor
from analyzer.model.operators import CARRIES, DECODES, MOVES, Kind, kind_of
from analyzer.reconciliation.books import Books
from analyzer.reconciliation.lines import Line
from analyzer.reconciliation.scaled import fit_vector
from analyzer.scopes import module_of

__all__ = ["match_frozen_batchnorm"]

Vector = npt.NDArray[np.float64]

_NUMBER = re.compile(r"\d+")

_SCALES, _SHIFTS = ("Mul", "QLinearMul"), ("Add", "QLinearAdd")

_MOST_NODES = 16

_EPSILONS = (1e-5, 0.0, 1e-6, 1e-3)
"""What frozen BatchNorms add to the variance, after the one that PyTorch's side tells."""


@dataclass(frozen=True, slots=True)
class _Found:
    norm: BatchNorm
    scale: Entry
    shift: Entry
    error: float
    layer: str | None
    """The PyTorch name of the weight that computes what is normalized, where one is known."""
    position: int


def match_frozen_batchnorm(books: Books) -> None:
    """Explain the pairs of vectors that multiply and shift what a layer gives as one unused BatchNorm does.

    Values do not say whose layer it is. That is its own by the names: both are in one module, or have the same numbers,
    and of several in one module the norms are in the order of the layers.
    """
    norms = [
        n for n in books.manifest.batch_norms if n.weight and n.bias and n.running_mean and n.running_var
    ]
    pairs = list(_pairs(books)) if books.contents.mode != "none" and norms else []
    found: dict[str, list[_Found]] = defaultdict(list)
    used: set[Key] = set()
    for norm in norms if pairs else ():
        pair = next(
            (f for f in _find(books, norm, pairs) if not {f.scale.tensor.key, f.shift.tensor.key} & used),
            None,
        )
        if pair is not None:
            used |= {pair.scale.tensor.key, pair.shift.tensor.key}
            found[module_of(norm.module)].append(pair)
    for alike in found.values():
        in_order = sorted(alike, key=lambda pair: natural_order(pair.norm.module))
        if _rise([pair.position for pair in in_order]) or _rise_with_layers(in_order):
            for pair in in_order:
                if _is_beside(pair):
                    _settle(books, pair, pair.scale, pair.norm.weight or "")
                    _settle(books, pair, pair.shift, pair.norm.bias or "")


def _rise(keys: Sequence[int | tuple[bool, str]]) -> bool:
    return list(keys) == sorted(keys)


def _rise_with_layers(pairs: Sequence[_Found]) -> bool:
    layers = [pair.layer for pair in pairs if pair.layer is not None]
    return len(layers) == len(pairs) and _rise([natural_order(layer) for layer in layers])


def _is_beside(pair: _Found) -> bool:
    """Whether the layer before is one of the norm's own module, or bears the same numbers."""
    if pair.layer is None:
        return True
    layer = module_of(pair.layer)
    is_same = module_of(layer) == module_of(pair.norm.module)
    return is_same or _NUMBER.findall(layer) == _NUMBER.findall(pair.norm.module)


def _find(books: Books, norm: BatchNorm, pairs: Sequence[tuple[Entry, Entry]]) -> Iterator[_Found]:
    tensors = books.tensor(norm.weight or ""), books.tensor(norm.bias or "")
    if any(tensor is None or tensor.name in books.parameters for tensor in tensors):
        return
    for scale, shift in pairs:
        if _is_open(books, scale) and _is_open(books, shift):
            error = _fit(books, norm, scale, shift)
            if error is not None:
                layer, position = _layer(books, scale)
                yield _Found(norm, scale, shift, error, layer, position)


def _is_open(books: Books, entry: Entry) -> bool:
    """Whether nothing has settled an entry, or a note alone, that says of which buffer it was computed."""
    settled = books.entries.get(entry.tensor.key)
    return settled is None or (settled.line is Line.BUFFER and settled.decided_by.endswith("+derived"))


def _layer(books: Books, scale: Entry) -> tuple[str | None, int]:
    """Whose weight computes what a factor multiplies, and where that is done."""
    wiring = books.ledger.wiring
    node = next(iter(wiring.readers(scale.tensor, past=MOVES | DECODES))).node
    parts = [part for part in wiring.producers(node) if isinstance(part, Node)]
    for part in parts:  # grows past what writes its result as codes and reads them
        if part.op_type in CARRIES and len(parts) < _MOST_NODES:
            parts += [before for before in wiring.producers(part) if isinstance(before, Node)]
        if kind_of(part) in (Kind.CONVOLUTION, Kind.PRODUCT):
            for operand in _operands(books, part):
                held = books.entries.get(operand.key)
                if held is not None and held.parameter is not None and len(operand.shape) > 1:
                    return held.parameter, node.position
    return None, node.position


def _settle(books: Books, found: _Found, entry: Entry, name: str) -> None:
    tensor = books.tensor(name)
    books.suspects = [s for s in books.suspects if s.entry.tensor.key != entry.tensor.key]
    rule = f"{books.contents.evidence}:batchnorm {found.norm.module}"
    if isinstance(tensor, Parameter):
        books.hold(tensor, entry, (Line.FOLDED_BATCHNORM,), rule, found.error)
    elif tensor is not None:
        books.settle(entry, Line.BUFFER, rule, tensor.name)


def _pairs(books: Books) -> Iterator[tuple[Entry, Entry]]:
    """A vector that something is multiplied by, and the one that is added right behind."""
    suspected = [suspect.entry for suspect in books.suspects]
    roles = (Role.PARAMETER, Role.UNATTRIBUTED, Role.CONSTANT, Role.BUFFER)
    noted = [entry for entry in books.ledger.entries if _is_open(books, entry)]
    free = {e.tensor.key: e for e in (*suspected, *noted) if e.role in roles}
    wiring = books.ledger.wiring
    for entry in free.values():
        readers = wiring.readers(entry.tensor, past=MOVES | DECODES)
        if len(readers) != 1 or readers[0].node.op_type not in _SCALES or not _is_vector(books, entry):
            continue
        onwards = wiring.readers(readers[0].node, past=CARRIES)
        if len(onwards) == 1 and onwards[0].node.op_type in _SHIFTS:
            for other in _operands(books, onwards[0].node):
                if other.key in free and _is_vector(books, free[other.key]):
                    yield entry, free[other.key]


def _is_vector(books: Books, entry: Entry) -> bool:
    return books.contents.numel(entry) > 1 and sum(dim > 1 for dim in books.contents.shape(entry)) == 1


def _operands(books: Books, node: Node) -> Iterator[StoredTensor]:
    """What a node reads of the file, as it is or past what moves or decodes it."""
    for slot in range(len(node.inputs)):
        found = find_origin(books.ledger.wiring, node, slot)
        if found is not None:
            yield found


def _fit(books: Books, norm: BatchNorm, scale_entry: Entry, shift_entry: Entry) -> float | None:
    """Largest difference to the two vectors of a BatchNorm, if these are they."""
    vector = books.contents.originals.vector
    weight, bias = vector(norm.weight), vector(norm.bias)
    mean, variance = vector(norm.running_mean), vector(norm.running_var)
    if weight is None or bias is None or mean is None or variance is None:
        return None
    if (
        len({each.shape for each in (weight, bias, mean, variance)}) > 1
        or np.ptp(weight) == np.ptp(variance) == 0
    ):
        return None
    for eps in dict.fromkeys((norm.eps, *_EPSILONS)):
        with np.errstate(divide="ignore", invalid="ignore"):
            scale = weight / np.sqrt(variance + eps)
        if not bool(np.isfinite(scale).all()):
            continue
        first = fit_vector(books.contents, scale_entry, scale, np.abs(scale))
        if first is None:
            continue
        sizes = np.abs(bias) + np.abs(mean * scale)
        second = fit_vector(books.contents, shift_entry, bias - mean * scale, sizes)
        if second is not None:
            return max(first, second)
    return None
