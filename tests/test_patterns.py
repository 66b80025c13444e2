"""The user's own groups: matches of a pattern, owners of multiple matches, and ungrouped entries."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest
from models import audit, ramp, text_model

from analyzer.account.group import group_by, patterns
from analyzer.account.group.patterns import (
    MATCHES,
    MAX_LENGTH,
    OVERLAP,
    UNGROUPED,
    AnyOf,
    compile_pattern,
    find_groups,
    find_overlap,
    group_by_patterns,
    list_names,
    parse_patterns,
)
from analyzer.account.ledger import Group, Grouping, Ledger
from analyzer.errors import LedgerError, UsageError

WEIGHTS = {
    "embeddings.word.weight": ramp(7, 3),
    "encoder.layer.0.fc.weight": ramp(3, 3),
    "encoder.layer.0.fc.bias": ramp(3),
    "encoder.layer.1.fc.weight": ramp(3, 3, start=20),
    "encoder.layer.1.fc.bias": ramp(3, start=20),
    "pooler.weight": ramp(3, 2),
}
"""Weights of 21 + (9 + 3) + (9 + 3) + 6 = 51 parameters; `shape` is a constant of 2 elements without a scope."""

TOTALS = ("parameters", "stored_elements", "nbytes", "tensors", "nodes")


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    proto = text_model(
        """
        g (int64[1,4] ids) => (float[1,4,2] y) <int64[2] shape = {4, 3}> {
            ["/embeddings/word/Gather"] h0 = Gather("embeddings.word.weight", ids)
            h1 = Reshape(h0, shape)
            ["/encoder/layer.0/fc/Gemm"] h2 = Gemm(h1, "encoder.layer.0.fc.weight", "encoder.layer.0.fc.bias")
            ["/encoder/layer.1/fc/Gemm"] h3 = Gemm(h2, "encoder.layer.1.fc.weight", "encoder.layer.1.fc.bias")
            ["/pooler/MatMul"] y = MatMul(h3, "pooler.weight")
        }
        """,
        WEIGHTS,
    )
    return audit(tmp_path, proto)


def parameters(grouping: Grouping) -> dict[str, int]:
    return {part.name: part.parameters for part in grouping.groups}


def identity(grouping: Grouping, total: str) -> int:
    """Return sum(groups) - overlap + ungrouped."""

    def of(part: Group) -> int:
        return getattr(part, total)

    return sum(map(of, grouping.groups)) - of(grouping.overlap) + of(grouping.ungrouped)


# groups


def test_own_groups_may_overlap_and_leave_things_out(ledger):
    patterns = parse_patterns(["encoder=^encoder", "first=layer\\.0", "biases=bias$"])

    grouping = group_by_patterns(ledger, patterns)

    # 24 + 12 + 6 = 42; layer 0's 12 and the two biases of 3 are counted again: 24 distinct
    assert parameters(grouping) == {"encoder": 24, "first": 12, "biases": 6}
    assert (grouping.overlap.parameters, grouping.ungrouped.parameters) == (18, 27)
    assert grouping.match == "all"


def test_first_puts_an_entry_into_the_first_group_that_matches(ledger):
    patterns = parse_patterns(["biases=bias$", "first=layer\\.0", "encoder=^encoder"])

    grouping = group_by_patterns(ledger, patterns, match="first", origin="--group")

    assert parameters(grouping) == {"biases": 6, "first": 9, "encoder": 9}
    assert (grouping.overlap.parameters, grouping.ungrouped.parameters) == (0, 27)
    assert (grouping.match, grouping.origin) == ("first", "--group")


def test_first_puts_a_node_into_the_first_group_that_matches(ledger):
    patterns = parse_patterns(["second=layer\\.1", "encoder=^encoder", "all=."])

    grouping = group_by_patterns(ledger, patterns, match="first")

    assert {group.name: group.nodes for group in grouping.groups} == {"second": 1, "encoder": 1, "all": 2}
    assert (grouping.overlap.nodes, grouping.ungrouped.nodes) == (0, 1)


@pytest.mark.parametrize("match", MATCHES)
@pytest.mark.parametrize("total", TOTALS)
@pytest.mark.parametrize(
    "texts", [[], ["a=."], ["a=.", "b=.", "c=."], ["a=nothing at all"], ["a=layer", "b=fc", "c=^p"]]
)
def test_sum_less_overlap_plus_ungrouped_is_the_total(ledger, texts, total, match):
    whole = group_by(ledger)

    grouping = group_by_patterns(ledger, parse_patterns(texts), match=match)

    assert identity(grouping, total) == sum(getattr(part, total) for part in whole.groups)
    assert match == "all" or getattr(grouping.overlap, total) == 0


def test_nodes_that_are_in_no_row_are_a_defect_and_no_result(ledger, monkeypatch):
    count = patterns.total_entries
    monkeypatch.setattr(
        patterns, "total_entries", lambda label, entries, nodes, known: count(label, entries, 0, known)
    )

    with pytest.raises(LedgerError, match="groups by group do not sum up: nodes 0"):
        group_by_patterns(ledger, parse_patterns(["encoder=^encoder"]))


def test_rows_beside_the_groups_have_names_in_brackets(ledger):
    grouping = group_by_patterns(ledger, parse_patterns(["a=a"]))

    assert (
        (grouping.overlap.name, grouping.ungrouped.name)
        == (OVERLAP, UNGROUPED)
        == ("[overlap]", "[ungrouped]")
    )


def test_pattern_is_searched_in_name_and_in_pytorch_name(ledger):
    known = {((), "pooler.weight"): ("bert.pooler.dense.weight", True)}

    grouping = group_by_patterns(ledger, parse_patterns(["p=pooler\\.dense", "s=^shape$"]), known)

    assert parameters(grouping)["p"] == 6
    assert grouping.groups[1].tensors == 1


def test_groups_and_rows_beside_them_count_trainable_and_frozen(ledger):
    known = {((), name): (name, "layer.0" not in name) for name in WEIGHTS}

    found = group_by_patterns(ledger, parse_patterns(["encoder=^encoder", "zero=layer\\.0"]), known)

    rows = (*found.groups, found.overlap, found.ungrouped)
    assert {row.name: (row.trainable, row.frozen) for row in rows} == {
        "encoder": (12, 12),
        "zero": (0, 12),
        OVERLAP: (0, 12),
        UNGROUPED: (27, 0),
    }


def test_an_entry_is_called_by_its_name_and_its_scope(ledger):
    names = [list_names(entry) for entry in ledger.entries]

    assert ["pooler.weight", "pooler.weight", "pooler"] in names
    assert ["shape"] in names


def test_an_entry_without_scope_is_not_searched_for_an_empty_one(ledger):
    grouping = group_by_patterns(ledger, parse_patterns(["none=^$"]))

    assert grouping.groups[0].tensors == grouping.groups[0].nodes == 0


def test_any_of_several_patterns_is_enough_and_each_numbers_its_own_groups():
    patterns = {"twice": AnyOf((re.compile(r"(x)\1"), re.compile(r"(y)\1")))}

    assert find_groups(["ayy"], patterns, "all") == ["twice"]
    assert find_groups(["ay"], patterns, "all") == []


def test_groups_in_common_are_a_finding_and_none_where_the_first_has_all(ledger):
    patterns = parse_patterns(["encoder=^encoder", "biases=bias$"])

    (finding,) = find_overlap(group_by_patterns(ledger, patterns))

    assert finding.message == "6 parameters are counted in more than one group (2 tensors)"
    assert find_overlap(group_by_patterns(ledger, patterns, match="first")) == ()


# options


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["embeddings"], "write NAME=REGEX"),
        (["=x"], "write NAME=REGEX"),
        (["x="], "write NAME=REGEX"),
        (["a=x", "a=y"], "'a' is given twice"),
        (["a=("], "'a': .* in '\\('"),
        (["[ungrouped]=x"], "names in brackets are reserved for the report"),
        ([" =x"], "a group needs a name"),
    ],
)
def test_malformed_pattern_is_refused_with_what_to_write(texts, message):
    with pytest.raises(UsageError, match=message):
        parse_patterns(texts)


def test_pattern_may_hold_an_equals_sign():
    assert parse_patterns(["a=x=y"])["a"].pattern == "x=y"


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("", "an empty pattern matches everything"),
        ("(", "unterminated subpattern"),
        ("[[:alpha:]]", "Possible nested set at position 1"),
        ("a{99999999999999}", "the repetition number is too large"),
        ("(" * 500 + ")" * 500, "in '\\(\\("),
        ("a" * (MAX_LENGTH + 1), "1,001 characters; 1,000 are allowed"),
    ],
)
def test_a_regex_that_cannot_be_used_says_why(expression, message):
    with pytest.raises(ValueError, match=message):
        compile_pattern(expression)


def test_a_regex_that_python_warns_of_is_refused_also_where_warnings_are_ignored():
    with warnings.catch_warnings(action="ignore"), pytest.raises(ValueError, match="nested set"):
        compile_pattern("[[:alpha:]]")


def test_a_regex_of_the_allowed_length_is_taken():
    assert compile_pattern("a" * MAX_LENGTH)
