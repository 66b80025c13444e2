"""Subgraphs: by key, by depth, by the user's own patterns."""

from __future__ import annotations

from pathlib import Path

import pytest
from models import audit, ramp, text_model

from analyzer import group
from analyzer.errors import LedgerError, UsageError
from analyzer.group import group_by, group_by_patterns, parse_patterns
from analyzer.keys import KEYS
from analyzer.ledger import Group, Grouping, Ledger, natural_order

WEIGHTS = {
    "embeddings.word.weight": ramp(7, 3),
    "encoder.layer.0.fc.weight": ramp(3, 3),
    "encoder.layer.0.fc.bias": ramp(3),
    "encoder.layer.1.fc.weight": ramp(3, 3, start=20),
    "encoder.layer.1.fc.bias": ramp(3, start=20),
    "pooler.weight": ramp(3, 2),
}
"""21 + (9 + 3) + (9 + 3) + 6 = 51 parameters; `shape` is a constant of 2 without a scope."""


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


def test_scope_groups_hold_their_parameters(ledger):
    assert parameters(group_by(ledger, depth=1)) == {
        "embeddings": 21,
        "encoder": 24,
        "pooler": 6,
        "[unscoped]": 0,
    }


def test_depth_splits_groups_and_keeps_the_sum(ledger):
    assert parameters(group_by(ledger, depth=3)) == {
        "embeddings.word": 21,
        "encoder.layer.0": 12,
        "encoder.layer.1": 12,
        "pooler": 6,
        "[unscoped]": 0,
    }


@pytest.mark.parametrize("depth", [1, 2, 3, 4, 99])
@pytest.mark.parametrize("by", sorted(KEYS))
@pytest.mark.parametrize("total", ["parameters", "stored_elements", "nbytes", "tensors"])
def test_groups_sum_to_the_totals_at_every_depth_and_key(ledger, by, depth, total):
    wanted = {
        "parameters": ledger.parameters,
        "stored_elements": ledger.stored_elements,
        "nbytes": ledger.file_nbytes if by == "bytes" else ledger.stored_nbytes,
        "tensors": len(ledger.entries),
    }

    grouping = group_by(ledger, by, depth)

    assert sum(getattr(part, total) for part in grouping.groups) == wanted[total]


def test_nodes_are_counted_in_their_scope_and_sum_up(ledger):
    groups = {part.name: part.nodes for part in group_by(ledger, depth=1).groups}

    assert groups == {"embeddings": 1, "encoder": 2, "pooler": 1, "[unscoped]": 1}


def test_default_depth_is_the_first_with_three_groups(ledger):
    assert group_by(ledger).depth == 1


@pytest.mark.parametrize(
    ("names", "depth"),
    [
        (["model.a.weight", "model.b.weight", "model.c.weight"], 2),
        (["bert.encoder.a.weight", "bert.encoder.b.weight", "head.weight"], 3),
        (["a.weight", "b.weight", "c.weight"], 1),
        (["model.layers.0.weight"], 3),
        (["weight"], 1),
    ],
)
def test_default_depth_goes_deeper_until_there_are_three_groups(tmp_path, names, depth):
    nodes = " ".join(f'h{i + 1} = MatMul(h{i}, "{name}")' for i, name in enumerate(names))
    proto = text_model(
        f"g (float[2,2] h0) => (float[2,2] h{len(names)}) {{ {nodes} }}",
        {name: ramp(2, 2, start=5 * i) for i, name in enumerate(names)},
    )

    assert group_by(audit(tmp_path, proto)).depth == depth


@pytest.mark.parametrize(
    ("by", "groups"),
    [
        ("dtype", {"FLOAT": 51, "INT64": 0}),
        ("role", {"constant": 0, "parameter": 51}),
        ("op", {"Gather": 21, "Gemm": 24, "MatMul": 6, "Reshape": 0}),
    ],
)
def test_other_keys_group_by_what_they_say(ledger, by, groups):
    grouping = group_by(ledger, by)

    assert parameters(grouping) == groups
    assert grouping.depth is None


def test_what_no_node_reads_is_a_group_by_operator(tmp_path):
    ledger = audit(
        tmp_path, text_model("g (float[2] x) => (float[2] y) { y = Relu(x) }", {"fc.weight": ramp(2)})
    )

    assert parameters(group_by(ledger, "op")) == {"Relu": 0, "[unread]": 2}


