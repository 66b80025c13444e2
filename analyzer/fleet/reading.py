"""Models -> their rows in every table, read in a process that is watched: what every engine calls, on any machine."""

from __future__ import annotations

import atexit
import gc
import hashlib
import itertools
import os
import pickle
import queue
import re
import signal
import stat
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from analyzer.errors import OnnxLedgerError
from analyzer.fleet.lake import OF_MODEL, Columns, by_column, fitted, make_tables
from analyzer.fleet.record import FleetSettings, Tables, Wanted
from analyzer.model.ranges import is_url
from analyzer.process import uncollected
from analyzer.process.child import TICK, Child, read_frame, write_frame
from analyzer.process.memory import own_nbytes
from analyzer.process.workers import Died
from analyzer.records import replace
from analyzer.version import version

if TYPE_CHECKING:  # what only a survey at sizes loads
    from analyzer.timing.inputs.sizes import Shapes

Row = dict[str, Any]
Rows = Mapping[str, list[Row]]
"""Rows by the name of their table."""

_MOST_HASHED = 1 << 28
"""Bytes of an unreadable file up to which its digest is worth the time."""

_GRACE = 10
"""Seconds after which a process ends itself, if whoever watches it has gone."""


def read_rows(wanted: Wanted, settings: FleetSettings) -> Rows:
    """What the tables say of one model: always rows, never an exception.

    Of one whose files are byte for byte what they were, the row of `models` has its name and no more.
    """
    try:
        if wanted.digests and _is_same(wanted):
            return {"models": [{"model": _plain(wanted.model)}], "files": _stats(wanted)}
        with uncollected():
            return _audited(wanted.model, settings)
    except OnnxLedgerError as error:
        reason = str(error)
    except OSError as error:
        reason = f"cannot be read: {error.strerror or error}"
    except MemoryError:
        reason = "takes more memory than there is"
    except Exception as error:  # noqa: BLE001 - a defect of ours costs one row, not the others
        advice = "inspect it alone with --verbose and report it"
        reason = f"internal error: {type(error).__name__}: {error}; {advice}"
    return error_rows(wanted.model, reason)


def error_rows(model: str, reason: str, *, opens: bool = True) -> Rows:
    """The rows of a model that cannot be read, and why.

    Args:
        model: its path or URL.
        reason: one sentence, with the id of what is wrong in brackets if it has one.
        opens: whether the file is opened for its digest; else it is known again by its size and time alone.
    """
    from analyzer.account.findings.catalog import EXPLANATIONS  # which only errors need

    name = _plain(model)
    said = f"{name}: {_utf8(reason).removeprefix(f'{name}: ')}"
    files = _own_file(model, opens=opens)
    sha256 = files[0]["sha256"] if files else None
    head = {"model": name, "sha256": sha256, "etag": None}
    ids = [each for each in _ID.findall(said) if each in EXPLANATIONS]
    findings: list[Row] = [
        {**head, "id": each, "severity": "error", "message": said, "subjects": []} for each in ids[:1]
    ]
    return {
        "models": [{**head, "error": said}],
        "files": [{**row, "model": name} for row in files],
        "findings": findings,
    }


_ID = re.compile(r"\[([a-z][a-z0-9]*(?:-[a-z0-9]+)*)\]")
"""The id of a finding, as errors have it in their message."""

_GIVEN_UP = re.compile(r"\(it took more than ([\d.,e+]+) (s|bytes of memory)\)")


def may_be_read(error: str | None, settings: FleetSettings) -> bool:
    """Whether a model was given up on that may now take more than it had."""
    found = _GIVEN_UP.search(error or "")
    if found is None:
        return False
    had = float(found[1].replace(",", ""))
    return had < (settings.seconds if found[2] == "s" else settings.nbytes)


