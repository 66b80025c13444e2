"""Trees of groups: subtotals add up, equal neighbours fold, and rows may be left out."""

from __future__ import annotations

import functools
import itertools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import sampled

from analyzer.account.audit import audit_model
from analyzer.account.group import group_by
from analyzer.account.group.branches import fold_names, is_learned
from analyzer.account.group.keys import ACCOUNTS, KEYS
from analyzer.account.group.tree import OWN, TreeRow, build_tree, cut_rows, sum_groups
from analyzer.account.ledger import Blocks, Entry, Group, Grouping, Ledger, Member, Role, Run
from analyzer.model import Carrier, File, Graph, Model, NoPayload, StoredTensor
from analyzer.model.dtypes import DType
from analyzer.model.wiring import Wiring

TOTALS = (
    "parameters",
    "unshared_parameters",
    "stored_elements",
    "nbytes",
    "learned_nbytes",
    "tensors",
    "nodes",
)
NOTHING = Group("")


@dataclass(frozen=True)
class Stored:
    """A tensor of an invented ledger."""

    scope: str | None
    elements: int = 4
    role: Role = Role.PARAMETER
    dtype: DType = DType.FLOAT
    uses: int = 1
    is_copy: bool = False
    block: str = "stem"


def ledger_of(stored: Sequence[Stored]) -> Ledger:
    """Return a ledger of these tensors, as if a file held them."""
    entries = tuple(_entry(index, item) for index, item in enumerate(stored))
    tensors = tuple(entry.tensor for entry in entries)
    nbytes = sum(tensor.nbytes for tensor in tensors)
    return Ledger(
        model=Model("m.onnx", (File("m.onnx", nbytes),), 10, (), "", (Graph((), (), (), (), tensors),)),
        entries=entries,
        accounts=(),
        findings=(),
        wiring=Wiring({}),
        blocks=Blocks(
            runs=(Run(0, 1),),
            entries={
                entry.tensor.key: Member(*item.block.split("/"))
                for entry, item in zip(entries, stored, strict=True)
            },
            nodes={},
            roles={entry.tensor.key: "linear" for entry in entries if entry.role is Role.PARAMETER},
        ),
    )


def _entry(index: int, item: Stored) -> Entry:
    learned = item.role is Role.PARAMETER and not item.is_copy
    tensor = StoredTensor(
        name=f"t{index}",
        graph_path=(),
        carrier=Carrier.INITIALIZER,
        dtype=item.dtype,
        shape=(item.elements,),
        numel=item.elements,
        nbytes=item.elements * item.dtype.bits // 8,
        payload=NoPayload(),
    )
    return Entry(
        tensor=tensor,
        role=item.role,
        decided_by="name:test",
        scope=item.scope or "",
        scoped_by="none" if item.scope is None else "name:test",
        sources=(),
        uses=1,
        read_by="MatMul",
        parameters=item.elements if learned else 0,
        logical_numel=item.elements,
        applications=item.uses,
    )


def grouped(names: Mapping[str, int | Group], by: str = "scope", depth: int | None = 99) -> Grouping:
    """Return groups by name; a number is a count of parameters of four bytes each."""
    groups = tuple(
        value if isinstance(value, Group) else learned(name, value) for name, value in names.items()
    )
    return Grouping(by, depth, groups, NOTHING, NOTHING)


def learned(name: str, parameters: int, **fields: int) -> Group:
    known = {
        "unshared_parameters": parameters,
        "stored_elements": parameters,
        "nbytes": 4 * parameters,
        "learned_nbytes": 4 * parameters,
        "tensors": 1,
    }
    return Group(name, tuple(name.split(" / ")), parameters, **{**known, **fields})


def constant(name: str, elements: int = 1) -> Group:
    return Group(name, tuple(name.split(" / ")), stored_elements=elements, nbytes=8 * elements, tensors=1)


def outline(rows: Sequence[TreeRow]) -> list[tuple[str, int, int]]:
    """Return each row's indented title, its number of groups, and the parameters of each group."""
    return [("  " * row.level + row.title, row.count, row.parameters) for row in rows]


