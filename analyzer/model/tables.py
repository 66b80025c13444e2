"""Numbers -> whether they are a table that needs no learning: one value, a count, a mask, sines and cosines.

The values alone decide, and a table qualifies only if few numbers describe all of it: trained weights cannot have its
form. Sources: Vaswani et al. 2017 (arXiv:1706.03762, section 3.5, sinusoids), Su et al. 2021 (arXiv:2104.09864,
equation 15, rotary frequencies), Press et al. 2021 (arXiv:2108.12409, section 3, slopes), Liu et al. 2021
(arXiv:2103.14030, shifted windows), Liu et al. 2022 (arXiv:2111.09883, logarithms of distances).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from analyzer.model.content import Array
from analyzer.model.distances import are_distances
from analyzer.model.pyramids import is_grid, is_pyramid
from analyzer.model.waves import are_solved_waves, grids, may_be_waves

Reals = npt.NDArray[np.float64]

_MASKED = -50.0
"""Largest value that a mask adds to a hidden score: Swin's is -100, others -1e4, the type's least number, or minus
infinity."""


def count_free(array: Array, step: float = 0.0) -> int:
    """Count the numbers that describe a tensor: 0 for a known table, 1 for one value throughout, else all its elements.

    A table that is repeated for each example or each head counts like one copy. `step` is the largest quantization
    step: each element is known to within half of it.
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
    if array.dtype.kind in "iu" and _is_scaled_mask(array):
        return 1
    unrepeated = _drop_repetitions(array)
    is_table = unrepeated is not array and unrepeated.size > _LEAST and is_known_table(unrepeated, step)
    return 0 if is_table else int(array.size)


def _is_scaled_mask(array: Array) -> bool:
    """Whether integers are a mask times one of them, as the buckets of one side of all distances."""
    values = np.squeeze(array.astype(np.float64))
    other = values.flat[np.argmax(values != 0)]
    return bool(((values == 0) | (values == other)).all()) and is_mask(values / other)


_LEAST = 3
"""Number of elements up to which any numbers would pass as a table."""


def _drop_repetitions(array: Array) -> Array:
    """Return an array without its repetitions along an axis, if whole copies follow one another."""
    for axis, length in enumerate(array.shape):
        rows = _along(array, axis)
        again = np.flatnonzero((rows[1:] == rows[:1]).all(axis=1)) + 1 if length > 1 else ()
        for period in (int(start) for start in again[:_MOST_PERIODS]):
            if length % period == 0 and bool((rows[period:] == rows[:-period]).all()):
                array = np.take(array, np.arange(period), axis=axis)
                break
    return array


def _along(array: npt.NDArray[Any], axis: int) -> npt.NDArray[Any]:
    """Return the elements by their position on an axis: (length of the axis, all others)."""
    if array.ndim == 2:
        return array.T if axis else array
    return np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1)


_MOST_PERIODS = 64
"""Most rows equal to the first that are tried as the start of a repetition."""


def is_known_table(array: Array, step: float = 0.0) -> bool:
    """Whether a table is counts, distances in a grid, cells of grids, a mask, frequencies, slopes, sines or cosines.

    The axes may be in any order, except for distances.
    """
    if array.dtype.kind not in "biufV" or array.size < 2:
        return False
    with np.errstate(all="ignore"):
        values = np.squeeze(array.astype(np.float64))
        if not values.ndim:
            return False
        if are_whole(values) and are_distances(values.astype(np.int64)):
            return True
        if is_pyramid(values) or (2 in values.shape and is_grid(values)):
            return True
        if values.size in _PUBLISHED and is_published(values):
            return True
        slack = _SLACK_OF_HALF if _was_half(array) else slack_of(array)
        slack = max(slack, step / max(float(np.abs(values).max()), 1e-30)) if step else slack
        if values.size > _LARGE:  # a corner of a known table is a known table too
            corner = values[(slice(0, 8),) * values.ndim]
            is_varied = bool((corner != corner.flat[0]).any())
            if is_varied and not (_is_known(corner, step, slack) or _may_be_waves_elsewhere(corner, slack)):
                return False
        return _is_known(values, step, slack)


