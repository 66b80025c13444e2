"""Nodes that read a module's weights -> oddities before them, which PyTorch does not have there.

A PyTorch call with weights has a node in the file that reads them, whatever the names. So its place is known even where
no value is right any more. The inputs of this node are followed back to right values, or to the weights of earlier
calls. A layer that occurs several times is its own witness: a difference between one occurrence and the next is
reported.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from analyzer.model import Node, StoredTensor
from analyzer.records import Frozen, Mutable
from analyzer.verify.side import Call

Edge = tuple[Sequence[str], Sequence[str], str]

MOVES = frozenset(
    {
        *("Identity", "Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Cast", "QuantizeLinear"),
        *("DequantizeLinear", "Expand", "Split", "Tile"),
    }
)
"""Operators that only move or convert their input."""
PRODUCTS = frozenset(
    {
        *("MatMul", "Gemm", "Conv", "ConvTranspose", "MatMulInteger", "ConvInteger", "MatMulNBits"),
        *("FusedMatMul", "FusedConv", "FusedGemm", "Attention", "MultiHeadAttention", "QAttention"),
    }
)
"""Operators that multiply with a weight."""
_BINARY_OPERATORS: Mapping[str, tuple[str, ...]] = {
    "add": ("Add", "Sum"),
    "sub": ("Sub",),
    "mul": ("Mul",),
    "div": ("Div",),
    "matmul": ("MatMul",),
    "bmm": ("MatMul",),
    "cat": ("Concat",),
}
"""Operators that stand for a PyTorch call with two input values."""
_FAR = 400
"""Most nodes that one search visits."""
_FEW = 64
"""Most elements of a stored tensor that is compared with a sibling layer's."""
_SUMS = frozenset({"Add", "Sub", "Mul", "Div", "Sum", "Mean"})
"""Operators for which an attempt is better evidence."""
_SHORT = 2
"""Most operators that certainly were inserted; a longer list may be another way to compute something."""
_LONGEST = 4
"""Most operators that are listed by name."""


class Odd(Frozen):
    """Part of the file before a node that PyTorch does not have there."""

    call: Call
    """Call whose weights the node reads."""
    kind: str
    expected: str
    found: str
    is_sure: bool = False
    """Whether no further attempt is needed."""
    module: str = ""
    """Path of the module where it is, if not the call's."""
    witness: str = ""
    """Part of the file that is as expected; empty where only the other side is."""

    def describe(self, there: str) -> str:
        """Return the found and the expected part in words; `there` is the name of the other side."""
        return f"{self.found}, and {self.expected} in {self.witness or there}"


