"""Repeated blocks: their number and contents, and the nodes before and after, with and without names."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models import audit, ramp, text_model
from onnx import helper

from analyzer.account.group import group_by
from analyzer.account.ledger import Ledger
from analyzer.model.content import Array

D = 4


class Net:
    """Builder of a model, node by node; each weight is a value of its own."""

    def __init__(self, *inputs: str) -> None:
        self.nodes: list[str] = []
        self.weights: dict[str, Array] = {}
        self.inputs = inputs
        self._count = 0

    def weight(self, name: str, *shape: int) -> str:
        if name not in self.weights:
            self.weights[name] = ramp(*shape, start=1000 * len(self.weights))
        return f'"{name}"'

    def op(self, operator: str, *inputs: str) -> str:
        self._count += 1
        self.nodes.append(f"v{self._count} = {operator}({', '.join(inputs)})")
        return f"v{self._count}"

    def linear(self, value: str, name: str, rows: int, columns: int) -> str:
        product = self.op("MatMul", value, self.weight(f"{name}.weight", rows, columns))
        return self.op("Add", product, self.weight(f"{name}.bias", columns))

    def norm(self, value: str, name: str, width: int = D) -> str:
        scales = [self.weight(f"{name}.{kind}", width) for kind in ("weight", "bias")]
        return self.op("LayerNormalization", value, *scales)

    def attention(self, value: str, name: str, memory: str = "") -> str:
        memory = memory or value
        query = self.linear(value, f"{name}.query", D, D)
        key = self.op("Transpose", self.linear(memory, f"{name}.key", D, D))
        found = self.op("Softmax", self.op("MatMul", query, key))
        mixed = self.op("MatMul", found, self.linear(memory, f"{name}.value", D, D))
        return self.linear(mixed, f"{name}.out", D, D)

    def mlp(self, value: str, name: str, hidden: int = 3 * D) -> str:
        wide = self.op("Relu", self.linear(value, f"{name}.up", D, hidden))
        return self.linear(wide, f"{name}.down", hidden, D)

    def layer(self, value: str, name: str, *, pre_norm: bool = True) -> str:
        for part, function in (("attn", self.attention), ("mlp", self.mlp)):
            if pre_norm:
                branch = function(self.norm(value, f"{name}.{part}_norm"), f"{name}.{part}")
                value = self.op("Add", value, branch)
            else:
                value = self.norm(
                    self.op("Add", value, function(value, f"{name}.{part}")), f"{name}.{part}_norm"
                )
        return value

    def proto(self, output: str, *others: str) -> onnx.ModelProto:
        declared = ", ".join(f"float[2,{D}] {name}" for name in self.inputs)
        results = ", ".join(f"float[N,M] {name}" for name in (output, *others))
        return text_model(f"g ({declared}) => ({results}) {{ {' '.join(self.nodes)} }}", self.weights)


def nameless(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return the same model with numbers for names and without notes of its origin."""
    numbers: dict[str, str] = {}

    def number(name: str) -> str:
        return numbers.setdefault(name, str(len(numbers))) if name else name

    graph = proto.graph
    for node in graph.node:
        node.name = ""
        node.input[:] = map(number, node.input)
        node.output[:] = map(number, node.output)
    for item in (*graph.initializer, *graph.input, *graph.output):
        item.name = number(item.name)
    proto.producer_name = ""
    return proto


def blocks_of(ledger: Ledger, depth: int = 1) -> dict[str, int]:
    """Return the parameters of each block."""
    return {
        group.name: group.parameters for group in group_by(ledger, "block", depth).groups if group.tensors
    }


ATTENTION = 4 * (D * D + D) + 2 * D
MLP = D * 3 * D + 3 * D + 3 * D * D + D + 2 * D


def stack(count: int, *, pre_norm: bool = True) -> Net:
    net = Net("x")
    value = net.linear("x", "embed", D, D)
    for number in range(count):
        value = net.layer(value, f"encoder.layer.{number}", pre_norm=pre_norm)
    net.linear(net.norm(value, "final"), "head", D, 7)
    return net


def last(net: Net) -> str:
    return f"v{net._count}"


