"""What the plan of a graph is made from: its steps, its values, and what a kernel may do with its inputs' memory."""

from __future__ import annotations

from collections.abc import Mapping

from analyzer.records import Frozen, field

Dim = int | str | None
"""A size, the name of an axis, or what nobody knows, which is equal to nothing."""


class Step(Frozen):
    """A node, as far as memory goes: an input or output that is left out is an empty name."""

    op_type: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    implicit: tuple[str, ...] = ()
    """Values of this graph that only its nested graphs read."""

    name: str = ""

    @property
    def kernel(self) -> tuple[str, str]:
        """What tables are asked by."""
        return self.domain, self.op_type


class Value(Frozen):
    """A value: what onnxruntime knows of it before it runs, which decides what memory it may take over."""

    element_nbytes: int
    shape: tuple[Dim, ...] | None
    """As inference without values gives it; None where not even the rank is known."""

    is_tensor: bool = True
    is_string: bool = False
    dtype: int = 0
    """Its number in `TensorProto.DataType`; 0 where nobody says it."""

    @property
    def room(self) -> tuple[int, tuple[Dim, ...]] | None:
        """What the planner knows of the bytes that it takes, as it compares them; None where it fits nothing."""
        if self.is_string or not self.is_tensor or self.shape is None:
            return None
        if any(dim is None or dim == "" for dim in self.shape):
            return None
        return self.element_nbytes, self.shape

    def fits(self, other: Value) -> bool:
        """Whether the planner knows that both take the same number of bytes."""
        room = self.room
        return room is not None and room == other.room


class Program(Frozen):
    """A graph in the order of its nodes in the file."""

    steps: tuple[Step, ...]
    values: Mapping[str, Value]
    inputs: tuple[str, ...]
    initializers: frozenset[str]
    outputs: tuple[str, ...]


class Reuses(Frozen):
    """What the kernels of one version of onnxruntime do with the memory of their inputs: (input, output) pairs.

    Aliases give on the memory itself; in-place kernels take that of an input which nobody else reads, if it fits.
    """

    aliases: Mapping[tuple[str, str], tuple[tuple[int, int], ...]] = field(default_factory=dict)
    in_place: Mapping[tuple[str, str], tuple[tuple[int, int], ...]] = field(default_factory=dict)
