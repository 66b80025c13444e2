"""Content of an ONNX file -> records of it, without any judgement: stored tensors, nodes, graphs."""

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
from analyzer.records import Frozen, exclude_fields, field
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
"""Name of the domain of ONNX's own operators; files may leave it empty."""

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
"""Domains whose operators ONNX itself defines; `ai.onnx.contrib` belongs to onnxruntime-extensions."""

GraphPath = tuple[str, ...]
"""Path of a graph: () is the main graph, `("If_3.then_branch",)` a nested graph, `("function:domain:name",)` a local
function. In an artifact of several files each path begins with its component: `("decoder_model",)` is the main graph of
that file. The path is a label: it is shown and compared, but never parsed, because an operator may have any name. Value
names are unique only within one graph."""

Key = tuple[GraphPath, str]
"""Identity of a stored tensor: its graph and its name there."""


Place = tuple[GraphPath, int]
"""Identity of a node: its graph and its position there."""

NOTHING: Mapping[str, Any] = MappingProxyType({})
"""Empty mapping that records share: most nodes have no attributes of interest, and a dict for each takes 64 bytes."""

Vertex = tuple[Literal["node", "tensor", "input", "output"], GraphPath, int | str]
"""Vertex of `analyzer.graph.build_graph`: its kind, its graph, and its position or name there."""


def label(key: Key) -> str:
    """Return a tensor's name as findings and reports show it, with its graph unless that is the main graph.

    >>> label((("If_3.then_branch",), "w"))
    'If_3.then_branch/w'
    """
    path, name = key
    return "/".join((*path, name))


def is_training(path: GraphPath) -> bool:
    """Whether a graph belongs to `training_info` or is nested in such a graph: inference never depends on it."""
    return any(part.startswith(TRAINING) for part in path[:2])


TRAINING = "training:"
"""Prefix of the path of a `training_info` graph; in an artifact of several files it follows the component's name."""


def is_runtime_domain(domain: str) -> bool:
    """Whether a domain's operators are onnxruntime's own.

    >>> is_runtime_domain("com.microsoft.nchwc"), is_runtime_domain("com.microsoftware")
    (True, False)
    """
    return domain == "com.microsoft" or domain.startswith(("com.microsoft.", "com.ms."))


class Carrier(enum.StrEnum):
    """Place in the ONNX format that holds a tensor."""

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
    """A tensor in an attribute of any other node, or in a default value of a function's attribute."""
    ATTRIBUTE_LIST = "attribute_list"
    """A numeric or string list of an `ai.onnx.ml` node: trees, support vectors, coefficients."""


class Payload(Protocol):
    """Elements of one tensor, read on demand. `analyzer.read.payload` implements it for files."""

    def array(self) -> Array | None:
        """Return all elements in the tensor's shape; None if they are strings or not available."""
        ...

    def sample(self, salt: str = "") -> Array | None:
        """Return the elements at `analyzer.model.content.sample_positions`, flat."""
        ...

    def at(self, positions: npt.NDArray[np.int64]) -> Array | None:
        """Return the elements at these row-major positions, flat."""
        ...

    def parts(self) -> Iterator[Array]:
        """Yield all elements, flat, a few megabytes at a time; nothing if they are not available."""
        ...


class NoPayload(Frozen):
    """Payload whose elements are not an array of numbers, or not available."""

    def digest(self) -> bytes | None:
        """Return a digest of the stored content, the same for equal content; None if it is not available."""
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
    """Range of one external file: `length` bytes from byte `offset` on, clipped to the size of the file."""

    file: str
    """Resolved location of the file, as in `File.key`."""
    offset: int
    length: int


@exclude_fields("payload", "key")
class StoredTensor(Frozen):
    """Tensor that takes space in the file, in any carrier."""

    name: str
    """Name of the initializer, or of a Constant node's output; for other carriers the node and the attribute."""
    graph_path: GraphPath
    carrier: Carrier
    dtype: DType
    shape: tuple[int, ...]
    numel: int
    """Number of stored elements: the product of a dense shape, the stored values of a sparse tensor, or a list's
    length."""
    nbytes: int
    """Bytes of the encoded payload on disk; 0 if its external file is missing."""
    payload: Payload
    extent: Extent | None = None
    """Location of the bytes if they are external; None if they are inside the model file."""
    node: int | None = None
    """Position of the node that carries the tensor; None for an initializer or a function's default value."""
    occurrence: int = 1
    """1 for the first tensor of this name in its graph. A file that repeats the name is invalid, but is still counted.
    """
    key: Key = ((), "")
    """Derived from the other fields, and unique in the file: a repeated name gets its number, as in `w#2`."""

    def __post_init__(self) -> None:
        name = self.name if self.occurrence == 1 else f"{self.name}#{self.occurrence}"
        force_setattr(self, "key", (self.graph_path, name))

    @property
    def logical_nbytes(self) -> int:
        """Bytes that the elements need in their type, whatever their encoding; 0 for strings."""
        return self.dtype.nbytes(self.numel)

    @property
    def by_size(self) -> tuple[int, int, Key]:
        """Sort key that puts the tensor with the most elements first, whether or not its data is available."""
        return -self.numel, -max(self.nbytes, self.logical_nbytes), self.key


