"""File with codes or half precision -> its float twin: the same function of its weights, in single precision.

Codes of activations become the real numbers that they encode: an activation's quantizer only passes it on, and a
product of codes becomes the product of the decoded numbers. Scales and zero points remain, also those that are computed
from values: codes that are decoded with others than their own become the numbers that this gives. Weights stay as they
are stored, and are decoded where they are read. A graph that cannot be converted in this way is refused, never passed
over. This runs in the process that runs the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import ml_dtypes  # noqa: F401  numpy knows half-precision types by it
import numpy as np
import onnx
from onnx import helper, numpy_helper

from analyzer.model.content import Array
from analyzer.model.dtypes import round_to_half
from analyzer.records import Frozen, Mutable, field

_FLOAT = onnx.TensorProto.FLOAT
_HALVES = {"FLOAT16": onnx.TensorProto.FLOAT16, "BFLOAT16": onnx.TensorProto.BFLOAT16}
RANGES: Mapping[int, tuple[int, int]] = {
    onnx.TensorProto.UINT8: (0, 255),
    onnx.TensorProto.INT8: (-128, 127),
    onnx.TensorProto.UINT16: (0, 65535),
    onnx.TensorProto.INT16: (-32768, 32767),
    onnx.TensorProto.UINT4: (0, 15),
    onnx.TensorProto.INT4: (-8, 7),
}
_MOVERS = frozenset(
    {
        *("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Slice", "Gather", "Split"),
        *(
            "Expand",
            "MaxPool",
            "DepthToSpace",
            "SpaceToDepth",
            "Tile",
            "GatherND",
            "GatherElements",
            "Resize",
        ),
    }
)
"""Operators that pass on the codes of one input unchanged."""
_JOINERS = frozenset({"Concat", "Where", "Max", "Min"})
"""Operators that pass on the codes of several inputs, if all of these have the same scale."""
_RECTIFIED = frozenset(
    {
        *(
            "Conv",
            "ConvTranspose",
            "MatMul",
            "Gemm",
            "Add",
            "Sum",
            "BatchNormalization",
            "LayerNormalization",
        ),
        *("InstanceNormalization", "GroupNormalization", "MatMulNBits", "Concat", "FusedMatMul"),
    }
)
"""Operators after which a quantizing tool leaves out a Relu."""
_ONNX = ("", "ai.onnx")


class RefusedError(Exception):
    """Refusal to make a float twin; the message is a clause with the reason."""


class Quantizer(Frozen):
    """Quantizer of an activation, or of a weight that is stored in floats."""

    node: str
    value: str
    """Name of the quantized value in the file."""
    place: str
    """Name of the quantized value in the twin: the output of an Identity before every reader of the codes."""
    scale: str = ""
    """Name of the stored scale; empty where it is computed from the values at run time."""
    zero: str = ""
    axis: int = 0
    """Axis of the channels, where the scale has several numbers."""
    domain: str = ""
    """Domain of the operator."""
    kind: int = onnx.TensorProto.UINT8
    """Type of the codes."""


class Twin(Mutable):
    """Float twin, and counts of the parts that were taken out."""

    model: Any
    quantizers: list[Quantizer] = field(default_factory=list)
    activations: int = 0
    """Number of places at which activations were rounded to codes."""
    products: int = 0
    """Number of products of codes that are now products of real numbers."""
    unmeasured: int = 0
    """Number of places whose quantizers cannot be measured: in a body, in an operator, or with a computed scale."""
    is_widened: bool = False
    rectified: int = 0
    """Number of quantizers whose codes begin at zero, so that they cut off negative numbers as a Relu does."""


class _Code(Frozen):
    """Meaning of an activation's codes: `real` is (code - zero) x scale."""

    real: str
    scale: str
    zero: str


