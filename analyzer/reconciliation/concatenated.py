"""Rule: several PyTorch tensors stored in one piece, side by side: packed query, key and value; gate and up.

Of a piece that tensors fill of which some are held elsewhere already (MobileBERT's head: the table of words, turned
round, above a matrix of its own) each may stand its own way round.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from analyzer.ledger import Entry, Role
from analyzer.manifest import Parameter
from analyzer.reconciliation.axes import is_turned
from analyzer.reconciliation.books import Books, Holding, piece_of
from analyzer.reconciliation.contents import Fit
from analyzer.reconciliation.layouts import Layout
from analyzer.reconciliation.lines import RETYPED, Line
from analyzer.reconciliation.stacks import Stacks
from analyzer.scopes import module_of

__all__ = ["match_concatenated", "match_packed_copies"]

_MOST_AXES = 3

_Form = tuple[tuple[int, ...], tuple[int, ...]]
"""A PyTorch shape, and the order in which the file has its axes."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A PyTorch tensor in a run along one axis, or a run of zeros that stands for a tensor that PyTorch lacks."""

    tensor: Parameter | None
    fit: Fit | None
    start: int
    stop: int


def match_concatenated(books: Books) -> None:
    """Explain nameless entries that PyTorch tensors fill from end to end along one axis."""
    if books.contents.mode == "none":
        return
    stacks = Stacks(books.contents, books.free_parameters())
    for entry in list(books.free_entries()):
        if (
            entry.role in (Role.PARAMETER, Role.UNATTRIBUTED, Role.CONSTANT)
            and books.contents.numel(entry) > 1
        ):
            parts = _take_apart(books, entry, stacks, are_held=False)
            if parts:
                _settle(books, entry, parts)


def match_packed_copies(books: Books) -> None:
    """The same of PyTorch tensors that are held elsewhere, all of them or some: what these fill is a copy of them."""
    if books.contents.mode == "none":
        return
    held = Stacks(books.contents, (p for p in books.manifest.parameters if p.name in books.holdings))
    for entry in list(books.free_entries()):
        if entry.role in (Role.PARAMETER, Role.UNATTRIBUTED) and books.contents.numel(entry) > 1:
            parts = _take_apart(books, entry, held, are_held=True)
            if parts and all(part.tensor is not None for part in parts):
                for part in parts:
                    assert part.tensor is not None
                    assert part.fit is not None
                    books.copy(part.tensor, entry, f"{part.fit.evidence}:packed")
    _match_rest(books)


def _match_rest(books: Books) -> None:
    """The same of tensors of which at least one is held elsewhere and at least one by this entry alone."""
    if not any(True for _ in books.free_parameters()):
        return
    stacks = Stacks(books.contents, books.manifest.parameters)
    for entry in list(books.free_entries()):
        if entry.role not in (Role.PARAMETER, Role.UNATTRIBUTED) or len(books.contents.shape(entry)) != 2:
            continue
        parts = _take_apart(books, entry, stacks, are_held=True, is_mixed=True)
        found = [
            (part.tensor, part.fit) for part in parts if part.tensor is not None and part.fit is not None
        ]
        if len(found) < len(parts) or len({tensor.name for tensor, _ in found}) < len(found):
            continue
        is_free = [tensor.name not in books.parameters for tensor, _ in found]
        if any(is_free) and not all(is_free):
            _settle_rest(books, entry, parts)


def _settle_rest(books: Books, entry: Entry, parts: list[_Part]) -> None:
    """Count what is new in it; the rest of its elements are there once more."""
    left = entry.tensor.numel
    for part in parts:
        assert part.tensor is not None
        assert part.fit is not None
        if part.tensor.name in books.parameters:
            settled = books.parameters[part.tensor.name]
            chain = settled.chain if Line.COPIED in settled.chain else (*settled.chain, Line.COPIED)
            keys = (*settled.entries, entry.tensor.key)
            books.parameters[part.tensor.name] = replace(settled, chain=chain, entries=keys)
            continue
        changed = [line for line in part.fit.chain if line in RETYPED]
        moved = [line for line in part.fit.chain if line not in changed]
        chain = (*moved, Line.CONCATENATED, *changed)
        window = part.fit.layout.window
        assert window is not None
        piece = replace(piece_of(entry, part.fit), taken=(window[0], part.start, part.stop))
        holding = Holding(entry.tensor.key, part.tensor.numel, left)
        books.hold_parts(part.tensor, [holding], chain, part.fit.evidence, part.fit.error, (piece,))
        left = 0


