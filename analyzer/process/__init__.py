"""Processes of onnxledger: limits on time, few runs of the garbage collector, no idle BLAS threads."""

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
"""Number of new objects after which the garbage collector runs; Python's default is 700."""

_BLAS_THREADS = ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS")
"""Variables from which OpenBLAS takes the number of its threads; the first that is set counts."""


@functools.cache
def collect_seldom() -> None:
    """Let the garbage collector run seldom, and not at exit, in a process that runs one command.

    Loading a command makes tens of thousands of objects that stay, and the end of the process frees all of them.
    """
    gc.set_threshold(_MANY_OBJECTS)
    atexit.register(_end_uncollected)


def _end_uncollected() -> None:
    """Skip the last collections, unless duckdb is loaded: nanobind reports leaked objects of it on stderr."""
    if "duckdb" not in sys.modules:
        gc.freeze()


def load_numpy() -> None:
    """Load numpy with a BLAS of one thread, for commands that multiply no large matrices.

    OpenBLAS starts a thread for each further core, and each of them spins for some 30 ms before it sleeps: CPU time
    that grows with the machine. A number of threads that the user has set is respected.
    """
    if "numpy" in sys.modules or any(name in os.environ for name in _BLAS_THREADS):
        return
    os.environ[_BLAS_THREADS[0]] = "1"
    try:
        import numpy  # noqa: F401
    finally:
        del os.environ[_BLAS_THREADS[0]]  # processes that are started later choose for themselves


def require_onnxruntime(purpose: str) -> None:
    """Raise if onnxruntime is not installed, before a process that needs it is started.

    Raises:
        MissingExtraError: it is not installed.
    """
    import importlib.util

    if importlib.util.find_spec("onnxruntime") is None:
        raise MissingExtraError("time", "onnxruntime", purpose)


@contextmanager
def uncollected() -> Iterator[None]:
    """Run the body without the garbage collector: records hold no cycles, so searching them wastes time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def within(seconds: float, message: str) -> Iterator[None]:
    """Stop the body after `seconds` of CPU time, with `message` as the error.

    Without such a clock (Windows), and outside the main thread, there is no limit.

    Raises:
        UsageError: the time is over.
    """
    import signal  # rarely needed elsewhere, and slow to import

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
