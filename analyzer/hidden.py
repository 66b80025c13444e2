"""Model + entries -> what a stored tensor hides: how many parameters PyTorch may have had in its place, and why.

An exporter keeps a parameter's PyTorch name on what it stores as it is. What it has computed from parameters it names
itself, or writes a note of. Three kinds of that are told apart: what was only moved has as many elements as before; a
layer that a BatchNorm is folded into hides that norm's parameters; of any other value nobody can tell from how many
parameters it was computed.

Names are those of PyTorch's exporters (torch/onnx/utils.py; onnxscript rewriter/rules/common/_fuse_batchnorm.py), of
onnxruntime (core/optimizer/conv_bn_fusion.cc, conv_mul_fusion.cc, conv_add_fusion.cc), onnxsim and onnxslim.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from analyzer.classify.constants import TRACED_CONSTANT
from analyzer.classify.structure import find_origin
from analyzer.ledger import Entry, Hidden, Hides, Role
from analyzer.model import GraphPath, Key, Model, Node
from analyzer.model.operators import MOVES, Kind, Slot, operator_of
from analyzer.scopes import float_name, folded_from, is_lifted
from analyzer.wiring import Wiring

__all__ = ["find_hidden"]


class _Name(enum.Enum):
    """Who gave a tensor its name."""

    OWN = "own"
    """PyTorch's module: it is stored as it was."""
    MOVED = "moved"
    """An exporter or a tool, of what it has only moved, cast, or joined."""
    COMPUTED = "computed"
    """An exporter or a tool, of what an operator gave."""
    MADE = "made"
    """An exporter or a tool; the name does not say of what."""
    FOLDED = "folded"
    """A tool that has put a BatchNorm, or a factor or a bias, into a layer."""
    UNKNOWN = "unknown"


_TOOL = re.compile(r"Conv(?:Bn|Mul|Add)Fusion_\w+?_.+")
"""onnxruntime's own, with the PyTorch name behind it."""

_NUMBERED = re.compile(r"(?:onnx::\w+_|(?:.*\.)?val_|_v_)?\d+")
"""Of the tracer, of torch.onnx's exporter, of onnxsim, and of PyTorch before 1.9."""

_VALUE = re.compile(r"(?:.*/)?([A-Za-z]+)(?:_\d+)?_output_\d+")
"""What a node of a traced graph gave: `/attn/Transpose_1_output_0`. With `_weight` behind it, which onnxslim adds, it
is what that node reads."""

_FX = re.compile(r"([a-z]\w*?)(?:_\d+)?")
"""What an operator of an exported program gave: `slice_1`."""

_MOVES = frozenset(
    (
        "alias",
        "cast",
        "cat",
        "chunk",
        "clone",
        "concat",
        "contiguous",
        "detach",
        "flatten",
        "identity",
        "permute",
        "reshape",
        "split",
        "squeeze",
        "stack",
        "swapaxes",
        "t",
        "to",
        "transpose",
        "unbind",
        "unflatten",
        "unsqueeze",
        "view",
        "_to_copy",
        "split_with_sizes",
    )
)
_COMPUTES = frozenset(
    (
        "abs",
        "add",
        "addmm",
        "arange",
        "baddbmm",
        "bmm",
        "clamp",
        "cos",
        "cumsum",
        "div",
        "einsum",
        "embedding",
        "erf",
        "exp",
        "expand",
        "gather",
        "gemm",
        "hardtanh",
        "index",
        "index_select",
        "linear",
        "log",
        "matmul",
        "max",
        "mean",
        "min",
        "mm",
        "mul",
        "neg",
        "norm",
        "normalize",
        "pad",
        "pow",
        "prod",
        "range",
        "reciprocal",
        "reducel2",
        "reducemean",
        "reduceprod",
        "reducesum",
        "relu",
        "repeat",
        "rsqrt",
        "scatter",
        "select",
        "sigmoid",
        "sin",
        "slice",
        "softmax",
        "sqrt",
        "square",
        "std",
        "sub",
        "sum",
        "tan",
        "tanh",
        "tile",
        "triu",
        "tril",
        "var",
        "vector_norm",
        "where",
    )
)
"""Operators, in lower case, by which as many elements come out as went in, and by which not, or of several inputs."""

_WITHOUT_PARAMETERS = frozenset(
    (
        "_assert_tensor_metadata",
        "and",
        "any",
        "arange",
        "bitwise_and",
        "bitwise_not",
        "ceil",
        "copy",
        "empty",
        "eq",
        "eye",
        "fill",
        "floor",
        "floor_divide",
        "full",
        "full_like",
        "ge",
        "gt",
        "index_put",
        "le",
        "linspace",
        "logical_and",
        "logical_not",
        "logspace",
        "lt",
        "masked_fill",
        "meshgrid",
        "ne",
        "new_empty",
        "new_full",
        "new_ones",
        "new_zeros",
        "ones",
        "ones_like",
        "outer",
        "remainder",
        "roll",
        "round",
        "scalar_tensor",
        "scalar_tensor_default",
        "slice_scatter",
        "select_scatter",
        "zeros",
        "zeros_like",
    )
)
"""Other operators of an exported program, most of which make numbers of their own: none is called as a parameter is."""


