"""Cases that are known to be red, by name, with the reason."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

__all__ = ["KNOWN", "reason_of"]

KNOWN: Mapping[str, str] = {
    "llama/*/quantize_static, QDQ": "The frequencies of a rotary table in eight bits are no known table "
    "any more, and a state dict alone does not list them.",
    "*/fp16/weights in bfloat16, through Cast": "Rounded to float16 and then to bfloat16, which is not always "
    "the nearest bfloat16; only single roundings are known.",
    "resnet/*/weights stored in two halves, with a Concat": "Pieces of a weight that a BatchNorm scaled.",
    "net/*/weights stored in two halves, with a Concat": "Pieces of a weight that a BatchNorm scaled.",
}
"""Patterns of names, as `*/legacy/graph in a function`, and reasons why such a file cannot balance."""


def reason_of(name: str) -> str:
    """Return the reason why the case is red; empty if unknown."""
    return next((why for pattern, why in KNOWN.items() if fnmatchcase(name, pattern)), "")
