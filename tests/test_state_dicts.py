"""Checkpoint files as PyTorch's side, with torch: state dicts of torch.save, and the class that a config.json names."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exports import CONFIGS, FACTORY, write_source

from analyzer.checkpoints import Original
from analyzer.checkpoints.checkpoint import open_checkpoint
from analyzer.errors import ManifestError, SourceError, UsageError
from analyzer.manifest import Buffer, Parameter
from analyzer.model.dtypes import DType

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from safetensors.torch import save_file  # noqa: E402  after the skip

from exporter import SourceOptions, census_source, resolve_source, take_census  # noqa: E402
from exporter.census import TensorWeights, weights_of  # noqa: E402
from exporter.dtypes import TORCH_DTYPES  # noqa: E402
from exporter.quiet import quiet  # noqa: E402

pytestmark = pytest.mark.export

TensorDict = dict[str, Any]

QUERY = "bert.encoder.layer.0.attention.self.query.weight"
TABLE = "bert.embeddings.word_embeddings.weight"
HEAD = "cls.predictions.decoder.weight"


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Any:
    source = write_source("bert", tmp_path_factory.mktemp("bert"))
    return resolve_source(source, SourceOptions(random_weights=True)).model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Folder with the config of `bert`."""
    write_source("bert", tmp_path)
    return tmp_path


@pytest.fixture
def tensors(bert: Any) -> TensorDict:
    """State dict of `bert`, without shared storage."""
    return {name: tensor.clone() for name, tensor in bert.state_dict().items()}


def safetensors(folder: Path, tensors: TensorDict) -> str:
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.safetensors")
    return str(folder / "model.safetensors")


def pickled(folder: Path, content: object, name: str = "pytorch_model.bin", **how: Any) -> str:
    torch.save(content, folder / name, **how)
    return str(folder / name)


def tied(original: Original) -> list[tuple[str, ...]]:
    return [p.names for p in original.manifest.parameters if p.tied]


def without_values(original: Original) -> list[str]:
    return [t.name for t in original.manifest.tensors if original.weights.array(t.name) is None]


def described(tensors: tuple[Parameter, ...] | tuple[Buffer, ...]) -> set[tuple[Any, ...]]:
    return {(frozenset(t.names), t.shape, t.dtype) for t in tensors}


# the class that config.json names


@pytest.mark.parametrize("save", [safetensors, pickled])
def test_parameters_buffers_and_ties_are_those_of_the_class(
    bert: Any, folder: Path, tensors: TensorDict, save: Callable[[Path, TensorDict], str]
) -> None:
    original = census_source(save(folder, tensors))

    expected = take_census(bert, evidence=False)
    assert original.manifest.parameters == expected.parameters
    assert original.manifest.buffers == expected.buffers
    assert original.manifest.modules == expected.modules
    assert original.manifest.source["parameters_by"] == "meta-device"
    assert original.manifest.source["class"] == "BertForMaskedLM"
    assert original.manifest.source["model_type"] == "bert"
    assert without_values(original) == []
    assert original.notes == ()
    for name, parameter in bert.named_parameters(remove_duplicate=False):
        assert np.array_equal(original.weights.array(name), parameter.detach().numpy())


@pytest.mark.parametrize("name", CONFIGS)
def test_names_show_what_the_class_shows(tmp_path: Path, name: str) -> None:
    """Exceptions are buffers that are not saved, and ViT's old names, which transformers 5 saves."""
    model = resolve_source(write_source(name, tmp_path), SourceOptions(random_weights=True)).model
    with quiet():
        model.save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"

    by_class, by_names = census_source(str(path)).manifest, open_checkpoint(path).manifest

    assert by_class.numel == by_names.numel == sum(p.numel() for p in model.parameters())
    saved = tuple(buffer for buffer in by_class.buffers if buffer.persistent)
    assert described(by_names.buffers) == described(saved)
    if name != "vit":
        assert {p.name for p in by_names.parameters} == {p.name for p in by_class.parameters}
    assert [n.module for n in by_names.batch_norms] == sorted(n.module for n in by_class.batch_norms)


