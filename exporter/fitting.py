"""A checkpoint file and its config.json -> the PyTorch model, built from the class that the config names.

Tensors are memory-mapped if the file allows it, and no code of the file runs. The class is built on the meta device.
`from_pretrained` gives it the file's tensors: it knows tied names, missing prefixes and old names. So parameters,
buffers and ties are the module's, and values stay mapped.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from analyzer.checkpoints import Original, Trace
from analyzer.checkpoints.checkpoint import (
    CONFIG_FILE,
    CheckpointKind,
    checkpoint_files,
    lacks_class,
    open_checkpoint,
    read_index,
)
from analyzer.checkpoints.packed import describe_packed, find_packed, read_quantization
from analyzer.checkpoints.part import name_parts
from analyzer.checkpoints.statedict import (
    BY_MODULE,
    BY_PICKLED_MODULE,
    NamedTensor,
    add_reason,
    describe_by_names,
    listed,
    plain_names,
)
from analyzer.errors import SourceError, UsageError
from analyzer.manifest import OF_CLASS, Buffer, Manifest, Parameter
from exporter.census import (
    TensorWeights,
    group_ties,
    named_tensors,
    take_census,
    weights_of,
    with_program,
    with_reads,
)
from exporter.classes import find_class, first_line, load_config, require_transformers
from exporter.dtypes import dtype_of
from exporter.engines import reads_again
from exporter.inputs import Axes, ExampleInputs, forward_names, untried_inputs
from exporter.pickles import Pickled, load_pickle
from exporter.program import Program
from exporter.quiet import quiet
from exporter.reads import Reads

# tensors by name


@dataclass(frozen=True, slots=True)
class StateDict:
    """Tensors of a checkpoint."""

    tensors: Mapping[str, torch.Tensor]
    """Tensors by their names in the bare module."""
    stored: Mapping[str, torch.Tensor]
    """Tensors by their names in the file."""
    notes: tuple[str, ...] = ()
    module: nn.Module | None = None
    """Module without its code, if the file holds a whole one."""
    is_part: bool = False
    """Whether it is the state dict of the file that was asked for by its key."""


def load_state_dict(path: Path, kind: CheckpointKind, parts: Sequence[str] = ()) -> StateDict:
    """Read the tensors of a safetensors file or of a state dict that torch.save wrote, or of all shards of an index.

    `parts` may be the key of one of several state dicts in a file of torch.save.

    Raises:
        SourceError: it cannot be read, or holds no state dict.
        ManifestError: the index is broken.
    """
    load = functools.partial(load_pickle, parts=parts) if kind.is_pickle else _load_safetensors
    stored: dict[str, torch.Tensor] = {}
    notes: list[str] = []
    module, is_part = None, False
    for file in checkpoint_files(path):
        loaded = load(file)
        stored.update(loaded.tensors)
        notes += loaded.notes
        module, is_part = loaded.module, loaded.is_part
    if kind is CheckpointKind.PICKLE_INDEX:
        lacking = read_index(path).keys() - stored.keys()
        if lacking:
            raise SourceError(f"{path}: no shard holds {listed(lacking)}; download the shards again")
    tensors = {name: stored[key] for key, name in plain_names(stored).items()}
    if kind is not CheckpointKind.PICKLE:
        module = None  # a shard is no model
    return StateDict(_unpacked(tensors, path.parent, notes), stored, tuple(notes), module, is_part)


_MOST_DECODED = 8 << 30
"""Most bytes of weights that are decoded at once for a module."""


def _unpacked(tensors: dict[str, torch.Tensor], folder: Path, notes: list[str]) -> dict[str, torch.Tensor]:
    """Replace the codes of GPTQ or AWQ by the weights that they decode to, and add a note.

    Raises:
        SourceError: the weights would take too much memory; a description by names does without them.
    """
    described = {name: (dtype_of(tensor), tuple(tensor.shape)) for name, tensor in tensors.items()}
    packed = find_packed(described, read_quantization(folder))
    if not packed:
        return tensors
    nbytes = sum(4 * math.prod(each.shape) for each in packed.values())
    if nbytes > _MOST_DECODED:
        raise SourceError(f"its codes decode to {nbytes:,} bytes, too many to load into a class")
    notes += describe_packed(packed)
    array = TensorWeights(tensors).array
    weights = {name: each.decode(array) for name, each in packed.items()}
    known = {name: torch.from_numpy(weight) for name, weight in weights.items() if weight is not None}
    codes = {stored for name in known for stored in packed[name].stored.values()}
    return {name: tensor for name, tensor in tensors.items() if name not in codes} | known


def _load_safetensors(path: Path) -> Pickled:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="pt") as opened:
            return Pickled({name: opened.get_tensor(name) for name in opened.keys()})  # noqa: SIM118  it is no dict
    except (SafetensorError, OSError, RuntimeError, ValueError, TypeError) as error:
        raise SourceError(f"{path}: torch cannot read it: {first_line(error)}") from error


# traced program

Shapes = Mapping[str, tuple[int | None, ...]]

_MOST_INPUT_ELEMENTS = 1 << 26
"""Most elements of the example inputs, because their shapes come from the file, which may claim any."""


_Extent = Literal["values", "calls", "reads"]
"""Extent of a trace: only the values that need no input; the calls too; the parameters that forward reads too."""


def tracer_of(
    model: nn.Module, config: Any | None, example_inputs: tuple[Any, ...] | Mapping[str, Any] | None = None
) -> Trace:
    """Return a function that traces the module on demand, and computes only values that depend on no input.

    If the trace fails, the program has no values, and a note says why. The reads are taken from the program only if it
    gets all inputs of the file: another input might be the one that reads a parameter. The last trace is kept, for more
    files with the same inputs.
    """
    read = functools.lru_cache(maxsize=1)(functools.partial(_read_for, model, config, example_inputs))

    def trace(
        manifest: Manifest, shapes: Sequence[tuple[str, tuple[int | None, ...]]], salt: str
    ) -> Manifest:
        try:
            with quiet():
                reads, extent = read(tuple(shapes))
        except Exception as error:  # noqa: BLE001  an account works without it
            return with_program(manifest, Program(notes=(f"not traced: {first_line(error)}",)), salt)
        if extent == "reads":
            return with_reads(manifest, replace(reads, trace=OF_CLASS), salt)
        described = with_program(manifest, reads.program or Program(), salt)
        return described if extent == "values" else replace(described, calls=reads.calls)

    return trace


def _read_for(
    model: nn.Module,
    config: Any | None,
    example_inputs: tuple[Any, ...] | Mapping[str, Any] | None,
    shapes: tuple[tuple[str, tuple[int | None, ...]], ...],
) -> tuple[Reads, _Extent]:
    """Trace a module with inputs of a file's shapes; return its reads and how far they hold for the file."""
    names = {name for name, _ in shapes}
    inputs = untried_inputs(model, config, example_inputs, has_images=any("pixel" in name for name in names))
    if _is_in_order(shapes, inputs, forward_names(model)):
        shapes = tuple((name, shape) for name, (_, shape) in zip(inputs.axes, shapes, strict=True))
        names = {name for name, _ in shapes}
    renamed = _renamed(shapes, inputs, {*forward_names(model), *inputs.axes})
    if renamed is not None:
        return reads_again(model, _fit(*renamed)), "values"
    prefix = _prefix(names, inputs.axes.keys())
    taken = {name.removeprefix(prefix): shape for name, shape in shapes}
    inputs = _fit(inputs, taken)
    reads = _reads_as_taken(model, inputs, taken.keys())
    is_other = not reads.program or bool(taken.keys() - inputs.axes.keys())
    return reads, "calls" if is_other else "reads"


