"""Fixtures of the tests of fleets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def no_reader_left() -> Iterator[None]:
    """End the processes that a test has started."""
    yield
    from analyzer.fleet.reading import dismiss_readers

    dismiss_readers()
