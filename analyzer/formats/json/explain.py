"""Explanations of findings -> their JSON document."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

from analyzer.account.findings.catalog import Explanation
from analyzer.documents import explain as explain_records
from analyzer.formats.json.parts import head


def document_explanations(explanations: Iterable[Explanation]) -> explain_records.ExplainDocument:
    """Return the document of `explain`: a row for each finding, with the keys of the record."""
    findings = [
        explain_records.Explanation(**{**asdict(each), "severities": list(each.severities)})
        for each in explanations
    ]
    return explain_records.ExplainDocument(**head(), findings=findings)
