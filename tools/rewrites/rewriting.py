"""The list of rewrites: each keeps the results of the file, up to a stated rounding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tools.suite.surgery import NoPlaceError, Product, Surgery, bodies, every_node, sort_nodes

__all__ = ["REWRITES", "Rewrite"]

Make = Callable[[Surgery, Path], Any]
"""Function that changes the model in place, or returns another model or the path of one."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """One way to write the same model."""

    name: str
    make: Make
    tolerance: float
    """Largest change of the outputs, relative to the largest output; infinite if codes are coarse."""


REWRITES: dict[str, Rewrite] = {}
EXACT, HALF, BRAIN, CODES = 1e-3, 3e-2, 0.3, float("inf")


def rewrite(name: str, tolerance: float = EXACT) -> Callable[[Make], Make]:
    def register(make: Make) -> Make:
        REWRITES[name] = Rewrite(name, make, tolerance)
        return make

    return register


# Names, notes and order


def rename(graph: Any, new: Callable[[str], str], *, stored_only: bool = False) -> None:
    """Rename every value of the main graph, except the model's inputs and outputs."""
    kept = {v.name for v in graph.input} | {v.name for v in graph.output} | {""}
    names = {t.name for t in graph.initializer} | {t.values.name for t in graph.sparse_initializer}
    if not stored_only:
        names |= {output for node in graph.node for output in node.output}
    table = {name: new(name) for name in sorted(names - kept)}
    for node in every_node(graph):
        for values in (node.input, node.output):
            for place, name in enumerate(values):
                values[place] = table.get(name, name)
        for body in bodies(node):
            for output in body.output:
                output.name = table.get(output.name, output.name)
    for holder in [*graph.initializer, *graph.value_info]:
        holder.name = table.get(holder.name, holder.name)
    for annotation in graph.quantization_annotation:
        annotation.tensor_name = table.get(annotation.tensor_name, annotation.tensor_name)


def numbered(letter: str) -> Callable[[str], str]:
    table: dict[str, str] = {}
    return lambda name: table.setdefault(name, f"{letter}{len(table)}")


def strip_notes(model: Any) -> None:
    for holder in [model, model.graph, *model.functions]:
        del holder.metadata_props[:]
        holder.doc_string = ""
    for graph in [model.graph, *(body for node in every_node(model.graph) for body in bodies(node))]:
        del graph.value_info[:]
        for tensor in graph.initializer:
            tensor.doc_string = ""
            del tensor.metadata_props[:]
    for node in every_node(model.graph):
        node.doc_string = ""
        del node.metadata_props[:]


@rewrite("every value renamed")
def values_renamed(s: Surgery, place: Path) -> None:
    rename(s.graph, numbered("v"))


@rewrite("initializers renamed")
def initializers_renamed(s: Surgery, place: Path) -> None:
    rename(s.graph, numbered("w"), stored_only=True)


@rewrite("nodes renamed")
def nodes_renamed(s: Surgery, place: Path) -> None:
    for place_, node in enumerate(every_node(s.graph)):
        node.name = f"node{place_}"


@rewrite("nodes without names")
def nodes_nameless(s: Surgery, place: Path) -> None:
    for node in every_node(s.graph):
        node.name = ""


@rewrite("notes and doc strings stripped")
def notes_stripped(s: Surgery, place: Path) -> None:
    strip_notes(s.model)


@rewrite("all names and notes stripped")
def all_stripped(s: Surgery, place: Path) -> None:
    strip_notes(s.model)
    rename(s.graph, numbered("v"))
    for node in every_node(s.graph):
        node.name = ""


@rewrite("value_info stripped")
def value_info(s: Surgery, place: Path) -> None:
    del s.graph.value_info[:]


@rewrite("shapes inferred")
def shapes(s: Surgery, place: Path) -> Any:
    return onnx.shape_inference.infer_shapes(s.model)


@rewrite("names with a prefix and a dot")
def dotted(s: Surgery, place: Path) -> None:
    rename(s.graph, lambda name: f"student.{name}", stored_only=True)


@rewrite("names with a prefix and no dot")
def undotted(s: Surgery, place: Path) -> None:
    rename(s.graph, lambda name: f"m_{name}", stored_only=True)


