"""What the documents of several commands have in common."""

from __future__ import annotations

import re
from typing import Any

from analyzer.ledger import Finding
from analyzer.version import version

__all__ = ["SCHEMA_VERSION", "Document", "head", "list_findings", "utf8"]

SCHEMA_VERSION = 1

Document = dict[str, Any]


def head(command: str, stamp: str | None = None) -> Document:
    """The keys that every document begins with."""
    document: Document = {
        "schema_version": SCHEMA_VERSION,
        "command": command,
        "tool": {"name": "onnxledger", "version": version()},
    }
    return document if stamp is None else {**document, "generated_at": stamp}


def list_findings(findings: tuple[Finding, ...]) -> list[Document]:
    """A row for each finding, in their order."""
    return [
        {
            "id": finding.id,
            "severity": finding.severity.value,
            "message": finding.message,
            "subjects": list(finding.subjects),
            "bytes": finding.nbytes,
        }
        for finding in findings
    ]


def utf8(text: str) -> str:
    r"""A path, or a sentence with one, with `\x..` escapes for the bytes that are not UTF-8.

    Python has half a surrogate pair for each of them, which other readers of JSON refuse.
    """
    return re.sub("[\udc80-\udcff]", lambda found: f"\\x{ord(found[0]) - 0xDC00:02x}", text)
