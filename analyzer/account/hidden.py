"""Model + entries -> bounds for the parameters that PyTorch had in the place of a stored tensor, and the reasons.

An exporter keeps a parameter's PyTorch name on a tensor that it stores unchanged. A tensor computed from parameters
gets a name from the exporter, or metadata. Three kinds of these are distinguished: a tensor that was only moved has as
many elements as before; a layer with a folded BatchNorm hides that norm's parameters; for any other value the number of
parameters that it was computed from is unknown.

Names are those of PyTorch's exporters (torch/onnx/utils.py; onnxscript rewriter/rules/common/_fuse_batchnorm.py), of
onnxruntime (core/optimizer/conv_bn_fusion.cc, conv_mul_fusion.cc, conv_add_fusion.cc), onnxsim and onnxslim. A prefix
that all names of a graph have (onnx.compose.add_prefix) is removed first.

A tensor may also count for more than PyTorch had: zeros that pad a blocked convolution, and numbers under a parameter's
name that may be a buffer.
"""

from __future__ import annotations

import enum
import functools
import itertools
import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from analyzer.account.classify.constants import TRACED_CONSTANT
from analyzer.account.classify.structure import find_origin
from analyzer.account.decoding.encodings import find_encoding
from analyzer.account.ledger import Entry, Hidden, Hides, Role
from analyzer.account.scopes import float_name, folded_from, is_dotted, is_lifted
from analyzer.model import Graph, GraphPath, Key, Model, Node, StoredTensor
from analyzer.model.content import Array
from analyzer.model.operators import DECODES, MOVES, Kind, Slot, kind_of, operator_of, operators_of
from analyzer.model.tables import count_free
from analyzer.model.wiring import Wiring
from analyzer.records import Frozen, field


class _Name(enum.Enum):
    """Origin of a tensor's name."""

    OWN = "own"
    """PyTorch's module: the tensor is stored unchanged."""
    MOVED = "moved"
    """An exporter or a tool, for a tensor that it has only moved, cast, or joined."""
    COMPUTED = "computed"
    """An exporter or a tool, for the result of an operator."""
    MADE = "made"
    """An exporter or a tool; the name does not tell the origin of the values."""
    FOLDED = "folded"
    """A tool that has folded a BatchNorm, a factor or a bias into a layer."""
    UNKNOWN = "unknown"


_TOOL = re.compile(r"(?:Conv(?:Bn|Mul|Add)|MatMulBn)Fusion_\w+?_.+")
"""Names from onnxruntime, which end in the PyTorch name."""

_OF_TOOL = ("Conv", "MatMulBnFusion_")
"""Beginnings of these names."""

_NUMBERED = re.compile(r"(?:onnx::\w+_|(?:.*\.)?val_|_v_)?\d+")
"""Names from the tracer, torch.onnx's exporter, onnxsim, and PyTorch before 1.9."""

_VALUE = re.compile(r"(?:.*/)?([A-Za-z]+)(?:_\d+)?_output_\d+")
"""Name of a node's result in a traced graph: `/attn/Transpose_1_output_0`. With the suffix `_weight`, which onnxslim
adds, it names an input of that node.
"""

_FX = re.compile(r"([a-z]\w*?)(?:_\d+)?")
"""Name of an operator's result in an exported program: `slice_1`."""

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
"""Operators in lower case: `_MOVES` only move, cast or join elements; `_COMPUTES` change values or their number."""

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
"""Other operators of an exported program, most of which create numbers: no parameter has such a name."""


def find_hidden(
    model: Model, entries: Sequence[Entry], wiring: Wiring, opaque: frozenset[Key], *, reads: bool = True
) -> Hidden:
    """Return bounds for tensors that hide how many parameters PyTorch had; others are complete, or not in question.

    This applies only to files with PyTorch's names or metadata. A file in which all names are those of a tool, or of
    another framework, is counted as it is, except for the zeros in a recurrent layer's bias: ONNX has two biases, most
    other frameworks one.

    Args:
        opaque: the tensors that flow into arithmetic and that no rule explains.
        reads: whether values may be read. If not, weights are not searched for tables, nor for copies, and questions
            that only values settle are left open.
    """
    found: dict[Key, Hides] = {}
    for _, graphs in model.by_part():
        paths = {graph.path for graph in graphs}
        own = {entry.tensor.key: entry for entry in entries if entry.tensor.graph_path in paths}
        found.update(_hidden_in_any_file(graphs, own, wiring, reads=reads))
        prefix = _prefix(graphs)
        if not any(_shows_pytorch_names(entry, prefix) for entry in own.values()):
            continue
        notes = {
            (graph.path, name): sources
            for graph in graphs
            for name, props in graph.metadata.items()
            if (sources := folded_from(props))
        }
        names = {entry.tensor.name for entry in own.values()}
        has_notes = any(e.decided_by == _INPUT_SPEC for e in own.values())
        tables = _tables(own.values(), wiring) if reads else ()
        part = _Part(
            own,
            notes,
            wiring,
            has_notes,
            prefix,
            names,
            tables,
            reads,
            smallest_noted=_count_noted(own.values()),
        )
        layers = _LAYERS if any("ConvMulFusion_" in name for name in names) else _LAYERS - _PLAIN_PRODUCTS
        for graph in graphs:
            of_layers: dict[Key, Hides] = {}
            for node in graph.nodes:
                op_type = node.op_type
                if op_type == "Identity":
                    found.update(part.merged(node))
                elif op_type in layers and kind_of(node) in (Kind.CONVOLUTION, Kind.PRODUCT):
                    for key, hides in part.layer(node):  # layers may share a bias of zeros
                        of_layers[key] = _add(of_layers[key], hides) if key in of_layers else hides
            found.update(of_layers)
        for key, entry in own.items():
            if key not in found and entry.uses > 1 and (merged := part.shared(entry)) is not None:
                found[key] = merged
            if key not in found and (copy := part.copied(entry)) is not None:
                found[key] = copy
            if part.is_unchanged(entry) or key in found:
                continue
            if (other := part.bounds_of_other(entry, is_opaque=key in opaque)) is not None:
                found[key] = other
    return found


