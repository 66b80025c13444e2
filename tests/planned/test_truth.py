"""Planned memory, compared with onnxruntime's requests at every node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from models import save, text_model
from samples import sampled

from analyzer.account.audit import audit_model
from analyzer.cost.memory.answer import MemoryQuery, answer_memory
from tools.memory_matrix.cells import WAYS, compare_file
from tools.memory_matrix.truth import run

pytestmark = [pytest.mark.time, pytest.mark.usefixtures("forked_children", "newer_runtime")]

BLOCK = """
<ir_version: 8, opset_import: ["": 17]>
agraph (float[batch, length, 16] x) => (float[batch, length, 16] y)
<float[16, 48] v, float[16, 16] w, int64[2] size = {16, 32}, int64[3] three = {16, 16, 16}, float root = {4.0}>
{
    both = MatMul(x, v)
    q, k, h = Split <axis = -1> (both, three)
    kt = Transpose <perm = [0, 2, 1]> (k)
    s = MatMul(q, kt)
    scaled = Div(s, root)
    p = Softmax(scaled)
    a = MatMul(p, h)
    o = MatMul(a, w)
    r = Add(o, x)
    f = Sigmoid(r)
    g = Mul(f, r)
    t, unread = Split <axis = -1> (g)
    u = Concat <axis = -1> (t, t)
    c = Relu(u)
    y = Identity(c)
}
"""


def block(folder: Path) -> Path:
    weights = {"v": np.ones((16, 48), np.float32), "w": np.ones((16, 16), np.float32)}
    return save(folder, text_model(BLOCK, weights))


def test_every_node_of_a_block_is_equal_in_every_way(tmp_path: Path) -> None:
    cells = list(compare_file(block(tmp_path), "block"))
    assert {cell.way for cell in cells} == set(WAYS)
    assert len(cells) == 9
    assert [cell for cell in cells if not cell.is_equal or cell.planned != cell.requested] == []


def test_packed_weights_are_what_a_session_takes_more(tmp_path: Path) -> None:
    path = block(tmp_path)
    feeds = {"x": np.ones((2, 5, 16), np.float32)}
    more = (
        run(path, feeds, "none").requested_before
        - run(path, feeds, "none", prepacking=False).requested_before
    )
    lines = {line.line: line.value for line in answer_memory(audit_model(path), MemoryQuery()).needed.lines}
    assert lines["prepacked weights"] == more == 4 * (16 * 48 + 16 * 16)


@pytest.mark.parametrize(
    ("depth", "width", "turned"), [(64, 60, False), (63, 65, False), (7, 33, True), (300, 1, False)]
)
def test_packed_weights_of_gemm(tmp_path: Path, depth: int, width: int, turned: bool) -> None:
    text = f"""
    <ir_version: 8, opset_import: ["": 17]>
    agraph (float[n, {depth}] x) => (float[n, {width}] y) {{ y = Gemm <transB = {int(turned)}> (x, w) }}
    """
    shape = (width, depth) if turned else (depth, width)
    path = save(tmp_path, text_model(text, {"w": np.ones(shape, np.float32)}))
    feeds = {"x": np.ones((2, depth), np.float32)}
    measured = run(path, feeds, "none").requested_before
    lines = {line.line: line.value for line in answer_memory(audit_model(path), MemoryQuery()).needed.lines}
    assert lines["prepacked weights"] == measured


@pytest.mark.export
@pytest.mark.slow
@pytest.mark.parametrize("name", sampled(["bert", "gpt2", "t5", "resnet"], ["gpt2", "resnet"]))
def test_every_node_of_an_export_is_equal(exported: Any, name: str) -> None:
    path = Path(exported(name).files.models[0])
    wrong = [cell for cell in compare_file(path, name) if not cell.is_equal or cell.planned != cell.requested]
    assert wrong == []
