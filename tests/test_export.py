"""Files that an export writes: a model that computes the same as PyTorch, and its manifest."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from exports import CONFIGS, FACTORY, TYPED, Exported, write_source
from samples import sampled

from analyzer.errors import ExportError, MissingExtraError, UsageError
from analyzer.manifest import load_manifest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
onnxruntime = pytest.importorskip("onnxruntime")

from exporter import (  # noqa: E402  after the skip
    ResolvedModel,
    SourceOptions,
    example_inputs,
    export_source,
    resolve_source,
)
from exporter.inputs import forward_names  # noqa: E402

pytestmark = pytest.mark.export

GENERATED = sampled(["gpt2", "llama", "t5", "whisper"], ["t5"])
"""Presets for tests of generation; the sample has an encoder and a decoder, and only its decoder is fused."""

# Largest difference allowed, as a share of the output's largest magnitude. fp16 has 11 bits (5e-4 a rounding), and
# the two runtimes round after different operations.
TOLERANCE = {"fp32": 1e-4, "fp16": 1e-2}


def inputs_of(resolved: ResolvedModel) -> dict[str, Any]:
    made = example_inputs(resolved.model, resolved.config, resolved.example_inputs)
    return dict(made.kwargs) or dict(zip(forward_names(resolved.model), made.args, strict=True))


def worst_difference(exported: Exported, inputs: dict[str, Any]) -> float:
    """Return the difference between onnxruntime and PyTorch, relative to the output's scale, over all outputs."""
    session = onnxruntime.InferenceSession(str(exported.files.model))
    feed = {i.name: inputs[i.name].numpy() for i in session.get_inputs()}
    found = session.run(None, feed)
    expected = torch_outputs(exported.resolved.model, inputs)
    assert len(found) == len(expected)
    return max(
        float(np.abs(ours.astype(np.float32) - theirs).max() / np.abs(theirs).max())
        for ours, theirs in zip(found, expected, strict=True)
    )


def torch_outputs(model: Any, inputs: dict[str, Any]) -> list[Any]:
    fixed = {"use_cache": False} if "use_cache" in forward_names(model) else {}
    with torch.no_grad():
        outputs = model(**inputs, **fixed)
    tensors = (
        [outputs] if isinstance(outputs, torch.Tensor) else [v for v in outputs.values() if v is not None]
    )
    return [tensor.float().numpy() for tensor in tensors]


def stored_elements(path: Path) -> int:
    model = onnx.load(path, load_external_data=False)
    return sum(int(np.prod(t.dims)) for t in model.graph.initializer if t.data_type != onnx.TensorProto.INT64)


@pytest.mark.parametrize(("name", "dtype"), TYPED)
def test_onnxruntime_computes_what_pytorch_computes(exported, name, dtype):
    made = exported(name, dtype)

    assert worst_difference(made, inputs_of(made.resolved)) < TOLERANCE[dtype]


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "t5"])
def test_batch_and_sequence_may_differ_from_the_example(exported, name):
    made = exported(name)
    batch, lengths = 3, {"input_ids": 9, "attention_mask": 9, "token_type_ids": 9, "decoder_input_ids": 4}
    inputs = {
        key: torch.ones(batch, lengths[key], dtype=torch.long) if key != "token_type_ids" else
        torch.zeros(batch, lengths[key], dtype=torch.long)
        for key in inputs_of(made.resolved)
    }  # fmt: skip

    assert worst_difference(made, inputs) < TOLERANCE["fp32"]


@pytest.mark.parametrize("name", ["whisper", "vit", "resnet", "factory"])
def test_batch_may_differ_from_the_example(exported, name):
    made = exported(name)
    inputs = {key: torch.cat([value, value[:1]]) for key, value in inputs_of(made.resolved).items()}

    assert worst_difference(made, inputs) < TOLERANCE["fp32"]


