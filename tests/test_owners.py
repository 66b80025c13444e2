"""Owner of each stored tensor: the ladder of scope evidence, rung by rung."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from models import Floats, audit, dynamo_like, entry, noise, quantized, ramp, text_model, with_scopes

from analyzer.account.ledger import Ledger

MATMUL = 'g (float[1,3] x) => (float[1,2] y) {{ ["{node}"] y = MatMul(x, "{name}") }}'
TWO_READERS = """g (float[3,3] x) => (float[3,3] y) {{
    ["{first}"] h = MatMul(x, w) ["{second}"] y = MatMul(h, w)
}}"""


def matmul(name: str, node: str = "n") -> onnx.ModelProto:
    return text_model(MATMUL.format(name=name, node=node), {name: ramp(3, 2)})


def scope_of(ledger: Ledger, name: str) -> tuple[str, str]:
    found = entry(ledger, name)
    return found.scope, found.scoped_by


# the tensor alone


def test_scope_of_a_named_tensor_is_its_module_whoever_reads_it(tmp_path: Path) -> None:
    ledger = audit(tmp_path, matmul("encoder.layer.0.query.weight", node="/other/MatMul"))

    assert scope_of(ledger, "encoder.layer.0.query.weight") == ("encoder.layer.0.query", "name:parameter")


def test_exporters_note_goes_before_the_name(tmp_path: Path) -> None:
    proto = dynamo_like(matmul("other.weight"), folded={"other.weight": ["enc.q.weight"]})

    assert scope_of(audit(tmp_path, proto), "other.weight") == ("enc.q", "provenance:folded-from")


def test_scope_of_a_tensor_folded_from_several_is_what_its_sources_share(tmp_path: Path) -> None:
    proto = dynamo_like(matmul("val_1"), folded={"val_1": ["enc.q.weight", "enc.k.weight"]})

    assert scope_of(audit(tmp_path, proto), "val_1") == ("enc", "provenance:folded-from")


def test_dotted_name_gives_a_scope_where_the_role_came_from_elsewhere(tmp_path: Path) -> None:
    proto = text_model('g (float[2] x) => (float[2] y) { y = Mul(x, "mod.eps") }', {"mod.eps": ramp(1)})

    assert scope_of(audit(tmp_path, proto), "mod.eps") == ("mod", "name:dotted")


def test_name_that_is_a_path_goes_before_its_reader(tmp_path: Path) -> None:
    ledger = audit(tmp_path, matmul("net/dense_1/kernel:0", node="other/MatMul"))

    assert scope_of(ledger, "net/dense_1/kernel:0") == ("net.dense_1", "name:path")


def test_constant_whose_name_is_a_path_is_where_it_is_read(tmp_path: Path) -> None:
    """Optimizers merge equal constants under the name of the first."""
    proto = text_model(
        'g (float[2] x) => (float[2] y) { ["/b/Mul"] y = Mul(x, "/a/Constant_output_0") }',
        {"/a/Constant_output_0": ramp(1)},
    )

    assert scope_of(audit(tmp_path, proto), "/a/Constant_output_0") == ("b", "name:node-path")


def test_placeholders_name_is_followed_as_far_as_modules_are_known(tmp_path: Path) -> None:
    proto = text_model(
        """g (float[1,2] x) => (float[1,2] y) {
            a = MatMul(x, "p_model_layers_1_mlp_up_weight::T10") b = MatMul(a, p_lm_head_weight)
            c = Mul(b, "model.layers.1.norm.weight") y = Mul(c, "model.layers.10.norm.weight")
        }""",
        {
            "p_model_layers_1_mlp_up_weight::T10": ramp(2, 2),
            "p_lm_head_weight": ramp(2, 2, start=5),
            "model.layers.1.norm.weight": ramp(2),
            "model.layers.10.norm.weight": ramp(2, start=5),
        },
    )

    ledger = audit(tmp_path, proto)

    assert scope_of(ledger, "p_model_layers_1_mlp_up_weight::T10") == ("model.layers.1", "name:mangled")
    assert scope_of(ledger, "p_lm_head_weight")[1] != "name:mangled"


# readers


@pytest.mark.parametrize(
    ("scoped", "scope", "rule"),
    [
        ({"n": "encoder.layer.0"}, "encoder.layer.0", "provenance:name-scopes"),
        ({}, "fc", "name:node-path"),
    ],
)
def test_scope_of_a_nameless_tensor_is_that_of_its_reader(
    tmp_path: Path, scoped: dict[str, str], scope: str, rule: str
) -> None:
    node = "n" if scoped else "/fc/MatMul"

    ledger = audit(tmp_path, dynamo_like(matmul("val_1", node=node), scopes=scoped))

    assert scope_of(ledger, "val_1") == (scope, rule)
    assert entry(ledger, "val_1").has_scope


def test_scope_of_a_tensor_with_several_readers_is_what_they_share(tmp_path: Path) -> None:
    proto = text_model(TWO_READERS.format(first="/enc/a/MatMul", second="/enc/b/MatMul"), {"w": ramp(3, 3)})

    assert scope_of(audit(tmp_path, proto), "w") == ("enc", "name:node-path")


def test_readers_with_metadata_decide_against_readers_with_names(tmp_path: Path) -> None:
    proto = text_model(TWO_READERS.format(first="/enc/a/MatMul", second="n"), {"w": ramp(3, 3)})

    ledger = audit(tmp_path, with_scopes(proto, {"n": "dec.b"}))

    assert scope_of(ledger, "w") == ("dec.b", "provenance:name-scopes")


def test_learned_tensor_whose_readers_share_nothing_is_the_first_ones(tmp_path: Path) -> None:
    proto = text_model(TWO_READERS.format(first="/embed/MatMul", second="/head/MatMul"), {"w": ramp(3, 3)})

    assert scope_of(audit(tmp_path, proto), "w") == ("embed", "name:node-path")


def test_constant_whose_readers_share_nothing_is_the_outermost_modules(tmp_path: Path) -> None:
    proto = text_model(
        'g (float[3] x) => (float[3] y) { ["/a/Mul"] h = Mul(x, c) ["/b/Mul"] y = Mul(h, c) }', {"c": ramp(1)}
    )

    assert scope_of(audit(tmp_path, proto), "c") == ("", "name:node-path")


def test_tensor_that_is_turned_first_is_where_the_result_is_read(tmp_path: Path) -> None:
    proto = text_model(
        'g (float[1,3] x) => (float[1,2] y) { t = Transpose(w) ["/fc/MatMul"] y = MatMul(x, t) }',
        {"w": ramp(2, 3)},
    )

    assert scope_of(audit(tmp_path, proto), "w") == ("fc", "name:node-path")


def test_tensor_without_name_and_readers_without_scope_has_none(tmp_path: Path) -> None:
    found = entry(audit(tmp_path, matmul("w")), "w")

    assert (found.scope, found.scoped_by, found.has_scope) == ("", "none", False)


def test_scales_of_a_dynamically_quantized_weight_are_where_the_weight_is(tmp_path: Path) -> None:
    proto = text_model(
        """g (float[1,4] x) => (float[1,4] y) {
            q, s, z = DynamicQuantizeLinear(x)
            p = MatMulInteger(q, "fc.weight_quantized", z, "fc.weight_zero_point")
            f = Cast<to=1>(p) m = Mul(s, "fc.weight_scale") y = Mul(f, m)
        }""",
        quantized("fc.weight", noise(4, 4)),
    )

    ledger = audit(tmp_path, proto)

    assert {scope_of(ledger, tensor.tensor.name)[0] for tensor in ledger.entries} == {"fc"}


def test_scales_of_a_nameless_weight_are_where_the_weight_is(tmp_path: Path) -> None:
    proto = text_model(
        """g (float[1,4] x) => (float[1,4] y) {
            q, s, z = DynamicQuantizeLinear(x)
            ["/fc/MatMul_quant"] p = MatMulInteger(q, w_quantized, z, w_zero_point)
            f = Cast<to=1>(p) m = Mul(s, w_scale) y = Mul(f, m)
        }""",
        quantized("w", noise(4, 4)),
    )

    ledger = audit(tmp_path, proto)

    assert scope_of(ledger, "w_quantized") == ("fc", "name:node-path")
    assert scope_of(ledger, "w_scale") == scope_of(ledger, "w_zero_point") == ("fc", "structure:scale")


def test_zero_point_of_two_weights_is_in_what_they_share(tmp_path: Path) -> None:
    weights = {**quantized("enc.a.weight", noise(4, 4)), **quantized("enc.b.weight", noise(4, 4, seed=1))}
    proto = text_model(
        """g (float[1,4] x) => (float[1,4] y) {
            a = DequantizeLinear("enc.a.weight_quantized", "enc.a.weight_scale", zero) h = MatMul(x, a)
            b = DequantizeLinear("enc.b.weight_quantized", "enc.b.weight_scale", zero) y = MatMul(h, b)
        }""",
        {**weights, "zero": np.array(0, np.int8)},
    )

    assert scope_of(audit(tmp_path, proto), "zero") == ("enc", "structure:scale")


# the neighbourhood; more in test_neighbours.py


def test_nameless_weight_is_of_the_module_of_its_bias(tmp_path: Path) -> None:
    proto = text_model(
        'g (float[1,3] x) => (float[1,2] y) { h = MatMul(x, val_47) y = Add(h, "enc.query.bias") }',
        {"val_47": ramp(3, 2), "enc.query.bias": ramp(2)},
    )

    assert scope_of(audit(tmp_path, proto), "val_47") == ("enc.query", "structure:product-and-bias")


def test_nameless_bias_is_of_the_module_of_its_weight(tmp_path: Path) -> None:
    proto = text_model(
        'g (float[1,3] x) => (float[1,2] y) { h = MatMul(x, "enc.query.weight") y = Add(val_48, h) }',
        {"enc.query.weight": ramp(3, 2), "val_48": ramp(2)},
    )

    assert scope_of(audit(tmp_path, proto), "val_48") == ("enc.query", "structure:product-and-bias")


def test_nameless_tensor_beside_a_named_one_is_of_its_module(tmp_path: Path) -> None:
    proto = text_model(
        'g (float[1,3,4,4] x) => (float[1,2,4,4] y) { y = Conv(x, val_1, "conv.bias") }',
        {"val_1": ramp(2, 3, 1, 1), "conv.bias": ramp(2)},
    )

    assert scope_of(audit(tmp_path, proto), "val_1") == ("conv", "structure:own-weights")


TIED = """g (int64[n] ids) => (float[n,50] y) {
    h = Gather("wte.weight", ids) r = Relu(h) y = MatMul(r, head)
}"""


def tied() -> dict[str, Floats]:
    table = noise(50, 8)
    return {"wte.weight": table, "head": table.T.copy()}


def test_copy_without_other_evidence_is_where_its_original_is(tmp_path: Path) -> None:
    assert scope_of(audit(tmp_path, text_model(TIED, tied())), "head") == ("wte", "content:copy")


def test_copy_that_is_read_in_a_module_stays_there(tmp_path: Path) -> None:
    proto = text_model(TIED.replace("y = MatMul", '["/lm_head/MatMul"] y = MatMul'), tied())

    assert scope_of(audit(tmp_path, proto), "head") == ("lm_head", "name:node-path")


def test_nameless_weight_between_two_modules_is_in_what_they_share(tmp_path: Path) -> None:
    proto = text_model(
        """g (float[1,3] x) => (float[1,3] y) {
            a = Mul(x, "layer.1.norm.weight") h = MatMul(a, val_1) y = Mul(h, "layer.1.post.weight")
        }""",
        {"layer.1.norm.weight": ramp(3), "val_1": ramp(3, 3), "layer.1.post.weight": ramp(3, start=5)},
    )

    assert scope_of(audit(tmp_path, proto), "val_1") == ("layer.1", "structure:between")


def test_evidence_of_names_goes_before_that_of_neighbours(tmp_path: Path) -> None:
    proto = text_model(
        'g (float[1,3] x) => (float[1,2] y) { ["/fc/MatMul"] h = MatMul(x, w) y = Add(h, "other.bias") }',
        {"w": ramp(3, 2), "other.bias": ramp(2)},
    )

    assert scope_of(audit(tmp_path, proto), "w") == ("fc", "name:node-path")


# nodes


def test_scopes_of_nodes_by_neighbours_are_kept_apart_from_those_they_tell(tmp_path: Path) -> None:
    proto = text_model(
        'g (float[1,3] x) => (float[1,2] y) { ["/a/Relu"] r = Relu(x) h = MatMul(r, w) y = Add(h, "fc.bias") }',
        {"w": ramp(3, 2), "fc.bias": ramp(2)},
    )

    ledger = audit(tmp_path, proto)

    assert ledger.traced_scopes == {((), 0): "a"}
    assert ledger.node_scopes == {((), 0): "a", ((), 1): "fc", ((), 2): "fc"}
