"""The times of kernels, the nodes that they compute and the groups of those -> the time of each group."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from analyzer.errors import UsageError
from analyzer.group.keys import ACCOUNTS, UNSCOPED, label_members
from analyzer.group.patterns import UNGROUPED, OwnGroups, find_groups
from analyzer.ledger import Group, Grouping, Ledger
from analyzer.model import Node
from analyzer.timing.record import KernelTime, Part
from analyzer.timing.request import Kernel
from analyzer.timing.tracing.origins import NONE, Origin

__all__ = ["Membership", "Split", "find_membership", "match_kernels", "split_time", "tell_kernels"]

Membership = Mapping[int, tuple[str, ...]]
"""For each node of the main graph, by position, the groups that have it: of keys one, of the user's own any number."""

_FEWEST_TO_BATCH = 16

_STUDENT_95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""Standard errors to either side of a mean that hold it in 95 of 100 cases, for 2 runs, 3 runs and so on."""


def find_membership(ledger: Ledger, grouping: Grouping, own: OwnGroups | None = None) -> Membership:
    """Which groups have the nodes of the main graph, where kernels run; those of nested graphs run within them.

    Args:
        ledger: the account of the model.
        grouping: by keys, or by `own`.
        own: the user's own groups; None where `grouping` is by keys.

    Raises:
        UsageError: the keys say nothing of nodes.
    """
    graph = ledger.model.graphs[0]
    if own is not None:
        scopes = {scope: _search(scope, own) for scope in set(ledger.node_scopes.values())}
        scopes[""] = scopes.get("", ())
        return {
            node.position: scopes[ledger.node_scopes[node.place]] if node.place in ledger.node_scopes else ()
            for node in graph.nodes
        }
    nodes = None if grouping.by == ACCOUNTS else label_members(ledger, grouping.by, grouping.depth).nodes
    if nodes is None:
        raise UsageError(
            f"--by {grouping.by}: says nothing of nodes, and these take the time; use scope, block, stage or op"
        )
    return {node.position: (" / ".join(nodes[node.place]),) for node in graph.nodes}


def _search(scope: str, own: OwnGroups) -> tuple[str, ...]:
    return tuple(find_groups([scope], own.patterns, own.match))


def match_kernels(kernels: Sequence[Kernel], ran: Sequence[Node]) -> list[int | None]:
    """For each kernel its node in the graph that ran, by position; None where that is not told.

    Names are unique there, or empty. A kernel without one goes by the order, in which kernels run as nodes are saved.
    """
    by_name = {node.name: position for position, node in enumerate(ran) if node.name}
    in_order = len(kernels) == len(ran) and all(
        kernel.op_type == node.op_type and node.name in ("", kernel.name)
        for kernel, node in zip(kernels, ran, strict=True)
    )
    if in_order:
        return list(range(len(ran)))
    found = [by_name.get(kernel.name) for kernel in kernels]
    found = [
        p if p is not None and ran[p].op_type == k.op_type else None
        for p, k in zip(found, kernels, strict=True)
    ]
    nameless = _by_turns(
        [(kernel.op_type, i) for i, kernel in enumerate(kernels) if found[i] is None],
        [(node.op_type, position) for position, node in enumerate(ran) if not node.name],
    )
    return [position if position is not None else nameless.get(i) for i, position in enumerate(found)]


def _by_turns(kernels: Sequence[tuple[str, int]], nodes: Sequence[tuple[str, int]]) -> dict[int, int]:
    """Of each operator the first kernel is the first node, if there are as many of the one as of the other."""
    counts, wanted = Counter(op for op, _ in kernels), Counter(op for op, _ in nodes)
    waiting: dict[str, list[int]] = defaultdict(list)
    for op_type, position in reversed(nodes):
        waiting[op_type].append(position)
    return {i: waiting[op_type].pop() for op_type, i in kernels if counts[op_type] == wanted[op_type]}


def tell_kernels(
    kernels: Sequence[Kernel],
    times: Sequence[float],
    origins: Sequence[Origin | None],
    membership: Membership,
) -> tuple[KernelTime, ...]:
    """Each kernel with its mean time in ms, and the groups of the nodes that it computes."""
    told = []
    for kernel, ms, origin in zip(kernels, times, origins, strict=True):
        groups = _groups_of(origin, membership)
        told.append(
            KernelTime(
                name=kernel.name,
                op_type=kernel.op_type,
                provider=kernel.provider,
                ms=ms,
                groups=groups[0],
                decided_by=origin.rule if origin is not None and origin.nodes else NONE,
                nodes=len(origin.nodes) if origin is not None else 0,
                is_across=groups[1],
            )
        )
    return tuple(told)


def _groups_of(origin: Origin | None, membership: Membership) -> tuple[tuple[str, ...], bool]:
    """The groups of an origin's nodes, and whether different nodes are in different ones.

    A node without a scope does not count beside others: nothing says that it belongs elsewhere.
    """
    if origin is None or not origin.nodes:
        return (), False
    cells = dict.fromkeys(membership[node] for node in origin.nodes)
    if len(cells) > 1:
        cells.pop((UNSCOPED,), None)
    if len(cells) == 1:
        return next(iter(cells)) or (UNGROUPED,), False
    names = dict.fromkeys(name for cell in cells for name in cell or (UNGROUPED,))
    return tuple(names), True


@dataclass(frozen=True, slots=True)
class Split:
    """A profiled run without its overhead, in ms: parts - overlap + ungrouped + unattributed."""

    parts: tuple[Part, ...]
    ungrouped: Part | None
    """None where groups are keys'."""
    overlap_ms: float
    unattributed_ms: float


