"""Tensors as stored in the file: type, shape, elements, bytes, and their errors."""

from __future__ import annotations

import cProfile
import os
import pstats
from pathlib import Path

import numpy as np
import onnx
import pytest
from encoding import block, integer, key, varint
from memory import MemoryFile, read_memory
from models import external, raw, save
from onnx import TensorProto, helper, numpy_helper

from analyzer.errors import ModelReadError
from analyzer.model import Carrier, Model, NoPayload, StoredTensor
from analyzer.model.dtypes import DType
from analyzer.read import read_model
from analyzer.read.book import NAMES, ORPHANED, TENSORS, UNKNOWN


def model_of(*tensors: onnx.TensorProto | bytes, sparse: bool = False, **files: bytes) -> Model:
    """Return a model of these initializers alone; `_` stands for the dot in names of files beside it."""
    written = [t if isinstance(t, bytes) else t.SerializeToString() for t in tensors]
    graph = b"".join(block(15 if sparse else 5, content) for content in written)
    siblings = {name.replace("_", "."): data for name, data in files.items()}
    return read_memory(MemoryFile(integer(1, 10) + block(7, graph), siblings=siblings))


def tensor_of(content: onnx.TensorProto | bytes, **options: object) -> StoredTensor:
    (tensor,) = model_of(content, **options).tensors()
    return tensor


def unread(model: Model) -> list[tuple[str, str, str]]:
    """Return (finding, tensor, sentence) of each problem."""
    return [(finding, key[1], sentence) for finding, key, sentence in model.unread]


def with_external(folder: Path, **fields: object) -> Model:
    proto = onnx.ModelProto(graph=onnx.GraphProto(initializer=[external("w", [4], **fields)]))
    return read_model(save(folder, proto))


# shapes and types


@pytest.mark.parametrize(
    ("dtype", "shape", "payload", "nbytes"),
    [
        (DType.FLOAT, (), b"\0" * 4, 4),
        (DType.FLOAT, (0,), b"", 0),
        (DType.FLOAT, (3, 0, 2), b"", 0),
        (DType.INT4, (3,), b"\x21\x03", 2),
        (DType.UINT4, (2, 2), b"\x21\x43", 2),
        (DType.INT2, (5,), b"\x21\x03", 2),
        (DType.BFLOAT16, (3,), b"\0" * 6, 6),
        (DType.FLOAT8E4M3FN, (3,), b"\0" * 3, 3),
        (DType.FLOAT8E5M2FNUZ, (2, 2), b"\0" * 4, 4),
        (DType.FLOAT4E2M1, (5,), b"\0" * 3, 3),
        (DType.FLOAT6E2M3, (5,), b"\0" * 4, 4),
        (DType.BOOL, (2,), b"\0\1", 2),
        (DType.COMPLEX64, (2,), b"\0" * 16, 16),
        (DType.COMPLEX128, (2,), b"\0" * 32, 32),
    ],
)
def test_every_width_and_shape_is_counted_exactly(dtype, shape, payload, nbytes):
    model = model_of(raw("w", list(shape), dtype, payload))

    (tensor,) = model.tensors()
    assert (tensor.numel, tensor.nbytes) == (int(np.prod(shape)), nbytes)
    assert tensor.logical_nbytes == nbytes
    assert model.unread == ()


def test_strings_are_counted_with_their_bytes_and_never_read():
    tensor = tensor_of(TensorProto(name="w", dims=[2], data_type=8, string_data=[b"abc", b"\xff"]))

    assert (tensor.dtype, tensor.numel, tensor.nbytes, tensor.logical_nbytes) == (DType.STRING, 2, 4, 0)
    assert tensor.payload.array() is None


@pytest.mark.parametrize("number", [0, 99, -1, 2**31 - 1])
def test_unknown_dtype_is_reported_and_its_elements_counted(number):
    model = model_of(raw("w", [3], number, b"\0" * 7))

    (tensor,) = model.tensors()
    assert (tensor.dtype, tensor.numel, tensor.nbytes) == (DType.UNDEFINED, 3, 7)
    assert tensor.payload.array() is None
    assert unread(model) == [("unknown-dtype", "w", f"no element type has the number {number}")]


