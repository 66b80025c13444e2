"""Presets: every learned tensor of a family is in exactly one group, and `auto` finds the family."""

from __future__ import annotations

import os
import re
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from exports import CONFIGS
from families import PRESETS, Family, list_names
from models import audit, ramp, text_model

from analyzer.account.audit import audit_model
from analyzer.account.group.patterns import MAX_LENGTH, find_groups, group_by_patterns
from analyzer.account.group.presets import AUTO, check_preset, find_preset, load_presets
from analyzer.account.ledger import Ledger
from analyzer.errors import UsageError

ROOT = Path(__file__).parents[1]
OF_MATRIX = {
    "deberta-v2": "deberta",
    **dict.fromkeys(("gemma", "llama", "mistral", "mixtral", "qwen3"), "llama"),
}


def ledger_of(folder: Path, names: tuple[str, ...]) -> Ledger:
    """Audit a model that sums vectors of two elements each with these names."""
    nodes = " ".join(f'h{i + 1} = Add(h{i}, "{name}")' for i, name in enumerate(names))
    text = f"g (float[2] h0) => (float[2] h{len(names)}) {{ {nodes} }}"
    return audit(folder, text_model(text, {name: ramp(2, start=3 * i) for i, name in enumerate(names)}))


@pytest.mark.export
@pytest.mark.parametrize("module", PRESETS)
def test_the_kept_lists_of_parameters_are_those_of_transformers(module, golden):
    golden(f"names-{module}", list_names(module))


def test_every_preset_has_a_list_of_parameters():
    assert set(PRESETS.values()) == load_presets().keys()


@pytest.mark.parametrize("wrapper", ["", "model."])
@pytest.mark.parametrize("module", PRESETS)
def test_every_parameter_and_its_module_are_in_one_group(module, wrapper):
    patterns = load_presets()[PRESETS[module]].compile().patterns
    family = Family.read(module)
    names = {
        *family.base,
        *family.heads,
        *(prefix + name for prefix in family.prefixes for name in family.base),
    }

    for name in sorted(names):
        scope = name.rpartition(".")[0]
        found = find_groups([f"{wrapper}{name}"], patterns, "all")
        assert len(found) == 1, name
        assert find_groups([f"{wrapper}{scope}"], patterns, "all") in ([], found), name


@pytest.mark.parametrize("module", PRESETS)
def test_every_group_has_parameters(module):
    patterns = load_presets()[PRESETS[module]].compile().patterns

    found = [find_groups([name], patterns, "first") for name in Family.read(module).whole]

    has_pooler = "pooler" in patterns and any("pooler" in name for name in Family.read(module).whole)
    assert {group for (group,) in found} == patterns.keys() - (set() if has_pooler else {"pooler"})


@pytest.mark.parametrize("form", ["base", "whole"])
@pytest.mark.parametrize("module", PRESETS)
def test_auto_finds_the_family_by_its_names(module, form, tmp_path):
    ledger = ledger_of(tmp_path, getattr(Family.read(module), form))
    # RoBERTa without heads has the same names as BERT
    is_twin = form == "base" and PRESETS[module] == "roberta"

    own = find_preset(AUTO, ledger)

    assert own.origin == f"preset {'bert' if is_twin else PRESETS[module]} (auto)"
    grouping = group_by_patterns(ledger, own.patterns, match=own.match, origin=own.origin)
    assert grouping.ungrouped.parameters == grouping.overlap.parameters == 0
    assert sum(group.parameters for group in grouping.groups) == ledger.parameters > 0


def test_albert_projects_its_embeddings_in_the_encoder():
    patterns = load_presets()["albert"].compile().patterns

    assert find_groups(["albert.encoder.embedding_hidden_mapping_in.weight"], patterns, "all") == ["encoder"]


@pytest.mark.parametrize(
    ("name", "group"),
    [("conv1.weight", "embeddings"), ("layer4.1.bn2.weight", "encoder"), ("fc.bias", "head")],
)
def test_the_resnet_of_torchvision_is_known_too(name, group):
    assert find_groups([name], load_presets()["resnet"].compile().patterns, "all") == [group]


