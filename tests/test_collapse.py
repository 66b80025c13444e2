"""A model's groups as a graph: their contents, the flow between them, and permitted omissions."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import onnx
import pytest
from models import audit, dynamo_like, noise, quantized, ramp, text_model
from onnx import helper

from analyzer.account.audit import audit_model
from analyzer.account.group.keys import label_members
from analyzer.account.ledger import Ledger
from analyzer.errors import UsageError
from analyzer.graph.collapse import collapse_graph, label_own
from analyzer.graph.collapse.folding import fold_names
from analyzer.schemas import load_schema

Edge = tuple[str, str, str]

CHAIN = """
g (float[1,2] ids) => (float[1,2] out)
{
    [embed] a = MatMul(ids, embed.weight)
    [first] b = MatMul(a, encoder.0.weight)
    [second] c = MatMul(b, encoder.1.weight)
    [third] d = MatMul(c, encoder.2.weight)
    [head] out = MatMul(d, head.weight)
}
"""
SCOPES = {
    "embed": "embed",
    "first": "encoder.0",
    "second": "encoder.1",
    "third": "encoder.2",
    "head": "head",
}


def parse_dotted(text: str) -> onnx.ModelProto:
    """Parse text with dotted names, such as `encoder.0.weight`, which ONNX's text format lacks."""
    dotted = dict.fromkeys(re.findall(r"(?<![\w.\[])[a-z]\w*(?:\.\w+)+", text))
    plain = {name: name.replace(".", "__") for name in dotted}
    for name, safe in plain.items():
        text = text.replace(name, safe)
    proto = text_model(text)
    back = {safe: name for name, safe in plain.items()}
    for node in proto.graph.node:
        for names in (node.input, node.output):
            names[:] = [back.get(name, name) for name in names]
    return proto


def weigh(proto: onnx.ModelProto, **weights: Any) -> onnx.ModelProto:
    for number, (name, array) in enumerate(weights.items()):
        values = noise(*array, seed=number) if isinstance(array, tuple) else array
        proto.graph.initializer.append(onnx.numpy_helper.from_array(values, name.replace("__", ".")))
    return proto


def chain() -> onnx.ModelProto:
    proto = weigh(
        parse_dotted(CHAIN),
        embed__weight=(2, 2),
        encoder__0__weight=(2, 2),
        encoder__1__weight=(2, 2),
        encoder__2__weight=(2, 2),
        head__weight=(2, 2),
    )
    return dynamo_like(proto, scopes=SCOPES)


def collapsed(ledger: Ledger, by: str = "scope", depth: int | None = 2, **options: bool) -> nx.MultiDiGraph:
    return collapse_graph(ledger, label_members(ledger, by, depth), **options)


def edges_of(graph: nx.MultiDiGraph) -> set[Edge]:
    names = nx.get_node_attributes(graph, "name")
    return {(names[source], names[target], kind) for source, target, kind in graph.edges(keys=True)}


def flows(graph: nx.MultiDiGraph) -> set[tuple[str, str]]:
    return {(source, target) for source, target, kind in edges_of(graph) if kind == "flow"}


def attributes_of(graph: nx.MultiDiGraph, name: str) -> dict[str, Any]:
    (found,) = [attributes for _, attributes in graph.nodes(data=True) if attributes["name"] == name]
    return found


# groups, and edges between graphs


def test_groups_inputs_and_outputs_are_vertices_in_order(tmp_path):
    graph = collapsed(audit(tmp_path, chain()))

    assert list(nx.get_node_attributes(graph, "name").values()) == [
        "ids",
        "embed",
        "encoder.0",
        "encoder.1",
        "encoder.2",
        "head",
        "out",
    ]


def test_activations_flow_from_group_to_group(tmp_path):
    graph = collapsed(audit(tmp_path, chain()))

    assert flows(graph) == {
        ("ids", "embed"),
        ("embed", "encoder.0"),
        ("encoder.0", "encoder.1"),
        ("encoder.1", "encoder.2"),
        ("encoder.2", "head"),
        ("head", "out"),
    }
    ((_, _, edge),) = graph.out_edges(("group", ("embed",)), data=True)
    assert (edge["values"], edge["count"], edge["bytes"]) == (("a",), 1, 0)


def test_every_vertex_and_edge_has_the_documented_attributes_and_no_others(tmp_path):
    graph = collapsed(audit(tmp_path, chain()), fold=True)
    rows = load_schema("graph")["$defs"]

    for _, attributes in graph.nodes(data=True):
        row = rows["GraphGroup" if attributes["kind"] == "group" else "CollapsedEnd"]
        assert set(attributes) - {"drawn"} == row["properties"].keys() - {"id"}
    for _, _, attributes in graph.edges(data=True):
        assert set(attributes) == rows["Crossing"]["properties"].keys() - {"source", "target", "key"}
    assert graph.graph.keys() == rows["Graph"]["properties"].keys()


