"""Requests to a process that runs onnxruntime, and its answers: records, and their JSON in files."""

from __future__ import annotations

import enum
import json
from dataclasses import asdict
from typing import Any, Literal

from analyzer.records import Frozen, field


class Fill(enum.StrEnum):
    """Kind of the elements of an input."""

    INTEGERS = "integers"
    """Random integers from `low` to `high`, both included."""
    UNIFORM = "uniform"
    """Random numbers from `low` to `high`."""
    CONSTANT = "constant"
    """All elements are `low`; a boolean is whether `low` is not 0."""
    POSITIONS = "positions"
    """`low`, `low` + 1, ... along the last axis, the same in all rows; none above `high`, unless that is 0."""
    TEXT = "text"
    """The string "a"."""
    FILE = "file"
    """Content of the `.npz` file."""


class Optimization(enum.StrEnum):
    """Graph optimization levels of onnxruntime (`GraphOptimizationLevel`)."""

    NONE = "none"
    BASIC = "basic"
    EXTENDED = "extended"
    LAYOUT = "layout"
    ALL = "all"


CPU = "CPUExecutionProvider"
"""The execution provider for the processor, as onnxruntime calls it."""

Clock = Literal["host", "device"]
"""Clock that times a kernel: the host's, around the call, which waits for a device; or the device's own."""

MeasuringOrder = Literal["in turns", "one after the other"]
"""Whether plain and profiled runs took turns, or all runs of one kind came first."""


class Feed(Frozen):
    """One input of the model, and the kind of its elements; `low` and `high` bound them, as `Fill` says."""

    name: str
    dtype: str
    """The ONNX name: `INT64`, `FLOAT16`."""
    shape: tuple[int, ...]
    fill: Fill
    low: float = 0
    high: float = 0
    is_sequence: bool = False
    """Whether the model takes a sequence of tensors; the sequence then has one tensor."""


class Schedule(Frozen):
    """Stopping rule: after `runs`, if given; else when the median has settled, or `seconds` have passed.

    There are at least `fewest` runs and at most `most`.
    """

    runs: int | None = None
    warmup: int = 3
    """Discarded runs before each of the two measurements."""
    fewest: int = 10
    most: int = 1000
    seconds: float = 10.0
    """Most seconds for one measurement of one point, after `fewest` runs."""
    precision: float = 0.01
    """Settled: half the width of the 95 % confidence interval of the median is at most this fraction of it."""


class Request(Frozen):
    """A model, its inputs, and the settings of its run."""

    model: str
    """Absolute path of the model file."""
    points: tuple[tuple[Feed, ...], ...]
    """Inputs of each measurement: one, or one for each length of a sweep."""
    provider: str
    """Execution provider, as onnxruntime calls it: `CPUExecutionProvider`."""
    folder: str
    """An empty folder for the optimized graph and the profile."""
    npz: str | None = None
    """Absolute path of the file whose arrays `Fill.FILE` uses."""
    seed: int = 0
    """Seed of the random inputs."""
    provider_options: tuple[tuple[str, str], ...] = ()
    threads: int | None = None
    """`intra_op_num_threads`; None leaves it to onnxruntime, which takes one for each core."""
    optimization: Optimization = Optimization.ALL
    libraries: tuple[str, ...] = ()
    """Shared libraries of custom operators."""
    schedule: Schedule = field(default_factory=Schedule)
    file_nbytes: int = 0
    """Bytes of all the model's files."""
    name: str = ""
    """Name in messages; "" means its path."""


class Kernel(Frozen):
    """One call of a kernel in a run, as the profile names it. If, Loop and Scan include the kernels of their bodies."""

    name: str
    """The node's name in the optimized graph; `<op_type>_<index>` if it has none."""
    op_type: str
    provider: str
    index: int | None = None
    """`node_index`, if the profile has it: unique in the main graph of the session."""


class Run(Frozen):
    """Measurements of one point."""

    latency_ns: tuple[int, ...]
    """Each run without profiling, by the clock around the call."""
    profiled_ns: tuple[int, ...]
    """Each run with profiling, by the same clock."""
    kernels_us: tuple[tuple[float, ...], ...]
    """For each profiled run, the time of each of `Reply.kernels` (0 for one that did not run), in microseconds."""
    held_nbytes: int | None = None
    """Most bytes in use in the device's memory arena during a run, by the profile; None if it does not say."""


