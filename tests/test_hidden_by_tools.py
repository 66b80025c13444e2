"""Tensors from tools that count for more or less than PyTorch had: reported as a range, or not counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from commands import run_here as run
from models import dynamo_like, entry, noise, quantized, save, text_model

from analyzer.account.audit import audit_model
from analyzer.account.ledger import Ledger

Array = npt.NDArray[np.generic]

HEAD: dict[str, Array] = {"head.weight": noise(4, 6, seed=9), "head.bias": noise(6, seed=8)}
ZEROS, ONES = np.zeros(4, "f4"), np.ones(4, "f4")


def span(ledger: Ledger) -> tuple[int, int, int | None]:
    return ledger.parameters, ledger.parameters_at_least, ledger.parameters_at_most


def audit(folder: Path, text: str, tensors: dict[str, Array], *, producer: str = "") -> Ledger:
    proto = text_model(text, tensors)
    proto.producer_name = producer
    return audit_model(save(folder, proto))


def blocked(weight: Array, block: int = 8) -> Array:
    """Return a weight (rows, columns, 1, 1) as onnxruntime stores it for convolutions in blocks of channels."""
    rows, columns = (-(-dim // block) * block for dim in weight.shape[:2])
    whole = np.zeros((rows, columns, *weight.shape[2:]), "f4")
    whole[: weight.shape[0], : weight.shape[1]] = weight
    tiled = whole.reshape(rows // block, block, columns // block, block, *weight.shape[2:])
    return np.ascontiguousarray(tiled.transpose(0, 2, 4, 5, 3, 1)).reshape(whole.shape)


BLOCKED = """
    <ir_version: 10, opset_import: ["" : 20, "com.microsoft.nchwc" : 1]>
    g (float[1,16,3,3] x) => (float[1,16,3,3] y) {
        h = com.microsoft.nchwc.Conv(x, "reorder", "reorder_token_1")
        y = com.microsoft.nchwc.Conv(h, "reorder_token_2", "last.bias")
    }
