"""Output and warnings of third-party code -> nothing: stdout belongs to the report."""

from __future__ import annotations

import contextlib
import ctypes
import io
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator

Progress = Callable[[str], None]
"""Receiver of one line of progress; the CLI prints it to stderr."""


def silent(line: str) -> None:
    """Ignore a line of progress: the `Progress` that prints nothing."""


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Swallow prints, progress bars, warnings and log records; restore all settings on exit."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


@contextlib.contextmanager
def quiet_descriptors() -> Iterator[None]:
    """Silence native code, too, unlike `quiet`: a failing TorchScript prints whole graphs past `sys.stdout`."""
    _flush()
    try:
        saved = [(descriptor, os.dup(descriptor)) for descriptor in (1, 2)]
    except OSError:  # a process started without them needs no protection
        saved = []
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        for descriptor, _ in saved:
            os.dup2(null, descriptor)
        with quiet():
            yield
    finally:
        _flush()
        for descriptor, copy in saved:
            os.dup2(copy, descriptor)
            os.close(copy)
        os.close(null)


def _flush() -> None:
    """Empty the buffers of Python and of C, so that nothing is written after the descriptors change."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    with contextlib.suppress(OSError, TypeError, AttributeError):  # no C library under that name
        ctypes.CDLL(None).fflush(None)


@contextlib.contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Send the output of a user's own code to stderr."""
    with contextlib.redirect_stdout(sys.stderr):
        yield
