"""Page -> text for a terminal or a pipe: the answer first, tables within the width, names with escapes."""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import groupby

from analyzer.pages.page import (
    Block,
    Cell,
    Column,
    Detail,
    Facts,
    Findings,
    Kind,
    Notes,
    Page,
    Passage,
    Problem,
    Row,
    Table,
    Tone,
    cut_table,
    format_cell,
    format_prose,
    list_verdicts,
    name_rows,
    number_of,
    shown_columns,
)
from analyzer.records import Frozen, replace
from analyzer.text import format_many, format_others, printable, printable_name, shorten

_CODES = {"bold": "1", "red": "1;31", "green": "1;32", "yellow": "33", "cyan": "36", "dim": "2"}
_TONES = {Tone.GOOD: "green", Tone.BAD: "red", Tone.PLAIN: "bold", Tone.WARN: "yellow"}
_SEVERITIES = {"error": ("ERROR", "red"), "warning": ("WARN", "yellow"), "note": ("note", "cyan")}


class _Layout(Frozen):
    """Width, colours and amount of the output."""

    width: int
    rows: int
    color: bool
    verbose: bool
    ascii: bool

    @property
    def is_whole(self) -> bool:
        """Whether all was asked for: then names continue on further lines, and none loses its middle."""
        return self.verbose or not self.rows

    def colorize(self, text: str, style: str) -> str:
        return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if self.color and style and text else text


def write_text(
    page: Page,
    *,
    rows: int = 20,
    width: int = 80,
    color: bool = False,
    verbose: bool = False,
    ascii: bool = False,
) -> str:
    """Write the page as text with a final newline.

    Args:
        page: page of a report.
        rows: rows of a long table; 0 shows all.
        width: columns of the terminal.
        color: whether the terminal shows colours.
        verbose: whether to show blocks of `Detail.MORE`, and everything that findings are about.
        ascii: whether the output encoding has ASCII characters only.
    """
    layout = _Layout(max(width, 20), rows, color, verbose, ascii)
    verdicts = list_verdicts(page)
    first = [block for block in page.blocks if _detail(block) is Detail.FIRST and block not in verdicts]
    later = [
        block
        for block in page.blocks
        if _detail(block) is Detail.SHOWN or (_detail(block) is Detail.MORE and (verbose or not rows))
    ]
    lines = [*_head(page, layout), *(line for block in first for line in _block(block, layout))]
    for block in later:
        block_lines = list(_block(block, layout))
        lines += ["", *block_lines] if block_lines else []
    text = "\n".join(_COMMAND.sub(r"\1\\x3a", line.rstrip()) for line in lines).strip("\n") + "\n"
    return text.translate(_PLAIN) if ascii else text


_COMMAND = re.compile(r"^((?:\s|\x1b\[[\d;]*m)*):(?=[^ -~]*:)")
"""Beginning that the runner of a CI job takes for a command, if a long name was broken before its `::`."""

_PLAIN = str.maketrans({"…": "~", "█": "#", "▌": "#", "·": "-"})
"""Replacements for the program's own characters beyond ASCII."""


def _detail(block: Block) -> Detail | None:
    return getattr(block, "detail", None)


def _head(page: Page, layout: _Layout) -> Iterator[str]:
    about = printable(page.about)
    subject = printable(page.subject)
    gap = layout.width - _length(subject) - _length(about)
    if subject and about and gap >= 3:
        yield f"{layout.colorize(subject, 'bold')}{' ' * gap}{about}"
    else:
        yield from (layout.colorize(line, "bold") for line in _wrap_path(subject, layout.width))
        yield from _wrap(about, layout.width)
    if page.answer:
        for line in _wrap(printable(page.answer), layout.width):
            yield layout.colorize(line, _TONES[page.tone])
    for verdict in list_verdicts(page):
        yield from _block(verdict, layout)
    yield from _join([printable(figure.phrase) for figure in page.figures if figure.phrase], layout.width)