@pytest.mark.parametrize("name", ["bert", "gpt2", "t5", "factory"])
def test_torchscript_computes_what_pytorch_computes(exported, name):
    made = exported(name, via="torchscript")

    assert worst_difference(made, inputs_of(made.resolved)) < TOLERANCE["fp32"]


def test_torchscript_stores_a_tied_matrix_twice_and_keeps_names_without_prefix(exported):
    made = exported("bert", via="torchscript")

    manifest = made.files.manifest
    names = {t.name for t in onnx.load(made.files.model).graph.initializer}
    assert stored_elements(made.files.model) == manifest.numel + 99 * 32
    assert "bert.embeddings.word_embeddings.weight" in names
    assert manifest.trace == "exported-program"
    assert all(p.read for p in manifest.parameters)


def test_dynamo_exports_a_transformers_model_too(exported):
    made = exported("resnet", via="dynamo")

    assert worst_difference(made, inputs_of(made.resolved)) < TOLERANCE["fp32"]
    assert made.files.manifest.trace == "exported-program"


def test_every_parameter_of_random_weights_is_stored(exported):
    made = exported("bert")

    assert stored_elements(made.files.model) >= made.files.manifest.numel


def test_unused_parameter_is_not_read(exported):
    manifest = exported("factory").files.manifest

    assert [p.name for p in manifest.parameters if not p.read] == ["spare.weight", "spare.bias"]


def test_manifest_says_where_the_model_came_from_and_nothing_of_the_machine(exported):
    made = exported("bert")

    source = dict(load_manifest(made.files.manifest_path).source)
    assert source["class"] == "BertForMaskedLM"
    assert source["model_type"] == "bert"
    assert source["weights"] == "random"
    assert source["seed"] == "0"
    assert source["exporter"] == "transformers"
    typed = source.pop("source")
    assert typed == made.resolved.name
    assert not any("/" in value for value in source.values())


def test_folder_holds_what_the_contract_names(exported):
    made = exported("bert")

    assert made.names == ["config.json", "export.json", "manifest.json", "model.onnx", "model.onnx.data"]


@pytest.mark.parametrize("via", [None, "torchscript"])
def test_config_beside_the_model_rebuilds_the_same_class(exported, via):
    made = exported("bert", via=via)

    again = resolve_source(str(made.files.model.parent), SourceOptions(meta_without_weights=True))

    assert again.class_name == "BertForMaskedLM"
    assert again.weights == "meta"


@pytest.mark.parametrize(("name", "via"), [("bert", None), ("bert", "torchscript"), ("factory", None)])
def test_export_json_names_the_component(exported, name, via):
    folder = exported(name, via=via).files.model.parent

    document = json.loads((folder / "export.json").read_text())

    assert [component["file"] for component in document["components"].values()] == ["model.onnx"]


def test_chosen_head_is_what_the_config_names(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS["bert"]))

    files = export_source(
        str(tmp_path), tmp_path / "out", model_class="AutoModel", random_weights=True, via="torchscript"
    )

    config = json.loads((files.model.parent / "config.json").read_text())
    assert config["architectures"] == ["BertModel"]
    assert files.manifest.source["class"] == "BertModel"


def test_static_export_fixes_every_axis(tmp_path):
    source = write_source("vit", tmp_path)

    files = export_source(source, tmp_path / "out", random_weights=True, static=True, via="torchscript")

    shape = onnx.load(files.model).graph.input[0].type.tensor_type.shape
    assert [dim.dim_value for dim in shape.dim] == [2, 3, 32, 32]


def test_opset_is_the_requested_one(tmp_path):
    source = write_source("vit", tmp_path)

    files = export_source(source, tmp_path / "out", random_weights=True, opset=17, via="torchscript")

    assert onnx.load(files.model).opset_import[0].version == 17


def test_export_prints_nothing_and_says_what_it_does(tmp_path, capfd):
    source = write_source("bert", tmp_path)
    lines: list[str] = []

    export_source(source, tmp_path / "out", random_weights=True, via="torchscript", say=lines.append)

    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "")
    assert any("BertForMaskedLM" in line for line in lines)


