"""A URL -> a file of which only the ranges that are asked for are read; fsspec knows the way there."""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt

from analyzer.errors import ExternalDataError, MissingExtraError, ModelReadError
from analyzer.ranges import Traffic, check_location
from analyzer.read.store import DOWNLOAD, STEP, Answer, Store, Unanswered, shown

__all__ = ["RemoteFile", "open_remote"]

TIMEOUT = 30.0


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file that somebody else keeps. Every range is a request, but for the first bytes, which came with its size."""

    name: str
    store: Store = field(repr=False)
    url: str = field(repr=False)
    """What is asked for. It may hold credentials, so that only `name` is for people."""

    first: Answer = field(repr=False)
    """The answer that all later ones are compared with."""

    step = STEP
    is_remote = True

    @property
    def key(self) -> str:
        plain = shown(self.url)
        # Two URLs may differ in their query alone, which no report may show.
        return plain if plain == self.url else f"{plain} {hashlib.sha256(self.url.encode()).hexdigest()[:16]}"

    @property
    def nbytes(self) -> int:
        assert self.first.total is not None  # `_open` made sure
        return self.first.total

    @property
    def mark(self) -> str:
        return next(filter(None, self.first.marks), "")

    @property
    def traffic(self) -> Traffic:
        return Traffic(self.store.meter.requests, self.store.meter.bytes_read, self.redirected_to)

    @property
    def redirected_to(self) -> str | None:
        """Where the server sent us, without credentials; None where it answered itself."""
        target = shown(self.first.url)
        return None if target in ("", shown(self.url)) else target

    def read(self, offset: int, length: int) -> bytes:
        return self.read_ranges([(offset, length)])[0]

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        within = [(offset, max(0, min(length, self.nbytes - offset))) for offset, length in ranges]
        wanted = [part for part in within if not self._is_at_hand(*part)]
        with _naming(self.name):
            answers = iter(self.store.ask(self.url, wanted) if wanted else [])
        return [
            self.first.body[offset : offset + length]
            if self._is_at_hand(offset, length)
            else self._compared(next(answers)).body
            for offset, length in within
        ]

    def view(self, offset: int, length: int) -> npt.NDArray[np.uint8]:
        body = self.read(offset, length)
        if len(body) < length:
            raise ModelReadError(f"{self.name}: ends before byte {offset + length:,}")
        return np.frombuffer(body, dtype=np.uint8)

    def sibling(self, location: str) -> RemoteFile:
        check_location(location)
        path = posixpath.normpath(location)
        # A server may decode what we encode, and more than once; what it then opens is not ours to say.
        if set(location) & set("?#%"):
            raise ExternalDataError(
                f"[external-escapes] location {location!r} has a ?, # or % in it, by which a server may open another "
                "file; rename the file"
            )
        if path == ".":
            raise ExternalDataError(f"[external-escapes] location {location!r} is the model's own folder")
        url = self.store.beside(self.url, path)
        if unquote(url) == unquote(self.url):
            raise ExternalDataError(f"[external-escapes] location {location!r} is the model file itself")
        try:
            return _open(self.store, url, posixpath.join(posixpath.dirname(self.name), path), 1)
        except ModelReadError as error:
            raise ExternalDataError(f"[external-missing] location {location!r}: {error}") from error

    def check(self) -> None:
        with _naming(self.name):
            answer = self._compared(self.store.look(self.url, max(1, len(self.first.body))))
        if answer.body != self.first.body:
            raise self._changed()

    def _is_at_hand(self, offset: int, length: int) -> bool:
        return length == 0 or offset + length <= len(self.first.body)

    def _compared(self, answer: Answer) -> Answer:
        both = [(a, b) for a, b in zip(self.first.marks, answer.marks, strict=False) if a and b]
        is_other = both[0][0] != both[0][1] if both else False
        if is_other or answer.total not in (None, self.nbytes):
            raise self._changed()
        return answer

    def _changed(self) -> ModelReadError:
        return ModelReadError(f"{self.name}: changed while it was read; run again when nobody writes to it")


def open_remote(location: str, timeout: float = TIMEOUT, first: int = STEP) -> RemoteFile:
    """The file at a URL, looked at with one request.

    Args:
        location: Whatever fsspec understands; `file://` is `open_source`'s.
        first: Bytes that the request brings where they come with the answer.
        timeout: Seconds for a request, and more for a long range. Filesystems other than http, https and hf keep
            their own.

    Raises:
        ModelReadError: it cannot be reached, is refused, or cannot be read in ranges.
        MissingExtraError: fsspec or aiohttp is not installed.
    """
    name = shown(location)
    with _naming(name):
        store, url = _find(location, timeout)
    return _open(store, url, name, first)


@contextmanager
def _naming(name: str) -> Iterator[None]:
    try:
        yield
    except Unanswered as reason:
        raise ModelReadError(f"{name}: {reason}") from reason.__cause__


def _open(store: Store, url: str, name: str, length: int) -> RemoteFile:
    with _naming(name):
        answer = store.look(url, length)
        if answer.total is None:
            raise Unanswered(f"its size is not known; {DOWNLOAD}")
    return RemoteFile(name, store, url, answer)


def _find(location: str, timeout: float) -> tuple[Store, str]:
    """Who keeps the file, and how it is called there."""
    scheme = location.partition("://")[0].lower()
    try:
        found: tuple[str, dict[str, str]] | None = None
        if scheme in ("http", "https"):
            found = (location, {})
        elif scheme == "hf":
            found = _find_on_hub(location)
        if found is None:
            from analyzer.read.filesystem import find

            return find(location)
        from analyzer.read.web import Web  # aiohttp, which only these need

        web = Web(found[0], timeout, found[1])
        return web, web.url
    except ImportError as error:
        raise _missing(error, scheme) from error


def _missing(error: ImportError, scheme: str) -> Exception:
    """What to install: fsspec says in its own words what it lacks, and its cause has the name."""
    cause = error if error.name else error.__cause__
    package = ((cause.name if isinstance(cause, ImportError) else None) or "").partition(".")[0]
    if package in ("fsspec", "aiohttp", "yarl"):
        return MissingExtraError("remote", package, f"reading {scheme}://")
    what = f"{package}, which is not installed: pip install {package}" if package else f"more: {error}"
    return Unanswered(f"{scheme}:// needs {what}; or {DOWNLOAD}")


def _find_on_hub(location: str) -> tuple[str, dict[str, str]] | None:
    """The URL and the headers of a file in a repository of the hub.

    Asked for through `Web`, it is read at several places at once, and follows a redirect only once.
    """
    import fsspec

    hub = fsspec.filesystem("hf")
    try:
        from huggingface_hub import hf_hub_url, parse_hf_uri
        from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]  # public, exported lazily
    except ImportError:  # before 2.0; its own filesystem reads the file then
        return None
    try:
        uri = parse_hf_uri(location)
        if uri.is_bucket:
            return None
        url = hf_hub_url(
            uri.id, uri.path_in_repo, repo_type=uri.type, revision=uri.revision, endpoint=hub.endpoint
        )
    except ValueError:  # its text may advise what does not apply here
        uri = None
    if uri is None or not uri.path_in_repo:
        raise Unanswered("is no file on the hub; write hf://<namespace>/<name>/<path>")
    return url, build_hf_headers(token=hub.token)
