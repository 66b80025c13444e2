"""What leads to each parameter of a layer -> terms, written down in the layer's own names, that can be compared.

A term ends at the nodes that compute with a parameter: it says which, of this layer or the one before. Masks, sizes and
tables, which a layer may have of its own, are no part of it.
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
"""Nodes that are followed back from one."""
_DEEPEST = 96
_UNKNOWN = 1 << 62
"""The layer of what a tensor of several layers makes: it may be any."""
_FEW = 8
"""Numbers of a constant that are compared: a larger one is a table, which may be a layer's own."""
_STRAIGHT = DECODES | {"Identity", "Dropout", "QuantizeLinear", "DynamicQuantizeLinear"}
"""Operators that give what they are given, but for rounding."""
EITHER_WAY = frozenset({"Add", "Mul", "Max", "Min", "Sum", "Mean", "And", "Or", "Xor", "Equal"})
"""Operators to which the order of their inputs is nothing."""
_NUMERIC = frozenset(
    {
        *("Add", "Cast", "Concat", "Div", "Gather", "Identity", "Mul", "Neg", "Pow", "Reciprocal", "Reshape"),
        *("Slice", "Sqrt", "Squeeze", "Sub", "Unsqueeze"),
    }
)
"""Operators that exporters compute scales and shapes with."""


class Operation(Frozen):
    """What a node does, without what it reads."""

    op_type: str
    domain: str
    kind: Kind | None
    settings: tuple[tuple[str, object], ...]


class Given(Frozen):
    """What is no layer's, or is not looked at: masks, sizes, tables; and which of these."""

    what: str


class Numbers(Frozen):
    """A constant of a few numbers."""

    values: tuple[float, ...]


class Result(Frozen):
    """What a node gives that computes with a parameter."""

    where: str
    """`own` layer, the one `before`, `another` of the list, or `outside` of it."""
    name: str
    """Of the parameter, in its layer."""
    output: int


Label = Operation | Given | Numbers | Result
_ANY, _FAR, _SHARED = Given("any"), Given("far"), Given("shared")
EARLIER = Given("earlier")
"""What a layer reads of none of its own, and not of the one before."""
STREAM = Given("stream")
"""What the layer before reads of the one before it."""
SKIPPED = Given("skipped")
"""What it reads of others."""
PASSED = frozenset({EARLIER, SKIPPED, STREAM})


Signature = tuple[str, tuple[int, ...]]
"""A parameter by its name in its layer, and its shape."""


class Layers(Frozen):
    """A list of modules."""

    prefix: str
    """What their names begin with: `encoder.layer.`."""
    kinds: Mapping[int, frozenset[Signature]]
    """What each of them holds."""

    def alike(self) -> Iterator[tuple[str, list[int]]]:
        """Each name of a parameter, and the members that have one of the same shape there."""
        found: dict[Signature, list[int]] = {}
        for number, kind in sorted(self.kinds.items()):
            for each in kind:
                found.setdefault(each, []).append(number)
        yield from ((name, numbers) for (name, _), numbers in sorted(found.items()))


class Anchors(Frozen):
    """The nodes that compute with a parameter."""

    names: Mapping[Place, str | None]
    """Its name; None where others compute with it too."""
    shared: Mapping[Place, tuple[str, ...]]
    """Of a node whose parameter has no name: all that its tensor holds, as biases of zeros that were merged."""
    several: Mapping[str, tuple[Place, ...]]
    """Of a parameter that several nodes compute with, and that is nobody else's: these nodes."""


