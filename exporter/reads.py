"""A traced program -> the names of the parameters and buffers that it reads."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn

from exporter.quiet import quiet

__all__ = ["Reads", "reads_of_autograd", "reads_of_program"]


@dataclass(frozen=True, slots=True)
class Reads:
    """What influences the outputs, by any of its PyTorch names."""

    parameters: frozenset[str]
    buffers: frozenset[str] | None
    """None where the trace cannot see buffers."""
    trace: str
    """`exported-program` or `autograd`."""


def reads_of_program(program: torch.export.ExportedProgram) -> Reads:
    """Walk back from the outputs, mutations included, to the placeholders they depend on."""
    reached = _reached_placeholders(program.graph)
    signature = program.graph_signature
    return Reads(
        parameters=frozenset(
            name for node, name in signature.inputs_to_parameters.items() if node in reached
        ),
        buffers=frozenset(name for node, name in signature.inputs_to_buffers.items() if node in reached),
        trace="exported-program",
    )


def _reached_placeholders(graph: fx.Graph) -> set[str]:
    pending = [node for node in graph.nodes if node.op == "output"]
    seen: set[fx.Node] = set(pending)
    while pending:
        for source in pending.pop().all_input_nodes:
            if source not in seen:
                seen.add(source)
                pending.append(source)
    return {node.name for node in seen if node.op == "placeholder"}


def reads_of_autograd(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Reads:
    """Run forward with gradients and walk the autograd graph; for exporters that keep no program.

    Gradients see float parameters only, so a parameter of another type counts as read and buffers stay unknown.
    """
    names = {id(p): name for name, p in model.named_parameters()}
    frozen = [p for p in model.parameters() if p.is_floating_point() and not p.requires_grad]
    try:
        for parameter in frozen:
            parameter.requires_grad_(True)
        with torch.enable_grad(), quiet():
            outputs = model(*args, **kwargs)
        reached = {id(leaf) for leaf in _reached_leaves(_tensors(outputs))}
    finally:
        for parameter in frozen:
            parameter.requires_grad_(False)
    opaque = {id(p) for p in model.parameters() if not p.is_floating_point()}
    read = frozenset(name for key, name in names.items() if key in reached | opaque)
    return Reads(parameters=read, buffers=None, trace="autograd")


def _tensors(outputs: Any) -> list[torch.Tensor]:
    leaves, _ = torch.utils._pytree.tree_flatten(outputs)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def _reached_leaves(outputs: Iterable[torch.Tensor]) -> Iterable[torch.Tensor]:
    pending = [t.grad_fn for t in outputs if t.grad_fn is not None]
    seen = set(pending)
    while pending:
        function = pending.pop()
        leaf = getattr(function, "variable", None)  # only AccumulateGrad has one
        if leaf is not None:
            yield leaf
        for source, _ in function.next_functions:
            if source is not None and source not in seen:
                seen.add(source)
                pending.append(source)
    yield from (t for t in outputs if t.grad_fn is None)