def _reads_as_taken(model: nn.Module, inputs: ExampleInputs, taken: Collection[str]) -> Reads:
    """Trace the program with only the file's inputs; forward's defaults replace the others.

    Reads are those of the program with all inputs, because another input may be the one that reads a parameter. That
    program alone is returned if forward does not run without an input.
    """
    left = {name for name in inputs.axes if name not in taken}
    if not left or inputs.args or not inputs.kwargs.keys() >= set(taken):
        return reads_again(model, inputs)
    kept = {name: value for name, value in inputs.kwargs.items() if name not in left}
    axes = {name: axes for name, axes in inputs.axes.items() if name not in left}
    try:
        reads = reads_again(model, replace(inputs, kwargs=kept, axes=axes))
    except Exception:  # noqa: BLE001  torch may raise anything
        return reads_again(model, inputs)
    if reads.parameters >= {name for name, _ in model.named_parameters()}:
        return reads
    every = reads_again(model, inputs)
    return replace(reads, parameters=every.parameters, buffers=every.buffers)


def _is_in_order(
    shapes: Sequence[tuple[str, tuple[int | None, ...]]], inputs: ExampleInputs, known: Collection[str]
) -> bool:
    """Whether a file's inputs have foreign names, but match forward's arguments in number, order and rank."""
    values = [*inputs.args, *inputs.kwargs.values()]
    if not len(shapes) == len(values) == len(inputs.axes) == len(known):
        return False
    if any(name.endswith(each) for name, _ in shapes for each in (*known, *inputs.axes)):
        return False
    return all(
        isinstance(value, torch.Tensor) and value.ndim == len(shape)
        for value, (_, shape) in zip(values, shapes, strict=True)
    )


