"""Stored tensors and manifest records -> how their contents relate, each stored tensor read at most once."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from analyzer.content import (
    Array,
    ContentMode,
    decode_values,
    digest,
    encode_values,
    sample,
    sample_transposed,
)
from analyzer.ledger import Entry
from analyzer.manifest import Buffer, Parameter
from analyzer.model import Key

__all__ = ["ContentMode", "Contents", "Relation"]


class Relation(enum.StrEnum):
    """How a stored content relates to a PyTorch tensor's."""

    SAME = "same"
    TRANSPOSED = "transposed"
    RESHAPED = "reshaped"
    DIFFERENT = "different"
    UNKNOWN = "unknown"
    """Not compared: the mode forbids it, or one side has no content that can be read."""


@dataclass(frozen=True, slots=True)
class _Print:
    """What is kept of a stored content: its digest or its samples, by mode."""

    straight: str
    turned: str | None
    """Samples of the transpose; in full mode the manifest has the transpose's digest instead."""


@dataclass
class Contents:
    """Fingerprints of stored tensors, taken when first asked for."""

    mode: ContentMode
    progress: Callable[[int, int], None] | None = None
    total_nbytes: int = 0
    _prints: dict[Key, _Print | None] = field(default_factory=dict)
    _done: int = 0

    @property
    def evidence(self) -> str:
        """What an equality found here is called in `decided_by`."""
        return "sampled" if self.mode == "sampled" else "content"

    def compares(self, tensor: Parameter | Buffer) -> bool:
        """Whether contents of `tensor` are compared at all: by the mode, and because PyTorch's side has them."""
        return self.mode != "none" and tensor.content is not None

    def relation(self, entry: Entry, tensor: Parameter | Buffer) -> Relation:
        """How `entry`'s content relates to `tensor`'s; sampled contents are equal where they were looked at."""
        if tensor.content is None or not self.compares(tensor):
            return Relation.UNKNOWN
        stored = entry.tensor
        if stored.dtype is not tensor.dtype or stored.numel != tensor.numel:
            return Relation.DIFFERENT
        found = self._print(entry)
        if found is None:
            return Relation.UNKNOWN
        content = tensor.content
        if found.straight == (content.digest if self.mode == "full" else content.samples):
            return Relation.SAME if stored.shape == tensor.shape else Relation.RESHAPED
        if len(stored.shape) == 2 and stored.shape == tensor.shape[::-1]:
            is_transpose = (
                found.straight == content.digest_transposed
                if self.mode == "full"
                else found.turned == content.samples
            )
            if is_transpose:
                return Relation.TRANSPOSED
        return Relation.DIFFERENT

    def fingerprints(self, entry: Entry) -> tuple[str, ...]:
        """What to look up among the manifest's digests or samples, straight first."""
        found = None if self.mode == "none" else self._print(entry)
        return () if found is None else tuple(filter(None, (found.straight, found.turned)))

    def error(self, entry: Entry, tensor: Parameter | Buffer) -> float | None:
        """Largest absolute difference at the sampled positions, in the orientation of equal shapes."""
        element = tensor.dtype.to_numpy()
        array = entry.tensor.payload.array()
        if self.mode == "none" or tensor.content is None or element is None or array is None:
            return None
        if array.size != tensor.numel or array.dtype.kind in "bOSU":
            return None
        mine = sample(array)
        if array.ndim == 2 and array.shape == tensor.shape[::-1] and array.shape != tensor.shape:
            mine = sample_transposed(array)
        theirs = decode_values(tensor.content.samples, element)
        difference = np.abs(mine.astype(np.float64) - theirs.astype(np.float64))
        largest = float(difference.max()) if difference.size else 0.0
        return largest if np.isfinite(largest) else None  # NaN or Inf on one side: not a distance

    def _print(self, entry: Entry) -> _Print | None:
        key = entry.tensor.key
        if key not in self._prints:
            array = entry.tensor.payload.array()
            self._prints[key] = None if array is None else self._take(array)
            self._done += entry.tensor.nbytes
            if self.progress is not None:
                self.progress(self._done, self.total_nbytes)
        return self._prints[key]

    def _take(self, array: Array) -> _Print:
        if self.mode == "full":
            return _Print(digest(array), None)
        turned = encode_values(sample_transposed(array)) if array.ndim == 2 else None
        return _Print(encode_values(sample(array)), turned)
