"""PyTorch's side of a whole model -> that of some of its modules, for a file that holds only these."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from analyzer.checkpoints import Original
from analyzer.checkpoints.statedict import listed
from analyzer.errors import UsageError
from analyzer.manifest import Buffer, Manifest, Parameter
from analyzer.records import replace

__all__ = ["name_parts", "take_parts"]

_Tensor = TypeVar("_Tensor", Parameter, Buffer)


def take_parts(original: Original, parts: Sequence[str]) -> Original:
    """Return PyTorch's side with the tensors of some modules alone, under their full names.

    What a trace of the whole model tells, such as the parameters that its program reads, is left out.

    Args:
        original: PyTorch's side of the whole model.
        parts: paths of modules, as in `named_modules()`: `encoder`, `vision_model.encoder`.

    Raises:
        UsageError: no tensor is in one of these modules.
    """
    manifest = original.manifest
    if not parts:
        return original
    names = [name for tensor in manifest.tensors for name in tensor.names]
    for part in parts:
        if not any(_is_within(name, [part]) for name in names):
            modules = listed({name.partition(".")[0] for name in names if "." in name}) or "no modules"
            raise UsageError(
                f"--part {part}: PyTorch's side has no tensor in such a module; it has {modules}"
            )
    taken = replace(
        manifest,
        parameters=tuple(_take(manifest.parameters, parts)),
        buffers=tuple(_take(manifest.buffers, parts)),
        batch_norms=tuple(norm for norm in manifest.batch_norms if _is_within(norm.module, parts)),
        weight_norms=tuple(norm for norm in manifest.weight_norms if _is_within(norm.weight, parts)),
        values={name: value for name, value in manifest.values.items() if _is_within(name, parts)},
        modules={path: kind for path, kind in manifest.modules.items() if _is_within(path, parts)},
        trace=None,
        wiring=None,
        program=None,
        unreached=(),
        calls=(),
    )
    return name_parts(replace(original, manifest=taken, trace=None), parts)


def name_parts(original: Original, parts: Sequence[str]) -> Original:
    """Return PyTorch's side with a note of the parts that it is."""
    manifest: Manifest = original.manifest
    return replace(original, manifest=replace(manifest, source={**manifest.source, "part": ", ".join(parts)}))


def _is_within(path: str, parts: Iterable[str]) -> bool:
    return any(f"{path}.".startswith(f"{part}.") for part in parts)


def _take(tensors: Iterable[_Tensor], parts: Sequence[str]) -> Iterator[_Tensor]:
    """Yield the tensors with a name in the modules, without their other names."""
    for tensor in tensors:
        names = tuple(name for name in tensor.names if _is_within(name, parts))
        if names:
            yield replace(tensor, name=names[0], tied=names[1:], read=None)
