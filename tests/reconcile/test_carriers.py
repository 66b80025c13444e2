"""Data that affects the output and that PyTorch's side does not explain, and exporters' data, which is not reported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from models import (
    INPUT_KIND,
    Array,
    Values,
    audit,
    bridge_of,
    buffer,
    lines_of,
    manifest_of,
    noise,
    parameter,
    parameters_of,
    quantized,
    reconcile,
    text_model,
    traced,
    with_origins,
    with_scopes,
)
from onnx import TensorProto, helper, numpy_helper

from analyzer.manifest import Manifest, Program, Traced
from analyzer.reconciliation import Reconciliation, reconcile_ledger

W = noise(8, 8, seed=3)
"""PyTorch's weight, by which every model here multiplies."""
PLANTED = noise(8, 8, seed=4)
"""Foreign data, which is no part of PyTorch's model."""

HEAD = 'g (float[1,8] x, int64[1,5] ids, bool c) => (float[a,b] y) {{ h = Gemm <transB = 1> (x, "fc.weight") {nodes} }}'


def model(nodes: str, stored: Mapping[str, Array] | None = None, head: str = "") -> onnx.ModelProto:
    text = HEAD.format(nodes=nodes)
    return text_model((head + text) if head else text, {"fc.weight": W, **(stored or {})})


def against(folder: Path, proto: onnx.ModelProto, *others: object) -> Reconciliation:
    return reconcile(folder, proto, manifest_of(parameter("fc.weight", W), *others), "full")  # type: ignore[arg-type]


# carriers


def integers(array: Array) -> Array:
    return np.round(array * 100).astype(np.int64)


def scalars(array: Array) -> dict[str, Array]:
    return {f"s{i}": np.array([value]) for i, value in enumerate(array.reshape(-1))}


MANY = noise(1024, seed=5)

CENT = np.asarray(0.01, "f4")

FLOW: dict[str, tuple[str, dict[str, Array]]] = {
    "floats, added": ("y = Add(h, v)", {"v": PLANTED}),
    "floats, divided by": ("y = Div(h, v)", {"v": PLANTED}),
    "floats, through a node that nobody knows": ("u = acme.Mix(v) y = Add(h, u)", {"v": PLANTED}),
    "floats, subtracted after they were moved": (
        "u = Transpose(v) i = Unsqueeze(u, z) y = Sub(h, i)",
        {"v": PLANTED, "z": np.array([0])},
    ),
    "integers": (
        "f = Cast<to=1>(v) u = Mul(f, scale) y = MatMul(h, u)",
        {"v": integers(PLANTED), "scale": CENT},
    ),
    "booleans": ("f = Cast<to=1>(v) y = MatMul(h, f)", {"v": PLANTED > 0}),
    "booleans that choose": (
        "u = Where(v, scale, low) y = MatMul(h, u)",
        {"v": PLANTED > 0, "scale": np.asarray(0.5, "f4"), "low": np.asarray(-0.5, "f4")},
    ),
    "chunks of int8": (
        "j = Concat<axis=0>(a, b) f = Cast<to=1>(j) u = Mul(f, scale) y = MatMul(h, u)",
        {
            "a": integers(PLANTED)[:4].astype("i1"),
            "b": integers(PLANTED)[4:].astype("i1"),
            "scale": CENT,
        },
    ),
    "single numbers": (
        f"j = Concat<axis=0>({', '.join(f's{i}' for i in range(1024))}) r = Reshape(j, to) y = MatMul(h, r)",
        {**scalars(MANY), "to": np.array([8, 128])},
    ),
    "ones with a scale for each channel": (
        "d = DequantizeLinear<axis=0>(q, s) r = Reshape(d, to) y = MatMul(h, r)",
        {"q": np.ones((64, 1), "i1"), "s": np.abs(PLANTED).reshape(-1), "to": np.array([8, 8])},
    ),
    "looked up by what is stored": ("g = Gather(v, k) y = Add(h, g)", {"v": PLANTED, "k": np.arange(8)}),
    "looked up by an input": ("g = Gather(v, ids) s = ReduceSum(g) y = Add(h, s)", {"v": PLANTED}),
    "a formula of a count": (
        "r = Range(z, n, o) f = Cast<to=1>(r) m = Mul(f, k) s = Sin(m) q = Reshape(s, to) y = MatMul(h, q)",
        {
            "z": np.asarray(0),
            "n": np.asarray(64),
            "o": np.asarray(1),
            "k": np.asarray(12345.678, "f4"),
            "to": np.array([8, 8]),
        },
    ),
    "a pattern of indices": ("y = Gather<axis=1>(h, v)", {"v": np.random.default_rng(0).permutation(64) % 8}),
    "a formula of a weight that is stored": ("e = Exp(v) y = MatMul(h, e)", {"v": PLANTED}),
    "random numbers": ("r = RandomNormal<shape=[8,8], seed=1.0>() y = MatMul(h, r)", {}),
    "random numbers like others": (
        "r = RandomUniformLike(v) y = MatMul(h, r)",
        {"v": np.zeros((8, 8), "f4")},
    ),
    "a body of a loop": (
        """y, each = Loop (trips, c, h) <
            body = b (int64 i, bool more, float[1,8] s) => (bool on, float[1,8] t, float[1,8] u) {
                on = Identity(more)
                t = Add(s, v)
                u = Identity(s)
            }
        >""",
        {"v": noise(1, 64, seed=7), "trips": np.asarray(3)},
    ),
    "both branches": (
        """w = If (c) <
            then_branch = a () => (float[8,8] p) { p = Identity(v) },
            else_branch = b () => (float[8,8] q) { q = Identity(u) }
        > y = MatMul(h, w)""",
        {"v": PLANTED, "u": noise(8, 8, seed=9)},
    ),
}


