"""The memory of a run: lines, the peak, and limits; for files of a few nodes."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from commands import run_here
from models import noise, save, text_model

from analyzer.account.audit import audit_model
from analyzer.cost.memory.account import Basis
from analyzer.cost.memory.answer import MemoryQuery, answer_memory, file_of
from analyzer.cost.memory.devices import find_device
from analyzer.cost.memory.fits import find_room
from analyzer.cost.memory.judged import parse_memory_limit
from analyzer.cost.memory.kernels import reuses_of
from analyzer.cost.memory.opened import open_account
from analyzer.errors import CostError, UsageError
from analyzer.formats.graph import picture
from analyzer.timing.inputs.sizes import parse_shapes

TEXT = """
<ir_version: 8, opset_import: ["": 17]>
agraph (float[batch, 40] x) => (float[batch, 10] y)
<float[40, 20] v, float[20, 10] w>
{
    a = MatMul(x, v)
    b = Relu(a)
    c = Sin(b)
    d = Sin(c)
    y = MatMul(d, w)
}
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    weights = {"v": np.ones((40, 20), np.float32), "w": np.ones((20, 10), np.float32)}
    return save(tmp_path, text_model(TEXT, weights))


@pytest.mark.child
def test_the_lines_of_a_small_model(model: Path) -> None:
    with open_account(model) as account:
        needed = account.needed({"batch": 3}, formulas=True)
    lines = {line.line: line for line in needed.lines}
    assert lines["weights, copied"].value == 4 * (40 * 20 + 20 * 10)
    assert lines["prepacked weights"].value == 4 * (40 * 32 + 20 * 16)  # columns of 16, filled up
    assert lines["inputs"].value == 3 * 40 * 4
    assert str(lines["inputs"].polynomial) == "160*batch"
    # a and b share memory, c has its own, d takes that of a; y is an output
    assert lines["activations"].value == 2 * 3 * 20 * 4
    assert str(lines["activations"].polynomial) == "160*batch"
    assert needed.peak is not None
    assert needed.peak.nbytes == 480
    assert {tensor.value for tensor in needed.peak.live} == {"b", "c"}
    assert needed.total == sum(line.value for line in needed.lines if line.value is not None)


@pytest.mark.child
def test_what_is_not_modelled_has_a_line_and_no_number(model: Path) -> None:
    answer = answer_memory(audit_model(model), MemoryQuery(is_gpu=True))
    unknown = {line.line: line for line in answer.needed.lines if line.value is None}
    assert set(unknown) == {
        "scratch of kernels",
        "growth of the arena",
        "prepacked weights",
        "context and workspaces of the GPU",
    }
    assert all(
        line.note.startswith("not modelled") and line.basis is Basis.MODELLED for line in unknown.values()
    )


@pytest.mark.child
def test_the_largest_batch_fits_and_one_more_does_not(model: Path) -> None:
    with open_account(model) as account:
        memory = account.needed({"batch": 37}).total or 0
        more = account.needed({"batch": 38}).total or 0
    (fit,) = answer_memory(audit_model(model), MemoryQuery(memory=memory)).fits
    assert (fit.axis, fit.largest, fit.reason, fit.at) == ("batch", 37, "memory", ())
    (fit,) = answer_memory(audit_model(model), MemoryQuery(memory=more - 1)).fits
    assert fit.largest == 37
    (fit,) = answer_memory(audit_model(model), MemoryQuery(memory=100)).fits
    assert fit.largest == 0


@pytest.mark.child
def test_a_run_that_does_not_fit_says_from_which_line_on(model: Path) -> None:
    needed = answer_memory(audit_model(model), MemoryQuery(parse_shapes(["batch=100"]))).needed
    room = find_room(needed.lines, needed.total, 20_000)
    assert (room.fits, room.line) == (False, "inputs")
    assert find_room(needed.lines, needed.total, 1 << 20).fits is True


