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
    """Models in the order given; those of a folder in natural order."""
    totals: SurveyTotals
    """Sums over the readable models."""

    def __post_init__(self) -> None:
        """Convert objects that were read into records; `readable` says which record."""
        rows = [_row(each) if isinstance(each, Mapping) else each for each in self.models]
        msgspec.structs.force_setattr(self, "models", rows)


def _row(found: Mapping[str, Any]) -> Surveyed | Unreadable:
    if found.get("readable") is False:
        return msgspec.convert(found, Unreadable)
    return msgspec.convert(found, Surveyed)


class SurveyFinding(Record, frozen=True, kw_only=True):
    """A finding about one model."""

    id: FindingId
    """Stable identifier of the kind of finding."""
    severity: Severity
    """Importance of the finding; an error means that the account is incomplete or does not balance."""
    message: Text
    """One sentence for people; its wording may change."""
    bytes: Annotated[int, Meta(ge=1, extra={"unit": "bytes"})] | None
    """Bytes on disk that a fix would save; null if the finding costs none, or the amount is unknown."""


class Surveyed(Record, frozen=True, kw_only=True):
    """A model that could be read."""

    path: Text
    """Path of the model as given; for a model in a folder, the folder's name and the path below it."""
    readable: Yes
    """Whether the model could be read: always true here."""
    nodes: Nodes
    """Number of nodes in all graphs and functions."""
    totals: Totals
    """Sums over the whole model."""
    roles: Roles
    """Sums by role, for every role, even one without tensors."""
    dtypes: list[DtypeTotals]
    """Sums by element type, sorted by name."""
    findings: list[SurveyFinding]
    """Findings, sorted by id."""


class Unreadable(Record, frozen=True, kw_only=True):
    """A model, or a folder of models, that could not be read."""

    path: Text
    """Path of the model as given, or of a folder that could not be listed or has no model."""
    readable: No
    """Whether the model could be read: always false here."""
    error: Text
    """One sentence that begins with the path; its wording may change."""


class SurveyTotals(Record, frozen=True, kw_only=True):
    """Sums over the readable models."""

    models: Annotated[int, Meta(ge=0, extra={"unit": "models"})]
    """Number of rows in `models`."""
    readable: Annotated[int, Meta(ge=0, extra={"unit": "models"})]
    """Number of models that could be read."""
    parameters: Elements
    """Logical learned elements; those that two models share count for both."""
    stored_elements: Elements
    """Elements as stored."""
    stored_bytes: Bytes
    """Bytes of encoded payload."""
    file_bytes: Bytes
    """Sizes of all files on disk; a file that models share counts once."""
