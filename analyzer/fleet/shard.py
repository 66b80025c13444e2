"""Some models -> their tables, read in a process that is watched: what every engine calls, on whatever machine."""

from __future__ import annotations

import atexit
import pickle
import queue
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec

from analyzer.errors import OnnxLedgerError
from analyzer.fleet.columns import make_tables
from analyzer.fleet.reading import Rows, error_rows
from analyzer.fleet.record import FleetSettings, Tables, Wanted
from analyzer.process.child import TICK, Child
from analyzer.process.collector import uncollected
from analyzer.process.memory import own_nbytes
from analyzer.process.workers import Died
from analyzer.version import version

__all__ = ["dismiss_readers", "survey_shard"]

_SERVE = "from analyzer.fleet.reading import serve; serve()"

_USUAL = 300 << 20
"""Bytes of memory above which a process is replaced by a new one once its model is read."""


def survey_shard(wanted: Sequence[Wanted], settings: FleetSettings) -> Tables:
    """The tables of some models, in their order; one that hangs, or ends its reader, is a row with its error.

    The process that reads them is kept for the next call, so that its imports are paid once.

    Raises:
        OnnxLedgerError: no process can be started, or another version of onnxledger asks.
    """
    if settings.version != version():
        raise OnnxLedgerError(
            f"onnxledger {version()} is asked by {settings.version}; install the same version on every machine"
        )
    with _reader() as reader, uncollected():
        return make_tables([reader.read(each, settings) for each in wanted])


class _Reader:
    """A process that reads one model after the other, and its successors."""

    def __init__(self) -> None:
        self._child: Child | None = None

    def read(self, wanted: Wanted, settings: FleetSettings) -> Rows:
        if self._child is None:
            self._child = _start()
        child = self._child
        child.send(pickle.dumps((wanted, settings)))
        answer = self._wait(child, settings)
        if isinstance(answer, bytes):
            if (own_nbytes(child.pid) or 0) > _USUAL:
                self.dismiss()
            rows: Rows = msgspec.msgpack.decode(answer)
            return rows
        self._child = None
        advice = "inspect it alone, to see whether the file or a lack of memory or time is the cause"
        reason = f"the process that read it died ({answer}); {advice}"
        return error_rows(wanted.model, reason, looks=False)

    def _wait(self, child: Child, settings: FleetSettings) -> bytes | Died:
        """What it says, or why it was given up on."""
        deadline = time.monotonic() + settings.seconds
        while True:
            try:
                _, message = child.inbox.get(timeout=TICK)
            except queue.Empty:
                if time.monotonic() >= deadline:
                    return Died(child.end(), f"it took more than {settings.seconds:g} s")
                if (own_nbytes(child.pid) or 0) > settings.nbytes:
                    return Died(child.end(), f"it took more than {settings.nbytes:,} bytes of memory")
                continue
            return Died(child.end(_LAST_BREATH)) if message is None else message

    def dismiss(self) -> None:
        if self._child is not None:
            self._child.end()
            self._child = None


_LAST_BREATH = 5.0
"""Seconds that a process has to end after the last that it said."""


def _start() -> Child:
    """A process that waits for models.

    Raises:
        OnnxLedgerError: none can be started.
    """
    try:
        return Child(_SERVE)
    except OSError as error:
        raise OnnxLedgerError(
            f"no process can be started: {error.strerror or error}; free some memory, or ask for fewer --jobs"
        ) from error


_IDLE: deque[_Reader] = deque()


@contextmanager
def _reader() -> Iterator[_Reader]:
    try:
        reader = _IDLE.pop()
    except IndexError:
        reader = _Reader()
    try:
        yield reader
    except BaseException:
        reader.dismiss()  # it may be in the middle of an answer
        raise
    _IDLE.append(reader)


@atexit.register
def dismiss_readers() -> None:
    """End the processes that wait for more models."""
    while _IDLE:
        _IDLE.pop().dismiss()
