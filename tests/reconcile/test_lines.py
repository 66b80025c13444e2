"""What the lines of the bridge mean: each says all that is asked of it, once."""

from __future__ import annotations

import pytest

from analyzer.reconciliation.lines import MEANINGS, RETYPED, UNBALANCED, Line, name_of

everyone = pytest.mark.parametrize("line", Line)


def test_every_line_has_a_meaning_in_the_order_of_the_report() -> None:
    assert list(MEANINGS) == list(Line)


@everyone
def test_a_line_that_changes_values_names_what_was_moved_and_copied_besides(line: Line) -> None:
    chain = (Line.TRANSPOSED, line, Line.COPIED)

    assert name_of(chain) is (line if MEANINGS[line].changes_values else Line.COPIED)


@everyone
def test_a_line_that_balances_says_nothing_is_wrong_and_one_that_does_not_says_it_of_one_and_of_many(
    line: Line,
) -> None:
    assert len(set(MEANINGS[line].unbalanced)) == (2 if line in UNBALANCED else 0)


@everyone
def test_what_is_wrong_explains_no_formula(line: Line) -> None:
    assert not (MEANINGS[line].unbalanced and MEANINGS[line].in_formula)


@everyone
def test_a_table_that_is_cut_is_explained_to_a_formula(line: Line) -> None:
    assert MEANINGS[line].in_formula or not MEANINGS[line].is_cut


@everyone
def test_what_is_not_stored_is_explained_to_a_formula_or_is_missing(line: Line) -> None:
    meaning = MEANINGS[line]

    assert meaning.has_tensor or meaning.in_formula or line is Line.MISSING


@pytest.mark.parametrize(
    "name",
    ["folded-batchnorm", "folded-weightnorm", "folded-pointwise", "cast", "quantized", "block-quantized"],
)
def test_what_is_computed_rounded_or_coded_changes_values(name: str) -> None:
    assert MEANINGS[Line(name)].changes_values
    assert (Line(name) in RETYPED) is not name.startswith("folded")


def test_the_lines_that_keep_an_account_from_balancing_are_these() -> None:
    assert [line.value for line in UNBALANCED] == [
        *("differing", "missing", "unexpected", "unexplained"),
        *("misplaced", "dead", "opaque", "not-compared"),
    ]


@pytest.mark.parametrize(
    ("values", "names"),
    [
        (
            "kept",
            "identical named renamed transposed reshaped sliced gathered broadcast concatenated tied deduplicated "
            "copied duplicated-file",
        ),
        ("cast", "cast"),
        ("coded", "quantized block-quantized"),
        ("computed", "folded-batchnorm folded-weightnorm folded-pointwise evaluated"),
        (
            "none",
            "removed-zero unused outside buffer added quantization differing missing unexpected unexplained "
            "misplaced dead opaque not-compared",
        ),
    ],
)
def test_the_lines_on_which_values_are_kept_rounded_coded_computed_or_nobodys_are_these(
    values: str, names: str
) -> None:
    assert [line.value for line, meaning in MEANINGS.items() if meaning.values == values] == names.split()


def test_the_lines_of_a_cut_table_and_of_what_has_no_tensor_are_these() -> None:
    cut = [line.value for line, meaning in MEANINGS.items() if meaning.is_cut is not False]
    bare = [line.value for line, meaning in MEANINGS.items() if meaning.has_tensor is not True]

    assert cut == ["sliced", "gathered", "broadcast"]
    assert bare == ["deduplicated", "removed-zero", "unused", "outside", "missing"]


@everyone
def test_yes_and_no_are_said_as_such_and_sentences_begin_and_end_with_a_word(line: Line) -> None:
    meaning = MEANINGS[line]

    assert {type(meaning.is_cut), type(meaning.has_tensor)} == {bool}
    for sentence in (*meaning.unbalanced, meaning.lost, meaning.in_formula):
        assert not {sentence[:1], sentence[-1:]} & set(" .X")
