"""onnxruntime's profile, and what a GPU did meanwhile -> how long each kernel took in each run."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from analyzer.errors import TimingError
from analyzer.model.operators import Kind, named
from analyzer.records import Frozen, Mutable, field
from analyzer.timing.request import CPU, Clock, Kernel
from analyzer.timing.running.cupti import Deed

# The format is that of Chrome's trace viewer, an event on each line, in the order in which events end. (onnxruntime,
# core/common/profiler.cc, core/framework/sequential_executor.cc, core/common/gpu_profiler_common.h)


_KERNEL_TIME = "_kernel_time"
"""What follows a node's name in the event of its kernel."""

_HOLDERS = named(Kind.CONTROL)
"""Operators whose kernels run graphs: the kernels in these have events of their own, within the operator's time."""

_CUT = 2.0
"""Microseconds by which an event may end later than it says: start and length are cut off to whole ones each."""


class Profile(Frozen):
    """What ran, run by run, in the order of the runs."""

    kernels: tuple[Kernel, ...]
    """Those of the main graph, in the order in which they first ran."""
    runs: tuple[tuple[float, ...], ...]
    """For each run the time of each of `kernels` in microseconds; 0 for one that did not run."""
    held_nbytes: tuple[int | None, ...]
    """For each run the most that a device's memory arena had in use; None where the profile does not say."""
    clock: Clock = "host"
    """`device` where there are the device's own times of what each kernel did there."""
    strays: float = 0.0
    """The share of the device's time in runs that no kernel asked for; 0 by the host's clock."""


class _Call(Mutable, eq=False):
    kernel: Kernel
    start: int
    host: int
    device: float = 0
    """What the device says that it took there, in kernels within it too."""
    inner: tuple[_Call, ...] = ()
    """Calls in the graphs that it runs."""

    def time(self, clock: Clock) -> float:
        """By a device's clock, what it took there; of a kernel on the processor, what the host says."""
        return self.host if clock == "host" or self.kernel.provider == CPU else self.device

    def shared_time(self) -> float:
        """What `_Reader.share_out` gave to it and to what it runs."""
        return self.device + sum(call.shared_time() for call in self.inner)


class _Reader(Mutable):
    """Events of the run that is being read, and what is known of the runs before it."""

    deeds: Sequence[Deed] | None = None
    """What the device did, by when it was asked to; None where nobody has told."""
    positions: dict[Kernel, int] = field(default_factory=dict)
    runs: list[list[_Call]] = field(default_factory=list)
    calls: list[_Call] = field(default_factory=list)
    all_calls: list[_Call] = field(default_factory=list)
    """Those of the run, with the ones that others hold."""
    held: dict[str, int] = field(default_factory=dict)
    """By provider, the most that its device's arena had in use."""
    most: list[int | None] = field(default_factory=list)
    """Per run that of the device, or of the processor where there is no other."""
    clock: Clock = "host"
    busy: float = 0.0
    astray: float = 0.0
    """Microseconds of all runs in which the device worked, and those of what no kernel had asked for."""

    def node(self, event: dict[str, Any]) -> None:
        arguments = event.get("args", {})
        name, op_type = event["name"], str(arguments.get("op_name", ""))
        if not name.endswith(_KERNEL_TIME):
            return  # a wait for a device before a kernel or after it
        start, time = int(event["ts"]), int(event["dur"])
        device, inner = 0.0, []
        if op_type in _HOLDERS:  # what ran within it has ended, and was recorded, before it
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
        if self.deeds is not None:
            self.all_calls.append(self.calls[-1])
        peak = arguments.get("mem_in_use_peak")
        if peak is not None:
            self.held[kernel.provider] = max(self.held.get(kernel.provider, 0), int(peak))

    def on_device(self, event: dict[str, Any]) -> None:
        """What a device did for the node whose event came last; else for none, as copies of inputs are."""
        parent = event.get("args", {}).get("parent_name")
        if self.calls and parent == self.calls[-1].kernel.name + _KERNEL_TIME:
            self.calls[-1].device += int(event["dur"])
            self.clock = "device"

    def end_run(self, event: dict[str, Any]) -> None:
        if self.deeds is not None:
            self.share_out(self.deeds, int(event["ts"]), int(event["dur"]))
        for call in self.calls:
            self.positions.setdefault(call.kernel, len(self.positions))
        self.runs.append(self.calls)
        on_device = [nbytes for provider, nbytes in self.held.items() if provider != CPU]
        self.most.append(max(on_device, default=self.held.get(CPU)))
        self.calls, self.all_calls, self.held = [], [], {}

    def share_out(self, deeds: Sequence[Deed], start: int, time: int) -> None:
        """Give each moment of a run to one call at most, so that their times sum up to no more than the run's.

        It is the call's for which the device works; if the device rests, the one that runs on the processor. What is
        left, when the device waits to be told and nothing else runs, is no call's.
        """
        calls = sorted(self.all_calls, key=lambda call: call.start)
        for call in calls:
            call.device = 0.0
        starts = [call.start for call in calls]
        end = start + time + _CUT
        first, last = (bisect_right(deeds, moment, key=lambda deed: deed.asked) for moment in (start, end))
        until, works = float(start), []
        for deed in sorted(deeds[first:last], key=lambda deed: deed.start):
            begin, stop = max(deed.start, until), min(deed.end, end)
            if stop <= begin:
                continue
            works.append((begin, stop))
            until = stop
            self.busy += stop - begin
            caller = _caller(calls, starts, deed)
            if caller is None:
                self.astray += stop - begin
            else:
                caller.device += stop - begin
        _add_idle(works, [call for call in calls if call.kernel.provider == CPU and not call.inner])

    def times(self, calls: list[_Call]) -> tuple[float, ...]:
        times: list[float] = [0] * len(self.positions)
        for call in calls:
            took = call.time(self.clock) if self.deeds is None else call.shared_time()
            times[self.positions[call.kernel]] += took
        return tuple(times)


