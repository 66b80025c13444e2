"""GraphProto and FunctionProto in the file -> Graph, and the positions of the graphs nested in them."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from google.protobuf.message import DecodeError

from analyzer.errors import ModelReadError
from analyzer.model import NOTHING, Carrier, Function, Graph, GraphPath, Setting, StoredTensor, ValueType
from analyzer.model.dtypes import DType
from analyzer.read.book import FUNCTIONS, HEADER, METADATA, UNKNOWN, VALUES, Book, shown, unique_label
from analyzer.read.nodes import (
    BIG,
    GRAPH,
    GRAPHS,
    Attribute,
    NodeReader,
    carried,
    discard_unknown,
    kept_metadata,
    read_attribute,
    setting_of,
)
from analyzer.read.protos import FunctionProto, GraphProto, TensorShapeProto, TypeProto, ValueInfoProto
from analyzer.read.tensors import read_sparse, read_tensors
from analyzer.read.wire import LENGTH, Field
from analyzer.records import Mutable, field, replace

# types of inputs

MAX_RANK = 64
"""Most dimensions of a numpy array; for an input with more, one more than these is kept."""


def read_type(name: str, proto: TypeProto) -> ValueType:
    """Return the type that the file states for a value of this name."""
    choice = proto.WhichOneof("value") or ""
    kind = choice.removesuffix("_type")
    if kind == "sequence" and proto.sequence_type.elem_type.HasField("tensor_type"):
        each = read_type(name, proto.sequence_type.elem_type)
        return ValueType(name, kind, DType.UNDEFINED, None, each)
    if kind not in ("tensor", "sparse_tensor"):
        return ValueType(name, kind, DType.UNDEFINED, None)
    tensor = proto.tensor_type if kind == "tensor" else proto.sparse_tensor_type
    dims = None
    if tensor.HasField("shape"):
        dims = tuple(_read_dim(dim) for dim in itertools.islice(tensor.shape.dim, MAX_RANK + 1))
    return ValueType(name, kind, DType.from_onnx(tensor.elem_type), dims)


def _read_dim(dim: TensorShapeProto.Dimension) -> int | str | None:
    if dim.HasField("dim_value"):
        return dim.dim_value
    axis: str | bytes = dim.dim_param  # bytes if it is invalid UTF-8
    return (axis if isinstance(axis, str) else axis.decode("utf-8", "backslashreplace")) or None


# graphs and functions

MAX_DEPTH = 100
"""Deepest nesting of graphs that is accepted; protobuf's own parsers refuse nesting deeper than 32."""

_NODE, _INITIALIZER, _INPUT, _OUTPUT, _VALUE_INFO, _ANNOTATION, _SPARSE = 1, 5, 11, 12, 13, 14, 15
_GRAPH_ACCOUNTS = {
    2: HEADER,  # name
    10: METADATA,  # doc_string
    _INPUT: HEADER,
    _OUTPUT: HEADER,
    _VALUE_INFO: VALUES,
    _ANNOTATION: HEADER,
    16: METADATA,  # metadata_props
}
_PARSED = frozenset({_INPUT, _OUTPUT, _VALUE_INFO, _ANNOTATION})

_FUNCTION_NODE, _FUNCTION_DEFAULT, _FUNCTION_VALUE_INFO = 7, 11, 12
_SIGNATURE = frozenset({1, 2, 3, 4, 5, 6, 9, 10, 13})
"""name, since_version, status, input, output, attribute, opset_import, domain, overload."""
_FUNCTION_METADATA = frozenset({8, 14})
"""doc_string, metadata_props."""
_LONGEST_NAME = 1 << 20
_LONGEST_VALUE = 1 << 26
"""Most bytes of one value_info: the value's type, and a text for people."""
_PER_OBJECT = 4
"""Number of value_info entries that take about as much memory as a node; one with properties takes three times as much.
"""

_Kind = TypeVar("_Kind", GraphProto, FunctionProto)


