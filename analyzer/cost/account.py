"""Ledger -> its cost: the work of each node, summed by group and by operator; nodes of unknown work are listed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from analyzer.account.group.keys import Labels, choose_key, label_members, picture_depth
from analyzer.account.ledger import Ledger
from analyzer.cost.algebra import (
    Hidden,
    Size,
    add,
    evaluate,
    hidden_in,
    multiply,
    settle,
    sign_of,
    subtract,
    symbol,
    text_of,
    total,
)
from analyzer.cost.record import AxisBound, CostReport, GroupCost, OperatorCost, Sums, UnknownNode
from analyzer.cost.values import UnshapedError, Value
from analyzer.cost.walk import Branch, Visit, Walk
from analyzer.cost.work import WORK, Work, work_of
from analyzer.errors import UsageError
from analyzer.model import Node, Place
from analyzer.records import Mutable, field
from analyzer.text import printable

_ALIASES = frozenset(
    {"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Shape", "Size", "Constant", "Dropout"}
)
"""Operators that pass a buffer on, or read none."""

_CHOOSING = frozenset({"Gather", "GatherElements", "GatherND", "Slice"})
"""Operators that read no more of their first input than they write."""


def measure_cost(
    ledger: Ledger,
    by: str | None = None,
    depth: int | None = None,
    sizes: Mapping[str, int] | None = None,
    labels: Labels | None = None,
    stamp: str | None = None,
    *,
    is_lenient: bool = False,
) -> CostReport:
    """Count the work of a model, without running it and without reading a weight.

    Args:
        ledger: the ledger of one model.
        by: keys of groups that nodes have: scope, block, stage, op; None chooses.
        depth: leading parts of a name that make a group; None takes the first at which no group has over half.
        sizes: sizes of axes, in elements: by the name that the file gives an axis, or by `input.position`.
        labels: groups of the user's, in place of `by`.
        stamp: time of the report.
        is_lenient: whether sizes that name no free axis are ignored.

    Raises:
        UsageError: `by` is no key that nodes have, or a size names no axis.
    """
    if labels is None:
        key = by or choose_key(ledger)
        labels = label_members(ledger, key, picture_depth(ledger, key) if depth is None else depth)
    if labels.nodes is None:
        raise UsageError(f"--by {by}: groups no nodes; use scope, block, stage or op")
    walk = Walk(ledger.model)
    books = _book_nodes(walk, labels)
    axes = _bind(walk, dict(sizes or {}), is_lenient=is_lenient)
    bounds = {axis.name: axis.bound for axis in axes if axis.bound is not None}
    is_strict = walk.is_contradicted(bounds)
    if is_strict:
        walk = Walk(ledger.model, is_strict=True)
        books = _book_nodes(walk, labels)
    if bounds:
        at_sizes = Walk(ledger.model, bounds, is_strict=is_strict)
        found = _book_nodes(at_sizes, labels)
        if len(bounds) < len(axes) or found.refused is not None or not _is_same(books, found, bounds):
            walk, books = at_sizes, found  # it also decides branches and slices that no formula tells
    return CostReport(
        path=str(ledger.model.path),
        by=labels.by,
        depth=labels.depth,
        axes=axes,
        total=books.whole(),
        groups=tuple(
            GroupCost(" / ".join(label), label, each.sums(), each.nodes)
            for label, each in books.groups.items()
        ),
        operators=_operators(books, bounds),
        unknown=books.all_unknown(),
        refused=books.refused,
        assumed=tuple(f"{text_of(a)} = {text_of(b)}" for a, b in walk.assumed if not hidden_in(b)),
        bounds=bounds,
        stamp=stamp,
    )


def _book_nodes(walk: Walk, labels: Labels) -> _Books:
    """Walk a model and book each node; from the first If branch on, visits wait until all branches are known."""
    books = _Books(labels)
    waiting: list[Visit] = []
    for visit in walk.run():
        if waiting or visit.branch:
            waiting.append(visit)
        else:
            books.enter(visit)
    for visit in _chosen(waiting, books):
        books.enter(visit)
    return books


def _is_same(free: _Books, bound: _Books, bounds: Mapping[str, int]) -> bool:
    """Whether the formulas have the numbers of a walk at these sizes, with as many nodes of unknown work."""
    pairs = zip(_amounts(free.whole()), _amounts(bound.whole()), strict=True)
    is_equal = all(
        isinstance(number, int) and evaluate(formula, bounds) == number for formula, number in pairs
    )
    return is_equal and len(free.all_unknown()) == len(bound.all_unknown())


class _Account(Mutable):
    """Amounts booked on one group, or one operator."""

    booked: dict[int, tuple[Sums, int]] = field(default_factory=dict)
    """Amounts and their number of bookings, by the id of the `Sums`: identical nodes share one."""
    nodes: int = 0

    def add(self, sums: Sums) -> None:
        self.booked[id(sums)] = (sums, self.booked.get(id(sums), (sums, 0))[1] + 1)
        self.nodes += 1

    def sums(self) -> Sums:
        return Sums(*(settle(total(each)) for each in zip(*map(_times, self.booked.values()), strict=True)))


def _times(booked: tuple[Sums, int]) -> tuple[Size, ...]:
    sums, count = booked
    amounts = _amounts(sums)
    return amounts if count == 1 else tuple(multiply(amount, count) for amount in amounts)


def _amounts(sums: Sums) -> tuple[Size, ...]:
    return sums.macs, sums.flops, sums.read, sums.written, sums.useful


class _Books(Mutable):
    """All amounts, by group and by operator, and the nodes of unknown work."""

    labels: Labels
    groups: dict[tuple[str, ...], _Account] = field(default_factory=dict)
    operators: dict[tuple[str, str], _Account] = field(default_factory=dict)
    unknown: list[UnknownNode] = field(default_factory=list)
    parts: dict[int, tuple[tuple[str, ...], tuple[str, str]]] = field(default_factory=dict)
    """Group and operator of each node whose work is part of a known sum, by its index in `unknown`."""
    refused: UnknownNode | None = None
    """First node that cannot run with the sizes of its inputs, outside of branches that may not run."""
    branching: list[UnknownNode] = field(default_factory=list)
    """Ifs with branches of different work."""
    alike: dict[tuple[int, str, Size], tuple[Sums, str, bool]] = field(default_factory=dict)
    """Amounts of identical nodes, with the reason why they are unknown, and whether that reason is in the amounts."""

    def whole(self) -> Sums:
        """Return the sums of all groups."""
        known = [_amounts(each.sums()) for each in self.groups.values()]
        return Sums(*(settle(total(column)) for column in zip(*known, strict=True))) if known else Sums()

    def all_unknown(self) -> tuple[UnknownNode, ...]:
        """Return the nodes of unknown work, and the Ifs whose branches differ."""
        return (*self.branching, *self.left())

    def left(self) -> tuple[UnknownNode, ...]:
        """Return the nodes of unknown work, without parts of a sum that is known for their group and their operator."""
        if not self.parts:
            return tuple(self.unknown)
        groups = {label: each.sums() for label, each in self.groups.items()}
        operators = {kind: each.sums() for kind, each in self.operators.items()}

        def is_settled(place: int) -> bool:
            label, kind = self.parts[place]
            return not _reason(groups[label]) and not _reason(operators[kind])

        rows = enumerate(self.unknown)
        return tuple(row for place, row in rows if place not in self.parts or not is_settled(place))

    def enter(self, visit: Visit) -> None:
        node = visit.step.node
        if visit.alike is None:
            sums, why, is_part = _sums(visit)
        else:
            key = (visit.alike, visit.why, visit.times)
            found = self.alike.get(key)
            if found is None:
                found = self.alike[key] = _sums(visit)
            sums, why, is_part = found
        label = (self.labels.nodes or {}).get(visit.place, ("[unscoped]",))
        kind = (node.op_type, node.domain or "ai.onnx")
        if is_part:
            self.parts[len(self.unknown)] = (label, kind)
        if why:
            self.record_unknown(node, why, " / ".join(label))
        if visit.is_refused and self.refused is None and not visit.branch and sign_of(visit.times) == 1:
            self.refused = self.unknown[-1]
        self.groups.setdefault(label, _Account()).add(sums)
        self.operators.setdefault(kind, _Account()).add(sums)

    def record_unknown(self, node: Node, why: str, group: str) -> None:
        """Record a node of unknown work."""
        name = node.name or next(filter(None, node.outputs), "") or f"node {node.position}"
        path = "/".join((*node.graph_path, name))
        self.unknown.append(UnknownNode(path, node.op_type, node.domain or "ai.onnx", why, group))


def _sums(visit: Visit) -> tuple[Sums, str, bool]:
    """Return a node's amounts, the reason why they are unknown, and whether that reason is in the amounts.

    Amounts with such a reason may still have a known sum.
    """
    work, why = _work(visit)
    read, written = _traffic(visit)
    each = (
        work.macs,
        add(work.flops, multiply(work.macs, 2)),
        read,
        written,
        subtract(work.macs, work.masked),
    )
    sums = Sums(*(each if visit.times == 1 else (multiply(amount, visit.times) for amount in each)))
    by_amounts = "" if why else _reason(sums)
    return sums, why or by_amounts, bool(by_amounts)


def _work(visit: Visit) -> tuple[Work, str]:
    """Return a node's work, and the reason why it is unknown; "" where it is known."""
    step = visit.step
    if visit.is_closed or visit.is_refused:
        return Work(), visit.why
    if not step.node.is_standard:
        return Work(), visit.why or f"no rule for {step.node.domain}.{step.node.op_type}"
    try:
        work = work_of(step, visit.made)
    except (UnshapedError, ValueError, IndexError, TypeError, KeyError, ArithmeticError) as error:
        return Work(), visit.why or (
            str(error) if isinstance(error, UnshapedError) else "incompatible shapes"
        )
    if work is None:
        return Work(), visit.why or f"no rule for the work of {step.node.op_type}"
    return work, visit.why if step.node.op_type in WORK and work == Work() else ""


