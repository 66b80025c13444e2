"""The document of `explain`."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from analyzer.account.ledger import Severity
from analyzer.documents.base import FindingId, Head, Record, Text


class ExplainDocument(Head, frozen=True, kw_only=True):
    """What `onnxledger explain --format json` writes."""

    command: Literal["explain"] = "explain"
    """The command that wrote the document."""
    findings: list[Explanation]
    """The kinds of findings that were asked for, in that order; all, sorted by id, where none was named."""


class Explanation(Record, frozen=True, kw_only=True):
    """The kinds of findings that were asked for, in that order; all, sorted by id, where none was named."""

    id: FindingId
    """Stable identifier of the kind of finding."""
    title: Text
    """What was found, in a few words."""
    severities: Annotated[list[Severity], Meta(min_length=1)]
    """Those that it comes with, the mildest first."""
    meaning: Text
    """What was seen, and why it matters."""
    cost: Text
    """Which bytes are counted as its cost, or what it costs otherwise."""
    mend: Text
    """The steps that make it go away."""
    seen_by: Text
    """The commands that find it, and the options that this depends on."""
    docs: Text
    """A page of the repository that says more, and a heading in it."""
