"""Records of a page: sections of blocks, each shown by the template of its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from analyzer.records import Frozen, Mutable

Cell: TypeAlias = "int | str"
"""Cell of a table: a count is exact and gets its separators when it is shown; anything else is text already."""


class Keys(Mutable):
    """Source of a key for every block of a page."""

    count: int = 0

    def next(self) -> str:
        self.count += 1
        return f"block-{self.count}"


class Column(Frozen):
    """A column of a table."""

    title: str
    is_number: bool = False
    """Whether the column stands at the right and is sorted by value, largest first."""
    is_hidden: bool = False
    """Whether only charts need the column."""
    is_code: bool = False
    """Whether the column has names from the file."""
    is_prose: bool = False
    """Whether the column has sentences, which may break over lines."""
    is_signed: bool = False
    """Whether the column has changes, which have a sign above 0 too."""

    @property
    def kind(self) -> str:
        """Look of its cells: a class of the style sheet."""
        if self.is_number:
            return "number"
        return "code" if self.is_code else "prose" if self.is_prose else "text"


class Answer(Frozen):
    """Answer of a command, in one line."""

    is_good: bool
    text: str
    is_plain: bool = False
    """Whether the answer is neither good nor bad."""
    template = "answer"


class Tile(Frozen):
    """A number that readers look for first."""

    label: str
    value: str
    note: str = ""


class Tiles(Frozen):
    """Row of tiles with totals."""

    tiles: tuple[Tile, ...]
    template = "tiles"


class Fact(Frozen):
    """A fact about a model or a run."""

    label: str
    value: str


class Facts(Frozen):
    """List of facts: names and values."""

    facts: tuple[Fact, ...]
    title: str = ""
    template = "facts"


class Notes(Frozen):
    """List of sentences."""

    lines: tuple[str, ...]
    title: str = ""
    is_warning: bool = False
    template = "notes"


def find_shown(columns: tuple[Column, ...]) -> list[tuple[int, str]]:
    """Return the positions of the columns that people read, each with the look of its cells."""
    return [(index, column.kind) for index, column in enumerate(columns) if not column.is_hidden]


class Table(Frozen):
    """A short table, which is shown as it is."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    levels: tuple[int, ...] = ()
    """Level of indentation of the first cell of each row."""
    total: tuple[Cell, ...] = ()
    note: str = ""
    bad: frozenset[int] = frozenset()
    """Rows that report a fault."""
    template = "table"


class Grid(Frozen):
    """A table of any length: the script sorts, searches and pages it; without a script it is shown whole."""

    key: str
    """Key of the table, unique on its page."""
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    total: tuple[Cell, ...] = ()
    note: str = ""
    displayed: tuple[tuple[int, int, str], ...] = ()
    """Numbers that are shown in another form: row, column and text."""
    template = "grid"

    @property
    def data(self) -> Mapping[str, Any]:
        """Data for the script."""
        columns = [[each.title, each.kind, int(each.is_hidden), int(each.is_signed)] for each in self.columns]
        return {
            "title": self.title,
            "columns": columns,
            "rows": [list(map(_exact, row)) for row in self.rows],
            "total": list(map(_exact, self.total)),
            "said": list(map(list, self.displayed)),
        }


class Chart(Frozen):
    """A picture of numbers, which a table beside it has too."""

    key: str
    title: str
    kind: str
    """Name of a function of the script: tree, waterfall, bars, lines, steps, errors."""
    data: Mapping[str, Any]
    summary: str
    """Description of the chart for people who cannot see it."""
    template = "chart"


class Finding(Frozen):
    """A finding, with the catalogue's texts on its kind."""

    id: str
    severity: str
    message: str
    subjects: tuple[str, ...]
    nbytes: str
    title: str
    paragraphs: tuple[tuple[str, str], ...]
    """Headings with texts: the meaning, the cost, and the remedy."""
    model: str = ""


class Findings(Frozen):
    """List of findings."""

    findings: tuple[Finding, ...]
    title: str = ""
    template = "findings"


class Passage(Frozen):
    """Fixed texts with headings."""

    title: str
    lead: str
    paragraphs: tuple[tuple[str, str], ...]
    more: str
    template = "passage"


Block: TypeAlias = "Answer | Tiles | Facts | Notes | Table | Grid | Chart | Findings | Passage"


class Section(Frozen):
    """Content of one document."""

    key: str
    title: str
    subject: str
    """Model or models, and details of them."""
    blocks: tuple[Block, ...]
    name: str = ""
    """Name of the page if this is its first section."""
    about: str = ""
    """Subject without its name, for a page that has the name above."""


_SAFE = 2**53 - 1
"""Largest count that JavaScript holds exactly."""


def _exact(cell: Cell) -> Cell:
    return str(cell) if isinstance(cell, int) and abs(cell) > _SAFE else cell
