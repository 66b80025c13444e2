"""Subgraphs: by one key or several, by depth."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from models import audit, ramp, text_model

from analyzer.account import group
from analyzer.account.group import group_by, total_by
from analyzer.account.group.keys import (
    ACCOUNTS,
    KEYS,
    ROOT,
    choose_key,
    first_dividing_depth,
    label_members,
    label_order,
)
from analyzer.account.ledger import Blocks, Entry, Group, Grouping, Ledger, Member, Role, Run, natural_order
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
@pytest.mark.parametrize("by", [*KEYS, ACCOUNTS, *map(",".join, itertools.permutations(KEYS, 2))])
def test_groups_sum_to_the_totals_at_every_depth_and_key(ledger, by, depth):
    grouping = group_by(ledger, by, depth)

    sums = {
        total: sum(getattr(part, total) for part in grouping.groups)
        for total in ("parameters", "stored_elements", "nbytes", "tensors")
    }
    assert sums == {
        "parameters": ledger.parameters,
        "stored_elements": ledger.stored_elements,
        "nbytes": ledger.file_nbytes if by == ACCOUNTS else ledger.stored_nbytes,
        "tensors": len(ledger.entries),
    }


def test_bytes_of_what_is_learned_leave_out_constants(ledger):
    found = {part.name: (part.learned_nbytes, part.nbytes) for part in group_by(ledger, depth=1).groups}

    assert found == {"embeddings": (84, 84), "encoder": (96, 96), "pooler": (24, 24), "[unscoped]": (0, 2)}


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
    ],
)
def test_default_depth_goes_deeper_until_there_are_three_groups(tmp_path, names, depth):
    nodes = " ".join(f'h{i + 1} = MatMul(h{i}, "{name}")' for i, name in enumerate(names))
    proto = text_model(
        f"g (float[2,2] h0) => (float[2,2] h{len(names)}) {{ {nodes} }}",
        {name: ramp(2, 2, start=5 * i) for i, name in enumerate(names)},
    )

    assert group_by(audit(tmp_path, proto)).depth == depth


def test_default_depth_is_that_of_the_parameters_whatever_scopes_buffers_have(tmp_path):
    names = ["model.a.weight", "model.b.weight", "x.running_var", "y.running_var"]
    nodes = " ".join(f'h{i + 1} = MatMul(h{i}, "{name}")' for i, name in enumerate(names))
    proto = text_model(
        f"g (float[2,2] h0) => (float[2,2] h4) {{ {nodes} }}",
        {name: ramp(2, 2, start=5 * i) for i, name in enumerate(names)},
    )

    assert group_by(audit(tmp_path, proto)).depth == 2


@pytest.mark.parametrize(
    ("by", "groups"),
    [
        ("dtype", {"FLOAT": 51, "INT64": 0}),
        ("op", {"Gather": 21, "Gemm": 24, "MatMul": 6, "Reshape": 0}),
    ],
)
def test_other_keys_group_by_what_they_say(ledger, by, groups):
    grouping = group_by(ledger, by)

    assert parameters(grouping) == groups
    assert grouping.depth is None


def with_blocks(ledger: Ledger, *, count: int = 2) -> Ledger:
    """Return the ledger with the encoder's entries in blocks, as if blocks had been found."""

    def place(entry: Entry) -> Member:
        parts = entry.scope.split(".")
        if parts[0] != "encoder":
            return Member("head" if parts[0] == "pooler" else "stem")
        return Member(f"block.{parts[2]}", "feed-forward")

    return replace(
        ledger,
        blocks=Blocks(
            runs=(Run(0, count),) if count else (),
            entries={entry.tensor.key: place(entry) for entry in ledger.entries},
            nodes={node.place: Member("stem") for node in ledger.model.nodes()},
            roles={e.tensor.key: "linear" for e in ledger.entries if e.role is Role.PARAMETER},
        ),
    )


@pytest.mark.parametrize(
    ("by", "depth", "groups"),
    [
        ("block", None, {"stem": 21, "block.0": 12, "block.1": 12, "head": 6}),
        (
            "block",
            2,
            {"stem": 21, "block.0.feed-forward": 12, "block.1.feed-forward": 12, "head": 6},
        ),
        ("role", None, {"constant": 0, "linear": 51}),
    ],
)
def test_blocks_and_roles_group_by_what_was_found(ledger, by, depth, groups):
    grouping = group_by(with_blocks(ledger), by, depth)

    assert list(parameters(grouping).items()) == list(groups.items())
    assert grouping.depth == (None if by == "role" else depth or 1)


