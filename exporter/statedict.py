"""A checkpoint file -> its tensors by name, mapped where the file allows it; no code of the file's runs."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from analyzer.checkpoints.checkpoint import CheckpointKind, checkpoint_files, read_index
from analyzer.checkpoints.statedict import listed, plain_names
from analyzer.errors import SourceError
from exporter.classes import first_line
from exporter.quiet import quiet

__all__ = ["StateDict", "load_state_dict"]

_NESTED = ("state_dict", "model_state_dict", "model")
"""Under which training scripts put the state dict beside their optimizer's."""

_GLOBAL = re.compile(r"GLOBAL (\S+)")
_ZIP = b"PK\x03\x04"
_MOST_REPEATED = 1 << 30
"""Bytes that a tensor may claim whose storage has fewer, as `expand` makes them."""


@dataclass(frozen=True, slots=True)
class StateDict:
    """The tensors of a checkpoint."""

    tensors: Mapping[str, torch.Tensor]
    """By the names that the bare module has."""
    stored: Mapping[str, torch.Tensor]
    """By the names in the file."""
    notes: tuple[str, ...] = ()


def load_state_dict(path: Path, kind: CheckpointKind) -> StateDict:
    """Read the tensors of a safetensors file or of a state dict that torch.save wrote, or of all shards of an index.

    Raises:
        SourceError: it cannot be read, holds no state dict, or would run code.
        ManifestError: the index is broken.
    """
    load = _load_pickle if kind.is_pickle else _load_safetensors
    stored: dict[str, torch.Tensor] = {}
    notes: list[str] = []
    for file in checkpoint_files(path):
        tensors, said = load(file)
        stored.update(tensors)
        notes += said
    if kind is CheckpointKind.PICKLE_INDEX:
        lacking = read_index(path).keys() - stored.keys()
        if lacking:
            raise SourceError(f"{path}: no shard holds {listed(lacking)}; download the shards again")
    plain = plain_names(stored)
    return StateDict({name: stored[key] for key, name in plain.items()}, stored, tuple(notes))


def _load_safetensors(path: Path) -> tuple[dict[str, torch.Tensor], list[str]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="pt") as opened:
            return {name: opened.get_tensor(name) for name in opened.keys()}, []  # noqa: SIM118  it is no dict
    except (SafetensorError, OSError, RuntimeError, ValueError, TypeError) as error:
        raise SourceError(f"{path}: torch cannot read it: {first_line(error)}") from error


def _load_pickle(path: Path) -> tuple[dict[str, torch.Tensor], list[str]]:
    loaded = _unpickle(path)
    found, where = _find(path, loaded)
    tensors = {name: value for name, value in found.items() if isinstance(value, torch.Tensor)}
    endless = [str(name) for name, tensor in tensors.items() if _is_endless(tensor)]
    if endless:
        raise SourceError(f"{path}: repeats few bytes to more elements than any model has: {listed(endless)}")
    others = [str(name) for name in found if name not in tensors]
    notes = [f"{path}: no tensors, left out: {listed(others)}"] if others else []
    if where:
        notes.append(
            f"{path}: the state dict is its {where!r}; left out: {listed(set(map(str, loaded)) - {where})}"
        )
    return {str(name): tensor for name, tensor in tensors.items()}, notes


def _unpickle(path: Path) -> Any:
    """What torch.load makes of the file with `weights_only`; mapped if it is the zip archive of torch 1.6 and later."""
    try:
        with path.open("rb") as file:
            is_archive = file.read(len(_ZIP)) == _ZIP
        with quiet():
            return torch.load(path, map_location="cpu", weights_only=True, mmap=is_archive)
    except pickle.UnpicklingError as error:
        named = _GLOBAL.search(str(error))
        needs = f"it needs {named[1]}" if named else first_line(error)
        raise SourceError(
            f"{path}: holds more than tensors ({needs}), and to read that would run its code; "
            "where you trust it, load it and save its state_dict() alone"
        ) from error
    except Exception as error:
        raise SourceError(
            f"{path}: no state dict that torch can read: {first_line(error)}; save model.state_dict() again"
        ) from error


def _find(path: Path, loaded: Any) -> tuple[Mapping[Any, Any], str]:
    """The state dict in what was loaded, and the key under which it is; no key if it is all."""
    if not isinstance(loaded, Mapping):
        kind = type(loaded).__name__
        raise SourceError(f"{path}: holds a {kind} and no state dict; save model.state_dict() instead")
    for key in _NESTED:
        if isinstance(loaded.get(key), Mapping) and _has_tensors(loaded[key].values()):
            return loaded[key], key
    if _has_tensors(loaded.values()):
        return loaded, ""
    raise SourceError(
        f"{path}: holds no state dict, only {listed(map(str, loaded)) or 'nothing'}; save model.state_dict() instead"
    )


def _has_tensors(values: Iterable[Any]) -> bool:
    return any(isinstance(value, torch.Tensor) for value in values)


def _is_endless(tensor: torch.Tensor) -> bool:
    if tensor.layout is not torch.strided or tensor.nbytes <= _MOST_REPEATED:
        return False
    return tensor.nbytes > tensor.untyped_storage().nbytes()