def is_published(values: Reals) -> bool:
    """Whether numbers are constants that papers and libraries publish, to the last digit of single precision.

    They are the means and deviations of images by channel, red first (ImageNet's, of torchvision; CLIP's,
    arXiv:2103.00020), or the matrix that turns centers and sizes of boxes into corners, in either orientation.
    """
    if values.shape == (4, 4):
        return values[0, 0] == 1 and any(np.array_equal(each, _CORNERS) for each in (values, values.T))
    return values.shape == (3,) and any(np.array_equal(values.astype(np.float32), each) for each in _CHANNELS)


_PUBLISHED = (3, 16)
"""Numbers of elements of published constants."""
_CORNERS = np.array([[1, 0, 1, 0], [0, 1, 0, 1], [-0.5, 0, 0.5, 0], [0, -0.5, 0, 0.5]])
_STATISTICS = (
    ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)),
)
_CHANNELS = [
    (np.array(each, np.float32) * np.float32(scale)).astype(np.float32)
    for pair in _STATISTICS
    for each in pair
    for scale in (1, 255)
]


def are_whole(values: Reals) -> bool:
    """Whether all numbers are whole, and small enough to be exact; the first ones are looked at first."""
    return all(
        bool(((part == np.rint(part)) & (np.abs(part) < _MOST_WHOLE)).all())
        for part in (values.reshape(-1)[:16], values)
    )


_MOST_WHOLE = float(1 << 53)
"""Least number from which a float64 may be another whole number than the one that was meant."""


def _may_be_waves_elsewhere(corner: Reals, slack: float) -> bool:
    """Whether a corner may belong to waves whose first position lies elsewhere."""
    return any(
        length > 2 and may_be_waves(_along(corner, axis), slack) for axis, length in enumerate(corner.shape)
    )


def slack_of(array: Array) -> float:
    """Return the relative error allowed for an element of a table, which depends on its type."""
    return _SLACK_OF_HALF if array.dtype.itemsize <= 2 and array.dtype.kind in "fV" else 2e-4


_SLACK_OF_HALF = 4e-3
"""Relative error of an element of 16 bits: sines of rounded frequencies, rounded once more."""


def _was_half(array: Array) -> bool:
    """Whether a float32 array was computed in float16 and only cast since: no element has more bits of mantissa."""
    if array.dtype != np.float32:
        return False
    bits = np.ascontiguousarray(array).reshape(-1).view(np.uint32) & np.uint32((1 << 13) - 1)
    return not bits.any()


_LARGE = 1 << 14
"""Number of elements above which a corner is checked first."""


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
        or are_log_distances(values)
        or _turns_in_part(values, slack)
    )


def _turns_in_part(values: Reals, slack: float) -> bool:
    """Whether a table is of rotary positions whose last channels stand still: a part of each head does not turn.

    Their frequencies are zeros (transformers `modeling_rope_utils.py`, the type `proportional`), once or twice.
    """
    if values.ndim == 1 and bool(values.all()):
        return False  # no channel stands still
    return any(_turns_in_part_along(values, axis, slack) for axis in range(values.ndim))


def _turns_in_part_along(values: Reals, axis: int, slack: float) -> bool:
    """Whether it is a table with the channels on this axis."""
    channels = _along(values, axis)  # (channels, positions)
    is_still = (channels == 0).all(axis=1)
    if values.ndim > 1:
        is_still |= (channels == 1).all(axis=1)
    if not is_still.any() or is_still.all():
        return False
    first, last = np.array_split(is_still, 2)
    times = 2 if np.array_equal(first, last) else 1
    if not bool((np.diff(is_still.reshape(times, -1).astype(np.int8)) >= 0).all()):
        return False
    moving = channels[~is_still]
    if values.ndim == 1:
        return moving.size > 1 and _are_speeds(moving[:, 0], slack)
    waves = np.ascontiguousarray(moving.T)
    return _is_sloped_along(moving, 0, slack) or _are_waves(waves, slack) or are_solved_waves(waves, slack)


