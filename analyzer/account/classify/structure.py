"""How a tensor is read -> its role, from the operators' own definitions.

Sources: ONNX docs/Operators.md, onnxruntime docs/ContribOperators.md, ONNX docs/Operators-ml.md.

The weakest evidence that still explains: it is asked only where neither metadata nor names decide.
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
"""What operators do whose codes are weights when they are stored. The data of integer products are among them: the
codes of a table get there past a Gather. Codes of a quantized sum may be anything."""

_LEARNS_ONE = frozenset({"Conv", "ConvTranspose", "PRelu"})
"""Operators of which a vector of one element is a weight, a bias or a slope all the same. What has no axis was made: as
the zero that fills the bias of a convolution without one."""

_BOOKKEEPING = frozenset({("MatMulNBits", 4)})
"""Indices that tell to which scale a code belongs."""

_QUANTIZED = frozenset({DType.INT8, DType.UINT8, DType.INT4, DType.UINT4, DType.INT2, DType.UINT2})
"""Types of a quantized table, of which rows are taken before they are dequantized."""

_MOMENTS = frozenset({"GlobalAveragePool", "ReduceL2", "ReduceMean", "ReduceSumSquare"})
"""Operators that take a mean or a norm, as normalizations do: what follows is scaled and shifted by learned vectors."""

_ARITHMETIC = frozenset({"Add", "Div", "Mul", "Neg", "Pow", "Reciprocal", "Sqrt", "Sub"})
"""Operators of which a normalization is written out."""

_INDEX_TYPES = frozenset({DType.INT32, DType.INT64, DType.BOOL, DType.UINT32, DType.UINT64})
"""Types of shapes, indices and masks. Narrow integers may be weights."""

_FEW = 64
"""Elements up to which a narrow integer operand is taken for a shape, an axis or a flag."""

_FEW_CODES = 10
"""Elements up to which codes that are added or multiplied are constants of the graph."""

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
"""Lists of `ai.onnx.ml` operators that training computes; the others are ids, modes and labels."""

_MAX_HOPS = 6
"""Operators between a tensor and what it is for; exporters put Transpose, Cast, Reshape and Dequantize there."""


_Mover = Node | GraphInput
"""What hands a value on: a node that moves it, or a loop's body that is given it as a state, and keeps it."""

_COMBINES = frozenset({"Add", "Div", "Mul", "Sub"})
"""Operators by which a bias is added, or a normalization is scaled and shifted."""

_MOST_COMBINING = 8
"""Nodes of these that are asked about one tensor of several axes."""

_MOST_OPERANDS, _MOST_BEFORE = 64, 64
"""What nodes read, and the nodes before one that are looked at."""


class _Said(NamedTuple):
    """What some readers say of a tensor, each answer that of the first reader that has one."""

    decided: tuple[Role, str] | None = None
    """A role other than constant, and its rule."""
    constant: tuple[Role, str] | None = None
    known: Reader | None = None
    """The first whose operator is defined."""
    affine: Node | None = None
    """The first that would have a vector as the bias of a linear operator, or to scale or shift a normalization."""
    combining: tuple[Node, ...] = ()
    """The first few that combine it with something, element by element."""
    is_coded: bool = False
    """Whether one of them computes with what codes stand for."""

    def then(self, other: _Said) -> _Said:
        """What these readers say, and after them others."""
        return _Said(
            self.decided or other.decided,
            self.constant or other.constant,
            self.known or other.known,
            self.affine or other.affine,
            (*self.combining, *other.combining)[:_MOST_COMBINING],
            self.is_coded or other.is_coded,
        )


