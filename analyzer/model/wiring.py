"""Model -> index of the provider and the readers of each value, which all rules query (`analyzer.graph` draws it)."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from analyzer.model import Carrier, Graph, GraphPath, Key, Model, Node, Place, StoredTensor
from analyzer.model.functions import called_bodies
from analyzer.model.operators import DECODES, MEASURES, MOVES, Slot, operator_of
from analyzer.records import Mutable, field

CARRIED = -1
"""Slot of a tensor that the reading node carries in its own attributes."""

_INITIALIZERS = frozenset({Carrier.INITIALIZER, Carrier.SPARSE_INITIALIZER})
_CONSTANTS = frozenset({Carrier.CONSTANT, Carrier.SPARSE_CONSTANT, Carrier.CONSTANT_LIST})
NAMED = _INITIALIZERS | _CONSTANTS
"""Carriers whose tensor has the name of a value. For a Constant node, the tensor provides its output."""


STORED, GRAPH_INPUT, ELSEWHERE = -1, -2, -3
"""Entries of `Wiring.makers` for an input that no node of the graph makes: a stored tensor; an input of the graph; or
the rest: a value of an enclosing graph, an undefined name, or an omitted input."""


_MOST_IDENTITIES = 8
"""Most Identity nodes through which a loop body passes a state on."""


class Reader(NamedTuple):
    """Node that reads a value, and the position of the input that does."""

    node: Node
    slot: int


_make_reader: Callable[[Iterable[Any]], Reader] = functools.partial(tuple.__new__, Reader)
"""Constructor of a reader from the pair of its fields, in a fifth of the time of a call of the class."""


class GraphInput(NamedTuple):
    """Input of a graph, given by a caller or by the node that holds the graph."""

    path: GraphPath
    name: str


Provider = StoredTensor | Node | GraphInput


class _Value(NamedTuple):
    """Value on the way to its readers."""

    path: GraphPath
    """Graph to which the value belongs."""
    name: str
    via: Place | None
    """Call through which the walk entered its graph, if that is a function body."""


_NOWHERE: GraphPath = ("",)
"""Path of no graph, looked up for a node that calls nothing."""

_OPERANDS = frozenset({Slot.DATA, Slot.CODES, Slot.TABLE, Slot.LEARNED})


def is_passed(reader: Reader, past: Collection[str]) -> bool:
    """Whether a reader is one of these operators and passes on the value that it reads at that input.

    It moves, decodes or looks up the value, and does not use it as a shape, a scale or an index.
    """
    node, slot = reader
    if node.op_type not in past or slot < 0 or not node.is_standard:
        return False
    known = operator_of(node)
    if known is None:
        return False
    return known.passes_on(slot) if known.moved != frozenset() else known.slot(slot) in _OPERANDS


def _first_element_reader(readers: Sequence[Reader]) -> Reader | None:
    """Return the first reader that uses an element of the value, as Shape and Size do not; else the first reader."""
    if len(readers) == 1:
        return readers[0]
    element_readers = (reader for reader in readers if reader.node.op_type not in MEASURES)
    return next(element_readers, next(iter(readers), None))


class Wiring(Mutable, dict=True):
    """Index of providers and readers. Names belong to one graph; nested graphs also see those around them."""

    parents: dict[GraphPath, GraphPath]
    """Enclosing graph of each nested graph. A function body and a training graph have none."""
    providers: dict[GraphPath, dict[str, Provider]] = field(default_factory=dict)
    makers: dict[GraphPath, list[tuple[int, ...]]] = field(default_factory=dict)
    """For each node of a graph, by position, and each of its inputs: the position of the node of this graph that makes
    it; else STORED, GRAPH_INPUT or ELSEWHERE. Loops over all nodes use this, because a lookup by name takes twice as
    long."""
    undefined: list[Key] = field(default_factory=list)
    """Values that are read but have no provider."""
    unsorted: list[Key] = field(default_factory=list)
    """Values that a node reads before they are computed."""
    repeated: list[Key] = field(default_factory=list)
    """Values that are computed more than once, or both computed and given."""
    _nodes: dict[GraphPath, tuple[Node, ...]] = field(default_factory=dict)
    _order: dict[GraphPath, int] = field(default_factory=dict)
    """Position of each graph in the file."""
    is_plain: bool = True
    """Whether each graph has a path of its own."""
    _reads: dict[GraphPath, dict[str, list[Reader]]] = field(default_factory=dict)
    """Readers of stored tensors and graph inputs, in file order, by the graph that provides the value and its name."""
    _parts: tuple[Graph, ...] = ()
    """All graphs, including several with one path."""

    graphs: dict[GraphPath, Graph] = field(default_factory=dict)
    """Graphs by path; the first if several have one path."""
    nested: dict[Place, list[Graph]] = field(default_factory=dict)
    """Bodies of each If, Loop or Scan node that holds any."""
    carried: dict[Place, list[StoredTensor]] = field(default_factory=dict)
    """Tensors in the attributes of each node that carries any, without those that provide a named value."""
    calls: dict[Place, GraphPath] = field(default_factory=dict)
    """Function that each calling node calls (`analyzer.model.functions.called_bodies`)."""
    _bodies: dict[GraphPath, Graph] = field(default_factory=dict)
    """Bodies of the called functions."""
    _sites: dict[GraphPath, list[Node]] = field(default_factory=dict)
    """Nodes that call each function, in file order."""
    _inner: dict[Key, Provider | None] = field(default_factory=dict)
    """Provider of each function output within the function; one of its own inputs if the function passes it through."""
    _last_read_by: tuple[Sequence[StoredTensor], list[list[Reader]]] = ((), [])
    """Tensors of the last `read_by`, and their readers."""
    _origins: dict[Key, Provider | None] = field(default_factory=dict)
    """Provider of each value, with calls followed (`find`)."""
    _ends: dict[tuple[frozenset[str], bool], dict[_Value, _Value]] = field(default_factory=dict)
    """For each set of passed operators, and with or without calls followed: the last value of the chain that each value
    starts."""

    def find(self, path: GraphPath, name: str) -> Provider | None:
        """Return the node, graph input or stored tensor that provides a name visible in a graph; None if undefined.

        Calls are followed: the provider of a call's output is the node of the body that computes it, and the provider
        of a body's input is that of the argument if one node calls the function. If several nodes call it, its inputs
        provide themselves.
        """
        found = self.look_up(path, name)
        if not self.calls or found is None or isinstance(found, StoredTensor):
            return found
        return self._follow_back(found, name)

    def look_up(self, path: GraphPath, name: str) -> Provider | None:
        """Return the provider of a name in a graph or those around it, without following calls of functions."""
        own = self.providers[path].get(name)
        if own is not None:
            return own
        place = self.place(path, name)
        return None if place is None else self.providers[place][name]

    def place(self, path: GraphPath, name: str) -> GraphPath | None:
        """Return the graph to which a name visible in a graph belongs: the graph itself first, then those around it."""
        around: GraphPath | None = path
        while around is not None:
            if name in self.providers[around]:
                return around
            around = self.parents.get(around)
        return None

    def is_in_order(self, path: GraphPath) -> bool:
        """Whether each node of a graph comes after the producers of its inputs, and no value is computed twice.

        Constant nodes are not checked: their stored tensor is the provider.
        """
        return all(each != path for each, _ in itertools.chain(self.unsorted, self.repeated))

    def node_at(self, place: Place) -> Node:
        """Return the node at a place.

        Raises:
            KeyError: no graph has this path.
            IndexError: the graph has fewer nodes.
        """
        return self._nodes[place[0]][place[1]]

    def find_arguments(self, declared: GraphInput) -> list[Provider | None]:
        """Return the providers of a function's input in its calls, in file order; empty for inputs of other graphs."""
        body = self._bodies.get(declared.path)
        if body is None:
            return []
        index = body.inputs.index(declared.name)
        return [
            self.find(site.graph_path, site.inputs[index]) if index < len(site.inputs) else None
            for site in self._sites[declared.path]
        ]

    def _follow_back(self, found: Provider, name: str) -> Provider | None:
        """Follow a value into the functions that compute it, and out again to the arguments of these calls.

        The origin of a body's output is kept for all callers, and so is the origin of each value: functions may call
        each other in a chain of thousands, and rules ask for each value of each.
        """
        entered: list[tuple[Node, Key]] = []
        inside: set[GraphPath] = set()
        outer_keys: list[Key] = []  # values seen from outside any call
        seen: set[tuple[GraphPath, str, int]] = set()
        following: Provider | None = found
        while following is not None and not isinstance(following, StoredTensor):
            found = following
            path = found.path if isinstance(found, GraphInput) else found.graph_path
            key = (path, name)
            if not entered:
                if key in self._origins:
                    following = self._origins[key]
                    break
                outer_keys.append(key)
            state = (path, name, len(entered))
            if state in seen:
                return found  # functions that call each other in a cycle
            seen.add(state)
            if isinstance(found, Node) and (body := self._bodies.get(self.calls.get(found.place, _NOWHERE))):
                index = found.outputs.index(name)
                if index >= len(body.outputs):
                    break
                inner = (body.path, body.outputs[index])
                known = self._inner.get(inner, found)
                if isinstance(known, GraphInput) and known.path == body.path:
                    place = body.inputs.index(known.name)
                    path, name = found.graph_path, found.inputs[place] if place < len(found.inputs) else ""
                elif inner in self._inner:
                    following = known
                    break
                elif body.path in inside:
                    return found
                else:
                    entered.append((found, inner))
                    inside.add(body.path)
                    path, name = inner
            elif isinstance(found, GraphInput) and path in self._bodies:
                sites = self._sites[path]
                is_return = bool(entered) and self.calls[entered[-1][0].place] == path
                if is_return:
                    site, inner = entered.pop()
                    inside.remove(path)
                    self._inner[inner] = found
                elif len(sites) == 1 and not entered:
                    [site] = sites
                else:
                    break
                index = self._bodies[path].inputs.index(name)
                path, name = site.graph_path, site.inputs[index] if index < len(site.inputs) else ""
            else:
                break
            following = self.look_up(path, name) if name else None
        for _, inner in entered:
            self._inner[inner] = following
        for key in outer_keys:
            self._origins[key] = following
        return following

    def readers(
        self, provider: StoredTensor | Node, past: Collection[str] = (), *, inlined: bool = True
    ) -> list[Reader]:
        """Return the readers of the values that a tensor or a node provides, in file order, one for each reading input.

        Calls of functions are followed: the nodes of the body that read the argument are the readers, and the readers
        of the body's outputs are those of the call's outputs.

        Args:
            provider: a stored tensor, or a node with all of its outputs.
            past: names of operators to pass when they move or decode the value: the readers of their output take their
                place. An operator that computes with the value is not passed.
            inlined: whether calls are followed. If not, a call is itself a reader, and a body ends at its outputs.
        """
        found = self._direct(provider)
        if not past and not (inlined and self.calls):
            return found
        return self._follow(provider, found, past, inlined=inlined)

    def read_by(self, tensors: Sequence[StoredTensor]) -> list[list[Reader]]:
        """Return the `readers` of each stored tensor, with calls as readers; much faster for many than one by one.

        The last answer is kept, because every stage asks for the tensors of one model.
        """
        last_tensors, known = self._last_read_by
        if len(last_tensors) == len(tensors) and all(map(operator.is_, last_tensors, tensors)):
            return known
        found: list[list[Reader]] = []
        nothing: list[Reader] = []
        at: GraphPath | None = None
        for tensor in tensors:
            if tensor.graph_path is not at:
                at = tensor.graph_path
                own, reads = self.providers[at], self._reads[at]
            name = tensor.name
            if tensor.node is not None:
                found.append(self._direct(tensor))
            elif own.get(name) is tensor:
                found.append(reads.get(name) or nothing)
            else:
                found.append(nothing)
        self._last_read_by = tensors, found
        return found

    def kept_in_body(self, reader: Reader) -> GraphInput | None:
        """Return the input of a Loop's or Scan's body that equals, in each iteration, what its node reads at an input.

        This is a state that the body passes on unchanged, as TensorFlow's loops do with their weights. None if the body
        computes it anew, or if it is not a state.
        """
        node, slot = reader
        if node.op_type not in ("Loop", "Scan") or not node.is_standard:
            return None
        body = next(iter(self.nested.get(node.place, ())), None)
        if body is None:
            return None
        if node.op_type == "Loop":  # (trip count, condition, states) -> (condition, states, scans)
            input_index, output_index = slot, slot - 1
            is_state = 2 <= slot < len(body.inputs)
        else:  # (states, scans) -> (states, scans)
            input_index = output_index = slot
            is_state = slot < len(body.inputs) - node.integers.get("num_scan_inputs", 0)
        if not is_state or output_index >= len(body.outputs):
            return None
        name = body.outputs[output_index]
        for _ in range(_MOST_IDENTITIES):
            found = self.look_up(body.path, name)
            if isinstance(found, GraphInput):
                return found if found == GraphInput(body.path, body.inputs[input_index]) else None
            if not isinstance(found, Node) or found.op_type != "Identity" or not found.inputs:
                return None
            name = found.inputs[0]
        return None

    def kept_outside(self, graph_input: GraphInput) -> Provider | None:
        """Return the provider of the state that a Loop or Scan passes on unchanged as this input; None if none."""
        body = self.graphs.get(graph_input.path)
        if body is None or body.parent is None:
            return None
        path, position = body.parent
        holder = self._nodes[path][position]
        for slot, name in enumerate(holder.inputs):
            if name and self.kept_in_body(Reader(holder, slot)) == graph_input:
                return self.find(path, name)
        return None

    def readers_of_input(self, graph_input: GraphInput) -> list[Reader]:
        """Return the nodes that read a graph's input, in its body and in the graphs nested in it."""
        return list(self._readers_at(graph_input.path, graph_input.name))

    def computing(self, tensors: Sequence[StoredTensor]) -> list[Reader | None]:
        """Return for each tensor the first reader that computes with it, in file order; for one only moved, the mover.

        Nodes that move, cast or decode the tensor (Transpose, Reshape, Cast, DequantizeLinear) are passed; so is the
        decoder of which the tensor is the scale. Readers that take only its shape come last.
        """
        past = frozenset(MOVES | DECODES)
        firsts: dict[Place, Reader | None] = {}  # thousands of tensors may go into one Concat

        def read(tensor: StoredTensor, direct: list[Reader]) -> list[Reader]:
            if not self.is_plain or self._is_returned(tensor.graph_path, (tensor.name,)):
                return self.readers(tensor, past=past) or self.readers(tensor)
            for each in direct:
                if is_passed(each, past):
                    self._look_past(each.node, past, firsts)
            return self._resolve_passed(direct, past, firsts) or self.readers(tensor)

        found: list[Reader | None] = []
        is_simple = self.is_plain and not self.calls
        for tensor, direct in zip(tensors, self.read_by(tensors), strict=True):
            if is_simple and len(direct) == 1 and direct[0].node.op_type not in past:  # nearly all
                found.append(direct[0])
            else:
                found.append(self._computing(read(tensor, direct), past))
        return found

    def _look_past(self, node: Node, past: frozenset[str], firsts: dict[Place, Reader | None]) -> None:
        """Store in `firsts` the first reader past a passed node, and past each passed node after it."""
        waiting, seen = [node], set[Place]()
        while waiting:
            last = waiting[-1]
            readers = self._direct(last) if last.place not in firsts else []
            inner = [each.node for each in readers if is_passed(each, past)] if last.place not in seen else []
            seen.add(last.place)
            inner = [each for each in inner if each.place not in firsts and each.place not in seen]
            if not inner:
                if last.place not in firsts:
                    is_returned = self._is_returned(last.graph_path, last.outputs)
                    firsts[last.place] = _first_element_reader(
                        self.readers(last, past=past)
                        if is_returned
                        else self._resolve_passed(readers, past, firsts)
                    )
                waiting.pop()
            waiting += inner

    def _is_returned(self, path: GraphPath, names: Iterable[str]) -> bool:
        """Whether a called function returns one of these values, so that the callers' nodes read it too."""
        body = self._bodies.get(path)
        return body is not None and not set(body.outputs).isdisjoint(names)

    def _resolve_passed(
        self, direct: Sequence[Reader], past: frozenset[str], firsts: Mapping[Place, Reader | None]
    ) -> list[Reader]:
        """Return readers in file order: a passed node becomes the first reader past it, a call those in its body."""
        if not self.calls and not any(is_passed(each, past) for each in direct):
            return list(direct)
        found: dict[tuple[Place, int], Reader] = {}
        for each in direct:
            if is_passed(each, past) and each.node.place not in self.calls:
                first = firsts.get(each.node.place)
                within = [] if first is None else [first]
            else:
                within = self._within(each, past)
            found.update(((other.node.place, other.slot), other) for other in within)
        return sorted(found.values(), key=self._file_order)

    def _within(self, reader: Reader, past: Collection[str]) -> list[Reader]:
        """Return a reader; for a call, the readers in the function's body and past it."""
        if not self._is_entered(reader):
            return [reader]
        value = self._enter(reader)
        return [] if value is None else self._collect([value], past, inlined=True)

    def _computing(self, readers: list[Reader], past: frozenset[str]) -> Reader | None:
        found = _first_element_reader(readers)
        if found is not None and found.node.op_type in DECODES:
            return _first_element_reader(self.readers(found.node, past=past)) or found
        return found

    def _direct(self, provider: StoredTensor | Node) -> list[Reader]:
        if isinstance(provider, StoredTensor) and provider.node is None:  # the usual provider of a query
            path, name = provider.graph_path, provider.name
            return self._readers_at(path, name) if self.providers[path].get(name) is provider else []
        if isinstance(provider, Node):
            found = [self._readers_of(provider, name) for name in provider.outputs]
            return found[0] if len(found) == 1 else sorted(itertools.chain(*found), key=self._file_order)
        if provider.node is not None and provider.carrier not in _CONSTANTS:
            return [Reader(self._nodes[provider.graph_path][provider.node], CARRIED)]
        return self._readers_of(provider, provider.name)

    def _file_order(self, reader: Reader) -> tuple[int, int, int]:
        return self._order[reader.node.graph_path], reader.node.position, reader.slot

    def _readers_of(self, provider: StoredTensor | Node, name: str) -> list[Reader]:
        path = provider.graph_path
        if self.providers[path].get(name) is not provider:
            return []  # another one provides the name
        return self._readers_at(path, name)

    def _readers_at(self, path: GraphPath, name: str) -> list[Reader]:
        is_computed = type(self.providers[path].get(name)) is Node
        return (self._reads_of_computed if is_computed else self._reads)[path].get(name, [])

    @functools.cached_property
    def _reads_of_computed(self) -> dict[GraphPath, dict[str, list[Reader]]]:
        """Readers of nodes' values, in the form of `_reads`; unused if no node prepares a large graph's tensors."""
        found: dict[GraphPath, dict[str, list[Reader]]] = {path: {} for path in self.providers}
        for part in self._parts:
            path, own = part.path, self.providers[part.path]
            for node in part.nodes:
                for slot, name in enumerate(node.inputs):
                    place = path if name in own else self.place(path, name)
                    if place is not None and type(self.providers[place][name]) is Node:
                        found[place].setdefault(name, []).append(_make_reader((node, slot)))
        return found

    def _follow(
        self, provider: StoredTensor | Node, direct: list[Reader], past: Collection[str], *, inlined: bool
    ) -> list[Reader]:
        """Walk from value to value: into functions, out of them, and past operators that pass their input on."""
        is_called = bool(self.calls) and (
            provider.graph_path in self._bodies or any(reader.node.place in self.calls for reader in direct)
        )
        if not is_called and (
            not past or (self.is_plain and not any(is_passed(each, past) for each in direct))
        ):
            return direct
        outputs = provider.outputs if isinstance(provider, Node) else (provider.name,)
        if isinstance(provider, StoredTensor) and provider.carrier not in NAMED:
            return direct
        own = self.providers[provider.graph_path]
        waiting = [_Value(provider.graph_path, name, None) for name in outputs if own.get(name) is provider]
        return self._collect(waiting, past, inlined=inlined)

    def _collect(self, waiting: list[_Value], past: Collection[str], *, inlined: bool) -> list[Reader]:
        """Return the readers of some values and of the values that those become, in file order."""
        seen, found = set(waiting), dict[tuple[Place, int], Reader]()
        ends = self._ends.setdefault((frozenset(past), inlined), {})
        while waiting:
            value = waiting.pop()
            if (end := self._end_of_chain(value, past, ends, inlined=inlined)) != value:
                if end in seen:
                    continue
                seen.add(end)
                value = end
            onwards: list[_Value] = []
            for reader in self._readers_at(value.path, value.name):
                if inlined and self._is_entered(reader):
                    entered = self._enter(reader)
                    if entered is not None:
                        onwards.append(entered)
                elif past and is_passed(reader, past):
                    node = reader.node
                    onwards += (_Value(node.graph_path, name, value.via) for name in node.outputs if name)
                else:
                    found[reader.node.place, reader.slot] = reader
            if inlined and self._is_returned(value.path, (value.name,)):
                onwards += self._returned_values(value)
            onwards = [following for following in onwards if following not in seen]
            seen.update(onwards)
            waiting += onwards
        return sorted(found.values(), key=self._file_order)

    def _end_of_chain(
        self, value: _Value, past: Collection[str], ends: dict[_Value, _Value], *, inlined: bool
    ) -> _Value:
        """Return the last value of the chain that a value starts, while each value has one reader and it is passed.

        The end is kept for each value of the chain: if thousands of tensors are joined one after another, each has the
        whole chain before it.
        """
        chain: dict[_Value, None] = {}
        while value not in ends and value not in chain:
            readers = self._readers_at(value.path, value.name)
            if len(readers) != 1 or not is_passed(readers[0], past):
                break
            node = readers[0].node
            is_call = self._is_entered(readers[0]) or self._is_returned(value.path, (value.name,))
            outputs = [name for name in node.outputs if name]
            if (inlined and is_call) or len(outputs) != 1:
                break
            chain[value] = None
            value = _Value(node.graph_path, outputs[0], value.via)
        end = ends.get(value, value)
        ends.update(dict.fromkeys(chain, end))
        return end

    def _is_entered(self, reader: Reader) -> bool:
        """Whether a reader is a call whose function has an input for the value."""
        called = self._bodies.get(self.calls.get(reader.node.place, _NOWHERE))
        return called is not None and 0 <= reader.slot < len(called.inputs)

    def _enter(self, reader: Reader) -> _Value | None:
        """Return the function's input that a call's argument becomes; None if another value has its name there."""
        called = self._bodies[self.calls[reader.node.place]]
        input_name = called.inputs[reader.slot]
        if isinstance(self.providers[called.path].get(input_name), GraphInput):
            return _Value(called.path, input_name, reader.node.place)
        return None

    def _returned_values(self, value: _Value) -> Iterator[_Value]:
        """Yield the values that a body's output becomes at the call through which it was entered, else at all calls."""
        path, position = value.via or ((), -1)
        sites = self._sites[value.path] if value.via is None else [self._nodes[path][position]]
        for site in sites:
            for name, inner in zip(site.outputs, self._bodies[value.path].outputs, strict=False):
                if inner == value.name and name and self.providers[site.graph_path].get(name) is site:
                    yield _Value(site.graph_path, name, None)

    def producers(self, node: Node) -> Iterator[StoredTensor | Node]:
        """Yield the tensors and nodes that provide a node's inputs, in their order."""
        for name in node.inputs:
            provider = self.find(node.graph_path, name) if name else None
            if provider is not None and not isinstance(provider, GraphInput):
                yield provider


