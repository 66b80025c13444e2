"""An array -> what of it is kept to find it again: in the same order of elements, or in another."""

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
"""Elements of a value that may be told from others by what it holds."""
HUGE = 1e30
"""What is beyond is a mask: counted, and no number among numbers."""
_SIGNS = 6
_LEVELS = np.linspace(0.0, 1.0, 19)[1:-1]


class Print(msgspec.Struct, frozen=True, array_like=True):
    """What is kept of a value."""

    numel: int
    shape: tuple[int, ...]
    is_float: bool
    odd: int
    """Elements that are infinite, no numbers, or too large to count with."""
    total: float
    power: float
    low: float
    high: float
    levels: tuple[float, ...]
    """Numbers at even places of the sorted elements; of a large value, of evenly drawn ones in their own order too."""
    signs: tuple[float, ...]
    """Sums under random signs, in the order of the elements: these tell one order from another."""

    @property
    def size(self) -> float:
        """Root mean square."""
        count = self.numel - self.odd
        return math.sqrt(self.power / count) if count > 0 else 0.0

    @property
    def is_telling(self) -> bool:
        """Whether it may be told from others: enough elements, which are not one number."""
        return self.is_float and self.numel - self.odd >= LEAST and self.high > self.low


def print_of(value: Array) -> Print:
    """What is kept of an array of numbers or truth values."""
    shape = tuple(map(int, value.shape))
    given = np.asarray(value).reshape(-1)
    is_float = given.dtype.kind not in "biu"
    flat: _Reals = given.astype(np.float64)
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
    """Sums under signs that only depend on the place, so that a value in another shape has the same."""
    found = np.zeros(_SIGNS)
    for start in range(0, flat.size, _CHUNK):
        part = flat[start : start + _CHUNK]
        found += _signs(start // _CHUNK)[:, : part.size] @ part
    yield from found.tolist()


@lru_cache(maxsize=8)
def _signs(number: int) -> _Reals:
    return np.random.default_rng(number).choice(np.array([-1.0, 1.0]), size=(_SIGNS, _CHUNK))


class Likeness(msgspec.Struct, frozen=True):
    """How near a value of the other side is."""

    name: str
    is_ordered: bool
    """Whether its elements stand in the same order."""


def noise_between(one: Print, other: Print) -> float:
    """Root mean square of the difference of two runs of one value, as the sums under signs tell it."""
    if one.numel != other.numel or not one.signs or not other.signs:
        return 0.0
    off = np.array(one.signs) - np.array(other.signs)
    return float(np.sqrt(np.mean(off**2) / one.numel))


ROOM = 24.0
"""How many times the noise a difference may be."""


class Finder:
    """Prints of all values of one side, to be looked up by what they hold."""

    def __init__(self, known: Mapping[str, Print]) -> None:
        self.known = known
        self.room = ROOM
        """How many times the noise a difference may be."""
        self.kernels: dict[str, float] = {}
        """By name: what kernels may be off by there beside rounding, at most (root mean square)."""
        self._by_numel: dict[int, list[tuple[str, Print]]] = {}
        for name, each in known.items():
            if each.is_float:
                self._by_numel.setdefault(each.numel, []).append((name, each))

    def find(self, wanted: Print, noise: float) -> Likeness | None:
        """A value that is the same but for rounding: one in the same order before one in another.

        Args:
            wanted: of the other side.
            noise: root mean square of its rounding.
        """
        turned = None
        for name, each in self._by_numel.get(wanted.numel, ()):
            order = is_like(wanted, each, noise, self.room, self.kernels.get(name, 0.0))
            if order is True:
                return Likeness(name, is_ordered=True)
            if order is False and turned is None:
                turned = Likeness(name, is_ordered=False)
        return turned

    def all_like(self, wanted: Print, noise: float) -> Iterator[Likeness]:
        """Every such value."""
        for name, each in self._by_numel.get(wanted.numel, ()):
            order = is_like(wanted, each, noise, self.room, self.kernels.get(name, 0.0))
            if order is not None:
                yield Likeness(name, is_ordered=order)

    def of_size(self, numel: int) -> Sequence[tuple[str, Print]]:
        """Values of so many elements."""
        return self._by_numel.get(numel, ())


def is_like(one: Print, other: Print, noise: float, times: float = ROOM, kernels: float = 0.0) -> bool | None:
    """Whether two values are the same but for rounding: True in one order, False in another, None where not.

    Args:
        one: value.
        other: value.
        noise: root mean square of its rounding.
        times: this a difference may be.
        kernels: what the other one may be off by beside rounding, at most (root mean square).
    """
    if one.odd != other.odd or one.numel != other.numel or not one.power or not other.power:
        return None
    count = one.numel - one.odd
    room = times * max(noise, 2.0**-22 * one.size) + 2 * kernels
    if abs(one.power - other.power) > 2 * room * one.size * count + room * room * count:
        return None
    if abs(one.total - other.total) > room * count:
        return None
    if max(abs(one.low - other.low), abs(one.high - other.high)) > 4 * room + 2.0**-20 * max(
        abs(one.low), abs(one.high)
    ):
        return None
    off = np.array(one.signs) - np.array(other.signs)
    apart = float(np.sqrt(np.mean(off**2) / one.numel))
    if apart <= room:
        return True
    if apart < 0.02 * one.size:
        return None  # nearly the same, in the same order: it is off
    levels = np.abs(np.array(one.levels) - np.array(other.levels))
    return False if levels.size and float(levels.max()) <= 4 * room else None


def scale_between(one: Print, other: Print) -> float | None:
    """The number by which `other` is `one`, element by element; None where it is not."""
    if one.numel != other.numel or not one.power or one.odd != other.odd:
        return None
    a, b = np.array(one.signs), np.array(other.signs)
    factor = float(a @ b / (a @ a)) if a.any() else 0.0
    if not factor:
        return None
    off = float(np.sqrt(np.mean((b - factor * a) ** 2) / one.numel))
    return factor if off <= 1e-4 * abs(factor) * one.size else None
