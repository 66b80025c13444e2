"""Suggestions for a path that is no model: a similar name beside it, or the model that the data file belongs to."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

_MOST = 1_000
"""Number of names in a folder that are looked at."""

_LONGEST = 255
"""Longest name in characters that is looked up: common file systems allow no longer one."""

_DATA = (".data", ".onnx_data", ".bin", ".weights", ".weight", ".pb")
"""Suffixes that exporters give files of external data."""


def near_name(path: Path) -> str:
    """Return `; did you mean FOLDER/NAME?` with the most similar name beside a missing path, or ""."""
    if len(path.name) > _LONGEST:
        return ""
    import difflib  # only needed after a mistake

    near = difflib.get_close_matches(
        path.name, [each for each in _names(path.parent) if each != path.name], 1
    )
    return f"; did you mean {path.with_name(near[0])}?" if near else ""


def model_of_data(path: Path) -> str:
    """Return `; it may hold the data of MODEL: name that` if a model beside it fits its name, or ""."""
    models = sorted(name for name in _names(path.parent) if name.endswith(".onnx") and name != path.name)
    own = [name for name in models if path.name.startswith((name, Path(name).stem))]
    own.sort(key=lambda name: (not path.name.startswith(name), -len(name)))
    found = own or (models if path.name.endswith(_DATA) else [])
    return f"; it may hold the data of {path.with_name(found[0])}: name that" if found else ""


def _names(folder: Path) -> Iterator[str]:
    try:
        with os.scandir(folder) as entries:
            yield from (entry.name for entry in islice(entries, _MOST))
    except (OSError, ValueError):
        return
