"""What both kinds of verification ask of a file: where it is, how deep its values stand, what a node is called."""

from __future__ import annotations

from pathlib import Path

from analyzer.account.ledger import Ledger
from analyzer.errors import UsageError
from analyzer.model import Graph, Node
from analyzer.text import printable


def local_path(ledger: Ledger) -> Path:
    """The one file of a model.

    Raises:
        UsageError: it is remote, or of components.
    """
    model = ledger.model
    if model.traffic is not None or model.components:
        raise UsageError(f"{printable(str(model.path))}: verify runs one local file; name an .onnx file")
    path = Path(model.path)
    return path / model.files[0].path if path.is_dir() else path


def measure_depths(graph: Graph) -> dict[str, int]:
    """How many nodes lead to each value, along the longest way."""
    depths: dict[str, int] = {}
    for node in graph.nodes:
        depth = 1 + max((depths.get(name, 0) for name in node.inputs), default=0)
        depths.update(dict.fromkeys(node.outputs, depth))
    return depths


def name_node(node: Node) -> str:
    """A node's name, or what it makes, or where it stands."""
    return node.name or next(filter(None, node.outputs), "") or f"node {node.position}"
