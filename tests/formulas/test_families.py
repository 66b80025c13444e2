"""Every closed form beside PyTorch's own census, for every class and option of tiny models on the meta device."""

from __future__ import annotations

import functools
import inspect
from collections import Counter, defaultdict
from typing import Any

import pytest
from formulas.sides import read_variants

from analyzer.formulas.counting import count_config
from analyzer.formulas.family import Family, family_names, load_families, load_family


def _variants(key: str) -> list[dict[str, Any]]:
    table = read_variants(key)
    if not table:
        return []  # another test reports it
    return [table["base"], *({**table["base"], **changed} for changed in table.get("variants", ()))]


CASES = [
    pytest.param(key, name, number, id=f"{key}-{name}-{number}")
    for key in family_names()
    for name in load_family(key).classes
    for number in range(len(_variants(key)))
]


@pytest.mark.export
@pytest.mark.parametrize(("key", "name", "number"), CASES)
def test_each_part_counts_what_pytorch_counts(key: str, name: str, number: int) -> None:
    family, fields = load_family(key), _variants(key)[number]
    for model_type in family.model_types:
        config = {"model_type": model_type, "architectures": [name], **fields}
        formula = count_config(config)
        assert formula is not None
        counts, vectors = _census(family, config, name)
        assert {part.key: part.value for part in formula.parts if part.value} == counts
        assert {part.key: part.vector_elements for part in formula.parts if part.vector_elements} == vectors


def _census(family: Family, config: dict[str, Any], name: str) -> tuple[Counter[str], Counter[str]]:
    """Count elements by part, and those in vectors, of the class on the meta device."""
    import torch
    import transformers

    fields = {key: value for key, value in config.items() if key not in ("model_type", "architectures")}
    settings = transformers.AutoConfig.for_model(config["model_type"], **fields)
    with torch.device("meta"):
        model = getattr(transformers, name)(settings)
    counts: Counter[str] = Counter()
    vectors: Counter[str] = Counter()
    names: dict[Any, list[str]] = defaultdict(list)
    for parameter_name, parameter in model.named_parameters(remove_duplicate=False):
        names[parameter].append(parameter_name)
    for parameter, known in names.items():
        # A class may list its head first, but a tied matrix belongs to the embedding, under the base model.
        part = family.find_part(sorted(known, key=lambda name: not name.startswith(f"{family.prefix}.")))
        assert part is not None, known
        counts[part.key] += parameter.numel()
        if parameter.ndim == 1:
            vectors[part.key] += parameter.numel()
    return counts, vectors


@pytest.mark.parametrize("key", family_names())
def test_every_family_is_tried_with_its_options(key: str) -> None:
    assert len(_variants(key)) > 1


@pytest.mark.export
@pytest.mark.parametrize("key", family_names())
def test_defaults_are_those_of_the_config_class(key: str) -> None:
    import transformers

    family = load_family(key)
    for model_type in family.model_types:
        config = transformers.AutoConfig.for_model(model_type)
        declared = type(config).__dataclass_fields__
        for field in family.fields.values():
            if field.default is not None or field.otherwise is None:
                # Either the declared default or the value on the instance: the class may replace null by an empty list.
                made = getattr(config, field.name, None)
                declared_default = getattr(declared.get(field.name), "default", made)
                assert field.default in (declared_default, tuple(made) if isinstance(made, list) else made), (
                    field.name
                )


@pytest.mark.export
@pytest.mark.parametrize("key", family_names())
def test_every_class_of_the_family_has_its_closed_form(key: str) -> None:
    import transformers

    family = load_family(key)
    for model_type in family.model_types:
        module = inspect.getmodule(
            transformers.AutoModel._model_mapping[type(transformers.AutoConfig.for_model(model_type))]
        )
        assert module is not None
        classes = {
            name
            for name in getattr(module, "__all__", ())
            if isinstance(found := getattr(module, name), type)
            and issubclass(found, transformers.PreTrainedModel)
            and "pretrained" not in name.lower()
        }
        assert classes <= set(family.classes), classes - set(family.classes)


@functools.cache
def auto_mappings() -> dict[str, Any]:
    """Return the mapping of each automatic class; listing the names of transformers takes half a second."""
    import transformers

    found = {
        name: getattr(transformers, name, None) for name in dir(transformers) if name.startswith("AutoModel")
    }
    return {
        name: mapping
        for name, each in found.items()
        if (mapping := getattr(each, "_model_mapping", None)) is not None
    }


@pytest.mark.export
@pytest.mark.parametrize("key", family_names())
def test_auto_classes_give_the_class_that_transformers_gives(key: str) -> None:
    import transformers

    family = load_family(key)
    for model_type in family.model_types:
        config = type(transformers.AutoConfig.for_model(model_type))
        for name, mapping in auto_mappings().items():
            if config not in mapping:
                continue
            found = mapping[config]
            found = found[0] if isinstance(found, tuple) else found
            ours = [each.name for each in family.classes.values() if name in each.auto]
            assert ours == [found.__name__], name


def test_a_model_type_belongs_to_one_family() -> None:
    types = Counter(model_type for family in load_families().values() for model_type in family.model_types)
    assert max(types.values()) == 1


def test_parts_say_where_they_are_from() -> None:
    for family in load_families().values():
        assert all(part.source for part in family.parts)
