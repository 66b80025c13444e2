"""Operands of each parameter of a layer -> terms in the layer's own names, which can be compared between layers.

A term ends at the nodes that compute with a parameter, and names this parameter, of the layer or the one before. Masks,
sizes and tables, which may differ between layers, are not part of it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np

from analyzer.model import Key, Node, Place, StoredTensor
from analyzer.model.operators import DECODES, MEASURES, MOVES, Kind, kind_of
from analyzer.model.wiring import GraphInput
from analyzer.reconciliation.books import Books
from analyzer.reconciliation.lines import Line
from analyzer.records import Frozen, Mutable, field

NUMBER = re.compile(r"(?:(?<=\.)|^)\d+(?=\.)")
_MOST_NODES = 512
"""Most nodes that are followed back from one."""
_DEEPEST = 96
_UNKNOWN = 1 << 62
"""Layer of the results of a tensor that several layers share: it may be any."""
_FEW = 8
"""Most numbers of a constant that is compared: a larger one is a table, which may differ between layers."""
_STRAIGHT = DECODES | {"Identity", "Dropout", "QuantizeLinear", "DynamicQuantizeLinear"}
"""Operators that return their input, up to rounding."""
COMMUTATIVE = frozenset({"Add", "Mul", "Max", "Min", "Sum", "Mean", "And", "Or", "Xor", "Equal"})
"""Commutative operators."""
_NUMERIC = frozenset(
    {
        *("Add", "Cast", "Concat", "Div", "Gather", "Identity", "Mul", "Neg", "Pow", "Reciprocal", "Reshape"),
        *("Slice", "Sqrt", "Squeeze", "Sub", "Unsqueeze"),
    }
)
"""Operators with which exporters compute scales and shapes."""


class Operation(Frozen):
    """Operator and attributes of a node, without its operands."""

    op_type: str
    domain: str
    kind: Kind | None
    settings: tuple[tuple[str, object], ...]


class UnfollowedOperand(Frozen):
    """Operand that is not followed, such as a mask, size or table, or another layer's output; `what` names its kind."""

    what: str


class Numbers(Frozen):
    """A constant of a few numbers."""

    values: tuple[float, ...]


class Result(Frozen):
    """Output of a node that computes with a parameter."""

    where: str
    """Layer of the parameter: `own`, the one `before`, `another` of the list, or `outside` of it."""
    name: str
    """Name of the parameter in its layer."""
    output: int


Label = Operation | UnfollowedOperand | Numbers | Result
_ANY, _FAR, _SHARED = UnfollowedOperand("any"), UnfollowedOperand("far"), UnfollowedOperand("shared")
EARLIER = UnfollowedOperand("earlier")
"""Operand of a layer that depends on neither its own parameters nor the previous layer's."""
STREAM = UnfollowedOperand("stream")
"""Operand of the previous layer that comes from the layer before it."""
SKIPPED = UnfollowedOperand("skipped")
"""Operand of the previous layer that comes from another layer."""
PASSED = frozenset({EARLIER, SKIPPED, STREAM})


Signature = tuple[str, tuple[int, ...]]
"""Name of a parameter in its layer, and its shape."""


class Layers(Frozen):
    """List of modules, such as a `ModuleList`."""

    prefix: str
    """Prefix of their names, such as `encoder.layer.`."""
    kinds: Mapping[int, frozenset[Signature]]
    """Parameters of each module, by its number."""

    def alike(self) -> Iterator[tuple[str, list[int]]]:
        """Yield each name of a parameter with the members that have one of the same name and shape."""
        found: dict[Signature, list[int]] = {}
        for number, kind in sorted(self.kinds.items()):
            for each in kind:
                found.setdefault(each, []).append(number)
        yield from ((name, numbers) for (name, _), numbers in sorted(found.items()))


