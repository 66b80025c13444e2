"""Make and reconcile the cells of the matrix: `make matrix`, or `PYTHONPATH=tests python -m tools.matrix --help`.

Files are made once and stay below the folder, so that a second run only reconciles. After a change to the exporter,
remove the folder.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path

from tools.matrix.cells import Cell, Outcome, cells_of, make_and_run
from tools.matrix.report import render_markdown, summary_lines
from tools.matrix.residues import KNOWN, NOTHING

_MARKS = {"balanced": "ok", "failed": "FAILED", "not exported": "-", "not transformed": "-"}


def main() -> None:
    options = _arguments()
    cells = cells_of(tuple(options.only))
    if not cells:
        sys.exit(f"no cell fits {' or '.join(options.only)}; a name is <architecture>/<export>/<transform>")
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    exports = [tuple(group) for _, group in groupby(cells, lambda cell: (cell.architecture, cell.export))]

    def run(group: Sequence[Cell]) -> list[Outcome]:
        outcomes = make_and_run(folder, group, again=options.again)
        for outcome in outcomes:
            _print_line(_line(outcome))
        return outcomes

    with ThreadPoolExecutor(options.processes) as pool:
        outcomes = [outcome for group in pool.map(run, exports) for outcome in group]
    if options.markdown:
        options.markdown.write_text(render_markdown(outcomes), encoding="utf-8")
    if options.json:
        _write_json(outcomes, options.json)
    for line in summary_lines(outcomes):
        _print_line(line)
    unexpected = list(_unexpected(outcomes))
    for line in unexpected:
        _print_line(line)
    sys.exit(bool(unexpected))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.matrix", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="GLOB",
        help="cells whose name fits, as bert-masked-lm/static/fp16 or */legacy/int8*; may be repeated",
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path(os.environ.get("ONNXLEDGER_MATRIX", "build/matrix")),
        help="where the files are made and kept: $ONNXLEDGER_MATRIX, else build/matrix",
    )
    parser.add_argument("--again", action="store_true", help="try what could not be made before once more")
    parser.add_argument("--processes", type=int, default=2, metavar="N", help="how many cells at a time (2)")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables to this file")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every outcome to this file")
    return parser.parse_args()


def _line(outcome: Outcome) -> str:
    parts = [
        _MARKS.get(outcome.status) or _describe(outcome.elements),
        outcome.reason,
        ", ".join(name for residue in outcome.residue for name in residue.names[:3]),
    ]
    if outcome.checkpoint_elements != outcome.elements and outcome.exists:
        parts.append(f"against the checkpoint {_describe(outcome.checkpoint_elements)}")
    if outcome.recovered not in (None, "whole"):
        parts.append(f"recovered {outcome.recovered}")
    if outcome.exists and not outcome.counts_agree:
        parts.append(f"alone {outcome.alone:,} of {outcome.pytorch:,}")
    return f"{outcome.cell.name:44} {'  '.join(filter(None, parts))}"


def _describe(elements: Mapping[str, int]) -> str:
    return " + ".join(f"{count:,} {line}" for line, count in elements.items()) or "nothing"


def _unexpected(outcomes: Iterable[Outcome]) -> Iterator[str]:
    """Yield the outcomes that differ from `residues.py`."""
    for outcome in outcomes:
        name, known = outcome.cell.name, KNOWN.get(outcome.cell.name, NOTHING)
        if outcome.status == "failed":
            yield f"{name}: reconciling failed: {outcome.reason}"
        elif outcome.exists and outcome.elements != known.elements:
            yield f"{name}: leaves {_describe(outcome.elements)}, expected {_describe(known.elements)}"
        elif outcome.exists and outcome.checkpoint_elements != known.checkpoint_elements:
            yield (
                f"{name}: against the checkpoint leaves {_describe(outcome.checkpoint_elements)}, "
                f"expected {_describe(known.checkpoint_elements)}"
            )
        if outcome.recovered == "wrong":
            yield f"{name}: recovers values that PyTorch did not have"


def _write_json(outcomes: Sequence[Outcome], path: Path) -> None:
    rows = [{"name": outcome.cell.name, **dataclasses.asdict(outcome)} for outcome in outcomes]
    path.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def _print_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
