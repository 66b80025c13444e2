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
    """The report as JSON text with a final newline; indented, with each row of a list on a line of its own.

    It holds every row, whatever the options.
    """
    return write_json(to_record(report))


def write_json(document: Head | Document) -> str:
    """A document as the text that `render_json` makes of a report."""
    parts: list[str] = []
    _write(document, "", parts)
    parts.append("\n")
    text = "".join(parts)
    parts.clear()  # there may be a gigabyte of them
    return _MARK.sub(r"\\u0023", text) if "##" in text else text


_MARK = re.compile(r"#(?=#\w*\[)")
"""Where, in a line of any beginning, the runner of a CI job takes `##[name]` for a command to itself."""


_DEPTH = 2 * "  "
"""Objects are spread over lines down to here; what is deeper stands on one line, so that a tensor is one line."""


def _write(value: Any, indent: str, parts: list[str]) -> None:
    """Append a value's text. The compact form is written by json's C encoder, ten times as fast as its indented one.

    Of a record only so much is made plain at a time as is written: a million rows as dicts take gigabytes.
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
    """The fields that a record has in its document, by their names there."""
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
"""What makes the document of each kind of report: a module of this folder, and its function."""


def to_record(report: Report | Head) -> Head:
    """The report as the typed document of its kind; a document is one already.

    Raises:
        TypeError: it is no report.
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
    """The report as plain dicts and lists, as its JSON Schema describes it.

    Raises:
        TypeError: it is no report.
    """
    made: Document = msgspec.to_builtins(to_record(report))
    return made
