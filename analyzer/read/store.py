"""What keeps remote files: the questions that a store answers, and what they cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

__all__ = ["AT_ONCE", "DOWNLOAD", "STEP", "Answer", "Meter", "Store", "Unanswered", "shown"]

AT_ONCE = 8
"""Requests under way at a time: what browsers allow themselves for one host, within a few."""

STEP = 1 << 11

DOWNLOAD = "download the file and name it"


class Unanswered(Exception):  # noqa: N818 - it never leaves analyzer.read, which makes a sentence of it
    """Why a request brought nothing, and what to do next; whoever asked adds the name of the file."""


@dataclass(slots=True)
class Meter:
    """What a model file and its siblings have cost so far. Not frozen: this is what counts."""

    requests: int = 0
    """Every one that was sent, also those that were redirected or refused."""

    bytes_read: int = 0
    """Of bodies, without headers."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What one request brought."""

    body: bytes
    total: int | None = None
    """The size of the whole file; None where the answer does not say."""

    marks: tuple[str, ...] = ()
    """By which one version of the file is told from the next, the surest first; "" where there is none."""

    url: str = ""
    """Where it came from in the end."""


class Store(Protocol):
    """Where files are.

    Implementations: `analyzer.read.web.Web`, and `analyzer.read.filesystem.Filesystem`, whose answers say less.
    """

    @property
    def meter(self) -> Meter: ...

    def look(self, url: str, length: int) -> Answer:
        """The size and the marks of a file, and its first `length` bytes if they come for free."""
        ...

    def ask(self, url: str, ranges: Sequence[tuple[int, int]]) -> list[Answer]:
        """The bytes of each (offset, length), all of which lie within the file."""
        ...

    def beside(self, url: str, location: str) -> str:
        """The URL of a file that is named relative to the folder of another."""
        ...


def shown(url: str) -> str:
    """A URL without what may be secret: the user, the password, the query.

    >>> shown("https://user:word@host:8080/model.onnx?token=1#part")
    'https://host:8080/model.onnx'
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        return url
    host, slash, path = rest.partition("?")[0].partition("#")[0].partition("/")
    user, _, host = host.rpartition("@")
    # abfs://container@account names a place; a user of the web, or one with a password, does not.
    is_place = user and ":" not in user and scheme.lower() not in ("http", "https")
    return f"{scheme}://{user + '@' if is_place else ''}{host}{slash}{path}"
