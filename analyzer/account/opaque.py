"""Model + explained tensors -> stored data, and data made at run time, that flow into arithmetic and are unexplained.

Stored data flows, directly or combined with other stored values, to a point where it meets data that depends on an
input, or explained data: there it is used in arithmetic. Indices, shapes, axes and conditions are no such points. A
source is explained by the caller (parameters, compared buffers, scales of codes that are held) or by its values
(`analyzer.model.tables`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from typing import NamedTuple

import numpy as np

from analyzer.account.decoding import CODES, Encoded
from analyzer.account.decoding.encodings import find_encoding
from analyzer.account.ledger import Opaque
from analyzer.model import NOTHING, Graph, GraphPath, Key, Model, Node, Place, StoredTensor
from analyzer.model.content import Array, sample_positions
from analyzer.model.evaluation import Evaluator
from analyzer.model.liveness import Live
from analyzer.model.operators import MOVES, RECODES, Kind, Operator, Slot, operator_of
from analyzer.model.tables import count_free
from analyzer.model.wiring import ELSEWHERE, NAMED, STORED, Wiring
from analyzer.records import Mutable, field

FEW = 10
"""Most unexplained numbers that may meet an activation at one point: an operator's constants, a picture's mean."""

_MOST_NUMBERS = 256
"""Most different numbers that all such points may have together: epsilons and scales repeat from layer to layer."""

_MOST_ROUNDED = 40
"""Most numbers from which a known table may be computed, with the scales and zero points that round it."""

_MOST_WORKED_OUT = 1 << 16
"""Most numbers from which a value is computed that is compared with those of PyTorch's program."""

_ROUNDING_LOSS = 0.1
"""Part of a table's largest number that rounding to codes, once or a few times, may change."""

_DEEPEST = 64
"""Most levels of nested calls and bodies that are followed."""

_MOST_VISITS = 8
"""Most visits of a node on average: a function's body is visited again when it is called with other data."""

_MOST_PASSED_ON = 1 << 21
"""Most sources that all nodes together pass on, counting only values with more than `FEW` sources."""

_DROPS = {"BiasDropout": 4, "BitmaskBiasDropout": 4, "BitmaskDropout": 2, "Dropout": 2}
"""Operators that drop elements at random, and the input that enables this. Without the input they do not drop."""

_SEEDED = {"Bernoulli": False, "Multinomial": False, "RandomNormalLike": True, "RandomUniformLike": True}
"""Operators that make random numbers for an activation, and whether they take only its size."""

_CODEC_SLOTS = (Slot.SCALE, Slot.ZERO_POINT)

Source = Key | Place
"""A stored tensor, given by its key, or a node that makes numbers when the model runs, given by its place."""

Sources = frozenset[Source]

_NONE: Sources = frozenset()


class _Value(NamedTuple):
    """Facts known about a value's data."""

    sources: Sources = _NONE
    """Sources in it that are not explained."""
    is_fixed: bool = False
    """Whether it is independent of all inputs of the model."""
    is_plain: bool = True
    """Whether its sources were only moved, and nothing was computed from them."""
    has_explained: bool = False
    """Whether explained data contributes to it."""


_DYNAMIC = _Value()
_FIXED = _Value(is_fixed=True)
_EXPLAINED = _Value(is_fixed=True, has_explained=True)

_Meeting = tuple[GraphPath, str, Sources, bool]
"""Point where data meets an activation: the value that brings it, its sources, and whether these were only moved."""


def find_opaque(
    model: Model,
    wiring: Wiring,
    live: Live,
    is_explained: Callable[[StoredTensor], bool],
    claims: Set[Key] = frozenset(),
    *,
    reads: bool = True,
    whole: bool = False,
    is_known: Callable[[GraphPath, str, Array], bool] = lambda path, name, value: False,
    tables: Collection[Key] = (),
) -> Opaque:
    """Find data in a model that flows into arithmetic and is not explained. Only values that may be reported are read.

    Args:
        model: the model.
        wiring: providers of all values.
        live: nodes and tensors that the outputs depend on.
        is_explained: whether a stored tensor needs no other explanation.
        claims: tensors that only a name links to PyTorch: for these, few numbers are reported too.
        reads: whether values may be read. If not, no table is recognized, and all possibly opaque data is reported.
        whole: whether tensors of many million elements are read whole to check that they have a single value.
        is_known: whether the numbers of a value, given by its graph and name, are PyTorch's own.
        tables: explained tensors without parameters: data combined with them is reported where the result is used.
    """
    walk = _Walk(model, wiring, live, is_explained, tables)
    for part in model.parts:
        graph = wiring.graphs.get(part.path)
        if graph is not None:
            outputs = walk.follow(graph, {}, 0)
            for name, value in zip(graph.outputs, outputs, strict=True):
                if value.sources and not value.is_fixed:
                    walk.meet(part.path, name, value)
    if not reads:
        return Opaque(_weigh_unread(walk))
    return _judge(model, wiring, walk, claims, is_known, whole=whole)


