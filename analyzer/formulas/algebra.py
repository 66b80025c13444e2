"""Formula -> its expressions as polynomials: gathered for reading; as text, LaTeX and Python; proved by their values.

Expressions are taken apart node by node into sympy: no text is ever given to sympy to parse.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import sympy
from sympy.printing.latex import LatexPrinter
from sympy.printing.str import StrPrinter

from analyzer.errors import LedgerError
from analyzer.formulas.arranging import Summand, Symbolic, arrange
from analyzer.formulas.language import Expression, Value
from analyzer.formulas.record import CacheSize, Formula, PartCount, TermCount

__all__ = ["Algebra", "Layout", "to_latex"]


@dataclass(frozen=True, slots=True)
class _Meaning:
    """What a symbol stands for."""

    python: str
    latex: str
    value: Value


@dataclass(frozen=True, slots=True)
class Layout:
    """An expression in the order in which it is read."""

    tree: Symbolic
    """Not evaluated any more, so that sympy leaves its order alone."""
    _meanings: dict[Symbolic, _Meaning] = field(repr=False)

    @property
    def text(self) -> str:
        """In the family's symbols: `N*(12*D**2 + 13*D)`."""
        printed: str = StrPrinter({"order": "none"}).doprint(self.tree)
        return printed

    @property
    def latex(self) -> str:
        """The same in LaTeX's mathematics, without dollars around it."""
        names = {symbol: meaning.latex for symbol, meaning in self._meanings.items()}
        printed: str = LatexPrinter({"order": "none", "symbol_names": names}).doprint(self.tree)
        return printed

    @property
    def python(self) -> str:
        """The same in the config's fields, for Python."""
        names = {symbol: sympy.Symbol(meaning.python) for symbol, meaning in self._meanings.items()}
        printed: str = StrPrinter({"order": "none"}).doprint(_rename(self.tree, names))
        return printed


def _rename(tree: Symbolic, names: dict[Symbolic, Symbolic]) -> Symbolic:
    if not tree.args:
        return names.get(tree, tree)
    return tree.func(*(_rename(each, names) for each in tree.args), evaluate=False)