def make_twin(model: Any, half: str = "", *, rectify: bool = True, restored: Sequence[float] = ()) -> Twin:
    """Make the float twin of a model, which is changed in place.

    Args:
        model: the protobuf, with its payloads if it is to be widened.
        half: `FLOAT16` or `BFLOAT16`, which is widened; empty where nothing is.
        rectify: whether a quantizer whose codes begin at zero cuts off negative numbers, because a quantizing tool
            leaves out the Relu before it.
        restored: numbers that replace their roundings, where a tensor of one element is widened.

    Raises:
        RefusedError: it has operators on codes without a known counterpart on real numbers.
    """
    twin = Twin(model)
    stored: dict[str, Any] = {}
    _Body(twin, model.graph, stored, {}, set(), rectify=rectify, is_main=True).rewrite()
    for function in model.functions:
        if any(_is_quantized(node) for node in function.node):
            raise RefusedError(f"the function {function.name} quantizes")
    if half:
        _widen(model, half, restored)
        twin.is_widened = True
    if twin.activations or twin.products or half:
        _delete_types(model)
    return twin


def _is_quantized(node: Any) -> bool:
    return node.op_type in _RULES or node.op_type.startswith(("QLinear", "DynamicQuantize"))


class _Body:
    """Graph that is being converted to its twin."""

    def __init__(
        self,
        twin: Twin,
        graph: Any,
        stored: dict[str, Any],
        codes: dict[str, _Code],
        floated: set[str],
        *,
        rectify: bool,
        is_main: bool = False,
    ) -> None:
        self.twin, self.graph, self.rectify = twin, graph, rectify
        self.stored = dict(stored)
        self.stored.update((tensor.name, tensor) for tensor in graph.initializer)
        for node in graph.node:
            if node.op_type == "Constant":
                tensor = next((a.t for a in node.attribute if a.name == "value"), None)
                if tensor is not None:
                    self.stored[node.output[0]] = tensor
        self.codes = dict(codes)
        self.floated = set(floated)
        """Names of values that were integers, and are real numbers now."""
        self.constant = set(self.stored)
        """Names of values that depend on no input."""
        self.made: list[Any] = []
        self.makers: dict[str, Any] = {}
        """Node that makes each value of the twin."""
        self.serial = 0
        self.is_main = is_main

    def rewrite(self) -> None:
        nodes = list(self.graph.node)
        for node in nodes:
            before = len(self.made)
            self._rewrite_bodies(node)
            rule = _RULES.get(node.op_type)
            if rule is not None and self._applies(node):
                rule(self, node)
            elif self._touches(node):
                self._move(node)
            else:
                if node.op_type == "MatMulNBits":
                    if any(a.name == "accuracy_level" and a.i == 4 for a in node.attribute):
                        self.twin.unmeasured += 1
                    _set_attribute(node, "accuracy_level", 1)  # activations stay real
                self.made.append(node)
            if all(name in self.constant for name in node.input if name) and node.input:
                self.constant.update(node.output)
            for made in self.made[before:]:
                self.makers.update((name, made) for name in made.output if name)
                if made.input and all(name in self.constant for name in made.input if name):
                    self.constant.update(made.output)
        for output in self.graph.output:
            if output.name in self.codes:
                raise RefusedError(f"the output {output.name} holds codes")
        del self.graph.node[:]
        self.graph.node.extend(self.made)

    def _rewrite_bodies(self, node: Any) -> None:
        for attribute in node.attribute:
            for body in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                _Body(self.twin, body, self.stored, self.codes, self.floated, rectify=self.rectify).rewrite()

    def _applies(self, node: Any) -> bool:
        """Whether a node's rule applies: for DequantizeLinear and Cast, only to an activation's codes or a product."""
        if node.op_type == "DequantizeLinear":
            return node.input[0] in self.codes or node.input[0] in self.floated
        if node.op_type == "Cast":
            return node.input[0] in self.codes or node.input[0] in self.floated
        return True

    def _touches(self, node: Any) -> bool:
        return any(name in self.codes or name in self.floated for name in node.input)

    # New nodes and tensors

    def name(self, base: str) -> str:
        self.serial += 1
        return f"{base}/twin.{id(self.graph) % 997}.{self.serial}"

    def add(
        self, op_type: str, inputs: Iterable[str], output: str = "", domain: str = "", **attributes: Any
    ) -> str:
        inputs = list(inputs)
        output = output or self.name(op_type)
        while inputs and not inputs[-1]:
            inputs.pop()
        node = helper.make_node(op_type, inputs, [output], name=f"twin/{output}", domain=domain, **attributes)
        self.made.append(node)
        self.makers[output] = node
        return output

    def add_constant(self, array: Array, name: str = "") -> str:
        name = name or self.name("constant")
        tensor = numpy_helper.from_array(np.asarray(array), name)
        self.graph.initializer.append(tensor)
        self.stored[name] = tensor
        self.constant.add(name)
        return name

    def small_array(self, name: str) -> Array | None:
        """Return a stored tensor as an array, if it is small and inside the file; else None."""
        tensor = self.stored.get(name)
        if tensor is None or tensor.data_location == onnx.TensorProto.EXTERNAL:
            return None
        return numpy_helper.to_array(tensor) if int(np.prod(tensor.dims)) <= 1 << 16 else None

    def real(self, name: str, scale: str, zero: str, axis: int | None = None) -> str:
        """Return the name of the real value of codes under this scale: an activation's, or a stored tensor's."""
        code = self.codes.get(name)
        if code is not None:
            return self.recode(code, scale, zero)
        if name in self.floated:
            raise RefusedError(f"{name} is decoded as codes, but is a sum of products")
        if name not in self.constant:
            raise RefusedError(f"the origin of the codes {name} is unknown")
        attributes: dict[str, Any] = {} if axis is None else {"axis": axis}
        zero = zero if zero and self.has_zero_point(name, zero) else ""
        return self.add("DequantizeLinear", [name, scale, zero], **attributes)

    def has_zero_point(self, name: str, zero: str) -> bool:
        """Whether a zero point counts: for codes of 32 bits it is 0, and often of another type."""
        tensor = self.stored.get(name)
        return tensor is None or tensor.data_type != onnx.TensorProto.INT32

    def recode(self, code: _Code, scale: str, zero: str) -> str:
        if self.is_equal(code.scale, scale) and self.is_equal_zero(code.zero, zero):
            return code.real
        shift = self.units(code, zero)
        return self.add("Mul", [shift, scale])

    def units(self, code: _Code, zero: str) -> str:
        """Return the name of the codes less a zero point."""
        value = self.add("Div", [code.real, code.scale])
        if self.is_equal_zero(code.zero, zero):
            return value
        if code.zero:
            value = self.add("Add", [value, self.add("Cast", [code.zero], to=_FLOAT)])
        return self.add("Sub", [value, self.add("Cast", [zero], to=_FLOAT)]) if zero else value

    def is_equal(self, one: str, other: str) -> bool:
        if one == other:
            return True
        a, b = self.small_array(one), self.small_array(other)
        return a is not None and b is not None and a.size == b.size and bool((a.ravel() == b.ravel()).all())

    def is_equal_zero(self, one: str, other: str) -> bool:
        if not one and not other:
            return True
        if one and other:
            return self.is_equal(one, other)
        zero_point = self.small_array(one or other)
        return zero_point is not None and not zero_point.any()

    def minus_zero(self, name: str, zero: str, *, rows: bool = False) -> str:
        """Return an operand of an integer product as real numbers, less its zero point."""
        code = self.codes.get(name)
        if code is not None:
            return self.units(code, zero)
        if name in self.floated or name not in self.constant:
            raise RefusedError(f"the origin of the codes {name} is unknown")
        value = self.add("Cast", [name], to=_FLOAT)
        if not zero:
            return value
        zero_point = self.add("Cast", [zero], to=_FLOAT)
        tensor = self.stored.get(zero)
        if rows and tensor is not None and len(tensor.dims) == 1 and tensor.dims[0] > 1:
            zero_point = self.add("Unsqueeze", [zero_point, self.add_constant(np.array([1], np.int64))])
        return self.add("Sub", [value, zero_point])

    def register_codes(self, node: Any, real: str, output: str, scale: str, zero: str) -> None:
        """Register the output of a quantized operator as the codes of a real value."""
        self.twin.activations += 1
        scales, zero_point = (
            self.small_array(scale),
            self.small_array(zero) if zero else np.zeros(1, np.uint8),
        )
        kind = self.kind_of(zero)
        if scales is not None and scales.size == 1 and zero_point is not None and kind in RANGES:
            step, start = float(scales.reshape(-1)[0]), float(zero_point.reshape(-1)[0])
            least, most = RANGES[kind]
            high = (most - start) * step
            if start == least and self.rectify and self.may_be_rectified(real):
                self.twin.rectified += 1
                if abs(high - 6) <= 6e-6:  # a calibration that has seen nothing beyond 6 has seen a Clip
                    real = self.add(
                        "Clip", [real, *(self.add_constant(np.array(x, np.float32)) for x in (0, 6))]
                    )
                else:
                    real = self.add("Relu", [real])
        self.codes[output] = _Code(self.mark(node, real, output, scale, zero), scale, zero)

    def kind_of(self, zero: str) -> int:
        tensor = self.stored.get(zero)
        return tensor.data_type if tensor is not None else onnx.TensorProto.UINT8

    def mark(self, node: Any, real: str, output: str, scale: str, zero: str) -> str:
        """Give a quantized value a name of its own, so that it can be measured and rounded again."""
        place = self.add("Identity", [real])
        scales, zero_point = (
            self.small_array(scale),
            self.small_array(zero) if zero else np.zeros(1, np.uint8),
        )
        kind = self.kind_of(zero)
        is_known = (
            scales is not None
            and zero_point is not None
            and bool(np.isfinite(scales.astype(np.float64)).all())
        )
        if (scale and not (is_known and kind in RANGES)) or not self.is_main:
            self.twin.unmeasured += 1
            return place
        is_own = node.op_type == "QuantizeLinear"
        axis = next((a.i for a in node.attribute if a.name == "axis"), 1) if is_own else 1
        value = node.input[0] if node.op_type in ("QuantizeLinear", "DynamicQuantizeLinear") else output
        self.twin.quantizers.append(
            Quantizer(
                node.name or output, value, place, scale, zero, axis, node.domain if is_own else "", kind
            )
        )
        return place

    def may_be_rectified(self, real: str) -> bool:
        """Whether a value comes from an operator that a Relu may follow: sums of products, and their norms."""
        for _ in range(16):
            maker = self.makers.get(real)
            if maker is None:
                return False
            if maker.op_type in _RECTIFIED:
                return True
            if maker.op_type not in _MOVERS or not maker.input:
                return False
            real = maker.input[0]
        return False

    # Rules

    def _move(self, node: Any) -> None:
        """Pass codes through operators that only move them: the results are codes of the moved real values."""
        is_mover = node.op_type in _MOVERS or node.op_type == "Pad"
        if is_mover and node.domain in _ONNX and not self._touches_index(node):
            name = node.input[0]
            if name in self.floated:
                self.floated.update(node.output)
                self.made.append(node)
                return
            code = self.codes[name]
            if len(self.sizes(code.scale)) and np.prod(self.sizes(code.scale)) > 1:
                raise RefusedError(f"{node.op_type} moves codes with a scale for each channel")
            moved = type(node).FromString(node.SerializeToString())
            moved.input[0] = code.real
            if node.op_type == "Pad":
                self._decode_padding(moved, code)
            outputs = [self.name(out) if out else "" for out in node.output]
            del moved.output[:]
            moved.output.extend(outputs)
            self.made.append(moved)
            for out, real in zip(node.output, outputs, strict=True):
                if out:
                    self.codes[out] = _Code(real, code.scale, code.zero)
            return
        if node.op_type in _JOINERS and node.domain in _ONNX:
            found = [self.codes.get(name) for name in node.input[node.op_type == "Where" :]]
            known = [each for each in found if each is not None]
            if len(known) == len(found) and all(
                self.is_equal(each.scale, known[0].scale) and self.is_equal_zero(each.zero, known[0].zero)
                for each in known
            ):
                moved = type(node).FromString(node.SerializeToString())
                for slot, name in enumerate(node.input):
                    if name in self.codes:
                        moved.input[slot] = self.codes[name].real
                real = self.name(node.output[0])
                moved.output[0] = real
                self.made.append(moved)
                self.codes[node.output[0]] = _Code(real, known[0].scale, known[0].zero)
                return
        if node.op_type in ("Shape", "Size"):
            real = self.codes[node.input[0]].real if node.input[0] in self.codes else node.input[0]
            node.input[0] = real
            self.made.append(node)
            return
        if self.floated.intersection(node.input) and self._add_integers(node):
            return
        raise RefusedError(f"{node.op_type} computes with codes ({node.name or node.output[0]})")

    def _decode_padding(self, node: Any, code: _Code) -> None:
        """Replace the code that a Pad adds at the edges by the number that it stands for; without one it is code 0."""
        inputs = [*node.input, "", ""][:4]
        if inputs[2]:
            inputs[2] = self.add("DequantizeLinear", [inputs[2], code.scale, code.zero])
        elif code.zero:
            shift = self.add("Neg", [self.add("Cast", [code.zero], to=_FLOAT)])
            inputs[2] = self.add("Mul", [shift, code.scale])
        while not inputs[-1]:
            inputs.pop()
        del node.input[:]
        node.input.extend(inputs)

    def _add_integers(self, node: Any) -> bool:
        """Convert a sum or product of integers that became real, by casting its other operands; False if it is none."""
        if node.op_type not in ("Add", "Sub", "Mul") or any(name in self.codes for name in node.input):
            return False
        for slot, name in enumerate(node.input):
            if name not in self.floated:
                node.input[slot] = self.add("Cast", [name], to=_FLOAT)
        self.floated.add(node.output[0])
        self.made.append(node)
        return True

    def _touches_index(self, node: Any) -> bool:
        return any(name in self.codes or name in self.floated for name in node.input[1:])

    def sizes(self, name: str) -> tuple[int, ...]:
        tensor = self.stored.get(name)
        return tuple(tensor.dims) if tensor is not None else ()

    def quantize(self, node: Any) -> None:
        inputs = [*node.input, "", ""]
        if inputs[0] in self.codes:
            raise RefusedError(f"{node.name or node.output[0]} quantizes codes")
        zero = inputs[2]
        if inputs[0] in self.constant:  # a weight that is stored in floats, and rounded at run time
            self.twin.activations += 1
            place = self.mark(node, inputs[0], node.output[0], inputs[1], zero)
            self.codes[node.output[0]] = _Code(place, inputs[1], zero)
            return
        self.register_codes(node, inputs[0], node.output[0], inputs[1], zero)

    def dequantize(self, node: Any) -> None:
        inputs = [*node.input, ""]
        if inputs[0] in self.floated:
            real = inputs[0]
            if inputs[2] and not self.is_equal_zero("", inputs[2]):
                real = self.add("Sub", [real, self.add("Cast", [inputs[2]], to=_FLOAT)])
            self.add("Mul", [real, inputs[1]], node.output[0])
            return
        code = self.codes[inputs[0]]
        if max(np.prod(self.sizes(inputs[1])), np.prod(self.sizes(code.scale))) > 1 and not (
            self.is_equal(code.scale, inputs[1]) and self.is_equal_zero(code.zero, inputs[2])
        ):
            raise RefusedError(
                "an activation is rounded with one set of scales per channel, and decoded with another"
            )
        self.add("Identity", [self.recode(code, inputs[1], inputs[2])], node.output[0])

    def quantize_dynamically(self, node: Any) -> None:
        codes, *own = node.output
        scale, zero = (name or self.name("computed") for name in [*own, "", ""][:2])
        self.twin.activations += 1
        kept = type(node).FromString(node.SerializeToString())
        del kept.output[:]
        kept.output.extend([self.name(codes), scale, zero])
        self.made.append(kept)
        self.codes[codes] = _Code(self.mark(node, node.input[0], codes, "", ""), scale, zero)

    def multiply_integers(self, node: Any) -> None:
        a, b, a_zero, b_zero = [*node.input, "", "", ""][:4]
        left, right = self.minus_zero(a, a_zero, rows=True), self.minus_zero(b, b_zero)
        self.twin.products += 1
        attributes = {each.name: helper.get_attribute_value(each) for each in node.attribute}
        self.add(
            "Conv" if node.op_type == "ConvInteger" else "MatMul", [left, right], node.output[0], **attributes
        )
        self.floated.add(node.output[0])

    def cast(self, node: Any) -> None:
        name = node.input[0]
        to = next((a.i for a in node.attribute if a.name == "to"), 0)
        if name in self.floated and to in (_FLOAT, *_HALVES.values(), onnx.TensorProto.DOUBLE):
            self.made.append(node)
            return
        if name in self.floated and to in (onnx.TensorProto.INT32, onnx.TensorProto.INT64):
            self.add("Identity", [name], node.output[0])
            self.floated.add(node.output[0])
            return
        if name in self.codes and to in (_FLOAT, onnx.TensorProto.INT32):
            code = self.codes[name]
            value = self.units(code, "")
            if to == _FLOAT:
                self.add("Identity", [value], node.output[0])
            else:
                self.add("Identity", [value], node.output[0])
                self.floated.add(node.output[0])
            return
        raise RefusedError(f"{node.name or node.output[0]} casts codes")

    def multiply_to_float(self, node: Any) -> None:
        a, b, a_scale, b_scale, a_zero, b_zero, bias = [*node.input, *[""] * 5][:7]
        code = self.codes.get(a)
        left = (
            self.add("Mul", [self.minus_zero(a, a_zero, rows=True), a_scale])
            if code is None
            else self.recode(code, a_scale, a_zero)
        )
        right = self.add("Mul", [self.minus_zero(b, b_zero), b_scale])
        self._product(node, left, right, bias)

    def multiply_dynamically(self, node: Any) -> None:
        self.twin.unmeasured += 1
        a, b, b_scale, b_zero, bias = [*node.input, *[""] * 3][:5]
        self._product(node, a, self.add("Mul", [self.minus_zero(b, b_zero), b_scale]), bias)

    def _product(self, node: Any, left: str, right: str, bias: str) -> None:
        self.twin.products += 1
        if bias:
            self.add("Add", [self.add("MatMul", [left, right]), bias], node.output[0])
        else:
            self.add("MatMul", [left, right], node.output[0])

    def multiply_linear(self, node: Any) -> None:
        a, a_s, a_z, b, b_s, b_z, y_s, y_z = [*node.input, ""][:8]
        self.twin.products += 1
        real = self.add("MatMul", [self.real(a, a_s, a_z), self.real(b, b_s, b_z, self._last(b))])
        self.register_codes(node, real, node.output[0], y_s, y_z)

    def _last(self, name: str) -> int | None:
        sizes = self.sizes(name)
        return len(sizes) - 1 if len(sizes) else None

    def convolve_linear(self, node: Any) -> None:
        x, x_s, x_z, w, w_s, w_z, y_s, y_z, bias = [*node.input, "", ""][:9]
        self.twin.products += 1
        attributes = {each.name: helper.get_attribute_value(each) for each in node.attribute}
        last = node.op_type == "QLinearConvTranspose"
        inputs = [self.real(x, x_s, x_z), self.real(w, w_s, w_z, 1 if last else 0)]
        if bias:
            inputs.append(self.add("Mul", [self.add("Cast", [bias], to=_FLOAT), self.add("Mul", [x_s, w_s])]))
        channels_last = attributes.pop("channels_last", 0)
        if channels_last:
            raise RefusedError(f"{node.op_type} has channels_last set")
        real = self.add("ConvTranspose" if last else "Conv", inputs, **attributes)
        self.register_codes(node, real, node.output[0], y_s, y_z)

    def multiply_general(self, node: Any) -> None:
        a, a_s, a_z, b, b_s, b_z, c, y_s, y_z = [*node.input, "", "", ""][:9]
        self.twin.products += 1
        attributes = {each.name: helper.get_attribute_value(each) for each in node.attribute}
        axis = 0 if attributes.get("transB") else 1
        inputs = [self.real(a, a_s, a_z), self.real(b, b_s, b_z, axis)]
        if c:
            inputs.append(self.add("Mul", [self.add("Cast", [c], to=_FLOAT), self.add("Mul", [a_s, b_s])]))
            if attributes.get("alpha", 1.0) != 1.0:  # the bias is in units of the product
                inputs[-1] = self.add(
                    "Mul", [inputs[-1], self.add_constant(np.array(attributes["alpha"], np.float32))]
                )
        real = self.add("Gemm", inputs, "" if y_s else node.output[0], **attributes)
        if y_s:
            self.register_codes(node, real, node.output[0], y_s, y_z)

    def compute_linear(self, node: Any) -> None:
        """Convert elementwise and pooling operators: (codes, scale, zero point) of each operand, then the output's."""
        op_type, operands = _LINEAR[node.op_type]
        attributes = {each.name: helper.get_attribute_value(each) for each in node.attribute}
        if attributes.pop("channels_last", 0):
            raise RefusedError(f"{node.op_type} has channels_last set")
        inputs = [*node.input, ""]
        reals = [self.real(*inputs[3 * at : 3 * at + 3]) for at in range(operands)]
        real = self.add(op_type, reals, **{k: v for k, v in attributes.items() if k != "opset"})
        self.register_codes(node, real, node.output[0], inputs[3 * operands], inputs[3 * operands + 1])

    def concatenate_linear(self, node: Any) -> None:
        inputs = list(node.input)
        parts = [self.real(*inputs[at : at + 3]) for at in range(2, len(inputs), 3)]
        axis = next(a.i for a in node.attribute if a.name == "axis")
        self.register_codes(node, self.add("Concat", parts, axis=axis), node.output[0], inputs[0], inputs[1])

    def choose_linear(self, node: Any) -> None:
        where, x, x_s, x_z, y, y_s, y_z, z_s, z_z = node.input
        real = self.add("Where", [where, self.real(x, x_s, x_z), self.real(y, y_s, y_z)])
        self.register_codes(node, real, node.output[0], z_s, z_z)

    def convert_attention(self, node: Any) -> None:
        x, w, bias, x_s, w_s, mask, x_z, w_z, past = [*node.input, *[""] * 4][:9]
        self.twin.products += 1
        weight = self.add("Mul", [self.minus_zero(w, w_z), w_s])
        self._add_like(node, "Attention", [self.real(x, x_s, x_z), weight, bias, mask, past])

    def _add_like(self, node: Any, op_type: str, inputs: Iterable[str]) -> None:
        made = helper.make_node(op_type, list(inputs), list(node.output), node.name, domain="com.microsoft")
        made.attribute.extend(a for a in node.attribute if a.name not in ("do_rotary",))
        while made.input and not made.input[-1]:
            made.input.pop()
        self.made.append(made)

    def convert_lstm(self, node: Any) -> None:
        self.twin.unmeasured += 1
        x, w, r, b, lens, h, c, p, w_s, w_z, r_s, r_z = [*node.input, *[""] * 4][:12]
        self.twin.products += 1
        transposed = []
        for codes, scale, zero in ((w, w_s, w_z), (r, r_s, r_z)):
            parts = []
            for each, is_zero_point in ((scale, False), (zero, True)):
                value = self.add("Cast", [each], to=_FLOAT) if is_zero_point else each
                if len(self.sizes(each)) == 2:  # (directions, 4 x hidden)
                    value = self.add("Unsqueeze", [value, self.add_constant(np.array([1], np.int64))])
                elif len(self.sizes(each)) == 1:
                    value = self.add("Reshape", [value, self.add_constant(np.array([-1, 1, 1], np.int64))])
                parts.append(value)
            shifted = self.add("Sub", [self.add("Cast", [codes], to=_FLOAT), parts[1]])
            transposed.append(self.add("Transpose", [self.add("Mul", [shifted, parts[0]])], perm=[0, 2, 1]))
        made = helper.make_node("LSTM", [x, *transposed, b, lens, h, c, p], list(node.output), node.name)
        made.attribute.extend(node.attribute)
        while made.input and not made.input[-1]:
            made.input.pop()
        self.made.append(made)


