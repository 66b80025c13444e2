"""docs/study.md: every figure of its text and tables is computed here, from the sizes in the configs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from analyzer.formulas.counting import count_config
from analyzer.formulas.language import parse_expression
from analyzer.formulas.record import Formula
from exporter.presets import preset_config

PAGE = (Path(__file__).parents[1] / "docs" / "study.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```console\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
TEXT = re.sub(r"^```.*?^```$", "", PAGE, flags=re.MULTILINE | re.DOTALL)
NUMBER = r"(?<![\w.,-])(?:\d{1,3}(?:,\d{3})+|\d+)(?![\w.]*\d)"
SUM = rf"{NUMBER}(?: [-+x] {NUMBER})*"

WORDS, LENGTH, TYPES, WIDTH, LAYERS, LABELS = 30_522, 512, 2, 768, 12, 2
CHINESE, ENGLISH, FACTOR, PIECES = 21_128, 50_257, 128, 30_000

MATRIX = WORDS * WIDTH
EMBEDDINGS = (WORDS + LENGTH + TYPES + 2) * WIDTH
BLOCK = 12 * WIDTH**2 + 13 * WIDTH
ENCODER = LAYERS * BLOCK
DENSE = WIDTH**2 + WIDTH
BERT = EMBEDDINGS + ENCODER + DENSE
HEAD = LABELS * WIDTH + LABELS
MASKED = BERT - DENSE + DENSE + 2 * WIDTH + WORDS
SECOND = FACTOR * WIDTH + WIDTH
FACTORS = (PIECES + LENGTH + TYPES + 2) * FACTOR + SECOND
ALBERT = FACTORS + BLOCK + DENSE
GPT2 = (ENGLISH + 1_024 + 2) * WIDTH + ENCODER
CHINESE_PARTS = (
    (CHINESE + LENGTH + TYPES + 2) * WIDTH,
    ENCODER,
    CHINESE + WIDTH**2 + 3 * WIDTH,
)

COUNTS = {
    # sizes
    WORDS, LENGTH, WIDTH, LAYERS, CHINESE, ENGLISH, FACTOR, TYPES,
    # A
    EMBEDDINGS, ENCODER, FACTORS, BLOCK, BLOCK + SECOND, SECOND, DENSE, ALBERT, ALBERT + SECOND,
    # B, C
    BERT, ENCODER + DENSE, 0, 5, 16, 5 + LAYERS * 16 + 2, LAYERS * 6, HEAD, BERT + HEAD,
    # D
    MATRIX, MASKED, MASKED + MATRIX, BERT + WIDTH**2 + MATRIX, 2 * WIDTH, MATRIX + WORDS,
    # E
    *CHINESE_PARTS, sum(CHINESE_PARTS), CHINESE * WIDTH, GPT2, ENGLISH * WIDTH, GPT2 + ENGLISH * WIDTH,
    # beyond the studies
    85, 24, (85 + 24) * WIDTH,
}  # fmt: skip

SHARES = {part: f"{100 * part / BERT:.4f}" for part in (EMBEDDINGS, ENCODER, DENSE, BERT)}
RATIOS = (100 * (FACTORS / EMBEDDINGS), 100 * ((BLOCK + SECOND) / ENCODER))
PERCENTAGES = {
    *SHARES.values(),
    f"{100 * (ENCODER + DENSE) / BERT:.4f}",
    *(str(ratio) for ratio in RATIOS),
    *(f"{ratio:.2f}" for ratio in RATIOS),
}

MODELS = (
    ("bert-base-uncased", "AutoModel", BERT),
    ("bert-base-uncased", "BertForSequenceClassification", BERT + HEAD),
    ("bert-base-uncased", "AutoModelForMaskedLM", MASKED),
    ("bert-base-chinese", "AutoModelForMaskedLM", sum(CHINESE_PARTS)),
    ("albert-base-v2", "AutoModel", ALBERT),
    ("gpt2", "AutoModelForCausalLM", GPT2),
)


def count(name: str, model_class: str | None = None) -> Formula:
    formula = count_config(preset_config(name), model_class)
    assert formula is not None
    return formula


def plain(text: str) -> str:
    """Without code, links' targets and line breaks."""
    return re.sub(r"\s+", " ", re.sub(r"`[^`]*`|\]\([^)]*\)", " ", text))


def number(text: str) -> int:
    return int(text.replace(",", "").lstrip("+"))


def evaluate(text: str, **sizes: int) -> object:
    return parse_expression(text.replace(",", "").replace(" x ", "*")).evaluate(sizes)


