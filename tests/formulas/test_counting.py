"""Counts add up, grow with the config, and are sizes or refused, for every class of every family."""

from __future__ import annotations

import json
from typing import Any

import pytest
from formulas.sides import tiny_config
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.errors import FormulaError
from analyzer.formats.json import render_json
from analyzer.formulas.counting import choose_class, count_config, count_parts, settle_fields
from analyzer.formulas.family import Family, Field, family_names, load_families, load_family
from analyzer.formulas.language import FUNCTIONS
from analyzer.formulas.record import Checked, Formula, FormulaReport
from analyzer.formulas.rows import cache_bytes, weigh

CLASSES = [(key, name) for key in family_names() for name in load_family(key).classes]

every_class = pytest.mark.parametrize(("key", "name"), CLASSES)
every_family = pytest.mark.parametrize("key", family_names())


def tiny(key: str, name: str, **fields: Any) -> dict[str, Any]:
    """Return the config of the family's smallest model, with some fields changed."""
    return {**tiny_config(key, name), **fields}


def counted(config: dict[str, Any], **options: Any) -> Formula:
    formula = count_config(config, **options)
    assert formula is not None
    return formula


def check_sums(formula: Formula) -> None:
    """Check the identities of a count, which hold for every config."""
    assert formula.total == sum(term.value for term in formula.terms)
    assert 0 <= formula.active <= formula.total
    assert len({part.key for part in formula.parts}) == len(formula.parts)
    for term in formula.terms:
        assert term.value == sum(part.times * part.each for part in term.parts)
        assert 0 <= term.active <= term.value
        assert term.uses >= 0
    for part in formula.parts:
        assert 0 <= part.vectors <= part.each
        assert 0 <= part.active <= part.value
        assert part.matrix_elements + part.vector_elements == part.value


# every class


@every_class
def test_the_total_is_the_sum_of_its_terms_and_parts(key: str, name: str) -> None:
    formula = counted(tiny(key, name))

    check_sums(formula)
    assert formula.total > 0
    assert (formula.key, formula.class_name) == (key, name)


@every_class
def test_the_expressions_of_the_json_evaluate_to_its_numbers(key: str, name: str) -> None:
    document = json.loads(render_json(FormulaReport(Checked(counted(tiny(key, name))))))
    fields = {each["field"]: _hashed(each["value"]) for each in document["fields"]}

    def evaluate(text: str) -> Any:
        return eval(text, {"__builtins__": {}, **FUNCTIONS}, fields)

    assert evaluate(document["expression"]) == document["total"] == sum(t["value"] for t in document["terms"])
    assert evaluate(document["active_expression"]) == document["active"]
    for term in document["terms"]:
        assert evaluate(term["expression"]) == term["value"] == sum(part["value"] for part in term["parts"])


