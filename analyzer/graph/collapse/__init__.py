"""Ledger + the group of each entry and node -> networkx.MultiDiGraph of groups, and of the values between them.

Vertices are tuples: `("group", label)`; `("input", path, name)` and `("output", path, name)` of the model;
`("groups", name)`, `("inputs", path, name)` and `("outputs", path, name)` for several folded into one.
There is at most one edge of each kind from one vertex to another, and the kind is its key:

- `flow`: the target reads activations that nodes of the source compute;
- `read`: the target reads stored tensors that the source owns, for example a tied or shared weight;
- `copy`: the target stores copies of learned tensors that the source owns.

docs/graph.md lists the attributes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import networkx as nx

from analyzer.account.group import total_entries
from analyzer.account.group.keys import Label, Labels, label_order
from analyzer.account.group.patterns import UNGROUPED, Searcher, find_groups, list_names
from analyzer.account.ledger import Entry, Group, Ledger, Role
from analyzer.errors import UsageError
from analyzer.graph.collapse.crossings import (
    COPY,
    FLOW,
    READ,
    Crossings,
    Edge,
    Edges,
    Vertex,
    join_learned,
    open_graphs,
)
from analyzer.graph.collapse.folding import Folded, Layers, fold_groups, fold_names, recurs
from analyzer.model import GraphPath, Model, Place, label
from analyzer.model.operators import Kind, kind_of

__all__ = ["COPY", "FLOW", "READ", "Vertex", "collapse_graph", "label_own"]


def label_own(ledger: Ledger, patterns: Mapping[str, Searcher]) -> Labels:
    """Put every entry and node into the first group that matches it, else into `[ungrouped]`.

    A graph shows each of them once, so only the first of overlapping groups counts. A node matches by its scope.
    """
    scopes = {
        scope: _first_group([scope], patterns) if scope is not None else (UNGROUPED,)
        for scope in {ledger.node_scopes.get(node.place) for node in ledger.model.nodes()}
    }
    return Labels(
        by="group",
        depth=None,
        entries=tuple(_first_group(list_names(entry), patterns) for entry in ledger.entries),
        nodes={node.place: scopes[ledger.node_scopes.get(node.place)] for node in ledger.model.nodes()},
    )


def _first_group(texts: list[str], patterns: Mapping[str, Searcher]) -> Label:
    found = find_groups(texts, patterns, "first")
    return (found[0] if found else UNGROUPED,)


def collapse_graph(
    ledger: Ledger, labels: Labels, *, fold: bool = False, learned: bool = False
) -> nx.MultiDiGraph[Vertex]:
    """Build a graph with one vertex for each group, and for each input and output of the model.

    Args:
        ledger: the account of one model.
        labels: the group of each entry and node (`analyzer.account.group.keys.label_members`).
        fold: make one vertex of numbered neighbours with the same content, such as the layers of an encoder.
        learned: leave out groups without learned tensors, and join the groups on both sides of them.

    Raises:
        UsageError: the key of the groups has no groups for nodes; or `learned`, and there are too many groups.
    """
    if labels.nodes is None:
        raise UsageError(
            f"--by {labels.by}: groups no nodes, so nothing is known to flow between its groups; "
            "use scope, block, stage or op"
        )
    groups = every = _total(ledger, labels, labels.nodes)
    crossings = Crossings(ledger, labels, labels.nodes)
    with_weights = [group.label for group in every if group.learned_nbytes or group.parameters]
    if learned and with_weights:  # a model without weights keeps all groups
        edges, kept = join_learned(crossings, with_weights)
        groups = [group for group in every if ("group", group.label) in kept]
    else:
        edges = crossings.all_edges()
    folded = fold_groups(groups) if fold else [Folded(group.name, (group,), ({},)) for group in groups]
    homes = _homes(folded)
    if fold:
        homes |= _fold_ends(ledger.model, edges, homes)
    graph = _empty_graph(ledger, labels, folded=fold, left_out=len(every) - len(groups))
    _add_vertices(graph, ledger.model, folded, homes)
    _add_drawn(graph, ledger, labels, labels.nodes)
    _add_edges(graph, edges, homes)
    return graph


def _empty_graph(ledger: Ledger, labels: Labels, *, folded: bool, left_out: int) -> nx.MultiDiGraph[Vertex]:
    """Return a graph with the attributes of the whole, and no vertex yet."""
    return nx.MultiDiGraph(
        model=ledger.model.path,
        components=tuple(part.name for part in ledger.model.components),
        collapsed=True,
        by=labels.by,
        depth=labels.depth,
        folded=folded,
        left_out=left_out,
        tensors=len(ledger.entries),
        parameters=ledger.parameters,
        stored_elements=ledger.stored_elements,
        bytes=ledger.stored_nbytes,
    )


def _total(ledger: Ledger, labels: Labels, by_node: Mapping[Place, Label]) -> list[Group]:
    members: dict[Label, list[Entry]] = defaultdict(list)
    for entry, name in zip(ledger.entries, labels.entries, strict=True):
        members[name].append(entry)
    nodes = Counter(by_node.values())
    names = sorted(members.keys() | nodes.keys(), key=label_order)
    return [total_entries(name, members.get(name, ()), nodes[name], None) for name in names]


_Homes = dict[Vertex, tuple[Vertex, Layers]]
"""Vertex that holds each group, input and output, and its layer numbers in a fold."""


def _homes(folded: Iterable[Folded]) -> _Homes:
    return {
        ("group", group.label): (_vertex(fold), layers)
        for fold in folded
        for group, layers in zip(fold.groups, fold.layers, strict=True)
    }


def _fold_ends(model: Model, edges: Edges, homes: _Homes) -> _Homes:
    """Fold numbered inputs that feed the same vertices, and numbered outputs that come from the same."""
    joined: dict[Vertex, set[tuple[Vertex, str]]] = defaultdict(set)
    for source, target, kind in edges:
        joined[source].add((homes.get(target, (target,))[0], kind))
        joined[target].add((homes.get(source, (source,))[0], kind))
    found: _Homes = {}
    for part in open_graphs(model):
        for kind, names in (("input", part.inputs), ("output", part.outputs)):
            folded = fold_names({name: frozenset(joined[kind, part.path, name]) for name in names})
            sizes = Counter(folded.values())
            for name, run in folded.items():
                vertex = (f"{kind}s", part.path, run) if sizes[run] > 1 else (kind, part.path, name)
                found[kind, part.path, name] = vertex, {}
    return found


def _add_vertices(
    graph: nx.MultiDiGraph[Vertex], model: Model, folded: Iterable[Folded], homes: _Homes
) -> None:
    for part in open_graphs(model):
        _add_ends(graph, "input", part.path, part.inputs, homes)
    for fold in folded:
        graph.add_node(_vertex(fold), kind="group", **_attributes(fold, graph.graph["parameters"]))
    for part in open_graphs(model):
        _add_ends(graph, "output", part.path, part.outputs, homes)


def _add_drawn(
    graph: nx.MultiDiGraph[Vertex], ledger: Ledger, labels: Labels, by_node: Mapping[Place, Label]
) -> None:
    """Add data for a picture to each group: operators that compute, and parameters by the role in their layer."""
    operators: dict[str, Counter[str]] = defaultdict(Counter)
    roles: dict[str, Counter[str]] = defaultdict(Counter)
    for node in ledger.model.nodes():
        if kind_of(node) not in _SILENT:
            operators[" / ".join(by_node[node.place])][node.op_type] += 1
    known = ledger.blocks.roles if ledger.blocks is not None else {}
    for entry, found in zip(ledger.entries, labels.entries, strict=True):
        if entry.parameters:
            roles[" / ".join(found)][known.get(entry.tensor.key) or "other"] += entry.parameters
    for _, attributes in graph.nodes(data=True):
        if attributes["kind"] == "group":
            attributes["drawn"] = {
                "operators": _most_common(
                    sum((operators[name] for name in attributes["members"]), Counter())
                ),
                "roles": _most_common(sum((roles[name] for name in attributes["members"]), Counter())),
            }


_SILENT = frozenset({Kind.MAKES, Kind.MEASURES, Kind.MOVES, Kind.DECODES, Kind.QUANTIZES, Kind.LOOKS_UP})
"""Kinds of operators that compute nothing with a weight, or only prepare data for others."""


def _most_common(counted: Counter[str]) -> list[tuple[str, int]]:
    return sorted(counted.items(), key=lambda item: (-item[1], item[0]))


def _add_ends(
    graph: nx.MultiDiGraph[Vertex], kind: str, path: GraphPath, names: Iterable[str], homes: _Homes
) -> None:
    for name in names:
        end = (kind, path, name)
        vertex, _ = homes.get(end, (end, {}))
        members = (*graph.nodes[vertex]["members"], name) if vertex in graph else (name,)
        graph.add_node(vertex, kind=kind, name=vertex[2], graph_path=path, members=members)


def _vertex(fold: Folded) -> Vertex:
    return ("group", fold.groups[0].label) if len(fold.groups) == 1 else ("groups", fold.name)


def _attributes(fold: Folded, whole: int) -> dict[str, Any]:
    groups = fold.groups
    parameters = sum(group.parameters for group in groups)
    return {
        "name": fold.name,
        "members": tuple(group.name for group in groups),
        "parameters": parameters,
        "share": parameters / whole if whole else None,
        "applications": groups[0].applications,
        "unshared_parameters": sum(group.unshared_parameters for group in groups),
        "stored_elements": sum(group.stored_elements for group in groups),
        "bytes": sum(group.nbytes for group in groups),
        "learned_bytes": sum(group.learned_nbytes for group in groups),
        "tensors": sum(group.tensors for group in groups),
        "nodes": sum(group.nodes for group in groups),
    }


def _add_edges(graph: nx.MultiDiGraph[Vertex], edges: Edges, homes: _Homes) -> None:
    """Merge edges between the same vertices. An edge `recurs` if it only joins different layers of one fold."""
    merged: Edges = {}
    recurring: dict[Edge, bool] = {}
    for (source, target, kind), made_of in edges.items():
        (above, mine), (below, theirs) = homes.get(source, (source, {})), homes.get(target, (target, {}))
        edge = above, below, kind
        merged.setdefault(edge, {}).update(made_of)
        recurring[edge] = recurring.get(edge, True) and recurs(mine, theirs)
    for (source, target, kind), made_of in merged.items():
        entries = [entry for entry in made_of.values() if entry is not None]
        graph.add_edge(
            source,
            target,
            key=kind,
            kind=kind,
            values=tuple(map(label, made_of)),
            count=len(made_of),
            recurs=recurring[source, target, kind],
            parameters=sum(entry.logical_numel for entry in entries if entry.role is Role.PARAMETER),
            stored_elements=sum(entry.tensor.numel for entry in entries),
            bytes=sum(entry.tensor.nbytes for entry in entries),
        )
