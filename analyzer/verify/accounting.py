"""Two graphs -> an account of every operator, without running: the outputs that both compute alike, and the others.

Each value gets an identifier, called its number, which says how the value is computed: by the operator, its attributes,
and the numbers of its inputs. A stored tensor is numbered by its content; a value computed from stored tensors alone is
numbered by its result. onnxruntime's fused operators are decomposed first. Equal numbers mean equal computations. A
value with another number is not judged, unless it is known to be another value; it never counts as the same.
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
from analyzer.reconciliation.books import is_near
from analyzer.records import Mutable, field
from analyzer.text import format_many
from analyzer.verify.record import Agreement, Difference, First, Pairing, Verdict, VerifyReport
from analyzer.verify.static import compare_nodes, small_tensors, without_defaults
from analyzer.verify.verify import local_path, name_node

_COMMUTE = frozenset({"Add", "Mul", "And", "Or", "Max", "Min", "Sum"})
_RANDOM = frozenset(
    {"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Bernoulli", "Multinomial"}
)
_IDENTITIES = frozenset({"Identity"})
_FILLS = "ConstantOfShape"
"""Operator whose attribute is a tensor: its fill value."""
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
"""Operators of which no two compute the same function of their inputs."""


class _Account(Mutable, dict=True):
    """Values of one graph, with their numbers."""

    ledger: Ledger
    numbers: dict[str, str] = field(default_factory=dict)
    made: dict[str, Node] = field(default_factory=dict)
    """Node that makes each number; also for the parts of a decomposed operator."""
    parts: set[str] = field(default_factory=set)
    """Numbers of the parts of decomposed operators."""
    _terms: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Number of a sum -> numbers of its terms."""
    _shape_owners: dict[str, str] = field(default_factory=dict)
    """Number of a shape -> number of the value that has this shape."""
    _sums: dict[str, str] = field(default_factory=dict)
    """Number of a normalization that adds a residual first -> number of that sum."""

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
        types = {value.name: value.dtype.name for value in self.graph.signature}
        for name in self.graph.inputs:
            if name not in stored:
                self.numbers[name] = f"input {types.get(name, '')} {name}"

    def number(self, name: str) -> str:
        """Return the number of a value that is stored, or made by a node that was read before."""
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
        """Return the content of a value that depends on stored tensors alone; None for any other value."""
        stored = self._stored.get(name)
        return self._evaluator.value((), name) if stored is None else stored.payload.array()

    def read(self, node: Node) -> str:
        """Number all outputs of a node, and return the number of the first."""
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
        self._number_sum(node, first)
        self.made.setdefault(first, node)
        return first

    def _compute(self, node: Node) -> str:
        inputs = [self.number(name) for name in node.inputs]
        if node.position in self._opaque or len(inputs) < _FEWEST.get(node.op_type, 0):
            return f"opaque {id(self)} {node.position}"
        if node.op_type in _IDENTITIES and node.domain in _PLAIN:
            return inputs[0]
        if node.op_type == "Gather" and inputs[0] in self._shape_owners:
            index = self.array(node.inputs[1])
            is_place = index is not None and index.shape == (1,) and index.dtype.kind in "iu"
            if index is not None and is_place and int(index[0]) >= 0:
                start = int(index[0])
                return self._size(self._shape_owners[inputs[0]], start, start + 1)
        if node.op_type == "Shape" and node.domain in _PLAIN:
            start, end = node.integers.get("start", 0), node.integers.get("end")
            transpose = self.made.get(inputs[0])
            perm = (
                transpose.axes("perm") if transpose is not None and transpose.op_type == "Transpose" else ()
            )
            if transpose is not None and transpose.inputs and perm and not start and end is None:
                whole = self._size(self.number(transpose.inputs[0]), 0, None)
                return self._number_of("Gather", "", [whole, _constant(np.array(perm, np.int64))], {})
            found = self._size(inputs[0], start, end)
            if not start and end is None:
                self._shape_owners[found] = inputs[0]
            return found
        if node.domain == "com.microsoft" and node.op_type in _SKIP:
            return self._decompose(node, inputs)
        settings: dict[str, object] = {**node.integers, **node.settings}
        if node.op_type == _FILLS and node.position in self._carried:
            fill = self._carried[node.position].payload.array()
            if fill is None:
                return f"opaque {id(self)} {node.position}"
            settings["value"] = _constant(fill)
        return self._number_of(node.op_type, node.domain, inputs, settings)

    def _size(self, value: str, start: int, end: int | None) -> str:
        """Return the number of a part of a value's shape."""
        settings = {"start": start, **({} if end is None else {"end": end})}
        return self._number_of("Shape", "", [value], settings)

    def _number_sum(self, node: Node, first: str) -> None:
        """Number the fourth output of SkipLayerNormalization: the sum that it normalizes."""
        if node.op_type == "SkipLayerNormalization" and len(node.outputs) > 3 and node.outputs[3]:
            self.numbers[node.outputs[3]] = self._sums.get(first, f"{first} 3")

    def _decompose(self, node: Node, inputs: Sequence[str]) -> str:
        """Decompose one of onnxruntime's fused operators into ONNX operators, and return the number of the result."""
        operands = [*inputs, "", "", "", ""]
        if node.op_type == "SkipLayerNormalization":
            added = self._part(node, "Add", [operands[0], operands[1]])
            if operands[4]:
                added = self._part(node, "Add", [added, operands[4]])
            settings = {"epsilon": node.settings.get("epsilon", 1e-12)}
            found = self._number_of(
                "LayerNormalization", "", _trim([added, operands[2], operands[3]]), settings
            )
            self._sums[found] = added
            return found
        value = operands[0]
        if node.op_type in ("BiasGelu", "FastGelu") and operands[1]:
            value = self._part(node, "Add", [value, operands[1]])
        if node.op_type == "QuickGelu":
            return self._number_of("QuickGelu", "com.microsoft", [value], {**node.settings})
        gelu_settings = {"approximate": "tanh"} if node.op_type == "FastGelu" else {}
        return self._number_of("Gelu", "", [value], gelu_settings)

    def _part(self, node: Node, op_type: str, inputs: Sequence[str]) -> str:
        found = self._number_of(op_type, "", inputs, {})
        self.parts.add(found)
        self.made.setdefault(found, node)
        return found

    def _number_of(
        self, op_type: str, domain: str, inputs: Sequence[str], settings: Mapping[str, object]
    ) -> str:
        kept = without_defaults(op_type, domain, settings)
        operands = list(inputs)
        if op_type == "Add":  # the terms of a sum, in whatever order they are added
            operands = [term for each in inputs for term in self._terms.get(each, (each,))]
        operands = sorted(operands) if op_type in _COMMUTE else operands
        plain = "" if domain in _PLAIN else domain
        # Another opset may have other defaults, or compute something else.
        version = self._opsets.get(plain or "ai.onnx")
        description = repr(
            (plain, version, op_type, operands, sorted(kept.items(), key=lambda item: item[0]))
        )
        found = f"made {hashlib.sha256(description.encode()).hexdigest()}"
        if op_type == "Add":
            self._terms[found] = tuple(operands)
        return found


