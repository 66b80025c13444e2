"""How far a survey is, its rate and the time that is left, on stderr while that is a terminal."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from analyzer.commands.terminal import is_terminal

if TYPE_CHECKING:  # what `--help` does not need
    from analyzer.fleet.record import Survey

__all__ = ["watching"]


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
