"""Tampering in which products compute with other weights, while PyTorch's lie beside them and pass every comparison."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tools.suite.surgery import MOVES, NoPlaceError, Product, Surgery
from tools.tamper.carriers import CARRIERS, Carrier
from tools.tamper.kinds import kind

Keep = Callable[[Surgery, list[str]], None]
"""Function that puts PyTorch's tensors where they affect no output."""


def hollow(s: Surgery, carrier: Carrier, keep: Keep, *, all_of_them: bool = True) -> None:
    """Give every product, or half of them, a weight of the carrier; then keep PyTorch's elsewhere in the file."""
    products = [p for p in s.products() if p.node.op_type != "Gather"]
    if not products:
        raise NoPlaceError("no product")
    if not all_of_them:
        products = products[len(products) // 2 :]
    names = {product.tensor: None for product in products}
    for product in products:
        if product.node in s.nodes:
            replace(s, product, carrier)
    keep(s, [*names])


def replace(s: Surgery, product: Product, carrier: Carrier) -> None:
    """Give one product another weight of the same shape and type."""
    node, tensor = product.node, s.stored()[product.tensor]
    if node.op_type == "MatMulNBits":
        sizes = {a.name: a.i for a in node.attribute}
        made = s.node("MatMul", [node.input[0], carrier(s, (sizes["K"], sizes["N"]))])
        if len(node.input) > 5 and node.input[5]:
            made = s.node("Add", [made, node.input[5]])
        output = node.output[0]
        s.remove(node)
        next(n for n in s.nodes if made in n.output).output[0] = output
        return
    value = node.input[product.slot]
    shape = s.seen[value].shape if value in s.seen else tuple(tensor.dims)
    made = carrier(s, tuple(shape))
    element = s.element(value) if value in s.seen else tensor.data_type
    if element in (TensorProto.INT8, TensorProto.UINT8):
        made = s.node("Mul", [made, s.add(np.float32(100).reshape(()))])
        if element == TensorProto.UINT8:
            made = s.node("Add", [made, s.add(np.float32(128).reshape(()))])
        made = s.node("Clip", [made, s.add(np.float32(-120).reshape(())), s.add(np.float32(250).reshape(()))])
    if element != TensorProto.FLOAT:
        made = s.node("Cast", [made], to=element)
    node.input[product.slot] = made


def dead_nodes(s: Surgery, names: list[str]) -> None:
    """Keep them as inputs of dead nodes: those that moved them before, else an Identity."""
    for name in names:
        if not s.readers(name):
            s.node("Identity", [name])


def dead_products(s: Surgery, names: list[str]) -> None:
    """Multiply them as before, without a reader of the products."""
    for name in names:
        w = s.array(name)
        if w.ndim == 2 and w.dtype == np.float32:
            value = next((v for v in s.activations() if s.channels(v) == w.shape[0]), None)
            if value is not None:
                s.node("MatMul", [value, name])
                continue
        if not s.readers(name):
            s.node("Neg" if w.dtype.kind == "f" else "Identity", [name])


def shape_only(s: Surgery, names: list[str]) -> None:
    """Read only their sizes, and add the sizes times zero to an activation."""
    sizes = [s.node("Size", [name]) for name in names]
    total = s.node("Sum", [s.node("Cast", [size], to=TensorProto.FLOAT) for size in sizes])
    zero_value = s.node("Mul", [total, s.add(np.float32(0).reshape(()))])
    add_to_activation(s, zero_value)


def times_zero(s: Surgery, names: list[str]) -> None:
    """Add their sums times zero to an activation."""
    sums = []
    for name in names:
        value = name
        if s.stored()[name].data_type != TensorProto.FLOAT:
            value = s.node("Cast", [name], to=TensorProto.FLOAT)
        sums.append(s.node("ReduceSum", [value], keepdims=0))
    zero_value = s.node("Mul", [s.node("Sum", sums), s.add(np.float32(0).reshape(()))])
    add_to_activation(s, zero_value)


def never_chosen(s: Surgery, names: list[str]) -> None:
    """Put them on the side of a Where that its stored condition never selects."""
    sums = []
    for name in names:
        value = name
        if s.stored()[name].data_type != TensorProto.FLOAT:
            value = s.node("Cast", [name], to=TensorProto.FLOAT)
        sums.append(s.node("ReduceMean", [value], keepdims=0))
    zero = s.add(np.float32(0).reshape(()))
    add_to_activation(s, s.node("Where", [s.add(np.array(False)), s.node("Sum", sums), zero]))


def add_to_activation(s: Surgery, zero_value: str) -> None:
    reached = s.activations()
    value = s.pick(reached, "no activation")
    if s.seen[value].dtype != "float32":
        zero_value = s.node("Cast", [zero_value], to=s.element(value))
    s.after(value, lambda x: s.node("Add", [x, zero_value]))


def untaken_branch(s: Surgery, names: list[str]) -> None:
    """Read them in the branch of an If that its stored condition never takes."""
    zero = numpy_helper.from_array(np.array(0, np.float32), "")
    info = helper.make_tensor_value_info
    then, other = s.fresh("then"), s.fresh("else")
    taken = helper.make_graph(
        [helper.make_node("Constant", [], [then], value=zero)],
        "taken",
        [],
        [info(then, TensorProto.FLOAT, [])],
    )
    nodes, sums = [], []
    for name in names:
        cast, total = s.fresh("cast"), s.fresh("total")
        nodes.append(helper.make_node("Cast", [name], [cast], to=TensorProto.FLOAT))
        nodes.append(helper.make_node("ReduceMean", [cast], [total], keepdims=0))
        sums.append(total)
    nodes.append(helper.make_node("Sum", sums, [other]))
    untaken = helper.make_graph(nodes, "untaken", [], [info(other, TensorProto.FLOAT, [])])
    add_to_activation(s, s.node("If", [s.add(np.array(True))], then_branch=taken, else_branch=untaken))


def untaken_initializers(s: Surgery, names: list[str]) -> None:
    """Do the same, and make them initializers of the untaken branch."""
    remove_dead_moves(s)
    stored = s.stored()
    moved = [stored[name] for name in names if not s.readers(name)]
    if not moved:
        raise NoPlaceError("others read them")
    untaken_branch(s, [tensor.name for tensor in moved])
    branch = next(
        a.g for node in s.nodes if node.op_type == "If" for a in node.attribute if a.name == "else_branch"
    )
    for tensor in moved:
        branch.initializer.append(tensor)
    remove_tensors(s, [tensor.name for tensor in moved])


def remove_dead_moves(s: Surgery) -> None:
    """Remove nodes that only move a value without readers."""
    outputs = {output.name for output in s.graph.output}
    dead: list[Any] = [None]
    while dead:
        dead = [
            node
            for node in s.nodes
            if node.op_type in MOVES and not any(s.readers(name) or name in outputs for name in node.output)
        ]
        for node in dead:
            s.remove(node)


def remove_tensors(s: Surgery, names: list[str]) -> None:
    for tensor in [t for t in s.graph.initializer if t.name in names]:
        s.graph.initializer.remove(tensor)
    for node in [n for n in s.nodes if n.op_type == "Constant" and n.output[0] in names]:
        s.remove(node)


def uncalled_function(s: Surgery, names: list[str]) -> None:
    """Store them as Constants of a local function without callers."""
    remove_dead_moves(s)
    stored = s.stored()
    unread = [name for name in names if not s.readers(name)]
    if not unread:
        raise NoPlaceError("others read them")
    nodes = [helper.make_node("Constant", [], [name], value=stored[name]) for name in unread]
    nodes.append(helper.make_node("Identity", [unread[0]], ["y"]))
    s.model.functions.append(
        helper.make_function("local", "Weights", [], ["y"], nodes, [helper.make_opsetid("", s.opset)])
    )
    s.import_domain("local")
    remove_tensors(s, unread)


def training(s: Surgery, names: list[str]) -> None:
    """Store them in the file's training_info."""
    remove_dead_moves(s)
    stored = s.stored()
    unread = [name for name in names if not s.readers(name)]
    if not unread:
        raise NoPlaceError("others read them")
    info = onnx.TrainingInfoProto()
    info.algorithm.name = "train"
    info.algorithm.initializer.extend(stored[name] for name in unread)
    value = s.fresh("same")
    info.algorithm.node.append(helper.make_node("Identity", [unread[0]], [value]))
    info.algorithm.output.append(helper.make_tensor_value_info(value, TensorProto.FLOAT, None))
    s.model.training_info.append(info)
    remove_tensors(s, unread)


def unread(s: Surgery, names: list[str]) -> None:
    """Leave them without readers."""


def sliced_to_nothing(s: Surgery, names: list[str]) -> None:
    """Add the sum of an empty slice of each, which is zero."""
    empty = [s.add(np.array([0], np.int64)), s.add(np.array([0], np.int64)), s.add(np.array([0], np.int64))]
    sums = []
    for name in names:
        value = s.node("Slice", [name, *empty])
        if s.stored()[name].data_type != TensorProto.FLOAT:
            value = s.node("Cast", [value], to=TensorProto.FLOAT)
        sums.append(s.node("ReduceSum", [value], keepdims=0))
    add_to_activation(s, s.node("Sum", sums))


def less_itself(s: Surgery, names: list[str]) -> None:
    """Subtract each from itself, and add the result."""
    sums = []
    for name in names:
        value = name
        if s.stored()[name].data_type != TensorProto.FLOAT:
            value = s.node("Cast", [name], to=TensorProto.FLOAT)
        sums.append(s.node("ReduceSum", [s.node("Sub", [value, value])], keepdims=0))
    add_to_activation(s, s.node("Sum", sums))


def extra_output(s: Surgery, names: list[str]) -> None:
    """Return them as further outputs of the model, which compute none of the others."""
    for name in names:
        value = s.node("Identity", [name])
        s.graph.output.append(helper.make_tensor_value_info(value, s.stored()[name].data_type, None))


KINDS: dict[str, tuple[str, Keep, bool]] = {
    "int64 tables, weights in dead nodes": ("int64 through Cast", dead_nodes, True),
    "int64 tables, weights in dead products": ("int64 through Cast", dead_products, True),
    "int64 tables, weights in a branch never taken": ("int64 through Cast", untaken_branch, True),
    "int64 tables, weights as a branch's initializers": ("int64 through Cast", untaken_initializers, True),
    "int64 tables, weights in an uncalled function": ("int64 through Cast", uncalled_function, True),
    "int64 tables, weights in training_info": ("int64 through Cast", training, True),
    "int64 tables, weights times zero": ("int64 through Cast", times_zero, True),
    "int64 tables, weights never chosen by Where": ("int64 through Cast", never_chosen, True),
    "int64 tables, only the weights' sizes asked": ("int64 through Cast", shape_only, True),
    "int64 tables, weights sliced to nothing": ("int64 through Cast", sliced_to_nothing, True),
    "int64 tables, weights less themselves": ("int64 through Cast", less_itself, True),
    "int64 tables, weights unread": ("int64 through Cast", unread, True),
    "int8 chunks, weights in dead nodes": ("int8 chunks of 64", dead_nodes, True),
    "int8 chunks, weights times zero": ("int8 chunks of 64", times_zero, True),
    "value_ints, weights in an uncalled function": ("value_ints", uncalled_function, True),
    "value_floats, weights in dead nodes": ("value_floats", dead_nodes, True),
    "bools, weights in a branch never taken": ("bools", untaken_branch, True),
    "random nodes, weights in dead nodes": ("RandomNormal", dead_nodes, True),
    "random nodes, weights in training_info": ("RandomUniform", training, True),
    "sines, weights times zero": ("sines at run time", times_zero, True),
    "remainders, weights in dead nodes": ("remainders at run time", dead_nodes, True),
    "LabelEncoder, weights in dead nodes": ("LabelEncoder's values", dead_nodes, True),
    "a condition's signs, weights never chosen by Where": ("a condition's signs", never_chosen, True),
    "function's attribute, weights in a branch never taken": ("function's attribute", untaken_branch, True),
    "scales of ones, weights times zero": ("scales of codes that are 1", times_zero, True),
    "indices into even steps, weights in dead nodes": ("indices into even steps", dead_nodes, True),
    "floats, weights in dead nodes": ("float initializer", dead_nodes, True),
    "half of the products, int64 tables, weights in dead nodes": ("int64 through Cast", dead_nodes, False),
    "half of the products, 1,024 scalars, weights times zero": ("1,024 scalars", times_zero, False),
    "half of the products, random nodes, weights as outputs": ("RandomNormal", extra_output, False),
}


def make_hollow(carrier: str, keep: Keep, whole: bool) -> Any:
    return lambda s: hollow(s, CARRIERS[carrier], keep, all_of_them=whole)


for _title, _parts in KINDS.items():
    kind(f"hollow/{_title}")(make_hollow(*_parts))


@kind("hollow/outputs made of noise")
def noisy_output(s: Surgery) -> None:
    """Discard the last product, and output sines of noise instead."""
    output = s.graph.output[0].name
    producer = next((v for v in s.nodes if output in v.output), None)
    if producer is None:
        raise NoPlaceError("no maker of the output")
    inner = s.fresh("thrown_away")
    for place, name in enumerate(producer.output):
        if name == output:
            producer.output[place] = inner
    for node, slot in s.readers(output):
        node.input[slot] = inner
    shape = s.node("Shape", [inner])
    noise = s.node("RandomUniform", [], shape=[1], seed=5.0)
    filled = s.node("Expand", [noise, shape])
    s.graph.node.append(helper.make_node("Sin", [filled], [output]))


@kind("hollow/weights averaged with noise that Dropout's mask gives")
def random_dropout(s: Surgery) -> None:
    found = s.products(codes=False)
    product = s.pick(found, "no float weight")
    ratio = s.add(np.array(0.5, s.array(product.tensor).dtype))
    value = s.node("Dropout", [product.node.input[product.slot], ratio, s.add(np.array(True))], seed=11)
    product.node.input[product.slot] = value
