"""Rules: weights that `forward` normalizes before it computes with them, and that an export stores normalized.

W / sigma with sigma = u W v, where u and v are the vectors of a power iteration (spectral norm: Miyato et al. 2018,
equation 8; `torch.nn.utils.spectral_norm`), and (W - mean) / sqrt(var + eps) of each output channel (weight
standardization: Qiao et al. 2019, equation 5). Only a weight that the exporter renamed is a candidate for these two.

W = g * v / ||v||, the norm over all axes but one (weight norm: Salimans and Kingma 2016, equation 2;
`torch.nn.utils.weight_norm`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import numpy as np

from analyzer.account.ledger import Entry, Role
from analyzer.manifest import Parameter, WeightNorm, split_name
from analyzer.model.content import decode_values
from analyzer.reconciliation.books import Books
from analyzer.reconciliation.closeness import Reals, least_difference
from analyzer.reconciliation.factors import fit_scaled, tolerance_of
from analyzer.reconciliation.layouts import AxisLayout
from analyzer.reconciliation.lines import MEANINGS, Computed, Line, Piece

_ROLES = (Role.PARAMETER, Role.UNATTRIBUTED, Role.CONSTANT)


def renamed_candidates(books: Books, weight: Parameter) -> Iterator[Entry]:
    """Yield the open entries of a weight's size that do not bear its name."""
    for entry in books.open_entries(weight):
        own = books.aligned(entry.tensor.name)
        is_like = books.contents.numel(entry) == weight.numel and entry.role in _ROLES
        if is_like and own not in weight.names and not books.is_elsewhere(entry, weight):
            yield entry


# spectral norm

_MATRICES = (
    (re.compile(r"((?:.*\.)?[^.]+)_orig"), r"\1_{}"),
    (re.compile(r"(.*?)parametrizations\.([^.]+)\.original"), r"\1parametrizations.\2.{}._{}"),
)
"""Patterns of a matrix's name in torch's old and new spelling -> names of its power iteration's vectors."""

_MOST_PARAMETRIZATIONS = 4

_NEAR = 1e-5
"""Relative rounding error of a sum of many products."""


def match_spectralnorm(books: Books) -> None:
    """Explain weights that are PyTorch's divided by their product with the two vectors beside them."""
    if books.contents.mode == "none":
        return
    for weight in list(books.free_parameters()):
        sigmas = list(_sigmas(books, weight))
        for entry in renamed_candidates(books, weight) if sigmas else ():
            if any(_assign_divided(books, weight, entry, sigma) for sigma in sigmas):
                break


def _sigmas(books: Books, weight: Parameter) -> Iterator[float]:
    """Yield PyTorch's estimates of the largest singular value, along each axis that the vectors fit."""
    left, right = _vectors(books, weight)
    values = None if left is None else books.contents.originals.values(weight)
    if left is None or right is None or values is None or values.ndim < 2:
        return
    matrix = values.astype(np.float64)
    for axis, size in enumerate(matrix.shape):
        if left.size == size and left.size * right.size == matrix.size:
            sigma = float(left.ravel() @ np.moveaxis(matrix, axis, 0).reshape(size, -1) @ right.ravel())
            if sigma:
                yield sigma


def _vectors(books: Books, weight: Parameter) -> tuple[Reals | None, Reals | None]:
    vector = books.contents.originals.vector
    for name in weight.names:
        for pattern, others in _MATRICES:
            found = pattern.fullmatch(name)
            for number in range(_MOST_PARAMETRIZATIONS) if found else ():
                assert found is not None
                stem = found.expand(others)
                indices = (number,) * (stem.count("{}") - 1)
                left, right = (vector(stem.format(*indices, leaf)) for leaf in ("u", "v"))
                if left is not None and right is not None:
                    return left, right
    return None, None


