"""File of which byte ranges can be read, local or remote: the interface that the reader and payloads use."""

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
    """Requests and bytes that reading a remote model took."""

    requests: int
    """Web requests; for other filesystems, the ranges and listings requested."""
    nbytes: int
    """Bytes received."""
    redirected_to: str | None = None
    """Final location of the model file, if it was redirected."""


class Kept:
    """Cache of the ranges read from a remote file: the first few, and the latest up to a number of bytes."""

    __slots__ = ("_blocks", "_first", "_most")

    def __init__(self, most: int, first: int) -> None:
        self._blocks: list[tuple[int, bytes]] = []
        self._most, self._first = most, first

    def add(self, start: int, content: bytes) -> None:
        """Keep a range, and drop the oldest ones beyond the limit, except those that were added first."""
        self._blocks.append((start, content))
        while len(self._blocks) > self._first and sum(len(each) for _, each in self._blocks) > self._most:
            del self._blocks[self._first]

    def block(self, place: int) -> tuple[int, bytes] | None:
        """Return a kept range that contains the byte at a place, as (start, content)."""
        return next((each for each in self._blocks if each[0] <= place < each[0] + len(each[1])), None)

    def at(self, start: int, length: int) -> bytes:
        """Return the kept part of a range, from its start on."""
        content = b""
        while len(content) < length and (found := self.block(start + len(content))):
            skipped = start + len(content) - found[0]
            content += found[1][skipped : skipped + length - len(content)]
        return content

    def __bool__(self) -> bool:
        return bool(self._blocks)


class UnansweredError(ModelReadError):
    """Failed request for ranges; a request for fewer ranges may succeed."""


class Source(Protocol):
    """One file of an artifact.

    Implementations: `analyzer.read.source.LocalFile` and `analyzer.read.remote.RemoteFile`.
    """

    @property
    def name(self) -> str:
        """Name in messages."""
        ...

    @property
    def key(self) -> str:
        """Resolved location: two sources with one key are one file."""
        ...

    @property
    def nbytes(self) -> int:
        """Size in bytes when the file was first inspected."""
        ...

    @property
    def mark(self) -> str:
        """Mark of this version of the file, such as an ETag or a modification time; "" if there is none."""
        ...

    @property
    def step(self) -> int:
        """Bytes worth reading at once when only a few are needed."""
        ...

    @property
    def is_remote(self) -> bool:
        """Whether each read is a request to another machine."""
        ...

    @property
    def at_once(self) -> int:
        """Number of ranges that take about as long to read as one."""
        ...

    @property
    def kept(self) -> Kept | None:
        """Cache of ranges read ahead, which `read` serves without a request; None if reads are free."""
        ...

    @property
    def traffic(self) -> Traffic | None:
        """Traffic of this file and its siblings so far; None if it is not remote."""
        ...

    @property
    def is_in_memory(self) -> bool:
        """Whether all of it is in memory, so that reading a part costs nothing."""
        ...

    def read(self, offset: int, length: int) -> bytes:
        """Return `length` bytes from `offset`; fewer only if the file ends.

        Raises:
            ModelReadError: the bytes are not available, or the file has changed.
        """
        ...

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return the bytes of each (offset, length), as `read` would."""
        ...

    def kept_open(self) -> AbstractContextManager[None]:
        """Keep it and its siblings open until the block ends, so that reads do not reopen them; for one thread.

        The end of the block raises ModelReadError if one of them was replaced meanwhile.
        """
        ...

    def view(self, offset: int, length: int) -> Bytes:
        """Return the same bytes as an array, memory-mapped and not copied if possible."""
        ...

    def sibling(self, location: str) -> Source:
        """Return the file that an external-data `location` names, relative to this one.

        Raises:
            ExternalDataError: it does not exist, or the policy refuses it. The message starts with the finding's id in
                brackets.
        """
        ...

    def check(self) -> None:
        """Raise ModelReadError if the file has changed since it was first inspected."""
        ...


def is_url(location: str) -> bool:
    """Whether a name is a URL and not a path.

    >>> is_url("https://host/model.onnx"), is_url("models/model.onnx")
    (True, False)
    """
    scheme, separator, _ = location.partition("://")
    return bool(separator) and scheme.replace("+", "").isalnum()


def check_location(location: str) -> None:
    """Refuse an external-data location that is unsafe in any folder.

    Raises:
        ExternalDataError: it is empty, absolute, or not a plain relative path on some system.
    """
    is_drive = location[1:2] == ":"
    refused = not location or "\0" in location or "\\" in location or "://" in location
    if refused or is_drive or PurePath(location).is_absolute():
        raise ExternalDataError(f"[external-escapes] location {location!r} is not a relative path")
    if posixpath.normpath(location).split("/")[0] == "..":  # decided before anything is looked up
        raise ExternalDataError(f"[external-escapes] location {location!r} leads outside the model's folder")
