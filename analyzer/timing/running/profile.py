"""onnxruntime's profile, and a GPU's activities -> the time of each kernel in each run."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from analyzer.errors import TimingError
from analyzer.model.operators import Kind, operators_of
from analyzer.records import Frozen, Mutable, field
from analyzer.timing.request import CPU, Clock, Kernel
from analyzer.timing.running.cupti import Activity

# The format is that of Chrome's trace viewer, an event on each line, in the order in which events end. (onnxruntime,
# core/common/profiler.cc, core/framework/sequential_executor.cc, core/common/gpu_profiler_common.h)


_KERNEL_TIME = "_kernel_time"
"""Suffix of a node's name in the event of its kernel."""

_HOLDERS = operators_of(Kind.CONTROL)
"""Operators whose kernels run subgraphs; kernels in these have their own events, within the operator's time."""

_CUT = 2.0
"""Microseconds by which an event may end later than recorded: its start and its length are both truncated."""


class Profile(Frozen):
    """Kernels and times of the runs, in the order of the runs."""

    kernels: tuple[Kernel, ...]
    """Kernels of the main graph, in the order in which they first ran."""
    runs: tuple[tuple[float, ...], ...]
    """For each run, the time of each of `kernels` in microseconds; 0 for one that did not run."""
    held_nbytes: tuple[int | None, ...]
    """For each run, the most bytes in use in a device's memory arena; None if the profile does not say."""
    clock: Clock = "host"
    """`device` if the device itself timed the kernels."""
    unassigned_share: float = 0.0
    """Share of the device's time in runs that belongs to no kernel; 0 by the host's clock."""


class _Call(Mutable, eq=False):
    kernel: Kernel
    start: int
    host: int
    device: float = 0
    """Time by the device's clock, with that of inner kernels."""
    inner: tuple[_Call, ...] = ()
    """Calls in the subgraphs that it runs."""

    def time(self, clock: Clock) -> float:
        """Return the device's time by a device's clock; for a kernel on the processor, the host's."""
        return self.host if clock == "host" or self.kernel.provider == CPU else self.device

    def shared_time(self) -> float:
        """Return the time that `_Reader.distribute_time` gave to the call and to its inner calls."""
        return self.device + sum(call.shared_time() for call in self.inner)


class _Reader(Mutable):
    """Events of the current run, and results of the runs before it."""

    activities: Sequence[Activity] | None = None
    """Activities of the device, sorted by the time of the request; None without a trace."""
    positions: dict[Kernel, int] = field(default_factory=dict)
    runs: list[list[_Call]] = field(default_factory=list)
    calls: list[_Call] = field(default_factory=list)
    all_calls: list[_Call] = field(default_factory=list)
    """All calls of the run, also those within others."""
    peak_nbytes: dict[str, int] = field(default_factory=dict)
    """Provider -> most bytes in use in its device's arena."""
    most: list[int | None] = field(default_factory=list)
    """For each run, the most bytes of the device, or of the processor if there is no device."""
    clock: Clock = "host"
    busy: float = 0.0
    unassigned: float = 0.0
    """Microseconds of all runs in which the device worked, and the part of them that belongs to no kernel."""

    def node(self, event: dict[str, Any]) -> None:
        arguments = event.get("args", {})
        name, op_type = event["name"], str(arguments.get("op_name", ""))
        if not name.endswith(_KERNEL_TIME):
            return  # a wait for a device before or after a kernel
        start, time = int(event["ts"]), int(event["dur"])
        device, inner = 0.0, []
        if op_type in _HOLDERS:  # inner calls have ended, and were recorded, before it
            while self.calls and self.calls[-1].start >= start:
                inner.append(self.calls.pop())
                device += inner[-1].device
        index = arguments.get("node_index")
        kernel = Kernel(
            name=name.removesuffix(_KERNEL_TIME),
            op_type=op_type,
            provider=str(arguments.get("provider", "")),
            index=None if index is None else int(index),
        )
        self.calls.append(_Call(kernel, start, time, device, tuple(inner)))
        if self.activities is not None:
            self.all_calls.append(self.calls[-1])
        peak = arguments.get("mem_in_use_peak")
        if peak is not None:
            self.peak_nbytes[kernel.provider] = max(self.peak_nbytes.get(kernel.provider, 0), int(peak))

    def on_device(self, event: dict[str, Any]) -> None:
        """Add a device's time to the node of the last event; other time, such as for copies of inputs, is dropped."""
        parent = event.get("args", {}).get("parent_name")
        if self.calls and parent == self.calls[-1].kernel.name + _KERNEL_TIME:
            self.calls[-1].device += int(event["dur"])
            self.clock = "device"

    def end_run(self, event: dict[str, Any]) -> None:
        if self.activities is not None:
            self.distribute_time(self.activities, int(event["ts"]), int(event["dur"]))
        for call in self.calls:
            self.positions.setdefault(call.kernel, len(self.positions))
        self.runs.append(self.calls)
        on_device = [nbytes for provider, nbytes in self.peak_nbytes.items() if provider != CPU]
        self.most.append(max(on_device, default=self.peak_nbytes.get(CPU)))
        self.calls, self.all_calls, self.peak_nbytes = [], [], {}

    def distribute_time(self, activities: Sequence[Activity], start: int, time: int) -> None:
        """Give each moment of a run to at most one call, so that the times sum up to no more than the run's.

        A moment belongs to the call for which the device works; if the device is idle, to the call that runs on the
        processor. Moments in which the device waits for requests and nothing else runs belong to no call.
        """
        calls = sorted(self.all_calls, key=lambda call: call.start)
        for call in calls:
            call.device = 0.0
        starts = [call.start for call in calls]
        end = start + time + _CUT
        first, last = (
            bisect_right(activities, moment, key=lambda activity: activity.requested)
            for moment in (start, end)
        )
        until, works = float(start), []
        for activity in sorted(activities[first:last], key=lambda activity: activity.start):
            begin, stop = max(activity.start, until), min(activity.end, end)
            if stop <= begin:
                continue
            works.append((begin, stop))
            until = stop
            self.busy += stop - begin
            caller = _caller(calls, starts, activity)
            if caller is None:
                self.unassigned += stop - begin
            else:
                caller.device += stop - begin
        _add_idle(works, [call for call in calls if call.kernel.provider == CPU and not call.inner])

    def times(self, calls: list[_Call]) -> tuple[float, ...]:
        times: list[float] = [0] * len(self.positions)
        for call in calls:
            took = call.time(self.clock) if self.activities is None else call.shared_time()
            times[self.positions[call.kernel]] += took
        return tuple(times)


