"""Name of a published model -> its published config, kept here so that no network is needed; imports no torch."""

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
    """A published model, and the number of parameters that its publication states."""

    hub_id: str
    short_name: str | None
    """Last part of the hub id; None if another hub id has the same."""
    model_type: str
    architectures: tuple[str, ...]
    fields: Mapping[str, Any]
    """Fields of config.json that change the count or the cache, and differ from the defaults of the config's class."""
    source: str
    """Source of the count, or the document that would state it."""
    published: str | None = None
    """Count as printed in the source; None if none is."""
    active: str | None = None
    """Printed count of the parameters that one token uses."""
    counted_as: str | None = None
    """Class whose parameters are counted, if it is not the architecture."""
    note: str | None = None
    """Known reason why the printed count is not exact."""

    @property
    def counted_class(self) -> str:
        """Class whose parameters the publication counts."""
        return self.counted_as or self.architectures[0]

    @property
    def config(self) -> dict[str, Any]:
        """Content for a config.json."""
        return {"model_type": self.model_type, "architectures": list(self.architectures), **self.fields}


@functools.cache
def load_published() -> Mapping[str, Published]:
    """Return all published models by hub id, in the order of the file.

    Raises:
        TypeError: an entry lacks a key, or has an unknown one. No shipped entry does.
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
"""Presets with their complete `config.json`: short names, and the hub ids they are published under."""


def preset_names() -> tuple[str, ...]:
    """Return all names of all presets: short names, then hub ids; those with a complete config first."""
    published = load_published().values()
    short_names = (each.short_name for each in published if each.short_name is not None)
    return tuple(dict.fromkeys((*PRESETS, *short_names, *PRESETS.values(), *load_published())))


def preset_name(source: str) -> str | None:
    """Return the preset of a short name or hub id; None if there is none.

    >>> preset_name("google-bert/bert-base-uncased"), preset_name("openai-community/gpt2-xl")
    ('bert-base-uncased', 'gpt2-xl')
    """
    if source in PRESETS:
        return source
    name = next((name for name, hub_id in PRESETS.items() if hub_id == source), None)
    published = _find_published(source) if name is None else None
    return name if published is None else published.short_name or published.hub_id


def preset_config(name: str) -> dict[str, Any]:
    """Return the published config of a preset: its complete `config.json`, or the fields of it that matter.

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
    """Return the published model of a hub id or short name."""
    models = load_published()
    if name in models:
        return models[name]
    return next((each for each in models.values() if each.short_name == name), None)
