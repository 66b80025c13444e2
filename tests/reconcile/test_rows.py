"""Tables from which an export kept, picked or repeated rows; numbers by hand."""

from __future__ import annotations

import dataclasses
from itertools import starmap

import numpy as np
import pytest
from models import (
    bridge_of,
    dynamo_like,
    lines_of,
    manifest_of,
    noise,
    outs,
    parameter,
    quantized,
    ramp,
    reconcile,
    table,
    text_model,
    traced,
    with_scopes,
)

from analyzer.manifest import Program
from analyzer.model.content import Array, encode_values, row_digests
from analyzer.reconciliation import Reconciliation

TABLE = ramp(5, 3)


def run(tmp_path, stored, content="full", name="val_1"):
    """Reconcile a file, whose `val_1` the exporter has folded from the table, with the whole table."""
    shape = ",".join(map(str, stored.shape))
    proto = text_model(f"g (float[{shape}] x) => (float[{shape}] y) {{ y = Add(x, {name}) }}", {name: stored})
    proto = dynamo_like(proto, folded={name: ["table.weight"]})
    known = dataclasses.replace(
        parameter("table.weight", TABLE), row_digests=encode_values(row_digests(TABLE))
    )
    return reconcile(tmp_path, proto, manifest_of(known), content)


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        (TABLE[1:3], {"sliced": (1, 15, -9, -9)}),
        (TABLE[None, :2], {"sliced": (1, 15, -9, -9)}),
        (TABLE[[4, 0, 4, 4]], {"gathered": (1, 15, -9, -3)}),
        (np.moveaxis(TABLE[[[0, 1], [1, 0]]], -1, 0), {"gathered": (1, 15, -9, -3)}),
        (np.tile(TABLE, (2, 1)), {"broadcast": (1, 15, 0, 15)}),
    ],
    ids=["slice", "slice with a batch axis", "gather", "gather with the axis moved", "repeat"],
)
def test_rows_of_the_table_are_recognised_and_each_counts_once(tmp_path, stored, expected):
    result = run(tmp_path, np.ascontiguousarray(stored))

    assert bridge_of(result) == expected
    assert result.balanced
    assert result.parameters[0].decided_by == "provenance+rows"


@pytest.mark.parametrize("off", [0.0, 1e-3])
def test_a_bias_of_each_head_may_be_joined_with_the_examples(tmp_path, off):
    picked = np.moveaxis(TABLE[[[0, 1], [1, 4]]], -1, 0)  # (heads, rows, columns)
    stored = np.concatenate([picked, picked])
    stored[4, 1, 0] += np.float32(off)

    assert run(tmp_path, stored).balanced is (off == 0)


def test_positions_that_count_down_are_no_rows_of_the_table(tmp_path):
    assert run(tmp_path, np.tile(TABLE, (2, 1))).balanced
    assert not run(tmp_path, np.ascontiguousarray(TABLE[::-1])).balanced


def test_a_table_of_positions_is_tried_before_other_weights_of_its_width(tmp_path):
    width = 16
    weights = {f"layers.{i}.weight": noise(20, width, seed=i) for i in range(18)}
    positions = noise(30, width, seed=99)
    nodes = " ".join(f"h{i} = MatMul(p, w{i})" for i in range(18))
    stored = {f"w{i}": np.ascontiguousarray(w.T) for i, w in enumerate(weights.values())}
    text = f"g (float[7,{width}] x) => ({outs(18, 'h')}) {{ p = Add(x, rows) {nodes} }}"
    known = {**weights, "encoder.embed_positions.weight": positions}
    manifest = manifest_of(*starmap(parameter, known.items()))

    result = reconcile(
        tmp_path, text_model(text, {**stored, "rows": positions[:7].copy()}), manifest, "full", known
    )

    assert result.balanced