"""


def test_zeros_that_fill_a_block_of_channels_up_may_be_no_parameters(tmp_path: Path) -> None:
    bias = np.concatenate([noise(10), np.zeros(6, "f4")])
    first, second = blocked(noise(10, 12, 1, 1)), blocked(noise(16, 10, 1, 1, seed=2))
    tensors = {"reorder": first, "reorder_token_1": bias, "reorder_token_2": second, "last.bias": noise(16)}
    ledger = audit(tmp_path, BLOCKED, tensors)

    # The first weight has 120 elements and 10 biases, which may contain a norm; the second has 160, and a named bias.
    assert span(ledger) == (256 + 16 + 256 + 16, 120 + 10 + 160 + 16, 256 + 16 + 256 + 16 + 2 * 16)
    printed = " ".join(run("inspect", ledger.model.path).stdout.split())
    assert "238 fewer to 32 more in PyTorch" in printed
    assert "1 layer may have a BatchNorm folded in" in printed  # its bias has lost its name
    assert "with a BatchNorm folded in" not in printed


@pytest.mark.parametrize(
    ("layer", "bias", "more"),
    [
        ('com.microsoft.nchwc.Conv(x, "reorder", "first.weight_bias")', "first.weight_bias", (0, 32)),
        ('Conv(x, "reorder", "first.weight_bias")', "first.weight_bias", (16, 32)),
        ('Gemm(x, "MatMulBnFusion_GemmB_w", "MatMulBnFusion_GemmBias")', "MatMulBnFusion_GemmBias", (16, 32)),
        ('[relu_nchwc] com.microsoft.nchwc.Conv(x, "reorder", "first.bias")', "first.bias", (0, 32)),
        ('[conv2d_3_nchwc] com.microsoft.nchwc.Conv(x, "reorder", "first.bias")', "first.bias", (0, 0)),
        ('[node_Conv_17] com.microsoft.FusedConv(x, "first.weight", "first.bias")', "first.bias", (0, 32)),
        ('[node_conv2d_3] com.microsoft.FusedConv(x, "first.weight", "first.bias")', "first.bias", (0, 0)),
        (
            '[fused node_Gemm_14] com.microsoft.FusedGemm(x, "first.weight", "first.bias")',
            "first.bias",
            (0, 32),
        ),
        (
            '[fused node_linear] com.microsoft.FusedGemm(x, "first.weight", "first.bias")',
            "first.bias",
            (0, 0),
        ),
    ],
)
def test_names_that_do_not_exclude_a_folded_norm_give_a_range(
    layer: str, bias: str, more: tuple[int, int], tmp_path: Path
) -> None:
    name, _, call = layer.rpartition("] ")
    weight = call.split('"')[1]
    proto = text_model(
        f"""<ir_version: 10, opset_import: ["" : 20, "com.microsoft" : 1, "com.microsoft.nchwc" : 1]>
        g (float[1,16] x) => (float[1,16] y) {{ h = {call} y = Gemm(h, "last.weight", "last.bias") }}""",
        {
            weight: noise(*(16, 16) if "Gemm" in call else (16, 16, 1, 1)),
            bias: noise(16, seed=1),
            "last.weight": noise(16, 16, seed=2),
            "last.bias": noise(16, seed=3),
        },
    )
    proto.graph.node[0].name = name.removeprefix("[")
    ledger = audit_model(save(tmp_path, proto))

    # A norm has 16 scales and 16 shifts. If the layer had no bias, the stored one takes the place of one of these.
    stored = 2 * (256 + 16)
    assert span(ledger) == (stored, stored + more[0], stored + more[1])


ZERO_BIAS = """<ir_version: 10, opset_import: ["" : 20, "com.microsoft" : 1, "com.microsoft.nchwc" : 1]>
    g (float[1,16] x) => (float[1,16] y) {{
        {value} = {operator}{attributes}(x, "{weight}")
        y = Gemm({value}, "last.weight", "last.bias")
    }}"""


@pytest.mark.parametrize(
    ("operator", "name", "value", "more"),
    [
        ("Conv", "node_Conv_292", "getitem_3", (32, 48)),  # a norm, and perhaps a bias before it
        ("Conv", "node_Conv_292", "conv2d_3", (0, 16)),  # a bias of zeros
        ("Conv", "node_conv2d_3", "conv2d_3", (0, 0)),
        ("com.microsoft.FusedConv", "node_Conv_292", "relu", (0, 48)),
        ("com.microsoft.FusedConv", "node_conv2d_3", "relu", (0, 0)),
        ("com.microsoft.nchwc.Conv", "relu_nchwc", "reorder_token_1", (0, 48)),
        ("com.microsoft.nchwc.Conv", "conv2d_nchwc", "reorder_token_1", (0, 16)),
        ("com.microsoft.nchwc.Conv", "/c/Conv_nchwc", "reorder_token_1", (0, 0)),
        ("Gemm", "node_Gemm_210", "linear_1", (0, 16)),
        ("Gemm", "node_linear_1", "linear_1", (0, 0)),
        ("com.microsoft.FusedGemm", "fused node_Gemm_210", "relu", (0, 48)),
        ("ConvTranspose", "node_ConvTranspose_7", "getitem", (16, 24)),
    ],
)
def test_a_bias_of_zeros_that_an_exporter_removed_is_in_the_range(
    operator: str, name: str, value: str, more: tuple[int, int], tmp_path: Path
) -> None:
    weight = "reorder" if "nchwc" in operator else "first.weight"
    shape = {"Gemm": (16, 8), "ConvTranspose": (4, 4, 1, 1)}.get(operator.rpartition(".")[2], (16, 16, 1, 1))
    if operator.endswith("FusedGemm"):
        shape = (16, 8)
    attributes = "<transB = 1>" if "Gemm" in operator else "<group = 2>" if "Transpose" in operator else ""
    text = ZERO_BIAS.format(operator=operator, value=value, weight=weight, attributes=attributes)
    tensors = {weight: noise(*shape), "last.weight": noise(16, 16, seed=2), "last.bias": noise(16, seed=3)}
    proto = text_model(text, tensors)
    proto.graph.node[0].name = name

    stored = int(np.prod(shape)) + 256 + 16
    assert span(audit_model(save(tmp_path, proto))) == (stored, stored + more[0], stored + more[1])


SHARED = """
    g (float[1,4] x) => (float[1,4] y) {
        a = Gemm(x, "a.weight", "a.bias") b = Gemm(a, "b.weight", "a.bias") y = Gemm(b, "c.weight", "a.bias")
    }
