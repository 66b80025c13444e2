"""One file and one program, for one drawing: all values of both, and which of the file's are the program's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from analyzer.errors import UsageError
from analyzer.manifest import Call, Calls, Given, Manifest
from analyzer.model import Graph, Model, Node, StoredTensor
from analyzer.model.content import encode_values
from analyzer.model.dtypes import DType
from analyzer.reconciliation import Line, Reconciliation
from analyzer.records import Frozen, Mutable, field, replace
from analyzer.text import format_many
from analyzer.verify.algebra.field import Numbers
from analyzer.verify.algebra.programs import File, Program, inputs_of, values_of
from analyzer.verify.algebra.stored import Stored, Weights, whole_buffers
from analyzer.verify.algebra.values import Array, Factored, Field, UnknownError, Value, shape_of
from analyzer.verify.algebra.watched import Print, Step, Watched, print_of

CODED = (Line.QUANTIZED, Line.BLOCK_QUANTIZED)
"""Lines of weights that are stored as codes."""
Place = tuple[int, int]
"""A node by its position, and one of its outputs."""


class Origin(Frozen):
    """Where a value of the program comes from."""

    at: int
    """The number of its call."""
    call: Call
    step: Step | None
    """Of a part of the call: how it was made; None of the whole."""
    value: Value


class Drawing(Mutable, dict=True):
    """PyTorch's side, computed for one drawing, at some sizes."""

    program: Program
    watched: Watched
    inputs: Sequence[Given]
    """What it is given, at the sizes of the drawing."""
    is_least: bool = False
    """Whether all sizes that may vary are 1, where masks are single numbers."""
    origins: dict[Print, Origin] = field(default_factory=dict)
    """By what tells a value: the first that has it, a whole call before a part."""
    modules: dict[Print, set[str]] = field(default_factory=dict)
    """The modules that have it."""
    steps: dict[int, Step] = field(default_factory=dict)
    """By the identity of a value: how it was made."""

    @cached_property
    def deeds(self) -> frozenset[object]:
        """What the program does by numbers that are known, but for what has no effect and may be anybody's."""
        steps = (step for step in self.steps.values() if self.is_least or not _is_idle(step))
        return frozenset(deed for step in steps for deed in deeds_of(step))

    @cached_property
    def divisors(self) -> frozenset[Print | None]:
        """What the program divides by."""
        return frozenset(_numbers_of(each) for step in self.steps.values() for each in divisors_of(step))

    @property
    def is_whole(self) -> bool:
        """Whether all that the program returns is known."""
        return all(
            self.program.value(name) is not None and name not in self.program.doubtful
            for name in self.program.calls.outputs
        )

    @cached_property
    def wanted(self) -> frozenset[Print]:
        """What is given to calls that nothing here has a word for."""
        given = (value for values in self.program.stops.values() for value in values)
        return frozenset(key for value in given if (key := print_of(value)) is not None)

    @cached_property
    def assumed(self) -> frozenset[Print | None]:
        """What stands for what such calls give."""
        return frozenset(print_of(value) for value in self.program.stand_ins.values())

    def run(self) -> None:
        """Compute every call, and note what it gives, and its parts."""
        self.program.run(self._note, goes_on=True)

    def _note(self, at: int, call: Call, found: Any) -> None:
        steps = self.watched.taken()
        for value in values_of(found):
            key = print_of(value)
            if key is not None:
                before = self.origins.get(key)
                if before is None or before.step is not None:
                    self.origins[key] = Origin(at, call, None, value)
                self.modules.setdefault(key, set()).add(call.module)
        for step in steps:
            key = print_of(step.value)
            if key is not None:
                self.steps[id(step.value)] = step
                self.origins.setdefault(key, Origin(at, call, step, step.value))
                self.modules.setdefault(key, set()).add(call.module)


