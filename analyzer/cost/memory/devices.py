"""Name of a device -> its memory."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from importlib import resources
from typing import Any

from analyzer.errors import UsageError
from analyzer.records import Frozen
from analyzer.text import printable


class Device(Frozen):
    """Device with the memory that its maker states, in bytes."""

    name: str
    nbytes: int
    is_gpu: bool
    source: str


@functools.cache
def _table() -> Mapping[str, Any]:
    text = resources.files("analyzer.cost.memory").joinpath("devices.toml").read_text(encoding="utf-8")
    table: Mapping[str, Any] = tomllib.loads(text)["devices"]
    return table


def find_device(name: str) -> Device:
    """Return the device with a name.

    >>> find_device("h100-80gb").nbytes
    85899345920

    Raises:
        UsageError: there is no such device.
    """
    entry = _table().get(name.lower())
    if entry is None:
        near = get_close_matches(name.lower(), _table(), 1)
        known = f"did you mean {near[0]}? Else" if near else f"there are {', '.join(_table())}; for another"
        raise UsageError(
            f"--device {printable(name)}: no such device; {known} give its memory, as --memory 8GiB"
        )
    return Device(name.lower(), entry["nbytes"], entry["kind"] == "gpu", entry["source"])
