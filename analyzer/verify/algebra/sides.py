"""File and program, for one random drawing: values of both, and the values of the file that are the program's."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from analyzer.errors import UsageError
from analyzer.manifest import Buffer, Call, Calls, Manifest, Parameter, ProgramInput
from analyzer.model import Graph, Model, Node, StoredTensor
from analyzer.model.content import decode_values, encode_values
from analyzer.model.dtypes import DType
from analyzer.model.order import sorted_graph
from analyzer.reconciliation import Line, Reconciliation
from analyzer.records import Frozen, Mutable, field, replace
from analyzer.text import format_many
from analyzer.verify.algebra.field import Numbers, draw_prime, key_of
from analyzer.verify.algebra.programs import File, Program, inputs_of, values_of
from analyzer.verify.algebra.stored import MOST_READ, Stored, Weights, as_stored, known_buffers
from analyzer.verify.algebra.values import (
    HIDING,
    LOWEST,
    Array,
    Factored,
    Field,
    UnknownError,
    Value,
    is_known,
    most_dense,
    shape_of,
)
from analyzer.verify.algebra.watched import Print, Step, Watched, print_of

CODED = (Line.QUANTIZED, Line.BLOCK_QUANTIZED)
"""Lines of weights that are stored as codes."""
Place = tuple[int, int]
"""A node's position, and the index of one of its outputs."""


class Origin(Frozen):
    """Source of a value in the program."""

    at: int
    """Index of its call."""
    call: Call
    step: Step | None
    """Operation that made an intermediate value of the call; None for a result."""
    value: Value


class Drawing(Mutable, dict=True):
    """PyTorch's side, computed for one random drawing, at some sizes."""

    program: Program
    watched: Watched
    inputs: Sequence[ProgramInput]
    """Inputs at the sizes of the drawing."""
    is_least: bool = False
    """Whether all free sizes are 1, where masks are single numbers."""
    origins: dict[Print, Origin] = field(default_factory=dict)
    """Origins by print: the first value with it, and a call's result rather than an intermediate value."""
    modules: dict[Print, set[str]] = field(default_factory=dict)
    """Modules that compute a value, by print."""
    steps: dict[int, Step] = field(default_factory=dict)
    """Operation that made a value, by the value's `id`."""
    numbers: int = 0
    """Number of elements of all values, which are kept."""

    @cached_property
    def known_operations(self) -> frozenset[object]:
        """Operations of the program with known numbers; those without effect count only if all free sizes are 1."""
        steps = (step for step in self.steps.values() if self.is_least or not _is_idle(step))
        return frozenset(operation for step in steps for operation in known_operations_of(step))

    @cached_property
    def _known(self) -> frozenset[bytes]:
        values = (
            each for found in self.program.values.values() for each in values_of(found) if is_known(each)
        )
        return frozenset(_numbers_in(each) for each in values)

    def has_known(self, value: Value) -> bool:
        """Whether the program computes a known value with the same numbers, which are not all one number."""
        array = np.asarray(value)
        return bool((array != array.flat[0]).any()) and _numbers_in(array) in self._known

    @cached_property
    def divisors(self) -> frozenset[Print | None]:
        """Prints of the program's divisors."""
        return frozenset(_numbers_of(each) for step in self.steps.values() for each in divisors_of(step))

    @property
    def is_whole(self) -> bool:
        """Whether all outputs of the program are known, and depend on no unsupported call."""
        return all(
            self.program.value(name) is not None and name not in self.program.doubtful
            for name in self.program.calls.outputs
        )

    @cached_property
    def unsupported_prints(self) -> frozenset[Print]:
        """Prints of the inputs of unsupported calls."""
        operands = (value for values in self.program.unsupported_inputs.values() for value in values)
        return frozenset(key for value in operands if (key := print_of(value)) is not None)

    @cached_property
    def assumed(self) -> frozenset[Print | None]:
        """Prints of the values that replace the results of such calls."""
        return frozenset(print_of(value) for value in self.program.stand_ins.values())

    def run(self) -> None:
        """Compute every call, and record its results and intermediate values."""
        self.program.run(self._add_call, goes_on=True)

    def _add_call(self, at: int, call: Call, found: Any) -> None:
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
                self.numbers += key[0]
                self.steps[id(step.value)] = step
                self.origins.setdefault(key, Origin(at, call, step, step.value))
                self.modules.setdefault(key, set()).add(call.module)
        if self.numbers > _MOST_NUMBERS:
            raise UsageError(
                f"--static: PyTorch's program computes more than {_MOST_NUMBERS:,} numbers at the sizes of the export; "
                "leave --static out, or export at smaller sizes"
            )


