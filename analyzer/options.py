"""The options that several commands share, as decorators: one spelling and one help text for each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

__all__ = ["grouping", "judging", "reporting", "sourcing", "writing"]

_F = TypeVar("_F", bound=Callable[..., Any])


def reporting(function: _F) -> _F:
    """The options of every command that prints a report."""
    for option in (
        click.option("--verbose", is_flag=True, help="Say how each number was decided; tracebacks."),
        click.option("--quiet", is_flag=True, help="Print no report and no progress; the exit code answers."),
        click.option(
            "-n", "rows", type=click.IntRange(0), default=20, help="Rows of long tables; 0 shows all.  [20]"
        ),
        click.option(
            "--format", "style", type=click.Choice(["text", "json"]), default="text", help="Form of stdout."
        ),
    ):
        function = option(function)
    return function


def writing(function: _F) -> _F:
    """`-o PATH` for a report."""
    path = click.Path(path_type=Path, dir_okay=False)
    text = "Also write the report here; the format follows the suffix. Repeatable."
    return click.option("-o", "outputs", type=path, multiple=True, metavar="PATH", help=text)(function)


def grouping(function: _F) -> _F:
    """How entries are grouped."""
    for option in (
        click.option(
            "--group", "groups", multiple=True, metavar="NAME=REGEX", help="A group of your own. Repeatable."
        ),
        click.option("--depth", type=click.IntRange(1), help="Leading parts of the scope that name a group."),
        click.option(
            "--by", type=click.Choice(["scope", "op", "dtype", "role"]), default="scope", help="The key."
        ),
    ):
        function = option(function)
    return function


def judging(function: _F) -> _F:
    """What makes a finding count."""
    for option in (
        click.option(
            "--ignore", multiple=True, metavar="ID", help="A finding that does not count. Repeatable."
        ),
        click.option("--strict", is_flag=True, help="Any finding fails (exit 1)."),
        click.option("--stamp", is_flag=True, help="Put the time into the JSON report."),
    ):
        function = option(function)
    return function


def sourcing(function: _F) -> _F:
    """How a SOURCE becomes a PyTorch model."""
    for option in (
        click.option(
            "--trust-remote-code", is_flag=True, help="Run the Python code that a hub model brings."
        ),
        click.option(
            "--class", "model_class", metavar="NAME", help="AutoModel, AutoModelForMaskedLM, BertModel, ..."
        ),
    ):
        function = option(function)
    return function
