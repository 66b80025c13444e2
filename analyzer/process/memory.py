"""The machine and its control groups -> how much memory a process may take, and how much one has."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")
_GROUPS = Path("/sys/fs/cgroup")
_FILES = (
    ("", "memory.max", "memory.current", "inactive_file"),
    ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
"""Versions 2 and 1 of control groups: the folder, the limit, what is used, and what of that could be dropped."""


def available(proc: Path = _PROC, groups: Path = _GROUPS) -> int | None:
    """What the machine, and each control group that this process is in, has left; None where neither says so."""
    found = list(_left_in_groups(proc, groups))
    with suppress(OSError, ValueError, KeyError):
        found.append(_table(proc / "meminfo")["MemAvailable:"] * 1024)
    return max(0, min(found)) if found else None


def _left_in_groups(proc: Path, groups: Path) -> Iterator[int]:
    try:
        lines = (proc / "self" / "cgroup").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        for folder, limit, usage, droppable in _FILES:
            if folder and folder not in controllers.split(","):
                continue
            inner = groups / folder / path.lstrip("/")
            for group in (inner, *inner.parents):
                if not group.is_relative_to(groups / folder):
                    break
                with suppress(OSError, ValueError, KeyError):  # no limit is the word "max"
                    used = int((group / usage).read_text()) - _table(group / "memory.stat")[droppable]
                    yield int((group / limit).read_text()) - used


def _table(path: Path) -> dict[str, int]:
    """The lines of a file, each a name and a number."""
    rows = (line.split() for line in path.read_text(encoding="utf-8").splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()}


def own_nbytes(process: int) -> int | None:
    """The resident memory of a process that is not a file's; None where the system does not say.

    Weights that are mapped from a file are left out: the system drops them when it needs the room.
    """
    try:
        with open(f"{_PROC}/{process}/statm", "rb") as stream:  # noqa: PTH123 - asked for every model of a survey
            _, resident, shared, *_ = map(int, stream.read().split())
    except (OSError, ValueError):
        return None
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE")


def peak_rss() -> int | None:
    """The most resident memory that this process had, mapped files included; None where the system does not say."""
    # Not first `getrusage`, which on Linux begins with what the parent had when it started this process.
    with suppress(OSError, KeyError):
        return _table(_PROC / "self" / "status")["VmHWM:"] * 1024
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def forget_peak() -> None:
    """Begin anew with the peak, from what this process still holds once free memory is given back (Linux)."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    with suppress(OSError):
        (_PROC / "self" / "clear_refs").write_text("5")


def limit_growth(nbytes: int | None) -> None:
    """Let this process get no more memory of its own than `nbytes` in all, so that onnxruntime says which node asks.

    That is what it has now, and what it has room for: the limit of the system (Linux) counts all that it may write
    to, which mapped weights and the stacks of threads have enlarged already, though they take no such room. None
    takes the limit away again.
    """
    try:
        import resource
        from os import getpid

        most = highest = resource.getrlimit(resource.RLIMIT_DATA)[1]
        if nbytes is not None:
            now = _table(_PROC / str(getpid()) / "status")
            room = nbytes - now["RssAnon:"] * 1024
            most = max(now["VmData:"] * 1024 + room, 0)
        resource.setrlimit(resource.RLIMIT_DATA, (most, highest))
    except (ImportError, OSError, ValueError, KeyError):
        return  # the other process watches it too
