"""PyTorch files on disk -> PyTorch's side of a comparison, with its values if they are available."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from analyzer.manifest import Manifest
from analyzer.model.content import Array
from analyzer.records import Frozen

__all__ = ["Original", "Trace", "Weights"]


class Weights(Protocol):
    """Values of PyTorch's tensors, from a checkpoint or a module.

    Implementations: `analyzer.checkpoints.checkpoint.MappedWeights` and `exporter.census.TensorWeights`.
    """

    def array(self, name: str) -> Array | None:
        """Return all elements of a tensor by any of its names, in PyTorch's shape; None where it has none.

        The array is little-endian, of the dtype of `DType.to_numpy()` (bfloat16 and float8 are those of ml_dtypes). It
        is mapped, not read, where the file allows it; callers must not write to it.
        """
        ...


Trace = Callable[[Manifest, Sequence[tuple[str, tuple[int | None, ...]]], str], Manifest]
"""Function of a manifest, names and shapes of a file's inputs (None for a free axis), and the salt of sampled
positions; returns the manifest with the program's values at these shapes."""


class Original(Frozen):
    """PyTorch's side: its description, and its values if they are available."""

    manifest: Manifest
    weights: Weights | None = None
    notes: tuple[str, ...] = ()
    """Remarks for the user on how it was read, a sentence each: names that the class does not know, guesses."""
    trace: Trace | None = None
    """Function that adds the values that its program computes from no input, if a class is available; it takes seconds,
    so it is called only for tensors that nothing else explains."""
