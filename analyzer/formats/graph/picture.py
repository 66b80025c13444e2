"""Ledger -> the graph of a picture: groups at a depth that tells, and the shapes of what flows between them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from analyzer.account.group.keys import Labels, choose_key, drawn_depth, label_members
from analyzer.account.ledger import Ledger
from analyzer.cost.memory.inference import open_inference
from analyzer.errors import CostError
from analyzer.graph.collapse import collapse_graph
from analyzer.pages.inspect import say_dims

if TYPE_CHECKING:
    import networkx as nx


def draw_groups(
    ledger: Ledger, labels: Labels | None = None, *, fold: bool = True, learned: bool = True
) -> nx.MultiDiGraph[Any]:
    """What `onnxledger graph MODEL -o model.svg` draws: as `collapse_graph`, with what a picture says besides.

    Args:
        ledger: the account of one model.
        labels: which group each entry and node is in; None takes `label_picture`.
        fold: make one box of numbered neighbours that hold the same.
        learned: leave out groups that hold nothing learned.

    Raises:
        UsageError: the key of the groups says nothing of nodes; or `learned`, and there are too many groups.
    """
    graph = collapse_graph(ledger, labels or label_picture(ledger), fold=fold, learned=learned)
    shapes = _shapes(ledger)
    for _, _, attributes in graph.edges(data=True):
        known = dict.fromkeys(shapes[name] for name in attributes["values"] if name in shapes)
        attributes["drawn"] = next(iter(known), "") if attributes["kind"] == "flow" else ""
    return graph


def label_picture(ledger: Ledger, by: str | None = None, depth: int | None = None) -> Labels:
    """Groups by the key that tells, as deep as no box needs to have over half of the parameters.

    Raises:
        UsageError: `by` names no key, or one twice, or `depth` is below 1.
    """
    by = by or choose_key(ledger)
    return label_members(ledger, by, drawn_depth(ledger, by) if depth is None else depth)


def _shapes(ledger: Ledger) -> Mapping[str, str]:
    """The shape of each value of the main graph, as ONNX infers it in a process of its own; none where it cannot."""
    if ledger.model.traffic is not None or ledger.model.components:
        return {}
    try:
        with open_inference(ledger.model.paths[0]) as found:
            values = found.described.values
    except CostError:
        return {}
    said = {name: say_dims(value.dims) for name, value in values.items() if value.dims}
    return {name: shape for name, shape in said.items() if shape.strip("? x")}
