"""A job in a folder -> its reply beside it: the main part of the process that runs onnxruntime.

Only this process makes a session to time. A crash ends it and not its parent, which knows the last stage from the
messages on stdout.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from analyzer.errors import TimingError
from analyzer.model.content import Array
from analyzer.process.child import write_frame
from analyzer.process.memory import forget_peak, limit_growth, own_nbytes, peak_rss
from analyzer.records import Frozen, Mutable, replace
from analyzer.timing.inputs.arrays import as_taken, make_array
from analyzer.timing.request import (
    CPU,
    JOB,
    LOG,
    REPLY,
    Job,
    MeasuringOrder,
    Raised,
    Reply,
    Run,
    Schedule,
    dump_answer,
    load_job,
)
from analyzer.timing.running.cupti import Trace, TraceError
from analyzer.timing.running.devices import clocks_now, device_name, software
from analyzer.timing.running.measure import measure, measure_in_turns, profiled_schedule
from analyzer.timing.running.profile import Profile, read_profile
from analyzer.timing.running.session import (
    Session,
    assigned_nodes,
    check_used,
    open_session,
    placement_messages,
    read_log,
)


class Measured(Frozen):
    """Times of the runs of each point."""

    plain: Sequence[tuple[int, ...]]
    profiled: Sequence[tuple[int, ...]]
    profile: Profile | None = None
    places: Sequence[Sequence[int]] = ()
    """For each point, the indices of its profiled runs in the profile."""
    order: MeasuringOrder = "one after the other"

    def runs(self) -> tuple[Run, ...]:
        """Return the measurements of each point, with the times of kernels if there is a profile."""
        profile = self.profile
        if profile is None:
            return tuple(
                Run(plain, within, ()) for plain, within in zip(self.plain, self.profiled, strict=True)
            )
        return tuple(
            Run(
                latency_ns=plain,
                profiled_ns=within,
                kernels_us=tuple(profile.runs[place] for place in own),
                held_nbytes=_most(profile.held_nbytes[place] for place in own),
            )
            for plain, within, own in zip(self.plain, self.profiled, self.places, strict=True)
        )


def _most(found: Iterable[int | None]) -> int | None:
    return max((nbytes for nbytes in found if nbytes is not None), default=None)


class Work(Mutable):
    """Open resources of a job."""

    job: Job
    folder: Path
    report: Callable[[str], None]
    opened: Session | None = None
    trace: Trace | None = None
    """Trace of the device while the session profiles, if the job requests it."""
    load_ns: int = 0
    """Time to make the session of the plain runs, in nanoseconds."""
    peak_nbytes: int | None = None
    """Peak memory of loading and running the model in one session, without that of the profile."""

    def measure(self) -> Measured:
        """Make both measurements, or the requested one.

        Raises:
            TimingError: the provider did not run the model, or the profile has no room for its kernels.
        """
        job = self.job
        if job.in_turns and (measured := self._in_turns()) is not None:
            return measured
        nothing: Sequence[tuple[int, ...]] = [()] * len(job.request.points)
        measured = self._profiled() if job.profiled else Measured(nothing, nothing)
        # The same session: after profiling has ended, it runs as fast as one without profiling (measured: 20.0 against
        # 19.9 ms for BERT; 25.7 while profiling), and its weights are not needed twice.
        if job.plain:
            measured = replace(measured, plain=self._measure("measuring", job.request.schedule))
        self._note_peak()
        return measured

    def session(self) -> Session:
        """Return the session, made at first use; of two sessions, the profiling one."""
        if self.opened is None:
            self.opened = self._open(profiled=self.job.profiled)
            self.load_ns = self.opened.load_ns
            self._note_peak()
            if self.job.traced:
                self.trace = Trace()
        return self.opened

    def _open(self, *, profiled: bool) -> Session:
        job = self.job
        self.report("loading")
        limit_growth(None)
        session = open_session(job.request, self.folder, self.folder / LOG, profiled=profiled, write=profiled)
        if job.nbytes is not None and job.request.provider == CPU:
            limit_growth(job.nbytes)
        return session

    def _note_peak(self) -> None:
        self.peak_nbytes = _most((self.peak_nbytes, peak_rss()))

    # in turns

    def _in_turns(self) -> Measured | None:
        """Make both measurements with a session each; None if memory, or the room in the profile, is too small."""
        request = self.job.request
        plain, inputs = self._open(profiled=False), self._inputs()
        self.load_ns = plain.load_ns
        without = [partial(plain.inference.run, None, as_taken(arrays, plain.inference)) for arrays in inputs]
        for number, run in enumerate(without, start=1):
            self._report_point("warming up", number)
            for _ in range(request.schedule.warmup):
                run()
        self._note_peak()
        if not self._has_room():
            del plain, without
            forget_peak()
            return None
        self.opened = self._open(profiled=True)
        self.report("measuring")
        turns = measure_in_turns(
            without,
            [
                partial(self.opened.inference.run, None, as_taken(arrays, self.opened.inference))
                for arrays in inputs
            ],
            request.schedule,
            report_done=lambda done: self.report(f"measuring, {done} of {len(inputs)} points done"),
        )
        profile = self._end_profiling()
        recorded = turns.order[: len(profile.runs)]  # a profile loses events after the first million
        places = [[at for at, of in enumerate(recorded) if of == point] for point in range(len(inputs))]
        if any(len(own) < min(2, len(made)) for own, made in zip(places, turns.profiled, strict=True)):
            self.opened = None
            return None
        profiled = [made[: len(own)] for own, made in zip(places, turns.profiled, strict=True)]
        return Measured(turns.plain, profiled, profile, places, "in turns")

    def _has_room(self) -> bool:
        """Whether a second session can be loaded and run like the first one."""
        now, limit = own_nbytes(os.getpid()), self.job.nbytes
        return now is None or limit is None or now + max(now, self.peak_nbytes or 0) <= limit

    # one after the other

    def _profiled(self) -> Measured:
        """Return the times of the runs of each point, and the profile of all of them.

        A profile holds a million events and loses the rest. A model with too many kernels for that is run less often,
        in another session.
        """
        schedule = profiled_schedule(self.job.request.schedule)
        for _ in range(2):
            times = self._measure("profiling", schedule)
            profile = self._end_profiling()
            made, recorded = sum(map(len, times)) + schedule.warmup * len(times), len(profile.runs)
            if recorded >= made:
                return Measured([()] * len(times), times, profile, _places(times, schedule.warmup))
            # Runs per point: half of those that fit, because runs of a later point may have more kernels.
            share = recorded // (2 * len(times))
            if share < 2:
                break
            schedule = replace(schedule, runs=share - 1, warmup=1)
            self.opened = None
        raise TimingError(
            f"onnxruntime's profile, which holds a million events, has room for {recorded} of {made} runs only, as a "
            "run has too many kernels; give a shorter length with --shape, or fewer lengths"
        )

    def _measure(self, stage: str, schedule: Schedule) -> list[tuple[int, ...]]:
        session, times = self.session(), []
        for number, arrays in enumerate(self._inputs(), start=1):
            self._report_point(stage, number)
            times.append(measure(self._caller(session.inference, arrays), schedule))
        return times

    def _inputs(self) -> list[dict[str, Array]]:
        request = self.job.request
        return [
            {feed.name: make_array(feed, request.seed, request.npz) for feed in feeds}
            for feeds in request.points
        ]

    def _caller(self, inference: Any, arrays: dict[str, Array]) -> Callable[[], object]:
        options = dict(self.job.request.provider_options)
        taken = as_taken(arrays, inference)
        if self.job.device is None or any(
            isinstance(each, list) or each.dtype.kind == "O" for each in taken.values()
        ):
            return partial(inference.run, None, taken)  # no device has texts, or lists
        return _bound(inference, arrays, self.job.device, int(options.get("device_id", 0)))

    # both

    def _report_point(self, stage: str, number: int) -> None:
        count = len(self.job.request.points)
        self.report(stage if count == 1 else f"{stage} point {number} of {count}")

    def _end_profiling(self) -> Profile:
        """Return the profile, with the activities of the device.

        Raises:
            TimingError: the provider did not run the model.
            TraceError: too many activities of the device belong to no kernel.
        """
        inference = self.session().inference
        activities = None if self.trace is None else self.trace.end(inference.get_profiling_start_time_ns())
        path = Path(inference.end_profiling())
        self.report("reading the profile")
        try:
            profile = read_profile(path, activities)
        finally:
            path.unlink()
            forget_peak()  # until it was written, the profile took three kilobytes for each call of a kernel
        check_used(self.job.request.provider, profile.kernels)
        if profile.unassigned_share > _FEW_STRAYS:
            raise TraceError(f"{profile.unassigned_share:.1%} of the device's work belongs to no kernel")
        return profile


_FEW_STRAYS = 0.02
"""Largest share of a device's time that may belong to no kernel; beyond it, its clock does not time the kernels."""


