"""nn.Module -> a folder with its ONNX files, their weights, config.json, export.json and manifest.json.

A model that generates becomes the components of its generation loop, ONNX files that keep the whole model's names.
Symbols that torch.export numbers (`s18`) get readable names.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import importlib.util
import json
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
from torch import nn

from analyzer.errors import ExportError, MissingExtraError, UsageError
from analyzer.manifest import MANIFEST_FILE, Manifest, save_manifest
from exporter.census import take_census, with_reads
from exporter.classes import first_line
from exporter.engines import (
    ENGINES,
    MODEL_FILE,
    NOTE_FILE,
    EngineOptions,
    onnx_config,
    recording_exporter,
    refuse_unsupported,
    settled_modules,
)
from exporter.inputs import Axes, ExampleInputs, example_inputs, forward_names, widen_batch
from exporter.original import provenance, versions
from exporter.quiet import Progress, quiet, quiet_descriptors, silent
from exporter.reads import Reads, find_unreached, merge_reads
from exporter.sources import DTYPES, ResolvedModel, SourceOptions, resolve_source

# names of axes

_SYMBOL = re.compile(r"s\d+")
_WORD = re.compile(r"[A-Za-z_]\w*")


def name_axes(path: Path, axes: Axes) -> None:
    """Rewrite a file so that the symbols of its axes have names, if it has symbols. External data is not read.

    Args:
        path: a model file as torch's exporter wrote it.
        axes: for each input, the names of its axes that may vary, by axis number.
    """
    model = onnx.load(path, load_external_data=False)
    if name_axes_of(model, axes):
        onnx.save(model, path)


def name_axes_of(model: onnx.ModelProto, axes: Axes) -> Mapping[str, str]:
    """Rename the symbols of a model's inputs everywhere in the model. Return the new names, by symbol."""
    dims = list(_dims(model.graph))
    taken = {word for dim in dims for word in _WORD.findall(dim.dim_param) if not _SYMBOL.fullmatch(word)}
    names: dict[str, str] = {}
    for value in model.graph.input:
        shape = value.type.tensor_type.shape.dim
        for axis, name in axes.get(value.name, {}).items():
            symbol = shape[axis].dim_param if axis < len(shape) else ""
            if not _SYMBOL.fullmatch(symbol) or symbol in names:
                continue
            called = _free(taken, name.removeprefix(f"{value.name}_"), f"{value.name}_{axis}")
            if called:
                names[symbol] = called
                taken.add(called)
    if names:
        for dim in dims:
            if dim.dim_param:
                dim.dim_param = _WORD.sub(lambda word: names.get(word[0], word[0]), dim.dim_param)
    return names


def _free(taken: Iterable[str], name: str, place: str) -> str:
    """Return a free name: that of the axis, else with its input's name before it; "" if both are taken."""
    word = re.sub(r"\W", "_", name)
    owner, _, _ = re.sub(r"\W", "_", place).rpartition("_")
    return next((each for each in (word, f"{owner}_{word}") if each and each not in taken), "")


def _dims(graph: onnx.GraphProto) -> Iterator[onnx.TensorShapeProto.Dimension]:
    """Yield the axes of all values with a type in a graph or in its subgraphs."""
    for value in (*graph.input, *graph.output, *graph.value_info):
        yield from value.type.tensor_type.shape.dim
    for node in graph.node:
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _dims(inner)


# components of a generation loop


@dataclass(frozen=True, slots=True)
class _Component:
    """One call of the generation loop: its module, and the arguments of that call."""

    name: str
    module: nn.Module
    inputs: dict[str, Any]


def can_generate(model: nn.Module) -> bool:
    """Whether transformers' `generate` works on the model."""
    can: Any = getattr(model, "can_generate", None)
    return can is not None and bool(can())


