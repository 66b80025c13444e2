"""Kernels that ran -> the nodes of the file that they compute, and the times of those nodes' groups."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from analyzer.account.group.keys import ACCOUNTS, UNSCOPED, label_members
from analyzer.account.group.patterns import UNGROUPED, OwnGroups, find_groups
from analyzer.account.ledger import Group, Grouping, Ledger
from analyzer.errors import UsageError
from analyzer.model import Graph, Model, Node
from analyzer.records import Frozen, Mutable, field
from analyzer.timing.record import KernelTime, TimedGroup
from analyzer.timing.request import Kernel


class MainGraph(Mutable):
    """A main graph, with the nodes that compute each value and that read it."""

    nodes: Sequence[Node]
    inputs: frozenset[str]
    reads: list[tuple[str, ...]] = field(default_factory=list)
    """For each node, the values that it reads, with those that its nested graphs take from outside."""
    gives: list[tuple[str, ...]] = field(default_factory=list)
    """For each node, the values that it computes."""
    makers: dict[str, int] = field(default_factory=dict)
    readers: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))

    @classmethod
    def of(cls, model: Model, aliases: Mapping[str, str]) -> MainGraph:
        graph = model.graphs[0]
        captured = _captured(model.graphs)
        side = cls(graph.nodes, frozenset((*graph.inputs, *graph.overridable)))
        for node in graph.nodes:
            names = (name for name in (*node.inputs, *captured.get(node.position, ())) if name)
            reads = tuple(dict.fromkeys(aliases.get(name, name) for name in names))
            gives = tuple(aliases.get(name, name) for name in node.outputs if name)
            side.reads.append(reads)
            # A stored tensor is not computed. A value in another precision is computed where the original value is.
            side.gives.append(() if node.op_type == "Constant" or set(gives) <= set(reads) else gives)
            side.makers.update((name, node.position) for name in side.gives[-1])
            for name in reads:
                side.readers[name].append(node.position)
        return side

    def is_computed(self, name: str) -> bool:
        return name in self.makers or name in self.inputs

    def before(self, position: int) -> list[int]:
        return [self.makers[name] for name in self.reads[position] if name in self.makers]

    def after(self, position: int) -> list[int]:
        names = (
            self.gives[position] or self.reads[position]
        )  # for an inserted Cast, whose value has the same name
        return [reader for name in names for reader in self.readers.get(name, ()) if reader != position]


def _captured(graphs: Sequence[Graph]) -> dict[int, list[str]]:
    """Return, for each node of the main graph, the names that its nested graphs read but do not define."""
    parents = {graph.path: graph.parent for graph in graphs}
    main = graphs[0].path
    found: dict[int, list[str]] = defaultdict(list)
    for graph in graphs[1:]:
        place = graph.parent
        while place is not None and place[0] != main:
            place = parents.get(place[0])
        if place is None:
            continue  # in the body of a function
        own = {name for node in graph.nodes for name in node.outputs}
        own.update(graph.inputs, (tensor.name for tensor in graph.tensors))
        names = [*(name for node in graph.nodes for name in node.inputs), *graph.outputs]
        found[place[1]] += [name for name in names if name not in own]
    return found


# A runtime fuses, inserts and drops nodes. It keeps names: of the values that it still computes, and of most nodes. The
# nodes between two values that both graphs have are found by following the file's graph.


SAME = "name:same-node"
"""Rule: the node is unchanged, and the same operator computes the same value."""
NAMED = "name:node"
"""Rule: its name is that of a node or a value, plus the runtime's suffix."""
VALUES = "structure:values"
"""Rule: it computes a value of the file, and stands for the nodes between the values that it reads and that value."""
BETWEEN = "structure:between"
"""Rule: it was inserted; it belongs to the one node that follows it, else to the nodes before it."""
NONE = "none"

_LAYOUT = "com.microsoft.nchwc"
_WIDENED = "InsertedPrecisionFreeCast_"
"""Prefix of onnxruntime for a float16 value that it computes in float32 on a CPU."""

_FREE = frozenset({"Identity", "Dropout", "QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"})
"""Operators that pass on their input, at most in another precision: next to other operators they decide nothing."""

