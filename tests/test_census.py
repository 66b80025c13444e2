"""The census of a model: counts, ties, buffers and evidence of content."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from analyzer.manifest import load_manifest, save_manifest
from analyzer.model.content import channel_statistics, decode_values, digest, sample_positions
from analyzer.model.dtypes import DType

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from exporter import census_source, take_census, with_reads  # noqa: E402  after the skip
from exporter.reads import Reads, reads_of_calls, reads_of_program  # noqa: E402

pytestmark = pytest.mark.export


class Corners(torch.nn.Module):
    """A tie, a frozen parameter, both kinds of buffer, and a module that forward never uses."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(7, 4)
        self.head = torch.nn.Linear(4, 7, bias=False)
        self.head.weight = self.embed.weight
        self.frozen = torch.nn.Parameter(torch.arange(4.0), requires_grad=False)
        self.unused = torch.nn.Linear(3, 2)
        self.register_buffer("saved", torch.arange(4.0))
        self.register_buffer("derived", torch.arange(4), persistent=False)
        self.register_buffer("idle", torch.ones(2))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        hidden = self.embed(ids) + self.frozen + self.saved * self.derived
        return self.head(hidden)


@pytest.fixture
def corners() -> Corners:
    torch.manual_seed(0)
    return Corners().eval()


@pytest.mark.parametrize(
    ("source", "model_class", "parameters"),
    [
        ("bert-base-uncased", "AutoModel", 109_482_240),
        ("bert-base-uncased", None, 109_514_298),
        ("bert-base-uncased", "BertForSequenceClassification", 109_483_778),
        ("bert-base-chinese", None, 102_290_312),
        ("bert-base-cased", "AutoModel", 108_310_272),
        ("albert-base-v2", "AutoModel", 11_683_584),
        ("albert-base-v2", None, 11_221_680),
        ("distilbert-base-uncased", "AutoModel", 66_362_880),
        ("roberta-base", "AutoModel", 124_645_632),
        ("gpt2", None, 124_439_808),
        ("t5-small", None, 60_506_624),
    ],
)
def test_presets_have_the_published_number_of_parameters(source, model_class, parameters):
    original = census_source(source, model_class=model_class, meta=True)

    manifest = original.manifest
    assert original.weights is None
    assert manifest.numel == parameters
    assert manifest.source["weights"] == "meta"
    assert not manifest.has_content


def test_seventy_billion_parameters_are_counted_without_weights(tmp_path):
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 8192,
        "intermediate_size": 28672,
        "num_attention_heads": 64,
        "num_hidden_layers": 80,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))

    manifest = census_source(str(tmp_path)).manifest
    assert manifest.numel == 70_553_706_496
    assert manifest.source["class"] == "LlamaForCausalLM"
    assert manifest.source["model_type"] == "llama"


def test_a_class_that_makes_some_values_without_a_checkpoint_has_none(tmp_path):
    """`torch.Tensor(n)` and `torch.normal` make numbers whatever the default device is."""
    config = {
        "architectures": ["WavLMModel"],
        "model_type": "wavlm",
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_attention_heads": 2,
        "num_hidden_layers": 1,
        "conv_dim": [8],
        "conv_kernel": [3],
        "conv_stride": [2],
        "num_conv_pos_embeddings": 4,
        "num_conv_pos_embedding_groups": 2,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))

    original = census_source(str(tmp_path))

    assert original.weights is None
    assert not original.manifest.has_content


def test_tied_tensor_counts_once_under_its_first_name(corners):
    manifest = take_census(corners)

    embed = manifest.parameters[1]
    assert embed.names == ("embed.weight", "head.weight")
    assert manifest.numel == sum(p.numel() for p in corners.parameters())


def test_order_is_that_of_named_parameters(corners):
    names = [p.name for p in take_census(corners).parameters]

    assert names == [name for name, _ in corners.named_parameters()]


