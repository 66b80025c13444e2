"""Text that a tool measured -> its part of a page; the prose around it, which a person wrote, stays."""

from __future__ import annotations

from pathlib import Path


def write_between(page: Path, name: str, text: str) -> None:
    """Replace the text between `<!-- name -->` and `<!-- end of name -->` on a page.

    Raises:
        ValueError: the page lacks one of the marks; it stays as it is.
    """
    first, last = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before, is_begun, rest = page.read_text(encoding="utf-8").partition(first)
    _, is_ended, after = rest.partition(last)
    if not is_begun or not is_ended:
        raise ValueError(f"{page}: lacks {last if is_begun else first}")
    page.write_text(f"{before}{first}\n\n{text}\n{last}{after}", encoding="utf-8")