def _add(one: Hides, other: Hides) -> Hides:
    most = None if one.most is None or other.most is None else one.most + other.most
    return Hides(one.least + other.least, most, one.why if one.most else other.why)


_BIASES = 3
"""Input of an LSTM, GRU or RNN that holds the biases: those of its input, then those of its state."""


def _hidden_in_any_file(
    graphs: Iterable[Graph], own: Mapping[Key, Entry], wiring: Wiring, *, reads: bool
) -> Iterator[tuple[Key, Hides]]:
    """Yield bounds for tensors of any file, whatever the names."""
    for node in itertools.chain.from_iterable(graph.nodes for graph in graphs):
        if node.op_type not in _NAME_INDEPENDENT:
            continue
        if node.op_type in _RECURRENT and reads and (half := _zero_half(node, own, wiring)) is not None:
            yield half[0], Hides(-half[1], 0, "padding")
        elif node.op_type in _CONVOLVES and (shift := _keras_shift(node, own, wiring)) is not None:
            yield shift.tensor.key, Hides(0, 2 * shift.logical_numel, "batchnorm")
    for entry in own.values() if reads else ():
        if entry.decided_by == "provenance:folded-with" and _is_zero_result(entry):
            yield entry.tensor.key, Hides(-entry.parameters, 0, "repeated")


_RECURRENT, _CONVOLVES = frozenset({"GRU", "LSTM", "RNN"}), operators_of(Kind.CONVOLUTION)
_NAME_INDEPENDENT = _RECURRENT | _CONVOLVES


def _zero_half(node: Node, own: Mapping[Key, Entry], wiring: Wiring) -> tuple[Key, int] | None:
    """Return the bias of an LSTM, GRU or RNN, and the number of zeros in its second half if that is all zeros.

    Frameworks with one bias for input and state fill the second half with zeros.
    """
    if len(node.inputs) <= _BIASES:
        return None
    tensor = find_origin(wiring, node, _BIASES)
    entry = None if tensor is None else own.get(tensor.key)
    if entry is None or entry.role is not Role.PARAMETER or entry.parameters != entry.tensor.numel > 0:
        return None
    array = entry.tensor.payload.array() if entry.tensor.numel <= _MOST_READ else None
    if array is None or array.shape != entry.tensor.shape or array.shape[-1] % 2:
        return None
    half = array.shape[-1] // 2
    if array[..., half:].any() or not array[..., :half].any():
        return None
    return entry.tensor.key, array.size // 2


def _is_zero_result(entry: Entry) -> bool:
    """Whether a tensor that an exporter folded with others is all zeros, like a recurrent layer's initial state."""
    value = _FX.fullmatch(entry.tensor.name)
    if value is None or value[1] not in _COMPUTES:
        return False
    if not entry.parameters or entry.tensor.numel > _MOST_READ:
        return False
    array = entry.tensor.payload.array()
    return array is not None and not array.any()


_KERAS_SHIFT = re.compile(r".*/batchnorm/sub(?::0)?")
"""Name that tf2onnx gives a convolution's bias made from a Keras BatchNormalization, whose scale is in the weight."""


def _keras_shift(node: Node, own: Mapping[Key, Entry], wiring: Wiring) -> Entry | None:
    tensor = find_origin(wiring, node, 2) if len(node.inputs) > 2 else None
    if tensor is None or _KERAS_SHIFT.fullmatch(tensor.name) is None:
        return None
    entry = own.get(tensor.key)
    return entry if entry is not None and entry.parameters and entry.role is Role.PARAMETER else None


_LAYERS = operators_of(Kind.CONVOLUTION, Kind.PRODUCT)
_PLAIN_PRODUCTS = frozenset({"MatMul"})
"""Layers without a bias, which hide nothing unless a tool has folded a factor into their weight."""

_BLOCKED = "com.microsoft.nchwc"
"""Domain of convolutions in blocks of channels, which onnxruntime makes for a specific machine."""

_BLOCKS = (16, 8)
"""Channels of a block: the floats of a vector register (MlasNchwcGetBlockSize)."""

_MOST_READ = 1 << 24
"""Most elements of a tensor that is read to see whether a few numbers describe all of it."""

_CODES = ("structure:DequantizeLinear[0]",)

_FIRST_RESULT = re.compile(r"getitem(?:_\d+)?")
"""Name that torch.onnx's exporter gives to the first of several results: a layer with it has a folded BatchNorm."""

_REWRITTEN = re.compile(r"(?:fused )?node_(?:Conv|ConvTranspose|Gemm)_\d+")
"""Name of a layer that onnxscript made from several nodes, such as a layer and a BatchNorm. Others of an exported
program are named after their value, as `node_conv2d_3`. onnxruntime keeps the name if it fuses an activation, and then
the layer takes the activation's value.
"""

_PEEKED = 16
"""Elements of a tensor that are read first to see whether one number fills it."""

_TRACED = re.compile(r"onnx::\w+_\d+")
_UNDOTTED = re.compile(r"[A-Za-z]\w*")

_NOT_LEARNED = re.compile(
    r"(?i)anchor|basis|buffer|coord|emb_table|filter|freq|grid|mask|mean|noise|point|position|sigma|std|window"
)
"""Words in names of numbers that are given and not learned."""

_SCALAR_FUNCTIONS = frozenset(
    ("add", "clamp", "clip", "exp", "log", "neg", "reciprocal", "sigmoid", "softplus", "tanh")
)
"""Functions that modules apply to a learned number."""

