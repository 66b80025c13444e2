"""Axis orders in which a stored tensor can hold a PyTorch tensor, and the evidence that tells them apart."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models import audit, entry, parameter, ramp, text_model

from analyzer.account.ledger import Entry
from analyzer.model.wiring import Wiring
from analyzer.reconciliation.layouts import (
    AxisLayout,
    is_computed,
    is_convolved,
    is_own,
    is_straight,
    is_turnable,
    is_turned,
    layouts,
)

steady = settings(derandomize=True, deadline=None, database=None, max_examples=100)

shapes = st.lists(st.integers(1, 4), max_size=4).map(tuple)


@st.composite
def turned(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Draw a shape, an order of its axes, and the permuted shape, which may have an extra axis of 1."""
    shape = draw(shapes)
    axes = tuple(draw(st.permutations(range(len(shape)))))
    stored = [shape[axis] for axis in axes]
    if draw(st.booleans()):
        stored.insert(draw(st.integers(0, len(stored))), 1)
    return shape, axes, tuple(stored)


def counted(shape: tuple[int, ...]) -> np.ndarray:
    return np.arange(int(np.prod(shape)), dtype="i8").reshape(shape)


@steady
@given(turned())
def test_restoring_what_was_permuted_gives_the_original(case):
    shape, axes, stored = case
    original = counted(shape)
    layout = AxisLayout(shape, axes, stored)

    assert np.array_equal(layout.restore(original.transpose(axes).reshape(stored)), original)


@steady
@given(turned())
def test_positions_are_where_restoring_takes_from(case):
    shape, axes, stored = case
    array = np.random.default_rng(0).permutation(int(np.prod(shape))).reshape(stored)
    layout = AxisLayout(shape, axes, stored)
    every = np.arange(array.size, dtype=np.int64)

    assert np.array_equal(array.reshape(-1)[layout.positions(every)], layout.restore(array).reshape(-1))


@steady
@given(turned(), st.data())
def test_window_is_restored_from_the_middle_of_a_larger_tensor(case, data):
    shape, axes, _ = case
    if not shape:
        return
    part = counted(shape).transpose(axes)
    axis = data.draw(st.integers(0, part.ndim - 1))
    before, after = data.draw(st.integers(0, 3)), data.draw(st.integers(0, 3))
    pads = [(before, after) if number == axis else (0, 0) for number in range(part.ndim)]
    whole = np.pad(part, pads, constant_values=-1)
    layout = AxisLayout(shape, axes, whole.shape, (axis, before))
    every = np.arange(part.size, dtype=np.int64)

    assert np.array_equal(layout.restore(whole), counted(shape))
    assert np.array_equal(whole.reshape(-1)[layout.positions(every)], every)


@steady
@given(turned())
def test_order_in_which_a_tensor_is_stored_is_among_those_that_are_tried(case):
    shape, axes, stored = case
    original = counted(shape)
    array = original.transpose(axes).reshape(stored)

    found = list(layouts(shape, stored))

    assert any(np.array_equal(layout.restore(array), original) for layout in found)


@steady
@given(turned())
def test_orders_that_are_tried_are_all_different_and_fit(case):
    shape, _, stored = case

    found = list(layouts(shape, stored))

    assert len({layout.positions(np.arange(np.prod(shape, dtype=int))).tobytes() for layout in found}) == len(
        found
    )
    assert all(layout.restore(counted(stored)).shape == shape for layout in found)


@steady
@given(shapes)
def test_as_pytorch_has_it_comes_first(shape):
    first = next(layouts(shape, shape))

    assert first == AxisLayout(shape, tuple(range(len(shape))), shape)
    assert first.chain == ()


@pytest.mark.parametrize(
    ("shape", "stored", "chains"),
    [
        ((3, 4), (3, 4), [[]]),
        ((3, 4), (4, 3), [["transposed"]]),
        ((3, 3), (3, 3), [[], ["transposed"]]),
        ((3, 4), (12,), [["reshaped"], ["transposed", "reshaped"]]),
        ((2, 3), (6,), [["reshaped"], ["transposed", "reshaped"]]),
        ((12,), (3, 4), [["reshaped"]]),
        ((3, 4), (1, 3, 4), [["reshaped"]]),
        ((3, 1, 4), (4, 3), [["transposed", "reshaped"]]),
        ((5,), (1, 5, 1), [["reshaped"]]),
        ((2, 3, 4), (6, 4), [["reshaped"]]),
        ((6, 14, 18), (14, 108), [["transposed", "reshaped"], ["reshaped"]]),
        ((6, 14, 18), (108, 14), [["transposed", "reshaped"], ["reshaped"]]),
        ((6, 14, 18), (21, 72), [["reshaped"]]),
        ((6, 14, 18), (1512,), [["reshaped"]]),
        ((2, 3, 4), (4, 3, 2), [["transposed"]]),
        ((), (), [[]]),
        ((), (1,), [["reshaped"]]),
        ((0, 3), (0, 3), [[]]),
        ((3, 4), (3, 5), []),
    ],
)
def test_each_layout_has_its_chain(shape, stored, chains):
    assert [[str(line) for line in layout.chain] for layout in layouts(shape, stored)] == chains


@pytest.mark.parametrize(
    ("shape", "stored", "is_plain"),
    [((3, 4), (4, 3), True), ((3, 4), (1, 3, 4), True), ((3, 4), (12,), False)],
)
def test_moved_axes_are_plain_and_merged_ones_are_not(shape, stored, is_plain):
    assert all(layout.is_plain == is_plain for layout in layouts(shape, stored))


@pytest.mark.parametrize("shape", [(2, 3), (3, 3), (2, 3, 4)])
def test_no_reshape_puts_dims_in_another_order(shape):
    for stored in itertools.permutations(shape):
        assert all(layout.is_plain for layout in layouts(shape, stored))


def test_of_many_axes_only_the_order_that_is_there_is_tried():
    shape = (2, 3, 4, 5, 6, 7)

    assert [layout.axes for layout in layouts(shape, shape)] == [(0, 1, 2, 3, 4, 5)]


def test_sizes_too_large_for_any_memory_are_not_tried():
    assert list(layouts((1 << 40, 1 << 40), (1 << 40, 1 << 40))) == []


# whether a stored tensor's axes are in PyTorch's order, by its name and its readers


def read_by(folder: Path, nodes: str) -> tuple[Entry, Wiring]:
    """Return a matrix that these nodes read as `w`, and the wiring."""
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
def test_name_and_reader_show_whether_a_matrix_is_transposed(tmp_path, nodes, of_own_name, of_another):
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
def test_name_shows_what_an_exporter_made(tmp_path, name, computed, own):
    text = f'g (float[2] x) => (float[2] y) {{ y = Relu("{name}") }}'
    found = entry(audit(tmp_path, text_model(text, {name: np.ones((2, 3), np.int8)})), name)
    tensor = parameter("fc.weight", ramp(2, 3), tied=("tied.weight",))

    assert (is_computed(found, tensor), is_own(found, tensor)) == (computed, own)
