"""Products of sympy's -> their sum in the order in which it is read: what repeats first, then what is there once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import sympy

__all__ = ["Summand", "Symbolic", "arrange"]

Symbolic: TypeAlias = Any
"""A sympy expression; sympy ships no types."""

Summand: TypeAlias = "tuple[Symbolic, Symbolic]"
"""How many there are, and what one of them counts."""


def arrange(summands: Iterable[Summand], *, gather: bool = False) -> Symbolic:
    """One product for what each kind of repetition has, then what is there once: `N*(12*D**2 + 13*D) + 2*D`.

    Higher degrees come first, then the alphabet decides; nothing depends on the order of a set.

    Args:
        summands: what is added.
        gather: whether what is there once is put in brackets with the symbol that most of it has.
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
    """Exponents and coefficients: higher degrees first, then by the alphabet."""
    symbols = _symbols(polynomial)
    if not symbols:
        return [((), int(polynomial))] if polynomial else []
    terms = sympy.Poly(polynomial, *symbols).terms(order="grlex")
    return [(tuple(exponents), int(coefficient)) for exponents, coefficient in terms]


def _shared(polynomial: Symbolic) -> list[int]:
    """Of each symbol, the exponent that all summands have; 0 where some have more or less."""
    columns = zip(*(exponents for exponents, _ in _monomials(polynomial)), strict=True)
    return [min(column) if min(column) == max(column) else 0 for column in columns]


def _product(times: Symbolic, polynomial: Symbolic) -> Symbolic:
    """`times` of a sum, with what all its summands share before the bracket."""
    monomials, symbols, shared = _monomials(polynomial), _symbols(polynomial), _shared(polynomial)
    numbers = {coefficient for _, coefficient in monomials}
    outer = numbers.pop() if len(numbers) == 1 and (any(shared) or len(monomials) == 1) else 1
    before = _monomial(1, symbols, shared)
    count, repeated = _repetition(times)
    bracket = _add(_summands(sympy.expand(polynomial / (outer * before))))
    return _multiply([sympy.Integer(outer * count), repeated, before, bracket])


def _repetition(times: Symbolic) -> tuple[int, Symbolic]:
    """The number and the symbols of a count of repetitions; a sum is a bracket."""
    monomials, symbols = _monomials(times), _symbols(times)
    if len(monomials) != 1:
        return 1, _add(_summands(times))
    ((exponents, coefficient),) = monomials
    return coefficient, _monomial(1, symbols, exponents)


_WORTH_GATHERING = 3
"""Summands with the same symbol that are put in a bracket; one less where all is gathered."""


def _summands(polynomial: Symbolic, *, gather: bool = False) -> list[Symbolic]:
    """What a sum is printed as: `E*(D + V + 2)` and `D`, where most have an E.

    Args:
        gather: whether that is also done with a symbol that is then in the bracket again: `D*(D + V + 2)`.
    """
    monomials, symbols = _monomials(polynomial), _symbols(polynomial)
    having = [[exponents for exponents, _ in monomials if exponents[at]] for at in range(len(symbols))]
    for at in sorted(range(len(symbols)), key=lambda at: -len(having[at])):
        is_linear = all(exponents[at] == 1 for exponents in having[at])
        least = _WORTH_GATHERING - gather
        if least <= len(having[at]) < len(monomials) + gather and (gather or is_linear):
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
