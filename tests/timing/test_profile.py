"""onnxruntime's profile -> kernels and their times."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from analyzer.errors import TimingError
from analyzer.timing.request import Kernel
from analyzer.timing.running.cupti import Activity
from analyzer.timing.running.profile import Profile, read_profile

CPU = "CPUExecutionProvider"


def node(name: str, op_type: str, start: int, time: int, index: int = 0, **more: str) -> dict[str, Any]:
    arguments = {"op_name": op_type, "provider": CPU, "node_index": str(index), **more}
    return {"cat": "Node", "dur": time, "ts": start, "name": f"{name}_kernel_time", "args": arguments}


def end_run(start: int, time: int) -> dict[str, Any]:
    return {"cat": "Session", "dur": time, "ts": start, "name": "model_run", "args": {}}


def profile(folder: Path, *events: dict[str, Any]) -> Profile:
    path = folder / "profile.json"
    path.write_text("[\n" + ",\n".join(map(json.dumps, events)) + "\n]\n", encoding="utf-8")
    return read_profile(path)


def names(found: Profile) -> list[str]:
    return [kernel.name for kernel in found.kernels]


def test_each_run_has_the_time_of_each_kernel(tmp_path: Path) -> None:
    found = profile(
        tmp_path,
        node("a", "Add", 10, 5, 0),
        node("b", "Mul", 16, 7, 1),
        end_run(9, 20),
        node("a", "Add", 40, 6, 0),
        node("b", "Mul", 47, 8, 1),
        end_run(39, 20),
    )

    assert found.kernels == (Kernel("a", "Add", CPU, 0), Kernel("b", "Mul", CPU, 1))
    assert found.runs == ((5, 7), (6, 8))


def test_kernels_within_a_nested_graph_count_once_with_the_node_that_holds_it(tmp_path: Path) -> None:
    found = profile(
        tmp_path,
        node("before", "Add", 10, 5, 0),
        node("inner", "Relu", 22, 3, 0),
        node("innermost", "Exp", 31, 2, 0),
        node("inner_if", "If", 30, 6, 1),
        node("loop", "Loop", 20, 20, 1),
        node("after", "Mul", 41, 4, 2),
        end_run(9, 40),
    )

    assert names(found) == ["before", "loop", "after"]
    assert found.runs == ((5, 20, 4),)


def test_a_kernel_in_a_nested_graph_that_starts_with_its_holder_is_still_within_it(tmp_path: Path) -> None:
    found = profile(tmp_path, node("inner", "Relu", 20, 3), node("holder", "If", 20, 5), end_run(19, 9))

    assert names(found) == ["holder"]


def test_a_kernel_that_a_run_leaves_out_took_no_time_in_it(tmp_path: Path) -> None:
    found = profile(tmp_path, node("a", "Add", 1, 5), end_run(0, 9), node("b", "Add", 11, 6), end_run(10, 9))

    assert found.runs == ((5, 0), (0, 6))


def test_a_run_that_was_not_recorded_to_its_end_is_left_out(tmp_path: Path) -> None:
    found = profile(tmp_path, node("a", "Add", 1, 5), end_run(0, 9), node("a", "Add", 11, 6))

    assert found.runs == ((5,),)


def test_waits_around_a_kernel_are_no_kernels(tmp_path: Path) -> None:
    fence = node("a", "Add", 1, 100) | {"name": "a_fence_before"}

    found = profile(tmp_path, fence, node("a", "Add", 101, 5), end_run(0, 110))

    assert found.runs == ((5,),)


def test_the_arena_s_peak_is_the_highest_of_the_run(tmp_path: Path) -> None:
    found = profile(
        tmp_path,
        node("a", "Add", 1, 5, mem_in_use_peak="700"),
        node("b", "Add", 7, 5, mem_in_use_peak="900"),
        end_run(0, 20),
        node("a", "Add", 31, 5),
        end_run(30, 20),
    )

    assert found.held_nbytes == (900, None)


def test_what_a_device_says_of_its_kernels_is_their_time() -> None:
    found = read_profile(Path(__file__).with_name("cuda_profile.json"))

    assert found.clock == "device"
    times = {kernel.name: time for kernel, time in zip(found.kernels, found.runs[0], strict=True)}
    assert times["embed"] == 4


def test_a_device_s_kernels_within_a_nested_graph_are_its_holder_s(tmp_path: Path) -> None:
    gpu = {"provider": "CUDAExecutionProvider"}
    on_device = {
        "cat": "Kernel",
        "dur": 7,
        "ts": -1,
        "name": "f",
        "args": {"parent_name": "inner_kernel_time"},
    }

    found = profile(
        tmp_path,
        node("inner", "Relu", 22, 90, **gpu),
        on_device,
        node("holder", "Scan", 20, 100, **gpu),
        node("host", "Shape", 130, 2),
        end_run(9, 140),
    )

    assert names(found) == ["holder", "host"]
    assert found.runs == ((7, 2),)


def test_of_several_devices_the_arena_is_that_of_the_one_that_is_not_the_processor(tmp_path: Path) -> None:
    found = profile(
        tmp_path,
        node("a", "Add", 1, 5, mem_in_use_peak="700", provider="CUDAExecutionProvider"),
        node("b", "Shape", 7, 5, mem_in_use_peak="900"),
        end_run(0, 20),
    )

    assert found.held_nbytes == (700,)


def test_a_profile_in_the_order_in_which_events_begin_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TimingError, match="another order"):
        profile(tmp_path, end_run(0, 9), node("a", "Add", 1, 5), end_run(10, 9), node("a", "Add", 11, 5))


def test_a_name_with_quotes_and_line_ends_is_read_as_it_is(tmp_path: Path) -> None:
    hostile = 'x","dur" :99\n\x1b[2J'

    found = profile(tmp_path, node(hostile, "Add", 1, 5), end_run(0, 9))

    assert names(found) == [hostile]
    assert found.runs == ((5,),)


@pytest.mark.parametrize("text", ['{"cat": "Node"}', '{"cat": ', '{"cat": "Node", "name": 3, "args": {}}'])
def test_what_is_no_profile_is_reported(tmp_path: Path, text: str) -> None:
    path = tmp_path / "profile.json"
    path.write_text(text)

    with pytest.raises(TimingError, match="cannot be read"):
        read_profile(path)


# CUPTI's times of the device


CUDA = {"provider": "CUDAExecutionProvider"}


def traced(folder: Path, activities: list[Activity], *events: dict[str, Any]) -> Profile:
    path = folder / "profile.json"
    path.write_text("[\n" + ",\n".join(map(json.dumps, events)) + "\n]\n", encoding="utf-8")
    return read_profile(path, sorted(activities))


def times(found: Profile, run: int = 0) -> dict[str, float]:
    return {kernel.name: time for kernel, time in zip(found.kernels, found.runs[run], strict=True)}


def test_what_a_call_launched_is_its_time_when_the_device_does_it(tmp_path: Path) -> None:
    found = traced(
        tmp_path,
        [
            Activity(12, 15, 16, 40),
            Activity(22, 25, 41, 45),
            Activity(112, 115, 120, 140),
            Activity(122, 125, 141, 149),
        ],
        node("a", "MatMul", 10, 8, **CUDA),
        node("b", "Relu", 20, 8, **CUDA),
        end_run(9, 45),
        node("a", "MatMul", 110, 8, **CUDA),
        node("b", "Relu", 120, 8, **CUDA),
        end_run(109, 45),
    )

    assert found.clock == "device"
    assert (times(found), times(found, 1)) == ({"a": 24, "b": 4}, {"a": 20, "b": 8})
    assert found.unassigned_share == 0


def test_the_processor_has_the_time_in_which_the_device_rests(tmp_path: Path) -> None:
    found = traced(
        tmp_path,
        [Activity(12, 15, 16, 30), Activity(42, 44, 45, 50)],
        node("a", "MatMul", 10, 8, **CUDA),
        node("host", "Shape", 20, 20),
        node("b", "Relu", 41, 5, **CUDA),
        end_run(9, 45),
    )

    assert times(found) == {"a": 14, "host": 10, "b": 5}


def test_what_runs_side_by_side_is_not_counted_twice(tmp_path: Path) -> None:
    found = traced(
        tmp_path,
        [Activity(12, 15, 16, 30), Activity(22, 24, 20, 36)],
        node("a", "MatMul", 10, 8, **CUDA),
        node("b", "MatMul", 20, 8, **CUDA),
        end_run(9, 45),
    )

    assert times(found) == {"a": 14, "b": 6}


def test_a_call_that_begins_in_the_microsecond_in_which_another_ends_has_its_own(tmp_path: Path) -> None:
    found = traced(
        tmp_path,
        [Activity(16.5, 18.2, 20, 25), Activity(18.9, 20.6, 25, 32)],
        node("a", "MatMul", 10, 8, **CUDA),
        node("b", "MatMul", 18, 8, **CUDA),
        end_run(9, 45),
    )

    assert times(found) == {"a": 5, "b": 7}


def test_a_nested_graph_has_what_its_nodes_launched(tmp_path: Path) -> None:
    found = traced(
        tmp_path,
        [Activity(22, 24, 25, 29), Activity(35, 37, 38, 40)],
        node("inner", "Relu", 21, 6, **CUDA),
        node("counter", "Add", 30, 3),
        node("loop", "Loop", 20, 30, **CUDA),
        end_run(9, 50),
    )

    assert times(found) == {"loop": 4 + 3 + 2}


def test_what_no_kernel_launched_is_reported_as_unassigned(tmp_path: Path) -> None:
    found = traced(
        tmp_path,
        [Activity(12, 15, 16, 24), Activity(40, 42, 43, 45), Activity(90, 92, 93, 99)],
        node("a", "MatMul", 10, 8, **CUDA),
        end_run(9, 45),
    )

    assert times(found) == {"a": 8}
    assert found.unassigned_share == pytest.approx(2 / 10)


def test_times_sum_up_to_no_more_than_the_run(tmp_path: Path) -> None:
    found = traced(
        tmp_path,
        [Activity(12, 15, 5, 300)],
        node("a", "MatMul", 10, 8, **CUDA),
        node("host", "Shape", 20, 20),
        end_run(9, 45),
    )

    assert sum(times(found).values()) <= 45 + 2


def test_a_run_of_resnet_50_on_an_h200_has_the_device_s_time_in_its_nodes() -> None:
    """A profile of onnxruntime-gpu 1.31.1 and CUPTI 13.0's records of the same run: 229 activities for 118 nodes."""
    place = Path(__file__).parent
    activities = [
        Activity(*row) for row in json.loads((place / "cuda_deeds.json").read_text(encoding="utf-8"))
    ]
    found = read_profile(place / "cuda_traced.json", activities)
    ((*took,),) = found.runs

    assert found.unassigned_share == 0
    assert len(activities) == 229
    assert math.fsum(took) == pytest.approx(
        math.fsum(activity.end - activity.start for activity in activities), abs=0.01
    )
    assert math.fsum(took) == pytest.approx(804.8, abs=0.1)
    assert all(
        time > 0
        for time, kernel in zip(took, found.kernels, strict=True)
        if kernel.op_type in {"Conv", "Gemm"}
    )
    slowest = max(zip(took, found.kernels, strict=True), key=lambda row: row[0])[1]
    assert slowest.op_type == "Conv"
