import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from models import save, text_model
from onnx import helper

from analyzer.errors import MissingExtraError, TimingError
from analyzer.process.child import Limits
from analyzer.timing.request import Feed, Fill, Kernel, Reply, Request, Run, Schedule
from analyzer.timing.running import isolated
from analyzer.timing.running.isolated import run_isolated

pytestmark = pytest.mark.time
ROOT = Path(__file__).parents[2]
POSIX = pytest.mark.skipif(os.name != "posix", reason="signals")
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="as Linux counts memory")

RELU = "g (float[2,4] x) => (float[2,4] y) { [act] y = Relu(x) }"
ENDLESS = """
g (float[2] x) => (float[2] y)
{
    most = Constant <value = int64 {9223372036854775807}> ()
    go = Constant <value = bool {1}> ()
    [loop] y = Loop (most, go, x) <body = body (int64 i, bool before, float[2] a) => (bool after, float[2] b) {
        after = Identity(before)
        b = Neg(a)
    }>
}
"""
BOMB = "g (int64[1] s) => (float[n] y) { [fill] z = ConstantOfShape(s) [minus] y = Neg(z) }"
X = Feed("x", "FLOAT", (2, 4), Fill.UNIFORM, -1, 1)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Folder of a request's files, in which only the optimized graph may remain."""
    path = tmp_path / "folder"
    path.mkdir()
    yield path
    assert {left.name for left in path.iterdir()} <= {"optimized.onnx"}


def request(folder: Path, model: str | onnx.ModelProto, *feeds: Feed, **changes: Any) -> Request:
    path = save(folder.parent, text_model(model) if isinstance(model, str) else model)
    schedule = Schedule(runs=3, warmup=1)
    fields: dict[str, Any] = {"points": (feeds,), "provider": "CPUExecutionProvider", "schedule": schedule}
    return Request(str(path), folder=str(folder), **{**fields, **changes})


def refused(job: Request, limits: Limits = Limits(seconds=60)) -> str:  # noqa: B008 - it is frozen
    with pytest.raises(TimingError) as caught:
        run_isolated(job, limits)
    return str(caught.value).removeprefix(f"{job.model}: ")


def test_a_model_is_measured_in_another_process(folder: Path) -> None:
    stages: list[str] = []
    reply = run_isolated(request(folder, RELU, X, threads=1), Limits(), stages.append)

    assert stages[:2] == ["starting onnxruntime", "loading"]
    assert stages[-2:] == ["measuring, 1 of 1 points done", "reading the profile"]
    assert reply.order == "in turns"
    assert [kernel.name for kernel in reply.kernels] == ["act"]
    assert [len(run.latency_ns) for run in reply.runs] == [3]
    assert [len(run.kernels_us) for run in reply.runs] == [3]
    assert reply.peak_rss_nbytes is None or reply.peak_rss_nbytes > 1 << 20
    assert reply.load_ms > 0


def test_the_graph_that_ran_stays_in_the_folder(folder: Path) -> None:
    reply = run_isolated(request(folder, RELU, X), Limits())

    assert reply.optimized is not None
    assert [node.name for node in onnx.load(reply.optimized).graph.node] == ["act"]
    assert Path(reply.optimized).parent == folder.resolve()


def test_points_are_measured_in_their_order(folder: Path) -> None:
    points = tuple((replace(X, shape=(2, size)),) for size in (4, 8))
    stages: list[str] = []
    model = RELU.replace("[2,4]", "[2,n]")
    reply = run_isolated(request(folder, model, points=points), Limits(), stages.append)

    assert len(reply.runs) == 2
    assert "warming up point 2 of 2" in stages


def test_files_too_large_to_be_loaded_twice_are_measured_one_after_the_other(folder: Path) -> None:
    stages: list[str] = []
    reply = run_isolated(request(folder, RELU, X, file_nbytes=1 << 60), Limits(), stages.append)

    assert stages == ["starting onnxruntime", "loading", "profiling", "reading the profile", "measuring"]
    assert reply.order == "one after the other"
    assert [(len(run.latency_ns), len(run.kernels_us)) for run in reply.runs] == [(3, 3)]


