"""`onnxledger.toml`, or `[tool.onnxledger]` of `pyproject.toml` -> Config, or everything that is wrong with it."""

from __future__ import annotations

import difflib
import os
import re
import stat
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from analyzer import toml_lines
from analyzer.errors import ConfigError
from analyzer.ledger import Match
from analyzer.patterns import MATCHES, AnyOf, Searcher, check_name, compile_pattern

__all__ = ["FILE", "MAX_BYTES", "PROJECT", "Config", "load_config"]

FILE = "onnxledger.toml"
PROJECT = "pyproject.toml"

MAX_BYTES = 1 << 18
"""What a config may have; nothing is read beyond it."""

_MAX_SHOWN = 100
"""Mistakes that are listed."""

_SECTION = ("tool", "onnxledger")

# More parts than a key has: tomllib takes time and memory by the square of them.
_LONG_KEY = re.compile(rb"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){16}""")


@dataclass(frozen=True, slots=True)
class Config:
    """What a project has settled for all of its commands. Without a file, nothing."""

    origin: str = ""
    """The file, as it was named; "" where there is none."""
    groups: Mapping[str, Searcher] = field(default_factory=lambda: MappingProxyType({}))
    """Patterns by name of the group, in the order of the file."""
    match: Match | None = None


def load_config(path: Path | None = None) -> Config:
    """Read the config that is named; else `onnxledger.toml` here; else, if it has the section, `pyproject.toml` here.

    Raises:
        ConfigError: it cannot be read, or has mistakes: all of them, each with its line.
    """
    if path is not None:
        found = _load(path, is_named=True)
        if found is None:
            lacks = "has no [tool.onnxledger]" if path.exists() else "is not there"
            raise ConfigError([f"{path}: {lacks}; {_WAY_OUT}"])
        return found
    return _load(Path(FILE)) or _load(Path(PROJECT)) or Config()


def _load(path: Path, *, is_named: bool = False) -> Config | None:
    """The config in a file; None where the file is not there, or is a project's without our section."""
    content = _read(path)
    is_project = path.name == PROJECT
    if content is None or (is_project and not is_named and b"onnxledger" not in content):
        return None  # a project file that does not mention us is not ours to judge
    page = _Page(path, _decode(path, content), _SECTION if is_project else ())
    table: Any = _parse(path, page.text)
    for key in page.root:
        table = table.get(key) if isinstance(table, dict) else None
    return None if table is None else page.read(table)


