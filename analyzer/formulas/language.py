"""Text of a formula -> Expression: integers, names, arithmetic and functions, checked before anything is computed.

The grammar is a small part of Python's, parsed by `ast`; nothing is ever executed. Values come from a config, which is
not trusted: an expression without an integer value is an error, never a guess.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

from analyzer.errors import FormulaError
from analyzer.records import Frozen
from analyzer.text import shown


def height(size: int | tuple[int, int]) -> int:
    """Return the height of an image or a patch: the side of a square, or the first of (height, width)."""
    return _side(size, 0)


def width(size: int | tuple[int, int]) -> int:
    """Return the width of an image or a patch: the side of a square, or the second of (height, width)."""
    return _side(size, 1)


def _side(size: int | tuple[int, int], side: int) -> int:
    if isinstance(size, tuple) and len(size) != 2:
        raise ValueError("neither a side nor (height, width)")
    return size[side] if isinstance(size, tuple) else size


def starts(text: object, beginning: str) -> bool:
    """Whether a value is a text with this beginning."""
    return isinstance(text, str) and text.startswith(beginning)


def sparse_layers(layers: int, step: int, skipped: tuple[int, ...] | None) -> int:
    """Count the layers with experts: every `step`-th, without the skipped ones.

    >>> sparse_layers(24, 1, ()), sparse_layers(24, 2, (1, 2)), sparse_layers(24, 0, ())
    (24, 11, 0)
    """
    if step <= 0 or layers <= 0:
        return 0
    excluded = {layer for layer in skipped or () if 0 <= layer < layers and (layer + 1) % step == 0}
    return layers // step - len(excluded)


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "height": height,
    "width": width,
    "starts": starts,
    "sparse_layers": sparse_layers,
    "min": min,
    "max": max,
}
"""Functions that formulas may call."""


Value: TypeAlias = "int | bool | str | float | tuple[Any, ...] | None"
"""Value of one field of a config."""

Values: TypeAlias = Mapping[str, Value]
"""Fields and computed values by name."""


class Expression(Frozen):
    """Expression over the fields of a config."""

    tree: ast.expr

    @property
    def text(self) -> str:
        """Text in Python syntax, with the config's own names."""
        return ast.unparse(self.tree)

    @property
    def names(self) -> tuple[str, ...]:
        """Fields that it reads, each once, in order."""
        found = (node.id for node in ast.walk(self.tree) if isinstance(node, ast.Name))
        return tuple(dict.fromkeys(name for name in found if name not in FUNCTIONS))

    @property
    def words(self) -> tuple[str, ...]:
        """Texts that it compares fields with."""
        found = (node.value for node in ast.walk(self.tree) if isinstance(node, ast.Constant))
        return tuple(dict.fromkeys(value for value in found if isinstance(value, str)))

    def evaluate(self, values: Values) -> Value:
        """Return the value of the expression.

        Raises:
            FormulaError: a field is of a kind that it cannot be computed with.
        """
        with self._explaining(values):
            value: Value = _evaluate(self.tree, values)
        return value

    def count(self, values: Values) -> int:
        """Return the value, which must be a number of elements or of repetitions.

        Raises:
            FormulaError: it is no integer, or below 0.
        """
        number = self.evaluate(values)
        if type(number) is not int or number < 0:
            raise FormulaError(f"{self.text}: is {shown(number)} with {self._read(values)}, not a count")
        return number

    def holds(self, values: Values) -> bool:
        """Whether the expression, a condition, is true.

        Raises:
            FormulaError: as `evaluate`.
        """
        return bool(self.evaluate(values))

    def settle(self, values: Values) -> Expression:
        """Return the expression with every `a if c else b` replaced by the branch that the config selects.

        Raises:
            FormulaError: as `evaluate`, for a condition.
        """
        with self._explaining(values):
            return Expression(_Settler(values).visit(ast.parse(self.text, mode="eval").body))

    @contextmanager
    def _explaining(self, values: Values) -> Iterator[None]:
        """Turn Python's errors on values into messages that name the field."""
        try:
            yield
        except ZeroDivisionError as error:
            raise FormulaError(f"{self.text}: divides by zero with {self._read(values)}") from error
        except (TypeError, OverflowError, ValueError, RecursionError) as error:
            raise FormulaError(f"{self.text}: cannot be computed with {self._read(values)}") from error

    def _read(self, values: Values) -> str:
        return ", ".join(f"{name} = {shown(values.get(name))}" for name in self.names)

    def __mul__(self, other: Expression) -> Expression:
        return Expression(ast.BinOp(self.tree, ast.Mult(), other.tree))

    def __add__(self, other: Expression) -> Expression:
        return Expression(ast.BinOp(self.tree, ast.Add(), other.tree))


_MOST_NODES = 400
_MOST_LEVELS = 100
_MOST_CHARACTERS = 2_000
_MOST_EXPONENT = 4


