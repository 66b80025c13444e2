"""What a file holds, before anything is decided about it: stored tensors, nodes, graphs."""

from __future__ import annotations

import enum
import hashlib
import itertools
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from msgspec.structs import force_setattr

from analyzer.model.content import Array
from analyzer.model.dtypes import DType
from analyzer.model.ranges import Source, Traffic
from analyzer.records import Frozen, aside, field
from analyzer.text import format_many, printable

__all__ = [
    "DEFAULT_DOMAIN",
    "ONNX_DOMAINS",
    "TRAINING",
    "Carrier",
    "Component",
    "Extent",
    "File",
    "Function",
    "Graph",
    "GraphPath",
    "Key",
    "Model",
    "NoPayload",
    "Node",
    "Payload",
    "Place",
    "Setting",
    "StoredTensor",
    "ValueType",
    "Vertex",
    "is_runtime_domain",
    "is_training",
    "label",
]

DEFAULT_DOMAIN = "ai.onnx"
"""What the domain of ONNX's own operators is called, which files may leave empty."""

ONNX_DOMAINS = frozenset(
    {
        "",
        DEFAULT_DOMAIN,
        "ai.onnx.ml",
        "ai.onnx.preview",
        "ai.onnx.preview.training",
        "ai.onnx.training",
    }
)
"""The domains whose operators ONNX itself defines; `ai.onnx.contrib` is onnxruntime-extensions'."""

GraphPath = tuple[str, ...]
"""Where a graph lives: () is the main graph; `("If_3.then_branch",)` a nested graph; `("function:domain:name",)` a
local function. In an artifact of several files each begins with its component: `("decoder_model",)` is that file's main
graph. A label to show and to tell graphs apart, never to take apart: operators may have any name. Names of values are
unique only within one graph."""

Key = tuple[GraphPath, str]
"""What identifies a stored tensor: its graph and its name there."""


Place = tuple[GraphPath, int]
"""What identifies a node: its graph and its position there."""

NOTHING: Mapping[str, Any] = MappingProxyType({})
"""An empty mapping that records share: most nodes have no attributes of interest, and a dict each is 64 bytes."""

Vertex = tuple[Literal["node", "tensor", "input", "output"], GraphPath, int | str]
"""A vertex of `analyzer.graph.build_graph`: what it is, its graph, and its position or name there."""


def label(key: Key) -> str:
    """A tensor's name as findings and reports show it, with its graph where that is not the main one.

    >>> label((("If_3.then_branch",), "w"))
    'If_3.then_branch/w'
    """
    path, name = key
    return "/".join((*path, name))


def is_training(path: GraphPath) -> bool:
    """Whether a graph is one of `training_info`, or nested in one: nothing that a file is served for depends on it."""
    return any(part.startswith(TRAINING) for part in path[:2])


TRAINING = "training:"
"""What the path of a graph of `training_info` begins with; of an artifact, behind the component's name."""


def is_runtime_domain(domain: str) -> bool:
    """Whether a domain's operators are onnxruntime's own.

    >>> is_runtime_domain("com.microsoft.nchwc"), is_runtime_domain("com.microsoftware")
    (True, False)
    """
    return domain == "com.microsoft" or domain.startswith(("com.microsoft.", "com.ms."))


class Carrier(enum.StrEnum):
    """The place in the ONNX format that holds a tensor."""

    INITIALIZER = "initializer"
    """A graph's `initializer` (onnx.proto, GraphProto)."""
    SPARSE_INITIALIZER = "sparse_initializer"
    """A graph's `sparse_initializer`."""
    CONSTANT = "constant"
    """A Constant node's `value`."""
    SPARSE_CONSTANT = "sparse_constant"
    """A Constant node's `sparse_value`."""
    CONSTANT_LIST = "constant_list"
    """A Constant node's `value_int(s)`, `value_float(s)`, `value_string(s)` (ONNX operators, Constant)."""
    ATTRIBUTE_TENSOR = "attribute_tensor"
    """A tensor in an attribute of any other node."""
    ATTRIBUTE_LIST = "attribute_list"
    """A numeric or string list of an `ai.onnx.ml` node: trees, support vectors, coefficients."""