def test_one_changed_element_in_a_kept_row_differs(tmp_path):
    stored = TABLE[1:3].copy()
    stored[1, 2] = np.nextafter(stored[1, 2], np.float32(np.inf))

    result = run(tmp_path, stored)

    assert not result.balanced
    assert set(bridge_of(result)) == {"differing"}


def test_a_shorter_table_under_its_own_name_was_cut(tmp_path):
    proto = text_model("g (float[2,3] x) => (float[2,3] y) { y = Add(x, w) }", {"w": TABLE[:2].copy()})
    proto.graph.initializer[0].name = proto.graph.node[0].input[1] = "table.weight"
    known = dataclasses.replace(
        parameter("table.weight", TABLE), row_digests=encode_values(row_digests(TABLE))
    )

    result = reconcile(tmp_path, proto, manifest_of(known))

    assert set(bridge_of(result)) == {"differing"}


def test_without_contents_the_width_must_fit(tmp_path):
    assert bridge_of(run(tmp_path, TABLE[:2].copy(), "none")) == {"sliced": (1, 15, -9, -9)}
    assert not run(tmp_path, ramp(2, 4), "none").balanced


# without a note: by a manifest's digests, and by the values


both = pytest.mark.parametrize("at_hand", [False, True], ids=["manifest", "weights"])

ROWS = noise(20, 6)


def reconcile_table(tmp_path, proto, *, at_hand: bool, content="full", known: Array = ROWS) -> Reconciliation:
    manifest = manifest_of(table("wpe.weight", known))
    return reconcile(tmp_path, proto, manifest, content, {"wpe.weight": known} if at_hand else None)


def added(stored: Array):
    shape = ",".join(map(str, stored.shape))
    return text_model(
        f"g (float[{shape}] x) => (float[{shape}] y) {{ y = Add(x, v) }}", {"v": np.ascontiguousarray(stored)}
    )


@both
@pytest.mark.parametrize("content", ["sampled", "full"])
@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        (ROWS[3:9], {"sliced": (1, 120, -84, -84)}),
        (ROWS[None, :7], {"sliced": (1, 120, -78, -78)}),
        (np.tile(ROWS[:4], (2, 1, 1)), {"gathered": (1, 120, -96, -72)}),
        (ROWS[[4, 0, 4, 4]], {"gathered": (1, 120, -108, -96)}),
        (np.tile(ROWS, (3, 1, 1)), {"broadcast": (1, 120, 0, 240)}),
        (np.moveaxis(ROWS[[[0, 1], [1, 0]]], -1, 0), {"gathered": (1, 120, -108, -96)}),
    ],
    ids=["slice", "batch axis", "repeated slice", "gather", "repeat", "axis moved"],
)
def test_nameless_rows_are_known_by_themselves(tmp_path, stored, expected, content, at_hand):
    result = reconcile_table(tmp_path, added(stored), at_hand=at_hand, content=content)

    assert bridge_of(result) == expected
    assert result.parameters[0].decided_by == "content:rows"
    assert result.balanced


@both
@pytest.mark.parametrize("position", [0, 1, 35])
def test_one_ulp_in_a_nameless_row_is_seen(tmp_path, position, at_hand):
    stored = ROWS[3:9].copy()
    flat = stored.reshape(-1)
    flat[position] = np.nextafter(flat[position], np.float32(np.inf))

    result = reconcile_table(tmp_path, added(stored), at_hand=at_hand)

    assert lines_of(result) == {"wpe.weight": "missing"}
    assert not result.balanced


@both
def test_rows_that_a_mask_has_overwritten_are_empty_and_skipped(tmp_path, at_hand):
    stored = ROWS[:6].copy()
    stored[2:4] = np.finfo("f2").min

    result = reconcile_table(tmp_path, added(stored), at_hand=at_hand)

    assert bridge_of(result) == {"gathered": (1, 120, -96, -84)}


