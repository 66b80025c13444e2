"""Readers of a tensor -> its role, according to the operators' definitions.

Sources: ONNX docs/Operators.md, onnxruntime docs/ContribOperators.md, ONNX docs/Operators-ml.md.

This is the weakest evidence: it is used only if neither metadata nor names decide.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from analyzer.account.decoding import CODES
from analyzer.account.ledger import Role
from analyzer.model import GraphPath, Node, Place, StoredTensor
from analyzer.model.dtypes import DType
from analyzer.model.operators import (
    CARRIES,
    Kind,
    Operator,
    Slot,
    is_integer_product,
    kind_of,
    operator_of,
)
from analyzer.model.wiring import CARRIED, GraphInput, Reader, Wiring, is_passed

_COMPUTES = frozenset(
    {Kind.PRODUCT, Kind.CONVOLUTION, Kind.RECURRENT, Kind.ATTENTION, Kind.NORMALIZES, Kind.LOOKS_UP}
)
"""Kinds of operators whose stored codes are weights. The data operand of integer products is included: the codes of a
table reach it through a Gather. Codes of a quantized sum may be anything.
"""

_LEARNS_ONE = frozenset({"Conv", "ConvTranspose", "PRelu"})
"""Operators for which a vector of one element is still a weight, a bias or a slope. A scalar without an axis was made
by the exporter, such as the zero that fills the missing bias of a convolution.
"""

_BOOKKEEPING = frozenset({("MatMulNBits", 4)})
"""Inputs for indices that assign codes to scales."""

_QUANTIZED = frozenset({DType.INT8, DType.UINT8, DType.INT4, DType.UINT4, DType.INT2, DType.UINT2})
"""Types of a quantized table, whose rows are gathered before they are dequantized."""

_MOMENTS = frozenset({"GlobalAveragePool", "ReduceL2", "ReduceMean", "ReduceSumSquare"})
"""Operators that compute a mean or a norm, as normalizations do: learned vectors scale and shift the result."""

_ARITHMETIC = frozenset(
    {"Add", "Clip", "Div", "Expand", "Max", "Mul", "Neg", "Pow", "Reciprocal", "Sqrt", "Sub"}
)
"""Operators of a decomposed normalization; a bound for a norm, and its repetition for all channels, included."""

_INDEX_TYPES = frozenset({DType.INT32, DType.INT64, DType.BOOL, DType.UINT32, DType.UINT64})
"""Types of shapes, indices and masks. Narrow integers may be weights."""

_FEW = 64
"""Most elements of a narrow integer operand that is taken for a shape, an axis or a flag."""

_FEW_CODES = 10
"""Most elements of codes in a sum or product that are taken for constants of the graph."""

_LEARNED_LISTS = frozenset(
    {
        "base_values",
        "coefficients",
        "intercepts",
        "leaf_weights",
        "nodes_splits",
        "nodes_values",
        "prob_a",
        "prob_b",
        "rho",
        "support_vectors",
        "class_weights",
        "target_weights",
        "offset",
        "scale",
        "imputed_value_floats",
    }
)
"""Attribute lists of `ai.onnx.ml` operators that training computes; the others are ids, modes and labels."""

_MAX_HOPS = 6
"""Most operators between a tensor and the one that explains it: Transpose, Cast, Reshape and Dequantize."""


_Mover = Node | GraphInput
"""A node that moves a value, or the input of a loop's body that keeps it unchanged as a state."""

_COMBINES = frozenset({"Add", "Div", "Mul", "Sub"})
"""Operators that add a bias, or scale and shift a normalization."""

_MOST_COMBINING = 8
"""Most of these nodes that are checked for one tensor of several axes."""

_MOST_OPERANDS, _MOST_BEFORE = 64, 64
"""Most operands of nodes, and most nodes before one, that are visited."""


class _Answers(NamedTuple):
    """Answers of some readers about a tensor; each field comes from the first reader that answers it."""

    decided: tuple[Role, str] | None = None
    """A role other than constant, and its rule."""
    constant: tuple[Role, str] | None = None
    known: Reader | None = None
    """First reader whose operator is defined."""
    affine: Node | None = None
    """First node that would use a vector as the bias of a linear operator, or to scale or shift a normalization."""
    combining: tuple[Node, ...] = ()
    """First few nodes that combine it with another operand, element by element."""
    is_coded: bool = False
    """Whether one of them computes with the numbers that codes represent."""

    def completed_by(self, other: _Answers) -> _Answers:
        """Return these answers, completed by those of later readers."""
        return _Answers(
            self.decided or other.decided,
            self.constant or other.constant,
            self.known or other.known,
            self.affine or other.affine,
            (*self.combining, *other.combining)[:_MOST_COMBINING],
            self.is_coded or other.is_coded,
        )


