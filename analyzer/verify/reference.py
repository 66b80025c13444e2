"""Another file -> the side that MODEL is compared with: its values node by node, also with other numbers in it.

A node counts as a call, and a scope as a module. Replacements of a node are tried as for a call of PyTorch
(`exporter/alternatives.py`), in a model of that node alone, with the node's input values.
"""

from __future__ import annotations

import copy
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

import numpy as np
from safetensors.numpy import load_file

from analyzer.account.ledger import Ledger
from analyzer.errors import ExportError, TimingError, UsageError
from analyzer.model import Graph, Node
from analyzer.model import Setting as Kept
from analyzer.model.content import Array
from analyzer.model.dtypes import is_one_in_half
from analyzer.model.operators import MOVES
from analyzer.records import Frozen, field
from analyzer.timing.inputs.arrays import make_array
from analyzer.timing.inputs.feeds import plan_feeds
from analyzer.timing.inputs.sizes import Shapes
from analyzer.timing.request import Feed, Fill
from analyzer.verify.messages import BEFORE, PLAIN, Patch, PatchNode, ReplacedTensor, Setting
from analyzer.verify.prints import Print
from analyzer.verify.running import Runner, Subject
from analyzer.verify.side import Attempt, Value

Edges = Sequence[tuple[Sequence[str], Sequence[str], str]]
"""Inputs, outputs and operator of each node that runs."""

_KINDS = {"small": (2, 7), "single": (1, 1)}
"""Batch and length of the runs after the first."""
_SHAKEN = 2.0**-23
"""Relative amount by which a number is moved: a unit in its last place, the error of sums in another order."""
_MOST_SECONDS = 25.0
"""Seconds for all attempts."""
_MOST_COVERING = 4
"""Most runs for unseen rows of tables."""
_PADDED = 0.25
"""Share of a row of a mask that is padding."""
_PAST = MOVES | {"DequantizeLinear", "Cast"}
"""Operators between a stored tensor and the operator that computes with it."""
_PASSING = frozenset({"Cast", "Reshape", "Unsqueeze", "Squeeze", "Identity", "Flatten"})


class NodeCall(Frozen):
    """Node, as a call."""

    number: int
    module: str
    class_name: str
    operator: str
    ordinal: int
    parents: tuple[int, ...]
    parameters: tuple[str, ...]
    outputs: tuple[str, ...]
    inputs: tuple[str, ...]
    node: str
    """Name of the node."""
    numbers: tuple[float, ...] = ()
    """Numbers among its arguments: none, as a file stores them."""


class Subgraph(Frozen):
    """Nodes of a scope, as the call of a module."""

    module: str
    class_name: str
    first: int
    last: int
    made: int | None
    argument_calls: tuple[int, ...]
    numel: int = 0
    settings: Mapping[str, object] = field(default_factory=dict)


class NodeRecording(Frozen):
    """Recording of one run."""

    modules: tuple[Subgraph, ...]
    outputs: tuple[tuple[str, Array], ...] = ()
    made: tuple[int, ...] = ()


class Slot(Frozen):
    """Stored tensor, or one node's reading of it: `FileSide.load` gives it other numbers."""

    name: str
    reader: str = ""

    @property
    def label(self) -> str:
        """Key of the slot in a state file."""
        return f"{self.name}{_AT}{self.reader}" if self.reader else self.name

    @classmethod
    def of(cls, label: str) -> Slot:
        """Return the slot of a label."""
        name, _, reader = label.partition(_AT)
        return cls(name, reader)


_AT = "@reader:"