def _join(parts: Sequence[str], width: int) -> Iterator[str]:
    """Yield parts with three columns between them; a part without room continues on the next line."""
    line = ""
    for part in parts:
        if line and _length(line) + 3 + _length(part) > width:
            yield line
            line = ""
        line = f"{line}   {part}" if line else part
        if _length(line) > width:
            *whole, line = _wrap(line, width)
            yield from whole
    if line:
        yield line


def _block(block: Block, layout: _Layout) -> Iterator[str]:
    match block:
        case Facts():
            yield from _title(block.title, layout)
            most = layout.width // 2
            room = max((n for fact in block.facts if (n := _length(fact.label)) <= most), default=0)
            for fact in block.facts:
                if _length(fact.label) > most:
                    yield from _hang("", printable(fact.label), layout.width)
                label = f"{fact.label if _length(fact.label) <= most else '':<{room}}  "
                if fact.pieces:
                    yield from _list(label, [printable(each) for each in fact.pieces], layout)
                else:
                    yield from _hang(label, printable(fact.value), layout.width)
        case Notes():
            yield from _title(block.title, layout)
            shown = block.lines[: max(layout.rows, _SENTENCES) if layout.rows else None]
            for line in shown:
                yield from _note(printable(format_prose(line)), block.tone, layout)
            if left := len(block.lines) - len(shown):
                yield f"{format_others(left)}; -n 0 shows all"
        case Findings():
            yield from _findings(block, layout)
        case Table():
            yield from _table(block, layout)
        case Passage():
            yield from _passage(block, layout)


def _passage(block: Passage, layout: _Layout) -> Iterator[str]:
    """Yield texts with indentation below their headings; code keeps its lines."""
    from analyzer.account.findings.catalog import (
        list_paragraphs,
    )  # loaded here, as only passages need the catalogue

    yield from _title(printable(block.title), layout)
    yield from _wrap(printable(block.lead), layout.width)
    parts = [*block.parts, *([("More", block.more.text)] if block.more else [])]
    for at, (heading, text) in enumerate(parts):
        yield from [""] if at or block.title else []
        yield from _title(printable(heading), layout)
        for number, (is_code, part) in enumerate(list_paragraphs(text)):
            yield from [""] if number else []
            if is_code:
                yield from (f"    {printable(line)}" for line in part.split("\n"))
            else:
                yield from _hang("  ", printable(part), layout.width)


_SENTENCES = 20
"""Number of sentences that are shown whatever the number of rows."""


def _note(text: str, tone: Tone, layout: _Layout) -> Iterator[str]:
    if tone is Tone.WARN:
        word, style = _SEVERITIES["warning"]
        first, *others = _hang(f"{word} ", text, layout.width)
        yield first.replace(word, layout.colorize(word, style), 1)
        yield from others
    else:
        style = "" if tone is Tone.PLAIN else _TONES[tone]
        yield from (layout.colorize(line, style) for line in _wrap(text, layout.width))


def _title(title: str, layout: _Layout) -> Iterator[str]:
    if title:
        yield layout.colorize(title, "bold")


_NAMES = 3
"""Number of names of a finding that are shown, unless all are asked for."""
_LINES = 10
"""Number of findings that are shown, unless all are asked for."""
_SLACK = 16
"""Number of columns that a break between words may leave empty."""
_LONGEST_LINE = 100
"""Largest width in which the ids of findings stand at the right, in columns."""


def _findings(block: Findings, layout: _Layout) -> Iterator[str]:
    if block.detail is not Detail.FIRST and block.problems:
        yield from _title(block.title, layout)
    shown = block.problems if layout.is_whole else block.problems[:_LINES]
    for problem in shown:
        is_short = block.is_short and not layout.is_whole
        is_short = is_short and not (block.has_whole_errors and problem.severity == "error")
        yield from _short_problem(problem, layout) if is_short else _problem(problem, layout)
    left = block.problems[len(shown) :]
    for severity, found in groupby(left, key=lambda each: each.severity):
        yield f"{format_many(len(list(found)), f'more {severity}')}; -v shows all"