def test_two_keys_are_two_parts_of_one_name(ledger):
    grouping = group_by(ledger, "scope,dtype", 1)

    assert parameters(grouping) == {
        "embeddings / FLOAT": 21,
        "encoder / FLOAT": 24,
        "pooler / FLOAT": 6,
        "[unscoped] / INT64": 0,
    }
    assert grouping.groups[0].label == ("embeddings", "FLOAT")
    assert grouping.depth == 1


@pytest.mark.parametrize("by", ["scope,", "scope,scope", "scope,bytes", "scope, dtype", ""])
def test_keys_that_do_not_go_together_are_refused(ledger, by):
    with pytest.raises(UsageError, match="--by"):
        group_by(ledger, by)


# the default key


def without_scopes(ledger: Ledger) -> Ledger:
    entries = tuple(replace(entry, scope="", scoped_by="none") for entry in ledger.entries)
    return replace(ledger, entries=entries, node_scopes={})


def test_scopes_are_chosen_where_any_parameter_has_one(ledger):
    assert choose_key(with_blocks(ledger)) == "scope"
    assert group_by(with_blocks(ledger)).by == "scope"


def test_blocks_are_chosen_where_no_parameter_has_a_scope(ledger):
    found = without_scopes(with_blocks(ledger))

    assert choose_key(found) == "block"
    assert parameters(group_by(found)) == {"stem": 21, "block.0": 12, "block.1": 12, "head": 6}


def test_file_of_numbered_names_is_grouped_by_the_blocks_that_repeat(tmp_path):
    layers = [
        f"a{i} = MatMul(x{i}, w{i}) b{i} = Relu(a{i}) c{i} = MatMul(b{i}, v{i}) x{i + 1} = Add(x{i}, c{i})"
        for i in range(4)
    ]
    weights = {f"{name}{i}": ramp(3, 3, start=10 * i + k) for i in range(4) for k, name in enumerate("wv")}
    proto = text_model(f"g (float[1,3] x0) => (float[1,3] x4) {{ {' '.join(layers)} }}", weights)

    found = audit(tmp_path, proto)

    grouping = group_by(found)

    assert grouping == group_by(replace(found, blocks=None), "block")
    assert label_members(found, "block").by == grouping.by == "block"
    assert parameters(grouping)["block.0"] == parameters(grouping)["block.1"] == 18
    assert {group.name: group.nodes for group in grouping.groups}["block.0"] == 4


def test_requested_scopes_are_returned_though_there_are_none(ledger):
    found = without_scopes(with_blocks(ledger))

    assert parameters(group_by(found, "scope")) == {"[unscoped]": 51}


@pytest.mark.parametrize("count", [0, None])
def test_without_scopes_and_without_blocks_the_key_is_the_operator(ledger, count):
    bare = without_scopes(ledger)
    found = replace(bare, blocks=None) if count is None else without_scopes(with_blocks(ledger, count=count))

    assert choose_key(found) == "op"


# reuse


def test_group_counts_what_it_would_hold_if_each_use_had_its_own(ledger):
    entries = tuple(replace(e, applications=12) if "layer.0" in e.scope else e for e in ledger.entries)

    groups = {part.name: part for part in group_by(replace(ledger, entries=entries), depth=3).groups}

    used = groups["encoder.layer.0"]
    assert (used.parameters, used.applications, used.unshared_parameters) == (12, 12, 144)
    assert (groups["encoder.layer.1"].applications, groups["encoder.layer.1"].unshared_parameters) == (1, 12)


def test_group_of_tensors_that_are_used_unlike_has_no_number_of_uses(ledger):
    entries = tuple(replace(e, applications=12) if "layer.0" in e.scope else e for e in ledger.entries)

    groups = {part.name: part for part in group_by(replace(ledger, entries=entries), depth=1).groups}

    assert (groups["encoder"].applications, groups["encoder"].unshared_parameters) == (1, 144 + 12)


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


@pytest.mark.parametrize(
    ("by", "message"),
    [
        (
            "scope,bytes",
            "bytes cannot be combined with another key",
        ),
        ("scope,colour", "'colour' is not one of scope, block, stage, op, dtype, role"),
        ("colour", "'colour' is not one of scope, block, stage, op, dtype, role, bytes"),
    ],
)
def test_refusal_of_a_key_lists_the_others_and_says_which_stands_alone(ledger, by, message):
    with pytest.raises(UsageError) as caught:
        group_by(ledger, by)

    assert str(caught.value) == f"--by {by}: {message}"