@pytest.mark.child
def test_a_size_that_the_shapes_refuse_ends_the_search(tmp_path: Path) -> None:
    text = """
    <ir_version: 8, opset_import: ["": 17]>
    agraph (float[length, 4] x) => (float[length, 4] y)
    <float[64, 4] table, int64[1] zero = {0}, int64[1] start = {0}>
    {
        s = Shape <start = 0, end = 1> (x)
        part = Slice(table, start, s, zero)
        y = Add(x, part)
    }
    """
    path = save(tmp_path, text_model(text, {"table": np.ones((64, 4), np.float32)}))
    (fit,) = answer_memory(audit_model(path), MemoryQuery(parse_shapes(["length=8"]), memory=1 << 30)).fits
    assert (fit.axis, fit.largest, fit.reason) == ("length", 64, "shapes")

    first = " ".join(run_here("cost", path, "--shape", "length=65", "--memory", "1GiB").stdout.split())
    unfit = "the inputs of Add do not fit each other at these sizes"
    assert f"whether it fits 1.00 GiB is not known: {unfit}" in first
    assert (
        "NOT COMPLETE: the model does not run at these sizes (y: the inputs do not fit each other: 65 and 64)"
        in first
    )


@pytest.mark.child
def test_sizes_that_values_decide_are_not_guessed(tmp_path: Path) -> None:
    text = """
    <ir_version: 8, opset_import: ["": 17]>
    agraph (float[batch, 4] x) => (int64[2, n] y)
    {
        a = NonZero(x)
        y = Add(a, a)
    }
    """
    answer = answer_memory(audit_model(save(tmp_path, text_model(text))), MemoryQuery(memory=1 << 30))
    assert answer.needed.total is None
    assert answer.needed.peak is None
    assert answer.room is not None
    assert answer.room.fits is None
    assert [fit.reason for fit in answer.fits] == ["unknown"]
    assert answer.needed.unknown


@pytest.mark.child
def test_nodes_of_nested_graphs_are_reported(tmp_path: Path) -> None:
    text = """
    <ir_version: 8, opset_import: ["": 17]>
    agraph (float[4] x, bool c) => (float[4] y)
    {
        y = If (c) <
            then_branch = g () => (float[4] a) { a = Sin(x) },
            else_branch = h () => (float[4] b) { b = Cos(x) }
        >
    }
    """
    needed = answer_memory(audit_model(save(tmp_path, text_model(text))), MemoryQuery()).needed
    assert "2 nodes in graphs" in next(line.note for line in needed.lines if line.line == "nested graphs")


@pytest.mark.child
@pytest.mark.parametrize(
    ("limit", "code", "phrase"), [("1kB", 1, "FAIL"), ("50kB", 2, "bodies"), ("1MB", 0, "PASS")]
)
def test_a_limit_passes_only_what_bodies_cannot_exceed(
    limit: str, code: int, phrase: str, tmp_path: Path
) -> None:
    text = """
    <ir_version: 8, opset_import: ["": 17]>
    agraph (float[n, 8] x) => (float[n, 8] y) <int64 trip = {5}>
    {
        y = Loop (trip, , x) <body = g (int64 i, bool go, float[n, 8] a) => (bool stay, float[n, 8] d) {
            stay = Identity(go)
            b = Sin(a)
            c = Cos(b)
            d = Tanh(c)
        }>
    }
    """
    model = save(tmp_path, text_model(text))

    result = run_here("check", model, "--max-memory", f"n=500: {limit}")

    assert result.returncode == code
    assert phrase in result.stdout
    fits = run_here("cost", model, "--shape", "n=500", "--memory", limit).stdout
    assert {0: "\nfits", 1: "\nDOES NOT FIT", 2: "\nwhether it fits"}[code] in fits


@pytest.mark.child
@pytest.mark.parametrize("op_type", ["If", "Loop", "Scan"])
def test_the_largest_size_that_fits_passes_a_limit_and_one_more_does_not(
    op_type: str, tmp_path: Path
) -> None:
    body = "b = Sin(a) c = Cos(b) d = Tanh(c)"
    node = {
        "If": f"""If (go) <
            then_branch = g () => (float[n, 8] d) {{ a = Neg(x) {body} }},
            else_branch = h () => (float[n, 8] e) {{ e = Abs(x) }}
        >""",
        "Loop": f"""Loop (trip, , x) <body = g (int64 i, bool go, float[n, 8] a) => (bool stay, float[n, 8] d) {{
            stay = Identity(go) {body} }}>""",
        "Scan": f"""Scan (x) <num_scan_inputs = 1, body = g (float[8] a) => (float[8] d) {{ {body} }}>""",
    }[op_type]
    text = f"""
    <ir_version: 8, opset_import: ["": 17]>
    agraph (float[n, 8] x, bool go) => (float[n, 8] y) <int64 trip = {{5}}> {{ y = {node} }}
    """
    model = save(tmp_path, text_model(text))

    (fit,) = answer_memory(audit_model(model), MemoryQuery(parse_shapes(["n=4"]), memory=1_000_000)).fits

    assert (fit.axis, fit.reason) == ("n", "memory")
    assert fit.largest is not None
    assert fit.largest > 100
    for size, code in ((fit.largest, 0), (fit.largest + 1, 2)):
        assert run_here("check", model, "--max-memory", f"n={size}: 1MB").returncode == code