@pytest.mark.parametrize("name", sorted(FLOW))
def test_data_that_computes_is_reported_whatever_carries_it(tmp_path: Path, name: str) -> None:
    nodes, stored = FLOW[name]
    result = against(tmp_path, model(nodes, stored))

    assert not result.balanced
    assert result.parameters[0].line == "identical"


def constants(**attributes: object) -> list[onnx.NodeProto]:
    return [
        helper.make_node("Constant", [], ["flat"], **attributes),
        helper.make_node("Constant", [], ["to"], value_ints=[8, 8]),
        helper.make_node("Reshape", ["flat", "to"], ["u"]),
        helper.make_node("MatMul", ["h", "u"], ["y"]),
    ]


def with_nodes(*nodes: onnx.NodeProto) -> onnx.ModelProto:
    proto = model("y = Relu(h)")
    del proto.graph.node[1:]
    proto.graph.node.extend(nodes)
    return proto


def sparse() -> onnx.SparseTensorProto:
    values = numpy_helper.from_array(PLANTED.reshape(-1), "u")
    indices = numpy_helper.from_array(np.arange(64), "where")
    return helper.make_sparse_tensor(values, indices, [8, 8])


def sparse_initializer() -> onnx.ModelProto:
    proto = with_nodes(helper.make_node("MatMul", ["h", "u"], ["y"]))
    proto.graph.sparse_initializer.append(sparse())
    return proto


def words() -> onnx.ModelProto:
    text = np.array([f"{value:.4f}" for value in PLANTED.reshape(-1)], dtype=object).reshape(8, 8)
    proto = with_nodes(
        helper.make_node("Cast", ["text"], ["u"], to=TensorProto.FLOAT),
        helper.make_node("MatMul", ["h", "u"], ["y"]),
    )
    proto.graph.initializer.append(
        helper.make_tensor("text", TensorProto.STRING, [8, 8], [t.encode() for t in text.reshape(-1)])
    )
    return proto


def encoder(**attributes: object) -> onnx.ModelProto:
    return with_nodes(
        helper.make_node("LabelEncoder", ["ids"], ["u"], domain="ai.onnx.ml", **attributes),
        helper.make_node("ReduceSum", ["u"], ["n"], keepdims=1),
        helper.make_node("Mul", ["h", "n"], ["y"]),
    )


