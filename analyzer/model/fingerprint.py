"""Model + names of its weights -> a digest of its computation, as a whole and for each module.

Each value has a digest. An input's covers its name and type; a weight's covers its PyTorch name and layout, but not its
numbers; any other stored tensor's covers type, shape and elements; a node output's covers the operator, the attributes
and the digests of the node's inputs. So names of values and nodes, the order of nodes, doc strings, wrapping in
functions, and the carrier of a tensor do not matter, but a change of one node or of its inputs changes every digest
after it. Graph optimizers change it too. The opset version matters for operators that mean something else in earlier
versions (`versions.py`).
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Mapping, Sequence

from analyzer.model import NOTHING, Carrier, Graph, GraphPath, Key, Model, Node, Place, StoredTensor
from analyzer.model.content import sample_positions
from analyzer.model.liveness import Live
from analyzer.model.order import names_read, sort_nodes
from analyzer.model.versions import Versions
from analyzer.model.wiring import NAMED, Wiring
from analyzer.records import Frozen, Mutable, field

_SIZE = 16
"""Bytes of a digest."""
_DEEPEST = 64
"""Most bodies and calls nested in one another that are followed."""
_MOST_VISITS = 16
"""Most visits of a node on average: a function's body is visited again when it is called with other data."""


class Fingerprint(Frozen):
    """Digests of a model's computation with its weights."""

    outputs: str
    """Digest of all outputs, with their names, in order."""
    scopes: tuple[tuple[str, str], ...]
    """Digest of each module's nodes, in the order in which the modules are first computed."""

    def first_difference(self, other: Fingerprint) -> str | None:
        """Return the first module whose digest is different or missing in the other fingerprint, if any."""
        theirs = dict(other.scopes)
        return next((scope for scope, digest in self.scopes if theirs.get(scope) != digest), None)


def take_fingerprint(
    model: Model, wiring: Wiring, live: Live, weights: Mapping[Key, str], scopes: Mapping[Place, str]
) -> Fingerprint | None:
    """Return the digests of the outputs and of each module.

    Args:
        model: the model, read from this machine: stored constants are read whole.
        wiring: index of the provider of each value.
        live: nodes and tensors on which the outputs depend; all else is ignored.
        weights: for each stored tensor that holds weights, the text that stands for it in the digest.
        scopes: the module of each node that states one.

    Returns:
        None if the nodes cannot be put in order, or calls multiply the work too much.
    """
    walk = _Walk(model, wiring, live, weights, scopes)
    hasher = hashlib.blake2b(digest_size=_SIZE)
    for part in model.parts:
        graph = wiring.graphs.get(part.path)
        if graph is None:
            continue
        types = {known.name: f"{known.kind}:{known.dtype.name}" for known in graph.signature}
        input_digests = {name: _digest("input", name, types.get(name, "")) for name in graph.inputs}
        for name, digest in zip(
            graph.outputs, walk.follow(graph, input_digests, NOTHING, 0), strict=True
        ):  # in order, as a run returns them
            hasher.update(f"{part.name}\0{name}\0".encode())
            hasher.update(digest)
    if walk.is_incomplete:
        return None
    return Fingerprint(
        hasher.hexdigest(), tuple((scope, _join(found)) for scope, found in walk.found.items())
    )


def _digest(*parts: object) -> bytes:
    return hashlib.blake2b(b"".join(map(_framed, parts)), digest_size=_SIZE).digest()


def _framed(part: object) -> bytes:
    """Return a part with its length before it, so that no two lists of parts have the same bytes."""
    content = part if isinstance(part, bytes) else str(part).encode("utf-8", "backslashreplace")
    return len(content).to_bytes(8, "little") + content


_FIRST = _framed(0)
"""Suffix of a node's digest in the digest of its first output."""


@functools.cache
def _beginning(domain: str, op_type: str) -> bytes:
    """Return the encoded first parts of a node without attributes."""
    return b"".join(map(_framed, ("" if domain == "ai.onnx" else domain, op_type, "reads")))


