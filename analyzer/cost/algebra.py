"""Sizes as polynomials with integer coefficients in the axes of a model's inputs; inexact quotients are floors.

A size is an `int` wherever it is one number. `Poly` holds the others in one normal form, so that equal sizes are equal
objects, and prints them as Python that `eval` takes.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TypeAlias

from analyzer.records import Frozen, exclude_fields


@exclude_fields("parts")
class Hidden(Frozen):
    """Number that only a run of the model can tell."""

    name: str
    reason: str
    parts: Parts | None = None
    """Group of numbers with a known sum that it belongs to; None without one."""
    is_signed: bool = False
    """Whether it may be below 0; counts are not."""

    def __str__(self) -> str:
        return self.name


class Parts(Frozen):
    """Numbers that only a run can tell, and their known sum."""

    names: tuple[str, ...]
    whole: Size


class Call(Frozen, dict=True):
    """Integer function of sizes that is no polynomial: `//`, `%`, `max`, `min`, or `bits` of the first argument."""

    name: str
    args: tuple[Size, ...]

    @cached_property
    def text(self) -> str:
        """Function in Python syntax."""
        first, second = (text_of(arg) for arg in self.args)
        if self.name == "bits":
            return f"({first}).bit_length()"
        if self.name in ("max", "min"):
            return f"{self.name}({first}, {second})"
        second = second if isinstance(self.args[1], int) else f"({second})"
        return f"(({first}){self.name}{second})"

    @cached_property
    def depth(self) -> int:
        """Nesting depth of functions, including this one."""
        within = (atom.depth for arg in self.args for atom in atoms_of(arg) if isinstance(atom, Call))
        return 1 + max(within, default=0)

    def __str__(self) -> str:
        return self.text


Atom: TypeAlias = "str | Hidden | Call"
Mono: TypeAlias = "tuple[tuple[Atom, int], ...]"
"""Atoms with their powers, sorted by the atoms' text."""


class Poly(Frozen):
    """Sum of products; never a plain number."""

    terms: tuple[tuple[Mono, int], ...]
    """Products and their factors: the highest degree first, then sorted by text."""

    def __str__(self) -> str:
        return text_of(self)


Size: TypeAlias = "int | Poly"


MOST_TERMS = 1024
"""Maximum number of terms in a product, because each product of two sums may double them."""

MOST_BITS = 512
"""Maximum size of a number or a power, in bits: sizes have 63, and a square doubles them."""


MOST_CHARACTERS = 10_000
"""Maximum length of a function's text, in characters."""

MOST_NESTED = 90
"""Maximum nesting depth of functions: each has two parentheses, and Python's parser takes 200 of them."""


def symbol(atom: Atom) -> Poly:
    """Return an axis, or another atom, as a size."""
    return Poly(((((atom, 1),), 1),))


def _too_large(reason: str, *parts: object) -> Poly:
    """Return an unknown in place of a size that is too large to compute; equal arguments give equal unknowns."""
    digest = hashlib.sha256(repr(parts).encode()).hexdigest()[:12]
    return symbol(Hidden(f"unknown_{digest}", reason, is_signed=True))


def _call_symbol(name: str, first: Size, second: Size) -> Poly:
    """Return a function of two sizes; an unknown if its text is too long, as nesting may double it at each step."""
    call = Call(name, (first, second))
    if len(call.text) > MOST_CHARACTERS:
        return _too_large(f"an expression of more than {MOST_CHARACTERS:,} characters", call.text)
    if call.depth > MOST_NESTED:
        return _too_large(f"an expression of more than {MOST_NESTED} functions in one another", call.text)
    return symbol(call)


def _bounded(number: int) -> Size:
    if number.bit_length() <= MOST_BITS:
        return number
    return _too_large(f"a number of more than {MOST_BITS} bits", hex(number))


def _terms(size: Size) -> Iterable[tuple[Mono, int]]:
    if isinstance(size, Poly):
        return size.terms
    return (((), size),) if size else ()


def _key(mono: Mono) -> tuple[int, tuple[tuple[str, int], ...]]:
    return -sum(exponent for _, exponent in mono), tuple((str(atom), -exponent) for atom, exponent in mono)


def _normal(terms: Mapping[Mono, int]) -> Size:
    kept = {mono: factor for mono, factor in terms.items() if factor}
    if not kept:
        return 0
    if len(kept) == 1 and () in kept:
        return _bounded(kept[()])
    if any(factor.bit_length() > MOST_BITS for factor in kept.values()):
        factors = sorted((_key(mono), hex(factor)) for mono, factor in kept.items())
        return _too_large(f"a factor of more than {MOST_BITS} bits", factors)
    if len(kept) == 1:
        return Poly(tuple(kept.items()))
    return Poly(tuple(sorted(kept.items(), key=lambda item: _key(item[0]))))


