"""The nouns of a timing: what ran where, how long it took, and to which group that time belongs."""

from __future__ import annotations

import math

from analyzer.account.ledger import Group, Grouping, Ledger
from analyzer.records import Frozen, field
from analyzer.timing.request import CPU, Clock, Feed, MeasuringOrder, Optimization, Schedule


class Axis(Frozen):
    """One axis of one input, and why it is as long as it is."""

    input: str
    position: int
    """Which axis of the input, from 0."""
    name: str | None
    """As the file calls it; None where it has no name or a fixed size."""
    role: str
    size: int
    """How many elements long it is."""
    reason: str
    """`file`, `--shape batch`, `--past`, `--input`, `default of sequence`, `past + sequence`, ..."""


class Latency(Frozen):
    """Whole runs: `mean`, `median`, percentiles `p90` and `p99`, and `min`, in milliseconds, of so many `runs`."""

    mean: float
    median: float
    p90: float
    p99: float
    min: float
    runs: int
    precision: float
    """Half the width of the 95 % confidence interval of the median, as a fraction of the median."""
    settled: bool
    """Whether that is as small as was asked for; with a fixed number of runs too."""


class KernelTime(Frozen):
    """A kernel of the graph that ran, and whose it is."""

    name: str
    op_type: str
    provider: str
    ms: float
    """Mean milliseconds per profiled run."""
    groups: tuple[str, ...]
    """Names of the groups whose nodes it computes: one, several where it was fused across them, none where unknown."""
    decided_by: str
    """The rule that says so, `<evidence>:<rule>`; `none` where none does."""
    nodes: int
    """How many nodes of the file it stands for."""
    is_across: bool = False
    """Whether these are in different groups, so that its time is on a line of its own."""


class TimedGroup(Frozen):
    """A group, or several that kernels were fused across, and its share of a profiled run."""

    group: Group
    """With parameters, bytes and nodes, which are 0 for a line of fused kernels."""
    ms: float
    """Mean kernel time per profiled run, in milliseconds."""
    kernels: int
    """How many kernels of the graph that ran."""
    across: tuple[str, ...] = ()
    """The groups that these kernels were fused across; () for a group's own line."""
    error_ms: float = 0.0
    """Half the width of the 95 % confidence interval of `ms`, in milliseconds too."""
    macs: int | None = None
    """Multiply-accumulates of the group's nodes; None where they are not known, and for a line of fused kernels."""


class Point(Frozen):
    """One measurement. Times are milliseconds, means per run.

    Parts - overlap + ungrouped + unattributed + overhead = profiled.mean.
    """

    feeds: tuple[Feed, ...]
    latency: Latency
    """With profiling off."""
    profiled: Latency
    """With profiling on."""
    parts: tuple[TimedGroup, ...]
    unattributed_ms: float
    """Kernels that no rule gives to a group."""
    overhead_ms: float
    """The mean profiled run without its kernels; negative where kernels ran side by side."""
    kernels: tuple[KernelTime, ...]
    value: int | None = None
    """Of the axis that is swept."""
    overlap_ms: float = 0.0
    """What groups of the user's own count more than once."""
    ungrouped: TimedGroup | None = None
    """What none of the user's own groups has; None where groups are keys'."""
    held_nbytes: int | None = None
    """The most bytes that the device's memory arena had in use; None where nothing says it."""
    axes: tuple[Axis, ...] = ()
    """Of the inputs, and why each is as long as it is."""
    macs: int | None = None
    """Multiply-accumulates of a run; None where the work of a node is not known."""
    clock: Clock = "host"
    """By which the times of kernels are."""

    @property
    def scale(self) -> float:
        """What a kernel's time is multiplied with to be one of a run without profiling.

        By the host's clock profiling slows all alike. A device works as fast as without, and waits longer, so that by
        its own clock times stay what they are; they only have to fit into the run.
        """
        kernels = self.profiled.mean - self.overhead_ms
        if self.clock == "device":
            return min(1.0, self.latency.mean / kernels) if kernels > 0 else 1.0
        return self.latency.mean / self.profiled.mean if self.profiled.mean else 0.0

    @property
    def device_ms(self) -> float | None:
        """How long the device works in a profiled run, by its own clock; None where that was not read."""
        if self.clock == "host":
            return None
        return math.fsum(kernel.ms for kernel in self.kernels if kernel.provider != CPU)


class TimingSettings(Frozen):
    """What was asked for."""

    provider: str
    """As it is named on the command line: `cpu`."""
    provider_options: tuple[tuple[str, str], ...] = ()
    threads: int | None = None
    """Of each operator; None leaves it to onnxruntime."""
    optimization: Optimization = Optimization.ALL
    seed: int = 0
    """Of the random inputs."""
    schedule: Schedule = field(default_factory=Schedule)


class Environment(Frozen):
    """Where it ran, with how many `threads` for an operator, of how many `cores` that the process could use."""

    device: str
    """The name of the processor or the GPU."""
    providers: tuple[str, ...]
    """What the session has registered, in order."""
    versions: tuple[tuple[str, str], ...]
    """(software, version): onnxruntime, and for a GPU the driver and CUDA."""
    threads: int
    cores: int
    precision: tuple[tuple[str, float], ...]
    """(dtype, share of the parameters stored in it), the largest first."""
    clocks: tuple[tuple[str, float], ...] = ()
    """(clock, MHz) as it was after the runs."""
    load_ms: float = 0.0
    """What making the session took, in milliseconds."""
    peak_rss_nbytes: int | None = None
    """The most bytes of memory that the process had; None where it is not known."""
    kernel_clock: Clock = "host"
    messages: tuple[str, ...] = ()
    order: MeasuringOrder = "one after the other"
    """Whether plain and profiled runs took turns."""


class Timing(Frozen):
    """`time`: the answer for one model of so many `parameters` (learned elements) and `file_nbytes` (bytes on disk)."""

    ledger: Ledger | None
    """None in a saved report."""
    path: str
    grouping: Grouping
    settings: TimingSettings
    environment: Environment
    points: tuple[Point, ...]
    """One, or one for each length of a sweep."""
    axis: str | None = None
    """What is swept, as it was named."""
    parameters: int = 0
    file_nbytes: int = 0
    stamp: str | None = None