def export_components(
    model: nn.Module, inputs: ExampleInputs, folder: Path, options: EngineOptions, say: Progress
) -> Reads:
    """Write each component, and an `export.json` that names them. Return the tensors that at least one component reads.

    Components are exported and written one after the other: memory holds the model and one component.

    Raises:
        ExportError: the model does not generate from these inputs, or a component cannot be exported.
    """
    kind = type(model).__name__
    try:
        with quiet_descriptors():
            components = _take_apart(model, inputs)
    except Exception as error:
        raise ExportError(
            f"{kind}: generating from {', '.join(_arguments(inputs))} failed: {first_line(error)}; "
            "write a factory that returns (module, inputs) and give it as SOURCE"
        ) from error
    entries: dict[str, Any] = {}
    reads = []
    for component in components:
        say(f"exporting {component.name} of {kind}")
        try:
            with quiet_descriptors():
                found = _export(model, component, folder, options)
            reads.append(_of_file(found, folder / f"{component.name}.onnx"))
        except Exception as error:
            raise ExportError(
                f"{kind}: the export of its component {component.name} failed: {first_line(error)}; "
                + ("leave out --fuse, or export" if options.fuse else "export")
                + " the forward pass alone, without --generation"
            ) from error
        entries.update(json.loads((folder / NOTE_FILE).read_text(encoding="utf-8"))["components"])
    document = {"schema_version": 1, "export_format": "onnx", "components": entries}
    (folder / NOTE_FILE).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return merge_reads(reads)


def _arguments(inputs: ExampleInputs) -> dict[str, Any]:
    return dict(inputs.kwargs) or dict(zip(inputs.axes, inputs.args, strict=False))


def _take_apart(model: Any, inputs: ExampleInputs) -> tuple[_Component, ...]:
    """Generate two tokens, and return each module that transformers makes a component of, with its arguments.

    This is transformers' `decompose_for_generation`, plus the encoder. Transformers leaves the encoder to PyTorch
    because `generate` calls it before the forward pass that transformers observes; but nothing can be generated without
    it. The decoder gets a prompt of several tokens: after a single token, the length of its cache would be traced as 1.
    """
    from transformers.exporters.utils import decompose_multimodal, decompose_prefill_decode, is_multimodal

    arguments = _arguments(inputs)
    with _encoder_calls(model) as calls:
        parts = decompose_prefill_decode(model, arguments, generation_config=_greedy(model))
    if is_multimodal(model):
        parts = {**decompose_multimodal(model, arguments), "decode": parts["decode"]}
    encoder = [_Component("encoder", module, called_with) for module, called_with in calls[:1]]
    return (*encoder, *(_Component(name, *part) for name, part in parts.items()))


def _greedy(model: Any) -> Any:
    """Return the model's generation config, changed to one deterministic sequence per prompt and a cache that grows."""
    chosen = copy.deepcopy(model.generation_config)
    chosen.update(
        do_sample=False, num_beams=1, num_return_sequences=1, use_cache=True, cache_implementation=None
    )
    return chosen


