"""All formats contain every fact of a page: none is in only one of text, Markdown and HTML."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import reports

from analyzer.account.findings.catalog import explain, list_paragraphs, load_explanations
from analyzer.documents.answer import Answer
from analyzer.documents.base import Head, Tool
from analyzer.documents.lake import LakeDocument, LakeTable
from analyzer.formats.html.blocks import Keys
from analyzer.formats.html.page import make_page
from analyzer.formats.html.writer import make_section
from analyzer.formats.json import to_record
from analyzer.formats.json.explain import document_explanations
from analyzer.formats.markdown.pages import write_markdown
from analyzer.formats.text.writer import write_text
from analyzer.pages.kinds import PAGES, describe
from analyzer.pages.lake import describe_answer, describe_tables
from analyzer.pages.page import (
    Cell,
    Facts,
    Findings,
    Kind,
    Notes,
    Page,
    Passage,
    Table,
    format_cell,
    format_prose,
    number_of,
)
from analyzer.reports import Report


def lake(folder: Path) -> Head:
    """Return the document of a survey."""
    tables = [LakeTable(table="models", rows=3), LakeTable(table="tensors", rows=2_000)]
    counts = {"models": 3, "unreadable": 1, "read": 2, "kept": 1, "shards": 2, "written": 1, "bytes": 4096}
    error = "b.onnx: no ONNX model"
    return LakeDocument(tool=Tool(version="1"), lake="a/lake", tables=tables, first_error=error, **counts)


def read(make: Callable[[Path], Report]) -> Callable[[Path], Head]:
    """Return a function that makes the document of a report."""
    return lambda folder: to_record(make(folder))


def as_text(page: Page) -> str:
    """Return the text without spaces, since lines break anywhere in narrow columns."""
    return squeeze(write_text(page, rows=0, width=250, verbose=True))


def as_markdown(page: Page) -> str:
    text = html.unescape(write_markdown(page, rows=0, verbose=True)).replace("\u2060", "")
    return squeeze(re.sub(r"\\([^\w\s]|_)", r"\1", text.replace("**", "").replace("`", "")))


def as_html(page: Page) -> str:
    """Return the words of the page, and the texts and numbers of its data."""
    made = make_page("t", [make_section(page, Keys(), {})]).partition("<main")[2]
    islands = re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', made, re.DOTALL)
    data = " ".join(str(value) for island in islands for value in leaves(json.loads(island)))
    return squeeze(html.unescape(re.sub(r"<[^>]*>", " ", made)) + data)


MAKERS: dict[str, Callable[[Path], Head]] = {
    **{make.__name__: read(make) for make in reports.REPORTS},
    "lake": lake,
    "explain": lambda folder: document_explanations(load_explanations()),
    "explain_one": lambda folder: document_explanations([explain("duplicate-content")]),
}
"""Makers of documents: one for each report with a page, then documents without a report."""

FORMATS = {"text": as_text, "markdown": as_markdown, "html": as_html}


def leaves(data: object) -> Iterator[object]:
    """Yield all values in JSON data, with numbers formatted as on the page."""
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
    """Yield the required facts: the place on the page, and the permitted spellings."""
    yield "answer", (page.answer,)
    yield "subject", (page.subject,)
    yield "about", (page.about,)
    for figure in page.figures:
        if figure.phrase:
            yield "figure", (figure.phrase, figure.value)
    for block in page.blocks:
        match block:
            case Findings():
                for problem in block.problems:
                    yield "problem", (problem.message,)
                    yield "what it is about", (problem.model,)
                    yield from (("what it is about", (name,)) for name in problem.subjects)
            case Notes():
                yield from (("note", (format_prose(line),)) for line in block.lines)
            case Facts():
                for fact in block.facts:
                    yield "fact", (fact.label,)
                    yield "fact", (fact.value,)
            case Passage():
                yield "title", (block.title,)
                yield "lead", (block.lead,)
                for heading, text in block.parts:
                    yield "heading", (heading,)
                    yield from (("text", (part,)) for _, part in list_paragraphs(text))
                if block.more is not None:
                    yield "more", (block.more.text, block.more.name)
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
    """Return a cell's permitted spellings: numbers may be exact, and nested names may omit their parent."""
    text, number = format_cell(cell, kind), number_of(cell)
    exact = [f"{round(number):,}"] if number is not None else []
    below = [re.split(r"[. /]", text)[-1]] if level else []
    return (text, *exact, *below)


def assert_same_facts(page: Page) -> None:
    """Assert that every format has every fact."""
    for name, write in FORMATS.items():
        written = write(page)
        lost = [
            (where, spellings)
            for where, spellings in facts(page)
            if not any(squeeze(each) in written for each in spellings)
        ]
        assert not lost, (name, lost)


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_every_format_says_what_the_page_says(make: Callable[[Path], Head], tmp_path: Path) -> None:
    assert_same_facts(describe(make(tmp_path)))


ANSWER = Answer(
    ("model", "parameters", "share", "dtypes", "error"),
    [("a.onnx", 1_234_567, 0.25, ["FLOAT", "INT8"], None), ("b|c.onnx", None, 1.5, [], "is no <model>")],
    "Which are the largest. None is of today.",
)
FAMILIES = Answer(
    ("model", "family", "relation", "parameters", "copied_bytes"),
    [("a.onnx", 1, "copy", 12, 2_048)],
    "Which hold the same. Copies cost 2,048 bytes.",
)
TOTALS = Answer(
    ("models", "unreadable", "parameters", "file_bytes", "copied_bytes"), [(2, 1, 1234, 5000, 2048)]
)


@pytest.mark.parametrize("families", [FAMILIES, Answer((), [], "No two are alike")], ids=["some", "none"])
def test_every_format_says_what_a_lake_says(families: Answer) -> None:
    assert_same_facts(describe_answer(ANSWER, "largest"))
    assert_same_facts(
        describe_tables("a/lake", TOTALS, replace(ANSWER, says="Models"), families, [ANSWER], most=1)
    )


def test_each_kind_of_page_is_compared_with_its_formats(tmp_path: Path) -> None:
    kinds = set()
    for name, make in MAKERS.items():
        folder = tmp_path / name
        folder.mkdir()
        kinds.add(type(make(folder)).__name__)

    assert set(PAGES) <= kinds, "tests/reports.py makes one of each kind"
