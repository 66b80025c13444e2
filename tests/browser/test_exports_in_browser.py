"""The HTML reports of BERT and ALBERT, from full-size exports, in headless Chromium."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import chromium
import documents
import inquiries
import journeys
import pytest
from playwright.sync_api import expect
from reader import Reader
from samples import sampled

pytestmark = [pytest.mark.browser, pytest.mark.export, pytest.mark.slow]

MODELS = ("bert", "albert")
COUNTS = {"bert": "109,482,240", "albert": "11,683,584"}
Made = tuple[Path, dict[str, Any]]


@pytest.fixture(scope="module")
def make(workplace: Path) -> Callable[[str, str], Made]:
    """`make(name, command)`: the page of a command, and its document; each is made once."""
    made: dict[tuple[str, str], Made] = {}

    def page(name: str, command: str) -> Made:
        if (name, command) not in made:
            path = workplace / f"{name}-{command.partition(' ')[0]}.html"
            data = path.with_suffix(".json")
            documents.run(f"onnxledger {command} --quiet -o {path} -o {data}", workplace)
            made[name, command] = path, json.loads(data.read_text(encoding="utf-8"))
        return made[name, command]

    return page


@pytest.fixture(params=sampled(MODELS, ["bert"]))
def inspected(request: pytest.FixtureRequest, make: Callable[[str, str], Made]) -> Made:
    """Return the page and the document of `inspect` for each."""
    return make(request.param, f"inspect build/demo/{request.param}/model.onnx")


def test_the_page_says_the_published_count(
    visit: chromium.Visitor, inspected: Made, request: pytest.FixtureRequest
) -> None:
    page = visit(inspected[0]).page

    count = COUNTS[request.node.callspec.params["inspected"]]
    expect(page.locator("dl.tiles .value").first).to_have_text(count)
    assert inquiries.find_nameless(page) == []
    assert inquiries.find_duplicate_ids(page) == []
    assert inquiries.find_pale_text(page) == []
    assert not inquiries.is_wide(visit(inspected[0], size=chromium.PHONE).page)


def test_a_click_enters_the_encoder(visit: chromium.Visitor, inspected: Made) -> None:
    journeys.enter_groups(visit, *inspected)

    assert Reader(visit(inspected[0]).page).enter_largest() == ["all", "encoder"]


def test_its_tensors_are_sorted(visit: chromium.Visitor, inspected: Made) -> None:
    journeys.sort_tensors(visit, *inspected)

    reader = Reader(visit(inspected[0]).page)
    reader.sort("Tensors", "parameters")
    assert reader.column("Tensors", "tensor")[0] == "embeddings.word_embeddings.weight"


def test_its_tensors_are_searched(visit: chromium.Visitor, inspected: Made) -> None:
    journeys.search_tensors(visit, *inspected, "attention")


def test_the_page_turns_dark(visit: chromium.Visitor, inspected: Made) -> None:
    journeys.turn_dark(visit, inspected[0])


def test_the_page_is_printed(visit: chromium.Visitor, inspected: Made) -> None:
    journeys.print_page(visit, *inspected)


@pytest.mark.parametrize("name", sampled(MODELS, ["bert"]))
def test_the_bridge_is_a_waterfall_and_a_table(
    visit: chromium.Visitor, make: Callable[[str, str], Made], name: str
) -> None:
    path, document = make(name, f"reconcile build/demo/{name}/model.onnx")
    page = visit(path).page

    waterfall = page.locator("figure.chart-waterfall")
    assert inquiries.count_colours(waterfall.locator("canvas")) > 10
    lines = [row["line"] for row in document["bridge"] if row["tensors"]]
    shown = page.get_by_role("region", name="Bridge").locator("tbody td:first-child").all_inner_texts()
    assert set(lines) <= set(shown)


def test_both_stand_side_by_side(visit: chromium.Visitor, make: Callable[[str, str], Made]) -> None:
    sides = "build/demo/albert/model.onnx build/demo/bert/model.onnx"
    path, document = make("both", f"compare {sides}")
    page = visit(path).page

    text = page.locator("main").inner_text()
    assert all(f"{document['totals']['parameters'][side]:,}" in text for side in "ab")
    assert all(group["group"] in text for group in document["groups"])
    assert inquiries.find_pale_text(page) == []
