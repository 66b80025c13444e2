"""Derived formulas account for every parameter once, whatever the architecture is."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzer.errors import LedgerError
from analyzer.formulas import derived
from analyzer.formulas.derived import derive_formula, part_finder
from analyzer.formulas.record import Formula, Kind
from analyzer.manifest import Manifest, Parameter
from analyzer.model.dtypes import DType

SMALL_TEXT = {
    "vocab_size": 50,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
}
SMALL_IMAGE = {
    "hidden_size": 24,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "patch_size": 8,
    "image_size": 16,
}
ARCHITECTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "ResNetForImageClassification": (
        "resnet",
        {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [2, 1]},
    ),
    "SwinModel": ("swin", {"embed_dim": 8, "depths": [1, 3], "num_heads": [1, 2], "image_size": 32}),
    "DebertaV2ForMaskedLM": ("deberta-v2", {**SMALL_TEXT, "relative_attention": True, "conv_kernel_size": 3}),
    "MambaForCausalLM": ("mamba", {**SMALL_TEXT, "state_size": 4}),
    "RwkvForCausalLM": ("rwkv", {**SMALL_TEXT, "attention_hidden_size": 16}),
    "CLIPModel": (
        "clip",
        {
            "text_config": {**SMALL_TEXT, "bos_token_id": 0, "eos_token_id": 1},
            "vision_config": SMALL_IMAGE,
        },
    ),
    "Wav2Vec2Model": (
        "wav2vec2",
        {
            **SMALL_TEXT,
            "conv_dim": [8, 8, 8],
            "conv_stride": [2, 2, 2],
            "conv_kernel": [3, 3, 3],
            "num_conv_pos_embedding_groups": 4,
        },
    ),
    "Qwen2MoeForCausalLM": (
        "qwen2_moe",
        {**SMALL_TEXT, "num_experts": 4, "moe_intermediate_size": 8, "num_key_value_heads": 2},
    ),
}


def census(name: str) -> Manifest:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from exporter import take_census

    model_type, fields = ARCHITECTURES[name]
    with torch.device("meta"):
        model = getattr(transformers, name)(transformers.AutoConfig.for_model(model_type, **fields))
    source = {"source": "tiny", "class": name, "model_type": model_type, "weights": "meta"}
    return take_census(model, source)


def by_names(manifest: Manifest) -> Manifest:
    """Return the manifest of a checkpoint, which knows only the names of tensors."""
    return replace(manifest, modules={}, source={"source": "folder/model.safetensors"})


def matrix(name: str, *shape: int, tied: tuple[str, ...] = ()) -> Parameter:
    return Parameter(name, shape, DType.FLOAT, trainable=True, tied=tied)


def check(formula: Formula, manifest: Manifest) -> None:
    """Check that each parameter is in one part under all its names, and that each part counts its own parameters."""
    assert formula.kind is Kind.DERIVED
    assert formula.total == formula.active == manifest.numel
    patterns = {part.key: re.compile(part.scope) for part in formula.parts}
    assert len(patterns) == len(formula.parts)
    find = part_finder(formula)
    owned: dict[str, list[Parameter]] = {key: [] for key in patterns}
    for parameter in manifest.parameters:
        for name in parameter.names:
            keys = [key for key, pattern in patterns.items() if pattern.fullmatch(name)]
            assert keys == [key for key, pattern in patterns.items() if pattern.match(name)]
            assert keys == [find([name])], name
        owned[keys[0]].append(parameter)
    for part in formula.parts:
        assert part.value == sum(parameter.numel for parameter in owned[part.key])
        assert part.vector_elements == sum(p.numel for p in owned[part.key] if len(p.shape) == 1)
        assert re.fullmatch(r"[0-9()*+ ]+", part.shown or "")
        assert eval(part.shown or "") == part.value  # digits and operators only, as just asserted


@pytest.mark.export
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_parameter_of_an_architecture_is_in_one_part(name: str) -> None:
    manifest = census(name)
    formula = derive_formula(manifest, "a/config.json")

    check(formula, manifest)
    assert (formula.source, formula.family, formula.class_name) == (
        "a/config.json",
        ARCHITECTURES[name][0],
        name,
    )
    assert {part.source for part in formula.parts} == {f"the meta device's census of {name}"}
    assert formula.notes == (
        "derived, not a closed form: terms are types and shapes of modules, from the meta device's census of "
        + name,
    )
    check(derive_formula(by_names(manifest)), by_names(manifest))


@pytest.mark.export
def test_layers_of_one_shape_are_one_part_and_parts_of_one_shape_one_term() -> None:
    formula = derive_formula(census("DebertaV2ForMaskedLM"))

    term = next(term for term in formula.terms if term.name == "Linear 24x16 + 24")
    (part,) = term.parts
    assert (part.name, part.shown) == ("deberta.encoder.layer.*.intermediate.dense", "3*(24*16 + 24)")
    assert (part.times, part.each, part.vectors) == (3, 24 * 16 + 24, 24)
    projections = next(term for term in formula.terms if term.name == "Linear 16x16 + 16")
    assert [part.name for part in projections.parts] == [
        "deberta.encoder.layer.*.attention.self.query_proj",
        "deberta.encoder.layer.*.attention.self.key_proj",
        "deberta.encoder.layer.*.attention.self.value_proj",
        "deberta.encoder.layer.*.attention.output.dense",
        "cls.predictions.transform.dense",
    ]


@pytest.mark.export
def test_stages_of_other_widths_are_other_terms() -> None:
    formula = derive_formula(census("SwinModel"))

    queries = {part.name: part.term for part in formula.parts if part.name.endswith("q_proj")}
    assert queries == {
        "encoder.layers.0.blocks.0.attention.q_proj": "Linear 8x8 + 8",
        "encoder.layers.1.blocks.*.attention.q_proj": "Linear 16x16 + 16",
    }


@pytest.mark.export
def test_a_tied_matrix_counts_where_it_is_first_named() -> None:
    formula = derive_formula(census("MambaForCausalLM"))
    find = part_finder(formula)

    assert find(["lm_head.weight"]) == find(["lm_head"]) == "Embedding 50x16/backbone.embeddings"


@pytest.mark.export
def test_a_weight_norm_belongs_to_the_module_that_it_normalizes() -> None:
    formula = derive_formula(census("Wav2Vec2Model"))

    part = next(part for part in formula.parts if part.name == "encoder.pos_conv_embed.conv")
    assert part.term == "Conv1d 16 + 1x1x128 + 16x4x128"
    assert part_finder(formula)(["encoder.pos_conv_embed.conv"]) == part.key


@pytest.mark.export
def test_a_factory_has_a_derived_formula(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    from exporter import census_source

    (tmp_path / "derived_factory.py").write_text(
        "from torch import nn\n"
        "def build():\n"
        "    return nn.Sequential(*(nn.Linear(5, 5) for _ in range(3)), nn.LSTM(5, 4), nn.Linear(4, 2))\n"
    )
    monkeypatch.chdir(tmp_path)
    original = census_source("derived_factory:build", meta=True)
    formula = derive_formula(original.manifest)

    check(formula, original.manifest)
    assert (formula.source, formula.family) == ("derived_factory:build", "Sequential")
    assert [(part.key, part.shown) for part in formula.parts] == [
        ("Linear 5x5 + 5/*", "3*(5*5 + 5)"),
        ("LSTM 16x5 + 16x4 + 2*16/3", "16*5 + 16*4 + 2*16"),
        ("Linear 2x4 + 2/4", "2*4 + 2"),
    ]


def test_without_module_types_names_and_shapes_are_the_terms() -> None:
    parameters = (
        matrix("embed.weight", 9, 4, tied=("head.weight",)),
        *(matrix(f"h.{n}.{leaf}", *shape) for n in range(2) for leaf, shape in (("w", (4, 3)), ("b", (3,)))),
    )
    formula = derive_formula(Manifest(parameters, source={"source": "folder/model.safetensors"}))

    assert [(part.key, part.shown, part.source) for part in formula.parts] == [
        ("weight 9x4/embed", "9*4", "names in folder/model.safetensors"),
        ("w 4x3 + b 3/h.*", "2*(4*3 + 3)", "names in folder/model.safetensors"),
    ]
    assert (formula.family, formula.class_name) == ("model.safetensors", "")
    assert formula.notes == (
        "derived, not a closed form: terms are names and shapes of modules' parameters, from the names in "
        "folder/model.safetensors, which has no types of modules",
    )


def test_what_the_class_does_not_know_is_a_term_by_its_names() -> None:
    manifest = Manifest(
        (matrix("fc.weight", 2, 3), matrix("extra.scale", 3)),
        modules={"fc": "Linear"},
        source={"class": "Net", "source": "net"},
    )
    formula = derive_formula(manifest)

    assert [(part.key, part.source) for part in formula.parts] == [
        ("Linear 2x3/fc", "the census of Net"),
        ("scale 3/extra", "names in net"),
    ]
    assert formula.notes[1] == "no known module, so names stand for types: extra.scale"


def test_parameters_of_the_root_and_scalars_are_parts() -> None:
    manifest = Manifest((matrix("token", 1, 4), matrix("scale")), modules={"": "Net"})
    (part,) = derive_formula(manifest).parts

    assert (part.key, part.shown, part.value, part.vectors) == ("Net 1x4 + 1/scale, token", "1*4 + 1", 5, 0)


def test_a_long_list_of_shapes_is_cut_and_stays_unique() -> None:
    parameters = [matrix(f"{owner}.{n}", n + 1, 2) for owner in ("a", "b") for n in range(9)]
    parameters.append(matrix("b.9", 7, 7))
    formula = derive_formula(
        Manifest(tuple(parameters), modules={"a": "ParameterList", "b": "ParameterList"})
    )

    cut = "ParameterList 1x2 + 2x2 + 3x2 + 4x2"
    assert [term.name for term in formula.terms] == [f"{cut} + 5 more", f"{cut} + 6 more"]
    assert formula.total == 2 * 90 + 49


def test_a_scope_has_no_number_that_is_of_another_shape() -> None:
    places = [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2)]
    wide = (1, 1)
    parameters = [matrix(f"s.{s}.b.{b}.w", 2, 5 if (s, b) == wide else 3) for s, b in places]
    formula = derive_formula(Manifest(tuple(parameters)))

    assert [(part.name, part.times, part.scope) for part in formula.parts] == [
        ("s.*.b.*", 6, r"s\.(?:0\.b\.(?:0|1)|1\.b\.0|2\.b\.(?:0|1|2))(?:\.w)?\Z"),
        ("s.1.b.1", 1, r"s\.1\.b\.1(?:\.w)?\Z"),
    ]


def test_a_module_that_is_called_as_a_parameter_is_no_name_of_its_part() -> None:
    manifest = Manifest((matrix("a", 3), matrix("a.b", 5), matrix("c.d", 7, tied=("x.a.b",)), matrix("x", 2)))

    check(derive_formula(manifest), manifest)


def test_names_that_nothing_is_called_by_are_not_found() -> None:
    find = part_finder(derive_formula(Manifest((matrix("h.0.w", 3), matrix("h.1.w", 3)))))

    assert find(["h.2.w"]) is find(["h"]) is find(["h.0.w.x"]) is find([""]) is find([]) is None
    assert find(["nobody", "h.1.w"]) == find(["h.1"]) == "w 3/h.*"


def test_a_path_of_thousands_of_numbers_is_a_part_as_any_other() -> None:
    deep = ".".join(["0"] * 5000)
    manifest = Manifest((matrix(f"{deep}.w", 3), matrix(f"1.{deep[2:]}.w", 3), matrix(f"{deep[:-1]}1.w", 3)))
    formula = derive_formula(manifest)

    check(formula, manifest)
    assert [part.times for part in formula.parts] == [2, 1]


def test_parts_that_do_not_add_up_are_a_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = Manifest((matrix("a.w", 3), matrix("b.w", 4)), source={"source": "net"})
    monkeypatch.setattr(derived, "_own_modules", lambda manifest: ())

    with pytest.raises(LedgerError, match="net: 0 derived parts, 0 of them different, add up to 0 of 7"):
        derive_formula(manifest)


def test_ten_thousand_parameters_are_found_at_once() -> None:
    parameters = tuple(
        matrix(f"layers.{layer}.experts.{expert}.w{n}", 2, n + 1)
        for layer in range(20)
        for expert in range(256)
        for n in range(2)
    )
    manifest = Manifest(parameters)
    begun = perf_counter()
    formula = derive_formula(manifest)
    find = part_finder(formula)
    found = {find([parameter.name]) for parameter in parameters}

    assert found == {part.key for part in formula.parts} == {"w0 2x1 + w1 2x2/layers.*.experts.*"}
    assert perf_counter() - begun < 5


WORDS = st.sampled_from(
    ["a", "b", "0", "1", "10", "weight", "bias", "parametrizations", "x|y", "(?:", "\\", ")?", "/"]
)
NAMES = st.lists(WORDS | st.text(max_size=3), min_size=1, max_size=5).map(".".join)
SHAPES = st.lists(st.integers(0, 3), max_size=3).map(tuple)


@st.composite
def manifests(draw: st.DrawFn) -> Manifest:
    """Draw a manifest of any names, some of them tied, with some modules known."""
    names = draw(st.lists(NAMES, unique=True, max_size=12))
    parameters = []
    while names:
        first, tied = names[0], draw(st.integers(0, 1))
        parameters.append(matrix(first, *draw(SHAPES), tied=tuple(names[1 : 1 + tied])))
        names = names[1 + tied :]
    owners = sorted({parameter.name.rpartition(".")[0] for parameter in parameters})
    known = draw(st.dictionaries(st.sampled_from(owners), WORDS)) if owners else {}
    return Manifest(tuple(parameters), modules=known)


@given(manifests())
def test_any_names_and_shapes_are_accounted_for(manifest: Manifest) -> None:
    check(derive_formula(manifest), manifest)
