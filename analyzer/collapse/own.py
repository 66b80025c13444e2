"""The user's own groups -> which of them each entry and node is in, so that the model can be collapsed to them."""

from __future__ import annotations

from collections.abc import Mapping

from analyzer.group.keys import Label, Labels
from analyzer.group.patterns import UNGROUPED, Searcher, find_groups, list_names
from analyzer.ledger import Ledger

__all__ = ["label_own"]


def label_own(ledger: Ledger, patterns: Mapping[str, Searcher]) -> Labels:
    """Put every entry and node into the first of the groups that match it, else into `[ungrouped]`.

    A graph shows everything once, so groups that overlap are cut at the first. A node is searched by its scope.
    """
    scopes = {
        scope: _first([scope], patterns) if scope is not None else (UNGROUPED,)
        for scope in {ledger.node_scopes.get(node.place) for node in ledger.model.nodes()}
    }
    return Labels(
        by="group",
        depth=None,
        entries=tuple(_first(list_names(entry), patterns) for entry in ledger.entries),
        nodes={node.place: scopes[ledger.node_scopes.get(node.place)] for node in ledger.model.nodes()},
    )


def _first(texts: list[str], patterns: Mapping[str, Searcher]) -> Label:
    found = find_groups(texts, patterns, "first")
    return (found[0] if found else UNGROUPED,)
