"""Rules: a BatchNorm that an exporter or an optimizer computed in advance.

A folded BatchNorm is part of the convolution, or the linear layer, before it: W'[o] = W[o] * s[o] and b'[o] = (b[o] -
mean[o]) * s[o] + beta[o], with s = gamma / sqrt(var + eps) (Ioffe and Szegedy 2015, section 3.1; onnxscript
rewriter/rules/common/_fuse_batchnorm.py). The manifest has the BatchNorm's vectors whole, and for the weight W samples
and each channel's projection and norm, which scale with the channel. A state dict has no eps. It is solved from the
stored weight: s = W' / W gives eps = (gamma / s)^2 - var for every sample. Their median is tried as an eps if it is
near a power of ten, as people write it (1e-3). Codes are too coarse for that: for them all common powers are tried, and
the bias, which is stored precisely, decides.

A frozen BatchNorm is a factor and a summand for each channel: x * scale + shift with scale = weight / sqrt(running_var
+ eps) and shift = bias - running_mean * scale, as the forward of DETR's and torchvision's `FrozenBatchNorm2d` writes
it. A state dict does not tell that the four are buffers.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence, Set

import numpy as np
import numpy.typing as npt

from analyzer.account.classify.structure import find_origin
from analyzer.account.ledger import Entry, Role, natural_order
from analyzer.account.scopes import module_of
from analyzer.checkpoints.statedict import BY_NAMES
from analyzer.manifest import BatchNorm, Parameter
from analyzer.model import GraphPath, Key, Node, StoredTensor
from analyzer.model.operators import CARRIES, DECODES, MOVES, Kind, kind_of
from analyzer.model.wiring import Reader
from analyzer.reconciliation.books import Books, Suspect
from analyzer.reconciliation.closeness import Reals
from analyzer.reconciliation.factors import ScaledFit, channels_of, fit_scaled, fit_vector, tolerance_of
from analyzer.reconciliation.layouts import layouts
from analyzer.reconciliation.lines import Computed, Line, Piece, with_line
from analyzer.records import Frozen, replace

# folded into the weight before it


class _Fold(Frozen):
    """BatchNorm that explains a weight, the weight's fit, and the bias that the BatchNorm became, if any."""

    norm: BatchNorm
    fit: ScaledFit
    bias: Entry | None


def match_folded_batchnorm(books: Books) -> None:
    """Explain weights whose channels are the PyTorch weight's, scaled by one unused BatchNorm.

    Candidates are the suspects, which kept their name, and nameless weights, which the exporter renamed
    (`onnx::Conv_117`). Nameless ones are compared with the weight of the module that reads them first, then with any
    weight of their size. If contents are not compared, the exporter's name for the new bias and the module that reads
    it decide.
    """
    unused = [norm for norm in books.manifest.batch_norms if norm.running_var and norm.running_mean]
    if books.contents.mode == "none":
        _match_by_name(books, unused)
        return
    scales = _Scales(books, unused)
    count = 0
    for weight, entry in _open_pairs(books) if unused else ():
        fold = _find_fold(books, entry, weight, scales, scales.near)
        if fold is not None:
            count += 1
            scales.use(fold.norm)
            _settle_fold(books, fold, weight, entry)
    if unused and scales.is_open:
        _match_solved(books, scales, count)
    if unused:
        _match_repeated(books, scales)


def settle_rescaled(books: Books) -> None:
    """Settle as `differing` weights that the file holds with other factors than those of PyTorch's BatchNorms.

    The account stays unbalanced; the rule only tells what became of a weight, where the file has other running
    statistics than PyTorch's side: a forward pass in training mode changes them. It needs values, so against a manifest
    alone such a weight is `missing`.
    """
    if books.contents.mode == "none":
        return
    variances = (books.contents.originals.vector(norm.running_var) for norm in books.manifest.batch_norms)
    sizes = {variance.size for variance in variances if variance is not None}
    for weight, entry in _open_pairs(books) if sizes else ():
        if weight.shape[0] in sizes and _is_rescaled(books, entry, weight):
            rule, error = f"{books.contents.evidence}:rescaled", books.contents.error(entry, weight)
            books.release(entry)
            books.assign(weight, entry, (Line.DIFFERING,), rule, error)