def _weigh_unread(walk: _Walk) -> frozenset[Key]:
    """Return the tensors that meet an activation with more than a few elements, whatever their values."""
    found: set[Key] = set()
    for _, _, sources, _ in walk.meetings:
        stored = [key for key in sources if isinstance(key[1], str)]
        if sum(walk.stored[key].numel for key in stored) > FEW:
            found.update(stored)
    return frozenset(found)


class _Walk(Mutable, dict=True):
    """Walk over each graph once in the order of its nodes; bodies at their holders, functions at their calls."""

    model: Model
    wiring: Wiring
    live: Live
    is_explained: Callable[[StoredTensor], bool]
    tables: Collection[Key] = ()
    meetings: dict[_Meeting, None] = field(default_factory=dict)
    _values: dict[GraphPath, dict[str, _Value]] = field(default_factory=dict)
    _valued: dict[GraphPath, bytearray] = field(default_factory=dict)
    """Flags by graph: whether facts may be known about a node's output, by its position, and about STORED values."""
    _answers: dict[
        tuple[GraphPath, tuple[_Value, ...], tuple[tuple[GraphPath, str] | None, ...]], list[_Value]
    ] = field(default_factory=dict)
    """Outputs of a body, by its inputs and their origins."""
    _entered: dict[GraphPath, Node] = field(default_factory=dict)
    """The call for which each body is being followed."""
    _measured: dict[Place, bool] = field(default_factory=dict)
    _left: int = 0
    _passed_on: int = 0

    def __post_init__(self) -> None:
        for graph in self.model.graphs:
            self._left += _MOST_VISITS * len(graph.nodes)
            self._valued[graph.path] = bytearray(len(graph.nodes) - ELSEWHERE)

    @functools.cached_property
    def stored(self) -> Mapping[Key, StoredTensor]:
        """Stored tensors by key, which few files need."""
        return {tensor.key: tensor for tensor in self.model.tensors()}

    @functools.cached_property
    def _holders(self) -> Collection[Place]:
        """Nodes that hold graphs or tensors."""
        return self.wiring.nested.keys() | self.wiring.carried.keys()

    def follow(
        self,
        graph: Graph,
        input_values: Mapping[str, _Value],
        depth: int,
        attribute_sources: Mapping[str, Sources] = NOTHING,
    ) -> list[_Value]:
        """Return facts about a graph's outputs from those of its inputs.

        `attribute_sources` are tensors passed as attributes.
        """
        values = self._values[graph.path] = dict(input_values)
        tables, is_explained = self.tables, self.is_explained
        for tensor in graph.tensors:
            if tensor.carrier in NAMED and tensor.occurrence == 1:
                is_plain = not tables and tensor.numel and is_explained(tensor)  # true of nearly all tensors
                values[tensor.name] = _EXPLAINED if is_plain else self._value_of(tensor)
        valued = self._valued[graph.path]
        valued[STORED] = True
        may_pass = not self.wiring.calls and not self.wiring.repeated and graph.parent is None
        holders = self._holders
        for node, makers in zip(graph.nodes, self.wiring.makers[graph.path], strict=True):
            self._left -= 1
            if (
                may_pass
                and makers
                and makers[0] != ELSEWHERE
                and not valued[makers[0]]
                and not node.settings
                and node.op_type not in _DROPS
                and (not holders or node.place not in holders)
            ):
                if len(makers) == 1:
                    continue
                for name, maker in zip(node.inputs, makers, strict=True):
                    if valued[maker] and values.get(name, _DYNAMIC).sources:
                        break
                else:
                    continue  # most nodes of a main graph read only data of inputs and explained data
            if node.op_type == "Constant" and node.domain in ("", "ai.onnx"):
                setting_sources = (
                    attribute_sources.get(each, _NONE)
                    for each in node.settings.values()
                    if isinstance(each, str)
                )
                sources = frozenset().union(*setting_sources)
                value = _Value(sources, is_fixed=True)
                self._set(node, values, [value] * len(node.outputs) if sources else ())
                continue
            if node.place in self.live.nodes and self._left > 0:
                self._follow_node(node, values, depth)
        return [self.find(graph.path, name) for name in graph.outputs]

    def meet(self, path: GraphPath, name: str, value: _Value) -> None:
        self.meetings[path, name, value.sources, value.is_plain] = None

    def _meet_at(self, node: Node, slot: int, value: _Value) -> None:
        """Record that data meets an activation at a node, unless only sizes are computed from the node."""
        if not self._gives_sizes(node):
            self.meet(*self._origin(node.graph_path, node.inputs[slot]), value)

    def _origin(self, path: GraphPath, name: str) -> tuple[GraphPath, str]:
        """Return the origin of a body's input, because its numbers belong to one caller; else the value itself."""
        place = self.wiring.place(path, name)
        while place in self._entered and name in self.wiring.graphs[place].inputs:
            call, slot = self._entered[place], self.wiring.graphs[place].inputs.index(name)
            if slot >= len(call.inputs) or not call.inputs[slot]:
                break
            path, name = call.graph_path, call.inputs[slot]
            place = self.wiring.place(path, name)
        return path, name

    def _gives_sizes(self, node: Node) -> bool:
        """Whether only shape inputs of other nodes depend on a node.

        The answer is stored for all nodes on the way, so that each is visited once.
        """
        settled = self._measured
        if node.place not in settled:
            makers: dict[Place, list[Place]] = {node.place: []}
            waiting, wrong = [node], list[Place]()
            while waiting:
                each = waiting.pop()
                readers = self._readers_on_shapes(each)
                if readers is None:
                    wrong.append(each.place)
                for reader in readers or ():
                    if settled.get(reader.place) is False:
                        wrong.append(each.place)
                    elif reader.place in makers:
                        makers[reader.place].append(each.place)
                    elif reader.place not in settled:
                        makers[reader.place] = [each.place]
                        waiting.append(reader)
            settled.update(dict.fromkeys(makers, True))
            while wrong:
                place = wrong.pop()
                if settled[place]:
                    settled[place] = False
                    wrong += makers[place]
        return settled[node.place]

    def _readers_on_shapes(self, node: Node) -> list[Node] | None:
        """Return a node's readers other than shape inputs; None if it computes no shapes, or is a graph output."""
        if node.op_type not in _SHAPE_OPERATORS or not node.is_standard:
            return None
        readers = self.wiring.readers(node, inlined=False)
        if not readers or not set(node.outputs).isdisjoint(self.wiring.graphs[node.graph_path].outputs):
            return None
        return [
            reader
            for reader, slot in readers
            if not reader.is_standard or _SHAPE_INPUTS.get(reader.op_type) != slot
        ]

    def _value_of(self, tensor: StoredTensor) -> _Value:
        if tensor.key in self.tables:
            return _FIXED
        if not tensor.numel or self.is_explained(tensor):
            return _EXPLAINED
        return _Value(frozenset((tensor.key,)), is_fixed=True)

    def find(self, path: GraphPath, name: str) -> _Value:
        """Return the facts about a value visible in a graph."""
        place = self.wiring.place(path, name) if name else None
        if place is None:
            return _FIXED  # an omitted optional input
        return self._values.get(place, {}).get(name, _DYNAMIC)

    def _follow_node(self, node: Node, values: dict[str, _Value], depth: int) -> None:
        path, place = node.graph_path, node.place
        provided = self.wiring.providers[path]
        operands = [
            values[name]
            if name in values
            else _DYNAMIC
            if name in provided and name
            else self.find(path, name)
            for name in node.inputs
        ]
        body = self.wiring.calls.get(place)
        nested = self.wiring.nested.get(place, ())
        if body is not None:
            self._set(node, values, self._call(node, self.wiring.graphs[body], operands, depth))
        elif nested:
            self._set(node, values, self._follow_bodies(node, nested, operands, depth))
        elif self._may_drop(node):
            self._set(node, values, self._drop(node, operands))
        else:
            value = self._compute(node, operands)
            if value is not _DYNAMIC:
                self._set(node, values, [value] * len(node.outputs))

    def _set(self, node: Node, values: dict[str, _Value], outputs: Sequence[_Value]) -> None:
        for name, value in zip(node.outputs, outputs, strict=False):
            if name and value is not _DYNAMIC:
                values[name] = value if len(value.sources) <= FEW else self._bounded(node, name, value)
        self._valued[node.graph_path][node.position] = True

    def _bounded(self, node: Node, name: str, value: _Value) -> _Value:
        """Return a value to pass on: once nodes have passed on very many sources, it meets an activation at once.

        A chain of thousands of nodes that each add a source would otherwise take quadratic memory.
        """
        self._passed_on += len(value.sources)
        if self._passed_on <= _MOST_PASSED_ON:
            return value
        self.meet(node.graph_path, name, value)
        return value._replace(sources=_NONE)

    def _call(self, node: Node, body: Graph, operands: Sequence[_Value], depth: int) -> list[_Value]:
        if depth >= _DEEPEST:
            return [
                _Value(_union(operands), all(value.is_fixed for value in operands), is_plain=False)
            ] * len(body.outputs)
        arguments = tuple([*operands, *[_FIXED] * (len(body.inputs) - len(operands))][: len(body.inputs)])
        carried: dict[str, Sources] = {
            f"@{tensor.name.rpartition('.')[2]}": frozenset((tensor.key,))
            for tensor in self.wiring.carried.get(node.place, ())
            if tensor.numel and not self.is_explained(tensor)
        }
        carried.update({f"@{name}": frozenset((node.place,)) for name in _long_lists(node)})
        origins = tuple(
            self._origin(node.graph_path, name) if value.sources and value.is_fixed else None
            for name, value in zip(node.inputs, operands, strict=False)
        )
        known = None if carried else self._answers.get((body.path, arguments, origins))
        if known is None:
            before = self._entered.get(body.path)
            self._entered[body.path] = node
            known = self.follow(body, dict(zip(body.inputs, arguments, strict=True)), depth + 1, carried)
            if before is None:
                del self._entered[body.path]
            else:
                self._entered[body.path] = before
            if not carried:
                self._answers[body.path, arguments, origins] = known
        return known

    def _follow_bodies(
        self, node: Node, nested: Iterable[Graph], operands: Sequence[_Value], depth: int
    ) -> list[_Value]:
        """Return the outputs of an If (either branch), or of a Loop or Scan (states after one turn); else nothing."""
        bodies = list(nested)
        if depth >= _DEEPEST:
            return []
        if node.op_type == "If":
            condition = operands[0] if operands else _DYNAMIC
            branches = [
                # A branch has no inputs of its own: a declared input is the outer value.
                self.follow(body, {name: self.find(node.graph_path, name) for name in body.inputs}, depth + 1)
                for body in bodies
                if self._runs(body)
            ]
            return [_merge_branches(values, condition.is_fixed) for values in zip(*branches, strict=False)]
        is_fixed = all(value.is_fixed for value in operands)
        outputs: list[_Value] = []
        for body in bodies:
            body_inputs = {name: _Value(is_fixed=is_fixed) for name in body.inputs}
            if node.op_type == "Loop":
                # (trip count, condition, states) -> (iteration, condition, states)
                states = list(zip(body.inputs[2:], operands[2:], strict=False))
            else:
                states = list(zip(body.inputs[::-1], operands[::-1], strict=False))
            body_inputs.update(
                (name, _Value(value.sources, is_fixed, value.is_plain)) for name, value in states
            )
            found = self.follow(body, body_inputs, depth + 1)
            outputs = found[1:] if node.op_type == "Loop" else found
        return outputs

    def _runs(self, body: Graph) -> bool:
        """Whether a branch has a live node or tensor, or no nodes."""
        return (
            not body.nodes
            or any(node.place in self.live.nodes for node in body.nodes)
            or any(tensor.key in self.live.tensors for tensor in body.tensors)
        )

    def _may_drop(self, node: Node) -> bool:
        """Whether a node drops elements at random: it is Dropout, and no stored `training_mode` is false."""
        slot = _DROPS.get(node.op_type)
        if slot is None or not node.is_standard or len(node.inputs) <= slot or not node.inputs[slot]:
            return False
        mode = self.wiring.find(node.graph_path, node.inputs[slot])
        array = mode.payload.array() if isinstance(mode, StoredTensor) and mode.numel == 1 else None
        return array is None or bool(array.any())

    def _drop(self, node: Node, operands: Sequence[_Value]) -> list[_Value]:
        """Return the outputs of an active Dropout: fixed data becomes noise, and the mask is noise in any case."""
        data = operands[:1]
        is_fixed = all(value.is_fixed for value in data)
        noise = _Value(
            _union(data) | {node.place},
            is_fixed,
            is_plain=False,
            has_explained=any(v.has_explained for v in data),
        )
        return [noise if is_fixed else _DYNAMIC, *[noise] * (len(node.outputs) - 1)]

    def _compute(self, node: Node, operands: Sequence[_Value]) -> _Value:
        is_fixed = True
        if node.op_type in _SEEDED and node.is_standard and _has_seed(node):
            # Numbers that are the same in each run, whatever values an input has.
            return _Value(frozenset({node.place}), is_fixed=_SEEDED[node.op_type], is_plain=False)
        for value in operands:
            if value.sources:
                is_fixed = all(value.is_fixed for value in operands)
                break
            is_fixed = is_fixed and value.is_fixed
        else:
            if not is_fixed and not self._carried_sources(node):
                return _DYNAMIC  # for most nodes: without sources in its inputs a result has none
        known = operator_of(node)
        kind = None if known is None else known.kind
        if kind is Kind.MEASURES:
            return self._measure(node, operands) if is_fixed else _DYNAMIC
        if kind in (Kind.MAKES, Kind.RANDOM):
            if not is_fixed:
                return _DYNAMIC
            carried = self._carried_sources(node)
            return _Value(carried | _union(operands) | {node.place}, is_fixed=True)
        carried = self._carried_sources(node)
        if (known is not None and (known.moved is None or known.moved)) or kind in (Kind.TEXT, Kind.SEQUENCE):
            moved = [
                v
                for slot, v in enumerate(operands)
                if known is None or kind is Kind.TEXT or known.passes_on(slot)
            ]
            sources, is_plain = _union(moved) | carried, all(value.is_plain for value in moved)
            has_explained = any(value.has_explained for value in moved)
            patterns = [
                slot
                for slot, value in enumerate(operands)
                if known is not None and value.sources and value.is_fixed and _is_pattern(node, known, slot)
            ]
            if (
                is_fixed and not has_explained and patterns
            ):  # the positions of few numbers are a formula of them
                sources, is_plain = _union([*moved, *(operands[slot] for slot in patterns)]) | carried, False
            else:
                for slot in patterns:
                    self._meet_at(node, slot, operands[slot])
            if known is not None and known.kind is Kind.LOOKS_UP:
                for slot, value in enumerate(operands):  # numbers looked up at run time are indices here
                    if value.sources and not value.is_fixed and known.slot(slot) is Slot.INDEX:
                        self._meet_at(node, slot, value)
            if not sources and not is_fixed:
                return _DYNAMIC
            return _Value(sources, is_fixed, is_plain, has_explained)
        slots = [
            slot
            for slot, value in enumerate(operands)
            if value.sources and (known is None or self._counts(node, known, slot, operands))
        ]
        has_explained = any(value.has_explained for value in operands)
        if is_fixed and not has_explained:
            sources = frozenset().union(*(operands[slot].sources for slot in slots)) | carried
            # Decoded numbers are weighed with their codes, so decoding does not count as a formula.
            is_plain = all(value.is_plain for value in operands) and (
                kind is Kind.DECODES or self._is_recoded(node)
            )
            return _Value(sources, is_fixed=True, is_plain=is_plain) if sources else _FIXED
        for slot in slots:
            self._meet_at(node, slot, operands[slot])
        return (
            _Value(carried, is_fixed, is_plain=True, has_explained=has_explained)
            if carried or is_fixed
            else _DYNAMIC
        )

    def _measure(self, node: Node, operands: Sequence[_Value]) -> _Value:
        """Return facts about sizes, which count as numbers if chosen by hand: sizes of unexplained or empty tensors.

        Other sizes count as an activation's, so that what meets them is judged there: a static file computes with the
        sizes of learned data as another does with those of its inputs.
        """
        stored = self.wiring.find(node.graph_path, node.inputs[0]) if node.inputs else None
        is_chosen = _union(operands) or (isinstance(stored, StoredTensor) and not stored.numel)
        return _Value(frozenset({node.place}), is_fixed=True, is_plain=False) if is_chosen else _DYNAMIC

    def _counts(self, node: Node, known: Operator, slot: int, operands: Sequence[_Value]) -> bool:
        """Whether an input's numbers contribute to the result."""
        slot_kind = known.slot(slot)
        if slot_kind is Slot.INDEX:
            return False
        if slot_kind is Slot.CONSTANT:
            return known.op_type != "Range" or all(value.is_fixed for value in operands)
        if slot_kind in (Slot.SCALE, Slot.ZERO_POINT):
            # A single scale for an activation belongs to a quantizer; one per channel is a factor.
            tensor = self.wiring.find(node.graph_path, node.inputs[slot])
            is_single = isinstance(tensor, StoredTensor) and tensor.numel == 1
            return not (is_single and not self._is_coded(known, slot, operands))
        return True

    def _is_coded(self, known: Operator, slot: int, operands: Sequence[_Value]) -> bool:
        """Whether the codes that a scale belongs to, in the input before it, are stored."""
        codes = [
            other for other in range(min(slot, len(operands))) if known.slot(other) in (Slot.CODES, Slot.DATA)
        ]
        return bool(codes) and operands[codes[-1]].is_fixed

    def _is_recoded(self, node: Node) -> bool:
        """Whether a node writes numbers as codes, or re-encodes codes, with one scale for all of them."""
        if not node.is_standard or node.op_type not in RECODES:
            return False
        known = operator_of(node)
        codec_inputs = [
            name for slot, name in enumerate(node.inputs) if known and known.slot(slot) in _CODEC_SLOTS
        ]
        found = [self.wiring.find(node.graph_path, name) for name in codec_inputs if name]
        return all(isinstance(tensor, StoredTensor) and tensor.numel == 1 for tensor in found)

    def _carried_sources(self, node: Node) -> Sources:
        tensors = self.wiring.carried.get(node.place, ())
        found: Sources = frozenset(t.key for t in tensors if t.numel and not self.is_explained(t))
        return found | {node.place} if node.settings and any(_long_lists(node)) else found


