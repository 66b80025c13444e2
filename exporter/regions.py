"""A traced program -> the same program with the calls of its regions in one graph.

`torch.export` puts the calls inside `with torch.autocast(...)` or `with torch.no_grad()` into a graph of their own
(`torch._higher_order_ops.wrap`). A region without effect on values is opened: one that switches autocast off, or that
switches it on for another device than the traced one.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from exporter.nodes import operator_name

_OPERANDS = {"wrap_with_autocast": 5, "wrap_with_set_grad_enabled": 2}
"""Position of the first operand of a region; the one before it is the region's graph."""


def open_regions(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Return a program whose regions without effect are opened; the program itself if it has none.

    The program that is passed stays as it is. The new one shares its weights.
    """
    if not any(map(_may_open, program.graph.nodes)):
        return program
    module = fx.GraphModule(program.graph_module, _copy(program.graph))
    for _ in range(_DEEPEST):
        regions = [node for node in module.graph.nodes if _may_open(node)]
        for node in regions:
            _open(module, node)
        if not regions:
            break
    for node in list(module.graph.nodes):
        if node.op == "get_attr" and not node.users:
            module.graph.erase_node(node)
    module.recompile()
    return torch.export.ExportedProgram(
        root=module,
        graph=module.graph,
        graph_signature=program.graph_signature,
        state_dict=program.state_dict,
        range_constraints=program.range_constraints,
        module_call_graph=program.module_call_graph,
        example_inputs=program.example_inputs,
        constants=program.constants,
        verifiers=program.verifiers,
    )


_DEEPEST = 8
"""Most regions inside one another."""


def _copy(graph: fx.Graph) -> fx.Graph:
    copied = fx.Graph()
    output: Any = copied.graph_copy(graph, {}, return_output_node=True)
    value, node = output
    copied.output(value).meta.update(node.meta)
    return copied


def _may_open(node: fx.Node) -> bool:
    name = operator_name(node.target) if node.op == "call_function" else ""
    if name == "wrap_with_autocast":
        return node.args[0] != "cpu" or node.args[2] is False
    return name == "wrap_with_set_grad_enabled"


def _open(module: fx.GraphModule, region: fx.Node) -> None:
    first = _OPERANDS[operator_name(region.target)]
    holder: Any = region.args[first - 1]
    inner = module.get_submodule(holder.target)
    assert isinstance(inner, fx.GraphModule)
    places = [node for node in inner.graph.nodes if node.op == "placeholder"]
    values: dict[fx.Node, Any] = dict(zip(places, region.args[first:], strict=True))
    with module.graph.inserting_before(region):
        results: Any = module.graph.graph_copy(inner.graph, values)
    for user in list(region.users):
        if isinstance(results, (list, tuple)) and user.target is operator.getitem:
            number: Any = user.args[1]
            user.replace_all_uses_with(results[number])
            module.graph.erase_node(user)
    if region.users:
        region.replace_all_uses_with(results)
    module.graph.erase_node(region)
