"""The nouns of a page: sections of blocks, each of which a template of its name shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from analyzer.records import Frozen, Mutable

Cell: TypeAlias = "int | str"
"""Counts are exact, and get their separators where they are shown; whatever else is text already."""


class Keys(Mutable):
    """Gives every block of a page a key of its own."""

    count: int = 0

    def next(self) -> str:
        self.count += 1
        return f"block-{self.count}"


class Column(Frozen):
    """A column of a table."""

    title: str
    is_number: bool = False
    """It stands at the right, and is sorted by its value, the largest first."""
    is_hidden: bool = False
    """Charts need it, and nobody reads it."""
    is_code: bool = False
    """Names from the file."""
    is_prose: bool = False
    """Sentences, which may be broken over lines."""
    is_signed: bool = False
    """Changes, of which those above 0 have a sign too."""

    @property
    def kind(self) -> str:
        """How its cells look: a class of the style."""
        if self.is_number:
            return "number"
        return "code" if self.is_code else "prose" if self.is_prose else "text"


class Answer(Frozen):
    """What a command answers, in one line."""

    is_good: bool
    text: str
    is_plain: bool = False
    """Neither good nor bad."""
    template = "answer"


class Tile(Frozen):
    """A number that one looks for first."""

    label: str
    value: str
    note: str = ""


class Tiles(Frozen):
    """Totals."""

    tiles: tuple[Tile, ...]
    template = "tiles"


class Fact(Frozen):
    """What is known of a model or a run."""

    label: str
    value: str


class Facts(Frozen):
    """Names and values."""

    facts: tuple[Fact, ...]
    title: str = ""
    template = "facts"


class Notes(Frozen):
    """Sentences."""

    lines: tuple[str, ...]
    title: str = ""
    is_warning: bool = False
    template = "notes"


def find_shown(columns: tuple[Column, ...]) -> list[tuple[int, str]]:
    """The places of the columns that people read, each with how its cells look."""
    return [(index, column.kind) for index, column in enumerate(columns) if not column.is_hidden]


class Table(Frozen):
    """A short table, which stands as it is."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    levels: tuple[int, ...] = ()
    """How far the first cell of each row is set in."""
    total: tuple[Cell, ...] = ()
    note: str = ""
    bad: frozenset[int] = frozenset()
    """Rows that say what is wrong."""
    template = "table"


class Grid(Frozen):
    """A table of any length: sorted, searched and paged by the script, and whole where there is none."""

    key: str
    """Unique on its page."""
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    total: tuple[Cell, ...] = ()
    note: str = ""
    said: tuple[tuple[int, int, str], ...] = ()
    """Numbers that are written otherwise than they are: row, column, and how."""
    template = "grid"

    @property
    def data(self) -> Mapping[str, Any]:
        """What the script reads."""
        columns = [[each.title, each.kind, int(each.is_hidden), int(each.is_signed)] for each in self.columns]
        return {
            "title": self.title,
            "columns": columns,
            "rows": [list(map(_exact, row)) for row in self.rows],
            "total": list(map(_exact, self.total)),
            "said": list(map(list, self.said)),
        }


class Chart(Frozen):
    """A picture of numbers that stand in a table beside it."""

    key: str
    title: str
    kind: str
    """A function of the script: tree, waterfall, bars, lines, steps, errors."""
    data: Mapping[str, Any]
    summary: str
    """What it shows, for who cannot see it."""
    template = "chart"


class Finding(Frozen):
    """A finding, with what the catalogue says of its kind."""

    id: str
    severity: str
    message: str
    subjects: tuple[str, ...]
    nbytes: str
    title: str
    paragraphs: tuple[tuple[str, str], ...]
    """What it means, costs, and how to mend it: a heading and a text each."""
    model: str = ""


class Findings(Frozen):
    """What was found."""

    findings: tuple[Finding, ...]
    title: str = ""
    template = "findings"


class Passage(Frozen):
    """Texts of ours, with headings."""

    title: str
    lead: str
    paragraphs: tuple[tuple[str, str], ...]
    more: str
    template = "passage"


Block: TypeAlias = "Answer | Tiles | Facts | Notes | Table | Grid | Chart | Findings | Passage"


class Section(Frozen):
    """What one document has to say."""

    key: str
    title: str
    subject: str
    """The model, or the models, and what made it."""
    blocks: tuple[Block, ...]
    name: str = ""
    """What the page is called where this is its first section."""
    about: str = ""
    """The subject without its name, for a page that has the name above."""


_SAFE = 2**53 - 1
"""The largest count that a script has exactly."""


def _exact(cell: Cell) -> Cell:
    return str(cell) if isinstance(cell, int) and abs(cell) > _SAFE else cell