@pytest.mark.parametrize(
    "dims",
    [
        integer(1, 2) + integer(1, 300),
        block(1, varint(2), varint(300)),
        integer(1, 2) + block(1, varint(300)),
        block(1, varint(2)) + block(1) + block(1, varint(300, longer=3)),
    ],
    ids=["one by one", "packed", "both", "in parts"],
)
def test_dims_may_be_written_one_by_one_or_packed(dims):
    assert tensor_of(dims + integer(2, DType.UINT8) + block(9, bytes(600))).shape == (2, 300)


def test_header_that_claims_much_costs_nothing():
    model = model_of(raw("w", [2**31, 2**31], TensorProto.FLOAT, b"\0" * 4))

    (tensor,) = model.tensors()
    assert tensor.numel == 2**62
    assert tensor.payload.array() is None
    assert unread(model) == [
        (
            "payload-mismatch",
            "w",
            "4,611,686,018,427,387,904 elements of FLOAT need 18,446,744,073,709,551,616 bytes and have 4",
        )
    ]


@pytest.mark.parametrize("carrier", ["raw", "list", "external"])
def test_elements_of_a_shape_beyond_64_bits_are_counted_as_they_are(carrier):
    dims = [2**62, 2**62]
    proto = {
        "raw": raw("w", dims, TensorProto.FLOAT, b"\0" * 4),
        "list": TensorProto(name="w", dims=dims, data_type=TensorProto.INT64, int64_data=[1]),
        "external": external("w", dims, location="w.bin"),
    }[carrier]

    assert tensor_of(proto, w_bin=bytes(8)).numel == 2**124


@pytest.mark.parametrize("carrier", ["raw", "external"])
def test_shape_of_hundreds_of_huge_dimensions_is_reported_and_no_element_is_counted(carrier):
    """The product of the dimensions has more digits than Python writes out."""
    dims = [2**62] * 300
    proto = (
        raw("w", dims, TensorProto.FLOAT, b"\0" * 4)
        if carrier == "raw"
        else external("w", dims, location="w.bin")
    )

    model = model_of(proto, w_bin=bytes(8))

    ((finding, name, sentence),) = unread(model)
    assert (finding, name) == ("invalid-dims", "w")
    assert sentence.startswith("more elements than any file can hold in [4611686018427387904, ")
    assert next(model.tensors()).numel == 0


@pytest.mark.parametrize(("dims", "numel"), [([2**62, 2**62, 16], 2**128), ([2**62] * 300 + [0], 0)])
def test_shape_that_can_be_counted_is_counted(dims, numel):
    assert tensor_of(raw("w", dims, TensorProto.FLOAT, b"")).numel == numel


def test_shape_of_a_million_dimensions_is_refused():
    dims = block(1, b"\1" * ((1 << 20) + 1))

    with pytest.raises(ModelReadError, match=r"\[invalid-dims\] a tensor of more than 1,048,576 dimensions"):
        model_of(dims + integer(2, 1))


@pytest.mark.parametrize("carrier", [Carrier.INITIALIZER, Carrier.CONSTANT, Carrier.SPARSE_INITIALIZER])
def test_negative_dimension_is_reported_and_no_element_is_counted(carrier):
    graph = onnx.GraphProto()
    tensor = raw("bad", [2, -3], TensorProto.FLOAT, b"")
    if carrier is Carrier.INITIALIZER:
        graph.initializer.append(tensor)
    elif carrier is Carrier.CONSTANT:
        graph.node.append(helper.make_node("Constant", [], ["bad"], value=tensor))
    else:
        graph.sparse_initializer.append(sparse("bad", dims=(2, -3)))

    model = read_memory(MemoryFile(onnx.ModelProto(graph=graph).SerializeToString()))

    (found,) = model.tensors()
    assert found.carrier is carrier
    assert found.numel == (3 if carrier is Carrier.SPARSE_INITIALIZER else 0)
    assert found.payload == NoPayload()
    assert unread(model) == [
        ("invalid-dims", "bad", "a negative dimension in [2, -3]: its elements cannot be counted")
    ]


