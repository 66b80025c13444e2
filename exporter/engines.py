"""nn.Module and example inputs -> ONNX files in a folder, through one of three exporters, and the tensors read."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

import onnx
import torch
from torch import nn
from torch.distributions import Distribution

from analyzer.errors import UsageError
from exporter.classes import first_line
from exporter.inputs import ExampleInputs, forward_names
from exporter.program import Program
from exporter.quiet import quiet
from exporter.reads import Reads, reads_of_calls, reads_of_program

MODEL_FILE = "model.onnx"
DATA_FILE = "model.onnx.data"
NOTE_FILE = "export.json"
FUSIONS = ("cpu", "cuda")
"""Execution providers for which a graph can get fused operators."""


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Options for every exporter."""

    static: bool = False
    opset: int | None = None
    optimize: bool = True
    """Fold constants and remove dead nodes; otherwise every parameter keeps its name and its layout."""
    fuse: str | None = None
    """One of FUSIONS; the graph then runs on onnxruntime only."""
    generation: bool = False
    """Export the components of a generation loop, instead of one forward pass."""


Engine = Callable[[nn.Module, ExampleInputs, Path, EngineOptions], Reads]


def export_with_transformers(
    model: nn.Module, inputs: ExampleInputs, folder: Path, options: EngineOptions
) -> Reads:
    """Export with transformers' OnnxExporter, which patches the parts of its models that cannot be traced."""
    exporter, recorded = recording_exporter()
    base = onnx_config(options)
    explicit = dataclasses.replace(base, dynamic_shapes=_dynamic_shapes(inputs)) if base.dynamic else base
    with _forward_without_cache(model):
        try:
            exported = exporter.export(model, _exporter_inputs(inputs), config=explicit)
        except Exception:
            if options.static:
                raise
            # The exporter adds inputs to some models that `dynamic_shapes` does not name: let it choose all axes.
            exported = exporter.export(model, _exporter_inputs(inputs), config=base)
    exported.save_pretrained(folder)
    return recorded[-1]


def onnx_config(options: EngineOptions) -> Any:
    """Return the options for an OnnxExporter; every axis is dynamic unless all are static."""
    from transformers.exporters.configs import OnnxConfig

    make: Callable[..., Any] = OnnxConfig
    return make(
        dynamic=not options.static,
        opset_version=options.opset,
        optimize=options.optimize,
        ort_fusions=options.fuse,
    )


def _exporter_inputs(inputs: ExampleInputs) -> dict[str, Any]:
    """Return a fresh dict, because the exporter edits it and turns the flag into a config value."""
    return {**inputs.kwargs, "use_cache": False}


@contextlib.contextmanager
def _forward_without_cache(model: nn.Module) -> Iterator[None]:
    """Pass `use_cache=False` to forward, too: an encoder-decoder's decoder copies the config, without the flag."""
    if "use_cache" not in forward_names(model):
        yield
        return
    original = model.forward

    @functools.wraps(original)
    def forward(**kwargs: Any) -> Any:
        return original(**{**kwargs, "use_cache": False})

    with _patched_forward(model, forward):
        yield


