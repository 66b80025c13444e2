"""Ledger -> the graph of a picture: groups at a suitable depth, and the shapes of the values between them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from analyzer.account.group.keys import Labels, choose_key, label_members, picture_depth
from analyzer.account.ledger import Ledger
from analyzer.cost.memory.inference import check_calls, open_inference
from analyzer.errors import CostError, UsageError
from analyzer.graph.collapse import collapse_graph
from analyzer.pages.inspect import format_dims
from analyzer.records import Frozen
from analyzer.text import printable_name

if TYPE_CHECKING:
    import networkx as nx


class Mark(Frozen):
    """Mark on one place of the model."""

    node: str
    """Name of a node, or of a value that it makes."""
    module: str
    """Scope of the node, as in a report; empty if unknown."""
    reason: str
    """Reason for the mark."""


def draw_groups(
    ledger: Ledger,
    labels: Labels | None = None,
    *,
    fold: bool = True,
    learned: bool = True,
    mark: Mark | None = None,
) -> nx.MultiDiGraph[Any]:
    """Return the graph that `onnxledger graph MODEL -o model.svg` draws: `collapse_graph`, with shapes and a mark.

    Args:
        ledger: the account of one model.
        labels: group of each entry and node; None takes `label_picture`.
        fold: whether to make one box of numbered neighbours with the same contents.
        learned: whether to leave out groups without learned tensors.
        mark: a place that stands out.

    Raises:
        UsageError: the key of the groups does not apply to nodes; or `learned`, and there are too many groups; or no
            box has the marked place.
    """
    labels = labels or label_picture(ledger)
    graph = collapse_graph(ledger, labels, fold=fold, learned=learned)
    if mark is not None:
        _find_box(graph, ledger, labels, mark)["mark"] = (mark.module or mark.node, mark.reason)
    shapes = _shapes(ledger)
    for _, _, attributes in graph.edges(data=True):
        known = dict.fromkeys(shapes[name] for name in attributes["values"] if name in shapes)
        attributes["drawn"] = next(iter(known), "") if attributes["kind"] == "flow" else ""
    return graph


def _find_box(graph: nx.MultiDiGraph[Any], ledger: Ledger, labels: Labels, mark: Mark) -> dict[str, Any]:
    """Return the attributes of the group that holds a place, or else of the group that contains its module.

    Raises:
        UsageError: no group does.
    """
    nodes = ledger.model.graphs[0].nodes
    node = next((each for each in nodes if mark.node in (each.name, *each.outputs)), None)
    own = () if node is None or labels.nodes is None else (" / ".join(labels.nodes[node.place]),)
    parts = mark.module.split(".") if mark.module else []
    for name in (*own, *(".".join(parts[:many]) for many in range(len(parts), 0, -1))):
        for _, attributes in graph.nodes(data=True):
            if attributes["kind"] == "group" and name in attributes["members"]:
                return attributes
    where = printable_name(mark.module or mark.node)
    if node is None and not parts:
        raise UsageError(
            f"--mark: names {where}, which {ledger.model.path} does not have; mark the file that was verified"
        )
    raise UsageError(
        f"--mark: {where} is in no box of this picture; draw all with --all, or with another --depth"
    )


def label_picture(ledger: Ledger, by: str | None = None, depth: int | None = None) -> Labels:
    """Return groups by the most suitable key, so deep that no box has over half of the parameters if that is possible.

    Raises:
        UsageError: `by` names no key, or one twice, or `depth` is below 1.
    """
    by = by or choose_key(ledger)
    return label_members(ledger, by, picture_depth(ledger, by) if depth is None else depth)


_INFERRED_SECONDS = 10.0
"""Time limit of shape inference in seconds; the picture has no shapes if it takes longer."""


def _shapes(ledger: Ledger) -> Mapping[str, str]:
    """Return the shape of each value of the main graph, which ONNX infers in its own process; empty if it cannot."""
    if ledger.model.traffic is not None or ledger.model.components:
        return {}
    try:
        check_calls(ledger)
        with open_inference(ledger.model.paths[0], seconds=_INFERRED_SECONDS) as found:
            values = found.described.values
    except CostError:
        return {}
    texts = {name: format_dims(value.dims) for name, value in values.items() if value.dims}
    return {name: shape for name, shape in texts.items() if shape.strip("? x")}