@contextlib.contextmanager
def _encoder_calls(model: Any) -> Iterator[list[tuple[nn.Module, dict[str, Any]]]]:
    """Collect the calls of an encoder-decoder's encoder while the block runs; none for other models."""
    calls: list[tuple[nn.Module, dict[str, Any]]] = []
    encoder = model.get_encoder() if getattr(model.config, "is_encoder_decoder", False) else None
    if encoder is None or encoder is model:
        yield calls
        return

    def note(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        positional = dict(zip(forward_names(module), args, strict=False))
        calls.append((module, copy.deepcopy({**positional, **kwargs})))

    handle = encoder.register_forward_pre_hook(note, with_kwargs=True)
    try:
        yield calls
    finally:
        handle.remove()


def _of_file(reads: Reads, path: Path) -> Reads:
    """Add the file's name, and the names of its outputs, to the recorded calls."""
    outputs = onnx.load(path, load_external_data=False).graph.output
    results = tuple(value.name for value in outputs)
    return dataclasses.replace(
        reads,
        calls=tuple(dataclasses.replace(calls, file=path.name, results=results) for calls in reads.calls),
    )


def _export(model: nn.Module, component: _Component, folder: Path, options: EngineOptions) -> Reads:
    from transformers.exporters.base import ExportedModel

    exporter, recorded = recording_exporter()
    exported = exporter.export(
        _as_whole(model, component.module), component.inputs, config=onnx_config(options)
    )
    exported_component = exported.components["model"]
    exported_component.metadata.architecture = type(component.module).__name__
    ExportedModel({component.name: exported_component}, exported.export_format).save_pretrained(folder)
    return recorded[-1]


def _as_whole(model: nn.Module, module: nn.Module) -> nn.Module:
    """Return a copy of the whole model that computes only what `module` of it does.

    An exported module alone would lack the path that leads to it in the names of its tensors and scopes. The names
    would not match the manifest.
    """
    if module._modules is model._modules:  # transformers' own copy of the whole model
        return module

    def forward(**kwargs: Any) -> Any:
        return module(**kwargs)

    whole = copy.copy(model)
    whole.forward = forward
    return whole


# the folder

STEP_FILE = "decode.onnx"
_NEEDED = ("onnx", "onnxscript")


@dataclass(frozen=True, slots=True)
class ExportedFiles:
    """Files that an export wrote."""

    artifact: Path
    """Path to audit: the model's file, or the folder of a model in components."""
    models: tuple[Path, ...]
    """The model's file, or its components' files, in the order of export.json."""
    manifest_path: Path
    manifest: Manifest
    files: tuple[Path, ...]
    """All files that were written, sorted."""

    @property
    def model(self) -> Path:
        """The model's only file.

        Raises:
            ValueError: the model was exported in components.
        """
        (model,) = self.models
        return model


def export_source(
    source: str,
    directory: Path | str,
    *,
    model_class: str | None = None,
    random_weights: bool = False,
    fresh_init: bool = False,
    seed: int = 0,
    dtype: str = "fp32",
    static: bool = False,
    opset: int | None = None,
    via: str | None = None,
    optimize: bool = True,
    fuse: str | None = None,
    generation: bool = False,
    trust_remote_code: bool = False,
    say: Progress = silent,
) -> ExportedFiles:
    """Make `directory/model.onnx` and `directory/manifest.json` from SOURCE.

    Without `optimize` the graph stays as it was traced. `fuse` names a provider, and puts onnxruntime's own fused
    operators for it in the graph. `generation` writes the components of a generation loop, one file each, instead of
    one forward pass.

    Files of the same names, and the models of an earlier export, are replaced. A failure leaves the directory
    unchanged.

    Raises:
        SourceError: SOURCE names nothing that can be built.
        ExportError: the exporter failed; the cause is chained.
        UsageError: the options contradict each other.
        MissingExtraError: the export extra is not installed.
    """
    made = EngineOptions(static, opset, optimize, fuse, generation)
    directory = Path(directory)
    _check(directory, via, made)
    options = SourceOptions(
        model_class, random_weights, fresh_init, seed, dtype, trust_remote_code=trust_remote_code
    )
    say(f"building {source}")
    resolved = resolve_source(source, options, say)
    return export_model(resolved, directory, via=via, say=say, **dataclasses.asdict(made))


def export_model(
    resolved: ResolvedModel,
    directory: Path | str,
    *,
    static: bool = False,
    opset: int | None = None,
    via: str | None = None,
    optimize: bool = True,
    fuse: str | None = None,
    generation: bool = False,
    say: Progress = silent,
) -> ExportedFiles:
    """Make `directory/model.onnx` and `directory/manifest.json` from a model that is already built.

    Raises:
        ExportError: there are no example inputs, or the exporter failed.
        UsageError: `via` does not name an exporter, or its exporter cannot take this model or these options.
        MissingExtraError: the export extra is not installed.
    """
    options = EngineOptions(static, opset, optimize, fuse, generation)
    directory = Path(directory)
    _check(directory, via, options)
    engine = _choose_engine(resolved, via)
    refuse_unsupported(engine, options)
    if generation and not can_generate(resolved.model):
        raise UsageError(
            f"{resolved.name}: {resolved.class_name} does not generate; pass --class AutoModelForCausalLM or another "
            "head that does, or leave out --generation"
        )
    _give_pad_token(resolved, say)
    inputs = example_inputs(resolved.model, resolved.config, resolved.example_inputs)
    inputs = inputs if static else widen_batch(resolved.model, inputs)
    if via is None and engine == "transformers" and "future_values" in inputs.kwargs and not generation:
        say(
            f"{resolved.class_name}: the transformers exporter takes no future values, exporting through dynamo"
        )
        engine = "dynamo"
        refuse_unsupported(engine, options)
    with _staging(directory) as folder:
        manifest = _Export(resolved, inputs, engine, options, say).write(folder)
        models = tuple(directory / name for name in _component_files(folder))
        artifact = directory if generation else models[0]
        say(f"writing {artifact}")
        files = tuple(directory / path.name for path in sorted(folder.iterdir()))
        _move_in(folder, directory)
    return ExportedFiles(artifact, models, directory / MANIFEST_FILE, manifest, files)


@dataclass(frozen=True, slots=True)
class _Export:
    """One export: the model, its inputs, the exporter, its options, and the receiver of progress lines."""

    resolved: ResolvedModel
    inputs: ExampleInputs
    engine: str
    options: EngineOptions
    say: Progress

    def write(self, folder: Path) -> Manifest:
        """Fill a folder with all files of the export."""
        resolved = self.resolved
        self.say(f"counting the parameters of {resolved.class_name}")
        manifest = take_census(resolved.model, {**provenance(resolved), **_making(self.engine, self.options)})
        self.say(f"exporting {resolved.class_name} through {self.engine}")
        manifest = with_reads(manifest, self._run(folder))
        unreached = find_unreached(resolved.model, manifest, self.inputs)
        manifest = dataclasses.replace(manifest, unreached=unreached)
        self._write_companions(folder)
        for name in _component_files(folder):
            if self.engine != "torchscript":  # torchscript takes names
                name_axes(folder / name, self.inputs.axes)
            self._check_written(folder / name)
        save_manifest(manifest, folder / MANIFEST_FILE)
        return manifest

    def _run(self, folder: Path) -> Reads:
        resolved, options = self.resolved, self.options
        if options.generation:
            return export_components(resolved.model, self.inputs, folder, options, self.say)
        try:
            with quiet_descriptors(), settled_modules():
                reads = ENGINES[self.engine](resolved.model, self.inputs, folder, options)
            return _of_file(reads, folder / MODEL_FILE)
        except Exception as error:
            able = [name for name in ENGINES if name != "transformers" or resolved.config]
            others = [name for name in able if name != self.engine]
            raise ExportError(
                f"{resolved.class_name}: the export through {self.engine} failed: {first_line(error)}; "
                f"try --via {' or --via '.join(others)}"
                + ("" if options.static else ", or --static")
                + (", or leave out --fuse" if options.fuse else "")
            ) from error

    def _check_written(self, path: Path) -> None:
        """Refuse another opset than requested, and report fixed axes: exporters only warn of these."""
        options, inputs = self.options, self.inputs
        model = onnx.load(path, load_external_data=False)
        written = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), None)
        if options.opset is not None and written != options.opset:
            raise ExportError(
                f"opset {options.opset} was asked for and {self.engine} wrote {written}; "
                f"ask for {written}, or try another --via"
            )
        for value in model.graph.input if not options.static else ():
            for axis in _varying_axes(value.name, inputs, is_step=path.name == STEP_FILE):
                dim = value.type.tensor_type.shape.dim[axis]
                size = dim.dim_param or str(dim.dim_value)
                if size.isdigit():  # torch writes some fixed axes as a name of digits
                    place = f" in {path.name}" if options.generation else ""
                    self.say(f"axis {axis} of {value.name}{place} came out fixed, at {size}")

    def _write_companions(self, folder: Path) -> None:
        """Write config.json, to rebuild the same class from, and export.json, which names the artifact's files."""
        resolved = self.resolved
        config = resolved.config
        if config is not None:
            config.architectures = [resolved.class_name]
            config.dtype = DTYPES[resolved.dtype]
            with quiet():
                config.save_pretrained(folder)
        if self.options.generation:
            try:
                with quiet():
                    resolved.model.generation_config.save_pretrained(folder)  # type: ignore[union-attr,operator]
            except ValueError as error:  # transformers refuses to write contradictory configs
                self.say(f"generation_config.json is left out: {first_line(error)}")
        if self.engine != "transformers":
            metadata = {"architecture": resolved.class_name, "packages": versions()}
            document = {
                "schema_version": 1,
                "export_format": "onnx",
                "components": {"model": {"file": MODEL_FILE, "metadata": metadata}},
            }
            (folder / NOTE_FILE).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def _check(directory: Path, via: str | None, options: EngineOptions) -> None:
    """Raise the errors that can be known before minutes are spent."""
    if via is not None and via not in ENGINES:
        raise UsageError(f"via {via!r} is not one of {', '.join(ENGINES)}")
    refuse_unsupported(via or "transformers", options)
    if directory.exists() and not directory.is_dir():
        raise ExportError(f"{directory}: is a file; name a folder to write to")
    for module in _NEEDED:
        if importlib.util.find_spec(module) is None:
            raise MissingExtraError("export", module, "exporting a model")


