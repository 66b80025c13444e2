"""How a stored content relates to a PyTorch tensor's, in each mode."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from models import audit, dtype_of, entry, manifest_of, parameter, ramp, text_model

from analyzer.errors import UsageError
from analyzer.ledger import Entry
from analyzer.reconcile import ContentMode, reconcile_ledger
from analyzer.reconcile.contents import Contents, Relation

MODES: list[ContentMode] = ["none", "sampled", "full"]


@pytest.fixture
def store(tmp_path: Path):
    """An entry of this content."""

    def make(array: np.ndarray) -> Entry:
        proto = text_model("g (float[1] x) => (float[1] y) { y = MatMul(x, w) }", {"w": array})
        return entry(audit(tmp_path, proto), "w")

    return make


@pytest.mark.parametrize(
    ("stored", "known", "sampled", "full"),
    [
        (ramp(2, 3), ramp(2, 3), "same", "same"),
        (ramp(2, 3).T.copy(), ramp(2, 3), "transposed", "transposed"),
        (ramp(30, 40).T.copy(), ramp(30, 40), "transposed", "transposed"),
        (ramp(6), ramp(2, 3), "reshaped", "reshaped"),
        (ramp(2, 3, start=2), ramp(2, 3), "different", "different"),
        (ramp(2, 3).astype("f8"), ramp(2, 3), "different", "different"),
        (ramp(2, 4), ramp(2, 3), "different", "different"),
        (ramp(0, 3), ramp(0, 3), "same", "same"),
        (ramp(), ramp(), "same", "same"),
    ],
)
def test_relation(store, stored, known, sampled, full):
    found, tensor = store(stored), parameter("fc.weight", known)

    relations = [Contents(mode).relation(found, tensor) for mode in MODES]

    assert [str(relation) for relation in relations] == ["unknown", sampled, full]


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, "f2", "i1", "?", "i8"])
@pytest.mark.parametrize("mode", ["sampled", "full"])
def test_every_dtype_is_compared(store, dtype, mode):
    array = np.array([[0, 1, 1], [1, 0, 0]]).astype(dtype)

    assert Contents(mode).relation(store(array), parameter("w", array)) is Relation.SAME
    assert Contents(mode).relation(store(array.T.copy()), parameter("w", array)) is Relation.TRANSPOSED


def test_square_symmetric_matrix_is_the_same(store):
    symmetric = ramp(4, 4) + ramp(4, 4).T

    assert Contents("full").relation(store(symmetric), parameter("w", symmetric)) is Relation.SAME


def test_tensor_without_weights_is_unknown(store):
    assert (
        Contents("full").relation(store(ramp(3)), parameter("w", ramp(3), weightless=True))
        is Relation.UNKNOWN
    )


def test_content_that_is_not_there_is_unknown(tmp_path):
    proto = text_model('g (float[1] x) => (string[2] y) <string[2] w = {"a", "b"}> { y = Concat<axis=0>(w) }')
    known = parameter("w", ramp(2), dtype=entry(audit(tmp_path, proto), "w").tensor.dtype)

    assert Contents("full").relation(entry(audit(tmp_path, proto), "w"), known) is Relation.UNKNOWN


@pytest.mark.parametrize("transposed", [False, True])
def test_error_is_the_largest_difference_in_the_right_orientation(store, transposed):
    changed = ramp(2, 3)
    changed[1, 2] += np.float32(0.25)

    found = store(changed.T.copy() if transposed else changed)

    assert Contents("full").error(found, parameter("w", ramp(2, 3))) == 0.25


@pytest.mark.parametrize(
    ("mode", "stored", "known"),
    [
        ("none", ramp(3), ramp(3)),
        ("full", ramp(4), ramp(3)),
        ("full", np.ones(3, "?"), np.ones(3, "?")),
    ],
)
def test_error_is_none_where_nothing_was_compared(store, mode, stored, known):
    assert Contents(mode).error(store(stored), parameter("w", known)) is None


def test_content_is_read_once(store):
    told: list[tuple[int, int]] = []
    contents = Contents("full", lambda *step: told.append(step), 24)
    found = store(ramp(2, 3))

    contents.relation(found, parameter("w", ramp(2, 3)))
    contents.relation(found, parameter("v", ramp(3, 2)))

    assert told == [(24, 24)]


@pytest.mark.parametrize("content", ["sampled", "full"])
def test_contents_of_a_model_without_weights_cannot_be_compared(tmp_path, content):
    proto = text_model("g (float[1] x) => (float[1] y) { y = Relu(x) }")
    manifest = manifest_of(parameter("fc.weight", ramp(3), weightless=True))

    with pytest.raises(
        UsageError, match=f"--content {content}: the PyTorch side was described without weights"
    ):
        reconcile_ledger(audit(tmp_path, proto), manifest, content)


def test_census_dtypes_are_the_stored_ones():
    assert dtype_of(ramp(1)).name == "FLOAT"