_PRODUCTS = {
    "FusedMatMul": frozenset({"MatMul", "FusedMatMul"}),
    "DynamicQuantizeMatMul": frozenset({"MatMulInteger"}),
    "MatMulIntegerToFloat": frozenset({"MatMulInteger"}),
}
"""Fused operators that compute a product of the file, with a factor, transposed operands or another result type."""

_ABSORBED = frozenset({"Transpose", "Mul", "Div", "Cast"})
"""Operators that such a fused product includes at no cost that counts."""

_MOST_NODES = 20_000
"""Most nodes that one search visits; nodes further apart get no origin."""
_LONGEST_ROW = 8
_MOST_ENDS = 64
"""Most nodes that are kept around an inserted one."""


class Origin(Frozen):
    """Nodes of the file's main graph, by position, that a node of the graph that ran computes or serves; sorted."""

    nodes: tuple[int, ...]
    rule: str


def find_origins(file: Model, ran: Model) -> tuple[Origin, ...]:
    """Return, for each node of the graph that ran, in its order, the nodes of the file that it computes."""
    of_file = MainGraph.of(file, {})
    own = {name for node in of_file.nodes for name in node.outputs}
    aliases = {_WIDENED + name: name for name in own if _WIDENED + name not in own}
    return _Search(of_file, MainGraph.of(ran, aliases)).run()


