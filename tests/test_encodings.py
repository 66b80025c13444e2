"""Decoded values equal those of onnxruntime or of ONNX's reference evaluator."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.reference
import pytest
from models import external, ramp, raw, save
from onnx import TensorProto, helper, numpy_helper
from packaging.version import Version

from analyzer.account import decoding
from analyzer.account.decoding.encodings import Encoded, find_encoding, logical_numel
from analyzer.model import Model, StoredTensor
from analyzer.model.dtypes import DType
from analyzer.model.wiring import connect
from analyzer.read import read_model

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(7)


# models and their runners


def node(op: str, inputs: list[str], **attributes: Any) -> onnx.NodeProto:
    """Make a node with the output `y`, in onnxruntime's domain if ONNX has no such operator."""
    domain = "" if onnx.defs.has(op) else "com.microsoft"
    return helper.make_node(op, inputs, ["y"], domain=domain, **attributes)


def model(
    nodes: list[onnx.NodeProto],
    stored: dict[str, Array | onnx.TensorProto],
    inputs: dict[str, Array] | None = None,
) -> onnx.ModelProto:
    tensors = []
    for name, value in stored.items():
        tensor = (
            value if isinstance(value, onnx.TensorProto) else numpy_helper.from_array(np.asarray(value), name)
        )
        tensor.name = name
        tensors.append(tensor)
    graph_inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in (inputs or {}).items()
    ]
    graph = helper.make_graph(
        nodes, "g", graph_inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], tensors
    )
    opsets = [helper.make_opsetid("", 25), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def stored(read: Model, name: str = "w") -> StoredTensor:
    (found,) = [tensor for tensor in read.tensors() if tensor.name == name]
    return found


def find(folder: Path, proto: onnx.ModelProto, name: str = "w") -> Encoded | None:
    read = read_model(save(folder, proto))
    return find_encoding(stored(read, name), connect(read))


def decode(folder: Path, proto: onnx.ModelProto, name: str = "w") -> Array:
    """Decode all values of a tensor, and check that each access path gives the same ones."""
    encoded = find(folder, proto, name)
    assert encoded is not None
    whole = encoded.array()
    assert whole is not None
    positions = RNG.permutation(encoded.numel)[:50]
    looked = encoded.at(positions)
    assert looked is not None
    np.testing.assert_array_equal(looked[0].astype("f4"), whole.reshape(-1)[positions])
    steps = np.concatenate([steps for _, steps in encoded.bands()] or [np.empty(0)])
    np.testing.assert_array_equal(looked[1], steps[positions])
    return whole


def run(proto: onnx.ModelProto, inputs: dict[str, Array] | None = None) -> Array:
    """Return `y` as onnxruntime computes it."""
    onnxruntime = pytest.importorskip("onnxruntime")
    for opset in proto.opset_import:
        opset.version = min(opset.version, 21)
    proto.graph.output[0].type.tensor_type.elem_type = output_type(proto)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    (found,) = session.run(["y"], inputs or {})
    return found


def skip_old_onnxruntime() -> None:
    """Skip old versions: 1.25 has no groups of 2 bits, and its gather reads packed zero points as unpacked."""
    onnxruntime = pytest.importorskip("onnxruntime")
    if Version(onnxruntime.__version__) < Version("1.27"):
        pytest.skip("onnxruntime before 1.27 does not compute this")


def output_type(proto: onnx.ModelProto) -> int:
    """Return the output type: QLinear operators write codes of their zero point's type; all others write floats."""
    last = proto.graph.node[-1]
    slots = {"QLinearConcat": 1, "QLinearWhere": 8}
    zero = last.input[slots.get(last.op_type, 7)] if last.op_type.startswith("QLinear") else None
    return next((t.data_type for t in proto.graph.initializer if t.name == zero), TensorProto.FLOAT)


def integers(low: int, high: int, *shape: int, dtype: str = "i8") -> Array:
    return RNG.integers(low, high + 1, shape).astype(dtype)


def positive(*shape: int) -> Array:
    """Return scales that all differ."""
    return (RNG.permutation(int(np.prod(shape))).reshape(shape) * 0.03125 + 0.25).astype("f4")


# DequantizeLinear

CODES = {
    DType.INT8: (-128, 127),
    DType.UINT8: (0, 255),
    DType.INT16: (-(2**15), 2**15 - 1),
    DType.UINT16: (0, 2**16 - 1),
    DType.INT32: (-(2**30), 2**30),
    DType.INT4: (-8, 7),
    DType.UINT4: (0, 15),
    DType.INT2: (-2, 1),
    DType.UINT2: (0, 3),
}
FLOATS = {
    DType.FLOAT8E4M3FN: ml_dtypes.float8_e4m3fn,
    DType.FLOAT8E4M3FNUZ: ml_dtypes.float8_e4m3fnuz,
    DType.FLOAT8E5M2: ml_dtypes.float8_e5m2,
    DType.FLOAT8E5M2FNUZ: ml_dtypes.float8_e5m2fnuz,
    DType.FLOAT4E2M1: ml_dtypes.float4_e2m1fn,
}
KINDS = [
    (dtype, has) for dtype in (*CODES, *FLOATS) for has in (False, True) if not has or dtype != DType.INT32
]
"""Types, without and with a zero point; biases have none."""
GRIDS = {
    "tensor": ((), {}),
    "tensor of one": ((1,), {}),
    "rows": ((4,), {"axis": 0}),
    "columns": ((6,), {}),
    "last": ((6,), {"axis": -1}),
    "blocks of columns": ((4, 2), {"axis": 1, "block_size": 3}),
    "blocks of rows": ((2, 6), {"axis": 0, "block_size": 2}),
    "uneven blocks": ((4, 2), {"axis": -1, "block_size": 4}),
}


def codes(dtype: DType, *shape: int) -> onnx.TensorProto:
    if dtype in CODES:
        return helper.make_tensor("", int(dtype), shape, integers(*CODES[dtype], *shape).reshape(-1).tolist())
    values = RNG.normal(size=shape).astype("f4") * 2
    return numpy_helper.from_array(values.astype(FLOATS[dtype]), "")


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize(("dtype", "has_zero"), KINDS, ids=str)
def test_dequantized_codes_are_what_the_operator_makes_of_them(tmp_path, grid, dtype, has_zero):
    shape, attributes = GRIDS[grid]
    proto = model(
        [node("DequantizeLinear", ["w", "s", "z"] if has_zero else ["w", "s"], **attributes)],
        {"w": codes(dtype, 4, 6), "s": positive(*shape)},
    )
    if has_zero:
        zeros = integers(*(CODES.get(dtype, (0, 0))), *shape)
        proto.graph.initializer.append(helper.make_tensor("z", int(dtype), shape, zeros.reshape(-1).tolist()))

    found = decode(tmp_path, proto)

    np.testing.assert_allclose(found, reference(proto), rtol=1e-6)


def reference(proto: onnx.ModelProto) -> Array:
    """Return (code - zero point) x scale, as ONNX's reference implementation computes it."""
    for tensor in proto.graph.initializer:
        if tensor.name == "z" and not tensor.dims:
            tensor.dims.append(1)  # as a list, because onnx 1.21 cannot read a scalar of 2 bits
    (found,) = onnx.reference.ReferenceEvaluator(proto).run(None, {})
    return found


@pytest.mark.parametrize("shape", [(), (5,), (2, 3, 4, 5)])
def test_codes_of_any_rank_are_dequantized(tmp_path, shape):
    proto = model(
        [node("DequantizeLinear", ["w", "s"], axis=0)],
        {"w": integers(-128, 127, *shape, dtype="i1"), "s": positive(*shape[:1])},
    )

    np.testing.assert_array_equal(decode(tmp_path, proto), reference(proto))


@pytest.mark.parametrize("axis", [0, 1, 2, 3])
@pytest.mark.parametrize("block", [0, 2])
def test_scales_run_along_any_axis(tmp_path, axis, block):
    shape = [2, 4, 3, 5]
    grid = [-(-n // block) if i == axis else n for i, n in enumerate(shape)] if block else [shape[axis]]
    attributes = {"axis": axis, "block_size": block}
    proto = model(
        [node("DequantizeLinear", ["w", "s", "z"], **attributes)],
        {
            "w": integers(0, 255, *shape, dtype="u1"),
            "s": positive(*grid),
            "z": integers(0, 255, *grid, dtype="u1"),
        },
    )
    expected = reference(proto) if block == 0 or shape[axis] % 2 == 0 else None

    found = decode(tmp_path, proto)

    if expected is None:  # the reference repeats only whole blocks
        grids = [np.repeat(array, 2, axis).take(range(shape[axis]), axis) for array in map(of(proto), "sz")]
        expected = (of(proto)("w").astype("f4") - grids[1]) * grids[0]
    np.testing.assert_array_equal(found, expected)


def of(proto: onnx.ModelProto):
    return lambda name: numpy_helper.to_array(next(t for t in proto.graph.initializer if t.name == name))


def test_no_elements_are_no_numbers(tmp_path):
    proto = model([node("DequantizeLinear", ["w", "s"])], {"w": np.empty((0, 3), "i1"), "s": np.float32(1)})

    found = find(tmp_path, proto)

    assert found is not None
    assert found.array().shape == (0, 3)
    assert list(found.bands()) == []


def test_step_is_the_scale_of_each_element(tmp_path):
    scale = np.array([0.5, -2, 0.125], "f4")
    proto = model(
        [node("DequantizeLinear", ["w", "s"])], {"w": integers(-5, 5, 2, 3, dtype="i1"), "s": scale}
    )

    found = find(tmp_path, proto)

    np.testing.assert_array_equal(found.at(np.arange(6))[1], [0.5, 2, 0.125, 0.5, 2, 0.125])
    assert not found.is_blocked


def test_step_of_float_codes_is_the_distance_to_their_neighbours(tmp_path):
    every = np.arange(0x7E, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn)  # all finite non-negative values
    proto = model([node("DequantizeLinear", ["w", "s"])], {"w": every, "s": np.float32(2)})

    values, steps = find(tmp_path, proto).at(np.arange(every.size))

    assert (np.diff(values) <= steps[1:]).all()
    assert (steps <= 2 * np.maximum(np.append(np.diff(values), 0), 2**-8)).mean() > 0.9


def test_scales_of_other_float_types_are_numbers_too(tmp_path):
    scale = np.array([0.5, 2, 8], ml_dtypes.float8_e8m0fnu)
    proto = model([node("DequantizeLinear", ["w", "s"])], {"w": np.array([[1, 2, 3]], "i1"), "s": scale})

    assert decode(tmp_path, proto).tolist() == [[0.5, 4, 24]]


@pytest.mark.parametrize(
    "moves",
    [
        [("Gather", ["w", "i"], {})],
        [("Transpose", ["w"], {}), ("Reshape", ["m0", "i"], {})],
        [("Identity", ["w"], {}), ("Squeeze", ["m0"], {}), ("Slice", ["m1", "i", "i"], {})],
    ],
)
def test_codes_with_one_scale_are_followed_past_what_moves_them(tmp_path, moves):
    nodes = [
        helper.make_node(op, inputs, [f"m{number}"], **attributes)
        for number, (op, inputs, attributes) in enumerate(moves)
    ]
    nodes.append(node("DequantizeLinear", [nodes[-1].output[0], "s", "z"]))
    w = integers(0, 255, 5, 4, dtype="u1")
    proto = model(nodes, {"w": w, "s": np.float32(0.5), "z": np.uint8(7), "i": np.array([1])})

    np.testing.assert_array_equal(decode(tmp_path, proto), (w.astype("f4") - 7) * 0.5)


def through_identities(proto: onnx.ModelProto, count: int) -> onnx.ModelProto:
    """Put `count` Identity nodes before each input of each node."""
    nodes = []
    for number, each in enumerate(proto.graph.node):
        for slot, name in enumerate(each.input):
            names = [name, *(f"same_{number}_{slot}_{step}" for step in range(count))] if name else []
            nodes += [helper.make_node("Identity", [a], [b]) for a, b in itertools.pairwise(names)]
            each.input[slot] = names[-1] if names else ""
        nodes.append(each)
    copy = onnx.ModelProto.FromString(proto.SerializeToString())
    del copy.graph.node[:]
    copy.graph.node.extend(nodes)
    return copy


@pytest.mark.parametrize("count", [1, 30])
def test_codes_and_scales_may_come_through_nodes_that_do_nothing(tmp_path, count):
    w, scale = integers(0, 255, 5, 4, dtype="u1"), positive(4)
    product = [
        node("MatMulInteger", ["x", "w", "", "z"], name="m"),
        helper.make_node("Cast", ["y"], ["c"], to=1),
        helper.make_node("Mul", ["xs", "s"], ["both"]),
        helper.make_node("Mul", ["c", "both"], ["end"]),
    ]
    for nodes in ([node("DequantizeLinear", ["w", "s", "z"], axis=1)], product):
        proto = model(nodes, {"w": w, "s": scale, "z": np.full(4, 7, "u1")})

        np.testing.assert_allclose(
            decode(tmp_path, through_identities(proto, count)), (w.astype("f4") - 7) * scale
        )


@pytest.mark.parametrize("count", [1, 30])
def test_packed_codes_may_come_through_nodes_that_do_nothing(tmp_path, count):
    proto = nbits(4)
    expected = decode(tmp_path, proto)

    np.testing.assert_array_equal(decode(tmp_path, through_identities(proto, count)), expected)


def test_codes_with_a_scale_for_each_channel_are_not_followed(tmp_path):
    nodes = [helper.make_node("Gather", ["w", "i"], ["m"]), node("DequantizeLinear", ["m", "s"])]
    proto = model(nodes, {"w": integers(0, 9, 5, 4, dtype="u1"), "s": positive(4), "i": np.array([1])})

    assert find(tmp_path, proto) is None


# onnxruntime's packed weights


def pack(values: Array, bits: int) -> Array:
    """Pack codes of a few bits, the first in the lowest bits; each row begins at a new byte."""
    per_byte = 8 // bits
    padded = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, -values.shape[-1] % per_byte)])
    parts = padded.reshape(*padded.shape[:-1], -1, per_byte).astype("u1")
    return np.bitwise_or.reduce(parts << (np.arange(per_byte, dtype="u1") * np.uint8(bits)), axis=-1)