@pytest.mark.parametrize("is_named", [True, False])
@pytest.mark.parametrize("pre_norm", [True, False])
@pytest.mark.parametrize("count", [2, 3, 7])
def test_every_layer_of_a_stack_is_a_block(tmp_path, count, pre_norm, is_named):
    net = stack(count, pre_norm=pre_norm)
    proto = net.proto(last(net))

    ledger = audit(tmp_path, proto if is_named else nameless(proto))

    layers = {f"block.{number}": ATTENTION + MLP for number in range(count)}
    assert blocks_of(ledger) == {"stem": D * D + D, **layers, "head": 2 * D + 7 * D + 7}
    assert blocks_of(ledger, 2)["block.1.attention"] == ATTENTION
    assert blocks_of(ledger, 2)["block.1.feed-forward"] == MLP


def test_blocks_are_the_modules_that_their_names_say(tmp_path):
    net = stack(3)

    ledger = audit(tmp_path, net.proto(last(net)))

    [run] = ledger.blocks.runs
    assert (run.first, run.count, run.modules) == (
        0,
        3,
        tuple(f"encoder.layer.{number}" for number in range(3)),
    )


def test_layer_that_is_used_three_times_is_three_blocks_and_counts_in_the_first(tmp_path):
    net = Net("x")
    value = net.linear("x", "embed", D, D)
    for _ in range(3):
        value = net.layer(value, "shared")
    net.linear(value, "head", D, 7)

    ledger = audit(tmp_path, nameless(net.proto(last(net))))

    groups = {group.name: group for group in group_by(ledger, "block").groups}
    assert list(groups) == ["stem", "block.0", "block.1", "block.2", "head"]
    assert [groups[f"block.{number}"].parameters for number in range(3)] == [ATTENTION + MLP, 0, 0]
    assert all(groups[f"block.{number}"].nodes for number in range(3))
    assert groups["block.0"].applications == 3
    assert groups["block.0"].unshared_parameters == 3 * (ATTENTION + MLP)


def test_layer_that_is_stored_once_per_use_counts_in_the_first_block(tmp_path):
    net = Net("x")
    value = net.linear("x", "embed", D, D)
    for number in range(3):
        value = net.layer(value, f"use{number}")
    net.linear(value, "head", D, 7)
    for name in [name for name in net.weights if name.startswith("use")]:
        net.weights[name] = net.weights[f"use0{name[4:]}"]
    proto = nameless(net.proto(last(net)))
    proto.graph.initializer.sort(key=lambda tensor: -int(tensor.name))  # the last use is stored first

    ledger = audit(tmp_path, proto)

    found = {group.name: group.parameters for group in group_by(ledger, "block").groups}
    assert [found[f"block.{number}"] for number in range(3)] == [ATTENTION + MLP, 0, 0]


def test_encoder_and_decoder_are_two_runs(tmp_path):
    net = Net("x", "z")
    memory = net.linear("x", "embed", D, D)
    for number in range(2):
        memory = net.layer(memory, f"encoder.layers.{number}")
    memory = net.norm(memory, "encoder.final")
    value = net.linear("z", "decoder_embed", D, D)
    for number in range(3):
        name = f"decoder.layers.{number}"
        value = net.op("Add", value, net.attention(net.norm(value, f"{name}.n0"), f"{name}.self"))
        value = net.op("Add", value, net.attention(net.norm(value, f"{name}.n1"), f"{name}.cross", memory))
        value = net.op("Add", value, net.mlp(net.norm(value, f"{name}.n2"), f"{name}.mlp"))
    net.linear(value, "head", D, 7)

    ledger = audit(tmp_path, nameless(net.proto(last(net))))

    assert [(run.first, run.count) for run in ledger.blocks.runs] == [(0, 2), (2, 3)]
    found = blocks_of(ledger)
    assert found["block.0"] == found["block.1"] == ATTENTION + MLP
    assert found["block.2"] == found["block.3"] == found["block.4"] == 2 * ATTENTION + MLP
    assert found["stem"] == D * D + D
    assert found["between.1"] == D * D + D + 2 * D  # the encoder's last norm comes before the decoder
    assert list(found)[-2:] == ["between.1", "head"]
    assert {"block.2.attention", "block.2.attention-2", "block.2.feed-forward"} <= blocks_of(ledger, 2).keys()


