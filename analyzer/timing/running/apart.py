"""A request -> its reply, by a process of its own that has so much time and memory; its death is a sentence."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from analyzer.errors import TimingError
from analyzer.timing.request import Reply, Request
from analyzer.timing.running.exchange import JOB, LOG, REPLY, SILENT, Job, dump_job, load_answer
from analyzer.timing.running.memory import available, own_nbytes
from analyzer.timing.running.providers import binding_device, blocking_environment, missing
from analyzer.timing.running.refusals import refusal
from analyzer.units import format_bytes, printable, shorten

__all__ = ["Limits", "Progress", "run_apart"]

Progress = Callable[[str], None]
"""Called with each stage: "loading", "measuring point 2 of 5"."""

_TICK = 0.1
"""Seconds between looks at the other process, which take less than a thousandth of that."""

_SPARE = 0.1
"""The part of the memory that is there which is left to others."""

_START = (
    "import sys; sys.path[:] = {path!r}; from analyzer.timing.running.child import serve; serve({folder!r})"
)

_STOPPED = frozenset({"SIGKILL", "SIGTERM"})
"""Signals that others send; no crash."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What running a model may take."""

    seconds: float = 600.0
    """From the start of the first process to the end of the last."""
    nbytes: int | None = None
    """Of memory; None stands for nine tenths of what the machine, or this process's control group, has left."""


def run_apart(request: Request, limits: Limits, progress: Progress | None = None) -> Reply:
    """Measure what the request asks for in a process of its own.

    The graph that ran is left in `request.folder`, and nothing else, whatever happens.

    Raises:
        MissingExtraError: onnxruntime is not installed.
        TimingError: the model cannot be run, or ended the process, or took more than the limits.
    """
    _check_path(request.model)
    unwatched = own_nbytes(os.getpid()) is None
    most = None if unwatched else limits.nbytes if limits.nbytes is not None else _default_nbytes()
    deadline = time.monotonic() + limits.seconds
    blocking = blocking_environment(request.provider)
    in_turns = not blocking and _has_room_for_two(request, most)
    job = Job(request, device=binding_device(request.provider), nbytes=most, in_turns=in_turns)
    tell = progress or (lambda stage: None)
    if not blocking:
        return _warned(_run(job, limits, deadline, tell, {}), unwatched)
    # On a GPU kernels run on after their calls have returned. Waiting for each makes their times their own, but
    # stops the host from working ahead, so that whole runs are timed in a process that does not wait.
    plain = _run(replace(job, profiled=False), limits, deadline, tell, {})
    profiled = _run(replace(job, plain=False), limits, deadline, tell, blocking)
    return _warned(_join(plain, profiled), unwatched)


def _has_room_for_two(request: Request, most: int | None) -> bool:
    """Whether two sessions are to be thought of, which hold the weights each; what they take, loading will tell."""
    room = 2 << 30 if most is None else most  # that much where nobody knows
    return request.provider in _HOSTS and 2 * request.file_nbytes <= room


_HOSTS = frozenset({"CPUExecutionProvider", "DnnlExecutionProvider", "XnnpackExecutionProvider"})
"""Providers that run on the processor and compile nothing for long."""


def _warned(reply: Reply, unwatched: bool) -> Reply:
    if not unwatched:
        return reply
    message = "this system does not tell how much memory a process has, so that it was not limited"
    return replace(reply, messages=(*reply.messages, message))


def _check_path(model: str) -> None:
    try:
        model.encode()
    except UnicodeEncodeError as error:
        raise TimingError(
            f"{printable(model)}: onnxruntime opens no file whose path is not valid UTF-8; rename it"
        ) from error


def _default_nbytes() -> int | None:
    left = available()
    return None if left is None else int(left * (1 - _SPARE))


def _join(plain: Reply, profiled: Reply) -> Reply:
    """The one reply of two processes."""
    runs = zip(plain.runs, profiled.runs, strict=True)
    return replace(
        profiled,
        runs=tuple(replace(with_kernels, latency_ns=bare.latency_ns) for bare, with_kernels in runs),
        load_ms=plain.load_ms,
        peak_rss_nbytes=plain.peak_rss_nbytes,
        messages=tuple(dict.fromkeys((*plain.messages, *profiled.messages))),
        clocks=plain.clocks,
    )


def _run(job: Job, limits: Limits, deadline: float, tell: Progress, environment: Mapping[str, str]) -> Reply:
    with tempfile.TemporaryDirectory(prefix="run-", dir=job.request.folder) as name:
        folder = Path(name).resolve()
        (folder / JOB).write_text(dump_job(job), encoding="utf-8")
        child = _Child(job, limits, deadline, folder, tell)
        child.run(environment)
        reply = _reply(folder, child)
        if reply.optimized is None:
            return reply
        kept = Path(job.request.folder).resolve() / Path(reply.optimized).name
        Path(reply.optimized).replace(kept)
        return replace(reply, optimized=str(kept))