_SHAPE_INPUTS = {"ConstantOfShape": 0, "Expand": 1, "Reshape": 1, "Tile": 1}
"""Operators with an input for the size of their result, and that input."""

_SHAPE_OPERATORS = frozenset(
    {"Add", "Cast", "Concat", "Div", "Equal", "Gather", "Identity", "Max", "Min", "Mul", "Reshape", "Slice"}
    | {"Squeeze", "Sub", "Unsqueeze", "Where"}
)
"""Operators that compute shapes."""

_MOVED_BY_PATTERN = frozenset({"Where", "Scatter", "ScatterElements", "ScatterND", "Compress"})
"""Operators that move data by a pattern, besides those that look up."""


def _is_pattern(node: Node, known: Operator, slot: int) -> bool:
    """Whether an input gives the positions of other numbers. Shapes and axes do not."""
    return known.slot(slot) is Slot.INDEX and (
        known.kind is Kind.LOOKS_UP or node.op_type in _MOVED_BY_PATTERN
    )


_LIST_DOMAINS = frozenset({"ai.onnx.ml"})
"""Domains whose attribute lists are separate stored tensors (`Carrier.ATTRIBUTE_LIST`)."""


def _has_seed(node: Node) -> bool:
    return "seed" in node.settings or "seed" in node.integers


