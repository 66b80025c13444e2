"""What PyTorch keeps on disk -> PyTorch's side of a comparison, with its values where they are at hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from analyzer.manifest import Manifest
from analyzer.model.content import Array
from analyzer.records import Frozen

__all__ = ["Original", "Trace", "Weights"]


class Weights(Protocol):
    """The values of PyTorch's tensors, where a checkpoint or a module is at hand.

    Implementations: `analyzer.checkpoints.checkpoint.MappedWeights` and `exporter.census.TensorWeights`.
    """

    def array(self, name: str) -> Array | None:
        """All elements of a tensor by any of its names, in PyTorch's shape; None where it has none.

        Little-endian, dtype as `DType.to_numpy()` has it (bfloat16 and float8 are those of ml_dtypes). Mapped, not
        read, where the file allows it; not to be written to.
        """
        ...


Trace = Callable[[Manifest, Sequence[tuple[str, tuple[int | None, ...]]], str], Manifest]
"""The manifest, names and shapes of a file's inputs (None of an axis that is free), what picks sampled positions -> the
manifest with the program's values at these shapes."""


class Original(Frozen):
    """PyTorch's side: what there is, and its values if they are at hand."""

    manifest: Manifest
    weights: Weights | None = None
    notes: tuple[str, ...] = ()
    """What a person must know of how it was read, a sentence each: names that the class does not know, guesses."""
    trace: Trace | None = None
    """Adds what its program computes of no input, where a class is at hand; it takes seconds, and is asked for what
    nothing else explains."""
