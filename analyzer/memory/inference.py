"""A path -> the description of its graph, by a process of its own that has so much time and memory."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from analyzer.errors import CostError
from analyzer.process.child import Child, OverMemoryError, OverTimeError
from analyzer.process.memory import available
from analyzer.read.described import Asked, Described, Sizes
from analyzer.units import printable

__all__ = ["infer_shapes"]

_PROGRAM = "from analyzer.read.inferred import serve; serve()"
_SECONDS = 120.0
"""What one answer may take."""

_SPARE = 0.1
"""The part of the memory that is there which is left to others."""


def infer_shapes(path: Path, at: Sequence[Mapping[str, int]] = ()) -> tuple[Described, tuple[Sizes, ...]]:
    """Return what is known of a graph, and the shapes of its values where the axes have certain sizes.

    Raises:
        CostError: inference ends its process, or takes more time or memory than it may.
    """
    answers = _answers(path, Asked(str(path.absolute()), tuple(dict(sizes) for sizes in at)))
    described = msgspec.json.decode(next(answers), type=Described)
    return described, tuple(msgspec.json.decode(next(answers), type=Sizes) for _ in at)


def _answers(path: Path, asked: Asked) -> Iterator[bytes]:
    left = available()
    most = None if left is None else int(left * (1 - _SPARE))
    try:
        with open(os.devnull, "wb") as log:  # noqa: PTH123 - no path of a file
            child = Child(_PROGRAM, log=log)
    except OSError as error:
        raise CostError(f"no process that infers shapes can be started: {error}") from error
    name = printable(str(path))
    try:
        child.send(msgspec.json.encode(asked))
        for _ in range(1 + len(asked.at)):
            answer = child.receive(time.monotonic() + _SECONDS, most)
            if answer is None:
                raise CostError(
                    f"{name}: onnx's shape inference ended its process (exit code {child.end(1)})"
                )
            yield answer
    except OverTimeError:
        raise CostError(f"{name}: onnx's shape inference did not finish within {_SECONDS:g} s") from None
    except OverMemoryError:
        raise CostError(f"{name}: onnx's shape inference took more memory than there is") from None
    finally:
        child.end()