_LEAST_ROW, _MOST_OF_ROW = 3, 16
"""Fewest and most elements of a channel that are compared: with fewer, any numbers are near a multiple."""


def _is_rescaled(books: Books, entry: Entry, weight: Parameter) -> bool:
    """Whether every channel along the first axis is PyTorch's, times a number of its own."""
    contents = books.contents
    values, channels = contents.originals.values(weight), weight.shape[0]
    length = weight.numel // max(1, channels)
    if values is None or length < _LEAST_ROW or contents.encoding(entry) is not None:
        return False
    within = np.unique(np.linspace(0, length - 1, min(length, _MOST_OF_ROW)).astype(np.int64))
    positions = (np.arange(channels)[:, None] * length + within).reshape(-1)
    original = values.reshape(-1)[positions].astype(np.float64).reshape(channels, -1)
    squares = np.square(original).sum(axis=1)
    for layout in contents.layouts(entry, weight.shape, is_computed=True):
        look = contents.at(entry, layout.positions(positions)) if layout.is_plain else None
        if look is None or look[0].dtype.kind not in "fV":
            continue
        stored = look[0].astype(np.float64).reshape(original.shape)
        factors = (stored * original).sum(axis=1) / np.where(squares, squares, 1)
        expected = original * factors[:, None]
        largest = np.abs(expected).max(axis=1, keepdims=True)
        if (np.abs(stored - expected) <= tolerance_of(contents, entry) * largest).all() and factors.any():
            return True
    return False


def _open_pairs(books: Books) -> Iterator[tuple[Parameter, Entry]]:
    """Yield each open weight with each entry that may hold it folded."""
    for suspect in [*books.suspects, *_pair_nameless(books)]:
        weight, entry = suspect.tensor, suspect.entry
        if not isinstance(weight, Parameter) or weight.name in books.parameters or len(weight.shape) < 2:
            continue
        if entry.tensor.key not in books.entries:
            yield weight, entry


def _match_solved(books: Books, scales: _Scales, count: int) -> None:
    """Explain the remaining weights by norms whose eps is solved from the weight itself.

    The norms of a model share one eps, or two. An eps that only one norm has is rejected if there are other folds, of
    which `count` were found before: somebody has scaled that weight.
    """
    found: list[tuple[_Fold, Parameter, Entry]] = []
    taken: set[object] = set()
    for weight, entry in _open_pairs(books):
        if taken & {weight.name, entry.tensor.key}:
            continue
        fold = _find_fold(books, entry, weight, scales, scales.solved)
        if fold is not None:
            scales.use(fold.norm)
            taken |= {weight.name, entry.tensor.key}
            found.append((fold, weight, entry))
    numbers = Counter(fold.norm.eps for fold, _, _ in found)
    for fold, weight, entry in found:
        is_single = numbers[fold.norm.eps] == 1 and count + len(found) > 1
        if not is_single and (fold.bias is None or fold.bias.tensor.key not in books.entries):
            _settle_fold(books, fold, weight, entry)


def _match_repeated(books: Books, scales: _Scales) -> None:
    """Explain nameless weights that are a weight folded before, with another BatchNorm: forward uses the weight again.

    Each use has a BatchNorm of its own (recurrent convolutions: Wang and Hu 2017, GRCNN). The module of the weight
    reads the new tensor too, as far as the file names modules. If no eps is known, the norms of one weight share it.
    """
    folded = [
        parameter
        for parameter in books.manifest.parameters
        if parameter.name in books.parameters
        and Line.FOLDED_BATCHNORM in books.parameters[parameter.name].chain
        and parameter.name in books.holdings
        and len(parameter.shape) >= 2
        and not books.contents.originals.is_constant(parameter)  # zeros are zeros with any factors
    ]
    sizes = {weight.numel for weight in folded}
    for norm in books.manifest.batch_norms:
        if norm.weight in books.parameters or norm.bias in books.parameters:
            scales.use(norm)
    for entry in list(books.free_entries()) if folded else ():
        numel = books.contents.numel(entry)
        if entry.role is not Role.PARAMETER or numel not in sizes or entry.tensor.key in books.entries:
            continue
        modules = books.reader_modules(entry)
        for weight in folded:
            is_read = not modules or not modules.isdisjoint(_modules_of(books, weight))
            fold = _find_again(books, entry, weight, scales) if weight.numel == numel and is_read else None
            if fold is not None:
                scales.use(fold.norm)
                _settle_fold(books, fold, weight, entry)
                break


