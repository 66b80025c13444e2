"""What a page says, every format says: no fact stands in one of text, Markdown and HTML alone."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import reports

from analyzer.documents.base import Head
from analyzer.pages.kinds import PAGES, describe
from analyzer.pages.page import Cell, Facts, Findings, Kind, Notes, Page, Table, number_of, say, say_prose
from analyzer.render.html.page import make_page
from analyzer.render.html.parts import Beside
from analyzer.render.html.writer import make_section
from analyzer.render.json import to_record
from analyzer.render.markdown.pages import write_markdown
from analyzer.render.text.writer import write_text
from analyzer.report import Report


def make_document(make: Callable[[Path], Report], folder: Path) -> Head:
    return to_record(make(folder))


def as_text(page: Page) -> str:
    """Without spaces: where there is no room, lines are broken anywhere."""
    return squeeze(write_text(page, rows=0, width=250, verbose=True))


def as_markdown(page: Page) -> str:
    text = html.unescape(write_markdown(page, rows=0, verbose=True)).replace("\u2060", "")
    return squeeze(re.sub(r"\\([^\w\s]|_)", r"\1", text.replace("**", "").replace("`", "")))


def as_html(page: Page) -> str:
    """The words of the page, and of its data the texts and numbers."""
    made = make_page("t", [make_section(page, Beside())]).partition("<main")[2]
    islands = re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', made, re.DOTALL)
    data = " ".join(str(value) for island in islands for value in leaves(json.loads(island)))
    return squeeze(html.unescape(re.sub(r"<[^>]*>", " ", made)) + data)


MAKERS = [
    make for make in reports.REPORTS if "FormulaDocument" in PAGES or not make.__name__.startswith("formula")
]
"""Whatever kind has a page is here by itself."""

FORMATS = {"text": as_text, "markdown": as_markdown, "html": as_html}


def leaves(data: object) -> Iterator[object]:
    """All that stands anywhere in JSON; numbers as people read them."""
    if isinstance(data, dict):
        data = list(data.values())
    if isinstance(data, list):
        for each in data:
            yield from leaves(each)
    elif isinstance(data, int):
        yield f"{data:,}"
    elif data is not None:
        yield data


def squeeze(text: str) -> str:
    return re.sub(r"[\s*`]+", "", text).lower()


def facts(page: Page) -> Iterator[tuple[str, tuple[str, ...]]]:
    """What has to be there, in words: where it stands on the page, and the ways in which it may be written."""
    yield "answer", (page.answer,)
    yield "subject", (page.subject,)
    yield "about", (page.about,)
    for figure in page.figures:
        if figure.said:
            yield "figure", (figure.said, figure.value)
    for block in page.blocks:
        match block:
            case Findings():
                for problem in block.problems:
                    yield "problem", (problem.message,)
                    yield "what it is about", (problem.model,)
                    yield from (("what it is about", (name,)) for name in problem.subjects)
            case Notes():
                yield from (("note", (say_prose(line),)) for line in block.lines)
            case Facts():
                for fact in block.facts:
                    yield "fact", (fact.label,)
                    yield "fact", (fact.value,)
            case Table() if block.rows:
                yield "title", (block.title,)
                yield from (("note", (note,)) for note in block.notes)
                shown = [(at, each) for at, each in enumerate(block.columns) if not each.is_hidden]
                for at, column in shown:
                    if block.total:
                        yield f"total of {column.title}", ways(block.total[at], column.kind)
                    if column.room == 9 or not at:
                        yield "column", (column.title,)
                for row in block.rows:
                    yield f"row of {block.title}", ways(row.cells[0], block.columns[0].kind, row.level)


def ways(cell: Cell, kind: Kind, level: int = 0) -> tuple[str, ...]:
    """A number may be exact, and a name below another goes without what that says."""
    text, number = say(cell, kind), number_of(cell)
    exact = [f"{round(number):,}"] if number is not None else []
    below = [re.split(r"[. /]", text)[-1]] if level else []
    return (text, *exact, *below)


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_every_format_says_what_the_page_says(make: Callable[[Path], Report], tmp_path: Path) -> None:
    document = make_document(make, tmp_path)
    page = describe(document)

    for name, write in FORMATS.items():
        written = write(page)
        lost = [
            (where, said) for where, said in facts(page) if not any(squeeze(each) in written for each in said)
        ]
        assert not lost, (name, lost)


def test_each_kind_of_page_is_held_against_its_formats(tmp_path: Path) -> None:
    kinds = set()
    for make in MAKERS:
        folder = tmp_path / make.__name__
        folder.mkdir()
        kinds.add(type(make_document(make, folder)).__name__)

    assert set(PAGES) <= kinds
