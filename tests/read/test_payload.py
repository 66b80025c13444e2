"""Payloads: elements equal numpy's in every encoding, and no more bytes are read than requested."""

from __future__ import annotations

import random
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from any_model import NUMERIC, PACKED, array_of, elements, stored_as
from encoding import Ways, block, integer, key, rewrite, varint
from memory import MemoryFile, read_memory
from models import external, ramp, save, text_model
from onnx import TensorProto, helper, numpy_helper

import analyzer.read.payload as payload_module
from analyzer.errors import ModelReadError
from analyzer.model import NoPayload, StoredTensor
from analyzer.model.content import SAMPLES, sample, sample_positions
from analyzer.model.dtypes import DType
from analyzer.read import read_model
from analyzer.read.payload import read_together

LISTED = [dtype for dtype in NUMERIC if dtype.bits != 6]
"""Types whose elements have a typed list in TensorProto."""

_INITIALIZER, _GRAPH = 5, 7


def tensor_of(content: onnx.TensorProto | bytes, **files: bytes) -> StoredTensor:
    """Return the only initializer of a model after reading; external data is in `files`."""
    written = content if isinstance(content, bytes) else content.SerializeToString()
    whole = integer(1, 10) + block(_GRAPH, block(_INITIALIZER, written))
    siblings = {name.replace("_", "."): data for name, data in files.items()}
    (tensor,) = read_memory(MemoryFile(whole, siblings=siblings)).tensors()
    return tensor


def written(proto: onnx.TensorProto, **ways: Any) -> bytes:
    return rewrite(proto, Ways(random.Random(5), overlong=False, shuffled=False, repeated=False, **ways))


def assert_same(found: Any, expected: Any) -> None:
    """Assert equality to the bit: NaN equals NaN, and zero differs from minus zero."""
    assert found is not None
    assert (found.dtype, found.shape, found.tobytes()) == (expected.dtype, expected.shape, expected.tobytes())


# every type in every encoding


@pytest.mark.parametrize("dtype", LISTED)
@pytest.mark.parametrize("shape", [(), (0,), (5,), (2, 3), (3, 0, 2)])
def test_raw_elements_are_those_of_onnxs_own_reader(dtype, shape):
    proto = stored_as("raw", "w", dtype, list(shape), 3)

    tensor = tensor_of(proto)

    assert tensor.nbytes == dtype.nbytes(int(np.prod(shape)))
    assert_same(tensor.payload.array(), array_of(proto))


@pytest.mark.parametrize("dtype", LISTED)
@pytest.mark.parametrize("shape", [(), (0,), (5,), (2, 3)])
@pytest.mark.parametrize("lists", ["packed", "unpacked"])
def test_typed_lists_are_the_same_elements_as_raw_bytes(dtype, shape, lists):
    raw = stored_as("raw", "w", dtype, list(shape), 3)
    listed = stored_as("listed", "w", dtype, list(shape), 3)

    found = tensor_of(written(listed, lists=lists)).payload.array()

    assert_same(found, array_of(listed))
    assert_same(found, array_of(raw))


@pytest.mark.parametrize("dtype", LISTED)
@pytest.mark.parametrize("offset", [0, 1, 4097])
def test_external_elements_are_read_at_any_offset(dtype, offset):
    content = elements(dtype, 6, 3)
    proto = external("w", [2, 3], dtype, location="w.bin", offset=offset)

    tensor = tensor_of(proto, w_bin=bytes(offset) + content + b"beyond")

    assert tensor.nbytes == len(content)
    assert_same(tensor.payload.array(), array_of(stored_as("raw", "w", dtype, [2, 3], 3)))


@pytest.mark.parametrize("dtype", NUMERIC)
@pytest.mark.parametrize("carrier", ["raw", "listed"])
def test_sparse_values_are_counted_and_not_returned(dtype, carrier):
    values = stored_as(carrier, "w", dtype, [3], 3)
    indices = numpy_helper.from_array(np.array([0, 4, 19], "i8"), "at")
    graph = onnx.GraphProto()
    graph.sparse_initializer.add(values=values, indices=indices, dims=[4, 5])

    (tensor,) = read_memory(MemoryFile(onnx.ModelProto(graph=graph).SerializeToString())).tensors()

    alone = tensor_of(values)
    assert (tensor.dtype, tensor.shape, tensor.numel) == (dtype, (4, 5), 3)
    assert tensor.nbytes == alone.nbytes + 24
    assert isinstance(tensor.payload, NoPayload)  # no array


