"""What recovery finds -> records: tensors that are given back, what is lost, what has no name."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from analyzer.content import Array
from analyzer.dtypes import DType
from analyzer.model import Key
from analyzer.reconciliation import Reconciliation
from analyzer.reconciliation.lines import Line, Piece
from analyzer.recover.restoring import Restorer

__all__ = ["NO_SCALE", "Lost", "Recovery", "StateTensor", "Unnamed"]

NO_SCALE = "codes of which nothing says the scale"
"""Why no numbers are made of a tensor."""


@dataclass(frozen=True, slots=True)
class StateTensor:
    """A tensor of the state dict, and where in the file it is."""

    name: str
    """Its first name in PyTorch, under which it is saved."""
    shape: tuple[int, ...]
    dtype: DType
    """PyTorch's, in which it is saved."""
    tied: tuple[str, ...]
    """Its other names."""
    is_buffer: bool
    line: Line
    chain: tuple[Line, ...]
    entries: tuple[Key, ...]
    decided_by: str
    max_abs_error: float | None
    """As `reconcile` found it."""
    pieces: tuple[Piece, ...]
    """Empty where there is nothing to read: zeros that the exporter removed, a tensor without elements."""
    loss: str | None
    """Why the file has not every bit that PyTorch had; None where it has."""
    is_guessed: bool
    """Whether a square matrix stands as the exporter's notes and names say, and its values were not compared."""

    @property
    def numel(self) -> int:
        """Elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of these elements in PyTorch's type."""
        return self.dtype.nbytes(self.numel)


@dataclass(frozen=True, slots=True)
class Lost:
    """A tensor of the state dict that the file does not hold, or not in a form that gives it back."""

    name: str
    shape: tuple[int, ...]
    is_buffer: bool
    line: Line
    reason: str


@dataclass(frozen=True, slots=True)
class Unnamed:
    """A stored tensor that is learned, and no tensor of the state dict as far as anybody knows."""

    key: Key
    shape: tuple[int, ...]
    dtype: DType
    line: Line
    reason: str


@dataclass(frozen=True, slots=True)
class Recovery:
    """What of the state dict the file holds."""

    reconciliation: Reconciliation
    tensors: tuple[StateTensor, ...]
    """Parameters in `named_parameters()` order, then persistent buffers."""
    lost: tuple[Lost, ...]
    unnamed: tuple[Unnamed, ...]

    @property
    def is_whole(self) -> bool:
        """Whether nothing is missing, on either side."""
        return not self.lost and not self.unnamed

    @property
    def lossy(self) -> tuple[StateTensor, ...]:
        """Those of which the file has not every bit."""
        return tuple(tensor for tensor in self.tensors if tensor.loss is not None)

    @property
    def guessed(self) -> tuple[str, ...]:
        """Square matrices that might be transposed."""
        return tuple(tensor.name for tensor in self.tensors if tensor.is_guessed)

    @property
    def numel(self) -> int:
        """Elements of all tensors that are given back."""
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
        """All elements of one of `tensors`, flat and in PyTorch's order, some at a time, read from the file.

        Raises:
            KeyError: there is none of this name.
            ModelReadError: the file cannot be read any more.
        """
        tensor = next((tensor for tensor in self.tensors if tensor.name == name), None)
        if tensor is None:
            raise KeyError(name)
        return Restorer(self.reconciliation.ledger).values(tensor.shape, tensor.dtype, tensor.pieces)
