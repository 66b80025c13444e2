"""The list of kinds: each is a function that tampers with a model in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tools.suite.surgery import Surgery

__all__ = ["CERTAIN", "CLASSES", "KINDS", "Kind", "kind"]

CLASSES = (
    "content",
    "orientation",
    "hollow",
    "folded-factor",
    "planted",
    "forged",
    "unread",
    "wiring",
    "attributes",
    "tables",
)
CERTAIN = frozenset({"content", "orientation", "hollow", "folded-factor", "planted", "forged", "unread"})
"""Classes whose every case must be reported; the others can be found for certain only by running the model."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of tampering."""

    group: str
    """Class of the kind, one of `CLASSES`."""
    title: str
    make: Callable[[Surgery], None]
    """Function that makes the change; raises `NoPlaceError` if the file has no place for it."""

    @property
    def name(self) -> str:
        return f"{self.group}/{self.title}"


KINDS: dict[str, Kind] = {}
"""Kinds by name, in the order of their files."""


def kind(name: str) -> Callable[[Callable[[Surgery], None]], Callable[[Surgery], None]]:
    """Register a function in the list, as `class/title`."""

    def register(make: Callable[[Surgery], None]) -> Callable[[Surgery], None]:
        group, _, title = name.partition("/")
        if group not in CLASSES or name in KINDS:
            raise ValueError(name)
        KINDS[name] = Kind(group, title, make)
        return make

    return register