def test_shared_weight_is_an_edge_from_its_owner(tmp_path):
    text = """
    g (float[1,2] x) => (float[1,2] y)
    {
        [one] h = MatMul(x, embed.weight)
        [two] y = MatMul(h, embed.weight)
    }
    """
    proto = dynamo_like(
        weigh(parse_dotted(text), embed__weight=(2, 2)), scopes={"one": "embed", "two": "head"}
    )

    graph = collapsed(audit(tmp_path, proto))

    assert ("embed", "head", "read") in edges_of(graph)
    edge = graph.edges[("group", ("embed",)), ("group", ("head",)), "read"]
    assert (edge["values"], edge["parameters"], edge["bytes"]) == (("embed.weight",), 4, 16)


def test_weight_that_is_stored_again_is_a_copy_of_the_owners(tmp_path):
    text = "g (float[1,2] x) => (float[1,2] y) { [one] h = MatMul(x, w) [two] y = MatMul(h, v) }"
    proto = weigh(text_model(text), w=ramp(2, 2), v=ramp(2, 2))

    graph = collapsed(audit(tmp_path, dynamo_like(proto, scopes={"one": "embed", "two": "head"})), depth=1)

    assert ("embed", "head", "copy") in edges_of(graph)
    assert attributes_of(graph, "head")["parameters"] == 0
    assert attributes_of(graph, "head")["learned_bytes"] == 16


def test_values_cross_into_a_nested_graph_and_out_of_it(tmp_path):
    text = """
    g (bool c, float[2] x) => (float[2] z)
    {
        [before] h = Neg(x)
        [choice] y = If(c) <
            then_branch = t () => (float[2] a) { [inside] a = Abs(h) },
            else_branch = e () => (float[2] b) { [beside] b = Relu(h) }
        >
        [after] z = Neg(y)
    }
    """
    graph = collapsed(audit(tmp_path, text_model(text)), by="op", depth=None)

    assert {("Neg", "Abs"), ("Abs", "If"), ("Relu", "If"), ("If", "Neg"), ("c", "If")} <= flows(graph)


def test_values_cross_into_a_function_and_back_to_its_callers(tmp_path):
    text = """
    <ir_version: 10, opset_import: ["" : 18, "my" : 1]>
    g (float[2] x) => (float[2] y) { h = Abs(x) k = my.f(h) y = Neg(k) }
    <domain: "my", opset_import: ["" : 18]>
    f (a) => (b) { b = Relu(a) }
    """
    graph = collapsed(audit(tmp_path, text_model(text)), by="op", depth=None)

    assert flows(graph) == {
        ("x", "Abs"),
        ("Abs", "f"),
        ("f", "Relu"),
        ("Relu", "f"),
        ("f", "Neg"),
        ("Neg", "y"),
    }


@pytest.mark.parametrize("by", ["dtype", "role", "scope,dtype"])
def test_key_that_groups_no_nodes_is_refused(by, tmp_path):
    ledger = audit(tmp_path, chain())

    with pytest.raises(UsageError, match="groups no nodes"):
        collapsed(ledger, by=by, depth=None)


def test_own_groups_have_what_they_match_first(tmp_path):
    ledger = audit(tmp_path, chain())
    patterns = {name: re.compile(text) for name, text in (("b", "encoder"), ("a", "embed|encoder.1"))}

    graph = collapse_graph(ledger, label_own(ledger, patterns))

    assert attributes_of(graph, "b")["parameters"] == 12
    assert attributes_of(graph, "a")["parameters"] == 4
    assert flows(graph) == {("ids", "a"), ("a", "b"), ("b", "[ungrouped]"), ("[ungrouped]", "out")}


@pytest.fixture(scope="module")
def cases(shared: Path) -> list[Ledger]:
    """Ledgers of all external cases, each audited once."""
    paths = sorted((shared / "models").glob("*/*.onnx"))
    return [audit_model(path) for path in paths if path.parent.name != "corrupt"]


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"fold": True}, {"learned": True}, {"fold": True, "learned": True}])
@pytest.mark.parametrize(("by", "depth"), [("scope", 1), ("scope", 3), ("op", None), ("block", 1)])
def test_groups_add_up_for_every_external_case(by, depth, options, cases):
    for ledger in cases:
        graph = collapsed(ledger, by, depth, **options)
        groups = [found for _, found in graph.nodes(data=True) if found["kind"] == "group"]
        assert sum(group["parameters"] for group in groups) == ledger.parameters
        assert sum(group["learned_bytes"] for group in groups) == sum(
            entry.tensor.nbytes for entry in ledger.entries if entry.role == "parameter"
        )
        if not options.get("learned"):
            assert sum(group["bytes"] for group in groups) == ledger.stored_nbytes
            assert sum(group["nodes"] for group in groups) == sum(1 for _ in ledger.model.nodes())
        if not options.get("fold"):
            assert sum(len(group["members"]) for group in groups) == len(groups)
        assert not graph.graph["left_out"] or options.get("learned")


