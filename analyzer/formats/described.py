"""Report -> Page: the content of its document, and for a formula also its expressions in symbols."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analyzer.documents.base import Head
from analyzer.formats.json import to_record
from analyzer.pages.kinds import describe
from analyzer.pages.page import Page

if TYPE_CHECKING:
    from analyzer.reports import Report


def page_of(report: Report | Head, document: Head | None = None) -> Page:
    """Return the page of a report, or of its document.

    Args:
        report: answer of a command, or the document of a saved report.
        document: document of the report, if it is made already.

    Raises:
        KeyError: there is no page for this kind of document.
    """
    document = document or to_record(report)
    if type(report).__name__ == "FormulaReport":  # imported here, as only formulas need it
        from analyzer.documents.formula import FormulaDocument
        from analyzer.formulas.record import FormulaReport
        from analyzer.pages.formula import describe_formula
        from analyzer.pages.symbols import symbols_of

        assert isinstance(report, FormulaReport)
        assert isinstance(document, FormulaDocument)
        return describe_formula(document, symbols_of(report))
    return describe(document)
