"""Modules in the notes and names of nodes, and in tensor names that are paths."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from models import NAME_SCOPES, ramp, save, text_model

from analyzer.account.scopes.paths import node_scope, scope_nodes, tensor_path
from analyzer.model import Node
from analyzer.read import read_model


def node(name: str = "", **metadata: str) -> Node:
    keys = {"scopes": NAME_SCOPES, "namespace": "namespace"}
    noted = {keys[key]: text for key, text in metadata.items()}
    return Node((), 0, "MatMul", "", name, (), (), {}, noted)


def scopes_of(folder: Path, names: list[str], *tensors: str) -> list[str]:
    """Return the scopes of a chain of nodes with these names, in a file with tensors of those names."""
    chain = " ".join(f'["{name}"] v{i + 1} = Relu(v{i})' for i, name in enumerate(names))
    proto = text_model(
        f"g (float[2] v0) => (float[2] v{len(names)}) {{ {chain} }}", {t: ramp(2) for t in tensors}
    )
    return [scope for scope, _ in scope_nodes(read_model(save(folder, proto))).values()]


@pytest.mark.parametrize(
    ("made", "scope"),
    [
        (
            node(scopes="['', 'encoder', 'encoder.layer.0', 'linear_3']"),
            ("encoder.layer.0", "provenance:name-scopes"),
        ),
        (node(scopes="['', 'linear']"), ("", "provenance:name-scopes")),
        (node(scopes="['linear']"), ("", "provenance:name-scopes")),
        (
            node(namespace=": Bert/encoder: Encoder/encoder.layer.0: Layer/linear_3: aten.linear.default"),
            ("encoder.layer.0", "provenance:namespace"),
        ),
        (node(namespace="linear: aten.linear.default"), ("", "provenance:namespace")),
        (
            node(namespace=": Lm/model: Text/layers.0: Layer/mlp: Mlp"),
            ("model.layers.0.mlp", "provenance:namespace"),
        ),
        (node("/encoder/layer.0/query/MatMul"), ("encoder.layer.0.query", "name:node-path")),
        (node("/Add_3"), ("", "name:node-path")),
        (node("MatMul_12"), None),
        (node(""), None),
        (node(scopes="['', '_empty_nn_module_stack_from_metadata_hook', 'x']"), None),
    ],
)
def test_nodes_show_their_module(made, scope):
    assert node_scope(made) == scope


@pytest.mark.parametrize(
    "name",
    [
        *(
            "/encoder/layer.0/query/MatMul",
            "/Add_3",
            "a/b",
            "a//b",
            "//a/b",
            "a/",
            "/a/",
            "/",
            "a__/b/c",
            "a/b__/c/d",
        ),
        *("/layer/layer.0/Conv", "/a/b/b.1/b.1.c/Op", "/a.b/a.b.c", "fused /pooler/Gemm", "fused a/b/Gemm"),
        *(
            "a/b/MatMulAddFusion",
            "a/b/Read",
            "a/b/ReadVariableOp/resource",
            "a/resource",
            "a;b/c",
            "net/x;net/y/z",
        ),
        *("/a/aa.b/Op", "/aa/a.b/Op", "a/b/Fusion/c", "/Reader/Add", "é/ü.1/Op"),
    ],
)
def test_nodes_of_a_model_show_what_each_of_them_shows_alone(tmp_path, name):
    model = read_model(
        save(tmp_path, text_model(f'g (float[2] x) => (float[2] y) {{ ["{name}"] y = Relu(x) }}'))
    )

    (alone,) = model.nodes()

    assert list(scope_nodes(model).values()) == [found for found in [node_scope(alone)] if found is not None]


def test_scopes_of_nodes_go_before_their_names():
    made = node("/other/MatMul", scopes="['', 'fc', 'linear']", namespace="a: A/b: B/c: C")

    assert node_scope(made) == ("fc", "provenance:name-scopes")


@pytest.mark.parametrize("text", ["[", "__import__('os')", "3", "", "{'a': 1}", "[" * 500])
def test_scopes_that_are_no_list_are_not_evaluated_and_give_no_scope(text):
    assert node_scope(node(scopes=text)) is None


@pytest.mark.parametrize(
    ("name", "scope"),
    [
        ("/encoder/query/MatMul_quant", "encoder.query"),
        ("/encoder/query/MatMul_output_0_QuantizeLinear", "encoder.query"),
        ("/encoder/query/MatMul_token_12", "encoder.query"),
        ("/encoder/query/MatMul/MatMulScaleFusion/", "encoder.query"),
        ("/encoder/query/MatMul/MatMulAddFusion_token_3", "encoder.query"),
        ("fused /pooler/Gemm", "pooler"),
        ("fused node_linear_12", None),
        ("node_MatMul_46/MatMulAddFusion", None),
        ("node_bmm/MatMulScaleFusion//MatmulTransposeFusion/", None),
        ("/", None),
        ("//", None),
    ],
)
def test_what_optimizers_and_quantizers_add_to_a_name_is_no_module(name, scope):
    assert node_scope(node(name)) == (None if scope is None else (scope, "name:node-path"))


@pytest.mark.parametrize(
    ("name", "scope"),
    [
        ("StatefulPartitionedCall/model/dense/MatMul", "StatefulPartitionedCall.model.dense"),
        ("net/dense/BiasAdd/ReadVariableOp_DequantizeLinear", "net.dense"),
        ("net/dense/MatMul;net/dense/Relu;net/dense/BiasAdd", "net.dense"),
        ("net/conv/Conv2D;other/conv/Conv2D", None),
        ("If_0__Inline_0__/stft/Conv", "If_0__Inline_0__stft"),
    ],
)
def test_names_of_other_frameworks_are_paths_too(name, scope):
    assert node_scope(node(name)) == (None if scope is None else (scope, "name:node-path"))


def test_sequential_that_is_called_stands_once(tmp_path):
    assert scopes_of(tmp_path, ["/net/net.0/net.0.1/Conv", "/net/layer.0/Conv"]) == ["net.0.1", "net.layer.0"]


def test_module_with_a_list_of_its_own_name_is_told_from_a_sequential_by_the_names_of_tensors(tmp_path):
    names = [
        "/m/enc/enc.0/fc/Gemm",
        "/m/enc/enc.0_1/fc/Gemm",
        "/m/dec/dec.0/fc/Gemm",
        "/m/two/two.0/two.0.1/Gemm",
    ]
    tensors = ("m.enc.enc.0.fc.bias", "m.dec.0.fc.bias", "m.two.two.0.1.bias")

    found = scopes_of(tmp_path, names, *tensors)

    assert found == ["m.enc.enc.0.fc", "m.enc.enc.0_1.fc", "m.dec.0.fc", "m.two.two.0.1"]


def test_later_calls_of_a_module_are_its_own(tmp_path):
    names = ["/layer/query/MatMul", "/layer/query_1/MatMul", "/layer/query_12/Add"]

    assert scopes_of(tmp_path, names) == ["layer.query"] * 3


def test_module_whose_name_ends_in_a_number_is_itself(tmp_path):
    names = ["/h/ln/Mul", "/h/ln_1/Mul", "/h/ln_2/Mul", "/h/fc_2/MatMul"]

    found = scopes_of(tmp_path, names, "h.ln_1.weight")

    assert found == ["h.ln", "h.ln_1", "h.ln", "h.fc_2"]


def test_layers_of_another_framework_are_numbered(tmp_path):
    assert scopes_of(tmp_path, ["net/dense/MatMul", "net/dense_1/MatMul"]) == ["net.dense", "net.dense_1"]


def test_module_that_nobody_calls_is_put_before_the_path_of_its_parts(tmp_path):
    names = ["/decoder/layers.0/fc1/MatMul", "/decoder/Add", "/lm_head/MatMul"]

    found = scopes_of(tmp_path, names, "model.decoder.layers.0.fc1.bias")

    assert found == ["model.decoder.layers.0.fc1", "model.decoder", "lm_head"]


def test_prefix_that_is_not_the_only_one_is_not_guessed(tmp_path):
    tensors = ("encoder.layers.0.fc.bias", "decoder.layers.0.fc.bias")

    assert scopes_of(tmp_path, ["/layers.0/fc/MatMul"], *tensors) == ["layers.0.fc"]


def test_operator_that_reads_a_variable_does_not_decide_for_those_beside_it(tmp_path):
    names = ["net/dense/BiasAdd/ReadVariableOp", "net/dense/BiasAdd/Add", "net/dense/BiasAdd/Add_1"]

    assert scopes_of(tmp_path, names) == ["net.dense", "net.dense.BiasAdd", "net.dense.BiasAdd"]


@pytest.mark.parametrize(
    ("name", "scope"),
    [
        ("conv2d_6/kernel:0", "conv2d_6"),
        ("net/dense_3/BiasAdd/ReadVariableOp/resource:0", "net.dense_3"),
        ("net/dense/BiasAdd/ReadVariableOp_quantized_scale", "net.dense"),
        ("fire2/expand1x1_w_0", "fire2.expand1x1"),
        ("conv10_b_0", "conv10"),
        ("gpu_0/res2_0_branch2b_bn_riv_0", "gpu_0.res2_0_branch2b_bn"),
        ("/encoder/query/Transpose_output_0_zero_point", "encoder.query"),
        ("net/Const_24:0", None),
        ("onnx::MatMul_12", None),
        ("val_12", None),
        ("/x", None),
        ("a b/c d", None),
        ("", None),
    ],
)
def test_names_of_tensors_that_are_paths_show_a_module(name, scope):
    assert tensor_path(name) == scope


@pytest.mark.parametrize(
    "name",
    ["a/" * 100_000, "a/b;" * 100_000, "a/b/" + "ReadVariableOp/" * 100_000, "/a" + "_1" * 100_000 + "/b"],
)
def test_name_made_to_take_long_does_not(name: str) -> None:
    start = time.process_time()

    node_scope(node(name))
    tensor_path(name)

    assert time.process_time() - start < 5
