"""Rule: one PyTorch tensor stored in pieces, such as the experts of a mixture or the parts of a packed projection."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Collection

import numpy as np
import numpy.typing as npt

from analyzer.account.classify.structure import find_origin
from analyzer.account.ledger import Entry, Role
from analyzer.account.scopes import module_of
from analyzer.manifest import Parameter
from analyzer.model import Key, Node
from analyzer.model.content import Array, cast_digest, channel_statistics, digest
from analyzer.model.operators import CARRIES, DECODES, MEASURES, MOVES, Kind, kind_of
from analyzer.model.wiring import Wiring
from analyzer.reconciliation.books import Books, Holding, is_inside
from analyzer.reconciliation.closeness import Reals, compare_sums, is_like, is_rounded
from analyzer.reconciliation.factors import tolerance_of
from analyzer.reconciliation.layouts import AxisLayout, layouts
from analyzer.reconciliation.lines import MEANINGS, Line, Piece
from analyzer.records import Frozen

_FEWEST = 2
"""Least number of sampled elements in a piece that identify it."""


class _Slice(Frozen):
    """Stored tensor that is a run of a PyTorch tensor along one axis."""

    entry: Entry
    layout: AxisLayout
    axis: int
    start: int
    stop: int
    changed: tuple[Line, ...]


def match_split_tables(books: Books) -> None:
    """Explain free tables that the export cut into parts, before one part is taken for the only rows in the file."""
    suspect_names = {suspect.tensor.name for suspect in books.suspects}
    free = (p for p in books.free_parameters() if len(p.shape) > 1)
    _match(books, suspect_names | {p.name for p in free if not _is_weight(books, p)})


def _is_weight(books: Books, parameter: Parameter) -> bool:
    """Whether a parameter is a factor by its name and its module's class: the weight of an embedding is a table."""
    module, _, leaf = parameter.name.rpartition(".")
    return leaf == "weight" and "Embedding" not in books.manifest.modules.get(module, "")


def match_split(books: Books) -> None:
    """Explain free PyTorch tensors that free entries form, end to end along one axis."""
    _match(books)


def _match(books: Books, names: Collection[str] | None = None) -> None:
    """Explain free PyTorch tensors that free entries form; only those with `names`, if these are given."""
    if books.contents.mode == "none" or (names is not None and not names):
        return
    firsts, statistics = _FirstElements(books), _Statistics(books)
    for tensor in list(books.free_parameters()):
        if names is not None and tensor.name not in names:
            continue
        samples = books.contents.originals.samples(tensor)
        if samples is None or not tensor.shape or books.contents.originals.is_constant(tensor):
            continue
        # In any layout, the first piece begins with the first element.
        if not samples.size or not firsts.has(float(samples[0])):
            continue
        for axis in range(len(tensor.shape)):
            slices = _fill(books, tensor, axis, statistics)
            if slices and _is_whole(books, tensor, axis, slices):
                _settle(books, tensor, axis, slices)
                break


def match_split_copies(books: Books) -> None:
    """Explain free entries that form, end to end, a tensor that the file holds elsewhere, such as a tied table."""
    free = (entry for entry in books.free_entries() if entry.role in (Role.PARAMETER, Role.UNATTRIBUTED))
    if books.contents.mode == "none" or not any(len(entry.tensor.shape) > 1 for entry in free):
        return
    firsts, statistics = _FirstElements(books), _Statistics(books)
    for tensor in books.manifest.parameters:
        settled, samples = books.parameters.get(tensor.name), books.contents.originals.samples(tensor)
        if settled is None or not settled.entries or samples is None or len(tensor.shape) < 2:
            continue
        is_known = samples.size > 0 and firsts.has(float(samples[0]))
        if MEANINGS[settled.line].unbalanced or not is_known or books.contents.originals.is_constant(tensor):
            continue
        for axis in range(len(tensor.shape)):
            slices = _fill(books, tensor, axis, statistics)
            if slices and _is_whole(books, tensor, axis, slices):
                for piece in slices:
                    books.copy(tensor, piece.entry, f"{books.contents.evidence}:pieces")
                break


