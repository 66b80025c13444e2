"""Report -> Page: what its document says, and of a formula also its expressions in symbols."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analyzer.documents.base import Head
from analyzer.formats.json import to_record
from analyzer.pages.kinds import describe
from analyzer.pages.page import Page

if TYPE_CHECKING:
    from analyzer.reports import Report


def page_of(report: Report | Head, document: Head | None = None) -> Page:
    """What a report, or its document, says.

    Args:
        report: what a command answers, or the document of a saved report.
        document: the same as its document, where that is made already.

    Raises:
        KeyError: there is no page of its kind.
    """
    document = document or to_record(report)
    if type(report).__name__ == "FormulaReport":  # no other needs to know what one is
        from analyzer.documents.formula import FormulaDocument
        from analyzer.formulas.record import FormulaReport
        from analyzer.pages.formula import describe_formula
        from analyzer.pages.symbols import symbols_of

        assert isinstance(report, FormulaReport)
        assert isinstance(document, FormulaDocument)
        return describe_formula(document, symbols_of(report))
    return describe(document)
