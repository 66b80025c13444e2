"""What a provider compiled, as onnxruntime tells it -> which nodes of the file each kernel computes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from analyzer.model import Model
from analyzer.timing.request import Kernel
from analyzer.timing.tracing.origins import NAMED, Origin, find_beginnings

__all__ = ["COMPILED", "trace_compiled"]

COMPILED = "provenance:compiled-part"
"""onnxruntime says which nodes a provider has compiled to one kernel."""


def trace_compiled(
    file: Model, kernels: Sequence[Kernel], assigned: Sequence[tuple[str, tuple[str, ...]]]
) -> list[Origin | None]:
    """For each kernel the nodes of the file that it computes, where the graph that ran cannot be had.

    A provider that compiles parts of the graph runs each as one kernel, in their order, if there are as many kernels
    as parts. Other kernels go by the names of their nodes.

    Args:
        file: the file's model.
        kernels: what ran.
        assigned: (provider, names of its nodes) of each part of the graph that a provider took.
    """
    names = {node.name: node.position for node in file.graphs[0].nodes if node.name}
    by_name = [next(find_beginnings(kernel.name, names), None) for kernel in kernels]
    compiled = Counter(
        kernel.provider for kernel, place in zip(kernels, by_name, strict=True) if place is None
    )
    parts: dict[str, list[tuple[int, ...]]] = defaultdict(list)
    for provider, members in assigned:
        parts[provider].append(tuple(sorted({names[name] for name in members if name in names})))
    turns = {provider: iter(found) for provider, found in parts.items() if len(found) == compiled[provider]}
    origins: list[Origin | None] = []
    for kernel, place in zip(kernels, by_name, strict=True):
        nodes = next(turns.get(kernel.provider, iter(())), ()) if place is None else (place,)
        origins.append(Origin(nodes, COMPILED if place is None else NAMED) if nodes else None)
    return origins
