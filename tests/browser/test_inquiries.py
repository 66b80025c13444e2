"""A badly made page: each inquiry finds its defect, so that no findings on other pages mean something."""

from __future__ import annotations

from collections.abc import Iterator

import chromium
import inquiries
import pytest
from playwright.sync_api import Page

pytestmark = pytest.mark.browser

BAD = """<!doctype html>
<meta http-equiv="Content-Security-Policy" content="img-src 'none'">
<style>#pale { color: #999; background: #fff } button:focus { outline: none } #wide { width: 3000px }</style>
<h1>one</h1> <h3>three</h3> <p>text</p> <p id="pale">pale</p> <p id="twice">first</p> <p id="twice">second</p>
<button type="button" onclick="alert(1)"></button> <a href="javascript:alert(2)">link</a> <div id="wide">wide</div>
<canvas width="20" height="20"></canvas>
<img src="https://example.org/picture.png" alt="">
<script>console.warn("beware"); setTimeout(() => missing.name); alert(3);</script>
"""


@pytest.fixture(scope="module")
def bad(browser: chromium.Visitor, tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Visit]:
    path = tmp_path_factory.mktemp("bad") / "bad.html"
    path.write_text(BAD, encoding="utf-8")
    visit = browser(path)
    visit.page.wait_for_timeout(200)
    yield visit
    visit.context.close()


@pytest.fixture
def page(bad: chromium.Visit) -> Page:
    return bad.page


def test_complaints_of_every_kind_are_recorded(bad: chromium.Visit) -> None:
    for kind in ("warning: beware", "exception: ", "dialog: 3", "error: policy: img-src"):
        assert any(complaint.startswith(kind) for complaint in bad.complaints), kind


def test_requests_are_recorded(bad: chromium.Visit) -> None:
    assert bad.requests[1:] == ["https://example.org/picture.png"]


def test_pale_text_is_found(page: Page) -> None:
    (found,) = inquiries.find_pale_text(page)
    assert found.startswith("p. rgb(153, 153, 153) on 255,255,255: 2.8")


def test_what_has_no_name_is_found(page: Page) -> None:
    assert inquiries.find_nameless(page) == ["button"]


def test_ids_that_are_there_twice_are_found(page: Page) -> None:
    assert inquiries.find_duplicate_ids(page) == ["twice"]


def test_attributes_that_run_code_are_found(page: Page) -> None:
    assert inquiries.find_handlers(page) == [
        "button onclick=alert(1)",
        "a href=javascript:alert(2)",
        "img src=https://example.org/picture.png",
    ]


def test_focus_that_is_not_seen_is_found(page: Page) -> None:
    assert inquiries.find_unfocused(page, presses=2) == ["button#."]


def test_width_levels_and_colours_are_measured(page: Page) -> None:
    assert inquiries.is_wide(page)
    assert inquiries.headings(page) == [1, 3]
    assert inquiries.count_colours(page.locator("canvas")) == 1
    assert inquiries.count_elements(page)["p"] == 4
