"""Compare the files below folders with onnxruntime's runs, and write the differences: `make cost-matrix`.

The files are those that `make matrix` and `make matrix-wide` have made, each run at three sets of sizes. `--peers`
names a Python interpreter with other tools, which count the first sizes, too.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tools.cost_matrix.cells import Cell, Verdict, compare_file
from tools.cost_matrix.peers import PEERS, Count, judge, query_peers
from tools.suite.marks import write_between

_EXPORTS = {
    "dynamic": "torch.onnx, dynamo, free axes",
    "static": "torch.onnx, dynamo, fixed axes",
    "fused": "torch.onnx, dynamo, fused for onnxruntime",
    "dynamo": "torch.onnx, dynamo, not optimized",
    "legacy": "torch.onnx, TorchScript",
    "own": "torch.onnx, dynamo, free axes",
    "own-legacy": "torch.onnx, TorchScript",
    "dynamo-raw": "torch.onnx, dynamo, not optimized",
    "legacy-raw": "torch.onnx, TorchScript",
}
"""Kind of export of the files in a folder, by the folder's name."""


@dataclass(frozen=True, slots=True)
class ComparedFile:
    """A file, and other tools' counts of it."""

    cell: Cell
    path: Path
    peers: Mapping[str, str]

    @property
    def export(self) -> str:
        return _EXPORTS.get(self.path.parent.name, "other files")

    @property
    def form(self) -> str:
        return "as exported" if self.path.stem == "model" else self.path.stem


def main() -> None:
    """Compare every file, print the inexact ones, and write the tables."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.cost_matrix", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("folders", type=Path, nargs="+", help="files are sought below them")
    parser.add_argument("--only", default="", help="part of a path that files must have")
    parser.add_argument("--peers", type=Path, help="an interpreter that has onnxsim and onnx-tool")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="ask them for every N-th file (1)")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--markdown", type=Path, help="the page whose tables are written")
    parser.add_argument("--json", type=Path, help="write every outcome to this file")
    options = parser.parse_args()
    paths = [
        path
        for folder in options.folders
        for path in sorted(folder.rglob("*.onnx"))
        if options.only in str(path) and not path.name.startswith(".")
    ]
    entries = []
    with ProcessPoolExecutor(options.processes) as pool:
        for entry in pool.map(partial(_compare, options.peers, options.every), enumerate(paths)):
            entries.append(entry)
            if entry.cell.verdict is not Verdict.EXACT:
                sys.stdout.write(f"{entry.cell.file} | {entry.cell.verdict} | {entry.cell.why}\n")
                sys.stdout.flush()
    text = "\n".join(render(entries)) + "\n"
    sys.stdout.write(text)
    if options.json:
        rows = [
            {"file": entry.cell.file, "verdict": entry.cell.verdict, "why": entry.cell.why, **entry.peers}
            for entry in entries
        ]
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    if options.markdown:
        write_between(options.markdown, "measured", text)


def _compare(python: Path | None, every: int, numbered: tuple[int, Path]) -> ComparedFile:
    number, path = numbered
    cell = compare_file(path, str(path))
    peer_counts: Mapping[str, str] = {}
    if python is not None and not number % every and cell.points and cell.inputs is not None:
        peer_counts = query_peers(python, path, cell.inputs)
    return ComparedFile(cell, path, peer_counts)


def render(entries: Sequence[ComparedFile]) -> Iterator[str]:
    """Yield the tables: by export and form, other tools, and the files with unknown or wrong counts."""
    ran = [one for one in entries if one.cell.verdict is not Verdict.NOT_RUN]
    runs = sum(len(one.cell.points) for one in ran)
    shapes = sum(point.compared.values for one in ran for point in one.cell.points)
    not_run = len(entries) - len(ran)
    yield f"{len(ran):,} files, {runs:,} runs, {shapes:,} shapes; onnxruntime does not run {not_run} other files."
    for title, key in (("Export", "export"), ("Form", "form")):
        yield ""
        yield f"| {title} | Files | Exact at all sizes | Unknown work named | Wrong |"
        yield "|---|---:|---:|---:|---:|"
        yield from _rows(ran, key)
    counted = [one for one in ran if one.peers and one.cell.points[0].macs is not None]
    if counted:
        yield ""
        yield f"Of {len(counted):,} files whose first run could be counted, their inputs' sizes written into them:"
        yield ""
        yield "| Tool | " + " | ".join(count.value.capitalize() for count in Count) + " |"
        yield "|---|" + "---:|" * len(Count)
        ours = Counter(_judge_own(one) for one in counted)
        yield "| onnxledger | " + " | ".join(str(ours[count]) for count in Count) + " |"
        for peer in PEERS:
            found = Counter(
                judge(one.peers[peer], one.cell.points[0].macs or 0, one.cell.axes or {}) for one in counted
            )
            yield f"| {peer} | " + " | ".join(str(found[count]) for count in Count) + " |"
    inexact = defaultdict(list)
    for one in ran:
        if one.cell.verdict is not Verdict.EXACT:
            inexact[one.cell.verdict, one.cell.why].append(one)
    if inexact:
        yield ""
        yield "| Not exact | Files | Why |"
        yield "|---|---:|---|"
        for (verdict, why), group in sorted(inexact.items(), key=lambda item: -len(item[1])):
            yield f"| {verdict} | {len(group)} | {why.replace('|', '/')} |"


def _judge_own(one: ComparedFile) -> Count:
    if one.cell.verdict is Verdict.WRONG:
        return Count.WRONG
    point = one.cell.points[0]
    return Count.EXACT if point.predicted == point.macs else Count.OPEN


def _rows(ran: Iterable[ComparedFile], key: str) -> Iterator[str]:
    verdicts: dict[str, Counter[Verdict]] = defaultdict(Counter)
    for one in ran:
        verdicts[getattr(one, key)][one.cell.verdict] += 1
    for name, found in verdicts.items():
        cells = (sum(found.values()), found[Verdict.EXACT], found[Verdict.NAMED], found[Verdict.WRONG])
        yield f"| {name} | " + " | ".join(map(str, cells)) + " |"


if __name__ == "__main__":
    main()
