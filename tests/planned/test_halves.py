"""Casts that a session inserts around FLOAT16, planned without a session, compared with a run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from models import save, text_model

from analyzer.account.audit import audit_model
from analyzer.cost.memory.answer import MemoryQuery, answer_memory
from analyzer.cost.memory.opened import open_account
from tools.memory_matrix.truth import run

pytestmark = [pytest.mark.time, pytest.mark.usefixtures("forked_children", "newer_runtime")]

TEXT = """
<ir_version: 8, opset_import: ["": OPSET, "com.microsoft": 1]>
g (float16[n, 4] x) => (float16[n, k] y) <float16[4, 4] w, float16[4] b> { BODY }
"""
WEIGHTS = {"w": np.ones((4, 4), np.float16), "b": np.ones(4, np.float16)}


@pytest.mark.parametrize(
    ("opset", "body", "casts"),
    [
        pytest.param(17, "y = Add(x, b)", 3, id="no kernel: its inputs and its output"),
        pytest.param(17, "y = Identity(x)", 0, id="a kernel"),
        pytest.param(17, "a = MatMul(x, w) c = Add(a, b) y = Relu(c)", 4, id="none between two without a kernel"),
        pytest.param(17, "a = MatMul(x, w) t = Transpose(a) c = Relu(t) y = Transpose(c)", 3, id="one between two"),
        pytest.param(17, "t = Transpose(x) u = Transpose(t) y = MatMul(u, w)", 3, id="two kernels are not between"),
        pytest.param(17, "a = Relu(x) c = Concat<axis=1>(a, x) y = Relu(c)", 2, id="the first of any number counts"),
        pytest.param(17, "c = Concat<axis=1>(x, x) a = Relu(x) d = Concat<axis=1>(c, a) y = Relu(d)", 4, id="another"),
        pytest.param(17, "a = MatMul(x, w) c, d = Split<axis=1>(a) e = Relu(c) f = Transpose(d) y = MatMul(f, e)", 3,
                     id="the first of any number that are made counts"),
        pytest.param(17, "a = MatMul(x, w) d, c = Split<axis=1>(a) e = Relu(c) f = Transpose(d) y = MatMul(f, e)", 6,
                     id="and not the second"),
        pytest.param(17, "a = MatMul(x, w) c = Softmax<axis=-1>(a) y = MatMul(c, w)", 3, id="a function"),
        pytest.param(11, "a = MatMul(x, w) c = Softmax<axis=1>(a) y = MatMul(c, w)", 3, id="no function yet"),
        pytest.param(20, "a = MatMul(x, w) c = Gelu(a) y = MatMul(c, w)", 3, id="a function of constants"),
        pytest.param(18, "y = Mish(x)", 2, id="a function of functions"),
        pytest.param(20, "a = HardSwish(x) y = Mish(a)", 2, id="functions in a later version"),
        pytest.param(21, "a = LeakyRelu(x) y = Relu(a)", 2, id="a function of an older version"),
        pytest.param(17, "a = LayerNormalization(x, b) y = Relu(a)", 2, id="a norm with a kernel"),
        pytest.param(17, "a = Relu(x) c = LayerNormalization(a, b) y = Relu(c)", 3, id="a norm between two"),
        pytest.param(17, "a = Cast<to=1>(x) c = Cast<to=10>(a) y = Relu(c)", 2, id="Casts of the file"),
        pytest.param(17, "a = Relu(x) c = Cast<to=1>(a) d = Sin(c) e = Cast<to=10>(d) y = Cos(e)", 2, id="and between"),
        pytest.param(17, "s = Shape(x) z = Shape(w) a = Relu(x) c = Reshape(a, s) y = Relu(c)", 2, id="an alias"),
    ],
)  # fmt: skip
def test_what_is_planned_is_what_a_run_allocates(tmp_path: Path, opset: int, body: str, casts: int) -> None:
    text = TEXT.replace("OPSET", str(opset)).replace("BODY", body)
    path = save(tmp_path, text_model(text, WEIGHTS))
    ran = run(path, {"x": np.ones((3, 4), np.float16)}, "none").nodes

    with open_account(path) as account:
        planned = [account.program.steps[index].op_type for index in account.plan.order]
        needed = account.needed({"n": 3})

    assert planned == [node.op_type for node in ran]
    assert planned.count("Cast") == casts
    assert needed.peak is not None
    assert needed.peak.lives == tuple(node.live for node in ran)
    assert "casts of FLOAT16" not in {line.line for line in needed.lines}


@pytest.mark.parametrize(
    ("opset", "made"),
    [
        pytest.param(17, "HardSwish(c)", id="HardSwish"),
        pytest.param(22, "HardSwish(c)", id="HardSwish of a later version"),
        pytest.param(18, "Mish(c)", id="Mish"),
        pytest.param(24, "Swish(c)", id="Swish"),
        pytest.param(24, "Swish<alpha=1.5>(c)", id="Swish with a factor"),
        pytest.param(21, "GroupNormalization<num_groups=2>(c, s, s)", id="GroupNormalization"),
    ],
)
def test_an_operator_without_any_kernel_is_planned_as_its_function(
    tmp_path: Path, opset: int, made: str
) -> None:
    text = f"""
    <ir_version: 10, opset_import: ["": {opset}]>
    g (float[n, 4, 8] x) => (float[n, 4, 8] y) <float[4] s> {{ c = Relu(x) d = {made} y = Relu(d) }}
    """
    path = save(tmp_path, text_model(text, {"s": np.ones(4, np.float32)}))
    ran = run(path, {"x": np.ones((3, 4, 8), np.float32)}, "none").nodes

    with open_account(path) as account:
        planned = [account.program.steps[index].op_type for index in account.plan.order]
        needed = account.needed({"n": 3})

    assert planned == [node.op_type for node in ran]
    assert needed.peak is not None
    assert needed.peak.lives == tuple(node.live for node in ran)


def test_an_operator_of_which_nobody_knows_has_a_line_without_a_number(tmp_path: Path) -> None:
    body = "a = com.microsoft.Gelu(x) y = MatMul(a, w)"
    path = save(tmp_path, text_model(TEXT.replace("OPSET", "17").replace("BODY", body), WEIGHTS))
    lines_of = {
        level: answer_memory(audit_model(path), MemoryQuery(level=level)).needed.lines
        for level in (None, "none")
    }
    (line,) = (line for line in lines_of[None] if line.line == "casts of FLOAT16")
    assert line.value is None
    assert "1 node " in line.note
    assert all(line.line != "casts of FLOAT16" for line in lines_of["none"])


def test_a_cast_that_a_converter_has_put_behind_all_other_nodes(tmp_path: Path) -> None:
    """The Cast's reader comes first in the file, so that only value_info has its type; `-1` is then still a size."""
    text = """
    <ir_version: 8, opset_import: ["": 17]>
    g (float[n, 2, 8] x) => (float16[k, m, l] y) <float16[2, 2, 1] w, int64[3] t>
    {
        a = Conv(h, w) b = Reshape(a, t) c = Softmax<axis=-1>(b) y = Relu(c) h = Cast<to=10>(x)
    }
    """
    proto = text_model(text, {"w": np.ones((2, 2, 1), np.float16), "t": np.array([-1, 4, 4])})
    for name in ("h", "a"):
        proto.graph.value_info.append(
            onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT16, ["n", 2, 8])
        )
    path = save(tmp_path, proto)
    ran = run(path, {"x": np.ones((2, 2, 8), np.float32)}, "none").nodes

    with open_account(path) as account:
        needed = account.needed({"n": 2})

    assert needed.peak is not None
    assert needed.peak.lives == tuple(node.live for node in ran)


def test_a_gpu_computes_in_float16_and_packs_nothing(tmp_path: Path) -> None:
    text = TEXT.replace("OPSET", "17").replace("BODY", "a = MatMul(x, w) c = Add(a, b) y = Relu(c)")
    path = save(tmp_path, text_model(text, WEIGHTS))

    with open_account(path, on_gpu=True) as account:
        planned = [account.program.steps[index].op_type for index in account.plan.order]
        needed = account.needed({"n": 3})

    assert planned == ["MatMul", "Add", "Relu"]
    lines = {line.line: line.value for line in needed.lines}
    assert "prepacked weights" not in lines
    assert lines["weights, copied"] == sum(array.nbytes for array in WEIGHTS.values())
    assert needed.peak is not None
    assert needed.peak.nbytes == 2 * 3 * 4 * 2
