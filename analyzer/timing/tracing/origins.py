"""The graph that ran + the graph of the file -> which nodes of the file each node that ran computes.

A runtime fuses nodes, inserts some and drops others; what it keeps are names: of the values that are still computed,
and mostly of nodes. What lies between two values that both graphs have is found by following the file's graph.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from analyzer.model import Model
from analyzer.timing.tracing.sides import Side

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

_LAYOUT = "com.microsoft.nchwc"
_WIDENED = "InsertedPrecisionFreeCast_"
"""What onnxruntime puts before the name of a float16 value that it computes in float32 on a CPU."""

_FREE = frozenset({"Identity", "Dropout", "QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"})
"""Operators that pass on what they read, in another precision at most: beside others they decide nothing."""

_PRODUCTS = {
    "FusedMatMul": frozenset({"MatMul", "FusedMatMul"}),
    "DynamicQuantizeMatMul": frozenset({"MatMulInteger"}),
    "MatMulIntegerToFloat": frozenset({"MatMulInteger"}),
}
"""Operators that are a product of the file with a factor, turned operands, another type of its result."""

_ABSORBED = frozenset({"Transpose", "Mul", "Div", "Cast"})
"""What such an operator does besides its product, at no cost that counts."""

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
    of_file = Side.of(file, {})
    own = {name for node in of_file.nodes for name in node.outputs}
    aliases = {_WIDENED + name: name for name in own if _WIDENED + name not in own}
    return _Search(of_file, Side.of(ran, aliases)).run()


@dataclass(slots=True)
class _Search:
    """What is settled so far. Strong evidence goes first, and what it claims is nobody else's."""

    file: Side
    ran: Side
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
                if (origin.op_type, origin.domain) == (node.op_type, node.domain):
                    self._claim(position, [maker], SAME)

    def _match_names(self) -> None:
        """Nodes whose values are all new, by their own names."""
        own = {node.name: node.position for node in self.file.nodes if node.name}
        # What is in another layout bears the name of its value, all else that of its node.
        by_value, by_node = own | self.file.makers, self.file.makers | own
        for position, node in enumerate(self.ran.nodes):
            if position in self.found or self._made_of_file(position) or not self.ran.gives[position]:
                continue
            names = by_value if node.domain == _LAYOUT else by_node
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
                self._claim(position, self._telling(region, self.ran.nodes[position].op_type), VALUES)

    def _telling(self, region: set[int], op_type: str) -> set[int]:
        """The nodes that decide whose a kernel is: without those that cost it nothing, unless there is no other."""
        wanted = _PRODUCTS.get(op_type, frozenset())
        has_product = any(self.file.nodes[n].op_type in wanted for n in region)
        return {n for n in region if not self._is_free(n, has_product=has_product)} or region

    def _is_free(self, node: int, *, has_product: bool) -> bool:
        """Whether a node passes on what it reads, or is absorbed, or computes but the scale of what was quantized."""
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
            if place in self.claimed or any(map(self._is_computed_apart, self.file.gives[place])):
                continue
            followed = [last.get(maker, -1) for maker in self.file.before(place)]
            if followed and min(followed) >= 0:
                last[place] = max(followed)
                self._claim(last[place], (*self.found[last[place]].nodes, place), NAMED)

    def _is_computed_apart(self, name: str) -> bool:
        """Whether a node that ran computes a value, and does not only turn it into the layout of the file."""
        maker = self.ran.makers.get(name)
        return maker is not None and self.ran.nodes[maker].op_type != "ReorderOutput"

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
