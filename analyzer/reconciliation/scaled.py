"""A stored tensor and a PyTorch weight times a factor for each channel -> whether the one is the other.

Shared by the formulas that scale channels: a folded BatchNorm, a weight norm.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from analyzer.content import Array, channel_statistics
from analyzer.dtypes import DType
from analyzer.ledger import Entry
from analyzer.manifest import Parameter
from analyzer.reconciliation.closeness import is_like, least_difference
from analyzer.reconciliation.contents import Contents
from analyzer.reconciliation.layouts import Layout
from analyzer.reconciliation.lines import Line

__all__ = ["ScaledFit", "channels_of", "fit_scaled", "fit_vector", "tolerance_of"]

Vector = npt.NDArray[np.float64]

_TOLERANCE = {DType.FLOAT: 2e-6, DType.DOUBLE: 1e-12, DType.FLOAT16: 2e-3, DType.BFLOAT16: 1.6e-2}
"""Four roundings of each dtype (unit roundoff 2^-24, 2^-53, 2^-11, 2^-8), with room for another order of operations."""


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
    return _TOLERANCE.get(contents.precision(entry), 0.0)


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
    expected = samples.astype(np.float64) * scale[channels_of(contents, weight, axis, group)]
    tolerance = tolerance_of(contents, entry)
    for layout in contents.layouts(entry, weight.shape, is_computed=True):
        is_known = layout.is_plain or contents.mode == "full"  # then all elements are compared below
        look = contents.look(entry, layout) if is_known else None
        if look is None:
            continue
        error = _error(look[0], look[1], expected, tolerance * np.abs(expected))
        if error is None:
            continue
        evidence, is_open = "sampled", contents.is_open(entry, weight, layout)
        if contents.mode == "full" or is_open:
            factors = _factors(weight.shape, scale, axis, group)
            whole = _compare_whole(contents, entry, weight, layout, factors, tolerance)
            if whole is False or (whole is None and is_open):
                continue
            evidence = "content" if whole else "sampled"
        return ScaledFit(layout, (*layout.chain, *changed), evidence, error)
    return None


def channels_of(contents: Contents, weight: Parameter, axis: int, group: int = 1) -> npt.NDArray[np.int64]:
    """The output channel of each sampled element."""
    index = np.unravel_index(contents.originals.positions(weight.numel), weight.shape)
    if group == 1:
        return index[axis].astype(np.int64)
    return (index[axis] + (index[0] // (weight.shape[0] // group)) * weight.shape[axis]).astype(np.int64)


def _factors(shape: tuple[int, ...], scale: Vector, axis: int, group: int) -> Vector:
    """The factor of each element, in a shape that broadcasts to the weight's."""
    if group == 1:
        return scale.reshape([-1 if number == axis else 1 for number in range(len(shape))])
    each = np.repeat(scale.reshape(group, -1), shape[0] // group, axis=0)  # (in, out / groups)
    return each.reshape(*each.shape, *[1] * (len(shape) - 2))


def fit_vector(contents: Contents, entry: Entry, expected: Vector, sizes: Vector) -> float | None:
    """Largest difference of a stored vector to the expected one, if it is that within rounding and step.

    A sum rounds relative to the `sizes` of what is summed, and not to what is left.
    """
    if contents.numel(entry) != expected.size or sum(dim != 1 for dim in contents.shape(entry)) > 1:
        return None
    look = contents.at(entry, np.arange(expected.size, dtype=np.int64))
    if look is None:
        return None
    room = tolerance_of(contents, entry) * sizes.reshape(-1)
    return _error(look[0], look[1], expected.reshape(-1), room)


def _error(stored: Array, steps: Vector | None, expected: Vector, room: Vector) -> float | None:
    """Largest difference, if each is within its rounding, and within its step."""
    if stored.dtype.kind not in "fV" and steps is None:
        return None
    values = stored.astype(np.float64)
    room = room + least_difference(stored)
    with np.errstate(invalid="ignore"):
        error = np.abs(values - expected)
        if steps is None and not bool((error <= room).all()):
            return None
    if steps is not None and not is_like(values, expected, steps + room, is_named=True):
        return None
    return float(error.max(initial=0.0))


def _compare_whole(
    contents: Contents,
    entry: Entry,
    weight: Parameter,
    layout: Layout,
    factors: Vector,
    tolerance: float,
) -> bool | None:
    """Every element against the weight's values, else every channel against its projection and norm."""
    array = contents.array(entry)
    if array is None:
        return False
    restored = layout.restore(array)
    encoded = contents.encoding(entry)
    steps = None
    if encoded is not None:
        flat = np.concatenate([steps for _, steps in encoded.bands()])
        steps = layout.restore(flat.reshape(encoded.shape)).astype(np.float64)
    original = contents.originals.values(weight)
    if original is not None:
        expected = (original.astype(np.float64) * factors).reshape(-1)
        every = None if steps is None else steps.reshape(-1)
        return _error(restored.reshape(-1), every, expected, tolerance * np.abs(expected)) is not None
    if factors.shape[0] == 1 < factors.size:  # of inputs: what is left without them is PyTorch's own
        restored = restored.astype(np.float64) / factors
        steps = None if steps is None else steps / factors
        factors = np.ones((weight.shape[0], *[1] * (restored.ndim - 1)))
    scale = factors.reshape(-1)
    known = contents.originals.channel_statistics(weight) if factors.size == weight.shape[0] else None
    if known is None or known[0].shape != scale.shape or factors.shape[0] != scale.size:
        return None
    projections, sizes = known
    stored_projections, stored_sizes = channel_statistics(restored)
    # The triangle inequality, for the norm; of codes the error of each element is at most a step, and independent.
    slack = tolerance * stored_sizes + 1e-12
    if steps is not None:
        slack += np.sqrt(np.square(steps.reshape(len(steps), -1)).sum(axis=1))
    fits = np.abs(stored_sizes - np.abs(scale) * sizes) <= slack
    fits &= np.abs(stored_projections - scale * projections) <= 4 * slack
    return bool(fits.all())
