"""What the bodies of If, Loop and Scan ask for, at most: no plan tells, and the sizes of what their nodes make do."""

from __future__ import annotations

import math
from collections.abc import Sequence

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


def most_beyond(needed: Needed, ledger: Ledger, axes: Sequence[Axis]) -> int | None:
    """Bytes that a run may ask for beyond what is modelled, as far as bodies do; 0 without any, None if not known."""
    if not any(line.line == "nested graphs" for line in needed.lines):
        return 0
    return bound_bodies(ledger, axes)


def bound_bodies(ledger: Ledger, axes: Sequence[Axis]) -> int | None:
    """Bytes that the bodies of a model's Ifs, Loops and Scans ask for in a run, at most.

    A turn makes what its nodes make, beside what the turn before handed on; what is stacked over all turns is there
    once more until it is joined; kernels pack the weights that bodies read. None where a size is not known.

    Args:
        ledger: of one file.
        axes: of its inputs, with a size each.
    """
    walk = Walk(ledger.model)
    bodies = {graph.path for graph in ledger.model.graphs if graph.parent is not None}
    made: list[Value] = []
    for visit in walk.run():
        if visit.is_closed:
            return None
        paths = {visit.step.node.graph_path, visit.place[0]}  # of a call in a body its function's nodes too
        if paths & bodies or visit.step.node.op_type in _HOLDS:
            made += visit.made
    planned = {(axis.input, axis.position): axis.size for axis in axes}
    named = {axis.name: axis.size for axis in axes if axis.name is not None}
    at = {
        axis.name: named[axis.told] if axis.told in named else planned[axis.input, axis.position]
        for axis in walk.axes
        if axis.told in named or (axis.input, axis.position) in planned
    }
    sum_made = 0
    for value in made:
        size = value.nbytes
        number = None if size is None else evaluate(size, at)
        if number is None:
            return None
        sum_made += 2 * number
    tensors = (entry.tensor for entry in ledger.entries if entry.tensor.numel)
    return sum_made + sum(
        _packed(tensor)
        for tensor in tensors
        if any(reader.node.graph_path in bodies for reader in ledger.wiring.readers(tensor))
    )


def _packed(tensor: StoredTensor) -> int:
    """Bytes of a stored tensor and of its packed form, at most."""
    rows, columns = math.prod(tensor.shape[:-1]), tensor.shape[-1] if tensor.shape else 1
    bits = max(tensor.dtype.bits, 8)
    widest = max(rows * -(-columns // _LANES), columns * -(-rows // _LANES)) * _LANES
    return (2 * widest * bits + 7) // 8
