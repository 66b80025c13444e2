"""A described graph with FLOAT16 -> the graph that a session runs: nodes without a FLOAT16 kernel in FLOAT, with Casts.

It follows onnxruntime's `InsertCastTransformer` (insert_cast_transformer.cc), which works at every level of
optimization, and uses its prefix `InsertedPrecisionFreeCast_` for the names of inserted nodes.
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
    """Kernels by their treatment of FLOAT16, named as by `kernel_name`."""

    own: frozenset[str] = frozenset()
    """Kernels that take FLOAT16."""

    widened: frozenset[str] = frozenset()
    """Kernels that take FLOAT instead."""

    functions: frozenset[str] = frozenset()
    """Operators of ONNX without a kernel of any type, which run as the nodes of their functions."""


def with_casts_of_halves(described: Described, kernels: Halves) -> tuple[Described, int]:
    """Return the graph with Casts around nodes that have no kernel for FLOAT16.

    An inserted value has the name of its FLOAT16 counterpart with a suffix, and the same shape.

    Returns:
        The graph, and the number of nodes that read FLOAT16 and may or may not have a kernel for it.
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
    """Nodes that run in FLOAT."""

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
        """Whether a node that could compute in FLOAT16 is surrounded by nodes that cannot.

        All its FLOAT16 inputs come from such nodes, and all its FLOAT16 outputs go to such. Of variadic inputs and
        outputs, only the first is checked.
        """
        kept = frozenset(self.described.outputs)
        made = [self.makers[name] for name in (*node.inputs, *node.implicit) if name in self.makers]
        if not made or node.nested or node.kernel not in self.kernels.own or kept & set(node.outputs):
            return False
        inputs, outputs = (
            names if many is None else names[: many + 1]
            for names, many in zip((node.inputs, node.outputs), node.variadic, strict=True)
        )
        half_inputs = [name for name in inputs if self._is_half(name)]
        half_outputs = [name for name in outputs if self._is_half(name)]
        sources = [self.makers[name] for name in half_inputs if name in self.makers]
        readers = [reader for name in half_outputs for reader in self.readers[name]]
        return bool(half_inputs and half_outputs) and self.widened.issuperset([*sources, *readers])

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
