"""SOURCE in all its forms, and the messages for wrong ones."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from analyzer.errors import SourceError, UsageError

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from exporter import SourceOptions, location, read_source_config, resolve_source  # noqa: E402  after the skip
from exporter.presets import PRESETS, preset_config  # noqa: E402

pytestmark = pytest.mark.export

TINY = {
    "architectures": ["BertForMaskedLM"],
    "model_type": "bert",
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
}
RANDOM = SourceOptions(random_weights=True)


@pytest.fixture
def config_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "tiny"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(TINY))
    return folder


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest):
    """Return a function that writes a Python module into the current directory and returns its name."""

    def write(text: str) -> str:
        name = f"made_by_{request.node.name.partition('[')[0]}"
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.chdir(tmp_path)
        return name

    return write


def test_config_folder_and_config_file_build_the_class_that_they_name(config_folder):
    by_folder = resolve_source(str(config_folder), RANDOM)
    by_file = resolve_source(str(config_folder / "config.json"), RANDOM)

    assert by_folder.class_name == by_file.class_name == "BertForMaskedLM"
    assert by_folder.kind == by_file.kind == "config"


def test_config_file_may_have_any_name(config_folder):
    path = config_folder / "small.json"
    (config_folder / "config.json").rename(path)

    assert resolve_source(str(path), RANDOM).class_name == "BertForMaskedLM"


def test_config_without_weights_says_to_make_them_up(config_folder):
    with pytest.raises(SourceError, match="a config without weights; pass --random-weights"):
        resolve_source(str(config_folder), SourceOptions())


def test_checkpoint_folder_gives_its_own_weights(config_folder, tmp_path):
    saved = resolve_source(str(config_folder), RANDOM).model
    saved.save_pretrained(tmp_path / "checkpoint")

    loaded = resolve_source(str(tmp_path / "checkpoint"), SourceOptions())

    assert loaded.kind == "checkpoint"
    assert loaded.weights == "pretrained"
    for name, parameter in saved.named_parameters():
        assert torch.equal(parameter, loaded.model.get_parameter(name))


def test_what_a_checkpoint_lacks_is_named(config_folder, tmp_path):
    resolve_source(str(config_folder), RANDOM).model.save_pretrained(tmp_path / "checkpoint")
    lines: list[str] = []

    resolve_source(str(tmp_path / "checkpoint"), SourceOptions(model_class="AutoModel"), lines.append)

    assert any("pooler.dense.weight" in line and "newly initialised" in line for line in lines)


@pytest.mark.parametrize("field", ["num_hidden_layers", "vocab_size"])
def test_a_config_that_is_not_its_checkpoint_s_builds_nothing_vast(config_folder, tmp_path, field):
    folder = tmp_path / "checkpoint"
    resolve_source(str(config_folder), RANDOM).model.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps({**config, field: 10**9}), encoding="utf-8")

    with pytest.raises(
        SourceError, match=r"checkpoint: the config asks for more than .* is it the config of that checkpoint"
    ):
        resolve_source(str(folder), SourceOptions())


def test_local_folder_wins_over_a_preset_of_the_same_name(config_folder, monkeypatch):
    config_folder.rename(config_folder.parent / "bert-base-uncased")
    monkeypatch.chdir(config_folder.parent)

    resolved = resolve_source("bert-base-uncased", RANDOM)

    assert resolved.kind == "config"
    assert resolved.config.hidden_size == 32


@pytest.mark.parametrize("name", ["gpt2", "openai-community/gpt2"])
def test_preset_without_checkpoint_never_queries_the_hub(name, no_hub):
    resolved = resolve_source(name, SourceOptions(meta=True))

    assert resolved.kind == "preset"
    assert no_hub == []


def test_preset_stands_in_for_the_hub_and_says_so(no_hub):
    lines: list[str] = []

    resolved = resolve_source("t5-small", SourceOptions(meta_without_weights=True), lines.append)

    assert resolved.weights == "meta"
    assert any("cannot be reached" in line and "built-in preset" in line for line in lines)


def test_preset_has_no_weights_to_export(no_hub):
    with pytest.raises(SourceError, match="pass --random-weights"):
        resolve_source("bert-base-uncased", SourceOptions())


def test_unknown_hub_id_is_reported_in_a_sentence_with_the_nearest_preset(no_hub):
    with pytest.raises(SourceError, match=r"no such file or folder.*did you mean bert-base-uncased\?"):
        resolve_source("bert-base-uncasd", SourceOptions())


@pytest.mark.parametrize("name", ["m", "me"])
def test_a_letter_or_two_are_no_beginning_of_a_preset(name, no_hub):
    with pytest.raises(SourceError, match="built-in presets are"):
        resolve_source(name, SourceOptions())


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("net.py", "is Python source; name the function in it that makes the model, as net:factory"),
        ("net.onnx", "is an ONNX model, not a PyTorch one; `onnxledger compare` compares two of them"),
        ("net.txt", "neither a checkpoint nor a config"),
    ],
)
def test_a_file_that_is_no_source_is_recognized_by_its_suffix(tmp_path, name, sentence):
    (tmp_path / name).write_text("import torch")

    with pytest.raises(SourceError, match=re.escape(sentence)):
        resolve_source(str(tmp_path / name), SourceOptions())


def test_missing_path_is_never_taken_for_a_hub_id(no_hub):
    with pytest.raises(SourceError, match="no such file or folder"):
        resolve_source("./nowhere/at/all", SourceOptions())

    assert no_hub == []


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_every_preset_names_a_class_that_transformers_has(name):
    architecture = preset_config(name)["architectures"][0]

    assert hasattr(transformers, architecture)


def test_class_option_chooses_the_head(config_folder):
    bare = resolve_source(str(config_folder), SourceOptions(random_weights=True, model_class="AutoModel"))
    head = resolve_source(
        str(config_folder),
        SourceOptions(random_weights=True, model_class="AutoModelForSequenceClassification"),
    )

    assert bare.class_name == "BertModel"
    assert head.class_name == "BertForSequenceClassification"


def test_unknown_class_lists_near_matches(config_folder):
    with pytest.raises(SourceError, match=r"did you mean .*AutoModelForMaskedLM"):
        resolve_source(
            str(config_folder), SourceOptions(random_weights=True, model_class="AutoModelForMaskLM")
        )


@pytest.mark.parametrize("name", ["AutoTokenizer", "BertConfig", "pipeline", "no such thing"])
def test_names_that_are_no_model_class_are_refused(config_folder, name):
    with pytest.raises(SourceError, match="which transformers does not have"):
        resolve_source(str(config_folder), SourceOptions(random_weights=True, model_class=name))


def test_class_of_another_model_type_is_refused(config_folder):
    with pytest.raises(SourceError, match="takes a GPT2Config, but this config is a BertConfig"):
        resolve_source(str(config_folder), SourceOptions(random_weights=True, model_class="GPT2LMHeadModel"))


def test_folder_without_a_config_says_what_is_missing(tmp_path):
    with pytest.raises(SourceError, match=r"holds no config.json"):
        resolve_source(str(tmp_path), RANDOM)


@pytest.mark.parametrize("text", ["{", "[]", '{"model_type": "no-such-model"}', "{}"])
def test_broken_config_is_reported_in_a_sentence(tmp_path, text):
    (tmp_path / "config.json").write_text(text)

    with pytest.raises(SourceError, match="the config cannot be used") as caught:
        resolve_source(str(tmp_path), RANDOM)

    assert "\n" not in str(caught.value)


def test_broken_checkpoint_is_reported_in_a_sentence(config_folder):
    (config_folder / "model.safetensors").write_bytes(b"not a checkpoint")

    with pytest.raises(SourceError, match="BertForMaskedLM cannot be built") as caught:
        resolve_source(str(config_folder), SourceOptions())

    assert "\n" not in str(caught.value)


def test_factory_in_the_current_directory_gives_module_and_inputs(code):
    module = code("import torch\ndef build():\n    return torch.nn.Linear(4, 3), (torch.ones(2, 4),)\n")

    resolved = resolve_source(f"{module}:build", SourceOptions())

    assert resolved.class_name == "Linear"
    assert resolved.weights == "factory"
    assert resolved.config is None
    assert resolved.example_inputs[0].shape == (2, 4)


def test_module_object_and_its_example_inputs_will_do(code):
    module = code(
        "import torch\nnet = torch.nn.Linear(4, 3)\nnet.example_inputs = {'input': torch.ones(2, 4)}\n"
    )

    resolved = resolve_source(f"{module}:net", SourceOptions())

    assert list(resolved.example_inputs) == ["input"]


@pytest.mark.parametrize(
    ("text", "attribute", "message"),
    [
        ("", "build", "has no attribute 'build'"),
        ("build = 3", "build", "is of type int"),
        ("def build(): return 3", "build", "returned of type int"),
        ("def build(): raise ValueError('no data')", "build", "the factory failed: no data"),
        ("def build(size): pass", "build", "called without arguments"),
        ("import nothing_of_that_name", "build", "no module named 'nothing_of_that_name'"),
        ("1 / 0", "build", "importing .* failed"),
    ],
)
def test_factory_mistakes_are_sentences(tmp_path, monkeypatch, text, attribute, message):
    name = f"mistake_{abs(hash(text))}"
    (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.chdir(tmp_path)

    with pytest.raises(SourceError, match=message):
        resolve_source(f"{name}:{attribute}", SourceOptions())


def test_factory_prints_do_not_reach_stdout(code, capsys):
    module = code("import torch\ndef build():\n    print('loading')\n    return torch.nn.Linear(2, 2)\n")

    resolve_source(f"{module}:build", SourceOptions())

    captured = capsys.readouterr()
    assert captured.out == ""
    assert "loading" in captured.err


@pytest.mark.parametrize(
    "options",
    [SourceOptions(random_weights=True, fresh_init=True), SourceOptions(dtype="fp8")],
)
def test_contradicting_options_are_usage_errors(config_folder, options):
    with pytest.raises(UsageError):
        resolve_source(str(config_folder), options)


def test_random_weights_are_the_same_for_one_seed_and_differ_for_another(config_folder):
    first, again, other = (
        resolve_source(str(config_folder), SourceOptions(random_weights=True, seed=seed)).model.state_dict()
        for seed in (7, 7, 8)
    )

    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not any(torch.equal(first[name], other[name]) for name in first if first[name].is_floating_point())


def test_random_weights_leave_the_global_generator_alone(config_folder):
    before = torch.random.get_rng_state()

    resolve_source(str(config_folder), RANDOM)

    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
def test_no_two_random_parameters_are_equal_and_none_is_constant(config_folder, dtype):
    options = SourceOptions(random_weights=True, dtype=dtype)

    model = resolve_source(str(config_folder), options).model

    contents = [p.detach().view(torch.uint8).numpy().tobytes() for p in model.parameters()]
    assert len(set(contents)) == len(contents)
    assert all(p.unique().numel() > 1 for p in model.parameters())
    assert all(p.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("value", ["0.1", "1.0", "0.0", "1e-6", "1e-10", "1e-10 * torch.randn(200)"])
def test_random_parameters_differ_whatever_they_began_as(code, value, dtype):
    """0.1 is not exact in float32, so the standard deviation of many of them is not quite 0."""
    module = code(
        "import torch\n"
        "def build():\n"
        "    module = torch.nn.Module()\n"
        "    for name in 'abc':\n"
        f"        module.register_parameter(name, torch.nn.Parameter(torch.zeros(200) + {value}))\n"
        "    return module\n"
    )

    model = resolve_source(f"{module}:build", SourceOptions(random_weights=True, dtype=dtype)).model

    assert all(parameter.unique().numel() > 20 for parameter in model.parameters())
    assert len({tuple(parameter.tolist()) for parameter in model.parameters()}) == 3


def test_random_weights_keep_ties(config_folder):
    model = resolve_source(str(config_folder), SourceOptions(random_weights=True, dtype="fp16")).model

    assert model.cls.predictions.decoder.weight is model.bert.embeddings.word_embeddings.weight


def test_random_batch_norm_statistics_move_and_stay_positive(code):
    module = code("import torch\ndef build():\n    return torch.nn.BatchNorm1d(8)\n")

    norm = resolve_source(f"{module}:build", RANDOM).model

    assert norm.running_mean.unique().numel() == 8
    assert (norm.running_var > 0).all()
    assert norm.running_var.unique().numel() == 8
    assert norm.num_batches_tracked == 0


def test_fresh_initialization_keeps_equal_zero_biases(config_folder):
    model = resolve_source(str(config_folder), SourceOptions(fresh_init=True)).model

    biases = [p for name, p in model.named_parameters() if name.endswith("query.bias")]
    assert all((bias == 0).all() for bias in biases)


def test_half_precision_keeps_rotary_frequencies_in_float32(tmp_path):
    config = {**TINY, "model_type": "llama", "architectures": ["LlamaForCausalLM"]}
    (tmp_path / "config.json").write_text(json.dumps(config))

    model = resolve_source(str(tmp_path), SourceOptions(random_weights=True, dtype="fp16")).model

    assert model.model.rotary_emb.inv_freq.dtype == torch.float32
    assert model.lm_head.weight.dtype == torch.float16


# the config alone


def test_the_config_of_a_folder_or_a_file_is_as_it_is_written(config_folder):
    assert read_source_config(str(config_folder)) == TINY
    assert read_source_config(str(config_folder / "config.json")) == TINY


def test_the_config_of_a_model_type_that_transformers_does_not_know_is_read(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "no-such-model", "depth": 3}')

    assert read_source_config(str(tmp_path)) == {"model_type": "no-such-model", "depth": 3}


def test_the_config_beside_a_checkpoint_file_is_its_config(config_folder):
    path = config_folder / "model.safetensors"
    path.write_bytes((2).to_bytes(8, "little") + b"{}")
    assert read_source_config(str(path)) == TINY

    (config_folder / "config.json").unlink()
    assert read_source_config(str(path)) is None


def test_the_config_in_the_hubs_cache_is_read_where_the_hub_is_out_of_reach(
    config_folder, tmp_path, monkeypatch
):
    monkeypatch.setattr(
        location, "query_hub", lambda hub_id: location.HubAnswer(location.Reach.CACHED, "no network")
    )
    requested = []

    def get_config_dict(where, **options):
        requested.append((where, options))
        return TINY, {}

    monkeypatch.setattr(transformers.PreTrainedConfig, "get_config_dict", get_config_dict)

    assert read_source_config("someone/tiny") == TINY
    assert requested == [("someone/tiny", {"local_files_only": True})]


def test_a_preset_stands_in_for_the_config_on_the_hub(no_hub):
    lines: list[str] = []

    assert read_source_config("gpt2", lines.append) == preset_config("gpt2")
    assert no_hub == ["gpt2"]
    assert any("built-in preset" in line for line in lines)


def test_a_hub_id_out_of_reach_has_no_config_to_read(no_hub):
    with pytest.raises(SourceError, match=r"someone/tiny: .* the hub cannot be reached \(no network\)"):
        read_source_config("someone/tiny")


def test_the_config_of_a_factorys_model_is_whole_and_names_its_class(code):
    module = code(
        "import transformers\n"
        "def build():\n"
        "    return transformers.BertModel(transformers.BertConfig(num_hidden_layers=1))\n"
    )

    config = read_source_config(f"{module}:build")

    assert config["architectures"] == ["BertModel"]
    assert (config["model_type"], config["num_hidden_layers"], config["hidden_size"]) == ("bert", 1, 768)
    json.dumps(config)


def test_a_factory_without_a_config_has_none(code):
    module = code("import torch\ndef build():\n    return torch.nn.Linear(4, 3)\n")

    assert read_source_config(f"{module}:build") is None


@pytest.mark.parametrize("text", ["{", "[]", "{}", "3"])
def test_an_invalid_config_is_reported_in_a_sentence(tmp_path, text):
    (tmp_path / "config.json").write_text(text)

    with pytest.raises(SourceError, match="the config cannot be used") as caught:
        read_source_config(str(tmp_path))

    assert "\n" not in str(caught.value)


def test_python_without_torch_names_the_extra(monkeypatch):
    import sys

    import exporter
    from analyzer.errors import MissingExtraError

    for name in [n for n in sys.modules if n.startswith("exporter.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)

    with pytest.raises(MissingExtraError, match=r'pip install "onnxledger\[export\]"'):
        exporter.export_source  # noqa: B018  the access imports
