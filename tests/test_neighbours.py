"""Scopes of nodes without scopes, from the tensors that they read and the nodes around them."""

from __future__ import annotations

import time
from pathlib import Path

import onnx
import pytest
from models import audit, quantized, ramp, text_model, with_scopes
from onnx import helper

from analyzer.account.ledger import Ledger
from analyzer.account.scopes.neighbours import STRENGTH, agree, settle_nodes
from analyzer.model.dataflow import follow_data

META, PATH, OWN, BIAS, BETWEEN = (STRENGTH[rank] for rank in (0, 2, 3, 4, 5))


def scopes_of(ledger: Ledger) -> dict[str, str | None]:
    """Return the scopes of the main graph's nodes, by first output."""
    nodes = (node for node in ledger.model.nodes() if not node.graph_path)
    return {node.outputs[0]: ledger.node_scopes.get(node.place) for node in nodes}


# scopes on which readers agree


@pytest.mark.parametrize(
    ("found", "agreed"),
    [
        ([], None),
        ([None], None),
        ([("a.b", PATH)], ("a.b", PATH)),
        ([("a.b", PATH), ("a.c", PATH), None], ("a", PATH)),
        ([("a.b", PATH), ("c", META)], ("c", META)),
        ([("a", BIAS), ("b", OWN)], ("b", OWN)),
        ([("a.b", BETWEEN), ("a.c", BETWEEN)], ("a", BETWEEN)),
        ([("a.b", BETWEEN), None], None),
        ([("", PATH), ("", PATH)], ("", PATH)),
    ],
)
def test_readers_agree_by_the_strongest_evidence_on_what_they_share(
    found: list[tuple[str, str] | None], agreed: tuple[str, str] | None
) -> None:
    assert agree(found, is_owned=False) == agree(found, is_owned=True) == agreed


def test_readers_with_nothing_in_common_leave_an_owned_tensor_to_the_first() -> None:
    found = [("", PATH), ("b.c", PATH), ("a", PATH)]

    assert agree(found, is_owned=True) == ("b.c", PATH)
    assert agree(found, is_owned=False) == ("", PATH)


# tensors that a node reads


def test_node_is_where_its_weights_are(tmp_path: Path) -> None:
    proto = text_model(
        """g (float[1,4] x) => (float[1,4] y) {
            n = LayerNormalization(x, "enc.norm.weight", "enc.norm.bias") y = Relu(n)
        }""",
        {"enc.norm.weight": ramp(4), "enc.norm.bias": ramp(4, start=9)},
    )

    assert scopes_of(audit(tmp_path, proto)) == {"n": "enc.norm", "y": None}


def test_bias_in_a_fused_sum_and_norm_is_not_the_norms(tmp_path: Path) -> None:
    proto = text_model(
        """g (float[1,2,4] x, float[1,2,4] s) => (float[1,2,4] y) {
            h = MatMul(x, val_1)
            y = com.microsoft.SkipLayerNormalization(h, s, "l.norm.weight", "l.norm.bias", "l.dense.bias")
        }""",
        {
            "val_1": ramp(4, 4),
            "l.norm.weight": ramp(4),
            "l.norm.bias": ramp(4, start=9),
            "l.dense.bias": ramp(4, start=5),
        },
    )

    assert scopes_of(audit(tmp_path, proto)) == {"h": "l.dense", "y": "l.norm"}


def test_table_that_a_head_reads_too_is_no_evidence_of_either(tmp_path: Path) -> None:
    proto = text_model(
        """g (int64[n] ids) => (float[n,9] y) {
            e = Gather("lm_head.weight", ids) t = Transpose("lm_head.weight") y = MatMul(e, t)
        }""",
        {"lm_head.weight": ramp(9, 4)},
    )

    assert scopes_of(audit(tmp_path, proto)) == {"e": None, "t": None, "y": None}


# products and biases


