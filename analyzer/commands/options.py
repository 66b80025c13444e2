"""Options that several commands share, with one spelling, one help text and one record for each set."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from analyzer.commands.help import OWN, complete_from, put_in_section
from analyzer.errors import UsageError
from analyzer.formats import USUAL, Special, find_printed, find_suffixes
from analyzer.records import Frozen

if TYPE_CHECKING:  # `--help` does not need these
    from analyzer.account.group.patterns import OwnGroups
    from analyzer.account.ledger import Ledger, Match, Trainability
    from analyzer.budget.config import Config

_F = TypeVar("_F", bound=Callable[..., Any])
_Option = Callable[[_F], _F]


class Output(Frozen):
    """Options for how a report is printed."""

    style: str
    rows: int
    quiet: bool
    verbose: bool


class OutputFiles(Frozen, dict=True):
    """Files that a report is also written to, and saved reports on the same page."""

    outputs: tuple[Path, ...] = ()
    beside: tuple[Path, ...] = ()
    """Saved reports that an HTML page also shows."""

    @functools.cached_property
    def documents(self) -> tuple[dict[str, Any], ...]:
        """Documents of the saved reports.

        Raises:
            UsageError: a file cannot be read, or is no report.
        """
        if not self.beside:
            return ()
        from analyzer.documents.saved import read_any_report

        return tuple(map(read_any_report, self.beside))


class GroupOptions(Frozen, dict=True):
    """Options for groups of entries: by keys, or the user's own groups."""

    by: str | None
    """Keys; None if the user gave none."""
    depth: int | None
    groups: tuple[str, ...]
    match: Match | None
    preset: str | None
    config: Path | None
    no_config: bool

    def check(self, *, of_nodes: bool = False) -> None:
        """Check options and config before any work.

        Args:
            of_nodes: whether the groups must consist of nodes.

        Raises:
            UsageError: an option is wrong, or contradicts another.
            ConfigError: the config is wrong.
        """
        from analyzer.account.group.keys import ACCOUNTS, parse_keys
        from analyzer.account.group.patterns import parse_patterns

        self._check_together()
        parse_patterns(self.groups)
        if self.preset is not None:
            from analyzer.account.group.presets import check_preset

            check_preset(self.preset)
        if self.by not in (None, ACCOUNTS):
            parse_keys(self.by, of_nodes=of_nodes)
        if not self.has_own and self.match is not None:
            raise UsageError("--match: applies only to groups of your own; give --group or --preset")

    def _check_together(self) -> None:
        options = {"--by": self.by, "--group": self.groups, "--preset": self.preset}
        given_options = [option for option, value in options.items() if value]
        if len(given_options) > 1:
            raise UsageError(f"{' and '.join(given_options)}: each defines the groups; give only one of them")
        if self.depth is not None and (self.groups or self.preset):
            raise UsageError(
                f"--depth: shortens scopes, but {given_options[0]} defines other groups; give only one of them"
            )
        if self.config is not None and self.no_config:
            raise UsageError("--config and --no-config: give only one of them")

    @functools.cached_property
    def settings(self) -> Config:
        """The project's config."""
        from analyzer.budget.config import Config, load_config

        return Config() if self.no_config else load_config(self.config)

    @property
    def has_own(self) -> bool:
        """Whether the groups are the user's own: from options, or from the config if no option gives a key or depth."""
        is_settled = bool(self.settings.groups) and self.by is None and self.depth is None
        return bool(self.groups) or self.preset is not None or is_settled

    def own_groups(self, ledger: Ledger, known: Trainability | None = None) -> OwnGroups | None:
        """Return the user's own groups of a model; None if keys group it.

        Raises:
            UsageError: no preset fits the model.
        """
        from analyzer.account.group.patterns import OwnGroups, parse_patterns

        settings = self.settings
        if self.preset is not None:
            from analyzer.account.group.presets import find_preset

            return find_preset(self.preset, ledger, known, self.match)
        match = self.match or settings.match or "all"
        if self.groups:
            return OwnGroups(parse_patterns(self.groups), match, "--group")
        return OwnGroups(settings.groups, match, settings.origin) if self.has_own else None