@rewrite("names with underscores for dots")
def underscores(s: Surgery, place: Path) -> None:
    rename(s.graph, lambda name: name.replace(".", "_"), stored_only=True)


@rewrite("names with a suffix")
def suffix(s: Surgery, place: Path) -> None:
    rename(s.graph, lambda name: f"{name}_copy", stored_only=True)


@rewrite("onnx.compose.add_prefix")
def add_prefix(s: Surgery, place: Path) -> Any:
    return onnx.compose.add_prefix(s.model, "sub_")


@rewrite("nodes in another order")
def shuffled(s: Surgery, place: Path) -> None:
    order = s.random.random(len(s.graph.node))
    sort_nodes(s.graph, lambda at: float(order[at]))


@rewrite("nodes as late as can be")
def reversed_order(s: Surgery, place: Path) -> None:
    sort_nodes(s.graph, lambda at: -float(at))


@rewrite("initializers in another order")
def tensors_shuffled(s: Surgery, place: Path) -> None:
    tensors = [onnx.TensorProto.FromString(t.SerializeToString()) for t in s.graph.initializer]
    del s.graph.initializer[:]
    s.graph.initializer.extend(tensors[at] for at in s.random.permutation(len(tensors)))


# Storage of tensors


@rewrite("initializers as Constant nodes")
def to_constants(s: Surgery, place: Path) -> None:
    made = [
        helper.make_node("Constant", [], [t.name], f"const_{t.name}", value=t) for t in s.graph.initializer
    ]
    del s.graph.initializer[:]
    nodes = [onnx.NodeProto.FromString(n.SerializeToString()) for n in s.graph.node]
    del s.graph.node[:]
    s.graph.node.extend([*made, *nodes])


@rewrite("Constant nodes as initializers")
def to_initializers(s: Surgery, place: Path) -> None:
    found = [n for n in s.nodes if n.op_type == "Constant" and n.attribute[0].name == "value"]
    if not found:
        raise NoPlaceError("no Constant")
    for node in found:
        tensor = onnx.TensorProto.FromString(node.attribute[0].t.SerializeToString())
        tensor.name = node.output[0]
        s.graph.initializer.append(tensor)
        s.remove(node)


@rewrite("initializers as graph inputs, IR 3")
def as_inputs(s: Surgery, place: Path) -> None:
    inputs = {v.name for v in s.graph.input}
    for tensor in s.graph.initializer:
        if tensor.name not in inputs:
            s.graph.input.append(
                helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
            )
    s.model.ir_version = 3
    if s.model.functions:
        raise NoPlaceError("functions")


@rewrite("values in typed fields, not raw")
def typed(s: Surgery, place: Path) -> None:
    for tensor in s.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.dtype in (np.float32, np.int64, np.int32, np.float64) and array.size:
            notes = list(tensor.metadata_props)
            made = helper.make_tensor(tensor.name, tensor.data_type, tensor.dims, array.reshape(-1).tolist())
            tensor.CopyFrom(made)
            tensor.metadata_props.extend(notes)


@rewrite("external data")
def external(s: Surgery, place: Path) -> Path:
    path = place / "external.onnx"
    onnx.save(s.finish(), path, save_as_external_data=True, location="external.bin", size_threshold=0)
    return path


@rewrite("equal initializers merged")
def merged(s: Surgery, place: Path) -> None:
    first: dict[tuple[Any, ...], str] = {}
    for tensor in list(s.graph.initializer):
        array = numpy_helper.to_array(tensor)
        key = (tensor.data_type, tuple(tensor.dims), array.tobytes())
        if key in first:
            s.rewire(tensor.name, first[key])
            s.graph.initializer.remove(tensor)
        else:
            first[key] = tensor.name


@rewrite("shared tensors copied for each reader")
def copied(s: Surgery, place: Path) -> None:
    done = 0
    for tensor in list(s.graph.initializer):
        for node, slot in s.readers(tensor.name)[1:]:
            if int(np.prod(tensor.dims)) > 64:
                node.input[slot] = s.add(numpy_helper.to_array(tensor), f"{tensor.name}_copy")
                done += 1
    if not done:
        raise NoPlaceError("nothing is shared")


