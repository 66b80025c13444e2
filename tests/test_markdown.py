"""Reports as Markdown: tables that GitHub renders, names that stay inert, within GitHub's limit of length."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import models
import numpy as np
import onnx
import pytest
import timings
from markdown_it import MarkdownIt
from markdown_it.token import Token
from reports import REPORTS, reconciliation
from samples import WHOLE

from analyzer.account.group import group_by
from analyzer.account.group.patterns import group_by_patterns, parse_patterns
from analyzer.account.ledger import Finding, Grouping, Ledger, Severity
from analyzer.budget.record import (
    Among,
    AtLeast,
    AtMost,
    BudgetReport,
    Contributor,
    Growth,
    Over,
    Rule,
    Skipped,
    Status,
    Unit,
    Verdict,
)
from analyzer.comparison import compare_ledgers
from analyzer.formats.markdown import LONGEST, render_markdown
from analyzer.formats.options import RenderOptions
from analyzer.recover import recover_state
from analyzer.reports import (
    ExportReport,
    Inspection,
    ReconcileReport,
    RecoverReport,
    Report,
    SurveyReport,
)
from analyzer.survey import survey_models
from analyzer.text import printable, shorten
from analyzer.timing.side_by_side import compare_timings

HOSTILE = (
    "a|b",
    "`code`",
    "``",
    "a`|`b",
    "**bold** __bold__ ~~gone~~ *i* _i_",
    "<img src=x onerror=alert(1)>",
    "<!-- hidden",
    "</details></code></summary>",
    "[text](https://evil.example)",
    "![image](https://evil.example/pixel.png)",
    "[text]: https://evil.example",
    "https://evil.example www.evil.example",
    "@octocat and octocat@evil.example",
    "#1 GH-2 octo/cat#3",
    ":tada: $x^2$ &lt; &#64;octocat",
    "trailing\\",
    "back\\|slash\\`",
    "- item",
    "1. item",
    "# heading",
    "===",
    "    code",
    "a\n\n| x |\n|---|\n",
    "a\rb\tc\x1b[31m\u202egpj\u2028\x00",
    "::error::x",
    " ",
    "=1+1",
    "w" * 100_000,
    "größe.層.weight",
)


# GitHub's rendering


@dataclass(frozen=True)
class Page:
    """A report as a reader with GitHub's tables renders it."""

    source: str
    tokens: tuple[Token, ...]

    @property
    def tables(self) -> list[list[list[str]]]:
        """Cells of each table, titles first; indented cells keep their spaces."""
        found: list[list[list[str]]] = []
        for at, token in enumerate(self.tokens):
            match token.type:
                case "table_open":
                    found.append([])
                case "tr_open":
                    found[-1].append([])
                case "th_open" | "td_open":
                    found[-1][-1].append(text_of(self.tokens[at + 1]))
        return found

    def table(self, title: str) -> list[list[str]]:
        """Return the rows of the table whose first column has this title."""
        return self.columns(title)[1:]

    def columns(self, title: str) -> list[list[str]]:
        """Return the table with its row of titles."""
        return next(rows for rows in self.tables if rows[0][0].startswith(title))

    @property
    def inline(self) -> Iterator[Token]:
        for token in self.tokens:
            yield from token.children or ()


def read(text: str) -> Page:
    parser = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    return Page(text, tuple(parser.parse(text)))


def text_of(token: Token) -> str:
    """Return the visible text, without zero-width characters."""
    kinds = ("text", "code_inline", "text_special")
    seen = "".join(child.content for child in token.children or () if child.type in kinds)
    return seen.replace("\u2060", "")


def number(text: str) -> float:
    return float(re.sub(r" \(.*\)|,|\+| ms| %|~ |^-$", "", text) or 0)


def top_rows(rows: list[list[str]]) -> list[list[str]]:
    return [row for row in rows if not row[0].startswith("\u2003")]


