"""Algebra that records each result with its operation, so that two programs can be compared."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from analyzer.records import Frozen, field
from analyzer.verify.algebra.field import mixed
from analyzer.verify.algebra.values import Algebra, Factored, Field, Value

Print = tuple[int, int]
"""Fingerprint of a value: its number of elements, and a hash that ignores their order."""


def print_of(value: Value) -> Print | None:
    """Return a fingerprint of a value that ignores the order of elements; None for known values and weights."""
    if not isinstance(value, Field):
        return None
    with np.errstate(over="ignore"):
        return value.elements.size, int(mixed(value.elements, 0x5EED).sum(dtype=np.uint64))


class Step(Frozen):
    """A recorded operation of the algebra."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    value: Value

    def again(self, a: Algebra, other: Callable[[Any], Any]) -> Value:
        """Repeat the operation with other operands."""
        found: Value = getattr(a, self.name)(
            *(_mapped(each, other) for each in self.args),
            **{name: _mapped(each, other) for name, each in self.kwargs.items()},
        )
        return found


def _mapped(value: Any, other: Callable[[Any], Any]) -> Any:
    if isinstance(value, list):
        return [_mapped(each, other) for each in value]
    return other(value) if isinstance(value, (Field, Factored)) else value


_DONE = (
    *("add", "negate", "subtract", "multiply", "invert", "divide", "raise_to", "matmul", "sum", "mean"),
    *("function", "gathered", "ordered", "where", "compare", "invert_truth", "combine", "greatest", "least"),
    *(
        "clamp",
        "cast",
        "symmetric",
        "move",
        "pad",
        "permute",
        "reshape",
        "take",
        "pick",
        "cut",
        "expand",
        "concat",
    ),
)


class Watched(Algebra):
    """Algebra that records every step whose result depends on weights or real inputs."""

    steps: list[Step] = field(default_factory=list)

    def taken(self) -> list[Step]:
        """Return the steps since the last call."""
        found, self.steps = self.steps, []
        return found


def _watching(name: str) -> Callable[..., Value]:
    plain = getattr(Algebra, name)

    @functools.wraps(plain)
    def step(self: Watched, *args: Any, **kwargs: Any) -> Value:
        value: Value = plain(self, *args, **kwargs)
        if isinstance(value, Field) and not any(value is each for each in args):
            self.steps.append(Step(name, args, kwargs, value))
        return value

    return step


for _name in _DONE:
    setattr(Watched, _name, _watching(_name))
