"""Report -> workflow commands, by which GitHub Actions annotates a pull request with the report's problems."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:  # only GitHub Actions needs these
    from analyzer.formats.problems import Problem
    from analyzer.reports import Report

_COMMANDS = {"error": "error", "warning": "warning", "note": "notice"}
"""GitHub's name of each severity."""
_MOST = 10
"""Most annotations of each level that GitHub shows for one step."""
_LONGEST_MESSAGE = 4_000


def annotate(report: Report, ignore: Collection[str] = ()) -> None:
    """Print the report's problems as workflow commands on stderr, if this is a job of GitHub Actions.

    Args:
        report: the answer of a command.
        ignore: ids of findings to leave out.
    """
    if _is_job():
        for line in list_annotations(report, ignore):
            click.echo(line, err=True)


def annotate_error(message: str) -> None:
    """Print an error as a workflow command, if this is a job of GitHub Actions; a mistake in a config has its line."""
    if _is_job():
        place = re.match(r"(.+\.toml):(\d+): ", message)
        path, line = (place[1], int(place[2])) if place else (None, None)
        click.echo(_write("error", message, "onnxledger cannot answer", path, line), err=True)


def _is_job() -> bool:
    return os.environ.get("GITHUB_ACTIONS") == "true"


def list_annotations(report: Report, ignore: Collection[str] = ()) -> tuple[str, ...]:
    """Return a workflow command for each problem, except ignored findings.

    If a level has more than ten, its tenth tells how many more there are.
    """
    from analyzer.formats.json import to_document
    from analyzer.formats.problems import list_problems

    found = list_problems(to_document(report))
    problems = tuple(problem for problem in found if problem.rule or problem.id not in ignore)
    return tuple(line for severity in _COMMANDS for line in _annotate(problems, severity))


def _annotate(problems: tuple[Problem, ...], severity: str) -> Iterator[str]:
    from analyzer.text import format_count

    these = [problem for problem in problems if problem.severity.value == severity]
    shown = these if len(these) <= _MOST else these[: _MOST - 1]
    for problem in shown:
        yield _write(_COMMANDS[severity], problem.message or problem.id, _title(problem), problem.path)
    if len(these) > len(shown):
        rest = f"{format_count(len(these) - len(shown))} more in the report"
        yield _write(_COMMANDS[severity], rest, "onnxledger")


def _title(problem: Problem) -> str:
    if not problem.rule:
        return f"onnxledger: {problem.id}"
    failed = "over budget" if problem.is_answered else "budget not evaluated"
    return f"onnxledger: {failed}: {problem.rule['name']}"


def _write(command: str, message: str, title: str, path: str | None = None, line: int | None = None) -> str:
    r"""Return one workflow command. All text from a file is escaped: first for the log, then for the runner.

    >>> _write("error", "50 % more\n::error::x", "a, b: c", "m,1.onnx")
    '::error file=m%2C1.onnx,title=a%2C b%3A c::50 %25 more\\n\\x3a:error::x'
    >>> _write("notice", "of an address", "t", "https://host/m.onnx")
    '::notice title=t::of an address'
    """
    from analyzer.text import printable, printable_name, shorten

    is_local = path is not None and not re.match(r"[A-Za-z][\w.+-]*://", path)
    place = f"file={_escape_property(printable_name(path or ''))}," if is_local else ""
    place += f"line={line}," if line is not None else ""
    text = _escape(printable(shorten(message, _LONGEST_MESSAGE)))
    return f"::{command} {place}title={_escape_property(printable_name(title))}::{text}"


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape(text).replace(":", "%3A").replace(",", "%2C")
