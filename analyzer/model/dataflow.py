"""Model + wiring -> nodes by number, what flows between them, and which of them only prepare stored tensors."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping

from analyzer.model import Graph, GraphPath, Model, Node, Place, StoredTensor
from analyzer.model.operators import MEASURES
from analyzer.model.wiring import GIVEN, STORED, Wiring
from analyzer.records import Frozen


class Dataflow(Frozen):
    """Every node of a model under its number, in file order: bodies come after the nodes that hold them."""

    nodes: tuple[Node, ...]
    numbers: Mapping[GraphPath, range]
    """Of each graph those of its nodes, by position."""
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
    wiring: Wiring

    def reads(self, tensor: StoredTensor) -> list[tuple[int, int]]:
        """The nodes that read a stored tensor, and at which input, in file order."""
        numbers = self.numbers
        readers = self.wiring.readers(tensor, inlined=False)
        return [(numbers[node.graph_path][node.position], slot) for node, slot in readers]


def follow_data(model: Model, wiring: Wiring) -> Dataflow:
    """Number the nodes of a model, and find what flows between them. A value that is read too early does not."""
    nodes, numbers = tuple(model.nodes()), model.numbers()
    flow = Dataflow(
        nodes=nodes,
        numbers=numbers,
        sources=[[] for _ in nodes],
        targets=[[] for _ in nodes],
        prepares=bytearray(len(nodes)),
        measures=bytearray(node.op_type in MEASURES for node in nodes),
        holders={graph.path: numbers[parent[0]][parent[1]] for graph, parent in _held(model, numbers)},
        wiring=wiring,
    )
    holding = frozenset(flow.holders.values())
    for graph in model.graphs:
        _connect(graph, wiring, flow, holding)
    return flow


def _held(model: Model, numbers: Mapping[GraphPath, range]) -> Iterator[tuple[Graph, Place]]:
    """The nested graphs whose node is there."""
    for graph in model.graphs:
        parent = graph.parent
        if parent is not None and parent[1] < len(numbers.get(parent[0], ())):
            yield graph, parent


def _connect(graph: Graph, wiring: Wiring, flow: Dataflow, holding: Container[int]) -> None:
    numbers, prepares, measures = flow.numbers[graph.path], flow.prepares, flow.measures
    sources, targets = flow.sources, flow.targets
    first = numbers.start
    for number, made in zip(numbers, wiring.makers[graph.path], strict=True):
        is_fixed = bool(made) and number not in holding
        is_measure = measures[number]
        for slot, maker in enumerate(made):
            if maker == STORED:
                continue
            maker = maker + first if maker >= 0 else _maker_around(flow, wiring, number, slot)
            if maker == STORED:
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


def _maker_around(flow: Dataflow, wiring: Wiring, number: int, slot: int) -> int:
    """The number of the node of any graph that makes what a node reads; else STORED, also of nothing, or GIVEN."""
    node = flow.nodes[number]
    name = node.inputs[slot]
    provider = wiring.look_up(node.graph_path, name) if name else None
    if isinstance(provider, Node):
        return flow.numbers[provider.graph_path][provider.position]
    return STORED if isinstance(provider, StoredTensor) or not name else GIVEN
