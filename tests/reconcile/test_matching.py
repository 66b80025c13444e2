"""Lines decided by names, by content, or by shapes and order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from models import (
    FX_NODE,
    Floats,
    as_it_stands,
    bridge_of,
    buffer,
    dynamo_like,
    lines_of,
    manifest_of,
    noise,
    outs,
    packed,
    parameter,
    parameters_of,
    quantized,
    ramp,
    reconcile,
    text_model,
)

from analyzer.model.content import Array
from analyzer.reconciliation import Piece, Reconciliation

FC = ramp(2, 3)
ZEROS = np.zeros(3, "f4")


def legacy(stored: np.ndarray, node: str = "/fc/MatMul"):
    return text_model(
        f'g (float[1,3] x) => (float[1,2] y) {{ ["{node}"] y = MatMul(x, "onnx::MatMul_9") }}',
        {"onnx::MatMul_9": stored},
    )


def biases(stored: dict[str, np.ndarray], *nodes: tuple[str, str]):
    """Return a model whose named nodes add a stored bias to a linear operator's output."""
    lines = [f'["{name}"] y{i} = Gemm(x, x, "{bias}")' for i, (name, bias) in enumerate(nodes)]
    return text_model(f"g (float[3,3] x) => ({outs(len(nodes))}) {{ {' '.join(lines)} }}", stored)


@pytest.mark.parametrize("content", ["sampled", "full"])
@pytest.mark.parametrize(
    ("stored", "line"), [(FC, "renamed"), (FC.T.copy(), "transposed"), (ramp(3, 3).T.copy(), "transposed")]
)
def test_nameless_tensor_is_known_by_its_content(tmp_path, content, stored, line):
    weight = stored if line == "renamed" else stored.T.copy()

    result = reconcile(tmp_path, legacy(stored), manifest_of(parameter("fc.weight", weight)), content)

    assert bridge_of(result) == {line: (1, weight.size, 0, 0)}
    assert result.parameters[0].decided_by == ("sampled" if content == "sampled" else "content")


@pytest.mark.parametrize("narrow", [True, False], ids=["float16", "codes"])
def test_a_table_of_indices_of_the_same_shape_hides_no_narrower_weight(tmp_path, narrow):
    weight, places = noise(4, 4), np.arange(16).reshape(4, 4)
    text = """g (float[1,4] x) => (float[1,4] y) {
        w = %s y = MatMul(x, w) i = Gather("bias", "index") s = Shape(i)
    }"""
    table = {"bias": noise(16, seed=3), "index": places}
    if narrow:
        stored = {"onnx::MatMul_9": weight.T.astype("f2")}
        proto = text_model(text % 'Cast<to=1>("onnx::MatMul_9")', stored | table)
    else:
        codes = quantized("onnx::MatMul_9", weight.T.copy())
        decode = ", ".join(f'"{name}"' for name in codes)
        proto = text_model(text % f"DequantizeLinear({decode})", codes | table)
    known = [parameter("fc.weight", weight), parameter("bias", noise(16, seed=3)), buffer("index", places)]
    result = reconcile(tmp_path, proto, manifest_of(*known), "full")

    assert lines_of(result)["fc.weight"] == ("cast" if narrow else "quantized")


def test_nameless_tensor_in_another_shape_is_reshaped(tmp_path):
    result = reconcile(tmp_path, legacy(FC), manifest_of(parameter("fc.weight", FC.reshape(1, 6))))

    assert bridge_of(result) == {"reshaped": (1, 6, 0, 0)}


def test_sampled_content_in_another_shape_proves_nothing_without_a_name(tmp_path):
    result = reconcile(tmp_path, legacy(FC), manifest_of(parameter("fc.weight", FC.reshape(1, 6))), "sampled")

    assert lines_of(result) == {"fc.weight": "missing"}


def test_nameless_tensor_of_a_buffers_content_is_that_buffer(tmp_path):
    proto = text_model("g (float[3] x) => (float[3] y) { y = Add(x, val_1) }", {"val_1": ramp(3)})

    result = reconcile(tmp_path, proto, manifest_of(buffer("rotary.inv_freq", ramp(3))))

    assert bridge_of(result) == {"buffer": (1, 3, 0, 3)}


def test_of_equal_contents_each_goes_to_the_module_that_reads_it(tmp_path):
    proto = text_model(
        'g (float[3,3] x) => (float[3,3] y) { ["/b/MatMul"] h = MatMul(x, v1) ["/a/MatMul"] y = MatMul(h, v2) }',
        {"v1": ramp(3, 3), "v2": ramp(3, 3)},
    )
    manifest = manifest_of(*parameters_of({"a.weight": ramp(3, 3), "b.weight": ramp(3, 3)}))

    result = reconcile(tmp_path, proto, manifest)

    assert {p.name: p.entries for p in result.parameters} == {
        "a.weight": (((), "v2"),),
        "b.weight": (((), "v1"),),
    }
    assert bridge_of(result) == {"renamed": (2, 18, 0, 0)}


def test_one_element_proves_nothing(tmp_path):
    proto = text_model("g (float[3] x) => (float[3] y) { h = PRelu(x, v) y = Relu(h) }", {"v": ramp(1)})

    result = reconcile(tmp_path, proto, manifest_of(parameter("act.alpha", ramp(1))))

    assert lines_of(result) == {"act.alpha": "missing"}


