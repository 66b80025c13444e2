"""A weight norm that was multiplied out: W = g v / ||v||, by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from models import bridge_of, lines_of, manifest_of, noise, parameter, quantized, reconcile, text_model

from analyzer.content import Array, encode_values, sample_positions
from analyzer.manifest import Manifest, WeightNorm
from analyzer.reconciliation import Reconciliation

both = pytest.mark.parametrize("at_hand", [False, True], ids=["manifest", "weights"])

DIRECTION = noise(4, 3, 5)


def length_of(axis: int | None, direction: Array = DIRECTION) -> Array:
    """Lengths as torch.nn.utils.weight_norm(dim=axis) shapes them, all different."""
    if axis is None:
        return np.array([2.5], "f4")
    shape = [size if number == axis else 1 for number, size in enumerate(direction.shape)]
    return (np.arange(direction.shape[axis], dtype="f4") - 1.5).reshape(shape)


def product(axis: int | None, direction: Array = DIRECTION) -> Array:
    others = tuple(number for number in range(direction.ndim) if number != axis)
    norms = np.sqrt(np.square(direction.astype("f8")).sum(axis=others, keepdims=True))
    return (
        length_of(axis, direction).reshape(norms.shape if axis is not None else (1, 1, 1)) * direction / norms
    ).astype("f4")


def known(axis: int | None, direction: Array = DIRECTION) -> tuple[Manifest, dict[str, Any]]:
    others = tuple(number for number in range(direction.ndim) if number != axis)
    length = length_of(axis, direction)
    norms = np.sqrt(np.square(direction.astype("f8")).sum(axis=others))
    norm = WeightNorm(
        "conv.weight",
        "conv.weight_g",
        "conv.weight_v",
        axis,
        encode_values(length.reshape(-1) / norms.reshape(-1)),
    )
    arrays = {"conv.weight_g": length, "conv.weight_v": direction}
    return manifest_of(
        *(parameter(name, array) for name, array in arrays.items()), weight_norms=(norm,)
    ), arrays


def run(
    tmp_path,
    stored: Array,
    axis: int | None,
    content: Any = "full",
    *,
    at_hand: bool = False,
    name: str = "onnx::Conv_9",
    direction: Array = DIRECTION,
) -> Reconciliation:
    proto = text_model(f'g (float[1] x) => (float[1] y) {{ y = Conv(x, "{name}") }}', {name: stored})
    manifest, arrays = known(axis, direction)
    return reconcile(tmp_path, proto, manifest, content, arrays if at_hand else None)


@both
@pytest.mark.parametrize("axis", [None, 0, 1, 2])
@pytest.mark.parametrize("name", ["onnx::Conv_9", "conv.weight"])
def test_product_holds_the_direction_and_takes_the_length_away(tmp_path, axis, name, at_hand):
    result = run(tmp_path, product(axis), axis, at_hand=at_hand, name=name)

    length = length_of(axis).size
    assert bridge_of(result) == {"folded-weightnorm": (2, 60 + length, -length, -length)}
    assert result.balanced
    assert {p.decided_by.partition(":")[2] for p in result.parameters} == {"weightnorm conv.weight"}


@both
@pytest.mark.parametrize(("position", "axis"), [(0, 0), (7, 0), (59, 0), (7, 1), (7, None)])
def test_one_changed_element_is_no_product(tmp_path, position, axis, at_hand):
    stored = product(axis)
    stored.reshape(-1)[position] *= np.float32(1.01)

    assert not run(tmp_path, stored, axis, at_hand=at_hand).balanced


def test_an_element_between_the_samples_is_seen_with_the_weights_at_hand(tmp_path):
    direction = noise(40, 10, 5)
    stored = product(0, direction)
    assert 1 not in sample_positions(direction.size)
    stored.reshape(-1)[1] *= np.float32(1.001)

    assert not run(tmp_path, stored, 0, at_hand=True, direction=direction).balanced


@both
def test_direction_alone_is_no_product(tmp_path, at_hand):
    result = run(tmp_path, DIRECTION * np.float32(3), 0, at_hand=at_hand)

    assert lines_of(result) == {"conv.weight_g": "missing", "conv.weight_v": "missing"}


@both
def test_product_may_be_cast(tmp_path, at_hand):
    result = run(tmp_path, product(0).astype("f2"), 0, at_hand=at_hand)

    assert result.balanced
    assert lines_of(result)["conv.weight_v"] == "cast"
    assert [str(line) for line in result.parameters[1].chain] == ["folded-weightnorm", "cast"]


@both
def test_product_may_be_quantized(tmp_path, at_hand):
    proto = text_model(
        """g (float[1] x) => (float[1] y) {
            d = DequantizeLinear<axis = 0>(w_quantized, w_scale, w_zero_point) y = Conv(x, d)
        }""",
        quantized("w", product(0), axis=0),
    )
    manifest, arrays = known(0)

    result = reconcile(tmp_path, proto, manifest, "full", arrays if at_hand else None)

    assert result.balanced
    assert lines_of(result)["conv.weight_v"] == "quantized"


def test_parts_that_are_stored_themselves_are_identical(tmp_path):
    manifest, arrays = known(0)
    proto = text_model(
        'g (float[1] x) => (float[1] y) { w = Mul("conv.weight_v", "conv.weight_g") y = Conv(x, w) }', arrays
    )

    result = reconcile(tmp_path, proto, manifest)

    assert set(lines_of(result).values()) == {"identical"}


def test_names_alone_explain_no_product(tmp_path):
    assert not run(tmp_path, product(0), 0, "none").balanced


@both
def test_every_norm_is_multiplied_out_and_one_of_what_pytorch_does_not_have_is_passed_over(tmp_path, at_hand):
    manifest, arrays = known(0)
    other, others = known(1)
    renamed = {name.replace("conv", "other"): array for name, array in others.items()}
    (norm,) = other.weight_norms
    second = WeightNorm("other.weight", "other.weight_g", "other.weight_v", 1, norm.scale)
    absent = WeightNorm("gone.weight", "gone.weight_g", "gone.weight_v", 0, norm.scale)
    manifest = manifest_of(
        *manifest.parameters,
        *(parameter(name, array) for name, array in renamed.items()),
        weight_norms=(absent, *manifest.weight_norms, second),
    )
    proto = text_model(
        "g (float[1] x) => (float[1] y) { h = Conv(x, v0) y = Conv(h, v1) }",
        {"v0": product(0), "v1": product(1)},
    )

    result = reconcile(tmp_path, proto, manifest, "full", arrays | renamed if at_hand else None)

    assert set(lines_of(result).values()) == {"folded-weightnorm"}
    assert result.balanced
    pieces = [piece for line in result.parameters for piece in line.pieces]
    assert [piece.computed and piece.computed.rule for piece in pieces] == [
        "weightnorm conv.weight",
        "weightnorm other.weight",
    ]