@pytest.mark.parametrize("dtype", [DType.FLOAT6E2M3, DType.FLOAT6E3M2])
def test_elements_of_six_bits_are_counted_and_not_returned(dtype):
    tensor = tensor_of(stored_as("raw", "w", dtype, [5], 3))

    assert (tensor.numel, tensor.nbytes) == (5, 4)
    assert tensor.payload.array() is None


@pytest.mark.parametrize(
    ("data_type", "element", "values"),
    [
        (TensorProto.FLOAT, "f4", [1.5, -2.0]),
        (TensorProto.DOUBLE, "f8", [1.5, -2.0]),
        (TensorProto.INT64, "i8", [1, -(2**63)]),
        (TensorProto.INT32, "i4", [1, -(2**31)]),
        (TensorProto.INT16, "i2", [1, -2]),
        (TensorProto.INT8, "i1", [1, -128]),
        (TensorProto.UINT8, "u1", [1, 255]),
        (TensorProto.UINT16, "u2", [1, 65535]),
        (TensorProto.UINT32, "u4", [1, 2**32 - 1]),
        (TensorProto.UINT64, "u8", [1, 2**64 - 1]),
        (TensorProto.BOOL, "?", [True, False]),
        (TensorProto.FLOAT16, "f2", [1.5, -2.0]),
        (TensorProto.BFLOAT16, ml_dtypes.bfloat16, [1.5, -2.0]),
        (TensorProto.FLOAT8E4M3FN, ml_dtypes.float8_e4m3fn, [1.5, -2.0]),
        (TensorProto.FLOAT8E4M3FNUZ, ml_dtypes.float8_e4m3fnuz, [1.5, -2.0]),
        (TensorProto.FLOAT8E5M2, ml_dtypes.float8_e5m2, [1.5, -2.0]),
        (TensorProto.FLOAT8E5M2FNUZ, ml_dtypes.float8_e5m2fnuz, [1.5, -2.0]),
        (TensorProto.FLOAT8E8M0, ml_dtypes.float8_e8m0fnu, [1.0, 2.0]),
        (TensorProto.COMPLEX64, "c8", [1.5 - 2j, 3j]),
        (TensorProto.COMPLEX128, "c16", [1.5 - 2j, 3j]),
    ],
)
def test_values_of_every_type_are_what_was_put_in(data_type, element, values):
    found = tensor_of(helper.make_tensor("w", data_type, [2], values)).payload.array()

    assert found is not None
    assert found.dtype == np.dtype(element)
    assert found.tolist() == values


@pytest.mark.parametrize(
    ("data_type", "values", "codes"),
    [
        (TensorProto.UINT4, [1, 15, 3], [1, 15, 3]),
        (TensorProto.INT4, [1, -1, -8], [1, 15, 8]),
        (TensorProto.UINT2, [1, 3, 2, 0, 1], [1, 3, 2, 0, 1]),
        (TensorProto.INT2, [1, -1, -2], [1, 3, 2]),
        (TensorProto.FLOAT4E2M1, [0.5, 1.0, -6.0], [1, 2, 15]),
    ],
)
@pytest.mark.parametrize("is_raw", [False, True])
def test_packed_elements_are_unpacked_to_codes(data_type, values, codes, is_raw):
    proto = helper.make_tensor("w", data_type, [len(values)], values)
    if is_raw:
        packed = np.array(proto.int32_data).astype(np.uint8).tobytes()
        proto = helper.make_tensor("w", data_type, [len(values)], packed, raw=True)

    found = tensor_of(proto).payload.array()

    assert found is not None
    assert (found.dtype, found.tolist()) == (np.uint8, codes)


def test_there_is_a_packed_type_for_each_code_width():
    assert {dtype.bits for dtype in PACKED} == {2, 4}


@pytest.mark.parametrize(("shape", "values"), [([2], [b"a", b"b"]), ([0], []), ([], [b"one"])])
def test_strings_are_not_read(shape, values):
    payload = tensor_of(TensorProto(dims=shape, data_type=DType.STRING, string_data=values)).payload

    assert payload.array() is None
    assert payload.sample() is None
    assert payload.at(np.arange(1)) is None


@pytest.mark.parametrize(
    "proto",
    [
        TensorProto(dims=[3], data_type=DType.FLOAT, float_data=[1, 2]),
        TensorProto(dims=[3], data_type=DType.FLOAT, raw_data=bytes(11)),
        TensorProto(dims=[3], data_type=DType.INT4, raw_data=bytes(1)),
        TensorProto(dims=[3], data_type=DType.INT64, int64_data=[1, 2, 3, 4]),
        TensorProto(dims=[3], data_type=DType.INT64, int32_data=[1, 2, 3]),
        TensorProto(dims=[3], data_type=DType.FLOAT, double_data=[1, 2, 3]),
        TensorProto(dims=[3], data_type=DType.BOOL),
    ],
    ids=["list", "raw", "packed", "longer list", "another list", "wider list", "nothing"],
)
def test_elements_that_do_not_fit_the_shape_are_not_read(proto):
    payload = tensor_of(proto).payload

    assert payload.array() is None
    assert payload.sample() is None
    assert payload.at(np.arange(3)) is None
    assert list(payload.parts()) == []
    assert read_together([payload]) == [None]