# without contents


@pytest.mark.parametrize("shape", [(3, 2), (3, 3)])
def test_weight_that_a_modules_product_reads_is_its_weight_where_contents_are_not_compared(tmp_path, shape):
    weight = ramp(*shape[::-1])

    result = reconcile(tmp_path, legacy(weight.T.copy()), manifest_of(parameter("fc.weight", weight)), "none")

    assert bridge_of(result) == {"transposed": (1, weight.size, 0, 0)}
    assert result.parameters[0].decided_by == "structure:reader-module+shape"


def test_weight_of_a_model_without_weights_is_matched_by_its_module(tmp_path):
    manifest = manifest_of(parameter("fc.weight", FC, weightless=True))

    result = reconcile(tmp_path, legacy(FC.T.copy()), manifest)

    assert result.content == "none"
    assert result.balanced


def test_weight_of_another_shape_is_not_matched_by_its_module(tmp_path):
    result = reconcile(tmp_path, legacy(ramp(3, 4)), manifest_of(parameter("fc.weight", FC)), "none")

    assert bridge_of(result) == {"missing": (1, 6, -6, -6), "unexpected": (1, 12, 12, 12)}


# copies


def test_transposed_copy_of_a_tied_head_is_copied(tmp_path):
    proto = text_model(
        """g (int64[1,4] ids) => (float[1,4,2] y) {
            h = Gather("wte.weight", ids)
            y = MatMul(h, "onnx::MatMul_9")
        }""",
        {"wte.weight": FC, "onnx::MatMul_9": FC.T.copy()},
    )

    result = reconcile(tmp_path, proto, manifest_of(parameter("wte.weight", FC, tied=("head.weight",))))

    assert bridge_of(result) == {"identical": (1, 6, 0, 0), "copied": (1, 6, 0, 6)}
    assert (result.onnx_parameters, result.ledger.stored_elements) == (6, 12)
    assert result.balanced


def test_constant_filled_tensor_is_no_copy(tmp_path):
    proto = biases({"a.bias": ZEROS, "v": ZEROS}, ("/a/Gemm", "a.bias"), ("/z/Gemm", "v"))

    result = reconcile(tmp_path, proto, manifest_of(parameter("a.bias", ZEROS)))

    assert bridge_of(result) == {"identical": (1, 3, 0, 0), "added": (1, 3, 0, 3)}
    assert result.entries[1].decided_by == "content:constant-filled"


# merged by the exporter, or removed


@pytest.mark.parametrize("content", ["none", "sampled", "full"])
@pytest.mark.parametrize("bias", [ZEROS, ramp(3)], ids=["zeros", "values"])
def test_parameter_that_is_read_in_its_module_from_anothers_tensor_is_deduplicated(tmp_path, content, bias):
    proto = biases({"a.bias": bias}, ("/a/Gemm", "a.bias"), ("/b/Gemm", "a.bias"))

    result = reconcile(
        tmp_path, proto, manifest_of(*parameters_of({"a.bias": bias, "b.bias": bias})), content
    )

    assert bridge_of(result) == {as_it_stands(content): (1, 3, 0, 0), "deduplicated": (1, 3, -3, -3)}
    assert result.balanced
    assert result.parameters[1].entries == (((), "a.bias"),)


@pytest.mark.parametrize("content", ["none", "sampled", "full"])
def test_zero_bias_that_was_cut_out_is_missing_although_others_are_zero(tmp_path, content):
    proto = biases({"a.bias": ZEROS}, ("/a/Gemm", "a.bias"))

    result = reconcile(
        tmp_path, proto, manifest_of(*parameters_of({"a.bias": ZEROS, "b.bias": ZEROS})), content
    )

    assert bridge_of(result) == {as_it_stands(content): (1, 3, 0, 0), "missing": (1, 3, -3, -3)}
    assert not result.balanced
    assert [(f.id, f.subjects) for f in result.findings] == [
        ("missing", ("b.bias",)),
        ("absent-module", ("b",)),
    ]


SCALED = """g (float[12,8] x) => (float[12,8] y) {
    ["/a/Add"] p = Add(x, x) ["/a/Mul"] s = Mul(p, "onnx::Mul_9") t = Identity("onnx::Mul_9")
    ["/b/Add"] q = Add(s, x) ["/b/Mul"] y = Mul(q, t)
}"""


@pytest.mark.parametrize(
    ("change", "lines"),
    [
        ((), {"a.scale": "reshaped", "b.scale": "deduplicated"}),
        (("/b/Mul", "/c/Mul"), {"a.scale": "missing", "b.scale": "missing"}),
        (('["/b/Mul"]', ""), {"a.scale": "missing", "b.scale": "missing"}),
        (("Mul(q, t)", "Mul(q, q)"), {"a.scale": "reshaped", "b.scale": "missing"}),
    ],
    ids=["", "elsewhere", "nowhere", "one"],
)
@pytest.mark.parametrize("content", ["sampled", "full"])
def test_repeated_number_of_two_modules_is_stored_once_if_only_they_read_it(tmp_path, content, change, lines):
    """A state dict does not tell a buffer of one number from a parameter."""
    scale = np.full(12, 0.25, np.float32)
    text = SCALED.replace(*change) if change else SCALED
    known = manifest_of(*parameters_of({"a.scale": scale, "b.scale": scale}))

    result = reconcile(tmp_path, text_model(text, {"onnx::Mul_9": scale[:, None]}), known, content)

    assert lines_of(result) == lines
    assert result.balanced is (not change)


