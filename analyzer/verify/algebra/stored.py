"""Reconciliation -> value of each stored tensor in the algebra: the parameters that it holds, in its layout."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from analyzer.manifest import PROGRAM, BatchNorm, Buffer, Manifest
from analyzer.model import Key, StoredTensor
from analyzer.model.content import SAMPLES, decode_values, digest, row_digests
from analyzer.model.dtypes import DType
from analyzer.reconciliation import Reconciliation
from analyzer.reconciliation.lines import MEANINGS, UNBALANCED, EntryLine, Line, Piece
from analyzer.reconciliation.pieces import viewed
from analyzer.reconciliation.program import numbers_near
from analyzer.records import Mutable, field, replace
from analyzer.recover.restoring import Restorer
from analyzer.verify.algebra import layers
from analyzer.verify.algebra.values import (
    Algebra,
    Array,
    Coded,
    Factored,
    Field,
    UnknownError,
    Value,
    drawn,
    is_known,
    number,
    shape_of,
)

MOST_READ = 1 << 22
"""Largest number of elements of a constant that is read."""
_SAMPLES = 64
_NEAR = 1e-5
"""Relative error, against PyTorch's, of a number that was computed in advance."""
_MADE: Mapping[str, Callable[[Algebra, Value], Value]] = {
    "1+w": lambda a, w: a.add(w, number(1)),
    "exp(w)": lambda a, w: a.function("exp", w),
    "-exp(w)": lambda a, w: a.negate(a.function("exp", w)),
    "exp(-w)": lambda a, w: a.function("exp", a.negate(w)),
    "softplus(w)": lambda a, w: a.function("softplus", w),
}
"""Functions of a weight, by their rules."""
_SIGNED = {DType.INT4: 8, DType.INT2: 2}
"""Types of less than a byte, and half of their range."""
_FOLDED = "batchnorm "
"""Prefix of rules for folded normalizations."""
_NORMED = "weightnorm "
"""Prefix of rules for weights that are a direction times a length."""
_STANDARDIZED = ":standardized"
"""Part of rules for weights from which mean and deviation were taken out."""
_SCALED = ":layerscale "
"""Part of rules for folded factors of each channel, before the factor's name."""


class Weights(Mutable):
    """Parameters and buffers of PyTorch's side, each drawn by its name."""

    a: Algebra
    shapes: Mapping[str, tuple[int, ...]]
    """Shapes by any of their names."""
    first: Mapping[str, str]
    """Name that stands for each, for tied tensors."""
    known: Mapping[str, Array] = field(default_factory=dict)
    """Tensors with known values, such as integer buffers."""
    most_dense: int = 0
    """Most elements of a weight that is drawn without a pattern too."""
    _made: dict[str, Value] = field(default_factory=dict)

    def seen_by(self, a: Algebra) -> Weights:
        """Return the same tensors for another algebra."""
        return replace(self, a=a)

    def used_tensors(self) -> Collection[tuple[str, Value]]:
        """Return the tensors that were used, with their names."""
        return self._made.items()

    def of(self, name: str) -> Value:
        """Return the tensor of a name.

        Raises:
            UnknownError: no tensor has this name.
        """
        own = self.first.get(name)
        if own is None:
            raise UnknownError(f"no tensor {name}")
        if own not in self._made:
            self._made[own] = (
                self.known[own]
                if own in self.known
                else drawn(own, self.shapes[own], self.a.seed, self.most_dense)
            )
        return self._made[own]


def known_buffers(manifest: Manifest) -> dict[str, Array]:
    """Return buffers with known values: integers, booleans, single numbers, and whole numbers such as a mask's.

    Statistics of norms are drawn, though those of a new module are zeros and ones.
    """
    found = complete_buffers(manifest)
    kinds = {buffer.name: buffer for buffer in manifest.buffers}
    statistics = {name for norm in manifest.batch_norms for name in (norm.running_mean, norm.running_var)}
    return {
        name: array
        for name, array in found.items()
        if not kinds[name].dtype.is_floating
        or array.size == 1
        or (statistics.isdisjoint(kinds[name].names) and _is_whole(array))
    }


def _is_whole(array: Array) -> bool:
    """Whether all numbers are whole, and so small that sums and products of a few are exact in single precision."""
    return bool((np.abs(array) < _MOST_EXACT).all() and (array == np.rint(array)).all())


_MOST_EXACT = 1 << 12


