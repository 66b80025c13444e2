"""A file of which ranges can be read, wherever it is: what the reader and payloads know of it."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import PurePath
from typing import Protocol

import numpy as np
import numpy.typing as npt

from analyzer.errors import ExternalDataError, ModelReadError
from analyzer.records import Frozen

Bytes = npt.NDArray[np.uint8]


class Traffic(Frozen):
    """What reading a remote model took."""

    requests: int
    """Of the web; of other filesystems the ranges and listings asked for."""
    nbytes: int
    """Bytes received."""
    redirected_to: str | None = None
    """Where the model file is in the end, if not where it was asked for."""


class Kept:
    """Ranges of a remote file that reading brought: the first of them, and the last, up to so many bytes."""

    __slots__ = ("_blocks", "_first", "_most")

    def __init__(self, most: int, first: int) -> None:
        self._blocks: list[tuple[int, bytes]] = []
        self._most, self._first = most, first

    def add(self, start: int, content: bytes) -> None:
        """Keep a range; the oldest are dropped for it, but for those that were added first."""
        self._blocks.append((start, content))
        while len(self._blocks) > self._first and sum(len(each) for _, each in self._blocks) > self._most:
            del self._blocks[self._first]

    def block(self, place: int) -> tuple[int, bytes] | None:
        """A range that has the byte at a place, as (start, content)."""
        return next((each for each in self._blocks if each[0] <= place < each[0] + len(each[1])), None)

    def at(self, start: int, length: int) -> bytes:
        """What is kept of a range, from its start on."""
        content = b""
        while len(content) < length and (found := self.block(start + len(content))):
            skipped = start + len(content) - found[0]
            content += found[1][skipped : skipped + length - len(content)]
        return content

    def __bool__(self) -> bool:
        return bool(self._blocks)


class UnansweredError(ModelReadError):
    """A request for ranges that brought nothing; one for fewer may bring them."""


class Source(Protocol):
    """One file of an artifact.

    Implementations: `analyzer.read.source.LocalFile` and `analyzer.read.remote.RemoteFile`.
    """

    @property
    def name(self) -> str:
        """As messages show it."""
        ...

    @property
    def key(self) -> str:
        """What it resolves to: two sources with one key are one file."""
        ...

    @property
    def nbytes(self) -> int:
        """Its size when it was first looked at."""
        ...

    @property
    def mark(self) -> str:
        """What tells this version of it from the next; "" where nothing does."""
        ...

    @property
    def step(self) -> int:
        """Bytes that are worth reading at once where only a few are needed."""
        ...

    @property
    def is_remote(self) -> bool:
        """Whether each read is a request to somebody else."""
        ...

    @property
    def at_once(self) -> int:
        """Ranges that take about as long as one."""
        ...

    @property
    def kept(self) -> Kept | None:
        """What reading it ahead has brought, which `read` needs no request for; None where reads are free."""
        ...

    @property
    def traffic(self) -> Traffic | None:
        """What reading it and its siblings has taken so far; None where it is not remote."""
        ...

    @property
    def is_held(self) -> bool:
        """Whether all of it is in memory, so that a part costs nothing."""
        ...

    def read(self, offset: int, length: int) -> bytes:
        """`length` bytes from `offset`; fewer only where the file ends.

        Raises:
            ModelReadError: they cannot be had, or the file is no longer what it was.
        """
        ...

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """The bytes of each (offset, length), as `read` would give them."""
        ...

    def kept_open(self) -> AbstractContextManager[None]:
        """Read it and its siblings, until the block ends, without opening them anew each time; for one thread.

        The end of the block raises ModelReadError if one of them was replaced meanwhile.
        """
        ...

    def view(self, offset: int, length: int) -> Bytes:
        """The same bytes as an array, mapped and not copied where that is possible."""
        ...

    def sibling(self, location: str) -> Source:
        """The file that an external-data `location` names, seen from this one.

        Raises:
            ExternalDataError: it is not there, or the policy refuses it. The message starts with the finding's id in
                brackets.
        """
        ...

    def check(self) -> None:
        """Raises ModelReadError if the file has changed since it was first looked at."""
        ...


def is_url(location: str) -> bool:
    """Whether a name is a URL and not a path.

    >>> is_url("https://host/model.onnx"), is_url("models/model.onnx")
    (True, False)
    """
    scheme, separator, _ = location.partition("://")
    return bool(separator) and scheme.replace("+", "").isalnum()


def check_location(location: str) -> None:
    """Refuse an external-data location that no safe path can come of, whatever the folder.

    Raises:
        ExternalDataError: it is empty, absolute, or no plain relative path on some system.
    """
    is_drive = location[1:2] == ":"
    refused = not location or "\0" in location or "\\" in location or "://" in location
    if refused or is_drive or PurePath(location).is_absolute():
        raise ExternalDataError(f"[external-escapes] location {location!r} is no relative path")
    if posixpath.normpath(location).split("/")[0] == "..":  # said without a look at what is there
        raise ExternalDataError(f"[external-escapes] location {location!r} leads outside the model's folder")
