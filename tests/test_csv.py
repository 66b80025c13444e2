"""Reports as CSV: documented columns, the JSON's numbers, and text that no program executes."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import models
import onnx
import pytest
import reports
import test_markdown
import timings

from analyzer.account.group import group_by
from analyzer.account.group.patterns import group_by_patterns, parse_patterns
from analyzer.formats.csv import COLUMNS, render_csv
from analyzer.formats.csv.cells import write_cell
from analyzer.formats.json import to_document
from analyzer.formats.options import RenderOptions
from analyzer.reports import Inspection, Report
from analyzer.schemas import schema_name
from analyzer.text import printable

DOCS = Path(__file__).parent.parent / "docs" / "reference" / "report-format.md"

everyone = pytest.mark.parametrize("make", [*reports.REPORTS, lambda folder: test_markdown.budget()])


def read(report: Report) -> list[dict[str, str]]:
    """Return the rows as any CSV reader parses them."""
    return list(csv.DictReader(io.StringIO(render_csv(report), newline=""), strict=True))


def total(rows: list[dict[str, str]], column: str) -> int:
    return sum(int(row[column] or 0) for row in rows)


# format


@everyone
def test_every_row_has_the_columns_of_its_kind(make: Callable[[Path], Report], tmp_path: Path) -> None:
    report = make(tmp_path)
    header, *rows = csv.reader(io.StringIO(render_csv(report), newline=""), strict=True)

    assert tuple(header) == COLUMNS[schema_name(to_document(report))]
    assert len(set(header)) == len(header)
    assert {len(row) for row in rows} <= {len(header)}


@everyone
def test_a_row_is_a_line_and_ends_as_lines_of_unix_do(make: Callable[[Path], Report], tmp_path: Path) -> None:
    text = render_csv(make(tmp_path))

    assert not text.startswith("\ufeff")
    assert text.endswith("\n")
    assert "\r" not in text
    assert len(text.splitlines()) == len(list(csv.reader(io.StringIO(text))))
    assert render_csv(make(tmp_path)).splitlines()[0] == text.splitlines()[0]


@everyone
def test_it_holds_every_row_whatever_the_options(make: Callable[[Path], Report], tmp_path: Path) -> None:
    report = make(tmp_path)

    assert render_csv(report, RenderOptions(rows=1)) == render_csv(report, RenderOptions(rows=0))


def test_every_kind_of_report_has_its_columns(tmp_path: Path) -> None:
    kinds = set()
    for number, make in enumerate(reports.REPORTS):
        folder = tmp_path / str(number)
        folder.mkdir()
        kinds.add(schema_name(to_document(make(folder))))

    assert kinds | {"check"} == set(COLUMNS)


def test_the_page_lists_every_column_and_no_other() -> None:
    (section,) = re.findall(
        r"^## Formats$(.*?)(?=^## |\Z)", DOCS.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    tables = re.split(r"^#### ", section, flags=re.MULTILINE)[1:]
    documented = {
        kind: tuple(
            name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in names_of(row)
        )
        for table in tables
        for kind in names_of(table.splitlines()[0])
    }

    assert documented == dict(COLUMNS)


def names_of(cell: str) -> list[str]:
    """Return the names in code font; `a_*` stands for a pair, its difference and its ratio."""
    names = re.findall(r"`([^`]+)`", cell)
    sides = ("a", "b", "difference", "ratio")
    return [
        each for name in names for each in ([name[:-1] + s for s in sides] if name.endswith("*") else [name])
    ]


# cells


def test_numbers_are_plain_digits_and_nothing_is_nothing() -> None:
    assert [write_cell(value) for value in (109_482_240, -7, 0.25, None, True, False, [])] == [
        *("109482240", "-7", "0.25", "", "true", "false", "")
    ]


@pytest.mark.parametrize(
    "text",
    [
        "=1+1",
        "+1",
        "-1",
        "@SUM(A1)",
        "  =1+1",
        '=HYPERLINK("https://evil.example")',
        "-",
        "=cmd|' /C calc'!A0",
    ],
)
def test_no_text_is_a_formula(text: str) -> None:
    assert write_cell(text) == f"'{text}"
    assert write_cell([text, "b"]) == f"'{text};b"


@pytest.mark.parametrize("text", ["a=1", "layer.0", "", "a-b", "'=1", "\t=1", "\r=1"])
def test_other_text_is_as_reports_print_it(text: str) -> None:
    assert write_cell(text) == printable(text)


@pytest.mark.parametrize("name", test_markdown.HOSTILE)
def test_a_reader_finds_the_name_as_reports_print_it(name: str, tmp_path: Path) -> None:
    ledger = models.audit(tmp_path, test_markdown.model_with_name(name))

    (row,) = read(Inspection(ledger, group_by(ledger)))

    assert row["name"].removeprefix("'" if name.lstrip(" ").startswith(("=", "-", "@")) else "") == printable(
        name
    )
    assert all(character.isprintable() for cell in row.values() for character in cell)


@pytest.mark.parametrize("name", ['a,"b";c\nd', "\n", '"', "a\r\nb", ",", "::error::x", "\x1b[2J"])
def test_quotes_commas_and_newlines_stay_in_their_cell(name: str, tmp_path: Path) -> None:
    for report in test_markdown.reports(tmp_path, test_markdown.model_with_name(name), name):
        columns = COLUMNS[schema_name(to_document(report))]
        rows = read(report)
        assert all(tuple(row) == columns and None not in row.values() for row in rows)
        assert not re.search(r"^::", render_csv(report), re.MULTILINE)


def test_a_name_that_is_no_utf8_can_be_written(tmp_path: Path) -> None:
    report = reports.survey(tmp_path)
    odd = replace(report.survey.rows[0], path="a\udcff.onnx")  # type: ignore[union-attr]
    report = replace(report, survey=replace(report.survey, rows=(odd,)))  # type: ignore[union-attr, type-var]

    assert "a\\xff.onnx" in render_csv(report).encode().decode()


# contents


@pytest.mark.parametrize(
    "make",
    [
        reports.inspection,
        reports.plain_inspection,
        reports.empty_inspection,
        reports.user_grouped_inspection,
        reports.artifact,
    ],
)
def test_the_columns_of_an_inspection_sum_to_the_totals_of_its_json(
    make: Callable[[Path], Report], tmp_path: Path
) -> None:
    report = make(tmp_path)
    rows, totals = read(report), to_document(report)["totals"]

    assert len(rows) == totals["stored_tensors"]
    for column, key in (
        ("parameters", "parameters"),
        ("stored_elements", "stored_elements"),
        ("bytes", "stored_bytes"),
    ):
        assert total(rows, column) == totals[key]


@pytest.mark.parametrize("by", ["scope", "block", "op", "dtype", "role", "scope,dtype", "bytes"])
def test_every_tensor_is_in_the_group_that_counts_it(by: str, tmp_path: Path) -> None:
    ledger = timings.audit_net(tmp_path)
    report = Inspection(ledger, group_by(ledger, by, None if by in ("op", "dtype", "role", "bytes") else 2))
    rows = read(report)

    for group in report.grouping.groups:
        if group.tensors:
            mine = [row for row in rows if row["group"] == group.name]
            assert (total(mine, "parameters"), len(mine)) == (group.parameters, group.tensors)


def test_the_users_groups_of_a_tensor_are_joined(tmp_path: Path) -> None:
    ledger = timings.audit_net(tmp_path)
    patterns = parse_patterns(["early=embeddings|layer.[01]", "late=layer.[12]"])
    rows = read(Inspection(ledger, group_by_patterns(ledger, patterns)))

    assert {row["name"]: row["group"] for row in rows} == {
        "head": "[ungrouped]",
        "w0": "early",
        "w1": "early;late",
        "w2": "late",
        "wte": "early",
    }


def test_tensors_of_one_name_keep_their_groups(tmp_path: Path) -> None:
    proto = test_markdown.model_with_name("w")
    twin = onnx.numpy_helper.from_array(models.ramp(5).astype("<f8"), "w")
    proto.graph.initializer.append(twin)
    ledger = models.audit(tmp_path, proto)

    rows = read(Inspection(ledger, group_by(ledger, "dtype")))

    assert all(row["group"] == row["dtype"] for row in rows)


def test_shapes_and_lists_are_flat(tmp_path: Path) -> None:
    rows = {row["name"]: row for row in read(reports.reconciliation(tmp_path))}

    assert rows["conv.weight"]["shape"] == "2x2x3x3"
    assert rows["weight"]["chain"] == "identical;tied"
    assert rows["conv.weight"]["max_abs_error"] == rows["conv.weight"]["group"] == ""
    assert (rows["weight"]["trainable"], rows["lost.weight"]["group"]) == ("false", "lost")


def test_what_is_lost_stands_beside_what_was_recovered(tmp_path: Path) -> None:
    report = reports.recovery(tmp_path)
    rows, document = read(report), to_document(report)

    counts = {
        status: sum(row["status"] == status for row in rows) for status in ("recovered", "lost", "unnamed")
    }
    assert counts["recovered"] == document["recovered"]["tensors"]
    assert (counts["lost"], counts["unnamed"]) == (len(document["lost"]), len(document["unnamed"]))
    assert {row["kind"] for row in rows if row["name"] == "mask"} == {"buffer"}


def test_pairs_of_tensors_sum_to_the_totals_of_a_comparison(tmp_path: Path) -> None:
    report = reports.comparison(tmp_path)
    rows, totals = read(report), to_document(report)["totals"]

    for side in ("a", "b", "difference"):
        assert total(rows, f"parameters_{side}") == totals["parameters"][side]
        assert total(rows, f"bytes_{side}") == totals["stored_bytes"][side]


def test_models_sum_to_the_totals_of_a_survey(tmp_path: Path) -> None:
    report = reports.survey(tmp_path)
    rows, totals = read(report), to_document(report)["totals"]

    assert [row["readable"] for row in rows] == ["true", "true", "false", "false"]
    assert total(rows, "parameters") == totals["parameters"]
    assert total(rows, "stored_bytes") == totals["stored_bytes"]
    assert rows[3]["error"].endswith("No such file or directory")


@pytest.mark.parametrize("is_own", [False, True])
def test_the_times_sum_to_the_profiled_run(is_own: bool, tmp_path: Path) -> None:
    timing = timings.make_timing(tmp_path, is_own=is_own)
    document: dict[str, Any] = to_document(timing)

    whole = sum(float(row["ms"]) for row in read(timing)) - document["overlap_ms"]

    assert whole == pytest.approx(document["profiled_latency_ms"]["mean"])


def test_a_sweep_has_its_rows_at_each_length(tmp_path: Path) -> None:
    rows = read(timings.make_sweep(tmp_path, (16, 32)))

    assert {row["axis"] for row in rows} == {"sequence"}
    assert [row["value"] for row in rows] == ["16"] * (len(rows) // 2) + ["32"] * (len(rows) // 2)
    whole = sum(float(row["ms"]) for row in rows if row["value"] == "32")
    assert whole == pytest.approx(5.0)


def test_the_rules_of_a_budget_have_their_numbers() -> None:
    rows = {row["name"]: row for row in read(test_markdown.budget())}

    grown = rows["growth"]
    assert (grown["status"], grown["observed"], grown["limit"]) == ("FAIL", "112766707", "110482240")
    assert grown["contributors"] == "encoder=88000000;embeddings=24000000"
    assert (rows["ops"]["status"], rows["ops"]["skipped"]) == ("SKIP", "not-evaluated")


def test_the_parts_of_a_formula_sum_to_its_total(tmp_path: Path) -> None:
    report = reports.formula(tmp_path)

    assert total(read(report), "value") == to_document(report)["total"]
    assert {row["value"] for row in read(reports.formula_of_symbols(tmp_path))} == {""}
