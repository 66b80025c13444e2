"""Entries that are to go -> bytes on disk that go with them: a byte that another tensor claims too stays."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from analyzer.ledger import Entry
from analyzer.model import Extent, Model

__all__ = ["count_freed"]


def count_freed(removed: Iterable[Entry], entries: Sequence[Entry], model: Model) -> int:
    """Payload bytes that the files lose without these entries, each byte once.

    Args:
        removed: some of `entries`.
        entries: all of them.
        model: whose they are. What lies in one of its model files and is external data besides cannot go.
    """
    going = {entry.tensor.key: entry for entry in removed}
    inline = sum(entry.tensor.nbytes - _outside(entry) for entry in going.values())
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


def _outside(entry: Entry) -> int:
    return entry.tensor.extent.length if entry.tensor.extent is not None else 0


def _count(extents: Iterable[Extent]) -> int:
    """Bytes that at least one of the ranges of one file holds."""
    covered = position = 0
    for start, length in sorted((extent.offset, extent.length) for extent in extents):
        covered += max(0, start + length - max(start, position))
        position = max(position, start + length)
    return covered
