"""Version of onnxruntime -> its kernels' reuse of input memory, and their treatment of FLOAT16."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from importlib import resources
from typing import Any

from analyzer.cost.memory.halves import Halves
from analyzer.cost.memory.steps import Reuses


@functools.cache
def _table() -> Mapping[str, Any]:
    text = resources.files("analyzer.cost.memory").joinpath("kernels.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])


NEWEST = "newest"
"""Newest version in the table."""


def reuses_of(version: str = NEWEST) -> tuple[str, Reuses]:
    """Return the known version closest to the requested one, the older of two, and its kernels' reuse of memory."""
    name = _closest(version)
    entry = _table()[name]
    return name, Reuses(_pairs(entry["aliases"]), _pairs(entry["in_place"]))


def halves_of(version: str = NEWEST) -> Halves:
    """Return the treatment of FLOAT16 by the kernels of that version, and the operators without a kernel."""
    entry = _table()[_closest(version)]
    return Halves(frozenset(entry["halves"]), frozenset(entry["widened"]), frozenset(entry["functions"]))


def _closest(version: str) -> str:
    known = sorted(_table(), key=_number)
    if version == NEWEST:
        return known[-1]
    wanted = _number(version)
    return min(known, key=lambda each: (abs(_number(each)[1] - wanted[1]), _number(each)))


def _pairs(pairs_by_name: Mapping[str, list[str]]) -> dict[tuple[str, str], tuple[tuple[int, int], ...]]:
    made = {}
    for name, pairs in pairs_by_name.items():
        domain, _, op_type = name.rpartition("::")
        split = (pair.split("->") for pair in pairs)
        made[domain, op_type] = tuple((int(source), int(target)) for source, target in split)
    return made
