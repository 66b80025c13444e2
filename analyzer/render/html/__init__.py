"""Report -> HTML: one self-contained page of its JSON document, and of others that are to stand beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from analyzer.errors import UsageError
from analyzer.render.html.blocks import Section
from analyzer.render.html.bridge import describe_export, describe_reconciliation, describe_recovery
from analyzer.render.html.comparisons import describe_comparison, describe_time_comparison
from analyzer.render.html.formulas import describe_formula
from analyzer.render.html.inspection import describe_inspection, describe_survey
from analyzer.render.html.page import make_page
from analyzer.render.html.parts import Beside
from analyzer.render.html.reading import View
from analyzer.render.html.timings import describe_sweep, describe_timing, find_times
from analyzer.render.html.verdicts import describe_check
from analyzer.render.json import to_document
from analyzer.render.options import RenderOptions
from analyzer.report import Report
from analyzer.schemas import schema_name

__all__ = ["SECTIONS", "render_html"]

SECTIONS: Mapping[str, Callable[[View, Beside], Section]] = {
    "inspect": describe_inspection,
    "survey": describe_survey,
    "reconcile": describe_reconciliation,
    "export": describe_export,
    "recover": describe_recovery,
    "compare": describe_comparison,
    "compare_time": describe_time_comparison,
    "compare_sweep": describe_time_comparison,
    "check": describe_check,
    "time": describe_timing,
    "sweep": describe_sweep,
    "formula": describe_formula,
}
"""What describes each kind of document, by the name of its schema."""


_PARTS = 2
"""Of a path, the title has its last: a model's own name is `model.onnx` too often."""


def render_html(report: Report, options: RenderOptions | None = None) -> str:
    """The report as a page, with the documents that `options` have beside it.

    Raises:
        UsageError: a document beside it is of a kind that no page shows.
    """
    beside = options.beside if options is not None else ()
    return render_documents([to_document(report), *beside])


def render_documents(documents: list[Mapping[str, Any]] | list[dict[str, Any]]) -> str:
    """A page of JSON documents, a section each; the first gives it its title."""
    kinds = [_kind(document) for document in documents]
    known = list(zip(kinds, documents, strict=True))
    timings = [View(document) for kind, document in known if kind == "time"]
    formulas = [View(document) for kind, document in known if kind == "formula"]
    together = Beside(
        times=find_times(timings[0]) if timings else {}, formula=formulas[0] if formulas else None
    )
    sections = [SECTIONS[kind](View(document), together) for kind, document in known]
    ends = sections[0].subject.replace("\\", "/").rstrip("/").split("/")
    title = "/".join(filter(None, ends[-_PARTS:])) or sections[0].title
    return make_page(title, sections)


def _kind(document: Mapping[str, Any]) -> str:
    kind = schema_name(document)
    if kind not in SECTIONS:
        raise UsageError(
            f"a report of `{kind}` has no place in a page; it shows those of {', '.join(SECTIONS)}"
        )
    return kind
