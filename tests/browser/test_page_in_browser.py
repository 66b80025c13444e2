"""The HTML report in headless Chromium: its use, its look, and things that it must never do.

After every test, the fixture `visit` checks that the console was quiet, that the page's own policy was kept, and that
only the file was requested.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import chromium
import inquiries
import journeys
import kinds
import pages
import pypdf
import pytest
from playwright.sync_api import expect
from reader import Reader

from analyzer.formats import to_document

pytestmark = pytest.mark.browser

TENSORS = "Tensors"
Small = tuple[Path, dict[str, Any]]
Made = Callable[[str], Path]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pages")


@pytest.fixture(scope="module")
def small(folder: Path) -> Small:
    """Write the page of a model of 147 + 3 tensors; return it with its document."""
    report = pages.inspect(folder, pages.layers(21), "small.onnx")
    return pages.write(folder, report, name="small.html"), to_document(report)


@pytest.fixture(scope="module")
def large(folder: Path) -> Small:
    """Write the page of a model of 20,000 tensors; return it with its document."""
    report = pages.inspect(folder, pages.many(), "large.onnx")
    return pages.write(folder, report, name="large.html"), to_document(report)


@pytest.fixture(scope="module")
def made(folder: Path) -> Made:
    """Return a function that makes the page of a kind, once."""
    return functools.cache(lambda kind: kinds.make_page(folder, kind))


@pytest.fixture(params=["small", "large"])
def either(request: pytest.FixtureRequest) -> Small:
    """Return the small page, then the large one."""
    made: Small = request.getfixturevalue(request.param)
    return made


# use by its reader


def test_a_click_enters_a_group_and_another_one_leaves_it(visit: chromium.Visitor, either: Small) -> None:
    journeys.enter_groups(visit, *either)


def test_every_column_sorts_both_ways(visit: chromium.Visitor, either: Small) -> None:
    journeys.sort_tensors(visit, *either)


def test_names_with_numbers_are_sorted_as_people_count(visit: chromium.Visitor, small: Small) -> None:
    reader = Reader(visit(small[0]).page)

    reader.search(TENSORS, "norm.weight")
    reader.sort(TENSORS, "tensor")

    names = reader.column(TENSORS, "tensor")
    assert names == [f"encoder.layer.{number}.norm.weight" for number in range(21)]


@pytest.mark.parametrize(("made", "text"), [("small", "layer.7.up"), ("large", "stage13.layer.2.")])
def test_a_search_finds_all_rows_and_sums_them(
    visit: chromium.Visitor, request: pytest.FixtureRequest, made: str, text: str
) -> None:
    journeys.search_tensors(visit, *request.getfixturevalue(made), text)


def test_all_words_of_a_search_must_be_there(visit: chromium.Visitor, small: Small) -> None:
    reader = Reader(visit(small[0]).page)

    state = reader.search(TENSORS, "bias layer.20.")

    assert state == "rows 1\N{EN DASH}3 of 3 found, of 150"
    assert {name.rpartition(".")[2] for name in reader.column(TENSORS, "tensor")} == {"bias"}


def test_a_count_is_found_as_it_is_shown_and_as_it_is_stored(visit: chromium.Visitor, small: Small) -> None:
    path, document = small
    reader = Reader(visit(path).page)
    largest = max(tensor["bytes"] for tensor in document["tensors"])
    assert largest >= 1000

    assert [reader.search(TENSORS, f"{largest:,}"), reader.search(TENSORS, str(largest))] == [
        "rows 1\N{EN DASH}1 of 1 found, of 150"
    ] * 2


def test_what_no_column_shows_is_not_found(visit: chromium.Visitor, small: Small) -> None:
    path, document = small
    reader = Reader(visit(path).page)

    assert any(tensor["read_by"] == "Sum" for tensor in document["tensors"])
    assert reader.search(TENSORS, "Sum") == "nothing found, of 150"


def test_the_pages_of_a_long_table_hold_every_row_once(visit: chromium.Visitor, small: Small) -> None:
    path, document = small
    reader = Reader(visit(path).page)
    later = reader.grid(TENSORS).get_by_role("button", name="Next")
    earlier = reader.grid(TENSORS).get_by_role("button", name="Previous")
    expect(earlier).to_be_disabled()

    names = reader.column(TENSORS, "tensor")
    while later.is_enabled():
        later.click()
        names += reader.column(TENSORS, "tensor")

    assert reader.state(TENSORS).endswith("\N{EN DASH}150 of 150")
    assert sorted(names) == sorted(tensor["name"] for tensor in document["tensors"])


def test_the_curve_of_errors_is_drawn_and_ends_with_a_word_where_nothing_differs(
    visit: chromium.Visitor, made: Made
) -> None:
    marked, plain = (visit(made(kind)).page.locator("figure.chart-errors") for kind in ("verify", "same"))

    for figure in (marked, plain):
        assert inquiries.count_colours(figure.locator("canvas")) > 10
    expect(marked.locator(".state")).to_have_text("")
    expect(plain.locator(".state")).to_have_text("No module differs by more than rounding.")


def test_the_chart_is_sized_grouped_and_coloured_as_one_chooses(
    visit: chromium.Visitor, small: Small
) -> None:
    reader = Reader(visit(small[0]).page)
    picture = reader.chart.locator("canvas")
    seen = [picture.screenshot()]

    reader.chart.get_by_role("button", name="bytes", exact=True).click()
    expect(reader.chart.get_by_role("button", name="bytes", exact=True)).to_have_attribute(
        "aria-pressed", "true"
    )
    reader.chart.get_by_label("Colour by").select_option("role")
    expect(reader.chart.locator("ul.legend li")).to_have_count(1)
    seen.append(picture.screenshot())
    reader.chart.get_by_label("Group by").select_option("dtype")
    seen.append(picture.screenshot())

    assert len(set(seen)) == len(seen)
    expect(reader.chart.locator(".tree tbody tr").nth(1)).to_contain_text("FLOAT")


def test_a_tooltip_names_what_the_pointer_is_on(visit: chromium.Visitor, small: Small) -> None:
    reader = Reader(visit(small[0]).page)
    box = reader.chart.locator(".canvas").bounding_box()
    assert box is not None

    reader.page.mouse.move(box["x"] + 40, box["y"] + 60)

    tip = reader.chart.locator(".tip")
    expect(tip).to_be_visible()
    assert tip.inner_text().startswith("encoder \N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK} layer")
    assert "parameters, " in tip.inner_text()


def test_the_table_below_the_chart_moves_the_chart(visit: chromium.Visitor, small: Small) -> None:
    reader = Reader(visit(small[0]).page)
    rows = reader.chart.locator(".tree tbody tr")
    before = rows.count()

    reader.chart.get_by_role("button", name="Parts of embeddings").click()
    opened = rows.count()
    reader.chart.get_by_role("button", name="words", exact=True).click()

    assert opened == before + 2
    assert reader.trail == ["all", "embeddings", "words"]


def test_the_light_is_turned_off_and_on(visit: chromium.Visitor, small: Small) -> None:
    journeys.turn_dark(visit, small[0])


def test_dark_colours_stay_when_the_page_is_reloaded(visit: chromium.Visitor, small: Small) -> None:
    visited = visit(small[0])
    reader = Reader(visited.page)
    reader.page.get_by_role("button", name="Dark", exact=True).click()
    dark = reader.colours

    reader.page.reload()

    assert reader.colours == dark
    visited.requests.pop()  # the page, once more


def test_what_is_printed_has_the_totals_the_groups_and_the_rows(
    visit: chromium.Visitor, small: Small
) -> None:
    text = journeys.print_page(visit, *small)

    names = {"".join(tensor["name"].split()) for tensor in small[1]["tensors"]}
    assert "rows 1\N{EN DASH}150 of 150" in text
    assert not {name for name in names if name not in "".join(text.split())}


# readers without a mouse, a large screen, or scripts


def test_the_keyboard_alone_enters_sorts_searches_and_turns_dark(
    visit: chromium.Visitor, small: Small
) -> None:
    reader = Reader(visit(small[0]).page)
    page, keys = reader.page, reader.page.keyboard
    light = reader.colours

    reader.press_until(page.get_by_role("link", name="To the report"))
    reader.press_until(page.get_by_role("button", name="Dark", exact=True))
    keys.press("Enter")
    assert reader.colours != light

    reader.press_until(reader.chart.get_by_role("button", name="Parts of encoder"))
    keys.press("Enter")
    expect(reader.chart.get_by_role("button", name="Parts of encoder")).to_have_attribute(
        "aria-expanded", "true"
    )
    reader.press_until(reader.chart.locator(".tree").get_by_role("button", name="layer", exact=True))
    keys.press("Enter")
    assert reader.trail == ["all", "encoder", "layer"]

    reader.press_until(reader.chart.locator("ol.crumbs").get_by_role("button", name="all"), "Shift+Tab")
    keys.press("Space")
    assert reader.trail == ["all"]

    reader.press_until(reader.grid(TENSORS).get_by_role("searchbox"))
    keys.type("layer.3.")
    assert reader.state(TENSORS) == "rows 1\N{EN DASH}7 of 7 found, of 150"
    reader.press_until(reader.heading(TENSORS, "bytes"))
    keys.press("Enter")
    assert reader.sorted_by(TENSORS, "bytes") == "descending"
    keys.press("Space")
    assert reader.sorted_by(TENSORS, "bytes") == "ascending"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_whatever_tab_reaches_is_seen_to_be_reached(
    visit: chromium.Visitor, small: Small, scheme: str
) -> None:
    page = visit(small[0], scheme=scheme).page

    assert inquiries.find_unfocused(page, presses=60) == []


def test_without_scripts_every_row_is_in_the_tables(visit: chromium.Visitor, small: Small) -> None:
    path, document = small
    page = visit(path, scripts=False).page

    names = page.locator("noscript [role=region][aria-label=Tensors] tbody td:first-child")
    assert sorted(names.all_inner_texts()) == sorted(tensor["name"] for tensor in document["tensors"])
    expect(names.first).to_be_visible()
    expect(page.get_by_role("region", name="Scope, depth 1", exact=True)).to_be_visible()
    expect(page.locator(":is(button, input, select, figure):visible")).to_have_count(0)


def test_without_scripts_all_of_it_is_printed(visit: chromium.Visitor, small: Small, folder: Path) -> None:
    path, document = small

    visit(path, scripts=False).page.pdf(path=folder / "plain.pdf", format="A4")

    text = "".join(
        "".join(page.extract_text().split()) for page in pypdf.PdfReader(folder / "plain.pdf").pages
    )
    assert [tensor["name"] for tensor in document["tensors"] if tensor["name"] not in text] == []


@pytest.mark.parametrize("kind", kinds.PAGES)
def test_a_phone_scrolls_down_and_not_sideways(visit: chromium.Visitor, made: Made, kind: str) -> None:
    scripted, plain = (
        visit(made(kind), size=chromium.PHONE, scripts=scripts).page for scripts in (True, False)
    )

    assert not inquiries.is_wide(scripted)
    assert not inquiries.is_wide(plain)


def test_a_finger_enters_a_group_on_a_phone(visit: chromium.Visitor, large: Small) -> None:
    path, document = large

    journeys.enter_groups(lambda path: visit(path, size=chromium.PHONE), path, document)


def test_nothing_moves_where_reduced_motion_is_requested(visit: chromium.Visitor, small: Small) -> None:
    reader = Reader(visit(small[0], calm=True).page)

    reader.enter_largest()
    reader.page.get_by_role("button", name="Dark", exact=True).click()

    assert reader.page.evaluate("() => document.getAnimations().length") == 0


# pages of every kind


@pytest.mark.parametrize("kind", kinds.PAGES)
def test_the_page_is_well_formed_and_readable_in_light_and_dark(
    visit: chromium.Visitor, made: Made, kind: str
) -> None:
    page = visit(made(kind)).page
    page.evaluate("() => document.querySelectorAll('details').forEach((each) => { each.open = true; })")

    levels = inquiries.headings(page)
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in zip([0, *levels], levels, strict=False))
    assert inquiries.find_nameless(page) == []
    assert inquiries.find_duplicate_ids(page) == []
    assert inquiries.find_handlers(page) == []
    assert page.title().endswith(" \N{MIDDLE DOT} onnxledger")
    assert page.locator("html").get_attribute("lang") == "en"
    assert inquiries.find_pale_text(page) == []
    page.emulate_media(color_scheme="dark")
    assert inquiries.find_pale_text(page) == []


@pytest.mark.parametrize("kind", kinds.PAGES)
def test_every_picture_is_drawn_and_has_words_for_it(visit: chromium.Visitor, made: Made, kind: str) -> None:
    page = visit(made(kind)).page

    pictures = page.locator("figure.chart").all()
    assert len(pictures) >= (7 if kind == kinds.TOGETHER else 0)
    for picture in pictures:
        assert inquiries.count_colours(picture.locator("canvas")) > 10, picture.inner_text()
        assert picture.locator("[role=img]").get_attribute("aria-label")
    assert page.get_by_text("could not be drawn").count() == 0


# a large model


def test_twenty_thousand_tensors_take_few_elements(visit: chromium.Visitor, large: Small) -> None:
    path, document = large
    page = visit(path).page

    assert len(document["tensors"]) == pages.MANY
    assert inquiries.count_elements(page).total() < 5_000
    assert Reader(page).rows(TENSORS) <= 100
    assert path.read_text(encoding="utf-8").count("<tr>") > pages.MANY, "those without scripts have all rows"
    assert path.stat().st_size < 12_000_000
