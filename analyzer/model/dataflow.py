"""Model + wiring -> numbered nodes, the data flow between them, and the nodes that only prepare stored tensors."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping

from analyzer.model import Graph, GraphPath, Model, Node, Place, StoredTensor
from analyzer.model.operators import MEASURES
from analyzer.model.wiring import GRAPH_INPUT, STORED, Wiring
from analyzer.records import Frozen


class Dataflow(Frozen):
    """Nodes of a model, numbered in file order: bodies come after the nodes that hold them."""

    nodes: tuple[Node, ...]
    numbers: Mapping[GraphPath, range]
    """Numbers of each graph's nodes, by position."""
    sources: list[list[int]]
    """For each node, the earlier nodes whose values it computes with, without those that only prepare stored tensors.
    """
    targets: list[list[int]]
    """For each node, the later nodes that compute with its values."""
    prepares: bytearray
    """Whether a node reads only stored tensors, or values prepared from these: it transposes or decodes a weight."""
    measures: bytearray
    """Whether a node takes only the size of a value."""
    holders: Mapping[GraphPath, int]
    """Number of the node that holds each nested graph."""
    wiring: Wiring

    def reads(self, tensor: StoredTensor) -> list[tuple[int, int]]:
        """Return the nodes that read a stored tensor, and the input at which each does, in file order."""
        numbers = self.numbers
        readers = self.wiring.readers(tensor, inlined=False)
        return [(numbers[node.graph_path][node.position], slot) for node, slot in readers]


def follow_data(model: Model, wiring: Wiring) -> Dataflow:
    """Number the nodes of a model and find the data flow between them; values read too early are ignored."""
    nodes, numbers = tuple(model.nodes()), model.numbers()
    flow = Dataflow(
        nodes=nodes,
        numbers=numbers,
        sources=[[] for _ in nodes],
        targets=[[] for _ in nodes],
        prepares=bytearray(len(nodes)),
        measures=bytearray(node.op_type in MEASURES for node in nodes),
        holders={
            graph.path: numbers[parent[0]][parent[1]] for graph, parent in _nested_graphs(model, numbers)
        },
        wiring=wiring,
    )
    holding = frozenset(flow.holders.values())
    for graph in model.graphs:
        _connect(graph, wiring, flow, holding)
    return flow


def _nested_graphs(model: Model, numbers: Mapping[GraphPath, range]) -> Iterator[tuple[Graph, Place]]:
    """Yield the nested graphs whose holder node exists, with its place."""
    for graph in model.graphs:
        parent = graph.parent
        if parent is not None and parent[1] < len(numbers.get(parent[0], ())):
            yield graph, parent


def _connect(graph: Graph, wiring: Wiring, flow: Dataflow, holding: Container[int]) -> None:
    numbers, prepares, measures = flow.numbers[graph.path], flow.prepares, flow.measures
    sources, targets = flow.sources, flow.targets
    first = numbers.start
    for number, input_makers in zip(numbers, wiring.makers[graph.path], strict=True):
        is_fixed = bool(input_makers) and number not in holding
        is_measure = measures[number]
        for slot, maker in enumerate(input_makers):
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
    """Return the number of the producer of a node's input, in any graph.

    Else return STORED (also for no input) or GRAPH_INPUT.
    """
    node = flow.nodes[number]
    name = node.inputs[slot]
    provider = wiring.look_up(node.graph_path, name) if name else None
    if isinstance(provider, Node):
        return flow.numbers[provider.graph_path][provider.position]
    return STORED if isinstance(provider, StoredTensor) or not name else GRAPH_INPUT