@pytest.mark.parametrize(
    "text",
    [
        "h = MatMul(x, w) y = Add(h, b)",
        "h = MatMul(x, w) y = Add(b, h)",
        "t = Transpose(w) h = MatMul(x, t) y = Add(h, b)",
        "h = MatMul(x, w) y = com.microsoft.BiasGelu(h, b)",
        "h = MatMul(x, w) c = Cast<to=1>(h) d = Identity(c) y = Add(d, b)",
        "h = FusedMatMul(x, w) y = Add(h, b)",
    ],
)
def test_product_is_of_the_module_of_the_bias_that_is_added(tmp_path: Path, text: str) -> None:
    text = text.replace("b)", '"enc.query.bias")').replace("(b,", '("enc.query.bias",')
    proto = text_model(
        f"g (float[1,4] x) => (float[1,4] y) {{ {text} }}".replace("Fused", "com.microsoft.Fused"),
        {"w": ramp(4, 4), "enc.query.bias": ramp(4)},
    )

    assert set(scopes_of(audit(tmp_path, proto)).values()) == {"enc.query"}


def test_product_of_integers_is_scaled_before_its_bias_is_added(tmp_path: Path) -> None:
    codes = quantized("w", ramp(4, 4))
    proto = text_model(
        """g (float[1,4] x) => (float[1,4] y) {
            q, s, z = DynamicQuantizeLinear(x)
            p = MatMulInteger(q, w_quantized, z, w_zero_point)
            f = Cast<to=1>(p) m = Mul(s, w_scale) h = Mul(f, m) y = Add(h, "fc.bias")
        }""",
        {**codes, "fc.bias": ramp(4)},
    )

    found = scopes_of(audit(tmp_path, proto))

    assert (found["p"], found["y"]) == ("fc", "fc")


def test_packed_product_is_in_what_the_modules_of_its_biases_share(tmp_path: Path) -> None:
    proto = text_model(
        """g (float[1,4] x) => (float[1,2] a, float[1,2] b) {
            p = MatMul(x, packed) q, k = Split<axis=1, num_outputs=2>(p)
            a = Add(q, "self.query.bias") b = Add(k, "self.key.bias")
        }""",
        {"packed": ramp(4, 4), "self.query.bias": ramp(2), "self.key.bias": ramp(2, start=7)},
    )

    found = scopes_of(audit(tmp_path, proto))

    assert (found["p"], found["a"], found["b"]) == ("self", "self.query", "self.key")


def test_table_that_is_added_to_a_product_is_no_bias(tmp_path: Path) -> None:
    proto = text_model(
        'g (float[5,4] x) => (float[5,4] y) { h = MatMul(x, w) y = Add(h, "positions.weight") }',
        {"w": ramp(4, 4), "positions.weight": ramp(5, 4)},
    )

    assert scopes_of(audit(tmp_path, proto))["h"] is None


def test_product_of_two_computed_values_has_no_bias(tmp_path: Path) -> None:
    proto = text_model(
        'g (float[4,4] x) => (float[4,4] y) { h = MatMul(x, x) y = Add(h, "fc.bias") }', {"fc.bias": ramp(4)}
    )

    assert scopes_of(audit(tmp_path, proto))["h"] is None


# nodes between others


CHAIN = """g (float[1,4] x) => (float[1,4] y) {
    a = Mul(x, "FIRST.weight") b = Relu(a) c = MatMul(b, val_1) y = Mul(c, "LAST.weight")
}"""


@pytest.mark.parametrize(
    ("first", "last", "between"),
    [
        ("l.0.norm", "l.0.post", "l.0"),
        ("l.0.norm", "l.0.norm", "l.0.norm"),
        ("l.0.norm", "l.1.norm", "l"),
        ("encoder", "decoder", None),
    ],
)
def test_node_is_in_the_module_around_the_nearest_on_both_sides(
    tmp_path: Path, first: str, last: str, between: str | None
) -> None:
    weights = {f"{first}.weight": ramp(4), f"{last}.weight": ramp(4), "val_1": ramp(4, 4)}
    proto = text_model(CHAIN.replace("FIRST", first).replace("LAST", last), weights)

    found = scopes_of(audit(tmp_path, proto))

    assert (found["b"], found["c"]) == (between, between)


