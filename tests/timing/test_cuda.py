"""A model timed on a GPU by CUDA; the code around it is tested on the CPU too."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path

import models
import numpy as np
import pytest

from analyzer.account.audit import audit_model
from analyzer.account.group import group_by
from analyzer.errors import TimingError
from analyzer.timing.inputs.sizes import parse_shapes
from analyzer.timing.record import Timing, TimingSettings
from analyzer.timing.request import Schedule
from analyzer.timing.running import isolated
from analyzer.timing.running.devices import cuda_gpu
from analyzer.timing.running.session import copies, fallbacks
from analyzer.timing.timer import time_model

pytestmark = pytest.mark.time

CUDA = "CUDAExecutionProvider"

# Det has no kernel for CUDA: its matrix is copied to the host, and its result back to the device.
NET = """
net (int64[batch,64] input_ids) => (float[64,64] out)
{
    [lookup] e = Gather(table, input_ids)
    [mean] m = ReduceMean<keepdims=0>(e, first)
    [up] a = MatMul(m, wide)
    [act] b = Relu(a)
    [down] c = MatMul(b, narrow)
    [volume] d = Det(c)
    [scale] out = Mul(c, d)
}
"""
SCOPES = {
    "lookup": "embeddings",
    "mean": "embeddings",
    "up": "layers.0",
    "act": "layers.0",
    "down": "layers.0",
    "volume": "head",
    "scale": "head",
}
WEIGHTS = {
    "table": models.noise(50, 64, seed=1),
    "wide": models.noise(64, 256, seed=2),
    "narrow": models.noise(256, 64, seed=3),
    "first": np.array([0]),
}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    proto = models.dynamo_like(models.text_model(NET, WEIGHTS), scopes=SCOPES)
    return models.save(tmp_path_factory.mktemp("net"), proto)


def run(path: Path, provider: str, *options: tuple[str, str], shape: str = "batch=2") -> Timing:
    settings = TimingSettings(provider, options, schedule=Schedule(runs=5, warmup=1))
    ledger = audit_model(path)
    return time_model(ledger, group_by(ledger, "scope", 2), settings, shapes=parse_shapes([shape]))


@pytest.fixture(scope="module")
def timing(path: Path) -> Timing:
    """Timing of the net on the GPU."""
    onnxruntime = pytest.importorskip("onnxruntime")
    if CUDA not in onnxruntime.get_available_providers():
        pytest.skip("the onnxruntime that is installed has no CUDA provider: install onnxledger[time-gpu]")
    if cuda_gpu(0) is None:
        pytest.skip("nvidia-smi tells of no GPU that CUDA may use")
    return run(path, "cuda")


@pytest.mark.gpu
def test_the_gpu_is_named_with_its_software_and_its_clocks(timing: Timing) -> None:
    environment = timing.environment
    gpu = cuda_gpu(0)

    assert gpu is not None
    assert environment.device == gpu.name
    assert environment.providers[0] == CUDA
    assert {"CUDA of the build", "CUDA runtime", "driver", "CUDA capability"} <= dict(
        environment.versions
    ).keys()
    assert dict(environment.clocks)["SM"] > 0


@pytest.mark.gpu
def test_groups_and_what_is_left_sum_up_on_a_gpu_too(timing: Timing) -> None:
    (point,) = timing.points

    parts = math.fsum(part.ms for part in point.parts)

    assert parts + point.unattributed_ms + point.overhead_ms == pytest.approx(point.profiled.mean, rel=1e-9)
    assert {part.group.name for part in point.parts} >= {"embeddings", "layers.0"}


@pytest.mark.gpu
@pytest.mark.usefixtures("timing")
def test_kernels_have_waited_for_the_gpu(tmp_path: Path) -> None:
    """If the device were awaited only at the end, asynchronous calls would count as overhead."""
    proto = models.text_model("net (float[n,n] x) => (float[n,n] y) { [product] y = MatMul(x, x) }")

    (point,) = run(models.save(tmp_path, proto), "cuda", shape="n=4096").points

    (kernel,) = point.kernels
    assert kernel.provider == CUDA
    assert kernel.ms > point.profiled.mean / 2


@pytest.mark.gpu
def test_a_node_without_a_kernel_for_cuda_is_listed_with_its_time(timing: Timing) -> None:
    (point,) = timing.points

    found = {each.op_type: each for each in fallbacks(CUDA, point.kernels)}

    assert found["Det"].provider == "cpu"
    assert found["Det"].ms > 0


@pytest.mark.gpu
def test_copies_to_the_host_and_back_are_listed_apart(timing: Timing) -> None:
    (point,) = timing.points

    assert {each.op_type for each in copies(point.kernels)} == {"MemcpyToHost", "MemcpyFromHost"}
    assert not any("Memcpy" in each.op_type for each in fallbacks(CUDA, point.kernels))


@pytest.mark.gpu
def test_the_memory_of_the_arena_holds_the_weights(timing: Timing) -> None:
    (point,) = timing.points
    if point.held_nbytes is None:
        pytest.skip("this onnxruntime does not say what an arena holds: 1.28 is the first that does")

    assert point.held_nbytes >= sum(array.nbytes for array in WEIGHTS.values() if array.dtype == np.float32)


@pytest.mark.gpu
def test_tf32_is_reported_unless_it_is_off(timing: Timing, path: Path) -> None:
    capability = float(dict(timing.environment.versions)["CUDA capability"])

    off = run(path, "cuda", ("use_tf32", "0"))

    assert any("TF32" in message for message in timing.environment.messages) == (capability >= 8)
    assert not any("TF32" in message for message in off.environment.messages)


@pytest.mark.gpu
@pytest.mark.usefixtures("timing")
def test_a_sweep_runs_on_a_gpu(path: Path) -> None:
    swept = run(path, "cuda", shape="batch=1:4:x2")

    assert [point.value for point in swept.points] == [1, 2, 4]


@pytest.mark.gpu
@pytest.mark.usefixtures("timing")
def test_an_option_that_cuda_does_not_know_is_an_error(path: Path) -> None:
    with pytest.raises(TimingError, match="no_such_option"):
        run(path, "cuda", ("no_such_option", "1"))


@pytest.mark.gpu
@pytest.mark.usefixtures("timing")
def test_a_device_that_is_not_there_is_an_error(path: Path) -> None:
    with pytest.raises(TimingError, match=r"99|device"):
        run(path, "cuda", ("device_id", "99"))


def test_what_a_gpu_needs_is_done_with_bound_inputs_and_in_two_processes(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxruntime")
    stages: list[str] = []
    monkeypatch.setattr(isolated, "binding_device", lambda name: "cpu")
    monkeypatch.setattr(isolated, "blocking_environment", lambda name: {"CUDA_LAUNCH_BLOCKING": "1"})
    ledger = audit_model(path)
    settings = TimingSettings("cpu", threads=1, schedule=Schedule(runs=5, warmup=1))

    timing = time_model(
        ledger,
        group_by(ledger, "scope", 2),
        settings,
        shapes=parse_shapes(["batch=2"]),
        progress=stages.append,
    )

    (point,) = timing.points
    assert (point.latency.runs, point.profiled.runs) == (5, 5)
    assert stages.count("starting onnxruntime") == 2
    assert stages.index("measuring") < stages.index("profiling")
    assert {part.group.name for part in point.parts} >= {"embeddings", "layers.0", "head"}


def test_a_model_is_not_timed_on_another_provider_than_requested(path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    if CUDA in onnxruntime.get_available_providers():
        pytest.skip("the onnxruntime that is installed has the CUDA provider")

    with pytest.raises(TimingError, match=r"cannot run on cuda, only on .*onnxledger\[time-gpu\]"):
        run(path, "cuda")


@pytest.mark.gpu
def test_the_clock_of_kernels_is_the_device_s_where_it_can_be_read(timing: Timing) -> None:
    (point,) = timing.points
    if importlib.util.find_spec("cupti") is None:
        pytest.skip("cupti-python is not installed: install onnxledger[time-gpu]")

    assert timing.environment.kernel_clock == "device"
    assert not [
        message for message in timing.environment.messages if "CUPTI" in message or "[overhead]" in message
    ]
    times = {kernel.name: kernel.ms for kernel in point.kernels}
    assert all(times[name] > 0 for name in ("lookup", "mean", "up", "down", "volume"))
    assert point.overhead_ms > 0


@pytest.mark.gpu
def test_without_bindings_of_cupti_the_host_waits_for_each_kernel(
    timing: Timing, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolated, "has_cupti", lambda: False)

    waited = run(path, "cuda")

    assert waited.environment.kernel_clock == "host"
    assert [part.group.name for part in waited.points[0].parts] == [
        part.group.name for part in timing.points[0].parts
    ]