def _short_problem(problem: Problem, layout: _Layout) -> Iterator[str]:
    """Yield a finding in one line, with as much of its sentence and names as fits; an error may take two."""
    word, style = _SEVERITIES.get(problem.severity, (problem.severity, ""))
    head, id_ = f"{word} ", f"[{problem.id}]" if problem.id else ""
    width = min(layout.width, _LONGEST_LINE)
    room = max(width - _length(head) - _length(id_) - 1, 20)
    model = f"{problem.model}: " if problem.model else ""
    sentence = _shorten_problem(model, problem, room)
    if room < _LEAST_SENTENCE:
        sentence = _shorten_problem(model, problem, 2 * room)
        first, *others = _hang(head, f"{sentence} {id_}", width)
        yield first.replace(word, layout.colorize(word, style), 1)
        yield from others
        return
    message = printable(f"{model}{problem.message}")
    is_nameless = _SAME in message and _SAME not in sentence
    if problem.severity == "error" and (sentence.endswith("…") or is_nameless):
        whole = _shorten_problem(model, problem, room + width - _length(head) - _SLACK)
        first, *others = _hang(head, f"{whole} {id_}", width)
        yield first.replace(word, layout.colorize(word, style), 1)
        yield from others
        return
    gap = " " * max(room - _length(sentence), 0)
    yield f"{layout.colorize(word, style)} {sentence}{gap} {layout.colorize(id_, 'dim')}"


_SAME = " as under "
"""Words of a message that names no tensors, because they are those of another finding."""

_LEAST_SENTENCE = 32
"""Columns of a sentence below which it continues on further lines."""


def _shorten_problem(model: str, problem: Problem, room: int) -> str:
    """Return the whole sentence with three names, or as much of it, and as many names, as fits."""
    subjects = () if _names_its_subject(problem) else problem.subjects
    whole = printable(f"{model}{problem.message}")
    short = [printable(f"{model}{problem.short}")] if problem.short else []
    parts = short or [whole[:at] for at in reversed(_clauses(whole))]
    shapes = [shape for shape in _SHAPES if shape[0] <= len(subjects)]
    first = [(whole, *shape) for shape in shapes]
    with_names = [(part, *shape) for part in parts for shape in shapes]
    without_names = [(whole, 0, 0)]
    rest = (
        [*without_names, *with_names] if problem.severity == "error" else [*with_names, *without_names]
    )  # an error's sentence matters more than its names
    candidates = [*first, *rest, *((part, 0, 0) for part in parts)]
    for clause, count, width in candidates:
        names = ", ".join(printable(shorten(each, width)) for each in subjects[:count])
        more = ", ..." if names and len(subjects) > count else ""
        sentence = f"{clause}: {names}{more}" if names else clause
        if _length(sentence) <= room:
            return sentence
    return _cut_end(parts[-1] if parts else whole, room)


def _names_its_subject(problem: Problem) -> bool:
    """Whether a sentence has the name that it is about, in full, and not as a short word of any sentence."""
    name = problem.subjects[0] if problem.subjects else ""
    if name.isalpha() and len(name) <= _SHORT_WORD:
        return False
    return re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.])", problem.message) is not None


_SHORT_WORD = 9
"""Largest number of letters of a name that may be a word of the sentence: `w`, `one`, `values`, `constants`."""


_SHAPES = ((3, 40), (2, 40), (3, 20), (1, 40), (2, 20), (1, 20))
"""Numbers of names, and characters of each, best first."""


def _clauses(message: str) -> list[int]:
    """Return the positions at which a sentence may end: before its explanation."""
    ends = [at for at in range(_FIRST_CLAUSE, len(message)) if message.startswith(_ENDS, at)]
    verbs = [verb.end() for verb in _VERBS.finditer(message)]
    first = verbs[0] if verbs else 0  # before the verb, a comma or bracket is within the subject
    return [at for at in ends if at >= first and message.count("(", 0, at) == message.count(")", 0, at)]


_VERBS = re.compile(
    r"\b(?:is|are|was|were|has|have|can|cannot|may|must|does|do|did|not|would|will"
    r"|(?:stand|hold|store|use|repeat|differ|read|compute|lack|make|take|share|need)s?)\b"
)