# folding


def test_numbered_neighbours_with_equal_contents_are_one(tmp_path):
    graph = collapsed(audit(tmp_path, chain()), fold=True)

    folded = attributes_of(graph, "encoder.0-2")
    assert folded["members"] == ("encoder.0", "encoder.1", "encoder.2")
    assert (folded["parameters"], folded["tensors"], folded["nodes"]) == (12, 3, 3)
    assert flows(graph) == {
        ("ids", "embed"),
        ("embed", "encoder.0-2"),
        ("encoder.0-2", "encoder.0-2"),
        ("encoder.0-2", "head"),
        ("head", "out"),
    }


def test_what_goes_from_layer_to_layer_recurs_and_what_enters_or_leaves_does_not(tmp_path):
    graph = collapsed(audit(tmp_path, chain()), fold=True)

    recurring = [(source, target) for source, target, edge in graph.edges(data=True) if edge["recurs"]]
    assert recurring == [(("groups", "encoder.0-2"), ("groups", "encoder.0-2"))]


@pytest.mark.parametrize(
    ("shape", "runs"), [((2, 3), ["encoder.0-1", "encoder.2"]), ((2, 2), ["encoder.0-2"])]
)
def test_only_the_same_parameters_fold(shape, runs, tmp_path):
    proto = chain()
    del proto.graph.initializer[3]
    proto.graph.initializer.append(onnx.numpy_helper.from_array(noise(*shape, seed=9), "encoder.2.weight"))

    graph = collapsed(audit(tmp_path, proto), fold=True)

    names = [name for name in nx.get_node_attributes(graph, "name").values() if name.startswith("encoder")]
    assert names == runs


def test_layers_fold_whole_or_not_at_all(tmp_path):
    text = "g (float[1,2] x) => (float[1,2] y) {\n" + "\n".join(
        f"[n{i}{part}] v{2 * i + j + 1} = MatMul(v{2 * i + j}, layer.{i}.{part}.weight)"
        for i in range(4)
        for j, part in enumerate(("attention", "output"))
    )
    text = text.replace("MatMul(v0,", "MatMul(x,").replace("v8 =", "y =") + "\n}"
    shapes = {f"layer__{i}__{part}__weight": (2, 2) for i in range(4) for part in ("attention", "output")}
    shapes["layer__0__attention__weight"] = (2, 3)

    graph = collapsed(audit(tmp_path, weigh(parse_dotted(text), **shapes)), depth=3, fold=True)

    names = [name for name in nx.get_node_attributes(graph, "name").values() if name.startswith("layer")]
    assert names == ["layer.0.attention", "layer.0.output", "layer.1-3.attention", "layer.1-3.output"]
    recurring = {
        (graph.nodes[source]["name"], graph.nodes[target]["name"])
        for source, target, edge in graph.edges(data=True)
        if edge["recurs"]
    }
    assert recurring == {("layer.1-3.output", "layer.1-3.attention")}


def test_group_that_is_called_as_a_fold_would_be_stays_apart(tmp_path):
    proto = chain()
    proto.graph.node[4].input[1] = "encoder.0-2.weight"
    proto.graph.initializer[4].name = "encoder.0-2.weight"

    graph = collapsed(audit(tmp_path, dynamo_like(proto, scopes={"head": "encoder.0-2"})), fold=True)

    parameters = [
        found["parameters"] for _, found in graph.nodes(data=True) if found["name"] == "encoder.0-2"
    ]
    assert sorted(parameters) == [4, 12]


def test_inputs_that_count_and_feed_the_same_are_one(tmp_path):
    values = [helper.make_tensor_value_info(f"past.{i}.key", 1, [2]) for i in range(3)]
    node = helper.make_node("Sum", [value.name for value in values], ["y"])
    outputs = [helper.make_tensor_value_info("y", 1, [2])]
    proto = helper.make_model(helper.make_graph([node], "g", values, outputs))

    graph = collapsed(audit(tmp_path, proto), depth=1, fold=True)

    folded = attributes_of(graph, "past.0-2.key")
    assert folded["members"] == ("past.0.key", "past.1.key", "past.2.key")
    assert ("inputs", (), "past.0-2.key") in graph


