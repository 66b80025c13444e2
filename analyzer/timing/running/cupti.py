"""CUPTI, Nvidia's interface for profilers -> the activities of a GPU, each with the time of the host's request."""

from __future__ import annotations

import importlib.util
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

# https://docs.nvidia.com/cupti/api/group__CUPTI__ACTIVITY__API.html. An activity of the device (a kernel, a copy, a
# memset) has the correlation id of the call of CUDA's runtime or driver that requested it. All times are nanoseconds of
# one clock, the host's: CUPTI converts the device's times.


class Activity(NamedTuple):
    """An activity of a device, in microseconds since a profile began."""

    requested: float
    returned: float
    """Beginning and return of the call that requested it, on the host."""
    start: float
    end: float
    """Beginning and end on the device."""


class TraceError(Exception):
    """CUPTI cannot trace here; the message says why."""


def is_installed() -> bool:
    """Whether bindings of CUPTI (`cupti-python`) are installed."""
    return importlib.util.find_spec("cupti") is not None


_BUFFER = 32 << 20
"""Bytes of a buffer of records; CUPTI requests the next buffer during a run."""

_TRIES = 50
"""Number of times that two clocks are read one after the other."""

_LONGEST_NS = 10**14
"""Limit on the age of a profile: more than a day."""


class Trace:
    """Activities of this process's device from now on."""

    def __init__(self) -> None:
        """Start tracing.

        Raises:
            TraceError: CUPTI does not start, for example without a driver, or with another profiler on the device.
        """
        self._works: list[tuple[int, int, int]] = []
        """(correlation id, start, end) of each activity of the device."""
        self._calls: dict[int, tuple[int, int]] = {}
        """Correlation id -> (start, end) of the call that requested the activity."""
        try:
            from cupti import cupti  # type: ignore[import-not-found]

            self._cupti = cupti
            kinds = cupti.ActivityKind
            self._on_device = {int(kind) for kind in (kinds.CONCURRENT_KERNEL, kinds.MEMCPY, kinds.MEMSET)}
            cupti.activity_register_callbacks(lambda: (_BUFFER, 0), self._take)
            # Calls of all kinds: only calls that request an activity are needed, but CUPTI 13.0 recorded none if only
            # these were enabled, and runs became no faster.
            self._followed = (*self._on_device, int(kinds.RUNTIME), int(kinds.DRIVER))
            for kind in self._followed:
                cupti.activity_enable(kind)
        except Exception as error:
            raise TraceError(f"{type(error).__name__}: {error}") from error

    def _take(self, activities: Iterable[Any]) -> None:
        """Note records, on a thread of CUPTI; they are valid only during this call."""
        for activity in activities:
            row = activity.correlation_id, activity.start, activity.end
            if int(activity.kind) in self._on_device:
                if activity.end:  # 0: it has not ended
                    self._works.append(row)
            else:  # a call of the runtime makes one of the driver with the same id
                known = self._calls.get(row[0], row[1:])
                self._calls[row[0]] = min(known[0], row[1]), max(known[1], row[2])

    def end(self, origin_ns: int) -> list[Activity]:
        """Stop tracing, and return the device's activities by time of request, in microseconds since a profile began.

        Args:
            origin_ns: beginning of the profile by onnxruntime's clock (`InferenceSession.get_profiling_start_time_ns`).

        Raises:
            TraceError: the offset of the two clocks is unknown.
        """
        cupti = self._cupti
        try:
            cupti.activity_flush_all(1)
            ahead = ahead_of(cupti.get_timestamp, origin_ns)
            for kind in self._followed:
                cupti.activity_disable(kind)
        except Exception as error:
            raise TraceError(f"{type(error).__name__}: {error}") from error
        return find_activities(self._works, self._calls, origin_ns + ahead)


def find_activities(
    works: Sequence[tuple[int, int, int]], calls: Mapping[int, tuple[int, int]], origin_ns: int
) -> list[Activity]:
    """Return the device's activities, each with its call, on one clock relative to the beginning of a profile.

    An activity without a known call gets an infinite time of return, so that no call can contain its request.
    """
    found = []
    for correlation, start, end in works:
        requested, returned = calls.get(correlation, (start, math.inf))
        found.append(Activity(*((moment - origin_ns) / 1e3 for moment in (requested, returned, start, end))))
    return sorted(found)


def ahead_of(
    clock: Callable[[], int],
    origin_ns: int,
    hosts: Sequence[Callable[[], int]] = (time.time_ns, time.monotonic_ns),
) -> int:
    """Return how many nanoseconds a clock is ahead of the host's clock that timed a recent event.

    onnxruntime's clock is C++'s `high_resolution_clock`: from the epoch with libstdc++, from the machine's start
    elsewhere.

    Raises:
        TraceError: it is neither.
    """
    host = next((host for host in hosts if 0 <= host() - origin_ns < _LONGEST_NS), None)
    if host is None:
        raise TraceError("onnxruntime's clock is unknown")
    read = ((host(), clock(), host()) for _ in range(_TRIES))
    before, middle, after = min(read, key=lambda row: row[2] - row[0])
    return middle - (before + after) // 2
