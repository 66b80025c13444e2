"""Rules for where values are not compared: what has no name is told by shapes, roles and order alone.

They decide how many parameters of a shape are there, which is what the account asks; which of several of one shape is
which they only presume, in the order of PyTorch's names and of the file's nodes. `decided_by` begins with `structure`.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from operator import itemgetter

from analyzer.ledger import Entry, Role
from analyzer.manifest import BatchNorm, Parameter
from analyzer.reconciliation.books import Books, Holding, piece_of
from analyzer.reconciliation.contents import Fit
from analyzer.reconciliation.layouts import layouts
from analyzer.reconciliation.lines import Line
from analyzer.scopes import module_of

__all__ = ["match_by_shape"]

Class = tuple[int, ...]
"""The sizes of a tensor's axes, in no order; axes of 1 are left out."""

_RULE = "structure:shape"


def match_by_shape(books: Books) -> None:
    """Settle nameless entries whose shapes leave no choice but of order."""
    if books.contents.mode != "none":
        return
    _fold_norms(books)
    _pair(books)
    _take_apart(books)
    _put_together(books)
    _pair(books)
    _settle_buffers(books)


def _class(shape: tuple[int, ...]) -> Class:
    return tuple(sorted(dim for dim in shape if dim != 1))


def _learned(books: Books) -> list[Entry]:
    """Nameless learned entries in the order in which nodes first read them."""
    order = {
        (node.graph_path, node.position): number for number, node in enumerate(books.ledger.model.nodes())
    }

    def place(entry: Entry) -> int:
        readers = (order[reader.node.graph_path, reader.node.position] for reader in books.readers(entry))
        return min(readers, default=len(order))

    roles = (Role.PARAMETER, Role.UNATTRIBUTED)
    free = (entry for entry in books.free_entries() if entry.role in roles and entry.copy_of is None)
    return sorted((entry for entry in free if _is_real(books, entry)), key=place)


def _is_real(books: Books, entry: Entry) -> bool:
    return entry.tensor.dtype.is_floating or books.contents.encoding(entry) is not None


def _pair(books: Books) -> None:
    """As many entries of a class of shapes as there are parameters of it: one each, in order."""
    entries: dict[Class, list[Entry]] = defaultdict(list)
    for entry in _learned(books):
        entries[_class(books.contents.shape(entry))].append(entry)
    parameters: dict[Class, list[Parameter]] = defaultdict(list)
    for parameter in books.free_parameters():
        parameters[_class(parameter.shape)].append(parameter)
    for class_, found in entries.items():
        learned = [entry for entry in found if entry.role is Role.PARAMETER]
        for alike in (found, learned):  # where the learned ones alone are as many, the others are left
            if len(alike) == len(parameters[class_]):
                for entry, parameter in zip(alike, parameters[class_], strict=True):
                    _hold(books, entry, parameter)
                break


def _hold(books: Books, entry: Entry, parameter: Parameter) -> None:
    changed = books.contents.changes(entry, parameter)
    layout = next(iter(layouts(parameter.shape, books.contents.shape(entry))), None)
    if changed is None or layout is None:
        return
    fit = Fit(layout, (*layout.chain, *changed), "shape", None)
    pieces = (piece_of(entry, fit),)
    books.hold(parameter, entry, fit.chain or (Line.RENAMED,), _RULE, pieces=pieces)


def _take_apart(books: Books) -> None:
    """Entries that neighbouring parameters of one module fill: packed query, key and value; gate and up."""
    for entry in _learned(books):
        shape = [dim for dim in books.contents.shape(entry) if dim != 1]
        for run in _runs(books, shape):
            changed = [books.contents.changes(entry, parameter) for parameter in run]
            if any(change is None for change in changed):
                continue
            total, done = sum(parameter.numel for parameter in run), 0
            for parameter, change in zip(run, changed, strict=True):
                stored = (
                    entry.tensor.numel * (done + parameter.numel) // total
                    - entry.tensor.numel * done // total
                )
                done += parameter.numel
                holding = Holding(entry.tensor.key, parameter.numel, stored)
                books.hold_parts(
                    parameter, [holding], (Line.CONCATENATED, *(change or ())), f"{_RULE}-sum", None
                )
            break


def _runs(books: Books, shape: list[int]) -> Iterator[list[Parameter]]:
    """Neighbours among the free parameters whose sizes along one axis sum to the entry's, the others being equal."""
    free = [p for p in books.free_parameters() if len(_class(p.shape)) == len(shape)]
    for axis in range(len(shape)):
        rest = sorted(shape[:axis] + shape[axis + 1 :])
        like = [(p, length) for p in free if (length := _length(p, rest)) is not None]
        blocks = itertools.groupby(like, key=lambda item: module_of(module_of(item[0].name)))
        for _, block in blocks:
            yield from _sums(list(block), shape[axis])
        if len(like) > 1 and sum(length for _, length in like) == shape[axis]:
            yield [parameter for parameter, _ in like]  # of several modules, and all that is left


