"""A file that torch.save wrote -> its tensors by name, or the module in it, without running its code.

A state dict is read by `torch.load` with `weights_only`. A file that needs more classes than that allows, such as a
whole module, is read once more with stand-ins for all of them: a stand-in keeps what the pickle says of its object, and
does nothing. A stand-in that holds parameters, buffers and modules becomes a plain `torch.nn.Module` with the same
tensors, names and flags. The objects of a TorchScript archive are read in the same way, and its code is not.
"""

from __future__ import annotations

import collections
import io
import mmap
import pickle
import types
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from analyzer.checkpoints.statedict import listed
from analyzer.errors import SourceError
from exporter.classes import first_line
from exporter.quiet import quiet

__all__ = ["Pickled", "load_pickle"]

_NESTED = ("state_dict", "model_state_dict", "model")
"""Keys under which training scripts store the state dict beside the optimizer's."""

_ZIP = b"PK\x03\x04"
_MOST_REPEATED = 1 << 30
"""Largest size in bytes of a tensor whose storage is smaller than the tensor, as after `expand`."""


@dataclass(frozen=True, slots=True)
class Pickled:
    """State dict of one file."""

    tensors: Mapping[str, torch.Tensor]
    """Tensors by their names in the file."""
    module: nn.Module | None = None
    """Module without its code, if the file holds a whole module and not a state dict alone."""
    notes: tuple[str, ...] = ()
    is_part: bool = False
    """Whether it is the state dict that `parts` named."""


def load_pickle(path: Path, parts: Sequence[str] = ()) -> Pickled:
    """Read the state dict, or the whole module, that a file holds.

    Of several state dicts `parts` may name one by its key, or by its keys joined by dots.

    Raises:
        SourceError: it cannot be read, or holds no state dict, or several and none has a known key.
    """
    loaded, is_plain = _unpickle(path)
    choice = _choose(loaded, parts)
    found, where = _find(path, loaded, is_plain) if choice is None else choice
    tensors = {name: value for name, value in found.items() if isinstance(value, torch.Tensor)}
    endless = [_shown((name,)) for name, tensor in tensors.items() if _is_endless(tensor)]
    if endless:
        raise SourceError(
            f"{path}: few bytes, repeated to more elements than any model has: {listed(endless)}"
        )
    others = [_shown((name,)) for name in found if name not in tensors]
    notes = [f"{path}: no tensors, left out: {listed(others)}"] if others else []
    module = found.module if isinstance(found, _ModuleState) else None
    if isinstance(found, _ScriptState):
        notes.append(f"{path}: a TorchScript archive, of which the tensors were read, and no code was run")
    if isinstance(found, _ModuleState):
        notes.append(
            f"{path}: holds a whole {found.kind}, of which the tensors were read, and no code was run"
        )
    if where:
        left = [_shown((key,)) for key in loaded if key != where[0]]
        notes.append(
            f"{path}: the state dict is its {_shown(where)!r}"
            + (f"; left out: {listed(left)}" if left else "")
        )
        beside = {key: state for key, state in _nested(loaded).items() if key != where}
        if beside and choice is None:
            notes.append(
                f"{path}: other state dicts in it: {listed(map(_shown, beside))}; {_to_choose(path, beside, is_plain)}"
            )
    by_name = {_shown((name,)): tensor for name, tensor in tensors.items()}
    if len(by_name) < len(tensors):
        raise SourceError(
            f"{path}: holds several tensors of one name, as numbers and as texts; save one of them alone"
        )
    return Pickled(by_name, module, tuple(notes), is_part=choice is not None)


# the file