class Reader:
    """Graph of a file, indexed by the nodes that read PyTorch's weights.

    Args:
        edges: inputs, outputs and operator of each node.
        graph_inputs: names of the graph's inputs.
        outputs: names of the graph's outputs.
        nodes: nodes of the file, by the names of their outputs.
        tensors: stored tensors of the main graph, by name.
        stored_names: stored tensors of each parameter.
    """

    def __init__(
        self,
        edges: Sequence[Edge],
        graph_inputs: Collection[str],
        outputs: Collection[str],
        nodes: Mapping[str, Node],
        tensors: Mapping[str, StoredTensor],
        stored_names: Mapping[str, Sequence[str]],
    ) -> None:
        self._nodes, self._tensors = nodes, tensors
        live = {*outputs}
        for inputs, made, _ in reversed(edges):
            if live.intersection(made):
                live.update(inputs)
        self._edges = [edge for edge in edges if live.intersection(edge[1])]
        self._makers = {name: edge for edge in self._edges for name in edge[1]}
        self._input_dependent = {*graph_inputs}
        self._weights_of: dict[str, frozenset[str]] = {}
        for name, stored in stored_names.items():
            for each in stored:
                self._weights_of[each] = self._weights_of.get(each, frozenset()) | {name}
        for inputs, made, _ in self._edges:
            if self._input_dependent.intersection(inputs):
                self._input_dependent.update(made)
                continue
            weights = frozenset[str]().union(*(self._weights_of.get(each, frozenset()) for each in inputs))
            if weights:
                self._weights_of.update(dict.fromkeys(made, weights))

    def parameters_of(self, edge: Edge) -> frozenset[str]:
        """Return the names of PyTorch's weights that a node reads."""
        return frozenset[str]().union(*(self._weights_of.get(each, frozenset()) for each in edge[0]))

    def _repeated(self, names: Iterable[str]) -> list[str]:
        """Return the parameters that several nodes apply to values that depend on inputs."""
        reads = Counter(
            name
            for edge in self._edges
            if self._input_dependent.intersection(edge[0])
            for name in self.parameters_of(edge)
        )
        return [name for name in names if reads[name] > 1]

    def is_read(self, name: str) -> bool:
        """Whether an output depends on a parameter."""
        return any(name in self.parameters_of(edge) for edge in self._edges)

    def anchor(self, call: Call) -> Edge | None:
        """Return the node that reads a call's weights together with the call's input."""
        at = int(call.module.partition("#")[2] or 1) - 1
        is_table = call.operator == "embedding"
        for name in sorted(call.parameters, key=lambda each: not each.endswith("weight")):
            found = [
                edge
                for edge in self._edges
                if self._input_dependent.intersection(edge[0])
                and name in self.parameters_of(edge)
                and (edge[2] == "Gather") == is_table
            ]
            if any(edge[2] in PRODUCTS for edge in found):
                found = [edge for edge in found if edge[2] in PRODUCTS]
            if found:
                return found[min(at, len(found) - 1)] if at or len(found) == 1 else found[0]
        return None

    def is_replaced(self, call: Call, op_type: str, output: str) -> str:
        """Return the weight of a call that a product replaces by something else; empty where it does not."""
        anchor = self.anchor(call)
        is_product = op_type in PRODUCTS and (
            anchor is None or anchor[2] not in PRODUCTS or output in anchor[1]
        )
        return next((name for name in call.parameters if name.endswith("weight")), "") if is_product else ""

    def leads_to(self, name: str, call: Call) -> bool:
        """Whether a value leads to a node that reads a call's weight, without passing nodes that read other weights."""
        wanted = {each for each in call.parameters if each.endswith("weight")}
        reached = {name}
        for edge in self._edges:
            if reached.intersection(edge[0]):
                weights = self.parameters_of(edge)
                if weights & wanted:
                    return True
                if not weights:
                    reached.update(edge[1])
        return False

    def before(self, edge: Edge) -> list[str]:
        """Return the inputs of a node that depend on an input of the graph."""
        return [name for name in edge[0] if name in self._input_dependent]

    def between(
        self, call: Call, starts: Collection[int], right: Mapping[str, Collection[int]]
    ) -> Iterator[Edge]:
        """Yield the nodes from right values to those that read a call's weights, the nearest to these first.

        Args:
            call: the call.
            starts: the calls that make the right values before these nodes; other right values do not count.
            right: the file's values that equal results of calls, with the numbers of these calls.
        """
        ends = [
            edge
            for edge in self._edges
            if self._input_dependent.intersection(edge[0]) and self.parameters_of(edge) & {*call.parameters}
        ]
        waiting = [edge for edge in ends if self._follows(edge, starts, right)]
        done = set[int]()
        while waiting and len(done) < _FAR:
            edge = waiting.pop(0)
            if id(edge) in done:
                continue
            done.add(id(edge))
            yield edge
            waiting += [self._makers[name] for name in edge[0] if name in self._makers and name not in right]

    def _follows(self, edge: Edge, starts: Collection[int], right: Mapping[str, Collection[int]]) -> bool:
        """Whether a node is computed from results of the given calls; True too where no calls are given."""
        waiting, done = [*self.before(edge)], set[str]()
        while waiting and len(done) < _FAR:
            name = waiting.pop()
            if name in done:
                continue
            done.add(name)
            if not starts or {*starts}.intersection(right.get(name, ())):
                return True
            maker = self._makers.get(name)
            if maker is not None and name not in right:
                waiting += self.before(maker)
        return False

    def look_before(
        self,
        call: Call,
        expected: Collection[int],
        right: Mapping[str, Collection[int]],
        call_name: Callable[[int], str],
    ) -> Odd | None:
        """Return an oddity between a call's weights and the right values before it, where PyTorch has nothing.

        Args:
            call: the call.
            expected: the calls that make its inputs.
            right: the file's values that equal results of calls, with the numbers of these calls.
            call_name: function that returns the name of a call.
        """
        anchor = self.anchor(call)
        if anchor is None or not expected:
            return None
        extra: list[Edge] = []
        reads = set[int]()
        for name, maker in self._walk_back(anchor, right):
            if name in right:
                reads.update(right[name])
            elif maker is not None and maker[2] not in MOVES:
                extra.append(maker)
            if len(extra) > _FAR:
                return None
        if not reads:
            return None
        repeated = self._repeated(
            name for edge in reversed(extra) for name in sorted(self.parameters_of(edge))
        )
        if repeated:
            return _applied_twice(call, repeated)
        if extra:
            names = [edge[2] for edge in reversed(extra)]
            more = ", ..." if len(names) > _LONGEST else ""
            phrase = f"its input goes through {', '.join(names[:_LONGEST])}{more} first"
            return Odd(
                call,
                "operator",
                "its input is read directly",
                phrase,
                is_sure=bool(reads & {*expected}) and len(extra) <= _SHORT and not _SUMS.intersection(names),
            )
        return None if reads & {*expected} else _other(call, expected, reads, call_name)

    def way_to(self, call: Call, right: Mapping[str, Collection[int]]) -> tuple[set[int], list[str]]:
        """Return the calls of the right values before a call's weights, and the weights on the way, in graph order.

        Both are empty where the way is long.
        """
        anchor = self.anchor(call)
        way = [] if anchor is None else [*itertools.islice(self._walk_back(anchor, right), _FEW + 1)]
        if len(way) > _FEW:
            return set(), []
        reads = {number for name, _ in way for number in right.get(name, ())}
        makers = [maker for name, maker in way if name not in right and maker is not None]
        names = [name for maker in makers for name in sorted(self.parameters_of(maker))]
        return reads, [*dict.fromkeys(reversed(names))]

    def _walk_back(self, anchor: Edge, right: Collection[str]) -> Iterator[tuple[str, Edge | None]]:
        """Yield the inputs of an edge and all values before them, with their makers, back to right values."""
        waiting, done = [*self.before(anchor)], set[str]()
        while waiting:
            name = waiting.pop(0)
            if name in done:
                continue
            done.add(name)
            maker = self._makers.get(name)
            yield name, maker
            if name not in right and maker is not None:
                waiting += self.before(maker)

    def look_beside(
        self,
        call: Call,
        expected: Collection[int],
        right: Mapping[str, Collection[int]],
        call_name: Callable[[int], str],
    ) -> Odd | None:
        """Return an oddity in an operand of a sum or product of two values: another value is read in its place.

        It is found only if exactly one node computes this operation on an expected value and a value that is right
        elsewhere.

        Args:
            call: a call without weights.
            expected: the calls that make its inputs.
            right: the file's values that equal results of calls, with the numbers of these calls.
            call_name: function that returns the name of a call.
        """
        wanted, found = _BINARY_OPERATORS.get(call.operator, ()), list[set[int]]()
        for edge in self._edges:
            if edge[2] not in wanted or edge[1][0] in right:
                continue
            operands = [
                {*right[name]} for each in self.before(edge) if (name := self.past(each, right)) in right
            ]
            if len(operands) == len(edge[0]) and any(each & {*expected} for each in operands):
                found += [each for each in operands if not each & {*expected}]
        return _other(call, expected, found[0], call_name) if len(found) == 1 else None

    def past(self, name: str, right: Collection[str]) -> str:
        """Return the right value that a value is, apart from moves; the value itself where there is none."""
        at = name
        while at not in right:
            maker = self._makers.get(at)
            if maker is None or maker[2] not in MOVES or not maker[0]:
                return name
            at = maker[0][0]
        return at

    def look_between(
        self,
        call: Call,
        chain: Sequence[Call],
        starts: Collection[int],
        right: Mapping[str, Collection[int]],
    ) -> Odd | None:
        """Return the weights read again between right values and a call, though no call from there on has them."""
        own = {name for each in chain for name in each.parameters}
        edges = [*self.between(call, starts, right)]
        repeated = self._repeated(
            name for edge in reversed(edges) for name in sorted(self.parameters_of(edge) - own)
        )
        return _applied_twice(call, repeated) if repeated else None

    def look_behind(self, name: str, right: Collection[str]) -> tuple[list[str], str]:
        """Return the operators between right values and a value (none if many), and one of these right values."""
        extra, reached = list[str](), ""
        waiting, done = [name], set[str]()
        while waiting:
            each = waiting.pop(0)
            if each in right and each != name:
                reached = reached or each
                continue
            maker = self._makers.get(each)
            if each in done or maker is None:
                continue
            done.add(each)
            if maker[2] not in MOVES:
                extra.append(maker[2])
            waiting += self.before(maker)
        return (extra[::-1] if len(extra) <= _LONGEST else []), reached

    def without_reordered(
        self, right: dict[str, set[int]], reordered: Collection[str]
    ) -> dict[str, set[int]]:
        """Return the right values without reordered copies of others, unless a move makes the copy."""

        def is_reordered(name: str) -> bool:
            maker = self._makers.get(name)
            return (
                maker is not None
                and maker[2] not in MOVES
                and any(right[name] & right[each] for each in maker[0] if each in right)
            )

        return {
            name: calls for name, calls in right.items() if name not in reordered or not is_reordered(name)
        }

    def has_sibling(self, call: Call, paths: Collection[str]) -> bool:
        """Whether another layer has the same call, and the file has the node that reads its weights."""
        return any(self.anchor(sibling) is not None for _, _, sibling in self._siblings(call, paths))

    def beside_sibling(
        self, call: Call, paths: Collection[str], right: Mapping[str, Collection[str]]
    ) -> Odd | None:
        """Return an oddity before a call's weights, compared with the same call in another layer.

        Args:
            call: the call.
            paths: paths of all modules.
            right: the file's values that equal results of calls, with the names of these calls.
        """
        anchor = self.anchor(call)
        if anchor is None:
            return None
        for own, other, sibling in self._siblings(call, paths):
            twin = self.anchor(sibling)
            if twin is None or twin is anchor:
                continue
            pairs = list(zip(self.before(anchor), self.before(twin), strict=False))
            for found in _Descent(self, own, other, right).differences(pairs):
                return Odd(call, *found, witness=other.removesuffix("."))
        return None

    def _siblings(self, call: Call, paths: Collection[str]) -> Iterator[tuple[str, str, Call]]:
        """Yield the same call in layers of other numbers, the nearest first: own layer, other layer, and the call."""
        path = call.module.partition("#")[0]
        for match in reversed([*re.finditer(r"(?<=\.)\d+(?=\.|$)", path)]):
            at, head, tail = int(match[0]), path[: match.start()], path[match.end() :]
            for step in (-1, 1, -2, 2):
                other = f"{head}{at + step}"
                if at + step >= 0 and f"{other}{tail}" in paths:
                    own = f"{head}{at}"
                    names = tuple(
                        name.replace(f"{own}.", f"{other}.", 1) if name.startswith(f"{own}.") else name
                        for name in call.parameters
                    )
                    yield f"{own}.", f"{other}.", _SiblingCall(f"{other}{tail}", call, names)


