"""Two graphs -> an account of every operator, without running: which outputs are computed in one way, which are not.

Each value gets a number that says how it is computed: by the operator, its attributes, and the numbers of what it
reads; stored tensors by what they hold, what only they lead to by what it comes to. onnxruntime's fused operators are
taken apart first. Equal numbers are equal computations. What has other numbers, and is not known to be another value,
is not judged, and never the same.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np

from analyzer.account.ledger import Ledger, Role
from analyzer.errors import UsageError
from analyzer.model import Graph, Node, StoredTensor
from analyzer.model.content import Array
from analyzer.model.evaluation import Evaluator
from analyzer.model.operators import MOVES
from analyzer.model.wiring import NAMED
from analyzer.records import Mutable, field
from analyzer.text import format_many
from analyzer.verify.record import Agreement, Difference, First, Pairing, Verdict, VerifyReport
from analyzer.verify.static import compare_nodes, small_tensors, without_defaults
from analyzer.verify.verify import local_path, name_node

_COMMUTE = frozenset({"Add", "Mul", "And", "Or", "Max", "Min", "Sum"})
_RANDOM = frozenset(
    {"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli", "Multinomial"}
)
_HANDING = frozenset({"Identity"})
_FILLS = "ConstantOfShape"
"""An operator whose attribute is a tensor: what it fills with."""
_SKIP = frozenset({"SkipLayerNormalization", "BiasGelu", "FastGelu", "QuickGelu", "Gelu"})
_ACTIVE = frozenset(
    {
        *(
            "Relu",
            "Gelu",
            "Sigmoid",
            "Tanh",
            "Erf",
            "Elu",
            "Selu",
            "Softplus",
            "HardSwish",
            "Mish",
            "Exp",
            "Neg",
        ),
        *(
            "Abs",
            "Sqrt",
            "Sin",
            "Cos",
            "Celu",
            "Softsign",
            "LeakyRelu",
            "Add",
            "Sub",
            "Mul",
            "Div",
            "Max",
            "Min",
        ),
    }
)
"""Operators of which no two compute one function of what they read."""


class _Account(Mutable, dict=True):
    """The values of one graph by their numbers."""

    ledger: Ledger
    numbers: dict[str, str] = field(default_factory=dict)
    made: dict[str, Node] = field(default_factory=dict)
    """By number: the node that makes it; of an operator that was taken apart, for its parts too."""
    parts: set[str] = field(default_factory=set)
    """Numbers of the parts of operators that were taken apart."""
    _terms: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """By the number of a sum: those of its terms."""
    _measured: dict[str, str] = field(default_factory=dict)
    """By the number of a shape: what it is of."""
    _sums: dict[str, str] = field(default_factory=dict)
    """By the number of a norm that adds first: what it adds."""

    def __post_init__(self) -> None:
        self.graph: Graph = self.ledger.model.graphs[0]
        self._evaluator = Evaluator(self.ledger.model, self.ledger.wiring, by_default=True)
        self._stored = {tensor.name: tensor for tensor in self.graph.tensors if tensor.carrier in NAMED}
        bodies = {graph.parent for graph in self.ledger.model.graphs if graph.parent is not None}
        functions = {(each.domain, each.name) for each in self.ledger.model.functions}
        carried = {tensor.node: tensor for tensor in self.graph.tensors if tensor.node is not None}
        self._carried = carried
        stored = {tensor.name for tensor in self.graph.tensors}
        self._opaque = {
            node.position
            for node in self.graph.nodes
            if node.place in bodies
            or (node.domain, node.op_type) in functions
            or node.op_type in _RANDOM
            or (node.position in carried and node.op_type not in ("Constant", _FILLS))
        }
        self._opsets = dict(self.ledger.model.opsets)
        types = {given.name: given.dtype.name for given in self.graph.signature}
        for name in self.graph.inputs:
            if name not in stored:
                self.numbers[name] = f"input {types.get(name, '')} {name}"

    def number(self, name: str) -> str:
        """Of a value that is stored, or made."""
        if not name:
            return ""
        if name not in self.numbers:
            stored = self._stored.get(name)
            if stored is not None and stored.nbytes > _SMALL:
                number = _large_constant(stored)
            else:
                array = self.array(name)
                number = None if array is None else _constant(array)
            self.numbers[name] = number or f"unknown {id(self)} {name}"
        return self.numbers[name]

    def array(self, name: str) -> Array | None:
        """What a value comes to that only stored ones lead to; None of any other."""
        stored = self._stored.get(name)
        return self._evaluator.value((), name) if stored is None else stored.payload.array()

    def read(self, node: Node) -> str:
        """The number of a node's first output; all outputs get theirs."""
        if node.position not in self._opaque and all(
            self.number(name).startswith("constant ") or not name for name in node.inputs
        ):
            made = [self.number(name) for name in node.outputs if name]
            if all(each.startswith("constant ") for each in made):
                return made[0] if made else ""
            for name in node.outputs:
                self.numbers.pop(name, None)
        first = self._compute(node)
        for slot, name in enumerate(node.outputs):
            if name:
                self.numbers[name] = first if not slot else f"{first} {slot}"
        self._put_sum(node, first)
        self.made.setdefault(first, node)
        return first

    def _compute(self, node: Node) -> str:
        inputs = [self.number(name) for name in node.inputs]
        if node.position in self._opaque or len(inputs) < _FEWEST.get(node.op_type, 0):
            return f"opaque {id(self)} {node.position}"
        if node.op_type in _HANDING and node.domain in _PLAIN:
            return inputs[0]
        if node.op_type == "Gather" and inputs[0] in self._measured:
            index = self.array(node.inputs[1])
            is_place = index is not None and index.shape == (1,) and index.dtype.kind in "iu"
            if index is not None and is_place and int(index[0]) >= 0:
                start = int(index[0])
                return self._size(self._measured[inputs[0]], start, start + 1)
        if node.op_type == "Shape" and node.domain in _PLAIN:
            start, end = node.integers.get("start", 0), node.integers.get("end")
            turned = self.made.get(inputs[0])
            perm = turned.axes("perm") if turned is not None and turned.op_type == "Transpose" else ()
            if turned is not None and turned.inputs and perm and not start and end is None:
                whole = self._size(self.number(turned.inputs[0]), 0, None)
                return self._number_of("Gather", "", [whole, _constant(np.array(perm, np.int64))], {})
            found = self._size(inputs[0], start, end)
            if not start and end is None:
                self._measured[found] = inputs[0]
            return found
        if node.domain == "com.microsoft" and node.op_type in _SKIP:
            return self._take_apart(node, inputs)
        settings: dict[str, object] = {**node.integers, **node.settings}
        if node.op_type == _FILLS and node.position in self._carried:
            fill = self._carried[node.position].payload.array()
            if fill is None:
                return f"opaque {id(self)} {node.position}"
            settings["value"] = _constant(fill)
        return self._number_of(node.op_type, node.domain, inputs, settings)

    def _size(self, value: str, start: int, end: int | None) -> str:
        """Of a part of a value's shape."""
        settings = {"start": start, **({} if end is None else {"end": end})}
        return self._number_of("Shape", "", [value], settings)

    def _put_sum(self, node: Node, first: str) -> None:
        """The last output of a norm that adds first is what it adds."""
        if node.op_type == "SkipLayerNormalization" and len(node.outputs) > 3 and node.outputs[3]:
            self.numbers[node.outputs[3]] = self._sums.get(first, f"{first} 3")

    def _take_apart(self, node: Node, inputs: Sequence[str]) -> str:
        """One of onnxruntime's operators as those of ONNX that it stands for."""
        given = [*inputs, "", "", "", ""]
        if node.op_type == "SkipLayerNormalization":
            added = self._part(node, "Add", [given[0], given[1]])
            if given[4]:
                added = self._part(node, "Add", [added, given[4]])
            settings = {"epsilon": node.settings.get("epsilon", 1e-12)}
            found = self._number_of("LayerNormalization", "", _trim([added, given[2], given[3]]), settings)
            self._sums[found] = added
            return found
        value = given[0]
        if node.op_type in ("BiasGelu", "FastGelu") and given[1]:
            value = self._part(node, "Add", [value, given[1]])
        if node.op_type == "QuickGelu":
            return self._number_of("QuickGelu", "com.microsoft", [value], {**node.settings})
        told = {"approximate": "tanh"} if node.op_type == "FastGelu" else {}
        return self._number_of("Gelu", "", [value], told)

    def _part(self, node: Node, op_type: str, inputs: Sequence[str]) -> str:
        found = self._number_of(op_type, "", inputs, {})
        self.parts.add(found)
        self.made.setdefault(found, node)
        return found

    def _number_of(
        self, op_type: str, domain: str, inputs: Sequence[str], settings: Mapping[str, object]
    ) -> str:
        kept = without_defaults(op_type, domain, settings)
        given = list(inputs)
        if op_type == "Add":  # terms of a sum, in whatever order they are added
            given = [term for each in inputs for term in self._terms.get(each, (each,))]
        given = sorted(given) if op_type in _COMMUTE else given
        plain = "" if domain in _PLAIN else domain
        version = self._opsets.get(
            plain or "ai.onnx"
        )  # by which defaults, and what is computed, may be others
        held = repr((plain, version, op_type, given, sorted(kept.items(), key=lambda item: item[0])))
        found = f"made {hashlib.sha256(held.encode()).hexdigest()}"
        if op_type == "Add":
            self._terms[found] = tuple(given)
        return found


