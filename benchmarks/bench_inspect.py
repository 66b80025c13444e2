"""CPU and memory of whole processes, side by side: `onnxledger inspect`, its imports alone, onnx.load, other tools.

Processes alternate, so that a noisy machine disturbs all alike; the ratios count. A run prints the measurements and the
goals that they meet, and always exits with 0, because machines differ.

    make bench ARGS="--rounds 3 --only bert,2gb"
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from contenders import (
    CPU_LIMIT,
    MEMORY_LIMIT,
    Contender,
    Failed,
    Imports,
    Used,
    contenders,
    imports_of_inspect,
    measure,
    read_count,
)

# Nothing heavy is imported here, because a child's peak memory includes what its parent held at the fork. For the same
# reason, separate processes make the models.

ROOT = Path(__file__).resolve().parent.parent
FILES = ("bert", "2gb", "6gb", "nodes", "tensors", "constants", "3gb")
COLUMNS = ("", "CPU s", "x imports", "x onnx.load", "peak MiB", "over imports", "parameters")
INSPECT, IMPORTS, LOAD, OPCOUNTER = "onnxledger inspect", "its imports alone", "onnx.load", "onnx_opcounter"


@dataclass(frozen=True, slots=True)
class Result:
    """Medians of a contender's runs, and the parameter count that it printed."""

    used: Used
    count: int | None


Results = dict[str, Result | Failed]


def main() -> None:
    options = arguments()
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(ROOT))))
    build = ROOT / "build"  # on the checkout's disk: if /tmp is in memory, 6 GB there would take memory, too
    build.mkdir(exist_ok=True)
    results: dict[str, Results] = {}
    sections: list[str] = []

    def report(section: str) -> None:
        print(section, end="\n\n", flush=True)
        sections.append(section)

    with tempfile.TemporaryDirectory(prefix="bench-", dir=build) as folder:
        models = (options.keep or Path(folder)).absolute()
        if reason := make("tiny", models):
            raise SystemExit(reason)
        imports = imports_of_inspect(models / "tiny.onnx")
        report(introduction(imports, options.rounds))
        for name in options.only:
            if reason := make(name, models):
                report(f"## {name}\n\nLeft out, as it could not be made: {reason}")
                continue
            print(f"measuring {name}", file=sys.stderr)
            found = contenders(models / f"{name}.onnx", imports, options.peers.absolute())
            results[name] = measure_all(found, options.rounds, Path(folder, "output"))
            title = (models / f"{name}.txt").read_text().strip()
            report(f"## {name}: {title}\n\n{render_results(results[name], models)}")
            if not options.keep:
                for file in models.glob(f"{name}.*"):
                    file.unlink()
    report(f"## Goals\n\n{table(('goal', 'measured', 'limit', 'met'), list(verdicts(results)))}")
    if options.markdown:
        options.markdown.write_text("\n\n".join(sections) + "\n")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--rounds", type=int, default=5, help="runs of each process, of which the median counts"
    )
    parser.add_argument("--only", type=lambda names: names.split(","), default=FILES, help=",".join(FILES))
    parser.add_argument("--keep", type=Path, help="folder of model files to use again; made there if absent")
    parser.add_argument("--markdown", type=Path, help="write what is printed to this file too")
    parser.add_argument(
        "--peers", type=Path, default=ROOT / ".venv-bench" / "bin", help="where other tools are"
    )
    options = parser.parse_args()
    if unknown := set(options.only) - set(FILES):
        parser.error(f"no such file: {', '.join(sorted(unknown))}; there are {', '.join(FILES)}")
    return options


def make(name: str, folder: Path) -> str:
    """Make a model file unless it exists; return the error, or ""."""
    if (folder / f"{name}.txt").exists():
        return ""
    print(f"making {name}", file=sys.stderr)
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, str(ROOT / "benchmarks" / "large_models.py"), name, str(folder)]
    run = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    return run.stderr.strip().rpartition("\n")[2] if run.returncode else ""


def measure_all(found: list[Contender], rounds: int, output: Path) -> Results:
    """Run each contender `rounds` times, in turn; a contender that fails is not tried again."""
    runs: dict[str, list[Used]] = {contender.name: [] for contender in found}
    counts: dict[str, int | None] = {}
    failed: dict[str, Failed] = {}
    for _ in range(rounds):
        for contender in found:
            if contender.name in failed:
                continue
            match measure(contender.command, output):
                case Failed() as failure:
                    failed[contender.name] = failure
                case used:
                    runs[contender.name].append(used)
                    if contender.count and contender.name not in counts:
                        counts[contender.name] = read_count(contender.count, output)
    return {name: failed.get(name) or Result(median(used), counts.get(name)) for name, used in runs.items()}