def test_pair_of_negative_dimensions_is_no_positive_count():
    model = model_of(raw("w", [-2, -2], TensorProto.FLOAT, bytes(16)))

    (tensor,) = model.tensors()
    assert (tensor.shape, tensor.numel, tensor.nbytes) == ((-2, -2), 0, 16)
    assert [finding for finding, _, _ in unread(model)] == ["invalid-dims"]


def test_bytes_of_a_tensor_with_a_negative_dimension_are_counted_as_they_stand():
    tensor = tensor_of(raw("w", [-4], TensorProto.FLOAT, bytes(16)))

    assert (tensor.numel, tensor.nbytes, tensor.payload.array()) == (0, 16, None)


def test_external_tensor_with_a_negative_dimension_is_reported_once():
    model = model_of(external("w", [-2, -3], location="w.bin", length=4), w_bin=bytes(4))

    assert [finding for finding, _, _ in unread(model)] == ["invalid-dims"]


def test_list_of_many_dimensions_is_reported_by_the_first():
    model = model_of(raw("w", [1] * 20 + [-1], TensorProto.FLOAT, b""))

    assert unread(model)[0][2].startswith("a negative dimension in [1, 1, 1, 1, 1, 1, 1, 1, ...]")


# payloads that do not fit


@pytest.mark.parametrize(
    ("proto", "sentence"),
    [
        (raw("w", [4], TensorProto.FLOAT, bytes(12)), "4 elements of FLOAT need 16 bytes and have 12"),
        (raw("w", [4], TensorProto.FLOAT, bytes(20)), "4 elements of FLOAT need 16 bytes and have 20"),
        (raw("w", [4], TensorProto.INT4, bytes(3)), "4 elements of INT4 need 2 bytes and have 3"),
        (raw("w", [4], TensorProto.FLOAT, b""), "4 elements of FLOAT need 16 bytes and have 0"),
        (
            TensorProto(name="w", dims=[4], data_type=TensorProto.FLOAT, float_data=[1, 2]),
            "4 elements of FLOAT need 4 list items and have 2",
        ),
        (
            TensorProto(name="w", dims=[2], data_type=TensorProto.COMPLEX64, float_data=[1, 2]),
            "2 elements of COMPLEX64 need 4 list items and have 2",
        ),
        (
            TensorProto(name="w", dims=[3], data_type=TensorProto.INT4, int32_data=[1, 2, 3]),
            "3 elements of INT4 need 2 list items and have 3",
        ),
        (
            TensorProto(name="w", dims=[3], data_type=TensorProto.STRING, string_data=[b"a"]),
            "3 elements of STRING need 3 list items and have 1",
        ),
        (
            TensorProto(name="w", dims=[4], data_type=TensorProto.FLOAT),
            "4 elements of FLOAT need 4 list items and have 0",
        ),
        (
            TensorProto(name="w", dims=[2], data_type=TensorProto.FLOAT, double_data=[1, 2]),
            "FLOAT elements in a list of another type",
        ),
        (
            TensorProto(name="w", dims=[1], data_type=TensorProto.INT64, int64_data=[1], int32_data=[1]),
            "INT64 elements in a list of another type",
        ),
        (
            TensorProto(name="w", dims=[1], data_type=TensorProto.INT8, int32_data=[1], raw_data=b"1"),
            "elements in raw_data and in a typed list",
        ),
        (
            TensorProto(name="w", dims=[1], data_type=TensorProto.STRING, raw_data=b"1"),
            "strings in raw_data, which the format does not allow",
        ),
        (
            TensorProto(
                name="w", dims=[1], data_type=TensorProto.INT8, raw_data=b"1", segment={"begin": 0, "end": 1}
            ),
            "one segment of a tensor; segments are not supported",
        ),
    ],
)
def test_payload_that_does_not_fit_is_reported_and_counted_as_it_stands(proto, sentence):
    model = model_of(proto)

    (tensor,) = model.tensors()
    assert tensor.numel == int(np.prod(proto.dims))
    assert unread(model) == [("payload-mismatch", "w", sentence)]