@pytest.mark.parametrize(
    "rename",
    [
        lambda name: f"module.{name}",
        lambda name: f"_orig_mod.{name}",
        lambda name: name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ),
    ],
    ids=["data-parallel", "compiled", "gamma-beta"],
)
def test_names_of_wrappers_and_of_old_are_those_of_the_class(
    bert: Any, folder: Path, tensors: TensorDict, rename: Callable[[str], str]
) -> None:
    original = census_source(safetensors(folder, {rename(name): tensor for name, tensor in tensors.items()}))

    assert original.manifest.parameters == take_census(bert, evidence=False).parameters
    assert without_values(original) == []
    assert np.array_equal(original.weights.array(rename(QUERY)), tensors[QUERY].numpy())


def test_a_checkpoint_of_the_bare_model_lacks_the_prefix_and_the_head(
    folder: Path, tensors: TensorDict
) -> None:
    bare = {n.removeprefix("bert."): t for n, t in tensors.items() if n.startswith("bert.")}

    original = census_source(safetensors(folder, bare))

    assert np.array_equal(original.weights.array(QUERY), tensors[QUERY].numpy())
    assert all(name.startswith("cls.") for name in without_values(original))
    assert any("lacks tensors that BertForMaskedLM has" in note for note in original.notes)


@pytest.mark.parametrize("kept", [TABLE, HEAD])
def test_a_tied_tensor_may_stand_under_any_of_its_names(folder: Path, tensors: TensorDict, kept: str) -> None:
    values = tensors[kept].numpy()
    for name in {TABLE, HEAD} - {kept}:
        del tensors[name]

    original = census_source(safetensors(folder, tensors))

    assert (TABLE, HEAD) in tied(original)
    assert all(np.array_equal(original.weights.array(name), values) for name in (TABLE, HEAD))


def test_a_tie_that_the_checkpoint_has_broken_is_no_tie(folder: Path, tensors: TensorDict) -> None:
    tensors[HEAD] = tensors[HEAD] + 1

    original = census_source(safetensors(folder, tensors))

    assert not any(TABLE in names for names in tied(original))
    assert np.array_equal(original.weights.array(HEAD), tensors[HEAD].numpy())


def test_what_the_class_does_not_know_is_kept_and_reported(folder: Path, tensors: TensorDict) -> None:
    extra = {"spare.weight": torch.ones(3, 2), "spare.running_mean": torch.arange(3.0)}

    original = census_source(safetensors(folder, {**tensors, **extra}))

    assert original.manifest.parameters[-1].name == "spare.weight"
    assert original.manifest.buffers[-1].name == "spare.running_mean"
    assert np.array_equal(original.weights.array("spare.running_mean"), [0, 1, 2])
    (note,) = original.notes
    assert note.endswith("by their names: spare.running_mean, spare.weight")


def test_unknown_names_are_those_in_the_file_whatever_transformers_calls_them(tmp_path: Path) -> None:
    model = resolve_source(write_source("vit", tmp_path), SourceOptions(random_weights=True)).model
    with quiet():
        model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 1}))

    original = census_source(str(tmp_path / "model.safetensors"))

    assert original.manifest.numel == sum(p.numel() for p in model.parameters())
    assert without_values(original) == []
    assert "vit.encoder.layer.1.layernorm_before.bias" in {p.name for p in original.manifest.parameters}


def test_what_the_checkpoint_lacks_is_described_without_values_and_reported(
    folder: Path, tensors: TensorDict
) -> None:
    del tensors[QUERY]

    original = census_source(safetensors(folder, tensors))

    assert without_values(original) == [QUERY]
    assert any("lacks tensors that BertForMaskedLM has" in note and QUERY in note for note in original.notes)


def test_shapes_are_the_checkpoints(folder: Path, tensors: TensorDict) -> None:
    name = "bert.embeddings.position_embeddings.weight"
    tensors[name] = torch.randn(10, 32)

    original = census_source(safetensors(folder, tensors))

    found = next(p for p in original.manifest.parameters if p.name == name)
    assert found.shape == original.weights.array(name).shape == (10, 32)
    assert any("other shapes" in note and name in note for note in original.notes)


