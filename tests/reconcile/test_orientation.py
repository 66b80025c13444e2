"""Square weights that the file reads transposed against PyTorch, and honest files."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import onnx
import pytest
from models import (
    Array,
    bridge_of,
    dynamo_like,
    lines_of,
    manifest_of,
    noise,
    outs,
    parameters_of,
    quantized,
    reconcile,
    text_model,
)

from analyzer.reconciliation import Reconciliation

both = pytest.mark.parametrize("at_hand", [False, True], ids=["manifest", "weights"])

KNOWN = {"up.weight": noise(12, 8), "down.weight": noise(8, 12, seed=1), "square.weight": noise(8, 8, seed=2)}


def file_of(
    *turned: str, read: str = "MatMul(x, {})", known: dict[str, Array] | None = None
) -> onnx.ModelProto:
    """Return a model that stores each weight under a name of the file's own, some of them transposed."""
    known = known or KNOWN
    nodes = " ".join(f"y{i} = {read.format(f'v{i}')}" for i in range(len(known)))
    stored = {
        f"v{i}": array.T.copy() if name.partition(".")[0] in turned else array
        for i, (name, array) in enumerate(known.items())
    }
    return text_model(f"g (float[1] x) => ({outs(len(known))}) {{ {nodes} }}", stored)


def run_orientation(
    tmp_path,
    proto: onnx.ModelProto,
    content: Any = "full",
    *,
    at_hand: bool = False,
    known: dict[str, Array] | None = None,
) -> Reconciliation:
    known = known or KNOWN
    return reconcile(tmp_path, proto, manifest_of(*parameters_of(known)), content, known if at_hand else None)


@both
@pytest.mark.parametrize("content", ["sampled", "full"])
@pytest.mark.parametrize(
    ("turned", "line"),
    [
        (("up", "down", "square"), "transposed"),
        (("up", "down"), "differing"),
        ((), "renamed"),
        (("square",), "differing"),
        (("up", "square"), "transposed"),
        (("up",), "renamed"),
    ],
    ids=[
        "all turned",
        "all but the square",
        "none",
        "the square alone",
        "mixed, square turned",
        "mixed, square straight",
    ],
)
def test_square_weight_stands_as_those_do_whose_shape_shows_it(tmp_path, turned, line, content, at_hand):
    result = run_orientation(tmp_path, file_of(*turned), content, at_hand=at_hand)

    assert lines_of(result)["square.weight"] == line
    assert result.balanced == (line != "differing")


@both
def test_what_was_turned_is_named_with_its_entry(tmp_path, at_hand):
    result = run_orientation(tmp_path, file_of("up", "down"), at_hand=at_hand)

    assert [(finding.id, finding.subjects) for finding in result.findings] == [
        ("differing", ("square.weight",))
    ]
    assert result.parameters[2].decided_by == "content:turned"
    assert bridge_of(result)["differing"] == (1, 64, 0, 0)
    assert [piece.shape for piece in result.parameters[2].pieces] == [(8, 8)]


@both
def test_note_of_the_exporter_does_not_say_which_way_it_stands(tmp_path, at_hand):
    folded = {f"v{i}": [name] for i, name in enumerate(KNOWN)}

    assert run_orientation(
        tmp_path, dynamo_like(file_of("up", "down", "square"), folded=folded), at_hand=at_hand
    ).balanced
    assert not run_orientation(
        tmp_path, dynamo_like(file_of("up", "down"), folded=folded), at_hand=at_hand
    ).balanced


@both
def test_where_all_are_square_nothing_shows_it(tmp_path, at_hand):
    known = {"one.weight": noise(8, 8), "other.weight": noise(8, 8, seed=1)}

    assert run_orientation(tmp_path, file_of("one", known=known), at_hand=at_hand, known=known).balanced


@both
def test_operator_that_transposes_decides_the_orientation_itself(tmp_path, at_hand):
    proto = file_of("up", "down")
    proto.graph.node[2].CopyFrom(onnx.helper.make_node("Gemm", ["x", "v2"], ["y2"], transB=1))

    assert run_orientation(tmp_path, proto, at_hand=at_hand).balanced


@both
def test_parameter_that_is_no_layers_weight_may_have_any_orientation(tmp_path, at_hand):
    known = {name.replace("square.weight", "square.projection"): array for name, array in KNOWN.items()}

    assert run_orientation(
        tmp_path, file_of("up", "down", known=known), at_hand=at_hand, known=known
    ).balanced