def _made_numbers(node: Node) -> int:
    """Return how many numbers a node makes according to its own attributes; 0 if these do not say."""
    shape = node.axes("shape")
    return math.prod(shape) if shape and node.op_type in ("RandomNormal", "RandomUniform") else 0


def _long_lists(node: Node) -> Iterator[str]:
    """Yield the attributes of a node that are lists of many numbers, and not stored tensors."""
    if node.domain not in _LIST_DOMAINS:
        for name, value in node.settings.items():
            if (isinstance(value, tuple) and len(value) > FEW) or str(value).startswith("sha256:"):
                yield name


def _union(values: Iterable[_Value]) -> Sources:
    found = [value.sources for value in values if value.sources]
    return frozenset().union(*found) if found else _NONE


def _merge_branches(values: Sequence[_Value], is_fixed: bool) -> _Value:
    return _Value(
        _union(values),
        is_fixed and all(value.is_fixed for value in values),
        all(value.is_plain for value in values),
        any(value.has_explained for value in values),
    )


def _judge(
    model: Model,
    wiring: Wiring,
    walk: _Walk,
    claims: Set[Key],
    is_known: Callable[[GraphPath, str, Array], bool],
    *,
    whole: bool,
) -> Opaque:
    """Return unexplained data that meets activations: too many numbers at a point, or too many different in all."""
    weights: dict[Source, int] = {}
    salt = functools.cache(lambda: model.salt)  # it depends on all tensors' shapes, and is seldom needed
    evaluator = Evaluator(model, wiring, by_default=True)
    unrounded = Evaluator(model, wiring, by_default=True, unrounded=True)

    def weigh(source: Source) -> int:
        if source not in weights:
            tensor = walk.stored.get(source) if isinstance(source[1], str) else None
            encoded = None if tensor is None else find_encoding(tensor, wiring)
            if tensor is None or encoded is None:
                weights[source] = 0 if tensor is None else _weigh(tensor, salt, whole=whole)
            else:
                weights[source] = weight = _weigh_codes(encoded)
                if not weight:
                    weights.update((companion.key, 0) for companion in encoded.companions)
        return weights[source]

    def is_companion(source: Key) -> bool:
        """Return the sort key that puts codes first: weighing codes also explains their scales."""
        tensor = walk.stored[source]
        return tensor.dtype not in CODES or find_encoding(tensor, wiring) is None

    def rounds(source: Key) -> bool:
        """Whether it is a single scale or zero point that only quantizing nodes read."""
        readers = wiring.readers(walk.stored[source]) if walk.stored[source].numel == 1 else ()
        uses = [(operator_of(node), slot) for node, slot in readers if node.is_standard]
        return (
            bool(readers)
            and len(uses) == len(readers)
            and all(known is not None and known.slot(slot) in _CODEC_SLOTS for known, slot in uses)
        )

    @functools.cache  # thousands of nodes may read one value
    def sum_up(sources: Sources) -> tuple[list[Key], list[Place], int, int]:
        """Return the tensors and nodes among some sources, the tensors' weight, and that without rounding scales."""
        stored = sorted((key for key in sources if isinstance(key[1], str)), key=is_companion)
        made = [place for place in sources if not isinstance(place[1], str)]
        total = sum(weigh(key) for key in stored)
        # Scales that only round numbers on the way do not count if the numbers stay nearly the same.
        return stored, made, total, total - sum(map(rounds, stored))

    def count(path: GraphPath, name: str, value: Array) -> int:
        """Count the numbers that describe a value, or its sines and cosines if nothing else depends on it."""
        free = count_rounded(model, wiring, path, name, value)
        if free and value.dtype.kind == "f" and is_angle(path, name):
            free = min(free, max(count_free(np.cos(value)), count_free(np.sin(value))))
        return free

    def is_angle(path: GraphPath, name: str) -> bool:
        maker = wiring.find(path, name)
        readers = wiring.readers(maker) if isinstance(maker, Node) else []
        return bool(readers) and all(reader.node.op_type in ("Cos", "Sin") for reader in readers)

    def is_moved_known(path: GraphPath, name: str) -> bool:
        """Whether the value consists of known ones, cut and joined at sizes that depend on an input."""
        left = _count_moved(
            walk, evaluator, path, name, lambda *found: 0 if is_known(*found) else count(*found)
        )
        return left <= FEW

    tensors: set[Key] = set()
    reported: set[Sources] = set()
    numbers: dict[Place, int] = {}
    small: set[Key] = set()
    for path, name, sources, is_plain in walk.meetings:
        stored, made, total, least = sum_up(sources)
        is_computed = total <= _MOST_ROUNDED and (bool(made) or not is_plain)
        may_be_table = is_computed and least <= FEW
        is_formula = may_be_table and total <= FEW
        is_fixed = is_computed and walk.find(path, name).is_fixed
        value = evaluator.value(path, name) if may_be_table or is_fixed else None
        if is_fixed and value is not None and claims.isdisjoint(stored) and not count(path, name, value):
            continue  # a known table meets the activation, whatever few numbers it is computed of
        if may_be_table:  # a value that cannot be computed is not known
            free = FEW + 1 if value is None else count(path, name, value)
            if value is None:
                free = min(free, _count_moved(walk, evaluator, path, name, count))
            if total + free > FEW and value is not None and _is_near(value, unrounded.value(path, name)):
                total = least
            else:
                total += free
        if total > FEW and (made or not is_plain) and least <= _MOST_WORKED_OUT:
            value = evaluator.value(path, name) if value is None else value
            has_known = is_moved_known(path, name) if value is None else is_known(path, name, value)
            if has_known:
                total = 0
        if total <= FEW and not any(key in claims and weigh(key) > 1 for key in stored):
            small.update(key for key in stored if weigh(key))
            continue
        if sources not in reported:
            reported.add(sources)
            tensors.update([key for key in stored if weigh(key)] or stored)
        if is_formula:
            for place in made:
                numbers[place] = _made_numbers(wiring.node_at(place)) if value is None else value.size
    small -= tensors
    if len({_number(walk.stored[key]) for key in small}) > _MOST_NUMBERS:
        tensors |= small
    return Opaque(frozenset(tensors), numbers)


