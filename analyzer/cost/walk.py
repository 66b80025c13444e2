"""Model -> each node with the shapes of its inputs and outputs, every producer before its readers.

Nested graphs see the values around them; bodies of functions are walked at each call. Of stored tensors, only the
numbers of small ones are read, because shapes are computed from them.
"""

from __future__ import annotations

from collections import ChainMap, deque
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import NamedTuple, TypeAlias

from analyzer.cost.algebra import Hidden, Poly, Size, evaluate, hidden_in, largest, multiply, symbol
from analyzer.cost.compute import COMPUTE
from analyzer.cost.fused import FUSED
from analyzer.cost.layout import LAYOUT
from analyzer.cost.others import OTHERS
from analyzer.cost.values import MOST, MOST_AXES, NOTHING, Element, MisfitError, Step, UnshapedError, Value
from analyzer.model import Graph, GraphPath, Model, Node, Place, StoredTensor, ValueType
from analyzer.model.dtypes import DType
from analyzer.model.functions import called_bodies
from analyzer.model.wiring import NAMED
from analyzer.records import Frozen, Mutable, field, replace
from analyzer.timing.inputs.sizes import printed_axis


class Axis(Frozen):
    """Free axis of an input."""

    name: str
    """Name in expressions: the file's name as a Python identifier."""
    stored_name: str | None
    """Name in the file; None where it has no name."""
    input: str
    position: int


class Branch(NamedTuple):
    """Branch of an If whose condition is not known."""

    owner: tuple[Place, Place | None]
    """The If, and the call of the function that it is in, if any."""
    label: str
    """Name of the If in messages."""
    name: str


class Visit(Frozen):
    """Execution of a node, with its outputs and its number of runs."""

    step: Step
    made: tuple[Value, ...]
    times: Size
    """Number of runs of the body that the node is in; 1 outside of Loop and Scan."""
    place: Place
    """Node that the work is attributed to: for a node in the body of a function, the call."""
    why: str = ""
    """Reason why part of it is unknown; empty where all is known."""
    branch: tuple[Branch, ...] = ()
    """Branches of Ifs that the node is in, the outermost first: the If may not run it."""
    is_closed: bool = False
    """Whether the node has a body that was not walked."""
    is_refused: bool = False
    """Whether the node cannot run with the sizes of its inputs."""
    alike: int | None = None
    """Number shared by nodes with the same operator, inputs and outputs; None for a node that was not compared."""


Scope: TypeAlias = MutableMapping[str, Value]


