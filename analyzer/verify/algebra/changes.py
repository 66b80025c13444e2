"""File that differs from the program -> the nodes that differ, one after another, and the expected value of each.

If a value of the file is not the program's, and neither are the values computed from it, a value of the program is
substituted at the first such node. If the following values are right then, that node is the difference.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from analyzer.manifest import Call
from analyzer.model import Node
from analyzer.model.operators import MOVES
from analyzer.reconciliation.lines import UNBALANCED
from analyzer.records import Frozen, replace
from analyzer.verify.algebra.nodes import Operation, operate
from analyzer.verify.algebra.reals import Reals
from analyzer.verify.algebra.sides import Origin, State, elements_in
from analyzer.verify.algebra.values import Field, UnknownError, Value, is_known, shape_of
from analyzer.verify.algebra.watched import print_of
from analyzer.verify.record import Difference, Verdict
from analyzer.verify.verify import name_node
from analyzer.verify.weights import REASONS

_MOST_CHANGES = 32
_MOST_NODES = 48
"""Number of nodes that are tried, from the first wrong one on."""
_MOST_TRIED = 64
"""Number of the program's values that are tried at one node."""
_NEAR = 10
"""Number of following nodes that must show a right value before all are computed."""


class Change(Frozen):
    """A node with a substituted value, and its difference."""

    node: Node
    origin: Origin | None
    """The program's value in its place; None for a node without counterpart in the program."""
    verdict: Verdict
    """DIFFERS if the two differ for sure, else NOT_COMPARED."""
    difference: Difference
    is_before_stop: bool = False
    """Whether the evidence is a right input of an unsupported operator behind it, and not a right output: its operands
    are exchanged, it reads another weight, or it has another number."""
    is_by_value: bool = False
    """Whether it differs for sure because the two values do, in real numbers."""


def find_changes(state: State) -> tuple[list[Change], State]:
    """Substitute values of the program in the file until both agree, or no substitution helps.

    If one value is computed from two wrong ones, neither substitution helps alone: then a node is identified with the
    call that reads its parameter. That search is kept if it succeeds, or gets at least as far as the one without.
    """
    reals = Reals(state)
    found = _follow(state, reals, by_parameters=True)
    if not found[1].is_same:
        found = max((found, _follow(state, reals, by_parameters=False)), key=lambda each: each[1].score)
    changes, after = found
    by_value = [change for change in changes if change.is_by_value]
    if by_value and not reals.shows(after, [change.node for change in changes]):
        changes = [
            replace(change, verdict=Verdict.NOT_COMPARED) if change.is_by_value else change
            for change in changes
        ]
    return changes, after


def _follow(state: State, reals: Reals, *, by_parameters: bool) -> tuple[list[Change], State]:
    found: list[Change] = []
    while not state.is_same and len(found) < _MOST_CHANGES:
        change, after = _next_change(state, reals, by_parameters)
        if change is None or after is None:
            break
        found.append(change)
        state = after
    return found, state


def _next_change(state: State, reals: Reals, by_parameters: bool) -> tuple[Change | None, State | None]:
    nodes = _find_unsettled(state)
    first = [node for node, depth in nodes if not depth]
    for node in first:
        best = _find_best(state, node)
        if best is not None:
            return _change(state, reals, node, *best)
    for node in first if by_parameters else ():
        origin = _find_by_parameter(state, node)
        if origin is not None:
            after = State(
                state.result,
                state.calls,
                state.drawing,
                {**state.substituted, (node.position, 0): origin.value},
                state,
            )
            return _change(state, reals, node, origin, origin.value, after)
    for node in (node for node, depth in nodes if depth):
        best = _find_best(state, node)
        if best is not None:
            return _change(state, reals, node, *best)
    return None, None


