"""Grouping -> the title of its first column, and where the user's own groups come from."""

from __future__ import annotations

import re
from collections.abc import Iterator

from analyzer.ledger import Grouping, Match
from analyzer.units import printable

__all__ = ["heading", "tell_rule"]


def heading(grouping: Grouping, *, is_pytorch: bool = False) -> str:
    """The keys, and the depth; blocks at depth 1 have none to tell.

    Scopes that a reconciliation has settled are PyTorch's own modules, where the file alone may say others.
    """
    keys = grouping.by.replace(",", ", ")
    keys = re.sub(r"\bscope\b", "scope in PyTorch", keys) if is_pytorch else keys
    is_plain = grouping.depth is None or (grouping.by, grouping.depth) == ("block", 1)
    return keys if is_plain else f"{keys}, depth {grouping.depth}"


def tell_rule(match: Match | None, *origins: str | None) -> Iterator[str]:
    """Where the user's groups come from, and which of them have an entry; nothing where there are none."""
    if match is None:
        return
    rule = {"all": "all that match", "first": "the first that matches"}[match]
    named = " and ".join(printable(origin) for origin in dict.fromkeys(origins) if origin is not None)
    yield f"Groups{' from ' if named else ''}{named}, each tensor in {rule}"
