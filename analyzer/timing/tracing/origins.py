"""The graph that ran + the graph of the file -> which nodes of the file each node that ran computes.

A runtime fuses nodes, inserts some and drops others; what it keeps are names: of the values that are still computed,
and mostly of nodes. What lies between two values that both graphs have is found by following the file's graph.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from analyzer.model import Graph, Model, Node

__all__ = ["BETWEEN", "NAMED", "NONE", "SAME", "VALUES", "Origin", "find_beginnings", "find_origins"]

SAME = "name:same-node"
"""The node is there as it was: the same operator computes the same value."""
NAMED = "name:node"
"""Its name is that of a node or a value, with what the runtime put behind it."""
VALUES = "structure:values"
"""It computes a value of the file: it stands for what lies between the values that it reads and that one."""
BETWEEN = "structure:between"
"""It was put between others: it stands for what lies between these, or else serves the one that reads it."""
NONE = "none"

_WIDENED = "InsertedPrecisionFreeCast_"
"""What onnxruntime puts before the name of a float16 value that it computes in float32 on a CPU."""

_MOST_NODES = 20_000
"""Nodes that one search looks at; what lies further apart is not told."""
_LONGEST_ROW = 8
_MOST_ENDS = 64
"""Nodes around an inserted one that are kept."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Nodes of the file's main graph, by position, that a node which ran computes or serves; sorted."""

    nodes: tuple[int, ...]
    rule: str


def find_origins(file: Model, ran: Model) -> tuple[Origin, ...]:
    """For each node of the graph that ran, in its order, the nodes of the file that it computes."""
    of_file = _Side.of(file, {})
    own = {name for node in of_file.nodes for name in node.outputs}
    aliases = {_WIDENED + name: name for name in own if _WIDENED + name not in own}
    return _Search(of_file, _Side.of(ran, aliases)).run()


@dataclass(slots=True)
class _Side:
    """A main graph: who computes a value, and who reads it, in nested graphs too."""

    nodes: Sequence[Node]
    inputs: frozenset[str]
    reads: list[tuple[str, ...]] = field(default_factory=list)
    """Per node the values that it reads, with those that its nested graphs take from around them."""
    gives: list[tuple[str, ...]] = field(default_factory=list)
    """Per node the values that it computes."""
    makers: dict[str, int] = field(default_factory=dict)
    readers: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))

    @classmethod
    def of(cls, model: Model, aliases: Mapping[str, str]) -> _Side:
        graph = model.graphs[0]
        captured = _captured(model.graphs)
        side = cls(graph.nodes, frozenset((*graph.inputs, *graph.overridable)))
        for node in graph.nodes:
            names = (name for name in (*node.inputs, *captured.get(node.position, ())) if name)
            reads = tuple(dict.fromkeys(aliases.get(name, name) for name in names))
            gives = tuple(aliases.get(name, name) for name in node.outputs if name)
            side.reads.append(reads)
            # What is stored is not computed; and a value in another precision is computed where the value is.
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
        )  # of an inserted Cast, whose value has the same name
        return [reader for name in names for reader in self.readers.get(name, ()) if reader != position]


def _captured(graphs: Sequence[Graph]) -> dict[int, list[str]]:
    """For each node of the main graph, the names that its nested graphs read and do not define themselves."""
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