class _Search(Mutable):
    """State of a search. Strong evidence goes first, and claims nodes for itself alone."""

    file: MainGraph
    ran: MainGraph
    found: dict[int, Origin] = field(default_factory=dict)
    """Origins by position in the graph that ran."""
    claimed: set[int] = field(default_factory=set)
    """Nodes of the file that have been assigned."""

    def run(self) -> tuple[Origin, ...]:
        self._match_same()
        self._match_names()
        self._match_values(is_exact=True)
        self._widen()
        self._match_values(is_exact=False)
        self._settle_others()
        nothing = Origin((), NONE)
        return tuple(self.found.get(position, nothing) for position in range(len(self.ran.nodes)))

    def _claim(self, position: int, nodes: Iterable[int], rule: str) -> None:
        self.found[position] = Origin(tuple(sorted(nodes)), rule)
        self.claimed.update(self.found[position].nodes)

    def _made_of_file(self, position: int) -> list[int]:
        """Return the nodes of the file that compute the same values as a node that ran."""
        return [self.file.makers[name] for name in self.ran.gives[position] if name in self.file.makers]

    def _match_same(self) -> None:
        for position, node in enumerate(self.ran.nodes):
            for maker in self._made_of_file(position)[:1]:
                origin = self.file.nodes[maker]
                if (origin.op_type, origin.domain) == (node.op_type, node.domain):
                    self._claim(position, [maker], SAME)

    def _match_names(self) -> None:
        """Match nodes by their own names if all their values are new."""
        own = {node.name: node.position for node in self.file.nodes if node.name}
        # A node in another layout has the name of its value; all other nodes have those of nodes.
        by_value, by_node = own | self.file.makers, self.file.makers | own
        for position, node in enumerate(self.ran.nodes):
            if position in self.found or self._made_of_file(position) or not self.ran.gives[position]:
                continue
            names = by_value if node.domain == _LAYOUT else by_node
            for origin in find_beginnings(node.name.removeprefix(_WIDENED), names):
                # A claimed node may occur twice, but one with another operator must belong to another node.
                if origin not in self.claimed or self.file.nodes[origin].op_type == node.op_type:
                    self._claim(position, [origin], NAMED)
                    break

    def _match_values(self, *, is_exact: bool) -> None:
        """Match nodes that compute a value of the file to the nodes before it; exact if all their inputs are known."""
        known: dict[int, frozenset[str]] = {}
        for position in range(len(self.ran.nodes)):
            known[position] = self._known_inputs(position, known)
            if position in self.found:
                continue
            if is_exact and not all(map(self._is_known, self.ran.reads[position])):
                continue
            region = self._region(self._made_of_file(position), known[position])
            if region:
                self._claim(position, self._deciding_nodes(region, self.ran.nodes[position].op_type), VALUES)

    def _deciding_nodes(self, region: set[int], op_type: str) -> set[int]:
        """Return the nodes that decide a kernel's group: without those that cost nothing, unless there is no other."""
        products = _PRODUCTS.get(op_type, frozenset())
        has_product = any(self.file.nodes[n].op_type in products for n in region)
        return {n for n in region if not self._is_free(n, has_product=has_product)} or region

    def _is_free(self, node: int, *, has_product: bool) -> bool:
        """Whether a node passes on its input, is absorbed by a product, or only computes with quantization scales."""
        op_type = self.file.nodes[node].op_type
        if op_type in _FREE or (has_product and op_type in _ABSORBED):
            return True
        before = [name for name in self.file.reads[node] if name in self.file.makers]
        return bool(before) and all(self._is_scale(name) for name in before)

    def _is_scale(self, name: str) -> bool:
        maker = self.file.nodes[self.file.makers[name]]
        return maker.op_type == "DynamicQuantizeLinear" and name in maker.outputs[1:]

    def _is_known(self, name: str) -> bool:
        return self.file.is_computed(name) or not self.ran.is_computed(name)

    def _widen(self) -> None:
        """Extend nodes found by name to the nodes before and after the value that they are named after.

        A convolution in another layout has the name of one value: it computes the product before that, and perhaps the
        sum and the activation after it.
        """
        by_name = [position for position, origin in self.found.items() if origin.rule == NAMED]
        for position in by_name:
            self._claim(position, self._back_to_operator(position), NAMED)
        last = {
            n: position
            for position in by_name
            if self._is_rewritten(position)
            for n in self.found[position].nodes
        }
        for node in self.file.nodes:
            place = node.position
            if place in self.claimed or any(map(self._is_computed_apart, self.file.gives[place])):
                continue
            followed = [last.get(maker, -1) for maker in self.file.before(place)]
            if followed and min(followed) >= 0:
                last[place] = max(followed)
                self._claim(last[place], (*self.found[last[place]].nodes, place), NAMED)

    def _is_computed_apart(self, name: str) -> bool:
        """Whether a node that ran computes a value, and does not only restore the file's layout."""
        maker = self.ran.makers.get(name)
        return maker is not None and self.ran.nodes[maker].op_type != "ReorderOutput"

    def _is_rewritten(self, position: int) -> bool:
        """Whether a node found by name has another operator than the node it is named after."""
        node, origin = self.ran.nodes[position], self.file.nodes[self.found[position].nodes[-1]]
        return (node.op_type, node.domain) != (origin.op_type, origin.domain)

    def _back_to_operator(self, position: int) -> list[int]:
        """Return the named node, and those in a row before it, up to the one with the operator that ran."""
        row = list(self.found[position].nodes)
        while self.file.nodes[row[-1]].op_type != self.ran.nodes[position].op_type:
            before = [maker for maker in self.file.before(row[-1]) if maker not in self.claimed]
            if len(before) != 1 or len(row) == _LONGEST_ROW:
                return row[:1]
            row += before
        return row

    def _known_inputs(self, position: int, before: Mapping[int, frozenset[str]]) -> frozenset[str]:
        """Return the nearest values of the file that a node reads, directly or through unassigned nodes."""
        names: set[str] = set()
        for name in self.ran.reads[position]:
            maker = self.ran.makers.get(name)
            if self.file.is_computed(name) or maker is None or maker in self.found:
                names.add(name)
            elif len(names) < _MOST_ENDS:
                names |= before.get(maker, frozenset())
        return frozenset(names)

    def _region(self, ends: Iterable[int], starts: frozenset[str]) -> set[int]:
        """Return the file's nodes on paths from known values to `ends`, without assigned nodes.

        Nodes computed from stored tensors alone are on no path; they are returned only if there are no other nodes.
        """
        back = self._follow_back(ends, starts)
        first = [
            node
            for node in back
            if any(name in starts and self.ran.is_computed(name) for name in self.file.reads[node])
            or any(maker in self.claimed for maker in self.file.before(node))
        ]
        reached, stack = set(first), first
        while stack:
            for node in self.file.after(stack.pop()):
                if node in back and node not in reached:
                    reached.add(node)
                    stack.append(node)
        return reached or back

    def _follow_back(self, ends: Iterable[int], starts: frozenset[str]) -> set[int]:
        stack = [end for end in ends if end not in self.claimed]
        seen = set(stack)
        while stack:
            for name in self.file.reads[stack.pop()]:
                maker = self.file.makers.get(name)
                if (
                    maker is not None
                    and name not in starts
                    and maker not in seen
                    and maker not in self.claimed
                ):
                    seen.add(maker)
                    stack.append(maker)
            if len(seen) > _MOST_NODES:
                return set()
        return seen

    def _settle_others(self) -> None:
        """Assign inserted nodes: to the one node that follows them, else to the nodes before them."""
        before, after = self._ends(self.ran.before, +1), self._ends(self.ran.after, -1)
        for position in range(len(self.ran.nodes)):
            if position in self.found:
                continue
            made = self._made_of_file(position)
            serves = made or (
                after[position] if len(after[position]) == 1 else before[position] or after[position]
            )
            if serves:
                self.found[position] = Origin(tuple(sorted(set(serves))), BETWEEN)

    def _ends(self, step: Callable[[int], list[int]], direction: int) -> dict[int, tuple[int, ...]]:
        """Return, for each unassigned node, the nodes of the file that the nearest assigned ones compute."""
        found: dict[int, tuple[int, ...]] = {}
        for position in range(len(self.ran.nodes))[::direction]:
            if position in self.found:
                continue
            ends: dict[int, None] = {}
            for other in step(position):
                ends.update(
                    dict.fromkeys(self.found[other].nodes if other in self.found else found.get(other, ()))
                )
            found[position] = tuple(ends)[:_MOST_ENDS]
        return found