def _modules_of(books: Books, weight: Parameter) -> set[str]:
    """Return the modules that own a settled weight, and those that read the tensor in which it is counted."""
    first = books.entry(books.parameters[weight.name].entries[0])
    return {module_of(name) for name in weight.names} | books.reader_modules(first)


def _find_again(books: Books, entry: Entry, weight: Parameter, scales: _Scales) -> _Fold | None:
    fold = _find_fold(books, entry, weight, scales, scales.near)
    if fold is None and scales.is_open:
        fold = _find_fold(books, entry, weight, scales, scales.solved)
    if fold is None or not scales.is_open:
        return fold
    return fold if books.parameters[weight.name].decided_by.endswith(_eps_of(fold.norm)) else None


def _eps_of(norm: BatchNorm) -> str:
    return f", eps {norm.eps:g}"


def _match_by_name(books: Books, norms: list[BatchNorm]) -> None:
    """Match folds without contents: `<weight>_bias` beside a weight is a folded BatchNorm if its module reads it."""
    modules = {norm.module: norm for norm in norms}
    for bias in books.ledger.entries:
        path, name = bias.tensor.key
        weight = books.tensor(name.removesuffix("_bias"))
        if bias.decided_by != "name:folded-bias" or not isinstance(weight, Parameter):
            continue
        entry = books.find((path, name.removesuffix("_bias")))
        norm = next(
            (modules[module] for module in sorted(books.reader_modules(bias)) if module in modules), None
        )
        if entry is not None and norm is not None and entry.tensor.shape == weight.shape:
            _settle_parts(books, norm, weight, entry, bias, "provenance:folded-bias+reader-module", None)


def _pair_nameless(books: Books) -> Iterator[Suspect]:
    """Yield each open learned entry with each free weight of its size, starting with the reading module's weight."""
    weights = [p for p in books.free_parameters() if len(p.shape) >= 2]
    sizes = {weight.numel for weight in weights}
    for entry in list(books.free_entries()):
        numel = books.contents.numel(entry)
        is_known = any(books.tensor(name) is not None for name in entry.sources)
        if is_known or numel not in sizes or entry.role is not Role.PARAMETER:
            continue
        modules = books.reader_modules(entry)
        candidates = [w for w in weights if w.numel == numel and not books.is_elsewhere(entry, w)]
        candidates.sort(key=lambda weight: module_of(weight.name) not in modules)
        yield from (Suspect(entry, weight) for weight in candidates)


def _find_fold(
    books: Books,
    entry: Entry,
    weight: Parameter,
    scales: _Scales,
    candidates: Callable[[Books, Entry, Parameter, int, int], Iterator[BatchNorm]],
) -> _Fold | None:
    """Return the first BatchNorm, in module order, under which weight and bias agree in every channel."""
    axis, group = _channel_axis(books, entry, weight)
    for norm in candidates(books, entry, weight, axis, group):
        fold = scale_and_shift(books, norm, weight)
        if fold is None or fold[0].size != weight.shape[axis] * group:
            continue
        scale, shift, sizes = fold
        fit = fit_scaled(books.contents, entry, weight, scale, axis, group)
        if fit is None:
            continue
        bias = find_shifted_bias(books, entry, shift, sizes)
        if bias is not None or not np.any(shift):
            return _Fold(norm, fit, bias)
    return None


_Stacked = tuple[list[BatchNorm], Reals]
"""Norms, and their factors as an array (norms, channels)."""

COMMON_EPSILONS = (1e-3, 1e-4, 1e-6, 1e-5)
"""Common values of eps."""