def _renamed(
    shapes: Sequence[tuple[str, tuple[int | None, ...]]], inputs: ExampleInputs, known: Collection[str]
) -> tuple[ExampleInputs, Shapes] | None:
    """Return the example inputs that match a file whose inputs all have new names, given by a wrapper.

    Inputs are matched by rank, in order; masks are used only if nothing else fits. The match may swap inputs, but has
    the right sizes: values that depend on no input depend on nothing else.
    """
    if inputs.args or any(name.endswith(each) for name, _ in shapes for each in known):
        return None
    for names in ([name for name in inputs.kwargs if "mask" not in name], list(inputs.kwargs)):
        chosen: list[str] = []
        left = iter(names)
        for _, shape in shapes:
            fits = (name for name in left if _rank(inputs.kwargs[name]) == len(shape))
            chosen += [name for name in [next(fits, None)] if name is not None]
        if len(chosen) == len(shapes):
            kept = {name: inputs.kwargs[name] for name in chosen}
            axes = {name: axes for name, axes in inputs.axes.items() if name in kept}
            sizes = {name: shape for name, (_, shape) in zip(chosen, shapes, strict=True)}
            return replace(inputs, kwargs=kept, axes=axes), sizes
    return None


def _rank(value: Any) -> int | None:
    return value.ndim if isinstance(value, torch.Tensor) else None


def _prefix(names: Collection[str], known: Collection[str]) -> str:
    """Return the prefix that a tool such as `onnx.compose` added to the name of each input; "" without one."""
    ends = {name.removesuffix(each) for name in names for each in known if name.endswith(each)}
    fits = [end for end in ends if all(name.startswith(end) and name[len(end) :] in known for name in names)]
    return min(fits, key=len, default="")


def _fit(inputs: ExampleInputs, shapes: Shapes) -> ExampleInputs:
    """Resize the inputs to the file's shapes, by repeating or leaving out elements.

    An input that the file lacks gets the sizes of the axes that it has in common with the others.
    """
    names = list(inputs.axes) if inputs.args else list(inputs.kwargs)
    values = list(inputs.args or inputs.kwargs.values())
    sizes = _sizes(inputs.axes, shapes)
    shapes = {
        name: _shape_of(value, inputs.axes.get(name, {}), sizes)
        for name, value in zip(names, values, strict=False)
    } | dict(shapes)
    fitted = [_resize(value, shapes[name]) for name, value in zip(names, values, strict=False)]
    if sum(value.numel() for value in fitted if isinstance(value, torch.Tensor)) > _MOST_INPUT_ELEMENTS:
        raise ValueError("the file's inputs are larger than any example")
    axes: Axes = inputs.axes
    if inputs.args:
        return replace(inputs, args=tuple(fitted), axes=axes)
    return replace(inputs, kwargs=dict(zip(names, fitted, strict=True)), axes=axes)


def _sizes(axes: Axes, shapes: Shapes) -> dict[str, int]:
    """Return the sizes of named axes in the file's shapes; of two sizes the first."""
    sizes: dict[str, int] = {}
    for name, shape in shapes.items():
        for axis, label in axes.get(name, {}).items():
            size = shape[axis] if axis < len(shape) else None
            if size is not None:
                sizes.setdefault(label, size)
    return sizes


def _shape_of(value: Any, axes: Mapping[int, str], sizes: Mapping[str, int]) -> tuple[int | None, ...]:
    """Return the shape that an input needs for these sizes of its axes; None for an axis of any size."""
    return tuple(sizes.get(axes.get(axis, "")) for axis in range(_rank(value) or 0))


def _resize(value: Any, shape: tuple[int | None, ...]) -> Any:
    if not isinstance(value, torch.Tensor) or value.ndim != len(shape):
        return value
    wanted = [have if want is None else want for have, want in zip(value.shape, shape, strict=True)]
    if math.prod(wanted) > _MOST_INPUT_ELEMENTS:
        raise ValueError("the file's inputs are larger than any example")
    for axis, (have, want) in enumerate(zip(value.shape, wanted, strict=True)):
        if have and want != have:
            value = value.index_select(axis, torch.arange(want) % have)
    return value


# the class that the config names