@pytest.mark.parametrize("dtype", [TensorProto.FLOAT, TensorProto.STRING, TensorProto.INT64])
def test_empty_tensor_needs_no_payload(dtype):
    assert model_of(TensorProto(name="w", dims=[0], data_type=dtype)).unread == ()


def test_bytes_of_all_payloads_of_one_tensor_are_counted():
    odd = TensorProto(
        name="w", dims=[2], data_type=1, float_data=[1, 2], int64_data=[1, 300], raw_data=bytes(8)
    )

    assert tensor_of(odd).nbytes == 8 + 3 + 8


@pytest.mark.parametrize(("items", "is_reported"), [(70_000, False), (1_000_000, True), (5_000, True)])
def test_long_list_of_numbers_is_checked_against_the_bounds_of_its_length(items, is_reported):
    """Beyond 64 KiB, list items are not counted: each takes one to ten bytes."""
    proto = TensorProto(name="w", dims=[items], data_type=DType.INT64, int64_data=[7] * 70_000)

    model = model_of(proto)

    sentence = f"{items:,} elements of INT64 need {items:,} list items and have 7,000 to 70,000"
    assert unread(model) == ([("payload-mismatch", "w", sentence)] if is_reported else [])


def test_list_of_floats_that_ends_within_one_is_reported():
    model = model_of(integer(1, 2) + integer(2, 1) + block(4, bytes(7)) + block(8, "w"))

    assert [finding for finding, _, _ in unread(model)] == ["payload-mismatch"]


# encodings of a tensor


def test_field_that_is_repeated_counts_by_its_last():
    written = raw("first", [2], TensorProto.INT8, b"ab").SerializeToString()

    tensor = tensor_of(written + block(8, "last") + integer(2, DType.UINT8) + block(9, b"cd"))

    assert (tensor.name, tensor.dtype, tensor.nbytes) == ("last", DType.UINT8, 2)
    assert tensor.payload.array().tobytes() == b"cd"


def test_payload_that_another_replaces_is_orphaned():
    written = raw("w", [2], TensorProto.INT8, b"ab").SerializeToString()

    model = model_of(written + block(9, b"cd"))

    assert dict(model.structure)[ORPHANED] == 2


def test_fields_in_any_order_are_one_tensor():
    tensor = tensor_of(
        block(9, bytes(6)) + block(8, "w") + integer(2, DType.UINT8) + integer(1, 2) + integer(1, 3)
    )

    assert (tensor.name, tensor.dtype, tensor.shape, tensor.nbytes) == ("w", DType.UINT8, (2, 3), 6)


def test_name_of_any_length_is_read():
    assert tensor_of(raw("w" * 9000, [2], TensorProto.INT8, b"ab")).name == "w" * 9000


@pytest.mark.parametrize("length", [100, 600, 5000])
def test_headers_of_any_length_are_booked_to_the_byte(length):
    proto = raw("w", [2], TensorProto.INT8, b"ab")
    proto.doc_string = "x" * length

    accounts = dict(model_of(proto, proto).structure)

    assert accounts[NAMES] == 2 * 3
    assert accounts[TENSORS] == 2 * (len(block(5, proto.SerializeToString())) - 3 - 2)


def test_metadata_of_a_tensor_is_its_header():
    proto = raw("w", [2], TensorProto.INT8, b"ab")
    proto.metadata_props.add(key="note", value="text")

    assert dict(model_of(proto).structure)[TENSORS] == len(block(5, proto.SerializeToString())) - 3 - 2


@pytest.mark.parametrize(
    "content", [integer(9, 1), block(99, "x"), integer(8, 1), block(2, "x"), block(14, "x")]
)
def test_fields_of_another_number_or_wire_type_are_unknown(content):
    written = raw("w", [2], TensorProto.INT8, b"ab").SerializeToString()

    model = model_of(written + content)

    assert dict(model.structure)[UNKNOWN] == len(content)
    assert model.unread == ()


