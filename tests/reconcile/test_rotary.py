"""Tables of cosines and sines, frequencies and waves: computed at export, or by forward beside a state dict."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from models import (
    bridge_of,
    buffer,
    dynamo_like,
    manifest_of,
    noise,
    parameter,
    quantized,
    ramp,
    reconcile,
    text_model,
    traced,
)

from analyzer.manifest import Buffer, Manifest, Program
from analyzer.model.content import Array
from analyzer.reconciliation import Reconciliation

both = pytest.mark.parametrize("at_hand", [False, True], ids=["manifest", "weights"])

INV_FREQ = (10000.0 ** (-np.arange(8) / 8)).astype("f4")


def angles(positions: int = 12, frequencies: Array = INV_FREQ) -> Array:
    return np.arange(positions)[:, None] * frequencies.astype("f8")


def run(
    tmp_path, stored: Array, content: str = "full", *, at_hand: bool = False, known: Buffer | None = None
) -> Reconciliation:
    proto = text_model("g (float[1] x) => (float[1] y) { h = Relu(x) y = Mul(h, val_1) }", {"val_1": stored})
    known = buffer("model.rotary_emb.inv_freq", INV_FREQ) if known is None else known
    return reconcile(
        tmp_path, proto, manifest_of(known), content, {known.name: INV_FREQ} if at_hand else None
    )


TABLES = {
    "cosines": np.cos(angles()),
    "sines": np.sin(angles()),
    "both halves": np.cos(np.concatenate([angles(), angles()], axis=1)),
    "both of each pair": np.sin(np.repeat(angles(), 2, axis=1)),
    "scaled": 1.25 * np.cos(angles()),
    "one for each head": np.tile(np.cos(angles()), (4, 1, 1)),
    "axes moved": np.moveaxis(np.cos(angles()), 0, 1),
}


@both
@pytest.mark.parametrize("dtype", ["f4", "f2"])
@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("content", ["sampled", "full"])
def test_table_of_whole_positions_is_a_buffer(tmp_path, table, dtype, content, at_hand):
    stored = np.ascontiguousarray(TABLES[table]).astype(dtype)

    result = run(tmp_path, stored, content, at_hand=at_hand)

    assert bridge_of(result) == {"buffer": (1, stored.size, 0, stored.size)}
    assert result.entries[0].decided_by == "content:rotary"
    assert result.entries[0].parameter == "model.rotary_emb.inv_freq"


OTHERS = {
    "one element changed": np.where(np.arange(96).reshape(12, 8) == 50, 0.5, np.cos(angles())),
    "other frequencies": np.cos(angles(frequencies=INV_FREQ * 1.1)),
    "positions from 1": np.cos(angles(13)[1:]),
    "positions in another order": np.cos(angles()[::-1]),
    "another number for each position": np.cos(angles()) * np.arange(1, 13)[:, None],
    "another width": np.cos(angles()[:, :5]),
    "zeros": np.zeros((12, 8)),
}


@both
@pytest.mark.parametrize("table", OTHERS)
def test_other_tables_are_not_explained(tmp_path, table, at_hand):
    stored = np.ascontiguousarray(OTHERS[table]).astype("f4")

    rules = {line.decided_by for line in run(tmp_path, stored, at_hand=at_hand).entries}

    assert "content:rotary" not in rules


def test_frequencies_of_another_name_are_no_rotary_embeddings(tmp_path):
    result = run(tmp_path, np.cos(angles()).astype("f4"), known=buffer("model.scale", INV_FREQ))

    assert [(line.line, line.parameter, line.decided_by) for line in result.entries] == [
        ("added", None, "content:table")
    ]


def test_names_alone_compute_no_table(tmp_path):
    assert run(tmp_path, np.cos(angles()).astype("f4"), "none").entries[0].decided_by != "content:rotary"


@both
def test_parameter_that_looks_like_a_table_is_that_parameter(tmp_path, at_hand):
    table = np.cos(angles()).astype("f4")
    proto = text_model(
        'g (float[1] x) => (float[1] y) { h = Relu(x) y = Add(h, "embed.weight") }', {"embed.weight": table}
    )
    manifest = manifest_of(parameter("embed.weight", table), buffer("rotary_emb.inv_freq", INV_FREQ))
    arrays = {"embed.weight": table, "rotary_emb.inv_freq": INV_FREQ} if at_hand else None

    assert bridge_of(reconcile(tmp_path, proto, manifest, "full", arrays)) == {"identical": (1, 96, 0, 0)}


def test_matrix_to_multiply_by_that_was_folded_from_frequencies_must_be_made_of_them(tmp_path):
    from models import dynamo_like

    def lines(stored: Array) -> set[str]:
        proto = text_model("g (float[1] x) => (float[1] y) { y = MatMul(x, val_1) }", {"val_1": stored})
        proto = dynamo_like(proto, folded={"val_1": ["rotary_emb.inv_freq"]})
        return set(
            bridge_of(reconcile(tmp_path, proto, manifest_of(buffer("rotary_emb.inv_freq", INV_FREQ))))
        )

    assert lines(np.tile(INV_FREQ, (3, 1))) == {"buffer"}
    assert lines(ramp(3, 8)) == {"differing"}


@both
def test_one_frequency_makes_no_table(tmp_path, at_hand):
    proto = text_model(
        "g (float[1] x) => (float[1] y) { h = Relu(x) y = Mul(h, val_1) }",
        {"val_1": np.cos(np.arange(12.0))[:, None].astype("f4")},
    )
    known = {"rotary_emb.inv_freq": np.ones(1, "f4")}
    manifest = manifest_of(buffer("rotary_emb.inv_freq", known["rotary_emb.inv_freq"]))

    result = reconcile(tmp_path, proto, manifest, "full", known if at_hand else None)

    assert result.entries[0].decided_by != "content:rotary"


TURNED = {
    "PyTorch's": (1.0, True),
    "twice as fast": (2.0, False),
    "half as fast": (0.5, False),
    "of one speed": (None, False),
}


@both
@pytest.mark.parametrize("change", TURNED)
def test_nameless_frequencies_are_pytorchs_own(tmp_path, change, at_hand):
    """Frequencies half as fast are a known series too; PyTorch's buffer says which series is right."""
    factor, is_same = TURNED[change]
    stored = np.ones(8, "f4") if factor is None else (factor * INV_FREQ).astype("f4")
    proto = text_model(
        "g (float[3,1] x) => (float[3,8] y) { a = Mul(x, val_1) y = Sin(a) }", {"val_1": stored}
    )
    known = {"model.rotary_emb.inv_freq": INV_FREQ}
    manifest = manifest_of(*(buffer(name, array) for name, array in known.items()))

    result = reconcile(tmp_path, proto, manifest, "full", known if at_hand else None)

    assert result.balanced is is_same
    assert [line.line for line in result.entries] == ["buffer" if is_same else "differing"]


