"""Settled books -> the layers that compute otherwise than those beside them, though they hold the same parameters.

PyTorch's side may be a state dict, which does not say what forward does. But a model repeats its layers: where all of
a list have an epsilon of 1e-12 and one has 0.1, somebody has changed it. What a node computes with a layer's parameter
is followed back to the nodes that compute with the parameters before it, and written down in terms of the layer's own
names; in most layers these terms are one. What may honestly differ is not looked at: masks and tables of positions,
strides and windows, sizes, numbers of codes. A term that is otherwise built is another kind of layer, and no odd one.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np

from analyzer.account.ledger import Finding, Severity
from analyzer.model import Node, Place, StoredTensor, is_runtime_domain
from analyzer.model.operators import DECODES, MEASURES, MOVES, Kind, kind_of
from analyzer.model.wiring import GraphInput
from analyzer.reconciliation.books import Books
from analyzer.reconciliation.lines import MEANINGS, Line
from analyzer.records import Frozen, Mutable, field
from analyzer.text import format_many

_NUMBER = re.compile(r"(?:(?<=\.)|^)\d+(?=\.)")
_FEWEST = 3
"""Layers that have to be alike before one beside them is odd."""
_MOST_ODD = 8
"""Of so many layers one may be odd, and of twice as many two; where more are, they are meant to be."""
_MOST_NODES = 512
"""Nodes that are followed back from one."""
_DEEPEST = 96
_FEW = 8
"""Numbers of a constant that are compared: a larger one is a table, which may be a layer's own."""
_MOST_TOLD = 8
_SAME = 1e-5
"""Relative difference of two constants that are one."""

_STRAIGHT = DECODES | {"Identity", "Dropout", "QuantizeLinear", "DynamicQuantizeLinear"}
"""Operators that give what they are given, but for rounding."""
_EITHER_WAY = frozenset({"Add", "Mul", "Max", "Min", "Sum", "Mean", "And", "Or", "Xor", "Equal"})
"""Operators to which the order of their inputs is nothing."""
_TOLD = frozenset(
    {
        *("alpha", "approximate", "axes", "axis", "beta", "epsilon", "equation", "gamma", "interleaved"),
        *("is_causal", "keepdims", "mask_filter_value", "perm", "scale", "softcap", "unidirectional"),
    }
)
"""Attributes that layers of the same parameters have alike."""
_NUMERIC = frozenset(
    {
        *("Add", "Cast", "Concat", "Div", "Gather", "Identity", "Mul", "Neg", "Pow", "Reciprocal", "Reshape"),
        *("Slice", "Sqrt", "Squeeze", "Sub", "Unsqueeze"),
    }
)
"""Operators that exporters compute scales and shapes with."""
_COMPUTES = frozenset({Kind.ELEMENTWISE, Kind.REDUCES})


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


_Label = Operation | Given | Numbers | Result
_ANY, _FAR = Given("any"), Given("far")
_EARLIER = Given("earlier")
"""What a layer reads of none of its own, and not of the one before."""
_STREAM = Given("stream")
"""What the layer before reads of the one before it."""
_SKIPPED = Given("skipped")
"""What it reads of others."""
_PASSED = frozenset({_EARLIER, _SKIPPED, _STREAM})


class _UnlikeError(Exception):
    """Two terms are built otherwise: two kinds of layers."""


class Layers(Frozen):
    """Members of a list of modules that hold parameters of the same names and shapes."""

    prefix: str
    """What their names begin with: `encoder.layer.`."""
    numbers: tuple[int, ...]
    names: tuple[str, ...]
    """Of the parameters, in their layer."""
    first: int
    """The lowest number of the whole list."""


class _Difference(Frozen):
    node: Node
    found: str
    expected: str


