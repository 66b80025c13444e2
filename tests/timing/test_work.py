from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jobs import SHORT, answered, job
from models import save, text_model

from analyzer.errors import TimingError
from analyzer.process.memory import own_nbytes
from analyzer.timing.request import Feed, Fill, Job, Request, Schedule
from analyzer.timing.running import child
from analyzer.timing.running.profile import read_profile

pytestmark = pytest.mark.time


# in turns


def test_in_turns_there_are_a_session_that_profiles_and_one_that_never_does(tmp_path: Path) -> None:
    reply, stages = answered(job(tmp_path, 3, 5, in_turns=True), tmp_path)

    assert reply.order == "in turns"
    assert stages == [
        "starting onnxruntime",
        "loading",
        "warming up point 1 of 2",
        "warming up point 2 of 2",
        "loading",
        "measuring",
        "measuring, 2 of 2 points done",
        "reading the profile",
    ]
    for run in reply.runs:
        assert (len(run.latency_ns), len(run.profiled_ns), len(run.kernels_us)) == (4, 4, 4)
    assert [kernel.name for kernel in reply.kernels] == ["mm", "act"]
    assert reply.optimized is not None
    assert reply.load_ms > 0
    assert not list(tmp_path.glob("profile*"))


def test_in_turns_each_point_has_the_kernels_of_its_own_runs(tmp_path: Path) -> None:
    reply, _ = answered(job(tmp_path, 1, 900, 2, schedule=Schedule(runs=12), in_turns=True), tmp_path)
    small, large, other = (sorted(map(sum, run.kernels_us)) for run in reply.runs)

    assert len(small) == len(large) == len(other) == 12
    assert max(small[6], other[6]) < large[0]
    for run in reply.runs:
        for whole, kernels in zip(run.profiled_ns, run.kernels_us, strict=True):
            assert sum(kernels) <= whole / 1000 + len(kernels)


def test_without_memory_for_a_second_session_one_does_both(tmp_path: Path) -> None:
    now = own_nbytes(os.getpid())
    if now is None:
        pytest.skip("this system does not tell how much memory a process has")
    task = child.Work(job(tmp_path, in_turns=True, nbytes=2 * now + (64 << 20)), tmp_path, [].append)
    tight = replace(task.job, nbytes=int(1.5 * now))

    assert task._has_room()
    assert not child.Work(tight, tmp_path, [].append)._has_room()


def test_one_session_does_both_where_the_second_has_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child.Work, "_has_room", lambda self: False)
    reply, stages = answered(job(tmp_path, in_turns=True), tmp_path)

    assert reply.order == "one after the other"
    assert stages[-3:] == ["profiling", "reading the profile", "measuring"]
    assert [(len(run.latency_ns), len(run.kernels_us)) for run in reply.runs] == [(4, 4)]


def test_in_turns_runs_that_the_profile_lost_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule, crowded = Schedule(runs=30, warmup=1), Crowded(60)
    monkeypatch.setattr(child, "read_profile", crowded.read)
    reply, _ = answered(job(tmp_path, 1, 2, schedule=schedule, in_turns=True), tmp_path)

    assert reply.order == "in turns"
    for run in reply.runs:
        assert 2 <= len(run.profiled_ns) == len(run.kernels_us) < 30
        assert len(run.latency_ns) == 30


def test_a_profile_that_has_lost_nearly_all_is_made_again_by_one_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "read_profile", Crowded(3, 100).read)
    reply, _ = answered(job(tmp_path, in_turns=True), tmp_path)

    assert reply.order == "one after the other"
    assert [(len(run.latency_ns), len(run.kernels_us)) for run in reply.runs] == [(4, 4)]


# one session after the other


def test_each_point_has_the_runs_that_are_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profiles = []
    monkeypatch.setattr(
        child, "read_profile", lambda path, _: profiles.append(read_profile(path)) or profiles[-1]
    )
    reply, stages = answered(job(tmp_path, 1, 700, 2), tmp_path)
    (profile,) = profiles

    assert len(profile.runs) == 3 * (2 + 4)
    assert [run.kernels_us for run in reply.runs] == [
        profile.runs[2:6],
        profile.runs[8:12],
        profile.runs[14:18],
    ]
    assert "profiling point 2 of 3" in stages
    assert "measuring point 3 of 3" in stages


def test_inputs_and_outputs_can_be_bound_to_a_device(tmp_path: Path) -> None:
    reply, _ = answered(job(tmp_path, 3, 5, device="cpu"), tmp_path)

    assert [len(run.latency_ns) for run in reply.runs] == [4, 4]
    assert [len(run.kernels_us) for run in reply.runs] == [4, 4]


def test_texts_are_not_bound(tmp_path: Path) -> None:
    text = "g (string[2] s, float[2] x) => (string[2] t, float[2] y) { t = Identity(s) y = Neg(x) }"
    model = save(tmp_path, text_model(text))
    inputs = Feed("s", "STRING", (2,), Fill.TEXT), Feed("x", "FLOAT", (2,), Fill.UNIFORM, 0, 1)
    request = Request(str(model), (inputs,), "CPUExecutionProvider", str(tmp_path), schedule=SHORT)
    reply, _ = answered(Job(request, device="cpu"), tmp_path)

    assert len(reply.runs[0].latency_ns) == 4


class Crowded:
    """Profile reader with room for a limited number of runs."""

    def __init__(self, *room: int) -> None:
        self.room = list(room)

    def read(self, path: Path, _: object) -> Any:
        profile, room = read_profile(path), self.room.pop(0)
        return replace(profile, runs=profile.runs[:room], held_nbytes=profile.held_nbytes[:room])


def test_a_profile_without_room_for_all_runs_is_made_again_with_fewer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "read_profile", Crowded(25, 100).read)
    reply, stages = answered(job(tmp_path, 1, 2, schedule=Schedule(runs=30, warmup=2)), tmp_path)

    assert [len(run.profiled_ns) for run in reply.runs] == [
        5,
        5,
    ]  # a quarter of 25 each, and one run of it to warm up
    assert [len(run.kernels_us) for run in reply.runs] == [5, 5]
    assert [len(run.latency_ns) for run in reply.runs] == [30, 30]
    assert stages.count("loading") == 2


@pytest.mark.parametrize("room", [(0, 0), (3, 0), (20, 1)])
def test_a_run_that_no_profile_has_room_for_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: tuple[int, int]
) -> None:
    monkeypatch.setattr(child, "read_profile", Crowded(*room).read)
    with pytest.raises(TimingError, match=r"onnxruntime's profile, .* has room for .* runs only"):
        answered(job(tmp_path, 1, 2, schedule=Schedule(runs=30)), tmp_path)