class Walk(Mutable, dict=True):
    """One walk through a model."""

    model: Model
    bounds: Mapping[str, int] = field(default_factory=dict)
    """Sizes, in elements, of axes that are numbers in this walk, by their names in expressions."""
    axes: list[Axis] = field(default_factory=list)
    values: dict[GraphPath, Scope] = field(default_factory=dict)
    """Known values by graph; for a body, those of its last walk."""
    is_strict: bool = False
    """Whether axes that meet may differ, one of them being 1; else they are assumed to be equal."""
    assumed: dict[tuple[Size, Size], None] = field(default_factory=dict)
    """Sizes that were assumed to be equal, because they meet in one axis."""
    joined: list[Value] = field(default_factory=list)
    """Outputs of the Ifs, Loops and Scans, each time they were walked; visits do not have them."""
    _names: set[str] = field(default_factory=set)
    _symbols_by_name: dict[str, Size] = field(default_factory=dict)
    """Axes in expressions, by their names in the file."""
    _fresh: int = 0
    _inner: int = 0
    """Number of nodes walked in bodies of functions, If, Loop and Scan, counted each time."""
    _values: dict[Value, Value] = field(default_factory=dict)
    """Canonical instance of each value, so that nodes with equal inputs have identical inputs."""
    _alike: dict[tuple[object, ...], _Made] = field(default_factory=dict)
    """Outputs of nodes, by everything that determines them."""

    def __post_init__(self) -> None:
        self._graphs = {graph.path: graph for graph in self.model.graphs}
        self._bodies = called_bodies(self.model)
        self._nested: dict[Place, dict[str, Graph]] = {}
        for graph in self.model.graphs:
            if graph.parent is not None:
                attribute = graph.path[-1].rpartition(".")[2]
                self._nested.setdefault(graph.parent, {})[attribute] = graph

    def run(self) -> Iterator[Visit]:
        """Yield every node of the main graphs and of all bodies that they run."""
        for part in self.model.parts:
            graph = self._graphs.get(part.path)
            if graph is None:
                continue
            opset = dict(part.opsets).get("ai.onnx", 1)
            scope: Scope = {}
            for value_type in graph.signature:
                scope[value_type.name] = self._input(value_type)
            yield from self._graph(graph, scope, _Where(opset))

    # values

    def _input(self, value_type: ValueType) -> Value:
        if value_type.each is not None:
            each = self._input(value_type.each)
            known = each if each.shape is not None else None
            return Value(each.dtype, None, None, "a sequence of tensors", each=known)
        if value_type.kind != "tensor" or value_type.dims is None:
            return Value(value_type.dtype, None, None, f"input {value_type.name} has no rank in the file")
        if len(value_type.dims) > MOST_AXES:
            return Value(value_type.dtype, None, None, _many_axes(value_type.name, len(value_type.dims)))
        dims: list[Size] = []
        for position, dim in enumerate(value_type.dims):
            if isinstance(dim, int):
                dims.append(dim if dim >= 0 else self._axis(value_type.name, position, None))
            else:
                dims.append(self._axis(value_type.name, position, dim))
        return Value(value_type.dtype, tuple(dims))

    def _noted(self, noted: ValueType, value: Value) -> Value:
        """Return a value with the file's own shape annotation, where no rule infers a shape; unknown axes are fresh."""
        if noted.kind != "tensor" or noted.dims is None or len(noted.dims) > MOST_AXES:
            return value
        dims = (
            dim
            if isinstance(dim, int) and dim >= 0
            else self._symbols_by_name[str(dim)]
            if str(dim) in self._symbols_by_name
            else self.fresh(value.why)
            for dim in noted.dims
        )
        return Value(noted.dtype, tuple(dims))

    def _axis(self, name: str, position: int, stored_name: str | None) -> Size:
        if stored_name and stored_name in self._symbols_by_name:
            return self._symbols_by_name[stored_name]
        identifier = printed_axis(stored_name, name, position)
        while identifier in self._names:
            identifier += "_"
        self._names.add(identifier)
        self.axes.append(Axis(identifier, stored_name or None, name, position))
        size = self.bounds[identifier] if identifier in self.bounds else symbol(identifier)
        if stored_name:
            self._symbols_by_name[stored_name] = size
        return size

    def meet(self, a: Size, b: Size) -> Size:
        """Return the size of an axis where two sizes meet: they are assumed equal, or in strict mode, one is 1."""
        if self.is_strict:
            hidden = hidden_in(a) or hidden_in(b)
            return largest(a, b) if hidden is None else self.fresh(hidden.reason)
        first, second = sorted(
            (a, b), key=lambda size: (hidden_in(size) is not None, len(str(size)), str(size))
        )
        self.assumed[first, second] = None
        return first

    def is_contradicted(self, at: Mapping[str, int]) -> bool:
        """Whether sizes that were assumed to be equal differ at these sizes of axes."""
        for a, b in self.assumed:
            ours, theirs = evaluate(a, at), evaluate(b, at)
            if ours is not None and (ours == 1 if theirs is None else ours != theirs):
                return True
        return False

    def fresh(self, reason: str) -> Poly:
        """Return a new size that only a run can tell."""
        self._fresh += 1
        return symbol(Hidden(f"unknown_{self._fresh}", reason))

    def _stored(self, tensor: StoredTensor, *, is_added: bool = False) -> Value:
        data = _small(tensor)
        fill = _alike(tensor) if data is None and is_added else None
        stored = tensor.nbytes or tensor.logical_nbytes  # missing data counts by its logical size
        bits = stored * 8 // tensor.numel if tensor.numel else None
        if len(tensor.shape) > MOST_AXES:
            return Value(tensor.dtype, None, None, _many_axes(tensor.name, len(tensor.shape)), True, bits)
        return Value(tensor.dtype, tensor.shape, data, is_stored=True, bits=bits, fill=fill)

    # graphs

    def _graph(self, graph: Graph, scope: Scope, where: _Where) -> Iterator[Visit]:
        attached: dict[int, dict[str, Value]] = {}
        self.values[graph.path] = {} if where.is_body else scope
        added = {
            node.inputs[2]
            for node in graph.nodes
            if node.op_type == "ScatterElements" and len(node.inputs) > 2
        }
        for tensor in graph.tensors:
            if tensor.carrier in NAMED:
                if tensor.name not in scope or not graph.overridable:
                    scope[tensor.name] = self._stored(tensor, is_added=tensor.name in added)
            else:
                name = tensor.name.rpartition(".")[2]
                attached.setdefault(-1 if tensor.node is None else tensor.node, {})[name] = self._stored(
                    tensor
                )
        for node in _in_order(graph):
            yield from self._node(node, scope, where, attached.get(node.position, {}))

    def _node(
        self, node: Node, scope: Scope, where: _Where, attached: Mapping[str, Value]
    ) -> Iterator[Visit]:
        if node.op_type == "Constant" and node.outputs and node.outputs[0] in scope:
            return
        inputs = tuple(scope.get(name, _LOST) if name else NOTHING for name in node.inputs)
        step = Step(node, inputs, where.opset, where.caller_attributes, self.fresh, self.meet, attached)
        place = where.place or node.place
        self._inner += where.is_body
        body = self._bodies.get(node.place)
        is_call = body is not None and body in self._graphs
        nested = self._nested.get(node.place, {}) if node.op_type in ("If", "Loop", "Scan") else {}
        is_refused = False
        is_closed = bool(is_call or nested) and self._inner > _MOST_INNER
        if is_closed:
            why = f"bodies have over {_MOST_INNER:,} nodes, counted for each run; the rest is skipped"
            made: tuple[Value, ...] = (replace(_LOST, why=why),) * max(len(node.outputs), 1)
            alike = None
        elif body is not None and is_call and where.depth < _DEEPEST:
            yield from self._call(step, self._graphs[body], scope, replace(where, place=place))
            return
        elif nested:
            yield from self._control(step, nested, scope, replace(where, place=where.place))
            return
        else:
            made, why, is_refused, alike = self._make(step)
        if why and not node.is_standard:
            alike = None
            noted = self._graphs[node.graph_path].noted if node.graph_path in self._graphs else {}
            made = tuple(
                self._noted(noted[name], value) if name in noted and value.shape is None else value
                for name, value in zip(node.outputs, made, strict=False)
            )
        self._enter(step, made, scope, where)
        yield Visit(step, made, where.times, place, why, where.branch, is_closed, is_refused, alike)

    def _make(self, step: Step) -> tuple[tuple[Value, ...], str, bool, int | None]:
        """Return a node's outputs, why they are unknown, whether it cannot run, and its number.

        Identical nodes are inferred once.
        """
        node = step.node
        # It may depend on the caller's attributes, or on tensors in attributes.
        if step.caller_attributes or step.attached:
            return *_apply(step), None
        settings = tuple(node.settings.items()) if node.settings else ()
        integers = tuple(node.integers.items()) if node.integers else ()
        inputs = step.inputs
        key = (node.op_type, node.domain, step.opset, len(node.outputs), integers, settings, *map(id, inputs))
        found = self._alike.get(key)
        if found is None:
            before = self._fresh
            made, why, is_refused = _apply(step)
            if self._fresh != before:  # it created a fresh size, which others must not share
                return made, why, is_refused, None
            found = _Made(tuple(map(self._canonical, made)), why, is_refused, len(self._alike), inputs)
            if len(self._alike) >= _MOST_ALIKE:
                return found.values, why, is_refused, None
            self._alike[key] = found
        return found.values, found.why, found.is_refused, found.number

    def _canonical(self, value: Value) -> Value:
        """Return the canonical instance of a value; one with numbers stays itself, because 1 equals 1.0."""
        if (
            value.data is not None
            or value.fill is not None
            or value.items is not None
            or value.each is not None
        ):
            return value
        return self._values.setdefault(value, value)

    def _enter(self, step: Step, made: Sequence[Value], scope: Scope, where: _Where) -> None:
        """Record a node's outputs for their readers."""
        kept = self.values[step.node.graph_path] if where.is_body else None
        for name, value in zip(step.node.outputs, made, strict=False):
            if name:
                scope[name] = value
                if kept is not None:
                    kept[name] = value

    def _call(self, step: Step, body: Graph, scope: Scope, where: _Where) -> Iterator[Visit]:
        inner: Scope = dict(zip(body.inputs, step.inputs, strict=False))
        inner.update(dict.fromkeys(body.inputs[len(step.inputs) :], NOTHING))
        own_attributes = dict(step.attributes())
        yield from self._graph(
            body, inner, replace(where, caller_attributes=own_attributes, depth=where.depth + 1, is_body=True)
        )
        self._enter(step, [inner.get(own, _LOST) for own in body.outputs], scope, where)

    # If, Loop, Scan

    def _control(
        self, step: Step, nested: Mapping[str, Graph], scope: Scope, where: _Where
    ) -> Iterator[Visit]:
        if step.node.op_type == "If":
            yield from self._if(step, nested, scope, where)
        elif "body" in nested:
            yield from self._loop(step, nested["body"], scope, where)

    def _if(self, step: Step, nested: Mapping[str, Graph], scope: Scope, where: _Where) -> Iterator[Visit]:
        chosen = step.inputs[0].data if step.inputs else None
        names = ["then_branch", "else_branch"]
        if chosen and isinstance(chosen[0], (int, float)):
            names = [names[0] if chosen[0] else names[1]]
        ends: list[list[Value]] = []
        for name in names:
            if name not in nested:
                continue
            inner = _body_scope(scope, {})
            branches = where.branch
            if len(names) > 1:
                label = step.node.name or step.node.outputs[0]
                branches = (*branches, Branch((step.node.place, where.place), label, name))
            yield from self._graph(nested[name], inner, replace(where, branch=branches, is_body=True))
            ends.append([inner.get(own, _LOST) for own in nested[name].outputs])
        made = [
            self._join([end[at] for end in ends if at < len(end)]) if name else NOTHING
            for at, name in enumerate(step.node.outputs)
        ]
        self.joined += made
        self._enter(step, made, scope, where)

    def _join(self, values: Sequence[Value]) -> Value:
        """Return the common knowledge of a value that one of several branches produces."""
        if not values:
            return _LOST
        first = values[0]
        if all(each.shape == first.shape for each in values):
            return first if all(each.data == first.data for each in values) else replace(first, data=None)
        shapes = [each.shape for each in values]
        if any(shape is None for shape in shapes) or len({len(shape or ()) for shape in shapes}) > 1:
            return replace(first, shape=None, data=None, why="branches of an If make different ranks")
        dims = tuple(
            column[0] if len(set(column)) == 1 else self.fresh("branches of an If make different sizes")
            for column in zip(*(shape or () for shape in shapes), strict=True)
        )
        return Value(first.dtype, dims)

    def _loop(self, step: Step, body: Graph, scope: Scope, where: _Where) -> Iterator[Visit]:
        """Walk a body whose number of runs is given by a number, or by the length of an input."""
        carried, extra, trips, why = _entries(step, body, self)
        times = multiply(where.times, trips)
        before = len(self.joined)
        for _ in range(_ROUNDS):
            del self.joined[before:]
            body_inputs = dict(zip(body.inputs, [*extra[0], *carried, *extra[1]], strict=False))
            inner = _body_scope(scope, body_inputs)
            found = list(self._graph(body, inner, replace(where, times=times, is_body=True)))
            skip = 1 if step.node.op_type == "Loop" else 0
            ends = [inner.get(name, _LOST) for name in body.outputs[skip:]]
            changed = [_is_other(a, b) for a, b in zip(carried, ends, strict=False)]
            if not any(changed):
                break
            carried = [
                self._widen(a, b) if other else a for a, b, other in zip(carried, ends, changed, strict=False)
            ]
        if step.node.op_type == "Loop" and not why and not _makes_all_runs(body, inner):
            why = "a Loop that may end before its last run"
        yield from (replace(visit, why=visit.why or why) for visit in found)
        made = _results(step, ends, len(carried), trips)
        self.joined += made
        self._enter(step, made, scope, where)

    def _widen(self, a: Value, b: Value) -> Value:
        if a.shape is None or b.shape is None or len(a.shape) != len(b.shape):
            return replace(a, shape=None, data=None, why="a Loop changes its rank")
        dims = tuple(
            x if x == y else self.fresh("a Loop changes its size")
            for x, y in zip(a.shape, b.shape, strict=True)
        )
        return Value(a.dtype, dims)


