"""Copies of a DequantizeLinear for its readers, planned without a session, compared with a run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from models import save, text_model

from analyzer.cost.memory.opened import open_account
from tools.memory_matrix.truth import run

pytestmark = [pytest.mark.time, pytest.mark.usefixtures("forked_children", "newer_runtime")]

TEXT = """
<ir_version: 8, opset_import: ["": 18]>
g (float[n, 4] x, int32[n, 4] other) => (float[n, k] y)
<float s = {0.5}, uint8 z = {0}, uint8[4, 4] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7}>
{ q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) BODY }
"""


@pytest.mark.parametrize(
    ("body", "copies"),
    [
        pytest.param("y = Relu(d)", 0, id="one reader"),
        pytest.param("a = Relu(d) b = Exp(d) y = Add(a, b)", 1, id="another"),
        pytest.param("y = Add(d, d)", 1, id="the same one twice"),
        pytest.param("e = CastLike(other, d) y = Add(d, e)", 1, id="one that only asks for its type"),
        pytest.param(
            "e = CastLike(d, other) f = CastLike(e, x) y = Add(f, d)", 1, id="a Cast behind all others"
        ),
        pytest.param(
            "v = DequantizeLinear(w, s, z) a = MatMul(d, v) b = MatMul(d, v) y = Add(a, b)",
            2,
            id="made in the order of the run",
        ),
    ],
)
def test_what_is_planned_is_what_a_run_allocates(tmp_path: Path, body: str, copies: int) -> None:
    path = save(tmp_path, text_model(TEXT.replace("BODY", body), {}))
    feeds = {"x": np.ones((3, 4), np.float32), "other": np.ones((3, 4), np.int32)}
    ran = run(path, feeds, "none").nodes

    with open_account(path) as account:
        planned = [account.program.steps[index] for index in account.plan.order]
        needed = account.needed({"n": 3})

    assert [step.op_type for step in planned] == [node.op_type for node in ran]
    assert sum(step.name.endswith("/duplicated") for step in planned) == copies
    assert needed.peak is not None
    assert needed.peak.lives == tuple(node.live for node in ran)


def test_of_a_copy_no_more_is_known_than_of_what_it_reads(tmp_path: Path) -> None:
    """The graph has an output whose axes the file names, and which a node reads, too."""
    text = """
    <ir_version: 8, opset_import: ["": 18]>
    g (float[n, 4] x, int64[2] t) => (float[a, b] d, float[k, m] y) <float s = {0.5}, uint8 z = {0}>
    {
        h = Reshape(x, t) q = QuantizeLinear(h, s, z) d = DequantizeLinear(q, s, z)
        e = Relu(d) f = Exp(e) i = Exp(f) y = Exp(i)
    }
    """
    path = save(tmp_path, text_model(text, {}))
    ran = run(path, {"x": np.ones((3, 4), np.float32), "t": np.array([3, 4])}, "none").nodes

    for level in (None, "none"):
        with open_account(path, level=level) as account:
            (copy,) = (step for step in account.program.steps if step.name.endswith("/duplicated"))
            assert account.program.values[copy.outputs[0]].shape == (None, None)
    assert [node.op_type for node in ran].count("DequantizeLinear") == 2
