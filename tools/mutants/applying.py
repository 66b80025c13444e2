"""A mutant -> the loaded modules, changed as if they had been loaded from its file."""

from __future__ import annotations

import ast
import functools
import gc
import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from tools.mutants.changes import MODULE, Mutant


class Loaded:
    """Loaded functions and caches of some files, found once, because the search of all objects takes time."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._before = {
            path: list(_functions(compile(path.read_text(encoding="utf-8"), path, "exec", dont_inherit=True)))
            for path in paths
        }
        self._functions: dict[CodeType, list[FunctionType]] = {}
        self._caches: list[Any] = []
        files = {str(path) for path in self._before}
        gc.unfreeze()  # the tests freeze what they import, and a frozen object is not listed
        for candidate in gc.get_objects():  # `isinstance` would read the class of objects that then warn
            if type(candidate) is FunctionType and candidate.__code__.co_filename in files:
                self._functions.setdefault(candidate.__code__, []).append(candidate)
            elif type(candidate) is functools._lru_cache_wrapper and _is_ours(candidate.__module__):
                self._caches.append(candidate)

        if not self._functions and any(self._before.values()):
            raise RuntimeError(
                f"no function of {', '.join(sorted(files))} is loaded, so that no mutant would run"
            )

    def apply(self, mutant: Mutant) -> None:
        """Make this process run the mutant from now on.

        Raises:
            Exception: the changed table cannot be made.
        """
        if mutant.function == MODULE:
            _apply_table(mutant)
        else:
            after = _functions(compile(mutant.source, mutant.path, "exec", dont_inherit=True))
            for old, new in zip(self._before[mutant.path], after, strict=True):
                for function in self._functions.get(old, ()) if old != new else ():
                    function.__code__ = new
        for cache in self._caches:
            cache.cache_clear()


def _functions(code: CodeType) -> Iterator[CodeType]:
    """Yield the functions of a module and the methods of its classes, each with the functions defined inside."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_flags & inspect.CO_OPTIMIZED:
                yield constant
            else:
                yield from _functions(constant)


def _apply_table(mutant: Mutant) -> None:
    modules = [module for name, module in sys.modules.items() if _is_ours(name) or _is_test(name)]
    home = next(module for module in modules if getattr(module, "__file__", None) == str(mutant.path))
    before = dict(vars(home))
    exec(compile(_statement(mutant), mutant.path, "exec"), vars(home))
    changed = {name: value for name, value in vars(home).items() if before.get(name) is not value}
    for module in modules:
        _replace_imported(module, before, changed)


def _statement(mutant: Mutant) -> ast.Module:
    for statement in ast.parse(mutant.source).body:
        if statement.lineno == mutant.lines[0]:
            return ast.Module([statement], [])
    raise ValueError(mutant.name)


def _replace_imported(module: ModuleType, before: Mapping[str, Any], changed: Mapping[str, Any]) -> None:
    """Replace the tables in a module that has imported them by name."""
    for name, value in changed.items():
        if name in vars(module) and vars(module)[name] is before[name]:
            setattr(module, name, value)


def _is_ours(name: str) -> bool:
    return name.partition(".")[0] in ("analyzer", "exporter")


def _is_test(name: str) -> bool:
    return name.rpartition(".")[2].startswith("test_")