class Structure:
    """Roles of tensors according to the operators around them, with a cache for tensors of the same readers.

    Thousands of tensors may go into one Concat that thousands of nodes read.
    """

    def __init__(self, wiring: Wiring) -> None:
        self.wiring = wiring
        self._past: dict[tuple[tuple[GraphPath, int | str], int, tuple[object, ...]], _Answers] = {}
        self._sources: dict[tuple[Place, int, str], bool] = {}
        self._before: dict[Place, Sequence[Node]] = {}
        self._operands: dict[Place, Sequence[Node]] = {}

    def role(self, origin: StoredTensor | Node, tensor: StoredTensor) -> tuple[Role, str] | None:
        """Return the role that a tensor's readers give it, and the rule; None if they give none.

        The first reader in file order that explains the tensor decides; one that makes it a constant comes after the
        others. Readers of the tensor itself come first, then those past one node that moves it, and so on.

        Args:
            origin: provider of the tensor's value.
            tensor: tensor whose role is asked.
        """
        readers = self.wiring.readers(origin)
        answers = self._query(readers, tensor)
        movers = self._movers(readers, tensor)
        properties = _relevant_properties(tensor) if movers else ()
        for hops in range(_MAX_HOPS):
            if answers.decided is not None:
                return answers.decided
            for mover in movers:
                answers = answers.completed_by(self._query_past(mover, hops, tensor, properties))
        # A reader that only takes a bound or a size from a weight does not make it a constant: that comes last.
        if answers.decided or answers.constant:
            return answers.decided or answers.constant
        if answers.known is None or answers.known.slot == CARRIED:
            return None
        if not tensor.dtype.is_floating:
            is_coded = tensor.numel > _FEW_CODES and answers.is_coded
            is_index = tensor.dtype in _INDEX_TYPES or (tensor.numel <= _FEW and not is_coded)
            return (Role.CONSTANT, f"structure:{answers.known.node.op_type}-operand") if is_index else None
        if tensor.numel <= 1:
            return Role.CONSTANT, "structure:scalar"
        node = answers.affine
        if node is None and not _is_vector(tensor):
            node = next((each for each in answers.combining if self._takes_whole(each, tensor)), None)
        return None if node is None else (Role.PARAMETER, f"structure:{node.op_type}-vector")

    def _query_past(
        self, mover: _Mover, hops: int, tensor: StoredTensor, properties: tuple[object, ...]
    ) -> _Answers:
        """Return the answers of readers past one mover and `hops` further ones."""
        key = (mover.place if isinstance(mover, Node) else (mover.path, mover.name), hops, properties)
        answers = self._past.get(key)
        if answers is None:
            readers = _readers(self.wiring, mover)
            if hops:
                answers = _Answers()
                for following in self._movers(readers, tensor):
                    answers = answers.completed_by(self._query_past(following, hops - 1, tensor, properties))
            else:
                answers = self._query(readers, tensor)
            self._past[key] = answers
        return answers

    def _movers(self, readers: Iterable[Reader], tensor: StoredTensor) -> list[_Mover]:
        """Return the readers that pass a tensor on, each once: a node, or a loop's body that keeps it as a state."""
        found: dict[tuple[GraphPath, int | str], _Mover] = {}
        for reader in readers:
            kept = self.wiring.kept_in_body(reader)
            if kept is not None:
                found[kept.path, kept.name] = kept
            elif _moves(reader, tensor):
                found[reader.node.place] = reader.node
        return list(found.values())

    def _query(self, readers: Iterable[Reader], tensor: StoredTensor) -> _Answers:
        """Return the answers of the direct readers of a tensor."""
        # A single integer that is cast and repeated may be an initial state of zeros, not a weight.
        is_state = tensor.dtype is DType.INT64 and tensor.numel == 1
        is_vector = _is_vector(tensor)
        answers = _Answers()
        for reader in readers:
            if self.wiring.kept_in_body(reader) is not None:
                continue  # the loop's body reads it
            node = reader.node
            decision = (_by_attribute if reader.slot == CARRIED else _by_slot)(reader, tensor)
            if decision is not None and is_state and decision[0] is Role.PARAMETER:
                decision = None
            is_constant = decision is not None and decision[0] is Role.CONSTANT
            combines = node.op_type in _COMBINES
            is_affine = combines and is_vector and not answers.affine and self._takes_vector(node)
            answers = answers.completed_by(
                _Answers(
                    decided=None if is_constant else decision,
                    constant=decision if is_constant else None,
                    known=reader if node.is_standard else None,
                    affine=node if is_affine else None,
                    combining=(node,) if combines else (),
                    is_coded=_reads_codes(reader),
                )
            )
            if answers.decided is not None:
                break
        return answers

    def _takes_vector(self, node: Node) -> bool:
        """Whether a vector that a node reads is the bias of a linear operator, or scales or shifts a normalization.

        The other operand comes from a linear operator, or, for a decomposed normalization, from a mean or a norm within
        a few operators (the mean of a picture, subtracted as a constant, does not count).
        """
        if self._comes_from(node, _MAX_HOPS, "product") or self._comes_from(node, _MAX_HOPS, "integers"):
            return True
        if node.op_type in ("Add", "Sub") and self._adds_to_scaled(node):
            return True
        if node.op_type == "Mul" and _is_slope(self.wiring, node):
            return True
        return node.op_type in ("Add", "Mul") and self.is_normalized(node)

    def _takes_whole(self, node: Node, tensor: StoredTensor) -> bool:
        """Whether a tensor of several axes is such a bias or part of a decomposed normalization."""
        return self._is_bias_of_heads(node, tensor) or self._is_decomposed_norm(node)

    def _adds_to_scaled(self, node: Node) -> bool:
        """Whether one operand is a linear operator's result times a stored vector: a decomposed BatchNorm."""
        for scaling in self._upstream(node):
            if scaling.op_type not in ("Mul", "Div") or not scaling.is_standard:
                continue
            factors = [find_origin(self.wiring, scaling, slot) for slot in range(len(scaling.inputs))]
            is_vector = any(factor is not None and _is_vector(factor) for factor in factors)
            if is_vector and self._comes_from(scaling, _MAX_HOPS, "product"):
                return True
        return False

    def _is_bias_of_heads(self, node: Node, tensor: StoredTensor) -> bool:
        """Whether a tensor of several axes is added to a product with a stored weight, and is as long as its result.

        Keras gives a bias the axes of heads, and keeps two biases of a recurrent layer as rows that a Split separates.
        """
        if node.op_type != "Add":
            return False
        is_cut = all(reader.node.place != node.place for reader in self.wiring.readers(tensor))
        rows = math.prod(tensor.shape[:-1])
        for product in filter(_is_product, self._upstream(node)):
            for slot in range(len(product.inputs)):
                weight = find_origin(self.wiring, product, slot) or _kept_origin(self.wiring, product, slot)
                if weight is None or len(weight.shape) < 2:
                    continue
                ends = (weight.shape[k:] for k in range(1, len(weight.shape)))
                if tensor.numel in map(math.prod, ends):
                    return True
                if is_cut and rows <= _MOST_GATES and tensor.shape[-1:] == weight.shape[-1:]:
                    return True
        return False

    def _is_decomposed_norm(self, node: Node) -> bool:
        """Whether a normalization is decomposed into x * (g / s) + (b - m * g / s), and the node reads g or b."""
        for source in self.wiring.producers(node):
            if not isinstance(source, Node):
                continue
            if node.op_type == "Mul" and source.op_type == "Reciprocal":
                return self.is_normalized(source)
            if node.op_type == "Add" and source.op_type == "Mul":
                negated = (each for each in self.wiring.producers(source) if isinstance(each, Node))
                means = (
                    each
                    for negation in negated
                    if negation.op_type == "Neg"
                    for each in self.wiring.producers(negation)
                )
                if any(isinstance(mean, Node) and _normalizes(mean) for mean in means):
                    return True
        return False

    def _upstream(self, node: Node) -> Sequence[Node]:
        """Return the nearest nodes that compute a node's operands, and those before nodes that only move a value."""
        known = self._before.get(node.place)
        if known is None:
            found: dict[Place, Node] = {}
            layer = [node]
            for _ in range(_MAX_HOPS):
                sources = itertools.islice(itertools.chain(*map(self._producers, layer)), _MOST_OPERANDS)
                new = {source.place: source for source in sources if source.place not in found}
                found.update(new)
                layer = [source for source in new.values() if source.op_type in CARRIES]
                if not layer or len(found) >= _MOST_BEFORE:
                    break
            known = self._before[node.place] = list(found.values())[:_MOST_BEFORE]
        return known

    def _producers(self, node: Node) -> Sequence[Node]:
        """Return the nodes that compute a node's operands."""
        known = self._operands.get(node.place)
        if known is None:
            found = [source for source in self.wiring.producers(node) if isinstance(source, Node)]
            known = self._operands[node.place] = found
        return known

    def is_normalized(self, node: Node, hops: int = _MAX_HOPS) -> bool:
        """Whether an operand comes through a normalization, a mean or a norm at most `hops` operators before."""
        return self._comes_from(node, hops, "norm")

    def _comes_from(self, node: Node, hops: int, source_kind: str) -> bool:
        """Whether an operand comes from a node of kind `what`, directly or through operators that it may pass."""
        key = (node.place, hops, source_kind)
        known = self._sources.get(key)
        if known is None:
            is_source, passed = _SOURCES[source_kind]
            sources = self._producers(node)
            known = any(map(is_source, sources))
            if not known and hops > 1:
                before = [source for source in sources if source.op_type in passed]
                known = any(self._comes_from(source, hops - 1, source_kind) for source in before)
            self._sources[key] = known
        return known


