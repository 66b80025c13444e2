"""Reports -> JSON documents: exact integers, sorted keys, byte-identical on a second run.

The schema of each is in `analyzer/schemas`, the meaning of each key in `docs/reference/report-format.md`.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from analyzer.documents.base import Head
from analyzer.formats.json.parts import Document
from analyzer.formats.options import RenderOptions

if TYPE_CHECKING:
    from analyzer.reports import Report

__all__ = ["render_json", "to_document", "to_record", "write_json"]


def render_json(report: Report | Head, options: RenderOptions | None = None) -> str:
    """Render the report as JSON with a final newline; indented, with each row of a list on a line of its own.

    It holds every row, whatever the options.
    """
    return write_json(to_record(report))


def write_json(document: Head | Document) -> str:
    """Write a document as the text that `render_json` makes of a report."""
    parts: list[str] = []
    _write(document, "", parts)
    parts.append("\n")
    text = "".join(parts)
    parts.clear()  # the list may take a gigabyte
    return _MARK.sub(r"\\u0023", text) if "##" in text else text


_MARK = re.compile(r"#(?=#\w*\[)")
"""First `#` of `##[name]`, which the runner of a CI job takes for a command, whatever the beginning of the line."""


_DEPTH = 2 * "  "
"""Indent down to which objects spread over lines; deeper objects stand on one line, so that a tensor is one line."""


def _write(value: Any, indent: str, parts: list[str]) -> None:
    """Append a value's text, in the compact form of json's C encoder, ten times as fast as its indented one.

    A record becomes plain values only in the pieces that are written: a million rows as dicts take gigabytes.
    """
    if isinstance(value, msgspec.Struct):
        if len(indent) < len(_DEPTH):
            value = _fields(value)
        else:
            value = msgspec.to_builtins(value)
    if isinstance(value, dict) and value and len(indent) < len(_DEPTH):
        inner = indent + "  "
        separator = "{\n"
        for key in sorted(value):
            parts.append(f"{separator}{inner}{_compact(key)}: ")
            _write(value[key], inner, parts)
            separator = ",\n"
        parts.append(f"\n{indent}}}")
    elif isinstance(value, list) and value and isinstance(value[0], (dict, msgspec.Struct)):
        inner = indent + "  "
        separator = f"[\n{inner}"
        for row in value:
            parts.append(separator)
            parts.append(_compact(msgspec.to_builtins(row)))
            separator = f",\n{inner}"
        parts.append(f"\n{indent}]")
    else:
        parts.append(_compact(msgspec.to_builtins(value)))


def _fields(record: msgspec.Struct) -> dict[str, Any]:
    """Return the fields that a record has in its document, by their names there."""
    names = zip(record.__struct_encode_fields__, record.__struct_fields__, strict=True)
    found = ((key, getattr(record, name)) for key, name in names)
    return {key: value for key, value in found if value is not msgspec.UNSET}


_compact = json.JSONEncoder(sort_keys=True, ensure_ascii=True, allow_nan=False).encode


_MAKERS = {
    "BudgetReport": "budget:document_budget",
    "Comparison": "compare:document_comparison",
    "CostReport": "cost:document_cost",
    "ExportReport": "bridge:document_export",
    "FormulaReport": "formula:document_formula",
    "GenerationTiming": "generation:document_generation",
    "Inspection": "inspect:document_inspection",
    "ReconcileReport": "bridge:document_reconciliation",
    "RecoverReport": "bridge:document_recovery",
    "SurveyReport": "survey:document_survey",
    "Timing": "time:document_timed",
    "TimingComparison": "time:document_timed",
    "VerifyReport": "verify:document_verification",
}
"""Module of this folder, and its function, that make the document of each kind of report."""


def to_record(report: Report | Head) -> Head:
    """Return the report as the typed document of its kind; a document is returned as it is.

    Raises:
        TypeError: the argument is no report.
    """
    if isinstance(report, Head):
        return report
    name = type(report).__name__
    if name not in _MAKERS:
        raise TypeError(f"no document of a {name}")
    module, _, function = _MAKERS[name].partition(":")
    make: Callable[[Report], Head] = getattr(importlib.import_module(f"{__name__}.{module}"), function)
    return make(report)


def to_document(report: Report | Head) -> Document:
    """Return the report as plain dicts and lists, as its JSON Schema describes it.

    Raises:
        TypeError: the argument is no report.
    """
    document: Document = msgspec.to_builtins(to_record(report))
    return document