class Structure:
    """What the operators around a tensor say of it; what one tensor has found is kept for those beside it.

    Thousands of tensors may go into one Concat that thousands of nodes read.
    """

    def __init__(self, wiring: Wiring) -> None:
        self.wiring = wiring
        self._past: dict[tuple[tuple[GraphPath, int | str], int, tuple[object, ...]], _Said] = {}
        self._sources: dict[tuple[Place, int, str], bool] = {}
        self._before: dict[Place, Sequence[Node]] = {}

    def role(self, origin: StoredTensor | Node, tensor: StoredTensor) -> tuple[Role, str] | None:
        """The role that a tensor's readers give it, and the rule; None where they say nothing.

        The first reader in file order that explains it decides; one that makes it a constant goes after the others.
        Those of the tensor itself come first, then those past what moves it once, and so on.

        Args:
            origin: what provides the tensor's value.
            tensor: whose role is asked.
        """
        readers = self.wiring.readers(origin)
        said = self._ask(readers, tensor)
        movers = self._movers(readers, tensor)
        looked_at = _looked_at(tensor) if movers else ()
        for hops in range(_MAX_HOPS):
            if said.decided is not None:
                return said.decided
            for mover in movers:
                said = said.then(self._ask_past(mover, hops, tensor, looked_at))
        # Who only takes a bound or a size from a weight makes it no constant: that comes last.
        if said.decided or said.constant:
            return said.decided or said.constant
        if said.known is None or said.known.slot == CARRIED:
            return None
        if not tensor.dtype.is_floating:
            is_coded = tensor.numel > _FEW_CODES and said.is_coded
            is_index = tensor.dtype in _INDEX_TYPES or (tensor.numel <= _FEW and not is_coded)
            return (Role.CONSTANT, f"structure:{said.known.node.op_type}-operand") if is_index else None
        if tensor.numel <= 1:
            return Role.CONSTANT, "structure:scalar"
        node = said.affine
        if node is None and not _is_vector(tensor):
            node = next((each for each in said.combining if self._takes_whole(each, tensor)), None)
        return None if node is None else (Role.PARAMETER, f"structure:{node.op_type}-vector")

    def _ask_past(
        self, mover: _Mover, hops: int, tensor: StoredTensor, looked_at: tuple[object, ...]
    ) -> _Said:
        """What the readers say that are so many further movers past one."""
        key = (mover.place if isinstance(mover, Node) else (mover.path, mover.name), hops, looked_at)
        said = self._past.get(key)
        if said is None:
            readers = _readers(self.wiring, mover)
            if hops:
                said = _Said()
                for following in self._movers(readers, tensor):
                    said = said.then(self._ask_past(following, hops - 1, tensor, looked_at))
            else:
                said = self._ask(readers, tensor)
            self._past[key] = said
        return said

    def _movers(self, readers: Iterable[Reader], tensor: StoredTensor) -> list[_Mover]:
        """What hands a tensor on that these read, each once: a node, or a loop's body that keeps it as a state."""
        found: dict[tuple[GraphPath, int | str], _Mover] = {}
        for reader in readers:
            kept = self.wiring.kept_in_body(reader)
            if kept is not None:
                found[kept.path, kept.name] = kept
            elif _moves(reader, tensor):
                found[reader.node.place] = reader.node
        return list(found.values())

    def _ask(self, readers: Iterable[Reader], tensor: StoredTensor) -> _Said:
        """What readers of a tensor say themselves."""
        # Cast and repeated a single integer may be a state of zeros, no weight.
        is_state = tensor.dtype is DType.INT64 and tensor.numel == 1
        is_vector = _is_vector(tensor)
        said = _Said()
        for reader in readers:
            if self.wiring.kept_in_body(reader) is not None:
                continue  # its body reads it
            node = reader.node
            told = (_by_attribute if reader.slot == CARRIED else _by_slot)(reader, tensor)
            if told is not None and is_state and told[0] is Role.PARAMETER:
                told = None
            is_constant = told is not None and told[0] is Role.CONSTANT
            combines = node.op_type in _COMBINES
            is_affine = combines and is_vector and not said.affine and self._takes_vector(node)
            said = said.then(
                _Said(
                    decided=None if is_constant else told,
                    constant=told if is_constant else None,
                    known=reader if node.is_standard else None,
                    affine=node if is_affine else None,
                    combining=(node,) if combines else (),
                    is_coded=_reads_codes(reader),
                )
            )
            if said.decided is not None:
                break
        return said

    def _takes_vector(self, node: Node) -> bool:
        """Whether a vector that a node reads is the bias of a linear operator, or scales or shifts a normalization.

        What it is combined with comes from a linear operator, or, where the normalization is written out, from a mean
        or a norm within a few operators (the mean of a picture, subtracted as a constant, is none).
        """
        if self._comes_of(node, _MAX_HOPS, "product") or self._comes_of(node, _MAX_HOPS, "integers"):
            return True
        if node.op_type in ("Add", "Sub") and self._adds_to_scaled(node):
            return True
        if node.op_type == "Mul" and _is_slope(self.wiring, node):
            return True
        return node.op_type in ("Add", "Mul") and self.is_normalized(node)

    def _takes_whole(self, node: Node, tensor: StoredTensor) -> bool:
        """The same of a tensor of several axes."""
        return self._is_bias_of_heads(node, tensor) or self._is_written_out(node)

    def _adds_to_scaled(self, node: Node) -> bool:
        """Whether one operand is a linear operator's result times a stored vector: a BatchNorm written out."""
        for scaling in self._upstream(node):
            if scaling.op_type not in ("Mul", "Div") or not scaling.is_standard:
                continue
            factors = [find_origin(self.wiring, scaling, slot) for slot in range(len(scaling.inputs))]
            is_vector = any(factor is not None and _is_vector(factor) for factor in factors)
            if is_vector and self._comes_of(scaling, _MAX_HOPS, "product"):
                return True
        return False

    def _is_bias_of_heads(self, node: Node, tensor: StoredTensor) -> bool:
        """Whether a tensor of several axes is added to a product with a stored weight, and is as long as its result.

        Keras gives a bias the axes of heads, and keeps two biases of a recurrent layer in rows that a Split takes
        apart.
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

    def _is_written_out(self, node: Node) -> bool:
        """Whether a normalization is written out as x * (g / s) + (b - m * g / s), and a node takes g or b."""
        for source in self.wiring.producers(node):
            if not isinstance(source, Node):
                continue
            if node.op_type == "Mul" and source.op_type == "Reciprocal":
                return self.is_normalized(source)
            if node.op_type == "Add" and source.op_type == "Mul":
                negated = (each for each in self.wiring.producers(source) if isinstance(each, Node))
                means = (
                    each for less in negated if less.op_type == "Neg" for each in self.wiring.producers(less)
                )
                if any(isinstance(mean, Node) and _normalizes(mean) for mean in means):
                    return True
        return False

    def _upstream(self, node: Node) -> Sequence[Node]:
        """The first nodes that compute a node's operands, and those before them past what only moves a value."""
        known = self._before.get(node.place)
        if known is None:
            found: dict[Place, Node] = {}
            layer = [node]
            for _ in range(_MAX_HOPS):
                every = (source for reader in layer for source in self.wiring.producers(reader))
                sources = itertools.islice(every, _MOST_OPERANDS)
                new = {s.place: s for s in sources if isinstance(s, Node) and s.place not in found}
                found.update(new)
                if len(found) >= _MOST_BEFORE:
                    break
                layer = [source for source in new.values() if source.op_type in CARRIES]
            known = self._before[node.place] = list(found.values())[:_MOST_BEFORE]
        return known

    def is_normalized(self, node: Node, hops: int = _MAX_HOPS) -> bool:
        """Whether an operand of a node has gone through a normalization, a mean or a norm, so many operators back."""
        return self._comes_of(node, hops, "norm")

    def _comes_of(self, node: Node, hops: int, what: str) -> bool:
        """Whether such a node computes an operand, or what was given to one that an operand may have gone through."""
        key = (node.place, hops, what)
        known = self._sources.get(key)
        if known is None:
            is_meant, through = _SOURCES[what]
            sources = [source for source in self.wiring.producers(node) if isinstance(source, Node)]
            known = any(map(is_meant, sources)) or (
                hops > 1
                and any(
                    self._comes_of(source, hops - 1, what) for source in sources if source.op_type in through
                )
            )
            self._sources[key] = known
        return known


