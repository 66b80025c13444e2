"""A model and what it is fed -> the values that it makes, outputs and inner ones: by a process of its own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec
import numpy as np

from analyzer.process.child import read_frame, write_frame
from analyzer.timing.request import Feed


class Question(msgspec.Struct, frozen=True):
    """What is to be run."""

    model: str
    feeds: list[dict[str, object]]
    """The fields of `Feed`."""
    seed: int
    level: str
    """Of onnxruntime's optimizations, such as `ORT_DISABLE_ALL`."""
    wanted: list[str]
    """Values of the main graph; those that are no outputs are made outputs."""
    target: str
    """The file that the values are written to, `v0`, `v1` and so on in the order of `wanted`."""
    given: str = ""
    """A file with the inputs themselves, `v0` and so on; empty where `feeds` say how they are made."""
    names: list[str] = []
    """What these inputs are called, in their order."""


def serve() -> None:
    """Answer questions that come on stdin: the places of the values that were written, or a sentence."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print
    while (question := read_frame(sys.stdin.buffer)) is not None:
        asked = msgspec.json.decode(question, type=Question)
        try:
            answer: list[int] | str = _run(asked)
        except Exception as error:  # noqa: BLE001 - onnxruntime's classes have no base of their own
            answer = f"{type(error).__name__}: {error}"
        write_frame(answers, msgspec.json.encode(answer))
    os._exit(0)


def _run(asked: Question) -> list[int]:
    import onnx
    import onnxruntime

    from analyzer.timing.inputs.arrays import make_array

    proto = onnx.load(asked.model, load_external_data=False)
    known = {output.name for output in proto.graph.output}
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in asked.wanted if name not in known)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, asked.level)
    folder = str(Path(asked.model).resolve().parent)
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    feeds = [msgspec.convert(fields, Feed) for fields in asked.feeds]
    arrays = {feed.name: make_array(feed, asked.seed) for feed in feeds}
    if asked.given:
        with np.load(asked.given) as held:
            arrays = {name: held[f"v{place}"] for place, name in enumerate(asked.names)}
    found = session.run(asked.wanted, arrays)
    kept = {
        f"v{place}": value
        for place, value in enumerate(found)
        if isinstance(value, np.ndarray) and value.dtype != object
    }
    np.savez(asked.target, allow_pickle=False, **kept)
    return [int(name[1:]) for name in kept]