def split_time(
    kernels: Sequence[KernelTime], runs: npt.NDArray[np.float64], grouping: Grouping, *, is_own: bool = False
) -> Split:
    """Add up the kernels of each group.

    Args:
        kernels: with the groups of each.
        runs: milliseconds of each kernel in each run, (runs, kernels).
        grouping: the groups; each gets a part, also one without kernels.
        is_own: whether they are the user's own, which may overlap and leave nodes out.
    """
    columns: dict[tuple[str, ...], list[int]] = defaultdict(list)
    places = {group.name: place for place, group in enumerate(grouping.groups)}
    overlap = 0.0
    for column, kernel in enumerate(kernels):
        if kernel.is_across:
            columns[tuple(sorted(kernel.groups, key=lambda name: places.get(name, len(places))))].append(
                column
            )
            continue
        for name in kernel.groups or ("",):
            columns[(name,)].append(column)
        overlap += kernel.ms * max(0, len(kernel.groups) - 1)
    own_lines = [_part(group, runs, columns.pop((group.name,), [])) for group in grouping.groups]
    unattributed = columns.pop(("",), [])
    left = columns.pop((UNGROUPED,), [])
    fused = [
        _part(Group(" + ".join(names), label=(" + ".join(names),)), runs, columns[names], names)
        for names in sorted(columns, key=lambda names: [places.get(name, len(places)) for name in names])
    ]
    return Split(
        parts=(*own_lines, *fused),
        ungrouped=_part(grouping.ungrouped, runs, left) if is_own else None,
        overlap_ms=overlap,
        unattributed_ms=float(runs[:, unattributed].sum(axis=1).mean()),
    )


def _part(
    group: Group, runs: npt.NDArray[np.float64], columns: list[int], across: tuple[str, ...] = ()
) -> Part:
    totals = runs[:, columns].sum(axis=1)
    return Part(group, float(totals.mean()), len(columns), across, _error(totals))


def _error(totals: npt.NDArray[np.float64]) -> float:
    """Half the width of the confidence interval of the mean; the whole of it for one run, which says nothing of it.

    Runs that follow each other are alike, as what disturbs one lasts longer than it: where there are enough, the means
    of batches stand for independent ones.
    """
    samples = totals
    if len(totals) >= _FEWEST_TO_BATCH:
        samples = np.array([batch.mean() for batch in np.array_split(totals, math.isqrt(len(totals)))])
    freedom = len(samples) - 1
    if not freedom:
        return float(totals[0])
    factor = _STUDENT_95[freedom - 1] if freedom <= len(_STUDENT_95) else 1.96 + 2.5 / freedom
    return factor * float(samples.std(ddof=1)) / math.sqrt(len(samples))