@pytest.mark.parametrize(
    "names",
    [
        {"past.0.key": 1, "past.2.key": 1},
        {"past.0.key": 1, "past.1.key": 2},
        {"past.0.1": 1, "past.1.2": 1},
        {"x1": 1, "x2": 1},
    ],
)
def test_names_that_do_not_count_alike_stay_apart(names):
    assert fold_names(names) == {name: name for name in names}


# only groups with weights


def test_groups_without_weights_are_left_out_and_what_flows_through_them_is_joined(tmp_path):
    text = """
    g (float[1,2] x, float[1,2] mask) => (float[1,2] y)
    {
        [one] a = MatMul(x, w)
        [act] b = Relu(a)
        [side] m = Neg(mask)
        [plus] c = Add(b, m)
        [two] y = MatMul(c, v)
    }
    """
    scopes = {"one": "one", "act": "act", "side": "side", "plus": "plus", "two": "two"}
    proto = dynamo_like(weigh(text_model(text), w=(2, 2), v=(2, 2)), scopes=scopes)

    graph = collapsed(audit(tmp_path, proto), depth=1, learned=True)

    assert flows(graph) == {("x", "one"), ("one", "two"), ("mask", "two"), ("two", "y")}
    assert graph.graph["left_out"] == 3


def test_shapes_are_no_data(tmp_path):
    text = """
    g (float[1,2] x, float[1,2] like) => (float[1,2] y)
    {
        [one] a = MatMul(x, w)
        [shape] s = Shape(like)
        [fill] z = ConstantOfShape(s)
        [plus] b = Add(a, z)
        [two] y = MatMul(b, v)
    }
    """
    scopes = {"one": "one", "shape": "other", "fill": "other", "plus": "other", "two": "two"}
    proto = dynamo_like(weigh(text_model(text), w=(2, 2), v=(2, 2)), scopes=scopes)

    graph = collapsed(audit(tmp_path, proto), depth=1, learned=True)

    assert flows(graph) == {("x", "one"), ("one", "two"), ("two", "y")}


def residual(layers: int) -> onnx.ModelProto:
    """Return a model whose layers each read the sum of all before."""
    lines = [f"h{i} = MatMul(s{i}, layers.{i}.weight)\n s{i + 1} = Add(s{i}, h{i})" for i in range(layers)]
    text = "\n".join(lines).replace("(s0,", "(x,").replace("Add(s0", "Add(x").replace(f"s{layers} =", "y =")
    shapes = {f"layers__{i}__weight": (2, 2) for i in range(layers)}
    proto = weigh(parse_dotted(f"g (float[1,2] x) => (float[1,2] y) {{ {text} }}"), **shapes)
    for number, node in enumerate(proto.graph.node):
        node.name = f"node{number}"
    scopes = {f"node{2 * i}": f"layers.{i}" for i in range(layers)}
    return dynamo_like(proto, scopes=scopes)


def test_residual_stream_is_no_edge_from_each_layer_to_all_later_ones(tmp_path):
    graph = collapsed(audit(tmp_path, residual(4)), learned=True)

    assert flows(graph) == {
        ("x", "layers.0"),
        ("layers.0", "layers.1"),
        ("layers.1", "layers.2"),
        ("layers.2", "layers.3"),
        ("layers.3", "y"),
    }


def test_circle_of_groups_keeps_its_edges(tmp_path):
    text = """
    g (float[1,2] x) => (float[1,2] y)
    {
        [one] a = MatMul(x, w)
        [act] b = Relu(a)
        [two] c = MatMul(b, v)
        [act2] d = Relu(c)
        [three] y = MatMul(d, w)
    }
    """
    scopes = {"one": "one", "three": "one", "act": "act", "act2": "act", "two": "two"}
    proto = dynamo_like(weigh(text_model(text), w=(2, 2), v=(2, 2)), scopes=scopes)

    graph = collapsed(audit(tmp_path, proto), depth=1, learned=True)

    assert flows(graph) == {("x", "one"), ("one", "two"), ("two", "one"), ("one", "y")}


