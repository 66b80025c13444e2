"""Manifest and weights -> what is known of a PyTorch tensor's values: all of them, or the evidence in the manifest."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from analyzer.content import (
    SAMPLES,
    Array,
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
from analyzer.dtypes import DType
from analyzer.manifest import Buffer, Manifest, Parameter

if TYPE_CHECKING:
    from analyzer.checkpoints.weights import Weights

__all__ = ["Originals"]

Vector = npt.NDArray[np.float64]


@dataclass
class Originals:
    """PyTorch's side: each question is answered from the values where they are at hand, else from the manifest."""

    manifest: Manifest
    weights: Weights | None = None
    salt: str = ""
    """What picked the elements that the manifest has, or picks them among the values at hand."""
    _samples: dict[str, Array | None] = field(default_factory=dict)
    _constant: dict[str, bool] = field(default_factory=dict)
    _rows: dict[tuple[str, DType], npt.NDArray[np.uint64] | None] = field(default_factory=dict)
    _by_name: dict[str, Parameter | Buffer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._by_name = {name: tensor for tensor in self.manifest.tensors for name in tensor.names}

    @property
    def has_content(self) -> bool:
        return self.weights is not None or self.manifest.has_content

    def named(self, name: str | None) -> Parameter | Buffer | None:
        return None if name is None else self._by_name.get(name)

    def values(self, tensor: Parameter | Buffer) -> Array | None:
        """All elements in PyTorch's shape; of a manifest only those of small tensors."""
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

    def vector(self, name: str | None) -> Vector | None:
        """A small tensor by name, as float64."""
        tensor = self.named(name)
        found = None if tensor is None else self.values(tensor)
        return None if found is None else found.astype(np.float64)

    def has(self, tensor: Parameter | Buffer) -> bool:
        """Whether anything is known of its values."""
        return self.samples(tensor) is not None

    def positions(self, numel: int) -> npt.NDArray[np.int64]:
        """Where in a tensor of so many elements those of `samples` stand, row-major."""
        return sample_positions(numel, self.salt)

    def samples(self, tensor: Parameter | Buffer) -> Array | None:
        """The elements at `positions`; None where nothing is known."""
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
        """Whether all elements are the same; where nothing is known, they may be."""
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
        """Of the elements cast to another floating-point type, as `analyzer.content.cast_digest` takes it."""
        if tensor.content is not None and dtype.name in tensor.content.casts:
            return tensor.content.casts[dtype.name]
        values = self.values(tensor)
        return None if values is None else cast_digest(values, dtype)

    def row_digests(self, tensor: Parameter | Buffer) -> npt.NDArray[np.uint64] | None:
        """Of each row along the last axis."""
        text = tensor.row_digests if isinstance(tensor, Parameter) else None
        if text is not None:
            return decode_values(text, np.dtype("<u8")).astype(np.uint64)
        return self.cast_row_digests(tensor, tensor.dtype)

    def cast_row_digests(self, tensor: Parameter | Buffer, dtype: DType) -> npt.NDArray[np.uint64] | None:
        """Of each row in another type, in the form that `analyzer.content.rounded` gives; kept for the next entry."""
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

    def channel_statistics(self, tensor: Parameter) -> tuple[Vector, Vector] | None:
        """Projection and norm of each output channel."""
        if tensor.channel_projections is not None and tensor.channel_norms is not None:
            both = (tensor.channel_projections, tensor.channel_norms)
            first, second = (decode_values(text, np.dtype("<f8")).astype(np.float64) for text in both)
            return first, second
        values = self.values(tensor) if tensor.shape else None
        return None if values is None or not values.size else channel_statistics(values)
