"""Reports as text: 80 columns, columns that add up, names that cannot escape."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from models import audit, external, manifest_of, parameter, parameters_of, ramp, raw, reconcile, text_model
from onnx import numpy_helper

from analyzer.account.group import group_by
from analyzer.account.group.patterns import group_by_patterns, parse_patterns
from analyzer.account.ledger import Blocks, Entry, Grouping, Ledger, Member, Run
from analyzer.comparison import compare_ledgers
from analyzer.documents.shared import Finding
from analyzer.formats.html import render_html
from analyzer.formats.markdown import render_markdown
from analyzer.formats.options import RenderOptions
from analyzer.formats.text import render_text
from analyzer.formats.text.writer import write_text
from analyzer.pages.page import Findings, Page, Problem
from analyzer.pages.shared import list_findings
from analyzer.reports import ExportReport, Inspection, ReconcileReport
from analyzer.text import format_others

EVIL = "w\x1b[31m\u202egpj\n::error::\x07"
LONG = "encoder." + ".".join(f"layer{i}" for i in range(40)) + ".weight"


def layers(count: int) -> onnx.ModelProto:
    names = [f"encoder.layer.{i}.weight" for i in range(count)]
    nodes = " ".join(f'h{i + 1} = MatMul(h{i}, "{name}")' for i, name in enumerate(names))
    weights = {name: ramp(1 + i, 40, start=1000 * i) for i, name in enumerate(names)}
    return text_model(f"g (float[2,2] h0) => (float[2,2] h{count}) {{ {nodes} }}", weights)


def model_with_name(name: str) -> onnx.ModelProto:
    """Return a model with a weight of any name, even one that ONNX text cannot hold."""
    proto = text_model("g (float[1,3] x) => (float[1,2] y) { y = MatMul(x, w) }")
    proto.graph.initializer.append(numpy_helper.from_array(ramp(3, 2), name))
    proto.graph.node[0].input[1] = name
    return proto


def inspect(ledger: Ledger, grouping: Grouping | None = None, **options: object) -> str:
    return render_text(Inspection(ledger, grouping or group_by(ledger)), RenderOptions(**options))


def table(text: str, heading: str) -> list[list[str]]:
    """Return the rows of the table whose head begins with `heading`, as cells without bars; the last is its total.

    Rows of a tree keep their indentation.
    """
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(heading))
    rows: list[list[str]] = []
    for line in lines[start + 1 :]:
        if not line:
            break
        cells = re.split(r"(?<=\S) {2,}", line)
        rows.append([cell for cell in cells if cell.strip("█▉▊▋▌▍▎▏")])
        if line.startswith(("total", "ONNX")):
            break
    return rows


def number(text: str) -> int:
    """Parse a printed count; `12 x 7,087,872` is the product."""
    return math.prod(int(part) for part in text.replace(",", "").replace("+", "").split(" x "))


def reports(folder: Path, proto: onnx.ModelProto) -> dict[str, str]:
    """Return every kind of report on one model."""
    ledger = audit(folder, proto)
    grouping = group_by(ledger)
    weights = {t.name: numpy_helper.to_array(t) for t in proto.graph.initializer}
    changed = {name: array + 1 for name, array in weights.items()}
    result = reconcile(folder, proto, manifest_of(*parameters_of(changed)))
    report = ReconcileReport(result, group_by(result.in_pytorch_terms(), known=result.trainability))
    verbose = RenderOptions(verbose=True, rows=0)
    return {
        "inspect": render_text(Inspection(ledger, grouping)),
        "inspect --verbose": render_text(Inspection(ledger, grouping), verbose),
        "reconcile": render_text(report),
        "reconcile --verbose": render_text(report, verbose),
        "export": render_text(ExportReport((str(folder / EVIL), str(folder / LONG)), report)),
        "compare": render_text(compare_ledgers(ledger, ledger, grouping, grouping)),
    }


@pytest.mark.parametrize(
    "name", ["fc.weight", LONG, EVIL, "größe.層.weight", "w" * 500, "a b\tc", "[red]x[/red]"]
)
def test_no_report_is_wider_than_80_columns(tmp_path, name):
    for report in reports(tmp_path, model_with_name(name)).values():
        assert max(map(len, report.splitlines())) <= 80


@pytest.mark.parametrize("name", ["fc.weight", EVIL])
def test_no_report_holds_an_escape_sequence_or_anything_unprintable(tmp_path, name):
    for report in reports(tmp_path, model_with_name(name)).values():
        assert report.replace("\n", "").isprintable()
        assert "\u202e" not in report


def test_a_shape_that_is_longer_than_a_line_is_broken_into_words(tmp_path):
    shape = ",".join(["2"] * 80)
    text = inspect(
        audit(tmp_path, text_model(f"g (float[{shape}] x) => (float[{shape}] y) {{ y = Relu(x) }}"))
    )

    assert text.replace("\n", "").isprintable()
    assert "FLOAT 2 x 2 x 2 x 2 x 2" in " ".join(text.split())


@pytest.mark.parametrize("elements", [70_553_706_496, 10**12])
def test_no_number_is_cut_however_large(tmp_path, elements):
    proto = text_model('g (float[1,3] x) => (float[1,2] y) { y = MatMul(x, "fc.weight") }')
    proto.graph.initializer.append(raw("fc.weight", [elements], onnx.TensorProto.FLOAT, b""))
    known = parameter("fc.weight", ramp(1), weightless=True, shape=(elements,))
    result = reconcile(tmp_path, proto, manifest_of(known))
    grouping = group_by(result.in_pytorch_terms(), known=result.trainability)

    for report in (Inspection(result.ledger, grouping), ReconcileReport(result, grouping)):
        text = render_text(report)
        assert f"{elements:,}" in text
        assert "…" not in text.partition("scope")[2]
        assert max(map(len, text.splitlines())) <= 80


def test_nothing_is_cut_where_all_was_requested(tmp_path):
    for name, report in reports(tmp_path, model_with_name(LONG)).items():
        if name.endswith("--verbose"):
            assert "…" not in report, name
            assert LONG[-40:].removesuffix(".weight") in "".join(report.split()), name


def test_escaped_name_is_shown_in_full(tmp_path):
    text = inspect(audit(tmp_path, model_with_name("w\x1b[31m\u202e")), verbose=True)

    assert r"w\x1b[31m\u202e" in text


def test_long_name_loses_its_middle_or_no_letter_where_all_was_requested(tmp_path):
    ledger = audit(tmp_path, model_with_name(LONG))

    short = [row[0] for row in table(inspect(ledger), "scope")]
    whole = [row[0] for row in table(inspect(ledger, verbose=True), "tensor ")]

    first, _, last = short[0].partition("…")
    assert len(short) == 2  # one row, and the total
    assert LONG.startswith(first)
    assert LONG.removesuffix(".weight").endswith(last)
    assert "".join(whole[:-1]) == LONG


def test_tensors_come_by_their_elements_though_their_data_is_absent(tmp_path):
    proto = text_model("g (float[1,3] x) => (float[1,3] y) { h = MatMul(x, w) y = Add(h, b) }")
    codes = numpy_helper.from_array(np.full(4, 1 << 40), "codes")
    proto.graph.initializer.extend(
        [external("w", [3, 3], location="absent.bin"), raw("b", [3], 1, bytes(12)), codes]
    )

    rows = table(inspect(audit(tmp_path, proto), verbose=True, rows=2, width=120), "tensor ")

    assert [row[0] for row in rows] == ["w", "codes", "[1 other]", "total"]
    assert rows[0][1:4] == ["FLOAT", "3x3", "parameter"]
    assert "0 B of 36 B" in rows[0]
    assert rows[1][1:4] == ["INT64", "4", "unattributed"]


def test_errors_are_printed_beside_the_totals_that_they_put_in_doubt(tmp_path):
    node = "g (float[1,3] x) => (float[1,3] y) { y = MatMul(x, w) }"
    proto = text_model(node)
    proto.graph.initializer.append(external("w", [3, 3], location="absent.bin"))

    broken, whole = (
        inspect(audit(tmp_path, proto)),
        inspect(audit(tmp_path, text_model(node, {"w": ramp(3, 3)}))),
    )

    head, _, _ = broken.partition("\n\nscope")
    assert "1 error: the counts may be incomplete" in head
    assert "ERROR absent.bin is missing: 1 tensor, 36 B: w " in head
    assert "may be incomplete" not in whole


def test_a_reconciliation_says_what_a_factory_may_have_left_out(tmp_path):
    proto = text_model("g (float[1,3] x) => (float[1,3] y) { y = MatMul(x, w) }", {"w": ramp(3, 3)})
    proto.graph.initializer[0].name = proto.graph.node[0].input[1] = "fc.weight"
    known = manifest_of(parameter("fc.weight", -ramp(3, 3)))
    made = {"class": "Net", "source": "m:make", "weights": "factory", "seed": "5"}
    result = reconcile(tmp_path, proto, replace(known, source=made))

    text = render_text(ReconcileReport(result, group_by(result.in_pytorch_terms())))

    assert "against Net, m:make, weights made by the factory, seed 5 " in " ".join(text.split())
    assert "does it load the checkpoint?" in " ".join(text.split())


def test_largest_tensors_of_a_file_without_any_have_no_table(tmp_path):
    text = inspect(
        audit(tmp_path, text_model("g (float[2] x) => (float[2] y) { y = Relu(x) }")), verbose=True
    )

    assert [row[0] for row in table(text, "tensor ")] == ["total"]
    assert "\n\n\n" not in text


def test_one_of_anything_is_no_plural(tmp_path):
    proto = text_model(
        "g (float[1,1] x) => (float[1,1] y) { y = MatMul(x, w) }", {"w": np.full((1, 1), 3.5, "f4")}
    )

    text = inspect(audit(tmp_path, proto))

    assert "0 parameters   1 node: 1 MatMul" in text
    assert "1 nodes" not in text


def test_markup_in_a_name_stays_text(tmp_path):
    text = inspect(audit(tmp_path, model_with_name("[red]x[/red]")), verbose=True)

    assert "[red]x[/red]" in text


def test_plain_text_ends_with_one_newline_and_no_trailing_spaces(tmp_path):
    for report in reports(tmp_path, layers(3)).values():
        assert report.endswith("\n")
        assert not report.endswith("\n\n")
        assert all(line == line.rstrip() for line in report.splitlines())


@pytest.mark.parametrize("variable", ["FORCE_COLOR", "CLICOLOR_FORCE", "TTY_COMPATIBLE"])
def test_plain_text_has_no_colour_whatever_the_environment_says(tmp_path, monkeypatch, variable):
    monkeypatch.setenv(variable, "1")

    assert "\x1b" not in inspect(audit(tmp_path, layers(2)))


def test_colour_is_there_where_it_is_requested(tmp_path, monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)

    assert "\x1b[" in inspect(audit(tmp_path, layers(2)), color=True)


@pytest.mark.parametrize("columns", ["20", "300"])
def test_width_is_the_options_not_the_environments(tmp_path, monkeypatch, columns):
    ledger = audit(tmp_path, layers(3))
    before = inspect(ledger)
    monkeypatch.setenv("COLUMNS", columns)

    assert inspect(ledger) == before


# trees

BERT = {
    "embeddings.word": (7, 3),
    **{f"encoder.layer.{i}.{part}.dense": (4, 4) for i in range(12) for part in ("attention", "output")},
    "pooler.dense": (3, 2),
}


def model_of(shapes: Mapping[str, tuple[int, int]]) -> onnx.ModelProto:
    """Return a model with a weight in each of these modules."""
    nodes = " ".join(f'y{i} = MatMul(x, "{name}.weight")' for i, name in enumerate(shapes))
    weights = {
        f"{name}.weight": ramp(*shape, start=100 * i) for i, (name, shape) in enumerate(shapes.items())
    }
    return text_model(f"g (float[2,2] x) => (float[2,2] y0) {{ {nodes} }}", weights)


@pytest.fixture
def bert(tmp_path: Path) -> Ledger:
    return audit(tmp_path, model_of(BERT))


def column(text: str, heading: str, position: int = 0) -> list[str]:
    return [row[position] for row in table(text, heading)]


@pytest.mark.parametrize("place", ["at the end", "in the middle", "at the beginning"])
def test_long_names_that_differ_are_told_apart_where_they_are_cut(tmp_path, place):
    long = "convolutional_network_of_many_stages"
    names = {
        "at the end": [f"{long}_{letter}.downsampling_layers.conv" for letter in "abcd"],
        "in the middle": [f"stage_of_{long[:18]}_{number}_{long}" for number in "abcd"],
        "at the beginning": [f"{number}_first.{long}.{long}" for number in "abcd"],
    }[place]
    ledger = audit(tmp_path, model_of({f"{name}.weight": (4, 4 + at) for at, name in enumerate(names)}))

    shown = column(inspect(ledger, group_by(ledger, "scope", 9)), "scope")[:4]

    assert all("…" in name for name in shown)
    assert len(set(shown)) == 4


def test_layers_that_repeat_are_one_row_with_their_number(bert):
    *rows, total = table(inspect(bert, group_by(bert, depth=3)), "scope, depth 3")

    assert [row[:2] for row in rows] == [
        ["embeddings.word", "21"],
        ["encoder.layer.0-11", "12 x 32"],
        ["pooler.dense", "6"],
    ]
    assert sum(number(row[1]) for row in rows) == number(total[1]) == bert.parameters


def test_what_each_layer_has_stands_below_it_once(bert):
    text = inspect(bert, group_by(bert, depth=4))

    assert column(text, "scope, depth 4") == [
        "embeddings.word",
        "encoder.layer.0-11",
        "  attention",
        "  output",
        "pooler.dense",
        "total",
    ]
    assert column(text, "scope, depth 4", 1)[1:4] == ["12 x 32", "12 x 16", "12 x 16"]


def test_default_depth_is_a_plain_list_with_every_column(bert):
    *groups, total = table(inspect(bert), "scope, depth 3")

    assert [row[0] for row in groups] == ["embeddings.word", "encoder.layer.0-11", "pooler.dense"]
    assert groups[1][1] == "12 x 32"
    assert len(total) == 6


@pytest.mark.parametrize(("width", "columns"), [(50, 4), (60, 4), (80, 6), (100, 7)])
def test_a_narrow_terminal_does_without_columns(bert, width, columns):
    rows = table(inspect(bert, group_by(bert, depth=3), width=width), "scope, depth 3")

    assert {len(row) for row in rows} == {columns}
    assert rows[-1][:2] == ["total", "411"]


def test_largest_rows_have_room_and_the_rest_is_counted(bert):
    text = inspect(bert, group_by(bert, depth=4), rows=2)

    assert column(text, "scope, depth 4") == ["encoder.layer.0-11", "embeddings.word", "[1 other]", "total"]
    assert "2 rows are under these and not shown; -n 0 shows all" in text
    assert "not shown" not in inspect(bert, group_by(bert, depth=4), rows=0)


def test_two_keys_are_two_levels(tmp_path):
    half = {"b.fc.weight": ramp(3, 2).astype("f2")}
    proto = model_of({"a.fc": (2, 2), "b.norm": (2, 3), "c.fc": (2, 5)})
    proto.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in half.items())
    ledger = audit(tmp_path, proto)

    rows = table(inspect(ledger, group_by(ledger, "scope,dtype", 1)), "scope, dtype, depth 1")

    assert [row[:2] for row in rows] == [
        ["a / FLOAT", "4"],
        ["b", "12"],
        ["  FLOAT", "6"],
        ["  FLOAT16", "6"],
        ["c / FLOAT", "10"],
        ["total", "26"],
    ]


@pytest.mark.parametrize("name", [LONG, EVIL, "größe.層.weight", "w" * 300, "[red]x[/red]", "a.." * 30 + "w"])
@pytest.mark.parametrize("by", ["scope", "scope,dtype"])
def test_tree_of_any_names_is_no_wider_than_80_columns(tmp_path, name, by):
    proto = model_with_name(name)
    proto.graph.initializer.extend(
        numpy_helper.from_array(ramp(10, 10 + i, start=9), f"{name}.{i // 3}.{i}.weight") for i in range(6)
    )
    ledger = audit(tmp_path, proto)

    text = inspect(ledger, group_by(ledger, by, 64), rows=0)

    assert max(map(len, text.splitlines())) <= 80
    assert text.replace("\n", "").isprintable()
    assert "…" not in text


def test_large_counts_of_many_layers_are_not_cut(tmp_path):
    names = [f"layers.{i}.{part}" for i in range(126) for part in ("a", "b")]
    proto = model_of({"fc": (2, 2)})
    for name in names:
        proto.graph.initializer.append(raw(f"{name}.weight", [10**10], onnx.TensorProto.FLOAT, b""))
    ledger = audit(tmp_path, proto)

    text = inspect(ledger, group_by(ledger, depth=3))

    assert "126 x 20,000,000,000" in text
    assert "…" not in text.partition("\n\n")[2]
    assert "2,520,000,000,000 elements" in text
    assert max(map(len, text.splitlines())) <= 80


# sentences below the groups


def placed(ledger: Ledger, *runs: Run, has_scopes: bool = True) -> Ledger:
    """Return the ledger with its layers in blocks, as if blocks had been found."""

    def place(entry: Entry) -> Member:
        layer = re.search(r"layer\.(\d+)", entry.scope)
        return Member(f"block.{layer[1]}" if layer else "head" if "pooler" in entry.scope else "stem")

    blocks = Blocks(
        runs,
        {entry.tensor.key: place(entry) for entry in ledger.entries},
        {node.place: Member("stem") for node in ledger.model.nodes()},
        {entry.tensor.key: "linear" for entry in ledger.entries},
    )
    entries = tuple(
        entry if has_scopes else replace(entry, scope="", scoped_by="none") for entry in ledger.entries
    )
    return replace(ledger, blocks=blocks, entries=entries)


MODULES = tuple(f"encoder.layer.{i}" for i in range(12))


@pytest.mark.parametrize(
    ("runs", "sentences"),
    [
        ([Run(0, 12, MODULES)], ["block.0-11 are encoder.layer.0-11"]),
        (
            [Run(0, 11, MODULES[:11]), Run(11, 1, ("tail",))],
            ["block.0-10 are encoder.layer.0-10", "block.11 is tail"],
        ),
        ([Run(0, 2, ("a.0", "b.0")), Run(2, 10)], ["block.0-1 are a.0, b.0"]),
        ([Run(0, 12, ("layers.0",) * 12)], ["block.0-11 are all layers.0"]),
        ([], ["no repeated structure found"]),
    ],
)
def test_modules_of_blocks_are_reported(bert, runs, sentences):
    ledger = placed(bert, *runs)

    text = inspect(ledger, group_by(ledger, "block"))

    assert sorted(column(text, "block ")) == ["block.0-11", "head", "stem", "total"]
    for sentence in sentences:
        assert f"\n{sentence}\n" in text


def test_blocks_are_in_the_order_of_their_numbers_though_one_has_an_early_node(tmp_path):
    ledger = audit(
        tmp_path,
        text_model("""
            net (float[2,2] x, float[2,1] mask) => (float[2,3] y)
            <float[2,2] a = {1,2,3,4}, float[2,3] b = {5,6,7,8,9,10}>
            {
                late = Neg(mask)
                c = MatMul(x, a)
                d = Add(c, mask)
                e = MatMul(d, b)
                y = Add(e, late)
            }
        """),
    )
    first, second = (entry.tensor.key for entry in ledger.entries)
    blocks = Blocks(
        (Run(0, 2),),
        {first: Member("block.0"), second: Member("block.1")},
        {
            node.place: Member("block.1" if node.position in (0, 3, 4) else "block.0")
            for node in ledger.model.nodes()
        },
        {},
    )
    text = inspect(replace(ledger, blocks=blocks), group_by(replace(ledger, blocks=blocks), "block"))

    assert column(text, "block ") == ["block.0", "block.1", "total"]


def test_escapes_in_the_names_of_modules_are_escaped(bert):
    ledger = placed(bert, Run(0, 1, (EVIL,)))

    assert inspect(ledger, group_by(ledger, "block")).replace("\n", "").isprintable()


def test_a_file_without_scopes_is_grouped_by_block(bert):
    unnamed = placed(bert, Run(0, 12), has_scopes=False)
    with_scope = placed(bert, Run(0, 12))

    assert "\nblock " in inspect(unnamed)
    assert "\nscope, depth 3 " in inspect(with_scope)


def used(ledger: Ledger, times: Mapping[str, int]) -> Ledger:
    """Return the ledger as if entries of these modules were applied the given number of times."""
    return replace(
        ledger,
        entries=tuple(
            replace(
                entry, applications=next((n for name, n in times.items() if entry.scope.startswith(name)), 1)
            )
            for entry in ledger.entries
        ),
    )


@pytest.mark.parametrize(
    ("by", "sentence"),
    [
        ("scope", "pooler.dense is used 12 times: 72 parameters if each use had its own"),
        ("dtype", "FLOAT is used more than once: 477 parameters if each use had its own"),
    ],
)
def test_what_is_used_more_than_once_is_reported(by, sentence, bert):
    ledger = used(bert, {"pooler": 12})

    assert f"\n{sentence}\n" in inspect(ledger, group_by(ledger, by))


def test_what_is_used_once_is_not_reported(bert):
    assert "if each use had its own" not in inspect(bert)


def test_reuse_that_saves_most_is_listed_first_and_the_rest_counted(bert):
    times = {f"encoder.layer.{i}.attention": 2 + i for i in range(11, -1, -2)}
    ledger = used(bert, times)

    lines = inspect(ledger, group_by(ledger, depth=4), rows=0).splitlines()

    reused = [line.split(":")[0] for line in lines if " used " in line]
    assert reused[:2] == [
        "encoder.layer.11.attention is used 13 times",
        "encoder.layer.9.attention is used 11 times",
    ]
    assert "3 other groups are also used more than once" in lines


# columns


@pytest.mark.parametrize("rows", [0, 1, 3, 11, 12, 13])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_printed_groups_add_up_to_the_printed_total(tmp_path, rows, depth):
    ledger = audit(tmp_path, layers(12))

    *groups, total = table(
        inspect(ledger, group_by(ledger, depth=depth), rows=rows, width=120), "scope, depth"
    )

    assert total[0] == "total"
    for column in (1, 3, 5, 6):
        assert sum(number(row[column]) for row in groups) == number(total[column])
    assert number(total[1]) == ledger.parameters
    assert number(total[3]) == ledger.stored_elements


def test_printed_own_groups_add_up_with_overlap_and_rest(tmp_path):
    ledger = audit(tmp_path, layers(4))
    patterns = parse_patterns(["few=layer\\.[01]", "one=layer\\.1"])

    *groups, total = table(inspect(ledger, group_by_patterns(ledger, patterns), width=120), "group")

    assert [row[0] for row in groups] == ["few", "one", "[ungrouped]", "[overlap]"]
    for column in (1, 3, 5, 6):
        assert sum(number(row[column]) for row in groups) == number(total[column])


def test_printed_shares_of_own_groups_add_up_too(tmp_path):
    ledger = audit(tmp_path, layers(4))
    patterns = parse_patterns(["few=layer\\.[01]", "one=layer\\.1"])

    *groups, total = table(inspect(ledger, group_by_patterns(ledger, patterns)), "group")

    shares = [float(row[2].removesuffix(" %")) for row in (*groups, total)]
    assert sum(shares[:-1]) == pytest.approx(shares[-1], abs=0.001)


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_rows_that_are_left_out_are_summed_in_others(tmp_path, rows):
    ledger = audit(tmp_path, layers(6))

    groups = table(inspect(ledger, group_by(ledger, depth=3), rows=rows), "scope, depth")

    others = [row for row in groups if row[0].endswith((" other]", " others]"))]
    left = sum(1 for part in group_by(ledger, depth=3).groups if part.tensors) - rows
    assert [row[0] for row in others] == [format_others(left)]
    assert len(groups) == rows + 2  # the others' row, and the total


def test_zero_rows_shows_all(tmp_path):
    ledger = audit(tmp_path, layers(30))

    text = inspect(ledger, group_by(ledger, depth=3), rows=0)

    assert "others]" not in text
    assert all(f"encoder.layer.{i}" in text for i in range(30))


def test_largest_tensors_come_first_and_the_rest_is_counted(tmp_path):
    ledger = audit(tmp_path, layers(5))

    *rows, total = table(inspect(ledger, rows=2, verbose=True, width=160), "tensor ")

    assert [row[0] for row in rows] == ["encoder.layer.4.weight", "encoder.layer.3.weight", "[3 others]"]
    assert [number(row[5]) for row in rows[:2]] == [200, 160]
    assert [number(cell) for cell in (*rows[2][1:3], *total[1:3])] == [240, 240, 600, 600]


def test_accounts_add_up_to_the_file(tmp_path):
    ledger = audit(tmp_path, layers(5))

    *accounts, total = table(inspect(ledger, verbose=True), "account")

    assert sum(number(row[1]) for row in accounts) == number(total[1]) == ledger.file_nbytes
    assert "unattributed" in [row[0] for row in accounts]


def test_roles_add_up_to_the_stored_elements(tmp_path):
    ledger = audit(tmp_path, layers(5))

    rows = table(inspect(ledger, verbose=True), "role ")

    assert [row[0] for row in rows] == ["parameter", "buffer", "quantization", "constant", "unattributed"]
    assert sum(number(row[2]) for row in rows) == ledger.stored_elements


def test_bridge_adds_up_from_pytorch_to_onnx(tmp_path):
    text = reports(tmp_path, layers(5))["reconcile"]

    start, *lines, end = table(text, "bridge ")

    assert (start[0], end[0]) == ("PyTorch", "ONNX")
    for column in (3, 4):
        assert sum(number(row[column]) for row in (start, *lines)) == number(end[column])
    assert "unexplained" in [row[0] for row in lines]


def test_verdict_says_whether_it_balances_and_how_far_values_were_compared(tmp_path):
    proto = layers(2)
    weights = {t.name: numpy_helper.to_array(t) for t in proto.graph.initializer}
    result = reconcile(tmp_path, proto, manifest_of(*parameters_of(weights)), "sampled")

    text = render_text(ReconcileReport(result, group_by(result.in_pytorch_terms())))

    flattened = " ".join(text.split())
    assert "balanced at 256 positions of each tensor, unexplained 0" in flattened
    assert "compared: 120 elements at 256 positions and by sums" in flattened
    assert "DOES NOT BALANCE" in reports(tmp_path, proto)["reconcile"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("none", "balanced by names and shapes only, unexplained 0:"),
        ("sampled", "balanced at 256 positions of each tensor, unexplained 0:"),
        ("full", "balanced, unexplained 0: all 2 PyTorch parameters are in the file"),
    ],
)
def test_verdict_begins_with_what_was_not_compared(tmp_path, content, words):
    proto = layers(2)
    weights = {t.name: numpy_helper.to_array(t) for t in proto.graph.initializer}
    result = reconcile(tmp_path, proto, manifest_of(*parameters_of(weights)), content)
    report = ReconcileReport(result, group_by(result.in_pytorch_terms()))

    assert f" against tests {words}" in " ".join(render_text(report).split())
    assert words in render_markdown(report)
    assert words in render_html(report)


def test_what_is_frozen_is_reported_where_pytorch_is_known(tmp_path):
    proto = layers(2)
    arrays = {t.name: numpy_helper.to_array(t) for t in proto.graph.initializer}
    manifest = manifest_of(*(parameter(n, a, trainable="0" in n) for n, a in arrays.items()))
    result = reconcile(tmp_path, proto, manifest)
    grouping = group_by(result.in_pytorch_terms(), depth=3, known=result.trainability)

    text = render_text(ReconcileReport(result, grouping))

    *groups, total = table(text, "scope in PyTorch, depth")
    assert [number(row[1]) for row in (*groups, total)] == [40, 80, 120]
    assert "80 parameters frozen (requires_grad is false): encoder.layer.1 80" in text


def test_model_of_nothing_has_a_report(tmp_path):
    text = inspect(audit(tmp_path, text_model("g (float[1] x) => (float[1] x) { }")))

    assert "0 parameters   0 nodes" in text
    assert re.search(r"^WARN no nodes and no stored tensors +\[empty-model\]$", text, re.MULTILINE)


def test_scalar_has_a_shape_that_says_so(tmp_path):
    proto = text_model("g (float[2] x) => (float[2] y) { y = Mul(x, w) }", {"w": np.float32(3)})

    assert "scalar" in inspect(audit(tmp_path, proto))


def test_second_rendering_is_the_same_text(tmp_path):
    ledger = audit(tmp_path, layers(9))

    assert inspect(ledger) == inspect(ledger)


def test_data_that_is_opaque_and_unattributed_is_one_problem_unless_the_tensors_differ():
    def found(id_: str, *subjects: str) -> Finding:
        return Finding(
            id=id_, severity="warning", message="8 elements that ...", subjects=[*subjects], bytes=None
        )

    def shown(*findings: Finding) -> list[tuple[str, str]]:
        return [(problem.id, problem.short) for problem in list_findings(findings).problems]

    alike = shown(found("opaque", "a", "b"), found("unattributed", "a", "b"))
    assert alike == [("opaque", "8 elements of unattributed data that nodes use")]
    assert [id_ for id_, _ in shown(found("opaque", "a"), found("unattributed", "a", "b"))] == [
        "opaque",
        "unattributed",
    ]


def test_an_error_that_refers_to_another_takes_a_second_line_for_it():
    message = "a tensor with elements both inside and in external data: the same 2 as under other"
    found = Findings((Problem("payload-mismatch", "error", message, ()),), is_short=True)

    shown = " ".join(write_text(Page("inspect", "", "", blocks=(found,)), width=80).split())

    assert shown == f"ERROR {message} [payload-mismatch]"