def _choose_engine(resolved: ResolvedModel, via: str | None) -> str:
    if resolved.weights == "meta":
        raise UsageError(f"{resolved.name}: a model on the meta device has no weights to export")
    if via == "transformers" and resolved.config is None:
        raise UsageError(
            f"{resolved.name}: is no transformers model; export it with --via dynamo or torchscript"
        )
    return via or ("transformers" if resolved.config is not None else "dynamo")


def _give_pad_token(resolved: ResolvedModel, say: Progress) -> None:
    """Define a padding token for classifying decoders: they find the last token by it, and need one for batches."""
    config = resolved.config
    if config is None or not resolved.class_name.endswith("ForSequenceClassification"):
        return
    if getattr(config, "pad_token_id", None) is None and hasattr(config, "vocab_size"):
        config.pad_token_id = config.eos_token_id if isinstance(config.eos_token_id, int) else 0
        say(f"{resolved.class_name}: the config names no padding token, using {config.pad_token_id}")


def _varying_axes(name: str, inputs: ExampleInputs, *, is_step: bool) -> tuple[int, ...]:
    """Return the axes of a graph's input that should not come out fixed.

    The decoding step of a generation loop takes one token, whatever the model's inputs are. Its batch varies, and so
    does the length of the cache: the keys of the first layer stand for the whole cache.
    """
    if not is_step:
        return tuple(inputs.axes.get(name, {}))
    if name.endswith("layers.0.keys") and "cross_attention" not in name:
        return 0, 2
    return (0,) if name in inputs.axes else ()


