"""A signature and the readers of each input -> the input's purpose, and the role of each axis, whatever its name."""

from __future__ import annotations

import enum
import itertools
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from analyzer.model import GraphPath, Key, Model, Node, Place, StoredTensor, ValueType
from analyzer.model.wiring import GraphInput, Provider, Reader, Wiring
from analyzer.records import Frozen

_MOST = 10_000
"""Most nodes that are visited from one input."""
_MOST_OF_ALL = 1_000_000
"""Most nodes that are visited from all inputs together."""
_LONGEST = 100
"""Most nodes and callers that are followed back from one node."""

_MOVES = frozenset(
    {
        "Cast",
        "CastLike",
        "Clip",
        "Concat",
        "Expand",
        "Flatten",
        "Identity",
        "Max",
        "Min",
        "Pad",
        "Reshape",
        "Slice",
        "Split",
        "Squeeze",
        "Tile",
        "Transpose",
        "Unsqueeze",
    }
)
"""Operators whose output has the elements of the input. Their other inputs are settings, and are not followed."""
_ADDS = frozenset({"Add", "Sub"})
_TABLES: Mapping[str, Mapping[int, int]] = {
    "Gather": {1: 0},
    "GatherND": {1: 0},
    "GatherBlockQuantized": {1: 0},
    "EmbedLayerNormalization": {0: 2, 1: 4, 8: 3},
    "QEmbedLayerNormalization": {0: 2, 1: 4},
    "RotaryEmbedding": {1: 2},
}
"""Operator -> index of the input with indices -> index of the input with the table."""
_GATHERS = frozenset({"Gather", "GatherBlockQuantized", "GatherND"})
_PREPARES = frozenset({"Cast", "DequantizeLinear", "Identity", "QuantizeLinear", "Transpose", "Mul"})
"""Operators that may stand between a stored table and its reader; their first input is the table."""
_PRODUCTS = frozenset(
    {"MatMul", "Gemm", "MatMulInteger", "FusedMatMul", "DynamicQuantizeMatMul", "MatMulNBits"}
)
_CONVOLUTIONS = frozenset({"Conv", "ConvInteger", "QLinearConv", "FusedConv"})
_SEARCHES = frozenset({"BeamSearch", "GreedySearch", "Sampling", "WhisperBeamSearch"})
"""Operators with subgraphs that get the first input; their other inputs are settings."""


class Use(NamedTuple):
    """Use of an input in the graph."""

    rows: int | None = None
    """Rows of the smallest table that its elements index."""
    is_index: bool = False
    """Whether it also indexes a value that is no stored table."""
    features: int | None = None
    """Size that its last axis must have, because a weight multiplies it."""
    channels: int | None = None
    """Size that its second axis must have, because of a convolution."""


class Lookups(Frozen):
    """Facts about inputs from the nodes that read them."""

    uses: Mapping[str, Use]
    positions: int | None
    """Rows of the smallest table that is indexed by position: the longest sequence."""


def look_up(model: Model, wiring: Wiring) -> Lookups:
    """Follow each input of the main graph."""
    trace = _Trace(model, wiring)
    main = model.graphs[0]
    return Lookups({name: trace.use(main.path, name) for name in main.inputs}, trace.positions())


