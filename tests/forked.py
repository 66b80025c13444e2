"""A program that a `Child` runs -> the same program in a copy of one process that has its imports done.

A new process for each question spends most of its time on imports. If a test uses `forked_children`, each process is
still separate, with its own streams, environment and session, and a child of its caller that can be killed and waited
for; but it is a copy. The other tests of each folder, above all in `tests/timing` and `tests/fleet`, check that bare
interpreters start and end well.

Run as a program, this is the process that is copied.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import gc
import importlib
import io
import json
import os
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

__all__ = ["Forking"]

IMPORTED = (
    "onnx.shape_inference",
    "onnxruntime",
    "analyzer.read.inferred",
    "analyzer.timing.running.child",
    "analyzer.timing.running.planned",
    "analyzer.timing.running.traced",
    "analyzer.verify.serving",
)
_SUBREAPER = 36
"""Option of `prctl`: processes below this one that lose their parent become its children."""
_STREAMS = 8
"""Most streams that are passed to one process."""


class Forking:
    """The part of module `subprocess` that a `Child` uses; processes are copies of one that the first call starts."""

    PIPE = subprocess.PIPE
    TimeoutExpired = subprocess.TimeoutExpired

    def __init__(self) -> None:
        self._server: subprocess.Popen[bytes] | None = None
        self._calls: socket.socket | None = None

    def Popen(self, command: list[str], **how: Any) -> _Copy:  # noqa: N802
        sys.audit("subprocess.Popen", command[0], command, None, how["env"])
        if self._calls is None:
            self._calls, theirs = socket.socketpair()
            with theirs:
                place = theirs.fileno()
                self._server = subprocess.Popen([sys.executable, __file__, str(place)], pass_fds=[place])
        return _Copy(self._calls, command, **how)

    def end(self) -> None:
        if self._calls is not None and self._server is not None:
            self._calls.close()
            self._server.wait()


class _Copy:
    """The part of a `subprocess.Popen` that a `Child` uses."""

    def __init__(
        self,
        server: socket.socket,
        command: list[str],
        *,
        env: Mapping[str, str],
        stderr: IO[bytes] | None,
        stdin: int,
        stdout: int,
        start_new_session: bool,
        pass_fds: Sequence[int],
    ) -> None:
        assert command[:-1] == [sys.executable, "-I", "-c"]
        assert (stdin, stdout, start_new_session) == (subprocess.PIPE, subprocess.PIPE, True)
        read, self.stdin = _pipe("wb")
        written, self.stdout = _pipe("rb")
        call = json.dumps([command[-1], dict(env), str(Path.cwd()), [0, 1, 2, *pass_fds]]).encode()
        with _adopting():
            streams = [read, written, 2 if stderr is None else stderr.fileno(), *pass_fds]
            socket.send_fds(server, [len(call).to_bytes(8, "big")], streams)
            server.sendall(call)
            self.pid = int.from_bytes(server.recv(8), "big")
        for stream in streams[:2]:
            os.close(stream)
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            found, status = os.waitpid(self.pid, os.WNOHANG)
            if found:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        ends = time.monotonic() + timeout if timeout is not None else float("inf")
        while (code := self.poll()) is None:
            if time.monotonic() >= ends:
                raise subprocess.TimeoutExpired("a copy", timeout or 0.0)
            time.sleep(0.001)
        return code


def _pipe(ours: str) -> tuple[int, io.BufferedIOBase]:
    """Return the end for the process, and ours: "wb" to write, "rb" to read."""
    read, written = os.pipe()
    if ours == "wb":
        return read, open(written, "wb")  # noqa: PTH123
    return written, open(read, "rb")  # noqa: PTH123


@contextlib.contextmanager
def _adopting() -> Iterator[None]:
    """Make this process the parent of descendants whose parent ends in the meantime."""
    library = ctypes.CDLL(None)
    library.prctl(_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        library.prctl(_SUBREAPER, 0, 0, 0, 0)


def serve(number: int) -> None:
    """Start a copy for each call, until the caller closes the socket."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    for name in IMPORTED:
        with contextlib.suppress(ImportError):  # an extra that is not installed: the program reports it
            importlib.import_module(name)
    gc.freeze()
    with socket.socket(fileno=number) as calls:
        while True:
            length, streams, _, _ = socket.recv_fds(calls, 8, _STREAMS)
            if not length:
                return
            with calls.makefile("rb", buffering=0) as rest:
                call = b""
                while len(call) < int.from_bytes(length, "big"):
                    call += rest.read(int.from_bytes(length, "big") - len(call)) or b""
            exit_reader, exit_writer = os.pipe()
            between = os.fork()
            if between == 0:
                between, copy = os.getpid(), os.fork()
                if copy == 0:
                    for number in (calls.detach(), exit_reader, exit_writer):
                        os.close(number)
                    _be(between, streams, *json.loads(call))
                os.write(exit_writer, copy.to_bytes(8, "big"))
                os._exit(0)
            os.waitpid(between, 0)  # now the caller is the parent of the copy
            calls.sendall(os.read(exit_reader, 8))
            for stream in (*streams, exit_reader, exit_writer):
                os.close(stream)


def _be(
    between: int,
    streams: list[int],
    program: str,
    environment: dict[str, str],
    folder: str,
    numbers: list[int],
) -> None:
    """Run a program as `python -I -c` would, with these streams under these numbers; never returns."""
    code = 1
    try:
        while os.getppid() == between:  # until it is a child of the caller
            time.sleep(0.0005)
        os.setsid()
        apart = [fcntl.fcntl(stream, fcntl.F_DUPFD, max(*streams, *numbers) + 1) for stream in streams]
        for stream in streams:
            os.close(stream)
        for stream, number in zip(apart, numbers, strict=True):
            os.dup2(stream, number)
            os.close(stream)
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        exec(program, {"__name__": "__main__"})
        code = 0
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException:  # noqa: BLE001  it must not go on as the server
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve(int(sys.argv[1]))
