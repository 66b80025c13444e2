"""Rules: a BatchNorm that an exporter or an optimizer computed in advance.

Folded into the convolution, or the linear layer, before it: W'[o] = W[o] * s[o] and b'[o] = (b[o] - mean[o]) * s[o] +
beta[o], with s = gamma / sqrt(var + eps) (Ioffe and Szegedy 2015, section 3.1; onnxscript
rewriter/rules/common/_fuse_batchnorm.py). The manifest has the BatchNorm's vectors whole, and of the weight W its
samples and each channel's projection and norm, which scale with it. A state dict has no eps. It is solved from the
stored weight: s = W' / W gives eps = (gamma / s)^2 - var of every sample, and their median, if it is a power of ten as
people write it (1e-3), is tried like any other. Codes are too coarse for that: of them all powers that people write are
tried, and the bias, which is stored finely, decides.

Frozen, a factor and a summand for each channel: x * scale + shift with scale = weight / sqrt(running_var + eps) and
shift = bias - running_mean * scale, as the forward of DETR's and torchvision's `FrozenBatchNorm2d` writes it. A state
dict does not say that the four are buffers.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence, Set

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
    """The BatchNorm that explains a weight, and the bias that it became; None where it became none."""

    norm: BatchNorm
    fit: ScaledFit
    bias: Entry | None


def match_folded_batchnorm(books: Books) -> None:
    """Explain weights whose every channel is the PyTorch weight's, scaled as one unused BatchNorm says.

    They are the suspects, whose name stayed; and where the exporter renamed them (`onnx::Conv_117`), the nameless
    weights, tried against the weight of the module that reads them first, then any of their shape. Where contents are
    not compared, the exporter's name for the new bias and the module that reads it decide.
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


def _open_pairs(books: Books) -> Iterator[tuple[Parameter, Entry]]:
    """Each weight that is not settled beside each entry that may hold it folded."""
    for suspect in [*books.suspects, *_nameless(books)]:
        weight, entry = suspect.tensor, suspect.entry
        if not isinstance(weight, Parameter) or weight.name in books.parameters or len(weight.shape) < 2:
            continue
        if entry.tensor.key not in books.entries:
            yield weight, entry


def _match_solved(books: Books, scales: _Scales, count: int) -> None:
    """Explain what is left by norms whose eps is solved from the weight itself.

    A model's norms have one eps, or two. One that a norm has alone, where `count` others or more have another, is no
    eps: somebody has scaled that weight.
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
        is_alone = numbers[fold.norm.eps] == 1 and count + len(found) > 1
        if not is_alone and (fold.bias is None or fold.bias.tensor.key not in books.entries):
            _settle_fold(books, fold, weight, entry)


def _match_by_name(books: Books, norms: list[BatchNorm]) -> None:
    """Without contents: `<weight>_bias` beside a weight, read in a BatchNorm's module, is what that became."""
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


def _nameless(books: Books) -> Iterator[Suspect]:
    """Each unsettled learned entry beside each free weight of its size, that of the module that reads it first."""
    weights = [p for p in books.free_parameters() if len(p.shape) >= 2]
    sizes = {weight.numel for weight in weights}
    for entry in list(books.free_entries()):
        numel = books.contents.numel(entry)
        is_known = any(books.tensor(name) is not None for name in entry.sources)
        if is_known or numel not in sizes or entry.role is not Role.PARAMETER:
            continue
        modules = books.reader_modules(entry)
        like = [w for w in weights if w.numel == numel and not books.is_elsewhere(entry, w)]
        like.sort(key=lambda weight: module_of(weight.name) not in modules)
        yield from (Suspect(entry, weight) for weight in like)


def _find_fold(
    books: Books,
    entry: Entry,
    weight: Parameter,
    scales: _Scales,
    candidates: Callable[[Books, Entry, Parameter, int, int], Iterator[BatchNorm]],
) -> _Fold | None:
    """The first BatchNorm, in module order, under which weight and bias agree in every channel."""
    axis, group = _channel_axis(books, entry, weight)
    for norm in candidates(books, entry, weight, axis, group):
        fold = _scale_and_shift(books, norm, weight)
        if fold is None or fold[0].size != weight.shape[axis] * group:
            continue
        scale, shift, sizes = fold
        fit = fit_scaled(books.contents, entry, weight, scale, axis, group)
        if fit is None:
            continue
        bias = _find_shifted_bias(books, entry, shift, sizes)
        if bias is not None or not np.any(shift):
            return _Fold(norm, fit, bias)
    return None


