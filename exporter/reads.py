"""Traced program -> the parameters and buffers that it reads, and the modules that the example inputs leave unused."""

from __future__ import annotations

import contextlib
import inspect
import re
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn
from torch.overrides import TorchFunctionMode

from analyzer.manifest import Calls, Manifest, Unreached
from exporter.calls import record_calls, without_writes
from exporter.inputs import ExampleInputs, forward_names
from exporter.nodes import operator_name
from exporter.program import SHAPED, Program, evaluate_program, merge_programs
from exporter.quiet import quiet
from exporter.regions import open_regions

# tensors that are read


@dataclass(frozen=True, slots=True)
class Reads:
    """Parameters and buffers that influence the outputs, each under at least one of its PyTorch names."""

    parameters: frozenset[str]
    buffers: frozenset[str] | None
    """None if the trace cannot see buffers."""
    trace: str
    """`exported-program` or `function-calls`; `analyzer.manifest.OF_CLASS` for a class that was not exported."""
    program: Program | None = None
    """Part of the traced program that depends on no input; None without a trace."""
    calls: tuple[Calls, ...] = ()
    """Calls of the traced programs."""


def merge_reads(several: Sequence[Reads]) -> Reads:
    """Return the union of the reads of several programs of one model.

    Raises:
        ValueError: there are none, or they were not traced alike.
    """
    (trace,) = {reads.trace for reads in several}
    seen = [reads.buffers for reads in several if reads.buffers is not None]
    return Reads(
        parameters=frozenset().union(*(reads.parameters for reads in several)),
        buffers=frozenset().union(*seen) if len(seen) == len(several) else None,
        trace=trace,
        program=merge_programs([reads.program for reads in several if reads.program is not None]),
        calls=tuple(calls for reads in several for calls in reads.calls),
    )


def reads_of_program(program: torch.export.ExportedProgram) -> Reads:
    """Walk back from the outputs, mutations included, to the placeholders they depend on."""
    with contextlib.suppress(Exception):  # torch may raise anything; then the regions stay closed
        program = open_regions(program)
    reached = _reached_placeholders(program.graph)
    signature = program.graph_signature
    functional = without_writes(program)
    return Reads(
        parameters=frozenset(
            name for node, name in signature.inputs_to_parameters.items() if node in reached
        ),
        buffers=frozenset(name for node, name in signature.inputs_to_buffers.items() if node in reached),
        trace="exported-program",
        program=evaluate_program(functional),
        calls=(record_calls(functional),),
    )


def _reached_placeholders(graph: fx.Graph) -> set[str]:
    """Return the placeholders behind the outputs, and behind values written into others, as by `y[:, 0] = x`."""
    pending = [node for node in graph.nodes if node.op == "output"]
    seen: set[fx.Node] = set(pending)
    written = _writers(graph)
    while pending:
        node = pending.pop()
        for source in (*_sources(node), *written.get(node, ())):
            if source not in seen:
                seen.add(source)
                pending.append(source)
    return {node.name for node in seen if node.op == "placeholder"}


def _sources(node: fx.Node) -> Sequence[fx.Node]:
    """Return the nodes that a node's values depend on, without mere templates of shape and type (`zeros_like`)."""
    sources = node.all_input_nodes
    if operator_name(node.target) not in SHAPED or not node.args:
        return sources
    rest = (*node.args[1:], *node.kwargs.values())
    return [source for source in sources if source is not node.args[0] or source in rest]


def _writers(graph: fx.Graph) -> dict[fx.Node, list[fx.Node]]:
    """Return the nodes that write into each value: directly, or into a view of it."""
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
    """Yield the operands that an operator writes into, or whose view it returns, according to its schema."""
    schema = getattr(node.target, "_schema", None)
    for index, argument in enumerate(schema.arguments if schema is not None else ()):
        alias = argument.alias_info
        if alias is not None and alias.is_write == is_write:
            operand = node.kwargs.get(argument.name, node.args[index] if index < len(node.args) else None)
            if isinstance(operand, fx.Node):
                yield operand
            elif isinstance(operand, (list, tuple)):
                yield from (each for each in operand if isinstance(each, fx.Node))