# sparse tensors


def sparse(name: str, dims: tuple[int, ...] = (4, 5), at: object = (0, 7, 19)) -> onnx.SparseTensorProto:
    """Return a sparse tensor of 3 elements."""
    values = numpy_helper.from_array(np.array([1, 2, 3], dtype="f4"), name)
    return onnx.SparseTensorProto(
        values=values, indices=numpy_helper.from_array(np.array(at, "i8"), "at"), dims=dims
    )


@pytest.mark.parametrize("at", [(0, 7, 19), ((0, 0), (1, 2), (3, 4))], ids=["linear", "by dimension"])
def test_sparse_tensor_counts_its_values_and_its_indices_only_as_bytes(at):
    model = model_of(sparse("w", at=at), sparse=True)

    (tensor,) = model.tensors()
    assert (tensor.name, tensor.dtype, tensor.shape, tensor.numel) == ("w", DType.FLOAT, (4, 5), 3)
    assert tensor.nbytes == 12 + 8 * np.array(at).size
    assert model.unread == ()


@pytest.mark.parametrize(
    ("dims", "at", "sentence"),
    [
        ((4, 5), (0, 7, 20), "indices outside its shape [4, 5]"),
        ((4, 5), (-1, 7, 19), "indices outside its shape [4, 5]"),
        ((4, 5), ((0, 0), (1, 5), (3, 4)), "indices outside its shape [4, 5]"),
        ((4, 5), (0, 7), "its indices have the shape [2] for 3 values of rank 2"),
        ((4, 5), ((0, 0, 0),) * 3, "its indices have the shape [3, 3] for 3 values of rank 2"),
        ((0,), (0, 0, 0), "indices outside its shape [0]"),
    ],
)
def test_sparse_tensor_whose_indices_do_not_fit_is_reported(dims, at, sentence):
    model = model_of(sparse("w", dims, at), sparse=True)

    assert unread(model) == [("payload-mismatch", "w", sentence)]


def test_sparse_tensor_with_fewer_values_than_their_dims_is_reported():
    odd = sparse("w")
    odd.values.dims[0] = 99

    model = model_of(odd, sparse=True)

    assert [sentence for _, _, sentence in unread(model)] == [
        "99 elements of FLOAT need 396 bytes and have 12",
        "its indices have the shape [3] for 99 values of rank 2",
    ]


def test_what_is_wrong_with_a_sparse_tensors_indices_is_reported_under_the_tensors_name():
    odd = sparse("w")
    odd.indices.dims[0] = 99

    assert {name for _, name, _ in unread(model_of(odd, sparse=True))} == {"w"}


def test_sparse_tensor_of_nothing_is_an_empty_tensor():
    tensor = tensor_of(b"", sparse=True)

    assert (tensor.name, tensor.dtype, tensor.shape, tensor.numel, tensor.nbytes) == (
        "",
        DType.UNDEFINED,
        (),
        1,
        0,
    )


def test_external_indices_are_reported_and_not_counted():
    odd = sparse("w")
    odd.indices.CopyFrom(external("at", [3], TensorProto.INT64, location="w.bin"))

    model = model_of(odd, sparse=True, w_bin=bytes(24))

    assert next(model.tensors()).nbytes == 12
    assert unread(model) == [
        ("payload-mismatch", "w", "its indices are in an external file, and their bytes are not counted")
    ]


# external data


def test_external_data_is_located_and_not_counted_as_inline(tmp_path):
    (tmp_path / "w.bin").write_bytes(np.arange(8, dtype="<f4").tobytes())

    model = with_external(tmp_path, location="w.bin", offset=8, length=16)

    (tensor,) = model.tensors()
    assert tensor.extent is not None
    assert (tensor.extent.offset, tensor.extent.length, tensor.nbytes) == (8, 16, 16)
    assert tensor.extent.file == str((tmp_path / "w.bin").resolve())
    assert [(file.path, file.nbytes) for file in model.files][1:] == [("w.bin", 32)]
    assert tensor.payload.array().tolist() == [2, 3, 4, 5]