_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
"""Floating-point types that a class takes unchanged; tensors of other types are quantized in special ways."""


def census_checkpoint(
    path: Path,
    kind: CheckpointKind,
    *,
    model_class: str | None = None,
    trust_remote_code: bool = False,
    parts: Sequence[str] = (),
) -> Original:
    """Describe a checkpoint file: by the class that the config beside it names, else by the names of its tensors.

    `parts` may be the key of one of several state dicts in a file of torch.save; modules are not taken here.

    Raises:
        ManifestError: a safetensors file or an index is broken.
        SourceError: a pickle is broken; or `model_class` cannot be built.
        UsageError: `model_class` is given without a config to build it from.
        MissingExtraError: transformers is needed and not installed.
    """
    state = None
    if kind.is_pickle:
        state = load_state_dict(path, kind, parts)
        source = {"source": str(path), "kind": kind.value, "weights": "checkpoint"}
        if state.module is None:
            by_names = describe_by_names(
                _distinct_tensors(state.tensors), source, _weights(state), state.notes
            )
        else:
            by_names = _by_module(state, state.module, source)
    else:
        by_names = open_checkpoint(path)  # before torch, whose checks are weaker
    if model_class is not None:
        if not (path.parent / CONFIG_FILE).is_file():
            raise UsageError(f"--class {model_class}: no {CONFIG_FILE} beside {path} to build it from")
        require_transformers()
    if state is not None and state.is_part:
        return name_parts(by_names, parts)
    reason = lacks_class(path)
    if reason is None:
        try:
            return _by_class(path, kind, state or load_state_dict(path, kind), model_class, trust_remote_code)
        except SourceError as error:
            if model_class is not None:
                raise
            reason = str(error).removeprefix(f"{path}: ")
    if state is not None and state.module is not None:
        return by_names
    return add_reason(by_names, path, reason)


def _by_module(state: StateDict, module: nn.Module, source: Mapping[str, str]) -> Original:
    """Describe a whole module that was read without its code: its own parameters, buffers, ties and flags."""
    described = {**source, "class": type(module).__name__, "parameters_by": BY_PICKLED_MODULE}
    return Original(take_census(module, described, evidence=False), weights_of(module), state.notes)


def _distinct_tensors(tensors: Mapping[str, torch.Tensor]) -> list[NamedTensor]:
    """Return each storage once, with all its names."""
    return [
        NamedTensor(
            name=tied.names[0],
            dtype=dtype_of(tied.tensor),
            shape=tuple(tied.tensor.shape),
            tied=tied.names[1:],
        )
        for tied in group_ties(tensors.items())
    ]


def _weights(state: StateDict, model: Mapping[str, torch.Tensor] | None = None) -> TensorWeights:
    return TensorWeights({**state.stored, **state.tensors, **(model or {})})


@dataclass(frozen=True, slots=True)
class Fitted:
    """Module that holds a checkpoint's tensors, and the differences between the two."""

    model: nn.Module
    missing: frozenset[str]
    """Names of the module that the checkpoint lacks."""
    unknown: frozenset[str]
    """Names of the checkpoint that the module neither has nor ignores on purpose."""
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
        raise SourceError(f"it has no tensor of {name}, which {CONFIG_FILE} beside it describes")
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


_PACKED = ("gptq", "awq")


def is_packed(config: Any) -> bool:
    """Whether a config says that weights are packed in a format that this package decodes."""
    quantized = getattr(config, "quantization_config", None)
    fields = quantized if isinstance(quantized, Mapping) else vars(quantized) if quantized is not None else {}
    return str(fields.get("quant_method", "")).rpartition(".")[2].lower() in _PACKED


MOST_PARAMETERS = 100_000
"""Most tensors of a model without weights, more than any model has: modules cost time and memory even on the meta
device."""

_REGISTERED = 4
"""Most times that a parameter is registered while the model is built and loaded."""

_MOST_TIMES, _SPARE = 64, 10**8
"""Most elements of a model, as a multiple of its checkpoint's, plus a spare: for shards, and heads that it lacks."""


