"""Weights that PyTorch never had -> a float value in the graph, in every way that a file can contain them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from tools.suite.surgery import NoPlaceError, Surgery

__all__ = ["CARRIERS", "Carrier", "draw"]

Array = npt.NDArray[Any]
Carrier = Callable[[Surgery, tuple[int, ...]], str]
"""Function that adds a float32 value of a given shape, with any content, and returns its name."""

_OURS = "local"


def draw(s: Surgery, shape: tuple[int, ...]) -> Array:
    """Return weights like trained ones."""
    return s.random.normal(0, 0.25, shape).astype(np.float32)


def integers(s: Surgery, shape: tuple[int, ...], kind: Any = np.int64) -> Array:
    return s.random.integers(-100, 101, shape).astype(kind)


def scaled(s: Surgery, value: str, by: float = 0.004) -> str:
    return s.node("Mul", [value, s.add(np.float32(by).reshape(()))])


def as_float(s: Surgery, value: str) -> str:
    return s.node("Cast", [value], to=TensorProto.FLOAT)


def shaped(s: Surgery, value: str, shape: tuple[int, ...]) -> str:
    return s.node("Reshape", [value, s.add(np.array(shape, np.int64))])


def constant(s: Surgery, **attributes: Any) -> str:
    return s.node("Constant", [], **attributes)


def floats(s: Surgery, shape: tuple[int, ...]) -> str:
    return s.add(draw(s, shape))


def float_constant(s: Surgery, shape: tuple[int, ...]) -> str:
    return constant(s, value=numpy_helper.from_array(draw(s, shape)))


def cast_from(kind: Any) -> Carrier:
    def make(s: Surgery, shape: tuple[int, ...]) -> str:
        array = integers(s, shape)
        if np.dtype(kind).kind == "u":
            array = np.abs(array)
        return scaled(s, as_float(s, s.add(array.astype(kind))))

    return make


def wide_floats(s: Surgery, shape: tuple[int, ...]) -> str:
    return as_float(s, s.add(draw(s, shape).astype(np.float64)))


def half_floats(s: Surgery, shape: tuple[int, ...]) -> str:
    return as_float(s, s.add(draw(s, shape).astype(np.float16)))


def brain_floats(s: Surgery, shape: tuple[int, ...]) -> str:
    import ml_dtypes

    return as_float(s, s.add(draw(s, shape).astype(ml_dtypes.bfloat16)))


def small_floats(s: Surgery, shape: tuple[int, ...]) -> str:
    import ml_dtypes

    return as_float(s, s.add(draw(s, shape).astype(ml_dtypes.float8_e4m3fn)))


def bools(s: Surgery, shape: tuple[int, ...]) -> str:
    value = as_float(s, s.add(s.random.random(shape) < 0.5))
    return scaled(s, s.node("Sub", [value, s.add(np.float32(0.5).reshape(()))]), 0.4)


def chunks(s: Surgery, shape: tuple[int, ...]) -> str:
    size = int(np.prod(shape))
    array = integers(s, (size,), np.int8)
    parts = [s.add(part) for part in np.split(array, range(64, size, 64))]
    return scaled(s, as_float(s, shaped(s, s.node("Concat", parts, axis=0), shape)))


def scalars(s: Surgery, shape: tuple[int, ...]) -> str:
    """Return up to 1024 scalar initializers, repeated to the shape."""
    size = int(np.prod(shape))
    count = min(size, 1024)
    parts = [s.add(value.reshape(1)) for value in draw(s, (count,))]
    joined = s.node("Concat", parts, axis=0)
    times = -(-size // count)
    long = s.node("Tile", [joined, s.add(np.array([times], np.int64))]) if times > 1 else joined
    cut = s.node("Slice", [long, s.add(np.array([0], np.int64)), s.add(np.array([size], np.int64))])
    return shaped(s, cut, shape)


def scalar_constants(s: Surgery, shape: tuple[int, ...]) -> str:
    size = int(np.prod(shape))
    count = min(size, 256)
    one = s.add(np.array([1], np.int64))
    parts = [shaped_one(s, constant(s, value_float=float(v)), one) for v in draw(s, (count,))]
    joined = s.node("Concat", parts, axis=0)
    times = -(-size // count)
    long = s.node("Tile", [joined, s.add(np.array([times], np.int64))])
    cut = s.node("Slice", [long, s.add(np.array([0], np.int64)), s.add(np.array([size], np.int64))])
    return shaped(s, cut, shape)


def shaped_one(s: Surgery, value: str, one: str) -> str:
    return s.node("Reshape", [value, one])


def strings(s: Surgery, shape: tuple[int, ...]) -> str:
    texts = np.array([f"{v:.4f}" for v in draw(s, shape).reshape(-1)], dtype=object)
    return shaped(s, as_float(s, s.add(texts)), shape)


def one_string(s: Surgery, shape: tuple[int, ...]) -> str:
    if s.opset < 20:
        raise NoPlaceError("no StringSplit")
    text = " ".join(f"{v:.3f}" for v in draw(s, shape).reshape(-1))
    pieces = s.node("StringSplit", [s.add(np.array([text], dtype=object))], outputs=2, delimiter=" ")
    return shaped(s, as_float(s, pieces), shape)


def string_constant(s: Surgery, shape: tuple[int, ...]) -> str:
    texts = [f"{v:.4f}" for v in draw(s, shape).reshape(-1)]
    return shaped(s, as_float(s, constant(s, value_strings=texts)), shape)


def places(s: Surgery, size: int) -> str:
    """Return 0, 1, 2, ..., made at run time."""
    bounds = [s.add(np.array(v, np.int64).reshape(())) for v in (0, size, 1)]
    return s.node("Range", bounds)


def label_encoder(s: Surgery, shape: tuple[int, ...]) -> str:
    size = int(np.prod(shape))
    value = s.node(
        "LabelEncoder",
        [places(s, size)],
        domain="ai.onnx.ml",
        keys_int64s=list(range(size)),
        values_floats=draw(s, (size,)).tolist(),
    )
    return shaped(s, value, shape)


def label_keys(s: Surgery, shape: tuple[int, ...]) -> str:
    """Return outputs of a LabelEncoder with permuted keys: the order of the keys determines the values."""
    size = int(np.prod(shape))
    order = s.random.permutation(size)
    value = s.node(
        "LabelEncoder",
        [places(s, size)],
        domain="ai.onnx.ml",
        keys_int64s=order.tolist(),
        values_floats=np.linspace(-0.5, 0.5, size, dtype=np.float32).tolist(),
    )
    return shaped(s, value, shape)


def linear_regressor(s: Surgery, shape: tuple[int, ...]) -> str:
    """Return the coefficients of a LinearRegressor, by applying it to the identity matrix."""
    width, count = shape[-1], int(np.prod(shape[:-1]))
    eye = s.node("EyeLike", [s.node("ConstantOfShape", [s.add(np.array([width, width], np.int64))])])
    value = s.node(
        "LinearRegressor",
        [eye],
        domain="ai.onnx.ml",
        coefficients=draw(s, (count * width,)).tolist(),
        intercepts=[0.0] * count,
        targets=count,
    )
    return shaped(s, s.node("Transpose", [value], perm=[1, 0]), shape)


def ml_scaler(s: Surgery, shape: tuple[int, ...]) -> str:
    size = int(np.prod(shape))
    ones = s.node("Expand", [s.add(np.ones((1, 1), np.float32)), s.add(np.array([1, size], np.int64))])
    value = s.node(
        "Scaler", [ones], domain="ai.onnx.ml", offset=[0.0] * size, scale=draw(s, (size,)).tolist()
    )
    return shaped(s, value, shape)


def tree_ensemble(s: Surgery, shape: tuple[int, ...]) -> str:
    """Return the outputs of a tree of one leaf, which has a weight for each target."""
    size = min(int(np.prod(shape)), 512)
    value = s.node(
        "TreeEnsembleRegressor",
        [s.add(np.zeros((1, 1), np.float32))],
        domain="ai.onnx.ml",
        n_targets=size,
        nodes_treeids=[0],
        nodes_nodeids=[0],
        nodes_featureids=[0],
        nodes_modes=["LEAF"],
        nodes_values=[0.0],
        nodes_truenodeids=[0],
        nodes_falsenodeids=[0],
        target_treeids=[0] * size,
        target_nodeids=[0] * size,
        target_ids=list(range(size)),
        target_weights=draw(s, (size,)).tolist(),
    )
    full = int(np.prod(shape))
    long = s.node("Tile", [shaped(s, value, (size,)), s.add(np.array([-(-full // size)], np.int64))])
    cut = s.node("Slice", [long, s.add(np.array([0], np.int64)), s.add(np.array([full], np.int64))])
    return shaped(s, cut, shape)


def value_floats(s: Surgery, shape: tuple[int, ...]) -> str:
    return shaped(s, constant(s, value_floats=draw(s, shape).reshape(-1).tolist()), shape)


def value_ints(s: Surgery, shape: tuple[int, ...]) -> str:
    return scaled(
        s, as_float(s, shaped(s, constant(s, value_ints=integers(s, shape).reshape(-1).tolist()), shape))
    )


def sparse_tensor(s: Surgery, shape: tuple[int, ...], name: str) -> Any:
    size = int(np.prod(shape))
    where = np.sort(s.random.choice(size, max(size // 2, 1), replace=False)).astype(np.int64)
    return helper.make_sparse_tensor(
        numpy_helper.from_array(draw(s, (where.size,)) * 2, name),
        numpy_helper.from_array(where, ""),
        list(shape),
    )


def sparse_initializer(s: Surgery, shape: tuple[int, ...]) -> str:
    name = s.fresh("t")
    s.graph.sparse_initializer.append(sparse_tensor(s, shape, name))
    return s.node("Identity", [name])


def sparse_constant(s: Surgery, shape: tuple[int, ...]) -> str:
    return constant(s, sparse_value=sparse_tensor(s, shape, ""))


def function(s: Surgery, nodes: list[Any], attributes: list[str]) -> str:
    name = s.fresh("Fn")
    opset = [helper.make_opsetid("", s.opset)]
    s.model.functions.append(helper.make_function(_OURS, name, [], ["y"], nodes, opset, attributes))
    s.import_domain(_OURS)
    return name


def function_body(s: Surgery, shape: tuple[int, ...]) -> str:
    stored = helper.make_node("Constant", [], ["y"], value=numpy_helper.from_array(draw(s, shape)))
    return s.node(function(s, [stored], []), [], domain=_OURS)


def function_attribute(s: Surgery, shape: tuple[int, ...]) -> str:
    stored = helper.make_node("Constant", [], ["y"])
    stored.attribute.append(
        onnx.AttributeProto(name="value_floats", type=onnx.AttributeProto.FLOATS, ref_attr_name="w")
    )
    value = s.node(function(s, [stored], ["w"]), [], domain=_OURS, w=draw(s, shape).reshape(-1).tolist())
    return shaped(s, value, shape)


def function_integers(s: Surgery, shape: tuple[int, ...]) -> str:
    stored = helper.make_node(
        "Constant", [], ["i"], value=numpy_helper.from_array(integers(s, shape, np.int8))
    )
    cast = helper.make_node("Cast", ["i"], ["y"], to=TensorProto.FLOAT)
    return scaled(s, s.node(function(s, [stored, cast], []), [], domain=_OURS))


def sines(s: Surgery, shape: tuple[int, ...]) -> str:
    steps = as_float(s, places(s, int(np.prod(shape))))
    value = s.node("Sin", [s.node("Mul", [steps, s.add(np.float32(12.9898).reshape(()))])])
    return scaled(s, shaped(s, value, shape), 0.4)


def remainders(s: Surgery, shape: tuple[int, ...]) -> str:
    """Return the values of a linear congruence."""
    size = int(np.prod(shape))
    product = s.node("Mul", [places(s, size), s.add(np.array(7919, np.int64).reshape(()))])
    rest = s.node("Mod", [product, s.add(np.array(199, np.int64).reshape(()))])
    centred = s.node("Sub", [rest, s.add(np.array(99, np.int64).reshape(()))])
    return scaled(s, as_float(s, shaped(s, centred, shape)))


def same_everywhere(s: Surgery, shape: tuple[int, ...]) -> str:
    """Return a ConstantOfShape, made uneven by Trilu."""
    value = s.node(
        "ConstantOfShape",
        [s.add(np.array(shape, np.int64))],
        value=numpy_helper.from_array(np.array([0.3], np.float32)),
    )
    return s.node("Trilu", [value], upper=1) if len(shape) == 2 else value


def identities(s: Surgery, shape: tuple[int, ...]) -> str:
    if len(shape) != 2:
        raise NoPlaceError("no matrix")
    like = s.node("ConstantOfShape", [s.add(np.array(shape, np.int64))])
    return scaled(s, s.node("EyeLike", [like], k=3), 0.8)


def random_normal(s: Surgery, shape: tuple[int, ...]) -> str:
    return s.node("RandomNormal", [], shape=list(shape), seed=7.0, scale=0.25)


def random_uniform(s: Surgery, shape: tuple[int, ...]) -> str:
    return s.node("RandomUniform", [], shape=list(shape), seed=7.0, low=-0.4, high=0.4)


def random_like(s: Surgery, shape: tuple[int, ...]) -> str:
    like = s.node("ConstantOfShape", [s.add(np.array(shape, np.int64))])
    return s.node("RandomNormalLike", [like], seed=3.0, scale=0.25)


def bernoulli(s: Surgery, shape: tuple[int, ...]) -> str:
    half = np.array([0.5], np.float32)
    like = s.node("ConstantOfShape", [s.add(np.array(shape, np.int64))], value=numpy_helper.from_array(half))
    value = s.node("Bernoulli", [like], seed=3.0)
    return scaled(s, s.node("Sub", [value, s.add(np.float32(0.5).reshape(()))]), 0.4)


def scales_of_ones(s: Surgery, shape: tuple[int, ...]) -> str:
    """Return dequantized codes that are all 1, with a scale for each element."""
    size = int(np.prod(shape))
    ones, scale = s.add(np.ones((size,), np.int8)), s.add(draw(s, (size,)))
    return shaped(s, s.node("DequantizeLinear", [ones, scale], axis=0), shape)


def scales_named(s: Surgery, shape: tuple[int, ...]) -> str:
    """Return the same under a quantizer's names."""
    size = int(np.prod(shape))
    stem = s.pick([p.tensor for p in s.products()], "no product")
    codes, scale = (
        s.add(np.ones((size,), np.int8), f"{stem}_quantized"),
        s.add(draw(s, (size,)), f"{stem}_scale"),
    )
    zero = s.add(np.zeros((size,), np.int8), f"{stem}_zero_point")
    return shaped(s, s.node("DequantizeLinear", [codes, scale, zero], axis=0), shape)


