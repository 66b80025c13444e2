"""Messages between the process that runs type inference on a graph and the process that asks for it."""

from __future__ import annotations

import msgspec

Dim = int | str | None

MADE = "\0made"
"""Suffix of a second name of a FLOAT16 value, for the type that follows from its node's inputs alone."""


class DescribeRequest(msgspec.Struct, frozen=True):
    """Request to describe a file."""

    path: str
    """Path of the main file."""

    halves: tuple[str, ...] | None = None
    """Kernels that take FLOAT16, as `kernel_name` names them: an operator without one is expanded if it is a function.
    None expands nothing."""

    functions: tuple[str, ...] = ()
    """ONNX operators without any kernel, which are expanded if `halves` is given."""


class Optimizing(msgspec.Struct, frozen=True):
    """Request to optimize a graph by onnxruntime."""

    path: str
    """Path of the main file."""

    folder: str
    """Path of an empty folder for the output: the graph that onnxruntime would run is written there as
    `optimized.onnx`."""

    level: str
    """Name of a member of `onnxruntime.GraphOptimizationLevel`."""


class DescribedValue(msgspec.Struct, frozen=True):
    """Type of a value."""

    dtype: int
    """Element type as a number of `TensorProto.DataType`; 0 if unknown."""

    dims: tuple[Dim, ...] | None
    """Per axis a size, a name from the file, or None; None as a whole if the rank is unknown."""

    is_tensor: bool = True


class DescribedTensor(msgspec.Struct, frozen=True):
    """Stored tensor of the main graph."""

    dtype: int
    dims: tuple[int, ...]
    is_external: bool = False
    is_constant: bool = True
    """Whether no caller may feed another value for it."""


class DescribedNode(msgspec.Struct, frozen=True):
    """Node of the main graph."""

    op_type: str
    domain: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    implicit: tuple[str, ...] = ()
    """Values of the main graph that its nested graphs read, besides its inputs."""

    nested: int = 0
    """Number of nodes in its nested graphs."""

    integers: dict[str, int] = {}
    """Attributes that are a single integer."""

    kernel: str = ""
    """Name of its operator in kernel tables; "" if not requested."""

    variadic: tuple[int | None, int | None] = (None, None)
    """Positions of the variadic input and output; None if there is none."""


class Described(msgspec.Struct, frozen=True):
    """Main graph with its functions expanded."""

    nodes: tuple[DescribedNode, ...]
    inputs: dict[str, DescribedValue]
    outputs: tuple[str, ...]
    values: dict[str, DescribedValue]
    """Type of each value, as far as it is known without axis sizes: as the file states it, and by inference node by
    node."""

    tensors: dict[str, DescribedTensor]
    nested_nbytes: int = 0
    """Bytes of the tensors stored in nested graphs."""

    expanded: int = 0
    """Calls of the file's own functions that were replaced by nodes."""

    why: str = ""
    """Reason why inference failed; `values` then has only the types that the file states."""


class Sizes(msgspec.Struct, frozen=True):
    """Types of all values for given axis sizes."""

    types: dict[str, tuple[int, tuple[Dim, ...]]]
    """Element type as a number of `TensorProto.DataType`, 0 if unknown, and shape."""

    refused: str = ""
    """First node whose inputs do not fit each other at these sizes; empty if there is none."""