def _places(times: Sequence[Sequence[int]], warmup: int) -> list[range]:
    """Return the indices of each point's runs among all profiled runs; a warm-up precedes the runs of each point."""
    places, position = [], 0
    for own in times:
        places.append(range(position + warmup, position + warmup + len(own)))
        position = places[-1].stop
    return places


_HOST = "cpu"
"""Memory of the host, as I/O binding names it."""


def _bound(inference: Any, arrays: dict[str, Array], device: str, number: int) -> Callable[[], None]:
    """Return a function that runs with inputs on the device, and leaves outputs there, so that no copy is timed."""
    import onnxruntime

    make = onnxruntime.OrtValue.ortvalue_from_numpy
    values = {name: make(array, device, number) for name, array in arrays.items()}
    binding = inference.io_binding()
    for name, value in values.items():
        binding.bind_ortvalue_input(name, value)
    for output in inference.get_outputs():
        binding.bind_output(output.name, *((_HOST, 0) if "string" in output.type else (device, number)))
    binding.synchronize_inputs()

    def run(inputs: object = values) -> None:  # a binding does not keep its inputs alive
        inference.run_with_iobinding(binding)
        binding.synchronize_outputs()

    return run


_OLDEST = (1, 23)
"""Oldest supported version of onnxruntime, the first that was tested."""

