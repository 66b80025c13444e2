"""Output for the user who waits: exit codes, messages on stderr, progress bars, stages, progress of a survey."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

import click

if TYPE_CHECKING:  # `--help` does not need this
    from analyzer.fleet.record import Survey


EXIT_FINDING = 1
"""Exit code of a command whose answer is bad news, such as a finding with `--strict`."""

EXIT_NO_ANSWER = 2
"""Exit code of a command that has no answer."""


def is_terminal(stream: TextIO | None) -> bool:
    """Whether the stream is a terminal; a process may have been started without the stream."""
    return stream is not None and stream.isatty()


def print_message(message: str) -> None:
    """Print one line on stderr; if that fails, the exit code still answers."""
    from analyzer.text import printable

    try:
        click.echo(printable(message), err=True)
    except OSError:
        drop(sys.stderr)


def drop_unwritten(stream: TextIO | None) -> None:
    """Drop a stream that cannot write its buffer, for example to a full disk; leave any other as it is."""
    if stream is None:  # the process was started without it
        return
    try:
        stream.flush()
    except OSError:
        drop(stream)


def drop(stream: TextIO) -> None:
    """Discard the buffer of a stream, and all later output to it.

    Otherwise Python complains once more while it shuts down, and since 3.13 exits with 120.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


@contextmanager
def progress(title: str, quiet: bool) -> Iterator[Callable[[int, int], None] | None]:
    """Yield a (done, total) callback that draws a bar on stderr; None if quiet, or if stderr is no terminal."""
    if quiet or not is_terminal(sys.stderr):
        yield None
        return
    from rich.console import Console  # this import takes 0.05 s, and only a terminal needs it
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    from analyzer.text import printable

    # No markup: a file may be called [bold].
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
    """Yield a callback that shows the current stage on stderr; None if quiet, or if stderr is no terminal."""
    if quiet or not is_terminal(sys.stderr):
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    from analyzer.text import printable

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(printable(title), total=None)
        yield lambda stage: bar.update(task, description=printable(f"{title}: {stage}"))


@contextmanager
def watching(quiet: bool, count: Callable[[], int] | None) -> Iterator[Callable[[Survey], None] | None]:
    """Yield a callback that shows the progress of a survey on stderr; None if quiet, or if stderr is no terminal.

    If `count` is given, a thread counts the models meanwhile; callers give it only if counting opens no file.
    """
    if quiet or not is_terminal(sys.stderr):
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("reading models"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None, rate="")
        if count is not None:
            threading.Thread(target=lambda: bar.update(task, total=count()), daemon=True).start()
        start = time.monotonic()

        def tick(done: Survey) -> None:
            rate = done.read / max(time.monotonic() - start, 1e-3)
            bar.update(task, completed=done.models, rate=f"{rate:.0f}/s")

        yield tick