@both
@pytest.mark.parametrize("number", [0.0, 7.0, -9999.0])
def test_rows_overwritten_with_another_number_were_changed(tmp_path, number, at_hand):
    stored = ROWS[:6].copy()
    stored[2:4] = number

    assert not reconcile_table(tmp_path, added(stored), at_hand=at_hand).balanced


@both
def test_rows_may_be_cast(tmp_path, at_hand):
    changed = ROWS[3:9].astype("f2")
    changed[1, 0] *= 2

    result = reconcile_table(tmp_path, added(ROWS[3:9].astype("f2")), at_hand=at_hand)

    assert [str(line) for line in result.parameters[0].chain] == ["sliced", "cast"]
    assert result.balanced
    assert not reconcile_table(tmp_path, added(changed), at_hand=at_hand).balanced


def coded(tensors: dict[str, Array]):
    return text_model(
        "g (float[1] x) => (float[1] y) { d = DequantizeLinear(v_quantized, v_scale, v_zero_point) y = Add(x, d) }",
        tensors,
    )


@both
@pytest.mark.parametrize("off", [0, 3])
def test_rows_may_be_quantized(tmp_path, off, at_hand):
    tensors = quantized("v", ROWS[3:9])
    tensors["v_quantized"][1, 0] += np.int8(off if tensors["v_quantized"][1, 0] < 0 else -off)

    result = reconcile_table(tmp_path, coded(tensors), at_hand=at_hand)

    assert result.balanced == (off == 0)
    assert lines_of(result) == {"wpe.weight": "quantized" if off == 0 else "missing"}


@both
def test_codes_of_nothing_are_no_rows(tmp_path, at_hand):
    tensors = {
        "v_quantized": np.zeros((6, 6), "i1"),
        "v_scale": np.asarray(100, "f4"),
        "v_zero_point": np.asarray(0, "i1"),
    }

    assert not reconcile_table(tmp_path, coded(tensors), at_hand=at_hand).balanced


# cuts that are no slices


CUTS = {"cut": ROWS[:10], "turned": ROWS[::-1], "repeated": ROWS[[0] * 20]}
USES = {
    "matmul": ("y = MatMul(x, v)", True),
    "gemm": ("y = Gemm<transB = 1>(x, v)", False),
    "conv": ("w = Reshape(v, s) y = Conv(x, w)", False),
    "lookup": ("y = Gather(v, x)", False),
}


@both
@pytest.mark.parametrize("note", [False, True], ids=["nameless", "noted"])
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("cut", CUTS)
def test_weight_or_lookup_table_that_was_cut_is_no_slice(tmp_path, cut, use, note, at_hand):
    """A weight of a product, or a table that is looked up at run time, must be whole and in order."""
    node, is_turned = USES[use]
    stored = CUTS[cut].T if is_turned else CUTS[cut]
    proto = text_model(
        f"g (float[1] x) => (float[1] y) {{ {node} }}",
        {"v": np.ascontiguousarray(stored), "s": np.array([-1])},
    )
    if note:
        proto = dynamo_like(proto, folded={"v": ["wpe.weight"]})

    result = reconcile_table(tmp_path, proto, at_hand=at_hand)

    assert lines_of(result) == {"wpe.weight": "differing" if note else "missing"}
    assert not result.balanced


@both
def test_constant_table_has_no_rows_to_know(tmp_path, at_hand):
    ones = np.ones((20, 6), "f4")

    assert lines_of(reconcile_table(tmp_path, added(ones[:5]), at_hand=at_hand, known=ones)) == {
        "wpe.weight": "missing"
    }


def test_table_without_digests_is_not_looked_for_beside_one_that_has_them(tmp_path):
    manifest = manifest_of(parameter("fc.weight", ROWS), table("wpe.weight", noise(9, 6, seed=3)))

    result = reconcile(tmp_path, added(ROWS[3:9]), manifest)

    assert lines_of(result)["fc.weight"] == "missing"


