"""The profile that onnxruntime writes (JSON) -> the kernels of a run, and how long each of them took in each run.

The format is that of Chrome's trace viewer, an event on each line, in the order in which events end. (onnxruntime,
core/common/profiler.cc, core/framework/sequential_executor.cc, core/common/gpu_profiler_common.h)
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from analyzer.errors import TimingError
from analyzer.model.operators import Kind, named
from analyzer.timing.request import Clock, Kernel
from analyzer.timing.running.providers import CPU

__all__ = ["Profile", "read_profile"]


_KERNEL_TIME = "_kernel_time"
"""What follows a node's name in the event of its kernel."""

_HOLDERS = named(Kind.CONTROL)
"""Operators whose kernels run graphs: the kernels in these have events of their own, within the operator's time."""


@dataclass(frozen=True, slots=True)
class Profile:
    """What ran, run by run, in the order of the runs."""

    kernels: tuple[Kernel, ...]
    """Those of the main graph, in the order in which they first ran."""
    runs: tuple[tuple[int, ...], ...]
    """For each run the time of each of `kernels` in microseconds; 0 for one that did not run."""
    held_nbytes: tuple[int | None, ...]
    """For each run the most that a device's memory arena had in use; None where the profile does not say."""
    clock: Clock = "host"
    """`device` where the profile has the device's own times of what each kernel did there."""


@dataclass(slots=True)
class _Call:
    kernel: Kernel
    start: int
    host: int
    device: int = 0
    """What the device says that it took there, in kernels within it too."""

    def time(self, clock: Clock) -> int:
        """By a device's clock, what it took there; of a kernel on the processor, what the host says."""
        return self.host if clock == "host" or self.kernel.provider == CPU else self.device


@dataclass(slots=True)
class _Reader:
    """Events of the run that is being read, and what is known of the runs before it."""

    positions: dict[Kernel, int] = field(default_factory=dict)
    runs: list[list[_Call]] = field(default_factory=list)
    calls: list[_Call] = field(default_factory=list)
    held: dict[str, int] = field(default_factory=dict)
    """By provider, the most that its device's arena had in use."""
    most: list[int | None] = field(default_factory=list)
    """Per run that of the device, or of the processor where there is no other."""
    clock: Clock = "host"

    def node(self, event: dict[str, Any]) -> None:
        arguments = event.get("args", {})
        name, op_type = event["name"], str(arguments.get("op_name", ""))
        if not name.endswith(_KERNEL_TIME):
            return  # a wait for a device before a kernel or after it
        start, time = int(event["ts"]), int(event["dur"])
        device = 0
        if op_type in _HOLDERS:  # what ran within it has ended, and was recorded, before it
            while self.calls and self.calls[-1].start >= start:
                device += self.calls.pop().device
        index = arguments.get("node_index")
        kernel = Kernel(
            name=name.removesuffix(_KERNEL_TIME),
            op_type=op_type,
            provider=str(arguments.get("provider", "")),
            index=None if index is None else int(index),
        )
        self.calls.append(_Call(kernel, start, time, device))
        peak = arguments.get("mem_in_use_peak")
        if peak is not None:
            self.held[kernel.provider] = max(self.held.get(kernel.provider, 0), int(peak))

    def on_device(self, event: dict[str, Any]) -> None:
        """What a device did for the node whose event came last; else for none, as copies of inputs are."""
        parent = event.get("args", {}).get("parent_name")
        if self.calls and parent == self.calls[-1].kernel.name + _KERNEL_TIME:
            self.calls[-1].device += int(event["dur"])
            self.clock = "device"

    def end_run(self) -> None:
        for call in self.calls:
            self.positions.setdefault(call.kernel, len(self.positions))
        self.runs.append(self.calls)
        on_device = [nbytes for provider, nbytes in self.held.items() if provider != CPU]
        self.most.append(max(on_device, default=self.held.get(CPU)))
        self.calls, self.held = [], {}

    def times(self, calls: list[_Call]) -> tuple[int, ...]:
        times = [0] * len(self.positions)
        for call in calls:
            times[self.positions[call.kernel]] += call.time(self.clock)
        return tuple(times)


def read_profile(path: Path) -> Profile:
    """The runs of one session, the first to the last. A run that is not recorded to its end is left out.

    Raises:
        TimingError: the file is no profile, or has its events in another order.
    """
    reader = _Reader()
    try:
        for event in _events(path):
            if event["cat"] == "Node":
                reader.node(event)
            elif event["cat"] == "Kernel":
                reader.on_device(event)
            elif event["cat"] == "Session" and event["name"] == "model_run":
                reader.end_run()
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
    )


def _events(path: Path) -> Iterator[dict[str, Any]]:
    """The events one by one: a profile may have a hundred megabytes, and as objects it would take ten times that."""
    with path.open(encoding="utf-8", errors="surrogateescape") as lines:
        for line in lines:
            text = line.strip().rstrip(",")
            if text.startswith("{"):
                yield json.loads(text)
