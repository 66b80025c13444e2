"""PyTorch tensors that are stored in pieces or slices, tokens with a row of positions, tables with joined axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from models import (
    bridge_of,
    convolution,
    dynamo_like,
    lines_of,
    manifest_of,
    noise,
    outs,
    parameter,
    quantized,
    reconcile,
    text_model,
)
from onnx import numpy_helper

from analyzer.model.content import Array, sample_positions
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


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (0, 2, 1)])
def test_packed_projections_of_three_inputs_are_in_order_also_where_lengths_are_read(tmp_path, order):
    packed = noise(24, 8, seed=6)
    parts = [np.ascontiguousarray(part.T) for part in np.split(packed, 3)]
    text = """g (float[4,8] a, float[4,8] b, float[4,8] c) => (float[4,8] y, int64[2] n, int64[2] m) {
        q = MatMul(a, w0) k = MatMul(b, w1) v = MatMul(c, w2) n = Shape(k) m = Shape(v)
        t = Transpose<perm = [1, 0]>(k) s = MatMul(q, t) p = Softmax(s) y = MatMul(p, v)
    }"""
    stored = {f"w{place}": parts[number] for place, number in enumerate(order)}
    arrays = {"x.in_proj_weight": packed}

    result = reconcile(
        tmp_path,
        text_model(text, stored),
        manifest_of(convolution("x.in_proj_weight", packed)),
        "full",
        arrays,
    )

    assert result.balanced is (order == (0, 1, 2))


PLACES = noise(1, 14, 16, seed=4)


def resized(*, element: float = 0.0, codes: bool = False) -> onnx.ModelProto:
    """Return a model with a table of positions: one token, 3 x 4 patches as an image to resize, another token."""
    first, patches, last = np.split(PLACES, [1, 13], axis=1)
    picture = np.ascontiguousarray(patches.transpose(0, 2, 1).reshape(1, 16, 3, 4))
    picture[0, 3, 1, 2] += np.float32(element)
    decoded = "first = DequantizeLinear(first_quantized, first_scale, first_zero_point)" if codes else ""
    text = f"""g (float[1,14,16] x, float[4] scales) => (float[1,14,16] y) {{
        {decoded}
        r = Resize(picture, , scales) f = Reshape(r, shape) t = Transpose<perm = [0, 2, 1]>(f)
        p = Concat<axis = 1>(first, t, last) y = Add(x, p)
    }}"""
    stored = quantized("first", first) if codes else {"first": first}
    shape = np.array([1, 16, 12])
    return text_model(text, {**stored, "picture": picture, "last": last, "shape": shape})


@pytest.mark.parametrize("codes", [False, True])
def test_a_table_of_positions_may_stand_as_tokens_and_a_picture(tmp_path, codes):
    known = manifest_of(parameter("position_embeddings", PLACES))
    arrays = {"position_embeddings": PLACES}

    assert reconcile(tmp_path, resized(codes=codes), known, "full", arrays).balanced
    assert not reconcile(tmp_path, resized(codes=codes, element=1e-3), known, "full", arrays).balanced


@both
def test_places_of_the_pieces_are_reported(tmp_path, at_hand):
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
def test_codes_of_zeros_are_no_pieces(tmp_path, at_hand):
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


@pytest.mark.slow
@both
def test_many_small_pieces_are_told_apart_by_their_statistics(tmp_path, at_hand):
    """Most of two hundred rows have too few sampled elements to be recognized by them."""
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


@pytest.mark.slow
@both
@pytest.mark.parametrize("turned", [False, True])
def test_codes_of_many_square_experts_are_compared_with_all_of_each(tmp_path, turned, at_hand):
    """Each of a hundred pieces has two or three sampled elements, to which another piece's codes may be close."""
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
    """For interpolation, the class token's row is cut off; an embedding names its table `weight`."""
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


# one tensor in several slices, tokens with a row of positions, and tables with joined axes; numbers by hand