def _unpickle(path: Path) -> tuple[Any, bool]:
    """Load a file with torch.load, and return whether it holds only what `weights_only` allows.

    The zip archive of torch 1.6 and later is memory-mapped.
    """
    try:
        with path.open("rb") as file:
            is_archive = file.read(len(_ZIP)) == _ZIP
        if is_archive and _is_torchscript(path):
            return _read_script(path), True
        is_mapped = is_archive and _is_stored_plainly(path)
        is_plain = True
        with quiet():
            try:
                loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=is_mapped)
            except pickle.UnpicklingError:  # it needs more than tensors
                is_plain = False
                loaded = torch.load(
                    path, map_location="cpu", weights_only=False, mmap=is_mapped, pickle_module=_INERT
                )
            if not is_archive:
                _require_contents(path)
        return _plain(path, loaded), is_plain
    except SourceError:
        raise
    except Exception as error:
        raise SourceError(
            f"{path}: no state dict that torch can read: {first_line(error)}; save model.state_dict() again"
        ) from error


_MOST_INFLATED = 1 << 28
"""Most bytes that compressed records of an archive may inflate to; torch.save does not compress."""


def _is_stored_plainly(path: Path) -> bool:
    """Whether an archive stores its records uncompressed, so that torch can map them; torch does not check that.

    Raises:
        SourceError: the compressed records inflate to more than any repacked archive.
    """
    with zipfile.ZipFile(path) as archive:
        packed = [record for record in archive.infolist() if record.compress_type != zipfile.ZIP_STORED]
    inflated = sum(record.file_size for record in packed)
    if inflated > max(_MOST_INFLATED, 4 * path.stat().st_size):
        raise SourceError(
            f"{path}: its compressed records become {inflated:,} bytes; unpack it, and save the state dict again"
        )
    return not packed


def _is_torchscript(path: Path) -> bool:
    """Whether an archive is one of torch.jit.save, which has code beside its tensors."""
    with zipfile.ZipFile(path) as archive:
        parts = [record.filename.split("/")[1:] for record in archive.infolist()]
    return ["constants.pkl"] in parts and any(part[:1] == ["code"] for part in parts)


# objects without their code


class _StandIn:
    """Object of a class that is not loaded. It keeps all that a pickle gives it, and answers no other call."""

    kind = ""
    """Module and name of the class."""

    def __new__(cls, *parts: Any, **named: Any) -> _StandIn:
        made = object.__new__(cls)
        made.parts = [*parts, named]
        return made

    def __init__(self, *parts: Any, **named: Any) -> None:
        self.parts: list[Any]
        """Arguments and states."""

    def __call__(self, *parts: Any, **named: Any) -> _StandIn:
        return _StandIn(*parts, **named)

    def __setstate__(self, state: Any) -> None:
        self.parts.append(state)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.parts.append({key: value})

    def append(self, value: Any) -> None:
        """Take an item of a list."""

    def add(self, value: Any) -> None:
        """Take an item of a set."""

    def fields(self) -> dict[str, Any]:
        """Return the attributes, and the items if it is a mapping."""
        found: dict[str, Any] = {}
        for part in self.parts:
            states = part if isinstance(part, tuple) else (part,)  # __dict__ and __slots__ are a pair
            for state in states:
                if isinstance(state, Mapping):
                    found |= {key: value for key, value in state.items() if isinstance(key, str)}
        return found


def _sealed(function: Callable[..., Any]) -> Any:
    """Return an object that calls a function, and that a pickle cannot change, as it could a function's attributes."""

    class Sealed:
        __slots__ = ()

        def __call__(self, *parts: Any, **named: Any) -> Any:
            return function(*parts, **named)

    return Sealed()


def _from_type(rebuild: Callable[..., Any], kind: Any, parts: tuple[Any, ...], state: Any) -> Any:
    """Return a tensor of a subclass as a plain one (`torch._tensor._rebuild_from_type_v2`)."""
    return rebuild(*parts)


def _parameter(data: Any, requires_grad: bool, *_: Any) -> Any:
    """Return a parameter without its hooks and other attributes, which could hide a tensor's methods."""
    return nn.Parameter(data, bool(requires_grad))


_REBUILDING = ("_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_sparse_tensor")
"""Functions of `torch._utils` that make tensors; `weights_only` allows them too."""

