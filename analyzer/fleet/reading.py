"""Models -> their rows in every table, read in a watched process: the function that every engine calls, anywhere."""

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

if TYPE_CHECKING:  # loaded only by a survey at given sizes
    from analyzer.timing.inputs.sizes import Shapes

Row = dict[str, Any]
Rows = Mapping[str, list[Row]]
"""Rows by the name of their table."""

_MOST_HASHED = 1 << 28
"""Most bytes of an unreadable file for which a digest is computed."""

_GRACE = 10
"""Seconds after its time limit at which a process ends itself, if its watcher is gone."""


def read_rows(wanted: Wanted, settings: FleetSettings) -> Rows:
    """Return the rows of one model: always rows, never an exception.

    If all files of the model are unchanged byte for byte, the row of `models` has only its name.
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
    """Return the rows of a model that cannot be read, with the reason.

    Args:
        model: its path or URL.
        reason: one sentence, with the finding's id in brackets if there is one.
        opens: whether the file is opened for its digest; otherwise only its size and time identify it.
    """
    from analyzer.account.findings.catalog import EXPLANATIONS  # only errors need these

    name = _plain(model)
    message = f"{name}: {_utf8(reason).removeprefix(f'{name}: ')}"
    files = _own_file(model, opens=opens)
    sha256 = files[0]["sha256"] if files else None
    head = {"model": name, "sha256": sha256, "etag": None}
    ids = [each for each in _ID.findall(message) if each in EXPLANATIONS]
    findings: list[Row] = [
        {**head, "id": each, "severity": "error", "message": message, "subjects": []} for each in ids[:1]
    ]
    return {
        "models": [{**head, "error": message}],
        "files": [{**row, "model": name} for row in files],
        "findings": findings,
    }


_ID = re.compile(r"\[([a-z][a-z0-9]*(?:-[a-z0-9]+)*)\]")
"""Id of a finding, in the form of error messages."""

_LIMIT_EXCEEDED = re.compile(r"\(it took more than ([\d.,e+]+) (s|bytes of memory)\)")


def may_be_read(error: str | None, settings: FleetSettings) -> bool:
    """Whether a model exceeded an earlier limit of time or memory that is higher now."""
    found = _LIMIT_EXCEEDED.search(error or "")
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
        os.scandir(path).close()  # raises the reason if it cannot be listed
        raise OnnxLedgerError("the folder has no .onnx file; name a model, or a folder with models")
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
    """Return the work and memory of a run at the given sizes that fit; `counted` is the work, node by node."""
    from analyzer.cost.macs import count_macs
    from analyzer.cost.memory.answer import MemoryQuery, answer_memory
    from analyzer.timing.inputs.sizes import parse_shapes

    row = Row()
    fitting = _fitting(ledger, parse_shapes(shapes))
    with suppress(OnnxLedgerError):
        counted = count_macs(ledger, fitting)
        sizes = ",".join(f"{axis}={size}" for axis, size in counted.at.items())
        is_known = counted.total or not counted.unknown
        row |= {"counted": counted, "macs": counted.total if is_known else None}
        row |= {"nodes_without_macs": len(counted.unknown)}
        row |= {"sizes": _utf8(sizes)}
    with suppress(OnnxLedgerError):
        answer = answer_memory(ledger, MemoryQuery(fitting))
        row |= {"memory_bytes": answer.needed.total, "memory_bytes_at_most": answer.most}
    return row


def _fitting(ledger: Any, shapes: Shapes) -> Shapes:
    """Return the given sizes for which a model has axes."""
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
    """Return a row for each file, with its digest if it is local, or with its server's tag if it is remote."""
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
    """Return one identity for all names of a file: the path that links lead to, or its inode if it has hard links."""
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
    """Return the row of a missing file; the model is read again once the file exists."""
    place = None if model.traffic else _utf8(_place(model, location))
    return {"path": _utf8(location), "place": place}


def _place(model: Any, path: str) -> str:
    """Return the path of a file, given relative to its model's folder, in the form of the model's own path."""
    return str(Path(model.path).parent / path)