"""


@pytest.mark.parametrize(
    ("bias", "more"), [(ZEROS, 8), (ONES, 8), (noise(4), 0)], ids=["zeros", "ones", "own"]
)
def test_a_vector_of_one_number_may_be_that_of_each_layer_that_reads_it(
    bias: Array, more: int, tmp_path: Path
) -> None:
    weights: dict[str, Array] = {f"{name}.weight": noise(4, 4, seed=seed) for seed, name in enumerate("abc")}
    ledger = audit(tmp_path, SHARED, {**weights, "a.bias": bias})

    assert span(ledger) == (52, 52, 52 + more)


BIASES = """
    g (float[1,4,3,3] x) => (float[1,4,3,3] y) {
        a = Conv(x, "onnx::Conv_1", "onnx::Conv_2") b = Conv(a, "onnx::Conv_3", "onnx::Conv_2")
        c = Conv(b, "onnx::Conv_3", "onnx::Conv_2") y = Conv(c, "last.weight", "last.bias")
    }
"""


def test_a_bias_of_zeros_of_several_layers_hides_a_norm_for_each_of_them(tmp_path: Path) -> None:
    """One of the two layers is applied twice."""
    weights = {f"onnx::Conv_{number}": noise(4, 4, 1, 1, seed=number) for number in (1, 3)}
    last = {"last.weight": noise(4, 4, 1, 1), "last.bias": noise(4)}
    ledger = audit(tmp_path, BIASES, {**weights, "onnx::Conv_2": ZEROS, **last})

    # Two norms have 4 scales and 4 shifts each, and their layers perhaps a bias; 4 zeros are stored.
    stored = 3 * 16 + 4 + 4
    assert span(ledger) == (stored, stored - 4 + 2 * 8, stored - 4 + 2 * 12)


def sequence(kind: str) -> Any:
    """Return layers with norms as PyTorch initializes them."""
    from torch import nn

    if kind == "linear":
        return nn.Sequential(
            *(nn.Linear(12, 20), nn.BatchNorm1d(20), nn.ReLU()),
            *(nn.Linear(20, 16, bias=False), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3)),
        )
    if kind == "convolutions":
        return nn.Sequential(
            *(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU()),
            *(nn.Conv2d(16, 24, 3, bias=False), nn.BatchNorm2d(24), nn.LeakyReLU(0.1)),
            *(nn.Conv2d(24, 32, 1, bias=False), nn.BatchNorm2d(32), nn.Hardswish()),
            *(
                nn.ConvTranspose2d(32, 24, 2, 2, bias=False),
                nn.BatchNorm2d(24),
                nn.ReLU(),
                nn.Conv2d(24, 8, 1),
            ),
        )
    return nn.Sequential(nn.Linear(12, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 16), nn.LayerNorm(16))


@pytest.mark.export
@pytest.mark.time
@pytest.mark.filterwarnings("ignore:You are using the legacy TorchScript-based ONNX export")
@pytest.mark.filterwarnings("ignore:The feature will be removed:DeprecationWarning")
@pytest.mark.parametrize("is_dynamo", [True, False], ids=["dynamo", "torchscript"])
@pytest.mark.parametrize("is_trained", [True, False], ids=["trained", "new"])
@pytest.mark.parametrize("kind", ["convolutions", "linear", "norms"])
def test_the_range_holds_the_number_after_each_optimization(
    kind: str, is_trained: bool, is_dynamo: bool, tmp_path: Path
) -> None:
    import onnxruntime
    import torch

    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = sequence(kind).eval()
        if is_trained:
            for tensor in (*module.parameters(), *(b for b in module.buffers() if b.is_floating_point())):
                torch.nn.init.uniform_(tensor.data, 0.5, 1.5)
        inputs = torch.randn(1, 3, 12, 12) if kind == "convolutions" else torch.randn(2, 12)
    path = tmp_path / "model.onnx"
    torch.onnx.export(module, (inputs,), str(path), dynamo=is_dynamo, external_data=False, verbose=False)
    number = sum(parameter.numel() for parameter in module.parameters())

    files = [path]
    levels = onnxruntime.GraphOptimizationLevel
    for level in (levels.ORT_ENABLE_BASIC, levels.ORT_ENABLE_EXTENDED, levels.ORT_ENABLE_ALL):
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = level
        files.append(tmp_path / f"{len(files)}.onnx")
        options.optimized_model_filepath = str(files[-1])
        options.log_severity_level = 3
        onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    for file in files:
        _, least, most = span(audit_model(file))
        assert least <= number, file.name
        assert most is None or number <= most, file.name


GROUPED = (
    'g (float[1,4,9] x) => (float[1,4,6] y) {{ n = InstanceNormalization(x, "{scale}", "{shift}") {rest} }}'
)
REST = 't = Transpose<perm=[0,2,1]>(n) m = MatMul(t, "head.weight") y = Add(m, "head.bias")'


@pytest.mark.parametrize("name", ["val_{}", "_v_{}", "net//norm/Constant_{}_output_0"])
def test_ones_and_zeros_that_a_norm_is_given_are_no_parameters(name: str, tmp_path: Path) -> None:
    scale, shift = name.format(1), name.format(2)
    text = GROUPED.format(scale=scale, shift=shift, rest=REST)

    assert audit(tmp_path, text, {scale: ONES, shift: ZEROS, **HEAD}).parameters == 30
    learned = audit(tmp_path, text, {scale: noise(4), shift: noise(4, seed=1), **HEAD})
    assert learned.parameters == (38 if "val" in name or "_v" in name else 30)


def test_a_first_state_of_zeros_is_no_parameter_and_any_other_is(tmp_path: Path) -> None:
    text = """
        g (float[2,4] x) => (float[2,6] y) {
            a = Gemm(x, "head.weight", "head.bias") b = Gemm("val_1", "cell.weight") s = Add(a, b)
            r = Mul("val_1", "val_9") y = Add(s, r)
        }
    """
    rest: dict[str, Array] = {**HEAD, "cell.weight": noise(6, 6), "val_9": np.float32(0.5)}

    assert audit(tmp_path, text, {"val_1": np.zeros((2, 6), "f4"), **rest}).parameters == 66
    assert audit(tmp_path, text, {"val_1": noise(2, 6), **rest}).parameters == 78


def test_one_slope_is_a_parameter_and_the_zero_that_fills_a_missing_bias_is_none(tmp_path: Path) -> None:
    text = """
        g (float[1,4,3,3] x) => (float[1,1,3,3] y) {
            h = PRelu(x, "onnx::PRelu_41") b = Expand("val_3", "val_4") y = Conv(h, "c.weight", b)
        }
    """
    tensors: dict[str, Array] = {
        "onnx::PRelu_41": noise(1, 1, 1),
        "val_3": np.float32(0),
        "val_4": np.array([1]),
        "c.weight": noise(1, 4, 1, 1),
    }
    ledger = audit(tmp_path, text, tensors)

    assert entry(ledger, "onnx::PRelu_41").decided_by == "structure:PRelu[1]"
    assert ledger.parameters == 5


TABLE = 'g (float[1,2,5,5] x) => (float[1,2,5,5] y) { y = Add(x, "unsqueeze") }'


def test_rows_of_a_table_count_once_wherever_their_axis_went_and_there_may_have_been_others(
    tmp_path: Path,
) -> None:
    table, places = noise(20, 2), np.arange(5)[:, None] - np.arange(5) + 4
    stored = np.ascontiguousarray(table[places].transpose(2, 0, 1)[None])  # (1, heads, queries, keys)
    proto = dynamo_like(
        text_model(TABLE, {"unsqueeze": stored, "l.weight": noise(3)}),
        folded={"unsqueeze": ["bias.weight", "val_1"]},
        parameters=("l.weight",),
    )
    ledger = audit_model(save(tmp_path, proto))

    assert entry(ledger, "unsqueeze").parameters == 9 * 2
    assert span(ledger) == (21, 21, None)


def test_a_new_shape_of_two_parameters_is_computed_from_them(tmp_path: Path) -> None:
    text = 'g (float[1,3,6,6] x) => (float[1,4,4,4] y) { y = Conv(x, "view_2", "c.bias") }'
    proto = text_model(text, {"view_2": noise(4, 3, 3, 3), "c.bias": noise(4)})
    noted = dynamo_like(proto, folded={"view_2": ["c.gain", "c.weight", "val_1"]}, parameters=("c.bias",))

    assert span(audit_model(save(tmp_path, noted))) == (112, 4, None)


def test_a_part_of_one_number_of_joined_vectors_may_be_a_buffer(tmp_path: Path) -> None:
    text = 'g (float[1,4] x) => (float[1,12] y) { h = MatMul(x, "qkv.weight") y = Add(h, "cat") }'
    joined = np.concatenate([noise(4), ZEROS, noise(4, seed=1)])
    with_sources = dynamo_like(
        text_model(text, {"qkv.weight": noise(4, 12), "cat": joined}),
        folded={"cat": ["a.k_bias", "a.q_bias", "a.v_bias"]},
        parameters=("qkv.weight",),
    )

    assert span(audit_model(save(tmp_path, with_sources))) == (60, 56, 60)


FROZEN = """
    g (float[1,4,3,3] x) => (float[1,4,3,3] y) {
        c = Conv(x, "c.weight") s = Reshape("bn.weight", shape) b = Reshape("bn.bias", shape)
        v = Reshape("bn.running_var", shape) m = Reshape("bn.running_mean", shape)
        r = Sqrt(v) f = Div(s, r) o = Mul(m, f) z = Sub(b, o) p = Mul(c, f) y = Add(p, z)
    }