_ENDS = ("; ", ": ", ", ", " (")
_FIRST_CLAUSE = 16
"""Number of characters below which a sentence says nothing."""


def _cut_end(text: str, width: int) -> str:
    """Return a sentence without its last words."""
    while _length(text) >= width:
        text = text.rpartition(" ")[0] or text[: width - 2]
    return f"{text.rstrip()}…"


def _problem(problem: Problem, layout: _Layout) -> Iterator[str]:
    word, style = _SEVERITIES.get(problem.severity, (problem.severity, ""))
    model = f"{problem.model}: " if problem.model else ""
    kind = f" [{problem.id}]" if problem.id else ""
    sentence = f"{model}{problem.message}{kind}"
    few = len(problem.subjects) <= _NAMES
    names = ", ".join(printable(shorten(each, _NAME)) for each in problem.subjects[:_NAMES])
    if names and not layout.is_whole and not _names_its_subject(problem):
        sentence = f"{model}{problem.message}: {names}{'' if few else ', ...'}{kind}"
    first, *others = _hang(f"{word} ", printable(sentence), layout.width)
    yield first.replace(word, layout.colorize(word, style), 1)
    yield from others
    if layout.is_whole:
        limit = None if not layout.rows else max(layout.rows, 20)
        for subject in problem.subjects[:limit]:
            yield from _hang("    ", printable_name(subject), layout.width)
        if limit is not None and len(problem.subjects) > limit:
            yield f"    [{format_many(len(problem.subjects) - limit, 'other')}]"


_NAME = 40


def _hang(label: str, text: str, width: int) -> list[str]:
    lines = _wrap(text, max(width - _length(label), 12))
    return [f"{label if not at else ' ' * _length(label)}{line}" for at, line in enumerate(lines or [""])]


_GLUED, _GLUE = "\0", "\0x\0"
"""Stand-in for a space within a shape while lines are broken; no printable text has it."""
_FACT_LINES = 4
"""Number of lines in a list of facts, unless all are asked for."""


def _list(label: str, pieces: Sequence[str], layout: _Layout) -> Iterator[str]:
    """Yield pieces with semicolons between them; a line ends after a piece, or within one that has no room."""
    room = max(layout.width - _length(label), 12)
    lines: list[str] = []
    ends: list[int] = []
    for at, piece in enumerate(pieces):
        text = piece if at == len(pieces) - 1 else f"{piece};"
        if lines and _length(lines[-1]) + 1 + _length(text) <= room:
            lines[-1] += f" {text}"
        else:
            glued = _wrap(text.replace(" x ", _GLUE), room)
            lines += [line.replace(_GLUED, " ").strip() for line in glued]  # a line may end within a shape
        ends.append(len(lines))
    shown = len(pieces)
    while not layout.is_whole and shown > 1 and ends[shown - 1] > _FACT_LINES:
        shown -= 1
    lines = lines[: ends[shown - 1]] if shown < len(pieces) else lines
    if shown < len(pieces):
        ending = f"[{format_many(len(pieces) - shown, 'other')}; -v]"
        if _length(lines[-1]) + 1 + _length(ending) <= room:
            lines[-1] += f" {ending}"
        else:
            lines.append(ending)
    for at, line in enumerate(lines):
        yield f"{label if not at else ' ' * _length(label)}{line}"


def _wrap(text: str, width: int) -> list[str]:
    if _length(text) <= width:
        return [text] if text else []
    return textwrap.wrap(text, width, break_on_hyphens=False) or [text]


def _wrap_path(text: str, width: int) -> list[str]:
    """Wrap names without breaking them; a name that has no room on a line is broken after a `/`.

    >>> _wrap_path("models/bert/model.onnx", 16), _wrap_path("a/b.onnx against c/d.json", 20)
    (['models/bert/', 'model.onnx'], ['a/b.onnx against', 'c/d.json'])
    """
    lines: list[str] = []
    line = ""
    names = text.replace(" ", " \n").split("\n")
    pieces = [name.replace("/", "/\n") if _length(name.rstrip()) > width else name for name in names]
    for word in "\n".join(pieces).split("\n"):
        if line and _length(line) + _length(word.rstrip()) > width:
            lines.append(line.rstrip())
            line = ""
        line += word
    return [piece for each in (*lines, line) for piece in _wrap(each, width)]


