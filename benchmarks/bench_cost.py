"""CPU and memory of whole processes, side by side: `onnxledger inspect` and `onnxledger cost` of the same file.

Processes alternate, so that a noisy machine disturbs all alike; the differences and ratios count.

    python benchmarks/bench_cost.py --bert DIR/model.onnx --rounds 3 --markdown docs/cost.md

The other files are generated, and take a third of the rounds: a chain of 100,000 nodes, and Llama-like decoders with as
many nodes in repeated layers, whose weights are a sparse file. One of them has keys and values of every layer as inputs
and outputs.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from contenders import Failed, Used, measure

ROOT = Path(__file__).resolve().parent.parent
MARK, AFTER = "<!-- cost of cost -->", "<!-- end of cost of cost -->"
BERT = "BERT-base"
LAYERS = 4_167
"""Number of layers, with 24 or 25 nodes each."""


@dataclass(frozen=True, slots=True)
class File:
    """A file to measure."""

    title: str
    path: Path
    shape: str


def main() -> None:
    """Print the table, and write it into a page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--bert", type=Path, help="an export of bert-base-uncased")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory", action="store_true", help="ask for `--memory` too, which takes longer")
    parser.add_argument("--markdown", type=Path, help="the page whose table is written")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        rows = list(table(list(files(folder, options.bert)), options.rounds, folder, memory=options.memory))
    print("\n".join(rows))
    if options.markdown:
        page = options.markdown.read_text(encoding="utf-8")
        before, _, rest = page.partition(MARK)
        after = rest.partition(AFTER)[2]
        text = "\n".join(rows)
        options.markdown.write_text(f"{before}{MARK}\n\n{text}\n\n{AFTER}{after}", encoding="utf-8")


def files(folder: Path, bert: Path | None) -> Iterator[File]:
    """Make the files in separate processes, because a child's peak memory includes what its parent held."""
    if bert is not None:
        yield File(BERT, bert.absolute(), "batch=1,sequence=128")
    make = [sys.executable, str(ROOT / "benchmarks" / "large_models.py"), "nodes", str(folder)]
    subprocess.run(make, check=True, cwd=ROOT)
    yield File("a chain of 100,000 nodes", folder / "nodes.onnx", "")
    for title, caches in (("a decoder of 104,178 nodes", False), ("the same with 8,334 caches", True)):
        inner = folder / ("cached" if caches else "plain")
        inner.mkdir()
        code = (
            "import sys; from pathlib import Path; from tools.cost_matrix.shaped import Decoder, write_decoder; "
            f"write_decoder(Decoder(64, {LAYERS}, 4, 2, 128, 1000), Path(sys.argv[1]), has_cache={caches})"
        )
        subprocess.run([sys.executable, "-c", code, str(inner)], check=True, cwd=ROOT)
        yield File(title, inner / "model.onnx", "batch=1,sequence=8")


def table(found: list[File], rounds: int, folder: Path, *, memory: bool) -> Iterator[str]:
    """Yield the lines: medians of the CPU seconds, and of the differences to `inspect` in the same round."""
    yield "| file | `inspect` | `cost` | more | ratio | `cost --shape` | more | `cost --memory` | more | most memory |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
    for file in found:
        sized = ["--shape", file.shape] if file.shape else []
        commands = {"inspect": ["inspect"], "cost": ["cost"], "shape": ["cost", *sized]}
        if memory:
            commands["memory"] = ["cost", *sized, "--memory", "64GiB"]
        runs: dict[str, list[Used]] = {name: [] for name in commands}
        for _ in range(rounds if file.title == BERT else -(-rounds // 3)):
            for name, command in commands.items():
                whole = (sys.executable, "-m", "analyzer", *command, str(file.path))
                used = measure(whole, folder / "output")
                if isinstance(used, Failed):
                    sys.stderr.write(f"{file.title}: {name}: {used.reason}\n")
                    continue
                runs[name].append(used)
        yield row(file.title, runs)


def row(title: str, runs: dict[str, list[Used]]) -> str:
    """Return one line of the table."""

    def format_median(name: str) -> str:
        found = runs.get(name)
        return f"{statistics.median(each.cpu for each in found):.2f} s" if found else "-"

    def format_difference(name: str) -> str:
        pairs = list(zip(runs["inspect"], runs.get(name, ()), strict=False))
        return f"{statistics.median(b.cpu - a.cpu for a, b in pairs):+.2f} s" if pairs else "-"

    pairs = list(zip(runs["inspect"], runs["cost"], strict=False))
    ratio = f"{statistics.median(b.cpu / a.cpu for a, b in pairs):.2f}" if pairs else "-"
    peak = max((each.peak for found in runs.values() for each in found), default=0)
    cells = [title, format_median("inspect"), format_median("cost"), format_difference("cost"), ratio]
    cells += [
        format_median("shape"),
        format_difference("shape"),
        format_median("memory"),
        format_difference("memory"),
        f"{peak:,.0f} MiB" if peak else "-",
    ]
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()
