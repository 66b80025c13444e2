"""CPU of grouping 100,000 nodes and 20,000 initializers, compared with only building their networkx graph.

One model is measured, once with an exporter's names and once without names. All stages run in one process and in turn,
so that a noisy machine disturbs all alike; the ratios count. A run prints the measurements and the goals that they
meet, and always exits with 0, because machines differ.

    python benchmarks/bench_groups.py --rounds 5
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from analyzer.account.audit import audit_model  # noqa: E402
from analyzer.account.blocks import find_blocks  # noqa: E402
from analyzer.account.classify import classify, find_companions  # noqa: E402
from analyzer.account.copies import find_copies  # noqa: E402
from analyzer.account.group import group_by  # noqa: E402
from analyzer.account.ledger import Ledger  # noqa: E402
from analyzer.account.scopes import known_modules  # noqa: E402
from analyzer.account.scopes.owners import settle_scopes  # noqa: E402
from analyzer.account.scopes.paths import scope_nodes  # noqa: E402
from analyzer.graph import build_graph  # noqa: E402
from analyzer.model.dataflow import follow_data  # noqa: E402
from analyzer.process import uncollected  # noqa: E402

LAYERS, WIDTH = 1250, 8
PADDING = 34  # nodes that only pass on their input, so that a layer has 80 nodes for its 16 weights
GRAPH = "networkx graph"
STAGES = (GRAPH, "finding scopes", "grouping by scope", "finding blocks", "grouping by block")
LIMIT = 1.0  # of the time for the networkx graph
Seconds = dict[str, list[float]]


def main() -> None:
    options = arguments()
    lines = [
        f"# CPU seconds of grouping, medians of {options.rounds} rounds",
        f"Python {platform.python_version()}, networkx {version('networkx')}, {platform.machine()}, "
        f"{os.cpu_count()} cores.",
    ]
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        for kind in ("named", "nameless"):
            path = Path(folder, f"{kind}.onnx")
            onnx.save(make_model(options.layers, is_named=kind == "named"), path)
            ledger = audit_model(path)
            print(f"measuring {kind}", file=sys.stderr)
            lines.append(f"## {kind}: {describe(ledger)}\n\n{table(measure(ledger, options.rounds))}")
    print("\n\n".join(lines))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5, help="runs of each, of which the median counts")
    parser.add_argument("--layers", type=int, default=LAYERS, help="layers of 80 nodes and 16 weights")
    return parser.parse_args()


# the model


@dataclass
class Maker:
    """A stack of encoder layers, with the names of a legacy export or with numbers."""

    is_named: bool
    nodes: list[NodeProto] = field(default_factory=list)
    weights: list[TensorProto] = field(default_factory=list)
    chance: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    count: int = 0

    def name(self, text: str) -> str:
        self.count += 1
        return text if self.is_named else str(self.count)

    def weight(self, name: str, *shape: int) -> str:
        values = self.chance.standard_normal(shape).astype(np.float32)
        self.weights.append(numpy_helper.from_array(values, self.name(name)))
        return self.weights[-1].name

    def node(self, op: str, path: str, *inputs: str, **attributes: Any) -> str:
        place = f"/{path}/{op}_{len(self.nodes)}"
        output = self.name(f"{place}_output_0")
        name = place if self.is_named else ""
        self.nodes.append(helper.make_node(op, inputs, [output], name, **attributes))
        return output

    def linear(self, path: str, value: str, rows: int, columns: int) -> str:
        scope = path.replace("/", ".")
        product = self.node("MatMul", path, value, self.weight(f"{scope}.weight", rows, columns))
        return self.node("Add", path, product, self.weight(f"{scope}.bias", columns))

    def norm(self, path: str, value: str) -> str:
        scope = path.replace("/", ".")
        centred = self.node("Sub", path, value, self.node("ReduceMean", path, value))
        variance = self.node("ReduceMean", path, self.node("Mul", path, centred, centred))
        scaled = self.node("Div", path, centred, self.node("Sqrt", path, variance))
        gained = self.node("Mul", path, scaled, self.weight(f"{scope}.weight", WIDTH))
        return self.node("Add", path, gained, self.weight(f"{scope}.bias", WIDTH))

    def attention(self, path: str, value: str) -> str:
        heads = []
        for part in ("query", "key", "value"):
            inside = f"{path}/{part}"
            split = self.node("Reshape", inside, self.linear(inside, value, WIDTH, WIDTH), "split")
            heads.append(self.node("Transpose", inside, split, perm=[0, 2, 1, 3]))
        turned = self.node("Transpose", path, heads[1], perm=[0, 1, 3, 2])
        scores = self.node("Mul", path, self.node("MatMul", path, heads[0], turned), "scale")
        shares = self.node("Softmax", path, self.node("Add", path, scores, "mask"))
        mixed = self.node("Transpose", path, self.node("MatMul", path, shares, heads[2]), perm=[0, 2, 1, 3])
        return self.linear(f"{path}/dense", self.node("Reshape", path, mixed, "joined"), WIDTH, WIDTH)

    def layer(self, path: str, value: str) -> str:
        attended = self.attention(f"{path}/attention", self.norm(f"{path}/norm", value))
        value = self.node("Add", path, value, attended)
        inner = self.linear(f"{path}/up", self.norm(f"{path}/post", value), WIDTH, 4 * WIDTH)
        inner = self.node("Mul", f"{path}/act", inner, self.node("Erf", f"{path}/act", inner))
        inner = self.linear(f"{path}/down", inner, 4 * WIDTH, WIDTH)
        for _ in range(PADDING):
            inner = self.node("Identity", f"{path}/drop", inner)
        return self.node("Add", path, value, inner)


def make_model(layers: int, *, is_named: bool) -> onnx.ModelProto:
    maker = Maker(is_named)
    value = maker.node("Gather", "embeddings", maker.weight("embeddings.weight", 50, WIDTH), "ids")
    for number in range(layers):
        value = maker.layer(f"encoder/layer.{number}", value)
    shapes = {"split": [1, 2, 2, WIDTH // 2], "joined": [1, 2, WIDTH]}
    graph = helper.make_graph(
        maker.nodes,
        "g",
        [
            helper.make_tensor_value_info("ids", TensorProto.INT64, [1, 2]),
            helper.make_tensor_value_info("mask", TensorProto.FLOAT, [1, 1, 1, 2]),
        ],
        [helper.make_tensor_value_info(value, TensorProto.FLOAT, None)],
        [
            *maker.weights,
            numpy_helper.from_array(np.array(0.5, np.float32), "scale"),
            *(numpy_helper.from_array(np.array(shape), name) for name, shape in shapes.items()),
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], producer_name="pytorch")


# the measurement


def stages(ledger: Ledger) -> dict[str, Callable[[], object]]:
    """Return each stage alone, with the results of the stages before it in `analyzer.account.audit`."""
    model, wiring = ledger.model, ledger.wiring
    companions = find_companions(model, wiring)
    entered = classify(model, wiring, companions, wiring.computing(list(model.tensors())))
    entries = find_copies(model, entered, wiring, "sampled", None)

    def scopes() -> object:
        modules = known_modules(model)
        traced = scope_nodes(model, modules)
        return settle_scopes(model, entries, wiring, follow_data(model, wiring), traced, companions, modules)

    work = (
        lambda: build_graph(model),
        scopes,
        lambda: group_by(ledger, "scope"),
        lambda: find_blocks(ledger),
        lambda: group_by(ledger, "block"),
    )
    return dict(zip(STAGES, work, strict=True))


def measure(ledger: Ledger, rounds: int) -> Seconds:
    """Run each stage `rounds` times, in turn, after a first run that does not count."""
    seconds: Seconds = {stage: [] for stage in STAGES}
    for number in range(rounds + 1):
        for stage, work in stages(ledger).items():
            with uncollected():
                start = time.process_time()
                made = work()
                taken = time.process_time() - start
            del made
            if number:
                seconds[stage].append(taken)
    return seconds


def describe(ledger: Ledger) -> str:
    nodes = sum(1 for _ in ledger.model.nodes())
    blocks = ledger.blocks.count if ledger.blocks is not None else 0
    scopes = len(set(ledger.node_scopes.values()))
    return f"{nodes:,} nodes, {len(ledger.entries):,} initializers; {scopes:,} scopes, {blocks:,} blocks"


def rows(seconds: Seconds) -> Iterator[tuple[str, float, float]]:
    """Yield medians, and medians of the ratios to the networkx graph of the same round."""
    by_name = {stage: seconds[stage] for stage in STAGES}
    by_name["scopes, and grouping by them"] = list(
        map(sum, zip(*(seconds[s] for s in STAGES[1:3]), strict=True))
    )
    by_name["blocks, and grouping by them"] = list(
        map(sum, zip(*(seconds[s] for s in STAGES[3:5]), strict=True))
    )
    for name, values in by_name.items():
        ratios = (value / graph for value, graph in zip(values, seconds[GRAPH], strict=True))
        yield name, statistics.median(values), statistics.median(ratios)


def table(seconds: Seconds) -> str:
    lines = ["| | CPU s | x networkx | goal | met |", "|-|-:|-:|-:|-:|"]
    for name, median, ratio in rows(seconds):
        is_goal = name not in STAGES
        goal = (f"{LIMIT:.4g} x", "yes" if ratio <= LIMIT else "no") if is_goal else ("", "")
        lines.append(f"| {name} | {median:.3f} | {ratio:.2f} | {goal[0]} | {goal[1]} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
