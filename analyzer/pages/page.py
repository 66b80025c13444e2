"""The nouns of a page: an answer, figures, facts, findings and tables of typed cells, for each format to write."""

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
    format_ms,
    format_others,
    format_signed,
    format_signed_bytes,
    format_signed_ms,
    short_share,
)


class Tone(Enum):
    """How an answer is meant: a colour and a mark."""

    GOOD = "good"
    BAD = "bad"
    PLAIN = "plain"
    WARN = "warn"
    """A doubt that goes with the answer."""


class Detail(Enum):
    """Who sees a block in text and Markdown; a page in HTML shows all of them."""

    FIRST = "first"
    """Everybody, above the tables."""
    SHOWN = "shown"
    """Everybody."""
    MORE = "more"
    """Who asks with `-v`; Markdown folds it."""


class Kind(Enum):
    """What a cell holds: how it is written, and whether cells add up."""

    TEXT = "text"
    NAME = "name"
    """A name from a file."""
    PROSE = "prose"
    """A sentence, which may be broken over lines."""
    FORMULA = "formula"
    """An expression, which may be broken before a summand."""
    COUNT = "count"
    """A number that adds up: rows that are left out are summed."""
    BYTES = "bytes"
    MS = "ms"
    NOISE = "noise"
    """How far off a time is, in ms; it does not add up."""
    SHARE = "share"
    """A fraction of 1, written in percent with one decimal."""
    RATIO = "ratio"
    """The same of what may be above 1 or below 0; it does not add up."""
    ERROR = "error"
    """A difference of values, three digits."""
    DECIBEL = "decibel"
    AMOUNT = "amount"
    """A number in the unit of its row, said by who knows it; it does not add up."""
    SIGNED = "signed"
    SIGNED_BYTES = "signed bytes"
    SIGNED_MS = "signed ms"

    @property
    def is_number(self) -> bool:
        """Whether cells stand at the right, and are sorted by value."""
        return self not in (Kind.TEXT, Kind.NAME, Kind.PROSE, Kind.FORMULA)

    @property
    def adds(self) -> bool:
        """Whether the cells of several rows have a sum."""
        return self.is_number and self not in (Kind.RATIO, Kind.NOISE, Kind.ERROR, Kind.DECIBEL, Kind.AMOUNT)


class Said(Frozen):
    """A number that is written otherwise than its kind is, such as `12 x 7,087,872`."""

    value: float | None
    text: str


class Math(Frozen):
    """An expression."""

    text: str
    latex: str
    """The same for LaTeX's mathematics, without dollars around it."""


class Code(Frozen):
    """A name within a sentence."""

    text: str


class Link(Frozen):
    """A place of ours where more is said."""

    text: str
    """What it is called where nobody can follow it."""
    target: str
    """`#` and a title of the same page, or a path between pages of the documentation."""
    name: str = ""
    """What it is called where one can; else `text`."""


Piece: TypeAlias = "str | Math | Code | Link"

Prose: TypeAlias = "str | tuple[Piece, ...]"
"""A sentence; text may be anybody's."""

Cell: TypeAlias = "int | float | str | Said | Math | tuple[Piece, ...] | None"
"""Text may be anybody's: each format escapes it. None is what is not known, or makes no sense."""


class Column(NamedTuple):
    """A column of a table."""

    title: str
    kind: Kind = Kind.TEXT
    room: int = 0
    """The lowest columns go first where a terminal is narrow; 9 stays."""
    is_hidden: bool = False
    """Only charts read it."""
    is_bar: bool = False
    """Its share is drawn as a bar where there is room."""


class Row(Frozen):
    """A line of a table."""

    cells: tuple[Cell, ...]
    level: int = 0
    """How far the first cell is set in."""
    tone: Tone = Tone.PLAIN
    stays: bool = False
    """It is shown wherever the table is cut, below the others."""


class LateRows(Sequence[Row]):
    """Rows that are made when somebody looks at them: of the tables that only `-v` shows there may be a million."""

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
    """Sentences below it."""
    detail: Detail = Detail.SHOWN
    is_whole: bool = False
    """It is short, and never cut."""
    is_long: bool = False
    """It may have any number of rows: a page lets one sort, search and turn pages."""
    order: int | None = None
    """The column by which rows are chosen where some are cut; they then stand in its order."""
    key: str = ""
    """What a chart calls it by."""
    others: str = "other"
    """What a row that stands for cut ones counts."""
    ample: int = 1
    """So many times the rows of other tables are shown where some are cut."""
    brief: int = 0
    """So many rows do where nobody asked for more; 0: as many as those of other tables."""
    is_split: bool = False
    """Columns that have no room go on in a further table, and none is left out."""

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
    """The parts of a value that is a list, within which text breaks no line where it need not."""


