"""The algebra: its field's axioms hold, equal forms of a computation agree, and known numbers give known results."""

from __future__ import annotations

import math
from importlib.util import find_spec
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper
from onnx.reference import ReferenceEvaluator

from analyzer.model import Node
from analyzer.verify.algebra import layers
from analyzer.verify.algebra.calls import call
from analyzer.verify.algebra.field import PRIME, Numbers, draw, element_of, inverse, product
from analyzer.verify.algebra.nodes import Operation, operate
from analyzer.verify.algebra.values import Algebra, Factored, Field, UnknownError, Value, drawn, number


@pytest.fixture
def a() -> Algebra:
    return Algebra(0, Numbers())


def elements(a: Algebra, value: Value) -> Any:
    return a.dense(value).elements


def same(a: Algebra, one: Value, other: Value) -> bool:
    return a.same(a.dense(one), a.dense(other))


# the field


@given(st.integers(1, 40), st.integers(1, 5), st.integers(0, 9))
def test_a_product_of_matrices_is_exact(inner: int, outer: int, seed: int) -> None:
    one, two = draw((outer, inner), "one", seed), draw((inner, 2), "two", seed)

    expected = (one.astype(object) @ two.astype(object)) % PRIME

    assert np.array_equal(product(one, two, PRIME), expected.astype(np.uint64))


def test_a_value_times_its_inverse_is_one() -> None:
    values = draw((64,), "values")

    assert (values * inverse(values, PRIME) % np.uint64(PRIME) == 1).all()


@pytest.mark.parametrize("size", [8, 12, 16, 24, 32, 64, 80, 96, 105, 114, 128, 384])
def test_scales_of_attention_are_the_roots_that_they_are(size: int) -> None:
    whole = element_of(1 / size)
    scale = element_of(float(np.float32(1 / math.sqrt(size))))
    root = element_of(float(np.float32(size**-0.25)))

    assert scale * scale % PRIME == whole
    assert root * root % PRIME == scale


@given(st.floats(0.001953125, 1000, width=32), st.floats(0.001953125, 1000, width=32))
def test_numbers_that_are_further_apart_than_rounding_have_other_elements(one: float, other: float) -> None:
    if abs(one - other) > 1e-6 * max(one, other):
        assert element_of(one) != element_of(other)


def test_a_number_of_the_file_is_the_nearest_of_the_programs() -> None:
    numbers = Numbers()
    (known,) = numbers.of(np.array([0.123456789]), is_new=True)

    (near,) = numbers.of(np.array([0.123456789 * (1 + 1e-7)]), is_new=False)
    (far,) = numbers.of(np.array([0.123456789 * (1 + 1e-5)]), is_new=False)

    assert near == known != far


# forms of one computation


def test_a_large_weight_multiplies_as_if_it_were_written_out(a: Algebra) -> None:
    weight = drawn("w", (96, 64), 0)
    x = Field(draw((3, 5, 64), "x"))
    assert isinstance(weight, Factored)

    found = a.matmul(x, a.permute(weight, (1, 0)))
    expected = product(x.elements, a.dense(weight).elements.T.copy(), PRIME)

    assert np.array_equal(elements(a, found), expected)


