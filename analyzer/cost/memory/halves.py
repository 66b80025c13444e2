"""A described graph with FLOAT16 -> the same as a session makes it run: in FLOAT, between Casts, what has no kernel.

onnxruntime's `InsertCastTransformer` (insert_cast_transformer.cc), which works at every level of optimization. It
names what it puts in `InsertedPrecisionFreeCast_`, and so do we.
"""

from __future__ import annotations

from collections import defaultdict

import msgspec

from analyzer.cost.memory.order import default_order
from analyzer.model.dtypes import DType
from analyzer.read.described import MADE, Described, DescribedNode, DescribedValue
from analyzer.records import Frozen, Mutable, field

INSERTED = "InsertedPrecisionFreeCast_"
_READ = "\0read"


class Halves(Frozen):
    """Kernels by what they do with FLOAT16, as `kernel_name` calls them."""

    own: frozenset[str] = frozenset()
    """Those that take it."""

    widened: frozenset[str] = frozenset()
    """Those that are given FLOAT."""

    functions: frozenset[str] = frozenset()
    """Operators of ONNX that have no kernel of any type, and are run as the nodes of their functions."""


def with_casts_of_halves(described: Described, kernels: Halves) -> tuple[Described, int]:
    """Return the graph with Casts around nodes that have no kernel for FLOAT16.

    A value that a Cast makes is called as its source with a mark behind it: it has the same shape.

    Returns:
        The graph, and how many nodes read FLOAT16 of which nobody knows whether they have a kernel.
    """
    caster = _Caster(described, kernels)
    return caster.cast(), caster.unknown


class _Caster(Mutable):
    described: Described
    kernels: Halves
    unknown: int = 0
    makers: dict[str, int] = field(default_factory=dict)
    readers: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    widened: set[int] = field(default_factory=set)
    """Nodes that are given FLOAT."""

    def cast(self) -> Described:
        nodes = self.described.nodes
        if not any(self._reads_half(node) for node in nodes):
            return self.described
        for place, node in enumerate(nodes):
            self.makers.update((name, place) for name in node.outputs if name)
            for name in (*node.inputs, *node.implicit):
                self.readers[name].append(place)
        for place, node in enumerate(nodes):
            if self._reads_half(node) and not node.nested:
                self.unknown += node.kernel not in self.kernels.own | self.kernels.widened
                if node.kernel in self.kernels.widened:
                    self.widened.add(place)
        for place, node in enumerate(nodes):
            if self._is_between(node):
                self.widened.add(place)
        return self._with_casts()

    def _reads_half(self, node: DescribedNode) -> bool:
        return any(self._is_half(name) for name in node.inputs)

    def _is_half(self, name: str) -> bool:
        tensor = self.described.tensors.get(name)
        value = self.described.values.get(name) or self.described.inputs.get(name)
        return bool(name) and (tensor.dtype if tensor else value.dtype if value else 0) == DType.FLOAT16

    def _is_between(self, node: DescribedNode) -> bool:
        """Whether a node that could compute in FLOAT16 stands alone among those that cannot.

        All its FLOAT16 comes from such nodes and goes to such; of inputs, and of outputs, of any number the first alone
        is looked at.
        """
        kept = frozenset(self.described.outputs)
        made = [self.makers[name] for name in (*node.inputs, *node.implicit) if name in self.makers]
        if not made or node.nested or node.kernel not in self.kernels.own or kept & set(node.outputs):
            return False
        inputs, outputs = (
            names if many is None else names[: many + 1]
            for names, many in zip((node.inputs, node.outputs), node.variadic, strict=True)
        )
        given = [name for name in inputs if self._is_half(name)]
        taken = [name for name in outputs if self._is_half(name)]
        sources = [self.makers[name] for name in given if name in self.makers]
        readers = [reader for name in taken for reader in self.readers[name]]
        return bool(given and taken) and self.widened.issuperset([*sources, *readers])

    def _with_casts(self) -> Described:
        nodes = list(self.described.nodes)
        values = dict(self.described.values)
        added: list[DescribedNode] = []
        wide: dict[str, str] = {}

        def widen(name: str, mark: str) -> str:
            made = values.get(name + mark)
            known = made or values.get(name) or self.described.inputs.get(name)
            tensor = self.described.tensors.get(name)
            dims = tensor.dims if tensor else known.dims if known else None
            values[name + mark] = DescribedValue(int(DType.FLOAT), dims)
            return name + mark

        for place in default_order(nodes):
            if place not in self.widened:
                continue
            node = nodes[place]
            for name in node.inputs:
                if self._is_half(name) and name not in wide:
                    wide[name] = widen(name, _READ)
                    added.append(_cast(name, wide[name]))
            outputs = list(node.outputs)
            for at, name in enumerate(outputs):
                if self._is_half(name):
                    outputs[at] = widen(name, MADE)
                    added.append(_cast(outputs[at], name))
            inputs = tuple(wide[name] if self._is_half(name) else name for name in node.inputs)
            nodes[place] = msgspec.structs.replace(node, inputs=inputs, outputs=tuple(outputs))
        return msgspec.structs.replace(self.described, nodes=(*nodes, *added), values=values)


def _cast(source: str, target: str) -> DescribedNode:
    name = f"{INSERTED}{source.partition(chr(0))[0]}"
    return DescribedNode(op_type="Cast", domain="", name=name, inputs=(source,), outputs=(target,))