class Facts(Frozen):
    """Names and values; in text a line each."""

    facts: tuple[Fact, ...]
    title: str = ""
    detail: Detail = Detail.SHOWN


class Notes(Frozen):
    """Sentences."""

    lines: tuple[Prose, ...]
    title: str = ""
    detail: Detail = Detail.SHOWN
    tone: Tone = Tone.PLAIN
    """Good and bad ones are verdicts, which stand with the answer."""

    @property
    def is_verdict(self) -> bool:
        return self.tone in (Tone.GOOD, Tone.BAD)


class Problem(NamedTuple):
    """A finding, as the document has it."""

    id: str
    severity: str
    message: str
    subjects: tuple[str, ...] = ()
    nbytes: int | None = None
    model: str = ""
    short: str = ""
    """The same in a few words, for a line of a terminal; empty where the message is short, or its beginning says it."""


class Findings(Frozen):
    """What was found, worst first."""

    problems: tuple[Problem, ...]
    title: str = ""
    detail: Detail = Detail.FIRST
    is_short: bool = False
    """Whether each is one line of a terminal: the first screen of a model, where `-v` says all of it."""
    has_whole_errors: bool = False
    """Whether errors are the answer, and take as many lines as their names need."""


class Chart(Frozen):
    """A picture of the rows of a long table, for formats that can draw."""

    table: str
    """The key of that table; empty where the data are all there is."""
    title: str
    kind: str
    """`tree`, `waterfall`, `bars`, `lines`, `steps` or `errors`."""
    data: Mapping[str, object] = field(default_factory=dict)
    summary: str = ""
    """What it shows, for who cannot see it."""


class Passage(Frozen):
    """What we have to say of something, at length: no text of anybody else.

    In a text a blank line parts paragraphs, one that begins with four spaces is code, and so is what `...` marks.
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
    """A number that one looks for first."""

    label: str
    value: str
    note: str = ""
    said: str = ""
    """The same in a sentence of figures, `109,482,240 parameters`; empty: only tiles show it."""
    number: int | None = None
    """What a number of another document may be held against."""


class Page(Frozen):
    """What a report says."""

    kind: str
    """The name of its document's schema."""
    question: str
    """What it answers, as a title."""
    subject: str
    """The model, or the models; may be anybody's."""
    about: str = ""
    """What made the model, in a few words."""
    answer: str = ""
    tone: Tone = Tone.PLAIN
    figures: tuple[Figure, ...] = ()
    blocks: tuple[Block, ...] = ()
    title: str = ""
    """What a window says of it, where there is no subject; may be anybody's."""


def list_verdicts(page: Page) -> list[Notes]:
    """Its good and bad sentences, the bad ones first."""
    found = [block for block in page.blocks if isinstance(block, Notes) and block.is_verdict]
    return sorted(found, key=lambda block: block.tone is not Tone.BAD)


def number_of(cell: Cell) -> float | None:
    """The number in a cell; None where it holds none."""
    value = cell.value if isinstance(cell, Said) else cell
    return value if isinstance(value, int | float) else None


def pieces_of(prose: Prose) -> tuple[Piece, ...]:
    """What a sentence is made of."""
    return (prose,) if isinstance(prose, str) else prose


def say_prose(prose: Prose) -> str:
    """What a sentence reads, not escaped.

    >>> say_prose(("cache: ", Math("2*D", "2 D"), " elements"))
    'cache: 2*D elements'
    """
    return "".join(each if isinstance(each, str) else each.text for each in pieces_of(prose))


def _format_amount(value: float) -> str:
    return format_count(value) if isinstance(value, int) else f"{value:,.4g}"