def run_slices(tmp_path, proto, **known):
    """Reconcile with a state dict of tensors of the root module."""
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
    result = run_slices(tmp_path, attention(), in_proj_weight=W, in_proj_bias=B)

    assert result.balanced
    assert bridge_of(result) == {"sliced": (2, 168, 0, 0)}
    assert [line.decided_by for line in result.parameters] == ["content:pieces", "content:pieces"]


@pytest.mark.parametrize("order", [(1, 0, 2), (0, 2, 1), (2, 1, 0), (1, 2, 0)])
def test_exchanged_pieces_are_reported(tmp_path, order):
    """A bias alone is exchanged, or weights and biases together."""
    alone = run_slices(tmp_path, attention(order), in_proj_weight=W, in_proj_bias=B)
    both = run_slices(tmp_path, attention(order, weights=order), in_proj_weight=W, in_proj_bias=B)

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
    """Nodes that write and read codes precede the biases, and the file has its nodes in another order."""
    weights = {f"a.{name}_proj_weight": noise(16, 6, seed=seed) for seed, name in enumerate("qkv")}
    bias = noise(48, seed=5)
    parts = np.split(bias, 3)
    stored = {f"w{name[2]}": array.T.copy() for name, array in weights.items()}
    stored |= {"r": np.array(0.1, "f4"), "n": np.array(128, "u1")}
    for name, number in zip("qkv", order, strict=True):
        stored |= quantized(f"b{name}", parts[number], dtype="u1", zero=True)
    result = run_slices(tmp_path, text_model(CODED, stored), **weights, **{"a.in_proj_bias": bias})

    assert result.balanced is (order == (0, 1, 2))


def test_one_changed_element_of_a_piece_is_reported(tmp_path):
    changed = np.split(B, 3)[1].copy()
    changed[3] = np.nextafter(changed[3], np.float32(9))

    assert not run_slices(tmp_path, attention(bias=changed), in_proj_weight=W, in_proj_bias=B).balanced


def test_weights_beside_a_packed_bias_are_in_its_order(tmp_path):
    """Keys have another width: three separate weights, and one bias."""
    names = ("m.q_proj_weight", "m.k_proj_weight", "m.v_proj_weight")
    known = dict(zip(names, np.split(W, 3), strict=True)) | {"m.in_proj_bias": B}
    (tmp_path / "other").mkdir()

    result = run_slices(tmp_path, attention(), **known)
    other_result = run_slices(tmp_path / "other", attention(weights=(0, 2, 1)), **known)

    assert result.balanced
    assert lines_of(other_result)["m.in_proj_bias"] == "missing"


def test_piece_that_another_module_reads_is_no_piece(tmp_path):
    """Keys and values of a cross attention, followed by a layer whose weight has their shape."""
    packed, linear = noise(18, 6, seed=20), noise(12, 6, seed=21)
    text = """g (float[5,6] x) => (float[5,6] q, float[5,12] kv, float[5,12] z) {
        [a] q = MatMul(x, first) [b] kv = MatMul(x, rest) [c] z = MatMul(x, w) }"""
    scopes = {"a": "attn", "b": "attn", "c": "fc"}
    known = {"attn.in_proj_weight": packed, "fc.weight": linear}
    parts = {"first": packed[:6].T.copy(), "rest": packed[6:].T.copy(), "w": linear.T.copy()}
    (tmp_path / "other").mkdir()

    result = run_slices(tmp_path, dynamo_like(text_model(text, parts), scopes=scopes), **known)
    parts["rest"], parts["w"] = parts["w"], parts["rest"]
    other_result = run_slices(
        tmp_path / "other", dynamo_like(text_model(text, parts), scopes=scopes), **known
    )

    assert result.balanced
    assert not other_result.balanced


LISTED = """g (float[5,6] x) => (float[5,8] z, float[5,8] u) {
    ["/enc/enc.0/MatMul"] q = MatMul(x, wq) ["/enc/enc.0/MatMul_1"] k = MatMul(x, wk)
    ["/enc/enc.0/MatMul_2"] v = MatMul(x, wv) ["/enc/enc.0/Transpose"] t = Transpose<perm=[1,0]>(k)
    ["/enc/enc.0/MatMul_3"] s = MatMul(q, t) ["/enc/enc.0/Softmax"] p = Softmax(s)
    ["/enc/enc.0/MatMul_4"] a = MatMul(p, v) ["/enc/enc.0/Gemm"] z = Gemm<transB=1>(a, "OUT")
    ["/enc/fc/MatMul"] u = MatMul(x, wf)
}"""