def parse_expression(text: str) -> Expression:
    """Parse the text of a formula.

    >>> parse_expression("4*hidden_size**2").count({"hidden_size": 768})
    2359296

    Raises:
        ValueError: the text is no formula, or has syntax that formulas do not allow.
    """
    if len(text) > _MOST_CHARACTERS:
        raise ValueError(f"has {len(text):,} characters")
    if not text.isascii():
        raise ValueError(f"{text!r}: a formula is ASCII")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"{text!r}: not an expression") from error
    nodes = list(ast.walk(tree))
    if len(nodes) > _MOST_NODES or _levels(tree) > _MOST_LEVELS:
        raise ValueError(f"{text[:40]!r}: is too long")
    for node in nodes:
        if not _is_allowed(node):
            raise ValueError(f"{text!r}: has {type(node).__name__}, which formulas do not allow")
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow) and not _is_power(node):
            raise ValueError(
                f"{text!r}: an exponent is a number from 0 to {_MOST_EXPONENT}, of no other power"
            )
        if isinstance(node, ast.Compare) and not _is_comparison(node):
            raise ValueError(f"{text!r}: `is` asks for None")
        if isinstance(node, ast.Call) and not _is_known_call(node):
            raise ValueError(f"{text!r}: functions are {', '.join(FUNCTIONS)}, with plain arguments")
    return Expression(tree)


_ALLOWED = (
    *(ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Call, ast.Name, ast.Tuple, ast.Load),
    *(ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Pow, ast.USub, ast.Not, ast.And, ast.Or),
    *(ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Is, ast.IsNot, ast.In, ast.NotIn),
)


def _is_allowed(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return node.value is None or type(node.value) in (int, bool, str)
    return isinstance(node, _ALLOWED)


def _levels(tree: ast.AST) -> int:
    """Return the depth of a tree, computed without recursion."""
    levels, level = 0, [tree]
    while level:
        levels += 1
        level = [child for node in level for child in ast.iter_child_nodes(node)]
    return levels


def _is_power(node: ast.BinOp) -> bool:
    exponent, bases = node.right, ast.walk(node.left)
    is_small = isinstance(exponent, ast.Constant) and type(exponent.value) is int
    return (
        is_small
        and ast.literal_eval(exponent) in range(_MOST_EXPONENT + 1)
        and not any(isinstance(base, ast.Pow) for base in bases)  # powers of powers grow without limit
    )


def _is_comparison(node: ast.Compare) -> bool:
    """Whether `is` compares only with None: the identity of equal numbers depends on the Python implementation."""
    comparisons = zip(node.ops, node.comparators, strict=True)
    return all(
        isinstance(side, ast.Constant) and side.value is None
        for op, side in comparisons
        if isinstance(op, (ast.Is, ast.IsNot))
    )


def _is_known_call(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS and not node.keywords


_ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Pow: lambda a, b: a**b,
}
_COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: lambda a, b: a == b,
    ast.NotEq: lambda a, b: a != b,
    ast.Lt: lambda a, b: a < b,
    ast.LtE: lambda a, b: a <= b,
    ast.Gt: lambda a, b: a > b,
    ast.GtE: lambda a, b: a >= b,
    ast.Is: lambda a, b: a is b,
    ast.IsNot: lambda a, b: a is not b,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}


def _evaluate(node: ast.expr, values: Values) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return _look_up(name, values)
        case ast.BinOp(left=left, op=op, right=right):
            return _ARITHMETIC[type(op)](_number(left, values), _number(right, values))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not _evaluate(operand, values)
        case ast.UnaryOp(operand=operand):
            return -_number(operand, values)
        case ast.BoolOp(op=op, values=parts):
            return _decide(parts, values, stops_at=isinstance(op, ast.Or))
        case ast.Compare():
            return _compare(node, values)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return _evaluate(body if _evaluate(test, values) else orelse, values)
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return FUNCTIONS[name](*(_evaluate(argument, values) for argument in arguments))
        case ast.Tuple(elts=items):
            return tuple(_evaluate(item, values) for item in items)
    raise TypeError(type(node).__name__)


def _look_up(name: str, values: Values) -> Value:
    if name not in values:
        raise FormulaError(f"{name}: no such field")
    return values[name]


def _number(node: ast.expr, values: Values) -> int:
    """Evaluate an operand of arithmetic, which must be an integer."""
    value = _evaluate(node, values)
    if type(value) is not int:
        raise TypeError(f"{ast.unparse(node)} is {value!r}")
    return value


def _decide(parts: list[ast.expr], values: Values, *, stops_at: bool) -> Any:
    """Evaluate `and` and `or` as Python does: to the first part that decides, else the last."""
    for part in parts:
        value = _evaluate(part, values)
        if bool(value) is stops_at:
            break
    return value


def _compare(node: ast.Compare, values: Values) -> bool:
    sides = [_evaluate(side, values) for side in (node.left, *node.comparators)]
    steps: Iterator[tuple[ast.cmpop, Any, Any]] = zip(node.ops, sides[:-1], sides[1:], strict=True)
    return all(_COMPARISONS[type(op)](left, right) for op, left, right in steps)


class _Settler(ast.NodeTransformer):
    """Transformer that selects the config's branch of each condition, and removes summands and products of 0."""

    def __init__(self, values: Values) -> None:
        self.values = values

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        chosen = node.body if _evaluate(node.test, self.values) else node.orelse
        settled: ast.expr = self.visit(chosen)
        return settled

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        left, right = self.visit(node.left), self.visit(node.right)
        if isinstance(node.op, (ast.Add, ast.Sub)) and _is_zero(right):
            settled: ast.expr = left
        elif isinstance(node.op, ast.Add) and _is_zero(left):
            settled = right
        elif isinstance(node.op, ast.Mult) and (_is_zero(left) or _is_zero(right)):
            settled = ast.Constant(0)
        else:
            settled = ast.BinOp(left, node.op, right)
        return settled


def _is_zero(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 0 and type(node.value) is int