def _relevant_properties(tensor: StoredTensor) -> tuple[object, ...]:
    """Return all properties of a tensor itself that the rules use."""
    numel = tensor.numel
    bounds = (numel > 0, numel > 1, numel > _FEW_CODES, numel > _FEW)
    return (tensor.dtype, *bounds, min(len(tensor.shape), 2), _is_vector(tensor))


def _is_vector(tensor: StoredTensor) -> bool:
    """Whether it has one axis, not counting axes of size 1."""
    return sum(dim != 1 for dim in tensor.shape) == 1


_MOST_READERS = 1_000
"""Most readers past nodes that move a tensor that are visited: thousands of tensors may go into one Concat."""


def _final_readers(wiring: Wiring, origin: StoredTensor | Node, tensor: StoredTensor) -> Iterator[Reader]:
    """Yield the readers of a value, then, past nodes that only move it, the readers of their outputs."""
    found: set[tuple[GraphPath, int, int]] = set()
    layer: list[StoredTensor | Node | GraphInput] = [origin]
    for hop in range(_MAX_HOPS + 1):
        following: list[StoredTensor | Node | GraphInput] = []
        for source in layer:
            for reader in _readers(wiring, source):
                place = (reader.node.graph_path, reader.node.position, reader.slot)
                if place in found:
                    continue
                if hop and len(found) >= _MOST_READERS:
                    return
                found.add(place)
                body_input = wiring.kept_in_body(reader)
                if body_input is not None:
                    following.append(body_input)
                    continue
                yield reader
                if _moves(reader, tensor):
                    following.append(reader.node)
        layer = following