def test_stages_of_a_residual_network_are_runs_whose_first_block_has_a_projection(tmp_path):
    net = Net("x")
    net.inputs = ()
    value, width = "x", 2

    def conv(value: str, name: str, columns: int, rows: int, kernel: int) -> str:
        return net.op("Conv", value, net.weight(name, columns, rows, kernel, kernel))

    value = conv(value, "stem", 2, 3, 1)
    for stage, (columns, count) in enumerate([(4, 2), (8, 3)]):
        for number in range(count):
            name = f"stages.{stage}.{number}"
            branch = conv(
                net.op("Relu", conv(value, f"{name}.a", columns, width, 1)), f"{name}.b", columns, columns, 1
            )
            shortcut = conv(value, f"{name}.c", columns, width, 1) if width != columns else value
            value = net.op("Relu", net.op("Add", branch, shortcut))
            width = columns
    nodes = " ".join(net.nodes)
    proto = text_model(f"g (float[1,3,8,8] x) => (float[N,C,H,W] {last(net)}) {{ {nodes} }}", net.weights)

    ledger = audit(tmp_path, nameless(proto))

    first, second = (2 * 4 + 16 + 2 * 4, 32), (4 * 8 + 64 + 4 * 8, 128)
    assert blocks_of(ledger) == {
        "stem": 6,
        **dict(
            zip(["block.0", "block.1", "block.2", "block.3", "block.4"], [*first, *second, 128], strict=True)
        ),
    }
    assert set(ledger.blocks.roles.values()) == {"convolution"}


def test_stages_of_one_block_each_that_widen_are_blocks_without_names_too(tmp_path):
    net = Net("x")
    net.inputs = ()
    value, width = "x", 3

    def conv(value: str, columns: int, rows: int) -> str:
        return net.op("Conv", value, net.weight(f"w{len(net.weights)}", columns, rows, 1, 1))

    value = conv(value, 3, 3)
    for columns in (4, 6, 10):
        branch = conv(net.op("Relu", conv(value, columns, width)), columns, columns)
        value = net.op("Relu", net.op("Add", branch, conv(value, columns, width)))
        width = columns
    nodes = " ".join(net.nodes)
    proto = text_model(f"g (float[1,3,8,8] x) => (float[N,C,H,W] {last(net)}) {{ {nodes} }}", net.weights)

    ledger = audit(tmp_path, nameless(proto))

    assert blocks_of(ledger) == {
        "stem": 9,
        "block.0": 2 * 3 * 4 + 16,
        "block.1": 2 * 4 * 6 + 36,
        "block.2": 2 * 6 * 10 + 100,
    }


def test_attention_and_perceptron_side_by_side_after_a_long_way_to_a_mask(tmp_path):
    """x + attention(x) + mlp(x), as in Cohere's models: neither summand is the residual stream."""
    net = Net("x")
    value = net.linear("x", "embed", D, D)
    mask = "x"
    for _ in range(40):
        mask = net.op("Relu", mask)
    mask = net.op("MatMul", mask, net.op("Transpose", mask))
    for number in range(3):
        normed = net.norm(value, f"l{number}.norm")
        query, key, values = (net.linear(normed, f"l{number}.{part}", D, D) for part in "qkv")
        scores = net.op("Add", net.op("MatMul", query, net.op("Transpose", key)), mask)
        mixed = net.op("MatMul", net.op("Softmax", scores), values)
        summed = net.op("Add", value, net.linear(mixed, f"l{number}.o", D, D))
        value = net.op("Add", summed, net.mlp(normed, f"l{number}.mlp"))
    net.linear(value, "head", D, 7)

    ledger = audit(tmp_path, nameless(net.proto(last(net))))

    layers = {f"block.{number}": ATTENTION + MLP - 2 * D for number in range(3)}
    assert blocks_of(ledger) == {"stem": D * D + D, **layers, "head": 7 * D + 7}


