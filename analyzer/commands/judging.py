"""What commands share once they know the answer: the report of a reconciliation, and whether a finding fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from analyzer.commands.options import (
    Grouped,
    Judged,
)
from analyzer.commands.reading import group_ledger
from analyzer.commands.terminal import (
    EXIT_FINDING,
)

if TYPE_CHECKING:  # what `--help` does not need
    from analyzer.ledger import Finding
    from analyzer.reconciliation import Reconciliation
    from analyzer.report import ReconcileReport

__all__ = ["judge", "report_reconciliation"]


def report_reconciliation(result: Reconciliation, grouped: Grouped, stamp: str | None) -> ReconcileReport:
    """The report, with the subgraphs in PyTorch's terms."""
    from analyzer.report import ReconcileReport

    return ReconcileReport(
        result, group_ledger(result.in_pytorch_terms(), grouped, result.trainability), stamp
    )


def judge(findings: tuple[Finding, ...], judged: Judged) -> None:
    """Fail where findings are to fail and one is not ignored.

    Raises:
        Exit: with code 1.
    """
    if judged.strict and any(finding.id not in judged.ignore for finding in findings):
        raise click.exceptions.Exit(EXIT_FINDING)
