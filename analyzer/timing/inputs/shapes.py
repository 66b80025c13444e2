"""`--shape` texts -> the sizes that they give to names of axes, and the one that is swept."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from analyzer.errors import UsageError
from analyzer.units import printable

__all__ = ["LARGEST", "MOST_POINTS", "Shapes", "Sweep", "parse_shapes"]

MOST_POINTS = 64
"""Lengths that a sweep may have."""

LARGEST = (1 << 31) - 1
"""The largest size of an axis."""

_ITEM = re.compile(r"(?P<key>.+?)=(?P<size>[^=,]*)(?:,|$)", re.DOTALL)
"""A key ends at the first `=` that a comma or the end follows, with nothing but a size between: names may have both."""
_NUMBER = re.compile(r"[0-9]{1,10}", re.ASCII)
_RANGE = re.compile(r"([0-9]{1,10}):([0-9]{1,10}):([x+])([0-9]{1,10})", re.ASCII)
_EXAMPLE = "write AXIS=SIZE, as in batch=8,sequence=128, or AXIS=FIRST:LAST:STEP, as in sequence=16:512:x2"


@dataclass(frozen=True, slots=True)
class Sweep:
    """The axis whose size differs from point to point."""

    key: str
    """As it was named."""
    values: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Shapes:
    """What was asked of the axes. A key is an axis, `input.axis` or a role: the model tells which."""

    sizes: tuple[tuple[str, int], ...] = ()
    sweep: Sweep | None = None

    def points(self) -> tuple[int | None, ...]:
        """The values of the swept axis; of a single point, None."""
        return (None,) if self.sweep is None else self.sweep.values

    def at(self, value: int | None) -> tuple[tuple[str, int], ...]:
        """The sizes of one point."""
        if self.sweep is None or value is None:
            return self.sizes
        return (*self.sizes, (self.sweep.key, value))


def parse_shapes(texts: Iterable[str]) -> Shapes:
    """Read the texts of all `--shape`, each with one size or several.

    Raises:
        UsageError: one is malformed, an axis has two sizes, or more than one axis is swept.
    """
    sizes: dict[str, int] = {}
    sweep: Sweep | None = None
    for key, size in (item for text in texts for item in _split(text)):
        if ":" in size:
            found = Sweep(key, _values(key, size))
            if sweep is not None and sweep != found:
                raise UsageError(
                    f"--shape {printable(key)}: {printable(sweep.key)} is swept already; sweep one axis, and give the "
                    "other one size"
                )
            sweep = found
        elif sizes.setdefault(key, number := _size(key, size)) != number:
            raise UsageError(
                f"--shape {printable(key)}: is to be both {sizes[key]:,} and {number:,}; give it one size"
            )
    if sweep is not None and sweep.key in sizes:
        raise UsageError(
            f"--shape {printable(sweep.key)}: is to be swept and to be {sizes[sweep.key]:,}; give it one of them"
        )
    return Shapes(tuple(sizes.items()), sweep)


def _split(text: str) -> list[tuple[str, str]]:
    items: list[tuple[str, str]] = []
    position = 0
    while position < len(text) or not items:
        match = _ITEM.match(text, position)
        if match is None or not match["key"].strip():
            raise UsageError(f"--shape {printable(text[position:])!r}: {_EXAMPLE}")
        items.append((match["key"].strip(), match["size"].strip()))
        position = match.end()
    return items


def _size(key: str, text: str) -> int:
    if not _NUMBER.fullmatch(text) or int(text) > LARGEST:
        raise UsageError(
            f"--shape {printable(key)}: {printable(text)!r} is no size from 0 to {LARGEST:,}; {_EXAMPLE}"
        )
    return int(text)


def _values(key: str, text: str) -> tuple[int, ...]:
    """The sizes of a range: the first, and those a step apart, up to and with the last if a step hits it.

    >>> _values("sequence", "16:100:x2"), _values("sequence", "64:192:+64")
    ((16, 32, 64), (64, 128, 192))
    """
    match = _RANGE.fullmatch(text)
    if match is None:
        raise UsageError(f"--shape {printable(key)}: {printable(text)!r} is no range; {_EXAMPLE}")
    first, last, step = _size(key, match[1]), _size(key, match[2]), _size(key, match[4])
    is_factor = match[3] == "x"
    if first > last or (step < 2 and is_factor) or step < 1 or (is_factor and not first):
        raise UsageError(
            f"--shape {printable(key)}: {text} has no steps; the first is at most the last, and the step is x2 or "
            "more, of a first that is not 0, or +1 or more"
        )
    values = [first]
    while (
        len(values) <= MOST_POINTS
        and (following := values[-1] * step if is_factor else values[-1] + step) <= last
    ):
        values.append(following)
    if len(values) > MOST_POINTS:
        raise UsageError(
            f"--shape {printable(key)}: {text} has more than {MOST_POINTS} lengths; take larger steps"
        )
    return tuple(values)