def test_where_memory_is_unknown_only_small_models_are_loaded_twice(folder: Path) -> None:
    small, large = (request(folder, RELU, X, file_nbytes=size) for size in (1 << 30, (1 << 30) + 1))

    assert isolated._has_room_for_two(small, None)
    assert not isolated._has_room_for_two(large, None)
    assert not isolated._has_room_for_two(replace(small, provider="CUDAExecutionProvider"), None)


def test_onnxruntime_reports_nothing_and_leaves_nothing(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    for variable in ("HOME", "XDG_CACHE_HOME", "TMPDIR"):
        (home / variable).mkdir(parents=True)
        monkeypatch.setenv(variable, str(home / variable))
    monkeypatch.delenv("ORT_DISABLE_TELEMETRY", raising=False)

    run_isolated(request(folder, RELU, X), Limits())

    assert [path for path in home.rglob("*") if path.parent != home] == []


def script(folder: Path, model: Path, *, out: Path, runs: int = 3) -> str:
    return f"""
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # which is ignored where the tests run in the background
sys.path.insert(0, {str(ROOT)!r})
from analyzer.process.child import Limits
from analyzer.timing.running.isolated import run_isolated
from analyzer.timing.request import Feed, Fill, Request, Schedule
feed = Feed("x", "FLOAT", (2, 4), Fill.UNIFORM, -1, 1)
request = Request({str(model)!r}, ((feed,),), "CPUExecutionProvider", {str(folder)!r}, schedule=Schedule(runs={runs}))
reply = run_isolated(request, Limits(seconds=60), lambda stage: print(stage, flush=True))
with open({str(out)!r}, "a") as file:
    file.write(str(len(reply.runs[0].latency_ns)))
"""


def test_a_script_without_a_main_guard_is_not_run_again(folder: Path, tmp_path: Path) -> None:
    model = save(tmp_path, text_model(RELU))
    path, out = tmp_path / "script.py", tmp_path / "out"
    path.write_text(script(folder, model, out=out))
    subprocess.run([sys.executable, str(path)], check=True, cwd=tmp_path, capture_output=True, timeout=60)

    assert out.read_text() == "3"


def test_what_the_user_set_for_python_is_not_applied_twice(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "json.py").write_text("raise ImportError('not that one')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)

    assert run_isolated(request(folder, RELU, X), Limits()).runs


@pytest.mark.parametrize("name", ["a\x1b[2J.onnx", "ä 漢字 'q\".onnx"])
def test_a_model_may_have_any_name(folder: Path, name: str) -> None:
    job = request(folder, RELU, X)
    try:
        path = Path(job.model).rename(Path(job.model).with_name(name))
    except OSError:
        pytest.skip("the file system has no such names")
    assert run_isolated(replace(job, model=str(path)), Limits()).runs


def test_a_path_that_is_no_text_is_reported_in_a_sentence(folder: Path) -> None:
    with pytest.raises(TimingError) as caught:
        run_isolated(Request("/a\udcff.onnx", ((),), "CPUExecutionProvider", str(folder)), Limits())

    assert str(caught.value) == (
        "/a\\udcff.onnx: onnxruntime opens no file whose path is not valid UTF-8; rename it"
    )


@pytest.mark.parametrize(("provider", "extra"), [("CPU", "time"), ("CUDA", "time-gpu")])
def test_an_onnxruntime_that_is_not_installed_is_an_extra(
    folder: Path, monkeypatch: pytest.MonkeyPatch, provider: str, extra: str
) -> None:
    hidden = "import sys; sys.modules['onnxruntime'] = None; "
    monkeypatch.setattr(isolated, "_START", hidden + isolated._START)
    with pytest.raises(MissingExtraError) as caught:
        run_isolated(request(folder, RELU, X, provider=f"{provider}ExecutionProvider"), Limits())

    assert caught.value.extra == extra


def test_a_custom_operator_without_its_library_is_reported_in_a_sentence(folder: Path) -> None:
    model = text_model(
        '<ir_version: 10, opset_import: ["" : 18, "com.acme" : 1]> '
        "g (float[2,4] x) => (float[2,4] y) { [foo] y = com.acme.Foo(x) }"
    )
    message = refused(request(folder, model, X))

    assert message.startswith('node "foo": onnxruntime ')
    assert message.endswith(" has no operator com.acme:Foo; give its library with --custom-ops")


def test_an_invalid_library_is_reported_in_a_sentence(folder: Path, tmp_path: Path) -> None:
    library = tmp_path / "acme.so"
    library.write_bytes(b"no library")
    message = refused(request(folder, RELU, X, libraries=(str(library),)))

    assert message.startswith(f"the library of custom operators {library} cannot be loaded: ")


def test_external_data_that_is_gone_is_reported_in_a_sentence(folder: Path, tmp_path: Path) -> None:
    proto = text_model("g (float[2,4] x) => (float[2,4] y) { y = Add(x, w) }", {"w": np.ones(4, np.float32)})
    onnx.save(proto, tmp_path / "e.onnx", save_as_external_data=True, size_threshold=0, location="gone.bin")
    (tmp_path / "gone.bin").unlink()
    message = refused(replace(request(folder, RELU, X), model=str(tmp_path / "e.onnx")))

    assert "its external data cannot be read: " in message
    assert "gone.bin" in message


@pytest.mark.parametrize(
    ("header", "sentence"),
    [
        ('<ir_version: 99, opset_import: ["" : 18]>', "it is of IR version 99, and onnxruntime "),
        ('<ir_version: 10, opset_import: ["" : 999]>', "it imports opset 999 of ai.onnx, and onnxruntime "),
    ],
)
def test_a_model_that_is_too_new_is_reported_in_a_sentence(folder: Path, header: str, sentence: str) -> None:
    assert refused(request(folder, f"{header} {RELU}", X)).startswith(sentence)


def test_a_broken_file_is_reported_in_a_sentence(folder: Path) -> None:
    job = request(folder, RELU, X)
    Path(job.model).write_bytes(Path(job.model).read_bytes()[:30])

    assert refused(job).startswith("onnxruntime cannot parse it: ")


def test_an_operator_that_is_not_implemented_for_its_types_is_reported_in_a_sentence(folder: Path) -> None:
    model = "g (double[2,4] x) => (double[2,4] y) { [arc] y = Asinh(x) }"
    message = refused(request(folder, model, replace(X, dtype="DOUBLE")))

    assert message.startswith('node "arc": onnxruntime ')
    assert "has no kernel of Asinh (since opset 9) for the types of its inputs on cpu" in message


def test_shapes_that_do_not_fit_are_reported_with_the_inputs(folder: Path) -> None:
    model = "g (float[a] x, float[b] z) => (float[c] y) { [sum] y = Add(x, z) }"
    feeds = replace(X, shape=(2,)), replace(X, name="z", shape=(3,))
    message = refused(request(folder, model, *feeds))

    assert message.startswith('node "sum" (Add): ')
    assert "(inputs: x FLOAT [2], z FLOAT [3]); give sizes that fit with --shape" in message


def test_ids_that_are_out_of_range_are_reported(folder: Path) -> None:
    model = "g (int64[1] s) => (float[1] y) <float[4] w = {1,2,3,4}> { [embed] y = Gather(w, s) }"
    message = refused(request(folder, model, Feed("s", "INT64", (1,), Fill.CONSTANT, 9)))

    assert message.startswith('node "embed" (Gather): ')
    assert "out of its range" in message
    assert "--input" in message


@POSIX
def test_a_model_that_crashes_onnxruntime_is_reported_in_a_sentence(folder: Path) -> None:
    message = refused(request(folder, chain(5000), replace(X, shape=(4,))))

    assert message.startswith(
        (
            "onnxruntime ended with signal 11 (SIGSEGV) while loading; the model makes onnxruntime crash",
            "onnxruntime failed while loading: Model local function call depth ",  # 1.32 checks depth first
        )
    )


def test_a_model_that_hangs_onnxruntime_while_it_loads_is_stopped(folder: Path) -> None:
    message = refused(request(folder, chain(40, calls=2), replace(X, shape=(4,))), Limits(seconds=2))

    assert message == (
        "onnxruntime did not finish within 2 s and was stopped while loading; allow more with --timeout, or ask for "
        "less with --runs or --shape"
    )


def test_a_loop_that_never_ends_is_stopped(folder: Path) -> None:
    message = refused(request(folder, ENDLESS, replace(X, shape=(2,))), Limits(seconds=3))

    assert message.startswith("onnxruntime did not finish within 3 s and was stopped while warming up; ")


def test_a_node_that_allocates_more_than_any_machine_has_is_reported(folder: Path) -> None:
    message = refused(request(folder, BOMB, Feed("s", "INT64", (1,), Fill.CONSTANT, 25 * 10**12)))

    assert message.startswith(
        'node "fill" (ConstantOfShape): out of memory while warming up (it asked for 90.95 TiB more; '
    )


@LINUX
def test_a_node_that_allocates_more_than_the_limit_is_reported(folder: Path) -> None:
    job = request(folder, BOMB, Feed("s", "INT64", (1,), Fill.CONSTANT, 150_000_000))
    message = refused(job, Limits(nbytes=1 << 30))

    assert message.startswith(
        'node "minus" (Neg): out of memory while warming up (it asked for 572.20 MiB more; the limit is 1.00 GiB '
    )


@LINUX
def test_what_takes_more_than_the_limit_while_it_loads_is_stopped(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = "import time; ballast = bytearray(b'1') * (600 << 20); time.sleep(60)"
    monkeypatch.setattr(isolated, "_START", program)
    message = refused(request(folder, RELU, X), Limits(nbytes=1 << 28))

    assert message.startswith("onnxruntime was stopped while starting onnxruntime, as it had ")
    assert "of memory, and the limit is 256.00 MiB; give smaller sizes with --shape" in message


@POSIX
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGABRT, signal.SIGILL])
def test_a_signal_is_named(folder: Path, number: signal.Signals) -> None:
    job = request(folder, ENDLESS, replace(X, shape=(2,)))

    before = set(children())

    def kill(stage: str) -> None:
        if stage == "warming up":
            for child in set(children()) - before:
                os.kill(child, number)

    with pytest.raises(TimingError) as caught:
        run_isolated(job, Limits(seconds=60), kill)

    assert f"onnxruntime ended with signal {int(number)} ({number.name}) while warming up" in str(
        caught.value
    )
    assert ("when memory ran out" in str(caught.value)) is (number is signal.SIGKILL)


def children() -> list[int]:
    """Return the child processes of this process."""
    table = subprocess.run(
        ["ps", "-eo", "pid=,ppid=,comm="], capture_output=True, text=True, check=True
    ).stdout
    rows = (line.split(None, 2) for line in table.splitlines())
    return [int(pid) for pid, parent, name in rows if int(parent) == os.getpid() and name != "ps"]


@POSIX
def test_a_process_that_ends_without_an_answer_is_reported_with_its_last_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = "import os, sys; sys.stderr.write('one\\nno \\x1b[2J room\\n'); sys.stderr.flush(); os._exit(7)"
    monkeypatch.setattr(isolated, "_START", program)

    assert refused(request(folder, RELU, X)) == (
        "the process that ran onnxruntime ended with exit code 7 while starting onnxruntime: no \\x1b[2J room"
    )


def test_a_process_that_cannot_be_started_is_reported_in_a_sentence(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = request(folder, RELU, X)
    monkeypatch.setattr(sys, "executable", str(folder / "no-python"))
    with pytest.raises(TimingError, match="no process that runs onnxruntime can be started: "):
        run_isolated(job, Limits())


@POSIX
def test_an_interruption_leaves_neither_a_process_nor_files(folder: Path) -> None:
    before = set(children())
    seen: list[int] = []

    def interrupt(stage: str) -> None:
        if stage == "warming up":
            seen.extend(set(children()) - before)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_isolated(request(folder, ENDLESS, replace(X, shape=(2,))), Limits(seconds=60), interrupt)

    assert seen
    assert not set(seen) & set(children())
    assert not list(folder.iterdir())


@POSIX
def test_ctrl_c_at_a_terminal_ends_all(folder: Path, tmp_path: Path) -> None:
    model = save(tmp_path, text_model(RELU))
    path = tmp_path / "script.py"
    path.write_text(script(folder, model, out=tmp_path / "out", runs=10**9))
    with subprocess.Popen(
        [sys.executable, str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None
        while process.stdout.readline() != b"measuring\n":
            assert process.poll() is None
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=60)

    assert errors.count(b"KeyboardInterrupt") == 1
    assert not list(folder.iterdir())


@POSIX
def test_a_parent_that_is_killed_takes_a_hanging_child_with_it(folder: Path, tmp_path: Path) -> None:
    model = save(tmp_path, chain(40, calls=2))
    path = tmp_path / "script.py"
    path.write_text(script(folder, model, out=tmp_path / "out"))
    with subprocess.Popen([sys.executable, str(path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        while process.stdout.readline() != b"loading\n":
            assert process.poll() is None
        (child,) = (line.split()[0] for line in table() if line.split()[1] == str(process.pid))
        process.kill()
        until = time.monotonic() + 30
        while any(line.split()[0] == child for line in table()) and time.monotonic() < until:
            time.sleep(0.05)

    assert not any(line.split()[0] == child for line in table())
    for left in folder.iterdir():  # the killed parent could not remove it
        for file in left.iterdir():
            file.unlink()
        left.rmdir()


def table() -> list[str]:
    """Return the running processes, each with its parent's id and its state."""
    output = subprocess.run(
        ["ps", "-eo", "pid=,ppid=,stat="], capture_output=True, text=True, check=True
    ).stdout
    return [line for line in output.splitlines() if not line.split()[2].startswith("Z")]


def test_no_core_is_dumped_and_no_file_grows_without_end(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("resource")
    program = (
        "import sys; from analyzer.timing.running.child import _limit_files; _limit_files(); "
        "import resource; "
        "sys.stderr.write(f'{{resource.getrlimit(resource.RLIMIT_CORE)[0]}} '"
        "f'{{resource.getrlimit(resource.RLIMIT_FSIZE)[0]}}')"
    )
    monkeypatch.setattr(isolated, "_START", program)

    assert refused(request(folder, RELU, X)).endswith(f": 0 {2 << 30}")


def test_a_gpu_is_timed_by_two_processes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(isolated, "binding_device", lambda provider: "cpu")
    monkeypatch.setattr(isolated, "blocking_environment", lambda provider: {"CUDA_LAUNCH_BLOCKING": "1"})
    monkeypatch.setattr(
        isolated, "dump_job", lambda job, dump=isolated.dump_job: seen.append(job) or dump(job)
    )
    reply = run_isolated(request(folder, RELU, X), Limits())

    assert [(job.plain, job.profiled, job.device) for job in seen] == [
        (True, False, "cpu"),
        (False, True, "cpu"),
    ]
    assert [(len(run.latency_ns), len(run.profiled_ns), len(run.kernels_us)) for run in reply.runs] == [
        (3, 3, 3)
    ]
    assert reply.optimized is not None


@pytest.mark.parametrize("start", ["raise TraceError('busy')", "import os; os.abort()"])
def test_kernels_are_timed_by_the_host_where_cupti_does_not_trace(
    folder: Path, monkeypatch: pytest.MonkeyPatch, start: str
) -> None:
    seen = []
    monkeypatch.setattr(isolated, "binding_device", lambda provider: "cpu")
    monkeypatch.setattr(isolated, "blocking_environment", lambda provider: {"CUDA_LAUNCH_BLOCKING": "1"})
    monkeypatch.setattr(isolated, "has_cupti", lambda: True)
    monkeypatch.setattr(
        isolated, "dump_job", lambda job, dump=isolated.dump_job: seen.append(job) or dump(job)
    )
    refuses = (
        "from analyzer.timing.running import child; from analyzer.timing.running.cupti import TraceError\n"
        f"def trace():\n    {start}\n"
        "child.Trace = trace; child.serve({folder!r})"
    )
    monkeypatch.setattr(isolated, "_START", refuses)
    reply = run_isolated(request(folder, RELU, X), Limits())

    assert [(job.plain, job.profiled, job.traced) for job in seen] == [
        (True, False, False),
        (False, True, True),
        (False, True, False),
    ]
    assert reply.kernel_clock == "host"
    assert any("CUPTI does not trace this device" in message for message in reply.messages)


def test_two_replies_are_joined_measurement_by_measurement() -> None:
    plain = Reply((Run((1,), (), ()),), (), ("CUDA",), None, 5.0, 6, ("a", "b"))
    kernel = Kernel("k", "Add", "CUDA")
    profiled = Reply((Run((), (2,), ((3,),), 4),), (kernel,), ("CUDA",), "o", 7.0, 8, ("b", "c"))

    joined = isolated._join(replace(plain, clocks=(("gpu", 1.0),)), replace(profiled, clocks=(("gpu", 2.0),)))

    assert joined == Reply(
        (Run((1,), (2,), ((3,),), 4),),
        (kernel,),
        ("CUDA",),
        "o",
        5.0,
        6,
        ("a", "b", "c"),
        clocks=(("gpu", 1.0),),
    )


def test_only_the_process_that_profiles_waits_for_each_kernel(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = (
        "import os, sys; import json; "
        "job = json.loads(open({folder!r} + '/job.json').read()); "
        "os.write(2, json.dumps([job['profiled'], os.environ.get('WAIT'), os.environ.get('ORT_X')]).encode()); "
        "from analyzer.timing.running.child import serve; job['profiled'] or serve({folder!r}); os._exit(1)"
    )
    monkeypatch.setenv("ORT_X", "kept")
    monkeypatch.setattr(isolated, "blocking_environment", lambda provider: {"WAIT": "1"})
    monkeypatch.setattr(isolated, "_START", program)
    message = refused(request(folder, RELU, X))

    assert json.loads(message.partition("onnxruntime: ")[2]) == [True, "1", "kept"]


def test_a_system_that_does_not_show_the_memory_of_a_process_is_reported(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolated, "own_nbytes", lambda process: None)
    reply = run_isolated(request(folder, RELU, X), Limits())

    assert reply.messages[-1].startswith(
        "memory was not limited: this system does not tell how much a process has"
    )


def chain(length: int, calls: int = 1) -> onnx.ModelProto:
    """Return functions that each call the next one `calls` times; the last one does nothing."""
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    values = ["a", *(f"t{k}" for k in range(1, calls)), "b"]
    functions = [
        helper.make_function(
            "f",
            f"F{k}",
            ["a"],
            ["b"],
            [helper.make_node(f"F{k + 1}", [one], [other], domain="f") for one, other in pairwise(values)],
            opsets,
        )
        for k in range(length)
    ]
    last = helper.make_function(
        "f", f"F{length}", ["a"], ["b"], [helper.make_node("Identity", ["a"], ["b"])], opsets
    )
    graph = helper.make_graph(
        [helper.make_node("F0", ["x"], ["y"], domain="f")],
        "g",
        [helper.make_tensor_value_info("x", 1, [4])],
        [helper.make_tensor_value_info("y", 1, [4])],
    )
    return helper.make_model(graph, functions=[*functions, last], opset_imports=opsets, ir_version=8)