def called() -> onnx.ModelProto:
    """Return a model that calls a function which holds a constant."""
    text = """<ir_version: 10, opset_import: ["" : 18, "local" : 1]>
    g (float[1,8] x) => (float[1,8] y) { h = MatMul(x, "fc.weight") y = local.mix(h) }
    <domain: "local", opset_import: ["" : 18]>
    mix (a) => (p) { p = Relu(a) }
    """
    proto = text_model(text, {"fc.weight": W})
    del proto.functions[0].node[:]
    proto.functions[0].node.extend(
        [
            helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(PLANTED)),
            helper.make_node("Add", ["a", "k"], ["p"]),
        ]
    )
    return proto


NODES = {
    "a constant": lambda: with_nodes(*constants(value=numpy_helper.from_array(PLANTED.reshape(-1)))),
    "a list of floats": lambda: with_nodes(*constants(value_floats=PLANTED.reshape(-1).tolist())),
    "a list of ints that is cast": lambda: with_nodes(
        helper.make_node("Constant", [], ["ints"], value_ints=integers(PLANTED).reshape(-1).tolist()),
        helper.make_node("Cast", ["ints"], ["flat"], to=TensorProto.FLOAT),
        *constants()[1:],
    ),
    "a sparse constant": lambda: with_nodes(
        helper.make_node("Constant", [], ["u"], sparse_value=sparse()),
        helper.make_node("MatMul", ["h", "u"], ["y"]),
    ),
    "a sparse initializer": sparse_initializer,
    "text": words,
    "keys and values of an encoder": lambda: encoder(
        keys_int64s=list(range(64)), values_floats=PLANTED.reshape(-1).tolist()
    ),
    "a function's constant": called,
    "an attribute of a node that nobody knows": lambda: with_nodes(
        helper.make_node("Mix", ["h"], ["y"], domain="acme", table=numpy_helper.from_array(PLANTED))
    ),
}


@pytest.mark.parametrize("name", sorted(NODES))
def test_data_of_nodes_is_reported_as_well(tmp_path: Path, name: str) -> None:
    result = against(tmp_path, NODES[name]())

    assert not result.balanced
    assert result.parameters[0].line == "identical"


@pytest.mark.parametrize(
    "name", ["floats, added", "integers", "chunks of int8", "single numbers", "a body of a loop"]
)
def test_the_file_alone_says_so_too(tmp_path: Path, name: str) -> None:
    nodes, stored = FLOW[name]

    assert "opaque" in {finding.id for finding in audit(tmp_path, model(nodes, stored)).findings}


def test_what_is_made_when_the_model_runs_is_in_no_file_and_changes_no_count(tmp_path: Path) -> None:
    nodes, stored = FLOW["random numbers"]
    result = against(tmp_path, model(nodes, stored))

    (row,) = [row for row in result.bridge if row.line == "opaque"]
    assert (row.tensors, row.parameter_delta, row.stored_delta) == (1, 0, 0)
    assert [(finding.id, finding.subjects) for finding in result.findings] == [("opaque", ("r",))]


def test_what_is_reported_is_counted_as_stored(tmp_path: Path) -> None:
    nodes, stored = FLOW["a pattern of indices"]

    assert bridge_of(against(tmp_path, model(nodes, stored)))["opaque"] == (1, 64, 0, 64)


# explained data


@pytest.mark.parametrize("name", ["bn.running_mean", "table"])
def test_a_buffer_whose_values_were_compared_is_explained(tmp_path: Path, name: str) -> None:
    proto = model(f'y = Sub(h, "{name}")', {name: PLANTED})

    assert against(tmp_path, proto, buffer(name, PLANTED)).balanced
    assert not against(tmp_path, proto, buffer(name, PLANTED + 1)).balanced
    assert not against(tmp_path, proto, buffer(name, PLANTED, content=None)).balanced