class _Scales:
    """Factors of all unused BatchNorms, stacked by number of channels."""

    def __init__(self, books: Books, norms: list[BatchNorm]) -> None:
        found: dict[int, list[tuple[BatchNorm, Reals]]] = defaultdict(list)
        for norm in norms:
            scale = _norm_scale(books, norm)
            if scale is not None:
                found[scale.size].append((norm, scale))
        self._norms = {size: [norm for norm, _ in pairs] for size, pairs in found.items()}
        self._scales = {size: np.stack([scale for _, scale in pairs]) for size, pairs in found.items()}
        self._used: set[str] = set()
        self.is_open = is_eps_open(books)
        """Whether the norms' eps is unknown."""
        self._others: dict[int, _Stacked] | None = None

    def _of_other_eps(self, books: Books, size: int) -> _Stacked:
        """Return the norms of one size with each common eps, except the eps that they have by default."""
        if self._others is None:
            self._others = {}
        if size not in self._others:
            norms = [
                replace(norm, eps=eps)
                for norm in self._norms[size]
                for eps in COMMON_EPSILONS
                if eps != norm.eps
            ]
            scales = [_norm_scale(books, norm) for norm in norms]
            self._others[size] = norms, np.stack([scale for scale in scales if scale is not None])
        return self._others[size]

    def use(self, norm: BatchNorm) -> None:
        self._used.add(norm.module)

    def solved(
        self, books: Books, entry: Entry, weight: Parameter, axis: int, group: int
    ) -> Iterator[BatchNorm]:
        """Yield the norms with the eps that the stored weight implies, if no eps is known; each once.

        The eps must be one power of ten for all channels: a free eps would explain a weight with any factors.
        """
        size = weight.shape[axis] * group
        if self.is_open and size in self._norms and books.contents.encoding(entry) is not None:
            yield from self._near(books, entry, weight, axis, group, self._of_other_eps(books, size))
            return
        samples = books.contents.originals.samples(weight) if self.is_open else None
        if samples is None or size not in self._norms or not samples.size:
            return
        channels = channels_of(books.contents, weight, axis, group)
        original = samples.astype(np.float64)
        tried: set[tuple[str, float]] = set()
        for layout in layouts(weight.shape, books.contents.shape(entry)):
            is_known = layout.is_plain or books.contents.mode == "full"
            look = books.contents.look(entry, layout) if is_known else None
            if look is None or (look[0].dtype.kind not in "fV" and look[1] is None):
                continue
            stored = look[0].astype(np.float64)
            for norm in self._norms[size]:
                eps = None if norm.module in self._used else _solve(books, norm, stored, original, channels)
                if eps is not None and eps != norm.eps and (norm.module, eps) not in tried:
                    tried.add((norm.module, eps))
                    yield replace(norm, eps=eps)

    def near(
        self, books: Books, entry: Entry, weight: Parameter, axis: int, group: int
    ) -> Iterator[BatchNorm]:
        """Yield the norms under which the weight's samples equal the entry's; all norms are compared at once."""
        size = weight.shape[axis] * group
        if size in self._norms:
            stacked = self._norms[size], self._scales[size]
            yield from self._near(books, entry, weight, axis, group, stacked)

    def _near(
        self, books: Books, entry: Entry, weight: Parameter, axis: int, group: int, stacked: _Stacked
    ) -> Iterator[BatchNorm]:
        norms, scales = stacked
        samples = books.contents.originals.samples(weight)
        if samples is None:
            return
        channels = channels_of(books.contents, weight, axis, group)
        expected = samples.astype(np.float64) * scales[:, channels]  # (norms, samples)
        tolerance = 2 * tolerance_of(books.contents, entry)
        for layout in layouts(weight.shape, books.contents.shape(entry)):
            is_known = layout.is_plain or books.contents.mode == "full"
            look = books.contents.look(entry, layout) if is_known else None
            if look is None or (look[0].dtype.kind not in "fV" and look[1] is None):
                continue
            tolerances = tolerance * np.abs(expected).max(axis=1, keepdims=True) + 1e-6
            tolerances = tolerances + (0.0 if look[1] is None else look[1] * 1.01)
            with np.errstate(invalid="ignore"):
                near = (np.abs(expected - look[0].astype(np.float64)) <= tolerances).all(axis=1)
            found = (norms[number] for number in np.flatnonzero(near))
            yield from (norm for norm in found if norm.module not in self._used)


def _channel_axis(books: Books, entry: Entry, weight: Parameter) -> tuple[int, int]:
    """Return the axis of a weight's output channels and the number of groups: (0, 1), or (1, groups) if transposed."""
    for node in books.users(entry):
        if node.op_type == "ConvTranspose" and len(weight.shape) >= 3:
            return 1, max(1, node.integers.get("group", 1))
    return 0, 1