def _change(
    state: State, reals: Reals, node: Node, origin: Origin | None, replacement: Value, after: State
) -> tuple[Change, State]:
    difference = _describe(state, node, origin, replacement)
    is_open = (
        state.is_ambiguous
        or _may_be_unsupported(state, node, replacement)
        or _may_be_unsupported_call(state, node)
        or not _has_unsupported_calls(state, node, origin)
    )
    may_be_sure = not (state.has_codes or is_open)
    is_by_number = (
        origin is not None and difference.kind == "attribute" and _has_other_number(state, node, origin.call)
    )
    is_by_value = may_be_sure and not is_by_number and reals.is_different(state, node, origin, replacement)
    is_sure = may_be_sure and (is_by_number or is_by_value)
    is_identified = difference.kind == "weight" or difference.found.endswith(_EXCHANGED)
    is_identified = is_identified or (origin is not None and _has_other_number(state, node, origin.call))
    is_before_stop = is_identified and len(after.shared_prints) > len(state.shared_prints)
    verdict = Verdict.DIFFERS if is_sure else Verdict.NOT_COMPARED
    return Change(node, origin, verdict, difference, is_before_stop, is_by_value), after


def _has_unsupported_calls(state: State, node: Node, origin: Origin | None) -> bool:
    """Whether the file has each unsupported call on which a difference depends, with the same inputs."""
    if not state.drawing.program.doubtful:
        return True
    values = (state.file.values[name] for name in node.inputs if name in state.file.values)
    before = (state.drawing.origins.get(key) for value in values if (key := print_of(value)) is not None)
    doubts = [
        state.drawing.program.doubtful.get(each.call.name, frozenset())
        for each in (origin, *before)
        if each is not None
    ]
    return frozenset().union(*doubts) <= set(state.identified_calls.values())


def _may_be_unsupported(state: State, node: Node, replacement: Value) -> bool:
    """Whether a node may be part of an unsupported operator: its inputs or its result were taken for such a result."""
    if print_of(replacement) in state.drawing.assumed:
        return True
    for each in _region(state, node):
        values = (state.file.values[name] for name in each.inputs if name in state.file.values)
        if each.position in state.file.unsupported or not state.drawing.assumed.isdisjoint(
            map(print_of, values)
        ):
            return bool(state.drawing.assumed)
    return False


def _may_be_unsupported_call(state: State, node: Node) -> bool:
    """Whether a node, with the wrong ones before it, reads the same as an unsupported call that is not identified yet.

    It may be that call in another form. A node that reads a parameter is not, unless the call reads it too.
    """
    program = state.drawing.program
    identified = set(state.identified_calls.values())
    names = {name for name, doubts in program.doubtful.items() if doubts == {name} and name not in identified}
    for call in (each for each in program.calls.calls if each.name in names):
        arguments = {
            print_of(value) for name in call.read("value") if (value := program.value(name)) is not None
        }
        reads = [name for each in _region(state, node) for name in each.inputs]
        tensors = {*call.read("tensor")}
        if any(state.parameters[name] not in tensors for name in reads if name in state.parameters):
            continue
        values = (state.file.values[name] for name in reads if name in state.file.values)
        if not arguments.isdisjoint(map(print_of, values)):
            return True
    return False


_EXCHANGED = " with its operands exchanged"
_ROUNDED = 1e-6
"""Relative difference of numbers that storing in single precision cannot cause."""


def _has_other_number(state: State, node: Node, call: Call) -> bool:
    """Whether an operator and a call have one number each, and these differ, however small the effect."""
    if state.a.is_half:
        return False
    mine = [*_numbers_of(node, state.file.values)]
    theirs = [each for each in (*call.args, *call.kwargs.values()) if isinstance(each, float)]
    return len(mine) == len(theirs) == 1 and not math.isclose(mine[0], theirs[0], rel_tol=_ROUNDED)


def _numbers_of(node: Node, values: Mapping[str, Value]) -> Iterator[float]:
    """Yield the real numbers among the attributes and inputs of a node."""
    yield from (each for each in node.settings.values() if isinstance(each, float))
    for name in node.inputs:
        value = values.get(name)
        if value is not None and is_known(value):
            array = np.asarray(value)
            if array.size == 1 and array.dtype.kind == "f":
                yield float(array.item())