def _are_speeds(values: Reals, slack: float) -> bool:
    """Whether a vector is a positive geometric series; one that falls, as frequencies do, starts at 1 at most."""
    if not bool((values > 0).all()) or not is_geometric(values, slack):
        return False
    return bool(values[0] <= 1 + slack) or bool(values[0] <= values[-1])


def is_affine(values: Reals, error: float = 0.0) -> bool:
    """Whether each element is a constant plus a step for each axis: a count, a grid, signed distances."""
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
    tolerance = 1e-6 * float(np.abs(values).max()) + 3 * error
    return bool((np.abs(values - expected) <= tolerance).all())


def is_coordinates(values: Reals) -> bool:
    """Whether whole numbers, along one axis, are the coordinates of the positions on the other axes.

    Each coordinate counts by ones along one other axis, or is one number: the indices that `GatherND` reads if a loop
    over all positions was vectorized. Or it counts by ones within the windows of an adaptive pooling. A different step,
    or a position out of order, does not qualify.
    """
    if not 2 <= values.ndim <= 8 or not bool((values == np.rint(values)).all()):
        return False
    return any(
        count <= _MOST_COORDINATES
        and all(counts_one_axis(one) or _counts_in_windows(one) for one in np.moveaxis(values, axis, 0))
        for axis, count in enumerate(values.shape)
    )


def _counts_in_windows(values: Reals) -> bool:
    """Whether numbers are the positions in the windows along two axes: window i of b begins at floor(i n / b).

    No position is beyond the last (`torch.nn.functional.adaptive_avg_pool2d`, as torch's decompositions compute it).
    """
    last = float(values.max())
    for axis in range(values.ndim - 1):
        windows = np.moveaxis(values, (axis, axis + 1), (0, 1))
        starts = np.floor(np.arange(len(windows)) * (last + 1) / len(windows))
        expected = np.minimum(starts[:, None] + np.arange(windows.shape[1]), last)
        if bool((windows == expected.reshape(*expected.shape, *[1] * (values.ndim - 2))).all()):
            return True
    return False


_MOST_COORDINATES = 8
"""Most axes that a tensor has in practice."""


def are_log_distances(values: Reals) -> bool:
    """Whether the two halves along an axis are logarithms of distances in a grid: of rows, and of columns.

    The logarithm is of one plus a distance, which has its sign back; or in base 8, of a distance that is 8 at the end
    of the window (Liu et al. 2022, arXiv:2111.09883, equation 4, and the authors' implementation, Swin V2).
    """
    if values.ndim < 2 or 2 not in values.shape or values.size < _LEAST_PAIRS:
        return False
    for unit, base in ((1.0, 1.0), *((8.0 / side, math.log(8)) for side in range(1, _LONGEST_SIDE))):
        if _whole_distances(values.reshape(-1)[:_LEAST_PAIRS], unit, base) is None:
            continue
        whole = _whole_distances(values, unit, base)
        if whole is not None:
            halves = [np.moveaxis(whole, axis, 0) for axis, length in enumerate(values.shape) if length == 2]
            return any(
                all(counts_one_axis(part) or are_distances(part.astype(np.int64)) for part in parts)
                for parts in halves
            )
    return False


def _whole_distances(values: Reals, unit: float, base: float) -> Reals | None:
    """Return the whole distances of which signed logarithms were taken; None if they are none."""
    distances = np.sign(values) * np.expm1(np.abs(values) * base) / unit
    whole: Reals = np.rint(distances)
    return whole if np.allclose(distances, whole, rtol=1e-5, atol=1e-4) else None


_LEAST_PAIRS = 18
"""Fewest numbers of such a table: a window of 2 x 2."""

_LONGEST_SIDE = 65


