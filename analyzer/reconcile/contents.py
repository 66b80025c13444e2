"""A stored tensor and a PyTorch tensor -> whether and how the one holds the other, in values, each read when asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from analyzer.content import Array, ContentMode, cast_digest, digest, rounded, sample_positions
from analyzer.decoding.encodings import Encoded, find_encoding
from analyzer.dtypes import DType
from analyzer.ledger import Entry
from analyzer.manifest import Buffer, Parameter
from analyzer.model import Key
from analyzer.reconcile.layouts import Layout, layouts
from analyzer.reconcile.lines import Line
from analyzer.reconcile.originals import Originals
from analyzer.scopes import float_name
from analyzer.wiring import Wiring

__all__ = ["PACKS_TRANSPOSE", "ContentMode", "Contents", "Fit", "is_computed", "is_like"]

Reals = npt.NDArray[np.float64]
Positions = npt.NDArray[np.int64]

_ROOM = 1.001
"""Of a quantization step, for the arithmetic in which it was applied."""

_LEAST_LIKENESS = 0.6
"""Cosine between the numbers that codes stand for and the original's: one bit of noise in two leaves 0.8."""

_NOTHING = 1e-12
"""Sum of squares of numbers that a quantizer may take for zeros, whatever its scale."""

_BAND = 1 << 22
"""Elements that are compared at a time."""

_CONVOLUTIONS = frozenset({"Conv", "ConvInteger", "ConvTranspose", "DeformConv", "FusedConv", "QLinearConv"})
"""Operators whose weight has the axes that PyTorch's has."""

_MOST_DECODED = 3

PACKS_TRANSPOSE = frozenset({"MatMulBnb4", "MatMulNBits"})
"""Operators whose weight stands for the transpose of the matrix that MatMul had."""


@dataclass(frozen=True, slots=True)
class Fit:
    """How a stored tensor holds a PyTorch tensor."""

    layout: Layout
    chain: tuple[Line, ...]
    """What became of it, in order; empty where it is as PyTorch has it."""
    evidence: str
    """`content` where every element was compared, `sampled` where some were, `shape` where none was."""
    error: float | None
    """Largest difference among the compared elements."""


