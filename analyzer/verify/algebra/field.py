"""Elements of a prime field, which stand for the floating-point numbers of a program.

Sums, products and quotients of a program are computed exactly; any other function (`exp`, `erf`) is replaced by a
random one, drawn by its name. Two programs that agree on random elements compute the same function, in whatever order
they sum, except with a probability of about 1 in 2^30 for each drawing (Schwartz 1980, Zippel 1979; for programs of
tensors: Wu et al., "Mirage", 2024). Each drawing has its own prime, so that no constants hide a multiple of it.
"""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_left
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

Elements = npt.NDArray[np.uint64]
Short = npt.NDArray[np.uint16]

PRIME = 2_147_481_311
"""A prime below 2^31. In its field the primes to 37 have square roots, so the root of 1/8 is twice that of 1/32."""
_ROOTED = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)
_ALWAYS = (2, 3, 5, 7)
"""Primes that have square roots in every field; they make up most sizes."""
_LEAST_PRIME, _MOST_PRIME = 1 << 30, 1 << 31
_WITNESSES = (2, 3, 5, 7)
"""Bases for which Miller and Rabin's test is exact below 3.2 billion (Jaeschke 1993)."""
_PART = 1 << 20
"""Most elements of 16 bits that are widened at once."""

_LOW = np.uint64((1 << 16) - 1)


def key_of(*words: object) -> int:
    """Return 64 bits that are derived from words."""
    return int.from_bytes(hashlib.blake2b(repr(words).encode(), digest_size=8).digest(), "little")


def draw(shape: tuple[int, ...], *words: object) -> Elements:
    """Draw random elements by words, of any of the fields; none is zero."""
    generator = np.random.Generator(np.random.Philox(key=key_of(*words)))
    return generator.integers(1, _LEAST_PRIME, size=shape, dtype=np.uint64)


def draw_prime(sizes: Iterable[int], *words: object) -> int:
    """Draw by words a prime between 2^30 and 2^31 in whose field the square roots of sizes, and of -1 no root, exist.

    There are about 1.5 million for sizes of the factors 2, 3, 5 and 7; every other factor to 37 halves their number.

    Args:
        sizes: sizes of the weights. Scales are the roots of such sizes.
        words: what the choice depends on.
    """
    whole = set(sizes)
    rooted = [prime for prime in _ROOTED if prime in _ALWAYS or any(size % prime == 0 for size in whole)]
    odd = {prime: {n * n % prime for n in range(1, prime)} for prime in rooted if prime > 2}
    generator = np.random.Generator(np.random.Philox(key=key_of("prime", *words)))
    while True:
        for drawn in generator.integers(_LEAST_PRIME, _MOST_PRIME, size=1024):
            found = int(drawn) | 7  # 7 modulo 8: 2 has a square root, -1 has none
            # by quadratic reciprocity, q has a root modulo such a prime if -p has one modulo q
            if all(
                -found % q in squares if q % 4 == 3 else found % q in squares for q, squares in odd.items()
            ) and _is_prime(found):
                return found


def _is_prime(number: int) -> bool:
    """Whether an odd number below 3.2 billion, 3 modulo 4, is prime (Miller-Rabin)."""
    half = number >> 1
    return all(pow(base, half, number) in (1, number - 1) for base in _WITNESSES)


