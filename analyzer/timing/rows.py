"""Timing -> rows of its table: groups as a tree, and fused kernels; a sweep -> growth of the rows with its length."""

from __future__ import annotations

import enum
import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from analyzer.account.group.keys import Label
from analyzer.account.group.tree import TreeRow, build_tree, cut_rows, sum_groups
from analyzer.account.ledger import Group
from analyzer.records import Frozen, replace
from analyzer.text import format_many
from analyzer.timing.record import Point, TimedGroup, Timing

FEWEST = 3
"""Fewest points for a fit."""

_Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


class Order(enum.StrEnum):
    """Growth of a time with the length."""

    CONSTANT = "constant"
    LINEAR = "linear"
    QUADRATIC = "quadratic"


class Growth(Frozen):
    """A fit: constant + linear * n + quadratic * n squared milliseconds at length n; none of the three is negative."""

    order: Order
    constant: float
    linear: float
    quadratic: float
    share: float
    """Share of the highest term in the time at the largest length."""
    r2: float | None
    """Part of the variance that the fit explains, with times weighted by inverse variance; None for a constant."""
    points: int

    def at(self, length: float) -> float:
        """Return the time at a length, in milliseconds."""
        return self.constant + self.linear * length + self.quadratic * length**2


def fit_growth(
    lengths: Sequence[int], times: Sequence[float], errors: Sequence[float] | None = None
) -> Growth | None:
    """Fit constant, linear and quadratic growth without negative terms, by least squares of relative errors.

    A higher order needs a fall of Schwarz's criterion by `_EVIDENCE` or more, and a term of more than `_SHARE` of the
    time at the largest length. Any parabola fits three points, so three points need twice the evidence.

    Args:
        lengths: of the axis, at least `FEWEST` different ones.
        times: milliseconds at each length.
        errors: half the width of each time's confidence interval; a residual below it is no evidence.

    Returns:
        None if there are too few points.
    """
    if len(set(lengths)) < FEWEST:
        return None
    n, t = np.asarray(lengths, np.float64), np.asarray(times, np.float64)  # (points,)
    if t.max(initial=0.0) < _LEAST:
        return Growth(Order.CONSTANT, 0.0, 0.0, 0.0, 1.0, None, len(times))
    noise = np.maximum(np.asarray(errors if errors is not None else t * 0) / _DEVIATIONS, _NOISE * t)
    noise = np.maximum(noise, _FLOOR * t.max())
    best: tuple[float, ...] = ()
    score = math.inf
    for terms in range(1, 4):
        fit, fitted = _fit(n / n.max(), t, noise, terms)
        needed = _EVIDENCE if len(set(lengths)) > terms else 2 * _EVIDENCE
        if score - fitted >= needed and fit[-1] > _SHARE * fit.sum():
            best, score = tuple(map(float, fit)), fitted
    if not best:  # the reliable points leave no time
        mean = float(np.average(t, weights=noise**-2))
        return Growth(Order.CONSTANT, mean, 0.0, 0.0, 1.0, None, len(times))
    return _growth(best, n, t, noise)


def explains(growth: Growth, lengths: Sequence[int], times: Sequence[float]) -> bool:
    """Whether a fit describes the growth of a time: it is near every point, and the lengths are far enough apart.

    A time below 1 % of the longest counts as that 1 %, because clocks do not resolve less.

    >>> line = Growth(Order.LINEAR, 0.0, 1.0, 0.0, 1.0, 1.0, 3)
    >>> (
    ...     explains(line, [1, 2, 4], [1, 2, 4]),
    ...     explains(line, [1, 2, 4], [1, 3, 4]),
    ...     explains(line, [4, 5, 6], [4, 5, 6]),
    ... )
    (True, False, False)
    """
    if max(lengths) < _APART * min(lengths):
        return False
    least = _SMALL * max(times)
    return all(
        abs(growth.at(length) - ms) <= _NEAR * max(ms, least)
        for length, ms in zip(lengths, times, strict=True)
    )


_APART = 2
"""Smallest ratio of the longest length to the shortest."""

_NEAR = 0.2
"""Largest error of a fit at a point, as a fraction of the time."""

_SMALL = 0.01

_LEAST = 1e-9
"""Milliseconds that no clock can measure."""

_NOISE = 0.01
"""Least noise, as a fraction of each time: runs of one program differ by as much."""

_FLOOR = 0.001
"""Least noise, as a fraction of the longest time, so that the clock's resolution at short times does not decide."""

_DEVIATIONS = 1.96
"""Standard deviations in half a confidence interval of 95 %."""

_EVIDENCE = 6.0
"""Least fall of the criterion: strong evidence on the scale of Kass and Raftery (1995)."""