# encodings of a list


def test_list_in_several_packed_parts_is_one_list():
    proto = TensorProto(dims=[5], data_type=DType.INT64)
    parts = [block(7, varint(1), varint(300)), block(7), block(7, varint(-1)), block(7, varint(4), varint(5))]

    tensor = tensor_of(proto.SerializeToString() + b"".join(parts))

    assert tensor.payload.array().tolist() == [1, 300, -1, 4, 5]
    assert tensor.nbytes == 1 + 2 + 10 + 1 + 1


def test_numbers_of_a_list_may_have_more_bytes_than_they_need():
    proto = TensorProto(dims=[3], data_type=DType.INT32)
    longer = block(5, varint(1, longer=4), varint(2), varint(-3))

    tensor = tensor_of(proto.SerializeToString() + longer)

    assert (tensor.payload.array().tolist(), tensor.nbytes) == ([1, 2, -3], 5 + 1 + 10)


def test_list_with_a_key_for_each_element_may_have_other_fields_between():
    content = integer(1, 3) + integer(2, DType.INT64) + integer(7, 1) + block(8, "w") + integer(7, 2)

    tensor = tensor_of(content + block(12, "note") + integer(7, -3))

    assert tensor.name == "w"
    assert (tensor.payload.array().tolist(), tensor.nbytes) == ([1, 2, -3], 1 + 1 + 10)


def test_raw_data_twice_is_the_last():
    content = (
        TensorProto(dims=[2], data_type=DType.UINT8).SerializeToString() + block(9, b"ab") + block(9, b"cd")
    )

    tensor = tensor_of(content)

    assert (tensor.payload.array().tobytes(), tensor.nbytes) == (b"cd", 2)


def test_float_list_with_a_key_for_each_element_is_read():
    content = integer(1, 2) + integer(2, DType.FLOAT)
    content += b"".join(key(4, 5) + np.float32(value).tobytes() for value in (1.5, -2))

    assert tensor_of(content).payload.array().tolist() == [1.5, -2.0]


@pytest.mark.parametrize(
    ("proto", "nbytes"),
    [
        (TensorProto(dims=[5], data_type=DType.UINT8, raw_data=b"12345"), 5),
        (TensorProto(dims=[3], data_type=DType.FLOAT, float_data=[1, 2, 3]), 12),
        (TensorProto(dims=[2], data_type=DType.DOUBLE, double_data=[1, 2]), 16),
        (TensorProto(dims=[4], data_type=DType.INT64, int64_data=[0, 127, 128, 16384]), 1 + 1 + 2 + 3),
        (TensorProto(dims=[1], data_type=DType.INT64, int64_data=[-1]), 10),
        (TensorProto(dims=[2], data_type=DType.INT32, int32_data=[-1, 300]), 10 + 2),
        (TensorProto(dims=[1], data_type=DType.UINT64, uint64_data=[2**64 - 1]), 10),
        (TensorProto(dims=[3], data_type=DType.STRING, string_data=[b"ab", b"", b"c"]), 3),
        (TensorProto(), 0),
    ],
)
def test_stored_bytes_are_those_of_the_encoding(proto, nbytes):
    assert tensor_of(proto).nbytes == nbytes