def counts_one_axis(values: Reals) -> bool:
    """Whether all elements are one number, or count up by ones along one axis."""
    differences = values - values.flat[0]
    if not differences.any():
        return True
    return any(
        bool(
            (
                differences
                == np.arange(length).reshape([-1 if one == axis else 1 for one in range(values.ndim)])
            ).all()
        )
        for axis, length in enumerate(values.shape)
    )


def are_buckets(values: Reals) -> bool:
    """Whether each element is the bucket of column minus row: single distances first, then logarithmic steps.

    The table shows the number of buckets per side where distances change sign; for the largest distance, configs use
    only a few values (Raffel et al. 2020, section 2.1, as T5's `_relative_position_bucket` computes it). Distance 0 may
    lie on any diagonal: blocks of LongT5 see the blocks before and after them (Guo et al. 2022, section 3.1.1).

    >>> distance = np.arange(6)[None, :] - np.arange(6)[:, None]
    >>> are_buckets(np.where(distance > 0, 16.0, 0.0) + np.abs(distance))
    True
    """
    if values.ndim != 2 or min(values.shape) < 3:
        return False
    if not bool((np.isfinite(values) & (values == np.rint(values))).all()):
        return False
    rows, columns = values.shape
    by_distance = np.concatenate([values[::-1, 0], values[0, 1:]])  # (rows + columns - 1,)
    distance = np.arange(columns)[None, :] - np.arange(rows)[:, None]
    zeros = np.flatnonzero(by_distance == 0)
    if not zeros.size or not bool((by_distance[distance + rows - 1] == values).all()):
        return False
    before, after = by_distance[zeros[0] :: -1], by_distance[zeros[0] :]  # from distance 0 on
    if not after[1:].any():  # as in a decoder, which does not see later positions
        return any(_are_side(before, count) for count in _SIDES_OF_BUCKETS)
    for one, other in ((before, after), (after, before)):
        count = int(other[1]) - 1 if other.size > 1 else 0
        if count > 1 and _are_side(one, count):
            return _are_side(np.concatenate([[0.0], other[1:] - count]), count)
    return False


_SIDES_OF_BUCKETS = (16, 32, 64, 128, 160, 320)
"""Numbers of buckets in decoders, whose tables do not show it."""

_FARTHEST = (32, 64, 80, 128, 256, 512, 800, 1024, 2048)
"""Distances beyond which all positions have the last bucket."""


def _are_side(buckets: Reals, count: int) -> bool:
    """Whether distances 0, 1, 2, ... have the buckets of one side with `count` buckets."""
    exact = count // 2
    near, far = buckets[:exact], np.arange(exact, buckets.size)
    if not bool((near == np.arange(near.size)).all()):
        return False
    for farthest in _FARTHEST if far.size else ():
        if farthest > exact > 0:
            expected = exact + np.log(far / exact) / np.log(farthest / exact) * (count - exact)
            known = (
                np.minimum(np.floor(expected + tolerance), count - 1)
                for tolerance in (-_TOLERANCE, _TOLERANCE)
            )
            if all(
                bool((buckets[exact:] * sign >= each * sign).all())
                for each, sign in zip(known, (1, -1), strict=True)
            ):
                return True
    return not far.size


_TOLERANCE = 1e-4
"""Error by which a float32 logarithm may fall on the other side of a whole number."""