@pytest.mark.parametrize("groups", [1, 2])
def test_a_large_kernel_convolves_as_if_it_were_written_out(a: Algebra, groups: int) -> None:
    kernel = drawn("k", (16, 12 // groups, 3, 4), 0)
    x = Field(draw((2, 12, 9, 10), "x"))
    how: Any = (None, [2, 1], [(1, 1), (0, 2)], [1, 2], groups)
    assert isinstance(kernel, Factored)

    assert same(a, layers.convolve(a, x, kernel, *how), layers.convolve(a, x, a.dense(kernel), *how))


def test_a_norm_is_the_same_by_the_mean_of_squares(a: Algebra) -> None:
    x, gain, bias = Field(draw((4, 8), "x")), Field(draw((8,), "g")), Field(draw((8,), "b"))
    mean = a.mean(x, (1,), keeps=True)
    variance = a.subtract(a.mean(a.multiply(x, x), (1,), keeps=True), a.multiply(mean, mean))
    root = a.function("sqrt", a.add(variance, number(1e-5)))
    decomposed = a.add(a.divide(a.multiply(a.subtract(x, mean), gain), root), bias)

    assert same(a, layers.layer_norm(a, x, (1,), gain, bias, 1e-5), decomposed)
    assert not same(a, layers.layer_norm(a, x, (1,), gain, bias, 1e-6), decomposed)


def test_a_scale_may_stand_on_queries_on_scores_or_on_both(a: Algebra) -> None:
    query, key = Field(draw((2, 3, 5, 16), "q")), Field(draw((2, 3, 5, 16), "k"))
    turned = a.permute(key, (0, 1, 3, 2))
    root = number(16**-0.25)
    both = a.matmul(a.multiply(query, root), a.multiply(turned, root))

    assert same(a, both, a.multiply(a.matmul(query, turned), number(0.25)))
    assert same(a, both, a.matmul(a.multiply(query, number(0.25)), turned))
    assert not same(a, both, a.matmul(query, turned))


def test_a_softmax_is_the_same_where_one_number_is_added_to_all_scores(a: Algebra) -> None:
    scores, mask = Field(draw((2, 5, 5), "scores")), np.tri(5, dtype=np.float32) * -1e4
    shift, highest = Field(draw((2, 5, 1), "shift")), a.gathered("max", scores, (2,), keeps=True)
    shares = a.softmax(a.add(scores, mask), 2)
    powers = a.function("exp", a.subtract(a.add(scores, mask), highest))
    total = a.sum(powers, (2,), keeps=True)

    assert same(a, shares, a.softmax(a.add(a.add(scores, shift), mask), 2))
    assert same(a, shares, a.softmax(a.add(a.add(scores, number(1)), mask), 2))
    assert same(a, shares, a.divide(powers, total))
    assert not same(a, shares, a.softmax(scores, 2))
    assert not same(a, shares, a.softmax(a.add(a.add(scores, a.permute(shift, (0, 2, 1))), mask), 2))
    assert not same(a, shares, a.softmax(a.add(scores, mask), 1))
    assert same(a, a.softmax(shift, 2), np.ones((2, 5, 1), np.float32))


def test_a_logarithm_of_a_sum_of_powers_follows_what_is_added_to_all(a: Algebra) -> None:
    x, shift = Field(draw((2, 5), "x")), Field(draw((2, 1), "shift"))

    def total(value: Value, *, keeps: bool) -> Value:
        return a.function("log", a.sum(a.function("exp", value), (1,), keeps=keeps))

    assert same(a, total(a.add(x, shift), keeps=True), a.add(total(x, keeps=True), shift))
    assert same(a, a.reshape(total(x, keeps=False), (2, 1)), total(x, keeps=True))
    assert same(a, layers.log_softmax(a, a.add(x, shift), 1), a.subtract(x, total(x, keeps=True)))
    assert not same(a, layers.log_softmax(a, x, 1), x)


def test_windows_that_are_much_larger_than_the_image_are_its_mean(a: Algebra) -> None:
    image = Field(draw((2, 3, 4, 5), "image"))
    whole = [(0, 1276), (0, 1275)]

    found = layers.average_pool(a, image, [1280, 1280], [1280, 1280], whole, counts_pads=False)

    assert same(a, found, a.mean(image, (2, 3), keeps=True))


@pytest.mark.parametrize("counts_pads", [False, True])
def test_windows_over_padding_are_sums_of_their_places(a: Algebra, counts_pads: bool) -> None:
    image = Field(draw((1, 1, 5, 4), "image"))
    padded = np.zeros((1, 1, 8, 6), np.uint64)
    padded[:, :, 1:6, 2:6] = image.elements

    found = layers.average_pool(a, image, [3, 2], [2, 1], [(1, 2), (2, 0)], counts_pads=counts_pads)

    for row, column in np.ndindex(3, 5):
        window = padded[0, 0, 2 * row : 2 * row + 3, column : column + 2]
        inside = np.zeros((8, 6))
        inside[1:6, 2:6] = 1
        count = 6 if counts_pads else inside[2 * row : 2 * row + 3, column : column + 2].sum()
        expected = a.divide(Field(np.asarray(window.sum() % PRIME, np.uint64)), number(count))
        if count:
            assert int(a.dense(found).elements[0, 0, row, column]) == int(a.dense(expected).elements)


def test_functions_that_are_not_one_are_told_apart(a: Algebra) -> None:
    x = Field(draw((8,), "x"))
    bent = [a.function(name, x) for name in ("relu", "tanh", "exp", "erf", "sigmoid")]
    bent += [layers.gelu(a, x, how) for how in ("none", "tanh")]

    assert all(not same(a, one, two) for at, one in enumerate(bent) for two in bent[:at])


def test_a_factor_of_infinity_is_no_mask(a: Algebra) -> None:
    x = Field(draw((4,), "x"))
    least, none = np.asarray(np.finfo(np.float32).min), np.asarray(-np.inf, np.float32)

    assert a.same(a.add(x, least), a.add(x, none))
    with pytest.raises(UnknownError):
        a.multiply(x, none)


def test_whole_numbers_are_no_real_ones(a: Algebra) -> None:
    whole = Field(draw((4,), "ids"), "whole")

    for refused in (
        lambda: a.invert_truth(whole),
        lambda: a.combine("and", whole, np.asarray(1)),
        lambda: a.raise_to(whole, np.asarray(0.5)),
        lambda: a.add(whole, np.asarray(1 << 31)),
    ):
        with pytest.raises(UnknownError):
            refused()
    assert not same(a, a.cast(whole, "i", np.int8), whole)
    assert same(a, a.cast(whole, "i", np.int32), whole)


# with known numbers

X = np.linspace(-2, 2, 48, dtype=np.float32).reshape(2, 4, 6)
Y = np.cos(X).astype(np.float32)
W = np.sin(np.arange(30, dtype=np.float32)).reshape(5, 6)
IMAGE = np.sin(np.arange(2 * 4 * 7 * 8, dtype=np.float32)).reshape(2, 4, 7, 8)
KERNEL = np.cos(np.arange(6 * 4 * 9, dtype=np.float32)).reshape(6, 4, 3, 3)
CALLS: list[tuple[str, list[Any], dict[str, Any]]] = [
    *(
        (name, [X], {})
        for name in ("exp", "tanh", "relu", "sigmoid", "erf", "silu", "neg", "sin", "softplus")
    ),
    *((name, [np.abs(X) + 1], {}) for name in ("log", "sqrt", "rsqrt", "reciprocal", "log1p")),
    *((name, [X, Y], {}) for name in ("add", "sub", "mul", "maximum", "minimum", "le", "where")[:-1]),
    ("div", [X, Y], {}),
    ("rsub", [X, 2.0], {}),
    ("pow", [X, 3], {}),
    ("add", [X, Y], {"alpha": 0.5}),
    ("gelu", [X], {}),
    ("gelu", [X], {"approximate": "tanh"}),
    ("hardswish", [X * 3], {}),
    ("leaky_relu", [X, 0.2], {}),
    ("celu", [X, 0.7], {}),
    ("elu", [X, 0.6], {}),
    ("clamp", [X, -0.5, 1.0], {}),
    ("unflatten", [X, 2, [2, 3]], {}),
    ("repeat_interleave", [X, 2, 1], {}),
    ("linspace", [0.0, 2.0, 5], {}),
    ("div", [X, 2.0], {}),
    ("div", [X, Y], {"rounding_mode": "floor"}),
    ("div", [X, Y], {"rounding_mode": "trunc"}),
    ("div", [X, 2], {"rounding_mode": "floor"}),
    ("div", [np.array([7, -7]), 2], {"rounding_mode": "trunc"}),
    ("div", [np.array([7, -7]), 2], {"rounding_mode": "floor"}),
    ("div", [np.array([7, -7]), 2], {}),
    ("pow", [np.abs(X), 0.5], {}),
    ("pow", [np.abs(X) + 1, 2.5], {}),
    ("pow", [2.0, X], {}),
    ("prelu", [IMAGE, np.array([0.1, 0.2, 0.3, 0.4], "f4")], {}),
    ("linalg_vector_norm", [X, 1, [1], True], {}),
    ("linalg_vector_norm", [X, 2, [0, 2], False], {}),
    ("linalg_norm", [X, 2, [-1], True], {}),
    ("linalg_norm", [X, None, [1, 2], False], {}),
    ("prod", [X[0, 0]], {}),
    ("diff", [X, 2, 1], {}),
    ("instance_norm", [IMAGE, W[0, :4], W[1, :4], None, None, True, 0.1, 1e-3, False], {}),
    ("convolution", [IMAGE, KERNEL, W[0], [1, 2], [1, 1], [1, 1], False, [0, 0], 1], {}),
    ("convolution", [IMAGE, KERNEL[:4], None, [2, 2], [1, 0], [1, 1], True, [1, 0], 1], {}),
    ("all", [X > -9], {}),
    ("all", [X > 0, 1], {}),
    ("any", [X > 0], {}),
    ("any", [X > 1, 2], {}),
    ("amin", [X, [0, 1], True], {}),
    ("avg_pool2d", [IMAGE, [640, 640], [640, 640], [0, 0], True], {}),
    ("softmax", [X, -1], {}),
    ("log_softmax", [X, 1], {}),
    ("mean", [X, [1], True], {}),
    ("sum", [X, [0, 2], False], {}),
    ("var", [X, [2]], {"correction": 1, "keepdim": True}),
    ("amax", [X, [1], False], {}),
    ("cumsum", [X, 1], {}),
    ("linear", [X, W, np.arange(5, dtype=np.float32)], {}),
    ("matmul", [X, W.T.copy()], {}),
    ("addmm", [W[:, 0], X[0], W.T.copy()], {"alpha": 0.5}),
    ("layer_norm", [X, [6], W[0], W[1], 1e-3], {}),
    ("rms_norm", [X, [6], W[0], 1e-3], {}),
    ("group_norm", [IMAGE, 2, W[0, :4], W[1, :4], 1e-3], {}),
    ("batch_norm", [IMAGE, W[0, :4], W[1, :4], W[2, :4], np.abs(W[3, :4]), False, 0.1, 1e-3, False], {}),
    ("conv2d", [IMAGE, KERNEL, W[0], [2, 1], [1, 0], [1, 2], 1], {}),
    ("conv2d", [IMAGE, KERNEL[:, :2], None, [1, 1], [1, 1], [1, 1], 2], {}),
    ("conv_transpose2d", [IMAGE, KERNEL[:4], None, [2, 2], [1, 1], [1, 1]], {}),
    ("max_pool2d", [IMAGE, [3, 3], [2, 2], [1, 1]], {}),
    ("avg_pool2d", [IMAGE, [3, 2], [2, 2], [1, 1], False, False], {}),
    ("adaptive_avg_pool2d", [IMAGE, [3, 2]], {}),
    ("avg_pool2d", [IMAGE, [3, 3], [2, 2], [1, 1], True, True], {}),
    ("avg_pool2d", [IMAGE, [3, 3], [2, 3], [1, 1], True, False], {}),
    ("avg_pool2d", [IMAGE, [3, 3], [1, 1], 0, False, True, 4], {}),
    ("upsample_nearest2d", [IMAGE, [14, 12]], {}),
    ("upsample_bilinear2d", [IMAGE, [9, 5], False], {}),
    ("upsample_bilinear2d", [IMAGE, [9, 5], True], {}),
    ("upsample_bilinear2d", [IMAGE, None, False, [1.7, 0.6]], {}),
    ("upsample_bicubic2d", [IMAGE, [9, 20], False], {}),
    ("upsample_bicubic2d", [IMAGE, [1, 20], True], {}),
    ("softplus", [X, 2.0, 1.0], {}),
    ("softplus", [X, 0.5], {}),
    ("log_sigmoid", [X], {}),
    ("selu", [X], {}),
    ("softshrink", [X, 0.3], {}),
    ("hardshrink", [X, 0.3], {}),
    ("threshold", [X, 0.1, 0.2], {}),
    ("log2", [np.abs(X) + 1], {}),
    ("exp2", [X], {}),
    ("special_erfc", [X], {}),
    ("atan2", [X, Y], {}),
    ("cosine_similarity", [X, Y, 1], {}),
    *((name, [X], {}) for name in ("sinh", "cosh", "asinh")),
    ("acos", [Y], {}),
    ("argsort", [Y, 1, True], {}),
    ("unfold", [X, 2, 3, 2], {}),
    ("scatter", [X, 1, np.array([[[3, 0, 1, 2, 3, 0]]] * 2), Y], {}),
    ("scatter_add", [X, 1, np.array([[[3, 0, 1, 2, 3, 0], [3, 0, 0, 2, 3, 1]]] * 2), Y], {}),
    ("scatter_reduce", [X, 1, np.array([[[3, 0, 1, 2, 3, 0]] * 3] * 2), Y, "amax"], {}),
    ("scatter_reduce", [X, 1, np.array([[[3, 0, 1, 2, 3, 0]] * 3] * 2), Y, "prod"], {}),
    ("index_add", [X, 1, np.array([3, 0, 0]), Y[:, :3]], {"alpha": 2}),
    ("index_copy", [X, 1, np.array([3, 0]), Y[:, :2]], {}),
    ("index_fill", [X, 1, np.array([3, 0]), 7.0], {}),
    ("one_hot", [np.array([[1, 0], [3, 2]]), 4], {}),
    ("pad", [X, [1, 2, 0, 1]], {"value": 3.0}),
    ("pad", [X, [-1, 2]], {}),
    ("tril", [X], {}),
    ("triu", [X, 1], {}),
    ("transpose", [X, 0, 2], {}),
    ("permute", [X, [2, 0, 1]], {}),
    ("repeat_interleave", [X, 2, 1], {}),
    ("roll", [X, [2], [1]], {}),
    ("flip", [X, [0, 2]], {}),
    ("slice", [X, 2, 1, -1, 2], {}),
    ("select", [X, 1, -2], {}),
    ("select_scatter", [X, X[:, 0], 1, 2], {}),
    ("unsqueeze", [X, -1], {}),
    ("index_select", [X, 1, np.array([2, 0])], {}),
    ("embedding", [W, np.array([[1, 4], [0, 0]])], {}),
    ("gather", [X, 2, np.array([[[0, 5, 1]] * 4] * 2)], {}),
    ("argmax", [Y, 1, True], {}),
    ("linalg_vector_norm", [X, 2, [1], True], {}),
    ("glu", [X, 2], {}),
    ("masked_fill", [X, X > 0, 7.0], {}),
    ("floor_divide", [X, 0.3], {}),
    ("remainder", [X, 0.7], {}),
    ("remainder", [X, 2], {}),
    ("remainder", [np.array([7, -7]), 3], {}),
    ("scaled_dot_product_attention", [X[:, None], Y[:, None], X[:, None]], {"is_causal": True}),
    (
        "scaled_dot_product_attention",
        [X[:, None], Y[:, None], X[:, None], Y[:, None, :, :4] > 0],
        {"scale": 0.3},
    ),
    ("_weight_norm", [KERNEL, np.ones((6, 1, 1, 1), np.float32), 0], {}),
    ("_weight_norm", [KERNEL, np.full((), 3, np.float32), -1], {}),
]


@pytest.mark.slow
@pytest.mark.export
@pytest.mark.skipif(not find_spec("torch"), reason="torch")
@pytest.mark.parametrize(
    ("operator", "args", "kwargs"), CALLS, ids=[f"{at}-{each[0]}" for at, each in enumerate(CALLS)]
)
def test_with_known_numbers_a_call_gives_what_pytorch_gives(
    a: Algebra, operator: str, args: list[Any], kwargs: dict[str, Any]
) -> None:
    import torch

    tensors = [torch.from_numpy(np.array(each)) if isinstance(each, np.ndarray) else each for each in args]
    expected = getattr(torch.ops.aten, operator)(*tensors, **kwargs)

    found = np.asarray(call(a, operator, args, kwargs))

    np.testing.assert_allclose(found, expected.numpy(), rtol=2e-5, atol=2e-5)
    assert found.dtype == expected.numpy().dtype, "a wider type has digits that no run has"


NODES: list[tuple[str, list[Any], dict[str, Any]]] = [
    *(
        (name, [X], {})
        for name in ("Exp", "Tanh", "Relu", "Sigmoid", "Erf", "Neg", "Abs", "Softplus", "HardSwish")
    ),
    *((name, [X, Y], {}) for name in ("Add", "Sub", "Mul", "Div", "Max", "Min", "Less", "GreaterOrEqual")),
    ("Pow", [X, np.float32(2)], {}),
    ("Gelu", [X], {"approximate": "tanh"}),
    ("LeakyRelu", [X], {"alpha": 0.3}),
    ("Celu", [X], {"alpha": 0.7}),
    ("Elu", [X], {"alpha": 0.6}),
    ("Selu", [X], {}),
    ("HardSigmoid", [X], {"alpha": 0.3, "beta": 0.4}),
    ("Clip", [X, np.float32(-1), np.float32(0.5)], {}),
    ("Softmax", [X], {"axis": 1}),
    ("Mod", [np.array([-5, 5, 7]), np.array([3, -3, 4])], {}),
    ("Mod", [X, Y], {"fmod": 1}),
    ("Div", [np.array([-7, 7, -7]), np.array([2, -2, -2])], {}),
    ("Reshape", [X, np.array([0, -1])], {}),
    ("Transpose", [X], {"perm": [2, 0, 1]}),
    ("Slice", [X, np.array([-1, 0]), np.array([-100, 9]), np.array([2, 1]), np.array([-2, 2])], {}),
    ("Gather", [X, np.array([[0, -1], [2, 1]])], {"axis": 1}),
    ("GatherElements", [X, np.array([[[0, -1]] * 4] * 2)], {"axis": 2}),
    ("GatherND", [X, np.array([[0, 1], [1, 3]])], {}),
    ("GatherND", [X, np.array([[1], [0]])], {"batch_dims": 1}),
    ("Split", [X, np.array([1, 3])], {"axis": 1}),
    ("Pad", [X, np.array([0, 1, 0, 0, 0, 2]), np.float32(3)], {}),
    ("Pad", [X, np.array([0, 1, 0, 0, 0, 2])], {"mode": "reflect"}),
    ("Tile", [X, np.array([1, 2, 2])], {}),
    ("Expand", [X[:, :1], np.array([3, 1, 1, 1])], {}),
    ("Trilu", [X, np.array(1)], {"upper": 0}),
    ("CumSum", [X, np.array(1)], {}),
    ("CumSum", [X, np.array(1)], {"reverse": 1}),
    ("CumSum", [X, np.array(2)], {"exclusive": 1}),
    ("CumSum", [X, np.array(2)], {"exclusive": 1, "reverse": 1}),
    ("ScatterElements", [X, np.array([[[3, 0, -3, 2, 3, 0]]] * 2), Y[:, :1]], {"axis": 1}),
    *(
        (
            "ScatterElements",
            [X, np.array([[[3, 0, 1, 2, 3, 0], [3, 0, 0, 2, 3, 1]]] * 2), Y[:, :2]],
            {"axis": 1, "reduction": reduction},
        )
        for reduction in ("add", "mul", "max", "min")
    ),
    ("ScatterND", [X, np.array([[0, 3], [1, -2]]), Y[0, :2]], {}),
    ("ScatterND", [X, np.array([[0, 3], [0, 3]]), Y[0, :2]], {"reduction": "add"}),
    *(
        (
            "Resize",
            [IMAGE, np.zeros(0, np.float32), np.zeros(0, np.float32), np.array([2, 4, 9, 12])],
            {"mode": mode, "coordinate_transformation_mode": way},
        )
        for mode in ("linear", "cubic")
        for way in ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel")
    ),
    *(
        (
            "Resize",
            [IMAGE, np.zeros(0, np.float32), np.zeros(0, np.float32), np.array([2, 4, 9, 12])],
            {"mode": "nearest", "coordinate_transformation_mode": way, "nearest_mode": near},
        )
        for way in ("half_pixel", "asymmetric")
        for near in ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")
    ),
    (
        "AveragePool",
        [IMAGE],
        {"kernel_shape": [3, 3], "strides": [2, 3], "pads": [1, 1, 1, 1], "ceil_mode": 1},
    ),
    ("OneHot", [np.array([1, -1, 0]), np.array(4), np.array([0.5, 2.0])], {"axis": 0}),
    ("ReduceMean", [X, np.array([1])], {"keepdims": 0}),
    ("ReduceL2", [X, np.array([-1])], {}),
    ("ReduceSum", [X], {"noop_with_empty_axes": 1}),
    ("ReduceMax", [X, np.array([0, 2])], {}),
    ("ArgMax", [Y], {"axis": 1, "keepdims": 0}),
    ("ArgMax", [np.ones((2, 3), np.float32)], {"axis": 1, "select_last_index": 1}),
    ("TopK", [X, np.array([2])], {"axis": 1, "largest": 0}),
    ("Gemm", [X[0], W, W[:4, 0:5]], {"transB": 1, "alpha": 0.5, "beta": 2.0}),
    ("LayerNormalization", [X, W[0], W[1]], {"epsilon": 1e-3}),
    ("BatchNormalization", [IMAGE, W[0, :4], W[1, :4], W[2, :4], np.abs(W[3, :4])], {"epsilon": 1e-3}),
    ("InstanceNormalization", [IMAGE, W[0, :4], W[1, :4]], {}),
    ("Conv", [IMAGE, KERNEL, W[0]], {"strides": [2, 1], "pads": [1, 0, 1, 2], "dilations": [1, 2]}),
    ("Conv", [IMAGE, KERNEL], {"auto_pad": "SAME_LOWER", "strides": [2, 2]}),
    (
        "ConvTranspose",
        [IMAGE, KERNEL[:4]],
        {"strides": [2, 2], "pads": [1, 0, 1, 1], "output_padding": [1, 0]},
    ),
    ("MaxPool", [IMAGE], {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1]}),
    ("AveragePool", [IMAGE], {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1]}),
    ("GlobalAveragePool", [IMAGE], {}),
    ("Einsum", [X, W], {"equation": "bij,kj->bki"}),
    ("Einsum", [X, W], {"equation": "...j,kj->...k"}),
    ("Einsum", [X, Y], {"equation": "...ij,...kj->...ik"}),
    ("Einsum", [X, W[0]], {"equation": "...j, j"}),
    ("Einsum", [X], {"equation": "...ij->...j"}),
    ("Unsqueeze", [X, np.array([0, -1])], {}),
    ("Squeeze", [X[:1]], {}),
    ("Flatten", [X], {"axis": 2}),
    ("Range", [np.array(3), np.array(11), np.array(2)], {}),
    ("Cast", [X * 3], {"to": 7}),
    ("Where", [X > 0, X, Y], {}),
]


