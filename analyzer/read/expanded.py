"""A model -> the same with calls replaced by nodes: of its own functions, and of operators without a kernel."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import onnx
from onnx import defs, inliner, shape_inference

from analyzer.read.described import MADE
from analyzer.read.sized import Sizer

_HALF = onnx.TensorProto.FLOAT16
_NEWEST_IR = 10
_WITHIN = frozenset({"CastLike", "SequenceMap"})
"""Functions that are not expanded here: CastLike is one Cast, SequenceMap a Loop."""
_TYPED = (onnx.AttributeProto.INT, onnx.AttributeProto.TENSOR)
"""Kinds of attributes that may state the type of a node's output."""


def kernel_name(domain: str, op_type: str, opset: int) -> str:
    """Return the name of an operator in kernel tables: with its domain, and the version of its last change.

    Args:
        domain: "" for ONNX's own operators; all others have one version.
        op_type: name of the operator.
        opset: version of ONNX's own operators.

    >>> kernel_name("", "Softmax", 20), kernel_name("com.microsoft", "Gelu", 20)
    ('Softmax@13', 'com.microsoft::Gelu@1')
    """
    if domain in ("", "ai.onnx"):
        try:
            return f"{op_type}@{defs.get_schema(op_type, opset, '').since_version}"
        except defs.SchemaError:
            return f"{op_type}@1"
    return f"{domain}::{op_type}@1"


def variadic_places(node: onnx.NodeProto, opset: int) -> tuple[int | None, int | None]:
    """Return the positions of the variadic input and output of an ONNX operator; None for none."""
    if node.domain not in ("", "ai.onnx"):
        return None, None
    try:
        schema = defs.get_schema(node.op_type, opset, "")
    except defs.SchemaError:
        return None, None
    many = defs.OpSchema.FormalParameterOption.Variadic
    first, second = (
        len(formal) - 1 if formal and formal[-1].option == many else None
        for formal in (schema.inputs, schema.outputs)
    )
    return first, second


def expand_own(model: onnx.ModelProto) -> int:
    """Replace the calls of a model's own functions by their bodies; return the number of calls."""
    if not model.functions:
        return 0
    own = {(function.domain, function.name) for function in model.functions}
    expanded = sum((node.domain, node.op_type) in own for node in model.graph.node)
    inlined = inliner.inline_local_functions(model)
    model.Clear()
    model.CopyFrom(inlined)
    return expanded


def expand_functions(
    model: onnx.ModelProto, kernels: Collection[str], functions: Collection[str] = ()
) -> Mapping[str, int]:
    """Replace nodes that have no kernel for their types by the nodes of their function, as ONNX defines it.

    onnxruntime does the same for an operator that is a function, if no kernel takes its types. Run this in a process of
    its own: inference of a file may crash it.

    Args:
        model: the model, whose main graph is changed.
        kernels: kernels that take FLOAT16, as `kernel_name` names them.
        functions: operators without a kernel for any type.

    Returns:
        The first outputs of the added nodes, each with its number: onnxruntime counts these nodes after all others.
    """
    added: dict[str, int] = {}
    without_kernel = frozenset(functions) - _WITHIN
    if not _has_halves(model.graph) and not any(node.op_type in without_kernel for node in model.graph.node):
        return added
    opset = next((each.version for each in model.opset_import if each.domain in ("", "ai.onnx")), 1)
    while expansions := _expansions(model, opset, kernels, without_kernel):
        nodes = [expansions.get(place, [node]) for place, node in enumerate(model.graph.node)]
        for expansion in expansions.values():
            for node in expansion:
                added[node.output[0]] = len(added)
        del model.graph.node[:]
        model.graph.node.extend(node for each in nodes for node in each)
    return added


