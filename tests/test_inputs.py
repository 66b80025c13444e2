"""Example inputs: the inputs of a served model, with axes that no tracer can confuse."""

from __future__ import annotations

import pytest

from analyzer.errors import ExportError

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from exporter import example_inputs  # noqa: E402  after the skip
from exporter.inputs import untried_inputs  # noqa: E402

pytestmark = pytest.mark.export

SMALL = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 48}
SEQ2SEQ = {
    "vocab_size": 99,
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
}


SERIES = {
    "prediction_length": 5,
    "context_length": 8,
    "lags_sequence": [1, 2, 3],
    "num_time_features": 2,
    "d_model": 24,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_ffn_dim": 40,
    "decoder_ffn_dim": 44,
}
SPEECH = {
    "vocab_size": 40,
    "hidden_size": 48,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 80,
    "decoder_ffn_dim": 88,
}


def build(config_class: str, model_class: str, **fields: object):
    config = getattr(transformers, config_class)(**fields)
    return getattr(transformers, model_class)(config).eval()


def made_for(config_class: str, model_class: str, **fields: object):
    model = build(config_class, model_class, **fields)
    return example_inputs(model, model.config)


@pytest.mark.parametrize(
    ("model_class", "config_class", "fields", "names"),
    [
        ("BertModel", "BertConfig", SMALL, ["input_ids", "attention_mask", "token_type_ids"]),
        ("RobertaModel", "RobertaConfig", {**SMALL, "type_vocab_size": 1}, ["input_ids", "attention_mask"]),
        (
            "GPT2Model",
            "GPT2Config",
            {"n_embd": 32, "n_layer": 1, "n_head": 4},
            ["input_ids", "attention_mask"],
        ),
        (
            "BartModel",
            "BartConfig",
            SEQ2SEQ,
            ["input_ids", "attention_mask", "decoder_input_ids"],
        ),
        (
            "WhisperModel",
            "WhisperConfig",
            {**SEQ2SEQ, "num_mel_bins": 16, "max_source_positions": 30, "pad_token_id": 0},
            ["input_features", "decoder_input_ids"],
        ),
        (
            "Qwen2AudioEncoder",
            "Qwen2AudioEncoderConfig",
            {**SEQ2SEQ, "num_mel_bins": 16, "max_source_positions": 30},
            ["input_features"],
        ),
        ("ViTModel", "ViTConfig", {**SMALL, "image_size": 32, "patch_size": 8}, ["pixel_values"]),
        (
            "CLIPModel",
            "CLIPConfig",
            {"text_config": SMALL, "vision_config": {**SMALL, "image_size": 32, "patch_size": 8}},
            ["pixel_values", "input_ids", "attention_mask"],
        ),
        (
            "PatchTSTForPrediction",
            "PatchTSTConfig",
            {
                "num_input_channels": 3,
                "context_length": 24,
                "d_model": 16,
                "num_attention_heads": 2,
                "ffn_dim": 24,
            },
            ["past_values"],
        ),
        (
            "InformerForPrediction",
            "InformerConfig",
            {
                **SERIES,
                "num_static_categorical_features": 1,
                "cardinality": [5],
                "embedding_dimension": [3],
                "num_static_real_features": 2,
                "num_dynamic_real_features": 1,
            },
            [
                "past_values",
                "past_time_features",
                "past_observed_mask",
                "static_categorical_features",
                "static_real_features",
                "future_values",
                "future_time_features",
            ],
        ),
        (
            "TimeSeriesTransformerModel",
            "TimeSeriesTransformerConfig",
            {**SERIES, "input_size": 3},
            [
                "past_values",
                "past_time_features",
                "past_observed_mask",
                "future_values",
                "future_time_features",
            ],
        ),
        (
            "GitForCausalLM",
            "GitConfig",
            {**SMALL, "vocab_size": 99, "vision_config": {**SMALL, "image_size": 32, "patch_size": 8}},
            ["pixel_values", "input_ids", "attention_mask"],
        ),
        (
            "Pix2StructForConditionalGeneration",
            "Pix2StructConfig",
            {
                "text_config": {
                    "vocab_size": 99,
                    "hidden_size": 32,
                    "d_kv": 8,
                    "d_ff": 48,
                    "num_layers": 1,
                    "num_heads": 4,
                },
                "vision_config": {
                    "hidden_size": 32,
                    "patch_embed_hidden_size": 48,
                    "d_ff": 48,
                    "d_kv": 8,
                    "num_hidden_layers": 1,
                    "num_attention_heads": 4,
                    "seq_len": 16,
                },
            },
            ["flattened_patches", "attention_mask", "decoder_input_ids"],
        ),
        (
            "SpeechT5ForTextToSpeech",
            "SpeechT5Config",
            {
                **SPEECH,
                "num_mel_bins": 20,
                "speaker_embedding_dim": 16,
                "speech_decoder_prenet_units": 24,
                "speech_decoder_postnet_units": 24,
            },
            ["input_ids", "attention_mask", "decoder_input_values", "speaker_embeddings"],
        ),
        (
            "Speech2TextForConditionalGeneration",
            "Speech2TextConfig",
            {
                **SEQ2SEQ,
                "max_source_positions": 60,
                "max_target_positions": 40,
                "conv_channels": 16,
                "input_feat_per_channel": 20,
            },
            ["input_features", "decoder_input_ids"],
        ),
        (
            "ClapModel",
            "ClapConfig",
            {
                "text_config": SMALL,
                "audio_config": {
                    "window_size": 4,
                    "num_mel_bins": 32,
                    "spec_size": 64,
                    "depths": [1, 1],
                    "num_attention_heads": [2, 2],
                    "patch_embeds_hidden_size": 16,
                    "hidden_size": 32,
                    "num_hidden_layers": 2,
                },
            },
            ["input_features", "input_ids", "attention_mask"],
        ),
        (
            "LxmertModel",
            "LxmertConfig",
            {
                **SMALL,
                "l_layers": 1,
                "x_layers": 1,
                "r_layers": 1,
                "visual_feat_dim": 24,
            },
            ["input_ids", "attention_mask", "token_type_ids", "visual_feats", "visual_pos"],
        ),
        ("LayoutLMModel", "LayoutLMConfig", SMALL, ["input_ids", "attention_mask", "token_type_ids", "bbox"]),
        (
            "ViltModel",
            "ViltConfig",
            {**SMALL, "image_size": 32, "patch_size": 8},
            ["pixel_values", "input_ids", "attention_mask", "token_type_ids"],
        ),
        (
            "TimesFmModelForPrediction",
            "TimesFmConfig",
            {
                "patch_length": 8,
                "context_length": 64,
                "horizon_length": 16,
                "num_hidden_layers": 1,
                "hidden_size": 32,
                "intermediate_size": 32,
                "head_dim": 8,
                "num_attention_heads": 4,
            },
            ["past_values"],
        ),
    ],
)
def test_each_architecture_gets_what_its_forward_takes(model_class, config_class, fields, names):
    inputs = made_for(config_class, model_class, **fields)

    assert list(inputs.kwargs) == names