@pytest.mark.parametrize("known", [("a.scale", "b.scale", "b.other"), ("b.scale", "c.scale"), ("a.scale",)])
@pytest.mark.parametrize("value", [0.25, 0.5])
def test_repeated_number_is_no_buffer_if_a_reader_has_none_or_a_module_more_than_it_reads(
    tmp_path, known, value
):
    stored = np.full((12, 1), value, np.float32)
    manifest = manifest_of(*parameters_of(dict.fromkeys(known, np.full(12, 0.25, np.float32))))

    result = reconcile(tmp_path, text_model(SCALED, {"onnx::Mul_9": stored}), manifest)

    assert set(lines_of(result).values()) == {"missing"}


def test_zero_bias_that_a_traced_node_still_names_is_deduplicated(tmp_path):
    proto = biases({"a.bias": ZEROS}, ("/a/Gemm", "a.bias"), ("/b/Gemm", "x"))
    proto.graph.node[1].metadata_props.add(key=FX_NODE, value="linear(%x, %p_b_weight, %p_b_bias)")

    result = reconcile(tmp_path, proto, manifest_of(*parameters_of({"a.bias": ZEROS, "b.bias": ZEROS})))

    assert lines_of(result)["b.bias"] == "deduplicated"
    assert result.parameters[1].decided_by == "content+traced-zero"


def test_nonzero_bias_that_a_traced_node_names_but_nothing_reads_is_missing(tmp_path):
    proto = biases({"a.bias": ramp(3)}, ("/a/Gemm", "a.bias"), ("/b/Gemm", "x"))
    proto.graph.node[1].metadata_props.add(key=FX_NODE, value="linear(%x, %p_b_weight, %p_b_bias)")

    result = reconcile(tmp_path, proto, manifest_of(*parameters_of({"a.bias": ramp(3), "b.bias": ramp(3)})))

    assert lines_of(result)["b.bias"] == "missing"


@pytest.mark.parametrize(("readers", "lines"), [(3, "deduplicated"), (2, "missing"), (1, "missing")])
def test_file_without_scopes_needs_a_reader_for_each_merged_parameter(tmp_path, readers, lines):
    bias = ramp(3)
    proto = biases({"a.bias": bias}, *((f"n{i}", "a.bias") for i in range(readers)))
    manifest = manifest_of(*parameters_of(dict.fromkeys(("a.bias", "b.bias", "c.bias"), bias)))

    result = reconcile(tmp_path, proto, manifest)

    assert lines_of(result)["c.bias"] == lines


def test_transposed_content_may_be_merged_too(tmp_path):
    square = ramp(3, 3)
    proto = text_model(
        """g (float[3,3] x) => (float[3,3] y) {
            ["/a/MatMul"] h = MatMul(x, "a.weight") ["/b/MatMul"] y = MatMul(h, "a.weight")
        }""",
        {"a.weight": square},
    )

    result = reconcile(
        tmp_path, proto, manifest_of(*parameters_of({"a.weight": square, "b.weight": square.T.copy()}))
    )

    assert bridge_of(result)["deduplicated"] == (1, 9, -9, -9)


def test_one_scalar_merged_into_another_is_deduplicated(tmp_path):
    proto = text_model(
        """g (float[3] x) => (float[3] y) {
            ["/a/PRelu"] h = PRelu(x, "a.weight") ["/b/PRelu"] y = PRelu(h, "a.weight")
        }""",
        {"a.weight": ramp(1)},
    )

    result = reconcile(
        tmp_path, proto, manifest_of(*parameters_of({"a.weight": ramp(1), "b.weight": ramp(1)}))
    )

    assert lines_of(result)["b.weight"] == "deduplicated"


def test_two_matrices_that_one_module_reads_are_no_copies_of_its_weight(tmp_path):
    proto = text_model(
        "g (float[8,8] x) => (float[8,8] y) { [one] a = MatMul(x, m1) [two] y = MatMul(a, m2) }",
        {"m1": ramp(8, 8), "m2": ramp(8, 8, start=9)},
    )
    for node in proto.graph.node:
        node.name = f"/fc/{node.name}"

    result = reconcile(tmp_path, proto, manifest_of(parameter("fc.weight", ramp(8, 8))), "none")

    assert not result.balanced
    assert set(bridge_of(result)) == {"missing", "unexpected"}


def test_equal_zeros_of_another_module_prove_nothing(tmp_path):
    proto = text_model(
        "g (float[8] x) => (float[8] y) { a = MatMul(x, w) y = Add(a, b9) }",
        {"w": ramp(8, 8), "b9": np.zeros(8, np.float32)},
    )
    for node in proto.graph.node:
        node.name = f"/fc/{node.op_type}"
    known = manifest_of(parameter("fc.weight", ramp(8, 8)), parameter("other.bias", np.zeros(8, np.float32)))

    result = reconcile(tmp_path, proto, known)

    assert not result.balanced
    assert {line.name: line.line.value for line in result.parameters}["other.bias"] == "missing"


