"""A run compared with the predictions made without one: every shape, and the total of multiply-accumulates."""

from __future__ import annotations

import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from itertools import islice
from pathlib import Path
from types import MappingProxyType

import msgspec

from analyzer.account.ledger import Ledger
from analyzer.cost.account import measure_cost
from analyzer.cost.algebra import Size, add, evaluate, hidden_in, text_of
from analyzer.cost.memory.answer import MemoryAnswer, MemoryQuery, file_of
from analyzer.cost.memory.opened import LEVELS
from analyzer.cost.record import CostReport
from analyzer.cost.values import NOTHING, Step, UnshapedError, Value
from analyzer.cost.walk import Walk
from analyzer.cost.work import FREE, WITHOUT_MACS, work_of
from analyzer.errors import CostError, UsageError
from analyzer.model import Graph, Model, Node, Place
from analyzer.model.dtypes import DType
from analyzer.model.wiring import NAMED
from analyzer.process import require_onnxruntime
from analyzer.process.child import Child, OverMemoryError, OverTimeError
from analyzer.process.memory import available
from analyzer.read import read_model
from analyzer.records import Frozen, replace
from analyzer.text import printable
from analyzer.timing.attribution import match_kernels
from analyzer.timing.inputs.feeds import Inputs, plan_feeds
from analyzer.timing.inputs.roles import Roles
from analyzer.timing.record import Axis
from analyzer.timing.request import Feed, Kernel
from analyzer.timing.running.traced import Traced, TracedNode, TracedRun, Tracing, Typed

_PROGRAM = "from analyzer.timing.running.traced import serve; serve()"
_SECONDS = 600.0
_SPARE = 0.1
"""Fraction of the available memory that is left to other processes."""

NOTHING_STORED: Mapping[str, tuple[int, ...]] = MappingProxyType({})


class NotRunError(CostError):
    """Run that fails in a node, perhaps at the sizes of its inputs only."""


@contextmanager
def traced(path: Path, feeds: Sequence[Feed], level: str = "ORT_DISABLE_ALL") -> Iterator[Traced]:
    """Run a model once, in a process of its own; the files of the graph that ran exist as long as the context.

    Raises:
        NotRunError: a node fails.
        CostError: onnxruntime does not load it, or its process ends, or takes more time or memory than it may.
        MissingExtraError: onnxruntime is not installed.
    """
    require_onnxruntime("running a model")
    name = printable(str(path))
    with tempfile.TemporaryDirectory(prefix="onnxledger-") as folder:
        request = Tracing(str(path.absolute()), folder, (tuple(feeds),), level)
        answer = trace_apart(request, name)
        if isinstance(answer, str) or answer.runs[0].why:
            why = answer if isinstance(answer, str) else answer.runs[0].why
            from analyzer.timing.running.isolated import describe_run_error  # only an error needs it

            failure = CostError if isinstance(answer, str) else NotRunError
            raise failure(f"{name}: onnxruntime does not run it: {describe_run_error(why)}")
        yield answer


def trace_apart(request: Tracing, name: str) -> Traced | str:
    """Run a request in a process of its own; return a sentence where onnxruntime does not load the model.

    Raises:
        CostError: the process ends, or takes more time or memory than it may.
    """
    left = available()
    most = None if left is None else int(left * (1 - _SPARE))
    with open(os.devnull, "wb") as log:  # noqa: PTH123 - no path of a file
        try:
            child = Child(_PROGRAM, log=log, environment={"ORT_DISABLE_TELEMETRY": "1"})
        except OSError as error:
            raise CostError(f"{name}: cannot start a process to run it: {error}") from error
        try:
            child.send(msgspec.json.encode(request))
            answer = child.receive(time.monotonic() + _SECONDS, most)
            if answer is None:
                raise CostError(f"{name}: its run ended the process, with exit code {child.end(1)}")
        except OverTimeError:
            raise CostError(f"{name}: its run did not finish within {_SECONDS:g} s") from None
        except OverMemoryError:
            raise CostError(f"{name}: its run took more memory than there is") from None
        finally:
            child.end()
    return msgspec.json.decode(answer, type=Traced | str)