@dataclass(slots=True)
class _Search:
    """What is settled so far. Strong evidence goes first, and what it claims is nobody else's."""

    file: _Side
    ran: _Side
    found: dict[int, Origin] = field(default_factory=dict)
    """By position in the graph that ran."""
    claimed: set[int] = field(default_factory=set)
    """Nodes of the file that are settled."""

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
        """The nodes of the file that compute what a node which ran computes."""
        return [self.file.makers[name] for name in self.ran.gives[position] if name in self.file.makers]

    def _match_same(self) -> None:
        for position, node in enumerate(self.ran.nodes):
            for maker in self._made_of_file(position)[:1]:
                origin = self.file.nodes[maker]
                if (origin.op_type, origin.domain) == (node.op_type, node.domain) and self._reads_alike(
                    self.file.reads[maker], self.ran.reads[position]
                ):
                    self._claim(position, [maker], SAME)

    def _reads_alike(self, of_file: Sequence[str], of_ran: Sequence[str]) -> bool:
        """Whether every value of the file that a node reads is one that its original reads too."""
        return all(name in of_file or name not in self.file.makers for name in of_ran)

    def _match_names(self) -> None:
        """Nodes whose values are all new, by their own names."""
        names = dict(self.file.makers)
        names.update((node.name, node.position) for node in self.file.nodes if node.name)
        for position, node in enumerate(self.ran.nodes):
            if position in self.found or self._made_of_file(position) or not self.ran.gives[position]:
                continue
            for origin in find_beginnings(node.name.removeprefix(_WIDENED), names):
                # What is settled may be there twice; a node with another operator must be somebody else's.
                if origin not in self.claimed or self.file.nodes[origin].op_type == node.op_type:
                    self._claim(position, [origin], NAMED)
                    break

    def _match_values(self, *, is_exact: bool) -> None:
        """Nodes that compute a value of the file, by what lies before it; exact where all that they read is known."""
        known: dict[int, frozenset[str]] = {}
        for position in range(len(self.ran.nodes)):
            known[position] = self._known_inputs(position, known)
            if position in self.found:
                continue
            if is_exact and not all(map(self._is_known, self.ran.reads[position])):
                continue
            region = self._region(self._made_of_file(position), known[position])
            if region:
                self._claim(position, region, VALUES)

    def _is_known(self, name: str) -> bool:
        return self.file.is_computed(name) or not self.ran.is_computed(name)

    def _widen(self) -> None:
        """Give nodes found by name what lies before the value that they bear the name of, and what follows it.

        A convolution in another layout bears the name of one value: it computes the product before that, and perhaps
        the sum and the activation after it.
        """
        named = [position for position, origin in self.found.items() if origin.rule == NAMED]
        for position in named:
            self._claim(position, self._back_to_operator(position), NAMED)
        last = {
            n: position
            for position in named
            if self._is_rewritten(position)
            for n in self.found[position].nodes
        }
        for node in self.file.nodes:
            place = node.position
            if place in self.claimed or any(name in self.ran.makers for name in self.file.gives[place]):
                continue
            followed = [last.get(maker, -1) for maker in self.file.before(place)]
            if followed and min(followed) >= 0:
                last[place] = max(followed)
                self._claim(last[place], (*self.found[last[place]].nodes, place), NAMED)

    def _is_rewritten(self, position: int) -> bool:
        """Whether a node found by name has another operator than the node that bears the name."""
        node, origin = self.ran.nodes[position], self.file.nodes[self.found[position].nodes[-1]]
        return (node.op_type, node.domain) != (origin.op_type, origin.domain)

    def _back_to_operator(self, position: int) -> list[int]:
        """The node that a name tells, and those in a row before it up to the one with the operator that ran."""
        row = list(self.found[position].nodes)
        while self.file.nodes[row[-1]].op_type != self.ran.nodes[position].op_type:
            before = [maker for maker in self.file.before(row[-1]) if maker not in self.claimed]
            if len(before) != 1 or len(row) == _LONGEST_ROW:
                return row[:1]
            row += before
        return row

    def _known_inputs(self, position: int, before: Mapping[int, frozenset[str]]) -> frozenset[str]:
        """The nearest values of the file that a node reads, or those before it which nobody claims."""
        names: set[str] = set()
        for name in self.ran.reads[position]:
            maker = self.ran.makers.get(name)
            if self.file.is_computed(name) or maker is None or maker in self.found:
                names.add(name)
            elif len(names) < _MOST_ENDS:
                names |= before.get(maker, frozenset())
        return frozenset(names)

    def _region(self, ends: Iterable[int], starts: frozenset[str]) -> set[int]:
        """Nodes of the file on the ways from values to `ends`, without those that are settled.

        What is computed from stored tensors alone is on no way, and is left out unless that is all there is.
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
        """Nodes that were inserted: among what they stand between, else with the one they serve."""
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
        """For each node that is not settled, the nodes of the file that the nearest settled ones compute."""
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


_JOINT = re.compile(r"[_/:-]+(?=[A-Za-z])")  # a number tells names of the file apart


def find_beginnings(name: str, names: Mapping[str, int]) -> Iterator[int]:
    """The names of the file that a name begins with, before what the runtime puts behind, the longest first.

    >>> list(find_beginnings("relu/sum_nchwc", {"relu": 4, "relu/sum": 7}))
    [7, 4]
    """
    ends = [len(name), *(joint.start() for joint in reversed(list(_JOINT.finditer(name))))]
    yield from (names[name[:end]] for end in ends if end and name[:end] in names)
