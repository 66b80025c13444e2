"""Finds of `make fuzz` and of attacks by hand: small files that took hours or gigabytes, or broke the account."""

from __future__ import annotations

import json
import signal
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import onnx
import pytest
from encoding import block, integer, key, varint
from models import save
from onnx import TensorProto, helper

from analyzer.account.audit import audit_model
from analyzer.account.group import group_by
from analyzer.account.ledger import Ledger
from analyzer.errors import ModelReadError
from analyzer.formats import FORMATS, RenderOptions
from analyzer.read import read_model
from analyzer.reports import Inspection
from tools.fuzz.differential import compare_many
from tools.fuzz.oracle import check_file
from tools.fuzz.reading import BrokenPromiseError, check_reading
from tools.fuzz.seeds import small_models

FLOAT = struct.pack("<f", 1.5)
OPSET = block(8, integer(2, 17))
_HANG = 60
"""Seconds after which a test counts as hanging: no performance limit, only a way to fail."""


@pytest.fixture(autouse=True)
def no_hang() -> Iterator[None]:
    def stop(*_: object) -> None:
        pytest.fail(f"no answer after {_HANG} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(_HANG)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def model(*graph: bytes, rest: bytes = b"") -> bytes:
    return integer(1, 8) + block(7, *graph) + OPSET + rest


def node(op_type: str, inputs: list[str], outputs: list[str], *fields: bytes) -> bytes:
    values = [block(1, name) for name in inputs] + [block(2, name) for name in outputs]
    return block(1, *values, block(4, op_type), *fields)


def tensor(name: str, dims: list[int], raw: bytes, number: int = 5, data_type: int = 1) -> bytes:
    header = b"".join(integer(1, dim) for dim in dims) + integer(2, data_type)
    return block(number, header, block(8, name), block(9, raw))


def reported(folder: Path, content: bytes) -> tuple[Ledger, str, str]:
    """Return the ledger, and its reports in JSON and text."""
    ledger = audit_model(save(folder, content))
    report = Inspection(ledger, group_by(ledger))
    return (
        ledger,
        FORMATS["json"].render(report, RenderOptions()),
        FORMATS["text"].render(report, RenderOptions()),
    )


def ids(ledger: Ledger) -> set[str]:
    return {finding.id for finding in ledger.findings}


# found by fuzzing


def test_graph_in_the_default_of_a_function_s_attribute_is_read(tmp_path):
    inner = block(6, node("Relu", ["w"], ["y"]), tensor("w", [1], FLOAT))
    function = block(
        25, block(1, "f"), block(10, "local"), block(11, block(1, "body"), inner, integer(20, 5))
    )

    ledger, _, _ = reported(tmp_path, model(rest=function))

    assert ledger.stored_elements == 1
    assert [node.op_type for node in ledger.model.nodes()] == ["Relu"]


def test_graphs_in_defaults_of_one_name_have_paths_of_their_own(tmp_path):
    default = block(11, block(1, "body"), block(11, b""), block(11, tensor("w", [1], FLOAT)), integer(20, 10))

    ledger, _, _ = reported(tmp_path, model(rest=block(25, block(1, "f"), default, default)))

    assert ledger.stored_elements == 2
    assert len({graph.path for graph in ledger.model.graphs}) == len(ledger.model.graphs)


def test_learned_tensor_of_more_elements_than_an_int64_counts_is_sampled(tmp_path):
    weight = tensor("w", [1 << 62, 4], FLOAT)

    ledger, _, _ = reported(tmp_path, model(node("MatMul", ["x", "w"], ["y"]), weight))

    assert ledger.stored_elements == 1 << 64
    assert "payload-mismatch" in ids(ledger)


@pytest.mark.parametrize("number", [1, 11])
def test_length_of_eleven_bytes_within_a_run_is_no_message(tmp_path, number):
    run = block(number, b"") + key(number, 2) + b"\xff" * 10 + b"\x01" + bytes(64)

    with pytest.raises(ModelReadError, match=r"model\.onnx: \[not-onnx\] no protobuf message at byte 6: "):
        audit_model(save(tmp_path, model(run)))


@pytest.mark.parametrize("full", [False, True], ids=["sampled", "full"])
def test_the_checks_of_a_fuzzer_take_a_plain_model_and_a_truncated_one(tmp_path: Path, full: bool) -> None:
    content = model(node("Relu", ["x"], ["y"]), block(5, tensor("w", [1], FLOAT)))

    assert check_file(save(tmp_path, content), content, full=full) == "counted"
    assert check_file(save(tmp_path, content[:-1]), content[:-1], full=full) == "refused"


def test_changed_models_are_read_as_protobuf_reads_them(tmp_path: Path) -> None:
    outcomes = compare_many(small_models(), 400, tmp_path)

    assert outcomes.total() == 400
    assert outcomes["read alike"] > 300
    assert not list(tmp_path.iterdir()), outcomes  # a case with a defect


CHANGES: dict[str, Callable[[onnx.ModelProto], object]] = {
    "nodes": lambda proto: setattr(proto.graph.node[0], "op_type", "Abs"),
    "initializers": lambda proto: setattr(proto.graph.initializer[0], "name", "v"),
    "tensors": lambda proto: setattr(proto.graph.initializer[0], "data_type", TensorProto.INT32),
    "contents": lambda proto: setattr(proto.graph.initializer[0], "raw_data", struct.pack("<f", 2.5)),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_model_that_is_read_otherwise_than_by_protobuf_is_found(tmp_path: Path, what: str) -> None:
    content = model(node("Relu", ["x"], ["y"]), tensor("w", [1], FLOAT))
    read = read_model(save(tmp_path, content))
    proto = onnx.ModelProto.FromString(content)
    check_reading(read, proto)

    CHANGES[what](proto)

    with pytest.raises(BrokenPromiseError, match=f"^{what}: "):
        check_reading(read, proto)


# names that could be repeated


def test_long_operator_name_is_not_repeated_for_each_tensor_below_it(tmp_path):
    tensors = b"".join(tensor(str(index), [1], FLOAT) for index in range(50))
    body = block(5, block(1, "a" * 50_000), block(6, tensors), integer(20, 5))

    ledger, document, text = reported(tmp_path, model(node("O" * 50_000, [], ["y"], body)))

    assert ledger.stored_elements == 50
    assert len(document) + len(text) < 400_000


def test_long_node_name_is_not_repeated_for_each_tensor_in_it(tmp_path):
    values = b"".join(tensor("", [1], FLOAT, number=10) for _ in range(50))
    attribute = block(5, block(1, "a" * 50_000), values, integer(20, 9))

    _, document, text = reported(tmp_path, model(node("X", [], ["y"], block(3, "n" * 50_000), attribute)))

    assert len(document) + len(text) < 700_000


def test_long_function_name_is_not_repeated_for_each_tensor_in_it(tmp_path):
    constants = b"".join(
        block(7, block(2, f"c{i}"), block(4, "Constant"), block(5, block(1, "value"), tensor("", [1], FLOAT)))
        for i in range(50)
    )

    _, document, text = reported(tmp_path, model(rest=block(25, block(1, "F" * 100_000), constants)))

    assert len(document) + len(text) < 700_000


# lengths that a sparse file has for free

HOLE = 20 << 30


@pytest.mark.parametrize(
    "wraps",
    [
        pytest.param([(7, b""), (5, b""), (8, b"")], id="name-of-an-initializer"),
        pytest.param([(7, b""), (1, b""), (1, b"")], id="input-of-a-node"),
        pytest.param([(7, b""), (1, b""), (5, block(1, "a")), (4, b"")], id="text-of-an-attribute"),
        pytest.param([(7, b""), (13, block(1, "v")), (3, b"")], id="text-on-a-value"),
    ],
)
def test_name_of_gigabytes_is_refused_unread(tmp_path, wraps):
    path = tmp_path / "model.onnx"
    with path.open("wb") as file:
        file.write(head_of(wraps))
        file.truncate(file.tell() + HOLE)

    with pytest.raises(ModelReadError, match=r"model\.onnx: \[not-onnx\]"):
        audit_model(path)


def head_of(wraps: list[tuple[int, bytes]]) -> bytes:
    """Return the keys and lengths of nested messages, the innermost of which is a hole."""
    content = b""
    for index, (number, before) in enumerate(reversed(wraps)):
        inside = before + content if index else content
        content = key(number, 2) + varint(HOLE + len(inside)) + inside
    return content


# numbers


def test_packed_dims_of_megabytes_are_refused_unread(tmp_path):
    dims = block(5, block(1, b"\1" * 3_000_000), integer(2, 1), block(8, "w"))

    with pytest.raises(ModelReadError, match=r"\[invalid-dims\]"):
        audit_model(save(tmp_path, model(dims)))


def test_note_with_a_number_of_thousands_of_digits_is_ignored(tmp_path):
    note = block(4, block(1, "pkg.onnxscript.optimizer.folded_from"), block(2, f"[0x{'f' * 5000}]"))
    value = block(13, block(1, "w"), note)

    ledger, _, _ = reported(tmp_path, model(tensor("w", [1], FLOAT), value))

    assert ledger.stored_elements == 1


def test_note_of_megabytes_is_not_taken_apart(tmp_path):
    note = block(4, block(1, "pkg.onnxscript.optimizer.folded_from"), block(2, f"[{'1,' * 200_000}]"))
    value = block(13, block(1, "w"), note)

    ledger, _, _ = reported(tmp_path, model(tensor("w", [1], FLOAT), value))

    assert not ledger.model.graphs[0].metadata["w"]


# endless fields


@pytest.mark.parametrize(("number", "of"), [(1, "inputs"), (2, "outputs"), (9, "notes")])
def test_node_of_many_fields_counts_as_many_nodes(tmp_path, number, of):
    fields = block(number, b"") * 3_000

    with pytest.raises(ModelReadError, match="nodes and tensors"):
        audit_model(save(tmp_path, model(block(1, fields))), max_objects=400)


@pytest.mark.parametrize("number", [11, 12])
def test_graph_of_many_inputs_counts_as_many_nodes(tmp_path, number):
    values = b"".join(block(number, block(1, str(index))) for index in range(2_000))

    with pytest.raises(ModelReadError, match="nodes and tensors"):
        audit_model(save(tmp_path, model(values)), max_objects=400)


# quadratic work


@pytest.mark.slow
def test_equal_zero_biases_are_not_compared_with_each_other(tmp_path):
    nodes = [node("Conv", ["x", "k", f"b{index}"], [f"y{index}"]) for index in range(10_000)]
    biases = [tensor(f"b{index}", [16], bytes(64)) for index in range(10_000)]

    ledger, _, _ = reported(tmp_path, model(*nodes, *biases, tensor("k", [16, 1, 1, 1], FLOAT * 16)))

    assert ledger.stored_elements == 160_016


def test_scope_of_a_hundred_thousand_parts_is_grouped(tmp_path):
    name = "a." * 100_000 + "weight"

    ledger, document, _ = reported(tmp_path, model(node("Add", ["x", name], ["y"]), tensor(name, [1], FLOAT)))

    assert ledger.parameters == 1
    assert json.loads(document)["totals"]["parameters"] == 1


# permitted places of external data


def test_blobs_that_are_a_link_are_no_blobs(tmp_path):
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "w").write_bytes(FLOAT)
    snapshot = tmp_path / "cache" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (tmp_path / "cache" / "blobs").symlink_to(secret)
    (snapshot / "w.bin").symlink_to("../../blobs/w")
    entry = block(13, block(1, "location"), block(2, "w.bin"))
    external = block(5, integer(1, 1), integer(2, 1), block(8, "w"), entry, integer(14, 1))

    ledger = audit_model(save(snapshot, model(external)))

    assert "external-escapes" in ids(ledger)
    assert [file.path for file in ledger.model.files] == ["model.onnx"]


def test_the_name_of_a_function_is_escaped(tmp_path: Path) -> None:
    graph = block(1, b"".join(block(*each) for each in ((4, b"\x1b[2J"), (7, b"local"))))
    function = block(25, block(1, b"\x1b[2J") + block(10, b"local"))
    path = save(tmp_path, block(7, graph) + OPSET + function)

    ledger = audit_model(path)
    text = str(
        FORMATS["text"].render(Inspection(ledger, group_by(ledger, "op")), RenderOptions(verbose=True))
    )

    assert "local:" in text
    assert all(character.isprintable() or character == "\n" for character in text)


def test_a_tensor_of_more_elements_than_are_counted_is_one_for_protobuf_too(tmp_path: Path) -> None:
    huge = helper.make_tensor("", TensorProto.INT64, [8], range(8))
    huge.ClearField("dims")
    huge.dims.extend([255, 2**63 - 1, 3, 255, 2**63 - 1, 3])
    one = helper.make_node("TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", nodes_values=huge)
    content = helper.make_model(helper.make_graph([one], "g", [], [])).SerializeToString()
    path = tmp_path / "m.onnx"
    path.write_bytes(content)

    assert check_file(path, content) == "counted"
    assert "invalid-dims" in ids(audit_model(path))
