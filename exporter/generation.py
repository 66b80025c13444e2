"""A model that generates -> the components of its generation loop, ONNX files that keep the whole model's names."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from analyzer.errors import ExportError
from exporter.classes import first_line
from exporter.engines import NOTE_FILE, EngineOptions, onnx_config, recording_exporter
from exporter.inputs import ExampleInputs, forward_names
from exporter.quiet import Say, quiet_descriptors
from exporter.reads import Reads, merge_reads

__all__ = ["can_generate", "export_components"]


@dataclass(frozen=True, slots=True)
class _Component:
    """One call of the generation loop: its module, and the arguments of that call."""

    name: str
    module: nn.Module
    inputs: dict[str, Any]


def can_generate(model: nn.Module) -> bool:
    """Whether transformers' `generate` works on it."""
    can: Any = getattr(model, "can_generate", None)
    return can is not None and bool(can())


def export_components(
    model: nn.Module, inputs: ExampleInputs, folder: Path, options: EngineOptions, say: Say
) -> Reads:
    """Write each component and an `export.json` that names them; what any of them reads is read.

    One is exported and written after the other, so memory holds one of them beside the model.

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
                reads.append(_export(model, component, folder, options))
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
    """Generate two tokens, and keep each module that transformers makes a component of, with what it was called with.

    This is transformers' `decompose_for_generation`, and the encoders that it leaves to PyTorch because `generate`
    calls them itself, ahead of the forward pass that it looks at: nothing can be generated without them.
    The decoder is prompted with several tokens: after a single one, the length of its cache would be traced as 1.
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
    """The model's own way to generate, but one deterministic sequence for each prompt, from a cache that grows."""
    chosen = copy.deepcopy(model.generation_config)
    chosen.update(
        do_sample=False, num_beams=1, num_return_sequences=1, use_cache=True, cache_implementation=None
    )
    return chosen


@contextlib.contextmanager
def _encoder_calls(model: Any) -> Iterator[list[tuple[nn.Module, dict[str, Any]]]]:
    """The calls of an encoder-decoder's encoder while the block runs; none of other models."""
    calls: list[tuple[nn.Module, dict[str, Any]]] = []
    encoder = model.get_encoder() if getattr(model.config, "is_encoder_decoder", False) else None
    if encoder is None or encoder is model:
        yield calls
        return

    def note(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        named = dict(zip(forward_names(module), args, strict=False))
        calls.append((module, copy.deepcopy({**named, **kwargs})))

    handle = encoder.register_forward_pre_hook(note, with_kwargs=True)
    try:
        yield calls
    finally:
        handle.remove()


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
    """A copy of the whole model that computes what `module` of it does.

    Exported by itself, a module's tensors and scopes would lack the path that leads to it, and match no name of the
    manifest.
    """
    if module._modules is model._modules:  # transformers' own copy of the whole
        return module

    def forward(**kwargs: Any) -> Any:
        return module(**kwargs)

    whole = copy.copy(model)
    whole.forward = forward
    return whole