"""


def test_the_scale_and_shift_of_a_norm_that_is_written_out_beside_its_moments_may_be_buffers(
    tmp_path: Path,
) -> None:
    names = ("bn.weight", "bn.bias", "bn.running_mean", "bn.running_var")
    vectors: dict[str, Array] = {name: np.abs(noise(4, seed=seed)) for seed, name in enumerate(names)}
    rest: dict[str, Array] = {"c.weight": noise(4, 4, 1, 1), "shape": np.array([1, 4, 1, 1])}

    assert span(audit(tmp_path, FROZEN, {**vectors, **rest})) == (24, 16, 24)


def test_a_layer_whose_result_is_called_after_a_norm_has_it_folded_in(tmp_path: Path) -> None:
    text = """
        g (float[1,3,6,6] x) => (float[1,4,4,4] y) {
            getitem = Conv(x, "a.weight", "a.bias") y = Conv(getitem, "b.weight", "b.bias")
        }
    """
    tensors: dict[str, Array] = {"a.weight": noise(4, 3, 3, 3), "a.bias": noise(4)}
    tensors |= {"b.weight": noise(4, 4, 1, 1), "b.bias": noise(4, seed=3)}

    assert span(audit(tmp_path, text, tensors)) == (132, 136, 140)


@pytest.mark.parametrize("bias", [noise(4), ZEROS], ids=["its own", "zeros"])
def test_an_equal_parameter_that_left_its_name_alone_may_be_one_of_its_own(
    bias: Array, tmp_path: Path
) -> None:
    text = """
        g (float[1,4] x) => (float[1,4] y) {
            i = Identity("b.bias") h = MatMul(x, "a.weight") s = Add(h, "b.bias") y = Add(s, i)
        }
    """
    proto = text_model(text, {"a.weight": noise(4, 4), "b.bias": bias})
    proto.graph.node[0].output[0] = proto.graph.node[3].input[1] = "d.bias"

    # A bias of distinctive values makes the two names one parameter; zeros may be equal by chance.
    assert span(audit_model(save(tmp_path, proto))) == (20, 20, 24 if not bias.any() else 20)


def test_a_vector_again_and_again_is_one_of_a_norm_for_each_of_a_batch(tmp_path: Path) -> None:
    text = """
        g (float[1,8,3] x) => (float[1,8,6] y) {
            y0 = BatchNormalization(x, "val_1", "val_2", "val_3", "val_4") y = MatMul(y0, "l.weight")
        }
    """
    vectors: dict[str, Array] = {
        f"val_{place}": np.tile(np.abs(noise(4, seed=place)), 2) for place in (1, 2, 3, 4)
    }
    tensors: dict[str, Array] = {**vectors, "l.weight": noise(3, 6)}

    assert span(audit(tmp_path, text, tensors)) == (34, 26, 34)


def test_numbers_that_may_be_parameters_are_reported(tmp_path: Path) -> None:
    text = """
        g (float[1,4] x) => (float[1,6] y) {
            m = MatMul(x, "head.weight") a = Add(m, "head.bias") y = Mul(a, "NAME")
        }
    """
    found = {
        name: span(audit(tmp_path, text.replace("NAME", name), {**HEAD, name: np.float32(2.7)}))
        for name in ("temperature", "onnx::Mul_46", "/Exp_output_0", "val_3", "mul_2", "/Constant_output_0")
    }

    may = (30, 30, 31)
    assert found == {
        "temperature": may,
        "onnx::Mul_46": may,
        "/Exp_output_0": may,
        "val_3": (30, 30, 30),
        "mul_2": (30, 30, 30),
        "/Constant_output_0": (30, 30, 30),
    }


def test_a_head_that_a_builder_named_after_its_node_repeats_the_table(tmp_path: Path) -> None:
    text = """
        g (int64[1,3] i) => (float[1,3,9] y) {
            e = Gather("embed.weight", i) y = MatMul(e, "lm_head.MatMul.weight")
        }
    """
    table = noise(9, 4)
    tied = audit(
        tmp_path, text, {"embed.weight": table, "lm_head.MatMul.weight": np.ascontiguousarray(table.T)}
    )
    untied = audit(tmp_path, text, {"embed.weight": table, "lm_head.MatMul.weight": noise(4, 9, seed=3)})

    assert entry(tied, "lm_head.MatMul.weight").copy_of == ((), "embed.weight")
    assert (tied.parameters, untied.parameters) == (36, 72)


def test_codes_that_a_quantizer_numbered_repeat_the_bias(tmp_path: Path) -> None:
    text = """
        g (float[1,4] x) => (float[1,4] y) {
            a = DequantizeLinear("l.bias_quantized", "l.bias_quantized_scale")
            b = DequantizeLinear("l.bias0_quantized", "l.bias0_quantized_scale")
            h = MatMul(x, "l.weight") s = Add(h, a) t = MatMul(s, "l.weight") y = Add(t, b)
        }
    """
    bias = noise(4)
    tensors: dict[str, Array] = {"l.weight": noise(4, 4)}
    for name, scale in (("l.bias", 1e-4), ("l.bias0", 3e-4)):
        tensors[f"{name}_quantized"] = np.rint(bias / scale).astype("i4")
        tensors[f"{name}_quantized_scale"] = np.float32(scale)

    assert audit(tmp_path, text, tensors).parameters == 20


def test_behind_a_prefix_of_all_names_the_same_is_reported(tmp_path: Path) -> None:
    text = """
        g (float[1,3,6,6] x) => (float[1,4,4,4] y) {
            h = Conv(x, "onnx::Conv_28", "onnx::Conv_29") y = Conv(h, "head.weight", "head.bias")
        }
    """
    tensors: dict[str, Array] = {"onnx::Conv_28": noise(4, 3, 3, 3), "onnx::Conv_29": noise(4)}
    tensors |= {"head.weight": noise(4, 4, 1, 1, seed=9), "head.bias": noise(4, seed=8)}
    proto = text_model(text, tensors)

    assert span(audit_model(save(tmp_path, proto))) == (132, 136, 140)
    assert span(audit_model(save(tmp_path, onnx.compose.add_prefix(proto, "net/")))) == (132, 136, 140)


def test_codes_that_are_added_are_of_as_unknown_a_number_as_what_they_stand_for(tmp_path: Path) -> None:
    text = """
        g (float[1,4] x) => (float[1,6] y) {
            t = DequantizeLinear("onnx::Add_33_quantized", "onnx::Add_33_scale")
            s = Add(x, t) m = MatMul(s, "head.weight") y = Add(m, "head.bias")
        }
    """
    codes = quantized("onnx::Add_33", noise(3, 4))
    ledger = audit(tmp_path, text, {**codes, **HEAD})

    assert span(ledger) == (42, 30, None)
