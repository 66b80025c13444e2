"""NodeProto -> Node, the tensors that it carries, and the positions of the graphs nested in it.

For an attribute, scalars and lists are read; tensors, graphs and a long text are only located.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from google.protobuf.message import DecodeError, Message

from analyzer.errors import ModelReadError
from analyzer.model import NOTHING, Carrier, GraphPath, Node, Payload, Setting, StoredTensor
from analyzer.model.dtypes import DType
from analyzer.model.ranges import Source
from analyzer.read.book import (
    FUNCTIONS,
    NAMES,
    NODE_METADATA,
    NODES,
    UNKNOWN,
    Book,
    Names,
    shown,
    unique_label,
)
from analyzer.read.payload import ListPayload, StringsPayload
from analyzer.read.protos import AttributeProto, StringStringEntryProto
from analyzer.read.tensors import read_sparse, read_tensor
from analyzer.read.wire import LENGTH, BrokenMessageError, Field, Window, varint
from analyzer.records import Frozen, Mutable, field

# attributes

BIG = 1 << 12
"""Most bytes of a message that protobuf parses whole."""

_MOST = 1 << 31
"""Most bytes of a message that protobuf can read."""

_TEXT_FIELD = 4
TENSOR, GRAPH, TENSORS_OF, GRAPHS, SPARSE, SPARSES = 5, 6, 10, 11, 22, 23
_MESSAGES = frozenset({TENSOR, GRAPH, TENSORS_OF, GRAPHS, SPARSE, SPARSES})
_LIST_FIELDS = frozenset({7, 8, 9})
"""floats, ints, strings."""

_KIND_FIELDS = AttributeProto

_make_node = partial(tuple.__new__, Node)
"""Constructor that is quicker than `Node`, because all fields are given."""


class Attribute(Frozen):
    """One attribute of a node."""

    place: Field
    name: str | bytes
    proto: AttributeProto
    """Its message without tensors, graphs and a long text."""
    messages: dict[int, list[Field]] = field(default_factory=dict)
    """Positions of its tensors and graphs, by field number."""
    unknown: int = 0
    """Bytes of fields that the format does not define."""
    text: Field | None = None
    """Position of its text if that is long, such as a model compiled for a device."""

    @property
    def listed(self) -> tuple[DType, int, int]:
        """dtype, number of elements and encoded bytes of a list or a scalar; strings are counted, but not kept."""
        proto = self.proto
        if proto.floats or proto.type in (_KIND_FIELDS.FLOATS, _KIND_FIELDS.FLOAT):
            count = 1 if proto.type == _KIND_FIELDS.FLOAT else len(proto.floats)
            return DType.FLOAT, count, 4 * count
        if proto.ints or proto.type in (_KIND_FIELDS.INTS, _KIND_FIELDS.INT):
            ints = [proto.i] if proto.type == _KIND_FIELDS.INT else proto.ints
            return DType.INT64, len(ints), sum(_varint_nbytes(number) for number in ints)
        if self.text is not None and proto.type == _KIND_FIELDS.STRING:
            return DType.STRING, 1, self.text.end - self.text.start
        texts = [proto.s] if proto.type == _KIND_FIELDS.STRING else proto.strings
        return DType.STRING, len(texts), sum(len(text) for text in texts)

    @property
    def is_scalar(self) -> bool:
        """Whether it holds one number or text and no list."""
        return self.proto.type in (_KIND_FIELDS.INT, _KIND_FIELDS.FLOAT, _KIND_FIELDS.STRING)


def setting_of(attribute: Attribute) -> Setting | None:
    """Return an attribute's value for `analyzer.model.Node.settings`; None if it holds only tensors and graphs."""
    proto = attribute.proto
    if proto.ref_attr_name:
        return f"@{proto.ref_attr_name}"
    if attribute.text is not None:
        return f"text:{attribute.text.end - attribute.text.start}"
    if proto.type == _KIND_FIELDS.FLOAT:
        return proto.f
    if proto.type == _KIND_FIELDS.STRING:
        return proto.s.decode("utf-8", "backslashreplace")
    if proto.type == _KIND_FIELDS.INT:
        return proto.i
    if attribute.place.end - attribute.place.start > BIG:
        content = proto.SerializeToString(deterministic=True)
        return f"sha256:{hashlib.sha256(content).hexdigest()}" if attribute.listed[1] else None
    if proto.type == _KIND_FIELDS.STRINGS or proto.strings:
        return tuple(text.decode("utf-8", "backslashreplace") for text in proto.strings)
    if proto.type == _KIND_FIELDS.FLOATS or proto.floats:
        return tuple(proto.floats)
    return tuple(proto.ints) if proto.type == _KIND_FIELDS.INTS or proto.ints else None


