"""A request -> its reply, from a separate process with limits of time and memory; if it dies, an error sentence."""

from __future__ import annotations

import json
import os
import re
import signal
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from analyzer.errors import OnnxLedgerError, TimingError
from analyzer.model import ONNX_DOMAINS, is_runtime_domain
from analyzer.process.child import Child, Limits, OverMemoryError, OverTimeError
from analyzer.process.memory import available, own_nbytes
from analyzer.records import Frozen, Mutable, replace
from analyzer.text import format_bytes, printable, shorten
from analyzer.timing.request import (
    JOB,
    LOG,
    REPLY,
    SILENT,
    Job,
    Raised,
    Reply,
    Request,
    dump_job,
    load_answer,
)
from analyzer.timing.running.cupti import TraceError
from analyzer.timing.running.cupti import is_installed as has_cupti
from analyzer.timing.running.providers import binding_device, blocking_environment, missing, short_name

_LONGEST = 400
_READ = 4000
"""Most characters of a message that are examined: it contains names of the model, which may have any length."""

_PROTOBUF_MOST = (2 << 30) - 1


class _Failure(Frozen):
    """An exception, and the stage in which it was raised."""

    raised: Raised
    stage: str
    request: Request
    nbytes: int | None

    @property
    def runtime(self) -> str:
        return f"onnxruntime {self.raised.version}".strip()


def refusal(request: Request, raised: Raised, stage: str, nbytes: int | None = None) -> str:
    """Return one or two sentences: the file, what is wrong, what to do next.

    Args:
        request: the model and its settings.
        raised: the exception.
        stage: the stage in which it was raised.
        nbytes: the memory limit of the process.
    """
    raised = replace(raised, text=raised.text[:_READ])
    failure = _Failure(raised, stage, request, nbytes)
    for pattern, explain in _RULES:
        found = re.search(pattern, raised.text, re.DOTALL)
        if found:
            return f"{printable(request.name or request.model)}: {explain(failure, found)}"
    cause = cleaned(raised.text) or printable(raised.type)
    then = (
        "give other sizes with --shape, or real inputs with --input"
        if _has_run(stage)
        else "export the model again, or try another version of onnxruntime"
    )
    model = printable(request.name or request.model)
    return f"{model}: onnxruntime failed while {stage}: {cause}{_shapes(failure)}; {then}"


_NOISE = (
    (r"\[ONNXRuntimeError\] : \d+ : \w+ : ", ""),
    (r"Load model from .*? failed: ?", ""),
    (r"Exception during initialization: ", ""),
    (
        r"(?<!\S)\S{0,80}onnxruntime\S{0,200}\.(?:cc|cpp|cu|cuh|h|hpp):\d+ .{0,1000}?\)(?: const)?"
        r"(?: \[with .{0,1000}?\])? ",
        "",
    ),
    (r"(?<![^\s.])[\w/]{1,80}\.(?:cc|cpp|cu|cuh|h|hpp):\d+ [\w:~<>()]{1,200} ", ""),
    (r"^.{0,200}? was false\. (?=\S)", ""),
    (r"(?<=\): ).{0,200}? was false\. (?=\S)", ""),
)


def cleaned(text: str) -> str:
    r"""Return onnxruntime's message without source locations and without the failed expression.

    >>> cleaned(
    ...     "[ONNXRuntimeError] : 1 : FAIL : /onnxruntime_src/a/b.cc:1 void f(int, T&) x > 0 was false. No x.\n"
    ... )
    'No x'
    """
    text = text[:_READ]
    for noise, instead in _NOISE:
        text = re.sub(noise, instead, text, flags=re.DOTALL)
    return shorten(printable(" ".join(text.split())).rstrip("."), _LONGEST)


_Explain = Callable[[_Failure, "re.Match[str]"], str]


def _unknown_operator(failure: _Failure, found: re.Match[str]) -> str:
    parts = found.groupdict()
    domain, op_type = parts.get("domain") or "", parts["op_type"]
    node = parts.get("node") or _node_of(failure.request.model, domain, op_type)
    operator = printable(f"{domain}:{op_type}" if domain else op_type)
    where = f'node "{printable(node)}": ' if node else ""
    if domain in ONNX_DOMAINS or is_runtime_domain(domain):
        return (
            f"{where}{failure.runtime} has no operator {operator} in the opset that the model imports; give the "
            "library that has it with --custom-ops, or install the onnxruntime that the model was made for"
        )
    return f"{where}{failure.runtime} has no operator {operator}; give its library with --custom-ops"


