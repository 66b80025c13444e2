"""Report -> HTML: one self-contained page of its JSON document, and of others shown beside it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from analyzer.documents.base import Head
from analyzer.documents.formula import FormulaDocument
from analyzer.documents.kinds import DOCUMENTS
from analyzer.documents.saved import to_typed
from analyzer.documents.time import TimeDocument
from analyzer.errors import UsageError
from analyzer.formats.described import page_of
from analyzer.formats.html.blocks import Keys, Section
from analyzer.formats.html.page import make_page
from analyzer.formats.html.writer import make_section
from analyzer.formats.json import to_record
from analyzer.formats.options import RenderOptions
from analyzer.pages.beside import add_formula, add_times
from analyzer.pages.kinds import PAGES, describe
from analyzer.pages.page import Page
from analyzer.records import replace
from analyzer.reports import Report
from analyzer.schemas import schema_name

__all__ = ["render_documents", "render_html", "write_html"]

_PARTS = 2
"""Number of parts, from the end of a path, in a title: a model's own name is `model.onnx` too often."""


def render_html(report: Report | Head, options: RenderOptions | None = None) -> str:
    """Render the report as a page, with the documents that `options` put beside it.

    Raises:
        UsageError: a document beside it is of a kind that no page shows, or has an invalid value.
    """
    beside = options.beside if options is not None else ()
    document = to_record(report)
    return _make([document, *map(_typed, beside)], page_of(report, document))


def render_documents(documents: Sequence[Mapping[str, Any]]) -> str:
    """Render a page of JSON documents, a section each; the first gives the page its title.

    Raises:
        UsageError: one is of a kind that no page shows, or has an invalid value.
    """
    return _make(list(map(_typed, documents)))


def _typed(document: Mapping[str, Any]) -> Head:
    """Return the record of a saved report."""
    kind = schema_name(document)
    if kind not in _SHOWN:
        raise UsageError(
            f"a report of `{kind}` has no place in a page; it shows those of {', '.join(sorted(_SHOWN))}"
        )
    return to_typed(document)


_SHOWN = {kind for kind, record in DOCUMENTS.items() if record.__name__ in PAGES}
"""Names of the schemas whose documents a page shows."""


def _make(documents: Sequence[Head], page: Page | None = None) -> str:
    """Render the page of all documents; `page` is that of the first, if its report says more than its document."""
    times = next((_times(each) for each in documents if isinstance(each, TimeDocument)), {})
    formula = next((each for each in documents if isinstance(each, FormulaDocument)), None)
    keys = Keys()
    sections = []
    for each in documents:
        shown_page = add_times(page or describe(each), times)
        page = None
        if formula is not None and formula.total is not None:
            shown_page = add_formula(shown_page, formula.class_ or "The formula", formula.total)
        sections.append(make_section(shown_page, keys, times))
    return _page(sections)


def write_html(page: Page) -> str:
    """Render a page as an HTML page of its own."""
    return _page([make_section(page, Keys(), {})])


def _page(sections: Sequence[Section]) -> str:
    title = " -> ".join(map(_shorten_path, sections[0].name.split(" -> "))) or sections[0].title
    return make_page(title, _disambiguate_titles(sections))


def _disambiguate_titles(sections: Sequence[Section]) -> list[Section]:
    """Return the sections with titles that differ: equal questions get their subject, and equal subjects a number."""
    title_counts = Counter(section.title for section in sections)
    name_counts = Counter((section.title, section.name) for section in sections)
    seen: Counter[tuple[str, str]] = Counter()
    retitled = []
    for section in sections:
        key, title = (section.title, section.name), section.title
        seen[key] += 1
        if title_counts[title] > 1:
            details = [_shorten_path(section.name)] if section.name else []
            details += [f"{seen[key]} of {name_counts[key]}"] if name_counts[key] > 1 else []
            title = ": ".join(filter(None, [title.removesuffix("?"), ", ".join(details)]))
        retitled.append(replace(section, title=title))
    return retitled


def _shorten_path(path: str) -> str:
    """Return the last parts of a path."""
    ends = path.replace("\\", "/").rstrip("/").split("/")
    return "/".join(filter(None, ends[-_PARTS:]))


def _times(document: TimeDocument) -> dict[str, float]:
    """Return the milliseconds of each group, for other documents of the page."""
    return {part.group: part.ms for part in document.groups if not part.across}