def _hashed(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


@every_class
def test_the_settled_expressions_of_a_part_evaluate_to_its_numbers(key: str, name: str) -> None:
    formula = counted(tiny(key, name))
    for part in formula.parts:
        assert part.expression is not None
        assert part.expression.count(formula.values) == part.each
        times = 1 if part.times_expression is None else part.times_expression.count(formula.values)
        active = part.expression if part.active_expression is None else part.active_expression
        assert times == part.times
        assert times * active.count(formula.values) == part.active


@every_class
def test_parts_alone_have_the_values_that_the_formula_has(key: str, name: str) -> None:
    family, config = load_family(key), tiny(key, name)
    chosen = choose_class(family, config)
    assert chosen is not None
    values = {field.name: field.value for field in settle_fields(family, config, chosen)}

    assert count_parts(family, values, chosen) == {part.key: part.value for part in counted(config).parts}


@every_class
def test_more_of_any_size_never_counts_less(key: str, name: str) -> None:
    family, formula = load_family(key), counted(tiny(key, name))
    for field in _sizes(family):
        if field.name in family.classes[name].fixed or field.name in _DIVISORS:
            continue
        value = formula.values[field.name]
        assert isinstance(value, int)
        for more in (1, 10):
            larger = counted(tiny(key, name), changes={field.name: value + more})
            assert larger.total >= formula.total, field.name
            assert larger.active >= formula.active or field.role == "experts", field.name


_DIVISORS = {"num_attention_heads", "patch_size", "num_hidden_groups"}
"""Fields that divide another size, so that a larger value may give a smaller count."""


def _sizes(family: Family) -> list[Field]:
    return [field for field in family.fields.values() if field.symbol is not None]


@every_class
def test_a_layer_more_is_a_block_more(key: str, name: str) -> None:
    family, formula = load_family(key), counted(tiny(key, name))
    layers = [field.name for field in _sizes(family) if field.role == "layers"]
    assert layers
    for field in layers:
        value = formula.values[field]
        assert isinstance(value, int)
        totals = [counted(tiny(key, name), changes={field: value + more}).total for more in range(4)]
        assert totals == sorted(totals)


@pytest.mark.parametrize(
    ("key", "name"), [case for case in CLASSES if "tie_word_embeddings" in load_family(case[0]).fields]
)
def test_flipping_the_tie_moves_the_output_matrix_and_nothing_else(key: str, name: str) -> None:
    family = load_family(key)
    tied = counted(tiny(key, name, tie_word_embeddings=True))
    untied = counted(tiny(key, name, tie_word_embeddings=False))
    before, after = ({part.key: part.value for part in each.parts} for each in (tied, untied))
    moved = {part: after.get(part, 0) - before.get(part, 0) for part in {*before, *after}}
    by_key = {part.key: part for part in family.parts}
    names = {part.tied_to for part in family.parts}

    # Parts that grow are documented as tied to another part, or are that part: tied tables are stored once.
    for part, difference in moved.items():
        assert difference >= 0
        if difference:
            assert by_key[part].tied_to is not None or by_key[part].name in names
    matrices = [key for key, part in by_key.items() if part.tied_to and not part.vectors.count(untied.values)]
    assert untied.total - tied.total >= sum(after.get(part, 0) for part in matrices if part not in before)


@pytest.mark.parametrize(
    ("config", "difference"),
    [
        ({"model_type": "bert", "architectures": ["BertForMaskedLM"]}, 30_522 * 768 + 30_522),
        ({"model_type": "bert", "architectures": ["BertModel"]}, 0),
        ({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}, 50_257 * 768),
        ({"model_type": "llama", "architectures": ["LlamaForCausalLM"]}, 32_000 * 4096),
        ({"model_type": "t5", "architectures": ["T5ForConditionalGeneration"]}, 0),  # always tied
        ({"model_type": "vit", "architectures": ["ViTModel"]}, 0),
    ],
)
def test_an_untied_head_is_an_output_matrix_more(config: dict[str, Any], difference: int) -> None:
    tied, untied = (counted({**config, "tie_word_embeddings": is_tied}) for is_tied in (True, False))

    assert untied.total - tied.total == difference


# arbitrary configs

NUMBERS = st.integers(0, 40) | st.sampled_from([1 << 20, 1 << 53])
JUNK: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, -1) | st.sampled_from([10**30, 10**320, -(10**99)]),
    st.floats(),
    st.text(max_size=8),
    st.lists(st.integers(-1, 9) | st.text(max_size=2) | st.none() | st.lists(st.integers()), max_size=3),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
)


@st.composite
def configs(draw: st.DrawFn, key: str, junk: st.SearchStrategy[Any] | None = None) -> dict[str, Any]:
    """Draw a config of the family with any values, for some of its fields under any of their names, plus junk."""
    family = load_family(key)
    config: dict[str, Any] = {
        "model_type": draw(st.sampled_from(family.model_types)),
        "architectures": [draw(st.sampled_from(sorted(family.classes)))],
    }
    for field in family.fields.values():
        right = st.booleans() if isinstance(field.default, bool) else NUMBERS
        if isinstance(field.default, str):
            right = st.sampled_from([field.default, "gated-gelu", "relu", "\x1b[31m"])
        elif isinstance(field.default, tuple):
            right = st.lists(NUMBERS, max_size=4)
        values = [right, right] if junk is None else [right, right, junk]
        for name in draw(
            st.sampled_from([(), (field.name,), (field.name,), *((each,) for each in field.aliases)])
        ):
            config[name] = draw(st.one_of(values))
    if draw(st.booleans()):
        config["id2label"] = draw(st.none() | st.just({"0": "a"}) | (st.none() if junk is None else junk))
    return config


def attempt(config: dict[str, Any]) -> Formula | str:
    """Return the count, or the error's message."""
    try:
        return counted(config, source="here")
    except FormulaError as error:
        return str(error)


@pytest.mark.slow
@every_family
@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_random_sizes_give_a_count_or_say_what_is_wrong(key: str, data: st.DataObject) -> None:
    found = attempt(data.draw(configs(key)))
    if isinstance(found, Formula):
        check_sums(found)
        _check_bytes(found)
    else:
        assert found.startswith("here: ")
        assert any(name in found for name in load_family(key).fields)