def _readers(wiring: Wiring, source: StoredTensor | _Mover) -> list[Reader]:
    return wiring.readers_of_input(source) if isinstance(source, GraphInput) else wiring.readers(source)


def _moves(reader: Reader, tensor: StoredTensor) -> bool:
    """Whether a reader passes the tensor on, moved, cut or re-encoded; for a quantized table, also its rows.

    Of numbers, a cast to truth values leaves only a mask.
    """
    if reader.node.op_type == "Cast" and reader.node.integers.get("to") == DType.BOOL:
        return False
    if is_passed(reader, CARRIES):
        return True
    return kind_of(reader.node) is Kind.LOOKS_UP and reader.slot == 0 and tensor.dtype in _QUANTIZED


def _by_attribute(reader: Reader, tensor: StoredTensor) -> tuple[Role, str] | None:
    """Return the role of a tensor or list in a node's own attribute."""
    node = reader.node
    attribute = tensor.name.rpartition(".")[2].removesuffix("_as_tensor")
    if node.domain == "ai.onnx.ml":
        return (
            Role.PARAMETER if attribute in _LEARNED_LISTS else Role.CONSTANT
        ), f"structure:list-{attribute}"
    return (Role.CONSTANT, f"structure:{node.op_type}-attribute") if node.is_standard else None


def _by_slot(reader: Reader, tensor: StoredTensor) -> tuple[Role, str] | None:
    node, slot = reader.node, reader.slot
    known = operator_of(node) if node.is_standard else None
    if known is None:
        return None
    rule = f"structure:{node.op_type}[{slot}]"
    slot_kind = known.slot(slot)
    if slot_kind in (Slot.SCALE, Slot.ZERO_POINT) or (node.op_type, slot) in _BOOKKEEPING:
        return Role.QUANTIZATION, rule
    if slot_kind is Slot.CONSTANT:
        return (Role.CONSTANT, rule) if tensor.numel <= _FEW else None
    if slot_kind is Slot.BUFFER:
        return (Role.BUFFER, rule) if tensor.dtype.is_floating else None
    if known.kind is Kind.DECODES and slot == 0:
        if tensor.dtype not in CODES:
            return None  # it is quantized when the model runs: later readers give its role
        # A quantizer also encodes constants of the graph.
        return (Role.PARAMETER, rule) if tensor.numel > 1 else (Role.CONSTANT, "structure:scalar")
    is_one = tensor.numel == 1 and not (tensor.shape and node.op_type in _LEARNS_ONE)
    if _is_learned(known, slot) and (not is_one or tensor.dtype.is_integer):
        return Role.PARAMETER, rule
    if slot_kind is Slot.TABLE and tensor.dtype.is_floating and len(tensor.shape) >= 2:
        return Role.PARAMETER, rule
    return None


