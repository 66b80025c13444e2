"""The document of `survey`: what a run has done, and how large its lake is."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from analyzer.documents.base import Bytes, Head, Record, Text

_Models = Annotated[int, Meta(ge=0, extra={"unit": "models"})]
_Shards = Annotated[int, Meta(ge=0, extra={"unit": "shards"})]


class LakeTable(Record, frozen=True, kw_only=True):
    """One table of the lake."""

    table: Literal["models", "files", "tensors", "groups", "operators", "findings"]
    """Its name, which is that of its folder."""
    rows: Annotated[int, Meta(ge=0, extra={"unit": "rows"})]
    """Rows of all shards."""


class LakeDocument(Head, frozen=True, kw_only=True):
    """What `onnxledger survey --format json` prints."""

    command: Literal["survey"] = "survey"
    """The command that wrote the document."""
    lake: Text
    """The folder of the tables."""
    models: _Models
    """Models in the lake."""
    unreadable: _Models
    """Of these, those of which there is but an error."""
    read: _Models
    """Models that were read in this run."""
    kept: _Models
    """Models that had not changed, so that nobody read them again."""
    shards: _Shards
    """Parts that the tables are written in."""
    written: _Shards
    """Of these, those that this run wrote."""
    tables: list[LakeTable]
    """The tables, in their order."""
    bytes: Bytes
    """All tables on disk."""