_SHARE = 0.05


def _fit(n: _Floats, t: _Floats, noise: _Floats, terms: int) -> tuple[_Floats, float]:
    """Return the coefficients of 1, n, n squared (as many as `terms`), and the criterion."""
    powers = np.vander(n, terms, increasing=True)  # (points, terms)
    fit = _non_negative(powers / noise[:, None], t / noise)
    residuals = (powers @ fit - t) / noise
    variance = float(np.mean(residuals**2)) + 1.0  # of the residuals, and of the noise
    return fit, len(t) * math.log(variance) + terms * math.log(len(t))


def _non_negative(matrix: _Floats, target: _Floats) -> _Floats:
    """Return the least squares without negative coefficients: the best of all subsets of nonzero ones."""
    columns = matrix.shape[1]
    best, least = np.zeros(columns), float(target @ target)
    for count in range(1, columns + 1):
        for chosen in itertools.combinations(range(columns), count):
            found = np.linalg.lstsq(matrix[:, chosen], target, rcond=None)[0]
            rest = float(np.sum((matrix[:, chosen] @ found - target) ** 2))
            if found.min() >= 0 and rest < least:
                best, least = np.zeros(columns), rest
                best[list(chosen)] = found
    best[best < _NOTHING * best.sum()] = 0.0
    return np.array([float(f"{each:.{_DIGITS}g}") for each in best])


_DIGITS = 12
"""Digits of a coefficient, because further digits from LAPACK depend on the processor."""

_NOTHING = 1e-9
"""Fraction of the sum below which a coefficient is rounding."""


def _growth(fit: Sequence[float], n: _Floats, t: _Floats, noise: _Floats) -> Growth:
    """Return the record of a fit whose lengths were divided by the largest."""
    order = tuple(Order)[len(fit) - 1]
    longest = float(n.max())
    constant, linear, quadratic = (*fit, 0.0, 0.0)[:3]
    found = Growth(
        order=order,
        constant=constant,
        linear=linear / longest,
        quadratic=quadratic / longest**2,
        share=fit[-1] / sum(fit),
        r2=None,
        points=len(t),
    )
    if order is Order.CONSTANT:
        return found
    weights = noise**-2
    mean = float(np.average(t, weights=weights))
    fitted = np.array([found.at(length) for length in n.tolist()])
    rest = float(np.sum(weights * (fitted - t) ** 2))
    whole = float(np.sum(weights * (t - mean) ** 2))
    return replace(found, r2=1 - rest / whole)


class TimeRow(Frozen):
    """A group, or several in one row. Rows of level 0 and the point's other times sum to the profiled run."""

    level: int
    title: str
    """Name, relative to the row above it in the tree."""
    group: Group
    """Parameters, bytes and nodes; none for a line of fused kernels."""
    ms: tuple[float, ...]
    """Milliseconds at each point."""
    errors: tuple[float, ...]
    """Half the widths of their confidence intervals."""
    kernels: int
    each: tuple[float, ...] = ()
    """Times of the groups folded into the row, at the last point; () for a single group, or if the groups have
    parts."""
    is_fused: bool = False


def total_group(timing: Timing) -> Group:
    """Return the sum of all groups."""
    grouping = timing.grouping
    return sum_groups("total", (*grouping.groups, grouping.ungrouped), grouping.overlap)


def make_rows(timing: Timing, limit: int) -> tuple[tuple[TimeRow, ...], int]:
    """Return at most `limit` rows of groups, then rows of fused kernels.

    The slowest groups of each level are chosen first; the rows keep the order of the tree. The other groups are summed
    in a row `[3 others]`. The second result is the number of hidden rows under a shown row. The user's own groups are
    all shown.
    """
    grouping = timing.grouping
    times = _Times(timing.points)
    rows = build_tree(grouping)
    shown, closed = cut_rows(rows, 0 if grouping.by == "group" else limit, lambda row: (-times.last(row),))
    found = [_row(row, times) for row in shown]
    return (*found, *_cut_fused(list(_fused(timing.points, shown)), limit)), closed


class _Times:
    """Parts of each point, by the label of their group."""

    def __init__(self, points: Sequence[Point]) -> None:
        self.points = [
            {part.group.label: part for part in point.parts if not part.across} for point in points
        ]

    def last(self, row: TreeRow) -> float:
        return _sum_ms(self.points[-1], row.members)


def _sum_ms(parts: Mapping[Label, TimedGroup], labels: Sequence[Label]) -> float:
    return math.fsum(parts[label].ms for label in labels if label in parts)


