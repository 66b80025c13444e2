"""Tensors stored again in another type: cast, or as codes within a quantization step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from models import audit, dynamo_like, finding_ids, save
from onnx import TensorProto, helper, numpy_helper

from analyzer.account.audit import audit_model
from analyzer.account.copies import likeness
from analyzer.account.ledger import Ledger
from analyzer.model.content import sample_positions, transposed_positions

Array = np.ndarray[Any, Any]
Stored = dict[str, Array | onnx.TensorProto]
V, H = 48, 32
UNSEEN = np.setdiff1d(np.arange(V * H), [sample_positions(V * H), transposed_positions(V, H)])
"""Elements of the table that neither the samples nor the transposed samples contain."""


def normal(*shape: int, seed: int = 3) -> Array:
    return (np.random.default_rng(seed).standard_normal(shape) * 0.02).astype("f4")


TABLE = normal(V, H)


# ways to quantize a weight: stored tensors, and the nodes that read them


class Graph:
    """Tensors and the nodes that read them; each node's result is an output."""

    def __init__(self) -> None:
        self.tensors: Stored = {}
        self.nodes: list[onnx.NodeProto] = []

    def node(self, op: str, inputs: list[str], domain: str = "", **attributes: Any) -> str:
        name = f"h{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], domain=domain, **attributes))
        return name

    def plain(self, name: str, array: Array) -> Graph:
        self.tensors[name] = array
        self.node("Gather" if array.ndim == 2 and array.shape[0] == V else "MatMul", *reading(array, name))
        return self

    def dequantized(
        self, name: str, array: Array, *, dtype: str = "i1", axis: int | None = None, shared: bool = False
    ) -> Graph:
        """Add QDQ nodes: symmetric in int8, with zero points in uint8; per tensor, or along an axis."""
        codes, scale, zero = quantize(array, dtype, axis)
        base = "shared" if shared else name
        self.tensors |= {name: codes, f"{base}.s": scale, f"{base}.z": zero}
        attributes = {} if axis is None else {"axis": axis}
        moved = self.node("DequantizeLinear", [name, f"{base}.s", f"{base}.z"], **attributes)
        self.node("MatMul", ["x", moved])
        return self

    def integer(self, name: str, array: Array, *, axis: int | None = None) -> Graph:
        """Add an integer product as `quantize_dynamic` writes it."""
        codes, scale, zero = quantize(array, "i1", axis)
        self.tensors |= {f"{name}_quantized": codes, f"{name}_scale": scale, f"{name}_zero_point": zero}
        product = self.node("MatMulInteger", ["q", f"{name}_quantized", "", f"{name}_zero_point"])
        cast = self.node("Cast", [product], to=TensorProto.FLOAT)
        self.node("Mul", [cast, self.node("Mul", ["x", f"{name}_scale"])])
        return self

    def packed(self, name: str, array: Array, bits: int, block: int = 16) -> Graph:
        """Add a matrix (K, N) in MatMulNBits's format."""
        rows = np.ascontiguousarray(array.T)  # (N, K)
        blocks = rows.reshape(rows.shape[0], -1, block)
        scale = np.abs(blocks).max(axis=2) / (2 ** (bits - 1) - (0.5 if bits == 2 else 1))
        codes = np.clip(np.round(blocks / scale[:, :, None]) + 2 ** (bits - 1), 0, 2**bits - 1).astype("u1")
        parts = codes.reshape(*blocks.shape[:2], -1, 8 // bits)
        shifts = np.arange(0, 8, bits, dtype="u1")
        self.tensors[name] = np.bitwise_or.reduce(parts << shifts, axis=3)
        self.tensors[f"{name}.s"] = scale.astype("f4")
        attributes = {"K": rows.shape[1], "N": rows.shape[0], "bits": bits, "block_size": block}
        self.node("MatMulNBits", ["x", name, f"{name}.s"], "com.microsoft", **attributes)
        return self

    def proto(self) -> onnx.ModelProto:
        inputs = [helper.make_tensor_value_info(name, 1, None) for name in "xq"]
        tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in self.tensors.items()]
        graph = helper.make_graph(
            self.nodes,
            "g",
            inputs,
            [helper.make_tensor_value_info(self.nodes[-1].output[0], 1, None)],
            tensors,
        )
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def reading(array: Array, name: str) -> tuple[list[str]]:
    return ([name, "x"] if array.ndim == 2 and array.shape[0] == V else ["x", name],)


