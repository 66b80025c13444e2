"""A path or URL -> a file of which ranges can be read; what may be opened is decided here and nowhere else."""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

import numpy as np
import numpy.typing as npt

from analyzer.errors import ExternalDataError, ModelReadError
from analyzer.model import Traffic

__all__ = ["LocalFile", "Source", "check_location", "is_url", "open_source"]

Bytes = npt.NDArray[np.uint8]

_COPIED = 1 << 16
"""Bytes up to which a copy costs less than a mapping."""


class Source(Protocol):
    """One file of an artifact. Implementations: `LocalFile`, and `analyzer.read.remote.RemoteFile`."""

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
    def step(self) -> int:
        """Bytes that are worth reading at once where only a few are needed."""
        ...

    @property
    def is_remote(self) -> bool:
        """Whether each read is a request to somebody else."""
        ...

    @property
    def traffic(self) -> Traffic | None:
        """What reading it and its siblings has taken so far; None where it is not remote."""
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


def open_source(location: str) -> Source:
    """The model file at a path or URL.

    Raises:
        ModelReadError: it is not there, cannot be read, or is no regular file.
        MissingExtraError: it is a URL, and what reads URLs is not installed.
    """
    if not is_url(location):
        return LocalFile.at(Path(location))
    if location.lower().startswith("file://"):
        return LocalFile.at(_path_of(location))
    from analyzer.read.remote import open_remote  # fsspec, which only a URL needs

    return open_remote(location)


def _path_of(location: str) -> Path:
    """The path of a `file://` URL, which is read like any other file: links are resolved, ranges are free.

    >>> str(_path_of("file:///models/my%20model.onnx"))
    '/models/my model.onnx'
    """
    parts = urlsplit(location)
    if parts.netloc not in ("", "localhost"):
        raise ModelReadError(f"{location}: names no file of this machine; write file:///<absolute path>")
    return Path(unquote(parts.path))


def check_location(location: str) -> None:
    """Refuse an external-data location that no safe path can come of, whatever the folder.

    Raises:
        ExternalDataError: it is empty, absolute, or no plain relative path on some system.
    """
    is_drive = location[1:2] == ":"
    refused = not location or "\0" in location or "\\" in location or "://" in location
    if refused or is_drive or Path(location).is_absolute():
        raise ExternalDataError(f"[external-escapes] location {location!r} is no relative path")
    if posixpath.normpath(location).split("/")[0] == "..":  # said without a look at what is there
        raise ExternalDataError(f"[external-escapes] location {location!r} leads outside the model's folder")


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A regular file. It is opened for each read and closed again, without blocking; never for writing."""

    path: Path
    key: str
    nbytes: int
    identity: tuple[int, int, int]
    """Inode, size and modification time, by which a change is noticed."""

    step = 1 << 14
    is_remote = False
    traffic = None

    @classmethod
    def at(cls, path: Path) -> LocalFile:
        """Look at a file without opening it: a pipe would hang, a device may never end."""
        try:
            status = path.stat()
        except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: links in a circle
            reason = getattr(error, "strerror", None) or error
            raise ModelReadError(f"{path}: cannot be read: {reason}") from error
        if stat.S_ISDIR(status.st_mode):
            raise ModelReadError(f"{path}: is a folder; name the .onnx file inside it")
        if not stat.S_ISREG(status.st_mode):
            raise ModelReadError(f"{path}: [not-onnx] is no regular file; copy its content to one")
        return cls(path, str(path.resolve()), status.st_size, _identity(status))

    @property
    def name(self) -> str:
        return str(self.path)

    def read(self, offset: int, length: int) -> bytes:
        return self.read_ranges([(offset, length)])[0]

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                self._compare(os.fstat(descriptor))
                return [os.pread(descriptor, length, offset) for offset, length in ranges]
            finally:
                os.close(descriptor)
        except OSError as error:
            raise ModelReadError(f"{self.path}: cannot be read: {error.strerror or error}") from error

    def view(self, offset: int, length: int) -> Bytes:
        if length <= _COPIED:
            return np.frombuffer(self.read(offset, length), dtype=np.uint8)
        self.check()
        try:
            # mmap needs no alignment here: np.memmap rounds the offset down to a page itself.
            mapped = np.memmap(self.path, dtype=np.uint8, mode="r", offset=offset, shape=(length,))
        except (OSError, ValueError) as error:
            raise ModelReadError(f"{self.path}: cannot be mapped at byte {offset:,}: {error}") from error
        return mapped.view(np.ndarray)

    def sibling(self, location: str) -> LocalFile:
        check_location(location)
        folder = self.path.parent
        try:
            root, target = folder.resolve(), (folder / location).resolve()
            if not target.is_relative_to(root) and not _is_hub_blob(folder, location, target):
                raise ExternalDataError(
                    f"[external-escapes] location {location!r} leads outside the model's folder"
                )
            status = target.stat()
            is_model = target == self.path.resolve()
        except (OSError, RuntimeError, ValueError) as error:
            raise ExternalDataError(f"[external-missing] {location!r} is not there") from error
        if is_model:
            raise ExternalDataError(f"[external-escapes] location {location!r} is the model file itself")
        if not stat.S_ISREG(status.st_mode):
            raise ExternalDataError(f"[external-escapes] {location!r} is no regular file")
        return LocalFile(target, str(target), status.st_size, _identity(status))

    def check(self) -> None:
        try:
            self._compare(self.path.stat())
        except OSError as error:
            raise ModelReadError(f"{self.path}: cannot be read any more: {error.strerror}") from error

    def _compare(self, status: os.stat_result) -> None:
        if not stat.S_ISREG(status.st_mode) or _identity(status) != self.identity:
            raise ModelReadError(
                f"{self.path}: changed while it was read; run again when nobody writes to it"
            )


def _identity(status: os.stat_result) -> tuple[int, int, int]:
    return (status.st_ino, status.st_size, status.st_mtime_ns)


def _is_hub_blob(folder: Path, location: str, target: Path) -> bool:
    """Whether `target` is in the blob store of the hub cache that `folder` is a snapshot of.

    A link inside a hub cache (`snapshots/<revision>/x` -> `blobs/<hash>`) may lead to that cache's own blobs.
    """
    snapshot = folder.absolute()
    for parent in (snapshot, *snapshot.parents):
        if parent.parent.name == "snapshots":
            store = parent.parent.parent.resolve() / "blobs"  # a link in its place would lead anywhere
            return ".." not in Path(location).parts and target.parent == store
    return False