_PLAIN = ("", "ai.onnx")
_FEWEST = {
    **dict.fromkeys((*_HANDING, *_SKIP, "Shape"), 1),
    **dict.fromkeys(("Gather", "BiasGelu"), 2),
    "SkipLayerNormalization": 3,
}
"""Inputs without which an operator computes nothing that could be judged."""
_MASK = 1e4
"""The largest number that tools leave in half precision."""
_NEAR, _FAR = 1e-5, 0.1
"""Of the largest number: what two constants may be apart by, and be one that was folded, or rounded."""
_UNJUDGED = "in another form"
"""Operators that have a counterpart by name, and nobody knows whether they compute the same."""
_DEEPEST = 64
"""Operators after one another that are followed."""


_SMALL = 1 << 20
"""Bytes of a stored tensor up to which it is in memory whole while it is looked at."""

_VAST = 1 << 34
"""Bytes of a stored tensor beyond which it is known by where it stands: nobody waits until it is read."""


def _constant(array: Array) -> str:
    """The number of what is known."""
    held = f"{array.dtype.name} {array.shape}".encode() + array.tobytes()
    return f"constant {hashlib.sha256(held).hexdigest()}"


def _large_constant(tensor: StoredTensor) -> str | None:
    """The same of a tensor that is read part by part; None of what cannot be read."""
    if tensor.nbytes > _VAST:
        where = tensor.extent
        if where is None:
            return None
        file = os.path.realpath(where.file)
        return f"unknown {tensor.dtype.name} {tensor.shape} at {where.offset} of {file}"
    hasher, read = hashlib.sha256(), 0
    for part in tensor.payload.parts():
        if not read:
            hasher.update(f"{part.dtype.name} {tensor.shape}".encode())
        read += part.size
        hasher.update(part.tobytes())
    return f"constant {hasher.hexdigest()}" if read == tensor.numel else None