def test_frequencies_that_the_file_stores_elsewhere_are_no_evidence_of_another_vector(tmp_path):
    """A time embedding has its own frequencies, as many as the rotary embedding."""
    times = (1e3 ** -(np.arange(8) / 8)).astype("f4")
    text = """g (float[3,1] x) => (float[3,8] y) {
        a = Mul(x, "model.rotary_emb.inv_freq") b = Mul(x, val_1) c = Sin(a) d = Sin(b) y = Add(c, d)
    }"""
    proto = text_model(text, {"model.rotary_emb.inv_freq": INV_FREQ, "val_1": times})

    result = reconcile(tmp_path, proto, manifest_of(buffer("model.rotary_emb.inv_freq", INV_FREQ)))

    assert result.balanced


# frequencies and waves that forward computes, and that a state dict lacks

FC = noise(4, 4)
BESIDE = {"fc.weight": FC}

FREQUENCIES = (1e4 ** (-np.arange(4) / 4)).astype("f4")
TURNED_OF_POSITIONS = """g (float[3,1] x, float[3,4] t) => (float[3,4] y) {
    a = Mul(x, freq) c = Cos(a) s = Sin(a)
    h = MatMul(t, "fc.weight") i = Mul(h, c) j = Mul(h, s) y = Add(i, j)
}"""
ADDED_TOO = TURNED_OF_POSITIONS.replace("c = Cos(a)", "b = Add(a, t) c = Cos(b)")