@dataclass
class Contents:
    """Comparisons of values, under one mode."""

    mode: ContentMode
    originals: Originals
    wiring: Wiring
    progress: Callable[[int, int], None] | None = None
    total_nbytes: int = 0
    is_local: bool = True
    """Whether the file can be mapped, so that all of a tensor is as cheap to name as a few elements."""
    _encodings: dict[Key, Encoded | None] = field(default_factory=dict)
    _looks: dict[tuple[Key, Layout], tuple[Array, Reals | None] | None] = field(default_factory=dict)
    _arrays: dict[Key, Array | None] = field(default_factory=dict)
    _done: dict[Key, int] = field(default_factory=dict)

    @property
    def evidence(self) -> str:
        """What an equality found here is called in `decided_by`."""
        return "sampled" if self.mode == "sampled" else "content"

    def compares(self, tensor: Parameter | Buffer) -> bool:
        """Whether values of `tensor` are compared at all: by the mode, and because PyTorch's side has them."""
        return self.mode != "none" and self.originals.has(tensor)

    def encoding(self, entry: Entry) -> Encoded | None:
        """How the readers of a stored tensor decode it; None where it stands for itself."""
        key = entry.tensor.key
        if key not in self._encodings:
            self._encodings[key] = find_encoding(entry.tensor, self.wiring)
        return self._encodings[key]

    def shape(self, entry: Entry) -> tuple[int, ...]:
        """Of what the entry stands for."""
        encoded = self.encoding(entry)
        return entry.tensor.shape if encoded is None else encoded.shape

    def numel(self, entry: Entry) -> int:
        """Elements that the entry stands for."""
        encoded = self.encoding(entry)
        return entry.logical_numel if encoded is None else encoded.numel

    def is_readable(self, entry: Entry) -> bool:
        return entry.tensor.payload.at(np.zeros(min(1, entry.tensor.numel), dtype=np.int64)) is not None

    def fit(self, entry: Entry, tensor: Parameter | Buffer, *, is_named: bool = True) -> Fit | None:
        """How `entry` holds `tensor`; None where it does not, or where its values are compared and cannot be read.

        Without a name, few equal elements in another shape prove nothing.
        """
        if not self.compares(tensor):
            return self._fit_by_shape(entry, tensor)
        for layout in self._layouts(entry, tensor):
            if not is_named and not layout.is_plain and self.mode != "full":
                continue
            found = self.fit_layout(entry, tensor, layout, is_named=is_named)
            if found is not None:
                return found
        return None

    def look(self, entry: Entry, layout: Layout) -> tuple[Array, Reals | None] | None:
        """The stored numbers at a PyTorch tensor's sampled positions, and the step of each where they are codes."""
        key = (entry.tensor.key, layout)
        if key not in self._looks:
            numel = int(np.prod(layout.shape, dtype=np.int64))
            self._looks[key] = self.at(entry, layout.positions(sample_positions(numel)))
        return self._looks[key]

    def at(self, entry: Entry, positions: Positions) -> tuple[Array, Reals | None] | None:
        """The stored numbers at positions of what the entry stands for, and steps where they are codes."""
        encoded = self.encoding(entry)
        if encoded is not None:
            return encoded.at(positions)
        payload = entry.tensor.payload
        if not self.is_local:
            found = payload.at(positions)
        else:  # mapped, not read, and once for all questions
            if entry.tensor.key not in self._arrays:
                self._arrays[entry.tensor.key] = payload.array()
            array = self._arrays[entry.tensor.key]
            found = None if array is None else array.reshape(-1)[positions]
        return None if found is None or found.dtype.kind in "OSU" else (found, None)

    def array(self, entry: Entry) -> Array | None:
        """All numbers that the entry stands for, in their shape."""
        encoded = self.encoding(entry)
        self._note(entry)
        return entry.tensor.payload.array() if encoded is None else encoded.array()

    def changes(self, entry: Entry, tensor: Parameter | Buffer) -> tuple[Line, ...] | None:
        """What the types alone say: cast, quantized, or nothing; None where one cannot be the other."""
        encoded = self.encoding(entry)
        if encoded is not None:
            is_real = tensor.dtype.is_floating
            return (Line.BLOCK_QUANTIZED if encoded.is_blocked else Line.QUANTIZED,) if is_real else None
        if entry.tensor.dtype is tensor.dtype:
            return ()
        return (Line.CAST,) if entry.tensor.dtype.is_floating and tensor.dtype.is_floating else None

    def error(self, entry: Entry, tensor: Parameter | Buffer) -> float | None:
        """Largest difference, in the layout in which it is least; None if it is not known.

        Of all elements where these are compared and at hand, else of the sampled ones; if they agree there, and the
        content is another's all the same, it is not known.
        """
        samples = self.originals.samples(tensor) if self.mode != "none" else None
        found = []
        for layout in layouts(tensor.shape, self.shape(entry)) if samples is not None else ():
            look = self.look(entry, layout)
            distance = None if look is None or samples is None else _distance(look[0], samples)
            if distance is not None:
                found.append((distance, layout))
        if not found:
            return None
        least, layout = min(found, key=lambda item: item[0])
        values = self.originals.values(tensor) if self.mode == "full" else None
        array = None if values is None else self.array(entry)
        if values is None or array is None:
            return least or None
        return _distance(layout.restore(array), values)

    def agreement(self, entry: Entry, tensor: Parameter | Buffer) -> tuple[int, int]:
        """Of the sampled elements, how many agree in the best layout, and how many there are."""
        found = (
            self._agreement(entry, tensor, layout) for layout in layouts(tensor.shape, self.shape(entry))
        )
        return max(found, default=(0, 0))

    def closest(self, entry: Entry, tensor: Parameter | Buffer) -> Layout | None:
        """The layout in which most sampled elements agree, by shapes and notes among equals; None if sizes differ."""
        if self.changes(entry, tensor) is None:
            return None
        found = [layout for layout in self._layouts(entry, tensor) if layout.is_plain]
        return max(found, key=lambda layout: self._agreement(entry, tensor, layout), default=None)

    def _agreement(self, entry: Entry, tensor: Parameter | Buffer, layout: Layout) -> tuple[int, int]:
        samples = self.originals.samples(tensor) if self.mode != "none" else None
        look = self.look(entry, layout) if samples is not None else None
        if look is None or samples is None or look[0].dtype.kind not in "fiubV":
            return 0, 0
        near = _within(look[0].astype(np.float64), samples.astype(np.float64), look[1])
        return int(near.sum()), int(near.size)

    def _fit_by_shape(self, entry: Entry, tensor: Parameter | Buffer) -> Fit | None:
        """What shapes, types and notes say."""
        changed = self.changes(entry, tensor)
        found = next(iter(self._layouts(entry, tensor)), None)
        if changed is None or found is None:
            return None
        return Fit(found, (*found.chain, *changed), "shape", None)

    def layouts(self, entry: Entry, shape: tuple[int, ...], *, is_computed: bool) -> list[Layout]:
        """The likeliest first: exporters transpose a matrix whose name they do not keep.

        Of a square one, neither shapes tell, nor samples that happen to stand on its diagonal. What a convolution reads
        has its axes as PyTorch has them.
        """
        stored = self.shape(entry)
        found = list(layouts(shape, stored))
        if len(found) > 1 and len(shape) > 2 and self._is_convolved(entry):
            return [layout for layout in found if Line.TRANSPOSED not in layout.chain]
        is_square = len(stored) == 2 and stored[0] == stored[1] and stored == shape
        if is_square and self.is_turned(entry, is_computed=is_computed):
            found.reverse()
        return found

    def is_turned(self, entry: Entry, *, is_computed: bool) -> bool:
        """Whether a matrix is the transpose of PyTorch's as far as its name and the operator that reads it tell."""
        if entry.read_by in PACKS_TRANSPOSE:
            return not is_computed
        reads = self.wiring.readers(entry.tensor)
        return is_computed and not any(
            r.node.op_type == "Gemm" and r.node.integers.get("transB") for r in reads
        )

    def _is_straight(self, entry: Entry) -> bool:
        """Whether the operator that reads a matrix takes it as PyTorch has it, a row for each output or token."""
        return any(
            (node.op_type == "Gemm" and slot == 1 and node.integers.get("transB") == 1)
            or (node.op_type == "Gather" and slot == 0)
            for node, slot in self.wiring.readers(entry.tensor)
        )

    def _is_convolved(self, entry: Entry) -> bool:
        """Whether a convolution reads a tensor as it is stored, decoded or cast."""
        reads = self.wiring.readers(entry.tensor)
        for _ in range(_MOST_DECODED):
            if any(node.op_type in _CONVOLUTIONS and slot > 0 for node, slot in reads):
                return True
            decoded = [node for node, _ in reads if node.op_type in ("Cast", "DequantizeLinear")]
            reads = [reader for node in decoded for reader in self.wiring.readers(node)]
        return False

    def _layouts(self, entry: Entry, tensor: Parameter | Buffer) -> list[Layout]:
        found = self.layouts(entry, tensor.shape, is_computed=is_computed(entry, tensor))
        if self.shape(entry) != tensor.shape or not _is_own(entry, tensor):
            return found
        # What keeps its name and its shape keeps its axes. Of a matrix the operator has to say so: where onnxruntime's
        # quantizer makes a MatMul of a Gemm, it transposes the weight and keeps the name.
        straight = [layout for layout in found if Line.TRANSPOSED not in layout.chain]
        return found if len(tensor.shape) == 2 and not self._is_straight(entry) else straight or found

    def fit_layout(
        self, entry: Entry, tensor: Parameter | Buffer, layout: Layout, *, is_named: bool = True
    ) -> Fit | None:
        """`fit` in one layout, where values are compared."""
        changed = self.changes(entry, tensor)
        samples = self.originals.samples(tensor)
        look = self.look(entry, layout) if changed is not None and samples is not None else None
        if changed is None or samples is None or look is None:
            return None
        stored, steps = look
        if steps is not None:
            if not is_like(stored, samples.astype(np.float64), steps, is_named=is_named):
                return None
        elif not _is_rounded(stored, samples, entry.tensor.dtype):
            return None
        error: float | None = _distance(stored, samples)
        is_whole = sample_positions(tensor.numel).size == tensor.numel
        if self.mode == "full" and not is_whole:
            whole = self._compare_whole(entry, tensor, layout, steps is not None)
            if whole is False:
                return None
            is_whole = whole is not None
            error = error if whole is None or whole is True else whole
        evidence = "content" if is_whole and self.mode == "full" else "sampled"
        return Fit(layout, (*layout.chain, *changed), evidence, error)

    def _compare_whole(
        self, entry: Entry, tensor: Parameter | Buffer, layout: Layout, is_encoded: bool
    ) -> float | bool | None:
        """Compare all elements: False where they differ, the largest difference or True where not, None if unknown."""
        self._note(entry)
        original = self.originals.values(tensor)
        if is_encoded:
            return None if original is None else self._compare_codes(entry, original, layout)
        array = entry.tensor.payload.array()
        if array is None:
            return False
        restored = layout.restore(array)
        stored_dtype = entry.tensor.dtype
        if original is not None:
            return _compare_arrays(restored, original, stored_dtype)
        if stored_dtype is tensor.dtype:
            content = tensor.content
            is_whole = layout.window is None
            if content is not None and content.digest_transposed and layout.axes == (1, 0) and is_whole:
                return digest(array) == content.digest_transposed
            return digest(restored) == self.originals.digest(tensor)
        expected = self.originals.cast_digest(tensor, stored_dtype)
        return None if expected is None else cast_digest(restored, stored_dtype) == expected

    def _compare_codes(self, entry: Entry, original: Array, layout: Layout) -> float | bool:
        encoded = self.encoding(entry)
        assert encoded is not None
        flat = original.transpose(layout.axes).reshape(-1) if layout.axes else original.reshape(-1)
        done, largest, product, mine, yours = 0, 0.0, 0.0, 0.0, 0.0
        if layout.window is None:
            bands = encoded.bands()
        else:
            flat = original.reshape(-1)
            every = range(0, flat.size, _BAND)
            starts = (np.arange(start, min(start + _BAND, flat.size), dtype=np.int64) for start in every)
            bands = (found for part in starts if (found := encoded.at(layout.positions(part))) is not None)
        for values, steps in bands:
            theirs = flat[done : done + values.size].astype(np.float64)
            error = np.abs(values - theirs)
            if not bool((error <= _allowed(steps)).all()):
                return False
            largest = max(largest, float(error.max(initial=0.0)))
            product += float(values @ theirs)
            mine, yours = mine + float(values @ values), yours + float(theirs @ theirs)
            done += values.size
        # A scale so large that everything is within a step of zero is no evidence here either.
        is_alike = product >= _LEAST_LIKENESS * np.sqrt(mine * yours) and (mine > 0 or yours <= _NOTHING)
        return largest if done == flat.size and is_alike else False

    def _note(self, entry: Entry) -> None:
        self._done[entry.tensor.key] = entry.tensor.nbytes
        if self.progress is not None:
            self.progress(min(sum(self._done.values()), self.total_nbytes), self.total_nbytes)


