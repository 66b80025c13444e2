"""A model in memory -> its products and values, as an adversary or a converter sees them, and changes to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

__all__ = ["MOVES", "NoPlaceError", "Product", "Seen", "Surgery", "sort_nodes"]

Array = npt.NDArray[Any]

MOVES = frozenset({"Transpose", "Identity", "Cast", "Reshape", "Unsqueeze", "Squeeze", "DequantizeLinear"})
PRODUCT_SLOTS: Mapping[str, tuple[int, ...]] = {
    "MatMul": (1, 0),
    "Gemm": (1, 0),
    "Conv": (1,),
    "ConvTranspose": (1,),
    "MatMulInteger": (1,),
    "ConvInteger": (1,),
    "MatMulNBits": (1,),
}
FLOATS = frozenset({onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16})


class NoPlaceError(Exception):
    """The file has no place for this change."""


@dataclass(frozen=True, slots=True)
class Seen:
    """Type and shape of a value when the honest file ran."""

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Product:
    """A node that multiplies an activation with a stored weight."""

    node: Any
    slot: int
    tensor: str
    """Name of the stored tensor: floats, or codes."""
    moves: tuple[Any, ...]
    """Nodes between the tensor and the product, in order from the tensor."""


class Surgery:
    """One copy of an honest file; every change is made in place."""

    def __init__(self, model: Any, seen: Mapping[str, Seen], random: np.random.Generator) -> None:
        self.model, self.graph = model, model.graph
        self.seen, self.random = seen, random
        self._taken = {name for node in self.graph.node for name in [*node.output, *node.input, node.name]}
        self._taken |= {tensor.name for tensor in self.graph.initializer}
        self._serial = 0

    # Queries

    @property
    def nodes(self) -> list[Any]:
        return list(self.graph.node)

    def producers(self) -> dict[str, Any]:
        return {name: node for node in self.graph.node for name in node.output if name}

    def readers(self, value: str) -> list[tuple[Any, int]]:
        """Return the nodes of the main graph and its subgraphs that read a value, each with the input slot."""
        return [
            (node, slot)
            for node in every_node(self.graph)
            for slot, name in enumerate(node.input)
            if name == value
        ]

    def stored(self) -> dict[str, Any]:
        """Return initializers and values of Constant nodes, by the name of the value."""
        found = {tensor.name: tensor for tensor in self.graph.initializer}
        for node in self.graph.node:
            if node.op_type == "Constant":
                for attribute in node.attribute:
                    if attribute.name == "value":
                        found[node.output[0]] = attribute.t
        return found

    def array(self, name: str) -> Array:
        return np.array(numpy_helper.to_array(self.stored()[name]))

    def products(self, *, codes: bool = True) -> list[Product]:
        """Return the products in the order of the file; with `codes` also those whose weight is quantized."""
        stored, producers = self.stored(), self.producers()
        found = []
        for node in self.graph.node:
            for slot in PRODUCT_SLOTS.get(node.op_type, ()):
                product = trace(node, slot, stored, producers)
                if product is None:
                    continue
                tensor = stored[product.tensor]
                if int(np.prod(tensor.dims)) >= 32 and (codes or tensor.data_type in FLOATS):
                    found.append(product)
                    break
        return found

    def square(self) -> list[Product]:
        """Return the products whose weight is square, also if it is integer codes, but not packed by MatMulNBits."""
        stored = self.stored()
        return [
            p
            for p in self.products()
            if len(dims := stored[p.tensor].dims) == 2
            and dims[0] == dims[1]
            and p.node.op_type != "MatMulNBits"
        ]

    def tables(self) -> list[Product]:
        """Return the Gathers that look up rows in a stored table, the largest table first."""
        stored, producers = self.stored(), self.producers()
        found = [
            product
            for node in self.graph.node
            if node.op_type == "Gather" and (product := trace(node, 0, stored, producers)) is not None
        ]
        large = [p for p in found if len(stored[p.tensor].dims) == 2]
        return sorted(large, key=lambda p: -int(np.prod(stored[p.tensor].dims)))

    def vectors(self, *op_types: str) -> list[Product]:
        """Return the stored float vectors that these operators read."""
        stored, producers = self.stored(), self.producers()
        found = []
        for node in self.graph.node:
            if node.op_type not in op_types:
                continue
            for slot in range(len(node.input)):
                product = trace(node, slot, stored, producers)
                if product is None or stored[product.tensor].data_type not in FLOATS:
                    continue
                dims = stored[product.tensor].dims
                if max([*dims, 0]) == int(np.prod(dims)) >= 8:
                    found.append(product)
        return found

    def from_inputs(self) -> set[str]:
        """Return the values that depend on the graph's inputs."""
        reached = {value.name for value in self.graph.input} - {t.name for t in self.graph.initializer}
        before = -1
        while before < len(reached):  # not every converter sorts the nodes
            before = len(reached)
            for node in self.graph.node:
                if reached & {*node.input}:
                    reached |= {*node.output}
        return reached

    def live(self) -> set[str]:
        """Return the values that an output depends on."""
        needed = {value.name for value in self.graph.output}
        before = -1
        while before < len(needed):
            before = len(needed)
            for node in reversed(self.graph.node):
                if needed & {*node.output}:
                    needed |= {*node.input} | set(captured(node))
        return needed

    def activations(self, *, width: int | None = None) -> list[str]:
        """Return live float activations with at least eight channels, in file order, without outputs of the graph."""
        reached, live = self.from_inputs(), self.live()
        outputs = {value.name for value in self.graph.output}
        found = []
        for node in self.graph.node:
            if node.op_type in ("Shape", "Cast", "DynamicQuantizeLinear", "QuantizeLinear", "MatMulInteger"):
                continue
            for name in node.output[:1]:
                seen = self.seen.get(name)
                if seen is None or name in outputs or name not in reached or name not in live:
                    continue
                if seen.dtype not in ("float32", "float16") or len(seen.shape) not in (3, 4):
                    continue
                channels = self.channels(name)
                if (8 <= channels <= 128) if width is None else channels == width:
                    found.append(name)
        return found

    def channels(self, value: str) -> int:
        """Return the size of the axis that weights multiply: the second of images, else the last."""
        shape = self.seen[value].shape
        return shape[1] if self.is_image(value) else shape[-1]

    def is_image(self, value: str) -> bool:
        """Whether it has four axes and the file has convolutions."""
        kinds = ("Conv", "ConvInteger", "QLinearConv")
        return len(self.seen[value].shape) == 4 and any(node.op_type in kinds for node in self.graph.node)

    def pick(self, found: Sequence[Any], what: str = "") -> Any:
        if not found:
            raise NoPlaceError(what or "nothing of that kind")
        return found[int(self.random.integers(len(found)))]

    # Changes

    def fresh(self, hint: str = "t") -> str:
        while True:
            name = f"{hint}_{self._serial}" if self._serial else hint
            self._serial += 1
            if name not in self._taken:
                self._taken.add(name)
                return name

    def store(self, name: str, array: Array) -> None:
        """Replace the content of a stored tensor; its name and place stay."""
        tensor = self.stored()[name]
        made = numpy_helper.from_array(np.array(array, order="C"), tensor.name)
        if made.data_type != tensor.data_type:
            raise NoPlaceError(f"{name} would change its type")
        tensor.CopyFrom(made)

    def add(self, array: Any, hint: str = "t") -> str:
        """Add an initializer with numpy's values, and return its name."""
        name = self.fresh(hint)
        self.graph.initializer.append(numpy_helper.from_array(np.array(array, order="C"), name))
        return name

    def node(
        self, op_type: str, inputs: Iterable[str], *, outputs: int = 1, domain: str = "", **attributes: Any
    ) -> str:
        """Add a node at the end of the file, and return its first output."""
        names = [self.fresh(op_type.lower()) for _ in range(outputs)]
        made = helper.make_node(
            op_type, list(inputs), names, self.fresh(f"n_{op_type.lower()}"), domain=domain
        )
        for name, value in attributes.items():
            if value is not None:
                made.attribute.append(helper.make_attribute(name, value))
        self.graph.node.append(made)
        if domain:
            self.import_domain(domain)
        return names[0]

    def import_domain(self, domain: str, version: int = 1) -> None:
        if domain not in {opset.domain for opset in self.model.opset_import}:
            self.model.opset_import.append(
                helper.make_opsetid(domain, 3 if domain == "ai.onnx.ml" else version)
            )

    @property
    def opset(self) -> int:
        return next(int(o.version) for o in self.model.opset_import if o.domain in ("", "ai.onnx"))

    def rewire(self, old: str, new: str, excluding: Iterable[str] = ()) -> None:
        """Make all readers of `old` read `new`, except the nodes whose first outputs are in `excluding`."""
        excluded = {*excluding}
        for node, slot in self.readers(old):
            if not node.output or node.output[0] not in excluded:
                node.input[slot] = new

    def after(self, value: str, make: Callable[[str], str]) -> str:
        """Make all readers of a value read the output of `make` instead."""
        readers = self.readers(value)
        made = make(value)
        for node, slot in readers:
            node.input[slot] = made
        for output in self.graph.output:
            if output.name == value:
                raise NoPlaceError("an output of the graph")
        return made

    def element(self, value: str) -> int:
        """Return ONNX's number of a value's element type."""
        return int(helper.np_dtype_to_tensor_dtype(np.dtype(self.seen[value].dtype)))

    def remove(self, node: Any) -> None:
        self.graph.node.remove(node)

    def finish(self) -> Any:
        """Return the model with its nodes in topological order."""
        sort_nodes(self.graph)
        return self.model