@pytest.mark.parametrize(
    "name", ["vit.encoder.layer.0.attention.output.dense.weight", "deit.encoder.layer.11.x"]
)
def test_exports_with_earlier_names_of_vision_transformers_are_known_too(name):
    assert find_groups([name], load_presets()["vit"].compile().patterns, "all") == ["encoder"]


def test_auto_refuses_a_model_that_no_preset_fits(tmp_path):
    ledger = ledger_of(
        tmp_path, ("features.0.weight", "features.1.weight", "neck.weight", "pooler.dense.bias")
    )

    with pytest.raises(
        UsageError, match="no preset fits; the nearest, bert, has groups for 2 of the 8 parameters"
    ):
        find_preset(AUTO, ledger)


@pytest.mark.parametrize("names", [("onnx::Add_1",), ("lm_head.bias", "lm_head.dense.bias")])
def test_auto_refuses_to_choose_a_family_by_its_head_alone(names, tmp_path):
    with pytest.raises(UsageError, match="cannot tell which preset fits, because only"):
        find_preset(AUTO, ledger_of(tmp_path, names))


def test_a_head_of_the_users_own_leaves_the_family_and_is_ungrouped(tmp_path):
    ledger = ledger_of(tmp_path, (*Family.read("bert").whole, "my_head.bias"))

    own = find_preset(AUTO, ledger)

    assert own.origin == "preset bert (auto)"
    assert group_by_patterns(ledger, own.patterns).ungrouped.parameters == 2


def test_names_of_the_pytorch_side_count_too(tmp_path):
    ledger = ledger_of(tmp_path, ("x.weight", "y.weight", "z.weight"))
    names = ("transformer.wte.weight", "transformer.h.0.ln_1.bias", "transformer.h.1.ln_1.bias")
    known = {entry.tensor.key: (name, True) for entry, name in zip(ledger.entries, names, strict=True)}

    assert find_preset(AUTO, ledger, known).origin == "preset gpt2 (auto)"


GPT2 = ("transformer.wte.weight", "transformer.h.0.ln_1.bias")


def test_half_of_what_pytorch_has_a_name_for_is_not_most_of_it(tmp_path):
    names = (
        "embeddings.word_embeddings.weight",
        "pooler.dense.bias",
        "features.0.weight",
        "features.1.weight",
    )

    with pytest.raises(UsageError, match="no preset fits; the nearest, bert, has groups for 4 of the 8"):
        find_preset(AUTO, ledger_of(tmp_path, names))


def test_what_has_two_names_counts_once(tmp_path):
    ledger = ledger_of(tmp_path, ("lm_head.weight", "features.0.weight"))
    known = {ledger.entries[0].tensor.key: ("transformer.wte.weight", True)}

    with pytest.raises(UsageError, match=r"no preset fits; the nearest, \w+, has groups for 2 of the 4"):
        find_preset(AUTO, ledger, known)


def test_every_layer_counts(tmp_path):
    layers = [f"transformer.h.{number}.ln_1.bias" for number in range(4)]

    own = find_preset(AUTO, ledger_of(tmp_path, (GPT2[0], *layers, "a.weight", "b.weight", "c.weight")))

    assert own.origin == "preset gpt2 (auto)"


def without_names(ledger: Ledger, *names: str) -> Ledger:
    entries = (
        replace(entry, scope="", scoped_by="none", sources=()) if entry.tensor.name in names else entry
        for entry in ledger.entries
    )
    return replace(ledger, entries=tuple(entries))


def test_what_pytorch_has_no_name_for_is_no_evidence_of_the_family(tmp_path):
    nameless = [f"features.{number}.weight" for number in range(5)]
    ledger = ledger_of(tmp_path, (*GPT2, *nameless))

    assert find_preset(AUTO, without_names(ledger, *nameless)).origin == "preset gpt2 (auto)"
    with pytest.raises(UsageError, match="has groups for 4 of the 14"):
        find_preset(AUTO, ledger)


