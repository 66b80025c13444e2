"""Rules: factors of channels that were multiplied into weights; and the test for a stored weight times a factor.

LayerScale computes gamma * (W x + b) (Touvron et al. 2021, equation 8); an optimizer stores gamma * W and gamma * b.
The factor is a parameter of the weight's own block that the file holds nowhere else. Several factors of a block must be
in weights that compute in the same order. The factor may be one number for all channels (FCOS's scale of a level).

SmoothQuant divides a norm's output by s and multiplies the weights that read it by s (Xiao et al. 2022,
arXiv:2211.10438, equation 3), so that activations are easier to quantize: g' = g / s, b' = b / s, and
W'[o, i] = W[o, i] * s[i]. The gain tells s. It is accepted if all readers of the norm's output multiply it by such a
weight: then the model's function is unchanged.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from analyzer.account.ledger import Entry, Role, natural_order
from analyzer.account.scopes import module_of
from analyzer.manifest import Parameter
from analyzer.model import Node, StoredTensor
from analyzer.model.content import Array, channel_statistics
from analyzer.model.dtypes import DType
from analyzer.model.operators import CARRIES, DECODES, Kind, kind_of
from analyzer.reconciliation.books import Books
from analyzer.reconciliation.closeness import Reals, is_like, is_odd, least_difference
from analyzer.reconciliation.contents import Contents
from analyzer.reconciliation.layouts import AxisLayout
from analyzer.reconciliation.lines import Computed, Line, Piece, with_line
from analyzer.records import Frozen

# a weight times a factor for each channel

_TOLERANCE = {DType.FLOAT: 2e-6, DType.DOUBLE: 1e-12, DType.FLOAT16: 2e-3, DType.BFLOAT16: 1.6e-2}
"""Four roundings of each dtype (unit roundoff 2^-24, 2^-53, 2^-11, 2^-8), with room for another order of operations."""


class ScaledFit(Frozen):
    """Match of a stored tensor with a scaled weight."""

    layout: AxisLayout
    chain: tuple[Line, ...]
    """Lines of its other changes."""
    evidence: str
    error: float


def tolerance_of(contents: Contents, entry: Entry) -> float:
    """Return the relative rounding error of an entry's numbers; codes have their step in addition."""
    if contents.encoding(entry) is not None:
        return _TOLERANCE[DType.FLOAT]
    return _TOLERANCE.get(contents.precision(entry), 0.0)


