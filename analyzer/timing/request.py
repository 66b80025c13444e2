"""What a process that runs onnxruntime is asked and what it answers: records, and their JSON in files between."""

from __future__ import annotations

import enum
import json
from dataclasses import asdict
from typing import Any, Literal

from analyzer.records import Frozen, field


class Fill(enum.StrEnum):
    """How the elements of an input are made."""

    INTEGERS = "integers"
    """Random integers from `low` to `high`, both included."""
    UNIFORM = "uniform"
    """Random numbers from `low` to `high`."""
    CONSTANT = "constant"
    """All are `low`; of a boolean, whether it is not 0."""
    POSITIONS = "positions"
    """`low`, `low` + 1, ... along the last axis, the same in all rows; none above `high`, where that is not 0."""
    TEXT = "text"
    """The string "a"."""
    FILE = "file"
    """As the `.npz` file has it."""


class Optimization(enum.StrEnum):
    """Graph optimization levels of onnxruntime (`GraphOptimizationLevel`)."""

    NONE = "none"
    BASIC = "basic"
    EXTENDED = "extended"
    LAYOUT = "layout"
    ALL = "all"


CPU = "CPUExecutionProvider"
"""The execution provider of the processor, as onnxruntime calls it."""

Clock = Literal["host", "device"]
"""Whose clock a kernel's time is by: the host's, around the call, which waits for a device; or the device's own."""

MeasuringOrder = Literal["in turns", "one after the other"]
"""Whether plain and profiled runs took turns, or all of one kind came first."""


class Feed(Frozen):
    """One input of the model, and how it is made: `low` and `high` bound its elements, as `Fill` says."""

    name: str
    dtype: str
    """The ONNX name: `INT64`, `FLOAT16`."""
    shape: tuple[int, ...]
    fill: Fill
    low: float = 0
    high: float = 0
    is_sequence: bool = False
    """Whether the model takes a sequence of tensors, which is then one tensor long."""


class Schedule(Frozen):
    """When to stop: after `runs`, if given; else once the median has settled, or `seconds` have passed.

    There are at least `fewest` runs and at most `most`.
    """

    runs: int | None = None
    warmup: int = 3
    """Runs whose times are thrown away, before each of the two measurements."""
    fewest: int = 10
    most: int = 1000
    seconds: float = 10.0
    """What one measurement of one point may take, once `fewest` are done."""
    precision: float = 0.01
    """Settled: half the width of the 95 % confidence interval of the median is at most this fraction of it."""


class Request(Frozen):
    """A model, what it is fed, and on what it runs."""

    model: str
    """Absolute path of the model file."""
    points: tuple[tuple[Feed, ...], ...]
    """The inputs of each measurement: one, or one for each length of a sweep."""
    provider: str
    """As onnxruntime calls it: `CPUExecutionProvider`."""
    folder: str
    """An empty folder for the optimized graph and the profile."""
    npz: str | None = None
    """Absolute path of the file that `Fill.FILE` takes arrays from."""
    seed: int = 0
    """Of the random inputs."""
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
    """What messages call it; "" stands for its path."""


class Kernel(Frozen):
    """One call of a kernel in the course of a run, as the profile names it. Bodies of If, Loop, Scan are not apart."""

    name: str
    """The node's name in the optimized graph; `<op_type>_<index>` where it has none."""
    op_type: str
    provider: str
    index: int | None = None
    """`node_index`, where the profile says it: unique in the main graph of the session."""


class Run(Frozen):
    """The measurements of one point."""

    latency_ns: tuple[int, ...]
    """Each run without profiling, by the clock around the call."""
    profiled_ns: tuple[int, ...]
    """Each run with profiling, by the same clock."""
    kernels_us: tuple[tuple[float, ...], ...]
    """For each profiled run, the time of each of `Reply.kernels` (0 for one that did not run), in microseconds."""
    held_nbytes: int | None = None
    """The most bytes that the device's memory arena had in use in a run, by the profile; None where it does not say."""


class Reply(Frozen):
    """What was measured."""

    runs: tuple[Run, ...]
    """For each point."""
    kernels: tuple[Kernel, ...]
    providers: tuple[str, ...]
    """What the session has registered, in order."""
    optimized: str | None
    """The graph that ran, as a model file without its large weights; None where onnxruntime cannot write it."""
    load_ms: float
    """What making the session took, in milliseconds."""
    peak_rss_nbytes: int | None
    """The most bytes of memory that the process had."""
    messages: tuple[str, ...] = ()
    """Warnings of onnxruntime that concern where nodes run."""
    kernel_clock: Clock = "host"
    device: str = ""
    """The name of the processor or the GPU."""
    versions: tuple[tuple[str, str], ...] = ()
    """(software, version)."""
    clocks: tuple[tuple[str, float], ...] = ()
    """(clock, MHz) right after the last run, while the process still holds the device."""
    assigned: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """(provider, names of nodes) of each part of the graph that a provider took, where onnxruntime says it: what is in
    the kernels of a provider that compiles parts of a graph, whose optimized graph cannot be written."""
    order: MeasuringOrder = "one after the other"
    """How the two measurements were made."""


JOB, REPLY, LOG = "job.json", "reply.json", "log.txt"
"""The names of the files: what is asked, what is answered, and what else was printed."""

SILENT = {"ORT_DISABLE_TELEMETRY": "1"}
"""Official wheels of onnxruntime, since 1.30 at the latest, report sessions to Microsoft, and keep a database and an
identifier in the user's cache and a file beside the temporary ones. A process that starts with this does none of it."""


class Job(Frozen):
    """What one process measures of a request."""

    request: Request
    plain: bool = True
    """Runs without profiling."""
    profiled: bool = True
    """Runs with profiling."""
    device: str | None = None
    """The device to which inputs and outputs are bound before the clock starts; None leaves them to the host."""
    nbytes: int | None = None
    """What the process may have of memory."""
    traced: bool = False
    """With profiling, CUPTI tells too when the device worked, and for which call."""
    in_turns: bool = False
    """Both kinds of runs in turns, by two sessions, if there turns out to be memory for them."""


class Raised(Frozen):
    """An exception in the process that ran onnxruntime."""

    type: str
    text: str
    version: str
    """Of onnxruntime; "" where it could not be imported."""


def dump_job(job: Job) -> str:
    """Also where the path of a model is no text, which is then escaped."""
    return json.dumps(asdict(job))


def load_job(text: str) -> Job:
    """What `dump_job` was given."""
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
    """A reply, an exception of a library, or the sentence of a refusal."""
    match answer:
        case Reply():
            return json.dumps({"reply": asdict(answer)})
        case Raised():
            return json.dumps({"raised": asdict(answer)})
        case _:
            return json.dumps({"refused": answer})


def load_answer(text: str) -> Reply | Raised | str:
    """What `dump_answer` was given.

    Raises:
        ValueError: the text is cut off.
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
