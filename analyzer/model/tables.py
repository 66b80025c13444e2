"""Numbers -> whether they are a table that needs no learning: one value, a count, a mask, sines and cosines.

A table is known by its values alone, and only if few numbers say all of it: a carrier of weights cannot have its form.
Sources: Vaswani et al. 2017 (arXiv:1706.03762, section 3.5, sinusoids), Su et al. 2021 (arXiv:2104.09864, equation 15,
rotary frequencies), Press et al. 2021 (arXiv:2108.12409, section 3, slopes), Liu et al. 2021 (arXiv:2103.14030, shifted
windows).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from analyzer.model.content import Array
from analyzer.model.waves import are_solved_waves, grids, may_be_waves

Reals = npt.NDArray[np.float64]

_MASKED = -50.0
"""At most what a mask adds to a score: Swin's is -100, others -1e4, the type's least number, or minus infinity."""


def count_free(array: Array, step: float = 0.0) -> int:
    """How many numbers it takes to say a tensor: 0 of a known table, 1 of one value throughout, else its elements.

    What stands again, for each example or each head, is said once. `step` is the largest of a quantizer's, within half
    of which each element is known.
    """
    if array.size <= 1:
        return int(array.size)
    if array.dtype.kind in "OSU":
        return int(array.size)
    flat = array.reshape(-1)
    if bool((flat == flat[0]).all()):
        return 1
    if is_known_table(array, step):
        return 0
    once = _say_once(array)
    is_table = once is not array and once.size > _LEAST and is_known_table(once, step)
    return 0 if is_table else int(array.size)


_LEAST = 3
"""Elements that are a table by themselves, whatever they are."""


def _say_once(array: Array) -> Array:
    """An array without what stands again along an axis, whole, one after another."""
    for axis, length in enumerate(array.shape):
        rows = _along(array, axis)
        again = np.flatnonzero((rows[1:] == rows[:1]).all(axis=1)) + 1 if length > 1 else ()
        for period in (int(start) for start in again[:_MOST_PERIODS]):
            if length % period == 0 and bool((rows[period:] == rows[:-period]).all()):
                array = np.take(array, np.arange(period), axis=axis)
                break
    return array


def _along(array: npt.NDArray[Any], axis: int) -> npt.NDArray[Any]:
    """The elements by their place on an axis: (length of the axis, all others)."""
    if array.ndim == 2:
        return array.T if axis else array
    return np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1)


_MOST_PERIODS = 64
"""Rows like the first that may be where an axis begins again."""


def is_known_table(array: Array, step: float = 0.0) -> bool:
    """Whether a table is counts, a mask, frequencies, slopes, sines or cosines, up to the order of its axes."""
    if array.dtype.kind not in "biufV" or array.size < 2:
        return False
    with np.errstate(all="ignore"):
        values = np.squeeze(array.astype(np.float64))
        if not values.ndim:
            return False
        slack = slack_of(array)
        slack = max(slack, step / max(float(np.abs(values).max()), 1e-30)) if step else slack
        if values.size > _LARGE:  # a corner of a known table is one too
            corner = values[(slice(0, 8),) * values.ndim]
            is_varied = bool((corner != corner.flat[0]).any())
            if is_varied and not (_is_known(corner, step, slack) or _may_go_on(corner, slack)):
                return False
        return _is_known(values, step, slack)


def _may_go_on(corner: Reals, slack: float) -> bool:
    """Whether a corner may be that of waves whose first position is elsewhere."""
    return any(
        length > 2 and may_be_waves(_along(corner, axis), slack) for axis, length in enumerate(corner.shape)
    )


def slack_of(array: Array) -> float:
    """What an element of a table may be off in its type, in proportion."""
    return 4e-3 if array.dtype.itemsize <= 2 and array.dtype.kind in "fV" else 2e-4


_LARGE = 1 << 14
"""Elements from which a corner is looked at first."""


def _is_known(values: Reals, step: float, slack: float) -> bool:
    return (
        is_affine(values, 0.51 * step)
        or is_coordinates(values)
        or are_buckets(values)
        or is_mask(values)
        or _are_speeds(values, slack)
        or is_sloped(values, slack, step)
        or are_slopes(values, slack)
        or is_sinusoidal(values, slack)
    )


def _are_speeds(values: Reals, slack: float) -> bool:
    """Whether a vector is a positive geometric series; one that falls, as frequencies do, starts at 1 at most."""
    if not bool((values > 0).all()) or not is_geometric(values, slack):
        return False
    return bool(values[0] <= 1 + slack) or bool(values[0] <= values[-1])


def is_affine(values: Reals, error: float = 0.0) -> bool:
    """Whether each element is a constant plus a step for each axis: a count, a grid, distances with a sign."""
    if not bool(np.isfinite(values).all()):
        return False
    origin = values[(0,) * values.ndim]
    expected = np.full((1,) * values.ndim, origin)
    for axis, length in enumerate(values.shape):
        if length > 1:
            index = [0] * values.ndim
            index[axis] = length - 1
            step = (values[tuple(index)] - origin) / (length - 1)
            shape = [1] * values.ndim
            shape[axis] = length
            expected = expected + step * np.arange(length).reshape(shape)
    room = 1e-6 * float(np.abs(values).max()) + 3 * error
    return bool((np.abs(values - expected) <= room).all())


def is_coordinates(values: Reals) -> bool:
    """Whether whole numbers say of each place where it is: along one axis stand its coordinates.

    Each of these counts by ones along one other axis, or is one number: what `GatherND` reads where a loop over all
    places was made an index. A different step, or a place out of its turn, is none of it.
    """
    if not 2 <= values.ndim <= 8 or not bool((values == np.rint(values)).all()):
        return False
    return any(
        count <= _MOST_COORDINATES and all(counts_one_axis(one) for one in np.moveaxis(values, axis, 0))
        for axis, count in enumerate(values.shape)
    )


_MOST_COORDINATES = 8
"""As many axes as a tensor has in practice."""


def counts_one_axis(values: Reals) -> bool:
    """Whether elements are one number, or count up by ones along one axis."""
    rest = values - values.flat[0]
    if not rest.any():
        return True
    return any(
        bool(
            (
                rest == np.arange(length).reshape([-1 if one == axis else 1 for one in range(values.ndim)])
            ).all()
        )
        for axis, length in enumerate(values.shape)
    )


def are_buckets(values: Reals) -> bool:
    """Whether each element is the bucket of column minus row: distances one by one, then in steps of their logarithm.

    How many buckets a side has stands where distances change sides; what the largest distance is, few configs differ
    in (Raffel et al. 2020, section 2.1, as T5's `_relative_position_bucket` computes it).

    >>> distance = np.arange(6)[None, :] - np.arange(6)[:, None]
    >>> are_buckets(np.where(distance > 0, 16.0, 0.0) + np.abs(distance))
    True
    """
    is_whole = bool((np.isfinite(values) & (values == np.rint(values))).all())
    if values.ndim != 2 or min(values.shape) < 3 or not is_whole:
        return False
    rows, columns = values.shape
    by_distance = np.concatenate([values[::-1, 0], values[0, 1:]])  # (rows + columns - 1,)
    distance = np.arange(columns)[None, :] - np.arange(rows)[:, None]
    if by_distance[rows - 1] != 0 or not bool((by_distance[distance + rows - 1] == values).all()):
        return False
    before, after = by_distance[rows - 1 :: -1], by_distance[rows - 1 :]  # from distance 0 on
    if not after[1:].any():  # as a decoder has them: what comes later is not seen
        return any(_are_side(before, count) for count in _SIDES_OF_BUCKETS)
    for one, other in ((before, after), (after, before)):
        count = int(other[1]) - 1
        if count > 1 and _are_side(one, count):
            return _are_side(np.concatenate([[0.0], other[1:] - count]), count)
    return False


_SIDES_OF_BUCKETS = (16, 32, 64, 128, 160, 320)
"""How many buckets decoders have, whose file does not tell."""

_FARTHEST = (32, 64, 80, 128, 256, 512, 800, 1024, 2048)
"""Distances beyond which all have the last bucket."""


def _are_side(buckets: Reals, count: int) -> bool:
    """Whether distances 0, 1, 2, ... have their buckets among so many."""
    exact = count // 2
    near, far = buckets[:exact], np.arange(exact, buckets.size)
    if not bool((near == np.arange(near.size)).all()):
        return False
    for farthest in _FARTHEST if far.size else ():
        if farthest > exact > 0:
            wanted = exact + np.log(far / exact) / np.log(farthest / exact) * (count - exact)
            known = (np.minimum(np.floor(wanted + room), count - 1) for room in (-_ROOM, _ROOM))
            if all(
                bool((buckets[exact:] * sign >= each * sign).all())
                for each, sign in zip(known, (1, -1), strict=True)
            ):
                return True
    return not far.size


_ROOM = 1e-4
"""By how much a logarithm in float32 may be on the other side of a whole number."""


def is_mask(values: Reals) -> bool:
    """Whether there are two values, one of them 0, that stand in a band, in a triangle, in a box, or in blocks.

    The other is 1, or so low that a softmax gives nothing; a band depends on the distance from the diagonal alone, and
    blocks are those of positions that belong together.
    """
    zeros = values == 0
    others = values[~zeros]
    if not others.size or not zeros.any() or values.ndim < 1:
        return False
    low = others.max() <= _MASKED
    same = bool((others == others[0]).all())
    if not (same and (low or others[0] in (1.0, -1.0))):
        return False
    if values.ndim == 1:
        return _changes(zeros[None, :]) <= 2
    planes = zeros.reshape(-1, *zeros.shape[-2:])  # (planes, rows, columns)
    if len(planes) > 4096:
        return False
    return all(
        _is_band(plane) or _is_grouping(plane) or _is_stripe(plane) or _is_box(plane) or _is_box(~plane)
        for plane in planes
    )


def _changes(rows: npt.NDArray[np.bool_]) -> int:
    return int((rows[:, 1:] != rows[:, :-1]).sum(axis=1).max(initial=0))


def _is_band(plane: npt.NDArray[np.bool_]) -> bool:
    """Whether each element depends on column minus row alone, and changes twice at most along that."""
    rows, columns = plane.shape
    by_distance = np.concatenate([plane[::-1, 0], plane[0, 1:]])  # (rows + columns - 1,)
    distance = np.arange(columns)[None, :] - np.arange(rows)[:, None] + rows - 1
    return bool((by_distance[distance] == plane).all()) and _changes(by_distance[None, :]) <= 2


def _is_grouping(plane: npt.NDArray[np.bool_]) -> bool:
    """Whether rows and columns are the same positions, and those see each other that belong to one of a few groups."""
    rows, columns = plane.shape
    if rows != columns or not bool((plane == plane.T).all()) or not bool(plane.diagonal().all()):
        return False
    groups = np.unique(plane, axis=0)
    return len(groups) <= max(9, rows // 8) and bool((groups.sum(axis=0) == 1).all())


def _is_stripe(plane: npt.NDArray[np.bool_]) -> bool:
    """Whether all rows, or all columns, are alike, and change twice at most."""
    return (bool((plane == plane[:1]).all()) and _changes(plane[:1]) <= 2) or (
        bool((plane == plane[:, :1]).all()) and _changes(plane[:, :1].T) <= 2
    )


def _is_box(plane: npt.NDArray[np.bool_]) -> bool:
    """Whether all that is marked stands in rows and columns that follow on one another, and nothing else does."""
    rows: npt.NDArray[np.bool_] = np.any(plane, axis=1)
    columns: npt.NDArray[np.bool_] = np.any(plane, axis=0)
    is_whole = bool((plane == (rows[:, None] & columns)).all())
    return is_whole and _changes(rows[None, :]) <= 2 and _changes(columns[None, :]) <= 2


def is_geometric(values: Reals, slack: float = 2e-4) -> bool:
    """Whether a vector's elements have one ratio, perhaps each twice, or all again; most of them where it was scaled.

    Long contexts scale the low frequencies (Llama 3, YaRN): then half of the ratios are the same, and none is above 1.
    """
    if values.ndim != 1 or values.size < 3 or not bool(np.isfinite(values).all()):
        return False
    if bool((values < 0).all()):
        values = -values
    if not bool((values > 0).all()):
        return False
    if _has_one_ratio(values, slack):
        return True
    half = values.size // 2
    if values.size % 2 or half < 3:
        return False
    error = 1e-8 + slack * values  # as np.isclose has it
    for candidate in (values[:half], values[::2]):
        again = (np.concatenate([candidate, candidate]), np.repeat(candidate, 2))
        is_whole = any(bool((np.abs(one - values) <= error).all()) for one in again)
        if is_whole and _has_one_ratio(candidate, slack):
            return True
    return False


def _has_one_ratio(values: Reals, slack: float) -> bool:
    ratios = values[1:] / values[:-1]
    ordered, middle = np.sort(ratios), ratios.size // 2
    usual = float(ordered[middle] if ratios.size % 2 else (ordered[middle - 1] + ordered[middle]) / 2)
    near = np.abs(ratios - usual) <= slack * abs(usual)
    if bool(near.all()):
        return True
    falls = bool((ratios <= 1 + slack).all())
    return falls and values.size >= 8 and 2 * int(near.sum()) >= near.size


def is_sloped(values: Reals, slack: float = 2e-4, step: float = 0.0) -> bool:
    """Whether it is slopes times distances: along one axis a factor, along the others counts (ALiBi's bias).

    Each element is compared in proportion to itself: beside a mask's lowest number any other would be nothing.
    """
    if values.ndim < 2 or values.size > 1 << 22:
        return False
    for axis in range(values.ndim):
        rows = _along(values, axis)  # (factors, the rest)
        if not step and min(rows.shape) > 1 and not _are_in_proportion(rows, slack):
            continue
        sizes = np.abs(rows).max(axis=1)
        if not bool((sizes > 0).all()) or not bool(np.isfinite(sizes).all()):
            continue
        base = rows[0] / sizes[0]
        signs = np.sign((rows * base).sum(axis=1))
        factors = sizes * signs
        expected = factors[:, None] * base
        if not bool((np.abs(rows - expected) <= slack * np.abs(expected) + step).all()):
            continue
        table = np.moveaxis(values, axis, 0)
        if (is_affine(table[0] / sizes[0]) or is_mask(table[0])) and _is_series(factors, slack):
            return True
    return False


def _are_in_proportion(rows: Reals, slack: float) -> bool:
    """Whether the first two rows of a table may be one times a factor, by their first two elements."""
    (first, second), (third, fourth) = rows[:2, :2].tolist()
    product = second * third
    return not abs(first * fourth - product) > 8 * slack * abs(product)


def _is_series(factors: Reals, slack: float) -> bool:
    """Whether factors are one, a count or a geometric series, or two of these after another (heads beyond 2^n)."""
    if factors.size <= 2 or is_affine(factors) or is_geometric(factors, slack):
        return True
    if (
        factors.size == 4
        and (  # two frequencies, again or each twice
            bool((factors[:2] == factors[2:]).all()) or bool((factors[::2] == factors[1::2]).all())
        )
    ):
        return True
    power = 1 << (int(factors.size).bit_length() - 1)
    parts = (factors[:power], factors[power:])
    return all(part.size <= 2 or is_geometric(part, slack) for part in parts)


def are_slopes(values: Reals, slack: float = 2e-4) -> bool:
    """Whether a vector is ALiBi's slopes of as many heads: beyond 2^n those in between follow, in any sign."""
    if values.ndim != 1 or values.size < 3:
        return False
    power = 1 << (int(values.size).bit_length() - 1)
    first = 2.0 ** (-8 / power * np.arange(1, power + 1))
    between = 2.0 ** (-4 / power * np.arange(1, 2 * (values.size - power), 2))
    return bool((np.abs(np.abs(values) / np.concatenate([first, between]) - 1) <= slack).all()) and (
        bool((values > 0).all()) or bool((values < 0).all())
    )


def is_sinusoidal(values: Reals, slack: float = 2e-4) -> bool:
    """Whether along one axis, of positions, stand the sines and cosines of these times a geometric series.

    All of one amplitude, which may be any: all else is fixed but the first frequency and the ratio of the series. A
    table of waves of any frequencies, amplitudes or phases would carry whatever numbers its first row is to have.
    """
    if values.ndim < 2 or not bool(np.isfinite(values).all()):
        return False
    for axis in range(values.ndim)[::-1]:  # what is repeated for each example or head
        if values.ndim > 2:
            first = np.take(values, [0], axis)
            values = first.squeeze(axis) if bool((values == first).all()) else values
    tables = [_along(values, axis) for axis, length in enumerate(values.shape) if length > 1]
    return any(
        _are_waves(table, slack)
        or are_solved_waves(table, slack)
        or any(all(_are_waves(part, slack) for part in parts) for parts in grids(table))
        for table in tables
    )


_BASES = (1e4, 1e5, 1.6e5, 2.5e5, 5e5, 1e6, 1e7)
"""Rotary bases that published configs state (`rope_theta`)."""

_OF_PLACES = (1e2, 1e4)
"""Bases of embeddings that turn by the places of a picture (DINOv3)."""

_SCALED = (8.0, 32.0)
"""Factors of Llama 3.1 and 3.2 (`rope_scaling`): of waves longer than 8192 positions, and of those up to a quarter of
that in part."""

_STARTS = range(3)
"""The first position: 0, or 1 or 2 where those before are for padding."""

_LOOKED_AT = 16
"""Positions of a first look."""

_PEEKED = 4
"""Positions by which a table is told from most others."""

_PEEKED_COLUMNS = 64
"""Columns that are looked at first."""

_ORDERS = ("s", "c", "ss", "cc", "sc", "cs", "ccss", "sscc")
"""Which of sine and cosine the columns are: all alike, or in so many blocks of the same frequencies, or in turns."""


def _are_waves(waves: Reals, slack: float) -> bool:
    """Whether a table (positions, columns) is the sines and cosines of a series of frequencies, in a usual order."""
    if not may_be_waves(waves[:_LOOKED_AT], slack):
        return False
    peek = waves[:_PEEKED]
    candidates, columns, expected = _usual_waves(*peek.shape)
    if any(candidates[at].is_table(waves, slack) for at in _near(peek[:, columns], expected, 2 * slack)):
        return True
    speeds = _speeds(waves)
    own = (
        _Waves(series, index, cosines, start)
        for index, cosines in _arrangements(waves.shape[1])
        for series in _own_series(index, speeds)
        for start in _STARTS
    )
    whole = [*own, *_of_middles(*waves.shape)]
    expected = np.array([each.table(len(peek), columns) for each in whole])
    if any(whole[at].is_table(waves, slack) for at in _near(peek[:, columns], expected, 2 * slack)):
        return True
    rounded = _of_any_base(waves, slack) if slack > _EXACT else ()
    return any(each.is_table(peek, slack) and each.is_table(waves, slack) for each in rounded)


_EXACT = 1e-3
"""Slack up to which frequencies are solved from the numbers (`analyzer.model.waves`)."""

_LEAST_BASE, _MOST_BASE = 1e2, 1e9

_TRIED_BASES = 1024


def _of_any_base(waves: Reals, slack: float) -> Iterator[_Waves]:
    """Rotary frequencies 1, b^(-1 / n), ... of the base that is nearest to rounded numbers, in each arrangement.

    The first frequency is 1 whatever the base is: where a table has not that, no base is looked for.
    """
    logs = np.linspace(np.log(_LEAST_BASE), np.log(_MOST_BASE), _TRIED_BASES)
    positions, columns = waves.shape
    picked = np.unique(np.linspace(0, columns - 1, min(columns, _PEEKED_COLUMNS)).astype(np.intp))
    far = np.unique(np.linspace(0, min(positions, _LOOKED_AT**2) - 1, 2 * _LOOKED_AT).astype(np.intp))
    looks = [np.arange(min(positions, count)) for count in (_PEEKED, _LOOKED_AT)] + [far]
    for index, cosines in _arrangements(columns):
        first = np.flatnonzero(index == 0)
        ones = _Waves(np.ones(1), index[first], cosines[first], 0)
        if not ones.is_table(waves[:_PEEKED, first], 4 * slack):
            continue
        count = int(index.max()) + 1
        shares, turns = index[picked] / count, np.where(cosines[picked], 0.0, np.pi / 2)
        spread, least = logs, 0.0
        for places in looks:
            rows = waves[places][:, picked]
            angles = places[:, None] * np.exp(-spread[:, None, None] * shares)
            expected = np.cos(angles - turns)  # (bases, rows, columns)
            products = (expected * rows).sum(axis=(1, 2))
            sizes = np.square(expected).sum(axis=(1, 2))
            likeness = np.where(sizes > 0, products / np.sqrt(np.where(sizes > 0, sizes, 1)), 0)
            best = int(likeness.argmax())
            if likeness[best] < _ALIKE * np.sqrt(np.square(rows).sum()):
                break
            least = float(spread[best])
            width = 16 * (spread[1] - spread[0])
            spread = np.linspace(least - width, least + width, 256)
        else:
            yield _Waves(np.exp(-least * np.arange(count) / count), index, cosines, 0)


_ALIKE = 0.99
"""The cosine between a table and that of the nearest base, at least."""


def _of_middles(positions: int, columns: int) -> Iterator[_Waves]:
    """Waves at the middles of as many places between -1 and 1, of whole turns (DINOv3, arXiv:2508.10104)."""
    for index, cosines in _arrangements(columns):
        count = int(index.max()) + 1
        for base in _OF_PLACES:
            series = 4 * np.pi / positions * base ** (-np.arange(count) / count)
            yield _Waves(series, index, cosines, (1 - positions) / 2)


class _Waves(NamedTuple):
    """Sines and cosines of positions times frequencies."""

    series: Reals
    """Frequencies."""
    places: npt.NDArray[np.intp]
    """Which of them each column has."""
    cosines: npt.NDArray[np.bool_]
    """Whether it is their cosine."""
    start: float
    """The first position."""

    def table(self, positions: int, columns: npt.NDArray[np.intp] | slice = slice(None)) -> Reals:
        """The numbers of some columns, of one amplitude, 1."""
        cosines = self.cosines[columns]
        angles = (np.arange(positions)[:, None] + self.start) * self.series[self.places[columns]]
        return np.where(cosines, np.cos(angles), np.sin(angles))

    def is_table(self, waves: Reals, slack: float) -> bool:
        """Whether a table is these, of some amplitude."""
        return _near(waves, self.table(len(waves))[None], slack).size > 0


def _near(waves: Reals, expected: Reals, slack: float) -> npt.NDArray[np.intp]:
    """Which of several tables (number, positions, columns) a table is, but for its amplitude and rounding."""
    rows = np.arange(len(waves))[:, None]
    sizes = (expected * expected).sum(axis=(1, 2))
    products = (expected * waves).sum(axis=(1, 2))
    amplitudes = np.where(sizes > 0, products / np.where(sizes > 0, sizes, 1), 0)[:, None, None]
    scaled = amplitudes * expected
    # Angles are rounded before their sine is taken, and large ones more than small ones.
    room = np.minimum(slack * (1 + rows / 64), max(slack, 0.05)) * np.abs(scaled).max(
        axis=(1, 2), keepdims=True
    )
    is_near = (np.abs(waves - scaled) <= room).all(axis=(1, 2)) & (amplitudes[:, 0, 0] > 0)
    return np.flatnonzero(is_near)


@functools.lru_cache(maxsize=8)
def _usual_waves(positions: int, columns: int) -> tuple[tuple[_Waves, ...], npt.NDArray[np.intp], Reals]:
    """Waves of usual frequencies; some columns, and what each has at the first positions in these."""
    found = tuple(
        _Waves(series, index, cosines, start)
        for index, cosines in _arrangements(columns)
        for series in _usual_series(int(index.max()) + 1)
        for start in _STARTS
    )
    peeked = np.unique(np.linspace(0, columns - 1, min(columns, _PEEKED_COLUMNS)).astype(np.intp))
    return found, peeked, np.array([each.table(positions, peeked) for each in found])


def _arrangements(columns: int) -> Iterator[tuple[npt.NDArray[np.intp], npt.NDArray[np.bool_]]]:
    """Of each column which frequency it has, and whether the cosine, in each usual order."""
    for order in _ORDERS:
        count, rest = divmod(columns, len(order))
        if rest or not count:
            continue
        is_cosine = np.array([kind == "c" for kind in order])
        yield np.tile(np.arange(count), len(order)), np.repeat(is_cosine, count)  # in blocks
        if len(order) > 1:
            yield np.repeat(np.arange(count), len(order)), np.tile(is_cosine, count)  # in turns


def _speeds(waves: Reals) -> Reals:
    """Of each column the angle between two positions, by t[p + 1] + t[p - 1] = 2 cos(f) t[p]; nan of slow ones."""
    middle, around = waves[1:-1], waves[2:] + waves[:-2]
    power = (middle * middle).sum(axis=0)
    twice = np.where(power > 0, (middle * around).sum(axis=0) / np.where(power > 0, power, 1), 2.0)
    speeds: Reals = np.arccos(np.clip(twice / 2, -1, 1))
    return np.where(speeds > 0.05, speeds, np.nan)


def _usual_series(count: int) -> Iterator[Reals]:
    """Frequencies that configs state."""
    steps = np.arange(count)
    for base in _BASES:
        for whole in {count, max(count - 1, 1)}:
            yield base ** (-steps / whole)
    frequencies = 5e5 ** (-steps / count)
    length = 2 * np.pi / frequencies
    part = np.clip((8192 / length - 1) / 3, 0, 1)
    for factor in _SCALED:
        yield frequencies * (part + (1 - part) / factor)


def _own_series(index: npt.NDArray[np.intp], speeds: Reals) -> Iterator[Reals]:
    """The series through the first and the last frequency that a table has."""
    first = speeds[index == 0]
    known = np.flatnonzero(np.isfinite(speeds))
    if known.size and bool(np.isfinite(first).any()):
        start = float(np.nanmedian(first))
        last = known[np.argmax(index[known])]
        ratio = (float(speeds[last]) / start) ** (1 / max(int(index[last]), 1))
        yield start * ratio ** np.arange(int(index.max()) + 1)