def test_norm_that_onnxruntime_fused_with_a_sum_is_of_what_comes_next(tmp_path):
    net = Net("x")
    value = net.linear("x", "embed", D, D)
    normed = net.norm(value, "n0")
    for number in range(3):
        for part, branch in (("a", net.attention(normed, f"{number}.a")), ("m", None)):
            branch = branch or net.mlp(normed, f"{number}.m")
            scales = [net.weight(f"{number}.{part}n.{kind}", D) for kind in ("weight", "bias")]
            net._count += 2
            normed, total = f"v{net._count - 1}", f"v{net._count}"
            operands = ", ".join([value, branch, *scales])
            net.nodes.append(
                f"{normed}, none_{total}, nil_{total}, {total} = com.microsoft.SkipLayerNormalization({operands})"
            )
            value = total
    net.linear(normed, "head", D, 7)
    proto = nameless(net.proto(last(net)))
    proto.opset_import.add(domain="com.microsoft", version=1)

    ledger = audit(tmp_path, proto)

    found = blocks_of(ledger)
    assert [found[f"block.{number}"] for number in range(3)] == [ATTENTION + MLP] * 3
    assert found["head"] == 2 * D + 7 * D + 7


def test_table_that_all_blocks_read_is_the_first_s(tmp_path):
    net = Net("x")
    value = net.linear("x", "embed", D, D)
    bias = net.op("Gather", net.weight("positions", 9, D), "places")
    net.weights["places"] = np.array([0, 3], "i8")
    for number in range(3):
        branch = net.op("Add", net.linear(value, f"{number}.a", D, D), bias)
        value = net.op("Add", value, net.linear(net.op("Relu", branch), f"{number}.b", D, D))
    net.linear(value, "head", D, 7)

    ledger = audit(tmp_path, nameless(net.proto(last(net))))

    found = blocks_of(ledger)
    assert [found[f"block.{number}"] for number in range(3)] == [
        2 * (D * D + D) + 9 * D,
        2 * (D * D + D),
        2 * (D * D + D),
    ]


def test_nothing_that_repeats_is_all_stem(tmp_path):
    net = Net("x")
    net.linear(net.linear("x", "a", D, 5), "b", 5, 7)

    ledger = audit(tmp_path, net.proto(last(net)))

    assert ledger.blocks.runs == ()
    assert set(blocks_of(ledger)) == {"stem"}


def test_plain_stack_without_residuals_repeats_too(tmp_path):
    net = Net("x")
    value = net.linear("x", "first", D, 6)
    for number in range(4):
        value = net.op("Relu", net.linear(value, f"l.{number}", 6, 6))
    net.linear(value, "head", 6, 7)

    found = blocks_of(audit(tmp_path, nameless(net.proto(last(net)))))

    assert [size for name, size in found.items() if name.startswith("block")].count(42) == 4


def test_second_output_changes_nothing(tmp_path):
    net = stack(3)
    end = last(net)
    value = "v3"

    assert blocks_of(audit(tmp_path, nameless(net.proto(end, value)))) == blocks_of(
        audit(tmp_path, nameless(stack(3).proto(end)))
    )


def test_stack_in_the_body_of_a_node_is_found(tmp_path):
    net = stack(3)
    body = nameless(net.proto(last(net))).graph
    body.name = "body"
    weights = list(body.initializer)
    inner = body.input[0].name
    del body.input[:]
    outer = helper.make_graph(
        [helper.make_node("If", ["flag"], ["y"], then_branch=body, else_branch=_identity(inner))],
        "main",
        [
            helper.make_tensor_value_info("flag", onnx.TensorProto.BOOL, []),
            helper.make_tensor_value_info(inner, onnx.TensorProto.FLOAT, [2, D]),
        ],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
    )

    ledger = audit(tmp_path, helper.make_model(outer, opset_imports=[helper.make_opsetid("", 20)]))

    assert sum(weight.ByteSize() > 0 for weight in weights) == len(ledger.entries)
    assert [blocks_of(ledger)[f"block.{number}"] for number in range(3)] == [ATTENTION + MLP] * 3
    assert blocks_of(ledger)["head"] == 2 * D + 7 * D + 7


def _identity(name: str) -> onnx.GraphProto:
    node = helper.make_node("Identity", [name], ["same"])
    return helper.make_graph(
        [node], "other", [], [helper.make_tensor_value_info("same", onnx.TensorProto.FLOAT, None)]
    )


