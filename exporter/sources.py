"""SOURCE (hub id, checkpoint, config, preset or factory) -> nn.Module with real, random, fresh or meta weights."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from analyzer.checkpoints.checkpoint import CONFIG_FILE, checkpoint_kind, open_checkpoint
from analyzer.checkpoints.statedict import listed
from analyzer.errors import OnnxLedgerError, SourceError, UsageError
from exporter import factory
from exporter.classes import find_class, first_line, load_config, read_fields, require_transformers
from exporter.fitting import load_into
from exporter.location import Location, locate
from exporter.quiet import Say, quiet, silent
from exporter.statedict import load_state_dict
from exporter.weights import DTYPES, cast, randomize

__all__ = ["ResolvedModel", "SourceOptions", "read_source_config", "resolve_config", "resolve_source"]

Weights = Literal["pretrained", "factory", "random", "fresh", "meta"]


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """How SOURCE is to be turned into a model."""

    model_class: str | None = None
    random_weights: bool = False
    """Every tensor different, from `seed`; a preset name then never contacts the hub."""
    fresh_init: bool = False
    """As the constructor leaves them: equal zero biases and unit gains."""
    seed: int = 0
    dtype: str = "fp32"
    """`fp32`, `fp16` or `bf16`; a factory's own dtype is kept under `fp32`."""
    meta: bool = False
    """No weights at all: shapes on the meta device, whatever SOURCE holds."""
    meta_without_weights: bool = False
    """On the meta device where SOURCE holds only a config, instead of an error."""
    trust_remote_code: bool = False

    @property
    def needs_no_checkpoint(self) -> bool:
        return self.random_weights or self.fresh_init or self.meta


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """A model in eval mode, and where it came from."""

    model: nn.Module
    name: str
    """SOURCE, as typed."""
    kind: str
    """`checkpoint`, `config`, `hub`, `preset` or `factory`."""
    class_name: str
    config: Any | None
    """The transformers config, if it is a transformers model."""
    example_inputs: tuple[Any, ...] | dict[str, Any] | None
    weights: Weights
    dtype: str
    seed: int
    missing: tuple[str, ...] = ()
    """What its checkpoint lacks, so that it has the class's own initialisation."""


def resolve_source(source: str, options: SourceOptions, say: Say = silent) -> ResolvedModel:
    """The PyTorch model that SOURCE names.

    A path that exists wins over everything; then comes `package.module:factory`, then presets and hub ids.

    Raises:
        SourceError: SOURCE names nothing, holds no weights, or does not build.
        UsageError: the options contradict each other.
        MissingExtraError: transformers is needed and not installed.
    """
    _check_options(options)
    if not Path(source).expanduser().exists() and factory.is_factory(source):
        return _from_factory(source, options)
    require_transformers()
    return _from_transformers(
        source, locate(source, say, needs_weights=not options.needs_no_checkpoint), options, say
    )


def resolve_config(config: Mapping[str, Any], options: SourceOptions) -> ResolvedModel:
    """The model that the content of a `config.json` stands for.

    Raises:
        SourceError: it does not build.
        MissingExtraError: transformers is not installed.
    """
    require_transformers()
    location = Location("config", config, has_weights=False)
    return _from_transformers("the config", location, options, silent)


def read_source_config(source: str, say: Say = silent) -> dict[str, Any] | None:
    """The fields of the config that SOURCE has, without building what it describes; None where it has none.

    They are as its `config.json` says them: what that leaves to the config's class is absent. A factory's model is
    built on the meta device, and its config is whole.

    Raises:
        SourceError: SOURCE names nothing, or its config cannot be read.
        MissingExtraError: transformers is needed and not installed.
    """
    path = Path(source).expanduser()
    if not path.exists() and factory.is_factory(source):
        made = _from_factory(source, SourceOptions(meta=True))
        if made.config is None:
            return None
        fields: dict[str, Any] = json.loads(made.config.to_json_string(use_diff=False))
        return {**fields, "architectures": [made.class_name]}
    if checkpoint_kind(path) is not None and not (path.parent / CONFIG_FILE).is_file():
        return None
    location = locate(source, say)
    if isinstance(location.where, Mapping):
        return dict(location.where)
    return read_fields(location.where, local_only=location.local_only)


def _check_options(options: SourceOptions) -> None:
    if options.random_weights and options.fresh_init:
        raise UsageError("random weights and a fresh initialisation contradict each other: choose one")
    if options.dtype not in DTYPES:
        raise UsageError(f"dtype {options.dtype!r} is none of {', '.join(DTYPES)}")


