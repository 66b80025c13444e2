"""Formula -> its expressions as polynomials, arranged for reading: text, LaTeX and Python, verified by their values.

Expressions are converted node by node into sympy: sympy never parses a text.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import sympy
from sympy.printing.latex import LatexPrinter
from sympy.printing.str import StrPrinter

from analyzer.errors import LedgerError
from analyzer.formulas.language import Expression, Value
from analyzer.formulas.record import CacheSize, Formula, PartCount, TermCount
from analyzer.records import Frozen, replace

Symbolic: TypeAlias = Any
"""A sympy expression; sympy ships no types."""

Summand: TypeAlias = "tuple[Symbolic, Symbolic]"
"""Number of repetitions, and count of one repetition."""


def arrange(summands: Iterable[Summand], *, gather: bool = False) -> Symbolic:
    """Return one product for each kind of repetition, then the summands that occur once: `N*(12*D**2 + 13*D) + 2*D`.

    Higher degrees come first, then alphabetical order decides; nothing depends on the order of a set.

    Args:
        summands: the summands.
        gather: whether summands that occur once are bracketed with the symbol that most of them have.
    """
    one = sympy.Integer(1)
    groups: dict[Symbolic, Symbolic] = {}
    for count, each in summands:
        times = sympy.expand(count)
        key, factor = (one, times) if times.is_Integer else (times, one)
        groups[key] = groups.get(key, sympy.Integer(0)) + factor * each
    once = sympy.expand(groups.pop(one, sympy.Integer(0)))
    products = [(times, sympy.expand(each)) for times, each in groups.items()]
    repeated = [_product(times, each) for times, each in products if each != 0]
    if not any(_shared(once)):
        return _add([*repeated, *_summands(once, gather=gather)])
    return _add([*repeated, _product(one, once)])


def _symbols(polynomial: Symbolic) -> list[Symbolic]:
    found: list[Symbolic] = sorted(polynomial.free_symbols, key=lambda symbol: str(symbol.name))
    return found


def _monomials(polynomial: Symbolic) -> list[tuple[tuple[int, ...], int]]:
    """Return exponents and coefficients: higher degrees first, then in alphabetical order."""
    symbols = _symbols(polynomial)
    if not symbols:
        return [((), int(polynomial))] if polynomial else []
    terms = sympy.Poly(polynomial, *symbols).terms(order="grlex")
    return [(tuple(exponents), int(coefficient)) for exponents, coefficient in terms]


def _shared(polynomial: Symbolic) -> list[int]:
    """Return for each symbol the exponent that all summands have; 0 where the exponents differ."""
    columns = zip(*(exponents for exponents, _ in _monomials(polynomial)), strict=True)
    return [min(column) if min(column) == max(column) else 0 for column in columns]


def _product(times: Symbolic, polynomial: Symbolic) -> Symbolic:
    """Return `times` a sum, with the common factors of its summands before the bracket."""
    monomials, symbols, shared = _monomials(polynomial), _symbols(polynomial), _shared(polynomial)
    numbers = {coefficient for _, coefficient in monomials}
    outer = numbers.pop() if len(numbers) == 1 and (any(shared) or len(monomials) == 1) else 1
    before = _monomial(1, symbols, shared)
    count, repeated = _repetition(times)
    bracket = _add(_summands(sympy.expand(polynomial / (outer * before))))
    return _multiply([sympy.Integer(outer * count), repeated, before, bracket])


def _repetition(times: Symbolic) -> tuple[int, Symbolic]:
    """Return the number and the symbols of a count of repetitions; a sum is a bracket."""
    monomials, symbols = _monomials(times), _symbols(times)
    if len(monomials) != 1:
        return 1, _add(_summands(times))
    ((exponents, coefficient),) = monomials
    return coefficient, _monomial(1, symbols, exponents)


_WORTH_GATHERING = 3
"""Minimum number of summands with the same symbol for a bracket; one less with `gather`."""


def _summands(polynomial: Symbolic, *, gather: bool = False) -> list[Symbolic]:
    """Return the summands of a sum as printed: `E*(D + V + 2)` and `D`, where most have an E.

    Args:
        polynomial: the sum.
        gather: whether a symbol is also taken out that the bracket contains again: `D*(D + V + 2)`.
    """
    monomials, symbols = _monomials(polynomial), _symbols(polynomial)
    exponents_with = [
        [exponents for exponents, _ in monomials if exponents[at]] for at in range(len(symbols))
    ]
    for at in sorted(range(len(symbols)), key=lambda at: -len(exponents_with[at])):
        is_linear = all(exponents[at] == 1 for exponents in exponents_with[at])
        least = _WORTH_GATHERING - gather
        if least <= len(exponents_with[at]) < len(monomials) + gather and (gather or is_linear):
            left = polynomial.xreplace({symbols[at]: sympy.Integer(0)})
            inner = sympy.expand((polynomial - left) / symbols[at])
            return [_multiply([symbols[at], _add(_summands(inner))]), *_summands(left)]
    return [_monomial(coefficient, symbols, exponents) for exponents, coefficient in monomials]


def _monomial(coefficient: int, symbols: Sequence[Symbolic], exponents: Sequence[int]) -> Symbolic:
    powers = [
        symbol if exponent == 1 else sympy.Pow(symbol, exponent, evaluate=False)
        for symbol, exponent in zip(symbols, exponents, strict=True)
        if exponent
    ]
    return _multiply([sympy.Integer(coefficient), *powers])


def _multiply(factors: Iterable[Symbolic]) -> Symbolic:
    flat = [each for factor in factors for each in (factor.args if factor.is_Mul else (factor,))]
    kept = [factor for factor in flat if factor != 1]
    if len(kept) < 2:
        return kept[0] if kept else sympy.Integer(1)
    return sympy.Mul(*kept, evaluate=False)


def _add(summands: Sequence[Symbolic]) -> Symbolic:
    if len(summands) < 2:
        return summands[0] if summands else sympy.Integer(0)
    return sympy.Add(*summands, evaluate=False)


class _Meaning(Frozen):
    """Meaning of a symbol."""

    python: str
    latex: str
    value: Value


class Arranged(Frozen):
    """Expression in reading order."""

    tree: Symbolic
    """Unevaluated tree, so that sympy keeps its order."""
    _meanings: dict[Symbolic, _Meaning]

    @property
    def text(self) -> str:
        """Text in the family's symbols: `N*(12*D**2 + 13*D)`."""
        printed: str = StrPrinter({"order": "none"}).doprint(self.tree)
        return printed

    @property
    def latex(self) -> str:
        """Text in LaTeX's math mode, without dollar signs."""
        names = {symbol: meaning.latex for symbol, meaning in self._meanings.items()}
        printed: str = LatexPrinter({"order": "none", "symbol_names": names}).doprint(self.tree)
        return printed

    @property
    def python(self) -> str:
        """Python expression over the config's fields."""
        names = {symbol: sympy.Symbol(meaning.python) for symbol, meaning in self._meanings.items()}
        printed: str = StrPrinter({"order": "none"}).doprint(_rename(self.tree, names))
        return printed


