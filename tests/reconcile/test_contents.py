"""Comparison of stored contents with PyTorch tensors, in each mode, by a manifest's evidence and by values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from models import (
    Array,
    Values,
    audit,
    buffer,
    convolution,
    entry,
    manifest_of,
    noise,
    packed,
    parameter,
    quantized,
    ramp,
    raw,
    table,
    text_model,
    without_values,
)
from onnx import TensorProto

from analyzer.account.ledger import Entry
from analyzer.errors import UsageError
from analyzer.manifest import Manifest, Parameter
from analyzer.model.content import cast_digest, digest, row_digests, sample, sample_positions
from analyzer.model.dtypes import DType
from analyzer.model.wiring import Wiring
from analyzer.reconciliation import ContentMode, reconcile_ledger
from analyzer.reconciliation.contents import Contents, Fit, Originals, Stacks
from analyzer.reconciliation.layouts import AxisLayout

MODES: list[ContentMode] = ["none", "sampled", "full"]

both = pytest.mark.parametrize("at_hand", [False, True], ids=["manifest", "weights"])
"""Two sources on PyTorch's side: the evidence in a manifest, or all values. They must not contradict each other."""


@dataclass(frozen=True)
class Pair:
    """A stored tensor beside a PyTorch tensor."""

    contents: Contents
    entry: Entry
    tensor: Parameter

    def fit(self, **how: Any) -> Fit | None:
        return self.contents.fit(self.entry, self.tensor, **how)

    def chain(self) -> list[str] | None:
        found = self.fit()
        return None if found is None else [str(line) for line in found.chain]


@dataclass(frozen=True)
class Compare:
    """Compares a stored content with a PyTorch tensor's."""

    folder: Path

    def __call__(
        self, stored: Array, known: Array, mode: ContentMode = "full", at_hand: bool = False
    ) -> Pair:
        return self.of(
            text_model("g (float[1] x) => (float[1] y) { y = MatMul(x, w) }", {"w": stored}),
            known,
            mode,
            at_hand,
        )

    def of(
        self,
        proto: onnx.ModelProto,
        known: Array,
        mode: ContentMode = "full",
        at_hand: bool = False,
        name: str = "w",
    ) -> Pair:
        ledger = audit(self.folder, proto)
        tensor = parameter("fc.weight", known, weightless=at_hand)
        weights = Values({"fc.weight": known}) if at_hand else None
        originals = Originals(manifest_of(tensor), weights)
        return Pair(Contents(mode, originals, ledger.wiring), entry(ledger, name), tensor)


@pytest.fixture
def compare(tmp_path: Path) -> Compare:
    return Compare(tmp_path)


def next_half(array: Array, position: int) -> Array:
    changed = array.copy()
    flat = changed.reshape(-1)
    flat[position] = np.nextafter(flat[position], np.asarray(np.inf, array.dtype))
    return changed


# the same type


@both
@pytest.mark.parametrize("mode", ["sampled", "full"])
@pytest.mark.parametrize(
    ("stored", "known", "chain"),
    [
        (ramp(2, 3), ramp(2, 3), []),
        (ramp(2, 3).T.copy(), ramp(2, 3), ["transposed"]),
        (ramp(30, 40).T.copy(), ramp(30, 40), ["transposed"]),
        (ramp(30, 30).T.copy(), ramp(30, 30), ["transposed"]),
        (ramp(6), ramp(2, 3), ["reshaped"]),
        (ramp(1, 2, 3), ramp(2, 3), ["reshaped"]),
        (np.moveaxis(ramp(2, 3, 4), 0, 2).copy(), ramp(2, 3, 4), ["transposed"]),
        (np.moveaxis(ramp(2, 3, 4), 0, 2).reshape(12, 2).copy(), ramp(2, 3, 4), ["transposed", "reshaped"]),
        (ramp(2, 3, 4).transpose(2, 1, 0).reshape(12, 2).copy(), ramp(2, 3, 4), None),
        (ramp(2, 3, start=2), ramp(2, 3), None),
        (ramp(3, 2), ramp(2, 3), None),
        (ramp(2, 4), ramp(2, 3), None),
        (ramp(0, 3), ramp(0, 3), []),
        (ramp(), ramp(), []),
    ],
)
def test_content_of_one_type_is_found_unchanged_transposed_or_reshaped(
    compare, stored, known, chain, mode, at_hand
):
    assert compare(stored, known, mode, at_hand).chain() == chain


