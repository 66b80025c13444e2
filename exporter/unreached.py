"""nn.Module + what its program reads -> the modules that the example inputs leave unused, and the inputs they lack."""

from __future__ import annotations

import inspect
import re
from collections import deque
from collections.abc import Collection, Iterator, Mapping

from torch import nn

from analyzer.manifest import Manifest, Unreached
from exporter.inputs import ExampleInputs, forward_names

__all__ = ["find_unreached"]

_LEAST = 0.05
"""Share of the parameters that a module has to be told of though no input is known that would reach it."""

_NO_DATA = frozenset(
    {"inputs_embeds", "position_ids", "past_key_values", "cache_position", "encoder_outputs"}
)
"""Arguments of forward that stand in for others, or say where in a text they are."""

_MODALITIES: Mapping[str, tuple[str, ...]] = {
    "image": ("pixel_values", "flattened_patches"),
    "video": ("pixel_values_videos", "pixel_values"),
    "audio": ("input_features", "input_values", "audio_values"),
}
"""What transformers calls the data that a model takes, and the arguments that hold it."""

_BRIDGE = re.compile(r"modal|visi?on|visual|image|video|audio|speech|project|connect|align|resampl|former")
"""Names of what stands between a tower and the rest: the same input leads there."""


def find_unreached(model: nn.Module, manifest: Manifest, inputs: ExampleInputs) -> tuple[Unreached, ...]:
    """The outermost modules none of whose parameters the traced program reads, in PyTorch's order.

    Those that an input which was not given would reach, and large ones of which no such input is known. Heads that only
    training uses, and poolers, are neither.
    """
    if manifest.trace is None:
        return ()
    unread = {
        name: parameter.numel
        for parameter in manifest.parameters
        if parameter.read is False
        for name in parameter.names
    }
    given = {*inputs.kwargs, *forward_names(model)[: len(inputs.args)]}
    lacking = [name for name in forward_names(model) if name not in given and name not in _NO_DATA]
    found = [(path, module, _lead_to(module, lacking)) for path, module in _idle(model, unread)]
    known = {leads for *_, leads in found if leads}
    only = next(iter(known)) if len(known) == 1 else ()
    told = [
        Unreached(
            path,
            sum(unread[f"{path}.{name}"] for name, _ in module.named_parameters()),
            leads or (only if _BRIDGE.search(path.rpartition(".")[2]) else ()),
        )
        for path, module, leads in found
    ]
    return tuple(each for each in told if each.inputs or each.elements >= _LEAST * manifest.numel)


def _idle(model: nn.Module, unread: Collection[str]) -> Iterator[tuple[str, nn.Module]]:
    """The outermost modules with parameters of which all are unread."""
    waiting = deque(model.named_children())
    while waiting:
        path, module = waiting.popleft()
        names = [f"{path}.{name}" for name, _ in module.named_parameters()]
        if names and all(name in unread for name in names):
            yield path, module
        elif not names or any(name in unread for name in names):
            waiting.extendleft(
                (f"{path}.{name}", child) for name, child in reversed(list(module.named_children()))
            )


def _lead_to(module: nn.Module, lacking: Collection[str]) -> tuple[str, ...]:
    """The arguments of forward, of those that were not given, that a module says it takes; the first part that says."""
    for part in module.modules():
        named = getattr(part, "main_input_name", None)
        if named in lacking:
            return (str(named),)
        kinds = getattr(part, "input_modalities", None) or ()
        taken = [
            name
            for kind in ([kinds] if isinstance(kinds, str) else kinds)
            for name in _MODALITIES.get(kind, ())
        ]
        taken += [
            name for name in inspect.signature(part.forward).parameters if name.startswith("pixel_values")
        ]
        found = tuple(dict.fromkeys(name for name in taken if name in lacking))
        if found:
            return found
    own = inspect.signature(module.forward).parameters
    return tuple(
        name for name in own if name in lacking and not name.startswith(("output_", "return_", "use_"))
    )