def draw_programs(
    manifest: Manifest,
    calls: Calls,
    seeds: Sequence[int],
    numbers: Numbers,
    model: Model,
    dropped: Collection[str] = (),
) -> list[Drawing]:
    """Compute PyTorch's side, first at the sizes of the export, then at other sizes where they are free.

    Integer inputs are drawn like real ones, so that they decide nothing beyond the program. Inputs that the program
    must know to be computed, such as masks that pick elements, take the example's numbers. An input that the file
    leaves out takes the default of transformers: ones in a mask, zeros elsewhere.

    Args:
        manifest: the shapes of parameters and buffers.
        calls: the program.
        seeds: seeds of the drawings, each with its own prime.
        numbers: elements for floating-point numbers.
        model: the file, which may fix axes of inputs, or leave inputs out.
        dropped: parameters of zeros that the file does not have. They are zeros here too, as every vector of zeros is:
            an exporter leaves out what a normalization makes of such a bias with such a mean.

    Raises:
        UsageError: an integer example is needed and was not recorded; or the file leaves out an input without a known
            default.
    """
    left = left_out(model.graphs[0], calls)
    fixed = _fixed_axes(model.graphs[0], calls)
    every = [
        _default(program_input, model.path) if program_input.name in left else program_input
        for program_input in calls.inputs
    ]
    whole = [program_input.name for program_input in every if not program_input.dtype.is_floating]
    sizes = {size for tensor in manifest.tensors for size in tensor.shape}

    def draw(seed: int, inputs: Sequence[ProgramInput], known: Sequence[str], dense: int = 0) -> Drawing:
        a = Watched(seed, numbers, prime=draw_prime(sizes, seed))
        first = _first_names(manifest)
        shapes = {tensor.name: tensor.shape for tensor in manifest.tensors}
        names = {*dropped, *(tensor.name for tensor in manifest.tensors if _is_zero_vector(tensor))}
        zeros = {first[name]: np.zeros(shapes[name], np.float32) for name in names}
        weights = Weights(a, shapes, first, known_buffers(manifest) | zeros)
        weights.most_dense = dense
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
    dense = most_dense(_work_of(drawing, manifest))
    found = [draw(seeds[0], every, known, dense) if dense else drawing]
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


def _work_of(drawing: Drawing, manifest: Manifest) -> Counter[int]:
    """Return how many numbers are multiplied by all weights of a size, by that size."""
    found: Counter[int] = Counter()
    for tensor in manifest.tensors:
        found[tensor.numel] += tensor.numel * _DRAWN
    for step in drawing.steps.values():
        if step.name == "matmul":
            weight = next((each for each in step.args if isinstance(each, Factored)), None)
            if weight is not None:
                rows = elements_in(step.value.shape) // weight.shape[0 if weight is step.args[0] else 1]
                found[elements_in(weight.shape)] += elements_in(weight.shape) * rows
    for each in drawing.program.calls.calls:
        value = drawing.program.values.get(each.name)
        if "conv" in each.operator and isinstance(value, Field) and len(each.args) > 1:
            weight = drawing.program.argument(each.args[1])
            if isinstance(weight, Factored):
                windows = elements_in(value.shape) // weight.shape[0]
                found[elements_in(weight.shape)] += elements_in(weight.shape) * windows * _CONVOLVED
    return found


def seeds_of(result: Reconciliation, count: int) -> list[int]:
    """Return seeds of drawings, which depend on every number that a file computes with.

    So a file cannot have constants that fit the numbers that are drawn for it. Only the elements of a large weight
    are left out, as no operation takes them for numbers.
    """
    hasher = hashlib.blake2b()
    weights = {line.key for line in result.entries if line.parameter is not None}
    for graph in result.ledger.model.graphs:
        for each in (graph.path, graph.inputs, graph.outputs, *graph.nodes):
            hasher.update(repr(each).encode(errors="backslashreplace"))
        for tensor in graph.tensors:
            hasher.update(
                f"{tensor.key} {tensor.dtype.name} {tensor.shape}".encode(errors="backslashreplace")
            )
            is_read = tensor.numel <= _SMALL or (tensor.numel <= MOST_READ and tensor.key not in weights)
            array = tensor.payload.array() if is_read else None
            if array is not None:
                hasher.update(array.tobytes())
    return [key_of(hasher.digest(), place) for place in range(count)]