@pytest.mark.child
def test_the_failure_of_a_limit_says_by_how_much_before_the_conditions(model: Path) -> None:
    printed = " ".join(run_here("check", model, "--max-memory", "batch=800: 100KiB").stdout.split())

    found = "260.16 KiB are 160.16 KiB more than the 100.00 KiB allowed. The run is at batch=800, on the file as it"
    assert found in printed


@pytest.mark.child
def test_pieces_that_a_loop_stacks_count_beside_the_whole(tmp_path: Path) -> None:
    """onnxruntime keeps the result of each iteration until it has joined all, so that the output exists twice."""
    text = """
    <ir_version: 8, opset_import: ["": 17]>
    agraph (float[n, 8] x) => (float[m, n, 8] y) <int64 trip = {100}>
    {
        z, y = Loop (trip, , x) <body = g (int64 i, bool go, float[n, 8] a)
            => (bool stay, float[n, 8] d, float[n, 8] e) { stay = Identity(go) d = Sin(a) e = Cos(a) }>
    }
    """
    model = save(tmp_path, text_model(text))

    result = run_here("check", model, "--max-memory", "n=1000: 4MB")

    assert result.returncode == 2, "the output alone has 3.2 MB, and its pieces have as many"
    assert "not evaluated" in result.stdout
    assert run_here("check", model, "--max-memory", "n=1000: 12MB").returncode == 0


@pytest.mark.child
def test_the_body_of_another_operator_is_not_taken_for_free(tmp_path: Path) -> None:
    text = """
    <ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>
    agraph (int32[n] ids, int32[1] length) => (int32[4, 1, 16] y)
    {
        y = com.microsoft.Search (ids, length) <
            decoder = g (float[64, 64] a) => (float[64, 64] c) { b = MatMul(a, a) c = Sin(b) }
        >
    }
    """
    model = save(tmp_path, text_model(text))

    assert run_here("check", model, "--max-memory", "n=8: 1MB").returncode == 2


@pytest.mark.child
def test_a_broken_file_is_refused_and_not_planned(tmp_path: Path) -> None:
    path = tmp_path / "broken.onnx"
    path.write_bytes(b"\x08\x01garbage")
    with pytest.raises(CostError, match=r"broken\.onnx"), open_account(path):
        pass


def test_devices_have_names() -> None:
    assert find_device("T4").nbytes == 16 << 30
    assert find_device("m2-16gb").is_gpu is False
    with pytest.raises(UsageError, match="did you mean h100-80gb"):
        find_device("h100-80")


def test_kernels_of_the_nearest_version_are_taken() -> None:
    assert reuses_of("1.23.2")[0] == "1.31"
    name, reuses = reuses_of()
    assert name == "1.32"
    assert reuses.aliases["", "Reshape"] == ((0, 0),)
    assert reuses.in_place["com.microsoft", "FusedConv"] == ((3, 0),)


@pytest.mark.parametrize("text", ["", "6", "batch=8: lots", "batch=1:4: 6GiB"])
def test_limits_without_meaning_are_refused(text: str) -> None:
    if text == "6":
        assert parse_memory_limit(text).nbytes == 6
        return
    with pytest.raises(UsageError, match=r"max-memory|shape"):
        parse_memory_limit(text)


@pytest.mark.child
def test_check_compares_what_a_run_takes_with_its_limit(model: Path) -> None:
    result = run_here("check", model, "--max-memory", "batch=8: 1MiB")
    assert result.returncode == 0, result.stdout + result.stderr
    result = run_here("check", model, "--max-memory", "batch=8: 1MiB", "--max-memory", "batch=800: 100kB")
    assert result.returncode == 1
    assert "max-memory batch=800" in result.stdout