def _reply(folder: Path, child: _Child) -> Reply:
    request = child.job.request
    try:
        answer = load_answer((folder / REPLY).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TimingError(
            f"{printable(request.name or request.model)}: {child.death(folder / LOG)}"
        ) from error
    if isinstance(answer, Reply):
        return answer
    if isinstance(answer, str):
        raise TimingError(answer)
    if answer.type == "ModuleNotFoundError" and "onnxruntime" in answer.text:
        raise missing(request.provider)
    raise TimingError(refusal(request, answer, child.stage, child.job.nbytes))


@dataclass(slots=True)
class _Child:
    """The other process, from its start to its end."""

    job: Job
    limits: Limits
    deadline: float
    folder: Path
    tell: Progress
    stage: str = "starting onnxruntime"
    code: int = 0
    most: int = 0
    """The most memory of its own that it was seen with."""

    def run(self, environment: Mapping[str, str]) -> None:
        """Start it, and see to it that it has ended.

        Raises:
            TimingError: it had to be ended.
        """
        with (self.folder / LOG).open("wb") as log:
            process = self._start(log, environment)
        lines: queue.Queue[bytes | None] = queue.Queue()
        assert process.stdout is not None
        reader = threading.Thread(target=_read, args=(process.stdout, lines), daemon=True)
        try:
            reader.start()
            self._watch(process, lines)
        finally:
            _end(process)
            reader.join(timeout=1)
            for pipe in (process.stdin, process.stdout):
                if pipe is not None and not reader.is_alive():
                    pipe.close()
            self.code = process.returncode

    def _start(self, log: IO[bytes], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        # A bare interpreter: what `multiprocessing` starts would import the caller's script again. `-I` keeps it from
        # heeding the user's PYTHON variables a second time; the path is the one that this process has made of them.
        path = [str(Path(entry).absolute()) for entry in sys.path]
        program = _START.format(path=path, folder=str(self.folder))
        try:
            return subprocess.Popen(
                [sys.executable, "-I", "-c", program],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, **environment, **SILENT},
                start_new_session=True,  # it has no terminal, and gets no Ctrl-C: it ends with this process
            )
        except OSError as error:
            raise TimingError(f"no process that runs onnxruntime can be started: {error}") from error

    def _watch(self, process: subprocess.Popen[bytes], lines: queue.Queue[bytes | None]) -> None:
        """Follow it until it ends.

        Raises:
            TimingError: it takes more than it may.
        """
        while True:
            try:
                line = lines.get(timeout=_TICK)
            except queue.Empty:
                if process.poll() is not None:
                    return
            else:
                if line is None:
                    break
                self._note(line)
            self._check(process)
        while process.poll() is None:  # it has closed its stdout, and ends in a moment
            time.sleep(_TICK / 10)
            self._check(process)

    def _note(self, line: bytes) -> None:
        with suppress(ValueError):
            self.stage = str(json.loads(line))
            self.tell(self.stage)

    def _check(self, process: subprocess.Popen[bytes]) -> None:
        model = printable(self.job.request.name or self.job.request.model)
        if time.monotonic() >= self.deadline:
            raise TimingError(
                f"{model}: onnxruntime did not finish within {self.limits.seconds:g} s and was stopped while "
                f"{self.stage}; allow more with --timeout, or ask for less with --runs or --shape"
            )
        nbytes = own_nbytes(process.pid)
        self.most = max(self.most, nbytes or 0)
        if self.job.nbytes is not None and self.most > self.job.nbytes:
            raise TimingError(
                f"{model}: onnxruntime was stopped while {self.stage}, as it had {format_bytes(self.most)} of memory "
                f"and {format_bytes(self.job.nbytes)} are the limit; give smaller sizes with --shape, or run it on a "
                "machine with more memory"
            )

    def death(self, log: Path) -> str:
        """How it ended, without a reply."""
        if self.code >= 0:
            return f"the process that ran onnxruntime ended with exit code {self.code} while {self.stage}{_last(log)}"
        name = _signal(-self.code)
        told = f"onnxruntime ended with signal {-self.code} ({name}) while {self.stage}"
        if name in _STOPPED:
            return (
                f"{told}: something else ended it, such as the system for want of memory (it had "
                f"{format_bytes(self.most)}); give smaller sizes with --shape, or free some memory"
            )
        return (
            f"{told}{_last(log)}; the model makes onnxruntime crash: try --optimization none, or another version of "
            "onnxruntime"
        )


def _read(pipe: IO[bytes], lines: queue.Queue[bytes | None]) -> None:
    with suppress(OSError, ValueError):
        for line in pipe:
            lines.put(line)
    lines.put(None)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of it and of what it has started, and wait until it is gone."""
    if process.poll() is None:
        with suppress(OSError):
            if hasattr(os, "killpg"):
                os.killpg(process.pid, signal.SIGKILL)
            else:  # Windows
                process.kill()
    process.wait()


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


def _last(log: Path) -> str:
    """The last line that it wrote, which may say why."""
    with suppress(OSError), log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 4096))
        lines = [line.strip() for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()]
        if lines:
            return f": {shorten(printable(lines[-1]), 300)}"
    return ""