def _check_bytes(formula: Formula) -> None:
    for footprint in weigh(formula):
        assert all(nbytes >= 0 for _, nbytes in footprint.terms)
    if formula.cache is not None:
        cache = cache_bytes(formula.cache)
        assert min(cache.nbytes, cache.kept, cache.tokens, cache.source_tokens, cache.token) >= 0


@pytest.mark.slow
@every_family
@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_junk_gives_a_count_or_a_short_message_that_names_the_field(key: str, data: st.DataObject) -> None:
    config = data.draw(configs(key, JUNK))
    found = attempt(config)
    if isinstance(found, Formula):
        check_sums(found)
        _check_bytes(found)
    else:
        assert found.startswith("here: ")
        assert len(found) < 600
        assert any(name in found for name in (*config, *load_family(key).fields))


@every_family
def test_huge_sizes_are_exact(key: str) -> None:
    family = load_family(key)
    name = next(iter(family.classes))
    sizes = {
        field.name: (1 << 53) - number
        for number, field in enumerate(_sizes(family))
        if field.name not in family.classes[name].fixed and field.name not in _DIVISORS
    }
    formula = counted({"model_type": family.model_types[0], "architectures": [name], **sizes})

    check_sums(formula)
    for part in formula.parts:
        assert part.expression is not None
        text = part.expression.text
        assert part.each == eval(text, {"__builtins__": {}, **FUNCTIONS}, dict(formula.values))


# configs without a closed form, requested classes, and changed fields


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"model_type": "resnet"},
        {"model_type": "BERT"},
        {"model_type": "bert", "architectures": ["BertForSomethingElse"]},
        {"model_type": "bert", "architectures": ["GPT2Model"]},
        {"architectures": ["ResNetModel"]},
        {"architectures": []},
    ],
)
def test_what_has_no_closed_form_has_no_formula(config: dict[str, Any]) -> None:
    assert count_config(config) is None


def test_a_class_is_chosen_by_its_name_or_that_of_an_auto_class() -> None:
    config = {"model_type": "bert", "architectures": ["BertForMaskedLM"]}

    assert counted(config, model_class="AutoModel").class_name == "BertModel"
    assert counted(config, model_class="BertForQuestionAnswering").class_name == "BertForQuestionAnswering"
    assert counted({"model_type": "bert"}).class_name == "BertModel"
    assert count_config(config, model_class="AutoModelForImageClassification") is None


def test_an_architecture_alone_names_its_family() -> None:
    for family in load_families().values():
        for name in family.classes:
            assert counted({"architectures": [name]}).key == family.key


def test_bert_base_chinese_is_the_sum_of_three_terms() -> None:
    formula = counted({"model_type": "bert", "architectures": ["BertForMaskedLM"], "vocab_size": 21_128})

    assert {term.name: term.value for term in formula.terms} == {
        "embeddings": 16_622_592,
        "blocks": 85_054_464,
        "masked LM head": 613_256,
    }
    assert formula.total == 102_290_312


def test_changes_go_before_the_config_and_are_remembered() -> None:
    formula = counted({"model_type": "bert", "num_hidden_layers": 6}, changes={"num_hidden_layers": 3})
    (layers,) = (field for field in formula.fields if field.name == "num_hidden_layers")

    assert (layers.value, layers.origin.value, formula.changes) == (3, "set", {"num_hidden_layers": 3})


def test_a_change_to_what_is_no_size_is_refused() -> None:
    with pytest.raises(FormulaError, match="here: num_hidden_layers is 'six', which is not a size"):
        counted({"model_type": "bert"}, changes={"num_hidden_layers": "six"}, source="here")


def test_names_of_before_are_the_classes_of_today() -> None:
    for model_type, was, is_now in (
        ("t5", "T5WithLMHeadModel", "T5ForConditionalGeneration"),
        ("llama", "LLaMAForCausalLM", "LlamaForCausalLM"),
        ("bert", "TFBertForMaskedLM", "BertForMaskedLM"),
        ("gpt2", "FlaxGPT2LMHeadModel", "GPT2LMHeadModel"),
    ):
        formula = count_config({"model_type": model_type, "architectures": [was]})
        assert formula is not None
        assert formula.class_name == is_now


def test_what_is_saved_beside_the_activation_decides_whether_it_is_gated() -> None:
    def total(**fields: Any) -> int:
        formula = count_config({"model_type": "t5", **fields})
        assert formula is not None
        return formula.total

    plain, gated = total(), total(feed_forward_proj="gated-gelu")
    assert total(feed_forward_proj="gated-gelu", is_gated_act=False) == plain
    assert total(feed_forward_proj="relu", is_gated_act=True) == gated == plain + 12 * 512 * 2048
