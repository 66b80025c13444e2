"""Copies that kernels make of their weights, compared with the bytes of a session of one node before it runs."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from analyzer.cost.memory import packing
from analyzer.cost.memory.opened import open_account
from tools.memory_matrix.truth import run

pytestmark = [pytest.mark.time, pytest.mark.usefixtures("forked_children", "newer_runtime")]

MS = "com.microsoft"
Arrays = Mapping[str, "np.ndarray[Any, Any]"]


def noise(*dims: int, kind: str = "f4") -> np.ndarray[Any, Any]:
    """Return values that differ between any two tensors: kernels share their copies of equal ones."""
    drawn = np.random.default_rng(sum(dims)).standard_normal(dims)
    return (drawn * 20 + 100).astype(kind)


def session_bytes(
    folder: Path, op_type: str, feeds: Arrays, weights: Arrays, **attributes: Any
) -> tuple[int, int]:
    """Return the planned and the actual bytes that a session of one node holds; `order` names its inputs."""
    order = attributes.pop("order", None) or [*feeds, *weights]
    domain = attributes.pop("domain", "")
    out = attributes.pop("out", helper.np_dtype_to_tensor_dtype(next(iter(feeds.values())).dtype))
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feeds.items()
    ]
    graph = helper.make_graph(
        [helper.make_node(op_type, order, ["y"], domain=domain, **attributes)],
        "node",
        inputs,
        [helper.make_tensor_value_info("y", out, None)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    opsets = [
        helper.make_opsetid("", 23 if op_type == "RMSNormalization" else 17),
        helper.make_opsetid(MS, 1),
    ]
    path = folder / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    with open_account(path) as account:
        return account.initial_nbytes, run(path, dict(feeds), "none").requested_before


@pytest.fixture
def rows_of_this_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adapt to AMX, which packs 8-bit codes in padded rows of 64; the plan assumes VNNI's 4."""
    processor = Path("/proc/cpuinfo")
    if processor.exists() and "amx_int8" in processor.read_text():
        monkeypatch.setattr(packing, "_DEPTH", 64)


@pytest.mark.parametrize("hidden", [1, 3, 4, 8, 16, 24])
@pytest.mark.parametrize(("op_type", "gates"), [("GRU", 3), ("LSTM", 4)])
def test_recurrent_weights(tmp_path: Path, op_type: str, gates: int, hidden: int) -> None:
    weights = {
        "w": noise(2, gates * hidden, 7),
        "r": noise(2, gates * hidden, hidden),
        "b": noise(2, 2 * gates * hidden),
    }
    feeds = {"x": noise(5, 2, 7)}
    planned, truth = session_bytes(
        tmp_path, op_type, feeds, weights, hidden_size=hidden, direction="bidirectional"
    )
    assert planned == truth


@pytest.mark.parametrize(
    ("dims", "group"),
    [
        ((3, 4, 3, 3), 1),
        ((16, 1, 3, 3), 16),  # one row for each group
        ((1, 8, 3, 3), 1),
        ((8, 1, 1, 1), 1),  # one column
        ((16, 8, 1, 5), 2),
        ((2, 3, 1, 1), 1),  # so small that the session makes its own copy, and frees it
        ((8, 4, 3), 4),
    ],
)
def test_transposed_convolutions(tmp_path: Path, dims: tuple[int, ...], group: int) -> None:
    feeds = {"x": noise(1, dims[0], *(6 for _ in dims[2:]))}
    planned, truth = session_bytes(tmp_path, "ConvTranspose", feeds, {"w": noise(*dims)}, group=group)
    assert planned == truth


@pytest.mark.parametrize("features", [16, 200])
@pytest.mark.parametrize(
    ("op_type", "names", "domain"),
    [
        ("LayerNormalization", "wb", ""),
        ("RMSNormalization", "w", ""),
        ("SkipLayerNormalization", "wbc", MS),
        ("SkipSimplifiedLayerNormalization", "w", MS),
    ],
)
def test_normalizations_of_halves(
    tmp_path: Path, op_type: str, names: str, domain: str, features: int
) -> None:
    feeds = {name: noise(2, 4, features, kind="f2") for name in ("xs" if domain else "x")}
    weights = {name: noise(features, kind="f2") for name in names}
    planned, truth = session_bytes(tmp_path, op_type, feeds, weights, domain=domain)
    assert planned == truth