def _length(parameter: Parameter, rest: list[int]) -> int | None:
    """The size of the one axis that is not among `rest`; None where the others are different."""
    sizes = list(_class(parameter.shape))
    for size in rest:
        if size not in sizes:
            return None
        sizes.remove(size)
    return sizes[0] if len(sizes) == 1 else None


def _sums(like: list[tuple[Parameter, int]], length: int) -> Iterator[list[Parameter]]:
    for start in range(len(like)):
        sums = list(itertools.accumulate(map(itemgetter(1), like[start:])))
        if length in sums[1:]:
            yield [parameter for parameter, _ in like[start : start + sums.index(length) + 1]]


def _put_together(books: Books) -> None:
    """Parameters with a matrix for each expert, beside as many entries of that matrix's shape."""
    entries: dict[Class, list[Entry]] = defaultdict(list)
    for entry in _learned(books):
        entries[_class(books.contents.shape(entry))].append(entry)
    stacked: dict[Class, list[Parameter]] = defaultdict(list)
    for parameter in books.free_parameters():
        if len(parameter.shape) >= 3:
            stacked[_class(parameter.shape[1:])].append(parameter)
    for class_, parameters in stacked.items():
        found = entries.get(class_, [])
        if found and len(found) == sum(parameter.shape[0] for parameter in parameters):
            supply = iter(found)
            for parameter in parameters:
                _hold_pieces(books, parameter, list(itertools.islice(supply, parameter.shape[0])))


def _hold_pieces(books: Books, parameter: Parameter, pieces: list[Entry]) -> None:
    changed = books.contents.changes(pieces[0], parameter)
    holdings = [Holding(e.tensor.key, books.contents.numel(e), e.tensor.numel) for e in pieces]
    if changed is not None:
        books.hold_parts(parameter, holdings, (Line.SLICED, *changed), f"{_RULE}-pieces", None)


def _fold_norms(books: Books) -> None:
    """BatchNorms of which nothing is in the file, beside half as many vectors of that size: the biases they became."""
    norms = [norm for norm in books.manifest.batch_norms if norm.weight and norm.bias]
    free = [
        norm for norm in norms if norm.weight not in books.parameters and norm.bias not in books.parameters
    ]
    by_size: dict[int, list[BatchNorm]] = defaultdict(list)
    for norm in free:
        tensor = books.tensor(norm.weight or "")
        if isinstance(tensor, Parameter):
            by_size[tensor.numel].append(norm)
    vectors: dict[int, list[Entry]] = defaultdict(list)
    for entry in _learned(books):
        if len(_class(books.contents.shape(entry))) <= 1:
            vectors[books.contents.numel(entry)].append(entry)
    sizes = Counter(parameter.numel for parameter in books.free_parameters() if len(parameter.shape) == 1)
    for size, group in by_size.items():
        if len(vectors[size]) == len(group) and sizes[size] == 2 * len(group):
            for norm, entry in zip(group, vectors[size], strict=True):
                _fold(books, norm, entry)


def _fold(books: Books, norm: BatchNorm, entry: Entry) -> None:
    weight, bias = books.tensor(norm.weight or ""), books.tensor(norm.bias or "")
    if isinstance(weight, Parameter) and isinstance(bias, Parameter):
        decided_by = f"{_RULE}-batchnorm {norm.module}"
        books.hold(bias, entry, (Line.FOLDED_BATCHNORM,), decided_by)
        books.merge(weight, entry, Line.FOLDED_BATCHNORM, decided_by, None)


def _settle_buffers(books: Books) -> None:
    """Nameless state of the shape of a buffer that the file does not name."""
    named = {line.parameter for line in books.entries.values()}
    shapes: dict[Class, list[str]] = defaultdict(list)
    for buffer in books.manifest.buffers:
        if buffer.name not in named:
            shapes[_class(buffer.shape)].append(buffer.name)
    for entry in _unknown(books):
        names = shapes.get(_class(entry.tensor.shape))
        if names and entry.tensor.numel > 1:
            books.settle(entry, Line.BUFFER, _RULE, names.pop(0))


def _unknown(books: Books) -> Iterable[Entry]:
    roles = (Role.UNATTRIBUTED, Role.BUFFER)
    return [entry for entry in books.free_entries() if entry.role in roles and not entry.sources]