@rewrite("what nothing reads removed")
def dead_removed(s: Surgery, place: Path) -> None:
    live = s.live()
    for node in [n for n in s.nodes if not {*n.output} & live]:
        s.remove(node)
    for tensor in [t for t in s.graph.initializer if t.name not in live]:
        s.graph.initializer.remove(tensor)


# Nodes without an effect


def weights(s: Surgery) -> list[Product]:
    found = s.products(codes=False)
    if not found:
        raise NoPlaceError("no float weight")
    return found


def before_products(s: Surgery, make: Callable[[str, Product], str]) -> None:
    for product in weights(s):
        product.node.input[product.slot] = make(product.node.input[product.slot], product)


@rewrite("Identity before every weight's product")
def identities(s: Surgery, place: Path) -> None:
    before_products(s, lambda value, _: s.node("Identity", [value]))


@rewrite("Identity behind every activation")
def identities_behind(s: Surgery, place: Path) -> None:
    for value in s.activations():
        s.after(value, lambda x: s.node("Identity", [x]))


@rewrite("two Transposes before every weight's product")
def transposes(s: Surgery, place: Path) -> None:
    def make(value: str, product: Product) -> str:
        axes = list(range(len(s.stored()[product.tensor].dims)))
        turned = s.node("Transpose", [value], perm=axes[::-1])
        return s.node("Transpose", [turned], perm=axes[::-1])

    before_products(s, make)


@rewrite("weights stored transposed, with a Transpose")
def pretransposed(s: Surgery, place: Path) -> None:
    for name in {p.tensor: None for p in weights(s)}:
        w = s.array(name)
        replace(s, name, then(s, "Transpose", perm=[*range(w.ndim)][::-1]), w.T)


def replace(s: Surgery, name: str, make: Callable[[str], str], array: Any) -> None:
    """Store the array in the tensor's place, and make its readers read the output of `make`."""
    readers = s.readers(name)
    notes = [v for v in s.graph.value_info if v.name == name]
    for value in notes:
        s.graph.value_info.remove(value)
    for tensor in [t for t in s.graph.initializer if t.name == name]:
        s.graph.initializer.remove(tensor)
    for node in [n for n in s.nodes if n.op_type == "Constant" and n.output[0] == name]:
        s.remove(node)
    s.graph.initializer.append(numpy_helper.from_array(np.array(array, order="C"), name))
    value = make(name)
    for node, slot in readers:
        node.input[slot] = value


def then(s: Surgery, op_type: str, *inputs: str, **attributes: Any) -> Callable[[str], str]:
    """Return a function that adds a node behind a value."""
    return lambda value: s.node(op_type, [value, *inputs], **attributes)


@rewrite("weights stored flat, with a Reshape")
def flat(s: Surgery, place: Path) -> None:
    for name in {p.tensor: None for p in weights(s)}:
        w = s.array(name)
        shape = s.add(np.array(w.shape, np.int64))
        replace(s, name, then(s, "Reshape", shape), w.reshape(-1))


@rewrite("weights stored with an axis more, with a Squeeze")
def squeezed(s: Surgery, place: Path) -> None:
    for name in {p.tensor: None for p in weights(s)}:
        axes = s.add(np.array([0], np.int64))
        replace(s, name, then(s, "Squeeze", axes), s.array(name)[None])


@rewrite("vectors stored as rows of a matrix")
def rows(s: Surgery, place: Path) -> None:
    found = {v.tensor for v in s.vectors("Add", "Mul") if s.array(v.tensor).ndim == 1}
    if not found:
        raise NoPlaceError("no vector")
    for name in sorted(found):
        replace(s, name, lambda new: new, s.array(name)[None])


@rewrite("weights stored in two halves, with a Concat")
def halves(s: Surgery, place: Path) -> None:
    for name in {p.tensor: None for p in weights(s)}:
        w = s.array(name)
        half = w.shape[0] // 2
        if not half:
            continue
        rest = s.add(w[half:], f"{name}.1")
        replace(s, name, then(s, "Concat", rest, axis=0), w[:half])


