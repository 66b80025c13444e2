"""Attributes: their scalars and lists by protobuf, tensors and graphs in them by their place only."""

from __future__ import annotations

import pytest
from encoding import UNKNOWN_FIELDS, block, integer, varint
from memory import MemoryFile
from onnx import AttributeProto, TensorProto, helper

from analyzer.dtypes import DType
from analyzer.errors import ModelReadError
from analyzer.read.attributes import (
    BIG,
    GRAPH,
    GRAPHS,
    SPARSE,
    SPARSES,
    TENSOR,
    TENSORS_OF,
    Attribute,
    read_attribute,
)
from analyzer.read.wire import Window

TENSOR_CONTENT = TensorProto(dims=[2], data_type=1, raw_data=bytes(8)).SerializeToString()
LONG = [block(13, "x" * BIG), b""]
"""A note that makes the attribute longer than what is handed to protobuf as it stands, or none."""


def attribute_of(content: bytes | AttributeProto) -> Attribute:
    written = content if isinstance(content, bytes) else content.SerializeToString()
    window = Window(MemoryFile(block(5, written)))
    (place,) = window.fields(0, len(block(5, written)))
    return read_attribute(window, place)


@pytest.mark.parametrize("note", LONG, ids=["long", "short"])
@pytest.mark.parametrize(
    ("content", "dtype", "numel", "nbytes", "is_scalar"),
    [
        (helper.make_attribute("a", 300), DType.INT64, 1, 2, True),
        (helper.make_attribute("a", -1), DType.INT64, 1, 10, True),
        (helper.make_attribute("a", 1.5), DType.FLOAT, 1, 4, True),
        (helper.make_attribute("a", "text"), DType.STRING, 1, 4, True),
        (helper.make_attribute("a", [1, 127, 128]), DType.INT64, 3, 4, False),
        (helper.make_attribute("a", [1.5] * 2000), DType.FLOAT, 2000, 8000, False),
        (helper.make_attribute("a", [7] * 5000), DType.INT64, 5000, 5000, False),
        (helper.make_attribute("a", ["ab", "", "c"]), DType.STRING, 3, 3, False),
    ],
)
def test_lists_and_scalars_are_counted_with_the_bytes_of_their_elements(
    content, dtype, numel, nbytes, is_scalar, note
):
    attribute = attribute_of(content.SerializeToString() + note)

    assert attribute.listed == (dtype, numel, nbytes)
    assert (attribute.name, attribute.is_scalar) == ("a", is_scalar)
    assert (attribute.messages, attribute.unknown) == ({}, 0)


@pytest.mark.parametrize("kind", [AttributeProto.FLOATS, AttributeProto.INTS, AttributeProto.STRINGS])
def test_list_of_nothing_has_no_elements(kind):
    assert attribute_of(AttributeProto(name="a", type=kind)).listed[1:] == (0, 0)


def test_list_without_a_type_is_known_by_what_it_holds():
    """`type` came with IR 2."""
    assert attribute_of(AttributeProto(name="a", floats=[1, 2])).listed == (DType.FLOAT, 2, 8)


@pytest.mark.parametrize("number", [TENSOR, GRAPH, TENSORS_OF, GRAPHS, SPARSE, SPARSES])
@pytest.mark.parametrize("note", LONG, ids=["long", "short"])
@pytest.mark.parametrize("times", [1, 2])
def test_tensors_and_graphs_are_located_and_not_parsed(number, note, times):
    content = block(1, "a") + block(number, TENSOR_CONTENT) * times + note + integer(20, 4)

    attribute = attribute_of(content)

    places = attribute.messages[number]
    assert [place.end - place.start for place in places] == [len(TENSOR_CONTENT)] * times
    assert (attribute.name, attribute.proto.type, attribute.unknown) == ("a", 4, 0)
    assert not attribute.proto.HasField("t")
    assert not attribute.proto.tensors