class Anchors(Frozen):
    """Nodes that compute with a parameter."""

    names: Mapping[Place, str | None]
    """Node -> name of its parameter; None if other nodes compute with the parameter too."""
    shared: Mapping[Place, tuple[str, ...]]
    """Node without such a name -> all parameters in its tensor, as merged biases of zeros."""
    several: Mapping[str, tuple[Place, ...]]
    """Parameter that alone is in its tensor, but has several nodes that compute with it -> these nodes."""


def find_anchors(books: Books) -> Anchors:
    """Return the nodes that compute with parameters, after nodes that only move or decode these."""
    names_by_key: dict[Key, list[str]] = defaultdict(list)
    for settled in books.parameters.values():
        for key in settled.entries:
            names_by_key[key].append(settled.name)
    shared: dict[Place, tuple[str, ...]] = {}
    several: dict[str, tuple[Place, ...]] = {}
    found: dict[Place, str | None] = {}
    past = frozenset(MOVES | DECODES)
    for entry in books.ledger.entries:
        line = books.entries.get(entry.tensor.key)
        if line is None or line.parameter not in books.parameters or line.line is Line.EVALUATED:
            continue  # values computed in advance may involve parameters of several layers
        places = {reader.node.place for reader in books.ledger.wiring.readers(entry.tensor, past=past)}
        name = line.parameter if len(places) == 1 and line.learned else None
        if (
            len(places) > 1
            and line.learned
            and len(names_by_key[entry.tensor.key]) == 1
            and line.parameter is not None
        ):
            several[line.parameter] = tuple(sorted(places))
        for place in places:
            found[place] = found.get(place) or name
            if name is None:
                shared[place] = (*shared.get(place, ()), *names_by_key[entry.tensor.key])
    return Anchors(found, shared, several)


class Terms(Mutable):
    """Table of terms by number: equal terms share one number."""

    known: dict[tuple[Label, tuple[int, ...]], int] = field(default_factory=dict)
    labels: list[Label] = field(default_factory=list)
    parts: list[tuple[int, ...]] = field(default_factory=list)

    def number(self, label: Label, parts: Iterable[int] = ()) -> int:
        key = (label, tuple(parts))
        if key not in self.known:
            self.known[key] = len(self.labels)
            self.labels.append(label)
            self.parts.append(key[1])
        return self.known[key]

    def within(self, number: int) -> set[int]:
        """Return the numbers of a term and of all its parts."""
        waiting, seen = [number], {number}
        while waiting:
            new = [part for part in self.parts[waiting.pop()] if part not in seen]
            seen.update(new)
            waiting += new
        return seen


class Origins(Mutable):
    """Origin of the values of nodes: parameters, model inputs, or constants and sizes alone."""

    books: Books
    anchors: Mapping[Place, str | None]
    """Node that computes with a parameter -> the parameter's name, as in `Anchors.names`."""
    shared: Mapping[Place, tuple[str, ...]]
    nodes_by_parameter: Mapping[str, Place]
    """Parameter -> the one node that computes with it."""
    followed: int = 0
    """Number of nodes in all terms so far."""
    _known: dict[Place, bool | None] = field(default_factory=dict)
    _numbers: dict[Place, bool] = field(default_factory=dict)

    def __call__(self, node: Node) -> bool | None:
        """Whether a node's output depends on parameters; None if it depends on no model input either."""
        return _settle(node, self._known, self.find_upstream, self._of)

    def is_number(self, node: Node) -> bool:
        """Whether a node of constants and sizes computes a number, or a few, and no table."""
        return _settle(node, self._numbers, self.find_upstream, self._is_number)

    def _is_number(self, node: Node) -> bool:
        if node.op_type in MEASURES:
            return True
        return node.op_type in _NUMERIC and all(
            self._numbers.get(each.place, False) for each in self.find_upstream(node)
        )

    def find_upstream(self, node: Node) -> list[Node]:
        """Return the nodes whose outputs a node reads."""
        wiring = self.books.ledger.wiring
        found = (wiring.find(node.graph_path, name) for name in node.inputs if name)
        return [each for each in found if isinstance(each, Node)]

    def _of(self, node: Node) -> bool | None:
        if node.place in self.anchors:
            return True
        if node.op_type in MEASURES:
            return None
        wiring = self.books.ledger.wiring
        found = [wiring.find(node.graph_path, name) for name in node.inputs if name]
        upstream = [self._known.get(each.place, False) for each in found if isinstance(each, Node)]
        has_input = node.place in wiring.nested or any(
            each is None or isinstance(each, GraphInput) for each in found
        )
        return True if True in upstream else False if has_input or False in upstream else None