# tables

_GAP = 2
_LEAST = 18
"""Columns of names below which columns of numbers are dropped."""
_BAR, _LONGEST_BAR = 8, 24
_INDENT, _DEEPEST = 2, 6


def _table(table: Table, layout: _Layout) -> Iterator[str]:
    if not table.rows and not table.total:
        return
    table = cut_table(table, layout.rows, verbose=layout.verbose)
    if table.is_split and not _fits_width(table, layout.width):
        for number, part in enumerate(_split(replace(table, is_whole=True), layout.width)):
            yield from [""] if number else []
            yield from _table(part, layout)
        return
    columns = shown_columns(table)
    named_rows = [
        replace(row, cells=(name, *row.cells[1:]))
        for row, name in zip(table.rows, name_rows(table), strict=True)
    ]
    rows = [*named_rows, *([Row(table.total)] if table.total else [])]
    texts = {id(row): [_cell_text(row, at, column) for at, column in columns] for row in rows}
    columns, widths = _fit(table, columns, list(texts.values()), layout)
    bar = next((at for at, column in columns if column.is_bar), None)
    room = layout.width - sum(widths) - _GAP * (len(columns) - 1)
    bar_room = min(room - _GAP, _LONGEST_BAR) if bar is not None and room >= _BAR + _GAP else 0
    first = columns[0][1].title
    if table.title and table.title not in (first, first if layout.is_whole else f"{first}s"):
        yield layout.colorize(printable(table.title), "bold")
    yield from _lines(
        [printable_name(column.title) for _, column in columns],
        columns,
        widths,
        bar_room,
        layout,
        "bold",
        bar=None,
    )
    places = {at: place for place, (at, _) in enumerate(shown_columns(table))}
    if columns[0][1].kind is Kind.NAME and not layout.is_whole:
        place = places[columns[0][0]]
        cut = _cut_distinctly([texts[id(row)][place] for row in rows], widths[0])
        for row in rows:
            texts[id(row)][place] = cut.get(texts[id(row)][place], texts[id(row)][place])
    for row in rows:
        row_texts = [texts[id(row)][places[at]] for at, _ in columns]
        style = "bold" if row.cells is table.total else {Tone.BAD: "red", Tone.GOOD: ""}.get(row.tone, "")
        share = number_of(row.cells[bar]) if bar is not None and row.cells is not table.total else None
        bar_text = _draw_bar(share, bar_room, ascii=layout.ascii) if bar_room else None
        yield from _lines(
            row_texts, columns, widths, bar_room, layout, style, bar=(bar, bar_text) if bar_text else None
        )
    for note in table.notes:
        yield from _wrap(printable(note), layout.width)


def _split(table: Table, width: int) -> Iterator[Table]:
    """Yield tables of the same rows, each with as many columns as have room; notes are below the last.

    Each repeats the first columns, as far as the name of a row.
    """
    widths = _least_widths(table, _NAMES_ROOM)
    kinds = [column.kind for column in table.columns]
    first = kinds.index(Kind.NAME) + 1 if Kind.NAME in kinds[:_FIRST] else 1
    room = width - sum(widths[:first]) - _GAP * (first - 1)
    parts: list[list[int]] = [[]]
    for at in range(first, len(widths)):
        if parts[-1] and sum(widths[each] + _GAP for each in (*parts[-1], at)) > room:
            parts.append([])
        parts[-1].append(at)
    for part in parts:
        shown = [*range(first), *part]
        yield replace(
            table,
            columns=tuple(table.columns[each] for each in shown),
            rows=tuple(replace(row, cells=tuple(row.cells[each] for each in shown)) for row in table.rows),
            total=tuple(table.total[each] for each in shown) if table.total else (),
            notes=table.notes if part is parts[-1] else (),
            order=None,
            is_split=False,
        )


