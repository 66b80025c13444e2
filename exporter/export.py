"""nn.Module -> a folder with model.onnx, its weights, config.json, export.json and manifest.json."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import json
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx

from analyzer.errors import ExportError, MissingExtraError, UsageError
from analyzer.manifest import Manifest, save_manifest
from exporter.census import take_census, with_reads
from exporter.classes import first_line
from exporter.engines import DATA_FILE, ENGINES, MODEL_FILE, EngineOptions
from exporter.inputs import ExampleInputs, example_inputs, widen_batch
from exporter.quiet import Say, quiet, quiet_descriptors, silent
from exporter.reads import Reads
from exporter.sources import ResolvedModel, SourceOptions, resolve_source
from exporter.weights import DTYPES

__all__ = ["ExportedFiles", "census_source", "export_model", "export_source"]

MANIFEST_FILE = "manifest.json"
_NEEDED = ("onnx", "onnxscript")


@dataclass(frozen=True, slots=True)
class ExportedFiles:
    """What an export left on disk."""

    model: Path
    manifest_path: Path
    manifest: Manifest
    files: tuple[Path, ...]
    """Everything that was written, sorted."""


def export_source(
    source: str,
    directory: Path,
    *,
    model_class: str | None = None,
    random_weights: bool = False,
    fresh_init: bool = False,
    seed: int = 0,
    dtype: str = "fp32",
    static: bool = False,
    opset: int | None = None,
    via: str | None = None,
    trust_remote_code: bool = False,
    say: Say = silent,
) -> ExportedFiles:
    """Make `directory/model.onnx` and `directory/manifest.json` from SOURCE.

    Files of the same names are replaced; a failure leaves the directory as it was.

    Raises:
        SourceError: SOURCE names nothing that can be built.
        ExportError: the exporter failed; the cause is chained.
        UsageError: the options contradict each other.
        MissingExtraError: the export extra is not installed.
    """
    _check(directory, via)
    options = SourceOptions(
        model_class=model_class,
        random_weights=random_weights,
        fresh_init=fresh_init,
        seed=seed,
        dtype=dtype,
        trust_remote_code=trust_remote_code,
    )
    say(f"building {source}")
    resolved = resolve_source(source, options, say)
    return export_model(resolved, directory, static=static, opset=opset, via=via, say=say)


def census_source(
    source: str,
    *,
    model_class: str | None = None,
    random_weights: bool = False,
    fresh_init: bool = False,
    seed: int = 0,
    dtype: str = "fp32",
    meta: bool = False,
    trust_remote_code: bool = False,
    say: Say = silent,
) -> Manifest:
    """Describe SOURCE's parameters and buffers without exporting it.

    With content where SOURCE holds weights or they are made up; without where it holds a config only, or `meta`.

    Raises:
        SourceError: SOURCE names nothing that can be built.
        UsageError: the options contradict each other.
        MissingExtraError: transformers is needed and not installed.
    """
    options = SourceOptions(
        model_class=model_class,
        random_weights=random_weights,
        fresh_init=fresh_init,
        seed=seed,
        dtype=dtype,
        meta=meta,
        meta_without_weights=True,
        trust_remote_code=trust_remote_code,
    )
    resolved = resolve_source(source, options, say)
    return take_census(resolved.model, _provenance(resolved))


def export_model(
    resolved: ResolvedModel,
    directory: Path,
    *,
    static: bool = False,
    opset: int | None = None,
    via: str | None = None,
    say: Say = silent,
) -> ExportedFiles:
    """Make `directory/model.onnx` and `directory/manifest.json` from a model that is already built.

    Raises:
        ExportError: there are no example inputs, or the exporter failed.
        UsageError: `via` names no exporter, or one that cannot take this model.
    """
    _check(directory, via)
    engine = _choose_engine(resolved, via)
    _give_pad_token(resolved, say)
    inputs = example_inputs(resolved.model, resolved.config, resolved.example_inputs)
    if not static:
        inputs = widen_batch(resolved.model, inputs)
    say(f"counting the parameters of {resolved.class_name}")
    manifest = take_census(resolved.model, _provenance(resolved, engine))
    options = EngineOptions(static=static, opset=opset)
    with _staging(directory) as folder:
        say(f"exporting {resolved.class_name} through {engine}")
        manifest = with_reads(manifest, _run_engine(engine, resolved, inputs, folder, options))
        _check_written(folder / MODEL_FILE, inputs, options, engine, say)
        _write_companions(resolved, engine, folder)
        save_manifest(manifest, folder / MANIFEST_FILE)
        say(f"writing {directory / MODEL_FILE}")
        files = tuple(directory / path.name for path in sorted(folder.iterdir()))
        _move_in(folder, directory)
    return ExportedFiles(directory / MODEL_FILE, directory / MANIFEST_FILE, manifest, files)


def _check(directory: Path, via: str | None) -> None:
    """What can be known to fail before minutes are spent."""
    if via is not None and via not in ENGINES:
        raise UsageError(f"via {via!r} is none of {', '.join(ENGINES)}")
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


def _give_pad_token(resolved: ResolvedModel, say: Say) -> None:
    """Decoders that classify find the last token by the padding, and refuse a batch when none is defined."""
    config = resolved.config
    if config is None or not resolved.class_name.endswith("ForSequenceClassification"):
        return
    if getattr(config, "pad_token_id", None) is None and hasattr(config, "vocab_size"):
        config.pad_token_id = config.eos_token_id if isinstance(config.eos_token_id, int) else 0
        say(f"{resolved.class_name}: the config names no padding token, using {config.pad_token_id}")


def _run_engine(
    engine: str, resolved: ResolvedModel, inputs: ExampleInputs, folder: Path, options: EngineOptions
) -> Reads:
    try:
        with quiet_descriptors():
            return ENGINES[engine](resolved.model, inputs, folder, options)
    except Exception as error:
        others = [name for name in ENGINES if name != engine and (name != "transformers" or resolved.config)]
        raise ExportError(
            f"{resolved.class_name}: the export through {engine} failed: {first_line(error)}; "
            f"try --via {' or --via '.join(others)}" + ("" if options.static else ", or --static")
        ) from error


def _check_written(path: Path, inputs: ExampleInputs, options: EngineOptions, engine: str, say: Say) -> None:
    """An exporter that cannot do as asked only warns: it keeps its own opset, or fixes an axis."""
    model = onnx.load(path, load_external_data=False)
    written = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), None)
    if options.opset is not None and written != options.opset:
        raise ExportError(
            f"opset {options.opset} was asked for and {engine} wrote {written}; "
            f"ask for {written}, or try another --via"
        )
    for value in model.graph.input if not options.static else ():
        for axis in inputs.axes.get(value.name, {}):
            dim = value.type.tensor_type.shape.dim[axis]
            size = dim.dim_param or str(dim.dim_value)
            if size.isdigit():  # torch writes some fixed axes as a name of digits
                say(f"axis {axis} of {value.name} came out fixed, at {size}")


def _write_companions(resolved: ResolvedModel, engine: str, folder: Path) -> None:
    """config.json, from which the same class can be rebuilt, and export.json, which names the artifact's files."""
    config = resolved.config
    if config is not None:
        config.architectures = [resolved.class_name]
        config.dtype = DTYPES[resolved.dtype]
        with quiet():
            config.save_pretrained(folder)
    if engine != "transformers":
        metadata = {"architecture": resolved.class_name, "packages": _versions()}
        document = {
            "schema_version": 1,
            "export_format": "onnx",
            "components": {"model": {"file": MODEL_FILE, "metadata": metadata}},
        }
        (folder / "export.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def _provenance(resolved: ResolvedModel, engine: str | None = None) -> dict[str, str]:
    source = {
        "source": resolved.name,
        "kind": resolved.kind,
        "class": resolved.class_name,
        "weights": resolved.weights,
        "dtype": resolved.dtype,
        **_versions(),
    }
    if resolved.weights in ("random", "fresh"):
        source["seed"] = str(resolved.seed)
    if engine is not None:
        source["exporter"] = engine
    return source


def _versions() -> dict[str, str]:
    found = {}
    for package in ("torch", "transformers", "onnx", "onnxscript"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


@contextlib.contextmanager
def _staging(directory: Path) -> Iterator[Path]:
    """A temporary folder on the same file system, gone at the end whatever happens."""
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
    """Replace the files of the same names, and the weights file of a model that now has none."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if (directory / MODEL_FILE).exists() and not (folder / DATA_FILE).exists():
            (directory / DATA_FILE).unlink(missing_ok=True)
        for path in sorted(folder.iterdir()):
            path.replace(directory / path.name)
    except OSError as error:
        raise ExportError(f"{directory}: cannot be written to: {error.strerror}") from error