def _trim(inputs: list[str]) -> list[str]:
    while inputs and not inputs[-1]:
        inputs.pop()
    return inputs


def account_files(ours: Ledger, theirs: Ledger, stamp: str | None = None) -> VerifyReport:
    """Account for every operator of two files, without running them.

    Raises:
        UsageError: one of them is not one local file.
    """
    for each in (ours, theirs):
        local_path(each)
    here, there = _Account(ours), _Account(theirs)
    if {*here.graph.inputs} != {*there.graph.inputs}:
        raise UsageError(f"{theirs.model.path}: takes other inputs than the first file")
    for node in there.graph.nodes:
        there.read(node)
    work = _Pairing(here, there)
    work.walk()
    outputs = tuple(work.outputs())
    first = next(iter(work.differences), None)
    is_apart = any(each.agreement.verdict is Verdict.DIFFERS for each in outputs)
    return VerifyReport(
        path=str(ours.model.path),
        against=str(theirs.model.path),
        outputs=outputs,
        values=(),
        first=None
        if first is None or not is_apart
        else First(
            first.module, first.node, f"{first.node}: {first.found}, and {first.expected} in the other file"
        ),
        checked=sum(work.counts.values()),
        differences=tuple(work.differences),
        inputs=(),
        uncovered=tuple(work.tell()),
        stamp=stamp,
    )