def mixed(values: Elements, key: int) -> Elements:
    """Return 64 bits that look random for each of the elements (splitmix64's finisher: Steele et al. 2014)."""
    with np.errstate(over="ignore"):
        found = values + np.uint64(key)
        found = (found ^ (found >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        found = (found ^ (found >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        made: Elements = found ^ (found >> np.uint64(31))
    return made


def power(values: Elements, exponent: int, prime: int) -> Elements:
    """Raise to a power by squaring; the exponent is not negative."""
    p = np.uint64(prime)
    found = np.ones_like(values)
    square = values
    while exponent:
        if exponent & 1:
            found = found * square % p
        exponent >>= 1
        if exponent:
            square = square * square % p
    return found


def inverse(values: Elements, prime: int) -> Elements:
    """Return the inverse of each element, by Fermat's little theorem; 0 for 0."""
    return power(values, prime - 2, prime)


def negative(values: Elements, prime: int) -> Elements:
    """Return the negative of each element."""
    p = np.uint64(prime)
    return (p - values) % p


def product(one: Elements, other: Elements, prime: int) -> Elements:
    """Multiply matrices, batched as in `numpy.matmul`; exact up to 2^21 terms.

    Each element is split into 16 and 15 bits, whose products double precision sums exactly.
    """
    p = np.uint64(prime)
    parts = [
        ((each >> np.uint64(16)).astype(np.float64), (each & _LOW).astype(np.float64))
        for each in (one, other)
    ]
    (a, b), (c, d) = parts
    high = (a @ c).astype(np.uint64) % p
    middle = ((a @ d).astype(np.uint64) + (b @ c).astype(np.uint64)) % p
    low = (b @ d).astype(np.uint64) % p
    shift = np.uint64(1 << 16)
    found: Elements = ((high * shift % p + middle) * shift + low) % p
    return found


def draw_short(shape: tuple[int, ...], *words: object) -> Short:
    """Draw random elements of 16 bits by words."""
    count = math.prod(shape)
    raw = np.random.Philox(key=key_of(*words)).random_raw(-(-count // 4))
    return raw.view(np.uint16)[:count].reshape(shape)


def product_by_short(one: Elements, other: Short, prime: int) -> Elements:
    """Multiply matrices, (..., n) by (n, m), where the elements of the second have 16 bits; exact up to 2^21 terms."""
    p, shift = np.uint64(prime), np.uint64(16)
    rows = one.reshape(-1, one.shape[-1])
    halves = np.concatenate([rows >> shift, rows & _LOW]).astype(np.float64)
    found = np.empty((rows.shape[0], other.shape[1]), np.uint64)
    step = max(_PART // max(other.shape[0], 1), 1)
    for start in range(0, other.shape[1], step):
        sums = (halves @ other[:, start : start + step].astype(np.float64)).astype(np.uint64) % p
        high, low = np.split(sums, 2)
        found[:, start : start + step] = ((high << shift) + low) % p
    return found.reshape(*one.shape[:-1], other.shape[1])


# numbers

_PI_ROOT = int(draw((1,), "the root of pi")[0])
"""Random element that stands for the square root of pi, which no finite field contains."""
_SINGLE = 1.2e-7
"""Twice the relative error of rounding to single precision."""
MOST_HALF = 65_504.0
"""Largest number in half precision, to which converters clip masks."""
_CLIPPED = (MOST_HALF, 1e4)
"""Numbers to which converters to half precision clip larger ones (onnxconverter_common.float16, max_finite_val)."""
_HEAD = 256
LARGE = 1e30
"""Least magnitude of a mask, which erases a score: the lowest number in single precision, -1e38, minus infinity."""
_ABSORBING = float(1 << 16)
"""Least magnitude of a number that absorbs digits of another one."""
_LEAST, _MOST = 1e-13, float(1 << 30)
"""Bounds between which numbers are read as roundings of simpler ones."""
_ENDLESS = int(draw((1,), "infinity")[0])


def _of_fraction(value: Fraction, prime: int) -> int:
    return value.numerator * pow(value.denominator, -1, prime) % prime


def _drawn_for(value: float, prime: int) -> int:
    """Return the random element of a number that is read as no other."""
    return key_of("number", value, prime) % prime


def _root(value: Fraction, prime: int) -> int | None:
    """Return the square root of a fraction of small primes that have one in the field; None for other fractions.

    None also for a fraction that is a square: its root is a fraction, which needs no rounding.
    """
    if all(math.isqrt(part) ** 2 == part for part in (value.numerator, value.denominator)):
        return None
    found = 1
    for number, sign in ((value.numerator, 1), (value.denominator, -1)):
        for small in _ROOTED:
            while number % small == 0:
                number //= small
                root = pow(small, (prime + 1) // 4, prime)
                if root * root % prime != small:
                    return None
                found = found * pow(root, sign, prime) % prime
        if number != 1:
            return None
    return found


def _simple(value: float, most: int, tolerance: float) -> Fraction | None:
    """Return a fraction of small denominator within a relative tolerance; at tolerance 0, one that rounds to it."""
    found = Fraction(value).limit_denominator(most)
    if not found:
        return None
    is_near = (
        abs(float(found) - value) <= tolerance * value
        if tolerance
        else float(np.float32(float(found))) == value
    )
    return found if is_near else None


def element_of(value: float, prime: int = PRIME) -> int:
    """Return the element of a floating-point number, which is read as a simpler number rounded to single precision.

    Integers, short decimals and small fractions keep their value in the field; a root of a small fraction, or of its
    product or quotient with pi, is the element with the right square; any other number has a random element.

    >>> half = element_of(0.35355338)
    >>> half * half % PRIME == element_of(0.125)
    True

    Raises:
        ValueError: the number is NaN.
    """
    if math.isnan(value):
        raise ValueError("not a number")
    if abs(value) >= LARGE:
        return _ENDLESS if value > 0 else prime - _ENDLESS
    if value == 0:
        return 0
    if value < 0:
        return prime - element_of(-value, prime)
    single = float(np.float32(value)) or value
    if not _LEAST <= single < _MOST:
        return _drawn_for(single, prime)
    if is_plain(single):
        return _of_fraction(Fraction(single), prime)
    size = _root_of_size(single, prime)  # before decimals and fractions, of which one is near to any number
    if size is not None:
        return size
    short = Fraction(f"{single:.6g}")
    if float(np.float32(float(short))) == single:
        return _of_fraction(short, prime)
    simple = _simple(single, 300, 0.0)
    if simple is not None:
        return _of_fraction(simple, prime)
    for scale, unit in ((1.0, 1), (math.pi, pow(_PI_ROOT, -1, prime)), (1 / math.pi, _PI_ROOT)):
        squared = _simple(single * single * scale, 2048, 2 * _SINGLE)
        root = None if squared is None else _root(squared, prime)
        if root is not None:
            return root * unit % prime
    fourth = _simple(single**4, 512, 4 * _SINGLE)
    root = None if fourth is None else _root(fourth, prime)
    if root is not None:
        return pow(root, (prime + 1) // 4, prime)
    for scale, unit in ((1 / math.pi, _PI_ROOT * _PI_ROOT), (math.pi, pow(_PI_ROOT, -2, prime))):
        simple = _simple(single * scale, 64, _SINGLE)
        if simple is not None:
            return _of_fraction(simple, prime) * unit % prime
    return _drawn_for(single, prime)


def _root_of_size(value: float, prime: int) -> int | None:
    """Return a small integer, its inverse, or a square or fourth root of these.

    Means are divided by sizes, attention is scaled by the root of one, and queries and keys by the root of the scale.
    """
    for degree in (1, 2, 4):
        found = _simple(value**degree, 512, degree * _SINGLE)
        if found is not None and 1 in (found.numerator, found.denominator):
            root = _of_fraction(found, prime) if degree == 1 else _root(found, prime)
            if root is not None:
                return pow(root, (prime + 1) // 4, prime) if degree == 4 else root
    return None


def is_plain(value: float) -> bool:
    """Whether a number has few binary digits, and so is no rounded one."""
    mantissa, _ = math.frexp(value)
    return (mantissa * (1 << 14)).is_integer() or value.is_integer()


_MANY = 4_096
"""Largest number of distinct values in a tensor that are read as roundings of simpler numbers."""


def is_large(array: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Mark the numbers that are masks wherever they are added."""
    found: npt.NDArray[np.bool_] = np.abs(array) >= LARGE
    return found


class Numbers:
    """Elements for floating-point numbers; two numbers that differ only by rounding get the same element.

    A file may not compute with two such numbers, because their difference, multiplied by a large number, is none in the
    field.
    """

    def __init__(self) -> None:
        self._known: dict[float, bool] = {}
        """Whether a registered number has a random element, as one of very many in a tensor."""
        self._sorted: list[float] = []
        self._halves: dict[float, float] = {}
        self._made: dict[tuple[float, bool, int], int] = {}
        self._met: set[float] = set()
        """Masks of both sides."""
        self._masks: set[float] = set()
        """Registered numbers that are masks, and those that were factors."""
        self._factors: set[float] = set()
        self._is_stale = False
        self._of_file: dict[tuple[int, int], float] = {}
        """The number that a file has for an element, by prime and element."""

    def of(
        self, array: npt.NDArray[Any], *, is_new: bool, is_half: bool = False, prime: int = PRIME
    ) -> Elements:
        """Return the elements of a tensor.

        Args:
            array: the numbers.
            is_new: whether the numbers are registered; otherwise each takes the element of the nearest registered
                number that is within rounding and has many binary digits.
            is_half: whether they may be other numbers that were rounded to half precision.
            prime: the field.

        Raises:
            ValueError: a number is NaN; or a file's number is too precise, or equals another one up to rounding.
        """
        values, places = np.unique(array.astype(np.float64), return_inverse=True)
        is_long = values.size > _MANY
        found = np.fromiter(
            (self._one(float(value), is_new, is_long, is_half, prime) for value in values),
            np.uint64,
            values.size,
        )
        return found[places].reshape(array.shape)

    def factors(
        self, array: npt.NDArray[Any], *, is_new: bool, is_half: bool = False, prime: int = PRIME
    ) -> Elements:
        """Return the elements of factors, as `of`; large ones are no masks here, and all different.

        A mask in half precision that is a factor stands for the only large factor that is registered.
        """
        flat = array.astype(np.float64).reshape(-1)
        is_special = is_large(flat) | (is_half & np.isin(np.abs(flat), _CLIPPED))
        found = self.of(np.where(is_special, 1.0, flat), is_new=is_new, is_half=is_half, prime=prime)
        for value in np.unique(flat[is_special]).tolist():
            factor = abs(value)
            if factor < LARGE and len(self._factors) == 1:
                (factor,) = self._factors
            elif factor >= LARGE and is_new:
                self._factors.add(factor)
                self._masks.add(factor)
            element = _drawn_for(factor, prime) if factor >= LARGE else element_of(factor, prime)
            found[flat == value] = element if value > 0 else prime - element
        return found.reshape(array.shape)

    def masks(self, array: npt.NDArray[Any], *, is_new: bool, is_half: bool) -> tuple[bool, bool]:
        """Return whether a tensor has masks above, and below, all numbers.

        So is a number that absorbs digits of any it is added to, unless it is registered.
        """
        is_mask = np.asarray(is_large(array))
        if not is_new and (size := np.abs(array)).max(initial=0) >= _ABSORBING:
            known = [each for each in self._known if abs(each) >= _ABSORBING]
            is_mask |= (size >= _ABSORBING) & ~np.isin(array, known)
        if is_half and self._masks:
            is_mask |= np.isin(np.abs(array), _CLIPPED)
        if is_mask.any():
            self._met.update(np.unique(np.asarray(array)[is_mask]).tolist())
        return bool((is_mask & (array > 0)).any()), bool((is_mask & (array < 0)).any())

    @property
    def has_several_masks(self) -> bool:
        """Whether masks above all numbers, or those below, are several numbers."""
        return (
            len({each for each in self._met if each > 0}) > 1
            or len({each for each in self._met if each < 0}) > 1
        )

    def _one(self, value: float, is_new: bool, is_long: bool, is_half: bool, prime: int) -> int:
        exact = value
        value = float(np.float32(value)) if abs(value) < LARGE else value  # both sides compute so
        if value != exact and not is_new and (not value or is_plain(value)):
            raise ValueError("a number that single precision does not hold")
        known: float | None = value if value in self._known else None
        if known is None and not is_new and value and math.isfinite(value):
            known = self._near(value)
            if known is None and is_half:
                known = self._halves.get(value)
            if known is None and is_half:
                root = _half_root(value, prime)
                if root is not None:
                    return root
        if is_new and abs(value) >= LARGE:
            self._masks.add(value)
        if known is None and is_half and abs(value) in _CLIPPED and self._masks:
            known = math.copysign(math.inf, value)
        found = value if known is None else known
        is_random = self._known.get(found, is_long and abs(found) < LARGE and found != 0)
        if is_new and math.isfinite(value) and value and value not in self._known:
            self._known[value] = is_random
            with np.errstate(over="ignore"):
                self._halves[float(np.float16(value))] = value
            self._is_stale = True
        key = found, is_random, prime
        if key not in self._made:
            self._made[key] = _drawn_for(found, prime) if is_random else element_of(found, prime)
        made = self._made[key]
        if not is_new and math.isfinite(exact):
            self._require_one(exact, prime, made, is_half)
        return made

    def _require_one(self, value: float, prime: int, element: int, is_half: bool) -> None:
        """Raise an error if a file has another number with an element, unless both are PyTorch's own."""
        size, unsigned = abs(value), min(element, prime - element)
        other = self._of_file.setdefault((prime, unsigned), size)
        if other == size or (self._is_registered(other) and self._is_registered(size)):
            return
        with np.errstate(over="ignore"):
            is_rounded = np.float16(other) == np.float16(size)
        if not (is_half and is_rounded):
            raise ValueError("two numbers that differ by rounding alone")

    def _is_registered(self, size: float) -> bool:
        return size in self._known or -size in self._known

    def _near(self, value: float) -> float | None:
        if self._is_stale:
            self._sorted = sorted(each for each in self._known if not is_plain(each))
            self._is_stale = False
        place = bisect_left(self._sorted, value)
        near = self._sorted[max(place - 1, 0) : place + 1]
        best = min(near, key=lambda each: abs(each - value), default=None)
        if best is None or abs(best - value) > 2 * _SINGLE * abs(value):
            return None
        return best


def _half_root(value: float, prime: int) -> int | None:
    """Return the element of a half-precision scale of heads: 1 over an integer's square or fourth root."""
    if not 0 < value < 1:
        return None
    for degree in (2, 4):
        whole = round(value**-degree)
        if 1 < whole <= _HEAD and float(np.float16(whole ** (-1 / degree))) == value:
            if degree == 4 and math.isqrt(whole) ** 2 == whole:
                return element_of(math.isqrt(whole) ** -0.5, prime)
            root = _root(Fraction(1, whole), prime)
            if root is not None:
                return root if degree == 2 else pow(root, (prime + 1) // 4, prime)
    return None
