"""Whether a stored tensor's axes stand as PyTorch has them, from its name and from what reads it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from models import audit, entry, parameter, ramp, text_model

from analyzer.ledger import Entry
from analyzer.reconciliation.axes import (
    is_computed,
    is_convolved,
    is_own,
    is_straight,
    is_turnable,
    is_turned,
)
from analyzer.wiring import Wiring


def read_by(folder: Path, nodes: str) -> tuple[Entry, Wiring]:
    """A matrix that these nodes read as `w`."""
    proto = text_model(f"g (float[2] x) => (float[2] y) {{ {nodes} }}", {"w": ramp(3, 3)})
    ledger = audit(folder, proto)
    found = entry(ledger, "w")
    return found, ledger.wiring


@pytest.mark.parametrize(
    ("nodes", "of_own_name", "of_another"),
    [
        ("y = MatMul(x, w)", False, True),
        ("y = Gemm(x, w)", False, True),
        ("y = Gemm<transB = 1>(x, w)", False, False),
        ("h = MatMul(x, w) y = Gemm<transB = 1>(h, w)", False, False),
        ("y = MatMulInteger<transB = 1>(x, w)", False, True),
        ("y = com.microsoft.MatMulNBits<K = 3, N = 3>(x, w, x)", True, False),
        ("y = com.microsoft.MatMulBnb4<K = 3, N = 3>(x, w, x)", True, False),
    ],
)
def test_name_and_reader_tell_whether_a_matrix_is_turned(tmp_path, nodes, of_own_name, of_another):
    found, wiring = read_by(tmp_path, nodes)

    assert is_turned(found, wiring, is_computed=False) is of_own_name
    assert is_turned(found, wiring, is_computed=True) is of_another


@pytest.mark.parametrize(
    ("nodes", "straight"),
    [
        ("y = Gemm<transB = 1>(x, w)", True),
        ("y = Gemm<transB = 0>(x, w)", False),
        ("y = Gemm<transB = 1>(w, x)", False),
        ("y = MatMul<transB = 1>(x, w)", False),
        ("y = Gather(w, x)", True),
        ("y = Gather(x, w)", False),
        ("h = MatMul(x, w) y = Gather(w, x)", True),
    ],
)
def test_tables_and_turned_products_take_a_matrix_as_pytorch_has_it(tmp_path, nodes, straight):
    assert is_straight(*read_by(tmp_path, nodes)) is straight


@pytest.mark.parametrize(
    ("nodes", "convolved"),
    [
        ("y = Conv(x, w)", True),
        ("y = Conv(w, x)", False),
        ("y = ConvInteger(x, w)", True),
        ("y = ConvTranspose(x, w)", True),
        ("y = DeformConv(x, w, x)", True),
        ("y = com.microsoft.FusedConv(x, w)", True),
        ("y = QLinearConv(x, x, x, w, x, x, x, x)", True),
        ("y = MatMul(x, w)", False),
        ("c = Cast<to = 1>(w) d = DequantizeLinear(c, x) y = Conv(x, d)", True),
        ("c = Cast<to = 1>(w) d = Cast<to = 1>(c) e = Cast<to = 1>(d) y = Conv(x, e)", True),
        ("t = Transpose(w) y = Conv(x, t)", False),
    ],
)
def test_convolution_is_seen_past_what_decodes_its_weight(tmp_path, nodes, convolved):
    assert is_convolved(*read_by(tmp_path, nodes)) is convolved


@pytest.mark.parametrize(
    ("reader", "turnable"),
    [
        ("com.microsoft.DynamicQuantizeMatMul(x, w, x)", True),
        ("MatMulInteger(x, w)", True),
        ("com.microsoft.MatMulIntegerToFloat(x, w, x, x)", True),
        ("QLinearMatMul(x, x, x, w, x, x, x, x)", True),
        ("MatMul(x, w)", False),
        ("QLinearConv(x, x, x, w, x, x, x, x)", False),
    ],
)
def test_quantizers_turn_only_what_integer_products_read(tmp_path, reader, turnable):
    assert is_turnable(read_by(tmp_path, f"y = {reader}")[0]) is turnable


@pytest.mark.parametrize(
    ("name", "computed", "own"),
    [
        ("fc.weight", False, True),
        ("tied.weight", False, True),
        ("model.fc.weight", True, True),
        ("weight", True, True),
        ("fc.weight_quantized", False, True),
        ("val_1", True, False),
        ("other.weight", True, False),
    ],
)
def test_name_tells_what_an_exporter_made(tmp_path, name, computed, own):
    text = f'g (float[2] x) => (float[2] y) {{ y = Relu("{name}") }}'
    found = entry(audit(tmp_path, text_model(text, {name: np.ones((2, 3), np.int8)})), name)
    tensor = parameter("fc.weight", ramp(2, 3), tied=("tied.weight",))

    assert (is_computed(found, tensor), is_own(found, tensor)) == (computed, own)
