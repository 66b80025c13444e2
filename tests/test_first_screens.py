"""First screens: short, with the answer in the headline and a line for each finding."""

from __future__ import annotations

import re
from pathlib import Path

import onnx
import pytest
from models import audit, external, ramp, text_model
from test_stages import SIDES, TRUNK

from analyzer.account.group import group_by
from analyzer.account.ledger import Ledger
from analyzer.documents.inspect import Value
from analyzer.formats import RenderOptions
from analyzer.formats.text import render_text
from analyzer.pages.inspect import format_value
from analyzer.reports import Inspection


def screen(ledger: Ledger, **options: object) -> list[str]:
    return render_text(Inspection(ledger, group_by(ledger)), RenderOptions(**options)).splitlines()


def network(folder: Path) -> Ledger:
    return audit(folder, text_model(f"g (float[1,3,32,64] x) => (float[1,10] y) {{ {TRUNK} }}", SIDES))


def deep(folder: Path) -> Ledger:
    """Audit forty named layers, a pooler, and an unread matrix."""
    names = [f"encoder.layer.{i}.{part}.weight" for i in range(40) for part in ("query", "output")]
    nodes = " ".join(f'h{i + 1} = MatMul(h{i}, "{name}")' for i, name in enumerate(names))
    body = f'{nodes} y = MatMul(h{len(names)}, "pooler.weight")'
    weights = {name: ramp(6, 6, start=i) for i, name in enumerate(names)}
    weights |= {"pooler.weight": ramp(6, 6, start=500), "spare.weight": ramp(6, 6, start=900)}
    return audit(folder, text_model(f"g (float[batch,6] h0) => (float[batch,6] y) {{ {body} }}", weights))


def scattered(folder: Path) -> Ledger:
    """Audit twelve matrices, each in its own missing file."""
    nodes = " ".join(f"h{i + 1} = MatMul(h{i}, w{i})" for i in range(12))
    proto = text_model(f"g (float[1,3] h0) => (float[1,3] h12) {{ {nodes} }}")
    for i in range(12):
        proto.graph.initializer.append(external(f"w{i}", [3, 3], location=f"layer-{i}.bin"))
    return audit(folder, proto)


@pytest.mark.parametrize("make", [network, deep, scattered])
def test_a_first_screen_fits_a_terminal_and_its_headline_answers(tmp_path, make):
    ledger = make(tmp_path)

    lines = screen(ledger)

    head = "\n".join(lines[:6])
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert f"{ledger.parameters:,} parameters" in head
    assert "   FLOAT 100 %" in head
    assert re.search(rf"\b{ledger.nodes} nodes: \d+ [A-Z]\w+", head)
    assert re.search(r"^in   \w+ FLOAT ", "\n".join(lines), re.MULTILINE)
    assert re.search(r"^out  \w+ FLOAT ", "\n".join(lines), re.MULTILINE)
    assert sum(line.startswith("total ") for line in lines) == 1


def test_many_files_that_are_not_there_are_one_line(tmp_path):
    lines = screen(scattered(tmp_path))

    (line,) = [line for line in lines if line.startswith("ERROR")]
    assert line.startswith("ERROR 12 external files are missing (12 tensors, 432 B)")
    assert line.endswith(" [external-missing]")


def test_a_finding_is_one_line_and_all_of_it_where_all_is_requested(tmp_path):
    ledger = deep(tmp_path)

    short, whole = screen(ledger), screen(ledger, verbose=True)

    (line,) = [line for line in short if "[unused-initializer]" in line]
    assert line.startswith("WARN 36 elements that no output depends on: spare.weight ")
    assert "WARN 36 elements (144 bytes) in 1 initializer that no output depends on" in whole
    assert "    spare.weight" in whole


def test_layers_are_one_row_in_the_order_of_the_computation(tmp_path):
    lines = screen(deep(tmp_path))

    at = next(number for number, line in enumerate(lines) if line.startswith("scope"))
    assert re.match(r"encoder\.layer\.0-39 +40 x 72 ", lines[at + 1])
    assert lines[at + 2].startswith("pooler")