class Pending(NamedTuple):
    """Graph that is still to be read."""

    places: Sequence[Field]
    """Positions of its pieces; protobuf merges a message that occurs several times."""
    path: GraphPath
    parent: tuple[GraphPath, int] | None = None
    in_function: bool = False


def read_graphs(book: Book, pending: Pending) -> Iterator[Graph]:
    """Yield a graph and all graphs below it, each before those nested in it.

    It uses a stack, because the file decides on the depth.

    Raises:
        ModelReadError: the bytes are not a graph, or graphs are nested deeper than `MAX_DEPTH`.
    """
    stack = [pending]
    while stack:
        item = stack.pop()
        _check_depth(book, item.path)
        body = _GraphReader(book, item)
        graph = body.read()
        yield graph
        nested = body.nodes.carried.nested
        stack += [Pending(p, path, (item.path, i), item.in_function) for p, path, i in reversed(nested)]


def _check_depth(book: Book, path: GraphPath) -> None:
    if len(path) > MAX_DEPTH:
        raise ModelReadError(
            f"{book.source.name}: [deep-nesting] graphs nested deeper than {MAX_DEPTH}, which no runtime runs; "
            "export it again"
        )


class _Body(Mutable):
    """Common parts of a graph and a function: nodes, and metadata of the values between them."""

    book: Book
    nodes: NodeReader
    metadata: dict[str, Mapping[str, str]] = field(default_factory=dict)

    def read(self, place: Field, node: int, take: Callable[[Field, int], int]) -> None:
        """Read the fields in file order: nodes (field number `node`) in runs, all others by `take`.

        `take` receives a field and the end of the message, and returns the end of the bytes that it read.
        """
        position = place.start
        while position < place.end:
            for part in self.book.window.fields(position, place.end):
                is_node = part.number == node and part.wire == LENGTH
                position = (self.nodes.read_run if is_node else take)(part, place.end)
                if position != part.end:
                    break  # several fields were read: the next begins elsewhere

    def parse(self, kind: type[_Kind], first: Field, end: int, account: str) -> tuple[_Kind, int]:
        """Parse and book a run of fields like `first`; return the message and the end of the run.

        Raises:
            ModelReadError: they are nested deeper than protobuf reads, or broken.
        """
        window, nbytes = self.book.window, self.book.nbytes
        if first.end - first.at > _LONGEST_VALUE:
            raise _unparsed(self.book, first.at, first.end)
        stop = window.run(first, end, BIG)[-1][1]
        try:
            message = kind.FromString(window.take(first.at, stop))
        except DecodeError as error:
            raise _unparsed(self.book, first.at, stop) from error
        unknown = discard_unknown(message)
        nbytes[UNKNOWN] += unknown
        nbytes[account] += stop - first.at - unknown
        return message, stop

    def note(self, values: Iterable[ValueInfoProto]) -> None:
        """Keep the metadata of values."""
        for value in values:
            if value.metadata_props:
                self.metadata[self.book.text(value.name)] = kept_metadata(value.metadata_props)


