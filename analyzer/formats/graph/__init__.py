"""Graph of a model -> text or bytes in one of the formats that draw or read graphs, one file per format.

A format's file, and networkx with it, is loaded when the format is asked for.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from analyzer.records import Frozen

if TYPE_CHECKING:
    from analyzer.reports import GraphReport

__all__ = ["FORMATS", "PICTURES", "SUFFIXES", "GraphFormat"]


class GraphFormat(Frozen):
    """A format of graphs; called with a report, it returns text or bytes."""

    renderer: str
    """Function of the graph that renders it, as `module:function` within `analyzer.formats.graph`."""
    suffixes: tuple[str, ...] = ()
    """Suffixes of the `-o` paths that ask for it."""
    has_metric: bool = False
    """Whether it shows the metric that was asked for, which its function then takes too."""

    def __call__(self, report: GraphReport) -> str | bytes:
        module, _, function = self.renderer.partition(":")
        render_function: Callable[..., str | bytes] = getattr(
            importlib.import_module(f"{__name__}.{module}"), function
        )
        return (
            render_function(report.graph, report.metric) if self.has_metric else render_function(report.graph)
        )


FORMATS: dict[str, GraphFormat] = {
    "dot": GraphFormat("dot:render_dot", (".dot", ".gv")),
    "graphml": GraphFormat("graphml:render_graphml", (".graphml",)),
    "json": GraphFormat("json:render_json", (".json",)),
    "model-explorer": GraphFormat("model_explorer:render_model_explorer", has_metric=True),
    "svg": GraphFormat("svg:render_svg", (".svg",)),
    "png": GraphFormat("png:render_png", (".png",)),
}
"""Formats by the name that `--format` takes."""

PICTURES = frozenset({"svg", "png"})
"""Formats that are drawn: collapsed, folded, and with learned tensors alone."""

SUFFIXES = dict(sorted((suffix, name) for name, each in FORMATS.items() for suffix in each.suffixes))
"""Formats by the suffix of an `-o` path."""