def _take_apart(
    books: Books, entry: Entry, stacks: Stacks, *, are_held: bool, is_mixed: bool = False
) -> list[_Part]:
    """The parts in order, along the first axis on which they fill the entry; none where they do not."""
    stored = books.contents.shape(entry)
    if len(stored) > _MOST_AXES:
        return []
    squeezed = tuple(dim for dim in stored if dim != 1)
    # Of a square matrix samples may not tell, and then the likelier order is to be found first.
    way = is_turned(entry, books.contents.wiring, is_computed=True)
    for axis in range(len(squeezed)):
        shapes = _fitting(stacks, squeezed, axis, is_turned=way)
        if shapes:
            parts = _fill(books, entry, squeezed, axis, shapes, stacks, are_held=are_held, is_mixed=is_mixed)
            if sum(part.tensor is not None for part in parts) > 1:
                return parts
    return []


def _fitting(stacks: Stacks, stored: tuple[int, ...], axis: int, *, is_turned: bool) -> list[_Form]:
    """The shapes and orders of axes in which all axes of a tensor but one are the entry's."""
    found: list[_Form] = []
    wanted = [dim for number, dim in enumerate(stored) if number != axis]
    for shape in stacks.all_shapes:
        if len(shape) != len(stored):
            continue
        for axes in sorted(itertools.permutations(range(len(shape))), reverse=is_turned and len(shape) == 2):
            turned = [shape[number] for number in axes]
            rest = [dim for number, dim in enumerate(turned) if number != axis]
            if rest == wanted and turned[axis] < stored[axis]:
                found.append((shape, axes))
    return found


def _fill(
    books: Books,
    entry: Entry,
    stored: tuple[int, ...],
    axis: int,
    shapes: list[_Form],
    stacks: Stacks,
    *,
    are_held: bool,
    is_mixed: bool,
) -> list[_Part]:
    """From the start on, the tensor that is there; empty where at some place none is."""
    parts: list[_Part] = []
    start, layout_axes = 0, None
    used = set() if are_held else set(books.parameters)
    while start < stored[axis]:
        found = None
        for shape, axes in shapes:
            if layout_axes is not None and axes != layout_axes:
                continue
            layout = Layout(shape, axes, stored, (axis, start))
            stop = start + shape[axes[axis]]
            if stop > stored[axis]:
                continue
            look = books.contents.look(entry, layout)
            like = [] if look is None else stacks.near(shape, look)
            free = [tensor for tensor in like if isinstance(tensor, Parameter) and tensor.name not in used]
            found = next(_there(books, entry, layout, free, parts), None)
            if found is not None:
                tensor, fit = found
                parts.append(_Part(tensor, fit, start, stop))
                used.add(tensor.name)
                layout_axes, start = None if is_mixed else axes, stop
                break
        if found is None:
            gap = _zeros(books, entry, stored, axis, start, [shape[axes[axis]] for shape, axes in shapes])
            if gap is None:
                return []
            parts.append(_Part(None, None, start, gap))
            start = gap
    return parts


def _there(
    books: Books, entry: Entry, layout: Layout, tensors: list[Parameter], before: list[_Part]
) -> Iterator[tuple[Parameter, Fit]]:
    """The tensors that the entry holds in this place; of several, those near the last part's module first."""
    last = next((part.tensor for part in reversed(before) if part.tensor is not None), None)
    modules = books.reader_modules(entry)

    def distance(tensor: Parameter) -> tuple[bool, int]:
        shared = 0 if last is None else -_shared(last.name, tensor.name)
        return not any(module_of(tensor.name).startswith(module) for module in modules), shared

    for tensor in sorted(tensors, key=distance):
        fit = books.contents.fit_layout(entry, tensor, layout, is_named=False)
        if fit is not None and not books.is_elsewhere(entry, tensor):
            yield tensor, fit


def _shared(one: str, other: str) -> int:
    pairs = zip(one.split("."), other.split("."), strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def _zeros(
    books: Books, entry: Entry, stored: tuple[int, ...], axis: int, start: int, sizes: list[int]
) -> int | None:
    """Where a run of zeros ends that is as long as some tensor: a bias that PyTorch lacks, filled in."""
    fitting = {size for size in sizes if start + size <= stored[axis] and len(stored) == 1}
    for size in sorted(fitting, reverse=True):
        look = books.contents.at(entry, np.arange(start, start + size, dtype=np.int64))
        if look is not None and not look[0].astype(np.float64).any():
            return start + size
    return None


def _settle(books: Books, entry: Entry, parts: list[_Part]) -> None:
    total, length = entry.tensor.numel, parts[-1].stop
    for part in parts:
        if part.tensor is None or part.fit is None:
            continue
        stored = total * part.stop // length - total * part.start // length
        holding = Holding(entry.tensor.key, part.tensor.numel, stored)
        changed = [line for line in part.fit.chain if line in RETYPED]
        moved = [line for line in part.fit.chain if line not in changed]
        chain = (*moved, Line.CONCATENATED, *changed)
        window = part.fit.layout.window
        assert window is not None
        piece = replace(piece_of(entry, part.fit), taken=(window[0], part.start, part.stop))
        books.hold_parts(part.tensor, [holding], chain, part.fit.evidence, part.fit.error, (piece,))
