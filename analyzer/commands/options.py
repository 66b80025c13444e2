"""The options that several commands share: one spelling, one help text and one record for each set."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from analyzer.errors import UsageError
from analyzer.render import USUAL, Special, find_printed, find_suffixes

if TYPE_CHECKING:  # what `--help` does not need
    from analyzer.config import Config
    from analyzer.group.patterns import OwnGroups
    from analyzer.ledger import Ledger, Match, Trainability

__all__ = [
    "Bounded",
    "Grouped",
    "Judged",
    "Output",
    "Sourced",
    "Written",
    "bounding",
    "budget_reporting",
    "bundle",
    "configuring",
    "formula_reporting",
    "grouping",
    "judging",
    "parse_size",
    "randomizing",
    "reporting",
    "seeding",
    "sourcing",
    "stamping",
    "time_stamp",
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


@dataclass(frozen=True)  # no slots: the saved reports are read once and kept
class Written:
    """Where a report is written besides, and what stands beside it there."""

    outputs: tuple[Path, ...] = ()
    beside: tuple[Path, ...] = ()
    """Saved reports that an HTML page is to show too."""

    @functools.cached_property
    def documents(self) -> tuple[dict[str, Any], ...]:
        """What those reports say.

        Raises:
            UsageError: one cannot be read, or is no report.
        """
        from analyzer.saved import read_any_report

        return tuple(map(read_any_report, self.beside))


@dataclass(frozen=True)  # no slots: the config is read once and kept
class Grouped:
    """How entries are grouped: by keys, or in the user's own groups."""

    by: str | None
    """Keys; None where they were not given."""
    depth: int | None
    groups: tuple[str, ...]
    match: Match | None
    preset: str | None
    config: Path | None
    no_config: bool

    def check(self) -> None:
        """Find a malformed option or config before any work.

        Raises:
            UsageError: an option is wrong, or contradicts another.
            ConfigError: the config is.
        """
        from analyzer.group.keys import ACCOUNTS, parse_keys
        from analyzer.group.patterns import parse_patterns

        self._check_together()
        parse_patterns(self.groups)
        if self.preset is not None:
            from analyzer.group.presets import check_preset

            check_preset(self.preset)
        if self.by not in (None, ACCOUNTS):
            parse_keys(self.by)
        if not self.has_own and self.match is not None:
            raise UsageError("--match: says who has what groups of your own share; give --group or --preset")

    def _check_together(self) -> None:
        options = {"--by": self.by, "--group": self.groups, "--preset": self.preset}
        given = [option for option, value in options.items() if value]
        if len(given) > 1:
            raise UsageError(f"{' and '.join(given)}: each says what the groups are; give one of them")
        if self.depth is not None and (self.groups or self.preset):
            raise UsageError(f"--depth: cuts scopes, and {given[0]} makes other groups; give one of them")
        if self.config is not None and self.no_config:
            raise UsageError("--config and --no-config: give one of them")

    @functools.cached_property
    def settings(self) -> Config:
        """What the project's config says."""
        from analyzer.config import Config, load_config

        return Config() if self.no_config else load_config(self.config)

    @property
    def has_own(self) -> bool:
        """Whether the groups are the user's own: given here, or settled in the config and no key given here."""
        is_settled = bool(self.settings.groups) and self.by is None and self.depth is None
        return bool(self.groups) or self.preset is not None or is_settled

    def own_groups(self, ledger: Ledger, known: Trainability | None = None) -> OwnGroups | None:
        """The user's own groups of a model; None where it is grouped by keys.

        Raises:
            UsageError: no preset fits the model.
        """
        from analyzer.group.patterns import OwnGroups, parse_patterns

        settings = self.settings
        if self.preset is not None:
            from analyzer.group.presets import find_preset

            return find_preset(self.preset, ledger, known, self.match)
        match = self.match or settings.match or "all"
        if self.groups:
            return OwnGroups(parse_patterns(self.groups), match, "--group")
        return OwnGroups(settings.groups, match, settings.origin) if self.has_own else None


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


def bundle(keyword: str, kind: type, *options: Callable[[Any], Any]) -> Callable[[_F], _F]:
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


class _Printed(click.Choice[str]):
    """The formats that are printed; of one that is only written to a file, how it is."""

    def __init__(self, report: Special | None) -> None:
        super().__init__(find_printed(report))
        self._suffixes = find_suffixes(report)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        written = self._suffixes.get(f".{value}")
        if written is not None and not written.is_printed:
            self.fail(f"{value!r} is for files alone; write -o FILE.{value}", param, ctx)
        return super().convert(value, param, ctx)


