"""A model family of transformers -> the names of its parameters, from tiny models that are built without weights.

The lists are kept in tests/golden, so that presets can be tested on every family without PyTorch.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LISTS = Path(__file__).parent / "golden"

PRESETS = {
    "bert": "bert",
    "roberta": "roberta",
    "xlm_roberta": "roberta",
    "distilbert": "distilbert",
    "albert": "albert",
    "electra": "electra",
    "deberta": "deberta",
    "deberta_v2": "deberta",
    "modernbert": "modernbert",
    "gpt2": "gpt2",
    "opt": "opt",
    "llama": "llama",
    "mistral": "llama",
    "mixtral": "llama",
    "qwen3": "llama",
    "gemma": "llama",
    "t5": "t5",
    "bart": "bart",
    "mbart": "bart",
    "whisper": "whisper",
    "vit": "vit",
    "deit": "vit",
    "swin": "swin",
    "swinv2": "swin",
    "resnet": "resnet",
    "clip": "clip",
}
"""Modules of transformers, and the preset for each."""

_TWO = ("num_hidden_layers", "num_layers", "encoder_layers", "decoder_layers", "n_layer", "n_layers")
_WIDE = ("hidden_size", "d_model", "dim", "n_embd", "embed_dim", "word_embed_proj_dim")
_TINY = {
    **dict.fromkeys(_TWO, 2),
    **dict.fromkeys(_WIDE, 16),
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "vocab_size": 50,
    "embedding_size": 8,
    "head_dim": 8,
    "num_local_experts": 2,
    "decoder_start_token_id": 0,
    "pad_token_id": 0,
}
_OWN: dict[str, dict[str, Any]] = {
    "deberta": {"relative_attention": True},
    "deberta_v2": {"relative_attention": True, "norm_rel_ebd": "layer_norm", "conv_kernel_size": 3},
    "opt": {"word_embed_proj_dim": 8},
    "swin": {"embed_dim": 8, "depths": [1, 1], "num_heads": [1, 2], "use_absolute_embeddings": True},
    "swinv2": {"embed_dim": 8, "depths": [1, 1], "num_heads": [1, 2]},
    "resnet": {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]},
}


@dataclass(frozen=True)
class Family:
    """Parameter names of all classes of one module."""

    base: tuple[str, ...]
    """Names in the base model alone."""
    prefixes: tuple[str, ...]
    """Prefixes of these names inside another class."""
    heads: tuple[str, ...]
    """All other names, in full."""

    @classmethod
    def read(cls, module: str) -> Family:
        """Read the list in tests/golden."""
        lines = (LISTS / f"names-{module}.txt").read_text(encoding="utf-8").splitlines()
        end = lines.index("# others")
        prefixes = lines[0].partition(" with ")[2].split()
        return cls(tuple(_spread(lines[1:end])), tuple(prefixes), tuple(_spread(lines[end + 1 :])))

    @property
    def whole(self) -> tuple[str, ...]:
        """Names in a model with heads: the base model below the first prefix, and all others."""
        prefix = self.prefixes[0] if self.prefixes else ""
        return tuple(f"{prefix}{name}" for name in self.base) + self.heads


def list_names(module: str) -> str:
    """Return the list of one module, from transformers: the base model, its prefixes, and all other names."""
    names = {model: set(found) for model, found in _classes(module)}
    base_class = min((m for m in names if re.fullmatch(r"[A-Z]\w*?Model", m)), key=len)
    base = names[base_class]
    prefixes: dict[str, int] = {}
    others: set[str] = set()
    for name in set().union(*names.values()) - base:
        first, _, rest = name.partition(".")
        if rest in base:
            prefixes[f"{first}."] = prefixes.get(f"{first}.", 0) + 1
        else:
            others.add(name)
    ordered = sorted(prefixes, key=lambda prefix: (-prefixes[prefix], prefix))
    head = f"# {base_class}{' with ' if ordered else ''}{' '.join(ordered)}"
    return "\n".join([head, *_fold(base), "# others", *_fold(others)]) + "\n"


def _classes(module: str) -> Iterator[tuple[str, list[str]]]:
    import torch
    import transformers

    modeling = importlib.import_module(f"transformers.models.{module}.modeling_{module}")
    for name in modeling.__all__:
        kind = getattr(modeling, name)
        if not (inspect.isclass(kind) and issubclass(kind, transformers.PreTrainedModel)):
            continue
        if kind.config_class is None or "PreTrained" in name or "Pretrained" in name:
            continue
        with torch.device("meta"):
            model = kind(_configure(module, kind.config_class))
        yield name, [parameter for parameter, _ in model.named_parameters(remove_duplicate=False)]


def _configure(module: str, kind: Any) -> Any:
    default = kind()
    if hasattr(default, "text_config"):  # several towers
        two = {"num_hidden_layers": 2}
        return kind(text_config=two, vision_config=two)
    known = vars(default).keys() | getattr(kind, "attribute_map", {}).keys()
    is_flat = module not in ("swin", "swinv2", "resnet")  # their stages have different widths
    tiny = {key: value for key, value in _TINY.items() if is_flat and key in known}
    return kind(**{**tiny, **_OWN.get(module, {})})


_LAYER = re.compile(r"(?<=\.)\d+(?=\.)")
_BOTH = "{0,1}"


def _fold(names: set[str]) -> list[str]:
    """Sort the names, and join equal names in two layers: `layer.{0,1}.weight`."""
    twice = {_LAYER.sub(_BOTH, name) for name in names if len(_LAYER.findall(name)) == 1}
    twice = {line for line in twice if set(_spread([line])) <= names}
    return sorted(twice | {name for name in names if _LAYER.sub(_BOTH, name) not in twice})


def _spread(lines: list[str]) -> list[str]:
    return [line.replace(_BOTH, layer) for line in lines for layer in ("01" if _BOTH in line else "0")]