_Answer = TypeVar("_Answer")


def _settle(
    node: Node,
    known: dict[Place, _Answer],
    find_upstream: Callable[[Node], Sequence[Node]],
    settle: Callable[[Node], _Answer],
) -> _Answer:
    """Return a node's result, computed after those of all upstream nodes; each is computed once."""
    waiting, opened = [node], set[Place]()
    while waiting:
        top = waiting[-1]
        if top.place not in known and top.place not in opened:
            opened.add(top.place)
            waiting += [
                each for each in find_upstream(top) if each.place not in known and each.place not in opened
            ]
            continue
        waiting.pop()
        if top.place not in known:
            known[top.place] = settle(top)  # on a cycle, some upstream results are missing
    return known[node.place]


class Walk(Mutable):
    """Terms of the layers of one list."""

    origins: Origins
    layers: Layers
    terms: Terms = field(default_factory=Terms)
    _newest: dict[Place, int | None] = field(default_factory=dict)

    def newest(self, node: Node) -> int | None:
        """Return the last layer of the list on whose parameters a node's output depends; None if on none."""
        return _settle(node, self._newest, self._find_upstream, self._newest_of)

    def _find_upstream(self, node: Node) -> list[Node]:
        return [] if node.place in self.origins.anchors else self.origins.find_upstream(node)

    def _newest_of(self, node: Node) -> int | None:
        if node.place in self.origins.anchors:
            name = self.origins.anchors[node.place]
            others = () if name is not None else self.origins.shared.get(node.place, ())
            is_known = all(self.number_of(each) is None for each in others)
            return self.number_of(name) if is_known else _UNKNOWN
        found = (self._newest.get(each.place) for each in self.origins.find_upstream(node))
        return max((each for each in found if each is not None), default=None)

    def number_of(self, name: str | None) -> int | None:
        """Return the layer number of a parameter; None if it is in no layer of the list."""
        prefix = self.layers.prefix
        match = NUMBER.match(name, len(prefix)) if name is not None and name.startswith(prefix) else None
        return None if match is None else int(match[0])