_Stacked = tuple[list[BatchNorm], Reals]
"""Norms, and the factors of each: (norms, channels)."""

_WRITTEN = (1e-3, 1e-4, 1e-6, 1e-5)
"""What people write for an eps."""


class _Scales:
    """The factors of all BatchNorms that are not used yet, stacked by how many channels they have."""

    def __init__(self, books: Books, norms: list[BatchNorm]) -> None:
        found: dict[int, list[tuple[BatchNorm, Reals]]] = defaultdict(list)
        for norm in norms:
            scale = _norm_scale(books, norm)
            if scale is not None:
                found[scale.size].append((norm, scale))
        self._norms = {size: [norm for norm, _ in pairs] for size, pairs in found.items()}
        self._scales = {size: np.stack([scale for _, scale in pairs]) for size, pairs in found.items()}
        self._used: set[str] = set()
        self.is_open = books.manifest.source.get("parameters_by") == BY_NAMES
        """Whether nobody knows the norms' eps."""
        self._others: dict[int, _Stacked] | None = None

    def _of_other_eps(self, books: Books, size: int) -> _Stacked:
        """The norms of one size with each eps that people write, but for the one that all are taken to have."""
        if self._others is None:
            self._others = {}
        if size not in self._others:
            norms = [
                replace(norm, eps=eps) for norm in self._norms[size] for eps in _WRITTEN if eps != norm.eps
            ]
            scales = [_norm_scale(books, norm) for norm in norms]
            self._others[size] = norms, np.stack([scale for scale in scales if scale is not None])
        return self._others[size]

    def use(self, norm: BatchNorm) -> None:
        self._used.add(norm.module)

    def solved(
        self, books: Books, entry: Entry, weight: Parameter, axis: int, group: int
    ) -> Iterator[BatchNorm]:
        """The norms with the eps that the stored weight gives, where no eps is known; each once.

        One number for all channels of a norm, a power of ten: any other eps would explain a weight of any factors.
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
        told: set[tuple[str, float]] = set()
        for layout in layouts(weight.shape, books.contents.shape(entry)):
            is_known = layout.is_plain or books.contents.mode == "full"
            look = books.contents.look(entry, layout) if is_known else None
            if look is None or (look[0].dtype.kind not in "fV" and look[1] is None):
                continue
            stored = look[0].astype(np.float64)
            for norm in self._norms[size]:
                eps = None if norm.module in self._used else _solve(books, norm, stored, original, channels)
                if eps is not None and eps != norm.eps and (norm.module, eps) not in told:
                    told.add((norm.module, eps))
                    yield replace(norm, eps=eps)

    def near(
        self, books: Books, entry: Entry, weight: Parameter, axis: int, group: int
    ) -> Iterator[BatchNorm]:
        """Those under which the weight's sampled elements are the entry's, all compared at once."""
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
            room = tolerance * np.abs(expected).max(axis=1, keepdims=True) + 1e-6
            room = room + (0.0 if look[1] is None else look[1] * 1.01)
            with np.errstate(invalid="ignore"):
                near = (np.abs(expected - look[0].astype(np.float64)) <= room).all(axis=1)
            found = (norms[number] for number in np.flatnonzero(near))
            yield from (norm for norm in found if norm.module not in self._used)


def _channel_axis(books: Books, entry: Entry, weight: Parameter) -> tuple[int, int]:
    """Where the output channels of a weight are: axis 0, but axis 1 and groups of it for a transposed convolution."""
    for node in books.users(entry):
        if node.op_type == "ConvTranspose" and len(weight.shape) >= 3:
            return 1, max(1, node.integers.get("group", 1))
    return 0, 1


def _find_shifted_bias(books: Books, weight: Entry, shift: Reals, sizes: Reals) -> Entry | None:
    """The stored vector that is the shift: the bias of the operator that reads the weight, if that has one, else any.

    The optimizer drops a bias of zeros, and nothing needs to be found.
    """
    mine = {(node.graph_path, node.position) for node in books.users(weight)}
    suspected = [suspect.entry for suspect in books.suspects]
    open_ones = (
        entry for entry in (*books.free_entries(), *suspected) if entry.tensor.key not in books.entries
    )
    free = [entry for entry in open_ones if entry is not weight]  # which may have one number for each channel
    like = [entry for entry in free if books.contents.numel(entry) == shift.size]
    beside = [e for e in like if any((node.graph_path, node.position) in mine for node in books.users(e))]
    beside = beside or [e for e in like if _is_added_behind(books, e, mine)]
    fits = (entry for entry in beside or like if fit_vector(books.contents, entry, shift, sizes) is not None)
    return next(fits, None)


def _is_added_behind(books: Books, bias: Entry, layer: Set[tuple[GraphPath, int]]) -> bool:
    """Whether a vector is added to what a layer gives, past what scales it: a convolution of integers has no bias."""
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
"""What stands between a product of integers and the sum with its bias."""


def _norm_scale(books: Books, norm: BatchNorm) -> Reals | None:
    """The factor of each channel, gamma / sqrt(var + eps): (out,)."""
    vector = books.contents.originals.vector
    variance, gamma = vector(norm.running_var), vector(norm.weight)
    if variance is None or (gamma is not None and gamma.shape != variance.shape):
        return None
    return (np.ones_like(variance) if gamma is None else gamma) / np.sqrt(variance + norm.eps)


_FEWEST_SAMPLES = 8
"""Samples from which the median of what each gives for eps is taken for it."""

_MOST_OFF = 0.1
"""By how much the median may be off, relative to eps: rounding of float32 beside a variance of up to some thousands."""

_LEAST_EPS, _MOST_EPS = 1e-12, 1e-2
"""Between which an eps is one: torch's default is 1e-5, TensorFlow's 1e-3."""


def _solve(
    books: Books, norm: BatchNorm, stored: Reals, original: Reals, channels: npt.NDArray[np.int64]
) -> float | None:
    """The eps of a norm under which the samples of a weight become the stored ones; None where that is no eps.

    Args:
        norm: which may be folded into the weight; it has a scale for each channel.
        stored: the stored numbers at the weight's sampled positions.
        original: the weight's own.
        channels: the output channel of each.
    """
    vector = books.contents.originals.vector
    variance, gamma = vector(norm.running_var), vector(norm.weight)
    if variance is None or (gamma is not None and gamma.shape != variance.shape):
        return None
    scale = np.ones_like(variance) if gamma is None else gamma
    with np.errstate(all="ignore"):
        each = np.square(scale[channels] * original / stored) - variance[channels]
        each = each[np.isfinite(each)]
    if each.size < min(_FEWEST_SAMPLES, original.size):
        return None
    middle = float(np.median(each))
    if not _LEAST_EPS <= middle <= _MOST_EPS * 1.5:
        return None
    eps = float(f"1e{round(math.log10(middle))}")
    return eps if abs(middle / eps - 1) <= _MOST_OFF and eps <= _MOST_EPS else None


def _scale_and_shift(books: Books, norm: BatchNorm, weight: Parameter) -> tuple[Reals, Reals, Reals] | None:
    """Scale and shift (out,) that folding `norm` gives the layer of `weight`, and the size of what makes the shift."""
    vector = books.contents.originals.vector
    scale, mean = _norm_scale(books, norm), vector(norm.running_mean)
    bias, beta = vector(_bias_name(weight)), vector(norm.bias)
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


def _bias_name(weight: Parameter) -> str:
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
    """The BatchNorm's weight is in the convolution's weight; its bias and the convolution's are in the new bias."""
    decided_by = f"{rule} {norm.module}"
    if books.manifest.source.get("parameters_by") == BY_NAMES and fit is not None:
        decided_by += f", eps {norm.eps:g}"
    books.release(entry, *(() if bias is None else (bias,)))
    chain = with_line(() if fit is None else fit.chain, Line.FOLDED_BATCHNORM)
    pieces: tuple[Piece, ...] = ()
    if fit is not None:
        computed = Computed(f"batchnorm {norm.module}")
        pieces = (Piece(entry.tensor.key, fit.layout.shape, fit.layout.axes, computed=computed),)
    books.hold(weight, entry, chain, decided_by, None if fit is None else fit.error, pieces=pieces)
    _merge_name(books, norm.weight, entry, decided_by)
    for name in (norm.bias, _bias_name(weight)):
        parameter = books.tensor(name) if name is not None else None
        if bias is not None and bias.tensor.key not in books.entries and isinstance(parameter, Parameter):
            books.hold(parameter, bias, (Line.FOLDED_BATCHNORM,), decided_by, None)
        else:
            _merge_name(books, name, bias or entry, decided_by)
    if bias is not None and bias.tensor.key not in books.entries:
        books.settle(bias, Line.FOLDED_BATCHNORM, decided_by, is_counted=True)


