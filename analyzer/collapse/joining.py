"""What crosses between groups -> what crosses between those that hold something learned, past the others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from analyzer.collapse.crossings import FLOW, READ, Crossings, Edges, Vertex, add, open_graphs
from analyzer.collapse.streams import Owner, Streams
from analyzer.errors import UsageError
from analyzer.group.keys import Label
from analyzer.model import Key, Node

__all__ = ["join_learned"]

_MOST = 2_000
"""Groups that can be joined: each may lead to every other."""

_ROUNDS = 16
"""Each follows what leads to what once through the model, in the order of its file; more than two are seldom needed."""

_Passing = dict[Vertex, dict[Key, Owner]]
"""Of each vertex, the values that it reads from what is left out, and whose data they hold."""


def join_learned(crossings: Crossings, labels: Collection[Label]) -> tuple[Edges, Collection[Vertex]]:
    """The edges between groups that hold something learned, with those groups, where all others are left out.

    Only data flow; what is computed from shapes and constants alone is none. What passes through the others makes an
    edge only where no other path leads there: a residual stream is not an edge from each layer to all later ones.

    Raises:
        UsageError: there are too many groups.
    """
    if len(labels) > _MOST:
        raise UsageError(
            f"--learned: {len(labels):,} groups, more than the {_MOST:,} that can be joined; "
            "use --all, or a smaller --depth"
        )
    crossings, kept = _adopt(crossings, {("group", label) for label in labels})
    sources, streams = _trace(crossings, kept)
    edges: Edges = {}
    passing: _Passing = defaultdict(dict)
    for target, key, provider in crossings.readings():
        if target[0] == "group" and target not in kept:
            continue
        content = streams.of(provider)
        for weight in sorted(content.weights):
            add(edges, crossings.owners[weight], target, READ, weight, crossings.entries[weight])
        if not content.data:
            continue
        if isinstance(provider, Node) and (source := crossings.group(provider.place)) in kept:
            add(edges, source, target, FLOW, key)
        else:
            passing[target][key] = content.data
    _add_passing(edges, sources, passing)
    crossings.add_copies(edges)
    return edges, kept


def _adopt(crossings: Crossings, learned: Collection[Vertex]) -> tuple[Crossings, Collection[Vertex]]:
    """Nodes elsewhere that compute with the learned tensors of these groups.

    One without a group of its own, as a quantizer leaves behind, is that of its weights. The group of any other is kept
    too, as that of an embedding which is tied to the head.
    """
    homes = dict(crossings.by_node)
    kept = set(learned)
    _, streams = _trace(crossings, learned)
    for place, weights in streams.appliers.items():
        owners = {crossings.owners[weight] for weight in weights}
        if len(owners) == 1 and all(text.startswith("[") for text in homes[place]):
            ((_, homes[place]),) = owners
        else:
            kept.add(crossings.group(place))
    return replace(crossings, by_node=homes), kept


def _trace(crossings: Crossings, kept: Collection[Vertex]) -> tuple[list[Vertex], Streams]:
    model = crossings.ledger.model
    given = [("input", part.path, name) for part in open_graphs(model) for name in part.inputs]
    sources: list[Vertex] = [*sorted(kept), *given]
    bits = {vertex: 1 << number for number, vertex in enumerate(sources)}
    groups = ((node.place, crossings.group(node.place)) for node in model.nodes())
    return sources, Streams(
        crossings.ledger,
        nodes={place: bits[group] for place, group in groups if group in kept},
        inputs={(path, name): bits["input", path, name] for _, path, name in given},
        holders=crossings.holders,
    )


def _add_passing(edges: Edges, sources: Sequence[Vertex], passing: _Passing) -> None:
    bits = {vertex: 1 << number for number, vertex in enumerate(sources)}
    leading: dict[Vertex, Owner] = defaultdict(int)
    for source, target, kind in list(edges):
        if kind == FLOW:
            leading[target] |= bits[source]
    direct = dict(leading)
    for target, values in passing.items():
        for owners in values.values():
            leading[target] |= owners & ~bits.get(target, 0)
    detours = _find_detours(sources, leading)
    for target, values in passing.items():
        needed = direct.get(target, 0) | leading[target] & ~detours[target]
        for key, owners in values.items():
            for number in _numbers(owners & needed):
                add(edges, sources[number], target, FLOW, key)


def _find_detours(sources: Sequence[Vertex], leading: Mapping[Vertex, Owner]) -> dict[Vertex, Owner]:
    """Of what leads to each vertex, what also leads there by way of something else that does.

    In a circle everything leads to everything, so nothing there is the way of anything else that is in it.
    """
    above = _find_all_above(sources, leading)
    around = [
        sum(1 << other for other in _numbers(mask) if above[other] >> number & 1) if mask >> number & 1 else 0
        for number, mask in enumerate(above)
    ]
    detours = dict.fromkeys(leading, 0)
    places = {vertex: number for number, vertex in enumerate(sources)}
    for target, owners in leading.items():
        circle = around[places[target]] if target in places else 0
        for number in _numbers(owners & ~circle):
            detours[target] |= above[number] & ~around[number]
    return detours


def _find_all_above(sources: Sequence[Vertex], leading: Mapping[Vertex, Owner]) -> list[Owner]:
    """For each source, everything that leads to it, near or far."""
    above = [0] * len(sources)
    places = {vertex: number for number, vertex in enumerate(sources)}
    order = [(places[vertex], owners) for vertex, owners in leading.items() if vertex in places]
    for _ in range(_ROUNDS):
        before = list(above)
        for number, owners in order:
            above[number] |= owners
            for other in _numbers(owners):
                above[number] |= above[other]
        if above == before:
            break
    return above


def _numbers(owners: Owner) -> Iterator[int]:
    """The numbers of the bits that are set."""
    while owners:
        lowest = owners & -owners
        yield lowest.bit_length() - 1
        owners ^= lowest
