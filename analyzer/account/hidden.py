"""Model + entries -> what a stored tensor hides: how many parameters PyTorch may have had in its place, and why.

An exporter keeps a parameter's PyTorch name on what it stores as it is. What it has computed from parameters it names
itself, or writes a note of. Three kinds of that are told apart: what was only moved has as many elements as before; a
layer that a BatchNorm is folded into hides that norm's parameters; of any other value nobody can tell from how many
parameters it was computed.

Names are those of PyTorch's exporters (torch/onnx/utils.py; onnxscript rewriter/rules/common/_fuse_batchnorm.py), of
onnxruntime (core/optimizer/conv_bn_fusion.cc, conv_mul_fusion.cc, conv_add_fusion.cc), onnxsim and onnxslim. Behind a
prefix that all names of a graph have (onnx.compose.add_prefix) they are the same.

A tensor may also count for more than PyTorch had: zeros that fill a blocked convolution up, and numbers that have a
parameter's name and may be a buffer's.
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
from analyzer.model.operators import DECODES, MOVES, Kind, Slot, kind_of, named, operator_of
from analyzer.model.tables import count_free
from analyzer.model.wiring import Wiring
from analyzer.records import Frozen, field


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


def find_hidden(
    model: Model, entries: Sequence[Entry], wiring: Wiring, opaque: frozenset[Key], *, reads: bool = True
) -> Hidden:
    """Tell which tensors hide how many parameters PyTorch had; of others the file holds all, or nobody asks.

    Only of files that have names or notes of PyTorch's: one whose every tensor has a name of a tool, or of another
    framework, is counted as it stands, but for the zeros of a recurrent layer's bias: ONNX has two, most others one.

    Args:
        opaque: the tensors that compute and that no rule explains.
        reads: whether values may be read. Where not, no table is looked for in a weight, as no copies are, and what
            values alone would settle is open.
    """
    found: dict[Key, Hides] = {}
    for _, graphs in model.by_part():
        paths = {graph.path for graph in graphs}
        own = {entry.tensor.key: entry for entry in entries if entry.tensor.graph_path in paths}
        found.update(_in_any_file(graphs, own, wiring, reads=reads))
        prefix = _prefix(graphs)
        if not any(_is_told(entry, prefix) for entry in own.values()):
            continue
        notes = {
            (graph.path, name): sources
            for graph in graphs
            for name, props in graph.metadata.items()
            if (sources := folded_from(props))
        }
        names = {entry.tensor.name for entry in own.values()}
        has_notes = any(e.decided_by == _NOTED for e in own.values())
        tables = _tables(own.values(), wiring) if reads else ()
        look = _Part(
            own, notes, wiring, has_notes, prefix, names, tables, reads, held=_count_noted(own.values())
        )
        asked = _LAYERS if any("ConvMulFusion_" in name for name in names) else _LAYERS - _PLAIN_PRODUCTS
        for graph in graphs:
            for node in graph.nodes:
                op_type = node.op_type
                if op_type == "Identity":
                    found.update(look.merged(node))
                elif op_type in asked and kind_of(node) in (Kind.CONVOLUTION, Kind.PRODUCT):
                    found.update(look.layer(node))
        for key, entry in own.items():
            if look.is_as_it_was(entry) or key in found:
                continue
            if (hides := look.alone(entry, is_opaque=key in opaque)) is not None:
                found[key] = hides
    return found


_BIASES = 3
"""The input of an LSTM, GRU or RNN that holds the biases: those of its input, then those of its state."""


def _in_any_file(
    graphs: Iterable[Graph], own: Mapping[Key, Entry], wiring: Wiring, *, reads: bool
) -> Iterator[tuple[Key, Hides]]:
    """What tensors hide whoever has named them."""
    for node in itertools.chain.from_iterable(graph.nodes for graph in graphs):
        if node.op_type not in _TOLD_IN_ANY:
            continue
        if node.op_type in _RECURRENT and reads and (half := _zero_half(node, own, wiring)) is not None:
            yield half[0], Hides(-half[1], 0, "padding")
        elif node.op_type in _CONVOLVES and (shift := _keras_shift(node, own, wiring)) is not None:
            yield shift.tensor.key, Hides(0, 2 * shift.logical_numel, "batchnorm")
    for entry in own.values() if reads else ():
        if entry.decided_by == "provenance:folded-with" and _is_zero_result(entry):
            yield entry.tensor.key, Hides(-entry.parameters, 0, "repeated")


_RECURRENT, _CONVOLVES = frozenset({"GRU", "LSTM", "RNN"}), named(Kind.CONVOLUTION)
_TOLD_IN_ANY = _RECURRENT | _CONVOLVES


def _zero_half(node: Node, own: Mapping[Key, Entry], wiring: Wiring) -> tuple[Key, int] | None:
    """The bias of an LSTM, GRU or RNN, and how many zeros stand where its second half is nothing but zeros.

    Frameworks with one bias for input and state fill the other up.
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
    """Whether what an exporter has folded with others is zeros of a weight, as a recurrent layer's first state."""
    value = _FX.fullmatch(entry.tensor.name)
    if value is None or value[1] not in _COMPUTES:
        return False
    if not entry.parameters or entry.tensor.numel > _MOST_READ:
        return False
    array = entry.tensor.payload.array()
    return array is not None and not array.any()