def state_dict() -> Manifest:
    return replace(manifest_of(parameter("fc.weight", FC)), lists_all_buffers=False)


def run_of_positions(
    folder: Path, text: str, stored: dict[str, Array], known: Manifest | None = None
) -> Reconciliation:
    return reconcile(folder, text_model(text, {**BESIDE, **stored}), known or state_dict())


def line_of(result: Reconciliation, name: str) -> str:
    return next(entry.line for entry in result.entries if entry.key[1] == name)


@pytest.mark.parametrize("count", [2, 4])
@pytest.mark.parametrize("dtype", ["f4", "f2"])
def test_frequencies_that_only_sines_and_cosines_read_are_added(
    tmp_path: Path, count: int, dtype: str
) -> None:
    frequencies = (1e4 ** (-np.arange(count) / count)).astype(dtype)
    kind = {"f4": "float", "f2": "float16"}[dtype]
    text = (
        TURNED_OF_POSITIONS.replace("float[", f"{kind}[")
        .replace("4]", f"{count}]")
        .replace('"fc.weight"', '"fc.weight"')
    )
    weight = noise(count, count).astype(dtype)
    known = replace(manifest_of(parameter("fc.weight", weight)), lists_all_buffers=False)

    result = reconcile(tmp_path, text_model(text, {"fc.weight": weight, "freq": frequencies}), known)

    assert line_of(result, "freq") == "added"
    assert result.balanced


OTHERS_OF_POSITIONS = {
    "the other way round": -FREQUENCIES,
    "rising": FREQUENCIES[::-1].copy(),
    "faster than a radian a position": 3 * FREQUENCIES,
    "of any ratio": np.array([1, 0.7, 0.1, 0.09], "f4"),
    "zeros but for the first": np.array([1, 0, 0, 0], "f4"),
    "all one": np.full(4, 0.5, "f4"),
    "zeros": np.zeros(4, "f4"),
    "one of them the other way round": FREQUENCIES * np.array([1, 1, -1, 1], "f4"),
}


@pytest.mark.parametrize("name", sorted(OTHERS_OF_POSITIONS))
def test_numbers_that_are_no_frequencies_are_not(tmp_path: Path, name: str) -> None:
    result = run_of_positions(tmp_path, TURNED_OF_POSITIONS, {"freq": OTHERS_OF_POSITIONS[name]})

    assert line_of(result, "freq") != "added"
    assert not result.balanced


def test_frequencies_that_something_else_reads_are_not(tmp_path: Path) -> None:
    text = TURNED_OF_POSITIONS.replace("y = Add(i, j)", "k = Add(i, j) y = Mul(k, freq)")

    result = run_of_positions(tmp_path, text, {"freq": FREQUENCIES})

    assert not result.balanced


def test_nor_are_they_where_angles_are_added_to_an_activation(tmp_path: Path) -> None:
    assert not run_of_positions(tmp_path, ADDED_TOO, {"freq": FREQUENCIES}).balanced


def test_a_side_that_lists_its_buffers_has_the_frequencies(tmp_path: Path) -> None:
    listed = manifest_of(parameter("fc.weight", FC))

    assert not run_of_positions(tmp_path, TURNED_OF_POSITIONS, {"freq": FREQUENCIES}, listed).balanced