class FileSide:
    """Another file, as a side.

    Args:
        ledger: ledger of the file.
        runner: runner for its runs.
        own: the file as it stands.
        subject: the file that runs: this one, or its float twin.
        edges: inputs, outputs and operator of each node that runs.
        shapes: sizes that the user asked for.
        npz: file of inputs; None where they are made.
    """

    def __init__(
        self,
        ledger: Ledger,
        runner: Runner,
        own: Subject,
        subject: Subject,
        edges: Edges,
        shapes: Shapes | None = None,
        npz: Path | None = None,
    ) -> None:
        self._ledger, self._runner, self.own, self._base = ledger, runner, own, subject
        self.graph: Graph = ledger.model.graphs[0]
        self._shapes, self._npz = shapes or Shapes(), npz
        self._state: dict[ReplacedTensor, Array] = {}
        self.carrier = ""
        self.execution = PLAIN
        self.perturbation = _SHAKEN
        self._half = ""
        self._rewritten: dict[bool, Subject] = {}
        self._stored = {tensor.name for tensor in self.graph.tensors}
        self._feeds: dict[str, tuple[Feed, ...]] = {"example": plan_feeds(ledger, shapes, npz=npz)[0].feeds}
        self._plan_kinds()
        self.calls = tuple(_calls(ledger, edges, self._stored))
        self._nodes = {name: node for node in self.graph.nodes for name in node.outputs if name}
        self._variances = {
            node.inputs[4]: float(epsilon)
            for node in self.graph.nodes
            if node.op_type == "BatchNormalization" and len(node.inputs) > 4
            if isinstance(epsilon := node.settings.get("epsilon", 1e-5), float)
        }
        self._tables = dict(_find_lookups(self.graph))
        self._reached: dict[str, set[int]] = {}
        self._seconds_spent = 0.0

    def _plan_kinds(self) -> None:
        """Plan runs with other sizes, as far as the file's axes may vary and the user has not fixed them."""
        is_free = any(not isinstance(dim, int) for value in self.graph.signature for dim in value.dims or ())
        if self._npz is not None or self._shapes.sizes or self._shapes.sweep or not is_free:
            return
        for kind, (batch, length) in _KINDS.items():
            for sizes in (
                (("batch", batch), ("sequence", length)),
                (("batch", batch),),
                (("sequence", length),),
            ):
                try:
                    feeds = plan_feeds(self._ledger, Shapes(sizes))[0].feeds
                except UsageError:
                    continue
                if all(feeds != known for known in self._feeds.values()):
                    self._feeds[kind] = feeds
                    break

    # Inputs

    def feeds(self, seed: int, kind: str = "example") -> dict[str, Array]:
        """Return values for the inputs, by name; masks have padding for all seeds but the first."""
        kind = kind if kind in self._feeds else "example"
        npz = None if self._npz is None else str(self._npz)
        found = {feed.name: make_array(feed, seed, npz) for feed in self._feeds[kind]}
        for feed in self._feeds[kind] if seed else ():
            if feed.name in self._masks and feed.shape[1] > 1:
                found[feed.name] = found[feed.name].copy()
                found[feed.name][-1, -max(1, int(feed.shape[1] * _PADDED)) :] = 0
        return found

    @property
    def _masks(self) -> frozenset[str]:
        """Names of the inputs that tell which tokens are padding."""
        return frozenset(
            feed.name
            for feed in self._feeds["example"]
            if feed.fill is Fill.CONSTANT
            and feed.low == 1
            and len(feed.shape) == 2
            and "mask" in feed.name.lower()
        )

    def has_padding(self, feeds: Mapping[str, Array]) -> bool:
        """Whether some of the tokens are padding."""
        return any(not feeds[name].all() for name in self._masks if name in feeds)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of runs with other sizes."""
        return tuple(kind for kind in self._feeds if kind != "example")

    @property
    def is_given(self) -> bool:
        """Whether all inputs are read from a file, so that they are the same for every seed."""
        return all(feed.fill is Fill.FILE for feed in self._feeds["example"])

    def make_covering_inputs(self, at: int) -> dict[str, Array] | None:
        """Return inputs that look up rows which no run has reached."""
        if at >= _MOST_COVERING or self._npz is not None:
            return None
        found, is_new = self.feeds(0), False
        for name, (table, rows) in self._tables.items():
            missing = sorted({*range(rows)} - self._reached.get(table, set()))
            if missing and name in found:
                found[name] = np.resize(missing[: found[name].size], found[name].shape).astype(
                    found[name].dtype
                )
                is_new = True
        return found if is_new else None

    def rows(self) -> list[tuple[str, int, int]]:
        """Return the tables whose rows an input names: name, number of rows, number of rows reached."""
        tables = dict(self._tables.values())
        return [(table, rows, len(self._reached.get(table, ()))) for table, rows in tables.items()]

    def _reach(self, feeds: Mapping[str, Array]) -> None:
        for name, (table, rows) in self._tables.items():
            if name in feeds:
                ids = np.unique(feeds[name]).astype(np.int64)
                self._reached.setdefault(table, set()).update((ids % rows).tolist())

    # Runs

    def run(self, feeds: Mapping[str, Array], precision: str = "single") -> list[tuple[str, Array]]:
        """Return the outputs; in another precision, with every number moved by a unit in its last place.

        Raises:
            ExportError: the file does not run.
        """
        try:
            subject = self._subject(precision)
            found = self._runner.run(subject, self.graph.outputs, feeds, execution=self.execution)
        except TimingError as error:
            raise ExportError(str(error)) from error
        if precision == "single":
            self._reach(feeds)
        return [(name, found[name]) for name in self.graph.outputs if name in found]

    def run_as_stored(self, feeds: Mapping[str, Array]) -> list[tuple[str, Array]]:
        """Return the outputs of the file as it stands.

        Raises:
            TimingError: the file does not run.
        """
        found = self._runner.run(self.own, self.graph.outputs, feeds)
        return [(name, found[name]) for name in self.graph.outputs if name in found]

    def record(
        self,
        feeds: Mapping[str, Array],
        report: Callable[[NodeCall, Sequence[Value]], None],
        precision: str = "single",
        attempt: Attempt | None = None,
        until: int | None = None,
    ) -> NodeRecording:
        """Run the file, and report the prints of each node's values.

        Raises:
            ExportError: the file does not run, or attempts have taken too long.
        """
        judged = None if attempt is None else set(attempt.judged)
        calls = [
            call
            for call in self.calls
            if (until is None or call.number <= until) and (judged is None or call.number in judged)
        ]
        patch = None
        if attempt is not None:
            if self._seconds_spent > _MOST_SECONDS:
                raise ExportError("no time is left for attempts")
            patch = [*self._alternatives(attempt.place, attempt.numbers)][attempt.index][1]
        names = [name for call in calls for name in call.outputs if name]
        start = time.monotonic()
        try:
            prints = self._runner.prints(self._subject(precision), names, feeds, patch=patch)
        except TimingError as error:
            raise ExportError(str(error)) from error
        if attempt is not None:
            self._seconds_spent += time.monotonic() - start
        empty = Print(0, (), False, 0, 0.0, 0.0, 0.0, 0.0, (), ())
        for call in calls:
            report(call, [prints.get(name, empty) for name in call.outputs if name])
        return NodeRecording(() if attempt is not None else tuple(subgraphs_of(self.calls)))

    def value(self, feeds: Mapping[str, Array], number: int) -> Array | None:
        """Return the first float tensor that a node makes, whole.

        Raises:
            ExportError: the file does not run.
        """
        names = [name for name in self.calls[number].outputs if name]
        try:
            found = self._runner.run(self._subject("single"), names, feeds)
        except TimingError as error:
            raise ExportError(str(error)) from error
        return next((each for each in found.values() if each.dtype.kind == "f"), None)

    def alternatives(
        self,
        feeds: Mapping[str, Array],
        place: int | str,
        numbers: Sequence[float],
        report: Callable[[int, tuple[str, str, str], Value | None], None],
    ) -> None:
        """Report each alternative for a node or a subgraph, with the print of its value.

        Raises:
            ExportError: the file does not run, or attempts have taken too long.
        """
        found = [*self._alternatives(place, numbers)]
        if not found:
            return
        if self._seconds_spent > _MOST_SECONDS:
            raise ExportError("no time is left for attempts")
        start = time.monotonic()
        try:
            made = self._runner.attempt(self._subject("single"), [patch for _, patch in found], feeds)
        except TimingError as error:
            raise ExportError(str(error)) from error
        self._seconds_spent += time.monotonic() - start
        for index, ((description, _), value) in enumerate(zip(found, made, strict=True)):
            report(index, description, value)

    def _alternatives(
        self, place: int | str, numbers: Sequence[float]
    ) -> Iterator[tuple[tuple[str, str, str], Patch]]:
        if isinstance(place, int):
            yield from node_alternatives(self.calls[place], self._nodes, self.graph, numbers, self.carrier)
            return
        module = next((each for each in subgraphs_of(self.calls) if each.module == place), None)
        if module is None or module.made is None:
            return
        made = self.calls[module.made].outputs[0]
        names = [self.calls[number].outputs[0] for number in module.argument_calls]
        for name in names:
            patch = Patch(made, [PatchNode("Identity", "", [name], made)])
            yield ("layer", module.module, f"nothing: {module.module} is skipped"), patch

    # Other numbers

    def _subject(self, precision: str) -> Subject:
        is_shaken = precision != "single"
        if not self._state and not self._half and not is_shaken:
            return self._base
        if is_shaken not in self._rewritten:
            self._rewritten[is_shaken] = self._runner.rewrite(
                self._base, self._state, self._half, perturbation=self.perturbation if is_shaken else 0.0
            )
        return self._rewritten[is_shaken]

    def round_numbers(self, half: str, exact: Collection[float] = (), stored: Collection[float] = ()) -> None:
        """Round all stored floats as a half-precision file does; an empty type restores them."""
        if half != self._half:
            self._half, self._rewritten = half, {}

    def apart(self) -> FileSide:
        """Return a second side that holds this one's current numbers."""
        other = copy.copy(self)
        other._state, other._rewritten, other._reached = dict(self._state), {}, {}
        return other

    def load(self, path: Path) -> None:
        """Load other numbers into stored tensors, from a safetensors file with labels of `Slot`.

        A batch normalization whose variance becomes 1 gets 1 minus epsilon, so that it divides by 1.
        """
        for label, value in load_file(path).items():
            slot = Slot.of(label)
            if slot.name in self._variances and bool((value == 1).all()):
                value = value - np.float32(self._variances[slot.name])
            self._state[ReplacedTensor(slot.name, slot.reader)] = value
        self._rewritten = {}

    def vary(self, values: Mapping[str, Sequence[Array]]) -> None:
        """Do nothing: `load` already gives each reader its own numbers."""

    def compute_with(self, values: Sequence[tuple[Array, Array]]) -> None:
        """Do nothing: a file stores the values that were computed from weights."""