def quantize(array: Array, dtype: str, axis: int | None) -> tuple[Array, Array, Array]:
    """Return codes, scales and zero points."""
    rest = None if axis is None else tuple(i for i in range(array.ndim) if i != axis)
    if dtype == "u1":
        low, high = np.minimum(array.min(rest), 0), np.maximum(array.max(rest), 0)
        scale = np.asarray((high - low) / 255, "f4")
        zero = np.asarray(np.round(-low / scale))
    else:
        scale = np.asarray(np.abs(array).max(rest) / 127, "f4")
        zero = np.zeros_like(scale)
    wide = [1] * array.ndim
    if axis is not None:
        wide[axis] = -1
    codes = np.round(array / scale.reshape(wide)) + zero.reshape(wide)
    limits = np.iinfo(dtype)
    return np.clip(codes, limits.min, limits.max).astype(dtype), scale, zero.astype(dtype)


def copied(ledger: Ledger) -> dict[str, tuple[str, str]]:
    """Return (original, rule) of every copy, by name."""
    return {e.tensor.name: (e.copy_of[1], e.decided_by) for e in ledger.entries if e.copy_of is not None}


QUANTIZED = "content:quantized-copy"

# codes

SECOND: dict[str, Callable[[Graph, Array], Graph]] = {
    "int8": lambda g, w: g.integer("head", w),
    "int8 by column": lambda g, w: g.integer("head", w, axis=1),
    "int8 QDQ": lambda g, w: g.dequantized("head", w),
    "int8 QDQ by row": lambda g, w: g.dequantized("head", w, axis=0),
    "uint8 QDQ": lambda g, w: g.dequantized("head", w, dtype="u1"),
    "int16 QDQ": lambda g, w: g.dequantized("head", w, dtype="i2"),
    "8 bits": lambda g, w: g.packed("head", w, 8),
    "4 bits": lambda g, w: g.packed("head", w, 4),
    "4 bits, one block": lambda g, w: g.packed("head", w, 4, block=32),
    "2 bits": lambda g, w: g.packed("head", w, 2),
}
NAMES = {way: "head_quantized" if "QDQ" not in way and "int8" in way else "head" for way in SECOND}


@pytest.mark.parametrize("way", SECOND)
def test_tied_embedding_that_is_stored_again_for_the_head_counts_once(tmp_path, way):
    proto = SECOND[way](Graph().plain("wte.weight", TABLE), TABLE.T).proto()

    ledger = audit(tmp_path, proto)

    assert copied(ledger) == {NAMES[way]: ("wte.weight", QUANTIZED)}
    assert ledger.parameters == V * H


@pytest.mark.parametrize("way", SECOND)
def test_weight_of_other_values_is_no_copy(tmp_path, way):
    proto = SECOND[way](Graph().plain("wte.weight", TABLE), normal(H, V, seed=9)).proto()

    ledger = audit(tmp_path, proto)

    assert (copied(ledger), ledger.parameters) == ({}, 2 * V * H)


@pytest.mark.parametrize("first", ["uint8 QDQ", "int8 QDQ", "4 bits"])
@pytest.mark.parametrize("second", ["2 bits", "8 bits", "int8 by column"])
def test_weight_that_was_quantized_in_two_ways_counts_once(tmp_path, first, second):
    graph, name = Graph(), "wte.weight_quantized"
    SECOND[first](graph, TABLE if first != "4 bits" else TABLE.T)
    graph.tensors = {key.replace("head", name): array for key, array in graph.tensors.items()}
    for node in graph.nodes:
        node.input[:] = [key.replace("head", name) for key in node.input]

    ledger = audit(tmp_path, SECOND[second](graph, TABLE.T).proto())

    assert copied(ledger) == {NAMES[second]: (name, QUANTIZED)}
    assert ledger.parameters == V * H