def find_hidden(model: Model, entries: Sequence[Entry], wiring: Wiring, opaque: frozenset[Key]) -> Hidden:
    """Tell which tensors hide how many parameters PyTorch had; of others the file holds all, or nobody asks.

    Only of files that have names or notes of PyTorch's: one whose every tensor has a name of a tool, or of another
    framework, is counted as it stands. `opaque` are the tensors that compute and that no rule explains.
    """
    found: dict[Key, Hides] = {}
    for _, graphs in model.by_part():
        paths = {graph.path for graph in graphs}
        own = {entry.tensor.key: entry for entry in entries if entry.tensor.graph_path in paths}
        if not any(map(_is_told, own.values())):
            continue
        notes = {
            (graph.path, name): sources
            for graph in graphs
            for name, props in graph.metadata.items()
            if (sources := folded_from(props))
        }
        look = _Part(own, notes, wiring, any(e.decided_by == _NOTED for e in own.values()))
        for graph in graphs:
            for node in graph.nodes:
                found.update(look.layer(node))
        for key, entry in own.items():
            if key not in found and (hides := look.alone(entry, is_opaque=key in opaque)) is not None:
                found[key] = hides
    return found


_NOTED = "provenance:input-spec"
_STORED = (_NOTED, "name:parameter", "name:state-dict", "name:folded-bias")


def _is_told(entry: Entry) -> bool:
    """Whether an entry shows that names, or notes, in its file are PyTorch's."""
    if entry.role is not Role.PARAMETER or entry.tensor.node is not None:
        return False
    leaf = entry.tensor.name.rpartition(".")[2]
    is_own = entry.decided_by in _STORED and leaf in ("weight", "bias")
    return is_own or entry.decided_by == _NOTED or entry.tensor.name.startswith("onnx::")


