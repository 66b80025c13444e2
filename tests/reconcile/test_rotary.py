"""Tables of cosines and sines that a static export computed from a rotary embedding's frequencies."""

from __future__ import annotations

import numpy as np
import pytest
from models import bridge_of, buffer, manifest_of, parameter, ramp, reconcile, text_model

from analyzer.content import Array
from analyzer.manifest import Buffer
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
    """Half as fast they are a known series, too; PyTorch's side says which it must be."""
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


def test_frequencies_that_the_file_holds_elsewhere_say_nothing_of_another_vector(tmp_path):
    """An embedding of time has frequencies of its own, as many as the rotary embedding."""
    times = (1e3 ** -(np.arange(8) / 8)).astype("f4")
    text = """g (float[3,1] x) => (float[3,8] y) {
        a = Mul(x, "model.rotary_emb.inv_freq") b = Mul(x, val_1) c = Sin(a) d = Sin(b) y = Add(c, d)
    }"""
    proto = text_model(text, {"model.rotary_emb.inv_freq": INV_FREQ, "val_1": times})

    result = reconcile(tmp_path, proto, manifest_of(buffer("model.rotary_emb.inv_freq", INV_FREQ)))

    assert result.balanced
