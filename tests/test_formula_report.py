"""Reports of formulas, in every format: the numbers add up, the text fits, and names stay inert."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from typing import Any

import click
import formula_reports
import jsonschema
import pytest
from markdown_it import MarkdownIt

from analyzer.commands.formula import formula
from analyzer.formats import FORMATS, RenderOptions, find_printed, find_suffixes, render_report, render_saved
from analyzer.formats.json import render_json, to_document
from analyzer.formats.latex import render_latex
from analyzer.formats.markdown import render_markdown
from analyzer.formats.text import render_text
from analyzer.formulas.family import family_names, load_family
from analyzer.formulas.language import FUNCTIONS
from analyzer.formulas.record import BLOCK, Certainty, Checked, FormulaReport, Reason, Side
from analyzer.schemas import load_schema

Make = Callable[[], FormulaReport]

everyone = pytest.mark.parametrize("make", formula_reports.REPORTS)


def document_of(report: FormulaReport) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(render_json(report), parse_constant=pytest.fail)
    return document


def table(text: str, heading: str) -> list[list[str]]:
    """Return the rows of one table, cut at two or more spaces, without the continued lines of expressions."""
    lines = text.splitlines()
    start = next(number for number, line in enumerate(lines) if re.match(rf"{re.escape(heading)}  ", line))
    rows: list[list[str]] = []
    for line in lines[start + 1 :]:
        if rows and rows[-1][0] == "total" and not line.strip().startswith("+ "):
            break
        if line.strip() and not line.strip().startswith("+ "):
            rows.append(re.split(r"\s{2,}", line.strip()))
    return rows


def number(text: str) -> int:
    return int(text.replace(",", ""))


# text


@everyone
def test_the_text_fits_and_cannot_reach_the_terminal(make: Make) -> None:
    for options in (RenderOptions(), RenderOptions(verbose=True, rows=2), RenderOptions(rows=0, width=132)):
        text = render_text(make(), options)
        assert max(map(len, text.splitlines())) <= options.width
        assert all(character.isprintable() or character == "\n" for character in text)


@pytest.mark.parametrize("make", [formula_reports.plain, formula_reports.compared, formula_reports.what_if])
def test_the_text_is_what_it_was(make: Make, golden: Callable[[str, str], None]) -> None:
    golden(f"formula-{make.__name__.replace('_', '-')}", render_text(make()))


def test_the_terms_of_the_text_add_up_to_the_parts_and_the_total() -> None:
    report = formula_reports.plain()
    text = render_text(report, RenderOptions(verbose=True))
    rows = [(row[0], number(row[-1])) for row in table(text, "term")]
    terms = {term.name: term for term in report.formula.terms}
    parts = {part.name: part.value for part in report.formula.parts}
    assert sum(value for name, value in rows if name in terms) == 102_290_312
    assert dict(rows)["embeddings"] == 16_622_592
    assert dict(rows)["blocks"] == 85_054_464
    assert dict(rows)["masked LM head"] == 613_256
    assert all(value == parts[name] for name, value in rows if name in parts)
    assert {name for name, _ in rows} == {*terms, *parts, "total"}


def test_what_pytorch_and_the_file_have_adds_up_in_the_text() -> None:
    text = render_text(formula_reports.compared())
    rows = [row for row in table(text[text.index("PyTorch:") :], "term") if row[0] != "word embeddings"]
    numbers = [[number(cell) for cell in row[1:]] for row in rows]
    assert [sum(column) for column in zip(*numbers[:-1], strict=True)] == numbers[-1]
    assert numbers[-1] == [102_290_312, 102_290_312, 102_887_125, 596_813]
    assert "PyTorch agrees with the formula, part by part" in text
    assert "DIFFERS: ONNX has 596,813 parameters more" in text
    assert "pooler: +590,592, present, as in BertModel" in text


def test_agreement_is_reported_for_both_sides() -> None:
    report = formula_reports.agreeing()
    assert "PyTorch agrees with the formula, part by part" in render_text(report)
    census = report.checked.census
    assert census is not None
    both = dataclasses.replace(report.checked, model=dataclasses.replace(census, kind="model"))
    assert "PyTorch and ONNX agree with the formula" in render_text(dataclasses.replace(report, checked=both))


def test_what_names_leave_open_is_agreement_and_says_so() -> None:
    report = formula_reports.agreeing()
    assert report.checked.census is not None
    counts = dict(report.checked.census.counts)
    moved = counts.pop("masked LM head/head bias")
    model = Side("model.onnx", "model", counts, {}, {"onnx::MatMul_7": moved})
    reasons = (
        Reason(
            "masked LM head/head bias",
            -moved,
            "are among the elements whose names match no term",
            Certainty.UNDECIDED,
        ),
        Reason("[no term]", moved, "a tensor whose names match no term", Certainty.UNDECIDED),
    )
    text = render_text(FormulaReport(Checked(report.formula, None, model, reasons)))
    assert "ONNX agrees with the formula, as far as its names show" in text
    assert "[no term] ONNX: onnx::MatMul_7 21,128" in text
    assert "DIFFERS" not in text


def test_as_many_parameters_but_others_differ() -> None:
    report = formula_reports.agreeing()
    assert report.checked.census is not None
    counts = dict(report.checked.census.counts)
    counts["embeddings/position embeddings"] += 768
    counts["embeddings/embeddings norm"] -= 768
    reasons = tuple(
        Reason(f"embeddings/{name}", elements, "nothing explains it", Certainty.UNEXPLAINED)
        for name, elements in (("position embeddings", 768), ("embeddings norm", -768))
    )
    model = Side("model.onnx", "model", counts, {}, {})
    text = render_text(FormulaReport(Checked(report.formula, None, model, reasons)))
    assert "DIFFERS: ONNX has as many parameters, but different ones" in text
    assert "embeddings/embeddings norm: -768, nothing explains it" in text


def test_what_no_reason_is_given_for_is_reported() -> None:
    report = formula_reports.compared()
    checked = dataclasses.replace(report.checked, reasons=report.checked.reasons[:1])
    text = render_text(dataclasses.replace(report, checked=checked))
    assert "+590,669: nothing explains it" in text


def test_what_if_shows_before_now_and_difference_of_what_changes() -> None:
    report = formula_reports.what_if()
    text = render_text(report)
    rows = {row[0]: [number(cell) for cell in row[1:]] for row in table(text, "what if")}
    assert rows["total"] == [102_290_312, report.formula.total, report.formula.total - 102_290_312]
    assert rows["output matrix"] == [0, 16_226_304, 16_226_304]
    assert rows["self-attention"] == [28_348_416, 14_174_208, -14_174_208]
    assert "position embeddings" not in rows
    assert re.search(r"num_hidden_layers +12 -> 6 +--set", text)
    assert re.search(r"tie_word_embeddings +true -> false +--set", text)


def test_the_table_of_terms_has_the_parts_of_the_formula_alone() -> None:
    report = formula_reports.what_if()
    assert report.before is not None
    back = FormulaReport(Checked(report.before), before=report.formula)
    text = render_text(back)
    assert "output matrix" not in [row[0] for row in table(text, "term")]
    assert "output matrix" in [row[0] for row in table(text, "what if")]


def test_symbols_alone_have_no_values() -> None:
    text = render_text(formula_reports.symbolic())
    assert "N*(12*D**2 + 13*D) + D*(D + L + T + V + 5) + V" in " ".join(text.split())
    assert "21,128" not in text
    assert "MiB" not in text
    assert re.search(r"^F +intermediate_size +\= 4\*D, default$", text, re.MULTILINE)


def test_experts_show_what_one_token_uses() -> None:
    report = formula_reports.experts()
    text = render_text(report)
    rows = {row[0]: row[-2:] for row in table(text, "term")}
    assert [number(cell) for cell in rows["experts"]] == [45_097_156_608, 45_097_156_608 // 4]
    assert "12,879,925,248 of them (12.88 G), 27.5785 %, are active" in text
    assert "num_experts_per_tok" in text
    assert "512.00 MiB for 8,192 tokens, of which the last 4,096 are kept" in " ".join(text.split())


def test_a_layer_that_is_shared_counts_once() -> None:
    text = " ".join(render_text(formula_reports.shared()).split())
    assert "blocks: each is applied 12 times and counts once; 85,054,464 if each use had its own" in text


def test_the_cache_of_an_encoder_and_a_decoder_has_both() -> None:
    text = " ".join(render_text(formula_reports.two_stacks()).split())
    assert "key-value cache: 2*D*M elements a token, 6.00 KiB at fp16, and 2*D*M, 6.00 KiB" in text
    assert "11.41 MiB for 448 tokens and 1,500 positions" in text


def test_weights_and_cache_are_added_up_and_a_context_that_is_too_long_is_reported() -> None:
    formula = formula_reports.count({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]})
    text = " ".join(render_text(FormulaReport(Checked(formula), tokens=5000)).split())
    assert "175.78 MiB for 5,000 tokens; the model is made for 1,024 at most" in text
    assert "weights and cache: 650.48 MiB at fp32, 413.13 MiB at fp16, 301.98 MiB at int8, 242.70 MiB" in text
    short = " ".join(render_text(FormulaReport(Checked(formula), tokens=1024)).split())
    assert "36.00 MiB for 1,024 tokens weights and cache: 510.70 MiB at fp32" in short


def test_long_tables_are_cut_and_what_is_left_out_is_counted() -> None:
    report = FormulaReport(Checked(formula_reports.derived(terms=30, parts=6).formula))
    text = render_text(report, RenderOptions(rows=4))
    shown = table(text, "term")
    assert [row[0] for row in shown] == [
        *(f"Linear {size}x{size} + {size}" for size in (8, 9, 10, 11)),
        "[26 others]",
        "total",
    ]
    assert sum(number(row[-1]) for row in shown[:-1]) == number(shown[-1][-1]) == report.formula.total
    assert "180 rows are under these and not shown" in text
    assert "180 rows are under these and not shown" in render_markdown(report, RenderOptions(rows=4))
    assert len(table(render_text(report, RenderOptions(rows=0)), "term")) == 30 * 7 + 1


def test_every_format_has_the_verdict_the_reasons_and_the_numbers() -> None:
    report = formula_reports.compared()
    for style in ("text", "markdown", "html"):
        page = render_report(report, style, RenderOptions(verbose=True))
        assert isinstance(page, str)
        words = " ".join(re.sub(r"<[^>]*>|[`\\\\]", "", page).split())
        places = [
            words.index(fact)
            for fact in (
                "DIFFERS: ONNX has 596,813 parameters more",
                "PyTorch agrees with the formula, part by part",
                "the vocabulary is padded from 21,128 to 21,136",
                "16,628,736",
                "vocab_size",
            )
        ]
        assert places == sorted(places)
        for fact in ("model.onnx, by the names in it", "extra.weight 77", "Devlin et al. 2018"):
            assert fact in words


def test_a_saved_formula_is_shown_with_its_symbols() -> None:
    page = render_saved(to_document(formula_reports.compared()))
    assert "DIFFERS: ONNX has 596,813 parameters more" in page
    assert "N*(4*D**2 + 2*D*F + 9*D + F)" in page
    assert "padded from 21,128 to 21,136" in page


def test_verbose_says_where_each_expression_is_from() -> None:
    text = render_text(formula_reports.plain(), RenderOptions(verbose=True))
    assert re.search(
        r"^feed-forward +Vaswani et al. 2017, arXiv:1706.03762, section 3.3$", text, re.MULTILINE
    )
    assert re.search(r"^ +tie_word_embeddings +true +default$", text, re.MULTILINE)


# json


@everyone
def test_the_document_matches_its_schema(make: Make) -> None:
    jsonschema.Draft202012Validator(load_schema("formula")).validate(document_of(make()))


@pytest.mark.parametrize("make", [make for make in formula_reports.REPORTS if not make().is_symbolic])
def test_the_document_adds_up(make: Make) -> None:
    document = document_of(make())
    terms = document["terms"]
    for key in ("value", "active"):
        whole = document["total" if key == "value" else key]
        assert sum(term[key] for term in terms) == whole
        assert all(sum(part[key] for part in term["parts"]) == term[key] for term in terms)
    assert all(part["each"] * part["times"] == part["value"] for term in terms for part in term["parts"])
    for each in document["memory"]["precisions"]:
        assert sum(term["bytes"] for term in each["terms"]) == each["bytes"]
    if document["actual"] is not None:
        kind = "model" if document["model"] else "census"
        left = sum(row["elements"] for row in document["unmatched"] if row["side"] == kind)
        assert sum(term["actual"] for term in terms) + left == document["actual"]
        assert sum(row["elements"] for row in document["reasons"]) == document["difference"]
    if document["what_if"] is not None:
        assert sum(term["after"] for term in document["what_if"]["terms"]) == document["total"]
        assert sum(term["before"] for term in document["what_if"]["terms"]) == document["what_if"]["total"]


@pytest.mark.parametrize("key", family_names())
def test_anybody_can_evaluate_the_expressions_of_a_document(key: str) -> None:
    family = load_family(key)
    for name in family.classes:
        config = {"model_type": family.model_types[0], "architectures": [name]}
        document = to_document(FormulaReport(Checked(formula_reports.count(config))))
        values = {row["field"]: row["value"] for row in document["fields"]}

        def evaluate(text: str, values: dict[str, Any] = values) -> Any:
            return eval(text, {"__builtins__": {}, **FUNCTIONS}, values)

        assert evaluate(document["expression"]) == document["total"]
        assert evaluate(document["active_expression"]) == document["active"]
        for term in document["terms"]:
            assert evaluate(term["expression"]) == term["value"]
            assert all(evaluate(part["expression"]) == part["value"] for part in term["parts"])


def test_the_expressions_of_a_derived_document_are_numbers() -> None:
    document = document_of(formula_reports.derived())
    assert document["expression"] is None
    assert all(eval(term["expression"], {"__builtins__": {}}) == term["value"] for term in document["terms"])


def test_a_symbolic_document_has_no_numbers_and_every_expression() -> None:
    plain, symbolic = document_of(formula_reports.plain()), document_of(formula_reports.symbolic())
    assert symbolic["expression"] == plain["expression"]
    assert symbolic["total"] is symbolic["memory"] is None
    assert [term["expression"] for term in symbolic["terms"]] == [t["expression"] for t in plain["terms"]]
    assert {term["value"] for term in symbolic["terms"]} == {None}
    assert {row["value"] for row in symbolic["fields"] if row["symbol"]} == {None}


def test_the_actual_count_is_the_files() -> None:
    document = document_of(formula_reports.compared())
    assert (document["total"], document["actual"], document["difference"]) == (
        102_290_312,
        102_887_125,
        596_813,
    )
    assert document["census"]["total"] == 102_290_312
    assert document["unmatched"] == [{"side": "model", "name": "extra.weight", "elements": 77}]
    assert [row["certainty"] for row in document["reasons"]] == ["explained", "explained", "unexplained"]
    assert document["generated_at"] == "2025-01-31T12:00:00+00:00"


def test_names_that_are_not_utf8_are_escaped_in_the_document() -> None:
    report = formula_reports.derived(name="a\udcff")
    assert "\\udc" not in render_json(report).replace("\\\\udc", "")
    assert document_of(report)["source"] == "a\\xff"


# markdown and latex


@everyone
def test_every_table_of_the_markdown_has_as_many_cells_in_each_row(make: Make) -> None:
    text = render_markdown(make())
    for block in text.split("\n\n"):
        rows = [re.sub(r"\\.", "", line) for line in block.splitlines() if line.startswith("|")]
        assert len({row.count("|") for row in rows}) <= 1
        assert not rows or len(rows) == len(block.splitlines())
    assert all(character.isprintable() or character == "\n" for character in text)


def test_names_are_no_markup_in_markdown() -> None:
    parsed = MarkdownIt("commonmark").enable("table").parse(render_markdown(formula_reports.hostile()))
    kinds = {child.type for token in parsed for child in token.children or ()}
    assert kinds <= {
        "text",
        "code_inline",
        "html_inline",
        "strong_open",
        "strong_close",
        "text_special",
        "softbreak",
    }
    tags = {
        child.content for token in parsed for child in token.children or () if child.type == "html_inline"
    }
    assert tags <= {"<code>", "</code>"}


def test_the_markdown_has_expressions_between_dollars() -> None:
    text = render_markdown(formula_reports.plain(), RenderOptions(rows=0))
    assert text.startswith(
        "### `bert-base-chinese`\n\nBERT, BertForMaskedLM\n\n**102,290,312 parameters (102.29 M)**\n"
    )
    assert r"| blocks | $N \left(12 D^{2} + 13 D\right)$ | 85,054,464 |" in text
    assert r"| &emsp;norms | $4 N D$ | 36,864 |" in text
    assert r"| $V$ | `vocab_size` | 21,128 |  |" in text


@everyone
def test_the_latex_is_balanced_and_each_row_has_its_cells(make: Make) -> None:
    text = render_latex(make())
    bare = re.sub(r"\\[\\{}$&#_%]", lambda found: " " if found[0] != r"\\" else "\n", text)
    assert bare.count("{") == bare.count("}")
    assert bare.count("$") % 2 == 0
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") > 0
    assert text.isascii()
    for body in re.findall(r"\\begin\{tabular\}\{([lr]+)\}\n(.*?)\\end\{tabular\}", text, re.DOTALL):
        letters, rows = body[0], [row for row in body[1].splitlines() if row != r"\hline"]
        assert {re.sub(r"\\&", "", row).count("&") for row in rows} == {len(letters) - 1}
        assert all(row.endswith(r" \\") for row in rows)


COMMANDS = {
    *("begin", "end", "hline", "quad", "noindent", "textbf", "texttt", "left", "right", "cdot", "char"),
    *(
        "textbackslash",
        "textasciitilde",
        "textasciicircum",
        "mathrm",
        "lfloor",
        "rfloor",
        "frac",
        "operatorname",
    ),
}


def test_names_are_no_commands_in_latex() -> None:
    text = render_latex(formula_reports.hostile())
    assert set(re.findall(r"(?<!\\)(?:\\\\)*\\([A-Za-z]+)", text)) <= COMMANDS
    bare = re.sub(r"\\(?:[A-Za-z]+|[\\{}$&#_%])", "", text)
    assert not set('\\#%~^_`|<>[]"') & set(re.sub(r"\$[<>|]\$|\{[\[\]]\}", "", bare))


def test_the_latex_has_the_symbols_and_the_numbers() -> None:
    text = render_latex(formula_reports.plain())
    assert r"blocks & $N \left(12 D^{2} + 13 D\right)$ & 85,054,464 \\" in text
    assert r"$V$ & \texttt{vocab\_size} & 21,128 &  \\" in text


# formats


def test_the_command_prints_every_form_that_a_formula_has() -> None:
    (style,) = (option for option in formula.params if option.name == "style")
    assert isinstance(style.type, click.Choice)
    forms = list(find_suffixes("FormulaReport").values())
    assert set(style.type.choices) == {name for name, each in FORMATS.items() if each in forms} - {"html"}


def test_the_command_shares_scales_as_the_record_does() -> None:
    (block,) = (option for option in formula.params if option.name == "block")
    assert block.default == BLOCK


def test_only_formulas_have_mathematics() -> None:
    assert find_suffixes("FormulaReport").keys() - find_suffixes(None).keys() == {".tex"}
    assert ".tex" not in find_suffixes("Inspection")


@everyone
@pytest.mark.parametrize("name", find_printed("FormulaReport"))
def test_a_second_run_prints_the_same(make: Make, name: str) -> None:
    first, second = (FORMATS[name].render(make(), RenderOptions()) for _ in range(2))
    assert first == second
    assert isinstance(first, str)
    assert first.endswith("\n")
    assert not first.endswith("\n\n")