def _body_scope(scope: Scope, body_values: dict[str, Value]) -> Scope:
    """Return the scope of a body: its own values, backed by those around it, which it does not change."""
    return ChainMap(body_values, *(scope.maps if isinstance(scope, ChainMap) else (scope,)))


class _Where(Frozen):
    """Context shared by all nodes of a walked graph."""

    opset: int
    times: Size = 1
    caller_attributes: Mapping[str, object] = field(default_factory=dict)
    place: Place | None = None
    depth: int = 0
    is_body: bool = False
    branch: tuple[Branch, ...] = ()


_DEEPEST, _ROUNDS = 100, 4
_MOST_INNER = 100_000
"""Maximum number of nodes walked in bodies: nested function calls and Loops multiply without limit."""

_MOST_ALIKE = 20_000
"""Maximum number of distinct nodes that later ones are compared with."""

_LOST = Value(DType.UNDEFINED, None, None, "a value from an unknown source")


class _Made(NamedTuple):
    """Outputs of a node for given inputs."""

    values: tuple[Value, ...]
    why: str
    is_refused: bool
    number: int
    inputs: tuple[Value, ...]
    """Kept alive, because the cache key contains their ids."""


_RULES = (FUSED, LAYOUT, COMPUTE, OTHERS)


def _apply(step: Step) -> tuple[tuple[Value, ...], str, bool]:
    """Infer a node's outputs, with the reason where that fails, and whether the node cannot run with its inputs."""
    node = step.node
    count = max(len(node.outputs), 1)
    rule = None
    if node.is_standard:
        rule = next((rules[node.op_type] for rules in _RULES if node.op_type in rules), None)
    if rule is None:
        why = f"no rule for {node.domain + '.' if node.domain not in ('', 'ai.onnx') else ''}{node.op_type}"
        return (Value(DType.UNDEFINED, None, None, why),) * count, why, False
    try:
        made = tuple(rule(step))
        least = min((dim for value in made for dim in value.shape or () if isinstance(dim, int)), default=0)
        if least < 0:
            raise MisfitError(f"an output would have a size of {least:,}")
    except (UnshapedError, ValueError, IndexError, TypeError, ArithmeticError) as error:
        why = str(error) if isinstance(error, UnshapedError) else f"{node.op_type}: incompatible shapes"
        dtype = step.inputs[0].dtype if step.inputs else DType.UNDEFINED
        is_refused = isinstance(error, MisfitError)
        return (Value(dtype, None, None, why),) * count, why, is_refused
    lost = Value(DType.UNDEFINED, None, None, f"no rule for this output of {node.op_type}")
    made = tuple(
        replace(value, data=None) if value.data and len(value.data) > MOST else value for value in made
    )
    return (*made, *(lost,) * (count - len(made))), "", False