@both
def test_evidence_says_how_much_was_compared(compare, at_hand):
    evidence = {mode: compare(ramp(20, 30), ramp(20, 30), mode, at_hand).fit().evidence for mode in MODES}

    assert evidence == {"none": "shape", "sampled": "sampled", "full": "content"}


@both
@pytest.mark.parametrize("size", [64, 127, 190])
def test_samples_do_not_decide_which_way_a_square_matrix_stands(compare, size, at_hand):
    weight = noise(size, size)
    other = weight.copy()
    other[1, 2] += 1  # outside the samples for some sizes, among them for others

    assert compare(weight.T.copy(), weight, "sampled", at_hand).chain() == ["transposed"]
    assert compare(weight.T.copy(), weight, "sampled", at_hand).fit().evidence == "content"
    assert compare(other.T.copy(), weight, "sampled", at_hand).fit() is None


def test_numbers_that_were_rounded_to_a_narrower_type_are_cast(compare):
    weight = noise(20, 30)
    for narrow in ("f2", ml_dtypes.bfloat16):
        for wide in ("f4", "f8"):
            for mode in ("sampled", "full"):
                for at_hand in (False, True):
                    stored = weight.astype(narrow).astype(wide)
                    changed = stored.copy()
                    changed[3, 7] *= 2
                    assert compare(stored, weight, mode, at_hand).chain() == ["cast"]
                    if mode == "full":
                        assert compare(changed, weight, mode, at_hand).fit() is None


@both
@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, "f2", "f8", "i1", "?", "i8"])
@pytest.mark.parametrize("mode", ["sampled", "full"])
def test_every_dtype_is_compared(compare, dtype, mode, at_hand):
    array = np.array([[0, 1, 1], [1, 0, 0]]).astype(dtype)

    assert compare(array, array, mode, at_hand).chain() == []
    assert compare(array.T.copy(), array, mode, at_hand).chain() == ["transposed"]
    assert (
        compare(
            1 - array.astype("i8") if dtype == "i8" else (array == 0).astype(dtype), array, mode, at_hand
        ).chain()
        is None
    )


@both
@pytest.mark.parametrize(("mode", "is_seen"), [("sampled", False), ("full", True)])
def test_one_ulp_between_the_samples_is_seen_where_all_is_compared(compare, mode, is_seen, at_hand):
    known = noise(40, 50)
    assert 1 not in sample_positions(known.size)

    found = compare(next_half(known, 1), known, mode, at_hand).fit()

    assert (found is None) == is_seen


@both
def test_one_ulp_at_a_sample_is_seen_in_either_mode(compare, at_hand):
    known = noise(40, 50)

    assert compare(next_half(known, 0), known, "sampled", at_hand).fit() is None


@both
def test_sign_of_a_zero_is_seen(compare, at_hand):
    known = np.array([[0.0, 1.0], [2.0, 3.0]], "f4")

    assert compare(np.where(known == 0, np.float32(-0.0), known), known, "full", at_hand).fit() is None


@both
def test_square_symmetric_matrix_is_the_same(compare, at_hand):
    symmetric = ramp(4, 4) + ramp(4, 4).T

    assert compare(symmetric, symmetric, "full", at_hand).fit() is not None


def test_integers_are_no_cast_of_floats(compare):
    assert compare(ramp(2, 3).astype("i4"), ramp(2, 3)).fit() is None


# limits by name, shape and operator


def convolution_contents(kernel: Array, name: str) -> onnx.ModelProto:
    return text_model(f'g (float[1] x) => (float[1] y) {{ y = Conv(x, "{name}") }}', {name: kernel})


@pytest.mark.parametrize("name", ["fc.weight", "onnx::Conv_7"])
@pytest.mark.parametrize("axes", [(0, 1, 3, 2), (1, 0, 2, 3)])
def test_kernel_with_its_axes_swapped_is_another(compare, name, axes):
    kernel = noise(4, 4, 3, 3)

    assert compare.of(convolution_contents(kernel, name), kernel, name=name).chain() == []
    assert (
        compare.of(convolution_contents(kernel.transpose(axes).copy(), name), kernel, name=name).chain()
        is None
    )


