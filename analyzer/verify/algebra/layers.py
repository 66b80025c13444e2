"""Operations of the algebra that PyTorch and ONNX both have: norms, windows, attention."""

from __future__ import annotations

import math
import string
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from analyzer.records import Frozen
from analyzer.verify.algebra.field import key_of, mixed, product
from analyzer.verify.algebra.values import (
    Algebra,
    Array,
    Factored,
    Field,
    UnknownError,
    Value,
    is_known,
    number,
    shape_of,
)

_HALF = number(0.5)


def log_softmax(a: Algebra, value: Value, axis: int) -> Value:
    """Compute x - log(sum(exp(x)))."""
    if is_known(value):
        array = np.asarray(value)
        value = a.subtract(array, array.max(axis, keepdims=True, initial=-np.inf))
    powers = a.function("exp", value)
    return a.subtract(value, a.function("log", a.sum(powers, (axis,), keeps=True)))


def gelu(a: Algebra, value: Value, approximate: str) -> Value:
    """Compute GELU (Hendrycks and Gimpel 2016), exactly or with the tanh approximation."""
    if approximate == "tanh":
        cubed = a.multiply(number(0.044715), a.raise_to(value, number(3)))
        inner = a.multiply(number(math.sqrt(2 / math.pi)), a.add(value, cubed))
        activated = a.function("tanh", inner)
    else:
        activated = a.function("erf", a.multiply(value, number(math.sqrt(0.5))))
    return a.multiply(a.multiply(value, _HALF), a.add(activated, number(1)))


SELU = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946
"""Alpha and scale of SELU (Klambauer et al. 2017)."""


def elu(a: Algebra, value: Value, alpha: Any, scale: Any, inner: Value) -> Value:
    """Compute ELU (Clevert et al. 2016): scale (max(x, 0) + alpha min(exp(inner x) - 1, 0))."""
    if is_known(inner) and not (np.asarray(inner) > 0).all():
        raise UnknownError("elu with an input scale that is not above 0")
    below = a.function("expm1 below 0", a.multiply(value, inner))
    found = a.add(a.function("relu", value), a.multiply(below, number(alpha)))
    return found if scale == 1 else a.multiply(found, number(scale))


def silu(a: Algebra, value: Value) -> Value:
    """Compute x * sigmoid(x)."""
    return a.multiply(value, a.function("sigmoid", value))


def hard_sigmoid(a: Algebra, value: Value, alpha: float = 1 / 6, beta: float = 0.5) -> Value:
    """Compute clip(alpha x + beta, 0, 1); by default ReLU6(x + 3) / 6."""
    shifted = a.add(a.multiply(value, number(alpha)), number(beta))
    return a.clamp(shifted, number(0), number(1))


def normalize(a: Algebra, value: Value, axes: Sequence[int], epsilon: float) -> Value:
    """Subtract the mean, and divide by the root of the variance."""
    centred = a.subtract(value, a.mean(value, axes, keeps=True))
    variance = a.mean(a.multiply(centred, centred), axes, keeps=True)
    return a.multiply(centred, a.invert(a.function("sqrt", a.add(variance, number(epsilon)))))


def layer_norm(
    a: Algebra, value: Value, axes: Sequence[int], weight: Value | None, bias: Value | None, epsilon: float
) -> Value:
    """Apply layer normalization (Ba et al. 2016)."""
    found = normalize(a, value, axes, epsilon)
    found = found if weight is None else a.multiply(found, weight)
    return found if bias is None else a.add(found, bias)


def rms_norm(a: Algebra, value: Value, axes: Sequence[int], weight: Value | None, epsilon: float) -> Value:
    """Apply RMS normalization (Zhang and Sennrich 2019)."""
    squares = a.mean(a.multiply(value, value), axes, keeps=True)
    found = a.multiply(value, a.invert(a.function("sqrt", a.add(squares, number(epsilon)))))
    return found if weight is None else a.multiply(found, weight)


def _channels(value: Value, rank: int) -> tuple[int, ...]:
    return (1, -1, *(1 for _ in range(rank - 2)))


