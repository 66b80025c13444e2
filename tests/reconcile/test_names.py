"""Names that differ by one prefix."""

from __future__ import annotations

import numpy as np
import pytest
from models import lines_of, manifest_of, parameters_of, ramp, reconcile, text_model

from analyzer.reconciliation.names import align


def test_names_that_pytorch_knows_stay():
    aligned = align(["fc.weight"], ["fc.weight"])

    assert aligned("fc.weight") == "fc.weight"
    assert aligned("other.weight") is None


@pytest.mark.parametrize("prefix", ["model.", "base_model.model.", "a.b.c."])
def test_wrappers_prefix_is_dropped(prefix):
    known = ["fc.weight", "fc.bias"]

    aligned = align([prefix + name for name in known], known)

    assert [aligned(prefix + name) for name in known] == known
    assert aligned.module(f"{prefix}fc") == "fc"


def test_a_prefix_has_at_most_three_parts():
    known = ["fc.weight", "fc.bias"]

    assert align(["a.b.c.d.fc.weight", "a.b.c.d.fc.bias"], known).strip == ""


def test_prefix_of_the_whole_model_is_put_before_the_names_of_its_body():
    known = ["bert.embeddings.weight", "bert.pooler.bias", "cls.bias"]

    aligned = align(["embeddings.weight", "pooler.bias"], known)

    assert aligned("embeddings.weight") == "bert.embeddings.weight"
    assert aligned.module("pooler") == "bert.pooler"


def test_the_prefix_of_most_names_wins():
    known = ["fc.weight", "fc.bias", "head.weight"]

    aligned = align(["model.fc.weight", "model.fc.bias", "odd.head.weight"], known)

    assert aligned.strip == "model."
    assert aligned("odd.head.weight") is None


def test_name_that_pytorch_knows_is_not_stripped():
    known = ["model.fc.weight", "fc.weight", "fc.bias"]

    aligned = align(["model.fc.weight", "model.fc.bias"], known)

    assert aligned("model.fc.weight") == "model.fc.weight"
    assert aligned("model.fc.bias") == "fc.bias"


@pytest.mark.parametrize("prefix", ["net/", "net_", "ConvBnFusion_W_", "a:b::"])
def test_what_a_tool_puts_before_every_name_is_dropped_and_no_module_with_it(prefix):
    known = ["conv.weight", "fc.bias", "layer1.conv.weight", "layer2.conv.weight", "layer2.0.conv.weight"]

    aligned = align([prefix + name for name in known], known)

    assert [aligned(prefix + name) for name in known] == known


def test_of_prefixes_that_explain_as_many_names_the_shortest_is_taken():
    known = ["conv.weight", "layer2.conv.weight"]

    assert align(["net/layer2.conv.weight"], known)("net/layer2.conv.weight") == "layer2.conv.weight"


def test_order_of_names_does_not_matter():
    known = ["fc.weight", "fc.bias"]
    names = ["model.fc.weight", "a.fc.bias", "model.fc.bias", "a.fc.weight"]

    assert align(names, known) == align(names[::-1], known)


def test_root_of_a_body_is_the_prefix_itself():
    assert align(["pooler.bias"], ["bert.pooler.bias"]).module("") == "bert"


def test_root_of_a_wrapper_is_the_root():
    assert align(["model.fc.bias"], ["fc.bias"]).module("model") == ""


def test_wrapped_export_balances(tmp_path):
    weights = {"fc.weight": ramp(2, 2), "out.weight": ramp(2, 2, start=9)}
    proto = text_model(
        'g (float[1,2] x) => (float[1,2] y) { h = MatMul(x, "model.fc.weight") y = MatMul(h, "model.out.weight") }',
        {f"model.{name}": array for name, array in weights.items()},
    )

    result = reconcile(tmp_path, proto, manifest_of(*parameters_of(weights)))

    assert result.balanced
    assert set(lines_of(result).values()) == {"renamed"}


