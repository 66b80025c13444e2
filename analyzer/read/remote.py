"""A URL -> a file of which only requested ranges are read, or the URLs of the models below it.

A `Store` reads remote files: `web` over HTTP, `filesystem` through fsspec; each is imported when a URL needs it.
"""

from __future__ import annotations

import fnmatch
import hashlib
import posixpath
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt

from analyzer.errors import ExternalDataError, MissingExtraError, ModelReadError, UsageError
from analyzer.model.ranges import Kept, Traffic, UnansweredError, check_location
from analyzer.records import Frozen, Mutable, exclude_fields, field

# stores of remote files

AT_ONCE = 12
"""Most requests at a time: twice the browsers' limit for one host, because most are for 3 KB."""

STEP = 1 << 11

DOWNLOAD = "download the file and name it"


class Unanswered(Exception):  # noqa: N818 - it never leaves analyzer.read, which turns it into a message
    """Reason why a request returned nothing, and the next step; the caller adds the name of the file."""


class Meter(Mutable):
    """Requests and bytes of a model file and its siblings so far. Not frozen, because it counts."""

    requests: int = 0
    """Number of requests sent, including those that were redirected or refused."""

    bytes_read: int = 0
    """Bytes of bodies, without headers."""


class Answer(Frozen):
    """Result of one request."""

    body: bytes
    total: int | None = None
    """Size of the whole file; None if the answer does not state it."""

    marks: tuple[str, ...] = ()
    """Marks that differ between versions of the file, the most reliable first; "" if one is absent."""

    url: str = ""
    """Final URL, after redirects."""


class Store(Protocol):
    """Place that stores remote files.

    Implementations: `analyzer.read.web.Web`, and `analyzer.read.filesystem.Filesystem`, whose answers have fewer
    fields.
    """

    @property
    def meter(self) -> Meter: ...

    @property
    def at_once(self) -> int:
        """Most ranges that are requested at the same time."""
        ...

    def probe(self, url: str, length: int) -> Answer:
        """Return the size and the marks of a file, and its first `length` bytes if they come for free."""
        ...

    def request(self, url: str, ranges: Sequence[tuple[int, int]]) -> list[Answer]:
        """Return the bytes of each (offset, length), all of which lie within the file."""
        ...

    def sibling_url(self, url: str, location: str) -> str:
        """Return the URL of a file that is named relative to the folder of another."""
        ...


