"""Node -> whether it computes from stored values alone, so that its outputs are the same in every run."""

from __future__ import annotations

from analyzer.model import Node, Place
from analyzer.model.wiring import GraphInput, Wiring
from analyzer.records import Mutable, field


class Fixed(Mutable):
    """Predicate: whether a node depends on no input of the model; each node is visited once."""

    wiring: Wiring
    _known: dict[Place, bool] = field(default_factory=dict)

    def __call__(self, node: Node) -> bool:
        known = self._known
        waiting = [node]
        opened: dict[Place, list[Node]] = {}
        while waiting:
            top = waiting[-1]
            if top.place in known:
                waiting.pop()
            elif top.place in opened:  # an upstream node that is still unknown is on a cycle
                known[top.place] = all(known.get(each.place, False) for each in opened[top.place])
            elif (upstream := self._find_upstream(top)) is None:
                known[top.place] = False
            else:
                opened[top.place] = upstream
                waiting += [each for each in upstream if each.place not in known and each.place not in opened]
        return known[node.place]

    def _find_upstream(self, node: Node) -> list[Node] | None:
        """Return the nodes whose outputs a node reads; None if it reads a model input, holds graphs, or is a call."""
        wiring = self.wiring
        if node.place in wiring.nested or node.place in wiring.calls:
            return None
        waiting = [wiring.find(node.graph_path, name) for name in node.inputs if name]
        upstream: list[Node] = []
        seen: set[GraphInput] = set()
        while waiting:
            provider = waiting.pop()
            if isinstance(provider, Node):
                upstream.append(provider)
            elif isinstance(provider, GraphInput):
                providers = [] if provider in seen else wiring.find_arguments(provider)
                if not providers:
                    return None
                seen.add(provider)
                waiting += providers
            elif provider is None:
                return None
        return upstream