def test_a_name_that_buffers_have_explains_nothing(tmp_path: Path) -> None:
    proto = model('y = Add(h, "rotary_emb.cos_cached")', {"rotary_emb.cos_cached": PLANTED})

    assert not against(tmp_path, proto).balanced


def test_what_is_computed_of_a_matched_weight_when_the_model_runs_is_explained(tmp_path: Path) -> None:
    gain = noise(64, seed=8)
    nodes = 'n = LpNormalization(h) s = Add("norm.weight", one) y = Mul(n, s)'
    proto = model(nodes, {"norm.weight": gain, "one": np.asarray(1, "f4")})

    assert against(tmp_path, proto, parameter("norm.weight", gain)).balanced


def test_what_is_added_to_a_matched_weight_is_not_explained(tmp_path: Path) -> None:
    proto = text_model(
        'g (float[1,8] x) => (float[1,8] y) { w = Add("fc.weight", v) y = MatMul(x, w) }',
        {"fc.weight": W, "v": PLANTED},
    )

    assert not against(tmp_path, proto).balanced


def test_scales_of_matched_codes_are_explained(tmp_path: Path) -> None:
    codes = quantized("w", W, axis=1)
    nodes = "d = DequantizeLinear<axis=1>(w_quantized, w_scale, w_zero_point) y = MatMul(x, d)"
    proto = text_model(f"g (float[1,8] x) => (float[1,8] y) {{ {nodes} }}", codes)

    assert against(tmp_path, proto).balanced


# honest exports


def causal(size: int, low: float) -> Array:
    return np.where(np.tril(np.ones((size, size), bool)), 0.0, low).astype("f4")


def rotary(positions: int, width: int) -> Array:
    angle = np.outer(np.arange(positions), 1e4 ** (-np.arange(0, width, 2) / width))
    return np.tile(np.cos(angle), (1, 2)).astype("f4")


HONEST: dict[str, tuple[str, dict[str, Array]]] = {
    "a mask": ("y = Add(h, v)", {"v": causal(8, -np.inf)}),
    "a mask of booleans": (
        "y = Where(v, h, low)",
        {"v": np.tril(np.ones((8, 8), bool)), "low": np.asarray(-1e9, "f4")},
    ),
    "positions": ("f = Cast<to=1>(v) y = Add(h, f)", {"v": np.arange(64)}),
    "a rotary table": ("y = Mul(h, v)", {"v": rotary(40, 8)}),
    "a rotary table that is computed": (
        "f = Cast<to=1>(p) a = MatMul(f, v) s = Sin(a) y = Mul(h, s)",
        {"p": np.arange(40)[:, None], "v": (1e4 ** (-np.arange(8) / 8)).astype("f4")[None]},
    ),
    "epsilons": (
        " ".join(f"e{i} = Add(h, v{i})" for i in range(80)) + " y = Identity(e79)",
        {f"v{i}": np.asarray(1e-5, "f4") for i in range(80)},
    ),
    "the scale of an activation": (
        "q = QuantizeLinear(h, s, z) y = DequantizeLinear(q, s, z)",
        {"s": np.asarray(0.013, "f4"), "z": np.asarray(3, "i1")},
    ),
    "a picture's mean": (
        "m = Sub(x, v) i = Div(m, u) y = Add(h, i)",
        {"v": noise(1, 8), "u": noise(1, 8, seed=2) + 5},
    ),
    "shapes and axes": (
        "r = Reshape(h, v) y = Unsqueeze(r, u)",
        {"v": np.array([1, 8]), "u": np.array([0])},
    ),
    "indices": ("y = Gather<axis=1>(h, v)", {"v": np.arange(8)[::-1].copy()}),
    "zeros that start a cache": ("y = Concat<axis=0>(v, h)", {"v": np.zeros((64, 8), "f4")}),
    "a value throughout": ("y = Mul(h, v)", {"v": np.full((8, 8), 0.37, "f4")}),
    "a mask that is made when the model runs": (
        "o = ConstantOfShape<value=float[1]{1}>(v) t = Trilu<upper=0>(o) y = Mul(h, t)",
        {"v": np.array([8, 8])},
    ),
    "data that nobody needs": ("i = Add(h, v) y = Relu(h)", {"v": PLANTED}),
}


