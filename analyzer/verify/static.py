"""Two graphs -> differences of their nodes, found without running: operators, attributes, small constants, inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

import numpy as np

from analyzer.account.ledger import Ledger
from analyzer.model import Graph, Node, StoredTensor
from analyzer.verify.record import Difference

_MOST_COMPARED = 16
"""Most elements of a stored tensor that is compared number by number."""

DEFAULTS: Mapping[str, Mapping[str, object]] = {
    "LayerNormalization": {"axis": -1, "epsilon": 1e-5, "stash_type": 1},
    "Gelu": {"approximate": "none"},
    "Gemm": {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 0},
    "Gather": {"axis": 0},
    "Reshape": {"allowzero": 0},
    "Cast": {"saturate": 1},
    "Conv": {"group": 1},
    "BatchNormalization": {"epsilon": 1e-5, "momentum": 0.9, "training_mode": 0},
    "ReduceMean": {"keepdims": 1, "noop_with_empty_axes": 0},
    "Shape": {"start": 0},
}
"""Defaults of attributes of ONNX's own operators, the same in every version that has them (ONNX operator schemas)."""


def count_alike(ours: Ledger, theirs: Ledger) -> int:
    """Return the number of nodes of one file that have a counterpart of the same name in the other."""
    others = _by_output(theirs.model.graphs[0])
    return sum(1 for node in ours.model.graphs[0].nodes if _counterpart(node, others) is not None)


def find_differences(ours: Ledger, theirs: Ledger) -> Iterator[Difference]:
    """Yield the differences of nodes that make values of the same name, in the order of the first file."""
    graph, other = ours.model.graphs[0], theirs.model.graphs[0]
    others = _by_output(other)
    stored, stored_there = small_tensors(graph), small_tensors(other)
    for node in graph.nodes:
        twin = _counterpart(node, others)
        if twin is None or node.op_type == "Constant":
            continue
        name = node.name or next(filter(None, node.outputs), "")
        module = ours.node_scopes.get(node.place)
        for kind, parameter, expected, found in compare_nodes(node, twin, stored, stored_there):
            yield Difference(module, parameter, name, kind, expected, found)


def _by_output(graph: Graph) -> Mapping[str, Node]:
    return {name: node for node in graph.nodes for name in node.outputs if name}


def _counterpart(node: Node, others: Mapping[str, Node]) -> Node | None:
    return next((others[name] for name in node.outputs if name in others), None)


def small_tensors(graph: Graph) -> Mapping[str, StoredTensor]:
    """Return the stored tensors that are small enough to compare, by name."""
    return {tensor.name: tensor for tensor in graph.tensors if tensor.numel <= _MOST_COMPARED}


Kind = Literal["operator", "attribute", "constant", "input"]


def compare_nodes(
    node: Node, twin: Node, stored: Mapping[str, StoredTensor], stored_there: Mapping[str, StoredTensor]
) -> Iterator[tuple[Kind, str | None, str, str]]:
    """Yield each difference: kind, parameter, the other file in words, this file in words.

    Args:
        node: node of MODEL.
        twin: node of the other file.
        stored: MODEL's small tensors, by name.
        stored_there: the other file's small tensors, by name.
    """
    if (node.op_type, node.domain) != (twin.op_type, twin.domain):
        yield "operator", None, _operator(twin), _operator(node)
        return
    ours, theirs = _settings(node), _settings(twin)
    for key in sorted(ours.keys() | theirs.keys()):
        if ours.get(key) != theirs.get(key):
            yield (
                "attribute",
                None,
                f"{key} {_format_value(theirs.get(key, 'default'))}",
                f"{key} {_format_value(ours.get(key, 'default'))}",
            )
    for slot, (our_name, their_name) in enumerate(zip(node.inputs, twin.inputs, strict=False)):
        a, b = stored.get(our_name), stored_there.get(their_name)
        if a is not None and b is not None:
            if _numbers(a) != _numbers(b) and not _is_rounded(a, b):
                found, expected = _format_first_numbers(a, b)
                yield "constant", our_name, expected, found
        elif our_name != their_name and (a is None) == (b is None):
            yield "input", our_name, f"input {slot} {their_name}", f"input {slot} {our_name}"
    if len(node.inputs) != len(twin.inputs):
        yield "input", None, f"{len(twin.inputs)} inputs", f"{len(node.inputs)} inputs"


def _operator(node: Node) -> str:
    return node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"


def without_defaults(op_type: str, domain: str, settings: Mapping[str, object]) -> dict[str, object]:
    """Return the attributes whose values are not the defaults."""
    defaults = DEFAULTS.get(op_type, {}) if domain in ("", "ai.onnx") else {}
    return {key: value for key, value in settings.items() if key not in defaults or defaults[key] != value}


def _settings(node: Node) -> dict[str, object]:
    return without_defaults(node.op_type, node.domain, {**node.integers, **node.settings})


def _format_value(value: object) -> str:
    """Format an attribute; a float, stored in single precision, in the fewest digits that identify it."""
    return str(np.float32(value)) if isinstance(value, float) else str(value)


def _is_rounded(one: StoredTensor, other: StoredTensor) -> bool:
    """Whether one tensor is the other, rounded to half precision."""
    if "FLOAT16" not in (one.dtype.name, other.dtype.name) or one.shape != other.shape:
        return False
    a, b = one.payload.array(), other.payload.array()
    if a is None or b is None:
        return False
    a, b = a.astype(np.float64), b.astype(np.float64)
    is_same = (a == b) | (np.isnan(a) & np.isnan(b))  # infinite numbers have no difference
    a, b = a[~is_same], b[~is_same]
    if not (np.isfinite(a) & np.isfinite(b)).all():
        return False
    return bool((np.abs(a - b) <= np.maximum(2.0**-11 * np.abs(b), _LEAST_HALF)).all())


_LEAST_HALF = 1.2e-7
"""Magnitude to which tools raise smaller numbers, of which half precision has hardly any."""


def _numbers(tensor: StoredTensor) -> str:
    """Return all numbers of a tensor as text, for comparison."""
    array = tensor.payload.array()
    if array is None:
        return f"{tensor.dtype.name} that cannot be read"
    return f"{tensor.dtype.name} {array.reshape(-1).tolist()}"


def _format_first_numbers(one: StoredTensor, other: StoredTensor) -> tuple[str, str]:
    """Return a few numbers of each tensor as text, from the first difference on."""
    a, b = one.payload.array(), other.payload.array()
    first = 0
    if a is not None and b is not None and a.size == b.size and max(a.size, b.size) > _FEW:
        differing = np.flatnonzero(a.reshape(-1) != b.reshape(-1))
        first = min(int(differing[0]), a.size - _FEW) if differing.size else 0
    return _format_few(one, first), _format_few(other, first)


def _format_few(tensor: StoredTensor, first: int) -> str:
    array = tensor.payload.array()
    if array is None:
        return f"{tensor.dtype.name} that cannot be read"
    flat = array.reshape(-1)
    if flat.size <= _FEW:
        return f"{tensor.dtype.name} {flat.tolist()}"
    shape = "x".join(map(str, tensor.shape))
    few = ", ".join(_format_value(each) for each in flat[first : first + _FEW].tolist())
    return f"{tensor.dtype.name} {shape}: {f'... at {first:,} ' if first else ''}{few}, ..."


_FEW = 4
"""Most numbers of a tensor that fit in a line."""