_KNOWN: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("builtins", "set"): set,
    ("__builtin__", "set"): set,
    ("torch", "Size"): torch.Size,
    ("torch._tensor", "_rebuild_from_type_v2"): _sealed(_from_type),
    ("torch._utils", "_rebuild_parameter"): _sealed(_parameter),
    ("torch._utils", "_rebuild_parameter_with_state"): _sealed(_parameter),
    **{("torch._utils", name): _sealed(getattr(torch._utils, name)) for name in _REBUILDING},
    **{
        ("torch", name): value
        for name, value in vars(torch).items()
        if isinstance(value, (torch.dtype, torch.layout))
    },
}
"""Objects that a pickle gets for these names; for all others it gets stand-ins."""


class _Unpickler(pickle._Unpickler):
    """Unpickler that imports nothing. The one in C would reserve memory for any number that a file names."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._kinds: dict[tuple[str, str], type[_StandIn]] = {}

    def find_class(self, module: str, name: str) -> Any:
        key = module, name
        if key in _KNOWN:
            return _KNOWN[key]
        if key not in self._kinds:
            self._kinds[key] = type(name.rpartition(".")[2], (_StandIn,), {"kind": f"{module}.{name}"})
        return self._kinds[key]


def _load(file: Any, **named: Any) -> Any:
    return _Unpickler(file, **named).load()


_INERT = types.SimpleNamespace(__name__="inert", Unpickler=_Unpickler, load=_load)
"""The parts of the module `pickle` that torch.load uses."""


class _StorageUnpickler(_Unpickler):
    """Unpickler that makes the tensors' storages itself; their types are those of elements."""

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and name.endswith("Storage"):
            return getattr(torch, name).dtype
        return super().find_class(module, name)

    def persistent_load(self, pid: Any) -> Any:
        kind, dtype, *rest = pid
        if kind != "storage":
            return dtype
        key, _, count, *_ = rest
        typed: Any = torch.storage.TypedStorage
        return typed(wrap_storage=self.make_storage(str(key), count, dtype), dtype=dtype, _internal=True)

    def make_storage(self, key: str, count: int, dtype: torch.dtype) -> torch.UntypedStorage:
        raise NotImplementedError


class _StorageKeys(_StorageUnpickler):
    """Unpickler that keeps the keys of the storages that a file's tensors have, and reads no elements."""

    def __init__(self, file: Any) -> None:
        super().__init__(file)
        self.keys: set[str] = set()

    def make_storage(self, key: str, count: int, dtype: torch.dtype) -> torch.UntypedStorage:
        self.keys.add(key)
        return torch.empty(count, dtype=dtype, device="meta").untyped_storage()


def _require_contents(path: Path) -> None:
    """Refuse a file as torch wrote it before 1.6 that lacks contents: torch.load would return unset memory.

    Such a file is five pickles, the last of which lists the storages whose elements follow (torch/serialization.py).
    """
    with path.open("rb") as file:
        for _ in ("magic number", "protocol", "system"):
            _load(file)
        tensors = _StorageKeys(file)
        tensors.load()
        missing = tensors.keys - {*map(str, _load(file))}
    if missing:
        raise SourceError(
            f"{path}: lacks the elements of {len(missing):,} of its tensors' storages; save the state dict again"
        )


# TorchScript


class _ScriptState(dict[str, torch.Tensor]):
    """Tensors of a TorchScript archive, by their names in the module."""


