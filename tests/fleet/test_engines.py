"""Third-party clusters: the same shards, and the same lake to the byte."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import run_here
from fleets import add, content, survey, weights

from analyzer.errors import MissingExtraError, UsageError
from analyzer.fleet import engines
from analyzer.fleet.engines import find_engine

ROOT = Path(__file__).parents[2]


@pytest.fixture
def zoo(tmp_path: Path) -> Path:
    for number in range(24):
        add(tmp_path / "zoo", f"m{number}.onnx", weights(number))
    (tmp_path / "zoo" / "broken.onnx").write_text("no model")
    return tmp_path / "zoo"


@pytest.fixture
def dask_address(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    from distributed import LocalCluster

    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "tests")]))
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        yield cluster.scheduler_address


@pytest.fixture
def ray_address(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "tests")]))
    address = f"127.0.0.1:{6390 + os.getpid() % 100}"
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--num-cpus=2"]
    options = [f"--port={address[-4:]}", "--include-dashboard=false", "--disable-usage-stats"]
    head = subprocess.Popen([*command, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_for(address)
        yield address
    finally:
        import ray

        ray.shutdown()
        head.terminate()  # ends the processes that it has started, and no others
        head.wait(30)


def _wait_for(address: str) -> None:
    """Wait until a server listens at the address."""
    host, _, port = address.partition(":")
    for _ in range(300):
        with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 1):
            return
        time.sleep(0.1)
    raise TimeoutError(address)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_dask_cluster_makes_the_same_lake(zoo: Path, tmp_path: Path, dask_address: str) -> None:
    survey(zoo, lake=tmp_path / "here")

    survey(zoo, lake=tmp_path / "there", engine=find_engine("dask", None, dask_address))

    assert content(tmp_path / "there") == content(tmp_path / "here")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_ray_cluster_makes_the_same_lake(zoo: Path, tmp_path: Path, ray_address: str) -> None:
    survey(zoo, lake=tmp_path / "here")

    survey(zoo, lake=tmp_path / "there", engine=find_engine("ray", None, ray_address))

    assert content(tmp_path / "there") == content(tmp_path / "here")


@pytest.mark.child
def test_several_processes_here_make_the_same_lake(zoo: Path, tmp_path: Path) -> None:
    survey(zoo, lake=tmp_path / "one")

    survey(zoo, lake=tmp_path / "three", engine=find_engine("local", 3, None))

    assert content(tmp_path / "three") == content(tmp_path / "one")


@pytest.mark.parametrize(("engine", "library"), [("ray", "ray"), ("dask", "distributed")])
def test_a_cluster_without_an_address_is_refused(
    engine: str, library: str, zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if importlib.util.find_spec(library) is None:  # an import takes seconds
        pytest.skip(f"{library} is not installed")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.delenv("DASK_SCHEDULER_ADDRESS", raising=False)

    done = run_here("survey", zoo, "-o", tmp_path / "lake", "--engine", engine)

    assert done.returncode == 2
    assert f"--engine {engine}: no address" in done.stderr


@pytest.mark.slow
def test_a_cluster_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "_PATIENCE", 0.2)
    with pytest.raises(UsageError, match="cannot be reached"):
        find_engine("dask", None, "tcp://127.0.0.1:1")


def test_an_engine_that_is_not_installed_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)

    with pytest.raises(MissingExtraError, match=r"onnxledger\[fleet-ray\]"):
        find_engine("ray", None, "localhost:1")