def _find_best(state: State, node: Node) -> tuple[Origin | None, Value, State] | None:
    """Return the substitution at a node after which most values are right; None if none helps."""
    value = state.results.get((node.position, 0))
    best: tuple[Origin | None, Value, State] | None = None
    least = state.score
    for origin, replacement in () if value is None else _candidates(state, node, value):
        if not _helps(state, node, replacement):
            continue
        after = State(
            state.result,
            state.calls,
            state.drawing,
            {**state.substituted, (node.position, 0): replacement},
            state,
        )
        if after.score > least + (origin is not None):
            least = after.score
            best = origin, replacement, after
            if after.is_same:
                break
    return best


def _find_by_parameter(state: State, node: Node) -> Origin | None:
    """Return the only call that reads a parameter of the node, if the call's result is nowhere in the file."""
    value = state.results.get((node.position, 0))
    parameter_names = {state.parameters[name] for name in state.node_names(node) if name in state.parameters}
    if value is None or not parameter_names:
        return None
    found = [
        origin
        for key, origin in state.drawing.origins.items()
        if origin.step is None
        and key not in state.found
        and shape_of(origin.value) == shape_of(value)
        and parameter_names.intersection(origin.call.read("tensor"))
    ]
    return found[0] if len(found) == 1 else None


def _find_unsettled(state: State) -> list[tuple[Node, int]]:
    """Return the nodes that are not settled, each with the number of such nodes before it; near ones come first."""
    unsettled: dict[int, int] = {}
    found = []
    for node in state.graph.nodes:
        if node.position in state.settled:
            continue
        depths = [
            unsettled[maker.position]
            for name in state.node_names(node)
            if (maker := state.makers.get(name)) is not None and maker.position in unsettled
        ]
        unsettled[node.position] = max(depths, default=-1) + 1
        found.append(node)
    found.sort(key=lambda node: (unsettled[node.position] > _NEAR, node.position))
    return [(node, unsettled[node.position]) for node in found[:_MOST_NODES]]


def _candidates(state: State, node: Node, value: Value) -> Iterator[tuple[Origin | None, Value]]:
    """Yield values that may belong at a node: its own inputs, and values of the program that the file lacks."""
    scope = state.ledger.node_scopes.get(node.place) or ""
    shape = shape_of(value)
    for name in dict.fromkeys(state.node_names(node)):
        operand = state.file.values.get(name)
        if isinstance(operand, Field) and shape_of(operand) == shape:
            yield None, operand
    size = elements_in(shape)
    left = [
        origin
        for key, origin in state.drawing.origins.items()
        if key[0] == size and key not in state.found and shape_of(origin.value) == shape
    ]
    left.sort(key=lambda origin: (not is_near(scope, origin.call.module), origin.at))
    for origin in left[:_MOST_TRIED]:
        yield origin, origin.value


def _helps(state: State, node: Node, replacement: Value) -> bool:
    """Whether a substitution at a node makes a following value right that was not before."""
    theirs = dict(state.pairs)
    for name in filter(None, node.outputs[:1]):
        if name in theirs:
            value = state.drawing.program.value(theirs[name])
            if value is not None and state.a.same(replacement, value):
                return True
    if print_of(replacement) in state.drawing.unsupported_prints and any(
        reader.position in state.file.unsupported
        for name in node.outputs
        for reader in state.readers.get(name, ())
    ):
        return True
    is_helpful = False

    def substitute(other: Node, place: int, value: Value) -> Value:
        nonlocal is_helpful
        if (other.position, place) == (node.position, 0):
            return replacement
        value = state.substituted.get((other.position, place), value)
        keys = [print_of(value), *(print_of(step.value) for step in state.a.taken())]
        is_helpful = is_helpful or any(
            key is not None and key in state.drawing.origins and key not in state.found for key in keys
        )
        return value

    state.a.taken()
    state.file.again(state.a, substitute, {node.position}, _NEAR)
    return is_helpful