def test_external_length_defaults_to_what_the_shape_needs():
    assert tensor_of(external("w", [5], location="w.bin"), w_bin=bytes(100)).nbytes == 20


@pytest.mark.parametrize(
    "fields", [{"offset": "", "length": ""}, {"offset": "0000000000000", "length": "016"}]
)
def test_numbers_of_external_data_may_be_empty_or_padded(fields):
    assert model_of(external("w", [4], location="w.bin", **fields), w_bin=bytes(16)).unread == ()


def test_entry_that_is_given_twice_counts_by_its_last():
    proto = external("w", [4], location="absent.bin")
    proto.external_data.add(key="location", value="w.bin")

    assert tensor_of(proto, w_bin=bytes(16)).nbytes == 16


def test_entries_that_the_format_defines_and_nobody_needs_are_ignored():
    proto = external("w", [4], location="w.bin", checksum="0" * 40, basepath="/etc")

    assert model_of(proto, w_bin=bytes(16)).unread == ()


def test_entries_of_other_names_are_reported_and_ignored():
    model = model_of(external("w", [4], location="w.bin", __class__="x", evil="y"), w_bin=bytes(16))

    assert unread(model) == [("unknown-fields", "w", "external data has unknown keys: __class__, evil")]
    assert next(model.tensors()).nbytes == 16


def test_external_file_in_a_folder_below_is_named_from_the_model(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "w.bin").write_bytes(bytes(16))

    model = with_external(tmp_path, location="data/w.bin")

    assert model.files[1].path == os.path.join("data", "w.bin")  # noqa: PTH118


@pytest.mark.parametrize(
    ("fields", "finding"),
    [
        ({"location": "absent.bin"}, "external-missing"),
        ({"location": "w.bin", "offset": 8}, "external-short"),
        ({"location": "w.bin", "offset": 2**63}, "external-short"),
        ({"location": "w.bin", "offset": -4}, "external-short"),
        ({"location": "w.bin", "offset": "9" * 5000}, "external-short"),
        ({"location": "w.bin", "offset": "\u0661\u0666"}, "external-short"),
        ({"location": "w.bin", "length": -1}, "external-short"),
        ({"location": "w.bin", "length": 2**60}, "external-short"),
        ({"location": "w.bin", "length": 2**70}, "external-short"),
        ({"location": "w.bin", "offset": "twelve"}, "external-short"),
        ({"location": "w.bin", "offset": "0x10"}, "external-short"),
        ({"location": "w.bin", "length": "1e1"}, "external-short"),
        ({"location": "w.bin", "length": 8}, "external-short"),
        ({"location": "../secret.bin"}, "external-escapes"),
        ({"location": "/etc/hostname"}, "external-escapes"),
        ({"location": "a\\..\\b.bin"}, "external-escapes"),
        ({"location": "file:///etc/hostname"}, "external-escapes"),
        ({"location": "w.bin\0.txt"}, "external-escapes"),
        ({"location": "model.onnx"}, "external-escapes"),
        ({"location": "."}, "external-escapes"),
        ({}, "external-escapes"),
    ],
)
def test_external_data_that_cannot_be_had_is_reported_and_the_rest_is_read(tmp_path, fields, finding):
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret.bin").write_bytes(bytes(64))
    (folder / "w.bin").write_bytes(bytes(16))
    tensors = [external("w", [4], **fields), raw("b", [1], TensorProto.FLOAT, bytes(4))]

    model = read_model(save(folder, onnx.ModelProto(graph=onnx.GraphProto(initializer=tensors))))

    assert [(found, key) for found, key, _ in model.unread] == [(finding, ((), "w"))]
    assert [tensor.numel for tensor in model.tensors()] == [4, 1]
    assert next(model.tensors()).payload.array() is None