_LARGEST_FILE = 2 << 30
"""Upper limit on bytes of the graph without its weights, of a profile of a million events, or of the log of a run."""


def serve(folder: str) -> None:
    """Read the job in the folder, do it, and write the reply there: a `Reply`, or the message of an exception."""
    stages = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of libraries goes to the log
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _limit_files()
    place = Path(folder)

    def report(stage: str) -> None:
        with suppress(OSError):
            write_frame(stages, json.dumps(stage).encode())

    try:
        job = load_job((place / JOB).read_text(encoding="utf-8"))
        answered = dump_answer(answer(job, place, report))
    except TimingError as error:
        answered = dump_answer(str(error))
    except Exception as error:  # noqa: BLE001  onnxruntime's exceptions have no common base class
        answered = dump_answer(Raised(type(error).__name__, str(error), _version()))
    (place / REPLY).write_text(answered, encoding="utf-8")
    os._exit(0)  # the destructors of a session may take long, or crash


def _end_with_parent() -> None:
    """End with the parent: stdin is a pipe without writes, which closes when the parent ends in any way."""
    while os.read(0, 1):
        pass
    os._exit(1)


def _limit_files() -> None:
    try:
        import resource
    except ImportError:  # Windows
        return
    for limit, most in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, _LARGEST_FILE)):
        with suppress(OSError, ValueError):  # the limit is lower already
            resource.setrlimit(limit, (most, resource.getrlimit(limit)[1]))


def _version() -> str:
    return str(getattr(sys.modules.get("onnxruntime"), "__version__", ""))


def answer(job: Job, folder: Path, report: Callable[[str], None]) -> Reply:
    """Measure a job, and report the beginning of each stage.

    Raises:
        TimingError: the provider did not run the model, or the profile has no room for its kernels.
        Exception: the exceptions of onnxruntime.
    """
    report("starting onnxruntime")
    _check_version()
    work = Work(job, folder, report)
    measured = work.measure()
    session, profile = work.session(), measured.profile
    where = job.request.provider, job.request.provider_options
    clocks = clocks_now(*where)  # before anything else, because an idle device slows down
    return Reply(
        runs=measured.runs(),
        kernels=() if profile is None else profile.kernels,
        kernel_clock="host" if profile is None else profile.clock,
        providers=tuple(session.inference.get_providers()),
        optimized=None if session.optimized is None else str(session.optimized),
        load_ms=work.load_ns / 1e6,
        peak_rss_nbytes=work.peak_nbytes,
        messages=placement_messages(read_log(folder / LOG)),
        device=device_name(*where),
        versions=software(sys.modules["onnxruntime"], *where),
        clocks=clocks,
        assigned=assigned_nodes(session, job.request.provider),
        order=measured.order,
    )


def _check_version() -> None:
    import onnxruntime

    version = tuple(int(part) for part in onnxruntime.__version__.split(".")[:2])
    if version < _OLDEST:
        raise TimingError(
            f"onnxruntime {onnxruntime.__version__} is too old, as {'.'.join(map(str, _OLDEST))} is the oldest that "
            "is supported: pip install --upgrade onnxruntime"
        )
