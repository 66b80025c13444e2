"""Common steps of all commands: check the outputs, audit a model, write the report, leave with an exit code."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from analyzer.commands.annotations import annotate
from analyzer.commands.options import (
    FindingOptions,
    GroupOptions,
    Output,
    OutputFiles,
    ReadOptions,
    reporting,
    writing,
)
from analyzer.commands.terminal import (
    EXIT_FINDING,
    EXIT_NO_ANSWER,
    is_terminal,
    print_message,
    progress,
    stages,
)
from analyzer.errors import UsageError
from analyzer.process import within
from analyzer.records import Frozen, replace

if TYPE_CHECKING:  # `--help` does not need these
    from analyzer.account.ledger import Finding, Grouping, Ledger, Trainability
    from analyzer.formats import Format, RenderOptions, Special
    from analyzer.model.content import ContentMode
    from analyzer.reports import Report

SEARCH_SECONDS = 5
"""CPU time in seconds, for each model, that the user's own regexes may take."""

_PAGE = ".html"
_NARROWEST = 40


class Run(Frozen):
    """One run of a command: it prints the report, writes it to files, and ends the command."""

    output: Output
    written: OutputFiles
    report: Special | None = None
    """Class name of the report, if it has formats that not every report has."""

    @property
    def quiet(self) -> bool:
        return self.output.quiet

    def notify(self, message: str) -> None:
        """Print a message on stderr, unless `--quiet`."""
        if not self.quiet:
            print_message(message)

    def progress(self, title: str) -> AbstractContextManager[Callable[[int, int], None] | None]:
        """Return a context with a (done, total) callback that draws a bar; None without a terminal."""
        return progress(title, self.quiet)

    def stages(self, title: str) -> AbstractContextManager[Callable[[str], None] | None]:
        """Return a context with a callback that shows the current stage; None without a terminal."""
        return stages(title, self.quiet)

    def guard(self, *read: str | Path) -> None:
        """Check, before any work, that outputs have a format, and that none of them is an input.

        Raises:
            UsageError: an output fails the check, or a report of `--with` is invalid, or no output can show it.
            MissingExtraError: a format needs a package that is not installed.
        """
        written = self.written
        for path in written.outputs:
            _format_of(path, self.report).check()
        if written.documents and not any(path.suffix == _PAGE for path in written.outputs):
            raise UsageError(f"--with {written.beside[0]}: only an HTML page shows it; add -o FILE{_PAGE}")
        check_folders(written.outputs)
        refuse_inputs(written.outputs, [*map(Path, read), *written.beside])

    def audit(
        self, model: Path | str, bounded: ReadOptions | None = None, content: ContentMode | None = None
    ) -> Ledger:
        """Return the ledger of a model like `read`, and check that no output is a file that was read.

        Raises:
            UsageError: an output is such a file.
        """
        self.guard(*list_inputs(model))
        ledger = self.read(model, bounded, content)
        self.guard(*ledger.model.paths)
        return ledger

    def read(
        self, model: Path | str, bounded: ReadOptions | None = None, content: ContentMode | None = None
    ) -> Ledger:
        """Return the ledger of a model, and show a bar while reading it."""
        from analyzer.account.audit import audit_model

        limit = bounded.max_objects if bounded is not None else None
        is_artifact = bounded is not None and bounded.artifact and Path(model).is_dir()
        with self.progress(f"reading {Path(model).name or model}") as tick:
            return audit_model(model, artifact=is_artifact, content=content, max_objects=limit, progress=tick)

    def emit(self, report: Report, ignore: Collection[str] = ()) -> None:
        """Write the report to stdout, and to each output in the format of its suffix.

        All formats are rendered before any file is opened, so that a failure leaves no half report. In a job of GitHub
        Actions it also prints annotations for the pull request, except for the findings whose ids are in `ignore`.

        Raises:
            UsageError: an output's suffix names no format, or it cannot be written.
        """
        from analyzer.formats import RenderOptions, render_report

        output, written = self.output, self.written
        plain = RenderOptions(rows=output.rows, verbose=output.verbose, beside=written.documents)
        kind = type(report).__name__
        files = [(path, _format_of(path, kind).render(report, plain)) for path in written.outputs]
        text = render_report(report, output.style, screen_options(plain))
        write_files(files)
        if not self.quiet:
            print_text(text)
            annotate(report, ignore)

    def finish(
        self,
        report: Report,
        judged: FindingOptions | None = None,
        findings: Iterable[Finding] = (),
        *,
        failed: bool = False,
        answered: bool = True,
    ) -> None:
        """Emit the report, and leave with its exit code.

        Args:
            report: the answer.
            judged: whether findings fail the run, and the ids that do not count.
            findings: the findings of the answer.
            failed: whether the answer is bad news.
            answered: whether there is an answer.

        Raises:
            Exit: with 1 if the answer is bad news or a finding fails the run, with 2 if there is no answer.
        """
        ignore = judged.ignore if judged is not None else ()
        self.emit(report, ignore)
        is_strict = judged is not None and judged.strict
        if failed or (is_strict and answered and any(finding.id not in ignore for finding in findings)):
            raise click.exceptions.Exit(EXIT_FINDING)
        if not answered:
            raise click.exceptions.Exit(EXIT_NO_ANSWER)