def _from_factory(source: str, options: SourceOptions) -> ResolvedModel:
    if options.model_class:
        raise UsageError(f"{source}: --class chooses a transformers class, and a factory chooses its own")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(options.seed)
        made = factory.make(source, device="meta" if options.meta else "cpu")
    weights = _weights_kind(options, otherwise="factory")
    if weights == "random":
        randomize(made.model, options.seed, DTYPES[options.dtype])
    if options.dtype != "fp32":
        cast(made.model, DTYPES[options.dtype])
    return _resolved(source, "factory", made.model, made.example_inputs, weights, options)


def _resolved(
    source: str,
    kind: str,
    model: nn.Module,
    inputs: Any,
    weights: Weights,
    options: SourceOptions,
    missing: Sequence[str] = (),
) -> ResolvedModel:
    config = getattr(model, "config", None)
    return ResolvedModel(
        model=model.eval(),
        name=source,
        kind=kind,
        class_name=type(model).__name__,
        config=config if hasattr(config, "model_type") else None,
        example_inputs=inputs,
        weights=weights,
        dtype=options.dtype,
        seed=options.seed,
        missing=tuple(missing),
    )


def _weights_kind(options: SourceOptions, otherwise: Weights) -> Weights:
    if options.meta:
        return "meta"
    if options.random_weights:
        return "random"
    return "fresh" if options.fresh_init else otherwise


def _from_transformers(source: str, location: Location, options: SourceOptions, say: Say) -> ResolvedModel:
    config = load_config(
        location.where, trust_remote_code=options.trust_remote_code, local_only=location.local_only
    )
    found = find_class(options.model_class, config, trust_remote_code=options.trust_remote_code)
    weights = _weights_kind(options, otherwise="pretrained")
    if weights == "pretrained" and not location.has_weights:
        if not options.meta_without_weights:
            raise SourceError(
                f"{source}: a config without weights; pass --random-weights to make them up"
                + ("" if location.kind == "config" else ", or try again when the hub can be reached")
            )
        weights = "meta"
    try:
        with quiet(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(options.seed)
            model, missing = _build(found, config, location, weights, options)
    except OnnxLedgerError:
        raise
    except Exception as error:
        raise SourceError(f"{source}: {found.__name__} cannot be built: {first_line(error)}") from error
    if missing:
        say(f"{source}: not in the checkpoint, newly initialised: {', '.join(missing)}")
    return _resolved(source, location.kind, model, None, weights, options, missing)


def _build(
    found: Any, config: Any, location: Location, weights: Weights, options: SourceOptions
) -> tuple[nn.Module, list[str]]:
    """The model, and the names of parameters that its checkpoint lacks."""
    dtype = DTYPES[options.dtype]
    trust = {"trust_remote_code": True} if options.trust_remote_code else {}
    if weights == "pretrained" and location.file is not None:
        return _build_from_file(found, config, location.file, dtype, options)
    if weights == "pretrained":
        model, info = found.from_pretrained(
            location.where,
            config=config,
            dtype=dtype,
            local_files_only=location.local_only,
            output_loading_info=True,
            **trust,
        )
        return model, sorted(info["missing_keys"])
    construct = found.from_config if found.__name__.startswith("AutoModel") else found._from_config
    if weights == "meta":
        with torch.device("meta"):
            return construct(config, dtype=dtype, **trust), []
    # In float32 first: initialisation and noise round differently in half precision.
    model = construct(config, dtype=torch.float32, **trust)
    if weights == "random":
        randomize(model, options.seed, dtype)
    cast(model, dtype)
    return model, []


def _build_from_file(
    found: Any, config: Any, path: Path, dtype: torch.dtype, options: SourceOptions
) -> tuple[nn.Module, list[str]]:
    kind = checkpoint_kind(path)
    if kind is None:
        raise SourceError(f"{path}: is not there any more")
    if not kind.is_pickle:
        open_checkpoint(path)  # says better than torch what is wrong with it
    tensors = load_state_dict(path, kind).tensors
    fit = load_into(found, config, path, tensors, dtype, options.trust_remote_code)
    if fit.misshapen:
        raise SourceError(
            f"{path}: has other shapes than {found.__name__} by the {CONFIG_FILE} beside it: {listed(fit.misshapen)}"
        )
    return fit.model, sorted(fit.missing)