def _component_files(folder: Path) -> tuple[str, ...]:
    """Return the models that a folder's `export.json` names; none if it has no such file, or another tool's."""
    try:
        document = json.loads((folder / NOTE_FILE).read_text(encoding="utf-8"))
        names = [str(component["file"]) for component in document["components"].values()]
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return ()
    return tuple(name for name in names if Path(name).name == name and name.endswith(".onnx"))


def _making(engine: str, options: EngineOptions) -> dict[str, str]:
    """Describe the export for the manifest: the exporter, and its options that differ from the defaults."""
    made = {"exporter": engine}
    if not options.optimize:
        made["optimized"] = "false"
    if options.fuse is not None:
        made["fused"] = options.fuse
    if options.generation:
        made["generation"] = "true"
    return made


@contextlib.contextmanager
def _staging(directory: Path) -> Iterator[Path]:
    """Make a temporary folder on the same file system, and remove it at the end in any case."""
    parent = directory.absolute().parent
    while not parent.exists():
        parent = parent.parent
    try:
        folder = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=parent))
    except OSError as error:
        raise ExportError(f"{parent}: cannot be written to: {error.strerror}") from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _move_in(folder: Path, directory: Path) -> None:
    """Replace files of the same names; remove other models of the previous export, with their weights."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name in sorted({*_component_files(folder), *_component_files(directory)}):
            if (directory / name).exists() and not (folder / f"{name}.data").exists():
                (directory / f"{name}.data").unlink(missing_ok=True)
            if not (folder / name).exists():
                (directory / name).unlink(missing_ok=True)
        for path in sorted(folder.iterdir()):
            path.replace(directory / path.name)
    except OSError as error:
        raise ExportError(f"{directory}: cannot be written to: {error.strerror}") from error