@pytest.mark.parametrize("dims", [(5, 5), (3, 4), (1, 8), (8, 17), (2, 8, 8), (8,)])
def test_products(tmp_path: Path, dims: tuple[int, ...]) -> None:
    feeds = {"x": noise(2, 4, dims[-2] if len(dims) > 1 else dims[0])}
    planned, truth = session_bytes(tmp_path, "MatMul", feeds, {"w": noise(*dims)})
    assert planned == truth


x86 = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="integers are packed otherwise on other processors"
)


@x86
@pytest.mark.parametrize("level", [0, 4])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("kind", ["f4", "f2"])
def test_products_of_few_bits_take_no_more_than_planned(
    tmp_path: Path, kind: str, bits: int, level: int
) -> None:
    weights = {
        "w": noise(17, 4, 16 * bits // 8, kind="u1"),
        "s": noise(17 * 4, kind=kind),
        "b": noise(17, kind=kind),
    }
    planned, truth = session_bytes(
        tmp_path,
        "MatMulNBits",
        {"x": noise(4, 60, kind=kind)},
        weights,
        order=["x", "w", "s", "", "", "b"],
        domain=MS,
        K=60,
        N=17,
        bits=bits,
        block_size=16,
        accuracy_level=level,
    )
    assert truth <= planned


@x86
@pytest.mark.parametrize("kind", ["u1", "i1"])
@pytest.mark.parametrize(
    ("dims", "group"), [((32, 16, 3, 3), 1), ((24, 8, 3, 3), 1), ((16, 1, 3, 3), 16), ((32, 4, 3, 3), 2)]
)
@pytest.mark.usefixtures("rows_of_this_processor")
def test_integer_convolutions_take_no_more_than_planned(
    tmp_path: Path, kind: str, dims: tuple[int, ...], group: int
) -> None:
    scale, point = np.array(0.1, np.float32), np.array(0, kind)
    weights = {
        "w": (noise(*dims) // 10).astype("i1"),
        "xs": scale,
        "xz": point,
        "ws": scale,
        "wz": np.array(0, np.int8),
        "ys": scale,
        "yz": point,
    }
    feeds = {"x": noise(1, dims[1] * group, 6, 6, kind=kind)}
    order = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"]
    planned, truth = session_bytes(tmp_path, "QLinearConv", feeds, weights, order=order, group=group)
    assert truth <= planned <= 2 * truth


@x86
@pytest.mark.usefixtures("rows_of_this_processor")
def test_quantized_attention_and_recurrence_take_no_more_than_planned(tmp_path: Path) -> None:
    one = np.array(0.1, np.float32)
    weights = {"w": noise(32, 96, kind="i1"), "b": noise(96), "xs": one, "ws": one}
    feeds = {"x": noise(1, 4, 32, kind="u1")}
    planned, truth = session_bytes(
        tmp_path, "QAttention", feeds, weights, domain=MS, num_heads=2, out=onnx.TensorProto.FLOAT
    )
    assert truth <= planned

    ones, zeros = np.ones(1, np.float32), np.zeros(1, np.int8)
    weights = {
        "w": noise(1, 8, 48, kind="i1"),
        "r": noise(1, 12, 48, kind="i1"),
        "b": noise(1, 96),
        "ws": ones,
        "wz": zeros,
        "rs": ones,
        "rz": zeros,
    }
    order = ["x", "w", "r", "b", "", "", "", "", "ws", "wz", "rs", "rz"]
    planned, truth = session_bytes(
        tmp_path,
        "DynamicQuantizeLSTM",
        {"x": noise(5, 2, 8)},
        weights,
        order=order,
        domain=MS,
        hidden_size=12,
    )
    assert truth <= planned