def draw_programs(
    manifest: Manifest, calls: Calls, seeds: Sequence[int], numbers: Numbers, model: Model
) -> list[Drawing]:
    """Compute PyTorch's side, first at the sizes of the export, then at others as far as it can.

    Inputs of whole numbers are drawn like real ones, so that nothing is decided by them that is not in the program;
    those by which something has to be decided, as masks that pick elements, are given the example's numbers. An input
    that the file leaves out is what transformers takes where it is given none: a mask of ones, zeros elsewhere.

    Args:
        manifest: has the shapes of parameters and buffers.
        calls: the program.
        seeds: of the drawings.
        numbers: what stands for floating-point numbers.
        model: the file, which fixes axes of inputs and may leave inputs out.

    Raises:
        UsageError: an example of whole numbers is needed and was not recorded; the file leaves out an input whose
            numbers nobody knows.
    """
    left = left_out(model.graphs[0], calls)
    fixed = _fixed_axes(model.graphs[0], calls)
    every = [_default(given, model.path) if given.name in left else given for given in calls.inputs]
    whole = [given.name for given in every if not given.dtype.is_floating]

    def draw(seed: int, inputs: Sequence[Given], known: Sequence[str]) -> Drawing:
        a = Watched(seed, numbers)
        first = _first_names(manifest)
        shapes = {tensor.name: tensor.shape for tensor in manifest.tensors}
        weights = Weights(a, shapes, first, whole_buffers(manifest))
        try:
            drawing = Drawing(Program(a, calls, weights, inputs_of(inputs, seed, known)), a, inputs)
        except UnknownError as error:
            raise UsageError(f"--static: {error}; leave --static out") from error
        drawing.run()
        return drawing

    known = left
    drawing = draw(seeds[0], every, known)
    if not drawing.is_whole and len(whole) > len(left):
        known = whole
        drawing = draw(seeds[0], every, known)
        for name in whole if drawing.is_whole else ():
            if name in left:
                continue
            fewer = [each for each in known if each != name]
            other = draw(seeds[0], every, fewer)
            if other.is_whole:
                known, drawing = fewer, other
    found = [drawing]
    for seed, least in zip(seeds[1:], (False, True), strict=False):
        resized = _resized(every, fixed, least=least)
        other = draw(seed, resized or every, known)
        if resized is not None and not other.is_whole:
            other = draw(seed, every, known)
        else:
            other.is_least = least
        if resized is not None or not least:
            found.append(other)
    return found


def left_out(graph: Graph, calls: Calls) -> list[str]:
    """The program's inputs that a file does not take, all of whose inputs have names of the program's."""
    names = [given.name for given in calls.inputs]
    return [name for name in names if name not in graph.inputs] if set(graph.inputs) < set(names) else []


def _fixed_axes(graph: Graph, calls: Calls) -> Mapping[str, Sequence[int]]:
    """For each input of the program that the file takes, by name and else in order, the axes that the file fixes."""
    axes = {
        given.name: [axis for axis, size in enumerate(given.dims or ()) if isinstance(size, int)]
        for given in graph.signature
    }
    names = [given.name for given in calls.inputs]
    rest = iter([name for name in names if name not in axes])
    taken = ((name if name in names else next(rest, None), each) for name, each in axes.items())
    return {name: each for name, each in taken if name is not None}


def _default(given: Given, path: object) -> Given:
    """An input that the file does not take, with the numbers that transformers takes where it is given none.

    Raises:
        UsageError: nobody knows them.
    """
    element = given.dtype.to_numpy()
    if given.dtype.is_floating or element is None or "position" in given.name:
        raise UsageError(f"{path}: takes no {given.name}, which PyTorch's program takes")
    number = np.full(1, "mask" in given.name, element)
    return replace(given, numbers=encode_values(number))


def _first_names(manifest: Manifest) -> dict[str, str]:
    """The name that stands for each: of tied ones, and of tensors of the same numbers, which may be held once."""
    equal: dict[tuple[object, ...], str] = {}
    found = {name: tensor.name for tensor in manifest.tensors for name in tensor.names}
    for tensor in manifest.tensors:
        if tensor.content is not None:
            key = (type(tensor), tensor.dtype, tensor.shape, tensor.content.digest)
            found |= dict.fromkeys(tensor.names, equal.setdefault(key, tensor.name))
    return found


