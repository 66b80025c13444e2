"""Model + ledger -> findings, by all rules.

A rule takes the evidence and yields findings; a new one goes into the file that it belongs to, and into `RULES`, and
what it finds is explained in catalog.toml.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from analyzer.findings.evidence import Evidence
from analyzer.findings.file import (
    find_depth,
    find_empty,
    find_functions,
    find_names,
    find_operators,
    find_unread,
    find_versions,
    find_wiring,
)
from analyzer.findings.storage import find_bytes, find_copies, find_entries
from analyzer.findings.weights import find_opaque_data, find_packed, find_runtime_weights, find_values
from analyzer.ledger import Finding

__all__ = ["RULES", "find"]

RULES: tuple[Callable[[Evidence], Iterable[Finding]], ...] = (
    find_unread,
    find_empty,
    find_names,
    find_versions,
    find_functions,
    find_depth,
    find_wiring,
    find_operators,
    find_bytes,
    find_entries,
    find_copies,
    find_values,
    find_runtime_weights,
    find_packed,
    find_opaque_data,
)


def find(evidence: Evidence) -> tuple[Finding, ...]:
    """All findings of one file, sorted by id."""
    found = [finding for rule in RULES for finding in rule(evidence)]
    return tuple(sorted(found, key=lambda finding: (finding.id, finding.message, finding.subjects)))