def assert_sums(
    rows: list[list[str]], columns: tuple[int, ...], *, totals: int = 1, within: float = 0
) -> None:
    """Assert that the rows of the top level sum to the first of the totals."""
    top = top_rows(rows)
    parts, total = top[:-totals], top[-totals]
    assert parts
    for column in columns:
        found = sum(number(row[column]) for row in parts)
        assert found == pytest.approx(number(total[column]), abs=within), (column, rows)


# reports


def budget(**changes: object) -> BudgetReport:
    """Return a report on a model that grew by 3 %, with a rule of each outcome."""
    over = Over((Growth(amount=1_000_000),), "main.json")
    parts = (
        Contributor("encoder", 88_000_000, 85_054_464),
        Contributor("embeddings", 24_000_000, 23_837_184),
    )
    verdicts = (
        Verdict(
            Rule("max-bytes", "bytes", AtMost(471_859_200)),
            "bert.onnx",
            Status.PASS,
            Unit.BYTES,
            observed=451_066_828,
            limit=471_859_200,
        ),
        Verdict(
            Rule("growth", "parameters", over, message="Ask @team before it grows."),
            "bert.onnx",
            Status.FAIL,
            Unit.PARAMETERS,
            observed=112_766_707,
            limit=110_482_240,
            baseline=109_482_240,
            exceeded_by=2_284_467,
            contributors=parts,
            message="112,766,707 parameters are 2,284,467 more than the 110,482,240 allowed",
        ),
        Verdict(
            Rule("min-opset", "opset", AtLeast(17), is_enabled=False),
            None,
            Status.SKIP,
            Unit.VERSION,
            skipped=Skipped.DISABLED,
        ),
        Verdict(
            Rule("ops", "ops", Among(frozenset({"MatMul"})), group="encoder"),
            "bert.onnx",
            Status.SKIP,
            Unit.OPERATORS,
            skipped=Skipped.NOT_EVALUATED,
            message="no group is called encoder",
        ),
    )
    findings = {
        "bert.onnx": (
            Finding("strippable-metadata", Severity.NOTE, "bytes could be stripped", nbytes=2_097_152),
            Finding("unused-initializer", Severity.WARNING, "nothing reads it", ("w", "v")),
        )
    }
    report = BudgetReport(("bert.onnx",), verdicts, findings)
    return replace(report, **changes)  # type: ignore[arg-type]


def model_with_name(name: str, *, shape: tuple[int, int] = (3, 2)) -> onnx.ModelProto:
    """Return a model with a weight of any name, in a scope of that name."""
    proto = models.text_model("g (float[1,3] x) => (float[1,2] y) { [n] y = MatMul(x, w) }")
    proto.graph.initializer.append(onnx.numpy_helper.from_array(models.ramp(*shape), name))
    proto.graph.node[0].input[1] = name
    proto.producer_name = name[:200]
    return models.with_scopes(proto, {"n": f"a.{name[:200]}"})


