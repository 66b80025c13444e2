"""The tiny configs of the matrix, as data: sizes that an exporter or a rule may confuse are distinct.

Hidden sizes are multiples of 32, so that blocks of 32 and of 16 fill them. Query, key and value weights are square
where the real models' are. No other two axes of a model are equal unless they are equal in the real one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["ARCHITECTURES", "WITH_BATCHNORM"]

_VOCABULARY = 167
_TEXT = {
    "vocab_size": _VOCABULARY,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 160,
    "max_position_embeddings": 72,
}
_GROUPED = {**_TEXT, "num_key_value_heads": 2, "head_dim": 16}
_SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_BERT = {"model_type": "bert", **_TEXT}
_ALBERT = {
    "model_type": "albert",
    **_TEXT,
    "num_hidden_layers": 3,  # one layer, used three times
    "embedding_size": 32,
    **_SPECIAL,
}

ARCHITECTURES: Mapping[str, Mapping[str, Any]] = {
    "bert": {"architectures": ["BertModel"], **_BERT},
    "bert-masked-lm": {"architectures": ["BertForMaskedLM"], **_BERT},
    "bert-classifier": {
        "architectures": ["BertForSequenceClassification"],
        **_BERT,
        "id2label": {"0": "no", "1": "yes", "2": "perhaps"},
        "label2id": {"no": 0, "yes": 1, "perhaps": 2},
    },
    "albert": {"architectures": ["AlbertModel"], **_ALBERT},
    "albert-masked-lm": {"architectures": ["AlbertForMaskedLM"], **_ALBERT},
    "roberta": {
        "architectures": ["RobertaForMaskedLM"],
        "model_type": "roberta",
        **_TEXT,
        "max_position_embeddings": 74,
        "type_vocab_size": 1,
        "pad_token_id": 1,
        "bos_token_id": 0,
        "eos_token_id": 2,
    },
    "distilbert": {
        "architectures": ["DistilBertForMaskedLM"],
        "model_type": "distilbert",
        "vocab_size": _VOCABULARY,
        "dim": 64,
        "n_layers": 2,
        "n_heads": 4,
        "hidden_dim": 160,
        "max_position_embeddings": 72,
    },
    "deberta-v2": {  # as in microsoft/deberta-v3-base
        "architectures": ["DebertaV2ForMaskedLM"],
        "model_type": "deberta-v2",
        **_TEXT,
        "relative_attention": True,
        "position_buckets": 24,
        "max_relative_positions": -1,
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
        "pos_att_type": ["p2c", "c2p"],
        "position_biased_input": False,
        "type_vocab_size": 0,
        "pad_token_id": 0,
    },
    "modernbert": {
        "architectures": ["ModernBertForMaskedLM"],
        "model_type": "modernbert",
        **_TEXT,
        "global_attn_every_n_layers": 2,
        "local_attention": 16,
        **_SPECIAL,
        "cls_token_id": 1,
        "sep_token_id": 2,
    },
    "gpt2": {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": _VOCABULARY,
        "n_positions": 72,
        "n_embd": 64,
        "n_layer": 2,
        "n_head": 4,
        "n_inner": 160,
        "bos_token_id": 1,
        "eos_token_id": 2,
    },
    "opt": {
        "architectures": ["OPTForCausalLM"],
        "model_type": "opt",
        "vocab_size": _VOCABULARY,
        "hidden_size": 64,
        "word_embed_proj_dim": 64,
        "ffn_dim": 160,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 72,
        "pad_token_id": 1,
        "bos_token_id": 2,
        "eos_token_id": 2,
    },
    "llama": {"architectures": ["LlamaForCausalLM"], "model_type": "llama", **_GROUPED, **_SPECIAL},
    "qwen3": {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        **_GROUPED,
        **_SPECIAL,
        "tie_word_embeddings": True,
    },
    "mistral": {
        "architectures": ["MistralForCausalLM"],
        "model_type": "mistral",
        **_GROUPED,
        **_SPECIAL,
        "sliding_window": 40,
    },
    "mixtral": {
        "architectures": ["MixtralForCausalLM"],
        "model_type": "mixtral",
        **_GROUPED,
        **_SPECIAL,
        "num_local_experts": 3,
        "num_experts_per_tok": 2,
    },
    "gemma": {
        "architectures": ["GemmaForCausalLM"],
        "model_type": "gemma",
        **_GROUPED,
        **_SPECIAL,
        "num_key_value_heads": 1,
    },
    "t5": {
        "architectures": ["T5ForConditionalGeneration"],
        "model_type": "t5",
        "vocab_size": _VOCABULARY,
        "d_model": 64,
        "d_kv": 16,
        "d_ff": 160,
        "num_layers": 2,
        "num_heads": 4,
        "pad_token_id": 0,
        "eos_token_id": 1,
        "decoder_start_token_id": 0,
    },
    "bart": {
        "architectures": ["BartForConditionalGeneration"],
        "model_type": "bart",
        "vocab_size": _VOCABULARY,
        "d_model": 64,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 160,
        "decoder_ffn_dim": 96,
        "max_position_embeddings": 72,
        "bos_token_id": 0,
        "pad_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 2,
        "forced_eos_token_id": None,
    },
    "whisper": {
        "architectures": ["WhisperForConditionalGeneration"],
        "model_type": "whisper",
        "vocab_size": _VOCABULARY,
        "d_model": 64,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 160,
        "decoder_ffn_dim": 96,
        "num_mel_bins": 16,
        "max_source_positions": 30,
        "max_target_positions": 40,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 3,
    },
    "vit": {
        "architectures": ["ViTForImageClassification"],
        "model_type": "vit",
        "image_size": 48,
        "patch_size": 8,
        **{k: v for k, v in _TEXT.items() if k not in ("vocab_size", "max_position_embeddings")},
        "id2label": {"0": "no", "1": "yes", "2": "perhaps"},
        "label2id": {"no": 0, "yes": 1, "perhaps": 2},
    },
    "resnet": {
        "architectures": ["ResNetForImageClassification"],
        "model_type": "resnet",
        "embedding_size": 16,
        "hidden_sizes": [32, 64],
        "depths": [2, 2],
        "id2label": {"0": "no", "1": "yes", "2": "perhaps"},
        "label2id": {"no": 0, "yes": 1, "perhaps": 2},
    },
}

WITH_BATCHNORM = frozenset({"resnet"})
"""Architectures from which folding removes values that cannot be recovered."""