@both
def test_symmetric_weight_stands_both_ways(tmp_path, at_hand):
    known = {**KNOWN, "square.weight": KNOWN["square.weight"] + KNOWN["square.weight"].T}

    assert run_orientation(
        tmp_path, file_of("up", "down", "square", known=known), at_hand=at_hand, known=known
    ).balanced


@both
@pytest.mark.parametrize("is_turned", [True, False])
def test_codes_are_looked_at_as_their_readers_decode_them(tmp_path, is_turned, at_hand):
    proto = file_of("up", "down")
    square = KNOWN["square.weight"]
    codes = quantized("v2", square.T.copy() if is_turned else square)
    del proto.graph.initializer[2]
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in codes.items())
    proto.graph.node.insert(0, onnx.helper.make_node("DequantizeLinear", list(codes), ["v2"]))

    assert run_orientation(tmp_path, proto, at_hand=at_hand).balanced == is_turned


def test_names_alone_show_nothing(tmp_path):
    assert run_orientation(tmp_path, file_of("up", "down"), "none").parameters[2].line != "differing"


@both
@pytest.mark.parametrize("is_turned", [True, False])
def test_what_gemm_reads_as_it_is_stands_as_all_others_do(tmp_path, is_turned, at_hand):
    turned = ("up", "down", "square") if is_turned else ("up", "down")

    assert (
        run_orientation(tmp_path, file_of(*turned, read="Gemm(x, {})"), at_hand=at_hand).balanced == is_turned
    )


@both
@pytest.mark.parametrize("is_turned", [True, False])
def test_a_weight_that_is_cast_where_it_is_read_stands_as_all_others_do(tmp_path, is_turned, at_hand):
    proto = file_of("up", "down", "square") if is_turned else file_of("up", "down")
    proto.graph.node[2].input[1] = "cast"
    proto.graph.node.insert(0, onnx.helper.make_node("Cast", ["v2"], ["cast"], to=onnx.TensorProto.FLOAT))

    assert run_orientation(tmp_path, proto, at_hand=at_hand).balanced == is_turned


def by_way(way: str, weight: Array, *, is_turned: bool) -> onnx.ModelProto:
    """Return a model whose square weight reaches its product through nodes that keep its numbers."""
    square = weight.T if is_turned else weight
    stored: dict[str, Array] = {f"v{i}": array.T.copy() for i, array in enumerate(KNOWN.values())}
    stored |= {"first": square[:3].copy(), "second": square[3:].copy(), "both": np.array([8, 8])}
    stored["flat"] = square.reshape(-1).copy()
    nodes = {
        "identities": " ".join(f"i{at + 1} = Identity({f'i{at}' if at else 'v2'})" for at in range(5000))
        + " r = Identity(i5000)",
        "two halves": "r = Concat <axis = 0> (first, second)",
        "flat": "r = Reshape(flat, both)",
        "flat, turned twice": "a = Reshape(flat, both) b = Transpose(a) r = Transpose(b)",
        "flat, turned once": "a = Reshape(flat, both) r = Transpose(a)",
    }[way]
    used = {
        name: array
        for name, array in stored.items()
        if name in ("v0", "v1") or re.search(rf"\b{name}\b", nodes)
    }
    if "v2" in used:
        used["v2"] = square.copy()
    return text_model(
        f"g (float[1] x) => ({outs(3)}) {{ {nodes} y0 = MatMul(x, v0) y1 = MatMul(x, v1) y2 = MatMul(x, r) }}",
        used,
    )


@both
@pytest.mark.parametrize(
    ("way", "as_pytorch"),
    [
        ("identities", False),
        ("two halves", False),
        ("flat", False),
        ("flat, turned twice", False),
        ("flat, turned once", True),
    ],
)
def test_it_does_not_matter_by_which_way_it_comes_to_its_product(tmp_path, way, as_pytorch, at_hand):
    """PyTorch's order of axes is right if one Transpose precedes the product, and wrong if none does."""
    square = KNOWN["square.weight"]
    right, wrong = (by_way(way, square, is_turned=is_turned) for is_turned in (not as_pytorch, as_pytorch))
    symmetric = square + square.T
    either = by_way(way, symmetric, is_turned=False)

    assert run_orientation(tmp_path, right, at_hand=at_hand).balanced
    assert run_orientation(tmp_path, wrong, at_hand=at_hand).findings[0].subjects == ("square.weight",)
    assert run_orientation(
        tmp_path, either, at_hand=at_hand, known={**KNOWN, "square.weight": symmetric}
    ).balanced
