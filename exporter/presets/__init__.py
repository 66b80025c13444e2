"""A published model's name -> its published config, kept here so that no network is needed; imports no torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import resources
from typing import Any

__all__ = ["PRESETS", "preset_config", "preset_name"]

PRESETS: Mapping[str, str] = {
    "albert-base-v2": "albert/albert-base-v2",
    "bert-base-cased": "google-bert/bert-base-cased",
    "bert-base-chinese": "google-bert/bert-base-chinese",
    "bert-base-uncased": "google-bert/bert-base-uncased",
    "distilbert-base-uncased": "distilbert/distilbert-base-uncased",
    "gpt2": "openai-community/gpt2",
    "roberta-base": "FacebookAI/roberta-base",
    "t5-small": "google-t5/t5-small",
}
"""Each preset's short name and the hub id it is published under."""


def preset_name(source: str) -> str | None:
    """The preset that a short name or hub id means; None if there is none.

    >>> preset_name("google-bert/bert-base-uncased")
    'bert-base-uncased'
    """
    if source in PRESETS:
        return source
    return next((name for name, hub_id in PRESETS.items() if hub_id == source), None)


def preset_config(name: str) -> dict[str, Any]:
    """The published config of a preset, as in its `config.json`.

    Raises:
        KeyError: there is no such preset.
    """
    if name not in PRESETS:
        raise KeyError(name)
    text = resources.files(__name__).joinpath(f"{name}.json").read_text(encoding="utf-8")
    config: dict[str, Any] = json.loads(text)
    return config
