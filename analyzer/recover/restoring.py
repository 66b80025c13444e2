"""Pieces of stored tensors -> values of a PyTorch tensor, a few megabytes at a time; and records of the results.

A piece is decoded, cut and transposed, and functions that were applied to its elements are undone. Only the model file
is read.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from analyzer.account.decoding import Encoded
from analyzer.account.decoding.encodings import find_encoding
from analyzer.account.ledger import Ledger
from analyzer.errors import ModelReadError
from analyzer.model import Key, StoredTensor, label
from analyzer.model.content import Array
from analyzer.model.dtypes import DType
from analyzer.reconciliation import Reconciliation
from analyzer.reconciliation.lines import Line, Piece
from analyzer.reconciliation.pieces import cut, viewed
from analyzer.records import Frozen, Mutable, field

# values of pieces

_BAND = 1 << 22
"""Number of elements that are returned at a time."""

_MOST = 1 << 48
"""Number of elements that no file holds, though one may claim more."""


class Restorer(Mutable):
    """Reader of the stored tensors of pieces; remembers the encoding of each."""

    ledger: Ledger
    _tensors: dict[Key, StoredTensor] = field(default_factory=dict)
    _encodings: dict[Key, Encoded | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._tensors = {entry.tensor.key: entry.tensor for entry in self.ledger.entries}

    def encoding(self, tensor: StoredTensor) -> Encoded | None:
        """Return the encoding by which the tensor's readers decode it; None where its elements are the values."""
        if tensor.key not in self._encodings:
            self._encodings[tensor.key] = find_encoding(tensor, self.ledger.wiring)
        return self._encodings[tensor.key]

    def shape(self, tensor: StoredTensor) -> tuple[int, ...]:
        """Return the tensor's decoded shape."""
        encoded = self.encoding(tensor)
        return tensor.shape if encoded is None else encoded.shape

    def fits(self, piece: Piece) -> bool:
        """Whether a piece cuts as many elements as it should."""
        tensor = self._tensors[piece.key]
        if piece.tiles is not None:
            return piece.tiles.stored == tensor.shape and piece.tiles.shape == piece.shape
        whole = math.prod(self.shape(tensor))
        if self.encoding(tensor) is None and whole != tensor.numel:
            return False  # a sparse tensor stores fewer than its shape has
        shape = viewed(piece, self.shape(tensor))
        if piece.taken is None or shape is None:
            return shape is not None and whole == math.prod(piece.shape)
        axis, start, stop = piece.taken
        if axis >= len(shape) or not 0 <= start < stop <= shape[axis]:
            return False
        return whole // shape[axis] * (stop - start) == math.prod(piece.shape)

    def values(self, shape: tuple[int, ...], dtype: DType, pieces: Sequence[Piece]) -> Iterator[Array]:
        """Yield all elements of a PyTorch tensor, flat, in row-major order, in parts; zeros if there are no pieces.

        Raises:
            ModelReadError: a stored tensor cannot be read.
        """
        element = dtype.to_numpy()
        if element is None:
            raise ModelReadError(f"{dtype.name}: numpy has no such type")
        if any(dim < 0 for dim in shape) or math.prod(shape) > _MOST:
            raise ModelReadError(f"{'x'.join(map(str, shape))} is not the shape of a tensor in a file")
        if not pieces:
            yield from _bands(np.broadcast_to(np.zeros((), element), shape))
        elif len(pieces) == 1 or all(piece.put is not None and piece.put[0] == 0 for piece in pieces):
            for piece in sorted(pieces, key=lambda piece: piece.put or ()):
                for band in self._parts(piece):
                    yield _cast(_undone(band, piece), element)
        else:
            yield from _bands(self._assemble(shape, element, pieces))

    def _parts(self, piece: Piece) -> Iterator[Array]:
        """Yield the elements of a piece, flat; codes in PyTorch's order are decoded on the way."""
        encoded = self.encoding(self._tensors[piece.key])
        order = [axis for axis in piece.axes if piece.shape[axis] != 1]
        if encoded is None or piece.taken is not None or order != sorted(order):
            yield from _bands(self._view(piece))
            return
        done = 0
        for values, _ in encoded.bands():
            yield values
            done += values.size
        if done != encoded.numel:
            raise ModelReadError(self._unreadable(piece.key))

    def _unreadable(self, key: Key) -> str:
        return f"{self.ledger.model.path}: {label(key)}: its elements cannot be read"

    def _assemble(self, shape: tuple[int, ...], element: np.dtype, pieces: Sequence[Piece]) -> Array:
        """Build a tensor of several pieces that do not follow each other row by row."""
        whole = np.empty(shape, element)
        for piece in pieces:
            assert piece.put is not None
            axis, start, stop = piece.put
            part = self._view(piece)
            whole[(slice(None),) * axis + (slice(start, stop),)] = _cast(_undone(part, piece), element)
        return whole

    def _view(self, piece: Piece) -> Array:
        """Return a piece in PyTorch's order of axes; mapped, not read, where a local file stores it so."""
        tensor = self._tensors[piece.key]
        array = self._decoded(tensor)
        if array is None:
            raise ModelReadError(self._unreadable(piece.key))
        return cut(piece, array)

    def _decoded(self, tensor: StoredTensor) -> Array | None:
        encoded = self.encoding(tensor)
        if encoded is None:
            return tensor.payload.array()
        whole = np.empty(encoded.numel, np.float32)
        done = 0
        for values, _ in encoded.bands():
            whole[done : done + values.size] = values
            done += values.size
        return whole.reshape(encoded.shape) if done == whole.size else None

    # lost bits

    def is_representable(self, piece: Piece, dtype: DType) -> bool:
        """Whether a narrower type has every number of a piece."""
        element = dtype.to_numpy()
        bands = _bands(self._view(piece)) if element is not None else ()
        return element is not None and all(_same(_cast(_cast(b, element), b.dtype), b) for b in bands)

    def is_undone_exactly(self, piece: Piece, dtype: DType) -> bool:
        """Whether undoing a function restores every bit: it multiplied normal numbers by a power of two."""
        factor = None if piece.computed is None else piece.computed.factor
        tensor = self._tensors[piece.key]
        element = dtype.to_numpy()
        if (
            factor is None
            or element is None
            or tensor.dtype is not dtype
            or abs(math.frexp(factor)[0]) != 0.5
        ):
            return False
        least = float(np.finfo(element).tiny) if element.kind == "f" else math.inf
        for band in _bands(self._view(piece)):
            sizes = np.abs(band.astype(np.float64))
            is_plain = bool(((sizes >= least) | (sizes == 0)).all())
            again = _cast(_cast(_undone(band, piece), element).astype(np.float64) * factor, element)
            if not is_plain or not _same(again, band):
                return False
        return True