_PLAIN = ("", "ai.onnx")
_FEWEST = {
    **dict.fromkeys((*_IDENTITIES, *_SKIP, "Shape"), 1),
    **dict.fromkeys(("Gather", "BiasGelu"), 2),
    "SkipLayerNormalization": 3,
}
"""Fewest inputs that an operator needs to compute anything that can be judged."""
_MASK = 1e4
"""Largest magnitude that conversion tools keep in half precision."""
_NEAR, _FAR = 1e-5, 0.1
"""Largest difference, relative to the largest element, of two constants that may be one: folded, or rounded."""
_UNJUDGED = "in another form"
"""Kind of operators that have a counterpart by name, if it is unknown whether both compute the same."""
_DEEPEST = 64
"""Most operators that are followed in a row."""


_SMALL = 1 << 20
"""Bytes of the largest stored tensor that is held in memory whole while it is numbered."""

_VAST = 1 << 34
"""Bytes of the largest stored tensor that is read; a larger one is identified by its file and offset, to save time."""


def _constant(array: Array) -> str:
    """Return the number of a constant."""
    content = f"{array.dtype.name} {array.shape}".encode() + array.tobytes()
    return f"constant {hashlib.sha256(content).hexdigest()}"


def _large_constant(tensor: StoredTensor) -> str | None:
    """Return the number of a constant that is read part by part; None for one that cannot be read."""
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
        raise UsageError(
            f"{theirs.model.path}: takes other inputs than the first file; name two files with the same inputs"
        )
    for node in there.graph.nodes:
        there.read(node)
    work = _Pairing(here, there)
    work.walk()
    outputs = tuple(work.outputs())
    first = next(iter(work.differences), None)
    is_different = any(each.agreement.verdict is Verdict.DIFFERS for each in outputs)
    return VerifyReport(
        path=str(ours.model.path),
        against=str(theirs.model.path),
        outputs=outputs,
        values=(),
        first=None
        if first is None or not is_different
        else First(
            first.module, first.node, f"{first.node}: {first.found}, and {first.expected} in the other file"
        ),
        checked=sum(work.counts.values()),
        differences=tuple(work.differences),
        inputs=(),
        uncovered=tuple(work.describe_uncovered()),
        stamp=stamp,
    )


