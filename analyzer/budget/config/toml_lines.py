"""Text of a TOML document that `tomllib` accepts -> the line of each key, table and array element in it."""

from __future__ import annotations

import contextlib
import re
import tomllib

Path = tuple[str | int, ...]
"""Keys and positions that lead to a value: `("rules", 0, "limit")` is `limit` of the first `[[rules]]`."""

_BLANK = re.compile(r"[ \t]*")
_GAP = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?"""(?:"{0,2})' r"|'''.*?'''(?:'{0,2})" r'|"(?:[^"\\\n]|\\.)*"' r"|'[^'\n]*'",
    re.DOTALL,
)
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_SCALAR = re.compile(r"[^,\[\]{}#\n]+")

_DEEPEST = 8
"""Maximum length of a path whose line is kept."""


def find_lines(text: str) -> dict[Path, int]:
    r"""Return the line, counted from 1, of every path that is short enough to be named in a message.

    Args:
        text: a valid TOML document; for an invalid one, some lines may be missing or wrong.

    >>> find_lines("a = 1\n[[b]]\nc = [\n 2]")
    {('a',): 1, ('b',): 2, ('b', 0): 2, ('b', 0, 'c'): 3, ('b', 0, 'c', 0): 4}
    """
    scanner = _Scanner(text)
    with contextlib.suppress(RecursionError, tomllib.TOMLDecodeError):
        scanner.read_document()
    return scanner.lines


class _Scanner:
    """Scanner with its position in the text, and the lines of the paths it has passed."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.lines: dict[Path, int] = {}
        self._line, self._counted = 1, 0
        self._last: dict[Path, int] = {}
        """Position of the table that is being filled, for each array of tables."""

    def read_document(self) -> None:
        table: Path = ()
        self._take(_GAP)
        while self.position < len(self.text):
            start = self.position
            if self._peek("["):
                table = self._read_header()
            else:
                self._read_pair(table)
            self._take(_GAP)
            if self.position == start:  # the text is not TOML
                return

    def _read_header(self) -> Path:
        line, is_element = self._here(), self.text.startswith("[[", self.position)
        self.position += 2 if is_element else 1
        keys = self._read_key()
        self._skip("]")
        if is_element:
            self._skip("]")
        table = self._resolve(keys[:-1], line)
        if is_element:
            array = (*table, keys[-1])
            self._note(array, line)
            self._last[array] = self._last.get(array, -1) + 1
        table = self._resolve(keys, line)
        self._note(table, line)
        return table

    def _resolve(self, keys: tuple[str, ...], line: int) -> Path:
        """Return the path of a header's table; for an array of tables, the path of its last table."""
        path: Path = ()
        for key in keys:
            path = (*path, key)
            self._note(path, line)
            if path in self._last:
                path = (*path, self._last[path])
        return path

    def _read_pair(self, table: Path) -> None:
        line, path = self._here(), table
        for key in self._read_key():
            path = (*path, key)
            self._note(path, line)
        self._skip("=")
        self._read_value(path)

    def _read_key(self) -> tuple[str, ...]:
        keys = []
        while True:
            self._take(_BLANK)
            quoted = self._take(_STRING) if self._peek('"', "'") else ""
            keys.append(tomllib.loads(f"key = {quoted}")["key"] if quoted else self._take(_BARE))
            self._take(_BLANK)
            if not self._skip("."):
                return tuple(keys)

    def _read_value(self, path: Path) -> None:
        self._take(_BLANK)
        if self._peek('"', "'"):
            self._take(_STRING)
        elif self._skip("["):
            self._read_array(path)
        elif self._skip("{"):
            self._take(_GAP)
            while self.position < len(self.text) and not self._skip("}"):
                start = self.position
                self._read_pair(path)
                self._take(_GAP)
                self._skip(",")
                self._take(_GAP)
                if self.position == start:
                    return
        else:
            self._take(_SCALAR)

    def _read_array(self, path: Path) -> None:
        index = 0
        self._take(_GAP)
        while self.position < len(self.text) and not self._skip("]"):
            start = self.position
            self._note((*path, index), self._here())
            self._read_value((*path, index))
            index += 1
            self._take(_GAP)
            self._skip(",")
            self._take(_GAP)
            if self.position == start:
                return

    def _note(self, path: Path, line: int) -> None:
        if len(path) <= _DEEPEST:
            self.lines.setdefault(path, line)

    def _here(self) -> int:
        self._line += self.text.count("\n", self._counted, self.position)
        self._counted = self.position
        return self._line

    def _peek(self, *starts: str) -> bool:
        return self.text.startswith(starts, self.position)

    def _skip(self, mark: str) -> bool:
        self._take(_BLANK)
        if not self._peek(mark):
            return False
        self.position += len(mark)
        return True

    def _take(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self.text, self.position)
        if found is None:
            return ""
        self.position = found.end()
        return found.group()