def reads_of_calls(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Reads:
    """Run forward and note every parameter and buffer that enters a torch function; for models that cannot be traced.

    A noted tensor may still not reach an output, so this never reports a read tensor as unread. Gradients could: they
    end at an argmax and inside `no_grad`.
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


# tensors that are not read

_LEAST = 0.05
"""Share of the parameters from which an idle module is reported even if no known input would reach it."""

_NO_DATA = frozenset(
    {"inputs_embeds", "position_ids", "past_key_values", "cache_position", "encoder_outputs"}
)
"""Arguments of forward that replace others, or give positions in a text."""

_MODALITIES: Mapping[str, tuple[str, ...]] = {
    "image": ("pixel_values", "flattened_patches"),
    "video": ("pixel_values_videos", "pixel_values"),
    "audio": ("input_features", "input_values", "audio_values"),
}
"""Modality of data, as transformers calls it -> arguments that hold it."""

_BRIDGE = re.compile(r"modal|visi?on|visual|image|video|audio|speech|project|connect|align|resampl|former")
"""Names of modules between a tower and the rest of the model: the tower's input reaches them."""


def find_unreached(model: nn.Module, manifest: Manifest, inputs: ExampleInputs) -> tuple[Unreached, ...]:
    """Return the outermost modules whose parameters the traced program does not read, in PyTorch's order.

    These are modules that a missing input would reach, and large modules for which no such input is known. Heads for
    training only, and poolers, are neither.
    """
    if manifest.trace is None:
        return ()
    unread = {
        name: parameter.numel
        for parameter in manifest.parameters
        if parameter.read is False
        for name in parameter.names
    }
    provided = {*inputs.kwargs, *forward_names(model)[: len(inputs.args)]}
    lacking = [name for name in forward_names(model) if name not in provided and name not in _NO_DATA]
    found = [(path, module, _needed_arguments(module, lacking)) for path, module in _idle(model, unread)]
    known = {needed for *_, needed in found if needed}
    only = next(iter(known)) if len(known) == 1 else ()
    unreached = [
        Unreached(
            path,
            sum(unread[f"{path}.{name}"] for name, _ in module.named_parameters()),
            needed or (only if _BRIDGE.search(path.rpartition(".")[2]) else ()),
        )
        for path, module, needed in found
    ]
    return tuple(each for each in unreached if each.inputs or each.elements >= _LEAST * manifest.numel)


def _idle(model: nn.Module, unread: Collection[str]) -> Iterator[tuple[str, nn.Module]]:
    """Yield the outermost modules that have parameters, all of them unread."""
    waiting = deque(model.named_children())
    while waiting:
        path, module = waiting.popleft()
        names = [f"{path}.{name}" for name, _ in module.named_parameters()]
        if names and all(name in unread for name in names):
            yield path, module
        elif not names or any(name in unread for name in names):
            waiting.extendleft(
                (f"{path}.{name}", child) for name, child in reversed(list(module.named_children()))
            )


def _needed_arguments(module: nn.Module, lacking: Collection[str]) -> tuple[str, ...]:
    """Return the missing arguments of forward that a module needs, as its first informative part declares them."""
    for part in module.modules():
        main_input = getattr(part, "main_input_name", None)
        if main_input in lacking:
            return (str(main_input),)
        kinds = getattr(part, "input_modalities", None) or ()
        taken = [
            name
            for kind in ([kinds] if isinstance(kinds, str) else kinds)
            for name in _MODALITIES.get(kind, ())
        ]
        taken += [
            name for name in inspect.signature(part.forward).parameters if name.startswith("pixel_values")
        ]
        found = tuple(dict.fromkeys(name for name in taken if name in lacking))
        if found:
            return found
    own = inspect.signature(module.forward).parameters
    return tuple(
        name for name in own if name in lacking and not name.startswith(("output_", "return_", "use_"))
    )
