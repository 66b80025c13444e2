"""A file of another model of the family is recognized by the sizes that it must have."""

from __future__ import annotations

from dataclasses import replace

import pytest
from formulas.sides import side_of, tiny_formula

from analyzer.formulas.counting import count_config
from analyzer.formulas.family import family_names
from analyzer.formulas.reasons import NO_TERM, Sibling, find_reasons, find_sibling
from analyzer.formulas.record import Certainty, Formula
from exporter.presets import preset_config


def preset(name: str, model_class: str | None = None) -> Formula:
    formula = count_config(preset_config(name), model_class)
    assert formula is not None
    return formula


@pytest.mark.parametrize(
    ("name", "other", "sizes"),
    [
        ("bert-large-uncased", "bert-base-uncased", {"hidden_size": 768, "num_hidden_layers": 12}),
        ("gpt2-xl", "gpt2", {"n_embd": 768, "n_layer": 12}),
        ("t5-small", "t5-base", {"d_model": 768, "d_ff": 3072, "num_layers": 12, "num_decoder_layers": 12}),
        ("whisper-large-v2", "whisper-tiny", {"d_model": 384, "encoder_layers": 4, "decoder_layers": 4}),
        (
            "vit-huge-patch14-224-in21k",
            "vit-base-patch16-224-in21k",
            {"hidden_size": 768, "num_hidden_layers": 12},
        ),
        ("Llama-2-70b-hf", "Llama-2-7b-hf", {"hidden_size": 4096, "num_hidden_layers": 32}),
    ],
)
def test_the_sizes_of_another_published_model_are_found(name: str, other: str, sizes: dict[str, int]) -> None:
    formula, theirs = preset(name), preset(other)
    sibling = find_sibling(formula, side_of(theirs).counts)
    assert sibling is not None
    assert sibling.changes.items() >= sizes.items()
    again = count_config(preset_config(name), sibling.class_name, sibling.changes)
    assert again is not None
    assert side_of(again).counts == side_of(theirs).counts


def test_class_and_sizes_may_both_be_others() -> None:
    formula, theirs = (
        preset("bert-large-uncased", "BertForMaskedLM"),
        preset("bert-base-uncased", "BertModel"),
    )
    reasons = find_reasons(formula, side_of(theirs))
    assert {reason.certainty for reason in reasons} == {Certainty.EXPLAINED}
    (sentence,) = {reason.sentence for reason in reasons}
    assert sentence == (
        "another model of the family: BertModel with hidden_size = 768, num_hidden_layers = 12, "
        "intermediate_size = 3072"
    )
    assert sum(reason.elements for reason in reasons) == theirs.total - formula.total


def test_its_own_class_goes_before_another_that_would_do() -> None:
    sibling = find_sibling(preset("Qwen3-8B"), side_of(preset("Qwen3-4B")).counts)
    assert sibling is not None
    assert sibling.class_name == "Qwen3ForCausalLM"
    assert sibling.changes == {"tie_word_embeddings": True, "hidden_size": 2560, "intermediate_size": 9728}


def test_counts_that_no_sizes_give_are_of_no_sibling() -> None:
    formula = tiny_formula("bert", "BertModel")
    counts = dict(side_of(formula).counts)
    counts["blocks/self-attention"] += 1
    assert find_sibling(formula, counts) is None


@pytest.mark.parametrize("key", family_names())
def test_a_model_is_its_own_sibling(key: str) -> None:
    formula = tiny_formula(key)
    assert find_sibling(formula, side_of(formula).counts) == Sibling(formula.class_name, {})


def test_names_of_another_family_are_recognized() -> None:
    names = {f"transformer.h.{i}.attn.c_attn.weight": 100 for i in range(12)}
    formula = preset("roberta-base")
    nameless = replace(side_of(formula, unmatched=names), counts={}, vectors={})
    (reason_of_names,) = [reason for reason in find_reasons(formula, nameless) if reason.part == NO_TERM]
    assert (
        reason_of_names.sentence == "named like those of GPT-2, not of RoBERTa; name the config of that model"
    )