def _many_axes(name: str, count: int) -> str:
    return f"{name} has {count:,} axes, of which at most {MOST_AXES:,} are followed"


_MOST_ADDED = 1 << 16
"""Maximum number of elements of a tensor checked for all being the same number, as the ones that count tokens are."""


def _alike(tensor: StoredTensor) -> Element | None:
    """Return the number that all elements of a tensor are; None where they differ, or are too many."""
    if tensor.numel > _MOST_ADDED or tensor.dtype not in (DType.FLOAT, DType.DOUBLE, DType.FLOAT16):
        return None
    array = tensor.payload.array()
    if array is None or not array.size or array.size != tensor.numel:
        return None
    first = array.reshape(-1)[0]
    return float(first) if (array == first).all() else None


def _small(tensor: StoredTensor) -> tuple[Element, ...] | None:
    """Return the numbers of a tensor that may hold sizes; None for others."""
    is_whole = tensor.dtype.is_integer or tensor.dtype is DType.BOOL
    if tensor.numel > (MOST if is_whole and len(tensor.shape) <= 1 else 16):
        return None
    if not is_whole and tensor.dtype not in (DType.FLOAT, DType.DOUBLE, DType.FLOAT16):
        return None
    array = tensor.payload.array()
    if array is None or array.size != tensor.numel:
        return None
    flat = array.reshape(-1)
    return tuple(int(each) for each in flat) if is_whole else tuple(float(each) for each in flat)