# matches by module


both = pytest.mark.parametrize("at_hand", [False, True], ids=["manifest", "weights"])

LAYERS = {f"layer.{index}.fc.weight": noise(8, 8, seed=index) for index in (0, 1)}


def in_places(first: str, second: str, stored=None):
    """Return a model of two nameless matrices, read by two modules; layer 0 is stored first."""
    one, other = LAYERS.values()
    return text_model(
        f"""g (float[8,8] x) => (float[8,8] y) {{
            ["/{first}/MatMul"] h = MatMul(x, "onnx::MatMul_1") ["/{second}/MatMul"] y = MatMul(h, "onnx::MatMul_2")
        }}""",
        stored or {"onnx::MatMul_1": one.T.copy(), "onnx::MatMul_2": other.T.copy()},
    )


@both
@pytest.mark.parametrize("content", ["sampled", "full"])
@pytest.mark.parametrize(
    ("first", "second", "is_right"),
    [
        ("layer.0/fc", "layer.1/fc", True),
        ("layer.1/fc", "layer.0/fc", False),
        ("layer.1", "layer.0", False),
        ("layer.0", "layer.1", True),
        ("layer", "layer", True),
        ("other", "another", True),
    ],
)
def test_nameless_matrices_that_were_swapped_are_in_the_wrong_place(
    tmp_path, first, second, is_right, content, at_hand
):
    manifest = manifest_of(*parameters_of(LAYERS))

    result = reconcile(tmp_path, in_places(first, second), manifest, content, LAYERS if at_hand else None)

    assert result.balanced == is_right
    assert set(lines_of(result).values()) == {"transposed" if is_right else "missing"}


@both
def test_modules_inside_one_another_may_read_what_the_other_keeps(tmp_path, at_hand):
    """torch.nn.MultiheadAttention reads the weight of its child `out_proj`, and has a weight of that shape itself."""
    arrays = {"attn.q_proj_weight": noise(8, 8), "attn.out_proj.weight": noise(8, 8, seed=1)}
    stored = {f"onnx::MatMul_{i}": array.T.copy() for i, array in enumerate(arrays.values(), 1)}
    manifest = manifest_of(*parameters_of(arrays))

    result = reconcile(
        tmp_path, in_places("attn", "attn", stored), manifest, "full", arrays if at_hand else None
    )

    assert result.balanced


@both
def test_swapped_codes_are_in_the_wrong_place_too(tmp_path, at_hand):
    tensors = {
        key: value
        for i, array in enumerate(LAYERS.values())
        for key, value in quantized(f"m{i}", array.T.copy()).items()
    }
    manifest = manifest_of(*parameters_of(LAYERS))

    def balanced(first: str, second: str) -> bool:
        nodes = [f"/{scope}/" for scope in (first, second)]
        proto = text_model(
            f"""g (float[8,8] x) => (float[8,8] y) {{
                ["{nodes[0]}Dequant"] d0 = DequantizeLinear(m0_quantized, m0_scale, m0_zero_point)
                ["{nodes[0]}MatMul"] h = MatMul(x, d0)
                ["{nodes[1]}Dequant"] d1 = DequantizeLinear(m1_quantized, m1_scale, m1_zero_point)
                ["{nodes[1]}MatMul"] y = MatMul(h, d1)
            }}""",
            tensors,
        )
        return reconcile(tmp_path, proto, manifest, "full", LAYERS if at_hand else None).balanced

    assert balanced("layer.0/fc", "layer.1/fc")
    assert not balanced("layer.1/fc", "layer.0/fc")


@both
def test_copy_of_one_layer_in_the_place_of_another_leaves_that_missing(tmp_path, at_hand):
    one = next(iter(LAYERS.values())).T.copy()
    proto = in_places("layer.0/fc", "layer.1/fc", {"onnx::MatMul_1": one, "onnx::MatMul_2": one})
    manifest = manifest_of(*parameters_of(LAYERS))

    result = reconcile(tmp_path, proto, manifest, "full", LAYERS if at_hand else None)

    assert lines_of(result) == {"layer.0.fc.weight": "transposed", "layer.1.fc.weight": "missing"}


@both
@pytest.mark.parametrize("axes", [(0, 1, 3, 2), (1, 0, 2, 3)])
def test_nameless_kernel_that_was_turned_is_another(tmp_path, axes, at_hand):
    kernel = noise(4, 4, 3, 3)
    proto = text_model(
        'g (float[1] x) => (float[1] y) { y = Conv(x, "onnx::Conv_7") }',
        {"onnx::Conv_7": kernel.transpose(axes).copy()},
    )
    arrays = {"conv.weight": kernel} if at_hand else None

    result = reconcile(tmp_path, proto, manifest_of(parameter("conv.weight", kernel)), "full", arrays)

    assert lines_of(result) == {"conv.weight": "missing"}


@both
def test_nameless_vector_of_two_elements_is_known_by_its_content(tmp_path, at_hand):
    known = {"fc.bias": np.array([0.1, 0.3], "f4")}
    proto = text_model("g (float[2] x) => (float[2] y) { y = Gemm(x, x, v) }", {"v": known["fc.bias"]})

    result = reconcile(
        tmp_path, proto, manifest_of(*parameters_of(known)), "full", known if at_hand else None
    )

    assert lines_of(result) == {"fc.bias": "renamed"}