def _node_of(model: str, domain: str, op_type: str) -> str:
    from analyzer.read import read_model

    with suppress(OnnxLedgerError):
        for node in read_model(model).nodes():
            if (node.domain, node.op_type) == (domain, op_type):
                return node.name
    return ""


def _no_import(failure: _Failure, found: re.Match[str]) -> str:
    return (
        f'node "{printable(found["node"])}" is of the domain {printable(found["domain"])}, for which the model '
        "imports no opset: it is not a valid model, export it again"
    )


def _no_kernel(failure: _Failure, found: re.Match[str]) -> str:
    node = f'node "{printable(found["node"])}": ' if found["node"] else ""
    kernel = f"{printable(found['op_type'])} (since opset {found['since']})"
    return (
        f"{node}{failure.runtime} has no kernel of {kernel} for the types of its inputs on "
        f"{short_name(failure.request.provider)}; export the model in another precision or opset, or give a library "
        "that has it with --custom-ops"
    )


def _wrong_type(failure: _Failure, found: re.Match[str]) -> str:
    return (
        f'node "{printable(found["node"])}": the operator {printable(found["op_type"])} does not take '
        f"{printable(found['type'])} in the opset that the model imports; export it with a newer opset, or in another "
        "precision"
    )


def _new_opset(failure: _Failure, found: re.Match[str]) -> str:
    return (
        f"it imports opset {found['opset']} of {printable(found['domain'])}, and {failure.runtime} knows up to "
        f"{found['most']}: pip install --upgrade onnxruntime, or export the model with an older opset"
    )


def _new_ir(failure: _Failure, found: re.Match[str]) -> str:
    return (
        f"it is of IR version {found['ir']}, and {failure.runtime} knows up to {found['most']}: "
        "pip install --upgrade onnxruntime, or save the model with an older IR version"
    )


def _external(failure: _Failure, found: re.Match[str]) -> str:
    return (
        f"its external data cannot be read: {cleaned(failure.raised.text)}; put the file with the weights beside the "
        "model, whole, and under the name that it was exported with"
    )


def _protobuf(failure: _Failure, found: re.Match[str]) -> str:
    path = Path(failure.request.model)
    with suppress(OSError):
        nbytes = path.stat().st_size
        if nbytes > _PROTOBUF_MOST:
            return (
                f"it has {format_bytes(nbytes)} in one file, and onnxruntime reads at most 2 GiB of it: save it with "
                "its weights as external data (onnx.save(..., save_as_external_data=True))"
            )
    return (
        "onnxruntime cannot parse it: it is no ONNX model, or damaged, or nested deeper than protobuf allows; export "
        "it, or fetch it, again"
    )


def _no_file(failure: _Failure, found: re.Match[str]) -> str:
    return "the file is gone, or cannot be opened"


def _library(failure: _Failure, found: re.Match[str]) -> str:
    named_libraries = [path for path in failure.request.libraries if path in failure.raised.text]
    why = "it has no function RegisterCustomOps" if "symbol" in found[0] else cleaned(found["why"])
    return (
        f"the library of custom operators {printable(', '.join(named_libraries))} cannot be loaded: {why}; "
        "--custom-ops takes one that was built for onnxruntime and for this system"
    )


def _memory(failure: _Failure, found: re.Match[str]) -> str:
    requested = re.search(r"buffer of size (\d+)", failure.raised.text)
    node = re.search(_RUNNING, failure.raised.text, re.DOTALL)
    numbers = [f"it asked for {format_bytes(int(requested[1]))} more"] if requested else []
    if failure.nbytes is not None:
        numbers.append(f"the limit is {format_bytes(failure.nbytes)} in all")
    details = f" ({'; '.join(numbers)})" if numbers else ""
    return (
        f"{f'{_place(node)}: ' if node else ''}out of memory while {failure.stage}"
        f"{details}{_shapes(failure)}; give smaller sizes with --shape, or run "
        "it on a machine with more memory"
    )


