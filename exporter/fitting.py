"""A checkpoint file and the config.json beside it -> PyTorch's side, as the class that the config names sees it.

The class is built on the meta device and handed the file's own tensors by `from_pretrained`, which knows about tied
names, missing prefixes and names of old; so parameters, buffers and ties are the module's, and values stay mapped.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from analyzer.checkpoints.checkpoint import CONFIG_FILE, CheckpointKind, lacks_class, open_checkpoint
from analyzer.checkpoints.statedict import BY_MODULE, NamedTensor, because, describe_by_names, listed
from analyzer.checkpoints.weights import Original
from analyzer.dtypes import DType
from analyzer.errors import SourceError, UsageError
from analyzer.manifest import Buffer, Parameter
from exporter.census import group_ties, take_census
from exporter.classes import find_class, first_line, load_config, require_transformers
from exporter.quiet import quiet
from exporter.statedict import StateDict, load_state_dict
from exporter.tracing import tracer_of
from exporter.values import TORCH_DTYPES, TensorWeights, named_tensors

__all__ = ["Fit", "census_checkpoint", "load_into"]

_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
"""Types of floating-point tensors that a class takes as they are; others are quantized, in ways of their own."""


def census_checkpoint(
    path: Path, kind: CheckpointKind, *, model_class: str | None = None, trust_remote_code: bool = False
) -> Original:
    """Describe a checkpoint file: by the class that the config beside it names, else by the names of its tensors.

    Raises:
        ManifestError: a safetensors file or an index is broken.
        SourceError: a pickle is broken or would run code; or `model_class` cannot be built.
        UsageError: `model_class` without a config to build it from.
        MissingExtraError: transformers is needed and not installed.
    """
    state = None
    if kind.is_pickle:
        state = load_state_dict(path, kind)
        by_names = _by_names(path, kind, state)
    else:
        by_names = open_checkpoint(path)  # before torch is asked, which is less particular
    if model_class is not None:
        _check_can_build(path, model_class)
    reason = lacks_class(path)
    if reason is None:
        try:
            return _by_class(path, kind, state or load_state_dict(path, kind), model_class, trust_remote_code)
        except SourceError as error:
            if model_class is not None:
                raise
            reason = str(error).removeprefix(f"{path}: ")
    return because(by_names, path, reason)


def _check_can_build(path: Path, model_class: str) -> None:
    if not (path.parent / CONFIG_FILE).is_file():
        raise UsageError(f"--class {model_class}: no {CONFIG_FILE} beside {path} to build it from")
    require_transformers()


def _by_names(path: Path, kind: CheckpointKind, state: StateDict) -> Original:
    source = {"source": str(path), "kind": kind.value, "weights": "checkpoint"}
    return describe_by_names(_named(state.tensors), source, _weights(state), state.notes)


def _named(tensors: Mapping[str, torch.Tensor]) -> list[NamedTensor]:
    """Each storage once, with all its names."""
    return [
        NamedTensor(
            name=tied.names[0],
            dtype=TORCH_DTYPES.get(tied.tensor.dtype, DType.UNDEFINED),
            shape=tuple(tied.tensor.shape),
            tied=tied.names[1:],
        )
        for tied in group_ties(tensors.items())
    ]


def _weights(state: StateDict, model: Mapping[str, torch.Tensor] | None = None) -> TensorWeights:
    return TensorWeights({**state.stored, **state.tensors, **(model or {})})


@dataclass(frozen=True, slots=True)
class Fit:
    """A module that holds a checkpoint's tensors, and how well the two fit."""

    model: nn.Module
    missing: frozenset[str]
    """Names of the module that the checkpoint lacks."""
    unknown: frozenset[str]
    """Names of the checkpoint that the module lacks, and is not known to ignore."""
    misshapen: frozenset[str]
    """Names that both have, with different shapes."""


def _by_class(
    path: Path, kind: CheckpointKind, state: StateDict, model_class: str | None, trust_remote_code: bool
) -> Original:
    config = load_config(path.parent, trust_remote_code=trust_remote_code, local_only=True)
    found = find_class(model_class, config, trust_remote_code=trust_remote_code)
    fit = load_into(found, config, path, state.tensors, _widest(path, state), trust_remote_code)
    name = type(fit.model).__name__
    if fit.unknown >= state.tensors.keys() or fit.missing >= named_tensors(fit.model).keys():
        raise SourceError(f"none of its tensors is one of {name}, which {CONFIG_FILE} beside it describes")
    without = (fit.missing | fit.misshapen) - _keep_as_stored(fit, state.tensors)
    manifest = take_census(
        fit.model,
        {
            "source": str(path),
            "kind": kind.value,
            "class": name,
            "model_type": str(config.model_type),
            "weights": "checkpoint",
            "parameters_by": BY_MODULE,
        },
        evidence=False,
    )
    values = {name: tensor for name, tensor in named_tensors(fit.model).items() if name not in without}
    weights = _weights(state, values)
    learned, others = _unknown(fit, state, weights)
    return Original(
        dataclasses.replace(
            manifest, parameters=(*manifest.parameters, *learned), buffers=(*manifest.buffers, *others)
        ),
        weights,
        (*state.notes, *_notes(path, name, fit)),
        tracer_of(fit.model, config),
    )