def find_shifted_bias(books: Books, weight: Entry, shift: Reals, sizes: Reals) -> Entry | None:
    """Return the stored vector that equals the shift: the bias of the weight's reader, if it has one, else any summand.

    The optimizer drops a bias of zeros; then the file needs no such vector.
    """
    weight_readers = {(node.graph_path, node.position) for node in books.users(weight)}
    suspected = [suspect.entry for suspect in books.suspects]
    open_ones = (
        entry for entry in (*books.free_entries(), *suspected) if entry.tensor.key not in books.entries
    )
    free = [
        entry for entry in open_ones if entry is not weight
    ]  # the weight itself may have one number for each channel
    candidates = [entry for entry in free if books.contents.numel(entry) == shift.size]
    attached = [
        e
        for e in candidates
        if any((node.graph_path, node.position) in weight_readers for node in books.users(e))
    ]
    attached = attached or [e for e in candidates if _is_added_behind(books, e, weight_readers)]
    fits = (
        entry
        for entry in attached or [each for each in candidates if _is_summand(books, each)]
        if fit_vector(books.contents, entry, shift, sizes) is not None
    )
    return next(fits, None)


def _is_summand(books: Books, entry: Entry) -> bool:
    """Whether a node adds a vector, or computes a layer with it: no bias is multiplied or subtracted."""
    readers = books.ledger.wiring.readers(entry.tensor, past=MOVES | DECODES)
    return all(
        reader.node.op_type in _SHIFTS or kind_of(reader.node) in (Kind.CONVOLUTION, Kind.PRODUCT)
        for reader in readers
    )


def _is_added_behind(books: Books, bias: Entry, layer: Set[tuple[GraphPath, int]]) -> bool:
    """Whether a vector is added to a layer's result, after nodes that scale it: ConvInteger has no bias input."""
    wiring = books.ledger.wiring
    for node, _ in wiring.readers(bias.tensor, past=MOVES | DECODES):
        parts = [node] if node.op_type == "Add" else []
        for part in parts:  # grows as it goes
            for before in wiring.producers(part):
                if isinstance(before, Node):
                    if (before.graph_path, before.position) in layer:
                        return True
                    if before.op_type in _SCALED and len(parts) < _MOST_NODES:
                        parts.append(before)
    return False


_SCALED = CARRIES | {"Cast", "Mul"}
"""Operators between a product of integers and the sum with its bias."""


def is_eps_open(books: Books) -> bool:
    """Whether PyTorch's side does not know the eps of its BatchNorms: a state dict has none."""
    return books.manifest.source.get("parameters_by") == BY_NAMES


def _norm_scale(books: Books, norm: BatchNorm) -> Reals | None:
    """Return the factor of each channel, gamma / sqrt(var + eps): (out,)."""
    vector = books.contents.originals.vector
    variance, gamma = vector(norm.running_var), vector(norm.weight)
    if variance is None or (gamma is not None and gamma.shape != variance.shape):
        return None
    return (np.ones_like(variance) if gamma is None else gamma) / np.sqrt(variance + norm.eps)


_FEWEST_SAMPLES = 8
"""Least number of samples for a median of eps."""

_MOST_OFF = 0.1
"""Relative tolerance of the median: rounding of float32 beside a variance of up to some thousands."""

_LEAST_EPS, _MOST_EPS = 1e-12, 1e-2
"""Range of eps: torch's default is 1e-5, TensorFlow's 1e-3."""


def _solve(
    books: Books, norm: BatchNorm, stored: Reals, original: Reals, channels: npt.NDArray[np.int64]
) -> float | None:
    """Return the eps of a norm that turns a weight's samples into the stored ones; None if it is no usual eps.

    Args:
        norm: norm that may be folded into the weight; it has a scale for each channel.
        stored: stored numbers at the weight's sampled positions.
        original: the weight's samples.
        channels: output channel of each sample.
    """
    vector = books.contents.originals.vector
    variance, gamma = vector(norm.running_var), vector(norm.weight)
    if variance is None or (gamma is not None and gamma.shape != variance.shape):
        return None
    scale = np.ones_like(variance) if gamma is None else gamma
    with np.errstate(all="ignore"):
        estimates = np.square(scale[channels] * original / stored) - variance[channels]
        estimates = estimates[np.isfinite(estimates)]
    if estimates.size < min(_FEWEST_SAMPLES, original.size):
        return None
    middle = float(np.median(estimates))
    if not _LEAST_EPS <= middle <= _MOST_EPS * 1.5:
        return None
    eps = float(f"1e{round(math.log10(middle))}")
    return eps if abs(middle / eps - 1) <= _MOST_OFF and eps <= _MOST_EPS else None