@pytest.mark.parametrize(
    "of", [(torch.bfloat16,), (torch.float32, torch.float16), (torch.bfloat16, torch.float16)]
)
def test_types_are_the_checkpoints(folder: Path, tensors: TensorDict, of: tuple[Any, ...]) -> None:
    cast = {name: tensor.to(of["query" in name and len(of) > 1]) for name, tensor in tensors.items()}

    original = census_source(safetensors(folder, cast))

    assert original.manifest.source["parameters_by"] == "meta-device"
    for parameter in original.manifest.parameters:
        assert parameter.dtype is TORCH_DTYPES[cast[parameter.name].dtype]
        stored = cast[parameter.name].view(torch.uint8).numpy().tobytes()
        assert original.weights.array(parameter.name).tobytes() == stored


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (CONFIGS["gpt2"], "it has no tensor of GPT2LMHeadModel"),
        ({"model_type": "no-such-model"}, "the config cannot be used"),
        ({**CONFIGS["bert"], "architectures": ["NoSuchModel"]}, "'NoSuchModel'"),
    ],
)
def test_a_config_that_does_not_fit_leaves_the_names_and_says_so(
    folder: Path, tensors: TensorDict, config: dict[str, Any], reason: str
) -> None:
    (folder / "config.json").write_text(json.dumps(config))

    original = census_source(safetensors(folder, tensors))

    assert original.manifest.source["parameters_by"] == "names"
    assert {p.name for p in original.manifest.parameters} == tensors.keys()
    assert "told apart by their names" in original.notes[0]
    assert reason in original.notes[0]


def test_quantized_tensors_leave_the_names(folder: Path, tensors: TensorDict) -> None:
    tensors[QUERY] = tensors[QUERY].to(torch.float8_e4m3fn)

    original = census_source(safetensors(folder, tensors))

    assert "quantized, to float8_e4m3fn" in original.notes[0]
    assert next(p for p in original.manifest.parameters if p.name == QUERY).dtype is DType.FLOAT8E4M3FN


def test_class_option_chooses_the_class_and_its_failure_is_an_error(
    folder: Path, tensors: TensorDict
) -> None:
    path = safetensors(folder, tensors)

    assert census_source(path, model_class="AutoModel").manifest.source["class"] == "BertModel"
    with pytest.raises(SourceError, match="takes a GPT2Config"):
        census_source(path, model_class="GPT2Model")
    (folder / "config.json").unlink()
    with pytest.raises(UsageError, match=r"no config\.json beside"):
        census_source(path, model_class="BertModel")


def test_a_broken_safetensors_file_is_reported_as_without_torch(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"nothing")

    with pytest.raises(ManifestError, match="no header begins at byte 8"):
        census_source(str(folder / "model.safetensors"))


def test_shards_are_one_checkpoint(bert: Any, folder: Path) -> None:
    with quiet():
        bert.save_pretrained(folder, max_shard_size="20KB")

    original = census_source(str(folder / "model.safetensors.index.json"))

    assert original.manifest.parameters == take_census(bert, evidence=False).parameters
    assert without_values(original) == []


# state dicts of torch.save


def test_shared_storage_is_a_tie(bert: Any, tmp_path: Path) -> None:
    original = census_source(pickled(tmp_path, bert.state_dict()))

    assert original.manifest.source["parameters_by"] == "names"
    assert (TABLE, HEAD) in tied(original)
    assert original.manifest.numel == sum(p.numel() for p in bert.parameters())
    assert without_values(original) == []


@pytest.mark.parametrize("key", ["state_dict", "model_state_dict", "model"])
def test_a_nested_state_dict_is_found_and_reported(tmp_path: Path, tensors: TensorDict, key: str) -> None:
    content = {"epoch": 3, "step": torch.tensor(7), key: tensors, "optimizer": {"state": {}}}

    original = census_source(pickled(tmp_path, content, "checkpoint.pt"))

    assert {p.name for p in original.manifest.parameters} == tensors.keys()
    assert any(f"is its {key!r}; left out: epoch, optimizer, step" in note for note in original.notes)


@pytest.mark.parametrize(
    ("beside", "key"),
    [
        ({"acc": 91.2, "epoch": 1}, "net"),
        ({"acc": torch.tensor(91.2)}, "net"),
        ({"optimizer": {"state": {0: {"exp_avg": torch.ones(2)}}, "param_groups": [{"lr": 0.1}]}}, "encoder"),
    ],
)
def test_the_only_mapping_of_tensors_is_the_state_dict(
    tmp_path: Path, tensors: TensorDict, beside: dict[str, Any], key: str
) -> None:
    original = census_source(pickled(tmp_path, {**beside, key: tensors}, "checkpoint.pt"))

    assert {p.name for p in original.manifest.parameters} == tensors.keys()
    assert any(f"is its {key!r}; left out: {', '.join(sorted(beside))}" in note for note in original.notes)


def test_the_state_of_a_module_beside_its_tensors_is_no_state_dict(tmp_path: Path) -> None:
    content = {"scale": torch.tensor(3.5), "_extra_state": {"amax": torch.ones(4)}}

    original = census_source(pickled(tmp_path, content))

    assert [p.name for p in original.manifest.parameters] == ["scale"]