@pytest.mark.parametrize(
    ("fields", "nbytes", "sentence"),
    [
        ({}, 10, "w.bin: needs 16 bytes at offset 0, the file has 10 of them"),
        ({"offset": 8}, 2, "w.bin: needs 16 bytes at offset 8, the file has 2 of them"),
        ({"offset": 100}, 0, "w.bin: needs 16 bytes at offset 100, the file has 0 of them"),
        ({"length": 2**60}, 10, f"w.bin: needs {2**60:,} bytes at offset 0, the file has 10 of them"),
        ({"length": 8}, 8, "4 elements of FLOAT need 16 bytes, its entry says 8"),
    ],
)
def test_short_external_file_counts_the_bytes_it_has(fields, nbytes, sentence):
    model = model_of(external("w", [4], location="w.bin", **fields), w_bin=bytes(10))

    assert next(model.tensors()).nbytes == nbytes
    assert unread(model) == [("external-short", "w", sentence)]


def test_external_length_beyond_the_shape_is_a_mismatch_and_counted_as_it_stands():
    model = model_of(external("w", [4], location="w.bin", length=20), w_bin=bytes(100))

    assert next(model.tensors()).nbytes == 20
    assert unread(model) == [
        ("payload-mismatch", "w", "4 elements of FLOAT need 16 bytes, its entry says 20")
    ]


@pytest.mark.parametrize(("dtype", "nbytes"), [(TensorProto.STRING, 40), (99, 40)])
def test_external_elements_without_a_width_are_as_long_as_their_entry_says(dtype, nbytes):
    model = model_of(external("w", [4], dtype, location="w.bin", length=nbytes), w_bin=bytes(100))

    assert next(model.tensors()).nbytes == nbytes
    assert next(model.tensors()).payload.array() is None


def test_external_tensor_with_elements_in_the_file_too_is_reported_and_those_are_orphaned():
    odd = external("w", [4], location="w.bin")
    odd.raw_data = bytes(16)

    model = model_of(odd, w_bin=bytes(16))

    assert next(model.tensors()).nbytes == 16
    assert dict(model.structure)[ORPHANED] == 16
    assert unread(model) == [
        ("payload-mismatch", "w", "a tensor with elements both inside and in external data")
    ]


def test_external_data_without_the_flag_is_ignored():
    odd = external("w", [1], location="absent.bin")
    odd.ClearField("data_location")
    odd.raw_data = bytes(4)

    model = model_of(odd)

    assert (next(model.tensors()).extent, model.unread) == (None, ())


def test_file_of_many_tensors_is_looked_at_once():
    class Counting(MemoryFile):
        lookups = 0

        def sibling(self, location: str) -> MemoryFile:
            self.lookups += 1
            return super().sibling(location)

    tensors = [external(f"w{index}", [1], location="w.bin", offset=4 * index) for index in range(50)]
    tensors += [external(f"v{index}", [1], location="absent.bin") for index in range(50)]
    proto = onnx.ModelProto(graph=onnx.GraphProto(initializer=tensors))
    source = Counting(proto.SerializeToString(), siblings={"w.bin": bytes(200)})

    model = read_memory(source)

    assert source.lookups == 2
    assert len(model.unread) == 50
    assert [file.path for file in model.files] == ["model.onnx", "w.bin"]


def test_hub_cache_is_read_through_its_links(tmp_path):
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "0123abcd"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    (blobs / "data").write_bytes(bytes(16))
    proto = onnx.ModelProto(
        graph=onnx.GraphProto(initializer=[external("w", [4], location="model.onnx.data")])
    )
    save(blobs, proto, "model")
    (snapshot / "model.onnx").symlink_to("../../blobs/model")
    (snapshot / "model.onnx.data").symlink_to("../../blobs/data")

    model = read_model(snapshot / "model.onnx")

    assert model.unread == ()
    assert [file.nbytes for file in model.files[1:]] == [16]
    assert next(model.tensors()).payload.array().tolist() == [0, 0, 0, 0]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_pipe_as_external_data_is_reported_at_once(tmp_path):
    os.mkfifo(tmp_path / "w.bin")

    model = with_external(tmp_path, location="w.bin")

    assert [finding for finding, _, _ in model.unread] == ["external-escapes"]