def scale_and_shift(
    books: Books, norm: BatchNorm, weight: Parameter | None
) -> tuple[Reals, Reals, Reals] | None:
    """Return scale and shift (out,) of folding `norm` into the layer of `weight`, and the size of the shift's terms.

    Without a weight, the norm has no layer before it.
    """
    vector = books.contents.originals.vector
    scale, mean = _norm_scale(books, norm), vector(norm.running_mean)
    bias, beta = vector(None if weight is None else bias_name(weight)), vector(norm.bias)
    if (
        scale is None
        or mean is None
        or any(v is not None and v.shape != mean.shape for v in (scale, bias, beta))
    ):
        return None
    bias = np.zeros_like(mean) if bias is None else bias
    beta = np.zeros_like(mean) if beta is None else beta
    sizes = (np.abs(bias) + np.abs(mean)) * np.abs(scale) + np.abs(beta)
    return scale, (bias - mean) * scale + beta, sizes


def bias_name(weight: Parameter) -> str:
    """Return the name of the bias beside a weight."""
    return weight.name.removesuffix("weight") + "bias"


def _settle_fold(books: Books, fold: _Fold, weight: Parameter, entry: Entry) -> None:
    rule = "content:batchnorm" if fold.fit.evidence == "content" else "sampled:batchnorm"
    _settle_parts(books, fold.norm, weight, entry, fold.bias, rule, fold.fit)


def _settle_parts(
    books: Books,
    norm: BatchNorm,
    weight: Parameter,
    entry: Entry,
    bias: Entry | None,
    rule: str,
    fit: ScaledFit | None,
) -> None:
    """Settle a fold: the new weight holds the norm's weight too, the new bias the biases of norm and convolution.

    If a fold has settled the weight already, the new one is its copy.
    """
    decided_by = f"{rule} {norm.module}"
    if is_eps_open(books) and fit is not None:
        decided_by += _eps_of(norm)
    books.release(entry, *(() if bias is None else (bias,)))
    chain = with_line(() if fit is None else fit.chain, Line.FOLDED_BATCHNORM)
    pieces: tuple[Piece, ...] = ()
    if fit is not None:
        computed = Computed(f"batchnorm {norm.module}")
        pieces = (Piece(entry.tensor.key, fit.layout.shape, fit.layout.axes, computed=computed),)
    if pieces and weight.name in books.parameters:
        books.copy(weight, entry, decided_by, pieces[0])
        names: tuple[str | None, ...] = (norm.bias,)
    else:
        books.assign(weight, entry, chain, decided_by, None if fit is None else fit.error, pieces=pieces)
        names = norm.bias, bias_name(weight)
    merge_name(books, norm.weight, entry, decided_by)
    settle_shift(books, names, entry, bias, decided_by)


def settle_shift(
    books: Books, names: Iterable[str | None], entry: Entry, bias: Entry | None, decided_by: str
) -> None:
    """Settle the parameters of a shift: the first in the new bias, the others as merged into it, or into the weight."""
    for name in names:
        parameter = books.tensor(name) if name is not None else None
        if bias is not None and bias.tensor.key not in books.entries and isinstance(parameter, Parameter):
            books.assign(parameter, bias, (Line.FOLDED_BATCHNORM,), decided_by, None)
        else:
            merge_name(books, name, bias or entry, decided_by)
    if bias is not None and bias.tensor.key not in books.entries:
        books.settle(bias, Line.FOLDED_BATCHNORM, decided_by, is_counted=True)


def merge_name(books: Books, name: str | None, entry: Entry, decided_by: str) -> None:
    """Settle a parameter that another parameter's tensor holds."""
    parameter = books.tensor(name) if name is not None else None
    if isinstance(parameter, Parameter) and parameter.name not in books.parameters:
        books.merge(parameter, entry, Line.FOLDED_BATCHNORM, decided_by, None)


