"""What the files lose with some tensors: each byte once, and none that another tensor needs."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models import audit, external, ramp, text_model
from onnx import numpy_helper

from analyzer.findings.facts import count_freed
from analyzer.ledger import Ledger

FILE = 40
RANGES = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3)), min_size=1, max_size=6)
"""(offset, length) in floats, within a file of ten."""


def model_of(folder: Path, ranges: list[tuple[int, int]], inline: int = 0) -> Ledger:
    (folder / "w.bin").write_bytes(np.arange(1, 11, dtype="f4").tobytes())
    proto = text_model("g (float[1] x) => (float[1] y) { y = Relu(x) }")
    for index, (start, count) in enumerate(ranges):
        place = {"location": "w.bin", "offset": 4 * start, "length": 4 * count}
        proto.graph.initializer.append(external(f"e{index}", [count], **place))
    for index in range(inline):
        proto.graph.initializer.append(numpy_helper.from_array(ramp(3 + index), f"i{index}"))
    return audit(folder, proto)


def freed(ledger: Ledger, *names: str) -> int:
    removed = [entry for entry in ledger.entries if entry.tensor.name in names]
    assert len(removed) == len(names)
    return count_freed(removed, ledger.entries, ledger.model)


@pytest.mark.parametrize(
    ("ranges", "names", "expected"),
    [
        ([(0, 3), (3, 2)], ["e0"], 12),
        ([(0, 3), (0, 3)], ["e0"], 0),
        ([(0, 3), (0, 3)], ["e0", "e1"], 12),
        ([(0, 3), (2, 3)], ["e0"], 8),
        ([(0, 6), (2, 1)], ["e0"], 20),
        ([(0, 6), (2, 1)], ["e1"], 0),
        ([(0, 0), (2, 1)], ["e0"], 0),
        ([(0, 2)], ["e0", "i0"], 8 + 12),
        ([(0, 2)], [], 0),
    ],
    ids=["beside", "same", "both", "overlap", "around", "within", "empty", "inline", "nothing"],
)
def test_bytes_that_another_tensor_claims_stay(tmp_path, ranges, names, expected):
    assert freed(model_of(tmp_path, ranges, inline=1), *names) == expected


@settings(max_examples=60, deadline=None)
@given(ranges=RANGES, chosen=st.sets(st.integers(0, 5)))
def test_freed_bytes_are_those_that_nobody_else_holds(ranges, chosen):
    with TemporaryDirectory() as folder:
        ledger = model_of(Path(folder), ranges)
    going = {index for index in chosen if index < len(ranges)}
    held = {index: {*range(4 * start, 4 * (start + count))} for index, (start, count) in enumerate(ranges)}
    gone = set().union(*(held[index] for index in going))
    kept = set().union(*(held[index] for index in held if index not in going))

    assert freed(ledger, *(f"e{index}" for index in sorted(going))) == len(gone - kept)


@settings(max_examples=60, deadline=None)
@given(ranges=RANGES, inline=st.integers(0, 3))
def test_no_finding_costs_more_than_the_files_have(ranges, inline):
    with TemporaryDirectory() as folder:
        ledger = model_of(Path(folder), ranges, inline)

    assert all(0 < (finding.nbytes or 1) <= ledger.file_nbytes for finding in ledger.findings)
    assert sum(f.nbytes or 0 for f in ledger.findings if f.id in DISJOINT) <= ledger.file_nbytes


DISJOINT = ("external-orphaned", "strippable-metadata", "unknown-fields", "unused-initializer")
"""Findings that are never about the same bytes."""