def median(runs: list[Used]) -> Used:
    return Used(statistics.median(run.cpu for run in runs), statistics.median(run.peak for run in runs))


def introduction(imports: Imports, rounds: int) -> str:
    lines = [
        f"# CPU and memory of whole processes, medians of {rounds} alternating rounds",
        f"Python {platform.python_version()}, onnx {version('onnx')}, {platform.machine()}, {os.cpu_count()} cores. "
        f"A run is stopped after {CPU_LIMIT} s CPU, or where it asks for over {MEMORY_LIMIT / 2**30:.1f} GiB.",
        f"`{IMPORTS}` loads the {imports.loaded} modules that an inspect loads: "
        f"`import {', '.join(imports.modules)}`",
    ]
    if imports.differing:
        lines.append(f"Loaded by one of the two only: {', '.join(imports.differing)}")
    return "\n\n".join(lines)


def render_results(results: Results, models: Path) -> str:
    """Return the table of one file, and below it the reasons of contenders that failed."""
    imports, load = results[IMPORTS], results[LOAD]
    rows, notes = [], []
    for name, result in results.items():
        if isinstance(result, Failed):
            rows.append((name, "fails", "", "", "", "", ""))
            notes.append(f"- {name}: {result.reason.replace(f'{models}/', '')}")
            continue
        used = result.used
        rows.append(
            (
                name,
                f"{used.cpu:.2f}",
                f"{used.cpu / imports.used.cpu:.2f}" if isinstance(imports, Result) else "",
                f"{used.cpu / load.used.cpu:.2f}" if isinstance(load, Result) else "",
                f"{used.peak:,.0f}",
                f"{used.peak - imports.used.peak:+,.0f}" if isinstance(imports, Result) else "",
                "" if result.count is None else f"{result.count:,}",
            )
        )
    return "\n".join([table(COLUMNS, rows), *([""] if notes else []), *notes])


def verdicts(results: dict[str, Results]) -> Iterator[tuple[str, str, str, str]]:
    """Yield each goal with its measurement."""

    def used(file: str, contender: str) -> Used:
        result = results.get(file, {}).get(contender)
        return result.used if isinstance(result, Result) else Used(math.nan, math.nan)

    bert, two, nodes = (used(file, INSPECT) for file in ("bert", "2gb", "nodes"))
    bert_imports, nodes_imports = used("bert", IMPORTS), used("nodes", IMPORTS)
    goals = (
        ("bert: CPU, as a multiple of its imports", bert.cpu / bert_imports.cpu, 1.3, "x"),
        ("bert: peak memory over its imports", bert.peak - bert_imports.peak, 25, "MiB"),
        ("bert: CPU, as a part of onnx_opcounter's", bert.cpu / used("bert", OPCOUNTER).cpu, 1 / 2, "x"),
        ("2gb: CPU, as a multiple of bert's", two.cpu / bert.cpu, 1.1, "x"),
        ("2gb: CPU, as a part of onnx_opcounter's", two.cpu / used("2gb", OPCOUNTER).cpu, 1 / 6, "x"),
        ("nodes: CPU over its imports", nodes.cpu - nodes_imports.cpu, 1.5, "s"),
        ("nodes: peak memory", nodes.peak, 400, "MiB"),
    )
    for goal, value, limit, unit in goals:
        if math.isnan(value):
            yield goal, "not measured", f"{limit:.4g} {unit}", ""
        else:
            yield goal, f"{value:.2f} {unit}", f"{limit:.4g} {unit}", "yes" if value <= limit else "no"


def table(header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Return a Markdown table with aligned columns, the first to the left and the others to the right."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]

    def line(cells: tuple[str, ...]) -> str:
        first, *others = zip(cells, widths, strict=True)
        return (
            " | ".join([f"| {first[0]:{first[1]}}", *(f"{cell:>{width}}" for cell, width in others)]) + " |"
        )

    rule = (
        "|-" + "|-".join(f"{'-' * width}{':' if index else '-'}" for index, width in enumerate(widths)) + "|"
    )
    return "\n".join([line(header), rule, *map(line, rows)])


if __name__ == "__main__":
    main()