def _count_moved(
    walk: _Walk,
    evaluator: Evaluator,
    path: GraphPath,
    name: str,
    count: Callable[[GraphPath, str, Array], int],
    depth: int = 0,
) -> int:
    """Count the numbers in data joined with an activation, past nodes that move both; more than `FEW` if unknown.

    `count` returns the count of a value, given by its graph and name.
    """
    found = walk.find(path, name)
    if not found.sources:
        return 0
    if evaluator.number(path, name) is not None:
        return 1
    if found.is_fixed:
        value = evaluator.value(path, name)
        return FEW + 1 if value is None else count(path, name, value)
    node = walk.wiring.find(path, name)
    known = operator_of(node) if isinstance(node, Node) and depth < _DEEPEST else None
    if not isinstance(node, Node) or known is None or known.moved == frozenset():
        return FEW + 1
    slots = [slot for slot in range(len(node.inputs)) if known.passes_on(slot)]
    if found.sources - _union([walk.find(node.graph_path, node.inputs[slot]) for slot in slots]):
        return FEW + 1  # the node makes numbers itself, like Dropout
    return sum(
        _count_moved(walk, evaluator, node.graph_path, node.inputs[slot], count, depth + 1) for slot in slots
    )


def count_rounded(model: Model, wiring: Wiring, path: GraphPath, name: str, value: Array) -> int:
    """Count the numbers that describe a value, or the value before rounding if a quantizer has changed it.

    The indices of nonzero elements are described by these elements.
    """
    free = count_free(value)
    node = _find_origin(wiring, path, name) if free > FEW else None
    if node is None:
        return free
    evaluator = Evaluator(model, wiring, by_default=True)
    if node.op_type == "NonZero":
        elements = evaluator.value(node.graph_path, node.inputs[0])
        return free if elements is None else min(free, count_free(elements))
    scale, zero = (
        evaluator.value(node.graph_path, operand) if operand else None
        for operand in (*node.inputs[1:3], "")[:2]
    )
    if scale is None or scale.size != 1:
        return free
    step = float(scale.reshape(()))
    numbers = value.astype(np.float64)
    if value.dtype.kind in "iu":
        numbers = (numbers - (0.0 if zero is None else float(zero.reshape(-1)[0]))) * step
    size = float(np.abs(numbers).max(initial=0.0))
    if not 0 < step * _LEAST_STEPS <= size:
        return free
    is_one, is_zero = np.abs(numbers - size) <= step, np.abs(numbers) <= step / 2
    truths = np.where(is_one, 1.0, np.where(is_zero, 0.0, numbers))
    return min(free, count_free(numbers, _ROUNDINGS * step), count_free(truths))


