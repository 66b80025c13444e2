"""A safetensors file, or the index of several -> PyTorch's side, without torch: names, shapes and mapped values.

The `safetensors` library validates a header; the place of each tensor is then read from the header, so that values are
views of the file. The rules for shards that an index may name are those for external data of a model.
"""

from __future__ import annotations

import enum
import importlib.util
import json
import re
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

from analyzer.checkpoints import Original, Weights
from analyzer.checkpoints.packed import PackedWeights, describe_packed, find_packed, read_quantization
from analyzer.checkpoints.statedict import NamedTensor, describe_by_names, listed, plain_names
from analyzer.errors import ExternalDataError, ManifestError, ModelReadError
from analyzer.json_files import load_json
from analyzer.model.content import Array
from analyzer.model.dtypes import DType
from analyzer.read.source import LocalFile
from analyzer.records import Frozen

CONFIG_FILE = "config.json"
"""File beside a checkpoint that names the model's class."""


class CheckpointKind(enum.Enum):
    """A file that holds a state dict, or names the files that do."""

    SAFETENSORS = "safetensors"
    SAFETENSORS_INDEX = "safetensors-index"
    PICKLE = "state-dict"
    PICKLE_INDEX = "state-dict-index"

    @property
    def is_index(self) -> bool:
        return self in (CheckpointKind.SAFETENSORS_INDEX, CheckpointKind.PICKLE_INDEX)

    @property
    def is_pickle(self) -> bool:
        return self in (CheckpointKind.PICKLE, CheckpointKind.PICKLE_INDEX)


_SUFFIXES = {
    ".safetensors": CheckpointKind.SAFETENSORS,
    ".bin": CheckpointKind.PICKLE,
    ".pt": CheckpointKind.PICKLE,
    ".pth": CheckpointKind.PICKLE,
    ".ckpt": CheckpointKind.PICKLE,
}
_PICKLE_STARTS = (b"PK\x03\x04", *(b"\x80" + bytes([protocol]) for protocol in range(2, 6)))
"""First bytes of the zip archive that torch.save writes, and of a bare pickle, which it wrote before torch 1.6."""

_LENGTH = 8
"""Bytes at the start of a safetensors file that hold the length of its header."""

SAFETENSORS_TYPES = {
    "BOOL": DType.BOOL,
    "F4": DType.FLOAT4E2M1,
    "F6_E2M3": DType.FLOAT6E2M3,
    "F6_E3M2": DType.FLOAT6E3M2,
    "U8": DType.UINT8,
    "I8": DType.INT8,
    "F8_E5M2": DType.FLOAT8E5M2,
    "F8_E4M3": DType.FLOAT8E4M3FN,
    "F8_E8M0": DType.FLOAT8E8M0,
    "F8_E4M3FNUZ": DType.FLOAT8E4M3FNUZ,
    "F8_E5M2FNUZ": DType.FLOAT8E5M2FNUZ,
    "I16": DType.INT16,
    "U16": DType.UINT16,
    "F16": DType.FLOAT16,
    "BF16": DType.BFLOAT16,
    "I32": DType.INT32,
    "U32": DType.UINT32,
    "F32": DType.FLOAT,
    "C64": DType.COMPLEX64,
    "F64": DType.DOUBLE,
    "I64": DType.INT64,
    "U64": DType.UINT64,
}
"""Element types by their names in safetensors."""


def checkpoint_kind(path: Path) -> CheckpointKind | None:
    """Return the kind of a file by its first bytes, then its suffix; None for a folder, config, manifest or no file."""
    try:
        file = LocalFile.at(path)
        start = file.read(0, _LENGTH + 1)
    except ModelReadError:
        return None
    if start[_LENGTH:] == b"{" and int.from_bytes(start[:_LENGTH], "little") <= file.nbytes - _LENGTH:
        return CheckpointKind.SAFETENSORS
    if start.startswith(_PICKLE_STARTS):
        return CheckpointKind.PICKLE
    return _SUFFIXES.get(path.suffix) or _index_kind(path, start)


def _index_kind(path: Path, start: bytes) -> CheckpointKind | None:
    is_index = path.name.endswith(".index.json")
    if not is_index and (path.suffix != ".json" or not start.lstrip().startswith(b"{")):
        return None
    try:
        document = load_json(path)
    except (OSError, ValueError, RecursionError):
        document = None  # the code that opens the file reports the mistake
    shards = document.get("weight_map") if isinstance(document, dict) else None
    if not is_index and not isinstance(shards, dict):
        return None
    names = [str(shard) for shard in shards.values()] if isinstance(shards, dict) else [path.name]
    if any(".bin" in name for name in names):
        return CheckpointKind.PICKLE_INDEX
    return CheckpointKind.SAFETENSORS_INDEX


