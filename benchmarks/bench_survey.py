"""`survey` of thousands of models: CPU per model compared with `inspect DIR`, memory, lake size, kills, a server.

One run measures everything, on the files of `python -m tools.fleet`, which are always the same. It prints the
measurements and the goals that they meet, and always exits with 0, because machines differ.

    python benchmarks/bench_survey.py --count 10000
    python benchmarks/bench_survey.py --count 1000 --engines ray,dask
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from analyzer.fleet.lake import open_lake  # noqa: E402
from tools.fleet.__main__ import write_fleet  # noqa: E402

CPU_GOAL, MEMORY_GOAL = 15.0, 300
KILLS = 10
SERVED = 200
COMMAND = [sys.executable, "-m", "analyzer"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


@dataclass(frozen=True, slots=True)
class Run:
    """Cost of a process and its children: seconds of CPU and of time, and peak memory in MiB."""

    cpu: float
    wall: float
    parent: float
    worker: float


def run(*arguments: str) -> Run:
    """Run a command of onnxledger, and watch it."""
    before, start = _cpu(), time.monotonic()
    process = subprocess.Popen(
        [*COMMAND, *arguments], env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    peaks: dict[int, float] = {}
    watcher = threading.Thread(target=_watch, args=(process, peaks))
    watcher.start()
    process.wait()
    watcher.join()
    own = peaks.pop(process.pid, 0.0)
    return Run(_cpu() - before, time.monotonic() - start, own, max(peaks.values(), default=0.0))


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _watch(process: subprocess.Popen[bytes], peaks: dict[int, float]) -> None:
    """Record the memory peaks of a process and its descendants; a child's CPU counts once its parent has waited for
    it."""
    while process.poll() is None:
        for pid in [process.pid, *_descendants(process.pid)]:
            peaks[pid] = max(peaks.get(pid, 0.0), _peak(pid))
        time.sleep(0.1)


def _descendants(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += [int(each) for each in task.read_text().split()]
        except OSError:
            continue
    return found


def _peak(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:")), 0.0)


def content(lake: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(lake)): p.read_bytes() for p in lake.rglob("*") if p.is_file() and p.name != ".lock"
    }


def size(lake: Path) -> float:
    return sum(path.stat().st_size for path in lake.rglob("*") if path.is_file()) / (1 << 20)


def measure_cost(build: Path, fleet: Path, count: int) -> None:
    """Measure CPU and memory of a lake of a tenth of the models, of all, of all again, and of `inspect DIR`."""
    print("| models | | CPU, s | ms a model | time, s | this process, MiB | a worker, MiB | lake, MiB |")
    print("|---:|---|---:|---:|---:|---:|---:|---:|")
    lake = build / "lake"
    shutil.rmtree(lake, ignore_errors=True)
    tenth = [str(each) for each in sorted(fleet.iterdir())[: max(1, count // 10_000)]]
    few = sum(1 for folder in tenth for _ in Path(folder).iterdir())
    runs = [
        (few, "survey", run("survey", *tenth, "-o", str(build / "tenth"))),
        (count, "survey", run("survey", str(fleet), "-o", str(lake))),
        (count, "survey again, nothing changed", run("survey", str(fleet), "-o", str(lake))),
        (count, "inspect DIR", run("inspect", str(fleet))),
        (count, "sql --question families", run("sql", str(lake), "--question", "families")),
        (count, "sql -o page.html", run("sql", str(lake), "-o", str(build / "page.html"))),
    ]
    for models, what, took in runs:
        lakes = {few: build / "tenth", count: lake}
        kept = f"{size(lakes[models]):.1f}" if what == "survey" else ""
        each = f"{1000 * took.cpu / models:.2f}"
        memory = f"{took.parent:.0f} | {took.worker:.0f}"
        print(f"| {models:,} | {what} | {took.cpu:.1f} | {each} | {took.wall:.1f} | {memory} | {kept} |")
    page = (build / "page.html").stat().st_size / (1 << 20)
    whole = runs[1][2]
    print(f"\nThe page has {page:.1f} MiB.\n")
    print_measured("CPU a model", 1000 * whole.cpu / count, CPU_GOAL, "ms")
    print_measured("peak memory of a worker", whole.worker, MEMORY_GOAL, "MiB")
    print_measured(
        "growth of this process's memory from a tenth to all", whole.parent - runs[0][2].parent, 50, "MiB"
    )


def print_measured(what: str, measured: float, limit: float, unit: str) -> None:
    print(f"{what}: {measured:.1f} {unit}, at most {limit:g}: {'yes' if measured <= limit else 'NO'}")


def measure_kills(build: Path, fleet: Path) -> None:
    """Kill a survey at random moments, finish it, and compare it with an uninterrupted one."""
    lake, uninterrupted = build / "killed", build / "anew"
    for each in (lake, uninterrupted):
        shutil.rmtree(each, ignore_errors=True)
    folder = str(sorted(fleet.iterdir())[0])
    whole = run("survey", folder, "-o", str(uninterrupted), "--shard", "16")
    chance, kept = random.Random(1), []
    for _ in range(KILLS):
        line = [*COMMAND, "survey", folder, "-o", str(lake), "--shard", "16", "--quiet"]
        process = subprocess.Popen(line, env=ENVIRONMENT)
        time.sleep(chance.uniform(0.1, max(1.0, whole.wall / 4)))
        process.send_signal(signal.SIGKILL)
        process.wait()
        kept.append(len(open_lake(lake).present) if (lake / "lake.json").exists() else 0)
    run("survey", folder, "-o", str(lake), "--shard", "16")
    same = content(lake) == content(uninterrupted)
    print(
        f"\nkilled {KILLS} times, with {kept} shards: equal to one go, byte for byte: {'yes' if same else 'NO'}"
    )


def measure_server(build: Path, fleet: Path) -> None:
    """Count bytes and requests per model over a local server with ranges, and in a second run."""
    from servers import serving

    folder = sorted(fleet.iterdir())[0]
    names = sorted(path.name for path in folder.iterdir())[:SERVED]
    shutil.rmtree(build / "remote", ignore_errors=True)
    with serving(folder) as server:
        listed = build / "urls.txt"
        listed.write_text("".join(f"{server.url(name)}\n" for name in names))
        print()
        for what in ("first run", "second run"):
            requests, sent = len(server.requests), server.sent.total()
            run("survey", str(listed), "-o", str(build / "remote"))
            requested, received = len(server.requests) - requests, server.sent.total() - sent
            print(
                f"served, {what}: {requested / len(names):.1f} requests and {received / len(names):,.0f} bytes a model"
            )
        whole = sum((folder / name).stat().st_size for name in names) / len(names)
    print(f"of files of {whole:,.0f} bytes")


def measure_engines(build: Path, fleet: Path, engines: Sequence[str]) -> None:
    """Compare the lake of a cluster on this machine with the local one."""
    folder = str(sorted(fleet.iterdir())[0])
    shutil.rmtree(build / "local", ignore_errors=True)
    local = run("survey", folder, "-o", str(build / "local"))
    print(f"\nlocal: {local.wall:.1f} s")
    for engine in engines:
        shutil.rmtree(build / engine, ignore_errors=True)
        with {"ray": ray_cluster, "dask": dask_cluster}[engine]() as address:
            took = run("survey", folder, "-o", str(build / engine), "--engine", engine, "--address", address)
        same = content(build / engine) == content(build / "local")
        print(
            f"{engine}: {took.wall:.1f} s, equal to the local one, byte for byte: {'yes' if same else 'NO'}"
        )


@contextmanager
def ray_cluster() -> Iterator[str]:
    line = [
        sys.executable,
        "-m",
        "ray.scripts.scripts",
        "start",
        "--head",
        "--block",
        "--port=6399",
        "--num-cpus=2",
    ]
    with _started([*line, "--include-dashboard=false", "--disable-usage-stats"]):
        time.sleep(10)
        yield "127.0.0.1:6399"


@contextmanager
def dask_cluster() -> Iterator[str]:
    scheduler = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", "8799", "--no-dashboard"]
    worker = [sys.executable, "-m", "distributed.cli.dask_worker", "tcp://127.0.0.1:8799", "--nworkers", "2"]
    with _started(scheduler), _started([*worker, "--nthreads", "1"]):
        time.sleep(5)
        yield "tcp://127.0.0.1:8799"


@contextmanager
def _started(line: Sequence[str]) -> Iterator[None]:
    process = subprocess.Popen(line, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "fleet")
    parser.add_argument("--exports", type=Path, help="real exports, which are every fifth file")
    parser.add_argument("--engines", default="", help="ray,dask")
    options = parser.parse_args()
    fleet = options.build / f"models-{options.count}"
    if not fleet.exists():
        small = sorted(options.exports.rglob("*.onnx")) if options.exports else []
        write_fleet(fleet, options.count, [path for path in small if path.stat().st_size <= 200_000])
    measure_cost(options.build, fleet, options.count)
    measure_kills(options.build, fleet)
    measure_server(options.build, fleet)
    if options.engines:
        measure_engines(options.build, fleet, options.engines.split(","))


if __name__ == "__main__":
    main()