@pytest.mark.parametrize("name", sorted(HONEST))
def test_what_exporters_make_stays_quiet(tmp_path: Path, name: str) -> None:
    nodes, stored = HONEST[name]
    # torch's exporter marks constants that it lifted out of a program.
    notes = {name: {INPUT_KIND: "CONSTANT_TENSOR"} for name in stored}
    result = against(tmp_path, with_origins(model(nodes, stored), notes))

    assert [finding.id for finding in result.findings] == []
    assert "opaque" not in {finding.id for finding in result.ledger.findings}


# sizes that are too small to report


@pytest.mark.parametrize(("count", "is_reported"), [(10, False), (11, True)])
def test_up_to_10_numbers_may_stand_at_a_place(tmp_path: Path, count: int, is_reported: bool) -> None:
    numbers = np.random.default_rng(1).standard_normal((count, 1)).astype("f4")
    proto = with_origins(model("y = Sub(h, v)", {"v": numbers}), {"v": {INPUT_KIND: "CONSTANT_TENSOR"}})

    assert against(tmp_path, proto).balanced != is_reported


def test_many_places_of_few_numbers_are_much(tmp_path: Path) -> None:
    numbers = {f"v{i}": np.asarray(value, "f4") for i, value in enumerate(MANY[:300])}
    chain = " ".join(f"h{i + 1} = Add(h{i}, v{i})" for i in range(300))
    proto = model(f"h0 = Relu(h) {chain} y = Relu(h300)", numbers)

    assert not against(tmp_path, proto).balanced


# a checkpoint


def test_the_same_is_reported_against_a_checkpoint(tmp_path: Path) -> None:
    ledger = audit(tmp_path, model(*FLOW["a pattern of indices"]))
    known = manifest_of(parameter("fc.weight", W))

    assert [f.id for f in reconcile_ledger(ledger, known, weights=Values({"fc.weight": W})).findings] == [
        "opaque"
    ]


# values that a file computes from stored numbers at run time: from PyTorch's program, or foreign data

SPEED, GROWTH = np.array(0.37, "f4"), np.array(0.05, "f4")

POSITIONS = np.arange(1, 25, dtype="f4")

TABLE = (np.sin(POSITIONS * SPEED) * np.exp(POSITIONS * GROWTH)).reshape(4, 6)
"""Table of no known series."""

WEIGHT = noise(6, 6, seed=6)

BODY = """g (float[4,6] x) => (float[4,6] y) {
    p = CumSum(ones, axis) a = Mul(p, speed) b = Mul(p, growth) s = Sin(a) e = Exp(b) m = Mul(s, e)
    [shape] t = Reshape(m, shape) [add] h = Add(x, t) y = MatMul(h, "l.weight")
}"""


def value(array: Array, *parameters: str, module: str = "") -> Traced:
    return traced(
        "%sin", array, "sin(p * f)", parameters=parameters, origins=parameters, uses=((module, "add"),)
    )


def run(folder: Path, manifest: Manifest, speed: Array = SPEED, *, scope: str = "") -> Reconciliation:
    stored = {"ones": np.ones(24, "f4"), "speed": speed, "growth": GROWTH, "l.weight": WEIGHT}
    stored |= {"axis": np.array(0), "shape": np.array([4, 6])}
    proto = with_scopes(text_model(BODY, stored), {"shape": scope, "add": scope})
    return reconcile(folder, proto, manifest)


BARE = manifest_of(parameter("l.weight", WEIGHT))


def with_program(*values: Traced, through: tuple[str, ...] = ()) -> Manifest:
    return replace(BARE, program=Program(values, through))


def test_what_the_program_computes_too_is_pytorchs(tmp_path: Path) -> None:
    assert run(tmp_path, with_program(value(TABLE))).balanced