def _bands(array: Array) -> Iterator[Array]:
    """Yield all elements in row-major order, flat; elements in another order are copied."""
    if array.size <= _BAND or array.ndim == 0:
        yield np.ascontiguousarray(array).reshape(-1)
    elif array[0].size > _BAND:
        for part in array:
            yield from _bands(part)
    else:
        rows = _BAND // max(1, array[0].size)
        for start in range(0, len(array), rows):
            yield np.ascontiguousarray(array[start : start + rows]).reshape(-1)


def _undone(array: Array, piece: Piece) -> Array:
    if piece.computed is None:
        return array
    undo = piece.computed.undo
    assert undo is not None, f"{piece.computed.rule} is lost, and no values are asked for"
    with np.errstate(all="ignore"):  # a number that the function never returns has no inverse
        return undo(array.astype(np.float64))


def _cast(array: Array, element: np.dtype) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        return array.astype(element, copy=False)


def _same(one: Array, other: Array) -> bool:
    """Whether arrays are equal, except for the signs and payloads of NaN, which a cast may change."""
    is_nan = np.isnan(one.astype(np.float64)) & np.isnan(other.astype(np.float64))
    return bool(((one == other) | is_nan).all())


# records

NO_SCALE = "codes with an unknown scale"
"""Reason why no numbers can be made from a tensor."""


class StateTensor(Frozen):
    """A tensor of the state dict, and its place in the file."""

    name: str
    """Its first name in PyTorch, under which it is saved."""
    shape: tuple[int, ...]
    dtype: DType
    """PyTorch's type, in which it is saved."""
    tied: tuple[str, ...]
    """Its other names."""
    is_buffer: bool
    line: Line
    chain: tuple[Line, ...]
    entries: tuple[Key, ...]
    decided_by: str
    max_abs_error: float | None
    """Largest error that `reconcile` found."""
    pieces: tuple[Piece, ...]
    """Empty where nothing is to be read: zeros that the exporter removed, a tensor without elements."""
    loss: str | None
    """Reason why the file lacks some of PyTorch's bits; None where it has all."""
    is_guessed: bool
    """Whether only the exporter's notes and names give the orientation of a square matrix, and no compared values."""

    @property
    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of these elements in PyTorch's type."""
        return self.dtype.nbytes(self.numel)


class Lost(Frozen):
    """A tensor of the state dict that the file does not hold, or not in a form that gives it back."""

    name: str
    shape: tuple[int, ...]
    is_buffer: bool
    line: Line
    reason: str


class Unnamed(Frozen):
    """A stored tensor that is learned, and not known to be in the state dict."""

    key: Key
    shape: tuple[int, ...]
    dtype: DType
    line: Line
    reason: str


class Recovery(Frozen):
    """Tensors of the state dict that the file gives back, lost ones, and learned tensors without a PyTorch name."""

    reconciliation: Reconciliation
    tensors: tuple[StateTensor, ...]
    """Parameters in `named_parameters()` order, then persistent buffers."""
    lost: tuple[Lost, ...]
    unnamed: tuple[Unnamed, ...]

    @property
    def is_whole(self) -> bool:
        """Whether nothing is missing on either side."""
        return not self.lost and not self.unnamed

    @property
    def lossy(self) -> tuple[StateTensor, ...]:
        """Tensors of which the file lacks some bits."""
        return tuple(tensor for tensor in self.tensors if tensor.loss is not None)

    @property
    def guessed(self) -> tuple[str, ...]:
        """Names of square matrices that might be transposed."""
        return tuple(tensor.name for tensor in self.tensors if tensor.is_guessed)

    @property
    def numel(self) -> int:
        """Number of elements of all recovered tensors."""
        return sum(tensor.numel for tensor in self.tensors)

    @property
    def nbytes(self) -> int:
        """Bytes of these elements in PyTorch's types."""
        return sum(tensor.nbytes for tensor in self.tensors)

    @property
    def ties(self) -> dict[str, str]:
        """Names that are not saved -> the name that stands for each."""
        return {name: tensor.name for tensor in self.tensors for name in tensor.tied}

    def values(self, name: str) -> Iterator[Array]:
        """Yield all elements of one of `tensors`, flat and in PyTorch's order, some at a time, read from the file.

        Raises:
            KeyError: no tensor has this name.
            ModelReadError: the file can no longer be read.
        """
        tensor = next((tensor for tensor in self.tensors if tensor.name == name), None)
        if tensor is None:
            raise KeyError(name)
        return Restorer(self.reconciliation.ledger).values(tensor.shape, tensor.dtype, tensor.pieces)