class _Trace:
    """Values, followed from node to node, into nested graphs and functions and out of them."""

    def __init__(self, model: Model, wiring: Wiring) -> None:
        self.model = model
        self.wiring = wiring
        self.left = _MOST_OF_ALL
        self.readers: dict[Key, list[Reader]] = defaultdict(list)
        self.bodies: dict[Place, list[GraphPath]] = defaultdict(list)
        self.callers: dict[GraphPath, Node] = {}
        self.inputs = {graph.path: graph.inputs for graph in model.graphs}
        nodes = {graph.path: graph.nodes for graph in model.graphs}
        calls = wiring.calls
        for graph in model.graphs:
            if graph.parent is not None:
                self.bodies[graph.parent].append(graph.path)
                self.callers[graph.path] = nodes[graph.parent[0]][graph.parent[1]]
            for node in graph.nodes:
                self._read(node)
                if calls and (called := calls.get(node.place)) is not None:
                    self.bodies[node.place].append(called)
                    self.callers.setdefault(called, node)

    def _read(self, node: Node) -> None:
        for slot, name in enumerate(node.inputs):
            place = self.wiring.place(node.graph_path, name) if name else None
            if place is not None:
                self.readers[place, name].append(Reader(node, slot))

    def use(self, path: GraphPath, name: str) -> Use:
        """Return the use of an input, followed through nodes that only move it."""
        rows: list[int] = []
        features = channels = None
        is_index = False
        for (node, slot), offset in self._find_readers((path, name)):
            if (table := _TABLES.get(node.op_type, {}).get(slot)) is not None:
                found = self._rows(node, table)
                is_index |= found is None
                if found is not None:
                    rows.append(found - offset)
            elif slot == 0 and node.op_type in _PRODUCTS:
                features = features or self._features(node)
            elif slot == 0 and node.op_type in _CONVOLUTIONS:
                channels = channels or self._channels(node)
        return Use(min(rows, default=None), is_index, features, channels)

    def _find_readers(self, start: Key) -> Iterator[tuple[Reader, int]]:
        """Yield every reader of a value, through nodes that only move it, with the number added on the way."""
        waiting, seen, looked = [(start, 0)], {start}, 0
        while waiting and looked < min(_MOST, self.left):
            key, offset = waiting.pop()
            for reader in itertools.islice(self.readers.get(key, ()), _MOST):
                looked += 1
                yield reader, offset
                for following, more in self._next_values(reader):
                    if following not in seen:
                        seen.add(following)
                        waiting.append((following, offset + more))
        self.left -= looked

    def _next_values(self, reader: Reader) -> Iterator[tuple[Key, int]]:
        node, slot = reader
        for body in self.bodies.get(node.place, ()):
            if slot < len(self.inputs[body]) and not (slot and node.op_type in _SEARCHES):
                yield (body, self.inputs[body][slot]), 0
        moves = (slot == 0 or node.op_type in ("Concat", "Max", "Min")) and node.op_type in _MOVES
        added = self._added(node, slot)
        if moves or added is not None or (node.op_type == "Where" and slot > 0):
            yield from (((node.graph_path, name), added or 0) for name in node.outputs if name)

    def _added(self, node: Node, slot: int) -> int | None:
        """Return the stored number that a node adds to its input; None for any other node."""
        if node.op_type not in _ADDS or len(node.inputs) != 2 or (node.op_type == "Sub" and slot):
            return None
        number = self._number(node.graph_path, node.inputs[1 - slot])
        return number if number is None or node.op_type == "Add" else -number

    def _number(self, path: GraphPath, name: str) -> int | None:
        found = self._stored(path, name)
        if found is None or found[0].numel != 1 or not found[0].dtype.is_integer:
            return None
        array = found[0].payload.array()
        return None if array is None else int(array.reshape(-1)[0])

    def _provider(self, path: GraphPath, name: str) -> Provider | None:
        """Return the provider of a value; for a graph's input, the provider in the calling graph."""
        for _ in range(_LONGEST):
            found = self.wiring.look_up(path, name)
            if not isinstance(found, GraphInput) or found.path not in self.callers:
                return found
            caller = self.callers[found.path]
            index = self.inputs[found.path].index(found.name)
            if index >= len(caller.inputs):
                return found
            path, name = caller.graph_path, caller.inputs[index]
        return None

    def _table(self, node: Node, slot: int) -> tuple[StoredTensor, bool] | None:
        """Return the stored tensor behind a node's input, and whether it is transposed on the way."""
        return self._stored(node.graph_path, node.inputs[slot]) if slot < len(node.inputs) else None

    def _stored(self, path: GraphPath, name: str) -> tuple[StoredTensor, bool] | None:
        is_turned = False
        for _ in range(_LONGEST):
            found = self._provider(path, name)
            if isinstance(found, StoredTensor):
                return found, is_turned
            if not isinstance(found, Node) or found.op_type not in _PREPARES or not found.inputs:
                return None
            is_turned ^= found.op_type == "Transpose"
            path, name = found.graph_path, found.inputs[0]
        return None

    def _rows(self, node: Node, slot: int) -> int | None:
        found = self._table(node, slot)
        if found is None:
            return None
        table, is_turned = found
        axis = node.integers.get("axis", node.integers.get("gather_axis", 0))
        rank = len(table.shape)
        if not -rank <= axis < rank or rank == 0:
            return None
        return table.shape[-1 - axis % rank if is_turned else axis]

    def _features(self, node: Node) -> int | None:
        if node.op_type == "MatMulNBits":
            return node.integers.get("K")
        found = self._table(node, 1)
        if found is None or len(found[0].shape) != 2:
            return None
        return found[0].shape[found[1] ^ bool(node.integers.get("transB", 0))]

    def _channels(self, node: Node) -> int | None:
        found = self._table(node, {"QLinearConv": 3}.get(node.op_type, 1))
        if found is None or len(found[0].shape) < 3:
            return None
        return found[0].shape[1] * node.integers.get("group", 1)

    def positions(self) -> int | None:
        """Return the rows of the smallest table whose index is computed from lengths, not from elements of inputs."""
        limits = []
        for node in self.model.nodes():
            if node.op_type == "EmbedLayerNormalization" and len(node.inputs) > 3:
                limits.append(self._rows(node, 3))
            elif node.op_type in _GATHERS and len(node.inputs) > 1:
                limits.append(self._positions(node))
        return min((limit for limit in limits if limit is not None), default=None)

    def _positions(self, node: Node) -> int | None:
        """Return the longest sequence that a lookup by position allows; None for any other lookup."""
        table = self._table(node, 0)
        if (
            table is None
            or len(table[0].shape) != 2
            or not (table[0].dtype.bits <= 8 or table[0].dtype.is_floating)
        ):
            return None
        rows = self._rows(node, 0)
        index = self._index(node.graph_path, node.inputs[1])
        if rows is None or index is None:
            return None
        offset, length = index
        return rows - offset if length is None else min(rows - offset, length)

    def _index(self, path: GraphPath, name: str) -> tuple[int, int | None] | None:
        """Return the number added to consecutive numbers, and their count if they are stored; None for other values."""
        offset = 0
        for _ in range(_LONGEST):
            found = self._provider(path, name)
            if isinstance(found, StoredTensor):
                length = _consecutive(found)
                return None if length is None else (offset, length)
            if not isinstance(found, Node) or not found.inputs:
                return None
            if found.op_type in ("Range", "CumSum"):
                return offset + (found.op_type == "CumSum"), None
            slot = 0
            if found.op_type in _ADDS:
                added = [self._added(found, side) for side in (0, 1)]
                slot = 0 if added[0] is not None else 1
                if added[slot] is None:
                    return None
                offset += added[slot] or 0
            elif found.op_type not in _MOVES and found.op_type not in ("Mul", "Gather"):
                return None
            path, name = found.graph_path, found.inputs[slot]
        return None