def _in_order(graph: Graph) -> Sequence[Node]:
    """Return the nodes in topological order; those on a cycle last."""
    makers = {name: node.position for node in graph.nodes for name in node.outputs if name}
    if all(makers.get(name, -1) < node.position for node in graph.nodes for name in node.inputs):
        return graph.nodes
    waiting = [{makers[name] for name in node.inputs if name in makers} for node in graph.nodes]
    readers: dict[int, list[int]] = {}
    for at, needs in enumerate(waiting):
        for need in needs:
            readers.setdefault(need, []).append(at)
    left = [len(needs) for needs in waiting]
    ready, order = deque(at for at, count in enumerate(left) if not count), []
    while ready:
        at = ready.popleft()
        order.append(at)
        for reader in readers.get(at, ()):
            left[reader] -= 1
            if not left[reader]:
                ready.append(reader)
    seen = set(order)
    return [graph.nodes[at] for at in (*order, *(at for at in range(len(graph.nodes)) if at not in seen))]


_SCAN_WITHOUT_EXAMPLES = 9
"""First operator set in which the inputs of a Scan have no axis of examples, and no lengths before them."""


def _entries(
    step: Step, body: Graph, walk: Walk
) -> tuple[list[Value], tuple[list[Value], list[Value]], Size, str]:
    """Return a body's carried inputs, the inputs before and after them, its number of runs, and why that is unknown."""
    if step.node.op_type == "Loop":
        count = step.sizes(0)
        trips: Size = count[0] if count else walk.fresh("a Loop whose number of runs is computed from values")
        why = "" if count else "a Loop whose number of runs is computed from values"
        before = [Value(DType.INT64, ()), Value(DType.BOOL, ())]
        return list(step.inputs[2:]), (before, []), trips, why
    if step.opset < _SCAN_WITHOUT_EXAMPLES:
        why = "a Scan of opset 8, whose inputs have an axis of examples"
        return [_LOST] * len(step.inputs), ([], []), walk.fresh(why), why
    try:
        scanned = min(max(step.number("num_scan_inputs", 0), 0), len(step.inputs))
        stored_axes = step.numbers("scan_input_axes") or ()
    except UnshapedError as error:
        return [_LOST] * len(step.inputs), ([], []), walk.fresh(str(error)), str(error)
    states, sliced = (
        list(step.inputs[: len(step.inputs) - scanned]),
        step.inputs[len(step.inputs) - scanned :],
    )
    axes = (*stored_axes, *(0,) * scanned)[:scanned]
    slices, trips = [], 1
    for value, axis in zip(sliced, axes, strict=True):
        dims = value.shape
        if dims is None or not dims:
            return (
                states,
                ([], [_LOST] * scanned),
                walk.fresh("a Scan over an unknown length"),
                "a Scan over an unknown length",
            )
        axis %= len(dims)
        trips = dims[axis]
        slices.append(Value(value.dtype, (*dims[:axis], *dims[axis + 1 :])))
    return states, ([], slices), trips, ""


