"""Document -> its Page, by the function that describes documents of its kind."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping

from analyzer.documents.base import Head
from analyzer.pages.page import Page

PAGES: Mapping[str, str] = {
    "CheckDocument": "check:describe_check",
    "CompareDocument": "compare:describe_comparison",
    "CompareSweepDocument": "compare_time:describe_sweep_comparison",
    "CompareTimeDocument": "compare_time:describe_time_comparison",
    "CostDocument": "cost:describe_cost",
    "ExplainDocument": "explain:describe_explanations",
    "ExportDocument": "reconcile:describe_export",
    "FormulaDocument": "formula:describe_formula",
    "GenerationDocument": "generation:describe_generation",
    "InspectDocument": "inspect:describe_inspection",
    "LakeDocument": "lake:describe_lake",
    "ReconcileDocument": "reconcile:describe_reconciliation",
    "RecoverDocument": "recover:describe_recovery",
    "SurveyDocument": "survey:describe_survey",
    "SweepDocument": "time:describe_sweep",
    "TimeDocument": "time:describe_timing",
    "VerifyDocument": "verify:describe_verification",
}
"""`module:function` that makes the page, by the name of the document's class; modules are loaded on demand."""


def describe(document: Head) -> Page:
    """Return the page of a document.

    Raises:
        KeyError: no page describes its kind.
    """
    module, _, function = PAGES[type(document).__name__].partition(":")
    make: Callable[[Head], Page] = getattr(importlib.import_module(f"analyzer.pages.{module}"), function)
    return make(document)
