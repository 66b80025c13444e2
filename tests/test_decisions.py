"""The page of decisions: each has a date, and they are in order."""

from __future__ import annotations

import datetime
import re

import documents

PAGE = (documents.ROOT / "docs" / "decisions.md").read_text(encoding="utf-8")
DECISIONS = [section.partition("\n") for section in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]]


def test_decisions_are_dated_and_stand_in_the_order_of_their_dates() -> None:
    dates = [datetime.date.fromisoformat(title.partition(": ")[0]) for title, _, _ in DECISIONS]

    assert dates == sorted(dates)


def test_no_two_decisions_have_one_title() -> None:
    titles = [title.partition(": ")[2] for title, _, _ in DECISIONS]

    assert all(titles)
    assert len(set(titles)) == len(titles)