@pytest.mark.parametrize("out", ["enc.enc.0.out.weight", "onnx::MatMul_9"])
@pytest.mark.parametrize("change", ["", "exchanged", "element", "elsewhere"])
def test_pieces_in_a_list_with_its_holders_name_are_of_its_module(tmp_path, out, change):
    """TorchScript names the nodes of `enc.enc.0` as it names those of `enc.0` in a Sequential that is called."""
    packed, out_weight, linear = noise(24, 6), noise(8, 8, seed=1), noise(8, 6, seed=2)
    known = {"enc.enc.0.in.weight": packed, "enc.enc.0.out.weight": out_weight, "enc.fc.weight": linear}
    parts = {f"w{name}": part.T.copy() for name, part in zip("qkv", np.split(packed, 3), strict=True)}
    parts |= {out: out_weight, "wf": linear.T.copy()}
    if change == "exchanged":
        parts["wq"], parts["wv"] = parts["wv"], parts["wq"]
    elif change == "element":
        parts["wk"][2, 3] += 0.01
    elif change == "elsewhere":
        parts["wk"], parts["wf"] = parts["wf"], parts["wk"]

    result = run_slices(tmp_path, text_model(LISTED.replace("OUT", out), parts), **known)

    assert result.balanced is (not change)


def test_pieces_do_not_explain_what_is_planted_beside_them(tmp_path):
    proto = attention()
    extra = text_model("g (float[5,8] z) => (float[5,8] u) { u = Add(z, planted) }", {"planted": B[:8] * 2})
    proto.graph.node.append(extra.graph.node[0])
    proto.graph.initializer.append(extra.graph.initializer[0])
    proto.graph.output[0].name = "u"

    result = run_slices(tmp_path, proto, in_proj_weight=W, in_proj_bias=B)

    assert not result.balanced
    assert {line.key[1]: line.line.value for line in result.entries}["planted"] in (
        "unexpected",
        "unexplained",
    )


# a table of positions whose first row is stored elsewhere

POSITIONS, TOKEN = noise(1, 10, 12, seed=2), noise(1, 1, 12, seed=3)


def embedding(first, rest):
    return text_model(
        """g (float[2,9,12] x, float[2,1,12] c) => (float[2,10,12] y) {
            a = Add(x, rest)  b = Add(c, first)  y = Concat<axis=1>(b, a)
        }""",
        {"rest": np.ascontiguousarray(rest), "first": np.ascontiguousarray(first)},
    )


def test_a_table_may_stand_in_two_slices(tmp_path):
    result = run_slices(tmp_path, embedding(POSITIONS[:, :1], POSITIONS[:, 1:]), pos_embed=POSITIONS)

    assert result.balanced
    assert bridge_of(result) == {"sliced": (1, 120, 0, 0)}


def test_slices_with_rows_exchanged_or_changed_are_reported(tmp_path):
    swapped = POSITIONS[:, 1:].copy()
    swapped[:, [2, 5]] = swapped[:, [5, 2]]
    changed = POSITIONS[:, :1] + np.float32(1e-6)

    for number, (first, rest) in enumerate(((POSITIONS[:, :1], swapped), (changed, POSITIONS[:, 1:]))):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert not run_slices(folder, embedding(first, rest), pos_embed=POSITIONS).balanced


@pytest.mark.parametrize("copies", [1, 2])
def test_a_token_may_have_the_first_row_of_positions_added(tmp_path, copies):
    first = np.repeat(TOKEN + POSITIONS[:, :1], copies, axis=0)

    result = run_slices(tmp_path, embedding(first, POSITIONS[:, 1:]), cls_token=TOKEN, pos_embed=POSITIONS)

    assert result.balanced
    assert lines_of(result) == {"cls_token": "folded-pointwise", "pos_embed": "sliced"}
    assert result.parameters[0].decided_by == "content:w+pos_embed"


