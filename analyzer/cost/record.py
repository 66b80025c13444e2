"""Records of a cost: sizes by group, by operator and in total, and the nodes of unknown work."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from analyzer.cost.algebra import Size, evaluate
from analyzer.records import Frozen, field
from analyzer.text import format_many, printable

if TYPE_CHECKING:  # importing it loads the inputs of timings
    from analyzer.cost.against import WorkAgainst
    from analyzer.cost.measured import Measured
    from analyzer.cost.memory.answer import MemoryAnswer


class Sums(Frozen):
    """Work and memory traffic; each a number, or an expression in the axes of the inputs."""

    macs: Size = 0
    """Multiply-accumulates."""
    flops: Size = 0
    """Floating point operations: two for each multiply-accumulate, plus those of all other operations."""
    read: Size = 0
    """Bytes of weights and activations that nodes read."""
    written: Size = 0
    """Bytes that nodes write."""
    useful: Size = 0
    """Those of `macs` whose results no causal mask or window discards."""


class AxisBound(Frozen):
    """Free axis of the inputs."""

    name: str
    """Name in expressions."""
    stored_name: str | None
    """Name in the file; None where it has no name."""
    where: str
    """Input and position, as `input.position`."""
    bound: int | None
    """Its size, in elements, where one was given."""


class GroupCost(Frozen):
    """Cost of one group of nodes."""

    name: str
    keys: tuple[str, ...]
    sums: Sums
    nodes: int
    """Number of nodes in the group, counted at each call of a function."""


class OperatorCost(Frozen):
    """Cost of one operator."""

    op_type: str
    domain: str
    nodes: int
    """Number of its nodes, counted at each call of a function."""
    sums: Sums


class UnknownNode(Frozen):
    """Node of unknown work."""

    node: str
    op_type: str
    domain: str
    reason: str
    group: str = ""
    """Group that its work belongs to; empty for an If whose branches differ, which is in no group."""


class CostReport(Frozen):
    """Report of `cost`: the work of a model."""

    path: str
    by: str
    depth: int | None
    """Depth of the groups, where they are scopes."""
    axes: tuple[AxisBound, ...]
    total: Sums
    groups: tuple[GroupCost, ...]
    """Groups in the order of their first nodes."""
    operators: tuple[OperatorCost, ...]
    """Operators by descending multiply-accumulates, as far as these can be compared."""
    unknown: tuple[UnknownNode, ...]
    refused: UnknownNode | None = None
    """First node that cannot run with the sizes of its inputs, one of `unknown`; None where all may run."""
    assumed: tuple[str, ...] = ()
    """Sizes that meet in one axis and were assumed to be equal: `a = b`."""
    bounds: Mapping[str, int] = field(default_factory=dict)
    """Sizes of axes, in elements, by the names in expressions."""
    stamp: str | None = None
    memory: MemoryAnswer | None = None
    """Memory of a run, if requested."""
    against: WorkAgainst | None = None
    """Comparison with the closed form of a config, if requested."""
    measured: Measured | None = None
    """Comparison with a run, if requested."""

    def __repr__(self) -> str:
        unknown = format_many(len(self.unknown), "node")
        return f"<CostReport {printable(self.path)}: {self.total.macs} MACs, {unknown} unknown>"

    @property
    def is_complete(self) -> bool:
        """Whether the work of every node is known."""
        return not self.unknown

    @property
    def has_parted(self) -> bool:
        """Whether a run, or the closed form of a config, disagrees with the report."""
        is_other = self.against is not None and not self.against.agrees
        return is_other or (self.measured is not None and self.measured.verdict == "differs")

    @property
    def is_compared(self) -> bool:
        """Whether a requested run could be compared."""
        return self.measured is None or self.measured.verdict != "not-compared"

    def at(self, size: Size) -> int | None:
        """Return the number of an expression at the given sizes of axes; None where they do not determine it."""
        return evaluate(size, self.bounds)
