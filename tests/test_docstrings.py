"""Docstrings of public names state the errors that a function raises, and the units that a record counts."""

from __future__ import annotations

import ast
import builtins
import dataclasses
import importlib
import inspect
import itertools
import pkgutil
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import pytest

import analyzer
import exporter
from analyzer import errors
from analyzer.errors import LedgerError, OnnxLedgerError, UsageError

ROOT = Path(__file__).parents[1]
QUESTION = re.compile(r"(?:What|Which|Where|Who|How|Of)\b")
"""Words that begin a relative clause, or a question."""

Function: TypeAlias = Callable[..., Any]
Scope: TypeAlias = Mapping[str, Any]


def name_of(value: ModuleType | str) -> str:
    return value if isinstance(value, str) else value.__name__


everyone = pytest.mark.parametrize(
    ("package", "name"),
    [
        *((analyzer, name) for name in analyzer.__all__ if name.islower()),
        *(
            pytest.param(exporter, name, marks=pytest.mark.export)
            for name in exporter.__all__
            if name.islower()
        ),
    ],
    ids=name_of,
)


# errors

NEVER = {
    "analyzer": {
        "list_contributors",  # passes a valid key of groups
        "check_formula",  # asks `reconcile_ledger` for names only, and passes some
        "list_groups",  # passes the key of a grouping
    },
    "exporter": {
        "read_source_config",  # passes a factory no options that could contradict each other
    },
}
"""Functions that call one that raises `UsageError`, but cannot cause the error."""


@pytest.mark.parametrize("package", [analyzer, pytest.param(exporter, marks=pytest.mark.export)], ids=name_of)
def test_every_function_that_a_module_offers_says_what_it_raises(package: ModuleType) -> None:
    silent = {
        (function.__name__, each)
        for function in offered(package)
        for each in raised(function, set())
        if not issubclass(each, tuple(declared(function)))
    }

    assert silent == {(name, UsageError) for name in NEVER[package.__name__]}