_LEAST_STEPS = 32
"""Fewest steps of a quantizer for the largest number: with fewer, any values would be near a table."""

_ROUNDINGS = 2
"""Steps by which repeatedly rounded numbers may differ."""


def _find_origin(wiring: Wiring, path: GraphPath, name: str) -> Node | None:
    """Return the node that rounded a value, or that made it of indices, past nodes that only move it."""
    for _ in range(_MOST_VISITS):
        node = wiring.find(path, name)
        if not isinstance(node, Node) or not node.inputs:
            return None
        if node.op_type in ("DequantizeLinear", "NonZero", "QuantizeLinear") and node.is_standard:
            return node
        if node.op_type not in MOVES:
            return None
        path, name = node.graph_path, node.inputs[0]
    return None


def _is_near(value: Array, before: Array | None) -> bool:
    """Whether a value, or its codes, equals a table except for the error of quantization."""
    if before is None or before.shape != value.shape or before.dtype.kind != "f" or count_free(before) > 1:
        return False
    wanted, found = before.astype(np.float64).ravel(), value.astype(np.float64).ravel()
    if value.dtype.kind in "iu":  # codes are a linear function of the numbers
        slope, start = np.polyfit(wanted, found, 1) if np.ptp(wanted) else (0.0, found[0])
        wanted = slope * wanted + start
    return bool(np.abs(found - wanted).max(initial=0.0) <= _ROUNDING_LOSS * np.abs(wanted).max(initial=0.0))


