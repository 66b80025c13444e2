"""`package.module:factory` -> the nn.Module it makes, with the example inputs that it gives for it."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from analyzer.errors import SourceError
from exporter.classes import first_line
from exporter.quiet import stdout_to_stderr

__all__ = ["Made", "is_factory", "make"]

_FACTORY = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*\Z")


@dataclass(frozen=True, slots=True)
class Made:
    """What a factory returned."""

    model: nn.Module
    example_inputs: tuple[Any, ...] | dict[str, Any] | None


def is_factory(source: str) -> bool:
    """Whether it has the form `package.module:factory`.

    >>> is_factory("models.small:build"), is_factory("C:/models/bert")
    (True, False)
    """
    return _FACTORY.match(source) is not None


def make(source: str, *, device: str = "cpu") -> Made:
    """Import the module, from the current directory too, and call the factory without arguments.

    The object may be a callable or an nn.Module. A callable returns the module, or `(module, example_inputs)`;
    a module may carry its inputs as the attribute `example_inputs`.

    Raises:
        SourceError: there is no such object, it fails, or what it returns is no nn.Module.
    """
    with _current_directory_importable(), stdout_to_stderr():
        target = _find(source)
        if not isinstance(target, nn.Module):
            target = _call(source, target, device)
    model, inputs = target if isinstance(target, tuple) and len(target) == 2 else (target, None)
    if not isinstance(model, nn.Module):
        raise SourceError(
            f"{source}: returned {_kind(target)}; return an nn.Module, or (nn.Module, example inputs)"
        )
    if inputs is None:
        inputs = getattr(model, "example_inputs", None)
    return Made(model, _checked_inputs(source, inputs))


@contextmanager
def _current_directory_importable() -> Iterator[None]:
    here = str(Path.cwd())
    sys.path.insert(0, here)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(here)


def _find(source: str) -> Any:
    module_name, _, attribute = source.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except ModuleNotFoundError as error:
        where = "it is looked for on sys.path and in the current directory"
        raise SourceError(f"{source}: no module named {error.name!r}; {where}") from error
    except AttributeError as error:
        raise SourceError(
            f"{source}: {first_line(error)}; name a function that returns an nn.Module"
        ) from error
    except Exception as error:
        raise SourceError(f"{source}: importing {module_name} failed: {first_line(error)}") from error
    return found


def _call(source: str, target: Any, device: str) -> Any:
    if not callable(target):
        raise SourceError(f"{source}: is {_kind(target)}; name a function that returns an nn.Module")
    try:
        with torch.device(device):
            return target()
    except Exception as error:
        raise SourceError(
            f"{source}: the factory failed: {first_line(error)}; it is called without arguments"
        ) from error


def _checked_inputs(source: str, inputs: Any) -> tuple[Any, ...] | dict[str, Any] | None:
    if isinstance(inputs, torch.Tensor):
        return (inputs,)
    if inputs is None or isinstance(inputs, dict):
        return inputs
    if isinstance(inputs, (tuple, list)):
        return tuple(inputs)
    raise SourceError(f"{source}: the example inputs are {_kind(inputs)}; give a tuple or a dict of tensors")


def _kind(value: object) -> str:
    return f"of type {type(value).__name__}"
