"""Model + wiring -> nodes by number, what flows between them, and which of them only prepare stored tensors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from analyzer.model import Graph, GraphPath, Key, Model, Node, Place
from analyzer.model.operators import MEASURES
from analyzer.model.wiring import NAMED, Wiring


@dataclass(frozen=True, slots=True)
class Dataflow:
    """Every node of a model under its number, in file order: bodies come after the nodes that hold them."""

    nodes: tuple[Node, ...]
    numbers: Mapping[Place, int]
    reads: Mapping[Key, list[tuple[int, int]]]
    """For each stored tensor, the nodes that read it and at which input, in file order."""
    sources: list[list[int]]
    """For each node, those whose values it computes with. They come before it; what only prepares is left out."""
    targets: list[list[int]]
    """For each node, those that compute with its values. They come after it."""
    prepares: bytearray
    """Whether all that a node reads is stored, or prepared from what is stored: a weight is turned, or decoded."""
    measures: bytearray
    """Whether a node takes from a value its size alone."""
    holders: Mapping[GraphPath, int]
    """The node that holds each nested graph."""


def follow_data(model: Model, wiring: Wiring) -> Dataflow:
    """Number the nodes of a model, and find what flows between them. A value that is read too early does not."""
    nodes = tuple(model.nodes())
    numbers = {(node.graph_path, node.position): number for number, node in enumerate(nodes)}
    flow = Dataflow(
        nodes=nodes,
        numbers=numbers,
        reads={
            tensor.key: [
                (numbers[node.graph_path, node.position], slot)
                for node, slot in wiring.readers(tensor, inlined=False)
            ]
            for tensor in model.tensors()
        },
        sources=[[] for _ in nodes],
        targets=[[] for _ in nodes],
        prepares=bytearray(len(nodes)),
        measures=bytearray(node.op_type in MEASURES for node in nodes),
        holders={graph.path: numbers[graph.parent] for graph in model.graphs if graph.parent in numbers},
    )
    makers: dict[GraphPath, dict[str, int]] = {}
    first = 0
    for graph in model.graphs:
        makers[graph.path] = _makers(graph, first)
        _connect(graph, wiring, flow, makers, first)
        first += len(graph.nodes)
    return flow


_STORED, _GIVEN = -1, -2
"""Stand for a value that is a stored tensor, and for one that the caller gives or nothing provides."""


def _makers(graph: Graph, first: int) -> dict[str, int]:
    """The number of the node that computes each value of a graph."""
    made = dict.fromkeys(graph.inputs, _GIVEN)
    for number, node in enumerate(graph.nodes, first):
        for name in node.outputs:
            made[name] = number
    for tensor in graph.tensors:
        if tensor.carrier in NAMED:
            made[tensor.name] = _STORED
    made[""] = _STORED  # an input that is left out
    return made


def _connect(
    graph: Graph, wiring: Wiring, flow: Dataflow, makers: Mapping[GraphPath, Mapping[str, int]], first: int
) -> None:
    own, prepares, measures = makers[graph.path], flow.prepares, flow.measures
    sources, targets = flow.sources, flow.targets
    holders = set(flow.holders.values())
    for number, node in enumerate(graph.nodes, first):
        is_fixed = bool(node.inputs) and number not in holders
        is_measure = measures[number]
        for name in node.inputs:
            maker = own[name] if name in own else _maker_around(graph.path, name, wiring, makers)
            if maker == _STORED:
                continue
            if maker < 0 or maker >= number:
                is_fixed = False
                continue
            is_prepared = prepares[maker]
            if not is_prepared:
                is_fixed = False
            if not is_measure and not measures[maker]:
                targets[maker].append(number)
                if not is_prepared:
                    sources[number].append(maker)
        prepares[number] = is_fixed


def _maker_around(
    path: GraphPath, name: str, wiring: Wiring, makers: Mapping[GraphPath, Mapping[str, int]]
) -> int:
    """What computes a value that belongs to a graph around this one."""
    place = wiring.place(path, name)
    return _GIVEN if place is None or place not in makers else makers[place][name]