def _resized(
    inputs: Sequence[Given], fixed: Mapping[str, Sequence[int]], *, least: bool
) -> Sequence[Given] | None:
    """Inputs of larger sizes, or of 1; None where all are fixed."""
    kept = {
        given.axes[axis] for given in inputs for axis in fixed.get(given.name, ()) if axis < len(given.axes)
    }
    free = list(dict.fromkeys(name for given in inputs for name in given.axes if name and name not in kept))
    if not free:
        return None
    more = {name: 1 + place % 3 for place, name in enumerate(free)}
    return [
        Given(
            given.name,
            given.dtype,
            tuple(
                1 if least and name in more else n + more.get(name, 0)
                for n, name in zip(given.shape, given.axes, strict=True)
            )
            if given.axes
            else given.shape,
            given.numbers,
            given.axes,
        )
        for given in inputs
    ]


def input_values(graph: Graph, calls: Calls, program: Program, path: object) -> dict[str, Value]:
    """The program's inputs by the names of the graph: by name, and else in order; a file may leave some out.

    Raises:
        UsageError: the graph takes others.
    """
    names = [given.name for given in calls.inputs]
    if len(names) != len(graph.inputs) and not set(graph.inputs) <= set(names):
        raise UsageError(
            f"{path}: takes {format_many(len(graph.inputs), 'input')}, and PyTorch's program {len(names)}"
        )
    left = iter([name for name in names if name not in graph.inputs])
    return {name: program.inputs[name if name in program.inputs else next(left)] for name in graph.inputs}


