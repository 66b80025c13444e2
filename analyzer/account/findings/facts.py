"""Results of earlier stages -> facts for the rules of findings: values, and bytes that a fix saves."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from analyzer.account.bytes import Booked
from analyzer.account.ledger import Entry, Opaque, Role
from analyzer.model import Extent, Key, Model, label
from analyzer.model.content import Array, ContentMode, sample_positions
from analyzer.model.dtypes import DType
from analyzer.model.functions import Calls
from analyzer.model.liveness import Live
from analyzer.model.wiring import Wiring
from analyzer.read.payload import read_elements_together, read_together

# facts from values

_SMALL = 1 << 16
"""Largest tensor, in bytes, that is read whole."""

_TOGETHER = 1 << 10
"""Small tensors that are read with one opening of their file."""


class Values(NamedTuple):
    """Facts about the values of learned tensors and buffers."""

    constant: frozenset[Key] = frozenset()
    """Learned tensors whose elements, as far as they were read, are all equal."""
    not_finite: frozenset[Key] = frozenset()
    """Tensors with a NaN, or with an infinity that is not part of a mask."""
    sampled: frozenset[Key] = frozenset()
    """Tensors in `constant` of which only some elements were read."""


def check_values(
    entries: Iterable[Entry],
    content: ContentMode,
    progress: Callable[[int, int], None] | None = None,
    salt: str = "",
) -> Values:
    """Read the values of all learned tensors, buffers and scales of a floating-point type.

    If contents are sampled, `salt` selects the elements of large tensors.
    """
    if content == "none":
        return Values()
    most = {dtype: 8 * _SMALL // dtype.bits for dtype in DType if dtype.is_floating}
    checked = [e for e in entries if e.role in _CHECKED_ROLES and e.tensor.dtype in most and e.tensor.numel]
    small = [entry for entry in checked if entry.tensor.numel <= most[entry.tensor.dtype]]
    constant: set[Key] = set()
    not_finite: set[Key] = set()
    for start in range(0, len(small), _TOGETHER):
        batch = small[start : start + _TOGETHER]
        _check_together(batch, constant, not_finite)
        if progress is not None:
            progress(start + len(batch), len(checked))
    places = functools.cache(functools.partial(sample_positions, salt=salt))  # large tensors have few sizes
    large = (entry for entry in checked if entry.tensor.numel > most[entry.tensor.dtype])
    for done, entry in enumerate(large, start=len(small) + 1):
        _check_values(entry, _contents(entry, content, places), constant, not_finite)
        if progress is not None:
            progress(done, len(checked))
    whole = {entry.tensor.key for entry in (checked if content == "full" else small)}
    return Values(frozenset(constant), frozenset(not_finite), frozenset(constant - whole))


_CHECKED_ROLES = frozenset({Role.PARAMETER, Role.BUFFER, Role.QUANTIZATION})


def _contents(
    entry: Entry, content: ContentMode, places: Callable[[int], npt.NDArray[np.int64]]
) -> Iterator[Array]:
    """Yield all elements of a large tensor, or those at the positions sampled for its size."""
    if content == "full":
        yield from entry.tensor.payload.parts()
    else:
        sampled = entry.tensor.payload.at(places(entry.tensor.numel))
        if sampled is not None:
            yield sampled


def _check_values(entry: Entry, parts: Iterable[Array], constant: set[Key], not_finite: set[Key]) -> None:
    """Record whether a tensor's elements are constant or not finite."""
    first: bytes | None = None
    is_constant = entry.role is Role.PARAMETER and entry.tensor.numel > 1
    for part in parts:
        if not _is_sound(part, entry.role):
            not_finite.add(entry.tensor.key)
        if is_constant:
            first = part[:1].tobytes() if first is None else first
            is_constant = part[-1:].tobytes() == first and part.tobytes() == first * len(part)
    if is_constant and first is not None:
        constant.add(entry.tensor.key)