class Term(Mutable):
    """Term of the node that computes with a parameter of a layer, made of results of the parameters before it."""

    walk: Walk
    layer: int
    place: Place
    number: int = 0
    nodes: dict[int, Node] = field(default_factory=dict)
    """Term number -> a node of the layer with that term."""
    _known: dict[tuple[Place, str], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        node = self.walk.origins.books.ledger.wiring.node_at(self.place)
        self.number = self._of_node(node, 0, is_own=True)

    def has(self, result: Result) -> bool:
        """Whether this layer, or the one before, has a parameter of this name: a list may mix two kinds of layers."""
        number = {"own": self.layer, "before": self.layer - 1}.get(result.where)
        return f"{self.walk.layers.prefix}{number}.{result.name}" in self.walk.origins.nodes_by_parameter

    def _of_node(self, node: Node, depth: int, *, is_own: bool) -> int:
        self.walk.origins.followed += 1
        parts = [self._of_value(node, name, depth + 1, is_own=is_own) for name in node.inputs]
        if node.op_type in COMMUTATIVE:
            parts.sort()
        settings = {**node.integers, **node.settings}
        attributes = tuple(sorted((name, _plain(value)) for name, value in settings.items()))
        kind = kind_of(node) if node.is_standard else None
        number = self.walk.terms.number(Operation(node.op_type, node.domain, kind, attributes), parts)
        self.nodes.setdefault(number, node)
        return number

    def _of_value(self, reader: Node, name: str, depth: int, *, is_own: bool) -> int:
        """Return the number of the term of a node's input; the node is in the layer, or in the one before."""
        terms, origins = self.walk.terms, self.walk.origins
        while True:
            provider = origins.books.ledger.wiring.find(reader.graph_path, name) if name else None
            if isinstance(provider, StoredTensor):
                return terms.number(self._of_tensor(provider))
            if not isinstance(provider, Node):
                return terms.number(_ANY if name else UnfollowedOperand("nothing"))
            if provider.place in origins.anchors:
                output = provider.outputs.index(name) if name in provider.outputs else 0
                number = terms.number(self._of_anchor(origins.anchors[provider.place], output, is_own=is_own))
                self.nodes.setdefault(number, reader)
                return number
            is_dependent = origins(provider)
            if (
                provider.op_type in MEASURES
                or is_dependent is False
                or (is_dependent is None and not origins.is_number(provider))
            ):
                return terms.number(_ANY)
            newest = self.walk.newest(provider) if is_dependent else None
            if newest == _UNKNOWN:
                return terms.number(_SHARED)
            if is_dependent and newest not in ((self.layer, self.layer - 1) if is_own else (self.layer - 1,)):
                return terms.number(EARLIER if is_own else self._stream(newest))
            if depth > _DEEPEST or len(self._known) > _MOST_NODES:
                return terms.number(_FAR)
            is_own = is_own and (not is_dependent or newest == self.layer)
            if provider.op_type not in _STRAIGHT or not provider.inputs or provider.outputs[0] != name:
                break
            reader, name = provider, provider.inputs[0]
        key = (provider.place, name)
        if key not in self._known:
            number = self._of_node(provider, depth, is_own=is_own)
            if len(provider.outputs) > 1 and name in provider.outputs:
                part = Operation(f"output {provider.outputs.index(name)}", "", Kind.MOVES, ())
                number = terms.number(part, [number])
                self.nodes.setdefault(number, provider)
            self._known[key] = number
        return self._known[key]

    def _stream(self, newest: int | None) -> UnfollowedOperand:
        """Return `STREAM` if the previous layer reads from the layer before it, as usual, else `SKIPPED`."""
        is_usual = newest == self.layer - 2 or self.layer - 1 <= min(self.walk.layers.kinds)
        return STREAM if is_usual else SKIPPED

    def _of_tensor(self, tensor: StoredTensor) -> Label:
        line = self.walk.origins.books.entries.get(tensor.key)
        if line is not None and (line.parameter or line.value or line.line is Line.QUANTIZATION):
            return _ANY
        array = tensor.payload.array() if tensor.numel <= _FEW else None
        if array is None or array.dtype.kind not in "fiub" or (array.dtype.kind == "f" and array.size > 1):
            return _ANY
        return Numbers(tuple(float(f"{each:.4g}") for each in np.asarray(array, np.float64).reshape(-1)))

    def _of_anchor(self, name: str | None, output: int, *, is_own: bool) -> Label:
        number = self.walk.number_of(name)
        where = (
            {0: "own", 1: "before"}.get(self.layer - number, "another") if number is not None else "outside"
        )
        if not is_own and where != "before":
            return self._stream(number)
        if name is None:
            return _SHARED
        if number is None or where == "another":
            return Result(where, name, output)
        return Result(where, name.removeprefix(f"{self.walk.layers.prefix}{number}."), output)


def _plain(value: object) -> object:
    """Return an attribute rounded for comparison."""
    return float(f"{value:.5g}") if isinstance(value, float) else value