def left_out(graph: Graph, calls: Calls) -> list[str]:
    """Return the program's inputs that a file does not take, if all of its own inputs are the program's."""
    names = [program_input.name for program_input in calls.inputs]
    return [name for name in names if name not in graph.inputs] if set(graph.inputs) < set(names) else []


def _fixed_axes(graph: Graph, calls: Calls) -> Mapping[str, Sequence[int]]:
    """Return the axes that the file fixes, for each input of the program; inputs match by name, else in order."""
    axes = {
        entry.name: [axis for axis, size in enumerate(entry.dims or ()) if isinstance(size, int)]
        for entry in graph.signature
    }
    names = [entry.name for entry in calls.inputs]
    rest = iter([name for name in names if name not in axes])
    taken = ((name if name in names else next(rest, None), each) for name, each in axes.items())
    return {name: each for name, each in taken if name is not None}


def _default(program_input: ProgramInput, path: object) -> ProgramInput:
    """Return an input that the file does not take, with the default numbers of transformers.

    Raises:
        UsageError: it has no known default.
    """
    element = program_input.dtype.to_numpy()
    if program_input.dtype.is_floating or element is None or "position" in program_input.name:
        raise UsageError(
            f"{path}: takes no {program_input.name}, which PyTorch's program takes; leave --static out"
        )
    number = np.full(1, "mask" in program_input.name, element)
    return replace(program_input, numbers=encode_values(number))


def _first_names(manifest: Manifest) -> dict[str, str]:
    """Return one name for each group of tensors: tied ones, or equal ones, which a file may store once."""
    equal: dict[tuple[object, ...], str] = {}
    found = {name: tensor.name for tensor in manifest.tensors for name in tensor.names}
    for tensor in manifest.tensors:
        if tensor.content is not None:
            key = (tensor.dtype, tensor.shape, tensor.content.digest)
            found |= dict.fromkeys(tensor.names, equal.setdefault(key, tensor.name))
    return found


def _is_zero_vector(tensor: Parameter | Buffer) -> bool:
    """Whether a tensor of real numbers is a vector of zeros."""
    element = tensor.dtype.to_numpy()
    if not tensor.dtype.is_floating or element is None or sum(dim != 1 for dim in tensor.shape) > 1:
        return False
    content = tensor.content
    return (
        content is not None and content.constant_filled and not decode_values(content.samples, element).any()
    )


def _resized(
    inputs: Sequence[ProgramInput], fixed: Mapping[str, Sequence[int]], *, least: bool
) -> Sequence[ProgramInput] | None:
    """Return inputs of larger sizes, or of size 1; None if all sizes are fixed."""
    kept = {
        program_input.axes[axis]
        for program_input in inputs
        for axis in fixed.get(program_input.name, ())
        if axis < len(program_input.axes)
    }
    free = list(
        dict.fromkeys(
            name for program_input in inputs for name in program_input.axes if name and name not in kept
        )
    )
    if not free:
        return None
    more = {name: 1 + place % 3 for place, name in enumerate(free)}
    return [
        ProgramInput(
            program_input.name,
            program_input.dtype,
            tuple(
                1 if least and name in more else n + more.get(name, 0)
                for n, name in zip(program_input.shape, program_input.axes, strict=True)
            )
            if program_input.axes
            else program_input.shape,
            program_input.numbers,
            program_input.axes,
        )
        for program_input in inputs
    ]


