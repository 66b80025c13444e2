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
    """Settings of the measurement."""
    environment: Environment
    """Machine and software of the measurement."""
    by: NodeKeys
    """Keys by which groups are formed: a key that nodes have, or several separated by commas; `group` for the user's
    own groups."""
    depth: Parts | None
    """Number of leading parts of a scope or block that name a group; null if `by` has neither."""
    match: Match | None
    """Assignment of a tensor or node that several of the user's groups match: to `all` of them, or to the `first`; null
    if the groups are not the user's."""
    groups_from: Text | None
    """Source of the user's groups: `--group`, a config or a preset; null if the groups are not the user's."""
    inputs: list[InputFeed]
    """Inputs that the model was fed, in its own order."""
    axes: list[AxisSize]
    """Length of each axis of the inputs, and its source."""
    runs: Runs
    """Number of runs without profiling."""
    latency_ms: Latency
    """Latency of whole runs without profiling."""
    profiled_latency_ms: Latency
    """Latency of whole runs with profiling."""
    profiling_ms: SignedMilliseconds
    """Time that profiling adds to the mean run."""
    scale: Positive
    """Factor from `ms` to `scaled_ms`: `latency_ms.mean` / `profiled_latency_ms.mean`; with a device's clock, which
    profiling does not slow down, 1, or less if the kernels would not fit into the run."""
    device_ms: Milliseconds | UnsetType = UNSET
    """Time that the device worked in the mean profiled run; only with the device's own clock."""
    groups: list[TimeGroup]
    """Groups, in natural order or in the user's; then rows of kernels that were fused across groups."""
    overlap_ms: Milliseconds
    """Time that the user's groups count more than once; 0 for other groups."""
    ungrouped_ms: Milliseconds
    """Time in none of the user's groups; 0 for other groups."""
    group_balance: TimeGroupBalance
    """Overlap and ungrouped time as full rows."""
    unattributed_ms: Milliseconds
    """Time of kernels that no rule assigns to a group."""
    overhead_ms: SignedMilliseconds
    """Time of the mean profiled run outside its kernels; negative if kernels ran side by side."""
    held_bytes: Bytes | None
    """Largest number of bytes in use in the device's memory arena; null if unknown."""
    macs: Macs | UnsetType | None = UNSET
    """Multiply-accumulates of a run; null if the work of a node is unknown."""
    macs_per_second: Rate | UnsetType | None = UNSET
    """`macs` divided by the mean of `latency_ms`."""
    fallback: list[Elsewhere]
    """Kernels that ran on another provider than the requested one, slowest first."""
    copies: list[Elsewhere]
    """Copies between devices, slowest first."""
    kernels: list[Kernel]
    """Kernels of the graph that ran, in their order."""


class TimeModel(Record, frozen=True, kw_only=True):
    """The model that was run."""

    path: Text
    """Path of the model, or of the one model in a folder, as given."""
    parameters: Elements
    """Logical learned elements, as `inspect` counts them."""
    file_bytes: Bytes
    """Sizes of all files of the model on disk."""


class Settings(Record, frozen=True, kw_only=True):
    """Settings of the measurement."""

    provider_options: dict[str, str]
    """Options of the provider, as given."""
    threads: Annotated[int, Meta(ge=1, extra={"unit": "threads"})] | None
    """Number of threads given by `--threads`; null if it was left to onnxruntime."""
    optimization: Optimization
    """Level of onnxruntime's optimization of the graph: `none`, `basic`, `extended`, `layout` or `all`."""
    seed: Count
    """Seed of the random inputs."""
    runs: Annotated[int, Meta(ge=1, extra={"unit": "runs"})] | None
    """Number of runs given by `--runs`; null to run until the median has settled."""
    warmup: Runs
    """Number of runs before each measurement whose times are discarded."""
    fewest: Runs
    """Least number of runs."""
    most: Runs
    """The largest number of runs."""
    seconds: Annotated[float, Meta(ge=0, extra={"unit": "seconds"})]
    """Time limit of one measurement, once it has the least number of runs."""
    precision: Share
    """Largest `precision` of the median at which it counts as settled."""


class Environment(Record, frozen=True, kw_only=True):
    """Machine and software of the measurement."""

    providers: list[Text]
    """Execution providers of the session, as onnxruntime names them, in order."""
    versions: dict[str, str]
    """Versions of the software: onnxruntime, and for a GPU its driver and CUDA."""
    threads: Annotated[int, Meta(ge=0, extra={"unit": "threads"})]
    """Number of threads for an operator."""
    cores: Annotated[int, Meta(ge=0, extra={"unit": "cores"})]
    """Number of cores that the process could use."""
    precision: dict[str, Share]
    """Fraction of the parameters that is stored in each dtype."""
    clocks: dict[str, Annotated[float, Meta(ge=0, extra={"unit": "MHz"})]]
    """Clock rates of the device after the runs."""
    load_ms: Milliseconds
    """Time to create the session."""
    peak_rss_bytes: Bytes | None
    """Largest resident memory of the process; null if unknown."""
    messages: list[str]
    """Messages of onnxruntime about the placement of nodes."""
    kernel_clock: Clock
    """Clock of the kernels' times: the host's, around calls that wait for a device, or the device's own."""
    order: MeasuringOrder
    """Whether plain and profiled runs took turns, so that other load affected both alike."""