_WRITERS = {
    Kind.COUNT: lambda value: format_count(round(value)),
    Kind.BYTES: lambda value: format_bytes(round(value)),
    Kind.MS: format_ms,
    Kind.NOISE: format_ms,
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


def say(cell: Cell, kind: Kind) -> str:
    """What a cell reads, not escaped; "-" for a number that is not known.

    >>> say(1234, Kind.COUNT), say(None, Kind.BYTES), say(0.2177, Kind.SHARE), say(None, Kind.TEXT)
    ('1,234', '-', '21.8 %', '')
    """
    if isinstance(cell, Said | Math):
        return cell.text
    if isinstance(cell, str | tuple):
        return say_prose(cell)
    if cell is None:
        return "-" if kind.is_number else ""
    return _WRITERS[kind](cell) if kind in _WRITERS else str(cell)


def name_rows(table: Table) -> list[Cell]:
    """The first cell of each row; a name below another goes without what that one says already.

    >>> rows = (Row(("encoder",)), Row(("encoder.norm",), level=1), Row(("head",)))
    >>> name_rows(Table((Column("scope", Kind.NAME),), rows))
    ['encoder', 'norm', 'head']
    """
    rows = table.rows
    if table.columns[0].kind is not Kind.NAME:
        return [row.cells[0] for row in rows]
    above: list[str] = []
    named: list[Cell] = []
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
        named.append(short)
        above.append(name if isinstance(name, str) else "")
    return named


_GAPS = (".", " / ", " ")
"""What stands between a group and what is in it: a module's child, another key, `(own)`."""


def cut_table(table: Table, rows: int, *, verbose: bool = False) -> Table:
    """The table with so many rows, and one that sums those that are left; 0 shows all.

    Where the table has an order, the first of it are kept and stand in it; else the first as they are. Of a brief table
    there are a quarter of the rows, and no fewer than it says, unless all that is told is `verbose`.
    """
    if table.brief and rows and not verbose:
        rows = min(rows, max(rows // _BRIEF, table.brief))
        table = replace(table, is_whole=False, brief=0)
    rows *= table.ample
    free = tuple(row for row in table.rows if not row.stays)
    if table.is_whole or not rows or len(free) <= rows:
        return table
    if len(free) < len(table.rows):
        cut = cut_table(replace(table, rows=free, ample=1, brief=0), rows)
        return replace(cut, rows=(*cut.rows, *(row for row in table.rows if row.stays)))
    if any(row.level for row in table.rows):
        return _close(table, rows)
    ordered = list(table.rows)
    if table.order is not None:
        column = table.order
        ordered.sort(key=lambda row: -abs(number_of(row.cells[column]) or 0))
    shown, left = ordered[:rows], ordered[rows:]
    return replace(table, rows=(*shown, _sum_others(table, left)))


_BRIEF = 4
"""Rows of other tables for one of a brief table."""


def _close(table: Table, rows: int) -> Table:
    """A tree without its lowest levels: what stands under a row is in its sums already."""
    deepest = 0
    while sum(row.level <= deepest + 1 for row in table.rows) <= rows:
        deepest += 1
    shown = tuple(row for row in table.rows if row.level <= deepest)
    closed = len(table.rows) - len(shown)
    note = f"{format_doing(closed, 'row', 'are')} under these and not shown; -n 0 shows all"
    told = replace(table, rows=shown, brief=0, notes=(*table.notes, note))
    return told if len(shown) <= rows else replace(cut_table(told, rows), notes=told.notes)


def shown_columns(table: Table) -> list[tuple[int, Column]]:
    """The columns that are for people, with their positions; without texts of which no row has one."""
    return [
        (at, column)
        for at, column in enumerate(table.columns)
        if not column.is_hidden and (not at or _says_something(table, at))
    ]


def _says_something(table: Table, at: int) -> bool:
    column = table.columns[at]
    is_needed = column.kind.is_number or column.room >= _STAYS or not column.title or not table.rows
    return is_needed or any(say(row.cells[at], column.kind) for row in table.rows if at < len(row.cells))


_STAYS = 9
"""Room of columns that are there whatever they hold."""


def _sum_others(table: Table, left: Sequence[Row]) -> Row:
    cells: list[Cell] = [format_others(len(left)).replace("other", table.others)]
    for at, column in enumerate(table.columns[1:], 1):
        values = [number_of(row.cells[at]) for row in left]
        known = [value for value in values if value is not None]
        is_sum = column.kind.adds and known
        cells.append(sum(known) if is_sum else None if not column.kind.is_number else Said(None, ""))
    return Row(tuple(cells))
