"""CUPTI, Nvidia's interface for profilers -> what a GPU did, each thing with when the host asked for it."""

from __future__ import annotations

import importlib.util
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

# https://docs.nvidia.com/cupti/api/group__CUPTI__ACTIVITY__API.html. An activity of the device (a kernel, a copy, a
# memset) has the correlation id of the call of CUDA's runtime or driver that asked for it. All times are nanoseconds
# of one clock, the host's, as CUPTI translates those of the device.


class Deed(NamedTuple):
    """Something that a device did, in microseconds since a profile began."""

    asked: float
    told: float
    """When the call began that asked for it, and when that returned, at the host."""
    start: float
    end: float
    """At the device."""


class TraceError(Exception):
    """CUPTI cannot trace here; says why."""


def is_installed() -> bool:
    """Whether there are bindings of CUPTI (`cupti-python`)."""
    return importlib.util.find_spec("cupti") is not None


_BUFFER = 32 << 20
"""Bytes of a buffer of records: CUPTI asks for the next one in the course of a run."""

_TRIES = 50
"""How often two clocks are read one after the other."""

_LONGEST_NS = 10**14
"""More than a day: how long ago a profile may have begun."""


class Trace:
    """What the device of this process does from now on."""

    def __init__(self) -> None:
        """Start.

        Raises:
            TraceError: CUPTI does not, as where there is no driver, or another profiler has the device.
        """
        self._works: list[tuple[int, int, int]] = []
        """(correlation id, start, end) of what the device did."""
        self._calls: dict[int, tuple[int, int]] = {}
        """Correlation id -> (start, end) of the call that asked for it."""
        try:
            from cupti import cupti  # type: ignore[import-not-found]

            self._cupti = cupti
            kinds = cupti.ActivityKind
            self._on_device = {int(kind) for kind in (kinds.CONCURRENT_KERNEL, kinds.MEMCPY, kinds.MEMSET)}
            cupti.activity_register_callbacks(lambda: (_BUFFER, 0), self._take)
            # Calls of all kinds: the records of those alone that ask a device for something would do, but CUPTI 13.0
            # gave none where only these were enabled, and runs became no faster.
            self._followed = (*self._on_device, int(kinds.RUNTIME), int(kinds.DRIVER))
            for kind in self._followed:
                cupti.activity_enable(kind)
        except Exception as error:
            raise TraceError(f"{type(error).__name__}: {error}") from error

    def _take(self, activities: Iterable[Any]) -> None:
        """Note records, which last for as long as this is called; a thread of CUPTI's does."""
        for activity in activities:
            row = activity.correlation_id, activity.start, activity.end
            if int(activity.kind) in self._on_device:
                if activity.end:  # 0: it has not ended
                    self._works.append(row)
            else:  # a call of the runtime makes one of the driver with the same id
                known = self._calls.get(row[0], row[1:])
                self._calls[row[0]] = min(known[0], row[1]), max(known[1], row[2])

    def end(self, origin_ns: int) -> list[Deed]:
        """Stop. What the device did, by when it was asked to, in microseconds since a profile began.

        Args:
            origin_ns: when it did, by the clock that onnxruntime has (`InferenceSession.get_profiling_start_time_ns`).

        Raises:
            TraceError: there is no telling how the two clocks go.
        """
        cupti = self._cupti
        try:
            cupti.activity_flush_all(1)
            ahead = ahead_of(cupti.get_timestamp, origin_ns)
            for kind in self._followed:
                cupti.activity_disable(kind)
        except Exception as error:
            raise TraceError(f"{type(error).__name__}: {error}") from error
        return deeds(self._works, self._calls, origin_ns + ahead)


def deeds(
    works: Sequence[tuple[int, int, int]], calls: Mapping[int, tuple[int, int]], origin_ns: int
) -> list[Deed]:
    """What the device did, each with the call that asked for it; all by one clock, on which a profile began.

    What nobody is known to have asked for was asked for in no time that a call could have been made in.
    """
    found = []
    for correlation, start, end in works:
        asked, told = calls.get(correlation, (start, math.inf))
        found.append(Deed(*((moment - origin_ns) / 1e3 for moment in (asked, told, start, end))))
    return sorted(found)


def ahead_of(
    clock: Callable[[], int],
    origin_ns: int,
    hosts: Sequence[Callable[[], int]] = (time.time_ns, time.monotonic_ns),
) -> int:
    """By how many nanoseconds a clock is ahead of that one of the host's by which something began a while ago.

    onnxruntime's is C++'s `high_resolution_clock`: the epoch's with libstdc++, that of the machine's start elsewhere.

    Raises:
        TraceError: it is neither.
    """
    host = next((host for host in hosts if 0 <= host() - origin_ns < _LONGEST_NS), None)
    if host is None:
        raise TraceError("onnxruntime's clock is unknown")
    read = ((host(), clock(), host()) for _ in range(_TRIES))
    before, middle, after = min(read, key=lambda row: row[2] - row[0])
    return middle - (before + after) // 2