def _own_file(model: str, *, opens: bool) -> list[Row]:
    """Return the row of a file that could not be read as a model; none if it is not a file."""
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
"""Bytes of a file that are in memory at a time for its digest."""


def _is_same(wanted: Wanted) -> bool:
    """Whether all files of a model are unchanged byte for byte."""
    with suppress(OSError):
        return all(_digest(Path(place)) == sha256 for place, sha256 in wanted.digests)
    return False


def _stats(wanted: Wanted) -> list[Row]:
    """Return the modification times of files whose content is unchanged."""
    return [
        {"model": _plain(wanted.model), "place": place, "mtime_ns": Path(place).stat().st_mtime_ns}
        for place, _ in wanted.digests
    ]


def _plain(model: str) -> str:
    """Return a model's name in the form of tables: in UTF-8, and a URL without its secrets."""
    if not is_url(model):
        return _utf8(model)
    from analyzer.read.remote import shown

    return shown(model)


def _utf8(text: str) -> str:
    from analyzer.formats.json.parts import utf8

    return utf8(text)


def serve() -> None:
    """Read models for another process, one request per frame, until the input ends."""
    gc.disable()  # collections between models would scan all their records
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # library output must not mix with answers
    with suppress(OSError):  # the other process is gone
        for number in itertools.count():
            if (message := read_frame(requests)) is None:
                break
            wanted, settings = pickle.loads(message)
            if hasattr(signal, "alarm"):
                signal.alarm(int(settings.seconds) + _GRACE)
            write_frame(answers, _encode(read_rows(wanted, settings)))
            if hasattr(signal, "alarm"):
                signal.alarm(0)
            if number % _SWEPT == 0:
                gc.collect()
                gc.freeze()  # the modules loaded for the first model stay
    os._exit(0)


_SWEPT = 64
"""Number of models between garbage collections, which free reference cycles such as errors with tracebacks."""


def _encode(rows: Rows) -> bytes:
    """Encode rows as bytes; an integer that is too large becomes null, because a file may claim any size."""
    columns = by_column(rows)
    try:
        return msgspec.msgpack.encode(columns)
    except (OverflowError, UnicodeEncodeError):  # a file's name may be any bytes
        return msgspec.msgpack.encode(_in_utf8(fitted(columns)))


def _in_utf8(content: Any) -> Any:
    """Return the value with every text in the UTF-8 form of tables."""
    match content:
        case str():
            return _utf8(content)
        case dict():
            return {_in_utf8(key): _in_utf8(value) for key, value in content.items()}
        case list() | tuple():
            return [_in_utf8(each) for each in content]
        case _:
            return content


_SERVE = (
    "from analyzer.process import load_numpy; load_numpy(); from analyzer.fleet.reading import serve; serve()"
)

_USUAL = 300 << 20
"""Bytes of memory above which a process is replaced by a new one after its model."""


def survey_shard(wanted: Sequence[Wanted], settings: FleetSettings) -> Tables:
    """Return the tables of some models, in order; a model that hangs or kills its process gets an error row.

    The process that reads them is kept for the next call, so that it imports modules only once.

    Raises:
        OnnxLedgerError: no process can be started, or the request comes from another version of onnxledger.
    """
    if settings.version != version():
        raise OnnxLedgerError(
            f"this machine has onnxledger {version()}, the survey runs {settings.version}; "
            "install the same version on every machine"
        )
    with _reader() as reader, uncollected():
        return make_tables([reader.read(each, settings) for each in wanted])


class _Reader:
    """Process that reads one model after the other, replaced when it dies or uses much memory."""

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
        """Return the answer of a process, or the reason why it was ended."""
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
            return Died(child.end(_EXIT_SECONDS)) if message is None else message

    def dismiss(self) -> None:
        if self._child is not None:
            self._child.end()
            self._child = None


_EXIT_SECONDS = 5.0
"""Seconds in which a process has to end after it closed its output."""


def _start() -> Child:
    """Start a process that waits for models.

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
        reader.dismiss()  # an answer may be incomplete
        raise
    _IDLE.append(reader)


@atexit.register
def dismiss_readers() -> None:
    """End the processes that wait for more models."""
    while _IDLE:
        _IDLE.pop().dismiss()