@pytest.mark.parametrize(
    ("op_type", "values", "settings"), NODES, ids=[f"{at}-{each[0]}" for at, each in enumerate(NODES)]
)
def test_with_known_numbers_a_node_gives_what_onnx_gives(
    a: Algebra, op_type: str, values: list[Any], settings: dict[str, Any]
) -> None:
    if op_type in ("Conv", "Resize", "ScatterElements") and onnx.__version__.startswith(("1.21", "1.22")):
        pytest.skip("onnx's reference before 1.23 has no right answer in some cases")
    names = [f"x{at}" for at in range(len(values))]
    count = {"Split": 2, "TopK": 2}.get(op_type, 1)
    outputs = [f"y{at}" for at in range(count)]
    made = helper.make_node(op_type, names, outputs, **settings)
    graph = helper.make_graph(
        [made],
        "g",
        [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(np.asarray(value).dtype), None
            )
            for name, value in zip(names, values, strict=True)
        ],
        [onnx.ValueInfoProto(name=name) for name in outputs],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    expected = ReferenceEvaluator(model).run(None, dict(zip(names, map(np.asarray, values), strict=True)))
    integers = {name: value for name, value in settings.items() if isinstance(value, int)}
    others = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in settings.items()
        if name not in integers
    }
    node = Node((), 0, op_type, "", "", tuple(names), tuple(outputs), integers, settings=others)

    try:
        found = operate(Operation(a, node, [np.asarray(value) for value in values], None, 20))
    except UnknownError:
        assert (
            settings.get("select_last_index") or settings.get("nearest_mode") == "floor"
        )  # rounding decides it
        return

    for one, other in zip(found, expected, strict=False):
        np.testing.assert_allclose(np.asarray(one), other, rtol=2e-5, atol=2e-5)
        assert np.asarray(one).dtype == other.dtype