def _reason(sums: Sums) -> str:
    """Return the reason why work is no expression in the axes of the inputs; "" where it is one."""
    found = hidden_in(sums.macs) or hidden_in(sums.flops)
    return found.reason if found is not None else ""


def _traffic(visit: Visit) -> tuple[Size, Size]:
    """Return the bytes that a node reads, and the bytes that it writes."""
    if visit.step.node.op_type in _ALIASES:
        return 0, 0
    written = total(_nbytes(value) for value in visit.made)
    inputs = visit.step.inputs
    if visit.step.node.op_type in _CHOOSING:  # only the selected part of a table is read
        return add(written, total(_nbytes(value) for value in inputs[1:] if _is_there(value))), written
    return total(_nbytes(value) for value in inputs if _is_there(value)), written


def _is_there(value: Value) -> bool:
    return value.shape is not None or bool(value.why)


def _nbytes(value: Value) -> Size:
    if value.is_stored and value.bits is not None and isinstance(value.numel, int):
        return (value.numel * value.bits + 7) // 8
    nbytes = value.nbytes
    return (
        symbol(Hidden("unknown", value.why or "bytes of a tensor of unknown size"))
        if nbytes is None
        else nbytes
    )


def _chosen(visits: Sequence[Visit], books: _Books) -> Iterable[Visit]:
    """Return the visits without the branches of each If that work less; an If whose branches differ is recorded.

    An If in a branch of another is decided first, so that the outer branch counts only the chosen inner one.
    """
    levels: dict[int, dict[tuple[Branch, ...], list[Visit]]] = {}
    for visit in visits:
        for depth in range(len(visit.branch)):
            levels.setdefault(depth, {}).setdefault(visit.branch[: depth + 1], []).append(visit)
    dropped: set[tuple[Branch, ...]] = set()
    differing: list[tuple[tuple[Branch, ...], UnknownNode]] = []

    def is_run(branch: tuple[Branch, ...]) -> bool:
        return all(branch[: depth + 1] not in dropped for depth in range(len(branch)))

    for depth in sorted(levels, reverse=True):
        owners: dict[tuple[tuple[Branch, ...], object], dict[tuple[Branch, ...], Size]] = {}
        for branch, inner in levels[depth].items():
            sums = owners.setdefault((branch[:-1], branch[-1].owner), {})
            sums[branch] = _macs_of([visit for visit in inner if is_run(visit.branch)])
        for sums in owners.values():
            if len(set(sums.values())) == 1 and len(sums) == 2:
                dropped.update(branch for branch in sums if branch[-1].name == "else_branch")
                continue
            largest = max(sums, key=lambda branch, known=sums: _rank(known[branch]))  # type: ignore[misc]
            dropped.update(branch for branch in sums if branch != largest)
            if len(set(sums.values())) > 1 or sums[largest] != 0:
                least = min((*sums.values(), 0) if len(sums) < 2 else sums.values(), key=_rank)
                reason = f"which branch runs depends on the values: {least} to {sums[largest]} multiply-accumulates"
                differing.append((largest[:-1], UnknownNode(largest[-1].label, "If", "ai.onnx", reason)))
    books.branching += [row for around, row in reversed(differing) if is_run(around)]
    return [visit for visit in visits if is_run(visit.branch)]