class _GraphReader:
    """Reader of one graph, field by field."""

    def __init__(self, book: Book, item: Pending) -> None:
        self.book = book
        self.item = item
        self.nodes = NodeReader(book, item.path, item.in_function)
        self.body = _Body(book, self.nodes)
        self.tensors: list[StoredTensor] = []
        self.inputs: list[str] = []
        self.types: list[ValueType] = []
        self.outputs: list[str] = []
        self.results: list[ValueType] = []
        self.noted: dict[str, ValueType] = {}
        self.custom: set[str] = set()
        self.seen = 0
        self.notes = 0
        """Value_info entries that are not counted yet."""
        self.annotations: dict[str, Mapping[str, str]] = {}

    def read(self) -> Graph:
        for place in self.item.places:
            self.book.nbytes[FUNCTIONS if self.item.in_function else HEADER] += place.start - place.at
            self.body.read(place, _NODE, self._take)
        initialized = {tensor.name for tensor in self.tensors}
        return Graph(
            path=self.item.path,
            inputs=tuple(name for name in self.inputs if name not in initialized),
            outputs=tuple(self.outputs),
            nodes=tuple(self.nodes.nodes),
            tensors=number_names([*self.tensors, *self.nodes.carried.tensors]),
            parent=self.item.parent,
            metadata=self.body.metadata,
            overridable=tuple(name for name in self.inputs if name in initialized),
            annotations=self.annotations,
            signature=tuple(value for value in self.types if value.name not in initialized),
            results=tuple(self.results),
            noted=self.noted,
        )

    def _take(self, part: Field, end: int) -> int:
        number, book = part.number, self.book
        if part.wire != LENGTH:
            book.field(UNKNOWN, part)
        elif number == _INITIALIZER:
            return read_tensors(book, part, end, self.item.path, self.tensors)
        elif number == _SPARSE:
            self.tensors.append(read_sparse(book, [part], self.item.path, Carrier.SPARSE_INITIALIZER))
        elif number in _PARSED:
            message, stop = self.body.parse(GraphProto, part, end, _GRAPH_ACCOUNTS[number])
            self._keep(message)
            return stop
        else:
            book.field(_GRAPH_ACCOUNTS.get(number, UNKNOWN), part)
        return part.end

    def _keep(self, message: GraphProto) -> None:
        text = self.book.text
        self.inputs += [text(value.name) for value in message.input]
        if self.item.parent is None and not self.item.in_function:
            self.types += [read_type(text(value.name), value.type) for value in message.input]
            self.results += [read_type(text(value.name), value.type) for value in message.output]
        self.outputs += [text(value.name) for value in message.output]
        for values in (message.value_info, message.input, message.output):
            self.body.note(values)
        self._note_types([*message.value_info, *message.output])
        self.book.count(len(message.input) + len(message.output))
        large = sum(1 for value in message.value_info if value.metadata_props)
        objects, self.notes = divmod(self.notes + len(message.value_info) + 2 * large, _PER_OBJECT)
        self.book.count(objects)
        self.book.count(len(message.quantization_annotation))
        for annotation in message.quantization_annotation:
            roles = {text(e.key): text(e.value) for e in annotation.quant_parameter_tensor_names}
            self.annotations[text(annotation.tensor_name)] = roles

    def _note_types(self, values: Sequence[ValueInfoProto]) -> None:
        """Keep the stated types of custom operators' outputs; writers put nodes before value_info."""
        for node in self.nodes.nodes[self.seen :]:
            if not node.is_standard:
                self.custom.update(filter(None, node.outputs))
        self.seen = len(self.nodes.nodes)
        if self.custom:
            text = self.book.text
            kept = [(name, value) for value in values if (name := text(value.name)) in self.custom]
            self.book.count(len(kept))
            self.noted |= {name: read_type(name, value.type) for name, value in kept}


class _FunctionReader:
    """Reader of one local function, field by field."""

    def __init__(self, book: Book, label: str) -> None:
        self.book = book
        self.path = (label,)
        self.nodes = NodeReader(book, self.path, in_function=True)
        self.body = _Body(book, self.nodes)
        self.defaults: list[StoredTensor] = []
        self.settings: dict[str, Setting] = {}
        self.pending: list[Pending] = []

    def read(self, place: Field) -> None:
        self.book.nbytes[FUNCTIONS] += place.start - place.at
        self.body.read(place, _FUNCTION_NODE, self._take)
        for places, nested, index in self.nodes.carried.nested:
            self.pending.append(Pending(places, nested, (self.path, index), in_function=True))

    def _take(self, part: Field, end: int) -> int:
        if part.number == _FUNCTION_VALUE_INFO and part.wire == LENGTH:
            message, stop = self.body.parse(FunctionProto, part, end, VALUES)
            self.body.note(message.value_info)
            return stop
        if part.number == _FUNCTION_DEFAULT and part.wire == LENGTH:
            self._keep_default(read_attribute(self.book.window, part))
        elif part.number in _FUNCTION_METADATA:
            self.book.field(METADATA, part)
        else:
            self.book.field(FUNCTIONS if part.number in _SIGNATURE else UNKNOWN, part)
        return part.end

    def _keep_default(self, attribute: Attribute) -> None:
        """Keep the tensors in the default value of an attribute, and the positions of graphs in it."""
        book, place, messages = self.book, attribute.place, attribute.messages
        setting = setting_of(attribute)
        if setting is not None:
            self.settings[book.text(attribute.name)] = setting
        inside = sum(field.end - field.at for fields in messages.values() for field in fields)
        book.nbytes[UNKNOWN] += attribute.unknown
        book.nbytes[FUNCTIONS] += place.end - place.at - attribute.unknown - inside
        self.defaults.extend(carried(book, attribute, self.path, None, FUNCTIONS, self.path[0]))
        for number in (GRAPH, GRAPHS):
            for places in _group_pieces(messages.get(number, []), number):
                # Numbered together, because two defaults may have one name.
                name = f"default {len(self.pending)}: {shown(book.text(attribute.name))}"
                book.count()
                self.pending.append(Pending(places, (*self.path, name), in_function=True))