def _check_together(entries: Sequence[Entry], constant: set[Key], not_finite: set[Key]) -> None:
    """Record facts about the elements of small tensors, with one test for NaN and infinities for all of a type."""
    by_type: dict[np.dtype, list[tuple[Entry, bytes]]] = defaultdict(list)
    others: list[Entry] = []
    found = read_elements_together([entry.tensor.payload for entry in entries])
    for entry, elements in zip(entries, found, strict=True):
        if elements is None:
            others.append(entry)
        else:
            by_type[elements[0]].append((entry, elements[1]))
    for element, members in by_type.items():
        whole = np.frombuffer(b"".join([content for _, content in members]), element)
        are_sound = _is_sound(whole, Role.PARAMETER)
        size = element.itemsize
        for entry, content in members:
            if not are_sound and not _is_sound(np.frombuffer(content, element), entry.role):
                not_finite.add(entry.tensor.key)
            first = content[:size]
            may_be_constant = content[-size:] == first and entry.tensor.numel > 1
            if may_be_constant and entry.role is Role.PARAMETER and content == first * (len(content) // size):
                constant.add(entry.tensor.key)
    for entry, array in zip(others, read_together([e.tensor.payload for e in others]), strict=True):
        if array is not None:
            _check_values(entry, [array.reshape(-1)], constant, not_finite)


def _is_sound(part: Array, role: Role) -> bool:
    """Whether there is no NaN, and no infinity in a weight or a scale; a mask may hold minus infinity."""
    if part.dtype.kind not in "fcV":
        return True  # codes of a few bits
    if part.dtype.kind == "V":
        # bfloat16 and float8 do not have their own test for infinity everywhere.
        part = part.astype(np.float32)
    test = np.isnan(part).any if role is Role.BUFFER else (~np.isfinite(part)).any
    return not test()


# bytes of entries


def count_freed(removed: Iterable[Entry], entries: Sequence[Entry], model: Model) -> int:
    """Return the payload bytes that the files lose without these entries, each byte once.

    Args:
        removed: some of `entries`.
        entries: all of them.
        model: the model that holds them. Bytes inside its model files that are also external data cannot be removed.
    """
    going = {entry.tensor.key: entry for entry in removed}
    outside = sum(each.tensor.extent.length for each in going.values() if each.tensor.extent is not None)
    inline = sum(entry.tensor.nbytes for entry in going.values()) - outside
    files = {file.key for file in model.external}
    files &= {entry.tensor.extent.file for entry in going.values() if entry.tensor.extent is not None}
    all_claims: dict[str, list[Extent]] = defaultdict(list)
    staying: dict[str, list[Extent]] = defaultdict(list)
    for entry in entries if files else ():
        extent = entry.tensor.extent
        if extent is not None and extent.file in files:
            all_claims[extent.file].append(extent)
            if entry.tensor.key not in going:
                staying[extent.file].append(extent)
    return inline + sum(_count(all_claims[file]) - _count(staying[file]) for file in files)


def _count(extents: Iterable[Extent]) -> int:
    """Count bytes that at least one of the ranges of one file covers."""
    covered = position = 0
    for start, length in sorted((extent.offset, extent.length) for extent in extents):
        covered += max(0, start + length - max(start, position))
        position = max(position, start + length)
    return covered


# input of rules


class Facts(NamedTuple):
    """Results of earlier stages about a model."""

    model: Model
    entries: Sequence[Entry]
    wiring: Wiring
    booked: Booked
    values: Values
    live: Live
    opaque: Opaque | None = None
    """Opaque data; None if contents were not read."""
    calls: Sequence[Calls] = ()

    def freed(self, entries: Iterable[Entry]) -> int | None:
        """Return the bytes that the files lose without these entries; None if they lose none."""
        return count_freed(entries, self.entries, self.model) or None


def labels(entries: Iterable[Entry]) -> tuple[str, ...]:
    """Return the names of entries as findings list them, sorted."""
    return tuple(sorted(label(entry.tensor.key) for entry in entries))


def sum_elements(entries: Iterable[Entry]) -> int:
    """Return the number of stored elements."""
    return sum(entry.tensor.numel for entry in entries)


def sum_nbytes(entries: Iterable[Entry]) -> int:
    """Return the bytes of payload."""
    return sum(entry.tensor.nbytes for entry in entries)