@both
def test_each_of_two_tables_of_one_width_has_its_own_rows(tmp_path, at_hand):
    known = {"one.weight": ROWS, "other.weight": noise(9, 6, seed=3)}
    proto = text_model(
        "g (float[1] x) => (float[1] y) { h = Add(x, v0) y = Add(h, v1) }",
        {"v0": ROWS[3:9].copy(), "v1": known["other.weight"][2:5].copy()},
    )
    manifest = manifest_of(*(table(name, array) for name, array in known.items()))

    result = reconcile(tmp_path, proto, manifest, "full", known if at_hand else None)

    assert lines_of(result) == dict.fromkeys(known, "sliced")


@both
def test_one_row_is_no_slice(tmp_path, at_hand):
    assert lines_of(reconcile_table(tmp_path, added(ROWS[3:4]), at_hand=at_hand)) == {"wpe.weight": "missing"}


@pytest.mark.parametrize(("count", "line"), [(4, "sliced"), (6, "gathered")])
def test_without_contents_more_rows_than_the_table_has_are_gathered(tmp_path, count, line):
    result = run(tmp_path, TABLE[np.arange(count) % 3], "none")

    assert lines_of(result) == {"table.weight": line}
    assert result.parameters[0].decided_by == "provenance+shape"


def test_whole_numbers_in_another_type_are_no_rows(tmp_path):
    assert lines_of(run(tmp_path, TABLE[1:3].astype("i4"))) == {"table.weight": "missing"}


def test_repeated_table_is_given_back_in_its_own_shape(tmp_path):
    (piece,) = run(tmp_path, np.tile(TABLE, (2, 1))).parameters[0].pieces

    assert (piece.shape, piece.axes, piece.taken, piece.viewed) == ((5, 3), (0, 1), (0, 0, 1), (-1, 15))


def test_slice_of_one_table_leaves_another_that_was_changed_differing(tmp_path):
    proto = text_model(
        'g (float[1] x) => (float[1] y) { h = Add(x, val_1) y = MatMul(h, "fc.weight") }',
        {"val_1": TABLE[1:3].copy(), "fc.weight": noise(4, 4)},
    )
    proto = dynamo_like(proto, folded={"val_1": ["table.weight"]})
    known = manifest_of(table("table.weight", TABLE), parameter("fc.weight", noise(4, 4, seed=1)))

    assert lines_of(reconcile(tmp_path, proto, known)) == {
        "table.weight": "sliced",
        "fc.weight": "differing",
    }


TOKEN = noise(16, seed=11)


@pytest.mark.parametrize("at_hand", [False, True], ids=["manifest", "checkpoint"])
@pytest.mark.parametrize("dtype", ["f4", "f2"])
def test_a_vector_that_is_stored_once_for_each_example_is_broadcast(tmp_path, dtype, at_hand):
    stored = np.tile(TOKEN, (3, 1, 1)).astype(dtype)

    result = repeated(tmp_path, stored, at_hand)

    assert result.balanced
    assert lines_of(result) == {"token": "broadcast" if dtype == "f4" else "cast"}
    assert result.onnx_parameters == TOKEN.size


@pytest.mark.parametrize("row", [0, 2])
@pytest.mark.parametrize("at_hand", [False, True], ids=["manifest", "checkpoint"])
def test_one_number_that_differs_in_one_example_is_no_broadcast(tmp_path, row, at_hand):
    stored = np.tile(TOKEN, (3, 1, 1))
    stored[row, 0, 5] += 0.25

    assert not repeated(tmp_path, stored, at_hand).balanced


def test_a_table_of_whole_numbers_is_no_vector_rounded(tmp_path):
    proto = text_model(
        "g (float[2,1,16] x, float[2,1,16] u) => (float[2,1,16] y) { y = ScatterElements(x, val_1, u) }",
        {"val_1": np.zeros((2, 1, 16), dtype=np.int64)},
    )

    result = reconcile(tmp_path, proto, manifest_of(parameter("gain", TOKEN / 100)), "full")

    assert lines_of(result) == {"gain": "missing"}


