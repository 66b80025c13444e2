"""The documents of `time`: of one measurement, and of a sweep."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from analyzer.account.ledger import Match
from analyzer.documents.base import (
    Bytes,
    Count,
    Elements,
    Milliseconds,
    NodeKeys,
    Nodes,
    Parts,
    Positive,
    Record,
    Runs,
    Share,
    SignedMilliseconds,
    Stamped,
    Tensors,
    Text,
)
from analyzer.timing.request import Clock, Fill, MeasuringOrder, Optimization
from analyzer.timing.rows import Order

Macs = Annotated[int, Meta(ge=0, extra={"unit": "multiply-accumulates"})]
Rate = Annotated[float, Meta(ge=0, extra={"unit": "multiply-accumulates a second"})]


class TimeDocument(Stamped, frozen=True, kw_only=True):
    """A report of `onnxledger time --format json`."""

    command: Literal["time"] = "time"
    """The command that wrote the document."""
    model: TimeModel
    """The model that was run."""
    provider: Text
    """The execution provider that was asked for, as it is named on the command line."""
    device: Text
    """The name of the processor or GPU."""
    settings: Settings
    """What was asked for."""
    environment: Environment
    """Where it ran."""
    by: NodeKeys
    """What the groups are made by: a key that nodes have, or several with commas between them; `group` are the user's
    own."""
    depth: Parts | None
    """Leading parts of a scope, or of a block, that name a group; null where `by` has neither."""
    match: Match | None
    """Which of the user's groups that match a tensor or a node have it; null where the groups are not the user's."""
    groups_from: Text | None
    """Where the user's groups come from: `--group`, a config, or a preset; null where they are not the user's."""
    inputs: list[InputFeed]
    """What the model was fed, in its own order."""
    axes: list[AxisSize]
    """How long each axis of the inputs is, and why."""
    runs: Runs
    """Runs without profiling."""
    latency_ms: Latency
    """Whole runs without profiling."""
    profiled_latency_ms: Latency
    """Whole runs with profiling."""
    profiling_ms: SignedMilliseconds
    """What profiling adds to the mean run."""
    scale: Positive
    """What makes `ms` `scaled_ms`: `latency_ms.mean` / `profiled_latency_ms.mean`; by a device's clock, which profiling
    does not slow down, 1, or less where kernels would not fit into the run."""
    device_ms: Milliseconds | UnsetType = UNSET
    """How long the device worked in the mean profiled run; only by its own clock."""
    groups: list[TimeGroup]
    """The groups, in natural order or in the user's; then lines of kernels that were fused across groups."""
    overlap_ms: Milliseconds
    """What the user's groups count more than once; 0 for others."""
    ungrouped_ms: Milliseconds
    """What no group of the user's has; 0 for others."""
    group_balance: TimeGroupBalance
    """The same in full."""
    unattributed_ms: Milliseconds
    """Kernels that no rule gives to a group."""
    overhead_ms: SignedMilliseconds
    """The mean profiled run without its kernels; negative where kernels ran side by side."""
    held_bytes: Bytes | None
    """The most that the device's memory arena had in use; null where it is not known."""
    macs: Macs | UnsetType | None = UNSET
    """Multiply-accumulates of a run; null where the work of a node is not known."""
    macs_per_second: Rate | UnsetType | None = UNSET
    """`macs` by the mean of `latency_ms`."""
    fallback: list[Elsewhere]
    """What ran on another provider than the one that was asked for, the slowest first."""
    copies: list[Elsewhere]
    """Copies between devices, the slowest first."""
    kernels: list[Kernel]
    """The kernels of the graph that ran, in their order."""


class TimeModel(Record, frozen=True, kw_only=True):
    """The model that was run."""

    path: Text
    """The model, or the one model of a folder, as it was named."""
    parameters: Elements
    """Logical learned elements, as `inspect` counts them."""
    file_bytes: Bytes
    """Sizes of all its files on disk."""