def is_near(one: str, other: str) -> bool:
    """Whether two modules are the same, or one holds the other; an empty path counts as near."""
    return one == other or one.startswith(f"{other}.") or other.startswith(f"{one}.") or not one or not other


# in words


def _describe(state: State, node: Node, origin: Origin | None, replacement: Value) -> Difference:
    """Describe the difference between a node and the value that belongs in its place."""
    module = state.ledger.node_scopes.get(node.place) or (origin.call.module if origin is not None else None)
    region = [*_region(state, node)]
    kind, parameter, expected, found = _differing(state, node, origin, region)
    if kind != "weight" and _is_exchanged(state, node, replacement):
        kind, found = "input", f"{node.op_type}{_EXCHANGED}"
    reads = [name for each in region for name in state.node_names(each) if name in state.parameters]
    if not reads and kind == "input":
        reads = [*_read_before(state, node)]
    return Difference(module, parameter, name_node(node), kind, expected, found, tuple(dict.fromkeys(reads)))


def _is_exchanged(state: State, node: Node, replacement: Value) -> bool:
    """Whether the node would compute the expected value with two of its operands exchanged."""
    values = [state.file.values.get(name) if name else None for name in node.inputs]
    opset = dict(state.ledger.model.opsets).get("ai.onnx", 0)
    for one, two in ((0, 1), (1, 2)):
        if len(values) <= two or values[one] is None or values[two] is None:
            continue
        exchanged = [*values]
        exchanged[one], exchanged[two] = exchanged[two], exchanged[one]
        try:
            made = operate(Operation(state.a, node, exchanged, None, opset))[0]
        except (UnknownError, ValueError, TypeError, IndexError, AttributeError):
            continue
        finally:
            state.a.taken()
        if made is not None and state.a.same(made, replacement):
            return True
    return False


def _read_before(state: State, node: Node) -> Iterator[str]:
    """Yield the stored parameters that the nearest nodes before a node read."""
    pending, seen = [node], {node.position}
    while pending:
        each = pending.pop(0)
        for name in state.node_names(each):
            maker = state.makers.get(name)
            if maker is None or maker.position in seen or len(seen) >= _MOST_NODES:
                continue
            seen.add(maker.position)
            own = [parameter for parameter in state.node_names(maker) if parameter in state.parameters]
            yield from own
            if not own:
                pending.append(maker)


def _differing(
    state: State, node: Node, origin: Origin | None, region: Sequence[Node]
) -> tuple[str, str | None, str, str]:
    """Return kind, parameter, PyTorch's side in words, and the file's side in words."""
    lines = {line.key[1]: line for line in state.result.entries if not line.key[0]}
    for each in region:
        for name in state.node_names(each):
            line = lines.get(name)
            if line is not None and line.line in UNBALANCED:
                expected = "nothing there" if line.parameter is None else line.parameter
                return "weight", name, expected, REASONS.get(line.line, line.line.value)
    shown = [each for each in region if each.op_type not in MOVES] or region
    found = ", ".join(_describe_node(each, state.file.values) for each in shown)
    if origin is None:
        return "operator", None, "nothing there", found
    call = origin.call
    theirs = _describe_call(call)
    own = [*call.read("tensor")]
    before = [maker for name in state.node_names(node) if (maker := state.makers.get(name)) is not None]
    for each in (*region, *(maker for maker in before if _is_of_another(state, maker, call))):
        for name in state.node_names(each):
            parameter = state.parameters.get(name)
            if parameter is not None and own and parameter not in own:
                return "weight", name, " and ".join(own), f"reads {parameter}"
    if _reads_other(state, node, origin):
        left_out = _left_out(state, node, origin)
        if left_out is not None:
            return "operator", None, f"{_describe_call(left_out)} before it", found
        return "input", None, theirs, f"{found} of another value"
    alike = node.op_type.lower().replace("normalization", "norm") == call.operator.replace("_", "")
    if alike and _has_same_numbers(state, node, call):
        return "input", None, theirs, f"{found} of another value, or of its transpose"
    return ("attribute" if alike else "operator"), None, theirs, found