OF_PATCHES = """<ir_version: 10, opset_import: ["" : 18]>
g (float[12,8] t) => (float[12,8] y) {
    p = Mul(places, two) q = Sub(p, one) a = Mul(q, freq) b = Reshape(a, shape) n = Size(b) c = Greater(n, none)
    d = If (c) <then_branch = g1 () => (float[12,8] q) { q = Identity(b) },
                else_branch = g2 () => (float[12,8] o) { o = Neg(b) }>
    s = Sin(d) h = MatMul(t, "fc.weight") y = Add(h, s)
}"""


@pytest.mark.parametrize(("factor", "is_balanced"), [(1.0, True), (np.array([1, 1, 1.2, 1]), False)])
def test_frequencies_may_meet_the_centers_of_patches(
    tmp_path: Path, factor: Array | float, is_balanced: bool
) -> None:
    """As in DINOv3, whose angles are no multiples of a position, and go through a branch in a TorchScript export."""
    places = np.stack([each.ravel() for each in np.indices((3, 4))], axis=-1)[:, :, None]
    centers = ((places + 0.5) / np.array([3, 4])[:, None]).astype("f4")
    of_program = ((2 * centers - 1) * FREQUENCIES).reshape(12, 8)
    values = (
        traced("%coords", centers, "(places + 0.5) / sides", uses=(("", "mul"),)),
        traced("%mul", of_program, "(2 * coords - 1) * inv_freq", uses=(("", "sin"),)),
    )
    known = manifest_of(parameter("fc.weight", noise(8, 8)), buffer("rope.inv_freq", FREQUENCIES))
    known = replace(known, program=Program(values))
    stored = {
        "fc.weight": noise(8, 8),
        "freq": (FREQUENCIES * factor).astype("f4"),
        "places": centers,
        "two": np.asarray(2, "f4"),
        "one": np.asarray(1, "f4"),
        "none": np.asarray(0),
        "shape": np.asarray([12, 8]),
    }

    assert reconcile(tmp_path, text_model(OF_PATCHES, stored), known).balanced is is_balanced


WITHOUT_A_PROGRAM = """g (float[n,16] t) => (float[n,16] y) {
    e = Expand(rows, grid) f = Expand(columns, grid) places = Concat<axis = 2>(e, f) w = Reshape(places, flat)
    p = Mul(w, two) q = Sub(p, one) r = Mul(q, turn) a = Mul(r, freq) b = Flatten(a)
    l = Shape(b) m = Div(l, l) k = Mul(m, times) d = Tile(b, k)
    c = Cos(d) s = Sin(d) h = MatMul(t, "fc.weight") i = Mul(h, c) j = Mul(h, s) y = Add(i, j)
}"""


@pytest.mark.parametrize(("turn", "is_balanced"), [(2 * np.pi, True), (6.0, False)])
def test_angles_are_known_by_their_sines_and_cosines(tmp_path: Path, turn: float, is_balanced: bool) -> None:
    """Those of DINOv3 are no multiples of a position; a state dict does not hold their frequencies."""
    centers = ((np.arange(5) + 0.5) / 5).astype("f4")
    stored = {
        "fc.weight": noise(16, 16),
        "rows": centers.reshape(5, 1, 1),
        "columns": centers.reshape(1, 5, 1),
        "grid": np.asarray([5, 5, 1]),
        "flat": np.asarray([25, 2, 1]),
        "freq": (100 ** (-np.arange(4) / 4)).astype("f4"),
        "turn": np.asarray(turn, "f4"),
        "two": np.asarray(2, "f4"),
        "one": np.asarray(1, "f4"),
        "times": np.asarray([1, 2]),
    }
    known = replace(manifest_of(parameter("fc.weight", stored["fc.weight"])), lists_all_buffers=False)

    assert reconcile(tmp_path, text_model(WITHOUT_A_PROGRAM, stored), known).balanced is is_balanced


