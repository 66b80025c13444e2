"""Graph -> its layers that are applied to zeros which the file stores, as a decoder's first layer is to its queries.

Such a layer's weight has no effect, in PyTorch as in the file. In DETR and its successors the queries are zeros before
the first layer (Carion et al. 2020, arXiv:2005.12872, section 3.2), and the attention's result is added to them. That
sum tells them from a layer whose input was replaced: those zeros are added to nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping

from analyzer.model import Graph, Node, Place, StoredTensor
from analyzer.model.content import Array
from analyzer.model.dependence import LAYERS
from analyzer.model.wiring import Provider

_MOST_STEPS = 60
"""Most nodes back from an operand to the stored value that is moved or repeated."""
_REPEATS = frozenset(
    {"Cast", "CastLike", "Expand", "Identity", "Reshape", "Squeeze", "Tile", "Transpose", "Unsqueeze"}
)
"""Operators that repeat or move what they read."""


def find_beginnings(
    graph: Graph,
    providers: Mapping[str, Provider],
    known: Callable[[str], Array | None],
    is_learned: Callable[[StoredTensor], bool],
) -> frozenset[Place]:
    """Return the nodes that apply a parameter to stored zeros, if the same zeros, or as many, are added to a result.

    Args:
        graph: the graph.
        providers: providers of the graph's values.
        known: function that returns the numbers of a stored value that is no parameter; a single number if all its
            elements are equal.
        is_learned: whether a stored tensor is a parameter.
    """

    def zeros_at(name: str) -> tuple[str, Provider | None] | None:
        first, provider = _before(providers, name, _REPEATS)
        value = known(first) if first else None
        return None if value is None or value.any() else (first, provider)

    found = []
    for node in graph.nodes:
        if node.op_type not in LAYERS or not node.is_standard or len(node.inputs) < 2:
            continue
        zeros = zeros_at(node.inputs[0])
        _, weight = _before(providers, node.inputs[1], {"Transpose"}) if zeros is not None else ("", None)
        if zeros is not None and isinstance(weight, StoredTensor) and is_learned(weight):
            found.append((node.place, zeros))
    if not found:
        return frozenset()
    added = [zeros for name in _added(graph) for zeros in [zeros_at(name)] if zeros is not None]
    names = {name for name, _ in added}
    shapes = {_shape(provider) for _, provider in added} - {None}
    return frozenset(
        place for place, (name, provider) in found if name in names or _shape(provider) in shapes
    )


def _added(graph: Graph) -> Iterator[str]:
    """Yield the operands of all sums."""
    for node in graph.nodes:
        if node.op_type in ("Add", "Sum") and node.is_standard:
            yield from node.inputs


def _shape(provider: Provider | None) -> tuple[int, ...] | None:
    """Return the shape of a stored tensor of several axes; an exporter stores the zeros once for each use."""
    return provider.shape if isinstance(provider, StoredTensor) and len(provider.shape) > 1 else None


def _before(
    providers: Mapping[str, Provider], name: str, passed: Container[str]
) -> tuple[str, Provider | None]:
    """Return the value before the nodes that repeat or move it, and its provider."""
    for _ in range(_MOST_STEPS):
        maker = providers.get(name)
        if not isinstance(maker, Node) or maker.op_type not in passed or not maker.is_standard:
            break
        name = maker.inputs[0]
    return name, providers.get(name)