def _calls(ledger: Ledger, edges: Edges, stored: set[str]) -> Iterator[NodeCall]:
    """Yield every node that depends on an input, in order."""
    graph = ledger.model.graphs[0]
    scopes = {
        name: ledger.node_scopes.get(node.place, "") for node in graph.nodes for name in node.outputs if name
    }
    names = {name: node.name for node in graph.nodes for name in node.outputs if name}
    input_dependent = {*graph.inputs} - stored
    origins: dict[str, tuple[str, ...]] = {name: (name,) for name in stored}
    """Stored tensors from which each value without inputs is computed."""
    makers: dict[str, int] = {}
    ordinals: dict[str, int] = {}
    scope = ""
    number = 0
    for inputs, outputs, op_type in edges:
        scope = next((scopes[name] for name in outputs if scopes.get(name)), None) or (
            "" if any(name in scopes for name in outputs) else scope
        )
        if not input_dependent.intersection(inputs):
            sources = tuple(dict.fromkeys(each for name in inputs for each in origins.get(name, ())))
            origins.update((name, sources) for name in outputs if name and name not in origins)
            continue
        input_dependent.update(name for name in outputs if name)
        ordinal = ordinals.get(scope, 0)
        ordinals[scope] = ordinal + 1
        yield NodeCall(
            number=number,
            module=scope,
            class_name=_LAYER.sub("*", scope),
            operator=op_type,
            ordinal=ordinal,
            parents=tuple(dict.fromkeys(makers[name] for name in inputs if name in makers)),
            parameters=tuple(dict.fromkeys(each for name in inputs for each in origins.get(name, ()))),
            outputs=tuple(name for name in outputs if name),
            inputs=tuple(inputs),
            node=next((names[name] for name in outputs if names.get(name)), "")
            or next((name for name in outputs if name), ""),
        )
        makers.update((name, number) for name in outputs if name)
        number += 1


