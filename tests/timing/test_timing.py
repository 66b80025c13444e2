"""A model file -> times of its groups, by a real session on the CPU."""

from __future__ import annotations

import math
import re
from pathlib import Path

import models
import numpy as np
import pytest

from analyzer.account.audit import audit_model
from analyzer.account.group import group_by
from analyzer.account.group.patterns import OwnGroups, group_by_patterns, parse_patterns
from analyzer.errors import TimingError, UsageError
from analyzer.timing.inputs.sizes import parse_shapes
from analyzer.timing.record import Point, Timing, TimingSettings
from analyzer.timing.request import Fill, Schedule
from analyzer.timing.timer import time_model

pytestmark = pytest.mark.time
DOCUMENT = Path(__file__).parents[2] / "docs" / "timing.md"

QUICK = TimingSettings("cpu", threads=1, schedule=Schedule(runs=5, warmup=1))

NET = """
net (int64[batch,sequence] input_ids, int64[batch,sequence] attention_mask) => (float[batch,sequence,64] out)
{
    [lookup] e = Gather(table, input_ids)
    [cast] m = Cast<to=1>(attention_mask)
    [axes] u = Unsqueeze(m, last)
    [masked] h = Mul(e, u)
    [up] a = MatMul(h, wide)
    [act] b = Relu(a)
    [down] c = MatMul(b, narrow)
    [sum] d = Add(c, h)
    [again] f = MatMul(d, square)
    [bias] out = Add(f, offset)
}
"""
SCOPES = {
    **dict.fromkeys(("lookup", "cast", "axes", "masked"), "embeddings"),
    **dict.fromkeys(("up", "act", "down", "sum"), "layers.0"),
    **dict.fromkeys(("again", "bias"), "layers.1"),
}
WEIGHTS = {
    "table": models.noise(50, 64, seed=1),
    "wide": models.noise(64, 512, seed=2),
    "narrow": models.noise(512, 64, seed=3),
    "square": models.noise(64, 64, seed=4),
    "offset": models.noise(64, seed=5),
    "last": np.array([2]),
}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    proto = models.dynamo_like(models.text_model(NET, WEIGHTS), scopes=SCOPES)
    return models.save(tmp_path_factory.mktemp("net"), proto)


@pytest.fixture(scope="module")
def timing(path: Path) -> Timing:
    ledger = audit_model(path)
    return time_model(
        ledger, group_by(ledger, "scope", 2), QUICK, shapes=parse_shapes(["batch=2,sequence=32"])
    )


def total(point: Point) -> float:
    ungrouped = point.ungrouped.ms if point.ungrouped is not None else 0.0
    parts = math.fsum(part.ms for part in point.parts)
    return parts - point.overlap_ms + ungrouped + point.unattributed_ms + point.overhead_ms


def test_groups_and_what_is_left_sum_up_to_the_profiled_run(timing: Timing) -> None:
    (point,) = timing.points

    assert total(point) == pytest.approx(point.profiled.mean, rel=1e-9)


def test_every_kernel_is_attributed_to_its_groups(timing: Timing) -> None:
    (point,) = timing.points

    assert point.unattributed_ms == 0
    assert all(kernel.groups for kernel in point.kernels)
    assert {part.group.name for part in point.parts if part.kernels} >= {"embeddings", "layers.0", "layers.1"}


def test_both_measurements_have_the_requested_runs(timing: Timing) -> None:
    (point,) = timing.points

    assert point.latency.runs == 5
    assert point.profiled.runs == 5
    assert 0 < point.latency.min <= point.latency.median <= point.latency.p90 <= point.latency.p99


def test_inputs_are_as_requested_and_fit_the_model(timing: Timing) -> None:
    ids, mask = timing.points[0].feeds

    assert (ids.shape, mask.shape) == ((2, 32), (2, 32))
    assert (ids.fill, ids.low, ids.high) == (Fill.INTEGERS, 0, 49)
    assert (mask.fill, mask.low) == (Fill.CONSTANT, 1)


def test_the_environment_says_what_ran(timing: Timing) -> None:
    environment = timing.environment

    assert environment.providers == ("CPUExecutionProvider",)
    assert environment.threads == 1
    assert environment.precision == (("FLOAT", 1.0),)
    assert "onnxruntime" in dict(environment.versions)


