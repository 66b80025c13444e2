"""Records of a survey: models found, models to be read, and the progress of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Protocol, TypeAlias

from analyzer.model.content import ContentMode
from analyzer.records import Frozen, Mutable, field

if TYPE_CHECKING:
    import pyarrow as pa


TABLES = ("models", "files", "tensors", "groups", "operators", "findings")
"""Names of the tables of a lake."""

Tables: TypeAlias = "Mapping[str, pa.Table]"
"""Rows of some models, by table name."""


class Found(Frozen):
    """Model, with a mark of its version that is known without reading it."""

    model: str
    """Path or URL, as it was named or found."""
    mark: str
    """Size and modification time of a file, or the tag from a server; "" if there is none."""


class FleetSettings(Frozen):
    """Settings for reading models. Two lakes of the same models and settings are equal, on any machine."""

    content: ContentMode | None = None
    """As in `audit_model`."""
    max_objects: int | None = None
    """As in `audit_model`."""
    seconds: float = 300.0
    """Most seconds of wall time for one model."""
    nbytes: int = 2 << 30
    """Most bytes of private memory of the process that reads a model."""
    shapes: tuple[str, ...] = ()
    """Axis sizes at which the work and the memory of a run are computed, as in `--shape`; () computes neither."""
    version: str = ""
    """Version of the requesting program; the answering one must have the same."""


class Wanted(Frozen):
    """Model to be read, with its last digests."""

    model: str
    digests: tuple[tuple[str, str], ...] = ()
    """(file, SHA-256) of all its files when it was last read; if they are unchanged, it is not read again."""


class Task(Frozen):
    """Models of one shard that must be read."""

    number: int
    wanted: tuple[Wanted, ...]
    settings: FleetSettings


class Engine(Protocol):
    """Engine that hands tasks to processes, here or on other machines, and yields their tables as they finish."""

    def run(self, tasks: Iterator[Task]) -> Iterator[tuple[int, Tables]]:
        """Yield each task's number with the result of `survey_shard`; take only as many tasks as can be processed."""
        ...


class Survey(Mutable):
    """Progress of a run. Not frozen, because it counts."""

    lake: str
    models: int = 0
    """Number of models in the lake."""
    kept: int = 0
    """Number of unchanged models."""
    read: int = 0
    """Number of models read in this run."""
    unreadable: int = 0
    """Number of models with only an error."""
    first_error: str | None = None
    """Error of the first of these."""
    shards: int = 0
    """Number of parts in which the tables are written."""
    written: int = 0
    """Number of parts written in this run."""
    rows: dict[str, int] = field(default_factory=dict)
    """Number of rows of each table."""
    nbytes: int = 0
    """Bytes of all tables on disk."""