_LAYER = re.compile(r"\d+")


def subgraphs_of(calls: Sequence[NodeCall]) -> list[Subgraph]:
    """Return the scopes of all nodes and the scopes around these, in the order in which they end."""
    members: dict[str, list[NodeCall]] = {}
    for call in calls:
        parts = call.module.split(".") if call.module else []
        for depth in range(1, len(parts) + 1):
            members.setdefault(".".join(parts[:depth]), []).append(call)
    children: dict[int, list[int]] = {}
    for call in calls:
        for parent in call.parents:
            children.setdefault(parent, []).append(call.number)
    found = []
    for module, own in members.items():
        numbers = {call.number for call in own}
        leaving = [
            call.number
            for call in own
            if any(child not in numbers for child in children.get(call.number, ()))
            or not children.get(call.number)
        ]
        arguments = dict.fromkeys(parent for call in own for parent in call.parents if parent not in numbers)
        made = leaving[-1] if leaving else None
        found.append(
            Subgraph(
                module,
                _LAYER.sub("*", module),
                own[0].number,
                own[-1].number,
                made,
                tuple(arguments),
            )
        )
    return sorted(found, key=lambda each: (each.last, -each.first))


def _find_lookups(graph: Graph) -> Iterator[tuple[str, tuple[str, int]]]:
    """Yield the inputs that index a stored table unprocessed, with the table's name and number of rows."""
    tables = {tensor.name: tensor for tensor in graph.tensors if len(tensor.shape) == 2}
    for node in graph.nodes:  # codes that are decoded where they are read
        if node.op_type in ("DequantizeLinear", "Identity", "Cast") and node.inputs[0] in tables:
            tables[node.outputs[0]] = tables[node.inputs[0]]
    origins = {name: name for name in graph.inputs if name not in tables}
    for node in graph.nodes:
        if node.op_type in _PASSING and node.inputs and node.inputs[0] in origins:
            origins.update((name, origins[node.inputs[0]]) for name in node.outputs)
        is_lookup = node.op_type == "Gather" and node.integers.get("axis", 0) == 0
        if is_lookup and node.inputs[0] in tables and node.inputs[1] in origins:
            table = tables[node.inputs[0]]
            yield origins[node.inputs[1]], (table.name, table.shape[0])