def test_square_matrix_is_found_as_it_stands_and_transposed(tmp_path):
    square = normal(32, 32)
    graph = Graph().plain("a", square).dequantized("b", square).dequantized("c", square.T, axis=0)

    assert copied(audit(tmp_path, graph.proto())) == {"b": ("a", QUANTIZED), "c": ("a", QUANTIZED)}


def test_vector_and_tensor_of_more_dimensions_are_found_as_they_stand(tmp_path):
    kernel, bias = normal(4, 3, 2, 2), normal(64)
    proto = Graph().dequantized("k8", kernel).dequantized("b8", bias).proto()
    for name, array in (("k", kernel), ("b", bias)):
        proto.graph.initializer.append(numpy_helper.from_array(array, name))
    proto.graph.node.append(helper.make_node("Conv", ["x", "k", "b"], ["c"]))

    assert copied(audit(tmp_path, proto)) == {"k8": ("k", QUANTIZED), "b8": ("b", QUANTIZED)}


def test_the_named_is_the_original_though_it_is_less_exact_and_comes_later(tmp_path):
    graph = Graph().plain("onnx::MatMul_7", TABLE.T.copy()).dequantized("wte.weight_quantized", TABLE)

    assert copied(audit(tmp_path, graph.proto())) == {"onnx::MatMul_7": ("wte.weight_quantized", QUANTIZED)}


def test_without_names_the_most_exact_is_the_original(tmp_path):
    graph = Graph().packed("four", TABLE.T, 4).dequantized("eight", TABLE).plain("floats", TABLE.T.copy())

    assert copied(audit(tmp_path, graph.proto())) == {
        "four": ("floats", QUANTIZED),
        "eight": ("floats", QUANTIZED),
    }


def test_of_equals_the_first_in_the_file_is_the_original(tmp_path):
    graph = Graph().dequantized("a", TABLE, axis=0).dequantized("b", TABLE, axis=1)

    assert copied(audit(tmp_path, graph.proto())) == {"b": ("a", QUANTIZED)}


def test_copies_of_a_copy_are_led_to_the_original(tmp_path):
    graph = Graph().dequantized("a", TABLE).dequantized("b", TABLE).plain("wte.weight", TABLE)

    assert copied(audit(tmp_path, graph.proto())) == {
        "a": ("wte.weight", QUANTIZED),
        "b": ("wte.weight", "content:copy"),
    }


def test_equal_codes_of_other_scales_are_other_numbers(tmp_path):
    graph = Graph().dequantized("a", TABLE).dequantized("b", TABLE * 3)

    ledger = audit(tmp_path, graph.proto())

    assert (graph.tensors["a"] == graph.tensors["b"]).all()
    assert (copied(ledger), ledger.parameters) == ({}, 2 * V * H)


def test_equal_codes_of_one_scale_are_equal(tmp_path):
    graph = Graph().dequantized("a", TABLE, shared=True).dequantized("b", TABLE.T, shared=True)

    assert copied(audit(tmp_path, graph.proto())) == {"b": ("a", "content:transposed-copy")}


def test_one_element_between_the_samples_makes_a_difference(tmp_path):
    other = TABLE.copy()
    other.flat[UNSEEN[0]] += 0.002  # a quantization step is 0.0006

    assert copied(audit(tmp_path, Graph().plain("a", TABLE).dequantized("b", other).proto())) == {}
    assert copied(audit(tmp_path, Graph().plain("a", TABLE).dequantized("b", TABLE).proto())) != {}


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_constant_filled_tensors_are_never_copies(tmp_path, value):
    filled = np.full((V, H), value, "f4")
    codes = np.full((V, H), int(value * 127), "i1")
    graph = Graph().plain("a", filled).dequantized("b", TABLE)
    graph.tensors |= {"b": codes, "b.s": np.float32(1 / 127)}

    assert copied(audit(tmp_path, graph.proto())) == {}


def test_scale_so_large_that_all_is_within_a_step_proves_nothing(tmp_path):
    graph = Graph().plain("a", TABLE).dequantized("b", TABLE)
    graph.tensors |= {
        "b": np.random.default_rng(1).integers(-1, 2, (V, H)).astype("i1"),
        "b.s": np.float32(1),
    }

    assert copied(audit(tmp_path, graph.proto())) == {}