@pytest.mark.time
def test_check_judges_what_onnxruntime_makes_of_the_file(tmp_path: Path) -> None:
    text = """
    <ir_version: 8, opset_import: ["": 17]>
    agraph (float[batch, 4096] x) => (float[batch, 4096] y)
    { a = Add(x, x) b = Identity(a) c = Identity(b) y = Relu(c) }
    """
    path = save(tmp_path, text_model(text))
    levels = {
        level: run_here("check", path, "--max-memory", "batch=8: 1MiB", *level).stdout
        for level in ((), ("--optimization", "all"))
    }

    assert "the file as it stands, not optimized (--optimization)" in " ".join(levels[()].split())
    optimized = " ".join(levels["--optimization", "all"].split())
    assert "PASS" in optimized
    assert "onnxruntime's graph of it (all)" in optimized


def test_what_needs_onnxruntime_names_the_extra_where_it_is_not_there(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    checked = run_here("check", model, "--max-memory", "1GiB", "--optimization", "all")
    planned = run_here("cost", model, "--memory", "1GiB", "--optimization", "all")
    measured = run_here("cost", model, "--measured")
    verified = run_here("verify", model, "--against", model)

    assert [each.returncode for each in (checked, planned, measured, verified)] == [2, 2, 2, 2]
    for text in (checked.stdout, planned.stderr, measured.stderr, verified.stderr):
        assert 'onnxruntime, which is not installed: pip install "onnxledger[time]"' in " ".join(text.split())


def test_a_level_of_optimization_is_of_a_limit_of_memory(model: Path) -> None:
    result = run_here("check", model, "--max-nodes", "9", "--optimization", "all")

    assert result.returncode == 2
    assert "--optimization is for --max-memory; give that too" in result.stderr


@pytest.mark.parametrize("flag", ["--max-memory", "--max-macs"])
def test_a_size_of_no_axis_is_reported_under_the_flag_that_gave_it(flag: str, model: Path) -> None:
    result = run_here("check", model, flag, "nope=8: 1G")

    assert result.returncode == 2
    assert f"{flag}, nope: no " in " ".join(result.stdout.split())


@pytest.mark.child
def test_check_answers_nothing_where_nobody_knows(tmp_path: Path) -> None:
    text = """
    <ir_version: 8, opset_import: ["": 17]>
    agraph (float[batch, 4] x) => (int64[2, n] y) { a = NonZero(x) y = Add(a, a) }
    """
    path = save(tmp_path, text_model(text))
    result = run_here("check", path, "--max-memory", "1GiB")
    assert result.returncode == 2
    assert "unknown before the run" in " ".join(result.stdout.split())


@pytest.mark.child
def test_cost_says_what_a_run_takes_and_what_fits(model: Path) -> None:
    import json

    result = run_here("cost", model, "--shape", "batch=3", "--memory", "1MiB", "--format", "json")
    document = json.loads(result.stdout)
    assert document["memory_at"] == {"batch": 3}
    assert document["peak"]["value"] == 480
    assert document["peak"]["expression"] == "160*batch"
    assert document["room"]["fits"] is True
    assert document["room"]["needed"] == sum(
        line["value"] for line in document["memory"] if line["value"] is not None
    )
    (fit,) = document["fits"]
    assert fit["axis"] == "batch"
    assert fit["largest"] > 1000
    assert {line["basis"] for line in document["memory"]} <= {"exact", "modelled", "measured"}
    plain = json.loads(run_here("cost", model, "--format", "json").stdout)
    assert (plain["memory"], plain["peak"], plain["room"], plain["fits"]) == ([], None, None, [])
    text = run_here("cost", model, "--shape", "batch=3", "--memory", "1kB").stdout
    assert "DOES NOT FIT" in text
    assert "largest batch" in text


@pytest.mark.child
def test_an_axis_that_is_called_a_number_is_distinguished_from_one(tmp_path: Path) -> None:
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[n, 4] x) => (float[n, 4] y) { y = Relu(x) }'
    proto = text_model(text)
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "9"

    printed = run_here("cost", save(tmp_path, proto), "--memory", "1GiB").stdout

    assert "memory of a run at axis_9=9" in printed
    assert "16 axis_9" in printed
    assert "largest axis_9" in printed