# Replacements of a node

_UNARY = (
    *("Relu", "Gelu", "Sigmoid", "Tanh", "Erf", "Elu", "Selu", "LeakyRelu", "Softplus", "Softsign", "Mish"),
    *("HardSwish", "HardSigmoid", "Exp", "Neg", "Abs", "Sqrt", "Sin", "Cos", "Celu", "Identity"),
)
_ACTIVATIONS = frozenset({*_UNARY, "FastGelu", "QuickGelu", "Clip", "PRelu", "BiasGelu", "Reciprocal", "Log"})
_BINARY = ("Add", "Sub", "Mul", "Div", "Max", "Min")
_NORMS = frozenset(
    {
        *("LayerNormalization", "SkipLayerNormalization", "SimplifiedLayerNormalization"),
        *("SkipSimplifiedLayerNormalization", "BatchNormalization", "InstanceNormalization"),
        *("GroupNormalization", "RMSNormalization", "GroupNorm"),
    }
)
_MOST_WEIGHTS = 16
_SCALES = frozenset({"scale", "alpha", "beta", "epsilon", "mask_filter_value"})

_Alternative = tuple[tuple[str, str, str], Patch]


def node_alternatives(
    call: NodeCall, nodes: Mapping[str, Node], graph: Graph, numbers: Sequence[float], half: str = ""
) -> Iterator[_Alternative]:
    """Yield the alternatives of a node: (kind, original, alternative) in words, and the patch.

    Args:
        call: the node.
        nodes: the file's nodes as stored, by output.
        graph: the file's main graph.
        numbers: numbers that MODEL has: epsilons, scales and the like.
        half: MODEL's half-precision type; empty where it has none.
    """
    output = call.outputs[0] if call.outputs else ""
    node = nodes.get(output)
    if node is None:  # a node that only the twin has
        return
    make = _Maker(node, output, call.inputs)
    stored = {tensor.name: tensor for tensor in graph.tensors}
    op_type = node.op_type
    yield from _other_settings(node, make, numbers, half)
    if op_type in _ACTIVATIONS:
        for other in _UNARY:
            if other not in (op_type, "Identity"):
                yield ("operator", op_type, other), make.node(other, node.inputs[:1])
    if op_type in _BINARY and len(node.inputs) == 2:
        yield from _other_terms(node, make, stored, numbers, half)
    if op_type in ("MatMul", "Gemm", "Gather", "LayerNormalization", "Conv"):
        yield from _other_weights(node, make, stored, graph)
    if op_type == "Where" and len(node.inputs) == 3:
        swapped = [node.inputs[0], node.inputs[2], node.inputs[1]]
        yield ("input", "Where", "Where, inverted"), make.node("Where", swapped)
        for slot in (1, 2):
            if node.inputs[slot] not in stored:
                yield ("input", "a mask", "no mask"), make.node("Identity", [node.inputs[slot]])
    if op_type == "Concat" and len(node.inputs) == 2:
        exchanged = make.node("Concat", node.inputs[::-1], settings={**node.integers})
        yield ("input", "Concat", "Concat in the other order"), exchanged
    if op_type in ("MatMul", "FusedMatMul") and len(node.inputs) == 2 and not stored.keys() & {*node.inputs}:
        yield (
            ("input", "MatMul", "MatMul with its operands exchanged"),
            make.node("MatMul", node.inputs[::-1]),
        )
    if op_type not in MOVES:
        for name in node.inputs[:2]:
            if name and name not in stored:
                description = ("operator", op_type, "nothing: it is left out")
                yield description, make.node("Identity", [name])
                break
        yield ("operator", op_type, f"{op_type}, and Neg"), make.node("Neg", [output + BEFORE])


