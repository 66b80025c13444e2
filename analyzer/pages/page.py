"""Parts of a page: an answer, figures, facts, findings and tables of typed cells, which each format writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import cached_property
from typing import NamedTuple, TypeAlias, overload

from analyzer.errors import LedgerError
from analyzer.records import Frozen, field, replace
from analyzer.text import (
    format_bytes,
    format_count,
    format_doing,
    format_error,
    format_fine_ms,
    format_ms,
    format_others,
    format_signed,
    format_signed_bytes,
    format_signed_ms,
    short_share,
)


class Tone(Enum):
    """Tone of an answer, which formats show as a colour and a mark."""

    GOOD = "good"
    BAD = "bad"
    PLAIN = "plain"
    WARN = "warn"
    """A doubt about the answer."""


class Detail(Enum):
    """Visibility of a block in text and Markdown; an HTML page shows every block."""

    FIRST = "first"
    """Always, above the tables."""
    SHOWN = "shown"
    """Always."""
    MORE = "more"
    """In text only with `-v` or `-n 0`; in Markdown folded, unless `-v` is given."""


class Kind(Enum):
    """Kind of content in a cell: it decides how the cell is written, and whether cells add up."""

    TEXT = "text"
    NAME = "name"
    """A name from a file."""
    PROSE = "prose"
    """A sentence, which may be broken over lines."""
    FORMULA = "formula"
    """An expression, which may be broken before a summand."""
    COUNT = "count"
    """A number that adds up: one row sums the rows that are left out."""
    BYTES = "bytes"
    MS = "ms"
    FINE_MS = "fine ms"
    """Part of a run that takes less than 1 ms."""
    NOISE = "noise"
    """Error of a time, in ms; it does not add up."""
    FINE_NOISE = "fine noise"
    """Error of a part of a run that takes less than 1 ms."""
    SHARE = "share"
    """A fraction of 1, written in percent with one decimal."""
    RATIO = "ratio"
    """A fraction like a share that may be above 1 or below 0; it does not add up."""
    ERROR = "error"
    """A difference of values, written with three digits."""
    DECIBEL = "decibel"
    AMOUNT = "amount"
    """A number in the unit of its row, often with a text of its own; it does not add up."""
    SIGNED = "signed"
    SIGNED_BYTES = "signed bytes"
    SIGNED_MS = "signed ms"

    @property
    def is_number(self) -> bool:
        """Whether cells are right-aligned, and sorted by value."""
        return self not in (Kind.TEXT, Kind.NAME, Kind.PROSE, Kind.FORMULA)

    @property
    def adds(self) -> bool:
        """Whether the cells of several rows have a sum."""
        return self.is_number and self not in _NOT_ADDED


_NOT_ADDED = (Kind.RATIO, Kind.NOISE, Kind.FINE_NOISE, Kind.ERROR, Kind.DECIBEL, Kind.AMOUNT)


class Formatted(Frozen):
    """A number with its own text in place of the format of its kind, such as `12 x 7,087,872`."""

    value: float | None
    text: str


class Math(Frozen):
    """An expression."""

    text: str
    latex: str
    """The expression in LaTeX's math mode, without enclosing dollars."""


class Code(Frozen):
    """A name within a sentence."""

    text: str


class Link(Frozen):
    """A link to a place in our documentation that says more."""

    text: str
    """Text of the link in formats without links."""
    target: str
    """`#` and a title of the same page, or a path between pages of the documentation."""
    name: str = ""
    """Text of the link in formats with links; empty: `text`."""


Piece: TypeAlias = "str | Math | Code | Link"

Prose: TypeAlias = "str | tuple[Piece, ...]"
"""A sentence; its text may come from a file, and is untrusted."""

Cell: TypeAlias = "int | float | str | Formatted | Math | tuple[Piece, ...] | None"
"""Content of a cell. Text is untrusted, and each format escapes it. None: unknown, or not applicable."""


class Column(NamedTuple):
    """A column of a table."""

    title: str
    kind: Kind = Kind.TEXT
    room: int = 0
    """Priority on a narrow terminal: columns with the lowest number are dropped first; 9 is never dropped."""
    is_hidden: bool = False
    """Whether only charts read it."""
    is_bar: bool = False
    """Whether its share is drawn as a bar if there is room."""