def batch_norm(
    a: Algebra,
    value: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value,
    variance: Value,
    epsilon: float,
) -> Value:
    """Apply batch normalization in evaluation mode: with stored statistics, along axis 1."""
    shape = _channels(value, len(shape_of(value)))
    scale = a.invert(a.function("sqrt", a.add(variance, number(epsilon))))
    found = a.multiply(a.subtract(value, a.reshape(mean, shape)), a.reshape(scale, shape))
    found = found if weight is None else a.multiply(found, a.reshape(weight, shape))
    return found if bias is None else a.add(found, a.reshape(bias, shape))


def group_norm(
    a: Algebra, value: Value, groups: int, weight: Value | None, bias: Value | None, epsilon: float
) -> Value:
    """Apply group normalization (Wu and He 2018)."""
    shape = shape_of(value)
    grouped = a.reshape(value, (shape[0], groups, -1))
    found = a.reshape(normalize(a, grouped, (2,), epsilon), shape)
    broadcast_shape = _channels(value, len(shape))
    found = found if weight is None else a.multiply(found, a.reshape(weight, broadcast_shape))
    return found if bias is None else a.add(found, a.reshape(bias, broadcast_shape))


def weight_norm(a: Algebra, v: Value, g: Value, axis: int | None) -> Value:
    """Multiply a direction by a length for each index of an axis, or by a single one (Salimans and Kingma 2016)."""
    over = [at for at in range(len(shape_of(v))) if at != axis]
    length = a.function("sqrt", a.sum(a.multiply(v, v), over, keeps=True))
    return a.multiply(v, a.divide(a.reshape(g, shape_of(length)), length))


def attention(
    a: Algebra, query: Value, key: Value, value: Value, mask: Value | None, scale: float, *, causal: bool
) -> Any:
    """Compute softmax(q k^T scale + mask) v; a boolean mask hides the elements where it is False."""
    heads = shape_of(query)[-3] if len(shape_of(query)) > 2 else 1
    if len(shape_of(key)) > 2 and shape_of(key)[-3] not in (1, heads):
        times = heads // shape_of(key)[-3]
        index = np.repeat(np.arange(shape_of(key)[-3]), times)
        key, value = (a.take(each, index, len(shape_of(each)) - 3) for each in (key, value))
    order = (*range(len(shape_of(key)) - 2), len(shape_of(key)) - 1, len(shape_of(key)) - 2)
    scores = a.multiply(a.matmul(query, a.permute(key, order)), number(scale))
    if causal:
        rows, columns = shape_of(scores)[-2:]
        seen = np.tri(rows, columns, dtype=bool)
        scores = a.add(scores, np.where(seen, number(0), number(-np.inf)))
    if mask is not None:
        if (is_known(mask) and np.asarray(mask).dtype.kind == "b") or getattr(mask, "kind", "") == "truth":
            mask = a.where(mask, number(0), number(-np.inf))
        scores = a.add(scores, mask)
    shares = a.softmax(scores, len(shape_of(scores)) - 1)
    if is_known(shares):  # PyTorch's attention gives 0 where a mask hides everything (`_safe_softmax`)
        shares = np.nan_to_num(np.asarray(shares))
    return a.matmul(shares, value)


# windows


class _Ring(Frozen):
    """Sums and products over the field, or of real numbers if all operands are known."""

    real: np.dtype[Any] | None
    """Type of the results; None over the field. Sums of real numbers have double precision."""
    prime: int

    @classmethod
    def over(cls, a: Algebra, *values: Value) -> _Ring:
        return cls(np.result_type(*map(np.asarray, values)) if all(map(is_known, values)) else None, a.prime)

    @property
    def is_real(self) -> bool:
        return self.real is not None

    def of(self, a: Algebra, value: Value) -> Any:
        return np.asarray(value, np.float64) if self.is_real else a.dense(value).elements

    def zeros(self, shape: Sequence[int]) -> Any:
        return np.zeros(shape, np.float64 if self.is_real else np.uint64)

    def less(self, values: Any) -> Any:
        """Reduce sums and products of two elements modulo the prime."""
        return values if self.is_real else values % np.uint64(self.prime)

    def product(self, one: Any, other: Any) -> Any:
        return np.matmul(one, other) if self.is_real else product(one, other, self.prime)

    def made(self, values: Any) -> Value:
        return (
            Field(np.ascontiguousarray(values)) if self.real is None else values.astype(self.real, order="C")
        )


