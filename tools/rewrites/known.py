"""What is known to be red, by the name of the case, with its reason."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

__all__ = ["KNOWN", "reason_of"]

KNOWN: Mapping[str, str] = {}
"""Patterns of names, as `*/legacy/graph in a function`, and why such a file cannot balance."""


def reason_of(name: str) -> str:
    """Why the case is red; empty where nothing is known of it."""
    return next((why for pattern, why in KNOWN.items() if fnmatchcase(name, pattern)), "")
