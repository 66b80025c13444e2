"""Data that affects the output without an explanation: reported in every carrier, and no other data is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from models import (
    Array,
    audit,
    buffer,
    dynamo_like,
    finding_ids,
    lines_of,
    manifest_of,
    noise,
    parameter,
    quantized,
    reconcile,
    text_model,
)
from onnx import ModelProto, TensorProto, helper, numpy_helper

from analyzer.account.ledger import Finding
from analyzer.reconciliation import Line

SIDE = 16
W = noise(SIDE, SIDE)
HIDDEN = noise(SIDE, SIDE, seed=7)
FLAT = HIDDEN.reshape(-1)
SIGNATURE = f"g (float[{SIDE},{SIDE}] x) => (float[{SIDE},{SIDE}] y)"


def numbers(array: Array, separator: str = ", ") -> str:
    return separator.join(repr(float(number)) for number in array.reshape(-1))


def model(body: str, weights: Mapping[str, Array]) -> ModelProto:
    """Return a model with a layer of weight `w` and output `h`, and a body that leads to `y`."""
    return text_model(f"{SIGNATURE} {{ h = MatMul(x, w) {body} }}", {"w": W} | dict(weights))


def with_lists(proto: ModelProto, operator: str, domain: str, name: str, **lists: object) -> ModelProto:
    """Set attributes, which ONNX text does not hold well, on the node with this output."""
    (node,) = [node for node in proto.graph.node if name in node.output]
    node.op_type, node.domain = operator, domain
    node.attribute.extend(helper.make_attribute(key, value) for key, value in lists.items())
    return proto


def of_chunks() -> ModelProto:
    codes = np.round(HIDDEN / np.abs(HIDDEN).max() * 127).astype("i1")
    parts = {f"p{index}": part for index, part in enumerate(np.split(codes, 4))}
    join = f"c = Concat <axis = 0> ({', '.join(parts)}) f = Cast <to = 1> (c) s = Mul(f, step)"
    return model(f"{join} y = Add(h, s)", {**parts, "step": np.array(0.02, "f4")})


def of_scalars() -> ModelProto:
    """Return a model that multiplies by 1,024 scalars in a row, each a tensor."""
    many = {f"s{index}": np.array(number) for index, number in enumerate(noise(1024, seed=9))}
    steps = " ".join(f"h{index + 1} = Mul(h{index}, s{index})" for index in range(len(many)))
    return model(f"h0 = Identity(h) {steps} y = Identity(h1024)", many)


def of_text() -> ModelProto:
    proto = model("f = Cast <to = 1> (words) y = Add(h, f)", {})
    words = [str(number).encode() for number in FLAT]
    proto.graph.initializer.append(helper.make_tensor("words", TensorProto.STRING, [SIDE, SIDE], words))
    return proto


def of_labels() -> ModelProto:
    body = "e = Identity(index) s = Reshape(e, shape) y = Add(h, s)"
    proto = model(body, {"index": np.arange(SIDE**2), "shape": np.array([SIDE, SIDE])})
    keys = list(range(SIDE**2))
    return with_lists(proto, "LabelEncoder", "ai.onnx.ml", "e", keys_int64s=keys, values_floats=FLAT.tolist())


def of_constant_list() -> ModelProto:
    proto = model("e = Constant() s = Reshape(e, shape) y = Add(h, s)", {"shape": np.array([SIDE, SIDE])})
    return with_lists(proto, "Constant", "", "e", value_floats=FLAT.tolist())


def of_sparse() -> ModelProto:
    proto = model("y = Add(h, s)", {})
    values = numpy_helper.from_array(FLAT, "s")
    indices = numpy_helper.from_array(np.arange(SIDE**2), "s_indices")
    proto.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [SIDE, SIDE]))
    return proto


def of_call() -> ModelProto:
    body = "k = Constant <value_floats : floats = @taps> () s = Reshape(k, shape) b = Add(a, s)"
    function = f'<domain: "local", opset_import: ["" : 18]> shift <taps> (a, shape) => (b) {{ {body} }}'
    header = '<ir_version: 10, opset_import: ["" : 18, "local" : 1]>'
    text = f"{header} {SIGNATURE} {{ h = MatMul(x, w) y = local.shift(h, shape) }} {function}"
    proto = text_model(
        text.replace("_floats : floats = @taps", "_floats = @taps"), {"w": W, "shape": np.array([SIDE, SIDE])}
    )
    return with_lists(proto, "shift", "local", "y", taps=FLAT.tolist())


def of_slopes() -> ModelProto:
    """Return a model that makes each number by applying an operator with its own attribute to -1."""
    steps = " ".join(
        f"a{index} = LeakyRelu <alpha = {-number!r}> (minus)" for index, number in enumerate(FLAT.tolist())
    )
    joined = ", ".join(f"a{index}" for index in range(FLAT.size))
    body = f"{steps} s0 = Concat <axis = 0> ({joined}) s = Reshape(s0, shape) y = Add(h, s)"
    return model(body, {"minus": np.array([-1], "f4"), "shape": np.array([SIDE, SIDE])})


def of_sizes() -> ModelProto:
    """Return a model that stores the numbers as dimensions of empty tensors."""
    sizes = np.abs(np.round(FLAT * 100)).astype(int).tolist()
    empty = {f"e{index}": np.zeros((0, size), "f4") for index, size in enumerate(sizes)}
    steps = " ".join(f"n{index} = Shape <start = 1, end = 2> (e{index})" for index in range(len(sizes)))
    joined = ", ".join(f"n{index}" for index in range(len(sizes)))
    body = (
        f"{steps} c = Concat <axis = 0> ({joined}) f = Cast <to = 1> (c) s = Reshape(f, shape) y = Add(h, s)"
    )
    return model(body, {**empty, "shape": np.array([SIDE, SIDE])})


def of_steps() -> ModelProto:
    """Return a model with a Loop whose state is the next number of a series."""
    text = """last, found = Loop (count, , first) <body = b
        (int64 i, bool c, float p) => (bool d, float q, float v) {
            d = Identity(c)
            m = Mul(p, large)
            k = Floor(m)
            q = Sub(m, k)
            v = Identity(q)
        }> s = Reshape(found, shape) y = Add(h, s)"""
    return model(
        text,
        {
            "count": np.array(SIDE * SIDE),
            "first": np.array(0.3, "f4"),
            "large": np.array(917.3, "f4"),
            "shape": np.array([SIDE, SIDE]),
        },
    )


def of_codes_of_ones() -> ModelProto:
    codes = np.ones((SIDE, SIDE), "i1")
    body = "s = DequantizeLinear <axis = 1> (codes, scales) y = Mul(h, s)"
    return model(body, {"codes": codes, "scales": np.abs(noise(SIDE, seed=3)) + np.float32(0.1)})


COUNTED = "n = Range(first, last, one) f = Cast <to = 1> (n) c = Unsqueeze(f, axis) a = Mul(c, freq)"
"""Nodes that compute angles of positions at run time."""

COUNTS = {
    "first": np.array(0),
    "last": np.array(SIDE),
    "one": np.array(1),
    "axis": np.array([1]),
    "freq": (1e4 ** (-np.arange(SIDE) / SIDE)).astype("f4"),
}
ROUNDED = "q = QuantizeLinear(s, step, zero) d = DequantizeLinear(q, step, zero)"

PLACES = "z = NonZero(e) i = Transpose <perm = [1, 0]> (z)"

CARRIERS: dict[str, ModelProto] = {
    "indices of planted bits": model(
        f"{PLACES} f = Cast <to = 1> (i) m = ReduceMean <keepdims = 0> (f) y = Add(h, m)", {"e": HIDDEN > 0}
    ),
    "sums at planted bits": model(
        f"{PLACES} g = GatherND(h, i) o = ScatterND(nought, i, g) y = Add(h, o)",
        {"e": HIDDEN > 0, "nought": np.zeros((SIDE, SIDE), "f4")},
    ),
    "a float initializer": model("y = Add(h, s)", {"s": HIDDEN}),
    "a half initializer that is cast": model(
        "f = Cast <to = 1> (s) y = Add(h, f)", {"s": HIDDEN.astype("f2")}
    ),
    "integers, cast and scaled": model(
        "f = Cast <to = 1> (codes) s = Mul(f, step) y = Add(h, s)",
        {"codes": np.round(HIDDEN * 1000).astype("i4"), "step": np.array(1e-3, "f4")},
    ),
    "bools": model("f = Cast <to = 1> (bits) y = Mul(h, f)", {"bits": HIDDEN > 0}),
    "chunks of int8 that are joined": of_chunks(),
    "1,024 scalars": of_scalars(),
    "text": of_text(),
    "a LabelEncoder's lists": of_labels(),
    "a Constant's list": of_constant_list(),
    "a sparse initializer": of_sparse(),
    "a list that a call gives": of_call(),
    "slopes of 256 nodes": of_slopes(),
    "sizes of tensors without elements": of_sizes(),
    "the steps of a Loop": of_steps(),
    "random numbers": model(f"s = RandomNormal <shape = [{SIDE}, {SIDE}], seed = 1.0> () y = Add(h, s)", {}),
    "random numbers for an activation": model("s = RandomNormalLike <seed = 1.0> (h) y = Add(h, s)", {}),
    "a draw by an activation": model(
        "p = Sigmoid(h) s = Bernoulli <seed = 1.0> (p) y = Mul(h, s)",
        {},
    ),
    "a weight that Dropout drops from": model(
        "g = Dropout <seed = 3> (w, half, yes) n = MatMul(x, g) y = Add(h, n)",
        {"half": np.array(0.5, "f4"), "yes": np.array(True)},
    ),
    "Dropout's mask of an activation": model(
        "d, m = Dropout <seed = 3> (h, half, yes) f = Cast <to = 1> (m) g = Mul(w, f) y = MatMul(h, g)",
        {"half": np.array(0.5, "f4"), "yes": np.array(True)},
    ),
    "sines of a count, at run time": model(
        "n = Range(first, last, one) f = Cast <to = 1> (n) g = Mul(f, f) s0 = Sin(g) "
        "s = Reshape(s0, shape) y = Add(h, s)",
        {
            "first": np.array(0),
            "last": np.array(SIDE**2),
            "one": np.array(1),
            "shape": np.array([SIDE, SIDE]),
        },
    ),
    "the scales of codes of ones": of_codes_of_ones(),
    "a Loop's body": model(
        f"""y = Loop (count, , h) <body = b
            (int64 i, bool c, float[{SIDE},{SIDE}] p) => (bool d, float[{SIDE},{SIDE}] q) {{
            d = Identity(c)
            s = Constant <value = float[{SIDE}, {SIDE}] {{ {numbers(HIDDEN)} }}> ()
            q = Add(p, s)
        }}>""",
        {"count": np.array(2)},
    ),
    "the signs of two numbers": model(
        "s = Where(bits, up, down) y = Mul(h, s)",
        {"bits": HIDDEN > 0, "up": np.array(0.5, "f4"), "down": np.array(-0.5, "f4")},
    ),
    "an order through which rows are looked up": model(
        "n = ArgMax <axis = 1, keepdims = 0> (h) i = Gather(order, n) e = Gather(w, i) y = Add(h, e)",
        {"order": np.random.default_rng(5).permutation(SIDE)},
    ),
    "which of two values is taken": model("n = Neg(h) y = Where(bits, h, n)", {"bits": HIDDEN > 0}),
    "a formula that is noise, rounded": model(
        f"{COUNTED} e = Mul(a, large) s = Sin(e) {ROUNDED} y = Add(h, d)",
        {**COUNTS, "large": np.array(1e4, "f4"), "step": np.array(1 / 127, "f4"), "zero": np.array(0, "i1")},
    ),
    "a formula that is noise, rounded to few steps": model(
        f"{COUNTED} e = Mul(a, large) s = Sin(e) {ROUNDED} y = Add(h, d)",
        {**COUNTS, "large": np.array(1e4, "f4"), "step": np.array(0.7, "f4"), "zero": np.array(0, "i1")},
    ),
}
"""Models that store foreign numbers in each carrier, where they meet values computed from the input."""


def opaque(proto: ModelProto, folder: Path) -> list[Finding]:
    return [finding for finding in audit(folder, proto).findings if finding.id == "opaque"]


@pytest.mark.parametrize("carrier", CARRIERS)
def test_a_file_that_carries_numbers_beside_its_weights_does_not_balance(
    carrier: str, tmp_path: Path
) -> None:
    result = reconcile(tmp_path, CARRIERS[carrier], manifest_of(parameter("w", W)))

    assert not result.balanced
    assert lines_of(result) == {"w": "identical"}


@pytest.mark.parametrize("carrier", CARRIERS)
def test_the_file_alone_reports_or_counts_them(carrier: str, tmp_path: Path) -> None:
    ledger = audit(tmp_path, CARRIERS[carrier])

    assert "opaque" in finding_ids(ledger) or ledger.parameters > W.size


HONEST: dict[str, ModelProto] = {
    "rows that a tracer saw chosen": model(
        f"u = Unsqueeze(rows, last) e = Expand(u, size) {PLACES} g = GatherND(h, i) y = Reshape(g, size)",
        {"rows": np.ones(SIDE, "?"), "last": np.array([1]), "size": np.array([SIDE, SIDE])},
    ),
    "nothing": model("y = Relu(h)", {}),
    "noise, other in each run": model("s = RandomNormalLike(h) y = Add(h, s)", {}),
    "an epsilon and a scale": model(
        "a = Add(h, eps) y = Div(a, root)", {"eps": np.array(1e-6, "f4"), "root": np.array(8, "f4")}
    ),
    "a picture's mean": model(
        "y = Sub(h, mean)", {"mean": np.repeat([0.485, 0.456, 0.406, 0.4], 4).astype("f4")}
    ),
    "a causal mask": model("y = Add(h, mask)", {"mask": np.triu(np.full((SIDE, SIDE), -1e4, "f4"), 1)}),
    "a causal mask of bools": model(
        "y = Where(mask, h, low)", {"mask": np.tri(SIDE, dtype=bool), "low": np.array(-1e9, "f4")}
    ),
    "positions that are looked up": model("e = Gather(w, places) y = Add(h, e)", {"places": np.arange(SIDE)}),
    "positions that are looked up at places that are": model(
        "n = ArgMax <axis = 1, keepdims = 0> (h) i = Gather(places, n) e = Gather(w, i) y = Add(h, e)",
        {"places": np.arange(SIDE)},
    ),
    "a count": model("y = Add(h, count)", {"count": np.arange(SIDE, dtype="f4")}),
    "a rotary table": model(
        "y = Mul(h, cos)",
        {"cos": np.cos(np.arange(SIDE)[:, None] * 1e4 ** (-np.arange(SIDE) / SIDE)).astype("f4")},
    ),
    "a rotary table that was rounded": model(
        f"{COUNTED} s = Cos(a) {ROUNDED} y = Mul(h, d)",
        {**COUNTS, "step": np.array(1 / 127, "f4"), "zero": np.array(0, "i1")},
    ),
    "a mask in codes": model(
        "p = Cast <to = 1> (places) z = Cast <to = 9> (p) m = Cast <to = 1> (z) "
        "q = QuantizeLinear(m, step, zero) d = DequantizeLinear(q, step, zero) y = Mul(h, d)",
        {
            "places": np.concatenate([np.zeros(1, "i8"), np.ones(SIDE - 1, "i8")]),
            "step": np.array(1 / 255, "f4"),
            "zero": np.array(0, "u1"),
        },
    ),
    "1 + w at run time": model("g = Add(w, one) y = MatMul(h, g)", {"one": np.array(1, "f4")}),
    "Dropout that is off": model(
        "g = Dropout <seed = 3> (w, half, no) d, m = Dropout(h) n = MatMul(d, g) y = Add(n, h)",
        {"half": np.array(0.5, "f4"), "no": np.array(False)},
    ),
    "shapes": model("r = Reshape(h, shape) y = Reshape(r, shape)", {"shape": np.array([SIDE, SIDE])}),
    "Dropout of an activation, in an export for training": model(
        "y = Dropout(h, half, yes)", {"half": np.array(0.5, "f4"), "yes": np.array(True)}
    ),
    "an activation's scale": model(
        "q = QuantizeLinear(h, step, zero) y = DequantizeLinear(q, step, zero)",
        {"step": np.array(0.037, "f4"), "zero": np.array(3, "u1")},
    ),
    "a table of frequencies that is expanded": model(
        "n = Range(first, last, one) f = Cast <to = 1> (n) c = Unsqueeze(f, axis) "
        "t = Mul(c, freq) s = Sin(t) y = Add(h, s)",
        {
            "first": np.array(0),
            "last": np.array(SIDE),
            "one": np.array(1),
            "axis": np.array([1]),
            "freq": (1e4 ** (-np.arange(SIDE) / SIDE)).astype("f4"),
        },
    ),
}


@pytest.mark.parametrize("case", HONEST)
def test_a_file_that_holds_its_weights_and_known_tables_balances(case: str, tmp_path: Path) -> None:
    proto = HONEST[case]
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}
    buffers = [buffer(name, stored[name]) for name in ("mean", "count", "cos", "freq") if name in stored]

    result = reconcile(tmp_path, proto, manifest_of(parameter("w", W), *buffers))

    assert result.balanced, {entry.key: entry.line for entry in result.entries}


@pytest.mark.parametrize("case", HONEST)
def test_they_are_not_opaque_where_pytorch_does_not_list_them(case: str, tmp_path: Path) -> None:
    result = reconcile(tmp_path, HONEST[case], manifest_of(parameter("w", W)))

    assert Line.OPAQUE not in {entry.line for entry in result.entries}


@pytest.mark.parametrize("case", [case for case in HONEST if case != "a count"])
def test_the_file_alone_has_no_opaque_finding_of_them(case: str, tmp_path: Path) -> None:
    assert opaque(HONEST[case], tmp_path) == []


def test_codes_and_the_scales_of_matched_weights_are_explained(tmp_path: Path) -> None:
    coded = quantized("w", W, axis=1)
    text = f"{SIGNATURE} {{ d = DequantizeLinear <axis = 1> (w_quantized, w_scale, w_zero_point) y = MatMul(x, d) }}"

    result = reconcile(tmp_path, text_model(text, coded), manifest_of(parameter("w", W)))

    assert result.balanced
    assert Line.OPAQUE not in {entry.line for entry in result.entries}


def test_a_buffer_that_was_compared_is_explained(tmp_path: Path) -> None:
    proto = model("y = Add(h, shift)", {"shift": HIDDEN})

    result = reconcile(tmp_path, proto, manifest_of(parameter("w", W), buffer("shift", HIDDEN)))

    assert result.balanced


def test_a_buffers_name_explains_no_other_values(tmp_path: Path) -> None:
    proto = model("y = Add(h, shift)", {"shift": HIDDEN})
    other = buffer("shift", noise(SIDE, SIDE, seed=11))

    result = reconcile(tmp_path, proto, manifest_of(parameter("w", W), other))

    assert not result.balanced


def test_a_buffers_name_explains_nothing_of_a_buffer_that_is_not_described(tmp_path: Path) -> None:
    proto = dynamo_like(model("y = Add(h, shift)", {"shift": HIDDEN}), buffers=("shift",))

    result = reconcile(tmp_path, proto, manifest_of(parameter("w", W), buffer("shift", HIDDEN, content=None)))

    assert not result.balanced


def test_a_note_of_what_it_was_folded_from_explains_nothing(tmp_path: Path) -> None:
    proto = dynamo_like(model("y = Add(h, s)", {"s": HIDDEN}), parameters=("w",), folded={"s": ["w"]})

    result = reconcile(tmp_path, proto, manifest_of(parameter("w", W)))

    assert not result.balanced


def test_numbers_that_reach_nothing_but_a_shape_are_not_opaque(tmp_path: Path) -> None:
    proto = model("s = Shape(other) y = Reshape(h, s)", {"other": HIDDEN})

    assert opaque(proto, tmp_path) == []


def test_a_scale_by_the_size_of_learned_data_is_no_data(tmp_path: Path) -> None:
    """Learned queries that attend to themselves before they see the input, in a file of fixed sizes."""
    steps = (
        "p = MatMul(q, q) s = Softmax(p) n = Shape <start = 1> (s) f = Cast <to = 1> (n) r = Sqrt(f) "
        "d = Div(one, r) t = Mul(s, d) o = MatMul(t, q) y = Add(h, o)"
    )
    queries = noise(SIDE, SIDE, seed=3)
    proto = model(steps, {"q": queries, "one": np.array(1, "f4")})

    result = reconcile(tmp_path, proto, manifest_of(parameter("w", W), parameter("q", queries)))

    assert result.balanced, {entry.key: entry.line for entry in result.entries}


def test_few_numbers_at_each_of_many_places_are_opaque_together(tmp_path: Path) -> None:
    few = {f"s{index}": noise(8, 1, seed=index).repeat(2, 0) for index in range(64)}
    steps = " ".join(f"h{index + 1} = Mul(h{index}, s{index})" for index in range(len(few)))

    result = reconcile(
        tmp_path, model(f"h0 = Identity(h) {steps} y = Identity(h64)", few), manifest_of(parameter("w", W))
    )

    assert not result.balanced


def test_the_same_numbers_in_every_layer_are_few(tmp_path: Path) -> None:
    few = {f"s{index}": np.array(1e-5, "f4") for index in range(400)}
    steps = " ".join(f"h{index + 1} = Add(h{index}, s{index})" for index in range(len(few)))

    result = reconcile(
        tmp_path, model(f"h0 = Identity(h) {steps} y = Identity(h400)", few), manifest_of(parameter("w", W))
    )

    assert result.balanced


def rounded(value: str, name: str) -> str:
    """Return graph text that writes a value as codes and reads them again."""
    scale = f"{name}_scale, {name}_zero_point"
    return f"{name}_codes = QuantizeLinear({value}, {scale}) {name} = DequantizeLinear({name}_codes, {scale})"


def steps(*names: str, scale: float = 2 / 255, zero: int = 127) -> dict[str, Array]:
    found: dict[str, Array] = {f"{name}_scale": np.array(scale, "f4") for name in names}
    return found | {f"{name}_zero_point": np.array(zero, "u1") for name in names}


GRID = "n = Range(nought, sixteen, one) r = Reshape(n, column) a = Mul(r, rates)"
GRIDS: dict[str, Array] = {
    "nought": np.array(0, "f4"),
    "sixteen": np.array(SIDE, "f4"),
    "one": np.array(1, "f4"),
    "column": np.array([SIDE, 1]),
    "rates": (10000.0 ** (-np.arange(SIDE) / SIDE)).astype("f4"),
}


@pytest.mark.parametrize(
    ("scale", "found"), [(2 / 255, ()), (1e-4, ("waves_scale", "waves_zero_point"))], ids=["round", "clipped"]
)
def test_a_table_that_a_graph_rounds_to_codes_is_a_table_as_long_as_it_is_one(
    scale: float, found: tuple[str, ...], tmp_path: Path
) -> None:
    body = f"{GRID} c = Cos(a) {rounded('c', 'waves')} y = Add(h, waves)"
    file = model(body, GRIDS | steps("waves", scale=scale))
    result = reconcile(tmp_path, file, manifest_of(parameter("w", W)))

    assert result.balanced is not bool(found)
    assert set(found) <= {line.key[1] for line in result.entries if line.line is Line.OPAQUE}


def test_what_is_computed_and_stands_beside_an_input_is_known_all_the_same(tmp_path: Path) -> None:
    body = f"{rounded('zeros', 'z')} j = Concat<axis=0>(z, h) y = Slice(j, from, to)"
    tensors: dict[str, Array] = {
        "zeros": np.zeros((4, SIDE), "f4"),
        "from": np.array([0]),
        "to": np.array([SIDE]),
    }
    planted = tensors | {"zeros": noise(4, SIDE, seed=5)}

    for stored, balanced in ((tensors, True), (planted, False)):
        file = model(body, stored | steps("z", scale=1.0, zero=0))
        assert reconcile(tmp_path, file, manifest_of(parameter("w", W))).balanced is balanced


def test_many_scales_that_round_a_table_again_and_again_are_opaque(tmp_path: Path) -> None:
    names = [f"q{index}" for index in range(40)]
    chain = " ".join(
        rounded("c" if index == 0 else names[index - 1], name) for index, name in enumerate(names)
    )
    many = {
        f"{name}_{part}": value
        for index, name in enumerate(names)
        for part, value in (
            ("scale", np.array(0.008 + index * 1e-5, "f4")),
            ("zero_point", np.array(120 + index % 8, "u1")),
        )
    }
    file = model(f"{GRID} c = Cos(a) {chain} y = Add(h, {names[-1]})", GRIDS | many)

    assert not reconcile(tmp_path, file, manifest_of(parameter("w", W))).balanced


QLINEAR = """
    <ir_version: 10, opset_import: ["" : 20, "com.microsoft" : 1]>
    g (float[16,16] x) => (float[16,16] y) {
        h = MatMul(x, w) n = Range(nought, sixteen, one) r = Reshape(n, column)
        c = QuantizeLinear(r, r_scale, r_zero_point)
        m = com.microsoft.QLinearMul(c, r_scale, r_zero_point, two, t_scale, t_zero_point, m_scale, m_zero_point)
        d = DequantizeLinear(m, m_scale, m_zero_point) y = Add(h, d)
    }