def is_computed(entry: Entry, tensor: Parameter | Buffer) -> bool:
    """Whether a stored tensor does not bear its own PyTorch name, so that an exporter made it of that."""
    name = float_name(entry.tensor.name)
    return name not in tensor.names and name not in entry.sources


def _is_own(entry: Entry, tensor: Parameter | Buffer) -> bool:
    """Whether a stored tensor bears a tensor's name, but for a prefix."""
    stored = f".{float_name(entry.tensor.name)}"
    return any(stored.endswith(f".{name}") or f".{name}".endswith(stored) for name in tensor.names)


def _allowed(steps: Reals) -> Reals:
    return steps * _ROOM + 1e-12


def _within(stored: Reals, original: Reals, steps: Reals | None) -> npt.NDArray[np.bool_]:
    room = np.abs(original) * 2.0**-10 if steps is None else _allowed(steps)
    with np.errstate(invalid="ignore"):
        return np.abs(stored - original) <= room


def is_like(stored: Array, original: Reals, steps: Reals, *, is_named: bool = False) -> bool:
    """Whether codes stand for the original: each within its step, and all together in its direction.

    A scale so large that everything is within a step of zero is no evidence; where both are nothing, only a name is.
    """
    values, original = stored.astype(np.float64).reshape(-1), original.reshape(-1)
    with np.errstate(invalid="ignore"):
        if not bool((np.abs(values - original) <= _allowed(steps.reshape(-1))).all()):
            return False
    sizes = float(np.linalg.norm(values) * np.linalg.norm(original))
    if sizes == 0.0:
        return is_named and float(original @ original) <= _NOTHING
    return float(values @ original) >= _LEAST_LIKENESS * sizes


