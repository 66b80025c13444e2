from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from models import save, text_model

from analyzer.timing.request import Optimization, Request
from analyzer.timing.running.session import open_session, placement_messages, read_log

pytestmark = pytest.mark.time
WEIGHTS = {"w": np.ones((64, 64), np.float32)}
FUSED = (
    "g (float[4,64] x) => (float[4,64] y) { [mm] h = MatMul(x, w) [bias] b = Add(h, w0) [relu] y = Relu(b) }"
)


def request(folder: Path, **changes: Any) -> Request:
    weights = {**WEIGHTS, "w0": np.ones(64, np.float32)}
    model = save(folder, text_model(FUSED, weights))
    return Request(str(model), ((),), "CPUExecutionProvider", str(folder), **changes)


def opened(folder: Path, *, profiled: bool = False, write: bool = True, **changes: Any) -> Any:
    job = request(folder, **changes)
    return open_session(job, folder, folder / "log.txt", profiled=profiled, write=write)


def test_the_graph_that_runs_is_written_without_its_weights(tmp_path: Path) -> None:
    session = opened(tmp_path)
    graph = onnx.load(session.optimized, load_external_data=False).graph

    assert {i.name: list(i.dims) for i in graph.initializer}["w"] == [64, 64]
    assert sum(path.lstat().st_size for path in tmp_path.iterdir() if path.name != "model.onnx") < 4096
    assert session.load_ns > 0


def test_the_graph_is_written_where_no_link_can_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Path, target: str) -> None:
        raise OSError("links are a privilege")

    monkeypatch.setattr(Path, "symlink_to", refuse)
    session = opened(tmp_path)

    assert onnx.load(session.optimized).graph.node


def test_the_graph_is_not_written_unless_requested(tmp_path: Path) -> None:
    assert opened(tmp_path, write=False).optimized is None
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]


def test_a_graph_that_cannot_be_written_does_not_keep_the_model_from_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import onnxruntime

    real = onnxruntime.InferenceSession

    def compiling(path: str, options: Any, **others: Any) -> Any:
        if options.optimized_model_filepath:
            raise RuntimeError("Unable to serialize model as it contains compiled nodes.")
        return real(path, options, **others)

    monkeypatch.setattr(onnxruntime, "InferenceSession", compiling)
    session = opened(tmp_path)

    assert session.optimized is None
    assert session.inference.run(None, {"x": np.ones((4, 64), np.float32)})[0][0, 0] == 65
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]


def test_what_keeps_a_model_from_loading_is_not_tried_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import onnxruntime

    calls = []

    def broken(*arguments: Any, **others: Any) -> Any:
        calls.append(arguments)
        raise RuntimeError("no such model")

    monkeypatch.setattr(onnxruntime, "InferenceSession", broken)
    with pytest.raises(RuntimeError, match="no such model"):
        opened(tmp_path)

    assert len(calls) == 1


@pytest.mark.parametrize("optimization", Optimization)
def test_each_level_of_optimization_is_taken(tmp_path: Path, optimization: Optimization) -> None:
    session = opened(tmp_path, optimization=optimization)
    ran = [node.op_type for node in onnx.load(session.optimized, load_external_data=False).graph.node]

    assert (ran == ["MatMul", "Add", "Relu"]) is (optimization is Optimization.NONE)


def test_threads_are_the_requested_ones(tmp_path: Path) -> None:
    assert opened(tmp_path, threads=1).inference.get_session_options().intra_op_num_threads == 1
    assert opened(tmp_path).inference.get_session_options().intra_op_num_threads == 0


def test_the_profile_lies_in_the_folder(tmp_path: Path) -> None:
    session = opened(tmp_path, profiled=True)

    assert Path(session.inference.end_profiling()).parent == tmp_path


def test_random_operators_draw_the_same_for_the_same_seed(tmp_path: Path) -> None:
    model = save(tmp_path, text_model("g () => (float[8] y) { y = RandomNormal<shape = [8]>() }"))

    def draw(seed: int) -> list[float]:
        job = Request(str(model), ((),), "CPUExecutionProvider", str(tmp_path), seed=seed)
        session = open_session(job, tmp_path, tmp_path / "log.txt", profiled=False, write=False)
        return list(session.inference.run(None, {})[0])

    assert draw(1) == draw(1) != draw(2)


def test_warnings_of_where_nodes_run_are_reported_once(tmp_path: Path) -> None:
    placed = "Some nodes were not assigned to the preferred execution providers which may have an impact."
    copied = "3 Memcpy nodes are added to the graph main_graph for CUDAExecutionProvider."
    log = tmp_path / "log.txt"
    log.write_text(
        f"\x1b[0;93m2026-11-22 07:48:55.86 [W:onnxruntime:, session_state.cc:1316 Verify] {placed}\x1b[m\n"
        f"2026-11-22 07:48:55.87 [W:onnxruntime:, transformer_memcpy.cc:83 Apply] {copied}\n"
        f"2026-11-22 07:48:55.88 [W:onnxruntime:, session_state.cc:1316 Verify] {placed}\n"
        "2026-11-22 07:48:55.89 [W:onnxruntime:, graph.cc:1 Clean] Removing initializer 'w'.\n"
        "ExecutionProvider that is no record\n"
    )

    assert placement_messages(read_log(log)) == (placed, copied)


def test_no_log_has_no_messages(tmp_path: Path) -> None:
    assert placement_messages(read_log(tmp_path / "none")) == ()