class Payload(Protocol):
    """The elements of one tensor, read only when asked. `analyzer.read.payload` has them in files."""

    def array(self) -> Array | None:
        """All elements in the tensor's shape; None where they are strings, or cannot be had."""
        ...

    def sample(self, salt: str = "") -> Array | None:
        """The elements at `analyzer.model.content.sample_positions`, flat."""
        ...

    def at(self, positions: npt.NDArray[np.int64]) -> Array | None:
        """The elements at these row-major positions, flat."""
        ...

    def parts(self) -> Iterator[Array]:
        """All elements, flat, a few megabytes at a time; nothing where they cannot be had."""
        ...


class NoPayload(Frozen):
    """The elements are no array of numbers, or cannot be had."""

    def digest(self) -> bytes | None:
        """A digest of what is stored, the same for the same content; None where it cannot be had."""
        return None

    def array(self) -> Array | None:
        return None

    def sample(self, salt: str = "") -> Array | None:
        return None

    def at(self, positions: npt.NDArray[np.int64]) -> Array | None:
        return None

    def parts(self) -> Iterator[Array]:
        return iter(())


class Extent(Frozen):
    """A range of one external file, `length` bytes from byte `offset` on, clipped to what the file has."""

    file: str
    """What the file's location resolves to, as in `File.key`."""
    offset: int
    length: int


@aside("payload", "key")
class StoredTensor(Frozen):
    """A tensor that takes room in the file, wherever it is carried."""

    name: str
    """The initializer's name; for a Constant node its output; else the node and the attribute."""
    graph_path: GraphPath
    carrier: Carrier
    dtype: DType
    shape: tuple[int, ...]
    numel: int
    """Stored elements: the product of a dense shape, the stored values of a sparse tensor, a list's length."""
    nbytes: int
    """Bytes of the encoded payload that are on disk; 0 where an external file is missing."""
    payload: Payload
    extent: Extent | None = None
    """Where the bytes are if they are external; None if they are inside the model file."""
    node: int | None = None
    """Position of the node that carries it, where it is no initializer."""
    occurrence: int = 1
    """1 for the first tensor of this name in its graph; a file that repeats the name is invalid, and still counted."""
    key: Key = ((), "")
    """Made of the others, and unique in the file: a repeated name gets its number, as in `w#2`."""

    def __post_init__(self) -> None:
        name = self.name if self.occurrence == 1 else f"{self.name}#{self.occurrence}"
        force_setattr(self, "key", (self.graph_path, name))

    @property
    def logical_nbytes(self) -> int:
        """Bytes that the elements need as such, whatever their encoding; 0 for strings."""
        return self.dtype.nbytes(self.numel)

    @property
    def by_size(self) -> tuple[int, int, Key]:
        """A key that sorts the largest first: the most elements, whether or not their data is there."""
        return -self.numel, -max(self.nbytes, self.logical_nbytes), self.key


Setting = float | str | tuple[float, ...] | tuple[int, ...] | tuple[str, ...]
"""An attribute's value: a number, a text, or a list. Of a list of many kilobytes its digest, `sha256:...`; what a
function's caller gives is `@` and the name of the caller's attribute."""


class Node(NamedTuple):
    """One node, keyed by position: names may be empty or repeated. A tuple, as there are many."""

    graph_path: GraphPath
    position: int
    """Its place among its graph's nodes, from 0."""
    op_type: str
    domain: str
    name: str
    inputs: tuple[str, ...]
    """Value names; an omitted optional input is ""."""
    outputs: tuple[str, ...]
    integers: Mapping[str, int] = NOTHING
    """Its single-integer attributes."""
    metadata: Mapping[str, str] = NOTHING
    """The `metadata_props` that tell where the node comes from (`analyzer.account.scopes` reads them)."""
    overload: str = ""
    """Which of several functions of one name it calls."""
    settings: Mapping[str, Setting] = NOTHING
    """Its other attributes by name, without tensors and graphs."""

    def axes(self, name: str) -> tuple[int, ...]:
        """A list of axes among its attributes; empty where it has none."""
        found = self.settings.get(name, ())
        return tuple(int(axis) for axis in found) if isinstance(found, tuple) else ()

    @property
    def place(self) -> Place:
        return self.graph_path, self.position

    @property
    def is_standard(self) -> bool:
        """Whether the operator is one that ONNX or onnxruntime defines: of any other, a name says nothing."""
        return self.domain in ONNX_DOMAINS or is_runtime_domain(self.domain)