@contextlib.contextmanager
def settled_modules() -> Iterator[None]:
    """Make `Module.to` return a module unchanged if it has the type and the device already.

    Some modules cast themselves in forward (the routers of Switch). A tracer lends them other tensors, and forbids
    that.
    """
    kind: Any = nn.Module  # the class: else each module's attribute would have to be removed
    original = kind.to

    @functools.wraps(original)
    def to(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        device: Any
        dtype: Any
        device, dtype, *_ = torch._C._nn._parse_to(*args, **kwargs)
        tensors = [*self.parameters(), *self.buffers()]
        stays = all(
            (dtype is None or not tensor.is_floating_point() or tensor.dtype == dtype)
            and (device is None or tensor.device == device)
            for tensor in tensors
        )
        return self if stays else original(self, *args, **kwargs)

    kind.to = to
    try:
        yield
    finally:
        kind.to = original


@contextlib.contextmanager
def _patched_forward(model: nn.Module, forward: Callable[..., Any]) -> Iterator[None]:
    model.forward = forward
    try:
        yield
    finally:
        del model.forward  # the class's own forward shows again


def recording_exporter() -> tuple[Any, list[Reads]]:
    """Return an OnnxExporter, and a list that gets each traced program's reads before its conversion to ONNX."""
    from transformers.exporters.exporter_dynamo import DynamoExporter
    from transformers.exporters.exporter_onnx import OnnxExporter

    recorded: list[Reads] = []

    class Recording(DynamoExporter):
        def export_program(self, model: Any, sample_inputs: Any, config: Any) -> Any:
            program, metadata = super().export_program(model, sample_inputs, config=config)
            recorded.append(reads_of_program(program))
            return program, metadata

    class Exporter(OnnxExporter, Recording):
        """OnnxExporter with Recording next in its method order, as its `super().export_program`."""

    make: Callable[[], Any] = Exporter
    return make(), recorded


def export_with_dynamo(
    model: nn.Module, inputs: ExampleInputs, folder: Path, options: EngineOptions
) -> Reads:
    """Export with `torch.export`, then convert the program with `torch.onnx.export`."""
    _use_translatable_experts(model)
    with _flat_forward(model, inputs) as flat, torch.no_grad():
        # Traced before the conversion: given a module, torch.onnx may name an axis that the trace has fixed.
        traced = torch.export.export(
            model,
            flat.args,
            dict(flat.kwargs),
            dynamic_shapes=None if options.static else _dynamic_shapes(flat),
        )
        reads = reads_of_program(traced)
        program: Any = torch.onnx.export(
            traced,
            input_names=flat.input_names,
            output_names=flat.output_names,
            opset_version=options.opset,
            optimize=options.optimize,
            dynamo=True,
            verbose=False,
        )
    program.save(str(folder / MODEL_FILE), external_data=True)
    return reads


def _use_translatable_experts(model: nn.Module) -> None:
    """Replace grouped_mm, the default of mixtures of experts, because it has no ONNX translation."""
    choose: Any = getattr(model, "set_experts_implementation", None)
    if choose is not None:
        choose("batched_mm")


def export_with_torchscript(
    model: nn.Module, inputs: ExampleInputs, folder: Path, options: EngineOptions
) -> Reads:
    """Export with `torch.onnx.export(dynamo=False)`, as older files were made."""
    _use_translatable_experts(model)
    with _flat_forward(model, inputs) as flat, _more_operators():
        reads = reads_of_calls(model, flat.args, dict(flat.kwargs))
        torch.onnx.export(
            model,
            flat.args,
            str(folder / MODEL_FILE),
            kwargs=dict(flat.kwargs) or None,
            input_names=flat.input_names,
            output_names=flat.output_names,
            opset_version=options.opset,
            dynamic_axes=None if options.static else {k: dict(v) for k, v in flat.axes.items()},
            dynamo=False,
        )
    reads = narrow_reads(reads, model, inputs)
    _gather_data(folder)
    return reads


@contextlib.contextmanager
def _more_operators() -> Iterator[None]:
    """Translate `torch.diff` in the TorchScript exporter: decoders separate packed texts with it."""
    translations: Any = torch.onnx
    opset = 13
    translations.register_custom_op_symbolic("aten::diff", _diff, opset)
    try:
        yield
    finally:
        translations.unregister_custom_op_symbolic("aten::diff", opset)


def _diff(g: Any, value: Any, n: Any, dim: Any, prepend: Any = None, append: Any = None) -> Any:
    """Subtract from each element the one before it, along an axis."""
    times, axis = (each.node().t("value").item() for each in (n, dim))
    parts = [part for part in (prepend, value, append) if part is not None and not part.node().mustBeNone()]
    value = g.op("Concat", *parts, axis_i=axis) if len(parts) > 1 else value

    def cut(start: int, stop: int) -> Any:
        bounds = (g.op("Constant", value_t=torch.tensor([bound])) for bound in (start, stop, axis))
        return g.op("Slice", value, *bounds)

    for _ in range(times):
        value = g.op("Sub", cut(1, torch.iinfo(torch.int64).max), cut(0, -1))
    return value


def narrow_reads(reads: Reads, model: nn.Module, inputs: ExampleInputs) -> Reads:
    """Remove tensors from the reads of function calls if the program at these shapes lets them reach no output.

    A model may call a module and drop its result: LLaVA drops its last norm of images. If the model cannot be traced,
    the reads stay as they are, and the program has a note with the reason.
    """
    try:
        traced = reads_again(model, inputs)
    except Exception as error:  # noqa: BLE001  an export does not need it
        return dataclasses.replace(reads, program=Program(notes=(f"not traced: {first_line(error)}",)))
    parameters = dict(model.named_parameters(remove_duplicate=False))
    buffers = dict(model.named_buffers(remove_duplicate=False))
    return dataclasses.replace(
        traced,
        parameters=_in_both(parameters, reads.parameters, traced.parameters),
        buffers=_in_both(buffers, reads.buffers, traced.buffers),
    )


@overload
def _in_both(
    tensors: Mapping[str, torch.Tensor], one: frozenset[str], other: frozenset[str]
) -> frozenset[str]: ...


@overload
def _in_both(
    tensors: Mapping[str, torch.Tensor], one: frozenset[str] | None, other: frozenset[str] | None
) -> frozenset[str] | None: ...


def _in_both(
    tensors: Mapping[str, torch.Tensor], one: frozenset[str] | None, other: frozenset[str] | None
) -> frozenset[str] | None:
    """Return all names of the tensors in both sets, by identity; None if one side is unknown."""
    if one is None or other is None:
        return None
    mine, theirs = ({id(tensors[name]) for name in names if name in tensors} for names in (one, other))
    return frozenset(name for name, tensor in tensors.items() if id(tensor) in mine & theirs)


def reads_again(model: nn.Module, inputs: ExampleInputs) -> Reads:
    """Trace the program at exactly these shapes, and return its reads and its constant part; tracing may fail."""
    with _flat_forward(model, inputs, is_run=False) as flat, torch.no_grad(), quiet(), settled_modules():
        program = torch.export.export(model, flat.args, dict(flat.kwargs), strict=False)
    return reads_of_program(program)


def _gather_data(folder: Path) -> None:
    """Gather the data in one file: above 2 GB, TorchScript's exporter writes one file for each tensor."""
    scattered = [path for path in folder.iterdir() if path.name != MODEL_FILE]
    if not scattered:
        return
    model = onnx.load(folder / MODEL_FILE)
    for path in scattered:
        path.unlink()
    onnx.save(model, folder / MODEL_FILE, save_as_external_data=True, location=DATA_FILE)


ENGINES: Mapping[str, Engine] = {
    "transformers": export_with_transformers,
    "dynamo": export_with_dynamo,
    "torchscript": export_with_torchscript,
}
"""Exporters that `--via` may name."""


def refuse_unsupported(engine: str, options: EngineOptions) -> None:
    """Check that an exporter supports the options.

    Raises:
        UsageError: the options contradict each other, or `engine` does not support them.
    """
    if options.fuse is not None and options.fuse not in FUSIONS:
        raise UsageError(f"fuse {options.fuse!r} is not one of {', '.join(FUSIONS)}")
    if options.fuse is not None and not options.optimize:
        raise UsageError("--fuse and --no-optimize contradict each other: fusions need an optimized graph")
    if options.fuse is not None and engine != "transformers":
        raise UsageError(
            f"--fuse: only the transformers exporter fuses, and this is an export through {engine}"
        )
    if options.generation and engine != "transformers":
        raise UsageError(
            f"--generation: only the transformers exporter takes a model apart, and this is an export through {engine}"
        )
    if options.generation and options.static:
        raise UsageError("--generation and --static contradict each other: the cache grows with every token")
    if not options.optimize and engine == "torchscript":
        raise UsageError(
            "--no-optimize: the torchscript exporter has no such option; use --via transformers or dynamo"
        )


def _dynamic_shapes(inputs: ExampleInputs) -> Any:
    """Return `Dim.AUTO` for each axis that may vary: torch.export finds out which are equal and which are fixed."""

    def spec(name: str, value: Any) -> dict[int, Any] | None:
        if not isinstance(value, torch.Tensor):
            return None
        return dict.fromkeys(inputs.axes.get(name, {}), torch.export.Dim.AUTO)

    if inputs.args:
        return tuple(spec(name, value) for name, value in zip(inputs.axes, inputs.args, strict=True))
    return {name: spec(name, value) for name, value in inputs.kwargs.items()}


@dataclass(frozen=True, slots=True)
class _FlatInputs(ExampleInputs):
    """Inputs of a forward that takes and returns plain tensors."""

    input_names: list[str] | None = None
    output_names: list[str] | None = None


@contextlib.contextmanager
def _flat_forward(model: nn.Module, inputs: ExampleInputs, *, is_run: bool = True) -> Iterator[_FlatInputs]:
    """Give a transformers model a forward of tensors only, while the block runs.

    Without `is_run`, forward does not run, and the outputs get no names.

    The instance is patched, not wrapped in another module, so that its parameters keep their names.
    """
    if not hasattr(model, "config") or inputs.args:
        are_tensors = all(isinstance(v, torch.Tensor) for v in (*inputs.args, *inputs.kwargs.values()))
        names = list(inputs.axes) if are_tensors else None
        yield _FlatInputs(inputs.args, inputs.kwargs, inputs.axes, input_names=names)
        return
    arguments = list(inputs.kwargs)
    original = model.forward
    fixed = {"use_cache": False} if "use_cache" in forward_names(model) else {}

    def leaves(*args: Any) -> dict[str, torch.Tensor]:
        from transformers.exporters.utils import get_leaf_tensors

        found = dict(get_leaf_tensors(original(**dict(zip(arguments, args, strict=True)), **fixed)))
        if "future_values" in arguments:
            found.pop("loss", None)  # the loss of decoded values of a time series: no server returns it
        return found

    def forward(*args: Any) -> tuple[torch.Tensor, ...]:
        return tuple(leaves(*args).values())

    positional = inspect.Parameter.POSITIONAL_OR_KEYWORD
    forward.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(name, positional) for name in arguments]
    )
    args = tuple(inputs.kwargs.values())
    with _uncached(model.config):
        with torch.no_grad():
            output_names = list(leaves(*args)) if is_run else None
        with _patched_forward(model, forward), _unvalidated():
            yield _FlatInputs(args, {}, inputs.axes, input_names=arguments, output_names=output_names)


@contextlib.contextmanager
def _uncached(config: Any) -> Iterator[None]:
    """Set `use_cache` to False in a config: forward need not take the flag (GraniteMoeSWA)."""
    if not getattr(config, "use_cache", False):
        yield
        return
    config.use_cache = False
    try:
        yield
    finally:
        config.use_cache = True


@contextlib.contextmanager
def _unvalidated() -> Iterator[None]:
    """Turn off the argument checks of distributions: a tracer cannot follow a check of values."""
    made: Any = Distribution
    checked = made._validate_args
    made.set_default_validate_args(False)
    try:
        yield
    finally:
        made.set_default_validate_args(checked)