def find_anchors(books: Books) -> Anchors:
    """The nodes that compute with parameters, past what only moves or decodes these."""
    held: dict[Key, list[str]] = defaultdict(list)
    for settled in books.parameters.values():
        for key in settled.entries:
            held[key].append(settled.name)
    shared: dict[Place, tuple[str, ...]] = {}
    several: dict[str, tuple[Place, ...]] = {}
    found: dict[Place, str | None] = {}
    past = frozenset(MOVES | DECODES)
    for entry in books.ledger.entries:
        line = books.entries.get(entry.tensor.key)
        if line is None or line.parameter not in books.parameters or line.line is Line.EVALUATED:
            continue  # what was computed in advance may be of parameters of several layers
        places = {reader.node.place for reader in books.ledger.wiring.readers(entry.tensor, past=past)}
        name = line.parameter if len(places) == 1 and line.learned else None
        if (
            len(places) > 1
            and line.learned
            and len(held[entry.tensor.key]) == 1
            and line.parameter is not None
        ):
            several[line.parameter] = tuple(sorted(places))
        for place in places:
            found[place] = found.get(place) or name
            if name is None:
                shared[place] = (*shared.get(place, ()), *held[entry.tensor.key])
    return Anchors(found, shared, several)


class Terms(Mutable):
    """Terms by their numbers: two that are the same have one number."""

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
        """A term, and all that it is made of."""
        waiting, seen = [number], {number}
        while waiting:
            new = [part for part in self.parts[waiting.pop()] if part not in seen]
            seen.update(new)
            waiting += new
        return seen


class Fed(Mutable):
    """What nodes compute with: of parameters, of what the model is given, or of constants and sizes alone."""

    books: Books
    anchors: Mapping[Place, str | None]
    """The nodes that compute with a parameter, and its name."""
    shared: Mapping[Place, tuple[str, ...]]
    homes: Mapping[str, Place]
    """The one node that computes with each parameter, of those that have one."""
    followed: int = 0
    """Nodes that terms were made of."""
    _known: dict[Place, bool | None] = field(default_factory=dict)
    _numbers: dict[Place, bool] = field(default_factory=dict)

    def __call__(self, node: Node) -> bool | None:
        """Whether parameters have a part in what a node gives; None where what the model is given has none either."""
        return _settle(node, self._known, self.above, self._of)

    def is_number(self, node: Node) -> bool:
        """Whether a node of constants and sizes makes a number, or a few, and no table."""
        return _settle(node, self._numbers, self.above, self._is_number)

    def _is_number(self, node: Node) -> bool:
        if node.op_type in MEASURES:
            return True
        return node.op_type in _NUMERIC and all(
            self._numbers.get(each.place, False) for each in self.above(node)
        )

    def above(self, node: Node) -> list[Node]:
        """The nodes whose values a node reads."""
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
        told = [self._known.get(each.place, False) for each in found if isinstance(each, Node)]
        is_given = node.place in wiring.nested or any(
            each is None or isinstance(each, GraphInput) for each in found
        )
        return True if True in told else False if is_given or False in told else None


_Told = TypeVar("_Told")


def _settle(
    node: Node,
    known: dict[Place, _Told],
    above: Callable[[Node], Sequence[Node]],
    settle: Callable[[Node], _Told],
) -> _Told:
    """What is said of a node once all is said of those above it; each is asked for once."""
    waiting, opened = [node], set[Place]()
    while waiting:
        top = waiting[-1]
        if top.place not in known and top.place not in opened:
            opened.add(top.place)
            waiting += [each for each in above(top) if each.place not in known and each.place not in opened]
            continue
        waiting.pop()
        if top.place not in known:
            known[top.place] = settle(top)  # of a circle nothing is known yet
    return known[node.place]


class Walk(Mutable):
    """The terms of the layers of one list."""

    fed: Fed
    layers: Layers
    terms: Terms = field(default_factory=Terms)
    _newest: dict[Place, int | None] = field(default_factory=dict)

    def newest(self, node: Node) -> int | None:
        """The last layer of the list whose parameters made what a node computes with; None where none did."""
        return _settle(node, self._newest, self._above, self._newest_of)

    def _above(self, node: Node) -> list[Node]:
        return [] if node.place in self.fed.anchors else self.fed.above(node)

    def _newest_of(self, node: Node) -> int | None:
        if node.place in self.fed.anchors:
            name = self.fed.anchors[node.place]
            others = () if name is not None else self.fed.shared.get(node.place, ())
            is_known = all(self.number_of(each) is None for each in others)
            return self.number_of(name) if is_known else _UNKNOWN
        found = (self._newest.get(each.place) for each in self.fed.above(node))
        return max((each for each in found if each is not None), default=None)

    def number_of(self, name: str | None) -> int | None:
        """The layer of a parameter; None of one of no layer."""
        prefix = self.layers.prefix
        match = NUMBER.match(name, len(prefix)) if name is not None and name.startswith(prefix) else None
        return None if match is None else int(match[0])


