"""A cross product -> the fixed part of it that every run tries; `make whole` tries all of it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")

WHOLE = bool(os.environ.get("ONNXLEDGER_WHOLE"))


def drawn(everywhere: int) -> int:
    """How many models a test draws at random of those that `make whole` draws: a third."""
    return everywhere if WHOLE else everywhere // 3


def sampled(everything: Iterable[T], chosen: Iterable[T]) -> list[T]:
    """What is chosen of everything, in the order of everything; all of it where the whole is asked for."""
    every, part = list(everything), list(chosen)
    strange = [each for each in part if each not in every]
    assert part, "a sample has something in it"
    assert not strange, strange
    return every if WHOLE else [each for each in every if each in part]