_WHOLE_NAMES = 36
"""Columns of names below which other columns are dropped, if no name is cut."""
_NAMES_ROOM = 30
"""Columns that names have if numbers continue in a further table."""
_LEAST_NAMES = 20
"""Columns that names have at least if all numbers are in one table."""
_FIRST = 2
"""Number of columns among which the name of a row is looked for."""


def _least_widths(table: Table, names: int) -> list[int]:
    """Return the widths of the columns if texts are cut to a number of characters."""
    rows = [*table.rows, *([Row(table.total)] if table.total else [])]
    widths = [
        max([_length(printable_name(column.title)), *(_length(_cell_text(row, at, column)) for row in rows)])
        for at, column in enumerate(table.columns)
    ]
    return [
        width if column.kind.is_number else min(width, max(names, _length(column.title)))
        for width, column in zip(widths, table.columns, strict=True)
    ]


def _fits_width(table: Table, width: int) -> bool:
    """Whether all columns have room beside each other."""
    return sum(_least_widths(table, _LEAST_NAMES)) + _GAP * (len(table.columns) - 1) <= width


def _cell_text(row: Row, at: int, column: Column) -> str:
    cell: Cell = row.cells[at] if at < len(row.cells) else ""
    text = format_cell(cell, column.kind)
    text = printable_name(text) if column.kind is Kind.NAME else printable(text)
    return f"{' ' * (_INDENT * min(row.level, _DEEPEST))}{text}" if not at else text


def _fit(
    table: Table, columns: list[tuple[int, Column]], rows: Sequence[Sequence[str]], layout: _Layout
) -> tuple[list[tuple[int, Column]], list[int]]:
    """Return the columns that have room, and their widths: numbers whole, texts cut if they must be."""
    natural = [
        max([_length(printable_name(column.title)), *(_length(row[place]) for row in rows)])
        for place, (_, column) in enumerate(columns)
    ]
    kept = list(range(len(columns)))
    while True:
        text_places = [place for place in kept if not columns[place][1].kind.is_number]
        numbers_width = sum(natural[place] for place in kept if place not in text_places) + _GAP * (
            len(kept) - 1
        )
        texts_width = sum(
            min(
                natural[place],
                max(
                    _LEAST if place or not layout.is_whole else _WHOLE_NAMES, _length(columns[place][1].title)
                ),
            )
            for place in text_places
        )
        bar = _GAP + _BAR if any(columns[place][1].is_bar for place in kept) else 0
        removable = [
            place
            for place in kept[1:]
            if columns[place][1].room < (9 if numbers_width + texts_width > layout.width else 3)
        ]
        if numbers_width + texts_width + bar <= layout.width or not removable:
            break
        kept.remove(min(removable, key=lambda place: (columns[place][1].room, -place)))
    widths = dict(zip(kept, (natural[place] for place in kept), strict=True))
    spare = max(layout.width - numbers_width, len(text_places))
    while text_places and sum(widths[place] for place in text_places) > spare:
        # names have priority over other texts, unless names are cut
        is_short = layout.is_whole or widths.get(0, 0) <= _length(columns[0][1].title)
        others = [place for place in text_places if place and widths[place] > _LEAST] if is_short else []
        longest = max(others or text_places, key=lambda place: widths[place])
        excess = sum(widths[place] for place in text_places) - spare
        second = max((widths[place] for place in others or text_places if place != longest), default=1)
        second = max(second, _LEAST) if others else second
        widths[longest] = max(widths[longest] - excess, min(second, widths[longest] - 1), 1)
    return [columns[place] for place in kept], [widths[place] for place in kept]


