"""A config's table -> its values; every mistake is kept, to be told with its line and what to write."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path

from analyzer.config import toml_lines

__all__ = ["Page", "kind_of", "nearest", "short"]

_MAX_SHOWN = 100
"""Mistakes that are listed, and characters of a name."""

_MAX_LISTED = 400
"""Characters of a list of what there is."""


class Page:
    """A config while it is read: mistakes are noted, and told together at the end."""

    def __init__(self, path: Path, text: str, root: tuple[str, ...]) -> None:
        self.path, self.text, self.root = path, text, root
        self.needs_baseline = False
        """Whether a limit that speaks of growth is wrong where nothing says over what."""
        self._lines: Mapping[toml_lines.Path, int] | None = None
        self._mistakes: list[tuple[toml_lines.Path, str]] = []

    def refuse(self, where: toml_lines.Path, message: str) -> None:
        """Note a mistake in what stands at `where`, seen from the section."""
        self._mistakes.append((where, message))

    def place(self, where: toml_lines.Path) -> str:
        """The file, and the line of what stands at `where`."""
        return f"{self.path}:{self._line(where)}"

    def tell(self) -> list[str]:
        """The mistakes in the order of their lines; nothing where there are none."""
        numbered = sorted((self._line(where), message) for where, message in self._mistakes)
        told = [f"{self.path}:{line}: {message}" for line, message in numbered[:_MAX_SHOWN]]
        left = len(numbered) - len(told)
        return [*told, f"{self.path}: and {left:,} mistakes more"] if left else told

    def _line(self, where: toml_lines.Path) -> int:
        if self._lines is None:
            self._lines = toml_lines.find_lines(self.text)
        path: toml_lines.Path = (*self.root, *where)
        while path and path not in self._lines:
            path = path[:-1]
        return self._lines.get(path, 1)


def nearest(word: str, words: Iterable[str]) -> str:
    """What to write instead.

    >>> nearest("limits", ("limit", "match")), nearest("x", ("limit", "match"))
    ("did you mean 'limit'?", 'there are limit, match')
    """
    near = difflib.get_close_matches(word[:_MAX_SHOWN], words := tuple(words), 1)
    return f"did you mean {near[0]!r}?" if near else f"there are {', '.join(words)}"[:_MAX_LISTED]


def short(name: str) -> str:
    """A name in quotes, of one that is long its beginning."""
    return repr(name if len(name) <= _MAX_SHOWN else name[:_MAX_SHOWN] + "...")


def kind_of(value: object) -> str:
    """What a value is, in TOML's words."""
    kinds = {dict: "a table", list: "an array", str: "a string", bool: "a boolean", int: "a number"}
    return kinds.get(type(value), "a number" if isinstance(value, float) else "a date or a time")
