"""`onnxledger.toml`, or `[tool.onnxledger]` of `pyproject.toml` -> Config, or everything that is wrong with it."""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from analyzer.account.group.patterns import Searcher
from analyzer.account.ledger import Match
from analyzer.budget.config.rules import (
    Page,
    kind_of,
    nearest,
    read_baseline,
    read_baseline_any,
    read_groups,
    read_match,
    read_rules,
    short,
)
from analyzer.budget.record import Rule
from analyzer.errors import ConfigError

__all__ = ["FILE", "MAX_BYTES", "PROJECT", "Config", "load_config"]

FILE = "onnxledger.toml"
PROJECT = "pyproject.toml"

MAX_BYTES = 1 << 18
"""What a config may have; nothing is read beyond it."""

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
    rules: tuple[Rule, ...] = ()
    """The budget of `check`, in the order of the file."""
    baseline: str | None = None
    """What rules that speak of growth are held against, as a path from here."""
    baseline_any: bool = False
    """Whether a baseline of another model is one too."""


def load_config(path: Path | str | None = None, *, needs_baseline: bool = False) -> Config:
    """Read the config that is named; else `onnxledger.toml` here; else, if it has the section, `pyproject.toml` here.

    Args:
        path: a TOML file; of one called `pyproject.toml`, the section.
        needs_baseline: whether a rule that speaks of growth is wrong where the config names nothing that it is over.

    Raises:
        ConfigError: it cannot be read, or has mistakes: all of them, each with its line.
    """
    if path is not None:
        path = Path(path)
        found = _load(path, needs_baseline, is_named=True)
        if found is None:
            lacks = "has no [tool.onnxledger]" if path.exists() else "is not there"
            raise ConfigError([f"{path}: {lacks}; {_WAY_OUT}"])
        return found
    return _load(Path(FILE), needs_baseline) or _load(Path(PROJECT), needs_baseline) or Config()


def _load(path: Path, needs_baseline: bool, *, is_named: bool = False) -> Config | None:
    """The config in a file; None where the file is not there, or is a project's without our section."""
    content = _read(path)
    is_project = path.name == PROJECT
    if content is None or (is_project and not is_named and b"onnxledger" not in content):
        return None  # a project file that does not mention us is not ours to judge
    page = Page(path, _decode(path, content), _SECTION if is_project else ())
    table: Any = _parse(path, page.text)
    for key in page.root:
        table = table.get(key) if isinstance(table, dict) else None
    return None if table is None else _read_page(table, page, needs_baseline)


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
        hint = "; write regexes in single quotes" if re.search("scaped|hex", reason) else ""
        raise ConfigError([f"{path}{line}: not TOML: {reason}{hint}"]) from error


def _read_page(table: object, page: Page, needs_baseline: bool) -> Config:
    found: dict[str, Any] = {}
    if not isinstance(table, dict):
        page.refuse((), f"{'.'.join(page.root)}: must be a table, not {kind_of(table)}")
        table = {}
    page.needs_baseline = needs_baseline and "baseline" not in table
    for key, value in table.items():
        if key in _KEYS:
            found[key.replace("-", "_")] = _KEYS[key](value, page)
        else:
            page.refuse((key,), f"{short(key)} is no key here; {nearest(key, _KEYS)}")
    mistakes = page.tell()
    if mistakes:
        raise ConfigError(mistakes)
    return Config(str(page.path), **found)


_KEYS: dict[str, Callable[[object, Page], Any]] = {
    "groups": read_groups,
    "match": read_match,
    "baseline": read_baseline,
    "baseline-any": read_baseline_any,
    "rules": read_rules,
}
"""What a config may say: fields of `Config`, and what reads them."""
