"""What a person may have meant by a path that is no model: a like name beside it, or the model whose data it is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

_MOST = 1_000
"""Names of a folder that are looked at."""

_LONGEST = 255
"""Characters of a name: longer ones are nobody's."""

_DATA = (".data", ".onnx_data", ".bin", ".weights", ".weight", ".pb")
"""How files of external data end, as exporters write them."""


def near_name(path: Path) -> str:
    """`; did you mean FOLDER/NAME?` of the likest name beside a path that is not there, or ""."""
    if len(path.name) > _LONGEST:
        return ""
    import difflib  # what only a mistake needs

    near = difflib.get_close_matches(
        path.name, [each for each in _names(path.parent) if each != path.name], 1
    )
    return f"; did you mean {path.with_name(near[0])}?" if near else ""


def model_of_data(path: Path) -> str:
    """`; it may hold the data of MODEL: name that` where a model lies beside what is called as data are, or ""."""
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