def _consecutive(tensor: StoredTensor) -> int | None:
    """Return the number of elements of a stored tensor that is 0, 1, 2, ...; None for any other."""
    if not tensor.dtype.is_integer or not 1 < tensor.numel <= 1 << 20 or tensor.shape[-1] != tensor.numel:
        return None
    array = tensor.payload.array()
    is_range = array is not None and bool((array.reshape(-1) == np.arange(tensor.numel)).all())
    return tensor.numel if is_range else None


class Purpose(enum.StrEnum):
    """Purpose of an input."""

    TOKENS = "tokens"
    SEGMENTS = "segments"
    POSITIONS = "positions"
    MASK = "mask"
    CACHE = "cache"
    """Keys and values of earlier tokens."""
    BRANCH = "branch"
    """Flag that says whether a cache is given."""
    HIDDEN = "hidden"
    """Vectors in place of tokens, or the output of an encoder."""
    IMAGE = "image"
    WAVEFORM = "waveform"
    SPECTRUM = "spectrum"
    STATE = "state"
    """State that a recurrent network passes on."""
    OTHER = "other"


class Roles:
    """Names of roles, as `--shape` takes them."""

    BATCH = "batch"
    SEQUENCE = "sequence"
    DECODER = "decoder_sequence"
    ENCODER = "encoder_sequence"
    PAST = "past"
    TOTAL = "total_sequence"
    DECODER_TOTAL = "decoder_total"
    CHANNELS = "channels"
    HEIGHT = "height"
    WIDTH = "width"
    SAMPLES = "samples"
    FRAMES = "frames"
    FEATURES = "features"
    HEADS = "heads"
    OTHER = "other"


