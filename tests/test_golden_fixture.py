"""The fixtures of conftest.py, run in small test suites of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

GOLDEN_TEST = """
    def test_report(golden, tmp_path):
        golden("report", f"model  {tmp_path}/model.onnx\\ntorch  2.13.0+cpu\\ntotal  109,482,240\\n")

    def test_without_golden():
        pass
"""
SCRUBBED = "model  <tmp>/model.onnx\ntorch  <version>\ntotal  109,482,240\n"


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Make a suite with this project's conftest.py and one golden test, outside CI."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # each run would import all plugins again
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.delenv("ONNXLEDGER_CASES", raising=False)
    pytester.makeconftest((Path(__file__).parent / "conftest.py").read_text(encoding="utf-8"))
    pytester.makepyfile(GOLDEN_TEST)
    return pytester


def write_golden(suite: pytest.Pytester, text: str) -> None:
    (suite.path / "golden").mkdir()
    (suite.path / "golden" / "report.txt").write_text(text, encoding="utf-8")


def test_an_equal_report_passes(suite: pytest.Pytester) -> None:
    write_golden(suite, SCRUBBED)

    suite.runpytest().assert_outcomes(passed=2)


def test_another_report_fails_and_says_how_to_accept_it(suite: pytest.Pytester) -> None:
    write_golden(suite, SCRUBBED.replace("240", "241"))

    result = suite.runpytest()

    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*report.txt differs*make golden*", "*-*109,482,241*", "*+*109,482,240*"])


def test_a_report_without_a_golden_file_fails(suite: pytest.Pytester) -> None:
    result = suite.runpytest()

    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*no *golden*report.txt: make golden writes it*"])


def test_update_writes_the_scrubbed_report_and_runs_nothing_else(suite: pytest.Pytester) -> None:
    suite.runpytest("--update-golden").assert_outcomes(passed=1, deselected=1)

    assert (suite.path / "golden" / "report.txt").read_text(encoding="utf-8") == SCRUBBED
    suite.runpytest().assert_outcomes(passed=2)


def test_update_is_refused_in_ci(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")

    result = suite.runpytest("--update-golden")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--update-golden is refused where CI is set*"])
    assert not (suite.path / "golden").exists()


@pytest.mark.parametrize(
    ("text", "scrubbed"),
    [
        ("onnxledger 0.1.0", "onnxledger <version>"),
        ("onnx 1.23.2, torch 2.13.0+cpu.", "onnx <version>, torch <version>."),
        ("v 2.0.0rc1 0.2.0.dev3", "v <version> <version>"),
        ("encoder.layer.0.1.2.weight", "encoder.layer.0.1.2.weight"),
        ("0.1.2.weight", "0.1.2.weight"),
        ("opset 18, 417.64 MiB, 109,482,240", "opset 18, 417.64 MiB, 109,482,240"),
    ],
)
def test_versions_are_scrubbed_and_names_and_numbers_are_not(
    suite: pytest.Pytester, text: str, scrubbed: str
) -> None:
    write_golden(suite, scrubbed)
    suite.makepyfile(f"def test_report(golden): golden('report', {text!r})")

    suite.runpytest().assert_outcomes(passed=1)


def test_external_cases_are_found_by_the_environment_or_skipped(
    suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite.makepyfile("def test_cases(shared): assert (shared / 'here').exists()")
    cases = suite.mkdir("cases")
    (cases / "here").touch()

    monkeypatch.setenv("ONNXLEDGER_CASES", str(cases))
    suite.runpytest().assert_outcomes(passed=1)

    monkeypatch.setenv("ONNXLEDGER_CASES", str(suite.path / "nowhere"))
    suite.runpytest().assert_outcomes(skipped=1)
