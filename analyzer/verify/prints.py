"""Array -> its print: the few numbers that find the array again, in the same order of elements or another."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

import msgspec
import numpy as np
import numpy.typing as npt

from analyzer.model.content import Array

_Reals = npt.NDArray[np.float64]
LEAST = 4
"""Fewest elements of a value that can be identified by its content."""
HUGE = 1e30
"""Magnitude from which on an element is a mask: it is counted, and left out of all sums."""
_SIGNS = 6
_LEVELS = np.linspace(0.0, 1.0, 19)[1:-1]


class Print(msgspec.Struct, frozen=True, array_like=True):
    """Print of a value: the few numbers that are kept of it."""

    numel: int
    shape: tuple[int, ...]
    is_float: bool
    odd: int
    """Number of elements that are infinite, NaN, or too large to count with."""
    total: float
    power: float
    low: float
    high: float
    levels: tuple[float, ...]
    """Quantiles at evenly spaced ranks."""
    signs: tuple[float, ...]
    """Sums under random signs, which depend on the order of the elements: these tell one order from another."""

    @property
    def size(self) -> float:
        """Root mean square."""
        count = self.numel - self.odd
        return math.sqrt(self.power / count) if count > 0 else 0.0

    @property
    def is_identifiable(self) -> bool:
        """Whether the value can be identified: it has enough elements, and not all are equal."""
        return self.is_float and self.numel - self.odd >= LEAST and self.high > self.low


def print_of(value: Array) -> Print:
    """Return the print of an array of numbers or booleans."""
    shape = tuple(map(int, value.shape))
    elements = np.asarray(value).reshape(-1)
    is_float = elements.dtype.kind not in "biu"
    flat: _Reals = elements.astype(np.float64)
    with np.errstate(invalid="ignore"):
        odd = ~(np.abs(flat) < HUGE)
    count = int(odd.sum())
    kept = flat[~odd] if count else flat
    if not kept.size:
        return Print(flat.size, shape, is_float, count, 0.0, 0.0, 0.0, 0.0, (), ())
    if count:
        flat = np.where(odd, 0.0, flat)
    ranks = (_LEVELS * (kept.size - 1)).astype(np.int64)
    levels = np.partition(kept, np.unique(ranks))[ranks] if kept.size > 1 else kept[:1]
    return Print(
        flat.size,
        shape,
        is_float,
        count,
        float(kept.sum()),
        float(kept @ kept),
        float(kept.min()),
        float(kept.max()),
        tuple(levels.tolist()),
        tuple(_sums(flat)),
    )


_CHUNK = 1 << 18


def _sums(flat: _Reals) -> Iterator[float]:
    """Yield sums under signs that depend on the flat index only, so that a value in another shape has the same sums."""
    found = np.zeros(_SIGNS)
    for start in range(0, flat.size, _CHUNK):
        part = flat[start : start + _CHUNK]
        found += _signs(start // _CHUNK)[:, : part.size] @ part
    yield from found.tolist()


@lru_cache(maxsize=8)
def _signs(number: int) -> _Reals:
    return np.random.default_rng(number).choice(np.array([-1.0, 1.0]), size=(_SIGNS, _CHUNK))


class Likeness(msgspec.Struct, frozen=True):
    """Value of the other side that equals a value."""

    name: str
    is_ordered: bool
    """Whether its elements are in the same order."""


def noise_between(one: Print, other: Print) -> float:
    """Return the root mean square of the difference of two runs of one value, estimated from the sums under signs."""
    if one.numel != other.numel or not one.signs or not other.signs:
        return 0.0
    difference = np.array(one.signs) - np.array(other.signs)
    return float(np.sqrt(np.mean(difference**2) / one.numel))


TOLERANCE_FACTOR = 24.0
"""Factor on the noise that a difference may have."""


class Finder:
    """Prints of all values of one side, to be searched by content."""

    def __init__(self, known: Mapping[str, Print]) -> None:
        self.known = known
        self.tolerance_factor = TOLERANCE_FACTOR
        """Factor on the noise that a difference may have."""
        self.kernels: dict[str, float] = {}
        """Largest error (root mean square) that the kernels may add to each value, in addition to rounding."""
        self._by_numel: dict[int, list[tuple[str, Print]]] = {}
        for name, each in known.items():
            if each.is_float:
                self._by_numel.setdefault(each.numel, []).append((name, each))

    def find(self, wanted: Print, noise: float) -> Likeness | None:
        """Return a value that is the same but for rounding, preferably in the same order.

        Args:
            wanted: print of the other side's value.
            noise: root mean square of its rounding.
        """
        reordered = None
        for name, each in self._by_numel.get(wanted.numel, ()):
            order = is_like(wanted, each, noise, self.tolerance_factor, self.kernels.get(name, 0.0))
            if order is True:
                return Likeness(name, is_ordered=True)
            if order is False and reordered is None:
                reordered = Likeness(name, is_ordered=False)
        return reordered

    def all_like(self, wanted: Print, noise: float) -> Iterator[Likeness]:
        """Yield every value that is the same but for rounding."""
        for name, each in self._by_numel.get(wanted.numel, ()):
            order = is_like(wanted, each, noise, self.tolerance_factor, self.kernels.get(name, 0.0))
            if order is not None:
                yield Likeness(name, is_ordered=order)

    def of_size(self, numel: int) -> Sequence[tuple[str, Print]]:
        """Return the values with this number of elements."""
        return self._by_numel.get(numel, ())


def is_like(
    one: Print, other: Print, noise: float, times: float = TOLERANCE_FACTOR, kernels: float = 0.0
) -> bool | None:
    """Whether two values are the same but for rounding: True in one order, False in another, None if they differ.

    Args:
        one: print of a value.
        other: print of a value.
        noise: root mean square of the first value's rounding.
        times: factor on the noise that a difference may have.
        kernels: largest error of the other value in addition to rounding (root mean square).
    """
    if one.odd != other.odd or one.numel != other.numel or not one.power or not other.power:
        return None
    count = one.numel - one.odd
    tolerance = times * max(noise, 2.0**-22 * one.size) + 2 * kernels
    if abs(one.power - other.power) > 2 * tolerance * one.size * count + tolerance * tolerance * count:
        return None
    if abs(one.total - other.total) > tolerance * count:
        return None
    if max(abs(one.low - other.low), abs(one.high - other.high)) > 4 * tolerance + 2.0**-20 * max(
        abs(one.low), abs(one.high)
    ):
        return None
    difference = np.array(one.signs) - np.array(other.signs)
    distance = float(np.sqrt(np.mean(difference**2) / one.numel))
    if distance <= tolerance:
        return True
    if distance < 0.02 * one.size:
        return None  # nearly the same, in the same order: a wrong value
    levels = np.abs(np.array(one.levels) - np.array(other.levels))
    return False if levels.size and float(levels.max()) <= 4 * tolerance else None


def scale_between(one: Print, other: Print) -> float | None:
    """Return the factor between two values, `other` over `one`, element by element; None where there is none."""
    if one.numel != other.numel or not one.power or one.odd != other.odd:
        return None
    a, b = np.array(one.signs), np.array(other.signs)
    factor = float(a @ b / (a @ a)) if a.any() else 0.0
    if not factor:
        return None
    difference = float(np.sqrt(np.mean((b - factor * a) ** 2) / one.numel))
    return factor if difference <= 1e-4 * abs(factor) * one.size else None