def test_norm_weights_that_are_all_near_one_are_not_each_other(tmp_path):
    first, second = (1 + normal(64, seed=seed) * 0.1 for seed in (1, 2))
    graph = Graph().plain("a", first).dequantized("b", second, dtype="u1")
    graph.nodes[0] = helper.make_node("LayerNormalization", ["x", "a"], ["h0"])

    assert np.abs(first - second).max() < 2 / 255  # within the steps of both
    assert copied(audit(tmp_path, graph.proto())) == {}


@pytest.mark.parametrize(
    ("name", "found"), [("onnx::Add_3", {}), ("fc.bias", {"fc.bias_quantized": ("fc.bias", QUANTIZED)})]
)
def test_few_elements_prove_nothing_without_a_name(tmp_path, name, found):
    bias = normal(3)
    graph = Graph().plain(name, bias).dequantized("fc.bias_quantized", bias)
    if name != "fc.bias":
        graph.tensors = {key.replace("fc.bias", "b"): array for key, array in graph.tensors.items()}
        graph.nodes[1].input[:] = [key.replace("fc.bias", "b") for key in graph.nodes[1].input]

    assert copied(audit(tmp_path, graph.proto())) == found


def test_two_with_pytorch_names_of_their_own_are_two_parameters(tmp_path):
    graph = Graph().plain("wte.weight", TABLE).dequantized("lm_head.weight_quantized", TABLE)

    ledger = audit(tmp_path, graph.proto())

    assert (copied(ledger), ledger.parameters) == ({}, 2 * V * H)


def test_codes_that_an_exporter_traced_to_another_parameter_are_another(tmp_path):
    graph = Graph().plain("val_1", TABLE).integer("val_2", TABLE.T)
    proto = dynamo_like(graph.proto(), folded={"val_1": ["a.weight"], "val_2": ["b.weight"]})

    assert copied(audit(tmp_path, proto)) == {}


def test_dims_that_claim_what_is_not_there_are_not_compared(tmp_path):
    proto = Graph().plain("a", TABLE).dequantized("b", TABLE).proto()
    for tensor in proto.graph.initializer[:2]:
        tensor.dims[:] = [2**62, 2**20]

    assert copied(audit(tmp_path, proto)) == {}


def test_codes_without_a_scale_are_not_compared(tmp_path):
    graph = Graph().plain("a", TABLE).dequantized("b", TABLE)
    del graph.tensors["b.s"]

    assert copied(audit(tmp_path, graph.proto())) == {}


def test_numbers_whose_squares_overflow_match_nothing(tmp_path):
    graph = Graph().plain("a", TABLE.astype("f8") * 1e200).dequantized("b", TABLE)
    graph.tensors["b.s"] = graph.tensors["b.s"].astype("f8") * 1e200

    assert copied(audit(tmp_path, graph.proto())) == {}


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_what_is_no_number_is_like_nothing(tmp_path, number):
    graph = Graph().plain("a", TABLE).dequantized("b", TABLE)
    graph.tensors["b.s"] = np.float32(number)

    assert copied(audit(tmp_path, graph.proto())) == {}


# casts


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [("f4", "f2"), ("f4", ml_dtypes.bfloat16), ("f8", "f4"), ("f8", "f2"), ("f8", ml_dtypes.bfloat16)],
)
@pytest.mark.parametrize("is_turned", [False, True])
def test_cast_weight_counts_once(tmp_path, wide, narrow, is_turned):
    exact = TABLE.astype(wide)
    cast = exact.astype(narrow)

    ledger = audit(
        tmp_path, Graph().plain("b", (cast.T if is_turned else cast).copy()).plain("a", exact).proto()
    )

    assert copied(ledger) == {"b": ("a", "content:cast-copy")}
    assert ledger.parameters == V * H


def test_cast_may_be_the_one_with_a_name(tmp_path):
    graph = Graph().plain("a", TABLE).plain("wte.weight", TABLE.astype("f2"))

    assert copied(audit(tmp_path, graph.proto())) == {"a": ("wte.weight", "content:cast-copy")}


