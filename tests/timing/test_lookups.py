"""Lookups that a model makes with its inputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from models import save, text_model
from onnx import numpy_helper

from analyzer.model.wiring import connect
from analyzer.read import read_model
from analyzer.timing.inputs.roles import Lookups, Use, look_up

TABLE = np.zeros((50, 4), np.float32)


def looked_up(folder: Path, text: str, **weights: np.ndarray) -> Lookups:
    model = read_model(save(folder, text_model(text, weights)))
    return look_up(model, connect(model))


@pytest.mark.parametrize(
    "body",
    [
        "y = Gather(table, ids)",
        "a = Cast<to=7>(ids) y = Gather(table, a)",
        "a = Reshape(ids, shape) y = Gather(table, a)",
        "a = Identity(ids) b = Unsqueeze(a, zero) y = Gather(table, b)",
        "a = Where(mask, one, ids) y = Gather(table, a)",
        "t = Transpose<perm=[1,0]>(table) y = Gather<axis=1>(t, ids)",
        "t = Cast<to=1>(table) y = Gather(t, ids)",
        "y = GatherND(table, ids)",
        "n = Shape(ids) u = Gather(table, one) y = Gather(table, ids)",
    ],
)
def test_rows_of_the_table_that_an_input_indexes_are_found(tmp_path, body):
    text = f"g (int64[1,4] ids, bool[1,4] mask) => (float y) {{ {body} }}"
    one, shape, zero = np.array(1), np.array([4, 1]), np.array([0])

    found = looked_up(tmp_path, text, table=TABLE, one=one, shape=shape, zero=zero)

    assert found.uses["ids"].rows == 50


def test_smallest_table_counts(tmp_path):
    text = "g (int64[4] ids) => (float y, float z) { y = Gather(table, ids) z = Gather(small, ids) }"

    assert looked_up(tmp_path, text, table=TABLE, small=TABLE[:7]).uses["ids"].rows == 7


def test_number_that_is_added_on_the_way_takes_rows_away(tmp_path):
    text = "g (int64[4] ids) => (float y) { a = Add(two, ids) b = Sub(a, one) y = Gather(table, b) }"

    assert looked_up(tmp_path, text, table=TABLE, two=np.array(2), one=np.array([1])).uses["ids"].rows == 49


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("q = DequantizeLinear(table, scale, zero) y = Gather(q, ids)", np.uint8),
        ("y = com.microsoft.GatherBlockQuantized(table, ids, scale)", np.uint8),
    ],
)
def test_quantized_table_has_rows_too(tmp_path, text, kind):
    scale, zero = np.array(0.5, np.float32), np.array(0, np.uint8)
    whole = f"g (int64[4] ids) => (float y) {{ {text} }}"

    found = looked_up(tmp_path, whole, table=TABLE.astype(kind), scale=scale, zero=zero)

    assert found.uses["ids"].rows == 50


def test_tables_of_a_fused_embedding_are_told_apart(tmp_path):
    text = """
        g (int64[1,4] ids, int64[1,4] types) => (float y, float m)
        { y, m = com.microsoft.EmbedLayerNormalization(ids, types, table, places, kinds, scale, shift) }
    """
    weights = {"table": TABLE, "places": TABLE[:9], "kinds": TABLE[:2], "scale": TABLE[0], "shift": TABLE[0]}

    found = looked_up(tmp_path, text, **weights)

    assert (found.uses["ids"].rows, found.uses["types"].rows, found.positions) == (50, 2, 9)


def test_input_is_followed_into_nested_graphs(tmp_path):
    text = """
        g (bool c, int64[4] ids) => (float y)
        { y = If(c) <then_branch = t () => (float a) { i = Identity(ids) a = Gather(table, i) },
                     else_branch = e () => (float b) { b = Gather(table, ids) }> }
    """

    assert looked_up(tmp_path, text, table=TABLE).uses["ids"].rows == 50


def test_input_and_table_are_followed_into_functions_and_out_of_them(tmp_path):
    text = """
        <ir_version: 10, opset_import: ["" : 18, "local" : 1]>
        g (int64[4] ids) => (float y) { y = local.embed(ids, table) }
        <domain: "local", opset_import: ["" : 18]>
        embed (i, t) => (o) { k = Identity(i) o = Gather(t, k) }
    """

    assert looked_up(tmp_path, text, table=TABLE).uses["ids"].rows == 50


def test_functions_that_call_themselves_are_followed_to_an_end(tmp_path):
    text = """
        <ir_version: 10, opset_import: ["" : 18, "local" : 1]>
        g (int64[4] ids) => (float y) { y = local.f(ids, table) }
        <domain: "local", opset_import: ["" : 18, "local" : 1]>
        f (i, t) => (o) { o = local.f(i, t) }
    """

    assert looked_up(tmp_path, text, table=TABLE).uses["ids"].rows is None


def test_input_that_indexes_what_is_computed_is_reported(tmp_path):
    text = "g (float[4,3] nodes, int64[2] edges) => (float y) { n = Neg(nodes) y = Gather(n, edges) }"

    assert looked_up(tmp_path, text).uses == {"nodes": Use(), "edges": Use(is_index=True)}


def test_what_is_gathered_from_is_no_index(tmp_path):
    text = "g (int64[4] mask) => (int64 y) { y = Gather(mask, one) }"

    assert looked_up(tmp_path, text, one=np.array(1)).uses["mask"] == Use()


@pytest.mark.parametrize(
    ("body", "use"),
    [
        ("y = MatMul(x, w)", Use(features=50)),
        ("y = Gemm<transB=1>(x, w)", Use(features=4)),
        ("t = Transpose<perm=[1,0]>(w) y = MatMul(x, t)", Use(features=4)),
        ("y = com.microsoft.MatMulNBits<K=96, N=8, bits=4, block_size=32>(x, w)", Use(features=96)),
        ("y = Conv<group=2>(x, k)", Use(channels=6)),
    ],
)
def test_weights_show_what_an_input_is_multiplied_with(tmp_path, body, use):
    text = f"g (float x) => (float y) {{ {body} }}"

    found = looked_up(tmp_path, text, w=TABLE, k=np.zeros((8, 3, 5, 5), np.float32))

    assert found.uses["x"] == use


@pytest.mark.parametrize(
    ("index", "positions"),
    [
        ("n = Shape<start=1>(ids) m = Squeeze(n) i = Range(zero, m, one)", 50),
        ("n = Shape<start=1>(ids) i = Slice(places, start, n)", 20),
        ("m = Cast<to=7>(ids) c = CumSum(m, one) d = Mul(c, m) s = Sub(d, one) i = Add(s, two)", 48),
        ("i = Identity(zeros)", None),
        ("n = Shape(ids) l = Log(n) i = Cast<to=7>(l)", None),
    ],
)
def test_table_that_is_indexed_by_position_limits_the_sequence(tmp_path, index, positions):
    text = f"g (int64[1,4] ids) => (float y) {{ {index} y = Gather(table, i) }}"
    numbers = {"zero": np.array(0), "one": np.array(1), "two": np.array(2), "start": np.array([0])}

    found = looked_up(
        tmp_path, text, table=TABLE, places=np.arange(20)[None], zeros=np.zeros((1, 20), np.int64), **numbers
    )

    assert found.positions == positions


def test_invalid_graphs_are_followed_as_far_as_they_go(tmp_path):
    proto = text_model(
        "g (int64[4] ids) => (float y) { y = Gather(y, ids) z = Gather(nothing, ids) w = Gather(ids) }"
    )
    proto.graph.node.add(op_type="Gather")
    proto.graph.node.add(op_type="Add", input=["ids"], output=["ids"])
    proto.graph.initializer.append(numpy_helper.from_array(np.array(1.0), "y"))
    path = save(tmp_path, proto)

    model = read_model(path)

    assert look_up(model, connect(model)).uses["ids"].rows is None


def test_long_chains_are_followed_without_recursion(tmp_path):
    proto = text_model("g (int64[4] ids) => (float y) { y = Gather(table, v4999) }", {"table": TABLE})
    nodes = [onnx.helper.make_node("Identity", [f"v{i}" if i else "ids"], [f"v{i + 1}"]) for i in range(4999)]
    gather = proto.graph.node.pop()
    proto.graph.node.extend([*nodes, gather])
    model = read_model(save(tmp_path, proto))

    assert look_up(model, connect(model)).uses["ids"].rows == 50
