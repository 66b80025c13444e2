"""Rule: a matrix that the file reads in transposed order.

A matrix whose shape fits both ways is another matrix if the file reads it transposed. Its values tell the order of axes
in the file, and its operators tell the order in which they use it. PyTorch's order follows from the module's class, or
from other weights of that class, name or kind whose shape leaves no choice. Only this rule detects a transposed weight
under its own name: all its values are there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress

import numpy as np

from analyzer.account.ledger import Entry
from analyzer.manifest import Parameter, split_name
from analyzer.model.content import Array
from analyzer.reconciliation.books import Books
from analyzer.reconciliation.layouts import AxisLayout, Use, class_use, use_of
from analyzer.reconciliation.lines import Line, ParameterLine, Piece
from analyzer.reconciliation.meetings import Follower, UntracedError
from analyzer.reconciliation.pieces import Numbers, cut, number
from analyzer.records import Frozen, replace

_LINES = 256
"""Most lines (rows or columns) of an arriving value that are sampled; the one with most elements decides."""

_Alike = tuple[str, ...]
"""Key of weights with the same use: class and leaf name, or the last parts of their names."""


class _Oriented(Frozen):
    """Parameter, the piece that holds it, and the operators' uses of it, in PyTorch's axes."""

    parameter: Parameter
    settled: ParameterLine
    entry: Entry
    piece: Piece
    uses: frozenset[Use]


def settle_turned(books: Books) -> None:
    """Settle as `differing` the square matrices that the file reads in another order of axes than PyTorch."""
    if books.contents.mode == "none":
        return
    follower = Follower(books)
    read = list(_read_oriented(follower))
    known: dict[tuple[_Alike, bool], set[Use]] = defaultdict(set)
    for each in read:
        for use in each.uses:
            if not _fits_both_ways(each.parameter, use):
                for kind in _kinds(books, each.parameter):
                    known[kind, use.summed is None].add(use)
    books.turned += sorted({each.parameter.name for each in read if _may_be_turned(books, each, known)})
    for each in read:
        wrong = [use for use in each.uses if _is_wrong(books, each, use, known)]
        if wrong and not _is_symmetric(books, each) and not _has_expected_use(books, each, wrong[0]):
            rule = f"{books.contents.evidence}:turned"
            books.parameters[each.parameter.name] = replace(
                each.settled, line=Line.DIFFERING, chain=(Line.DIFFERING,), decided_by=rule
            )
            entry_line = books.entries[each.entry.tensor.key]
            if entry_line.parameter == each.parameter.name and each.piece.taken is None:
                books.entries[entry_line.key] = replace(entry_line, line=Line.DIFFERING, decided_by=rule)


def _read_oriented(follower: Follower) -> Iterator[_Oriented]:
    """Yield parameters of at least two axes with known uses, once for each piece."""
    books = follower.books
    stored = [
        (parameter, settled)
        for parameter in books.manifest.parameters
        if len(parameter.shape) > 1
        and (settled := books.parameters.get(parameter.name)) is not None
        and settled.line is not Line.DIFFERING
    ]
    # Kinds with an ambiguous shape: all weights of these kinds are tracked, as evidence for each other.
    kinds = {kind for each, _ in stored if _has_equal_axes(each) for kind in _kinds(books, each)}
    for parameter, settled in stored:
        is_looked_at = not kinds.isdisjoint(_kinds(books, parameter))
        for piece in settled.pieces:
            entry, uses = books.entry(piece.key), frozenset[Use]()
            if piece.viewed is None:
                uses = books.contents.uses(entry, piece.shape, piece.axes)
            if is_looked_at:
                with suppress(UntracedError):  # the rule for changed tensors reports it
                    uses |= frozenset(_tracked_uses(follower, entry, piece))
            if uses:
                yield _Oriented(parameter, settled, entry, piece, uses)


def _has_equal_axes(parameter: Parameter) -> bool:
    return len(set(parameter.shape)) < len(parameter.shape)


def _tracked_uses(follower: Follower, entry: Entry, piece: Piece) -> Iterator[Use]:
    """Yield the uses of a parameter by tracking its elements, where nodes cannot be followed by axes alone.

    Raises:
        UntracedError: too many nodes follow it.
    """
    if follower.books.contents.shape(entry) != entry.tensor.shape:
        return  # codes of several elements each
    numbers: Numbers | None = None
    for meeting in follower.meetings(entry):
        node, slot = meeting.node, meeting.slot
        if meeting.path is None or meeting.path.is_followed or not meeting.is_kept:
            continue
        box = follower.tracker.track(entry.tensor, node.graph_path, node.inputs[slot])
        use = None if box is None else use_of(node, slot, tuple(range(len(box.shape))))
        if box is None or not box.places.size or use is None:
            continue
        if numbers is None:
            numbers = number(piece, entry.tensor.shape)
        found = [
            None if axis is None else _axis_along(box.places, axis, numbers, piece.shape)
            for axis in (use.result, use.summed)
        ]
        if found[0] is not None and (found[1] is None) == (use.summed is None):
            yield Use(found[0], found[1])


def _axis_along(places: Array, axis: int, numbers: Numbers, shape: tuple[int, ...]) -> int | None:
    """Return the axis of PyTorch's part that runs along an axis of the arriving value; None if it is not one axis.

    Args:
        places: stored place of each arriving element, as in `Box`.
        axis: axis of the arriving value.
        numbers: number of each stored element in PyTorch's part, from `number`.
        shape: shape of PyTorch's part.
    """
    every = np.moveaxis(places, axis, -1).reshape(-1, places.shape[axis])
    lines = np.asarray(every[:: max(1, len(every) // _LINES)], np.int64)
    inside = (lines > 0) & (numbers[lines - 1] >= 0)
    line = int(np.count_nonzero(inside, axis=1).argmax())
    found = np.unravel_index(numbers[lines[line][inside[line]] - 1], shape)
    moving = [place for place, at in enumerate(found) if at.size and bool((at != at[0]).any())]
    return moving[0] if len(moving) == 1 else None


def _fits_both_ways(parameter: Parameter, use: Use) -> bool:
    """Whether the shape fits both ways, so that only the values tell the order of axes."""
    sizes = parameter.shape
    others = (
        [axis for axis in range(len(sizes)) if axis != use.result] if use.summed is None else [use.summed]
    )
    return any(sizes[other] == sizes[use.result] for other in others)


def _kinds(books: Books, parameter: Parameter) -> Iterator[_Alike]:
    """Yield the keys of weights with the same use, the closest first; the leaf alone counts only without a class."""
    owners = [split_name(name) for name in parameter.names]
    classes = [books.manifest.modules.get(owner) for owner, _ in owners]
    yield from (
        ("class", name, leaf) for name, (_, leaf) in zip(classes, owners, strict=True) if name is not None
    )
    yield from (("name", owner.rpartition(".")[2], leaf) for owner, leaf in owners)
    if not any(classes):
        yield ("leaf", owners[0][1])


def _is_wrong(books: Books, each: _Oriented, use: Use, known: dict[tuple[_Alike, bool], set[Use]]) -> bool:
    if not _fits_both_ways(each.parameter, use):
        return False
    is_lookup = use.summed is None
    expected: set[Use] = set()
    for kind in _kinds(books, each.parameter):
        expected = known.get((kind, is_lookup), set())
        if expected:
            break
        own = class_use(each.parameter, books.manifest.modules, is_lookup=is_lookup)
        if kind[0] == "class" and own is not None:
            expected = {own}
            break
    return len(expected) == 1 and use not in expected


def _may_be_turned(books: Books, each: _Oriented, known: dict[tuple[_Alike, bool], set[Use]]) -> bool:
    """Whether a square weight is read transposed relative to a Linear, and nothing tells how PyTorch reads it."""
    turned = Use(1, 0)  # a Linear's is Use(0, 1)
    kinds = list(_kinds(books, each.parameter))
    is_known = any(kind[0] == "class" or known.get((kind, False)) for kind in kinds)
    is_weight = len(each.parameter.shape) == 2 and split_name(each.parameter.name)[1] == "weight"
    return (
        turned in each.uses
        and is_weight
        and not is_known
        and _fits_both_ways(each.parameter, turned)
        and not _is_symmetric(books, each)
        and not _has_expected_use(books, each, turned)
    )


def _is_symmetric(books: Books, each: _Oriented) -> bool:
    """Whether a matrix equals its transpose."""
    axes = each.piece.axes
    if len(axes) != 2:
        return False
    if each.piece.put is not None:
        whole = _assemble(books, each)
        return whole is not None and bool((whole == whole.T).all())
    if each.piece.taken is not None:
        return False
    shape = books.contents.shape(each.entry)
    turned = AxisLayout(each.parameter.shape, axes[::-1], shape)
    return books.contents.fit_layout(each.entry, each.parameter, turned) is not None


def _assemble(books: Books, each: _Oriented) -> Array | None:
    """Return a matrix whose parts are stored separately; None if they cannot be read."""
    whole = np.zeros(each.parameter.shape)
    for piece in each.settled.pieces:
        array = books.contents.array(books.entry(piece.key))
        if array is None or piece.put is None:
            return None
        axis, start, stop = piece.put
        whole[(slice(None),) * axis + (slice(start, stop),)] = cut(piece, array)
    return whole


def _has_expected_use(books: Books, each: _Oriented, wrong: Use) -> bool:
    """Whether the file also reads a weight as PyTorch does: a program may use it both ways (tied autoencoders)."""
    if wrong.summed is None:
        return False
    right = Use(wrong.summed, wrong.result)
    if right in each.uses:
        return True
    for key in each.settled.entries:
        copy = books.entry(key)
        fit = None if key == each.entry.tensor.key else books.contents.fit(copy, each.parameter)
        if fit is not None and right in books.contents.uses(copy, fit.layout.shape, fit.layout.axes):
            return True
    return False