class _Maker:
    def __init__(self, node: Node, output: str, inputs: Sequence[str]) -> None:
        self._node, self._output, self._inputs = node, output, inputs

    def node(
        self,
        op_type: str,
        inputs: Sequence[str],
        domain: str = "",
        settings: Mapping[str, Setting] | None = None,
    ) -> Patch:
        """Return a patch that replaces the node by one other node."""
        return Patch(
            self._output, [PatchNode(op_type, domain, [*inputs], self._output, {**(settings or {})})]
        )

    def same(self, inputs: Sequence[str] | None = None, **settings: Setting) -> Patch:
        """Return a patch that replaces the node by itself, with other inputs or attributes."""
        node = self._node
        attributes = {key: _setting(value) for key, value in {**node.integers, **node.settings}.items()}
        return self.node(
            node.op_type, node.inputs if inputs is None else inputs, node.domain, {**attributes, **settings}
        )

    def number_setting(self, key: str, number: float) -> Patch:
        """Return a patch that replaces one numeric attribute of the node."""
        return self.same(None, **{key: number})

    def number(self, op_type: str, inputs: Sequence[str], number: float) -> Patch:
        """Return a patch that replaces the node by one that reads a constant of its own."""
        name = f"{self._output}/number"
        operands = [name if each == _NUMBER else each for each in inputs]
        return Patch(self._output, [PatchNode(op_type, "", operands, self._output)], {name: number})


_NUMBER = "[number]"


def _setting(value: int | Kept) -> Setting:
    return cast("Setting", list(value) if isinstance(value, tuple) else value)


def _is_other(number: float, value: float, half: str) -> bool:
    """Whether a number is another one, and not this one rounded."""
    is_near = abs(number - value) <= 1e-3 * abs(value)
    return not is_near and not (half and is_one_in_half(number, value, half))


def _other_settings(node: Node, make: _Maker, numbers: Sequence[float], half: str) -> Iterator[_Alternative]:
    """Yield alternatives with other numbers or axes among the attributes."""
    if len(node.outputs) > 1 and sum(map(bool, node.outputs)) > 1:
        return
    for key, value in {**_defaults(node), **node.settings}.items():
        if isinstance(value, float) and key in _SCALES:
            for number in numbers:
                if _is_other(number, value, half):
                    alternative = ("attribute", f"{key} {value:g}", f"{key} {number:g}")
                    yield alternative, make.number_setting(key, number)
    axis = node.integers.get("axis")
    if node.op_type in ("Softmax", "LogSoftmax"):
        for other in (-1, -2, 1):
            if other != (-1 if axis is None else axis):
                yield (("attribute", f"axis {axis}", f"axis {other}"), make.same(axis=other))
    perm = node.settings.get("perm")
    if node.op_type == "Gelu":
        current = node.settings.get("approximate", "none")
        other_way = "none" if current == "tanh" else "tanh"
        description = ("attribute", f"approximate {current}", f"approximate {other_way}")
        yield description, make.same(approximate=other_way)
    if isinstance(perm, tuple) and len(perm) == 4:
        return


