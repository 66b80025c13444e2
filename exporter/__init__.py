"""SOURCE -> a PyTorch model -> model.onnx and manifest.json. Torch is imported on first use of a public name."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from analyzer.errors import MissingExtraError

if TYPE_CHECKING:
    from exporter.census import take_census as take_census
    from exporter.census import weights_of as weights_of
    from exporter.census import with_reads as with_reads
    from exporter.classes import field_names as field_names
    from exporter.export import ExportedFiles as ExportedFiles
    from exporter.export import export_model as export_model
    from exporter.export import export_source as export_source
    from exporter.inputs import ExampleInputs as ExampleInputs
    from exporter.inputs import example_inputs as example_inputs
    from exporter.original import census_config as census_config
    from exporter.original import census_source as census_source
    from exporter.presets import preset_config as preset_config
    from exporter.sources import ResolvedModel as ResolvedModel
    from exporter.sources import SourceOptions as SourceOptions
    from exporter.sources import read_source_config as read_source_config
    from exporter.sources import resolve_source as resolve_source

__all__ = [
    "ExampleInputs",
    "ExportedFiles",
    "ResolvedModel",
    "SourceOptions",
    "census_config",
    "census_source",
    "example_inputs",
    "export_model",
    "export_source",
    "field_names",
    "preset_config",
    "read_source_config",
    "resolve_source",
    "take_census",
    "weights_of",
    "with_reads",
]

_MODULES = {
    "ExampleInputs": "inputs",
    "ExportedFiles": "export",
    "ResolvedModel": "sources",
    "SourceOptions": "sources",
    "census_config": "original",
    "census_source": "original",
    "example_inputs": "inputs",
    "export_model": "export",
    "export_source": "export",
    "field_names": "classes",
    "preset_config": "presets",
    "read_source_config": "sources",
    "resolve_source": "sources",
    "take_census": "census",
    "weights_of": "census",
    "with_reads": "census",
}


def __getattr__(name: str) -> Any:
    """Import the public name's module; `exporter.presets` stays usable without torch."""
    if name not in _MODULES:
        raise AttributeError(f"module 'exporter' has no attribute {name!r}")
    try:
        module = importlib.import_module(f"exporter.{_MODULES[name]}")
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "transformers"):
            raise
        raise MissingExtraError("export", error.name, "building and exporting a model") from error
    return getattr(module, name)
