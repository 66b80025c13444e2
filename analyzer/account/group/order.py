"""Groups -> their positions in the order of computation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from analyzer.account.group.keys import Label, Labels
from analyzer.account.ledger import Ledger, in_entry_order
from analyzer.model import GraphPath, Node, Place
from analyzer.model.places import ByNode, in_order


def find_firsts(ledger: Ledger, labels: Labels) -> dict[Label, int]:
    """Return each group's position: its first node that computes with a learned tensor of it, else its first node."""
    ranks = rank_nodes(ledger)
    learned: dict[Label, int] = {}
    node_labels = in_order(ledger.model, labels.nodes or {})
    is_one = len(ledger.model.graphs) == 1
    if is_one:  # nodes are in order: the first one with a label counts
        backwards = zip(reversed(node_labels), reversed(range(len(node_labels))), strict=True)
        other = {label: rank for label, rank in backwards if label is not None}
    else:
        other = {}
        for label, rank in zip(node_labels, in_order(ledger.model, ranks), strict=True):
            if label is not None and rank is not None and rank <= other.get(label, rank):
                other[label] = rank
    places = in_entry_order(ledger.entries, ledger.computing)
    for entry, label, place in zip(ledger.entries, labels.entries, places, strict=True):
        rank = None if place is None else place[1] if is_one else ranks.get(place)
        if rank is not None:
            kind = learned if entry.parameters else other
            if rank <= kind.get(label, rank):
                kind[label] = rank
    found = other | learned
    if labels.by == "stage" and ledger.stages is not None:
        found |= {(name,): ranks[place] for name, place in ledger.stages.firsts.items() if place in ranks}
    return found


def rank_nodes(ledger: Ledger) -> Mapping[Place, int]:
    """Return each node's position in the order of computation; a nested graph or called function counts once."""
    if len(ledger.model.graphs) == 1:
        return ByNode(ledger.model, range(len(ledger.model.graphs[0].nodes)))
    wiring = ledger.wiring
    ranks: dict[Place, int] = {}
    entered: set[GraphPath] = set()
    functions = {function.path for function in ledger.model.functions}
    for graph in ledger.model.graphs:
        if graph.parent is not None or graph.path in functions or graph.path in entered:
            continue  # it comes at the node that holds or calls it
        entered.add(graph.path)
        waiting: list[Iterator[Node]] = [iter(graph.nodes)]
        while waiting:
            node = next(waiting[-1], None)
            if node is None:
                waiting.pop()
                continue
            ranks.setdefault(node.place, len(ranks))
            inner = [each.path for each in wiring.nested.get(node.place, ())]
            called = wiring.calls.get(node.place)
            for path in (*inner, *(() if called is None else (called,))):
                if path not in entered and path in wiring.graphs:
                    entered.add(path)
                    waiting.append(iter(wiring.graphs[path].nodes))
    for node in ledger.model.nodes():
        ranks.setdefault(node.place, len(ranks))
    return ranks
