"""Nouns of a timing: the kernels that ran, their times, and the groups that these times belong to."""

from __future__ import annotations

import math

from analyzer.account.ledger import Group, Grouping, Ledger
from analyzer.records import Frozen, field
from analyzer.timing.request import CPU, Clock, Feed, MeasuringOrder, Optimization, Schedule


class Axis(Frozen):
    """One axis of one input, and the reason of its size."""

    input: str
    position: int
    """Index of the axis in the input, from 0."""
    name: str | None
    """Name in the file; None if it has no name or a fixed size."""
    role: str
    size: int
    """Number of elements along the axis."""
    reason: str
    """`file`, `--shape batch`, `--past`, `--input`, `default of sequence`, `past + sequence`, ..."""


class Latency(Frozen):
    """Times of whole runs in milliseconds: `mean`, `median`, percentiles `p90` and `p99`, and `min`, of `runs` runs."""

    mean: float
    median: float
    p90: float
    p99: float
    min: float
    runs: int
    precision: float | None
    """Half the width of the 95 % confidence interval of the median, as a fraction of the median; None with fewer than
    six runs."""
    settled: bool
    """Whether `precision` is as small as requested, also with a fixed number of runs."""


class KernelTime(Frozen):
    """A kernel of the graph that ran, and the groups it belongs to."""

    name: str
    op_type: str
    provider: str
    ms: float
    """Mean milliseconds per profiled run."""
    groups: tuple[str, ...]
    """Groups whose nodes it computes: one, several if nodes of several were fused, none if unknown."""
    decided_by: str
    """Rule that decided, `<evidence>:<rule>`; `none` without one."""
    nodes: int
    """Number of nodes of the file that it computes."""
    is_across: bool = False
    """Whether these nodes are in different groups, so that its time gets a separate line."""


class TimedGroup(Frozen):
    """A group, or several groups with common fused kernels, and its share of a profiled run."""

    group: Group
    """Group with parameters, bytes and nodes; these are 0 for a line of fused kernels."""
    ms: float
    """Mean kernel time per profiled run, in milliseconds."""
    kernels: int
    """Number of kernels in the graph that ran."""
    across: tuple[str, ...] = ()
    """Groups whose nodes are fused in these kernels; () for a group's own line."""
    error_ms: float = 0.0
    """Half the width of the 95 % confidence interval of `ms`, in milliseconds too."""
    macs: int | None = None
    """Multiply-accumulates of the group's nodes; None if unknown, and for a line of fused kernels."""


class Point(Frozen):
    """One measurement. Times are milliseconds, means per run.

    Parts - overlap + ungrouped + unattributed + overhead = profiled.mean.
    """

    feeds: tuple[Feed, ...]
    latency: Latency
    """Runs with profiling off."""
    profiled: Latency
    """Runs with profiling on."""
    parts: tuple[TimedGroup, ...]
    unattributed_ms: float
    """Time of kernels that no rule gives to a group."""
    overhead_ms: float
    """Mean profiled run without its kernels; negative if kernels ran in parallel."""
    kernels: tuple[KernelTime, ...]
    value: int | None = None
    """Length of the swept axis."""
    overlap_ms: float = 0.0
    """Time that groups of the user's own count more than once."""
    ungrouped: TimedGroup | None = None
    """Nodes in none of the user's own groups; None if the groups are keys'."""
    held_nbytes: int | None = None
    """Most bytes in use in the device's memory arena; None if unknown."""
    axes: tuple[Axis, ...] = ()
    """Axes of the inputs, and the reason of each size."""
    macs: int | None = None
    """Multiply-accumulates of a run; None if the work of a node is unknown."""
    clock: Clock = "host"
    """Clock of the kernel times."""

    @property
    def scale(self) -> float:
        """Factor that turns a kernel's time into that of a run without profiling.

        By the host's clock, profiling slows all kernels alike. A device works as fast as without profiling, and waits
        longer: times by its own clock stay unchanged, and only have to fit into the run.
        """
        kernels = self.profiled.mean - self.overhead_ms
        if self.clock == "device":
            return min(1.0, self.latency.mean / kernels) if kernels > 0 else 1.0
        return self.latency.mean / self.profiled.mean if self.profiled.mean else 0.0

    @property
    def device_ms(self) -> float | None:
        """Milliseconds that the device works in a profiled run, by its own clock; None if that was not read."""
        if self.clock == "host":
            return None
        return math.fsum(kernel.ms for kernel in self.kernels if kernel.provider != CPU)


class TimingSettings(Frozen):
    """Settings that the user requested."""

    provider: str
    """Name on the command line: `cpu`."""
    provider_options: tuple[tuple[str, str], ...] = ()
    threads: int | None = None
    """Threads of each operator; None leaves it to onnxruntime."""
    optimization: Optimization = Optimization.ALL
    seed: int = 0
    """Seed of the random inputs."""
    schedule: Schedule = field(default_factory=Schedule)


class Environment(Frozen):
    """Machine and software of a run, with `threads` for each operator, and `cores` that the process could use."""

    device: str
    """Name of the processor or the GPU."""
    providers: tuple[str, ...]
    """Providers that the session has registered, in order."""
    versions: tuple[tuple[str, str], ...]
    """(software, version): onnxruntime, and for a GPU the driver and CUDA."""
    threads: int
    cores: int
    precision: tuple[tuple[str, float], ...]
    """(dtype, share of the parameters stored in it), the largest first."""
    clocks: tuple[tuple[str, float], ...] = ()
    """(clock, MHz) right after the runs."""
    load_ms: float = 0.0
    """Time to create the session, in milliseconds."""
    peak_rss_nbytes: int | None = None
    """Peak memory of the process in bytes; None if unknown."""
    kernel_clock: Clock = "host"
    messages: tuple[str, ...] = ()
    order: MeasuringOrder = "one after the other"
    """Whether plain and profiled runs took turns."""


class Timing(Frozen):
    """Result of `time` for one model with its `parameters` (learned elements) and `file_nbytes` (bytes on disk)."""

    ledger: Ledger | None
    """None in a saved report."""
    path: str
    grouping: Grouping
    settings: TimingSettings
    environment: Environment
    points: tuple[Point, ...]
    """One point, or one for each length of a sweep."""
    axis: str | None = None
    """Swept axis, as the user named it."""
    parameters: int = 0
    file_nbytes: int = 0
    stamp: str | None = None
