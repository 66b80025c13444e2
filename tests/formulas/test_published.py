"""Published models: the closed form beside PyTorch's census, the published counts, and the page's table."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from documents import ROOT

from analyzer.errors import SourceError
from analyzer.formulas.counting import count_config
from analyzer.formulas.family import (
    Cache,
    Computed,
    Family,
    Field,
    ModelClass,
    Term,
    TermPart,
    family_names,
    load_families,
)
from analyzer.formulas.language import FUNCTIONS
from analyzer.formulas.rows import weigh
from exporter.presets import PRESETS, Published, load_published, preset_config, preset_name, preset_names
from tools.published import (
    classes_of,
    differences,
    formula_of,
    render_page,
    rounds_to,
    table_of,
    take_census,
)

MODELS = load_published()
PAGE = ROOT / "docs" / "evidence" / "formulas.md"
FORMAT = ROOT / "docs" / "reference" / "families.md"
GUIDE = ROOT / "docs" / "formulas.md"
RENAMED = {"fixed": "set"}  # names that differ between the record and the file


@pytest.mark.export
@pytest.mark.parametrize("hub_id", MODELS)
def test_the_closed_form_counts_what_pytorch_counts(hub_id: str) -> None:
    counted = list(take_census(MODELS[hub_id]))

    assert [checked.formula.class_name for checked in counted] == list(classes_of(MODELS[hub_id]))
    for checked in counted:
        assert differences(checked) == []
        assert checked.difference == 0
        assert checked.reasons == ()


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_a_published_count_is_the_exact_one_rounded_or_a_note_says_why_not(model: Published) -> None:
    counted = formula_of(model, model.counted_class)

    assert model.published is None or rounds_to(counted.total, model.published) or model.note
    assert model.active is None or rounds_to(counted.active, model.active) or model.note
    assert model.published is not None or model.note


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_an_exact_count_in_a_note_has_separators_and_a_source_is_a_place(model: Published) -> None:
    assert len(model.source) > 10
    assert not re.search(r"\d{5}", model.note or "")
    assert not re.search(r"[|<>\n]", f"{model.source}{model.note}{model.published}")
    assert not model.source.endswith(".")
    assert model.note is None or model.note.endswith(".")


def test_the_files_of_t5_that_hold_a_matrix_more_come_to_what_their_notes_say() -> None:
    # The class ties the matrix, so the file's count is the closed form's plus that matrix.
    models = [model for model in MODELS.values() if "t5-v1_1" in model.hub_id]

    for model in models:
        formula = formula_of(model)
        own = formula.total + 32_128 * int(model.fields.get("d_model", 512))
        assert f"{own:,}" in (model.note or "")
        assert model.published is not None
        assert rounds_to(own, model.published), model.hub_id
    assert len(models) == 5


def test_there_are_published_models_of_every_family_and_size() -> None:
    families = Counter(formula_of(model).key for model in MODELS.values())

    assert len(MODELS) >= 90
    assert families.keys() == set(family_names())


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_a_whole_config_counts_what_the_published_fields_count(name: str) -> None:
    model = MODELS[PRESETS[name]]
    whole, fields = count_config(preset_config(name)), formula_of(model)

    assert whole is not None
    assert (whole.class_name, whole.total, whole.active) == (fields.class_name, fields.total, fields.active)
    assert [part.value for part in whole.parts] == [part.value for part in fields.parts]
    sizes = ("token", "source_token", "window", "context", "source_context")
    assert all(getattr(whole.cache, size, None) == getattr(fields.cache, size, None) for size in sizes)


# the page


def test_the_page_has_every_family_and_model_as_it_is_counted_now() -> None:
    page = PAGE.read_text(encoding="utf-8")

    assert render_page(page) == page


def test_a_number_in_a_sentence_of_the_page_is_the_number_of_them() -> None:
    page = PAGE.read_text(encoding="utf-8")
    stale = page.replace(f"{len(MODELS)} models of {len(family_names())} families", "3 models of 4 families")

    assert stale != page
    assert render_page(stale) == page


def test_the_page_on_formulas_names_every_family() -> None:
    guide = GUIDE.read_text(encoding="utf-8")

    assert not [family.name for family in load_families().values() if family.name not in guide]


def test_the_page_marks_the_numbers_that_do_not_round() -> None:
    table = table_of(PAGE.read_text(encoding="utf-8"), "models")
    rows = re.findall(r"^\| `(.+?)` \| (.+?) \| ([\d,]+).*? \| (.+?) \|", table, re.MULTILINE)

    counted = {hub_id: (name, int(count.replace(",", ""))) for hub_id, name, count, _ in rows}
    marked = {hub_id for hub_id, _, _, printed in rows if printed.startswith("*")}

    assert [hub_id for hub_id, *_ in rows] == list(MODELS)
    assert counted["google-bert/bert-base-uncased"] == ("BertModel", 109_482_240)
    assert counted["google-t5/t5-11b"] == ("T5ForConditionalGeneration", 11_307_321_344)
    assert all(MODELS[hub_id].note for hub_id in marked)
    assert len(MODELS) - len(marked) > 55


def test_the_page_lists_every_key_of_a_family() -> None:
    documented = set(re.findall(r"`(\w+)`", FORMAT.read_text(encoding="utf-8")))

    for record in (Family, Field, Computed, Term, TermPart, Cache, ModelClass):
        keys = {RENAMED.get(key, key) for key in record.__dataclass_fields__}
        assert keys - {"key", "term"} <= documented | {
            "fields",
            "values",
            "terms",
            "classes",
            "cache",
            "parts",
        }
    assert {*FUNCTIONS, "like", "renamed"} <= documented


def test_the_page_weighs_bert_as_the_command_does() -> None:
    """Measured sizes differ from the formula by the amounts on the page."""
    formula = count_config(preset_config("bert-base-uncased"), "BertModel")
    assert formula is not None
    weights = {each.precision.label: each.nbytes for each in weigh(formula)}
    rows = re.findall(
        r"^\| .+? \| .+? \| ([\d,]+) \| ([\d,]+) \| ([-+\d,]+) \|$", PAGE.read_text(), re.MULTILINE
    )
    numbers = [tuple(int(each.replace(",", "")) for each in row) for row in rows]
    matrices = sum(part.matrix_elements for part in formula.parts)
    vectors = sum(part.vector_elements for part in formula.parts)
    quantized = sum(part.matrix_elements for part in formula.parts if part.term == "blocks")
    others = matrices - quantized

    columns = "fp32", "fp16", "int8", "4-bit", "4-bit", "int8"
    assert [weighed for weighed, _, _ in numbers] == [weights[column] for column in columns]
    assert [difference for _, _, difference in numbers] == [
        0,
        0,
        others * 15 // 16,
        others * 23 // 16,
        others * 55 // 16 + quantized // 16 + 2 * vectors,
        2 * vectors + 381 - matrices // 16,
    ]
    assert all(measured - weighed == difference for weighed, measured, difference in numbers)


# presets


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_a_published_model_is_a_preset_by_both_of_its_names(model: Published) -> None:
    name = preset_name(model.hub_id)

    assert name is not None
    assert name == model.short_name == preset_name(name)
    assert preset_config(name)["model_type"] == model.model_type
    assert {name, model.hub_id} <= set(preset_names())


def test_a_preset_with_a_whole_config_goes_before_published_fields() -> None:
    assert "layer_norm_eps" in preset_config("bert-base-uncased")
    assert preset_config("gpt2-xl") == {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "n_embd": 1600,
        "n_layer": 48,
        "n_head": 25,
    }


@pytest.mark.export
@pytest.mark.parametrize("source", ["gpt2-medium", "openai-community/gpt2-medium"])
def test_a_published_model_is_built_without_the_hub(source: str, no_hub: list[str]) -> None:
    from exporter import SourceOptions, census_source, resolve_source

    manifest = census_source(source, meta=True).manifest
    resolved = resolve_source(source, SourceOptions(meta=True, random_weights=True))

    assert manifest.numel == 354_823_168
    assert (resolved.kind, resolved.class_name) == ("preset", "GPT2LMHeadModel")
    assert no_hub == []


@pytest.mark.export
def test_published_fields_stand_in_for_the_hub_and_have_no_weights(no_hub: list[str]) -> None:
    from exporter import SourceOptions, read_source_config, resolve_source

    lines: list[str] = []

    assert read_source_config("gpt2-medium", lines.append) == preset_config("gpt2-medium")
    assert any("built-in preset of its config" in line for line in lines)
    with pytest.raises(SourceError, match="pass --random-weights"):
        resolve_source("gpt2-medium", SourceOptions())


@pytest.mark.export
@pytest.mark.parametrize(
    ("source", "hint"),
    [("gpt2-meduim", "did you mean gpt2-medium?"), ("zzz", "t5-small, and other published models")],
)
def test_a_name_of_no_model_is_reported_in_a_short_sentence(
    source: str, hint: str, no_hub: list[str]
) -> None:
    from exporter import SourceOptions, resolve_source

    with pytest.raises(SourceError) as caught:
        resolve_source(source, SourceOptions(meta=True))

    assert hint in str(caught.value)
    assert len(str(caught.value)) < 300


def test_an_unknown_name_is_no_preset() -> None:
    assert preset_name("gpt5") is preset_name("") is preset_name("GPT2-XL") is None
    with pytest.raises(KeyError):
        preset_config("gpt5")
