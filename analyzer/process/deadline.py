"""Work that may never end, such as the search of a regex -> the same, or an error after some CPU time."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from analyzer.errors import UsageError

__all__ = ["within"]


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