THROUGH_A_BRANCH = """<ir_version: 10, opset_import: ["" : 18]>
g (float[3,1] x, float[3,4] t, bool c) => (float[3,4] y) {
    p = Mul(x, freq) n = Size(p)
    a = If (c) <then_branch = g1 () => (float[3,4] q) { q = Identity(p) },
                else_branch = g2 () => (float[3,4] o) { o = Identity(p) }>
    s = Sin(a) h = MatMul(t, "fc.weight") y = Add(h, s)
}"""


@pytest.mark.parametrize("name", ["frequencies", *sorted(OTHERS_OF_POSITIONS)])
def test_frequencies_may_go_through_the_branches_of_a_choice(tmp_path: Path, name: str) -> None:
    numbers = OTHERS_OF_POSITIONS.get(name, FREQUENCIES)

    assert run_of_positions(tmp_path, THROUGH_A_BRANCH, {"freq": numbers}).balanced is (name == "frequencies")


@pytest.mark.parametrize("is_coded", [False, True])
@pytest.mark.parametrize("is_changed", [False, True])
def test_a_table_that_the_exporter_notes_to_be_of_a_buffer_that_no_state_dict_lists(
    tmp_path: Path, is_coded: bool, is_changed: bool
) -> None:
    table = np.sin(np.outer(np.arange(10), FREQUENCIES)).astype("f4")
    table[5, 1] += np.float32(is_changed) / 4
    stored = quantized("slice_1", table) if is_coded else {"slice_1": table}
    decoded = "slice_1 = DequantizeLinear(slice_1_quantized, slice_1_scale, slice_1_zero_point)"
    text = f"""g (float[10,4] x) => (float[10,4] y) {{
        {decoded if is_coded else ""} h = MatMul(x, "fc.weight") y = Mul(h, slice_1)
    }}"""
    proto = dynamo_like(text_model(text, {**BESIDE, **stored}), folded={"slice_1": ["blocks.0.sin", "val_3"]})

    assert reconcile(tmp_path, proto, state_dict()).balanced is not is_changed


def waves(positions: int, frequencies: Array) -> Array:
    angles = np.outer(np.arange(positions), frequencies)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype("f4")


LOOKED_UP = """g (int64[3] x) => (float[3,4] y) {
    p = Gather(table, x) h = MatMul(p, "fc.weight") y = Relu(h)
}"""


def test_a_table_of_positions_that_is_looked_up_is_added(tmp_path: Path) -> None:
    table = waves(20, np.array([1, 1e-4], "f4"))
    table[1] = 0  # padding

    result = run_of_positions(tmp_path, LOOKED_UP, {"table": table})

    assert line_of(result, "table") == "added"
    assert result.balanced


@pytest.mark.parametrize("change", ["one element", "one frequency", "counts", "last to first", "listed"])
def test_a_table_that_is_looked_up_and_is_another_is_not(tmp_path: Path, change: str) -> None:
    table, known = waves(20, np.array([1, 1e-4], "f4")), None
    if change == "one element":
        table[7, 0] += 0.1
    elif change == "one frequency":
        table[:, 1] = np.sin(0.3 * np.arange(20))
    elif change == "last to first":
        table = table[::-1].copy()
    elif change == "counts":
        table = np.add.outer(np.arange(20), np.arange(4)).astype("f4")
    else:
        known = manifest_of(parameter("fc.weight", FC))

    result = run_of_positions(tmp_path, LOOKED_UP, {"table": table}, known)

    assert line_of(result, "table") == "unexpected"
    assert not result.balanced


CACHED = """<ir_version: 10, opset_import: ["" : 20, "com.microsoft" : 1]>
g (float[1,5,4] x, int64[1,5] at) => (float[1,5,4] y) {
    h = MatMul(x, "fc.weight")
    y = com.microsoft.RotaryEmbedding(h, at, cosines, sines)
}"""