_FULL = 4
"""Bytes of an element in full precision."""


class _FirstElements:
    """First elements of all free entries, which rule out most tensors quickly."""

    def __init__(self, books: Books) -> None:
        values, tolerances = [0.0], [-1.0]
        for entry in (*books.free_entries(), *(suspect.entry for suspect in books.suspects)):
            is_weight = entry.role in (Role.PARAMETER, Role.UNATTRIBUTED) and books.contents.numel(entry) > 1
            look = books.contents.at(entry, np.zeros(1, dtype=np.int64)) if is_weight else None
            if look is not None and look[0].dtype.kind in "fiuV":
                value = float(look[0].astype(np.float64)[0])
                values.append(value)
                rounding = 2.0**-20 if look[0].dtype.itemsize >= _FULL else 2.0**-6
                tolerances.append(
                    abs(value) * rounding + 1e-7 if look[1] is None else float(look[1][0]) * 1.01
                )
        self._values, self._tolerances = np.array(values), np.array(tolerances)

    def has(self, value: float) -> bool:
        """Whether an entry begins with a value, unchanged, rounded or as a code."""
        return bool((np.abs(self._values - value) <= self._tolerances).any())


def _fill(books: Books, tensor: Parameter, axis: int, statistics: _Statistics) -> list[_Slice]:
    """Return the pieces in order; empty if none fits at some place."""
    width = tensor.numel // tensor.shape[axis]
    # The first piece may have kept the tensor's name.
    own = [suspect.entry for suspect in books.suspects if suspect.tensor is tensor]
    free = [
        entry
        for entry in (*own, *books.free_entries())
        if entry.role in (Role.PARAMETER, Role.UNATTRIBUTED)
        and books.contents.changes(entry, tensor) is not None
        and 0 < books.contents.numel(entry) < tensor.numel
        and books.contents.numel(entry) % width == 0
        and not _is_foreign(books, tensor, entry)
    ]
    found: list[_Slice] = []
    used: set[Key] = set()
    start = 0
    while start < tensor.shape[axis]:
        remaining = [entry for entry in free if entry.tensor.key not in used]
        piece = _find_piece_at(books, tensor, axis, start, remaining, statistics)
        if piece is None:
            return []
        found.append(piece)
        used.add(piece.entry.tensor.key)
        start = piece.stop
    return found


def _is_foreign(books: Books, tensor: Parameter, entry: Entry) -> bool:
    """Whether only modules other than a matrix's own read a piece: another weight belongs there."""
    modules, owners = books.reader_modules(entry), {module_of(name) for name in tensor.names}
    if len(tensor.shape) < _PACKED or not modules:
        return False
    return not any(is_inside(one, home) or is_inside(home, one) for one in modules for home in owners)


def _find_piece_at(
    books: Books, tensor: Parameter, axis: int, start: int, entries: list[Entry], statistics: _Statistics
) -> _Slice | None:
    """Return the entry that holds the run that starts here: by known elements, else the nearest by channel sums."""
    width = tensor.numel // tensor.shape[axis]
    best: tuple[float, _Slice] | None = None
    for entry in entries:
        stop = start + books.contents.numel(entry) // width
        if stop > tensor.shape[axis]:
            continue
        shape = (*tensor.shape[:axis], stop - start, *tensor.shape[axis + 1 :])
        known = _known_elements(books, tensor, axis, start, stop)
        for layout in layouts(shape, books.contents.shape(entry)):
            is_spread = books.contents.mode == "full" and Line.TRANSPOSED in layout.chain
            if not layout.is_plain and not is_spread:
                continue
            piece = _Slice(entry, layout, axis, start, stop, books.contents.changes(entry, tensor) or ())
            if known is not None:
                if _agrees(books, entry, layout, *known) and statistics.allow(tensor, piece):
                    return piece
                continue
            distance = statistics.distance(tensor, piece) if axis == 0 else None
            if distance is not None and (best is None or distance < best[0]):
                best = (distance, piece)
    return None if best is None else best[1]


