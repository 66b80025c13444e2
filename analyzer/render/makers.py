"""A format's table of makers + a report -> the function that makes it, loaded when it is asked for."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["find_maker"]


def find_maker(package: str, makers: Mapping[str, str], report: object) -> Callable[..., Any]:
    """What a format makes of a report of that class.

    Nothing else is loaded: an inspection needs no rule of reconciliation, and only a formula needs sympy.

    Args:
        package: the format's own, in which its makers are.
        makers: `module:function` of each, by the name of the report's class.
        report: what a command answers.

    Raises:
        TypeError: the format has nothing for it, or it is no report.
    """
    name = type(report).__name__
    if name not in makers:
        raise TypeError(f"no {package.rpartition('.')[2]} of a {name}")
    module, _, function = makers[name].partition(":")
    made: Callable[..., Any] = getattr(importlib.import_module(f"{package}.{module}"), function)
    return made
