"""The installed onnxruntime -> the kernels that reuse the memory of an input, in place or as an alias."""

from __future__ import annotations

import json
import math
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx

from analyzer.read.expanded import kernel_name
from tools.kernels.probes import Probe, build, probes

__all__ = ["Learnt", "learn", "learn_functions", "learn_halves"]

Learnt = dict[tuple[str, str], set[tuple[int, int]]]
"""(domain, operator) -> pairs of an input and the output that takes its memory."""

_NBYTES = {"float": 4, "int64": 8, "int32": 4, "bool": 1, "uint8": 1, "int8": 1, "double": 8, "float16": 2}
_DTYPES = {
    1: "float32",
    2: "uint8",
    3: "int8",
    6: "int32",
    7: "int64",
    9: "bool",
    10: "float16",
    11: "float64",
}


def learn(opset: int) -> tuple[Learnt, Learnt, set[tuple[str, str]]]:
    """Return the aliases, the kernels that work in place, and all kernels that ran."""
    aliases: Learnt = defaultdict(set)
    in_place: Learnt = defaultdict(set)
    ran = set()
    for probe in probes():
        for watched, each in enumerate(probe.inputs):
            if each is None or watched in probe.constants or not each[1]:
                continue
            key = (probe.domain, probe.op_type)
            output = _find_reusing_output(probe, opset, watched, read_later=False)
            if output is None:
                continue
            ran.add(key)
            if output < 0:
                continue
            always = _find_reusing_output(probe, opset, watched, read_later=True) == output
            (aliases if always else in_place)[key].add((watched, output))
    return aliases, in_place, ran


def learn_halves(opset: int) -> tuple[set[str], set[str]]:
    """Return the kernels for FLOAT16, and those for which a session inserts Casts, around them or in their function.

    A kernel is named by its operator and the ONNX version of the operator's last change.
    """
    own, widened = set[str](), set[str]()
    for probe in probes():
        places = [
            place
            for place, each in enumerate(probe.inputs)
            if each is not None and each[0] == onnx.TensorProto.FLOAT
        ]
        free = [
            place
            for place, each in enumerate(probe.inputs)
            if each is not None and place not in probe.constants and each[1]
        ]
        if not places or not free:
            continue
        name = kernel_name(probe.domain, probe.op_type, opset)
        half = replace(
            probe,
            inputs=tuple(
                (onnx.TensorProto.FLOAT16, each[1]) if each is not None and place in places else each
                for place, each in enumerate(probe.inputs)
            ),
        )
        nodes = _loaded(build(half, opset, free[0], read_later=False))
        if nodes:
            kept = any(node.op_type == probe.op_type for node in nodes)
            is_own = kept and not any(node.name.startswith("Inserted") for node in nodes)
            if kept or not probe.domain:  # only onnxruntime knows the bodies of its own functions
                (own if is_own else widened).add(name)
    return own - widened, widened


def learn_functions() -> list[str]:
    """Return ONNX's operators that are functions and have no kernel of the CPU provider, for any type."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    implemented = {
        kernel.op_name
        for kernel in state.get_all_opkernel_def()
        if kernel.provider == "CPUExecutionProvider" and not kernel.domain
    }
    functions = {
        schema.name
        for schema in onnx.defs.get_all_schemas_with_history()
        if not schema.domain and schema.all_function_opset_versions  # type: ignore[attr-defined]  # not in onnx's stubs
    }
    return sorted(functions - implemented)


def _loaded(model: bytes) -> list[onnx.NodeProto]:
    """Return the nodes of a model as a session loads it; none if it does not load."""
    import onnxruntime

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "loaded.onnx")
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.optimized_model_filepath = str(path)
        try:
            onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        except Exception:  # noqa: BLE001 - onnxruntime's classes have no base of their own
            return []
        return list(onnx.load(path).graph.node)


def _find_reusing_output(probe: Probe, opset: int, watched: int, *, read_later: bool) -> int | None:
    """Return the output that took the memory of an input; -1 if none did, None if the node does not run."""
    with tempfile.TemporaryDirectory() as folder:
        events = _run(build(probe, opset, watched, read_later=read_later), probe, Path(folder))
    for event in events:
        if event["name"] == "probe_kernel_time":
            arguments = event["args"]
            sizes = [_nbytes(each) for each in arguments["output_type_shape"]]
            saved = sum(sizes) - int(arguments["mem_requested_in_use_delta"])
            return sizes.index(saved) if saved in sizes and saved else -1
    return None


def _nbytes(typed: Mapping[str, list[int]]) -> int:
    ((kind, shape),) = typed.items()
    return _NBYTES.get(kind, 0) * math.prod(shape)


def _run(model: bytes, probe: Probe, folder: Path) -> list[dict[str, Any]]:
    import numpy
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.enable_profiling = True
    options.profile_file_prefix = str(folder / "profile")
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.enable_mem_pattern = False
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        feeds = {
            f"x{number}": numpy.ones(each[1], _DTYPES[each[0]])
            for number, each in enumerate(probe.inputs)
            if each is not None and number not in probe.constants
        }
        session.run(None, feeds)
    except Exception:  # noqa: BLE001 - onnxruntime's classes have no base of their own
        return []
    events: list[dict[str, Any]] = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    return events
