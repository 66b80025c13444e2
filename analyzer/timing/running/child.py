"""A job in a folder -> its reply beside it: the life of the process that runs onnxruntime.

Nothing else in onnxledger makes a session. What goes wrong here ends this process and not the one that asked, which
knows from the messages on stdout how far it came.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from analyzer.errors import TimingError
from analyzer.process.child import write_frame
from analyzer.timing.request import Reply
from analyzer.timing.running.devices import clocks_now, device_name, software
from analyzer.timing.running.exchange import JOB, LOG, REPLY, Job, Raised, dump_answer, load_job
from analyzer.timing.running.placement import placement_messages
from analyzer.timing.running.session import assigned_nodes, read_log
from analyzer.timing.running.work import Work

__all__ = ["answer", "serve"]

_OLDEST = (1, 23)
"""The first onnxruntime that this was tried with."""

_LARGEST_FILE = 2 << 30
"""More than the graph without its weights, a million events of a profile, or the log of a run may take."""


def serve(folder: str) -> None:
    """Read the job in the folder, do it, and leave the reply there: a `Reply`, or what an exception said."""
    stages = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print goes to the log
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _limit_files()
    place = Path(folder)

    def tell(stage: str) -> None:
        with suppress(OSError):
            write_frame(stages, json.dumps(stage).encode())

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
    work = Work(job, folder, tell)
    measured = work.measure()
    session, profile = work.session(), measured.profile
    where = job.request.provider, job.request.provider_options
    clocks = clocks_now(*where)  # before anything else, as a device slows down when it has nothing to do
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
