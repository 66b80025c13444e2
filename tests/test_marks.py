"""Tools that measure write between the marks of a page, and leave the prose around them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.suite.marks import write_between


def test_text_between_the_marks_is_replaced_and_the_prose_stays(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n\n<!-- x -->\n\nold\n\n<!-- end of x -->\n\nafter\n", encoding="utf-8")

    write_between(page, "x", "new\n")

    assert page.read_text(encoding="utf-8") == ("before\n\n<!-- x -->\n\nnew\n\n<!-- end of x -->\n\nafter\n")


@pytest.mark.parametrize("text", ["prose\n", "<!-- x -->\nprose\n", "<!-- end of x -->\nprose\n"])
def test_a_page_without_both_marks_is_refused_and_stays(text: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")

    with pytest.raises(ValueError, match=r"page\.md: lacks <!-- (end of )?x -->"):
        write_between(page, "x", "new\n")

    assert page.read_text(encoding="utf-8") == text
