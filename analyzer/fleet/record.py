"""The nouns of a fleet: what is found, what is to be read of it, and what a run did."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Protocol, TypeAlias

from analyzer.model.content import ContentMode
from analyzer.records import Frozen, Mutable, field

if TYPE_CHECKING:
    import pyarrow as pa


TABLES = ("models", "files", "tensors", "groups", "operators", "findings")
"""The tables of a lake."""

Tables: TypeAlias = "Mapping[str, pa.Table]"
"""The rows of some models, by the name of the table."""


class Found(Frozen):
    """A model, and what tells this version of it from the next without reading it."""

    model: str
    """Its path or URL, as it was named or found."""
    mark: str
    """Size and time of change of a file, the tag that a server gives; "" where nothing tells."""


class FleetSettings(Frozen):
    """How models are read. Two lakes of the same models and settings are equal, whoever made them."""

    content: ContentMode | None = None
    """As `audit_model` takes it."""
    max_objects: int | None = None
    """As `audit_model` takes it."""
    seconds: float = 300.0
    """Seconds of wall time that one model may take."""
    nbytes: int = 2 << 30
    """Bytes of memory that the process that reads a model may have of its own."""
    shapes: tuple[str, ...] = ()
    """Sizes of axes at which the work and the memory of a run are told, as of `--shape`; () asks for neither."""
    version: str = ""
    """Of the program that asks; one that answers must be the same."""


class Wanted(Frozen):
    """A model to be read, and what is known of it."""

    model: str
    digests: tuple[tuple[str, str], ...] = ()
    """(file, SHA-256) of all its files when it was last read: where they are still these, it need not be read."""


class Task(Frozen):
    """The models of one shard that have to be read."""

    number: int
    wanted: tuple[Wanted, ...]
    settings: FleetSettings


class Engine(Protocol):
    """What hands tasks to processes, here or elsewhere, and yields their tables as they come."""

    def run(self, tasks: Iterator[Task]) -> Iterator[tuple[int, Tables]]:
        """Each task's number with what `survey_shard` answers to it; no more are taken than can be worked on."""
        ...


class Survey(Mutable):
    """What a run has done so far. Not frozen: this is what counts."""

    lake: str
    models: int = 0
    """Models in the lake."""
    kept: int = 0
    """Those that had not changed."""
    read: int = 0
    """Those that were read now."""
    unreadable: int = 0
    """Those of which there is but an error."""
    shards: int = 0
    """Parts that the tables are written in."""
    written: int = 0
    """Those that were written now."""
    rows: dict[str, int] = field(default_factory=dict)
    """Rows of each table."""
    nbytes: int = 0
    """Bytes of all tables on disk."""