class Reply(Frozen):
    """Results of a measurement."""

    runs: tuple[Run, ...]
    """One run for each point."""
    kernels: tuple[Kernel, ...]
    providers: tuple[str, ...]
    """Providers that the session has registered, in order."""
    optimized: str | None
    """Optimized graph that ran, as a model file without its large weights; None if onnxruntime cannot write it."""
    load_ms: float
    """Time to create the session, in milliseconds."""
    peak_rss_nbytes: int | None
    """Peak memory of the process in bytes."""
    messages: tuple[str, ...] = ()
    """Warnings of onnxruntime about the placement of nodes."""
    kernel_clock: Clock = "host"
    device: str = ""
    """Name of the processor or the GPU."""
    versions: tuple[tuple[str, str], ...] = ()
    """(software, version)."""
    clocks: tuple[tuple[str, float], ...] = ()
    """(clock, MHz) right after the last run, while the process still holds the device."""
    assigned: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """(provider, names of nodes) of each part of the graph that a provider took, if onnxruntime reports it: the content
    of the kernels of a provider that compiles parts of a graph, whose optimized graph cannot be written."""
    order: MeasuringOrder = "one after the other"
    """Order of the two measurements."""


JOB, REPLY, LOG = "job.json", "reply.json", "log.txt"
"""Names of the files: the request, the answer, and all other output."""

SILENT = {"ORT_DISABLE_TELEMETRY": "1"}
"""Official wheels of onnxruntime, since 1.30 at the latest, report sessions to Microsoft, and keep a database and an
identifier in the user's cache and a file beside the temporary ones. This environment turns all of it off."""


class Job(Frozen):
    """Measurements that one process makes of a request."""

    request: Request
    plain: bool = True
    """Whether to run without profiling."""
    profiled: bool = True
    """Whether to run with profiling."""
    device: str | None = None
    """Device to which inputs and outputs are bound before the clock starts; None leaves them to the host."""
    nbytes: int | None = None
    """Memory limit of the process in bytes."""
    traced: bool = False
    """Whether CUPTI also records, in profiled runs, when the device worked and for which call."""
    in_turns: bool = False
    """Whether both kinds of runs take turns, in two sessions, if memory suffices."""


class Raised(Frozen):
    """An exception in the process that ran onnxruntime."""

    type: str
    text: str
    version: str
    """Version of onnxruntime; "" if it could not be imported."""


def dump_job(job: Job) -> str:
    """Return the JSON of a job; a path that is no valid text is escaped."""
    return json.dumps(asdict(job))


def load_job(text: str) -> Job:
    """Return the job that `dump_job` wrote."""
    fields = json.loads(text)
    request = fields.pop("request")
    request |= {
        "points": tuple(
            tuple(
                Feed(**feed | {"shape": tuple(feed["shape"]), "fill": Fill(feed["fill"])}) for feed in feeds
            )
            for feeds in request["points"]
        ),
        "provider_options": tuple((key, value) for key, value in request["provider_options"]),
        "optimization": Optimization(request["optimization"]),
        "libraries": tuple(request["libraries"]),
        "schedule": Schedule(**request["schedule"]),
    }
    return Job(request=Request(**request), **fields)


def dump_answer(answer: Reply | Raised | str) -> str:
    """Return the JSON of a reply, an exception of a library, or the sentence of a refusal."""
    match answer:
        case Reply():
            return json.dumps({"reply": asdict(answer)})
        case Raised():
            return json.dumps({"raised": asdict(answer)})
        case _:
            return json.dumps({"refused": answer})


def load_answer(text: str) -> Reply | Raised | str:
    """Return the answer that `dump_answer` wrote.

    Raises:
        ValueError: the text is truncated.
    """
    match json.loads(text):
        case {"reply": fields}:
            return _reply(fields)
        case {"raised": fields}:
            return Raised(**fields)
        case fields:
            return str(fields["refused"])


def _reply(fields: dict[str, Any]) -> Reply:
    return Reply(
        **fields
        | {
            "runs": tuple(_run(run) for run in fields["runs"]),
            "kernels": tuple(Kernel(**kernel) for kernel in fields["kernels"]),
            "providers": tuple(fields["providers"]),
            "messages": tuple(fields["messages"]),
            "versions": tuple((software, version) for software, version in fields["versions"]),
            "clocks": tuple((clock, mhz) for clock, mhz in fields["clocks"]),
            "assigned": tuple((provider, tuple(nodes)) for provider, nodes in fields["assigned"]),
        }
    )


def _run(fields: dict[str, Any]) -> Run:
    return Run(
        latency_ns=tuple(fields["latency_ns"]),
        profiled_ns=tuple(fields["profiled_ns"]),
        kernels_us=tuple(tuple(times) for times in fields["kernels_us"]),
        held_nbytes=fields["held_nbytes"],
    )
