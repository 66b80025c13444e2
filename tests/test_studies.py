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
    # the study
    WORDS, WIDTH, MATRIX, MASKED, MASKED + MATRIX, BERT + WIDTH**2 + MATRIX, DENSE, 2 * WIDTH, MATRIX + WORDS, BERT, 0,
    # four more studies
    SECOND, ENCODER, ENCODER + DENSE, DENSE, 5 + LAYERS * 16 + 2, HEAD, sum(CHINESE_PARTS),
}  # fmt: skip

RATIOS = (100 * (FACTORS / EMBEDDINGS), 100 * ((BLOCK + SECOND) / ENCODER))
PERCENTAGES = {f"{ratio:.2f}" for ratio in RATIOS}

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
    """Return text without code, link targets and line breaks."""
    return re.sub(r"\s+", " ", re.sub(r"`[^`]*`|\]\([^)]*\)", " ", text))


def number(text: str) -> int:
    return int(text.replace(",", "").lstrip("+"))


def evaluate(text: str, **sizes: int) -> object:
    return parse_expression(text.replace(",", "").replace(" x ", "*")).evaluate(sizes)


def rows(*titles: str) -> list[list[str]]:
    """Return the cells of the table with these titles."""
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


def test_every_equation_of_the_text_is_right():
    equations = re.findall(rf"({SUM}) = ({SUM})", plain(TEXT))

    assert len(equations) >= 3
    for left, right in equations:
        assert evaluate(left) == evaluate(right), f"{left} = {right}"


def test_the_way_from_one_class_to_the_other_adds_up():
    (_, start), *steps, (_, end) = rows("from one class to the other", "parameters")

    assert number(start) == BERT
    assert number(start) + sum(number(step) for _, step in steps) == number(end) == MASKED


def test_every_file_has_what_the_formula_says_term_by_term():
    tables = list(compared())

    assert len(tables) == 2
    for *terms, total in tables:
        assert [sum(column) for column in zip(*terms, strict=True)] == total
        assert all(row[:1] * (len(row) - 1) == row[:-1] and row[-1] == 0 for row in (*terms, total))


def compared() -> Iterator[list[list[int]]]:
    """Yield the numbers of each table of terms beside PyTorch and a file."""
    for block in BLOCKS:
        for body in re.findall(
            r"^term [^\n]* difference\n(?:─+\n)?(.*?^total .*?)$", block, re.MULTILINE | re.DOTALL
        ):
            yield [list(map(number, re.findall(NUMBER, line))) for line in body.splitlines() if line.strip()]