def test_a_captioner_takes_the_image_of_its_encoder():
    encoder = transformers.ViTConfig(**SMALL, image_size=32, patch_size=8)
    decoder = transformers.GPT2Config(
        vocab_size=99, n_embd=32, n_layer=1, n_head=4, is_decoder=True, add_cross_attention=True
    )
    config = transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    model = transformers.VisionEncoderDecoderModel(config=config).eval()

    inputs = example_inputs(model, config)

    assert {name: tuple(value.shape[2:]) for name, value in inputs.kwargs.items()} == {
        "pixel_values": (32, 32),
        "decoder_input_ids": (),
    }


def test_axes_that_may_differ_have_different_names_and_lengths():
    inputs = made_for("BartConfig", "BartModel", **SEQ2SEQ)

    lengths: dict[str, set[int]] = {}
    for name, axes in inputs.axes.items():
        for axis, axis_name in axes.items():
            lengths.setdefault(axis_name, set()).add(inputs.kwargs[name].shape[axis])
    assert set(lengths) == {"batch", "sequence", "decoder_sequence"}
    assert all(len(found) == 1 for found in lengths.values())
    assert len(set.union(*lengths.values())) == 3


def test_no_length_equals_a_size_of_the_model():
    inputs = made_for("BertConfig", "BertModel", **{**SMALL, "vocab_size": 11, "max_position_embeddings": 20})

    assert inputs.kwargs["input_ids"].shape[1] not in (11, 20)


def test_ids_are_in_the_vocabulary_and_no_special_token():
    inputs = made_for("BertConfig", "BertModel", **{**SMALL, "vocab_size": 5, "pad_token_id": 0})

    ids = inputs.kwargs["input_ids"]
    assert ids.min() > 0
    assert ids.max() < 5


def test_image_takes_its_size_and_channels_from_the_config():
    inputs = made_for("ViTConfig", "ViTModel", **SMALL, image_size=[16, 24], patch_size=8, num_channels=1)

    assert inputs.kwargs["pixel_values"].shape == (2, 1, 16, 24)