Setting = float | str | tuple[float, ...] | tuple[int, ...] | tuple[str, ...]
"""Value of an attribute: a number, a text, or a list. A list over 4 KiB is replaced by its digest, `sha256:...`, and a
text over 4 KiB by its length, `text:...`. A reference to an attribute of the function's caller is `@` and its name."""


class Node(NamedTuple):
    """One node, identified by position, because names may be empty or repeated. A tuple, as there are many."""

    graph_path: GraphPath
    position: int
    """Position among its graph's nodes, from 0."""
    op_type: str
    domain: str
    name: str
    inputs: tuple[str, ...]
    """Names of the input values; an omitted optional input is ""."""
    outputs: tuple[str, ...]
    integers: Mapping[str, int] = NOTHING
    """Attributes that are a single integer."""
    metadata: Mapping[str, str] = NOTHING
    """The `metadata_props` that record where the node comes from (`analyzer.account.scopes` reads them)."""
    overload: str = ""
    """Overload of the function that the node calls, among functions of one name."""
    settings: Mapping[str, Setting] = NOTHING
    """The other attributes by name, without tensors and graphs."""

    def axes(self, name: str) -> tuple[int, ...]:
        """Return an attribute that is a list of axes; empty if the node does not have it."""
        found = self.settings.get(name, ())
        return tuple(int(axis) for axis in found) if isinstance(found, tuple) else ()

    @property
    def place(self) -> Place:
        return self.graph_path, self.position

    @property
    def is_standard(self) -> bool:
        """Whether ONNX or onnxruntime defines the operator; in another domain its name says nothing."""
        return self.domain in ONNX_DOMAINS or is_runtime_domain(self.domain)


class ValueType(NamedTuple):
    """Type of an input or output of a main graph, as far as the file states it."""

    name: str
    kind: str
    """`tensor`, `sparse_tensor`, `sequence`, `optional`, `map`, `opaque`; "" if the file does not say."""
    dtype: DType
    """Type of a tensor's elements; `UNDEFINED` if the value is not a tensor."""
    dims: tuple[int | str | None, ...] | None
    """Per axis its size, its symbolic name, or None if the file gives neither; None as a whole if the rank is unknown.
    """
    each: ValueType | None = None
    """Type of the tensors of a sequence; None if the value is not a sequence of tensors."""

    @property
    def sizes(self) -> tuple[int | str | None, ...]:
        """The same as `dims`, but an axis that an exporter names "11" has size 11; empty if the rank is unknown."""
        return tuple(int(dim) if isinstance(dim, str) and dim.isdigit() else dim for dim in self.dims or ())


class Graph(Frozen):
    """Main graph, nested graph or function body."""

    path: GraphPath
    inputs: tuple[str, ...]
    """Inputs that a caller feeds, without the initializers that are also listed as inputs."""
    outputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    tensors: tuple[StoredTensor, ...]
    parent: Place | None = None
    """The If, Loop or Scan node that holds the graph, as (graph path, position); None for main graphs and functions."""
    metadata: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """`value_info[*].metadata_props`, by value name."""
    overridable: tuple[str, ...] = ()
    """Initializers that are also inputs: all of them before IR 4, and since then only those that a caller may replace.
    """
    annotations: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """For each value, the names of its SCALE_TENSOR and ZERO_POINT_TENSOR (onnx.proto, TensorAnnotation)."""
    signature: tuple[ValueType, ...] = ()
    """Types of `inputs`, one each, for a main graph; empty for nested graphs and functions."""
    results: tuple[ValueType, ...] = ()
    """Types of `outputs`, likewise."""
    noted: Mapping[str, ValueType] = field(default_factory=dict)
    """Types from `value_info` for outputs of operators that ONNX does not define, because nothing else states these."""

    def places(self) -> Iterator[Place]:
        """Return the places of `nodes`, in their order."""
        return zip(itertools.repeat(self.path), range(len(self.nodes)))

    def __repr__(self) -> str:
        counts = f"{format_many(len(self.tensors), 'tensor')}, {format_many(len(self.nodes), 'node')}"
        return f"<Graph {printable('/'.join(self.path)) or 'main'}: {counts}>"


