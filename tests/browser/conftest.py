"""Fixtures of the tests that open pages: the browser, and visits to pages."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import chromium
import pytest

pytest.register_assert_rewrite("journeys", "reader")


@pytest.fixture(scope="module")
def browser() -> Iterator[chromium.Visitor]:
    """Open pages. One browser serves the tests of a file: while it runs, no other event loop can run here."""
    executable = chromium.find_chromium()
    if executable is None:
        answer = pytest.fail if os.environ.get("CI") else pytest.skip
        answer(
            f"no Chromium: none of {', '.join(chromium.NAMES)} on the PATH; {chromium.VARIABLE} names another"
        )
    with chromium.visitor(executable) as visit:
        yield visit


@pytest.fixture
def visit(browser: chromium.Visitor) -> Iterator[chromium.Visitor]:
    """Open pages and, after the test, check that none complained, and that none requested more than its own file."""
    visits: list[chromium.Visit] = []

    def opened(path: Path, **how: object) -> chromium.Visit:
        visits.append(browser(path, **how))
        return visits[-1]

    yield opened
    for each in visits:
        each.context.close()
    assert [each.complaints for each in visits if each.complaints] == []
    for each in visits:
        assert len(each.requests) == 1, each.requests
        assert each.requests[0].startswith("file:///")
