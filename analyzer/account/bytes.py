"""Entries + files -> accounts: every byte on disk booked once."""

from __future__ import annotations

import heapq
import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from analyzer.account.ledger import Account, Entry, Role
from analyzer.errors import LedgerError
from analyzer.model import Model
from analyzer.model.ranges import Source
from analyzer.read.book import ORPHANED, STRUCTURE

PADDING = "[padding]"
"""Zeros before a tensor in an external file, or at the file's end: fewer bytes than an alignment takes."""

_ALIGNMENT = 1 << 16
"""Largest alignment of external data in bytes (ONNX docs/ExternalData.md: 64 KiB on Windows, 4 KiB else)."""


class Gap(NamedTuple):
    """Bytes of an external file that no tensor claims."""

    file: str
    offset: int
    length: int


class Booked(NamedTuple):
    """Accounts of the bytes of all files."""

    accounts: tuple[Account, ...]
    """Accounts that sum to the files' sizes."""
    shared: int
    """Payload bytes that several tensors claim, beyond the first in file order: the accounts hold each byte once."""
    overlaps: tuple[tuple[Entry, Entry], ...]
    """Neighbours in an external file whose ranges overlap without being equal."""
    orphans: tuple[Gap, ...]
    """Unclaimed bytes that are not padding."""


def book_bytes(model: Model, entries: Sequence[Entry]) -> Booked:
    """Book payload by role, then the rest of each file. A shared byte goes to the first tensor in file order.

    Raises:
        LedgerError: the accounts do not sum to the files' sizes.
    """
    nbytes: dict[str, int] = {role.value: 0 for role in Role} | dict(model.structure) | {PADDING: 0}
    claims: dict[str, list[_Claim]] = defaultdict(list)
    for order, entry in enumerate(entries):
        extent = entry.tensor.extent
        outside = extent.length if extent is not None else 0
        nbytes[entry.role.value] += entry.tensor.nbytes - outside
        if extent is not None and extent.length:
            claims[extent.file].append(_Claim(extent.offset, extent.offset + extent.length, order, entry))
    gaps: list[Gap] = []
    overlaps: list[tuple[Entry, Entry]] = []
    shared = 0
    for part in model.parts:  # a model file has booked its own bytes, and may be external data of another
        shared += sum(claim.end - claim.start for claim in claims[part.files[0]])
    for file in model.external:
        ranges = sorted(claims[file.key], key=lambda claim: (claim.start, claim.end, claim.order))
        for role, booked in _book_ranges(ranges).items():
            nbytes[role.value] += booked
            shared -= booked
        shared += sum(claim.end - claim.start for claim in ranges)
        overlaps += _overlaps(ranges)
        gaps += _gaps(file.key, file.nbytes, ranges)
    orphans = []
    for gap in gaps:
        is_padding = _is_padding(model.sources.get(gap.file), gap)
        nbytes[PADDING if is_padding else ORPHANED] += gap.length
        if not is_padding:
            orphans.append(gap)
    accounts = tuple(Account(name, nbytes[name]) for name in _order(nbytes))
    if any(account.nbytes < 0 for account in accounts):
        raise LedgerError(f"{model.path}: the payloads claim more bytes than the files have: {accounts}")
    return Booked(accounts, shared, tuple(overlaps), tuple(orphans))


def _order(nbytes: Iterable[str]) -> Iterator[str]:
    yield from (role.value for role in Role)
    yield from (name for name in STRUCTURE if name in nbytes and name != ORPHANED)
    yield from (name for name in (PADDING, ORPHANED) if name in nbytes)


class _Claim(NamedTuple):
    start: int
    end: int
    order: int
    entry: Entry


def _book_ranges(ranges: Sequence[_Claim]) -> dict[Role, int]:
    """Return bytes per role; each byte goes to the lowest order that claims it. Ranges are sorted by their start."""
    booked: dict[Role, int] = defaultdict(int)
    edges = sorted({edge for claim in ranges for edge in (claim.start, claim.end)})
    open_claims: list[tuple[int, int, Role]] = []  # a heap of (order, end, role)
    following = iter(ranges)
    claim = next(following, None)
    for start, end in itertools.pairwise(edges):
        while claim is not None and claim.start <= start:
            heapq.heappush(open_claims, (claim.order, claim.end, claim.entry.role))
            claim = next(following, None)
        while open_claims and open_claims[0][1] <= start:
            heapq.heappop(open_claims)
        if open_claims:
            booked[open_claims[0][2]] += end - start
    return dict(booked)


def _overlaps(ranges: Sequence[_Claim]) -> Iterator[tuple[Entry, Entry]]:
    """Yield each range that begins within an earlier one and is not equal to it, with the earlier one's entry."""
    furthest: _Claim | None = None
    for claim in ranges:
        if furthest is not None and claim.start < furthest.end and not _is_same(claim, furthest):
            yield furthest.entry, claim.entry
        if furthest is None or claim.end > furthest.end:
            furthest = claim


def _is_same(a: _Claim, b: _Claim) -> bool:
    return (a.start, a.end) == (b.start, b.end)


def _gaps(file: str, size: int, ranges: Sequence[_Claim]) -> Iterator[Gap]:
    position = 0
    for claim in ranges:
        if claim.start > position:
            yield Gap(file, position, claim.start - position)
        position = max(position, claim.end)
    if position < size:
        yield Gap(file, position, size - position)


def _is_padding(source: Source | None, gap: Gap) -> bool:
    """Whether a gap is alignment: short, and zero where its bytes can be read (remote bytes are not read)."""
    if gap.length >= _ALIGNMENT:
        return False
    if source is None or source.is_remote:
        return True
    return not any(source.read(gap.offset, gap.length))
