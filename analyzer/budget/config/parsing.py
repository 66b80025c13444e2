"""The bytes of a config -> what it settles, or everything that is wrong with it, each with its line."""

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

# More parts than a key has: tomllib takes time and memory by the square of them.
_LONG_KEY = re.compile(rb"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){16}""")


def parse(
    path: Path, content: bytes, section: tuple[str, ...], way_out: str, *, needs_baseline: bool
) -> dict[str, Any] | None:
    """The fields of a config that its file has; None where the file lacks the section.

    Args:
        path: the file, as messages show it.
        content: what it has.
        section: where in it the config is; nothing where it is the whole.
        way_out: what somebody may do who cannot mend the file.
        needs_baseline: whether a rule that speaks of growth is wrong where the config names nothing that it is over.

    Raises:
        ConfigError: it has mistakes.
    """
    page = Page(path, _decode(path, content, way_out), section)
    table: Any = _parse(path, page.text, way_out)
    for key in page.root:
        table = table.get(key) if isinstance(table, dict) else None
    return None if table is None else _read_page(table, page, needs_baseline)


def _decode(path: Path, content: bytes, way_out: str) -> str:
    long_key = _LONG_KEY.search(content)
    if long_key is not None:
        line = content.count(b"\n", 0, long_key.start()) + 1
        raise ConfigError([f"{path}:{line}: a key of more than 16 parts; {way_out}"])
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError([f"{path}:{line}: not UTF-8: {error.reason}; save it as UTF-8"]) from error


def _parse(path: Path, text: str, way_out: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ConfigError([f"{path}: nested too deep; {way_out}"]) from error
    except ValueError as error:  # TOMLDecodeError, or a number of thousands of digits
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
            page.refuse((key,), f"{short(key)} is no key here; {nearest(key, _KEYS)}")
    mistakes = page.tell()
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
"""What a config may say: fields of `analyzer.budget.config.Config`, and what reads them."""
