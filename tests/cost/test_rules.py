"""Cost rules of operators, compared with counters that only loop."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.cost.algebra import (
    Size,
    add,
    evaluate,
    floor_div,
    largest,
    multiply,
    remainder,
    sign_of,
    symbol,
    text_of,
)
from analyzer.cost.compute import COMPUTE
from analyzer.cost.fused import FUSED
from analyzer.cost.layout import LAYOUT
from analyzer.cost.others import OTHERS
from analyzer.cost.values import Step, Value
from analyzer.cost.work import Work, work_of
from analyzer.model import Node
from analyzer.model.dtypes import DType

N = symbol("n")


def value(*dims: Size, data: Sequence[int] | None = None) -> Value:
    return Value(DType.FLOAT if data is None else DType.INT64, dims, None if data is None else tuple(data))


def numbers(*data: int) -> Value:
    return value(len(data), data=data)


def step_of(op_type: str, *inputs: Value, domain: str = "", outputs: int = 1, **settings: object) -> Step:
    integers = {name: setting for name, setting in settings.items() if isinstance(setting, int)}
    others = {name: setting for name, setting in settings.items() if not isinstance(setting, int)}
    names = tuple(f"i{at}" for at in range(len(inputs)))
    made = tuple(f"o{at}" for at in range(outputs))
    return Step(Node((), 0, op_type, domain, "", names, made, integers, settings=others), inputs, 21)  # type: ignore[arg-type]


def made_of(step: Step) -> list[Value]:
    op_type = step.node.op_type
    rule = next(rules[op_type] for rules in (FUSED, LAYOUT, COMPUTE, OTHERS) if op_type in rules)
    return list(rule(step))


def work(step: Step) -> Work:
    found = work_of(step, made_of(step))
    assert found is not None
    return found


def at(size: Size, **sizes: int) -> int:
    found = evaluate(size, sizes)
    assert found is not None
    return found


@given(
    st.integers(1, 12),
    st.one_of(st.none(), st.integers(-14, 14)),
    st.one_of(st.none(), st.integers(-14, 14)),
    st.sampled_from([1, 1, 2, 3, -1, -2]),
)
def test_a_slice_of_a_free_axis_is_that_of_a_list(
    n: int, start: int | None, end: int | None, stride: int
) -> None:
    far = (1 << 62) if stride > 0 else -(1 << 62)
    first = start if start is not None else (0 if stride > 0 else far * -1)
    last = end if end is not None else far
    step = step_of("Slice", value(N), numbers(first), numbers(last), numbers(0), numbers(stride))

    (made,) = made_of(step)

    assert made.shape is not None
    assert at(made.shape[0], n=n) == len(range(n)[start:end:stride])


@given(
    st.integers(1, 20),
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(0, 2),
    st.integers(0, 2),
    st.booleans(),
)
def test_windows_are_those_that_a_loop_finds(
    n: int, kernel: int, stride: int, dilation: int, before: int, after: int, up: bool
) -> None:
    reach = (kernel - 1) * dilation + 1
    before, after = min(before, reach - 1), min(after, reach - 1)
    room = n + before + after
    if room < reach:
        return
    starts = [start for start in range(0, room, stride) if start + reach <= room]
    if up and starts[-1] + reach < room and starts[-1] + stride < n + before:
        starts.append(
            starts[-1] + stride
        )  # one more window reaches over the end, if it begins before the end padding
    step = step_of(
        "MaxPool",
        value(1, 1, N),
        kernel_shape=(kernel,),
        strides=(stride,),
        dilations=(dilation,),
        pads=(before, after),
        ceil_mode=int(up),
    )

    (made,) = made_of(step)

    assert made.shape is not None
    assert at(made.shape[2], n=n) == len(starts)


@given(
    st.integers(1, 3),
    st.sampled_from([(4, 4, 1), (4, 6, 2), (6, 6, 6), (3, 9, 3)]),
    st.integers(5, 9),
    st.integers(1, 3),
    st.integers(1, 2),
    st.integers(1, 2),
)
def test_a_convolution_counts_what_its_loops_do(
    batch: int, channels: tuple[int, int, int], n: int, kernel: int, stride: int, dilation: int
) -> None:
    ins, outs, groups = channels
    step = step_of(
        "Conv",
        value(batch, ins, N),
        value(outs, ins // groups, kernel),
        group=groups,
        strides=(stride,),
        dilations=(dilation,),
    )
    count = sum(
        1
        for _ in range(batch)
        for out in range(outs)
        for start in range(0, n - (kernel - 1) * dilation, stride)
        for channel in range(ins)
        if channel * groups // ins == out * groups // outs
        for _ in range(kernel)
    )

    assert at(work(step).macs, n=n) == count


@given(st.integers(1, 2), st.sampled_from([(4, 6, 2), (3, 5, 1)]), st.integers(2, 6), st.integers(1, 3))
def test_a_transposed_convolution_counts_each_input_once_for_each_weight(
    batch: int, channels: tuple[int, int, int], n: int, kernel: int
) -> None:
    ins, outs, groups = channels
    step = step_of("ConvTranspose", value(batch, ins, N), value(ins, outs // groups, kernel), group=groups)
    count = sum(
        1
        for _ in itertools.product(range(batch), range(n), range(kernel))
        for channel in range(ins)
        for out in range(outs)
        if channel * groups // ins == out * groups // outs
    )

    assert at(work(step).macs, n=n) == count


EQUATIONS = {
    "ij,jk->ik": ((3, 4), (4, 5), 3 * 4 * 5),
    "bij,bjk->bik": ((2, 3, 4), (2, 4, 5), 2 * 3 * 4 * 5),
    "...ij,jk->...ik": ((2, 7, 3, 4), (4, 5), 2 * 7 * 3 * 4 * 5),
    "i,j->ij": ((3,), (4,), 12),
    "ij,jk": ((3, 4), (4, 5), 60),
    "bhid,bhjd->bhij": ((2, 3, 4, 5), (2, 3, 6, 5), 2 * 3 * 4 * 6 * 5),
    "ij,jk->k": ((3, 4), (4, 5), 20),  # rows are summed first
}


@pytest.mark.parametrize("equation", EQUATIONS)
def test_einsum_counts_by_its_equation(equation: str) -> None:
    left, right, expected = EQUATIONS[equation]
    step = step_of("Einsum", value(*left), value(*right), equation=equation)

    (made,) = made_of(step)
    assert made.shape == np.einsum(equation, np.zeros(left), np.zeros(right)).shape
    assert work(step).macs == expected


def test_einsum_multiplies_two_at_a_time() -> None:
    step = step_of("Einsum", value(2, 3), value(3, 4), value(4, 5), equation="ij,jk,kl->il")
    assert work(step).macs == 2 * 3 * 4 + 2 * 4 * 5


def seen(queries: int, keys: int, offset: int, width: int | None = None) -> int:
    """Number of query-key pairs that a causal mask, and a window, leave."""
    return sum(
        1
        for query in range(queries)
        for key in range(keys)
        if key <= query + offset and (width is None or key > query + offset - width)
    )


@given(st.integers(1, 9), st.integers(0, 7), st.one_of(st.none(), st.integers(1, 12)))
def test_grouped_attention_reports_what_its_mask_discards(length: int, past: int, width: int | None) -> None:
    s, p = symbol("s"), symbol("p")
    heads, groups, head = 4, 2, 8
    settings = {"num_heads": heads, "kv_num_heads": groups, "local_window_size": width or -1}
    cache = value(2, groups, p, head)
    inputs = (value(2, s, heads * head), value(2, s, groups * head), value(2, s, groups * head), cache, cache)
    step = step_of("GroupQueryAttention", *inputs, domain="com.microsoft", outputs=3, **settings)

    found = work(step)

    each = 2 * heads * 2 * head
    assert at(found.macs, s=length, p=past) == each * length * (length + past)
    useful = at(found.macs, s=length, p=past) - at(found.masked, s=length, p=past)
    assert useful == each * seen(length, length + past, past, width)


@pytest.mark.parametrize(("causal", "queries", "keys"), [(0, 5, 7), (1, 5, 5), (1, 5, 7), (1, 7, 5)])
def test_attention_of_onnx_masks_from_the_first_key_on(causal: int, queries: int, keys: int) -> None:
    inputs = (value(2, 3, queries, 4), value(2, 3, keys, 4), value(2, 3, keys, 6))
    found = work(step_of("Attention", *inputs, is_causal=causal))

    pairs = seen(queries, keys, 0) if causal else queries * keys
    assert found.macs == 2 * 3 * queries * keys * (4 + 6)
    assert at(found.macs) - at(found.masked) == 2 * 3 * pairs * (4 + 6)


@pytest.mark.parametrize(("op_type", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("layout", [0, 1])
def test_a_recurrence_counts_each_step_gate_and_direction(
    op_type: str, gates: int, directions: int, layout: int
) -> None:
    t, hidden, width = symbol("t"), 5, 3
    x = value(2, t, width) if layout else value(t, 2, width)
    weights = (value(directions, gates * hidden, width), value(directions, gates * hidden, hidden))
    step = step_of(op_type, x, *weights, hidden_size=hidden, layout=layout, outputs=2)

    count = sum(
        1
        for _ in itertools.product(range(7), range(2), range(directions), range(gates), range(hidden))
        for _ in range(width + hidden)
    )
    assert at(work(step).macs, t=7) == count


def test_a_mixture_of_experts_counts_those_that_tokens_are_sent_to() -> None:
    whole = (value(2, 5, 8), value(10, 4), value(4, 16, 8), value(4, 16), value(4, 8, 16))
    packed = (value(2, 5, 8), value(10, 4), value(4, 16, 4), value(4, 16), value(4, 16), value(4, 8, 8))
    dense = work(step_of("MoE", *whole, domain="com.microsoft", k=2))
    codes = work(step_of("QMoE", *packed, domain="com.microsoft", k=2, expert_weight_bits=4))

    assert dense.macs == 10 * 2 * 2 * (8 * 16)
    assert codes.macs == dense.macs


LINEAR: Mapping[str, tuple[tuple[Value, ...], dict[str, object], int]] = {
    "Gemm": ((value(4, 3), value(5, 4), value(5)), {"transA": 1, "transB": 1}, 3 * 4 * 5),
    "FusedMatMul": ((value(2, 4, 3), value(2, 5, 4)), {"transA": 1, "transB": 1}, 2 * 3 * 4 * 5),
    "MatMulInteger": ((value(7, 3, 4), value(4, 5)), {}, 7 * 3 * 4 * 5),
    "MatMulNBits": ((value(7, 3, 64), value(5, 2, 16)), {"K": 64, "N": 5}, 7 * 3 * 64 * 5),
    "QLinearMatMul": ((value(3, 4), value(), value(), value(4, 5)), {}, 3 * 4 * 5),
    "QGemm": ((value(3, 4), value(), value(), value(5, 4)), {"transB": 1}, 3 * 4 * 5),
    "DeformConv": ((value(1, 4, 8, 8), value(6, 2, 3, 3), value(1, 18, 6, 6)), {"group": 2}, 6 * 36 * 2 * 9),
}


@pytest.mark.parametrize("op_type", LINEAR)
def test_products_count_rows_times_columns_times_depth(op_type: str) -> None:
    inputs, settings, expected = LINEAR[op_type]
    assert work(step_of(op_type, *inputs, **settings)).macs == expected


def test_batches_that_are_turned_are_turned_back() -> None:
    step = step_of("FusedMatMul", value(3, 2, 4), value(2, 4, 5), domain="com.microsoft", transBatchA=1)

    assert made_of(step)[0].shape == (2, 3, 5)
    assert work(step).macs == 2 * 3 * 4 * 5


def test_sequences_of_tensors_are_followed() -> None:
    split = made_of(step_of("SplitToSequence", value(N, 6), value(data=[4]), axis=1))
    first = made_of(step_of("SequenceAt", split[0], value(data=[-1])))
    joined = made_of(step_of("ConcatFromSequence", split[0], axis=1))

    assert first[0].shape == (N, 2)
    assert joined[0].shape == (N, 6)


@given(st.integers(0, 40), st.integers(1, 9))
def test_a_remainder_of_what_was_filled_up_is_nothing(n: int, width: int) -> None:
    filled = add(N, remainder(multiply(N, -1), width))  # as exporters pad a length to whole blocks

    assert remainder(filled, width) == 0
    assert at(filled, n=n) == n + -n % width


@given(st.integers(1, 40), st.sampled_from([4, 5]))
def test_a_floor_that_exporters_spell_out_is_one(n: int, width: int) -> None:
    """`a // b` of integers: the quotient towards 0, less 1 where the remainder and b differ in sign."""
    by = value(data=[width])
    dividend = Value(DType.INT64, (), (N,))
    left = made_of(step_of("Mod", dividend, by))[0]
    is_other = made_of(
        step_of("Not", made_of(step_of("Equal", made_of(step_of("Sign", left))[0], value(data=[1])))[0])
    )[0]
    has_rest = made_of(step_of("Cast", left, to=9))[0]
    less = made_of(step_of("Cast", made_of(step_of("And", is_other, has_rest))[0], to=7))[0]
    (floor,) = made_of(step_of("Sub", made_of(step_of("Div", dividend, by))[0], less))

    assert less.data == (0,)
    assert floor.data is not None
    assert at(floor.data[0], n=n) == n // width  # type: ignore[arg-type]


@given(st.integers(-60, 60), st.integers(-60, 60), st.integers(-60, 60), st.integers(1, 60))
def test_a_quotient_is_python_s_at_any_size_and_has_no_factor_that_cancels(
    one: int, other: int, number: int, by: int
) -> None:
    size = add(add(multiply(N, one), multiply(symbol("m"), other)), number)
    quotient = floor_div(size, by)
    for n, m in itertools.product((0, 1, 7, 30), repeat=2):
        assert at(quotient, n=n, m=m) == (one * n + other * m + number) // by
    assert text_of(floor_div(multiply(N, 48), 432)) == "((n)//9)"


@given(
    st.floats(-40, 40, width=32),
    st.floats(2**-10, 2, width=32),
    st.sampled_from([(DType.UINT8, np.uint8), (DType.INT8, np.int8), (DType.UINT16, np.uint16)]),
    st.integers(0, 100),
)
def test_a_number_that_a_shape_is_made_of_is_quantized_as_in_float(
    number: float, scale: float, kind: tuple[DType, type], zero: int
) -> None:
    value = Value(DType.FLOAT, (), (number,))
    by, point = Value(DType.FLOAT, (), (scale,)), Value(kind[0], (), (zero,))
    (code,) = made_of(step_of("QuantizeLinear", value, by, point))
    (back,) = made_of(step_of("DequantizeLinear", code, by, point))

    limits = np.iinfo(kind[1])
    wanted = np.clip(np.rint(np.float32(number) / np.float32(scale)) + zero, limits.min, limits.max)
    assert code.data == (int(wanted),)
    assert back.data == (float(np.float32(wanted - zero) * np.float32(scale)),)


def test_numbers_are_not_quantized_by_what_is_no_one_scale() -> None:
    values, point = Value(DType.FLOAT, (2,), (1.0, 2.0)), Value(DType.UINT8, (), (0,))
    for scale in (
        Value(DType.FLOAT, (2,), (0.5, 0.25)),
        Value(DType.FLOAT, (), (0.0,)),
        Value(DType.FLOAT, ()),
    ):
        (code,) = made_of(step_of("QuantizeLinear", values, scale, point))
        assert code.data is None


def test_two_numbers_that_are_too_large_are_equal_where_they_are_computed_alike() -> None:
    a, b = 3**300, 5**200

    assert isinstance(a, int)
    assert multiply(a, a) == multiply(a, a) != multiply(b, b)
    assert evaluate(multiply(a, a), {}) is None
    assert sign_of(multiply(-a, a)) is None
    assert largest(multiply(-a, a), 1) != multiply(-a, a)


def test_a_power_of_a_size_is_not_written_out_in_thousands_of_digits() -> None:
    size: Size = N
    for _ in range(40):
        size = multiply(size, size)

    assert text_of(size) == f"n**{2**40}"
    assert evaluate(size, {"n": 3}) is None
    assert evaluate(size, {"n": 1}) == 1


def test_factors_that_double_end_as_a_number_that_nobody_knows() -> None:
    size: Size = N
    for _ in range(1000):
        size = add(size, size)

    assert evaluate(size, {"n": 1}) is None
    assert len(text_of(size)) < 200


def test_a_quotient_that_stands_in_itself_twice_ends_as_one_that_nobody_knows() -> None:
    size: Size = N
    for _ in range(60):
        size = floor_div(add(add(multiply(size, N), size), 1), 3)

    assert len(text_of(size)) < 20_000
    assert evaluate(size, {"n": 5}) is None


def test_operators_that_pick_and_encode_features_move_numbers_and_compute_nothing() -> None:
    listed = {"values_floats": value(4), "cats_int64s": value(3)}
    steps = [
        (step_of("ArrayFeatureExtractor", value(N, 6), numbers(0, 5), domain="ai.onnx.ml"), (N, 2)),
        (step_of("ArrayFeatureExtractor", value(6), numbers(0, 5, 1), domain="ai.onnx.ml"), (1, 3)),
        (step_of("LabelEncoder", value(N, 6), domain="ai.onnx.ml"), (N, 6)),
        (step_of("OneHotEncoder", value(N), domain="ai.onnx.ml"), (N, 3)),
        (step_of("ZipMap", value(N, 2), domain="ai.onnx.ml"), (N, 2)),
    ]

    for step, shape in steps:
        with_attributes = replace(step, attached=listed)
        assert [made.shape for made in made_of(with_attributes)] == [shape]
        assert work(with_attributes) == Work()
