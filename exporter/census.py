"""nn.Module -> Manifest: every parameter and buffer once, with its ties and evidence of its content.

The values of tensors in memory are numpy views, with ONNX's names for their types.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd
from torch.nn.utils.parametrize import type_before_parametrizations

from analyzer.manifest import (
    PROGRAM,
    BatchNorm,
    Buffer,
    Content,
    Manifest,
    Parameter,
    Traced,
    WeightNorm,
    split_name,
)
from analyzer.manifest import Program as ProgramPart
from analyzer.model.content import (
    Array,
    cast_digest,
    channel_statistics,
    digest,
    digest_transposed,
    encode_values,
    is_constant_filled,
    row_digests,
    run_sums,
    sample,
)
from analyzer.model.dtypes import DType, is_exact
from exporter.dtypes import AS_INTEGERS, dtype_of
from exporter.program import Program
from exporter.reads import Reads

# tensors in memory


@dataclass(frozen=True, slots=True)
class TensorWeights:
    """Values of tensors by name, as views; tensors on the meta device have none."""

    tensors: Mapping[str, torch.Tensor]

    def array(self, name: str) -> Array | None:
        """See `analyzer.checkpoints.Weights.array`."""
        tensor = self.tensors.get(name)
        if tensor is None or tensor.device.type == "meta" or tensor.layout is not torch.strided:
            return None
        element = dtype_of(tensor).to_numpy()
        if element is None:
            return None
        plain = tensor.detach().cpu().resolve_conj().resolve_neg()
        integers = AS_INTEGERS.get(plain.dtype)
        array = plain.numpy() if integers is None else plain.view(integers).numpy().view(element)
        return array.astype(element, copy=False)


def named_tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    """Return parameters and buffers, by all of their names."""
    return {
        **dict(model.named_buffers(remove_duplicate=False)),
        **dict(model.named_parameters(remove_duplicate=False)),
    }


def weights_of(model: nn.Module, without: Collection[str] = ()) -> TensorWeights | None:
    """Return the values of a module without the names in `without`; None if all tensors are on the meta device."""
    tensors = {name: tensor for name, tensor in named_tensors(model).items() if name not in without}
    if all(tensor.device.type == "meta" for tensor in tensors.values()):
        return None
    return TensorWeights(tensors)


def is_batch_norm(module: nn.Module) -> bool:
    """Whether a module normalizes with running statistics: torch's BatchNorms, or frozen ones of detection models."""
    if isinstance(module, _BatchNorm):
        return True
    return "FrozenBatchNorm" in type(module).__name__ and hasattr(module, "running_var")


# the census

_T = TypeVar("_T")
_Described = TypeVar("_Described", Parameter, Buffer)

Progress = Callable[[int, int], None]
"""Callback for the number of tensors described so far, and the total."""


@dataclass(frozen=True, slots=True)
class Tied:
    """One tensor and all its names."""

    names: tuple[str, ...]
    tensor: torch.Tensor


def take_census(
    model: nn.Module,
    source: Mapping[str, str] | None = None,
    progress: Progress | None = None,
    *,
    evidence: bool = True,
) -> Manifest:
    """Describe `model` as it is in PyTorch now; `read` flags come later, from `with_reads`.

    Content is described one tensor at a time, so memory does not grow with the model. Tensors on the meta device have
    no content. Without `evidence` no tensor has any: the caller has the values themselves (`exporter.census`).
    """
    parameters = group_ties(model.named_parameters(remove_duplicate=False))
    buffers = group_ties(model.named_buffers(remove_duplicate=False))
    step = _counter(progress, len(parameters) + len(buffers))
    tables = _tables(model)
    described = tuple(step(_parameter(t, id(t.tensor) in tables, evidence)) for t in parameters)
    others = tuple(step(_buffer(tied, model, evidence)) for tied in buffers)
    salt = _salt((*described, *others))
    return Manifest(
        parameters=tuple(_with_samples(p, t, salt) for p, t in zip(described, parameters, strict=True)),
        buffers=tuple(_with_samples(b, t, salt) for b, t in zip(others, buffers, strict=True)),
        salt=salt,
        batch_norms=tuple(_batch_norms(model)),
        weight_norms=tuple(_weight_norms(model)),
        values=_whole_values(model) if evidence else {},
        source=dict(source or {}),
        modules=_modules(model, (*parameters, *buffers)),
    )