def _audited(path: str, settings: FleetSettings) -> Rows:
    from analyzer.account.audit import audit_model
    from analyzer.account.group import group_by
    from analyzer.formats.json.inspect import document_inspection
    from analyzer.reports import Inspection

    if os.path.isdir(path) and not is_url(path):  # noqa: PTH112 - unlike Path.is_dir, it never raises
        os.scandir(path).close()  # says why it cannot be listed
        raise OnnxLedgerError("no .onnx file is below it; name a model, or a folder that holds some")
    ledger = audit_model(path, content=settings.content, max_objects=settings.max_objects)
    run = _run(ledger, settings.shapes) if settings.shapes else {}
    ledger = replace(ledger, macs=run.pop("counted", None))
    inspection = Inspection(ledger=ledger, grouping=group_by(ledger, layered=False))
    document = msgspec.to_builtins(document_inspection(inspection, has_tree=False))
    name = _plain(path)
    files = _files(ledger)
    head = {"model": name, "sha256": files[0]["sha256"], "etag": files[0]["etag"]}
    with ledger.model.kept_open():
        prints = {} if ledger.content == "none" else _prints(ledger)
    rows: dict[str, list[Row]] = {
        "models": [
            {
                **{key: document[key] for key in OF_MODEL},
                **document["model"],
                **document["totals"],
                **run,
                **head,
            }
        ],
        "files": [{**row, "model": name} for row in files],
    }
    rows["tensors"] = [
        {**head, **row, **prints.get((row["graph_path"], row["name"]), {})} for row in document["tensors"]
    ]
    for table in ("groups", "operators", "findings"):
        rows[table] = [{**head, **row} for row in document[table]]
    return rows


def _run(ledger: Any, shapes: Sequence[str]) -> Row:
    """What a run computes and takes at those of these sizes that it has; `counted` is its work, node by node."""
    from analyzer.cost.macs import count_macs
    from analyzer.cost.memory.answer import Asked, answer_memory
    from analyzer.timing.inputs.sizes import parse_shapes

    told = Row()
    wanted = _fitting(ledger, parse_shapes(shapes))
    with suppress(OnnxLedgerError):
        counted = count_macs(ledger, wanted)
        sizes = ",".join(f"{axis}={size}" for axis, size in counted.at.items())
        told |= {"counted": counted, "macs": counted.total, "nodes_without_macs": len(counted.unknown)}
        told |= {"sizes": _utf8(sizes)}
    with suppress(OnnxLedgerError):
        answer = answer_memory(ledger, Asked(wanted))
        told |= {"memory_bytes": answer.needed.total, "memory_bytes_at_most": answer.most}
    return told


def _fitting(ledger: Any, shapes: Shapes) -> Shapes:
    """Those of the sizes that one model has axes for."""
    from analyzer.timing.inputs.feeds import plan_feeds

    sizes = []
    for size in shapes.sizes:
        with suppress(OnnxLedgerError):
            plan_feeds(ledger, replace(shapes, sizes=(size,)))
            sizes.append(size)
    return replace(shapes, sizes=tuple(sizes))


def _prints(ledger: Any) -> dict[tuple[str, str], Row]:
    from analyzer.fleet.kinship import take_print

    found = {}
    for entry in ledger.entries:
        taken = take_print(entry, ledger.wiring)
        if taken is not None:
            path, name = entry.tensor.key
            found["/".join(path), name] = {
                "digest": taken.digest,
                "sketch": taken.sketch,
                "logical_elements": taken.elements,
                "code_bits": taken.code_bits,
            }
    return found


def _files(ledger: Any) -> list[Row]:
    """A row for each file, with its digest where it is here, and with its server's tag where it is not."""
    rows = []
    for file in ledger.model.files:
        source = ledger.model.sources[file.key]
        is_here = not source.is_remote
        rows.append(
            {
                "path": _utf8(file.path),
                "bytes": file.nbytes,
                "sha256": _digest(Path(source.key)) if is_here else None,
                "etag": None if is_here else (source.mark or None),
                "mtime_ns": int(source.mark) if is_here else None,
                "place": _utf8(_place(ledger.model, file.path)) if is_here else None,
                "file": _utf8(_one_name(_place(ledger.model, file.path))) if is_here else None,
            }
        )
        if is_here:
            source.check()
    return rows + [_missing(ledger.model, location) for location in ledger.model.missing]


def _one_name(place: str) -> str:
    """What all names of one file have in common: the name that links lead to; of a file with several its inode."""
    folder = os.path.dirname(place)  # noqa: PTH120 - an empty one stays empty
    try:
        status = os.stat(place)  # noqa: PTH116 - a place is a text here
        if status.st_nlink > 1:
            return f"{status.st_dev:x}:{status.st_ino:x}"
        real = os.path.relpath(os.path.realpath(place), os.path.realpath(folder or "."))
    except (OSError, ValueError):
        return place
    return os.path.normpath(os.path.join(folder, real))  # noqa: PTH118 - as above


def _missing(model: Any, location: str) -> Row:
    """The row of a file that is not there; once it is, the model is read again."""
    place = None if model.traffic else _utf8(_place(model, location))
    return {"path": _utf8(location), "place": place}