def test_several_state_dicts_are_refused_and_listed(tmp_path: Path, tensors: TensorDict) -> None:
    content = {"generator": tensors, "discriminator": {"fc.weight": torch.ones(2, 3)}, "epoch": 3}

    with pytest.raises(
        SourceError,
        match=r"holds 2 state dicts: discriminator, generator; .*\['discriminator'\], 'state.pt'\)",
    ):
        census_source(pickled(tmp_path, content, "checkpoint.pt"))


@pytest.mark.parametrize(
    ("other", "path"),
    [
        (lambda tensors: {"state_dict_ema": tensors}, "['state_dict_ema']"),
        (lambda tensors: {"model_ema": {"module": tensors}}, "['model_ema']['module']"),
    ],
)
def test_another_state_dict_beside_the_one_that_was_read_is_reported(
    tmp_path: Path, tensors: TensorDict, other: Callable[[TensorDict], dict[str, Any]], path: str
) -> None:
    content = {"state_dict": {"fc.weight": torch.ones(2, 3)}, **other(tensors)}

    original = census_source(pickled(tmp_path, content, "checkpoint.pt"))

    assert [p.name for p in original.manifest.parameters] == ["fc.weight"]
    assert any(
        "other state dicts in it" in note and f"{path}, 'state.pt')" in note for note in original.notes
    )


@pytest.mark.parametrize("how", [{}, {"_use_new_zipfile_serialization": False}], ids=["zip", "legacy"])
@pytest.mark.parametrize("name", ["a.bin", "a.pt", "a.pth", "a.ckpt", "no-suffix"])
def test_both_formats_are_read_whatever_the_suffix(tmp_path: Path, name: str, how: dict[str, bool]) -> None:
    tensors = {"fc.weight": torch.arange(6.0).reshape(2, 3), "half": torch.ones(2).bfloat16()}

    original = census_source(pickled(tmp_path, tensors, name, **how))

    assert np.array_equal(original.weights.array("fc.weight"), np.arange(6.0).reshape(2, 3))
    assert original.weights.array("half").dtype == DType.BFLOAT16.to_numpy()


def test_an_archive_that_was_packed_anew_has_the_same_values(tmp_path: Path) -> None:
    tensors = {"fc.weight": torch.arange(4096.0).reshape(64, 64)}
    plain = pickled(tmp_path, tensors)
    packed = tmp_path / "packed.pt"
    with zipfile.ZipFile(plain) as archive, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as made:
        for record in archive.infolist():
            made.writestr(record.filename, archive.read(record))

    original = census_source(str(packed))

    assert np.array_equal(original.weights.array("fc.weight"), tensors["fc.weight"].numpy())


def test_an_archive_that_becomes_too_much_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "bomb.pt"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made,
        made.open("archive/data.pkl", "w", force_zip64=True) as record,
    ):
        for _ in range(300):
            record.write(b"0" * 2**20)

    with pytest.raises(SourceError, match="compressed records become 314,572,800 bytes"):
        census_source(str(path))


def test_what_is_no_tensor_is_left_out_and_reported(tmp_path: Path) -> None:
    original = census_source(pickled(tmp_path, {"w": torch.ones(2), "version": 3, "_extra_state": None}))

    assert [p.name for p in original.manifest.parameters] == ["w"]
    assert any("no tensors, left out: _extra_state, version" in note for note in original.notes)


def test_shards_of_a_pickled_checkpoint_are_one(bert: Any, folder: Path, tensors: TensorDict) -> None:
    half = len(tensors) // 2
    parts = [dict(list(tensors.items())[:half]), dict(list(tensors.items())[half:])]
    shards = {}
    for number, part in enumerate(parts):
        pickled(folder, part, f"pytorch_model-{number}.bin")
        shards |= dict.fromkeys(part, f"pytorch_model-{number}.bin")
    path = folder / "pytorch_model.bin.index.json"
    path.write_text(json.dumps({"weight_map": shards}))

    original = census_source(str(path))

    assert original.manifest.parameters == take_census(bert, evidence=False).parameters
    path.write_text(json.dumps({"weight_map": {**shards, "x": "pytorch_model-0.bin"}}))
    with pytest.raises(SourceError, match="no shard holds x"):
        census_source(str(path))
    path.write_text(json.dumps({"weight_map": {"x": "../pytorch_model-0.bin"}}))
    with pytest.raises(ManifestError, match="no plain file name"):
        census_source(str(path))