def test_cast_to_bfloat16_may_cut_off(tmp_path):
    cut = (TABLE.view("u4") >> 16).astype("u2").view(ml_dtypes.bfloat16)

    assert copied(audit(tmp_path, Graph().plain("a", TABLE).plain("b", cut).proto())) == {
        "b": ("a", "content:cast-copy")
    }


def test_cast_may_have_clamped_what_float16_cannot_hold(tmp_path):
    weight = TABLE.copy()
    weight[5, 5:7] = 1e-9, 1e6
    cast = np.clip(weight, -65504, 65504).astype("f2")
    cast[5, 5] = 2.0**-24  # onnxruntime's converter keeps it from rounding to 0

    assert copied(audit(tmp_path, Graph().plain("a", weight).plain("b", cast).proto())) == {
        "b": ("a", "content:cast-copy")
    }


def test_cast_is_exact_in_every_element(tmp_path):
    cast = TABLE.astype("f2")
    cast.view("u2").flat[UNSEEN[0]] ^= 1  # one step of float16, in an element that is not sampled

    assert copied(audit(tmp_path, Graph().plain("a", TABLE).plain("b", cast).proto())) == {}


def test_two_casts_of_what_is_not_stored_are_two(tmp_path):
    graph = Graph().plain("a", TABLE.astype("f2")).plain("b", TABLE.astype(ml_dtypes.bfloat16))

    assert copied(audit(tmp_path, graph.proto())) == {}


def test_small_numbers_that_all_became_zero_are_no_copy(tmp_path):
    graph = Graph().plain("a", TABLE * 1e-9).plain("b", np.zeros((V, H), "f2"))

    assert copied(audit(tmp_path, graph.proto())) == {}


def test_integers_are_not_cast(tmp_path):
    numbers = np.arange(V * H).reshape(V, H)

    assert copied(audit(tmp_path, Graph().plain("a", numbers.astype("f4")).plain("b", numbers).proto())) == {}


# effort


@pytest.mark.parametrize("tile", [1, 5, 7, 64])
def test_tiles_of_any_size_find_the_same(tmp_path, monkeypatch, tile):
    monkeypatch.setattr(likeness, "_TILE", tile)
    other = TABLE.copy()
    other[40, 30] += 1
    graph = (
        Graph().plain("a", TABLE).dequantized("b", TABLE.T, axis=0).plain("c", TABLE.T.astype("f2").copy())
    )
    graph.dequantized("d", other).dequantized("e", normal(64)).plain("f", normal(64))

    assert copied(audit(tmp_path, graph.proto())) == {
        "b": ("a", QUANTIZED),
        "c": ("a", "content:cast-copy"),
        "e": ("f", QUANTIZED),
    }


@pytest.mark.parametrize(
    "graph",
    [
        Graph().plain("a.weight", TABLE).plain("b.weight", TABLE * 2),
        Graph().plain("a", TABLE).plain("b", TABLE * 2),
        Graph().plain("a.weight", TABLE).dequantized("b.weight_quantized", TABLE),
        Graph().plain("a", TABLE).dequantized("b", normal(7, 9)),
    ],
    ids=["named", "one type", "both named", "other shape"],
)
def test_nothing_is_read_where_no_two_may_be_copies(tmp_path, monkeypatch, graph):
    def fail(form: Any, positions: Any) -> None:
        pytest.fail(f"{form.entry.tensor.name} was read")

    monkeypatch.setattr(likeness._Form, "at", fail)

    assert copied(audit(tmp_path, graph.proto())) == {}


def test_nothing_is_compared_where_contents_are_not_looked_at(tmp_path):
    path = save(tmp_path, Graph().plain("a", TABLE).dequantized("b", TABLE).proto())

    ledger = audit_model(path, content="none")

    assert (copied(ledger), ledger.parameters) == ({}, 2 * V * H)