def reports(folder: Path, proto: onnx.ModelProto, name: str = "") -> Iterator[Report]:
    """Yield every kind of report on one model, with `name` in all places."""
    ledger = models.audit(folder, proto)
    weights = {each.name: onnx.numpy_helper.to_array(each) for each in proto.graph.initializer}
    changed = models.manifest_of(*models.parameters_of({n: a + 1 for n, a in weights.items()}))
    grouping = group_by(ledger)
    odd = Finding("missing", Severity.ERROR, f"odd: {name}", (name,) * 9, 12)
    odd_ledger = replace(ledger, findings=(*ledger.findings, odd))
    own = replace(grouping, groups=tuple(replace(g, name=name, label=(name,)) for g in grouping.groups[:1]))
    yield Inspection(odd_ledger, grouping)
    for keys in ("op", "bytes", "scope,dtype"):
        yield Inspection(ledger, group_by(ledger, keys))
    result = models.reconcile(folder, proto, changed)
    report = ReconcileReport(result, group_by(result.in_pytorch_terms(), known=result.trainability))
    yield report
    yield ExportReport((name, f"{folder}/x"), report)
    yield RecoverReport(recover_state(result), name)
    yield compare_ledgers(ledger, replace(ledger, entries=()), grouping, replace(own, groups=()))
    yield SurveyReport(survey_models([folder / "model.onnx", folder / "missing.onnx"], processes=1))
    timing = timings.make_timing(folder)
    kernels = tuple(replace(k, name=name, op_type=name, groups=(name,)) for k in timing.points[0].kernels)
    point = replace(timing.points[0], kernels=kernels)
    environment = replace(timing.environment, device=name, messages=(name,))
    timing = replace(timing, path=name, points=(point,), environment=environment)
    yield timing
    yield replace(timings.make_sweep(folder), path=name, axis=name)
    loop = timings.make_generation(folder)
    files = tuple(
        replace(each, name=name, timing=replace(each.timing, path=name)) for each in loop.components
    )
    yield replace(loop, path=name, components=files)
    yield replace(compare_timings(timing, timing), a=name, b=name)
    odd_verdicts = [
        replace(
            verdict,
            rule=replace(verdict.rule, name=name, group=name, message=name),
            model=name,
            message=f"odd: {name}",
            contributors=(Contributor(name, 3, 2), Contributor(f"{name}2", 1)),
        )
        for verdict in budget().verdicts
    ]
    yield BudgetReport((name, "other"), tuple(odd_verdicts), {name: (odd,)}, {"other": f"odd {name}"})


everyone = pytest.mark.parametrize("make", REPORTS)
ALL = RenderOptions(rows=0)


# tables


@everyone
def test_every_row_of_a_table_has_its_cells(make: Callable[[Path], Report], tmp_path: Path) -> None:
    page = read(render_markdown(make(tmp_path)))

    lines = [line for line in page.source.splitlines() if line.startswith("|")]
    assert sum(map(len, page.tables)) == len([line for line in lines if not re.fullmatch(r"[|:-]+", line)])
    for block in page.source.split("\n\n"):
        rows = [line for line in block.splitlines() if line.startswith("|")]
        assert len({re.sub(r"\\.", "", row).count("|") for row in rows}) <= 1


@everyone
def test_the_first_line_is_a_heading_and_the_end_is_one_newline(
    make: Callable[[Path], Report], tmp_path: Path
) -> None:
    text = render_markdown(make(tmp_path))

    assert re.match(r"### \S.*\n\n", text)
    assert re.search(r"[^\n]\n\Z", text)


