"""Rule: a BatchNorm folded into the convolution before it.

W'[o] = W[o] * s[o] and b'[o] = (b[o] - mean[o]) * s[o] + beta[o], with s = gamma / sqrt(var + eps)
(Ioffe and Szegedy 2015, section 3.1; onnxscript rewriter/rules/common/_fuse_batchnorm.py). The manifest has the
BatchNorm's vectors whole, and of the weight W its samples and each channel's projection and norm, which scale with it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from analyzer.content import Array, channel_statistics, decode_values, sample, sample_positions
from analyzer.dtypes import DType
from analyzer.ledger import Entry
from analyzer.manifest import BatchNorm, Manifest, Parameter
from analyzer.model import Key, StoredTensor
from analyzer.reconcile.books import Books, Suspect
from analyzer.reconcile.lines import Line
from analyzer.scopes import module_of

__all__ = ["match_folded_batchnorm"]

Vector = npt.NDArray[np.float64]

_TOLERANCE = {DType.FLOAT: 2e-6, DType.DOUBLE: 1e-12, DType.FLOAT16: 2e-3, DType.BFLOAT16: 1.6e-2}
"""Four roundings of each dtype (unit roundoff 2^-24, 2^-53, 2^-11, 2^-8), with room for another order of operations."""


@dataclass(frozen=True, slots=True)
class _Fold:
    """The BatchNorm that explains a weight, and the largest error at the weight's sampled positions."""

    norm: BatchNorm
    error: float


def match_folded_batchnorm(books: Books) -> None:
    """Explain weights whose every channel is the PyTorch weight's, scaled as one unused BatchNorm says.

    They are the suspects, whose name stayed; and where the exporter renamed them (`onnx::Conv_117`), the nameless
    weights of convolutions, tried against the weight of the module that reads them first, then any of their shape.
    Where contents are not compared, the exporter's name for the new bias and the module that reads it decide.
    """
    unused = [norm for norm in books.manifest.batch_norms if norm.running_var and norm.running_mean]
    if books.contents.mode == "none":
        _match_by_name(books, unused)
        return
    evidence = _Evidence(books.manifest)
    for suspect in [*books.suspects, *_nameless(books)] if unused else ():
        weight, entry = suspect.tensor, suspect.entry
        if not isinstance(weight, Parameter) or weight.name in books.parameters:
            continue
        if entry.tensor.key in books.entries:
            continue
        bias = _bias_entry(books, entry)
        fold = _find(evidence, entry.tensor, weight, unused, bias)
        if fold is not None:
            unused.remove(fold.norm)
            _settle(books, fold.norm, weight, entry, bias, "content:batchnorm", fold.error)


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
            _settle(books, norm, weight, entry, bias, "provenance:folded-bias+reader-module", None)


def _nameless(books: Books) -> list[Suspect]:
    """Each unsettled entry that a convolution reads as its weight, beside each free parameter of its shape."""
    pairs = []
    weights = [
        parameter for parameter in books.free_parameters() if parameter.channel_projections is not None
    ]
    for entry in books.free_entries():
        is_weight = any(reader.node.op_type == "Conv" and reader.slot == 1 for reader in books.readers(entry))
        if not is_weight or entry.sources:
            continue
        modules = books.reader_modules(entry)
        like = [weight for weight in weights if weight.shape == entry.tensor.shape]
        like.sort(key=lambda weight: module_of(weight.name) not in modules)
        pairs += [Suspect(entry, weight) for weight in like]
    return pairs


def _bias_entry(books: Books, weight: Entry) -> Entry | None:
    """The stored bias of the convolution that reads `weight`."""
    for reader in books.readers(weight):
        inputs = reader.node.inputs
        if reader.node.op_type == "Conv" and reader.slot == 1 and len(inputs) > 2:
            return books.find((reader.node.graph_path, inputs[2]))
    return None


@dataclass
class _Evidence:
    """What is computed of each stored weight and of each BatchNorm, once."""

    manifest: Manifest
    _stored: dict[Key, tuple[Array, Vector, Vector] | None] = field(default_factory=dict)
    _folds: dict[tuple[str, str], tuple[Vector, Vector] | None] = field(default_factory=dict)

    def stored(self, tensor: StoredTensor) -> tuple[Array, Vector, Vector] | None:
        """A stored weight with each channel's projection and norm."""
        if tensor.key not in self._stored:
            array = tensor.payload.array()
            known = array is not None and array.size and tensor.dtype in _TOLERANCE
            self._stored[tensor.key] = (
                (array, *channel_statistics(array)) if known and array is not None else None
            )
        return self._stored[tensor.key]

    def fold(self, norm: BatchNorm, weight: Parameter) -> tuple[Vector, Vector] | None:
        """Scale and shift (out,) that folding `norm` gives the convolution of `weight`."""
        key = (norm.module, _bias_name(weight))
        if key not in self._folds:
            self._folds[key] = _scale_and_shift(
                self.manifest, norm, _vector(self.manifest, _bias_name(weight))
            )
        return self._folds[key]