@both
def test_every_copy_is_one_whichever_is_stored_first(tmp_path, at_hand):
    known = {"a.weight": noise(4, 3), "b.weight": noise(4, 3, seed=1)}
    nodes = " ".join(f"y{i} = MatMul(x, v{i})" for i in range(4))
    stored = {f"v{i}": array for i, array in enumerate([*known.values(), *known.values()])}
    proto = text_model(f"g (float[1] x) => ({outs(4)}) {{ {nodes} }}", stored)

    result = reconcile(
        tmp_path, proto, manifest_of(*parameters_of(known)), "full", known if at_hand else None
    )

    assert bridge_of(result) == {"renamed": (2, 24, 0, 0), "copied": (2, 24, 0, 24)}
    assert result.balanced


@both
def test_every_turned_copy_is_known_by_its_content(tmp_path, at_hand):
    known = {"a.weight": noise(4, 3), "b.weight": noise(4, 3, seed=1)}
    nodes = " ".join(f'y{i} = Gemm(x, "{name}") z{i} = MatMul(x, v{i})' for i, name in enumerate(known))
    stored = known | {f"v{i}": array.T.copy() for i, array in enumerate(known.values())}
    proto = text_model(f"g (float[1] x) => ({outs(2, 'yz')}) {{ {nodes} }}", stored)

    result = reconcile(
        tmp_path, proto, manifest_of(*parameters_of(known)), "full", known if at_hand else None
    )

    assert bridge_of(result) == {"identical": (2, 24, 0, 0), "copied": (2, 24, 0, 24)}


@both
def test_every_copy_in_another_type_is_known_by_its_content(tmp_path, at_hand):
    known = {"a.weight": noise(4, 3), "b.weight": noise(4, 3, seed=1)}
    nodes = " ".join(f'y{i} = Gemm(x, "{name}") z{i} = Gemm(x, v{i})' for i, name in enumerate(known))
    stored = known | {f"v{i}": array.astype("f2") for i, array in enumerate(known.values())}
    proto = text_model(f"g (float[1] x) => ({outs(2, 'yz')}) {{ {nodes} }}", stored)

    result = reconcile(
        tmp_path, proto, manifest_of(*parameters_of(known)), "full", known if at_hand else None
    )

    assert bridge_of(result) == {"identical": (2, 24, 0, 0), "copied": (2, 24, 0, 24)}


@both
def test_of_equal_contents_a_module_has_its_own_before_its_childs(tmp_path, at_hand):
    known = dict.fromkeys(("attn.out_proj.weight", "attn.weight"), noise(8, 8))
    stored = {f"onnx::MatMul_{i}": array.T.copy() for i, array in enumerate(known.values(), 1)}

    result = reconcile(
        tmp_path,
        in_places("attn", "attn/out_proj", stored),
        manifest_of(*parameters_of(known)),
        "full",
        known if at_hand else None,
    )

    assert {line.name: line.entries[0][1] for line in result.parameters} == {
        "attn.weight": "onnx::MatMul_1",
        "attn.out_proj.weight": "onnx::MatMul_2",
    }


@both
def test_nameless_codes_of_nothing_are_not_a_weight_of_zeros(tmp_path, at_hand):
    known = {"fc.weight": np.zeros((8, 8), "f4")}
    codes = {"q": np.zeros((8, 8), "i1"), "s": np.asarray(0.1, "f4")}
    proto = text_model(
        "g (float[8,8] x) => (float[8,8] y) { d = DequantizeLinear(q, s) y = MatMul(x, d) }", codes
    )

    result = reconcile(
        tmp_path, proto, manifest_of(*parameters_of(known)), "full", known if at_hand else None
    )

    assert lines_of(result) == {"fc.weight": "missing"}


@pytest.mark.parametrize("tampered", [False, True])
def test_codes_that_repeat_a_tensor_of_the_file_are_compared_with_all_of_it(
    tampered: bool, tmp_path: Path
) -> None:
    """The manifest has only sums of a large table; the file has all its values."""
    table = noise(160, 64, seed=4)
    stored = {"emb.weight": table, **packed("head", table)}
    if tampered:
        stored["head_Q4"].reshape(-1)[77] ^= 0x88  # eight steps
    text = """<ir_version: 10, opset_import: ["" : 18, "com.microsoft" : 1]>
    g (int64[3] x) => (float[3,160] y) {
        h = Gather("emb.weight", x)
        y = com.microsoft.MatMulNBits<K = 64, N = 160, bits = 4, block_size = 16>(h, "head_Q4", "head_scales")
    }"""
    manifest = manifest_of(*parameters_of({"emb.weight": table}))

    result = reconcile(tmp_path, text_model(text, stored), manifest)

    assert result.balanced is not tampered
    assert result.compared == {"whole": table.size, "sampled": 0, "none": 0}


# lines decided by a name, whose content must match


def linear(name: str, stored: np.ndarray, node: str = "n"):
    return text_model(
        f'g (float[1,3] x) => (float[1,2] y) {{ ["{node}"] y = MatMul(x, "{name}") }}', {name: stored}
    )