def test_options_of_memory_want_memory(model: Path) -> None:
    for options in (("--past", "3"), ("--optimization", "all"), ("--memory", "1GiB", "--device", "t4")):
        assert run_here("cost", model, *options).returncode == 2


def test_a_local_file_is_planned_from(model: Path) -> None:
    assert file_of(audit_model(model)) == model


@pytest.mark.child
def test_a_shape_that_only_the_rules_of_the_cost_know_is_a_size_too(tmp_path: Path) -> None:
    """Only the rules of the cost know `NhwcConv`."""
    text = """agraph (float[batch, 8, 8, 3] x) => (float[batch, 6, 6, 5] y) {
        a = Relu(x) h = com.microsoft.NhwcConv <kernel_shape = [3, 3]> (a, k) y = Relu(h)
    }"""
    path = save(tmp_path, text_model(text, {"k": noise(5, 3, 3, 3)}))

    answer = answer_memory(audit_model(path), MemoryQuery(parse_shapes(["batch=7"])))

    with open_account(path) as account:
        assert account.needed({"batch": 7}).unknown == ("h",)
    assert answer.needed.peak is not None
    assert answer.needed.peak.nbytes == 7 * (8 * 8 * 3 + 6 * 6 * 5) * 4  # a and h
    assert str(answer.needed.peak.polynomial) == f"{answer.needed.peak.nbytes // 7}*batch"


@pytest.mark.child
def test_a_value_of_which_the_file_has_no_more_than_a_name_is_a_tensor_too(tmp_path: Path) -> None:
    """Quantizers leave value_info with only a name behind onnxruntime's own operators."""
    text = "agraph (float[batch, 8] x) => (float[batch, 8] y) { a = com.microsoft.Gelu(x) y = Relu(a) }"
    proto = text_model(text, {})
    proto.graph.value_info.append(onnx.ValueInfoProto(name="a"))

    answer = answer_memory(audit_model(save(tmp_path, proto)), MemoryQuery(parse_shapes(["batch=7"])))

    assert answer.needed.peak is not None
    assert answer.needed.peak.nbytes == 2 * 7 * 8 * 4  # a and y


def test_functions_that_double_are_refused_before_they_are_expanded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["Relu", *(f"F{at}" for at in range(30))]
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("f", 1)]
    proto = text_model("agraph (float[2] x) => (float[2] y) { y = f.F29(x) }", {})
    for inner, name in itertools.pairwise(names):
        domain = "f" if inner != "Relu" else ""
        nodes = [onnx.helper.make_node(inner, [a], [b], domain=domain) for a, b in ("xh", "hy")]
        proto.functions.append(onnx.helper.make_function("f", name, ["x"], ["y"], nodes, opsets))
    proto.opset_import.append(onnx.helper.make_opsetid("f", 1))
    ledger = audit_model(save(tmp_path, proto))

    with pytest.raises(CostError, match=r"function F\d+ alone would have [\d,]+ nodes"):
        answer_memory(ledger, MemoryQuery())

    def infer(*_: object, **__: object) -> None:
        raise AssertionError("shapes are inferred with all calls expanded")

    monkeypatch.setattr(picture, "open_inference", infer)
    assert picture.draw_groups(ledger, picture.label_picture(ledger))


@pytest.mark.child
@pytest.mark.parametrize(("dtype", "has_line"), [(np.float16, True), (np.float32, False)])
def test_a_file_of_halves_says_that_optimizations_take_more(
    dtype: type[np.generic], has_line: bool, tmp_path: Path
) -> None:
    half = "float16" if dtype is np.float16 else "float"
    text = f"""
    <ir_version: 8, opset_import: ["": 17]>
    agraph ({half}[n, 64] x) => ({half}[n, 64] y) {{ y = MatMul(x, w) }}
    """
    model = save(tmp_path, text_model(text, {"w": np.ones((64, 64), dtype)}))

    needed = answer_memory(audit_model(model), MemoryQuery(parse_shapes(["n=2"]))).needed

    assert ("FLOAT16 weights in FLOAT" in {line.line for line in needed.lines}) is has_line
    result = run_here("check", model, "--max-memory", "n=2: 1MB", "--format", "json")
    assert ("FLOAT16 weights in FLOAT" in result.stdout) is has_line