def test_tensor_of_the_outermost_module_is_in_the_root_group(tmp_path):
    proto = text_model(
        'g (float[1,3] x) => (float[1,2] y) { ["/MatMul"] y = MatMul(x, w) }', {"w": ramp(3, 2)}
    )

    assert parameters(group_by(audit(tmp_path, proto))) == {"[root]": 6}


@pytest.mark.parametrize(("by", "depth"), [("colour", None), ("scope", 0), ("scope", -1)])
def test_key_or_depth_that_does_not_exist_is_refused(ledger, by, depth):
    with pytest.raises(UsageError, match="'colour' is not one of" if by == "colour" else "must be 1 or more"):
        group_by(ledger, by, depth)


def test_trainable_and_frozen_sum_to_the_groups_parameters(ledger):
    known = {((), name): (name, "layer.0" not in name) for name in WEIGHTS}

    groups = {part.name: part for part in group_by(ledger, depth=1, known=known).groups}

    assert (groups["encoder"].trainable, groups["encoder"].frozen) == (12, 12)
    assert (groups["pooler"].trainable, groups["pooler"].frozen) == (6, 0)


# the user's own groups


def identity(grouping: Grouping, total: str) -> int:
    """sum(groups) - overlap + ungrouped"""

    def of(part: Group) -> int:
        return getattr(part, total)

    return sum(map(of, grouping.groups)) - of(grouping.overlap) + of(grouping.ungrouped)


def test_own_groups_may_overlap_and_leave_things_out(ledger):
    patterns = parse_patterns(["encoder=^encoder", "first=layer\\.0", "biases=bias$"])

    grouping = group_by_patterns(ledger, patterns)

    # 24 + 12 + 6 = 42, of which layer 0 counts 12 again, its bias and layer 1's 3 each: 24 distinct
    assert parameters(grouping) == {"encoder": 24, "first": 12, "biases": 6}
    assert (grouping.overlap.parameters, grouping.ungrouped.parameters) == (18, 27)


@pytest.mark.parametrize("total", ["parameters", "stored_elements", "nbytes", "tensors", "nodes"])
@pytest.mark.parametrize(
    "texts", [["a=."], ["a=.", "b=.", "c=."], ["a=nothing at all"], ["a=layer", "b=fc", "c=^p"]]
)
def test_sum_less_overlap_plus_ungrouped_is_the_total(ledger, texts, total):
    whole = group_by(ledger)

    grouping = group_by_patterns(ledger, parse_patterns(texts))

    assert identity(grouping, total) == sum(getattr(part, total) for part in whole.groups)


def test_pattern_is_searched_in_name_and_in_pytorch_name(ledger):
    known = {((), "pooler.weight"): ("bert.pooler.dense.weight", True)}

    grouping = group_by_patterns(ledger, parse_patterns(["p=pooler\\.dense", "s=^shape$"]), known)

    assert parameters(grouping)["p"] == 6
    assert grouping.groups[1].tensors == 1


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["embeddings"], "write NAME=REGEX"),
        (["=x"], "write NAME=REGEX"),
        (["x="], "write NAME=REGEX"),
        (["a=x", "a=y"], "'a' is given twice"),
        (["a=("], "'a': .* in '\\('"),
    ],
)
def test_malformed_pattern_is_refused_with_what_to_write(texts, message):
    with pytest.raises(UsageError, match=message):
        parse_patterns(texts)


def test_pattern_may_hold_an_equals_sign():
    assert parse_patterns(["a=x=y"])["a"].pattern == "x=y"


# order


@pytest.mark.parametrize(
    "ordered",
    [
        ["layer.2", "layer.10"],
        ["a", "a.b", "b"],
        ["layer.0.a", "layer.0.b", "layer.1.a"],
        ["zebra", "[root]", "[unscoped]"],
        ["h.9", "h.10", "h.11.x", "h.100"],
        ["1", "2", "10", "a"],
    ],
)
def test_natural_order_counts(ordered):
    backwards = list(reversed(ordered))

    backwards.sort(key=natural_order)

    assert backwards == ordered


def test_digits_of_other_scripts_and_superscripts_can_be_sorted():
    assert sorted(["x²", "x٣", "x1"], key=natural_order)


def test_groups_that_do_not_sum_up_are_a_defect_and_no_result(ledger, monkeypatch):
    monkeypatch.setattr(group, "_total", lambda name, entries, nodes, known: Group(name))

    with pytest.raises(LedgerError, match="groups by scope do not sum up: parameters 0"):
        group_by(ledger)
