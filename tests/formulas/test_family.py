"""A family's file is checked as it is read: contradictions are refused, with their place."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest

from analyzer.formulas.family import (
    Family,
    family_names,
    find_family,
    load_families,
    load_family,
    read_family,
)

TABLE: dict[str, Any] = {
    "name": "Made",
    "model_types": ["made"],
    "prefix": "made",
    "source": "a paper, section 1",
    "fields": {
        "size": {"symbol": "D", "default": 4, "aliases": ["width"]},
        "inner": {"symbol": "F", "otherwise": "4*size", "usual": "4*size"},
        "layers": {"symbol": "N", "default": 2, "role": "layers"},
        "image": {"symbol": "I", "default": [8, 6]},
        "labels": {"symbol": "C", "default": 2, "length_of": "id2label"},
        "tied": {"default": True},
    },
    "values": {"area": {"symbol": "A", "expression": "height(image)*width(image)", "meaning": "pixels"}},
    "terms": [
        {
            "name": "blocks",
            "times": "layers",
            "uses": "2",
            "parts": [
                {"name": "norm", "count": "2*size", "vectors": "2*size", "scope": r"layers\.\d+\.norm"},
                {
                    "name": "dense",
                    "count": "size*inner",
                    "active": "size",
                    "scope": r"layers\.\d+",
                    "source": "another",
                },
            ],
        },
        {
            "name": "head",
            "when": "not tied",
            "parts": [{"name": "output", "count": "area", "times": "3", "scope": "head", "tied_to": "dense"}],
        },
    ],
    "cache": {"token": "2*size", "window": "None", "context": "layers", "when": "tied"},
    "classes": {
        "MadeModel": {"auto": ["AutoModel"], "terms": ["blocks"]},
        "MadeHead": {"terms": ["blocks/dense", "head"], "set": {"tied": False}},
        "MadeLess": {"terms": ["blocks", "head"], "without": ["blocks/norm", "head"]},
    },
}


def changed(*path: Any, to: object) -> dict[str, Any]:
    """Return the table with another value at a path."""
    table = copy.deepcopy(TABLE)
    inner = table
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = to
    return table


@pytest.fixture
def made() -> Family:
    return read_family("made", TABLE)


# fields that are read


def test_all_that_a_file_says_is_read(made: Family) -> None:
    assert (made.key, made.name, made.model_types, made.prefix) == ("made", "Made", ("made",), "made")
    assert [part.key for part in made.parts] == ["blocks/norm", "blocks/dense", "head/output"]
    assert made.symbols == {
        "size": "D",
        "inner": "F",
        "layers": "N",
        "image": "I",
        "labels": "C",
        "area": "A",
    }
    assert made.fields["image"].default == (8, 6)
    assert (made.fields["size"].aliases, made.fields["labels"].length_of) == (("width",), "id2label")
    assert made.cache is not None
    assert made.cache.source_token is None


def test_a_part_has_the_source_of_its_family_where_it_names_none(made: Family) -> None:
    assert [part.source for part in made.parts] == ["a paper, section 1", "another", "a paper, section 1"]


def test_a_class_has_whole_terms_and_single_parts_less_what_it_lacks(made: Family) -> None:
    assert {name: each.parts for name, each in made.classes.items()} == {
        "MadeModel": ("blocks/norm", "blocks/dense"),
        "MadeHead": ("blocks/dense", "head/output"),
        "MadeLess": ("blocks/dense",),
    }
    assert made.classes["MadeHead"].fixed == {"tied": False}


def test_every_expression_of_a_file_is_among_the_familys(made: Family) -> None:
    texts = [expression.text for expression in made.expressions]

    assert sorted(texts) == sorted(
        [
            *("4 * size", "4 * size", "height(image) * width(image)"),
            *("layers", "2", "2 * size", "2 * size", "size * inner", "0", "size"),
            *("not tied", "area", "0", "3"),
            *("tied", "2 * size", "None", "layers"),
        ]
    )


# scopes


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("layers.0.norm.weight", "blocks/norm"),
        ("made.layers.12.norm", "blocks/norm"),
        ("model.layers.0.norm.bias", "blocks/norm"),
        ("model.made.model.layers.0.norm.bias", "blocks/norm"),
        ("layers.0.normal.weight", "blocks/dense"),
        ("layers.0", "blocks/dense"),
        ("layers.x.norm", None),
        ("other.layers.0.norm", None),
        ("header.weight", None),
        ("head", "head/output"),
        ("head.weight", "head/output"),
        ("", None),
    ],
)
def test_the_first_part_whose_scope_fits_whole_modules_is_taken(
    made: Family, name: str, part: str | None
) -> None:
    found = made.find_part([name])

    assert (None if found is None else found.key) == part


def test_a_name_goes_before_those_after_it(made: Family) -> None:
    names = ["nowhere", "head.weight", "layers.0.norm"]

    found, other = made.find_part(names), made.find_part(names[::-1])

    assert found is not None
    assert other is not None
    assert (found.name, other.name) == ("output", "norm")


def test_a_prefix_is_text_and_no_pattern() -> None:
    family = read_family("made", {**TABLE, "prefix": "m.d"})

    assert family.find_part(["m.d.head"]) is not None
    assert family.find_part(["mad.head"]) is None


def test_a_family_without_a_prefix_has_modules_at_the_top() -> None:
    family = read_family("made", {key: value for key, value in TABLE.items() if key != "prefix"})

    assert family.find_part(["head"]) is not None
    assert family.find_part(["model.head"]) is not None
    assert family.find_part([".head"]) is None


# refusals


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (changed("fields", "size", "given", to=3), "size: no key 'given'; there are symbol, default"),
        (changed("values", "area", "unit", to=3), "area: no key 'unit'"),
        (changed("terms", 0, "time", to="2"), "blocks: no key 'time'"),
        (changed("terms", 0, "parts", 1, "vector", to="2"), "blocks/dense: no key 'vector'"),
        (changed("cache", "tokens", to="2"), "cache: no key 'tokens'"),
        (changed("classes", "MadeModel", "term", to=[]), "MadeModel: no key 'term'"),
        (changed("classes", "MadeModel", "terms", to=["block"]), "MadeModel: no term 'block'"),
        (changed("classes", "MadeModel", "without", to=["blocks/nrm"]), "MadeModel: no term 'blocks/nrm'"),
        (changed("terms", 1, "parts", 0, "name", to="norm"), "made: a part's name appears twice"),
        (changed("fields", "layers", "symbol", to="D"), "made: a symbol appears twice"),
        (changed("values", "area", "symbol", to="D"), "made: a symbol appears twice"),
        (changed("terms", 0, "parts", 1, "count", to="size*iner"), "made: dense: no field 'iner'"),
        (changed("terms", 0, "times", to="layer"), "made: blocks: no field 'layer'"),
        (changed("fields", "inner", "usual", to="4*sizes"), "made: inner: no field 'sizes'"),
        (changed("cache", "window", to="windw"), "made: cache: no field 'windw'"),
        (changed("terms", 1, "parts", 0, "tied_to", to="word"), "output: tied to 'word', which is no part"),
        (changed("terms", 0, "parts", 0, "count", to="size +"), "not an expression"),
        (changed("terms", 0, "parts", 0, "count", to="open('x')"), "functions are height, width"),
    ],
)
def test_a_file_that_contradicts_itself_is_refused(table: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        read_family("made", table)


def test_a_scope_that_is_no_pattern_is_refused() -> None:
    with pytest.raises(re.error):
        read_family("made", changed("terms", 0, "parts", 0, "scope", to="layers(["))


# families like another one

ALIKE: dict[str, Any] = {
    "name": "CamemBERT",
    "model_types": ["camembert"],
    "source": "a paper",
    "like": "roberta",
    "renamed": {"Roberta": "Camembert", "RoBERTa": "CamemBERT"},
    "fields": {"vocab_size": {"default": 7}, "experts": {"symbol": "E", "default": 1}},
    "classes": {"CamembertForCausalLM": {"auto": ["AutoModelForCausalLM"], "terms": ["blocks"]}},
}


def test_a_family_is_like_another_but_for_what_its_file_says() -> None:
    roberta, family = load_family("roberta"), read_family("camembert", ALIKE)

    assert (family.name, family.model_types, family.prefix) == ("CamemBERT", ("camembert",), "roberta")
    assert [*family.fields] == [*roberta.fields, "experts"]
    defaults = {name: field.default for name, field in roberta.fields.items()}
    assert {name: field.default for name, field in family.fields.items()} == {
        **defaults,
        "vocab_size": 7,
        "experts": 1,
    }
    assert family.fields["vocab_size"].role == "vocabulary"
    assert [(where, each.text) for where, each in family.located] == [
        (where, each.text) for where, each in roberta.located
    ]


def test_a_family_that_is_like_another_has_its_classes_and_sources_under_its_own_names() -> None:
    roberta, family = load_family("roberta"), read_family("camembert", ALIKE)

    assert [*family.classes] == [name.replace("Roberta", "Camembert") for name in roberta.classes]
    assert family.classes["CamembertModel"].parts == roberta.classes["RobertaModel"].parts
    assert family.classes["CamembertForCausalLM"].parts != roberta.classes["RobertaForCausalLM"].parts
    assert not any("Roberta" in part.source or "RoBERTa" in part.source for part in family.parts)
    assert any(part.source.endswith("CamemBERT, CamembertForMaskedLM") for part in family.parts)


def test_names_stay_as_they_are_without_a_renaming() -> None:
    family = read_family("made", {key: value for key, value in ALIKE.items() if key != "renamed"})

    assert {*load_family("roberta").classes} < {*family.classes}


@pytest.mark.parametrize("like", ["nobody", "../family"])
def test_a_family_is_like_one_that_there_is(like: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"made: like {like!r}, which is no family")):
        read_family("made", {**ALIKE, "like": like})


def test_a_key_that_a_family_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match="made: no key 'likes'"):
        read_family("made", {**TABLE, "likes": "roberta"})


# families that ship


def test_families_are_found_by_the_types_of_their_models() -> None:
    for key, family in load_families().items():
        assert family is load_family(key)
        assert all(find_family(model_type) is family for model_type in family.model_types)
    assert find_family("resnet") is None
    assert list(load_families()) == sorted(family_names())


@pytest.mark.parametrize("key", family_names())
def test_a_class_has_each_of_its_auto_classes_alone(key: str) -> None:
    autos = [name for each in load_family(key).classes.values() for name in each.auto]

    assert len(set(autos)) == len(autos)
    assert "AutoModel" in autos


@pytest.mark.parametrize("key", family_names())
def test_names_of_fields_and_their_aliases_are_of_one_field_each(key: str) -> None:
    family = load_family(key)
    names = [name for field in family.fields.values() for name in (field.name, *field.aliases)]
    names += [value.name for value in family.values]

    assert len(set(names)) == len(names)


@pytest.mark.parametrize("key", family_names())
def test_what_a_class_fixes_is_a_field(key: str) -> None:
    family = load_family(key)
    for each in family.classes.values():
        for name, value in each.fixed.items():
            assert type(value) is type(family.fields[name].default)
