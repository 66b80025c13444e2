"""A model file in memory, as an `analyzer.model.ranges.Source`, with a record of the ranges that were read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from unittest.mock import patch

import numpy as np

import analyzer.read
from analyzer.errors import ExternalDataError
from analyzer.model import Model
from analyzer.model.ranges import Bytes, check_location
from analyzer.read import read_model


@dataclass
class MemoryFile:
    """A source that records every range that is read."""

    content: bytes
    step: int = 1 << 14
    name: str = "/memory/model.onnx"
    siblings: Mapping[str, bytes] = field(default_factory=dict)
    reads: list[tuple[int, int]] = field(default_factory=list)
    """(offset, length) of each range that was read."""

    is_remote = False
    at_once = 1
    kept = None
    is_in_memory = False
    traffic = None

    @property
    def key(self) -> str:
        return self.name

    @property
    def nbytes(self) -> int:
        return len(self.content)

    def read(self, offset: int, length: int) -> bytes:
        self.reads.append((offset, length))
        return self.content[offset : offset + length]

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return [self.read(offset, length) for offset, length in ranges]

    def view(self, offset: int, length: int) -> Bytes:
        return np.frombuffer(self.read(offset, length), dtype=np.uint8)

    def kept_open(self) -> AbstractContextManager[None]:
        return nullcontext()

    def sibling(self, location: str) -> MemoryFile:
        check_location(location)
        if location not in self.siblings:
            raise ExternalDataError(f"[external-missing] {location!r} is not there")
        return MemoryFile(self.siblings[location], self.step, f"/memory/{location}")

    def check(self) -> None:
        """Do nothing: no other process can change it."""

    def bytes_read(self, start: int, end: int) -> int:
        """Return how many of the bytes from `start` to `end` were read at least once."""
        seen = np.zeros(end - start, dtype=bool)
        for offset, length in self.reads:
            seen[max(0, offset - start) : max(0, offset + length - start)] = True
        return int(seen.sum())


@contextmanager
def opened(source: MemoryFile) -> Iterator[None]:
    """Replace `open_source`, so that it opens this file."""
    with patch.object(analyzer.read, "open_source", lambda location: source):
        yield


def read_memory(source: MemoryFile) -> Model:
    with opened(source):
        return read_model(source.name)
