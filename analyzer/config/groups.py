"""What a config says of groups -> patterns by name, and who has what several of them match."""

from __future__ import annotations

import re

from analyzer.config import toml_lines
from analyzer.config.page import Page, kind_of, nearest, short
from analyzer.group.patterns import MATCHES, AnyOf, Searcher, check_name, compile_pattern
from analyzer.ledger import Match

__all__ = ["read_groups", "read_match"]


def read_groups(value: object, page: Page) -> dict[str, Searcher]:
    """The groups, in the order of the file."""
    groups: dict[str, Searcher] = {}
    if not isinstance(value, dict):
        page.refuse(("groups",), f"groups: must be a table of NAME = 'REGEX', not {kind_of(value)}")
        return groups
    for name, expressions in value.items():
        try:
            check_name(name)
        except ValueError as error:
            page.refuse(("groups", name), f"groups, {short(name)}: {error}")
        is_list = isinstance(expressions, list)
        patterns = [
            _read_pattern(expression, name, ("groups", name, *([i] if is_list else [])), page)
            for i, expression in enumerate(expressions if is_list else [expressions])
        ]
        if not patterns:
            page.refuse(("groups", name), f"groups, {short(name)}: has no pattern")
        groups[name] = AnyOf(tuple(pattern for pattern in patterns if pattern is not None))
    return groups


def _read_pattern(
    expression: object, name: str, where: toml_lines.Path, page: Page
) -> re.Pattern[str] | None:
    if not isinstance(expression, str):
        page.refuse(
            where, f"groups, {short(name)}: must be a regex or a list of them, not {kind_of(expression)}"
        )
        return None
    try:
        return compile_pattern(expression)
    except ValueError as error:
        page.refuse(where, f"groups, {short(name)}: {error}")
        return None


def read_match(value: object, page: Page) -> Match | None:
    """Who has what several groups match."""
    for match in MATCHES:
        if value == match:
            return match
    hint = nearest(value, MATCHES) if isinstance(value, str) else f"not {kind_of(value)}"
    page.refuse(("match",), f"match: must be 'all' or 'first'; {hint}")
    return None