def _rename(tree: Symbolic, names: dict[Symbolic, Symbolic]) -> Symbolic:
    if not tree.args:
        return names.get(tree, tree)
    return tree.func(*(_rename(each, names) for each in tree.args), evaluate=False)


class Algebra:
    """Expressions of one formula, arranged for reading."""

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

    def expression(self, expression: Expression) -> Arranged:
        """Arrange an expression over the fields, whose conditions the config has settled."""
        return self._lay_out(
            [(sympy.Integer(1), self._convert(expression.tree))], expression.count(self._values)
        )

    def part(self, part: PartCount) -> Arranged | None:
        """Arrange the count of a part, as its source has it; None for a derived part."""
        return self._sum((part,))

    def term(self, term: TermCount, *, usual: bool = False) -> Arranged | None:
        """Arrange the count of a term; None for a derived term.

        Args:
            term: one of the formula.
            usual: whether a field with its usual value is expressed in the other fields.
        """
        return self._sum(term.parts, usual=usual)

    def total(self, *, usual: bool = False) -> Arranged | None:
        """Arrange the model's count: what repeats, then what occurs once, gathered; None for a derived formula."""
        return self._sum(self._formula.parts, usual=usual, gather=True)

    def active(self) -> Arranged | None:
        """Arrange the count of parameters that one token uses; None for a derived formula."""
        return self._sum(tuple(map(_only_active, self._formula.parts)), gather=True)

    def token_cache(self, cache: CacheSize) -> Arranged:
        """Arrange the elements of the cache for each token."""
        return self.expression(cache.token_expression)

    def source_cache(self, cache: CacheSize) -> Arranged | None:
        """Arrange the elements of the cache for each position of the encoder; None where there are none."""
        if cache.source_token_expression is None or not cache.source_token:
            return None
        return self.expression(cache.source_token_expression)

    def _sum(
        self, parts: Sequence[PartCount], *, usual: bool = False, gather: bool = False
    ) -> Arranged | None:
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

    def _lay_out(self, summands: Sequence[Summand], value: int, *, gather: bool = False) -> Arranged:
        """Arrange a sum, and verify that its value is unchanged.

        Raises:
            LedgerError: the value differs.
        """
        tree = arrange(summands, gather=gather)
        values = {symbol: sympy.Integer(meaning.value) for symbol, meaning in self._meanings.items()}
        layout = Arranged(tree, self._meanings)
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
        """Return a side of an image: the field, or one of its two numbers."""
        value = self._values[name]
        if not isinstance(value, tuple):
            return self._name(name)
        position = 0 if side == "height" else 1
        letter = self._letters.get(name, name)
        return self._symbol(f"{letter}_{side}", f"{name}[{position}]", value[position])

    def _whole(self, node: ast.expr) -> Symbolic:
        """Return one symbol for an expression that is no polynomial, such as a quotient rounded down."""
        letters = ast.unparse(_Lettered(self._letters).visit(ast.parse(ast.unparse(node), mode="eval").body))
        latex = rf"\operatorname{{{_escape(letters)}}}"
        if isinstance(node, ast.BinOp):
            above, below = (
                arrange([(sympy.Integer(1), self._convert(each))]) for each in (node.left, node.right)
            )
            over, under = (Arranged(each, self._meanings).latex for each in (above, below))
            latex = rf"\left\lfloor \frac{{{over}}}{{{under}}} \right\rfloor"
        value = Expression(node).evaluate(self._values)
        form = "({})" if isinstance(node, ast.BinOp) else "{}"
        return self._symbol(form.format(letters), form.format(ast.unparse(node)), value, latex)

    def _symbol(self, letter: str, python: str, value: Value, latex: str | None = None) -> Symbolic:
        symbol = sympy.Symbol(letter, integer=True, positive=True)
        self._meanings[symbol] = _Meaning(python, latex or to_latex(letter), value)
        return symbol


def _only_active(part: PartCount) -> PartCount:
    """Return a part that counts only the elements that one token uses."""
    if part.active_expression is None or not part.times:
        return part
    return replace(part, expression=part.active_expression, each=part.active // part.times)


class _Lettered(ast.NodeTransformer):
    """Transformer that replaces the names of fields with their letters."""

    def __init__(self, letters: dict[str, str]) -> None:
        self.letters = letters

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Name(self.letters.get(node.id, node.id))


def to_latex(letter: str) -> str:
    r"""Return a symbol in LaTeX.

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
