"""The documents of `compare` on two timings, and on two sweeps."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from analyzer.account.ledger import Match
from analyzer.comparison.record import Status
from analyzer.documents.base import (
    Elements,
    Head,
    Milliseconds,
    NodeKeys,
    Parts,
    Record,
    SignedMilliseconds,
    Text,
)
from analyzer.documents.compare import Pair
from analyzer.documents.shared import GroupsFrom


class CompareTimeDocument(Head, frozen=True, kw_only=True):
    """A report of `onnxledger compare --format json` of two saved timings."""

    command: Literal["compare"] = "compare"
    """The command that wrote the document."""
    kind: Literal["time"] = "time"
    """Kind of comparison: saved timings."""
    a: Text
    """The first report, as given on the command line."""
    b: Text
    """The second report, as given on the command line."""
    measured: list[Measured]
    """Differences, other than the model, that may explain a difference in time; empty if both were measured alike."""
    by: NodeKeys
    """Keys by which groups are formed: a key that nodes have, or several separated by commas; `group` for the user's
    own groups."""
    depth: Parts | None
    """Number of leading parts of a scope or block that name a group; null if `by` has neither."""
    match: Match | None
    """Assignment of a tensor or node that several of the user's groups match: to `all` of them, or to the `first`; null
    if the groups are not the user's."""
    groups_from: GroupsFrom
    """Source of the user's groups, on each side."""
    totals: CompareTimeTotals
    """Totals of both timings."""
    groups: list[TimePair]
    """Groups of both sides, in natural order or in the user's; then rows of fused kernels."""
    overlap_ms: Annotated[MsPair, Meta(extra={"unit": "ms"})]
    """Time that the user's groups count more than once."""
    ungrouped_ms: Annotated[MsPair, Meta(extra={"unit": "ms"})]
    """Time in none of the user's groups."""
    unattributed_ms: Annotated[MsPair, Meta(extra={"unit": "ms"})]
    """Time of kernels that no rule assigns to a group."""
    overhead_ms: Annotated[MsPair, Meta(extra={"unit": "ms"})]
    """Time of the mean profiled run outside its kernels."""


class Measured(Record, frozen=True, kw_only=True):
    """Difference, other than the model, that may explain a difference in time."""

    what: Text
    """Property that differs: `device`, `provider`, `threads`, ...."""
    a: str
    """Value of the property in A."""
    b: str
    """Value of the property in B."""


class MsPair(Record, frozen=True, kw_only=True):
    """A time on both sides."""

    a: SignedMilliseconds
    """The time in A; 0 if A lacks the group."""
    b: SignedMilliseconds
    """The time in B; 0 if B lacks the group."""
    difference: Annotated[float, Meta(extra={"unit": "ms, signed"})]
    """a - b."""
    change: SignedMilliseconds
    """b - a."""
    ratio: float | None
    """a / b; null if b is 0 or less."""


class CompareTimeTotals(Record, frozen=True, kw_only=True):
    """Totals of both timings."""

    latency_ms: Annotated[MsPair, Meta(extra={"unit": "ms"})]
    """Time of the mean run without profiling."""
    profiled_latency_ms: Annotated[MsPair, Meta(extra={"unit": "ms"})]
    """Time of the mean run with profiling."""
    parameters: Annotated[Pair, Meta(extra={"unit": "elements"})]
    """Logical learned elements."""
    bytes: Annotated[Pair, Meta(extra={"unit": "bytes"})]
    """Sizes of all files on disk."""


class ErrorMs(Record, frozen=True, kw_only=True):
    """Half the widths of the 95 % confidence intervals of `ms`."""

    a: Milliseconds
    """Half the width for A."""
    b: Milliseconds
    """Half the width for B."""


class TimePair(Record, frozen=True, kw_only=True):
    """The time of one group on both sides."""

    group: str
    """Name of the group, as in the two reports."""
    keys: list[str]
    """Parts of the group's name, as in the two reports."""
    across: list[str]
    """Groups that its kernels were fused across, as in the two reports."""
    status: Status
    """Change of the time: `changed` if it differs by more than `error_ms` of both together; `added` and `removed` if
    only B or only A has the group."""
    ms: Annotated[MsPair, Meta(extra={"unit": "ms"})]
    """Mean kernel time per profiled run."""
    error_ms: Annotated[ErrorMs, Meta(extra={"unit": "ms"})]
    """Half the widths of the 95 % confidence intervals of `ms`."""
    parameters: Annotated[Pair, Meta(extra={"unit": "elements"})]
    """Logical learned elements."""
    bytes: Annotated[Pair, Meta(extra={"unit": "bytes"})]
    """Bytes of encoded payload."""


class CompareSweepDocument(Head, frozen=True, kw_only=True):
    """A report of `onnxledger compare --format json` of two saved sweeps."""

    command: Literal["compare"] = "compare"
    """The command that wrote the document."""
    kind: Literal["time"] = "time"
    """Kind of comparison: saved timings."""
    a: Text
    """The first report, as given on the command line."""
    b: Text
    """The second report, as given on the command line."""
    measured: list[Measured]
    """Differences, other than the model, that may explain a difference in time; empty if both were measured alike."""
    by: NodeKeys
    """Keys by which groups are formed: a key that nodes have, or several separated by commas; `group` for the user's
    own groups."""
    depth: Parts | None
    """Number of leading parts of a scope or block that name a group; null if `by` has neither."""
    match: Match | None
    """Assignment of a tensor or node that several of the user's groups match: to `all` of them, or to the `first`; null
    if the groups are not the user's."""
    groups_from: GroupsFrom
    """Source of the user's groups, on each side."""
    axis: Text
    """Axis that is swept."""
    totals: CompareSweepTotals
    """Totals of both models."""
    points: Annotated[list[ComparedPoint], Meta(min_length=1)]
    """Measurements at the lengths that both sides have."""


class CompareSweepTotals(Record, frozen=True, kw_only=True):
    """Totals of both models."""

    parameters: Annotated[Pair, Meta(extra={"unit": "elements"})]
    """Logical learned elements."""
    bytes: Annotated[Pair, Meta(extra={"unit": "bytes"})]
    """Sizes of all files on disk."""


class ComparedPoint(Record, frozen=True, kw_only=True):
    """One length that both sides have."""

    value: Elements
    """The length of the axis."""
    latency_ms: Annotated[MsPair, Meta(extra={"unit": "ms"})]
    """Time of the mean run without profiling."""
    profiled_latency_ms: Annotated[MsPair, Meta(extra={"unit": "ms"})]
    """Time of the mean run with profiling."""
    groups: list[TimePair]
    """Groups of both sides, in natural order or in the user's; then rows of fused kernels."""
    overlap_ms: Annotated[MsPair, Meta(extra={"unit": "ms"})]
    """Time that the user's groups count more than once."""
    ungrouped_ms: Annotated[MsPair, Meta(extra={"unit": "ms"})]
    """Time in none of the user's groups."""
    unattributed_ms: Annotated[MsPair, Meta(extra={"unit": "ms"})]
    """Time of kernels that no rule assigns to a group."""
    overhead_ms: Annotated[MsPair, Meta(extra={"unit": "ms"})]
    """Time of the mean profiled run outside its kernels."""