@pytest.mark.parametrize("via", ["dynamo", "torchscript"])
def test_example_with_a_batch_of_one_still_exports_a_batch_that_varies(tmp_path, monkeypatch, via):
    name = f"one_image_{via}"
    (tmp_path / f"{name}.py").write_text(FACTORY.replace("randn(2,", "randn(1,"))
    monkeypatch.chdir(tmp_path)

    files = export_source(f"{name}:build", tmp_path / "out", via=via)

    session = onnxruntime.InferenceSession(str(files.model))
    (output,) = session.run(None, {"image": np.ones((5, 3, 9, 9), np.float32)})
    assert output.shape == (5, 4)


UNTRACEABLE = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(3))
    def forward(self, x):
        if torch.compiler.is_compiling():
            raise ValueError("not to be traced")
        return x * self.scale

def build():
    return Net(), (torch.ones(2, 3),)
"""


def test_failure_leaves_the_folder_as_it_was_and_nothing_beside_it(tmp_path, monkeypatch, capfd):
    (tmp_path / "untraceable_net.py").write_text(UNTRACEABLE)
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "out"
    out.mkdir()
    (out / "model.onnx").write_bytes(b"precious")
    before = sorted(path.name for path in tmp_path.iterdir() if path.name != "__pycache__")

    with pytest.raises(ExportError, match=r"Net: the export through dynamo failed: .*try --via") as caught:
        export_source("untraceable_net:build", out)

    assert "\n" not in str(caught.value)
    assert caught.value.__cause__ is not None
    assert (out / "model.onnx").read_bytes() == b"precious"
    assert [path.name for path in out.iterdir()] == ["model.onnx"]
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "__pycache__") == before
    assert capfd.readouterr().out == ""


def test_failure_makes_no_folder(tmp_path, monkeypatch):
    (tmp_path / "untraceable_too.py").write_text(UNTRACEABLE)
    monkeypatch.chdir(tmp_path)

    with pytest.raises(ExportError):
        export_source("untraceable_too:build", tmp_path / "a" / "b")

    assert not (tmp_path / "a").exists()


def test_second_export_replaces_the_first_and_its_weights_file(tmp_path):
    source = write_source("vit", tmp_path)
    out = tmp_path / "out"
    out.mkdir()
    (out / "model.onnx").write_bytes(b"old")
    (out / "model.onnx.data").write_bytes(b"weights of the old one")
    (out / "notes.txt").write_text("mine")

    export_source(source, out, random_weights=True, via="torchscript")

    assert not (out / "model.onnx.data").exists()
    assert (out / "notes.txt").read_text() == "mine"
    onnx.checker.check_model(out / "model.onnx")


def test_same_seed_gives_the_same_model_and_manifest_bytes(tmp_path):
    source = write_source("vit", tmp_path)

    first, second = (
        export_source(source, tmp_path / name, random_weights=True, via="torchscript") for name in "ab"
    )

    assert first.model.read_bytes() == second.model.read_bytes()
    assert first.manifest_path.read_bytes() == second.manifest_path.read_bytes()


def test_output_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "out").write_text("")

    with pytest.raises(ExportError, match="is a file; name a folder"):
        export_source(write_source("vit", tmp_path), tmp_path / "out", random_weights=True)


@pytest.mark.parametrize(
    ("via", "message"),
    [
        ("optimum", "not one of transformers, dynamo, torchscript"),
        ("transformers", "is no transformers model"),
    ],
)
def test_exporter_that_cannot_do_it_is_a_usage_error(tmp_path, monkeypatch, via, message):
    (tmp_path / "plain_factory.py").write_text(FACTORY)
    monkeypatch.chdir(tmp_path)

    with pytest.raises(UsageError, match=message):
        export_source("plain_factory:build", tmp_path / "out", via=via)


def test_decoder_that_classifies_is_given_a_padding_token(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS["gpt2"]))
    lines: list[str] = []

    export_source(
        str(tmp_path),
        tmp_path / "out",
        model_class="GPT2ForSequenceClassification",
        random_weights=True,
        via="torchscript",
        say=lines.append,
    )

    assert any("no padding token, using 2" in line for line in lines)


def test_missing_onnxscript_names_the_extra(tmp_path, monkeypatch):
    import importlib.util

    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "onnxscript" else find(name, *rest)
    )

    with pytest.raises(MissingExtraError, match="onnxscript"):
        export_source(write_source("vit", tmp_path), tmp_path / "out", random_weights=True)


FIXED = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.arange(1.0, 3.0))
    def forward(self, rows):
        return torch.stack([row * self.scale.sum() for row in rows])

def build():
    return Net(), (torch.ones(2, 3),)
"""