def test_node_with_a_scope_on_one_side_has_none(tmp_path: Path) -> None:
    proto = text_model(
        'g (float[1,4] x) => (float[1,4] y) { a = Mul(x, "l.0.norm.weight") y = MatMul(a, val_1) }',
        {"l.0.norm.weight": ramp(4), "val_1": ramp(4, 4)},
    )

    assert scopes_of(audit(tmp_path, proto)) == {"a": "l.0.norm", "y": None}


def test_residual_connection_around_a_layer_does_not_hide_the_nearest(tmp_path: Path) -> None:
    proto = text_model(
        """g (float[1,4] x) => (float[1,4] y) {
            n = Mul(x, "l.0.norm.weight") h = MatMul(n, val_1) s = Add(x, h)
            m = Mul(s, "l.0.post.weight") k = MatMul(m, val_2) t = Add(s, k) y = Mul(t, "norm.weight")
        }""",
        {
            "l.0.norm.weight": ramp(4),
            "l.0.post.weight": ramp(4, start=9),
            "norm.weight": ramp(4, start=19),
            "val_1": ramp(4, 4),
            "val_2": ramp(4, 4, start=5),
        },
    )

    found = scopes_of(audit(tmp_path, proto))

    assert (found["h"], found["k"]) == ("l.0", None)


def test_sizes_carry_no_scope(tmp_path: Path) -> None:
    proto = with_scopes(
        text_model(
            """g (float[2,2] x) => (float[2,2] y) {
                ["first"] a = Relu(x) s = Shape(a) z = Abs(x) r = Reshape(z, s) ["last"] y = Neg(r)
            }"""
        ),
        {"first": "m.a", "last": "m.b"},
    )

    found = scopes_of(audit(tmp_path, proto))

    assert (found["s"], found["r"]) == (None, None)


def test_body_is_where_its_node_is(tmp_path: Path) -> None:
    proto = text_model("""
        g (bool c, float[2] x) => (float[2] y) {
            ["/m/gate/If"] y = If(c) <then_branch = t () => (float[2] a) { a = Relu(x) },
                                      else_branch = e () => (float[2] b) { b = Abs(x) }>
        }
    """)

    ledger = audit(tmp_path, proto)

    assert set(ledger.node_scopes.values()) == {"m.gate"}
    assert len(ledger.traced_scopes) == 1


# time


def chain(count: int) -> onnx.ModelProto:
    """Return a chain of products, every fourth of them named; each also reads one common value."""
    nodes, tensors, value = [], [], "x"
    for number in range(count):
        name = f"l.{number}.weight" if number % 4 == 0 else f"val_{number}"
        tensors.append(helper.make_tensor(name, 1, [1], [float(number)]))
        nodes.append(helper.make_node("MatMul", [value, name], [f"h{number}"]))
        nodes.append(helper.make_node("Add", [f"h{number}", "x"], [f"r{number}"]))
        value = f"r{number}"
    return helper.make_model(
        helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", 1, [1])], [], tensors)
    )


@pytest.mark.slow
def test_time_grows_with_the_nodes_and_not_with_their_square(tmp_path: Path) -> None:
    seconds = []
    for count in (1000, 8000):
        ledger = audit(tmp_path, chain(count))
        flow = follow_data(ledger.model, ledger.wiring)
        scopes = {
            e.tensor.key: (e.scope, e.scoped_by) for e in ledger.entries if e.scoped_by == "name:parameter"
        }
        start = time.process_time()
        found = settle_nodes(flow, ledger.wiring, ledger.entries, scopes, {})
        seconds.append(time.process_time() - start)
        assert len(found) > count

    assert seconds[1] < 30 * max(seconds[0], 0.005)