class InputFeed(Record, frozen=True, kw_only=True):
    """One input that the model was fed."""

    name: str
    """Name of the input."""
    dtype: Text
    """Element type of the input."""
    shape: list[Count]
    """Dimensions of the input."""
    fill: Fill
    """Source of the elements: `integers` and `uniform` are random from `low` to `high`; `constant` is all `low`;
    `positions` count from `low` along the last axis; `text` is a string; `file` is the array of `--input`."""
    low: int | float
    """Smallest element."""
    high: int | float
    """Largest element; for `integers`, it is included."""
    sequence: bool | UnsetType = UNSET
    """True if the input is a sequence, which is fed one such tensor; absent otherwise."""


class AxisSize(Record, frozen=True, kw_only=True):
    """Length of one axis of an input, and its source."""

    input: str
    """Input that has the axis."""
    position: Count
    """Position of the axis in the input, from 0."""
    name: str | None
    """Name of the axis in the file; null if it has none."""
    role: str
    """Assumed meaning of the axis, such as `batch` or `sequence`."""
    size: Elements
    """Length of the axis."""
    decided_by: Text
    """Source of the length: `file`, `--shape batch`, `--past`, `--input`, or a default."""


class Latency(Record, frozen=True, kw_only=True):
    """Latency of whole runs."""

    mean: Milliseconds
    """Arithmetic mean of the runs."""
    median: Milliseconds
    """Time below which half of the runs are."""
    p90: Milliseconds
    """Time below which nine of ten runs are."""
    p99: Milliseconds
    """Time below which 99 of 100 runs are."""
    min: Milliseconds
    """Time of the fastest run."""
    runs: Runs
    """Number of measured runs."""
    precision: Share | None
    """Half the width of the 95 % confidence interval of the median, as a fraction of the median; null with fewer than
    six runs."""
    settled: bool
    """Whether `precision` is at most `settings.precision`."""


class TimeGroup(Record, frozen=True, kw_only=True):
    """Time of one group, or of the kernels that were fused across several."""

    group: str
    """Name of the group; `a + b` for kernels that were fused across groups; empty in a `group_balance` if the groups
    are not the user's."""
    keys: list[str]
    """Parts of the group's name, one for each key; for fused kernels, the name alone."""
    across: list[str]
    """Groups that its kernels were fused across; empty for a group's own row."""
    ms: SignedMilliseconds
    """Mean kernel time per profiled run."""
    share: Annotated[float, Meta(extra={"unit": "fraction of 1"})] | None
    """`ms` as a fraction of `profiled_latency_ms.mean`."""
    scaled_ms: SignedMilliseconds
    """`ms` times `scale`: its part of the mean run without profiling, if profiling slows all kernels alike, or none."""
    error_ms: Milliseconds
    """Half the width of the 95 % confidence interval of `ms`."""
    kernels: Annotated[int, Meta(ge=0, extra={"unit": "kernels"})]
    """Number of kernels of the graph that ran."""
    parameters: Elements
    """Logical learned elements; a row of fused kernels has none."""
    parameter_share: Share | None
    """`parameters` as a fraction of all parameters."""
    bytes: Bytes
    """Bytes of encoded payload."""
    byte_share: Share | None
    """`bytes` as a fraction of all payload."""
    stored_elements: Elements
    """Elements as stored."""
    tensors: Tensors
    """Number of stored tensors."""
    nodes: Nodes
    """Number of nodes of the file."""
    macs: Macs | UnsetType | None = UNSET
    """Multiply-accumulates of its nodes; null if those of a node are unknown, and for a row of fused kernels."""
    macs_per_second: Rate | UnsetType | None = UNSET
    """`macs` divided by `scaled_ms`: the achieved rate; null if kernels shared with other groups do some of them."""


class TimeGroupBalance(Record, frozen=True, kw_only=True):
    """Overlap and ungrouped time as full rows."""

    overlap: TimeGroup
    """Time that the user's groups count more than once, as a full row."""
    ungrouped: TimeGroup
    """Time in none of the user's groups, as a full row."""


class Elsewhere(Record, frozen=True, kw_only=True):
    """Kernels of one operator that ran on one other provider, or that copy between devices."""

    provider: str
    """Provider of the kernels, as it is named on the command line."""
    op_type: str
    """Operator of the kernels."""
    kernels: Annotated[int, Meta(ge=0, extra={"unit": "kernels"})]
    """Number of kernels."""
    ms: Milliseconds
    """Mean time of these kernels per profiled run, summed."""


