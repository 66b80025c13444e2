"""Filesystems of fsspec other than the web: buckets, private archives, memory."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from analyzer.read.remote import AT_ONCE, DOWNLOAD, STEP, Answer, Meter, Store, Unanswered
from analyzer.records import Frozen

# Names that filesystems give the marks of one version of a file, the most reliable first.
_MARKS: tuple[str, ...] = (
    "ETag",
    "etag",
    "checksum",
    "md5",
    "md5Hash",
    "generation",
    "version_id",
    "mtime",
    "modified",
)
_MARKS += ("LastModified", "last_modified", "updated", "created")


def find(location: str) -> tuple[Store, str]:
    """Return the filesystem of a URL, and the path of the file there.

    Raises:
        ImportError: the package of that filesystem is not installed.
    """
    if "::" in location:
        raise Unanswered(
            "names a file inside an archive, which is not read remotely; unpack it and name the file"
        )
    try:
        filesystem, path = url_to_fs(location, skip_instance_cache=True)
    except ImportError:
        raise
    except Exception as error:  # noqa: BLE001 - every filesystem has errors of its own
        raise Unanswered(f"cannot be opened: {_describe_error(error, location)}; {DOWNLOAD}") from None
    if isinstance(filesystem, LocalFileSystem):
        raise Unanswered("is a local file; name its path")
    return Filesystem(filesystem, location, Meter()), path


class Filesystem(Frozen):
    """Any filesystem of fsspec except the web. It counts calls, because fsspec does not report requests."""

    fs: Any
    location: str
    meter: Meter

    @property
    def at_once(self) -> int:
        return AT_ONCE if self.fs.async_impl else 1

    def probe(self, url: str, length: int) -> Answer:
        answer: Answer = self._try(lambda: self._probe(url))
        return answer

    def request(self, url: str, ranges: Sequence[tuple[int, int]]) -> list[Answer]:
        bodies: list[bytes] = self._try(lambda: self._bodies(url, ranges))
        self.meter.requests += len(ranges)
        self.meter.bytes_read += sum(map(len, bodies))
        for (offset, length), body in zip(ranges, bodies, strict=True):
            if len(body) != length:
                raise Unanswered(f"{len(body):,} of {length:,} bytes came from byte {offset:,}; run again")
        return [Answer(body) for body in bodies]

    def sibling_url(self, url: str, location: str) -> str:
        return posixpath.join(posixpath.dirname(url), location)

    def _probe(self, url: str) -> Answer:
        self.fs.invalidate_cache(url)
        self.meter.requests += 1
        info = self.fs.info(url)
        if info.get("type") == "directory":
            raise Unanswered("is a folder; name the .onnx file inside it")
        return Answer(b"", info.get("size"), tuple(str(info.get(mark) or "") for mark in _MARKS))

    def _bodies(self, url: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        if self.fs.async_impl:
            starts, ends = zip(*((offset, offset + length) for offset, length in ranges), strict=True)
            paths = [url] * len(ranges)
            bodies: list[bytes] = self.fs.cat_ranges(
                paths, list(starts), list(ends), on_error="raise", batch_size=AT_ONCE
            )
            return bodies
        # `cat_file` would read ahead, megabytes for every range.
        with self.fs.open(url, "rb", block_size=STEP, cache_type="none") as file:
            return [_read_at(file, offset, length) for offset, length in ranges]

    def _try(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Unanswered:
            raise
        except FileNotFoundError:
            raise Unanswered("is not there; check the name") from None
        except Exception as error:  # noqa: BLE001 - every filesystem has errors of its own
            raise Unanswered(
                f"cannot be read: {_describe_error(error, self.location)}; run again, or {DOWNLOAD}"
            ) from None


def _read_at(file: Any, offset: int, length: int) -> bytes:
    file.seek(offset)
    body: bytes = file.read(length)
    return body


def _describe_error(error: Exception, location: str) -> str:
    """Return the first line of a filesystem's error, without the secrets of the URL that it may repeat."""
    line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    parts = urlsplit(location)
    for secret in (location, parts.query, parts.password):
        line = line.replace(secret, "...") if secret else line
    return line
