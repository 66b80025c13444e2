"""A model file as a whole: its header, its bytes, and files that are no models."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from encoding import UNKNOWN_FIELDS, block, group, integer, key, varint
from memory import MemoryFile, opened, read_memory
from models import external, ramp, raw, save, set_metadata, text_model
from onnx import TensorProto, helper, numpy_helper

from analyzer.errors import ModelReadError
from analyzer.model import Model
from analyzer.read import read_model
from analyzer.read.book import HEADER, METADATA, UNKNOWN
from analyzer.read.wire import Field, Window

LINEAR = "g (float[1,3] x) => (float[1,2] y) { y = MatMul(x, w) }"


def read(folder: Path, proto: onnx.ModelProto | bytes) -> Model:
    return read_model(save(folder, proto))


def linear() -> onnx.ModelProto:
    return text_model(LINEAR, {"w": ramp(3, 2)})


def accounts(model: Model) -> dict[str, int]:
    return {account: nbytes for account, nbytes in model.structure if nbytes}


def inline(model: Model) -> int:
    """Bytes of payload in the model file itself."""
    return sum(t.nbytes - (t.extent.length if t.extent else 0) for t in model.tensors())


# the header


def test_opsets_producer_and_version_are_read(tmp_path):
    proto = text_model('<ir_version: 9, opset_import: ["" : 18, "my" : 2]> g () => () { }')
    proto.producer_name, proto.producer_version = "pytorch", "2.0"

    model = read(tmp_path, proto)

    assert model.opsets == (("ai.onnx", 18), ("my", 2))
    assert (model.producer, model.ir_version) == ("pytorch 2.0", 9)


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        (integer(1, 8), 8),
        (b"\x08" + varint(8, longer=3), 8),
        (integer(1, 3) + integer(1, 8), 8),
        (b"", 0),
        (integer(1, -1), -1),
    ],
    ids=["usual", "long", "twice", "absent", "negative"],
)
def test_every_way_to_write_the_version_is_read(version, expected):
    assert read_memory(MemoryFile(version + block(7))).ir_version == expected


def test_opset_in_two_pieces_is_two_opsets():
    content = block(8, block(1, "my")) + block(8, integer(2, 5)) + block(7)

    assert read_memory(MemoryFile(content)).opsets == (("my", 0), ("ai.onnx", 5))


@pytest.mark.parametrize("is_text", [True, False])
def test_path_is_reported_as_it_was_given(tmp_path, is_text):
    path = save(tmp_path, linear())

    model = read_model(str(path) if is_text else path)

    assert (model.path, model.files[0].path) == (str(path), "model.onnx")
    assert model.paths == (path.resolve(),)
    assert model.traffic is None


def test_relative_path_finds_its_external_data(tmp_path, monkeypatch):
    (tmp_path / "w.bin").write_bytes(bytes(24))
    proto = text_model(LINEAR)
    proto.graph.initializer.append(external("w", [3, 2], location="w.bin"))
    save(tmp_path, proto)
    monkeypatch.chdir(tmp_path)

    model = read_model("model.onnx")

    assert (model.path, [file.path for file in model.files]) == ("model.onnx", ["model.onnx", "w.bin"])


def test_file_url_is_read_like_its_path(tmp_path):
    path = save(tmp_path, linear())

    assert read_model(path.as_uri()).graphs == read_model(path).graphs


# bytes


def test_header_metadata_and_unknown_fields_are_booked_by_what_they_are():
    proto = onnx.ModelProto(
        ir_version=8, producer_name="me", domain="d", model_version=3, graph=onnx.GraphProto()
    )
    proto.opset_import.add(version=18)
    header = len(proto.SerializeToString())
    proto.doc_string = "note"
    set_metadata(proto, {"key": "value"})
    whole = len(proto.SerializeToString())

    found = accounts(read_memory(MemoryFile(proto.SerializeToString() + b"".join(UNKNOWN_FIELDS))))

    assert found == {HEADER: header, METADATA: whole - header, UNKNOWN: sum(map(len, UNKNOWN_FIELDS))}


@pytest.mark.parametrize("number", [1, 2, 5, 8, 14, 20, 25])
def test_field_of_another_wire_type_is_unknown(number):
    content = block(number, b"") if number in (1, 5) else integer(number, 1)

    assert accounts(read_memory(MemoryFile(block(7) + content)))[UNKNOWN] == len(content)


def test_accounts_and_payload_are_the_whole_file(tmp_path):
    proto = linear()
    proto.doc_string = "x" * 9000

    model = read(tmp_path, proto)

    assert inline(model) == 24
    assert inline(model) + sum(accounts(model).values()) == (tmp_path / "model.onnx").stat().st_size


def test_polyglot_is_refused(tmp_path):
    with pytest.raises(ModelReadError, match=r"\[not-onnx\]"):
        read(tmp_path, linear().SerializeToString() + b"PK\x03\x04" + bytes(60))


# payloads are not read


@pytest.mark.parametrize("carrier", ["initializer", "constant", "attribute", "sparse", "list", "default"])
def test_payload_is_not_read(carrier):
    """Only the step with the header, and the one after it when the file is opened, may be read."""
    step = 1 << 10
    payload = ramp(256, 256)  # 256 KiB
    value = numpy_helper.from_array(payload, "w")
    proto = onnx.ModelProto(graph=onnx.GraphProto())
    if carrier == "initializer":
        proto.graph.initializer.append(value)
    elif carrier == "constant":
        proto.graph.node.append(helper.make_node("Constant", [], ["w"], value=value))
    elif carrier == "attribute":
        proto.graph.node.append(helper.make_node("Odd", [], ["w"], value=value))
    elif carrier == "sparse":
        proto.graph.sparse_initializer.add(values=value, dims=[10**6])
    elif carrier == "list":
        proto.graph.initializer.add(name="w", dims=[256, 256], data_type=1, float_data=payload.reshape(-1))
    else:
        proto.functions.add(name="f").attribute_proto.append(helper.make_attribute("d", value))
    proto.graph.initializer.append(raw("after", [1], TensorProto.INT8, b"1"))
    content = proto.SerializeToString()
    source = MemoryFile(content, step)

    model = read_memory(source)

    start = content.index(payload.tobytes())
    assert source.bytes_read(start, start + payload.nbytes) <= 2 * step
    assert sum(tensor.nbytes for tensor in model.tensors()) == payload.nbytes + 1
    assert source.bytes_read(0, len(content)) <= len(content) - payload.nbytes + 2 * step


def test_payloads_of_many_tensors_are_not_read():
    step = 1 << 11
    tensors = [numpy_helper.from_array(ramp(64, 64), f"w{index}") for index in range(50)]
    source = MemoryFile(onnx.ModelProto(graph=onnx.GraphProto(initializer=tensors)).SerializeToString(), step)

    model = read_memory(source)

    assert sum(tensor.nbytes for tensor in model.tensors()) == 50 * 16_384
    assert source.bytes_read(0, source.nbytes) <= 2 * 50 * step


def test_external_data_is_not_read_at_all(tmp_path):
    class Forbidding(MemoryFile):
        def sibling(self, location: str) -> MemoryFile:
            found = super().sibling(location)
            found.read = None  # type: ignore[method-assign,assignment]
            return found

    proto = text_model(LINEAR)
    proto.graph.initializer.append(external("w", [3, 2], location="w.bin"))
    source = Forbidding(proto.SerializeToString(), siblings={"w.bin": bytes(24)})

    assert next(read_memory(source).tensors()).nbytes == 24


@pytest.mark.parametrize("step", [1, 7, 64, 4096])
def test_file_in_small_pieces_is_the_same_model(step):
    proto = text_model("""
        g (bool c, float[1,3] x) => (float[1,2] y) <float[3,2] w = {1,2,3,4,5,6}> {
            y = If(c) <then_branch = t () => (float[1,2] a) { a = MatMul(x, w) },
                       else_branch = e () => (float[1,2] b) {
                           k = Constant<value_floats = [1.5, 2.5]>() h = MatMul(x, w) b = Add(h, k) }>
        }
    """)
    proto.doc_string = "x" * 5000

    found = read_memory(MemoryFile(proto.SerializeToString(), step))

    assert found == read_memory(MemoryFile(proto.SerializeToString()))


def test_reading_writes_nothing(tmp_path):
    (tmp_path / "w.bin").write_bytes(bytes(16))
    proto = text_model(LINEAR)
    proto.graph.initializer.append(external("w", [4], location="w.bin"))
    path = save(tmp_path, proto)
    before = {item: (item.read_bytes(), item.stat().st_mtime_ns) for item in tmp_path.iterdir()}

    list(read_model(path).tensors())

    assert {item: (item.read_bytes(), item.stat().st_mtime_ns) for item in tmp_path.iterdir()} == before


def test_file_that_changes_while_it_is_read_is_refused(tmp_path):
    class Changing(MemoryFile):
        def check(self) -> None:
            raise ModelReadError("changed")

    with opened(Changing(linear().SerializeToString())), pytest.raises(ModelReadError, match="changed"):
        read_model("/memory/model.onnx")


# files that are no models


def test_empty_file_is_refused(tmp_path):
    with pytest.raises(ModelReadError, match=r"model\.onnx: \[empty-model\] is empty \(0 bytes\)"):
        read(tmp_path, b"")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"# onnxledger\n\nThis is text, not a model.\n", "a text file"),
        (bytes(4096), "field number 0"),
        (b"PK\x03\x04" + bytes(60), "a zip archive"),
        (b"\x1f\x8b\x08" + bytes(60), "compressed with gzip"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"a" * 64, "a Git LFS pointer"),
        (b"<!DOCTYPE html><html><body>404</body></html>", "a web page"),
        (b"{}", "JSON"),
        (b"\x08", "it ends there"),
        (b"ir_version: 8\ngraph { name: 'g' }\n", "text form"),
        (np.arange(4096, dtype="u1").tobytes(), "no protobuf message at byte 0"),
    ],
)
def test_file_that_is_no_model_is_refused_by_what_it_is(tmp_path, content, words):
    with pytest.raises(ModelReadError, match=r"model\.onnx: \[not-onnx\]") as caught:
        read(tmp_path, content)

    assert words in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        onnx.ModelProto(ir_version=8, producer_name="nobody").SerializeToString(),
        integer(7, 5),
        integer(99, 5),
        block(25, block(1, "f")),
    ],
    ids=["header", "graph as a number", "unknown field", "function"],
)
def test_model_without_a_graph_is_refused(tmp_path, content):
    with pytest.raises(ModelReadError, match=r"\[empty-model\] holds no graph"):
        read(tmp_path, content)


@pytest.mark.parametrize(
    "content",
    [
        integer(1, 8) + key(7, 2) + varint(100) + bytes(50),
        integer(1, 8) + key(7, 2) + varint(2**31 + 10) + b"abc",
        integer(1, 8) + block(7, b"") + key(8, 2) + varint(10) + b"abc",
        integer(1, 8) + block(7, b"") + key(14, 2) + varint(10),
    ],
)
def test_model_cut_within_a_part_is_truncated(tmp_path, content):
    with pytest.raises(
        ModelReadError, match=r"\[truncated\] ends within the field that begins at byte \d+; download"
    ):
        read(tmp_path, content)


def cuts() -> list[int]:
    """Offsets where a model may be cut that are not the end of a part."""
    content = linear().SerializeToString()
    ends = {0, len(content)}
    ends |= {field.end for field in read_parts(content)}
    return [place for place in range(3, len(content)) if place not in ends]


def read_parts(content: bytes) -> list[Field]:
    return list(Window(MemoryFile(content)).fields(0, len(content)))


def test_model_cut_anywhere_is_refused(tmp_path):
    content = linear().SerializeToString()

    for place in cuts():
        with (
            opened(MemoryFile(content[:place])),
            pytest.raises(ModelReadError, match=r"\[(truncated|not-onnx)\]"),
        ):
            read_model("/memory/model.onnx")


def test_model_cut_within_a_key_or_length_is_truncated():
    content = linear().SerializeToString()

    for place in cuts():
        with opened(MemoryFile(content[:place])), pytest.raises(ModelReadError, match=r"\[truncated\]"):
            read_model("/memory/model.onnx")


def test_field_with_too_large_a_length_at_the_end_of_a_whole_file_is_not_truncated():
    node = block(4, "Relu") + b"\x0a\x7f"

    with opened(MemoryFile(block(7, block(1, node)))), pytest.raises(ModelReadError, match=r"\[not-onnx\]"):
        read_model("/memory/model.onnx")


def test_model_cut_between_two_parts_is_read_without_the_rest(tmp_path):
    content = linear().SerializeToString()
    first_opset = next(part for part in read_parts(content) if part.number == 8)

    model = read(tmp_path, content[: first_opset.at])

    assert (model.opsets, model.ir_version) == ((), 10)
    assert [tensor.numel for tensor in model.tensors()] == [6]


def test_folder_is_refused(tmp_path):
    with pytest.raises(ModelReadError, match=r"is a folder; name the \.onnx file inside it"):
        read_model(tmp_path)


def test_absent_file_is_refused(tmp_path):
    with pytest.raises(ModelReadError, match=r"absent\.onnx: cannot be read: No such file"):
        read_model(tmp_path / "absent.onnx")


def test_name_with_a_null_byte_is_refused():
    with pytest.raises(ModelReadError, match="cannot be read"):
        read_model(Path("a\0b.onnx"))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_pipe_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "model.onnx")

    with pytest.raises(ModelReadError, match=r"\[not-onnx\] is not a regular file"):
        read_model(tmp_path / "model.onnx")


def test_groups_are_skipped_wherever_they_stand():
    odd = group(9, integer(1, 1), group(2, block(1, "x")))
    graph = odd + block(1, odd + block(4, "Relu") + odd) + block(5, odd + integer(2, 1) + odd)

    model = read_memory(MemoryFile(odd + block(7, graph) + odd))

    assert [node.op_type for node in model.nodes()] == ["Relu"]
    assert accounts(model)[UNKNOWN] == 7 * len(odd)