class Term(Mutable):
    """What one node computes with the parameter of a layer, as a term of what the parameters before it give."""

    walk: Walk
    layer: int
    place: Place
    number: int = 0
    nodes: dict[int, Node] = field(default_factory=dict)
    """A node of the layer that each term is of."""
    _known: dict[tuple[Place, str], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        node = self.walk.fed.books.ledger.wiring.node_at(self.place)
        self.number = self._of_node(node, 0, is_own=True)

    def has(self, result: Result) -> bool:
        """Whether this layer, or the one before, has a parameter of this name: those of a list may be of two kinds."""
        number = {"own": self.layer, "before": self.layer - 1}.get(result.where)
        return f"{self.walk.layers.prefix}{number}.{result.name}" in self.walk.fed.homes

    def _of_node(self, node: Node, depth: int, *, is_own: bool) -> int:
        self.walk.fed.followed += 1
        parts = [self._of_value(node, name, depth + 1, is_own=is_own) for name in node.inputs]
        if node.op_type in EITHER_WAY:
            parts.sort()
        settings = {**node.integers, **node.settings}
        told = tuple(sorted((name, _plain(value)) for name, value in settings.items()))
        kind = kind_of(node) if node.is_standard else None
        number = self.walk.terms.number(Operation(node.op_type, node.domain, kind, told), parts)
        self.nodes.setdefault(number, node)
        return number

    def _of_value(self, reader: Node, name: str, depth: int, *, is_own: bool) -> int:
        """The term of a value that a node reads, which computes in the layer, or in the one before."""
        terms, fed = self.walk.terms, self.walk.fed
        while True:
            provider = fed.books.ledger.wiring.find(reader.graph_path, name) if name else None
            if isinstance(provider, StoredTensor):
                return terms.number(self._of_tensor(provider))
            if not isinstance(provider, Node):
                return terms.number(_ANY if name else Given("nothing"))
            if provider.place in fed.anchors:
                output = provider.outputs.index(name) if name in provider.outputs else 0
                number = terms.number(self._of_anchor(fed.anchors[provider.place], output, is_own=is_own))
                self.nodes.setdefault(number, reader)
                return number
            is_fed = fed(provider)
            if (
                provider.op_type in MEASURES
                or is_fed is False
                or (is_fed is None and not fed.is_number(provider))
            ):
                return terms.number(_ANY)
            newest = self.walk.newest(provider) if is_fed else None
            if newest == _UNKNOWN:
                return terms.number(_SHARED)
            if is_fed and newest not in ((self.layer, self.layer - 1) if is_own else (self.layer - 1,)):
                return terms.number(EARLIER if is_own else self._stream(newest))
            if depth > _DEEPEST or len(self._known) > _MOST_NODES:
                return terms.number(_FAR)
            is_own = is_own and (not is_fed or newest == self.layer)
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

    def _stream(self, newest: int | None) -> Given:
        """What the layer before reads: of the one before that, as layers do, or of another."""
        is_usual = newest == self.layer - 2 or self.layer - 1 <= min(self.walk.layers.kinds)
        return STREAM if is_usual else SKIPPED

    def _of_tensor(self, tensor: StoredTensor) -> Label:
        line = self.walk.fed.books.entries.get(tensor.key)
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
    """An attribute as one can compare it."""
    return float(f"{value:.5g}") if isinstance(value, float) else value
