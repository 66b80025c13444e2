"""Nodes of a graph, each after those that compute what it reads: ONNX requires this order, some tools write another."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from analyzer.model import Graph, Node, Place
from analyzer.model.wiring import Wiring
from analyzer.records import replace


def sort_nodes(nodes: Sequence[Node], read: Sequence[Iterable[str]]) -> tuple[Sequence[Node], int]:
    """Return nodes in topological order, and the number of those in cycles, which come last; ties are in file order.

    Args:
        nodes: nodes of one graph.
        read: names that each of them reads, in the bodies inside it too.
    """
    makers = {name: number for number, node in enumerate(nodes) for name in node.outputs if name}
    if all(makers.get(name, -1) < number for number, names in enumerate(read) for name in names):
        return nodes, 0
    sources = [{makers[name] for name in names if name in makers} for names in read]
    readers: dict[int, list[int]] = defaultdict(list)
    for number, before in enumerate(sources):
        for source in before:
            readers[source].append(number)
    left = list(map(len, sources))
    ready = [number for number, count in enumerate(left) if not count]
    heapq.heapify(ready)
    order = []
    while ready:
        number = heapq.heappop(ready)
        order.append(number)
        for reader in readers[number]:
            left[reader] -= 1
            if not left[reader]:
                heapq.heappush(ready, reader)
    placed = set(order)
    cyclic = [number for number in range(len(nodes)) if number not in placed]
    return [nodes[number] for number in (*order, *cyclic)], len(cyclic)


def names_read(node: Node, nested: Mapping[Place, Sequence[Graph]]) -> Iterable[str]:
    """Return the names that a node and the bodies inside it read, some of them more than once."""
    bodies = nested.get(node.place)
    if bodies is None:
        return node.inputs
    found = list(node.inputs)
    for body in bodies:
        found += body.outputs
        for inner in body.nodes:
            found += names_read(inner, nested)
    return found


def sorted_graph(graph: Graph, wiring: Wiring) -> Graph:
    """Return a graph with its nodes in topological order; a node's `position` stays that of the file."""
    if not wiring.nested and wiring.is_in_order(graph.path):
        return graph
    nodes, _ = sort_nodes(graph.nodes, [names_read(node, wiring.nested) for node in graph.nodes])
    return graph if nodes is graph.nodes else replace(graph, nodes=tuple(nodes))
