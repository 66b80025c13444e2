"""Rule: a matrix that fits both ways, and that the file reads the other way round than PyTorch does, is another matrix.

Its values say which way it stands in the file; what operators do with it says which way they take it. PyTorch's side of
that is its module's class, or what the file does with other weights of that class, name or kind whose shape leaves no
choice. A transposed weight under its own name is told by this alone: all its values are there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

from analyzer.ledger import Entry
from analyzer.manifest import Parameter, split_name
from analyzer.reconciliation.books import Books
from analyzer.reconciliation.layouts import Layout
from analyzer.reconciliation.lines import Line, ParameterLine, Piece
from analyzer.reconciliation.uses import Use, class_use

__all__ = ["settle_turned"]

_Kind = tuple[str, ...]
"""What weights have in common that are used alike: class and leaf, or the last parts of their names."""


@dataclass(frozen=True, slots=True)
class _Read:
    """A parameter, where it stands, and what operators do with it, in PyTorch's axes."""

    parameter: Parameter
    settled: ParameterLine
    entry: Entry
    piece: Piece
    uses: frozenset[Use]


def settle_turned(books: Books) -> None:
    """Settle as `differing` the square matrices that the file reads in another order of axes than PyTorch."""
    if books.contents.mode == "none":
        return
    read = list(_read(books))
    known: dict[tuple[_Kind, bool], set[Use]] = defaultdict(set)
    for each in read:
        for use in each.uses:
            if not _is_open(each.parameter, use):
                for kind in _kinds(books, each.parameter):
                    known[kind, use.summed is None].add(use)
    for each in read:
        wrong = [use for use in each.uses if _is_wrong(books, each, use, known)]
        if (
            wrong
            and not _stands_both_ways(books, each)
            and not _is_read_right_elsewhere(books, each, wrong[0])
        ):
            _settle(books, each)


def _read(books: Books) -> Iterator[_Read]:
    """Parameters of two axes and more that stand in one entry, by themselves or with others."""
    for parameter in books.manifest.parameters:
        settled = books.parameters.get(parameter.name)
        if (
            settled is None
            or len(settled.pieces) != 1
            or len(parameter.shape) < 2
            or settled.line is Line.DIFFERING
        ):
            continue
        entry, piece = books.entry(settled.pieces[0].key), settled.pieces[0]
        uses = books.contents.uses(entry, piece.shape, piece.axes) if piece.viewed is None else frozenset()
        if uses and piece.put is None:
            yield _Read(parameter, settled, entry, piece, uses)


def _is_open(parameter: Parameter, use: Use) -> bool:
    """Whether the shape fits both ways, so that only the values say which way it stands."""
    sizes = parameter.shape
    others = (
        [axis for axis in range(len(sizes)) if axis != use.result] if use.summed is None else [use.summed]
    )
    return any(sizes[other] == sizes[use.result] for other in others)


def _kinds(books: Books, parameter: Parameter) -> Iterator[_Kind]:
    """The closest first; where the class is known, other classes say nothing."""
    owners = [split_name(name) for name in parameter.names]
    classes = [books.manifest.modules.get(owner) for owner, _ in owners]
    yield from (
        ("class", name, leaf) for name, (_, leaf) in zip(classes, owners, strict=True) if name is not None
    )
    yield from (("name", owner.rpartition(".")[2], leaf) for owner, leaf in owners)
    if not any(classes):
        yield ("leaf", owners[0][1])


def _is_wrong(books: Books, each: _Read, use: Use, known: dict[tuple[_Kind, bool], set[Use]]) -> bool:
    if not _is_open(each.parameter, use):
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


def _stands_both_ways(books: Books, each: _Read) -> bool:
    """Whether its values are those of its transpose too."""
    axes = each.piece.axes
    if len(axes) != 2 or each.piece.taken is not None:
        return False
    shape = books.contents.shape(each.entry)
    turned = Layout(each.parameter.shape, axes[::-1], shape)
    return books.contents.fit_layout(each.entry, each.parameter, turned) is not None


def _is_read_right_elsewhere(books: Books, each: _Read, wrong: Use) -> bool:
    """Whether the file also reads it as PyTorch does: a program may use a weight both ways (tied autoencoders)."""
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


def _settle(books: Books, each: _Read) -> None:
    rule = f"{books.contents.evidence}:turned"
    books.parameters[each.parameter.name] = replace(
        each.settled, line=Line.DIFFERING, chain=(Line.DIFFERING,), decided_by=rule
    )
    held = books.entries[each.entry.tensor.key]
    if held.parameter == each.parameter.name and each.piece.taken is None:
        books.entries[held.key] = replace(held, line=Line.DIFFERING, decided_by=rule)
