"""Rule: the weight of a classifier by cosines, each of whose rows `forward` divides by its length.

A cosine classifier multiplies x / ||x|| by w / ||w|| (Wang et al. 2018, arXiv:1801.09414, section 3.1, CosFace; Deng et
al. 2019, arXiv:1801.07698, ArcFace). An export stores w / ||w||, or w with nodes that divide it, perhaps by stored
lengths. Nothing in a state dict tells of the division, but the other factor does: it is divided by its own length, too.
A parametrization of torch tells it by its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from analyzer.account.ledger import Entry
from analyzer.manifest import Buffer, Parameter
from analyzer.model import Node, StoredTensor
from analyzer.model.content import Array
from analyzer.model.operators import CARRIES, MOVES, Kind, kind_of
from analyzer.model.wiring import Reader, Wiring
from analyzer.reconciliation.books import Books
from analyzer.reconciliation.closeness import Reals
from analyzer.reconciliation.factors import tolerance_of
from analyzer.reconciliation.lines import MEANINGS, Computed, Line, Piece
from analyzer.reconciliation.normalized import layout_of, renamed_candidates

_PARAMETRIZED = re.compile(r"(?:.*\.)?parametrizations\.[^.]+\.original")
"""Name of a tensor from which torch's `parametrize` computes another (`torch.nn.utils.parametrize`)."""

_LEAST = 1e-12
"""Least length by which `torch.nn.functional.normalize` divides."""

_MOST_STEPS = 12
"""Most nodes between a quotient and the length that it is divided by."""


def match_unit_rows(books: Books) -> None:
    """Explain weights with each row divided by its length, and such lengths, if PyTorch's program is not known."""
    if books.contents.mode == "none" or books.manifest.program is not None:
        return  # a program tells which values PyTorch computes
    for weight in [p for p in books.free_parameters() if len(p.shape) == 2 and p.dtype.is_floating]:
        is_named = any(map(_PARAMETRIZED.fullmatch, weight.names))
        for entry in list(renamed_candidates(books, weight)):
            if books.contents.encoding(entry) is not None:
                continue
            wiring = books.ledger.wiring
            readers = wiring.readers(entry.tensor, past=CARRIES)
            if not is_named and not any(_is_cosine(wiring, reader) for reader in readers):
                continue
            values = books.contents.originals.values(weight)
            if values is None:
                break
            for rows in _unit_rows(values):
                layout = layout_of(books, entry, weight, rows, np.abs(rows))
                if layout is not None:
                    rule = f"{books.contents.evidence}:unit-rows {weight.name}"
                    piece = Piece(entry.tensor.key, layout.shape, layout.axes, computed=Computed(rule))
                    books.release(entry)
                    chain = (*layout.chain, Line.FOLDED_WEIGHTNORM)
                    books.assign(weight, entry, chain, rule, 0.0, pieces=(piece,))
                    break
            if weight.name in books.parameters:
                break
    for entry in list(books.free_entries()):
        weight_name = _find_divided(books, entry)
        if weight_name is not None:
            books.settle(entry, Line.EVALUATED, f"{books.contents.evidence}:lengths {weight_name}")


def _find_divided(books: Books, entry: Entry) -> str | None:
    """Return the parameter in the file whose rows, or columns, are divided by their lengths, which an entry holds.

    The nodes between may only bound the lengths from below, without effect on any but 0.
    """
    wiring, least = books.ledger.wiring, 0.0
    quotients: list[Reader] = []
    for reader in wiring.readers(entry.tensor, past=_REPEATS):
        if reader.node.op_type in ("Clip", "Max"):
            bound = _lower_bound(wiring, reader)
            if bound is None:
                return None
            least = max(least, bound)
            quotients += wiring.readers(reader.node, past=_REPEATS)
        else:
            quotients.append(reader)
    if not quotients or not all(_is_divisor(reader) for reader in quotients):
        return None
    matrix, *others = (wiring.find(node.graph_path, node.inputs[0]) for node, _ in quotients)
    if not isinstance(matrix, StoredTensor) or any(each is not matrix for each in others):
        return None
    line = books.entries.get(matrix.key)
    is_held = line is not None and MEANINGS[line.line].values in ("kept", "cast")
    weight = books.tensor(line.parameter or "") if line is not None and is_held else None
    if not isinstance(weight, Parameter):
        return None
    is_named = any(map(_PARAMETRIZED.fullmatch, weight.names))
    products = [each for node, _ in quotients for each in wiring.readers(node, past=CARRIES)]
    if not is_named and not any(_is_cosine(wiring, each) for each in products):
        return None
    return weight.name if _are_lengths(books, entry, books.entry(matrix.key), least) else None