class Row(Frozen):
    """A line of a table."""

    cells: tuple[Cell, ...]
    level: int = 0
    """Indentation of the first cell, in levels."""
    tone: Tone = Tone.PLAIN
    stays: bool = False
    """Whether a cut table keeps it, below the other rows."""


class LateRows(Sequence[Row]):
    """Rows that are made on first access: a table that only `-v` shows may have a million of them."""

    def __init__(self, count: int, make: Callable[[], Iterable[Row]]) -> None:
        self._count = count
        self._make = make

    @cached_property
    def _rows(self) -> tuple[Row, ...]:
        return tuple(self._make())

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, at: int) -> Row: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Row, ...]: ...
    def __getitem__(self, at: int | slice) -> Row | tuple[Row, ...]:
        return self._rows[at]

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)


class Table(Frozen):
    """Rows under titles; the first column names them."""

    columns: tuple[Column, ...]
    rows: Sequence[Row]
    title: str = ""
    total: tuple[Cell, ...] = ()
    notes: tuple[str, ...] = ()
    """Sentences below the table."""
    detail: Detail = Detail.SHOWN
    is_whole: bool = False
    """Whether it is short, and never cut."""
    is_long: bool = False
    """Whether it may have any number of rows; an HTML page lets the reader sort, search and turn pages."""
    order: int | None = None
    """Index of the column that ranks the rows of a cut table: its first rows stay, in that order."""
    key: str = ""
    """Name by which charts refer to the table."""
    others: str = "other"
    """Noun in the row that sums the cut rows, such as `other group`."""
    ample: int = 1
    """Factor on the number of rows that a cut table shows."""
    brief: int = 0
    """Fewest rows that a brief table shows without `-v`; 0: the table is not brief."""
    is_split: bool = False
    """Whether columns without room continue in a further table, so that none is dropped."""

    def __post_init__(self) -> None:
        whole = len(self.columns)
        rows = () if isinstance(self.rows, LateRows) else self.rows
        short = next((row for row in (*rows, Row(self.total)) if row.cells and len(row.cells) != whole), None)
        if short is not None:
            raise LedgerError(f"a row of {len(short.cells)} cells under {whole} columns: {short.cells[0]!r}")


class Fact(NamedTuple):
    """A name and a value."""

    label: str
    value: str
    pieces: tuple[str, ...] = ()
    """Parts of a value that is a list; text avoids line breaks within a part."""


class Facts(Frozen):
    """Names and values; text gives each a line."""

    facts: tuple[Fact, ...]
    title: str = ""
    detail: Detail = Detail.SHOWN


class Notes(Frozen):
    """Sentences."""

    lines: tuple[Prose, ...]
    title: str = ""
    detail: Detail = Detail.SHOWN
    tone: Tone = Tone.PLAIN
    """Good and bad notes are verdicts, which stand with the answer."""

    @property
    def is_verdict(self) -> bool:
        return self.tone in (Tone.GOOD, Tone.BAD)


class Problem(NamedTuple):
    """A finding, as it stands in the document."""

    id: str
    severity: str
    message: str
    subjects: tuple[str, ...] = ()
    nbytes: int | None = None
    model: str = ""
    short: str = ""
    """The message in a few words, for one line of a terminal; empty if its beginning is enough."""


class Findings(Frozen):
    """Problems, the worst first."""

    problems: tuple[Problem, ...]
    title: str = ""
    detail: Detail = Detail.FIRST
    is_short: bool = False
    """Whether each takes one line of a terminal, as on the first screen of a model; `-v` shows the whole messages."""
    has_whole_errors: bool = False
    """Whether errors are the answer, and take as many lines as their names need."""


class Chart(Frozen):
    """A picture of the rows of a long table, for formats that can draw."""

    table: str
    """The key of that table; empty: the chart draws `data` alone."""
    title: str
    kind: str
    """`tree`, `waterfall`, `bars`, `lines`, `steps` or `errors`."""
    data: Mapping[str, object] = field(default_factory=dict)
    summary: str = ""
    """Description for readers who cannot see the picture."""


