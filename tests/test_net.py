"""Every kind of report in every format equals the committed one, so unintended changes are detected."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.net.digests import compare, digest_all, load


def test_reports_are_written_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`python -m tools.net --show NAME` on both states of the code shows the difference; `make net` accepts it."""
    monkeypatch.chdir(tmp_path)

    assert compare(load(), digest_all(Path())) == []


def test_what_is_new_gone_or_other_is_reported() -> None:
    assert compare({"a": "1", "b": "1", "c": "1"}, {"a": "1", "b": "2", "d": "1"}) == [
        "differs  b",
        "gone  c",
        "new  d",
    ]
