"""Plain latency from `onnxledger time`, compared with a bare onnxruntime loop on the same inputs.

The two alternate, so that a noisy machine disturbs both alike; the ratio counts. The loop is the usual one: a session
with default options, inputs bound to the device if there is one, a clock around each run.

    python benchmarks/bench_time.py model.onnx --shape batch=1,sequence=128 --rounds 5
    python benchmarks/bench_time.py model.onnx --provider cuda
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

GOAL = 0.10
"""Largest distance of the median ratio from 1."""


def main() -> None:
    options = arguments()
    if options.loop is not None:
        print(json.dumps(loop(**json.loads(options.loop.read_text()))))
        return
    for model in options.models:
        compare(model, options)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--provider", default="cpu")
    parser.add_argument("--provider-option", action="append", default=[])
    parser.add_argument("--shape", action="append", default=[])
    parser.add_argument("--threads", type=int)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--runs", type=int, default=30, help="of each measurement in each round")
    parser.add_argument("--loop", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def compare(model: Path, options: argparse.Namespace) -> None:
    """Print a line for each round, and the median ratio."""
    from analyzer.account.audit import audit_model
    from analyzer.account.group import group_by
    from analyzer.timing.inputs.sizes import parse_shapes
    from analyzer.timing.record import TimingSettings
    from analyzer.timing.request import Schedule
    from analyzer.timing.running.providers import parse_options, provider_name
    from analyzer.timing.timer import time_model

    name = provider_name(options.provider)
    settings = TimingSettings(
        options.provider,
        parse_options(name, options.provider_option),
        options.threads,
        schedule=Schedule(runs=options.runs),
    )
    ledger = audit_model(model)
    grouping = group_by(ledger, "scope", 1)
    print(f"{model}: {options.provider}, {options.runs} runs a round; medians in ms")
    print(f"{'round':>5} {'onnxledger':>12} {'bare loop':>12} {'ratio':>8}")
    ratios = []
    for number in range(1, options.rounds + 1):
        timing = time_model(ledger, grouping, settings, shapes=parse_shapes(options.shape))
        (point,) = timing.points
        bare = statistics.median(loop_isolated(model, name, settings, point.feeds))
        ratios.append(point.latency.median / bare)
        print(f"{number:>5} {point.latency.median:>12.3f} {bare:>12.3f} {ratios[-1]:>8.3f}", flush=True)
    middle = statistics.median(ratios)
    verdict = "within" if abs(middle - 1) <= GOAL else "NOT within"
    print(f"median ratio {middle:.3f}, from {min(ratios):.3f} to {max(ratios):.3f}: {verdict} {GOAL:.0%}")
    print(
        f"{timing.environment.device}; {'; '.join(' '.join(each) for each in timing.environment.versions)}\n"
    )


def loop_isolated(model: Path, provider: str, settings: Any, feeds: Any) -> list[float]:
    """Return the bare loop's times in milliseconds, measured in a separate process, as on the other side."""
    from analyzer.timing.inputs.arrays import make_array

    with tempfile.TemporaryDirectory() as folder:
        arrays = Path(folder, "inputs.npz")
        numpy().savez(arrays, **{feed.name: make_array(feed, settings.seed, None) for feed in feeds})
        job = Path(folder, "job.json")
        job.write_text(
            json.dumps(
                {
                    "model": str(model),
                    "provider": provider,
                    "provider_options": dict(settings.provider_options),
                    "threads": settings.threads,
                    "inputs": str(arrays),
                    "warmup": settings.schedule.warmup,
                    "runs": settings.schedule.runs,
                }
            )
        )
        command = [sys.executable, __file__, "--loop", str(job)]
        environment = {**os.environ, "ORT_DISABLE_TELEMETRY": "1"}
        child = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if child.returncode:
        sys.exit(f"the bare loop failed:\n{child.stderr}")
    times: list[float] = json.loads(child.stdout.splitlines()[-1])
    return times


def loop(
    model: str,
    provider: str,
    provider_options: dict[str, str],
    threads: int | None,
    inputs: str,
    warmup: int,
    runs: int,
) -> list[float]:
    """Run the usual loop, without onnxledger."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    if threads is not None:
        options.intra_op_num_threads = threads
    is_cuda = provider in {"CUDAExecutionProvider", "TensorrtExecutionProvider"}
    if is_cuda:
        onnxruntime.preload_dlls()
    session = onnxruntime.InferenceSession(
        model, options, providers=[(provider, provider_options), ("CPUExecutionProvider", {})]
    )
    if session.get_providers()[0] != provider:
        sys.exit(f"the session runs on {session.get_providers()}")
    arrays = dict(numpy().load(inputs))
    run = bind_run(session, arrays, provider_options) if is_cuda else lambda: session.run(None, arrays)
    for _ in range(warmup):
        run()
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        run()
        times.append((time.perf_counter() - start) * 1e3)
    return times


def bind_run(session: Any, arrays: dict[str, Any], provider_options: dict[str, str]) -> Callable[[], object]:
    """Return a run whose inputs and outputs stay on the GPU; it returns when the GPU is done."""
    import onnxruntime

    device = int(provider_options.get("device_id", "0"))
    binding = session.io_binding()
    for name, array in arrays.items():
        binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(array, "cuda", device))
    for output in session.get_outputs():
        binding.bind_output(output.name, "cuda", device)
    return lambda: session.run_with_iobinding(binding)


def numpy() -> Any:
    import numpy

    return numpy


if __name__ == "__main__":
    main()
