"""Make and reconcile the cells of the wide matrix: `make matrix-wide`, or `python -m tools.matrix.wide --help`.

Files are made once and stay below the folder, so that a second run only reconciles. Cells that need a package that is
not installed are `not run`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # one core for each cell

from tools.matrix.isolated import PRELOADED, preload
from tools.matrix.wide.account import Outcome
from tools.matrix.wide.cells import is_tried, make_and_run
from tools.matrix.wide.plan import cells_of
from tools.matrix.wide.report import line_of, render_markdown, summary_lines


def main() -> None:
    options = _arguments()
    cells = cells_of(tuple(options.only))
    if not cells:
        sys.exit(f"no cell fits {' or '.join(options.only)}; a name is <architecture>/<export>/<tool>")
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    preload(("tools.matrix.wide.extras", *PRELOADED, "tools.matrix.wide.account", "tools.matrix.wide.tools"))
    groups = [tuple(group) for _, group in groupby(cells, lambda cell: cell.architecture)]
    if options.made:
        groups = [group for group in groups if all(is_tried(folder, cell) for cell in group)]

    def run(group: Sequence[object]) -> list[Outcome]:
        outcomes = make_and_run(folder, group, again=options.again)  # type: ignore[arg-type]
        for outcome in outcomes:
            _print_line(line_of(outcome))
        return outcomes

    outcomes: list[Outcome] = []
    with ThreadPoolExecutor(options.processes) as pool:
        for found in pool.map(run, groups):
            outcomes += found
            if options.json:  # an interrupted long run keeps its results
                rows = [{"name": outcome.cell.name, **dataclasses.asdict(outcome)} for outcome in outcomes]
                options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
            if options.markdown:
                options.markdown.write_text(render_markdown(outcomes), encoding="utf-8")
    for line in summary_lines(outcomes):
        _print_line(line)
    sys.exit(any(negative.balanced for outcome in outcomes for negative in outcome.negatives))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tools.matrix.wide", description=__doc__.partition("\n")[0]
    )
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="GLOB",
        help="cells whose name fits, as detr/* or */legacy/ort-*; may be repeated",
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=Path(os.environ.get("ONNXLEDGER_MATRIX_WIDE", "build/matrix-wide")),
        help="where the files are made and kept: $ONNXLEDGER_MATRIX_WIDE, else build/matrix-wide",
    )
    parser.add_argument(
        "--made", action="store_true", help="only architectures whose files were all made, or tried, before"
    )
    parser.add_argument("--again", action="store_true", help="try what could not be made before once more")
    parser.add_argument("--processes", type=int, default=2, metavar="N", help="architectures at a time (2)")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables to this file")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every outcome to this file")
    return parser.parse_args()


def _print_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
