"""What a file says of an axis -> its size: a number, or arithmetic such as `past_sequence_length + 1`."""

from __future__ import annotations

import ast
from collections.abc import Callable

__all__ = ["compute_size", "fixed_size", "parse_size"]


def parse_size(text: str) -> ast.expr | None:
    """An axis's name as an expression; None where it is a plain name, or no arithmetic."""
    if len(text) > 200 or not any(sign in text for sign in "+-*/"):
        return None
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def compute_size(node: ast.expr, value: Callable[[str], int | None]) -> int | None:
    """What an expression of whole numbers is; None where it has anything else."""
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.Name(id=name):
            return value(name)
        case ast.BinOp(left=left, op=op, right=right):
            a, b = compute_size(left, value), compute_size(right, value)
            if a is None or b is None:
                return None
            if isinstance(op, ast.Add | ast.Sub):
                return a + b if isinstance(op, ast.Add) else a - b
            if isinstance(op, ast.Mult):
                return a * b
            if isinstance(op, ast.FloorDiv | ast.Div):
                return a // b if b else None
    return None


def fixed_size(dim: int | str | None, *, is_nameless: bool) -> int | None:
    """The size that the file gives an axis; exporters also write it as a name, unless all names are numbers."""
    if isinstance(dim, int):
        return dim if dim >= 0 else None
    is_number = dim is not None and dim.isascii() and dim.isdecimal() and len(dim) <= 10 and not is_nameless
    return int(dim) if is_number and dim is not None else None
