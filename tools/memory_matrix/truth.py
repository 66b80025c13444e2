"""A file and its inputs -> the bytes that onnxruntime holds after each node, by its profile."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analyzer.cost.memory.opened import LEVELS

__all__ = ["Ran", "Truth", "run"]

_NBYTES = {
    "float": 4, "double": 8, "float16": 2, "bfloat16": 2, "bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2,
    "int32": 4, "uint32": 4, "int64": 8, "uint64": 8,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Ran:
    """A node that ran."""

    op_type: str
    live: int
    """Bytes requested in the run and not freed when the node has run."""

    outputs: tuple[int, ...]
    """Bytes of each present output."""


@dataclass(frozen=True, slots=True)
class Truth:
    """One run."""

    nodes: tuple[Ran, ...]
    requested_before: int
    """Bytes that the session had requested before the run."""


def run(path: Path, feeds: Mapping[str, Any], level: str, *, prepacking: bool = True) -> Truth:
    """Run a file once, without memory patterns, which would request all memory at once.

    Raises:
        Exception: onnxruntime's own, of many classes.
    """
    import onnxruntime

    with tempfile.TemporaryDirectory() as folder:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(folder, "profile"))
        options.enable_mem_pattern = False
        options.intra_op_num_threads = 1
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, LEVELS[level])
        if not prepacking:
            options.add_session_config_entry("session.disable_prepacking", "1")
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        session.run(None, dict(feeds))
        events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    records = [event["args"] for event in events if event["cat"] == "Node"]
    requested_before = (
        int(records[0]["mem_bytes_requested_in_use"]) - int(records[0]["mem_requested_in_use_delta"])
        if records
        else 0
    )
    return Truth(tuple(_read_node(each, requested_before) for each in records), requested_before)


def _read_node(record: Mapping[str, Any], requested_before: int) -> Ran:
    outputs = tuple(
        _NBYTES.get(kind, 0) * math.prod(shape)
        for typed in record["output_type_shape"]
        for kind, shape in typed.items()
    )
    return Ran(record["op_name"], int(record["mem_bytes_requested_in_use"]) - requested_before, outputs)