@contextmanager
def bounded(where: object, elements: int | None = None) -> Iterator[None]:
    """Stop building if a config asks for more tensors than any model has, or far more elements than the checkpoint has.

    Args:
        where: the config's path or name, or its content.
        elements: most elements that the loaded checkpoint may have.

    Raises:
        SourceError: the config asks for too much.
    """
    built, most = [0, 0], None if elements is None else _MOST_TIMES * elements + _SPARE
    tensors = MOST_PARAMETERS * (1 if elements is None else _REGISTERED)
    place = "" if isinstance(where, Mapping) else f"{where}: "

    def count(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        built[0] += 1
        built[1] += 0 if parameter is None else parameter.numel()
        if built[0] > tensors:
            raise SourceError(
                f"{place}the config asks for more than {MOST_PARAMETERS:,} parameter tensors, more than any model has; "
                "check its numbers of layers and experts"
            )
        if most is not None and built[1] > most:
            raise SourceError(
                f"{place}the config asks for more than {most:,} parameters, and the checkpoint has at most "
                f"{elements:,}; is it the config of that checkpoint?"
            )

    handle = register_module_parameter_registration_hook(count)
    try:
        yield
    finally:
        handle.remove()


def load_into(
    found: Any,
    config: Any,
    path: Path,
    tensors: Mapping[str, torch.Tensor],
    dtype: torch.dtype,
    trust_remote_code: bool,
) -> Fitted:
    """Build the class with a checkpoint's tensors in it; tensors of the right type are not copied.

    Raises:
        SourceError: it cannot be built.
    """
    trust = {"trust_remote_code": True} if trust_remote_code else {}
    if is_packed(config):  # the codes are decoded; else transformers requires packages for them
        config = copy.deepcopy(config)
        del config.quantization_config
    elements = sum(tensor.numel() for tensor in tensors.values())
    try:
        with quiet(), torch.random.fork_rng(devices=[]), bounded(path, elements):
            if found.__name__.startswith("AutoModel"):  # an Auto class only takes a path
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
    except SourceError:
        raise
    except Exception as error:
        raise SourceError(f"{path}: {found.__name__} cannot be built: {first_line(error)}") from error
    return Fitted(
        model.eval(),
        frozenset(info["missing_keys"]),
        _as_stored(model, frozenset(info["unexpected_keys"]), tensors.keys()),
        frozenset(name for name, *_ in info["mismatched_keys"]),
    )


def _as_stored(model: Any, unknown: frozenset[str], names: Set[str]) -> frozenset[str]:
    """Return names as the checkpoint spells them; transformers returns its renamed ones."""
    renamed = unknown - names
    if not renamed:
        return unknown
    try:  # no public function tells
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
    """Return the type to build the class in, so that tensors of several types lose nothing.

    Raises:
        SourceError: some tensors have a type that the class does not take.
    """
    found = {tensor.dtype for tensor in state.tensors.values() if tensor.is_floating_point()}
    odd = sorted(str(dtype).removeprefix("torch.") for dtype in found.difference(_DTYPES))
    if odd:
        raise SourceError(f"{path}: its tensors are quantized, to {', '.join(odd)}")
    widest = max(found, key=_DTYPES.index, default=torch.float32)
    return torch.float32 if widest is torch.bfloat16 and torch.float16 in found else widest


def _keep_as_stored(fit: Fitted, tensors: Mapping[str, torch.Tensor]) -> set[str]:
    """Restore tensors that `from_pretrained` cast to one type, or that have another shape; return their names."""
    restored = set()
    prefix = f"{getattr(fit.model, 'base_model_prefix', '')}."
    for name, tensor in named_tensors(fit.model).items():
        spellings = (name, name.removeprefix(prefix), prefix + name)
        stored = next((tensors[spelling] for spelling in spellings if spelling in tensors), None)
        if stored is None or (tensor.dtype == stored.dtype and tensor.shape == stored.shape):
            continue
        if name in fit.misshapen or (
            tensor.shape == stored.shape and torch.equal(tensor.detach(), stored.to(tensor.dtype))
        ):
            tensor.data = stored
            restored.add(name)
    return restored


def _unknown(
    fit: Fitted, state: StateDict, weights: TensorWeights
) -> tuple[tuple[Parameter, ...], tuple[Buffer, ...]]:
    """Describe, by names, the tensors that the class does not know, because none of the checkpoint may get lost."""
    tensors = {name: state.tensors[name] for name in state.tensors if name in fit.unknown}
    described = describe_by_names(_distinct_tensors(tensors), {}, weights).manifest
    return described.parameters, described.buffers


def _notes(path: Path, name: str, fit: Fitted) -> tuple[str, ...]:
    found = (
        (fit.unknown, f"tensors that {name} does not have, kept as parameters or buffers by their names"),
        (fit.missing, f"lacks tensors that {name} has, described without values"),
        (fit.misshapen, f"tensors with other shapes than in {name}, kept as they are"),
    )
    return tuple(f"{path}: {what}: {listed(names)}" for names, what in found if names)
