"""What a rule can ask of a model: each metric's name, its unit, and what exactly it counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from analyzer.budget.record import Unit

__all__ = ["METRICS", "Kind", "Metric"]

Kind: TypeAlias = Literal["most", "least", "among"]
"""What a limit without a word is: not more than a number, not less, or none but these names."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One thing that is counted."""

    name: str
    unit: Unit
    kind: Kind
    has_groups: bool
    """Whether it can be asked of a group alone."""
    meaning: str
    """One sentence for people."""


_ALL: tuple[Metric, ...] = (
    Metric(
        "parameters", Unit.PARAMETERS, "most", True, "Learned elements; what is stored twice counts once."
    ),
    Metric(
        "bytes",
        Unit.BYTES,
        "most",
        True,
        "All bytes of all files on disk, external data included; of a group the encoded payload of its tensors.",
    ),
    Metric(
        "stored-elements",
        Unit.ELEMENTS,
        "most",
        True,
        "Elements of all stored tensors, copies and constants included.",
    ),
    Metric(
        "stored-bytes",
        Unit.BYTES,
        "most",
        True,
        "Encoded payload of all stored tensors, without what surrounds it in the files.",
    ),
    Metric("tensors", Unit.TENSORS, "most", True, "Stored tensors, of every role and every carrier."),
    Metric(
        "nodes",
        Unit.NODES,
        "most",
        True,
        "Nodes of all graphs, nested ones and bodies of functions included.",
    ),
    Metric(
        "calls",
        Unit.CALLS,
        "most",
        False,
        "How often bodies of local functions are inserted once all calls are inlined; of functions that call "
        "themselves, or are called more than 2^128 times, no limit holds.",
    ),
    Metric(
        "metadata-bytes",
        Unit.BYTES,
        "most",
        False,
        "Bytes without which the model runs as well: the accounts [node metadata] and [model metadata], which are the "
        "metadata_props and doc_strings of nodes, graphs, functions and the model.",
    ),
    Metric(
        "orphaned-bytes",
        Unit.BYTES,
        "most",
        False,
        "Bytes that serve nobody: the accounts [orphaned] and [unknown fields].",
    ),
    Metric("external-bytes", Unit.BYTES, "most", False, "Bytes of the files of external data."),
    Metric(
        "quantization-bytes",
        Unit.BYTES,
        "most",
        True,
        "Payload of scales, zero points and other bookkeeping of quantization.",
    ),
    Metric("largest-tensor-bytes", Unit.BYTES, "most", True, "Payload of the largest stored tensor."),
    Metric("unattributed", Unit.ELEMENTS, "most", True, "Stored elements of tensors that no rule explains."),
    Metric(
        "opaque",
        Unit.ELEMENTS,
        "most",
        True,
        "Elements that compute and that no rule explains, so that they may be learned: the finding opaque.",
    ),
    Metric(
        "duplicates",
        Unit.BYTES,
        "most",
        True,
        "Bytes of tensors whose content stands elsewhere too: as it is, transposed, cast or quantized. Two that "
        "provenance gives PyTorch names of their own are two parameters, whatever they hold.",
    ),
    Metric(
        "external-outside",
        Unit.TENSORS,
        "most",
        False,
        "Tensors whose external data is outside the model's folder: the finding external-escapes.",
    ),
    Metric(
        "opset",
        Unit.VERSION,
        "least",
        False,
        "Version of ONNX's own operators, ai.onnx; of several files the lowest, or for an `at most` the highest.",
    ),
    Metric(
        "ir-version",
        Unit.VERSION,
        "most",
        False,
        "Version of the file format; of several files the highest, or for an `at least` the lowest.",
    ),
    Metric("findings", Unit.FINDINGS, "most", False, "Findings of every severity."),
    Metric(
        "ops",
        Unit.OPERATORS,
        "among",
        True,
        "Operators that nodes use, in nested graphs and functions too: OP_TYPE of ONNX's own, else DOMAIN:OP_TYPE. "
        "The call of a local function is none: the nodes of its body count.",
    ),
    Metric(
        "domains",
        Unit.DOMAINS,
        "among",
        True,
        "Domains of the operators that nodes use, as for ops; ONNX's own is ai.onnx.",
    ),
    Metric("dtypes", Unit.DTYPES, "among", True, "Types of the stored tensors' elements."),
)

METRICS: Mapping[str, Metric] = {metric.name: metric for metric in _ALL}
"""By name, in the order in which they are listed."""