def read_attribute(window: Window, place: Field) -> Attribute:
    """Parse an attribute; tensors, graphs and a long text in it are only located.

    Raises:
        ModelReadError: its bytes are not a message.
    """
    if place.end - place.start <= BIG:
        proto = _parse(window.take(place.start, place.end))
        if proto is not None and not _has_messages(proto):
            return Attribute(place, proto.name, proto, {}, discard_unknown(proto))
    messages: dict[int, list[Field]] = defaultdict(list)
    rest: list[bytes] = []
    text: Field | None = None
    left = _MOST
    for part in window.fields(place.start, place.end):
        if part.number in _MESSAGES and part.wire == LENGTH:
            messages[part.number].append(part)
        elif part.number in _LIST_FIELDS and not messages:
            return _read_list(window, place)
        else:
            left -= part.end - part.at
            if left <= 0:
                raise BrokenMessageError(window.source, place.at, place.end, "an attribute of over 2 GiB")
            if part.number == _TEXT_FIELD and part.wire == LENGTH:  # of several, the last counts
                text = part if part.end - part.start > BIG else None
            if part is not text:
                rest.append(window.take(part.at, part.end))
    proto = _parse(b"".join(rest))
    if proto is None:
        raise BrokenMessageError(window.source, place.at, place.end, "an invalid attribute")
    return Attribute(place, proto.name, proto, dict(messages), discard_unknown(proto), text)


def _read_list(window: Window, place: Field) -> Attribute:
    """Parse a list of numbers or texts by protobuf, which is a hundred times as fast as `Window.fields` at its keys."""
    proto = _parse(window.take(place.start, place.end)) if place.end - place.start < _MOST else None
    if proto is None:
        raise BrokenMessageError(window.source, place.at, place.end, "an invalid attribute")
    messages: dict[int, list[Field]] = defaultdict(list)
    if _has_messages(proto):
        for part in window.fields(place.start, place.end):
            if part.number in _MESSAGES and part.wire == LENGTH:
                messages[part.number].append(part)
        for name in ("t", "g", "sparse_tensor", "tensors", "graphs", "sparse_tensors"):
            proto.ClearField(name)
    return Attribute(place, proto.name, proto, dict(messages), discard_unknown(proto))


def discard_unknown(message: Message) -> int:
    """Drop the fields that the format does not define; return their bytes."""
    before = message.ByteSize()
    message.DiscardUnknownFields()
    return before - message.ByteSize()


def _has_messages(proto: AttributeProto) -> bool:
    return (
        proto.HasField("t")
        or proto.HasField("g")
        or proto.HasField("sparse_tensor")
        or bool(proto.tensors or proto.graphs or proto.sparse_tensors)
    )


def _parse(content: bytes) -> AttributeProto | None:
    """Parse a message; None if protobuf fails, or if it is nested deeper than protobuf reads."""
    try:
        return AttributeProto.FromString(content)
    except DecodeError:
        return None