def _other(
    call: Call, expected: Collection[int], reads: Collection[int], call_name: Callable[[int], str]
) -> Odd:
    return Odd(
        call,
        "input",
        f"the result of {call_name(max(expected))}",
        f"it reads the result of {call_name(min(reads))}",
    )


def _applied_twice(call: Call, names: Sequence[str]) -> Odd:
    modules = [*dict.fromkeys(name.rpartition(".")[0] for name in names)]
    parts = [module.split(".") for module in modules]
    shared = [step[0] for step in zip(*parts, strict=False) if len({*step}) == 1]
    common = ".".join(shared)
    within = [module.removeprefix(common).removeprefix(".") for module in modules]
    more = ", ..." if len(modules) > _LONGEST else ""
    phrase = f"{', '.join([*filter(None, within)][:_LONGEST])}{more}" or common or ", ".join(names[:_LONGEST])
    place = call.module.partition("#")[0]
    return Odd(call, "layer", "each once", f"{phrase} applied twice, before {place}", module=common)


class _SiblingCall(Frozen):
    """Call as it is in another layer."""

    module: str
    of: Call
    parameters: tuple[str, ...]
    numbers: tuple[float, ...] = ()

    @property
    def number(self) -> int:
        return self.of.number

    @property
    def class_name(self) -> str:
        return self.of.class_name

    @property
    def operator(self) -> str:
        return self.of.operator

    @property
    def ordinal(self) -> int:
        return self.of.ordinal

    @property
    def parents(self) -> tuple[int, ...]:
        return self.of.parents