def load_into(
    found: Any,
    config: Any,
    path: Path,
    tensors: Mapping[str, torch.Tensor],
    dtype: torch.dtype,
    trust_remote_code: bool,
) -> Fit:
    """The class with a checkpoint's tensors in it, those of the right type without a copy.

    Raises:
        SourceError: it cannot be built.
    """
    trust = {"trust_remote_code": True} if trust_remote_code else {}
    try:
        with quiet(), torch.random.fork_rng(devices=[]):
            if found.__name__.startswith("AutoModel"):  # an Auto class takes a path and nothing else
                with torch.device("meta"):
                    found = type(found.from_config(config, **trust))
            model, info = found.from_pretrained(
                None,
                config=config,
                state_dict=dict(tensors),
                dtype=dtype,
                output_loading_info=True,
                ignore_mismatched_sizes=True,
                **trust,
            )
    except Exception as error:
        raise SourceError(f"{path}: {found.__name__} cannot be built: {first_line(error)}") from error
    return Fit(
        model.eval(),
        frozenset(info["missing_keys"]),
        _as_stored(model, frozenset(info["unexpected_keys"]), tensors.keys()),
        frozenset(name for name, *_ in info["mismatched_keys"]),
    )


def _as_stored(model: Any, unknown: frozenset[str], names: Set[str]) -> frozenset[str]:
    """Names as the checkpoint spells them; transformers gives them as it has renamed them."""
    renamed = unknown - names
    if not renamed:
        return unknown
    try:  # nothing public says how
        from transformers.conversion_mapping import get_model_conversion_mapping
        from transformers.core_model_loading import WeightConverter, WeightRenaming, rename_source_key

        rules = get_model_conversion_mapping(model)
        renamings = [rule for rule in rules if isinstance(rule, WeightRenaming)]
        converters = [rule for rule in rules if isinstance(rule, WeightConverter)]
        stored = {name for name in names if rename_source_key(name, renamings, converters)[0] in renamed}
    except (ImportError, AttributeError, TypeError):
        return unknown
    return (unknown & names) | stored


def _widest(path: Path, state: StateDict) -> torch.dtype:
    """The type in which the class is built, so that nothing is lost where tensors are of several.

    Raises:
        SourceError: some tensors are of a type that the class would not take.
    """
    found = {tensor.dtype for tensor in state.tensors.values() if tensor.is_floating_point()}
    odd = sorted(str(dtype).removeprefix("torch.") for dtype in found.difference(_DTYPES))
    if odd:
        raise SourceError(f"{path}: its tensors are quantized, to {', '.join(odd)}")
    widest = max(found, key=_DTYPES.index, default=torch.float32)
    return torch.float32 if widest is torch.bfloat16 and torch.float16 in found else widest


def _keep_as_stored(fit: Fit, tensors: Mapping[str, torch.Tensor]) -> set[str]:
    """Put back what `from_pretrained` cast to the class's one type or found of another shape; their names."""
    restored = set()
    prefix = f"{getattr(fit.model, 'base_model_prefix', '')}."
    for name, tensor in named_tensors(fit.model).items():
        spellings = (name, name.removeprefix(prefix), prefix + name)
        stored = next((tensors[spelling] for spelling in spellings if spelling in tensors), None)
        if stored is None or (tensor.dtype == stored.dtype and tensor.shape == stored.shape):
            continue
        if name in fit.misshapen or _is_cast_of(tensor, stored):
            tensor.data = stored
            restored.add(name)
    return restored


def _is_cast_of(tensor: torch.Tensor, stored: torch.Tensor) -> bool:
    return tensor.shape == stored.shape and torch.equal(tensor.detach(), stored.to(tensor.dtype))


def _unknown(
    fit: Fit, state: StateDict, weights: TensorWeights
) -> tuple[tuple[Parameter, ...], tuple[Buffer, ...]]:
    """What the class does not know, by names: it is in the checkpoint, so it must not get lost."""
    tensors = {name: state.tensors[name] for name in state.tensors if name in fit.unknown}
    described = describe_by_names(_named(tensors), {}, weights).manifest
    return described.parameters, described.buffers


def _notes(path: Path, name: str, fit: Fit) -> tuple[str, ...]:
    found = (
        (fit.unknown, f"holds what {name} does not know, taken for parameters and buffers by their names"),
        (fit.missing, f"lacks what {name} has, described without values"),
        (fit.misshapen, f"has other shapes than {name}, taken as they are"),
    )
    return tuple(f"{path}: {what}: {listed(names)}" for names, what in found if names)
