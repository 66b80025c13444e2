"""A published model's name -> its published config, kept here so that no network is needed; imports no torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import resources
from typing import Any

from exporter.presets.published import Published, load_published

__all__ = ["PRESETS", "Published", "load_published", "preset_config", "preset_name", "preset_names"]

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
"""Presets that have their whole `config.json`: short names, and the hub ids they are published under."""


def preset_names() -> tuple[str, ...]:
    """Every name of every preset: short names, then hub ids; those with a whole config first."""
    published = load_published().values()
    short_names = (each.short_name for each in published if each.short_name is not None)
    return tuple(dict.fromkeys((*PRESETS, *short_names, *PRESETS.values(), *load_published())))


def preset_name(source: str) -> str | None:
    """The preset that a short name or hub id means; None if there is none.

    >>> preset_name("google-bert/bert-base-uncased"), preset_name("openai-community/gpt2-xl")
    ('bert-base-uncased', 'gpt2-xl')
    """
    if source in PRESETS:
        return source
    name = next((name for name, hub_id in PRESETS.items() if hub_id == source), None)
    published = _find_published(source) if name is None else None
    return name if published is None else published.short_name or published.hub_id


def preset_config(name: str) -> dict[str, Any]:
    """The published config of a preset: as in its `config.json`, or the fields of it that matter.

    Raises:
        KeyError: there is no such preset.
    """
    if name in PRESETS:
        text = resources.files(__name__).joinpath(f"{name}.json").read_text(encoding="utf-8")
        config: dict[str, Any] = json.loads(text)
        return config
    published = _find_published(name)
    if published is None:
        raise KeyError(name)
    return published.config


def _find_published(name: str) -> Published | None:
    """The published model of a hub id or short name."""
    models = load_published()
    if name in models:
        return models[name]
    return next((each for each in models.values() if each.short_name == name), None)
