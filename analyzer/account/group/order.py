"""Groups -> their places in the order of the computation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from analyzer.account.group.keys import Label, Labels
from analyzer.account.ledger import Ledger, in_entry_order
from analyzer.model import GraphPath, Node, Place
from analyzer.model.places import ByNode, in_order


def find_firsts(ledger: Ledger, labels: Labels) -> dict[Label, int]:
    """Where each group comes first: at a node that computes with what it has learned, else at a node of its own."""
    ranks = rank_nodes(ledger)
    learned: dict[Label, int] = {}
    told = in_order(ledger.model, labels.nodes or {})
    is_one = len(ledger.model.graphs) == 1
    if is_one:  # whose nodes are in their order: the first of a label holds
        backwards = zip(reversed(told), reversed(range(len(told))), strict=True)
        other = {label: rank for label, rank in backwards if label is not None}
    else:
        other = {}
        for label, rank in zip(told, in_order(ledger.model, ranks), strict=True):
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
    """The nodes in the order in which they are computed: what a node holds or calls comes where it stands, once."""
    if len(ledger.model.graphs) == 1:
        return ByNode(ledger.model, range(len(ledger.model.graphs[0].nodes)))
    wiring = ledger.wiring
    ranks: dict[Place, int] = {}
    entered: set[GraphPath] = set()
    functions = {function.path for function in ledger.model.functions}
    for graph in ledger.model.graphs:
        if graph.parent is not None or graph.path in functions or graph.path in entered:
            continue  # it comes where it is held or called
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