class _Place(Frozen):
    """Place of a tensor's elements in a file."""

    file: LocalFile
    offset: int
    nbytes: int
    dtype: DType
    shape: tuple[int, ...]


class MappedWeights(Frozen):
    """Values of safetensors files, as views of the files."""

    places: Mapping[str, _Place]
    """Places by the names in the files and by those in the manifest."""

    def array(self, name: str) -> Array | None:
        """Return the values as in `Weights.array`.

        Raises:
            ManifestError: the file changed since it was opened, or its header gives a shape that no array can have.
        """
        place = self.places.get(name)
        element = place.dtype.to_numpy() if place is not None else None
        if place is None or element is None:
            return None
        try:
            return place.file.view(place.offset, place.nbytes).view(element).reshape(place.shape)
        except ModelReadError as error:
            raise ManifestError(str(error)) from error
        except ValueError as error:
            raise ManifestError(
                f"{place.file.path}: {name} is of a shape that no array has: {error}"
            ) from error


def open_checkpoint(path: Path | str) -> Original:
    """Read PyTorch's side from a `.safetensors` file or index; names and values separate parameters from buffers.

    Raises:
        ManifestError: a file is missing or broken, or an index and its shards contradict each other.
    """
    path = Path(path)
    kind = checkpoint_kind(path)
    if kind is not None and kind.is_pickle:
        raise ManifestError(
            f"{path}: a pickled state dict, which only torch reads: use exporter.census_source"
        )
    if kind is CheckpointKind.SAFETENSORS_INDEX:
        opened, notes = _open_shards(path)
    else:
        opened, notes = _open_file(_file_at(path)), ()
    plain = plain_names(sorted(opened.places, key=_natural))
    by_name = {name: opened.places[stored] for stored, name in plain.items()}
    other = {name: opened.places[kept] for name, kept in opened.tied.items()}
    packed = find_packed(
        {name: (place.dtype, place.shape) for name, place in by_name.items()}, read_quantization(path.parent)
    )
    codes = {name for each in packed.values() for name in each.stored.values()}
    tensors = [
        NamedTensor(
            name,
            opened.places[stored].dtype,
            opened.places[stored].shape,
            tuple(
                tied for tied, kept in sorted(opened.tied.items()) if kept == stored and tied not in by_name
            ),
        )
        for stored, name in plain.items()
        if name not in codes
    ]
    tensors += [NamedTensor(name, DType.FLOAT, each.shape) for name, each in packed.items()]
    source = {"source": str(path), "kind": kind.value if kind else "safetensors", "weights": "checkpoint"}
    weights: Weights = MappedWeights({**other, **opened.places, **by_name})
    if packed:
        weights, notes = PackedWeights(weights, packed), (*notes, *describe_packed(packed))
    return describe_by_names(tensors, source, weights, notes)


def lacks_class(path: Path) -> str | None:
    """Return why no class can say which tensors of a checkpoint file are parameters; None where one can."""
    if not (path.parent / CONFIG_FILE).is_file():
        return f"no {CONFIG_FILE} is beside it"
    for package in ("torch", "transformers"):
        if importlib.util.find_spec(package) is None:  # finds the package without importing it
            return f"{package} is not installed"
    return None


def checkpoint_files(path: Path) -> tuple[Path, ...]:
    """Return the file itself, or the shards that an index names; each shard must stand beside its index.

    Raises:
        ManifestError: a shard is missing, or outside the index's folder.
    """
    kind = checkpoint_kind(path)
    if kind is None or not kind.is_index:
        return (path,)
    return tuple(sorted({file.path for file in read_index(path).values()}))


class _Opened(Frozen):
    """Content of the headers."""

    places: Mapping[str, _Place]
    tied: Mapping[str, str]
    """Names that were left out on saving -> the name that stands for each (`safetensors.torch.save_model`)."""


def _open_shards(path: Path) -> tuple[_Opened, tuple[str, ...]]:
    index = read_index(path)
    files = {file.key: file for file in index.values()}
    shards = {key: _open_file(file) for key, file in files.items()}
    places = {}
    for name, file in index.items():
        if name not in shards[file.key].places:
            raise ManifestError(
                f"{path}: says that {name} is in {file.path.name}, which does not hold it; download both again"
            )
        places[name] = shards[file.key].places[name]
    extra = {
        name: place for shard in shards.values() for name, place in shard.places.items() if name not in index
    }
    tied = {
        name: kept for shard in shards.values() for name, kept in shard.tied.items() if name not in places
    }
    notes = (f"{path}: its shards hold tensors that it does not name: {listed(extra)}",) if extra else ()
    return _Opened({**places, **extra}, tied), notes