def input_values(graph: Graph, calls: Calls, program: Program, path: object) -> dict[str, Value]:
    """Return the program's inputs by the names of the graph, matched by name, else in order; a file may leave some out.

    Raises:
        UsageError: the graph takes other inputs.
    """
    names = [program_input.name for program_input in calls.inputs]
    if len(names) != len(graph.inputs) and not set(graph.inputs) <= set(names):
        raise UsageError(
            f"{path}: takes {format_many(len(graph.inputs), 'input')}, and PyTorch's program takes {len(names)}"
        )
    left = iter([name for name in names if name not in graph.inputs])
    found = {name: program.inputs[name if name in program.inputs else next(left)] for name in graph.inputs}
    types = {each.name: each.dtype for each in graph.signature}
    return {
        name: as_stored(types.get(name, DType.UNDEFINED), value) if is_known(value) else value
        for name, value in found.items()
    }


class State(Mutable, dict=True):
    """The file beside the program, with values of the program substituted for some of its own."""

    result: Reconciliation
    calls: Calls
    drawing: Drawing
    substituted: Mapping[Place, Value] = field(default_factory=dict)
    before: State | None = None
    """State with fewer substitutions; values that do not depend on the new ones are taken from it."""
    results: dict[Place, Value] = field(default_factory=dict)
    found: set[Print] = field(default_factory=set)
    """Prints of all values in the file."""
    prints: dict[Place, Print | None] = field(default_factory=dict)
    parts: dict[int, list[Print]] = field(default_factory=dict)
    """Prints of a node's intermediate values, by position."""
    unmatched: dict[int, bool] = field(default_factory=dict)
    """Whether a node divides, or depends on a decision by sizes, unlike anything in the program; by position."""
    dividing: set[int] = field(default_factory=set)
    """Positions of the nodes that divide so."""
    identified_calls: dict[int, str] = field(default_factory=dict)
    """Call of the program with which an unsupported node is identified, by the node's position."""

    def __post_init__(self) -> None:
        self.ledger = self.result.ledger
        self.graph = sorted_graph(self.ledger.model.graphs[0], self.ledger.wiring)
        program = self.drawing.program
        self.a = Watched(
            program.a.seed,
            program.a.numbers,
            is_first=False,
            is_half=_has_halves(self.result),
            prime=program.a.prime,
            products=program.a.products,
        )
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
                self._add_result,
                deciding=self.deciding,
                stand_in=self._stand_in,
                is_theirs=self.drawing.has_known,
            )
            self.file.run()
        else:
            self.identified_calls.update(self.before.identified_calls)
            self.file = self.before.file.again(
                self.a,
                self._add_result,
                {position for position, _ in self.substituted}
                - {position for position, _ in self.before.substituted},
                stand_in=self._stand_in,
            )
            for place, value in self.before.results.items():
                if place not in self.results and place[0] not in self.file.recomputed:
                    self.results[place] = value
                    self.prints[place] = self.before.prints[place]
            for position, prints in self.before.parts.items():
                if position not in self.file.recomputed:
                    self.parts[position] = prints
                    self.unmatched[position] = self.before.unmatched.get(position, False)
                    self.dividing |= {position} & self.before.dividing
        self.found = {key for key in self.prints.values() if key is not None}
        self.found.update(key for prints in self.parts.values() for key in prints)

    def _add_result(self, node: Node, place: int, value: Value) -> Value:
        steps = self.a.taken()
        value = self.substituted.get((node.position, place), value)
        self.results[node.position, place] = value
        self.prints[node.position, place] = print_of(value)
        if not place and (node.position, place) not in self.substituted:
            keys = (print_of(step.value) for step in steps)
            divisors = {_numbers_of(each) for step in steps for each in divisors_of(step)}
            unmatched = bool(divisors - self.drawing.divisors)
            if unmatched:
                self.dividing.add(node.position)
            if node.position in self.deciding:
                hiding = HIDING if self.a.is_half else LOWEST
                operations = {each for step in steps for each in known_operations_of(step, hiding)}
                unmatched = unmatched or not operations or not operations <= self.drawing.known_operations
            self.unmatched[node.position] = unmatched
            self.parts[node.position] = [key for key in keys if key is not None]
        return value

    def _stand_in(self, node: Node, operands: Sequence[Value | None]) -> Value | None:
        """Return the value that replaces the result of an unsupported node.

        It is the value that was substituted there, or the stand-in of the one unsupported call with the same inputs.
        """
        self.identified_calls.pop(node.position, None)
        replacement = self.substituted.get((node.position, 0))
        if replacement is not None:
            return replacement
        mine = [each for each in operands if isinstance(each, (Field, Factored))]
        program = self.drawing.program
        alike = [
            name
            for name, theirs in program.unsupported_inputs.items()
            if len(theirs) == len(mine)
            and all(self.a.same(one, two) for one, two in zip(mine, theirs, strict=True))
        ]
        if len(alike) != 1 or alike[0] not in program.stand_ins:
            return None
        self.identified_calls[node.position] = alike[0]
        return program.stand_ins[alike[0]]

    @property
    def is_ambiguous(self) -> bool:
        """Whether two nodes are identified with one call."""
        return len(set(self.identified_calls.values())) < len(self.identified_calls)

    @cached_property
    def shared_prints(self) -> frozenset[Print]:
        """Prints of the inputs of unsupported calls that unsupported nodes of the file also have."""
        names = (
            name
            for node in self.graph.nodes
            if node.position in self.file.unsupported
            for name in node.inputs
            if name in self.file.values
        )
        return self.drawing.unsupported_prints & {print_of(self.file.values[name]) for name in names}

    @cached_property
    def has_codes(self) -> bool:
        """Whether weights are stored as codes: values computed from codes are in other units than PyTorch's."""
        return any(line.line in CODED for line in self.result.parameters)

    # outputs

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Outputs of both sides: by the names that the export gave them, else in order.

        A run returns outputs in order: if the file has the export's names in another order, they count in order.
        """
        by_name = dict(zip(self.calls.results, self.calls.outputs, strict=False))
        is_turned = self.graph.outputs != self.calls.results and sorted(self.graph.outputs) == sorted(by_name)
        if by_name.keys() & set(self.graph.outputs) and not is_turned:
            return [(name, by_name[name]) for name in self.graph.outputs if name in by_name]
        return list(zip(self.graph.outputs, self.calls.outputs, strict=False))

    def is_output_same(self, name: str, theirs: str) -> bool:
        """Whether an output equals the program's, in every element."""
        found, expected = self.file.values.get(name), self.drawing.program.value(theirs)
        return found is not None and expected is not None and self.a.is_output_same(found, expected)

    @cached_property
    def equal_outputs(self) -> frozenset[str]:
        """Outputs that equal the program's at these sizes; a choice by sizes may hide differences."""
        return frozenset(name for name, theirs in self.pairs if self.is_output_same(name, theirs))

    @cached_property
    def same_outputs(self) -> frozenset[str]:
        """Outputs that are the program's."""
        return self.equal_outputs - (self.hidden_outputs if self.hidden else frozenset())

    @cached_property
    def hidden_outputs(self) -> frozenset[str]:
        """Outputs that depend on hidden values."""
        reached = set(self.hidden)
        for node in self.graph.nodes:
            if not reached.isdisjoint(node.inputs):
                reached.update(filter(None, node.outputs))
        return frozenset(reached.intersection(self.graph.outputs))

    @cached_property
    def is_same(self) -> bool:
        """Whether all outputs of the file are the program's, and no choice hides anything."""
        return not self.hidden and len(self.graph.outputs) == len(self.same_outputs)

    @cached_property
    def score(self) -> int:
        """Number of the program's values in the file; an output counts for many."""
        found = len(self.found & self.drawing.origins.keys()) + len(self.shared_prints)
        return found + _OUTPUT * len(self.same_outputs)

    # nodes

    @cached_property
    def tensors(self) -> Mapping[str, StoredTensor]:
        """Stored tensors by name."""
        return {tensor.name: tensor for tensor in self.graph.tensors}

    @cached_property
    def parameters(self) -> Mapping[str, str]:
        """Name of the parameter or buffer that a stored tensor holds, by the tensor's name."""
        return {
            line.key[1]: line.parameter
            for line in self.result.entries
            if not line.key[0] and line.parameter is not None
        }

    @cached_property
    def makers(self) -> Mapping[str, Node]:
        """Node that computes a value, by the value's name."""
        return {name: node for node in self.graph.nodes for name in node.outputs if name}

    @cached_property
    def readers(self) -> Mapping[str, list[Node]]:
        """Nodes that read a value, by the value's name."""
        found: dict[str, list[Node]] = {}
        for node in self.graph.nodes:
            for name in node.inputs:
                found.setdefault(name, []).append(node)
        return found

    def is_right(self, node: Node) -> bool:
        """Whether a node's results hide nothing, and are values of the program, known values or weights."""
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
        """Names of values with a decision by sizes, or a quotient, that the program does not have."""
        return frozenset(
            name
            for node in self.graph.nodes
            if self.unmatched.get(node.position)
            for name in node.outputs[:1]
        )

    @cached_property
    def quotients(self) -> frozenset[str]:
        """Names of those values that are quotients."""
        return frozenset(
            name for node in self.graph.nodes if node.position in self.dividing for name in node.outputs[:1]
        )

    @cached_property
    def settled(self) -> frozenset[int]:
        """Positions of nodes that are right, or whose results are no wrong outputs and only settled nodes read them."""
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
        """Return the names of a node's inputs."""
        return [name for name in node.inputs if name]