_JOINT = re.compile(r"[_/:-]+(?=[A-Za-z])")  # a number distinguishes names of the file


def find_beginnings(name: str, names: Mapping[str, int]) -> Iterator[int]:
    """Yield the positions of the names that a name begins with, before the runtime's suffix, the longest first.

    >>> list(find_beginnings("relu/sum_nchwc", {"relu": 4, "relu/sum": 7}))
    [7, 4]
    """
    ends = [len(name), *(joint.start() for joint in reversed(list(_JOINT.finditer(name))))]
    yield from (names[name[:end]] for end in ends if end and name[:end] in names)


COMPILED = "provenance:compiled-part"
"""Rule: onnxruntime reports the nodes that a provider has compiled to one kernel."""


def trace_compiled(
    file: Model, kernels: Sequence[Kernel], assigned: Sequence[tuple[str, tuple[str, ...]]]
) -> list[Origin | None]:
    """Return the nodes of the file that each kernel computes, if the graph that ran is not available.

    A provider that compiles parts of the graph runs each part as one kernel, in order, if there are as many kernels as
    parts. Other kernels are matched by the names of their nodes.

    Args:
        file: the file's model.
        kernels: the kernels that ran.
        assigned: (provider, names of its nodes) of each part of the graph that a provider took.
    """
    names = {node.name: node.position for node in file.graphs[0].nodes if node.name}
    by_name = [next(find_beginnings(kernel.name, names), None) for kernel in kernels]
    compiled = Counter(
        kernel.provider for kernel, place in zip(kernels, by_name, strict=True) if place is None
    )
    parts: dict[str, list[tuple[int, ...]]] = defaultdict(list)
    for provider, members in assigned:
        parts[provider].append(tuple(sorted({names[name] for name in members if name in names})))
    turns = {provider: iter(found) for provider, found in parts.items() if len(found) == compiled[provider]}
    origins: list[Origin | None] = []
    for kernel, place in zip(kernels, by_name, strict=True):
        nodes = next(turns.get(kernel.provider, iter(())), ()) if place is None else (place,)
        origins.append(Origin(nodes, COMPILED if place is None else NAMED) if nodes else None)
    return origins


Membership = Mapping[int, tuple[str, ...]]
"""Groups of each node of the main graph, by position: one for keys, any number for the user's own groups."""

_FEWEST_TO_BATCH = 16