def answering(
    report: Special | None = None, *, rows: int = 20, writes: bool = True
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds the options of every command that prints a report, and passes a `Run`.

    Args:
        report: class name of the report, if it has formats that not every report has.
        rows: default of `-n`, the rows of long tables.
        writes: whether to add `-o` and `--with` too.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, output: Output, written: OutputFiles | None = None, **kwargs: Any) -> Any:
            return function(*args, run=Run(output, written or OutputFiles(), report), **kwargs)

        shown: Callable[..., Any] = reporting(report, rows)(wrapper)
        return writing(shown) if writes else shown

    return decorate


def list_inputs(model: str | Path) -> list[Path]:
    """Return the paths that are read of a model before its files are known."""
    from analyzer.account.artifact import EXPORT_NOTE

    return [Path(model), Path(model, EXPORT_NOTE)]


def check_artifact(bounded: ReadOptions, models: Sequence[str]) -> None:
    """Refuse `--artifact` if none of the models is a folder.

    Raises:
        UsageError: none is.
    """
    if bounded.artifact and not any(Path(model).is_dir() for model in models):
        raise UsageError("--artifact: describes a single folder; name that folder and nothing else")


def group_ledger(ledger: Ledger, grouped: GroupOptions, known: Trainability | None = None) -> Grouping:
    """Return the groups that the options ask for.

    Raises:
        UsageError: the groups do not fit the model, or a regex takes too long.
    """
    from analyzer.account.group import group_by
    from analyzer.account.group.patterns import group_by_patterns

    own = grouped.own_groups(ledger, known)
    if own is None:
        return group_by(ledger, grouped.by, grouped.depth, known)
    with search_clock(own.origin):
        return group_by_patterns(ledger, own.patterns, known, match=own.match, origin=own.origin)


def with_macs(ledger: Ledger, shapes: Sequence[str]) -> Ledger:
    """Return the ledger with each node's MACs in a run at these sizes; other axes have the default sizes of `time`.

    Raises:
        UsageError: a size names no axis, or inputs cannot be made.
    """
    from analyzer.cost.macs import count_macs
    from analyzer.timing.inputs.sizes import parse_shapes

    return replace(ledger, macs=count_macs(ledger, parse_shapes(shapes)))


def search_clock(origin: object, models: int = 1) -> AbstractContextManager[None]:
    """Return a context that stops the user's own regexes after a time, because they could search forever."""
    return within(
        SEARCH_SECONDS * models, f"{origin}: a regex takes too long; write it without nested repeats"
    )


def check_folders(outputs: Iterable[Path]) -> None:
    """Refuse, before any work, to write into a missing folder.

    Raises:
        UsageError: a folder is missing.
    """
    for path in outputs:
        if not path.parent.is_dir():
            raise UsageError(f"-o {path}: its folder does not exist; create it first")


def refuse_inputs(outputs: Iterable[Path], inputs: Collection[Path]) -> None:
    """Refuse to overwrite an input.

    Raises:
        UsageError: an output is an input.
    """
    for path in outputs:
        if any(is_same(path, other) for other in inputs):
            raise UsageError(f"-o {path}: is an input of this command; name another file")


def is_same(path: Path, other: Path) -> bool:
    """Whether two paths name one file."""
    try:
        return path.resolve() == other.resolve()
    except (OSError, RuntimeError):  # links in a circle: opening the file reports them
        return False


def write_files(files: Iterable[tuple[Path, str | bytes]]) -> None:
    """Write each text or picture to its file.

    Raises:
        UsageError: a file cannot be written.
    """
    for path, content in files:
        try:
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        except OSError as error:
            raise UsageError(f"-o {path}: cannot be written: {error.strerror or error}") from error


def print_text(text: str | bytes) -> None:
    """Print the report on stdout.

    Raises:
        Exit: with 2 if the reader of a pipe has left; click would leave with 1, the code of a finding.
    """
    try:
        click.echo(text, nl=False)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python's flush at exit must not fail
        raise click.exceptions.Exit(EXIT_NO_ANSWER) from None


def screen_options(plain: RenderOptions) -> RenderOptions:
    """Return options with the width and colour of the terminal, if there is one; they honour COLUMNS and NO_COLOR."""
    on_terminal = is_terminal(sys.stdout)
    width = plain.width
    if on_terminal or "COLUMNS" in os.environ:
        import shutil

        width = max(_NARROWEST, shutil.get_terminal_size((plain.width, 24)).columns)
    color = on_terminal and not os.environ.get("NO_COLOR")
    return replace(plain, width=width, color=color, ascii=not _draws_boxes(sys.stdout))


def _draws_boxes(stream: TextIO | None) -> bool:
    """Whether the encoding of a stream can write lines, bars and middle dots."""
    try:
        "─▏█·…".encode(getattr(stream, "encoding", None) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _format_of(path: Path, report: str | None) -> Format:
    from analyzer.formats import find_format

    try:
        return find_format(path, report)
    except UsageError as error:
        raise UsageError(f"-o {error}") from error