def complete_buffers(manifest: Manifest) -> dict[str, Array]:
    """Return all buffers whose elements a manifest gives in full."""
    found = {buffer.name: _elements(buffer) for buffer in manifest.buffers}
    return {name: array for name, array in found.items() if array is not None}


def _elements(buffer: Buffer) -> Array | None:
    """Return a buffer's elements: its samples, or a counter, zeros or ones of the same digest; None if unknown."""
    element = buffer.dtype.to_numpy()
    if buffer.content is None or element is None or element.kind not in "iubf":
        return None
    if buffer.numel <= SAMPLES:
        array = decode_values(buffer.content.samples, element).reshape(buffer.shape)
        return array.astype(np.float32) if element.kind == "f" else array
    if element.kind == "f":
        return None
    ways = (np.arange(buffer.numel), np.zeros(buffer.numel), np.ones(buffer.numel))
    for array in (way.astype(element).reshape(buffer.shape) for way in ways):
        if digest(array) == buffer.content.digest:
            return array
    return None


class Stored(Mutable, dict=True):
    """The stored tensors of a file."""

    result: Reconciliation
    weights: Weights
    values: Callable[[str], Value | None]
    """Function that returns a value that PyTorch's program computes from no input, by name."""
    _pieces: dict[Key, list[tuple[str, Piece]]] = field(default_factory=lambda: defaultdict(list))
    _lines: dict[Key, EntryLine] = field(default_factory=dict)
    _tensors: dict[Key, StoredTensor] = field(default_factory=dict)
    _copies: dict[Key, Key] = field(default_factory=dict)
    _made: dict[Key, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._restorer = Restorer(self.result.ledger)
        self._tensors = {entry.tensor.key: entry.tensor for entry in self.result.ledger.entries}
        self._lines = {entry.key: entry for entry in self.result.entries}
        copied = {key for key, entry in self._lines.items() if entry.line is Line.COPIED}
        for line in self.result.parameters:
            for piece in line.pieces:
                self._pieces[piece.key].append((line.name, piece))
            keys = {piece.key for piece in line.pieces}
            if not keys:  # as a folded bias
                keys = {*line.entries} - copied
            for key in line.entries:
                if key not in keys and len(keys) == 1:
                    self._copies[key] = next(iter(keys))
        for entry in self.result.entries:
            if entry.piece is not None and entry.parameter is not None and not self._pieces.get(entry.key):
                self._pieces[entry.key].append((entry.parameter, entry.piece))

    def of(self, tensor: StoredTensor) -> Value:
        """Return the value of a stored tensor.

        Raises:
            UnknownError: it is neither a parameter nor a readable constant.
        """
        if tensor.key not in self._made:
            try:
                found = self._in_codes(tensor, self._find(tensor))
                self._made[tensor.key] = as_stored(tensor.dtype, found) if is_known(found) else found
            except (ValueError, IndexError) as error:
                raise UnknownError(f"{tensor.name}: stored in an unknown form") from error
        return self._made[tensor.key]

    def factor(self, number: float) -> Value | None:
        """Return the program's value for a number that a fusion took from a weight into an attribute, if it did.

        Raises:
            UnknownError: it may be more than one value of the program.
        """
        program = self.result.manifest.program
        if program is None or not any(
            line.decided_by.endswith("+attribute") for line in self.result.parameters
        ):
            return None
        found = [
            (value, is_inverse) for value, is_inverse in numbers_near(program, number) if value.parameters
        ]
        if not found:
            return None
        value = self.values(found[0][0].name)
        if len(found) > 1 or value is None:
            raise UnknownError("a factor that may be one of several values")
        return self.weights.a.invert(value) if found[0][1] else value

    def _in_codes(self, tensor: StoredTensor, found: Value) -> Value:
        """Return a parameter in the units of its codes: divided by the scale, plus the zero point."""
        line = self._lines.get(tensor.key)
        stands = self._pieces.get(tensor.key) or (line is not None and line.parameter is not None)
        encoded = self._restorer.encoding(tensor)
        if encoded is None or not stands or self._has_other_values(line):
            return found
        readers = {(reader.node.op_type, reader.slot) for reader in self.result.ledger.wiring.readers(tensor)}
        decoder = None if encoded.levels or encoded.group_index is not None else encoded.open()
        if decoder is None or (encoded.bits and readers != {("MatMulNBits", 1)}):
            raise UnknownError(f"{tensor.name}: codes that are decoded in an unsupported way")
        scales, zeros = decoder.units()
        scale, zero = scales.astype(np.float32), zeros.astype(np.float32)
        if isinstance(found, (Field, Factored)):
            return Coded(found, scale, zero)
        return self.weights.a.add(self.weights.a.divide(found, scale), zero)

    @staticmethod
    def _has_other_values(line: EntryLine | None) -> bool:
        return line is not None and line.line in UNBALANCED and line.line is not Line.MISPLACED

    def _find(self, tensor: StoredTensor) -> Value:
        line = self._lines.get(tensor.key)
        if line is not None and line.line is Line.NOT_COMPARED:
            raise UnknownError(f"{tensor.name}: its values were not compared")
        if line is not None and self._has_other_values(line):
            if line.line is not Line.DIFFERING and not self._stands_for_another(tensor):
                raise UnknownError(f"{tensor.name}: nothing in PyTorch explains it")
            return self._draw_other_values(tensor.name, tensor.shape)
        if self._pieces.get(tensor.key):
            pieces = self._pieces[tensor.key]
            try:
                return self._assembled(tensor, pieces)
            except UnknownError as error:
                return self._by_elements(tensor, [name for name, _ in pieces], error)
        if tensor.key in self._copies:
            if self._restorer.encoding(tensor) is not None:
                raise UnknownError(f"{tensor.name}: a copy in codes")
            return self._copied(tensor, self._tensors[self._copies[tensor.key]])
        if line is not None and line.value is not None:
            try:
                return self._evaluated(tensor, line.value, line.value_piece)
            except UnknownError:
                if tensor.dtype.is_floating:  # integers, in which no weight is, are known
                    raise
        if line is not None and line.line is Line.FOLDED_BATCHNORM:
            return self._folded_bias(tensor, line.decided_by.partition(":")[2])
        if (
            line is not None
            and line.parameter is not None
            and line.line not in (Line.ADDED, Line.QUANTIZATION)
        ):
            if MEANINGS[line.line].is_cut:
                unknown = UnknownError(f"{tensor.name}: rows of {line.parameter} in an unknown order")
                return self._by_elements(tensor, [line.parameter], unknown)
            try:
                found = self._by_name(tensor, line.parameter)
            except UnknownError as error:
                found = self._by_elements(tensor, [line.parameter], error)
            return self._scaled(found, line.decided_by) if _SCALED in line.decided_by else found
        array = tensor.payload.array() if tensor.numel <= MOST_READ else None
        if array is None:
            raise UnknownError(f"{tensor.name}: its values were not read")
        if tensor.dtype.is_floating and tensor.numel > 1 and self._may_be_drawn(array):
            raise UnknownError(f"{tensor.name}: numbers that a buffer may hold too")
        if tensor.dtype in _SIGNED:  # the payload holds them as unsigned codes
            half = _SIGNED[tensor.dtype]
            return ((array.astype(np.int64) + half) % (2 * half) - half).astype(np.int8)
        if tensor.dtype.to_numpy() is None and tensor.dtype not in (DType.UINT4, DType.UINT2):
            raise UnknownError(f"{tensor.name}: numbers of type {tensor.dtype.name}")
        return array

    def _may_be_drawn(self, array: Array) -> bool:
        """Whether PyTorch has drawn buffers, of several real numbers, that may hold one of these; not whole ones."""
        manifest = self.result.manifest
        if _is_whole(array):
            return False
        for buffer in manifest.buffers:
            if buffer.dtype.is_floating and buffer.numel > 1:
                elements = manifest.value(buffer.name)
                if elements is None or bool(np.isin(np.unique(array), elements).any()):
                    return True
        return False

    def _stands_for_another(self, tensor: StoredTensor) -> bool:
        """Whether a parameter of its size is missing in the file: this tensor is that one with other numbers."""
        shapes = {each.name: each.shape for each in self.result.manifest.parameters}
        numel = math.prod(self._restorer.shape(tensor))
        lost = (line.name for line in self.result.parameters if line.line is Line.MISSING)
        return any(math.prod(shapes[name]) == numel for name in lost)

    def _by_elements(self, tensor: StoredTensor, names: Sequence[str], error: UnknownError) -> Value:
        """Identify the numbers with those that the program computes, or each with an element of a parameter or buffer.

        Raises:
            UnknownError: `error`, if the manifest does not give all numbers, or one occurs twice or nowhere.
        """
        a, owners = self.weights.a, list(dict.fromkeys(names))
        if len(owners) == 1 and (rows := self._by_rows(tensor, owners[0])) is not None:
            return rows
        made = next((made for name in owners if (made := self._computed(tensor, name)) is not None), None)
        if made is not None:
            return made
        arrays = [self.result.manifest.value(name) for name in owners]
        array = tensor.payload.array() if tensor.numel <= MOST_READ else None
        if array is None or any(each is None or each.dtype != array.dtype for each in arrays):
            raise error
        numbers = np.concatenate([np.reshape(each, -1) for each in arrays if each is not None])
        known, places = np.unique(numbers, return_index=True)
        at = np.minimum(np.searchsorted(known, array), known.size - 1)
        if known.size < numbers.size or not np.array_equal(known[at], array):
            raise error
        whole = a.concat([a.reshape(self.weights.of(name), (-1,)) for name in owners], 0)
        return a.reshape(a.take(whole, places[at].reshape(-1), 0), tensor.shape)

    def _by_rows(self, tensor: StoredTensor, name: str) -> Value | None:
        """Identify whole rows of a table by their digests; None if one is not the table's, or is twice in it."""
        table = next((each for each in self.result.manifest.parameters if name in each.names), None)
        if table is None or table.row_digests is None or not table.shape or tensor.dtype is not table.dtype:
            return None
        array = tensor.payload.array() if tensor.numel <= MOST_READ else None
        if array is None or not array.size or array.shape[-1:] != table.shape[-1:]:
            return None
        known = decode_values(table.row_digests, np.dtype("<u8"))
        digests, places, counts = np.unique(known, return_index=True, return_counts=True)
        mine = row_digests(array)
        at = np.minimum(np.searchsorted(digests, mine), digests.size - 1)
        if not np.array_equal(digests[at], mine) or bool((counts[at] > 1).any()):
            return None
        a = self.weights.a
        whole = a.reshape(self.weights.of(name), (-1, table.shape[-1]))
        return a.reshape(a.take(whole, places[at], 0), tensor.shape)

    def _draw_other_values(self, name: str, shape: tuple[int, ...]) -> Value:
        """Draw a tensor whose values are not PyTorch's."""
        return drawn(f"the file's {name}", shape, self.weights.a.seed)

    def _by_name(self, tensor: StoredTensor, name: str) -> Value:
        """Return a buffer that is stored in an unknown form: the buffer itself, if its shape agrees.

        A tensor that is only noted as made from the buffer has other numbers.
        """
        found, is_derived = self.weights.of(name), self._lines[tensor.key].decided_by.endswith("+derived")
        if shape_of(found) == tensor.shape and not is_derived:
            return found
        array = tensor.payload.array() if tensor.numel <= MOST_READ else None
        if array is None or (tensor.numel > 1 and tensor.dtype.is_floating):
            raise UnknownError(f"{tensor.name}: in another form than {name}")
        return array

    def _assembled(self, tensor: StoredTensor, pieces: Sequence[tuple[str, Piece]]) -> Value:
        shape = self._restorer.shape(tensor)
        if len(pieces) == 1 and pieces[0][1].taken is None:
            return self.weights.a.reshape(self._part(*pieces[0]), shape)
        owners = {self.weights.first.get(name) for name, _ in pieces}
        if len(owners) == 1 and len({piece for _, piece in pieces}) == 1 and pieces[0][1].taken is None:
            return self.weights.a.reshape(self._part(*pieces[0]), shape)  # tensors of equal numbers are one
        first = pieces[0][1]
        if any(piece.taken is None for _, piece in pieces):
            raise UnknownError(f"{tensor.name}: parameters that overlap")
        whole = viewed(first, shape)
        assert first.taken is not None
        assert whole is not None
        axis = first.taken[0]
        parts, done = [], 0
        for name, piece in sorted(pieces, key=lambda pair: pair[1].taken or (0, 0, 0)):
            assert piece.taken is not None
            if piece.taken[0] != axis or piece.taken[1] != done or viewed(piece, shape) != whole:
                raise UnknownError(f"{tensor.name}: parts that are not consecutive")
            done = piece.taken[2]
            size = [*whole]
            size[axis] = piece.taken[2] - piece.taken[1]
            parts.append(self.weights.a.reshape(self._part(name, piece), size))
        if done != whole[axis]:
            raise UnknownError(f"{tensor.name}: it holds more than its parameters")
        return self.weights.a.reshape(self.weights.a.concat(parts, axis), shape)

    def _part(self, name: str, piece: Piece) -> Value:
        """Return the content of a piece, in the order of the file."""
        a = self.weights.a
        if piece.tiles is not None:
            raise UnknownError(f"{name}: stored in blocks")
        found = self.weights.of(name)
        if piece.put is not None:
            axis, start, stop = piece.put
            cut = [slice(None)] * len(shape_of(found))
            cut[axis] = slice(start, stop)
            found = a.cut(found, cut)
        if math.prod(piece.shape) > 1:
            found = a.permute(a.reshape(found, piece.shape), piece.axes)
        if piece.computed is None:
            return found
        if piece.computed.rule.startswith(_NORMED):
            return a.permute(a.reshape(self._normed(piece.computed.rule), piece.shape), piece.axes)
        if piece.computed.rule.startswith(_FOLDED):
            found = self._folded(name, piece.computed.rule, 1 if self._is_transposed(piece.key) else 0)
            return a.permute(a.reshape(found, piece.shape), piece.axes)
        if piece.computed.rule in _MADE:
            made = self._computed(self._tensors[piece.key], name)
            if made is not None:
                return made
            return _MADE[piece.computed.rule](a, found)
        if _SCALED in piece.computed.rule:
            scaled = self._scaled(self.weights.of(name), piece.computed.rule)
            return a.permute(a.reshape(scaled, piece.shape), piece.axes)
        if _STANDARDIZED in piece.computed.rule and self._is_read_plainly(name):
            return self._draw_other_values(
                f"{name} as {piece.computed.rule}", tuple(piece.shape[axis] for axis in piece.axes)
            )
        if piece.computed.factor is None:
            raise UnknownError(f"{name}: stored as {piece.computed.rule}")
        return a.multiply(found, number(piece.computed.factor))

    def _computed(self, tensor: StoredTensor, name: str) -> Value | None:
        """Return the value with these numbers that the program computes from a parameter or buffer, if it does."""
        program = self.result.manifest.program
        array = tensor.payload.array() if program is not None and tensor.numel <= MOST_READ else None
        if program is None or array is None:
            return None
        for value in program.values:
            element = value.dtype.to_numpy()
            if value.whole is None or element is None or value.numel != array.size:
                continue
            near = _NEAR if element.kind == "f" else 0.0
            is_equal = np.allclose(decode_values(value.whole, element), array.reshape(-1), rtol=near, atol=0)
            if is_equal and name in self._sources(value.name):
                found = self.values(value.name)
                return None if found is None else self.weights.a.reshape(found, tensor.shape)
        return None

    def _sources(self, value: str) -> Collection[str]:
        """Return the names of the parameters and buffers from which the program computes a value."""
        calls = {call.name: call for each in self.result.manifest.calls for call in each.calls}
        pending, found, seen = [value.removeprefix(PROGRAM)], set[str](), set[str]()
        while pending:
            call = calls.get(pending.pop())
            if call is None or call.name in seen:
                continue
            seen.add(call.name)
            pending += call.read("value")
            found.update(self.weights.first.get(each, each) for each in call.read("tensor"))
        return found

    def _is_read_plainly(self, name: str) -> bool:
        """Whether only layers read a weight, and no norm or mean of it is computed first."""
        names = {
            other for other, first in self.weights.first.items() if first == self.weights.first.get(name)
        }
        readers = [
            call.operator
            for calls in self.result.manifest.calls
            for call in calls.calls
            for each in (*call.args, *call.kwargs.values())
            if isinstance(each, dict) and each.get("tensor") in names
        ]
        return bool(readers) and all(each.startswith("conv") or each == "linear" for each in readers)

    def _scale(self, rule: str) -> tuple[BatchNorm, Value]:
        """Return a batch normalization and its factor for each channel."""
        a, module = self.weights.a, rule.removeprefix(_FOLDED)
        norm = next((norm for norm in self.result.manifest.batch_norms if norm.module == module), None)
        if norm is None or norm.running_var is None:
            raise UnknownError(f"no statistics of {module}")
        root = a.function("sqrt", a.add(self.weights.of(norm.running_var), number(norm.eps)))
        scale = a.invert(root)
        return norm, scale if norm.weight is None else a.multiply(scale, self.weights.of(norm.weight))

    def _scaled(self, found: Value, rule: str) -> Value:
        """Multiply the channels of a weight or bias by the vector by which PyTorch multiplies the result."""
        a, scale = self.weights.a, self.weights.of(rule.partition(_SCALED)[2])
        return a.multiply(found, a.reshape(scale, (-1, *(1 for _ in shape_of(found)[1:]))))

    def _is_transposed(self, key: Key) -> bool:
        """Whether a ConvTranspose reads a stored tensor: its output channels are the second axis of its weight."""
        readers = self.result.ledger.wiring.readers(self._tensors[key])
        return any(reader.node.op_type == "ConvTranspose" for reader in readers)

    def _normed(self, rule: str) -> Value:
        """Return a direction times a length for each channel."""
        weight = rule.removeprefix(_NORMED)
        norm = next((norm for norm in self.result.manifest.weight_norms if norm.weight == weight), None)
        if norm is None:
            raise UnknownError(f"no direction and length of {weight}")
        direction, length = (self.weights.of(name) for name in (norm.direction, norm.length))
        return layers.weight_norm(self.weights.a, direction, length, norm.axis)

    def _folded(self, name: str, rule: str, axis: int) -> Value:
        """Return a weight with a batch normalization of its output, along this axis, folded in."""
        _, scale = self._scale(rule)
        found = self.weights.of(name)
        channels = [-1 if at == axis else 1 for at in range(len(shape_of(found)))]
        return self.weights.a.multiply(found, self.weights.a.reshape(scale, channels))

    def _folded_bias(self, tensor: StoredTensor, rule: str) -> Value:
        """Return the bias of a layer with a batch normalization folded in."""
        a = self.weights.a
        norm, scale = self._scale(rule)
        weight = next(
            (
                name
                for pieces in self._pieces.values()
                for name, piece in pieces
                if piece.computed is not None and piece.computed.rule == rule
            ),
            None,
        )
        own = "" if weight is None else f"{weight.rpartition('.')[0]}.bias"
        if norm.running_mean is None or weight is None:
            raise UnknownError(f"{tensor.name}: no weight or running mean for the bias of {rule}")
        shift = a.negate(self.weights.of(norm.running_mean))
        shift = a.add(self.weights.of(own), shift) if own in self.weights.first else shift
        found = a.multiply(shift, scale)
        return a.reshape(
            found if norm.bias is None else a.add(found, self.weights.of(norm.bias)), tensor.shape
        )

    def _copied(self, tensor: StoredTensor, other: StoredTensor) -> Value:
        found = self.of(other)
        if tensor.shape == shape_of(found) and _has_equal_sample(tensor, other, transposed=False):
            return found
        if tensor.shape == shape_of(found)[::-1] and _has_equal_sample(tensor, other, transposed=True):
            return self.weights.a.permute(found, range(len(tensor.shape))[::-1])
        raise UnknownError(f"{tensor.name}: a copy in another form")

    def _evaluated(self, tensor: StoredTensor, name: str, stands: Piece | None) -> Value:
        """Return a value of the program in the layout that the reconciliation found."""
        found, a = self.values(name), self.weights.a
        if found is None or stands is None or math.prod(shape_of(found)) != math.prod(stands.shape):
            raise UnknownError(f"{tensor.name}: the program's value {name} was not computed")
        return a.reshape(a.permute(a.reshape(found, stands.shape), stands.axes), tensor.shape)


def as_stored(dtype: DType, found: Value) -> Value:
    """Return known numbers in the type of the file: PyTorch's own may be of another.

    Real numbers that half precision rounds stay as they are: the file has them only rounded.
    """
    element, array = dtype.to_numpy(), np.asarray(found)
    if element is None or element == array.dtype or element.kind not in "biuf":
        return found
    if element.kind == array.dtype.kind == "f" and element.itemsize > 2:
        return found
    with np.errstate(all="ignore"):
        made = array.astype(element)
    return made if np.array_equal(made.astype(array.dtype), array) else found


def _has_equal_sample(one: StoredTensor, other: StoredTensor, *, transposed: bool) -> bool:
    """Whether a sample of elements of two tensors is equal."""
    a, b = one.payload.array(), other.payload.array()
    if a is None or b is None or a.dtype != b.dtype:
        return False
    b = b.T if transposed else b
    if a.shape != b.shape:
        return False
    places = np.random.default_rng(0).integers(0, a.size, _SAMPLES)
    at = np.unravel_index(places, a.shape)
    return bool(np.array_equal(a[at], b[at]))