def _merge_name(books: Books, name: str | None, entry: Entry, decided_by: str) -> None:
    """Settle a parameter that went into another's tensor."""
    parameter = books.tensor(name) if name is not None else None
    if isinstance(parameter, Parameter) and parameter.name not in books.parameters:
        books.merge(parameter, entry, Line.FOLDED_BATCHNORM, decided_by, None)


# frozen, computed in advance

_NUMBER = re.compile(r"\d+")

_SCALES, _SHIFTS = ("Mul", "QLinearMul"), ("Add", "QLinearAdd")

_MOST_NODES = 16

_EPSILONS = (1e-5, 0.0, 1e-6, 1e-3)
"""What frozen BatchNorms add to the variance, after the one that PyTorch's side tells."""


class _Frozen(Frozen):
    norm: BatchNorm
    scale: Entry
    shift: Entry
    error: float
    layer: str | None
    """The PyTorch name of the weight that computes what is normalized, where one is known."""
    position: int


def match_frozen_batchnorm(books: Books) -> None:
    """Explain the pairs of vectors that multiply and shift what a layer gives as one unused BatchNorm does.

    Values do not say whose layer it is. That is its own by the names: both are in one module, or have the same numbers,
    and of several in one module the norms are in the order of the layers.
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
                if _is_beside(pair):
                    _settle_frozen(books, pair, pair.scale, pair.norm.weight or "")
                    _settle_frozen(books, pair, pair.shift, pair.norm.bias or "")


def _is_beside(pair: _Frozen) -> bool:
    """Whether the layer before is one of the norm's own module, or bears the same numbers."""
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
    """Whether nothing has settled an entry, or a note alone, that says of which buffer it was computed."""
    settled = books.entries.get(entry.tensor.key)
    return settled is None or (settled.line is Line.BUFFER and settled.decided_by.endswith("+derived"))


