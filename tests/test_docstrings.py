"""What docstrings of public names tell: the errors that a function raises, the units of what a record counts."""

from __future__ import annotations

import ast
import builtins
import dataclasses
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

import analyzer
import exporter
from analyzer import errors
from analyzer.errors import OnnxLedgerError

FUNCTIONS = {
    f"{package.__name__}.{name}": found
    for package in (analyzer, exporter)
    for name in package.__all__
    if inspect.isfunction(found := getattr(package, name))
}

everyone = pytest.mark.parametrize("name", FUNCTIONS)


# what is raised


def told(function: Callable[..., Any]) -> set[str]:
    """The exceptions in the section `Raises:` of a docstring."""
    _, _, section = (inspect.getdoc(function) or "").partition("\nRaises:\n")
    return set(re.findall(r"^    (\w+): ", section.partition("\n\n")[0], re.MULTILINE))


def class_of(name: str) -> type[BaseException]:
    found: type[BaseException] = getattr(errors, name, None) or getattr(builtins, name)
    return found


def body_of(function: Callable[..., Any]) -> ast.AST:
    return ast.parse(textwrap.dedent(inspect.getsource(function)))


def is_ours(found: object) -> bool:
    return inspect.isfunction(found) and found.__module__.partition(".")[0] in ("analyzer", "exporter")


def raised(function: Callable[..., Any], *, calls: bool = True) -> Iterator[str]:
    """The errors of ours that a function raises or that what it calls says it raises, but for what it catches."""
    scope = {**vars(sys.modules[function.__module__]), **imported(function)}
    yield from _raised(body_of(function), scope, calls)


def imported(function: Callable[..., Any]) -> dict[str, object]:
    """What a function imports inside itself."""
    return {
        alias.asname or alias.name: getattr(importlib.import_module(node.module or ""), alias.name, None)
        for node in ast.walk(body_of(function))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("analyzer", "exporter"))
        for alias in node.names
    }


def _raised(node: ast.AST, scope: dict[str, Any], calls: bool) -> Iterator[str]:
    if isinstance(node, ast.Try):
        caught = tuple(each for handler in node.handlers for each in classes_of(handler.type, scope))
        for inner in node.body:
            yield from (
                name for name in _raised(inner, scope, calls) if not issubclass(class_of(name), caught)
            )
        for outer in (*node.handlers, *node.orelse, *node.finalbody):
            yield from _raised(outer, scope, calls)
        return
    if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
        found = scope.get(ast.unparse(node.exc.func))
        if isinstance(found, type) and issubclass(found, OnnxLedgerError):
            yield found.__name__
    if calls and isinstance(node, ast.Call):
        callee = scope.get(ast.unparse(node.func))
        if callable(callee) and is_ours(callee):
            yield from raised(callee, calls=False)
            yield from (name for name in told(callee) if issubclass(class_of(name), OnnxLedgerError))
    for child in ast.iter_child_nodes(node):
        yield from _raised(child, scope, calls)


def classes_of(node: ast.expr | None, scope: dict[str, Any]) -> Iterator[type[BaseException]]:
    """The exceptions that an `except` names."""
    names = node.elts if isinstance(node, ast.Tuple) else [node] if node is not None else []
    for name in names:
        found = scope.get(ast.unparse(name)) or getattr(builtins, ast.unparse(name), None)
        if isinstance(found, type) and issubclass(found, BaseException):
            yield found


@everyone
def test_a_public_function_says_what_it_raises(name: str) -> None:
    function = FUNCTIONS[name]
    said = tuple(class_of(each) for each in told(function))

    assert inspect.getdoc(function)
    assert sorted({each for each in raised(function) if not issubclass(class_of(each), said)}) == []


@everyone
def test_what_a_docstring_says_of_arguments_names_arguments(name: str) -> None:
    function = FUNCTIONS[name]
    _, _, section = (inspect.getdoc(function) or "").partition("\nArgs:\n")
    described = [
        each
        for names in re.findall(r"^    ([\w, ]+): ", section.partition("\n\n")[0], re.MULTILINE)
        for each in names.split(", ")
    ]

    assert described == [each for each in inspect.signature(function).parameters if each in described]