def test_nodes_are_counted_by_two_keys_too(ledger):
    groups = {part.name: part.nodes for part in group_by(ledger, "scope,op", 2).groups}

    assert groups == {
        "embeddings.word / Gather": 1,
        "encoder.layer / Gemm": 2,
        "pooler / MatMul": 1,
        "[unscoped] / Reshape": 1,
    }


def test_trainable_and_frozen_sum_to_the_groups_parameters(ledger):
    known = {((), name): (name, "layer.0" not in name) for name in WEIGHTS}

    groups = {part.name: part for part in group_by(ledger, depth=1, known=known).groups}

    assert (groups["encoder"].trainable, groups["encoder"].frozen) == (12, 12)
    assert (groups["pooler"].trainable, groups["pooler"].frozen) == (6, 0)


def test_trainable_and_frozen_sum_to_the_accounts_parameters(ledger):
    known = {((), name): (name, "layer.0" not in name) for name in WEIGHTS}

    groups = {part.name: part for part in group_by(ledger, "bytes", known=known).groups}

    assert (groups["parameter"].trainable, groups["parameter"].frozen) == (39, 12)
    assert all(part.nodes == 0 for part in groups.values())


@pytest.mark.parametrize("by", ["scope", "bytes"])
def test_keys_leave_nothing_out_and_count_nothing_twice(ledger, by):
    known = {((), name): (name, True) for name in WEIGHTS}
    for trainable, grouping in ((None, group_by(ledger, by)), (0, group_by(ledger, by, known=known))):
        nothing = (0, 0, 0, 0, trainable, trainable)

        for part in (grouping.ungrouped, grouping.overlap):
            found = (part.parameters, part.nbytes, part.tensors, part.nodes, part.trainable, part.frozen)
            assert (part.name, found) == ("", nothing)


def test_totals_by_a_text_are_in_natural_order_and_say_nothing_of_nodes(ledger):
    texts = {name: f"layer.{number}" for number, name in zip((10, 2, 2, 9, 9, 1), WEIGHTS, strict=True)}
    entries = [entry for entry in ledger.entries if entry.tensor.name in WEIGHTS]

    totals = total_by(entries, lambda entry: texts[entry.tensor.name])

    assert [(part.name, part.parameters, part.nodes) for part in totals] == [
        ("layer.1", 6, 0),
        ("layer.2", 12, 0),
        ("layer.9", 12, 0),
        ("layer.10", 21, 0),
    ]


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


def test_blocks_come_between_stem_and_head_and_numbers_by_their_size():
    names = ["[unscoped]", "head", "layer.10", "layer.2", "stem"]

    names.sort(key=lambda name: label_order((name,)))

    assert names == ["stem", "layer.2", "layer.10", "head", "[unscoped]"]


def test_digits_of_other_scripts_and_superscripts_can_be_sorted():
    assert sorted(["x²", "x٣", "x1"], key=natural_order)


def test_groups_that_do_not_sum_up_are_a_defect_and_no_result(ledger, monkeypatch):
    monkeypatch.setattr(
        group, "total_entries", lambda label, entries, nodes, known, **options: Group("".join(label))
    )

    with pytest.raises(LedgerError, match="groups by scope do not sum up: parameters 0"):
        group_by(ledger)


def test_nodes_that_are_in_no_group_are_a_defect_and_no_result(ledger, monkeypatch):
    count = group.total_entries
    monkeypatch.setattr(
        group,
        "total_entries",
        lambda label, entries, nodes, known, **options: count(label, entries, 0, known),
    )

    with pytest.raises(LedgerError, match="groups by scope do not sum up: nodes 0"):
        group_by(ledger)


@given(
    st.dictionaries(
        st.lists(st.sampled_from(["a", "b", "0", "1", "[root]"]), max_size=5).map(".".join),
        st.integers(0, 9),
        max_size=9,
    )
)
def test_the_usual_depth_is_that_of_groups_made_depth_by_depth(parameters):
    def groups(depth):
        found = Counter()
        for scope, count in parameters.items():
            found[".".join(scope.split(".")[:depth]) or ROOT] += count
        return found

    deepest = max((scope.count(".") + 1 for scope in parameters), default=1)
    wide = [depth for depth in range(1, deepest + 1) if len(groups(depth)) > 2]
    whole = sum(parameters.values())
    telling = [depth for depth in wide if max(groups(depth).values()) <= 0.9 * whole or not whole]

    assert first_dividing_depth(parameters) == next(iter(telling or wide), deepest)
