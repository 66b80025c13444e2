"""A main graph -> who computes a value, and who reads it, in nested graphs too."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from analyzer.model import Graph, Model, Node

__all__ = ["Side"]


@dataclass(slots=True)
class Side:
    """A main graph, as far as it is asked who computes a value and who reads it."""

    nodes: Sequence[Node]
    inputs: frozenset[str]
    reads: list[tuple[str, ...]] = field(default_factory=list)
    """Per node the values that it reads, with those that its nested graphs take from around them."""
    gives: list[tuple[str, ...]] = field(default_factory=list)
    """Per node the values that it computes."""
    makers: dict[str, int] = field(default_factory=dict)
    readers: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))

    @classmethod
    def of(cls, model: Model, aliases: Mapping[str, str]) -> Side:
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
