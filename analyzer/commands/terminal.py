"""The process's edges: progress and messages on stderr, reports on stdout and in files."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from analyzer.commands.annotations import annotate
from analyzer.commands.options import Output, Written
from analyzer.errors import UsageError

if TYPE_CHECKING:  # these bring rich and the whole analyzer, which `--help` does not need
    from analyzer.render import Format, RenderOptions, Special
    from analyzer.report import Report

__all__ = [
    "EXIT_FINDING",
    "EXIT_NO_ANSWER",
    "check_outputs",
    "check_state_file",
    "drop",
    "drop_unwritten",
    "emit",
    "is_terminal",
    "progress",
    "refuse_inputs",
    "say",
    "stages",
    "write_files",
]

EXIT_NO_ANSWER = 2
"""The exit code of a command that could not answer."""

EXIT_FINDING = 1
"""The exit code of a command whose report has a finding."""

_NARROWEST = 80


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a person watches the stream; a process may be started without it."""
    return stream is not None and stream.isatty()


def say(message: str) -> None:
    """One line for a person, on stderr; where nobody can be told, the exit code still answers."""
    from analyzer.units import printable

    try:
        click.echo(printable(message), err=True)
    except OSError:
        drop(sys.stderr)


def drop_unwritten(stream: TextIO | None) -> None:
    """`drop` a stream that cannot write what it holds, as to a full disk; one that can goes on."""
    if stream is None:  # a process may be started without it
        return
    try:
        stream.flush()
    except OSError:
        drop(stream)


def drop(stream: TextIO) -> None:
    """Let go of what a stream holds, and of what follows.

    Without this Python complains once more while it shuts down, and since 3.13 exits with 120.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


@contextmanager
def progress(title: str, quiet: bool) -> Iterator[Callable[[int, int], None] | None]:
    """A (done, total) callback that draws a bar while stderr is a terminal; None where nobody watches."""
    if quiet or not is_terminal(sys.stderr):
        yield None
        return
    from rich.console import Console  # 0.05 s that only a terminal needs
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    from analyzer.units import printable

    # Not markup: a file may be called [bold].
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(printable(title), total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def stages(title: str, quiet: bool) -> Iterator[Callable[[str], None] | None]:
    """A callback that shows which stage is under way while stderr is a terminal; None where nobody watches."""
    if quiet or not is_terminal(sys.stderr):
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from analyzer.units import printable

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(printable(title), total=None)
        yield lambda stage: bar.update(task, description=printable(f"{title}: {stage}"))


def check_outputs(written: Written, inputs: Sequence[Path], *, report: Special | None = None) -> None:
    """Refuse, before any work, an output without a format, or one that is among what is read.

    Args:
        written: where the report is to be written.
        inputs: what is read.
        report: the class of the report that is to come, where it has formats that not every report has.

    Raises:
        UsageError: as said, or what is to stand beside it is no report, or no output has room for it.
        MissingExtraError: a format needs what is not installed.
    """
    for path in written.outputs:
        _format_of(path, report).check()
    if written.documents and not any(path.suffix == _PAGE for path in written.outputs):
        raise UsageError(f"--with {written.beside[0]}: only a page has room for it; add -o FILE{_PAGE}")
    refuse_inputs(written.outputs, [*inputs, *written.beside])


_PAGE = ".html"


def refuse_inputs(outputs: Sequence[Path], inputs: Sequence[Path]) -> None:
    """Refuse to write over what is read.

    Raises:
        UsageError: an output is among it.
    """
    for path in outputs:
        if any(_is_same(path, other) for other in inputs):
            raise UsageError(f"-o {path}: is what is read here; name another file")


def check_state_file(path: Path, inputs: Sequence[Path]) -> None:
    """Refuse, before any work, a state dict where something else is: a checkpoint cannot be had again.

    Raises:
        UsageError: it is among what is read, or a file that `recover` has not written, or its folder is not there.
    """
    from analyzer.checkpoints.statefile import PARTIAL, is_ours

    partial = path.with_name(path.name + PARTIAL)
    if any(_is_same(mine, other) for mine in (path, partial) for other in inputs):
        raise UsageError(f"-o {path}: is what is read here; name another file")
    if path.exists() and not is_ours(path):
        raise UsageError(
            f"-o {path}: is there, and recover did not write it; name another file, or move it away"
        )
    if not path.parent.is_dir():
        raise UsageError(f"-o {path}: its folder is not there")


def _is_same(path: Path, other: Path) -> bool:
    try:
        return path.resolve() == other.resolve()
    except (OSError, RuntimeError):  # links in a circle: whoever opens them says so
        return False


_NOWHERE = Written()


def emit(report: Report, output: Output, written: Written = _NOWHERE, ignore: Collection[str] = ()) -> None:
    """Write the report to stdout, and to each output in the format of its suffix.

    `ignore` has ids of findings that are no annotations.

    Everything is rendered before anything is opened, so that a failure leaves no half report. A job of GitHub Actions
    is also told what to show beside a pull request.

    Raises:
        UsageError: an output's suffix names no format, or it cannot be written.
    """
    from analyzer.render import RenderOptions, render_report

    plain = RenderOptions(rows=output.rows, verbose=output.verbose, beside=written.documents)
    files = [
        (path, _format_of(path, type(report).__name__).render(report, plain)) for path in written.outputs
    ]
    text = render_report(report, output.style, _screen_options(plain))
    write_files(files)
    if not output.quiet:
        _print(text)
        annotate(report, ignore)


def _print(text: str | bytes) -> None:
    """The report on stdout.

    Raises:
        Exit: its reader has left; click would leave with the code of a finding.
    """
    try:
        click.echo(text, nl=False)
    except BrokenPipeError:
        os.dup2(
            os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno()
        )  # nothing is flushed in vain at the end
        raise click.exceptions.Exit(EXIT_NO_ANSWER) from None


def write_files(files: Sequence[tuple[Path, str | bytes]]) -> None:
    """Write each text, or picture, to its file.

    Raises:
        UsageError: one cannot be written.
    """
    for path, content in files:
        try:
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        except OSError as error:
            raise UsageError(f"-o {path}: cannot be written: {error.strerror or error}") from error


def _format_of(path: Path, report: str | None) -> Format:
    from analyzer.render import find_format

    try:
        return find_format(path, report)
    except UsageError as error:
        raise UsageError(f"-o {error}") from error


def _screen_options(plain: RenderOptions) -> RenderOptions:
    """The terminal's width and colour, where there is one; COLUMNS and NO_COLOR are honoured."""
    on_terminal = is_terminal(sys.stdout)
    width = plain.width
    if on_terminal or "COLUMNS" in os.environ:
        import shutil

        width = max(_NARROWEST, shutil.get_terminal_size((plain.width, 24)).columns)
    color = on_terminal and not os.environ.get("NO_COLOR")
    return dataclasses.replace(plain, width=width, color=color)
