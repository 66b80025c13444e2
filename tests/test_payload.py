"""Payloads: elements as numpy has them, and where external data may be."""

from __future__ import annotations

import os
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from models import external, save, text_model
from onnx import TensorProto, numpy_helper

from analyzer.content import Array
from analyzer.dtypes import DType
from analyzer.errors import ExternalDataError
from analyzer.read.payload import InlinePayload, encoded_nbytes, locate_external, varint_nbytes
from analyzer.read import read_model


def inline(proto: onnx.TensorProto) -> Array | None:
    return InlinePayload(proto, DType(proto.data_type), tuple(proto.dims)).array()


@pytest.mark.parametrize(
    "dtype", ["f4", "f2", "f8", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "?", "c8"]
)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3)])
def test_raw_elements_are_numpys(dtype, shape):
    array = np.arange(np.prod(shape)).reshape(shape).astype(dtype)

    found = inline(numpy_helper.from_array(array))

    np.testing.assert_array_equal(found, array, strict=True)


@pytest.mark.parametrize(
    ("data_type", "element", "values"),
    [
        (TensorProto.FLOAT, "f4", [1.5, -2.0]),
        (TensorProto.DOUBLE, "f8", [1.5, -2.0]),
        (TensorProto.INT64, "i8", [1, -2]),
        (TensorProto.INT32, "i4", [1, -2]),
        (TensorProto.INT8, "i1", [1, -2]),
        (TensorProto.UINT64, "u8", [1, 2**63]),
        (TensorProto.BOOL, "?", [True, False]),
        (TensorProto.FLOAT16, "f2", [1.5, -2.0]),
        (TensorProto.BFLOAT16, ml_dtypes.bfloat16, [1.5, -2.0]),
        (TensorProto.FLOAT8E4M3FN, ml_dtypes.float8_e4m3fn, [1.5, -2.0]),
        (TensorProto.FLOAT8E5M2, ml_dtypes.float8_e5m2, [1.5, -2.0]),
    ],
)
def test_typed_lists_are_the_same_elements_as_raw_bytes(data_type, element, values):
    proto = onnx.helper.make_tensor("w", data_type, [2], values)

    found = inline(proto)

    assert found is not None
    assert found.dtype == np.dtype(element)
    assert found.tolist() == values


def test_strings_are_not_read():
    assert inline(onnx.helper.make_tensor("w", TensorProto.STRING, [2], [b"a", b"b"])) is None


@pytest.mark.parametrize(
    ("data_type", "values", "codes"),
    [
        (TensorProto.UINT4, [1, 15, 3], [1, 15, 3]),
        (TensorProto.INT4, [1, -1, -8], [1, 15, 8]),
        (TensorProto.UINT2, [1, 3, 2], [1, 3, 2]),
        (TensorProto.FLOAT4E2M1, [0.5, 1.0, -6.0], [1, 2, 15]),
    ],
)
@pytest.mark.parametrize("raw", [False, True])
def test_packed_elements_are_unpacked_to_codes(data_type, values, codes, raw):
    proto = onnx.helper.make_tensor("w", data_type, [3], values)
    if raw:
        packed = np.array(proto.int32_data).astype(np.uint8).tobytes()
        proto = onnx.helper.make_tensor("w", data_type, [3], packed, raw=True)

    found = inline(proto)

    assert found is not None
    assert found.tolist() == codes


def test_list_of_another_length_is_not_read():
    assert inline(TensorProto(dims=[3], data_type=TensorProto.FLOAT, float_data=[1, 2])) is None


@pytest.mark.parametrize(
    ("dtype", "element"),
    [(DType.FLOAT, "<f4"), (DType.BFLOAT16, ml_dtypes.bfloat16), (DType.INT64, "<i8"), (DType.BOOL, "?")],
)
@pytest.mark.parametrize("offset", [0, 1, 4097])
def test_external_elements_are_read_at_any_offset(tmp_path, dtype, element, offset):
    array = np.array([[0, 1, 2], [3, 4, 5]]).astype(element)
    (tmp_path / "w.bin").write_bytes(bytes(offset) + array.tobytes() + b"beyond")
    proto = text_model("g (float[1] x) => (float[1] y) { y = Relu(x) }")
    proto.graph.initializer.append(external("w", [2, 3], dtype, location="w.bin", offset=offset))

    (tensor,) = read_model(save(tmp_path, proto)).tensors()

    np.testing.assert_array_equal(tensor.payload.array(), array, strict=True)


def test_external_tensor_of_no_elements_is_empty(tmp_path):
    (tmp_path / "w.bin").write_bytes(b"")
    proto = text_model("g (float[1] x) => (float[1] y) { y = Relu(x) }")
    proto.graph.initializer.append(external("w", [0, 3], location="w.bin"))

    (tensor,) = read_model(save(tmp_path, proto)).tensors()

    assert tensor.payload.array().shape == (0, 3)


@pytest.mark.parametrize(
    ("proto", "nbytes"),
    [
        (TensorProto(raw_data=b"12345"), 5),
        (TensorProto(float_data=[1, 2, 3]), 12),
        (TensorProto(double_data=[1, 2]), 16),
        (TensorProto(int64_data=[0, 127, 128, 16384]), 1 + 1 + 2 + 3),
        (TensorProto(int64_data=[-1]), 10),
        (TensorProto(int32_data=[-1, 300]), 10 + 2),
        (TensorProto(uint64_data=[2**64 - 1]), 10),
        (TensorProto(string_data=[b"ab", b"", b"c"]), 3),
        (TensorProto(), 0),
    ],
)
def test_encoded_bytes_are_what_protobuf_writes(proto, nbytes):
    assert encoded_nbytes(proto) == nbytes