def _varint_nbytes(number: int) -> int:
    """Return the bytes of an int64 as a varint; a negative one takes ten (protobuf.dev, "Encoding").

    >>> [_varint_nbytes(number) for number in (0, 127, 128, -1)]
    [1, 1, 2, 10]
    """
    return 10 if number < 0 else max(1, (number.bit_length() + 6) // 7)


# nodes

_KEPT_METADATA = frozenset(
    {
        b"namespace",
        b"pkg.torch.onnx.name_scopes",
        b"pkg.torch.onnx.fx_node",
        b"pkg.torch.onnx.original_node_name",
        b"pkg.torch.export.graph_signature.InputSpec.kind",
        b"pkg.onnxscript.optimizer.folded_from",
    }
)
"""Keys that `analyzer.account.scopes` reads; the rest, stack traces above all, is booked and dropped."""

_CONSTANT_LISTS = frozenset(
    {"value_float", "value_floats", "value_int", "value_ints", "value_string", "value_strings"}
)
_ML_DOMAIN = "ai.onnx.ml"
_ATTRIBUTE, _DOC, _METADATA = 5, 6, 9
_MAX_ATTRIBUTES = 1 << 16
_FREE, _PER_OBJECT = 16, 4
"""Number of a node's fields that are not counted, and number of further ones that count as a node, as they take its
memory."""
_LONGEST_STEM = 1 << 10
"""Most characters of a node's name that the names of tensors in its attributes repeat."""
_LONGEST_NOTE = 1 << 16
"""Most bytes of a metadata value that is kept: it is parsed later, which takes hundreds of times as much memory."""
_NAME_FIELDS = frozenset({1, 2, 3})
_TEXT_FIELDS = frozenset({1, 2, 3, 4, 7, 8})
_KNOWN = frozenset(range(1, 11))
"""input, output, name, op_type, attribute, doc_string, domain, overload, metadata_props, device_configurations."""
_INPUT_KEY, _OUTPUT_KEY, _NAME_KEY, _OP_TYPE_KEY, _ATTRIBUTE_KEY, _DOC_KEY, _DOMAIN_KEY, _METADATA_KEY = (
    number << 3 | LENGTH for number in (1, 2, 3, 4, 5, 6, 7, 9)
)
_TEXT_KEYS = frozenset({_INPUT_KEY, _OUTPUT_KEY, _NAME_KEY, _OP_TYPE_KEY, _DOMAIN_KEY})

_Usual = tuple[str, str, str, list[str], list[str], list[Field], dict[str, str], int, int]
"""Operator, domain and name; inputs, outputs, attributes, metadata; bytes of names, and of metadata."""


class Carried(Mutable):
    """Tensors and nested graphs that one graph's nodes hold."""

    tensors: list[StoredTensor] = field(default_factory=list)
    nested: list[tuple[Sequence[Field], GraphPath, int]] = field(default_factory=list)
    """Tuples of the graph's position in the file, its path, and the index of the node that holds it."""


class NodeReader(Mutable):
    """Reader of the nodes of one body, in file order.

    Nodes are parsed here, and only their attributes by protobuf: so every byte of a node is booked on the right
    account, and nodes nested deeper than protobuf reads are read too.
    """

    book: Book
    path: GraphPath
    in_function: bool
    nodes: list[Node] = field(default_factory=list)
    carried: Carried = field(default_factory=Carried)
    _nested: Counter[str] = field(default_factory=Counter)
    _names: str = NAMES
    """Account of the nodes' names; in a function that of the function."""
    _structure: str = NODES
    """Account of all other bytes except metadata."""

    def __post_init__(self) -> None:
        if self.in_function:
            self._names = self._structure = FUNCTIONS

    def read_run(self, first: Field, end: int) -> int:
        """Read the nodes from `first` on that are in memory; return their end."""
        book, nodes = self.book, self.nodes
        window, names, nbytes = book.window, book.names, book.nbytes
        path, make = self.path, _make_node
        if first.end - first.start > BIG:
            book.count()
            self._read_any(first)
            return first.end
        contents = window.run(first, end, BIG)
        book.count(len(contents))
        stop = contents[-1][1]
        content = window.take(first.at, stop)
        letters = content.decode("latin-1")  # ASCII text, as names are, needs no further decoding
        is_ascii = content.isascii()  # then no length takes two bytes
        intern, add_name, add = names.setdefault, names.node_names.append, nodes.append
        at = base = first.at
        names_nbytes = notes_nbytes = others_nbytes = 0
        for start, end in contents:
            if is_ascii:  # most nodes: `_parse_usual` inlined, to save the call
                input_names: list[str] = []
                output_names: list[str] = []
                name = op_type = domain = ""
                offset, closed, others = start - base, end - base, 0
                while offset < closed - 1:
                    key, length = content[offset], content[offset + 1]
                    opened = offset + 2
                    offset = opened + length
                    text = letters[opened:offset]
                    if key == _INPUT_KEY:
                        input_names.append(intern(text, text))
                    elif key == _OUTPUT_KEY:
                        output_names.append(intern(text, text))
                    elif key == _NAME_KEY:
                        name = text
                    elif key == _OP_TYPE_KEY:
                        op_type = intern(text, text)
                        others += 2 + length
                    elif key == _DOMAIN_KEY:
                        domain = intern(text, text)
                        others += 2 + length
                    else:
                        break
                else:
                    if offset == closed and len(input_names) + len(output_names) <= _FREE:
                        add_name(name)
                        node_inputs, node_outputs, number = (
                            tuple(input_names),
                            tuple(output_names),
                            len(nodes),
                        )
                        add(
                            make(
                                (
                                    path,
                                    number,
                                    op_type,
                                    domain,
                                    name,
                                    node_inputs,
                                    node_outputs,
                                    NOTHING,
                                    NOTHING,
                                    "",
                                    NOTHING,
                                )
                            )
                        )
                        names_nbytes += end - start - others
                        others_nbytes += start - at + others
                        at = end
                        continue
            found = _parse_usual(content, letters, start - base, end - base, base, names)
            if found is None:
                self._read_any(next(window.fields(at, end)))
                at = end
                continue
            op_type, domain, name, inputs, outputs, attributes, notes, name_nbytes, note_nbytes = found
            values = len(inputs) + len(outputs)
            if values > _FREE:
                book.count((values - _FREE) // _PER_OBJECT)
            notes_nbytes += note_nbytes
            names_nbytes += name_nbytes
            others_nbytes += end - at - note_nbytes - name_nbytes
            if attributes:
                self._enter(op_type, domain, name, inputs, outputs, attributes, notes)
            else:
                fields = (path, len(nodes), op_type, domain, name, tuple(inputs), tuple(outputs), NOTHING)
                nodes.append(make((*fields, notes or NOTHING, "", NOTHING)))
            at = end
        nbytes[NODE_METADATA] += notes_nbytes
        nbytes[self._names] += names_nbytes
        nbytes[self._structure] += others_nbytes
        return stop

    def _read_any(self, place: Field) -> None:
        """Read one node with any fields."""
        book = self.book
        window, names = book.window, book.names
        texts: dict[int, list[str]] = defaultdict(list)
        attributes: list[Field] = []
        notes: dict[str, str] = {}
        left = place.end - place.at
        for index, part in enumerate(window.fields(place.start, place.end)):
            if index >= _FREE and not index % _PER_OBJECT:
                book.count()
            size = part.end - part.at
            number = part.number if part.wire == LENGTH else 0
            if number in _TEXT_FIELDS:
                texts[number].append(names[window.take_name(part)])
            if number == _ATTRIBUTE:
                attributes.append(part)
                self._check_attributes(len(attributes), place)
            elif number == _METADATA and size <= BIG:
                notes |= _notes_of(window.take(part.start, part.end))
            account = self._account_of(number)
            book.nbytes[account] += size
            left -= size
        book.nbytes[self._structure] += left
        op_type, domain, name, overload = (
            texts[number][-1] if texts[number] else "" for number in (4, 7, 3, 8)
        )
        self._enter(op_type, domain, name, texts[1], texts[2], attributes, notes, overload)

    def _check_attributes(self, count: int, place: Field) -> None:
        if count > _MAX_ATTRIBUTES:
            raise ModelReadError(
                f"{self.book.source.name}: [not-onnx] the node at byte {place.at:,} has more than {_MAX_ATTRIBUTES:,} "
                "attributes, of which operators have a few dozen; the file is corrupt, export it again"
            )

    def _account_of(self, number: int) -> str:
        """Return the account of a field of a node."""
        if number in (_DOC, _METADATA):
            return NODE_METADATA
        if number in _NAME_FIELDS:
            return self._names
        return self._structure if number in _KNOWN else UNKNOWN

    def _enter(
        self,
        op_type: str,
        domain: str,
        name: str,
        inputs: list[str],
        outputs: list[str],
        places: list[Field],
        notes: dict[str, str],
        overload: str = "",
    ) -> None:
        """Make the node, then read the tensors and graphs in its attributes, whose bytes are booked as the node's."""
        integers: dict[str, int] = {}
        settings: dict[str, Setting] = {}
        attributes: list[Attribute] = []
        for place in places:
            attribute = read_attribute(self.book.window, place)
            if attribute.unknown:
                self.book.nbytes[UNKNOWN] += attribute.unknown
                self.book.nbytes[self._structure] -= attribute.unknown
            if attribute.proto.type == AttributeProto.INT and not attribute.proto.ref_attr_name:
                integers[self.book.names[attribute.name]] = attribute.proto.i
            elif (setting := setting_of(attribute)) is not None:
                settings[self.book.names[attribute.name]] = setting
            attributes.append(attribute)
        node = Node(
            self.path,
            len(self.nodes),
            op_type,
            domain,
            name,
            tuple(inputs),
            tuple(outputs),
            integers or NOTHING,
            notes or NOTHING,
            overload,
            settings or NOTHING,
        )
        self.nodes.append(node)
        is_carrier = op_type == "Constant" or domain == _ML_DOMAIN
        for attribute in attributes:
            if is_carrier or attribute.messages:
                self._read_carried(attribute, node)

    def _read_carried(self, attribute: Attribute, node: Node) -> None:
        account = self._structure
        for places in attribute.messages.values():
            self.book.nbytes[account] -= sum(place.end - place.at for place in places)
        self.carried.tensors += carried(self.book, attribute, self.path, node, account)
        stem = f"{shown(node.op_type, 64)}_{node.position}.{shown(self.book.text(attribute.name), 64)}"
        if GRAPH in attribute.messages:
            self._nest(attribute.messages[GRAPH], stem, node)
        for position, place in enumerate(attribute.messages.get(GRAPHS, ())):
            self._nest([place], f"{stem}[{position}]", node)

    def _nest(self, places: Sequence[Field], label: str, node: Node) -> None:
        """Record a nested graph under a path of its own; two attributes of one name are invalid, but are two graphs."""
        self.book.count()
        path = (*self.path, unique_label(label, self._nested))
        self.carried.nested.append((places, path, node.position))


def _parse_usual(
    content: bytes, letters: str, start: int, end: int, base: int, names: Names
) -> _Usual | None:
    """Parse a node that has only the usual fields, in one loop; None for any other or broken node.

    `letters` has a character for each byte of `content`.
    """
    inputs: list[str] = []
    outputs: list[str] = []
    attributes: list[Field] = []
    notes: dict[str, str] = {}
    name = op_type = domain = ""
    name_nbytes, note_nbytes, stop = 0, 0, start
    try:
        while stop < end:
            begin, offset = stop, stop + 2
            key, length = content[begin], content[begin + 1]
            if length >= 0x80:
                length, offset = varint(content, offset - 1)
            stop = offset + length
            if key in _TEXT_KEYS:
                text = letters[offset:stop]
                if key == _NAME_KEY:
                    name = text if text.isascii() else names[content[offset:stop]]
                    names.node_names.append(name)
                    name_nbytes += stop - begin
                    continue
                text = names.setdefault(text, text) if text.isascii() else names[content[offset:stop]]
                if key == _INPUT_KEY:
                    inputs.append(text)
                    name_nbytes += stop - begin
                elif key == _OUTPUT_KEY:
                    outputs.append(text)
                    name_nbytes += stop - begin
                elif key == _OP_TYPE_KEY:
                    op_type = text
                else:
                    domain = text
            elif key == _ATTRIBUTE_KEY:
                attributes.append(Field(_ATTRIBUTE, LENGTH, base + begin, base + offset, base + stop))
            elif key == _METADATA_KEY:
                note_nbytes += stop - begin
                _note(notes, content, offset, stop)
            elif key == _DOC_KEY:
                note_nbytes += stop - begin
            else:
                return None
    except (IndexError, ValueError):
        return None
    return (
        (op_type, domain, name, inputs, outputs, attributes, notes, name_nbytes, note_nbytes)
        if stop == end
        else None
    )


def _note(notes: dict[str, str], content: bytes, offset: int, end: int) -> None:
    """Keep one entry of `metadata_props` (key in field 1, value in field 2) if `analyzer.account.scopes` reads it.

    Raises:
        IndexError, ValueError: the bytes are not such an entry.
    """
    key = value = b""
    while offset < end:
        number, length = content[offset], content[offset + 1]
        offset += 2
        if length >= 0x80:
            length, offset = varint(content, offset - 1)
        if number == 0x0A:
            key = content[offset : offset + length]
        elif number == 0x12:
            value = content[offset : offset + length]
        else:
            raise ValueError("another field")
        offset += length
    if key in _KEPT_METADATA and len(value) <= _LONGEST_NOTE:
        notes[key.decode()] = value.decode("utf-8", "backslashreplace")


def _notes_of(content: bytes) -> dict[str, str]:
    """Return the kept metadata of an entry in any form, parsed by protobuf; empty for a broken one."""
    try:
        entry = StringStringEntryProto.FromString(content)
    except DecodeError:
        return {}
    entry.DiscardUnknownFields()
    return kept_metadata([entry])


def carried(
    book: Book, attribute: Attribute, path: GraphPath, node: Node | None, account: str, owner: str = ""
) -> Iterator[StoredTensor]:
    """Yield the tensors of an attribute booked on `account`: a node's, or, without a node, a default of its `owner`.

    Raises:
        ModelReadError: the bytes of a tensor are not a message.
    """
    messages = attribute.messages
    label = book.text(attribute.name)
    is_constant = node is not None and node.op_type == "Constant" and node.domain in ("", "ai.onnx")
    position = None if node is None else node.position
    if node is None:
        name = f"{owner}.{shown(label, _LONGEST_STEM)}"
    elif is_constant and node.outputs:
        name = node.outputs[0]
    else:
        stem = shown(node.name or node.op_type, _LONGEST_STEM)
        name = f"{stem}#{node.position}.{shown(label, _LONGEST_STEM)}"
    if attribute.proto.ref_attr_name and not messages:
        # Its value is an attribute of the function's caller, and belongs to that node.
        if account != FUNCTIONS:
            sentence = "takes its value from an attribute of a function, but is outside any function"
            book.unread.append(("undefined-input", (path, name), sentence))
        return
    is_list = node is not None and node.domain == _ML_DOMAIN and _is_list(attribute.proto)
    if is_list or (is_constant and label in _CONSTANT_LISTS):
        carrier = Carrier.CONSTANT_LIST if is_constant else Carrier.ATTRIBUTE_LIST
        tensor = _list(book.source, attribute, path, carrier, name, position)
        book.nbytes[account] -= tensor.nbytes
        yield tensor
    if TENSOR in messages:
        carrier = Carrier.CONSTANT if is_constant else Carrier.ATTRIBUTE_TENSOR
        yield read_tensor(book, messages[TENSOR], path, carrier, name, position)
    if SPARSE in messages:
        carrier = Carrier.SPARSE_CONSTANT if is_constant else Carrier.ATTRIBUTE_TENSOR
        yield read_sparse(book, messages[SPARSE], path, carrier, name, position)
    for number, read in ((TENSORS_OF, read_tensor), (SPARSES, read_sparse)):
        for index, place in enumerate(messages.get(number, ())):
            yield read(book, [place], path, Carrier.ATTRIBUTE_TENSOR, f"{name}[{index}]", position)


def _list(
    source: Source, attribute: Attribute, path: GraphPath, carrier: Carrier, name: str, node: int | None
) -> StoredTensor:
    dtype, count, nbytes = attribute.listed
    start, end = attribute.place.start, attribute.place.end
    payload: Payload = ListPayload(source, start, end, dtype)
    if dtype is DType.STRING:
        payload = StringsPayload(source, ((start, end - start),), is_list=True)
    shape = () if attribute.is_scalar else (count,)
    return StoredTensor(name, path, carrier, dtype, shape, count, nbytes, payload, None, node)


def _is_list(proto: AttributeProto) -> bool:
    return bool(proto.floats or proto.ints or proto.strings)


def kept_metadata(props: Iterable[StringStringEntryProto]) -> dict[str, str]:
    """Return the metadata that `analyzer.account.scopes` reads."""
    notes: dict[str, str] = {}
    for item in props:
        content = item.SerializeToString()
        _note(notes, content, 0, len(content))
    return notes
