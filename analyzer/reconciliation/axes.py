"""A stored tensor's name and what reads it -> whether its axes likely stand as PyTorch has them, or turned."""

from __future__ import annotations

from analyzer.ledger import Entry
from analyzer.manifest import Buffer, Parameter
from analyzer.model.operators import DECODES, Kind, named
from analyzer.scopes import float_name
from analyzer.wiring import Wiring

__all__ = [
    "PACKS_TRANSPOSE",
    "is_computed",
    "is_convolved",
    "is_own",
    "is_straight",
    "is_turnable",
    "is_turned",
]

PACKS_TRANSPOSE = frozenset({"MatMulBnb4", "MatMulNBits"})
"""Operators whose weight stands for the transpose of the matrix that MatMul had."""

_CONVOLUTIONS = named(Kind.CONVOLUTION)
"""Operators whose weight has the axes that PyTorch's has."""

_INTEGER_PRODUCTS = frozenset(
    {"DynamicQuantizeMatMul", "MatMulInteger", "MatMulIntegerToFloat", "QLinearMatMul"}
)
"""Operators whose weight a quantizer may have turned, where it stood for what Gemm reads."""


def is_computed(entry: Entry, tensor: Parameter | Buffer) -> bool:
    """Whether a stored tensor does not bear its own PyTorch name, so that an exporter made it of that."""
    name = float_name(entry.tensor.name)
    return name not in tensor.names and name not in entry.sources


def is_own(entry: Entry, tensor: Parameter | Buffer) -> bool:
    """Whether a stored tensor bears a tensor's name, but for a prefix."""
    stored = f".{float_name(entry.tensor.name)}"
    return any(stored.endswith(f".{name}") or f".{name}".endswith(stored) for name in tensor.names)


def is_turned(entry: Entry, wiring: Wiring, *, is_computed: bool) -> bool:
    """Whether a matrix is the transpose of PyTorch's as far as its name and the operator that reads it tell."""
    if entry.read_by in PACKS_TRANSPOSE:
        return not is_computed
    reads = wiring.readers(entry.tensor)
    return is_computed and not any(r.node.op_type == "Gemm" and r.node.integers.get("transB") for r in reads)


def is_straight(entry: Entry, wiring: Wiring) -> bool:
    """Whether the operator that reads a matrix takes it as PyTorch has it, a row for each output or token."""
    return any(
        (node.op_type == "Gemm" and slot == 1 and node.integers.get("transB") == 1)
        or (node.op_type == "Gather" and slot == 0)
        for node, slot in wiring.readers(entry.tensor)
    )


def is_convolved(entry: Entry, wiring: Wiring) -> bool:
    """Whether a convolution reads a tensor as it is stored, decoded or cast."""
    reads = wiring.readers(entry.tensor, past=DECODES)
    return any(node.op_type in _CONVOLUTIONS and slot > 0 for node, slot in reads)


def is_turnable(entry: Entry) -> bool:
    """Whether codes may be of the transpose of what their name says: a quantizer turns what Gemm reads."""
    return entry.read_by in _INTEGER_PRODUCTS
