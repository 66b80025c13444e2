"""One tensor in several slices, tokens with a row of positions, and tables with joined axes; numbers by hand."""

from __future__ import annotations

import numpy as np
import pytest
from models import (
    bridge_of,
    dynamo_like,
    lines_of,
    manifest_of,
    noise,
    parameter,
    quantized,
    reconcile,
    text_model,
)


def run(tmp_path, proto, **known):
    """Against a state dict of tensors of the root module."""
    parameters = [parameter(name, array) for name, array in known.items()]
    return reconcile(tmp_path, proto, manifest_of(*parameters), "full", known)


# a packed projection in pieces

W, B = noise(24, 6), noise(24, seed=1)

ATTENTION = """
g (float[5,6] x, float[7,6] y) => (float[5,8] z) {
    q0 = MatMul(x, wq)  q = Add(q0, bq)
    k0 = MatMul(y, wk)  k = Add(k0, bk)
    v0 = MatMul(y, wv)  v = Add(v0, bv)
    t = Transpose<perm=[1,0]>(k)  s = MatMul(q, t)  p = Softmax(s)  z = MatMul(p, v)
}
"""


def attention(order=(0, 1, 2), bias=None, weights=(0, 1, 2)):
    parts = np.split(B, 3)
    stored = {
        f"w{name}": np.split(W, 3)[number].T.copy() for name, number in zip("qkv", weights, strict=True)
    }
    stored |= {f"b{name}": parts[number] for name, number in zip("qkv", order, strict=True)}
    if bias is not None:
        stored["bk"] = bias
    return text_model(ATTENTION, stored)


def test_a_packed_bias_may_stand_in_pieces(tmp_path):
    result = run(tmp_path, attention(), in_proj_weight=W, in_proj_bias=B)

    assert result.balanced
    assert bridge_of(result) == {"sliced": (2, 168, 0, 0)}
    assert [line.decided_by for line in result.parameters] == ["content:pieces", "content:pieces"]


@pytest.mark.parametrize("order", [(1, 0, 2), (0, 2, 1), (2, 1, 0), (1, 2, 0)])
def test_exchanged_pieces_are_told(tmp_path, order):
    """Of a bias by itself, and of weights and biases together."""
    alone = run(tmp_path, attention(order), in_proj_weight=W, in_proj_bias=B)
    both = run(tmp_path, attention(order, weights=order), in_proj_weight=W, in_proj_bias=B)

    assert lines_of(alone)["in_proj_bias"] == "missing"
    assert not alone.balanced
    assert not both.balanced


CODED = """
    <ir_version: 10, opset_import: ["" : 20, "com.microsoft" : 1]>
    g (float[5,6] x, float[7,6] y) => (float[5,16] z) {
        v0 = MatMul(y, wv) qv = QuantizeLinear(v0, r, n)
        vb = com.microsoft.QLinearAdd(qv, r, n, bv_quantized, bv_scale, bv_zero_point, r, n)
        k0 = MatMul(y, wk) qk = QuantizeLinear(k0, r, n)
        kb = com.microsoft.QLinearAdd(qk, r, n, bk_quantized, bk_scale, bk_zero_point, r, n)
        bq = DequantizeLinear(bq_quantized, bq_scale, bq_zero_point)
        q0 = MatMul(x, wq) qq = QuantizeLinear(q0, r, n) dq = DequantizeLinear(qq, r, n) q = Add(dq, bq)
        k = DequantizeLinear(kb, r, n) v = DequantizeLinear(vb, r, n)
        t = Transpose<perm=[1,0]>(k)  s = MatMul(q, t)  p = Softmax(s)  z = MatMul(p, v)
    }
"""


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (0, 2, 1), (2, 1, 0)])
def test_codes_of_the_pieces_of_a_bias_are_in_the_order_of_the_weights_beside_them(tmp_path, order):
    """Behind what writes codes and reads them, and in a file whose nodes stand in another order."""
    weights = {f"a.{name}_proj_weight": noise(16, 6, seed=seed) for seed, name in enumerate("qkv")}
    bias = noise(48, seed=5)
    parts = np.split(bias, 3)
    stored = {f"w{name[2]}": array.T.copy() for name, array in weights.items()}
    stored |= {"r": np.array(0.1, "f4"), "n": np.array(128, "u1")}
    for name, number in zip("qkv", order, strict=True):
        stored |= quantized(f"b{name}", parts[number], dtype="u1", zero=True)
    result = run(tmp_path, text_model(CODED, stored), **weights, **{"a.in_proj_bias": bias})

    assert result.balanced is (order == (0, 1, 2))


def test_one_changed_element_of_a_piece_is_told(tmp_path):
    changed = np.split(B, 3)[1].copy()
    changed[3] = np.nextafter(changed[3], np.float32(9))

    assert not run(tmp_path, attention(bias=changed), in_proj_weight=W, in_proj_bias=B).balanced