def test_axis_that_the_model_fixes_is_named(tmp_path, monkeypatch):
    (tmp_path / "fixed_rows.py").write_text(FIXED)
    monkeypatch.chdir(tmp_path)
    lines: list[str] = []

    export_source("fixed_rows:build", tmp_path / "out", say=lines.append)

    assert "axis 0 of rows came out fixed, at 2" in lines


DROPPED = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
        self.last_norm = torch.nn.LayerNorm(4)
    def forward(self, x):
        kept = self.layer(x)
        self.last_norm(kept)
        return kept

def build():
    return Net(), (torch.ones(2, 4),)
"""


def test_what_is_called_and_reaches_no_output_is_not_read_through_torchscript_either(tmp_path, monkeypatch):
    (tmp_path / "dropped_norm.py").write_text(DROPPED)
    monkeypatch.chdir(tmp_path)

    files = export_source("dropped_norm:build", tmp_path / "out", via="torchscript")

    unread = {p.name for p in files.manifest.parameters if not p.read}
    assert unread == {"last_norm.weight", "last_norm.bias"}
    assert files.manifest.trace == "exported-program"


def test_what_cannot_be_traced_is_read_where_a_function_is_called_with_it(tmp_path, monkeypatch):
    (tmp_path / "untraceable_still.py").write_text(UNTRACEABLE)
    monkeypatch.chdir(tmp_path)

    files = export_source("untraceable_still:build", tmp_path / "out", via="torchscript")

    assert [p.read for p in files.manifest.parameters] == [True]
    assert files.manifest.trace == "function-calls"


def test_opset_that_the_exporter_cannot_write_is_refused(tmp_path, monkeypatch):
    (tmp_path / "old_opset.py").write_text(FACTORY)
    monkeypatch.chdir(tmp_path)

    with pytest.raises(ExportError, match=r"opset 7|export through dynamo failed"):
        export_source("old_opset:build", tmp_path / "out", opset=7)

    assert not (tmp_path / "out").exists()


def test_weights_scattered_over_files_become_one_file(tmp_path):
    from exporter.engines import _gather_data

    weights = np.arange(4000, dtype=np.float32)
    tensors = [onnx.numpy_helper.from_array(weights, name) for name in ("a", "b")]
    graph = onnx.helper.make_graph([], "scattered", [], [], tensors)
    onnx.save(
        onnx.helper.make_model(graph),
        tmp_path / "model.onnx",
        save_as_external_data=True,
        all_tensors_to_one_file=False,
    )

    _gather_data(tmp_path)

    assert {path.name for path in tmp_path.iterdir()} == {"model.onnx", "model.onnx.data"}
    stored = onnx.load(tmp_path / "model.onnx").graph.initializer
    assert all(np.array_equal(onnx.numpy_helper.to_array(t), weights) for t in stored)


def provenance_of(files: Any) -> dict[str, str]:
    """Return the manifest's notes on options that the file's exporter does not use by default."""
    return {k: v for k, v in files.manifest.source.items() if k in ("optimized", "fused", "generation")}


@pytest.mark.parametrize(("name", "via"), [("vit", "transformers"), ("resnet", "dynamo")])
def test_graph_that_is_not_optimized_keeps_every_parameter_as_it_is(exported, name, via):
    made = exported(name, via=via, optimize=False)

    stored = {t.name: tuple(t.dims) for t in onnx.load(made.files.model).graph.initializer}
    assert {p.name: p.shape for p in made.files.manifest.parameters}.items() <= stored.items()
    assert worst_difference(made, inputs_of(made.resolved)) < TOLERANCE["fp32"]
    assert provenance_of(made.files) == {"optimized": "false"}


def test_manifest_of_a_default_export_has_no_options(exported):
    assert provenance_of(exported("bert").files) == {}


@pytest.mark.parametrize("name", sampled(["bert", "llama", "vit"], ["vit"]))
def test_graph_fused_for_the_cpu_computes_what_pytorch_computes(exported, name):
    made = exported(name, fuse="cpu")

    domains = {node.domain for node in onnx.load(made.files.model).graph.node}
    assert "com.microsoft" in domains
    assert worst_difference(made, inputs_of(made.resolved)) < TOLERANCE["fp32"]
    assert provenance_of(made.files) == {"fused": "cpu"}
    assert all(p.read for p in made.files.manifest.parameters)


def test_fused_export_leaves_the_same_files(exported):
    made = exported("vit", fuse="cuda")

    assert made.names == ["config.json", "export.json", "manifest.json", "model.onnx", "model.onnx.data"]
    assert provenance_of(made.files) == {"fused": "cuda"}


def test_fusion_that_fails_says_how_to_go_on_and_writes_nothing(tmp_path, monkeypatch):
    from transformers.exporters import exporter_onnx

    def fail(model, provider):
        raise RuntimeError("no such pattern")

    monkeypatch.setattr(exporter_onnx, "fuse_for_onnxruntime", fail)
    source = write_source("resnet", tmp_path)

    with pytest.raises(ExportError, match=r"no such pattern; try .*, or leave out --fuse"):
        export_source(source, tmp_path / "out", random_weights=True, fuse="cpu")

    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"optimize": False, "via": "torchscript"}, "torchscript exporter has no such option"),
        ({"fuse": "cpu", "via": "dynamo"}, "only the transformers exporter fuses"),
        ({"fuse": "cpu", "optimize": False}, "--fuse and --no-optimize contradict each other"),
        ({"fuse": "tpu"}, "fuse 'tpu' is not one of cpu, cuda"),
        ({"generation": True, "via": "dynamo"}, "only the transformers exporter takes a model apart"),
        ({"generation": True, "static": True}, "--generation and --static contradict each other"),
    ],
)
def test_options_that_an_exporter_cannot_follow_are_refused_before_the_model_is_built(
    tmp_path, options, message
):
    lines: list[str] = []

    with pytest.raises(UsageError, match=message):
        export_source(write_source("bert", tmp_path), tmp_path / "out", say=lines.append, **options)

    assert lines == []


@pytest.mark.parametrize("option", [{"fuse": "cpu"}, {"generation": True}])
def test_factory_without_a_transformers_model_is_refused_what_transformers_does(
    tmp_path, monkeypatch, option
):
    (tmp_path / "refused_factory.py").write_text(FACTORY)
    monkeypatch.chdir(tmp_path)

    with pytest.raises(UsageError, match=r"only the transformers exporter .* export through dynamo"):
        export_source("refused_factory:build", tmp_path / "out", **option)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--no-optimize", "--via", "torchscript"], "--no-optimize: "),
        (["--fuse", "cuda", "--via", "dynamo"], "--fuse: "),
        (["--generation", "--static"], "--generation and --static "),
    ],
)
def test_command_line_has_these_options(tmp_path, arguments, message):
    from analyzer.cli import command

    with pytest.raises(UsageError, match=f"^{message}"):
        command.main(["export", "gpt2", "-o", str(tmp_path / "out"), *arguments], standalone_mode=False)


def test_model_that_does_not_generate_is_refused(tmp_path):
    with pytest.raises(UsageError, match="BertForMaskedLM does not generate; pass --class"):
        export_source(write_source("bert", tmp_path), tmp_path / "out", random_weights=True, generation=True)


class Loop:
    """Generation loop of a server: onnxruntime sessions, and the state that each passes on."""

    def __init__(self, files: Any) -> None:
        self.sessions = {path.stem: onnxruntime.InferenceSession(str(path)) for path in files.models}
        self.state: dict[str, Any] = {}

    def call(self, component: str, inputs: dict[str, Any]) -> dict[str, Any]:
        session = self.sessions[component]
        known = {**self.state, **inputs}
        feed = {i.name: known[i.name.removeprefix("input.")] for i in session.get_inputs()}
        names = [o.name.removeprefix("output.") for o in session.get_outputs()]
        outputs = dict(zip(names, session.run(None, feed), strict=True))
        self.state |= {
            name: value for name, value in outputs.items() if name.startswith(("past_key_values", "cache."))
        }
        return outputs


def worst_step(made: Exported, prompt: dict[str, Any], steps: int) -> float:
    """Return the difference of the loop's logits from PyTorch's, which rereads the whole sequence for each token."""
    model, loop = made.resolved.model, Loop(made.files)
    ids = "decoder_input_ids" if "encoder" in loop.sessions else "input_ids"
    if "encoder" in loop.sessions:
        encoded = loop.call("encoder", {name: value.numpy() for name, value in prompt.items()})
        loop.state["encoder_outputs.last_hidden_state"] = encoded["last_hidden_state"]
    tokens, worst = prompt[ids], 0.0
    for step in range(steps):
        new = tokens if step == 0 else tokens[:, -1:]
        inputs = {**prompt, ids: new}
        if ids == "input_ids":
            first = tokens.shape[1] - new.shape[1]
            inputs["attention_mask"] = torch.ones_like(tokens)
            inputs["position_ids"] = torch.arange(first, tokens.shape[1]).expand(new.shape)
        feed = {name: value.numpy() for name, value in inputs.items()}
        found = loop.call("prefill" if step == 0 else "decode", feed)["logits"][:, -1]
        with torch.no_grad():
            whole = {name: value for name, value in prompt.items() if name != ids}
            expected = model(**whole, **{ids: tokens}, use_cache=False).logits[:, -1].numpy()
        worst = max(worst, float(np.abs(found - expected).max() / np.abs(expected).max()))
        tokens = torch.cat([tokens, torch.tensor(found.argmax(-1))[:, None]], dim=1)
    return worst


@pytest.mark.parametrize(("batch", "length"), [(1, 1), (3, 6)])
@pytest.mark.parametrize("name", GENERATED)
def test_components_generate_what_pytorch_generates(exported, name, batch, length):
    made = exported(name, generation=True)
    tokens = torch.arange(4, 4 + batch * length).reshape(batch, length)
    prompts = {
        "t5": {"input_ids": torch.arange(4, 4 + batch * 9).reshape(batch, 9), "decoder_input_ids": tokens},
        "whisper": {
            "input_features": torch.linspace(-1, 1, batch * 960).reshape(batch, 16, 60),
            "decoder_input_ids": tokens,
        },
    }
    prompt = prompts.get(name, {"input_ids": tokens})
    if name == "t5":
        prompt["attention_mask"] = torch.ones_like(prompt["input_ids"])

    assert worst_step(made, prompt, steps=4) < TOLERANCE["fp32"]


@pytest.mark.parametrize("how", sampled([{"fuse": "cpu"}, {"optimize": False}], [{"fuse": "cpu"}]))
def test_components_may_be_fused_or_left_as_traced(exported, how):
    made = exported("llama", generation=True, **how)

    for prompt in (torch.tensor([[4]]), torch.arange(4, 22).reshape(3, 6)):
        assert worst_step(made, {"input_ids": prompt}, steps=3) < TOLERANCE["fp32"]
    assert provenance_of(made.files).keys() == {
        "generation",
        *({"fused"} if "fuse" in how else {"optimized"}),
    }


@pytest.mark.parametrize(
    ("name", "how", "components"),
    [("llama", {"fuse": "cpu"}, ["prefill", "decode"]), ("t5", {}, ["encoder", "prefill", "decode"])],
)
def test_folder_of_a_generation_export_holds_its_components_and_one_manifest(exported, name, how, components):
    files = exported(name, generation=True, **how).files

    folder = files.artifact
    document = json.loads((folder / "export.json").read_text())
    models = [f"{component}.onnx" for component in components]
    notes = ["config.json", "export.json", "generation_config.json", "manifest.json"]
    assert [component["file"] for component in document["components"].values()] == models
    assert [path.name for path in files.models] == models
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        [*notes, *models, *(f"{model}.data" for model in models)]
    )
    assert [path.name for path in files.files] == sorted(path.name for path in folder.iterdir())
    with pytest.raises(ValueError, match="unpack"):
        _ = files.model


@pytest.mark.parametrize("name", GENERATED)
def test_manifest_is_the_whole_models_and_every_parameter_is_read_by_a_component(exported, name):
    made = exported(name, generation=True)

    manifest = load_manifest(made.files.manifest_path)
    assert manifest.numel == sum(p.numel() for p in made.resolved.model.parameters())
    assert all(p.read for p in manifest.parameters)
    assert manifest.trace == "exported-program"
    assert provenance_of(made.files) == {"generation": "true"}


def test_encoder_keeps_the_whole_models_names(exported):
    made = exported("t5", generation=True)

    (encoder,) = (path for path in made.files.models if path.stem == "encoder")
    names = {t.name for t in onnx.load(encoder, load_external_data=False).graph.initializer if "." in t.name}
    known = {name for parameter in made.files.manifest.parameters for name in parameter.names}
    assert any(name.startswith("encoder.block.0.") for name in names)
    assert names <= known
    document = json.loads((made.files.artifact / "export.json").read_text())
    assert document["components"]["encoder"]["metadata"]["architecture"] == "T5Stack"


LLAVA = """
import torch
from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration

