"""The document of `survey`: the work of a run, and the size of its lake."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from analyzer.documents.base import Bytes, Head, Record, Text

_Models = Annotated[int, Meta(ge=0, extra={"unit": "models"})]
_Shards = Annotated[int, Meta(ge=0, extra={"unit": "shards"})]


class LakeTable(Record, frozen=True, kw_only=True):
    """One table of the lake."""

    table: Literal["models", "files", "tensors", "groups", "operators", "findings"]
    """Name of the table, which is that of its folder."""
    rows: Annotated[int, Meta(ge=0, extra={"unit": "rows"})]
    """Number of rows in all shards."""


class LakeDocument(Head, frozen=True, kw_only=True):
    """A report of `onnxledger survey --format json`."""

    command: Literal["survey"] = "survey"
    """The command that wrote the document."""
    lake: Text
    """Folder of the tables."""
    models: _Models
    """Number of models in the lake."""
    unreadable: _Models
    """Number of models of which the lake has only an error."""
    first_error: Text | None
    """Error of the first of these; null if all models could be read."""
    read: _Models
    """Number of models that this run read, or tried to read."""
    kept: _Models
    """Number of models that had not changed and were not read again."""
    shards: _Shards
    """Number of shards, the parts that the tables are written in."""
    written: _Shards
    """Number of shards that this run wrote."""
    tables: list[LakeTable]
    """Tables of the lake, in their order."""
    bytes: Bytes
    """Size of all tables on disk."""