def read_function(book: Book, place: Field, taken: Counter[str]) -> tuple[Function, list[Graph]]:
    """Read a local function, and its body with all graphs nested in it. `taken` counts the labels used before.

    Raises:
        ModelReadError: the bytes are not a function.
    """
    signature = _read_signature(book, place)
    text = book.text
    domain, name, overload = map(text, (signature.domain, signature.name, signature.overload))
    label = f"function:{shown(domain)}:{shown(name)}" + (f":{shown(overload)}" if overload else "")
    body = _FunctionReader(book, unique_label(label, taken))  # a repeated function is invalid, but counted
    body.read(place)
    graph = Graph(
        path=body.path,
        inputs=tuple(map(text, signature.input)),
        outputs=tuple(map(text, signature.output)),
        nodes=tuple(body.nodes.nodes),
        tensors=number_names([*body.defaults, *body.nodes.carried.tensors]),
        metadata=body.body.metadata,
    )
    nested = [found for item in body.pending for found in read_graphs(book, item)]
    opsets = tuple((text(each.domain) or "ai.onnx", each.version) for each in signature.opset_import)
    return Function(domain, name, overload, body.path, opsets, body.settings or NOTHING), [graph, *nested]


def _read_signature(book: Book, place: Field) -> FunctionProto:
    """Read the name and the arguments, which may follow the nodes."""
    window = book.window
    header = [
        window.take(part.at, part.end)
        for part in window.fields(place.start, place.end)
        if part.number in _SIGNATURE and part.end - part.at <= _LONGEST_NAME
    ]
    try:
        return FunctionProto.FromString(b"".join(header))
    except DecodeError as error:
        raise _unparsed(book, place.at, place.end) from error


def _group_pieces(places: Sequence[Field], number: int) -> list[Sequence[Field]]:
    """Return one group for each graph of a list; the pieces of a single graph are one group."""
    return [[place] for place in places] if number == GRAPHS else [places] if places else []


def _unparsed(book: Book, start: int, end: int) -> ModelReadError:
    return ModelReadError(
        f"{book.source.name}: [not-onnx] bytes {start:,} to {end:,} are not part of an ONNX graph, or are nested "
        "deeper than protobuf reads; check the download, or export it again"
    )


def number_names(tensors: Sequence[StoredTensor]) -> tuple[StoredTensor, ...]:
    """Return one graph's tensors, with repeated names numbered so that their keys are unique."""
    taken = {tensor.name for tensor in tensors}
    if len(taken) == len(tensors):
        return tuple(tensors)
    seen: dict[str, int] = {}
    numbered = []
    for tensor in tensors:
        occurrence = 1
        if tensor.name in seen:
            start = seen[tensor.name] + 1
            occurrence = next(n for n in itertools.count(start) if f"{tensor.name}#{n}" not in taken)
            taken.add(f"{tensor.name}#{occurrence}")
        seen[tensor.name] = occurrence
        numbered.append(tensor if occurrence == 1 else replace(tensor, occurrence=occurrence))
    return tuple(numbered)