@pytest.mark.parametrize("lacking", [{"sources": ()}, {"scope": "", "scoped_by": "none"}])
def test_a_scope_or_a_name_of_pytorchs_is_enough(tmp_path, lacking):
    ledger = ledger_of(tmp_path, GPT2)
    entries = tuple(
        replace(entry, **{"sources": (entry.tensor.name,), **lacking}) for entry in ledger.entries
    )

    assert find_preset(AUTO, replace(ledger, entries=entries)).origin == "preset gpt2 (auto)"


def test_names_of_the_pytorch_side_are_enough(tmp_path):
    names = ("a.weight", "b.bias")
    ledger = without_names(ledger_of(tmp_path, names), *names)
    known = {entry.tensor.key: (name, True) for entry, name in zip(ledger.entries, GPT2, strict=True)}

    assert find_preset(AUTO, ledger, known).origin == "preset gpt2 (auto)"


def test_a_preset_takes_the_first_group_by_default(tmp_path):
    ledger = ledger_of(tmp_path, Family.read("bert").base)

    assert find_preset("bert", ledger).match == "first"
    assert find_preset("bert", ledger, match="all").match == "all"
    assert find_preset("bert", ledger).origin == "preset bert"
    assert [find_preset(AUTO, ledger, match=match).match for match in (None, "all")] == ["first", "all"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("brt", "^--preset brt: did you mean bert[?] There are bert, roberta"),
        ("zzz", "^--preset zzz: There are bert, roberta"),
        ("", "^--preset : There are bert, roberta"),
    ],
)
def test_an_unknown_preset_is_refused_with_the_nearest(name, message):
    with pytest.raises(UsageError, match=message):
        check_preset(name)


def test_presets_can_be_copied_into_a_config():
    for preset in load_presets().values():
        assert all(len(expression) <= MAX_LENGTH for expression in preset.groups.values())
        assert not any("'" in expression for expression in preset.groups.values())


def test_the_page_lists_every_preset_with_its_groups():
    page = (ROOT / "docs" / "groups.md").read_text(encoding="utf-8").partition("## Presets")[2]

    rows = re.findall(r"^\| `([a-z0-9]+)` \| (.+?) \| (.+?) \|$", page, re.MULTILINE)

    assert rows == [
        (preset.name, preset.models, ", ".join(f"`{group}`" for group in preset.groups))
        for preset in load_presets().values()
    ]


def test_the_page_shows_a_preset_as_it_is():
    page = (ROOT / "docs" / "groups.md").read_text(encoding="utf-8")

    (shown,) = re.findall(r"```toml\n(\[bert\]\n.*?)```", page, re.DOTALL)

    preset = load_presets()["bert"]
    assert tomllib.loads(shown) == {"bert": {"models": preset.models, "groups": dict(preset.groups)}}


# real exports


@pytest.mark.export
@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({*CONFIGS} - {"bert-untied"}))
def test_a_real_export_is_grouped_whole(name, exported):
    ledger = audit_model(exported(name).files.artifact)

    own = find_preset(AUTO, ledger)

    assert own.origin == f"preset {CONFIGS[name]['model_type']} (auto)"
    grouping = group_by_patterns(ledger, own.patterns, match="all")
    assert grouping.ungrouped.parameters == grouping.overlap.parameters == 0


MATRIX = os.environ.get("ONNXLEDGER_MATRIX")
MADE = sorted(path.parent for path in Path(MATRIX).glob("*/*/model.onnx")) if MATRIX else []


@pytest.mark.skipif(not MADE, reason="$ONNXLEDGER_MATRIX names no folder that `make matrix` has filled")
@pytest.mark.parametrize("folder", MADE or [Path()], ids=lambda folder: f"{folder.parent.name}/{folder.name}")
def test_every_form_of_an_export_leaves_only_what_has_no_name(folder):
    name = folder.parent.name
    for path in sorted(folder.glob("*.onnx")):
        ledger = audit_model(path)
        nameless = [
            e for e in ledger.entries if not e.sources and (not e.scope or "structure" in e.scoped_by)
        ]

        own = find_preset(OF_MATRIX.get(name, name.partition("-")[0]), ledger)

        grouping = group_by_patterns(ledger, own.patterns, match="all")
        assert grouping.ungrouped.parameters <= sum(entry.parameters for entry in nameless), path
        assert grouping.overlap.parameters == 0, path
