"""A published model's name -> its published config, kept here so that no network is needed; imports no torch."""

from __future__ import annotations

import functools
import json
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from types import MappingProxyType
from typing import Any

# published models

__all__ = ["PRESETS", "Published", "load_published", "preset_config", "preset_name", "preset_names"]


@dataclass(frozen=True, slots=True)
class Published:
    """One model, and how many parameters its publication says it has."""

    hub_id: str
    short_name: str | None
    """The end of its hub id; None where another one ends alike."""
    model_type: str
    architectures: tuple[str, ...]
    fields: Mapping[str, Any]
    """Of its config.json: what changes the count or the cache, and is not what the config's class takes anyway."""
    source: str
    """Where the count is from, or where it would stand."""
    published: str | None = None
    """The count as it is printed there; None where none is."""
    active: str | None = None
    """What is printed of one token's share."""
    counted_as: str | None = None
    """The class whose parameters are meant, where that is not the architecture."""
    note: str | None = None
    """Why the printed count is not the exact one, as far as that is known."""

    @property
    def counted_class(self) -> str:
        """The class whose parameters the publication counts."""
        return self.counted_as or self.architectures[0]

    @property
    def config(self) -> dict[str, Any]:
        """What stands for its config.json."""
        return {"model_type": self.model_type, "architectures": list(self.architectures), **self.fields}


@functools.cache
def load_published() -> Mapping[str, Published]:
    """All of them by hub id, in the order of the file.

    Raises:
        TypeError: an entry lacks a key, or has one that there is not. None that ships does.
    """
    text = resources.files("exporter.presets").joinpath("published.toml").read_text(encoding="utf-8")
    table = tomllib.loads(text)
    ends = Counter(map(_end, table))
    return MappingProxyType(
        {hub_id: _entry(hub_id, item, is_unique=ends[_end(hub_id)] == 1) for hub_id, item in table.items()}
    )


def _end(hub_id: str) -> str:
    return hub_id.rpartition("/")[2]


def _entry(hub_id: str, item: dict[str, Any], *, is_unique: bool) -> Published:
    fields, architectures = item.pop("config"), tuple(item.pop("architectures"))
    short_name = _end(hub_id) if is_unique else None
    return Published(hub_id, short_name, architectures=architectures, fields=fields, **item)


# presets

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
