"""A job in a folder -> its reply beside it: the life of the process that runs onnxruntime.

Nothing else in onnxledger makes a session. What goes wrong here ends this process and not the one that asked, which
knows from the lines on stdout how far it came.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from analyzer.content import Array
from analyzer.errors import TimingError
from analyzer.timing.inputs.arrays import make_array
from analyzer.timing.request import Feed, Reply, Run, Schedule
from analyzer.timing.running.devices import clocks_now, device_name, software
from analyzer.timing.running.exchange import JOB, LOG, REPLY, Job, Raised, dump_answer, load_job
from analyzer.timing.running.measure import measure, profiled_schedule
from analyzer.timing.running.memory import forget_peak, limit_growth, peak_rss
from analyzer.timing.running.placement import check_used
from analyzer.timing.running.profile import Profile, read_profile
from analyzer.timing.running.providers import CPU
from analyzer.timing.running.session import Session, assigned_nodes, open_session, placement_messages

__all__ = ["answer", "serve"]

_OLDEST = (1, 23)
"""The first onnxruntime that this was tried with."""

_LARGEST_FILE = 2 << 30
"""More than the graph without its weights, a million events of a profile, or the log of a run may take."""


def serve(folder: str) -> None:
    """Read the job in the folder, do it, and leave the reply there: a `Reply`, or what an exception said."""
    stages = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)  # what libraries print goes to the log
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _limit_files()
    place = Path(folder)

    def tell(stage: str) -> None:
        with suppress(OSError):
            stages.write(f"{json.dumps(stage)}\n")
            stages.flush()

    try:
        job = load_job((place / JOB).read_text(encoding="utf-8"))
        answered = dump_answer(answer(job, place, tell))
    except TimingError as error:
        answered = dump_answer(str(error))
    except Exception as error:  # noqa: BLE001 - onnxruntime's classes have no base of their own
        answered = dump_answer(Raised(type(error).__name__, str(error), _version()))
    (place / REPLY).write_text(answered, encoding="utf-8")
    os._exit(0)  # the destructors of a session may take long, or crash


def _end_with_parent() -> None:
    """Stdin is a pipe that nobody writes to: it ends when the other process does, however that came about."""
    while os.read(0, 1):
        pass
    os._exit(1)


def _limit_files() -> None:
    try:
        import resource
    except ImportError:  # Windows
        return
    for limit, most in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, _LARGEST_FILE)):
        with suppress(OSError, ValueError):  # it is lower already
            resource.setrlimit(limit, (most, resource.getrlimit(limit)[1]))


def _version() -> str:
    return str(getattr(sys.modules.get("onnxruntime"), "__version__", ""))


def answer(job: Job, folder: Path, tell: Callable[[str], None]) -> Reply:
    """Measure what the job asks for, and say of each stage that it begins.

    Raises:
        TimingError: the provider did not run the model, or the profile has no room for its kernels.
        Exception: what onnxruntime raises.
    """
    tell("starting onnxruntime")
    _check_version()
    work = _Work(job, folder, tell)
    profiled, profile = work.profiled() if job.profiled else ([()] * len(job.request.points), None)
    # The same session: once profiling has ended it runs as fast as one that never had any, which was measured (20.0
    # against 19.9 ms of BERT; 25.7 while profiling), and its weights need not be loaded, and kept, a second time.
    plain = work.plain() if job.plain else [()] * len(job.request.points)
    session = work.session()
    where = job.request.provider, job.request.provider_options
    clocks = clocks_now(*where)  # before anything else, as a device slows down when it has nothing to do
    return Reply(
        runs=tuple(
            Run(latency_ns=latency, profiled_ns=times, kernels_us=())
            if profile is None
            else _with_kernels(Run(latency_ns=latency, profiled_ns=times, kernels_us=()), profile, own)
            for latency, times, own in zip(plain, profiled, _slices(profiled, work.warmup), strict=True)
        ),
        kernels=() if profile is None else profile.kernels,
        kernel_clock="host" if profile is None else profile.clock,
        providers=tuple(session.inference.get_providers()),
        optimized=None if session.optimized is None else str(session.optimized),
        load_ms=session.load_ns / 1e6,
        peak_rss_nbytes=work.peak(),
        messages=placement_messages(folder / LOG),
        device=device_name(*where),
        versions=software(sys.modules["onnxruntime"], *where),
        clocks=clocks,
        assigned=assigned_nodes(session, job.request.provider),
    )


def _slices(times: Sequence[Sequence[int]], warmup: int) -> list[slice]:
    """Where the runs of each point are among all runs with profiling, which have theirs after a warm-up each."""
    slices, position = [], 0
    for own in times:
        slices.append(slice(position + warmup, position + warmup + len(own)))
        position = slices[-1].stop
    return slices


def _with_kernels(run: Run, profile: Profile, own: slice) -> Run:
    held = [nbytes for nbytes in profile.held_nbytes[own] if nbytes is not None]
    return replace(run, kernels_us=profile.runs[own], held_nbytes=max(held, default=None))


def _check_version() -> None:
    import onnxruntime

    version = tuple(int(part) for part in onnxruntime.__version__.split(".")[:2])
    if version < _OLDEST:
        raise TimingError(
            f"onnxruntime {onnxruntime.__version__} is too old, as {'.'.join(map(str, _OLDEST))} is the oldest that "
            "is supported: pip install --upgrade onnxruntime"
        )


@dataclass(slots=True)
class _Work:
    job: Job
    folder: Path
    tell: Callable[[str], None]
    opened: Session | None = None
    warmup: int = 0
    loaded_nbytes: int | None = None
    """The most memory that the process had when the session was made."""

    def session(self) -> Session:
        """The session, made when it is first needed."""
        if self.opened is None:
            self.tell("loading")
            job = self.job
            self.opened = open_session(
                job.request, self.folder, self.folder / LOG, profiled=job.profiled, write=job.profiled
            )
            self.loaded_nbytes = peak_rss()
            if job.nbytes is not None and job.request.provider == CPU:
                limit_growth(job.nbytes)
        return self.opened

    def peak(self) -> int | None:
        """The most memory that the model took, loading and running it; not what its profile took."""
        return max(
            (nbytes for nbytes in (self.loaded_nbytes, peak_rss()) if nbytes is not None), default=None
        )

    def plain(self) -> list[tuple[int, ...]]:
        """The times of the runs of each point."""
        return self._measure("measuring", self.job.request.schedule)

    def profiled(self) -> tuple[list[tuple[int, ...]], Profile]:
        """The times of the runs of each point, and the profile of all of them.

        A profile holds a million events and loses the rest. What runs so many kernels is run less often, in a session
        of its own.

        Raises:
            TimingError: not even a few runs can be recorded.
        """
        schedule = profiled_schedule(self.job.request.schedule)
        for _ in range(2):
            self.warmup = schedule.warmup
            times = self._measure("profiling", schedule)
            profile = self._end_profiling()
            made, recorded = sum(map(len, times)) + self.warmup * len(times), len(profile.runs)
            check_used(self.job.request.provider, profile.kernels)
            if recorded >= made:
                return times, profile
            # The runs of each point; half of what there is room for, as those of a later one may have more kernels.
            share = recorded // (2 * len(times))
            if share < 2:
                break
            schedule = replace(schedule, runs=share - 1, warmup=1)
            self.opened = None
        raise TimingError(
            f"{recorded} of {made} runs are all that onnxruntime's profile, which holds a million events, has room "
            "for: a run has too many kernels. Give a shorter length with --shape, or fewer of them"
        )

    def _measure(self, stage: str, schedule: Schedule) -> list[tuple[int, ...]]:
        session, points = self.session(), self.job.request.points
        times = []
        for number, feeds in enumerate(points, start=1):
            self.tell(stage if len(points) == 1 else f"{stage} point {number} of {len(points)}")
            times.append(measure(self._caller(session.inference, feeds), schedule))
        return times

    def _caller(self, inference: Any, feeds: Sequence[Feed]) -> Callable[[], object]:
        request = self.job.request
        arrays = {feed.name: make_array(feed, request.seed, request.npz) for feed in feeds}
        if self.job.device is None or any(array.dtype.kind == "O" for array in arrays.values()):
            return partial(inference.run, None, arrays)  # no device has texts
        return _bound(
            inference, arrays, self.job.device, int(dict(request.provider_options).get("device_id", 0))
        )

    def _end_profiling(self) -> Profile:
        path = Path(self.session().inference.end_profiling())
        self.tell("reading the profile")
        try:
            return read_profile(path)
        finally:
            path.unlink()
            forget_peak()  # until it was written the profile took three kilobytes for each call of a kernel


_HOST = "cpu"
"""The memory of the host, as I/O binding names it."""


def _bound(inference: Any, arrays: dict[str, Array], device: str, number: int) -> Callable[[], None]:
    """A run with its inputs on the device, and its outputs left there, so that it waits for no copy from or to it."""
    import onnxruntime

    make = onnxruntime.OrtValue.ortvalue_from_numpy
    values = {name: make(array, device, number) for name, array in arrays.items()}
    binding = inference.io_binding()
    for name, value in values.items():
        binding.bind_ortvalue_input(name, value)
    for output in inference.get_outputs():
        binding.bind_output(output.name, *((_HOST, 0) if "string" in output.type else (device, number)))
    binding.synchronize_inputs()

    def run(inputs: object = values) -> None:  # which a binding does not keep alive
        inference.run_with_iobinding(binding)
        binding.synchronize_outputs()

    return run
