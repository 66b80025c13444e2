"""Architecture and kind of export -> a folder with model.onnx and manifest.json, made once and kept."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tools.matrix.architectures import ARCHITECTURES

__all__ = [
    "CONFIG",
    "EXPORTS",
    "WEIGHTS",
    "config_text",
    "is_prepared",
    "make_export",
    "prepare_architecture",
    "refresh_manifest",
]

EXPORTS: Mapping[str, Mapping[str, Any]] = {
    "static": {"static": True},
    "dynamic": {},
    "fused": {"fuse": "cpu"},
    "dynamo": {"via": "dynamo", "optimize": False},
    "legacy": {"via": "torchscript"},
}
"""Keyword arguments of `exporter.export_model`."""

CONFIG, WEIGHTS, MANIFEST = "config.json", "model.safetensors", "manifest.json"


def make_export(folder: Path, architecture: str, export: str) -> None:
    """Export the architecture into `folder/<architecture>/<export>`.

    Raises:
        ExportError: an exporter fails; exporters raise other errors, too.
    """
    from exporter import export_model

    home = folder / architecture
    files = export_model(_build(home), home / export, **EXPORTS[export])
    _stamp(files.manifest_path)


def refresh_manifest(folder: Path, architecture: str, export: str) -> None:
    """Write the manifest anew if another version of the code wrote it.

    The exported program, and the set of parameters that it reads, stay as they were traced.
    """
    path = folder / architecture / export / MANIFEST
    if path.stat().st_mtime_ns == _LOADED:
        return
    from analyzer.manifest import load_manifest, save_manifest
    from analyzer.records import replace
    from exporter.census import take_census, with_reads
    from exporter.reads import Reads

    old = json.loads(path.read_text(encoding="utf-8"))
    read = {kind: [t for t in old[kind] if t["read"] is not None] for kind in ("parameters", "buffers")}
    reads = Reads(
        parameters=frozenset(t["name"] for t in read["parameters"] if t["read"]),
        buffers=frozenset(t["name"] for t in read["buffers"] if t["read"]) if read["buffers"] else None,
        trace=old["trace"],
    )
    fresh = take_census(_build(folder / architecture).model, old["source"])
    traced = load_manifest(path)
    fresh = replace(
        with_reads(fresh, reads), program=traced.program, calls=traced.calls, wiring=traced.wiring
    )
    save_manifest(fresh, path)
    _stamp(path)


def _code_time() -> int:
    """Return the time of the last change, in nanoseconds, of the modules that a manifest's content depends on."""
    specs = map(find_spec, ("analyzer.model.content", "analyzer.manifest", "exporter.census"))
    return max(Path(str(spec.origin)).stat().st_mtime_ns for spec in specs if spec is not None)


_LOADED = _code_time()
"""Time of the code that runs, which may be older than the code on disk by now."""


def _stamp(manifest: Path) -> None:
    """Set a manifest's file time to the time of the code that wrote it."""
    os.utime(manifest, ns=(_LOADED, _LOADED))


def is_prepared(folder: Path, architecture: str) -> bool:
    """Whether the checkpoint exists, and was made from the current config."""
    home = folder / architecture
    config = home / CONFIG
    is_current = config.is_file() and config.read_text(encoding="utf-8") == config_text(architecture)
    return is_current and (home / WEIGHTS).is_file()


def prepare_architecture(folder: Path, architecture: str) -> None:
    """Write `config.json` and the checkpoint, `model.safetensors`, of an architecture into its folder.

    The checkpoint holds the tensors that `save_pretrained` would write, tied tensors once, but under PyTorch's own
    names: the names in a file of transformers are a translation that `from_pretrained` knows.
    """
    from safetensors.torch import save_file

    home = folder / architecture
    home.mkdir(parents=True, exist_ok=True)
    (home / CONFIG).write_text(config_text(architecture), encoding="utf-8")
    model = _build(home).model
    kept = model.state_dict().keys()
    tensors = {name: parameter.detach() for name, parameter in model.named_parameters()}
    tensors |= {name: buffer for name, buffer in model.named_buffers() if name in kept}
    save_file({name: t.contiguous() for name, t in tensors.items()}, home / WEIGHTS, {"format": "pt"})


def config_text(architecture: str) -> str:
    """Return the `config.json` of an architecture."""
    return json.dumps(ARCHITECTURES[architecture], indent=2) + "\n"


def _build(home: Path) -> Any:
    """Build the model with its random weights, the same every time."""
    from exporter import SourceOptions, resolve_source

    return resolve_source(str(home / CONFIG), SourceOptions(random_weights=True))
