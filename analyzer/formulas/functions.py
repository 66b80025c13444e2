"""Values of a config -> what a formula may compute of them beside arithmetic: its functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["FUNCTIONS", "height", "sparse_layers", "starts", "width"]


def height(size: int | tuple[int, int]) -> int:
    """Of an image or a patch: the side of a square, or the first of (height, width)."""
    return _side(size, 0)


def width(size: int | tuple[int, int]) -> int:
    """Of an image or a patch: the side of a square, or the second of (height, width)."""
    return _side(size, 1)


def _side(size: int | tuple[int, int], side: int) -> int:
    if isinstance(size, tuple) and len(size) != 2:
        raise ValueError("neither a side nor (height, width)")
    return size[side] if isinstance(size, tuple) else size


def starts(text: object, beginning: str) -> bool:
    """Whether a text begins so."""
    return isinstance(text, str) and text.startswith(beginning)


def sparse_layers(layers: int, step: int, skipped: tuple[int, ...] | None) -> int:
    """How many layers have experts: every `step`-th, without those that are named.

    >>> sparse_layers(24, 1, ()), sparse_layers(24, 2, (1, 2)), sparse_layers(24, 0, ())
    (24, 11, 0)
    """
    if step <= 0 or layers <= 0:
        return 0
    named = {layer for layer in skipped or () if 0 <= layer < layers and (layer + 1) % step == 0}
    return layers // step - len(named)


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "height": height,
    "width": width,
    "starts": starts,
    "sparse_layers": sparse_layers,
    "min": min,
    "max": max,
}
"""What formulas may call."""
