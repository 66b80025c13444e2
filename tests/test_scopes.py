"""Evidence of scopes that exporters leave in names and in metadata of values."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from models import FOLDED_FROM, FX_NODE, INPUT_KIND, ramp, save, text_model

from analyzer.account.ledger import Role
from analyzer.account.scopes import (
    Origin,
    Provenance,
    common_scope,
    is_buffer_name,
    is_dotted,
    known_modules,
    list_of,
    mangle,
    module_of,
    provenance_of,
    read_provenance,
)
from analyzer.read import read_model

NOTHING = Provenance(frozenset(), frozenset())


@pytest.mark.parametrize(
    ("props", "origin"),
    [
        (None, None),
        ({}, None),
        ({INPUT_KIND: "PARAMETER"}, Origin(Role.PARAMETER, ("fc.weight",), "provenance:input-spec")),
        ({INPUT_KIND: "BUFFER"}, Origin(Role.BUFFER, ("fc.weight",), "provenance:input-spec")),
        ({INPUT_KIND: "CONSTANT_TENSOR"}, Origin(Role.CONSTANT, (), "provenance:input-spec")),
        ({INPUT_KIND: "USER_INPUT"}, None),
        (
            {FOLDED_FROM: "['a.weight', 'a.bias']"},
            Origin(Role.PARAMETER, ("a.bias", "a.weight"), "provenance:folded-from"),
        ),
        (
            {FOLDED_FROM: "['val_3', 'a.running_mean']"},
            Origin(Role.BUFFER, ("a.running_mean",), "provenance:folded-from"),
        ),
        (
            {FOLDED_FROM: "['a.position_ids', 'a.weight']"},
            Origin(Role.PARAMETER, ("a.weight",), "provenance:folded-from"),
        ),
        (
            {FOLDED_FROM: "['val_3', 'a.weight', 'slice_1']"},
            Origin(Role.PARAMETER, ("a.weight",), "provenance:folded-with"),
        ),
        (
            {FOLDED_FROM: "['m.full_attention_inv_freq', 'val_4']"},
            Origin(Role.BUFFER, ("m.full_attention_inv_freq",), "provenance:folded-from"),
        ),
        ({FOLDED_FROM: "['val_3', 'val_4']"}, Origin(Role.CONSTANT, (), "provenance:folded-constant")),
        ({FOLDED_FROM: "not a list"}, None),
    ],
)
def test_notes_on_values_show_their_origin(props, origin):
    assert provenance_of("fc.weight", props, NOTHING) == origin


def test_placeholders_of_traced_nodes_decide_what_a_source_is():
    provenance = Provenance(frozenset({"table"}), frozenset({"a_weight"}))

    assert provenance_of("v", {FOLDED_FROM: "['table']"}, provenance).role is Role.PARAMETER
    assert provenance_of("v", {FOLDED_FROM: "['a.weight']"}, provenance).role is Role.BUFFER


def test_traced_nodes_name_the_placeholders_they_read(tmp_path: Path):
    proto = text_model("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    text = "%linear : call_function[target=aten.linear](args = (%x, %p_fc_weight, %b_scale, %c_k))"
    proto.graph.node[0].metadata_props.add(key=FX_NODE, value=text)

    provenance = read_provenance(read_model(save(tmp_path, proto)))

    assert provenance == Provenance(frozenset({"fc_weight"}), frozenset({"scale"}))


def test_file_without_notes_mentions_no_placeholders(tmp_path: Path):
    proto = text_model("g (float[2] x) => (float[2] y) { y = Relu(x) }")

    assert read_provenance(read_model(save(tmp_path, proto))) == NOTHING


@pytest.mark.parametrize(
    ("name", "dotted"),
    [
        ("fc.weight", True),
        ("encoder.layer.0.weight", True),
        ("_a.b", True),
        ("weight", False),
        ("F0::fc.weight", True),
        ("F0::If_0__Inline_0__::a.b", True),
        ("onnx::MatMul_12.3", False),
        ("F0::onnx::MatMul_12.3", False),
        ("p_weight::T10", False),
        ("a.b::T10", False),
        ("::a.b", False),
        ("a:b.c", False),
        ("a..b", False),
        ("a.b ", False),
        ("", False),
    ],
)
def test_state_dict_keys_are_recognised(name, dotted):
    assert is_dotted(name) is dotted


def test_keys_of_a_sequential_model_begin_with_a_number_and_are_recognised():
    assert is_dotted("0.weight")


@pytest.mark.parametrize(
    ("name", "is_buffer"),
    [
        ("bn.running_mean", True),
        ("bn.running_var", True),
        ("bn.num_batches_tracked", True),
        ("embeddings.position_ids", True),
        ("rotary.inv_freq", True),
        ("attn.causal_mask", True),
        ("stft.basis_buffer", True),
        ("fc.weight", False),
        ("fc.bias", False),
        ("bn.weight", False),
    ],
)
def test_registered_buffers_are_known_by_their_last_part(name, is_buffer):
    assert is_buffer_name(name) is is_buffer


@pytest.mark.parametrize(
    ("scopes", "common"),
    [
        ([], ""),
        (["a.b"], "a.b"),
        (["a.b", "a.b"], "a.b"),
        (["a.b.c", "a.b"], "a.b"),
        (["a.b", "a.bc"], "a"),
        (["a", ""], ""),
        (["layer.1", "layer.10"], "layer"),
    ],
)
def test_common_scope_is_the_deepest_module_around_all(scopes, common):
    assert common_scope(scopes) == common


def test_names_are_taken_apart():
    assert (module_of("a.b.weight"), module_of("weight")) == ("a.b", "")
    assert mangle("encoder.layer.0.LayerNorm.weight") == "encoder_layer_0_layernorm_weight"


def test_names_of_tensors_show_all_modules_around_them(tmp_path: Path):
    weights = {"a.b.weight_quantized": ramp(2), "c.bias": ramp(2), "plain": ramp(2), "onnx::Add_1": ramp(2)}

    model = read_model(save(tmp_path, text_model("g (float[2] x) => (float[2] y) { y = Relu(x) }", weights)))

    assert known_modules(model) == {"a", "a.b", "c"}


@pytest.mark.parametrize("text", ["[", "__import__('os')", "3", "", "{'a': 1}", "[" * 500, None])
def test_notes_that_are_no_list_are_not_evaluated_and_say_nothing(text):
    assert list_of(text) is None


@given(st.text(st.sampled_from("aé0_.-/ "), max_size=6))
def test_a_dotted_name_is_words_with_dots_between_them_and_a_letter_somewhere(name):
    first, *others = name.split(".")
    are_words = re.fullmatch(r"\w+", first) and all(re.fullmatch(r"[\w-]+", word) for word in others)

    assert is_dotted(name) is bool(others and are_words and {*name} & {"a", "_"})
