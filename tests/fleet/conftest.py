"""What the tests of fleets share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def no_reader_left() -> Iterator[None]:
    """Processes that a test has started end with it."""
    yield
    from analyzer.fleet.reading import dismiss_readers

    dismiss_readers()
