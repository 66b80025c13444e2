"""Several PyTorch tensors that are stored side by side in one tensor."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from models import (
    bridge_of,
    external,
    lines_of,
    manifest_of,
    noise,
    packed,
    parameter,
    parameters_of,
    quantized,
    reconcile,
    text_model,
)

from analyzer.model.content import Array, sample_positions
from analyzer.reconciliation import Reconciliation
from analyzer.reconciliation.contents import Contents

at = Contents.at
both = pytest.mark.parametrize("at_hand", [False, True], ids=["manifest", "weights"])

NAMES = ("self.query.weight", "self.key.weight", "self.value.weight")
QKV = {name: noise(8, 16, seed=seed) for seed, name in enumerate(NAMES)}
SQUARE = {name: noise(8, 8, seed=seed) for seed, name in enumerate(NAMES)}
BIASES = {name.replace("weight", "bias"): noise(8, seed=9 + seed) for seed, name in enumerate(NAMES)}


def packed_file(stored: Array, node: str = "", name: str = "packed") -> onnx.ModelProto:
    return text_model(
        f'g (float[1] x) => (float[1] y) {{ ["{node}"] y = MatMul(x, {name}) }}', {name: stored}
    )


def bias_file(stored: Array) -> onnx.ModelProto:
    return text_model("g (float[1] x) => (float[1] y) { h = MatMul(x, x) y = Add(h, b) }", {"b": stored})


def run(
    tmp_path,
    proto: onnx.ModelProto,
    arrays: dict[str, Array],
    content: Any = "full",
    *,
    at_hand: bool = False,
) -> Reconciliation:
    return reconcile(
        tmp_path, proto, manifest_of(*parameters_of(arrays)), content, arrays if at_hand else None
    )


def pieces_of(result: Reconciliation) -> dict[str, Any]:
    """Return the place of each parameter in the packed tensor: (axis, start, stop)."""
    return {line.name.split(".")[-2]: line.pieces[0].taken for line in result.parameters if line.pieces}


@both
@pytest.mark.parametrize("content", ["sampled", "full"])
@pytest.mark.parametrize(
    ("arrays", "turned", "axis"),
    [(QKV, False, 0), (QKV, False, 1), (QKV, True, 0), (QKV, True, 1), (SQUARE, False, 0), (SQUARE, True, 1)],
)
def test_tensors_are_found_side_by_side_along_either_axis(tmp_path, arrays, turned, axis, content, at_hand):
    stored = np.concatenate([array.T if turned else array for array in arrays.values()], axis=axis)

    result = run(tmp_path, packed_file(stored), arrays, content, at_hand=at_hand)

    size = next(iter(arrays.values())).shape[axis if not turned else 1 - axis]
    assert bridge_of(result) == {"concatenated": (3, stored.size, 0, 0)}
    assert [str(line) for line in result.parameters[0].chain] == ["transposed"] * turned + ["concatenated"]
    assert pieces_of(result) == {
        "query": (axis, 0, size),
        "key": (axis, size, 2 * size),
        "value": (axis, 2 * size, 3 * size),
    }


@both
def test_tensors_of_different_width_share_one(tmp_path, at_hand):
    arrays = {"q.weight": noise(16, 8), "k.weight": noise(4, 8, seed=1), "v.weight": noise(4, 8, seed=2)}
    stored = np.concatenate([array.T for array in arrays.values()], axis=1)

    result = run(tmp_path, packed_file(stored), arrays, at_hand=at_hand)

    assert pieces_of(result) == {"q": (1, 0, 16), "k": (1, 16, 20), "v": (1, 20, 24)}
    assert result.balanced


@both
def test_axes_of_one_do_not_matter(tmp_path, at_hand):
    stored = np.concatenate([array.T for array in QKV.values()], axis=1)[None]

    assert run(tmp_path, packed_file(stored), QKV, at_hand=at_hand).balanced


@both
@pytest.mark.parametrize("position", [0, 1, 200, 383])
def test_one_changed_element_is_seen(tmp_path, position, at_hand):
    stored = np.ascontiguousarray(np.concatenate([array.T for array in QKV.values()], axis=1))
    flat = stored.reshape(-1)
    flat[position] = np.nextafter(flat[position], np.float32(np.inf))

    result = run(tmp_path, packed_file(stored), QKV, at_hand=at_hand)

    assert not result.balanced
    assert ("unexpected", ("packed",)) in [(f.id, f.subjects) for f in result.findings]


@both
def test_order_of_the_parts_shows_in_their_places(tmp_path, at_hand):
    """The file does not say which part is the query, so only the places show that two parts are swapped."""
    query, key, value = QKV.values()
    stored = np.concatenate([key.T, query.T, value.T], axis=1)

    result = run(tmp_path, packed_file(stored), QKV, at_hand=at_hand)

    assert pieces_of(result) == {"query": (1, 8, 16), "key": (1, 0, 8), "value": (1, 16, 24)}


@both
def test_part_that_is_missing_leaves_nothing_explained(tmp_path, at_hand):
    query, _, value = QKV.values()
    stored = np.concatenate([query.T, noise(16, 8, seed=77), value.T], axis=1)

    result = run(tmp_path, packed_file(stored), QKV, at_hand=at_hand)

    assert set(lines_of(result).values()) == {"missing"}


@both
def test_part_may_stand_there_once(tmp_path, at_hand):
    query, _, value = QKV.values()

    assert not run(
        tmp_path, packed_file(np.concatenate([query, query, value])), QKV, at_hand=at_hand
    ).balanced


# biases


@both
def test_biases_are_packed_too(tmp_path, at_hand):
    result = run(tmp_path, bias_file(np.concatenate(list(BIASES.values()))), BIASES, at_hand=at_hand)

    assert bridge_of(result) == {"concatenated": (3, 24, 0, 0)}
    assert result.balanced


@both
def test_run_of_zeros_stands_for_the_bias_that_a_key_does_not_have(tmp_path, at_hand):
    query, key, value = BIASES.values()
    arrays = {name: array for name, array in BIASES.items() if "key" not in name}

    result = run(tmp_path, bias_file(np.concatenate([query, 0 * key, value])), arrays, at_hand=at_hand)

    added = next(row for row in result.bridge if row.line == "added")
    assert bridge_of(result) == {"concatenated": (2, 16, 0, 0)}
    assert (added.tensors, added.elements, added.stored_delta, added.nbytes) == (0, 8, 8, 32)
    assert result.balanced


@both
def test_a_claim_of_terabytes_of_zeros_stands_for_no_bias(tmp_path, monkeypatch, at_hand):
    length = 2**38
    proto = bias_file(np.zeros(1, np.float32))
    proto.graph.initializer[0].CopyFrom(external("b", [length], location="zeros.bin", length=4 * length))
    with (tmp_path / "zeros.bin").open("wb") as file:
        file.truncate(4 * length)  # a sparse file takes no disk space
    looks = []
    monkeypatch.setattr(Contents, "at", lambda self, *place: looks.append(place) or at(self, *place))

    result = run(tmp_path, proto, BIASES, "sampled", at_hand=at_hand)

    assert not result.balanced
    assert len(looks) < 20


@both
def test_bias_that_was_zeroed_in_its_place_is_missing(tmp_path, at_hand):
    query, key, value = BIASES.values()

    result = run(tmp_path, bias_file(np.concatenate([query, 0 * key, value])), BIASES, at_hand=at_hand)

    assert lines_of(result)["self.key.bias"] == "missing"
    assert not result.balanced


@both
def test_run_that_is_not_zero_stands_for_nothing(tmp_path, at_hand):
    query, key, value = BIASES.values()
    arrays = {name: array for name, array in BIASES.items() if "key" not in name}

    assert not run(tmp_path, bias_file(np.concatenate([query, key, value])), arrays, at_hand=at_hand).balanced


# stored in another type


@both
@pytest.mark.parametrize("turned", [False, True])
def test_packed_tensors_may_be_cast(tmp_path, turned, at_hand):
    stored = np.concatenate(
        [array.T if turned else array for array in QKV.values()], axis=int(turned)
    ).astype("f2")

    result = run(tmp_path, packed_file(stored), QKV, at_hand=at_hand)

    assert [str(line) for line in result.parameters[0].chain] == ["transposed"] * turned + [
        "concatenated",
        "cast",
    ]
    assert result.balanced


def coded(stored: Array, **how: Any) -> onnx.ModelProto:
    return text_model(
        """g (float[1] x) => (float[1] y) {
            d = DequantizeLinear<axis = 1>(w_quantized, w_scale, w_zero_point) y = MatMul(x, d)
        }""",
        quantized("w", stored, **how),
    )


@both
@pytest.mark.parametrize(
    "how", [{}, {"axis": 1}, {"dtype": "u1", "zero": True}], ids=["one scale", "channels", "zero point"]
)
def test_packed_tensors_may_be_quantized(tmp_path, how, at_hand):
    stored = np.concatenate([array.T for array in QKV.values()], axis=1)

    result = run(tmp_path, coded(stored, **how), QKV, at_hand=at_hand)

    assert set(lines_of(result).values()) == {"quantized"}
    assert pieces_of(result) == {"query": (1, 0, 8), "key": (1, 8, 16), "value": (1, 16, 24)}
    assert bridge_of(result)["quantized"][1:] == (384, 0, 0)


@both
def test_packed_tensors_may_be_in_four_bits(tmp_path, at_hand):
    proto = text_model(
        """g (float[1,16] x) => (float[1,24] y) {
            y = com.microsoft.MatMulNBits<K = 16, N = 24, bits = 4, block_size = 16>(x, "w_Q4", "w_scales")
        }""",
        packed("w", np.concatenate(list(QKV.values()))),
    )

    result = run(tmp_path, proto, QKV, at_hand=at_hand)

    assert bridge_of(result) == {"block-quantized": (3, 384, 0, -192), "quantization": (1, 24, 0, 24)}
    assert result.balanced


@both
def test_codes_of_zeros_have_no_parts(tmp_path, at_hand):
    tensors = {"q": np.zeros((16, 24), "i1"), "s": np.asarray(100, "f4")}
    proto = text_model(
        "g (float[1] x) => (float[1] y) { d = DequantizeLinear(q, s) y = MatMul(x, d) }", tensors
    )

    assert not run(tmp_path, proto, QKV, at_hand=at_hand).balanced


def test_code_between_the_samples_is_seen_with_the_weights_at_hand(tmp_path):
    arrays = {name: noise(30, 40, seed=seed) for seed, name in enumerate(NAMES)}
    tensors = quantized("w", np.concatenate([array.T for array in arrays.values()], axis=1))
    assert 40 not in sample_positions(1200)  # element (1, 0) of the query, (0, 1) of the stored tensor
    tensors["w_quantized"][0, 1] += np.int8(5 if tensors["w_quantized"][0, 1] < 0 else -5)
    proto = text_model(
        "g (float[1] x) => (float[1] y) { d = DequantizeLinear(w_quantized, w_scale, w_zero_point) y = MatMul(x, d) }",
        tensors,
    )

    assert run(tmp_path, proto, arrays).balanced
    assert not run(tmp_path, proto, arrays, at_hand=True).balanced


# choice among several parameters


@both
def test_of_equal_tensors_those_of_one_module_go_together(tmp_path, at_hand):
    bias = noise(8)
    arrays = {f"layer.{index}.{part}.bias": bias for index in (0, 1) for part in ("query", "key")}
    proto = text_model(
        """g (float[1] x) => (float[1] y) {
            h = MatMul(x, x)
            ["/layer.1/Add"] i = Add(h, b1)
            j = MatMul(i, i)
            ["/layer.0/Add"] y = Add(j, b0)
        }""",
        {"b1": np.concatenate([bias, bias]), "b0": np.concatenate([bias, bias])},
    )

    result = run(tmp_path, proto, arrays, at_hand=at_hand)

    assert result.balanced
    assert {line.name: line.entries[0][1] for line in result.parameters} == {
        "layer.0.query.bias": "b0",
        "layer.0.key.bias": "b0",
        "layer.1.query.bias": "b1",
        "layer.1.key.bias": "b1",
    }


def two_layers(first: str, second: str) -> tuple[onnx.ModelProto, dict[str, Array]]:
    arrays = {
        f"layer.{i}.{part}.weight": noise(8, 16, seed=10 * i + j)
        for i in (0, 1)
        for j, part in enumerate("qkv")
    }
    stored = {
        f"packed_{i}": np.concatenate([arrays[f"layer.{i}.{part}.weight"].T for part in "qkv"], axis=1)
        for i in (0, 1)
    }
    proto = text_model(
        f"""g (float[1] x) => (float[1] y) {{
            ["/layer.{first}/MatMul"] h = MatMul(x, packed_0) ["/layer.{second}/MatMul"] y = MatMul(h, packed_1)
        }}""",
        stored,
    )
    return proto, arrays


@both
def test_packed_layers_that_were_swapped_are_in_the_wrong_place(tmp_path, at_hand):
    assert run(tmp_path, *two_layers("0", "1"), at_hand=at_hand).balanced
    assert not run(tmp_path, *two_layers("1", "0"), at_hand=at_hand).balanced


# copies


@both
def test_a_tensor_filled_by_tensors_stored_elsewhere_is_a_copy_of_them(tmp_path, at_hand):
    proto = text_model(
        """g (float[1] x) => (float[1] y) {
            a = MatMul(x, "self.query.weight") b = MatMul(a, "self.key.weight") c = MatMul(b, "self.value.weight")
            y = MatMul(c, packed)
        }""",
        {**QKV, "packed": np.concatenate([array.T for array in QKV.values()], axis=1)},
    )

    result = run(tmp_path, proto, QKV, at_hand=at_hand)

    assert bridge_of(result) == {"identical": (3, 384, 0, 0), "copied": (1, 384, 0, 384)}
    assert [str(line) for line in result.parameters[0].chain] == ["identical", "copied"]


@both
def test_copy_with_a_foreign_part_is_unexpected(tmp_path, at_hand):
    query, key, _ = QKV.values()
    proto = text_model(
        """g (float[1] x) => (float[1] y) {
            a = MatMul(x, "self.query.weight") b = MatMul(a, "self.key.weight") c = MatMul(b, "self.value.weight")
            y = MatMul(c, packed)
        }""",
        {**QKV, "packed": np.concatenate([query.T, key.T, noise(16, 8, seed=77)], axis=1)},
    )

    result = run(tmp_path, proto, QKV, at_hand=at_hand)

    assert bridge_of(result)["unexpected"] == (1, 384, 384, 384)


HEAD = {"words.weight": noise(24, 8, seed=31), "head.weight": noise(24, 4, seed=32)}


def tied_head(joined: Array) -> onnx.ModelProto:
    """Return a model with a table of words, and a product with its transpose joined to a matrix (MobileBERT's head)."""
    return text_model(
        """g (int64[2] i, float[2,12] x) => (float[2,24] y) {
            t = Gather("words.weight", i)  h = MatMul(x, joined)  s = ReduceSum(t)  y = Add(h, s)
        }""",
        {"words.weight": HEAD["words.weight"], "joined": np.ascontiguousarray(joined)},
    )


@both
@pytest.mark.parametrize("is_first", [True, False])
def test_a_matrix_beside_a_table_that_is_stored_elsewhere_counts_once(tmp_path, is_first, at_hand):
    parts = [HEAD["words.weight"].T, HEAD["head.weight"].T]

    result = run(
        tmp_path, tied_head(np.concatenate(parts if is_first else parts[::-1])), HEAD, at_hand=at_hand
    )

    assert result.balanced
    assert result.onnx_parameters == 24 * 12
    assert bridge_of(result)["concatenated"] == (1, 96, 0, 192)


@both
def test_a_matrix_beside_another_table_is_unexpected(tmp_path, at_hand):
    foreign = np.concatenate([noise(8, 24, seed=5), HEAD["head.weight"].T])

    result = run(tmp_path, tied_head(foreign), HEAD, at_hand=at_hand)

    assert lines_of(result)["head.weight"] == "missing"


def test_names_alone_take_nothing_apart(tmp_path):
    stored = np.concatenate([array.T for array in QKV.values()], axis=1)

    result = run(tmp_path, packed_file(stored), QKV, "none")

    assert all(line.max_abs_error is None for line in result.parameters)
    assert {line.decided_by.partition(":")[0] for line in result.parameters} <= {"structure", "none"}


@both
def test_one_tensor_alone_is_not_packed(tmp_path, at_hand):
    arrays = {"fc.weight": noise(8, 16)}

    result = run(
        tmp_path,
        packed_file(np.concatenate([arrays["fc.weight"], noise(8, 16, seed=3)])),
        arrays,
        at_hand=at_hand,
    )

    assert lines_of(result) == {"fc.weight": "missing"}


def test_bytes_of_the_parts_are_the_tensors(tmp_path):
    arrays = {**QKV, "norm.weight": noise(16)}
    stored = np.concatenate([array.T for array in QKV.values()], axis=1)
    proto = text_model(
        'g (float[1] x) => (float[1] y) { h = MatMul(x, packed) y = Mul(h, "norm.weight") }',
        {"packed": stored, "norm.weight": arrays["norm.weight"]},
    )

    result = run(tmp_path, proto, arrays)

    assert {row.line.value: row.nbytes for row in result.bridge if row.tensors} == {
        "identical": 64,
        "concatenated": stored.nbytes,
    }


def test_parameter_of_another_type_is_not_looked_for(tmp_path):
    arrays = {"a.weight": np.arange(32).reshape(4, 8), "b.weight": np.arange(32, 64).reshape(4, 8)}
    known = manifest_of(*(parameter(name, array) for name, array in arrays.items()))
    stored = np.concatenate(list(arrays.values())).astype("f4")

    assert not reconcile(tmp_path, packed_file(stored), known).balanced