_LINEAR: Mapping[str, tuple[str, int]] = {
    "QLinearAdd": ("Add", 2),
    "QLinearMul": ("Mul", 2),
    "QLinearSigmoid": ("Sigmoid", 1),
    "QLinearLeakyRelu": ("LeakyRelu", 1),
    "QLinearAveragePool": ("AveragePool", 1),
    "QLinearGlobalAveragePool": ("GlobalAveragePool", 1),
    "QLinearSoftmax": ("Softmax", 1),
}
_RULES: Mapping[str, Callable[[_Body, Any], None]] = {
    "QuantizeLinear": _Body.quantize,
    "DequantizeLinear": _Body.dequantize,
    "DynamicQuantizeLinear": _Body.quantize_dynamically,
    "MatMulInteger": _Body.multiply_integers,
    "ConvInteger": _Body.multiply_integers,
    "Cast": _Body.cast,
    "MatMulIntegerToFloat": _Body.multiply_to_float,
    "DynamicQuantizeMatMul": _Body.multiply_dynamically,
    "DynamicQuantizeLSTM": _Body.convert_lstm,
    "QLinearMatMul": _Body.multiply_linear,
    "QLinearConv": _Body.convolve_linear,
    "QLinearConvTranspose": _Body.convolve_linear,
    "QGemm": _Body.multiply_general,
    "QLinearConcat": _Body.concatenate_linear,
    "QLinearWhere": _Body.choose_linear,
    "QAttention": _Body.convert_attention,
    **dict.fromkeys(_LINEAR, _Body.compute_linear),
}