_KERAS_SHIFT = re.compile(r".*/batchnorm/sub(?::0)?")
"""What tf2onnx calls a convolution's bias that a BatchNormalization of Keras became; its scale went into the weight."""


def _keras_shift(node: Node, own: Mapping[Key, Entry], wiring: Wiring) -> Entry | None:
    tensor = find_origin(wiring, node, 2) if len(node.inputs) > 2 else None
    if tensor is None or _KERAS_SHIFT.fullmatch(tensor.name) is None:
        return None
    entry = own.get(tensor.key)
    return entry if entry is not None and entry.parameters and entry.role is Role.PARAMETER else None


_LAYERS = named(Kind.CONVOLUTION, Kind.PRODUCT)
_PLAIN_PRODUCTS = frozenset({"MatMul"})
"""Layers without a bias, which hide nothing unless a tool has put a factor into their weight."""

_BLOCKED = "com.microsoft.nchwc"
"""The domain of convolutions in blocks of channels, which onnxruntime makes for a machine."""

_BLOCKS = (16, 8)
"""Channels of a block: the floats of a vector (MlasNchwcGetBlockSize)."""

_MOST_READ = 1 << 24
"""Elements of a tensor that is read to see whether few numbers say all of it."""

_CODES = ("structure:DequantizeLinear[0]",)

_FIRST_OF = re.compile(r"getitem(?:_\d+)?")
"""What torch.onnx's exporter calls the first of several results: of a layer, a BatchNorm's that was folded into it."""

_TRACED = re.compile(r"onnx::\w+_\d+")
_BARE = re.compile(r"[A-Za-z]\w*")

_GIVEN = re.compile(
    r"(?i)anchor|basis|buffer|coord|emb_table|filter|freq|grid|mask|mean|noise|point|position|sigma|std|window"
)
"""Words for numbers that are given and not learned."""

_OF_ONE = frozenset(
    ("add", "clamp", "clip", "exp", "log", "neg", "reciprocal", "sigmoid", "softplus", "tanh")
)
"""Functions that modules apply to a learned number."""

_JOINS = frozenset(("cat", "concat", "stack"))
"""Operators by which as many elements come out as go in from several inputs."""

_REFORMS = frozenset(("flatten", "reshape", "unflatten", "view"))
"""Operators that change a shape alone: of several sources, something else has made one value before."""


def _count_filled(shape: tuple[int, ...], array: Array | None) -> tuple[int, int]:
    """Output channels, and elements in all, that are zeros at the end of a blocked weight, at most.

    The layouts are those of MLAS (`analyzer.reconciliation.layouts`). Without its elements, all that a block can lack.
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
    """Channels at the end without a number, fewer than a block."""
    held = np.flatnonzero(has_numbers)
    return min(has_numbers.size - 1 - int(held[-1]) if held.size else has_numbers.size, block - 1)


_ALIKE = 0.99
"""Correlation of a table's elements with those of a part of a weight that is the same, codes on either side or not."""

