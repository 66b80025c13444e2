"""The document of `explain`."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from analyzer.account.ledger import Severity
from analyzer.documents.base import FindingId, Head, Record, Text


class ExplainDocument(Head, frozen=True, kw_only=True):
    """A report of `onnxledger explain --format json`."""

    command: Literal["explain"] = "explain"
    """The command that wrote the document."""
    findings: list[Explanation]
    """Requested kinds of findings, in the requested order; all kinds, sorted by id, if none was named."""


class Explanation(Record, frozen=True, kw_only=True):
    """Explanation of one kind of finding."""

    id: FindingId
    """Stable identifier of the kind of finding."""
    title: Text
    """The finding in a few words."""
    severities: Annotated[list[Severity], Meta(min_length=1)]
    """Severities that the finding can have, mildest first."""
    meaning: Text
    """Description of the finding, and the reason why it matters."""
    cost: Text
    """Bytes that count as its cost, or another cost."""
    mend: Text
    """Steps that remove the finding."""
    seen_by: Text
    """Commands that report the finding, and the options that this depends on."""
    docs: Text
    """Page of the repository with more about the finding, and a heading in it."""
