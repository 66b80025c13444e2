"""Size of the code base: files, lines and functions, the share of imports, and private functions used once.

`make sizes` prints the trees; `python -m tools.sizes analyzer/timing exporter` prints those folders or files.
"""

from __future__ import annotations

import ast
import re
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TREES = ("exporter", "analyzer", "tests", "tools", "benchmarks")
HEADER = (
    "",
    "files",
    "lines",
    "median",
    "longest",
    "functions",
    "median",
    "longest",
    "imports",
    "named once",
)


def measure(name: str, paths: Sequence[Path]) -> tuple[str, ...]:
    """Return the table row of some files. Functions are counted from `def` to their end, docstrings included."""
    texts = [path.read_text(encoding="utf-8") for path in paths]
    trees = [ast.parse(text) for text in texts]
    lines = [len(text.splitlines()) for text in texts]
    functions = [
        _height(node)
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    imports = [
        node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    lists = [node for tree in trees for node in tree.body if ast.unparse(node).startswith("__all__ = ")]
    used = [count for pair in zip(texts, trees, strict=True) for count in _uses_of_private(*pair)]
    return (
        name,
        f"{len(paths):,}",
        f"{sum(lines):,}",
        f"{statistics.median(lines):,.0f}",
        f"{max(lines):,}",
        f"{len(functions):,}",
        f"{statistics.median(functions or [0]):,.0f}",
        f"{max(functions, default=0):,}",
        f"{sum(map(_height, [*imports, *lists])) / max(1, sum(lines)):.1%}",
        f"{used.count(1):,} of {len(used):,}",
    )


def _height(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _uses_of_private(text: str, tree: ast.Module) -> Iterator[int]:
    """Yield the number of times that each private function of a module is named outside its definition line."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("_"):
            yield len(re.findall(rf"(?<!\w){re.escape(node.name)}(?!\w)", text)) - 1


def main(names: Sequence[str]) -> None:
    """Print a row for each folder or file."""
    rows: list[tuple[str, ...]] = [HEADER]
    for name in names or TREES:
        path = ROOT / name
        rows.append(measure(name, [path] if path.is_file() else sorted(path.rglob("*.py"))))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *rest in rows:
        cells = [first.ljust(widths[0]), *map(str.rjust, rest, widths[1:])]
        sys.stdout.write("  ".join(cells) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