def _padded(a: Algebra, value: Value, pads: Sequence[tuple[int, int]]) -> Value:
    if not any(any(pair) for pair in pads):
        return value
    return a.pad(value, [(0, 0), (0, 0), *pads])


def windows(
    sizes: Sequence[int], kernel: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> tuple[int, ...]:
    """Return the number of windows along each axis."""
    return tuple(
        (size - (width - 1) * step - 1) // jump + 1
        for size, width, jump, step in zip(sizes, kernel, stride, dilation, strict=True)
    )


def _places(kernel: Sequence[int]) -> Iterator[tuple[int, ...]]:
    yield from np.ndindex(*kernel)


def _shifted(
    elements: Any,
    at: Sequence[int],
    count: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
) -> Any:
    """Return the elements at one place of every window."""
    parts = tuple(
        slice(place * step, place * step + (length - 1) * jump + 1, jump)
        for place, length, jump, step in zip(at, count, stride, dilation, strict=True)
    )
    return elements[(..., *parts)]


def convolve(
    a: Algebra,
    value: Value,
    weight: Value,
    bias: Value | None,
    stride: Sequence[int],
    pads: Sequence[tuple[int, int]],
    dilation: Sequence[int],
    groups: int,
) -> Value:
    """Convolve over any number of axes: (batch, channels, ...) by (channels out, channels / groups, ...)."""
    kernel = shape_of(weight)[2:]
    ring = _Ring.over(a, value, weight)
    padded = ring.of(a, _padded(a, value, pads))
    count = windows(padded.shape[2:], kernel, stride, dilation)
    batch, channels = padded.shape[:2]
    out = shape_of(weight)[0]
    padded = padded.reshape(batch, groups, channels // groups, *padded.shape[2:])
    found = ring.zeros((batch, out, *count))
    dense: Any
    if isinstance(weight, Factored):
        for first, second, *rest in weight.terms:
            shape = (-1, *(1 for _ in kernel))
            sums = (padded * second.reshape(shape) % a.p).sum(axis=2, dtype=np.uint64) % a.p
            for axis, vector in enumerate(rest):
                ones = [1] * len(kernel)
                ones[axis] = kernel[axis]
                lengths = [*sums.shape[2:]]
                lengths[axis] = count[axis]
                jump, step = [1] * len(kernel), [1] * len(kernel)
                jump[axis], step[axis] = stride[axis], dilation[axis]
                sums = (
                    sum(
                        _shifted(sums, at, lengths, jump, step) * vector[at[axis]] % a.p
                        for at in _places(ones)
                    )
                    % a.p
                )
            spread = np.repeat(sums, out // groups, axis=1)
            found = (found + spread * first.reshape(shape)) % a.p
        dense = None if weight.rest is None else weight.rest.dense(a.p)
    else:
        dense = ring.of(a, weight)
    if dense is not None:
        dense = dense.reshape(groups, out // groups, channels // groups, *kernel)
        for at in _places(kernel):
            piece = _shifted(padded, at, count, stride, dilation).reshape(
                batch, groups, channels // groups, -1
            )
            made = ring.product(dense[(..., *at)], piece)
            found = ring.less(found + made.reshape(batch, out, *count))
    output = ring.made(found)
    return output if bias is None else a.add(output, a.reshape(bias, (1, -1, *(1 for _ in kernel))))


def convolve_back(
    a: Algebra,
    value: Value,
    weight: Value,
    bias: Value | None,
    stride: Sequence[int],
    pads: Sequence[tuple[int, int]],
    extra: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Value:
    """Apply a transposed convolution: (batch, channels, ...) by (channels, channels out / groups, ...)."""
    kernel = shape_of(weight)[2:]
    ring = _Ring.over(a, value, weight)
    elements = ring.of(a, value)
    batch, channels = elements.shape[:2]
    sizes = elements.shape[2:]
    each = shape_of(weight)[1]
    elements = elements.reshape(batch, groups, channels // groups, -1)
    dense = ring.of(a, weight).reshape(groups, channels // groups, each, *kernel)
    whole = [
        (size - 1) * jump + (width - 1) * step + 1 + more
        for size, jump, width, step, more in zip(sizes, stride, kernel, dilation, extra, strict=True)
    ]
    found = ring.zeros((batch, groups * each, *whole))
    for at in _places(kernel):
        made = ring.product(np.swapaxes(dense[(..., *at)], -1, -2), elements).reshape(
            batch, groups * each, *sizes
        )
        view = _shifted(found, at, sizes, stride, dilation)
        view[...] = ring.less(view + made)
    parts = tuple(slice(first, size - last) for (first, last), size in zip(pads, whole, strict=True))
    output = ring.made(found[(..., *parts)])
    return output if bias is None else a.add(output, a.reshape(bias, (1, -1, *(1 for _ in kernel))))


def log_of_sum(a: Algebra, value: Value, axes: Sequence[int], *, keeps: bool) -> Value:
    """Return log(sum(exp(x))); the largest of known numbers is taken out of the sum, which would be infinite."""
    if not is_known(value):
        return a.function("log", a.sum(a.function("exp", value), axes, keeps=keeps))
    array, axis = np.asarray(value), tuple(axes)
    largest = array.max(axis, keepdims=True)
    found: Array = np.log(np.exp(array - largest).sum(axis, keepdims=True)) + largest
    return found if keeps else found.squeeze(axis)


def max_pool(
    a: Algebra,
    value: Value,
    kernel: Sequence[int],
    stride: Sequence[int],
    pads: Sequence[tuple[int, int]],
    dilation: Sequence[int],
) -> Any:
    """Return the maximum of each window; padding never counts."""
    if is_known(value):
        array = np.pad(np.asarray(value, np.float64), [(0, 0), (0, 0), *pads], constant_values=-np.inf)
        counts = windows(array.shape[2:], kernel, stride, dilation)
        found = np.max([_shifted(array, at, counts, stride, dilation) for at in _places(kernel)], axis=0)
        return found.astype(np.asarray(value).dtype)
    elements = mixed(a.dense(value).elements, key_of("max", "each")) % a.p
    if set(dilation) == {1}:
        sums = _window_sums(_Ring(None, a.prime), elements, kernel, stride, pads)
    else:
        padded = a.dense(_padded(a, Field(elements), pads)).elements
        count = windows(padded.shape[2:], kernel, stride, dilation)
        sums = sum(_shifted(padded, at, count, stride, dilation) for at in _places(kernel)) % a.p
    return Field(mixed(np.asarray(sums), key_of("max")) % a.p)


def average_pool(
    a: Algebra,
    value: Value,
    kernel: Sequence[int],
    stride: Sequence[int],
    pads: Sequence[tuple[int, int]],
    *,
    counts_pads: bool,
    counted: Sequence[tuple[int, int]] | None = None,
    divisor: int | None = None,
) -> Value:
    """Return the mean of each window.

    Args:
        a: the algebra.
        value: (batch, channels, ...).
        kernel: sizes of a window.
        stride: steps from one window to the next.
        pads: padding on both sides.
        counts_pads: whether padding counts.
        counted: part of the pads that may count; the rest only completes windows.
        divisor: divisor in place of the count.
    """
    ring = _Ring.over(a, value)
    sums = ring.made(_window_sums(ring, ring.of(a, value), kernel, stride, pads))
    counted = pads if counted is None else counted
    if divisor is not None:
        return a.divide(sums, number(divisor))
    if (counts_pads and list(counted) == list(pads)) or not any(any(pair) for pair in pads):
        return a.divide(sums, number(math.prod(kernel)))
    counts = np.ones((), np.float32)
    for size, width, jump, pad, own in zip(shape_of(value)[2:], kernel, stride, pads, counted, strict=True):
        first, last = (-own[0], size + own[1]) if counts_pads else (0, size)
        spans = _spans(size, width, jump, pad, first, last)
        counts = counts[..., None] * np.array([end - start for start, end in spans], np.float32)
    return a.divide(sums, counts)


def _spans(
    size: int, width: int, jump: int, pad: tuple[int, int], first: int, last: int
) -> list[tuple[int, int]]:
    """Return the part of each window that is from `first` to before `last`, where 0 is the first element."""
    (count,) = windows([size + sum(pad)], [width], [jump], [1])
    starts = [place * jump - pad[0] for place in range(count)]
    return [(max(start, first), max(min(start + width, last), start, first)) for start in starts]


def _window_sums(
    ring: _Ring, elements: Any, kernel: Sequence[int], stride: Sequence[int], pads: Sequence[tuple[int, int]]
) -> Any:
    """Return the sum of each window, whose padding is zero; a window may be much larger than what it covers."""
    for place, (width, jump, pad) in enumerate(zip(kernel, stride, pads, strict=True)):
        axis = elements.ndim - len(kernel) + place
        spans = _spans(elements.shape[axis], width, jump, pad, 0, elements.shape[axis])
        moved = np.moveaxis(elements, axis, 0)
        parts = [ring.less(moved[start:end].sum(axis=0, dtype=elements.dtype)) for start, end in spans]
        elements = np.moveaxis(np.stack(parts), 0, axis) if parts else np.take(elements, [], axis)
    return elements


def adaptive_max_pool(a: Algebra, value: Value, sizes: Sequence[int]) -> Value:
    """Return the maximum of each of so many windows, which must be of equal size."""
    shape = shape_of(value)[-len(sizes) :]
    if any(size % int(count) for size, count in zip(shape, sizes, strict=True)):
        raise UnknownError("adaptive max pooling over windows of several sizes")
    kernel = [size // int(count) for size, count in zip(shape, sizes, strict=True)]
    made: Value = max_pool(a, value, kernel, kernel, [(0, 0)] * len(kernel), [1] * len(kernel))
    return made


def adaptive_average_pool(a: Algebra, value: Value, sizes: Sequence[int | None]) -> Value:
    """Return the means of so many windows."""
    found = value
    rank = len(shape_of(value))
    for place, wanted in enumerate(sizes):
        axis = rank - len(sizes) + place
        size = shape_of(found)[axis]
        count = size if wanted is None else int(wanted)
        if count == size:
            continue
        parts = []
        for at in range(count):
            start, stop = at * size // count, -(-(at + 1) * size // count)
            cut = [slice(None)] * rank
            cut[axis] = slice(start, stop)
            parts.append(a.mean(a.cut(found, cut), (axis,), keeps=True))
        found = a.concat(parts, axis)
    return found


def spread(a: Algebra, value: Value, size: int, *, channels_first: bool) -> Value:
    """Move channels into blocks of size x size (Shi et al. 2016); other channels are the outer or the inner part."""
    *batch, channels, height, width = shape_of(value)
    left = channels // size**2
    parts = (left, size, size) if channels_first else (size, size, left)
    blocks = a.reshape(value, [math.prod(batch), *parts, height, width])
    order = (0, 1, 4, 2, 5, 3) if channels_first else (0, 3, 4, 1, 5, 2)
    return a.reshape(a.permute(blocks, order), [*batch, left, height * size, width * size])


def gather_blocks(a: Algebra, value: Value, size: int, *, channels_first: bool) -> Value:
    """Move blocks into channels: the inverse of `spread`."""
    *batch, channels, height, width = shape_of(value)
    blocks = a.reshape(value, [math.prod(batch), channels, height // size, size, width // size, size])
    order = (0, 1, 3, 5, 2, 4) if channels_first else (0, 3, 5, 1, 2, 4)
    return a.reshape(a.permute(blocks, order), [*batch, channels * size**2, height // size, width // size])


def _spell_out(equation: str, ranks: Sequence[int]) -> str:
    """Replace each ellipsis of an einsum by letters of its own; without a result, these come first in it.

    >>> _spell_out("...ab,...bc", [4, 3])
    'ABab,Bbc->ABac'
    """
    if "..." not in equation:
        return equation
    before, arrow, after = equation.partition("->")
    terms = before.split(",")
    if len(terms) != len(ranks):
        raise UnknownError(f"einsum {equation}")
    free = [letter for letter in string.ascii_uppercase + string.ascii_lowercase if letter not in equation]
    counts = [
        rank - len(term.replace("...", "")) for term, rank in zip(terms, ranks, strict=True) if "..." in term
    ]
    if min(counts, default=0) < 0 or max(counts, default=0) > len(free):
        raise UnknownError(f"einsum {equation}")
    most = max(counts, default=0)
    left = iter(counts)
    spelled = [
        term.replace("...", "".join(free[most - next(left) : most])) if "..." in term else term
        for term in terms
    ]
    if not arrow:
        letters = before.replace("...", "").replace(",", "")
        after = "..." + "".join(sorted(letter for letter in set(letters) if letters.count(letter) == 1))
    return f"{','.join(spelled)}->{after.replace('...', ''.join(free[:most]))}"


def contract(a: Algebra, equation: str, values: Sequence[Value]) -> Value:
    """Compute an einsum; more than two tensors are contracted pair by pair from the left."""
    equation = _spell_out(equation.replace(" ", ""), [len(shape_of(value)) for value in values])
    before, _, after = equation.partition("->")
    terms = before.split(",")
    if not after and "->" not in equation:
        letters = "".join(terms)
        after = "".join(sorted(each for each in set(letters) if letters.count(each) == 1))
    if len(terms) == 1 and len(set(terms[0])) == len(terms[0]):
        lost = [place for place, letter in enumerate(terms[0]) if letter not in after]
        value = a.sum(values[0], lost, keeps=False) if lost else values[0]
        kept = [letter for letter in terms[0] if letter in after]
        return a.permute(value, [kept.index(letter) for letter in after])
    if len(terms) > 2:
        later = {*after, *"".join(terms[2:])}
        shared = "".join(dict.fromkeys(letter for letter in terms[0] + terms[1] if letter in later))
        made = contract(a, f"{terms[0]},{terms[1]}->{shared}", values[:2])
        return contract(a, f"{','.join([shared, *terms[2:]])}->{after}", [made, *values[2:]])
    if len(terms) != 2 or any(len(set(term)) < len(term) for term in terms):
        raise UnknownError(f"einsum {equation}")
    sides = []
    for term, other, value in zip(terms, reversed(terms), values, strict=True):
        alone = [place for place, letter in enumerate(term) if letter not in other and letter not in after]
        sides.append(
            (
                [letter for place, letter in enumerate(term) if place not in alone],
                a.sum(value, alone, keeps=False) if alone else value,
            )
        )
    (left, one), (right, two) = sides
    both = [letter for letter in left if letter in right and letter in after]
    over = [letter for letter in left if letter in right and letter not in after]
    only_left = [letter for letter in left if letter not in right]
    only_right = [letter for letter in right if letter not in left]
    sizes = dict(zip([*left, *right], [*shape_of(one), *shape_of(two)], strict=True))
    if any(sizes[letter] != size for letter, size in zip(left, shape_of(one), strict=True)):
        raise UnknownError(f"einsum {equation}")  # one of them is repeated

    def flat(letters: Sequence[str]) -> int:
        return math.prod(sizes[letter] for letter in letters)

    first = a.permute(one, [left.index(each) for each in (*both, *only_left, *over)])
    second = a.permute(two, [right.index(each) for each in (*both, *over, *only_right)])
    first = a.reshape(first, (flat(both), flat(only_left), flat(over)))
    second = a.reshape(second, (flat(both), flat(over), flat(only_right)))
    made = a.reshape(a.matmul(first, second), [sizes[each] for each in (*both, *only_left, *only_right)])
    return a.permute(made, [[*both, *only_left, *only_right].index(letter) for letter in after])