@pytest.mark.parametrize(
    ("node", "chain"),
    [
        ('y = Gemm<transB = 1>(x, "fc.weight")', None),
        ('y = Gather("fc.weight", x)', None),
        ('y = MatMul(x, "fc.weight")', ["transposed"]),
    ],
)
def test_square_matrix_under_its_own_name_is_not_turned_where_its_reader_takes_it_straight(
    compare, node, chain
):
    square = noise(5, 5)
    proto = text_model(f"g (float[1] x) => (float[1] y) {{ {node} }}", {"fc.weight": square.T.copy()})

    assert compare.of(proto, square, name="fc.weight").chain() == chain


@pytest.mark.parametrize("shape", [(4, 6), (2, 3, 4)])
def test_reshape_puts_no_dims_in_another_order(compare, shape):
    known = noise(*shape)

    assert compare(known.reshape(shape[::-1]).copy(), known).fit() is None


# casts


def clamped(array: Array) -> Array:
    """Return what onnxruntime's `convert_float_to_float16` makes (onnxruntime/python/tools/transformers/float16.py)."""
    least, most = 5.96e-08, 65504.0
    array = np.where((array > 0) & (array < least), least, array)
    array = np.where((array < 0) & (array > -least), -least, array)
    array = np.where(array > most, most, array)
    return np.where(array < -most, -most, array).astype(np.float16)


def to_half(array: Array) -> Array:
    with np.errstate(over="ignore"):
        return array.astype(np.float16)


EXTREMES = np.array(
    [0, 1e-9, -1e-9, 3e-8, -3e-8, 5.9e-8, 7e-8, 1 / 3, -2, 65504, 7e4, -1e6, np.inf, -np.inf], "f4"
)


@both
@pytest.mark.parametrize("cast", [to_half, clamped], ids=["rounded", "clamped"])
@pytest.mark.parametrize(
    "known", [EXTREMES, np.tile(EXTREMES, 20), noise(40, 50)], ids=["few", "many", "a layer"]
)
def test_cast_to_float16_is_a_cast_whether_clamped_or_not(compare, cast, known, at_hand):
    assert compare(cast(known), known, "full", at_hand).chain() == ["cast"]


@both
@pytest.mark.parametrize("shape", [(5, 7), (40, 50)])
def test_cast_and_turned_is_both(compare, shape, at_hand):
    known = noise(*shape)

    assert compare(known.T.astype("f2").copy(), known, "full", at_hand).chain() == ["transposed", "cast"]


@both
@pytest.mark.parametrize("position", [0, 1, 2])
def test_one_half_ulp_is_seen_in_a_cast_tensor(compare, position, at_hand):
    known = noise(40, 50)

    assert compare(next_half(known.astype("f2"), position), known, "full", at_hand).fit() is None


@both
def test_smallest_halves_are_zero_and_infinity_is_the_largest(compare, at_hand):
    """onnxruntime's converter clamps to the smallest half; onnxconverter-common's to 1e-7, the second smallest."""
    known = np.array([1e-12, 1e9, 1.0], "f4")

    assert compare(np.array([6e-8, 65504, 1], "f2"), known, "full", at_hand).chain() == ["cast"]
    assert compare(np.array([1e-7, 65504, 1], "f2"), known, "full", at_hand).chain() == ["cast"]
    assert compare(np.array([1.8e-7, 65504, 1], "f2"), known, "full", at_hand).fit() is None


def truncated(array: Array) -> Array:
    return (array.view(np.uint32) >> 16).astype(np.uint16).view(ml_dtypes.bfloat16)


@both
@pytest.mark.parametrize("shape", [(5, 7), (40, 50)])
def test_bfloat16_may_be_rounded_to_the_nearest(compare, shape, at_hand):
    known = noise(*shape)

    assert compare(known.astype(ml_dtypes.bfloat16), known, "full", at_hand).chain() == ["cast"]


@pytest.mark.parametrize(("shape", "at_hand"), [((5, 7), False), ((5, 7), True), ((40, 50), True)])
def test_bfloat16_may_be_cut_off(compare, shape, at_hand):
    known = noise(*shape)

    assert compare(truncated(known), known, "full", at_hand).chain() == ["cast"]


