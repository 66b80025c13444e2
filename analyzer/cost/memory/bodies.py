"""Bodies of If, Loop and Scan, which no plan covers -> an upper bound of their memory, from their nodes' outputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from analyzer.account.ledger import Ledger
from analyzer.cost.algebra import evaluate
from analyzer.cost.memory.account import Needed
from analyzer.cost.values import Value
from analyzer.cost.walk import Walk
from analyzer.model import StoredTensor
from analyzer.timing.record import Axis

_CONTROL_OPERATORS = frozenset({"If", "Loop", "Scan"})

_LANES = 16
"""Multiple to which a kernel may pad the columns of a packed weight, of which it keeps the stored form too."""


def find_bound(
    needed: Needed, ledger: Ledger, axes: Sequence[Axis]
) -> Callable[[Mapping[str, int]], int | None]:
    """Return a function that bounds the bytes of a run beyond the modelled ones, as far as bodies request them.

    Its argument has sizes of axes by name; other axes have their planned sizes. It returns 0 without any body, and None
    where the bound is not known.
    """
    if not any(line.line == "nested graphs" for line in needed.lines):
        return lambda _: 0
    return bound_bodies(ledger, axes)


def bound_bodies(ledger: Ledger, axes: Sequence[Axis]) -> Callable[[Mapping[str, int]], int | None]:
    """Return a function that bounds the bytes requested by the bodies of a model's Ifs, Loops and Scans in a run.

    An iteration holds its nodes' outputs beside the values carried from the iteration before; outputs stacked over all
    iterations also exist in pieces until they are joined; kernels pack the weights that bodies read. The function
    returns None where a size is not known, or the body is of another operator, whose memory is not known.

    Args:
        ledger: the ledger of one file.
        axes: axes of the file's inputs, with a size each.
    """
    walk = Walk(ledger.model)
    bodies = {graph.path for graph in ledger.model.graphs if graph.parent is not None}
    control_nodes = {
        node.place for node in ledger.model.nodes() if node.op_type in _CONTROL_OPERATORS and node.is_standard
    }
    if any(graph.parent not in control_nodes for graph in ledger.model.graphs if graph.parent is not None):
        return lambda _: None
    made: list[Value] = []
    for visit in walk.run():
        if visit.is_closed:
            return lambda _: None
        places = {visit.step.node.graph_path, visit.place[0]}  # a call counts its function's nodes too
        if places & bodies:
            made += visit.made
    made += walk.joined
    planned = {(axis.input, axis.position): axis.size for axis in axes}
    planned_by_name = {axis.name: axis.size for axis in axes if axis.name is not None}
    tensors = (entry.tensor for entry in ledger.entries if entry.tensor.numel)
    packed = sum(
        _packed(tensor)
        for tensor in tensors
        if any(reader.node.graph_path in bodies for reader in ledger.wiring.readers(tensor))
    )

    def bound(sizes: Mapping[str, int]) -> int | None:
        current_sizes = {**planned_by_name, **sizes}
        at = {
            axis.name: current_sizes[axis.stored_name]
            if axis.stored_name in current_sizes
            else planned[axis.input, axis.position]
            for axis in walk.axes
            if axis.stored_name in current_sizes or (axis.input, axis.position) in planned
        }
        numbers = [None if value.nbytes is None else evaluate(value.nbytes, at) for value in made]
        known = [number for number in numbers if number is not None]
        return 2 * sum(known) + packed if len(known) == len(numbers) else None

    return bound


def _packed(tensor: StoredTensor) -> int:
    """Return the maximum bytes of a stored tensor together with its packed form."""
    rows, columns = math.prod(tensor.shape[:-1]), tensor.shape[-1] if tensor.shape else 1
    bits = max(tensor.dtype.bits, 8)
    widest = max(rows * -(-columns // _LANES), columns * -(-rows // _LANES)) * _LANES
    return (2 * widest * bits + 7) // 8