def test_the_python_example_of_the_document_runs(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(
        r"^```python\n(.*?)^```$", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )

    exec(block.replace("build/demo/bert/model.onnx", str(path)).replace("sequence=128", "sequence=4"), {})

    assert "'embeddings'" in capsys.readouterr().out


def test_the_lines_of_the_document_s_tables_sum_to_their_totals() -> None:
    pages = DOCUMENT, DOCUMENT.parent / "evidence" / "timing.md"
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    tables = re.findall(r"^scope, depth \d +ms .*?^total .*?$", text, re.MULTILINE | re.DOTALL)

    assert len(tables) > 5
    for table in tables:
        rows = [
            re.findall(r" (-?[\d,]+\.\d{3}) +[<>]?-?[\d.]+ %[ █▉▊▋▌▍▎▏]+(-?[\d,]+\.\d{3})", line)
            for line in table.splitlines()
        ]
        numbers = [[float(number.replace(",", "")) for number in row[0]] for row in rows if row]
        *lines, total = numbers
        for column in range(2):
            rounding = 0.0005 * len(numbers)
            assert math.fsum(line[column] for line in lines) == pytest.approx(total[column], abs=rounding)
    assert len(tables) == 6


def test_a_sweep_has_a_point_for_each_length_from_one_session(path: Path) -> None:
    ledger = audit_model(path)

    found = time_model(ledger, group_by(ledger), QUICK, shapes=parse_shapes(["sequence=4:16:x2"]))

    assert found.axis == "sequence"
    assert [point.value for point in found.points] == [4, 8, 16]
    assert [point.feeds[0].shape for point in found.points] == [(1, 4), (1, 8), (1, 16)]
    assert all(total(point) == pytest.approx(point.profiled.mean, rel=1e-9) for point in found.points)


def test_groups_of_the_user_s_own_sum_up_too(path: Path) -> None:
    ledger = audit_model(path)
    own = OwnGroups(parse_patterns(["layers=^layers", r"last=^layers\.1"]), "all", "--group")

    (point,) = time_model(ledger, group_by_patterns(ledger, own.patterns), QUICK, own=own).points

    assert total(point) == pytest.approx(point.profiled.mean, rel=1e-9)
    assert point.overlap_ms > 0
    assert point.ungrouped is not None
    assert point.ungrouped.ms > 0


def test_arrays_of_the_user_s_are_fed(path: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", input_ids=np.full((3, 7), 9))
    ledger = audit_model(path)

    (point,) = time_model(ledger, group_by(ledger), QUICK, npz=tmp_path / "in.npz").points

    assert [(feed.shape, feed.fill) for feed in point.feeds] == [((3, 7), Fill.FILE), ((3, 7), Fill.CONSTANT)]


def test_nested_graphs_count_once_with_the_node_that_holds_them(tmp_path: Path) -> None:
    text = """
    net (float[2,8] x, bool flag) => (float[2,8] y)
    {
        [before] a = MatMul(x, w)
        [choice] b = If(flag) <
            then_branch = yes () => (float[2,8] t) { [inside] p = MatMul(a, w) t = Exp(p) },
            else_branch = no () => (float[2,8] e) { e = Neg(a) }
        >
        [after] y = Relu(b)
    }
    """
    proto = models.text_model(text, {"w": models.noise(8, 8)})
    models.with_scopes(proto, {"before": "one", "choice": "two", "after": "three"})
    ledger = audit_model(models.save(tmp_path, proto))

    (point,) = time_model(ledger, group_by(ledger, "scope", 1), QUICK).points

    kernels = {kernel.op_type: kernel.groups for kernel in point.kernels}
    assert kernels["If"] == ("two",)
    assert "Exp" not in kernels
    assert point.overhead_ms > 0


def test_a_model_whose_external_data_leads_elsewhere_is_never_handed_over(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "secret.bin").write_bytes(bytes(256))
    proto = models.text_model("g (float[8] x) => (float[8] y) { y = Add(x, w) }")
    proto.graph.initializer.append(models.external("w", [8], location="../secret.bin", length=32))
    ledger = audit_model(models.save(tmp_path / "inside", proto))

    with pytest.raises(TimingError, match="external-escapes"):
        time_model(ledger, group_by(ledger), QUICK)


def test_a_model_without_its_external_data_is_refused_by_name(tmp_path: Path) -> None:
    proto = models.text_model("g (float[8] x) => (float[8] y) { y = Add(x, w) }")
    proto.graph.initializer.append(models.external("w", [8], location="gone.data", length=32))
    ledger = audit_model(models.save(tmp_path, proto))

    with pytest.raises(TimingError, match=r"gone\.data.*external-missing"):
        time_model(ledger, group_by(ledger), QUICK)


def test_a_provider_that_runs_nothing_is_an_error(path: Path) -> None:
    import onnxruntime

    if "AzureExecutionProvider" not in onnxruntime.get_available_providers():
        pytest.skip("this onnxruntime has no provider that takes no nodes")
    ledger = audit_model(path)

    with pytest.raises(TimingError, match="azure"):
        time_model(ledger, group_by(ledger), TimingSettings("azure", schedule=QUICK.schedule))


def test_an_axis_that_the_model_does_not_have_is_refused_before_anything_runs(path: Path) -> None:
    ledger = audit_model(path)

    with pytest.raises(UsageError, match="height"):
        time_model(ledger, group_by(ledger), QUICK, shapes=parse_shapes(["height=4"]))
