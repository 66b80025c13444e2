"""Folder of model files that form one artifact -> names of its components, and their files.

An exporter that splits a model (encoder, decoder, decoder with past) writes `export.json`, which names the files.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analyzer.account.ledger import natural_order
from analyzer.errors import ExternalDataError, ModelReadError, UsageError

if TYPE_CHECKING:
    from analyzer.read.source import LocalFile

__all__ = ["EXPORT_NOTE", "MODEL_SUFFIX", "find_components", "is_artifact", "is_model_file"]

EXPORT_NOTE = "export.json"
"""File that an exporter writes beside the files of one artifact: `{"components": {name: {"file": ...}}}`."""

MODEL_SUFFIX = ".onnx"
_INNER = "onnx"
"""Folder in which optimum's checkpoints keep their model files."""
_LONGEST_NOTE = 1 << 26


def is_artifact(path: Path | str) -> bool:
    """Whether a path is a folder whose `export.json` says that its files are one artifact."""
    return os.path.isfile(os.path.join(path, EXPORT_NOTE))  # noqa: PTH113, PTH118 - unlike Path's, it never raises


def is_model_file(entry: os.DirEntry[str]) -> bool:
    """Whether a directory entry is a model file, according to its name."""
    is_named_so = entry.name.lower().endswith(MODEL_SUFFIX) and not entry.name.startswith(".")
    return is_named_so and not os.path.isdir(entry.path)  # noqa: PTH112 - unlike Path.is_dir, it never raises


def find_components(folder: Path | str) -> dict[str, str]:
    """Return the model files of an artifact by the names of its components, as paths below its folder.

    These are the files that its `export.json` names. If it names none, or does not exist, they are every .onnx file
    directly in the folder and in its `onnx` folder, in natural order, under the stems of their names; if there are
    none, those in its other folders, as in a diffusers pipeline, under the folders' names. A file that occurs twice is
    one component, under the first name.

    Raises:
        UsageError: there is no model file.
        ModelReadError: `export.json` cannot be read, or a file is outside the folder.
    """
    from analyzer.read.book import shown, unique_label  # imports onnx, which `is_artifact` does not need
    from analyzer.read.source import LocalFile

    folder = Path(folder)
    listed = (
        _read_export_note(LocalFile.at(folder / EXPORT_NOTE)) if is_artifact(folder) else []
    ) or _listed(folder)
    listed = listed or _of_folders(folder)
    if not listed:
        raise UsageError(
            f"{folder}: contains no {MODEL_SUFFIX} file; name a model, or a folder that contains one"
        )
    beside = LocalFile(folder / EXPORT_NOTE, "", 0, (0, 0, 0))
    found: dict[str, str] = {}
    keys: set[str] = set()
    taken: Counter[str] = Counter()
    for name, file in listed:
        try:
            key = beside.sibling(file).key  # the rules for external data: in the folder, or not opened
        except ExternalDataError as error:
            raise ModelReadError(f"{folder}: component {shown(name)}: {error}; export it again") from error
        if key not in keys:
            keys.add(key)
            found[unique_label(shown(name), taken)] = file
    return found


def _read_export_note(note: LocalFile) -> list[tuple[str, str]]:
    """Return (name, file) of the components that `export.json` names."""
    if note.nbytes > _LONGEST_NOTE:
        raise ModelReadError(f"{note.name}: is too large for a list of components; export it again")
    try:
        document = json.loads(note.read(0, note.nbytes))
    except (ValueError, RecursionError) as error:
        raise ModelReadError(f"{note.name}: not JSON ({error}); export it again") from error
    components = document.get("components", {}) if isinstance(document, dict) else None
    if not isinstance(components, dict):
        raise ModelReadError(f"{note.name}: its key components is not a JSON object; export it again")
    return [(_utf8(name), _file_of(note, item)) for name, item in components.items()]


def _file_of(note: LocalFile, item: Any) -> str:
    file = item.get("file") if isinstance(item, dict) else None
    if not isinstance(file, str):
        raise ModelReadError(f"{note.name}: a component names no file; export it again")
    return file


def _listed(folder: Path) -> list[tuple[str, str]]:
    """Return (name, file) of the model files in a folder, and in its folder `onnx`."""
    names = _model_names(folder)
    inner = _model_names(folder / _INNER) if (folder / _INNER).is_dir() else []
    stems = {Path(name).stem for name in names}
    found = [(Path(name).stem, name) for name in names]
    for name in inner:
        stem = Path(name).stem
        found.append((f"{_INNER}/{stem}" if stem in stems else stem, f"{_INNER}/{name}"))
    return [(_utf8(name), file) for name, file in found]


def _of_folders(folder: Path) -> list[tuple[str, str]]:
    """Return (name, file) of the model files in the folders of a folder: `unet/model.onnx` is `unet`."""
    try:
        names = [
            entry.name for entry in os.scandir(folder) if entry.is_dir() and not entry.name.startswith(".")
        ]
    except OSError as error:
        raise ModelReadError(f"{folder}: cannot be read: {error.strerror}") from error
    found: list[tuple[str, str]] = []
    for name in sorted(names, key=lambda name: (natural_order(name), name)):
        listed = _listed(folder / name)
        found += [(name if len(listed) == 1 else f"{name}/{stem}", f"{name}/{file}") for stem, file in listed]
    return [(_utf8(name), file) for name, file in found]


def _model_names(folder: Path) -> list[str]:
    try:
        names = [entry.name for entry in os.scandir(folder) if is_model_file(entry)]
    except OSError as error:
        raise ModelReadError(f"{folder}: cannot be read: {error.strerror}") from error
    return sorted(names, key=lambda name: (natural_order(name), name))


def _utf8(name: str) -> str:
    """Return a name that every JSON reader accepts: half a surrogate pair is escaped."""
    return name.encode("utf-8", "backslashreplace").decode("utf-8")
