"""Inputs of a graph's memory plan: its steps, its values, and its kernels' reuse of input memory."""

from __future__ import annotations

from collections.abc import Mapping

from analyzer.records import Frozen, field

Dim = int | str | None
"""Size, name of an axis, or None for an unknown size, which equals nothing."""


class Step(Frozen):
    """Node as the planner sees it; an omitted input or output is an empty name."""

    op_type: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    implicit: tuple[str, ...] = ()
    """Values of this graph that only the node's nested graphs read."""

    name: str = ""

    @property
    def kernel(self) -> tuple[str, str]:
        """Key in tables of kernels."""
        return self.domain, self.op_type


class Value(Frozen):
    """Static knowledge of a value, which decides what memory it may take over."""

    element_nbytes: int
    shape: tuple[Dim, ...] | None
    """Shape from inference without values; None where not even the rank is known."""

    is_tensor: bool = True
    is_string: bool = False
    dtype: int = 0
    """Number of the type in `TensorProto.DataType`; 0 where it is not known."""

    @property
    def room(self) -> tuple[int, tuple[Dim, ...]] | None:
        """Element size in bytes and shape, as the planner compares them; None where the value fits no buffer."""
        if self.is_string or not self.is_tensor or self.shape is None:
            return None
        if any(dim is None or dim == "" for dim in self.shape):
            return None
        return self.element_nbytes, self.shape

    def fits(self, other: Value) -> bool:
        """Whether the planner knows that both values take the same number of bytes."""
        room = self.room
        return room is not None and room == other.room


class Program(Frozen):
    """Graph with its nodes in file order."""

    steps: tuple[Step, ...]
    values: Mapping[str, Value]
    inputs: tuple[str, ...]
    initializers: frozenset[str]
    outputs: tuple[str, ...]


class Reuses(Frozen):
    """Reuse of input memory by the kernels of one version of onnxruntime, as (input, output) pairs.

    Aliases always pass the memory itself on; in-place kernels take over an input's memory if nobody else reads it, and
    it fits.
    """

    aliases: Mapping[tuple[str, str], tuple[tuple[int, int], ...]] = field(default_factory=dict)
    in_place: Mapping[tuple[str, str], tuple[tuple[int, int], ...]] = field(default_factory=dict)