def test_the_programs_value_is_explained_with_its_axes_turned_too(tmp_path: Path) -> None:
    assert run(tmp_path, with_program(value(np.ascontiguousarray(TABLE.T)))).balanced


def changed(place: tuple[int, int]) -> Array:
    array = TABLE.copy()
    array[place] += 0.01
    return array


@pytest.mark.parametrize(
    "manifest",
    [
        BARE,
        with_program(),
        with_program(value(changed((0, 0)))),
        with_program(value(changed((2, 3)))),
        with_program(value(TABLE[:, ::-1].copy())),
        with_program(value(TABLE[:2])),
        with_program(value(-TABLE)),
    ],
    ids=["no program", "no value", "first", "one", "turned round", "half", "negated"],
)
def test_unexplained_data_is_opaque(manifest: Manifest, tmp_path: Path) -> None:
    result = run(tmp_path, manifest)

    assert not result.balanced
    assert {line.key[1]: line.line.value for line in result.entries}["speed"] == "opaque"


def test_other_numbers_in_its_place_are_reported(tmp_path: Path) -> None:
    assert not run(tmp_path, with_program(value(TABLE)), np.array(0.38, "f4")).balanced


def test_a_value_of_another_module_does_not_explain_this_one(tmp_path: Path) -> None:
    manifest = with_program(value(TABLE, module="encoder.positions"))

    assert run(tmp_path, manifest, scope="encoder.positions").balanced
    assert not run(tmp_path, manifest, scope="decoder").balanced


# zeros that PyTorch's own program multiplies

QUERIES = """g (float[2,4] x) => (float[2,4] y) {
    [query] h = MatMul(zeros, "q.weight") [add] y = Add(x, h)
}"""


@pytest.mark.parametrize("is_programs", [True, False])
def test_zeros_are_the_programs_own_or_a_cut(is_programs: bool, tmp_path: Path) -> None:
    weight = noise(4, 4, seed=2)
    nothing = traced(
        "%mm", np.zeros((2, 4), "f4"), "zeros @ q.weight", parameters=("q.weight",), origins=("q.weight",)
    )
    program = (
        Program((replace(nothing, uses=(("", "add"),)),), ("q.weight",)) if is_programs else Program((), ())
    )
    manifest = replace(manifest_of(parameter("q.weight", weight)), program=program)
    proto = text_model(QUERIES, {"zeros": np.zeros((2, 4), "f4"), "q.weight": weight})

    assert reconcile(tmp_path, proto, manifest).balanced is is_programs


# norms without a gain and a bias of their own

NORM = """g (float[2,6] x) => (float[2,6] y) {
    [norm] n = LayerNormalization(x, ones, zeros) y = MatMul(n, w)
}"""


def normed(folder: Path, **fields: object) -> Reconciliation:
    stored = {"ones": np.ones(6, "f4"), "zeros": np.zeros(6, "f4"), "w": noise(6, 6, seed=3)}
    proto = with_scopes(text_model(NORM, stored), {"norm": "norm"})
    free = parameter("mask_embedding", noise(6, seed=4), **fields)
    manifest = replace(manifest_of(*parameters_of({"w": stored["w"]}), free, trace="exported-program"))
    return reconcile(folder, proto, manifest)


def test_a_norm_without_vectors_gets_ones_and_zeros_though_another_of_their_size_is_not_read(
    tmp_path: Path,
) -> None:
    result = normed(tmp_path, read=False)

    assert result.balanced
    assert lines_of(result)["mask_embedding"] == "unused"


def test_a_norms_own_vector_that_is_read_is_still_to_be_found(tmp_path: Path) -> None:
    stored = {"ones": np.ones(6, "f4"), "zeros": np.zeros(6, "f4"), "w": noise(6, 6, seed=3)}
    proto = with_scopes(text_model(NORM, stored), {"norm": "norm"})
    manifest = manifest_of(*parameters_of({"w": stored["w"], "norm.weight": noise(6, seed=4)}))

    assert not reconcile(tmp_path, proto, manifest).balanced