def _known_elements(
    books: Books, tensor: Parameter, axis: int, start: int, stop: int
) -> tuple[npt.NDArray[np.int64], Array] | None:
    """Return some positions in a run, and PyTorch's elements there; None if too few are known."""
    shape = (*tensor.shape[:axis], stop - start, *tensor.shape[axis + 1 :])
    values = books.contents.originals.values(tensor)
    if values is not None:
        part = values[(slice(None),) * axis + (slice(start, stop),)]
        flat = books.contents.originals.positions(part.size)
        return flat, part[np.unravel_index(flat, part.shape)]
    samples = books.contents.originals.samples(tensor)
    index = np.unravel_index(books.contents.originals.positions(tensor.numel), tensor.shape)
    inside = (index[axis] >= start) & (index[axis] < stop)
    if samples is None or int(inside.sum()) < _FEWEST:
        return None
    within = [part[inside] - (start if number == axis else 0) for number, part in enumerate(index)]
    return np.ravel_multi_index(tuple(within), shape).astype(np.int64), samples[inside]


class _Statistics:
    """Projection and norm of each slice of an entry, which tell slices apart if samples do not."""

    def __init__(self, books: Books) -> None:
        self._books = books
        self._found: dict[tuple[Key, AxisLayout], tuple[Reals, Reals] | None] = {}

    def allow(self, tensor: Parameter, piece: _Slice) -> bool:
        """Whether a piece that agrees in some elements also agrees in the sums of all, if these are known."""
        contents = self._books.contents
        is_known = contents.mode == "full" and contents.originals.channel_statistics(tensor) is not None
        return piece.axis != 0 or not is_known or self.distance(tensor, piece) is not None

    def distance(self, tensor: Parameter, piece: _Slice) -> float | None:
        """Return a piece's distance from PyTorch's slices, relative to rounding error; None if unknown or above 1."""
        contents = self._books.contents
        known = contents.originals.channel_statistics(tensor) if contents.mode == "full" else None
        statistics = None if known is None else self._of(piece)
        if known is None or statistics is None:
            return None
        projections, sizes = statistics
        slack = tolerance_of(contents, piece.entry) * sizes + 1e-12
        encoded = contents.encoding(piece.entry)
        if encoded is not None:
            step = max((float(steps.max(initial=0.0)) for _, steps in encoded.bands()), default=0.0)
            slack = slack + step * np.sqrt(tensor.numel // tensor.shape[0])
        places = slice(piece.start, piece.stop)
        errors = (
            np.abs(known[1][places] - sizes) / slack,
            np.abs(known[0][places] - projections) / (4 * slack),
        )
        distance = max(float(error.max(initial=0.0)) for error in errors)
        return distance if distance <= 1 else None

    def _of(self, piece: _Slice) -> tuple[Reals, Reals] | None:
        key = (piece.entry.tensor.key, piece.layout)
        if key not in self._found:
            array = self._books.contents.array(piece.entry)
            self._found[key] = None if array is None else channel_statistics(piece.layout.restore(array))
        return self._found[key]


def _agrees(
    books: Books, entry: Entry, layout: AxisLayout, flat: npt.NDArray[np.int64], expected: Array
) -> bool:
    look = books.contents.at(entry, layout.positions(flat))
    if look is None:
        return False
    if look[1] is None:
        return is_rounded(look[0], expected, entry.tensor.dtype)
    return is_like(look[0], expected.astype(np.float64), look[1])


def _is_whole(books: Books, tensor: Parameter, axis: int, slices: list[_Slice]) -> bool:
    """Whether the pieces are in order, and all elements agree if the mode or an ambiguous layout requires it."""
    if not _is_in_order(books, slices):
        return False
    is_open = any(books.contents.is_open(piece.entry, tensor, piece.layout) for piece in slices)
    if books.contents.mode != "full" and not is_open:
        return True
    if any(Line.CAST not in piece.changed and piece.changed for piece in slices):
        return _is_within_steps(books, tensor, slices, is_open=is_open)
    arrays = [books.contents.array(piece.entry) for piece in slices]
    if any(array is None for array in arrays):
        return False
    parts = [
        piece.layout.restore(array) for piece, array in zip(slices, arrays, strict=True) if array is not None
    ]
    whole = np.concatenate(parts, axis=axis)
    dtype = slices[0].entry.tensor.dtype
    if dtype is tensor.dtype:
        return digest(whole) == books.contents.originals.digest(tensor)
    expected = books.contents.originals.cast_digest(tensor, dtype)
    return cast_digest(whole, dtype) == expected if expected is not None else not is_open


_BEFORE_JOINED = (MOVES | DECODES) - {"Concat"}


def _is_in_order(books: Books, slices: list[_Slice]) -> bool:
    """Whether the file uses the pieces in this order: in one Concat, or in a packed projection's products."""
    found = [books.ledger.wiring.readers(piece.entry.tensor, past=_BEFORE_JOINED) for piece in slices]
    joined = [
        {reader.node.place: reader.slot for reader in readers if reader.node.op_type == "Concat"}
        for readers in found
    ]
    common = set(joined[0]).intersection(*joined[1:])
    if not all((slots := [each[place] for each in joined]) == sorted(slots) for place in common):
        return False
    alike: dict[tuple[int, ...], list[tuple[int, int]]] = defaultdict(list)
    is_packed = len(slices[0].layout.shape) <= _PACKED and len(slices) <= _MOST_PARTS and not common
    weight_names = [_find_product_weight(books, piece.entry) for piece in slices] if is_packed else []
    # MultiheadAttention whose keys have another width has one packed bias, and three weights of these names.
    projection_leaves = [
        leaf for name in weight_names if (leaf := (name or "").rpartition(".")[2]) in _PROJECTIONS
    ]
    if len(projection_leaves) == len(_PROJECTIONS):
        return tuple(projection_leaves) == _PROJECTIONS
    for piece in slices if is_packed else ():
        alike[piece.layout.shape].append(_meeting(books, piece.entry))
    return all(places == sorted(places) for places in alike.values())


_PROJECTIONS = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
"""Weights of `MultiheadAttention` in the order of its packed bias."""


def _find_product_weight(books: Books, entry: Entry) -> str | None:
    """Return the name of the held weight of the product to which a piece of a bias is added; None if unknown."""
    wiring = books.ledger.wiring
    for node, _ in wiring.readers(entry.tensor, past=MOVES | DECODES):
        for source in _find_producers(wiring, node):
            for slot in range(len(source.inputs)) if kind_of(source) is Kind.PRODUCT else ():
                operand = find_origin(wiring, source, slot)
                line = None if operand is None else books.entries.get(operand.key)
                if operand is not entry.tensor and line is not None and line.parameter is not None:
                    return line.parameter
    return None


def _find_producers(wiring: Wiring, node: Node) -> list[Node]:
    """Return a node and its producers, followed through nodes that move, quantize or decode values."""
    found, open_ends = [node], [node]
    while open_ends and len(found) < _MOST_STEPS:
        parts = [part for part in wiring.producers(open_ends.pop(0)) if isinstance(part, Node)]
        found += parts
        open_ends += [part for part in parts if part.op_type in CARRIES]
    return found


_PACKED = 2
"""Most axes of a packed projection or its bias, whose parts have fixed roles, unlike experts."""

_MOST_PARTS = 4
"""Most parts of a packed projection: query, key and value; the gates of an LSTM."""

_MOST_STEPS = 16


def _meeting(books: Books, entry: Entry) -> tuple[int, int]:
    """Return the node position and input slot at which a piece's result first meets another computed value.

    Queries and keys meet in a product, in that order; values meet the attention weights after it; a gate meets the
    value that it gates. Without such a meeting the position is that of the piece's reader.
    """
    wiring = books.ledger.wiring
    readers = wiring.readers(entry.tensor, past=MOVES | DECODES)
    first = min((reader.node.position for reader in readers), default=-1)
    if len(readers) != 1:
        return first, 0
    node = readers[0].node
    for _ in range(_MOST_STEPS):
        read = wiring.readers(node, past=MOVES)
        next_readers = [reader for reader in read if reader.node.op_type not in MEASURES]
        nodes = {reader.node.place: reader for reader in next_readers}
        if len(nodes) != 1:
            return first, 0
        node, slot = next_readers[0]
        others = [part for part in wiring.producers(node) if isinstance(part, Node)]
        if len(others) > 1:
            return node.position, slot
    return first, 0


def _is_within_steps(books: Books, tensor: Parameter, slices: list[_Slice], *, is_open: bool) -> bool:
    original = books.contents.originals.values(tensor)
    if original is None:
        known = books.contents.originals.channel_statistics(tensor)
        answers = [None if known is None else _compare_sums(books, piece, known) for piece in slices]
        # Without sums, the samples that were compared are all the evidence.
        return False not in answers and not (is_open and None in answers)
    for piece in slices:
        cut = (slice(None),) * piece.axis + (slice(piece.start, piece.stop),)
        part = original[cut].astype(np.float64)
        flat = np.arange(part.size, dtype=np.int64)
        look = books.contents.at(piece.entry, piece.layout.positions(flat))
        if look is None:
            return False
        if look[1] is None:  # a piece that is not quantized
            if not is_rounded(look[0], original[cut].reshape(-1), piece.entry.tensor.dtype):
                return False
        elif not is_like(look[0], part.reshape(-1), look[1]):
            return False
    return True


def _compare_sums(books: Books, piece: _Slice, known: tuple[Reals, Reals]) -> bool | None:
    encoded = books.contents.encoding(piece.entry)
    if encoded is None or piece.axis != 0:
        return None
    projections, norms = (found[piece.start : piece.stop] for found in known)
    return compare_sums(encoded, piece.layout, (projections, norms))


def _settle(books: Books, tensor: Parameter, axis: int, slices: list[_Slice]) -> None:
    books.release(*(piece.entry for piece in slices))
    holdings = [
        Holding(piece.entry.tensor.key, books.contents.numel(piece.entry), piece.entry.tensor.numel)
        for piece in slices
    ]
    lines = [line for piece in slices for line in (*piece.layout.chain[:1], Line.SLICED, *piece.changed)]
    moved = [line for line in dict.fromkeys(lines) if line is not Line.RESHAPED]
    order = (
        [line for line in moved if line is Line.TRANSPOSED],
        [line for line in moved if line is not Line.TRANSPOSED],
    )
    chain = tuple(itertools.chain(*order))
    pieces = tuple(
        Piece(p.entry.tensor.key, p.layout.shape, p.layout.axes, put=(axis, p.start, p.stop)) for p in slices
    )
    is_coded = any(piece.changed and Line.CAST not in piece.changed for piece in slices)
    stored = slices[0].entry.tensor.dtype
    is_known = books.contents.originals.values(tensor) is not None
    is_digested = stored is tensor.dtype or books.contents.originals.cast_digest(tensor, stored) is not None
    is_whole = is_known or (is_digested and not is_coded)
    evidence = "content" if books.contents.mode == "full" and is_whole else "sampled"
    books.assign_parts(tensor, holdings, chain, f"{evidence}:pieces", None if is_coded else 0.0, pieces)