def test_weights_beside_a_packed_bias_are_in_its_order(tmp_path):
    """Keys of another width: three weights by themselves, and one bias."""
    names = ("m.q_proj_weight", "m.k_proj_weight", "m.v_proj_weight")
    known = dict(zip(names, np.split(W, 3), strict=True)) | {"m.in_proj_bias": B}
    (tmp_path / "other").mkdir()

    result = run(tmp_path, attention(), **known)
    told = run(tmp_path / "other", attention(weights=(0, 2, 1)), **known)

    assert result.balanced
    assert lines_of(told)["m.in_proj_bias"] == "missing"


def test_piece_that_another_module_reads_is_no_piece(tmp_path):
    """The keys and values of a cross attention, and the weight of a layer behind it that has their shape."""
    packed, linear = noise(18, 6, seed=20), noise(12, 6, seed=21)
    text = """g (float[5,6] x) => (float[5,6] q, float[5,12] kv, float[5,12] z) {
        [a] q = MatMul(x, first) [b] kv = MatMul(x, rest) [c] z = MatMul(x, w) }"""
    scopes = {"a": "attn", "b": "attn", "c": "fc"}
    known = {"attn.in_proj_weight": packed, "fc.weight": linear}
    parts = {"first": packed[:6].T.copy(), "rest": packed[6:].T.copy(), "w": linear.T.copy()}
    (tmp_path / "other").mkdir()

    result = run(tmp_path, dynamo_like(text_model(text, parts), scopes=scopes), **known)
    parts["rest"], parts["w"] = parts["w"], parts["rest"]
    told = run(tmp_path / "other", dynamo_like(text_model(text, parts), scopes=scopes), **known)

    assert result.balanced
    assert not told.balanced


def test_pieces_do_not_explain_what_is_planted_beside_them(tmp_path):
    proto = attention()
    extra = text_model("g (float[5,8] z) => (float[5,8] u) { u = Add(z, planted) }", {"planted": B[:8] * 2})
    proto.graph.node.append(extra.graph.node[0])
    proto.graph.initializer.append(extra.graph.initializer[0])
    proto.graph.output[0].name = "u"

    result = run(tmp_path, proto, in_proj_weight=W, in_proj_bias=B)

    assert not result.balanced
    assert {line.key[1]: line.line.value for line in result.entries}["planted"] in (
        "unexpected",
        "unexplained",
    )


# a table of positions whose first row goes elsewhere

POSITIONS, TOKEN = noise(1, 10, 12, seed=2), noise(1, 1, 12, seed=3)


def embedding(first, rest):
    return text_model(
        """g (float[2,9,12] x, float[2,1,12] c) => (float[2,10,12] y) {
            a = Add(x, rest)  b = Add(c, first)  y = Concat<axis=1>(b, a)
        }""",
        {"rest": np.ascontiguousarray(rest), "first": np.ascontiguousarray(first)},
    )


def test_a_table_may_stand_in_two_slices(tmp_path):
    result = run(tmp_path, embedding(POSITIONS[:, :1], POSITIONS[:, 1:]), pos_embed=POSITIONS)

    assert result.balanced
    assert bridge_of(result) == {"sliced": (1, 120, 0, 0)}


def test_slices_with_rows_exchanged_or_changed_are_told(tmp_path):
    swapped = POSITIONS[:, 1:].copy()
    swapped[:, [2, 5]] = swapped[:, [5, 2]]
    changed = POSITIONS[:, :1] + np.float32(1e-6)

    for number, (first, rest) in enumerate(((POSITIONS[:, :1], swapped), (changed, POSITIONS[:, 1:]))):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert not run(folder, embedding(first, rest), pos_embed=POSITIONS).balanced


@pytest.mark.parametrize("copies", [1, 2])
def test_a_token_may_have_the_first_row_of_positions_added(tmp_path, copies):
    first = np.repeat(TOKEN + POSITIONS[:, :1], copies, axis=0)

    result = run(tmp_path, embedding(first, POSITIONS[:, 1:]), cls_token=TOKEN, pos_embed=POSITIONS)

    assert result.balanced
    assert lines_of(result) == {"cls_token": "folded-pointwise", "pos_embed": "sliced"}
    assert result.parameters[0].decided_by == "content:w+pos_embed"


@pytest.mark.parametrize("row", [3, 9])
def test_a_token_with_another_row_is_another_model(tmp_path, row):
    first = TOKEN + POSITIONS[:, row : row + 1]

    result = run(tmp_path, embedding(first, POSITIONS[:, 1:]), cls_token=TOKEN, pos_embed=POSITIONS)

    assert lines_of(result)["cls_token"] == "missing"
    assert not result.balanced