def shown(url: str) -> str:
    """Return a URL without parts that may be secret: the user, the password, the query.

    >>> shown("https://user:word@host:8080/model.onnx?token=1#part")
    'https://host:8080/model.onnx'
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        return url
    host, slash, path = rest.partition("?")[0].partition("#")[0].partition("/")
    user, _, host = host.rpartition("@")
    # abfs://container@account names a place; a web user, or a user with a password, does not.
    is_place = user and ":" not in user and scheme.lower() not in ("http", "https")
    return f"{scheme}://{user + '@' if is_place else ''}{host}{slash}{path}"


# one file

TIMEOUT = 30.0

_KEPT = 1 << 21
"""Bytes of answers that are kept."""

_FIRST = 2
"""Answers of the first round, which are kept: the start and the end of the file, where its opsets are."""


@exclude_fields("kept")
class RemoteFile(Frozen):
    """File on another machine. Every range is a request, except the first bytes, which come with its size."""

    name: str
    store: Store
    url: str
    """URL for requests. It may hold credentials, so that only `name` is shown to people."""

    first: Answer
    """First answer, with which all later ones are compared."""

    kept: Kept = field(default_factory=lambda: Kept(_KEPT, _FIRST))
    step = STEP
    is_remote = True
    is_in_memory = False

    def __repr__(self) -> str:
        return f"<RemoteFile {self.name}>"  # without the URL's credentials

    @property
    def key(self) -> str:
        plain = shown(self.url)
        # Two URLs may differ only in their query, which no report may show.
        return plain if plain == self.url else f"{plain} {hashlib.sha256(self.url.encode()).hexdigest()[:16]}"

    @property
    def nbytes(self) -> int:
        assert self.first.total is not None  # `_open` checked it
        return self.first.total

    @property
    def mark(self) -> str:
        return next(filter(None, self.first.marks), "")

    @property
    def at_once(self) -> int:
        return self.store.at_once

    @property
    def traffic(self) -> Traffic:
        return Traffic(self.store.meter.requests, self.store.meter.bytes_read, self.redirected_to)

    @property
    def redirected_to(self) -> str | None:
        """URL to which the server redirected, without credentials; None if it answered itself."""
        target = shown(self.first.url)
        return None if target in ("", shown(self.url)) else target

    def read(self, offset: int, length: int) -> bytes:
        return self.read_ranges([(offset, length)])[0]

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        within = [(offset, max(0, min(length, self.nbytes - offset))) for offset, length in ranges]
        wanted = [part for part in within if not self._is_kept(*part)]
        with _naming(self.name):
            answers = iter(self.store.request(self.url, wanted) if wanted else [])
        return [
            self._kept_part(offset, length)
            if self._is_kept(offset, length)
            else self._compared(next(answers)).body
            for offset, length in within
        ]

    def view(self, offset: int, length: int) -> npt.NDArray[np.uint8]:
        body = self.read(offset, length)
        if len(body) < length:
            raise ModelReadError(f"{self.name}: ends before byte {offset + length:,}")
        return np.frombuffer(body, dtype=np.uint8)

    def kept_open(self) -> AbstractContextManager[None]:
        return nullcontext()  # nothing is open between two requests

    def sibling(self, location: str) -> RemoteFile:
        check_location(location)
        path = posixpath.normpath(location)
        # A server may decode names, and more than once, so that it could open any other file.
        if set(location) & set("?#%"):
            raise ExternalDataError(
                f"[external-escapes] location {location!r} has a ?, # or %, so a server may open another file; "
                "rename the file"
            )
        if path == ".":
            raise ExternalDataError(f"[external-escapes] location {location!r} is the model's own folder")
        url = self.store.sibling_url(self.url, path)
        if unquote(url) == unquote(self.url):
            raise ExternalDataError(f"[external-escapes] location {location!r} is the model file itself")
        try:
            return _open(self.store, url, posixpath.join(posixpath.dirname(self.name), path), 1)
        except ModelReadError as error:
            raise ExternalDataError(f"[external-missing] location {location!r}: {error}") from error

    def check(self) -> None:
        with _naming(self.name):
            answer = self._compared(self.store.probe(self.url, max(1, len(self.first.body))))
        if answer.body != self.first.body:
            raise self._changed()

    def _is_kept(self, offset: int, length: int) -> bool:
        return len(self._kept_part(offset, length)) == length

    def _kept_part(self, offset: int, length: int) -> bytes:
        if offset + length <= len(self.first.body):
            return self.first.body[offset : offset + length]
        return self.kept.at(offset, length)

    def _compared(self, answer: Answer) -> Answer:
        both = [(a, b) for a, b in zip(self.first.marks, answer.marks, strict=False) if a and b]
        is_other = both[0][0] != both[0][1] if both else False
        if is_other or answer.total not in (None, self.nbytes):
            raise self._changed()
        return answer

    def _changed(self) -> ModelReadError:
        return ModelReadError(f"{self.name}: changed while it was read; run again when nobody writes to it")


def open_remote(location: str, timeout: float = TIMEOUT, first: int = STEP) -> RemoteFile:
    """Return the file at a URL, inspected with one request.

    Args:
        location: Any URL that fsspec understands; `open_source` handles `file://`.
        first: Bytes that the request returns if they come with the answer.
        timeout: Seconds for a request, and more for a long range. Filesystems other than http, https and hf keep their
            own.

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
        raise UnansweredError(f"{name}: {reason}") from reason.__cause__


def _open(store: Store, url: str, name: str, length: int) -> RemoteFile:
    with _naming(name):
        answer = store.probe(url, length)
        if answer.total is None:
            raise Unanswered(f"its size is not known; {DOWNLOAD}")
    return RemoteFile(name, store, url, answer)


def _find(location: str, timeout: float) -> tuple[Store, str]:
    """Return the store of a file, and its URL or path there."""
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
        from analyzer.read.web import Web  # only these URLs need aiohttp

        web = Web(found[0], timeout, found[1])
        return web, web.url
    except ImportError as error:
        raise _missing(error, scheme) from error


def _missing(error: ImportError, scheme: str) -> Exception:
    """Return an error that names the package to install; it is in fsspec's error or in the cause of that."""
    cause = error if error.name else error.__cause__
    package = ((cause.name if isinstance(cause, ImportError) else None) or "").partition(".")[0]
    if package in ("fsspec", "aiohttp", "yarl"):
        return MissingExtraError("remote", package, f"reading {scheme}://")
    what = f"{package}, which is not installed: pip install {package}" if package else f"more: {error}"
    return Unanswered(f"{scheme}:// needs {what}; or {DOWNLOAD}")