_MOST_NUMBERS = 1 << 28
"""Most elements of the values of a program that are kept, of 8 bytes each."""
_OUTPUT = 1000
_DRAWN, _CONVOLVED = 4, 3
"""Time to draw an element, and to multiply one in a convolution, in those of a product of matrices."""
_SMALL = 1 << 12
"""Most elements of a weight that are read too."""


def _numbers_in(value: Value) -> bytes:
    """Return the numbers of a known value, whatever its type and its axes of length 1."""
    array = np.squeeze(np.asarray(value))
    return repr(array.shape).encode() + array.astype(np.float64).tobytes()


def _is_idle(step: Step) -> bool:
    """Whether a step chooses by one truth value, adds 0 or multiplies by 1."""
    for slot, arg in enumerate(step.args[:2]):
        if isinstance(arg, np.ndarray) and arg.size == 1:
            number = float(arg.reshape(-1)[0])
            if (step.name, slot) == ("where", 0) or (step.name, number) in (("add", 0.0), ("multiply", 1.0)):
                return True
    return False


def known_operations_of(step: Step, hiding: float = LOWEST) -> Iterator[object]:
    """Yield an operation with each known number, or slice, that it takes; numbers to `hiding` are one mask."""
    if step.name == "pad":
        yield step.name, tuple(step.args[1])
    sizes = shape_of(step.args[0]) if step.args and hasattr(step.args[0], "shape") else ()
    for slot, arg in enumerate(step.args):
        if isinstance(arg, np.ndarray):
            least = arg if step.name == "take" else _unexpanded(arg)
            if step.name == "where" and slot and bool((arg == arg.flat[:1]).all()):
                least = arg.reshape(-1)[:1]  # a number that is chosen may be expanded
            if step.name == "add" and arg.dtype.kind == "f":
                least = np.where(least <= hiding, -np.inf, least) + 0.0  # two forms of a mask
            sized = tuple(size for size in least.shape if size != 1)
            place = slot if step.name == "where" else None
            made = print_of(step.value) if step.name == "take" else None  # any table has a first row
            yield step.name, place, arg.dtype.kind, sized, least.astype(np.float64).tobytes(), made
        elif isinstance(arg, list) and arg and isinstance(arg[0], slice):
            yield step.name, tuple(part.indices(size) for part, size in zip(arg, sizes, strict=False))


def _unexpanded(array: Array) -> Array:
    """Drop the axes along which a tensor only repeats itself; a tensor of one number stays whole."""
    found = array
    for axis, size in enumerate(array.shape):
        if size > 1 and bool((found == found.take([0], axis)).all()):
            found = found.take([0], axis)
    return array if found.size == 1 else found


def _has_halves(result: Reconciliation) -> bool:
    """Whether the file stores tensors that it reads in half precision."""
    halves = (DType.FLOAT16, DType.BFLOAT16)
    return any(entry.uses and entry.tensor.dtype in halves for entry in result.ledger.entries)


def _numbers_of(value: Value) -> Print | None:
    """Return the print of the distinct elements of a value, because the value may be expanded."""
    return print_of(Field(np.unique(value.elements))) if isinstance(value, Field) else None


def divisors_of(step: Step) -> Sequence[Value]:
    """Return the unknown divisors of a step."""
    slot = {"invert": 0, "divide": 1}.get(step.name)
    return [step.args[slot]] if slot is not None and isinstance(step.args[slot], Field) else []


def elements_in(shape: Sequence[int]) -> int:
    """Return the number of elements of a shape."""
    return int(np.prod(shape, dtype=np.int64))
