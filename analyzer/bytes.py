"""Entries + files -> accounts: every byte on disk booked once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from analyzer.errors import LedgerError
from analyzer.ledger import Account, Entry, Role
from analyzer.model import Model

__all__ = ["GRAPH_STRUCTURE", "UNCLAIMED", "book_bytes"]

GRAPH_STRUCTURE = "[graph structure]"
"""What is left of the model file: nodes, names, metadata, shapes, protobuf's tags and lengths."""

UNCLAIMED = "[unclaimed external]"
"""Bytes of external files that no tensor claims: padding between tensors, and what was orphaned."""


def book_bytes(model: Model, entries: Sequence[Entry]) -> tuple[Account, ...]:
    """Payload by role, then the rest of each file. A byte that several tensors claim goes to the first in file order.

    Raises:
        LedgerError: the accounts do not sum to the files' sizes.
    """
    booked: dict[Role, int] = dict.fromkeys(Role, 0)
    claims: dict[Path, list[tuple[int, int, int, Role]]] = defaultdict(list)
    inline = 0
    for order, entry in enumerate(entries):
        extent = entry.tensor.extent
        outside = extent.length if extent is not None else 0
        booked[entry.role] += entry.tensor.nbytes - outside
        inline += entry.tensor.nbytes - outside
        if extent is not None:
            claims[extent.file].append((order, extent.offset, extent.offset + extent.length, entry.role))
    for ranges in claims.values():
        for role, nbytes in _book_ranges(ranges).items():
            booked[role] += nbytes
    main, *external = (file.nbytes for file in model.files)
    claimed = sum(booked.values()) - inline
    accounts = [Account(role.value, booked[role]) for role in Role]
    accounts += [Account(GRAPH_STRUCTURE, main - inline), Account(UNCLAIMED, sum(external) - claimed)]
    if any(account.nbytes < 0 for account in accounts):
        raise LedgerError(f"{model.path}: the payloads claim more bytes than the files have: {accounts}")
    return tuple(accounts)


def _book_ranges(ranges: list[tuple[int, int, int, Role]]) -> dict[Role, int]:
    """Bytes per role where each byte goes to the lowest order that claims it. Ranges are (order, start, end, role).

    >>> _book_ranges([(0, 0, 8, Role.PARAMETER), (1, 4, 12, Role.BUFFER)])
    {<Role.PARAMETER: 'parameter'>: 8, <Role.BUFFER: 'buffer'>: 4}
    """
    booked: dict[Role, int] = defaultdict(int)
    open_claims: dict[int, Role] = {}
    events: dict[int, list[tuple[int, Role | None]]] = defaultdict(list)
    for order, start, end, claimed in ranges:
        if end > start:
            events[start].append((order, claimed))
            events[end].append((order, None))
    previous = 0
    for position in sorted(events):
        if open_claims:
            booked[open_claims[min(open_claims)]] += position - previous
        for order, role in events[position]:
            if role is None:
                del open_claims[order]
            else:
                open_claims[order] = role
        previous = position
    return dict(booked)