def _reads_codes(reader: Reader) -> bool:
    """Whether it computes with the numbers that codes represent, as a quantized sum does."""
    known = operator_of(reader.node) if reader.node.is_standard else None
    return known is not None and reader.slot >= 0 and known.slot(reader.slot) is Slot.CODES


def _is_learned(known: Operator, slot: int) -> bool:
    """Whether a tensor stored at an input is a weight, whatever its type and shape."""
    slot_kind = known.slot(slot)
    return slot_kind in (Slot.LEARNED, Slot.BIAS) or (slot_kind is Slot.CODES and known.kind in _COMPUTES)


def learned_beside(wiring: Wiring, tensor: StoredTensor) -> Iterator[StoredTensor]:
    """Yield the stored tensors at the other learned inputs of the nodes that read this one at a learned input."""
    for node, slot in _final_readers(wiring, tensor, tensor):
        known = operator_of(node) if node.is_standard else None
        if known is None or slot < 0 or not _is_learned(known, slot):
            continue
        for other in range(len(node.inputs)):
            found = find_origin(wiring, node, other) if other != slot and _is_learned(known, other) else None
            if found is not None:
                yield found


def scales_norm(wiring: Wiring, tensor: StoredTensor) -> bool:
    """Whether all nodes that compute with a tensor multiply the result of a mean or a norm by it."""
    final = [reader for reader in _final_readers(wiring, tensor, tensor) if not _moves(reader, tensor)]
    structure = Structure(wiring)
    return bool(final) and all(
        (
            kind_of(reader.node) is Kind.NORMALIZES
            and (known := operator_of(reader.node)) is not None
            and known.slot(reader.slot) is Slot.LEARNED
        )
        or (reader.node.op_type == "Mul" and structure.is_normalized(reader.node, 3 * _MAX_HOPS))
        for reader in final
    )


def find_origin(wiring: Wiring, node: Node, slot: int) -> StoredTensor | None:
    """Return the stored tensor behind an input, past operators that only move or re-encode it."""
    for _ in range(_MAX_HOPS):
        name = node.inputs[slot] if slot < len(node.inputs) else ""
        own = wiring.providers[node.graph_path].get(name) if name else None
        if type(own) is StoredTensor:
            return own
        found = wiring.find(node.graph_path, name) if name else None
        if not isinstance(found, Node) or found.op_type not in CARRIES:
            return found if isinstance(found, StoredTensor) else None
        node, slot = found, 0
    return None


_MOST_GATES = 4
"""Most rows in which a recurrent layer stores its biases: for the product of the input and for that of the state."""


def _kept_origin(wiring: Wiring, node: Node, slot: int) -> StoredTensor | None:
    """Return the stored tensor that a loop passes through unchanged as a state, and that a node of its body reads."""
    graph_input = wiring.find(node.graph_path, node.inputs[slot]) if node.inputs[slot] else None
    found = wiring.kept_outside(graph_input) if isinstance(graph_input, GraphInput) else None
    return found if isinstance(found, StoredTensor) else None


def _is_slope(wiring: Wiring, node: Node) -> bool:
    """Whether a node multiplies Relu(-x), which is Keras's form of the sloped half of a PRelu."""
    halves = (each for each in wiring.producers(node) if isinstance(each, Node) and each.op_type == "Relu")
    return any(
        isinstance(each, Node) and each.op_type == "Neg" for half in halves for each in wiring.producers(half)
    )


def _is_product(node: Node) -> bool:
    return kind_of(node) in (Kind.PRODUCT, Kind.CONVOLUTION)


def _normalizes(node: Node) -> bool:
    return kind_of(node) is Kind.NORMALIZES or node.op_type in _MOMENTS


def _is_integer_product(node: Node) -> bool:
    return _is_product(node) and is_integer_product(node)


_SOURCES: dict[str, tuple[Callable[[Node], bool], frozenset[str]]] = {
    "product": (_is_product, CARRIES),
    "integers": (_is_integer_product, CARRIES | {"Mul"}),  # scaled back before a bias is added
    "norm": (_normalizes, CARRIES | _ARITHMETIC),
}
"""Kinds of sources: test for a source node, and the operators that may come between it and the operand."""