def zero_points_of_zeros(s: Surgery, shape: tuple[int, ...]) -> str:
    size = int(np.prod(shape))
    codes, points = s.add(np.zeros((size,), np.int8)), s.add(integers(s, (size,), np.int8))
    scale = s.add(np.full((size,), 0.004, np.float32))
    return shaped(s, s.node("DequantizeLinear", [codes, scale, points], axis=0), shape)


def codes_of_one_scale(s: Surgery, shape: tuple[int, ...]) -> str:
    codes, scale = s.add(integers(s, shape, np.int8)), s.add(np.float32(0.004).reshape(()))
    return s.node("DequantizeLinear", [codes, scale])


def indices_into_steps(s: Surgery, shape: tuple[int, ...]) -> str:
    """Return values without any stored float: indices pick from evenly spaced values."""
    steps = as_float(s, places(s, 201))
    centred = s.node("Sub", [steps, s.add(np.float32(100).reshape(()))])
    picked = s.node("Gather", [centred, s.add(integers(s, shape) + 100)])
    return scaled(s, picked)


def indices_into_codebook(s: Surgery, shape: tuple[int, ...]) -> str:
    book = s.add(np.linspace(-0.5, 0.5, 16, dtype=np.float32))
    return s.node("Gather", [book, s.add(s.random.integers(0, 16, shape))])