class Differing(Frozen):
    """Value whose shape in a run differs from the predicted one."""

    value: str
    node: str
    op_type: str
    expression: str
    """Predicted shape in the axes of the inputs, as a Python list."""
    predicted: tuple[int, ...]
    """Predicted shape at the sizes of the run."""
    found: tuple[int, ...]


class Compared(Frozen):
    """Comparison of a run with the predictions."""

    calls: int
    """Number of kernel executions."""
    values: int
    """Number of values whose shapes were compared, counted each time that they were computed."""
    differing: tuple[Differing, ...]
    """Differing values, each at its first difference, in the order of the run."""
    unpredicted: int
    """Number of values whose shapes cannot be predicted without a run."""
    macs: int | None
    """Multiply-accumulates of the run, from its own shapes; None where they cannot be counted."""
    why: str = ""
    """Reason why they cannot be counted; empty where they can."""
    operators: tuple[tuple[str, int], ...] = ()
    """Multiply-accumulates by operator, in descending order."""


BEFORE_RUN, PEAK = "packed weights and copies of small tensors", "activations and outputs at the peak"
"""Lines of memory that a run measures: bytes that the session holds before it, and the peak of requests during it."""


class Agreement(StrEnum):
    """Result of a comparison with a run."""

    AGREES = "agrees"
    DIFFERS = "differs"
    NOT_COMPARED = "not-compared"


class MeasuredLine(Frozen):
    """One kind of memory, predicted and measured."""

    line: str
    modelled: int | None
    """Predicted bytes; None where they cannot be predicted."""
    measured: int

    @property
    def unexplained(self) -> int | None:
        """Requested bytes that are not modelled; below 0 where fewer were requested."""
        return None if self.modelled is None else self.measured - self.modelled


class Measured(Frozen):
    """Comparison of a run with the predictions, with a verdict."""

    version: str
    """Version of onnxruntime."""
    at: tuple[tuple[str, int], ...]
    """Sizes of the axes, by their names in expressions."""
    compared: Compared
    predicted: int | None
    """Predicted multiply-accumulates at these sizes, as far as they are known."""
    unknown: int
    """Number of nodes whose work is unknown without a run."""
    memory: tuple[MeasuredLine, ...] = ()

    @property
    def macs(self) -> Agreement:
        """Result for multiply-accumulates: those of the run against the predicted total of all nodes."""
        if self.unknown or self.predicted is None or self.compared.macs is None:
            return Agreement.NOT_COMPARED
        return Agreement.AGREES if self.predicted == self.compared.macs else Agreement.DIFFERS

    @property
    def verdict(self) -> Agreement:
        """Result for shapes, multiply-accumulates and memory, which may be below its prediction and never above."""
        is_more = any((line.unexplained or 0) > 0 for line in self.memory)
        if self.compared.differing or self.macs is Agreement.DIFFERS or is_more:
            return Agreement.DIFFERS
        if not self.compared.values and self.macs is Agreement.NOT_COMPARED:
            return Agreement.NOT_COMPARED
        return Agreement.AGREES


def measure_run(ledger: Ledger, report: CostReport, query: MemoryQuery) -> Measured:
    """Run a model once with optimizations off, and compare the run with the predictions.

    If it does not run at the default sizes of its free axes, and no memory is compared, it runs at others.

    Args:
        ledger: the ledger of a model that is one local file.
        report: the model's cost; if it has a memory, requested memory is compared too.
        query: sizes of the model's axes, and the level of optimization for memory.

    Raises:
        CostError: the model is no single local file, or onnxruntime does not run it.
        MissingExtraError: onnxruntime is not installed.
        ModelReadError: the file cannot be read again.
        UsageError: sizes contradict each other, or name nothing.
    """
    inputs = plan_feeds(ledger, query.shapes, query.past)[0]
    try:
        return _measure_at(ledger, report, query, inputs)
    except NotRunError as error:
        free = _free_axes(inputs.axes)
        if not free:
            raise
        others = () if report.memory is not None else islice(_other_inputs(ledger, query, free), _MOST_RUNS)
        for other in others:
            with suppress(NotRunError):
                return _measure_at(ledger, report, query, other)
        sizes = ", ".join(f"{printable(axis.name or key)}={axis.size}" for key, axis in free.items())
        example = ",".join(f"{printable(axis.name or key)}=N" for key, axis in free.items())
        raise CostError(
            f"{error}, at the default sizes {sizes}; give sizes at which it runs with --shape {example}"
        ) from error


