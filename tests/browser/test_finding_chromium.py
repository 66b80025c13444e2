"""The search for a browser to open pages in, and the message if there is none."""

from __future__ import annotations

from pathlib import Path

import chromium
import pytest

pytest_plugins = ["pytester"]

PAGE_TEST = """
    def test_page(browser):
        pass
"""


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Return a suite with the fixtures of this folder, on a machine without Chromium, outside CI."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # else each run would import all of them anew
    monkeypatch.setenv("PATH", str(pytester.path))
    monkeypatch.delenv(chromium.VARIABLE, raising=False)
    monkeypatch.delenv("CI", raising=False)
    pytester.makeconftest((Path(__file__).parent / "conftest.py").read_text(encoding="utf-8"))
    pytester.makepyfile(PAGE_TEST)
    return pytester


def executable(folder: Path, name: str) -> Path:
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_without_chromium_the_tests_of_pages_are_skipped_and_say_why(suite: pytest.Pytester) -> None:
    result = suite.runpytest("-rs")

    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(
        ["*no Chromium: none of chromium, chromium-browser, google-chrome*ONNXLEDGER_CHROMIUM*"]
    )


def test_where_ci_is_set_they_fail(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")

    result = suite.runpytest()

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*no Chromium*"])


@pytest.mark.parametrize("name", chromium.NAMES)
def test_each_of_its_names_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.delenv(chromium.VARIABLE, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    path = executable(tmp_path, name)

    assert chromium.find_chromium() == str(path)


def test_the_variable_comes_before_all_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    executable(tmp_path, chromium.NAMES[0])
    other = executable(tmp_path, "other")

    monkeypatch.setenv(chromium.VARIABLE, str(other))

    assert chromium.find_chromium() == str(other)


def test_a_mistake_in_the_variable_is_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    executable(tmp_path, chromium.NAMES[0])

    monkeypatch.setenv(chromium.VARIABLE, str(tmp_path / "absent"))

    assert chromium.find_chromium() is None