@both
def test_bfloat16_is_rounded_one_way_throughout(compare, at_hand):
    known = noise(5, 7)
    rounded = known.astype(ml_dtypes.bfloat16)
    is_other = rounded != truncated(known)
    is_other[0] = False
    assert is_other.any()

    assert compare(np.where(is_other, truncated(known), rounded), known, "full", at_hand).fit() is None


@both
@pytest.mark.parametrize("narrow", ["f2", ml_dtypes.bfloat16])
def test_what_was_half_and_is_stored_wide_is_a_cast(compare, narrow, at_hand):
    known = noise(5, 7).astype(narrow)

    assert compare(known.astype("f4"), known, "full", at_hand).chain() == ["cast"]
    assert compare(next_half(known.astype("f4"), 3), known, "full", at_hand).fit() is None


# codes


def coded(tensors: dict[str, Array], *, axis: int = 1, name: str = "w") -> onnx.ModelProto:
    inputs = f'"{name}_quantized", "{name}_scale", "{name}_zero_point"'
    return text_model(
        f"g (float[1] x) => (float[1] y) {{ d = DequantizeLinear<axis = {axis}>({inputs}) y = MatMul(x, d) }}",
        tensors,
    )


@both
@pytest.mark.parametrize("mode", ["sampled", "full"])
@pytest.mark.parametrize("dtype", ["i1", "u1"])
@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("zero", [False, True])
def test_eight_bits_store_a_matrix_within_a_step(compare, dtype, axis, zero, mode, at_hand):
    known = noise(30, 20)
    tensors = quantized("w", known.T.copy(), dtype=dtype, axis=axis, zero=zero)

    pair = compare.of(coded(tensors, axis=axis or 0), known, mode, at_hand, "w_quantized")

    assert pair.chain() == ["transposed", "quantized"]
    assert 0 < pair.fit().error <= tensors["w_scale"].max() * 0.51


@both
@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize("mode", ["sampled", "full"])
def test_four_bits_store_the_transpose_of_what_was_multiplied(compare, zero, mode, at_hand):
    known = noise(12, 64)  # (out, in): MatMulNBits stores its B, the transpose, again transposed
    tensors = packed("w", known, zero=zero)
    points = ', "w_zero_points"' if zero else ""
    proto = text_model(
        f"""g (float[1,64] x) => (float[1,12] y) {{
            y = com.microsoft.MatMulNBits<K = 64, N = 12, bits = 4, block_size = 16>(x, "w_Q4", "w_scales"{points})
        }}""",
        tensors,
    )

    pair = compare.of(proto, known, mode, at_hand, "w_Q4")

    assert pair.chain() == ["block-quantized"]
    assert 0 < pair.fit().error <= tensors["w_scales"].max() * 1.001


def experts_in_codes(known: Array) -> onnx.ModelProto:
    """Return a QMoE with a stack of experts in four bits, in blocks of 16 along their inputs."""
    tensors: dict[str, Array] = {}
    for slot, stack in (("fc1", known), ("fc2", noise(*known.shape[:1], *known.shape[:0:-1]))):
        parts = [packed(slot, each, zero=False) for each in stack]
        codes = np.stack(
            [part[f"{slot}_Q4"].reshape(len(each), -1) for part, each in zip(parts, stack, strict=True)]
        )
        scales = [
            part[f"{slot}_scales"].reshape(len(each), -1) for part, each in zip(parts, stack, strict=True)
        ]
        tensors |= {f"{slot}_Q4": codes, f"{slot}_scales": np.stack(scales)}
    width = known.shape[2]
    return text_model(
        f"""g (float[1,{width}] x, float[1,{len(known)}] r) => (float[1,{width}] y) {{
            y = com.microsoft.QMoE<block_size = 16>(x, r, fc1_Q4, fc1_scales, , fc2_Q4, fc2_scales)
        }}""",
        tensors,
    )


@both
@pytest.mark.parametrize("mode", ["sampled", "full"])
def test_a_stack_of_experts_in_four_bits_is_found_as_it_is_or_transposed(compare, mode, at_hand):
    known = noise(3, 48, 32)
    proto = experts_in_codes(known)

    found = compare.of(proto, known, mode, at_hand, "fc1_Q4").chain()
    turned = compare.of(
        proto, np.ascontiguousarray(known.transpose(0, 2, 1)), mode, at_hand, "fc1_Q4"
    ).chain()

    assert found == ["block-quantized"]
    assert "block-quantized" in turned