@pytest.mark.parametrize("power", [6, 7, 13, 14, 20, 21, 55, 56, 62])
def test_numbers_of_a_list_grow_by_a_byte_every_seven_bits(power):
    def nbytes(number: int) -> int:
        return tensor_of(TensorProto(dims=[1], data_type=DType.INT64, int64_data=[number])).nbytes

    assert nbytes(2**power) == power // 7 + 1
    assert nbytes(2**power - 1) == max(1, -(-power // 7))


def test_list_with_a_key_for_each_element_in_both_pieces_of_a_tensor_is_one_list():
    pieces = [integer(1, 3) + integer(2, DType.INT64) + integer(7, 1) + integer(7, 2), integer(7, 3)]
    attribute = block(1, "value") + block(5, pieces[0]) + block(5, pieces[1]) + integer(20, 4)
    node = block(2, "c") + block(4, "Constant") + block(5, attribute)

    (tensor,) = read_memory(MemoryFile(block(_GRAPH, block(1, node)))).tensors()

    assert tensor.payload.array().tolist() == [1, 2, 3]


def test_list_that_is_packed_in_part_is_one_list():
    content = integer(1, 3) + integer(2, DType.INT64) + integer(7, 1) + block(7, varint(2), varint(3))

    assert tensor_of(content).payload.array().tolist() == [1, 2, 3]


# lists of attributes


@pytest.mark.parametrize(
    ("attribute", "expected"),
    [
        ("value_ints = [1, -2, 300]", np.array([1, -2, 300], "i8")),
        ("value_floats = [1.5, -2.5]", np.array([1.5, -2.5], "f4")),
        ("value_int = -7", np.array(-7, "i8")),
        ("value_float = 1.5", np.array(1.5, "f4")),
    ],
)
def test_lists_and_scalars_of_a_constant_have_the_tensors_shape(tmp_path, attribute, expected):
    path = save(tmp_path, text_model(f"g () => (float[2] c) {{ c = Constant<{attribute}>() }}"))

    (tensor,) = read_model(path).tensors()

    assert_same(tensor.payload.array(), expected)
    assert_same(tensor.payload.sample(), expected.reshape(-1))
    assert_same(tensor.payload.at(np.array([0])), expected.reshape(-1)[:1])
    assert tensor.shape == expected.shape


def test_list_of_no_elements_is_empty():
    attribute = helper.make_attribute("value_ints", [], attr_type=onnx.AttributeProto.INTS)
    node = onnx.NodeProto(op_type="Constant", output=["c"], attribute=[attribute])
    graph = onnx.GraphProto(node=[node])

    (tensor,) = read_memory(MemoryFile(onnx.ModelProto(graph=graph).SerializeToString())).tensors()

    assert (tensor.numel, tensor.payload.array().tolist()) == (0, [])


def test_long_list_of_a_classical_operator_is_read_again_when_it_is_wanted():
    numbers = [float(index) for index in range(5000)]
    node = helper.make_node("Scaler", ["x"], ["y"], domain="ai.onnx.ml", scale=numbers)

    (tensor,) = read_memory(
        MemoryFile(onnx.ModelProto(graph=onnx.GraphProto(node=[node])).SerializeToString())
    ).tensors()

    assert tensor.payload.array().tolist() == numbers
    assert tensor.payload.sample().tolist() == sample_positions(5000).tolist()


def test_list_of_strings_is_counted_and_not_read(tmp_path):
    path = save(tmp_path, text_model('g () => (string[2] c) { c = Constant<value_strings = ["a", "bc"]>() }'))

    (tensor,) = read_model(path).tensors()

    assert (tensor.numel, tensor.nbytes, tensor.payload.array()) == (2, 3, None)
    assert tensor.payload.sample() is None
    assert tensor.payload.at(np.array([0])) is None


# samples


@pytest.mark.parametrize("dtype", LISTED)
@pytest.mark.parametrize("carrier", ["raw", "listed", "external"])
@pytest.mark.parametrize("numel", [0, 5, 64, 65, 9000])
def test_samples_and_single_elements_are_those_of_the_whole(dtype, carrier, numel):
    outside = bytearray(b"begin")
    proto = stored_as(carrier, "w", dtype, [numel], 3, outside)

    payload = tensor_of(proto, w_bin=bytes(outside)).payload

    whole = payload.array()
    positions = np.arange(numel)[:: -max(1, numel // 40)]
    assert_same(payload.sample(), sample(whole))
    assert_same(payload.at(positions), whole[positions])


def test_sample_of_a_large_tensor_reads_nothing_but_the_samples():
    proto = numpy_helper.from_array(ramp(300, 400), "w")
    source = MemoryFile(onnx.ModelProto(graph=onnx.GraphProto(initializer=[proto])).SerializeToString())
    (tensor,) = read_memory(source).tensors()
    source.reads.clear()

    found = tensor.payload.sample()

    assert found.tolist() == ramp(300, 400).reshape(-1)[sample_positions(120_000)].tolist()
    assert (len(source.reads), {length for _, length in source.reads}) == (SAMPLES, {4})


@pytest.mark.parametrize(("dtype", "bits"), [(TensorProto.INT4, 4), (TensorProto.UINT2, 2)])
def test_sample_of_a_large_packed_tensor_reads_nothing_but_the_bytes_that_hold_it(dtype, bits):
    packed = np.random.default_rng(1).integers(0, 256, 480_000 * bits // 8, dtype="u1")
    proto = TensorProto(name="w", dims=[600, 800], data_type=dtype, raw_data=packed.tobytes())
    source = MemoryFile(onnx.ModelProto(graph=onnx.GraphProto(initializer=[proto])).SerializeToString())
    (tensor,) = read_memory(source).tensors()
    whole = tensor.payload.array()
    source.reads.clear()

    found = tensor.payload.sample()

    assert_same(found, sample(whole))
    assert (len(source.reads), {length for _, length in source.reads}) == (SAMPLES, {1})


def test_elements_at_given_positions_are_read_alone():
    proto = numpy_helper.from_array(ramp(300, 400), "w")
    source = MemoryFile(onnx.ModelProto(graph=onnx.GraphProto(initializer=[proto])).SerializeToString())
    (tensor,) = read_memory(source).tensors()
    source.reads.clear()

    assert tensor.payload.at(np.array([119_999, 0, 7])).tolist() == [120_000, 1, 8]
    assert sum(length for _, length in source.reads) == 12


def test_many_elements_of_a_small_tensor_are_read_at_once():
    proto = numpy_helper.from_array(ramp(30, 40), "w")
    source = MemoryFile(onnx.ModelProto(graph=onnx.GraphProto(initializer=[proto])).SerializeToString())
    (tensor,) = read_memory(source).tensors()
    source.reads.clear()

    found = tensor.payload.at(np.arange(1199, -1, -7))

    assert found.tolist() == list(range(1200, 0, -7))
    assert [length for _, length in source.reads] == [4 * 1200]


def test_many_tensors_read_together_are_what_each_is_alone():
    outside = bytearray()
    protos = [
        stored_as(carrier, f"{dtype.name}.{carrier}", dtype, [2, 3], int(dtype), outside)
        for dtype in NUMERIC
        for carrier in ("raw", "listed", "external")
    ]
    model = onnx.ModelProto(graph=onnx.GraphProto(initializer=protos))
    source = MemoryFile(model.SerializeToString(), siblings={"w.bin": bytes(outside)})
    payloads = [tensor.payload for tensor in read_memory(source).tensors()]

    for found, payload in zip(read_together(payloads), payloads, strict=True):
        alone = payload.array()
        assert (found is None) == (alone is None)
        if alone is not None:
            assert_same(found, alone)


def test_large_local_payload_is_mapped_and_not_copied(tmp_path):
    path = save(tmp_path, text_model("g () => (float[1] w) { }", {"w": ramp(300, 400)}))

    array = next(read_model(path).tensors()).payload.array()

    assert not array.flags.owndata
    assert not array.flags.writeable
    np.testing.assert_array_equal(array, ramp(300, 400))


@pytest.mark.parametrize("shape", [(3,), (200, 200)])
def test_payload_of_a_file_that_changed_since_is_an_error(tmp_path, shape):
    path = save(tmp_path, text_model("g () => (float[1] w) { }", {"w": ramp(*shape)}))
    payload = next(read_model(path).tensors()).payload
    path.write_bytes(path.read_bytes() + b"\0")

    for read in (
        payload.array,
        payload.sample,
        lambda: payload.at(np.array([0])),
        lambda: list(payload.parts()),
        lambda: read_together([payload]),
    ):
        with pytest.raises(ModelReadError, match="changed while it was read"):
            read()


@pytest.mark.parametrize("dtype", NUMERIC)
@pytest.mark.parametrize("carrier", ["raw", "listed", "external"])
@pytest.mark.parametrize("numel", [0, 5, 100])
def test_parts_are_the_whole_in_pieces(monkeypatch, dtype, carrier, numel):
    monkeypatch.setattr(payload_module, "_PART", 64)
    outside = bytearray(b"begin")
    proto = stored_as(carrier, "w", dtype, [numel], 3, outside)
    payload = tensor_of(proto, w_bin=bytes(outside)).payload

    parts = list(payload.parts())

    whole = payload.array()
    if whole is None:
        assert parts == []
    else:
        assert b"".join(part.tobytes() for part in parts) == whole.tobytes()
        assert {part.ndim for part in parts} <= {1}


def test_external_tensor_of_no_elements_is_empty():
    payload = tensor_of(external("w", [0, 3], location="w.bin"), w_bin=b"").payload

    assert payload.array().shape == (0, 3)
    assert payload.sample().shape == (0,)


def test_more_dimensions_than_numpy_has_are_counted_and_not_returned():
    tensor = tensor_of(TensorProto(dims=[1] * 80, data_type=DType.UINT8, raw_data=b"1"))

    assert (tensor.numel, tensor.nbytes) == (1, 1)
    assert tensor.payload.array() is None
