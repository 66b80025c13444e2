"""SOURCE (hub id, checkpoint, config, preset or factory) -> nn.Module with real, random, fresh or meta weights.

A factory is `package.module:factory`; it may return the example inputs as well. Random weights are all different in the
requested dtype, so that no exporter merges two of them.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from analyzer.checkpoints.checkpoint import CONFIG_FILE, checkpoint_kind, open_checkpoint
from analyzer.checkpoints.statedict import listed
from analyzer.errors import OnnxLedgerError, SourceError, UsageError
from exporter.census import is_batch_norm
from exporter.classes import find_class, first_line, load_config, read_fields, require_transformers
from exporter.fitting import bounded, is_packed, load_into, load_state_dict
from exporter.location import Location, locate
from exporter.quiet import Progress, quiet, silent, stdout_to_stderr

# a factory

_FACTORY = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*\Z")


@dataclass(frozen=True, slots=True)
class Made:
    """Return value of a factory."""

    model: nn.Module
    example_inputs: tuple[Any, ...] | dict[str, Any] | None


def is_factory(source: str) -> bool:
    """Whether a source has the form `package.module:factory`.

    >>> is_factory("models.small:build"), is_factory("C:/models/bert")
    (True, False)
    """
    return _FACTORY.match(source) is not None


def make_from_factory(source: str, *, device: str = "cpu") -> Made:
    """Import the module, from the current directory too, and call the factory without arguments.

    The object may be a callable or an nn.Module. A callable returns the module, or `(module, example_inputs)`; a module
    may carry its inputs as the attribute `example_inputs`.

    Raises:
        SourceError: there is no such object, it fails, or it does not return an nn.Module.
    """
    with _current_directory_importable(), stdout_to_stderr():
        target = _find_factory(source)
        if not isinstance(target, nn.Module):
            target = _call_factory(source, target, device)
    model, inputs = target if isinstance(target, tuple) and len(target) == 2 else (target, None)
    if not isinstance(model, nn.Module):
        raise SourceError(
            f"{source}: returned {_type_name(target)}; return an nn.Module, or (nn.Module, example inputs)"
        )
    if inputs is None:
        inputs = getattr(model, "example_inputs", None)
    return Made(model, _checked_inputs(source, inputs))


@contextmanager
def _current_directory_importable() -> Iterator[None]:
    here = str(Path.cwd())
    sys.path.insert(0, here)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(here)


def _find_factory(source: str) -> Any:
    module_name, _, attribute = source.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except ModuleNotFoundError as error:
        _refuse_our_name(source, (error.name or "").partition(".")[0])
        where = "it is looked for in the current directory, then on sys.path"
        raise SourceError(f"{source}: no module named {error.name!r}; {where}") from error
    except AttributeError as error:
        _refuse_our_name(source, module_name.partition(".")[0])
        raise SourceError(
            f"{source}: {first_line(error)}; name a function that returns an nn.Module"
        ) from error
    except Exception as error:
        raise SourceError(f"{source}: importing {module_name} failed: {first_line(error)}") from error
    return found


def _refuse_our_name(source: str, package: str) -> None:
    """Report a user's package that cannot be imported because a package of onnxledger has its name.

    Raises:
        SourceError: that is so.
    """
    here = Path.cwd()
    theirs = next((path for path in (here / package, here / f"{package}.py") if path.exists()), None)
    ours = Path(__file__).parent.parent / package
    if package in ("analyzer", "exporter") and theirs is not None and theirs != ours:
        raise SourceError(
            f"{source}: {theirs} has the name of onnxledger's own package, {ours}, which Python has imported; "
            "rename yours, or import its module under another name"
        )


def _call_factory(source: str, target: Any, device: str) -> Any:
    if not callable(target):
        raise SourceError(f"{source}: is {_type_name(target)}; name a function that returns an nn.Module")
    try:
        with torch.device(device):
            return target()
    except Exception as error:
        raise SourceError(
            f"{source}: the factory failed: {first_line(error)}; it is called without arguments"
        ) from error


def _checked_inputs(source: str, inputs: Any) -> tuple[Any, ...] | dict[str, Any] | None:
    if isinstance(inputs, torch.Tensor):
        return (inputs,)
    if inputs is None or isinstance(inputs, dict):
        return inputs
    if isinstance(inputs, (tuple, list)):
        return tuple(inputs)
    raise SourceError(
        f"{source}: the example inputs are {_type_name(inputs)}; give a tuple or a dict of tensors"
    )


def _type_name(value: object) -> str:
    return f"of type {type(value).__name__}"


# other weights

DTYPES: Mapping[str, torch.dtype] = {
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
}
"""Names that `--dtype` accepts."""

_NOISE = 0.02
_FEW_ELEMENTS = 64

_CONSTANT = 1e-5
"""Relative spread below which a tensor counts as constant: the mean of many tenths is not exactly a tenth."""

_VANISHING = 1e-6
"""Level below which half precision may round to zero; some configs initialize with a spread of 1e-10 (BLIP, SAM)."""
# Half-precision rotary frequencies would be off by whole positions; `from_pretrained` keeps them in float32, too.
_KEPT_IN_FLOAT32 = ("inv_freq", "original_inv_freq")


def randomize(model: nn.Module, seed: int, dtype: torch.dtype) -> None:
    """Move every parameter and BatchNorm statistic a little, so that no two tensors stay equal by accident.

    An exporter merges equal constants, so a model fresh from its constructor loses its zero biases and unit gains. The
    noise is small beside each tensor's own scale, which keeps half-precision outputs finite. Ties stay ties. `dtype` is
    the type of the later cast: values must still differ after it. Tensors that a class computes at every load (sinusoid
    tables that `save_pretrained` leaves out) stay unchanged, because no checkpoint has others.
    """
    generator = torch.Generator().manual_seed(seed)
    seen: set[bytes] = set()
    with torch.no_grad():
        for tensor in _affine_tensors(model):
            _make_distinct(tensor, generator, dtype, seen)
        for module in model.modules():
            if is_batch_norm(module):
                _randomize_statistics(module, generator)


def _affine_tensors(model: nn.Module) -> Iterator[torch.Tensor]:
    """Yield all float parameters once, then the weights that frozen BatchNorms hold as buffers."""
    remade = set(getattr(model, "_keys_to_ignore_on_save", None) or ())
    for name, parameter in model.named_parameters():
        if parameter.is_floating_point() and (parameter.requires_grad or name not in remade):
            yield parameter
    for module in model.modules():
        if is_batch_norm(module) and not isinstance(module, _BatchNorm):
            yield from (b for name, b in module.named_buffers(recurse=False) if name in ("weight", "bias"))


def _make_distinct(
    tensor: torch.Tensor, generator: torch.Generator, dtype: torch.dtype, seen: set[bytes]
) -> None:
    """Add noise until the cast content is new; only tensors of a few elements ever need a second draw."""
    _add_noise(tensor, generator)
    if not 0 < tensor.numel() <= _FEW_ELEMENTS:
        return
    for _ in range(100):
        content = tensor.detach().to(dtype).contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        is_constant = tensor.numel() > 1 and bool((tensor.to(dtype) == tensor.to(dtype).reshape(-1)[0]).all())
        if content not in seen and not is_constant:
            break
        _add_noise(tensor, generator)
    seen.add(content)


def _add_noise(tensor: torch.Tensor, generator: torch.Generator) -> None:
    spread = float(tensor.float().std()) if tensor.numel() > 1 else 0.0
    level = float(tensor.float().abs().max()) if tensor.numel() else 0.0
    if spread > _CONSTANT * level and level >= _VANISHING and math.isfinite(spread):
        scale = 0.1 * spread
    else:
        # Layer scales start at 1e-6, and 2 % of that would vanish in half precision: hence the floor.
        scale = _NOISE * max(level, 0.05) if level >= _VANISHING else _NOISE
    tensor.add_(torch.randn(tensor.shape, generator=generator).to(tensor.dtype), alpha=scale)


def _randomize_statistics(module: nn.Module, generator: torch.Generator) -> None:
    """Move running means away from zero, and running variances away from one but still positive."""
    mean, variance = module.running_mean, module.running_var
    if isinstance(mean, torch.Tensor):
        mean.add_(torch.randn(mean.shape, generator=generator).to(mean.dtype), alpha=0.1)
    if isinstance(variance, torch.Tensor):
        variance.mul_(torch.randn(variance.shape, generator=generator).mul(0.1).exp().to(variance.dtype))


def cast(model: nn.Module, dtype: torch.dtype) -> None:
    """Cast every float parameter and buffer in place, except rotary frequencies."""
    kept = {
        (module, name): buffer
        for module in model.modules()
        for name, buffer in module.named_buffers(recurse=False)
        if name in _KEPT_IN_FLOAT32
    }
    model.to(dtype)
    for (module, name), buffer in kept.items():
        setattr(module, name, buffer)


# any source

Weights = Literal["pretrained", "factory", "random", "fresh", "meta"]


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Options that turn SOURCE into a model."""

    model_class: str | None = None
    random_weights: bool = False
    """Make every tensor different, from `seed`; a preset name then never contacts the hub."""
    fresh_init: bool = False
    """Keep the constructor's values: equal zero biases and unit gains."""
    seed: int = 0
    dtype: str = "fp32"
    """`fp32`, `fp16` or `bf16`; a factory's own dtype is kept under `fp32`."""
    meta: bool = False
    """Load no weights: shapes on the meta device, whatever SOURCE holds."""
    meta_without_weights: bool = False
    """Use the meta device if SOURCE is only a config, instead of an error."""
    trust_remote_code: bool = False

    @property
    def needs_no_checkpoint(self) -> bool:
        return self.random_weights or self.fresh_init or self.meta


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """A model in eval mode, and its origin."""

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
    """Parameters that the checkpoint lacks; they keep the initial values of the class."""