def _looked_at(tensor: StoredTensor) -> tuple[object, ...]:
    """All that the rules look at of a tensor itself, besides who reads it."""
    numel = tensor.numel
    bounds = (numel > 0, numel > 1, numel > _FEW_CODES, numel > _FEW)
    return (tensor.dtype, *bounds, min(len(tensor.shape), 2), _is_vector(tensor))


def _is_vector(tensor: StoredTensor) -> bool:
    """Whether it has one axis, others of size 1 left out."""
    return sum(dim != 1 for dim in tensor.shape) == 1


_MOST_READERS = 1_000
"""Readers past what moves a tensor that are asked what it is: thousands of tensors may go into one Concat."""


def _final_readers(wiring: Wiring, origin: StoredTensor | Node, tensor: StoredTensor) -> Iterator[Reader]:
    """The readers of a value, then, past those that only move it, the readers of what they hand on."""
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
                inner = wiring.kept_in_body(reader)
                if inner is not None:
                    following.append(inner)
                    continue
                yield reader
                if _moves(reader, tensor):
                    following.append(reader.node)
        layer = following


def _readers(wiring: Wiring, source: StoredTensor | _Mover) -> list[Reader]:
    return wiring.readers_of_given(source) if isinstance(source, GraphInput) else wiring.readers(source)


