"""A model and inputs -> the shapes of what every node read and made, by onnxruntime's profile: in a process of its own.

Memory is asked for value by value, without the patterns that a session learns, so that the profile says what each node
asked for.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from analyzer.model.operators import Kind, named
from analyzer.process.child import read_frame, write_frame
from analyzer.timing.inputs.arrays import as_taken, make_array
from analyzer.timing.request import Feed

_KERNEL_TIME = "_kernel_time"
_HOLDERS = named(Kind.CONTROL)
_SMALL = "1024"
"""Bytes of a tensor that is written with the graph that ran: shapes are made of less."""

Typed = tuple[str, tuple[int, ...]]
"""A type, as onnxruntime calls it, and a shape."""


class Tracing(msgspec.Struct, frozen=True):
    """What is asked."""

    path: str
    """Of the main file, absolute."""
    folder: str
    """An empty folder, for the profile and the graph that runs."""
    points: tuple[tuple[Feed, ...], ...]
    """The inputs of each run."""
    level: str = "ORT_DISABLE_ALL"
    """Of `onnxruntime.GraphOptimizationLevel`."""
    seed: int = 0


class TracedNode(msgspec.Struct, frozen=True):
    """One call of one node."""

    name: str
    """In the graph that ran; `<op_type>_<index>` where it has none."""
    op_type: str
    inputs: tuple[Typed, ...]
    """Of the tensors among its inputs, those that are left out without a place."""
    outputs: tuple[Typed, ...]
    live: int | None = None
    """Bytes asked for since the run began and not given back when it has run; None where the profile does not say."""
    within: int | None = None
    """The call of If, Loop or Scan that it ran in, by position; None in the main graph."""


class TracedRun(msgspec.Struct, frozen=True):
    """One run, in the order in which calls ended."""

    nodes: tuple[TracedNode, ...]
    why: str = ""
    """Why there was none."""


class Traced(msgspec.Struct, frozen=True):
    """What ran."""

    version: str
    """Of onnxruntime."""
    ran: str
    """The file of the graph that ran."""
    held: int | None
    """Bytes that the session asked for before its first run; None where the profile does not say."""
    runs: tuple[TracedRun, ...]


def serve() -> None:
    """Answer one question that comes on stdin, a `Tracing`, with a `Traced` or a sentence."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print
    question = read_frame(sys.stdin.buffer)
    if question is None:
        return
    try:
        answer: Traced | str = trace(msgspec.json.decode(question, type=Tracing))
    except Exception as error:  # noqa: BLE001 - onnxruntime's classes have no base of their own
        answer = f"{type(error).__name__}: {error}"
    write_frame(answers, msgspec.json.encode(answer))
    os._exit(0)


def trace(asked: Tracing) -> Traced:
    """Run a model once at each point.

    Raises:
        Exception: onnxruntime's own, of many classes, where it does not load the model.
    """
    import onnxruntime

    folder = Path(asked.folder)
    ran = folder / "ran.onnx"
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.enable_profiling = True
    options.profile_file_prefix = str(folder / "profile")
    options.enable_mem_pattern = False
    options.intra_op_num_threads = 1
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, asked.level)
    name = f"{ran.name}.data"
    Path(folder, name).symlink_to(os.devnull)
    options.optimized_model_filepath = str(ran)
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", name)
    options.add_session_config_entry(
        "session.optimized_model_external_initializers_min_size_in_bytes", _SMALL
    )
    session = onnxruntime.InferenceSession(asked.path, options, providers=["CPUExecutionProvider"])
    failed: dict[int, str] = {}
    for place, feeds in enumerate(asked.points):
        try:
            arrays = {feed.name: make_array(feed, asked.seed) for feed in feeds}
            session.run(None, as_taken(arrays, session))
        except Exception as error:  # noqa: BLE001 - as above
            failed[place] = f"{type(error).__name__}: {error}"
    profile = Path(session.end_profiling())
    with profile.open(encoding="utf-8", errors="surrogateescape") as lines:
        calls = list(_runs(lines))
    profile.unlink()
    held = next((_held(run[0]) for run in calls if run), None)
    has_all = len(calls) == len(asked.points)  # some versions record a run that failed, some do not
    runs = iter(calls if not has_all else [run for place, run in enumerate(calls) if place not in failed])
    return Traced(
        onnxruntime.__version__,
        str(ran),
        held,
        tuple(
            TracedRun((), failed[place])
            if place in failed
            else TracedRun(tuple(_nodes(next(runs, []), held)))
            for place in range(len(asked.points))
        ),
    )


def _runs(lines: Iterator[str]) -> Iterator[list[dict[str, Any]]]:
    """The events of the kernels of each run that came to its end."""
    events: list[dict[str, Any]] = []
    for line in lines:
        text = line.strip().rstrip(",")
        if not text.startswith("{"):
            continue
        event = json.loads(text)
        if event["cat"] == "Node" and event["name"].endswith(_KERNEL_TIME):
            events.append(event)
        elif event["cat"] == "Session" and event["name"] == "model_run":
            yield events
            events = []


def _held(event: Mapping[str, Any]) -> int | None:
    told = event["args"]
    if "mem_bytes_requested_in_use" not in told:
        return None
    return int(told["mem_bytes_requested_in_use"]) - int(told["mem_requested_in_use_delta"])


def _nodes(events: list[dict[str, Any]], held: int | None) -> Iterator[TracedNode]:
    """Calls that began within that of an If, Loop or Scan, and ended before it, ran in it."""
    within: dict[int, int] = {}
    waiting: list[int] = []
    for place, event in enumerate(events):
        if event["args"].get("op_name") in _HOLDERS:
            while waiting and int(events[waiting[-1]]["ts"]) >= int(event["ts"]):
                within[waiting.pop()] = place
        waiting.append(place)
    for place, event in enumerate(events):
        told = event["args"]
        live = told.get("mem_bytes_requested_in_use")
        yield TracedNode(
            event["name"].removesuffix(_KERNEL_TIME),
            str(told.get("op_name", "")),
            _typed(told.get("input_type_shape", ())),
            _typed(told.get("output_type_shape", ())),
            None if live is None or held is None else int(live) - held,
            within.get(place),
        )


def _typed(told: Any) -> tuple[Typed, ...]:
    return tuple((str(kind), tuple(dims)) for each in told for kind, dims in each.items())