def _is_near(one: str, other: str) -> bool:
    """Whether a subgraph is another, or holds it, or is held by it."""
    return one == other or one.startswith(f"{other}.") or other.startswith(f"{one}.") or not one or not other


def _readers(graph: Graph) -> dict[str, list[str]]:
    """What is made of each value."""
    found: dict[str, list[str]] = {}
    for node in graph.nodes:
        for name in node.inputs:
            found.setdefault(name, []).extend(filter(None, node.outputs))
    return found


class _Pairing:
    """MODEL's graph, read against the numbers of the other."""

    def __init__(self, here: _Account, there: _Account) -> None:
        self.here, self.there = here, there
        self.counts: Counter[str] = Counter()
        self.differences: list[Difference] = []
        self.spoiled: dict[str, Verdict] = {}
        """Values of MODEL that are other values, or of which nobody knows."""
        self.unjudged: list[str] = []
        self._small, self._small_there = small_tensors(here.graph), small_tensors(there.graph)
        self._by_name = {name: node for node in there.graph.nodes for name in node.outputs if name}
        self._found: set[str] = set()
        """Numbers of the other file that MODEL has."""
        self._added: list[Node] = []
        """Nodes of MODEL that the other file has none of."""
        self._plain: set[str] = set()
        """Of them, those that a node of MODEL makes by itself."""
        self._named: set[str] = set()
        """Values of the other file whose counterpart was told by name."""

    def walk(self) -> None:
        """Read every node of MODEL."""
        for node in self.here.graph.nodes:
            if node.op_type == "Constant":
                continue
            number = self.here.read(node)
            before = [self.spoiled[name] for name in node.inputs if name in self.spoiled]
            verdict = Verdict.DIFFERS if Verdict.DIFFERS in before else next(iter(before), None)
            if number.startswith("constant "):
                self.counts["same"] += 1
            elif number in self.there.made:
                self._count_same(node, number)
            else:
                found = self._pair_by_name(node)
                verdict = verdict if verdict is Verdict.DIFFERS else found or verdict
            if verdict is not None:
                self.spoiled.update((name, verdict) for name in node.outputs if name)
        self._found.update(self.here.parts)
        self._account_for_added()
        self._account_for_others()

    def _account_for_added(self) -> None:
        """Say which of MODEL's own nodes are parts of what the other file has."""
        readers = _readers(self.here.graph)
        open_ones = {name for node in self._added for name in node.outputs if name}
        for node in reversed(self._added):
            outputs = [name for name in node.outputs if name]
            if all(readers.get(name) and not open_ones.intersection(readers[name]) for name in outputs):
                open_ones.difference_update(outputs)
                self.counts["decomposed"] += 1
            else:
                self.counts["added"] += 1
                self.unjudged.append(name_node(node))

    def _account_for_others(self) -> None:
        """Say what became of the other file's nodes that MODEL has not as they are."""
        readers = _readers(self.there.graph)
        done = {*self.there.graph.outputs}
        missing = []
        for node in reversed(self.there.graph.nodes):
            outputs = [name for name in node.outputs if name]
            number = self.there.numbers.get(outputs[0], "") if outputs else ""
            is_found = number in self._found or bool(self._named.intersection(outputs))
            is_within = all(readers.get(name) and done.issuperset(readers[name]) for name in outputs)
            if node.op_type == "Constant" or is_found:
                done.update(outputs)
                self.counts["fused"] += number in self.here.parts and number not in self._plain
            elif number.startswith("constant "):
                done.update(outputs)
                self.counts["folded"] += outputs[0] not in self.here.numbers
            elif is_within:  # what is computed of it is there
                done.update(outputs)
                self.counts["fused"] += 1
            elif node.op_type not in _HANDING:
                missing.append(name_node(node))
        self.counts["missing"] = len(missing)
        self.unjudged += reversed(missing)

    def _count_same(self, node: Node, number: str) -> None:
        self._found.add(number)
        self._plain.add(number)
        if number in self.there.parts:
            self.counts["decomposed"] += 1
            return
        other = self.there.made.get(number)
        scopes = (
            self.here.ledger.node_scopes.get(node.place),
            None if other is None else self.there.ledger.node_scopes.get(other.place),
        )
        is_moved = None not in scopes and not _is_near(*map(str, scopes))
        self.counts["moved" if is_moved else "same"] += 1

    def _pair_by_name(self, node: Node) -> Verdict | None:
        """Take the node of the same output for its counterpart: what they differ in, and whether values do."""
        name = next((each for each in node.outputs if each in self._by_name), None)
        other = None if name is None else self._by_name[name]
        if name is None or other is None or self.there.numbers[name] in self._found:
            self._added.append(node)
            return None  # its number is known nowhere there: what is made of it tells
        self._named.add(name)
        verdict = self._judge(node, other)
        if verdict is Verdict.NOT_COMPARED:
            self.counts[_UNJUDGED] += 1
            self.unjudged.append(name_node(node))
        else:
            self.counts["changed"] += 1
            self.differences += self._describe(node, other)
        for mine, yours in zip(node.outputs, other.outputs, strict=False):
            if mine and yours:
                self.here.numbers[mine] = self.there.numbers[yours]
        return verdict

    def _describe(self, node: Node, other: Node) -> Iterator[Difference]:
        """What two nodes differ in."""
        scopes = self.here.ledger.node_scopes, self.there.ledger.node_scopes
        module = scopes[0].get(node.place) or scopes[1].get(other.place)
        said = name_node(node)
        told = [*compare_nodes(node, other, self._small, self._small_there)]
        for kind, parameter, expected, found in [each for each in told if each[0] != "input"] or told:
            yield Difference(module, parameter, said, kind, expected, found)
        if not told:
            off = [
                name
                for name, theirs in zip(node.inputs, other.inputs, strict=False)
                if self.here.number(name) != self.there.number(theirs)
            ]
            name = off[0] if off else said
            if self.here.array(name) is None:
                yield Difference(
                    module, None, said, "input", f"{name} as it is there", f"{name} is another value"
                )
            else:
                held = "its values in the file are others"
                yield Difference(module, name, said, "weight", f"{name} as it is there", held)

    @cached_property
    def _known(self) -> frozenset[str]:
        """Numbers of the other file, all of which are read before MODEL's."""
        return frozenset(self.there.numbers.values())

    def _judge(self, node: Node, other: Node) -> Verdict:
        """Whether two nodes are known to give other values."""
        if (node.op_type, node.domain) != (other.op_type, other.domain):
            both = {node.op_type, other.op_type} <= _ACTIVE and len(node.inputs) == len(other.inputs)
            return Verdict.DIFFERS if both else Verdict.NOT_COMPARED
        if node.op_type in MOVES:  # axes, ends and shapes of other steps to the same
            return Verdict.NOT_COMPARED
        pairs = list(zip(node.inputs, other.inputs, strict=False))
        off = [(a, b) for a, b in pairs if self.here.number(a) != self.there.number(b)]
        if not off:
            ours, theirs = ({**each.integers, **each.settings} for each in (node, other))
            both = any(repr(ours[key]) != repr(theirs[key]) for key in ours.keys() & theirs.keys())
            return Verdict.DIFFERS if both else Verdict.NOT_COMPARED
        return Verdict.DIFFERS if all(self._is_other(*each) for each in off) else Verdict.NOT_COMPARED

    def _is_other(self, mine: str, yours: str) -> bool:
        """Whether two values of other numbers are known to be other values: no rounding, and no detour to the same."""
        a, b = self.here.array(mine), self.there.array(yours)
        if a is not None and b is not None:
            if a.shape != b.shape or a.dtype.kind not in "fiub" or b.dtype.kind not in "fiub":
                return False
            one, two = a.astype(np.float64), b.astype(np.float64)
            if not self._is_exact:  # masks are what the narrower type has room for
                one, two = (np.clip(each, -_MASK, _MASK) for each in (one, two))
            size = float(np.abs(two).max(initial=0.0))
            with np.errstate(invalid="ignore"):
                return bool(
                    float(np.abs(one - two).max(initial=0.0)) > (_NEAR if self._is_exact else _FAR) * size
                )
        if a is not None or b is not None:
            return False
        number = self.here.number(mine)
        if number not in self._known:
            return False
        ends = (number, self.there.number(yours))
        return not any(self._leads(*way) for way in (ends, ends[::-1]))

    def _leads(self, start: str, end: str) -> bool:
        """Whether one value of the other file may be another as it is: all between moves it, or has a constant."""
        number = end
        for _ in range(_DEEPEST):
            if number == start:
                return True
            node = self.there.made.get(number)
            if node is None:
                return False
            if node.op_type in MOVES and node.inputs and node.op_type not in ("Concat", "Where"):
                number = self.there.number(node.inputs[0])
                continue
            running = [name for name in node.inputs if name and self.there.array(name) is None]
            if len(running) != 1 or node.op_type not in (*_ACTIVE, *MOVES) or len(node.inputs) < 2:
                return node.op_type in MOVES
            number = self.there.number(running[0])
        return True

    @property
    def _is_exact(self) -> bool:
        """Whether neither file holds what is rounded."""
        types = {
            entry.tensor.dtype.name
            for account in (self.here, self.there)
            for entry in account.ledger.entries
            if entry.role is Role.PARAMETER
        }
        return types <= {"FLOAT", "DOUBLE"}

    def outputs(self) -> Iterator[Pairing]:
        """What is known of each output."""
        here, there = self.here.graph.outputs, self.there.graph.outputs
        for at, name in enumerate(here):
            other = name if name in there else there[at] if at < len(there) else ""
            verdict = self.spoiled.get(name, Verdict.SAME)
            if not other or self.here.number(name) != self.there.number(other):
                verdict = Verdict.DIFFERS if verdict is Verdict.DIFFERS else Verdict.NOT_COMPARED
            node = next((node for node in self.here.graph.nodes if name in node.outputs), None)
            agreement = Agreement(None, None, None, verdict)
            if node is None:
                yield Pairing(name, other, "", "", None, agreement)
            else:
                scope = self.here.ledger.node_scopes.get(node.place)
                yield Pairing(name, other, name_node(node), node.op_type, scope, agreement)
        for name in there[len(here) :]:
            yield Pairing("", name, "", "", None, Agreement(None, None, None, Verdict.NOT_COMPARED))

    def tell(self) -> Iterator[str]:
        """The account, to zero, and what is not judged, by name."""
        kinds = ("same", "decomposed", "fused", "folded", "moved", "changed", "missing", "added", _UNJUDGED)
        told = ", ".join(f"{self.counts[kind]:,} {kind}" for kind in kinds)
        yield f"nothing was run; operators: {told}"
        if self.unjudged:
            names = ", ".join(self.unjudged[:_MOST])
            rest = f", and {len(self.unjudged) - _MOST:,} more" if len(self.unjudged) > _MOST else ""
            many = format_many(len(self.unjudged), "operator")
            yield f"nobody knows whether the other file has {many} in its own way: {names}{rest}"


_MOST = 8
"""Operators that are told by name."""
