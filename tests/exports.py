"""Tiny models of every kind, exported once for all tests, processes and runs."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from kept import keep
from samples import sampled

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
TYPED = sampled(
    [(name, dtype) for name in [*CONFIGS, "factory"] for dtype in ("fp32", "fp16")],
    [
        *((name, "fp32") for name in [*CONFIGS, "factory"] if name != "bert-untied"),
        ("resnet", "fp16"),
    ],
)
"""Each architecture, and one in half precision; the untied BERT is exported by TorchScript alone."""

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

    folder: Path
    """Folder of its source, with the export in `out`; other tests read it, too."""
    name: str
    dtype: str
    fresh: bool

    @cached_property
    def files(self) -> Any:
        """An `exporter.ExportedFiles`."""
        from analyzer.manifest import load_manifest
        from exporter import ExportedFiles

        out = self.folder / "out"
        note = json.loads((self.folder / MADE).read_text())
        manifest = out / "manifest.json"
        return ExportedFiles(
            artifact=out / note["artifact"],
            models=tuple(out / each for each in note["models"]),
            manifest_path=manifest,
            manifest=load_manifest(manifest),
            files=tuple(out / each for each in note["files"]),
        )

    @cached_property
    def names(self) -> list[str]:
        """Names of the files after the export; tests add more."""
        return list(json.loads((self.folder / MADE).read_text())["names"])

    @cached_property
    def resolved(self) -> Any:
        """The module, built again: its random weights come from a seed."""
        return resolve(self.folder, self.name, self.dtype, self.fresh)


@dataclass
class Exports:
    """Exports by name and options, each made at the first request, in any process."""

    _done: dict[str, Exported] = field(default_factory=dict)

    def __call__(
        self,
        name: str,
        dtype: str = "fp32",
        via: str | None = None,
        fresh: bool = False,
        **how: bool | str,
    ) -> Exported:
        """Return an export; `how` are further options of `export_model`."""
        words = [name, dtype, via or "default", "fresh" if fresh else "random"]
        key = "-".join([*words, *(f"{option}={value}" for option, value in sorted(how.items()))])

        def make(folder: Path) -> None:
            from exporter import export_model

            with pytest.MonkeyPatch.context() as patch:
                patch.chdir(folder)
                files = export_model(resolve(folder, name, dtype, fresh), folder / "out", via=via, **how)
            note = {
                "artifact": files.artifact.relative_to(folder / "out").as_posix(),
                "models": [path.name for path in files.models],
                "files": [path.name for path in files.files],
                "names": sorted(path.name for path in (folder / "out").iterdir()),
            }
            (folder / MADE).write_text(json.dumps(note))

        if key not in self._done:
            self._done[key] = Exported(keep("exports", key, make), name, dtype, fresh)
        return self._done[key]


MADE = "made.json"


def resolve(folder: Path, name: str, dtype: str, fresh: bool) -> Any:
    from exporter import SourceOptions, resolve_source

    options = SourceOptions(random_weights=not fresh, fresh_init=fresh, dtype=dtype)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return resolve_source(write_source(name, folder), options)


def write_source(name: str, folder: Path) -> str:
    """Write the SOURCE of a tiny model, and return it: a config file, or the factory."""
    if name == "factory":
        write_once(folder / "tiny_factory.py", FACTORY)
        return "tiny_factory:build"
    path = folder / "config.json"
    write_once(path, json.dumps(CONFIGS[name]))
    return str(path)


def write_once(path: Path, text: str) -> None:
    if not path.exists():  # it may be one that other tests read
        path.write_text(text)
