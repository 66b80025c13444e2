"""A model and inputs -> the shapes of every node's inputs and outputs, by onnxruntime's profile; in a separate process.

Memory is allocated value by value, without a session's memory patterns, so that the profile has the memory of each
node.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from analyzer.model.operators import Kind, operators_of
from analyzer.process.child import read_frame, write_frame
from analyzer.timing.inputs.arrays import as_taken, make_array
from analyzer.timing.request import Feed

_KERNEL_TIME = "_kernel_time"
_HOLDERS = operators_of(Kind.CONTROL)
_SMALL = "1024"
"""Least bytes of a tensor that is left out of the file of the graph that ran: smaller ones are needed for shapes."""

Typed = tuple[str, tuple[int, ...]]
"""A type, as onnxruntime calls it, and a shape."""


class Tracing(msgspec.Struct, frozen=True):
    """Request for a trace."""

    path: str
    """Absolute path of the main file."""
    folder: str
    """Empty folder for the profile and the graph that runs."""
    points: tuple[tuple[Feed, ...], ...]
    """Inputs of each run."""
    level: str = "ORT_DISABLE_ALL"
    """Member of `onnxruntime.GraphOptimizationLevel`."""
    seed: int = 0


class TracedNode(msgspec.Struct, frozen=True):
    """One call of one node."""

    name: str
    """Name in the graph that ran; `<op_type>_<index>` if it has none."""
    op_type: str
    inputs: tuple[Typed, ...]
    """Types of the tensors among its inputs; omitted inputs leave no gap."""
    outputs: tuple[Typed, ...]
    live: int | None = None
    """Bytes requested since the run began and not released when it has run; None if the profile does not say."""
    within: int | None = None
    """Position of the call of If, Loop or Scan that it ran in; None in the main graph."""


class TracedRun(msgspec.Struct, frozen=True):
    """One run: its calls in the order in which they ended."""

    nodes: tuple[TracedNode, ...]
    why: str = ""
    """Reason why it failed."""


class Traced(msgspec.Struct, frozen=True):
    """Result of a trace."""

    version: str
    """Version of onnxruntime."""
    ran: str
    """File of the graph that ran."""
    initial_nbytes: int | None
    """Bytes that the session requested before its first run; None if the profile does not say."""
    runs: tuple[TracedRun, ...]


def serve() -> None:
    """Answer one question from stdin, a `Tracing`, with a `Traced` or an error sentence."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of libraries
    question = read_frame(sys.stdin.buffer)
    if question is None:
        return
    try:
        answer: Traced | str = trace(msgspec.json.decode(question, type=Tracing))
    except Exception as error:  # noqa: BLE001  onnxruntime's exceptions have no common base class
        answer = f"{type(error).__name__}: {error}"
    write_frame(answers, msgspec.json.encode(answer))
    os._exit(0)


def trace(request: Tracing) -> Traced:
    """Run a model once at each point.

    Raises:
        Exception: onnxruntime's exceptions, of many classes, if it cannot load the model.
    """
    import onnxruntime

    folder = Path(request.folder)
    ran = folder / "ran.onnx"
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.enable_profiling = True
    options.profile_file_prefix = str(folder / "profile")
    options.enable_mem_pattern = False
    options.intra_op_num_threads = 1
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, request.level)
    name = f"{ran.name}.data"
    Path(folder, name).symlink_to(os.devnull)
    options.optimized_model_filepath = str(ran)
    options.add_session_config_entry("session.optimized_model_external_initializers_file_name", name)
    options.add_session_config_entry(
        "session.optimized_model_external_initializers_min_size_in_bytes", _SMALL
    )
    session = onnxruntime.InferenceSession(request.path, options, providers=["CPUExecutionProvider"])
    failed: dict[int, str] = {}
    for place, feeds in enumerate(request.points):
        try:
            arrays = {feed.name: make_array(feed, request.seed) for feed in feeds}
            session.run(None, as_taken(arrays, session))
        except Exception as error:  # noqa: BLE001 - as above
            failed[place] = f"{type(error).__name__}: {error}"
    profile = Path(session.end_profiling())
    with profile.open(encoding="utf-8", errors="surrogateescape") as lines:
        calls = list(_runs(lines))
    profile.unlink()
    initial_nbytes = next((_nbytes_before(run[0]) for run in calls if run), None)
    has_all = len(calls) == len(request.points)  # some versions record a run that failed, some do not
    runs = iter(calls if not has_all else [run for place, run in enumerate(calls) if place not in failed])
    return Traced(
        onnxruntime.__version__,
        str(ran),
        initial_nbytes,
        tuple(
            TracedRun((), failed[place])
            if place in failed
            else TracedRun(tuple(_nodes(next(runs, []), initial_nbytes)))
            for place in range(len(request.points))
        ),
    )


def _runs(lines: Iterator[str]) -> Iterator[list[dict[str, Any]]]:
    """Yield the events of the kernels of each run that finished."""
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


def _nbytes_before(event: Mapping[str, Any]) -> int | None:
    arguments = event["args"]
    if "mem_bytes_requested_in_use" not in arguments:
        return None
    return int(arguments["mem_bytes_requested_in_use"]) - int(arguments["mem_requested_in_use_delta"])


def _nodes(events: list[dict[str, Any]], initial_nbytes: int | None) -> Iterator[TracedNode]:
    """Yield the calls. Those that began after an If, Loop or Scan began, and ended before it, ran in it."""
    within: dict[int, int] = {}
    waiting: list[int] = []
    for place, event in enumerate(events):
        if event["args"].get("op_name") in _HOLDERS:
            while waiting and int(events[waiting[-1]]["ts"]) >= int(event["ts"]):
                within[waiting.pop()] = place
        waiting.append(place)
    for place, event in enumerate(events):
        arguments = event["args"]
        live = arguments.get("mem_bytes_requested_in_use")
        yield TracedNode(
            event["name"].removesuffix(_KERNEL_TIME),
            str(arguments.get("op_name", "")),
            _typed(arguments.get("input_type_shape", ())),
            _typed(arguments.get("output_type_shape", ())),
            None if live is None or initial_nbytes is None else int(live) - initial_nbytes,
            within.get(place),
        )


def _typed(type_shapes: Any) -> tuple[Typed, ...]:
    return tuple((str(kind), tuple(dims)) for each in type_shapes for kind, dims in each.items())
