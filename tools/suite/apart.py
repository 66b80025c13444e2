"""A function over many items -> its answers, computed in a separate process that one bad item may kill."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tools.matrix.isolated import CellError, call_isolated

__all__ = ["map_isolated"]

T = TypeVar("T")
_START, _EACH = 120.0, 5.0


def map_isolated(
    function: Callable[..., list[T]],
    items: Sequence[str],
    *args: Any,
    killed: Callable[[str, str], T],
    each: float = _EACH,
) -> list[T]:
    """Return the result of `function(items, *args)`, an answer for each item.

    If the process dies or takes too long, the items are halved until the bad one is found; its answer is `killed`'s.
    """
    try:
        return list(call_isolated(function, items, *args, seconds=_START + each * len(items)))
    except CellError as error:
        if len(items) == 1:
            return [killed(items[0], str(error))]
    half = len(items) // 2
    parts = (items[:half], items[half:])
    return [
        answer for part in parts for answer in map_isolated(function, part, *args, killed=killed, each=each)
    ]
