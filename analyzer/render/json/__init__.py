"""Reports -> JSON documents: exact integers, sorted keys, byte-identical on a second run.

The schema of each is in `analyzer/schemas`, the meaning of each key in `docs/report-format.md`.
"""

from __future__ import annotations

import json
import re
from typing import Any

from analyzer.compare import Comparison
from analyzer.formulas.record import FormulaReport
from analyzer.render.json.bridge import document_reconciliation, document_recovery
from analyzer.render.json.compare import document_comparison
from analyzer.render.json.inspect import document_inspection
from analyzer.render.json.parts import SCHEMA_VERSION, Document, head
from analyzer.render.json.survey import document_survey
from analyzer.render.options import RenderOptions
from analyzer.report import (
    BudgetReport,
    ExportReport,
    Inspection,
    ReconcileReport,
    RecoverReport,
    Report,
    SurveyReport,
)

__all__ = ["SCHEMA_VERSION", "render_json", "to_document", "write_json"]


def render_json(report: Report, options: RenderOptions | None = None) -> str:
    """The report as JSON text with a final newline; indented, with each row of a list on a line of its own.

    It holds every row, whatever the options.
    """
    return write_json(to_document(report))


def write_json(document: Document) -> str:
    """A document as the text that `render_json` makes of a report."""
    parts: list[str] = []
    _write(document, "", parts)
    return _MARK.sub(r"\\u0023", "".join(parts)) + "\n"


_MARK = re.compile(r"#(?=#\w*\[)")
"""Where, in a line of any beginning, the runner of a CI job takes `##[name]` for a command to itself."""


_DEPTH = 2 * "  "
"""Objects are spread over lines down to here; what is deeper stands on one line, so that a tensor is one line."""


def _write(value: Any, indent: str, parts: list[str]) -> None:
    """Append a value's text. The compact form is written by json's C encoder, ten times as fast as its indented one."""
    if isinstance(value, dict) and value and len(indent) < len(_DEPTH):
        inner = indent + "  "
        separator = "{\n"
        for key in sorted(value):
            parts.append(f"{separator}{inner}{_compact(key)}: ")
            _write(value[key], inner, parts)
            separator = ",\n"
        parts.append(f"\n{indent}}}")
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        inner = indent + "  "
        rows = f",\n{inner}".join(map(_compact, value))
        parts.append(f"[\n{inner}{rows}\n{indent}]")
    else:
        parts.append(_compact(value))


_compact = json.JSONEncoder(sort_keys=True, ensure_ascii=True, allow_nan=False).encode


def to_document(report: Report) -> Document:
    """The report as plain dicts and lists, as its JSON Schema describes it."""
    match report:
        case Inspection():
            return document_inspection(report)
        case SurveyReport():
            return document_survey(report)
        case ReconcileReport():
            return document_reconciliation(report)
        case ExportReport():
            return {
                **head("export"),
                "files": list(report.files),
                "reconcile": document_reconciliation(report.reconcile),
            }
        case RecoverReport():
            return document_recovery(report)
        case Comparison():
            return document_comparison(report)
        case BudgetReport():
            from analyzer.render.json.budget import document_budget

            return document_budget(report)
        case FormulaReport():
            from analyzer.render.json.formula import document_formula  # sympy, which nothing else needs

            return document_formula(report)
        case _:
            from analyzer.render.json.time import document_timed  # what only a timing needs

            return document_timed(report)
