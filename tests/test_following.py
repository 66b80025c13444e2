"""Learned tensors of one file are found in another by content, under any name and encoding."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from models import audit, noise, quantized, text_model

from analyzer import compare
from analyzer.account.ledger import Ledger
from analyzer.comparison import MatchedBy, Status, compare_ledgers, group_alike
from analyzer.comparison.following import follow_changed, follow_tensors
from analyzer.formats.json import to_record
from analyzer.pages.kinds import describe

W, V, B = noise(32, 48, seed=1), noise(48, 16, seed=2), noise(48, seed=3)


def made(folder: Path, text: str, weights: dict[str, object]) -> Ledger:
    folder.mkdir(exist_ok=True)
    return audit(folder, text_model(f"g (float[1,32] x) => (float[1,16] y) {{ {text} }}", weights))


@pytest.fixture
def old(tmp_path: Path) -> Ledger:
    body = 'a = MatMul(x, "fc.weight") b = Add(a, "fc.bias") y = MatMul(b, "head.weight")'
    return made(tmp_path / "old", body, {"fc.weight": W, "fc.bias": B, "head.weight": V})


def answer(a: Ledger, b: Ledger) -> str:
    followed = follow_changed(a, b)
    return describe(to_record(compare_ledgers(a, b, *group_alike(a, b), followed=followed))).answer


def turned(folder: Path) -> Ledger:
    body = "a = Gemm<transB=1>(x, onnx_1, b0) y = MatMul(a, onnx_2)"
    return made(folder, body, {"onnx_1": W.T.copy(), "b0": B, "onnx_2": V})


def cast(folder: Path) -> Ledger:
    body = "w = Cast<to=1>(h1) b = Cast<to=1>(h2) v = Cast<to=1>(h3) a = MatMul(x, w) c = Add(a, b) y = MatMul(c, v)"
    return made(folder, body, {"h1": W.astype("f2"), "h2": B.astype("f2"), "h3": V.astype("f2")})


@pytest.mark.parametrize(
    ("make", "lines"),
    [(turned, {"transposed", "renamed"}), (cast, {"cast"})],
)
def test_the_same_parameters_are_known_however_they_are_stored(tmp_path, old, make, lines):
    new = make(tmp_path / "new")

    followed = follow_tensors(old, new)

    assert followed.is_whole
    assert {step.line for step in followed.steps} == lines
    assert answer(old, new).startswith("the same 2,352 parameters, stored differently")
    assert answer(new, old).startswith("the same 2,352 parameters, stored differently")


def test_codes_are_followed_within_their_step(tmp_path, old):
    parts = {**quantized("w", W), **quantized("v", V)}
    body = """
        w = DequantizeLinear<axis=1>(w_quantized, w_scale, w_zero_point) a = MatMul(x, w) b = Add(a, b0)
        v = DequantizeLinear<axis=1>(v_quantized, v_scale, v_zero_point) y = MatMul(b, v)
    """
    new = made(tmp_path / "new", body, {**parts, "b0": B})

    assert follow_tensors(old, new).is_whole
    assert "2 tensors FLOAT -> INT8" in answer(old, new)


def test_two_that_stand_in_one_matrix_are_in_one_piece(tmp_path):
    q, k = noise(32, 8, seed=5), noise(32, 8, seed=6)
    apart = made(
        tmp_path / "a", "a = MatMul(x, q) b = MatMul(x, k) y = Concat<axis=1>(a, b)", {"q": q, "k": k}
    )
    joined = made(tmp_path / "b", "y = MatMul(x, qk)", {"qk": np.concatenate([q, k], axis=1)})

    assert answer(apart, joined).startswith("the same 512 parameters, stored differently")
    assert "1 tensor packed with others" in answer(apart, joined)


def test_other_values_are_not_the_same_parameters(tmp_path, old):
    body = "a = Gemm<transB=1>(x, onnx_1, b0) y = MatMul(a, onnx_2)"
    new = made(tmp_path / "new", body, {"onnx_1": W.T.copy() * 2, "b0": B, "onnx_2": V})

    followed = follow_tensors(old, new)

    assert not followed.is_whole
    assert len(followed.steps) == 2
    assert "stored differently" not in answer(old, new)


def test_pairs_are_found_by_content_and_say_what_became_of_them(tmp_path, old):
    new = turned(tmp_path / "new")

    result = compare_ledgers(old, new, *group_alike(old, new), followed=follow_tensors(old, new))

    pairs = {pair.a.tensor.name: pair for pair in result.tensors if pair.a is not None}
    assert pairs["fc.weight"].b.tensor.name == "onnx_1"
    assert (pairs["fc.weight"].matched_by, pairs["fc.weight"].line) == (MatchedBy.CONTENT, "transposed")
    assert pairs["head.weight"].status is Status.UNCHANGED


def test_a_square_matrix_that_was_turned_is_changed(tmp_path):
    square = noise(32, 32, seed=9)
    a = made(tmp_path / "a", 'y = MatMul(x, "w")', {"w": square})
    b = made(tmp_path / "b", 'y = Gemm<transB=1>(x, "w2")', {"w2": square.T.copy()})

    result = compare_ledgers(a, b, *group_alike(a, b), followed=follow_changed(a, b))

    (pair,) = result.tensors
    assert [change.value for change in pair.changed] == ["layout"]


def test_nothing_is_followed_where_names_and_shapes_are_those_of_before(tmp_path, old):
    body = 'a = MatMul(x, "fc.weight") b = Add(a, "fc.bias") y = MatMul(b, "head.weight")'
    other = made(tmp_path / "other", body, {"fc.weight": W * 2, "fc.bias": B, "head.weight": V})

    assert follow_changed(old, other) is None


def test_the_same_file_under_another_name_is_the_same_file(tmp_path, old):
    path = Path(old.model.path)
    copy = tmp_path / "copy.onnx"
    copy.write_bytes(path.read_bytes())
    changed = onnx.load(path)
    changed.doc_string = "x"
    onnx.save(changed, tmp_path / "changed.onnx")

    assert compare(path, copy).is_same_file
    assert not compare(path, tmp_path / "changed.onnx").is_same_file
    assert describe(to_record(compare(path, copy))).answer == "the same file"


def test_copies_of_one_tensor_are_one_another(tmp_path):
    table = noise(32, 32, seed=4)
    text = "a = MatMul(x, {0}) b = MatMul(a, {1}) y = MatMul(b, v)"
    old, new = (
        made(
            tmp_path / names[0], text.format(*names), {names[0]: table, names[1]: table.T.copy(), "v": V[:32]}
        )
        for names in (("w", "w2"), ("u", "u2"))
    )

    result = compare_ledgers(old, new, *group_alike(old, new), followed=follow_changed(old, new))

    assert sorted((pair.a.tensor.name, pair.b.tensor.name) for pair in result.tensors) == [
        ("v", "v"),
        ("w", "u"),
        ("w2", "u2"),
    ]


def test_a_weight_that_nothing_reads_any_more_is_not_stored_differently(tmp_path):
    weights = {"w1": noise(32, 32, seed=1), "b1": noise(32, seed=3), "w2": noise(32, 16, seed=2)}
    old = made(tmp_path / "a", "a = MatMul(x, w1) b = Add(a, b1) y = MatMul(b, w2)", weights)
    new = made(tmp_path / "b", "a = MatMul(x, w1) y = MatMul(a, w2)", weights)

    assert answer(old, new).startswith("1,568 -> 1,536 parameters (-2.0 %)")