def _set_attribute(node: Any, name: str, value: Any) -> None:
    kept = [each for each in node.attribute if each.name != name]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute(name, value)])


_TYPE_ATTRIBUTES = frozenset({"to", "dtype", "output_dtype"})


def _widen(model: Any, half_name: str, restored: Sequence[float]) -> None:
    """Widen half precision to single precision everywhere; tensors of one element may get back their exact numbers."""
    half = _HALVES[half_name]
    exact = {round_to_half(number, half_name): number for number in restored}

    def widen_tensor(tensor: Any) -> None:
        if tensor.data_type == half:
            array = numpy_helper.to_array(tensor).astype(np.float32)
            if array.size == 1 and exact:
                number = float(array.reshape(-1)[0])
                array = np.full(array.shape, exact.get(number, number), np.float32)
            name = tensor.name
            tensor.CopyFrom(numpy_helper.from_array(array, name))

    def widen_value(value: Any) -> None:
        kind = value.type
        while kind.HasField("sequence_type") or kind.HasField("optional_type"):
            kind = (
                kind.sequence_type.elem_type
                if kind.HasField("sequence_type")
                else kind.optional_type.elem_type
            )
        if kind.tensor_type.elem_type == half:
            kind.tensor_type.elem_type = _FLOAT

    def widen_nodes(nodes: Iterable[Any]) -> None:
        for node in nodes:
            for attribute in node.attribute:
                if (
                    attribute.name in _TYPE_ATTRIBUTES
                    and attribute.type == onnx.AttributeProto.INT
                    and attribute.i == half
                ):
                    attribute.i = _FLOAT
                if attribute.HasField("t"):
                    widen_tensor(attribute.t)
                for tensor in attribute.tensors:
                    widen_tensor(tensor)
                for body in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                    widen_graph(body)

    def widen_graph(graph: Any) -> None:
        for tensor in graph.initializer:
            widen_tensor(tensor)
        for sparse in graph.sparse_initializer:
            widen_tensor(sparse.values)
        for value in [*graph.input, *graph.output]:
            widen_value(value)
        widen_nodes(graph.node)

    widen_graph(model.graph)
    for function in model.functions:
        widen_nodes(function.node)


def _delete_types(model: Any) -> None:
    """Delete types and shapes of inner values, which no longer hold in the twin."""

    def delete_types(graph: Any) -> None:
        del graph.value_info[:]
        del graph.quantization_annotation[:]
        for node in graph.node:
            for attribute in node.attribute:
                for body in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                    delete_types(body)

    delete_types(model.graph)
    for function in model.functions:
        del function.value_info[:]
