"""Experts that select tokens by value: the share of each is unknown, the share of all is known."""

from __future__ import annotations

import numpy as np
import pytest
from models import audit, noise, text_model

from analyzer.cost.account import measure_cost
from analyzer.cost.algebra import evaluate
from analyzer.cost.record import CostReport

EXPERTS = """
<ir_version: 8, opset_import: ["": 18]>
g (float[b, 8] x, int64[b, 2] chosen) => (float[n, 16] y)
<int64[1] minus = {-1}, float one = {1.0}, int64[1] first = {0}, int64 zero = {0}, int64 step = {1}>
{
    flat = Reshape(chosen, minus)
    order = Cast <to = 7> (flat)
    size = Shape(flat)
    ones = Expand(one, size)
    counts = ScatterElements <axis = 0, reduction = "add"> (zeros, flat, ones)
    whole = Cast <to = 7> (counts)
    sums = CumSum(whole, zero)
    e0, e1, e2 = Split <axis = 0, num_outputs = 3> (sums)
    s0 = Squeeze(e0, first)
    s1 = Squeeze(e1, first)
    s2 = Squeeze(e2, first)
    r0 = Range(zero, s0, step)
    r1 = Range(s0, s1, step)
    r2 = Range(s1, s2, step)
    both = Concat <axis = 0> (x, x)
    x0 = Gather(both, r0)
    x1 = Gather(both, r1)
    x2 = Gather(both, r2)
    y0 = MatMul(x0, w0)
    y1 = MatMul(x1, w1)
    y2 = MatMul(x2, w2)
    y = Concat <axis = 0> (y0, y1, y2)
}
"""


def measured(folder: object, text: str = EXPERTS, **weights: np.ndarray) -> CostReport:  # type: ignore[type-arg]
    stored = {
        "zeros": np.zeros(3, np.float32),
        **{f"w{number}": noise(8, 16, seed=number) for number in range(3)},
        **weights,
    }
    return measure_cost(audit(folder, text_model(text, stored)), "op")  # type: ignore[arg-type]


def test_all_experts_together_take_each_token_as_often_as_it_is_sent(tmp_path: object) -> None:
    report = measured(tmp_path)

    assert report.unknown == ()
    assert str(report.total.macs) == "256*b"  # 2 experts a token, 8 x 16
    assert evaluate(report.total.flops, {"b": 4}) is not None


def test_the_ones_may_be_stored_where_all_sizes_are_fixed(tmp_path: object) -> None:
    text = EXPERTS.replace("[b, ", "[30, ").replace("ones = Expand(one, size)", "")
    stored = np.ones(60, np.float32)

    assert str(measured(tmp_path, text, ones=stored).total.macs) == str(60 * 8 * 16)
    stored[7] = 2
    assert not measured(tmp_path, text, ones=stored).is_complete


@pytest.mark.parametrize(
    ("text", "weights"),
    [
        (EXPERTS.replace(', reduction = "add"', ""), {}),  # the last expert overwrites the others
        (EXPERTS, {"zeros": np.ones(3, np.float32)}),
        (EXPERTS, {"w2": noise(8, 16)[:, :8]}),  # experts that differ
        (EXPERTS.replace("MatMul(x2, w2)", "MatMul(x1, w2)"), {}),  # one expert takes another's tokens
        (EXPERTS.replace("Cast <to = 7> (counts)", "Neg(chosen)"), {}),
    ],
)
def test_what_proves_no_sum_stays_unknown(
    tmp_path: object, text: str, weights: dict[str, np.ndarray]
) -> None:  # type: ignore[type-arg]
    report = measured(tmp_path, text, **weights)

    assert "MatMul" in {row.op_type for row in report.unknown}
    assert not report.is_complete


def test_experts_in_groups_of_their_own_stay_unknown(tmp_path: object) -> None:
    text = EXPERTS.replace("y2 = MatMul(x2, w2)", "wide = Transpose(w2) y2 = Gemm <transB = 1> (x2, wide)")
    report = measured(tmp_path, text)

    assert {row.op_type for row in report.unknown} >= {"MatMul", "Gemm"}
    assert str(report.total.macs) == "256*b"
