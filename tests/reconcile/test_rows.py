"""A table of which an export kept, picked or repeated rows; numbers by hand."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from models import bridge_of, dynamo_like, manifest_of, parameter, ramp, reconcile, text_model

from analyzer.content import encode_values, row_digests

TABLE = ramp(5, 3)


def run(tmp_path, stored, content="full", name="val_1"):
    """A file whose `val_1` the exporter has folded from the table, against the whole table."""
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
