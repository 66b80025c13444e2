"""Ledger -> summary: operators, the quantization of weights, and wasted bytes."""

from __future__ import annotations

from collections import Counter, defaultdict
from operator import attrgetter
from typing import Literal, NamedTuple

from analyzer.account.decoding import CODES
from analyzer.account.decoding.encodings import find_packing
from analyzer.account.findings.facts import count_freed
from analyzer.account.ledger import Entry, Ledger, Role, in_entry_order
from analyzer.model import Carrier, StoredTensor, is_training
from analyzer.model.operators import MOVES
from analyzer.model.wiring import Wiring
from analyzer.read.book import NODE_METADATA, ORPHANED, UNKNOWN


class OperatorCount(NamedTuple):
    """One operator: the number of its nodes in all graphs and functions, and the parameters that it computes with."""

    op_type: str
    """Operator name in the file; "" stands for parameters that no node computes with."""
    domain: str
    """Domain of its operator set; "ai.onnx" is the default one."""
    nodes: int
    parameters: int
    """Learned elements of the tensors that a node of this operator is the first to compute with."""


def count_operators(ledger: Ledger) -> tuple[OperatorCount, ...]:
    """Count the nodes and parameters of every operator, most nodes first; parameters sum to the ledger's.

    A weight is booked on the first node, in file order, that computes with it. Nodes that move, cast or decode it on
    the way (Transpose, Reshape, Cast, DequantizeLinear) are passed.
    """
    nodes: Counter[tuple[str, str]] = Counter()
    node_counts = Counter(map(attrgetter("op_type", "domain"), ledger.model.nodes()))
    for (op_type, domain), count in node_counts.items():
        nodes[op_type, domain or "ai.onnx"] += count
    elements_by_operator: dict[tuple[str, str] | None, int] = defaultdict(int)
    node_at = ledger.wiring.node_at
    for entry, place in zip(ledger.entries, in_entry_order(ledger.entries, ledger.computing), strict=True):
        if entry.parameters:
            node = None if place is None else node_at(place)
            elements_by_operator[None if node is None else (node.op_type, node.domain)] += entry.parameters
    parameters: Counter[tuple[str, str]] = Counter()
    for operator, elements in elements_by_operator.items():
        parameters[("", "") if operator is None else (operator[0], operator[1] or "ai.onnx")] += elements
    keys = sorted(nodes.keys() | parameters.keys(), key=lambda key: (-nodes[key], key))
    return tuple(OperatorCount(*key, nodes[key], parameters[key]) for key in keys)


Scheme = Literal["block", "qdq", "qoperator", "dynamic", "codes"]
"""Quantization scheme: blocks with a scale each; DequantizeLinear before the operator; operators on codes; weights as
codes whose other operand is quantized when the model runs; codes that the file does not say how to decode.
"""


class Quantized(NamedTuple):
    """Learned tensors that are stored as codes in the same way."""

    scheme: Scheme
    bits: int
    block_size: int | None
    """Elements that share a scale; None if each channel, or the whole tensor, has one."""
    tensors: int
    parameters: int


def count_quantized(ledger: Ledger) -> tuple[Quantized, ...]:
    """Count a model's quantized learned tensors by scheme, most parameters first; empty if there are none."""
    found: dict[tuple[Scheme, int, int | None], list[Entry]] = defaultdict(list)
    for entry in ledger.entries:
        if entry.role is Role.PARAMETER and entry.tensor.dtype in CODES:
            found[_scheme_of(entry.tensor, ledger.wiring)].append(entry)
    rows = [
        Quantized(*key, len(entries), sum(entry.parameters for entry in entries))
        for key, entries in found.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.parameters, row.scheme, row.bits, row.block_size or 0)))


def _scheme_of(tensor: StoredTensor, wiring: Wiring) -> tuple[Scheme, int, int | None]:
    packing = find_packing(tensor, wiring)
    bits = tensor.dtype.bits if packing is None else packing.bits
    for node, _ in wiring.readers(tensor, past=MOVES | _GATHERS):
        block = node.integers.get("block_size", 0) or None
        if node.op_type in _IN_BLOCKS or (node.op_type == "DequantizeLinear" and block):
            return "block", bits, block
        if node.op_type == "DequantizeLinear":
            return "qdq", bits, None
        if node.op_type.startswith("QLinear") or node.op_type in _ON_CODES:
            return "qoperator", bits, None
        if node.op_type in _AT_RUN_TIME:
            return "dynamic", bits, None
    return ("codes" if packing is None else "block"), bits, None


_GATHERS = frozenset({"Gather", "GatherElements", "GatherND"})
"""Operators that pick codes from a table, which are decoded afterwards."""

_IN_BLOCKS = frozenset({"GatherBlockQuantized", "MatMulBnb4", "MatMulNBits", "QMoE"})
_ON_CODES = frozenset({"QAttention", "QEmbedLayerNormalization", "QGemm"})
_AT_RUN_TIME = frozenset(
    {"ConvInteger", "DynamicQuantizeLSTM", "DynamicQuantizeMatMul", "MatMulInteger", "MatMulIntegerToFloat"}
)


def count_wasted(ledger: Ledger) -> int:
    """Return the bytes on disk that nobody needs, each once: copies, unused initializers, node metadata, unread data.

    Tensors that could not be compared may be copies, and are not counted.
    """
    needed = None if ledger.live is None else ledger.live.needed
    unneeded = [
        entry
        for entry in ledger.entries
        if entry.copy_of is not None
        or (
            needed is not None
            and entry.tensor.carrier is Carrier.INITIALIZER
            and entry.tensor.key not in needed
            and not (entry.uses and is_training(entry.tensor.graph_path))
        )
    ]
    booked = {account.name: account.nbytes for account in ledger.accounts}
    unread = sum(booked.get(name, 0) for name in (NODE_METADATA, UNKNOWN, ORPHANED))
    return count_freed(unneeded, ledger.entries, ledger.model) + unread