def _place(model: Any, path: str) -> str:
    """Where a file is that is named as seen from its model's folder, by the model's own name."""
    return str(Path(model.path).parent / path)


def _own_file(model: str, *, opens: bool) -> list[Row]:
    """The row of a file that could not be read as a model; none where it is no file."""
    if is_url(model):
        return []
    with suppress(OSError, ValueError, RuntimeError):
        path = Path(model)
        status = path.stat()
        if stat.S_ISREG(status.st_mode):
            sha256 = None
            with suppress(OSError):
                sha256 = _digest(path) if opens and status.st_size <= _MOST_HASHED else None
            return [
                {
                    "path": _utf8(path.name),
                    "bytes": status.st_size,
                    "sha256": sha256,
                    "etag": None,
                    "mtime_ns": status.st_mtime_ns,
                    "place": _utf8(str(path)),
                    "file": _utf8(_one_name(str(path))),
                }
            ]
    return []


def _digest(path: Path) -> str:
    hasher = hashlib.sha256()
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        while part := os.read(descriptor, _PART):
            hasher.update(part)
    finally:
        os.close(descriptor)
    return hasher.hexdigest()


_PART = 1 << 18
"""Bytes of a file that are in memory at a time while its digest is taken."""


def _is_same(wanted: Wanted) -> bool:
    """Whether all files of a model are byte for byte what they were."""
    with suppress(OSError):
        return all(_digest(Path(place)) == sha256 for place, sha256 in wanted.digests)
    return False


def _stats(wanted: Wanted) -> list[Row]:
    """The times of change of files that are otherwise what they were."""
    return [
        {"model": _plain(wanted.model), "place": place, "mtime_ns": Path(place).stat().st_mtime_ns}
        for place, _ in wanted.digests
    ]


def _plain(model: str) -> str:
    """A model's name as tables have it: in UTF-8, and a URL without its secrets."""
    if not is_url(model):
        return _utf8(model)
    from analyzer.read.remote import shown

    return shown(model)


def _utf8(text: str) -> str:
    from analyzer.formats.json.parts import utf8

    return utf8(text)


def serve() -> None:
    """The life of a process that reads models: it is asked, one frame each, until nobody asks any more."""
    gc.disable()  # at the end of each model all of its records would be looked through
    asked, said = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print is no answer
    with suppress(OSError):  # whoever asked has gone
        for number in itertools.count():
            if (message := read_frame(asked)) is None:
                break
            wanted, settings = pickle.loads(message)
            if hasattr(signal, "alarm"):
                signal.alarm(int(settings.seconds) + _GRACE)
            write_frame(said, _encode(read_rows(wanted, settings)))
            if hasattr(signal, "alarm"):
                signal.alarm(0)
            if number % _SWEPT == 0:
                gc.collect()
                gc.freeze()  # the modules that the first has loaded stay
    os._exit(0)


_SWEPT = 64
"""Models after which what refers to itself is freed: errors and their tracebacks do."""


def _encode(rows: Rows) -> bytes:
    """Rows as bytes; a number that has no room there becomes null: a file may claim any size."""
    columns = by_column(rows)
    try:
        return msgspec.msgpack.encode(columns)
    except (OverflowError, UnicodeEncodeError):  # a file's name may be any bytes
        return msgspec.msgpack.encode(_in_utf8(fitted(columns)))


def _in_utf8(told: Any) -> Any:
    """The same with every text as tables can hold it."""
    match told:
        case str():
            return _utf8(told)
        case dict():
            return {_in_utf8(key): _in_utf8(value) for key, value in told.items()}
        case list() | tuple():
            return [_in_utf8(each) for each in told]
        case _:
            return told


_SERVE = (
    "from analyzer.process import load_numpy; load_numpy(); from analyzer.fleet.reading import serve; serve()"
)

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

    def read(self, wanted: Wanted, settings: FleetSettings) -> Columns:
        if self._child is None:
            self._child = _start()
        child = self._child
        child.send(pickle.dumps((wanted, settings)))
        answer = self._wait(child, settings)
        if isinstance(answer, bytes):
            if (own_nbytes(child.pid) or 0) > _USUAL:
                self.dismiss()
            columns: Columns = msgspec.msgpack.decode(answer)
            return columns
        self._child = None
        advice = "inspect it alone, to see whether the file or a lack of memory or time is the cause"
        reason = f"the process that read it died ({answer}); {advice}"
        return by_column(error_rows(wanted.model, reason, opens=False))

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
