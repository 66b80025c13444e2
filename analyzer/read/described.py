"""What inference says of a graph, as it passes from the process that infers to the one that asked."""

from __future__ import annotations

import msgspec

Dim = int | str | None

MADE = "\0made"
"""Stands behind the name of a value of FLOAT16, for what follows from the inputs of the node that makes it alone."""


class Asked(msgspec.Struct, frozen=True):
    """What is asked of a file."""

    path: str
    """Of the main file."""

    halves: tuple[str, ...] | None = None
    """Kernels that take FLOAT16, as `kernel_name` calls them: without one, an operator that is a function is
    expanded. None expands nothing."""

    functions: tuple[str, ...] = ()
    """Operators of ONNX that have no kernel at all, and are expanded where `halves` is given."""


class Optimizing(msgspec.Struct, frozen=True):
    """What is asked of onnxruntime."""

    path: str
    """Of the main file."""

    folder: str
    """An empty folder, for what it writes: the graph that it would run is left there as `optimized.onnx`."""

    level: str
    """Of `onnxruntime.GraphOptimizationLevel`."""


class DescribedValue(msgspec.Struct, frozen=True):
    """The type of a value."""

    dtype: int
    """Its number in `TensorProto.DataType`; 0 where nothing says it."""

    dims: tuple[Dim, ...] | None
    """A size, an axis that the file names, or None; None where not even the rank is known."""

    is_tensor: bool = True


class DescribedTensor(msgspec.Struct, frozen=True):
    """A stored tensor of the main graph."""

    dtype: int
    dims: tuple[int, ...]
    is_external: bool = False
    is_constant: bool = True
    """Whether nobody may feed another value for it."""


class DescribedNode(msgspec.Struct, frozen=True):
    """A node of the main graph."""

    op_type: str
    domain: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    implicit: tuple[str, ...] = ()
    """What its nested graphs read of the main graph."""

    nested: int = 0
    """How many nodes its nested graphs have."""

    integers: dict[str, int] = {}
    """Attributes that are one integer."""

    kernel: str = ""
    """What tables of kernels call it; "" where that is not asked for."""

    variadic: tuple[int | None, int | None] = (None, None)
    """The input and the output from which on any number may follow."""


class Described(msgspec.Struct, frozen=True):
    """A main graph, its functions expanded."""

    nodes: tuple[DescribedNode, ...]
    inputs: dict[str, DescribedValue]
    outputs: tuple[str, ...]
    values: dict[str, DescribedValue]
    """What is known of each value without values: the file's own word, and inference node by node."""

    tensors: dict[str, DescribedTensor]
    nested_nbytes: int = 0
    """Bytes of the tensors that nested graphs store."""

    expanded: int = 0
    """Calls of the file's own functions, which stand as their nodes now."""

    why: str = ""
    """Why inference failed, where it did: `values` has only the file's own word then."""


class Sizes(msgspec.Struct, frozen=True):
    """The types of all values where the axes have certain sizes."""

    types: dict[str, tuple[int, tuple[Dim, ...]]]
    """The number of the element in `TensorProto.DataType`, 0 where nothing says it; the shape."""

    refused: str = ""
    """The first node whose inputs do not fit each other at these sizes; empty where all do."""
