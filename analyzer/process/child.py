"""Program -> a watched process that runs it, and ends with the process that started it.

The process is a bare interpreter: a process of `multiprocessing` would import the caller's script again. `-I` keeps it
from applying the user's PYTHON variables a second time; it gets the path that this process has made of them. It has a
session of its own, so that no Ctrl-C of a terminal reaches it; its stdin, and a lifeline beside it, close when this
process ends.
"""

from __future__ import annotations

import os
import queue
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import IO

from analyzer.process.memory import own_nbytes
from analyzer.records import Frozen

TICK = 0.1
"""Seconds between checks of a process's memory, which take less than a thousandth of that."""

_HEAD = struct.Struct("<Q")
"""Header of each message: its number of bytes."""


class Limits(Frozen):
    """Limits on running a model."""

    seconds: float = 600.0
    """Seconds from the start of the first process to the end of the last."""
    nbytes: int | None = None
    """Bytes of memory; None stands for nine tenths of the memory left in the machine or the process's control group."""


class OverTimeError(Exception):
    """A process did not finish in time."""


class OverMemoryError(Exception):
    """A process took more memory than it may."""


Inbox = queue.SimpleQueue[tuple["Child", bytes | None]]
"""Messages of processes, each with its sender; None is the last from a process."""


_FOLLOW = "from analyzer.process.child import follow; follow(%d, %r)"


def follow(parent: int, lifeline: int | None) -> None:
    """End this process soon after its parent, because a killed parent cannot end its children.

    Args:
        parent: process id of the parent.
        lifeline: a pipe without data that closes with the parent. Linux then sends a signal, which ends this process
            even while a library blocks all Python threads, as onnxruntime 1.23 does while it loads.
    """
    flag = getattr(os, "O_ASYNC", None)
    if lifeline is not None and flag is not None:
        import fcntl

        signal.signal(signal.SIGIO, signal.SIG_DFL)
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | flag)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _make_lifeline() -> tuple[int, int]:
    """Return a pipe, the child's end first; neither end has a number of a standard stream, even if those are closed."""
    import fcntl

    ends = os.pipe()
    high = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 3) for end in ends)
    for end in ends:
        os.close(end)
    return high[0], high[1]


class Child:
    """A process that runs a Python program, and its messages: frames on its stdout.

    The program reads frames from stdin, if it is sent any, and writes frames to stdout; all other output belongs on
    stderr, which goes to `log`, or to this process's own stderr. Several processes may share an `inbox`.

    Raises:
        OSError: no process can be started.
    """

    def __init__(
        self,
        program: str,
        *,
        log: IO[bytes] | None = None,
        environment: Mapping[str, str] | None = None,
        inbox: Inbox | None = None,
    ) -> None:
        path = [os.path.abspath(entry) for entry in sys.path]  # noqa: PTH100 - an entry may be no path at all
        lifeline, ours = _make_lifeline() if os.name == "posix" else (None, None)
        self._lifeline = None if ours is None else os.fdopen(ours, "wb", buffering=0)
        follow = _FOLLOW % (os.getpid(), lifeline)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-c", f"import sys; sys.path[:] = {path!r}; {follow}; {program}"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
                pass_fds=() if lifeline is None else (lifeline,),
            )
        except OSError:
            self._close_lifeline()
            raise
        finally:
            if lifeline is not None:
                os.close(lifeline)
        self.inbox: Inbox = queue.SimpleQueue() if inbox is None else inbox
        self.most = 0
        """Largest memory of its own that was observed, in bytes."""
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def code(self) -> int:
        """Its exit code after its end; the negative number of the signal that ended it."""
        return self._process.returncode or 0

    def send(self, message: bytes) -> None:
        """Send a message; if the process has just died, its end is the next message received."""
        assert self._process.stdin is not None
        with suppress(OSError):
            write_frame(self._process.stdin, message)

    def receive(self, deadline: float, most: int | None) -> bytes | None:
        """Wait for its next message, in an inbox of its own; None if it has ended.

        Args:
            deadline: time to stop waiting, by `time.monotonic()`.
            most: largest memory of its own in bytes.

        Raises:
            OverTimeError: the deadline has passed.
            OverMemoryError: it has taken more memory.
        """
        while True:
            try:
                _, message = self.inbox.get(timeout=TICK)
            except queue.Empty:
                if self._process.poll() is not None and not self._reader.is_alive() and self.inbox.empty():
                    return None  # otherwise its last message is on its way
            else:
                if message is not None:
                    self.check(deadline, most)
                    return message
                break
            self.check(deadline, most)
        while self._process.poll() is None:  # it has closed its stdout, and ends in a moment
            time.sleep(TICK / 10)
            self.check(deadline, most)
        return None

    def check(self, deadline: float, most: int | None) -> None:
        """Raise an error if it has taken more time or memory than allowed, as in `receive`."""
        if time.monotonic() >= deadline:
            raise OverTimeError
        self.most = max(self.most, own_nbytes(self.pid) or 0)
        if most is not None and self.most > most:
            raise OverMemoryError

    def end(self, seconds: float = 0.0) -> int:
        """End it and all processes that it started, by force after `seconds`; return its exit code."""
        process = self._process
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
        if process.poll() is None:
            with suppress(OSError):
                if hasattr(os, "killpg"):
                    os.killpg(process.pid, signal.SIGKILL)
                else:  # Windows
                    process.kill()
        process.wait()
        self._close_lifeline()
        self._reader.join(timeout=1)
        if not self._reader.is_alive():
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                with suppress(OSError):
                    pipe.close()
        return self.code

    def _close_lifeline(self) -> None:
        """Close the lifeline of a process that has ended, or did not start."""
        if self._lifeline is not None:
            self._lifeline.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with suppress(OSError, ValueError):
            while (message := read_frame(self._process.stdout)) is not None:
                self.inbox.put((self, message))
        self.inbox.put((self, None))


def write_frame(pipe: IO[bytes], message: bytes) -> None:
    """Write a message, with its length before it.

    Raises:
        OSError: the reader has gone.
    """
    pipe.write(_HEAD.pack(len(message)) + message)
    pipe.flush()


def read_frame(pipe: IO[bytes]) -> bytes | None:
    """Read a message; None at the end of the stream, or if the message is incomplete."""
    head = pipe.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    (length,) = _HEAD.unpack(head)
    message = pipe.read(length)
    return message if len(message) == length else None