def with_reads(manifest: Manifest, reads: Reads, salt: str | None = None) -> Manifest:
    """Return the manifest with `read` flags, calls and values: a tensor is read if any of its names is.

    `salt` is that of `with_program`.
    """
    parameters = tuple(
        dataclasses.replace(p, read=not reads.parameters.isdisjoint(p.names)) for p in manifest.parameters
    )
    buffers = manifest.buffers
    if reads.buffers is not None:
        buffers = tuple(dataclasses.replace(b, read=not reads.buffers.isdisjoint(b.names)) for b in buffers)
    read = dataclasses.replace(
        manifest, parameters=parameters, buffers=buffers, trace=reads.trace, calls=reads.calls
    )
    return read if reads.program is None else with_program(read, reads.program, salt)


_MOST_VALUES = 2048
"""Most values of the program that a manifest describes."""

_MOST_DESCRIBED = 8 << 20
"""Most bytes of evidence of all their elements."""

_MOST_USES = 16
"""Most readers of one value that a manifest names."""


def with_program(manifest: Manifest, program: Program, salt: str | None = None) -> Manifest:
    """Return the manifest with the values of a traced program; those of parameters come first if there are too many.

    `salt` picks the sampled positions; None takes the manifest's own.
    """
    first = {name: parameter.name for parameter in manifest.parameters for name in parameter.names}
    picks = manifest.salt if salt is None else salt
    notes, room = list(program.notes), _MOST_DESCRIBED
    described: dict[str, Traced] = {}
    left = 0
    for value in sorted(program.values, key=lambda value: not value.parameters):
        tensor = value.tensor
        if tensor is not None and tensor.is_complex():
            tensor = torch.view_as_real(tensor.resolve_conj())
        is_full = len(described) >= _MOST_VALUES
        if is_full and not value.parameters:
            left += 1
            continue
        found = Traced(
            name=f"{PROGRAM}{value.name}",
            expression=value.expression,
            shape=() if tensor is None else tuple(tensor.shape),
            dtype=DType.UNDEFINED if tensor is None else dtype_of(tensor),
            parameters=tuple(sorted({first[name] for name in value.parameters if name in first})),
            origins=tuple(dict.fromkeys(first.get(name, f"{PROGRAM}{name}") for name in value.origins)),
            is_read=value.is_read,
            uses=value.uses[:_MOST_USES],
        )
        detailed = None if tensor is None or is_full or room <= 0 else _with_evidence(found, tensor, picks)
        if detailed is None and not value.parameters:
            left += tensor is not None
            continue
        left += detailed is None and tensor is not None
        described[value.name] = found if detailed is None else detailed
        room -= (
            0
            if detailed is None
            else sum(len(text or "") for text in (detailed.whole, detailed.sums)) + _OVERHEAD
        )
    if left:
        notes.append(
            f"{left:,} values beyond {_MOST_VALUES:,} values and {_MOST_DESCRIBED >> 20} MiB together"
        )
    order = [described[value.name] for value in program.values if value.name in described]
    through = [parameter.name for parameter in manifest.parameters if program.reads_through(parameter.names)]
    return dataclasses.replace(manifest, program=ProgramPart(tuple(order), tuple(through), tuple(notes)))


_OVERHEAD = 2048
"""Bytes of the digests and samples of one value."""


def _with_evidence(value: Traced, tensor: torch.Tensor, salt: str) -> Traced | None:
    """Return the value with the evidence of its elements; None if ONNX has no such type."""
    content = _content(tensor)
    if content is None or value.dtype.to_numpy() is None:
        return None
    array = _array(tensor.contiguous())
    is_small = tensor.numel() <= _WHOLE
    sums = None
    if not is_small:
        sums = encode_values(run_sums(tensor.double().cpu().numpy()))
    return dataclasses.replace(
        value,
        content=dataclasses.replace(content, samples=encode_values(sample(array, salt))),
        whole=encode_values(array) if is_small else None,
        sums=sums,
    )


def group_ties(tensors: Iterable[tuple[str, torch.Tensor]]) -> tuple[Tied, ...]:
    """Group tensors in order of their first name. Tied: one object, or views of one storage in the same layout."""
    groups: dict[tuple[object, ...], list[tuple[str, torch.Tensor]]] = {}
    for name, tensor in tensors:
        groups.setdefault(_identity(tensor), []).append((name, tensor))
    return tuple(Tied(tuple(name for name, _ in group), group[0][1]) for group in groups.values())


def _identity(tensor: torch.Tensor) -> tuple[object, ...]:
    try:
        storage = tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):  # tensor subclasses without their own storage
        return (id(tensor),)
    if tensor.numel() == 0:
        return (id(tensor),)
    # The storage object is compared, not its address: on the meta device all addresses are 0.
    layout = (tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype)
    return (storage._cdata, *layout)