def add(a: Size, b: Size) -> Size:
    """Return the sum of two sizes."""
    if isinstance(a, int) and isinstance(b, int):
        return _bounded(a + b)
    return total((a, b))


def subtract(a: Size, b: Size) -> Size:
    """Return the difference of two sizes."""
    return _bounded(a - b) if isinstance(a, int) and isinstance(b, int) else add(a, multiply(b, -1))


def total(sizes: Iterable[Size]) -> Size:
    """Return the sum of all sizes."""
    number, terms, polynomials = 0, dict[Mono, int](), list[Poly]()
    for size in sizes:
        if isinstance(size, int):
            number += size
            continue
        polynomials.append(size)
        for mono, factor in size.terms:
            terms[mono] = terms.get(mono, 0) + factor
    if not terms:
        return _bounded(number)
    if not number and len(polynomials) == 1:
        return polynomials[0]
    terms[()] = terms.get((), 0) + number
    return _normal(terms)


def multiply(a: Size, b: Size) -> Size:
    """Return the product of two sizes."""
    if isinstance(a, int):
        if isinstance(b, int):
            return _bounded(a * b)
        return _normal({mono: factor * a for mono, factor in b.terms})
    if isinstance(b, int):
        return multiply(b, a)
    if len(a.terms) * len(b.terms) > max(MOST_TERMS, len(a.terms), len(b.terms)):
        return _too_large(f"a product of more than {MOST_TERMS:,} terms", text_of(a), text_of(b))
    terms: dict[Mono, int] = {}
    for left, one in a.terms:
        for right, other in b.terms:
            mono = _join(left, right)
            terms[mono] = terms.get(mono, 0) + one * other
    return _normal(terms)


def _join(a: Mono, b: Mono) -> Mono:
    if not a or not b:
        return a or b
    powers = dict(a)
    for atom, exponent in b:
        powers[atom] = powers.get(atom, 0) + exponent
    if any(exponent.bit_length() > MOST_BITS for exponent in powers.values()):
        (large, _) = _too_large(f"a power of more than {MOST_BITS} bits", str(a), str(b)).terms[0][0][0]
        return ((large, 1),)
    return tuple(sorted(powers.items(), key=lambda item: str(item[0])))


def product(sizes: Iterable[Size]) -> Size:
    """Return the product of all sizes; 1 for none."""
    result: Size = 1
    others = []
    for size in sizes:
        if isinstance(size, int):
            result = multiply(result, size)
        else:
            others.append(size)
    for other in others:
        result = multiply(result, other)
    return result


def power(a: Size, exponent: int) -> Size:
    """Return a power of a size."""
    return product([a] * exponent)


