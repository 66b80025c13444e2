"""Pairs of tensors of A and B, and the differences within each pair."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from models import audit, dynamo_like, external, ramp, raw, save, text_model
from onnx import helper, numpy_helper

from analyzer.account.audit import audit_model
from analyzer.account.ledger import Entry, Ledger, Role
from analyzer.comparison import Change, MatchedBy, Pair, Status, TensorPair, ValueCounts
from analyzer.comparison.tensors import compare_values, pair_tensors
from analyzer.model.content import ContentMode

Weights = Mapping[str, np.ndarray[Any, Any]]


def holding(folder: Path, weights: Weights, folded: Mapping[str, list[str]] | None = None) -> Ledger:
    """Audit a model that multiplies by each weight; `folded` names the sources of each."""
    folder.mkdir(exist_ok=True)
    nodes = " ".join(f'y{i} = MatMul(x, "{name}")' for i, name in enumerate(weights)) or "y0 = Relu(x)"
    proto = text_model(f"g (float[2,2] x) => (float[2,2] y0) {{ {nodes} }}", weights)
    return audit(folder, dynamo_like(proto, folded=folded) if folded else proto)


def pair(a: Ledger, b: Ledger) -> tuple[TensorPair, ...]:
    return pair_tensors(*(tuple((entry, None) for entry in side.entries) for side in (a, b)))


def names_of_pairs(pairs: tuple[TensorPair, ...]) -> set[tuple[str | None, str | None, str | None]]:
    """Return the names on both sides, and how each pair was matched."""
    return {(p.a and p.a.tensor.name, p.b and p.b.tensor.name, p.matched_by) for p in pairs}


def test_tensors_of_one_name_are_a_pair_and_others_are_added_or_removed(tmp_path):
    a = holding(tmp_path / "a", {"same": ramp(2, 2), "gone": ramp(2, 3)})
    b = holding(tmp_path / "b", {"same": ramp(2, 2), "fresh": ramp(2, 4)})

    pairs = pair(a, b)

    assert names_of_pairs(pairs) == {
        ("same", "same", MatchedBy.NAME),
        ("gone", None, None),
        (None, "fresh", None),
    }
    assert {p.entry.tensor.name: p.status for p in pairs} == {
        "same": Status.UNCHANGED,
        "gone": Status.REMOVED,
        "fresh": Status.ADDED,
    }


def test_a_tensor_under_another_name_is_known_by_what_it_is_computed_from(tmp_path):
    a = holding(tmp_path / "a", {"enc.weight": ramp(2, 3)})
    b = holding(tmp_path / "b", {"val_7": ramp(3, 2)}, {"val_7": ["enc.weight"]})

    (found,) = pair(a, b)

    assert names_of_pairs((found,)) == {("enc.weight", "val_7", MatchedBy.SOURCES)}
    assert (found.status, found.changed) == (Status.CHANGED, (Change.SHAPE,))


def test_generated_names_do_not_make_one_tensor_of_two(tmp_path):
    a = holding(
        tmp_path / "a",
        {"val_7": ramp(2, 3), "val_8": ramp(2, 4)},
        {"val_7": ["enc.q.weight"], "val_8": ["enc.k.weight"]},
    )
    b = holding(
        tmp_path / "b",
        {"val_7": ramp(2, 4), "val_8": ramp(2, 5)},
        {"val_7": ["enc.k.weight"], "val_8": ["enc.v.weight"]},
    )

    assert names_of_pairs(pair(a, b)) == {
        ("val_8", "val_7", MatchedBy.SOURCES),
        ("val_7", None, None),
        (None, "val_8", None),
    }


def with_sources(ledger: Ledger, **sources: tuple[Role, str]) -> Ledger:
    """Return the ledger with this role and PyTorch source for each of these tensors."""

    def changed(entry: Entry) -> Entry:
        role, source = sources.get(entry.tensor.name, (entry.role, ""))
        return replace(entry, role=role, sources=(source,) if source else entry.sources)

    return replace(ledger, entries=tuple(map(changed, ledger.entries)))


def test_the_scale_of_a_weight_is_not_taken_for_the_weight(tmp_path):
    a = with_sources(holding(tmp_path / "a", {"w": ramp(2, 2)}), w=(Role.PARAMETER, "enc.w"))
    b = with_sources(
        holding(tmp_path / "b", {"w_quantized": ramp(2, 2).astype("i1"), "w_scale": ramp(2)}),
        w_quantized=(Role.PARAMETER, "enc.w"),
        w_scale=(Role.QUANTIZATION, "enc.w"),
    )

    assert names_of_pairs(pair(a, b)) == {("w", "w_quantized", MatchedBy.SOURCES), (None, "w_scale", None)}


def test_what_is_not_one_to_one_is_not_guessed(tmp_path):
    a = with_sources(holding(tmp_path / "a", {"qkv": ramp(2, 6)}), qkv=(Role.PARAMETER, "attn"))
    b = with_sources(
        holding(tmp_path / "b", {"q": ramp(2, 2), "k": ramp(2, 4)}),
        q=(Role.PARAMETER, "attn"),
        k=(Role.PARAMETER, "attn"),
    )

    assert {p.matched_by for p in pair(a, b)} == {None}


def test_one_name_in_two_graphs_is_two_tensors(tmp_path):
    def branches(folder: Path, *sizes: int) -> Ledger:
        folder.mkdir()
        first, second = (f"float[{size}] w = {{{', '.join(map(str, range(1, size + 1)))}}}" for size in sizes)
        return audit(
            folder,
            text_model(
                f"""
                g (bool c, float x) => (float[n] y) {{
                    y = If(c) <then_branch = t () => (float[n] a) <{first}> {{ a = Add(x, w) }},
                               else_branch = e () => (float[n] b) <{second}> {{ b = Add(x, w) }}>
                }}
                """
            ),
        )

    pairs = pair(branches(tmp_path / "a", 2, 3), branches(tmp_path / "b", 2, 5))

    assert [(p.entry.tensor.graph_path[-1].split(".")[-1], p.status) for p in pairs] == [
        ("then_branch", Status.UNCHANGED),
        ("else_branch", Status.CHANGED),
    ]


@pytest.mark.parametrize(
    ("theirs", "changed"),
    [
        (ramp(2, 2).astype("f2"), (Change.DTYPE, Change.BYTES)),
        (ramp(4, 1), (Change.SHAPE,)),
        (ramp(2, 3), (Change.SHAPE, Change.PARAMETERS, Change.STORED_ELEMENTS, Change.BYTES)),
        (ramp(2, 2), ()),
        (ramp(2, 2) + 1, ()),
    ],
    ids=["cast", "reshaped", "grown", "same", "other-values"],
)
def test_what_differs_is_reported(tmp_path, theirs, changed):
    (found,) = pair(holding(tmp_path / "a", {"w": ramp(2, 2)}), holding(tmp_path / "b", {"w": theirs}))

    assert found.changed == changed
    assert found.status is (Status.CHANGED if changed else Status.UNCHANGED)


def test_a_tensor_that_became_a_copy_has_lost_its_parameters_and_says_of_what(tmp_path):
    a = holding(tmp_path / "a", {"w": ramp(3, 3), "v": ramp(3, 3, start=50)})
    b = holding(tmp_path / "b", {"w": ramp(3, 3), "v": ramp(3, 3)})

    _, found = pair(a, b)

    assert found.changed == (Change.PARAMETERS,)
    assert found.parameters == Pair(9, 0)
    assert (found.a and found.a.copy_of, found.b and found.b.copy_of) == (None, ((), "w"))


def test_a_tensor_of_another_role_has_changed(tmp_path):
    a = holding(tmp_path / "a", {"w": ramp(2, 2)})

    (found,) = pair(a, with_sources(a, w=(Role.BUFFER, "")))

    assert found.changed == (Change.ROLE,)


def test_a_name_that_a_file_repeats_meets_its_like(tmp_path):
    proto = text_model('g (float[2,2] x) => (float[2,2] y) { y = MatMul(x, "w") }', {"w": ramp(2, 2)})
    proto.graph.initializer.append(raw("w", [3], onnx.TensorProto.FLOAT, bytes(12)))
    ledger = audit(tmp_path, proto)

    assert {p.status for p in pair(ledger, ledger)} == {Status.UNCHANGED}
    assert len(pair(ledger, ledger)) == 2


def test_a_side_without_tensors_has_none(tmp_path):
    empty, full = holding(tmp_path / "a", {}), holding(tmp_path / "b", {"w": ramp(2)})

    assert [p.status for p in pair(empty, full)] == [Status.ADDED]
    assert [p.status for p in pair(full, empty)] == [Status.REMOVED]
    assert pair(empty, empty) == ()


# values


@pytest.mark.parametrize("content", ["sampled", "full"])
def test_values_of_what_is_otherwise_alike_are_compared(tmp_path, content):
    a = holding(tmp_path / "a", {"same": ramp(3, 3), "other": ramp(2, 3), "grown": ramp(2, 2)})
    b = holding(tmp_path / "b", {"same": ramp(3, 3), "other": ramp(2, 3) + 1, "grown": ramp(2, 4)})

    pairs, counts = compare_values(pair(a, b), content)

    assert counts == ValueCounts(content, equal=1, differing=1, unknown=0)
    found = {p.entry.tensor.name: (p.status, p.changed) for p in pairs}
    assert found["same"] == (Status.UNCHANGED, ())
    assert found["other"] == (Status.CHANGED, (Change.VALUES,))
    assert Change.VALUES not in found["grown"][1]


@pytest.mark.parametrize(("content", "differing"), [("sampled", 0), ("full", 1)])
def test_only_the_whole_shows_one_element_among_many(tmp_path: Path, content: ContentMode, differing: int):
    changed = ramp(100, 100)
    changed[0, 50] += 1

    _, counts = compare_values(
        pair(holding(tmp_path / "a", {"w": ramp(100, 100)}), holding(tmp_path / "b", {"w": changed})), content
    )

    assert counts.differing == differing


def test_values_are_the_same_wherever_they_are_stored(tmp_path):
    weight = ramp(300, 300)
    inside = holding(tmp_path / "a", {"w": weight})
    proto = text_model('g (float[2,300] x) => (float[2,300] y0) { y0 = MatMul(x, "w") }')
    proto.graph.initializer.append(external("w", [300, 300], location="w.bin"))
    (tmp_path / "w.bin").write_bytes(weight.tobytes())
    outside = audit_model(save(tmp_path, proto))

    assert compare_values(pair(inside, outside), "full")[1] == ValueCounts("full", 1, 0, 0)


@pytest.mark.parametrize(
    ("names", "numbers", "places", "differing"),
    [
        (["a", "bc"], [1, 2], [0, 5], 0),
        (["ab", "c"], [1, 2], [0, 5], 2),
        (["a", "bc"], [1, 3], [0, 5], 1),
        (["a", "bc"], [1, 2], [0, 4], 1),
    ],
)
def test_strings_and_sparse_tensors_are_compared(names, numbers, places, differing, tmp_path):
    def saved(folder, names, numbers, places):
        proto = text_model("g (float[1,2] x) => (float[1,2] y) { y = Relu(x) }")
        proto.graph.initializer.append(helper.make_tensor("names", onnx.TensorProto.STRING, [2], names))
        proto.graph.node.append(
            helper.make_node("LabelEncoder", ["x"], ["z"], domain="ai.onnx.ml", keys_strings=names)
        )
        values = numpy_helper.from_array(np.array(numbers, np.float32), "at")
        indices = numpy_helper.from_array(np.array(places, np.int64), "")
        sparse = onnx.SparseTensorProto(values=values, indices=indices, dims=[2, 3])
        proto.graph.sparse_initializer.append(sparse)
        folder.mkdir()
        return audit(folder, proto)

    old = saved(tmp_path / "a", ["a", "bc"], [1, 2], [0, 5])
    new = saved(tmp_path / "b", names, numbers, places)

    for content in ("sampled", "full"):
        assert compare_values(pair(old, new), content)[1] == ValueCounts(content, 3 - differing, differing, 0)


def test_values_that_cannot_be_compared_are_counted_as_unknown(tmp_path):
    proto = text_model(
        """
        g (float[1,2] x) => (float[1,2] y) <string[2] names = {"a", "bc"}, float[0,2] nothing = {}>
        { y = Relu(x) }
        """
    )
    values = raw("at", [2], onnx.TensorProto.FLOAT, bytes(8))
    indices = raw("", [2], onnx.TensorProto.INT64, bytes(16))
    proto.graph.sparse_initializer.append(onnx.SparseTensorProto(values=values, indices=indices, dims=[9]))
    proto.graph.initializer.append(external("absent", [2], location="absent.bin"))
    ledger = audit(tmp_path, proto)

    pairs, counts = compare_values(pair(ledger, ledger), "full")

    assert counts == ValueCounts("full", equal=3, differing=0, unknown=1)
    assert {p.status for p in pairs} == {Status.UNCHANGED}