def _defaults(node: Node) -> dict[str, float]:
    if node.op_type in _NORMS:
        return {"epsilon": 1e-5}
    return {"LeakyRelu": {"alpha": 0.01}, "Elu": {"alpha": 1.0}, "HardSigmoid": {"alpha": 0.2}}.get(
        node.op_type, {}
    )


def _other_terms(
    node: Node, make: _Maker, stored: Mapping[str, object], numbers: Sequence[float], half: str
) -> Iterator[_Alternative]:
    """Yield alternatives with another operator, another number, or one operand alone."""
    op_type, inputs = node.op_type, node.inputs
    is_residual = op_type == "Add" and not any(name in stored for name in inputs)
    for slot, dropped in ((0, "second"), (1, "first")):
        if inputs[slot] in stored:
            continue
        other = inputs[1 - slot]
        if other in stored:
            description = (
                ("weight", other, "no bias") if op_type == "Add" else ("constant", op_type, "it is left out")
            )
        elif is_residual:
            description = (
                "input",
                "Add of two values",
                f"a sum without its {dropped} term: the residual is dropped",
            )
        else:
            description = ("input", f"{op_type} of two values", f"its {dropped} operand left out")
        yield description, make.node("Identity", [inputs[slot]])
    for other in _BINARY:
        if other != op_type:
            yield ("operator", op_type, other), make.node(other, inputs)
    yield ("operator", op_type, f"{op_type} with its operands exchanged"), make.node(op_type, inputs[::-1])
    if is_residual:
        for slot, which in ((0, "first"), (1, "second")):
            twice = Patch(
                make.node("Add", inputs).output,
                [
                    PatchNode("Add", "", [*inputs], f"{node.outputs[0]}/once"),
                    PatchNode("Add", "", [f"{node.outputs[0]}/once", inputs[slot]], node.outputs[0]),
                ],
            )
            yield ("constant", "Add", f"Add of the {which} term twice"), twice
    for slot in (0, 1):
        tensor = stored.get(inputs[slot])
        if tensor is not None and getattr(tensor, "numel", 0) == 1:
            values = tensor.payload.array()  # type: ignore[attr-defined]
            if values is None or values.dtype.kind != "f":
                continue
            current = float(values.reshape(-1)[0])
            operands = [inputs[1 - slot], _NUMBER] if slot else [_NUMBER, inputs[1 - slot]]
            for number in numbers:
                if _is_other(number, current, half):
                    alternative = ("constant", f"{op_type} with {current:g}", f"{op_type} with {number:g}")
                    yield alternative, make.number(op_type, operands, number)


def _other_weights(
    node: Node, make: _Maker, stored: Mapping[str, object], graph: Graph
) -> Iterator[_Alternative]:
    """Yield alternatives with another stored tensor of the same shape, with the own one transposed, or with none."""
    for slot, name in enumerate(node.inputs):
        tensor = stored.get(name)
        if tensor is None:
            continue
        alike = [
            each
            for each in graph.tensors
            if each.shape == tensor.shape  # type: ignore[attr-defined]
            and each.dtype == tensor.dtype  # type: ignore[attr-defined]
            and each.name != name
            and each.numel > 1
        ]
        for other in alike[:_MOST_WEIGHTS]:
            inputs = [other.name if at == slot else each for at, each in enumerate(node.inputs)]
            yield ("weight", name, other.name), make.same(inputs)
        if node.op_type in ("LayerNormalization", "Gemm", "Conv") and slot == 2:
            yield ("weight", name, "no bias"), make.same(node.inputs[:2])
        shape = tensor.shape  # type: ignore[attr-defined]
        if node.op_type == "MatMul" and len(shape) == 2 and shape[0] == shape[1]:
            output = node.outputs[0]
            inputs = [f"{output}/turned" if at == slot else each for at, each in enumerate(node.inputs)]
            transposed = Patch(
                output,
                [
                    PatchNode("Transpose", "", [name], f"{output}/turned"),
                    PatchNode("MatMul", "", inputs, output),
                ],
            )
            yield ("weight", name, f"{name}, transposed"), transposed