class State(Mutable, dict=True):
    """The file beside the program, with some of the program's values in the places of its own."""

    result: Reconciliation
    calls: Calls
    drawing: Drawing
    given: Mapping[Place, Value] = field(default_factory=dict)
    before: State | None = None
    """The same with less put in: what does not depend on that is taken from there."""
    results: dict[Place, Value] = field(default_factory=dict)
    found: set[Print] = field(default_factory=set)
    """What the file has of all values that are told again."""
    prints: dict[Place, Print | None] = field(default_factory=dict)
    parts: dict[int, list[Print]] = field(default_factory=dict)
    """What a node computes on its way, by position."""
    strange: dict[int, bool] = field(default_factory=dict)
    """Whether a node divides, or is decided by sizes, as nothing of the program is; by position."""
    dividing: set[int] = field(default_factory=set)
    """Those that divide so."""
    stood: dict[int, str] = field(default_factory=dict)
    """The call that a node is taken for that nothing here has a word for, by position."""

    def __post_init__(self) -> None:
        self.ledger = self.result.ledger
        self.graph = self.ledger.model.graphs[0]
        program = self.drawing.program
        self.a = Watched(program.a.seed, program.a.numbers, is_first=False, is_half=_has_halves(self.result))
        self.deciding: set[int] = set() if self.before is None else self.before.deciding
        if self.before is None:
            weights = program.weights.seen_by(self.a)
            stored = Stored(self.result, weights, program.value)
            inputs = input_values(self.graph, self.calls, program, self.ledger.model.path)
            self.file = File(
                self.a,
                self.ledger,
                stored,
                inputs,
                self._see,
                deciding=self.deciding,
                stand_in=self._stand_in,
            )
            self.file.run()
        else:
            self.stood.update(self.before.stood)
            self.file = self.before.file.again(
                self.a,
                self._see,
                {position for position, _ in self.given} - {position for position, _ in self.before.given},
                stand_in=self._stand_in,
            )
            for place, value in self.before.results.items():
                if place not in self.results and place[0] not in self.file.again_run:
                    self.results[place] = value
                    self.prints[place] = self.before.prints[place]
            for position, prints in self.before.parts.items():
                if position not in self.file.again_run:
                    self.parts[position] = prints
                    self.strange[position] = self.before.strange.get(position, False)
                    self.dividing |= {position} & self.before.dividing
        self.found = {key for key in self.prints.values() if key is not None}
        self.found.update(key for prints in self.parts.values() for key in prints)

    def _see(self, node: Node, place: int, value: Value) -> Value:
        steps = self.a.taken()
        value = self.given.get((node.position, place), value)
        self.results[node.position, place] = value
        self.prints[node.position, place] = print_of(value)
        if not place and (node.position, place) not in self.given:
            keys = (print_of(step.value) for step in steps)
            divisors = {_numbers_of(each) for step in steps for each in divisors_of(step)}
            strange = bool(divisors - self.drawing.divisors)
            if strange:
                self.dividing.add(node.position)
            if node.position in self.deciding:
                deeds = {deed for step in steps for deed in deeds_of(step)}
                strange = strange or not deeds or not deeds <= self.drawing.deeds
            self.strange[node.position] = strange
            self.parts[node.position] = [key for key in keys if key is not None]
        return value

    def _stand_in(self, node: Node, given: Sequence[Value | None]) -> Value | None:
        """What stands for what a node gives that nothing here has a word for.

        That is what was put there; or what stands for the one call of the program that is given the same.
        """
        self.stood.pop(node.position, None)
        put = self.given.get((node.position, 0))
        if put is not None:
            return put
        mine = [each for each in given if isinstance(each, (Field, Factored))]
        program = self.drawing.program
        alike = [
            name
            for name, yours in program.stops.items()
            if len(yours) == len(mine)
            and all(self.a.same(one, two) for one, two in zip(mine, yours, strict=True))
        ]
        if len(alike) != 1 or alike[0] not in program.stand_ins:
            return None
        self.stood[node.position] = alike[0]
        return program.stand_ins[alike[0]]

    @property
    def is_ambiguous(self) -> bool:
        """Whether two nodes are taken for one call."""
        return len(set(self.stood.values())) < len(self.stood)

    @cached_property
    def met(self) -> frozenset[Print]:
        """What of that which is given to calls without a word here is given to such nodes."""
        names = (
            name
            for node in self.graph.nodes
            if node.position in self.file.stopped
            for name in node.inputs
            if name in self.file.values
        )
        return self.drawing.wanted & {print_of(self.file.values[name]) for name in names}

    @cached_property
    def has_codes(self) -> bool:
        """Whether weights are stored as codes: what is computed of these is in other units than PyTorch's."""
        return any(line.line in CODED for line in self.result.parameters)

    # outputs

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Outputs of both: by the names that the export gave them, else in order."""
        named = dict(zip(self.calls.results, self.calls.outputs, strict=False))
        if named.keys() & set(self.graph.outputs):
            return [(name, named[name]) for name in self.graph.outputs if name in named]
        return list(zip(self.graph.outputs, self.calls.outputs, strict=False))

    def is_output_same(self, name: str, theirs: str) -> bool:
        """Whether an output is the program's, in every element."""
        mine, yours = self.file.values.get(name), self.drawing.program.value(theirs)
        return mine is not None and yours is not None and self.a.same(mine, yours)

    @cached_property
    def equal_outputs(self) -> frozenset[str]:
        """The outputs that have the program's values at these sizes, whatever a choice by sizes may hide."""
        return frozenset(name for name, theirs in self.pairs if self.is_output_same(name, theirs))

    @cached_property
    def same_outputs(self) -> frozenset[str]:
        """The outputs that are the program's."""
        return self.equal_outputs - (self.hidden_outputs if self.hidden else frozenset())

    @cached_property
    def hidden_outputs(self) -> frozenset[str]:
        """The outputs that are made of what hides something."""
        reached = set(self.hidden)
        for node in self.graph.nodes:
            if not reached.isdisjoint(node.inputs):
                reached.update(filter(None, node.outputs))
        return frozenset(reached.intersection(self.graph.outputs))

    @cached_property
    def is_same(self) -> bool:
        """Whether all outputs are, and no choice hides anything."""
        outputs = self.graph.outputs, self.calls.outputs
        return not self.hidden and len(outputs[0]) == len(outputs[1]) == len(self.same_outputs)

    @cached_property
    def rightness(self) -> int:
        """How many of the program's values the file has; an output counts for many."""
        found = len(self.found & self.drawing.origins.keys()) + len(self.met)
        return found + _OUTPUT * len(self.same_outputs)

    # nodes

    @cached_property
    def tensors(self) -> Mapping[str, StoredTensor]:
        """The stored tensors by name."""
        return {tensor.name: tensor for tensor in self.graph.tensors}

    @cached_property
    def parameters(self) -> Mapping[str, str]:
        """The parameter or buffer that a stored tensor holds, by the tensor's name."""
        return {
            line.key[1]: line.parameter
            for line in self.result.entries
            if not line.key[0] and line.parameter is not None
        }

    @cached_property
    def makers(self) -> Mapping[str, Node]:
        """The node that makes a value."""
        return {name: node for node in self.graph.nodes for name in node.outputs if name}

    @cached_property
    def readers(self) -> Mapping[str, list[Node]]:
        """The nodes that read a value."""
        found: dict[str, list[Node]] = {}
        for node in self.graph.nodes:
            for name in node.inputs:
                found.setdefault(name, []).append(node)
        return found

    def is_right(self, node: Node) -> bool:
        """Whether a node's values are the program's, or computed as they are there, and hide nothing."""
        if not self.hidden.isdisjoint(node.outputs):
            return False
        for place, name in enumerate(node.outputs):
            if not name:
                continue
            value = self.results.get((node.position, place))
            if value is None and place and name not in self.readers and name not in self.graph.outputs:
                continue
            if value is None:
                return False
            if isinstance(value, Field) and self.prints[node.position, place] not in self.drawing.origins:
                return False
        return True

    @cached_property
    def hidden(self) -> frozenset[str]:
        """What sizes decide, and quotients, that the program has not."""
        return frozenset(
            name for node in self.graph.nodes if self.strange.get(node.position) for name in node.outputs[:1]
        )

    @cached_property
    def quotients(self) -> frozenset[str]:
        """Those of them that are quotients."""
        return frozenset(
            name for node in self.graph.nodes if node.position in self.dividing for name in node.outputs[:1]
        )

    @cached_property
    def settled(self) -> frozenset[int]:
        """Positions of nodes that are right, or parts of what is: everything that is made of them is."""
        wrong = set(self.graph.outputs) - self.same_outputs
        found: set[int] = set()
        for node in reversed(self.graph.nodes):
            names = [name for name in node.outputs if name]
            if self.is_right(node):
                found.add(node.position)
                continue
            inner = [reader for name in names for reader in self.readers.get(name, ())]
            if inner and not wrong.intersection(names) and all(each.position in found for each in inner):
                found.add(node.position)
        return frozenset(found)

    def node_names(self, node: Node) -> list[str]:
        """What a node reads."""
        return [name for name in node.inputs if name]


