"""Reports as pages: one self-contained file without requests, in which names are only text."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path
from typing import Any

import formula_reports
import models
import onnx
import pytest
import reports
import timings
from commands import run_here

from analyzer.account.findings.catalog import EXPLANATIONS
from analyzer.account.group import group_by
from analyzer.documents.kinds import DOCUMENTS
from analyzer.documents.saved import read_any_report
from analyzer.errors import UsageError
from analyzer.formats import RenderOptions, render_report, to_document
from analyzer.formats.html import render_documents, render_html
from analyzer.formats.html.page import LIBRARY
from analyzer.formats.html.writer import show
from analyzer.formats.json import render_json
from analyzer.pages.kinds import PAGES
from analyzer.reports import Inspection, Report
from analyzer.schemas import SCHEMAS, schema_name
from analyzer.verify.record import Agreement, First, Pairing, Verdict

ECHARTS = "b66b25aeb4df84e33199dc21694014d336d222cbd9deb0e5a7c14bd6aa0d0fd0"
"""SHA-256 of `dist/echarts.min.js` as npm publishes it."""

WITHOUT_TABLE = {"waterfall", "steps", "errors"}
"""Kinds of charts that contain all their data."""

WITHOUT_PAGE = {"graph", "manifest"}

HOSTILE = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(2)>",
    "</script><script>alert(3)</script>",
    "</noscript><b>b</b>",
    "]]><svg onload=alert(4)>",
    "{{7*7}}{% raw %}",
    "&lt;i&gt;",
    "\"' onmouseover=alert(5) '",
    "a\u202eb\u2028c\x1b[2J",
    "__proto__",
)

WRONG = (None, 5, -1, "text", [], {}, [1], [None], [{}], {"a": "b"}, float("nan"), 10**400, True)

VOID = frozenset({"meta", "link", "input", "br", "hr", "img"})

everyone = pytest.mark.parametrize("make", reports.REPORTS)


class Page(HTMLParser):
    """Elements, attributes, tables and texts of a page, as a browser without scripts sees them."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.blocks: dict[str, list[str]] = {"script": [], "style": []}
        self.islands: dict[str, Any] = {}
        self.tables: list[tuple[str, list[list[str]]]] = []
        self.texts: list[str] = []
        self.open: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append((tag, dict(attrs)))
        if tag == "table":
            self.tables.append(("", []))
        elif tag == "tr":
            self.tables[-1][1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][1][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop()[0] == tag, tag

    def handle_data(self, data: str) -> None:
        tag, attributes = self.open[-1] if self.open else ("", {})
        if tag in self.blocks:
            if attributes.get("type") == "application/json":
                self.islands[str(attributes["id"])] = json.loads(data)
            else:
                self.blocks[tag].append(data)
            return
        self.texts.append(data)
        if tag == "caption":
            self.tables[-1] = (data, self.tables[-1][1])
        elif tag in ("td", "th"):
            self.tables[-1][1][-1][-1] += data

    def table(self, caption: str) -> list[list[str]]:
        """Return the rows of the first table with that caption."""
        return next(rows for title, rows in self.tables if title == caption)


def inspection(folder: Path, by: str = "scope") -> Inspection:
    ledger = timings.audit_net(folder)
    return Inspection(ledger, group_by(ledger, by, 2))


def hostile(folder: Path) -> Inspection:
    proto = models.text_model("net (float[2] x) => (float[2] y) { y = Relu(x) }")
    for number, name in enumerate(HOSTILE):
        tensor = onnx.helper.make_tensor(name, onnx.TensorProto.FLOAT, [2], [number + 1.0, 2.0])
        proto.graph.initializer.append(tensor)
        proto.graph.node.append(onnx.helper.make_node("Add", ["x", name], [f"v{number}"], name))
    proto.producer_name = HOSTILE[0]
    ledger = models.audit(folder, proto)
    return Inspection(ledger, group_by(ledger, "scope", 1))


def number(cell: str) -> int:
    return int(cell.replace(",", ""))


# structure of a page


def test_the_library_is_the_file_that_its_makers_publish() -> None:
    data = resources.files("analyzer.formats.html").joinpath(LIBRARY).read_bytes()

    assert hashlib.sha256(data).hexdigest() == ECHARTS


@everyone
def test_the_policy_names_each_script_and_the_style_by_its_checksum_and_allows_nothing_else(
    make: Callable[[Path], Report], tmp_path: Path
) -> None:
    page = Page(render_html(make(tmp_path)))

    (policy,) = [value for tag, name, value in page.attributes if (tag, name) == ("meta", "content")][:1]
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    sums = {
        kind: " ".join(
            f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in texts
        )
        for kind, texts in page.blocks.items()
    }
    assert rules == {
        "default-src": "'none'",
        "script-src": sums["script"],
        "style-src": sums["style"],
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    assert [len(page.blocks[kind]) for kind in ("script", "style")] == [2, 1]


@everyone
def test_it_requests_nothing_and_no_attribute_contains_code(
    make: Callable[[Path], Report], tmp_path: Path
) -> None:
    page = Page(render_html(make(tmp_path)))

    names = {name for _, name, _ in page.attributes}
    assert "style" not in names
    assert not [name for name in names if name.startswith("on")]
    places = [
        value for _, name, value in page.attributes if name in ("href", "src", "action", "srcset", "data")
    ]
    assert all(place == "data:," or place.startswith("#") for place in places)
    assert not {"iframe", "object", "embed", "form", "base", "img", "svg"} & set(page.tags)
    assert "url(" not in page.blocks["style"][0]
    assert "@import" not in page.blocks["style"][0]
    assert page.open == []


@pytest.mark.slow
@everyone
def test_rendering_twice_gives_the_same_page(make: Callable[[Path], Report], tmp_path: Path) -> None:
    report = make(tmp_path)

    assert render_html(report) == render_html(report)


@everyone
def test_ids_are_unique_and_labels_lead_to_them(make: Callable[[Path], Report], tmp_path: Path) -> None:
    document = to_document(make(tmp_path))
    page = Page(render_documents([document, document]))

    ids = [value for _, name, value in page.attributes if name == "id"]
    labels = [value for _, name, value in page.attributes if name == "aria-labelledby"]
    anchors = [value[1:] for _, name, value in page.attributes if name == "href" and value.startswith("#")]
    assert len(ids) == len(set(ids))
    assert {*labels, *anchors} <= set(ids)


def test_every_kind_of_document_has_its_section() -> None:
    paged = {kind for kind, record in DOCUMENTS.items() if record.__name__ in PAGES}
    assert paged == set(SCHEMAS) - WITHOUT_PAGE


def test_render_report_gives_the_page_of_render_html(tmp_path: Path) -> None:
    report = inspection(tmp_path)

    assert render_report(report, "html") == render_html(report)


# contents


@everyone
def test_nothing_that_a_document_should_have_is_missed_or_shown_as_none(
    make: Callable[[Path], Report], tmp_path: Path
) -> None:
    page = Page(render_html(make(tmp_path)))

    assert not [text for text in page.texts if "Left out" in text]
    assert not [cell for _, rows in page.tables for row in rows for cell in row if cell in ("None", "nan")]


@everyone
def test_the_rows_of_each_table_are_as_long_as_its_head(
    make: Callable[[Path], Report], tmp_path: Path
) -> None:
    page = Page(render_html(make(tmp_path)))

    for title, rows in page.tables:
        assert {len(row) for row in rows} == {len(rows[0])}, title
    for data in page.islands.values():
        if "rows" in data:
            assert {len(row) for row in data["rows"]} == {len(data["columns"])}
            assert len(data["total"]) in (0, len(data["columns"]))


@everyone
def test_charts_refer_to_tables_of_their_page(make: Callable[[Path], Report], tmp_path: Path) -> None:
    islands = Page(render_html(make(tmp_path))).islands

    for data in islands.values():
        if "kind" in data and data["kind"] not in WITHOUT_TABLE:
            grid = islands[f"{data['grid']}-data"]
            columns = range(len(grid["columns"]))
            assert data["name"] in columns
            for _, places in data.get("measures", []):
                kept = [places] if isinstance(places, int) else [place for _, place in places]
                assert all(grid["columns"][place][1] == "number" for place in kept)


def test_without_scripts_the_columns_of_the_tensors_sum_to_the_totals(tmp_path: Path) -> None:
    report = inspection(tmp_path)

    head, *rows, total = Page(render_html(report)).table("Tensors")

    totals = to_document(report)["totals"]
    for column, key in (
        ("parameters", "parameters"),
        ("elements", "stored_elements"),
        ("bytes", "stored_bytes"),
    ):
        place = head.index(column)
        assert sum(number(row[place]) for row in rows) == number(total[place]) == totals[key]


def test_the_groups_and_the_accounts_sum_to_the_totals(tmp_path: Path) -> None:
    report = inspection(tmp_path)
    page = Page(render_html(report))
    document = to_document(report)

    head, *rows, total = page.table("Scope, depth 2")
    place = head.index("bytes")
    assert (
        sum(number(row[place]) for row in rows) == number(total[place]) == document["totals"]["stored_bytes"]
    )
    _, *accounts, whole = page.table("Every byte on disk")
    assert sum(number(row[1]) for row in accounts) == number(whole[1]) == document["totals"]["file_bytes"]


def test_the_bridge_leads_from_one_side_to_the_other(tmp_path: Path) -> None:
    report = reports.reconciliation(tmp_path)
    page = Page(render_html(report))
    document = to_document(report)

    head, start, *lines, end = page.table("Bridge")
    for column, key in (("parameters", "parameters"), ("stored", "stored_elements")):
        place = head.index(column)
        deltas = sum(int(line[place].replace(",", "")) for line in lines)
        assert number(start[place]) + deltas == number(end[place]) == document["onnx"][key]
    assert number(start[1]) == len(document["parameters"])
    assert [number(cell) for cell in end[1:3]] == [
        len(document["tensors"]),
        document["onnx"]["stored_elements"],
    ]
    (chart,) = [data for data in page.islands.values() if data.get("kind") == "waterfall"]
    for _, steps, last in chart["measures"]:
        assert chart["start"] + sum(delta for _, delta in steps) == last


def curve(report: Report) -> dict[str, Any]:
    (found,) = [data for data in Page(render_html(report)).islands.values() if data.get("kind") == "errors"]
    return found


def test_the_curve_of_errors_marks_the_first_module_that_differs(tmp_path: Path) -> None:
    report = reports.verification(tmp_path)
    near = Agreement(1e-7, 130.0, 126.0, Verdict.SAME)
    far = Agreement(0.5, 12.0, 126.0, Verdict.DIFFERS)
    values = tuple(
        Pairing(f"{name}.out", name, "", "Linear", name, found)
        for name, found in (("enc.0", near), ("enc.1", far), ("head", far))
    )

    drawn = curve(replace(report, values=values, first=First("enc.1", "norm", "epsilon 0.05")))
    inner = curve(replace(report, values=values, first=First("enc.1.norm", "norm", "epsilon 0.05")))

    assert [point[0] for point in drawn["points"]] == ["enc.0", "enc.1", "head"]
    assert (drawn["first"], drawn["points"][0][2:]) == (1, [130.0, 126.0, "same"])
    assert inner["points"][inner["first"]] == ["enc.1.norm", "norm", None, None, "differs"]
    assert [point[0] for point in inner["points"]] == ["enc.0", "enc.1.norm", "enc.1", "head"]


def test_the_curve_has_no_mark_where_nothing_differs_and_is_none_of_one_module(tmp_path: Path) -> None:
    report = reports.verification(tmp_path)
    near = Agreement(1e-7, 130.0, 126.0, Verdict.SAME)
    values = tuple(Pairing(name, name, "", "Linear", name, near) for name in ("enc.0", "enc.1"))

    assert curve(replace(report, values=values, first=None))["first"] is None
    one = Page(render_html(replace(report, values=values[:1], first=None)))
    assert not [data for data in one.islands.values() if data.get("kind") == "errors"]


def test_a_bridge_without_steps_has_no_picture(tmp_path: Path) -> None:
    document = to_document(reports.reconciliation(tmp_path))
    for row in document["bridge"]:
        row |= {"parameter_delta": 0, "stored_delta": 0}

    page = Page(render_documents([document]))

    assert not [data for data in page.islands.values() if data.get("kind") == "waterfall"]
    assert page.table("Bridge")


def test_findings_come_with_what_they_mean(tmp_path: Path) -> None:
    document = to_document(inspection(tmp_path))
    known = next(iter(EXPLANATIONS.values()))
    document["findings"] = [
        {"id": known.id, "severity": "warning", "message": "seen", "subjects": ["w"], "bytes": 1234},
        {"id": "of-tomorrow", "severity": "error", "message": "not known yet", "subjects": [], "bytes": None},
    ]

    text = " ".join("".join(Page(render_documents([document])).texts).split())

    assert known.title in text
    assert "Fixing it saves 1,234 bytes" in text
    assert " ".join(known.mend.replace("`", "").split())[:60] in text.replace("`", "")
    assert text.index("of-tomorrow") < text.index(known.title)


def test_a_timing_beside_it_adds_its_milliseconds_to_the_groups(tmp_path: Path) -> None:
    timing = to_document(timings.make_timing(tmp_path))
    ledger = timings.audit_net(tmp_path)
    report = Inspection(ledger, group_by(ledger, timing["by"], timing["depth"]))

    page = Page(render_html(report, RenderOptions(beside=(timing,))))

    head, *rows = page.table("Scope, depth 2")
    shown = {row[0]: row[head.index("ms")] for row in rows}
    known = {row["group"]: row["ms"] for row in timing["groups"] if not row["across"]}
    layers = sum(known.pop(f"layer.{number}") for number in range(3))
    assert shown["layer.0-2"] == f"{layers:,.3f}"
    assert {name: f"{ms:,.3f}" for name, ms in known.items()}.items() <= shown.items()
    assert shown["total"] == f"{layers + sum(known.values()):,.3f}"
    assert "How long it takes" in page.texts


def test_a_timing_says_what_its_rows_sum_to_and_what_was_fed(tmp_path: Path) -> None:
    timing = to_document(timings.make_timing(tmp_path))
    timing["inputs"] = [
        {"name": fill, "dtype": "INT64", "shape": [1], "fill": fill, "low": 0, "high": 30521}
        for fill in ("integers", "constant")
    ]

    page = Page(render_documents([timing]))

    assert "ms sum to the mean profiled run, 10.000; scaled ms to the plain one, 8.000" in "".join(page.texts)
    fed = [row[-1] for row in page.table("Inputs")]
    assert fed == ["filled with", "random 0 to 30,521", "all 0"]


def test_a_formula_beside_it_is_compared_with_its_total(tmp_path: Path) -> None:
    formula = to_document(formula_reports.plain())
    document = to_document(inspection(tmp_path))

    page = Page(render_documents([document, formula]))

    text = "".join(page.texts)
    counted = document["totals"]["parameters"]
    assert f"counts {formula['total']:,} parameters in closed form: this file has" in text
    assert f"{abs(formula['total'] - counted):,} fewer" in text
    assert len(page.table("Terms")) > len(formula["terms"])


def test_a_document_that_no_page_shows_is_refused(tmp_path: Path) -> None:
    beside = ({"schema_version": 1, "command": "graph"},)

    with pytest.raises(UsageError, match="graph"):
        render_html(inspection(tmp_path), RenderOptions(beside=beside))


@pytest.mark.parametrize("command", ["graph", "explain", "of-tomorrow", ["inspect"], None])
def test_a_saved_document_that_no_page_shows_is_refused_with_its_name(command: Any, tmp_path: Path) -> None:
    path = tmp_path / "odd.json"
    path.write_text(json.dumps({"schema_version": 1, "command": command}), encoding="utf-8")

    with pytest.raises(UsageError, match=r"odd\.json"):
        read_any_report(path)


@everyone
def test_a_saved_report_of_any_kind_can_stand_beside_another(
    make: Callable[[Path], Report], tmp_path: Path
) -> None:
    path = tmp_path / "saved.json"
    path.write_text(render_json(make(tmp_path)), encoding="utf-8")

    saved = read_any_report(path)

    page = Page(render_html(inspection(tmp_path), RenderOptions(beside=(saved,))))
    assert page.tags.count("section") == 2


# hostile files and saved reports


def test_hostile_names_are_text(tmp_path: Path) -> None:
    page = Page(render_html(hostile(tmp_path)))

    assert not {"img", "b", "i", "svg"} & set(page.tags)
    assert len(page.blocks["script"]) == 2
    shown = {row[0] for row in page.table("Tensors")}
    assert set(HOSTILE[:8]) <= shown
    assert "a\\u202eb\\u2028c\\x1b[2J" in shown


def test_a_name_of_blanks_can_be_seen() -> None:
    assert (show("  "), show(""), show(None)) == ('"  "', "", "")


@everyone
def test_hostile_texts_anywhere_in_a_document_are_text(
    make: Callable[[Path], Report], tmp_path: Path
) -> None:
    text, kept = _add_markup(to_document(make(tmp_path)))

    page = Page(text)

    assert "img" not in page.tags
    assert len(page.blocks["script"]) == 2
    assert any("<img src=x" in each for each in page.texts)
    free = {
        ("model", "path"),
        ("tensors", "name"),
        ("groups", "group"),
        ("findings", "message"),
        ("a",),
        ("b",),
    }
    assert not kept & free


def _add_markup(document: dict[str, Any]) -> tuple[str, set[tuple[str, ...]]]:
    """Return a page with markup in every free text of a document, and the paths of texts with fixed values."""
    words = {"command", "kind", "status", "severity"}
    kept: set[tuple[str, ...]] = set()

    def with_markup(value: Any, path: tuple[str, ...] = ()) -> Any:
        if path in kept or (path and path[-1] in words):
            return value
        if isinstance(value, dict):
            return {name: with_markup(each, (*path, name)) for name, each in value.items()}
        if isinstance(value, list):
            return [with_markup(each, path) for each in value]
        return f"<img src=x onerror=alert(1)>{value}</script>" if isinstance(value, str) else value

    while True:
        try:
            return render_documents([with_markup(document)]), kept
        except UsageError as error:
            place = re.sub(r"\[.*?\]", "", str(error).partition("`$")[2].partition("`")[0])
            refused = tuple(place.split(".")[1:])
            if not refused or refused in kept:
                raise
            kept.add(refused)


@pytest.mark.slow
@everyone
def test_a_report_that_lacks_a_key_or_has_another_value_there_is_refused(
    make: Callable[[Path], Report], tmp_path: Path
) -> None:
    document = to_document(make(tmp_path))
    keys = [key for key in document if key not in ("schema_version", "command", "kind", "models", "points")]
    refused = 0
    for key in keys:
        without = {name: value for name, value in document.items() if name != key}
        for changed in (without, *({**document, key: wrong} for wrong in WRONG)):
            try:
                assert Page(render_documents([changed])).open == []
            except UsageError:
                refused += 1
    assert refused > 2 * len(keys)


def test_a_wrong_value_is_refused_with_its_place(tmp_path: Path) -> None:
    document = to_document(inspection(tmp_path))
    document["totals"]["parameters"] = "many"

    with pytest.raises(UsageError, match=r"Expected `int`, got `str` - at `\$\.totals\.parameters`"):
        render_documents([document])


def test_a_count_that_scripts_do_not_have_exactly_is_sent_as_digits(tmp_path: Path) -> None:
    document = to_document(inspection(tmp_path))
    document["tensors"][0]["bytes"] = 2**60 + 1

    page = Page(render_documents([document]))

    (grid,) = [d for d in page.islands.values() if d.get("title") == "Tensors"]
    assert str(2**60 + 1) in [cell for row in grid["rows"] for cell in row]
    assert f"{2**60 + 1:,}" in [cell for row in page.table("Tensors") for cell in row]


def test_names_of_sections_are_those_of_schemas(tmp_path: Path) -> None:
    kinds = {schema_name(to_document(make(tmp_path))) for make in reports.REPORTS}

    paged = {kind for kind, record in DOCUMENTS.items() if record.__name__ in PAGES}
    assert kinds == paged - {"explain", "lake"}, "tests/reports.py makes one of each kind of a model"


def test_files_of_the_page_end_no_element_that_contains_them() -> None:
    folder = resources.files("analyzer.formats.html")
    for path in (LIBRARY, "report.css", *(f"js/{file.name}" for file in folder.joinpath("js").iterdir())):
        text = folder.joinpath(path).read_text(encoding="utf-8")

        assert not re.search(r"</(script|style)|<!--", text, re.IGNORECASE), path


def test_a_comparison_is_called_by_both_files_and_says_its_question_once(tmp_path: Path) -> None:
    text = render_html(reports.comparison(tmp_path))

    (title,) = re.findall(r"<h1>(.*?)</h1>", text)
    assert re.fullmatch(r"\S+\.onnx -&gt; \S+\.onnx", title)
    assert text.count(">What changed?<") == 1


def test_layers_and_changes_are_written_as_in_text(tmp_path: Path) -> None:
    names = [f"encoder.layer.{i}.weight" for i in range(3)]
    nodes = " ".join(f'h{i + 1} = MatMul(h{i}, "{name}")' for i, name in enumerate(names))
    weights = {name: models.ramp(4, 4, start=i) for i, name in enumerate(names)}
    ledger = models.audit(
        tmp_path, models.text_model(f"g (float[2,4] h0) => (float[2,4] h3) {{ {nodes} }}", weights)
    )

    layered, compared = (
        [island for island in Page(render_html(report)).islands.values() if "said" in island]
        for report in (Inspection(ledger, group_by(ledger, "scope")), reports.comparison(tmp_path))
    )

    assert "3 x 16" in [text for grid in layered for _, _, text in grid["said"]]
    assert any(signed for grid in compared for *_, signed in grid["columns"])


def test_sections_with_equal_titles_name_their_model(tmp_path: Path) -> None:
    """A page has budgets of three models, one of them twice."""
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        models.save(
            tmp_path / name,
            models.text_model(
                "g (float[2, 4] x) => (float[2, 3] y) { y = MatMul(x, w) }", {"w": models.noise(4, 3)}
            ),
        )
    for name, limit in (("one", "1M"), ("two", "10")):
        run_here(
            "check", "b/model.onnx", "--max-parameters", limit, "-o", f"{name}.json", "--quiet", cwd=tmp_path
        )
    beside = ("--with", "one.json", "--with", "two.json")
    done = run_here(
        "check", "a/model.onnx", "--max-parameters", "1M", "-o", "page.html", *beside, cwd=tmp_path
    )

    assert done.returncode == 0, done.stderr
    page = (tmp_path / "page.html").read_text()
    assert [html.unescape(title.strip()) for title in re.findall(r"<h2[^>]*>([^<]+)", page)][:3] == [
        "Is it within its budgets: a/model.onnx",
        "Is it within its budgets: b/model.onnx, 1 of 2",
        "Is it within its budgets: b/model.onnx, 2 of 2",
    ]
