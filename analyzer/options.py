"""The options that several commands share: one spelling, one help text and one record for each set."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

__all__ = [
    "Bounded",
    "Grouped",
    "Judged",
    "Output",
    "Sourced",
    "bounding",
    "grouping",
    "judging",
    "randomizing",
    "reporting",
    "seeding",
    "sourcing",
    "writing",
]

_F = TypeVar("_F", bound=Callable[..., Any])
_Option = Callable[[_F], _F]


@dataclass(frozen=True, slots=True)
class Output:
    """How a report is shown."""

    style: str
    rows: int
    quiet: bool
    verbose: bool


@dataclass(frozen=True, slots=True)
class Grouped:
    """How entries are grouped."""

    by: str
    depth: int | None
    groups: tuple[str, ...]

    def check(self) -> None:
        """Find a malformed option before any work.

        Raises:
            UsageError: as said.
        """
        from analyzer.keys import ACCOUNTS, parse_keys

        self.patterns()
        if self.by != ACCOUNTS:
            parse_keys(self.by)

    def patterns(self) -> dict[str, re.Pattern[str]]:
        """The user's groups, compiled.

        Raises:
            UsageError: one is malformed.
        """
        from analyzer.group import parse_patterns

        return parse_patterns(self.groups)


@dataclass(frozen=True, slots=True)
class Judged:
    """What makes a finding count, and whether the report bears its time."""

    stamp: bool
    strict: bool
    ignore: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Bounded:
    """What is read as one model, and how much it may hold before it is refused."""

    artifact: bool
    max_objects: int | None


@dataclass(frozen=True, slots=True)
class Sourced:
    """How a SOURCE becomes a PyTorch model."""

    model_class: str | None
    trust_remote_code: bool


def _bundle(keyword: str, kind: type, *options: Callable[[Any], Any]) -> Callable[[_F], _F]:
    """A decorator that adds `options`, named like the fields of `kind`, and hands them over as one such record."""
    names = [field.name for field in dataclasses.fields(kind)]

    def decorate(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **{keyword: kind(**{name: kwargs.pop(name) for name in names})}, **kwargs)

        for option in reversed(options):
            wrapper = option(wrapper)
        return wrapper

    return decorate


reporting = _bundle(
    "output",
    Output,
    click.option(
        "--format", "style", type=click.Choice(["text", "json"]), default="text", help="Form of stdout."
    ),
    click.option(
        "-n", "rows", type=click.IntRange(0), default=20, help="Rows of long tables; 0 shows all.  [20]"
    ),
    click.option("--quiet", is_flag=True, help="Print no report and no progress; the exit code answers."),
    click.option("--verbose", is_flag=True, help="Say how each number was decided; tracebacks."),
)
"""The options of every command that prints a report."""

grouping = _bundle(
    "grouped",
    Grouped,
    click.option(
        "--by",
        default="scope",
        metavar="KEY[,KEY]",
        help="scope, block, op, dtype, role (two: a,b), or bytes alone.  [scope]",
    ),
    click.option("--depth", type=click.IntRange(1), help="Leading parts of the scope that name a group."),
    click.option(
        "--group", "groups", multiple=True, metavar="NAME=REGEX", help="A group of your own. Repeatable."
    ),
)

judging = _bundle(
    "judged",
    Judged,
    click.option("--stamp", is_flag=True, help="Put the time into the JSON report."),
    click.option("--strict", is_flag=True, help="Any finding fails (exit 1)."),
    click.option("--ignore", multiple=True, metavar="ID", help="A finding that does not count. Repeatable."),
)

bounding = _bundle(
    "bounded",
    Bounded,
    click.option("--artifact", is_flag=True, help="The models of a folder are components of one artifact."),
    click.option(
        "--max-objects",
        type=click.IntRange(1),
        metavar="N",
        help="Nodes and tensors that a model may hold.  [250000]",
    ),
)

sourcing = _bundle(
    "sourced",
    Sourced,
    click.option(
        "--class", "model_class", metavar="NAME", help="AutoModel, AutoModelForMaskedLM, BertModel, ..."
    ),
    click.option("--trust-remote-code", is_flag=True, help="Run the Python code that a hub model brings."),
)


randomizing = click.option(
    "--random-weights", is_flag=True, help="Random weights, every value different; needs no download."
)
seeding = click.option("--seed", type=int, default=0, help="Of the random weights.  [0]")


def writing(function: _F) -> _F:
    """`-o PATH` for a report."""
    path = click.Path(path_type=Path, dir_okay=False)
    text = "Also write the report here; the format follows the suffix. Repeatable."
    return click.option("-o", "outputs", type=path, multiple=True, metavar="PATH", help=text)(function)
