"""A file and its inputs -> other tools' counts, by an interpreter that has the tools."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

PEERS = ("onnxsim", "onnx-tool")

_SECONDS = 60
_SCRIPT = """
import contextlib, io, json, sys
import numpy, onnx

path, sizes, counts = sys.argv[1], json.loads(sys.argv[2]), {}

def fixed():
    model = onnx.load(path)
    for value in model.graph.input:
        for dim, size in zip(value.type.tensor_type.shape.dim, sizes.get(value.name, ("", ()))[1]):
            dim.dim_value = size
    return model

def onnxsim():
    from onnxsim.model_info import ModelInfo
    return ModelInfo(fixed()).macs

def onnx_tool():
    import onnx_tool
    graph = onnx_tool.Model(fixed()).graph
    graph.shape_infer({name: numpy.zeros(shape, kind) for name, (kind, shape) in sizes.items()})
    graph.profile()
    macs = graph.macs
    return int(macs[0] if isinstance(macs, (list, tuple)) else macs)

with contextlib.redirect_stdout(io.StringIO()):
    for name, count in (("onnxsim", onnxsim), ("onnx-tool", onnx_tool)):
        try:
            counts[name] = str(count())
        except Exception as error:
            counts[name] = f"error: {type(error).__name__}: {error}"[:200]
sys.__stdout__.write(json.dumps(counts))
"""


class Count(StrEnum):
    """Quality of a tool's count."""

    EXACT = "exact"
    WRONG = "another number"
    OPEN = "an expression with sizes that no input has"
    ERROR = "an error"


def query_peers(
    python: Path, path: Path, inputs: Mapping[str, tuple[str, tuple[int, ...]]]
) -> Mapping[str, str]:
    """Return each tool's count of a file, after these sizes of the inputs have been written into the file."""
    command = [str(python), "-c", _SCRIPT, str(path), json.dumps(inputs)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return dict.fromkeys(PEERS, "error: no answer")
    try:
        counts: Mapping[str, str] = json.loads(done.stdout)
    except ValueError:
        return dict.fromkeys(PEERS, "error: it ended")
    return counts


def judge(count: str, macs: int, axes: Mapping[str, int]) -> Count:
    """Compare a tool's count with the multiply-accumulates of the run."""
    if count.startswith("error"):
        return Count.ERROR
    names = set(re.findall(r"[A-Za-z_]\w*", count))
    if names - set(axes):
        return Count.OPEN
    try:
        number = eval(count, {"__builtins__": {}}, dict(axes))
    except (SyntaxError, NameError, TypeError, ArithmeticError):
        return Count.OPEN
    return Count.EXACT if number == macs else Count.WRONG