@rewrite("weights in float64, through Cast")
def wide(s: Surgery, place: Path) -> None:
    through_cast(s, np.float64)


@rewrite("weights in float16, through Cast", HALF)
def half(s: Surgery, place: Path) -> None:
    through_cast(s, np.float16)


@rewrite("weights in bfloat16, through Cast", BRAIN)
def brain(s: Surgery, place: Path) -> None:
    import ml_dtypes

    through_cast(s, ml_dtypes.bfloat16)


@rewrite("weights in float32, through Cast to half")
def widened(s: Surgery, place: Path) -> None:
    if not any(t.data_type == TensorProto.FLOAT16 for t in s.graph.initializer):
        raise NoPlaceError("not half")
    through_cast(s, np.float32)


def through_cast(s: Surgery, kind: Any) -> None:
    done = 0
    for tensor in list(s.graph.initializer):
        if tensor.data_type not in (TensorProto.FLOAT, TensorProto.FLOAT16) or int(np.prod(tensor.dims)) < 8:
            continue
        w = numpy_helper.to_array(tensor)
        if w.dtype == np.dtype(kind) or any(
            n.op_type in ("DequantizeLinear", "MatMulNBits") for n, _ in s.readers(tensor.name)
        ):
            continue
        replace(s, tensor.name, then(s, "Cast", to=tensor.data_type), w.astype(kind))
        done += 1
    if not done:
        raise NoPlaceError("no tensor")


@rewrite("times one, plus nothing")
def neutral(s: Surgery, place: Path) -> None:
    value = s.pick(s.activations(), "no activation")
    seen = s.seen[value]
    one, zero = s.add(np.array(1, seen.dtype)), s.add(np.array(0, seen.dtype))
    s.after(value, lambda x: s.node("Add", [s.node("Mul", [x, one]), zero]))


@rewrite("Dropout that is off")
def dropout(s: Surgery, place: Path) -> None:
    for value in s.activations()[::4]:
        s.after(value, lambda x: s.node("Dropout", [x]))


@rewrite("operands of Add and Mul exchanged")
def commuted(s: Surgery, place: Path) -> None:
    for node in s.nodes:
        if node.op_type in ("Add", "Mul"):
            first, second = node.input
            node.input[0], node.input[1] = second, first


# The same product by other operators


@rewrite("Gemm as MatMul and Add")
def gemm_split(s: Surgery, place: Path) -> None:
    found = [n for n in s.nodes if n.op_type == "Gemm"]
    if not found:
        raise NoPlaceError("no Gemm")
    for node in found:
        options = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        if options.get("alpha", 1) != 1 or options.get("beta", 1) != 1 or options.get("transA", 0):
            continue
        right = (
            s.node("Transpose", [node.input[1]], perm=[1, 0]) if options.get("transB", 0) else node.input[1]
        )
        product = s.node("MatMul", [node.input[0], right])
        if len(node.input) > 2:
            product = s.node("Add", [product, node.input[2]])
        replace_node(s, node, product)


def replace_node(s: Surgery, node: Any, value: str) -> None:
    """Remove a node, and give its output's name to a value of another node."""
    output = node.output[0]
    s.remove(node)
    next(n for n in s.nodes if value in n.output).output[0] = output


@rewrite("MatMul and Add as Gemm")
def gemm_merged(s: Surgery, place: Path) -> None:
    done = 0
    for product in s.products(codes=False):
        node = product.node
        if node.op_type != "MatMul" or product.slot != 1 or s.seen.get(node.input[0]) is None:
            continue
        adds = [n for n, _ in s.readers(node.output[0])]
        bias = next((v.tensor for v in s.vectors("Add") if adds and v.node is adds[0]), None)
        if len(adds) != 1 or bias is None or s.array(bias).ndim != 1 or len(s.seen[node.input[0]].shape) != 3:
            continue
        width = s.array(bias).size
        flat_input = s.node("Flatten", [node.input[0]], axis=2)
        made = s.node("Gemm", [flat_input, node.input[1], bias])
        shape = s.node("Shape", [node.input[0]], start=0, end=2)
        whole = s.node("Concat", [shape, s.add(np.array([width], np.int64))], axis=0)
        value = s.node("Reshape", [made, whole])
        s.remove(node)
        replace_node(s, adds[0], value)
        done += 1
    if not done:
        raise NoPlaceError("no MatMul with a bias")


