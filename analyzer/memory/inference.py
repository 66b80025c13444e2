"""A path -> what its values are, by a process of its own that has so much time and memory."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from analyzer.errors import CostError
from analyzer.process.child import Child, OverMemoryError, OverTimeError
from analyzer.process.memory import available
from analyzer.read.described import Asked, Described, Dim, Sizes
from analyzer.units import printable

__all__ = ["Inference", "open_inference"]

_PROGRAM = "from analyzer.read.inferred import serve; serve()"
_SECONDS = 120.0
"""What one answer may take."""

_SPARE = 0.1
"""The part of the memory that is there which is left to others."""

Point = tuple[tuple[str, int], ...]


@dataclass(slots=True)
class Inference:
    """A graph, and a process that knows the shapes of its values at any sizes of its axes."""

    described: Described
    child: Child
    name: str
    known: dict[Point, Mapping[str, tuple[Dim, ...] | None]] = field(default_factory=dict)

    def dims(self, sizes: Mapping[str, int]) -> Mapping[str, tuple[Dim, ...] | None]:
        """Return the shape of every value of which it is known, where the axes have these sizes.

        Raises:
            CostError: the process has ended, or takes more time or memory than it may.
        """
        point = tuple(sorted(sizes.items()))
        if point not in self.known:
            answer = _ask(self.child, msgspec.json.encode(dict(sizes)), self.name)
            self.known[point] = msgspec.json.decode(answer, type=Sizes).dims
        return self.known[point]


@contextmanager
def open_inference(path: Path) -> Iterator[Inference]:
    """Infer the shapes of a file's values for as long as the context lasts.

    Raises:
        CostError: inference ends its process, or takes more time or memory than it may.
    """
    name = printable(str(path))
    try:
        with open(os.devnull, "wb") as log:  # noqa: PTH123 - no path of a file
            child = Child(_PROGRAM, log=log)
    except OSError as error:
        raise CostError(f"no process that infers shapes can be started: {error}") from error
    try:
        answer = _ask(child, msgspec.json.encode(Asked(str(path.absolute()))), name)
        yield Inference(msgspec.json.decode(answer, type=Described), child, name)
    finally:
        child.end()


def _ask(child: Child, question: bytes, name: str) -> bytes:
    left = available()
    most = None if left is None else int(left * (1 - _SPARE))
    child.send(question)
    try:
        answer = child.receive(time.monotonic() + _SECONDS, most)
    except OverTimeError:
        raise CostError(f"{name}: the inference of shapes did not finish within {_SECONDS:g} s") from None
    except OverMemoryError:
        raise CostError(f"{name}: the inference of shapes took more memory than there is") from None
    if answer is None:
        raise CostError(f"{name}: the inference of shapes ended its process, with exit code {child.end(1)}")
    return answer