class Settings(Record, frozen=True, kw_only=True):
    """What was asked for."""

    provider_options: dict[str, str]
    """Options of the provider, as they were given."""
    threads: Annotated[int, Meta(ge=1, extra={"unit": "threads"})] | None
    """What `--threads` asked for; null left it to onnxruntime."""
    optimization: Optimization
    """How far onnxruntime optimized the graph: `none`, `basic`, `extended`, `layout` or `all`."""
    seed: Count
    """Of the random inputs."""
    runs: Annotated[int, Meta(ge=1, extra={"unit": "runs"})] | None
    """What `--runs` asked for; null stands for until the median has settled."""
    warmup: Runs
    """Runs before each measurement whose times are thrown away."""
    fewest: Runs
    """The least number of runs."""
    most: Runs
    """The largest number of runs."""
    seconds: Annotated[float, Meta(ge=0, extra={"unit": "seconds"})]
    """What one measurement may take, once it has the least number of runs."""
    precision: Share
    """How small `precision` of the median has to be for it to be settled."""


class Environment(Record, frozen=True, kw_only=True):
    """Where it ran."""

    providers: list[Text]
    """The execution providers that the session had, as onnxruntime calls them, in order."""
    versions: dict[str, str]
    """What ran: onnxruntime, and for a GPU its driver and CUDA."""
    threads: Annotated[int, Meta(ge=0, extra={"unit": "threads"})]
    """How many threads an operator had."""
    cores: Annotated[int, Meta(ge=0, extra={"unit": "cores"})]
    """How many cores the process could use."""
    precision: dict[str, Share]
    """The parameters that are stored in each dtype."""
    clocks: dict[str, Annotated[float, Meta(ge=0, extra={"unit": "MHz"})]]
    """Clocks of the device after the runs."""
    load_ms: Milliseconds
    """What making the session took."""
    peak_rss_bytes: Bytes | None
    """The most memory that the process had; null where it is not known."""
    messages: list[str]
    """What onnxruntime said of where nodes run."""
    kernel_clock: Clock
    """Whose clock the times of kernels are by: the host's, around calls that wait for a device, or the device's own."""
    order: MeasuringOrder
    """Whether plain and profiled runs took turns, so that other load met both alike."""


class InputFeed(Record, frozen=True, kw_only=True):
    """What the model was fed, in its own order."""

    name: str
    """The input's name."""
    dtype: Text
    """Of its elements."""
    shape: list[Count]
    """Its dimensions."""
    fill: Fill
    """How its elements are made: `integers` and `uniform` are random from `low` to `high`; `constant` is all `low`;
    `positions` count from `low` along the last axis; `text` is a string; `file` is the array of `--input`."""
    low: int | float
    """The least element."""
    high: int | float
    """The largest; of `integers` it is among them."""
    sequence: bool | UnsetType = UNSET
    """True where the input is a sequence, which is fed one such tensor; absent elsewhere."""


class AxisSize(Record, frozen=True, kw_only=True):
    """How long each axis of the inputs is, and why."""

    input: str
    """The input that it belongs to."""
    position: Count
    """Which of its axes, from 0."""
    name: str | None
    """As the file calls it; null where it has no name."""
    role: str
    """What it is taken for, such as `batch` or `sequence`."""
    size: Elements
    """How long it is."""
    decided_by: Text
    """What decided that: `file`, `--shape batch`, `--past`, `--input`, a default."""


class Latency(Record, frozen=True, kw_only=True):
    """Whole runs without profiling."""

    mean: Milliseconds
    """Arithmetic mean."""
    median: Milliseconds
    """Half of the runs are faster."""
    p90: Milliseconds
    """Nine of ten runs are faster."""
    p99: Milliseconds
    """99 of 100 runs are faster."""
    min: Milliseconds
    """The fastest run."""
    runs: Runs
    """How many were measured."""
    precision: Share
    """Half the width of the 95 % confidence interval of the median, as a fraction of it."""
    settled: bool
    """Whether that is at most `settings.precision`."""


