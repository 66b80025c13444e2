"""published.toml -> Published: models that are presets by their published fields, and what is said of their counts."""

from __future__ import annotations

import functools
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from types import MappingProxyType
from typing import Any

__all__ = ["Published", "load_published"]


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