@pytest.mark.parametrize("nbytes", [BIG, BIG + 1, 1 << 22])
def test_long_text_is_counted_and_not_read(nbytes):
    """What a device was given, compiled, may be as large as the model."""
    written = block(1, "ep_cache_context") + block(4, b"\xff" * nbytes) + integer(20, AttributeProto.STRING)
    file = MemoryFile(block(5, written))
    window = Window(file)
    (place,) = window.fields(0, file.nbytes)

    attribute = read_attribute(window, place)

    assert attribute.listed == (DType.STRING, 1, nbytes)
    assert (attribute.name, attribute.is_scalar, attribute.unknown) == ("ep_cache_context", True, 0)
    assert len(attribute.proto.s) == (nbytes if nbytes == BIG else 0)
    assert sum(length for _, length in file.reads) <= 4 * file.step


@pytest.mark.parametrize("sizes", [(BIG + 1, 3), (3, BIG + 1), (BIG + 2, BIG + 1), (BIG + 1, 0)])
def test_of_several_texts_the_last_holds(sizes):
    texts = b"".join(block(4, "x" * size) for size in sizes)

    assert attribute_of(texts + integer(20, AttributeProto.STRING)).listed == (DType.STRING, 1, sizes[-1])


def test_text_beside_a_list_is_no_part_of_it():
    content = block(4, "x" * (BIG + 1)) + block(9, "ab") + integer(20, AttributeProto.STRINGS)

    assert attribute_of(content).listed == (DType.STRING, 1, 2)


@pytest.mark.parametrize("note", LONG, ids=["long", "short"])
@pytest.mark.parametrize("order", [1, -1])
def test_list_and_tensor_in_one_attribute_are_both_found(note, order):
    parts = [block(7, bytes(8)), block(TENSOR, TENSOR_CONTENT), note]

    attribute = attribute_of(b"".join(parts[::order]))

    assert attribute.listed == (DType.FLOAT, 2, 8)
    assert list(attribute.messages) == [TENSOR]
    assert not attribute.proto.HasField("t")


@pytest.mark.parametrize("unknown", UNKNOWN_FIELDS)
@pytest.mark.parametrize("note", LONG, ids=["long", "short"])
@pytest.mark.parametrize(
    "content", [integer(3, 7) + integer(20, 2), block(7, bytes(8)), block(TENSOR, TENSOR_CONTENT)]
)
def test_unknown_fields_are_counted_to_the_byte(unknown, note, content):
    assert attribute_of(block(1, "a") + content + unknown + note).unknown == len(unknown)


def test_unknown_fields_of_a_tensor_inside_are_not_the_attributes():
    assert attribute_of(block(TENSOR, TENSOR_CONTENT + integer(999, 1))).unknown == 0


def test_kind_that_the_format_does_not_define_is_an_unknown_field():
    assert attribute_of(block(1, "a") + integer(20, 77)).unknown == len(integer(20, 77))


def test_graph_deeper_than_protobuf_reads_is_located():
    graph = b""
    for _ in range(60):
        graph = block(1, block(5, block(GRAPH, graph)))

    attribute = attribute_of(block(1, "body") + block(GRAPH, graph) + integer(20, 5))

    assert (attribute.name, len(attribute.messages[GRAPH])) == ("body", 1)


@pytest.mark.parametrize("note", LONG, ids=["long", "short"])
@pytest.mark.parametrize("content", [block(7, bytes(5)), block(8, b"\x80")], ids=["cut float", "cut number"])
def test_list_that_is_broken_is_refused_by_its_place(content, note):
    with pytest.raises(ModelReadError, match="no protobuf message at byte 0: an attribute that is none"):
        attribute_of(block(1, "a") + note + content + integer(20, 6))


def test_numbers_with_more_bytes_than_they_need_are_counted_as_they_would_be_written():
    assert attribute_of(block(8, varint(1, longer=5), varint(2))).listed == (DType.INT64, 2, 2)
