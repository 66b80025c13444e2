"""Names that look like markup or code, or deceive the eye, opened in Chromium: they stay text.

A page of such names has exactly the elements of the page of harmless names of the same shape. After every test, the
fixture `visit` checks that no dialog opened, the console was quiet, and nothing else was requested.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import chromium
import inquiries
import kinds
import pages
import pytest
from playwright.sync_api import Page
from reader import Reader

from analyzer.errors import UsageError
from analyzer.formats import to_document
from analyzer.formats.html import render_documents
from analyzer.text import printable

pytestmark = pytest.mark.browser

KEPT = {"command", "kind", "schema_version", "tool"}
"""Keys without which a document is not ours, and no page is made of it."""
KEYS = {"opsets"}
"""Objects whose keys a file chooses."""
SHOWN = 40
"""Characters of the beginning that are visible even of the longest name."""


def rename(document: dict[str, Any], names: Callable[[str], str]) -> dict[str, Any]:
    """Return a document in which `names` has replaced every text, except where its record allows only certain words."""
    kept: set[tuple[str, ...]] = set()
    while True:
        renamed: dict[str, Any] = _rename(document, names, kept, ())
        try:
            render_documents([renamed])
        except UsageError as error:
            refused = re.sub(r"\[.*?\]", "", str(error).partition("`$")[2].partition("`")[0])
            place = tuple(refused.split(".")[1:])
            if not place or place in kept:
                raise
            kept.add(place)
        else:
            return renamed


def _rename(
    value: Any, names: Callable[[str], str], kept: set[tuple[str, ...]], path: tuple[str, ...]
) -> Any:
    if path in kept:
        return value
    if isinstance(value, str):
        return names(value) if value else value
    if isinstance(value, list):
        return [_rename(each, names, kept, path) for each in value]
    if isinstance(value, dict):
        return {
            key: each
            if key in KEPT
            else {names(name): item for name, item in each.items()}
            if key in KEYS
            else _rename(each, names, kept, (*path, key))
            for key, each in value.items()
        }
    return value


def pick(text: str) -> str:
    """Return a hostile name, always the same for a text, cut to what a page accepts."""
    return pages.HOSTILE[sum(text.encode()) % len(pages.HOSTILE)][:1000]


def with_hostile_name(text: str) -> str:
    """Return a text after such a name."""
    return pick(text) + text


def mild(text: str) -> str:
    """Return the same text after a harmless name."""
    return pages.tame(pick(text)) + text


def write(folder: Path, name: str, *documents: dict[str, Any]) -> Path:
    path = folder / name
    path.write_text(render_documents(list(documents)), encoding="utf-8")
    return path


def globals_of(page: Page) -> set[str]:
    """Return the window's properties, without Playwright's own."""
    return {
        name for name in page.evaluate("() => Object.getOwnPropertyNames(window)") if "playwright" not in name
    }


@pytest.mark.parametrize("kind", kinds.PAGES)
def test_hostile_names_make_no_element_more_than_harmless_ones(
    visit: chromium.Visitor, tmp_path: Path, kind: str
) -> None:
    report, beside = kinds.make_report(tmp_path, kind)
    documents = [to_document(report), *beside]
    hostile = write(
        tmp_path, "hostile.html", *(rename(document, with_hostile_name) for document in documents)
    )
    harmless = write(tmp_path, "harmless.html", *(rename(document, mild) for document in documents))
    for scripts in (True, False):
        found, expected = (visit(path, scripts=scripts).page for path in (hostile, harmless))

        made, harmless_ones = inquiries.count_elements(found), inquiries.count_elements(expected)
        assert found.locator("wbr").evaluate_all("all => all.every((each) => !each.attributes.length)")
        del made["wbr"], harmless_ones["wbr"]  # where the script allows a line break in a long name
        assert not made - harmless_ones
        # Names that no config field can have are no symbols: a formula of them has one table less.
        assert made == harmless_ones or kind in ("beside", "formula")
        assert inquiries.find_handlers(found) == []
        assert inquiries.find_duplicate_ids(found) == []
        assert globals_of(found) == globals_of(expected)
        assert found.title().endswith(" \N{MIDDLE DOT} onnxledger")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the page of a file with such names, whose own name is one, too."""
    folder = tmp_path_factory.mktemp("hostile")
    report = pages.inspect(folder, pages.hostile(), "<img src=x onerror=alert(1)>{{7*7}}.onnx")
    return pages.write(folder, report)


def test_a_file_of_hostile_names_shows_each_as_it_is_or_escaped(
    visit: chromium.Visitor, hostile: Path
) -> None:
    reader = Reader(visit(hostile).page)

    shown = reader.page.locator("body").inner_text()
    for name in pages.HOSTILE:
        if name.strip():
            assert " ".join(printable(name[:SHOWN]).split()) in " ".join(shown.split())
    assert "<img src=x onerror=alert(1)>{{7*7}}.onnx" in reader.page.locator("h1").inner_text()


def test_whatever_is_done_with_hostile_names_they_stay_text(visit: chromium.Visitor, hostile: Path) -> None:
    reader = Reader(visit(hostile).page)
    before = inquiries.count_elements(reader.page)["script"]
    reader.chart.get_by_role("button", name="bytes", exact=True).click()

    for tint in ("role", "dtype"):
        reader.chart.get_by_label("Colour by").select_option(tint)
    for column in ("tensor", "scope", "bytes"):
        reader.sort("Tensors", column)
    state = reader.search("Tensors", "<script>")
    for x, y in ((20, 11), (200, 200), (500, 100), (20, 11)):
        reader.click_picture(x, y)
        reader.page.mouse.move(x + 200, y + 300)

    assert "found, of 84" in state
    after = inquiries.count_elements(reader.page)
    assert after["script"] == before
    assert not {"img", "svg", "iframe", "b", "i", "base", "object", "embed"} & set(after)
    assert "injected" not in globals_of(reader.page)
    assert len(reader.trail) > 1


def test_names_cannot_leave_the_width_of_a_phone(visit: chromium.Visitor, hostile: Path) -> None:
    assert not inquiries.is_wide(visit(hostile, size=chromium.PHONE).page)