class FindingOptions(Frozen):
    """Options for which findings count, and whether the report has a time stamp."""

    stamp: bool
    strict: bool
    ignore: tuple[str, ...]


class ReadOptions(Frozen):
    """Options for reading a folder as one model, and for the size above which a model is refused."""

    artifact: bool
    max_objects: int | None


class SourceOptions(Frozen):
    """Options for building a PyTorch model from a SOURCE."""

    model_class: str | None
    trust_remote_code: bool


def bundle(
    keyword: str, kind: type, *options: Callable[[Any], Any], section: str = OWN
) -> Callable[[_F], _F]:
    """Return a decorator that adds `options`, named like the fields of `kind`, and passes them as one such record.

    `--help` lists them in the section.
    """
    names = [field.name for field in dataclasses.fields(kind)]

    def decorate(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **{keyword: kind(**{name: kwargs.pop(name) for name in names})}, **kwargs)

        for option in reversed(options):
            wrapper = option(wrapper)
        put_in_section(wrapper, section, len(options))
        return wrapper

    return decorate


class _Printed(click.Choice[str]):
    """Choice of the printed formats; the error for a format that only files have tells how to write one."""

    def __init__(self, report: Special | None) -> None:
        super().__init__(find_printed(report))
        self._suffixes = find_suffixes(report)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        written = self._suffixes.get(f".{value}")
        if written is not None and not written.is_printed:
            self.fail(f"{value!r} is a format for files only; write -o FILE.{value}", param, ctx)
        return super().convert(value, param, ctx)


def reporting(report: Special | None = None, rows: int = 20) -> Callable[[_F], _F]:
    """Return a decorator that adds the options of every command that prints a report."""
    return bundle(
        "output",
        Output,
        click.option(
            "--format", "style", type=_Printed(report), default=USUAL, help="Print the report in this format."
        ),
        click.option(
            "-n",
            "rows",
            type=click.IntRange(0),
            default=rows,
            metavar="N",
            help=f"Show N rows of long tables; 0 shows all.  [{rows}]",
        ),
        click.option(
            "--quiet",
            is_flag=True,
            help="Print no report and no progress; only the exit code gives the result.",
        ),
        click.option(
            "--verbose",
            "-v",
            is_flag=True,
            help="Show every part of the report, and full names; also show the traceback of an error, if it has one.",
        ),
        section="Report",
    )