@both
def test_experts_in_another_order_are_others(compare, at_hand):
    known = noise(3, 48, 32)

    assert compare.of(experts_in_codes(known), known[::-1].copy(), "full", at_hand, "fc1_Q4").fit() is None


def test_codes_are_compared_whole_with_the_weights_at_hand_and_by_sums_without(compare):
    known = noise(30, 20)
    proto = coded(quantized("w", known))

    evidence = {
        at_hand: compare.of(proto, known, "full", at_hand, "w_quantized").fit().evidence
        for at_hand in (False, True)
    }

    assert evidence == {False: "sums", True: "content"}


@pytest.mark.parametrize(
    ("position", "mode", "at_hand", "is_seen"),
    [
        (0, "sampled", False, True),
        (0, "full", True, True),
        (1, "sampled", False, False),
        (1, "full", False, False),
        (1, "full", True, True),
    ],
)
def test_code_that_is_three_steps_off_is_seen_where_it_is_looked_at(
    compare, position, mode, at_hand, is_seen
):
    known = noise(30, 20)
    tensors = quantized("w", known)
    flat = tensors["w_quantized"].reshape(-1)
    flat[position] += np.int8(3 if flat[position] < 100 else -3)

    found = compare.of(coded(tensors), known, mode, at_hand, "w_quantized").fit()

    assert (found is None) == is_seen


@both
@pytest.mark.parametrize("shape", [(5, 7), (30, 20)])
@pytest.mark.parametrize("is_named", [False, True])
@pytest.mark.parametrize("codes", ["zeros", "signs"])
def test_scale_so_large_that_all_is_within_a_step_proves_nothing(compare, shape, is_named, codes, at_hand):
    known = noise(*shape)
    signs = np.random.default_rng(1).choice([-1, 1], known.shape)
    stored = (0 * signs if codes == "zeros" else signs).astype("i1")
    tensors = {"w_quantized": stored, "w_scale": np.float32(100), "w_zero_point": np.int8(0)}

    pair = compare.of(
        coded({k: np.asarray(v) for k, v in tensors.items()}), known, "full", at_hand, "w_quantized"
    )

    assert pair.fit(is_named=is_named) is None


def test_zeroed_codes_between_the_samples_are_seen_with_the_weights_at_hand(compare):
    known = noise(30, 20)
    scale = np.float32(np.abs(known).max())
    codes = np.zeros(known.size, "i1")
    at = sample_positions(known.size)
    codes[at] = np.round(known.reshape(-1)[at] / scale)
    tensors = {
        "w_quantized": codes.reshape(known.shape),
        "w_scale": np.asarray(scale),
        "w_zero_point": np.asarray(0, "i1"),
    }

    assert compare.of(coded(tensors), known, "full", True, "w_quantized").fit() is None


@both
def test_values_within_a_step_but_in_another_direction_are_other_values(compare, at_hand):
    known = noise(5, 7)
    stored = np.sign(np.random.default_rng(3).standard_normal(known.shape)).astype("i1")
    scale = np.float32(np.abs(known - stored).max() * 1.5)
    tensors = {"w_quantized": stored, "w_scale": np.asarray(scale), "w_zero_point": np.asarray(0, "i1")}

    assert compare.of(coded(tensors), known, "full", at_hand, "w_quantized").fit() is None


@both
def test_zeros_in_codes_are_known_by_their_name_alone(compare, at_hand):
    known = np.zeros((5, 7), "f4")
    pair = compare.of(coded(quantized("w", known)), known, "full", at_hand, "w_quantized")

    assert pair.fit(is_named=True) is not None
    assert pair.fit(is_named=False) is None


@both
@pytest.mark.parametrize("off", [-3, 3])
def test_wrong_zero_point_is_seen(compare, off, at_hand):
    known = noise(30, 20)
    tensors = quantized("w", known, dtype="u1", zero=True)
    tensors["w_zero_point"] = (tensors["w_zero_point"].astype("i4") + off).astype("u1")

    assert compare.of(coded(tensors), known, "sampled", at_hand, "w_quantized").fit() is None


def test_codes_whose_scale_is_computed_stand_for_themselves(compare):
    known = noise(5, 7)
    proto = text_model(
        'g (float[1] x) => (float[1] y) { s = Relu(x) d = DequantizeLinear("w_quantized", s) y = MatMul(x, d) }',
        {"w_quantized": quantized("w", known)["w_quantized"]},
    )

    pair = compare.of(proto, known, name="w_quantized")

    assert pair.contents.encoding(pair.entry) is None
    assert pair.fit() is None