def resolve_source(source: str, options: SourceOptions, say: Progress = silent) -> ResolvedModel:
    """Build the PyTorch model that SOURCE names.

    An existing path takes precedence; then comes `package.module:factory`, then presets and hub ids.

    Raises:
        SourceError: SOURCE names nothing, holds no weights, or does not build.
        UsageError: the options contradict each other.
        MissingExtraError: transformers is needed and not installed.
    """
    _check_options(options)
    if not Path(source).expanduser().exists() and is_factory(source):
        return _from_factory(source, options)
    require_transformers()
    return _from_transformers(
        source, locate(source, say, needs_weights=not options.needs_no_checkpoint), options, say
    )


def resolve_config(config: Mapping[str, Any], options: SourceOptions) -> ResolvedModel:
    """Build the model that the content of a `config.json` describes.

    Raises:
        SourceError: it does not build.
        MissingExtraError: transformers is not installed.
    """
    require_transformers()
    location = Location("config", config, has_weights=False)
    return _from_transformers("the config", location, options, silent)


def read_source_config(source: str, say: Progress = silent) -> dict[str, Any] | None:
    """Return the fields of SOURCE's config without building the model; None if it has no config.

    The fields are those of its `config.json`; defaults of the config's class are absent. A factory's model is built on
    the meta device, and its config is complete.

    Raises:
        SourceError: SOURCE names nothing, or its config cannot be read.
        MissingExtraError: transformers is needed and not installed.
    """
    path = Path(source).expanduser()
    if not path.exists() and is_factory(source):
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
        raise UsageError("random weights and a fresh initialization contradict each other: choose one")
    if options.dtype not in DTYPES:
        raise UsageError(f"dtype {options.dtype!r} is not one of {', '.join(DTYPES)}")