def check(rows: Sequence[TreeRow], grouping: Grouping) -> None:
    """Check every tree's rules: subtotals add up, and all groups of a folded row have equal counts."""
    for total in TOTALS:
        outermost = sum(getattr(row.total, total) for row in rows if not row.level)
        assert outermost == sum(getattr(group, total) for group in grouping.groups)
    for row, below in children(rows):
        assert row.count * row.parameters == row.total.parameters
        if below:
            for total in TOTALS:
                assert sum(getattr(child.total, total) for child in below) == getattr(row.total, total)
            assert len(below) > 1
    assert len({row.total.name for row in rows}) == len(rows)


def children(rows: Sequence[TreeRow]) -> Iterator[tuple[TreeRow, list[TreeRow]]]:
    """Yield each row with the rows directly below it."""
    for at, row in enumerate(rows):
        under = itertools.takewhile(lambda other, row=row: other.level > row.level, rows[at + 1 :])
        yield row, [other for other in under if other.level == row.level + 1]


LAYERS = {f"encoder.layer.{i}.{part}": n for i in range(12) for part, n in (("attention", 7), ("output", 5))}


# shape


def test_equal_layers_are_one_row_with_what_each_has_once_below_it():
    grouping = grouped({"embeddings": 30, **LAYERS, "pooler": 6})

    rows = build_tree(grouping)

    assert outline(rows) == [
        ("embeddings", 1, 30),
        ("encoder.layer.0-11", 12, 12),
        ("  attention", 12, 7),
        ("  output", 12, 5),
        ("pooler", 1, 6),
    ]
    assert [row.total.name for row in rows[1:3]] == ["encoder.layer.0-11", "encoder.layer.0-11.attention"]
    check(rows, grouping)


def test_bert_at_depth_three_is_three_rows():
    stored = [
        Stored("embeddings", 30),
        *(Stored(f"encoder.layer.{i}.fc", 12) for i in range(12)),
        Stored("pooler", 6),
    ]
    grouping = group_by(ledger_of(stored), "scope", 3)

    assert outline(build_tree(grouping)) == [
        ("embeddings", 1, 30),
        ("encoder.layer.0-11", 12, 12),
        ("pooler", 1, 6),
    ]


def test_parent_of_several_has_their_subtotal():
    rows = build_tree(grouped({"a.x": 1, "a.y": 2, "b": 3, "c": 4}))

    assert outline(rows) == [("a", 1, 3), ("  x", 1, 1), ("  y", 1, 2), ("b", 1, 3), ("c", 1, 4)]


def test_parent_of_one_is_not_spelled_out():
    rows = build_tree(grouped({"a.b.c.x": 1, "a.b.c.y": 2, "d": 3, "e.f.g": 4}))

    assert outline(rows) == [("a.b.c", 1, 3), ("  x", 1, 1), ("  y", 1, 2), ("d", 1, 3), ("e.f.g", 1, 4)]


def test_what_a_parent_has_learned_itself_is_a_row_under_it():
    rows = build_tree(grouped({"a": 5, "a.x": 1, "b": 2, "c": 3, "d": 4}))

    assert outline(rows)[:3] == [("a", 1, 6), (f"  {OWN}", 1, 5), ("  x", 1, 1)]
    assert rows[1].total.name == f"a {OWN}"


def test_constants_of_a_parent_of_one_stand_beside_it():
    grouping = grouped({"encoder.layer": constant("encoder.layer", 5), **LAYERS, "a": 1, "b": 2})

    rows = build_tree(grouping)

    assert outline(rows)[:3] == [
        ("encoder.layer", 1, 0),
        ("encoder.layer.0-11", 12, 12),
        ("  attention", 12, 7),
    ]
    assert [row.total.name for row in rows[:2]] == ["encoder.layer", "encoder.layer.0-11"]
    check(rows, grouping)


def test_constants_of_a_parent_of_several_are_its_own():
    rows = build_tree(grouped({"a": constant("a"), "a.x": 1, "a.y": 2, "b": 3, "c": 4}))

    assert outline(rows)[:4] == [("a", 1, 3), (f"  {OWN}", 1, 0), ("  x", 1, 1), ("  y", 1, 2)]