def _ids(failure: _Failure, found: re.Match[str]) -> str:
    which, then = "values that were made for an input", "give real ones with --input"
    if failure.request.npz is not None:
        which, then = "values of an input", "give others with --input"
    return f"{_place(found)}: {cleaned(found['why'])}: the {which} are out of its range{_shapes(failure)}; {then}"


def _at_run(failure: _Failure, found: re.Match[str]) -> str:
    why = cleaned(found["why"])
    if _UNSUPPORTED.search(why):
        return f"{_place(found)}: {why}"  # its own words tell what to do, and no inputs help
    sizes = "sizes that fit with --shape, or " if _OF_SHAPES.search(why) else ""
    return f"{_place(found)}: {why}{_shapes(failure)}; give {sizes}real inputs with --input"


_UNSUPPORTED = re.compile(r"not support|unsupported|not (?:yet )?implemented", re.IGNORECASE)
_OF_SHAPES = re.compile(
    r"shape|dim|size|rank|ax[ie]s|broadcast|length|element|mismatch|incompatible|bound|range", re.IGNORECASE
)


_UNREGISTERED = r"(?P<name>[^\s:]*:\S+?)\(-?\d+\) is not a registered function/op"


def describe_run_error(text: str) -> str:
    r"""Return onnxruntime's message about a run in short: the node if it names one, and the cause.

    >>> describe_run_error(
    ...     "Fail: [ONNXRuntimeError] : 1 : FAIL : Non-zero status code returned while running Add "
    ...     "node. Name:'sum' Status Message: No x.\n"
    ... )
    'node "sum" (Add): No x'
    >>> describe_run_error(
    ...     "Fail: [ONNXRuntimeError] : 1 : FAIL : Load model from m.onnx failed:"
    ...     "Fatal error: custom:Op(-1) is not a registered function/op"
    ... )
    'it has no operator custom:Op'
    """
    found = re.search(_RUNNING, text[:_READ], re.DOTALL)
    if found:
        return f"{_place(found)}: {cleaned(found['why'])}"
    missing = re.search(_UNREGISTERED, text[:_READ])
    if missing:
        return f"it has no operator {printable(missing['name'])}"
    return cleaned(re.sub(r"^\w+: (?=\[ONNXRuntimeError\])", "", text))


def _place(found: re.Match[str]) -> str:
    if not found["node"]:
        return f"a node of {printable(found['op_type'])}, which has no name"
    return f'node "{printable(found["node"])}" ({printable(found["op_type"])})'


def _inputs(failure: _Failure, found: re.Match[str]) -> str:
    return (
        f"onnxruntime does not take the inputs: {cleaned(found[0])}{_shapes(failure)}; give sizes that fit "
        "with --shape, or real inputs with --input"
    )


def _has_run(stage: str) -> bool:
    return stage not in {"loading", "starting onnxruntime"}


def _shapes(failure: _Failure) -> str:
    """List the inputs, if runs had begun."""
    if not failure.request.points or not _has_run(failure.stage):
        return ""
    number = re.search(r"point (\d+)", failure.stage)
    feeds = failure.request.points[int(number[1]) - 1 if number else 0]
    listed = ", ".join(
        f"{printable(feed.name)} {feed.dtype} [{', '.join(map(str, feed.shape))}]" for feed in feeds[:8]
    )
    return f" (inputs: {listed}{', ...' if len(feeds) > 8 else ''})" if feeds else ""


