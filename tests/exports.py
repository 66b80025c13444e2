"""Tiny models of every kind, exported once per session whatever number of tests look at them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

TEXT = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "bert": {"architectures": ["BertForMaskedLM"], "model_type": "bert", **TEXT},
    "bert-untied": {
        "architectures": ["BertForMaskedLM"],
        "model_type": "bert",
        **TEXT,
        "vocab_size": 104,
        "tie_word_embeddings": False,
    },
    "gpt2": {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": 99,
        "n_positions": 64,
        "n_embd": 32,
        "n_layer": 1,
        "n_head": 4,
        "bos_token_id": 1,
        "eos_token_id": 2,
    },
    "llama": {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_key_value_heads": 2,
        **TEXT,
        "num_hidden_layers": 1,
    },
    "t5": {
        "architectures": ["T5ForConditionalGeneration"],
        "model_type": "t5",
        "vocab_size": 99,
        "d_model": 32,
        "d_kv": 8,
        "d_ff": 48,
        "num_layers": 1,
        "num_heads": 4,
        "decoder_start_token_id": 0,
    },
    "whisper": {
        "architectures": ["WhisperForConditionalGeneration"],
        "model_type": "whisper",
        "vocab_size": 99,
        "d_model": 32,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 48,
        "decoder_ffn_dim": 48,
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
        "image_size": 32,
        "patch_size": 8,
        **{key: TEXT[key] for key in TEXT if key not in ("vocab_size", "max_position_embeddings")},
    },
    "resnet": {
        "architectures": ["ResNetForImageClassification"],
        "model_type": "resnet",
        "embedding_size": 16,
        "hidden_sizes": [16, 24],
        "depths": [1, 1],
    },
}
FACTORY = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 5, 3)
        self.norm = torch.nn.BatchNorm2d(5)
        self.head = torch.nn.Linear(5, 4)
        self.spare = torch.nn.Linear(6, 7)

    def forward(self, image):
        return self.head(torch.relu(self.norm(self.conv(image))).mean((2, 3)))

def build():
    return Net(), (torch.randn(2, 3, 9, 9),)
"""


@dataclass(frozen=True)
class Exported:
    """The files of an export, and the model that they were made from."""

    files: Any  # exporter.ExportedFiles: importing the exporter here would import torch for every test
    resolved: Any


@dataclass
class Exports:
    """Exports by name and by how they are made, each made when it is first asked for."""

    folder: Path
    _done: dict[str, Exported] = field(default_factory=dict)

    def __call__(
        self,
        name: str,
        dtype: str = "fp32",
        via: str | None = None,
        fresh: bool = False,
        **how: bool | str,
    ) -> Exported:
        """`how` are the options of `export_model` that are not their defaults."""
        words = [name, dtype, via or "default", "fresh" if fresh else "random"]
        key = "-".join([*words, *(f"{option}={value}" for option, value in sorted(how.items()))])
        if key not in self._done:
            self._done[key] = self._export(key, name, dtype, via, fresh, how)
        return self._done[key]

    def _export(
        self, key: str, name: str, dtype: str, via: str | None, fresh: bool, how: dict[str, Any]
    ) -> Exported:
        from exporter import SourceOptions, export_model, resolve_source

        folder = self.folder / key
        folder.mkdir()
        options = SourceOptions(random_weights=not fresh, fresh_init=fresh, dtype=dtype)
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            resolved = resolve_source(write_source(name, folder), options)
        return Exported(export_model(resolved, folder / "out", via=via, **how), resolved)


def write_source(name: str, folder: Path) -> str:
    """The SOURCE of a tiny model: a config file, or the factory."""
    if name == "factory":
        (folder / "tiny_factory.py").write_text(FACTORY)
        return "tiny_factory:build"
    path = folder / "config.json"
    path.write_text(json.dumps(CONFIGS[name]))
    return str(path)
