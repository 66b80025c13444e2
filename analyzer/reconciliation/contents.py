"""Stored tensor and PyTorch tensor -> their fit by values: layout, chain of lines, evidence and error.

Values are read only when needed. `Originals` is PyTorch's side: all values of a tensor, or the evidence in the
manifest. `Contents` compares the file's values with it. `Stacks` compares the samples of all tensors of a shape at
once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from analyzer.account.decoding import Encoded
from analyzer.account.decoding.encodings import find_encoding
from analyzer.account.ledger import Entry
from analyzer.manifest import Buffer, Manifest, Parameter
from analyzer.model import Key
from analyzer.model.content import (
    SAMPLES,
    Array,
    ContentMode,
    cast_digest,
    channel_statistics,
    decode_values,
    digest,
    is_constant_filled,
    rounded,
    row_digests,
    sample,
    sample_positions,
)
from analyzer.model.dtypes import DType, is_exact
from analyzer.model.wiring import Wiring
from analyzer.reconciliation.closeness import (
    BAND,
    Reals,
    compare_arrays,
    compare_codes,
    compare_sums,
    find_roundings,
    is_like,
    is_rounded,
    largest_difference,
    narrow,
    within,
)
from analyzer.reconciliation.layouts import (
    AxisLayout,
    Tiles,
    Use,
    class_use,
    find_uses,
    in_order,
    is_computed,
    is_convolved,
    is_own,
    is_straight,
    is_turned,
    layouts,
)
from analyzer.reconciliation.lines import Line
from analyzer.records import Frozen, Mutable, field

if TYPE_CHECKING:
    from analyzer.checkpoints import Weights

# PyTorch's values


class Originals(Mutable):
    """PyTorch's values: taken from the weights if they are at hand, else from the evidence in the manifest."""

    manifest: Manifest
    weights: Weights | None = None
    salt: str = ""
    """Salt of the sampled positions, in the manifest and in the weights at hand."""
    _samples: dict[str, Array | None] = field(default_factory=dict)
    _constant: dict[str, bool] = field(default_factory=dict)
    _rows: dict[tuple[str, DType], npt.NDArray[np.uint64] | None] = field(default_factory=dict)
    _by_name: dict[str, Parameter | Buffer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._by_name = {name: tensor for tensor in self.manifest.tensors for name in tensor.names}

    @property
    def has_content(self) -> bool:
        return self.weights is not None or self.manifest.has_content

    def find(self, name: str | None) -> Parameter | Buffer | None:
        return None if name is None else self._by_name.get(name)

    def values(self, tensor: Parameter | Buffer) -> Array | None:
        """Return all elements in PyTorch's shape; a manifest has them for small tensors only."""
        if self.weights is not None:
            for name in tensor.names:
                found = self.weights.array(name)
                if found is not None:
                    return found if found.shape == tensor.shape else None
        element = tensor.dtype.to_numpy()
        for name in tensor.names:
            if name in self.manifest.values and element is not None:
                return decode_values(self.manifest.values[name], element).reshape(tensor.shape)
        is_whole = tensor.numel <= SAMPLES
        samples = self.samples(tensor) if is_whole and tensor.content is not None else None
        return None if samples is None else samples.reshape(tensor.shape)

    def vector(self, name: str | None) -> Reals | None:
        """Return a small tensor by name, as float64."""
        tensor = self.find(name)
        found = None if tensor is None else self.values(tensor)
        return None if found is None else found.astype(np.float64)

    def has(self, tensor: Parameter | Buffer) -> bool:
        """Whether anything is known about a tensor's values."""
        return self.samples(tensor) is not None

    def positions(self, numel: int) -> npt.NDArray[np.int64]:
        """Return the row-major positions of the elements of `samples` in a tensor of `numel` elements."""
        return sample_positions(numel, self.salt)

    def samples(self, tensor: Parameter | Buffer) -> Array | None:
        """Return the elements at `positions`; None if nothing is known."""
        if tensor.name not in self._samples:
            self._samples[tensor.name] = self._sample(tensor)
        return self._samples[tensor.name]

    def _sample(self, tensor: Parameter | Buffer) -> Array | None:
        element = tensor.dtype.to_numpy()
        if tensor.content is not None and element is not None:
            return decode_values(tensor.content.samples, element)
        values = self.values(tensor) if self.weights is not None else None
        return None if values is None else sample(values, self.salt)

    def is_constant(self, tensor: Parameter | Buffer) -> bool:
        """Whether all elements are equal; True if nothing is known, because they may be."""
        if tensor.content is not None:
            return tensor.content.constant_filled
        if tensor.name not in self._constant:
            samples, values = self.samples(tensor), None
            if samples is not None and is_constant_filled(samples):
                values = self.values(tensor)
            self._constant[tensor.name] = samples is None or (
                values is not None and is_constant_filled(values)
            )
        return self._constant[tensor.name]

    def digest(self, tensor: Parameter | Buffer) -> str | None:
        if tensor.content is not None:
            return tensor.content.digest
        values = self.values(tensor)
        return None if values is None else digest(values)

    def cast_digest(self, tensor: Parameter | Buffer, dtype: DType) -> str | None:
        """Return the digest of the elements in another float type, as `analyzer.model.content.cast_digest` does."""
        if tensor.content is not None and dtype.name in tensor.content.casts:
            return tensor.content.casts[dtype.name]
        values = self.values(tensor)
        return None if values is None else cast_digest(values, dtype)

    def row_digests(self, tensor: Parameter | Buffer) -> npt.NDArray[np.uint64] | None:
        """Return the digest of each row along the last axis."""
        text = tensor.row_digests if isinstance(tensor, Parameter) else None
        if text is not None:
            return decode_values(text, np.dtype("<u8")).astype(np.uint64)
        return self.cast_row_digests(tensor, tensor.dtype)

    def cast_row_digests(self, tensor: Parameter | Buffer, dtype: DType) -> npt.NDArray[np.uint64] | None:
        """Return the digest of each row in another type, rounded by `model.content.rounded`; results are cached."""
        key = (tensor.name, dtype)
        if key not in self._rows:
            values = self.values(tensor) if len(tensor.shape) >= 2 and tensor.numel else None
            cast = (
                None
                if values is None
                else next(rounded(values, None if dtype is tensor.dtype else dtype), None)
            )
            self._rows[key] = None if cast is None else row_digests(cast).astype(np.uint64)
        return self._rows[key]

    def channel_statistics(self, tensor: Parameter) -> tuple[Reals, Reals] | None:
        """Return the projection and the norm of each output channel."""
        if tensor.channel_projections is not None and tensor.channel_norms is not None:
            both = (tensor.channel_projections, tensor.channel_norms)
            first, second = (decode_values(text, np.dtype("<f8")).astype(np.float64) for text in both)
            return first, second
        values = self.values(tensor) if tensor.shape else None
        return None if values is None or not values.size else channel_statistics(values)


# the file's values, compared with PyTorch's

Positions = npt.NDArray[np.int64]

_FEW = 8
"""Least number of distinct values that are evidence if all fit a half type: one in 8,192 of float32 is a float16."""


class Fit(Frozen):
    """Match of a stored tensor with a PyTorch tensor: layout, changes and evidence."""

    layout: AxisLayout
    chain: tuple[Line, ...]
    """Lines of its changes, in order; empty if it is as in PyTorch."""
    evidence: str
    """`content` if every element was compared, `sums` if every row of codes was, `sampled` if some elements were,
    `shape` if none was."""
    error: float | None
    """Largest difference among the compared elements."""


class Contents(Mutable):
    """Comparisons of values between the file and PyTorch, in one mode."""

    mode: ContentMode
    originals: Originals
    wiring: Wiring
    progress: Callable[[int, int], None] | None = None
    total_nbytes: int = 0
    is_local: bool = True
    """Whether the file can be memory-mapped, so that a whole tensor is as cheap to address as a few elements."""
    tiles: dict[Key, Tiles] = field(default_factory=dict)
    """Tiling of each tensor that is stored in tiles, which restores PyTorch's order of elements."""
    _encodings: dict[Key, Encoded | None] = field(default_factory=dict)
    _looks: dict[tuple[Key, AxisLayout], tuple[Array, Reals | None] | None] = field(default_factory=dict)
    _arrays: dict[Key, Array | None] = field(default_factory=dict)
    _precisions: dict[Key, DType] = field(default_factory=dict)
    _uses: dict[Key, frozenset[Use]] = field(default_factory=dict)
    _done: dict[Key, int] = field(default_factory=dict)

    @property
    def evidence(self) -> str:
        """Word of `decided_by` for an equality found in this mode."""
        return "sampled" if self.mode == "sampled" else "content"

    def compares(self, tensor: Parameter | Buffer) -> bool:
        """Whether values of `tensor` are compared at all: by the mode, and because PyTorch's side has them."""
        return self.mode != "none" and self.originals.has(tensor)

    def encoding(self, entry: Entry) -> Encoded | None:
        """Return the encoding that a stored tensor's readers decode; None if it is not encoded."""
        key = entry.tensor.key
        if key not in self._encodings:
            self._encodings[key] = find_encoding(entry.tensor, self.wiring)
        return self._encodings[key]

    def shape(self, entry: Entry) -> tuple[int, ...]:
        """Return the shape of the tensor that an entry represents, decoded and without tiles."""
        if entry.tensor.key in self.tiles:
            return self.tiles[entry.tensor.key].shape
        encoded = self.encoding(entry)
        return entry.tensor.shape if encoded is None else encoded.shape

    def numel(self, entry: Entry) -> int:
        """Return the number of elements that an entry represents, decoded and without tiles."""
        if entry.tensor.key in self.tiles:
            return math.prod(self.tiles[entry.tensor.key].shape)
        encoded = self.encoding(entry)
        return entry.logical_numel if encoded is None else encoded.numel

    def uses(self, entry: Entry, shape: tuple[int, ...], axes: tuple[int, ...]) -> frozenset[Use]:
        """Return the operators' uses of an entry in PyTorch's axes, if the entry has these in the order `axes`."""
        return in_order(self.stored_uses(entry), self.shape(entry), shape, axes)

    def stored_uses(self, entry: Entry) -> frozenset[Use]:
        """Return the operators' uses of the tensor that an entry represents, in the entry's own axes."""
        key = entry.tensor.key
        if key not in self._uses:
            self._uses[key] = find_uses(entry.tensor, self.shape(entry), self.wiring)
        return self._uses[key]

    def agrees(self, entry: Entry, tensor: Parameter | Buffer, layout: AxisLayout) -> bool | None:
        """Whether the file, in this layout, uses a tensor as its module's class does; None if nothing tells."""
        answers = set()
        for use in self.uses(entry, layout.shape, layout.axes):
            own = class_use(tensor, self.originals.manifest.modules, is_lookup=use.summed is None)
            answers.add(None if own is None else own == use)
        return answers.pop() if len(answers) == 1 else None

    def precision(self, entry: Entry) -> DType:
        """Return the type to which an entry's numbers were rounded: its own, or a narrower one that has all samples.

        Too few distinct numbers are no evidence for a narrower type.
        """
        key, dtype = entry.tensor.key, entry.tensor.dtype
        if key not in self._precisions:
            self._precisions[key] = dtype
            look = self.at(entry, self.originals.positions(self.numel(entry))) if dtype.bits > 16 else None
            values = None if look is None or look[1] is not None else np.unique(look[0])
            for half in (DType.BFLOAT16, DType.FLOAT16, DType.FLOAT):  # the coarser one first
                is_evidence = (
                    values is not None
                    and values.size >= _FEW
                    and dtype.is_floating
                    and half.bits < dtype.bits
                )
                if is_evidence and values is not None and narrow(values, half) is not None:
                    self._precisions[key] = half
                    break
        return self._precisions[key]

    def is_readable(self, entry: Entry) -> bool:
        return entry.tensor.payload.at(np.zeros(min(1, entry.tensor.numel), dtype=np.int64)) is not None

    def fit(self, entry: Entry, tensor: Parameter | Buffer, *, is_named: bool = True) -> Fit | None:
        """Return the fit of `tensor` in `entry`; None if there is none, or if values to compare cannot be read.

        Without a common name, a few equal elements in another shape prove nothing.
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

    def fits_turned(self, entry: Entry, tensor: Parameter | Buffer) -> bool:
        """Whether an entry holds a tensor in any order of axes, even one that its name and readers rule out."""
        if not self.compares(tensor):
            return False
        found = self.layouts(entry, tensor.shape, is_computed=True)
        return any(self.fit_layout(entry, tensor, layout) is not None for layout in found if layout.is_plain)

    def look(self, entry: Entry, layout: AxisLayout) -> tuple[Array, Reals | None] | None:
        """Return the stored numbers at a PyTorch tensor's sampled positions, and the quantization step of codes."""
        key = (entry.tensor.key, layout)
        if key not in self._looks:
            numel = int(np.prod(layout.shape, dtype=np.int64))
            self._looks[key] = self.at(entry, layout.positions(self.originals.positions(numel)))
        return self._looks[key]

    def at(self, entry: Entry, positions: Positions) -> tuple[Array, Reals | None] | None:
        """Return the numbers at positions of the tensor that an entry represents, and the steps of quantized codes."""
        encoded = self.encoding(entry)
        if encoded is not None:
            return encoded.at(positions)
        if entry.logical_numel != entry.tensor.numel and entry.tensor.key not in self.tiles:
            return None  # packed, and nothing says how to decode it
        payload = entry.tensor.payload
        if entry.tensor.key in self.tiles:
            positions = self.tiles[entry.tensor.key].positions(positions)
        if not self.is_local:
            found = payload.at(positions)
        else:  # mapped once, and read only where it is indexed
            if entry.tensor.key not in self._arrays:
                self._arrays[entry.tensor.key] = payload.array()
            array = self._arrays[entry.tensor.key]
            found = None if array is None else array.reshape(-1)[positions]
        return None if found is None or found.dtype.kind in "OSU" else (found, None)

    def array(self, entry: Entry) -> Array | None:
        """Return all numbers of the tensor that an entry represents, in its shape."""
        encoded = self.encoding(entry)
        self._note(entry)
        return self._untiled(entry) if encoded is None else encoded.array()

    def _untiled(self, entry: Entry) -> Array | None:
        """Return all stored numbers, with tiles undone."""
        array, tiles = entry.tensor.payload.array(), self.tiles.get(entry.tensor.key)
        return array if array is None or tiles is None else np.ascontiguousarray(tiles.restore(array))

    def changes(self, entry: Entry, tensor: Parameter | Buffer) -> tuple[Line, ...] | None:
        """Return the changes that the types alone imply: cast, quantized, or none; None if the types exclude a fit."""
        encoded = self.encoding(entry)
        if encoded is not None:
            is_real = tensor.dtype.is_floating
            return (Line.BLOCK_QUANTIZED if encoded.is_blocked else Line.QUANTIZED,) if is_real else None
        if entry.tensor.dtype is tensor.dtype:
            return ()
        return (Line.CAST,) if entry.tensor.dtype.is_floating and tensor.dtype.is_floating else None

    def error(self, entry: Entry, tensor: Parameter | Buffer) -> float | None:
        """Return the largest difference, in the layout where it is smallest; None if unknown.

        All elements count if they are compared and at hand, else the sampled ones. If all samples agree although the
        contents differ, the difference is unknown.
        """
        samples = self.originals.samples(tensor) if self.mode != "none" else None
        found = []
        for layout in layouts(tensor.shape, self.shape(entry)) if samples is not None else ():
            look = self.look(entry, layout)
            largest = None if look is None or samples is None else largest_difference(look[0], samples)
            if largest is not None:
                found.append((largest, layout))
        if not found:
            return None
        least, layout = min(found, key=lambda item: item[0])
        whole = self._whole(entry, tensor, layout)
        return (least or None) if whole is None else largest_difference(*whole)

    def agreement(self, entry: Entry, tensor: Parameter | Buffer) -> tuple[int, int]:
        """Return how many sampled elements agree in the best layout, and how many there are."""
        found = (
            self._agreement(entry, tensor, layout) for layout in layouts(tensor.shape, self.shape(entry))
        )
        return max(found, default=(0, 0))

    def agreement_of_all(self, entry: Entry, tensor: Parameter | Buffer) -> tuple[int, int]:
        """Return how many elements agree in the layout that is best by samples, and how many there are.

        The samples count if the tensor holds codes, or if not all elements are compared and at hand.
        """
        near = {
            layout: self._agreement(entry, tensor, layout)
            for layout in layouts(tensor.shape, self.shape(entry))
        }
        if not near:
            return 0, 0
        best = max(near, key=near.__getitem__)
        whole = self._whole(entry, tensor, best) if self.encoding(entry) is None else None
        if whole is None:
            return near[best]
        stored, original = (each.astype(np.float64) for each in whole)
        return int(within(stored, original, None).sum()), original.size

    def _whole(
        self, entry: Entry, tensor: Parameter | Buffer, layout: AxisLayout
    ) -> tuple[Array, Array] | None:
        """Return all elements, stored and original, in the original's shape; None if not all are compared."""
        values = self.originals.values(tensor) if self.mode == "full" else None
        array = None if values is None else self.array(entry)
        return None if values is None or array is None else (layout.restore(array), values)

    def closest(self, entry: Entry, tensor: Parameter | Buffer) -> AxisLayout | None:
        """Return the layout in which an entry would hold the tensor; None if sizes differ, or several remain possible.

        Among several, it is the one in which the file uses the tensor as PyTorch does, else the only one in which most
        sampled elements agree, if these are more than half.
        """
        if self.changes(entry, tensor) is None:
            return None
        found = [layout for layout in self._layouts(entry, tensor) if layout.is_plain]
        if len(found) < 2 or self.agrees(entry, tensor, found[0]):
            return next(iter(found), None)
        near = {layout: self._agreement(entry, tensor, layout) for layout in found}
        best = max(found, key=near.__getitem__)
        is_clear = list(near.values()).count(near[best]) == 1 and 2 * near[best][0] > near[best][1]
        return best if is_clear else None

    def _agreement(self, entry: Entry, tensor: Parameter | Buffer, layout: AxisLayout) -> tuple[int, int]:
        samples = self.originals.samples(tensor) if self.mode != "none" else None
        look = self.look(entry, layout) if samples is not None else None
        if look is None or samples is None or look[0].dtype.kind not in "fiubV":
            return 0, 0
        near = within(look[0].astype(np.float64), samples.astype(np.float64), look[1])
        return int(near.sum()), int(near.size)

    def _fit_by_shape(self, entry: Entry, tensor: Parameter | Buffer) -> Fit | None:
        """Return the fit that follows from shapes, types and notes alone."""
        changed = self.changes(entry, tensor)
        found = next(iter(self._layouts(entry, tensor)), None)
        if changed is None or found is None:
            return None
        return Fit(found, (*found.chain, *changed), "shape", None)

    def layouts(self, entry: Entry, shape: tuple[int, ...], *, is_computed: bool) -> list[AxisLayout]:
        """Return the layouts in which an entry may hold this shape, the likeliest first.

        Exporters transpose a matrix whose name they do not keep. For a square matrix the shapes cannot tell, nor can
        samples that happen to lie on its diagonal. A convolution's weight has PyTorch's order of axes.
        """
        stored = self.shape(entry)
        found = list(layouts(shape, stored))
        if len(found) > 1 and len(shape) > 2 and is_convolved(entry, self.wiring):
            return [layout for layout in found if Line.TRANSPOSED not in layout.chain]
        is_square = len(stored) == 2 and stored[0] == stored[1] and stored == shape
        if is_square and is_turned(entry, self.wiring, is_computed=is_computed):
            found.reverse()
        return found

    def _layouts(self, entry: Entry, tensor: Parameter | Buffer) -> list[AxisLayout]:
        found = self.layouts(entry, tensor.shape, is_computed=is_computed(entry, tensor))
        if len(found) > 1:  # a stable sort: evidence of operators outranks that of names
            found.sort(key=lambda layout: self.agrees(entry, tensor, layout) is not True)
        if self.shape(entry) != tensor.shape or not is_own(entry, tensor):
            return found
        # A tensor that keeps its name and shape keeps its axes. For a matrix the operator has to confirm it:
        # onnxruntime's quantizer turns a Gemm into a MatMul, transposes the weight and keeps the name.
        straight = [layout for layout in found if Line.TRANSPOSED not in layout.chain]
        return found if len(tensor.shape) == 2 and not is_straight(entry, self.wiring) else straight or found

    def fit_layout(
        self, entry: Entry, tensor: Parameter | Buffer, layout: AxisLayout, *, is_named: bool = True
    ) -> Fit | None:
        """Return the fit in one layout, by a comparison of values.

        If another layout is possible too, and only values can tell them apart, a few elements do not decide: all are
        compared in any mode, and if they are not at hand there is no fit.
        """
        changed = self.changes(entry, tensor)
        samples = self.originals.samples(tensor)
        look = self.look(entry, layout) if changed is not None and samples is not None else None
        if changed is None or samples is None or look is None:
            return None
        stored, _ = look
        is_open, is_small = self.is_open(entry, tensor, layout), tensor.numel <= SAMPLES
        for narrower in self._roundings(entry, tensor, look, samples, is_named=is_named):
            error: float | None = largest_difference(stored, samples)
            evidence = "content" if is_small and self.mode == "full" else "sampled"
            if not is_small and (self.mode == "full" or is_open):
                whole = self._compare_whole(entry, tensor, layout, narrower)
                sums = self._compare_sums(entry, tensor, layout) if whole is None else None
                if whole is False or sums is False or (is_open and whole is None and sums is None):
                    continue
                evidence = "sampled" if whole is None else "content"
                evidence = "sums" if sums else evidence
                error = error if whole is None or whole is True else whole
            if narrower is None or error:  # without a difference, nothing was rounded
                changed = changed if narrower is None else (Line.CAST,)
                return Fit(layout, (*layout.chain, *changed), evidence, error)
        return None

    def _roundings(
        self,
        entry: Entry,
        tensor: Parameter | Buffer,
        look: tuple[Array, Reals | None],
        samples: Array,
        *,
        is_named: bool,
    ) -> Iterator[DType | None]:
        """Yield the narrower types to which elements may have been rounded before they were stored; None for none."""
        stored, steps = look
        if steps is not None:
            if is_like(stored, samples.astype(np.float64), steps, is_named=is_named):
                yield None
            return
        if is_rounded(stored, samples, entry.tensor.dtype):
            yield None
        yield from find_roundings(stored, samples, entry.tensor.dtype, tensor.dtype)

    def is_open(self, entry: Entry, tensor: Parameter | Buffer, layout: AxisLayout) -> bool:
        """Whether the entry may hold the tensor in another order of axes too, and only values tell."""
        if layout.window is None and len(self.layouts(entry, tensor.shape, is_computed=True)) < 2:
            return False
        return not (layout.is_plain or layout.window) or (
            layout.has_equal_axes and self.agrees(entry, tensor, layout) is not True
        )

    def _compare_sums(self, entry: Entry, tensor: Parameter | Buffer, layout: AxisLayout) -> bool | None:
        """Compare codes with PyTorch's statistics of each row; None if there are none."""
        encoded = self.encoding(entry)
        if encoded is None or not isinstance(tensor, Parameter):
            return None
        known = self.originals.channel_statistics(tensor)
        return None if known is None else compare_sums(encoded, layout, known)

    def _compare_whole(
        self, entry: Entry, tensor: Parameter | Buffer, layout: AxisLayout, narrower: DType | None
    ) -> float | bool | None:
        """Compare all elements: False if they differ, else the largest difference or True; None if unknown.

        `narrower` is the type to which they were rounded before they were stored, if any.
        """
        self._note(entry)
        original = self.originals.values(tensor)
        encoded = self.encoding(entry)
        if encoded is not None:
            return None if original is None else self._compare_codes(encoded, original, layout)
        array = self._untiled(entry)
        dtype = entry.tensor.dtype
        if (
            narrower is None
            and original is None
            and is_exact(tensor.dtype, dtype)
            and dtype is not tensor.dtype
        ):
            narrower = tensor.dtype  # the cast is exact: the digest is of the original type
        if array is not None and narrower is not None:
            array, dtype = narrow(array, narrower), narrower
        if array is None:
            return False
        restored = layout.restore(array)
        if original is not None:
            return compare_arrays(restored, original, dtype)
        if dtype is tensor.dtype:
            content = tensor.content
            is_whole = layout.window is None
            if content is not None and content.digest_transposed and layout.axes == (1, 0) and is_whole:
                return digest(array) == content.digest_transposed
            return digest(restored) == self.originals.digest(tensor)
        expected = self.originals.cast_digest(tensor, dtype)
        return None if expected is None else cast_digest(restored, dtype) == expected

    def repeats(self, entry: Entry, layout: AxisLayout, values: Array) -> bool:
        """Whether codes represent these values, in PyTorch's order of axes, each within a step."""
        encoded = self.encoding(entry)
        return encoded is not None and self._compare_codes(encoded, values, layout) is not False

    def _compare_codes(self, encoded: Encoded, original: Array, layout: AxisLayout) -> float | bool:
        if layout.window is None:
            return compare_codes(encoded.bands(), original.transpose(layout.axes).reshape(-1))
        every = range(0, original.size, BAND)
        starts = (np.arange(start, min(start + BAND, original.size), dtype=np.int64) for start in every)
        bands = (found for part in starts if (found := encoded.at(layout.positions(part))) is not None)
        return compare_codes(bands, original.reshape(-1))

    def _note(self, entry: Entry) -> None:
        self._done[entry.tensor.key] = entry.tensor.nbytes
        if self.progress is not None:
            self.progress(min(sum(self._done.values()), self.total_nbytes), self.total_nbytes)


# many tensors at once

Tensor = Parameter | Buffer


class Stacks(Mutable):
    """Tensors with known values and more than one element, stacked by shape."""

    contents: Contents
    tensors: Iterable[Tensor]
    _by_shape: dict[tuple[int, ...], list[Tensor]] = field(default_factory=dict)
    _by_numel: dict[int, list[tuple[int, ...]]] = field(default_factory=dict)
    _rows: dict[tuple[int, ...], npt.NDArray[np.float64]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for tensor in self.tensors:
            if tensor.numel > 1 and self.contents.compares(tensor):
                if tensor.shape not in self._by_shape:
                    self._by_numel.setdefault(tensor.numel, []).append(tensor.shape)
                self._by_shape.setdefault(tensor.shape, []).append(tensor)

    def shapes(self, numel: int) -> list[tuple[int, ...]]:
        """Return the shapes of the tensors with `numel` elements."""
        return self._by_numel.get(numel, [])

    @property
    def all_shapes(self) -> Iterable[tuple[int, ...]]:
        return self._by_shape.keys()

    def near(
        self, shape: tuple[int, ...], look: tuple[Array, npt.NDArray[np.float64] | None]
    ) -> list[Tensor]:
        """Return the tensors of a shape whose samples may be these: equal, rounded, or within a step."""
        values, steps = look
        tensors, rows = self.of(shape)
        if values.dtype.kind not in "fiubV":
            return []
        numbers = values.astype(np.float64)
        tolerances = steps * 1.01 if steps is not None else np.abs(numbers) * 2.0**-6
        with np.errstate(invalid="ignore"):
            near = (np.abs(rows - numbers) <= tolerances + 1e-7).all(axis=1)
        return [tensors[number] for number in np.flatnonzero(near)]

    def of(self, shape: tuple[int, ...]) -> tuple[list[Tensor], npt.NDArray[np.float64]]:
        """Return the tensors of a shape, and their samples as an array (tensors, samples)."""
        tensors = self._by_shape[shape]
        if shape not in self._rows:
            samples = (self.contents.originals.samples(tensor) for tensor in tensors)
            known = [sample.astype(np.float64) for sample in samples if sample is not None]
            self._rows[shape] = np.stack(known)
        return tensors, self._rows[shape]
