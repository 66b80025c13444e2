"""The sources -> what holds the house together: its files in the order of the data, their sizes, what is too long.

`python -m house` prints the table of sizes; `--write` rewrites the list of files in README.
"""

from __future__ import annotations

import argparse
import ast
import re
import statistics
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]
TREES = ("exporter", "analyzer", "tests", "tools", "benchmarks")
START = "<!-- the files: `make files` writes what follows, from the sentence that each module opens with -->"
END = "<!-- end of the files -->"


@dataclass(frozen=True)
class Function:
    """A function or method from its `def` on, docstring included."""

    place: str
    name: str
    lines: int


@dataclass(frozen=True)
class Module:
    """A Python file of the repository."""

    path: Path

    @property
    def place(self) -> str:
        return self.path.relative_to(ROOT).as_posix()

    @property
    def name(self) -> str:
        parts = self.path.relative_to(ROOT).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @property
    def lines(self) -> int:
        return len(self.text.splitlines())

    @property
    def purpose(self) -> str:
        """The sentence that the module opens with, without its full stop."""
        paragraph = (ast.get_docstring(self.tree) or "").partition("\n\n")[0].replace("\n", " ")
        sentence = re.match(r"(.+?[.?])(?= |$)", paragraph)
        return sentence[1].removesuffix(".") if sentence else ""

    @property
    def functions(self) -> Iterator[Function]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield Function(self.place, node.name, (node.end_lineno or node.lineno) - node.lineno + 1)

    @property
    def imports(self) -> Iterator[str]:
        """What is imported when the module is: not what functions or type checkers import."""
        for node in self.tree.body:
            if isinstance(node, ast.ImportFrom) and node.module:
                yield from (f"{node.module}.{name.name}" for name in node.names)


def modules(*trees: str) -> list[Module]:
    """Every Python file of those folders, sorted by path."""
    return [Module(path) for tree in trees for path in sorted((ROOT / tree).rglob("*.py"))]


def in_order(found: list[Module]) -> list[Module]:
    """What is imported comes before what imports it; else by name."""
    named = {module.name: module for module in found}
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for module in found:
        asked = {name if name in named else name.rpartition(".")[0] for name in module.imports}
        sorter.add(module.name, *(asked & named.keys() - {module.name}))
    sorter.prepare()
    ordered = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready())
        ordered += ready
        sorter.done(*ready)
    return [named[name] for name in ordered]


def rooms() -> Iterator[tuple[str, list[Module]]]:
    """Folders and single files in the order of the data, as the import contracts state it, each with its modules."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    (flow,) = (contract for contract in contracts if contract["type"] == "layers")
    yield "exporter", in_order(modules("exporter"))
    names = [name.strip() for layer in reversed(flow["layers"]) for name in layer.split("|")] + ["__main__"]
    for name in names:
        folder = ROOT / "analyzer" / name
        single = folder.with_suffix(".py")
        yield (
            f"analyzer.{name}",
            [Module(single)] if single.exists() else in_order(modules(f"analyzer/{name}")),
        )


def files_table() -> str:
    """README's list: a row for each room, and for each file in it."""
    rows = ["| file | what it turns into what |", "|---|---|"]
    for name, found in rooms():
        room = name.replace(".", "/")
        for module in sorted(found, key=lambda module: module.name != name):
            if module.place == f"{room}/__init__.py":
                shown = f"**`{room}/`**"
            else:
                shown = f"`{module.place.removesuffix('/__init__.py').removeprefix('analyzer/')}`"
            rows.append(f"| {shown} | {module.purpose} |")
    return "\n".join(rows)


def sizes_table() -> str:
    """Files, lines and functions of each tree: how many, the median, the longest."""
    rows = [("", "files", "lines", "median", "longest", "functions", "median", "longest")]
    for tree in TREES:
        found = modules(tree)
        lines = [module.lines for module in found]
        functions = [function.lines for module in found for function in module.functions]
        numbers = [len(lines), sum(lines), statistics.median(lines), max(lines)]
        numbers += [len(functions), statistics.median(functions), max(functions)]
        rows.append((tree, *(f"{number:,.0f}" for number in numbers)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows
    )


def with_files(readme: str) -> str:
    """README with its list of files as it should be."""
    before, _, rest = readme.partition(START)
    return f"{before}{START}\n\n{files_table()}\n\n{END}{rest.partition(END)[2]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="rewrite the list of files in README")
    if parser.parse_args().write:
        page = ROOT / "README.md"
        page.write_text(with_files(page.read_text(encoding="utf-8")), encoding="utf-8")
        return
    sys.stdout.write(sizes_table() + "\n")


if __name__ == "__main__":
    main()