def _modules(model: nn.Module, tensors: Iterable[Tied]) -> dict[str, str]:
    """Return the classes of modules that own tensors, by all their paths; parametrized ones with the original class."""
    owners = {split_name(name)[0] for tied in tensors for name in tied.names}
    return {
        path: type_before_parametrizations(module).__name__
        for path, module in model.named_modules(remove_duplicate=False)
        if path in owners
    }


def _counter(progress: Progress | None, total: int) -> Callable[[_T], _T]:
    done = 0

    def step(described: _T) -> _T:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, total)
        return described

    return step


_TABLE_ROWS = 4096
"""Most rows of a table for which each row is described: 8 bytes per row in the manifest."""


def _tables(model: nn.Module) -> set[int]:
    """Return identities of parameters that an export may cut or gather: embeddings, and any but a layer's `weight`."""
    return {
        id(parameter)
        for module in model.modules()
        for leaf, parameter in module.named_parameters(recurse=False)
        if isinstance(module, nn.Embedding) or leaf != "weight"
    }


def _row_digests(tensor: torch.Tensor) -> str | None:
    if tensor.ndim < 2 or not tensor.numel() or not _has_data(tensor) or dtype_of(tensor) is DType.UNDEFINED:
        return None
    rows = tensor.numel() // tensor.shape[-1]
    return encode_values(row_digests(_array(tensor))) if rows <= _TABLE_ROWS else None


def _parameter(tied: Tied, is_table: bool, evidence: bool) -> Parameter:
    tensor = tied.tensor
    projections = norms = None
    if evidence and tensor.ndim >= 2 and tensor.numel() and tensor.is_floating_point() and _has_data(tensor):
        values = channel_statistics(tensor.detach().float().cpu().numpy())
        projections, norms = (encode_values(v) for v in values)
    return Parameter(
        name=tied.names[0],
        shape=tuple(tensor.shape),
        dtype=dtype_of(tensor),
        trainable=tensor.requires_grad,
        tied=tied.names[1:],
        content=_content(tensor) if evidence else None,
        channel_projections=projections,
        channel_norms=norms,
        row_digests=_row_digests(tensor) if is_table and evidence else None,
    )


def _buffer(tied: Tied, model: nn.Module, evidence: bool) -> Buffer:
    return Buffer(
        name=tied.names[0],
        shape=tuple(tied.tensor.shape),
        dtype=dtype_of(tied.tensor),
        persistent=any(
            leaf not in model.get_submodule(owner)._non_persistent_buffers_set
            for owner, _, leaf in (name.rpartition(".") for name in tied.names)
        ),
        tied=tied.names[1:],
        content=_content(tied.tensor) if evidence else None,
    )


def _has_data(tensor: torch.Tensor) -> bool:
    return tensor.device.type != "meta"


def _array(tensor: torch.Tensor) -> Array:
    """Return the tensor's bytes as numpy, without a copy if it is in CPU memory."""
    plain = tensor.detach().cpu()
    if plain.dtype in AS_INTEGERS:
        plain = plain.contiguous().view(AS_INTEGERS[plain.dtype])
    return plain.numpy()


def _content(tensor: torch.Tensor) -> Content | None:
    if not _has_data(tensor) or dtype_of(tensor) is DType.UNDEFINED:
        return None
    array = _array(tensor)
    return Content(
        digest=digest(array),
        digest_transposed=digest_transposed(array) if array.ndim == 2 else None,
        constant_filled=is_constant_filled(array),
        samples="",
        casts={t.name: cast_digest(array, t) for t in _casts(dtype_of(tensor))},
    )


def _salt(described: Iterable[Parameter | Buffer]) -> str:
    """Return the seed of the samples, from all contents: a tensor alone does not tell which elements are left out."""
    digests = [tensor.content.digest for tensor in described if tensor.content is not None]
    return hashlib.sha256("".join(digests).encode()).hexdigest() if digests else ""


def _with_samples(described: _Described, tied: Tied, salt: str) -> _Described:
    if described.content is None:
        return described
    content = dataclasses.replace(described.content, samples=encode_values(sample(_array(tied.tensor), salt)))
    return dataclasses.replace(described, content=content)