def branched(folder: Path) -> Ledger:
    """Audit a table, an encoder of six layers and one matrix outside them, and a head."""
    names = ["table", *(f"encoder.layer.{i}.query" for i in range(6)), "encoder.last", "head"]
    nodes = " ".join(f'h{i + 1} = MatMul(h{i}, "{name}.weight")' for i, name in enumerate(names))
    weights = {f"{name}.weight": ramp(6, 6, start=40 * i) for i, name in enumerate(names)}
    body = f"{nodes} y = Relu(h{len(names)})"
    return audit(folder, text_model(f"g (float[2,6] h0) => (float[2,6] y) {{ {body} }}", weights))


def test_a_group_that_is_mostly_layers_is_opened_and_what_it_has_besides_stands_under_it(tmp_path):
    ledger = branched(tmp_path)
    grouping = group_by(ledger)

    lines = screen(ledger)

    at = next(number for number, line in enumerate(lines) if line.startswith("scope "))
    assert [line.split("  ")[0] for line in lines[at : at + 4]] == ["scope", "table", "encoder", ""]
    assert any(line.split()[:4] == ["layer.0-5", "6", "x", "36"] for line in lines)
    assert any(re.match(r"  \(own\) +36 ", line) for line in lines)
    assert [group.name for group in grouping.groups if group.parameters] == ["encoder", "table", "head"]
    assert sum(group.parameters for group in grouping.layers) == ledger.parameters


def test_a_requested_depth_opens_nothing(tmp_path):
    ledger = branched(tmp_path)

    assert not group_by(ledger, "scope", 1).layers


def test_a_long_name_of_a_file_is_broken_at_its_folders(tmp_path):
    folder = tmp_path / ("folder" * 12 + "abc")
    folder.mkdir()

    lines = screen(network(folder))

    assert any(line.startswith("model.onnx") for line in lines)


def test_stages_stand_in_the_order_of_the_computation(tmp_path):
    lines = screen(network(tmp_path))

    at = next(number for number, line in enumerate(lines) if line.startswith("stage (resolution)"))
    assert [line.split()[0] for line in lines[at + 1 : at + 5]] == ["16x32", "8x16", "head", "total"]
    assert "the file has no names of modules; other groups: --by block, op, dtype" in lines


@pytest.mark.parametrize(
    ("dims", "expected"),
    [
        (["batch", 3], "FLOAT batch x 3"),
        (["unk__68", "Transposeenh_dim_0", "s18", -1, None], "FLOAT ? x ? x ? x ? x ?"),
        (["component.embedder.sequence", 8], "FLOAT sequence x 8"),
        ([], "FLOAT scalar"),
        (None, "FLOAT of any rank"),
    ],
)
def test_axes_that_nobody_named_have_no_name(dims, expected):
    assert format_value(Value(name="x", dtype="FLOAT", shape=dims)) == expected


def test_a_shape_is_not_broken_over_lines_and_names_that_count_are_one(tmp_path):
    shape = "float[batch_size, num_heads, past_sequence_length, 64]"
    inputs = ", ".join(f"{shape} past_key_values_{i}" for i in range(8))
    proto = text_model(f"g ({inputs}, float[1,2] x) => (float[1,2] y) {{ y = Relu(x) }}")

    lines = screen(audit(tmp_path, proto))

    assert "in   past_key_values_0-7 FLOAT" in lines or any("past_key_values_0-7" in line for line in lines)
    assert any("batch_size x num_heads x past_sequence_length x 64" in line for line in lines)


def test_a_file_without_parameters_has_no_column_for_them(tmp_path):
    lines = screen(
        audit(tmp_path, text_model("g (float[2] x) => (float[2] y) { a = Relu(x) y = Add(a, x) }"))
    )

    title = next(line for line in lines if line.startswith("op "))
    assert title.split() == ["op", "stored", "elements", "bytes", "tensors", "nodes"]


def test_an_opset_that_no_node_is_of_is_not_printed(tmp_path):
    proto = text_model("g (float[2] x) => (float[2] y) { y = Relu(x) }")
    proto.opset_import.append(onnx.helper.make_opsetid("ai.onnx.preview.training", 1))

    assert "preview" not in "\n".join(screen(audit(tmp_path, proto)))


def test_an_encoding_without_boxes_gets_ascii_and_a_terminal_gets_colours(tmp_path):
    ledger = scattered(tmp_path)

    plain, coloured = screen(ledger, ascii=True), screen(ledger, color=True)

    assert all(line.isascii() for line in plain)
    assert any(line.startswith("\x1b[1;31mERROR\x1b[0m ") for line in coloured)