def is_mask(values: Reals) -> bool:
    """Whether there are two values, one of them 0, that form a band, a triangle, a box, blocks, or windows of a grid.

    The other is 1 or -1, or so low that softmax returns 0 for it. A band depends only on the distance from the
    diagonal, and a block holds positions that belong together.
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
        _is_band(plane)
        or _is_grouping(plane)
        or _is_stripe(plane)
        or _is_box(plane)
        or _is_box(~plane)
        or _is_window(plane)
        for plane in planes
    )


def _changes(rows: npt.NDArray[np.bool_]) -> int:
    return int((rows[:, 1:] != rows[:, :-1]).sum(axis=1).max(initial=0))


def _is_band(plane: npt.NDArray[np.bool_]) -> bool:
    """Whether each element depends only on column minus row, and changes at most twice along it."""
    rows, columns = plane.shape
    by_distance = np.concatenate([plane[::-1, 0], plane[0, 1:]])  # (rows + columns - 1,)
    distance = np.arange(columns)[None, :] - np.arange(rows)[:, None] + rows - 1
    return bool((by_distance[distance] == plane).all()) and _changes(by_distance[None, :]) <= 2


def _is_grouping(plane: npt.NDArray[np.bool_]) -> bool:
    """Whether rows and columns are the same positions, and each sees exactly its own group, one of a few."""
    rows, columns = plane.shape
    if rows != columns or not bool((plane == plane.T).all()) or not bool(plane.diagonal().all()):
        return False
    groups = np.unique(plane, axis=0)
    return len(groups) <= max(9, rows // 8) and bool((groups.sum(axis=0) == 1).all())


def _is_window(plane: npt.NDArray[np.bool_]) -> bool:
    """Whether rows and columns are the same cells of a grid, and each sees the cells of a window around it.

    The window is a band of the grid's rows and a band of its columns (Du et al. 2022, arXiv:2205.00159, section 3.3).
    """
    cells, columns = plane.shape
    if cells != columns or not bool(plane.diagonal().all()):
        return False
    for width in range(2, cells // 2 + 1):
        if cells % width == 0:
            grid = plane.reshape(cells // width, width, cells // width, width)
            down: npt.NDArray[np.bool_] = np.any(grid, axis=(1, 3))
            across: npt.NDArray[np.bool_] = np.any(grid, axis=(0, 2))
            is_both = bool((grid == (down[:, None, :, None] & across[None, :, None, :])).all())
            if is_both and _is_band(down) and _is_band(across):
                return True
    return False


def _is_stripe(plane: npt.NDArray[np.bool_]) -> bool:
    """Whether all rows, or all columns, are equal and change at most twice."""
    return (bool((plane == plane[:1]).all()) and _changes(plane[:1]) <= 2) or (
        bool((plane == plane[:, :1]).all()) and _changes(plane[:, :1].T) <= 2
    )


def _is_box(plane: npt.NDArray[np.bool_]) -> bool:
    """Whether the marked elements are exactly those in some consecutive rows and consecutive columns."""
    rows: npt.NDArray[np.bool_] = np.any(plane, axis=1)
    columns: npt.NDArray[np.bool_] = np.any(plane, axis=0)
    is_whole = bool((plane == (rows[:, None] & columns)).all())
    return is_whole and _changes(rows[None, :]) <= 2 and _changes(columns[None, :]) <= 2


def is_geometric(values: Reals, slack: float = 2e-4) -> bool:
    """Whether a vector's elements have one ratio, perhaps each twice or all repeated; most of them if it was scaled.

    Long contexts scale the low frequencies (Llama 3, YaRN): then at least half of the ratios are equal, and none is
    above 1.
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
    error = 1e-8 + slack * values  # as np.isclose computes it
    for candidate in (values[:half], values[::2]):
        repetitions = (np.concatenate([candidate, candidate]), np.repeat(candidate, 2))
        is_whole = any(bool((np.abs(one - values) <= error).all()) for one in repetitions)
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
    """Whether a table is slopes times distances: a factor along one axis, counts along the others (ALiBi's bias).

    Encoders use distances without a sign.

    Each element is compared relative to its own size, because beside a mask's lowest number any other error would
    vanish.
    """
    if values.ndim < 2 or values.size > 1 << 22:
        return False
    return any(_is_sloped_along(values, axis, slack, step) for axis in range(values.ndim))


def _is_sloped_along(values: Reals, axis: int, slack: float, step: float = 0.0) -> bool:
    """Whether it is a table with the slopes on this axis."""
    rows = _along(values, axis)  # (factors, the rest)
    if not step and min(rows.shape) > 1 and not _are_in_proportion(rows, slack):
        return False
    sizes = np.abs(rows).max(axis=1)
    if not bool((sizes > 0).all()) or not bool(np.isfinite(sizes).all()):
        return False
    base = rows[0] / sizes[0]
    signs = np.sign((rows * base).sum(axis=1))
    factors = sizes * signs
    expected = factors[:, None] * base
    if not bool((np.abs(rows - expected) <= slack * np.abs(expected) + step).all()):
        return False
    table = np.moveaxis(values, axis, 0)
    line = table[0] / sizes[0]
    is_line = is_affine(line) or is_mask(table[0]) or _are_unsigned_distances(line)
    return is_line and _is_series(factors, slack)


