"""What values give away, and what is made when a model runs -> findings."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from analyzer.classify.structure import role_by_structure
from analyzer.decoding.encodings import find_packing
from analyzer.dtypes import DType
from analyzer.findings.evidence import Evidence, labels, sum_elements, sum_nbytes
from analyzer.findings.ids import OPAQUE
from analyzer.ledger import Entry, Finding, Role, Severity
from analyzer.model import Carrier, Node, NoPayload, Place, StoredTensor, label
from analyzer.units import format_count, format_doing, format_many, printable_name
from analyzer.wiring import Wiring

__all__ = ["find_opaque_data", "find_packed", "find_runtime_weights", "find_values"]

_PACKED = frozenset({"MatMulBnb4", "MatMulNBits"})
"""Operators that say how many elements they unpack."""


def find_packed(evidence: Evidence) -> Iterator[Finding]:
    """Packed weights whose codes are not as many as the operator that unpacks them says."""
    if not any(node.op_type in _PACKED for node in evidence.model.nodes()):
        return
    pairs = ((entry, find_packing(entry.tensor, evidence.wiring)) for entry in evidence.entries)
    wrong = [(entry, found) for entry, found in pairs if found is not None and not found.is_sound]
    if wrong:
        entry, found = wrong[0]
        taken = f"take {format_count(found.least // 8)}"
        taken += f" to {format_count(found.most // 8)}" if found.most > found.least else ""
        said = f"{format_many(found.numel, 'element')} of {format_many(found.bits, 'bit')}"
        message = (
            f"{format_doing(len(wrong), 'packed weight', 'disagree')} with the operator: "
            f"{printable_name(label(entry.tensor.key))} has {format_many(found.stored // 8, 'byte')}, {said} {taken}"
        )
        yield Finding("packed-mismatch", Severity.ERROR, message, labels(entry for entry, _ in wrong))


_FEW = 64
"""Elements of a shape that is read to know what ConstantOfShape makes."""


def find_values(evidence: Evidence) -> Iterator[Finding]:
    """Weights of one value, and of none."""
    values = evidence.values
    constant = [entry for entry in evidence.entries if entry.tensor.key in values.constant]
    if constant:
        message = f"{format_doing(sum_elements(constant), 'learned element', 'are')} in tensors of one value throughout"
        is_most = _are_most(evidence.entries, constant)
        message += ", most of the model: nobody trained it, or its weights were not loaded" if is_most else ""
        nbytes = None if values.sampled else _count_repeated(evidence, constant)
        severity = Severity.WARNING if is_most else Severity.NOTE
        yield Finding("constant-filled", severity, message, labels(constant), nbytes)
    broken = [entry for entry in evidence.entries if entry.tensor.key in values.not_finite]
    if broken:
        message = f"{format_doing(len(broken), 'tensor', 'hold')} NaN or infinity"
        yield Finding("nan-or-inf", Severity.WARNING, message, labels(broken))


def _are_most(entries: Sequence[Entry], constant: Sequence[Entry]) -> bool:
    """Whether matrices of one value are more than half of what is learned; vectors of one value a fresh model has."""
    matrices = sum_elements(entry for entry in constant if len(entry.tensor.shape) > 1)
    return 2 * matrices > sum_elements(entry for entry in entries if entry.role is Role.PARAMETER)


def _count_repeated(evidence: Evidence, constant: Sequence[Entry]) -> int | None:
    """Bytes that say one number again and again: what is left once each tensor says it once."""
    once = sum(entry.tensor.nbytes // entry.tensor.numel for entry in constant)
    return max(0, (evidence.freed(constant) or 0) - once) or None


def find_opaque_data(evidence: Evidence) -> Iterator[Finding]:
    """Data that computes, and that is no parameter, no scale of codes, and no table that is known by its values."""
    opaque = evidence.opaque
    if opaque is None or not (opaque.tensors or opaque.made):
        return
    entries = [entry for entry in evidence.entries if entry.tensor.key in opaque.tensors]
    stored = f"{format_many(sum_elements(entries), 'element')} ({format_many(sum_nbytes(entries), 'byte')})"
    made = f"what {format_doing(len(opaque.made), 'node', 'make')} when the model runs"
    said = " and ".join((stored,) * bool(entries) + (made,) * bool(opaque.made))
    message = f"{said}: data that computes, and that is no parameter, no scale of codes and no known table"
    names = {label((place[0], name)) for place in opaque.made for name in _made_by(evidence, place)}
    yield Finding(OPAQUE, Severity.WARNING, message, tuple(sorted({*labels(entries), *names})))


def _made_by(evidence: Evidence, place: Place) -> tuple[str, ...]:
    graph = next(graph for graph in evidence.model.graphs if graph.path == place[0])
    return graph.nodes[place[1]].outputs[:1]


def find_runtime_weights(evidence: Evidence) -> Iterator[Finding]:
    """What ConstantOfShape makes of a stored shape, where it is read as weights are."""
    made: dict[str, int] = {}
    for node in evidence.model.nodes():
        if node.op_type == "ConstantOfShape" and node.domain in ("", "ai.onnx") and node.outputs:
            shape = _stored_shape(evidence.wiring, node)
            if shape is not None:
                numel = math.prod(shape)
                tensor = StoredTensor(
                    node.outputs[0],
                    node.graph_path,
                    Carrier.CONSTANT,
                    DType.FLOAT,
                    shape,
                    numel,
                    0,
                    NoPayload(),
                )
                decided = role_by_structure(evidence.wiring, node, tensor)
                if decided is not None and decided[0] is Role.PARAMETER:
                    made[label((node.graph_path, node.outputs[0]))] = numel
    if made:
        said = format_doing(sum(made.values()), "element", "are")
        message = (
            f"{said} made by ConstantOfShape when the model runs, where weights belong; what is in no file is not "
            "counted"
        )
        yield Finding("runtime-weights", Severity.WARNING, message, tuple(sorted(made)))


def _stored_shape(wiring: Wiring, node: Node) -> tuple[int, ...] | None:
    """The shape that a ConstantOfShape node is given, if it is a stored tensor."""
    for source in wiring.producers(node):
        is_short = isinstance(source, StoredTensor) and source.numel <= _FEW
        if isinstance(source, StoredTensor) and is_short and source.dtype is DType.INT64:
            array = source.payload.array()
            shape = () if array is None else tuple(map(int, array.reshape(-1)))
            if array is not None and array.ndim <= 1 and min(shape, default=0) >= 0:
                return shape
    return None