def first_step(folder, stored, *, scope=None, at_hand=False):
    """Reconcile a loop whose first step, from a zero state, was folded: only the bias of each example remains."""
    text = f"""g (float[3,4] x) => ({"float16" if stored.dtype == np.float16 else "float"}[3,16] y) {{
        [step] h = Gemm(x, "cell.weight", "cell.bias")
        [first] y = Add(h, val_1)
    }}"""
    weights = {"cell.weight": noise(4, 16, seed=3), "cell.bias": TOKEN}
    stands = {name: each.astype(stored.dtype) for name, each in weights.items()}
    proto = text_model(text, {**stands, "val_1": stored})
    proto = proto if scope is None else with_scopes(proto, {"step": "cell", "first": scope})
    manifest = manifest_of(*starmap(parameter, weights.items()))
    return reconcile(folder, proto, manifest, weights=weights if at_hand else None)


@both
@pytest.mark.parametrize("scope", [None, "cell"], ids=["nameless", "in its module"])
@pytest.mark.parametrize("dtype", ["f4", "f2"])
def test_a_bias_that_stands_again_for_each_example_is_a_copy(tmp_path, dtype, scope, at_hand):
    stored = np.tile(TOKEN, (3, 1)).astype(dtype)

    result = first_step(tmp_path, stored, scope=scope, at_hand=at_hand)

    assert result.balanced
    assert [line.line for line in result.entries if line.key[1] == "val_1"] == ["copied"]


@both
@pytest.mark.parametrize("row", [0, 2])
def test_a_repeated_bias_with_another_number_is_no_copy(tmp_path, row, at_hand):
    stored = np.tile(TOKEN, (3, 1))
    stored[row, 5] += 0.25

    assert not first_step(tmp_path, stored, at_hand=at_hand).balanced


def test_a_bias_that_another_module_adds_once_more_is_no_copy(tmp_path):
    assert not first_step(tmp_path, np.tile(TOKEN, (3, 1)), scope="head").balanced


def test_a_vector_that_was_half_precision_before_it_was_repeated_is_broadcast(tmp_path):
    stored = np.tile(TOKEN.astype("f2").astype("f4"), (3, 1, 1))

    assert lines_of(repeated(tmp_path, stored, at_hand=False)) == {"token": "broadcast"}


@both
@pytest.mark.parametrize("shape", [(-1, 6), (1, -1, 6)], ids=["rows", "rows of an example"])
def test_rows_in_a_second_tensor_complete_the_table(tmp_path, at_hand, shape):
    """A tensor for each example has the tokens of an image, and one before them (CLIPSeg)."""
    result = reconcile_table(
        tmp_path, joined(*(part.reshape(shape) for part in (ROWS[:17], ROWS[17:]))), at_hand=at_hand
    )

    assert bridge_of(result) == {"sliced": (1, 120, 0, 0)}
    assert result.parameters[0].entries == (((), "v"), ((), "w"))
    assert result.balanced


@both
def test_rows_that_are_there_already_are_a_copy(tmp_path, at_hand):
    result = reconcile_table(tmp_path, joined(ROWS[:17], ROWS[5:8]), at_hand=at_hand)

    assert bridge_of(result)["copied"] == (1, 18, 0, 18)
    assert result.onnx_parameters == 17 * 6


@both
@pytest.mark.parametrize("rest", [ROWS[[18, 17, 19]], ROWS[17:] + np.float32(1e-4)], ids=["order", "values"])
def test_rows_in_another_order_or_of_other_values_are_unexplained(tmp_path, rest, at_hand):
    assert not reconcile_table(tmp_path, joined(ROWS[:17], rest), at_hand=at_hand).balanced


