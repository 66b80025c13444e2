"""Page -> Markdown, as GitHub shows it: blocks of less interest are folded away."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

from analyzer.formats.markdown import pieces
from analyzer.formats.markdown.writer import write_blocks
from analyzer.pages.page import (
    Block,
    Code,
    Column,
    Detail,
    Facts,
    Findings,
    Formatted,
    Kind,
    Math,
    Notes,
    Page,
    Passage,
    Problem,
    Row,
    Table,
    Tone,
    cut_table,
    format_cell,
    list_verdicts,
    name_rows,
    pieces_of,
    shown_columns,
)
from analyzer.records import replace
from analyzer.text import format_many, format_others

LONGEST = 60_000
"""Largest number of characters of a report: a comment on GitHub holds 65,536, and its poster may add some."""

_MANY = 256
"""First number of rows to try if all were asked for and are too many."""

_SENTENCES = 20
"""Number of sentences that are shown whatever the number of rows."""

_CUT = pieces.Paragraph(("Cut to the size of a comment; the JSON report has every row.",))


def write_markdown(page: Page, *, rows: int = 20, verbose: bool = False, longest: int = LONGEST) -> str:
    """Write the page as Markdown with a final newline, in no more than `longest` characters.

    Args:
        page: page of a report.
        rows: rows of a long table, and fewer if these are too many for a comment; 0 shows all.
        verbose: whether to leave nothing folded.
        longest: largest number of characters.
    """
    text = write_blocks(_blocks(page, rows, verbose))
    is_cut, left = False, rows or _MANY
    while len(text) > longest and not (is_cut and left == 1):
        if is_cut or rows:
            left = max(1, min(left - 1, left * 9 * longest // (10 * len(text))))
        text = write_blocks([*_blocks(page, left, verbose), _CUT])
        is_cut = True
    if len(text) <= longest:
        return text
    blocks = list(_blocks(page, 1, verbose))
    ends = accumulate(
        len(write_blocks([block])) + 1 for block in blocks
    )  # an empty line separates two blocks
    room = longest - len(write_blocks([_CUT]))
    return write_blocks([*(block for block, end in zip(blocks, ends, strict=True) if end <= room), _CUT])


def _blocks(page: Page, rows: int, verbose: bool) -> Iterator[pieces.Block]:
    yield pieces.Heading((Code(page.subject) if page.subject else page.question,))
    if page.about:
        yield pieces.Paragraph((page.about,))
    if page.answer:
        yield pieces.Paragraph((f"{_MARKS.get(page.tone, '')}{page.answer}",), is_strong=True)
    for verdict in list_verdicts(page):
        mark = _MARKS[verdict.tone]
        yield from (pieces.Paragraph((mark, *pieces_of(line)), is_strong=True) for line in verdict.lines)
    phrases = [figure.phrase for figure in page.figures if figure.phrase]
    if phrases:
        yield pieces.Paragraph((pieces.Strong(phrases[0]), *(f" · {each}" for each in phrases[1:])))
    for block in sorted(page.blocks, key=lambda block: getattr(block, "detail", None) is not Detail.FIRST):
        written = tuple(_block(block, rows, verbose))
        if written and getattr(block, "detail", None) is Detail.MORE and not verbose:
            inner = (
                written[1:] if isinstance(block, Notes) and block.title else written
            )  # the fold has the title
            yield pieces.Fold(_capital(getattr(block, "title", "") or "More"), inner)
        else:
            yield from _titled(block, written)


def _titled(block: Block, written: tuple[pieces.Block, ...]) -> Iterator[pieces.Block]:
    """Yield blocks that are not folded, under their title unless a column has it."""
    is_named = isinstance(block, Table) and block.columns[0].title in ("", block.title)
    has_title = isinstance(block, (Table, Facts)) or getattr(block, "detail", None) is not Detail.FIRST
    title = "" if is_named or isinstance(block, (Notes, Passage)) else getattr(block, "title", "")
    if written and has_title and title:
        yield pieces.Paragraph((title,), is_strong=True)
    yield from written


_MARKS = {Tone.GOOD: "✓ ", Tone.BAD: "✗ "}


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def _block(block: Block, rows: int, verbose: bool) -> Iterator[pieces.Block]:
    match block:
        case Facts(facts=facts) if facts:
            yield pieces.Items(tuple((f"{fact.label}: {fact.value}",) for fact in facts))
        case Notes(lines=lines, tone=tone) if lines and not block.is_verdict:
            if block.title:
                yield pieces.Paragraph((block.title,), is_strong=True)
            cells = [
                ((pieces.Strong("warning"), " ") if tone is Tone.WARN else ()) + pieces_of(line)
                for line in lines[: max(rows, _SENTENCES) if rows else None]
            ]
            if left := len(lines) - len(cells):
                cells.append((format_others(left),))
            yield pieces.Paragraph(cells[0]) if len(cells) == 1 else pieces.Items(tuple(cells))
        case Findings(problems=problems) if problems:
            shown = problems[:rows] if rows else problems
            cells = [_problem(problem, rows) for problem in shown]
            if len(shown) < len(problems):
                cells.append((format_many(len(problems) - len(shown), "more finding"),))
            yield pieces.Items(tuple(cells))
        case Table() if block.rows or block.total:
            cut = cut_table(block, rows, verbose=verbose)
            yield _table(cut)
            for note in cut.notes:
                yield pieces.Paragraph((note,))
        case Passage():
            yield from _passage(block)


def _passage(block: Passage) -> Iterator[pieces.Block]:
    """Yield texts that begin with their headings, and fenced code."""
    from analyzer.account.findings.catalog import (
        list_paragraphs,
    )  # loaded here, as only passages need the catalogue

    if block.title:
        yield pieces.Heading((Code(block.title),))
    if block.lead:
        yield pieces.Paragraph((_capital(block.lead),))
    for at, (heading, text) in enumerate(block.parts):
        is_last = at == len(block.parts) - 1
        for number, (is_code, part) in enumerate(list_paragraphs(text)):
            if is_code:
                yield pieces.Listing(part, "bash" if part.startswith("onnxledger ") else "python")
                continue
            prose: list[pieces.Piece] = [pieces.Strong(f"{heading}."), " "] if heading and not number else []
            prose += [Code(each) if odd % 2 else each for odd, each in enumerate(part.split("`"))]
            if is_last and block.more is not None:
                prose += [" More: ", block.more]
            yield pieces.Paragraph(tuple(prose))


def _problem(problem: Problem, rows: int) -> pieces.Cell:
    names: list[pieces.Piece] = []
    shown = problem.subjects[: min(rows or len(problem.subjects), 20)]
    for subject in shown:
        names += [", " if names else ": ", Code(subject)]
    if len(shown) < len(problem.subjects):
        names.append(f", {format_many(len(problem.subjects) - len(shown), 'other')}")
    model: tuple[pieces.Piece, ...] = (Code(problem.model), ": ") if problem.model else ()
    kind = f" [{problem.id}]" if problem.id else ""
    return (pieces.Strong(problem.severity), " ", *model, problem.message, *names, kind)


def _table(cut: Table) -> pieces.Table:
    shown = shown_columns(cut)
    titles = tuple(
        pieces.Column(column.title or (cut.title if not at else ""), column.kind.is_number)
        for at, column in shown
    )
    named_rows = zip(cut.rows, name_rows(cut), strict=True)
    written_rows = [_row(replace(row, cells=(name, *row.cells[1:])), shown) for row, name in named_rows]
    if cut.total:
        title = Formatted(None, format_cell(cut.total[0], Kind.TEXT))  # a fixed word, not a name
        written_rows.append(replace(_row(Row((title, *cut.total[1:])), shown), is_total=True))
    return pieces.Table(titles, tuple(written_rows))


def _row(row: Row, shown: list[tuple[int, Column]]) -> pieces.Row:
    return pieces.Row(tuple(_cell(row, at, column) for at, column in shown), level=row.level)


def _cell(row: Row, at: int, column: Column) -> pieces.Cell:
    cell = row.cells[at]
    if isinstance(cell, Math | tuple):
        return cell if isinstance(cell, tuple) else (cell,)
    text = format_cell(cell, column.kind)
    is_name = column.kind is Kind.NAME and not isinstance(cell, Formatted) and text and text[0] != "["
    return (Code(text) if is_name else text,)