def _read_script(path: Path) -> _ScriptState:
    """Read the tensors of the objects in an archive of torch.jit.save (PyTorch, torch/csrc/jit/docs/serialization.md).

    Raises:
        SourceError: it has none, as after `torch.jit.freeze`, which makes constants of the code of them.
    """
    _is_stored_plainly(path)  # or its records are too large
    with zipfile.ZipFile(path) as archive, path.open("rb") as file, quiet():
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        [name] = [name for name in archive.namelist() if name.count("/") == 1 and name.endswith("/data.pkl")]
        root = name.removesuffix("data.pkl")
        loaded = _ScriptUnpickler(io.BytesIO(archive.read(name)), archive, mapped, f"{root}data/").load()
    state = _ScriptState()
    waiting = [("", loaded)]
    for prefix, holder in waiting:  # grows as it goes
        for key, value in holder.fields().items() if isinstance(holder, _StandIn) else ():
            if isinstance(value, torch.Tensor):
                state[prefix + key] = value
            elif isinstance(value, _StandIn):
                waiting.append((f"{prefix}{key}.", value))
        if len(waiting) + len(state) > _MOST_MODULES:
            raise SourceError(f"{path}: holds a module of more modules than any model has")
    if not state:
        raise SourceError(
            f"{path}: a TorchScript archive without named tensors: torch.jit.freeze makes constants of them; save the "
            "model before it"
        )
    return state


class _ScriptUnpickler(_StorageUnpickler):
    """Unpickler of an archive's objects, with tensors that are mapped from the file."""

    def __init__(self, file: io.BytesIO, archive: zipfile.ZipFile, mapped: mmap.mmap, root: str) -> None:
        super().__init__(file)
        self._archive, self._mapped, self._root = archive, mapped, root
        self._storages: dict[str, torch.UntypedStorage] = {}

    def make_storage(self, key: str, count: int, dtype: torch.dtype) -> torch.UntypedStorage:
        if key not in self._storages:
            self._storages[key] = self._read(key)
        return self._storages[key]

    def _read(self, key: str) -> torch.UntypedStorage:
        record = self._archive.getinfo(self._root + key)
        content, start = bytearray(), 0
        if record.compress_type == zipfile.ZIP_STORED:
            header = self._mapped[record.header_offset : record.header_offset + _HEADER]
            names = sum(int.from_bytes(header[at : at + 2], "little") for at in (_HEADER - 4, _HEADER - 2))
            start = record.header_offset + _HEADER + names
        else:
            content = bytearray(self._archive.read(record))
        if not record.file_size:
            return torch.empty(0).untyped_storage()
        found = torch.frombuffer(
            content or self._mapped, dtype=torch.uint8, count=record.file_size, offset=start
        )
        return found.untyped_storage()


_HEADER = 30
"""Bytes of a record's header in a zip archive, before its name and extra field; it ends with the lengths of these two
(PKWARE, APPNOTE 4.3.7).
"""


# modules


class _ModuleState(dict[str, torch.Tensor]):
    """State dict of a module that was read without its code."""

    def __init__(self, kind: str, module: nn.Module) -> None:
        super().__init__(module.named_parameters(remove_duplicate=False))
        for prefix, owner in module.named_modules(remove_duplicate=False):
            for name, buffer in owner._buffers.items():
                if buffer is not None and name not in owner._non_persistent_buffers_set:
                    self[f"{prefix}.{name}" if prefix else name] = buffer
        self.kind = kind
        self.module = module


_MOST_MODULES = 100_000
"""Most modules, by all their names; no model has as many."""

_PARTS = ("_parameters", "_buffers", "_modules")
_DEEPEST = 64
"""Most levels of modules in modules."""


def _plain(path: Path, loaded: Any) -> Any:
    """Return mappings as plain ones, and stand-ins as state dicts, where they are modules, or as their attributes.

    It goes down to the tensors of a state dict that is two levels below. What a file sets on a mapping or a tensor is
    left behind.

    Raises:
        SourceError: a module is nested too deep, or has too many modules; or a tensor is of a shape that no array has.
    """
    count = [0]

    def plain(value: Any, levels: int) -> Any:
        if isinstance(value, _StandIn):
            fields = value.fields()
            if _is_module(fields):
                return _ModuleState(value.kind, _unwrapped(_module(path, value, count, 0)))
            value = fields
        if isinstance(value, torch.Tensor):
            return _bare(path, value)
        if isinstance(value, dict) and levels >= 0:
            return {key: plain(inner, levels - 1) for key, inner in dict.items(value)}
        if isinstance(value, list) and levels >= 0:
            return [plain(inner, levels - 1) for inner in value]
        return value

    return plain(loaded, _MOST_LEVELS)


