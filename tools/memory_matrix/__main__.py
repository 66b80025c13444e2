"""Plan and run the files below a folder, and write the differences: `make memory-matrix`.

The files are those that `make matrix` has made; each is run at three sets of sizes, in three ways.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from tools.memory_matrix.cells import WAYS, Cell, compare_file
from tools.suite.marks import write_between


def main() -> None:
    """Compare every file, print the differences, and write the table."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.memory_matrix", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("folder", type=Path, help="files are sought below it")
    parser.add_argument("--only", default="", help="part of a path that files must have")
    parser.add_argument("--markdown", type=Path, help="the page whose table is written")
    options = parser.parse_args()
    cells = []
    for path in sorted(options.folder.rglob("*.onnx")):
        name = str(path.relative_to(options.folder))
        if options.only not in name:
            continue
        for cell in compare_file(path, name):
            cells.append(cell)
            if not cell.is_equal:
                sys.stdout.write(f"{cell.file} | {cell.way} | {cell.sizes} | {_describe(cell)}\n")
                sys.stdout.flush()
    text = "\n".join(render(cells)) + "\n"
    sys.stdout.write(text)
    if options.markdown:
        write_between(options.markdown, "measured", text)


def _describe(cell: Cell) -> str:
    if cell.equal is None:
        return cell.first
    return f"{cell.equal} of {cell.nodes} nodes; peak {cell.planned:,} of {cell.requested:,}; {cell.first}"


def render(cells: Sequence[Cell]) -> Iterable[str]:
    """Yield the lines of the table, and of the differences."""
    ran = [cell for cell in cells if not cell.first.startswith("not run")]
    yield "| Planned | Runs | Equal after every node | Peak equal | Peak below | Not known |"
    yield "|---|---:|---:|---:|---:|---:|"
    for way in WAYS:
        these = [cell for cell in ran if cell.way == way]
        known = [cell for cell in these if cell.equal is not None]
        yield (
            f"| {way} | {len(these):,} | {sum(cell.is_equal for cell in these):,} "
            f"| {sum(cell.planned == cell.requested for cell in known):,} "
            f"| {sum((cell.planned or 0) < (cell.requested or 0) for cell in known)} | {len(these) - len(known)} |"
        )
    not_run = sorted({cell.file for cell in cells if cell.first.startswith("not run")})
    yield ""
    yield f"{len({cell.file for cell in ran})} files; onnxruntime does not run {len(not_run)}."
    yield ""
    unknown = Counter(file.partition("/")[0] for file in {cell.file for cell in ran if cell.equal is None})
    for name, count in sorted(unknown.items()):
        yield f"Of {name} {count} file{'s' * (count != 1)} have buffers of sizes that are unknown before the run."
    if not any(cell.equal is not None and not cell.is_equal for cell in ran):
        return
    yield ""
    yield "Where not equal, at the first sizes:"
    yield ""
    yield "| File | Planned | Nodes equal | Peak planned | Peak asked for | First difference |"
    yield "|---|---|---:|---:|---:|---|"
    seen = set()
    for cell in ran:
        if cell.is_equal or cell.equal is None or (cell.file, cell.way) in seen:
            continue
        seen.add((cell.file, cell.way))
        yield (
            f"| {cell.file} | {cell.way} | {cell.equal} of {cell.nodes} | {cell.planned:,} | {cell.requested or 0:,} "
            f"| {cell.first} |"
        )


if __name__ == "__main__":
    main()