def test_modules_that_own_tensors_are_named_by_their_classes(corners):
    modules = take_census(corners).modules

    assert modules == {"": "Corners", "embed": "Embedding", "head": "Linear", "unused": "Linear"}
    assert list(modules) == ["", "embed", "head", "unused"]


def test_modules_at_several_paths_and_parametrized_ones_are_named_as_they_were_written(tmp_path):
    shared = torch.nn.LayerNorm(4)
    normed = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(4, 4, bias=False))
    manifest = take_census(torch.nn.ModuleDict({"a": shared, "b": shared, "c": normed, "d": torch.nn.ReLU()}))

    assert manifest.modules == {"a": "LayerNorm", "b": "LayerNorm", "c": "Linear"}
    save_manifest(manifest, tmp_path / "manifest.json")
    assert load_manifest(tmp_path / "manifest.json") == manifest


def test_parameters_that_share_storage_are_tied(corners):
    corners.head.weight = torch.nn.Parameter(corners.embed.weight.detach())

    manifest = take_census(corners)

    assert [p.names for p in manifest.parameters if p.tied] == [("embed.weight", "head.weight")]


def test_views_of_one_storage_that_lie_differently_are_not_tied():
    class Halves(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            whole = torch.arange(8.0)
            self.left = torch.nn.Parameter(whole[:4])
            self.right = torch.nn.Parameter(whole[4:])

    assert [p.tied for p in take_census(Halves()).parameters] == [(), ()]


def test_frozen_parameter_is_a_parameter_and_not_trainable(corners):
    manifest = take_census(corners)

    frozen = next(p for p in manifest.parameters if p.name == "frozen")
    assert not frozen.trainable
    assert manifest.numel - manifest.trainable == 4


def test_buffers_say_whether_they_are_saved(corners):
    buffers = {b.name: b for b in take_census(corners).buffers}

    assert buffers["saved"].persistent
    assert not buffers["derived"].persistent
    assert buffers["derived"].dtype is DType.INT64


def test_content_is_the_digest_of_the_bytes_and_of_the_transpose(corners):
    manifest = take_census(corners)

    array = corners.embed.weight.detach().numpy()
    content = next(p for p in manifest.parameters if p.name == "embed.weight").content
    assert content.digest == digest(array)
    assert content.digest_transposed == digest(np.ascontiguousarray(array.T))
    assert np.array_equal(decode_values(content.samples, np.dtype("<f4")), array.reshape(-1))


def test_constant_filled_is_noticed(corners):
    buffers = {b.name: b for b in take_census(corners).buffers}

    assert buffers["idle"].content.constant_filled
    assert not buffers["saved"].content.constant_filled


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        ("float16", DType.FLOAT16),
        ("bfloat16", DType.BFLOAT16),
        ("float64", DType.DOUBLE),
        ("float8_e4m3fn", DType.FLOAT8E4M3FN),
    ],
)
def test_content_of_every_dtype_is_its_own_bytes(dtype, expected):
    model = torch.nn.Module()
    model.weight = torch.nn.Parameter(torch.arange(6.0).reshape(2, 3).to(getattr(torch, dtype)))

    parameter = take_census(model).parameters[0]

    stored = model.weight.detach().view(torch.uint8).numpy().tobytes()
    assert parameter.dtype is expected
    assert parameter.content.digest == digest(np.frombuffer(stored, np.uint8))


def test_scalars_and_empty_tensors_are_described():
    model = torch.nn.Module()
    model.scale = torch.nn.Parameter(torch.tensor(2.5))
    model.nothing = torch.nn.Parameter(torch.empty(0, 3))

    manifest = take_census(model)

    assert [p.numel for p in manifest.parameters] == [1, 0]
    assert manifest.has_content