def nbits(bits: int, zero: str = "none", K: int = 40, N: int = 3, block: int = 16) -> onnx.ModelProto:  # noqa: N803
    blocks = -(-K // block)
    tensors: dict[str, Any] = {
        "w": pack(integers(0, 2**bits - 1, N, blocks * block), bits).reshape(N, blocks, -1),
        "s": positive(N, blocks),
    }
    if zero == "packed":
        tensors["z"] = pack(integers(0, 2**bits - 1, N, blocks), bits)
    elif zero == "float":
        tensors["z"] = positive(N, blocks)
    inputs = ["x", "w", "s", "z"] if zero != "none" else ["x", "w", "s"]
    attributes = {"K": K, "N": N, "bits": bits, "block_size": block}
    return model([node("MatMulNBits", inputs, **attributes)], tensors, {"x": np.eye(K, dtype="f4")})


@pytest.mark.time
@pytest.mark.parametrize(
    ("bits", "zero"),  # onnxruntime has float zero points only for 8 bits
    [
        (2, "none"),
        (2, "packed"),
        (2, "float"),
        (4, "none"),
        (4, "packed"),
        (4, "float"),
        (8, "none"),
        (8, "packed"),
    ],
)
@pytest.mark.parametrize("K", [32, 40, 48])
def test_matmul_nbits_holds_the_transposed_matrix(tmp_path, bits, zero, K):  # noqa: N803
    if bits == 2:
        skip_old_onnxruntime()
    proto = nbits(bits, zero, K)

    found = decode(tmp_path, proto)

    assert found.shape == (3, K)
    np.testing.assert_allclose(found.T, run(proto, {"x": np.eye(K, dtype="f4")}), rtol=1e-3, atol=1e-3)


@pytest.mark.time
@pytest.mark.parametrize("zero", ["none", "float"])  # grouped: onnxruntime 1.31 reads packed ones as 8-bit
def test_matmul_nbits_groups_may_be_in_any_order(tmp_path, zero):
    proto = nbits(4, zero, K=48)
    index = RNG.permutation(48).astype("i4") % 3
    proto.graph.initializer.append(numpy_helper.from_array(index, "g"))
    proto.graph.node[0].input.extend(["", "g"] if zero == "none" else ["g"])

    found = decode(tmp_path, proto)

    np.testing.assert_allclose(found.T, run(proto, {"x": np.eye(48, dtype="f4")}), rtol=1e-3, atol=1e-3)


def test_matmul_nbits_without_block_padding_decodes_by_hand(tmp_path):
    packed = np.array([[[0x21, 0x43]]], "u1")
    proto = model(
        [node("MatMulNBits", ["x", "w", "s"], K=4, N=1, block_size=16)],
        {"w": packed, "s": np.array([2], "f4")},
        {"x": ramp(1, 4)},
    )

    found = find(tmp_path, proto)

    assert found.array().tolist() == [[-14, -12, -10, -8]]  # (1, 2, 3, 4) - 8, times 2
    assert (found.is_blocked, found.numel, len(found.companions)) == (True, 4, 1)


GATHERED = {
    "uint8 of 2 bits": (2, TensorProto.UINT8),
    "uint8 of 4 bits": (4, TensorProto.UINT8),
    "uint8 of 8 bits": (8, TensorProto.UINT8),
    "int4": (4, TensorProto.INT4),
    "uint4": (4, TensorProto.UINT4),
}


@pytest.mark.time
@pytest.mark.parametrize("kind", GATHERED)
@pytest.mark.parametrize("has_zero", [False, True])
def test_gathered_blocks_are_a_table_in_few_bits(tmp_path, kind, has_zero):
    bits, dtype = GATHERED[kind]
    if dtype == TensorProto.UINT8 and (bits == 2 or (bits == 4 and has_zero)):
        skip_old_onnxruntime()
    low = -8 if dtype == TensorProto.INT4 else 0
    table, zeros = integers(low, low + 2**bits - 1, 6, 48), integers(low, low + 2**bits - 1, 6, 3)
    if dtype == TensorProto.UINT8:
        tensors = {"w": pack(table, bits), "z": pack(zeros, bits)}
    else:
        tensors = {
            name: helper.make_tensor(name, dtype, array.shape, array.reshape(-1).tolist())
            for name, array in (("w", table), ("z", zeros))
        }
    tensors["s"] = positive(6, 3)
    proto = model(
        [
            node(
                "GatherBlockQuantized",
                ["w", "i", "s", *(["z"] if has_zero else [])],
                block_size=16,
                bits=bits,
            )
        ],
        tensors,
        {"i": np.arange(6)},
    )

    found = decode(tmp_path, proto)

    np.testing.assert_allclose(found, run(proto, {"i": np.arange(6)}), rtol=1e-6)


@pytest.mark.time
def test_gathered_blocks_may_run_along_another_axis(tmp_path):
    table = integers(-8, 7, 32, 5)
    proto = model(
        [node("GatherBlockQuantized", ["w", "i", "s"], block_size=16, quantize_axis=0, gather_axis=1)],
        {
            "w": helper.make_tensor("w", TensorProto.INT4, [32, 5], table.reshape(-1).tolist()),
            "s": positive(2, 5),
        },
        {"i": np.arange(5)},
    )

    np.testing.assert_allclose(decode(tmp_path, proto), run(proto, {"i": np.arange(5)}), rtol=1e-6)


@pytest.mark.parametrize("shape", [(4, 1), (2, 2), (1, 3), (4,)])
def test_gathered_float_codes_with_too_few_scales_stand_for_themselves(tmp_path, shape):
    table = np.ones((4, 32), ml_dtypes.float8_e4m3fn)
    proto = model(
        [node("GatherBlockQuantized", ["w", "i", "s"], block_size=16)], {"w": table, "s": positive(*shape)}
    )

    assert find(tmp_path, proto) is None


def test_gathered_float_codes_may_share_a_scale_over_all_rows(tmp_path):
    table = (RNG.normal(size=(4, 32)) * 3).astype(ml_dtypes.float8_e4m3fn)
    scale = positive(1, 1)
    proto = model([node("GatherBlockQuantized", ["w", "i", "s"], block_size=0)], {"w": table, "s": scale})

    np.testing.assert_array_equal(decode(tmp_path, proto), table.astype("f4") * scale)


@pytest.mark.time
@pytest.mark.parametrize("kind", [0, 1], ids=["FP4", "NF4"])
@pytest.mark.parametrize(("K", "N"), [(32, 4), (24, 6), (33, 3)])
def test_bnb4_codes_are_levels_in_runs_of_a_block(tmp_path, kind, K, N):  # noqa: N803
    packed = integers(0, 255, (K * N + 1) // 2, dtype="u1")
    proto = model(
        [node("MatMulBnb4", ["x", "w", "s"], K=K, N=N, block_size=16, quant_type=kind)],
        {"w": packed, "s": positive(-(-K * N // 16))},
        {"x": np.eye(K, dtype="f4")},
    )

    found = decode(tmp_path, proto)

    assert found.shape == (N, K)
    np.testing.assert_allclose(found.T, run(proto, {"x": np.eye(K, dtype="f4")}), rtol=1e-5, atol=1e-6)


# integer products


@pytest.mark.time
@pytest.mark.parametrize("scales", [1, 5])
@pytest.mark.parametrize("dtype", ["i1", "u1"])
def test_dynamically_quantized_product(tmp_path, scales, dtype):
    x = {"x": np.eye(4, dtype="f4")}
    proto = model(
        [node("DynamicQuantizeMatMul", ["x", "w", "s", "z"])],
        {
            "w": integers(-90 if dtype == "i1" else 0, 90, 4, 5, dtype=dtype),
            "s": positive(scales),
            "z": integers(0, 9, scales, dtype=dtype),
        },
        x,
    )

    np.testing.assert_allclose(decode(tmp_path, proto), run(proto, x), rtol=1e-5, atol=1e-4)


@pytest.mark.time
@pytest.mark.parametrize("scales", [1, 5])
def test_integer_product_to_float(tmp_path, scales):
    x = {"x": np.eye(4, dtype="u1")}
    proto = model(
        [node("MatMulIntegerToFloat", ["x", "w", "one", "s", "", "z"])],
        {
            "w": integers(-90, 90, 4, 5, dtype="i1"),
            "one": np.float32(1),
            "s": positive(scales),
            "z": integers(-9, 9, scales, dtype="i1"),
        },
        x,
    )

    np.testing.assert_allclose(decode(tmp_path, proto), run(proto, x), rtol=1e-5)


@pytest.mark.time
@pytest.mark.parametrize("scales", [1, 5])
@pytest.mark.parametrize("name", ["w", "w_quantized"])
def test_integer_product_is_scaled_after_it(tmp_path, scales, name):
    x = {"x": np.eye(4, dtype="u1"), "a": np.ones(1, "f4")}
    nodes = [
        helper.make_node("MatMulInteger", ["x", name, "", "z"], ["p"]),
        helper.make_node("Cast", ["p"], ["c"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["a", "w_scale"], ["m"]),
        node("Mul", ["c", "m"]),
    ]
    proto = model(
        nodes,
        {
            name: integers(-90, 90, 4, 5, dtype="i1"),
            "w_scale": positive(scales),
            "z": integers(-9, 9, scales, dtype="i1"),
        },
        x,
    )

    np.testing.assert_allclose(decode(tmp_path, proto, name), run(proto, x), rtol=1e-5)


def test_integer_product_whose_scale_is_only_named(tmp_path):
    w = integers(-90, 90, 4, 5, dtype="i1")
    proto = model(
        [node("MatMulInteger", ["x", "w_quantized"])], {"w_quantized": w, "w_scale": np.float32(0.5)}
    )

    np.testing.assert_array_equal(decode(tmp_path, proto, "w_quantized"), w * np.float32(0.5))


def test_left_operand_of_an_integer_product_has_scales_for_its_rows(tmp_path):
    w = integers(-90, 90, 4, 5, dtype="i1")
    tensors = {"w_quantized": w, "w_scale": positive(4)}

    found = decode(tmp_path, model([node("MatMulInteger", ["w_quantized", "x"])], tensors), "w_quantized")

    np.testing.assert_array_equal(found, w * tensors["w_scale"][:, None])


def test_integer_convolution_is_scaled_after_it(tmp_path):
    w = integers(-90, 90, 3, 2, 1, 1, dtype="i1")
    nodes = [
        helper.make_node("ConvInteger", ["x", "w"], ["p"]),
        helper.make_node("Cast", ["p"], ["c"], to=TensorProto.FLOAT),
        node("Mul", ["c", "s"]),
    ]

    scale = positive(3)

    found = decode(tmp_path, model(nodes, {"w": w, "s": scale}))

    np.testing.assert_array_equal(found, w * scale.reshape(3, 1, 1, 1))


@pytest.mark.time
@pytest.mark.parametrize(
    ("names", "is_swapped"),
    [(("w", "v"), False), (("w_quantized", "v_quantized"), False), (("w_quantized", "v_quantized"), True)],
    ids=["by place", "by name", "by name at the other's place"],
)
def test_table_that_an_integer_product_reads_has_its_own_of_two_scales(tmp_path, names, is_swapped):
    table, weight = names
    x = {"i": np.arange(5)}
    scales = {"w_scale": np.float32(0.5), "v_scale": np.float32(0.25)}
    nodes = [
        helper.make_node("Mul", sorted(scales, reverse=not is_swapped), ["m"]),
        helper.make_node("Gather", [table, "i"], ["g"]),
        helper.make_node("MatMulInteger", ["g", weight, "z"], ["p"]),
        helper.make_node("Cast", ["p"], ["c"], to=TensorProto.FLOAT),
        node("Mul", ["c", "m"]),
    ]
    codes = {table: integers(0, 255, 5, 4, dtype="u1"), weight: integers(-60, 60, 4, 3, dtype="i1")}
    proto = model(nodes, {**codes, **scales, "z": np.uint8(7)}, x)

    left, right = decode(tmp_path, proto, table), decode(tmp_path, proto, weight)

    np.testing.assert_array_equal(left, (codes[table].astype("f4") - 7) * 0.5)
    np.testing.assert_array_equal(right, codes[weight] * np.float32(0.25))
    np.testing.assert_allclose(left @ right, run(proto, x), rtol=1e-5)


def test_table_that_an_integer_convolution_reads_is_followed_past_its_turn(tmp_path):
    nodes = [
        helper.make_node("Gather", ["w", "i"], ["g"]),
        helper.make_node("Transpose", ["g"], ["t"], perm=[0, 2, 1]),
        helper.make_node("ConvInteger", ["t", "v", "z"], ["p"]),
        helper.make_node("Cast", ["p"], ["c"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["s", "u"], ["m"]),
        node("Mul", ["c", "m"]),
    ]
    w, v, scales = integers(0, 255, 5, 4, dtype="u1"), integers(-60, 60, 3, 4, 1, dtype="i1"), positive(3)
    tensors = {"w": w, "v": v, "z": np.uint8(7), "s": np.float32(0.5), "u": scales, "i": np.array([[1, 2]])}
    proto = model(nodes, tensors)

    np.testing.assert_array_equal(decode(tmp_path, proto), (w.astype("f4") - 7) * 0.5)
    np.testing.assert_array_equal(decode(tmp_path, proto, "v"), v * scales.reshape(3, 1, 1))


@pytest.mark.parametrize("op", ["QLinearMatMul", "QLinearConv"])
def test_table_that_a_quantized_product_reads_has_its_scale_there(tmp_path, op):
    nodes = [
        helper.make_node("Gather", ["w", "i"], ["g"]),
        node(op, ["g", "s", "z", "v", "u", "t", "a", "b"]),
    ]
    w = integers(0, 255, 5, 4, dtype="u1")
    proto = model(nodes, {"w": w, "s": np.float32(0.5), "z": np.uint8(7), "i": np.array([[1, 2]])})

    np.testing.assert_array_equal(decode(tmp_path, proto), (w.astype("f4") - 7) * 0.5)


def test_one_number_for_both_operands_of_an_integer_product_is_the_scale_of_neither(tmp_path):
    nodes = [
        helper.make_node("Gather", ["w", "i"], ["g"]),
        helper.make_node("MatMulInteger", ["g", "v"], ["p"]),
        helper.make_node("Cast", ["p"], ["c"], to=TensorProto.FLOAT),
        node("Mul", ["c", "s"]),
    ]
    tensors = {
        "w": integers(0, 9, 5, 4, dtype="u1"),
        "v": integers(-9, 9, 4, 3, dtype="i1"),
        "s": np.float32(0.5),
    }
    proto = model(nodes, {**tensors, "i": np.array([1])})

    assert find(tmp_path, proto, "w") is None
    assert find(tmp_path, proto, "v") is None


@pytest.mark.time
@pytest.mark.parametrize(("scales", "is_left"), [(1, False), (5, False), (1, True)])
def test_quantized_product(tmp_path, scales, is_left):
    eye = np.eye(4, dtype="i1") if not is_left else np.eye(5, dtype="i1")
    ours, theirs = ["w", "s", "z"], ["x", "one", "none"]
    tensors = {
        "w": integers(-9, 9, 4, 5, dtype="i1"),
        "s": (2.0 ** integers(-1, 1, scales)).astype("f4"),
        "z": integers(-3, 3, scales, dtype="i1"),
        "one": np.float32(1),
        "none": np.int8(0),
        "half": np.float32(0.5),
    }
    if scales == 1:
        tensors |= {name: tensors[name].reshape(()) for name in "sz"}
    inputs = [*(ours if is_left else theirs), *(theirs if is_left else ours), "half", "none"]
    proto = model([node("QLinearMatMul", inputs)], tensors, {"x": eye})

    np.testing.assert_array_equal(decode(tmp_path, proto), run(proto, {"x": eye}) * 0.5)


@pytest.mark.time
@pytest.mark.parametrize("scales", [1, 3])
def test_quantized_convolution_and_its_bias(tmp_path, scales):
    tensors = {
        "w": integers(-9, 9, 3, 4, 1, 1, dtype="i1"),
        "s": (2.0 ** integers(-1, 1, scales)).astype("f4"),
        "z": np.zeros(scales, "i1"),
        "b": integers(-20, 20, 3, dtype="i4"),
        "two": np.float32(2),
        "none": np.int8(0),
        "half": np.float32(0.5),
    }
    x = np.zeros((2, 4, 4, 1), "i1")
    x[0, :, :, 0] = np.eye(4)  # the second of the batch has only the bias
    proto = model(
        [node("QLinearConv", ["x", "two", "none", "w", "s", "z", "half", "none", "b"])], tensors, {"x": x}
    )

    weight, bias = decode(tmp_path, proto), decode(tmp_path, proto, "b")

    found = run(proto, {"x": x})[..., 0] * 0.5
    np.testing.assert_array_equal(np.clip(bias, -64, 63.5), found[1, :, 0])
    np.testing.assert_array_equal(np.clip(2 * weight[..., 0, 0] + bias[:, None], -64, 63.5), found[0])


@pytest.mark.time
@pytest.mark.parametrize("scales", [1, 5])
@pytest.mark.parametrize("transposed", [0, 1])
def test_quantized_gemm_and_its_bias(tmp_path, scales, transposed):
    tensors = {
        "w": integers(-90, 90, *((5, 4) if transposed else (4, 5)), dtype="i1"),
        "s": positive(scales),
        "z": integers(-9, 9, scales, dtype="i1"),
        "b": integers(-90, 90, 5, dtype="i4"),
        "two": np.float32(2),
        "none": np.uint8(0),
    }
    if scales == 1:
        tensors |= {name: tensors[name].reshape(()) for name in "sz"}
    x = {"x": np.concatenate([np.eye(4), np.zeros((1, 4))]).astype("u1")}
    proto = model([node("QGemm", ["x", "two", "none", "w", "s", "z", "b"], transB=transposed)], tensors, x)

    weight, bias = decode(tmp_path, proto), decode(tmp_path, proto, "b")

    found = run(proto, x)
    np.testing.assert_allclose(bias, found[4], rtol=1e-6)
    np.testing.assert_allclose(
        2 * (weight.T if transposed else weight) + bias, found[:4], rtol=1e-5, atol=1e-5
    )


@pytest.mark.time
@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearConcat", "QLinearMul", "QLinearWhere"])
def test_codes_that_are_added_multiplied_joined_or_chosen(tmp_path, op, place):
    tensors = {
        "w": integers(0, 40, 5, dtype="u1"),
        "s": np.float32(0.5),
        "z": np.uint8(7),
        "one": np.float32(1),
        "none": np.uint8(0),
        "half": np.float32(0.25),
        "middle": np.uint8(100),
        "no": np.array([place == 0]),
    }
    x = np.full(5, op == "QLinearMul", "u1")
    ours, theirs = ["w", "s", "z"], ["x", "one", "none"]
    operands = [*theirs, *ours] if place else [*ours, *theirs]
    made = ["half", "middle"]
    inputs = {
        "QLinearConcat": [*made, *operands],
        "QLinearWhere": ["no", *operands, *made],
    }.get(op, [*operands, *made])
    axis = {"axis": 0} if op == "QLinearConcat" else {}
    proto = model([node(op, inputs, **axis)], tensors, {"x": x})

    found = (run(proto, {"x": x}).astype("f4") - 100) * 0.25

    np.testing.assert_array_equal(decode(tmp_path, proto), found[-5:] if place else found[:5])


@pytest.mark.time
@pytest.mark.parametrize("scales", [1, 24])
def test_quantized_attention_has_the_weights_of_a_float_one(tmp_path, scales):
    weights = {"w": integers(-20, 20, 8, 24, dtype="i1"), "b": ramp(24)}
    weights |= {"s": positive(scales) * np.float32(0.01), "z": integers(-3, 3, scales, dtype="i1")}
    weights |= {"one": np.float32(1), "none": np.uint8(0)}
    if scales == 1:
        weights |= {name: weights[name].reshape(()) for name in "sz"}
    x = integers(0, 3, 2, 5, 8, dtype="u1")
    proto = model(
        [node("QAttention", ["x", "w", "b", "one", "s", "", "none", "z"], num_heads=2)], weights, {"x": x}
    )

    found = decode(tmp_path, proto)

    inputs = {"x": x.astype("f4")}
    floats = helper.make_node("Attention", ["x", "w", "b"], ["y"], domain="com.microsoft", num_heads=2)
    expected = run(model([floats], {"w": found, "b": weights["b"]}, inputs), inputs)
    np.testing.assert_allclose(run(proto, {"x": x}), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.time
def test_quantized_embeddings_are_those_of_a_float_layer(tmp_path):
    shapes = {"words": (9, 8), "places": (6, 8), "kinds": (2, 8), "gamma": (8,), "beta": (8,)}
    tensors: dict[str, Any] = {name: integers(0, 255, *shape, dtype="u1") for name, shape in shapes.items()}
    tensors |= {f"{name}_s": np.float32(0.01 * (i + 1)) for i, name in enumerate(shapes)}
    tensors |= {f"{name}_z": np.uint8(100 + i) for i, name in enumerate(shapes)}
    x = {"i": integers(0, 8, 2, 6, dtype="i4"), "t": integers(0, 1, 2, 6, dtype="i4")}
    inputs = ["i", "t", *shapes, "", *(f"{name}_s" for name in shapes), *(f"{name}_z" for name in shapes)]
    proto = model([embedding("QEmbedLayerNormalization", inputs)], tensors, x)

    found = {name: decode(tmp_path, proto, name) for name in shapes}

    expected = run(model([embedding("EmbedLayerNormalization", ["i", "t", *shapes])], dict(found), x), x)
    np.testing.assert_allclose(run(proto, x), expected, rtol=1e-4, atol=1e-4)


def embedding(op: str, inputs: list[str]) -> onnx.NodeProto:
    return helper.make_node(op, inputs, ["y", "mask"], domain="com.microsoft", epsilon=1e-5)


@pytest.mark.time
@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("is_by_column", [False, True])
def test_dynamically_quantized_lstm_has_the_weights_of_a_float_one(tmp_path, directions, is_by_column):
    hidden, width = 4, 3
    count = (directions, 4 * hidden) if is_by_column else (directions,)
    tensors: dict[str, Any] = {
        # in 7 bits: CPUs without VNNI saturate a sum of two larger products
        "w": integers(-63, 63, directions, width, 4 * hidden, dtype="i1"),
        "r": integers(-63, 63, directions, hidden, 4 * hidden, dtype="i1"),
    }
    tensors |= {f"{name}s": (positive(*count) * 0.01).astype("f4") for name in "wr"}
    tensors |= {f"{name}z": np.zeros(count, "i1") for name in "wr"}
    x = {"x": integers(0, 1, 1, 9, width, dtype="f4"), "h": integers(0, 1, directions, 9, hidden, dtype="f4")}
    attributes = {"hidden_size": hidden, "direction": "bidirectional" if directions == 2 else "forward"}
    inputs = ["x", "w", "r", "", "", "h", "", "", "ws", "wz", "rs", "rz"]
    proto = model([node("DynamicQuantizeLSTM", inputs, **attributes)], tensors, x)

    w, r = decode(tmp_path, proto), decode(tmp_path, proto, "r")

    floats = {name: np.ascontiguousarray(array.transpose(0, 2, 1)) for name, array in (("w", w), ("r", r))}
    expected = run(model([node("LSTM", ["x", "w", "r", "", "", "h"], **attributes)], floats, x), x)
    np.testing.assert_allclose(run(proto, x), expected, atol=1e-5)


# decoding in parts


@pytest.mark.parametrize("band", [1, 4, 7, 64])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_bands_are_the_whole_whatever_their_size(tmp_path, monkeypatch, band, bits):
    proto = nbits(bits, "packed", K=23, N=5)
    whole = find(tmp_path, proto).array()

    monkeypatch.setattr(decoding, "_BAND", band)
    found = find(tmp_path, proto)

    assert max(values.size for values, _ in found.bands()) <= max(band, 1)
    np.testing.assert_array_equal(found.array(), whole)


def test_tiles_are_parts_of_the_matrix(tmp_path):
    found = find(tmp_path, nbits(4, "packed", K=23, N=5))
    whole, decoder = found.array(), found.open()

    for top, left in itertools.product(range(5), range(23)):
        values, steps = decoder.tile(slice(top, 5), slice(left, min(left + 6, 23)))
        np.testing.assert_array_equal(values.astype("f4"), whole[top:, left : left + 6])
        assert steps.shape == values.shape


# encodings that cannot be decoded


def dequantize(*inputs: str, stored: dict[str, Any], **attributes: Any) -> onnx.ModelProto:
    return model([node("DequantizeLinear", list(inputs), **attributes)], stored)


INT8 = np.arange(6, dtype="i1").reshape(2, 3)
INT4 = helper.make_tensor("w", TensorProto.INT4, [2, 3], [1, 2, 3, 4, 5, 6])
BROKEN = {
    "no scale": dequantize("w", stored={"w": INT8}),
    "scale left out": dequantize("w", "", stored={"w": INT8}),
    "scale is an input": dequantize("w", "s", stored={"w": INT8}),
    "scale that nothing provides": dequantize("w", "s", "z", stored={"w": INT8, "z": np.int8(0)}),
    "zero point that is computed": dequantize("w", "s", "z", stored={"w": INT8, "s": ramp(1)}),
    "too few scales": dequantize("w", "s", stored={"w": INT8, "s": ramp(2)}),
    "too many scales": dequantize("w", "s", stored={"w": INT8, "s": ramp(4)}),
    "no scales": dequantize("w", "s", stored={"w": INT8, "s": np.empty(0, "f4")}),
    "scales that are no numbers": dequantize("w", "s", stored={"w": INT8, "s": np.array(["a"], object)}),
    "scales that are complex": dequantize("w", "s", stored={"w": INT8, "s": np.ones(1, "c8")}),
    "scales that are integers": dequantize("w", "s", stored={"w": INT8, "s": np.ones(1, "i8")}),
    "too few zero points": dequantize(
        "w", "s", "z", stored={"w": INT8, "s": ramp(3), "z": np.zeros(2, "i1")}
    ),
    "zero points that are no numbers": dequantize(
        "w", "s", "z", stored={"w": INT8, "s": ramp(1), "z": np.array(["a"], object)}
    ),
    "axis out of range": dequantize("w", "s", stored={"w": INT8, "s": ramp(3)}, axis=2),
    "negative axis out of range": dequantize("w", "s", stored={"w": INT8, "s": ramp(3)}, axis=-3),
    "blocks of another rank": dequantize("w", "s", stored={"w": INT8, "s": ramp(4)}, axis=1, block_size=2),
    "blocks of another size": dequantize("w", "s", stored={"w": INT8, "s": ramp(2, 3)}, axis=1, block_size=2),
    "a custom operator": model(
        [helper.make_node("DequantizeLinear", ["w", "s"], ["y"], domain="my.own")], {"w": INT8, "s": ramp(1)}
    ),
    "a float": dequantize("w", "s", stored={"w": ramp(2, 3), "s": ramp(1)}),
    "nothing reads it": model([node("Relu", ["x"])], {"w": INT8}),
    "an integer product without a scale": model([node("MatMulInteger", ["x", "w"])], {"w": INT8}),
    "an integer product with too many": model(
        [
            helper.make_node("MatMulInteger", ["x", "w"], ["p"]),
            helper.make_node("Cast", ["p"], ["c"], to=1),
            node("Mul", ["c", "s"]),
        ],
        {"w": INT8, "s": ramp(7)},
    ),
    "a bias of two dimensions": model(
        [node("QGemm", ["x", "s", "", "x", "s", "", "w"])], {"w": np.ones((1, 3), "i4"), "s": ramp(1)}
    ),
    "a bias whose scales are both vectors": model(
        [node("QGemm", ["x", "s", "", "x", "s", "", "w"])], {"w": np.ones(3, "i4"), "s": ramp(3)}
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_cannot_be_decoded_stands_for_itself(tmp_path, case):
    assert find(tmp_path, BROKEN[case]) is None


def packed(op: str, slots: list[str], tensors: dict[str, Any], **attributes: Any) -> onnx.ModelProto:
    return model([node(op, slots, **attributes)], tensors)


BYTES = np.arange(32, dtype="u1").reshape(2, 1, 16)  # 2 x 32 codes of 4 bits
NBITS = {"K": 32, "N": 2, "bits": 4, "block_size": 32}
UNFIT = {
    "more than the bytes hold": {"K": 33, "N": 2},
    "very many more": {"K": 2**40, "N": 2**40},
    "none": {"K": 0, "N": 2},
    "less than none": {"K": -32, "N": -2},
    "unknown bits": {"bits": 5},
    "no bits": {"bits": 0},
    "no block": {"block_size": 0},
    "a negative block": {"block_size": -16},
}


@pytest.mark.parametrize("case", UNFIT)
def test_packed_weights_of_sizes_that_do_not_fit_stand_for_themselves(tmp_path, case):
    attributes = NBITS | UNFIT[case]
    proto = packed("MatMulNBits", ["x", "w", "s"], {"w": BYTES, "s": ramp(2, 1)}, **attributes)

    assert find(tmp_path, proto) is None
    assert (
        find(
            tmp_path,
            packed("MatMulBnb4", ["x", "w", "s"], {"w": BYTES.reshape(-1), "s": ramp(2)}, **attributes),
        )
        is None
    )


@pytest.mark.parametrize(
    ("slots", "tensors"),
    [
        (["x", "w"], {}),
        (["x", "w", "s"], {"s": ramp(3)}),
        (["x", "w", "s", "z"], {"s": ramp(2, 1), "z": np.zeros(1, "u1")}),
        (["x", "w", "s", "z"], {"s": ramp(2, 1)}),
        (["x", "w", "s", "", "g"], {"s": ramp(2, 1)}),
        (["x", "w", "s", "", "g"], {"s": ramp(2, 1), "g": np.zeros(31, "i4")}),
        (["x", "w", "s", "", "g"], {"s": ramp(2, 1), "g": np.zeros(32, "f4")}),
    ],
    ids=[
        "no scale",
        "scales",
        "few zeros",
        "computed zeros",
        "computed groups",
        "few groups",
        "float groups",
    ],
)
def test_packed_weights_without_what_decodes_them_stand_for_themselves(tmp_path, slots, tensors):
    assert find(tmp_path, packed("MatMulNBits", slots, {"w": BYTES, **tensors}, **NBITS)) is None


@pytest.mark.parametrize("index", [-1, 1])
def test_groups_out_of_range_give_no_numbers(tmp_path, index):
    groups = np.full(32, index, "i4")
    proto = packed(
        "MatMulNBits", ["x", "w", "s", "", "g"], {"w": BYTES, "s": ramp(2, 1), "g": groups}, **NBITS
    )

    found = find(tmp_path, proto)

    assert (found.at(np.arange(3)), found.array(), list(found.bands())) == (None, None, [])


@pytest.mark.parametrize(
    "attributes",
    [
        {"quantize_axis": 2},
        {"quantize_axis": -3},
        {"block_size": -1},
        {"block_size": 8},
        {"bits": 3},
        {"bits": 0},
    ],
)
def test_gathered_blocks_that_do_not_fit_stand_for_themselves(tmp_path, attributes):
    tensors = {"w": BYTES.reshape(2, 16), "s": ramp(2, 2)}
    fitting = {"block_size": 16}

    assert find(tmp_path, packed("GatherBlockQuantized", ["w", "i", "s"], tensors, **fitting)) is not None
    assert (
        find(tmp_path, packed("GatherBlockQuantized", ["w", "i", "s"], tensors, **fitting | attributes))
        is None
    )


@pytest.mark.parametrize("absent", ["w", "s", "z"])
def test_elements_that_cannot_be_had_give_no_numbers(tmp_path, absent):
    kinds = {"w": (TensorProto.INT8, [2, 3]), "s": (TensorProto.FLOAT, [3]), "z": (TensorProto.INT8, [3])}
    stored = {"w": INT8, "s": ramp(3), "z": np.zeros(3, "i1")}
    dtype, dims = kinds[absent]
    stored[absent] = external(absent, dims, dtype, location="absent.bin")

    found = find(tmp_path, dequantize("w", "s", "z", stored=stored))

    assert (found.at(np.arange(3)), found.array(), list(found.bands())) == (None, None, [])


def test_dims_that_claim_what_is_not_there_take_no_memory(tmp_path):
    huge = raw("w", [2**40, 3], TensorProto.INT8, bytes(6))

    found = find(tmp_path, dequantize("w", "s", stored={"w": huge, "s": ramp(3)}))

    assert found is None or (found.at(np.arange(3)), found.array()) == (None, None)


def test_dims_beyond_what_can_be_counted_give_no_numbers(tmp_path):
    endless = raw("w", [2**62, 0, 48], TensorProto.INT8, b"")

    found = find(tmp_path, dequantize("w", "s", stored={"w": endless, "s": ramp(1)}))

    assert found is None or found.array() is None


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_scales_that_are_no_numbers_warn_of_nothing(tmp_path, number):
    found = find(tmp_path, dequantize("w", "s", stored={"w": INT8, "s": np.array([number], "f4")}))

    values, _ = found.at(np.arange(6))

    assert not np.isfinite(values[1:]).any()


def test_sparse_codes_stand_for_themselves(tmp_path):
    proto = dequantize("w", "s", stored={"s": ramp(1)})
    values = numpy_helper.from_array(np.array([1, 2], "i1"), "w")
    proto.graph.sparse_initializer.append(
        helper.make_sparse_tensor(values, numpy_helper.from_array(np.array([0, 3])), [2, 3])
    )

    assert find(tmp_path, proto) is None


# number of elements


@pytest.mark.parametrize(
    ("op", "slot", "shape", "attributes", "expected"),
    [
        ("MatMulNBits", 1, (2, 1, 16), NBITS, 64),
        ("MatMulNBits", 1, (2, 2, 16), NBITS | {"K": 33}, 66),
        ("MatMulNBits", 1, (2, 1, 16), NBITS | {"K": 33}, 32),
        ("MatMulNBits", 1, (2, 1, 16), {"K": 32, "N": 2}, 64),
        ("MatMulNBits", 2, (2, 1, 16), NBITS, 32),
        ("MatMulBnb4", 1, (32,), {"K": 32, "N": 2, "block_size": 16, "quant_type": 1}, 64),
        ("GatherBlockQuantized", 0, (4, 8), {}, 64),
        ("GatherBlockQuantized", 0, (4, 8), {"bits": 8}, 32),
        ("GatherBlockQuantized", 0, (4, 8), {"bits": 3}, 32),
        ("QMoE", 2, (2, 4, 8), {}, 128),
        ("QMoE", 5, (2, 4, 8), {"expert_weight_bits": 8}, 64),
        ("QMoE", 8, (2, 4, 8), {"expert_weight_bits": 8, "fc3_expert_weight_bits": 2}, 256),
    ],
)
def test_packed_bytes_count_the_elements_that_they_stand_for(tmp_path, op, slot, shape, attributes, expected):
    inputs = ["w" if index == slot else "x" for index in range(9)]
    read = read_model(save(tmp_path, packed(op, inputs, {"w": np.zeros(shape, "u1")}, **attributes)))

    assert logical_numel(stored(read), connect(read)) == expected


def test_other_domains_operators_pack_nothing(tmp_path):
    custom = helper.make_node("MatMulNBits", ["x", "w"], ["y"], domain="my.own", **NBITS)
    read = read_model(save(tmp_path, model([custom], {"w": BYTES})))

    assert logical_numel(stored(read), connect(read)) == 32


# experts


@pytest.mark.usefixtures("newer_runtime")
@pytest.mark.parametrize(
    ("bits", "block", "has_zeros"),
    [*itertools.product((4, 8), (0, 16), (False, True)), (2, 16, False), (2, 16, True)],
)
def test_the_experts_of_qmoe_are_what_onnxruntime_computes_with(tmp_path, bits, block, has_zeros):
    experts, hidden, inner = 3, 32, 48
    stored: dict[str, Array] = {}
    for slot, (rows, columns) in enumerate([(2 * inner, hidden), (hidden, inner)], 1):
        blocks = columns // block if block else 1
        stored[f"w{slot}"] = RNG.integers(0, 256, (experts, rows, columns * bits // 8), dtype="u1")
        scales = (experts, rows, blocks) if block else (experts, rows)
        stored[f"s{slot}"] = RNG.uniform(0.01, 0.02, scales).astype("f4")
        if has_zeros:
            packed = (experts, rows, -(-blocks * bits // 8)) if block else (experts, -(-rows * bits // 8))
            stored[f"z{slot}"] = RNG.integers(0, 256, packed, dtype="u1")
    inputs = ["x", "router", "w1", "s1", "", "w2", "s2", "", "", "", "", *(["z1", "z2"] if has_zeros else [])]
    feeds = {
        "x": RNG.standard_normal((6, hidden)).astype("f4"),
        "router": 60 * np.eye(experts, dtype="f4")[[0, 1, 2, 0, 1, 2]],
    }
    attributes = {"k": 1, "expert_weight_bits": bits, "activation_type": "swiglu", "swiglu_fusion": 1}
    attributes |= {"activation_alpha": 1.5, "activation_beta": 0.5} | ({"block_size": block} if block else {})
    proto = model([node("QMoE", inputs, **attributes)], stored, feeds)

    first, second = (decode(tmp_path, proto, f"w{slot}") for slot in (1, 2))

    expected = []
    for token, x in enumerate(feeds["x"]):
        gate, linear = (first[token % experts] @ x).reshape(-1, 2).T
        expected.append(second[token % experts] @ (gate / (1 + np.exp(-1.5 * gate)) * (linear + 0.5)))
    error = np.linalg.norm(run(proto, feeds) - expected) / np.linalg.norm(expected)
    assert error < (0.02 if (bits, block) == (8, 16) else 1e-5)  # only these round activations too


@pytest.mark.parametrize(
    ("attributes", "dtype"),
    [
        ({"weights_prepacked": 1}, "u1"),
        ({"quant_type": "fp4"}, "u1"),
        ({"expert_weight_bits": 3}, "u1"),
        ({}, "i1"),
    ],
)
def test_experts_in_another_order_or_of_no_integers_are_not_decoded(tmp_path, attributes, dtype):
    stored = {"w": np.ones((2, 4, 8), dtype), "s": np.ones((2, 4), "f4")}

    assert find(tmp_path, model([node("QMoE", ["x", "r", "w", "s"], **attributes)], stored)) is None


def test_experts_with_scales_that_do_not_fit_are_not_decoded(tmp_path):
    for scales in ((2, 3), (2, 4, 2), (4,)):
        stored = {"w": np.ones((2, 4, 8), "u1"), "s": np.ones(scales, "f4")}
        assert find(tmp_path, model([node("QMoE", ["x", "r", "w", "s"])], stored)) is None
