"""A graph -> the same computation in local functions, as in exported and hand-written files."""

from __future__ import annotations

from collections.abc import Callable

import onnx
from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, helper

DOMAIN = "my"


def fed(proto: ModelProto, name: str = "Whole") -> ModelProto:
    """Put all nodes into one function; stored tensors stay in the main graph, as inputs of the call."""
    graph = proto.graph
    stored = [tensor.name for tensor in graph.initializer]
    inputs = [*(value.name for value in graph.input), *stored]
    outputs = [value.name for value in graph.output]
    call = helper.make_node(name, inputs, outputs, domain=DOMAIN)
    # Inside, all values have other names, and their names sort in another order.
    inner = {value: f"inner_{value}" for value in _values(graph.node)}
    body = _renamed(graph.node, inner)
    # The inputs of the call have the order of the main graph.
    return _with(
        proto, [call], _function(proto, name, [inner[i] for i in inputs], [inner[o] for o in outputs], body)
    )


def inside(proto: ModelProto, name: str = "Whole") -> ModelProto:
    """Put all nodes into one function, and stored tensors into Constant nodes there."""
    graph = proto.graph
    constants = [
        helper.make_node("Constant", [], [tensor.name], value=tensor) for tensor in graph.initializer
    ]
    inputs, outputs = [value.name for value in graph.input], [value.name for value in graph.output]
    made = _with(
        proto,
        [helper.make_node(name, inputs, outputs, domain=DOMAIN)],
        _function(proto, name, inputs, outputs, [*constants, *graph.node]),
    )
    del made.graph.initializer[:]
    return made


def by_operator(proto: ModelProto, op_type: str = "MatMul") -> ModelProto:
    """Replace each node of an operator by a call of one function that has only such a node."""
    inner = [helper.make_node(op_type, ["a", "b"], ["c"])]
    nodes = [
        helper.make_node(f"Own{op_type}", node.input, node.output, domain=DOMAIN)
        if node.op_type == op_type
        else node
        for node in proto.graph.node
    ]
    return _with(proto, nodes, _function(proto, f"Own{op_type}", ["a", "b"], ["c"], inner))


def turned(proto: ModelProto) -> ModelProto:
    """Store each weight of a MatMul transposed, and transpose it back in one function that all of them call."""
    made = ModelProto()
    made.CopyFrom(proto)
    weights = {node.input[1] for node in made.graph.node if node.op_type == "MatMul"}
    nodes: list[NodeProto] = []
    for tensor in made.graph.initializer:
        if tensor.name in weights:
            array = onnx.numpy_helper.to_array(tensor)
            tensor.CopyFrom(onnx.numpy_helper.from_array(array.T.copy(), tensor.name))
            nodes.append(helper.make_node("Turn", [tensor.name], [f"{tensor.name}_t"], domain=DOMAIN))
    names = {name: f"{name}_t" for name in weights if any(t.name == name for t in made.graph.initializer)}
    nodes += _renamed(made.graph.node, names, only_inputs=True)
    turn = [helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0])]
    return _with(made, nodes, _function(made, "Turn", ["w"], ["t"], turn))


def _values(nodes: object) -> list[str]:
    return sorted({name for node in nodes for name in (*node.input, *node.output) if name}, reverse=True)


def _renamed(nodes: object, names: dict[str, str], *, only_inputs: bool = False) -> list[NodeProto]:
    made = []
    for node in nodes:
        copy = NodeProto()
        copy.CopyFrom(node)
        copy.input[:] = [names.get(name, name) for name in node.input]
        if not only_inputs:
            copy.output[:] = [names.get(name, name) for name in node.output]
        made.append(copy)
    return made


def _function(
    proto: ModelProto, name: str, inputs: list[str], outputs: list[str], nodes: list[NodeProto]
) -> FunctionProto:
    opsets = [*proto.opset_import, helper.make_opsetid(DOMAIN, 1)]
    return helper.make_function(DOMAIN, name, inputs, outputs, nodes, opsets)


def _with(proto: ModelProto, nodes: list[NodeProto], function: FunctionProto) -> ModelProto:
    made = ModelProto()
    made.CopyFrom(proto)
    graph: GraphProto = made.graph
    del graph.node[:]
    graph.node.extend(nodes)
    if all(opset.domain != DOMAIN for opset in made.opset_import):
        made.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    made.functions.append(function)
    return made


def _both(first: Callable[[ModelProto], ModelProto], second: Callable[[ModelProto], ModelProto]):
    return lambda proto: second(first(proto))


FORMS: dict[str, Callable[[ModelProto], ModelProto]] = {
    "fed": fed,
    "inside": inside,
    "by-operator": by_operator,
    "turned": turned,
    "fed-nested": _both(by_operator, fed),
    "inside-nested": _both(by_operator, inside),
    "fed-twice": _both(fed, lambda proto: fed(proto, "Outer")),
    "inside-twice": _both(inside, lambda proto: inside(proto, "Outer")),
    "fed-turned": _both(turned, fed),
    "inside-turned": _both(turned, inside),
}
"""Ways to put a graph into functions, by name."""
