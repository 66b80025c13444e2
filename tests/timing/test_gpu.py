"""The GPU of a process, from `nvidia-smi`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from analyzer.timing.running.devices import CommandRunner, Gpu, cuda_gpu, library_versions, run_command

H100 = "0, GPU-aaaa-1, 580.95.05, 81559, 1980, 2619, Disabled, 9.0, NVIDIA H100 80GB HBM3"
SECOND = "1, GPU-bbbb-2, 580.95.05, 81559, 345, 2619, Disabled, 9.0, NVIDIA H100 80GB HBM3"
T4 = "1, GPU-cccc-3, 580.95.05, 15360, 300, 405, [N/A], 7.5, Tesla T4"
SPLIT = "0, GPU-dddd-4, 580.95.05, 40960, 1410, 1215, Enabled, 8.0, NVIDIA A100-SXM4-40GB"
PARTS = """GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-dddd-4)
  MIG 3g.20gb     Device  0: (UUID: MIG-1111)
  MIG 1g.5gb      Device  1: (UUID: MIG-2222)
"""


def nvidia_smi(*rows: str, listing: str = "", refuses: str = "nothing") -> CommandRunner:
    """Return an `nvidia-smi` that knows these GPUs and refuses queries of one field."""

    def answer(command: Sequence[str]) -> str | None:
        if command[1] == "-L":
            return listing
        return None if refuses in command[1] else "".join(f"{row}\n" for row in rows)

    return answer


def name(gpu: Gpu | None) -> str | None:
    return gpu and gpu.name


def test_a_gpu_has_a_name_a_driver_memory_and_clocks() -> None:
    gpu = cuda_gpu(0, {}, nvidia_smi(H100))

    assert gpu == Gpu(
        name="NVIDIA H100 80GB HBM3",
        uuid="GPU-aaaa-1",
        index="0",
        driver="580.95.05",
        nbytes=81559 << 20,
        clocks=(("SM", 1980.0), ("memory", 2619.0)),
        capability="9.0",
    )


def test_a_machine_without_nvidia_smi_has_no_gpu() -> None:
    assert cuda_gpu(0, {}, lambda _: None) is None


def test_an_old_driver_does_without_the_capability() -> None:
    row = "0, GPU-aaaa-1, 470.82.01, 15109, 300, 405, [N/A], Tesla T4"

    gpu = cuda_gpu(0, {}, nvidia_smi(row, refuses="compute_cap"))

    assert gpu is not None
    assert (gpu.name, gpu.capability) == ("Tesla T4", None)


def test_what_the_driver_does_not_report_is_left_out() -> None:
    row = (
        "0, GPU-a, [N/A], [Not Supported], ERR!, [Insufficient Permissions], [N/A], [N/A], NVIDIA GB10, rev A"
    )

    gpu = cuda_gpu(0, {}, nvidia_smi(row))

    assert gpu is not None
    assert gpu.name == "NVIDIA GB10, rev A"
    assert (gpu.driver, gpu.nbytes, gpu.clocks, gpu.capability) == (None, None, (), None)


@pytest.mark.parametrize("output", ["", "No devices were found\n", "Unable to determine the device handle\n"])
def test_an_answer_without_rows_is_no_gpu(output: str) -> None:
    assert cuda_gpu(0, {}, lambda _: output) is None


@pytest.mark.parametrize(
    ("visible", "device_id", "uuid"),
    [
        ("1", 0, "GPU-bbbb-2"),
        ("1,0", 1, "GPU-aaaa-1"),
        ("GPU-bbbb-2", 0, "GPU-bbbb-2"),
        ("GPU-aa", 0, "GPU-aaaa-1"),
        ("GPU-", 0, None),
        ("0", 1, None),
        ("", 0, None),
        ("-1", 0, None),
        ("no", 0, None),
    ],
)
def test_the_variable_says_which_gpus_there_are(visible: str, device_id: int, uuid: str | None) -> None:
    gpu = cuda_gpu(device_id, {"CUDA_VISIBLE_DEVICES": visible}, nvidia_smi(H100, SECOND))

    assert (gpu and gpu.uuid) == uuid


def test_a_number_is_not_used_where_gpus_differ_and_cuda_has_its_own_order() -> None:
    both = nvidia_smi(H100, T4)

    assert cuda_gpu(0, {}, both) is None
    assert name(cuda_gpu(1, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, both)) == "Tesla T4"
    assert name(cuda_gpu(0, {"CUDA_VISIBLE_DEVICES": "GPU-cccc-3"}, both)) == "Tesla T4"


def test_a_split_gpu_is_called_by_the_part_that_a_process_gets() -> None:
    split = nvidia_smi(SPLIT, listing=PARTS)

    first = cuda_gpu(0, {}, split)
    second = cuda_gpu(0, {"CUDA_VISIBLE_DEVICES": "MIG-2222"}, split)

    assert name(first) == "NVIDIA A100-SXM4-40GB MIG 3g.20gb"
    assert name(second) == "NVIDIA A100-SXM4-40GB MIG 1g.5gb"
    assert first is not None
    assert first.nbytes is None  # the whole GPU's memory is not its own


def test_a_part_that_is_not_there_is_no_gpu() -> None:
    assert cuda_gpu(0, {"CUDA_VISIBLE_DEVICES": "MIG-9999"}, nvidia_smi(SPLIT, listing=PARTS)) is None


def program(folder: Path, text: str) -> str:
    path = folder / "nvidia-smi"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.child
def test_a_command_is_answered_by_what_it_prints(tmp_path: Path) -> None:
    assert run_command((program(tmp_path, 'echo "$1"'), "said")) == "said\n"


@pytest.mark.child
def test_a_command_that_is_absent_or_fails_answers_nothing(tmp_path: Path) -> None:
    assert run_command((str(tmp_path / "absent"),)) is None
    assert run_command((program(tmp_path, "echo half; exit 9"),)) is None


@pytest.mark.child
def test_a_command_that_hangs_is_left_behind(tmp_path: Path) -> None:
    start = time.monotonic()

    assert run_command((program(tmp_path, "exec sleep 60"),), seconds=0.1) is None
    assert time.monotonic() - start < 30


def test_a_process_without_cuda_has_no_libraries_of_it(tmp_path: Path) -> None:
    assert library_versions() == ()
    assert library_versions(tmp_path / "absent") == ()


def test_a_library_that_cannot_be_queried_is_left_out(tmp_path: Path) -> None:
    maps = tmp_path / "maps"
    maps.write_text(
        "7f0-7f1 r-xp 00000000 00:00 0 [vdso]\n7f2-7f3 r-xp 0 08:01 42   /opt/my libs/libcudnn.so.9\n"
    )

    assert library_versions(maps) == ()