class Passage(Frozen):
    """A long explanation in our own words, without text from any file.

    In a text, blank lines separate paragraphs; a paragraph that begins with four spaces is code, and so are words in
    `...`.
    """

    title: str
    lead: str
    """A sentence below the title."""
    parts: tuple[tuple[str, str], ...]
    """Headings and texts."""
    more: Link | None = None
    detail: Detail = Detail.SHOWN


Block: TypeAlias = "Facts | Notes | Findings | Table | Chart | Passage"


class Figure(NamedTuple):
    """A headline number."""

    label: str
    value: str
    note: str = ""
    phrase: str = ""
    """The figure in a sentence of figures, `109,482,240 parameters`; empty: only tiles show it."""
    number: int | None = None
    """The plain number, which a number of another document may be compared with."""


class Page(Frozen):
    """Content of a report, in no particular format."""

    kind: str
    """The name of its document's schema."""
    question: str
    """The question that it answers, as a title."""
    subject: str
    """The model, or the models; untrusted text."""
    about: str = ""
    """Context in a few words, such as the producer of the model or the execution provider."""
    answer: str = ""
    tone: Tone = Tone.PLAIN
    figures: tuple[Figure, ...] = ()
    blocks: tuple[Block, ...] = ()
    title: str = ""
    """Title of an HTML page in place of `subject`; empty: `subject`. Untrusted text."""


def list_verdicts(page: Page) -> list[Notes]:
    """Return the good and bad notes of a page, the bad ones first."""
    found = [block for block in page.blocks if isinstance(block, Notes) and block.is_verdict]
    return sorted(found, key=lambda block: block.tone is not Tone.BAD)


def number_of(cell: Cell) -> float | None:
    """Return the number in a cell; None if it holds none."""
    value = cell.value if isinstance(cell, Formatted) else cell
    return value if isinstance(value, int | float) else None


def pieces_of(prose: Prose) -> tuple[Piece, ...]:
    """Return the pieces of a sentence."""
    return (prose,) if isinstance(prose, str) else prose


def format_prose(prose: Prose) -> str:
    """Return the text of a sentence, not escaped.

    >>> format_prose(("cache: ", Math("2*D", "2 D"), " elements"))
    'cache: 2*D elements'
    """
    return "".join(each if isinstance(each, str) else each.text for each in pieces_of(prose))


def _format_amount(value: float) -> str:
    return format_count(value) if isinstance(value, int) else f"{value:,.4g}"


_WRITERS = {
    Kind.COUNT: lambda value: format_count(round(value)),
    Kind.BYTES: lambda value: format_bytes(round(value)),
    Kind.MS: format_ms,
    Kind.FINE_MS: format_fine_ms,
    Kind.NOISE: format_ms,
    Kind.FINE_NOISE: format_fine_ms,
    Kind.SHARE: short_share,
    Kind.RATIO: short_share,
    Kind.ERROR: format_error,
    Kind.DECIBEL: lambda value: f"{value:,.0f} dB",
    Kind.SIGNED: lambda value: format_signed(round(value)),
    Kind.SIGNED_BYTES: lambda value: format_signed_bytes(round(value)),
    Kind.SIGNED_MS: format_signed_ms,
    Kind.AMOUNT: _format_amount,
    Kind.FORMULA: _format_amount,
}


def format_cell(cell: Cell, kind: Kind) -> str:
    """Return the text of a cell, not escaped; "-" for an unknown number.

    >>> format_cell(1234, Kind.COUNT), format_cell(None, Kind.BYTES)
    ('1,234', '-')
    >>> format_cell(0.2177, Kind.SHARE), format_cell(None, Kind.TEXT)
    ('21.8 %', '')
    """
    if isinstance(cell, Formatted | Math):
        return cell.text
    if isinstance(cell, str | tuple):
        return format_prose(cell)
    if cell is None:
        return "-" if kind.is_number else ""
    return _WRITERS[kind](cell) if kind in _WRITERS else str(cell)