def _moves(reader: Reader, tensor: StoredTensor) -> bool:
    """Whether a reader hands the tensor on, moved, cut or re-encoded; of a quantized table rows."""
    if is_passed(reader, CARRIES):
        return True
    return kind_of(reader.node) is Kind.LOOKS_UP and reader.slot == 0 and tensor.dtype in _QUANTIZED


def _by_attribute(reader: Reader, tensor: StoredTensor) -> tuple[Role, str] | None:
    """What a tensor or list in a node's own attribute is."""
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
    what = known.slot(slot)
    if what in (Slot.SCALE, Slot.ZERO_POINT) or (node.op_type, slot) in _BOOKKEEPING:
        return Role.QUANTIZATION, rule
    if what is Slot.CONSTANT:
        return (Role.CONSTANT, rule) if tensor.numel <= _FEW else None
    if what is Slot.BUFFER:
        return (Role.BUFFER, rule) if tensor.dtype.is_floating else None
    if known.kind is Kind.DECODES and slot == 0:
        if tensor.dtype not in CODES:
            return None  # it is quantized when the model runs: what reads it after that tells what it is
        # A quantizer also encodes the numbers that a graph computes with.
        return (Role.PARAMETER, rule) if tensor.numel > 1 else (Role.CONSTANT, "structure:scalar")
    is_one = tensor.numel == 1 and not (tensor.shape and node.op_type in _LEARNS_ONE)
    if _is_learned(known, slot) and (not is_one or tensor.dtype.is_integer):
        return Role.PARAMETER, rule
    if what is Slot.TABLE and tensor.dtype.is_floating and len(tensor.shape) >= 2:
        return Role.PARAMETER, rule
    return None


def _reads_codes(reader: Reader) -> bool:
    """Whether it computes with the numbers that codes stand for, as a quantized sum does."""
    known = operator_of(reader.node) if reader.node.is_standard else None
    return known is not None and reader.slot >= 0 and known.slot(reader.slot) is Slot.CODES


def _is_learned(known: Operator, slot: int) -> bool:
    """Whether what is stored at an input is a weight, whatever its type and shape."""
    what = known.slot(slot)
    return what in (Slot.LEARNED, Slot.BIAS) or (what is Slot.CODES and known.kind in _COMPUTES)


def learned_beside(wiring: Wiring, tensor: StoredTensor) -> Iterator[StoredTensor]:
    """The stored tensors at the other learned inputs of the nodes that read this one at such an input."""
    for node, slot in _final_readers(wiring, tensor, tensor):
        known = operator_of(node) if node.is_standard else None
        if known is None or slot < 0 or not _is_learned(known, slot):
            continue
        for other in range(len(node.inputs)):
            found = find_origin(wiring, node, other) if other != slot and _is_learned(known, other) else None
            if found is not None:
                yield found


def scales_norm(wiring: Wiring, tensor: StoredTensor) -> bool:
    """Whether all that computes with a tensor multiplies what a mean or a norm gives by it."""
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
    """The stored tensor that an input is, past operators that only move or re-encode it."""
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
"""Biases of one recurrent layer that are stored in rows: one of the input's product, one of the state's."""


def _kept_origin(wiring: Wiring, node: Node, slot: int) -> StoredTensor | None:
    """The stored tensor that a loop hands round and a node of its body reads."""
    given = wiring.find(node.graph_path, node.inputs[slot]) if node.inputs[slot] else None
    found = wiring.kept_outside(given) if isinstance(given, GraphInput) else None
    return found if isinstance(found, StoredTensor) else None


def _is_slope(wiring: Wiring, node: Node) -> bool:
    """Whether a node multiplies Relu(-x), as Keras writes the half of a PRelu that has a slope."""
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
"""What an operand may come of, and the operators that it may have gone through since."""