def connect(model: Model) -> Wiring:
    """Index every name that a node reads.

    An undefined name connects nothing: the file is invalid there, but can still be counted.
    """
    wiring = Wiring({part.path: part.parent[0] for part in model.graphs if part.parent is not None})
    wiring._parts = model.graphs
    for part in model.graphs:
        _provide(wiring, part)
    bodies = {part.path for part in model.parts} | {function.path for function in model.functions}
    closed: set[GraphPath] = set()
    for part in model.graphs:
        # A training graph also reads trained tensors, by rules of its own (onnx.proto, TrainingInfoProto).
        if part.path in bodies or (part.parent is not None and part.parent[0] in closed):
            closed.add(part.path)
        _read(wiring, part, is_closed=part.path in closed)
    if model.functions:
        _call(wiring, model)
    return wiring


def _call(wiring: Wiring, model: Model) -> None:
    wiring.calls = called_bodies(model)
    called = set(wiring.calls.values())
    wiring._bodies = {graph.path: graph for graph in model.graphs if graph.path in called}
    for path, position in wiring.calls:
        wiring._sites.setdefault(wiring.calls[path, position], []).append(wiring._nodes[path][position])


def _provide(wiring: Wiring, part: Graph) -> None:
    path = part.path
    wiring.is_plain &= path not in wiring.graphs
    wiring.graphs.setdefault(path, part)
    if part.parent is not None:
        wiring.nested.setdefault(part.parent, []).append(part)
    for tensor in part.tensors:
        if tensor.carrier not in NAMED and tensor.node is not None:
            wiring.carried.setdefault((path, tensor.node), []).append(tensor)
    provided: dict[str, Provider] = {name: GraphInput(path, name) for name in part.inputs}
    stored = {t.name: t for t in part.tensors if t.occurrence == 1 and t.carrier in NAMED}
    provided.update((name, tensor) for name, tensor in stored.items() if tensor.carrier in _INITIALIZERS)
    for node in part.nodes:
        for name in node.outputs:
            if name:
                if name in provided:
                    wiring.repeated.append((path, name))
                provided[name] = node
    provided.update(stored)  # in an invalid file that also computes the name, the stored tensor wins
    wiring.providers[path] = provided
    wiring._nodes[path] = part.nodes
    wiring._order[path] = len(wiring._order)
    wiring._reads[path] = {}


