"""A graph of a model -> text in one of the formats that draw or read graphs, one file per format."""

from __future__ import annotations

from collections.abc import Callable

from analyzer.render.graph.dot import render_dot
from analyzer.render.graph.graphml import render_graphml
from analyzer.render.graph.json import render_json
from analyzer.render.graph.model_explorer import METRICS, Metric, render_model_explorer
from analyzer.render.graph.svg import render_svg
from analyzer.report import GraphReport

__all__ = ["FORMATS", "METRICS", "SUFFIXES", "Metric"]

FORMATS: dict[str, Callable[[GraphReport], str]] = {
    "dot": lambda report: render_dot(report.graph),
    "graphml": lambda report: render_graphml(report.graph),
    "json": lambda report: render_json(report.graph),
    "model-explorer": lambda report: render_model_explorer(report.graph, report.metric),
    "svg": lambda report: render_svg(report.graph),
}
"""By the name that `--format` takes."""

SUFFIXES = {".dot": "dot", ".graphml": "graphml", ".gv": "dot", ".json": "json", ".svg": "svg"}
"""Formats by the suffix of an `-o` path."""