def build():
    sizes = {"intermediate_size": 40, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = LlavaConfig(
        vision_config=CLIPVisionConfig(hidden_size=24, image_size=16, patch_size=8, **sizes),
        text_config=LlamaConfig(hidden_size=32, vocab_size=99, max_position_embeddings=64, **sizes),
        image_token_id=98,
        vision_feature_layer=-1,
        image_seq_length=4,
    )
    ids = torch.arange(22).reshape(2, 11)
    ids[:, 1:5] = 98
    mask = torch.ones_like(ids)
    mask[1, -2:] = 0
    images = torch.linspace(-1, 1, 1536).reshape(2, 3, 16, 16)
    return LlavaForConditionalGeneration(config), {"input_ids": ids, "attention_mask": mask, "pixel_values": images}
"""


def test_model_of_images_and_text_comes_apart_with_its_image_encoder(tmp_path, monkeypatch):
    (tmp_path / "llava_factory.py").write_text(LLAVA)
    monkeypatch.chdir(tmp_path)

    files = export_source("llava_factory:build", tmp_path / "out", generation=True, random_weights=True)

    assert {path.stem for path in files.models} == {
        "image_encoder", "multi_modal_projector", "language_model", "lm_head", "decode",
    }  # fmt: skip
    assert [p.name for p in files.manifest.parameters if not p.read] == []
    encoder = onnxruntime.InferenceSession(str(tmp_path / "out" / "image_encoder.onnx"))
    assert [i.name for i in encoder.get_inputs()] == ["pixel_values"]


def test_generation_that_fails_names_the_component_and_writes_nothing(tmp_path, monkeypatch):
    from transformers.exporters.exporter_onnx import OnnxExporter

    original = OnnxExporter.export_program

    def fail_on_step(self, model, sample_inputs, config):
        if sample_inputs["input_ids"].shape[1] == 1:
            raise RuntimeError("this cache is not to be traced")
        return original(self, model, sample_inputs, config)

    monkeypatch.setattr(OnnxExporter, "export_program", fail_on_step)
    lines: list[str] = []

    with pytest.raises(ExportError, match="its component decode failed: this cache is not") as caught:
        export_source(
            write_source("gpt2", tmp_path),
            tmp_path / "out",
            random_weights=True,
            generation=True,
            say=lines.append,
        )

    assert "\n" not in str(caught.value)
    assert lines[-2:] == ["exporting prefill of GPT2LMHeadModel", "exporting decode of GPT2LMHeadModel"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json"]


def test_second_export_leaves_no_component_of_the_first(exported, tmp_path):
    source, out = write_source("gpt2", tmp_path), tmp_path / "out"
    shutil.copytree(exported("t5", generation=True).files.artifact, out)
    (out / "mine.onnx").write_bytes(b"")

    files = export_source(source, out, random_weights=True, via="torchscript")

    assert files.artifact == out / "model.onnx"
    assert {path.name for path in out.glob("*.onnx*")} == {"model.onnx", "mine.onnx"}


def test_note_that_names_files_elsewhere_removes_none_of_them(tmp_path):
    source, out = write_source("vit", tmp_path), tmp_path / "out"
    out.mkdir()
    (tmp_path / "other.onnx").write_bytes(b"")
    note = {"components": {"a": {"file": "../other.onnx"}, "b": {"file": "notes.txt"}}}
    (out / "export.json").write_text(json.dumps(note))
    (out / "notes.txt").write_text("mine")

    export_source(source, out, random_weights=True, via="torchscript")

    assert (tmp_path / "other.onnx").exists()
    assert (out / "notes.txt").exists()


def test_prompt_length_that_a_component_fixes_is_named(tmp_path):
    config = {"model_type": "mamba", "hidden_size": 32, "state_size": 4, "num_hidden_layers": 1}
    config |= {"architectures": ["MambaForCausalLM"], "vocab_size": 99, "bos_token_id": 1, "eos_token_id": 2}
    (tmp_path / "config.json").write_text(json.dumps(config))
    lines: list[str] = []

    export_source(str(tmp_path), tmp_path / "out", random_weights=True, generation=True, say=lines.append)

    assert any(line.startswith("axis 1 of input_ids in prefill.onnx came out fixed") for line in lines)
    assert not any("decode.onnx" in line for line in lines)


DIFFERING = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(1))

    def forward(self, x):
        first = x[:, :1] - 1
        return self.scale * torch.diff(x, prepend=first, dim=-1), torch.diff(x, n=2, dim=0)

def build():
    return Net(), (torch.arange(12.0).reshape(3, 4) ** 2,)
"""


def test_torchscript_translates_differences_of_neighbours(tmp_path, monkeypatch):
    (tmp_path / "differing_net.py").write_text(DIFFERING)
    monkeypatch.chdir(tmp_path)

    model = export_source("differing_net:build", tmp_path / "out", via="torchscript").model

    array = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    one, two = session.run(None, {session.get_inputs()[0].name: array})
    assert np.allclose(one, np.diff(array, prepend=array[:, :1] - 1), atol=1e-6)
    assert np.allclose(two, np.diff(array, n=2, axis=0), atol=1e-6)


CASTING = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.router = torch.nn.Linear(4, 3)

    def forward(self, x):
        self.router = self.router.to(torch.float32)
        return self.router(x)

def build():
    return Net(), (torch.ones(2, 4),)
"""


@pytest.mark.parametrize("via", ["dynamo", "torchscript"])
def test_a_module_that_casts_a_part_of_itself_in_forward_is_exported(tmp_path, monkeypatch, via):
    (tmp_path / "casting_net.py").write_text(CASTING)
    monkeypatch.chdir(tmp_path)

    assert export_source("casting_net:build", tmp_path / "out", via=via).manifest.numel == 15