# frozen, computed in advance

_NUMBER = re.compile(r"\d+")

_SCALES, _SHIFTS = ("Mul", "QLinearMul"), ("Add", "QLinearAdd")

_MOST_NODES = 16

_EPSILONS = (1e-5, 0.0, 1e-6, 1e-3)
"""Values of eps to try for frozen BatchNorms, after the manifest's."""


class _Frozen(Frozen):
    norm: BatchNorm
    scale: Entry
    shift: Entry
    error: float
    layer: str | None
    """PyTorch name of the weight of the layer before the norm, if known."""
    position: int


def match_frozen_batchnorm(books: Books) -> None:
    """Explain pairs of vectors that multiply and shift a layer's result as one unused BatchNorm does.

    Values do not tell to which layer a norm belongs; names do. Norm and layer are in one module, or have the same
    numbers in their names, and several norms in one module are in the order of their layers.
    """
    norms = [
        n for n in books.manifest.batch_norms if n.weight and n.bias and n.running_mean and n.running_var
    ]
    pairs = list(_factors_and_summands(books)) if books.contents.mode != "none" and norms else []
    found: dict[str, list[_Frozen]] = defaultdict(list)
    used: set[Key] = set()
    for norm in norms if pairs else ():
        pair = next(
            (
                f
                for f in _find_frozen(books, norm, pairs)
                if not {f.scale.tensor.key, f.shift.tensor.key} & used
            ),
            None,
        )
        if pair is not None:
            used |= {pair.scale.tensor.key, pair.shift.tensor.key}
            found[module_of(norm.module)].append(pair)
    for alike in found.values():
        in_order = sorted(alike, key=lambda pair: natural_order(pair.norm.module))
        positions = [pair.position for pair in in_order]
        layers = [natural_order(pair.layer) for pair in in_order if pair.layer is not None]
        rises_with_layers = len(layers) == len(in_order) and layers == sorted(layers)
        if positions == sorted(positions) or rises_with_layers:
            for pair in in_order:
                if _is_near_layer(pair):
                    _settle_frozen(books, pair, pair.scale, pair.norm.weight or "")
                    _settle_frozen(books, pair, pair.shift, pair.norm.bias or "")


def _is_near_layer(pair: _Frozen) -> bool:
    """Whether the layer before is in the norm's own module, or has the same numbers in its name."""
    if pair.layer is None:
        return True
    layer = module_of(pair.layer)
    is_same = module_of(layer) == module_of(pair.norm.module)
    return is_same or _NUMBER.findall(layer) == _NUMBER.findall(pair.norm.module)


def _find_frozen(books: Books, norm: BatchNorm, pairs: Sequence[tuple[Entry, Entry]]) -> Iterator[_Frozen]:
    tensors = books.tensor(norm.weight or ""), books.tensor(norm.bias or "")
    if any(tensor is None or tensor.name in books.parameters for tensor in tensors):
        return
    for scale, shift in pairs:
        if _is_unsettled(books, scale) and _is_unsettled(books, shift):
            error = _fit_frozen(books, norm, scale, shift)
            if error is not None:
                layer, position = _layer_before(books, scale)
                yield _Frozen(norm, scale, shift, error, layer, position)


def _is_unsettled(books: Books, entry: Entry) -> bool:
    """Whether an entry is open, or settled only by a note that names a buffer as its origin."""
    settled = books.entries.get(entry.tensor.key)
    return settled is None or (settled.line is Line.BUFFER and settled.decided_by.endswith("+derived"))


def _layer_before(books: Books, scale: Entry) -> tuple[str | None, int]:
    """Return the name of the weight of the layer that a factor multiplies, and the position of the multiplication."""
    wiring = books.ledger.wiring
    node = next(iter(wiring.readers(scale.tensor, past=MOVES | DECODES))).node
    parts = [part for part in wiring.producers(node) if isinstance(part, Node)]
    for part in parts:  # grows past nodes that quantize and dequantize the result
        if part.op_type in CARRIES and len(parts) < _MOST_NODES:
            parts += [before for before in wiring.producers(part) if isinstance(before, Node)]
        if kind_of(part) in (Kind.CONVOLUTION, Kind.PRODUCT):
            for operand in _operands(books, part):
                line = books.entries.get(operand.key)
                if line is not None and line.parameter is not None and len(operand.shape) > 1:
                    return line.parameter, node.position
    return None, node.position


