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
"""Of these every case has to be told; the rest only running can find for certain."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One way to tamper."""

    group: str
    """One of `CLASSES`."""
    title: str
    make: Callable[[Surgery], None]
    """Raises `NotApplicable` where the file has no place for it."""

    @property
    def name(self) -> str:
        return f"{self.group}/{self.title}"


KINDS: dict[str, Kind] = {}
"""By name, in the order of their files."""


def kind(name: str) -> Callable[[Callable[[Surgery], None]], Callable[[Surgery], None]]:
    """Enter a function into the list, as `class/title`."""

    def enter(make: Callable[[Surgery], None]) -> Callable[[Surgery], None]:
        group, _, title = name.partition("/")
        if group not in CLASSES or name in KINDS:
            raise ValueError(name)
        KINDS[name] = Kind(group, title, make)
        return make

    return enter
