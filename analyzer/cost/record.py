"""The nouns of a cost: sizes by group, by operator and in all, and what is not known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from analyzer.cost.algebra import Size, evaluate
from analyzer.records import Frozen, field
from analyzer.text import format_many, printable

if TYPE_CHECKING:  # it loads the inputs of timings
    from analyzer.cost.against import WorkAgainst
    from analyzer.cost.measured import Measured
    from analyzer.cost.memory.answer import MemoryAnswer


class Sums(Frozen):
    """Work and traffic; each a number, or an expression in the axes of the inputs."""

    macs: Size = 0
    """Multiply-accumulates."""
    flops: Size = 0
    """Floating point operations: two for each multiply-accumulate, and those of all else."""
    read: Size = 0
    """Bytes of weights and activations that nodes read."""
    written: Size = 0
    """Bytes that nodes write."""
    useful: Size = 0
    """Of `macs`, those that no causal mask or window throws away."""


class AxisBound(Frozen):
    """A free axis of the inputs."""

    name: str
    """In expressions."""
    told: str | None
    """What the file calls it; None where it has no name."""
    where: str
    """The input and the position that it is of."""
    bound: int | None
    """Its size, in elements, where one was given."""


class GroupCost(Frozen):
    """One group of nodes."""

    name: str
    keys: tuple[str, ...]
    sums: Sums
    nodes: int
    """Nodes that work in it, in nodes."""


class OperatorCost(Frozen):
    """One operator."""

    op_type: str
    domain: str
    nodes: int
    """Nodes of it that work, in nodes."""
    sums: Sums


class UnknownNode(Frozen):
    """A node whose work is not known."""

    node: str
    op_type: str
    domain: str
    reason: str
    group: str = ""
    """The group that its work would be booked on; empty where that is not one."""


class CostReport(Frozen):
    """`cost`: how much work a model is."""

    path: str
    by: str
    depth: int | None
    """Of the groups, where they are scopes."""
    axes: tuple[AxisBound, ...]
    total: Sums
    groups: tuple[GroupCost, ...]
    """In the order in which they first work."""
    operators: tuple[OperatorCost, ...]
    """The most multiply-accumulates first, as far as these can be compared."""
    unknown: tuple[UnknownNode, ...]
    assumed: tuple[str, ...] = ()
    """Sizes that meet in one axis and were taken to be equal: `a = b`."""
    bounds: Mapping[str, int] = field(default_factory=dict)
    """Sizes of axes, in elements, by the names in expressions."""
    stamp: str | None = None
    memory: MemoryAnswer | None = None
    """What a run takes, where it was asked for."""
    against: WorkAgainst | None = None
    """The closed form of a config beside it, where it was asked for."""
    measured: Measured | None = None
    """What a run made, where it was asked for."""

    def __repr__(self) -> str:
        unknown = format_many(len(self.unknown), "node")
        return f"<CostReport {printable(self.path)}: {self.total.macs} MACs, {unknown} unknown>"

    @property
    def is_complete(self) -> bool:
        """Whether the work of every node is known."""
        return not self.unknown

    @property
    def has_parted(self) -> bool:
        """Whether a run, or the closed form of a config, says something else."""
        is_other = self.against is not None and not self.against.agrees
        return is_other or (self.measured is not None and self.measured.verdict == "differs")

    @property
    def is_compared(self) -> bool:
        """Whether a run could be compared, where one was asked for."""
        return self.measured is None or self.measured.verdict != "not-compared"

    def at(self, size: Size) -> int | None:
        """The number that an expression is at the sizes that were given; None where they do not tell."""
        return evaluate(size, self.bounds)