def _free_axes(axes: Sequence[Axis]) -> Mapping[str, Axis]:
    """Return the axes to which neither the user nor the file gives a size, except the batch, by name."""
    return {
        axis.name or f"{axis.input}.{axis.position}": axis
        for axis in axes
        if axis.reason.startswith(("default of ", "as ")) and axis.role != Roles.BATCH
    }


_OTHER_SIZES = (64, 16, 256, 4)
"""Sizes of free axes that are tried where the default does not fit the model."""
_MOST_RUNS = 6
"""Most runs at other sizes."""


def _other_inputs(ledger: Ledger, query: MemoryQuery, free: Mapping[str, Axis]) -> Iterator[Inputs]:
    """Yield inputs of other sizes that no operator refuses: all lengths alike, with an empty cache, and one by one."""
    lengths = [key for key, axis in free.items() if axis.role != Roles.PAST]
    emptied = {key: 0 for key in free if key not in lengths}
    choices = [{**dict.fromkeys(lengths, size), **past} for size in _OTHER_SIZES for past in ({}, emptied)]
    choices += [{key: size} for key in lengths for size in _OTHER_SIZES]
    walk = Walk(ledger.model)
    list(walk.run())
    seen = []
    for choice in choices:
        sizes = replace(query.shapes, sizes=(*query.shapes.sizes, *choice.items()))
        try:
            inputs = plan_feeds(ledger, sizes, query.past)[0]
        except UsageError:
            continue
        at = sizes_at(walk, inputs.axes)
        if at not in seen and measure_cost(ledger, sizes=_by_place(walk, at)).refused is None:
            yield inputs
        seen.append(at)


def _measure_at(ledger: Ledger, report: CostReport, query: MemoryQuery, inputs: Inputs) -> Measured:
    path = file_of(ledger)
    walk = Walk(ledger.model)
    list(walk.run())
    at = sizes_at(walk, inputs.axes)
    if walk.is_contradicted(at):
        walk = Walk(ledger.model, is_strict=True)
        list(walk.run())
    with traced(path, inputs.feeds) as trace:
        compared = compare_run(walk, at, read_model(trace.ran), trace.runs[0])
        lines = (
            ()
            if report.memory is None or query.level not in (None, "none")
            else tuple(_memory(report.memory, trace))
        )
    if report.memory is not None and query.level not in (None, "none"):
        with traced(path, inputs.feeds, LEVELS[query.level]) as other:
            lines = tuple(_memory(report.memory, other))
    whole = measure_cost(ledger, report.by, sizes=_by_place(walk, at))
    return Measured(
        trace.version, tuple(at.items()), compared, whole.at(whole.total.macs), len(whole.unknown), lines
    )


def _by_place(walk: Walk, at: Mapping[str, int]) -> Mapping[str, int]:
    return {f"{axis.input}.{axis.position}": at[axis.name] for axis in walk.axes if axis.name in at}


def _memory(answer: MemoryAnswer, trace: Traced) -> Iterator[MeasuredLine]:
    """Yield the memory held by the session before the run, and the peak of requests during it."""
    if trace.initial_nbytes is None:
        return
    yield MeasuredLine(BEFORE_RUN, answer.needed.initial_nbytes, trace.initial_nbytes)
    peak = answer.needed.peak
    live = [node.live for node in trace.runs[0].nodes if node.live is not None]
    yield MeasuredLine(PEAK, None if peak is None else peak.nbytes, max(live, default=0))