def works_of(visits: Sequence[Visit]) -> Iterable[tuple[Place, Size]]:
    """Yield the node and the multiply-accumulates of each visit that has some."""
    for visit in _chosen(visits, _Books(Labels("", None, (), None))):
        macs = multiply(_work(visit)[0].macs, visit.times)
        if macs != 0:
            yield visit.place, macs


def _macs_of(visits: Sequence[Visit]) -> Size:
    return total(multiply(_work(visit)[0].macs, visit.times) for visit in visits)


def _rank(size: Size) -> int:
    """Return the number of a size where every axis is 64, for sorting; -1 where it is unknown."""
    value = evaluate(size, _UniformSizes())
    return -1 if value is None else value


class _UniformSizes(dict[str, int]):
    """Sizes of axes in which every axis has the same size."""

    def get(self, key: str, default: object = None) -> int:
        return 64


def _operators(books: _Books, bounds: Mapping[str, int]) -> tuple[OperatorCost, ...]:
    rows = [
        OperatorCost(op_type, domain, each.nodes, each.sums())
        for (op_type, domain), each in books.operators.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-_rank(row.sums.macs), -_rank(row.sums.flops), row.op_type)))


def _bind(walk: Walk, sizes: dict[str, int], *, is_lenient: bool = False) -> tuple[AxisBound, ...]:
    """Return the axes with the sizes that the user gave.

    Raises:
        UsageError: a size names no axis.
    """
    axes: list[AxisBound] = []
    used: set[str] = set()
    for axis in walk.axes:
        where = f"{axis.input}.{axis.position}"
        names = [name for name in (axis.stored_name, where, axis.name) if name is not None and name in sizes]
        used |= set(names)
        axes.append(AxisBound(axis.name, axis.stored_name, where, sizes[names[0]] if names else None))
    left = sorted(set(sizes) - used)
    if left and not is_lenient:
        known = (
            ", ".join(printable(axis.stored_name or axis.where) for axis in axes)
            or "none: all sizes are fixed"
        )
        raise UsageError(f"--shape {printable(left[0])}: no free axis has this name; there are {known}")
    return tuple(axes)
