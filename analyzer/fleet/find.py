"""Folders, globs, lists, stdin, URLs -> the models that they stand for, one by one as they are found."""

from __future__ import annotations

import fnmatch
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from analyzer.account.artifact import is_model_file
from analyzer.account.ledger import natural_order
from analyzer.errors import UsageError
from analyzer.fleet.record import Found
from analyzer.model.ranges import is_url
from analyzer.near import near_name
from analyzer.read.remote import is_many, list_models, mark_of

STDIN = "-"
"""Source that stands for a list on stdin."""

_LISTS = (".txt", ".list")
"""Suffixes of files that list models."""

_AHEAD = 16
"""URLs whose marks are requested at a time."""


def find_sources(sources: Iterable[str]) -> Iterator[Found]:
    """Yield each model of the sources once, in the order of the sources and in natural order within each.

    With several sources, only a number for each model is kept in memory. A named model that does not exist is yielded
    too, so that it gets a row with an error.

    Raises:
        UsageError: a list cannot be read, a URL with many models cannot be listed, or nothing is named.
        MissingExtraError: the package that lists URLs is not installed.
    """
    listed = [sources] if isinstance(sources, str) else list(sources)
    if not listed or "" in listed:
        raise UsageError("SOURCE: the name is empty; give a folder, a list or a URL")
    return _marked(list_names(listed))


def refuse_missing(sources: Iterable[str]) -> None:
    """Refuse a named path that does not exist, or a glob without a match; names within a list are not looked at.

    Raises:
        UsageError: a path does not exist, or a glob has no match.
    """
    for source in filter(None, sources):
        if _is_list(source) or is_url(source) or os.path.lexists(source):
            continue
        if not _is_glob(source):
            raise UsageError(f"SOURCE: {source}: there is no such file or folder{near_name(Path(source))}")
        if next(_globbed(source)) == source:
            raise UsageError(f"SOURCE: {source}: no file or folder matches")


def list_names(sources: Iterable[str]) -> Iterator[str]:
    """Yield the names alone, without opening the models.

    Raises:
        UsageError: a list cannot be read, or a URL with many models cannot be listed.
        MissingExtraError: the package that lists URLs is not installed.
    """
    several = list(sources)
    if len(several) == 1 and not _is_list(several[0]):
        yield from _expand(several[0])
        return
    seen: set[int] = set()
    for source in several:
        for name in _expand(source):
            key = hash(name)
            if key not in seen:
                seen.add(key)
                yield name


def _is_list(source: str) -> bool:
    return source == STDIN or (source.lower().endswith(_LISTS) and not is_url(source))


def _expand(source: str) -> Iterator[str]:
    if _is_list(source):
        for name in _lines(source):
            yield from _expand(name)
    elif is_url(source):
        yield from list_models(source) if is_many(source) else [source]
    elif os.path.isdir(source):  # noqa: PTH112 - unlike Path.is_dir, it never raises
        yield from _below(str(Path(source)))
    elif _is_glob(source) and not os.path.lexists(source):
        yield from _globbed(source)
    else:
        yield str(Path(source))


