"""A node of a traced program -> its module, its operator, and what it writes into."""

from __future__ import annotations

import re
from typing import Any

from torch import fx

_AGAIN = re.compile(r"@\d+")
"""Suffix that torch adds to the path of a module that is called again."""


def module_of(node: fx.Node) -> str:
    """Return the path of the module that a node belongs to."""
    stack = node.meta.get("nn_module_stack") or {}
    return _AGAIN.sub("", next(reversed(stack.values()))[0]) if stack else ""


def operator_name(target: Any) -> str:
    """Return PyTorch's name for the operator of a node, without namespace and overload."""
    schema = getattr(target, "_schema", None)
    name = getattr(target, "__name__", str(target)) if schema is None else schema.name.rpartition("::")[2]
    return str(name)


def is_writing(node: fx.Node) -> bool:
    """Whether an operator writes into one of its inputs."""
    schema = getattr(node.target, "_schema", None)
    return schema is not None and schema.is_mutable


def written_by(node: fx.Node, schema: Any) -> list[fx.Node]:
    """Return the inputs that a node writes into; the schema is that of its operator."""
    found: list[Any] = []
    for place, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            operand = node.args[place] if place < len(node.args) else node.kwargs.get(argument.name)
            found += operand if isinstance(operand, (list, tuple)) else [operand]
    return [each for each in found if isinstance(each, fx.Node)]
