"""Hardware on which a timing was taken."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import cast

import pytest

from analyzer.timing.record import TimingSettings
from analyzer.timing.request import CPU, Reply
from analyzer.timing.running import devices
from analyzer.timing.running.devices import (
    Gpu,
    clocks_now,
    default_threads,
    device_name,
    environment,
    precision_notes,
    processor_clocks,
    processor_name,
    software,
)

CUDA = "CUDAExecutionProvider"
XEON = """processor\t: 0
model name\t: Intel(R) Xeon(R)   Processor @ 3.00GHz
cpu MHz\t\t: 1200.000
physical id\t: 0
core id\t\t: 0

processor\t: 1
model name\t: Intel(R) Xeon(R)   Processor @ 3.00GHz
cpu MHz\t\t: 2999.980
physical id\t: 0
core id\t\t: 0

processor\t: 2
model name\t: Intel(R) Xeon(R)   Processor @ 3.00GHz
cpu MHz\t\t: 2100.000
physical id\t: 0
core id\t\t: 1
"""
GPU = Gpu(
    "NVIDIA H100", "GPU-1", "0", "580.95.05", 80 << 30, (("SM", 1980.0), ("memory", 2619.0)), capability="9.0"
)


@pytest.fixture
def cpuinfo(tmp_path: Path) -> Path:
    path = tmp_path / "cpuinfo"
    path.write_text(XEON)
    return path


@pytest.fixture
def with_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "cuda_gpu", lambda number: GPU if number == 0 else None)


def test_a_processor_is_called_as_its_maker_does(cpuinfo: Path) -> None:
    assert processor_name(cpuinfo, "linux") == "Intel(R) Xeon(R) Processor @ 3.00GHz"


@pytest.mark.child
def test_a_processor_without_a_name_is_called_by_its_architecture(tmp_path: Path) -> None:
    assert processor_name(tmp_path / "absent", "linux")


@pytest.mark.child
def test_a_command_that_is_absent_leaves_the_architecture() -> None:
    assert processor_name(system="win32")


def test_this_processor_has_a_name() -> None:
    assert processor_name().isprintable()


def test_onnxruntime_takes_a_thread_for_each_core_not_for_each_of_its_threads(cpuinfo: Path) -> None:
    assert default_threads(cpuinfo) == 2


def test_threads_are_the_processors_where_cores_are_unknown(tmp_path: Path) -> None:
    assert default_threads(tmp_path / "absent") >= 1


def test_the_clock_is_that_of_the_fastest_core(cpuinfo: Path) -> None:
    assert processor_clocks(cpuinfo) == (("processor", 2999.98),)


def test_the_clock_is_read_from_the_governor_where_the_processor_does_not_show_it(tmp_path: Path) -> None:
    for core, khz in enumerate(["1400000", "2600000", "<unknown>"]):
        folder = tmp_path / f"cpu{core}" / "cpufreq"
        folder.mkdir(parents=True)
        (folder / "scaling_cur_freq").write_text(f"{khz}\n")

    assert processor_clocks(tmp_path / "absent", tmp_path) == (("processor", 2600.0),)


def test_a_clock_that_cannot_be_read_is_absent(tmp_path: Path) -> None:
    assert processor_clocks(tmp_path / "absent", tmp_path) == ()


@pytest.mark.usefixtures("with_gpu")
def test_a_gpu_gives_its_name_and_its_clocks() -> None:
    assert device_name(CUDA) == "NVIDIA H100"
    assert clocks_now(CUDA)[:2] == (("SM", 1980.0), ("memory", 2619.0))


@pytest.mark.usefixtures("with_gpu")
def test_a_gpu_that_is_not_told_apart_has_no_name_and_no_clocks() -> None:
    options = (("device_id", "1"),)

    assert device_name(CUDA, options) == "an Nvidia GPU"
    assert clocks_now(CUDA, options) == processor_clocks()


@pytest.mark.usefixtures("with_gpu")
def test_the_processor_is_the_device_of_the_cpu_provider() -> None:
    assert device_name(CPU) == processor_name()
    assert {clock for clock, _ in clocks_now(CPU)} <= {"processor"}


def test_the_device_of_other_providers_is_not_guessed() -> None:
    assert device_name("OpenVINOExecutionProvider").startswith("a device of this machine")


def runtime(**attributes: str) -> ModuleType:
    return cast(ModuleType, SimpleNamespace(__version__="1.31.1", **attributes))


def test_the_package_of_onnxruntime_is_named() -> None:
    versions = software(runtime(package_name="onnxruntime-openvino"), "OpenVINOExecutionProvider")

    assert versions[0] == ("onnxruntime-openvino", "1.31.1")
    assert [name for name, _ in versions] == ["onnxruntime-openvino", "Python"]


@pytest.mark.usefixtures("with_gpu")
def test_a_gpu_adds_cuda_the_driver_and_its_capability() -> None:
    versions = dict(software(runtime(package_name="onnxruntime-gpu", cuda_version="13.0"), CUDA))

    assert versions["CUDA of the build"] == "13.0"
    assert versions["driver"] == "580.95.05"
    assert versions["CUDA capability"] == "9.0"


@pytest.mark.parametrize(
    ("options", "capability", "dtypes", "is_on"),
    [
        ((), "8.0", {"FLOAT"}, True),
        ((("use_tf32", "1"),), "9.0", {"FLOAT", "INT64"}, True),
        ((("use_tf32", "0"),), "9.0", {"FLOAT"}, False),
        ((), "7.5", {"FLOAT"}, False),
        ((), "10.0", {"FLOAT"}, True),
        ((), "9.0", {"FLOAT16"}, False),
    ],
)
def test_tf32_is_reported_where_it_is_on(
    options: tuple[tuple[str, str], ...], capability: str, dtypes: set[str], is_on: bool
) -> None:
    notes = precision_notes(CUDA, options, (("CUDA capability", capability),), dtypes)

    assert any("TF32" in note for note in notes) == is_on


def test_a_processor_has_no_tf32() -> None:
    assert precision_notes(CPU, (), (), {"FLOAT"}) == ()


def test_an_option_for_fewer_bits_is_reported() -> None:
    options = (("trt_fp16_enable", "1"), ("trt_int8_enable", "False"))

    notes = precision_notes("TensorrtExecutionProvider", options, (), {"FLOAT"})

    assert notes == (
        "FLOAT16 is allowed by trt_fp16_enable: kernels may compute in it whatever the file stores",
    )


def test_an_environment_is_what_was_requested_and_what_the_process_reports() -> None:
    reply = Reply(
        runs=(),
        kernels=(),
        providers=(CUDA, CPU),
        optimized=None,
        load_ms=12.5,
        peak_rss_nbytes=1 << 30,
        messages=("a warning",),
        device="NVIDIA H100",
        versions=(("onnxruntime-gpu", "1.31.1"), ("CUDA capability", "9.0")),
        clocks=(("SM", 1980.0),),
    )

    found = environment(TimingSettings("cuda", threads=3), reply, CUDA, [("FLOAT", 1.0)])

    assert (found.device, found.providers, found.threads) == ("NVIDIA H100", (CUDA, CPU), 3)
    assert (found.versions, found.clocks) == (reply.versions, reply.clocks)
    assert (found.load_ms, found.peak_rss_nbytes) == (12.5, 1 << 30)
    assert found.messages[0] == "a warning"
    assert "TF32" in found.messages[1]
    assert found.cores >= 1
