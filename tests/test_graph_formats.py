"""A graph in every format: readers of the format read it back, whatever the names in the file are."""

from __future__ import annotations

import itertools
import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import jsonschema
import networkx as nx
import pytest
from hostile import unsafe_characters
from models import audit, dynamo_like, noise, text_model
from onnx import helper, numpy_helper
from samples import WHOLE

from analyzer.account.audit import audit_model
from analyzer.account.group.keys import label_members
from analyzer.account.ledger import Ledger
from analyzer.errors import UsageError
from analyzer.formats.graph import FORMATS, PICTURES
from analyzer.formats.graph.columns import TALLEST, fold_columns
from analyzer.formats.graph.layers import Arrow
from analyzer.formats.graph.layout import lay_out
from analyzer.formats.graph.svg import MOST_BOXES, render_svg
from analyzer.graph import build_graph
from analyzer.graph.collapse import collapse_graph
from analyzer.reports import GraphMetric, GraphReport
from analyzer.schemas import load_schema

Graph = nx.MultiDiGraph

TEXT = """
<ir_version: 10, opset_import: ["" : 18, "my" : 1]>
g (bool c, float[1,2] x) => (float[1,2] z)
{
    [one] h = MatMul(x, w)
    y = If(c) <
        then_branch = t () => (float[1,2] a) { a = Add(h, b) },
        else_branch = e () => (float[1,2] d) <float[2] k = {3, 4}> { d = Sub(h, k) }
    >
    s = Constant <value = float[2] {7, 8}> ()
    m = Mul(y, s)
    [call] n = my.f(m)
    [two] z = MatMul(n, v)
}
<domain: "my", opset_import: ["" : 18]>
f (p) => (q) { u = Constant <value = float[2] {5, 6}> () q = Add(p, u) }
"""

NASTY = (
    'quote " and \\" and \\',
    "<script>alert(1)</script> & &amp; ]]>",
    "line\nbreak\r\n\ttab",
    "\x1b[2J\x07 ansi",
    "\u202egpj.exe\u2066 bidi",
    "\x00 nul \ufffe \ufffd",
    '"]; evil [label="x',
    "<<b>html</b>>",
    "名前 ünïcode 🎉",
    "a" * 3_000,
    "%s {0} $HOME `id`",
    "../../etc/passwd",
)


def model(folder: Path) -> Ledger:
    proto = text_model(TEXT)
    for number, (name, shape) in enumerate((("w", (2, 2)), ("v", (2, 2)), ("b", (2,)))):
        proto.graph.initializer.append(numpy_helper.from_array(noise(*shape, seed=number), name))
    return audit(folder, dynamo_like(proto, scopes={"one": "body.0", "two": "head"}))


def nasty(folder: Path) -> Ledger:
    """Audit a file in which every name is hostile."""
    nodes, weights, value = [], [], "x"
    for number, name in enumerate(NASTY):
        weights.append(numpy_helper.from_array(noise(2, 2, seed=number), f"{name}.weight"))
        nodes.append(helper.make_node("MatMul", [value, f"{name}.weight"], [name], name=f"/{name}/{number}"))
        value = name
    inputs = [helper.make_tensor_value_info("x", 1, [1, 2])]
    outputs = [helper.make_tensor_value_info(value, 1, [1, 2])]
    return audit(folder, helper.make_model(helper.make_graph(nodes, "g", inputs, outputs, weights)))


def whole(ledger: Ledger) -> GraphReport:
    return GraphReport(build_graph(ledger))


def groups(ledger: Ledger) -> GraphReport:
    return GraphReport(collapse_graph(ledger, label_members(ledger, "scope", 1), fold=True, learned=True))


def by_op(ledger: Ledger) -> GraphReport:
    return GraphReport(collapse_graph(ledger, label_members(ledger, "op")))


DRAWN = [whole, groups, by_op]
TEXTS = [style for style in FORMATS if style != "png"]
Draw = Callable[[Ledger], GraphReport]


# every format


@pytest.mark.parametrize("make", [model, nasty])
@pytest.mark.parametrize(
    ("style", "draw"),
    [(style, draw) for style in TEXTS for draw in DRAWN if (style, draw) != ("svg", whole)],  # groups only
)
def test_format_is_the_same_on_a_second_run_and_safe_on_a_terminal(style, draw, make, tmp_path):
    first, second = (FORMATS[style](draw(make(tmp_path))) for _ in range(2))

    assert first == second
    assert first.endswith("\n")
    assert unsafe_characters(first) == set()
    first.encode("utf-8")


@pytest.mark.parametrize("style", FORMATS)
def test_empty_model_has_every_format(style, tmp_path):
    ledger = audit(tmp_path, text_model("empty () => () {}"))

    made = FORMATS[style](groups(ledger) if style in PICTURES else whole(ledger))

    assert made.startswith(b"\x89PNG") if isinstance(made, bytes) else made.endswith("\n")


@pytest.mark.slow
@pytest.mark.parametrize("make", [model, nasty])
def test_png_is_the_same_picture_on_a_second_run(make, tmp_path):
    first, second = (FORMATS["png"](groups(make(tmp_path))) for _ in range(2))

    assert first == second
    assert first.startswith(b"\x89PNG")


# JSON


@pytest.mark.parametrize("make", [model, nasty])
@pytest.mark.parametrize("draw", DRAWN)
def test_json_matches_its_schema(draw, make, tmp_path):
    document = json.loads(FORMATS["json"](draw(make(tmp_path))), parse_constant=pytest.fail)

    jsonschema.validate(document, load_schema("graph"))
    assert list(document) == sorted(document)


@pytest.mark.parametrize("draw", DRAWN)
def test_networkx_reads_the_json_back(draw, tmp_path):
    report = draw(model(tmp_path))

    found = nx.node_link_graph(json.loads(FORMATS["json"](report)), edges="edges")

    assert list(nx.get_node_attributes(found, "name").values()) == list(
        nx.get_node_attributes(report.graph, "name").values()
    )
    assert [key for *_, key in found.edges] == [key for *_, key in report.graph.edges]
    assert found.graph["parameters"] == report.graph.graph["parameters"]


def test_json_has_names_as_they_are(tmp_path):
    document = json.loads(FORMATS["json"](whole(nasty(tmp_path))))

    names = {row["name"] for row in document["nodes"]}
    assert {name for name in NASTY if "\x00" not in name} <= {name.removesuffix(".weight") for name in names}


def test_parent_and_copy_are_ids_of_other_vertices(tmp_path):
    text = """
    g (bool c, float[1,2] x) => (float[1,2] y)
    {
        h = MatMul(x, w)
        i = MatMul(h, v)
        y = If(c) <
            then_branch = t () => (float[1,2] a) { a = Neg(i) },
            else_branch = e () => (float[1,2] b) { b = Abs(i) }
        >
    }
    """
    array = noise(2, 2)

    document = json.loads(FORMATS["json"](whole(audit(tmp_path, text_model(text, {"w": array, "v": array})))))

    rows = {row["id"]: row for row in document["nodes"]}
    (copy,) = [row for row in rows.values() if row.get("copy_of")]
    assert rows[copy["copy_of"]]["name"] == "w"
    (inner,) = [row for row in rows.values() if row.get("op_type") == "Neg"]
    assert rows[inner["parent"]]["op_type"] == "If"
    assert inner["graph_path"] == "If_2.then_branch"


# GraphML


@pytest.mark.parametrize("draw", DRAWN)
def test_networkx_reads_the_graphml_with_types(draw, tmp_path):
    report = draw(model(tmp_path))
    path = tmp_path / "graph.graphml"
    path.write_text(FORMATS["graphml"](report), encoding="utf-8")

    found = nx.read_graphml(path, force_multigraph=True)

    assert len(found) == len(report.graph)
    assert found.number_of_edges() == report.graph.number_of_edges()
    for (_, read), (_, original) in zip(found.nodes(data=True), report.graph.nodes(data=True), strict=True):
        for name in ("kind", "name", "parameters", "bytes", "share", "op_type"):
            assert read.get(name) == original.get(name)
            assert type(read.get(name)) is type(original.get(name))
    assert found.graph["collapsed"] is report.graph.graph["collapsed"]


def test_graphml_writes_a_shape_as_people_do(tmp_path):
    root = ET.fromstring(FORMATS["graphml"](whole(model(tmp_path))))

    shapes = {data.text for data in root.iter() if data.get("key") == "node.shape"}
    assert shapes == {"2x2", "2"}


@pytest.mark.parametrize("draw", DRAWN)
def test_strict_parser_reads_the_graphml_of_nasty_names(draw, tmp_path):
    root = ET.fromstring(FORMATS["graphml"](draw(nasty(tmp_path))))

    assert {element.tag.rpartition("}")[2] for element in root.iter()} == {
        "graphml",
        "key",
        "graph",
        "node",
        "edge",
        "data",
    }


# DOT

TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|->|[\w.]+|[{}\[\];,=]|\s+')
"""Tokens of Graphviz's grammar: strings, arrows, plain words and signs."""


def tokens(text: str) -> list[str]:
    found, place = [], 0
    while place < len(text):
        match = TOKEN.match(text, place)
        assert match, text[place : place + 40]
        found.append(match[0])
        place = match.end()
    return [token for token in found if not token.isspace()]


@pytest.mark.parametrize("make", [model, nasty])
@pytest.mark.parametrize("draw", DRAWN)
def test_no_name_breaks_out_of_its_quotes_in_dot(draw, make, tmp_path):
    report = draw(make(tmp_path))

    found = tokens(FORMATS["dot"](report))

    words = {token for token in found if not token.startswith('"')}
    assert all(re.fullmatch(r"n\d+|cluster_\d+|->|[{}\[\];,=]", word) or word in KNOWN for word in words)
    assert found.count("->") == report.graph.number_of_edges()


KNOWN = {
    *("digraph", "subgraph", "node", "fontname", "label", "shape", "style", "dashed"),
    *("box", "cylinder", "ellipse"),
}


def test_nested_graphs_and_functions_are_clusters(tmp_path):
    text = FORMATS["dot"](whole(model(tmp_path)))

    assert re.findall(r'subgraph cluster_\d+ \{ label="(.*)";', text) == [
        "If_1.then_branch",
        "If_1.else_branch",
        "function:my:f",
    ]


# Model Explorer


@pytest.mark.parametrize("metric", get_args(GraphMetric))
def test_node_data_add_up_to_the_model(metric, tmp_path):
    ledger = model(tmp_path)

    document = json.loads(FORMATS["model-explorer"](GraphReport(build_graph(ledger), metric)))

    assert (
        sum(result["value"] for result in document["results"].values()) == build_graph(ledger).graph[metric]
    )
    assert [threshold["value"] for threshold in document["thresholds"]] == sorted(
        threshold["value"] for threshold in document["thresholds"]
    )


def test_node_data_are_keyed_as_the_viewers_onnx_adapter_names_what_it_shows(tmp_path):
    document = json.loads(
        FORMATS["model-explorer"](GraphReport(build_graph(model(tmp_path)), "stored_elements"))
    )

    assert {key: result["value"] for key, result in document["results"].items()} == {
        "[value] w": 4,
        "[value] v": 4,
        "[value] b": 2,
        "node": 2,  # the If, the first unnamed node: the initializer of its branch
        "node_1": 2,  # the second unnamed node: the Constant
        "call": 2,  # the call: the Constant in the function's body
    }


def test_names_that_repeat_get_numbers_as_the_adapter_does_it(tmp_path):
    constants = "".join(
        f"[same] c{i} = Constant <value = float[2] {{{i}, 9}}> () y{i} = Add(x, c{i}) " for i in range(3)
    )
    proto = text_model(f"g (float[2] x) => (float[2] y0, float[2] y1, float[2] y2) {{ {constants} }}")

    document = json.loads(
        FORMATS["model-explorer"](GraphReport(build_graph(audit(tmp_path, proto)), "stored_elements"))
    )

    assert document["results"].keys() == {"same", "same_1", "same_2"}


def test_function_that_nothing_calls_still_counts(tmp_path):
    text = TEXT.replace("[call] n = my.f(m)", "[call] n = Neg(m)")
    ledger = audit(tmp_path, text_model(text))

    document = json.loads(FORMATS["model-explorer"](GraphReport(build_graph(ledger), "stored_elements")))

    assert document["results"]["function:my:f/u"] == {"value": 2}


def test_artifact_of_several_files_is_refused_by_model_explorer(tmp_path):
    for name in ("encoder.onnx", "decoder.onnx"):
        (tmp_path / name).write_bytes(text_model(TEXT).SerializeToString())
    ledger = audit_model(tmp_path, artifact=True)

    with pytest.raises(UsageError, match="artifact of several files"):
        FORMATS["model-explorer"](whole(ledger))
    assert json.loads(FORMATS["json"](whole(ledger)))["graph"]["components"] == ["decoder", "encoder"]


def test_collapsed_graph_is_one_of_the_viewers_own(tmp_path):
    ledger = model(tmp_path)
    report = GraphReport(collapse_graph(ledger, label_members(ledger, "scope", 2)))

    document = json.loads(FORMATS["model-explorer"](report))

    (graph,) = document["graphs"]
    nodes = {node["label"]: node for node in graph["nodes"]}
    assert nodes["body.0"]["namespace"] == "body"
    assert nodes["head"]["namespace"] == ""
    assert {"key": "parameters", "value": "6"} in nodes["body.0"]["attrs"]
    ids = {node["id"] for node in graph["nodes"]}
    incoming = [edge for node in graph["nodes"] for edge in node["incomingEdges"]]
    assert len(incoming) == report.graph.number_of_edges()
    assert {edge["sourceNodeId"] for edge in incoming} <= ids


# SVG

ALLOWED = {"svg", "title", "desc", "style", "g", "rect", "path", "polygon", "text"}


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(svg).iter() if element.tag.endswith("}text")]


@pytest.mark.parametrize("make", [model, nasty])
def test_picture_has_no_script_and_refers_to_nothing_outside(make, tmp_path):
    root = ET.fromstring(FORMATS["svg"](groups(make(tmp_path))))

    assert {element.tag.rpartition("}")[2] for element in root.iter()} <= ALLOWED
    assert not [
        name for element in root.iter() for name in element.attrib if "href" in name or name[:2] == "on"
    ]
    style = next(element.text or "" for element in root.iter() if element.tag.endswith("}style"))
    assert not re.search(r"url|@import|@font-face|http", style)


def test_picture_says_what_each_group_holds(tmp_path):
    found = texts(FORMATS["svg"](groups(model(tmp_path))))

    assert {"body", "head", "4 parameters", "33.3 %", "4 · 16 B", "1 MatMul"} <= set(found)
    assert found[1].startswith("12 parameters (12), 64 B in 6 tensors · by scope, depth 1")


def test_picture_folds_layers_and_says_how_many_they_are(tmp_path):
    lines = " ".join(f"v{i + 1} = MatMul(v{i}, w{i})" for i in range(3)).replace("v3 =", "y =")
    proto = text_model(f"g (float[1,2] v0) => (float[1,2] y) {{ {lines} }}")
    for number in range(3):
        proto.graph.node[number].input[1] = f"layer.{number}.weight"
        proto.graph.initializer.append(
            numpy_helper.from_array(noise(2, 2, seed=number), f"layer.{number}.weight")
        )
    ledger = audit(tmp_path, proto)

    svg = FORMATS["svg"](GraphReport(collapse_graph(ledger, label_members(ledger, "scope", 2), fold=True)))

    assert {"layer.0-2", "3 x 4 parameters", "= 12 · 12 · 48 B"} <= set(texts(svg))


def test_picture_has_a_title_and_a_description_for_who_cannot_see_it(tmp_path):
    root = ET.fromstring(FORMATS["svg"](groups(model(tmp_path))))

    title, desc = list(root)[:2]
    assert (root.get("role"), root.get("aria-labelledby")) == ("img", f"{title.get('id')} {desc.get('id')}")
    assert "12 parameters" in (title.text or "")
    assert "groups" in (desc.text or "")


def test_picture_follows_the_theme_of_its_viewer(tmp_path):
    assert "@media (prefers-color-scheme: dark)" in FORMATS["svg"](groups(model(tmp_path)))


def test_whole_name_is_in_the_tooltip_where_the_box_is_too_small_for_it(tmp_path):
    root = ET.fromstring(FORMATS["svg"](groups(nasty(tmp_path))))

    assert max(len(text) for text in texts(ET.tostring(root, encoding="unicode"))) < 120
    tooltips = [element.text or "" for element in root.iter() if element.tag.endswith("}title")]
    assert any("a" * 3_000 in tooltip for tooltip in tooltips)


def wide(boxes: int) -> Graph:
    graph = Graph(model="m", by="scope", depth=1, parameters=1, bytes=1, tensors=1, left_out=0)
    for number in range(boxes):
        graph.add_node(number, kind="input", name=f"x{number}", members=(f"x{number}",))
    return graph


def test_more_boxes_than_anybody_could_read_are_refused():
    assert render_svg(wide(MOST_BOXES), (lay_out,))
    with pytest.raises(
        UsageError, match="401 boxes, and more than 400 cannot be read; use a smaller --depth"
    ):
        render_svg(wide(MOST_BOXES + 1))


def test_first_layout_that_answers_is_drawn(tmp_path):
    graph = groups(model(tmp_path)).graph
    tried: list[str] = []

    def absent(sizes: Any, arrows: Any) -> None:
        tried.append("absent")

    assert render_svg(graph, (absent, lay_out)) == render_svg(graph, (lay_out,))
    assert tried == ["absent"]


@pytest.mark.slow
def test_a_very_large_graph_is_written(tmp_path):
    count = 100_000 if WHOLE else 20_000
    nodes = [helper.make_node("Relu", [f"v{i}"], [f"v{i + 1}"], name=f"n{i}") for i in range(count)]
    values = [helper.make_tensor_value_info(f"v{i}", 1, [2]) for i in (0, count)]
    ledger = audit(tmp_path, helper.make_model(helper.make_graph(nodes, "g", values[:1], values[1:])))
    report = whole(ledger)

    for style in ("graphml", "json", "dot", "model-explorer"):
        assert len(FORMATS[style](report)) > 0


# texts in a picture, and their fit


def test_colours_say_what_weights_do_and_a_legend_says_what_colours_mean(tmp_path):
    root = ET.fromstring(FORMATS["svg"](groups(model(tmp_path))))

    classes = {element.get("class") for element in root.iter()}
    assert "role-linear" in classes
    assert "linear" in texts(ET.tostring(root, encoding="unicode"))


def test_what_pictures_alone_say_is_in_no_other_format(tmp_path):
    document = json.loads(FORMATS["json"](groups(model(tmp_path))))

    assert not [row for row in (*document["nodes"], *document["edges"]) if "drawn" in row]


def chain(boxes: int) -> tuple[list[tuple[float, float]], list[Arrow]]:
    return [(180.0, 80.0)] * boxes, [Arrow(at, at + 1) for at in range(boxes - 1)]


@pytest.mark.parametrize("boxes", [1, 5, 20, 60])
def test_a_drawing_is_no_taller_than_a_screen_and_no_box_covers_another(boxes):
    sizes, arrows = chain(boxes)

    layout = fold_columns(lay_out(sizes, arrows), sizes, arrows)

    placed = sorted(layout.centers)
    assert layout.size[1] <= 1.35 * TALLEST or boxes > 40
    assert layout.size[0] <= 2_000
    assert all(
        abs(a[0] - b[0]) >= 180 or abs(a[1] - b[1]) >= 80 for a, b in itertools.combinations(placed, 2)
    )
    for arrow, route in zip(arrows, layout.routes, strict=True):
        source, target = layout.centers[arrow.source], layout.centers[arrow.target]
        assert len(route) % 3 == 1
        assert abs(route[0][1] - source[1]) <= 41
        assert abs(route[-1][1] - target[1]) <= 41