class TimeGroup(Record, frozen=True, kw_only=True):
    """The groups, in natural order or in the user's; then lines of kernels that were fused across groups."""

    group: str
    """The group's name; `a + b` for kernels that were fused across groups; empty in a `group_balance` without groups of
    the user's."""
    keys: list[str]
    """The parts of its name, one for each key; of fused kernels the name alone."""
    across: list[str]
    """The groups that its kernels were fused across; empty for a group's own line."""
    ms: SignedMilliseconds
    """Mean kernel time per profiled run."""
    share: Annotated[float, Meta(extra={"unit": "fraction of 1"})] | None
    """`ms` as a fraction of `profiled_latency_ms.mean`."""
    scaled_ms: SignedMilliseconds
    """`ms` times `scale`: its part of the mean run without profiling, if that slows all kernels alike, or none."""
    error_ms: Milliseconds
    """Half the width of the 95 % confidence interval of `ms`."""
    kernels: Annotated[int, Meta(ge=0, extra={"unit": "kernels"})]
    """Kernels of the graph that ran."""
    parameters: Elements
    """Logical learned elements; a line of fused kernels has none."""
    parameter_share: Share | None
    """`parameters` as a fraction of all."""
    bytes: Bytes
    """Encoded payload."""
    byte_share: Share | None
    """`bytes` as a fraction of all payload."""
    stored_elements: Elements
    """Elements as stored."""
    tensors: Tensors
    """Stored tensors."""
    nodes: Nodes
    """Nodes of the file."""
    macs: Macs | UnsetType | None = UNSET
    """Multiply-accumulates of its nodes; null where those of one are not known, and on a line of fused kernels."""
    macs_per_second: Rate | UnsetType | None = UNSET
    """`macs` by `scaled_ms`: the rate that was achieved; null where kernels that others share do some of them."""


class TimeGroupBalance(Record, frozen=True, kw_only=True):
    """The same in full."""

    overlap: TimeGroup
    """What the user's groups count more than once."""
    ungrouped: TimeGroup
    """What no group of the user's has."""


class Elsewhere(Record, frozen=True, kw_only=True):
    """What ran on another provider than the one that was asked for, the slowest first."""

    provider: str
    """Where they ran, as it is named on the command line."""
    op_type: str
    """Their operator."""
    kernels: Annotated[int, Meta(ge=0, extra={"unit": "kernels"})]
    """How many."""
    ms: Milliseconds
    """Their mean time per profiled run, together."""


class Kernel(Record, frozen=True, kw_only=True):
    """The kernels of the graph that ran, in their order."""

    name: str
    """The node's name in the graph that ran."""
    op_type: str
    """Its operator there."""
    provider: str
    """What ran it, as onnxruntime calls it."""
    ms: Milliseconds
    """Mean per profiled run."""
    groups: list[str]
    """The groups whose nodes it computes; none where that is unknown."""
    decided_by: Text
    """The rule that says so; `none` where none does."""
    nodes: Nodes
    """How many nodes of the file it stands for."""
    across: bool
    """Whether its nodes are in different groups, so that its time is on a line of its own."""


class SweepDocument(Stamped, frozen=True, kw_only=True):
    """A report of `onnxledger time --format json` with a sweep."""

    command: Literal["time"] = "time"
    """The command that wrote the document."""
    model: TimeModel
    """The model that was run."""
    provider: Text
    """The execution provider that was asked for, as it is named on the command line."""
    device: Text
    """The name of the processor or GPU."""
    settings: Settings
    """What was asked for."""
    environment: Environment
    """Where it ran."""
    by: NodeKeys
    """What the groups are made by: a key that nodes have, or several with commas between them; `group` are the user's
    own."""
    depth: Parts | None
    """Leading parts of a scope, or of a block, that name a group; null where `by` has neither."""
    match: Match | None
    """Which of the user's groups that match a tensor or a node have it; null where the groups are not the user's."""
    groups_from: Text | None
    """Where the user's groups come from: `--group`, a config, or a preset; null where they are not the user's."""
    axis: Text
    """The axis that is swept, as it was named."""
    points: Annotated[list[Point], Meta(min_length=1)]
    """A measurement for each length, in the order in which they were asked for."""
    latency_growth: Growth | None
    """How `latency_ms.mean` grows; null with less than 3 lengths."""
    growth: list[GroupGrowth]
    """How each group grows."""