@rewrite("weight in two products, joined")
def two_products(s: Surgery, place: Path) -> None:
    """Split the columns of a weight into two parts, each with its own product."""
    done = 0
    for product in s.products(codes=False):
        node = product.node
        w = s.array(product.tensor)
        if (
            node.op_type != "MatMul"
            or product.slot != 1
            or product.moves
            or w.ndim != 2
            or len(s.readers(product.tensor)) > 1
        ):
            continue
        at = w.shape[1] // 2
        rest = s.add(w[:, at:], f"{product.tensor}_b")
        replace(s, product.tensor, lambda new: new, w[:, :at])
        parts = [s.node("MatMul", [node.input[0], name]) for name in (product.tensor, rest)]
        replace_node(s, node, s.node("Concat", parts, axis=-1))
        done += 1
        if done == 4:
            return
    if not done:
        raise NoPlaceError("no plain MatMul")


@rewrite("products of one input packed, and split")
def packed(s: Surgery, place: Path) -> None:
    by_input: dict[str, list[Product]] = {}
    for product in s.products(codes=False):
        if product.node.op_type == "MatMul" and product.slot == 1 and not product.moves:
            by_input.setdefault(product.node.input[0], []).append(product)
    groups = [g for g in by_input.values() if len(g) > 1 and len({p.tensor for p in g}) == len(g)]
    if not groups:
        raise NoPlaceError("no products of one input")
    for group in groups:
        arrays = [s.array(p.tensor) for p in group]
        if any(len(s.readers(p.tensor)) > 1 for p in group):
            continue
        whole = s.add(np.concatenate(arrays, axis=1), "packed")
        product_value = s.node("MatMul", [group[0].node.input[0], whole])
        sizes = s.add(np.array([w.shape[1] for w in arrays], np.int64))
        outputs = [p.node.output[0] for p in group]
        for p in group:
            s.remove(p.node)
            for tensor in [t for t in s.graph.initializer if t.name == p.tensor]:
                s.graph.initializer.remove(tensor)
            for node in [n for n in s.nodes if n.op_type == "Constant" and n.output[0] == p.tensor]:
                s.remove(node)
        s.graph.node.append(
            helper.make_node("Split", [product_value, sizes], outputs, s.fresh("split"), axis=-1)
        )


@rewrite("product turned: (W' x')'")
def turned_product(s: Surgery, place: Path) -> None:
    done = 0
    for product in s.products(codes=False):
        node = product.node
        seen = s.seen.get(node.input[0])
        if node.op_type != "MatMul" or product.slot != 1 or seen is None or len(seen.shape) != 3:
            continue
        right = s.node("Transpose", [node.input[1]], perm=[1, 0])
        left = s.node("Transpose", [node.input[0]], perm=[0, 2, 1])
        replace_node(s, node, s.node("Transpose", [s.node("MatMul", [right, left])], perm=[0, 2, 1]))
        done += 1
    if not done:
        raise NoPlaceError("no MatMul")


@rewrite("MatMul as Einsum")
def einsum(s: Surgery, place: Path) -> None:
    done = 0
    for product in s.products(codes=False):
        node = product.node
        seen = s.seen.get(node.input[0])
        if (
            node.op_type != "MatMul"
            or product.slot != 1
            or seen is None
            or len(seen.shape) != 3
            or seen.dtype != "float32"
        ):
            continue
        replace_node(s, node, s.node("Einsum", list(node.input), equation="xyz,zw->xyw"))
        done += 1
    if not done:
        raise NoPlaceError("no MatMul")


@rewrite("bias of a convolution as an Add")
def conv_bias(s: Surgery, place: Path) -> None:
    found = [n for n in s.nodes if n.op_type == "Conv" and len(n.input) > 2 and n.input[2]]
    if not found:
        raise NoPlaceError("no Conv with a bias")
    for node in found:
        bias = node.input[2]
        del node.input[2:]
        axes = s.add(np.array([0, 2, 3], np.int64))
        output, inner = node.output[0], s.fresh("inner")
        node.output[0] = inner
        value = s.node("Add", [inner, s.node("Unsqueeze", [bias, axes])])
        next(n for n in s.nodes if value in n.output).output[0] = output