def test_weight_without_a_name_gets_the_module_of_its_block(tmp_path):
    net = stack(4)
    for number in range(4):
        for kind in ("weight", "bias"):  # fused projections of one linear layer have lost their names
            net.weights[f"w{number}{kind}"] = net.weights.pop(f"encoder.layer.{number}.mlp.up.{kind}")
            net.nodes = [
                node.replace(f'"encoder.layer.{number}.mlp.up.{kind}"', f"w{number}{kind}")
                for node in net.nodes
            ]

    ledger = audit(tmp_path, net.proto(last(net)))

    scopes = {entry.tensor.name: entry.scope for entry in ledger.entries}
    assert all(scopes[f"w{number}weight"].startswith(f"encoder.layer.{number}") for number in range(4))


def test_what_has_a_name_in_another_block_s_module_is_in_that_block(tmp_path):
    net = stack(3)
    moved = "encoder.layer.0.mlp.down.bias"
    net.weights["encoder.layer.2.extra.bias"] = net.weights.pop(moved)
    net.nodes = [node.replace(f'"{moved}"', '"encoder.layer.2.extra.bias"') for node in net.nodes]

    ledger = audit(tmp_path, net.proto(last(net)))

    assert blocks_of(ledger)["block.0"] == ATTENTION + MLP - D
    assert blocks_of(ledger)["block.2"] == ATTENTION + MLP + D


def test_roles_are_what_operators_do(tmp_path):
    net = stack(2)
    net.nodes.insert(0, 'rows = Gather("table", ids)')
    net.weights["table"] = ramp(11, D)
    net.nodes = [node.replace("MatMul(x,", "MatMul(rows,") for node in net.nodes]
    proto = text_model(
        f"g (int64[2] ids) => (float[N,M] {last(net)}) {{ {' '.join(net.nodes)} }}", net.weights
    )

    groups = {
        group.name: group.parameters for group in group_by(audit(tmp_path, nameless(proto)), "role").groups
    }

    assert groups == {
        "attention": 2 * (ATTENTION - 2 * D),
        "embedding": 11 * D,
        "feed-forward": 2 * (MLP - 2 * D),
        "linear": D * D + D + 7 * D + 7,
        "norm": 2 * 4 * D + 2 * D,
    }


@settings(max_examples=25)
@given(st.integers(2, 6), st.booleans(), st.randoms(use_true_random=False))
def test_names_and_the_order_of_independent_nodes_change_no_block(count, pre_norm, random):
    net = stack(count, pre_norm=pre_norm)
    proto = net.proto(last(net))
    shuffled = nameless(onnx.ModelProto.FromString(proto.SerializeToString()))
    _shuffle(shuffled.graph, random)
    with TemporaryDirectory() as folder:
        found = [Counter(blocks_of(audit(Path(folder), model))) for model in (proto, shuffled)]

    assert found[0] == found[1]


def _shuffle(graph: onnx.GraphProto, random) -> None:
    """Put the nodes in another topological order."""
    waiting = list(graph.node)
    known = {item.name for item in (*graph.input, *graph.initializer)}
    ordered = []
    while waiting:
        ready = [node for node in waiting if known.issuperset(filter(None, node.input))]
        node = random.choice(ready)
        waiting.remove(node)
        known.update(node.output)
        ordered.append(node)
    del graph.node[:]
    graph.node.extend(ordered)


def test_report_says_blocks_parts_and_roles(tmp_path):
    from analyzer.formats.json import render_json
    from analyzer.reports import Inspection

    net = stack(2)
    ledger = audit(tmp_path, net.proto(last(net)))

    document = json.loads(render_json(Inspection(ledger, group_by(ledger, "block"))))

    tensors = {item["name"]: item for item in document["tensors"]}
    item = tensors["encoder.layer.1.attn.query.weight"]
    assert (item["block"], item["part"], item["layer_role"]) == ("block.1", "attention", "attention")
    assert [group["group"] for group in document["groups"]] == ["stem", "block.0", "block.1", "head"]
    assert document["blocks"][0]["modules"] == ["encoder.layer.0", "encoder.layer.1"]