def name_rows(table: Table) -> list[Cell]:
    """Return the first cell of each row; a name below another loses the prefix that the upper name gives.

    >>> rows = (Row(("encoder",)), Row(("encoder.norm",), level=1), Row(("head",)))
    >>> name_rows(Table((Column("scope", Kind.NAME),), rows))
    ['encoder', 'norm', 'head']
    """
    rows = table.rows
    if table.columns[0].kind is not Kind.NAME:
        return [row.cells[0] for row in rows]
    above: list[str] = []
    shortened: list[Cell] = []
    for row in rows:
        name = row.cells[0]
        del above[row.level :]
        short = name
        if isinstance(name, str) and above:
            short = next(
                (
                    name.removeprefix(f"{above[-1]}{gap}")
                    for gap in _GAPS
                    if name.startswith(f"{above[-1]}{gap}")
                ),
                name,
            )
        shortened.append(short)
        above.append(name if isinstance(name, str) else "")
    return shortened


_GAPS = (".", " / ", " ")
"""Separators between a group's name and the rest of a member's: a child module, another key, `(own)`."""


def cut_table(table: Table, rows: int, *, verbose: bool = False) -> Table:
    """Cut a table to a number of rows, plus a row that sums the others; 0 keeps all.

    A table with an `order` keeps the first rows in that order; any other keeps its first rows as they stand. A brief
    table keeps a quarter of the rows, but at least `brief`, unless `verbose`.
    """
    if table.brief and rows and not verbose:
        rows = min(rows, max(rows // _BRIEF, table.brief))
        table = replace(table, is_whole=False, brief=0, ample=1)
    rows *= table.ample
    free = tuple(row for row in table.rows if not row.stays)
    if table.is_whole or not rows or len(free) <= rows:
        return table
    if len(free) < len(table.rows):
        cut = cut_table(replace(table, rows=free, ample=1, brief=0), rows)
        return replace(cut, rows=(*cut.rows, *(row for row in table.rows if row.stays)))
    if any(row.level for row in table.rows):
        return _collapse_levels(table, rows)
    ordered = list(table.rows)
    if table.order is not None:
        column = table.order
        ordered.sort(key=lambda row: -abs(number_of(row.cells[column]) or 0))
    shown, left = ordered[:rows], ordered[rows:]
    return replace(table, rows=(*shown, _sum_others(table, left)))


_BRIEF = 4
"""Rows of any other table for each row of a brief table."""


def _collapse_levels(table: Table, rows: int) -> Table:
    """Remove the lowest levels of a tree: the sums of a row include the rows under it."""
    deepest = 0
    while sum(row.level <= deepest + 1 for row in table.rows) <= rows:
        deepest += 1
    shown = tuple(row for row in table.rows if row.level <= deepest)
    closed = len(table.rows) - len(shown)
    note = f"{format_doing(closed, 'row', 'are')} under these and not shown; -n 0 shows all"
    collapsed = replace(table, rows=shown, brief=0, notes=(*table.notes, note))
    return collapsed if len(shown) <= rows else replace(cut_table(collapsed, rows), notes=collapsed.notes)


def shown_columns(table: Table) -> list[tuple[int, Column]]:
    """Return the visible columns with their positions, without text columns that are empty in every row."""
    return [
        (at, column)
        for at, column in enumerate(table.columns)
        if not column.is_hidden and (not at or _has_content(table, at))
    ]


def _has_content(table: Table, at: int) -> bool:
    column = table.columns[at]
    is_needed = column.kind.is_number or column.room >= _STAYS or not column.title or not table.rows
    return is_needed or any(
        format_cell(row.cells[at], column.kind) for row in table.rows if at < len(row.cells)
    )


_STAYS = 9
"""`Column.room` of columns that stay even if they are empty."""


def _sum_others(table: Table, left: Sequence[Row]) -> Row:
    cells: list[Cell] = [format_others(len(left)).replace("other", table.others)]
    for at, column in enumerate(table.columns[1:], 1):
        values = [number_of(row.cells[at]) for row in left]
        known = [value for value in values if value is not None]
        is_sum = column.kind.adds and known
        cells.append(sum(known) if is_sum else None if not column.kind.is_number else Formatted(None, ""))
    return Row(tuple(cells))