class Point(Record, frozen=True, kw_only=True):
    """A measurement for each length, in the order in which they were asked for."""

    value: Elements
    """The length of the axis."""
    inputs: list[InputFeed]
    """What the model was fed, in its own order."""
    axes: list[AxisSize]
    """How long each axis of the inputs is, and why."""
    runs: Runs
    """Runs without profiling."""
    latency_ms: Latency
    """Whole runs without profiling."""
    profiled_latency_ms: Latency
    """Whole runs with profiling."""
    profiling_ms: SignedMilliseconds
    """What profiling adds to the mean run."""
    scale: Positive
    """What makes `ms` `scaled_ms`: `latency_ms.mean` / `profiled_latency_ms.mean`; by a device's clock, which profiling
    does not slow down, 1, or less where kernels would not fit into the run."""
    device_ms: Milliseconds | UnsetType = UNSET
    """How long the device worked in the mean profiled run; only by its own clock."""
    groups: list[TimeGroup]
    """The groups, in natural order or in the user's; then lines of kernels that were fused across groups."""
    overlap_ms: Milliseconds
    """What the user's groups count more than once; 0 for others."""
    ungrouped_ms: Milliseconds
    """What no group of the user's has; 0 for others."""
    group_balance: TimeGroupBalance
    """The same in full."""
    unattributed_ms: Milliseconds
    """Kernels that no rule gives to a group."""
    overhead_ms: SignedMilliseconds
    """The mean profiled run without its kernels; negative where kernels ran side by side."""
    held_bytes: Bytes | None
    """The most that the device's memory arena had in use; null where it is not known."""
    macs: Macs | UnsetType | None = UNSET
    """Multiply-accumulates of a run; null where the work of a node is not known."""
    macs_per_second: Rate | UnsetType | None = UNSET
    """`macs` by the mean of `latency_ms`."""
    fallback: list[Elsewhere]
    """What ran on another provider than the one that was asked for, the slowest first."""
    copies: list[Elsewhere]
    """Copies between devices, the slowest first."""
    kernels: list[Kernel]
    """The kernels of the graph that ran, in their order."""


class Growth(Record, frozen=True, kw_only=True):
    """How `latency_ms.mean` grows; null with less than 3 lengths."""

    order: Order
    """`constant`, `linear` or `quadratic` in the swept axis."""
    constant: Milliseconds
    """The term that does not grow."""
    linear: Annotated[float, Meta(ge=0, extra={"unit": "ms per 1"})]
    """Times the length; 0 in a constant."""
    quadratic: Annotated[float, Meta(ge=0, extra={"unit": "ms per 1 squared"})]
    """Times the length squared; 0 but in `quadratic`."""
    share: Share
    """What the term of the highest order takes of the fitted time at the largest length."""
    r2: Annotated[float, Meta(le=1, extra={"unit": "fraction of 1"})] | None
    """The part of the variance that the fit explains, times weighted by their inverse squares; null of a constant."""
    points: Annotated[int, Meta(ge=0, extra={"unit": "lengths"})]
    """How many lengths it is fitted to."""


class GroupGrowth(Record, frozen=True, kw_only=True):
    """How each group grows."""

    group: str
    """As in the `groups` of the points."""
    across: list[str]
    """As there."""
    growth: Growth | None
    """How its `ms` grows; null with less than 3 lengths."""