def _read(path: Path) -> bytes | None:
    """The file's content, or somewhat more than is allowed of it; None where it is not there."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # a pipe would hang, a device may never end
            kind = "a folder" if stat.S_ISDIR(status.st_mode) else "no regular file"
            raise ConfigError([f"{path}: is {kind}; {_WAY_OUT}"])
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as stream:
            return stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError([f"{path}: cannot be read: {reason}; {_WAY_OUT}"]) from error


_WAY_OUT = "name another with --config FILE, or do without it: --no-config"


def _decode(path: Path, content: bytes) -> str:
    if len(content) > MAX_BYTES:
        raise ConfigError([f"{path}: has more than {MAX_BYTES:,} bytes; {_WAY_OUT}"])
    long_key = _LONG_KEY.search(content)
    if long_key is not None:
        line = content.count(b"\n", 0, long_key.start()) + 1
        raise ConfigError([f"{path}:{line}: a key of more than 16 parts; {_WAY_OUT}"])
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError([f"{path}:{line}: not UTF-8: {error.reason}; save it as UTF-8"]) from error


def _parse(path: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ConfigError([f"{path}: nested too deep; {_WAY_OUT}"]) from error
    except ValueError as error:  # TOMLDecodeError, or a number of thousands of digits
        last = text.count("\n") + 1
        found = re.fullmatch(r"(.*) \(at (?:line (\d+), column \d+|end of document)\)", str(error), re.DOTALL)
        reason, line = (found[1], f":{found[2] or last}") if found else (str(error), "")
        hint = "; write regexes in single quotes" if "\\" in reason else ""
        raise ConfigError([f"{path}{line}: not TOML: {reason}{hint}"]) from error


class _Page:
    """A config while it is read: mistakes are noted, and told together at the end."""

    def __init__(self, path: Path, text: str, root: tuple[str, ...]) -> None:
        self.path, self.text, self.root = path, text, root
        self._mistakes: list[tuple[toml_lines.Path, str]] = []

    def read(self, table: object) -> Config:
        found: dict[str, Any] = {}
        if not isinstance(table, dict):
            self.refuse((), f"{'.'.join(self.root)}: must be a table, not {_kind(table)}")
            table = {}
        for key, value in table.items():
            if key in _KEYS:
                found[key] = _KEYS[key](value, self)
            else:
                self.refuse((key,), f"{_short(key)} is no key here; {_nearest(key, _KEYS)}")
        if self._mistakes:
            raise ConfigError(self._tell())
        return Config(str(self.path), **found)

    def refuse(self, where: toml_lines.Path, message: str) -> None:
        """Note a mistake in what stands at `where`, seen from the section."""
        self._mistakes.append((where, message))

    def _tell(self) -> list[str]:
        lines = toml_lines.find_lines(self.text)
        numbered = sorted((self._line(lines, where), message) for where, message in self._mistakes)
        told = [f"{self.path}:{line}: {message}" for line, message in numbered[:_MAX_SHOWN]]
        left = len(numbered) - len(told)
        return [*told, f"{self.path}: and {left:,} mistakes more"] if left else told

    def _line(self, lines: Mapping[toml_lines.Path, int], where: toml_lines.Path) -> int:
        path: toml_lines.Path = (*self.root, *where)
        while path and path not in lines:
            path = path[:-1]
        return lines.get(path, 1)


def _read_groups(value: object, page: _Page) -> dict[str, Searcher]:
    groups: dict[str, Searcher] = {}
    if not isinstance(value, dict):
        page.refuse(("groups",), f"groups: must be a table of NAME = 'REGEX', not {_kind(value)}")
        return groups
    for name, expressions in value.items():
        try:
            check_name(name)
        except ValueError as error:
            page.refuse(("groups", name), f"groups, {_short(name)}: {error}")
        is_list = isinstance(expressions, list)
        patterns = [
            _read_pattern(expression, name, ("groups", name, *([i] if is_list else [])), page)
            for i, expression in enumerate(expressions if is_list else [expressions])
        ]
        if not patterns:
            page.refuse(("groups", name), f"groups, {_short(name)}: has no pattern")
        groups[name] = AnyOf(tuple(pattern for pattern in patterns if pattern is not None))
    return groups


def _read_pattern(
    expression: object, name: str, where: toml_lines.Path, page: _Page
) -> re.Pattern[str] | None:
    if not isinstance(expression, str):
        page.refuse(
            where, f"groups, {_short(name)}: must be a regex or a list of them, not {_kind(expression)}"
        )
        return None
    try:
        return compile_pattern(expression)
    except ValueError as error:
        page.refuse(where, f"groups, {_short(name)}: {error}")
        return None


def _read_match(value: object, page: _Page) -> Match | None:
    for match in MATCHES:
        if value == match:
            return match
    hint = _nearest(value, MATCHES) if isinstance(value, str) else f"not {_kind(value)}"
    page.refuse(("match",), f"match: must be 'all' or 'first'; {hint}")
    return None


_KEYS: dict[str, Callable[[object, _Page], Any]] = {"groups": _read_groups, "match": _read_match}
"""What a config may say: fields of `Config`, and what reads them."""


def _nearest(word: str, words: Iterable[str]) -> str:
    """What to write instead."""
    near = difflib.get_close_matches(word[:_MAX_SHOWN], words, 1)
    return f"did you mean {near[0]!r}?" if near else f"there are {', '.join(words)}"


def _short(name: str) -> str:
    return repr(name if len(name) <= _MAX_SHOWN else name[:_MAX_SHOWN] + "...")


def _kind(value: object) -> str:
    kinds = {dict: "a table", list: "an array", str: "a string", bool: "a boolean", int: "a number"}
    return kinds.get(type(value), "a number" if isinstance(value, float) else "a date or a time")