def test_spectrogram_has_two_frames_per_encoder_position():
    inputs = made_for(
        "WhisperConfig", "WhisperModel", **SEQ2SEQ, num_mel_bins=16, max_source_positions=30, pad_token_id=0
    )

    assert inputs.kwargs["input_features"].shape == (2, 16, 60)


def test_half_precision_models_get_half_precision_inputs():
    model = build("ViTConfig", "ViTModel", **SMALL, image_size=16, patch_size=8).half()

    assert example_inputs(model, model.config).kwargs["pixel_values"].dtype == torch.float16


class Mixed(torch.nn.Module):
    """Module whose first parameter has another type than the inputs."""

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.gain = torch.nn.Parameter(torch.ones(2, dtype=dtype))
        self.fc = torch.nn.Linear(3, 2)

    def forward(self, x):
        return (self.fc(x).to(self.gain.dtype) * self.gain).float()


@pytest.mark.parametrize("find", [example_inputs, untried_inputs])
def test_inputs_stay_as_they_are_if_the_parameters_have_several_types(find):
    assert find(Mixed(torch.float64), given=(torch.ones(4, 3),)).args[0].dtype == torch.float32
    assert find(Mixed(torch.float16), given={"x": torch.ones(4, 3)}).kwargs["x"].dtype == torch.float32
    half = Mixed(torch.float16)
    half.fc.half()
    half.register_parameter(
        "late", torch.nn.Parameter(torch.ones(1))
    )  # forward takes half precision nevertheless
    assert find(half, given=(torch.ones(4, 3),)).args[0].dtype == torch.float16


def test_module_without_inputs_says_to_return_them():
    with pytest.raises(ExportError, match=r"let the factory return \(module, inputs\)"):
        example_inputs(torch.nn.Linear(2, 2))


def test_inputs_on_which_forward_fails_are_refused_before_the_export():
    with pytest.raises(ExportError, match="forward fails on the factory's example inputs"):
        example_inputs(torch.nn.Linear(2, 2), given=(torch.ones(3, 5),))


def test_integer_inputs_vary_in_batch_and_sequence_and_floats_in_batch():
    class Both(torch.nn.Module):
        def forward(self, ids: torch.Tensor, image: torch.Tensor) -> torch.Tensor:
            return ids.sum() + image.sum()

    inputs = example_inputs(Both(), given=(torch.ones(2, 5, dtype=torch.long), torch.ones(2, 3, 4)))

    assert {name: list(axes) for name, axes in inputs.axes.items()} == {"ids": [0, 1], "image": [0]}


def test_unknown_architecture_names_what_was_tried():
    class Odd(torch.nn.Module):
        main_input_name = "spectrum"

        def forward(self, spectrum: torch.Tensor) -> torch.Tensor:
            return spectrum

    with pytest.raises(ExportError, match=r"no example inputs are known for it; forward\(spectrum\) failed"):
        example_inputs(Odd(), transformers.BertConfig())


def test_a_prompt_has_as_many_tokens_as_its_image_becomes():
    """The file contains LLaVA's vision tower only if an example includes an image."""
    from transformers import LlavaConfig, LlavaForConditionalGeneration

    text = {"model_type": "llama", "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1}
    text |= {"num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 97}
    vision = {"model_type": "clip_vision_model", "hidden_size": 24, "intermediate_size": 40}
    vision |= {"num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 32, "patch_size": 8}
    config = LlavaConfig(text_config=text, vision_config=vision, image_token_id=5)
    model = LlavaForConditionalGeneration(config).eval()

    inputs = example_inputs(model, config)

    assert {*inputs.kwargs} == {"input_ids", "attention_mask", "pixel_values"}
    assert int((inputs.kwargs["input_ids"] == 5).sum(1)[0]) == 16
    assert inputs.kwargs["attention_mask"].shape == inputs.kwargs["input_ids"].shape


def test_random_weights_leave_alone_what_a_class_makes_anew():
    from transformers import MarianConfig, MarianMTModel

    from exporter.sources import randomize

    sizes = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "vocab_size": 61, "pad_token_id": 60}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "max_position_embeddings": 32}
    config = MarianConfig(**sizes, **heads, encoder_ffn_dim=24, decoder_ffn_dim=24, decoder_start_token_id=60)
    model = MarianMTModel(config)
    before = model.model.encoder.embed_positions.weight.clone()

    randomize(model, 0, torch.float32)

    assert torch.equal(model.model.encoder.embed_positions.weight, before)