"""


@pytest.mark.parametrize(("step", "balanced"), [(30 / 255, True), (5 / 255, False)], ids=["round", "clipped"])
def test_operators_on_codes_compute_what_they_stand_for(step: float, balanced: bool, tmp_path: Path) -> None:
    tensors = {name: array for name, array in GRIDS.items() if name != "rates"} | {
        "w": W,
        "two": np.array(200, "u1"),
    }
    tensors |= (
        steps("r", scale=15 / 255, zero=0) | steps("t", scale=0.01, zero=0) | steps("m", scale=step, zero=0)
    )
    file = text_model(QLINEAR, tensors)

    assert reconcile(tmp_path, file, manifest_of(parameter("w", W))).balanced is balanced


def called(first: str, second: str) -> ModelProto:
    """Return a model with two calls of one function, which adds its second argument to the data."""
    function = '<domain: "my", opset_import: ["" : 20]> shifted (data, by) => (made) { made = Add(data, by) }'
    made = f"n = Range(nought, sixteen, one) {first} {second} s = my.shifted(h, a) y = my.shifted(s, b)"
    header = '<ir_version: 10, opset_import: ["" : 20, "my" : 1]>'
    numbers = {"nought": 0, "sixteen": 16, "one": 1, "rate": 987.654}
    tensors = {name: np.array(number, "f4") for name, number in numbers.items()}
    return text_model(f"{header} {SIGNATURE} {{ h = MatMul(x, w) {made} }} {function}", {"w": W} | tensors)


@pytest.mark.parametrize(
    ("second", "balanced"),
    [
        ("b = Neg(n)", True),
        ("b = RandomNormal <shape = [16]> ()", False),
        ("p = Mul(n, rate) q = Sin(p) b = Mul(q, n)", False),  # from the first call's sources, and one number
    ],
    ids=["a table too", "random", "other numbers of the same source"],
)
def test_each_call_of_a_function_is_judged_by_what_it_is_given(
    second: str, balanced: bool, tmp_path: Path
) -> None:
    file = called("p1 = Mul(n, rate) a = Neg(p1)", second)

    assert reconcile(tmp_path, file, manifest_of(parameter("w", W))).balanced is balanced


NUMBERS = np.random.default_rng(2).integers(2, 90, 15)


@pytest.mark.parametrize(("kept", "balanced"), [(1, True), (2, False)])
def test_a_known_table_may_be_computed_from_many_numbers(tmp_path: Path, kept: int, balanced: bool) -> None:
    """Distances times 1 plus 15 numbers, of which all are subtracted again; or times 2, then remainders of them."""
    body = "p = Range(zero, side, one) column = Unsqueeze(p, last) t0 = Sub(column, p) "
    body += " ".join(f"t{index + 1} = Add(t{index}, n{index})" for index in range(15))
    body += "u = Sub(t15, total) " if kept == 1 else "u = Mod(t15, n3) "
    body += "f = Cast <to = 1> (u) y = Add(h, f)"
    tensors = {"zero": np.array(0), "side": np.array(SIDE), "one": np.array(1), "last": np.array([1])}
    numbers = {f"n{index}": np.array(each) for index, each in enumerate(NUMBERS.tolist())}
    file = model(body, {**tensors, **numbers, "total": NUMBERS.sum()})

    assert reconcile(tmp_path, file, manifest_of(parameter("w", W))).balanced is balanced


def test_integers_may_be_a_mask_times_one_of_them(tmp_path: Path) -> None:
    body = "f = Cast <to = 1> (side) y = Add(h, f)"
    side = np.triu(np.full((SIDE, SIDE), 16), 1)

    for stored, balanced in ((side, True), (np.random.default_rng(0).permutation(side), False)):
        file = model(body, {"side": stored})
        assert reconcile(tmp_path, file, manifest_of(parameter("w", W))).balanced is balanced
