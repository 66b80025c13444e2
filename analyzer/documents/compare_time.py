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
    """What was compared: saved timings."""
    a: Text
    """The first report, as it was named."""
    b: Text
    """The second report, as it was named."""
    measured: list[Measured]
    """What else than the model may be the reason of a difference; empty where both were measured alike."""
    by: NodeKeys
    """What the groups are made by: a key that nodes have, or several with commas between them; `group` are the user's
    own."""
    depth: Parts | None
    """Leading parts of a scope, or of a block, that name a group; null where `by` has neither."""
    match: Match | None
    """Which of the user's groups that match a tensor or a node have it; null where the groups are not the user's."""
    groups_from: GroupsFrom
    """Where the user's groups come from."""
    totals: CompareTimeTotals
    """Both whole."""
    groups: list[TimePair]
    """The groups of both, in natural order or in the user's; then those of fused kernels."""
    overlap_ms: Annotated[MsPair, Meta(extra={"unit": "ms"})]
    """What the user's groups count more than once."""
    ungrouped_ms: Annotated[MsPair, Meta(extra={"unit": "ms"})]
    """What no group of the user's has."""
    unattributed_ms: Annotated[MsPair, Meta(extra={"unit": "ms"})]
    """Kernels that no rule gives to a group."""
    overhead_ms: Annotated[MsPair, Meta(extra={"unit": "ms"})]
    """The mean profiled run without its kernels."""


class Measured(Record, frozen=True, kw_only=True):
    """What else than the model may be the reason of a difference."""

    what: Text
    """What was not the same: `device`, `provider`, `threads`, ...."""
    a: str
    """What it was in A."""
    b: str
    """What it was in B."""


class MsPair(Record, frozen=True, kw_only=True):
    """A time on both sides."""

    a: SignedMilliseconds
    """The time in A; 0 where A lacks the group."""
    b: SignedMilliseconds
    """The time in B; 0 where B lacks the group."""
    difference: Annotated[float, Meta(extra={"unit": "ms, signed"})]
    """a - b."""
    change: SignedMilliseconds
    """b - a."""
    ratio: float | None
    """a / b; null where b is 0 or less."""


class CompareTimeTotals(Record, frozen=True, kw_only=True):
    """Both whole."""

    latency_ms: Annotated[MsPair, Meta(extra={"unit": "ms"})]
    """The mean run without profiling."""
    profiled_latency_ms: Annotated[MsPair, Meta(extra={"unit": "ms"})]
    """The mean run with profiling."""
    parameters: Annotated[Pair, Meta(extra={"unit": "elements"})]
    """Logical learned elements."""
    bytes: Annotated[Pair, Meta(extra={"unit": "bytes"})]
    """Sizes of all files on disk."""


class ErrorMs(Record, frozen=True, kw_only=True):
    """Half the widths of the 95 % confidence intervals."""

    a: Milliseconds
    """Of A."""
    b: Milliseconds
    """Of B."""


class TimePair(Record, frozen=True, kw_only=True):
    """The time of one group on both sides."""

    group: str
    """As in the two reports."""
    keys: list[str]
    """As there."""
    across: list[str]
    """As there."""
    status: Status
    """Of the time: `changed` where it differs by more than `error_ms` of both together; `added` and `removed` where
    only B or only A has the group."""
    ms: Annotated[MsPair, Meta(extra={"unit": "ms"})]
    """Mean kernel time per profiled run."""
    error_ms: Annotated[ErrorMs, Meta(extra={"unit": "ms"})]
    """Half the widths of the 95 % confidence intervals."""
    parameters: Annotated[Pair, Meta(extra={"unit": "elements"})]
    """Logical learned elements."""
    bytes: Annotated[Pair, Meta(extra={"unit": "bytes"})]
    """Encoded payload."""


class CompareSweepDocument(Head, frozen=True, kw_only=True):
    """A report of `onnxledger compare --format json` of two saved sweeps."""

    command: Literal["compare"] = "compare"
    """The command that wrote the document."""
    kind: Literal["time"] = "time"
    """What was compared: saved timings."""
    a: Text
    """The first report, as it was named."""
    b: Text
    """The second report, as it was named."""
    measured: list[Measured]
    """What else than the model may be the reason of a difference; empty where both were measured alike."""
    by: NodeKeys
    """What the groups are made by: a key that nodes have, or several with commas between them; `group` are the user's
    own."""
    depth: Parts | None
    """Leading parts of a scope, or of a block, that name a group; null where `by` has neither."""
    match: Match | None
    """Which of the user's groups that match a tensor or a node have it; null where the groups are not the user's."""
    groups_from: GroupsFrom
    """Where the user's groups come from."""
    axis: Text
    """The axis that is swept."""
    totals: CompareSweepTotals
    """Both models whole."""
    points: Annotated[list[ComparedPoint], Meta(min_length=1)]
    """The lengths that both have."""


class CompareSweepTotals(Record, frozen=True, kw_only=True):
    """Both models whole."""

    parameters: Annotated[Pair, Meta(extra={"unit": "elements"})]
    """Logical learned elements."""
    bytes: Annotated[Pair, Meta(extra={"unit": "bytes"})]
    """Sizes of all files on disk."""


class ComparedPoint(Record, frozen=True, kw_only=True):
    """One length, which both sides have."""

    value: Elements
    """The length of the axis."""
    latency_ms: Annotated[MsPair, Meta(extra={"unit": "ms"})]
    """The mean run without profiling."""
    profiled_latency_ms: Annotated[MsPair, Meta(extra={"unit": "ms"})]
    """The mean run with profiling."""
    groups: list[TimePair]
    """The groups of both, in natural order or in the user's; then those of fused kernels."""
    overlap_ms: Annotated[MsPair, Meta(extra={"unit": "ms"})]
    """What the user's groups count more than once."""
    ungrouped_ms: Annotated[MsPair, Meta(extra={"unit": "ms"})]
    """What no group of the user's has."""
    unattributed_ms: Annotated[MsPair, Meta(extra={"unit": "ms"})]
    """Kernels that no rule gives to a group."""
    overhead_ms: Annotated[MsPair, Meta(extra={"unit": "ms"})]
    """The mean profiled run without its kernels."""