@everyone
def test_every_fold_is_closed_and_what_is_inside_is_markdown(
    make: Callable[[Path], Report], tmp_path: Path
) -> None:
    page = read(render_markdown(make(tmp_path)))

    folds = [token.content for token in page.tokens if token.type == "html_block"]
    assert all(re.fullmatch(r"<details>\n<summary>[^<>]+</summary>\n?|</details>\n?", fold) for fold in folds)
    assert [fold.startswith("</") for fold in folds] == [False, True] * (len(folds) // 2)
    assert not any("|---" in fold for fold in folds)


@everyone
def test_no_fold_repeats_its_title(make: Callable[[Path], Report], tmp_path: Path) -> None:
    text = render_markdown(make(tmp_path), RenderOptions(rows=20))

    folds = re.findall(r"<summary>(.*)</summary>\n\n(.*)", text)
    assert not [title for title, first in folds if first.strip("*").lower() == title.lower()]


def test_an_invalid_report_is_refused() -> None:
    with pytest.raises(TypeError, match="no document of a str"):
        render_markdown("report")  # type: ignore[arg-type]


# names


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_is_anything_but_a_name(name: str, tmp_path: Path) -> None:
    for report in reports(tmp_path, model_with_name(name), name):
        page = read(render_markdown(report, ALL))

        kinds = {token.type for token in page.inline}
        assert not kinds & {"link_open", "image", "em_open", "s_open", "hardbreak"}
        tags = {token.content for token in page.inline if token.type == "html_inline"}
        assert tags <= {"<code>", "</code>"}
        blocks = {token.type for token in page.tokens}
        assert not blocks & {"code_block", "fence", "hr", "ordered_list_open", "blockquote_open"}
        assert {token.tag for token in page.tokens if token.type == "heading_open"} == {"h3"}
        bare = re.sub(r"\\.", "", re.sub(r"`[^`\n]*`", "", page.source))
        strong = re.findall(r"\*\*(.*?)\*\*", bare)
        assert len(strong) == len([token for token in page.inline if token.type == "strong_open"])
        assert all(character.isprintable() or character == "\n" for character in page.source)


@pytest.mark.parametrize("name", HOSTILE)
def test_nobody_is_called_and_nothing_is_linked(name: str, tmp_path: Path) -> None:
    for report in reports(tmp_path, model_with_name(name), name):
        page = read(render_markdown(report, ALL))

        is_code = False
        for token in page.inline:
            is_code = {"<code>": True, "</code>": False}.get(token.content, is_code)
            if token.type == "text" and not is_code:
                assert not re.search(r"@\w|#\d|\bGH-\d|:[\w+-]+:", token.content), token.content
        bare = re.sub(r"`[^`\n]*`|<code>.*?</code>", "", page.source)
        assert not re.search(r"(?<!\\)://|www\.", bare)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_reads_as_it_is(name: str, tmp_path: Path) -> None:
    ledger = models.audit(tmp_path, model_with_name(name))
    page = read(render_markdown(Inspection(ledger, group_by(ledger))))

    (row, total) = page.table("tensor")

    seen = re.sub(r" +", " ", row[0]).strip()
    expected = printable(shorten(ledger.entries[0].sources[0] if ledger.entries[0].sources else name, 120))
    assert seen == (re.sub(r" +", " ", expected).strip() or '" "')
    assert len(row) == len(total) >= 9


def test_no_cell_is_longer_than_people_read(tmp_path: Path) -> None:
    for report in reports(tmp_path, model_with_name("w" * 100_000), "v" * 100_000):
        cells = [cell for rows in read(render_markdown(report, ALL)).tables for row in rows for cell in row]
        assert max(map(len, cells), default=0) < 400


# sums


@pytest.mark.parametrize("make", [make for make in REPORTS if not make.__name__.startswith("formula")])
def test_every_printed_total_is_the_sum_of_its_rows(make: Callable[[Path], Report], tmp_path: Path) -> None:
    report = make(tmp_path)
    for rows in (0, 2, 1):
        page = read(render_markdown(report, RenderOptions(rows=rows)))
        for titles, *body in page.tables:
            if len(body) < 2 or body[-1][0] != "total":
                continue
            whole = [
                at for at, title in enumerate(titles) if at and title in EXACT and "%" not in body[-1][at]
            ]
            assert_sums(body, tuple(whole))


EXACT = {
    *(
        "parameters",
        "stored",
        "tensors",
        "payload bytes",
        "bytes on disk",
        "elements",
        "logical bytes",
    ),
    *("parameters a", "b", "a - b", "parameters a - b"),
}
"""Columns whose numbers are not rounded."""


@pytest.mark.parametrize("rows", [0, 3, 1])
def test_the_bridge_leads_from_pytorch_to_onnx(rows: int, tmp_path: Path) -> None:
    report = reconciliation(tmp_path)

    bridge = read(render_markdown(report, RenderOptions(rows=rows))).table("bridge")

    assert_sums(bridge, (3, 4))


def test_the_times_of_all_rows_sum_to_the_profiled_run(tmp_path: Path) -> None:
    for timing in (timings.make_timing(tmp_path), timings.make_timing(tmp_path, is_own=True)):
        rows = read(render_markdown(timing)).table("scope" if timing.grouping.by == "scope" else "group")
        assert_sums(rows, (1, 3), within=0.01)
    sweep = read(render_markdown(timings.make_sweep(tmp_path))).table("scope")
    assert_sums(sweep, (1, 2, 3, 4, 5), within=0.01)
    both = compare_timings(timings.make_timing(tmp_path), timings.make_timing(tmp_path, factor=1.1))
    for limit in (0, 2):
        rows = read(render_markdown(both, RenderOptions(rows=limit))).table("scope")
        assert_sums(rows, (1, 2, 3), within=0.01)


# groups


def grouped(folder: Path, make: Callable[[Ledger], Grouping], rows: int = 0) -> list[list[str]]:
    ledger = models.audit(folder, models.dynamo_like(models.text_model(timings.NET), scopes=timings.SCOPES))
    grouping = make(ledger)
    page = read(render_markdown(Inspection(ledger, grouping), RenderOptions(rows=rows)))
    return page.table("bytes" if grouping.by == "bytes" else grouping.by.split(",")[0])


def test_repeated_groups_are_one_row_with_their_sum(tmp_path: Path) -> None:
    rows = grouped(tmp_path, functools.partial(group_by, by="scope", depth=2))

    assert [row[:2] for row in rows] == [
        ["embeddings", "12"],
        ["layer.0-2", "3 x 4"],
        ["head", "12"],
        ["total", "36"],
    ]


def test_rows_that_are_left_out_are_summed_in_one(tmp_path: Path) -> None:
    rows = grouped(tmp_path, functools.partial(group_by, by="dtype"), rows=1)
    assert [row[0] for row in rows] == ["FLOAT", "total"]
    rows = grouped(tmp_path, functools.partial(group_by, by="scope", depth=2), rows=1)
    assert [row[:2] for row in rows] == [["embeddings", "12"], ["[2 others]", "24"], ["total", "36"]]


def test_the_users_groups_sum_with_what_they_share_and_leave_out(tmp_path: Path) -> None:
    patterns = parse_patterns(["early=embeddings|layer.[01]", "late=layer.[12]"])
    rows = grouped(tmp_path, functools.partial(group_by_patterns, patterns=patterns))

    assert [row[:2] for row in rows] == [
        ["early", "20"],
        ["late", "8"],
        ["[ungrouped]", "12"],
        ["[overlap]", "-4"],
        ["total", "36"],
    ]


# the comment on a pull request


def test_the_comment_begins_with_the_answer() -> None:
    text = render_markdown(budget())

    assert text.startswith(
        "### `bert.onnx`\n\n**✗ FAIL: 1 failed, 1 passed, 1 not evaluated, 1 skipped**\n\n- **error** 112,766,707"
    )


def test_the_comment_says_what_failed_by_how_much_and_why() -> None:
    page = read(render_markdown(budget()))

    assert page.table("rules") == [
        [
            *("growth", "FAIL", "112,766,707", "<= 110,482,240"),
            *("109,482,240", "+3,284,467 (+3.00 %)", "2,284,467 over"),
        ],
        ["ops", "SKIP", "", "", "", "", "not evaluated"],
        ["max-bytes", "PASS", "430.17 MiB", "<= 450.00 MiB", "", "", "19.83 MiB (4.4 %)"],
        ["min-opset", "SKIP", "", "", "", "", "disabled"],
    ]
    assert page.table("part") == [
        ["encoder", "85,054,464", "88,000,000", "+2,945,536 (+3.46 %)"],
        ["embeddings", "23,837,184", "24,000,000", "+162,816 (+0.68 %)"],
        ["[others]", "590,592", "766,707", "+176,115 (+29.82 %)"],
        ["total", "109,482,240", "112,766,707", "+3,284,467 (+3.00 %)"],
    ]
    assert "- **error** 112,766,707 parameters are 2,284,467 more than" in page.source
    assert "allowed. Ask @&#8288;team before it grows. \\[budget/growth\\]\n" in page.source
    assert "- **error** not evaluated: no group is called encoder \\[budget/ops\\]" in page.source
    assert ["ops", "ops", "encoder", ""] in page.table("rule definition")


def test_the_comment_folds_the_findings() -> None:
    text = render_markdown(budget())

    head, _, fold = text.partition("<details>\n<summary>Findings: 1 warning, 1 note</summary>")
    assert "unused-initializer" not in head
    assert fold.index("unused-initializer") < fold.index("strippable-metadata")


@pytest.mark.parametrize(
    ("kept", "answer"),
    [
        ((0, 1), "✗ FAIL: 1 failed, 1 passed"),
        ((0, 1, 3), "✗ FAIL: 1 failed, 1 passed, 1 not evaluated"),
        ((0,), "✓ PASS: 1 passed"),
        ((0, 2), "✓ PASS: 1 passed, 1 skipped"),
        ((0, 3), "✗ NO ANSWER (not a pass): 1 passed, 1 not evaluated"),
        ((2,), "✗ NO ANSWER (not a pass): 0 passed, 1 skipped"),
        ((), "✗ NO ANSWER (not a pass): 0 passed"),
    ],
)
def test_what_was_not_evaluated_is_no_pass(kept: tuple[int, ...], answer: str) -> None:
    report = budget(verdicts=tuple(budget().verdicts[at] for at in kept))

    assert render_markdown(report).splitlines()[2] == f"**{answer}**"
    assert report.passed == answer.startswith("✓ PASS")


def test_a_model_that_cannot_be_read_is_reported() -> None:
    text = render_markdown(budget(verdicts=budget().verdicts[:1], unreadable={"bert.onnx": "is a web page"}))

    assert "**✗ NO ANSWER (not a pass): 1 passed, 1 model cannot be read**\n" in text
    assert "- **error** is a web page \\[unreadable\\]\n" in text


def test_several_models_stand_in_a_column_and_what_they_share_is_printed_once() -> None:
    verdicts = tuple(
        replace(each, model=path) for path in ("a.onnx", "b.onnx") for each in budget().verdicts[:2]
    )
    page = read(render_markdown(budget(models=("a.onnx", "b.onnx"), verdicts=verdicts)))

    assert "✗ FAIL: 2 failed, 2 passed" in page.source
    assert page.source.count("more than the 110,482,240 allowed") == 1
    assert "- **error** `a.onnx, b.onnx`: 112,766,707 parameters" in page.source
    assert [row[:3] for row in page.table("rules")] == [
        ["growth", "a.onnx", "FAIL"],
        ["growth", "b.onnx", "FAIL"],
        ["max-bytes", "a.onnx", "PASS"],
        ["max-bytes", "b.onnx", "PASS"],
    ]


def test_names_and_versions_are_limits_too() -> None:
    ops = Verdict(
        Rule("ops", "ops", Among(frozenset({"MatMul", "Add"}))),
        "m.onnx",
        Status.FAIL,
        Unit.OPERATORS,
        observed=("Add", "Evil|Op", "MatMul"),
        limit=("Add", "MatMul"),
        exceeded_by=1,
        contributors=(Contributor("Evil|Op", 2),),
        message="1 operator is not allowed: Evil|Op",
    )
    opset = Verdict(
        Rule("opset", "opset", AtLeast(17)),
        "m.onnx",
        Status.FAIL,
        Unit.VERSION,
        observed=13,
        limit=17,
        exceeded_by=4,
    )
    page = read(render_markdown(BudgetReport(("m.onnx",), (ops, opset))))

    assert page.table("rules") == [
        ["ops", "FAIL", "3 operators", "2 allowed", "1 not allowed"],
        ["opset", "FAIL", "13", ">= 17", "4 too low"],
    ]
    assert page.table("part") == [["Evil|Op", "2"]]


def test_rows_bound_the_parts_of_a_rule_and_not_so_soon_the_rules() -> None:
    passed = budget().verdicts[0]
    many = tuple(replace(passed, rule=replace(passed.rule, name=f"rule-{n}")) for n in range(9))
    page = read(render_markdown(budget(verdicts=(*budget().verdicts, *many)), RenderOptions(rows=1)))

    assert [row[0] for row in page.table("part")] == ["encoder", "[1 other]", "[others]", "total"]
    assert [row[:2] for row in page.table("rules")][-2:] == [["rule-0", "PASS"], ["[9 others]", ""]]


# length


def large(folder: Path, count: int = 20_000 if WHOLE else 6_000) -> Ledger:
    """Audit tensors with names that need escaping, each in its own scope."""
    names = [f"<b>|`@octocat`{number}|</b>." + "*" * 90 for number in range(count)]
    nodes = [
        onnx.helper.make_node("Add", [f"x{n}", name], [f"x{n + 1}"], f"n{n}") for n, name in enumerate(names)
    ]
    weights = [onnx.numpy_helper.from_array(np.float32([n]), name) for n, name in enumerate(names)]
    ends = [onnx.helper.make_tensor_value_info(f"x{n}", 1, [1]) for n in (0, count)]
    graph = onnx.helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    proto = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)])
    return models.audit(folder, models.with_scopes(proto, {f"n{n}": f"s{n}.|`{n}" for n in range(count)}))


