"""What the bodies of If, Loop and Scan ask for, at most: no plan tells, and the sizes of what their nodes make do."""

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

_HOLDS = frozenset({"If", "Loop", "Scan"})

_LANES = 16
"""Columns to whose multiple a kernel may fill a packed weight up, of which it keeps the stored form too."""


def find_bound(
    needed: Needed, ledger: Ledger, axes: Sequence[Axis]
) -> Callable[[Mapping[str, int]], int | None]:
    """Return what tells the bytes that a run may ask for beyond what is modelled, as far as bodies do.

    It is asked with sizes of axes by name; those that are not among them are as they were planned. It says 0 without
    any body, and None where nobody knows.
    """
    if not any(line.line == "nested graphs" for line in needed.lines):
        return lambda _: 0
    return bound_bodies(ledger, axes)


def bound_bodies(ledger: Ledger, axes: Sequence[Axis]) -> Callable[[Mapping[str, int]], int | None]:
    """Return what tells the bytes that the bodies of a model's Ifs, Loops and Scans ask for in a run, at most.

    A turn makes what its nodes make, beside what the turn before handed on; what is stacked over all turns is there
    in pieces too, until these are joined; kernels pack the weights that bodies read. None where a size is not known,
    or the body is of another operator, of which nobody knows what it keeps.

    Args:
        ledger: of one file.
        axes: of its inputs, with a size each.
    """
    walk = Walk(ledger.model)
    bodies = {graph.path for graph in ledger.model.graphs if graph.parent is not None}
    holders = {node.place for node in ledger.model.nodes() if node.op_type in _HOLDS and node.is_standard}
    if any(graph.parent not in holders for graph in ledger.model.graphs if graph.parent is not None):
        return lambda _: None
    made: list[Value] = []
    for visit in walk.run():
        if visit.is_closed:
            return lambda _: None
        places = {visit.step.node.graph_path, visit.place[0]}  # of a call in a body its function's nodes too
        if places & bodies:
            made += visit.made
    made += walk.joined
    planned = {(axis.input, axis.position): axis.size for axis in axes}
    named = {axis.name: axis.size for axis in axes if axis.name is not None}
    tensors = (entry.tensor for entry in ledger.entries if entry.tensor.numel)
    packed = sum(
        _packed(tensor)
        for tensor in tensors
        if any(reader.node.graph_path in bodies for reader in ledger.wiring.readers(tensor))
    )

    def bound(sizes: Mapping[str, int]) -> int | None:
        told = {**named, **sizes}
        at = {
            axis.name: told[axis.told] if axis.told in told else planned[axis.input, axis.position]
            for axis in walk.axes
            if axis.told in told or (axis.input, axis.position) in planned
        }
        numbers = [None if value.nbytes is None else evaluate(value.nbytes, at) for value in made]
        known = [number for number in numbers if number is not None]
        return 2 * sum(known) + packed if len(known) == len(numbers) else None

    return bound


def _packed(tensor: StoredTensor) -> int:
    """Bytes of a stored tensor and of its packed form, at most."""
    rows, columns = math.prod(tensor.shape[:-1]), tensor.shape[-1] if tensor.shape else 1
    bits = max(tensor.dtype.bits, 8)
    widest = max(rows * -(-columns // _LANES), columns * -(-rows // _LANES)) * _LANES
    return (2 * widest * bits + 7) // 8
