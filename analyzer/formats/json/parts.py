"""Parts that the documents of several commands share."""

from __future__ import annotations

import re
from typing import Any

from analyzer.account.ledger import Finding
from analyzer.documents import shared as shared_records
from analyzer.documents.base import Tool
from analyzer.version import version

Document = dict[str, Any]
"""A record as plain values."""

Fields = dict[str, Any]
"""Fields that several records share, by name."""


def head(stamp: str | None = None) -> Fields:
    """Return the fields that every document begins with, except those with defaults."""
    tool: Fields = {"tool": Tool(version=version())}
    return tool if stamp is None else {**tool, "generated_at": stamp}


def list_findings(findings: tuple[Finding, ...]) -> list[shared_records.Finding]:
    """Return a row for each finding, in order."""
    return [shared_records.Finding(**finding_fields(finding)) for finding in findings]


def finding_fields(finding: Finding) -> Fields:
    """Return the fields of a finding in every document."""
    return {
        "id": finding.id,
        "severity": finding.severity,
        "message": finding.message,
        "subjects": list(finding.subjects),
        "bytes": finding.nbytes,
    }


def utf8(text: str) -> str:
    r"""Return a path, or a sentence with one, with `\x..` escapes for the bytes that are not UTF-8.

    Python has half a surrogate pair for each of them, which other readers of JSON refuse.
    """
    return re.sub("[\udc80-\udcff]", lambda found: f"\\x{ord(found[0]) - 0xDC00:02x}", text)
