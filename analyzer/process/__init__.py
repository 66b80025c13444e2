"""How work is run: in processes that may die, within a time, without the garbage collector or threads that wait."""

from __future__ import annotations

import atexit
import functools
import gc
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from analyzer.errors import MissingExtraError, UsageError

__all__ = ["collect_seldom", "load_numpy", "require_onnxruntime", "uncollected", "within"]

_MANY_OBJECTS = 200_000
"""Objects that come to be before the collector looks through them; Python has 700."""

_BLAS_THREADS = ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS")
"""What OpenBLAS asks for the number of its threads; the first that is set counts."""


@functools.cache
def collect_seldom() -> None:
    """Settle, for a process that answers once, that the collector seldom looks for garbage, and not at the end.

    To load a command makes tens of thousands of objects that stay, and a process that ends gives all of them back.
    """
    gc.set_threshold(_MANY_OBJECTS)
    atexit.register(_end_uncollected)


def _end_uncollected() -> None:
    """Spare the last searches, unless duckdb is loaded: of its objects nanobind tells on stderr which are left."""
    if "duckdb" not in sys.modules:
        gc.freeze()


def load_numpy() -> None:
    """Load numpy with a BLAS of one thread, for a command that multiplies no large matrices.

    OpenBLAS starts a thread for each further core, and each of them spins for some 30 ms before it sleeps: CPU time
    that grows with the machine. Whoever has said how many threads there are to be is heeded.
    """
    if "numpy" in sys.modules or any(name in os.environ for name in _BLAS_THREADS):
        return
    os.environ[_BLAS_THREADS[0]] = "1"
    try:
        import numpy  # noqa: F401
    finally:
        del os.environ[_BLAS_THREADS[0]]  # processes that are started later have their own work


def require_onnxruntime(purpose: str) -> None:
    """Find out that onnxruntime is not installed before a process is started that needs it.

    Raises:
        MissingExtraError: as said.
    """
    import importlib.util

    if importlib.util.find_spec("onnxruntime") is None:
        raise MissingExtraError("time", "onnxruntime", purpose)


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
    import signal  # of little use elsewhere, and a list of names that takes time to make

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