class ValueType(NamedTuple):
    """What a caller has to feed to an input of a main graph, or is given by an output, as far as the file says it."""

    name: str
    kind: str
    """`tensor`, `sparse_tensor`, `sequence`, `optional`, `map`, `opaque`; "" where the file does not say."""
    dtype: DType
    """Of a tensor's elements; `UNDEFINED` for what is no tensor."""
    dims: tuple[int | str | None, ...] | None
    """A size as the file has it, an axis's name, or None for neither; None as a whole where the rank is unknown."""
    each: ValueType | None = None
    """The tensors of a sequence; None of what is no sequence of tensors."""

    @property
    def sizes(self) -> tuple[int | str | None, ...]:
        """The same; an axis that an exporter calls "11" has this size. None of an unknown rank."""
        return tuple(int(dim) if isinstance(dim, str) and dim.isdigit() else dim for dim in self.dims or ())


class Graph(Frozen):
    """The main graph, a nested graph or a function body."""

    path: GraphPath
    inputs: tuple[str, ...]
    """What a caller feeds: without the initializers that are inputs too."""
    outputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    tensors: tuple[StoredTensor, ...]
    parent: Place | None = None
    """The If, Loop or Scan node that holds it, by (graph path, position); None for the main graph and for functions."""
    metadata: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """`value_info[*].metadata_props`, by value name."""
    overridable: tuple[str, ...] = ()
    """Initializers that are inputs too: all of them before IR 4, since then those that a caller may replace."""
    annotations: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """For a value, which tensor is its SCALE_TENSOR, its ZERO_POINT_TENSOR (onnx.proto, TensorAnnotation)."""
    signature: tuple[ValueType, ...] = ()
    """The types of `inputs`, one each, of a main graph; none for nested graphs and functions."""
    results: tuple[ValueType, ...] = ()
    """The same of `outputs`."""
    noted: Mapping[str, ValueType] = field(default_factory=dict)
    """What the file says (`value_info`) of outputs of operators that are not ONNX's own: nothing else tells those."""

    def places(self) -> Iterator[Place]:
        """The places of `nodes`, in their order."""
        return zip(itertools.repeat(self.path), range(len(self.nodes)))

    def __repr__(self) -> str:
        counts = f"{format_many(len(self.tensors), 'tensor')}, {format_many(len(self.nodes), 'node')}"
        return f"<Graph {printable('/'.join(self.path)) or 'main'}: {counts}>"


class Function(Frozen):
    """A local function's identity, and where its body is among the model's graphs."""

    domain: str
    name: str
    overload: str
    path: GraphPath
    opsets: tuple[tuple[str, int], ...] = ()
    """As in `Model`: those of its own, which its nodes are of."""


class File(Frozen):
    """One file of the artifact: its path as it is referred to, and its size on disk, `nbytes` bytes."""

    path: str
    nbytes: int
    key: str = ""
    """What it resolves to, as in `Extent.file`."""


class Component(Frozen):
    """One model file of an artifact, and what its header says: `ir_version`, opsets, producer."""

    name: str
    """As `export.json` names it, else the stem of its file; "" where the model is one file."""
    path: GraphPath
    """Of its main graph: what the paths of all its graphs begin with."""
    files: tuple[str, ...]
    """`File.key` of the model file, then of the external data that it refers to."""
    ir_version: int
    opsets: tuple[tuple[str, int], ...]
    producer: str