_OUTPUT = 1000


def _is_idle(step: Step) -> bool:
    """Whether a step chooses by one truth value, adds 0 or multiplies with 1."""
    for slot, arg in enumerate(step.args[:2]):
        if isinstance(arg, np.ndarray) and arg.size == 1:
            number = float(arg.reshape(-1)[0])
            if (step.name, slot) == ("where", 0) or (step.name, number) in (("add", 0.0), ("multiply", 1.0)):
                return True
    return False


def deeds_of(step: Step) -> Iterator[object]:
    """An operation with each of the known numbers, or parts, that it is done by."""
    sizes = shape_of(step.args[0]) if step.args and hasattr(step.args[0], "shape") else ()
    for slot, arg in enumerate(step.args):
        if isinstance(arg, np.ndarray):
            least = arg if step.name == "take" else _unexpanded(arg)
            sized = tuple(size for size in least.shape if size != 1)
            place = slot if step.name == "where" else None
            yield step.name, place, arg.dtype.kind, sized, least.astype(np.float64).tobytes()
        elif isinstance(arg, list) and arg and isinstance(arg[0], slice):
            yield step.name, tuple(part.indices(size) for part, size in zip(arg, sizes, strict=False))


def _unexpanded(array: Array) -> Array:
    """A tensor without the axes along which it only repeats itself, unless it does along all."""
    found = array
    for axis, size in enumerate(array.shape):
        if size > 1 and bool((found == found.take([0], axis)).all()):
            found = found.take([0], axis)
    return array if found.size == 1 else found


def _has_halves(result: Reconciliation) -> bool:
    """Whether what is read of a file is stored in half precision."""
    halves = (DType.FLOAT16, DType.BFLOAT16)
    return any(entry.uses and entry.tensor.dtype in halves for entry in result.ledger.entries)


def _numbers_of(value: Value) -> Print | None:
    """What tells the different elements of a value again, however often each stands there: one may be expanded."""
    return print_of(Field(np.unique(value.elements))) if isinstance(value, Field) else None


def divisors_of(step: Step) -> Sequence[Value]:
    """What a step divides by, where that is not known."""
    slot = {"invert": 0, "divide": 1}.get(step.name)
    return [step.args[slot]] if slot is not None and isinstance(step.args[slot], Field) else []


def elements_in(shape: Sequence[int]) -> int:
    """How many a shape has."""
    return int(np.prod(shape, dtype=np.int64))
