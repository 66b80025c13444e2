"""What a survey has done -> text, JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from analyzer.documents.lake import LakeDocument, LakeTable
from analyzer.render.json import write_json
from analyzer.render.json.parts import head, utf8
from analyzer.units import format_bytes, format_count, format_many, printable

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Done", "summary_as_json", "summary_as_text"]


class Done(Protocol):
    """What a run tells of itself: `analyzer.fleet.record.Survey`."""

    lake: str
    models: int
    kept: int
    read: int
    unreadable: int
    shards: int
    written: int
    nbytes: int

    @property
    def rows(self) -> Mapping[str, int]: ...


def summary_as_text(done: Done) -> str:
    """A few lines: how many models, what was read, how large the tables are."""
    counts = [f"{format_count(done.read)} read", f"{format_count(done.kept)} unchanged"]
    if done.unreadable:
        counts.append(f"{format_count(done.unreadable)} unreadable")
    rows = ", ".join(f"{name} {format_count(count)}" for name, count in done.rows.items())
    lines = [
        f"{printable(done.lake)}: {format_many(done.models, 'model')}: {', '.join(counts)}",
        f"rows: {rows}",
        f"{format_bytes(done.nbytes)} in {format_many(done.shards, 'shard')},"
        f" {format_count(done.written)} written now",
    ]
    if done.unreadable:
        lines.append("sql LAKE --question errors says what cannot be read, and why")
    return "\n".join(lines) + "\n"


def summary_as_json(done: Done) -> str:
    """The document of the run."""
    return write_json(
        LakeDocument(
            **head(),
            lake=utf8(done.lake),
            models=done.models,
            unreadable=done.unreadable,
            read=done.read,
            kept=done.kept,
            shards=done.shards,
            written=done.written,
            tables=[LakeTable(table=name, rows=count) for name, count in done.rows.items()],  # type: ignore[arg-type]
            bytes=done.nbytes,
        )
    )