def endless() -> TensorDict:
    return {"w": torch.ones(1).expand(1 << 30, 1 << 8)}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (lambda: [torch.ones(2)], "holds a list and no state dict"),
        (lambda: {"epoch": 3}, "holds no state dict, only epoch"),
        (dict, "holds no state dict, only nothing"),
        (lambda: torch.ones(2), "holds a Tensor and no state dict"),
        (endless, "few bytes, repeated to more elements than any model has: w"),
    ],
)
def test_what_holds_no_state_dict_is_refused(
    tmp_path: Path, content: Callable[[], object], sentence: str
) -> None:
    with pytest.raises(SourceError, match=sentence):
        census_source(pickled(tmp_path, content()))


@pytest.mark.parametrize("content", [b"", b"nothing", b"PK\x03\x04nothing", b"\x80\x02nothing"])
def test_a_broken_pickle_is_reported_in_a_sentence(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.bin").write_bytes(content)

    with pytest.raises(SourceError, match=r"x\.bin: ") as error:
        census_source(str(tmp_path / "x.bin"))

    assert "\n" not in str(error.value)


def test_a_truncated_archive_is_reported_in_a_sentence(tmp_path: Path, tensors: TensorDict) -> None:
    path = Path(pickled(tmp_path, tensors))
    path.write_bytes(path.read_bytes()[:-2000])

    with pytest.raises(SourceError, match="no state dict that torch can read"):
        census_source(str(path))


# values


@pytest.mark.parametrize("dtype", TORCH_DTYPES)
def test_values_are_views_of_the_tensors_memory(dtype: Any) -> None:
    width = torch.empty(0, dtype=dtype).element_size()
    tensor = torch.arange(12 * width, dtype=torch.uint8).view(dtype).reshape(3, 4)
    weights = TensorWeights({"whole": tensor, "turned": tensor.T, "part": tensor[1:, ::2]})

    for name, view in weights.tensors.items():
        array = weights.array(name)

        assert array.shape == tuple(view.shape)
        assert array.dtype == TORCH_DTYPES[dtype].to_numpy()
        assert array.__array_interface__["data"][0] == view.data_ptr()
        assert array.strides == tuple(stride * width for stride in view.stride())


def test_there_are_no_values_on_the_meta_device_nor_of_other_layouts() -> None:
    with torch.device("meta"):
        module = torch.nn.Linear(2, 3)

    assert weights_of(module) is None
    assert TensorWeights({"w": torch.ones(2, 2).to_sparse()}).array("w") is None
    assert TensorWeights({"w": torch.ones(2, 2)}).array("absent") is None


def test_a_factory_and_a_config_with_random_weights_have_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "small_factory.py").write_text(FACTORY)
    monkeypatch.chdir(tmp_path)

    for source in ("small_factory:build", write_source("bert", tmp_path)):
        original = census_source(source, random_weights=True)

        assert without_values(original) == []
        assert not original.manifest.has_content


def test_a_folder_has_the_values_that_its_checkpoint_has(folder: Path, tensors: TensorDict) -> None:
    del tensors[QUERY]
    safetensors(folder, tensors)
    (folder / "model.safetensors").rename(folder / "m.safetensors")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    original = census_source(str(folder))

    assert without_values(original) == [QUERY]


# export


def test_a_checkpoint_file_is_a_source_of_export(bert: Any, folder: Path, tensors: TensorDict) -> None:
    resolved = resolve_source(safetensors(folder, tensors), SourceOptions())

    assert resolved.class_name == "BertForMaskedLM"
    assert all(torch.equal(p, resolved.model.get_parameter(n)) for n, p in bert.named_parameters())


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda folder, tensors: (folder / "config.json").unlink(), r"no config\.json is beside it"),
        (
            lambda folder, tensors: tensors.update({QUERY: torch.ones(3, 3)}),
            f"other shapes than BertForMaskedLM .*: {QUERY}",
        ),
    ],
)
def test_a_checkpoint_file_that_makes_no_model_is_no_source_of_export(
    folder: Path, tensors: TensorDict, change: Callable[[Path, TensorDict], object], sentence: str
) -> None:
    change(folder, tensors)

    with pytest.raises(SourceError, match=sentence):
        resolve_source(safetensors(folder, tensors), SourceOptions())
