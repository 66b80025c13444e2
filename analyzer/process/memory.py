"""The machine and its control groups -> memory that a process may take, and memory that it has taken."""

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
"""Versions 2 and 1 of control groups: folder, files of the limit and the usage, key of the droppable part."""


def available(proc: Path = _PROC, groups: Path = _GROUPS) -> int | None:
    """Return the fewest bytes left in the machine or in a control group of this process; None if unknown."""
    found = list(_available_in_groups(proc, groups))
    with suppress(OSError, ValueError, KeyError):
        found.append(_table(proc / "meminfo")["MemAvailable:"] * 1024)
    return max(0, min(found)) if found else None


def _available_in_groups(proc: Path, groups: Path) -> Iterator[int]:
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
                with suppress(OSError, ValueError, KeyError):  # an absent limit is the word "max"
                    used = int((group / usage).read_text()) - _table(group / "memory.stat")[droppable]
                    yield int((group / limit).read_text()) - used


def _table(path: Path) -> dict[str, int]:
    """Return the lines of a file, each a name and a number."""
    rows = (line.split() for line in path.read_text(encoding="utf-8").splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()}


def own_nbytes(process: int) -> int | None:
    """Return the resident memory of a process without mapped files, in bytes; None where the system does not tell.

    Weights that are mapped from a file do not count: the system drops them when it needs memory.
    """
    try:
        with open(f"{_PROC}/{process}/statm", "rb") as stream:  # noqa: PTH123 - asked for every model of a survey
            _, resident, shared, *_ = map(int, stream.read().split())
    except (OSError, ValueError):
        return None
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE")


def peak_rss() -> int | None:
    """Return the peak resident memory of this process in bytes, mapped files included; None where it is unknown."""
    # Not first `getrusage`: on Linux it starts with the parent's memory at the time of the fork.
    with suppress(OSError, KeyError):
        return _table(_PROC / "self" / "status")["VmHWM:"] * 1024
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def forget_peak() -> None:
    """Reset the peak to the memory that this process still holds after freed memory is returned (Linux)."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    with suppress(OSError):
        (_PROC / "self" / "clear_refs").write_text("5")


def limit_growth(nbytes: int | None) -> None:
    """Limit this process's own memory to `nbytes` in all, so that onnxruntime names the node that asks for more.

    The system's limit (Linux) counts all writable memory, used or not, and mapped weights and thread stacks have
    enlarged that already. So the limit is the present count plus the part of `nbytes` that is not yet used. None
    removes the limit.
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
        return  # the parent process watches the memory too
