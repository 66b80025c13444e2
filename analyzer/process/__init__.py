"""How work is run: in processes that may die, within a time, without the garbage collector."""

from __future__ import annotations

import gc
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from analyzer.errors import UsageError

__all__ = ["uncollected", "within"]


@contextmanager
def uncollected() -> Iterator[None]:
    """Without the collector: records hold no cycles, and looking for some in them is wasted time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def within(seconds: float, message: str) -> Iterator[None]:
    """Stop the body with `message` once the process has computed for so long.

    Where there is no such clock (Windows), and outside of the main thread, the body takes what it takes.

    Raises:
        UsageError: as said.
    """
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(signum: int, frame: FrameType | None) -> None:
        raise UsageError(f"{message} (stopped after {seconds:g} seconds)")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