def folded(stored: np.ndarray, *sources: str):
    return dynamo_like(linear("val_1", stored), folded={"val_1": list(sources)})


def with_one_changed(array: Floats, position: int = 0, by: float = 0.5) -> Floats:
    changed = array.copy()
    changed.reshape(-1)[position] += np.float32(by)
    return changed


@pytest.mark.parametrize("content", ["none", "sampled", "full"])
def test_same_name_and_content_is_identical_and_without_content_named(tmp_path, content):
    result = reconcile(tmp_path, linear("fc.weight", FC), manifest_of(parameter("fc.weight", FC)), content)

    assert bridge_of(result) == {as_it_stands(content): (1, 6, 0, 0)}
    assert result.balanced
    assert result.parameters[0].max_abs_error == (None if content == "none" else 0.0)


def test_rule_says_whether_content_was_compared(tmp_path):
    proto, manifest = linear("fc.weight", FC), manifest_of(parameter("fc.weight", FC))

    assert reconcile(tmp_path, proto, manifest, "full").parameters[0].decided_by == "name+content"
    assert reconcile(tmp_path, proto, manifest, "none").parameters[0].decided_by == "name+shape"


@pytest.mark.parametrize("content", ["none", "sampled", "full"])
def test_other_name_by_the_exporters_note_is_renamed(tmp_path, content):
    result = reconcile(tmp_path, folded(FC, "fc.weight"), manifest_of(parameter("fc.weight", FC)), content)

    assert bridge_of(result) == {"renamed": (1, 6, 0, 0)}


@pytest.mark.parametrize("content", ["none", "sampled", "full"])
@pytest.mark.parametrize("shape", [(2, 3), (3, 3), (100, 7)])
def test_matrix_that_the_exporter_folded_is_transposed(tmp_path, content, shape):
    weight = ramp(*shape)

    result = reconcile(
        tmp_path, folded(weight.T.copy(), "fc.weight"), manifest_of(parameter("fc.weight", weight)), content
    )

    assert bridge_of(result) == {"transposed": (1, weight.size, 0, 0)}
    assert result.balanced


@pytest.mark.parametrize("content", ["none", "sampled", "full"])
def test_same_elements_in_another_shape_are_reshaped(tmp_path, content):
    manifest = manifest_of(parameter("fc.weight", FC.reshape(6)))

    result = reconcile(tmp_path, linear("fc.weight", FC), manifest, content)

    assert bridge_of(result) == {"reshaped": (1, 6, 0, 0)}
    assert result.balanced


@pytest.mark.parametrize("content", ["sampled", "full"])
def test_same_name_with_another_value_is_differing_by_its_error(tmp_path, content):
    result = reconcile(
        tmp_path,
        linear("fc.weight", with_one_changed(FC, by=-0.5)),
        manifest_of(parameter("fc.weight", FC)),
        content,
    )

    assert bridge_of(result) == {"differing": (1, 6, 0, 0)}
    assert not result.balanced
    assert result.parameters[0].max_abs_error == 0.5
    assert [(f.id, f.subjects) for f in result.findings] == [("differing", ("fc.weight",))]


def test_names_alone_do_not_see_another_value(tmp_path):
    result = reconcile(
        tmp_path, linear("fc.weight", with_one_changed(FC)), manifest_of(parameter("fc.weight", FC)), "none"
    )

    assert (result.balanced, result.content) == (True, "none")


@pytest.mark.parametrize(("content", "line"), [("sampled", "identical"), ("full", "differing")])
def test_value_between_the_samples_is_seen_by_whole_contents_only(tmp_path, content, line):
    weight = ramp(100, 90)

    result = reconcile(
        tmp_path,
        linear("fc.weight", with_one_changed(weight, position=1)),
        manifest_of(parameter("fc.weight", weight)),
        content,
    )

    assert lines_of(result) == {"fc.weight": line}


@pytest.mark.parametrize("content", ["none", "sampled", "full"])
@pytest.mark.parametrize(("stored", "delta"), [((2, 4), 2), ((2, 2), -2)])
def test_same_name_with_more_or_fewer_elements_is_differing_by_as_many(tmp_path, content, stored, delta):
    result = reconcile(
        tmp_path, linear("fc.weight", ramp(*stored)), manifest_of(parameter("fc.weight", FC)), content
    )

    assert bridge_of(result) == {"differing": (1, 6, delta, delta)}
    assert result.onnx_parameters == 6 + delta


def test_same_elements_in_another_dtype_are_not_identical(tmp_path):
    result = reconcile(
        tmp_path, linear("fc.weight", FC.astype("f8")), manifest_of(parameter("fc.weight", FC)), "full"
    )

    assert lines_of(result)["fc.weight"] != "identical"


def test_parameter_folded_twice_is_found_once_and_copied_once(tmp_path):
    proto = text_model(
        "g (float[1,3] x) => (float[1,2] y) { a = MatMul(x, val_1) y = MatMul(x, val_2) }",
        {"val_1": FC.T.copy(), "val_2": FC.T.copy()},
    )
    proto = dynamo_like(proto, folded={"val_1": ["fc.weight"], "val_2": ["fc.weight"]})

    result = reconcile(tmp_path, proto, manifest_of(parameter("fc.weight", FC)))

    assert bridge_of(result) == {"transposed": (1, 6, 0, 0), "copied": (1, 6, 0, 6)}
    assert result.parameters[0].chain == ("transposed", "copied")
    assert (result.onnx_parameters, result.ledger.stored_elements) == (6, 12)