class KnownInput(Frozen):
    """Purpose of an input of known rank, and a role for each of its axes."""

    value_type: ValueType
    purpose: Purpose
    roles: tuple[str, ...]

    @property
    def dims(self) -> tuple[int | str | None, ...]:
        return self.value_type.dims or ()


_PURPOSES: Sequence[tuple[Purpose, re.Pattern[str], str]] = tuple(
    (purpose, re.compile(pattern), kinds)
    for purpose, pattern, kinds in (
        (Purpose.BRANCH, r"^use_cache", "bi"),
        (Purpose.POSITIONS, r"position|(^|_)pos_?ids?$", "i"),
        (Purpose.SEGMENTS, r"token_?type|segment|type_ids", "i"),
        (Purpose.MASK, r"mask", "bif"),
        (Purpose.STATE, r"conv_?(state|cache)|ssm|recurrent|rnn_state", "f"),
        (Purpose.CACHE, r"past|cache", "f"),
        (Purpose.TOKENS, r"input_ids|(^|_)ids$|token", "i"),
        (Purpose.HIDDEN, r"hidden_states?|embed|encoder_output", "f"),
        (Purpose.IMAGE, r"pixel_values|image|img|picture|photo", "if"),
        (Purpose.SPECTRUM, r"input_features|spectr|(^|_)mel|fbank", "f"),
        (Purpose.WAVEFORM, r"input_values|audio|wav|speech|samples", "if"),
        (Purpose.STATE, r"state|hidden|(^|_)[hc](_?[0n])?$", "f"),
    )
)
"""Purposes by name, in this order; the letters are kinds of elements that fit: boolean, integer, floating point."""

RATES = frozenset({"sr", "sample_rate", "sampling_rate"})
"""Names of an input for the number of samples per second."""

_LONG = 200
"""Most characters of a name that are examined."""


def assign_roles(
    signature: Sequence[ValueType], uses: Mapping[str, Use]
) -> tuple[tuple[KnownInput, ...], Sides]:
    """Return the purpose of each input of known rank: from its name, else its use in the graph, else its shape.

    A sequence of tensors counts as one of its tensors.
    """
    tensors = (value_type.each or value_type for value_type in signature)
    known = [
        value_type for value_type in tensors if value_type.dims is not None and value_type.kind == "tensor"
    ]
    found = [(value_type, _purpose(value_type, uses.get(value_type.name, Use()))) for value_type in known]
    has_tokens = any(purpose is Purpose.TOKENS for _, purpose in found)
    sides = Sides(
        has_decoder=any(_plain(value_type.name).startswith("decoder_input") for value_type in known),
        has_past=any(purpose is Purpose.CACHE for _, purpose in found),
    )
    has_rate = any(_plain(value_type.name) in RATES for value_type in known)
    parts = []
    for value_type, purpose in found:
        rank = len(value_type.dims or ())
        if purpose is Purpose.OTHER and has_rate and value_type.dtype.is_floating and rank in (1, 2):
            purpose = Purpose.WAVEFORM
        if purpose is Purpose.OTHER and has_tokens and value_type.dtype.is_integer and rank > 1:
            purpose = Purpose.MASK  # its elements index nothing
        placed = _placed(value_type, purpose, sides)
        hinted = [
            sides.role_of_dim(dim, role) for dim, role in zip(value_type.dims or (), placed, strict=True)
        ]
        if Roles.PAST in hinted:  # the past is not in its usual place
            placed = tuple(Roles.OTHER if role == Roles.PAST else role for role in placed)
        roles = tuple(name or role for name, role in zip(hinted, placed, strict=True))
        parts.append(KnownInput(value_type, purpose, roles))
    return tuple(parts), sides