def _are_unsigned_distances(values: Reals) -> bool:
    """Whether numbers (queries, keys) are one number times the distance between two positions, without a sign."""
    if bool((values > 0).any()) and bool((values < 0).any()):
        return False
    unit = float(np.abs(values).max()) / max(max(values.shape) - 1, 1)
    places = np.squeeze(np.abs(values)) / unit
    whole = np.rint(places)
    return (
        places.ndim == 2
        and bool((np.abs(places - whole) <= 1e-4).all())
        and are_distances(whole.astype(np.int64))
    )


def _are_in_proportion(rows: Reals, slack: float) -> bool:
    """Whether the first two rows of a table are proportional, judging by their first two elements."""
    (first, second), (third, fourth) = rows[:2, :2].tolist()
    product = second * third
    return not abs(first * fourth - product) > 8 * slack * abs(product)


def _is_series(factors: Reals, slack: float) -> bool:
    """Whether factors are at most two, a count or a geometric series, or two of these in a row (heads beyond 2^n)."""
    if factors.size <= 2 or is_affine(factors) or is_geometric(factors, slack):
        return True
    if (
        factors.size == 4
        and (  # two frequencies, repeated as a pair or each twice
            bool((factors[:2] == factors[2:]).all()) or bool((factors[::2] == factors[1::2]).all())
        )
    ):
        return True
    power = 1 << (int(factors.size).bit_length() - 1)
    parts = (factors[:power], factors[power:])
    return all(part.size <= 2 or is_geometric(part, slack) for part in parts)


def are_slopes(values: Reals, slack: float = 2e-4) -> bool:
    """Whether a vector is ALiBi's slopes, one a head, of either sign; beyond 2^n heads, slopes in between follow."""
    if values.ndim != 1 or values.size < 3 or not (bool((values > 0).all()) or bool((values < 0).all())):
        return False
    power = 1 << (int(values.size).bit_length() - 1)
    first = 2.0 ** (-8 / power * np.arange(1, power + 1))
    between = 2.0 ** (-4 / power * np.arange(1, 2 * (values.size - power), 2))
    return bool((np.abs(np.abs(values) / np.concatenate([first, between]) - 1) <= slack).all())


def is_sinusoidal(values: Reals, slack: float = 2e-4) -> bool:
    """Whether positions along one axis have the sines and cosines of a geometric series of frequencies.

    All have one amplitude, which is free; besides it only the first frequency and the ratio of the series are free. A
    table of waves with any frequencies, amplitudes or phases could encode any numbers in its first row.
    """
    if values.ndim < 2 or not bool(np.isfinite(values).all()):
        return False
    for axis in range(values.ndim)[::-1]:  # drops repetitions for each example or head
        if values.ndim > 2:
            first = np.take(values, [0], axis)
            values = first.squeeze(axis) if bool((values == first).all()) else values
    if values.ndim == 3:  # rows, columns and channels, in some order (Carion et al. 2020, DETR)
        images = (np.moveaxis(values, axis, 2) for axis in range(3))
        if any(_are_of_grid(image.reshape(-1, image.shape[2]), slack) for image in images):
            return True
    tables = [_along(values, axis) for axis, length in enumerate(values.shape) if length > 1]
    return any(
        _are_waves(table, slack) or are_solved_waves(table, slack) or _are_of_grid(table, slack)
        for table in tables
    )


def _are_of_grid(positions: Reals, slack: float) -> bool:
    """Whether some channels are waves along the rows of a grid, and the others along its columns."""
    return any(all(_are_waves(part, slack) for part in parts) for parts in grids(positions))