@pytest.mark.parametrize(
    "names",
    [
        {"model.a": 1, "model.b": 2, "model.c": 3},
        {"bert": 0, "bert.embeddings": 1, "bert.encoder": 2, "cls.head": 3},
        {"model.layers.0": 1, "model.layers.1": 2, "model.layers.2": 3},
    ],
)
def test_depth_that_is_taken_by_default_is_a_plain_list(names):
    stored = [Stored(f"{name}.fc", 10 * count) for name, count in names.items() if count]
    grouping = group_by(ledger_of(stored), "scope")

    rows = build_tree(grouping)

    assert [row.title for row in rows] == [name for name, count in names.items() if count]
    assert {row.level for row in rows} == {0}


def test_plain_list_folds_too():
    grouping = group_by(ledger_of([Stored(f"layers.{i}.fc") for i in range(4)]), "scope")

    assert outline(build_tree(grouping)) == [("layers.0-3", 4, 4)]


@pytest.mark.parametrize("by", [ACCOUNTS, "group"])
def test_names_of_the_users_groups_have_no_parts(by):
    rows = build_tree(grouped({"a.0": 1, "a.1": 1, "[x].y": 2}, by))

    assert outline(rows) == [("a.0", 1, 1), ("a.1", 1, 1), ("[x].y", 1, 2)]


@pytest.mark.parametrize("by", ["group", "op"])
def test_groups_that_are_called_by_numbers_but_are_no_modules_do_not_fold(by):
    assert outline(build_tree(grouped({"1": 4, "2": 4}, by))) == [("1", 1, 4), ("2", 1, 4)]


def test_all_keys_at_once_are_six_parts_of_a_name():
    names = {f"h.{i} / stem / 8x8 / MatMul / FLOAT / linear": 4 for i in range(2)}

    assert outline(build_tree(grouped(names, ",".join(KEYS)))) == [
        ("h.0-1 / stem / 8x8 / MatMul / FLOAT / linear", 2, 4)
    ]


def test_elements_of_each_layer_are_exact_however_many():
    (row,) = build_tree(grouped({"h.0": 2**60 + 1, "h.1": 2**60 + 1}))

    assert (row.count, row.parameters) == (2, 2**60 + 1)


@pytest.mark.parametrize(("parameters", "nbytes"), [(4, 16), (4, 0), (0, 16)])
def test_learned_is_what_counts_what_has_no_bytes_here_and_what_is_only_a_copy(parameters, nbytes):
    assert is_learned(Group("a", parameters=parameters, learned_nbytes=nbytes))
    assert not is_learned(Group("a", nbytes=16, stored_elements=4))


def test_an_empty_tree_has_no_rows():
    assert build_tree(grouped({})) == ()


# two keys


def test_second_key_stands_under_the_first():
    names = {"a / FLOAT": 4, "a / INT8": 2, "b / FLOAT": 3, "c / FLOAT": 1}

    rows = build_tree(grouped(names, "scope,dtype", 1))

    assert outline(rows) == [
        ("a", 1, 6),
        ("  FLOAT", 1, 4),
        ("  INT8", 1, 2),
        ("b / FLOAT", 1, 3),
        ("c / FLOAT", 1, 1),
    ]
    assert rows[1].total.name == "a / FLOAT"


def test_scopes_stand_under_each_other_below_another_key():
    names = {"FLOAT / a.x": 4, "FLOAT / a.y": 2, "FLOAT / b": 3, "FLOAT / c": 1, "INT8 / a.x": 1}

    rows = build_tree(grouped(names, "dtype,scope", 2))

    assert outline(rows) == [
        ("FLOAT", 1, 10),
        ("  a", 1, 6),
        ("    x", 1, 4),
        ("    y", 1, 2),
        ("  b", 1, 3),
        ("  c", 1, 1),
        ("INT8 / a.x", 1, 1),
    ]


def test_layers_fold_with_the_second_key_under_them():
    names = {f"layers.{i} / {dtype}": n for i in range(3) for dtype, n in (("FLOAT", 4), ("INT8", 2))}

    rows = build_tree(grouped(names, "scope,dtype", 2))

    assert outline(rows) == [("layers.0-2", 3, 6), ("  FLOAT", 3, 4), ("  INT8", 3, 2)]


