"""Casts that a session removes before any other optimization."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from models import save, text_model

from analyzer.cost.memory.opened import open_account
from tools.memory_matrix.truth import run

pytestmark = [pytest.mark.time, pytest.mark.usefixtures("forked_children", "newer_runtime")]

TEXT = """
<ir_version: 8, opset_import: ["": 17]>
g (KIND[n, 4] x) => (RESULT[n, 4] y) { BODY }
"""


@pytest.mark.parametrize(
    ("kind", "result", "body", "casts"),
    [
        ("float", "float", "a = Neg(x) b = Cast<to=11>(a) c = Cast<to=1>(b) y = Neg(c)", 0),
        (
            "float",
            "float",
            "a = Neg(x) b = Cast<to=7>(a) c = Cast<to=1>(b) y = Neg(c)",
            2,
        ),  # loses a fraction
        ("float", "float", "a = Neg(x) b = Cast<to=10>(a) c = Cast<to=1>(b) y = Neg(c)", 2),
        ("int32", "int32", "a = Neg(x) b = Cast<to=7>(a) c = Cast<to=6>(b) y = Neg(c)", 0),
        ("int32", "int32", "a = Neg(x) b = Cast<to=1>(a) c = Cast<to=6>(b) y = Neg(c)", 2),
        ("int32", "int32", "a = Neg(x) b = Cast<to=11>(a) c = Cast<to=6>(b) y = Neg(c)", 0),
        ("float", "float", "a = Neg(x) b = Cast<to=1>(a) c = Cast<to=1>(b) d = Neg(b) y = Add(c, d)", 1),
        ("float", "int64", "a = Neg(x) b = Cast<to=11>(a) c = Cast<to=7>(b) y = Neg(c)", 1),
        ("float", "int64", "a = Neg(x) b = Cast<to=7>(a) c = Cast<to=7>(b) y = Neg(c)", 1),
        ("int64", "float", "a = Neg(x) b = Cast<to=6>(a) c = Cast<to=1>(b) y = Neg(c)", 2),
        (
            "float",
            "float",
            "a = Neg(x) b = Cast<to=11>(a) c = Cast<to=1>(b) d = Cast<to=7>(b) e = Cast<to=1>(d) y = Add(c, e)",
            2,
        ),
    ],
)
def test_what_is_planned_is_what_runs(tmp_path: Path, kind: str, result: str, body: str, casts: int) -> None:
    text = TEXT.replace("KIND", kind).replace("RESULT", result).replace("BODY", body)
    path = save(tmp_path, text_model(text))
    array = np.ones((3, 4), {"float": np.float32, "int32": np.int32, "int64": np.int64}[kind])
    ran = run(path, {"x": array}, "none").nodes

    with open_account(path) as account:
        planned = [account.program.steps[index].op_type for index in account.plan.order]
        lives = account.needed({"n": 3}).peak

    assert planned == [node.op_type for node in ran]
    assert planned.count("Cast") == casts
    assert lives is not None
    assert lives.nbytes == max(node.live for node in ran)