def test_a_weight_without_a_pattern_has_minors_and_multiplies_as_written_out(a: Algebra) -> None:
    weight = drawn("w", (64, 96), 0, most_dense=64 * 96)
    x = Field(draw((3, 64), "x"))

    found = a.matmul(x, a.multiply(weight, Field(draw((96,), "scale"))))

    rows = a.dense(weight).elements.astype(object) * draw((96,), "scale").astype(object)
    assert np.array_equal(elements(a, found), (x.elements.astype(object) @ rows % PRIME).astype(np.uint64))
    (p, q, r), (s, t, u), (v, w, z) = elements(a, found)[:, :3].astype(object)
    assert (p * (t * z - u * w) - q * (s * z - u * v) + r * (s * w - t * v)) % PRIME


# zeros where a mask hides everything, as the exporter of transformers writes them

LOWEST = number(float(np.finfo(np.float32).min))


def zeros_where_less(a: Algebra, seen: Value, least: float, product: Value) -> Value:
    count = a.sum(a.cast(seen, "f", np.float32), (2,), keeps=True)
    return a.where(a.compare("less", count, number(least)), number(0), product)


@pytest.mark.parametrize("is_chosen", [True, False])
def test_zeros_where_a_mask_hides_everything_are_attention(a, is_chosen):
    scores, bias = (Field(draw((2, 3, 4), name, 0)) for name in ("scores", "bias"))
    truth = a.compare("less", scores, bias)
    mask = a.where(truth, bias, LOWEST) if is_chosen else bias
    shares = a.softmax(a.add(scores, mask), 2)
    attended = a.matmul(shares, Field(draw((2, 4, 5), "values", 0)))

    seen = a.compare("greater", mask, LOWEST)

    assert zeros_where_less(a, seen, 1, attended) is attended
    turned = a.permute(attended, (1, 0, 2))
    count = a.sum(a.cast(seen, "f", np.float32), (2,), keeps=True)
    hidden = a.permute(a.compare("less", count, number(1)), (1, 0, 2))
    assert a.where(hidden, number(0), turned) is turned


def test_other_zeros_are_not(a):
    scores, bias, other = (Field(draw((2, 3, 4), name, 0)) for name in ("scores", "bias", "other"))
    truth = a.compare("less", scores, other)
    shares = a.softmax(a.add(scores, a.where(truth, bias, LOWEST)), 2)
    attended = a.matmul(shares, Field(draw((2, 4, 5), "values", 0)))

    for seen, least in ((truth, 2), (a.invert_truth(truth), 1), (a.compare("greater", bias, LOWEST), 1)):
        assert not same(a, zeros_where_less(a, seen, least, attended), attended)
    assert not same(a, zeros_where_less(a, truth, 1, a.negate(attended)), a.negate(attended))


def test_truth_values_times_the_lowest_number_are_a_mask(a):
    truth = a.compare("less", *(Field(draw((3, 4), name, 0)) for name in ("one", "other")))
    numbers = a.cast(truth, "f", np.float32)

    made = a.multiply(numbers, LOWEST)

    assert a.same(made, a.where(truth, LOWEST, number(0)))
    assert made.masks
    assert not a.same(a.multiply(numbers, number(-3.0)), made)