def _lines(
    texts: Sequence[str],
    columns: Sequence[tuple[int, Column]],
    widths: Sequence[int],
    bar_room: int,
    layout: _Layout,
    style: str,
    bar: tuple[int | None, str] | None,
) -> Iterator[str]:
    """Yield the lines of a row; sentences continue on further lines, and so do names if all was asked for."""
    wrapped = [
        _fold(text, width, column.kind, is_whole=layout.is_whole)
        for text, (_, column), width in zip(texts, columns, widths, strict=True)
    ]
    for depth in range(max(map(len, wrapped))):
        line = ""
        for place, (at, column) in enumerate(columns):
            text = wrapped[place][depth] if depth < len(wrapped[place]) else ""
            space = " " * (widths[place] - _length(text))
            cell = f"{space}{text}" if column.kind.is_number else f"{text}{space}"
            line += f"{' ' * _GAP if place else ''}{cell}"
            if bar_room and column.is_bar:
                bar_text = bar[1] if bar is not None and bar[0] == at and not depth else ""
                line += f"{' ' * _GAP}{bar_text}{' ' * (bar_room - _length(bar_text))}"
        yield layout.colorize(line.rstrip(), style)


def _fold(text: str, width: int, kind: Kind, *, is_whole: bool) -> list[str]:
    """Return the lines of a cell."""
    if kind is Kind.PROSE:
        return _wrap(text, width) or [""]
    if kind is Kind.FORMULA and _length(text) > width:
        return [piece for line in _wrap_sum(text, width) for piece in _wrap(line, width)]
    if not is_whole or kind.is_number or _length(text) <= width:
        return [_cut(text, width)]
    indent = " " * min(len(text) - len(text.lstrip(" ")), max(width - 8, 0))
    lines, line = [], indent
    for char in text.lstrip(" "):
        if _length(line) + _length(char) > width:
            at = max(line.rfind(each) + 1 for each in "./_")
            at = at if at > len(line) // 2 else len(line)
            lines.append(line[:at])
            line = indent + line[at:]
        line += char
    return [*lines, line]


def _wrap_sum(text: str, width: int) -> list[str]:
    """Return an expression in lines, with a break before the first summand that does not fit."""
    lines = [""]
    for summand in _summands(text):
        if lines[-1] and len(lines[-1]) + len(summand) > width:
            lines.append("")
        lines[-1] += summand
    return [line.strip() for line in lines]


def _summands(text: str) -> list[str]:
    """Return the summands outside of brackets, each with its sign.

    >>> _summands("N*(D**2 + D) + 2*D - V")
    ['N*(D**2 + D)', ' + 2*D', ' - V']
    """
    depth, found = 0, [""]
    for number, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if not depth and text[number : number + 3] in (" + ", " - "):
            found.append("")
        found[-1] += character
    return found


def _cut(text: str, width: int, end: float = 0.5) -> str:
    """Cut the middle of a name that is too long; `end` is the part of the room for its end."""
    if _length(text) <= width:
        return text
    level = len(text) - len(text.lstrip(" "))
    return f"{' ' * level}{shorten(text.lstrip(' '), max(width - level, 3), end)}"[:width]


def _cut_distinctly(names: Sequence[str], width: int) -> dict[str, str]:
    """Return names that would read alike without their middle, each with more of its end, or of its beginning.

    >>> _cut_distinctly(["encoder.stages.1.sampling", "encoder.stages.2.sampling", "head"], 14)
    {'encoder.stages.1.sampling': 'en….1.sampling', 'encoder.stages.2.sampling': 'en….2.sampling'}
    """
    alike: dict[str, set[str]] = {}
    for name in names:
        alike.setdefault(_cut(name, width), set()).add(name)
    found: dict[str, str] = {}
    for group in alike.values():
        if len(group) > 1:
            cuts = [{name: _cut(name, width, part) for name in group} for part in _PARTS]
            best = max(cuts, key=lambda cut: len(set(cut.values())))  # the first of equal ones
            found |= {name: best[name] for name in sorted(group)}
    return found


_PARTS = (0.5, 0.65, 0.8, 1.0, 0.35, 0.2, 0.0)
"""Parts of the room that the end of a cut name may take, best first."""


def _draw_bar(share: float | None, room: int, *, ascii: bool) -> str:
    if share is None or share <= 0:
        return ""
    eighths = max(round(min(share, 1) * room * 8), 1)
    if ascii:
        return "#" * max(round(eighths / 8), 1)
    return "█" * (eighths // 8) + ("▏▎▍▌▋▊▉"[eighths % 8 - 1] if eighths % 8 else "")


def _length(text: str) -> int:
    """Return the number of columns that a text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )
