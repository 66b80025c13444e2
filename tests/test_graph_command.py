"""`onnxledger graph`: its outputs, and its refusals."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path
from typing import get_args
from unittest.mock import patch

import click
import jsonschema
import onnx
import pytest
from click.testing import CliRunner
from models import dynamo_like, noise, save, text_model
from onnx import numpy_helper

from analyzer.cli import command, main
from analyzer.commands.graph import graph
from analyzer.errors import UsageError
from analyzer.formats.graph import FORMATS, SUFFIXES
from analyzer.reports import GraphMetric
from analyzer.schemas import load_schema

pytestmark = pytest.mark.child  # `dot` lays out the boxes if installed

TEXT = (
    "g (float[1,2] x) => (float[1,2] y) { [one] h = MatMul(x, w) [act] r = Relu(h) [two] y = MatMul(r, v) }"
)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    proto = text_model(TEXT)
    for number, name in enumerate(("layer.0.weight", "layer.1.weight")):
        proto.graph.initializer.append(numpy_helper.from_array(noise(2, 2, seed=number), name))
        proto.graph.node[2 * number].input[1] = name
    return save(tmp_path, dynamo_like(proto, scopes={"one": "layer.0", "act": "act", "two": "layer.1"}))


@dataclass(frozen=True)
class Result:
    returncode: int
    stdout: str
    stderr: str


def run(*arguments: object, folder: Path | None = None) -> Result:
    """Run the command in this process, without Graphviz, to save the imports and to get the same picture everywhere."""
    out, err = io.StringIO(), io.StringIO()
    argv = ["onnxledger", "graph", *map(str, arguments)]
    with (
        patch.object(sys, "argv", argv),
        patch.dict(os.environ, {"PATH": ""}),
        contextlib.chdir(folder or Path.cwd()),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as ended,
    ):
        main()
    return Result(int(ended.value.code or 0), out.getvalue(), err.getvalue())


def names(path: Path) -> list[str]:
    return [row["name"] for row in json.loads(path.read_text())["nodes"]]


def test_every_format_has_a_suffix_but_one_and_every_metric_an_option() -> None:
    (metric,) = (option for option in graph.params if option.name == "metric")

    assert isinstance(metric.type, click.Choice)
    assert set(SUFFIXES.values()) == set(FORMATS) - {"model-explorer"}
    assert tuple(choice.replace("-", "_") for choice in metric.type.choices) == get_args(GraphMetric)


def test_dot_goes_to_stdout_and_nothing_to_stderr(model: Path) -> None:
    result = run(model)

    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("digraph ")
    assert "MatMul" in result.stdout


@pytest.mark.parametrize("style", sorted(FORMATS.keys() - {"png"}))
def test_format_says_what_stdout_gets(style: str, model: Path) -> None:
    result = run(model, "--format", style)

    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.endswith("\n")


def test_a_terminal_gets_no_graph_and_a_message_what_to_do(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("analyzer.commands.graph.is_terminal", lambda stream: True)

    result = CliRunner().invoke(command, ["graph", str(model)], standalone_mode=False)

    assert isinstance(result.exception, UsageError)
    assert "-o model.svg" in str(result.exception)
    assert "digraph" not in result.output


def test_a_picture_is_as_deep_as_no_box_needs_to_have_over_half(model: Path, tmp_path: Path) -> None:
    run(model, "-o", tmp_path / "out.svg")

    assert "by scope, depth 2" in (tmp_path / "out.svg").read_text()


def test_arrows_say_the_shapes_that_flow(model: Path, tmp_path: Path) -> None:
    run(model, "-o", tmp_path / "out.svg")

    assert re.search(r">\d+ x \d+<", (tmp_path / "out.svg").read_text())


def test_suffix_says_what_each_file_gets(model: Path, tmp_path: Path) -> None:
    paths = [tmp_path / f"out{suffix}" for suffix in SUFFIXES]

    result = run(model, *(argument for path in paths for argument in ("-o", path)))

    assert (result.returncode, result.stdout) == (0, "")
    assert result.stderr == f"written to {', '.join(map(str, paths))}\n"
    assert ET.parse(tmp_path / "out.graphml").getroot().tag.endswith("graphml")
    assert ET.parse(tmp_path / "out.svg").getroot().tag.endswith("svg")
    assert (tmp_path / "out.dot").read_text() == (tmp_path / "out.gv").read_text() == run(model).stdout
    jsonschema.validate(json.loads((tmp_path / "out.json").read_text()), load_schema("graph"))


def test_quiet_prints_nothing(model: Path, tmp_path: Path) -> None:
    result = run(model, "-o", tmp_path / "out.svg", "--quiet")

    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_picture_is_folded_and_shows_what_is_learned_by_default(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "out.svg"

    run(model, "--depth", 2, "-o", path)
    first = path.read_text()
    run(model, "--depth", 2, "-o", path, "--no-fold", "--all")
    second = path.read_text()

    assert "layer.0-1" in first
    assert ">act<" not in first
    assert "left out: 1 group without parameters" in first
    assert all(text in second for text in (">layer.0<", ">layer.1<", ">act<"))


def test_other_formats_are_unfolded_by_default(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "out.json"

    run(model, "--collapse", "--depth", 2, "-o", path)
    plain = names(path)
    run(model, "--collapse", "--depth", 2, "-o", path, "--fold", "--learned")

    assert plain == ["x", "act", "layer.0", "layer.1", "y"]
    assert names(path) == ["x", "layer.0-1", "y"]


def test_whole_graph_and_groups_come_from_one_run(model: Path, tmp_path: Path) -> None:
    run(model, "--depth", 2, "-o", tmp_path / "out.json", "-o", tmp_path / "out.svg")

    assert "layer.0.weight" in names(tmp_path / "out.json")
    assert "layer.0-1" in (tmp_path / "out.svg").read_text()


def test_own_groups_are_drawn(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "out.json"

    result = run(model, "--collapse", "--group", "first=layer.0", "--group", "all=layer", "-o", path)

    assert result.returncode == 0
    assert names(path) == ["x", "all", "first", "[ungrouped]", "y"]


def test_groups_of_a_config_are_drawn(model: Path, tmp_path: Path) -> None:
    (tmp_path / "onnxledger.toml").write_text('[groups]\nmine = "layer"\n')

    run(model, "--collapse", "-o", "out.json", folder=tmp_path)

    assert names(tmp_path / "out.json") == ["x", "mine", "[ungrouped]", "y"]


def test_metric_says_what_model_explorer_gets(model: Path) -> None:
    found = {
        metric: json.loads(run(model, "--format", "model-explorer", "--metric", metric).stdout)["results"]
        for metric in ("parameters", "stored-elements", "bytes")
    }

    assert [result["[value] layer.0.weight"]["value"] for result in found.values()] == [4, 4, 16]


def test_json_of_model_explorer_has_the_suffix_of_json(model: Path, tmp_path: Path) -> None:
    result = run(model, "--format", "model-explorer", "-o", tmp_path / "out.json")

    assert result.returncode == 0
    assert "results" in json.loads((tmp_path / "out.json").read_text())


def test_folder_with_parts_is_one_graph(model: Path, tmp_path: Path) -> None:
    parts = tmp_path / "parts"
    parts.mkdir()
    for name in ("encoder.onnx", "decoder.onnx"):
        (parts / name).write_bytes(model.read_bytes())

    result = run(parts, "--artifact", "--format", "json")

    assert json.loads(result.stdout)["graph"]["components"] == ["decoder", "encoder"]


def report_of(folder: Path, first: dict[str, str | None] | None) -> Path:
    path = folder / "verify.json"
    path.write_text(json.dumps({"command": "verify", "schema_version": 1, "first": first}))
    return path


def test_a_picture_marks_where_two_files_part(model: Path, tmp_path: Path) -> None:
    report = report_of(tmp_path, {"node": "two", "module": "layer.1", "reason": "two: epsilon 0.05 <&>"})
    out = tmp_path / "out.svg"

    result = run(model, "-o", out, "-o", tmp_path / "plain.svg", "--mark", report, "--no-fold")
    run(model, "-o", tmp_path / "plain.svg", "--no-fold")

    assert result.returncode == 0, result.stderr
    texts = [each.text for each in ET.parse(out).iter() if each.tag.endswith("text")]
    assert texts.count("differs from here on") == 1
    assert "two: epsilon 0.05 <&>" in texts
    boxes = [group for group in ET.parse(out).getroot() if group.find("./*[@class='marked']") is not None]
    assert [group[0].text.splitlines()[0] for group in boxes] == ["layer.1"]
    assert 'class="marked"' not in (tmp_path / "plain.svg").read_text()


def test_a_folded_box_is_marked_with_the_module_in_it(model: Path, tmp_path: Path) -> None:
    report = report_of(tmp_path, {"node": "gone", "module": "layer.1.inner", "reason": "it is skipped"})
    out = tmp_path / "out.svg"

    assert run(model, "-o", out, "--mark", report).returncode == 0

    texts = [each.text for each in ET.parse(out).iter() if each.tag.endswith("text")]
    assert {"layer.0-1", "layer.1.inner", "it is skipped"} <= {*texts}


@pytest.mark.parametrize(
    ("first", "options", "message"),
    [
        (None, ["-o", "out.svg"], "the report has no first difference"),
        (
            {"node": "nowhere", "module": None, "reason": ""},
            ["-o", "out.svg"],
            "which model.onnx does not have",
        ),
        (
            {"node": "act", "module": "act", "reason": ""},
            ["-o", "out.svg"],
            "act is in no box of this picture",
        ),
        ({"node": "two"}, ["-o", "out.svg"], "its `first` lacks 'module'"),
        ({"node": "two", "module": None, "reason": ""}, ["--collapse"], "--mark: only pictures show it"),
    ],
)
def test_a_mark_that_no_picture_has_is_refused(
    model: Path, tmp_path: Path, first: dict[str, str | None] | None, options: list[str], message: str
) -> None:
    report_of(tmp_path, first)

    result = run(model.name, *options, "--mark", "verify.json", folder=tmp_path)

    assert result.returncode == 2
    assert message in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-o", "out.gif"], "no format for the suffix '.gif'; use one of .dot, .graphml"),
        (["-o", "out.svg", "--format", "dot"], "its suffix selects svg, --format dot"),
        (["-o", "out.svg", "-o", "out.txt"], "no format for the suffix '.txt'"),
        (
            ["--depth", "2"],
            "--depth: applies only to a collapsed graph; add --collapse, or write .svg or .png",
        ),
        (["--fold", "-o", "out.graphml"], "--fold: applies only to a collapsed graph"),
        (["--by", "dtype", "-o", "out.svg"], "--by dtype: groups no nodes"),
        (["--by", "bytes", "-o", "out.svg"], "--by bytes: cannot group nodes"),
        (["--by", "names", "-o", "out.svg"], "'names' is not one of scope"),
        (["--group", "a=[", "-o", "out.svg"], "--group 'a'"),
        (["--group", "a=a", "--match", "all", "-o", "out.svg"], "--match all: a graph shows everything once"),
        (["--artifact"], "--artifact: describes a single folder"),
        (["-o", "model.onnx", "--format", "json"], "is an input of this command; name another file"),
        (["-o", "nowhere/out.svg"], "its folder does not exist"),
    ],
)
def test_bad_usage_is_refused_and_nothing_is_written(
    arguments: list[str], message: str, model: Path, tmp_path: Path
) -> None:
    before = model.read_bytes()

    result = run(model, *arguments, folder=tmp_path)

    assert (result.returncode, result.stdout) == (2, "")
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]
    assert model.read_bytes() == before


def test_external_data_is_never_written_over(tmp_path: Path) -> None:
    proto = text_model("g (float[1,2] x) => (float[1,2] y) { y = MatMul(x, w) }", {"w": noise(2, 2)})
    model = tmp_path / "model.onnx"
    onnx.save(proto, model, save_as_external_data=True, location="weights.json", size_threshold=0)
    before = (tmp_path / "weights.json").read_bytes()

    result = run(model, "-o", tmp_path / "weights.json")

    assert result.returncode == 2
    assert "is an input of this command" in result.stderr
    assert (tmp_path / "weights.json").read_bytes() == before


def test_unreadable_model_writes_nothing(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"\xff" * 100)

    result = run(tmp_path / "model.onnx", "-o", tmp_path / "out.svg")

    assert result.returncode == 2
    assert not (tmp_path / "out.svg").exists()


def test_too_many_boxes_are_refused_with_a_way_out_and_nothing_is_written(tmp_path: Path) -> None:
    proto = text_model("g () => () {}")
    proto.graph.input.extend(onnx.helper.make_tensor_value_info(f"in{i}x", 1, [2]) for i in range(500))
    model = save(tmp_path, proto)

    result = run(model, "-o", tmp_path / "out.svg", "-o", tmp_path / "out.json")

    assert result.returncode == 2
    assert "500 boxes, and more than 400 cannot be read; use a smaller --depth" in result.stderr
    assert not (tmp_path / "out.json").exists()


EVERY_STYLE = """
import sys
from analyzer.cli import command
for style in sys.argv[2:]:
    options = ["--format", style, "--collapse", "--learned", "--depth", "1"]
    command.main(["graph", sys.argv[1], *options], standalone_mode=False)
"""


@pytest.mark.child
def test_bytes_are_the_same_whatever_the_order_of_sets(tmp_path: Path) -> None:
    text = """
    g (float[1,4] x, float[1,2] z) => (float[1,2] y)
    {
        [join] c = Concat <axis = 0> (a.weight, b.weight)
        [one] h = MatMul(x, c)
        [two] i = MatMul(h, a.weight)
        [three] y = MatMul(i, b.weight)
    }
    """
    proto = text_model(text.replace("a.weight", "v").replace("b.weight", "w"))
    for number, (name, plain) in enumerate((("a.weight", "v"), ("b.weight", "w"))):
        proto.graph.initializer.append(numpy_helper.from_array(noise(2, 2, seed=number), name))
        for node in proto.graph.node:
            node.input[:] = [name if value == plain else value for value in node.input]
    model = save(tmp_path, dynamo_like(proto, scopes={"one": "one", "two": "a", "three": "b"}))
    command = [sys.executable, "-c", EVERY_STYLE, str(model), *sorted(FORMATS.keys() - {"png"})]

    found = {
        subprocess.run(
            command, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in "123"
    }

    (printed,) = found
    assert all(part in printed for part in (b"<graphml", b"digraph", b"<svg"))


PAGE = (Path(__file__).parents[1] / "docs" / "graph.md").read_text(encoding="utf-8")


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    """Save a file with the names of the smallest possible BERT."""
    layers = (
        "embeddings.word_embeddings",
        *(f"encoder.layer.{i}.output.dense" for i in range(3)),
        "pooler.dense",
    )
    values = ["x", *(f"h{i}" for i in range(len(layers) - 1)), "y"]
    lines = [
        f"[n{i}] {output} = MatMul({source}, w{i})"
        for i, (source, output) in enumerate(itertools.pairwise(values))
    ]
    proto = text_model("g (float[1,2] x) => (float[1,2] y) { " + " ".join(lines) + " }")
    for number, (layer, node) in enumerate(zip(layers, proto.graph.node, strict=True)):
        node.input[1] = f"{layer}.weight"
        array = noise(2, 2, seed=number)
        proto.graph.initializer.append(numpy_helper.from_array(array, node.input[1]))
    scopes = {f"n{number}": layer for number, layer in enumerate(layers)}
    return save(tmp_path, dynamo_like(proto, scopes=scopes))


@pytest.mark.parametrize("line", re.findall(r"^onnxledger graph .*", PAGE, re.MULTILINE))
def test_every_command_of_the_page_runs(line: str, bert: Path) -> None:
    arguments = re.split(r" [|#]", line)[0].split()[2:]
    report_of(bert.parent, {"node": "n2", "module": "encoder.layer.1.output.dense", "reason": "a scale"})

    result = run(*arguments, folder=bert.parent)

    assert result.returncode == 0, result.stderr
    assert all((bert.parent / name).is_file() for name in re.findall(r"-o (\S+\.(?!pdf)\w+)", line))


def test_the_python_of_the_page_runs(
    bert: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(bert.parent)
    known: dict[str, object] = {}

    for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(block, known)

    assert "encoder.layer.0-2 flow pooler.dense 1" in capsys.readouterr().out


@pytest.mark.child
def test_help_does_not_load_what_it_does_not_need() -> None:
    code = "import analyzer.cli, sys; print([name for name in ('networkx', 'numpy') if name in sys.modules])"

    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert result.stdout.strip() == "[]"