def test_merged_graph_balances_though_a_block_has_names_of_the_root(tmp_path):
    weights = {"fc.weight": ramp(2, 2), "block.fc.weight": ramp(2, 2, start=9)}
    proto = text_model(
        'g (float[1,2] x) => (float[1,2] y) { h = MatMul(x, "net/fc.weight") y = MatMul(h, "net/block.fc.weight") }',
        {f"net/{name}": array for name, array in weights.items()},
    )

    result = reconcile(tmp_path, proto, manifest_of(*parameters_of(weights)))

    assert result.balanced
    assert set(lines_of(result).values()) == {"renamed"}


def test_of_equally_good_prefixes_always_the_same_is_taken():
    names = [f"block.{i}.weight" for i in range(4)]
    known = [f"{side}.{name}" for side in ("decoder", "encoder") for name in names]

    assert {align(names, order).add for order in (known, known[::-1], sorted(known, key=hash))} == {
        "encoder."
    }


# tools' prefixes without a dot, and prefixes of the parts of a merged file


@pytest.mark.parametrize("prefix", ["enc_", "m1/", "m1::", "part-"])
def test_prefix_of_a_tool_needs_no_dot(prefix):
    known = ["fc.weight", "fc.bias", "norm.weight"]

    aligned = align([prefix + name for name in known], known)

    assert [aligned(prefix + name) for name in known] == known


def test_each_part_of_a_merged_file_has_its_prefix():
    known = [f"{side}.fc.{leaf}" for side in ("decoder", "encoder") for leaf in ("weight", "bias")]
    names = [f"{side}_fc.{leaf}" for side in ("dec", "enc") for leaf in ("weight", "bias")]

    aligned = align(names, known)

    assert sorted({aligned(name) for name in names}) == sorted(known)


def test_two_parts_of_a_merged_file_are_never_one_model():
    known = ["fc.weight", "fc.bias"]

    aligned = align(["a_fc.weight", "a_fc.bias", "b_fc.weight", "b_fc.bias"], known)

    assert {aligned("a_fc.weight"), aligned("b_fc.weight")} == {"fc.weight", None}


def test_one_name_makes_no_prefix():
    assert align(["enc_fc.weight"], ["fc.weight", "fc.bias"])("enc_fc.weight") is None


@pytest.mark.parametrize("head", ["net.", "trainer.model.", "a.b.c.d."])
def test_what_a_trainer_wrapped_is_found_at_any_depth(head):
    names = ["fc.weight", "fc.bias", "norm.weight"]

    aligned = align(names, [head + name for name in names])

    assert [aligned(name) for name in names] == [head + name for name in names]


ONES, ZEROS = np.ones(4, np.float32), np.zeros(4, np.float32)
MERGED = {"encoder.fc.weight": ramp(4, 4), "encoder.fc.bias": ZEROS, "encoder.norm.weight": ONES}
MERGED |= {"decoder.fc.weight": ramp(4, 4, start=50), "decoder.fc.bias": ZEROS, "decoder.norm.weight": ONES}


def merged(**changed):
    stored = {name.replace("encoder.", "enc_").replace("decoder.", "dec_"): a for name, a in MERGED.items()}
    stored |= {name.replace("__", "."): array for name, array in changed.items()}
    nodes = " ".join(
        f'{part}1 = MatMul(x, "{part}_fc.weight") {part}2 = Add({part}1, "{part}_fc.bias") '
        f'{part} = Mul({part}2, "{part}_norm.weight")'
        for part in ("enc", "dec")
    )
    return text_model(f"g (float[1,4] x) => (float[1,4] enc, float[1,4] dec) {{ {nodes} }}", stored)


def test_merged_file_balances_by_its_prefixes_and_nothing_else_does(tmp_path):
    """Biases of zeros and gains of ones are matched by name alone, and must have PyTorch's values."""
    manifest = manifest_of(*parameters_of(MERGED))

    result = reconcile(tmp_path, merged(), manifest)
    turned = reconcile(tmp_path, merged(dec_norm__weight=2 * ONES), manifest)
    crossed = reconcile(tmp_path, merged(dec_fc__weight=MERGED["encoder.fc.weight"]), manifest)

    assert result.balanced
    assert set(lines_of(result).values()) == {"renamed"}
    assert not turned.balanced
    assert not crossed.balanced