class Kernel(Record, frozen=True, kw_only=True):
    """One kernel of the graph that ran."""

    name: str
    """Name of the node in the graph that ran."""
    op_type: str
    """Operator of the node in the graph that ran."""
    provider: str
    """Provider that ran the kernel, as onnxruntime names it."""
    ms: Milliseconds
    """Mean time of the kernel per profiled run."""
    groups: list[str]
    """Groups whose nodes the kernel computes; empty if unknown."""
    decided_by: Text
    """Rule that assigned the groups; `none` if none did."""
    nodes: Nodes
    """Number of nodes of the file that the kernel stands for."""
    across: bool
    """Whether these nodes are in different groups, so that the kernel's time is in a row of its own."""


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
    """Settings of the measurement."""
    environment: Environment
    """Machine and software of the measurement."""
    by: NodeKeys
    """Keys by which groups are formed: a key that nodes have, or several separated by commas; `group` for the user's
    own groups."""
    depth: Parts | None
    """Number of leading parts of a scope or block that name a group; null if `by` has neither."""
    match: Match | None
    """Assignment of a tensor or node that several of the user's groups match: to `all` of them, or to the `first`; null
    if the groups are not the user's."""
    groups_from: Text | None
    """Source of the user's groups: `--group`, a config or a preset; null if the groups are not the user's."""
    axis: Text
    """Axis that is swept, as given."""
    points: Annotated[list[Point], Meta(min_length=1)]
    """One measurement for each length, in the requested order."""
    latency_growth: Growth | None
    """Growth of `latency_ms.mean` with the length; null with fewer than 3 lengths."""
    growth: list[GroupGrowth]
    """Growth of each group's time with the length."""


class Point(Record, frozen=True, kw_only=True):
    """Measurement at one length of the swept axis."""

    value: Elements
    """The length of the axis."""
    inputs: list[InputFeed]
    """Inputs that the model was fed, in its own order."""
    axes: list[AxisSize]
    """Length of each axis of the inputs, and its source."""
    runs: Runs
    """Number of runs without profiling."""
    latency_ms: Latency
    """Latency of whole runs without profiling."""
    profiled_latency_ms: Latency
    """Latency of whole runs with profiling."""
    profiling_ms: SignedMilliseconds
    """Time that profiling adds to the mean run."""
    scale: Positive
    """Factor from `ms` to `scaled_ms`: `latency_ms.mean` / `profiled_latency_ms.mean`; with a device's clock, which
    profiling does not slow down, 1, or less if the kernels would not fit into the run."""
    device_ms: Milliseconds | UnsetType = UNSET
    """Time that the device worked in the mean profiled run; only with the device's own clock."""
    groups: list[TimeGroup]
    """Groups, in natural order or in the user's; then rows of kernels that were fused across groups."""
    overlap_ms: Milliseconds
    """Time that the user's groups count more than once; 0 for other groups."""
    ungrouped_ms: Milliseconds
    """Time in none of the user's groups; 0 for other groups."""
    group_balance: TimeGroupBalance
    """Overlap and ungrouped time as full rows."""
    unattributed_ms: Milliseconds
    """Time of kernels that no rule assigns to a group."""
    overhead_ms: SignedMilliseconds
    """Time of the mean profiled run outside its kernels; negative if kernels ran side by side."""
    held_bytes: Bytes | None
    """Largest number of bytes in use in the device's memory arena; null if unknown."""
    macs: Macs | UnsetType | None = UNSET
    """Multiply-accumulates of a run; null if the work of a node is unknown."""
    macs_per_second: Rate | UnsetType | None = UNSET
    """`macs` divided by the mean of `latency_ms`."""
    fallback: list[Elsewhere]
    """Kernels that ran on another provider than the requested one, slowest first."""
    copies: list[Elsewhere]
    """Copies between devices, slowest first."""
    kernels: list[Kernel]
    """Kernels of the graph that ran, in their order."""


class Growth(Record, frozen=True, kw_only=True):
    """Growth of a time with the length of the swept axis."""

    order: Order
    """Order of growth in the swept axis: `constant`, `linear` or `quadratic`."""
    constant: Milliseconds
    """Constant term of the fit."""
    linear: Annotated[float, Meta(ge=0, extra={"unit": "ms per 1"})]
    """Coefficient of the length; 0 if `order` is `constant`."""
    quadratic: Annotated[float, Meta(ge=0, extra={"unit": "ms per 1 squared"})]
    """Coefficient of the squared length; 0 unless `order` is `quadratic`."""
    share: Share
    """Part of the fitted time at the largest length that the term of the highest order takes."""
    r2: Annotated[float, Meta(le=1, extra={"unit": "fraction of 1"})] | None
    """Part of the variance that the fit explains, with times weighted by their inverse squares; null for `constant`."""
    points: Annotated[int, Meta(ge=0, extra={"unit": "lengths"})]
    """Number of lengths that the growth is fitted to."""


class GroupGrowth(Record, frozen=True, kw_only=True):
    """Growth of one group's time with the length."""

    group: str
    """Name of the group, as in `groups` of the points."""
    across: list[str]
    """Groups that its kernels were fused across, as in `groups` of the points."""
    growth: Growth | None
    """Growth of the group's `ms`; null with fewer than 3 lengths."""