_SOME = 256
"""Elements that are looked at first."""

_SOME_ALIKE = 0.5
"""What so many of the elements show where all are alike; unlike ones are eight standard deviations from it."""

_LOOKS_UP = named(Kind.LOOKS_UP)

_LEAST_TABLE = 64
"""Elements of a table that a part of a weight may repeat, at least."""


def _tables(entries: Iterable[Entry], wiring: Wiring) -> tuple[Entry, ...]:
    """Matrices of which rows are looked up, at most as large as one is read."""
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
    """Whether all that stands beside a table is one number, or the squares of its rows, as `cdist` takes them."""
    squares = np.square(table.astype(np.float64)).sum(1)
    for turned in (ours, ours.T):
        width = table.shape[1]
        if turned.shape[0] != table.shape[0] or not np.array_equal(turned[:, :width], table):
            continue
        beside = turned[:, width:].astype(np.float64).T
        return all(bool((each == each[0]).all()) or np.allclose(each, squares, 1e-4) for each in beside)
    return False


def _is_part(array: Array, table: Callable[[], Array | None], some: Sequence[_Some]) -> bool:
    """Whether a table, as it is or turned, is the first or the last rows or columns of a matrix, in its order.

    Args:
        array: the matrix.
        table: gives the table, which is read where some of it is like the matrix.
        some: some of the table's elements, as it is and turned.
    """
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        for is_turned, few in enumerate(some):
            length, width = few.shape
            down, along = array.shape[0] - length, array.shape[1] - width
            if (down > 0) == (along > 0) or min(down, along) < 0:
                continue  # it is as long, or as wide, and not both
            for start in ((0, 0), (down, along)):
                part = array[start[0] : start[0] + length, start[1] : start[1] + width]
                if _correlate(_look_at_some(part), few.elements) < _SOME_ALIKE:
                    continue  # where some are one number they have no correlation, and all are asked
                whole = table()
                if whole is None:
                    return False
                if _correlate(_center(part), _center(whole.T if is_turned else whole)) >= _ALIKE:
                    return True
    return False


_Centered = tuple[npt.NDArray[np.float64], np.float64]
"""Elements less their mean, flat, and the root of the sum of their squares."""


class _Some(NamedTuple):
    """Some elements of a table, or of one with its axes exchanged."""

    shape: tuple[int, ...]
    elements: _Centered


def _center(array: Array) -> _Centered:
    flat = array.astype(np.float64).reshape(-1)
    flat -= flat.sum() / flat.size
    return flat, np.float64(math.sqrt(flat @ flat))


def _correlate(one: _Centered, other: _Centered) -> float:
    """The correlation of elements of two arrays of one shape, without its sign."""
    (ours, our_size), (theirs, their_size) = one, other
    return abs(float(ours @ theirs / our_size / their_size))


def _look_at_some(matrix: Array) -> _Centered:
    return _center(matrix[_spread(matrix.shape)])