def rows(*titles: str) -> list[list[str]]:
    """The cells of the table that has these titles."""
    head = "| " + " | ".join(titles) + " |\n"
    (_, body) = TEXT.split(head)
    lines = body.partition("\n\n")[0].splitlines()[1:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.parametrize(("name", "model_class", "total"), MODELS)
def test_the_sizes_of_the_configs_give_the_counts(name: str, model_class: str, total: int):
    assert count(name, model_class).total == total


def test_every_figure_of_the_text_is_computed():
    text = plain(TEXT)

    percentages = set(re.findall(r"(?<![\w-])(\d+\.\d+) %", text))
    counts = {number(found) for found in re.findall(NUMBER, re.sub(r"\d+\.\d+ %", "", text))}

    assert percentages == PERCENTAGES
    assert counts == COUNTS


def test_every_equation_of_the_text_holds():
    equations = re.findall(rf"({SUM}) = ({SUM})", plain(TEXT))

    assert len(equations) >= 18
    for left, right in equations:
        assert evaluate(left) == evaluate(right), f"{left} = {right}"


def test_the_table_of_the_studies_leads_to_their_headings():
    linked = re.findall(r"^\| \[.*?\]\(#(.*?)\)", TEXT, re.MULTILINE)
    headings = re.findall(r"^## ([A-E]\. .*)$", TEXT, re.MULTILINE)

    anchors = [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]

    assert linked == anchors
    assert len(linked) == 5


def test_the_ratios_of_albert_against_bert_are_those_of_their_counts():
    table = rows("group", "BERT", "ALBERT", "ALBERT / BERT")

    found = [(number(bert), number(albert), ratio) for _, bert, albert, ratio in table]

    assert found == [
        (EMBEDDINGS, FACTORS, f"{RATIOS[0]} %"),
        (ENCODER, BLOCK + SECOND, f"{RATIOS[1]} %"),
    ]


def test_the_shares_of_the_three_parts_are_those_of_their_counts():
    *parts, total = rows("part", "parameters", "share")

    counts = [number(cells[1]) for cells in parts]

    assert counts == [EMBEDDINGS, ENCODER, DENSE]
    assert number(total[1]) == sum(counts) == BERT
    assert [cells[2] for cells in (*parts, total)] == [f"{share} %" for share in SHARES.values()]


def test_the_way_from_one_class_to_the_other_adds_up():
    (_, start), *steps, (_, end) = rows("from one class to the other", "parameters")

    assert number(start) == BERT
    assert number(start) + sum(number(step) for _, step in steps) == number(end) == MASKED


def test_the_expressions_of_the_hand_made_closed_form_come_to_its_values():
    *parts, total = rows("part", "expression", "value")

    values = [
        evaluate(expression.strip("`"), V=CHINESE, L=LENGTH, D=WIDTH, N=LAYERS) for _, expression, _ in parts
    ]

    assert values == [number(value) for *_, value in parts] == list(CHINESE_PARTS)
    assert values == [term.value for term in count("bert-base-chinese", "AutoModelForMaskedLM").terms]
    assert number(total[2]) == sum(CHINESE_PARTS)


def test_the_blocks_of_bert_gpt2_and_bart_are_one_expression():
    alike = {"bert-base-uncased": "blocks", "gpt2": "blocks", "facebook/bart-base": "encoder blocks"}

    for name, term in alike.items():
        assert "`12*D**2 + 13*D`" in TEXT
        assert each(count(name), term) == evaluate("12*D**2 + 13*D", D=WIDTH)
    assert "`16*D**2 + 19*D`" in TEXT
    assert each(count("facebook/bart-base"), "decoder blocks") == evaluate("16*D**2 + 19*D", D=WIDTH)


def each(formula: Formula, name: str) -> int:
    """Elements of one block."""
    (term,) = [term for term in formula.terms if term.name == name]
    return sum(part.each for part in term.parts)


def test_the_printed_sums_of_terms_add_up_and_are_what_pytorch_has():
    (block,) = [block for block in BLOCKS if "python3 terms.py" in block]
    found = [re.sub(r"\s+", " ", text) for text in re.findall(r"^  \d[^=\n]*= [^P]*", block, re.MULTILINE)]
    beside = re.findall(r"^  PyTorch ([\d,]+), difference (\d+)$", block, re.MULTILINE)

    assert len(found) == len(beside) == 8
    for sentence, (pytorch, difference) in zip(found, beside, strict=True):
        total, _, terms = sentence.partition(" = ")
        assert number(total) == sum(map(number, re.findall(NUMBER, terms))) == number(pytorch)
        assert difference == "0"


def test_every_file_has_what_the_formula_says_term_by_term():
    tables = list(compared())

    assert len(tables) == 7
    for *terms, total in tables:
        assert [sum(column) for column in zip(*terms, strict=True)] == total
        assert all(row[:1] * (len(row) - 1) == row[:-1] and row[-1] == 0 for row in (*terms, total))


def compared() -> Iterator[list[list[int]]]:
    """The numbers of each table of terms beside PyTorch and a file."""
    for block in BLOCKS:
        for body in re.findall(
            r"^term [^\n]* difference\n─+\n(.*?^total .*?)$", block, re.MULTILINE | re.DOTALL
        ):
            yield [list(map(number, re.findall(NUMBER, line))) for line in body.splitlines() if line.strip()]