def test_group_that_computes_with_anothers_weight_stays(tmp_path):
    text = """
    g (int64[1] ids) => (float[1,3] y)
    {
        [embed] a = Gather(head.weight, ids)
        [norm] b = Mul(a, norm.weight)
        [tie] t = Transpose <perm = [1, 0]> (head.weight)
        [head] y = MatMul(b, t)
    }
    """
    proto = weigh(parse_dotted(text), head__weight=(3, 2), norm__weight=(2,))
    scopes = {"embed": "embed", "norm": "norm", "tie": "tie", "head": "head"}

    graph = collapsed(audit(tmp_path, dynamo_like(proto, scopes=scopes)), depth=1, learned=True)

    assert edges_of(graph) == {
        ("ids", "embed", "flow"),
        ("head", "embed", "read"),
        ("embed", "norm", "flow"),
        ("norm", "head", "flow"),
        ("head", "y", "flow"),
    }


def test_quantized_file_has_the_edges_of_the_one_that_it_was_made_from(tmp_path):
    text = """
    g (float[1,4] x) => (float[1,4] y)
    {
        [one] a = MatMul(x, one.weight)
        [two] y = MatMul(a, two.weight)
    }
    """
    codes = """
    g (float[1,4] x) => (float[1,4] y)
    {
        u = DequantizeLinear(one.weight_quantized, one.weight_scale)
        [one] a = MatMul(x, u)
        v = DequantizeLinear(two.weight_quantized, two.weight_scale)
        [two] y = MatMul(a, v)
    }
    """
    scopes = {"one": "one", "two": "two"}
    arrays = {name: noise(4, 4, seed=seed) for seed, name in enumerate(("one.weight", "two.weight"))}
    plain = dynamo_like(weigh(parse_dotted(text), **arrays), scopes=scopes)
    packed = {name: array for key, values in arrays.items() for name, array in quantized(key, values).items()}
    small = dynamo_like(weigh(parse_dotted(codes), **packed), scopes=scopes)

    wanted = edges_of(collapsed(audit(tmp_path, plain), depth=1, learned=True))
    found = edges_of(collapsed(audit(tmp_path, small), depth=1, learned=True))

    assert found == wanted == {("x", "one", "flow"), ("one", "two", "flow"), ("two", "y", "flow")}


def test_node_without_a_group_goes_with_the_weight_that_it_applies(tmp_path):
    text = "g (float[1,2] x) => (float[1,2] y) { [lost] a = MatMul(x, one.weight) y = MatMul(a, two.weight) }"
    proto = weigh(parse_dotted(text), one__weight=(2, 2), two__weight=(2, 2))
    ledger = audit(tmp_path, proto)
    labels = label_members(ledger, "scope", 1)
    unscoped = {**dict.fromkeys(labels.nodes or {}, ("[unscoped]",))}

    graph = collapse_graph(ledger, labels.__class__("scope", 1, labels.entries, unscoped), learned=True)

    assert flows(graph) == {("x", "one"), ("one", "two"), ("two", "y")}


def test_model_without_weights_is_drawn_whole(tmp_path):
    ledger = audit(tmp_path, text_model("g (float[2] x) => (float[2] y) { h = Relu(x) y = Neg(h) }"))

    graph = collapsed(ledger, "op", None, learned=True)

    assert flows(graph) == {("x", "Relu"), ("Relu", "Neg"), ("Neg", "y")}
    assert graph.graph["left_out"] == 0


def test_more_groups_than_can_be_joined_are_refused(tmp_path):
    count = 2_001
    nodes = [helper.make_node("Add", [f"v{i}", f"w{i}.weight"], [f"v{i + 1}"]) for i in range(count)]
    nodes.append(helper.make_node("Relu", [f"v{count}"], ["y"], name="/other/Relu"))
    weights = [
        onnx.numpy_helper.from_array(np.float32([i, i + 1]), f"w{i}.weight") for i in range(1, count + 1)
    ]
    weights.append(onnx.numpy_helper.from_array(np.float32([1, 2]), "w0.weight"))
    values = [helper.make_tensor_value_info(name, 1, [2]) for name in ("v0", "y")]
    proto = helper.make_model(helper.make_graph(nodes, "g", values[:1], values[1:], weights))
    ledger = audit(tmp_path, proto)

    with pytest.raises(UsageError, match="more than the 2,000 that can be joined"):
        collapsed(ledger, learned=True)


def test_recursive_functions_and_their_callers_come_to_an_end(tmp_path):
    text = """
    <ir_version: 10, opset_import: ["" : 18, "my" : 1]>
    g (float[1,2] x) => (float[1,2] y) { h = my.f(x) y = MatMul(h, w) }
    <domain: "my", opset_import: ["" : 18, "my" : 1]>
    f (a) => (b) { c = my.f(a) b = Relu(c) }
    """
    ledger = audit(Path(tmp_path), weigh(text_model(text), w=(2, 2)))

    graph = collapsed(ledger, "op", None, learned=True)

    assert ("MatMul", "y") in flows(graph)