_STUDENT_95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""Standard errors on either side of a mean that contain it in 95 of 100 cases, for 2 runs, 3 runs and so on."""


def find_membership(ledger: Ledger, grouping: Grouping, own: OwnGroups | None = None) -> Membership:
    """Return the groups of the nodes of the main graph: kernels run there, and include those of nested graphs.

    Args:
        ledger: the account of the model.
        grouping: by keys, or by `own`.
        own: the user's own groups; None if `grouping` is by keys.

    Raises:
        UsageError: the keys do not cover nodes.
    """
    graph = ledger.model.graphs[0]
    if own is not None:
        scopes = {
            scope: tuple(find_groups([scope], own.patterns, own.match))
            for scope in set(ledger.node_scopes.values())
        }
        scopes[""] = scopes.get("", ())
        return {
            node.position: scopes[ledger.node_scopes[node.place]] if node.place in ledger.node_scopes else ()
            for node in graph.nodes
        }
    nodes = None if grouping.by == ACCOUNTS else label_members(ledger, grouping.by, grouping.depth).nodes
    if nodes is None:
        raise UsageError(
            f"--by {grouping.by}: groups no nodes, and these take the time; use scope, block, stage or op"
        )
    return {node.position: (" / ".join(nodes[node.place]),) for node in graph.nodes}


def match_kernels(kernels: Sequence[Kernel], ran: Sequence[Node]) -> list[int | None]:
    """Return each kernel's node in the graph that ran, by position; None if unknown.

    Names of nodes are unique there, or empty. Kernels without a name are matched by order: they run as nodes are saved.
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
    """Match the kernels and the nodes of each operator in order, if there are equally many."""
    counts, wanted = Counter(op for op, _ in kernels), Counter(op for op, _ in nodes)
    waiting: dict[str, list[int]] = defaultdict(list)
    for op_type, position in reversed(nodes):
        waiting[op_type].append(position)
    return {i: waiting[op_type].pop() for op_type, i in kernels if counts[op_type] == wanted[op_type]}


def time_kernels(
    kernels: Sequence[Kernel],
    times: Sequence[float],
    origins: Sequence[Origin | None],
    membership: Membership,
) -> tuple[KernelTime, ...]:
    """Return each kernel with its mean time in ms, and the groups of the nodes that it computes."""
    timed = []
    for kernel, ms, origin in zip(kernels, times, origins, strict=True):
        groups = _groups_of(origin, membership)
        timed.append(
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
    return tuple(timed)


def _groups_of(origin: Origin | None, membership: Membership) -> tuple[tuple[str, ...], bool]:
    """Return the groups of an origin's nodes, and whether different nodes are in different ones.

    A node without a scope does not count next to others: nothing says that it belongs elsewhere.
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


class Split(Frozen):
    """A profiled run without its overhead, in ms: parts - overlap + ungrouped + unattributed."""

    parts: tuple[TimedGroup, ...]
    ungrouped: TimedGroup | None
    """None if the groups are keys'."""
    overlap_ms: float
    unattributed_ms: float


def split_time(
    kernels: Sequence[KernelTime], runs: npt.NDArray[np.float64], grouping: Grouping, *, is_own: bool = False
) -> Split:
    """Sum up the kernels of each group.

    Args:
        kernels: kernels, each with its groups.
        runs: milliseconds of each kernel in each run, (runs, kernels).
        grouping: the groups; each gets a part, even without kernels.
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
) -> TimedGroup:
    totals = runs[:, columns].sum(axis=1)
    return TimedGroup(group, float(totals.mean()), len(columns), across, _error(totals))


def _error(totals: npt.NDArray[np.float64]) -> float:
    """Return half the width of the mean's confidence interval; for a single run, which gives no estimate, its time.

    Consecutive runs are similar, because a disturbance lasts longer than one run. With enough runs, means of batches
    serve as independent samples.
    """
    samples = totals
    if len(totals) >= _FEWEST_TO_BATCH:
        samples = np.array([batch.mean() for batch in np.array_split(totals, math.isqrt(len(totals)))])
    freedom = len(samples) - 1
    if not freedom:
        return float(totals[0])
    factor = _STUDENT_95[freedom - 1] if freedom <= len(_STUDENT_95) else 1.96 + 2.5 / freedom
    return factor * float(samples.std(ddof=1)) / math.sqrt(len(samples))
