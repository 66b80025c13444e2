"""Piece of a stored tensor -> whether its columns of a product are never read, so that the parameter has no effect."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from analyzer.account.ledger import Entry
from analyzer.model import Node, StoredTensor
from analyzer.model.liveness import Live
from analyzer.model.operators import DECODES, Kind, kind_of
from analyzer.reconciliation.layouts import is_second_factor, use_of
from analyzer.reconciliation.lines import Piece
from analyzer.reconciliation.meetings import Follower, Meeting, UntracedError
from analyzer.reconciliation.pieces import number, viewed

_KEEPS_COLUMNS = DECODES | {"Add", "Identity"}
"""Operators after a product that keep its columns in place: they add a tensor of equal width, or a bias."""


def is_cut_off(follower: Follower, live: Live, entry: Entry, piece: Piece) -> bool:
    """Whether products compute with a part of a tensor, and no output depends on the columns that result from it."""
    try:
        meetings = list(follower.meetings(entry))
    except UntracedError:
        return False
    return bool(meetings) and all(_is_unread(follower, live, entry, piece, each) for each in meetings)


def _is_unread(follower: Follower, live: Live, entry: Entry, piece: Piece, meeting: Meeting) -> bool:
    if not (is_second_factor(meeting.node, meeting.slot) and meeting.is_kept):
        return False
    cuts = _cuts_behind(follower, live, meeting.node)
    # Most splits have all outputs read: return before the columns are computed.
    if not cuts or any(
        cut.op_type == "Split" and _read_of(follower, live, cut) == {*cut.outputs} for cut in cuts
    ):
        return False
    columns = _columns_of(follower, entry, piece, meeting)
    if columns is None:
        return False
    first, last, width = columns
    read = [window for cut in cuts for window in _windows(follower, live, cut, width)]
    return None not in read and not any(start <= last and first < stop for start, stop in filter(None, read))


def _columns_of(
    follower: Follower, entry: Entry, piece: Piece, meeting: Meeting
) -> tuple[int, int, int] | None:
    """Return the first and the last column of a product that a part of a tensor produces, and the product's width."""
    node, slot, shape = meeting.node, meeting.slot, follower.books.contents.shape(entry)
    if meeting.path is None or meeting.path.is_followed:
        uses = follower.books.contents.stored_uses(entry)
        if len(uses) != 1 or viewed(piece, shape) != shape:
            return None
        (use,) = uses
        axis, start, stop = piece.taken or (use.result, 0, shape[use.result])
        return (start, stop - 1, shape[axis]) if axis == use.result else None
    box = follower.tracker.track(entry.tensor, node.graph_path, node.inputs[slot])
    arriving = None if box is None else use_of(node, slot, tuple(range(len(box.shape))))
    if box is None or not box.places.size or arriving is None or shape != entry.tensor.shape:
        return None
    inside = (box.places > 0) & (number(piece, shape)[box.places - 1] >= 0)
    others = tuple(axis for axis in range(inside.ndim) if axis != arriving.result)
    columns = np.flatnonzero(inside.any(axis=others)) + box.corner[arriving.result]
    return (int(columns[0]), int(columns[-1]), box.shape[arriving.result]) if columns.size else None


def _cuts_behind(follower: Follower, live: Live, product: Node) -> list[Node]:
    """Return the nodes that each take some columns of a product; none if any other node reads it."""
    wiring = follower.books.ledger.wiring
    waiting, seen, cuts = [product], {product.place}, list[Node]()
    while waiting:
        node = waiting.pop()
        graph = wiring.graphs.get(node.graph_path)
        if graph is None or not set(graph.outputs).isdisjoint(node.outputs):
            return []
        for reader in wiring.readers(node):
            after = reader.node
            if after.place not in live.nodes or after.place in seen:
                continue
            seen.add(after.place)
            if after.op_type in ("Slice", "Split") and after.is_standard and reader.slot == 0:
                cuts.append(after)
            elif after.op_type in _KEEPS_COLUMNS or kind_of(after) is Kind.DECODES:
                waiting.append(after)
            else:
                return []
    return cuts


def _windows(follower: Follower, live: Live, cut: Node, width: int) -> Iterator[tuple[int, int] | None]:
    """Yield (start, stop) of the columns that a node takes and that are read; None if they are unknown."""
    if cut.op_type == "Slice":
        starts, stops, axes, steps = (_numbers(follower, cut, slot) for slot in range(1, 5))
        if starts and stops and axes == [-1] and steps in ([], [1]):
            yield slice(starts[0], stops[0]).indices(width)[:2]
        else:
            yield None
        return
    axis, count, sizes = cut.integers.get("axis", 0), len(cut.outputs), _numbers(follower, cut, 1)
    if sizes is None:
        yield None
        return
    split_sizes = sizes or list(cut.axes("split") or ())
    # A positive axis is taken for the last one if the given sizes sum to the width.
    sizes = split_sizes or ([width // count] * count if width % count == 0 else [])
    if len(sizes) != count or sum(sizes) != width or not (axis == -1 or (axis > 0 and split_sizes)):
        yield None
        return
    read, start = _read_of(follower, live, cut), 0
    for name, size in zip(cut.outputs, sizes, strict=True):
        if name in read:
            yield start, start + size
        start += size


def _read_of(follower: Follower, live: Live, cut: Node) -> set[str]:
    """Return the outputs of a node that some output of the model depends on; all of them if that is unclear."""
    wiring = follower.books.ledger.wiring
    readers = [each for each in wiring.readers(cut) if each.node.place in live.nodes]
    if any(each.node.graph_path != cut.graph_path or each.slot < 0 for each in readers):
        return {*cut.outputs}
    graph_outputs = (
        {*wiring.graphs[cut.graph_path].outputs} if cut.graph_path in wiring.graphs else {*cut.outputs}
    )
    return ({each.node.inputs[each.slot] for each in readers} | graph_outputs) & {*cut.outputs}


def _numbers(follower: Follower, node: Node, slot: int) -> list[int] | None:
    """Return the few stored integers that a node reads; empty without such an input, None if they are unknown."""
    name = node.inputs[slot] if slot < len(node.inputs) else ""
    if not name:
        return []
    stored = follower.books.ledger.wiring.find(node.graph_path, name)
    array = stored.payload.array() if isinstance(stored, StoredTensor) and stored.numel <= 64 else None
    return None if array is None or array.dtype.kind != "i" else [int(each) for each in array.reshape(-1)]
