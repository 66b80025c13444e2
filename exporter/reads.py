"""A traced program -> the names of the parameters and buffers that it reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn
from torch.overrides import TorchFunctionMode

from exporter.program import Program, evaluate_program, merge_programs
from exporter.quiet import quiet

__all__ = ["Reads", "merge_reads", "reads_of_calls", "reads_of_program"]


@dataclass(frozen=True, slots=True)
class Reads:
    """What influences the outputs, by any of its PyTorch names."""

    parameters: frozenset[str]
    buffers: frozenset[str] | None
    """None where the trace cannot see buffers."""
    trace: str
    """`exported-program` or `function-calls`; `analyzer.manifest.OF_CLASS` of a class that was not exported."""
    program: Program | None = None
    """What of the traced program depends on no input; None where nothing was traced."""


def merge_reads(several: Sequence[Reads]) -> Reads:
    """What any of several programs of one model reads.

    Raises:
        ValueError: there is none, or they were not traced alike.
    """
    (trace,) = {reads.trace for reads in several}
    seen = [reads.buffers for reads in several if reads.buffers is not None]
    return Reads(
        parameters=frozenset().union(*(reads.parameters for reads in several)),
        buffers=frozenset().union(*seen) if len(seen) == len(several) else None,
        trace=trace,
        program=merge_programs([reads.program for reads in several if reads.program is not None]),
    )


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
        program=evaluate_program(program),
    )


def _reached_placeholders(graph: fx.Graph) -> set[str]:
    """What the outputs depend on; a value that is written into, as by `y[:, 0] = x`, on what is written as well."""
    pending = [node for node in graph.nodes if node.op == "output"]
    seen: set[fx.Node] = set(pending)
    written = _writers(graph)
    while pending:
        node = pending.pop()
        for source in (*node.all_input_nodes, *written.get(node, ())):
            if source not in seen:
                seen.add(source)
                pending.append(source)
    return {node.name for node in seen if node.op == "placeholder"}


def _writers(graph: fx.Graph) -> dict[fx.Node, list[fx.Node]]:
    """The nodes that write into each value: into itself, or into what is a view of it."""
    found: dict[fx.Node, list[fx.Node]] = {}
    for node in graph.nodes:
        pending = list(_aliased(node, is_write=True))
        while pending:
            target = pending.pop()
            found.setdefault(target, []).append(node)
            pending.extend(_aliased(target, is_write=False))
            pending.extend(_aliased(target, is_write=True))
    return found


def _aliased(node: fx.Node, *, is_write: bool) -> Iterator[fx.Node]:
    """The operands of an operator that it writes into, or that its result is a view of, as its schema says."""
    schema = getattr(node.target, "_schema", None)
    for index, argument in enumerate(schema.arguments if schema is not None else ()):
        alias = argument.alias_info
        if alias is not None and alias.is_write == is_write:
            given = node.kwargs.get(argument.name, node.args[index] if index < len(node.args) else None)
            if isinstance(given, fx.Node):
                yield given
            elif isinstance(given, (list, tuple)):
                yield from (each for each in given if isinstance(each, fx.Node))


def reads_of_calls(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Reads:
    """Run forward and note every parameter and buffer that enters a torch function; for what cannot be traced.

    What enters a function may still not reach an output, so this never calls unread what is read. Gradients would:
    they end at an argmax and inside `no_grad`.
    """
    entered: set[int] = set()
    with torch.no_grad(), quiet(), _Noting(entered):
        model(*args, **kwargs)
    return Reads(
        parameters=frozenset(name for name, tensor in model.named_parameters() if id(tensor) in entered),
        buffers=frozenset(name for name, tensor in model.named_buffers() if id(tensor) in entered),
        trace="function-calls",
    )


class _Noting(TorchFunctionMode):
    """Notes the identity of every tensor from which a torch function makes another; `x.dtype` makes none."""

    def __init__(self, entered: set[int]) -> None:
        super().__init__()
        self._entered = entered

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if _tensors(result):
            self._entered.update(id(tensor) for tensor in _tensors((args, kwargs)))
        return result


def _tensors(tree: Any) -> list[torch.Tensor]:
    leaves, _ = torch.utils._pytree.tree_flatten(tree)
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