def _readers(graph: Graph) -> dict[str, list[str]]:
    """Return the outputs of the nodes that read each value."""
    found: dict[str, list[str]] = {}
    for node in graph.nodes:
        for name in node.inputs:
            found.setdefault(name, []).extend(filter(None, node.outputs))
    return found


class _Pairing:
    """MODEL's graph, matched against the numbers of the other file."""

    def __init__(self, here: _Account, there: _Account) -> None:
        self.here, self.there = here, there
        self.counts: Counter[str] = Counter()
        self.differences: list[Difference] = []
        self.verdicts: dict[str, Verdict] = {}
        """Values of MODEL that differ or cannot be judged, with the verdict."""
        self.unjudged: list[str] = []
        self._small, self._small_there = small_tensors(here.graph), small_tensors(there.graph)
        self._by_name = {name: node for node in there.graph.nodes for name in node.outputs if name}
        self._found: set[str] = set()
        """Numbers of the other file that MODEL has too."""
        self._added: list[Node] = []
        """Nodes of MODEL without a counterpart in the other file."""
        self._plain: set[str] = set()
        """Numbers of the other file that one node of MODEL makes by itself."""
        self._paired_by_name: set[str] = set()
        """Values of the other file whose counterpart was found by name."""

    def walk(self) -> None:
        """Number every node of MODEL, and count how each corresponds to the other file."""
        for node in self.here.graph.nodes:
            if node.op_type == "Constant":
                continue
            number = self.here.read(node)
            before = [self.verdicts[name] for name in node.inputs if name in self.verdicts]
            verdict = Verdict.DIFFERS if Verdict.DIFFERS in before else next(iter(before), None)
            if number.startswith("constant "):
                self.counts["same"] += 1
            elif number in self.there.made:
                self._count_same(node, number)
            else:
                found = self._pair_by_name(node)
                verdict = verdict if verdict is Verdict.DIFFERS else found or verdict
            if verdict is not None:
                self.verdicts.update((name, verdict) for name in node.outputs if name)
        self._found.update(self.here.parts)
        self._account_for_added()
        self._account_for_others()

    def _account_for_added(self) -> None:
        """Count MODEL's unmatched nodes: parts of an operator that the other file has whole, or additions."""
        readers = _readers(self.here.graph)
        unresolved = {name for node in self._added for name in node.outputs if name}
        for node in reversed(self._added):
            outputs = [name for name in node.outputs if name]
            if all(readers.get(name) and not unresolved.intersection(readers[name]) for name in outputs):
                unresolved.difference_update(outputs)
                self.counts["decomposed"] += 1
            else:
                self.counts["added"] += 1
                self.unjudged.append(name_node(node))

    def _account_for_others(self) -> None:
        """Count the other file's nodes that MODEL lacks as they are: fused, folded, or missing."""
        readers = _readers(self.there.graph)
        done = {*self.there.graph.outputs}
        missing = []
        for node in reversed(self.there.graph.nodes):
            outputs = [name for name in node.outputs if name]
            number = self.there.numbers.get(outputs[0], "") if outputs else ""
            is_found = number in self._found or bool(self._paired_by_name.intersection(outputs))
            is_within = all(readers.get(name) and done.issuperset(readers[name]) for name in outputs)
            if node.op_type == "Constant" or is_found:
                done.update(outputs)
                self.counts["fused"] += number in self.here.parts and number not in self._plain
            elif number.startswith("constant "):
                done.update(outputs)
                self.counts["folded"] += outputs[0] not in self.here.numbers
            elif is_within:  # MODEL has the values computed from it
                done.update(outputs)
                self.counts["fused"] += 1
            elif node.op_type not in _IDENTITIES:
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
        is_moved = None not in scopes and not is_near(*map(str, scopes))
        self.counts["moved" if is_moved else "same"] += 1

    def _pair_by_name(self, node: Node) -> Verdict | None:
        """Pair a node with that of the same output name, record differences; return the verdict, None if unpaired."""
        name = next((each for each in node.outputs if each in self._by_name), None)
        other = None if name is None else self._by_name[name]
        if name is None or other is None or self.there.numbers[name] in self._found:
            self._added.append(node)
            return None  # its number is unknown there: the values computed from it decide
        self._paired_by_name.add(name)
        verdict = self._judge(node, other)
        if verdict is Verdict.NOT_COMPARED:
            self.counts[_UNJUDGED] += 1
            self.unjudged.append(name_node(node))
        else:
            self.counts["changed"] += 1
            self.differences += self._describe(node, other)
        for mine, theirs in zip(node.outputs, other.outputs, strict=False):
            if mine and theirs:
                self.here.numbers[mine] = self.there.numbers[theirs]
        return verdict

    def _describe(self, node: Node, other: Node) -> Iterator[Difference]:
        """Yield the differences of two nodes."""
        scopes = self.here.ledger.node_scopes, self.there.ledger.node_scopes
        module = scopes[0].get(node.place) or scopes[1].get(other.place)
        node_name = name_node(node)
        differences = [*compare_nodes(node, other, self._small, self._small_there)]
        for kind, parameter, expected, found in [
            each for each in differences if each[0] != "input"
        ] or differences:
            yield Difference(module, parameter, node_name, kind, expected, found)
        if not differences:
            other_inputs = [
                name
                for name, theirs in zip(node.inputs, other.inputs, strict=False)
                if self.here.number(name) != self.there.number(theirs)
            ]
            name = other_inputs[0] if other_inputs else node_name
            if self.here.array(name) is None:
                yield Difference(module, None, node_name, "input", name, f"{name} with another value")
            else:
                yield Difference(module, name, node_name, "weight", name, f"{name} with other values")

    @cached_property
    def _known(self) -> frozenset[str]:
        """Numbers of the other file, whose nodes are all read before MODEL's."""
        return frozenset(self.there.numbers.values())

    def _judge(self, node: Node, other: Node) -> Verdict:
        """Judge whether two nodes are known to give other values."""
        if (node.op_type, node.domain) != (other.op_type, other.domain):
            both = {node.op_type, other.op_type} <= _ACTIVE and len(node.inputs) == len(other.inputs)
            return Verdict.DIFFERS if both else Verdict.NOT_COMPARED
        if node.op_type in MOVES:  # other axes, ends and shapes may have the same result
            return Verdict.NOT_COMPARED
        pairs = list(zip(node.inputs, other.inputs, strict=False))
        other_inputs = [(a, b) for a, b in pairs if self.here.number(a) != self.there.number(b)]
        if not other_inputs:
            ours, theirs = ({**each.integers, **each.settings} for each in (node, other))
            both = any(repr(ours[key]) != repr(theirs[key]) for key in ours.keys() & theirs.keys())
            return Verdict.DIFFERS if both else Verdict.NOT_COMPARED
        return (
            Verdict.DIFFERS if all(self._is_other(*each) for each in other_inputs) else Verdict.NOT_COMPARED
        )

    def _is_other(self, mine: str, theirs: str) -> bool:
        """Whether two values with different numbers are known to differ, beyond rounding and detours."""
        a, b = self.here.array(mine), self.there.array(theirs)
        if a is not None and b is not None:
            if a.shape != b.shape or a.dtype.kind not in "fiub" or b.dtype.kind not in "fiub":
                return False
            one, two = a.astype(np.float64), b.astype(np.float64)
            if not self._is_exact:  # masks are clipped to the range of the narrower type
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
        ends = (number, self.there.number(theirs))
        return not any(self._leads(*way) for way in (ends, ends[::-1]))

    def _leads(self, start: str, end: str) -> bool:
        """Whether one value of the other file may equal another: nodes between move it or compute with a constant."""
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
        """Whether neither file holds rounded parameters."""
        types = {
            entry.tensor.dtype.name
            for account in (self.here, self.there)
            for entry in account.ledger.entries
            if entry.role is Role.PARAMETER
        }
        return types <= {"FLOAT", "DOUBLE"}

    def outputs(self) -> Iterator[Pairing]:
        """Yield each output, with its verdict."""
        here, there = self.here.graph.outputs, self.there.graph.outputs
        for at, name in enumerate(here):
            other = name if name in there else there[at] if at < len(there) else ""
            verdict = self.verdicts.get(name, Verdict.SAME)
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

    def describe_uncovered(self) -> Iterator[str]:
        """Yield the counts, which add up to all operators, and the names of the operators that are not judged."""
        kinds = ("same", "decomposed", "fused", "folded", "moved", "changed", "missing", "added", _UNJUDGED)
        summary = ", ".join(f"{self.counts[kind]:,} {kind}" for kind in kinds)
        yield f"nothing was run; operators: {summary}"
        if self.unjudged:
            names = ", ".join(self.unjudged[:_MOST])
            rest = f", and {len(self.unjudged) - _MOST:,} more" if len(self.unjudged) > _MOST else ""
            count = format_many(len(self.unjudged), "operator")
            yield f"no verdict on {count}, which the other file may compute in another form: {names}{rest}"


_MOST = 8
"""Most operators that are listed by name."""
