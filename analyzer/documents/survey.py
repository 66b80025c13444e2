"""The document of `inspect` on many models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from analyzer.account.ledger import Severity
from analyzer.documents.base import (
    Bytes,
    Elements,
    FindingId,
    No,
    Nodes,
    Record,
    Stamped,
    Text,
    Yes,
    one_of,
)
from analyzer.documents.inspect import DtypeTotals, Roles, Totals


class SurveyDocument(Stamped, frozen=True, kw_only=True):
    """A report of `onnxledger inspect --format json` on many models."""

    command: Literal["inspect"] = "inspect"
    """The command that wrote the document."""
    models: Annotated[list[Annotated[Any, one_of("Surveyed", "Unreadable")]], Meta(min_length=1)]
    """The models in the order in which they were named; those of a folder in natural order."""
    totals: SurveyTotals
    """Sums over the readable models."""

    def __post_init__(self) -> None:
        """Make rows of objects that were read: which record one is, `readable` says."""
        rows = [_row(each) if isinstance(each, Mapping) else each for each in self.models]
        msgspec.structs.force_setattr(self, "models", rows)


def _row(found: Mapping[str, Any]) -> Surveyed | Unreadable:
    if found.get("readable") is False:
        return msgspec.convert(found, Unreadable)
    return msgspec.convert(found, Surveyed)


class SurveyFinding(Record, frozen=True, kw_only=True):
    """What the user of the file should know, sorted by id."""

    id: FindingId
    """Stable identifier of the kind of finding."""
    severity: Severity
    """How much it matters; an error means that the account is incomplete or does not balance."""
    message: Text
    """One sentence for people; its words may change."""
    bytes: Annotated[int, Meta(ge=1, extra={"unit": "bytes"})] | None
    """Bytes on disk that mending it would save; null where it costs none, or nobody can tell."""


class Surveyed(Record, frozen=True, kw_only=True):
    """The models in the order in which they were named; those of a folder in natural order."""

    path: Text
    """The model as it was named; of a model in a folder, the folder's name and the path below it."""
    readable: Yes
    """That it could be read."""
    nodes: Nodes
    """Nodes of all graphs and functions."""
    totals: Totals
    """Sums over the whole model."""
    roles: Roles
    """Sums by role; every role is there, also where it is empty."""
    dtypes: list[DtypeTotals]
    """Sums by element type, sorted by name."""
    findings: list[SurveyFinding]
    """What the user of the file should know, sorted by id."""


class Unreadable(Record, frozen=True, kw_only=True):
    """The models in the order in which they were named; those of a folder in natural order."""

    path: Text
    """The model as it was named, or a folder that could not be listed or has no model."""
    readable: No
    """That it could not be read."""
    error: Text
    """One sentence that begins with the path; its words may change."""


class SurveyTotals(Record, frozen=True, kw_only=True):
    """Sums over the readable models."""

    models: Annotated[int, Meta(ge=0, extra={"unit": "models"})]
    """Rows of `models`."""
    readable: Annotated[int, Meta(ge=0, extra={"unit": "models"})]
    """Those that could be read."""
    parameters: Elements
    """Logical learned elements; what two models both have counts for both."""
    stored_elements: Elements
    """Elements as stored."""
    stored_bytes: Bytes
    """Encoded payloads."""
    file_bytes: Bytes
    """Sizes of all files on disk; a file that models share counts once."""
