"""One PyTorch tensor that is stored in pieces."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from models import (
    bridge_of,
    convolution,
    lines_of,
    manifest_of,
    noise,
    outs,
    parameter,
    quantized,
    reconcile,
    text_model,
)

from analyzer.content import Array, sample_positions
from analyzer.reconciliation import Reconciliation

both = pytest.mark.parametrize("at_hand", [False, True], ids=["manifest", "weights"])

EXPERTS = noise(3, 8, 16)


def file_of(*pieces: Array) -> onnx.ModelProto:
    nodes = " ".join(f"y{i} = MatMul(x, piece_{i})" for i in range(len(pieces)))
    stored = {f"piece_{i}": np.ascontiguousarray(piece) for i, piece in enumerate(pieces)}
    return text_model(f"g (float[1] x) => ({outs(len(pieces))}) {{ {nodes} }}", stored)


def run(
    tmp_path, proto: onnx.ModelProto, known: Array = EXPERTS, content: Any = "full", *, at_hand: bool = False
) -> Reconciliation:
    arrays = {"experts.weight": known} if at_hand else None
    return reconcile(tmp_path, proto, manifest_of(convolution("experts.weight", known)), content, arrays)


@both
@pytest.mark.parametrize(("content", "evidence"), [("sampled", "sampled"), ("full", "content")])
@pytest.mark.parametrize("turned", [False, True])
def test_experts_may_stand_each_by_itself(tmp_path, turned, content, evidence, at_hand):
    result = run(
        tmp_path, file_of(*(e.T if turned else e for e in EXPERTS)), content=content, at_hand=at_hand
    )

    assert bridge_of(result) == {"sliced": (1, 384, 0, 0)}
    assert [str(line) for line in result.parameters[0].chain] == ["transposed"] * turned + ["sliced"]
    assert result.parameters[0].decided_by == f"{evidence}:pieces"
    assert result.balanced


@both
def test_places_of_the_pieces_are_told(tmp_path, at_hand):
    first, second, third = EXPERTS

    result = run(tmp_path, file_of(third, first, second), at_hand=at_hand)

    assert [(piece.key[1], piece.put) for piece in result.parameters[0].pieces] == [
        ("piece_1", (0, 0, 1)),
        ("piece_2", (0, 1, 2)),
        ("piece_0", (0, 2, 3)),
    ]


@both
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_pieces_may_be_of_any_axis_and_any_size(tmp_path, axis, at_hand):
    pieces = np.split(EXPERTS, [1] if axis == 0 else [3, 4], axis=axis)

    result = run(tmp_path, file_of(*pieces), at_hand=at_hand)

    assert result.balanced
    assert {piece.put[0] for piece in result.parameters[0].pieces} == {axis}


@both
@pytest.mark.parametrize("position", [0, 1, 100, 127])
def test_one_changed_element_is_seen(tmp_path, position, at_hand):
    pieces = EXPERTS.copy()
    flat = pieces[1].reshape(-1)
    flat[position] = np.nextafter(flat[position], np.float32(np.inf))

    assert not run(tmp_path, file_of(*pieces), at_hand=at_hand).balanced


@both
@pytest.mark.parametrize("content", ["sampled", "full"])
def test_piece_that_is_not_there_leaves_the_others_unexplained(tmp_path, content, at_hand):
    result = run(tmp_path, file_of(*EXPERTS[:2]), content=content, at_hand=at_hand)

    assert lines_of(result) == {"experts.weight": "missing"}
    assert bridge_of(result)["unexpected"] == (2, 256, 256, 256)


@both
def test_piece_that_is_there_twice_is_not_another(tmp_path, at_hand):
    assert not run(tmp_path, file_of(EXPERTS[0], EXPERTS[1], EXPERTS[1]), at_hand=at_hand).balanced


@both
def test_foreign_piece_is_seen(tmp_path, at_hand):
    assert not run(tmp_path, file_of(EXPERTS[0], noise(8, 16, seed=5), EXPERTS[2]), at_hand=at_hand).balanced


@both
def test_pieces_may_be_cast(tmp_path, at_hand):
    changed = EXPERTS.astype("f2")
    changed[1, 0, 1] = np.nextafter(changed[1, 0, 1], np.float16(np.inf))

    result = run(tmp_path, file_of(*EXPERTS.astype("f2")), at_hand=at_hand)

    assert [str(line) for line in result.parameters[0].chain] == ["sliced", "cast"]
    assert result.balanced
    assert not run(tmp_path, file_of(*changed), at_hand=at_hand).balanced


def coded(*pieces: Array) -> onnx.ModelProto:
    tensors: dict[str, Array] = {}
    nodes = []
    for index, piece in enumerate(pieces):
        tensors |= quantized(f"p{index}", np.ascontiguousarray(piece))
        nodes.append(f"d{index} = DequantizeLinear(p{index}_quantized, p{index}_scale, p{index}_zero_point)")
        nodes.append(f"y{index} = MatMul(x, d{index})")
    return text_model(f"g (float[1] x) => ({outs(len(pieces))}) {{ {' '.join(nodes)} }}", tensors)


@both
def test_pieces_may_be_quantized(tmp_path, at_hand):
    result = run(tmp_path, coded(*EXPERTS), at_hand=at_hand)

    assert [str(line) for line in result.parameters[0].chain] == ["sliced", "quantized"]
    assert bridge_of(result) == {"quantized": (1, 384, 0, 0), "quantization": (6, 6, 0, 6)}
    assert result.balanced


@both
def test_codes_of_nothing_are_no_pieces(tmp_path, at_hand):
    tensors = {f"q{i}": np.zeros((8, 16), "i1") for i in range(3)} | {"s": np.asarray(100, "f4")}
    nodes = " ".join(f"d{i} = DequantizeLinear(q{i}, s) y{i} = MatMul(x, d{i})" for i in range(3))

    result = run(
        tmp_path, text_model(f"g (float[1] x) => ({outs(3)}) {{ {nodes} }}", tensors), at_hand=at_hand
    )

    assert not result.balanced


def test_code_between_the_samples_is_seen_with_the_weights_at_hand(tmp_path):
    known = noise(3, 30, 40)
    assert 1 not in sample_positions(1200)
    assert 1 not in sample_positions(3600)
    proto = coded(*known)
    codes = next(t for t in proto.graph.initializer if t.name == "p0_quantized")
    changed = np.frombuffer(codes.raw_data, "i1").copy()
    changed[1] += np.int8(5 if changed[1] < 0 else -5)
    codes.raw_data = changed.tobytes()

    assert run(tmp_path, proto, known).balanced
    assert not run(tmp_path, proto, known, at_hand=True).balanced


@both
def test_many_small_pieces_are_told_apart_by_their_statistics(tmp_path, at_hand):
    """Of two hundred rows fewer have a sampled element than it takes to know them."""
    known = noise(200, 8)
    order = np.random.default_rng(2).permutation(200)
    changed = known.copy()
    changed[7, 3] *= np.float32(1.01)

    assert run(tmp_path, file_of(*known[order][:, None]), known, at_hand=at_hand).balanced
    assert not run(tmp_path, file_of(*changed[order][:, None]), known, at_hand=at_hand).balanced


@both
def test_constant_tensor_is_in_no_pieces(tmp_path, at_hand):
    ones = np.ones((2, 4, 4), "f4")

    assert lines_of(run(tmp_path, file_of(*ones), ones, at_hand=at_hand)) == {"experts.weight": "missing"}


@pytest.mark.parametrize(("at_hand", "evidence"), [(False, "sampled"), (True, "content")])
def test_cast_that_a_manifest_does_not_describe_is_known_by_samples(tmp_path, at_hand, evidence):
    result = run(tmp_path, file_of(*EXPERTS.astype("f8")), at_hand=at_hand)

    assert result.parameters[0].decided_by == f"{evidence}:pieces"


@both
@pytest.mark.parametrize("turned", [False, True])
def test_codes_of_many_square_experts_are_held_against_all_of_each(tmp_path, turned, at_hand):
    """Of a hundred pieces each has two or three sampled elements, which codes of another may be near."""
    known = noise(100, 20, 20)
    right = [expert.T.copy() if turned else expert for expert in known]
    noisy = [
        *right[:7],
        np.random.default_rng(5).permutation(right[7].reshape(-1)).reshape(20, 20),
        *right[8:],
    ]

    assert run(tmp_path, coded(*right), known, at_hand=at_hand).balanced
    assert not run(tmp_path, coded(*noisy), known, at_hand=at_hand).balanced


@pytest.mark.parametrize("changed", [False, True])
def test_a_table_of_positions_of_which_the_first_stands_by_itself_is_whole(tmp_path, changed):
    """Interpolated, the row of the class token is cut off; `weight` is what an embedding calls its table."""
    table = noise(17, 48, seed=9)
    first, rest = table[None, :1].copy(), table[None, 1:].copy()
    if changed:
        first[0, 0, 5] += 0.5
    proto = text_model(
        "g (float[1,17,48] x, float[1,1,48] z) => (float[1,17,48] y) "
        "{ t = Concat <axis = 1> (z, rest) a = Add(z, first) b = Add(x, t) y = Add(b, a) }",
        {"first": first, "rest": rest},
    )
    known = parameter("embeddings.position.weight", table)

    result = reconcile(tmp_path, proto, manifest_of(known, modules={"embeddings.position": "Embedding"}))

    assert result.balanced is not changed
    assert bridge_of(result)["sliced"][1:3] == ((17 * 48, 0) if not changed else (17 * 48, -48))
