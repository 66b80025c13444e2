"""Report -> HTML: one self-contained page of its JSON document, and of others that are to stand beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from analyzer.documents.base import Head
from analyzer.documents.kinds import DOCUMENTS
from analyzer.documents.time import TimeDocument
from analyzer.errors import UsageError
from analyzer.pages.beside import put_formula_beside, put_times_beside
from analyzer.pages.kinds import PAGES, describe, is_described
from analyzer.render.html.blocks import Section
from analyzer.render.html.formulas import describe_formula
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
    "formula": describe_formula,
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
    return _make([to_record(report), *beside])


def render_documents(documents: Sequence[Mapping[str, Any]]) -> str:
    """A page of JSON documents, a section each; the first gives it its title.

    Raises:
        UsageError: one is of a kind that no page shows, or has a wrong value.
    """
    return _make(documents)


def _make(documents: Sequence[Head | Mapping[str, Any]]) -> str:
    known = [_typed(each) for each in documents]
    views = {_kind(each): View(each) for each in reversed(known) if isinstance(each, Mapping)}
    times = next((_times(each) for each in known if isinstance(each, TimeDocument)), {})
    together = Beside(times=times, formula=views.get("formula"))
    sections = [_section(each, together) for each in known]
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


def _section(document: Head | Mapping[str, Any], beside: Beside) -> Section:
    """What one document has to say."""
    if isinstance(document, Mapping):
        return SECTIONS[_kind(document)](View(document), beside)
    page = put_times_beside(describe(document), beside.times)
    if beside.formula is not None and (total := beside.formula.count("total")) is not None:
        page = put_formula_beside(page, beside.formula.text("class") or "The formula", total)
    return make_section(page, beside)


def _kind(document: Mapping[str, Any]) -> str:
    kind = schema_name(document)
    if kind not in SECTIONS and not (kind in DOCUMENTS and DOCUMENTS[kind].__name__ in PAGES):
        known = ", ".join(
            sorted({*SECTIONS, *(each for each, kind in DOCUMENTS.items() if kind.__name__ in PAGES)})
        )
        raise UsageError(f"a report of `{kind}` has no place in a page; it shows those of {known}")
    return kind