def test_shape_and_elements_are_those_that_codes_stand_for(compare):
    tensors = packed("w", noise(12, 64))
    proto = text_model(
        """g (float[1] x) => (float[1] y) {
            y = com.microsoft.MatMulNBits<K = 64, N = 12, block_size = 16>(x, "w_Q4", "w_scales")
        }""",
        tensors,
    )
    pair = compare.of(proto, noise(12, 64), name="w_Q4")

    assert pair.contents.shape(pair.entry) == (12, 64)
    assert pair.contents.numel(pair.entry) == 768
    assert pair.entry.tensor.numel == 384


# unreadable contents


@both
@pytest.mark.parametrize("mode", ["sampled", "full"])
def test_payload_that_cannot_be_read_proves_nothing(compare, mode, at_hand):
    proto = text_model("g (float[1] x) => (float[1] y) { y = MatMul(x, w) }")
    proto.graph.initializer.append(raw("w", [2, 3], TensorProto.FLOAT, b"short"))

    pair = compare.of(proto, ramp(2, 3), mode, at_hand)

    assert pair.fit() is None
    assert not pair.contents.is_readable(pair.entry)
    assert pair.contents.error(pair.entry, pair.tensor) is None
    assert pair.contents.agreement(pair.entry, pair.tensor) == (0, 0)


def test_codes_whose_scales_cannot_be_read_prove_nothing(compare):
    known = noise(5, 7)
    proto = coded({k: v for k, v in quantized("w", known).items() if k != "w_scale"})
    proto.graph.initializer.append(raw("w_scale", [1], TensorProto.FLOAT, b""))

    assert compare.of(proto, known, name="w_quantized").fit() is None


def test_tensor_without_weights_is_known_by_its_shape(compare):
    ledger = audit(
        compare.folder, text_model("g (float[1] x) => (float[1] y) { y = MatMul(x, w) }", {"w": ramp(3)})
    )
    tensor = parameter("fc.weight", ramp(3, start=9), weightless=True)

    found = Contents("full", Originals(manifest_of(tensor)), ledger.wiring).fit(entry(ledger, "w"), tensor)

    assert found.evidence == "shape"


def test_strings_are_no_numbers(compare):
    proto = text_model('g (float[1] x) => (string[2] y) <string[2] w = {"a", "b"}> { y = Concat<axis=0>(w) }')

    assert compare.of(proto, ramp(2)).fit() is None


# differences


@both
@pytest.mark.parametrize("is_turned", [False, True])
def test_error_is_the_largest_difference_in_the_layout_in_which_it_is_least(compare, is_turned, at_hand):
    changed = ramp(2, 3)
    changed[1, 2] += np.float32(0.25)
    pair = compare(changed.T.copy() if is_turned else changed, ramp(2, 3), "full", at_hand)

    assert pair.contents.error(pair.entry, pair.tensor) == 0.25
    assert pair.contents.agreement(pair.entry, pair.tensor) == (5, 6)


@both
def test_error_of_a_cast_is_what_the_rounding_took(compare, at_hand):
    known = np.array([1 / 3, 1.0], "f4")
    expected = abs(float(np.float16(1 / 3)) - float(np.float32(1 / 3)))

    assert compare(known.astype("f2"), known, "full", at_hand).fit().error == pytest.approx(expected)


@pytest.mark.parametrize(
    ("mode", "stored", "known"),
    [("none", ramp(3), ramp(3)), ("full", ramp(4), ramp(3)), ("full", np.array(["a", "b"], "O"), ramp(2))],
)
def test_error_is_none_where_nothing_was_compared(compare, mode, stored, known):
    pair = compare(stored, known, mode)

    assert pair.contents.error(pair.entry, pair.tensor) is None


def test_look_gives_the_stored_numbers_at_the_samples_of_pytorchs(compare):
    known = noise(30, 40)
    pair = compare(known.T.copy(), known)

    found, steps = pair.contents.look(pair.entry, AxisLayout((30, 40), (1, 0), (40, 30)))

    assert found.tolist() == known.reshape(-1)[sample_positions(known.size)].tolist()
    assert steps is None