def _read(wiring: Wiring, part: Graph, *, is_closed: bool) -> None:
    path, provided, reads = part.path, wiring.providers[part.path], wiring._reads[part.path]
    makers = wiring.makers[path] = []
    for position, node in enumerate(part.nodes):
        inputs = node.inputs
        if len(inputs) == 1:  # most of these read an earlier node
            provider = provided.get(inputs[0])
            if type(provider) is Node and provider.position < position:
                makers.append((provider.position,))
                continue
        input_makers: list[int] = []
        for slot, name in enumerate(inputs):
            provider, found = provided.get(name), reads
            if type(provider) is Node:
                maker = provider.position
                input_makers.append(maker)
                if maker >= position:
                    wiring.unsorted.append((path, name))
                continue
            if provider is None:
                input_makers.append(ELSEWHERE)
                place = wiring.place(path, name) if name else None
                if place is None:
                    if name and is_closed:
                        wiring.undefined.append((path, name))
                    continue
                if type(wiring.providers[place][name]) is Node:
                    continue
                found = wiring._reads[place]
            else:
                input_makers.append(STORED if type(provider) is StoredTensor else GRAPH_INPUT)
            read = _make_reader((node, slot))
            if name in found:
                found[name].append(read)
            else:
                found[name] = [read]
        makers.append(tuple(input_makers))