@dataclass(frozen=True, slots=True)
class _Part:
    """One model file."""

    entries: Mapping[Key, Entry]
    notes: Mapping[tuple[GraphPath, str], Sequence[str]]
    """What values were folded from."""
    wiring: Wiring
    has_notes: bool
    """Whether the exporter's notes are still there, so that a parameter without one has been replaced."""

    def name(self, entry: Entry) -> _Name:
        """Who gave an entry its name."""
        name = float_name(entry.tensor.name)
        if entry.decided_by == "name:folded-bias" or _TOOL.fullmatch(name):
            return _Name.FOLDED
        if entry.sources and not entry.decided_by.startswith("provenance:folded-"):
            return _Name.OWN
        if (value := _VALUE.fullmatch(name)) or (value := _FX.fullmatch(name)):
            operator = value[1].lower()
            if operator in _MOVES:
                return _Name.MOVED
            if operator in _COMPUTES:
                return _Name.COMPUTED
        is_numbered = _NUMBERED.fullmatch(name) is not None
        return _Name.MADE if is_numbered or "/" in name or "::" in name else _Name.UNKNOWN

    def layer(self, node: Node) -> Iterator[tuple[Key, Hides]]:
        """What a convolution's or a linear layer's weight and bias hide, where something was folded into them."""
        known = operator_of(node) if node.is_standard else None
        if known is None or known.kind not in (Kind.CONVOLUTION, Kind.PRODUCT):
            return
        slots = {what: place for place, what in reversed([*enumerate(known.slots)])}
        bias = self._held(node, slots.get(Slot.BIAS))
        is_convolution = known.kind is Kind.CONVOLUTION
        weights = [place for place, what in enumerate(known.slots) if what in (Slot.LEARNED, Slot.CODES)]
        weight = self._held(node, max(weights, default=None))
        if weight is None or weight.role is not Role.PARAMETER:
            return
        if bias is not None and bias.role is not Role.PARAMETER and bias.decided_by != "structure:scalar":
            bias = None  # the zeros of a layer that has none
        if bias is not None and self._has_norm(weight, bias, is_convolution=is_convolution):
            # A scale and a shift, and the bias that the layer may have had; what is here counts for one of these.
            size = bias.logical_numel
            yield bias.tensor.key, Hides(2 * size - bias.parameters, 3 * size - bias.parameters, "batchnorm")
        elif float_name(weight.tensor.name).startswith("ConvMulFusion_"):
            yield weight.tensor.key, Hides(0, weight.tensor.shape[0] if weight.tensor.shape else 0, "factor")
        elif is_convolution and self.name(weight) in (_Name.MADE, _Name.COMPUTED):
            # PyTorch's kernel is ONNX's: it loses its name only where its values are others.
            yield from self._computed(weight)
        if bias is not None and float_name(bias.tensor.name).startswith("ConvAddFusion_"):
            yield bias.tensor.key, Hides(0, bias.logical_numel, "bias")

    def _held(self, node: Node, slot: int | None) -> Entry | None:
        tensor = None if slot is None else find_origin(self.wiring, node, slot)
        return None if tensor is None else self.entries.get(tensor.key)

    def _has_norm(self, weight: Entry, bias: Entry, *, is_convolution: bool) -> bool:
        """Whether a BatchNorm is folded into a weight and a bias, by how the two are called."""
        name = float_name(bias.tensor.name)
        if bias.decided_by == "name:folded-bias" or name.startswith("ConvBnFusion_BN_B_"):
            return True
        if self.has_notes and {weight.decided_by, bias.decided_by} == {"name:parameter"}:
            return True  # onnxscript leaves the names, and drops the notes with the values
        made = (_Name.MADE, _Name.UNKNOWN)
        return is_convolution and self.name(weight) in made and self.name(bias) in made

    def alone(self, entry: Entry, *, is_opaque: bool) -> Hides | None:
        """What any other tensor hides; None where nothing."""
        name, rule = self.name(entry), entry.decided_by
        if entry.role is Role.PARAMETER and entry.parameters:
            if rule == "provenance:folded-with":
                is_moved = name is _Name.MOVED or self._is_affine(entry)
            elif rule == "provenance:folded-from":
                is_moved = len(entry.sources) < 2 or name is _Name.MOVED
            elif rule.endswith("-vector") and not entry.sources:
                is_moved = name is _Name.UNKNOWN or self._is_scale_and_shift(entry)
            else:
                is_moved = bool(entry.sources) or name is not _Name.COMPUTED
            return None if is_moved else next(iter(dict(self._computed(entry)).values()), None)
        if not is_opaque or not entry.tensor.dtype.is_floating or entry.role is Role.PARAMETER:
            return None
        if rule == TRACED_CONSTANT:
            return None  # of the trace, and no parameter's
        sources = self.notes.get((entry.tensor.graph_path, entry.tensor.name), ())
        is_unknown = any(map(_may_be_parameter, sources)) if sources else name in (_Name.MADE, _Name.COMPUTED)
        if is_unknown:
            return Hides(0, None, "computed")
        return None

    def _computed(self, entry: Entry) -> Iterator[tuple[Key, Hides]]:
        if entry.copy_of is None and entry.parameters:
            yield entry.tensor.key, Hides(-entry.parameters, None, "computed")

    def _is_affine(self, entry: Entry) -> bool:
        """Whether it is the scale or the shift of a norm, whose axes were put elsewhere: PyTorch has both as vectors.

        A row of a table is a vector too, but no table has a bias of as many elements.
        """
        if len(entry.sources) != 1 or sum(dim != 1 for dim in entry.tensor.shape) != 1:
            return False
        module, _, leaf = entry.sources[0].rpartition(".")
        beside = {"weight": f"{module}.bias", "bias": f"{module}.weight"}.get(leaf)
        return any(
            other.sources == (beside,) and other.tensor.numel == entry.tensor.numel
            for other in self.entries.values()
        )

    def _is_scale_and_shift(self, entry: Entry) -> bool:
        """Whether a nameless vector is multiplied by, and one of its size added to that, or the other way round.

        So a norm is written out, and any other vector may as well be numbers of forward's own.
        """
        for reader in self.wiring.readers(entry.tensor, past=MOVES):
            node = reader.node
            if node.op_type == "Mul":
                beside = [found.node for found in self.wiring.readers(node) if found.node.op_type == "Add"]
            else:
                before = self.wiring.producers(node) if node.op_type == "Add" else ()
                beside = [found for found in before if isinstance(found, Node) and found.op_type == "Mul"]
            for other in beside:
                held = [find_origin(self.wiring, other, slot) for slot in range(len(other.inputs))]
                if any(each is not None and each.numel == entry.tensor.numel for each in held):
                    return True
        return False


def _may_be_parameter(source: str) -> bool:
    """Whether a value that another was folded from is none that the exported program has made by an operator.

    A parameter of the outermost module has a name without dots, as operators' results have.
    """
    found = _FX.fullmatch(source)
    is_result = found is not None and found[1] in _MOVES | _COMPUTES | _WITHOUT_PARAMETERS
    return not is_result and _NUMBERED.fullmatch(source) is None and not is_lifted(source)