def sizes_at(walk: Walk, axes: Sequence[Axis]) -> Mapping[str, int]:
    """Return the sizes of a walk's axes, from the axes of the inputs."""
    found = {(axis.input, axis.position): axis.size for axis in axes}
    return {
        axis.name: found[axis.input, axis.position]
        for axis in walk.axes
        if (axis.input, axis.position) in found
    }


def compare_run(walk: Walk, at: Mapping[str, int], ran: Model, run: TracedRun) -> Compared:
    """Compare the predicted shapes of a model's values with one run.

    Args:
        walk: finished walk of the model.
        at: the sizes of its axes.
        ran: the graph that ran.
        run: trace of the run.
    """
    nodes = _match(ran, run.nodes)
    nested, main = _by_name(walk), walk.values.get((), {})
    differing: dict[str, Differing] = {}
    values = unpredicted = 0
    macs: Size = 0
    why = ""
    operators: dict[str, int] = defaultdict(int)
    opsets = dict(ran.parts[0].opsets)
    stored = {tensor.name: tensor.shape for graph in ran.graphs for tensor in graph.tensors}
    attached: dict[Place, dict[str, Value]] = defaultdict(dict)
    for graph in ran.graphs:
        for tensor in graph.tensors:
            if tensor.node is not None and tensor.carrier not in NAMED:
                value = Value(tensor.dtype, (tensor.numel,))
                attached[graph.path, tensor.node][tensor.name.rpartition(".")[2]] = value
    for call, node in zip(run.nodes, nodes, strict=True):
        if node is None:
            why = why or _reason_uncounted(
                call, f"{call.op_type} {call.name} matches no node of the graph that ran"
            )
            continue
        made = _slots(node.outputs, call.outputs)
        for name, typed in zip(node.outputs, made or (), strict=False):
            if typed is None or not name:
                continue
            predicted = main.get(name) if call.within is None else nested.get(name)
            if predicted is None:
                continue
            sizes = None if predicted.shape is None else [evaluate(dim, at) for dim in predicted.shape]
            if sizes is None or None in sizes:
                unpredicted += 1
                continue
            values += 1
            shape = tuple(size for size in sizes if size is not None)
            if shape != typed[1] and name not in differing:
                text = f"[{', '.join(map(text_of, predicted.shape or ()))}]"
                differing[name] = Differing(name, node.name, node.op_type, text, shape, typed[1])
        counted = _macs(node, call, opsets.get("ai.onnx", 1), stored, attached[node.place])
        if isinstance(counted, str):
            why = why or counted
        else:
            macs = add(macs, counted)
            operators[node.op_type] += counted
    ranked = sorted(
        ((name, count) for name, count in operators.items() if count), key=lambda row: (-row[1], row[0])
    )
    return Compared(
        len(run.nodes),
        values,
        tuple(differing.values()),
        unpredicted,
        None if why or not isinstance(macs, int) else macs,
        why,
        tuple(ranked),
    )


def _by_name(walk: Walk) -> Mapping[str, Value]:
    """Return the values of nested graphs by name, for names that occur once."""
    found: dict[str, list[Value]] = defaultdict(list)
    for values in walk.values.values():
        for name, value in values.items():
            found[name].append(value)
    return {name: several[0] for name, several in found.items() if len(several) == 1}