_MOST_AXES = 32
_LONGEST_AXIS = 1 << 48


def _bare(path: Path, tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor without attributes that a file may have set on it."""
    shape = torch.Tensor.size(tensor)
    if len(shape) > _MOST_AXES or any(side > _LONGEST_AXIS for side in shape):
        raise SourceError(f"{path}: holds a tensor of a shape that no model has; save the state dict again")
    return torch.Tensor.detach(tensor)


_WRAPPING = ("module", "_orig_mod")
"""Names of the only module in DataParallel, DistributedDataParallel and a module of torch.compile."""


def _unwrapped(module: nn.Module) -> nn.Module:
    while len(module._modules) == 1 and not module._parameters and not module._buffers:
        [(name, inner)] = module._modules.items()
        if name not in _WRAPPING or inner is None:
            break
        module = inner
    return module


def _is_module(fields: Mapping[str, Any]) -> bool:
    return all(isinstance(fields.get(part), Mapping) for part in _PARTS)


def _module(path: Path, stand_in: _StandIn, count: list[int], depth: int) -> nn.Module:
    """Make a module without code of a stand-in."""
    count[0] += 1
    if depth > _DEEPEST or count[0] > _MOST_MODULES:
        raise SourceError(f"{path}: holds a module of more modules than any model has; save its state_dict()")
    fields = stand_in.fields()
    made: nn.Module = object.__new__(_class_of(stand_in.kind))
    nn.Module.__init__(made)
    made.training = fields.get("training") is True
    if isinstance(fields.get("eps"), float):
        made.eps = fields["eps"]  # of a BatchNorm; other attributes could hide a module's methods
    for key, parameter in _named(fields["_parameters"]):
        if isinstance(parameter, nn.Parameter):
            made._parameters[key] = nn.Parameter(_bare(path, parameter), bool(parameter.requires_grad))
    for key, buffer in _named(fields["_buffers"]):
        if isinstance(buffer, torch.Tensor):
            made._buffers[key] = _bare(path, buffer)
    unsaved = fields.get("_non_persistent_buffers_set")
    made._non_persistent_buffers_set = unsaved if isinstance(unsaved, set) else set()
    for key, inner in _named(fields["_modules"]):
        if isinstance(inner, _StandIn) and _is_module(inner.fields()):
            made._modules[key] = _module(path, inner, count, depth + 1)
    return made


def _class_of(kind: str) -> type[nn.Module]:
    """Return torch's own class of this name, whose instances the census knows; else an empty one."""
    package, _, name = kind.rpartition(".")
    known = getattr(nn, name, None) if package.startswith("torch.nn.modules.") else None
    if isinstance(known, type) and issubclass(known, nn.Module) and known.__module__ == package:
        return known
    return type(name or "Module", (nn.Module,), {})


def _named(found: Mapping[Any, Any]) -> Iterable[tuple[str, Any]]:
    return ((key, value) for key, value in found.items() if isinstance(key, str) and key and "." not in key)


# the state dict in it


_Where = tuple[str | int, ...]
"""Keys and positions from a loaded object down to a state dict; empty for the object itself."""


def _shown(where: tuple[object, ...]) -> str:
    return ".".join(str(key) if isinstance(key, (str, int)) else f"a {type(key).__name__}" for key in where)


def _choose(loaded: Any, parts: Sequence[str]) -> tuple[Mapping[Any, Any], _Where] | None:
    """Return the state dict that the only part names, and where it is, or those that several parts name, as one."""
    nested = _nested(loaded) if isinstance(loaded, Mapping) and parts else {}
    by_name = {_shown(where): where for where in nested}
    if not parts or not by_name.keys() >= set(parts):
        return None
    if len(parts) == 1:
        return nested[by_name[parts[0]]], by_name[parts[0]]
    joined = {f"{part}.{key}": value for part in parts for key, value in nested[by_name[part]].items()}
    return joined, by_name[parts[0]][:1]


def _find(path: Path, loaded: Any, is_plain: bool) -> tuple[Mapping[Any, Any], _Where]:
    """Return the state dict in a loaded object, and where it is.

    Raises:
        SourceError: there is none, or several and none has a known key.
    """
    if not isinstance(loaded, Mapping):
        kind = type(loaded).__name__
        raise SourceError(f"{path}: holds a {kind} and no state dict; save model.state_dict() instead")
    for key in _NESTED:
        if isinstance(loaded.get(key), Mapping) and _has_tensors(loaded[key].values()):
            return loaded[key], (key,)
    nested = _nested(loaded)
    tensors = [value for value in loaded.values() if isinstance(value, torch.Tensor)]
    if tensors and (not nested or any(tensor.numel() > 1 and _is_real(tensor) for tensor in tensors)):
        return loaded, ()  # else the tensors are of the training: an accuracy, a random generator's state
    if len(nested) == 1:
        [(where, found)] = nested.items()
        return found, where
    if nested:
        names, choose = listed(map(_shown, nested)), _to_choose(path, nested, is_plain)
        raise SourceError(f"{path}: holds {len(nested)} state dicts: {names}; {choose}")
    held = listed(_shown((key,)) for key in loaded) or "nothing"
    raise SourceError(f"{path}: holds no state dict, only {held}; save model.state_dict() instead")


_EXTRA = "_extra_state"
"""End of the key under which a module stores what `get_extra_state` returns."""

_MOST_LEVELS = 2
"""Most steps from a loaded object down to a state dict, as in `{"model_ema": {"module": ...}}`."""


def _nested(
    loaded: Mapping[Any, Any] | list[Any], levels: int = _MOST_LEVELS
) -> dict[_Where, Mapping[Any, Any]]:
    """Return the mappings of tensors inside a loaded object, by where they are."""
    found: dict[_Where, Mapping[Any, Any]] = {}
    for key, value in enumerate(loaded) if isinstance(loaded, list) else loaded.items():
        is_place = isinstance(key, str) or isinstance(loaded, list)  # an optimizer's state is by numbers
        if not is_place or str(key).endswith(_EXTRA):
            continue
        if isinstance(value, Mapping) and any(map(_is_real, value.values())):
            if all(isinstance(name, str) for name in value):
                found[key,] = value
        elif isinstance(value, (Mapping, list)) and levels > 1:
            found |= {(key, *inner): each for inner, each in _nested(value, levels - 1).items()}
    return found


def _to_choose(path: Path, found: Mapping[_Where, Any], is_plain: bool) -> str:
    """Return what to do to compare with one of several state dicts."""
    where = min(found, key=_shown)
    keys = "".join(f"[{part!r}]" for part in where)
    named = f"to compare with one, name it, as in --part {_shown(where)}"
    if isinstance(found[where], _ModuleState):  # only its code can load it
        return named
    load = f"torch.load({path.name!r}, weights_only={is_plain})"
    return f"{named}, or save it alone: torch.save({load}{keys}, 'state.pt')"


def _is_real(value: Any) -> bool:
    """Whether it is a tensor of the kind that layers learn; a random generator's state is of integers."""
    if not isinstance(value, torch.Tensor):
        return False
    return value.is_floating_point() or value.is_complex() or value.is_quantized


def _has_tensors(values: Iterable[Any]) -> bool:
    return any(isinstance(value, torch.Tensor) for value in values)


def _is_endless(tensor: torch.Tensor) -> bool:
    if tensor.layout is not torch.strided or tensor.nbytes <= _MOST_REPEATED:
        return False
    return tensor.nbytes > tensor.untyped_storage().nbytes()