def _caller(calls: Sequence[_Call], starts: Sequence[int], activity: Activity) -> _Call | None:
    """Return the call that requested an activity of the device: the last to begin, because it is inside the others.

    Times of calls are truncated to microseconds. A request takes longer than one, so a request in one call cannot begin
    before the whole microsecond in which the next call begins.
    """
    at = bisect_right(starts, activity.requested) - 1
    while at >= 0:
        call = calls[at]
        if activity.returned <= call.start + call.host + _CUT:
            return call
        at -= 1
    return None


def _add_idle(works: Sequence[tuple[float, float]], calls: Sequence[_Call]) -> None:
    """Give the idle time of the device to the calls on the processor, which follow each other."""
    at = 0
    for call in calls:
        start, end = float(call.start), float(call.start + call.host)
        while at and works[at - 1][1] > start:
            at -= 1
        while at < len(works) and works[at][1] <= start:
            at += 1
        rest, behind = end - start, at
        while behind < len(works) and works[behind][0] < end:
            rest -= min(works[behind][1], end) - max(works[behind][0], start)
            behind += 1
        call.device = max(rest, 0.0)


def read_profile(path: Path, activities: Sequence[Activity] | None = None) -> Profile:
    """Return the runs of one session, from the first to the last, without runs that are recorded only in part.

    Args:
        path: the file of the profile.
        activities: activities of the device, sorted by the time of the request, in microseconds since the profile
            began. With them, a kernel's time is the device's; one on the processor gets the time in which the device
            is idle.

    Raises:
        TimingError: the file is no profile, or has its events in another order.
    """
    reader = _Reader(activities)
    if activities is not None:
        reader.clock = "device"
    try:
        for event in _events(path):
            if event["cat"] == "Node":
                reader.node(event)
            elif event["cat"] == "Kernel" and activities is None:
                reader.on_device(event)
            elif event["cat"] == "Session" and event["name"] == "model_run":
                reader.end_run(event)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise TimingError(f"the profile that onnxruntime wrote cannot be read: {error!r}") from error
    if reader.positions and not all(reader.runs):
        raise TimingError(
            "the profile that onnxruntime wrote has runs without kernels, as if its events were in another order than "
            "that in which they end; install a version of onnxruntime that is known to work (constraints.txt)"
        )
    return Profile(
        kernels=tuple(reader.positions),
        runs=tuple(map(reader.times, reader.runs)),
        held_nbytes=tuple(reader.most),
        clock=reader.clock,
        unassigned_share=reader.unassigned / reader.busy if reader.busy else 0.0,
    )


def _events(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the events one by one: a profile may have a hundred megabytes, and ten times as much as objects."""
    with path.open(encoding="utf-8", errors="surrogateescape") as lines:
        for line in lines:
            text = line.strip().rstrip(",")
            if text.startswith("{"):
                yield json.loads(text)