def _find(
    evidence: _Evidence, stored: StoredTensor, weight: Parameter, norms: list[BatchNorm], bias: Entry | None
) -> _Fold | None:
    """The first BatchNorm, in module order, under which weight and bias agree in every channel."""
    if weight.channel_projections is None or weight.channel_norms is None or stored.shape != weight.shape:
        return None
    found = evidence.stored(stored)
    if found is None:
        return None
    array, stored_projections, stored_sizes = found
    tolerance = _TOLERANCE[stored.dtype]
    projections, sizes = _doubles(weight.channel_projections), _doubles(weight.channel_norms)
    slack = tolerance * stored_sizes + 1e-12  # (out,): the triangle inequality, for the norm
    for norm in norms:
        fold = evidence.fold(norm, weight)
        if fold is None or fold[0].shape != projections.shape or not _bias_fits(bias, fold[1], tolerance):
            continue
        scale = fold[0]
        fits = np.abs(stored_sizes - np.abs(scale) * sizes) <= slack
        fits &= np.abs(stored_projections - scale * projections) <= 4 * slack
        if fits.all():
            error = _sample_error(weight, array, scale)
            room = tolerance * max(1.0, float(np.abs(scale).max())) * float(np.abs(array).max())
            if error is not None and error <= room:
                return _Fold(norm, error)
    return None


def _doubles(text: str) -> Vector:
    return decode_values(text, np.dtype("<f8")).astype(np.float64)


def _scale_and_shift(
    manifest: Manifest, norm: BatchNorm, conv_bias: Vector | None
) -> tuple[Vector, Vector] | None:
    variance, mean = _vector(manifest, norm.running_var), _vector(manifest, norm.running_mean)
    if variance is None or mean is None or (conv_bias is not None and conv_bias.shape != mean.shape):
        return None
    gamma, beta = _vector(manifest, norm.weight), _vector(manifest, norm.bias)
    scale = (np.ones_like(variance) if gamma is None else gamma) / np.sqrt(variance + norm.eps)
    centred = -mean if conv_bias is None else conv_bias - mean
    return scale, centred * scale + (0.0 if beta is None else beta)


def _bias_name(weight: Parameter) -> str:
    return weight.name.removesuffix("weight") + "bias"


def _vector(manifest: Manifest, name: str | None) -> Vector | None:
    value = manifest.value(name) if name is not None else None
    return None if value is None else value.astype(np.float64)


def _bias_fits(bias: Entry | None, shift: Vector, tolerance: float) -> bool:
    """Whether the stored bias is the shift. The optimizer drops a bias of zeros."""
    # The shift is a difference of like sizes: its rounding is relative to the largest of them.
    room = tolerance * max(1.0, float(np.abs(shift).max()))
    array = np.zeros_like(shift) if bias is None else bias.tensor.payload.array()
    if array is None or array.shape != shift.shape:
        return False
    return bool((np.abs(array.astype(np.float64) - shift) <= room).all())


def _sample_error(weight: Parameter, stored: Array, scale: Vector) -> float | None:
    """Largest difference between the stored weight and the scaled PyTorch weight at the sampled positions."""
    element = weight.dtype.to_numpy()
    if weight.content is None or element is None:
        return None
    original = decode_values(weight.content.samples, element).astype(np.float64)
    channels = sample_positions(stored.size) // stored[0].size
    return float(np.abs(sample(stored).astype(np.float64) - original * scale[channels]).max())


def _settle(
    books: Books,
    norm: BatchNorm,
    weight: Parameter,
    entry: Entry,
    bias: Entry | None,
    rule: str,
    error: float | None,
) -> None:
    """The BatchNorm's weight is in the convolution's weight; its bias and the convolution's are in the new bias."""
    decided_by = f"{rule} {norm.module}"
    touched = {entry.tensor.key} | ({bias.tensor.key} if bias is not None else set())
    books.suspects = [suspect for suspect in books.suspects if suspect.entry.tensor.key not in touched]
    books.hold(weight, entry, Line.FOLDED_BATCHNORM, decided_by, error)
    _merge(books, norm.weight, entry, decided_by)
    for name in (norm.bias, _bias_name(weight)):
        parameter = books.tensor(name) if name is not None else None
        if bias is not None and bias.tensor.key not in books.entries and isinstance(parameter, Parameter):
            books.hold(parameter, bias, Line.FOLDED_BATCHNORM, decided_by, None)
        else:
            _merge(books, name, bias or entry, decided_by)
    if bias is not None and bias.tensor.key not in books.entries:
        books.settle(bias, Line.FOLDED_BATCHNORM, decided_by, is_counted=True)


def _merge(books: Books, name: str | None, entry: Entry, decided_by: str) -> None:
    """Settle a parameter that went into another's tensor."""
    parameter = books.tensor(name) if name is not None else None
    if isinstance(parameter, Parameter) and parameter.name not in books.parameters:
        books.merge(parameter, entry, Line.FOLDED_BATCHNORM, decided_by, None)