@pytest.mark.parametrize("content", ["sampled", "full"])
def test_large_tensors_are_compared_whole_however_far_contents_are_looked_at(tmp_path, content):
    large, last = normal(1500, 300), normal(1500, 300)
    last[1499, 1] += 1
    graph = Graph().plain("a", large).dequantized("b", large.T).dequantized("c", last)

    assert copied(audit_model(save(tmp_path, graph.proto()), content=content)) == {"b": ("a", QUANTIZED)}


def test_very_many_of_one_shape_are_not_compared(tmp_path, monkeypatch):
    monkeypatch.setattr(likeness, "_MOST", 2)
    graph = Graph().plain("a", TABLE).dequantized("b", TABLE).dequantized("c", normal(V, H, seed=5))

    assert copied(audit(tmp_path, graph.proto())) == {}


def test_of_very_many_that_agree_where_they_are_sampled_few_are_compared_whole(tmp_path, monkeypatch):
    compared: list[str] = []
    monkeypatch.setattr(likeness, "_is_like", lambda a, b, *_: bool(compared.append(b.entry.tensor.name)))

    def graph(unseen: int) -> Graph:
        made = Graph()
        for number in range(20):
            other = TABLE.copy()
            other.flat[unseen] = number
            made.plain(f"w{number}", other)
        return made.dequantized("codes", TABLE)

    salt = audit(tmp_path, graph(0).proto()).model.salt  # from the structure, which all values share
    seen = [sample_positions(V * H, salt), transposed_positions(V, H, salt)]
    compared.clear()

    audit(tmp_path, graph(int(np.setdiff1d(np.arange(V * H), seen)[0])).proto())

    assert compared == ["codes"] * 8


def test_progress_never_exceeds_its_total(tmp_path):
    steps: list[tuple[int, int]] = []
    graph = Graph().plain("a", TABLE).dequantized("b", TABLE).packed("c", normal(H, V, seed=5), 4)

    audit_model(save(tmp_path, graph.proto()), progress=lambda *step: steps.append(step))

    assert steps[:3] == [(1, 3), (2, 3), (3, 3)]
    assert all(done <= total for done, total in steps)


# messages


def test_findings_say_how_it_is_stored_again(tmp_path):
    graph = Graph().plain("wte.weight", TABLE).integer("head", TABLE.T).plain("half", TABLE.astype("f2"))

    ledger = audit(tmp_path, graph.proto())

    subjects_by_message = {f.message: f.subjects for f in ledger.findings if f.id == "duplicate-content"}
    assert subjects_by_message == {
        "1,536 elements (3,072 bytes) are stored again, cast to another type": ("half = wte.weight",),
        "1,536 elements (1,536 bytes) are stored again, as codes, within their quantization step": (
            "head_quantized = wte.weight",
        ),
    }
    assert "transposed-copy" not in finding_ids(ledger)


def artifact(folder: Path, **graphs: Graph) -> Ledger:
    for name, graph in graphs.items():
        save(folder, graph.proto(), f"{name}.onnx")
    return audit_model(folder, artifact=True)


def test_component_that_was_quantized_has_the_same_parameter(tmp_path):
    plain = Graph().plain("wte.weight", TABLE)

    ledger = artifact(tmp_path, a=plain, b=Graph().dequantized("wte.weight_quantized", TABLE))

    assert copied(ledger) == {"wte.weight_quantized": ("wte.weight", "content:quantized-duplicated-file")}
    assert (ledger.parameters, ledger.duplicated_nbytes) == (V * H, V * H)


def test_component_that_was_cast_has_the_same_parameter_under_a_name_of_its_own(tmp_path):
    plain, half = Graph().plain("enc.weight", TABLE), Graph().plain("dec.weight", TABLE.astype("f2"))

    ledger = artifact(tmp_path, a=plain, b=half)

    assert copied(ledger) == {"dec.weight": ("enc.weight", "content:cast-duplicated-file")}


def test_component_that_holds_both_names_makes_them_two(tmp_path):
    both = Graph().plain("enc.weight", TABLE).plain("dec.weight", TABLE)

    ledger = artifact(tmp_path, a=both, b=Graph().dequantized("dec.weight_quantized", TABLE))

    assert copied(ledger) == {"dec.weight_quantized": ("dec.weight", "content:quantized-duplicated-file")}
    assert ledger.parameters == 2 * V * H