def _row(row: TreeRow, times: _Times) -> TimeRow:
    last = times.points[-1]
    is_folded = row.count > 1 and row.count == len(row.members)
    return TimeRow(
        level=row.level,
        title=row.title,
        group=row.total,
        ms=tuple(_sum_ms(parts, row.members) for parts in times.points),
        errors=tuple(_join(parts[m].error_ms for m in row.members if m in parts) for parts in times.points),
        kernels=sum(last[label].kernels for label in row.members if label in last),
        each=tuple(_sum_ms(last, [label]) for label in row.members) if is_folded else (),
    )


def _join(errors: Iterator[float]) -> float:
    """Return the error of a sum of independent times."""
    return math.hypot(*errors)


def _fused(points: Sequence[Point], shown: Sequence[TreeRow]) -> Iterator[TimeRow]:
    """Yield a row for each set of rows whose groups have common fused kernels."""
    titles = _innermost(shown)
    found: dict[tuple[str, ...], list[list[TimedGroup]]] = defaultdict(lambda: [[] for _ in points])
    for at, point in enumerate(points):
        for part in point.parts:
            if part.across:
                names = tuple(dict.fromkeys(titles.get(name, name) for name in part.across))
                found[names][at].append(part)
    for names, parts in found.items():
        yield TimeRow(
            level=0,
            title=_together(names) if len(names) > 1 else f"between {names[0]}",
            group=Group(" + ".join(names)),
            ms=tuple(math.fsum(part.ms for part in there) for there in parts),
            errors=tuple(_join(part.error_ms for part in there) for there in parts),
            kernels=sum(part.kernels for part in parts[-1]),
            is_fused=True,
        )


def _together(names: Sequence[str]) -> str:
    """Join names, and write their common beginning once.

    >>> _together(["pooler.dense", "pooler.activation"]), _together(["stem", "block.0-11"])
    ('pooler: dense + activation', 'stem + block.0-11')
    """
    split = [name.split(".") for name in names]
    common = 0
    while all(len(parts) > common + 1 and parts[common] == split[0][common] for parts in split):
        common += 1
    rest = " + ".join(".".join(parts[common:]) for parts in split)
    return f"{'.'.join(split[0][:common])}: {rest}" if common else rest


def _innermost(shown: Sequence[TreeRow]) -> dict[str, str]:
    """Return, by group name, the full name of the deepest shown row that contains the group, without `[3 others]`."""
    single_rows = (row for row in shown if not row.title.endswith((" other]", " others]")))
    return {" / ".join(label): row.total.name for row in single_rows for label in row.members}


def _cut_fused(rows: list[TimeRow], limit: int) -> Iterator[TimeRow]:
    """Yield the slowest rows, and the sum of the others."""
    ordered = sorted(rows, key=lambda row: (-row.ms[-1], row.title))
    left = ordered[limit:] if limit else []
    yield from ordered[: len(ordered) - len(left)]
    if len(left) == 1:
        yield left[0]
    elif left:
        title = f"[{format_many(len(left), 'other')} of fused kernels]"
        yield TimeRow(
            level=0,
            title=title,
            group=Group(title),
            ms=tuple(map(math.fsum, zip(*(row.ms for row in left), strict=True))),
            errors=tuple(_join(iter(errors)) for errors in zip(*(row.errors for row in left), strict=True)),
            kernels=sum(row.kernels for row in left),
            is_fused=True,
        )


def lengths(timing: Timing) -> tuple[int, ...]:
    """Return the measured lengths, in order."""
    return tuple(point.value or 0 for point in timing.points)


def grow_latency(timing: Timing) -> Growth | None:
    """Fit the growth of the mean run without profiling."""
    latencies = [point.latency for point in timing.points]
    errors = [(latency.precision or 0.0) * latency.median for latency in latencies]
    return fit_growth(lengths(timing), [latency.mean for latency in latencies], errors)


def grow_parts(timing: Timing) -> tuple[tuple[str, tuple[str, ...], Growth | None], ...]:
    """Return the name, the fused groups and the growth of each part of any point."""
    by_point = [{(part.group.label, part.across): part for part in point.parts} for point in timing.points]
    known = {key: part for parts in by_point for key, part in parts.items()}
    return tuple(
        (part.group.name, part.across, _grow([parts.get(key) for parts in by_point], timing))
        for key, part in known.items()
    )


def _grow(parts: Sequence[TimedGroup | None], timing: Timing) -> Growth | None:
    times = [part.ms if part else 0.0 for part in parts]
    errors = [part.error_ms if part else 0.0 for part in parts]
    return fit_growth(lengths(timing), times, errors)


def grow_row(row: TimeRow, timing: Timing) -> Growth | None:
    """Fit the growth of a table row, which may sum several groups."""
    return fit_growth(lengths(timing), row.ms, row.errors)