def test_what_a_parent_has_itself_has_the_second_key_under_it():
    names = {"a / FLOAT": 4, "a / INT8": 2, "a.x / FLOAT": 3, "b / FLOAT": 1, "c / FLOAT": 1, "d / FLOAT": 1}

    rows = build_tree(grouped(names, "scope,dtype", 2))

    assert outline(rows)[:5] == [
        ("a", 1, 9),
        (f"  {OWN}", 1, 6),
        ("    FLOAT", 1, 4),
        ("    INT8", 1, 2),
        ("  x / FLOAT", 1, 3),
    ]
    assert rows[2].total.name == f"a {OWN} / FLOAT"


def test_parts_of_a_second_key_stand_under_what_a_parent_has_itself():
    names = {"a / block.0.x": 1, "a / block.0.y": 2, "a.b / stem": 3, "c / stem": 4, "d / stem": 5}
    chain = {name: constant(name) if name.startswith("a /") else value for name, value in names.items()}

    assert outline(build_tree(grouped(names, "scope,block", 2)))[:5] == [
        ("a", 1, 6),
        (f"  {OWN} / block.0", 1, 3),
        ("    x", 1, 1),
        ("    y", 1, 2),
        ("  b / stem", 1, 3),
    ]
    assert outline(build_tree(grouped(chain, "scope,block", 2)))[:4] == [
        ("a / block.0", 1, 0),
        ("  x", 1, 0),
        ("  y", 1, 0),
        ("a.b / stem", 1, 3),
    ]


# blocks


def test_blocks_have_no_parent():
    blocks = {"stem": 9, "block.0": 4, "block.1": 5, "head": 1}

    assert [row.title for row in build_tree(grouped(blocks, "block", 1))] == list(blocks)


def test_equal_blocks_are_one_row():
    names = {"stem": 9, **{f"block.{i}": 4 for i in range(12)}, "head": 1}

    assert outline(build_tree(grouped(names, "block", 1))) == [
        ("stem", 1, 9),
        ("block.0-11", 12, 4),
        ("head", 1, 1),
    ]


def test_parts_stand_under_their_block():
    parts = (("attention", 4), ("feed-forward", 8))
    names = {"stem": 9, **{f"block.{i}.{part}": n for i in range(3) for part, n in parts}}

    assert outline(build_tree(grouped(names, "block", 2))) == [
        ("stem", 1, 9),
        ("block.0-2", 3, 12),
        ("  attention", 3, 4),
        ("  feed-forward", 3, 8),
    ]


# folding


@pytest.mark.parametrize(
    ("names", "titles"),
    [
        ({"h.0": 2, "h.1": 2, "h.2": 3, "h.3": 2, "h.4": 2}, ["h", "  0-1", "  2", "  3-4"]),
        ({"h.0": 3, "h.1": 2, "h.2": 2}, ["h", "  0", "  1-2"]),
        ({"h.0": 2, "h.2": 2, "h.3": 2}, ["h", "  0", "  2-3"]),
        ({"h.a": 2, "h.b": 2}, ["h", "  a", "  b"]),
        ({"h.00": 2, "h.01": 2}, ["h", "  00", "  01"]),
        ({"h.²": 2, "h.٣": 2}, ["h", "  ²", "  ٣"]),
        ({"h0": 2, "h1": 2}, ["h0", "h1"]),
        ({f"h.{10**9 - 1}": 2, f"h.{10**9}": 2}, ["h", f"  {10**9 - 1}", f"  {10**9}"]),
        ({"0": 2, "1": 2, "2": 2}, ["0-2"]),
        ({"h.0.a": 2, "h.1.b": 2}, ["h", "  0.a", "  1.b"]),
        (
            {"h.0.a": 1, "h.0.b": 2, "h.1.a": 2, "h.1.b": 1},
            ["h", "  0", "    a", "    b", "  1", "    a", "    b"],
        ),
    ],
)
def test_neighbours_fold_where_numbers_follow_and_what_is_learned_is_the_same(names, titles):
    grouping = grouped({**names, "x": 7, "y": 8, "z": 9})

    rows = build_tree(grouping)

    assert [title for title, _, _ in outline(rows)][: len(titles)] == titles
    assert [row.title for row in rows[len(titles) :]] == ["x", "y", "z"]
    check(rows, grouping)


def test_same_parameters_in_other_bytes_do_not_fold():
    quantized = learned("h.1", 8, nbytes=8, learned_nbytes=8)

    assert [row.title for row in build_tree(grouped({"h.0": 8, "h.1": quantized, "x": 1, "y": 1}))][1:3] == [
        "0",
        "1",
    ]