def find_odd_layers(books: Books) -> Iterator[Finding]:
    """Layers that compute otherwise than most of their list; a warning each, as somebody may mean it."""
    fed = _Fed(books, _anchors(books))
    homes = {name: place for place, name in fed.anchors.items() if name is not None}
    told: dict[Place, tuple[str, _Difference, int]] = {}
    for layers in _lists(books):
        walk = _Walk(fed, layers)
        for name in layers.names:
            roots = {
                number: homes[full]
                for number in layers.numbers
                if (full := f"{layers.prefix}{number}.{name}") in homes
            }
            for number, difference, many in walk.compare(roots):
                told.setdefault(difference.node.place, (f"{layers.prefix}{number}", difference, many))
    by_layer: dict[str, list[tuple[_Difference, int]]] = defaultdict(list)
    for layer, difference, many in told.values():
        by_layer[layer].append((difference, many))
    for layer, found in [*by_layer.items()][:_MOST_TOLD]:
        difference, many = found[0]
        node = difference.node.name or next(filter(None, difference.node.outputs), difference.node.op_type)
        more = f", and {format_many(len(found) - 1, 'other')} of its nodes" if len(found) > 1 else ""
        beside = format_many(many, "layer")
        message = (
            f"{layer} computes otherwise than {beside} with the same parameters, at {node}: {difference.found}, and "
            f"there {difference.expected}{more}"
        )
        yield Finding("odd-layer", Severity.WARNING, message, (layer,))


def _anchors(books: Books) -> dict[Place, str | None]:
    """The nodes that compute with a parameter, and its name; None where that is read elsewhere too."""
    found: dict[Place, str | None] = {}
    past = frozenset(MOVES | DECODES)
    for entry in books.ledger.entries:
        line = books.entries.get(entry.tensor.key)
        if line is None or line.parameter not in books.parameters:
            continue
        places = {reader.node.place for reader in books.ledger.wiring.readers(entry.tensor, past=past)}
        name = line.parameter if len(places) == 1 and line.learned else None
        for place in places:
            found[place] = found.get(place) or name
    return found


def _lists(books: Books) -> Iterator[Layers]:
    """Lists of modules, each once for each set of parameters that enough of its members have."""
    members: dict[str, dict[int, dict[str, tuple[int, ...]]]] = defaultdict(lambda: defaultdict(dict))
    for parameter in books.manifest.parameters:
        settled = books.parameters[parameter.name]
        if MEANINGS[settled.line].unbalanced:
            continue
        for match in _NUMBER.finditer(parameter.name):
            prefix, suffix = parameter.name[: match.start()], parameter.name[match.end() + 1 :]
            members[prefix][int(match[0])][suffix] = parameter.shape
    for prefix, modules in members.items():
        alike: dict[frozenset[tuple[str, tuple[int, ...]]], list[int]] = defaultdict(list)
        for number, names in modules.items():
            alike[frozenset(names.items())].append(number)
        for numbers in alike.values():
            if len(numbers) > _FEWEST:
                yield Layers(prefix, tuple(sorted(numbers)), tuple(modules[numbers[0]]), min(modules))


class _Terms(Mutable):
    """Terms by their numbers: two that are the same have one number."""

    known: dict[tuple[_Label, tuple[int, ...]], int] = field(default_factory=dict)
    labels: list[_Label] = field(default_factory=list)
    parts: list[tuple[int, ...]] = field(default_factory=list)

    def number(self, label: _Label, parts: Iterable[int] = ()) -> int:
        key = (label, tuple(parts))
        if key not in self.known:
            self.known[key] = len(self.labels)
            self.labels.append(label)
            self.parts.append(key[1])
        return self.known[key]


class _Fed(Mutable):
    """What nodes compute with: of parameters, of what the model is given, or of constants and sizes alone."""

    books: Books
    anchors: Mapping[Place, str | None]
    """The nodes that compute with a parameter, and its name."""
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
        ahead = None
        if top.place not in known:
            opened.add(top.place)
            # What is opened and not known yet is a circle.
            ahead = next((n for n in above(top) if n.place not in known and n.place not in opened), None)
        if ahead is not None:
            waiting.append(ahead)
            continue
        waiting.pop()
        if top.place not in known:
            known[top.place] = settle(top)
    return known[node.place]