def _has_same_numbers(state: State, node: Node, call: Call) -> bool:
    """Whether an operator and a call have the same numbers, so that only their inputs can differ."""
    mine = [each for each in node.settings.values() if isinstance(each, float)]
    mine += [*node.integers.values(), *_numbers_of(node, state.file.values)]
    arguments = [*call.args, *call.kwargs.values()]
    theirs = [each for each in arguments if isinstance(each, (int, float)) and not isinstance(each, bool)]
    return sorted(map(float, set(mine))) == sorted(map(float, set(theirs)))


def _is_of_another(state: State, node: Node, call: Call) -> bool:
    """Whether a node's result is an intermediate value of another call of the program."""
    key = state.prints.get((node.position, 0))
    origin = None if key is None else state.drawing.origins.get(key)
    return origin is not None and origin.step is not None and origin.call is not call


def _region(state: State, node: Node) -> Iterator[Node]:
    """Yield a node and the wrong nodes before it, the first one first."""
    done: set[int] = set()

    def visit(each: Node) -> Iterator[Node]:
        if each.position in done or len(done) >= _NEAR:
            return
        done.add(each.position)
        for name in state.node_names(each):
            maker = state.makers.get(name)
            if maker is not None and not state.is_right(maker):
                yield from visit(maker)
        yield each

    yield from visit(node)


def _reads_other(state: State, node: Node, origin: Origin) -> bool:
    """Whether a node does the program's computation on other values."""
    values = [state.file.values.get(name) for name in node.inputs if name and name not in state.tensors]
    mine = {print_of(value) for value in values if isinstance(value, Field)}
    if origin.step is not None:
        theirs = {print_of(value) for value in origin.step.args if isinstance(value, Field)}
    else:
        theirs = set()
        for arg in origin.call.read("value"):
            value = state.drawing.program.value(arg)
            if isinstance(value, Field):
                theirs.add(print_of(value))
    return bool(mine and theirs) and not mine <= theirs and (origin.step is None or len(mine) == len(theirs))


def _left_out(state: State, node: Node, origin: Origin) -> Call | None:
    """Return the call, of a value and numbers alone, whose result PyTorch reads where the node reads that value."""
    program = state.drawing.program
    mine = {
        print_of(value)
        for name in node.inputs
        if name and isinstance(value := state.file.values.get(name), Field)
    }
    read = set(origin.call.read("value"))
    for each in program.calls.calls:
        operands = [*each.read("value")]
        if each.name not in read or len(operands) != 1 or any(each.read("tensor")):
            continue
        value = program.value(operands[0])
        if isinstance(value, Field) and print_of(value) in mine:
            return each
    return None


def _describe_node(node: Node, values: Mapping[str, Value]) -> str:
    """Return an operator with its attributes and the numbers among its inputs, in words."""
    settings = {**node.integers, **node.settings}
    details = [f"{name} {_format_value(value)}" for name, value in sorted(settings.items())]
    for name in node.inputs:
        value = values.get(name)
        if value is not None and is_known(value) and np.asarray(value).size == 1:
            details.append(_format_value(np.asarray(value).item()))
    return f"{node.op_type} ({', '.join(details)})" if details else node.op_type


def _describe_call(call: Call) -> str:
    """Return a call with its numbers, in words."""
    details = [
        _format_value(each)
        for each in call.args
        if isinstance(each, (int, float)) and not isinstance(each, bool)
    ]
    details += [
        f"{name} {_format_value(each)}"
        for name, each in sorted(call.kwargs.items())
        if isinstance(each, (int, float, str))
    ]
    return f"{call.operator} ({', '.join(details)})" if details else call.operator


def _format_value(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