@rewrite("LayerNormalization in primitives")
def norm_split(s: Surgery, place: Path) -> None:
    found = [n for n in s.nodes if n.op_type == "LayerNormalization" and len(n.output) == 1]
    if not found:
        raise NoPlaceError("no LayerNormalization")
    for node in found:
        kind = s.array(node.input[1]).dtype if node.input[1] in s.stored() else np.dtype(np.float32)
        epsilon = next((a.f for a in node.attribute if a.name == "epsilon"), 1e-5)
        axes = s.add(np.array([-1], np.int64))
        mean = s.node("ReduceMean", [node.input[0], axes])
        centred = s.node("Sub", [node.input[0], mean])
        variance = s.node("ReduceMean", [s.node("Mul", [centred, centred]), axes])
        root = s.node("Sqrt", [s.node("Add", [variance, s.add(np.array(epsilon, kind))])])
        value = s.node("Mul", [s.node("Div", [centred, root]), node.input[1]])
        if len(node.input) > 2 and node.input[2]:
            value = s.node("Add", [value, node.input[2]])
        replace_node(s, node, value)


@rewrite("gains moved into the weights behind (SmoothQuant)")
def smoothed(s: Surgery, place: Path) -> None:
    stored = s.stored()
    done = 0
    products = {id(p.node): p for p in s.products(codes=False)}
    for node in [n for n in s.nodes if n.op_type == "LayerNormalization"]:
        readers = [products.get(id(n)) for n, _ in s.readers(node.output[0])]
        if not readers or any(
            r is None or r.node.op_type != "MatMul" or r.slot != 1 or r.moves for r in readers
        ):
            continue
        names = [*node.input[1:3], *(r.tensor for r in readers if r is not None)]
        if any(name not in stored or len(s.readers(name)) > 1 for name in names if name):
            continue
        width = s.array(node.input[1]).size
        factor = np.exp(s.random.normal(0, 0.3, width))
        for name in [v for v in node.input[1:3] if v]:
            s.store(name, (s.array(name) / factor).astype(s.array(name).dtype))
        for product in [r for r in readers if r is not None]:
            w = s.array(product.tensor)
            s.store(product.tensor, (w * factor[:, None]).astype(w.dtype))
        done += 1
    if not done:
        raise NoPlaceError("no norm before plain products")


# Functions and subgraphs


def as_function(s: Surgery, levels: int, *, weights_inside: bool) -> None:
    """Put the whole graph into a local function, and that into another."""
    graph = s.graph
    if any([*bodies(n)] for n in s.nodes) or s.model.functions:
        raise NoPlaceError("bodies or functions already")
    inputs = [v.name for v in graph.input if v.name not in {t.name for t in graph.initializer}]
    outputs = [v.name for v in graph.output]
    nodes = [onnx.NodeProto.FromString(n.SerializeToString()) for n in graph.node]
    arguments = [t.name for t in graph.initializer]
    if weights_inside:
        nodes = [helper.make_node("Constant", [], [t.name], value=t) for t in graph.initializer] + nodes
        arguments = []
        del graph.initializer[:]
    name = "Model"
    opsets = list(s.model.opset_import)
    s.model.functions.append(
        helper.make_function("ours", name, [*inputs, *arguments], outputs, nodes, opsets)
    )
    imports = [*opsets, helper.make_opsetid("ours", 1)]
    for level in range(1, levels):
        call = helper.make_node(name, [*inputs, *arguments], outputs, domain="ours")
        name = f"Model{level}"
        s.model.functions.append(
            helper.make_function("ours", name, [*inputs, *arguments], outputs, [call], imports)
        )
    del graph.node[:]
    graph.node.append(helper.make_node(name, [*inputs, *arguments], outputs, "call", domain="ours"))
    s.model.opset_import.append(helper.make_opsetid("ours", 1))
    s.model.ir_version = max(s.model.ir_version, 8)


