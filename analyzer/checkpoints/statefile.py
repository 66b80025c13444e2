"""Tensors, one at a time -> a safetensors file that appears whole or not at all.

The format is that of https://huggingface.co/docs/safetensors: the header's length in 8 bytes, the header in JSON, the
elements. All sizes are known before anything is written, so that no more than a part of a tensor is in memory.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from analyzer.checkpoints.checkpoint import SAFETENSORS_TYPES
from analyzer.errors import LedgerError, UsageError
from analyzer.model.content import Array
from analyzer.model.dtypes import DType
from analyzer.records import Frozen
from analyzer.version import version

STATE_TYPES = {dtype: name for name, dtype in SAFETENSORS_TYPES.items() if dtype.to_numpy() is not None}
"""Names in safetensors of the types that can be written."""

PARTIAL = ".partial"
"""Suffix of the file's name while the file is written."""

_ALIGNMENT = 8
"""Spaces pad the header to a multiple of this number of bytes, as in the `safetensors` library."""

_WRITTEN_BY = "written_by"
_PROGRAM = "onnxledger recover"


class FileTensor(Frozen):
    """A tensor in the file."""

    name: str
    dtype: DType
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return self.dtype.nbytes(math.prod(self.shape))


def write_state_file(
    path: Path,
    slots: Sequence[FileTensor],
    values: Callable[[FileTensor], Iterator[Array]],
    ties: Mapping[str, str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Write a state dict, verify it with the `safetensors` library, and only then rename it to its final name.

    Args:
        path: the file, which is replaced if it exists.
        slots: the tensors of the file, in any order; each name once.
        values: function that yields the elements of a tensor, flat and in order, in parts of any size.
        ties: names that are left out -> the name that stands for each, recorded as `safetensors.torch.save_model` does.
        progress: called with (done, total) in bytes.

    Raises:
        UsageError: the file cannot be written.
        LedgerError: `values` gave more or less than a tensor has, or the written file cannot be read.
    """
    partial = path.with_name(path.name + PARTIAL)
    try:
        _write(partial, slots, values, ties or {}, progress)
        _verify(partial, slots)
        partial.replace(path)
    except OSError as error:
        raise UsageError(f"-o {path}: cannot be written: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


def _write(
    partial: Path,
    slots: Sequence[FileTensor],
    values: Callable[[FileTensor], Iterator[Array]],
    ties: Mapping[str, str],
    progress: Callable[[int, int], None] | None,
) -> None:
    # Wide types come first, as in the library's order, so that every tensor begins at a multiple of its element size.
    ordered = sorted(slots, key=lambda slot: (-slot.dtype.bits, slot.name))
    total, done = sum(slot.nbytes for slot in ordered), 0
    with partial.open("wb") as file:
        file.write(_header(ordered, ties))
        for slot in ordered:
            written = 0
            for part in values(slot):
                written += file.write(
                    part.astype(part.dtype.newbyteorder("<"), copy=False).reshape(-1).view("u1").data
                )
                if progress is not None:
                    progress(done + written, total)
            if written != slot.nbytes:
                raise LedgerError(f"{slot.name}: {written:,} bytes for {slot.nbytes:,}")
            done += written


def _header(slots: Sequence[FileTensor], ties: Mapping[str, str]) -> bytes:
    known = {"format": "pt", _WRITTEN_BY: f"{_PROGRAM} {version()}"}
    header: dict[str, Any] = {"__metadata__": {**dict(sorted(ties.items())), **known}}
    start = 0
    for slot in slots:
        header[slot.name] = {
            "dtype": STATE_TYPES[slot.dtype],
            "shape": list(slot.shape),
            "data_offsets": [start, start + slot.nbytes],
        }
        start += slot.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def _verify(path: Path, slots: Sequence[FileTensor]) -> None:
    """Check the names, types and shapes that the library reads from the file.

    Raises:
        LedgerError: they are not those that were written.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="np") as opened:
            views = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118  it is no mapping
            found = {name: (view.get_dtype(), tuple(view.get_shape())) for name, view in views.items()}
    except SafetensorError as error:
        raise LedgerError(f"{path}: the written file cannot be read: {error}") from error
    expected = {slot.name: (STATE_TYPES[slot.dtype], slot.shape) for slot in slots}
    if found != expected:
        wrong = sorted(set(found.items()) ^ set(expected.items()))
        raise LedgerError(f"{path}: the written file has another type or shape for {wrong[0][0]}")


def is_ours(path: Path) -> bool:
    """Whether `write_state_file` wrote a file, which may then be overwritten."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="np") as opened:
            metadata = opened.metadata() or {}
    except (OSError, SafetensorError):
        return False
    return str(metadata.get(_WRITTEN_BY, "")).startswith(_PROGRAM)