def trace(node: Any, slot: int, stored: Mapping[str, Any], producers: Mapping[str, Any]) -> Product | None:
    """Return the stored tensor behind an input, through nodes that only move it; None if there is none."""
    if slot >= len(node.input):
        return None
    name, moves = node.input[slot], []
    while name not in stored:
        producer = producers.get(name)
        if producer is None or producer.op_type not in MOVES:
            return None
        moves.append(producer)
        name = producer.input[0]
    return Product(node, slot, name, tuple(reversed(moves)))


def bodies(node: Any) -> Iterator[Any]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def every_node(graph: Any) -> Iterator[Any]:
    """Yield the nodes of a graph and of its subgraphs."""
    for node in graph.node:
        yield node
        for body in bodies(node):
            yield from every_node(body)


def captured(node: Any) -> Iterator[str]:
    """Yield the names that a node's subgraphs read, including their own values."""
    for body in bodies(node):
        for inner in every_node(body):
            yield from inner.input
        yield from (output.name for output in body.output)


def sort_nodes(graph: Any, order: Callable[[int], float] = float) -> None:
    """Sort the nodes topologically, and otherwise by `order` of their positions.

    Raises:
        NoPlaceError: the nodes have a cycle.
    """
    import heapq

    nodes = list(graph.node)
    producers = {name: place for place, node in enumerate(nodes) for name in node.output if name}
    pending = [
        {producers[name] for name in [*node.input, *captured(node)] if name in producers} - {place}
        for place, node in enumerate(nodes)
    ]
    dependents: dict[int, list[int]] = {}
    for place, needed in enumerate(pending):
        for producer in needed:
            dependents.setdefault(producer, []).append(place)
    ready = [(order(place), place) for place, needed in enumerate(pending) if not needed]
    heapq.heapify(ready)
    done = []
    while ready:
        _, place = heapq.heappop(ready)
        done.append(nodes[place])
        for other in dependents.get(place, ()):
            pending[other].discard(place)
            if not pending[other]:
                heapq.heappush(ready, (order(other), other))
    if len(done) != len(nodes):
        raise NoPlaceError("a circle")
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in done]
    del graph.node[:]
    graph.node.extend(copies)