def _match(ran: Model, calls: Sequence[TracedNode]) -> list[Node | None]:
    """Return the node of each call: in the main graph by name or by order, in nested graphs by a name unique there."""
    main = [place for place, call in enumerate(calls) if call.within is None]
    graph: Graph = next(graph for graph in ran.graphs if graph.path == ())
    kernels = [Kernel(calls[place].name, calls[place].op_type, "") for place in main]
    places = match_kernels(kernels, graph.nodes)
    nodes: list[Node | None] = [None] * len(calls)
    for place, found in zip(main, places, strict=True):
        nodes[place] = None if found is None else graph.nodes[found]
    bodies: dict[Place, list[Graph]] = defaultdict(list)
    for other in ran.graphs:
        if other.parent is not None:
            bodies[other.parent].append(other)
    for place in reversed(range(len(calls))):  # nested calls come before the call that holds them
        call = calls[place]
        holder = None if call.within is None else nodes[call.within]
        if holder is not None:
            inner = [
                node for body in bodies[holder.place] for node in body.nodes if node.op_type == call.op_type
            ]
            alike = [node for node in inner if node.name == call.name]
            nameless = [node for node in inner if not node.name]
            if len(alike) == 1:
                nodes[place] = alike[0]
            elif not alike and nameless:  # calls have names `<op_type>_<index>`, in the order of their nodes
                names = {
                    each.name for each in calls if (each.within, each.op_type) == (call.within, call.op_type)
                }
                ordered = sorted(names - {node.name for node in inner}, key=lambda name: (len(name), name))
                if len(ordered) == len(nameless) and call.name in ordered:
                    nodes[place] = nameless[ordered.index(call.name)]
    return nodes


def _slots(
    names: Sequence[str], typed: Sequence[Typed], stored: Mapping[str, tuple[int, ...]] = NOTHING_STORED
) -> list[Typed | None] | None:
    """Return the profile's tensors by slot; None where their number does not fit.

    The profile omits slots without a name, and weights that the kernel packed when it was loaded.
    """
    left, made = list(typed), list[Typed | None]()
    lost = sum(map(bool, names)) - len(typed)
    for name in names:
        shape = stored.get(name)
        if lost > 0 and shape is not None and (not left or left[0][1] != shape):
            made.append(("", shape))
            lost -= 1
        else:
            made.append(left.pop(0) if name and left else None)
    return made if not lost and not left else None


_DTYPES = {
    "float": DType.FLOAT, "double": DType.DOUBLE, "float16": DType.FLOAT16, "bfloat16": DType.BFLOAT16,
    "bool": DType.BOOL, "int8": DType.INT8, "uint8": DType.UINT8, "int16": DType.INT16, "uint16": DType.UINT16,
    "int32": DType.INT32, "uint32": DType.UINT32, "int64": DType.INT64, "uint64": DType.UINT64,
    "string": DType.STRING,
}  # fmt: skip


def _value(typed: Typed | None) -> Value:
    return NOTHING if typed is None else Value(_DTYPES.get(typed[0], DType.UNDEFINED), tuple(typed[1]))


def _macs(
    node: Node,
    call: TracedNode,
    opset: int,
    stored: Mapping[str, tuple[int, ...]],
    attached: Mapping[str, Value],
) -> int | str:
    """Return the multiply-accumulates of a call, or the reason why they are not known."""
    inputs, made = _slots(node.inputs, call.inputs, stored), _slots(node.outputs, call.outputs)
    if inputs is None or made is None:
        inputs, made = list(call.inputs), list(call.outputs)
    if node.op_type in WITHOUT_MACS or node.op_type in FREE:
        return 0 if node.is_standard else f"no rule for {node.domain}.{node.op_type}"
    if not node.is_standard:
        return f"no rule for {node.domain}.{node.op_type}"
    step = Step(node, tuple(map(_value, inputs)), opset, attached=attached)
    try:
        work = work_of(step, tuple(map(_value, made)))
    except (UnshapedError, ValueError, IndexError, TypeError, KeyError, ArithmeticError) as error:
        return f"{node.op_type} {node.name}: {error}"
    if work is None:
        return f"no rule for the work of {node.op_type}"
    found = hidden_in(work.macs)
    if found is not None or not isinstance(work.macs, int):
        return f"{node.op_type} {node.name}: {found.reason if found else work.macs}"
    return work.macs


def _reason_uncounted(call: TracedNode, why: str) -> str:
    """Return the reason `why`; "" for a call whose operator never has multiply-accumulates."""
    return "" if call.op_type in FREE or call.op_type in WITHOUT_MACS else why