@functools.lru_cache(maxsize=64)
def _spread(shape: tuple[int, int]) -> tuple[npt.NDArray[np.intp], ...]:
    """Places of at most 256 elements: evenly in rows that lie together, and as few as have so many. Pages are read."""
    rows, columns = shape
    wide = min(columns, _SOME)
    high = min(rows, max(1, _SOME // wide))
    return np.ix_(np.arange(high) + (rows - high) // 2, np.linspace(0, columns - 1, wide, dtype=np.intp))


_NOTED = "provenance:input-spec"
_STORED = (_NOTED, "name:parameter", "name:state-dict", "name:folded-bias")


def _prefix(graphs: Sequence[Graph]) -> str:
    """What a tool has put before the names of all that is stored, as far as a slash: `net/`; "" where it has not."""
    names = [tensor.name for graph in graphs for tensor in graph.tensors if tensor.node is None]
    first, *others = {name.partition("/")[0] if "/" in name else "" for name in names} or {""}
    return f"{first}/" if first and not others and len(names) > 2 else ""


def _is_told(entry: Entry, prefix: str = "") -> bool:
    """Whether an entry shows that names, or notes, in its file are PyTorch's."""
    if entry.role is not Role.PARAMETER or entry.tensor.node is not None:
        return False
    name = entry.tensor.name.removeprefix(prefix)
    leaf = name.rpartition(".")[2]
    is_own = (entry.decided_by in _STORED or (prefix and is_dotted(name))) and leaf in ("weight", "bias")
    return bool(is_own) or entry.decided_by == _NOTED or name.startswith("onnx::")


def _count_noted(entries: Iterable[Entry]) -> dict[tuple[str, ...], int]:
    held: dict[tuple[str, ...], int] = {}
    for entry in entries:
        if entry.decided_by == _NOTED and entry.logical_numel == entry.parameters:
            held[entry.sources] = min(entry.parameters, held.get(entry.sources, entry.parameters))
    return held


class _Part(Frozen):
    """One model file."""

    entries: Mapping[Key, Entry]
    notes: Mapping[tuple[GraphPath, str], Sequence[str]]
    """What values were folded from."""
    wiring: Wiring
    has_notes: bool
    """Whether the exporter's notes are still there, so that a parameter without one has been replaced."""
    prefix: str = ""
    """What a tool has put before every name."""
    names: Collection[str] = frozenset()
    """Of all that is stored."""
    tables: tuple[Entry, ...] = ()
    """Of which rows are looked up."""
    reads: bool = True
    """Whether values may be read."""
    slots: dict[tuple[Slot, ...], tuple[int | None, int | None]] = field(default_factory=dict)
    """By the inputs of an operator: that of the weight, and that of the bias."""
    sizes: dict[tuple[str, ...], set[int]] = field(default_factory=dict)
    """Elements of what has these PyTorch names, once somebody has asked."""
    held: dict[tuple[str, ...], int] = field(default_factory=dict)
    """Elements of the smallest parameter that stands as it was under these PyTorch names, by the exporter's note."""
    seen: dict[Key, tuple[_Some, ...]] = field(default_factory=dict)
    """Some elements of each table that was compared, by rows and by columns; of one without numbers nothing."""

    def name(self, entry: Entry) -> _Name:
        """Who gave an entry its name."""
        name = float_name(entry.tensor.name).removeprefix(self.prefix)
        if self.prefix and is_dotted(name):
            return _Name.OWN
        if entry.decided_by == "name:parameter":  # nearly all
            is_of_tool = name.startswith("Conv") and _TOOL.fullmatch(name) is not None
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
        """What a convolution's or a linear layer's weight and bias hide, where something was folded into them."""
        known = operator_of(node)
        if known is None or not node.is_standard:
            return
        slots = self.slots.get(known.slots)
        if slots is None:
            weights = [place for place, what in enumerate(known.slots) if what in (Slot.LEARNED, Slot.CODES)]
            biases = (place for place, what in enumerate(known.slots) if what is Slot.BIAS)
            slots = self.slots[known.slots] = max(weights, default=None), next(biases, None)
        weight, bias = (self._held(node, slot) for slot in slots)
        is_convolution = known.kind is Kind.CONVOLUTION
        if bias is None and is_convolution and slots[1] is None:
            bias = self._added(node)
        if weight is None or weight.role is not Role.PARAMETER:
            return
        if bias is not None and bias.role is not Role.PARAMETER and bias.decided_by != "structure:scalar":
            bias = None  # the zeros of a layer that has none
        if node.domain == _BLOCKED:
            yield from self._blocked(weight, bias)
        elif (
            bias is not None
            and bias.copy_of is None
            and self._has_norm(node, weight, bias, is_convolution=is_convolution)
        ):
            # A scale and a shift, and the bias that the layer may have had; what is here counts for one of these.
            size = bias.logical_numel
            yield bias.tensor.key, Hides(2 * size - bias.parameters, 3 * size - bias.parameters, "batchnorm")
        elif float_name(weight.tensor.name).startswith("ConvMulFusion_"):
            yield weight.tensor.key, Hides(0, weight.tensor.shape[0] if weight.tensor.shape else 0, "factor")
        elif is_convolution and self.name(weight) in (_Name.MADE, _Name.COMPUTED):
            # PyTorch's kernel is ONNX's: it loses its name only where its values are others.
            yield from self._computed(weight)
        if node.op_type == "FusedMatMul" and node.settings.get("alpha", 1.0) != 1.0:
            yield weight.tensor.key, Hides(0, 1, "factor")
        if bias is not None and float_name(bias.tensor.name).startswith("ConvAddFusion_"):
            yield bias.tensor.key, Hides(0, bias.logical_numel, "bias")

    def _blocked(self, weight: Entry, bias: Entry | None) -> Iterator[tuple[Key, Hides]]:
        """A convolution in blocks of channels: zeros may fill the last block up, and its names do not say of a norm."""
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
        if bias is not None and bias.parameters == bias.logical_numel:
            least, size = -min(rows, bias.parameters), bias.logical_numel
            if self.name(bias) is not _Name.OWN:
                yield bias.tensor.key, Hides(least, 2 * size, "batchnorm")
            elif least:
                yield bias.tensor.key, Hides(least, 0, "padding")

    def merged(self, node: Node) -> Iterator[tuple[Key, Hides]]:
        """A parameter that has the content of another, which the exporter stored for both, and left a node of its name.

        Where few numbers say all of the content, as of zeros and sinusoids, the two may be equal and not one.
        """
        if node.op_type != "Identity" or node.domain not in ("", "ai.onnx") or len(node.outputs) != 1:
            return
        name = node.outputs[0].removeprefix(self.prefix)
        entry = self._held(node, 0)
        if entry is None or not entry.parameters or entry.tensor.name != node.inputs[0]:
            return
        if node.outputs[0] in self.names or not is_dotted(name):
            return
        if self._is_few(entry, 1):
            yield entry.tensor.key, Hides(0, self._merges(node) * entry.parameters, "merged")

    def _merges(self, node: Node) -> int:
        """How many nodes of other parameters' names read what this one does."""
        stored = self.wiring.find(node.graph_path, node.inputs[0])
        if not isinstance(stored, StoredTensor):
            return 0
        readers = [reader.node for reader in self.wiring.readers(stored) if reader.node.op_type == "Identity"]
        return sum(
            is_dotted(each.outputs[0].removeprefix(self.prefix)) and each.outputs[0] not in self.names
            for each in readers
        )

    def _held(self, node: Node, slot: int | None) -> Entry | None:
        tensor = None if slot is None else find_origin(self.wiring, node, slot)
        return None if tensor is None else self.entries.get(tensor.key)

    def _added(self, node: Node) -> Entry | None:
        """The vector that is added behind a convolution of codes, which has no place for a bias."""
        for reader in self.wiring.readers(node):
            behind, slot = reader
            while behind.op_type in ("Cast", "Mul") and slot == 0:  # what the product stands for
                following = self.wiring.readers(behind)
                if len(following) != 1:
                    break
                behind, slot = following[0]
            if behind.op_type == "Add":
                return self._held(behind, 1 - slot)
        return None

    def _has_norm(self, node: Node, weight: Entry, bias: Entry, *, is_convolution: bool) -> bool:
        """Whether a BatchNorm is folded into a weight and a bias, by how the two are called, or what they give."""
        name = float_name(bias.tensor.name)
        if node.outputs and _FIRST_OF.fullmatch(node.outputs[0].removeprefix(self.prefix)):
            return True
        if bias.decided_by == "name:folded-bias" or name.startswith("ConvBnFusion_BN_B_"):
            return True
        if self.has_notes and {weight.decided_by, bias.decided_by} == {"name:parameter"}:
            return True  # onnxscript leaves the names, and drops the notes with the values
        made = (_Name.MADE, _Name.UNKNOWN)
        return is_convolution and self.name(weight) in made and self.name(bias) in made

    def alone(self, entry: Entry, *, is_opaque: bool) -> Hides | None:
        """What any other tensor hides that is not as it was; None where nothing."""
        name, rule = self.name(entry), entry.decided_by
        if entry.role is Role.PARAMETER and entry.parameters:
            if is_lifted(entry.tensor.name.rpartition(".")[2]):  # a tensor that forward kept, of whatever
                return Hides(-entry.parameters, None, "computed")
            if (frozen := self._frozen(entry)) is not None:
                return frozen
            if (repeated := self._repeats(entry, name)) is not None:
                return repeated
            if rule == "provenance:folded-with" and self._is_held_besides(entry):
                return Hides(-entry.parameters, 0, "repeated")
            if (period := self._period(entry)) < entry.parameters:
                return Hides(period - entry.parameters, 0, "repeated")
            if rule == "name:folded-bias":  # its layer adds it apart
                size = entry.parameters
                return Hides(size, 2 * size, "batchnorm")
            if (
                rule == "provenance:folded-with"
                and name is _Name.MOVED
                and entry.parameters < entry.logical_numel
            ):
                return Hides(0, None, "computed")  # rows of a table, which may have had others
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
            # A Constant is a value of the trace, and no parameter's; what another node gave may be made of some.
            value = _VALUE.fullmatch(entry.tensor.name.removeprefix(self.prefix))
            return None if value is None or value[1] == "Constant" else Hides(0, None, "computed")
        sources = self.notes.get((entry.tensor.graph_path, entry.tensor.name), ())
        is_unknown = any(map(_may_be_parameter, sources)) if sources else name in (_Name.MADE, _Name.COMPUTED)
        if is_unknown:
            return Hides(0, None, "computed")
        return None

    def is_as_it_was(self, entry: Entry) -> bool:
        """Whether it is a weight or a bias under its own PyTorch name, and of no norm: nearly all are."""
        name = entry.tensor.name
        if entry.decided_by != "name:parameter" or entry.sources != (name,) or self.prefix:
            return False
        module, _, leaf = name.rpartition(".")
        is_usual = leaf in ("weight", "bias") and not name.startswith("Conv")
        return is_usual and f"{module}.running_var" not in self.names

    def _is_joined(self, entry: Entry) -> bool:
        """Whether what several parameters were folded into may be all of them end to end.

        A new shape makes no one of two.
        """
        value = _FX.fullmatch(float_name(entry.tensor.name).removeprefix(self.prefix))
        return len(entry.sources) < 2 or value is None or value[1].lower() not in _REFORMS

    def _repeats(self, entry: Entry, name: _Name) -> Hides | None:
        """What a nameless matrix has of a table, with a weight of its own joined to it (MobileBERT's head)."""
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
            if _is_part(ours, functools.partial(self._numbers, table), self._some(table)):
                numbers = self._numbers(table)
                is_computed = (len(entry.sources) == 1 and entry.sources == table.sources) or (
                    numbers is not None and _is_of_distances(ours, numbers)
                )
                return Hides(-(entry if is_computed else table).logical_numel, 0, "repeated")
        return None

    def _some(self, table: Entry) -> tuple[_Some, ...]:
        """Some elements of a table by rows and by columns; nothing where it has no numbers."""
        key = table.tensor.key
        if key not in self.seen:
            array = self._numbers(table)
            sides = () if array is None or array.dtype.kind not in "fiu" else (array, array.T)
            with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
                self.seen[key] = tuple(_Some(side.shape, _look_at_some(side)) for side in sides)
        return self.seen[key]

    def _numbers(self, entry: Entry) -> Array | None:
        """What is stored, decoded where it is codes."""
        encoded = find_encoding(entry.tensor, self.wiring)
        return entry.tensor.payload.array() if encoded is None else encoded.array()

    def _frozen(self, entry: Entry) -> Hides | None:
        """What may be a buffer.

        So may the scale and the shift that stand beside a mean and a variance which no BatchNormalization reads; a
        part, one number throughout, of vectors that were joined; what is called as one and as no module's; and a table
        of positions, as few numbers say it all, that has lost its name.
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
            if is_folded and self._is_few(entry, 0):
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

    def _is_few(self, entry: Entry, most: int) -> bool:
        """Whether at most so many numbers say all of the values; where these may not be read, whether they may."""
        if entry.tensor.numel > _MOST_READ:
            return False
        array = entry.tensor.payload.array() if self.reads else None
        return not self.reads or (array is not None and count_free(array) <= most)

    def _is_numbered_table(self, entry: Entry, name: str) -> bool:
        """Whether rows are gathered of it, by whichever operator, and its values are positions."""
        is_gathered = entry.decided_by.startswith("structure:Gather")
        is_table = is_gathered and len(entry.tensor.shape) > 1 and _NUMBERED.fullmatch(name) is not None
        return is_table and self._is_few(entry, 0)

    def _may_be_learned(self, entry: Entry) -> bool:
        """Whether a number that computes may be a parameter, or one that a function of one number gave.

        What the tracer has folded is numbered after its reader, as in `onnx::Mul_46`; what is stored without a dot, and
        not called after an operator, is a parameter or a buffer of the outermost module.
        """
        tensor = entry.tensor
        if entry.decided_by not in _OF_A_NUMBER:
            return False
        if tensor.node is not None or not tensor.dtype.is_floating:
            return False
        name = tensor.name.removeprefix(self.prefix)
        sources = self.notes.get((tensor.graph_path, tensor.name), ())
        value = _VALUE.fullmatch(name) or _FX.fullmatch(name)
        if sources:
            return all(map(_may_be_parameter, sources))
        if value is not None and value[1].lower() in _MOVES | _COMPUTES | _WITHOUT_PARAMETERS:
            return value[1].lower() in _OF_ONE
        if self.prefix and is_dotted(name):
            return True
        return _TRACED.fullmatch(name) is not None or (
            _BARE.fullmatch(name) is not None and _NUMBERED.fullmatch(name) is None and not self.has_notes
        )

    def _is_held_besides(self, entry: Entry) -> bool:
        """Whether the one parameter that something larger was computed of stands in the file as it was."""
        return len(entry.sources) == 1 and entry.parameters > self.held.get(entry.sources, entry.parameters)

    def _is_of_parameter(self, entry: Entry) -> bool:
        """Whether a number is noted to be computed of what no operator gave, as `1 + eps[0]` of a vector."""
        sources = self.notes.get((entry.tensor.graph_path, entry.tensor.name), ())
        is_number = entry.decided_by in _OF_A_NUMBER and entry.tensor.dtype.is_floating
        return is_number and any(_BARE.fullmatch(each) and _may_be_parameter(each) for each in sources)

    def _period(self, entry: Entry) -> int:
        """Elements after which a nameless vector of a norm begins again: one of an instance for each of a batch."""
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
        """Whether it is stored under the name of a value of the outermost module, and that is often one of a buffer."""
        if not entry.decided_by.startswith("structure:"):
            return False
        value = _FX.fullmatch(name)
        is_result = value is not None and value[1].lower() in _MOVES | _COMPUTES | _WITHOUT_PARAMETERS
        return (
            not entry.sources
            and not self.has_notes
            and entry.tensor.node is None
            and _BARE.fullmatch(name) is not None
            and not is_result
            and _NUMBERED.fullmatch(name) is None
            and _GIVEN.search(name) is not None
        )

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
        if not self.sizes:
            for other in self.entries.values():
                self.sizes.setdefault(other.sources, set()).add(other.tensor.numel)
        return beside is not None and entry.tensor.numel in self.sizes.get((beside,), ())

    def _is_read_as_weight(self, entry: Entry) -> bool:
        """Whether codes are decoded for an operator that has weights, and not to add or multiply with them."""
        readers = self.wiring.readers(entry.tensor, past=MOVES | DECODES)
        return all(kind_of(reader.node) is not Kind.ELEMENTWISE for reader in readers)

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


_OF_A_NUMBER = ("structure:scalar", "provenance:folded-constant")
"""Rules for a number that computes."""


def _may_be_parameter(source: str) -> bool:
    """Whether a value that another was folded from is none that the exported program has made by an operator.

    A parameter of the outermost module has a name without dots, as operators' results have.
    """
    found = _FX.fullmatch(source)
    is_result = found is not None and found[1] in _MOVES | _COMPUTES | _WITHOUT_PARAMETERS
    return not is_result and _NUMBERED.fullmatch(source) is None and not is_lifted(source)