_JOINS = frozenset(("cat", "concat", "stack"))
"""Operators that concatenate their inputs."""

_REFORMS = frozenset(("flatten", "reshape", "unflatten", "view"))
"""Operators that change only the shape: with several sources, another operator has merged these before."""


def _count_outputs(node: Node, shape: tuple[int, ...]) -> int:
    """Return the number of output channels of a layer that may have a bias, by its weight's shape; 0 for others."""
    match node.op_type, len(shape):
        case "Conv" | "FusedConv", rank if rank > 2:
            return shape[0]
        case "ConvTranspose", rank if rank > 2:
            return shape[1] * node.integers.get("group", 1)
        case "Gemm" | "FusedGemm", 2:
            return shape[0 if node.integers.get("transB", 0) else 1]
    return 0


def _count_filled(shape: tuple[int, ...], array: Array | None) -> tuple[int, int]:
    """Return the most output channels, and the most elements in all, that can be padding zeros of a blocked weight.

    The layouts are those of MLAS (`analyzer.reconciliation.layouts`). If `array` is None, return all that blocks allow.
    """
    rows, columns = shape[:2]
    found = (0, 0)
    for block in _BLOCKS:
        if rows % block:
            continue
        deep = block if columns % block == 0 else 1
        if array is None:
            last, deepest = block - 1, deep - 1
        else:
            tiled = array.reshape(rows // block, columns // deep, -1, deep, block)
            last = _trailing(tiled.any(axis=(1, 2, 3)).reshape(-1), block)
            deepest = _trailing(tiled.any(axis=(0, 2, 4)).reshape(-1), block) if deep > 1 else 0
        size = math.prod(shape[2:])
        found = max(found, (last, (rows * columns - (rows - last) * (columns - deepest)) * size))
    return found


def _trailing(has_numbers: Array, block: int) -> int:
    """Count the channels at the end that are all zeros, fewer than a block."""
    nonzero = np.flatnonzero(has_numbers)
    return min(has_numbers.size - 1 - int(nonzero[-1]) if nonzero.size else has_numbers.size, block - 1)


_ALIKE = 0.99
"""Least correlation of a table with an equal part of a weight, even if either is stored as codes."""

_SAMPLE_SIZE = 256
"""Elements that are compared first."""

_SAMPLES_ALIKE = 0.5
"""Least correlation of these samples if all elements are alike; unrelated ones stay eight standard deviations below."""

_LOOKS_UP = operators_of(Kind.LOOKS_UP)

_LEAST_TABLE = 64
"""Fewest elements of a table that a part of a weight may repeat."""


def _tables(entries: Iterable[Entry], wiring: Wiring) -> tuple[Entry, ...]:
    """Return matrices whose rows are looked up, no larger than `_MOST_READ`."""
    past_one = DECODES | _LOOKS_UP
    return tuple(
        entry
        for entry in entries
        if entry.role is Role.PARAMETER
        and len(entry.tensor.shape) == 2
        and (entry.uses != 1 or entry.read_by in past_one or wiring.calls)
        and _LEAST_TABLE <= entry.logical_numel <= _MOST_READ
        and any(kind_of(node) is Kind.LOOKS_UP for node, _ in wiring.readers(entry.tensor, past=DECODES))
    )


def _is_of_distances(ours: Array, table: Array) -> bool:
    """Whether the part beside a table is one number, or the squares of its rows, as `cdist` needs them."""
    squares = np.square(table.astype(np.float64)).sum(1)
    for turned in (ours, ours.T):
        width = table.shape[1]
        if turned.shape[0] != table.shape[0] or not np.array_equal(turned[:, :width], table):
            continue
        beside = turned[:, width:].astype(np.float64).T
        return all(bool((each == each[0]).all()) or np.allclose(each, squares, 1e-4) for each in beside)
    return False


def _is_part(array: Array, table: Callable[[], Array | None], samples: Sequence[_Samples]) -> bool:
    """Whether a table, possibly transposed, is the first or the last rows or columns of a matrix, in the same order.

    Args:
        array: the matrix.
        table: function that returns the table, which is read only if its samples resemble the matrix.
        samples: samples of the table and of its transpose.
    """
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        for is_turned, few in enumerate(samples):
            length, width = few.shape
            down, along = array.shape[0] - length, array.shape[1] - width
            if (down > 0) == (along > 0) or min(down, along) < 0:
                continue  # the table must equal the matrix in one dimension, and be smaller in the other
            for start in ((0, 0), (down, along)):
                part = array[start[0] : start[0] + length, start[1] : start[1] + width]
                if _correlate(_take_samples(part), few.elements) < _SAMPLES_ALIKE:
                    continue  # samples of equal numbers have no correlation, so the whole is compared
                whole = table()
                if whole is None:
                    return False
                if _correlate(_center(part), _center(whole.T if is_turned else whole)) >= _ALIKE:
                    return True
    return False


_Centered = tuple[npt.NDArray[np.float64], np.float64]
"""Elements minus their mean, flat, and the root of the sum of their squares."""


class _Samples(NamedTuple):
    """Samples of a table, or of its transpose."""

    shape: tuple[int, ...]
    elements: _Centered


def _center(array: Array) -> _Centered:
    flat = array.astype(np.float64).reshape(-1)
    flat -= flat.sum() / flat.size
    return flat, np.float64(math.sqrt(flat @ flat))


def _correlate(one: _Centered, other: _Centered) -> float:
    """Return the absolute correlation of the elements of two arrays of one shape."""
    (ours, our_size), (theirs, their_size) = one, other
    return abs(float(ours @ theirs / our_size / their_size))


def _take_samples(matrix: Array) -> _Centered:
    return _center(matrix[_spread(matrix.shape)])


@functools.lru_cache(maxsize=64)
def _spread(shape: tuple[int, int]) -> tuple[npt.NDArray[np.intp], ...]:
    """Return positions of at most 256 elements, evenly spread in a few adjacent rows, as whole pages are read."""
    rows, columns = shape
    wide = min(columns, _SAMPLE_SIZE)
    high = min(rows, max(1, _SAMPLE_SIZE // wide))
    return np.ix_(np.arange(high) + (rows - high) // 2, np.linspace(0, columns - 1, wide, dtype=np.intp))


_INPUT_SPEC = "provenance:input-spec"
_STORED = (_INPUT_SPEC, "name:parameter", "name:state-dict", "name:folded-bias")


def _prefix(graphs: Sequence[Graph]) -> str:
    """Return the prefix up to a slash, such as `net/`, that a tool has put before all stored names; "" if none."""
    names = [tensor.name for graph in graphs for tensor in graph.tensors if tensor.node is None]
    first, *others = {name.partition("/")[0] if "/" in name else "" for name in names} or {""}
    return f"{first}/" if first and not others and len(names) > 2 else ""


def _shows_pytorch_names(entry: Entry, prefix: str = "") -> bool:
    """Whether an entry shows that names or metadata in its file are PyTorch's."""
    if entry.role is not Role.PARAMETER or entry.tensor.node is not None:
        return False
    name = entry.tensor.name.removeprefix(prefix)
    leaf = name.rpartition(".")[2]
    is_own = (entry.decided_by in _STORED or (prefix and is_dotted(name))) and leaf in ("weight", "bias")
    return bool(is_own) or entry.decided_by == _INPUT_SPEC or name.startswith("onnx::")


def _count_noted(entries: Iterable[Entry]) -> dict[tuple[str, ...], int]:
    smallest: dict[tuple[str, ...], int] = {}
    for entry in entries:
        if entry.decided_by == _INPUT_SPEC and entry.logical_numel == entry.parameters:
            smallest[entry.sources] = min(entry.parameters, smallest.get(entry.sources, entry.parameters))
    return smallest


class _Part(Frozen):
    """Entries of one model file."""

    entries: Mapping[Key, Entry]
    notes: Mapping[tuple[GraphPath, str], Sequence[str]]
    """Names of the values that each value was folded from."""
    wiring: Wiring
    has_notes: bool
    """Whether the exporter's metadata is still there, so that a parameter without it has been replaced."""
    prefix: str = ""
    """Prefix that a tool has put before every name."""
    names: Collection[str] = frozenset()
    """Names of all stored tensors."""
    tables: tuple[Entry, ...] = ()
    """Tables whose rows are looked up."""
    reads: bool = True
    """Whether values may be read."""
    layers: set[tuple[Key, Key | None]] = field(default_factory=set)
    """Weights and biases of the layers that were visited."""
    biases: set[Key] = field(default_factory=set)
    """Biases of these layers."""
    slots: dict[tuple[Slot, ...], tuple[int | None, int | None]] = field(default_factory=dict)
    """Inputs of the weight and of the bias, by the slots of an operator."""
    sizes: dict[tuple[str, ...], set[int]] = field(default_factory=dict)
    """Numbers of elements of tensors, by their PyTorch names; filled on first use."""
    smallest_noted: dict[tuple[str, ...], int] = field(default_factory=dict)
    """Elements of the smallest parameter that is stored unchanged according to metadata, by PyTorch names."""
    seen: dict[Key, tuple[_Samples, ...]] = field(default_factory=dict)
    """Samples of each table that was compared, by rows and by columns; empty for a table without numbers."""

    def name(self, entry: Entry) -> _Name:
        """Return the origin of an entry's name."""
        name = float_name(entry.tensor.name).removeprefix(self.prefix)
        if self.prefix and is_dotted(name):
            return _Name.OWN
        if entry.decided_by == "name:parameter":  # nearly all entries
            is_of_tool = name.startswith(_OF_TOOL) and _TOOL.fullmatch(name) is not None
            return _Name.FOLDED if is_of_tool else _Name.OWN
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
        """Yield bounds for the weight and bias of a convolution or linear layer into which something was folded."""
        known = operator_of(node)
        if known is None or not node.is_standard:
            return
        slots = self.slots.get(known.slots)
        if slots is None:
            weights = [place for place, what in enumerate(known.slots) if what in (Slot.LEARNED, Slot.CODES)]
            biases = (place for place, what in enumerate(known.slots) if what is Slot.BIAS)
            slots = self.slots[known.slots] = max(weights, default=None), next(biases, None)
        weight, bias = (self._entry_at(node, slot) for slot in slots)
        is_convolution = known.kind is Kind.CONVOLUTION
        if bias is None and is_convolution and slots[1] is None:
            bias = self._added(node)
        if weight is None or weight.role is not Role.PARAMETER:
            return
        if bias is not None and bias.role is not Role.PARAMETER and bias.decided_by != "structure:scalar":
            bias = None  # the zeros of a layer without a bias
        pair = (weight.tensor.key, None if bias is None else bias.tensor.key)
        if pair in self.layers:
            return  # the same layer, applied once more
        is_shared = bias is not None and bias.tensor.key in self.biases
        self.layers.add(pair)
        if bias is not None:
            self.biases.add(bias.tensor.key)
        is_own = bias is not None and (bias.copy_of is None or weight.copy_of is None)
        if node.domain == _BLOCKED:
            yield from self._blocked(node, weight, bias, is_shared=is_shared)
        elif (
            bias is not None and is_own and self._has_norm(node, weight, bias, is_convolution=is_convolution)
        ):
            # The norm had a scale and a shift, and the layer may have had a bias; the stored bias counts for one of
            # these, unless it counts for one of another layer: tools store equal biases, such as zeros, once.
            size, counted = bias.logical_numel, 0 if is_shared else bias.parameters
            yield bias.tensor.key, Hides(2 * size - counted, 3 * size - counted, "batchnorm")
        elif bias is not None and is_own and self._may_hide_norm(node):
            counted = 0 if is_shared else bias.parameters
            yield bias.tensor.key, Hides(0, 3 * bias.logical_numel - counted, "batchnorm")
        elif bias is None and (lost := self._without_zeros(node, weight)) is not None:
            yield weight.tensor.key, lost
        elif float_name(weight.tensor.name).startswith("ConvMulFusion_"):
            yield weight.tensor.key, Hides(0, weight.tensor.shape[0] if weight.tensor.shape else 0, "factor")
        elif is_convolution and self.name(weight) in (_Name.MADE, _Name.COMPUTED):
            # PyTorch's kernel has ONNX's layout: it loses its name only if its values change.
            yield from self._computed(weight)
        if node.op_type == "FusedMatMul" and node.settings.get("alpha", 1.0) != 1.0:
            yield weight.tensor.key, Hides(0, 1, "factor")
        if bias is not None and float_name(bias.tensor.name).startswith("ConvAddFusion_"):
            yield bias.tensor.key, Hides(0, bias.logical_numel, "bias")

    def _blocked(
        self, node: Node, weight: Entry, bias: Entry | None, *, is_shared: bool
    ) -> Iterator[tuple[Key, Hides]]:
        """Yield bounds for a blocked convolution: zeros may pad the last block, and names do not show a norm."""
        shape = weight.tensor.shape
        array = weight.tensor.payload.array() if self.reads else None
        if (
            (self.reads and array is None)
            or len(shape) < 3
            or not weight.parameters == weight.logical_numel > 0
        ):
            return
        rows, elements = _count_filled(shape, array)
        if elements:
            yield weight.tensor.key, Hides(-elements, 0, "padding")
        if bias is None and self._may_hide_norm(node):
            yield weight.tensor.key, Hides(0, 3 * shape[0], "batchnorm")
        elif bias is None and _FX.fullmatch(node.name.removesuffix("_nchwc").removeprefix(self.prefix)):
            yield weight.tensor.key, Hides(0, shape[0], "bias")
        if bias is not None and bias.parameters == bias.logical_numel:
            least, size = -min(rows, bias.parameters), bias.logical_numel
            is_own = self.name(bias) is _Name.OWN and not self._is_folded_bias(bias)
            if not is_own or self._may_hide_norm(node):
                yield (
                    bias.tensor.key,
                    Hides(0, 3 * size, "batchnorm") if is_shared else Hides(least, 2 * size, "batchnorm"),
                )
            elif least and not is_shared:
                yield bias.tensor.key, Hides(least, 0, "padding")

    def merged(self, node: Node) -> Iterator[tuple[Key, Hides]]:
        """Yield bounds for a parameter stored also for another of equal content, whose name only an Identity has.

        If few numbers describe the content, as for zeros and sinusoids, the two may be equal without being one.
        """
        if node.op_type != "Identity" or node.domain not in ("", "ai.onnx") or len(node.outputs) != 1:
            return
        name = node.outputs[0].removeprefix(self.prefix)
        entry = self._entry_at(node, 0)
        if entry is None or not entry.parameters or entry.tensor.name != node.inputs[0]:
            return
        if node.outputs[0] in self.names or not is_dotted(name):
            return
        if self._is_few_numbers(entry, 1):
            yield entry.tensor.key, Hides(0, self._merges(node) * entry.parameters, "merged")

    def shared(self, entry: Entry) -> Hides | None:
        """Return bounds for a parameter that several nodes read, if one number fills it: each may have had its own.

        Exporters and tools store equal tensors once, such as the biases and norms of layers that were never trained.
        """
        tensor = entry.tensor
        if entry.role is not Role.PARAMETER or not entry.parameters or not tensor.dtype.is_floating:
            return None
        if self.reads:
            peek = tensor.payload.at(np.arange(min(tensor.numel, _PEEKED)))
            if peek is None or not bool((peek == peek[0]).all()):
                return None
        elif len(tensor.shape) != 1:
            return None
        if not self._is_few_numbers(entry, 1):
            return None
        return Hides(0, (entry.uses - 1) * entry.parameters, "merged")

    def copied(self, entry: Entry) -> Hides | None:
        """Return bounds for a weight stored a second time as its transpose, if PyTorch's name of neither is known.

        Both have names of a trace, so that each may be a transposed parameter of its own, as a filter bank and its
        inverse are. Several layers that share a weight read it in one orientation, so that a tool that stores it once
        for each, as onnxslim does, stores equal tensors; weights tied to a transpose have PyTorch's name on one side.
        """
        original = None if entry.copy_of is None else self.entries.get(entry.copy_of)
        if original is None or entry.parameters or entry.decided_by != "content:transposed-copy":
            return None
        both = entry.tensor, original.tensor
        if entry.sources or original.sources or not all(_TRACED.fullmatch(each.name) for each in both):
            return None
        is_one_graph = both[0].graph_path == both[1].graph_path
        return Hides(0, entry.logical_numel, "copy") if is_one_graph else None

    def _merges(self, node: Node) -> int:
        """Count the nodes with other parameters' names that read the same tensor as this one."""
        stored = self.wiring.find(node.graph_path, node.inputs[0])
        if not isinstance(stored, StoredTensor):
            return 0
        readers = [reader.node for reader in self.wiring.readers(stored) if reader.node.op_type == "Identity"]
        return sum(
            is_dotted(each.outputs[0].removeprefix(self.prefix)) and each.outputs[0] not in self.names
            for each in readers
        )

    def _entry_at(self, node: Node, slot: int | None) -> Entry | None:
        tensor = None if slot is None else find_origin(self.wiring, node, slot)
        return None if tensor is None else self.entries.get(tensor.key)

    def _added(self, node: Node) -> Entry | None:
        """Return the vector added after a convolution of codes, which has no bias input."""
        for reader in self.wiring.readers(node):
            following_node, slot = reader
            while following_node.op_type in ("Cast", "Mul") and slot == 0:  # nodes that decode the product
                following = self.wiring.readers(following_node)
                if len(following) != 1:
                    break
                following_node, slot = following[0]
            if following_node.op_type == "Add":
                return self._entry_at(following_node, 1 - slot)
        return None

    def _may_hide_norm(self, node: Node) -> bool:
        """Whether names leave open that a layer hides a BatchNorm, though its weight and bias have their own names.

        onnxscript keeps the name of a bias that the layer had before. What then shows the norm is the name of the
        layer's value, `getitem_3`, until onnxruntime fuses an activation: the value is that of the activation then.
        A blocked node is named after its value.
        """
        name = node.name.removeprefix(self.prefix)
        if node.domain == _BLOCKED:
            value = _FX.fullmatch(name.removesuffix("_nchwc"))
            return value is not None and not value[1].startswith("conv")
        return node.op_type in ("FusedConv", "FusedGemm") and _REWRITTEN.fullmatch(name) is not None

    def _without_zeros(self, node: Node, weight: Entry) -> Hides | None:
        """Return bounds for a bias and a norm that a layer without a bias may have had; None if names exclude both.

        onnxscript removes a bias of zeros. After folding, the bias of a norm that was never trained is one.
        """
        size = _count_outputs(node, weight.tensor.shape)
        if not size or self.name(weight) is _Name.MADE:
            return None
        name, value = node.name.removeprefix(self.prefix), node.outputs[0].removeprefix(self.prefix)
        if _FIRST_RESULT.fullmatch(value):
            return Hides(2 * size, 3 * size, "batchnorm")
        if not _REWRITTEN.fullmatch(name):
            return None
        return Hides(0, 3 * size, "batchnorm") if self._may_hide_norm(node) else Hides(0, size, "bias")

    def _has_norm(self, node: Node, weight: Entry, bias: Entry, *, is_convolution: bool) -> bool:
        """Whether a BatchNorm is folded into a weight and a bias, judged by their names or the layer's output name."""
        name = float_name(bias.tensor.name)
        if node.outputs and _FIRST_RESULT.fullmatch(node.outputs[0].removeprefix(self.prefix)):
            return True
        if self._is_folded_bias(bias) or name.startswith(("ConvBnFusion_BN_B_", "MatMulBnFusion_GemmBias")):
            return True
        if self.has_notes and {weight.decided_by, bias.decided_by} == {"name:parameter"}:
            return True  # onnxscript keeps the names, and drops the metadata of replaced values
        made = (_Name.MADE, _Name.UNKNOWN)
        return is_convolution and self.name(weight) in made and self.name(bias) in made

    def _is_folded_bias(self, bias: Entry) -> bool:
        """Whether a layer's bias has the name that onnxscript gives the bias of a folded BatchNorm: `conv.weight_bias`.

        The weight may have lost its name since: onnxruntime renames those that it stores in blocks of channels.
        """
        return bias.decided_by == "name:folded-bias" or float_name(bias.tensor.name).endswith(".weight_bias")

    def bounds_of_other(self, entry: Entry, *, is_opaque: bool) -> Hides | None:
        """Return bounds for any other tensor that is not unchanged; None if it hides nothing."""
        name, rule = self.name(entry), entry.decided_by
        if entry.role is Role.PARAMETER and entry.parameters:
            # A tensor that forward kept, of unknown origin.
            if is_lifted(entry.tensor.name.rpartition(".")[2]):
                return Hides(-entry.parameters, None, "computed")
            if (frozen := self._frozen(entry)) is not None:
                return frozen
            if (repeated := self._repeats(entry, name)) is not None:
                return repeated
            if rule == "provenance:folded-with" and self._is_also_stored(entry):
                return Hides(-entry.parameters, 0, "repeated")
            if (period := self._period(entry)) < entry.parameters:
                return Hides(period - entry.parameters, 0, "repeated")
            if rule == "name:folded-bias":  # its layer adds it separately
                size = entry.parameters
                return Hides(size, 2 * size, "batchnorm")
            if (
                rule == "provenance:folded-with"
                and name is _Name.MOVED
                and entry.parameters < entry.logical_numel
            ):
                return Hides(0, None, "computed")  # rows of a table that may have had more
            if rule == "provenance:folded-with":
                is_moved = (name is _Name.MOVED and self._is_joined(entry)) or self._is_affine(entry)
            elif rule == "provenance:folded-from":
                is_moved = len(entry.sources) < 2 or name is _Name.MOVED
            elif rule in _CODES and not entry.sources:
                is_moved = name is _Name.UNKNOWN or self._is_read_as_weight(entry)
            elif rule.endswith("-vector") and not entry.sources and name is not _Name.OWN:
                is_moved = name is _Name.UNKNOWN or self._is_scale_and_shift(entry)
            else:
                is_moved = bool(entry.sources) or name is not _Name.COMPUTED
            return None if is_moved else next(iter(dict(self._computed(entry)).values()), None)
        if entry.tensor.numel == 1 and entry.role is not Role.PARAMETER:
            if self._may_be_learned(entry):
                return Hides(0, 1, "scalar")
            if self._is_of_parameter(entry):
                return Hides(0, None, "computed")
        if not is_opaque or not entry.tensor.dtype.is_floating or entry.role is Role.PARAMETER:
            return None
        if rule == TRACED_CONSTANT:
            # A Constant is a value of the trace, and no parameter; another node's result may be computed from
            # parameters.
            value = _VALUE.fullmatch(entry.tensor.name.removeprefix(self.prefix))
            return None if value is None or value[1] == "Constant" else Hides(0, None, "computed")
        sources = self.notes.get((entry.tensor.graph_path, entry.tensor.name), ())
        is_unknown = any(map(_may_be_parameter, sources)) if sources else name in (_Name.MADE, _Name.COMPUTED)
        if is_unknown:
            return Hides(0, None, "computed")
        return None

    def is_unchanged(self, entry: Entry) -> bool:
        """Whether it is a weight or a bias under its own PyTorch name, and not part of a norm: nearly all are."""
        name = entry.tensor.name
        if entry.decided_by != "name:parameter" or entry.sources != (name,) or self.prefix:
            return False
        module, _, leaf = name.rpartition(".")
        is_usual = leaf in ("weight", "bias") and not name.startswith(_OF_TOOL)
        return is_usual and f"{module}.running_var" not in self.names

    def _is_joined(self, entry: Entry) -> bool:
        """Whether a tensor folded from several parameters may be their concatenation.

        An operator that only changes the shape does not concatenate.
        """
        value = _FX.fullmatch(float_name(entry.tensor.name).removeprefix(self.prefix))
        return len(entry.sources) < 2 or value is None or value[1].lower() not in _REFORMS

    def _repeats(self, entry: Entry, name: _Name) -> Hides | None:
        """Return bounds for a nameless matrix that joins a table with a weight of its own (MobileBERT's head)."""
        shape = entry.tensor.shape
        if (
            (name is _Name.OWN and is_dotted(entry.tensor.name))
            or len(shape) != 2
            or entry.tensor.numel > _MOST_READ
        ):
            return None
        ours: Array | None = None
        for table in self.tables:
            rows, columns = table.tensor.shape
            is_like = any(
                one == same and other > less
                for one, other in (shape, shape[::-1])
                for same, less in ((rows, columns), (columns, rows))
            )
            if not is_like or table is entry or entry.parameters < table.logical_numel:
                continue
            ours = self._numbers(entry) if ours is None else ours
            if ours is None or ours.dtype.kind not in "fiu":
                return None
            if _is_part(ours, functools.partial(self._numbers, table), self._samples(table)):
                numbers = self._numbers(table)
                is_computed = (len(entry.sources) == 1 and entry.sources == table.sources) or (
                    numbers is not None and _is_of_distances(ours, numbers)
                )
                return Hides(-(entry if is_computed else table).logical_numel, 0, "repeated")
        return None

    def _samples(self, table: Entry) -> tuple[_Samples, ...]:
        """Return samples of a table by rows and by columns; empty if it has no numbers."""
        key = table.tensor.key
        if key not in self.seen:
            array = self._numbers(table)
            sides = () if array is None or array.dtype.kind not in "fiu" else (array, array.T)
            with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
                self.seen[key] = tuple(_Samples(side.shape, _take_samples(side)) for side in sides)
        return self.seen[key]

    def _numbers(self, entry: Entry) -> Array | None:
        """Return the stored numbers, decoded if they are codes."""
        encoded = find_encoding(entry.tensor, self.wiring)
        return entry.tensor.payload.array() if encoded is None else encoded.array()

    def _frozen(self, entry: Entry) -> Hides | None:
        """Return bounds for a tensor that may be a buffer.

        These are: scale and shift beside a mean and a variance that no BatchNormalization reads; a constant part of
        concatenated vectors; a tensor outside any module with a buffer's name; and a table of positions that has lost
        its name, if few numbers describe it. A known table that was folded from one tensor counts as computed.
        """
        module, _, leaf = entry.tensor.name.rpartition(".")
        if leaf in ("weight", "bias") and f"{module}.running_var" in self.names:
            readers = self.wiring.readers(entry.tensor, past=MOVES)
            if all(kind_of(reader.node) is not Kind.NORMALIZES for reader in readers):
                return Hides(-entry.parameters, 0, "buffer")
        name = entry.tensor.name.removeprefix(self.prefix)
        if self._is_bare(entry, name):
            return Hides(-entry.parameters, 0, "buffer")
        count = len(entry.sources)
        if not count and self._is_numbered_table(entry, name):
            return Hides(-entry.parameters, 0, "buffer")
        if count == 1 and entry.sources[0].rpartition(".")[2] not in ("weight", "bias"):
            is_folded = entry.decided_by.startswith("provenance:folded-")
            if is_folded and self._is_few_numbers(entry, 0):
                return Hides(-entry.parameters, None, "computed")
        value = _FX.fullmatch(name) if count > 1 and len(entry.tensor.shape) == 1 else None
        if value is not None and value[1] in _JOINS:
            if not self.reads:
                return Hides(entry.tensor.numel // count - entry.parameters, 0, "buffer")
            array = entry.tensor.payload.array()
            if array is not None and array.size % count == 0:
                parts = array.reshape(count, -1)
                filled = int((parts == parts[:, :1]).all(axis=1).sum()) * parts.shape[1]
                return Hides(-filled, 0, "buffer") if 0 < filled < array.size else None
        return None

    def _is_few_numbers(self, entry: Entry, most: int) -> bool:
        """Whether at most `most` numbers describe all values; if values may not be read, whether that is possible."""
        if entry.tensor.numel > _MOST_READ:
            return False
        array = entry.tensor.payload.array() if self.reads else None
        return not self.reads or (array is not None and count_free(array) <= most)

    def _is_numbered_table(self, entry: Entry, name: str) -> bool:
        """Whether a gathering operator reads it as a table, and its values are positions."""
        is_gathered = entry.decided_by.startswith("structure:Gather")
        is_table = is_gathered and len(entry.tensor.shape) > 1 and _NUMBERED.fullmatch(name) is not None
        return is_table and self._is_few_numbers(entry, 0)

    def _may_be_learned(self, entry: Entry) -> bool:
        """Whether a number in arithmetic may be a parameter, or a function of one.

        The tracer numbers a folded value after its reader, as in `onnx::Mul_46`. A tensor without a dot in its name,
        and without an operator's name, is a parameter or a buffer of the outermost module.
        """
        tensor = entry.tensor
        if entry.decided_by not in _NUMBER_RULES:
            return False
        if tensor.node is not None or not tensor.dtype.is_floating:
            return False
        name = tensor.name.removeprefix(self.prefix)
        sources = self.notes.get((tensor.graph_path, tensor.name), ())
        value = _VALUE.fullmatch(name) or _FX.fullmatch(name)
        if sources:
            return all(map(_may_be_parameter, sources))
        if value is not None and value[1].lower() in _MOVES | _COMPUTES | _WITHOUT_PARAMETERS:
            return value[1].lower() in _SCALAR_FUNCTIONS
        if self.prefix and is_dotted(name):
            return True
        return _TRACED.fullmatch(name) is not None or (
            _UNDOTTED.fullmatch(name) is not None and _NUMBERED.fullmatch(name) is None and not self.has_notes
        )

    def _is_also_stored(self, entry: Entry) -> bool:
        """Whether the only parameter that a larger tensor was computed from is also stored unchanged in the file."""
        return len(entry.sources) == 1 and entry.parameters > self.smallest_noted.get(
            entry.sources, entry.parameters
        )

    def _is_of_parameter(self, entry: Entry) -> bool:
        """Whether metadata says that a number was computed from a value that no operator made, like `1 + eps[0]`."""
        sources = self.notes.get((entry.tensor.graph_path, entry.tensor.name), ())
        is_number = entry.decided_by in _NUMBER_RULES and entry.tensor.dtype.is_floating
        return is_number and any(_UNDOTTED.fullmatch(each) and _may_be_parameter(each) for each in sources)

    def _period(self, entry: Entry) -> int:
        """Return the period of a norm's nameless vector: an instance norm repeats its vector per batch element."""
        tensor = entry.tensor
        is_vector = len(tensor.shape) == 1 and not entry.sources and entry.read_by == "BatchNormalization"
        if is_vector and not self.reads:
            return entry.parameters if self.name(entry) is _Name.OWN else 1
        array = tensor.payload.array() if is_vector and tensor.numel <= _MOST_READ else None
        if array is None:
            return entry.parameters
        for period in range(1, tensor.numel // 2 + 1):
            if tensor.numel % period == 0 and bool(
                (array == np.tile(array[:period], tensor.numel // period)).all()
            ):
                return period
        return entry.parameters

    def _is_bare(self, entry: Entry, name: str) -> bool:
        """Whether it has the name of a value of the outermost module that is often a buffer's."""
        if not entry.decided_by.startswith("structure:"):
            return False
        value = _FX.fullmatch(name)
        is_result = value is not None and value[1].lower() in _MOVES | _COMPUTES | _WITHOUT_PARAMETERS
        return (
            not entry.sources
            and not self.has_notes
            and entry.tensor.node is None
            and _UNDOTTED.fullmatch(name) is not None
            and not is_result
            and _NUMBERED.fullmatch(name) is None
            and _NOT_LEARNED.search(name) is not None
        )

    def _computed(self, entry: Entry) -> Iterator[tuple[Key, Hides]]:
        if entry.copy_of is None and entry.parameters:
            yield entry.tensor.key, Hides(-entry.parameters, None, "computed")

    def _is_affine(self, entry: Entry) -> bool:
        """Whether it is the scale or the shift of a norm with moved axes: PyTorch stores both as vectors.

        A row of a table is a vector too, but no table has a bias of as many elements.
        """
        if len(entry.sources) != 1 or sum(dim != 1 for dim in entry.tensor.shape) != 1:
            return False
        module, _, leaf = entry.sources[0].rpartition(".")
        beside = {"weight": f"{module}.bias", "bias": f"{module}.weight"}.get(leaf)
        if not self.sizes:
            for other in self.entries.values():
                self.sizes.setdefault(other.sources, set()).add(other.tensor.numel)
        return beside is not None and entry.tensor.numel in self.sizes.get((beside,), ())

    def _is_read_as_weight(self, entry: Entry) -> bool:
        """Whether codes are decoded for an operator with weights, and not for elementwise arithmetic."""
        readers = self.wiring.readers(entry.tensor, past=MOVES | DECODES)
        return all(kind_of(reader.node) is not Kind.ELEMENTWISE for reader in readers)

    def _is_scale_and_shift(self, entry: Entry) -> bool:
        """Whether a nameless vector is a factor, and one of its size is added to the product, or the other way round.

        A decomposed norm has this form; any other vector may be numbers that forward makes.
        """
        for reader in self.wiring.readers(entry.tensor, past=MOVES):
            node = reader.node
            if node.op_type == "Mul":
                beside = [found.node for found in self.wiring.readers(node) if found.node.op_type == "Add"]
            else:
                before = self.wiring.producers(node) if node.op_type == "Add" else ()
                beside = [found for found in before if isinstance(found, Node) and found.op_type == "Mul"]
            for other in beside:
                origins = [find_origin(self.wiring, other, slot) for slot in range(len(other.inputs))]
                if any(each is not None and each.numel == entry.tensor.numel for each in origins):
                    return True
        return False


_NUMBER_RULES = ("structure:scalar", "provenance:folded-constant")
"""Rules for a single number in arithmetic."""


def _may_be_parameter(source: str) -> bool:
    """Whether a value that another was folded from is not the result of an operator in the exported program.

    A parameter of the outermost module has a name without dots, like the results of operators.
    """
    found = _FX.fullmatch(source)
    is_result = found is not None and found[1] in _MOVES | _COMPUTES | _WITHOUT_PARAMETERS
    return not is_result and _NUMBERED.fullmatch(source) is None and not is_lifted(source)