_BASES = (1e4, 1e5, 1.6e5, 2.5e5, 5e5, 1e6, 1e7)
"""Rotary bases in published configs (`rope_theta`)."""

_IMAGE_BASES = (1e2, 1e4)
"""Bases of embeddings that rotate by positions in an image (DINOv3)."""

_SCALED = (8.0, 32.0)
"""Factors of Llama 3.1 and 3.2 (`rope_scaling`). They divide the frequencies of waves longer than 8192 positions, and
in part those of waves longer than a quarter of that."""

_STARTS = range(3)
"""First position: 0, or 1 or 2 if earlier positions are for padding."""

_LOOKED_AT = 16
"""Positions of a first check."""

_PEEKED = 4
"""Positions that suffice to rule out most tables."""

_PEEKED_COLUMNS = 64
"""Most columns that are checked first."""

_ORDERS = ("s", "c", "ss", "cc", "sc", "cs", "ccss", "sscc")
"""Orders of sine and cosine columns: all alike, in as many blocks of the same frequencies, or interleaved."""


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
    whole = [*own, *_waves_at_middles(*waves.shape)]
    expected = np.array([each.table(len(peek), columns) for each in whole])
    if any(whole[at].is_table(waves, slack) for at in _near(peek[:, columns], expected, 2 * slack)):
        return True
    rounded = _waves_of_any_base(waves, slack) if slack > _EXACT else ()
    return any(each.is_table(peek, slack) and each.is_table(waves, slack) for each in rounded)


_EXACT = 1e-3
"""Slack up to which frequencies are solved from the numbers (`analyzer.model.waves`)."""

_LEAST_BASE, _MOST_BASE = 1e2, 1e9

_TRIED_BASES = 1024


def _waves_of_any_base(waves: Reals, slack: float) -> Iterator[_Waves]:
    """Yield rotary frequencies 1, b^(-1 / n), ... of the base that fits rounded numbers best, in each arrangement.

    The first frequency is 1 for every base: if the table lacks it, no base is searched for.
    """
    logs = np.linspace(np.log(_LEAST_BASE), np.log(_MOST_BASE), _TRIED_BASES)
    positions, columns = waves.shape
    picked = np.unique(np.linspace(0, columns - 1, min(columns, _PEEKED_COLUMNS)).astype(np.intp))
    far = np.unique(np.linspace(0, min(positions, _LOOKED_AT**2) - 1, 2 * _LOOKED_AT).astype(np.intp))
    position_sets = [np.arange(min(positions, count)) for count in (_PEEKED, _LOOKED_AT)] + [far]
    for index, cosines in _arrangements(columns):
        first = np.flatnonzero(index == 0)
        ones = _Waves(np.ones(1), index[first], cosines[first], 0)
        if not ones.is_table(waves[:_PEEKED, first], 4 * slack):
            continue
        count = int(index.max()) + 1
        shares, turns = index[picked] / count, np.where(cosines[picked], 0.0, np.pi / 2)
        spread, least = logs, 0.0
        for places in position_sets:
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
"""Least cosine similarity between a table and the table of the nearest base."""


def _waves_at_middles(positions: int, columns: int) -> Iterator[_Waves]:
    """Yield waves at the middles of equal steps between -1 and 1, in whole turns (DINOv3, arXiv:2508.10104)."""
    for index, cosines in _arrangements(columns):
        count = int(index.max()) + 1
        for base in _IMAGE_BASES:
            series = 4 * np.pi / positions * base ** (-np.arange(count) / count)
            yield _Waves(series, index, cosines, (1 - positions) / 2)