@rewrite("graph in a function")
def in_function(s: Surgery, place: Path) -> None:
    s.finish()
    as_function(s, 1, weights_inside=False)


@rewrite("graph in two functions, one in the other")
def in_two_functions(s: Surgery, place: Path) -> None:
    s.finish()
    as_function(s, 2, weights_inside=False)


@rewrite("graph in a function, weights as its Constants")
def in_function_whole(s: Surgery, place: Path) -> None:
    s.finish()
    as_function(s, 1, weights_inside=True)


@rewrite("functions inlined")
def inlined(s: Surgery, place: Path) -> Any:
    import onnx.inliner

    s.finish()
    if not s.model.functions:
        as_function(s, 2, weights_inside=False)
    return onnx.inliner.inline_local_functions(s.model)


@rewrite("every product in a function of its own")
def product_functions(s: Surgery, place: Path) -> None:
    found = [p.node for p in s.products(codes=False) if p.node.op_type == "MatMul"]
    if not found:
        raise NoPlaceError("no MatMul")
    opsets = [helper.make_opsetid("", s.opset)]
    body = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    s.model.functions.append(helper.make_function("ours", "Linear", ["x", "w"], ["y"], body, opsets))
    s.import_domain("ours")
    for node in found:
        node.op_type, node.domain = "Linear", "ours"
    s.model.ir_version = max(s.model.ir_version, 8)


@rewrite("If with a stored condition around a node")
def in_if(s: Surgery, place: Path) -> None:
    """Compute the same product in both branches, with a weight from outside."""
    found = [p for p in s.products(codes=False) if p.node.output[0] in s.seen]
    product = s.pick(found, "no product")
    node = product.node
    branches = []
    for name in ("then", "else"):
        copy = onnx.NodeProto.FromString(node.SerializeToString())
        copy.output[0] = s.fresh(name)
        info = helper.make_tensor_value_info(copy.output[0], s.element(node.output[0]), None)
        branches.append(helper.make_graph([copy], name, [], [info]))
    replace_node(
        s, node, s.node("If", [s.add(np.array(True))], then_branch=branches[0], else_branch=branches[1])
    )


@rewrite("weight as an initializer of an If's branch")
def weight_in_if(s: Surgery, place: Path) -> None:
    found = [
        p
        for p in s.products(codes=False)
        if p.node.output[0] in s.seen and not p.moves and len(s.readers(p.tensor)) == 1
    ]
    product = s.pick([p for p in found if p.tensor in {t.name for t in s.graph.initializer}], "no product")
    node = product.node
    tensor = onnx.TensorProto.FromString(s.stored()[product.tensor].SerializeToString())
    for old in [t for t in s.graph.initializer if t.name == product.tensor]:
        s.graph.initializer.remove(old)
    copy = onnx.NodeProto.FromString(node.SerializeToString())
    copy.output[0] = s.fresh("then")
    element = s.element(node.output[0])
    other = s.fresh("else")
    cast = helper.make_node("Identity", [node.input[1 - product.slot]], [other])
    taken = helper.make_graph(
        [copy], "then", [], [helper.make_tensor_value_info(copy.output[0], element, None)], [tensor]
    )
    untaken_branch = helper.make_graph(
        [cast], "else", [], [helper.make_tensor_value_info(other, element, None)]
    )
    replace_node(
        s, node, s.node("If", [s.add(np.array(True))], then_branch=taken, else_branch=untaken_branch)
    )


# Tools


@rewrite("onnx.version_converter, a version up")
def version_up(s: Surgery, place: Path) -> Any:
    from onnx import version_converter

    try:
        return version_converter.convert_version(s.model, s.opset + 1)
    except Exception as error:
        raise NoPlaceError(str(error)[:80]) from error


def like(value: Any, name: str) -> Any:
    """Return another value of the same type, with unknown sizes."""
    rank = len(value.type.tensor_type.shape.dim)
    return helper.make_tensor_value_info(name, value.type.tensor_type.elem_type, [None] * rank)


