"""A request -> its reply, by a process of its own that has so much time and memory; its death is a sentence."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from analyzer.errors import TimingError
from analyzer.process.child import Child, Limits, OverMemoryError, OverTimeError
from analyzer.process.memory import available, own_nbytes
from analyzer.timing.request import Reply, Request
from analyzer.timing.running.exchange import JOB, LOG, REPLY, SILENT, Job, dump_job, load_answer
from analyzer.timing.running.providers import binding_device, blocking_environment, missing
from analyzer.timing.running.refusals import refusal
from analyzer.units import format_bytes, printable, shorten

__all__ = ["Limits", "Progress", "run_apart"]

Progress = Callable[[str], None]
"""Called with each stage: "loading", "measuring point 2 of 5"."""

_SPARE = 0.1
"""The part of the memory that is there which is left to others."""

_START = "from analyzer.timing.running.child import serve; serve({folder!r})"

_STOPPED = frozenset({"SIGKILL", "SIGTERM"})
"""Signals that others send; no crash."""


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
        child = _Measuring(job, limits, deadline, folder, tell)
        child.run(environment)
        reply = _reply(folder, child)
        if reply.optimized is None:
            return reply
        kept = Path(job.request.folder).resolve() / Path(reply.optimized).name
        Path(reply.optimized).replace(kept)
        return replace(reply, optimized=str(kept))


def _reply(folder: Path, child: _Measuring) -> Reply:
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
class _Measuring:
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
        """Start it, follow it, and see to it that it has ended.

        Raises:
            TimingError: it could not be started, or had to be ended.
        """
        program = _START.format(folder=str(self.folder))
        with (self.folder / LOG).open("wb") as log:
            try:
                child = Child(program, log=log, environment={**environment, **SILENT})
            except OSError as error:
                raise TimingError(f"no process that runs onnxruntime can be started: {error}") from error
        try:
            while (said := child.receive(self.deadline, self.job.nbytes)) is not None:
                with suppress(ValueError):
                    self.stage = str(json.loads(said))
                    self.tell(self.stage)
        except OverTimeError:
            raise TimingError(
                f"{self._model}: onnxruntime did not finish within {self.limits.seconds:g} s and was stopped while "
                f"{self.stage}; allow more with --timeout, or ask for less with --runs or --shape"
            ) from None
        except OverMemoryError:
            raise TimingError(
                f"{self._model}: onnxruntime was stopped while {self.stage}, as it had {format_bytes(child.most)} of "
                f"memory and {format_bytes(self.job.nbytes or 0)} are the limit; give smaller sizes with --shape, or "
                "run it on a machine with more memory"
            ) from None
        finally:
            self.code = child.end()
            self.most = child.most

    @property
    def _model(self) -> str:
        return printable(self.job.request.name or self.job.request.model)

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