@pytest.mark.parametrize("power", [6, 7, 13, 14, 20, 21, 55, 56, 62, 63])
def test_varints_grow_by_a_byte_every_seven_bits(power):
    assert varint_nbytes([2**power]) == power // 7 + 1
    assert varint_nbytes([2**power - 1]) == max(1, -(-power // 7))


# where external data may be


def hub_cache(folder: Path) -> Path:
    """A snapshot of a hub cache, whose files are links into its blob store."""
    blobs, snapshot = folder / "hub" / "blobs", folder / "hub" / "snapshots" / "0123abcd"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    (blobs / "sha").write_bytes(bytes(16))
    (snapshot / "model.onnx.data").symlink_to("../../blobs/sha")
    return snapshot


def test_file_beside_the_model_is_located(tmp_path):
    (tmp_path / "w.bin").touch()

    assert locate_external(tmp_path / "model.onnx", "w.bin") == (tmp_path / "w.bin").resolve()


def test_link_within_the_folder_is_followed(tmp_path):
    (tmp_path / "w.bin").touch()
    (tmp_path / "link.bin").symlink_to("w.bin")

    assert locate_external(tmp_path / "model.onnx", "link.bin") == (tmp_path / "w.bin").resolve()


def test_folder_that_is_itself_a_link_is_no_escape(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "w.bin").touch()
    (tmp_path / "link").symlink_to("real")

    assert locate_external(tmp_path / "link" / "model.onnx", "w.bin").name == "w.bin"


def test_hub_cache_may_link_to_its_own_blobs(tmp_path):
    snapshot = hub_cache(tmp_path)

    assert (
        locate_external(snapshot / "model.onnx", "model.onnx.data")
        == (tmp_path / "hub" / "blobs" / "sha").resolve()
    )


def test_hub_cache_may_link_to_its_own_blobs_from_a_folder_below(tmp_path):
    snapshot = hub_cache(tmp_path)
    (snapshot / "onnx").mkdir()
    (snapshot / "onnx" / "model.onnx.data").symlink_to("../../../blobs/sha")

    assert locate_external(snapshot / "onnx" / "model.onnx", "model.onnx.data").name == "sha"


def test_hub_cache_may_not_link_elsewhere(tmp_path):
    snapshot = hub_cache(tmp_path)
    (tmp_path / "hub" / "refs").write_bytes(b"secret")
    (snapshot / "evil.data").symlink_to("../../refs")

    with pytest.raises(ExternalDataError, match=r"^\[external-escapes\]"):
        locate_external(snapshot / "model.onnx", "evil.data")


def test_hub_blobs_may_not_be_named_directly(tmp_path):
    snapshot = hub_cache(tmp_path)

    with pytest.raises(ExternalDataError, match=r"^\[external-escapes\]"):
        locate_external(snapshot / "model.onnx", "../../blobs/sha")


def test_link_out_of_the_folder_is_refused(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "secret").touch()
    (tmp_path / "model" / "w.bin").symlink_to("../secret")

    with pytest.raises(ExternalDataError, match=r"^\[external-escapes\].*outside the model's folder"):
        locate_external(tmp_path / "model" / "model.onnx", "w.bin")


def test_links_in_a_circle_are_missing_data_and_no_crash(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")

    with pytest.raises(ExternalDataError, match=r"^\[external-(missing|escapes)\]"):
        locate_external(tmp_path / "model.onnx", "a")


def test_sibling_folder_whose_name_begins_alike_is_outside(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model-secret").touch()

    with pytest.raises(ExternalDataError, match=r"^\[external-escapes\]"):
        locate_external(tmp_path / "model" / "model.onnx", "../model-secret")


@pytest.mark.parametrize("location", ["", "/etc/hostname", "a\\b", "hf://a/b", "w\0.bin"])
def test_location_that_is_no_relative_path_is_refused(tmp_path, location):
    with pytest.raises(ExternalDataError, match=r"^\[external-escapes\].*is no relative path"):
        locate_external(tmp_path / "model.onnx", location)


def test_location_of_any_length_is_missing_data_and_no_crash(tmp_path):
    with pytest.raises(ExternalDataError, match=r"^\[external-missing\]"):
        locate_external(tmp_path / "model.onnx", "w" * 5000)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_pipe_is_never_opened(tmp_path):
    os.mkfifo(tmp_path / "w.bin")

    with pytest.raises(ExternalDataError, match=r"^\[external-escapes\].*is no regular file"):
        locate_external(tmp_path / "model.onnx", "w.bin")


def test_folder_is_no_data(tmp_path):
    (tmp_path / "data").mkdir()

    with pytest.raises(ExternalDataError, match="is no regular file"):
        locate_external(tmp_path / "model.onnx", "data")


def test_the_model_itself_is_no_external_data(tmp_path):
    (tmp_path / "model.onnx").write_bytes(b"model")

    with pytest.raises(ExternalDataError, match=r"^\[external-escapes\].*is the model file itself"):
        locate_external(tmp_path / "model.onnx", "model.onnx")