@pytest.fixture(scope="module")
def large_ledger(tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    return large(tmp_path_factory.mktemp("large"))


@pytest.mark.slow
@pytest.mark.parametrize("rows", [0, 20, 5_000])
def test_a_model_of_thousands_of_tensors_fits_into_a_comment(rows: int, large_ledger: Ledger) -> None:
    subjects = tuple(entry.tensor.name for entry in large_ledger.entries)
    finding = Finding("unused-initializer", Severity.WARNING, "nothing reads them", subjects)
    ledger = replace(large_ledger, findings=(finding,) * 300)
    none = replace(ledger, entries=())
    grouping = group_by(ledger, "dtype")

    for report in (
        Inspection(ledger, grouping if rows else group_by(ledger, "scope", 2)),
        compare_ledgers(ledger, none, grouping, replace(grouping, groups=())),
    ):
        page = read(render_markdown(report, RenderOptions(rows=rows)))
        assert len(page.source) <= LONGEST < 65_536
        is_cut = page.source.endswith("Cut to the size of a comment; the JSON report has every row.\n")
        assert is_cut or rows == 20
        assert {token.content for token in page.inline if token.type == "html_inline"} <= {
            "<code>",
            "</code>",
        }
        titles, *shown = page.columns("tensor")
        assert any(re.fullmatch(r"\[[\d,]+ others?\]", row[0]) for row in shown[-2:])
        if "elements" in titles:
            assert_sums(shown, (titles.index("elements"),))


@pytest.mark.slow
def test_a_budget_of_many_rules_fits_into_a_comment() -> None:
    failed = replace(
        budget().verdicts[1],
        contributors=tuple(Contributor("|`@" * 60 + str(n), 1, 0) for n in range(30)),
        message="<" * 2_000,
    )
    names = [f"rule-{number}-" + "|" * 90 for number in range(400)]
    verdicts = tuple(replace(failed, rule=replace(failed.rule, name=name)) for name in names)
    findings = {f"{name}.onnx": budget().findings["bert.onnx"] for name in names}
    for rows in (0, 20):
        text = render_markdown(BudgetReport(tuple(findings), verdicts, findings), RenderOptions(rows=rows))
        assert len(text) <= LONGEST
        assert "**✗ FAIL: 400 failed, 0 passed**\n" in text
        assert "others\\] |" in text
        assert text.endswith("the JSON report has every row.\n")


def test_no_report_of_hostile_names_is_too_long(tmp_path: Path) -> None:
    for report in reports(tmp_path, model_with_name("`|" * 40_000), "`|" * 40_000):
        assert len(render_markdown(report, ALL)) <= LONGEST


# determinism


@everyone
def test_a_second_run_writes_the_same(make: Callable[[Path], Report], tmp_path: Path) -> None:
    report = make(tmp_path)

    assert render_markdown(report) == render_markdown(report)