_RUNNING = r"while running (?P<op_type>\S+) node\. Name:'(?P<node>.*?)' Status Message: (?P<why>.*)"
_RULES: tuple[tuple[str, _Explain], ...] = (
    (r"Failed to load library (?P<path>.*?) with error: (?P<why>.*)", _library),
    (r"Failed to get symbol RegisterCustomOps\w* with error: (?P<why>.*)", _library),
    (
        r"Failed to allocate memory|bad_alloc|[Oo]ut of memory|ALLOC_FAILED|Unable to allocate|MemoryError",
        _memory,
    ),
    (r"Fatal error: (?P<domain>[^\s:]*):(?P<op_type>\S+?)\(-?\d+\) is not a registered", _unknown_operator),
    (
        r'In Node, \("(?P<node>.*?)", (?P<op_type>\S+), "(?P<domain>.*?)", .* No Op registered for',
        _unknown_operator,
    ),
    (r"In Node, \(\"(?P<node>.*?)\", .* No opset import for domain '(?P<domain>.*?)'", _no_import),
    (r"implementation for (?P<op_type>\S+?)\((?P<since>\d+)\) node with name '(?P<node>.*?)'", _no_kernel),
    (
        r"Type Error: Type '(?P<type>.*?)' of input parameter \(.*?\) of operator \((?P<op_type>.*?)\) "
        r"in node \((?P<node>.*?)\) is invalid",
        _wrong_type,
    ),
    (
        r"Opset (?P<opset>\d+) is under development.*domain (?P<domain>\S+) is till opset (?P<most>\d+)",
        _new_opset,
    ),
    (r"Unsupported model IR version: (?P<ir>\d+), max supported IR version: (?P<most>\d+)", _new_ir),
    (r"[Ee]xternal (?:data|initializer)|External data path|external_data", _external),
    (r"Protobuf parsing failed|No graph was found in the protobuf|INVALID_PROTOBUF", _protobuf),
    (r"NO_SUCHFILE|File doesn't exist", _no_file),
    (_RUNNING.replace("(?P<why>.*)", r"(?P<why>.*out of (?:data )?bounds.*)"), _ids),
    (_RUNNING, _at_run),
    (r"Got invalid dimensions for input.*?(?= Please|$)", _inputs),
    (
        r"Unexpected input data type.*|Required inputs .* are missing.*|Invalid input name.*|"
        r"Invalid rank for input.*?(?= Please|$)",
        _inputs,
    ),
)


Progress = Callable[[str], None]
"""Callback for each stage: "loading", "measuring point 2 of 5"."""

_SPARE = 0.1
"""Fraction of the available memory that is left to other processes."""

_START = "from analyzer.timing.running.child import serve; serve({folder!r})"

_STOPPED = frozenset({"SIGKILL", "SIGTERM"})
"""Signals that other processes send; not a crash."""


def run_isolated(request: Request, limits: Limits, progress: Progress | None = None) -> Reply:
    """Measure a request in a separate process.

    The process leaves only the graph that ran in `request.folder`.

    Raises:
        MissingExtraError: onnxruntime is not installed.
        TimingError: the model cannot be run, or crashed the process, or exceeded the limits.
    """
    _check_path(request.model)
    unwatched = own_nbytes(os.getpid()) is None
    most = None if unwatched else limits.nbytes if limits.nbytes is not None else _default_nbytes()
    deadline = time.monotonic() + limits.seconds
    blocking = blocking_environment(request.provider)
    in_turns = not blocking and _has_room_for_two(request, most)
    job = Job(request, device=binding_device(request.provider), nbytes=most, in_turns=in_turns)
    report = progress or (lambda stage: None)
    if not blocking:
        return _warned(_run(job, limits, deadline, report, {}), unwatched)
    # On a GPU, kernels run on after their calls have returned. The device's own clock times them; without it, each call
    # has to wait for its kernel, which stops the host from working ahead. Both take time, so whole runs are timed in
    # another process.
    plain = _run(replace(job, profiled=False), limits, deadline, report, {})
    profiling = replace(job, plain=False)
    if job.device is not None and has_cupti():
        try:
            profiled = _run(replace(profiling, traced=True), limits, deadline, report, {})
            return _warned(_join(plain, profiled), unwatched)
        except (TraceError, TimingError) as error:  # the model runs, as the other process has shown
            why = (f"kernels are timed by the host, as CUPTI does not trace this device: {error}",)
            plain = replace(plain, messages=(*plain.messages, *why))
    profiled = _run(profiling, limits, deadline, report, blocking)
    return _warned(_join(plain, profiled), unwatched)


def _has_room_for_two(request: Request, most: int | None) -> bool:
    """Whether memory may suffice for two sessions, each with the weights; loading them measures the rest."""
    room = 2 << 30 if most is None else most  # 2 GiB if the limit is unknown
    return request.provider in _HOSTS and 2 * request.file_nbytes <= room


_HOSTS = frozenset({"CPUExecutionProvider", "DnnlExecutionProvider", "XnnpackExecutionProvider"})
"""Providers that run on the processor and need no long compilation."""


