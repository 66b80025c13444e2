"""The tiny configs of transformers models, as data; and what of their inputs no config tells.

No two axes of a model are equal unless they are in the real one; heads times their width is the hidden size, so that
queries, keys, values and outputs are square where the real models' are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from matrix.architectures import ARCHITECTURES as MATRIX

_V = 167
_TEXT = {
    "vocab_size": _V,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 160,
    "max_position_embeddings": 72,
}
_SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_GROUPED = {**_TEXT, **_SPECIAL, "num_key_value_heads": 2, "head_dim": 16}
_VISION = {
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 80,
    "image_size": 32,
    "patch_size": 8,
}
_LABELS = {
    "id2label": {"0": "no", "1": "yes", "2": "perhaps"},
    "label2id": {"no": 0, "yes": 1, "perhaps": 2},
}
_ENCODER_DECODER = {
    "vocab_size": _V,
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 160,
    "decoder_ffn_dim": 96,
    "max_position_embeddings": 72,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
    "decoder_start_token_id": 2,
    "forced_eos_token_id": None,
}
_WAVES = {
    "vocab_size": 40,
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 80,
    "conv_dim": [16, 24],
    "conv_kernel": [10, 3],
    "conv_stride": [5, 2],
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
    "mask_time_length": 2,
}
_SERIES = {
    "prediction_length": 5,
    "context_length": 8,
    "lags_sequence": [1, 2, 3],
    "num_time_features": 2,
    "d_model": 24,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 40,
    "decoder_ffn_dim": 44,
}


def _llama(**more: Any) -> dict[str, Any]:
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", **_GROUPED, **more}


CONFIGS: Mapping[str, Mapping[str, Any]] = {
    **{name: MATRIX[name] for name in ("albert-masked-lm", "whisper")},
    # decoders
    "rwkv": {
        "architectures": ["RwkvForCausalLM"],
        "model_type": "rwkv",
        "vocab_size": _V,
        "hidden_size": 48,
        "attention_hidden_size": 48,
        "num_hidden_layers": 2,
        "intermediate_size": 80,
        "context_length": 32,
    },
    "mamba": {
        "architectures": ["MambaForCausalLM"],
        "model_type": "mamba",
        "vocab_size": _V,
        "hidden_size": 32,
        "state_size": 8,
        "num_hidden_layers": 2,
        "time_step_rank": 6,
        **_SPECIAL,
    },
    "bloom": {
        "architectures": ["BloomForCausalLM"],
        "model_type": "bloom",
        "vocab_size": _V,
        "hidden_size": 64,
        "n_layer": 2,
        "n_head": 4,
        **_SPECIAL,
    },
    "gpt-neox": {
        "architectures": ["GPTNeoXForCausalLM"],
        "model_type": "gpt_neox",
        **_TEXT,
        "rotary_pct": 0.25,
        **_SPECIAL,
    },
    "gpt-bigcode": {
        "architectures": ["GPTBigCodeForCausalLM"],
        "model_type": "gpt_bigcode",
        "vocab_size": _V,
        "n_positions": 72,
        "n_embd": 64,
        "n_layer": 2,
        "n_head": 4,
        "n_inner": 160,
        "multi_query": True,
        **_SPECIAL,
    },
    "falcon": {
        "architectures": ["FalconForCausalLM"],
        "model_type": "falcon",
        "vocab_size": _V,
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "multi_query": True,
        "parallel_attn": True,
        "bias": False,
        "alibi": False,
        **_SPECIAL,
    },
    "mpt": {
        "architectures": ["MptForCausalLM"],
        "model_type": "mpt",
        "vocab_size": _V,
        "d_model": 64,
        "n_heads": 4,
        "n_layers": 2,
        "max_seq_len": 40,
        "expansion_ratio": 3,
    },
    "opt-postnorm": {
        "architectures": ["OPTForCausalLM"],
        "model_type": "opt",
        "vocab_size": _V,
        "hidden_size": 64,
        "word_embed_proj_dim": 40,
        "do_layer_norm_before": False,
        "ffn_dim": 160,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 72,
        "pad_token_id": 1,
        "bos_token_id": 2,
        "eos_token_id": 2,
    },
    "llama-rope3": _llama(
        rope_scaling={
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        },
        rope_theta=500000.0,
    ),
    "llama-yarn": _llama(
        rope_scaling={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 18},
        attention_bias=True,
    ),
    "qwen2": {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        **_GROUPED,
        "tie_word_embeddings": True,
    },
    "gemma2": {
        "architectures": ["Gemma2ForCausalLM"],
        "model_type": "gemma2",
        **_GROUPED,
        "sliding_window": 16,
        "query_pre_attn_scalar": 16,
    },
    "stablelm": {
        "architectures": ["StableLmForCausalLM"],
        "model_type": "stablelm",
        **_TEXT,
        **_SPECIAL,
        "num_key_value_heads": 2,
        "partial_rotary_factor": 0.25,
        "qk_layernorm": True,
    },
    "xglm": {
        "architectures": ["XGLMForCausalLM"],
        "model_type": "xglm",
        "vocab_size": _V,
        "d_model": 64,
        "ffn_dim": 160,
        "num_layers": 2,
        "attention_heads": 4,
        "max_position_embeddings": 72,
    },
    "recurrent-gemma": {
        "architectures": ["RecurrentGemmaForCausalLM"],
        "model_type": "recurrent_gemma",
        **_GROUPED,
        "lru_width": 64,
        "attention_window_size": 16,
        "num_hidden_layers": 3,
    },
    # encoders
    "deberta": {
        "architectures": ["DebertaForMaskedLM"],
        "model_type": "deberta",
        **_TEXT,
        "relative_attention": True,
        "max_relative_positions": 24,
        "pos_att_type": ["p2c", "c2p"],
        "position_biased_input": False,
        "type_vocab_size": 0,
        "pad_token_id": 0,
    },
    "xlnet": {
        "architectures": ["XLNetLMHeadModel"],
        "model_type": "xlnet",
        "vocab_size": _V,
        "d_model": 64,
        "n_layer": 2,
        "n_head": 4,
        "d_inner": 160,
        **_SPECIAL,
    },
    "funnel": {
        "architectures": ["FunnelForMaskedLM"],
        "model_type": "funnel",
        "vocab_size": _V,
        "block_sizes": [1, 1],
        "num_decoder_layers": 1,
        "d_model": 64,
        "n_head": 4,
        "d_head": 16,
        "d_inner": 160,
    },
    "fnet": {"architectures": ["FNetForMaskedLM"], "model_type": "fnet", **_TEXT, "pad_token_id": 0},
    "mobilebert": {
        "architectures": ["MobileBertForMaskedLM"],
        "model_type": "mobilebert",
        **_TEXT,
        "embedding_size": 32,
        "intra_bottleneck_size": 32,
        "num_feedforward_networks": 2,
    },
    "nystromformer": {
        "architectures": ["NystromformerForSequenceClassification"],
        "model_type": "nystromformer",
        **_TEXT,
        "num_landmarks": 8,
        "segment_means_seq_len": 8,
        "conv_kernel_size": 5,
        **_LABELS,
    },
    # encoder-decoders
    "longt5": {
        "architectures": ["LongT5ForConditionalGeneration"],
        "model_type": "longt5",
        "vocab_size": _V,
        "d_model": 64,
        "d_kv": 16,
        "d_ff": 160,
        "num_layers": 2,
        "num_heads": 4,
        "local_radius": 4,
        "encoder_attention_type": "local",
        "feed_forward_proj": "gated-gelu",
        "tie_word_embeddings": False,
        "pad_token_id": 0,
        "eos_token_id": 1,
        "decoder_start_token_id": 0,
    },
    "marian": {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        **_ENCODER_DECODER,
        "scale_embedding": True,
    },
    "m2m-100": {
        "architectures": ["M2M100ForConditionalGeneration"],
        "model_type": "m2m_100",
        **_ENCODER_DECODER,
    },
    "speecht5": {
        "architectures": ["SpeechT5ForSpeechToText"],
        "model_type": "speecht5",
        "vocab_size": 40,
        "hidden_size": 48,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 80,
        "decoder_ffn_dim": 88,
        "conv_dim": [16, 24],
        "conv_kernel": [10, 3],
        "conv_stride": [5, 2],
        "num_feat_extract_layers": 2,
        "num_conv_pos_embeddings": 16,
        "num_conv_pos_embedding_groups": 4,
        "encoder_max_relative_position": 20,
        "max_speech_positions": 60,
        "max_text_positions": 30,
        "mask_time_length": 2,
    },
    # images
    "dinov2": {"architectures": ["Dinov2Model"], "model_type": "dinov2", **_VISION, "mlp_ratio": 2},
    "beit": {
        "architectures": ["BeitForImageClassification"],
        "model_type": "beit",
        **_VISION,
        "use_relative_position_bias": True,
        "use_shared_relative_position_bias": False,
        "use_absolute_position_embeddings": False,
        **_LABELS,
    },
    "swin": {
        "architectures": ["SwinForImageClassification"],
        "model_type": "swin",
        "image_size": 32,
        "patch_size": 2,
        "embed_dim": 24,
        "depths": [2, 2],
        "num_heads": [2, 4],
        "window_size": 4,
        **_LABELS,
    },
    "swinv2": {
        "architectures": ["Swinv2ForImageClassification"],
        "model_type": "swinv2",
        "image_size": 32,
        "patch_size": 2,
        "embed_dim": 24,
        "depths": [2, 2],
        "num_heads": [2, 4],
        "window_size": 4,
        **_LABELS,
    },
    "convnext": {
        "architectures": ["ConvNextForImageClassification"],
        "model_type": "convnext",
        "image_size": 32,
        "hidden_sizes": [16, 24, 40],
        "depths": [1, 2, 1],
        "num_stages": 3,
        **_LABELS,
    },
    "efficientnet": {
        "architectures": ["EfficientNetForImageClassification"],
        "model_type": "efficientnet",
        "image_size": 48,
        "width_coefficient": 0.5,
        "depth_coefficient": 0.5,
        "in_channels": [32, 16, 24],
        "out_channels": [16, 24, 40],
        "kernel_sizes": [3, 3, 5],
        "strides": [1, 2, 2],
        "num_block_repeats": [1, 2, 2],
        "expand_ratios": [1, 6, 6],
        "depthwise_padding": [],
        "hidden_dim": 640,
        **_LABELS,
    },
    "segformer": {
        "architectures": ["SegformerForSemanticSegmentation"],
        "model_type": "segformer",
        "image_size": 64,
        "num_encoder_blocks": 2,
        "depths": [1, 1],
        "sr_ratios": [4, 1],
        "hidden_sizes": [16, 40],
        "patch_sizes": [7, 3],
        "strides": [4, 2],
        "num_attention_heads": [1, 2],
        "mlp_ratios": [4, 4],
        "decoder_hidden_size": 32,
        **_LABELS,
    },
    "maskformer": {
        "architectures": ["MaskFormerForInstanceSegmentation"],
        "model_type": "maskformer",
        "fpn_feature_size": 32,
        "mask_feature_size": 32,
        "backbone_config": {
            "model_type": "swin",
            "image_size": 64,
            "patch_size": 4,
            "embed_dim": 16,
            "depths": [1, 1, 1, 1],
            "num_heads": [2, 2, 4, 4],
            "window_size": 2,
            "out_features": ["stage1", "stage2", "stage3", "stage4"],
        },
        "decoder_config": {
            "model_type": "detr",
            "d_model": 32,
            "decoder_layers": 2,
            "decoder_attention_heads": 4,
            "decoder_ffn_dim": 56,
            "encoder_layers": 0,
            "num_queries": 9,
        },
        "image_size": 64,
        **_LABELS,
    },
    "detr": {
        "architectures": ["DetrForObjectDetection"],
        "model_type": "detr",
        "use_timm_backbone": False,
        "backbone": None,
        "backbone_config": {
            "model_type": "resnet",
            "embedding_size": 16,
            "hidden_sizes": [16, 32],
            "depths": [1, 1],
            "out_features": ["stage2"],
        },
        "d_model": 32,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 56,
        "decoder_ffn_dim": 60,
        "num_queries": 9,
        "image_size": 64,
        **_LABELS,
    },
    "focalnet": {
        "architectures": ["FocalNetForImageClassification"],
        "model_type": "focalnet",
        "image_size": 32,
        "embed_dim": 24,
        "depths": [1, 1],
        "hidden_sizes": [24, 48],
        "focal_levels": [2, 2],
        "focal_windows": [3, 3],
        **_LABELS,
    },
    # images and text
    "clip": {
        "architectures": ["CLIPModel"],
        "model_type": "clip",
        "projection_dim": 40,
        "text_config": {"model_type": "clip_text_model", **_TEXT, **_SPECIAL},
        "vision_config": {"model_type": "clip_vision_model", **_VISION},
    },
    "siglip": {
        "architectures": ["SiglipModel"],
        "model_type": "siglip",
        "text_config": {
            "model_type": "siglip_text_model",
            **_TEXT,
            "max_position_embeddings": 32,
            "hidden_size": 48,
        },
        "vision_config": {"model_type": "siglip_vision_model", **_VISION},
    },
    "blip": {
        "architectures": ["BlipForConditionalGeneration"],
        "model_type": "blip",
        "projection_dim": 40,
        "image_text_hidden_size": 40,
        "text_config": {"model_type": "blip_text_model", **_TEXT, **_SPECIAL, "encoder_hidden_size": 48},
        "vision_config": {"model_type": "blip_vision_model", **_VISION},
    },
    "llava": {
        "architectures": ["LlavaForConditionalGeneration"],
        "model_type": "llava",
        "image_token_id": 5,
        "image_token_index": 5,
        "vision_feature_layer": -1,
        "text_config": {"model_type": "llama", **_GROUPED},
        "vision_config": {"model_type": "clip_vision_model", **_VISION, "projection_dim": 40},
    },
    "vit-gpt2-captioning": {
        "architectures": ["VisionEncoderDecoderModel"],
        "model_type": "vision-encoder-decoder",
        "encoder": {"model_type": "vit", **_VISION},
        "decoder": {
            "model_type": "gpt2",
            "vocab_size": _V,
            "n_positions": 40,
            "n_embd": 64,
            "n_layer": 2,
            "n_head": 4,
            "add_cross_attention": True,
            "is_decoder": True,
            **_SPECIAL,
        },
        "decoder_start_token_id": 1,
        "pad_token_id": 0,
    },
    "owlvit": {
        "architectures": ["OwlViTModel"],
        "model_type": "owlvit",
        "projection_dim": 40,
        "text_config": {
            "model_type": "owlvit_text_model",
            **_TEXT,
            **_SPECIAL,
            "max_position_embeddings": 16,
        },
        "vision_config": {"model_type": "owlvit_vision_model", **_VISION},
    },
    # sound
    "wav2vec2": {"architectures": ["Wav2Vec2ForCTC"], "model_type": "wav2vec2", **_WAVES},
    "hubert": {"architectures": ["HubertForCTC"], "model_type": "hubert", **_WAVES},
    "sew": {"architectures": ["SEWForCTC"], "model_type": "sew", **_WAVES, "squeeze_factor": 2},
    # time series
    "patchtst": {
        "architectures": ["PatchTSTForPrediction"],
        "model_type": "patchtst",
        "num_input_channels": 3,
        "context_length": 24,
        "prediction_length": 6,
        "patch_length": 4,
        "patch_stride": 4,
        "num_hidden_layers": 2,
        "d_model": 24,
        "num_attention_heads": 3,
        "ffn_dim": 40,
    },
    "patchtsmixer": {
        "architectures": ["PatchTSMixerForPrediction"],
        "model_type": "patchtsmixer",
        "num_input_channels": 3,
        "context_length": 24,
        "prediction_length": 6,
        "patch_length": 4,
        "patch_stride": 4,
        "num_layers": 2,
        "d_model": 16,
    },
    "informer": {"architectures": ["InformerModel"], "model_type": "informer", **_SERIES},
    # Added when all rules were written (`plan.FRESH`).
    "gptj": {
        "architectures": ["GPTJForCausalLM"],
        "model_type": "gptj",
        **_SPECIAL,
        "vocab_size": _V,
        "n_embd": 64,
        "n_layer": 2,
        "n_head": 4,
        "n_inner": 160,
        "n_positions": 72,
        "rotary_dim": 8,
    },
    "gpt-neo": {
        "architectures": ["GPTNeoForCausalLM"],
        "model_type": "gpt_neo",
        **_SPECIAL,
        "vocab_size": _V,
        "hidden_size": 64,
        "num_layers": 2,
        "num_heads": 4,
        "intermediate_size": 160,
        "max_position_embeddings": 72,
        "attention_types": [[["global", "local"], 1]],
        "window_size": 5,
    },
    "phi": {"architectures": ["PhiForCausalLM"], "model_type": "phi", **_TEXT, **_SPECIAL},
    "cohere": {"architectures": ["CohereForCausalLM"], "model_type": "cohere", **_GROUPED},
    "olmo2": {"architectures": ["Olmo2ForCausalLM"], "model_type": "olmo2", **_GROUPED},
    "granite": {
        "architectures": ["GraniteForCausalLM"],
        "model_type": "granite",
        **_GROUPED,
        "embedding_multiplier": 12.0,
        "residual_multiplier": 0.22,
        "attention_multiplier": 0.0625,
        "logits_scaling": 8.0,
    },
    "electra": {
        "architectures": ["ElectraForMaskedLM"],
        "model_type": "electra",
        **_TEXT,
        "embedding_size": 24,
        "pad_token_id": 0,
    },
    "roformer": {
        "architectures": ["RoFormerForMaskedLM"],
        "model_type": "roformer",
        **_TEXT,
        "embedding_size": 64,
        "pad_token_id": 0,
    },
    "esm": {
        "architectures": ["EsmForMaskedLM"],
        "model_type": "esm",
        **_TEXT,
        "pad_token_id": 1,
        "mask_token_id": 3,
        "position_embedding_type": "rotary",
        "emb_layer_norm_before": True,
        "token_dropout": True,
    },
    "convnextv2": {
        "architectures": ["ConvNextV2ForImageClassification"],
        "model_type": "convnextv2",
        **_LABELS,
        "hidden_sizes": [16, 24],
        "depths": [1, 2],
        "num_stages": 2,
        "image_size": 32,
    },
    "levit": {
        "architectures": ["LevitForImageClassification"],
        "model_type": "levit",
        **_LABELS,
        "image_size": 64,
        "hidden_sizes": [16, 24, 32],
        "num_attention_heads": [2, 3, 4],
        "depths": [1, 1, 1],
        "key_dim": [8, 8, 8],
        "down_ops": [["Subsample", 8, 2, 4, 2, 2], ["Subsample", 8, 3, 4, 2, 2]],
    },
    "poolformer": {
        "architectures": ["PoolFormerForImageClassification"],
        "model_type": "poolformer",
        **_LABELS,
        "hidden_sizes": [16, 24, 32, 40],
        "depths": [1, 1, 1, 1],
    },
    "bit": {
        "architectures": ["BitForImageClassification"],
        "model_type": "bit",
        **_LABELS,
        "embedding_size": 32,
        "hidden_sizes": [32, 64],
        "depths": [1, 1],
        "num_groups": 8,
    },
    "mobilevit": {
        "architectures": ["MobileViTForImageClassification"],
        "model_type": "mobilevit",
        **_LABELS,
        "image_size": 64,
        "hidden_sizes": [24, 32, 40],
        "neck_hidden_sizes": [8, 12, 16, 24, 28, 32, 48],
        "num_attention_heads": 4,
    },
    "pvt-v2": {
        "architectures": ["PvtV2ForImageClassification"],
        "model_type": "pvt_v2",
        **_LABELS,
        "image_size": {"height": 64, "width": 64},
        "hidden_sizes": [16, 24],
        "depths": [1, 1],
        "num_encoder_blocks": 2,
        "num_attention_heads": [1, 3],
        "sr_ratios": [4, 1],
        "mlp_ratios": [2, 2],
        "patch_sizes": [7, 3],
        "strides": [4, 2],
    },
    "data2vec-audio": {
        "architectures": ["Data2VecAudioForCTC"],
        "model_type": "data2vec-audio",
        **_WAVES,
        "conv_pos_kernel_size": 5,
        "num_conv_pos_embeddings": 2,
    },
}


def _series() -> dict[str, Any]:
    import torch

    past = 8 + 3
    return {
        "past_values": torch.randn(2, past),
        "past_time_features": torch.randn(2, past, 2),
        "past_observed_mask": torch.ones(2, past),
        "future_values": torch.randn(2, 5),
        "future_time_features": torch.randn(2, 5, 2),
    }


def _past_values() -> dict[str, Any]:
    import torch

    return {"past_values": torch.randn(2, 24, 3)}


def _image_prompt() -> dict[str, Any]:
    import torch

    ids = torch.cat([torch.randint(6, _V, (2, 4)), torch.full((2, 16), 5), torch.randint(6, _V, (2, 5))], 1)
    return {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "pixel_values": torch.randn(2, 3, 32, 32),
    }


def _caption() -> dict[str, Any]:
    import torch

    ids = torch.randint(3, _V, (2, 9))
    return {
        "pixel_values": torch.randn(2, 3, 32, 32),
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
    }


def _decoded_picture() -> dict[str, Any]:
    import torch

    return {"pixel_values": torch.randn(2, 3, 32, 32), "decoder_input_ids": torch.randint(3, _V, (2, 9))}


def _wave_to_text() -> dict[str, Any]:
    import torch

    return {"input_values": torch.randn(2, 400), "decoder_input_ids": torch.randint(3, 40, (2, 7))}


def _picture() -> dict[str, Any]:
    import torch

    return {"pixel_values": torch.randn(2, 3, 64, 64)}


INPUTS: Mapping[str, Callable[[], dict[str, Any]]] = {
    "informer": _series,
    "patchtst": _past_values,
    "patchtsmixer": _past_values,
    "llava": _image_prompt,
    "blip": _caption,
    "vit-gpt2-captioning": _decoded_picture,
    "speecht5": _wave_to_text,
    "detr": _picture,
    "maskformer": _picture,
}
"""Of models whose example inputs the exporter cannot make from the config."""
