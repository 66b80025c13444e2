"""The pictures of pages in the documents, as `make screenshots` took them."""

from __future__ import annotations

from pathlib import Path

import pytest
from chromium import DESKTOP, PHONE
from PIL import Image
from screenshots import LARGEST

IMAGES = Path(__file__).parents[2] / "docs" / "images"
PAGES = ("bert", "check", "compare", "quantized", "reconcile", "survey", "time")
SIZES = {"dark": DESKTOP} | dict.fromkeys(PAGES, DESKTOP) | {f"{name}-phone": PHONE for name in PAGES}


def test_the_documents_have_these_pictures_and_no_others() -> None:
    assert {path.stem.removeprefix("html-") for path in IMAGES.glob("html-*")} == set(SIZES)


@pytest.mark.parametrize("name", SIZES)
def test_a_picture_has_its_size_and_is_small_to_fetch(name: str) -> None:
    path = IMAGES / f"html-{name}.png"

    with Image.open(path) as picture:
        assert picture.size == (SIZES[name]["width"], SIZES[name]["height"])
    assert path.stat().st_size < LARGEST