def _warned(reply: Reply, unwatched: bool) -> Reply:
    if not unwatched:
        return reply
    message = "memory was not limited: this system does not tell how much a process has"
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
    """Merge the replies of two processes."""
    runs = zip(plain.runs, profiled.runs, strict=True)
    return replace(
        profiled,
        runs=tuple(replace(with_kernels, latency_ns=bare.latency_ns) for bare, with_kernels in runs),
        load_ms=plain.load_ms,
        peak_rss_nbytes=plain.peak_rss_nbytes,
        messages=tuple(dict.fromkeys((*plain.messages, *profiled.messages))),
        clocks=plain.clocks,
    )


def _run(
    job: Job, limits: Limits, deadline: float, report: Progress, environment: Mapping[str, str]
) -> Reply:
    with tempfile.TemporaryDirectory(prefix="run-", dir=job.request.folder) as name:
        folder = Path(name).resolve()
        (folder / JOB).write_text(dump_job(job), encoding="utf-8")
        child = _Measuring(job, limits, deadline, folder, report)
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
            f"{printable(request.name or request.model)}: {child.describe_end(folder / LOG)}"
        ) from error
    if isinstance(answer, Reply):
        return answer
    if isinstance(answer, str):
        raise TimingError(answer)
    if answer.type == "ModuleNotFoundError" and "onnxruntime" in answer.text:
        raise missing(request.provider)
    if answer.type == TraceError.__name__:
        raise TraceError(answer.text)
    raise TimingError(refusal(request, answer, child.stage, child.job.nbytes))


class _Measuring(Mutable):
    """The separate process, from its start to its end."""

    job: Job
    limits: Limits
    deadline: float
    folder: Path
    report: Progress
    stage: str = "starting onnxruntime"
    code: int = 0
    most: int = 0
    """Most private memory that was observed, in bytes."""

    def run(self, environment: Mapping[str, str]) -> None:
        """Start the process, follow it, and make sure that it ends.

        Raises:
            TimingError: it could not be started, or had to be stopped.
        """
        program = _START.format(folder=str(self.folder))
        with (self.folder / LOG).open("wb") as log:
            try:
                child = Child(program, log=log, environment={**environment, **SILENT})
            except OSError as error:
                raise TimingError(f"no process that runs onnxruntime can be started: {error}") from error
        try:
            while (frame := child.receive(self.deadline, self.job.nbytes)) is not None:
                with suppress(ValueError):
                    self.stage = str(json.loads(frame))
                    self.report(self.stage)
        except OverTimeError:
            raise TimingError(
                f"{self._model}: onnxruntime did not finish within {self.limits.seconds:g} s and was stopped while "
                f"{self.stage}; allow more with --timeout, or ask for less with --runs or --shape"
            ) from None
        except OverMemoryError:
            raise TimingError(
                f"{self._model}: onnxruntime was stopped while {self.stage}, as it had {format_bytes(child.most)} of "
                f"memory, and the limit is {format_bytes(self.job.nbytes or 0)}; give smaller sizes with --shape, or "
                "run it on a machine with more memory"
            ) from None
        finally:
            self.code = child.end()
            self.most = child.most

    @property
    def _model(self) -> str:
        return printable(self.job.request.name or self.job.request.model)

    def describe_end(self, log: Path) -> str:
        """Describe how the process ended without a reply."""
        if self.code >= 0:
            return f"the process that ran onnxruntime ended with exit code {self.code} while {self.stage}{_tail(log)}"
        name = _signal(-self.code)
        outcome = f"onnxruntime ended with signal {-self.code} ({name}) while {self.stage}"
        if name in _STOPPED:
            return (
                f"{outcome}: something else ended it, such as the system when memory ran out (it had "
                f"{format_bytes(self.most)}); give smaller sizes with --shape, or free some memory"
            )
        return (
            f"{outcome}{_tail(log)}; the model makes onnxruntime crash: try --optimization none, or another version of "
            "onnxruntime"
        )


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


def _tail(log: Path) -> str:
    """Return the last line of its output, which may give the reason."""
    with suppress(OSError), log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 4096))
        lines = [line.strip() for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()]
        if lines:
            return f": {shorten(printable(lines[-1]), 300)}"
    return ""