def _is_rounded(stored: Array, original: Array, dtype: DType) -> bool:
    """Whether stored elements are the original's, as they are or rounded to another type."""
    if stored.dtype == original.dtype:
        return stored.tobytes() == original.tobytes()
    return any(_same(stored, way) for way in rounded(original, dtype))


def _same(stored: Array, expected: Array) -> bool:
    mine = next(iter(rounded(stored, None)))
    return mine.tobytes() == expected.tobytes()


def _compare_arrays(restored: Array, original: Array, dtype: DType) -> float | bool:
    """Band by band; the largest difference, or False where an element is not what it should be."""
    largest = 0.0
    ways: set[int] | None = None
    for mine, theirs in zip(_bands(restored), _bands(original), strict=True):
        if mine.dtype == theirs.dtype:
            if mine.tobytes() != theirs.tobytes():
                return False
            continue
        found = {number for number, way in enumerate(rounded(theirs, dtype)) if _same(mine, way)}
        ways = found if ways is None else ways & found
        if not ways:
            return False
        largest = max(largest, _distance(mine, theirs) or 0.0)
    return largest


def _bands(array: Array) -> Iterator[Array]:
    if array.ndim == 0 or array.size == 0:
        yield array.reshape(-1)
        return
    rows = max(1, _BAND // max(1, array[0].size))
    yield from (np.ascontiguousarray(array[start : start + rows]) for start in range(0, len(array), rows))


def _distance(stored: Array, original: Array) -> float | None:
    """Largest absolute difference; None where that is no number."""
    if stored.size != original.size or any(a.dtype.kind in "OSUc" for a in (stored, original)):
        return None
    with np.errstate(invalid="ignore", over="ignore"):
        difference = np.abs(stored.astype(np.float64).reshape(-1) - original.astype(np.float64).reshape(-1))
    largest = float(difference.max()) if difference.size else 0.0
    return largest if np.isfinite(largest) else None