@rewrite("onnx.compose.merge_models with a step behind")
def merged_models(s: Surgery, place: Path) -> Any:
    output = s.graph.output[0]
    if len(s.graph.output) > 1:
        raise NoPlaceError("several outputs, whose order the merge changes")
    step = helper.make_graph(
        [helper.make_node("Identity", ["in"], ["answer"])],
        "step",
        [like(output, "in")],
        [like(output, "answer")],
    )
    model = helper.make_model(step, opset_imports=list(s.model.opset_import), ir_version=s.model.ir_version)
    return onnx.compose.merge_models(
        s.finish(), model, [(output.name, "in")], prefix1="first/", prefix2="second/", outputs=None
    )


def optimized(level: str) -> Make:
    def make(s: Surgery, place: Path) -> Path:
        from tools.matrix.transforms import optimize

        source, target = place / "source.onnx", place / "target.onnx"
        onnx.save(s.model, source)
        optimize(level)(source, target)
        return target

    return make


for _level in ("BASIC", "EXTENDED", "ALL"):
    rewrite(f"onnxruntime, {_level.lower()} optimizations", HALF)(optimized(_level))


def with_transform(name: str) -> Make:
    def make(s: Surgery, place: Path) -> Path:
        from tools.matrix.transforms import TRANSFORMS

        if (
            any(t.data_type in (TensorProto.FLOAT16, TensorProto.INT8) for t in s.graph.initializer)
            and name != "onnxslim"
        ):
            raise NoPlaceError("codes or half already")
        source, target = place / "source.onnx", place / "target.onnx"
        (place / "config.json").write_text('{"vocab_size": 167}', encoding="utf-8")
        onnx.save(s.model, source)
        try:
            TRANSFORMS[name](source, target)
        except Exception as error:
            raise NoPlaceError(f"{type(error).__name__}: {error}"[:80]) from error
        return target

    return make


rewrite("onnxslim", HALF)(with_transform("onnxslim"))
rewrite("quantize_dynamic", CODES)(with_transform("int8"))
rewrite("quantize_dynamic per channel", CODES)(with_transform("int8-channel"))
rewrite("quantize_static, QDQ", CODES)(with_transform("qdq"))
rewrite("MatMulNBits", CODES)(with_transform("nbits"))
rewrite("MatMulNBits with zero points", CODES)(with_transform("nbits-zero-point"))
rewrite("float16", HALF)(with_transform("fp16"))


@rewrite("onnxscript's optimizer")
def onnxscript_optimizer(s: Surgery, place: Path) -> Any:
    import onnx_ir
    import onnxscript.optimizer

    model = onnx_ir.from_proto(s.finish())
    onnxscript.optimizer.optimize(model)
    return onnx_ir.to_proto(model)


@rewrite("onnxscript's rewriter")
def onnxscript_rewriter(s: Surgery, place: Path) -> Any:
    import onnx_ir
    import onnxscript.rewriter

    model = onnxscript.rewriter.rewrite(onnx_ir.from_proto(s.finish()))
    return onnx_ir.to_proto(model)


@rewrite("onnx_ir, read and written")
def onnx_ir_round(s: Surgery, place: Path) -> Any:
    import onnx_ir

    return onnx_ir.to_proto(onnx_ir.from_proto(s.model))


@rewrite("onnxslim, then onnxruntime basic", HALF)
def two_tools(s: Surgery, place: Path) -> Path:
    from tools.matrix.transforms import TRANSFORMS

    first, second, third = (place / f"{n}.onnx" for n in ("first", "second", "third"))
    onnx.save(s.model, first)
    TRANSFORMS["onnxslim"](first, second)
    TRANSFORMS["ort-basic"](second, third)
    return third


@rewrite("onnxslim, then onnx.compose.add_prefix with a dot", HALF)
def slim_and_prefix(s: Surgery, place: Path) -> Any:
    from tools.matrix.transforms import TRANSFORMS

    first, second = place / "first.onnx", place / "second.onnx"
    onnx.save(s.model, first)
    TRANSFORMS["onnxslim"](first, second)
    return onnx.compose.add_prefix(onnx.load(second), "encoder.")


@rewrite("stripped, shuffled, through Constants", EXACT)
def all_at_once(s: Surgery, place: Path) -> None:
    all_stripped(s, place)
    shuffled(s, place)
    to_constants(s, place)
