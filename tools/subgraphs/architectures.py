"""The models whose layers are known: as published, or in a published model's shape; and small ones for the tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from exporter.presets import preset_config

__all__ = ["ARCHITECTURES", "SMALL", "TITLES", "uses_of"]

_SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}

ARCHITECTURES: Mapping[str, Mapping[str, Any]] = {
    "bert": {**preset_config("bert-base-uncased"), "architectures": ["BertModel"]},
    "albert": {**preset_config("albert-base-v2"), "architectures": ["AlbertModel"]},
    "gpt2": preset_config("gpt2"),
    "t5": preset_config("t5-small"),
    "llama": {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": 32000,
        "hidden_size": 512,
        "num_hidden_layers": 8,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "intermediate_size": 1408,
        "max_position_embeddings": 2048,
        **_SPECIAL,
    },
    "vit": {"architectures": ["ViTForImageClassification"], "model_type": "vit"},
    "resnet": {"architectures": ["ResNetForImageClassification"], "model_type": "resnet"},
    "swin": {"architectures": ["SwinForImageClassification"], "model_type": "swin"},
}
"""The configs; missing settings are the defaults of transformers, which describe the published base model."""

TITLES: Mapping[str, str] = {
    "bert": "BERT-base",
    "albert": "ALBERT-base",
    "gpt2": "GPT-2",
    "t5": "T5-small",
    "llama": "Llama (8 x 512)",
    "vit": "ViT-base",
    "resnet": "ResNet-50",
    "swin": "Swin-tiny",
}

_TEXT = {
    "vocab_size": 167,
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 160,
    "max_position_embeddings": 72,
}
SMALL: Mapping[str, Mapping[str, Any]] = {
    "bert": {"architectures": ["BertModel"], "model_type": "bert", **_TEXT},
    "albert": {
        "architectures": ["AlbertModel"],
        "model_type": "albert",
        **_TEXT,
        "embedding_size": 32,
        **_SPECIAL,
    },
    "gpt2": {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": 167,
        "n_positions": 72,
        "n_embd": 64,
        "n_layer": 4,
        "n_head": 4,
        "bos_token_id": 1,
        "eos_token_id": 2,
    },
    "t5": {
        "architectures": ["T5ForConditionalGeneration"],
        "model_type": "t5",
        "vocab_size": 167,
        "d_model": 64,
        "d_kv": 16,
        "d_ff": 160,
        "num_layers": 3,
        "num_heads": 4,
        "pad_token_id": 0,
        "eos_token_id": 1,
        "decoder_start_token_id": 0,
    },
    "llama": {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        **_TEXT,
        "num_key_value_heads": 2,
        **_SPECIAL,
    },
    "resnet": {
        "architectures": ["ResNetForImageClassification"],
        "model_type": "resnet",
        "embedding_size": 16,
        "hidden_sizes": [32, 64],
        "depths": [2, 3],
    },
}
"""The same families with few layers, for `tests/test_subgraphs.py`."""


def uses_of(config: Mapping[str, Any]) -> int:
    """Return the number of uses of each layer: ALBERT runs its only layer once for every layer of its config."""
    return int(config["num_hidden_layers"]) if config["model_type"] == "albert" else 1