@aside("sources")
class Model(Frozen):
    """A model file as read, or several that are one artifact. The model files come first, then their external data."""

    path: str
    """As it was named: a path or a URL; the folder of an artifact of several files."""
    files: tuple[File, ...]
    ir_version: int
    """Of an artifact the highest of its components."""
    opsets: tuple[tuple[str, int], ...]
    """(domain, version) as the file lists them; the default domain is "ai.onnx". Of an artifact the highest version."""
    producer: str
    graphs: tuple[Graph, ...]
    """The main graph first; then nested graphs, training graphs and functions in file order; component by component."""
    functions: tuple[Function, ...] = ()
    structure: tuple[tuple[str, int], ...] = ()
    """(account, bytes) of the model file besides its tensors' elements; with these they sum to its size."""
    unread: tuple[tuple[str, Key, str], ...] = ()
    """What could not be read: (finding id, tensor, sentence)."""
    not_utf8: tuple[str, ...] = ()
    """Names that are no UTF-8, as they were escaped."""
    odd_names: tuple[str, ...] = ()
    """Names with control or invisible characters."""
    traffic: Traffic | None = None
    """None for a local file."""
    sources: Mapping[str, Source] = field(default_factory=dict)
    """The files themselves, by `File.key`."""
    components: tuple[Component, ...] = ()
    """Those of an artifact of several files; none where the model is one file."""
    missing: tuple[str, ...] = ()
    """Locations of external data that is not there, as a path from the model's folder; of one file alone."""

    def __repr__(self) -> str:
        tensors = sum(len(graph.tensors) for graph in self.graphs)
        nodes = sum(len(graph.nodes) for graph in self.graphs)
        counts = f"{format_many(tensors, 'tensor')}, {format_many(nodes, 'node')}"
        return f"<Model {printable(self.path)}: {counts}, {format_many(len(self.graphs), 'graph')}>"

    @property
    def parts(self) -> tuple[Component, ...]:
        """Its model files: the components, or the one file as a component without a name."""
        if self.components:
            return self.components
        keys = tuple(file.key for file in self.files)
        return (Component("", (), keys, self.ir_version, self.opsets, self.producer),)

    @property
    def external(self) -> tuple[File, ...]:
        """Its files without the model files."""
        return self.files[len(self.parts) :]

    def root(self, path: GraphPath) -> GraphPath:
        """The main graph of the component that a graph belongs to."""
        return path[:1] if self.components else ()

    def by_part(self) -> Iterator[tuple[Component, tuple[Graph, ...]]]:
        """Each model file with its graphs, in file order."""
        graphs = itertools.groupby(self.graphs, key=lambda graph: self.root(graph.path))
        found = {root: tuple(group) for root, group in graphs}
        for part in self.parts:
            yield part, found.get(part.path, ())

    @property
    def paths(self) -> tuple[Path, ...]:
        """Where its files are if they are local, as in `files`."""
        return tuple(Path(file.key) for file in self.files if file.key and self.traffic is None)

    @property
    def fixed_inputs(self) -> tuple[tuple[str, tuple[int | None, ...]], ...]:
        """Names and shapes of what a caller feeds, where the rank is known; None of an axis that is free."""
        mains = {part.path for part in self.parts}
        return tuple(
            (each.name, tuple(dim if isinstance(dim, int) else None for dim in each.dims))
            for graph in self.graphs
            if graph.path in mains
            for each in graph.signature
            if each.dims is not None
        )

    @property
    def nested_graphs(self) -> int:
        """Bodies of If, Loop and Scan, at any depth."""
        return sum(1 for graph in self.graphs if graph.parent is not None)

    @property
    def salt(self) -> str:
        """A digest of the structure, wherever its files lie: what picks the elements that stand for a tensor's content.

        Of two files that differ in a name, a shape, an operator or a size, other elements are looked at.
        """
        hasher = hashlib.sha256(repr([file.nbytes for file in self.files]).encode())
        for graph in self.graphs:
            tensors = (f"{tensor.name} {tensor.dtype.name} {tensor.shape}" for tensor in graph.tensors)
            for lines in (
                "/".join(graph.path),
                "\n".join(tensors),
                "\n".join(node.op_type for node in graph.nodes),
            ):
                hasher.update(f"{len(lines)} {lines}".encode(errors="backslashreplace"))
        return hasher.hexdigest()

    @contextmanager
    def kept_open(self) -> Iterator[None]:
        """Read its files, until the block ends, without opening them anew each time; for one thread.

        Raises:
            ModelReadError: one of them was replaced meanwhile.
        """
        with ExitStack() as stack:
            for source in self.sources.values():
                stack.enter_context(source.kept_open())
            yield

    def nodes(self) -> Iterator[Node]:
        for graph in self.graphs:
            yield from graph.nodes

    def places(self) -> Iterator[Place]:
        """The places of `nodes`, in their order: quicker than to ask each."""
        for graph in self.graphs:
            yield from graph.places()

    def numbers(self) -> dict[GraphPath, range]:
        """The numbers of each graph's nodes among all `nodes`."""
        found: dict[GraphPath, range] = {}
        first = 0
        for graph in self.graphs:
            found[graph.path] = range(first, first + len(graph.nodes))
            first += len(graph.nodes)
        return found

    def tensors(self) -> Iterator[StoredTensor]:
        for graph in self.graphs:
            yield from graph.tensors
