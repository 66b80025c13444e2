"""What verify asks of PyTorch's side, which the exporter answers: values as NumPy arrays, and nothing of PyTorch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from analyzer.content import Array

__all__ = ["Boundary", "Side"]


class Boundary(Protocol):
    """What one call of a submodule gives."""

    @property
    def module(self) -> str:
        """Its path; with `#2` behind it at a second call."""
        ...

    @property
    def class_name(self) -> str:
        """Of the module."""
        ...

    @property
    def numel(self) -> int:
        """Elements of its first tensor."""
        ...

    @property
    def settings(self) -> Mapping[str, object]:
        """The module's own numbers and words."""
        ...


class Side(Protocol):
    """A module that is fed what the file is fed."""

    def feeds(self, seed: int, *, is_small: bool = False) -> dict[str, Array]:
        """Values for the file's inputs, by name; other ones for each seed."""
        ...

    def run(self, feeds: Mapping[str, Array], precision: str = "single") -> list[tuple[str, Array]]:
        """The outputs in their order, each with its name, or ""; `double` and `half` compute so."""
        ...

    def boundaries(self, feeds: Mapping[str, Array]) -> Sequence[Boundary]:
        """Every call of a submodule, in the order in which they end."""
        ...

    def values(
        self, feeds: Mapping[str, Array], wanted: Sequence[str], precision: str = "single"
    ) -> dict[str, Array]:
        """What these calls give, by their names in `boundaries`."""
        ...
