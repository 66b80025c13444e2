"""One file run in two ways: an optimization is a difference only if values differ, and then the module is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import onnx
import pytest
from commands import run_here
from models import noise, save, text_model, with_scopes

from analyzer.schemas import load_schema

pytestmark = pytest.mark.time

TEXT = """
    <ir_version: 10, opset_import: ["" : 20]>
    net (float[n, 8] x) => (float[n, 8] y)
    {
        [first] a = MatMul(x, w)
        [act] c = Gelu(a)
        [scale] s = Mul(c, large)
        [second] e = MatMul(s, v)
        [unscale] f = Mul(e, small)
        [last] y = Add(f, x)
    }
"""
SCOPES = {"first": "up", "act": "up", "scale": "down", "second": "down", "unscale": "down", "last": "out"}


def network(large: float) -> onnx.ModelProto:
    """Return a model in which onnxruntime fuses both scales into a product; only unfused, a huge `large` overflows."""
    weights = {
        "w": noise(8, 16),
        "v": noise(16, 8, seed=2),
        "large": np.array(large, np.float32),
        "small": np.array(1 / large, np.float32),
    }
    return with_scopes(text_model(TEXT, weights), SCOPES)


@pytest.fixture
def mild(tmp_path: Path) -> Path:
    return save(tmp_path, network(4.0), "mild.onnx")


@pytest.fixture
def huge(tmp_path: Path) -> Path:
    return save(tmp_path, network(3e38), "huge.onnx")


def run_verify(*arguments: object) -> tuple[int, dict[str, Any]]:
    result = run_here("verify", *arguments, "--format", "json")
    document = json.loads(result.stdout)
    jsonschema.validate(document, load_schema("verify"))
    return result.returncode, document


@pytest.mark.parametrize("level", ["basic", "extended", "all"])
def test_optimizations_that_only_round_are_the_same(mild: Path, level: str) -> None:
    code, document = run_verify(mild, "--optimization", level)

    assert (code, document["same"], document["first"]) == (0, True, None)
    ours, theirs = (document["executions"][side] for side in ("model", "against"))
    assert (ours["optimization"], ours["provider"], theirs["optimization"]) == (level, "cpu", "none")


def test_what_optimizing_changes_is_reported_with_the_first_module_that_both_runs_have(huge: Path) -> None:
    code, document = run_verify(huge, "--optimization", "all")

    assert (code, document["same"]) == (1, False)
    assert (document["first"]["module"], document["first"]["node"]) == ("down", "unscale")
    assert "FusedMatMul at optimization all on cpu" in document["first"]["reason"]
    verdicts = {row["module"]: row["verdict"] for row in document["modules"]}
    assert verdicts == {"up": "same", "down": "differs", "out": "differs"}


def test_a_level_that_leaves_it_alone_is_the_same_and_so_are_two_that_both_change_it(huge: Path) -> None:
    assert run_verify(huge, "--optimization", "basic")[0] == 0
    assert run_verify(huge, "--optimization", "all", "--against-optimization", "extended")[0] == 0
    assert run_verify(huge, "--against-optimization", "extended")[0] == 1


def test_modules_whose_values_were_fused_away_are_counted(tmp_path: Path) -> None:
    proto = with_scopes(network(3e38), SCOPES | {"second": "down.product"})
    code, document = run_verify(save(tmp_path, proto, "nested.onnx"), "--optimization", "all")

    assert code == 1
    assert (
        "results of 1 of 4 modules: onnxruntime fused these modules, so their values do not exist"
        in document["uncovered"]
    )


def test_the_error_is_followed_through_all_modules_also_where_nothing_differs(mild: Path) -> None:
    _, document = run_verify(mild, "--optimization", "all")

    assert [(row["module"], row["verdict"]) for row in document["modules"]] == [
        ("up", "same"),
        ("down", "same"),
        ("out", "same"),
    ]
    assert all(row["noise_db"] > 100 for row in document["modules"])


def test_text_says_how_both_ran(mild: Path) -> None:
    lines = run_here("verify", mild, "--optimization", "all").stdout

    assert "optimization all on cpu: 4 nodes" in lines
    assert "optimization none on cpu" in lines


def test_codes_that_flip_between_two_ways_to_sum_are_the_same(tmp_path: Path) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic

    source = save(tmp_path, network(4.0), "float.onnx")
    quantize_dynamic(source, tmp_path / "int8.onnx", weight_type=QuantType.QInt8)

    code, document = run_verify(tmp_path / "int8.onnx", "--optimization", "all")

    assert (code, document["same"]) == (0, True)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--provider", "dnnl"), "the onnxruntime that is installed cannot run on dnnl, only on"),
        (("--against-provider", "dnnl"), "cannot run on dnnl"),
        (("--provider", "gpu9"), 'onnxruntime has no "gpu9"'),
        (("--optimization", "none"), "both runs of the file have optimization none on cpu"),
        (("--optimization", "all", "--static"), "--static: runs nothing"),
        (("--optimization", "all", "--against", "other.onnx"), "--against: names another side"),
    ],
)
def test_what_cannot_run_is_reported_before_anything_is_compared(
    mild: Path, options: tuple[str, ...], reason: str
) -> None:
    result = run_here("verify", mild, *options)

    assert (result.returncode, result.stdout) == (2, "")
    assert reason in " ".join(result.stderr.split())
