"""Report -> str, one file per format."""

from __future__ import annotations

from collections.abc import Callable

from analyzer.render.json import render_json, to_document
from analyzer.render.text import TextOptions, render_text
from analyzer.report import Report

__all__ = ["FORMATS", "SUFFIXES", "TextOptions", "render_json", "render_text", "to_document"]

FORMATS: dict[str, Callable[[Report, TextOptions], str]] = {
    "json": lambda report, options: render_json(report),
    "text": render_text,
}
"""Formats by the name that `--format` takes."""

SUFFIXES = {".json": "json", ".txt": "text"}
"""Formats by the suffix of an `-o` path."""