def _from_factory(source: str, options: SourceOptions) -> ResolvedModel:
    if options.model_class:
        raise UsageError(f"{source}: --class chooses a transformers class, and a factory chooses its own")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(options.seed)
        made = make_from_factory(source, device="meta" if options.meta else "cpu")
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


def _from_transformers(
    source: str, location: Location, options: SourceOptions, say: Progress
) -> ResolvedModel:
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
    if weights == "pretrained" and location.file is None:
        location = dataclasses.replace(location, file=_packed_file(Path(str(location.where)), config))
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


def _packed_file(folder: Path, config: Any) -> Path | None:
    """Return the checkpoint of a folder whose config says that its weights are packed; None for any other."""
    if not is_packed(config):
        return None
    names = ("model.safetensors", "model.safetensors.index.json")
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _most_elements(where: object) -> int:
    """Return an upper bound on elements in a folder's files, one byte each; no real bound for a hub id."""
    folder = Path(str(where))
    if not folder.is_dir():
        return 1 << 60
    return sum(each.stat().st_size for each in folder.iterdir() if each.is_file())


def _build(
    found: Any, config: Any, location: Location, weights: Weights, options: SourceOptions
) -> tuple[nn.Module, list[str]]:
    """Return the model, and the names of parameters that its checkpoint lacks."""
    dtype = DTYPES[options.dtype]
    trust = {"trust_remote_code": True} if options.trust_remote_code else {}
    if weights == "pretrained" and location.file is not None:
        return _build_from_file(found, config, location.file, dtype, options)
    if weights == "pretrained":
        with bounded(location.where, _most_elements(location.where)):
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
        with torch.device("meta"), bounded(location.where):
            model = construct(config, dtype=dtype, **trust)
        _drop_values(model)
        return model, []
    # In float32 first: initialization and noise round differently in half precision.
    model = construct(config, dtype=torch.float32, **trust)
    if weights == "random":
        randomize(model, options.seed, dtype)
    cast(model, dtype)
    return model, []


def _drop_values(model: nn.Module) -> None:
    """Move to the meta device what is not there: `torch.Tensor(n)` and `torch.normal` ignore the default device."""
    parameters: dict[int, nn.Parameter] = {}  # a tied tensor stays tied
    buffers: dict[int, torch.Tensor] = {}
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None and parameter.device.type != "meta":
                made = nn.Parameter(parameter.to("meta"), requires_grad=parameter.requires_grad)
                module._parameters[name] = parameters.setdefault(id(parameter), made)
        for name, buffer in module._buffers.items():
            if buffer is not None and buffer.device.type != "meta":
                module._buffers[name] = buffers.setdefault(id(buffer), buffer.to("meta"))


def _build_from_file(
    found: Any, config: Any, path: Path, dtype: torch.dtype, options: SourceOptions
) -> tuple[nn.Module, list[str]]:
    kind = checkpoint_kind(path)
    if kind is None:
        raise SourceError(f"{path}: is not there any more")
    if not kind.is_pickle:
        open_checkpoint(path)  # its message is better than torch's
    tensors = load_state_dict(path, kind).tensors
    fit = load_into(found, config, path, tensors, dtype, options.trust_remote_code)
    if fit.misshapen:
        raise SourceError(
            f"{path}: has other shapes than {found.__name__} by the {CONFIG_FILE} beside it: {listed(fit.misshapen)}"
        )
    return fit.model, sorted(fit.missing)