def _assign_divided(books: Books, weight: Parameter, entry: Entry, sigma: float) -> bool:
    values = books.contents.originals.values(weight)
    if values is None:
        return False
    largest = np.array([int(np.abs(values).argmax())])
    first = float(values.reshape(-1)[largest[0]])
    for layout in books.contents.layouts(entry, weight.shape, is_computed=True):
        look = books.contents.at(entry, layout.positions(largest))
        if look is None or first == 0.0 or look[0].dtype.kind not in "fV":
            continue
        factor = float(look[0].astype(np.float64)[0]) / first
        # Sigma is a rounded sum, so all elements are compared with the one factor in the file.
        tolerance = max(_NEAR, tolerance_of(books.contents, entry))
        if look[1] is not None or abs(factor * sigma - 1) > tolerance:
            factor = 1 / sigma
        scale = np.full(weight.shape[0], factor)
        fit = fit_scaled(books.contents, entry, weight, scale, 0)
        if fit is not None:
            rule = f"{fit.evidence}:spectralnorm {weight.name}"
            moved = [line for line in fit.chain if not MEANINGS[line].changes_values]
            retyped = [line for line in fit.chain if MEANINGS[line].changes_values]
            function = Computed(rule, _divided_by(factor), factor)
            piece = Piece(entry.tensor.key, fit.layout.shape, fit.layout.axes, computed=function)
            books.release(entry)
            chain = (*moved, Line.FOLDED_POINTWISE, *retyped)
            books.assign(weight, entry, chain, rule, fit.error, pieces=(piece,))
            return True
    return False


def _divided_by(factor: float) -> Callable[[Reals], Reals]:
    return lambda x: x / factor


# weight standardization

_EPSILONS = (0.0, 1e-10, 1e-8, 1e-6, 1e-5, 1e-4)
"""Values that implementations add to a variance, or to its root."""

_FEWEST_LAYERS = 2
"""Least number of normalized layers: somebody may have changed a single one."""


def match_standardized(books: Books) -> None:
    """Explain the weights of convolutions that are PyTorch's minus each channel's mean, divided by its deviation.

    The formula is one for the whole file, and so is eps for all layers of one name, up to numbers; a layer of another
    name may have another eps (BiT's first).
    """
    if books.contents.mode == "none":
        return
    weights = [p for p in books.free_parameters() if _may_be_standardized(books, p)]
    for deviation in (
        (_by_variance, _by_unbiased_variance, _by_deviation) if len(weights) >= _FEWEST_LAYERS else ()
    ):
        for eps in _EPSILONS:
            found = _find_standardized(books, weights, deviation, eps)
            if len(found) >= _FEWEST_LAYERS and not _are_stored_unchanged(
                books, [weight for weight, _, _ in found]
            ):
                found += _find_others(books, weights, deviation, {weight.name for weight, _, _ in found})
                for weight, entry, layout in found:
                    rule = f"{books.contents.evidence}:standardized {split_name(weight.name)[0]}".rstrip()
                    piece = Piece(entry.tensor.key, layout.shape, layout.axes, computed=Computed(rule))
                    chain = (*layout.chain, Line.FOLDED_WEIGHTNORM)
                    books.release(entry)
                    books.assign(weight, entry, chain, rule, 0.0, pieces=(piece,))
                return


def _find_others(
    books: Books, weights: list[Parameter], deviation: Callable[[Reals, float], Reals], names: set[str]
) -> list[tuple[Parameter, Entry, AxisLayout]]:
    """Return weights of other names than those found, normalized by the same formula with any eps."""
    patterns = {_NUMBER.sub("#", name) for name in names}
    others = [weight for weight in weights if _NUMBER.sub("#", weight.name) not in patterns]
    found: dict[str, tuple[Parameter, Entry, AxisLayout]] = {}
    for eps in _EPSILONS:
        rest = [weight for weight in others if weight.name not in found]
        found |= {match[0].name: match for match in _find_standardized(books, rest, deviation, eps)}
    return list(found.values())


_CONVOLVED = 3
"""Least number of axes of a convolution's weight."""

_PLAIN = re.compile(r"(?:Lazy)?Conv(?:Transpose)?[123]d")
"""Classes of torch whose `forward` uses the weight unchanged."""


def _may_be_standardized(books: Books, parameter: Parameter) -> bool:
    module, leaf = split_name(parameter.name)
    class_ = books.manifest.modules.get(module)
    is_weight = leaf == "weight" and len(parameter.shape) >= _CONVOLVED and parameter.dtype.is_floating
    is_plain = class_ is not None and _PLAIN.fullmatch(class_) is not None
    return is_weight and not is_plain and parameter.numel > parameter.shape[0]


def _by_variance(rows: Reals, eps: float) -> Reals:
    size: Reals = np.sqrt(rows.var(axis=1) + eps)
    return size


def _by_unbiased_variance(rows: Reals, eps: float) -> Reals:
    size: Reals = np.sqrt(rows.var(axis=1, ddof=1) + eps)
    return size


def _by_deviation(rows: Reals, eps: float) -> Reals:
    size: Reals = rows.std(axis=1, ddof=1) + eps
    return size


