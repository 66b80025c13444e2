"""What the findings' rules are given."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from analyzer.bytes import Booked
from analyzer.findings.freed import count_freed
from analyzer.findings.values import Values
from analyzer.functions import Calls
from analyzer.ledger import Entry, Opaque
from analyzer.liveness import Live
from analyzer.model import Model, label
from analyzer.wiring import Wiring

__all__ = ["Evidence", "labels", "sum_elements", "sum_nbytes"]


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the stages before know of a model."""

    model: Model
    entries: Sequence[Entry]
    wiring: Wiring
    booked: Booked
    values: Values
    live: Live
    opaque: Opaque | None = None
    """None where contents were not looked at."""
    calls: Sequence[Calls] = ()

    def freed(self, entries: Iterable[Entry]) -> int | None:
        """Bytes that the files lose without these entries; None where they lose nothing."""
        return count_freed(entries, self.entries, self.model) or None


def labels(entries: Iterable[Entry]) -> tuple[str, ...]:
    """Names of entries as findings list them, sorted."""
    return tuple(sorted(label(entry.tensor.key) for entry in entries))


def sum_elements(entries: Iterable[Entry]) -> int:
    """Stored elements."""
    return sum(entry.tensor.numel for entry in entries)


def sum_nbytes(entries: Iterable[Entry]) -> int:
    """Bytes of payload."""
    return sum(entry.tensor.nbytes for entry in entries)
