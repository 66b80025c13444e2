"""A version of onnxruntime -> what its kernels do with the memory of their inputs."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from importlib import resources
from typing import Any

from analyzer.cost.memory.steps import Reuses


@functools.cache
def _table() -> Mapping[str, Any]:
    text = resources.files("analyzer.cost.memory").joinpath("inplace.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])


NEWEST = "newest"
"""Of the versions of which something is known."""


def reuses_of(version: str = NEWEST) -> tuple[str, Reuses]:
    """Return the version whose kernels are known that is closest to one, the older of two, and what they do."""
    table = _table()
    known = sorted(table, key=_number)
    if version == NEWEST:
        name = known[-1]
    else:
        wanted = _number(version)
        name = min(known, key=lambda each: (abs(_number(each)[1] - wanted[1]), _number(each)))
    entry = table[name]
    return name, Reuses(_pairs(entry["aliases"]), _pairs(entry["in_place"]))


def _pairs(named: Mapping[str, list[str]]) -> dict[tuple[str, str], tuple[tuple[int, int], ...]]:
    made = {}
    for name, pairs in named.items():
        domain, _, op_type = name.rpartition("::")
        split = (pair.split("->") for pair in pairs)
        made[domain, op_type] = tuple((int(source), int(target)) for source, target in split)
    return made
