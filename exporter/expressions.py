"""A node of a traced program -> its expression, as one would write it: `1 - time_mix`, `exp(logit_scale)`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

__all__ = ["Text", "write_call", "write_tensor"]

_LONGEST = 120
"""Characters of an expression whose parts are written out."""

_DIGITS = 15
"""Of a place in a tensor, at most."""

_SIGNS = {
    "add": "+",
    "add_": "+",
    "sub": "-",
    "sub_": "-",
    "mul": "*",
    "mul_": "*",
    "div": "/",
    "div_": "/",
    "pow": "**",
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "floor_divide": "//",
    "remainder": "%",
    "matmul": "@",
    "mm": "@",
    "bmm": "@",
    "bitwise_and": "&",
    "logical_and": "&",
    "__and__": "&",
    "bitwise_or": "|",
    "logical_or": "|",
    "__or__": "|",
}


@dataclass(frozen=True, slots=True)
class Text:
    """An expression, and what stands for it in a longer one."""

    whole: str
    brief: str = ""
    is_open: bool = False
    """Whether it takes parentheses beside an operator."""

    def __str__(self) -> str:
        return self.whole if len(self.whole) <= 2 * _LONGEST else f"{self.whole[: 2 * _LONGEST - 3]}..."


def write_tensor(tensor: torch.Tensor) -> Text:
    """A constant of the program: its number, where it is one."""
    if tensor.numel() == 1 and not tensor.is_complex():
        return Text(_number(tensor.reshape(-1)[0].item()))
    return Text("constant")


def write_call(node: fx.Node, name: str, text: Callable[[fx.Node], Text]) -> Text:
    """The expression of a call whose inputs have theirs; of a long one only what it calls."""
    found = _write(node, name, lambda each: _part(text(each), is_brief=False))
    if len(found) > _LONGEST:
        found = _write(node, name, lambda each: _part(text(each), is_brief=True))
    is_open = name in _SIGNS or name in ("rsub", "neg")
    return Text(found, f"({found.partition(' ')[0]} ...)" if is_open else f"{name}(...)", is_open)


def _part(text: Text, *, is_brief: bool) -> str:
    whole = text.brief if is_brief and text.brief else text.whole
    return f"({whole})" if text.is_open and not whole.startswith("(") else whole


def _write(node: fx.Node, name: str, part: Callable[[fx.Node], str]) -> str:
    def show(value: Any) -> str:
        if isinstance(value, fx.Node):
            return part(value)
        if isinstance(value, (list, tuple)):
            return f"[{', '.join(map(show, value))}]" if len(value) <= 8 else f"[{len(value)} parts]"
        return _number(value) if isinstance(value, (int, float)) else str(value)

    args = list(node.args)
    scaled = node.kwargs.get("alpha", 1) != 1 or node.kwargs.get("rounding_mode") is not None
    if name in _SIGNS and len(args) == 2 and not scaled:
        return f"{show(args[0])} {_SIGNS[name]} {show(args[1])}"
    if name == "rsub" and len(args) == 2 and not scaled:
        return f"{show(args[1])} - {show(args[0])}"
    if name == "neg":
        return f"-{show(args[0])}"
    if name == "index" and len(args) == 2 and isinstance(args[1], (list, tuple)):
        return f"{show(args[0])}[{', '.join(':' if each is None else _bare(show(each)) for each in args[1])}]"
    if name in ("select", "getitem", "slice") and len(args) >= 2:
        return f"{show(args[0])}[{_place(name, args)}]"
    return f"{name.rstrip('_')}({', '.join(_bare(show(each)) for each in args)})"


def _bare(text: str) -> str:
    """Without the parentheses around all of it, which only an operator beside it would need."""
    depth = 0
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if not depth and place < len(text) - 1:
            return text
    return text[1:-1] if text.startswith("(") else text


def _place(name: str, args: list[Any]) -> str:
    if name == "getitem":
        return str(args[1])
    axis: int | None = args[1] if isinstance(args[1], int) and args[1] >= 0 else None
    before = "..., " if axis is None else ":, " * axis
    if name == "select":
        return f"{before}{args[2]}"
    start, stop = (str(each) if isinstance(each, int) else "" for each in (*args[2:4], None, None)[:2])
    first = "" if start == "0" else start
    last = "" if len(stop) > _DIGITS else stop  # to the end
    step = f":{args[4]}" if len(args) > 4 and args[4] != 1 else ""
    return f"{before}{first}:{last}{step}"


def _number(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