def _are_lengths(books: Books, entry: Entry, matrix: Entry, least: float) -> bool:
    """Whether an entry has the lengths of a stored matrix's rows, or columns, and none between 0 and `least`."""
    lengths, numbers = books.contents.array(entry), books.contents.array(matrix)
    for each, array in ((entry, lengths), (matrix, numbers)):
        if array is None or array.dtype.kind not in "fV" or books.contents.encoding(each) is not None:
            return False
    assert lengths is not None
    assert numbers is not None
    found, values = lengths.astype(np.float64), numbers.astype(np.float64)
    if values.ndim != 2 or found.ndim != 2 or bool(((found < least) & (found != 0)).any()):
        return False
    tolerance = 2 * tolerance_of(books.contents, entry)
    for axis in (0, 1):
        expected = np.sqrt((values * values).sum(axis=axis, keepdims=True))
        if values.shape[axis] > 1 and found.shape == expected.shape:
            return bool((np.abs(found - expected) <= tolerance * expected).all())
    return False


def _is_divisor(reader: Reader) -> bool:
    return reader.node.op_type == "Div" and reader.node.is_standard and reader.slot == 1


def _lower_bound(wiring: Wiring, reader: Reader) -> float | None:
    """Return the stored number below which a node raises its input, if it does nothing else; None otherwise."""
    node, slot = reader
    others = [name for number, name in enumerate(node.inputs) if number != slot and name]
    is_bounded_above = node.op_type == "Clip" and (slot != 0 or others[:1] != [node.inputs[1]])
    if not node.is_standard or len(others) != 1 or is_bounded_above:
        return None
    stored = wiring.find(node.graph_path, others[0])
    array = stored.payload.array() if isinstance(stored, StoredTensor) and stored.numel == 1 else None
    return None if array is None else float(array.reshape(-1)[0])


_REPEATS = frozenset({"Expand", "Identity"})
"""Operators that pass on lengths to their division."""


def _unit_rows(values: Array) -> Iterator[Reals]:
    """Yield a matrix with its rows divided by their lengths, then with its columns."""
    numbers = values.astype(np.float64)
    for axis in (1, 0):
        lengths = np.sqrt((numbers * numbers).sum(axis=axis, keepdims=True))
        yield numbers / np.maximum(lengths, _LEAST)


def is_divided_by_length(
    books: Books, tensor: Parameter | Buffer, reader: Reader, stored: Array | None, arrived: Array | None
) -> bool:
    """Whether a node multiplies unit vectors by a matrix of which nodes divided each row, or column, by its length."""
    if books.manifest.program is not None or not isinstance(tensor, Parameter) or len(tensor.shape) != 2:
        return False
    if stored is None or arrived is None or stored.ndim != 2 or not _is_cosine(books.ledger.wiring, reader):
        return False
    found = arrived.astype(np.float64)
    return any(
        found.shape == each.shape and bool(np.allclose(found, each, rtol=_NEAR, atol=_NEAR))
        for rows in _unit_rows(stored)
        for each in (rows, rows.T)
    )


_NEAR = 1e-5
"""Error of a quotient by a rounded length."""


def _is_cosine(wiring: Wiring, reader: Reader) -> bool:
    """Whether the other factor of a product is divided by its own length, and only moved since."""
    node, slot = reader
    return kind_of(node) is Kind.PRODUCT and slot < 2 <= len(node.inputs) and _is_unit(wiring, node, 1 - slot)


def _is_unit(wiring: Wiring, node: Node, slot: int) -> bool:
    for _ in range(_MOST_STEPS):
        source = wiring.find(node.graph_path, node.inputs[slot])
        if not isinstance(source, Node) or not source.is_standard or not source.inputs:
            return False
        if source.op_type == "LpNormalization":
            return True
        if source.op_type == "Div":
            return _is_length_of(wiring, source)
        if source.op_type not in MOVES:
            return False
        node, slot = source, 0
    return False


def _is_length_of(wiring: Wiring, quotient: Node) -> bool:
    """Whether a divisor is computed, by a sum of squares or a norm, from what it divides and numbers alone."""
    dividend = wiring.find(quotient.graph_path, quotient.inputs[0])
    waiting, seen = [(quotient, 1)], 0
    while waiting and seen < _MOST_STEPS:
        node, slot = waiting.pop()
        source = wiring.find(node.graph_path, node.inputs[slot]) if node.inputs[slot] else None
        if not isinstance(source, Node):
            continue
        seen += 1
        if source.op_type in _LENGTHS:
            waiting += [(source, number) for number in range(len(source.inputs))]
        if source.op_type.startswith("Reduce") and source.op_type in _LENGTHS:
            first = wiring.find(source.graph_path, source.inputs[0])
            squared = first if isinstance(first, Node) and first.op_type in ("Mul", "Pow") else None
            origin = first if squared is None else wiring.find(squared.graph_path, squared.inputs[0])
            if origin is not None and origin is dividend:
                return True
    return False


_LENGTHS = frozenset(
    {"Add", "Cast", "Clip", "Expand", "Identity", "Max", "Pow", "ReduceL2", "ReduceSum", "ReduceSumSquare"}
    | {"Sqrt", "Unsqueeze"}
)
"""Operators that compute a length from a vector, bound it and repeat it."""