def test_look_at_codes_gives_their_steps_too(compare):
    known = noise(5, 7)
    tensors = quantized("w", known, axis=0)
    pair = compare.of(coded(tensors, axis=0), known, name="w_quantized")

    found, steps = pair.contents.look(pair.entry, AxisLayout((5, 7), (0, 1), (5, 7)))

    assert steps.reshape(5, 7)[:, 0].tolist() == pytest.approx(tensors["w_scale"].tolist())
    assert (np.abs(found.reshape(5, 7) - known) <= steps.reshape(5, 7) * 0.501).all()


def test_progress_counts_a_tensors_bytes_once(tmp_path):
    steps: list[tuple[int, int]] = []
    known = ramp(20, 30)
    ledger = audit(tmp_path, text_model("g (float[1] x) => (float[1] y) { y = MatMul(x, w) }", {"w": known}))
    tensors = parameter("fc.weight", known), parameter("other.weight", ramp(30, 20))
    originals = Originals(manifest_of(*tensors))
    contents = Contents("full", originals, ledger.wiring, lambda *step: steps.append(step), known.nbytes)

    for tensor in tensors:
        contents.fit(entry(ledger, "w"), tensor)

    assert set(steps) == {(2400, 2400)}


@pytest.mark.parametrize("content", ["sampled", "full"])
def test_contents_of_a_model_without_weights_cannot_be_compared(tmp_path, content):
    proto = text_model("g (float[1] x) => (float[1] y) { y = Relu(x) }")
    manifest = manifest_of(parameter("fc.weight", ramp(3), weightless=True))
    message = f"--content {content}: the PyTorch side was described without weights"

    with pytest.raises(UsageError, match=re.escape(message)):
        reconcile_ledger(audit(tmp_path, proto), manifest, content)


# knowledge of PyTorch's values: from a manifest's evidence, and from the values if given

WEIGHT = noise(40, 50)
FEW = noise(4, 5)


def both_originals(*tensors: Parameter, arrays: dict[str, Any]) -> list[Originals]:
    manifest = manifest_of(*tensors)
    return [Originals(manifest), Originals(without_values(manifest), Values(arrays))]


def first(originals: Originals) -> Parameter:
    return originals.manifest.parameters[0]


def test_evidence_is_the_same_from_a_manifest_and_from_the_values():
    for known in both_originals(convolution("w", WEIGHT), arrays={"w": WEIGHT}):
        tensor = first(known)
        sums, norms = known.channel_statistics(tensor)

        assert known.has(tensor)
        assert known.samples(tensor).tolist() == sample(WEIGHT).tolist()
        assert known.digest(tensor) == digest(WEIGHT)
        assert known.cast_digest(tensor, DType.FLOAT16) == cast_digest(WEIGHT, DType.FLOAT16)
        assert not known.is_constant(tensor)
        assert norms == pytest.approx(np.linalg.norm(WEIGHT, axis=1))
        assert sums.shape == (40,)


def test_row_digests_are_the_same_from_a_manifest_and_from_the_values():
    for known in both_originals(table("w", WEIGHT), arrays={"w": WEIGHT}):
        assert known.row_digests(first(known)).tolist() == row_digests(WEIGHT).tolist()


def test_values_of_a_small_tensor_are_in_the_manifest_and_of_a_large_one_are_not():
    small, large = (Originals(manifest_of(parameter("w", array))) for array in (FEW, WEIGHT))

    assert np.array_equal(small.values(first(small)), FEW)
    assert large.values(first(large)) is None


def test_values_that_a_manifest_has_whole_are_its_values():
    known = Originals(manifest_of(parameter("w", WEIGHT), values={"w": WEIGHT}))

    assert np.array_equal(known.values(first(known)), WEIGHT)
    assert known.vector("w").dtype == np.float64


def test_values_at_hand_are_found_by_any_of_a_tied_tensors_names():
    known = Originals(manifest_of(parameter("wte", FEW, weightless=True, tied=("head",))), Values(head=FEW))

    assert np.array_equal(known.values(first(known)), FEW)


def test_values_at_hand_of_another_shape_are_not_this_tensors():
    known = Originals(manifest_of(parameter("w", FEW, weightless=True)), Values(w=FEW.T))

    assert known.values(first(known)) is None
    assert not known.has(first(known))


