"""Helpers of verification: path of a model's one file, depth of each value, name of a node."""

from __future__ import annotations

from pathlib import Path

from analyzer.account.ledger import Ledger
from analyzer.errors import UsageError
from analyzer.model import Graph, Node
from analyzer.text import printable

_LOST = frozenset({"external-escapes", "external-missing", "external-short"})
"""Findings of tensors whose values cannot be read."""


def local_path(ledger: Ledger) -> Path:
    """Return the path of a model's one local file.

    Raises:
        UsageError: the model is remote, or has several components, or values of it are not there.
    """
    model = ledger.model
    lost = next((finding for finding in ledger.findings if finding.id in _LOST), None)
    if lost is not None:
        raise UsageError(f"{printable(str(model.path))}: {lost.message}; verify needs every value")
    if model.traffic is not None or model.components:
        raise UsageError(f"{printable(str(model.path))}: verify runs one local file; name an .onnx file")
    path = Path(model.path)
    return path / model.files[0].path if path.is_dir() else path


def measure_depths(graph: Graph) -> dict[str, int]:
    """Return the number of nodes that lead to each value, along the longest path."""
    depths: dict[str, int] = {}
    for node in graph.nodes:
        depth = 1 + max((depths.get(name, 0) for name in node.inputs), default=0)
        depths.update(dict.fromkeys(node.outputs, depth))
    return depths


def name_node(node: Node) -> str:
    """Return a node's name, or else the name of its first output, or else its position."""
    return node.name or next(filter(None, node.outputs), "") or f"node {node.position}"