def _weigh(tensor: StoredTensor, salt: Callable[[], str], *, whole: bool) -> int:
    if tensor.dtype.name == "STRING":
        return max(tensor.numel, tensor.nbytes)
    if tensor.numel <= 1:
        return tensor.numel
    if tensor.numel > _MOST_CODES:
        return 1 if _is_one_value(tensor, salt(), whole=whole) else tensor.numel
    array = tensor.payload.array()
    return tensor.numel if array is None else count_free(array)


def _is_one_value(tensor: StoredTensor, salt: str, *, whole: bool) -> bool:
    """Whether a large tensor has a single value: at samples, or everywhere if `whole`."""
    look = tensor.payload.at(sample_positions(tensor.numel, salt))
    if look is None or not look.size or not bool((look == look[0]).all()):
        return False
    return not whole or all(bool((part == look[0]).all()) for part in tensor.payload.parts())


def _weigh_codes(encoded: Encoded) -> int:
    """Return the weight of codes: decoded numbers match a table if they are within half a step of it."""
    if encoded.numel > _MOST_CODES:
        return encoded.numel
    parts = list(encoded.bands())
    array = encoded.array()
    if array is None or not parts:
        return encoded.numel
    step = max(float(steps.max(initial=0.0)) for _, steps in parts)
    return count_free(array, step)


_MOST_CODES = 1 << 24
"""Most elements that are read, or decoded, to see whether they are a table."""


def _number(tensor: StoredTensor) -> bytes:
    if tensor.numel > FEW:  # a single number, repeated
        array = tensor.payload.at(np.zeros(1, dtype=np.int64))
    else:
        array = tensor.payload.array()
    return tensor.name.encode() if array is None else array.tobytes()
