"""A report of runs that agree, and PyTorch's program -> the same report, unless the file is for certain another program.

Runs are told apart from what rounding may do, so what changes outputs by less is the same to them: an epsilon of 1.1e-6
in place of 1e-6. The program has the number.
"""

from __future__ import annotations

from dataclasses import replace

from analyzer.errors import OnnxLedgerError
from analyzer.reconciliation import Reconciliation
from analyzer.verify.algebra.account import account_program
from analyzer.verify.record import First, Verdict, VerifyReport

_MOST_ELEMENTS = 1 << 28
"""Learned numbers of a file that is held against the program: each is drawn, in 5 bytes."""


def hold_to_program(report: VerifyReport, result: Reconciliation, file: str) -> VerifyReport:
    """Hold a file whose runs agree against PyTorch's program too: what that has otherwise differs, however little.

    Nothing changes where the runs do not agree, the file holds rounded numbers, there is no program, or nobody knows.

    Args:
        report: of the runs.
        result: the file, reconciled with a manifest that has the calls of PyTorch's program.
        file: the name that it was exported under.
    """
    elements = sum(entry.logical_numel for entry in result.ledger.entries)
    if not report.same or report.costs is not None or not result.balanced or elements > _MOST_ELEMENTS:
        return report
    try:
        found = account_program(result, file, report.against)
    except OnnxLedgerError:  # there is no program, or it is one of other inputs
        return report
    apart = {each.name for each in found.outputs if each.agreement.verdict is Verdict.DIFFERS}
    if found.first is None or not apart:
        return report
    outputs = tuple(
        replace(each, agreement=replace(each.agreement, verdict=Verdict.DIFFERS))
        if each.name in apart
        else each
        for each in report.outputs
    )
    reason = f"{found.first.reason}, by its program: it shows in these runs no more than rounding"
    first = First(found.first.module, found.first.node, reason)
    return replace(report, outputs=outputs, first=first, differences=found.differences)