def _lines(source: str) -> Iterator[str]:
    """Yield the names in a list.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        if source == STDIN:
            yield from filter(None, map(_listed_name, sys.stdin))
            return
        with Path(source).open(encoding="utf-8", errors="surrogateescape") as lines:
            yield from filter(None, map(_listed_name, lines))
    except OSError as error:
        raise UsageError(f"{source}: the list cannot be read: {error.strerror or error}") from error


def _listed_name(line: str) -> str:
    """Return the name in a line of a list; "" for a comment, another list or stdin, which could recur forever."""
    name = line.strip()
    return "" if name.startswith("#") or _is_list(name) else name


def _below(folder: str) -> Iterator[str]:
    """Yield the model files below a folder, in natural order, as `inspect DIR` does; one folder is read at a time.

    A folder that cannot be listed, or that has no model, is yielded itself, so that it gets a row with an error.
    """
    waiting, found = [folder], False
    while waiting:  # not recursion: a folder can be deeper than the stack
        place = waiting.pop()
        try:
            entries = _scan(place) if place == folder or _is_own_folder(place) else None
        except OSError:
            entries = None
        if entries is None:
            found = True
            yield str(Path(place))
            continue
        wanted = [e for e in entries if e.is_dir(follow_symlinks=False) or is_model_file(e)]
        waiting += [entry.path for entry in reversed(wanted)]
    if not found:
        yield folder


def _scan(place: str) -> list[os.DirEntry[str]]:
    """Return the entries of a folder, in natural order, without hidden ones."""
    with os.scandir(place) as entries:
        seen = [entry for entry in entries if not entry.name.startswith(".")]
    return sorted(seen, key=lambda entry: (natural_order(entry.name), entry.name))


def _is_own_folder(place: str) -> bool:
    """Whether a path is a folder and not a link to one."""
    return os.path.isdir(place) and not os.path.islink(place)  # noqa: PTH112, PTH114 - as above


def _is_glob(source: str) -> bool:
    return any(sign in source for sign in "*?[")


def _globbed(pattern: str) -> Iterator[str]:
    """Yield the matches of a glob, in natural order of each folder; `**` stands for any folders.

    A matching folder stands for the models below it. If nothing matches, the pattern itself is yielded, so that it gets
    a row with an error.
    """
    parts = Path(pattern).parts
    start = parts[0] if Path(pattern).is_absolute() else ""
    found = False
    for path in _matching(start, parts[1:] if start else parts):
        found = True
        if os.path.isdir(path):  # noqa: PTH112 - as above
            yield from _below(path)
        else:
            yield path
    if not found:
        yield pattern


def _matching(place: str, parts: tuple[str, ...]) -> Iterator[str]:
    if not parts:
        yield place
        return
    first, rest = parts[0], parts[1:]
    if not _is_glob(first):
        path = os.path.join(place, first)  # noqa: PTH118 - the start is ""
        if os.path.lexists(path):
            yield from _matching(path, rest)
        return
    if first == "**":
        yield from _matching(place, rest)
    try:
        entries = _scan(place or ".")
    except OSError:  # not a folder, or one that cannot be listed: no match there
        return
    for entry in entries:
        path = os.path.join(place, entry.name)  # noqa: PTH118 - as above
        if first == "**":
            if entry.is_dir(follow_symlinks=False):
                yield from _matching(path, parts)
        elif fnmatch.fnmatchcase(entry.name, first):
            yield from _matching(path, rest)


def _marked(names: Iterator[str]) -> Iterator[Found]:
    """Yield each name with its mark, in order; the marks of several URLs are requested at a time."""
    pool: ThreadPoolExecutor | None = None
    waiting: list[tuple[str, str | Future[str]]] = []
    try:
        for name in names:
            if is_url(name):
                pool = pool or ThreadPoolExecutor(_AHEAD)
                waiting.append((name, pool.submit(mark_of, name)))
            else:
                waiting.append((name, _local_mark(name)))
            while waiting and (len(waiting) > _AHEAD or not isinstance(waiting[0][1], Future)):
                yield _found(*waiting.pop(0))
        for each in waiting:
            yield _found(*each)
    finally:
        if pool is not None:
            pool.shutdown(cancel_futures=True)


def _found(name: str, mark: str | Future[str]) -> Found:
    return Found(name, mark if isinstance(mark, str) else mark.result())


def _local_mark(name: str) -> str:
    """Return size and modification time, and the kind of an entry that is not a regular file."""
    try:
        status = Path(name).stat()
    except (OSError, ValueError, RuntimeError):
        return "missing"
    kind = "" if stat.S_ISREG(status.st_mode) else f":{stat.S_IFMT(status.st_mode):o}"
    return f"{status.st_size}:{status.st_mtime_ns}{kind}"