def _settle_frozen(books: Books, found: _Frozen, entry: Entry, name: str) -> None:
    tensor = books.tensor(name)
    books.release(entry)
    rule = f"{books.contents.evidence}:batchnorm {found.norm.module}"
    if isinstance(tensor, Parameter):
        books.assign(tensor, entry, (Line.FOLDED_BATCHNORM,), rule, found.error)
    elif tensor is not None:
        books.settle(entry, Line.BUFFER, rule, tensor.name)


def _factors_and_summands(books: Books) -> Iterator[tuple[Entry, Entry]]:
    """Yield vectors that multiply a value with the vector added right after, or by the same depthwise convolution."""
    suspected = [suspect.entry for suspect in books.suspects]
    roles = (Role.PARAMETER, Role.UNATTRIBUTED, Role.CONSTANT, Role.BUFFER)
    noted = [entry for entry in books.ledger.entries if _is_unsettled(books, entry)]
    free = {e.tensor.key: e for e in (*suspected, *noted) if e.role in roles}
    wiring = books.ledger.wiring
    for entry in free.values():
        readers = wiring.readers(entry.tensor, past=MOVES | DECODES)
        if len(readers) == 1 and _is_of_one_pixel(books, entry, readers[0]):
            bias = (
                find_origin(wiring, readers[0].node, _BIAS) if len(readers[0].node.inputs) > _BIAS else None
            )
            if bias is not None and bias.key in free and _is_vector(books, free[bias.key]):
                yield entry, free[bias.key]
            continue
        if len(readers) != 1 or readers[0].node.op_type not in _SCALES or not _is_vector(books, entry):
            continue
        next_readers = wiring.readers(readers[0].node, past=CARRIES)
        if len(next_readers) == 1 and next_readers[0].node.op_type in _SHIFTS:
            for other in _operands(books, next_readers[0].node):
                if other.key in free and _is_vector(books, free[other.key]):
                    yield entry, free[other.key]


_WEIGHT, _BIAS = 1, 2


def _is_of_one_pixel(books: Books, entry: Entry, reader: Reader) -> bool:
    """Whether a vector is the weight of a grouped convolution with one number a channel, as of blocked norms."""
    is_weight = kind_of(reader.node) is Kind.CONVOLUTION and reader.slot == _WEIGHT
    return is_weight and reader.node.integers.get("group", 1) > 1 and _is_vector(books, entry)


def _is_vector(books: Books, entry: Entry) -> bool:
    return books.contents.numel(entry) > 1 and sum(dim > 1 for dim in books.contents.shape(entry)) == 1


def _operands(books: Books, node: Node) -> Iterator[StoredTensor]:
    """Yield the stored tensors that a node reads, directly or after nodes that move or decode them."""
    for slot in range(len(node.inputs)):
        found = find_origin(books.ledger.wiring, node, slot)
        if found is not None:
            yield found


def _fit_frozen(books: Books, norm: BatchNorm, scale_entry: Entry, shift_entry: Entry) -> float | None:
    """Return the largest difference to a BatchNorm's scale and shift; None if the vectors do not match them."""
    vector = books.contents.originals.vector
    weight, bias = vector(norm.weight), vector(norm.bias)
    mean, variance = vector(norm.running_mean), vector(norm.running_var)
    if weight is None or bias is None or mean is None or variance is None:
        return None
    if (
        len({each.shape for each in (weight, bias, mean, variance)}) > 1
        or np.ptp(weight) == np.ptp(variance) == 0
    ):
        return None
    for eps in dict.fromkeys((norm.eps, *_EPSILONS)):
        with np.errstate(divide="ignore", invalid="ignore"):
            scale = weight / np.sqrt(variance + eps)
        if not bool(np.isfinite(scale).all()):
            continue
        first = fit_vector(books.contents, scale_entry, scale, np.abs(scale))
        if first is None:
            continue
        sizes = np.abs(bias) + np.abs(mean * scale)
        second = fit_vector(books.contents, shift_entry, bias - mean * scale, sizes)
        if second is not None:
            return max(first, second)
    return None