def _join(digests: Iterable[bytes]) -> str:
    return _digest(*sorted(digests)).hex()


class _Walk(Mutable, dict=True):
    """Walk through each graph in an order in which values are computed before they are read."""

    model: Model
    wiring: Wiring
    live: Live
    weights: Mapping[Key, str]
    scopes: Mapping[Place, str]
    found: dict[str, set[bytes]] = field(default_factory=dict)
    """Digests of the nodes of each module."""
    is_incomplete: bool = False
    _values: dict[GraphPath, dict[str, bytes]] = field(default_factory=dict)
    _orders: dict[GraphPath, Sequence[Node]] = field(default_factory=dict)
    _answers: dict[tuple[GraphPath, bytes], list[bytes]] = field(default_factory=dict)
    _contents: dict[Key, bytes] = field(default_factory=dict)
    _left: int = 0

    def __post_init__(self) -> None:
        self._versions = Versions(self.model)
        self._defaults = {function.path: function.defaults for function in self.model.functions}
        self._left = _MOST_VISITS * sum(len(graph.nodes) for graph in self.model.graphs)

    def follow(
        self, graph: Graph, input_digests: Mapping[str, bytes], settings: Mapping[str, object], depth: int
    ) -> list[bytes]:
        """Return the digests of a graph's outputs, given those of its inputs; `settings` are a call's attributes."""
        values = self._values[graph.path] = dict(input_digests)
        for tensor in graph.tensors:
            if tensor.carrier in NAMED and tensor.occurrence == 1:
                values[tensor.name] = self._tensor_digest(tensor)
        for node in self._order(graph):
            is_given = _is_constant(node) and all(name in values for name in node.outputs)
            if node.place in self.live.nodes and not is_given:
                self._left -= 1
                if self._left < 0:
                    self.is_incomplete = True
                    break
                self._follow_node(node, values, settings, depth)
        return [self._find(graph.path, name) for name in graph.outputs]

    def _tensor_digest(self, tensor: StoredTensor) -> bytes:
        if tensor.key not in self._contents:
            words = self.weights.get(tensor.key)
            self._contents[tensor.key] = _digest("weight", words) if words is not None else _content(tensor)
        return self._contents[tensor.key]

    def _find(self, path: GraphPath, name: str) -> bytes:
        place = self.wiring.place(path, name) if name else None
        return b"" if place is None else self._values.get(place, {}).get(name, b"?")

    def _follow_node(
        self, node: Node, values: dict[str, bytes], settings: Mapping[str, object], depth: int
    ) -> None:
        operands = [
            values[name] if name in values else self._find(node.graph_path, name) for name in node.inputs
        ]
        while operands and not operands[-1]:
            operands.pop()
        body = self.wiring.calls.get(node.place)
        if body is not None:
            outputs = self._call(node, self.wiring.graphs[body], operands, settings, depth)
        elif node.op_type == "Identity" and node.domain in ("", "ai.onnx") and operands:
            outputs = [operands[0]]
        else:
            digest = self._compute(node, operands, settings, depth)
            if len(node.outputs) == 1:
                outputs = [hashlib.blake2b(_framed(digest) + _FIRST, digest_size=_SIZE).digest()]
            else:
                outputs = [_digest(digest, index) for index in range(len(node.outputs))]
            scope = self.scopes.get(node.place)
            if scope is not None:
                self.found.setdefault(scope, set()).add(digest)
        values.update(zip(node.outputs, outputs, strict=False))

    def _call(
        self, node: Node, body: Graph, operands: Sequence[bytes], settings: Mapping[str, object], depth: int
    ) -> list[bytes]:
        if depth >= _DEEPEST:
            self.is_incomplete = True
            return []
        attributes = dict(self._defaults.get(body.path, NOTHING))
        for tensor in body.tensors:
            if (
                tensor.node is None and tensor.carrier is Carrier.ATTRIBUTE_TENSOR
            ):  # the default of an attribute
                attributes[tensor.name.rpartition(".")[2]] = self._tensor_digest(tensor).hex()
        for tensor in self.wiring.carried.get(node.place, ()):
            attributes[tensor.name.rpartition(".")[2]] = self._tensor_digest(tensor).hex()
        for name, value in (*node.integers.items(), *node.settings.items()):
            attributes[name] = _resolve(value, settings)
        arguments = dict(zip(body.inputs, [*operands, *[b""] * len(body.inputs)], strict=False))
        key = (
            body.path,
            _digest(*arguments.values(), *(f"{name}={attributes[name]!r}" for name in sorted(attributes))),
        )
        if key not in self._answers:
            self._answers[key] = self.follow(body, arguments, attributes, depth + 1)
        return self._answers[key]

    def _compute(
        self, node: Node, operands: Sequence[bytes], settings: Mapping[str, object], depth: int
    ) -> bytes:
        place = node.place
        carried, nested = self.wiring.carried.get(place, ()), self.wiring.nested.get(place, ())
        meaning = self._version_words(node)
        if not (node.integers or node.settings or carried or nested or meaning):
            parts = b"".join((_beginning(node.domain, node.op_type), *map(_framed, operands)))
            return hashlib.blake2b(parts, digest_size=_SIZE).digest()
        domain = "" if node.domain == "ai.onnx" else node.domain
        attributes = {
            name: _resolve(value, settings)
            for name, value in (*node.integers.items(), *node.settings.items())
        }
        content_parts: list[object] = [
            domain,
            node.op_type,
            *(f"{name}={attributes[name]!r}" for name in sorted(attributes)),
        ]
        content_parts += meaning
        for tensor in carried:
            content_parts += [tensor.name.rpartition(".")[2], self._tensor_digest(tensor)]
        for body in nested:
            if depth >= _DEEPEST:
                self.is_incomplete = True
                break
            body_inputs = {name: _digest("body", depth, index) for index, name in enumerate(body.inputs)}
            content_parts += [
                body.path[-1].rpartition(".")[2],
                *self.follow(body, body_inputs, settings, depth + 1),
            ]
        return _digest(*content_parts, "reads", *operands)

    def _version_words(self, node: Node) -> list[str]:
        """Return the words that a node's opset version adds; none if the node means what it means today."""
        words = [f"before {epoch}" for epoch in self._versions.later_epochs(node)]
        return [*words, *map(str, self._versions.contradicting(node))]

    def _order(self, graph: Graph) -> Sequence[Node]:
        """Return the nodes, each after its producers; of several that may come next the first in the file."""
        if graph.path not in self._orders:
            nested = self.wiring.nested
            read = [names_read(node, nested) for node in graph.nodes]
            self._orders[graph.path], in_cycles = sort_nodes(graph.nodes, read)
            self.is_incomplete |= in_cycles > 0
        return self._orders[graph.path]


def _resolve(value: object, settings: Mapping[str, object]) -> object:
    """Return an attribute's value, taken from the function's caller if it refers to the caller's attribute."""
    if isinstance(value, str) and value.startswith("@"):
        return settings.get(value[1:], value)
    return value


def _is_constant(node: Node) -> bool:
    return node.op_type == "Constant" and node.domain in ("", "ai.onnx")


_MOST_READ = 1 << 30
"""Most bytes of a constant that are read whole; a larger one, which no exporter makes, is sampled."""


def _content(tensor: StoredTensor) -> bytes:
    """Return a digest of type, shape and elements."""
    hasher = hashlib.blake2b(digest_size=_SIZE)
    hasher.update(f"{tensor.dtype.name}{tensor.shape}{tensor.numel}".encode())
    if (
        tensor.nbytes > _MOST_READ
        and (samples := tensor.payload.at(sample_positions(tensor.numel))) is not None
    ):
        hasher.update(b"sampled" + samples.tobytes())
        return hasher.digest()
    read = 0
    for part in tensor.payload.parts():
        read += part.size
        hasher.update(part.tobytes())
    if not read and tensor.numel:
        hasher.update(repr(tensor.extent).encode())
    return hasher.digest()
