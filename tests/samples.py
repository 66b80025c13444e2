"""A cross product -> the fixed part of it that every run tests; `make whole` tests all of it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")

WHOLE = bool(os.environ.get("ONNXLEDGER_WHOLE"))


def drawn(everywhere: int) -> int:
    """Return the number of models that a test draws at random: a third of those of `make whole`."""
    return everywhere if WHOLE else everywhere // 3


def sampled(everything: Iterable[T], chosen: Iterable[T]) -> list[T]:
    """Return the chosen items in the order of everything; all items in `make whole`."""
    every, part = list(everything), list(chosen)
    strange = [each for each in part if each not in every]
    assert part, "a sample has something in it"
    assert not strange, strange
    return every if WHOLE else [each for each in every if each in part]