def divide(a: Size, b: Size) -> Size | None:
    """Return the exact quotient; None where the division is not exact for every value of the axes."""
    if isinstance(b, int):
        if b == 0:
            return None
        if all(factor % b == 0 for _, factor in _terms(a)):
            return _normal({mono: factor // b for mono, factor in _terms(a)})
        return None
    left: Size = a
    quotient: list[Size] = []
    lead, by = b.terms[0]
    for _ in range(200):
        if left == 0:
            return total(quotient)
        if isinstance(left, int):
            return None
        top, factor = left.terms[0]
        rest = _without(top, lead)
        if rest is None or factor % by:
            return None
        part = _normal({rest: factor // by})
        quotient.append(part)
        left = subtract(left, multiply(part, b))
    return None


def _without(a: Mono, b: Mono) -> Mono | None:
    powers = dict(a)
    for atom, exponent in b:
        left = powers.get(atom, 0) - exponent
        if left < 0:
            return None
        powers[atom] = left
    return tuple((atom, exponent) for atom, exponent in powers.items() if exponent)


def floor_div(a: Size, b: Size) -> Size:
    """Return the quotient rounded down; terms that divide exactly are taken out of the floor.

    Raises:
        ZeroDivisionError: b is 0.
    """
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    exact = divide(a, b)
    if exact is not None:
        return exact
    if isinstance(b, int):
        whole = _normal({mono: factor // b for mono, factor in _terms(a) if mono and factor % b == 0})
        rest = _normal({mono: factor for mono, factor in _terms(a) if not mono or factor % b})
        if isinstance(rest, int):
            return add(whole, rest // b)
        number = dict(rest.terms).get((), 0)
        whole = add(whole, number // b)
        common = math.gcd(b, *(factor for mono, factor in rest.terms if mono))
        reduced = {mono: factor // common for mono, factor in rest.terms if mono}
        reduced[()] = number % b // common
        return add(whole, _call_symbol("//", _normal(reduced), b // common))
    return _call_symbol("//", a, b)


def bits_of(a: Size) -> Size:
    """Return the bit length of a number of 0 or more: the logarithm of the next power of two above it."""
    return a.bit_length() if isinstance(a, int) else _call_symbol("bits", a, 0)


def ceil_div(a: Size, b: int) -> Size:
    """Return the quotient rounded up."""
    return floor_div(add(a, b - 1), b)


def remainder(a: Size, b: Size) -> Size:
    """Return the remainder of a division.

    Raises:
        ZeroDivisionError: b is 0.
    """
    if isinstance(b, int):
        a = total(_congruent(mono, factor, b) for mono, factor in _terms(a))
    if isinstance(a, int) and isinstance(b, int):
        return a % b
    if divide(a, b) is not None:
        return 0
    return _call_symbol("%", a, b)


def _congruent(mono: Mono, factor: int, b: int) -> Size:
    """Return a term congruent modulo b: `factor*x` for `factor*(x % b)`, else the term itself."""
    if len(mono) == 1 and mono[0][1] == 1:
        atom = mono[0][0]
        if isinstance(atom, Call) and atom.name == "%" and atom.args[1] == b:
            return multiply(atom.args[0], factor)
    return _normal({mono: factor})


def largest(a: Size, b: Size) -> Size:
    """Return the larger of two sizes; a `max` expression where that depends on the axes."""
    return _choose("max", a, b)


def smallest(a: Size, b: Size) -> Size:
    """Return the smaller of two sizes; a `min` expression where that depends on the axes."""
    return _choose("min", a, b)


def _choose(name: str, a: Size, b: Size) -> Size:
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b) if name == "max" else min(a, b)
    if a == b:
        return a
    order = _compare(a, b)
    if order:
        return (a if order > 0 else b) if name == "max" else (b if order > 0 else a)
    first, second = sorted((a, b), key=text_of)
    return _call_symbol(name, first, second)


def _compare(a: Size, b: Size) -> int:
    """Return 1 if a is never below b for any axis sizes of 0 or more, -1 if it is never above, else 0."""
    difference = subtract(a, b)
    factors = [factor for _, factor in _terms(difference)]
    signed = any(_may_be_negative(atom) for atom in atoms_of(difference))
    if signed or not factors:
        return 0
    return 1 if min(factors) > 0 else -1 if max(factors) < 0 else 0


def sign_of(size: Size) -> int | None:
    """Return 1 if a size is above 0 for all sizes of the axes, -1 if below, 0 if it is 0; None if that depends."""
    if isinstance(size, int):
        return (size > 0) - (size < 0)
    number = dict(size.terms).get((), 0)
    factors = [factor for _, factor in size.terms]
    if any(_may_be_negative(atom) for atom in atoms_of(size)):
        return None
    if min(factors) > 0 and number > 0:
        return 1
    return -1 if max(factors) < 0 and number < 0 else None


def truth_of(size: Size) -> Size | None:
    """Return 1 if a size is not 0, else 0; None if it may be below 0."""
    known = sign_of(size)
    if known is not None:
        return abs(known)
    return smallest(size, 1) if _is_natural(size) else None


def both(a: Size, b: Size) -> Size:
    """Return the product of two sizes that are each 0 or 1."""
    terms: dict[Mono, int] = {}
    for mono, factor in _terms(multiply(a, b)):
        once = tuple((atom, 1) for atom, _ in mono)
        terms[once] = terms.get(once, 0) + factor
    return _normal(terms)


def is_truth(size: Size) -> bool:
    """Whether a size is 0 or 1 for all sizes of the axes: a result of `truth_of`, or 1 minus one."""
    if isinstance(size, int):
        return size in (0, 1)
    rest = subtract(1, size) if dict(size.terms).get((), 0) == 1 else size
    if isinstance(rest, int) or len(rest.terms) != 1 or rest.terms[0][1] != 1:
        return False
    return all(
        isinstance(atom, Call) and atom.name == "min" and 1 in atom.args for atom, _ in rest.terms[0][0]
    )


def _may_be_negative(atom: Atom) -> bool:
    """Whether an atom may be below 0; axes and counts are not."""
    if not isinstance(atom, Call):
        return isinstance(atom, Hidden) and atom.is_signed
    first, second = map(_is_natural, atom.args)
    if atom.name == "%":
        return not second
    if atom.name == "max":
        return not (first or second)
    if atom.name == "bits":
        return False
    return not (first and second)


def _is_natural(size: Size) -> bool:
    """Whether a size is 0 or more for all sizes of the axes; False also where that is not obvious."""
    return all(factor > 0 for _, factor in _terms(size)) and not any(map(_may_be_negative, atoms_of(size)))


def atoms_of(size: Size) -> Iterable[Atom]:
    """Return the atoms of a size, without those inside functions."""
    return {atom for mono, _ in _terms(size) for atom, _ in mono}


def hidden_in(size: Size) -> Hidden | None:
    """Return a number in a size that only a run can tell; None where there is none."""
    if isinstance(size, int):
        return None
    for atom in sorted(atoms_of(size), key=str):
        if isinstance(atom, Hidden):
            return atom
        if isinstance(atom, Call):
            found = next(filter(None, map(hidden_in, atom.args)), None)
            if found is not None:
                return found
    return None


def settle(size: Size) -> Size:
    """Replace parts with their known sums, where all parts of a sum have the same factor."""
    if isinstance(size, int):
        return size
    found = {
        atom.parts.names: atom.parts
        for mono, _ in size.terms
        for atom, _ in mono
        if isinstance(atom, Hidden) and atom.parts is not None
    }
    for parts in found.values():
        size = _settled(size, parts)
    return size


def _settled(size: Size, parts: Parts) -> Size:
    rest: dict[Mono, int] = {}
    shares: dict[str, dict[Mono, int]] = {name: {} for name in parts.names}
    for mono, factor in _terms(size):
        own = [atom for atom, _ in mono if isinstance(atom, Hidden) and atom.name in shares]
        if not own:
            rest[mono] = factor
            continue
        others = tuple((atom, exponent) for atom, exponent in mono if atom != own[0])
        if len(own) > 1 or dict(mono)[own[0]] != 1:
            return size
        shares[own[0].name][others] = factor
    first = shares[parts.names[0]]
    if any(share != first for share in shares.values()):
        return size
    return add(_normal(rest), multiply(_normal(first), parts.whole))


def evaluate(size: Size, at: Mapping[str, int]) -> int | None:
    """Return a size's number at these sizes of axes; None where an axis is missing, or a number unknown or too large.

    >>> evaluate(add(multiply(symbol("s"), symbol("s")), 1), {"s": 3})
    10
    """
    result = 0
    for mono, factor in _terms(size):
        value = factor
        for atom, exponent in mono:
            number = _number(atom, at)
            if number is None:
                return None
            if abs(number) > 1 and number.bit_length() * exponent > 2 * _MOST_WRITTEN:
                return None
            value *= number**exponent
        result += value
    return result if result.bit_length() <= _MOST_WRITTEN else None


_MOST_WRITTEN = 1000
"""Maximum size of a result, in bits, so that it is in the range of a double."""


def _number(atom: Atom, at: Mapping[str, int]) -> int | None:
    if isinstance(atom, str):
        return at.get(atom)
    if isinstance(atom, Hidden):
        return None
    first, second = (evaluate(arg, at) for arg in atom.args)
    if first is None or second is None:
        return None
    if atom.name == "bits":
        return first.bit_length()
    if atom.name in ("max", "min"):
        return max(first, second) if atom.name == "max" else min(first, second)
    if not second:
        return None
    return first // second if atom.name == "//" else first % second


def text_of(size: Size) -> str:
    """Return the size in Python syntax, the highest powers first.

    >>> s = symbol("s")
    >>> text_of(add(multiply(multiply(s, s), 3), -1)), text_of(floor_div(add(s, 1), 2)), text_of(7)
    ('3*s**2 - 1', '((s + 1)//2)', '7')
    """
    if isinstance(size, int):
        return str(size)
    text = ""
    for mono, factor in size.terms:
        sign = "-" if factor < 0 else "+"
        parts = [f"{atom}**{exponent}" if exponent > 1 else str(atom) for atom, exponent in mono]
        if abs(factor) != 1 or not mono:
            parts.insert(0, str(abs(factor)))
        joined = "*".join(parts)
        text = f"{text} {sign} {joined}" if text else f"{'-' if factor < 0 else ''}{joined}"
    return text
