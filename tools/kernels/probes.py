"""Models of one node behind a Transpose, one for each operator and input: they show which memory a node may reuse."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx
from onnx import TensorProto, helper

__all__ = ["Probe", "build", "probes"]

MICROSOFT, BLOCKED = "com.microsoft", "com.microsoft.nchwc"

_FLOAT, _INT, _BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
_SQUARE = (2, 4, 8, 8)
_SHAPES: tuple[tuple[int, ...], ...] = (_SQUARE, (8, 8))


@dataclass(frozen=True, slots=True)
class Probe:
    """A node: its operator, the types and shapes of its inputs, its attributes, and the number of its outputs."""

    op_type: str
    inputs: tuple[tuple[int, tuple[int, ...]] | None, ...]
    """Element type and shape of each input; None if it is left out."""

    domain: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    outputs: int = 1
    constants: Mapping[int, Sequence[float]] = field(default_factory=dict)
    """Stored inputs, with their values."""


def build(probe: Probe, opset: int, watched: int, *, read_later: bool) -> bytes:
    """Return a model in which a Transpose makes the watched input, and no other input has memory to reuse.

    Args:
        probe: the node.
            opset: version of ONNX's own operators.
            watched: the input whose memory may be taken.
            read_later: whether another node reads that input after the probe, so that only an alias takes its memory.
    """
    graph_inputs, stored, names, nodes = [], [], [], []
    for number, each in enumerate(probe.inputs):
        names.append("" if each is None else "watched" if number == watched else f"x{number}")
        if each is None:
            continue
        kind, shape = each
        if number in probe.constants:
            stored.append(helper.make_tensor(f"x{number}", kind, shape, list(probe.constants[number])))
            continue
        graph_inputs.append(helper.make_tensor_value_info(f"x{number}", kind, shape))
        if number == watched:
            perm = list(range(len(shape)))
            nodes.append(helper.make_node("Transpose", [f"x{number}"], ["watched"], name="before", perm=perm))
    node_outputs = [f"y{number}" for number in range(probe.outputs)]
    output_names = [f"z{number}" for number in range(probe.outputs)]
    if read_later:  # the first of the nodes whose outputs no node reads runs last
        nodes.append(helper.make_node("Shape", ["watched"], ["later"], name="later"))
        output_names.append("later")
    nodes.append(
        helper.make_node(
            probe.op_type, names, node_outputs, name="probe", domain=probe.domain, **probe.attributes
        )
    )
    nodes += [helper.make_node("Shape", [y], [z]) for y, z in zip(node_outputs, output_names, strict=False)]
    outputs = [helper.make_tensor_value_info(name, TensorProto.INT64, None) for name in output_names]
    graph = helper.make_graph(nodes, "probe", graph_inputs, outputs, stored)
    imports = [
        helper.make_opsetid("", opset),
        *(helper.make_opsetid(domain, 1) for domain in (MICROSOFT, BLOCKED)),
    ]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    return bytes(model.SerializeToString())


def probes() -> Iterator[Probe]:
    """Yield a probe with equal inputs for each ONNX operator, and hand-written ones for those that need others."""
    for schema in onnx.defs.get_all_schemas():
        if schema.domain != "" or schema.deprecated:
            continue
        count = max(schema.min_input, 1)
        for kind in (_FLOAT, _INT, _BOOL):
            for shape in _SHAPES:
                yield Probe(schema.name, ((kind, shape),) * count, outputs=max(schema.min_output, 1))
                if count == 1 and schema.max_input > 1:
                    yield Probe(schema.name, ((kind, shape),) * 2, outputs=max(schema.min_output, 1))
    yield from _BY_HAND
    yield from _CONTRIBUTED


_VECTOR = (_FLOAT, (4,))
_BY_HAND = (
    Probe("Cast", ((_FLOAT, _SQUARE),), attributes={"to": TensorProto.INT32}),
    Probe("Cast", ((_FLOAT, _SQUARE),), attributes={"to": TensorProto.FLOAT}),
    Probe("BatchNormalization", ((_FLOAT, _SQUARE), _VECTOR, _VECTOR, _VECTOR, _VECTOR)),
    Probe("InstanceNormalization", ((_FLOAT, _SQUARE), _VECTOR, _VECTOR)),
    Probe("LayerNormalization", ((_FLOAT, _SQUARE), (_FLOAT, (8,)), (_FLOAT, (8,)))),
    Probe("Clip", ((_FLOAT, _SQUARE), (_FLOAT, ()), (_FLOAT, ()))),
    Probe("Where", ((_BOOL, _SQUARE), (_FLOAT, _SQUARE), (_FLOAT, _SQUARE))),
    Probe("PRelu", ((_FLOAT, _SQUARE), (_FLOAT, _SQUARE))),
    Probe("Add", ((_FLOAT, _SQUARE), (_FLOAT, ()))),
    Probe("Mul", ((_FLOAT, _SQUARE), (_FLOAT, ()))),
    Probe("Reshape", ((_FLOAT, _SQUARE), (_INT, (2,))), constants={1: (8, -1)}),
    Probe("Squeeze", ((_FLOAT, (1, 8, 8)), (_INT, (1,))), constants={1: (0,)}),
    Probe("Unsqueeze", ((_FLOAT, (8, 8)), (_INT, (1,))), constants={1: (0,)}),
    Probe("Expand", ((_FLOAT, (8, 8)), (_INT, (2,))), constants={1: (8, 8)}),
    Probe("Tile", ((_FLOAT, (8, 8)), (_INT, (2,))), constants={1: (1, 1)}),
    Probe("Slice", ((_FLOAT, (8, 8)), (_INT, (1,)), (_INT, (1,))), constants={1: (0,), 2: (8,)}),
    Probe("Pad", ((_FLOAT, (8, 8)), (_INT, (4,))), constants={1: (0, 0, 0, 0)}),
    Probe("Gather", ((_FLOAT, (8, 8)), (_INT, (8,))), constants={1: tuple(range(8))}),
    Probe("CumSum", ((_FLOAT, (8, 8)), (_INT, ())), constants={1: (0,)}),
    Probe("Trilu", ((_FLOAT, (8, 8)), (_INT, ())), constants={1: (0,)}),
    Probe("ScatterND", ((_FLOAT, (8, 8)), (_INT, (8, 1)), (_FLOAT, (8, 8))), constants={1: tuple(range(8))}),
    Probe(
        "ScatterElements",
        ((_FLOAT, (8, 8)), (_INT, (1, 8)), (_FLOAT, (1, 8))),
        constants={1: (0,) * 8},
    ),
    Probe("Dropout", ((_FLOAT, _SQUARE),)),
    Probe("Conv", ((_FLOAT, _SQUARE), (_FLOAT, (4, 4, 1, 1)))),
    Probe("MatMul", ((_FLOAT, (8, 8)), (_FLOAT, (8, 8)))),
    Probe("Gemm", ((_FLOAT, (8, 8)), (_FLOAT, (8, 8)), (_FLOAT, (8, 8)))),
    Probe("Concat", ((_FLOAT, (8, 8)),), attributes={"axis": 0}),
    Probe("Split", ((_FLOAT, (8, 8)),), attributes={"num_outputs": 1}),
    Probe("MaxPool", ((_FLOAT, _SQUARE),), attributes={"kernel_shape": [1, 1]}),
    Probe("AveragePool", ((_FLOAT, _SQUARE),), attributes={"kernel_shape": [1, 1]}),
    Probe("LpNormalization", ((_FLOAT, _SQUARE),)),
    Probe("LRN", ((_FLOAT, _SQUARE),), attributes={"size": 1}),
    Probe("BitShift", ((TensorProto.UINT8, _SQUARE),) * 2, attributes={"direction": "LEFT"}),
    Probe("Mod", ((_FLOAT, _SQUARE),) * 2, attributes={"fmod": 1}),
    Probe("QuantizeLinear", ((_FLOAT, _SQUARE), (_FLOAT, ()))),
    Probe("DequantizeLinear", ((TensorProto.INT32, _SQUARE), (_FLOAT, ()))),
    Probe("Resize", ((_FLOAT, _SQUARE), None, (_FLOAT, (4,))), constants={2: (1, 1, 1, 1)}),
    Probe("TopK", ((_FLOAT, (8, 8)), (_INT, (1,))), outputs=2, constants={1: (2,)}),
    Probe("GatherElements", ((_FLOAT, (8, 8)), (_INT, (8, 8))), constants={1: (0,) * 64}),
    Probe("GatherND", ((_FLOAT, (8, 8)), (_INT, (8, 1))), constants={1: tuple(range(8))}),
    Probe("OneHot", ((_INT, (8,)), (_INT, ()), (_FLOAT, (2,))), constants={1: (8,)}),
    Probe("DepthToSpace", ((_FLOAT, _SQUARE),), attributes={"blocksize": 2}),
    Probe("SpaceToDepth", ((_FLOAT, _SQUARE),), attributes={"blocksize": 2}),
    Probe("Einsum", ((_FLOAT, (8, 8)), (_FLOAT, (8, 8))), attributes={"equation": "ij,jk->ik"}),
    Probe("GridSample", ((_FLOAT, _SQUARE), (_FLOAT, (2, 8, 8, 2)))),
    Probe(
        "GRU",
        ((_FLOAT, (3, 2, 8)), (_FLOAT, (1, 12, 8)), (_FLOAT, (1, 12, 4))),
        attributes={"hidden_size": 4},
    ),
    Probe(
        "LSTM",
        ((_FLOAT, (3, 2, 8)), (_FLOAT, (1, 16, 8)), (_FLOAT, (1, 16, 4))),
        attributes={"hidden_size": 4},
    ),
    Probe(
        "RNN", ((_FLOAT, (3, 2, 8)), (_FLOAT, (1, 4, 8)), (_FLOAT, (1, 4, 4))), attributes={"hidden_size": 4}
    ),
    Probe("RoiAlign", ((_FLOAT, _SQUARE), (_FLOAT, (2, 4)), (_INT, (2,))), constants={2: (0, 1)}),
    Probe("ReverseSequence", ((_FLOAT, (8, 8)), (_INT, (8,))), constants={1: (8,) * 8}),
    Probe("Range", ((_FLOAT, ()), (_FLOAT, ()), (_FLOAT, ())), constants={0: (0,), 1: (4,)}),
    Probe("GroupNormalization", ((_FLOAT, _SQUARE), _VECTOR, _VECTOR), attributes={"num_groups": 2}),
    Probe("Attention", ((_FLOAT, (2, 4, 8, 8)),) * 3),
)
_HIDDEN = (_FLOAT, (2, 4, 8))
_OF_HIDDEN = (_FLOAT, (8,))
_CONTRIBUTED = (
    Probe("Gelu", (_HIDDEN,), MICROSOFT),
    Probe("FastGelu", (_HIDDEN, _OF_HIDDEN), MICROSOFT),
    Probe("QuickGelu", (_HIDDEN,), MICROSOFT),
    Probe("BiasGelu", (_HIDDEN, _OF_HIDDEN), MICROSOFT),
    Probe("SkipLayerNormalization", (_HIDDEN, _HIDDEN, _OF_HIDDEN), MICROSOFT),
    Probe("SkipSimplifiedLayerNormalization", (_HIDDEN, _HIDDEN, _OF_HIDDEN), MICROSOFT),
    Probe("SimplifiedLayerNormalization", (_HIDDEN, _OF_HIDDEN), ""),
    Probe("FusedMatMul", ((_FLOAT, (8, 8)), (_FLOAT, (8, 8))), MICROSOFT),
    Probe("FusedGemm", ((_FLOAT, (8, 8)), (_FLOAT, (8, 8)), (_FLOAT, (8, 8))), MICROSOFT),
    Probe(
        "FusedConv",
        ((_FLOAT, _SQUARE), (_FLOAT, (4, 4, 1, 1)), _VECTOR, (_FLOAT, _SQUARE)),
        MICROSOFT,
        {"activation": "Relu"},
    ),
    Probe(
        "MatMulNBits",
        ((_FLOAT, (2, 32)), (TensorProto.UINT8, (8, 1, 16)), (_FLOAT, (8,))),
        MICROSOFT,
        {"K": 32, "N": 8, "bits": 4, "block_size": 32},
        constants={1: (0,) * 128},
    ),
    Probe(
        "Attention",
        (_HIDDEN, (_FLOAT, (8, 24)), (_FLOAT, (24,))),
        MICROSOFT,
        {"num_heads": 2},
    ),
    Probe("MultiHeadAttention", (_HIDDEN, _HIDDEN, _HIDDEN), MICROSOFT, {"num_heads": 2}),
    Probe(
        "EmbedLayerNormalization",
        ((TensorProto.INT32, (2, 4)), None, (_FLOAT, (9, 8)), (_FLOAT, (9, 8)), None, _OF_HIDDEN, _OF_HIDDEN),
        MICROSOFT,
        outputs=2,
    ),
    Probe(
        "RotaryEmbedding",
        (_HIDDEN, (_INT, (2, 4)), (_FLOAT, (9, 2)), (_FLOAT, (9, 2))),
        MICROSOFT,
        {"num_heads": 2},
        constants={1: (0,) * 8},
    ),
    Probe("NhwcMaxPool", ((TensorProto.INT8, _SQUARE),), MICROSOFT, {"kernel_shape": [1, 1]}),
    Probe("ReorderInput", ((_FLOAT, (1, 16, 4, 4)),), BLOCKED),
    Probe(
        "Conv",
        ((_FLOAT, (1, 16, 4, 4)), (_FLOAT, (16, 16, 1, 1)), (_FLOAT, (16,)), (_FLOAT, (1, 16, 4, 4))),
        BLOCKED,
        {"kernel_shape": [1, 1]},
        constants={1: (0.0,) * 256, 2: (0.0,) * 16},
    ),
    Probe(
        "GroupQueryAttention",
        (
            (_FLOAT, (1, 1, 32)),
            (_FLOAT, (1, 1, 16)),
            (_FLOAT, (1, 1, 16)),
            (_FLOAT, (1, 2, 4, 8)),
            (_FLOAT, (1, 2, 4, 8)),
            (TensorProto.INT32, (1, 1)),
            (TensorProto.INT32, ()),
        ),
        MICROSOFT,
        {"num_heads": 4, "kv_num_heads": 2},
        outputs=3,
        constants={5: (3,), 6: (4,)},
    ),
)