def _purpose(value_type: ValueType, use: Use) -> Purpose:
    name, rank = _plain(value_type.name), len(value_type.dims or ())
    kind = "b" if value_type.dtype.name == "BOOL" else "i" if value_type.dtype.is_integer else "f"
    for purpose, pattern, kinds in _PURPOSES:
        if kind in kinds and pattern.search(name) and (rank or purpose is Purpose.BRANCH):
            return purpose
    if kind == "i" and use.rows is not None and rank:
        return Purpose.TOKENS
    if rank == 4 and kind != "b" and (use.channels is not None or kind == "f"):
        return Purpose.IMAGE
    return Purpose.OTHER


def _plain(name: str) -> str:
    """Shorten a name for patterns: the part after the last `/` and before `:`, in lower case."""
    return name[-_LONG:].rpartition("/")[2].partition(":")[0].lower()


_EXPRESSION = re.compile(r"[+*/()]")
_TOTALS = (Roles.TOTAL, Roles.DECODER_TOTAL)
_SEQUENCES = (Roles.SEQUENCE, Roles.DECODER, Roles.ENCODER)


def _is_encoder(name: str) -> bool:
    return "encoder" in name.replace("decoder", "") or "cross" in name or "source" in name


class Sides(Frozen):
    """Facts that follow from all inputs together."""

    has_decoder: bool
    """Whether an encoder and a decoder both have inputs; the plain sequence is then the encoder's."""
    has_past: bool

    def sequence(self, name: str) -> str:
        """Return the role of the sequence axis of an input, or of an axis, by its name."""
        if "decoder" in name or "target" in name:
            return Roles.DECODER if self.has_decoder else Roles.SEQUENCE
        if _is_encoder(name):
            return Roles.SEQUENCE if self.has_decoder else Roles.ENCODER
        return Roles.SEQUENCE

    def total(self, name: str) -> str:
        """Return the role of a mask's axis that runs along the keys."""
        own = self.sequence(name)
        if not self.has_past or own == Roles.ENCODER or (self.has_decoder and own == Roles.SEQUENCE):
            return own
        return Roles.DECODER_TOTAL if own == Roles.DECODER else Roles.TOTAL

    def role_of_dim(self, dim: int | str | None, placed: str) -> str | None:
        """Return the role that an axis's name suggests; None for an opaque name, or an expression of other names."""
        if not isinstance(dim, str) or is_opaque(dim) or len(dim) > _LONG or _EXPRESSION.search(dim):
            return None
        return self.hinted(dim.lower(), placed)

    def hinted(self, axis: str, placed: str = "") -> str | None:
        """Return the role that a name suggests, for an axis with the role `placed` by its position."""
        role = next((role for role, pattern in _HINTS if pattern.search(axis)), None)
        if role == Roles.SEQUENCE:
            if placed in (Roles.PAST, Roles.SAMPLES, Roles.FRAMES, *_TOTALS):
                return placed
            is_decisive = (
                _is_encoder(axis) or "decoder" in axis or "target" in axis or placed not in _SEQUENCES
            )
            return self.sequence(axis) if is_decisive else placed
        if role == Roles.PAST and _is_encoder(axis):
            return self.sequence("encoder")
        return role


def _placed(value_type: ValueType, purpose: Purpose, sides: Sides) -> tuple[str, ...]:
    """Return the roles by the position of each axis."""
    name, dims = _plain(value_type.name), value_type.dims or ()
    rank = len(dims)
    sequence = sides.sequence(name)
    if purpose is Purpose.CACHE:
        return _cache_roles(name, rank, sides)
    if purpose is Purpose.IMAGE or (purpose is Purpose.MASK and "pixel" in name):
        return _image_roles(dims)
    if purpose is Purpose.OTHER and rank == 3 and value_type.dtype.is_floating:
        purpose = Purpose.HIDDEN
    layouts: dict[Purpose, tuple[str, ...]] = {
        Purpose.HIDDEN: (Roles.BATCH, sequence, Roles.FEATURES),
        Purpose.SPECTRUM: (Roles.BATCH, Roles.FEATURES, Roles.FRAMES),
        Purpose.WAVEFORM: (Roles.BATCH, *(Roles.CHANNELS,) * (rank - 2), Roles.SAMPLES),
        Purpose.STATE: _state_roles(dims),
        Purpose.MASK: (
            Roles.BATCH,
            *(Roles.HEADS,) * (rank - 3),
            *(sequence,) * (rank > 2),
            sides.total(name),
        ),
    }
    if rank == 1:
        return _single_role(purpose, sides, name)
    is_listed = value_type.dtype.is_integer or purpose in (
        Purpose.TOKENS,
        Purpose.SEGMENTS,
        Purpose.POSITIONS,
    )
    layout = layouts.get(purpose, (Roles.BATCH, sequence if is_listed else Roles.FEATURES))
    return (layout + (Roles.OTHER,) * rank)[:rank]