def test_tensor_stored_as_pytorch_has_it_is_the_original_of_its_transposed_copy(tmp_path):
    proto = text_model(
        'g (float[1,3] x) => (float[1,2] y) { a = MatMul(x, val_1) y = Gather("fc.weight", a) }',
        {"val_1": FC.T.copy(), "fc.weight": FC},
    )

    result = reconcile(
        tmp_path, dynamo_like(proto, folded={"val_1": ["fc.weight"]}), manifest_of(parameter("fc.weight", FC))
    )

    assert bridge_of(result) == {"identical": (1, 6, 0, 0), "copied": (1, 6, 0, 6)}
    assert result.parameters[0].entries == (((), "fc.weight"), ((), "val_1"))


def test_copy_of_other_content_is_differing(tmp_path):
    proto = text_model(
        'g (float[1,3] x) => (float[1,2] y) { a = MatMul(x, val_1) y = Gather("fc.weight", a) }',
        {"val_1": with_one_changed(FC).T.copy(), "fc.weight": FC},
    )

    result = reconcile(
        tmp_path, dynamo_like(proto, folded={"val_1": ["fc.weight"]}), manifest_of(parameter("fc.weight", FC))
    )

    assert bridge_of(result)["differing"] == (1, 6, 0, 6)
    assert not result.balanced


# buffers


def running_mean(stored: np.ndarray, known: np.ndarray, tmp_path, content="full"):
    proto = text_model(
        'g (float[3] x) => (float[3] y) { y = Sub(x, "bn.running_mean") }', {"bn.running_mean": stored}
    )
    return reconcile(tmp_path, proto, manifest_of(buffer("bn.running_mean", known)), content)


@pytest.mark.parametrize("content", ["none", "sampled", "full"])
def test_buffer_is_stored_and_no_parameter(tmp_path, content):
    result = running_mean(ramp(3), ramp(3), tmp_path, content)

    assert bridge_of(result) == {"buffer": (1, 3, 0, 3)}
    assert result.balanced
    assert [line.piece for line in result.entries] == [Piece(((), "bn.running_mean"), (3,), (0,))]


def test_buffer_of_other_content_under_its_own_name_is_differing(tmp_path):
    result = running_mean(ramp(3, start=9), ramp(3), tmp_path)

    assert bridge_of(result) == {"differing": (1, 3, 0, 3)}
    assert not result.balanced


def test_buffer_that_was_cut_while_folding_is_a_buffer(tmp_path):
    proto = text_model("g (float[2] x) => (float[2] y) { y = Add(x, val_1) }", {"val_1": ramp(2)})
    proto = dynamo_like(proto, folded={"val_1": ["rotary.inv_freq"]})

    result = reconcile(tmp_path, proto, manifest_of(buffer("rotary.inv_freq", ramp(3))))

    assert bridge_of(result) == {"buffer": (1, 2, 0, 2)}
    assert [(line.decided_by, line.piece) for line in result.entries] == [("provenance+derived", None)]


# ties


@pytest.mark.parametrize("stored_as", ["wte.weight", "head.weight"])
def test_tied_parameter_stored_once_is_tied_whatever_its_name(tmp_path, stored_as):
    manifest = manifest_of(parameter("wte.weight", FC, tied=("head.weight",)))

    result = reconcile(tmp_path, linear(stored_as, FC), manifest)

    assert bridge_of(result) == {"tied": (1, 6, 0, 0)}
    assert result.parameters[0].chain == ("identical", "tied")
    assert result.parameters[0].name == "wte.weight"


def test_tied_parameter_stored_under_both_names_is_copied(tmp_path):
    proto = text_model(
        'g (float[1,3] x) => (float[1,3] y) { h = Gather("wte.weight", x) y = Gather("head.weight", h) }',
        {"wte.weight": FC, "head.weight": FC},
    )

    result = reconcile(tmp_path, proto, manifest_of(parameter("wte.weight", FC, tied=("head.weight",))))

    assert bridge_of(result) == {"identical": (1, 6, 0, 0), "copied": (1, 6, 0, 6)}
    assert result.balanced


@pytest.mark.parametrize("content", ["full", "sampled"])
def test_content_that_cannot_be_read_proves_nothing(tmp_path, content):
    proto = text_model("g (float[2] x) => (float[3] y) { y = MatMul(x, fcw) }", {"fcw": ramp(2, 3)})
    proto.graph.initializer[0].raw_data = b"short"

    result = reconcile(tmp_path, proto, manifest_of(parameter("fcw", ramp(2, 3))), content)

    assert not result.balanced
    assert (result.parameters[0].line.value, result.parameters[0].decided_by) == (
        "differing",
        "none:unreadable",
    )


def test_another_dtype_is_a_cast_where_contents_are_not_compared(tmp_path):
    proto = text_model(
        "g (float[2] x) => (float[3] y) { y = MatMul(x, fcw) }", {"fcw": ramp(2, 3).astype("f2")}
    )

    result = reconcile(tmp_path, proto, manifest_of(parameter("fcw", ramp(2, 3))), "none")

    assert result.parameters[0].line.value == "cast"


