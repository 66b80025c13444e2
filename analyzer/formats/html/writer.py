"""Page -> a section of the HTML page: the same words and numbers, in tables that sort and charts of their rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from analyzer.account.findings.catalog import EXPLANATIONS, Explanation
from analyzer.formats.html import blocks as html
from analyzer.pages.page import (
    Block,
    Cell,
    Chart,
    Column,
    Detail,
    Facts,
    Findings,
    Formatted,
    Kind,
    Notes,
    Page,
    Passage,
    Problem,
    Table,
    Tone,
    format_cell,
    format_prose,
    list_verdicts,
    number_of,
)
from analyzer.text import format_many, printable, shorten


def make_section(page: Page, new_keys: html.Keys, times: Mapping[str, float]) -> html.Section:
    """Return a section with everything on a page, even blocks that text shows only with `-v`."""
    keys = {
        block.key: new_keys.next()
        for block in page.blocks
        if isinstance(block, Table) and block.key and block.rows
    }
    html_blocks: list[html.Block] = []
    if page.answer:
        html_blocks.append(
            html.Answer(page.tone is Tone.GOOD, show(page.answer), is_plain=page.tone is Tone.PLAIN)
        )
    for verdict in list_verdicts(page):
        html_blocks += [
            html.Answer(verdict.tone is Tone.GOOD, show(format_prose(line))) for line in verdict.lines
        ]
    if page.figures:
        tiles = [html.Tile(figure.label, show(figure.value), show(figure.note)) for figure in page.figures]
        html_blocks.append(html.Tiles(tuple(tiles)))
    ordered = sorted(page.blocks, key=lambda block: getattr(block, "detail", None) is not Detail.FIRST)
    html_blocks += [each for block in ordered for each in _block(block, keys, new_keys, times)]
    subject = show(
        f"{page.subject} · {page.about}" if page.subject and page.about else page.subject or page.about
    )
    name, about = show(page.title or page.subject), show(page.about)
    return html.Section(page.kind, page.question, subject, tuple(html_blocks), name, about)


def _block(
    block: Block, keys: Mapping[str, str], new_keys: html.Keys, times: Mapping[str, float]
) -> Iterator[html.Block]:
    match block:
        case Facts(facts=facts) if facts:
            yield html.Facts(
                tuple(html.Fact(show(fact.label), show(fact.value)) for fact in facts), _capital(block.title)
            )
        case Notes(lines=lines, tone=tone) if lines and not block.is_verdict:
            texts = tuple(show(format_prose(line), 4000) for line in lines)
            yield html.Notes(texts, _capital(show(block.title)), is_warning=tone is Tone.WARN)
        case Findings():
            yield html.Findings(tuple(map(_problem, block.problems)), _capital(block.title))
        case Passage():
            more = block.more.text if block.more else ""
            yield html.Passage(
                show(block.title), _capital(show(block.lead)), tuple(map(_shown, block.parts)), show(more)
            )
        case Table() if block.rows:
            yield _table(block, keys, new_keys)
        case Chart() if not block.table or block.table in keys:
            grid = (
                {"grid": keys[block.table], "times": [[name, ms] for name, ms in times.items()]}
                if block.table
                else {}
            )
            data = {**grid, **block.data}
            yield html.Chart(new_keys.next(), show(block.title), block.kind, data, block.summary)


def _shown(part: tuple[str, str]) -> tuple[str, str]:
    """Return a heading and its text, with the text's line breaks."""
    heading, text = part
    return show(heading), "\n".join(show(line, 4000) for line in text.split("\n"))


def _problem(problem: Problem) -> html.Finding:
    explanation = EXPLANATIONS.get(problem.id)
    return html.Finding(
        show(problem.id),
        show(problem.severity),
        show(problem.message, 4000),
        tuple(map(show, problem.subjects[:_SUBJECTS])),
        format_many(problem.nbytes, "byte") if problem.nbytes else "",
        explanation.title if explanation else "",
        tuple(_explained(explanation)) if explanation else (),
        show(problem.model),
    )


_SUBJECTS = 1000
"""Largest number of a finding's names on a page."""


def _explained(known: Explanation) -> Iterator[tuple[str, str]]:
    paragraphs = (
        ("What it means", known.meaning),
        ("What it costs", known.cost),
        ("How to fix it", known.mend),
    )
    return ((heading, text) for heading, text in paragraphs if text)


def _table(table: Table, keys: Mapping[str, str], new_keys: html.Keys) -> html.Block:
    columns = tuple(map(_column, table.columns))
    rows = tuple(tuple(_cells(row.cells, table.columns, exact=table.is_long)) for row in table.rows)
    total = tuple(_cells(table.total, table.columns, exact=table.is_long)) if table.total else ()
    title = _capital(show(table.title or table.columns[0].title))
    note = "; ".join(table.notes)
    levels = tuple(row.level for row in table.rows)
    if table.is_long and not any(levels):
        key = keys.get(table.key) or new_keys.next()
        return html.Grid(key, title, columns, rows, total, show(note), tuple(_compositions(table)))
    bad = frozenset(at for at, row in enumerate(table.rows) if row.tone is Tone.BAD)
    return html.Table(title, columns, rows, levels, total, show(note), bad)


def _compositions(table: Table) -> Iterator[tuple[int, int, str]]:
    """Yield the counts that show their composition, such as `12 x 7,087,872`, with row and column."""
    for number, row in enumerate(table.rows):
        for at, (cell, column) in enumerate(zip(row.cells, table.columns, strict=True)):
            if isinstance(cell, Formatted) and cell.value is not None and column.kind in _EXACT:
                yield number, at, show(cell.text)


def _capital(text: str) -> str:
    """Return a heading with a capital letter; an id or a name at its beginning stays as it is."""
    is_name = any(each in text.partition(" ")[0] for each in "-._/")
    return text if is_name else f"{text[:1].upper()}{text[1:]}"


def _column(column: Column) -> html.Column:
    return html.Column(
        show(column.title),
        is_number=column.kind.is_number,
        is_hidden=column.is_hidden,
        is_code=column.kind in (Kind.NAME, Kind.FORMULA),
        is_prose=column.kind is Kind.PROSE,
        is_signed=column.kind in (Kind.SIGNED, Kind.SIGNED_BYTES),
    )


_EXACT = (Kind.COUNT, Kind.BYTES, Kind.SIGNED, Kind.SIGNED_BYTES)
"""Kinds of cells that a table that sorts gets as whole numbers."""


def _cells(cells: tuple[Cell, ...], columns: tuple[Column, ...], *, exact: bool) -> Iterator[html.Cell]:
    for cell, column in zip(cells, columns, strict=True):
        value = number_of(cell)
        is_whole = isinstance(cell, int) and column.kind is Kind.AMOUNT
        is_exact = exact and (is_whole or column.kind in _EXACT)
        is_size = column.kind is Kind.BYTES and not isinstance(cell, Formatted)
        if value is not None and (is_exact or is_size):
            yield round(value)
        else:
            yield show(format_cell(cell, column.kind))


def show(text: str | None, longest: int = 400) -> str:
    r"""Return a text from a file, shortened, and without invisible characters.

    >>> show("a\u202eb"), show(None), show("<b>")
    ('a\\u202eb', '', '<b>')
    """
    text = shorten(text or "", longest)
    if text.isspace() and text.isprintable():
        return f'"{text}"'
    return text if text.isprintable() else printable(text)