def with_second_names(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model in which each FLOAT16 output of a node that reads FLOAT16 has a second name.

    An Identity passes the value on under its own name. Inference of the second name uses the node's inputs alone.
    onnxruntime knows no more of a value behind which it puts a Cast, whatever the file states of the value.
    """
    if not _has_halves(model.graph):
        return model
    types = _types(model)
    marked = onnx.ModelProto()
    marked.CopyFrom(model)
    nodes = []
    for node in marked.graph.node:
        nodes.append(node)
        if not any(_element(types.get(name)) == _HALF for name in node.input):
            continue
        for place, name in enumerate(node.output):
            if name and _element(types.get(name)) == _HALF:
                node.output[place] = name + MADE
                nodes.append(onnx.helper.make_node("Identity", [name + MADE], [name]))
    kept = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del marked.graph.node[:]
    marked.graph.node.extend(kept)
    return marked


def _expansions(
    model: onnx.ModelProto, opset: int, kernels: Collection[str], without_kernel: Collection[str]
) -> Mapping[int, Sequence[onnx.NodeProto]]:
    """Return the nodes that replace each expanded node, by its position."""
    graph = model.graph
    calls = {
        place: node
        for place, node in enumerate(graph.node)
        if node.domain in ("", "ai.onnx")
        and _written_for(node.op_type, opset)
        and kernel_name("", node.op_type, opset) not in kernels
    }
    if not calls:
        return {}
    types = _types(model)
    taken = {name for node in graph.node for name in node.output}
    bodies = {}
    for place, node in calls.items():
        if node.op_type in without_kernel or any(_element(types.get(name)) == _HALF for name in node.input):
            nodes = _body(node, types, opset, taken)
            if nodes:
                bodies[place] = nodes
    return bodies


def _has_halves(graph: onnx.GraphProto) -> bool:
    """Whether anything is FLOAT16; a model without it skips the slow steps."""
    values = (*graph.input, *graph.output, *graph.value_info)
    if any(tensor.data_type == _HALF for tensor in graph.initializer):
        return True
    if any(value.type.tensor_type.elem_type == _HALF for value in values):
        return True
    attributes = (attribute for node in graph.node for attribute in node.attribute)
    return any(
        _HALF in (attribute.t.data_type, attribute.i) for attribute in attributes if attribute.type in _TYPED
    )


def _written_for(op_type: str, opset: int) -> int:
    """Return the version that a function's body was written for; 0 if ONNX has no body for this version."""
    try:
        schema = defs.get_schema(op_type, opset, "")
    except defs.SchemaError:
        return 0
    versions: list[int] = schema.all_function_opset_versions  # type: ignore[attr-defined]  # not in onnx's stubs
    return max((version for version in versions if version <= opset), default=0)


def _is_body_valid(op_type: str, nodes: Sequence[onnx.NodeProto], opset: int) -> bool:
    """Whether all operators of a body mean the same as in the version that it was written for.

    ONNX requires this of fixed bodies, but not of those that depend on types and attributes.
    """
    written = _written_for(op_type, opset)
    fixed: list[int] = defs.get_schema(op_type, opset, "").function_opset_versions  # type: ignore[attr-defined]
    if written not in fixed:
        return True
    return all(
        kernel_name("", node.op_type, written) == kernel_name("", node.op_type, opset) for node in nodes
    )


def _types(model: onnx.ModelProto) -> Mapping[str, onnx.TypeProto]:
    try:
        graph = shape_inference.infer_shapes(model).graph
    except (shape_inference.InferenceError, ValueError, RuntimeError):
        graph = model.graph
    types = {value.name: value.type for value in (*graph.input, *graph.value_info, *graph.output)}
    for name, (element, dims) in Sizer(model).types(None).items():  # onnxruntime's own operators too
        if element and not _element(types.get(name)):
            types[name] = onnx.helper.make_tensor_type_proto(element, dims)
    for tensor in graph.initializer:
        types[tensor.name] = onnx.helper.make_tensor_type_proto(tensor.data_type, tuple(tensor.dims))
    return types


def _element(kind: onnx.TypeProto | None) -> int:
    return 0 if kind is None else int(kind.tensor_type.elem_type)


def _body(
    node: onnx.NodeProto, types: Mapping[str, onnx.TypeProto], opset: int, taken: set[str]
) -> list[onnx.NodeProto]:
    """Return the nodes of a function, with new names; none if ONNX has no body for these types."""
    helper = onnx.helper
    inputs = [
        helper.make_value_info(name, types[name])
        for name in dict.fromkeys(node.input)
        if name and name in types
    ]
    if len(inputs) < len({name for name in node.input if name}):
        return []
    outputs = [
        helper.make_value_info(name, types.get(name, onnx.TypeProto())) for name in node.output if name
    ]
    single_call = helper.make_model(
        helper.make_graph([_with_defaults(node, opset)], "call", inputs, outputs),
        opset_imports=[helper.make_opsetid("", opset)],
        ir_version=_NEWEST_IR,
    )
    try:
        inlined = inliner.inline_selected_functions(
            single_call, [(node.domain, node.op_type)], inline_schema_functions=True
        )
    except (ValueError, RuntimeError):
        return []
    nodes = list(inlined.graph.node)
    is_unchanged = len(nodes) == 1 and nodes[0].op_type == node.op_type
    if is_unchanged or not _is_body_valid(node.op_type, nodes, opset):
        return []
    outer = {*node.input, *node.output}
    names: dict[str, str] = {}
    for each in nodes:
        for name in each.output:
            if name and name not in outer:
                names[name] = _free(f"{node.output[0]}/{name}", taken)
    for each in nodes:
        each.name = f"{node.name or node.output[0]}/{each.name or each.op_type}"
        for field in (each.input, each.output):
            for place, name in enumerate(field):
                field[place] = names.get(name, name)
    return nodes


def _with_defaults(node: onnx.NodeProto, opset: int) -> onnx.NodeProto:
    """Return the node with all omitted attributes at their defaults, to which its body may refer."""
    full = onnx.NodeProto()
    full.CopyFrom(node)
    present = {attribute.name for attribute in node.attribute}
    for name, attribute in defs.get_schema(node.op_type, opset, "").attributes.items():
        if name not in present and attribute.default_value.type:
            full.attribute.append(attribute.default_value)
    return full


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name