def _is_other(a: Value, b: Value) -> bool:
    return a.shape is not None and a.shape != b.shape


def _makes_all_runs(body: Graph, inner: Scope) -> bool:
    """Whether a Loop makes all of its runs: its condition is passed through, or always true."""
    name = body.outputs[0] if body.outputs else ""
    makers = {
        out: node.inputs[0]
        for node in body.nodes
        if node.op_type in ("Identity", "Cast") and node.inputs
        for out in node.outputs
    }
    while name in makers:
        name = makers.pop(name)  # pop, so that a cycle ends
    data = inner[name].data if name in inner else None
    return (len(body.inputs) > 1 and name == body.inputs[1]) or bool(data and data[0])


def _results(step: Step, ends: Sequence[Value], carried: int, trips: Size) -> list[Value]:
    """Return the final states, then the outputs that stack one slice for each run."""
    states = [replace(value, data=None) for value in ends[:carried]]
    try:
        axes = step.numbers("scan_output_axes") or (0,) * max(len(ends) - carried, 0)
    except UnshapedError as error:
        return [*states, *(replace(_LOST, why=str(error)) for _ in ends[carried:])]
    stacked = []
    for value, axis in zip(ends[carried:], axes, strict=False):
        if value.shape is None:
            stacked.append(value)
            continue
        place = axis % (len(value.shape) + 1)
        stacked.append(Value(value.dtype, (*value.shape[:place], trips, *value.shape[place:])))
    return [*states, *stacked]