def test_a_changed_sum_is_told(tmp_path):
    first = TOKEN + POSITIONS[:, :1]
    first[0, 0, 4] += np.float32(1e-4)

    result = run(tmp_path, embedding(first, POSITIONS[:, 1:]), cls_token=TOKEN, pos_embed=POSITIONS)

    assert not result.balanced


DISTILLED = noise(1, 1, 12, seed=9)


@pytest.mark.parametrize(
    ("rows", "is_balanced"), [((0, 1), True), ((1, 0), False), ((0, 2), False), ((0, 0), False)]
)
def test_several_tokens_have_the_first_rows_in_their_order(tmp_path, rows, is_balanced):
    proto = text_model(
        """g (float[1,8,12] x) => (float[1,10,12] y) {
            a = Add(x, rest)  y = Concat<axis=1>(first, second, a)
        }""",
        {
            "rest": np.ascontiguousarray(POSITIONS[:, 2:]),
            "first": TOKEN + POSITIONS[:, rows[0] : rows[0] + 1],
            "second": DISTILLED + POSITIONS[:, rows[1] : rows[1] + 1],
        },
    )

    result = run(tmp_path, proto, cls_token=TOKEN, dist_token=DISTILLED, pos_embed=POSITIONS)
    proto.graph.node[1].input[:2] = ["second", "first"]
    (tmp_path / "other").mkdir()
    exchanged = run(tmp_path / "other", proto, cls_token=TOKEN, dist_token=DISTILLED, pos_embed=POSITIONS)

    assert result.balanced is is_balanced
    assert not exchanged.balanced


# axes that were moved and joined

PLANE = noise(1, 6, 4, 5, seed=4)


def added(stored):
    shape = ",".join(map(str, stored.shape))
    return text_model(
        f"g (float[{shape}] x) => (float[{shape}] y) {{ y = Add(x, v) }}", {"v": np.ascontiguousarray(stored)}
    )


def test_a_table_of_rows_and_columns_may_become_one_of_positions(tmp_path):
    stored = PLANE.reshape(1, 6, 20).transpose(0, 2, 1)

    result = run(tmp_path, added(stored), pos=PLANE)

    assert result.balanced
    assert [line.value for line in result.parameters[0].chain] == ["transposed", "reshaped"]


@pytest.mark.parametrize("axes", [(0, 3, 2, 1)])
def test_joined_axes_in_another_order_are_told(tmp_path, axes):
    stored = PLANE.transpose(axes).reshape(1, 20, 6)

    assert not run(tmp_path, added(stored), pos=PLANE).balanced


def test_axes_of_one_length_that_nothing_tells_apart_are_not_guessed(tmp_path):
    cube = noise(1, 6, 6, 6, seed=5)

    for number, axes in enumerate(((0, 2, 3, 1), (0, 1, 3, 2), (0, 3, 1, 2))):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert not run(folder, added(cube.transpose(axes).reshape(1, 36, 6)), pos=cube).balanced


def bilinear(weight):
    return text_model(
        """g (float[2,4] a, float[2,5] b) => (float[2,3] y) {
            t = MatMul(a, w)  s = Constant<value_ints = [2, 3, 5]>()  m = Reshape(t, s)
            one = Constant<value_ints = [2]>()  c = Unsqueeze(b, one)
            p = MatMul(m, c)  y = Squeeze(p, one)
        }""",
        {"w": np.ascontiguousarray(weight)},
    )


def test_the_weight_of_a_bilinear_layer_is_found_and_no_other_order_of_it(tmp_path):
    weight = noise(3, 4, 5, seed=6)

    result = run(tmp_path, bilinear(weight.transpose(1, 0, 2).reshape(4, 15)), **{"b.weight": weight})
    (tmp_path / "other").mkdir()
    other = bilinear(weight.transpose(1, 2, 0).reshape(4, 15))
    told = run(tmp_path / "other", other, **{"b.weight": weight})

    assert [line.value for line in result.parameters[0].chain] == ["transposed", "reshaped"]
    assert result.balanced
    assert not told.balanced


# what the exporter notes of tensors of the root module


def scaled(value):
    proto = text_model(
        "g (float[3] x) => (float[3] y) { y = Mul(x, exp) }", {"exp": np.array(value, np.float32)}
    )
    return dynamo_like(proto, folded={"exp": ["logit_scale"]})


def test_a_number_of_the_root_module_is_known_by_the_note(tmp_path):
    known = np.array(2.6592, np.float32)

    result = run(tmp_path, scaled(np.exp(known)), logit_scale=known)
    (tmp_path / "other").mkdir()
    told = run(tmp_path / "other", scaled(np.exp(known) * np.float32(1.001)), logit_scale=known)

    assert lines_of(result) == {"logit_scale": "folded-pointwise"}
    assert result.balanced
    assert not told.balanced
