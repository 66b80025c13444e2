"""The page of an `inspect` document, used as its reader would use it: the same for a model of any size."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import chromium
import pypdf
from playwright.sync_api import expect
from reader import Reader

__all__ = ["enter_groups", "print_page", "search_tensors", "sort_tensors", "turn_dark"]

TENSORS = "Tensors"


def enter_groups(visit: chromium.Visitor, path: Path, document: Mapping[str, Any]) -> None:
    """Click into the largest group, into a part of it, and back."""
    reader = Reader(visit(path).page)
    scopes = {tensor["scope"] for tensor in document["tensors"] if tensor["scope"]}
    assert reader.trail == ["all"]

    (_, group) = reader.enter_largest()
    assert any(scope == group or scope.startswith(f"{group}.") for scope in scopes)
    assert reader.marked == group

    deeper = reader.enter_largest()
    assert deeper[:2] == ["all", group]
    assert any(f"{scope}.".startswith(".".join(deeper[1:]) + ".") for scope in scopes)
    assert reader.marked == deeper[-1] != group

    reader.leave_to("all")
    assert reader.trail == ["all"]


def sort_tensors(visit: chromium.Visitor, path: Path, document: Mapping[str, Any]) -> None:
    """Sort by a count, both ways, and by name."""
    reader = Reader(visit(path).page)
    expected = sorted((tensor["bytes"] for tensor in document["tensors"]), reverse=True)
    shown = reader.rows(TENSORS)

    assert reader.sorted_by(TENSORS, "bytes") is None
    assert reader.sort(TENSORS, "bytes") == "descending"
    assert reader.numbers(TENSORS, "bytes") == expected[:shown]
    assert reader.sort(TENSORS, "bytes") == "ascending"
    assert reader.numbers(TENSORS, "bytes") == expected[::-1][:shown]

    assert reader.sort(TENSORS, "tensor") == "ascending"
    assert reader.sorted_by(TENSORS, "bytes") is None
    upwards = reader.column(TENSORS, "tensor")
    assert reader.sort(TENSORS, "tensor") == "descending"
    assert upwards[0] != reader.column(TENSORS, "tensor")[0]


def search_tensors(visit: chromium.Visitor, path: Path, document: Mapping[str, Any], text: str) -> None:
    """Search for part of a name, for a missing name, and for nothing."""
    reader = Reader(visit(path).page)
    total, shown = f"{len(document['tensors']):,}", reader.rows(TENSORS)
    ordered = sorted(document["tensors"], key=lambda tensor: (-tensor["stored_elements"], tensor["name"]))
    expected = [tensor for tensor in ordered if text in _text_of_row(tensor)]

    state = reader.search(TENSORS, text.upper())
    first, found = min(shown, len(expected)), f"{len(expected):,}"
    assert state == f"rows 1\N{EN DASH}{first} of {found} found, of {total}"
    assert sorted(reader.column(TENSORS, "tensor")) == sorted(map(_shown, expected[:shown]))
    (foot,) = reader.grid(TENSORS).locator("tfoot tr").all()
    assert f"{sum(tensor['bytes'] for tensor in expected):,}" in foot.locator("td").all_inner_texts()

    assert reader.search(TENSORS, "no tensor has this name") == f"nothing found, of {total}"
    assert reader.column(TENSORS, "tensor") == []
    assert reader.search(TENSORS, "") == f"rows 1\N{EN DASH}{shown} of {total}"


def _shown(tensor: Mapping[str, Any]) -> str:
    """Return the name of a tensor on the page: PyTorch's names if the file has them."""
    return ", ".join(tensor["sources"]) or str(tensor["name"])


def _text_of_row(tensor: Mapping[str, Any]) -> str:
    """Return the text of a table row, without numbers."""
    return " ".join([tensor["name"], tensor["scope"] or "", *tensor["sources"], tensor["copy_of"] or ""])


def turn_dark(visit: chromium.Visitor, path: Path) -> None:
    """Switch to dark and back, by the button and by the system's setting."""
    reader = Reader(visit(path).page)
    light, bright = reader.colours, reader.chart.locator("canvas").screenshot()

    reader.page.get_by_role("button", name="Dark", exact=True).click()
    dark, dim = reader.colours, reader.chart.locator("canvas").screenshot()
    assert light[0] != dark[0]
    assert light[1] != dark[1]
    assert bright != dim
    assert Reader(visit(path, scheme="dark").page).colours == dark

    reader.page.get_by_role("button", name="Light", exact=True).click()
    assert reader.colours == light
    assert reader.chart.locator("canvas").screenshot() == bright


def print_page(visit: chromium.Visitor, path: Path, document: Mapping[str, Any]) -> str:
    """Print the page and return the text on paper, which has totals, groups and the visible tensors."""
    visited = visit(path, scheme="dark")
    before = Reader(visited.page).colours
    file = path.with_suffix(".pdf")
    visited.page.pdf(path=file, format="A4")
    text = "\n".join(page.extract_text() for page in pypdf.PdfReader(file).pages)
    joined = "".join(text.split())

    assert f"{document['totals']['parameters']:,}" in text
    for name in [group["group"] for group in document["groups"] if group["parameters"]][:12]:
        assert name in joined
    for name in Reader(visited.page).column(TENSORS, "tensor"):
        assert name in joined
    expect(visited.page.locator("body")).to_be_visible()
    assert Reader(visited.page).colours == before
    return text
