"""A saved document -> its values, each of the type that is expected; what is not there is noted, and left out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["View"]

_LARGEST = 10**30
"""Counts beyond this are nobody's: no file has them, and printing them helps nobody."""


class View:
    """Part of a JSON document that may be old, edited, or somebody's joke: nothing about it is taken for granted."""

    def __init__(self, data: Mapping[str, Any], place: str = "", missing: dict[str, None] | None = None):
        self._data = data
        self._place = place
        self._missing: dict[str, None] = {} if missing is None else missing

    @property
    def missing(self) -> tuple[str, ...]:
        """Keys that were asked for, and that the document does not have, or not in this form."""
        return tuple(self._missing)

    def has(self, key: str) -> bool:
        """Whether there is anything by that name."""
        return self._data.get(key) is not None

    def at(self, key: str) -> View:
        """An object within it; an empty one where there is none."""
        found = self._get(key, dict)
        return View(found or {}, f"{self._place}{key}.", self._missing if found is not None else {})

    def rows(self, key: str) -> tuple[View, ...]:
        """The objects of a list."""
        return tuple(
            View(each, f"{self._place}{key}.", self._missing)
            for each in self._list(key)
            if isinstance(each, dict)
        )

    def names(self, key: str) -> tuple[str, ...]:
        """The texts of a list."""
        return tuple(each for each in self._list(key) if isinstance(each, str))

    def counts(self, key: str) -> tuple[int, ...]:
        """The whole numbers of a list, such as a shape."""
        return tuple(each for each in self._list(key) if _is_count(each))

    def lists(self, key: str) -> tuple[tuple[str, ...], ...]:
        """The lists of texts of a list."""
        found = (each for each in self._list(key) if isinstance(each, list))
        return tuple(tuple(text for text in each if isinstance(text, str)) for each in found)

    def items(self, key: str) -> Iterator[tuple[str, str]]:
        """What an object says of each name, as text."""
        for name, value in (self._get(key, dict) or {}).items():
            if isinstance(value, str | int | float):
                yield name, str(value)

    def text(self, key: str) -> str | None:
        """A text."""
        found: str | None = self._get(key, str)
        return found

    def flag(self, key: str) -> bool | None:
        """Yes or no."""
        found: bool | None = self._get(key, bool)
        return found

    def count(self, key: str) -> int | None:
        """A whole number, which may be negative."""
        found: int | None = self._get(key, int)
        return found

    def number(self, key: str) -> float | None:
        """Any number."""
        found: float | None = self._get(key, (int, float))
        return found

    def plain(self, key: str) -> str:
        """Any value, as text."""
        value = self._data.get(key)
        if isinstance(value, list):
            return ", ".join(map(str, value))
        return "" if value is None else str(value)

    def either(self, key: str) -> int | tuple[str, ...] | None:
        """A whole number, or names."""
        return self.names(key) if isinstance(self._data.get(key), list) else self.count(key)

    def _list(self, key: str) -> list[Any]:
        return self._get(key, list) or []

    def _get(self, key: str, kind: type | tuple[type, ...]) -> Any:
        value = self._data.get(key)
        if value is None and key in self._data:
            return None
        wrong = not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool)
        if wrong or (isinstance(value, int | float) and not _is_sane(value)):
            self._missing[f"{self._place}{key}"] = None
            return None
        return value


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and _is_sane(value)


def _is_sane(value: float) -> bool:
    return -_LARGEST < value < _LARGEST and not math.isnan(value)