def test_meta_device_gives_the_same_counts_and_ties_as_real_weights(tmp_path):
    config = {
        "architectures": ["T5ForConditionalGeneration"],
        "model_type": "t5",
        "vocab_size": 99,
        "d_model": 32,
        "d_kv": 8,
        "d_ff": 48,
        "num_layers": 2,
        "num_heads": 4,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))

    of_config = census_source(str(tmp_path))
    made_up = census_source(str(tmp_path), random_weights=True)

    meta, real = of_config.manifest, made_up.manifest
    assert [(p.names, p.shape) for p in meta.parameters] == [(p.names, p.shape) for p in real.parameters]
    assert [(b.names, b.persistent) for b in meta.buffers] == [(b.names, b.persistent) for b in real.buffers]
    assert of_config.weights is None
    assert all(made_up.weights.array(p.name).shape == p.shape for p in real.tensors)


def test_batch_norm_vectors_and_convolution_channels_travel_whole():
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 2), torch.nn.BatchNorm2d(4, eps=0.5))

    manifest = take_census(model)

    norm = manifest.batch_norms[0]
    assert (norm.module, norm.eps, norm.running_var) == ("1", 0.5, "1.running_var")
    assert np.array_equal(manifest.value("1.weight"), model[1].weight.detach().numpy())
    assert np.array_equal(manifest.value("0.bias"), model[0].bias.detach().numpy())
    projections = decode_values(manifest.parameters[0].channel_projections, np.dtype("<f8"))
    norms = decode_values(manifest.parameters[0].channel_norms, np.dtype("<f8"))
    assert projections == pytest.approx(channel_statistics(model[0].weight.detach().numpy())[0])
    assert norms == pytest.approx(model[0].weight.detach().double().flatten(1).norm(dim=1).numpy())


def test_batch_norm_without_affine_has_no_weight_to_name():
    manifest = take_census(torch.nn.Sequential(torch.nn.BatchNorm1d(4, affine=False)))

    assert manifest.batch_norms[0].weight is None
    assert manifest.batch_norms[0].running_mean == "0.running_mean"


def test_small_tensors_are_carried_whole(corners):
    manifest = take_census(corners)

    sizes = {tensor.name: tensor.numel for tensor in manifest.tensors}
    assert set(manifest.values) == {name for name, numel in sizes.items() if 1 < numel <= 4096}
    assert all((p.channel_projections is None) == (len(p.shape) < 2) for p in manifest.parameters)


def test_samples_stand_where_the_digest_of_all_contents_puts_them():
    def taken(*, bias: float) -> tuple[str, str]:
        linear = torch.nn.Linear(64, 64)
        with torch.no_grad():
            linear.weight.copy_(torch.arange(64.0 * 64).reshape(64, 64))
            linear.bias.fill_(bias)
        manifest = take_census(linear)
        content = manifest.parameters[0].content
        assert content is not None
        found = decode_values(content.samples, np.dtype("<f4"))
        assert found.tolist() == sample_positions(64 * 64, manifest.salt).tolist()
        return manifest.salt, content.samples

    assert taken(bias=0) == taken(bias=0)
    assert taken(bias=0)[0] != taken(bias=1)[0]
    assert taken(bias=0)[1] != taken(bias=1)[1]


@pytest.mark.parametrize(
    ("dtype", "casts"),
    [
        (torch.float64, {"FLOAT", "FLOAT16", "BFLOAT16"}),
        (torch.float32, {"FLOAT16", "BFLOAT16"}),
        (torch.float16, {"BFLOAT16"}),
        (torch.bfloat16, {"FLOAT16"}),
        (torch.int64, set()),
    ],
)
def test_casts_are_digested_that_lose_something(dtype, casts):
    module = torch.nn.Module()
    module.register_parameter("w", torch.nn.Parameter(torch.ones(3).to(dtype), requires_grad=False))

    content = take_census(module).parameters[0].content

    assert content is not None
    assert set(content.casts) == casts


def test_exported_program_shows_what_is_read(corners):
    program = torch.export.export(corners, (torch.ones(2, 3, dtype=torch.long),))

    manifest = with_reads(take_census(corners), reads_of_program(program))

    assert {p.name: p.read for p in manifest.parameters} == {
        "frozen": True,
        "embed.weight": True,
        "unused.weight": False,
        "unused.bias": False,
    }
    assert {b.name: b.read for b in manifest.buffers} == {"saved": True, "derived": True, "idle": False}
    assert manifest.trace == "exported-program"