def test_copies_of_layers_fold_by_their_bytes():
    stored = [Stored(f"h.{i}.fc", 4, is_copy=True) for i in range(3)]

    (row,) = build_tree(group_by(ledger_of(stored), "scope", 2))

    assert (row.title, row.count, row.parameters, row.total.stored_elements) == ("h.0-2", 3, 0, 12)


def test_constants_may_differ_between_layers_that_fold():
    names = {
        "h.0.fc": 4,
        "h.0.mask": constant("h.0.mask", 9),
        "h.1": constant("h.1"),
        "h.1.fc": 4,
        "h.2.fc": 4,
        "h.2.shape": constant("h.2.shape", 2),
        "x": 1,
        "y": 2,
    }

    rows = build_tree(grouped(names))

    assert outline(rows)[:5] == [
        ("h.0-2", 3, 4),
        (f"  {OWN}", 3, 0),
        ("  fc", 3, 4),
        ("  mask", 1, 0),
        ("  shape", 1, 0),
    ]
    assert rows[0].total.stored_elements == 12 + 9 + 1 + 2
    check(rows, grouped(names))


def test_layers_of_nothing_learned_fold_where_they_store_the_same():
    names = {f"h.{i}": constant(f"h.{i}", 2 + i // 2) for i in range(4)}

    assert [row.title for row in build_tree(grouped(names))] == ["h.0-1", "h.2-3"]


def test_layers_of_nothing_learned_fold_where_the_same_is_under_them():
    same = {f"h.{i}.{part}": constant(f"h.{i}.{part}", 2) for i in range(2) for part in "ab"}
    other = {"h.2.a": constant("h.2.a", 2), "h.2.c": constant("h.2.c", 2)}

    assert [row.title for row in build_tree(grouped({**same, **other, "x": 1})) if row.count > 1] == [
        "h.0-1.a",
        "h.0-1.b",
    ]


def test_what_differs_within_layers_stays_apart_where_the_layers_fold():
    names = {f"stages.{s}.blocks.{b}": 9 if b == 2 else 4 for s in range(2) for b in range(3)}

    rows = build_tree(grouped({**names, "x": 1, "y": 2}))

    assert outline(rows)[:3] == [("stages.0-1.blocks", 2, 17), ("  0-1", 4, 4), ("  2", 2, 9)]


def test_numbers_under_layers_that_fold_are_in_their_order():
    names = {f"h.{i}.expert.{number}": 4 for i in range(2) for number in (10, 2)}

    rows = build_tree(grouped({**names, "x": 1, "y": 2}))

    assert [row.title.strip() for row in rows] == ["h.0-1.expert", "2", "10", "x", "y"]


def test_layers_within_layers_fold_and_count_all():
    names = {f"stages.{s}.blocks.{b}": 4 for s in range(2) for b in range(3)}

    rows = build_tree(grouped({**names, "x": 1, "y": 2, "z": 3}))

    assert outline(rows)[0] == ("stages.0-1.blocks.0-2", 6, 4)
    assert rows[0].total.parameters == 24


@pytest.mark.parametrize(
    ("names", "folded"),
    [
        ([], []),
        (["a"], ["a"]),
        (["a.0", "a.1", "b.2", "b.3", "b.5"], ["a.0-1", "b.2-3", "b.5"]),
        (["0", "1"], ["0-1"]),
        (["a.1", "a.0"], ["a.1", "a.0"]),
        (["a.999999998", "a.999999999", "a.1000000000"], ["a.999999998-999999999", "a.1000000000"]),
        (["a.01", "a.02"], ["a.01", "a.02"]),
    ],
)
def test_names_fold_where_their_numbers_follow(names, folded):
    assert fold_names(names) == folded


# rows that are left out

TREE = {"a.x": 50, "a.y": 40, "b.x": 30, "b.y": 20, "b.z": 10, "c": 5}


@pytest.mark.parametrize(
    ("limit", "titles", "closed"),
    [
        (0, ["a", "  x", "  y", "b", "  x", "  y", "  z", "c"], 0),
        (1, ["a", "[2 others]"], 2),
        (2, ["a", "b", "[1 other]"], 5),
        (3, ["a", "b", "c"], 5),
        (4, ["a", "  x", "  [1 other]", "b", "c"], 3),
        (5, ["a", "  x", "  y", "b", "c"], 3),
        (6, ["a", "  x", "  y", "b", "  x", "  [2 others]", "c"], 0),
        (8, ["a", "  x", "  y", "b", "  x", "  y", "  z", "c"], 0),
        (99, ["a", "  x", "  y", "b", "  x", "  y", "  z", "c"], 0),
    ],
)
def test_outermost_and_largest_rows_have_room_first(limit, titles, closed):
    grouping = grouped(TREE)

    rows, left = cut_rows(build_tree(grouping), limit)

    assert ([title for title, _, _ in outline(rows)], left) == (titles, closed)
    check([row for row in rows if row.level == 0], grouping)
    for row, below in children(rows):
        assert not below or sum(child.total.parameters for child in below) == row.total.parameters


@pytest.mark.parametrize(
    ("limit", "titles", "closed", "others"),
    [
        (2, ["b", "c", "[1 other]"], 3, [("a.x",), ("a.y",), ("a.z",)]),
        (4, ["a", "b", "  y", "  [2 others]", "c"], 3, [("b.z",), ("b.x",)]),
        (7, ["a", "  y", "  [2 others]", "b", "  x", "  y", "  z", "c"], 0, [("a.z",), ("a.x",)]),
    ],
)
def test_largest_rows_have_room_wherever_they_stand_and_the_others_are_summed(limit, titles, closed, others):
    names = {"a.x": 1, "a.y": 3, "a.z": 2, "b.x": 10, "b.y": 30, "b.z": 20, "c": 50}

    rows, left = cut_rows(build_tree(grouped(names)), limit)

    assert ([title for title, _, _ in outline(rows)], left) == (titles, closed)
    (rest,) = (row for row in rows if row.title.startswith("["))
    assert (list(rest.members), rest.total.name) == (others, rest.title)
    assert rest.parameters == sum(names[".".join(label)] for label in others)


def test_of_as_many_parameters_the_one_of_most_bytes_and_then_of_most_tensors_is_larger():
    groups = {
        "few": learned("few", 4, nbytes=8, tensors=9),
        "whole": learned("whole", 4, nbytes=16, tensors=1),
        "pieces": learned("pieces", 4, nbytes=16, tensors=2),
    }
    rows = build_tree(grouped(groups))

    assert [cut_rows(rows, limit)[0][0].title for limit in (1, 2)] == ["pieces", "whole"]
    assert [row.title for row in cut_rows(rows, 2)[0]] == ["whole", "pieces", "[1 other]"]


def test_rows_under_every_one_of_several_are_opened_where_there_is_room():
    rows = build_tree(grouped({f"{a}.{b}.{c}": 9 for a in "ab" for b in "mn" for c in "xy"}))

    assert cut_rows(rows, 99) == (rows, 0)


def test_folding_comes_before_the_limit():
    rows, closed = cut_rows(build_tree(grouped({"embeddings": 30, **LAYERS, "pooler": 6})), 3)

    assert ([row.title for row in rows], closed) == (["embeddings", "encoder.layer.0-11", "pooler"], 2)


# sums


def test_sum_knows_trainable_only_where_every_group_does():
    known, unknown = Group("a", trainable=3, frozen=1), Group("b")

    assert sum_groups("s", [known, known]).trainable == 6
    assert sum_groups("s", [known, unknown]).trainable is None


def test_what_is_counted_twice_is_taken_off_every_total():
    whole = Group(
        "a",
        parameters=10,
        unshared_parameters=30,
        applications=3,
        stored_elements=11,
        nbytes=44,
        learned_nbytes=40,
        tensors=3,
        nodes=5,
        trainable=6,
        frozen=4,
    )
    nothing = Group("a", trainable=0, frozen=0)

    assert sum_groups("a", [whole, whole], whole) == whole
    assert sum_groups("a", [nothing, nothing], nothing) == nothing
    assert sum_groups("a", [whole, Group("b")]) == replace(whole, trainable=None, frozen=None)


def test_sum_is_less_what_is_counted_twice():
    total = sum_groups("s", [learned("a", 5), learned("b", 7)], learned("both", 2))

    assert (total.parameters, total.nbytes, total.tensors) == (10, 40, 1)


# any ledger

PARTS = ["layer", "0", "1", "2", "3", "fc", "norm", "", "[x]", "(own)", "0-1", "a / b"]


@st.composite
def ledgers(draw: st.DrawFn) -> Ledger:
    scope = st.none() | st.lists(st.sampled_from(PARTS), max_size=5).map(".".join)
    stored = st.builds(
        Stored,
        scope=scope,
        elements=st.integers(0, 3),
        role=st.sampled_from([Role.PARAMETER, Role.PARAMETER, Role.CONSTANT]),
        dtype=st.sampled_from([DType.FLOAT, DType.FLOAT, DType.INT8]),
        uses=st.integers(1, 2),
        is_copy=st.booleans(),
        block=st.sampled_from(
            ["stem", "block.0", "block.1/attention", "block.1", "block.2/attention", "head"]
        ),
    )
    return ledger_of(draw(st.lists(stored, max_size=40)))


KEY_LISTS = [*KEYS, *map(",".join, itertools.permutations(KEYS, 2))]
DEPTHS = sampled(range(1, 9), (1, 2, 8))
"""Depths at which external cases are grouped by every key; random ledgers use all depths."""


@settings(derandomize=True, deadline=None, database=None, max_examples=150)
@given(ledgers(), st.sampled_from(KEY_LISTS), st.integers(1, 8))
def test_subtotals_add_up_for_random_ledgers(ledger, by, depth):
    grouping = group_by(ledger, by, depth)

    rows = build_tree(grouping)

    check_sums(rows, grouping)
    for limit in (1, 2, 5):
        shown, _ = cut_rows(rows, limit)
        check_sums([row for row in shown if row.level == 0], grouping)


def check_sums(rows: Sequence[TreeRow], grouping: Grouping) -> None:
    """Check the sums as `check` does, for arbitrary names, two of which may look alike."""
    for total in TOTALS:
        outermost = sum(getattr(row.total, total) for row in rows if not row.level)
        assert outermost == sum(getattr(group, total) for group in grouping.groups)
    for row, below in children(rows):
        assert row.count * row.parameters == row.total.parameters
        assert not below or all(
            sum(getattr(child.total, total) for child in below) == getattr(row.total, total)
            for total in TOTALS
        )


def test_name_of_a_hundred_thousand_parts_has_a_row():
    deep = ".".join(["a"] * 100_000)

    (row, *_) = build_tree(group_by(ledger_of([Stored(deep), Stored("b")]), "scope", 200_000))

    assert row.total.name == deep


# third-party files

FOLDER = Path(os.environ.get("ONNXLEDGER_CASES", Path(__file__).parents[2] / "shared")) / "models"


def cases() -> list[str]:
    """Return the file of each case, or nothing if the folder is absent."""
    if not (FOLDER / "expected.json").is_file():
        return []
    found = json.loads((FOLDER / "expected.json").read_text(encoding="utf-8"))["cases"]
    return sorted({case["file"] for case in found if case["facts"]["loadable"]})


@functools.cache
def case(file: str) -> Ledger:
    return audit_model(FOLDER / file)


@pytest.mark.slow
@pytest.mark.parametrize(
    "file", cases() or [pytest.param("", marks=pytest.mark.skip(f"no cases at {FOLDER}"))]
)
def test_totals_of_a_file_are_the_same_at_every_depth_and_key(file):
    ledger = case(file)
    nodes = sum(1 for _ in ledger.model.nodes())
    wanted = (ledger.parameters, ledger.stored_elements, ledger.stored_nbytes, len(ledger.entries))

    for by, depth in itertools.product(KEY_LISTS, DEPTHS):
        grouping = group_by(ledger, by, depth)
        if grouping.depth is None and depth > 1:
            continue  # same as at depth 1
        rows = build_tree(grouping)
        check_sums(rows, grouping)
        outermost = sum_groups("", [row.total for row in rows if not row.level])
        assert (
            outermost.parameters,
            outermost.stored_elements,
            outermost.nbytes,
            outermost.tensors,
        ) == wanted, (by, depth)
        has_nodes = not {"dtype", "role"} & set(by.split(","))
        assert outermost.nodes == (nodes if has_nodes else 0), (by, depth)
