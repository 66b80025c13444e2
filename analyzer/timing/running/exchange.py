"""Job and answer <-> JSON: what the process that asks and the process that runs onnxruntime leave for each other."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from analyzer.timing.request import Feed, Fill, Kernel, Optimization, Reply, Request, Run, Schedule

__all__ = [
    "JOB",
    "LOG",
    "REPLY",
    "SILENT",
    "Job",
    "Raised",
    "dump_answer",
    "dump_job",
    "load_answer",
    "load_job",
]

JOB, REPLY, LOG = "job.json", "reply.json", "log.txt"
"""The names of the files: what is asked, what is answered, and what else was printed."""

SILENT = {"ORT_DISABLE_TELEMETRY": "1"}
"""Official wheels of onnxruntime, since 1.30 at the latest, report sessions to Microsoft, and keep a database and an
identifier in the user's cache and a file beside the temporary ones. A process that starts with this does none of it."""


@dataclass(frozen=True, slots=True)
class Job:
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
    in_turns: bool = False
    """Both kinds of runs in turns, by two sessions, if there turns out to be memory for them."""


@dataclass(frozen=True, slots=True)
class Raised:
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
        "points": tuple(tuple(_feed(feed) for feed in feeds) for feeds in request["points"]),
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


def _feed(fields: dict[str, Any]) -> Feed:
    return Feed(**fields | {"shape": tuple(fields["shape"]), "fill": Fill(fields["fill"])})


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