class Algebra:
    """The expressions of one formula."""

    def __init__(self, formula: Formula) -> None:
        self._formula = formula
        self._values = formula.values
        self._letters = formula.symbols
        self._meanings: dict[Symbolic, _Meaning] = {}
        self._usual = {
            self._name(each.name): self._convert(each.usual.tree)
            for each in formula.fields
            if each.usual is not None and type(each.value) is int
        }

    def expression(self, expression: Expression) -> Layout:
        """Any expression over the fields, which the config has settled."""
        return self._lay_out(
            [(sympy.Integer(1), self._convert(expression.tree))], expression.count(self._values)
        )

    def part(self, part: PartCount) -> Layout | None:
        """What a part counts, as its source has it; None of a derived one."""
        return self._sum((part,))

    def term(self, term: TermCount, *, usual: bool = False) -> Layout | None:
        """What a term counts; None of a derived one.

        Args:
            term: one of the formula.
            usual: whether a field that has its usual value is put in terms of the others.
        """
        return self._sum(term.parts, usual=usual)

    def total(self, *, usual: bool = False) -> Layout | None:
        """What the model counts: what repeats, then what is there once, gathered; None of a derived one."""
        return self._sum(self._formula.parts, usual=usual, gather=True)

    def active(self) -> Layout | None:
        """What one token uses of that; None of a derived one."""
        return self._sum(tuple(map(_only_active, self._formula.parts)), gather=True)

    def token_cache(self, cache: CacheSize) -> Layout:
        """Elements of the cache for each token."""
        return self.expression(cache.token_expression)

    def source_cache(self, cache: CacheSize) -> Layout | None:
        """Elements of the cache for each position of the encoder; None where there are none."""
        if cache.source_token_expression is None or not cache.source_token:
            return None
        return self.expression(cache.source_token_expression)

    def _sum(self, parts: Sequence[PartCount], *, usual: bool = False, gather: bool = False) -> Layout | None:
        summands: list[Summand] = []
        for part in parts:
            if part.expression is None:
                return None
            times = part.times_expression
            one = sympy.Integer(1)
            summands.append(
                (one if times is None else self._convert(times.tree), self._convert(part.expression.tree))
            )
        if usual:
            summands = [(times.xreplace(self._usual), each.xreplace(self._usual)) for times, each in summands]
        return self._lay_out(summands, sum(part.value for part in parts), gather=gather)

    def _lay_out(self, summands: Sequence[Summand], value: int, *, gather: bool = False) -> Layout:
        """Put the sum in order, and prove that it is still the same.

        Raises:
            LedgerError: it is not.
        """
        tree = arrange(summands, gather=gather)
        values = {symbol: sympy.Integer(meaning.value) for symbol, meaning in self._meanings.items()}
        layout = Layout(tree, self._meanings)
        found = tree.xreplace(values)
        if found != value:
            raise LedgerError(
                f"{self._formula.family}: {layout.python} comes to {found}, and its parts to {value}: a defect of "
                "onnxledger; please report it"
            )
        return layout

    # expressions -> sympy

    def _convert(self, node: ast.expr) -> Symbolic:
        match node:
            case ast.Constant(value=int(number)):
                return sympy.Integer(number)
            case ast.Name(id=name):
                return self._name(name)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return self._convert(left) + self._convert(right)
            case ast.BinOp(left=left, op=ast.Sub(), right=right):
                return self._convert(left) - self._convert(right)
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                return self._convert(left) * self._convert(right)
            case ast.BinOp(left=left, op=ast.Pow(), right=ast.Constant(value=int(exponent))):
                return self._convert(left) ** exponent
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self._convert(operand)
            case ast.Call(func=ast.Name(id="height" | "width" as side), args=[ast.Name(id=name)]):
                return self._side(name, side)
        return self._whole(node)

    def _name(self, name: str) -> Symbolic:
        return self._symbol(self._letters.get(name, name), name, self._values[name])

    def _side(self, name: str, side: str) -> Symbolic:
        """A side of an image: the field, or one of its two numbers."""
        value = self._values[name]
        if not isinstance(value, tuple):
            return self._name(name)
        position = 0 if side == "height" else 1
        letter = self._letters.get(name, name)
        return self._symbol(f"{letter}_{side}", f"{name}[{position}]", value[position])

    def _whole(self, node: ast.expr) -> Symbolic:
        """What is no polynomial, such as a quotient rounded down, is one symbol."""
        letters = ast.unparse(_Lettered(self._letters).visit(ast.parse(ast.unparse(node), mode="eval").body))
        latex = rf"\operatorname{{{_escape(letters)}}}"
        if isinstance(node, ast.BinOp):
            above, below = (
                arrange([(sympy.Integer(1), self._convert(each))]) for each in (node.left, node.right)
            )
            over, under = (Layout(each, self._meanings).latex for each in (above, below))
            latex = rf"\left\lfloor \frac{{{over}}}{{{under}}} \right\rfloor"
        value = Expression(node).evaluate(self._values)
        form = "({})" if isinstance(node, ast.BinOp) else "{}"
        return self._symbol(form.format(letters), form.format(ast.unparse(node)), value, latex)

    def _symbol(self, letter: str, python: str, value: Value, latex: str | None = None) -> Symbolic:
        symbol = sympy.Symbol(letter, integer=True, positive=True)
        self._meanings[symbol] = _Meaning(python, latex or to_latex(letter), value)
        return symbol


def _only_active(part: PartCount) -> PartCount:
    """A part that counts what one token uses of it."""
    if part.active_expression is None or not part.times:
        return part
    return replace(part, expression=part.active_expression, each=part.active // part.times)


class _Lettered(ast.NodeTransformer):
    """Puts letters for fields."""

    def __init__(self, letters: dict[str, str]) -> None:
        self.letters = letters

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Name(self.letters.get(node.id, node.id))


def to_latex(letter: str) -> str:
    r"""A symbol in LaTeX.

    >>> to_latex("D"), to_latex("N_e"), to_latex("hidden_size")
    ('D', 'N_{e}', '\\mathrm{hidden\\_size}')
    """
    found = re.fullmatch(r"([A-Za-z])(?:_(\w+))?", letter, re.ASCII)
    if found is None:
        return rf"\mathrm{{{_escape(letter)}}}"
    base, index = found.groups()
    return base if index is None else f"{base}_{{{_escape(index)}}}"


def _escape(text: str) -> str:
    return text.replace("_", r"\_").replace("**", "^").replace("*", r"\cdot ").replace("%", r"\%")