def where_signs(s: Surgery, shape: tuple[int, ...]) -> str:
    """Return a Where whose stored condition picks plus or minus."""
    sides = [s.add(np.float32(v).reshape(())) for v in (0.2, -0.2)]
    return s.node("Where", [s.add(s.random.random(shape) < 0.5), *sides])


def one_hot(s: Surgery, shape: tuple[int, ...]) -> str:
    """Return a OneHot with stored indices."""
    rows, width = int(np.prod(shape[:-1])), shape[-1]
    values = s.add(np.array([-0.05, 0.8], np.float32))
    hot = s.node(
        "OneHot", [s.add(s.random.integers(0, width, (rows,))), s.add(np.array(width, np.int64)), values]
    )
    return shaped(s, hot, shape)


def scattered(s: Surgery, shape: tuple[int, ...]) -> str:
    size = int(np.prod(shape))
    where = s.random.choice(size, max(size // 4, 1), replace=False).astype(np.int64)
    blank = s.node("ConstantOfShape", [s.add(np.array([size], np.int64))])
    updates = s.add(draw(s, (where.size,)) * 2)
    return shaped(s, s.node("ScatterElements", [blank, s.add(where), updates], axis=0), shape)


def bits(s: Surgery, shape: tuple[int, ...]) -> str:
    """Return weights of one bit, eight in each byte."""
    size = int(np.prod(shape))
    packed = s.add(s.random.integers(0, 256, (-(-size // 8), 1)).astype(np.uint8))
    masks = s.add(np.array([[1, 2, 4, 8, 16, 32, 64, 128]], np.uint8))
    hit = as_float(s, s.node("Cast", [s.node("BitwiseAnd", [packed, masks])], to=TensorProto.BOOL))
    flat = s.node(
        "Slice", [shaped(s, hit, (-1,)), s.add(np.array([0], np.int64)), s.add(np.array([size], np.int64))]
    )
    return scaled(s, s.node("Sub", [shaped(s, flat, shape), s.add(np.float32(0.5).reshape(()))]), 0.4)


def four_bits(s: Surgery, shape: tuple[int, ...]) -> str:
    import ml_dtypes

    if s.opset < 21:
        array = s.random.integers(0, 256, (int(np.prod(shape)) // 2, 1)).astype(np.uint8)
        packed = s.add(array)
        low = s.node("BitwiseAnd", [packed, s.add(np.array([[15]], np.uint8))])
        high = s.node("BitShift", [packed, s.add(np.array([[4]], np.uint8))], direction="RIGHT")
        value = as_float(s, s.node("Concat", [low, high], axis=1))
        centred = s.node("Sub", [shaped(s, value, shape), s.add(np.float32(7.5).reshape(()))])
        return scaled(s, centred, 0.05)
    return scaled(s, as_float(s, s.add(s.random.integers(-8, 8, shape).astype(ml_dtypes.int4))), 0.05)


def body(s: Surgery, shape: tuple[int, ...], *, initializer: bool, output: str = "y") -> Any:
    tensor = numpy_helper.from_array(draw(s, shape), s.fresh("held"))
    info = helper.make_tensor_value_info(output, TensorProto.FLOAT, list(shape))
    if initializer:
        node = helper.make_node("Identity", [tensor.name], [output])
        return helper.make_graph([node], "body", [], [info], [tensor])
    return helper.make_graph([helper.make_node("Constant", [], [output], value=tensor)], "body", [], [info])


def if_constant(initializer: bool) -> Carrier:
    def make(s: Surgery, shape: tuple[int, ...]) -> str:
        then = body(s, shape, initializer=initializer, output=s.fresh("then"))
        other = body(s, shape, initializer=initializer, output=s.fresh("else"))
        return s.node("If", [s.add(np.array(True))], then_branch=then, else_branch=other)

    return make


def if_on_input(s: Surgery, shape: tuple[int, ...]) -> str:
    """Return an If whose condition is computed from the input, and always true."""
    value = s.pick(s.activations(), "no activation")
    size = s.node("Size", [value])
    condition = s.node("Greater", [size, s.add(np.array(0, np.int64).reshape(()))])
    then = body(s, shape, initializer=True, output=s.fresh("then"))
    other = body(s, shape, initializer=False, output=s.fresh("else"))
    return s.node("If", [condition], then_branch=then, else_branch=other)


def loop_body(s: Surgery, shape: tuple[int, ...]) -> str:
    tensor = numpy_helper.from_array(draw(s, shape), "")
    iteration, condition, carried, out, weight = (
        s.fresh(n) for n in ("step", "going", "carried", "out", "held")
    )
    graph = helper.make_graph(
        [
            helper.make_node("Constant", [], [weight], value=tensor),
            helper.make_node("Add", [carried, weight], [out]),
            helper.make_node("Identity", [condition], [f"{condition}_out"]),
        ],
        "loop",
        [
            helper.make_tensor_value_info(iteration, TensorProto.INT64, []),
            helper.make_tensor_value_info(condition, TensorProto.BOOL, []),
            helper.make_tensor_value_info(carried, TensorProto.FLOAT, list(shape)),
        ],
        [
            helper.make_tensor_value_info(f"{condition}_out", TensorProto.BOOL, []),
            helper.make_tensor_value_info(out, TensorProto.FLOAT, list(shape)),
        ],
    )
    start = s.node("ConstantOfShape", [s.add(np.array(shape, np.int64))])
    times, true = s.add(np.array(1, np.int64).reshape(())), s.add(np.array(True))
    return s.node("Loop", [times, true, start], body=graph)


def scan_body(s: Surgery, shape: tuple[int, ...]) -> str:
    rows, width = int(np.prod(shape[:-1])), shape[-1]
    part, out, weight, state = (s.fresh(n) for n in ("part", "out", "held", "state"))
    tensor = numpy_helper.from_array(draw(s, (width,)), weight)
    graph = helper.make_graph(
        [
            helper.make_node("Mul", [part, weight], [out]),
            helper.make_node("Identity", [state], [f"{state}_out"]),
        ],
        "scan",
        [
            helper.make_tensor_value_info(state, TensorProto.FLOAT, []),
            helper.make_tensor_value_info(part, TensorProto.FLOAT, [width]),
        ],
        [
            helper.make_tensor_value_info(f"{state}_out", TensorProto.FLOAT, []),
            helper.make_tensor_value_info(out, TensorProto.FLOAT, [width]),
        ],
        [tensor],
    )
    ones = s.node(
        "ConstantOfShape",
        [s.add(np.array([rows, width], np.int64))],
        value=numpy_helper.from_array(np.array([1.0], np.float32)),
    )
    scan = helper.make_node(
        "Scan",
        [s.add(np.float32(0).reshape(())), ones],
        [s.fresh("scan"), s.fresh("rows")],
        num_scan_inputs=1,
        body=graph,
    )
    s.graph.node.append(scan)
    return shaped(s, scan.output[1], shape)


def graph_input(s: Surgery, shape: tuple[int, ...]) -> str:
    """Return an initializer that is also a graph input: a default that a caller may replace."""
    name = s.add(draw(s, shape))
    s.graph.input.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, list(shape)))
    return name


def outer_product(s: Surgery, shape: tuple[int, ...]) -> str:
    """Return the product of two thin tensors, computed at run time."""
    if len(shape) != 2:
        raise NoPlaceError("no matrix")
    return s.node("MatMul", [s.add(draw(s, (shape[0], 4))), s.add(draw(s, (4, shape[1])))])


def summed(s: Surgery, shape: tuple[int, ...]) -> str:
    """Return a running sum of small integers."""
    size = int(np.prod(shape))
    steps = as_float(s, s.add(s.random.integers(-1, 2, (size,)).astype(np.int8)))
    return scaled(s, shaped(s, s.node("CumSum", [steps, s.add(np.array(0, np.int64))]), shape), 0.02)


def resized(s: Surgery, shape: tuple[int, ...]) -> str:
    """Return a small table, stretched to the shape."""
    size = int(np.prod(shape))
    small = s.add(draw(s, (1, 1, max(size // 4, 1))))
    sizes = s.add(np.array([1, 1, size], np.int64))
    return shaped(s, s.node("Resize", [small, "", "", sizes], mode="linear"), shape)


def cut_and_shaped(s: Surgery, value: str, count: int, shape: tuple[int, ...]) -> str:
    """Repeat a vector of `count` numbers to a shape."""
    size = int(np.prod(shape))
    long = s.node("Tile", [value, s.add(np.array([-(-size // count)], np.int64))])
    cut = s.node("Slice", [long, s.add(np.array([0], np.int64)), s.add(np.array([size], np.int64))])
    return shaped(s, cut, shape)


def slopes(s: Surgery, shape: tuple[int, ...]) -> str:
    """Return outputs of LeakyRelu nodes for -1: their slopes are the weights."""
    count = min(int(np.prod(shape)), 256)
    minus = s.add(np.array([-1], np.float32))
    parts = [s.node("LeakyRelu", [minus], alpha=float(value)) for value in draw(s, (count,))]
    return cut_and_shaped(s, s.node("Concat", parts, axis=0), count, shape)


def sizes(s: Surgery, shape: tuple[int, ...]) -> str:
    """Return the dimensions of tensors without elements."""
    count = min(int(np.prod(shape)), 256)
    parts = []
    for value in np.abs(integers(s, (count,))).tolist():
        empty = s.add(np.zeros((0, value), np.float32))
        last = s.node("Slice", [s.node("Shape", [empty]), *(s.add(np.array([n], np.int64)) for n in (1, 2))])
        parts.append(last)
    return scaled(s, cut_and_shaped(s, as_float(s, s.node("Concat", parts, axis=0)), count, shape), 0.01)


def steps_of_a_loop(s: Surgery, shape: tuple[int, ...]) -> str:
    """Return the states of a Loop, each the fractional part of a multiple of the one before."""
    i, c, p, d, m, k, q, v = (s.fresh(name) for name in "icpdmkqv")
    large = s.add(np.float32(917.3).reshape(()))
    body = helper.make_graph(
        [
            helper.make_node("Identity", [c], [d]),
            helper.make_node("Mul", [p, large], [m]),
            helper.make_node("Floor", [m], [k]),
            helper.make_node("Sub", [m, k], [q]),
            helper.make_node("Identity", [q], [v]),
        ],
        "body",
        [
            helper.make_tensor_value_info(i, TensorProto.INT64, []),
            helper.make_tensor_value_info(c, TensorProto.BOOL, []),
            helper.make_tensor_value_info(p, TensorProto.FLOAT, []),
        ],
        [
            helper.make_tensor_value_info(d, TensorProto.BOOL, []),
            helper.make_tensor_value_info(q, TensorProto.FLOAT, []),
            helper.make_tensor_value_info(v, TensorProto.FLOAT, []),
        ],
    )
    size = int(np.prod(shape))
    inputs = [s.add(np.array(size, np.int64)), "", s.add(np.float32(0.3).reshape(()))]
    s.node("Loop", inputs, outputs=2, body=body)
    return shaped(s, s.graph.node[-1].output[1], shape)


CARRIERS: Mapping[str, Carrier] = {
    "float initializer": floats,
    "float Constant": float_constant,
    "float64 through Cast": wide_floats,
    "float16 through Cast": half_floats,
    "bfloat16 through Cast": brain_floats,
    "float8 through Cast": small_floats,
    "int64 through Cast": cast_from(np.int64),
    "int32 through Cast": cast_from(np.int32),
    "int16 through Cast": cast_from(np.int16),
    "int8 through Cast": cast_from(np.int8),
    "uint8 through Cast": cast_from(np.uint8),
    "bools": bools,
    "int8 chunks of 64": chunks,
    "1,024 scalars": scalars,
    "256 scalar Constants": scalar_constants,
    "strings": strings,
    "one string": one_string,
    "value_strings": string_constant,
    "LabelEncoder's values": label_encoder,
    "LabelEncoder's keys": label_keys,
    "LinearRegressor": linear_regressor,
    "Scaler": ml_scaler,
    "tree's leaves": tree_ensemble,
    "value_floats": value_floats,
    "value_ints": value_ints,
    "sparse initializer": sparse_initializer,
    "sparse Constant": sparse_constant,
    "function's body": function_body,
    "function's attribute": function_attribute,
    "integers in a function": function_integers,
    "sines at run time": sines,
    "remainders at run time": remainders,
    "ConstantOfShape and a triangle": same_everywhere,
    "EyeLike": identities,
    "RandomNormal": random_normal,
    "RandomUniform": random_uniform,
    "RandomNormalLike": random_like,
    "Bernoulli": bernoulli,
    "scales of codes that are 1": scales_of_ones,
    "scales of codes that are 1, with a quantizer's names": scales_named,
    "zero points of codes that are 0": zero_points_of_zeros,
    "codes with one scale": codes_of_one_scale,
    "indices into even steps": indices_into_steps,
    "indices into a codebook": indices_into_codebook,
    "a condition's signs": where_signs,
    "OneHot": one_hot,
    "ScatterElements": scattered,
    "bits of bytes": bits,
    "four bits": four_bits,
    "If's Constants": if_constant(initializer=False),
    "If's initializers": if_constant(initializer=True),
    "If on an input": if_on_input,
    "Loop's body": loop_body,
    "Scan's body": scan_body,
    "graph input with a default": graph_input,
    "outer product": outer_product,
    "running sum": summed,
    "Resize of a small table": resized,
    "settings of many nodes": slopes,
    "sizes of tensors without elements": sizes,
    "steps of a Loop": steps_of_a_loop,
}