def fit_scaled(
    contents: Contents, entry: Entry, weight: Parameter, scale: Reals, axis: int, group: int = 1
) -> ScaledFit | None:
    """Return the fit of `weight`, with each channel along `axis` times its factor, in `entry`; None if there is none.

    With groups, as in a ConvTranspose, the channel also depends on the group, which the index along axis 0 gives.
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
        error = _error_within(look[0], look[1], expected, tolerance * np.abs(expected))
        if error is None:
            continue
        evidence, is_open = "sampled", contents.is_open(entry, weight, layout)
        if contents.mode == "full" or is_open:
            factors = _broadcast(weight.shape, scale, axis, group)
            whole = _compare_scaled(contents, entry, weight, layout, factors, tolerance)
            if whole is False or (whole is None and is_open):
                continue
            evidence = "content" if whole else "sampled"
        return ScaledFit(layout, (*layout.chain, *changed), evidence, error)
    return None


def channels_of(contents: Contents, weight: Parameter, axis: int, group: int = 1) -> npt.NDArray[np.int64]:
    """Return the output channel of each sampled element."""
    index = np.unravel_index(contents.originals.positions(weight.numel), weight.shape)
    if group == 1:
        return index[axis].astype(np.int64)
    return (index[axis] + (index[0] // (weight.shape[0] // group)) * weight.shape[axis]).astype(np.int64)


def _broadcast(shape: tuple[int, ...], scale: Reals, axis: int, group: int) -> Reals:
    """Return the factors in a shape that broadcasts to the weight's."""
    if group == 1:
        return scale.reshape([-1 if number == axis else 1 for number in range(len(shape))])
    each = np.repeat(scale.reshape(group, -1), shape[0] // group, axis=0)  # (in, out / groups)
    return each.reshape(*each.shape, *[1] * (len(shape) - 2))


def fit_vector(contents: Contents, entry: Entry, expected: Reals, sizes: Reals) -> float | None:
    """Return the largest difference between a stored and an expected vector; None if it exceeds rounding and step.

    A sum's rounding is relative to the `sizes` of its terms, not to the result.
    """
    if contents.numel(entry) != expected.size or sum(dim != 1 for dim in contents.shape(entry)) > 1:
        return None
    look = contents.at(entry, np.arange(expected.size, dtype=np.int64))
    if look is None:
        return None
    tolerances = tolerance_of(contents, entry) * sizes.reshape(-1)
    return _error_within(look[0], look[1], expected.reshape(-1), tolerances)


def fit_sum(contents: Contents, entry: Entry, expected: Reals, sizes: Reals) -> float | None:
    """Return the largest difference between a stored tensor and a computed one of its shape; None beyond rounding.

    A sum's rounding is relative to the `sizes` of its terms, not to the result.
    """
    array = contents.array(entry)
    if array is None or array.shape != expected.shape:
        return None
    tolerances = tolerance_of(contents, entry) * sizes.reshape(-1)
    return _error_within(array.reshape(-1), None, expected.reshape(-1), tolerances)


def _error_within(stored: Array, steps: Reals | None, expected: Reals, tolerances: Reals) -> float | None:
    """Return the largest difference; None if one is beyond its rounding and its step."""
    if stored.dtype.kind not in "fV" and steps is None:
        return None
    values = stored.astype(np.float64)
    tolerances = tolerances + least_difference(stored)
    with np.errstate(invalid="ignore"):
        error = np.abs(values - expected)
        if steps is None and not bool((error <= tolerances).all()):
            return None
    if steps is not None and not is_like(values, expected, steps + tolerances, is_named=True):
        return None
    return float(error.max(initial=0.0))


def _compare_scaled(
    contents: Contents,
    entry: Entry,
    weight: Parameter,
    layout: AxisLayout,
    factors: Reals,
    tolerance: float,
) -> bool | None:
    """Compare every element with the weight's values, else every channel with its projection and norm."""
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
        return _error_within(restored.reshape(-1), every, expected, tolerance * np.abs(expected)) is not None
    if factors.shape[0] == 1 < factors.size:  # factors of input channels: divide them out
        restored = restored.astype(np.float64) / factors
        steps = None if steps is None else steps / factors
        factors = np.ones((weight.shape[0], *[1] * (restored.ndim - 1)))
    scale = factors.reshape(-1)
    known = contents.originals.channel_statistics(weight) if factors.size == weight.shape[0] else None
    if known is None or known[0].shape != scale.shape or factors.shape[0] != scale.size:
        return None
    projections, sizes = known
    stored_projections, stored_sizes = channel_statistics(restored)
    # The triangle inequality bounds the norm; the errors of codes are independent, and at most a step each.
    # Half precision has no numbers near 0, where a channel with a small factor may be.
    each = least_difference(array) * math.sqrt(restored.size / max(len(restored), 1))
    slack = tolerance * stored_sizes + max(each, 1e-12)
    if steps is not None:
        slack += np.sqrt(np.square(steps.reshape(len(steps), -1)).sum(axis=1))
    fits = np.abs(stored_sizes - np.abs(scale) * sizes) <= slack
    fits &= np.abs(stored_projections - scale * projections) <= 4 * slack
    return bool(fits.all())


# a factor of the same block

_BLOCK = re.compile(r"(?:.*\.)?\d+(?=\.)")
"""Path of a name up to its last number: the block of the tensor."""


class _LayerScale(Frozen):
    gamma: Parameter
    weight: Parameter
    entry: Entry
    fit: ScaledFit
    bias: Parameter | None
    bias_entry: Entry | None


def match_layer_scale(books: Books) -> None:
    """Explain weights and biases that equal PyTorch's times one free vector of their block."""
    if books.contents.mode == "none":
        return
    gammas = [p for p in books.free_parameters() if _is_factor(books, p)]
    found: dict[str, list[_LayerScale]] = defaultdict(list)
    used = set()
    for gamma in gammas:
        pair = next((f for f in _find_layer_scales(books, gamma) if f.entry.tensor.key not in used), None)
        if pair is not None:
            used.add(pair.entry.tensor.key)
            found[_block(gamma.name)].append(pair)
    names = [parameter.name for parameter in books.manifest.parameters]
    defined = {} if names == sorted(names) else {name: place for place, name in enumerate(names)}
    for pairs in found.values():
        if not defined and len({_NUMBER.sub("", pair.gamma.name) for pair in pairs}) > 1:
            continue  # a safetensors file sorts names, so that the order of definition is unknown
        pairs.sort(key=lambda pair: (defined.get(pair.gamma.name, 0), natural_order(pair.gamma.name)))
        places = [min((node.position for node in books.users(p.entry)), default=-1) for p in pairs]
        if places == sorted(places):
            for pair in pairs:
                _settle_layer_scale(books, pair)


_NUMBER = re.compile(r"\d+")


def _block(name: str) -> str:
    found = _BLOCK.match(name)
    return found.group() if found else ""


def _is_factor(books: Books, parameter: Parameter) -> bool:
    leaf = parameter.name.rpartition(".")[2]
    is_vector = parameter.numel == max(parameter.shape, default=0) > 1
    is_number = parameter.numel == 1 and _is_learned_number(books, parameter)
    is_own = leaf != "bias" and not any(
        books.tensor(f"{name.removesuffix('weight')}bias") for name in parameter.names
    )
    return is_own and (is_number or (is_vector and not books.contents.originals.is_constant(parameter)))


def _is_learned_number(books: Books, parameter: Parameter) -> bool:
    """Whether a parameter is a trained number: a round factor may be a coincidence."""
    samples = books.contents.originals.samples(parameter)
    return samples is not None and is_odd(samples)


def _find_layer_scales(books: Books, gamma: Parameter) -> Iterator[_LayerScale]:
    block = _block(gamma.name)
    factors = books.contents.originals.vector(gamma.name)
    if factors is None:
        return
    number = factors.reshape(-1)
    for weight in books.free_parameters():
        is_near = f"{weight.name}.".startswith(f"{block}.") or not block
        if len(weight.shape) < 2:
            continue
        factors = np.full(weight.shape[0], number[0]) if number.size == 1 else number
        is_matrix = weight.shape[0] == factors.size and weight.numel > factors.size
        if not (is_near and is_matrix):
            continue
        for entry in books.open_entries(weight):
            if books.contents.numel(entry) != weight.numel or entry.role is not Role.PARAMETER:
                continue
            fit = None
            if not books.is_elsewhere(entry, weight):
                fit = fit_scaled(books.contents, entry, weight, factors, 0)
            if fit is None:
                continue
            bias = books.tensor(f"{weight.name.removesuffix('weight')}bias")
            if not isinstance(bias, Parameter):
                yield _LayerScale(gamma, weight, entry, fit, None, None)
                continue
            bias_entry = _find_scaled_bias(books, entry, bias, factors)
            if bias_entry is not None:
                yield _LayerScale(gamma, weight, entry, fit, bias, bias_entry)


def _find_scaled_bias(books: Books, weight: Entry, bias: Parameter, factors: Reals) -> Entry | None:
    """Return the stored bias, of the weight's reader or the next node, that equals PyTorch's times the factors."""
    values = books.contents.originals.vector(bias.name)
    if values is None or values.size != factors.size:
        return None
    expected = values.reshape(-1) * factors
    wiring = books.ledger.wiring
    users = list(books.users(weight))
    near = {node.place for node in users} | {r.node.place for node in users for r in wiring.readers(node)}
    free = (entry for entry in books.open_entries() if books.contents.numel(entry) == factors.size)
    for entry in free:
        is_near = entry.role is Role.PARAMETER and any(node.place in near for node in books.users(entry))
        if is_near and fit_vector(books.contents, entry, expected, np.abs(expected)) is not None:
            return entry
    return None


def _settle_layer_scale(books: Books, found: _LayerScale) -> None:
    rule = f"{found.fit.evidence}:layerscale {found.gamma.name}"
    layout = found.fit.layout
    piece = Piece(found.entry.tensor.key, layout.shape, layout.axes, computed=Computed(rule))
    books.release(found.entry, *((found.bias_entry,) if found.bias_entry else ()))
    chain = with_line(found.fit.chain, Line.FOLDED_WEIGHTNORM)
    books.assign(found.weight, found.entry, chain, rule, found.fit.error, pieces=(piece,))
    books.merge(found.gamma, found.entry, Line.FOLDED_WEIGHTNORM, rule, None)
    if found.bias is not None and found.bias_entry is not None:
        books.assign(found.bias, found.bias_entry, (Line.FOLDED_WEIGHTNORM,), rule)


# a factor that moved out of a norm

_KEEPS = DECODES | {"Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"}
"""Operators after which a stored tensor is still followed: none of them cuts, joins or reorders a vector."""


class _ScaledWeight(Frozen):
    """Weight that multiplies a norm's output, with its fit as a scaled weight."""

    entry: Entry
    parameter: Parameter
    fit: ScaledFit


def match_moved_gain(books: Books) -> None:
    """Explain norms whose gain was divided by factors, if all weights after the norm were multiplied by them."""
    if books.contents.mode == "none":
        return
    for suspect in list(books.suspects):
        entry, gain = suspect.entry, suspect.tensor
        factors = _gain_factors(books, entry, gain) if isinstance(gain, Parameter) else None
        if factors is None or not isinstance(gain, Parameter) or gain.name in books.parameters:
            continue
        flow = _norm_flow(books, entry)
        if flow is None:
            continue
        last, bias_entry = flow
        bias = books.tensor(f"{module_of(gain.name)}.bias")
        if (bias_entry is None) != (not isinstance(bias, Parameter)):
            continue
        if bias_entry is not None and not _divides(books, bias_entry, bias, factors):
            continue
        weights = _scaled_weights(books, last, factors)
        if weights:
            _settle_moved_gain(books, entry, gain, bias_entry, bias, weights)


def _gain_factors(books: Books, entry: Entry, gain: Parameter) -> Reals | None:
    """Return the divisor of each channel's gain; None if it is unknown, or not positive and finite."""
    known = books.contents.originals.vector(gain.name) if len(gain.shape) == 1 else None
    stored = None if known is None else _stored_vector(books, entry, known.size)
    if known is None or stored is None:
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        factors = known / stored
    return factors if bool((np.isfinite(factors) & (factors > 0)).all()) else None


def _stored_vector(books: Books, entry: Entry, size: int) -> Reals | None:
    if books.contents.numel(entry) != size or sum(dim != 1 for dim in books.contents.shape(entry)) > 1:
        return None
    look = books.contents.at(entry, np.arange(size, dtype=np.int64))
    return None if look is None or look[1] is not None else look[0].astype(np.float64)


def _divides(books: Books, entry: Entry, bias: object, factors: Reals) -> bool:
    """Whether a stored bias, multiplied by the factors, equals PyTorch's."""
    known = books.contents.originals.vector(bias.name) if isinstance(bias, Parameter) else None
    stored = None if known is None else _stored_vector(books, entry, known.size)
    if known is None or stored is None or known.size != factors.size:
        return False
    tolerances = tolerance_of(books.contents, entry) * np.abs(known)
    return bool((np.abs(stored * factors - known) <= tolerances).all())


def _norm_flow(books: Books, entry: Entry) -> tuple[Node, Entry | None] | None:
    """Return the node that produces a norm's output, and the entry of its bias; None if the entry is no norm's gain."""
    readers = books.ledger.wiring.readers(entry.tensor, past=_KEEPS)
    if len(readers) != 1:
        return None
    node, slot = readers[0]
    if kind_of(node) is Kind.NORMALIZES and node.is_standard and slot == 1:
        name = node.inputs[2] if len(node.inputs) > 2 else ""
        return (
            (node, _entry_at(books, node, name))
            if len(node.outputs) == 1 or not any(node.outputs[1:])
            else None
        )
    if node.op_type != "Mul":
        return None
    following = books.ledger.wiring.readers(node)
    if len(following) != 1 or following[0].node.op_type != "Add":
        return node, None
    added = following[0].node
    other = added.inputs[1 - following[0].slot] if len(added.inputs) == 2 else ""
    found = _entry_at(books, added, other)
    return (node, None) if found is None else (added, found)


def _entry_at(books: Books, node: Node, name: str) -> Entry | None:
    """Return the stored tensor that provides a node's input, before nodes that move or decode it."""
    provider = books.ledger.wiring.find(node.graph_path, name) if name else None
    while isinstance(provider, Node) and provider.op_type in _KEEPS and provider.inputs:
        provider = books.ledger.wiring.find(provider.graph_path, provider.inputs[0])
    return books.find(provider.key) if isinstance(provider, StoredTensor) else None


def _scaled_weights(books: Books, node: Node, factors: Reals) -> list[_ScaledWeight]:
    """Return the weights that multiply a node's output, if they are its only readers and all have the factors."""
    outputs = {
        name for graph in books.ledger.model.graphs for name in graph.outputs if graph.path == node.graph_path
    }
    if outputs.intersection(node.outputs):
        return []
    found: list[_ScaledWeight] = []
    for reader, slot in books.ledger.wiring.readers(node, past=CARRIES):
        weight = (
            None if kind_of(reader) is not Kind.PRODUCT else _scaled_weight_at(books, reader, slot, factors)
        )
        if weight is None:
            return []
        found.append(weight)
    return found


def _scaled_weight_at(books: Books, node: Node, slot: int, factors: Reals) -> _ScaledWeight | None:
    """Return the scaled weight of a product that reads its other factor at a slot; None if there is none."""
    for place, name in enumerate(node.inputs[:2]):
        entry = _entry_at(books, node, name) if place != slot else None
        for parameter in _matrices_of(books, entry) if entry is not None else ():
            assert entry is not None
            for axis, dim in enumerate(parameter.shape):
                if dim != factors.size:
                    continue
                fit = fit_scaled(books.contents, entry, parameter, factors, axis)
                if fit is None or fit.evidence != books.contents.evidence:
                    continue
                if books.contents.fit(entry, parameter) is not None:
                    return None  # codes so coarse that they match the unscaled weight too
                uses = books.contents.uses(entry, fit.layout.shape, fit.layout.axes)
                if uses and all(use.summed == axis for use in uses):
                    return _ScaledWeight(entry, parameter, fit)
    return None


def _matrices_of(books: Books, entry: Entry) -> Iterator[Parameter]:
    """Yield the matrices that an entry may hold: the one of its name, else any, with held ones (tied weights) last."""
    if entry.tensor.key in books.entries or entry.role is not Role.PARAMETER:
        return
    named_tensors = [
        suspect.tensor for suspect in books.suspects if suspect.entry.tensor.key == entry.tensor.key
    ]
    others = sorted(books.manifest.parameters, key=lambda parameter: parameter.name in books.parameters)
    for tensor in named_tensors or others:
        if (
            isinstance(tensor, Parameter)
            and len(tensor.shape) == 2
            and tensor.numel == books.contents.numel(entry)
        ):
            yield tensor


def _settle_moved_gain(
    books: Books,
    entry: Entry,
    gain: Parameter,
    bias_entry: Entry | None,
    bias: object,
    weights: list[_ScaledWeight],
) -> None:
    rule = f"{books.contents.evidence}:moved-gain {module_of(gain.name)}"
    touched = [entry, *(weight.entry for weight in weights)]
    _assign_divided(books, gain, entry, rule, Computed(f"{gain.name} / s"))
    if bias_entry is not None and isinstance(bias, Parameter) and bias.name not in books.parameters:
        touched.append(bias_entry)
        _assign_divided(books, bias, bias_entry, rule, Computed(f"{bias.name} / s"))
    for weight in weights:
        layout = weight.fit.layout
        piece = Piece(
            weight.entry.tensor.key,
            layout.shape,
            layout.axes,
            computed=Computed(f"{weight.parameter.name} * s"),
        )
        chain = with_line(weight.fit.chain, Line.FOLDED_POINTWISE)
        if weight.parameter.name in books.parameters:
            books.copy(weight.parameter, weight.entry, rule)
            continue
        books.assign(weight.parameter, weight.entry, chain, rule, weight.fit.error, pieces=(piece,))
    books.release(*touched)


def _assign_divided(books: Books, parameter: Parameter, entry: Entry, rule: str, computed: Computed) -> None:
    shape = books.contents.shape(entry)
    piece = Piece(entry.tensor.key, shape, tuple(range(len(shape))), computed=computed)
    changed = books.contents.changes(entry, parameter) or ()
    books.assign(parameter, entry, (Line.FOLDED_POINTWISE, *changed), rule, None, pieces=(piece,))