def test_attentions_own_tables_of_cosines_and_sines_are_added(tmp_path: Path) -> None:
    angles = np.outer(np.arange(9), [1, 0.03])
    stored = {"cosines": np.cos(angles).astype("f4"), "sines": np.sin(angles).astype("f4")}

    result = run_of_positions(tmp_path, CACHED, stored)

    assert result.balanced
    assert {line_of(result, name) for name in stored} == {"added"}


@pytest.mark.parametrize("change", ["noise", "turned", "listed"])
def test_what_attention_is_given_instead_is_not(tmp_path: Path, change: str) -> None:
    angles = np.outer(np.arange(9), [1, 0.03])
    stored = {"cosines": np.cos(angles).astype("f4"), "sines": np.sin(angles).astype("f4")}
    known = manifest_of(parameter("fc.weight", FC)) if change == "listed" else None
    if change == "noise":
        stored["sines"] = noise(9, 2, seed=4)
    elif change == "turned":
        stored["sines"] = -stored["sines"]

    assert not run_of_positions(tmp_path, CACHED, stored, known).balanced


def test_alibis_slopes_are_known_by_their_number(tmp_path: Path) -> None:
    text = """g (float[4,4] x) => (float[4,4] y) {
        h = MatMul(x, "fc.weight") b = Mul(slopes, x) y = Add(h, b)
    }"""
    slopes = (2.0 ** (-2 * np.arange(1, 5))).astype("f4")[:, None]

    assert run_of_positions(tmp_path, text, {"slopes": slopes}).balanced
    assert not run_of_positions(tmp_path, text, {"slopes": 2 * slopes}).balanced
    assert not run_of_positions(tmp_path, text, {"slopes": -slopes}).balanced


# exchanged tables

HALVES = "h1 = Slice(x, s0, s4, ax) h2 = Slice(x, s4, s8, ax) n = Neg(h2) t = Concat <axis = -1> (n, h1)"


def turned(cosine: str, sine: str, how: str) -> onnx.ModelProto:
    """Return a model that rotates a vector of eight by the tables of these names."""
    shape = "float[12,8]"
    nodes = {
        "whole": f"{HALVES} a = Mul(x, {cosine}) b = Mul(t, {sine}) y = Add(a, b)",
        "sine first": f"{HALVES} a = Mul(x, {cosine}) b = Mul({sine}, t) y = Add(b, a)",
        "halves": f"""h1 = Slice(x, s0, s4, ax) h2 = Slice(x, s4, s8, ax)
            a = Mul(h1, {cosine}) b = Mul(h2, {sine}) c = Sub(a, b)
            d = Mul(h2, {cosine}) e = Mul(h1, {sine}) f = Add(d, e) y = Concat <axis = -1> (c, f)""",
    }[how]
    steps = (10.0 ** -np.arange(4)).astype("f4")
    wide = angles(frequencies=steps if how == "halves" else np.concatenate([steps, steps]))
    stored = {
        "tcos": np.cos(wide).astype("f4"),
        "tsin": np.sin(wide).astype("f4"),
        **{f"s{n}": np.array([n]) for n in (0, 4, 8)},
        "ax": np.array([1]),
    }
    return text_model(f"g ({shape} x) => ({shape} y) {{ {nodes} }}", stored)


@pytest.mark.parametrize("how", ["whole", "sine first", "halves"])
@pytest.mark.parametrize("has_frequencies", [False, True])
def test_tables_of_cosines_and_sines_that_are_exchanged_are_misplaced(tmp_path, how, has_frequencies):
    frequencies = (10.0 ** -np.arange(4)).astype("f4")
    known = [buffer("rotary_emb.inv_freq" if has_frequencies else "another", frequencies)]

    honest = reconcile(tmp_path, turned("tcos", "tsin", how), manifest_of(*known))
    exchanged = reconcile(tmp_path, turned("tsin", "tcos", how), manifest_of(*known))

    assert honest.balanced
    assert {line.key[1] for line in exchanged.entries if line.line == "misplaced"} == {"tcos", "tsin"}
    assert not exchanged.balanced
