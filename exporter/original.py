"""SOURCE, or the content of a config.json -> parameters and buffers of the PyTorch model, without an export."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from analyzer.checkpoints import Original
from analyzer.checkpoints.checkpoint import checkpoint_kind
from analyzer.checkpoints.part import take_parts
from analyzer.manifest import Manifest
from exporter.census import take_census, weights_of
from exporter.fitting import census_checkpoint, tracer_of
from exporter.quiet import Progress, silent
from exporter.sources import ResolvedModel, SourceOptions, resolve_config, resolve_source


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
    parts: Sequence[str] = (),
    say: Progress = silent,
) -> Original:
    """Describe SOURCE's parameters and buffers without exporting it.

    Values are included if SOURCE holds weights, or if the options make weights up. They are left out if SOURCE is only
    a config, or with `meta`. SOURCE may also be a checkpoint file, whose tensors keep their types. A file without a
    config.json beside it is described by the names of its tensors. With `parts` the side is that of these modules,
    or of one of several state dicts in a file of torch.save.

    Raises:
        SourceError: SOURCE names nothing that can be built or read.
        ManifestError: SOURCE is a broken safetensors file or index.
        UsageError: the options contradict each other, or no tensor is in one of `parts`.
        MissingExtraError: transformers is needed and not installed.
    """
    made = (model_class, random_weights, fresh_init, seed, dtype, meta)
    options = SourceOptions(*made, meta_without_weights=True, trust_remote_code=trust_remote_code)
    path = Path(source).expanduser()
    kind = checkpoint_kind(path)
    if kind is not None and not options.needs_no_checkpoint:
        stored = census_checkpoint(
            path, kind, model_class=model_class, trust_remote_code=trust_remote_code, parts=parts
        )
        source_fields = {**stored.manifest.source, **versions()}
        original = dataclasses.replace(
            stored, manifest=dataclasses.replace(stored.manifest, source=source_fields)
        )
    else:
        original = _census_model(resolve_source(source, options, say))
    is_part = "part" in original.manifest.source  # a file of torch.save holds it under this key
    return original if is_part else take_parts(original, parts)


def _census_model(resolved: ResolvedModel) -> Original:
    manifest = take_census(resolved.model, provenance(resolved), evidence=False)
    weights = weights_of(resolved.model, without=resolved.missing)
    if weights is None:
        return Original(manifest)
    trace = tracer_of(resolved.model, resolved.config, resolved.example_inputs)
    return Original(manifest, weights, trace=trace)


def census_config(
    config: Mapping[str, Any], *, model_class: str | None = None, trust_remote_code: bool = False
) -> Manifest:
    """Describe the model of a config: names, shapes and ties on the meta device, without weights.

    Args:
        config: the content of a `config.json`.
        model_class: a class of transformers; None takes the config's architecture.
        trust_remote_code: whether Python code that the config names may run.

    Raises:
        SourceError: no such model can be built.
        MissingExtraError: transformers is needed and not installed.
    """
    options = SourceOptions(model_class=model_class, meta=True, trust_remote_code=trust_remote_code)
    resolved = resolve_config(config, options)
    return take_census(resolved.model, provenance(resolved), evidence=False)


def provenance(resolved: ResolvedModel) -> dict[str, str]:
    """Describe a model's origin for its manifest."""
    source = {
        "source": resolved.name,
        "kind": resolved.kind,
        "class": resolved.class_name,
        "weights": resolved.weights,
        "dtype": resolved.dtype,
        **versions(),
    }
    if resolved.config is not None and resolved.config.model_type:
        source["model_type"] = str(resolved.config.model_type)
    if resolved.weights in ("random", "fresh", "factory"):
        source["seed"] = str(resolved.seed)
    return source


def versions() -> dict[str, str]:
    """Return the versions of the packages that take part, as far as they are installed."""
    found = {}
    for package in ("torch", "transformers", "onnx", "onnxscript"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found
