"""Values for the nodes of a model: a mapping by the nodes' places, stored as one list in node order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, ValuesView
from typing import TypeVar, overload

from analyzer.model import Model, Place

_Item = TypeVar("_Item")
_Default = TypeVar("_Default")

_NO_NODES = range(0)


class ByNode(Mapping[Place, _Item]):
    """Mapping from a node's place to a value; some nodes have none.

    A dict of a million places takes a second and 200 MB, and most callers go through the nodes in order.

    >>> from analyzer.model import Graph, Node
    >>> nodes = tuple(Node((), position, "Relu", "", "", (), ()) for position in range(2))
    >>> found = ByNode(Model("", (), 10, (), "", (Graph((), (), (), nodes, ()),)), ["encoder", None])
    >>> dict(found), found.get(((), 1))
    ({((), 0): 'encoder'}, None)
    """

    __slots__ = ("_count", "_graphs", "_numbers", "in_order")

    def __init__(self, model: Model, in_order: Sequence[_Item | None]) -> None:
        self.in_order = in_order
        """One item for each of `Model.nodes`; None for a node without a value."""
        self._graphs = model.graphs
        self._numbers = model.numbers()
        self._count: int | None = None

    def is_of(self, model: Model) -> bool:
        """Whether the mapping is for the nodes of this model."""
        return self._graphs is model.graphs

    def __getitem__(self, place: Place) -> _Item:
        found = self.get(place)
        if found is None:
            raise KeyError(place)
        return found

    @overload
    def get(self, place: Place, /) -> _Item | None: ...
    @overload
    def get(self, place: Place, /, default: _Item | _Default) -> _Item | _Default: ...
    def get(self, place: Place, /, default: _Default | None = None) -> _Item | _Default | None:
        path, position = place
        numbers = self._numbers.get(path, _NO_NODES)
        found = self.in_order[numbers[position]] if 0 <= position < len(numbers) else None
        return default if found is None else found

    def __contains__(self, place: object) -> bool:
        return isinstance(place, tuple) and self.get(place) is not None

    def __iter__(self) -> Iterator[Place]:
        places = (place for graph in self._graphs for place in graph.places())
        return (place for place, item in zip(places, self.in_order, strict=True) if item is not None)

    def __len__(self) -> int:
        if self._count is None:  # kept, because every truth test of the mapping asks for it
            self._count = sum(1 for item in self.in_order if item is not None)
        return self._count

    def values(self) -> ValuesView[_Item]:
        return _Values(self)


class _Values(ValuesView[_Item]):
    """Values, without a lookup for each place."""

    _mapping: ByNode[_Item]

    def __iter__(self) -> Iterator[_Item]:
        return (item for item in self._mapping.in_order if item is not None)


def in_order(model: Model, mapping: Mapping[Place, _Item]) -> Sequence[_Item | None]:
    """Return the value of each of a model's nodes, in node order; None for a node without one."""
    if isinstance(mapping, ByNode) and mapping.is_of(model):
        return mapping.in_order
    return [mapping.get(place) for place in model.places()]