def joined(first: Array, second: Array):
    """Return a model that joins two pieces of a table before it adds them."""
    return text_model(
        f"g (float[n,6] x) => (float[n,6] y) {{ t = Concat<axis = {first.ndim - 2}>(v, w) y = Add(x, t) }}",
        {"v": np.ascontiguousarray(first), "w": np.ascontiguousarray(second)},
    )


def repeated(folder, stored, at_hand):
    text = f"""g ({"float" if stored.dtype == np.float32 else "float16"}[3,1,16] x) => (float[3,2,16] y) {{
        c = Concat <axis = 1> (val_1, x) y = Cast <to = 1> (c)
    }}"""
    manifest = manifest_of(parameter("token", TOKEN))
    return reconcile(
        folder, text_model(text, {"val_1": stored}), manifest, weights={"token": TOKEN} if at_hand else None
    )


@pytest.mark.parametrize(
    ("nodes", "lines"),
    [
        ('j = Concat <axis = 1> (r, rows) y = MatMul(j, "fc.weight")', {"wpe.weight": "gathered"}),
        (
            'j = Concat <axis = 1> (r, rows) y = Gemm <transB = 1> ("fc.weight", j)',
            {"wpe.weight": "gathered"},
        ),
        ("y = MatMul(r, rows)", {"wpe.weight": "missing"}),
        ("j = Concat <axis = 0> (rows, rows) y = MatMul(r, j)", {"wpe.weight": "missing"}),
    ],
    ids=["joined with data", "and data on the right", "a weight", "joined, and a weight"],
)
def test_rows_that_are_joined_with_an_activation_are_data_of_the_product_behind(tmp_path, nodes, lines):
    weights = {"wpe.weight": noise(9, 6, seed=1), "fc.weight": noise(10, 10, seed=2)}
    stored = {"rows": weights["wpe.weight"][[2, 2, 2, 2]], "fc.weight": weights["fc.weight"]}
    proto = text_model(f"g (float[4,4] x) => (float[4,10] y) {{ r = Relu(x) {nodes} }}", stored)
    manifest = manifest_of(
        table("wpe.weight", weights["wpe.weight"]), parameter("fc.weight", weights["fc.weight"])
    )

    found = lines_of(reconcile(tmp_path, proto, manifest, "full", weights))

    assert {name: line for name, line in found.items() if name == "wpe.weight"} == lines


# columns of a table: a bias of each head by distance


HEADS = noise(4, 10)  # (heads, distances)
DISTANCES = np.arange(5)[:, None] - np.arange(5) + 4


def reconcile_heads(tmp_path, stored: Array, folded: list[str] | None = None) -> Reconciliation:
    shape = ",".join(map(str, stored.shape))
    text = f"g (float[{shape}] x) => (float[{shape}] y) {{ y = Add(x, index_1) }}"
    proto = text_model(text, {"index_1": np.ascontiguousarray(stored)})
    if folded is not None:
        proto = dynamo_like(proto, folded={"index_1": folded})
    known = {"attn.biases": HEADS}
    return reconcile(tmp_path, proto, manifest_of(table("attn.biases", HEADS)), "full", known)


@pytest.mark.parametrize("folded", [None, ["attn.biases"], ["attn.index", "attn.biases"]])
def test_columns_that_a_constant_index_picked_are_of_the_table(tmp_path, folded):
    result = reconcile_heads(tmp_path, HEADS[:, DISTANCES], folded)

    assert bridge_of(result) == {"gathered": (1, 40, -4, 60)}  # 4 heads x 9 of 10 distances, stored 25 times
    assert result.balanced


def test_columns_in_an_order_of_their_own_are_not(tmp_path):
    """Biases of the right heads, and of the wrong distances."""
    shuffled = np.random.default_rng(0).permutation(DISTANCES.reshape(-1)).reshape(DISTANCES.shape)

    assert not reconcile_heads(tmp_path, HEADS[:, shuffled]).balanced


def test_columns_may_be_cast(tmp_path):
    result = reconcile_heads(tmp_path, HEADS[:, DISTANCES].astype("f2"))

    assert [str(line) for line in result.parameters[0].chain] == ["gathered", "cast"]


