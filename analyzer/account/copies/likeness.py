"""Entries of different types -> entries with the same numbers: cast, or as codes within a quantization step.

A tied weight may be stored as floats for the embedding, and again, transposed and quantized, for the head. In the file
alone only the numbers show it: samples are compared first, then, if these agree, all elements, tile by tile. A cast
must be exact. Codes must be within a step of the original, and correlate with it: if the scale is so large that
everything is within a step, or if there are only a few elements, they are no evidence.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from analyzer.account.copies.duplicates import Names, copy_of, either_way
from analyzer.account.decoding import CODES, LEAST_LIKENESS, STEP_ROOM, Decoder, Encoded
from analyzer.account.decoding.encodings import find_encoding
from analyzer.account.ledger import Entry, Role
from analyzer.model import Key
from analyzer.model.content import Array, is_constant_filled, rounded, sample_positions, transposed_positions
from analyzer.model.dtypes import DType
from analyzer.model.wiring import Wiring

Reals = npt.NDArray[np.float64]
Positions = npt.NDArray[np.int64]
Sources = tuple[str, ...]

_TILE = 1 << 10
"""Rows and columns that are compared at a time."""

_MOST = 1 << 14
"""Most tensors of one shape that are compared with each other; time grows with their square."""

_MOST_ELEMENTS = 1 << 48
"""Most elements of a tensor; no file has more, whatever it claims."""

_MOST_NEAR = 8
"""Most originals that agree at all samples and are compared whole; one is enough unless a file is made to attack."""

_EPSILON = 2.0**-50

_LEAST_BITS = 40.0
"""Bits of evidence needed: unrelated numbers reach the same correlation with a probability of at most 2^-40."""

_REALS = {
    DType.DOUBLE: (2.0**-52, 0.0),
    DType.FLOAT: (2.0**-23, 0.0),
    DType.FLOAT16: (2.0**-10, 2.0**-24),
    DType.BFLOAT16: (2.0**-7, 0.0),
}
"""Float types: the distance between neighbours relative to the number, and the least distance that matters."""


_MOST_HALF = 65504.0
"""Largest float16."""


class _Form(NamedTuple):
    """A learned tensor that is not a byte-for-byte copy of another, with its encoding."""

    entry: Entry
    encoded: Encoded | None
    shape: tuple[int, ...]

    @property
    def exactness(self) -> int:
        """Rank of precision: higher for floats than for codes, and for wide types than for narrow ones."""
        dtype = self.entry.tensor.dtype
        if self.encoded is None:
            return dtype.bits << 8
        return self.encoded.bits or dtype.bits

    def at(self, positions: Positions) -> tuple[Reals, Reals] | None:
        """Return the numbers at positions of `shape`, and how far those of a copy may differ from them."""
        if self.encoded is not None:
            found = self.encoded.at(positions)
            return None if found is None else (found[0], found[1] * STEP_ROOM)
        array = self.entry.tensor.payload.at(positions)
        return None if array is None else _as_reals(array, self.entry.tensor.dtype)

    def open(self) -> Decoder | Array | None:
        """Return the input of `_tile`; None if it cannot be read."""
        if self.encoded is not None:
            return self.encoded.open()
        array = self.entry.tensor.payload.array()
        return None if array is None else array.reshape(-1, self.shape[-1])


def find_alike(
    entries: Sequence[Entry],
    names: Names,
    wiring: Wiring,
    progress: Callable[[int, int], None] | None = None,
    salt: str = "",
) -> tuple[Entry, ...]:
    """Mark each learned entry that repeats another's numbers in another type.

    The original is the one with a PyTorch name, else the most exact, else the first in file order. `progress` is called
    with the number of candidates done. Nothing is read if all tensors of a shape have one type and are not codes.
    """
    groups = [group for group in _by_shape(entries, wiring) if _may_hold_copies(group, names)]
    if not groups:
        return tuple(entries)
    known: dict[Key, set[Sources]] = defaultdict(set)
    for entry in entries:
        if entry.sources:
            known[entry.copy_of or entry.tensor.key].add(entry.sources)
    total, done = sum(map(len, groups)), 0
    decided: dict[Key, Entry] = {}
    for group in groups:
        originals = _Originals(group[0].shape, names, known, salt)
        for form in sorted(group, key=lambda form: (not form.entry.sources, -form.exactness)):
            copy = originals.match(form)
            if copy is not None:
                decided[form.entry.tensor.key] = copy
            done += 1
            if progress is not None:
                progress(done, total)
    return tuple(decided.get(entry.tensor.key, entry) for entry in entries)


def _by_shape(entries: Sequence[Entry], wiring: Wiring) -> Iterator[list[_Form]]:
    """Yield the learned tensors of each shape, without shapes whose tensors have one type and are not codes."""
    learned = [e for e in entries if e.role is Role.PARAMETER and e.tensor.numel > 1 and e.copy_of is None]
    coded = {e.tensor.key: _form(e, wiring) for e in learned if e.tensor.dtype in CODES}
    shapes = {either_way(form.shape) for form in coded.values() if form is not None}
    types = {(entry.tensor.shape, entry.tensor.dtype) for entry in learned}
    type_counts = Counter(
        shape for shape, _ in {(either_way(s), dtype) for s, dtype in types if dtype not in CODES}
    )
    shapes.update(shape for shape, count in type_counts.items() if count > 1)
    if not shapes:
        return
    groups: dict[tuple[int, ...], list[_Form]] = defaultdict(list)
    for entry in learned:
        is_code = entry.tensor.dtype in CODES
        if is_code or either_way(entry.tensor.shape) in shapes:
            form = coded[entry.tensor.key] if is_code else _form(entry, wiring)
            if form is not None:
                groups[either_way(form.shape)].append(form)
    yield from groups.values()


def _form(entry: Entry, wiring: Wiring) -> _Form | None:
    """Return the form of an entry; None for integers that no node decodes, and for incomplete tensors."""
    tensor = entry.tensor
    encoded = find_encoding(tensor, wiring)
    shape = tensor.shape if encoded is None else encoded.shape
    is_real = encoded is not None or (tensor.dtype in _REALS and math.prod(shape) == tensor.numel)
    is_whole = is_real and shape != () and 0 < min(shape) <= math.prod(shape) <= _MOST_ELEMENTS
    return _Form(entry, encoded, shape) if is_whole else None


def _may_hold_copies(group: Sequence[_Form], names: Names) -> bool:
    """Whether two of a group may be copies, judged without reading them."""
    is_of_one_type = len({form.entry.tensor.dtype for form in group}) == 1 and group[0].encoded is None
    sources = {form.entry.sources for form in group if form.entry.sources}
    may_be_one = len(sources) < len(group) or len({names.root(form.entry) for form in group}) > 1
    return 1 < len(group) <= _MOST and not is_of_one_type and may_be_one


class _Originals:
    """Tensors of one shape seen so far, by their samples."""

    def __init__(
        self, shape: tuple[int, ...], names: Names, known: dict[Key, set[Sources]], salt: str
    ) -> None:
        self._salt = salt
        self._shape = either_way(shape)
        self._names = names
        self._known = known
        """PyTorch names of each original, in any file."""
        self._forms: list[_Form] = []
        samples = sample_positions(math.prod(shape)).size
        self._values = np.empty((samples, 16))  # (samples, capacity for originals, which doubles)
        self._tolerances = np.empty((samples, 16))
        self._by_sources: dict[Sources, list[int]] = defaultdict(list)

    def match(self, form: _Form) -> Entry | None:
        """Return the entry as a copy of an original; None if it is an original itself, which is then remembered."""
        sampled = self._sample(form)
        for turned, values, tolerances in sampled:
            for index in itertools.islice(self._find_near(form, values, tolerances), _MOST_NEAR):
                original = self._forms[index]
                kind = self._compare(original, form, turned)
                if kind is not None:
                    self._known[original.entry.tensor.key] |= self._known.pop(form.entry.tensor.key, set())
                    is_apart = self._names.are_apart(form.entry, original.entry)
                    return copy_of(form.entry, original.entry, f"content:{kind}-{_RULE_ENDINGS[is_apart]}")
        if sampled:
            self._add(form, *sampled[0][1:])
        return None

    def _orientations(self, form: _Form) -> tuple[bool, ...]:
        """Return whether to sample its elements transposed; a square matrix is tried both ways."""
        if len(form.shape) != 2:
            return (False,)
        rows, columns = form.shape
        return (False, True) if rows == columns else (form.shape != self._shape,)

    def _sample(self, form: _Form) -> list[tuple[bool, Reals, Reals]]:
        """Return its samples in each orientation; empty if they cannot be read."""
        orientations, numel = self._orientations(form), math.prod(form.shape)
        found = form.at(
            np.concatenate(
                [
                    transposed_positions(form.shape[0], form.shape[1], self._salt)
                    if turned
                    else sample_positions(numel, self._salt)
                    for turned in orientations
                ]
            )
        )
        if found is None:
            return []
        values, tolerances = (np.split(part, len(orientations)) for part in found)
        return list(zip(orientations, values, tolerances, strict=True))

    def _find_near(self, form: _Form, values: Reals, tolerances: Reals) -> Iterator[int]:
        """Yield originals that agree at all samples, and may be the same according to their names."""
        sources, count = form.entry.sources, len(self._forms)
        with np.errstate(invalid="ignore", over="ignore"):
            if sources and not self._names.has_several_files:
                alive = np.array(self._by_sources.get(sources, ()), dtype=np.int64)
            else:
                distance = np.abs(self._values[0, :count] - values[0])
                alive = np.flatnonzero(distance <= self._tolerances[0, :count] + tolerances[0])
            for part in (slice(0, 8), slice(8, None)):  # the first few samples already exclude most
                distance = np.abs(self._values[part, alive] - values[part, None])
                alive = alive[
                    (distance <= self._tolerances[part, alive] + tolerances[part, None]).all(axis=0)
                ]
        yield from (int(index) for index in alive if self._may_be_one(form, self._forms[index]))

    def _may_be_one(self, form: _Form, original: _Form) -> bool:
        ours, theirs = (self._known.get(one.entry.tensor.key, set()) for one in (form, original))
        return all(self._names.may_be_one(a, b) for a in ours for b in theirs)

    def _compare(self, original: _Form, form: _Form, turned: bool) -> str | None:
        """Return `cast` or `quantized`; None if they are not the same."""
        is_across = turned != self._orientations(original)[0]  # both were sampled in one orientation
        if original.encoded is None and form.encoded is None:
            return "cast" if _is_cast(original, form, is_across) else None
        is_named = bool(form.entry.sources) and form.entry.sources == original.entry.sources
        return "quantized" if _is_like(original, form, is_across, is_named) else None

    def _add(self, form: _Form, values: Reals, tolerances: Reals) -> None:
        count = len(self._forms)
        if count == self._values.shape[1]:
            self._values, self._tolerances = (
                np.tile(old, (1, 2)) for old in (self._values, self._tolerances)
            )
        self._values[:, count], self._tolerances[:, count] = values, tolerances
        self._forms.append(form)
        self._by_sources[form.entry.sources].append(count)


_RULE_ENDINGS = {False: "copy", True: "duplicated-file"}


def _is_cast(a: _Form, b: _Form, is_across: bool) -> bool:
    """Whether the less exact of two float tensors is the other, rounded, element by element."""
    wide, narrow = (b, a) if b.exactness > a.exactness else (a, b)
    dtype = narrow.entry.tensor.dtype
    if dtype is wide.entry.tensor.dtype:
        return False  # equal types are compared elsewhere
    sources, targets = wide.open(), narrow.open()
    if (
        not isinstance(sources, np.ndarray)
        or not isinstance(targets, np.ndarray)
        or is_constant_filled(targets)
    ):
        return False
    roundings: set[int] | None = None
    for rows, columns in _tiles(*targets.shape):
        expected = sources[columns, rows].T if is_across else sources[rows, columns]
        found = next(iter(rounded(targets[rows, columns], None))).tobytes()
        same = {
            number
            for number, candidate in enumerate(rounded(expected, dtype))
            if candidate.tobytes() == found
        }
        roundings = same if roundings is None else roundings & same
        if not roundings:
            return False
    return True


def _is_like(a: _Form, b: _Form, is_across: bool, is_named: bool) -> bool:
    """Whether two tensors, one or both of them codes, are within a step of each other and correlate."""
    first, second = a.open(), b.open()
    if first is None or second is None:
        return False
    evidence = _Evidence()
    for rows, columns in _tiles(math.prod(b.shape[:-1]), b.shape[-1]):
        first_tile = _tile(a, first, *((columns, rows) if is_across else (rows, columns)))
        second_tile = _tile(b, second, rows, columns)
        if first_tile is None or second_tile is None:
            return False
        values, tolerances = (part.T for part in first_tile) if is_across else first_tile
        if not evidence.add_part(values, tolerances, *second_tile):
            return False
    return evidence.is_enough(is_named)


def _tiles(rows: int, columns: int) -> Iterator[tuple[slice, slice]]:
    """Yield parts of a matrix with a limited number of elements, even if the matrix is a single row."""
    height = min(rows, _TILE)
    width = max(1, _TILE * _TILE // max(height, 1))
    for top in range(0, rows, max(height, 1)):
        for left in range(0, columns, width):
            yield slice(top, min(top + height, rows)), slice(left, min(left + width, columns))


def _tile(form: _Form, opened: Decoder | Array, rows: slice, columns: slice) -> tuple[Reals, Reals] | None:
    if not isinstance(opened, Decoder):
        return _as_reals(opened[rows, columns], form.entry.tensor.dtype)
    found = opened.tile(rows, columns)
    return None if found is None else (found[0], found[1] * STEP_ROOM)


class _Evidence:
    """Statistics over the parts of two tensors."""

    def __init__(self) -> None:
        self._count = 0
        self._center = 0.0
        self._first = math.nan
        self._varies = False
        self._sums = np.zeros(5)

    def add_part(self, a: Reals, tolerance_a: Reals, b: Reals, tolerance_b: Reals) -> bool:
        """Add a part of both; return False as soon as an element differs by more than the allowed distance."""
        with np.errstate(invalid="ignore", over="ignore"):
            tolerance = tolerance_a + tolerance_b
            if not bool((np.abs(a - b) <= tolerance).all()):
                return False
        if not self._count:
            self._center, self._first = float(b.mean()), float(b.flat[0])
        self._count += b.size
        self._varies = self._varies or bool((b != self._first).any())
        with np.errstate(invalid="ignore", over="ignore"):
            x, y = (part.reshape(-1) - self._center for part in (a, b))
            self._sums += [x.sum(), y.sum(), x @ y, x @ x, y @ y]
        return True

    def is_enough(self, is_named: bool) -> bool:
        """Whether the statistics show that both are one tensor, and not an accident."""
        x, y, xy, xx, yy = (self._sums / max(self._count, 1)).tolist()
        spread = math.sqrt(max(xx - x * x, 0.0) * max(yy - y * y, 0.0))
        if not self._varies or spread == 0.0:
            return False
        correlation = min((xy - x * y) / spread, 1.0)
        # For n unrelated numbers, the squared correlation exceeds r2 with a probability of (1 - r2) ^ ((n - 2) / 2).
        bits = -(self._count - 2) / 2 * math.log2(max(1 - correlation**2, _EPSILON))
        return correlation >= LEAST_LIKENESS and (is_named or bits >= _LEAST_BITS)


def _as_reals(array: Array, dtype: DType) -> tuple[Reals, Reals]:
    with np.errstate(invalid="ignore"):  # a signaling NaN
        values = array.astype(np.float64)
    relative, least = _REALS[dtype]
    tolerances = np.maximum(np.abs(values) * relative, least)
    if dtype is DType.FLOAT16:  # a converter clamps larger numbers to the largest float16
        tolerances[np.abs(values) >= _MOST_HALF] = np.inf
    return values, tolerances