def read_index(path: Path) -> dict[str, LocalFile]:
    """Return the shard of each tensor, by the tensor's name.

    Raises:
        ManifestError: the file cannot be read, is no index, or a shard is missing or not beside it.
    """
    try:
        document = load_json(path)
    except OSError as error:
        raise ManifestError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise ManifestError(f"{path}: not JSON ({error}); download it again") from error
    shards = document.get("weight_map") if isinstance(document, dict) else None
    if not isinstance(shards, dict) or not shards:
        raise ManifestError(
            f'{path}: no index of a checkpoint: it lacks a "weight_map" with names of tensors'
        )
    index = _file_at(path)
    files = {}
    for name, location in shards.items():
        if not isinstance(location, str) or PurePath(location).name != location or "\\" in location:
            raise ManifestError(
                f"{path}: says that {name} is in {location!r}, which is no plain file name: "
                "shards must be beside their index"
            )
        if location not in files:
            files[location] = _shard(index, location)
    return {name: files[location] for name, location in shards.items()}


def _shard(index: LocalFile, location: str) -> LocalFile:
    try:
        return index.sibling(location)
    except ExternalDataError as error:
        sentence = str(error).partition("] ")[2]  # drops the id of a finding
        for model, here in (
            ("the model's folder", "the folder of the index"),
            ("the model file", "the index"),
        ):
            sentence = sentence.replace(model, here)
        raise ManifestError(
            f"{index.path}: shard {sentence.removeprefix('location ')}; put the shards beside their index"
        ) from error


def _file_at(path: Path) -> LocalFile:
    try:
        return LocalFile.at(path)
    except ModelReadError as error:
        raise ManifestError(str(error).replace(".onnx file", ".safetensors file")) from error


def _open_file(file: LocalFile) -> _Opened:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(file.path), framework="np"):  # opening performs all checks
            pass
        start = file.read(0, _LENGTH)
        length = int.from_bytes(start, "little")
        header: dict[str, Any] = json.loads(file.read(_LENGTH, length))
    except (SafetensorError, OSError, ValueError) as error:
        raise ManifestError(_explain_refusal(file, error)) from error
    except ModelReadError as error:
        raise ManifestError(str(error)) from error
    metadata = header.pop("__metadata__", None) or {}
    places = {name: _place(file, _LENGTH + length, name, item) for name, item in header.items()}
    tied = {
        name: kept
        for name, kept in metadata.items()
        if name != "format" and kept in places and name not in places
    }
    return _Opened(places, tied)


def _place(file: LocalFile, data: int, name: str, item: Mapping[str, Any]) -> _Place:
    dtype = SAFETENSORS_TYPES.get(item["dtype"])
    if dtype is None:
        raise ManifestError(f"{file.path}: {name} is of type {item['dtype']}, which onnxledger does not know")
    start, end = item["data_offsets"]
    return _Place(file, data + start, end - start, dtype, tuple(item["shape"]))


def _explain_refusal(file: LocalFile, error: Exception) -> str:
    """Return the message for a file that `safetensors` refuses: the mistake, its place, and a remedy."""
    start = file.read(0, 1 << 10)
    length = int.from_bytes(start[:_LENGTH], "little")
    again = "download or save it again"
    if start.startswith(b"version https://git-lfs"):
        return f"{file.path}: a Git LFS pointer instead of the file; `git lfs pull` fetches it"
    if len(start) <= _LENGTH or start[_LENGTH:][:1] != b"{":
        return f"{file.path}: no safetensors file: no header begins at byte {_LENGTH}; {again}"
    if length > file.nbytes - _LENGTH:
        ends = f"its header should end at byte {_LENGTH + length:,}, the file ends at byte {file.nbytes:,}"
        return f"{file.path}: not a whole safetensors file: {ends}; {again}"
    reason = str(error).removeprefix("Error while deserializing header: ")
    where = f"its header (bytes {_LENGTH} to {_LENGTH + length:,} of {file.nbytes:,})"
    return f"{file.path}: not a whole safetensors file: {where}: {reason}; {again}"


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a sort key that orders numbers in names by value: layer 2 before layer 10."""
    parts = re.split(r"([0-9]+)", name)
    return [(len(part.lstrip("0")) if part[:1].isdigit() else 0, part) for part in parts]
