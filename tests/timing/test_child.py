import io
import json
import os
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import pytest
from jobs import answered, job

from analyzer.errors import TimingError
from analyzer.process.child import read_frame
from analyzer.timing.request import JOB, LOG, REPLY, Job, Raised, Reply, Schedule, dump_job, load_answer

pytestmark = pytest.mark.time
ROOT = Path(__file__).parents[2]


def test_both_measurements_come_of_one_session(tmp_path: Path) -> None:
    reply, stages = answered(job(tmp_path), tmp_path)
    (run,) = reply.runs

    assert stages == ["starting onnxruntime", "loading", "profiling", "reading the profile", "measuring"]
    assert [kernel.name for kernel in reply.kernels] == ["mm", "act"]
    assert {kernel.provider for kernel in reply.kernels} == {"CPUExecutionProvider"}
    assert (len(run.latency_ns), len(run.profiled_ns), len(run.kernels_us)) == (4, 4, 4)
    assert reply.providers == ("CPUExecutionProvider",)
    assert reply.load_ms > 0
    assert reply.optimized is not None
    assert Path(reply.optimized).parent == tmp_path


def test_kernels_take_no_longer_than_the_runs_they_are_of(tmp_path: Path) -> None:
    reply, _ = answered(job(tmp_path, 512, 64), tmp_path)

    for run in reply.runs:
        for whole, kernels in zip(run.profiled_ns, run.kernels_us, strict=True):
            assert sum(kernels) <= whole / 1000 + len(kernels)  # each time is rounded to a microsecond


def test_the_profile_is_gone_when_it_has_been_read(tmp_path: Path) -> None:
    answered(job(tmp_path), tmp_path)

    assert not list(tmp_path.glob("profile*"))


def test_a_job_may_be_for_one_of_the_two_measurements(tmp_path: Path) -> None:
    plain, _ = answered(job(tmp_path, profiled=False), tmp_path)
    profiled, _ = answered(job(tmp_path, plain=False), tmp_path)

    assert [(len(run.latency_ns), len(run.profiled_ns)) for run in plain.runs] == [(4, 0)]
    assert (plain.kernels, plain.optimized) == ((), None)
    assert [(len(run.latency_ns), len(run.profiled_ns)) for run in profiled.runs] == [(0, 4)]
    assert len(profiled.kernels) == 2
    assert profiled.optimized is not None


def test_an_onnxruntime_that_is_too_old_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import onnxruntime

    monkeypatch.setattr(onnxruntime, "__version__", "1.22.1")
    with pytest.raises(TimingError, match=r"onnxruntime 1\.22\.1 is too old, as 1\.23 is the oldest"):
        answered(job(tmp_path), tmp_path)


def serve(job: Job, folder: Path, before: str = "") -> subprocess.CompletedProcess[bytes]:
    """Run the child process as it is started, after the code in `before`."""
    (folder / JOB).write_text(dump_job(job))
    program = f"{before}\nfrom analyzer.timing.running.child import serve; serve({str(folder)!r})"
    read, write = os.pipe()
    try:
        with (folder / LOG).open("wb") as log:
            return subprocess.run(
                [sys.executable, "-c", program],
                stdin=read,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=ROOT,
                timeout=60,
            )
    finally:
        os.close(read)
        os.close(write)


NOISE = """
import sys
class Noisy:
    def find_spec(self, name, path=None, target=None):
        if name == "onnxruntime":
            print("noise", flush=True)
sys.meta_path.insert(0, Noisy())
"""
"""Code for a library that prints while onnxruntime is loaded."""


def test_stdout_has_the_stages_and_nothing_else(tmp_path: Path) -> None:
    output = io.BytesIO(serve(job(tmp_path), tmp_path, NOISE).stdout)
    reply = load_answer((tmp_path / REPLY).read_text())

    assert [json.loads(message) for message in iter(partial(read_frame, output), None)][-1] == "measuring"
    assert isinstance(reply, Reply)
    assert len(reply.runs[0].latency_ns) == 4


def test_what_onnxruntime_raises_is_in_the_reply(tmp_path: Path) -> None:
    broken = job(tmp_path)
    Path(broken.request.model).write_bytes(b"no model")
    process = serve(broken, tmp_path)

    match load_answer((tmp_path / REPLY).read_text()):
        case Raised(text=text, version=version):
            assert "Protobuf parsing failed" in text
            assert version
        case other:
            pytest.fail(f"{other}")
    assert process.returncode == 0


def test_what_is_refused_is_in_the_reply(tmp_path: Path) -> None:
    serve(job(tmp_path), tmp_path, "import onnxruntime; onnxruntime.__version__ = '1.9.0'")

    assert str(load_answer((tmp_path / REPLY).read_text())).startswith("onnxruntime 1.9.0 is too old")


def test_it_ends_when_the_process_that_started_it_is_gone(tmp_path: Path) -> None:
    endless = job(tmp_path, schedule=Schedule(runs=10**9))
    (tmp_path / JOB).write_text(dump_job(endless))
    program = f"from analyzer.timing.running.child import serve; serve({str(tmp_path)!r})"
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    )
    assert process.stdin is not None
    assert process.stdout is not None
    late = threading.Timer(60, process.kill)
    late.start()
    with process.stdin, process.stdout:
        while read_frame(process.stdout) != b'"profiling"':
            assert process.poll() is None
        process.stdin.close()

        assert process.wait() == 1
    late.cancel()