def test_exported_program_shows_what_is_written_into_what_it_returns():
    class Writes(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.idle = (torch.nn.Linear(3, 3) for _ in range(3))
            self.scale = torch.nn.Parameter(torch.ones(3))

        def forward(self, x):
            out, lost = torch.zeros_like(x), torch.zeros_like(x)
            out[:, 0] = self.first(x)[:, 0]
            out.select(1, 1).view(-1, 3).mul_(self.scale).add_(self.second(x)[:, 0])
            lost[:, 0] = self.idle(x)[:, 0]
            return out

    program = torch.export.export(Writes(), (torch.ones(2, 2, 3),))
    manifest = with_reads(take_census(Writes()), reads_of_program(program))

    assert [p.name for p in manifest.parameters if not p.read] == ["idle.weight", "idle.bias"]


class Shaped(torch.nn.Module):
    """Module that reads only the shape of some values, even where it writes others into a tensor of that shape."""

    def __init__(self) -> None:
        super().__init__()
        self.query = torch.nn.Linear(3, 5)
        self.key = torch.nn.Linear(3, 5)
        self.value = torch.nn.Linear(3, 5)
        self.fill = torch.nn.Parameter(torch.tensor(0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        context = torch.zeros_like(self.query(x))
        written = torch.ones_like(self.key(x))
        written[:, 0] = self.value(x)[:, 0]
        return context + written + torch.ones_like(x[:, :1]) * self.fill


def test_a_parameter_of_which_only_a_shape_comes_is_not_read():
    batch = torch.export.Dim("batch")
    program = torch.export.export(Shaped().eval(), (torch.randn(2, 3),), dynamic_shapes=({0: batch},))

    manifest = with_reads(take_census(Shaped()), reads_of_program(program))

    assert {parameter.name: parameter.read for parameter in manifest.parameters} == {
        "query.weight": False,
        "query.bias": False,
        "key.weight": False,
        "key.bias": False,
        "value.weight": True,
        "value.bias": True,
        "fill": True,
    }


def test_function_calls_show_the_same_parameters_and_buffers(corners):
    reads = reads_of_calls(corners, (torch.ones(2, 3, dtype=torch.long),), {})

    manifest = with_reads(take_census(corners), reads)

    assert [p.name for p in manifest.parameters if not p.read] == ["unused.weight", "unused.bias"]
    assert {b.name: b.read for b in manifest.buffers} == {"saved": True, "derived": True, "idle": False}


def test_function_calls_see_past_argmax_and_no_grad_and_into_lists_of_weights():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.rnn, self.spare = (
                torch.nn.Linear(3, 4),
                torch.nn.LSTM(4, 5),
                torch.nn.Linear(2, 2),
            )

        def forward(self, x):
            with torch.no_grad():
                hidden = self.first(x)
            assert self.spare.weight.dtype is torch.float32
            return self.rnn(hidden)[0].argmax(-1)

    model = Net()

    reads = reads_of_calls(model, (torch.randn(2, 1, 3),), {})

    unread = {name for name, _ in model.named_parameters()} - reads.parameters
    assert unread == {"spare.weight", "spare.bias"}


def test_tied_tensor_is_read_if_any_of_its_names_is(corners):
    manifest = with_reads(take_census(corners), Reads(frozenset({"head.weight"}), frozenset(), "x"))

    assert [p.name for p in manifest.parameters if p.read] == ["embed.weight"]


def test_manifest_survives_its_file(corners, tmp_path: Path):
    manifest = take_census(corners, {"source": "corners"})

    save_manifest(manifest, tmp_path / "manifest.json")

    assert load_manifest(tmp_path / "manifest.json") == manifest


def test_progress_ends_at_the_number_of_tensors(corners):
    steps: list[tuple[int, int]] = []

    take_census(corners, progress=lambda done, total: steps.append((done, total)))

    assert steps == [(n, 7) for n in range(1, 8)]