def _casts(dtype: DType) -> list[DType]:
    """Return the types to which deployment tools cast weights, and which cannot hold all their numbers."""
    casts = (DType.FLOAT, DType.FLOAT16, DType.BFLOAT16)
    is_real = dtype in (DType.DOUBLE, *casts)
    return [cast for cast in casts if is_real and not is_exact(dtype, cast)]


def _batch_norms(model: nn.Module) -> Iterator[BatchNorm]:
    for name, module in model.named_modules():
        if is_batch_norm(module):
            yield BatchNorm(
                module=name,
                # Frozen BatchNorms have 1e-5 in their forward, and no attribute for it.
                eps=float(getattr(module, "eps", 1e-5)),
                weight=_tensor_name(name, module, "weight"),
                bias=_tensor_name(name, module, "bias"),
                running_mean=_tensor_name(name, module, "running_mean"),
                running_var=_tensor_name(name, module, "running_var"),
            )


def _tensor_name(module_name: str, module: nn.Module, attribute: str) -> str | None:
    if not isinstance(getattr(module, attribute, None), torch.Tensor):
        return None
    return f"{module_name}.{attribute}" if module_name else attribute


_WHOLE = 4096
"""Most elements of a tensor that the manifest holds completely: vectors, and tables of relative positions."""


def _whole_values(model: nn.Module) -> dict[str, str]:
    """Return small tensors, and the vectors that folding a BatchNorm combines: its four, and the biases before it."""
    values: dict[str, str] = {}
    tensors = itertools.chain(model.named_parameters(), model.named_buffers())
    for name, tensor in tensors:
        if 1 < tensor.numel() <= _WHOLE and _has_data(tensor) and dtype_of(tensor).to_numpy() is not None:
            values[name] = encode_values(_array(tensor))
    vectors: dict[str, torch.Tensor] = dict(model.named_parameters(remove_duplicate=False))
    vectors |= dict(model.named_buffers(remove_duplicate=False))
    for name, module in model.named_modules():
        attributes: tuple[str, ...] = ()
        if is_batch_norm(module):
            attributes = ("weight", "bias", "running_mean", "running_var")
        elif isinstance(module, (_ConvNd, nn.Linear)):
            attributes = ("bias",)
        for attribute in attributes:
            full_name = _tensor_name(name, module, attribute)
            # A pruned weight is computed from another tensor, and is not in the state dict.
            vector = vectors.get(full_name) if full_name else None
            if full_name and vector is not None and vector.ndim == 1 and _has_data(vector):
                values[full_name] = encode_values(_array(vector))
    return values


def _weight_norms(model: nn.Module) -> Iterator[WeightNorm]:
    """Yield weights that have a direction and a length, as parametrizations or in torch's old form."""
    for name, module in model.named_modules():
        prefix = f"{name}." if name else ""
        parametrizations = getattr(module, "parametrizations", None)
        for leaf, listed in parametrizations.items() if isinstance(parametrizations, nn.ModuleDict) else ():
            parts: Any = listed
            norm = next((part for part in parts if type(part).__name__ == "_WeightNorm"), None)
            if norm is not None:
                names = [f"{prefix}parametrizations.{leaf}.original{index}" for index in (0, 1)]
                pair = (parts.original0, parts.original1)
                yield _weight_norm(f"{prefix}{leaf}", names, pair, norm.dim)
        for leaf in [key.removesuffix("_g") for key in module._parameters if key.endswith("_g")]:
            length, direction = getattr(module, f"{leaf}_g"), getattr(module, f"{leaf}_v", None)
            if isinstance(direction, nn.Parameter) and length.ndim == direction.ndim:
                long = [axis for axis, size in enumerate(length.shape) if size != 1]
                names = [f"{prefix}{leaf}_g", f"{prefix}{leaf}_v"]
                yield _weight_norm(f"{prefix}{leaf}", names, (length, direction), long[0] if long else 0)


def _weight_norm(
    weight: str, names: list[str], tensors: tuple[torch.Tensor, torch.Tensor], dim: int | None
) -> WeightNorm:
    """Describe a weight norm. A negative `dim` counts from the end; None, or -1 with one length, means one for all."""
    length, direction = tensors
    is_single = dim is None or (dim == -1 and length.numel() == 1)
    axis = None if dim is None or is_single else dim % direction.ndim
    scale = None
    if _has_data(direction):
        others = [number for number in range(direction.ndim) if number != axis]
        lengths = direction.detach().double().square().sum(dim=others).sqrt()
        scale = encode_values((length.detach().double().reshape(lengths.shape) / lengths).reshape(-1).numpy())
    return WeightNorm(weight, names[0], names[1], axis, scale)
