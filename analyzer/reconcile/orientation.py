"""Rule: a square weight that a product reads the other way round than all others was turned by somebody.

An exporter that does not keep a weight's name has transposed it for MatMul, or has not, and then none of them. Shapes
show which: those of weights that are not square. A square one fits both ways, and only the others tell which is right.
"""

from __future__ import annotations

from collections.abc import Iterator

from analyzer.ledger import Entry
from analyzer.manifest import Parameter
from analyzer.model.operators import DECODES
from analyzer.reconcile.axes import is_computed
from analyzer.reconcile.books import Books
from analyzer.reconcile.lines import Line, ParameterLine

__all__ = ["settle_turned"]


def settle_turned(books: Books) -> None:
    """Settle as `differing` the square weights whose axes are in another order than all others'."""
    if books.contents.mode == "none":
        return
    squares, ways = [], set()
    for parameter, entry, line in _multiplied(books):
        is_turned = Line.TRANSPOSED in line.chain
        if parameter.shape[0] == parameter.shape[1]:
            squares.append((parameter, entry, line, is_turned))
        else:
            ways.add(is_turned)
    if len(ways) != 1:
        return
    (expected,) = ways
    for parameter, entry, line, is_turned in squares:
        if is_turned != expected:
            rule = f"{books.contents.evidence}:turned"
            books.hold(parameter, entry, (Line.DIFFERING,), rule, pieces=line.pieces)


def _multiplied(books: Books) -> Iterator[tuple[Parameter, Entry, ParameterLine]]:
    """Matrices that stand in an entry of another name by themselves, and that MatMul reads, decoded or not."""
    for parameter in books.manifest.parameters:
        line = books.parameters.get(parameter.name)
        is_weight = len(parameter.shape) == 2 and parameter.name.rpartition(".")[2] == "weight"
        if line is None or len(line.pieces) != 1 or not is_weight:
            continue
        piece = line.pieces[0]
        entry = books.entry(piece.key)
        is_whole = (
            piece.taken is None
            and piece.put is None
            and books.contents.shape(entry)
            in (
                parameter.shape,
                parameter.shape[::-1],
            )
        )
        if is_whole and is_computed(entry, parameter) and _is_factor(books, entry):
            yield parameter, entry, line


def _is_factor(books: Books, entry: Entry) -> bool:
    """Whether all that reads a matrix are products that take it as their second factor, as it is."""
    reads = books.ledger.wiring.readers(entry.tensor, past=DECODES)
    return bool(reads) and all(
        slot == 1
        and (node.op_type == "MatMul" or (node.op_type == "Gemm" and not node.integers.get("transB")))
        for node, slot in reads
    )