def test_empty_list_beside_the_one_that_counts_is_no_mismatch(tmp_path):
    tensor = TensorProto(name="w", dims=[2], data_type=TensorProto.DOUBLE, double_data=[1, 2])
    content = tensor.SerializeToString() + block(11, b"")
    model = read_memory(MemoryFile(integer(1, 8) + block(7, block(5, content))))

    (found,) = model.tensors()
    assert not model.unread
    assert found.payload.array().tolist() == [1, 2]


def alike(name: str | bytes, value: float = 1) -> bytes:
    """Encode a tensor of two floats as nearly every writer does: shape, type, name, elements."""
    encoded = name.encode() if isinstance(name, str) else name
    return (
        integer(1, 2) + integer(2, 1) + block(8, encoded) + block(9, np.full(2, value, np.float32).tobytes())
    )


ODD = {
    "its name first": block(8, "odd") + integer(1, 2) + integer(2, 1) + block(9, b"\0" * 8),
    "another type": integer(1, 2) + integer(2, 7) + block(8, "odd") + block(9, b"\0" * 16),
    "too few elements": integer(1, 2) + integer(2, 1) + block(8, "odd") + block(9, b"\0" * 4),
    "elements twice": alike("odd") + block(9, b"\0" * 8),
    "no elements": integer(1, 2) + integer(2, 1) + block(8, "odd"),
    "a note behind": alike("odd") + block(12, "made by hand"),
    "two names": alike("one") + block(8, "odd"),
    "a long name": alike("n" * 300),
    "no UTF-8": alike(b"w\xff\xfe"),
    "no ASCII": alike("größe"),
    "no name": integer(1, 2) + integer(2, 1) + block(9, b"\0" * 8),
    "a typed list": integer(1, 2) + integer(2, 1) + block(8, "odd") + block(4, b"\0" * 8),
    "a long length": integer(1, 2) + integer(2, 1) + block(8, "odd") + key(9, 2) + varint(8, 1) + b"\0" * 8,
    "a long size": key(1, 0) + varint(2, 1) + integer(2, 1) + block(8, "odd") + block(9, b"\0" * 8),
    "a shape below 0": integer(1, -2) + integer(2, 1) + block(8, "odd") + block(9, b""),
    "elements elsewhere": integer(1, 2) + integer(2, 1) + block(8, "odd") + block(13, b"") + integer(14, 1),
}


@pytest.mark.parametrize("odd", ODD)
def test_tensor_among_many_alike_is_what_it_is_alone(odd):
    written = [
        *(alike(f"w{i}", i) for i in range(5)),
        ODD[odd],
        alike("x", 7),
        ODD[odd].replace(b"odd", b"ddo"),
    ]

    together, apart = model_of(*written), [model_of(content) for content in written]

    def describe_tensors(model: Model) -> list[tuple[object, ...]]:
        return [
            (
                t.name,
                t.dtype,
                t.shape,
                t.numel,
                t.nbytes,
                t.extent,
                None if (a := t.payload.array()) is None else a.tolist(),
            )
            for t in model.tensors()
        ]

    assert describe_tensors(together) == [row for model in apart for row in describe_tensors(model)]
    assert unread(together) == [row for model in apart for row in unread(model)]
    for account in (NAMES, TENSORS, ORPHANED, UNKNOWN):
        assert dict(together.structure).get(account, 0) == sum(
            dict(m.structure).get(account, 0) for m in apart
        )


def test_tensor_that_many_repeat_is_taken_apart_once():
    def calls(count: int) -> int:
        file = MemoryFile(integer(1, 10) + block(7, b"".join(block(5, alike(f"w{i}")) for i in range(count))))
        with cProfile.Profile() as profile:
            read_memory(file)
        return int(pstats.Stats(profile).total_calls)

    calls(10)
    few, many = calls(100), calls(1100)

    assert many - few < 20 * 1000