# lines decided by shapes, roles and order alone, where values are not compared


def run(
    tmp_path: Any, known: dict[str, Array], *stored: Array, read: str = "MatMul(x, {})"
) -> Reconciliation:
    """Reconcile matrices under names of the file's own, in a file without scopes."""
    nodes = " ".join(f"y{i} = {read.format(f'v{i}')}" for i in range(len(stored)))
    proto = text_model(
        f"g (float[1] x) => ({outs(len(stored))}) {{ {nodes} }}",
        {f"v{i}": array for i, array in enumerate(stored)},
    )
    return reconcile(tmp_path, proto, manifest_of(*parameters_of(known)), "none")


@pytest.mark.parametrize(
    ("stored", "line"), [((2, 3), "renamed"), ((3, 2), "transposed"), ((2, 1, 3), "reshaped")]
)
def test_the_one_matrix_of_a_shape_is_the_parameter_of_that_shape(tmp_path, stored, line):
    result = run(tmp_path, {"fc.weight": ramp(2, 3)}, ramp(*stored))

    assert bridge_of(result) == {line: (1, 6, 0, 0)}
    assert result.parameters[0].decided_by == "structure:shape"
    assert result.parameters[0].compared == "none"
    assert len(result.parameters[0].pieces) == 1


def test_of_several_of_a_shape_each_has_one_in_order(tmp_path):
    known = {"a.weight": ramp(2, 3), "b.weight": ramp(2, 3)}

    result = run(tmp_path, known, ramp(2, 3), ramp(2, 3, start=9))

    assert [line.entries for line in result.parameters] == [(((), "v0"),), (((), "v1"),)]


def test_more_matrices_than_parameters_of_a_shape_are_ambiguous_and_unexpected(tmp_path):
    result = run(tmp_path, {"fc.weight": ramp(2, 3)}, ramp(2, 3), ramp(2, 3, start=9))

    assert bridge_of(result) == {"missing": (1, 6, -6, -6), "unexpected": (2, 12, 12, 12)}


def test_what_is_learned_goes_before_what_has_no_role(tmp_path):
    proto = text_model(
        "g (float[3] x) => (float[3] y) { h = Relu(u) y = MatMul(x, v) }",
        {"u": ramp(2, 3), "v": ramp(2, 3, start=9)},
    )

    result = reconcile(tmp_path, proto, manifest_of(parameter("fc.weight", ramp(2, 3))), "none")

    assert result.parameters[0].entries == (((), "v"),)


@pytest.mark.parametrize("stored", [ramp(8, 5), ramp(5, 8), ramp(8, 1, 5)])
def test_neighbours_of_one_module_fill_what_was_packed(tmp_path, stored):
    known = {"attn.q.weight": ramp(2, 5), "attn.k.weight": ramp(3, 5), "attn.v.weight": ramp(3, 5)}

    result = run(tmp_path, known, stored)

    assert bridge_of(result) == {"concatenated": (3, 40, 0, 0)}
    assert {line.decided_by for line in result.parameters} == {"structure:shape-sum"}


def test_parameters_of_several_modules_fill_what_was_packed_only_together(tmp_path):
    known = {"a.x.weight": ramp(2, 5), "b.x.weight": ramp(4, 5), "c.x.weight": ramp(6, 5)}

    assert lines_of(run(tmp_path, known, ramp(7, 5))) == dict.fromkeys(known, "missing")
    assert lines_of(run(tmp_path, known, ramp(12, 5))) == dict.fromkeys(known, "concatenated")
    two_of_three = run(tmp_path, known, ramp(10, 5))
    assert lines_of(two_of_three) == dict.fromkeys(known, "missing")


@pytest.mark.parametrize("shape", [(3, 4, 5), (3, 2, 4, 5)])
def test_a_matrix_for_each_expert_is_a_piece_of_what_pytorch_stacks(tmp_path, shape):
    result = run(tmp_path, {"experts.weight": ramp(*shape)}, *(ramp(*shape[1:], start=i) for i in range(3)))

    assert bridge_of(result) == {"sliced": (1, np.prod(shape), 0, 0)}
    assert result.parameters[0].decided_by == "structure:shape-pieces"
    assert [name for _, name in result.parameters[0].entries] == ["v0", "v1", "v2"]


def test_fewer_matrices_than_experts_are_unexpected(tmp_path):
    result = run(tmp_path, {"experts.weight": ramp(3, 4, 5)}, ramp(4, 5), ramp(4, 5, start=1))

    assert lines_of(result) == {"experts.weight": "missing"}


def test_nameless_state_of_a_buffers_shape_is_that_buffer(tmp_path):
    proto = text_model("g (float[3] x) => (float[3] y) { y = Sub(x, v) }", {"v": ramp(3)})

    result = reconcile(tmp_path, proto, manifest_of(buffer("norm.shift", ramp(3))), "none")

    assert bridge_of(result) == {"buffer": (1, 3, 0, 3)}
    assert (result.entries[0].parameter, result.entries[0].decided_by) == ("norm.shift", "structure:shape")