def _in_section(title: str, *options: Callable[[Any], Any]) -> tuple[Callable[[Any], Any], ...]:
    """Return options that stand in a section of `--help`, even if they are added one by one."""

    def put(option: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def add(function: Any) -> Any:
            added = option(function)
            put_in_section(added, title, 1)
            return added

        return add

    return tuple(map(put, options))


def _list_presets() -> list[str]:
    from analyzer.account.group.presets import AUTO, load_presets

    return [*load_presets(), AUTO]


def _list_keys() -> list[str]:
    from analyzer.account.group.keys import ACCOUNTS, KEYS

    return [*KEYS, ACCOUNTS]


def _list_node_keys() -> list[str]:
    from analyzer.account.group.keys import NODE_KEYS

    return [*NODE_KEYS]


def _list_findings() -> list[str]:
    from analyzer.account.findings.catalog import EXPLANATIONS

    return list(EXPLANATIONS)


configuring = _in_section(
    "Groups",
    click.option(
        "--config",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Read settings, such as groups, from FILE.  [onnxledger.toml, else pyproject.toml]",
    ),
    click.option("--no-config", is_flag=True, help="Read no settings file."),
)
"""Options for the config that is read."""


def _grouping(by: str, complete: Callable[[], list[str]]) -> Callable[[_F], _F]:
    return bundle(
        "grouped",
        GroupOptions,
        click.option(
            "--by",
            metavar="KEY[,KEY]",
            shell_complete=complete_from(complete),
            help=f"{by}  [the first key that separates the model's parts]",
        ),
        click.option(
            "--depth",
            type=click.IntRange(1),
            metavar="N",
            help="Name a group by the first N parts of its scope.  [a depth that gives 3 to 20 groups]",
        ),
        click.option(
            "--group",
            "groups",
            multiple=True,
            metavar="NAME=REGEX",
            help="Define a group of your own: the tensors that REGEX matches. Repeatable.",
        ),
        click.option(
            "--match",
            type=click.Choice(["all", "first"]),
            help="If several groups match a tensor: count it in all of them, or in the first."
            "  [all; with --preset first]",
        ),
        click.option(
            "--preset",
            metavar="NAME",
            shell_complete=complete_from(_list_presets),
            help="Use the groups of a model family: bert, gpt2, llama, ..., or auto.",
        ),
        *configuring,
        section="Groups",
    )


grouping = _grouping(
    "Group by scope, block, stage, op, dtype or role, or by two of them; `bytes` alone lists every byte.",
    _list_keys,
)
grouping_nodes = _grouping("Group nodes by scope, block, stage or op, or by two of them.", _list_node_keys)
"""Options `--by` and others of a command whose groups consist of nodes."""

(stamping,) = _in_section(
    "Report", click.option("--stamp", is_flag=True, help="Put the time of this run into the JSON report.")
)


def time_stamp() -> str:
    """Return the time for `--stamp`: now, in UTC, to the second."""
    from datetime import UTC, datetime

    return datetime.now(UTC).isoformat(timespec="seconds")


def _check_ignored(_: click.Context, __: click.Parameter, ids: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse an unknown id of a finding: the user would believe it ignored, and the run would fail all the same.

    Raises:
        UsageError: no finding has this id.
    """
    if ids:
        from analyzer.account.findings.catalog import explain

        for id_ in ids:
            explain(id_, "--ignore")
    return ids


judging = bundle(
    "judged",
    FindingOptions,
    stamping,
    click.option("--strict", is_flag=True, help="Exit with 1 if there is any finding."),
    click.option(
        "--ignore",
        multiple=True,
        metavar="ID",
        callback=_check_ignored,
        shell_complete=complete_from(_list_findings),
        help="Do not let findings with this ID fail --strict or annotate CI; the report keeps them. Repeatable.",
    ),
    section="Findings",
)

bounding = bundle(
    "bounded",
    ReadOptions,
    click.option(
        "--artifact", is_flag=True, help="Treat the models of a folder as components of one artifact."
    ),
    click.option(
        "--max-objects",
        type=click.IntRange(1),
        metavar="N",
        help="Refuse a model with more than N nodes and tensors.  [250000]",
    ),
    section="Reading",
)

sourcing = bundle(
    "sourced",
    SourceOptions,
    click.option(
        "--class",
        "model_class",
        metavar="NAME",
        help="Build this class: AutoModel, AutoModelForMaskedLM, BertModel, ...  [the class that the config names]",
    ),
    click.option(
        "--trust-remote-code",
        is_flag=True,
        help="Run Python code that comes with a hub model, or that a manifest names.",
    ),
    section="PyTorch's side",
)


randomizing, seeding = _in_section(
    "PyTorch's side",
    click.option(
        "--random-weights",
        is_flag=True,
        help="Give the model random weights, all distinct; download nothing.",
    ),
    click.option("--seed", type=int, default=0, metavar="N", help="Seed of the random weights.  [0]"),
)


_PATH = click.Path(path_type=Path, dir_okay=False)

writing = bundle(
    "written",
    OutputFiles,
    click.option(
        "-o",
        "outputs",
        type=_PATH,
        multiple=True,
        metavar="PATH",
        help="Also write the report to PATH; the suffix selects the format. Repeatable.",
    ),
    click.option(
        "--with",
        "beside",
        type=_PATH,
        multiple=True,
        metavar="REPORT",
        help="Also show a saved JSON report on the .html page. Repeatable.",
    ),
    section="Report",
)
"""Options `-o PATH` and `--with REPORT`."""


def parse_size(option: str, text: str) -> int:
    """Parse a size as budgets write it, and return bytes.

    >>> parse_size("--memory-limit", "8GiB"), parse_size("--memory-limit", "1.5 GB")
    (8589934592, 1500000000)

    Raises:
        UsageError: it is no size, or 0.
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
