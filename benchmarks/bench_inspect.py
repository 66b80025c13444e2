"""CPU and memory of a whole `onnxledger inspect` process, side by side with `onnx.load` on the same file.

The file has BERT-base's shape: 199 float tensors, 109,482,240 elements of random values, once embedded and once as
external data. Processes alternate, so that a noisy machine disturbs both alike; what counts is the ratio.

    python benchmarks/bench_inspect.py [rounds]
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

LAYER = [(768, 768)] * 4 + [(768,)] * 4 + [(768, 3072), (3072,), (3072, 768), (768,)] + [(768,)] * 4
SHAPES = [(30522, 768), (512, 768), (2, 768), (768,), (768,), *LAYER * 12, (768, 768), (768,)]


def make_model(folder: Path, external: bool) -> Path:
    random = np.random.default_rng(0)
    tensors, nodes = [], []
    for index, shape in enumerate(SHAPES):
        values = random.standard_normal(shape, dtype=np.float32)
        tensors.append(numpy_helper.from_array(values, f"encoder.layer.{index}.weight"))
        nodes.append(helper.make_node("Identity", [f"encoder.layer.{index}.weight"], [f"y{index}"]))
    output = helper.make_tensor_value_info("y0", TensorProto.FLOAT, None)
    model = helper.make_model(helper.make_graph(nodes, "bert", [], [output], tensors))
    path = folder / ("external.onnx" if external else "embedded.onnx")
    onnx.save(model, path, save_as_external_data=external, location="external.data")
    return path


def measure(command: list[str]) -> tuple[float, float]:
    """CPU seconds and peak MiB of one process, from wait4."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)}: exit {os.waitstatus_to_exitcode(status)}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def contenders(path: Path) -> dict[str, list[str]]:
    load = f"import onnx; onnx.load({str(path)!r})"
    imports = "import onnx, networkx, rich.table, click, analyzer.audit"
    return {
        "onnxledger inspect": [sys.executable, "-m", "analyzer", "inspect", str(path), "--format", "json"],
        "its imports alone": [sys.executable, "-c", imports],
        "onnx.load": [sys.executable, "-c", load],
    }


def main() -> None:
    if sys.argv[1:2] == ["--make"]:
        print(make_model(Path(sys.argv[2]), sys.argv[3] == "1"))
        return
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    os.environ["PYTHONPATH"] = str(Path(__file__).parent.parent)
    with tempfile.TemporaryDirectory() as folder:
        for external in (True, False):
            # In a process of its own: a child's peak memory counts what its parent held when it forked.
            command = [sys.executable, __file__, "--make", folder, str(int(external))]
            path = Path(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())
            figures: dict[str, list[tuple[float, float]]] = {}
            for _ in range(rounds):
                for name, command in contenders(path).items():
                    figures.setdefault(name, []).append(measure(command))
            print(f"\n{path.name}, median of {rounds}")
            base = statistics.median(cpu for cpu, _ in figures["onnx.load"])
            for name, values in figures.items():
                cpu, peak = (statistics.median(column) for column in zip(*values, strict=True))
                print(f"  {name:20} {cpu:6.2f} s CPU  {cpu / base:5.2f} x onnx.load  {peak:7.0f} MiB")
            for file in Path(folder).iterdir():
                file.unlink()


if __name__ == "__main__":
    main()