def _find_standardized(
    books: Books, weights: list[Parameter], deviation: Callable[[Reals, float], Reals], eps: float
) -> list[tuple[Parameter, Entry, AxisLayout]]:
    found = []
    used = set()
    for weight in weights:
        values = books.contents.originals.values(weight)
        if values is None:
            continue
        rows = values.astype(np.float64).reshape(len(values), -1)
        mean = rows.mean(axis=1, keepdims=True)
        size = deviation(rows, eps)[:, None]
        if not bool((size > 0).all()):
            continue
        expected = ((rows - mean) / size).reshape(weight.shape)
        sizes = ((np.abs(rows) + np.abs(mean)) / size).reshape(weight.shape)
        for entry in renamed_candidates(books, weight):
            if entry.tensor.key in used or books.contents.encoding(entry) is not None:
                continue
            layout = layout_of(books, entry, weight, expected, sizes)
            if layout is not None:
                used.add(entry.tensor.key)
                found.append((weight, entry, layout))
                break
    return found


def layout_of(
    books: Books, entry: Entry, weight: Parameter, expected: Reals, sizes: Reals
) -> AxisLayout | None:
    """Return the order of axes in which every element is the expected one, within rounding; None if there is none."""
    array = books.contents.array(entry)
    if array is None or array.dtype.kind not in "fV":
        return None
    tolerances = 2 * tolerance_of(books.contents, entry) * sizes + least_difference(array)
    for layout in books.contents.layouts(entry, weight.shape, is_computed=True):
        if layout.is_plain and books.contents.agrees(entry, weight, layout) is not False:
            stored = layout.restore(array).astype(np.float64)
            if bool((np.abs(stored - expected) <= tolerances).all()):
                return layout
    return None


_NUMBER = re.compile(r"\d+")


def _are_stored_unchanged(books: Books, weights: list[Parameter]) -> bool:
    """Whether another layer's weight of one of these names, up to numbers, is already explained without the formula."""
    patterns = {_NUMBER.sub("#", weight.name) for weight in weights}
    convolutions = {p.name for p in books.manifest.parameters if len(p.shape) >= _CONVOLVED}
    return any(
        name in convolutions and _NUMBER.sub("#", name) in patterns and MEANINGS[line.line].values != "none"
        for name, line in books.parameters.items()
    )


# weight norm


def match_folded_weightnorm(books: Books) -> None:
    """Explain weights that are products of a PyTorch direction and length, neither of which is stored."""
    for norm in books.manifest.weight_norms if books.contents.mode != "none" else ():
        direction, length = books.tensor(norm.direction), books.tensor(norm.length)
        if not isinstance(direction, Parameter) or not isinstance(length, Parameter):
            continue
        if direction.name in books.parameters or length.name in books.parameters:
            continue
        scale = _lengths(books, norm, direction)
        free = [
            entry
            for entry in (books.open_entries() if scale is not None else ())
            if entry.tensor.key not in books.entries
            and books.contents.numel(entry) == direction.numel
            and entry.role is Role.PARAMETER
        ]
        for entry in free:
            assert scale is not None
            axis = 0 if norm.axis is None else norm.axis
            factors = np.full(direction.shape[0], scale[0]) if norm.axis is None else scale
            fit = fit_scaled(books.contents, entry, direction, factors, axis)
            if fit is not None:
                rule = f"{fit.evidence}:weightnorm {norm.weight}"
                chain = (Line.FOLDED_WEIGHTNORM, *fit.chain)
                product = Computed(f"weightnorm {norm.weight}")
                piece = Piece(entry.tensor.key, fit.layout.shape, fit.layout.axes, computed=product)
                books.release(entry)
                books.assign(direction, entry, chain, rule, fit.error, pieces=(piece,))
                books.merge(length, entry, Line.FOLDED_WEIGHTNORM, rule, None)
                break


def _lengths(books: Books, norm: WeightNorm, direction: Parameter) -> Reals | None:
    """Return the factor g / ||v|| of each channel, from the manifest or from the values; None if unknown."""
    if norm.scale is not None:
        return decode_values(norm.scale, np.dtype("<f8")).astype(np.float64)
    values = books.contents.originals.values(direction)
    length = books.contents.originals.vector(norm.length)
    if values is None or length is None:
        return None
    others = tuple(number for number in range(values.ndim) if number != norm.axis)
    sizes = np.sqrt(np.square(values.astype(np.float64)).sum(axis=others))
    return np.atleast_1d(length.ravel() / sizes)