class Function(Frozen):
    """Identity of a local function, and the path of its body among the model's graphs."""

    domain: str
    name: str
    overload: str
    path: GraphPath
    opsets: tuple[tuple[str, int], ...] = ()
    """Opsets that the function itself imports, in the form of `Model.opsets`; its nodes use these."""
    defaults: Mapping[str, Setting] = NOTHING
    """Values of attributes that a call may omit, without tensors and graphs."""


class File(Frozen):
    """One file of the artifact: its path as the model refers to it, and its size on disk, `nbytes` bytes."""

    path: str
    nbytes: int
    key: str = ""
    """Resolved location, as in `Extent.file`."""


class Component(Frozen):
    """One model file of an artifact, with the fields of its header: `ir_version`, opsets, producer."""

    name: str
    """Name in `export.json`, else the stem of the file name; "" if the model is one file."""
    path: GraphPath
    """Path of its main graph, with which the paths of all its graphs begin."""
    files: tuple[str, ...]
    """`File.key` of the model file, then of the external data files to which it refers."""
    ir_version: int
    opsets: tuple[tuple[str, int], ...]
    producer: str


@exclude_fields("sources")
class Model(Frozen):
    """Model read from one file, or from several that form one artifact. Model files come first, then external data."""

    path: str
    """Path or URL as the user gave it; the folder of an artifact of several files."""
    files: tuple[File, ...]
    ir_version: int
    """The highest among the components, if there are several."""
    opsets: tuple[tuple[str, int], ...]
    """(domain, version) as the file lists them; the default domain is "ai.onnx". The highest version among components.
    """
    producer: str
    graphs: tuple[Graph, ...]
    """The main graph first; then nested graphs, training graphs and functions in file order; one component after
    another."""
    functions: tuple[Function, ...] = ()
    structure: tuple[tuple[str, int], ...] = ()
    """(account, bytes) of the model file outside its tensors' elements; together with these they sum to its size."""
    unread: tuple[tuple[str, Key, str], ...] = ()
    """Parts that could not be read: (finding id, tensor, sentence)."""
    not_utf8: tuple[str, ...] = ()
    """Names that are not valid UTF-8, in escaped form."""
    odd_names: tuple[str, ...] = ()
    """Names with control or invisible characters."""
    traffic: Traffic | None = None
    """Requests and bytes of a remote model; None for a local file."""
    sources: Mapping[str, Source] = field(default_factory=dict)
    """Sources of the files, by `File.key`."""
    components: tuple[Component, ...] = ()
    """Components of an artifact of several files; empty if the model is one file."""
    missing: tuple[str, ...] = ()
    """Locations of missing external data, as paths from the model's folder; only for a model of one file."""

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
        """Return the path of the main graph of the component to which a graph belongs."""
        return path[:1] if self.components else ()

    def by_part(self) -> Iterator[tuple[Component, tuple[Graph, ...]]]:
        """Yield each model file with its graphs, in file order."""
        graphs = itertools.groupby(self.graphs, key=lambda graph: self.root(graph.path))
        found = {root: tuple(group) for root, group in graphs}
        for part in self.parts:
            yield part, found.get(part.path, ())

    @property
    def paths(self) -> tuple[Path, ...]:
        """Paths of its files if they are local, in the order of `files`."""
        return tuple(Path(file.key) for file in self.files if file.key and self.traffic is None)

    @property
    def fixed_inputs(self) -> tuple[tuple[str, tuple[int | None, ...]], ...]:
        """Names and shapes of the inputs that a caller feeds, if the rank is known; None for a dynamic axis."""
        main_paths = {part.path for part in self.parts}
        return tuple(
            (each.name, tuple(dim if isinstance(dim, int) else None for dim in each.dims))
            for graph in self.graphs
            if graph.path in main_paths
            for each in graph.signature
            if each.dims is not None
        )

    @property
    def nested_graphs(self) -> int:
        """Number of bodies of If, Loop and Scan, at any depth."""
        return sum(1 for graph in self.graphs if graph.parent is not None)

    @property
    def salt(self) -> str:
        """Digest of the structure, independent of the files' location; it seeds the choice of sampled elements.

        Files that differ in a name, a shape, an operator or a size get different sample positions.
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
        """Keep its files open until the block ends, so that reads do not reopen them; for one thread.

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
        """Yield the places of `nodes`, in their order: quicker than `Node.place` of each."""
        for graph in self.graphs:
            yield from graph.places()

    def numbers(self) -> dict[GraphPath, range]:
        """Return the numbers of each graph's nodes among all `nodes`."""
        found: dict[GraphPath, range] = {}
        first = 0
        for graph in self.graphs:
            found[graph.path] = range(first, first + len(graph.nodes))
            first += len(graph.nodes)
        return found

    def tensors(self) -> Iterator[StoredTensor]:
        for graph in self.graphs:
            yield from graph.tensors