def _caller(calls: Sequence[_Call], starts: Sequence[int], deed: Deed) -> _Call | None:
    """The call in whose time the device was asked for something: the last to begin, as it is within the others.

    Times of calls are cut off to microseconds. Telling a device takes more than one, so that what is asked within a
    call cannot have begun before the whole microsecond in which the next one does.
    """
    at = bisect_right(starts, deed.asked) - 1
    while at >= 0:
        call = calls[at]
        if deed.told <= call.start + call.host + _CUT:
            return call
        at -= 1
    return None


def _add_idle(works: Sequence[tuple[float, float]], calls: Sequence[_Call]) -> None:
    """Give calls on the processor, which follow each other, the time in which the device did nothing."""
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


def read_profile(path: Path, deeds: Sequence[Deed] | None = None) -> Profile:
    """The runs of one session, the first to the last. A run that is not recorded to its end is left out.

    Args:
        deeds: what the device did meanwhile, by when it was asked to, in microseconds since the profile began. With
            it a kernel's time is the device's, and that of one on the processor what the device did not work in.

    Raises:
        TimingError: the file is no profile, or has its events in another order.
    """
    reader = _Reader(deeds)
    if deeds is not None:
        reader.clock = "device"
    try:
        for event in _events(path):
            if event["cat"] == "Node":
                reader.node(event)
            elif event["cat"] == "Kernel" and deeds is None:
                reader.on_device(event)
            elif event["cat"] == "Session" and event["name"] == "model_run":
                reader.end_run(event)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise TimingError(f"the profile that onnxruntime wrote cannot be read: {error!r}") from error
    if reader.positions and not all(reader.runs):
        raise TimingError(
            "the profile that onnxruntime wrote has runs without kernels, as if it were in another order than that in "
            "which they end; install a version of onnxruntime that is known to work (constraints.txt)"
        )
    return Profile(
        kernels=tuple(reader.positions),
        runs=tuple(map(reader.times, reader.runs)),
        held_nbytes=tuple(reader.most),
        clock=reader.clock,
        strays=reader.astray / reader.busy if reader.busy else 0.0,
    )


def _events(path: Path) -> Iterator[dict[str, Any]]:
    """The events one by one: a profile may have a hundred megabytes, and as objects it would take ten times that."""
    with path.open(encoding="utf-8", errors="surrogateescape") as lines:
        for line in lines:
            text = line.strip().rstrip(",")
            if text.startswith("{"):
                yield json.loads(text)