class _Unlike(NamedTuple):
    """Difference between a layer and its sibling, in the order of the fields of `Odd`."""

    kind: str
    expected: str
    """The sibling's part in words."""
    found: str
    """This layer's part in words."""
    is_sure: bool = False
    """Whether no further attempt is needed."""


class _Descent(Mutable):
    """Two parallel searches back through one graph, down to weights."""

    reader: Reader
    own: str
    other: str
    right: Mapping[str, Collection[str]]

    def differences(self, pairs: list[tuple[str, str]]) -> Iterator[_Unlike]:
        """Yield the first difference found from the end."""
        waiting, done = pairs, set[tuple[str, str]]()
        while waiting and len(done) < _FAR:
            one, other = waiting.pop(0)
            if one == other or (one, other) in done:
                continue
            done.add((one, other))
            found = self._differ(one, other)
            if found is not None:
                yield found
                return
            a, b = self.reader._makers.get(one), self.reader._makers.get(other)
            if a is None or b is None or self._weights(a, self.own) or self._weights(b, self.other):
                continue
            if one in self.right:
                continue
            if len(a[0]) == len(b[0]) and self._is_crossed(a, b):
                yield _Unlike("input", f"{a[2]} of its inputs", f"{a[2]} with its inputs exchanged")
                return
            waiting += list(zip(a[0], b[0], strict=False))

    def _is_crossed(self, a: Edge, b: Edge) -> bool:
        """Whether two nodes have inputs of the same kinds, in another order."""
        mine, its = (
            [self._kind(name, self.own) for name in a[0]],
            [self._kind(name, self.other) for name in b[0]],
        )
        return mine != its and sorted(mine) == sorted(its)

    def _kind(self, name: str, layer: str) -> str:
        maker = self.reader._makers.get(name)
        return "" if maker is None else f"{maker[2]} {sorted(self._weights(maker, layer))}"

    def _differ(self, one: str, other: str) -> _Unlike | None:
        if one in self.right:
            return self._sources(one, other)
        a, b = self.reader._makers.get(one), self.reader._makers.get(other)
        if a is None or b is None:
            return self._constants(one, other) if a is b else None
        mine, its = self._weights(a, self.own), self._weights(b, self.other)
        if mine != its:
            if mine and its and not (mine & its):
                return _Unlike(
                    "input", f"the value made with {min(its)}", f"it reads the value made with {min(mine)}"
                )
            return None if mine and its else self._operators(a, b)
        if mine or its:
            return None
        if a[2] != b[2]:
            return self._operators(a, b)
        return self._attributes(a, b)

    def _sources(self, one: str, other: str) -> _Unlike | None:
        """Compare two right values: None if they are results of the same call of their layers."""
        mine = {name.removeprefix(self.own) if name.startswith(self.own) else "" for name in self.right[one]}
        its = {
            name.removeprefix(self.other) if name.startswith(self.other) else ""
            for name in self.right.get(other, ())
        }
        if not its or mine & its:
            return None
        return _Unlike(
            "input",
            f"the result of {min(self.right[other])}",
            f"it reads the result of {min(self.right[one])}",
        )

    def _weights(self, edge: Edge, layer: str) -> frozenset[str]:
        """Return the names, within the layer, of the weights that a node reads; one name for all weights outside it."""
        return frozenset(
            name.removeprefix(layer) if name.startswith(layer) else "weights outside the layer"
            for name in self.reader.parameters_of(edge)
        )

    def _operators(self, a: Edge, b: Edge) -> _Unlike | None:
        below = {
            self.reader._makers[name][2] for name in self.reader.before(a) if name in self.reader._makers
        }
        beneath = {
            self.reader._makers[name][2] for name in self.reader.before(b) if name in self.reader._makers
        }
        if b[2] in below:
            return _Unlike("operator", f"no {a[2]}", f"an extra {a[2]}", is_sure=True)
        if a[2] in beneath:
            return _Unlike("operator", b[2], f"no {b[2]}: it is left out")
        return _Unlike("operator", b[2], a[2])

    def _attributes(self, a: Edge, b: Edge) -> _Unlike | None:
        mine, its = self.reader._nodes.get(a[1][0]), self.reader._nodes.get(b[1][0])
        if mine is None or its is None or mine.op_type != its.op_type:
            return None
        ours, theirs = {**mine.integers, **mine.settings}, {**its.integers, **its.settings}
        for name in sorted({*ours, *theirs}):
            if ours.get(name) != theirs.get(name):
                return _Unlike("attribute", f"{name} {theirs.get(name)}", f"{a[2]} {name} {ours.get(name)}")
        return None

    def _constants(self, one: str, other: str) -> _Unlike | None:
        mine, its = self.reader._tensors.get(one), self.reader._tensors.get(other)
        if mine is None or its is None or max(mine.numel, its.numel) > _FEW:
            return None
        a, b = mine.payload.array(), its.payload.array()
        if (
            a is None
            or b is None
            or a.dtype.kind not in "fiub"
            or (a.shape == b.shape and np.array_equal(a, b))
        ):
            return None
        return _Unlike("constant", f"constant {_format_values(b)}", f"constant {_format_values(a)}")


def _format_values(value: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> str:
    flat = value.reshape(-1)
    text = ", ".join(f"{each:g}" for each in flat[:4].astype(np.float64).tolist())
    return text if flat.size <= 4 else f"{text}, ..."
