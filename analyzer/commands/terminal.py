"""What a command tells whoever waits for it: its exit code, messages on stderr, bars, stages, how far a survey is."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

import click

if TYPE_CHECKING:  # what `--help` does not need
    from analyzer.fleet.record import Survey


EXIT_FINDING = 1
"""The exit code of a command whose report has a finding."""

EXIT_NO_ANSWER = 2
"""The exit code of a command that could not answer."""


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a person watches the stream; a process may be started without it."""
    return stream is not None and stream.isatty()


def say(message: str) -> None:
    """One line for a person, on stderr; where nobody can be told, the exit code still answers."""
    from analyzer.text import printable

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

    from analyzer.text import printable

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

    from analyzer.text import printable

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(printable(title), total=None)
        yield lambda stage: bar.update(task, description=printable(f"{title}: {stage}"))


@contextmanager
def watching(quiet: bool, count: Callable[[], int] | None) -> Iterator[Callable[[Survey], None] | None]:
    """A callback that shows it; None where nobody watches.

    How many models there are is counted meanwhile, where counting opens nothing.
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