@pytest.mark.parametrize("place", [(0, 0, 0), (3, 2, 2), (1, 1, 0)])
def test_one_ulp_in_a_picked_column_is_seen(tmp_path, place):
    stored = HEADS[:, DISTANCES]
    stored[place] = np.nextafter(stored[place], np.float32(np.inf))

    assert not reconcile_heads(tmp_path, stored).balanced


def test_each_head_picks_by_the_same_index(tmp_path):
    stored = HEADS[:, DISTANCES]
    stored[2] = stored[2].T

    assert not reconcile_heads(tmp_path, stored).balanced


def test_columns_noted_as_made_from_another_table_are_not_of_this_one(tmp_path):
    assert not reconcile_heads(tmp_path, HEADS[:, DISTANCES], ["other.biases"]).balanced


# rows picked by the distance from query to key, which a product reads


def reconcile_positions(tmp_path, index: Array, *, note: bool = True) -> Reconciliation:
    proto = text_model(
        "g (float[3,2,6] x) => (float[3,2,4] y) { t = Transpose<perm = [0, 2, 1]>(index_1) y = MatMul(x, t) }",
        {"index_1": ROWS[index]},
    )
    if note:
        proto = dynamo_like(proto, folded={"index_1": ["rel_pos_h"]})
    known = {"rel_pos_h": ROWS}
    return reconcile(tmp_path, proto, manifest_of(table("rel_pos_h", ROWS)), "full", known)


KEYS, QUERIES = np.arange(4)[None, :], np.arange(3)[:, None]


@pytest.mark.parametrize("note", [True, False])
@pytest.mark.parametrize("index", [QUERIES - KEYS + 3, 2 * QUERIES - KEYS + 9, KEYS - QUERIES + 2])
def test_a_product_may_read_rows_by_distance(tmp_path, index, note):
    result = reconcile_positions(tmp_path, index, note=note)

    assert lines_of(result) == {"rel_pos_h": "gathered"}
    assert result.balanced


@pytest.mark.parametrize("note", [True, False])
@pytest.mark.parametrize("index", [(QUERIES * KEYS) % 7, np.where(QUERIES == 1, 5, QUERIES - KEYS + 3)])
def test_a_product_reads_no_rows_in_an_order_of_their_own(tmp_path, index, note):
    assert not reconcile_positions(tmp_path, index, note=note).balanced


@pytest.mark.parametrize("index", [QUERIES + KEYS, 4 * QUERIES + KEYS, abs(QUERIES - KEYS)])
def test_rows_that_nobody_noted_are_no_rows_of_the_table_unless_by_distance(tmp_path, index):
    assert not reconcile_positions(tmp_path, index, note=False).balanced


def test_a_whole_table_that_was_turned_has_no_picked_columns(tmp_path):
    result = reconcile_heads(tmp_path, HEADS.T)

    assert lines_of(result) == {"attn.biases": "transposed"}


@pytest.mark.parametrize(("read", "line"), [(False, "unused"), (True, "gathered"), (None, "gathered")])
def test_columns_of_a_table_that_the_program_does_not_read_are_a_constant_of_it(tmp_path, read, line):
    """As LeViT's biases, which forward picks once and keeps."""
    stored = HEADS[:, DISTANCES]
    proto = text_model("g (float[4,5,5] x) => (float[4,5,5] y) { y = Add(x, kept) }", {"kept": stored})
    kept = traced("%kept", stored, "constant", uses=(("", "add"),))
    known = manifest_of(dataclasses.replace(table("attn.biases", HEADS), read=read), trace="exported-program")

    known = dataclasses.replace(known, program=Program((kept,)))

    result = reconcile(tmp_path, proto, known, "full", {"attn.biases": HEADS})

    assert lines_of(result) == {"attn.biases": line}
    assert result.balanced
