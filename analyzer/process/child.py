"""A program -> a process of our own that runs it, is watched, and ends with whoever started it.

A bare interpreter: what `multiprocessing` starts would import the caller's script again. `-I` keeps it from heeding the
user's PYTHON variables a second time; its path is the one that this process has made of them. It has a session of its
own, so that no Ctrl-C of a terminal reaches it; its stdin, and a lifeline beside it, end when this process does.
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
"""Seconds between looks at the memory of a process, which take less than a thousandth of that."""

_HEAD = struct.Struct("<Q")
"""What stands before each message: how many bytes it has."""


class Limits(Frozen):
    """What running a model may take."""

    seconds: float = 600.0
    """Seconds from the start of the first process to the end of the last."""
    nbytes: int | None = None
    """Bytes of memory; None stands for nine tenths of what the machine, or this process's control group, has left."""


class OverTimeError(Exception):
    """A process did not finish in time."""


class OverMemoryError(Exception):
    """A process took more memory than it may."""


Inbox = queue.SimpleQueue[tuple["Child", bytes | None]]
"""What processes say, each message with who says it; None is the last that is heard of one."""


_FOLLOW = "from analyzer.process.child import follow; follow(%d, %r)"


def follow(parent: int, lifeline: int | None) -> None:
    """End this process soon after the one that started it: killed, that one can end nobody.

    Args:
        parent: the number of that process.
        lifeline: a pipe that nobody writes to, and that ends with that process. Linux then sends a signal, which ends
            this one also where a library keeps all threads of Python waiting, as onnxruntime 1.23 does while it loads.
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
    """A pipe, its end for the process first; neither has the number of a stream, even where those are closed here."""
    import fcntl

    ends = os.pipe()
    high = tuple(fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 3) for end in ends)
    for end in ends:
        os.close(end)
    return high[0], high[1]


class Child:
    """A process that runs a program in Python, and what it says: messages, in frames on its stdout.

    The program reads frames from stdin, if it is sent any, and writes frames to stdout; whatever else it prints belongs
    on stderr, which is `log`'s, or this process's own. Several processes may share an `inbox`.

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
            self._cut()
            raise
        finally:
            if lifeline is not None:
                os.close(lifeline)
        self.inbox: Inbox = queue.SimpleQueue() if inbox is None else inbox
        self.most = 0
        """Bytes of memory of its own, the most that it was seen with."""
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def code(self) -> int:
        """Its exit code, once it has ended; the negative number of the signal that ended it."""
        return self._process.returncode or 0

    def send(self, message: bytes) -> None:
        """Say something to it. Where it has just died, the next that is heard of it is its end."""
        assert self._process.stdin is not None
        with suppress(OSError):
            write_frame(self._process.stdin, message)

    def receive(self, deadline: float, most: int | None) -> bytes | None:
        """Wait for what it says next, in an inbox of its own; None where it has ended.

        Args:
            deadline: when to stop waiting, by `time.monotonic()`.
            most: bytes of memory that it may have.

        Raises:
            OverTimeError: the deadline has passed.
            OverMemoryError: it has more.
        """
        while True:
            try:
                _, message = self.inbox.get(timeout=TICK)
            except queue.Empty:
                if self._process.poll() is not None and not self._reader.is_alive() and self.inbox.empty():
                    return None  # else what it said last is on its way
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
        """Raise if it has taken more than it may, as `receive` says."""
        if time.monotonic() >= deadline:
            raise OverTimeError
        self.most = max(self.most, own_nbytes(self.pid) or 0)
        if most is not None and self.most > most:
            raise OverMemoryError

    def end(self, seconds: float = 0.0) -> int:
        """See to it that it and what it has started are gone, by force after so many seconds; answer its exit code."""
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
        self._cut()
        self._reader.join(timeout=1)
        if not self._reader.is_alive():
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                with suppress(OSError):
                    pipe.close()
        return self.code

    def _cut(self) -> None:
        """Close the lifeline of a process that has ended, or has never begun."""
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
        OSError: nobody reads any more.
    """
    pipe.write(_HEAD.pack(len(message)) + message)
    pipe.flush()


def read_frame(pipe: IO[bytes]) -> bytes | None:
    """Read a message; None at the end, and where one is cut off."""
    head = pipe.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    (length,) = _HEAD.unpack(head)
    message = pipe.read(length)
    return message if len(message) == length else None
