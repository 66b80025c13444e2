"""Models of a lake that share weights, and how they share them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fleets import add, codes, network, survey, turned, weights
from models import save
from onnx import numpy_helper

from analyzer.fleet.families import find_families

pytestmark = pytest.mark.child


def found(folder: Path, lake: Path) -> dict[str, dict[str, Any]]:
    survey(folder, lake=lake)
    return {Path(row["model"]).stem: row for row in find_families(lake).records}


@pytest.fixture
def base() -> dict[str, Any]:
    return weights(1)


def test_the_same_weights_are_known_under_other_names_orientations_and_carriers(
    tmp_path: Path, base: dict[str, Any]
) -> None:
    folder = tmp_path / "zoo"
    add(folder, "a.onnx", base)
    save(folder, turned(base), "b.onnx")
    add(folder, "stranger.onnx", weights(2))

    rows = found(folder, tmp_path / "lake")

    assert sorted(rows) == ["a", "b"]
    assert (rows["a"]["relation"], rows["b"]["relation"]) == ("root", "same")
    assert Path(rows["b"]["of"]).stem == "a"
    assert rows["b"]["shared_parameters"] == sum(each.size for each in base.values())
    assert rows["b"]["copied_bytes"] == sum(each.nbytes for each in base.values())


def test_a_cast_a_quantization_and_a_fine_tune_are_distinguished_from_each_other(
    tmp_path: Path, base: dict[str, Any]
) -> None:
    folder = tmp_path / "zoo"
    add(folder, "base.onnx", base)
    half = {name: each.astype(np.float16) for name, each in base.items()}
    proto = network({**base})
    for tensor in proto.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(half[tensor.name], tensor.name))
    save(folder, proto, "half.onnx")
    save(folder, codes(base), "int8.onnx")
    add(folder, "tuned.onnx", {**base, "out.weight": weights(7)["out.weight"]})
    noise = weights(9)
    add(folder, "trained.onnx", {name: each + np.float32(0.1) * noise[name] for name, each in base.items()})

    rows = found(folder, tmp_path / "lake")

    relations = {name: row["relation"] for name, row in rows.items()}
    assert relations == {
        "base": "root",
        "half": "cast",
        "int8": "quantized",
        "tuned": "fine-tuned",
        "trained": "fine-tuned",
    }
    assert {row["family"] for row in rows.values()} == {1}
    assert rows["tuned"]["shared_tensors"] == 2


def test_a_merge_names_both_that_it_is_of(tmp_path: Path, base: dict[str, Any]) -> None:
    folder = tmp_path / "zoo"
    one, other = ({n: e + np.float32(0.2) * weights(seed)[n] for n, e in base.items()} for seed in (3, 4))
    add(folder, "a.onnx", one)
    add(folder, "b.onnx", other)
    add(folder, "merged.onnx", {n: np.float32(0.4) * one[n] + np.float32(0.6) * other[n] for n in base})

    rows = found(folder, tmp_path / "lake")

    merged = [row for row in rows.values() if row["relation"] == "merged"]
    assert len(merged) == 1
    assert " + " in merged[0]["of"]


def test_constants_and_tiny_tensors_make_no_family(tmp_path: Path) -> None:
    folder = tmp_path / "zoo"
    for seed in (5, 6):
        own = weights(seed, a=3, b=5, c=2)
        add(folder, f"tiny{seed}.onnx", own)
        filled = weights(seed) | {
            "fc.bias": np.zeros(40, np.float32),
            "out.weight": np.eye(40, 16, dtype=np.float32),
        }
        add(folder, f"filled{seed}.onnx", filled)

    assert found(folder, tmp_path / "lake") == {}
    assert "2 readable models were not compared" in find_families(tmp_path / "lake").says
