"""What the documents of several commands have in common -> blocks: groups, findings, facts on a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from analyzer.render.html.blocks import Column, Fact, Facts
from analyzer.render.html.reading import View
from analyzer.render.html.wording import show

__all__ = [
    "Beside",
    "Keys",
    "facts",
    "name",
    "number",
]


@dataclass(slots=True)
class Keys:
    """Gives every block of a page a key of its own."""

    count: int = 0

    def next(self) -> str:
        self.count += 1
        return f"block-{self.count}"


@dataclass(frozen=True, slots=True)
class Beside:
    """What other documents of the page say that belongs next to this one's numbers."""

    keys: Keys = field(default_factory=Keys)
    times: Mapping[str, float] = field(default_factory=dict)
    """Milliseconds of each group, by its name."""
    formula: View | None = None


def name(title: str) -> Column:
    """A column of names from files."""
    return Column(title, is_code=True)


def number(title: str) -> Column:
    """A column of numbers."""
    return Column(title, is_number=True)


def facts(*pairs: tuple[str, str | None], title: str = "") -> Facts:
    """Those of the names and values that have one."""
    return Facts(tuple(Fact(label, show(value)) for label, value in pairs if value), title)
