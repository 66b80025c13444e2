"""Model + wiring -> the values that its outputs depend on: one backward slice, from the outputs to stored tensors.

A value is live if an output can change with it. The slice follows calls into local functions and the bodies of If, Loop
and Scan. If the condition of an If is stored, it follows only the branch taken; if the condition of a Where is stored,
only the operand chosen. It does not follow the other factor of a product with zeros that are no parameter, and on
request nothing on which a value does not depend by its formula (`analyzer.model.dependence`). Shape and Size read the
size of a value: values that only they read are needed to run the model, but are not live. The contents of uncalled
functions and of `training_info` are neither.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence, Set

import numpy as np

from analyzer.model import DEFAULT_DOMAIN, Graph, GraphPath, Key, Model, Node, Place, StoredTensor
from analyzer.model.beginnings import find_beginnings
from analyzer.model.content import Array
from analyzer.model.dependence import Cut, find_cuts
from analyzer.model.evaluation import Evaluator
from analyzer.model.operators import MEASURES
from analyzer.model.places import ByNode
from analyzer.model.wiring import GRAPH_INPUT, STORED, GraphInput, Wiring
from analyzer.records import Frozen, Mutable, field

_MOST_FOLDED = 1 << 20
"""Most elements of a stored condition, or of a factor that may be zeros, that are computed."""
_ABSORBING = frozenset({"Gemm", "MatMul", "Mul", "Where"})
"""Operators for which a stored operand may make another one irrelevant."""
_PRODUCTS = _ABSORBING - {"Where"}
_SELECTIVE = _ABSORBING | MEASURES
"""Operators whose values may not depend on all their inputs."""
_DEEPEST = 12
"""Most nodes between a factor and the stored values from which it is computed."""
_MOST_LISTED = 64
"""Most elements of a stored value that may differ from each other, where formulas take its numbers."""


class Live(Frozen):
    """Nodes and stored tensors on which some output depends."""

    nodes: Set[Place]
    tensors: frozenset[Key]
    """Stored tensors whose values reach an output, in any carrier."""
    needed: frozenset[Key]
    """These, and the tensors without which the model would not run: those of which only the size is read, and those
    that a factor of zeros or a stored condition makes irrelevant."""


def find_live(
    model: Model,
    wiring: Wiring,
    is_learned: Callable[[StoredTensor], bool] = lambda tensor: True,
    is_drawn: Callable[[StoredTensor], bool] | None = None,
) -> Live:
    """Compute the backward slice from the outputs of the main graph, or of each component's main graph.

    Args:
        model: the model.
        wiring: index of the provider of each value.
        is_learned: whether a stored tensor is a parameter, which may be zeros before training. Zeros that are no
            parameter make their other factor irrelevant.
        is_drawn: whether a stored tensor may have any numbers: a parameter, or a buffer of PyTorch. If given, values
            that do not depend on all that their nodes read are followed only where they do.
    """
    backward = _Slice(model, wiring, is_learned)
    if is_drawn is not None and not wiring.repeated and wiring.is_plain:
        backward.find_cuts(is_drawn)
    for part in model.parts:
        graph = wiring.graphs.get(part.path)
        for name in graph.outputs if graph is not None else ():
            backward.want(part.path, name)
    backward.run()
    nodes = [True if is_live else None for graph in model.graphs for is_live in backward.nodes[graph.path]]
    tensors = backward.stored()
    backward.follow_needed()
    needed = backward.stored()
    return Live(ByNode(model, nodes).keys(), tensors, tensors if len(needed) == len(tensors) else needed)


class _Slice(Mutable, dict=True):
    """Backward slice in progress: values still to follow, and nodes and tensors found so far."""

    model: Model
    wiring: Wiring
    is_learned: Callable[[StoredTensor], bool]
    is_needed: bool = False
    """Whether sizes count too, and operands that another one makes irrelevant."""
    nodes: dict[GraphPath, bytearray] = field(default_factory=dict)
    """For each graph, whether each node is live, by position."""
    tensors: set[Key] = field(default_factory=set)
    _followed: dict[GraphPath, bytearray] = field(default_factory=dict)
    """For each graph, whether all inputs of each node are wanted already."""
    _waiting: list[tuple[GraphPath, str]] = field(default_factory=list)
    _wanted: dict[GraphPath, set[str]] = field(default_factory=lambda: defaultdict(set))
    _sites: dict[GraphPath, dict[Place, Node]] = field(default_factory=lambda: defaultdict(dict))
    """Live calls of each function's body."""
    _wanted_inputs: dict[GraphPath, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Inputs of function bodies and nested graphs that are wanted."""
    _unfinished: list[tuple[Node, str]] = field(default_factory=list)
    """Nodes that need more inputs to run than were followed, with the output that was wanted."""

    _computed: dict[GraphPath, bytearray] = field(default_factory=dict)
    """For each graph, whether its inputs contribute to the values of each node, by position."""

    _cuts: dict[GraphPath, dict[str, Cut]] = field(default_factory=dict)
    """For each graph that has any, its values that do not depend on all that their nodes read."""

    _beginnings: set[Place] = field(default_factory=set)
    """Layers that PyTorch applies to zeros, too."""

    def __post_init__(self) -> None:
        for graph in self.model.graphs:
            self.nodes[graph.path] = bytearray(len(graph.nodes))
            self._followed[graph.path] = bytearray(len(graph.nodes))

    @functools.cached_property
    def _evaluator(self) -> Evaluator:
        return Evaluator(self.model, self.wiring, _MOST_FOLDED)

    def find_cuts(self, is_drawn: Callable[[StoredTensor], bool]) -> None:
        """Find the values of each graph that do not depend on all that their nodes read."""
        opsets = [
            *(part.opsets for part in self.model.parts),
            *(each.opsets for each in self.model.functions),
        ]
        has_axes = all(
            version >= _ONE_AXIS for each in opsets for domain, version in each if domain == DEFAULT_DOMAIN
        )
        for graph in self.model.graphs:
            known = functools.partial(self._known, graph.path, is_drawn)
            providers = self.wiring.providers[graph.path]
            beginnings = find_beginnings(graph, providers, known, self.is_learned)
            self._beginnings |= beginnings
            cuts = find_cuts(
                graph, providers, known, self.is_learned, has_axes, self.wiring.calls, beginnings
            )
            if cuts:
                self._cuts[graph.path] = cuts

    def _known(self, path: GraphPath, is_drawn: Callable[[StoredTensor], bool], name: str) -> Array | None:
        """Return the numbers of a value that no drawn tensor provides: one number if all elements have it."""
        provider = self.wiring.providers[path].get(name) or self.wiring.look_up(path, name)
        if isinstance(provider, Node):
            if provider.op_type != "ConstantOfShape" or not provider.is_standard:
                return None
            if any(is_drawn(tensor) for tensor in self.wiring.carried.get(provider.place, ())):
                return None
            found = self._evaluator.number(path, name)
            return None if found is None else _plain(found.reshape(()))
        if not isinstance(provider, StoredTensor) or is_drawn(provider) or not provider.numel:
            return None
        if provider.numel > _MOST_LISTED:
            ends = provider.payload.at(np.array([0, provider.numel // 2, provider.numel - 1]))
            if self.model.traffic is not None or ends is None or not bool((ends == ends[0]).all()):
                return None
        found = self._evaluator.value(path, name)
        if found is None or found.dtype.kind not in "biufV":
            return None
        found = _plain(found)
        if found.dtype.kind in "iu" and found.size <= _MOST_LISTED:
            return found  # as axes, sizes and positions
        return found.reshape(-1)[0].reshape(()) if bool((found == found.flat[0]).all()) else None

    def want(self, path: GraphPath, name: str) -> None:
        """Add a value, as visible from a graph, to the values to follow."""
        if not name or name in self._wanted[path]:
            return
        self._wanted[path].add(name)
        self._waiting.append((path, name))

    def stored(self) -> frozenset[Key]:
        """Return the stored tensors found, with those that live nodes carry in their attributes."""
        return frozenset(
            self.tensors.union(
                tensor.key
                for graph in self.model.graphs
                for tensor in graph.tensors
                if tensor.node is not None and self.nodes[graph.path][tensor.node]
            )
        )

    def follow_needed(self) -> None:
        """Follow the rest of the needed values, from where the live slice stopped."""
        self.is_needed = True
        while self._unfinished:
            self._follow_node(*self._unfinished.pop())
        self.run()

    def run(self) -> None:
        waiting, providers = self._waiting, self.wiring.providers
        is_flat = not self.wiring.calls and not self.wiring.nested and self.wiring.is_plain and not self._cuts
        while waiting:
            path, name = waiting.pop()
            provider = providers[path].get(name)
            if is_flat and isinstance(provider, Node) and self._is_plain(path, provider.position):
                self._follow_plain(path, provider.position)
            elif provider is None:
                place = self.wiring.place(path, name)
                if place is not None:
                    self.want(place, name)
            elif isinstance(provider, Node):
                self._follow_node(provider, name)
            elif isinstance(provider, StoredTensor):
                self.tensors.add(provider.key)
                if provider.node is not None:
                    self.nodes[path][provider.node] = True
            else:
                self._follow_input(path, name)

    def _follow_plain(self, path: GraphPath, position: int) -> None:
        """Follow a node that depends on all its inputs, and its producers of the same sort: nearly all nodes."""
        nodes, makers = self.wiring.graphs[path].nodes, self.wiring.makers[path]
        live, followed = self.nodes[path], self._followed[path]
        waiting = [position]
        while waiting:
            position = waiting.pop()
            if followed[position]:
                continue
            live[position] = followed[position] = True
            for slot, maker in enumerate(makers[position]):
                if maker >= 0 and (nodes[maker].op_type not in _SELECTIVE or self._is_plain(path, maker)):
                    waiting.append(maker)
                else:
                    self.want(path, nodes[position].inputs[slot])

    def _is_plain(self, path: GraphPath, position: int) -> bool:
        """Whether a node depends on all its inputs: no factor of a product can be zeros that make another irrelevant.

        A learned factor cannot be such zeros, and neither can a factor computed from the graph's inputs.
        """
        node = self.wiring.graphs[path].nodes[position]
        if node.op_type not in _SELECTIVE:
            return True
        if node.op_type not in _PRODUCTS or self.wiring.repeated:
            return False
        own = self.wiring.providers[path]
        if path not in self._computed:
            self._computed[path] = self._find_computed(path)
        computed = self._computed[path]
        for slot, maker in enumerate(self.wiring.makers[path][position]):
            if maker >= 0:
                is_factor = bool(computed[maker])
            elif maker == STORED:
                provider = own[node.inputs[slot]]
                is_factor = isinstance(provider, StoredTensor) and self.is_learned(provider)
            else:
                is_factor = maker == GRAPH_INPUT
            if not is_factor:
                return False
        return True

    def _follow_node(self, node: Node, name: str) -> None:
        place = node.place
        self.nodes[node.graph_path][node.position] = True
        cut = None
        if self._cuts and not self.is_needed:
            cut = self._cuts.get(node.graph_path, {}).get(name)
        if cut is not None:
            self._unfinished.append((node, name))
            for position in cut.nodes if cut.wanted else ():
                self.nodes[node.graph_path][position] = True
            for wanted_name in cut.wanted:
                self.want(node.graph_path, wanted_name)
            return
        body = self.wiring.calls.get(place) if self.wiring.calls else None
        nested = self.wiring.nested.get(place, ()) if self.wiring.nested else ()
        if body is not None:
            self._follow_call(node, body, node.outputs.index(name))
        elif nested:
            self._follow_nested(node, nested, node.outputs.index(name))
        elif self.is_needed or node.op_type not in MEASURES or not node.is_standard:
            slots = self._slots(node)
            if len(slots) < len(node.inputs):
                self._unfinished.append((node, name))
            path = node.graph_path
            wanted = self._wanted[path]
            for slot in slots:
                input_name = node.inputs[slot]
                if input_name and input_name not in wanted:
                    wanted.add(input_name)
                    self._waiting.append((path, input_name))
        else:
            self._unfinished.append((node, name))

    def _slots(self, node: Node) -> Sequence[int]:
        """Return the inputs on which a node's values depend."""
        every = range(len(node.inputs))
        if self.is_needed or node.op_type not in _ABSORBING or len(every) < 2 or not node.is_standard:
            return every
        if node.op_type == "Where" and len(node.inputs) == 3:
            chosen = self._condition(node.graph_path, node.inputs[0])
            return every if chosen is None else (1,) if chosen else (2,)
        if node.op_type == "Mul":
            zero = next((slot for slot in every if self._is_zero(node.graph_path, node.inputs[slot])), None)
            return every if zero is None else (zero,)
        if node.op_type in ("MatMul", "Gemm") and node.place not in self._beginnings:
            for slot in (0, 1):
                if self._is_zero(node.graph_path, node.inputs[slot]):
                    return (slot, *every[2:])
            return every
        return every

    def _follow_call(self, node: Node, body: GraphPath, index: int) -> None:
        graph = self.wiring.graphs[body]
        if node.place not in self._sites[body]:
            self._sites[body][node.place] = node
            for name in self._wanted_inputs[body]:
                self._want_argument(node, graph, name)
        if index < len(graph.outputs):
            self.want(body, graph.outputs[index])

    def _want_argument(self, node: Node, body: Graph, name: str) -> None:
        slot = body.inputs.index(name) if name in body.inputs else len(node.inputs)
        if slot < len(node.inputs):
            self.want(node.graph_path, node.inputs[slot])

    def _follow_input(self, path: GraphPath, name: str) -> None:
        """Follow a graph's input to the arguments of a function's live calls, or to the node that holds a body."""
        self._wanted_inputs[path].add(name)
        for node in self._sites.get(path, {}).values():
            self._want_argument(node, self.wiring.graphs[path], name)
        graph = self.wiring.graphs.get(path)
        if graph is None or graph.parent is None:
            return
        holder = self._node(graph.parent)
        if holder is None or name not in graph.inputs:
            return
        slot = graph.inputs.index(name)
        if holder.op_type == "Loop":
            # (trip count, condition, states); its body: (iteration, condition, states) -> (condition, states)
            if slot >= 2:
                self._want_slot(holder, slot)
                self._want_output(graph, slot - 1)
        elif holder.op_type == "Scan":
            shift = max(0, len(holder.inputs) - len(graph.inputs))  # before opset 9: sequence_lens goes first
            states = len(graph.inputs) - holder.integers.get("num_scan_inputs", 0)
            self._want_slot(holder, slot + shift)
            if slot < states:
                self._want_output(graph, slot)
        elif holder.op_type == "If":
            self.want(holder.graph_path, name)  # branches have no inputs: a declared one is the outer value
        else:
            for other in range(len(holder.inputs)):
                self._want_slot(holder, other)

    def _follow_nested(self, node: Node, nested: Iterable[Graph], index: int) -> None:
        bodies = list(nested)
        if node.op_type == "If":
            is_folded = bool(node.inputs) and not self.is_needed
            taken = self._condition(node.graph_path, node.inputs[0]) if is_folded else None
            if taken is not None:
                self._unfinished.append((node, node.outputs[index]))
                wanted = "then_branch" if taken else "else_branch"
                bodies = [body for body in bodies if body.path[-1].endswith(f".{wanted}")] or bodies
            self._want_slot(node, 0)
            for body in bodies:
                self._want_output(body, index)
            return
        for body in bodies:
            if node.op_type == "Loop":
                self._want_slot(node, 0)
                self._want_slot(node, 1)
                self._want_output(body, 0)
                self._want_output(body, index + 1)
                if index + 2 < len(node.inputs):
                    self._want_slot(node, index + 2)  # the result if the loop runs zero times
            elif node.op_type == "Scan":
                self._want_output(body, index)
            else:
                for output in body.outputs:
                    self.want(body.path, output)
        if node.op_type not in ("Loop", "Scan"):
            for slot in range(len(node.inputs)):
                self._want_slot(node, slot)

    def _want_slot(self, node: Node, slot: int) -> None:
        if slot < len(node.inputs):
            self.want(node.graph_path, node.inputs[slot])

    def _want_output(self, graph: Graph, index: int) -> None:
        if index < len(graph.outputs):
            self.want(graph.path, graph.outputs[index])

    def _node(self, place: Place) -> Node | None:
        graph = self.wiring.graphs.get(place[0])
        return graph.nodes[place[1]] if graph is not None and place[1] < len(graph.nodes) else None

    def _condition(self, path: GraphPath, name: str) -> bool | None:
        """Return the one truth value of a condition computed from stored values alone; None if there is none."""
        value = self._evaluator.value(path, name)
        if value is None or not value.size or value.dtype.kind not in "biuf":
            return None
        truths = value.astype(bool)
        return bool(truths.flat[0]) if bool((truths == truths.flat[0]).all()) else None

    def _is_zero(self, path: GraphPath, name: str) -> bool:
        """Whether a factor is all zeros, is computed from stored values alone, and involves no parameter."""
        own = self.wiring.providers[path].get(name) if name and not self.wiring.calls else None
        provider = own if own is not None or not name else self.wiring.find(path, name)
        if isinstance(provider, StoredTensor) and self.is_learned(provider):
            return False
        if isinstance(provider, StoredTensor) and provider.numel and self.model.traffic is None:
            first = provider.payload.at(np.zeros(1, dtype=np.int64))
            if first is None or first.dtype.kind not in "biufV" or bool(first.astype(bool)[0]):
                return False
        elif self._is_computed(path, name):
            return False
        value = self._evaluator.value(path, name)
        return (
            value is not None
            and not self._is_trained(path, name, _DEEPEST)
            and value.size > 0
            and value.dtype.kind in "biufV"
            and not value.astype(bool).any()
        )

    def _is_computed(self, path: GraphPath, name: str) -> bool:
        """Whether the graph's inputs contribute to a value, so that it cannot be computed from stored values alone."""
        wiring = self.wiring
        if wiring.calls or wiring.repeated:
            return False  # arguments may be stored; of two producers either may be meant
        if path not in self._computed:
            self._computed[path] = self._find_computed(path)
        provider = wiring.providers[path].get(name)
        if isinstance(provider, Node):
            return bool(self._computed[path][provider.position])
        return isinstance(provider, GraphInput)

    def _find_computed(self, path: GraphPath) -> bytearray:
        wiring = self.wiring
        nodes = wiring.graphs[path].nodes
        found = bytearray(len(nodes))
        for position, makers in enumerate(wiring.makers[path] if wiring.is_plain else ()):
            for slot, maker in enumerate(makers):
                if maker == GRAPH_INPUT or (0 <= maker < position and found[maker]):
                    # CastLike takes only the type of its second operand.
                    is_type = slot and nodes[position].op_type == "CastLike"
                    found[position] = not is_type and nodes[position].place not in wiring.nested
                    break
        return found

    def _is_trained(self, path: GraphPath, name: str, depth: int) -> bool:
        """Whether a parameter contributes to a value that is computed from stored values alone."""
        provider = self.wiring.find(path, name) if name else None
        if isinstance(provider, StoredTensor):
            return self.is_learned(provider)
        if not isinstance(provider, Node):
            return False
        return not depth or any(
            self._is_trained(provider.graph_path, each, depth - 1) for each in provider.inputs
        )


_ONE_AXIS = 13
"""Opset since which Softmax and its kin work along one axis."""


def _plain(value: Array) -> Array:
    """Return numbers as one of NumPy's own types: half precision and its kin as float64, bools and integers as such."""
    return value if value.dtype.kind in "biu" else value.astype(np.float64)