def _single_role(purpose: Purpose, sides: Sides, name: str) -> tuple[str]:
    """Return the role of the only axis."""
    if purpose is Purpose.MASK:
        return (sides.total(name),)
    if purpose in (Purpose.TOKENS, Purpose.SEGMENTS, Purpose.POSITIONS):
        return (sides.sequence(name),)
    return (Roles.SAMPLES,) if purpose is Purpose.WAVEFORM else (Roles.BATCH,)


def _cache_roles(name: str, rank: int, sides: Sides) -> tuple[str, ...]:
    length = sides.sequence("encoder") if _is_encoder(name) else Roles.PAST
    if rank < 3:
        return (Roles.BATCH, Roles.FEATURES)[:rank]
    heads = (Roles.HEADS,) if rank > 3 else ()
    ends = (Roles.BATCH, *heads, length, Roles.FEATURES)
    return (*(Roles.OTHER,) * (rank - len(ends)), *ends)


def _state_roles(dims: Sequence[int | str | None]) -> tuple[str, ...]:
    """Return roles in which the batch is the first free axis, else the second to last, as in ONNX's LSTM."""
    free = (position for position, dim in enumerate(dims) if not isinstance(dim, int) or dim < 0)
    batch = next(free, len(dims) - 2)
    return tuple(
        Roles.BATCH if position == batch else Roles.FEATURES if position == len(dims) - 1 else Roles.OTHER
        for position in range(len(dims))
    )


def _image_roles(dims: Sequence[int | str | None]) -> tuple[str, ...]:
    rank = len(dims)
    if rank < 3:
        return (Roles.HEIGHT, Roles.WIDTH)[-rank:] if rank else ()
    inner = (Roles.CHANNELS, Roles.HEIGHT, Roles.WIDTH)
    if dims[-1] in (1, 3, 4) and dims[-3] not in (1, 3, 4):
        inner = (Roles.HEIGHT, Roles.WIDTH, Roles.CHANNELS)
    if rank == 3 and not any(dim in (1, 3, 4) for dim in dims):
        inner = (Roles.BATCH, Roles.HEIGHT, Roles.WIDTH)
    return (*(Roles.BATCH, *(Roles.FRAMES,) * (rank - 4)) * (rank > 3), *inner)


_OPAQUE = re.compile(r"s\d+|\d+|unk.*|dynamic.*|\?|none|")


def is_opaque(axis: str) -> bool:
    """Whether an axis's name has no meaning: `s18`, `unk__5`."""
    return _OPAQUE.fullmatch(axis.lower()) is not None


_HINTS: Sequence[tuple[str, re.Pattern[str]]] = tuple(
    (role, re.compile(pattern))
    for role, pattern in (
        (Roles.PAST, r"past|cache"),
        (Roles.TOTAL, r"total"),
        (Roles.BATCH, r"batch"),
        (Roles.HEADS, r"heads"),
        (Roles.CHANNELS, r"channels"),
        (Roles.HEIGHT, r"height"),
        (Roles.WIDTH, r"width"),
        (Roles.SAMPLES, r"samples"),
        (Roles.FRAMES, r"frames|^time$"),
        (Roles.SEQUENCE, r"seq|tokens|length|_len$"),
        (Roles.FEATURES, r"hidden|feature|embed|mel|_dim$|head_size"),
    )
)
