"""Bytes of a config -> its settings, or the list of all mistakes in it, each with its line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
from analyzer.errors import ConfigError

# No key has so many parts: tomllib takes time and memory quadratic in their number.
_LONG_KEY = re.compile(rb"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){16}""")


def parse(
    path: Path, content: bytes, section: tuple[str, ...], advice: str, *, needs_baseline: bool
) -> dict[str, Any] | None:
    """Return the fields that the file sets; None where the file lacks the section.

    Args:
        path: the file, as messages show it.
        content: bytes of the file.
        section: keys that lead to the config's table in the file; empty where the config is the whole file.
        advice: advice for a user who cannot correct the file.
        needs_baseline: whether a limit on growth is a mistake where the config names no baseline for it.

    Raises:
        ConfigError: the file has mistakes.
    """
    page = Page(path, _decode(path, content, advice), section)
    table: Any = _parse(path, page.text, advice)
    for key in page.root:
        table = table.get(key) if isinstance(table, dict) else None
    return None if table is None else _read_page(table, page, needs_baseline)


def _decode(path: Path, content: bytes, advice: str) -> str:
    long_key = _LONG_KEY.search(content)
    if long_key is not None:
        line = content.count(b"\n", 0, long_key.start()) + 1
        raise ConfigError([f"{path}:{line}: a key of more than 16 parts; {advice}"])
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError([f"{path}:{line}: not UTF-8: {error.reason}; save it as UTF-8"]) from error


def _parse(path: Path, text: str, advice: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ConfigError([f"{path}: nested too deep; {advice}"]) from error
    except ValueError as error:  # TOMLDecodeError, or a number with thousands of digits
        last = text.count("\n") + 1
        found = re.fullmatch(r"(.*) \(at (?:line (\d+), column \d+|end of document)\)", str(error), re.DOTALL)
        reason, line = (found[1], f":{found[2] or last}") if found else (str(error), "")
        hint = "; write regexes in single quotes" if re.search("scaped|hex", reason) else ""
        raise ConfigError([f"{path}{line}: not TOML: {reason}{hint}"]) from error


def _read_page(table: object, page: Page, needs_baseline: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if not isinstance(table, dict):
        page.refuse((), f"{'.'.join(page.root)}: must be a table, not {kind_of(table)}")
        table = {}
    page.needs_baseline = needs_baseline and "baseline" not in table
    for key, value in table.items():
        if key in _KEYS:
            found[key.replace("-", "_")] = _KEYS[key](value, page)
        else:
            page.refuse((key,), f"{short(key)} is not a key here; {nearest(key, _KEYS)}")
    mistakes = page.list_mistakes()
    if mistakes:
        raise ConfigError(mistakes)
    return found


_KEYS: dict[str, Callable[[object, Page], Any]] = {
    "groups": read_groups,
    "match": read_match,
    "baseline": read_baseline,
    "baseline-any": read_baseline_any,
    "rules": read_rules,
}
"""Readers of the keys of a config, which are fields of `analyzer.budget.config.Config`."""
