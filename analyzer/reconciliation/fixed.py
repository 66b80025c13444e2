"""Which nodes compute of stored values alone: what they give is the same in every run."""

from __future__ import annotations

from analyzer.model import Node, Place
from analyzer.model.wiring import GraphInput, Wiring
from analyzer.records import Mutable, field


class Fixed(Mutable):
    """Whether no input of the model has a part in what a node computes; each node is looked at once."""

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
            elif top.place in opened:  # what is still not known of those above it is in a circle
                known[top.place] = all(known.get(each.place, False) for each in opened[top.place])
            elif (above := self._above(top)) is None:
                known[top.place] = False
            else:
                opened[top.place] = above
                waiting += [each for each in above if each.place not in known and each.place not in opened]
        return known[node.place]

    def _above(self, node: Node) -> list[Node] | None:
        """The nodes whose values a node reads; None where it reads an input of the model, or holds graphs."""
        wiring = self.wiring
        if node.place in wiring.nested or node.place in wiring.calls:
            return None
        waiting = [wiring.find(node.graph_path, name) for name in node.inputs if name]
        above: list[Node] = []
        seen: set[GraphInput] = set()
        while waiting:
            provider = waiting.pop()
            if isinstance(provider, Node):
                above.append(provider)
            elif isinstance(provider, GraphInput):
                given = [] if provider in seen else wiring.given(provider)
                if not given:
                    return None
                seen.add(provider)
                waiting += given
            elif provider is None:
                return None
        return above