def _reporting(report: Special | None = None, rows: int = 20) -> Callable[[_F], _F]:
    return bundle(
        "output",
        Output,
        click.option(
            "--format",
            "style",
            type=_Printed(report),
            default=USUAL,
            help="Form of stdout.",
        ),
        click.option(
            "-n",
            "rows",
            type=click.IntRange(0),
            default=rows,
            help=f"Rows of long tables; 0 shows all.  [{rows}]",
        ),
        click.option("--quiet", is_flag=True, help="Print no report and no progress; the exit code answers."),
        click.option(
            "--verbose",
            "-v",
            is_flag=True,
            help="All there is: roles, bytes, tensors, whole names; tracebacks.",
        ),
    )


reporting = _reporting()
"""The options of every command that prints a report."""

budget_reporting = _reporting("BudgetReport", rows=5)
"""The same where tables stand below each line."""

formula_reporting = _reporting("FormulaReport")
"""The same of a report that has mathematics."""

configuring = (
    click.option(
        "--config",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Settings, such as groups.  [onnxledger.toml, else pyproject.toml]",
    ),
    click.option("--no-config", is_flag=True, help="Read no such file."),
)
"""Which config is read."""

grouping = bundle(
    "grouped",
    Grouped,
    click.option(
        "--by",
        metavar="KEY[,KEY]",
        help="scope, block, stage, op, dtype, role (two: a,b), or bytes alone.  [the first that tells]",
    ),
    click.option("--depth", type=click.IntRange(1), help="Leading parts of the scope that name a group."),
    click.option(
        "--group", "groups", multiple=True, metavar="NAME=REGEX", help="A group of your own. Repeatable."
    ),
    click.option(
        "--match",
        type=click.Choice(["all", "first"]),
        help="Who has what several groups match.  [all; of a preset first]",
    ),
    click.option(
        "--preset", metavar="NAME", help="Groups of a model family: bert, gpt2, llama, ..., or auto."
    ),
    *configuring,
)

stamping = click.option("--stamp", is_flag=True, help="Put the time into the JSON report.")


def time_stamp() -> str:
    """What `--stamp` puts into a report: now, in UTC, to the second."""
    from datetime import UTC, datetime

    return datetime.now(UTC).isoformat(timespec="seconds")


def _check_ignored(_: click.Context, __: click.Parameter, ids: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse an id that no finding has: it would be thought to be ignored, and the run fail all the same.

    Raises:
        UsageError: as said.
    """
    if ids:
        from analyzer.findings.catalog import explain

        for id_ in ids:
            explain(id_, "--ignore")
    return ids


judging = bundle(
    "judged",
    Judged,
    stamping,
    click.option("--strict", is_flag=True, help="Any finding fails (exit 1)."),
    click.option(
        "--ignore",
        multiple=True,
        metavar="ID",
        callback=_check_ignored,
        help="A finding that does not count. Repeatable.",
    ),
)

bounding = bundle(
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

sourcing = bundle(
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


_PATH = click.Path(path_type=Path, dir_okay=False)

writing = bundle(
    "written",
    Written,
    click.option(
        "-o",
        "outputs",
        type=_PATH,
        multiple=True,
        metavar="PATH",
        help="Also write the report here; the format follows the suffix. Repeatable.",
    ),
    click.option(
        "--with",
        "beside",
        type=_PATH,
        multiple=True,
        metavar="REPORT",
        help="A saved JSON report that an .html file shows too. Repeatable.",
    ),
)
"""`-o PATH` for a report, and `--with REPORT`."""


def parse_size(option: str, text: str) -> int:
    """Bytes, as budgets write them.

    >>> parse_size("--memory-limit", "8GiB"), parse_size("--memory-limit", "1.5 GB")
    (8589934592, 1500000000)

    Raises:
        UsageError: it is no size, or nothing.
    """
    from analyzer.budget.amounts import parse_amount
    from analyzer.budget.record import Unit

    try:
        nbytes = parse_amount(text, Unit.BYTES)
    except ValueError as error:
        raise UsageError(f"{option} {error}") from error
    if not nbytes:
        raise UsageError(f"{option} {text}: not a size; write it as 8GiB or 500MB")
    return nbytes
