"""Report -> HTML: one self-contained page of its JSON document, and of others that are to stand beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from analyzer.documents.base import Head
from analyzer.documents.formula import FormulaDocument
from analyzer.documents.kinds import DOCUMENTS
from analyzer.documents.time import TimeDocument
from analyzer.errors import UsageError
from analyzer.pages.beside import put_formula_beside, put_times_beside
from analyzer.pages.kinds import PAGES, describe, is_described
from analyzer.pages.page import Page
from analyzer.render.described import page_of
from analyzer.render.html.blocks import Section
from analyzer.render.html.bridge import describe_recovery
from analyzer.render.html.inspection import describe_survey
from analyzer.render.html.page import make_page
from analyzer.render.html.parts import Beside
from analyzer.render.html.reading import View
from analyzer.render.html.writer import make_section
from analyzer.render.json import to_record
from analyzer.render.options import RenderOptions
from analyzer.report import Report
from analyzer.saved import to_typed
from analyzer.schemas import schema_name

__all__ = ["SECTIONS", "render_html"]

SECTIONS: Mapping[str, Callable[[View, Beside], Section]] = {
    "survey": describe_survey,
    "recover": describe_recovery,
}
"""What describes each kind of document, by the name of its schema."""


_PARTS = 2
"""Of a path, the title has its last: a model's own name is `model.onnx` too often."""


def render_html(report: Report, options: RenderOptions | None = None) -> str:
    """The report as a page, with the documents that `options` have beside it.

    Raises:
        UsageError: a document beside it is of a kind that no page shows, or has a wrong value.
    """
    beside = options.beside if options is not None else ()
    document = to_record(report)
    return _make([document, *beside], page_of(report, document) if is_described(document) else None)


def render_documents(documents: Sequence[Mapping[str, Any]]) -> str:
    """A page of JSON documents, a section each; the first gives it its title.

    Raises:
        UsageError: one is of a kind that no page shows, or has a wrong value.
    """
    return _make(documents)


def _make(documents: Sequence[Head | Mapping[str, Any]], page: Page | None = None) -> str:
    """The page of all; `page` is the first document's, where a report says more than that."""
    known = [_typed(each) for each in documents]
    times = next((_times(each) for each in known if isinstance(each, TimeDocument)), {})
    formula = next((each for each in known if isinstance(each, FormulaDocument)), None)
    beside = Beside(times=times)
    sections = [_section(each, beside, formula, None if at else page) for at, each in enumerate(known)]
    ends = sections[0].subject.split(" · ")[0].replace("\\", "/").rstrip("/").split("/")
    title = "/".join(filter(None, ends[-_PARTS:])) or sections[0].title
    return make_page(title, sections)


def _typed(document: Head | Mapping[str, Any]) -> Head | Mapping[str, Any]:
    """The record of a document that a page describes; plain dicts and lists of one that none does yet."""
    if isinstance(document, Head):
        plain: Mapping[str, Any] = msgspec.to_builtins(document)
        return document if is_described(document) else plain
    return document if _kind(document) in SECTIONS else to_typed(document)


def _times(document: TimeDocument) -> dict[str, float]:
    """Milliseconds of each group, for other documents of the page."""
    return {part.group: part.ms for part in document.groups if not part.across}


def _section(
    document: Head | Mapping[str, Any], beside: Beside, formula: FormulaDocument | None, page: Page | None
) -> Section:
    """What one document has to say."""
    if isinstance(document, Mapping):
        return SECTIONS[_kind(document)](View(document), beside)
    page = put_times_beside(page or describe(document), beside.times)
    if formula is not None and formula.total is not None:
        page = put_formula_beside(page, formula.class_ or "The formula", formula.total)
    return make_section(page, beside)


def _kind(document: Mapping[str, Any]) -> str:
    kind = schema_name(document)
    if kind not in SECTIONS and not (kind in DOCUMENTS and DOCUMENTS[kind].__name__ in PAGES):
        known = ", ".join(
            sorted({*SECTIONS, *(each for each, kind in DOCUMENTS.items() if kind.__name__ in PAGES)})
        )
        raise UsageError(f"a report of `{kind}` has no place in a page; it shows those of {known}")
    return kind
