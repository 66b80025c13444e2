"""Reasons that are found for every kind of difference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from formulas.sides import side_of, tiny_config, tiny_formula

from analyzer.formulas.counting import choose_class, settle_fields
from analyzer.formulas.family import family_names, load_family
from analyzer.formulas.language import Value
from analyzer.formulas.reasons import NO_TERM, find_reasons
from analyzer.formulas.record import Certainty, Formula, Reason, Side


def _reasons(formula: Formula, side: Side) -> dict[str, Reason]:
    reasons = {reason.part: reason for reason in find_reasons(formula, side)}
    assert sum(reason.elements for reason in reasons.values()) == side.total - formula.total
    return reasons


def _counts(side: Side, changes: Mapping[str, int]) -> Side:
    return replace(side, counts={**side.counts, **changes})


def test_no_reason_is_reported_for_what_agrees() -> None:
    formula = tiny_formula("bert", "BertForMaskedLM")
    assert find_reasons(formula, side_of(formula)) == ()


def test_a_missing_pooler_is_named() -> None:
    formula, other = tiny_formula("bert", "BertModel"), tiny_formula("bert", "BertForMaskedLM")
    file = side_of(formula)
    without = replace(file, counts={key: n for key, n in file.counts.items() if key != "pooler/pooler"})
    (reason,) = find_reasons(formula, without)
    assert (reason.part, reason.sentence) == ("pooler/pooler", "missing: the file has none")
    reasons = _reasons(formula, side_of(other))
    assert reasons["pooler/pooler"].sentence == "missing, as in BertForMaskedLM"
    assert reasons["masked LM head/head transform"].group == "cls.predictions.transform.dense"
    assert reasons["masked LM head/head transform"].sentence == "present, as in BertForMaskedLM"


def test_a_pooler_too_many_is_named() -> None:
    formula, base = tiny_formula("bert", "BertForMaskedLM"), tiny_formula("bert", "BertModel")
    pooler = side_of(base).counts["pooler/pooler"]
    (reason,) = find_reasons(formula, _counts(side_of(formula), {"pooler/pooler": pooler}))
    assert (reason.elements, reason.sentence) == (pooler, "present in the file; the formula has none")


def test_an_untied_head_is_named() -> None:
    formula = tiny_formula("gpt2", "GPT2LMHeadModel")
    untied = tiny_formula("gpt2", "GPT2LMHeadModel", {"tie_word_embeddings": False})
    (reason,) = find_reasons(formula, side_of(untied))
    assert reason.part == "LM head/output matrix"
    assert "the head is untied" in reason.sentence
    assert "tie_word_embeddings = false, where the config has true" in reason.sentence


def test_a_head_that_the_class_always_ties_can_be_untied_too() -> None:
    formula = tiny_formula("t5", "T5ForConditionalGeneration")
    words = side_of(formula).counts["embeddings/word embeddings"]
    (reason,) = find_reasons(formula, _counts(side_of(formula), {"LM head/output matrix": words}))
    assert reason.sentence.startswith(
        "the head is untied: its output matrix is stored beside the word embeddings"
    )


def test_a_tied_head_is_named_where_the_config_has_two_matrices() -> None:
    formula = tiny_formula("llama", "LlamaForCausalLM", config={"tie_word_embeddings": False})
    tied = tiny_formula("llama", "LlamaForCausalLM", config={"tie_word_embeddings": True})
    (reason,) = find_reasons(formula, side_of(tied))
    assert reason.sentence.startswith("the head is tied: its output matrix is that of the word embeddings")


@pytest.mark.parametrize(
    ("key", "name", "config", "change", "phrase"),
    [
        ("bert", "BertForMaskedLM", {"vocab_size": 522}, {"vocab_size": 528}, "from 522 to 528, a multiple of 16"),
        ("bert", "BertForMaskedLM", {"vocab_size": 522}, {"vocab_size": 576}, "from 522 to 576, a multiple of 64"),
        ("bert", "BertModel", {"vocab_size": 522}, {"vocab_size": 500}, "a vocabulary of 500, 22 fewer"),
        ("bert", "BertModel", {"max_position_embeddings": 40}, {"max_position_embeddings": 42}, "42 positions, 2 more"),
        ("llama", "LlamaForCausalLM", {"num_hidden_layers": 4}, {"num_hidden_layers": 3}, "3 layers, 1 fewer"),
        ("mixtral", "MixtralForCausalLM", {"num_local_experts": 4}, {"num_local_experts": 3}, "3 experts, 1 fewer"),
        ("bert", "BertModel", {}, {"add_cross_attention": True, "is_decoder": True}, "add_cross_attention = true"),
        ("t5", "T5Model", {"feed_forward_proj": "relu"}, {"feed_forward_proj": "gated-gelu"}, "is_gated_act = true"),
        ("llama", "LlamaModel", {"attention_bias": False}, {"attention_bias": True}, "attention_bias = true"),
        ("opt", "OPTModel", {"enable_bias": True}, {"enable_bias": False}, "enable_bias = false"),
    ],
)  # fmt: skip
def test_a_changed_config_is_found(
    key: str, name: str, config: dict[str, Value], change: dict[str, Value], phrase: str
) -> None:
    formula, other = tiny_formula(key, name, config=config), tiny_formula(key, name, change, config)
    reasons = _reasons(formula, side_of(other))
    assert reasons
    assert all(reason.certainty is Certainty.EXPLAINED for reason in reasons.values())
    assert all(phrase in reason.sentence for reason in reasons.values())


def test_an_image_of_another_size_is_found() -> None:
    sizes = {"image_size": 224, "patch_size": 16}
    formula, other = (
        tiny_formula("vit", "ViTModel", config=sizes),
        tiny_formula("vit", "ViTModel", config={**sizes, "image_size": 384}),
    )
    (reason,) = find_reasons(formula, side_of(other))
    assert reason.part == "embeddings/position embeddings"
    assert reason.sentence == "such as with image_size = 384, where the config has 224"


def test_two_causes_are_told_apart() -> None:
    formula = tiny_formula("gpt2", "GPT2LMHeadModel", config={"vocab_size": 522, "n_layer": 4})
    other = tiny_formula("gpt2", "GPT2LMHeadModel", config={"vocab_size": 528, "n_layer": 2})
    reasons = _reasons(formula, side_of(other))
    assert "padded from 522 to 528" in reasons["embeddings/word embeddings"].sentence
    assert "2 layers, 2 fewer" in reasons["blocks/self-attention"].sentence


def test_experts_that_alone_are_missing_are_counted() -> None:
    formula = tiny_formula("mixtral", "MixtralForCausalLM", config={"num_local_experts": 4})
    experts = side_of(formula).counts["blocks/experts"]
    (reason,) = find_reasons(formula, _counts(side_of(formula), {"blocks/experts": experts * 3 // 4}))
    assert reason.sentence == "3 experts, 1 fewer than the config's 4"


def test_dropped_biases_are_distinguished_from_dropped_weights() -> None:
    formula = tiny_formula("bert", "BertModel")
    file, key = side_of(formula), "blocks/self-attention"
    dropped = file.vectors[key]
    side = replace(
        file,
        counts={**file.counts, key: file.counts[key] - dropped},
        vectors={each: n for each, n in file.vectors.items() if each != key},
    )
    (reason,) = find_reasons(formula, side)
    assert (reason.elements, reason.sentence) == (
        -dropped,
        "all vectors are missing: the biases were dropped",
    )


def test_merged_vectors_point_to_reconcile() -> None:
    formula = tiny_formula("bert", "BertModel")
    file, key = side_of(formula), "blocks/feed-forward"
    side = replace(
        file,
        counts={**file.counts, key: file.counts[key] - 8},
        vectors={**file.vectors, key: file.vectors[key] - 8},
    )
    (reason,) = find_reasons(formula, side)
    assert reason.sentence == "only vectors: an exporter stores equal ones once; `reconcile` shows which"


def test_what_a_reconciliation_knows_goes_first() -> None:
    formula = tiny_formula("bert", "BertModel")
    file, key = side_of(formula), "blocks/feed-forward"
    side = replace(_counts(file, {key: file.counts[key] - 8}), absent={"deduplicated": {key: 8}})
    (reason,) = find_reasons(formula, side)
    expected = "equal to other parameters, which the exporter stored once [deduplicated]"
    assert (reason.part, reason.elements, reason.sentence) == (key, -8, expected)
    assert reason.certainty is Certainty.SETTLED


def test_a_difference_that_nothing_explains_is_reported_as_such() -> None:
    formula = tiny_formula("bert", "BertModel")
    file, key = side_of(formula), "blocks/self-attention"
    (reason,) = find_reasons(formula, _counts(file, {key: file.counts[key] - 1}))
    assert (reason.sentence, reason.certainty) == ("nothing explains it", Certainty.UNEXPLAINED)


def test_what_belongs_to_no_term_is_reported() -> None:
    formula = tiny_formula("bert", "BertModel")
    (reason,) = find_reasons(formula, side_of(formula, unmatched={"adapter.weight": 64}))
    assert (reason.part, reason.elements, reason.certainty) == (NO_TERM, 64, Certainty.UNEXPLAINED)


def test_tensors_without_names_that_just_fill_what_is_short_leave_it_undecided() -> None:
    formula = tiny_formula("bert", "BertModel")
    file, key = side_of(formula), "blocks/self-attention"
    short = _counts(side_of(formula, unmatched={"val_1": 100}), {key: file.counts[key] - 100})
    reasons = _reasons(formula, short)
    assert {reason.certainty for reason in reasons.values()} == {Certainty.UNDECIDED}
    longer = _reasons(formula, replace(short, unmatched={"val_1": 101}))
    assert {reason.certainty for reason in longer.values()} == {Certainty.UNEXPLAINED}


def test_no_layer_is_called_missing_where_names_are_missing() -> None:
    formula = tiny_formula("llama", "LlamaForCausalLM")
    blocks = {key: n for key, n in side_of(formula).counts.items() if key.startswith("blocks/")}
    file = side_of(formula, unmatched={"val_1": sum(blocks.values())})
    nameless = replace(file, counts={key: n for key, n in file.counts.items() if key not in blocks})
    assert all("layers" not in reason.sentence for reason in find_reasons(formula, nameless))


def _changeable(key: str, name: str) -> list[str]:
    """Names of fields whose change can be named: those with a role, and flags."""
    family = load_family(key)
    fixed = family.classes[name].fixed
    nameable = [
        each for each in family.fields.values() if each.role is not None or isinstance(each.default, bool)
    ]
    return [each.name for each in nameable if each.name not in fixed]


CHANGES = [
    pytest.param(key, name, field, id=f"{key}-{name}-{field}")
    for key in family_names()
    for name in list(load_family(key).classes)[:2]
    for field in _changeable(key, name)
]


@pytest.mark.parametrize(("key", "name", "field"), CHANGES)
def test_any_one_changed_field_is_explained_in_full(key: str, name: str, field: str) -> None:
    family, config = load_family(key), tiny_config(key, name)
    model_class = choose_class(family, config)
    assert model_class is not None
    values = {each.name: each.value for each in settle_fields(family, config, model_class)}
    value = values[field]
    other = not value if isinstance(value, bool) else int(str(value)) + 1
    formula, changed = tiny_formula(key, name), tiny_formula(key, name, {field: other})
    reasons = _reasons(formula, side_of(changed))
    assert all(reason.certainty is Certainty.EXPLAINED for reason in reasons.values())