@pytest.mark.parametrize("folder", ["analyzer", "exporter", "tools", "tests", "benchmarks"])
def test_every_docstring_begins_with_a_noun_or_a_verb_and_no_constant_is_defined_twice(folder: str) -> None:
    """Only a command may ask a question, which `--help` answers."""
    wrong = []
    for path in sorted((ROOT / folder).rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        texts = [
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ]
        for text in texts:
            first = str(text.value).partition("\n")[0]
            if QUESTION.match(first) and "?" not in first:
                wrong.append(f"{path.relative_to(ROOT)}:{text.lineno}: {first}")
        constants = [
            target.id
            for node in tree.body
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
            if isinstance(target, ast.Name)
        ]
        twice = {name for name in constants if constants.count(name) > 1}
        wrong += [f"{path.relative_to(ROOT)}: {name} is defined twice" for name in sorted(twice)]

    assert wrong == []


@everyone
def test_what_a_docstring_says_of_arguments_is_in_their_order(package: ModuleType, name: str) -> None:
    function = getattr(package, name)
    described = section(function, "Args")

    assert inspect.getdoc(function)
    assert described == [each for each in inspect.signature(function).parameters if each in described]


def offered(package: ModuleType) -> Iterator[Function]:
    """Yield the functions of each module whose names do not begin with an underscore."""
    for module in modules(package):
        for name, found in list(vars(module).items()):
            if inspect.isfunction(found) and found.__module__ == module.__name__ and not name.startswith("_"):
                yield found


def modules(package: ModuleType) -> list[ModuleType]:
    """Import every module of a package except programs and commands, which leave errors to `analyzer.cli`."""
    names = [module.name for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")]
    return [
        importlib.import_module(name)
        for name in names
        if not name.endswith("__main__") and not name.startswith("analyzer.commands")
    ]


def section(function: Function, title: str) -> list[str]:
    """Return the names before the colons in a section of a docstring."""
    _, _, text = (inspect.getdoc(function) or "").partition(f"\n{title}:\n")
    found = re.findall(r"^    (\w[\w, ]*): ", text.partition("\n\n")[0], re.MULTILINE)
    return [name for names in found for name in names.split(", ")]


def declared(function: Function) -> Iterator[type[BaseException]]:
    """Yield onnxledger's errors that a docstring names."""
    for name in section(function, "Raises"):
        found = getattr(errors, name, None) or vars(sys.modules[function.__module__]).get(name)
        if isinstance(found, type) and issubclass(found, OnnxLedgerError):
            yield found


def raised(function: Function, seen: set[Function]) -> Iterator[type[BaseException]]:
    """Yield onnxledger's errors that a function raises, and those that the functions it calls declare.

    Private functions need not declare errors, so they are read in turn; methods are not examined. A function must
    declare a `LedgerError`, which is a defect, only if it raises the error itself.
    """
    if function not in seen:
        seen.add(function)
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
        scope = {**vars(builtins), **vars(sys.modules[function.__module__]), **imported(tree)}
        yield from _raised(tree, scope, seen)


def imported(tree: ast.AST) -> dict[str, Any]:
    """Return the onnxledger names that a function imports inside itself."""
    return {
        alias.asname or alias.name: getattr(importlib.import_module(node.module or ""), alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("analyzer", "exporter"))
        for alias in node.names
    }


def _raised(node: ast.AST, scope: Scope, seen: set[Function]) -> Iterator[type[BaseException]]:
    children: list[ast.AST] = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.Try):
        caught = tuple(each for handler in node.handlers for each in caught_by(handler, scope))
        for inner in node.body:
            yield from (each for each in _raised(inner, scope, seen) if not issubclass(each, caught))
        children = [*node.handlers, *node.orelse, *node.finalbody]
    elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
        found = scope.get(ast.unparse(node.exc.func))
        if isinstance(found, type) and issubclass(found, OnnxLedgerError):
            yield found
    elif isinstance(node, ast.Call):
        called = [node.func.body, node.func.orelse] if isinstance(node.func, ast.IfExp) else [node.func]
        for callee in (scope.get(ast.unparse(each)) for each in called):
            if inspect.isfunction(callee) and callee.__module__.startswith(("analyzer", "exporter")):
                if callee.__name__.startswith("_"):
                    yield from raised(callee, seen)
                else:
                    yield from (each for each in declared(callee) if each is not LedgerError)
    for child in children:
        yield from _raised(child, scope, seen)


def caught_by(handler: ast.ExceptHandler, scope: Scope) -> Iterator[type[BaseException]]:
    classes = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    for found in (scope.get(ast.unparse(each)) for each in classes if each is not None):
        if isinstance(found, type) and issubclass(found, BaseException):
            yield found


# units

UNITS = {
    r"nbytes": "bytes",
    r"(^|_)ms$|^(mean|median|p90|p99|min)$": "milliseconds",
    r"seconds": "seconds",
    r"elements|numel|parameters|^(trainable|frozen)$": "elements",
}
"""Unit of numbers by a pattern of their names, as their docstring or their class's states it."""

NUMBER = re.compile(r"(int|float|Pair\[(int|float)\]|_N)( \| None)?")


def test_every_number_of_a_record_says_what_it_counts() -> None:
    wrong = {}
    records = reached(getattr(analyzer, name) for name in analyzer.__all__)

    for record in records:
        (tree,) = ast.parse(inspect.getsource(record)).body
        assert isinstance(tree, ast.ClassDef)
        docstring = ast.get_docstring(tree) or ""
        bare = [field for field, own in numbers(tree) if not own and f"`{field}`" not in docstring]
        unitless = [
            field
            for field, own in numbers(tree)
            for pattern, unit in UNITS.items()
            if re.search(pattern, field) and unit not in f"{own} {docstring}".lower()
        ]
        if bare or unitless:
            wrong[record.__qualname__] = (bare, unitless)

    assert len(records) > 90
    assert wrong == {}


def reached(offered: Iterable[object]) -> list[type]:
    """Return onnxledger's records among these, and those that their fields name."""
    every = {name: found for module in modules(analyzer) for name, found in vars(module).items()}
    records: list[type] = []
    left = list(offered)
    while left:
        found = left.pop()
        if isinstance(found, type) and dataclasses.is_dataclass(found) and found not in records:
            records.append(found)
            scope = {**every, **vars(sys.modules[found.__module__])}
            left += [scope.get(name) for name in re.findall(r"\w+", str(found.__annotations__))]
    return records


def numbers(record: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Yield the numeric fields and properties of a record, each with its docstring."""
    for node, after in itertools.zip_longest(record.body, record.body[1:]):
        if isinstance(node, ast.AnnAssign) and NUMBER.fullmatch(ast.unparse(node.annotation)):
            has_docstring = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            yield ast.unparse(node.target), ast.unparse(after) if has_docstring else ""
        elif isinstance(node, ast.FunctionDef) and [*map(ast.unparse, node.decorator_list)] == ["property"]:
            if node.returns is None or not NUMBER.fullmatch(ast.unparse(node.returns)):
                continue
            yield node.name, ast.get_docstring(node) or ""