def _find_on_hub(location: str) -> tuple[str, dict[str, str]] | None:
    """Return the URL and the headers of a file in a repository of the hub.

    `Web` reads it at several positions at once, and follows a redirect only once.
    """
    import fsspec

    hub = fsspec.filesystem("hf")
    try:
        from huggingface_hub import hf_hub_url, parse_hf_uri
        from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]  # public, exported lazily
    except ImportError:  # huggingface_hub before 2.0: its own filesystem reads the file
        return None
    try:
        uri = parse_hf_uri(location)
        if uri.is_bucket:
            return None
        url = hf_hub_url(
            uri.id, uri.path_in_repo, repo_type=uri.type, revision=uri.revision, endpoint=hub.endpoint
        )
    except ValueError:  # its text may give advice that does not apply here
        uri = None
    if uri is None or not uri.path_in_repo:
        raise Unanswered("is not a file on the hub; write hf://<namespace>/<name>/<path>")
    return url, build_hf_headers(token=hub.token)


# many files

_SUFFIX = ".onnx"
_HUB = "hf://"


def is_many(url: str) -> bool:
    """Whether a URL stands for many models: it has a `*`, ends with `/`, or names a repository of the hub.

    >>> is_many("s3://bucket/models/*.onnx"), is_many("hf://org/name"), is_many("hf://org/name/model.onnx")
    (True, True, False)
    """
    path = url.partition("?")[0]
    is_web = url.lower().startswith(("http://", "https://"))
    is_repository = url.lower().startswith(_HUB) and not path.lower().endswith(_SUFFIX)
    return not is_web and ("*" in path or path.endswith("/") or is_repository)


def list_models(url: str) -> Iterator[str]:
    """Yield the URLs of the model files that a URL stands for, folder by folder.

    `hf://org/*` stands for all repositories of an organization, `hf://org/name` for one, `s3://bucket/prefix/` for all
    files below it, `s3://bucket/prefix/*.onnx` for the files that match, where `*` stands for any part of a path.

    Raises:
        UsageError: it cannot be listed, or has no model.
        MissingExtraError: the package that lists it is not installed.
    """
    found = False
    try:
        for model in _list_hub(url) if url.lower().startswith(_HUB) else _list_store(url):
            found = True
            yield model
    except ImportError as error:
        raise MissingExtraError("remote", error.name or "fsspec", f"listing {url}") from error
    except Exception as error:  # noqa: BLE001 - every filesystem has errors of its own
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UsageError(f"{url}: cannot be listed: {reason}; write the URLs into a list") from None
    if not found:
        raise UsageError(f"{url}: no {_SUFFIX} file is there; check the name")


def _list_hub(url: str) -> Iterator[str]:
    from huggingface_hub import HfApi

    api = HfApi()
    owner, _, rest = url[len(_HUB) :].strip("/").partition("/")
    name, _, pattern = rest.partition("/")
    if not name or "*" in name:
        wanted = f"{owner}/{name or '*'}"
        ids = (info.id for info in api.list_models(author=owner))
        repositories: Iterator[str] = (each for each in ids if fnmatch.fnmatchcase(each, wanted))
    else:
        repositories = iter([f"{owner}/{name}"])
    for repository in repositories:
        for path in sorted(api.list_repo_files(repository)):
            if path.lower().endswith(_SUFFIX) and (not pattern or fnmatch.fnmatchcase(path, pattern)):
                yield f"{_HUB}{repository}/{path}"


def _list_store(url: str) -> Iterator[str]:
    from fsspec.core import url_to_fs

    scheme = url.partition("://")[0]
    start = url.partition("*")[0].rpartition("/")[0]
    filesystem, root = url_to_fs(start)
    pattern = url_to_fs(url)[1] if "*" in url else ""
    yield from (f"{scheme}://{path.lstrip('/')}" for path in _walk(filesystem, root, pattern))


def _walk(filesystem: Any, root: str, pattern: str) -> Iterator[str]:
    for folder, _, files in filesystem.walk(root):
        for name in sorted(files):
            path = f"{folder.rstrip('/')}/{name}"
            if name.lower().endswith(_SUFFIX) and (not pattern or fnmatch.fnmatchcase(path, pattern)):
                yield path


def mark_of(url: str) -> str:
    """Return a mark of this version of a remote file, by one small request; "" if there is none."""
    if url.lower().startswith("file://"):
        return ""

    try:
        source = open_remote(url, first=1)
    except (ModelReadError, MissingExtraError):
        return ""  # the reader of the file reports the reason
    return f"{source.nbytes}:{source.mark}" if source.mark else ""