def _layer_before(books: Books, scale: Entry) -> tuple[str | None, int]:
    """Whose weight computes what a factor multiplies, and where that is done."""
    wiring = books.ledger.wiring
    node = next(iter(wiring.readers(scale.tensor, past=MOVES | DECODES))).node
    parts = [part for part in wiring.producers(node) if isinstance(part, Node)]
    for part in parts:  # grows past what writes its result as codes and reads them
        if part.op_type in CARRIES and len(parts) < _MOST_NODES:
            parts += [before for before in wiring.producers(part) if isinstance(before, Node)]
        if kind_of(part) in (Kind.CONVOLUTION, Kind.PRODUCT):
            for operand in _operands(books, part):
                held = books.entries.get(operand.key)
                if held is not None and held.parameter is not None and len(operand.shape) > 1:
                    return held.parameter, node.position
    return None, node.position


def _settle_frozen(books: Books, found: _Frozen, entry: Entry, name: str) -> None:
    tensor = books.tensor(name)
    books.release(entry)
    rule = f"{books.contents.evidence}:batchnorm {found.norm.module}"
    if isinstance(tensor, Parameter):
        books.hold(tensor, entry, (Line.FOLDED_BATCHNORM,), rule, found.error)
    elif tensor is not None:
        books.settle(entry, Line.BUFFER, rule, tensor.name)


def _factors_and_summands(books: Books) -> Iterator[tuple[Entry, Entry]]:
    """A vector that something is multiplied by, and the one that is added right behind, or by the same convolution."""
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
        onwards = wiring.readers(readers[0].node, past=CARRIES)
        if len(onwards) == 1 and onwards[0].node.op_type in _SHIFTS:
            for other in _operands(books, onwards[0].node):
                if other.key in free and _is_vector(books, free[other.key]):
                    yield entry, free[other.key]


_WEIGHT, _BIAS = 1, 2


def _is_of_one_pixel(books: Books, entry: Entry, reader: Reader) -> bool:
    """Whether a vector is the weight of a convolution that takes each channel by itself, as blocked norms are."""
    is_weight = kind_of(reader.node) is Kind.CONVOLUTION and reader.slot == _WEIGHT
    return is_weight and reader.node.integers.get("group", 1) > 1 and _is_vector(books, entry)


def _is_vector(books: Books, entry: Entry) -> bool:
    return books.contents.numel(entry) > 1 and sum(dim > 1 for dim in books.contents.shape(entry)) == 1


def _operands(books: Books, node: Node) -> Iterator[StoredTensor]:
    """What a node reads of the file, as it is or past what moves or decodes it."""
    for slot in range(len(node.inputs)):
        found = find_origin(books.ledger.wiring, node, slot)
        if found is not None:
            yield found


def _fit_frozen(books: Books, norm: BatchNorm, scale_entry: Entry, shift_entry: Entry) -> float | None:
    """Largest difference to the two vectors of a BatchNorm, if these are they."""
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
