"""PyTorch tensors -> their sampled elements, stacked by shape, so that one question is asked of all at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from analyzer.content import Array
from analyzer.manifest import Buffer, Parameter
from analyzer.reconciliation.contents import Contents

__all__ = ["Stacks", "Tensor"]

Tensor = Parameter | Buffer


@dataclass
class Stacks:
    """Those of which values are known and that have more than one element."""

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
        """The shapes that tensors of so many elements have."""
        return self._by_numel.get(numel, [])

    @property
    def all_shapes(self) -> Iterable[tuple[int, ...]]:
        return self._by_shape.keys()

    def near(
        self, shape: tuple[int, ...], look: tuple[Array, npt.NDArray[np.float64] | None]
    ) -> list[Tensor]:
        """Tensors of a shape whose samples may be these: equal, rounded, or within a step of each."""
        values, steps = look
        tensors, rows = self.of(shape)
        if values.dtype.kind not in "fiubV":
            return []
        mine = values.astype(np.float64)
        room = steps * 1.01 if steps is not None else np.abs(mine) * 2.0**-6
        with np.errstate(invalid="ignore"):
            near = (np.abs(rows - mine) <= room + 1e-7).all(axis=1)
        return [tensors[number] for number in np.flatnonzero(near)]

    def of(self, shape: tuple[int, ...]) -> tuple[list[Tensor], npt.NDArray[np.float64]]:
        """The tensors of a shape, and their samples (tensors, samples)."""
        tensors = self._by_shape[shape]
        if shape not in self._rows:
            samples = (self.contents.originals.samples(tensor) for tensor in tensors)
            known = [sample.astype(np.float64) for sample in samples if sample is not None]
            self._rows[shape] = np.stack(known)
        return tensors, self._rows[shape]
