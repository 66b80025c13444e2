"""Planted weights with forged names and notes, which belong to tensors that a rule would accept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from tools.suite.surgery import NoPlaceError, Surgery
from tools.tamper.carriers import draw
from tools.tamper.kinds import kind
from tools.tamper.planted import add_product, add_vector, pick_activation

KIND = "pkg.torch.export.graph_signature.InputSpec.kind"
ORIGINAL = "pkg.torch.onnx.original_node_name"
FOLDED = "pkg.onnxscript.optimizer.folded_from"
NoteMaker = Callable[[Surgery, str], dict[str, str]]


def add_notes(
    s: Surgery, name: str, notes: dict[str, str], shape: tuple[int, ...], element: int = TensorProto.FLOAT
) -> None:
    """Write notes as the exporter does: on the value, and on the tensor."""
    value = helper.make_tensor_value_info(name, element, list(shape))
    for holder in (value, next((t for t in s.graph.initializer if t.name == name), None)):
        if holder is not None:
            holder.metadata_props.extend(
                onnx.StringStringEntryProto(key=k, value=v) for k, v in notes.items()
            )
    s.graph.value_info.append(value)


def rename(s: Surgery, tensor: str, name: str) -> str:
    """Give the planted initializer the forged name, which must not exist yet."""
    taken = {value for node in s.nodes for value in node.output} | {t.name for t in s.graph.initializer}
    if name in taken:
        raise NoPlaceError(f"{name} is there")
    for node, slot in s.readers(tensor):
        node.input[slot] = name
    next(t for t in s.graph.initializer if t.name == tensor).name = name
    return name


def forge(
    s: Surgery,
    name: str | None = None,
    make_notes: NoteMaker | None = None,
    *,
    vector: bool = False,
    integers: bool = False,
) -> None:
    """Plant a table, as floats or as integers through Cast, with that name and those notes."""
    value = pick_activation(s, vector=vector)

    def carrier(z: Surgery, shape: tuple[int, ...]) -> str:
        array: Any = draw(z, shape)
        if integers:
            array = np.rint(array * 250).astype(np.int64)
        tensor = z.add(array)
        if make_notes is not None:
            element = TensorProto.INT64 if integers else TensorProto.FLOAT
            add_notes(z, tensor, make_notes(z, tensor), shape, element)
        made.append(tensor)
        if not integers:
            return tensor
        cast = z.node("Cast", [tensor], to=TensorProto.FLOAT)
        return z.node("Mul", [cast, z.add(np.float32(0.004).reshape(()))])

    made: list[str] = []
    (add_vector if vector else add_product)(s, value, carrier)
    if name is not None:
        old = made[0]
        rename(s, old, name)
        for info in s.graph.value_info:
            if info.name == old:
                info.name = name


def pick_parameter(s: Surgery) -> str:
    """Return the name of a parameter that the file stores under its own name, else a plausible name."""
    dotted = [t.name for t in s.graph.initializer if "." in t.name and t.name.endswith(("weight", "bias"))]
    return str(s.pick(sorted(dotted))) if dotted else "encoder.layer.0.dense.weight"


def pick_scope(s: Surgery) -> str:
    return pick_parameter(s).rpartition(".")[0]


# Notes

NOTES: dict[str, NoteMaker] = {
    "folded_from naming a parameter": lambda s, _: {FOLDED: f"['{pick_parameter(s)}']"},
    "folded_from naming several parameters": lambda s, _: {
        FOLDED: f"['{pick_parameter(s)}', '{pick_parameter(s)}']"
    },
    "folded_from naming nothing": lambda s, _: {FOLDED: "[]"},
    "folded_from naming a value": lambda s, _: {FOLDED: "['val_3', 'val_4']"},
    "InputSpec kind BUFFER": lambda s, _: {KIND: "BUFFER", ORIGINAL: "b_encoder_table"},
    "InputSpec kind CONSTANT_TENSOR": lambda s, _: {KIND: "CONSTANT_TENSOR", ORIGINAL: "c_lifted_tensor_0"},
    "InputSpec kind CUSTOM_OBJ": lambda s, _: {KIND: "CUSTOM_OBJ", ORIGINAL: "obj_table"},
    "InputSpec kind PARAMETER of a real one": lambda s, _: {
        KIND: "PARAMETER",
        ORIGINAL: "p_" + pick_parameter(s).replace(".", "_"),
    },
}


def forge_notes(
    make_notes: NoteMaker, *, vector: bool = False, integers: bool = False
) -> Callable[[Surgery], None]:
    return lambda s: forge(s, None, make_notes, vector=vector, integers=integers)


for _title, _make_notes in NOTES.items():
    kind(f"forged/note {_title}")(forge_notes(_make_notes))
for _title in ("folded_from naming a parameter", "InputSpec kind BUFFER", "InputSpec kind CONSTANT_TENSOR"):
    kind(f"forged/note {_title}, as a bias")(forge_notes(NOTES[_title], vector=True))
    kind(f"forged/note {_title}, as integers")(forge_notes(NOTES[_title], integers=True))

# Names

NAMES: dict[str, Callable[[Surgery], str]] = {
    "position_ids": lambda s: "embeddings.position_ids",
    "position_ids of a module": lambda s: f"{pick_scope(s)}.position_ids",
    "token_type_ids": lambda s: "bert.embeddings.token_type_ids",
    "inv_freq": lambda s: "model.rotary_emb.inv_freq",
    "original_inv_freq": lambda s: "model.rotary_emb.original_inv_freq",
    "running_mean": lambda s: f"{pick_scope(s)}.running_mean",
    "running_var": lambda s: f"{pick_scope(s)}.running_var",
    "num_batches_tracked": lambda s: f"{pick_scope(s)}.num_batches_tracked",
    "attn.bias": lambda s: "transformer.h.0.attn.bias",
    "attn.masked_bias": lambda s: "transformer.h.0.attn.masked_bias",
    "causal_mask": lambda s: "causal_mask",
    "a parameter's, dotted": lambda s: f"{pick_scope(s)}.adapter.weight",
    "a parameter's with _1": lambda s: f"{pick_parameter(s)}_1",
    "a parameter's with _transposed": lambda s: f"{pick_parameter(s)}_transposed",
    "a quantizer's _scale": lambda s: f"{pick_parameter(s)}_scale",
    "a quantizer's _zero_point": lambda s: f"{pick_parameter(s)}_zero_point",
    "a quantizer's _quantized": lambda s: f"{pick_parameter(s)}_quantized",
    "a Constant's output": lambda s: "/Constant_3_output_0",
    "a layer's Constant's output": lambda s: "/encoder/layer.0/attention/self/Constant_7_output_0",
    "a legacy weight's": lambda s: "onnx::MatMul_1234",
    "a folded weight's": lambda s: "val_1234",
    "lifted_tensor": lambda s: "lifted_tensor_0",
    "relative_position_index": lambda s: f"{pick_scope(s)}.relative_position_index",
    "shape": lambda s: "shape_of_x",
    "axes": lambda s: "axes_0",
}


def forge_name(
    name: Callable[[Surgery], str], *, vector: bool = False, integers: bool = False
) -> Callable[[Surgery], None]:
    return lambda s: forge(s, name(s), vector=vector, integers=integers)


for _title, _name in NAMES.items():
    kind(f"forged/name {_title}")(forge_name(_name))
for _title in ("position_ids", "inv_freq", "running_mean", "attn.bias", "a Constant's output"):
    kind(f"forged/name {_title}, as a bias")(forge_name(NAMES[_title], vector=True))
for _title in (
    "position_ids",
    "token_type_ids",
    "num_batches_tracked",
    "attn.bias",
    "a quantizer's _zero_point",
    "relative_position_index",
    "shape",
):
    kind(f"forged/name {_title}, as integers")(forge_name(NAMES[_title], integers=True))


@kind("forged/quantization annotation")
def annotation(s: Surgery) -> None:
    """Let the graph's own annotation declare the table as another tensor's scales."""
    forge(s, "tensor_scales")
    names = {p.tensor for p in s.products()}
    made = onnx.TensorAnnotation(tensor_name=s.pick(sorted(names), "no product"))
    made.quant_parameter_tensor_names.append(
        onnx.StringStringEntryProto(key="SCALE_TENSOR", value="tensor_scales")
    )
    s.graph.quantization_annotation.append(made)


@kind("forged/scales of codes that copy a weight's")
def scales_of_copy(s: Surgery) -> None:
    """Plant honest-looking codes of a weight with other scales: both the copy and the original compute."""
    product = s.pick([p for p in s.products(codes=False) if s.array(p.tensor).ndim == 2], "no float weight")
    value = s.pick([v for v in s.activations() if not s.is_image(v)], "no activation")
    width = s.channels(value)
    w = s.array(product.tensor).astype(np.float64)
    codes = np.clip(np.rint(np.resize(w, (width, width)) / np.abs(w).max() * 127), -127, 127).astype(np.int8)

    def carrier(z: Surgery, shape: tuple[int, ...]) -> str:
        tensor = z.add(codes, f"{product.tensor}_copy_quantized")
        scale = z.add(np.abs(draw(z, (width,))) / np.float32(64), f"{product.tensor}_copy_scale")
        zero = z.add(np.zeros((width,), np.int8), f"{product.tensor}_copy_zero_point")
        return z.node("DequantizeLinear", [tensor, scale, zero], axis=0)

    add_product(s, value, carrier)


@kind("forged/node named as a module of the model")
def node_named(s: Surgery) -> None:
    """Give the planted product the scope of a real module."""
    forge(s)
    pattern = next((n for n in s.nodes if n.metadata_props), None)
    real = s.pick([n.name for n in s.nodes if "/" in n.name or "." in n.name] or ["/layer.0/dense/MatMul"])
    for node in s.nodes[-3:]:
        node.name = s.fresh(f"{real}_1")
        if pattern is not None:
            node.metadata_props.extend(pattern.metadata_props)


@kind("forged/doc_string of a fold")
def doc_string(s: Surgery) -> None:
    forge(s)
    s.graph.initializer[-1].doc_string = "folded constant; see pkg.onnxscript.optimizer.folded_from"


@kind("forged/under a parameter's name, and the parameter under another")
def exchanged_names(s: Surgery) -> None:
    """Give the planted table a parameter's name, and the parameter a meaningless one."""
    own = [p for p in s.products(codes=False) if "." in p.tensor]
    product = s.pick(own, "no weight under its own name")
    old, new = product.tensor, "val_9091"
    forge(s, None)
    planted = next(
        t for t in reversed(s.graph.initializer) if t.data_type == TensorProto.FLOAT and len(t.dims) == 2
    )
    if old in {t.name for t in s.graph.initializer}:
        rename(s, old, new)
    rename(s, planted.name, old)