class _Walk(Mutable):
    """The terms of the layers of one list."""

    fed: _Fed
    layers: Layers
    terms: _Terms = field(default_factory=_Terms)
    _newest: dict[Place, int | None] = field(default_factory=dict)

    def compare(self, roots: Mapping[int, Place]) -> Iterator[tuple[int, _Difference, int]]:
        """The odd ones among the nodes that compute with one parameter of each layer, and how many others are alike."""
        if len(roots) <= _FEWEST:
            return
        found = {number: _Term(self, number, place) for number, place in roots.items()}
        (usual, many), *_ = Counter(term.number for term in found.values()).most_common()
        odd = []
        for number, term in found.items():
            try:
                differences = [*_compare(self.terms, usual, term, is_first=number == self.layers.first)]
            except _UnlikeError:
                continue
            many += not differences and term.number != usual
            odd += [(number, difference) for difference in differences[:1]]
        if many >= _FEWEST and 2 * many > len(found) and len(odd) <= max(1, len(found) // _MOST_ODD):
            yield from ((number, difference, many) for number, difference in odd)

    def newest(self, node: Node) -> int | None:
        """The last layer of the list whose parameters made what a node computes with; None where none did."""
        return _settle(node, self._newest, self._above, self._newest_of)

    def _above(self, node: Node) -> list[Node]:
        return [] if node.place in self.fed.anchors else self.fed.above(node)

    def _newest_of(self, node: Node) -> int | None:
        if node.place in self.fed.anchors:
            return self.number_of(self.fed.anchors[node.place])
        found = (self._newest.get(each.place) for each in self.fed.above(node))
        return max((each for each in found if each is not None), default=None)

    def number_of(self, name: str | None) -> int | None:
        """The layer of a parameter; None of one of no layer."""
        prefix = self.layers.prefix
        match = _NUMBER.match(name, len(prefix)) if name is not None and name.startswith(prefix) else None
        return None if match is None else int(match[0])


class _Term(Mutable):
    """What one node computes with the parameter of a layer, as a term of what the parameters before it give."""

    walk: _Walk
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
        return f"{self.walk.layers.prefix}{number}.{result.name}" in self.walk.fed.books.parameters

    def _of_node(self, node: Node, depth: int, *, is_own: bool) -> int:
        parts = [self._of_value(node, name, depth + 1, is_own=is_own) for name in node.inputs]
        if node.op_type in _EITHER_WAY:
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
        if is_fed and newest not in ((self.layer, self.layer - 1) if is_own else (self.layer - 1,)):
            return terms.number(_EARLIER if is_own else self._stream(newest))
        if depth > _DEEPEST or len(self._known) > _MOST_NODES:
            return terms.number(_FAR)
        is_own = is_own and (not is_fed or newest == self.layer)
        if provider.op_type in _STRAIGHT and provider.inputs and provider.outputs[0] == name:
            return self._of_value(provider, provider.inputs[0], depth, is_own=is_own)
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
        is_usual = newest == self.layer - 2 or self.layer - 1 <= self.walk.layers.first
        return _STREAM if is_usual else _SKIPPED

    def _of_tensor(self, tensor: StoredTensor) -> _Label:
        line = self.walk.fed.books.entries.get(tensor.key)
        if line is not None and (line.parameter or line.value or line.line is Line.QUANTIZATION):
            return _ANY
        array = tensor.payload.array() if tensor.numel <= _FEW else None
        if array is None or array.dtype.kind not in "fiub" or (array.dtype.kind == "f" and array.size > 1):
            return _ANY
        return Numbers(tuple(float(f"{each:.4g}") for each in np.asarray(array, np.float64).reshape(-1)))

    def _of_anchor(self, name: str | None, output: int, *, is_own: bool) -> _Label:
        number = self.walk.number_of(name)
        where = (
            {0: "own", 1: "before"}.get(self.layer - number, "another") if number is not None else "outside"
        )
        if not is_own and where != "before":
            return self._stream(number)
        if name is None:
            return Given("shared")
        if number is None or where == "another":
            return Result(where, name, output)
        return Result(where, name.removeprefix(f"{self.walk.layers.prefix}{number}."), output)


def _plain(value: object) -> object:
    """An attribute as one can compare it."""
    return float(f"{value:.5g}") if isinstance(value, float) else value


def _compare(terms: _Terms, usual: int, term: _Term, *, is_first: bool) -> Iterator[_Difference]:
    """How a layer's term differs from that of most layers.

    Raises:
        _UnlikeError: it is built otherwise.
    """
    waiting, seen = [(usual, term.number, term.walk.fed.books.ledger.wiring.node_at(term.place))], set()
    while waiting:
        mine, yours, reader = waiting.pop()
        if mine == yours or (mine, yours) in seen:
            continue
        seen.add((mine, yours))
        a, b = terms.labels[mine], terms.labels[yours]
        if is_first and (b == _EARLIER or (isinstance(b, Result) and b.where == "outside")):
            if _places(terms, mine) <= {"before"}:
                continue  # what the whole list is given
            raise _UnlikeError
        node = term.nodes.get(yours, reader)
        if isinstance(a, Operation) and isinstance(b, Operation):
            pairs = _pair(terms, mine, yours)
            said = _say_settings(a, b)
            if pairs is not None and (a.op_type, a.domain) == (b.op_type, b.domain) and said is not None:
                if any(said):
                    yield _Difference(node, *said)
                if _is_turned(terms, mine, yours):
                    yield _Difference(
                        node, f"{b.op_type} has its operands exchanged", "they stand the other way round"
                    )
                else:
                    waiting += [(one, other, node) for one, other in pairs]
                continue
        if isinstance(a, Numbers) and isinstance(b, Numbers) and len(a.values) == len(b.values):
            if not np.allclose(a.values, b.values, rtol=_SAME, atol=0, equal_nan=True):
                operator = f"{reader.op_type} with {_say(b.values)}"
                yield _Difference(reader, operator, f"with {_say(a.values)}")
        elif isinstance(a, Result) and isinstance(b, Result):
            if not term.has(a):
                raise _UnlikeError
            yield _Difference(reader, f"it reads {_name(b)}", _name(a))
        elif (a, b) == (_STREAM, _SKIPPED):
            yield _Difference(reader, "it adds up what an earlier layer gives", "what the one before gives")
        elif b == _EARLIER and _places(terms, mine) == {"before"}:
            yield _Difference(reader, "it reads what an earlier layer gives", "what the one before gives")
        elif (said := _say_computed(terms, mine, yours)) is not None:
            yield _Difference(node, *said)
        else:
            raise _UnlikeError


def _places(terms: _Terms, number: int) -> set[str]:
    """Where the parameters are that a term has a result of."""
    waiting, seen, found = [number], {number}, set[str]()
    while waiting:
        each = waiting.pop()
        label = terms.labels[each]
        if isinstance(label, Result):
            found.add(label.where)
        new = [part for part in terms.parts[each] if part not in seen]
        seen.update(new)
        waiting += new
    return found


def _name(result: Result) -> str:
    where = {"own": "of its own", "before": "of the layer before", "another": "", "outside": ""}[result.where]
    return f"what {result.name} {where} gives".replace("  ", " ")


def _say(values: tuple[float, ...]) -> str:
    return ", ".join(f"{each:g}" for each in values)


def _say_settings(usual: Operation, odd: Operation) -> tuple[str, str] | None:
    """Attributes that differ, as they are here and there; empty where none do; None where they may differ honestly."""
    mine, yours = dict(usual.settings), dict(odd.settings)
    names = sorted(name for name in mine.keys() | yours.keys() if mine.get(name) != yours.get(name))
    if not names:
        return "", ""
    if not _TOLD.issuperset(names) or odd.kind in (Kind.CONVOLUTION, Kind.POOLS):
        return None
    found = ", ".join(f"{name} {_value(yours.get(name))}" for name in names)
    return f"{odd.op_type} has {found}", ", ".join(f"{name} {_value(mine.get(name))}" for name in names)


def _value(value: object) -> str:
    return "the default" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _pair(terms: _Terms, mine: int, yours: int) -> list[tuple[int, int]] | None:
    """The parts of two terms that belong together and differ; None where they have not as many."""
    a, b = terms.parts[mine], terms.parts[yours]
    if len(a) != len(b):
        return None
    label = terms.labels[mine]
    if not isinstance(label, Operation) or label.op_type not in _EITHER_WAY:
        return [(one, other) for one, other in zip(a, b, strict=True) if one != other]
    left = Counter(b)
    alone = []
    for part in a:
        if left[part]:
            left[part] -= 1
        else:
            alone.append(part)
    rest = [*left.elements()]
    if len(alone) == 2:
        kinds = [_kind(terms.labels[part]) for part in alone]
        others = [_kind(terms.labels[part]) for part in rest]
        if kinds[0] != others[0] and kinds[0] == others[1]:
            rest.reverse()
    return [*zip(alone, rest, strict=True)]


def _kind(label: _Label) -> object:
    return label.op_type if isinstance(label, Operation) else type(label)


def _is_turned(terms: _Terms, mine: int, yours: int) -> bool:
    a, b = terms.parts[mine], terms.parts[yours]
    return len(a) == 2 and a[0] != a[1] and a == b[::-1]


def _say_computed(terms: _Terms, mine: int, yours: int) -> tuple[str, str] | None:
    """Two terms that compute something else of the same; None where they may be two ways of one, or of different."""
    a = terms.labels[mine]
    if isinstance(a, Operation) and a.op_type in ("Add", "Sum") and yours in terms.parts[mine]:
        others = [terms.labels[part] for part in terms.parts[mine] if part != yours]
        if others and all(isinstance(each, (Result, Operation)) or each in _PASSED for each in others):
            lost = ", ".join(_name(each) if isinstance(each, Result) else "a sum" for each in others)
            return "nothing is added", f"{lost} is"
        return None
    b = terms.labels[yours]
    if _is_exchanged(a, b) and Counter(terms.parts[mine]) == Counter(terms.parts[yours]):
        return _operator(b), _operator(a)
    for label, part, found, expected in ((a, yours, "nothing", "{}"), (b, mine, "{}", "nothing")):
        whole = mine if label is a else yours
        if isinstance(label, Operation) and label.op_type == "Transpose" and terms.parts[whole] == (part,):
            return found.format("Transpose"), expected.format("Transpose")
    ours, theirs = _leaves(terms, mine), _leaves(terms, yours)
    if ours is None or theirs is None:
        return None
    (mine_of, mine_by), (yours_of, yours_by) = ours, theirs
    if not mine_of or mine_of != yours_of or not (mine_by or yours_by):
        return None
    return " of ".join(yours_by) or "nothing is computed", " of ".join(mine_by) or "nothing is"


def _is_exchanged(one: _Label, other: _Label) -> bool:
    """Whether two operators are others for sure, element by element: not one that a tool writes in another way."""
    return all(
        isinstance(each, Operation) and each.kind is Kind.ELEMENTWISE and not is_runtime_domain(each.domain)
        for each in (one, other)
    )


def _operator(label: _Label) -> str:
    return label.op_type if isinstance(label, Operation) else ""


def _leaves(terms: _Terms, number: int) -> tuple[frozenset[int], list[str]] | None:
    """What a term computes element by element with, and by which operators; None where nobody can say."""
    waiting, seen, leaves, operators = [number], {number}, set(), []
    while waiting:
        each = waiting.pop()
        label = terms.labels[each]
        if isinstance(label, Given) and label not in _PASSED:
            return None
        if isinstance(label, Operation) and label.kind in _COMPUTES:
            if is_runtime_domain(label.domain):
                return None
            operators.append(label.op_type)
            new = [part for part in terms.parts[each] if part not in seen]
            seen.update(new)
            waiting += new
        elif not isinstance(label, Numbers):
            leaves.add(each)
    return frozenset(leaves), operators