@pytest.mark.parametrize("row", [3, 9])
def test_a_token_with_another_row_is_another_model(tmp_path, row):
    first = TOKEN + POSITIONS[:, row : row + 1]

    result = run_slices(tmp_path, embedding(first, POSITIONS[:, 1:]), cls_token=TOKEN, pos_embed=POSITIONS)

    assert lines_of(result)["cls_token"] == "missing"
    assert not result.balanced


@pytest.mark.parametrize("row", [0, 1])
def test_a_sum_may_be_in_half_precision(tmp_path, row):
    first = TOKEN + POSITIONS[:, row : row + 1]
    proto = embedding(first, POSITIONS[:, 1:])
    for tensor in proto.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype("f2"), tensor.name))
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT16

    assert run_slices(tmp_path, proto, cls_token=TOKEN, pos_embed=POSITIONS).balanced is (row == 0)


def test_a_changed_sum_is_reported(tmp_path):
    first = TOKEN + POSITIONS[:, :1]
    first[0, 0, 4] += np.float32(1e-4)

    result = run_slices(tmp_path, embedding(first, POSITIONS[:, 1:]), cls_token=TOKEN, pos_embed=POSITIONS)

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

    result = run_slices(tmp_path, proto, cls_token=TOKEN, dist_token=DISTILLED, pos_embed=POSITIONS)
    proto.graph.node[1].input[:2] = ["second", "first"]
    (tmp_path / "other").mkdir()
    exchanged = run_slices(
        tmp_path / "other", proto, cls_token=TOKEN, dist_token=DISTILLED, pos_embed=POSITIONS
    )

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

    result = run_slices(tmp_path, added(stored), pos=PLANE)

    assert result.balanced
    assert [line.value for line in result.parameters[0].chain] == ["transposed", "reshaped"]


@pytest.mark.parametrize("axes", [(0, 3, 2, 1)])
def test_joined_axes_in_another_order_are_reported(tmp_path, axes):
    stored = PLANE.transpose(axes).reshape(1, 20, 6)

    assert not run_slices(tmp_path, added(stored), pos=PLANE).balanced


def test_axes_of_one_length_that_nothing_tells_apart_are_not_guessed(tmp_path):
    cube = noise(1, 6, 6, 6, seed=5)

    for number, axes in enumerate(((0, 2, 3, 1), (0, 1, 3, 2), (0, 3, 1, 2))):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert not run_slices(folder, added(cube.transpose(axes).reshape(1, 36, 6)), pos=cube).balanced


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

    result = run_slices(tmp_path, bilinear(weight.transpose(1, 0, 2).reshape(4, 15)), **{"b.weight": weight})
    (tmp_path / "other").mkdir()
    other = bilinear(weight.transpose(1, 2, 0).reshape(4, 15))
    other_result = run_slices(tmp_path / "other", other, **{"b.weight": weight})

    assert [line.value for line in result.parameters[0].chain] == ["transposed", "reshaped"]
    assert result.balanced
    assert not other_result.balanced


# exporters' notes on tensors of the root module


def scaled(value):
    proto = text_model(
        "g (float[3] x) => (float[3] y) { y = Mul(x, exp) }", {"exp": np.array(value, np.float32)}
    )
    return dynamo_like(proto, folded={"exp": ["logit_scale"]})


def test_a_number_of_the_root_module_is_known_by_the_note(tmp_path):
    known = np.array(2.6592, np.float32)

    result = run_slices(tmp_path, scaled(np.exp(known)), logit_scale=known)
    (tmp_path / "other").mkdir()
    other_result = run_slices(
        tmp_path / "other", scaled(np.exp(known) * np.float32(1.001)), logit_scale=known
    )

    assert lines_of(result) == {"logit_scale": "folded-pointwise"}
    assert result.balanced
    assert not other_result.balanced
