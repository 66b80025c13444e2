"""A stored tensor and a PyTorch weight times a factor for each channel -> whether the one is the other.

Shared by the formulas that scale channels: a folded BatchNorm, a weight norm.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from analyzer.content import Array, channel_statistics, sample_positions
from analyzer.dtypes import DType
from analyzer.ledger import Entry
from analyzer.manifest import Parameter
from analyzer.reconcile.contents import Contents
from analyzer.reconcile.layouts import Layout, layouts
from analyzer.reconcile.lines import Line

__all__ = ["ScaledFit", "channels_of", "fit_scaled", "fit_vector", "tolerance_of"]

Vector = npt.NDArray[np.float64]

_TOLERANCE = {DType.FLOAT: 2e-6, DType.DOUBLE: 1e-12, DType.FLOAT16: 2e-3, DType.BFLOAT16: 1.6e-2}
"""Four roundings of each dtype (unit roundoff 2^-24, 2^-53, 2^-11, 2^-8), with room for another order of operations."""

_CLAMPED = 1.2e-7
"""Two of the smallest float16: a converter clamps to it."""


@dataclass(frozen=True, slots=True)
class ScaledFit:
    """How a stored tensor holds a scaled weight."""

    layout: Layout
    chain: tuple[Line, ...]
    """What else became of it."""
    evidence: str
    error: float


def tolerance_of(contents: Contents, entry: Entry) -> float:
    """Relative rounding of what the entry holds; codes have their step besides."""
    if contents.encoding(entry) is not None:
        return _TOLERANCE[DType.FLOAT]
    return _TOLERANCE.get(entry.tensor.dtype, 0.0)


def fit_scaled(
    contents: Contents, entry: Entry, weight: Parameter, scale: Vector, axis: int, group: int = 1
) -> ScaledFit | None:
    """Whether `entry` holds `weight` with each channel along `axis` times its factor; None where it does not.

    With groups, as a ConvTranspose has them, the channel also depends on which group axis 0 is in.
    """
    changed = contents.changes(entry, weight)
    samples = contents.originals.samples(weight)
    if changed is None or samples is None or weight.shape[axis] * group != scale.size:
        return None
    expected = samples.astype(np.float64) * scale[channels_of(weight, axis, group)]
    tolerance = tolerance_of(contents, entry)
    for layout in layouts(weight.shape, contents.shape(entry)):
        look = contents.look(entry, layout) if layout.is_plain else None
        if look is None:
            continue
        error = _error(look[0], look[1], expected, tolerance)
        if error is None:
            continue
        evidence = "sampled"
        if contents.mode == "full" and group == 1:
            whole = _compare_whole(contents, entry, weight, layout, scale, axis, tolerance)
            if whole is False:
                continue
            evidence = "content" if whole else "sampled"
        return ScaledFit(layout, (*layout.chain, *changed), evidence, error)
    return None


def channels_of(weight: Parameter, axis: int, group: int = 1) -> npt.NDArray[np.int64]:
    """The output channel of each sampled element."""
    index = np.unravel_index(sample_positions(weight.numel), weight.shape)
    if group == 1:
        return index[axis].astype(np.int64)
    return (index[axis] + (index[0] // (weight.shape[0] // group)) * weight.shape[axis]).astype(np.int64)


def fit_vector(contents: Contents, entry: Entry, expected: Vector) -> float | None:
    """Largest difference of a stored vector to the expected one, if it is that within rounding and step."""
    if contents.numel(entry) != expected.size or sum(dim != 1 for dim in contents.shape(entry)) > 1:
        return None
    look = contents.at(entry, np.arange(expected.size, dtype=np.int64))
    if look is None:
        return None
    return _error(look[0], look[1], expected.reshape(-1), tolerance_of(contents, entry), floor=1.0)


def _error(
    stored: Array, steps: Vector | None, expected: Vector, tolerance: float, floor: float = 0.0
) -> float | None:
    """Largest difference, if each is within the rounding of the largest expected number, and within its step.

    A sum of like sizes rounds relative to them and not to what is left: hence the floor.
    """
    if stored.dtype.kind not in "fV" and steps is None:
        return None
    values = stored.astype(np.float64)
    room = tolerance * max(floor, float(np.abs(expected).max(initial=0.0))) + 1e-12
    if stored.dtype == np.float16:
        room += _CLAMPED
    allowed = np.full(values.shape, room) if steps is None else room + steps * 1.001
    with np.errstate(invalid="ignore"):
        error = np.abs(values - expected)
        if not bool((error <= allowed).all()):
            return None
    sizes = float(np.linalg.norm(values) * np.linalg.norm(expected))
    if steps is not None and sizes and float(values @ expected) < 0.6 * sizes:
        return None
    return float(error.max(initial=0.0))


def _compare_whole(
    contents: Contents,
    entry: Entry,
    weight: Parameter,
    layout: Layout,
    scale: Vector,
    axis: int,
    tolerance: float,
) -> bool | None:
    """Every element against the weight's values, else every channel against its projection and norm."""
    array = contents.array(entry)
    if array is None:
        return False
    restored = layout.restore(array)
    encoded = contents.encoding(entry)
    step = 0.0
    if encoded is not None:
        step = max((float(steps.max(initial=0.0)) for _, steps in encoded.bands()), default=0.0) * 1.001
    original = contents.originals.values(weight)
    if original is not None:
        factors = scale.reshape([-1 if number == axis else 1 for number in range(len(weight.shape))])
        expected = original.astype(np.float64) * factors
        room = tolerance * float(np.abs(expected).max(initial=0.0)) + step + 1e-12
        room += _CLAMPED if restored.dtype == np.float16 else 0.0
        return bool((np.abs(restored.astype(np.float64) - expected) <= room).all())
    known = contents.originals.channel_statistics(weight) if axis == 0 else None
    if known is None or known[0].shape != scale.shape:
        return None
    projections, sizes = known
    stored_projections, stored_sizes = channel_statistics(restored)
    width = restored[0].size
    # The triangle inequality, for the norm; of codes the error of each element is at most a step, and independent.
    slack = tolerance * stored_sizes + 1e-12 + step * np.sqrt(width)
    fits = np.abs(stored_sizes - np.abs(scale) * sizes) <= slack
    fits &= np.abs(stored_projections - scale * projections) <= 4 * slack
    return bool(fits.all())