class _Waves(NamedTuple):
    """Table of sines and cosines of positions times frequencies."""

    series: Reals
    """Frequencies."""
    places: npt.NDArray[np.intp]
    """Index of each column's frequency."""
    cosines: npt.NDArray[np.bool_]
    """Whether each column is a cosine."""
    start: float
    """First position."""

    def table(self, positions: int, columns: npt.NDArray[np.intp] | slice = slice(None)) -> Reals:
        """Return some columns of the table, with amplitude 1."""
        cosines = self.cosines[columns]
        angles = (np.arange(positions)[:, None] + self.start) * self.series[self.places[columns]]
        return np.where(cosines, np.cos(angles), np.sin(angles))

    def is_table(self, waves: Reals, slack: float) -> bool:
        """Whether a table equals this one up to an amplitude."""
        return _near(waves, self.table(len(waves))[None], slack).size > 0


def _near(waves: Reals, expected: Reals, slack: float) -> npt.NDArray[np.intp]:
    """Return indices of the tables (number, positions, columns) that equal a table up to amplitude and rounding."""
    rows = np.arange(len(waves))[:, None]
    sizes = (expected * expected).sum(axis=(1, 2))
    products = (expected * waves).sum(axis=(1, 2))
    amplitudes = np.where(sizes > 0, products / np.where(sizes > 0, sizes, 1), 0)[:, None, None]
    scaled = amplitudes * expected
    # Angles are rounded before their sine is taken, and large ones more than small ones.
    tolerance = np.minimum(slack * (1 + rows / 64), max(slack, 0.05)) * np.abs(scaled).max(
        axis=(1, 2), keepdims=True
    )
    is_near = (np.abs(waves - scaled) <= tolerance).all(axis=(1, 2)) & (amplitudes[:, 0, 0] > 0)
    return np.flatnonzero(is_near)


@functools.lru_cache(maxsize=8)
def _usual_waves(positions: int, columns: int) -> tuple[tuple[_Waves, ...], npt.NDArray[np.intp], Reals]:
    """Return waves of usual frequencies, some columns, and each wave's numbers in these at the first positions."""
    found = tuple(
        _Waves(series, index, cosines, start)
        for index, cosines in _arrangements(columns)
        for series in _usual_series(int(index.max()) + 1)
        for start in _STARTS
    )
    peeked = np.unique(np.linspace(0, columns - 1, min(columns, _PEEKED_COLUMNS)).astype(np.intp))
    return found, peeked, np.array([each.table(positions, peeked) for each in found])


def _arrangements(columns: int) -> Iterator[tuple[npt.NDArray[np.intp], npt.NDArray[np.bool_]]]:
    """Yield each column's frequency index, and whether it is a cosine, for each usual order."""
    for order in _ORDERS:
        count, rest = divmod(columns, len(order))
        if rest or not count:
            continue
        is_cosine = np.array([kind == "c" for kind in order])
        yield np.tile(np.arange(count), len(order)), np.repeat(is_cosine, count)  # in blocks
        if len(order) > 1:
            yield np.repeat(np.arange(count), len(order)), np.tile(is_cosine, count)  # interleaved


def _speeds(waves: Reals) -> Reals:
    """Return each column's angle between positions, by t[p + 1] + t[p - 1] = 2 cos(f) t[p]; nan for slow ones."""
    middle, around = waves[1:-1], waves[2:] + waves[:-2]
    power = (middle * middle).sum(axis=0)
    twice = np.where(power > 0, (middle * around).sum(axis=0) / np.where(power > 0, power, 1), 2.0)
    speeds: Reals = np.arccos(np.clip(twice / 2, -1, 1))
    return np.where(speeds > 0.05, speeds, np.nan)


def _usual_series(count: int) -> Iterator[Reals]:
    """Yield frequencies that published configs use."""
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
    """Yield the geometric series through a table's own first and last frequency, and usual ones from its first."""
    first = speeds[index == 0]
    known = np.flatnonzero(np.isfinite(speeds))
    if known.size and bool(np.isfinite(first).any()):
        start = float(np.nanmedian(first))
        last = known[np.argmax(index[known])]
        ratio = (float(speeds[last]) / start) ** (1 / max(int(index[last]), 1))
        steps = np.arange(int(index.max()) + 1)
        yield start * ratio**steps
        for base in (
            _BASES
        ):  # positions were divided by their number, and most waves are too slow to show their speed
            yield start * base ** (-steps / len(steps))