def test_tensor_that_a_checkpoint_lacks_is_known_by_the_manifest():
    known = Originals(manifest_of(parameter("w", WEIGHT)), Values())

    assert known.has(first(known))
    assert known.digest(first(known)) == digest(WEIGHT)


def test_nothing_is_known_of_a_model_without_weights():
    known = Originals(manifest_of(parameter("w", WEIGHT, weightless=True)))
    tensor = first(known)

    assert not known.has_content
    assert known.samples(tensor) is None
    assert known.digest(tensor) is None
    assert known.cast_digest(tensor, DType.FLOAT16) is None
    assert known.row_digests(tensor) is None
    assert known.channel_statistics(tensor) is None
    assert known.vector("w") is None


def test_what_is_not_known_may_be_constant():
    known = Originals(manifest_of(parameter("w", WEIGHT, weightless=True)))

    assert known.is_constant(first(known))


@pytest.mark.parametrize(
    ("array", "is_constant"),
    [
        (np.ones((40, 50), "f4"), True),
        (WEIGHT, False),
        (np.where(np.arange(2000) == 1, 2, 1).astype("f4"), False),
    ],
    ids=["ones", "noise", "one element between the samples"],
)
def test_a_tensor_is_constant_only_if_all_elements_are_equal(array, is_constant):
    for known in both_originals(parameter("w", array), arrays={"w": array}):
        assert known.is_constant(first(known)) == is_constant


def test_cast_that_a_manifest_does_not_describe_is_not_known():
    manifest = manifest_of(parameter("w", WEIGHT))
    bare = replace(manifest.parameters[0], content=replace(manifest.parameters[0].content, casts={}))

    assert Originals(Manifest((bare,))).cast_digest(bare, DType.FLOAT16) is None


def test_buffers_are_known_as_parameters_are():
    manifest = manifest_of(buffer("inv_freq", ramp(4)))

    known = Originals(manifest)

    assert known.vector("inv_freq").tolist() == [1, 2, 3, 4]
    assert known.vector("other") is None
    assert known.vector(None) is None
    assert known.find("inv_freq") is manifest.buffers[0]


# PyTorch tensors by shape, and candidates for samples

KNOWN = np.array([[1.0, -2.0, 64.0]], np.float32)


def stacks_of(*arrays: Array, weightless: Sequence[Array] = ()) -> Stacks:
    tensors = [parameter(f"t{number}", array) for number, array in enumerate(arrays)]
    tensors += [parameter(f"w{number}", array, weightless=True) for number, array in enumerate(weightless)]
    return Stacks(Contents("full", Originals(manifest_of(*tensors)), Wiring({})), tensors)


def near(stored: Array, steps: Array | None = None, known: Array = KNOWN) -> bool:
    return bool(stacks_of(known).near(known.shape, (stored, steps)))


def test_numbers_and_tensors_without_values_are_left_out():
    pair = np.array([1.0, 2.0], np.float32)

    stacks = stacks_of(pair, pair[:1], weightless=[np.ones((2, 2), np.float32)])

    assert list(stacks.all_shapes) == [(2,)]
    assert (stacks.shapes(2), stacks.shapes(4)) == ([(2,)], [])


def test_each_shape_of_as_many_elements_is_listed_once():
    stacks = stacks_of(np.ones((2, 3)), np.ones(6), np.zeros((2, 3)))

    assert stacks.shapes(6) == [(2, 3), (6,)]


@pytest.mark.parametrize(("by", "is_near"), [(0.99, True), (1.01, False)])
def test_samples_may_be_rounded_by_a_sixty_fourth(by, is_near):
    stored = KNOWN.astype(np.float64)
    stored[0, 2] += by * stored[0, 2] / 64 / (1 - by / 64)

    assert near(stored) is is_near


@pytest.mark.parametrize(("by", "is_near"), [(1.0, True), (1.02, False)])
def test_codes_may_be_a_step_away(by, is_near):
    stored, steps = KNOWN.astype(np.float64), np.full(KNOWN.shape, 0.5)
    stored[0, 1] -= by * 0.5

    assert near(stored, steps) is is_near


@pytest.mark.parametrize("values", [np.array([["a", "b", "c"]]), np.array([[1j, 2j, 3j]])])
def test_what_is_no_real_number_is_near_nothing(values):
    assert not near(values)
