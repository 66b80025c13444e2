"""`--max-macs 'batch=1,sequence=128: 12G'` -> a verdict for each model: is a run at these sizes within the limit?"""

from __future__ import annotations

from analyzer.account.ledger import Ledger
from analyzer.budget.record import AtMost, Contributor, Rule, Skipped, Status, Unit, Verdict
from analyzer.cost.account import measure_cost
from analyzer.cost.algebra import text_of
from analyzer.cost.record import CostReport
from analyzer.cost.sizing import name_flag, parse_sized, resolve_sizes
from analyzer.errors import OnnxLedgerError
from analyzer.records import Frozen
from analyzer.text import format_count, format_many, short_count
from analyzer.timing.inputs.sizes import Shapes

_FLAG = "--max-macs"
_MOST = 10
"""Maximum number of groups listed for an exceeded limit."""


class WorkLimit(Frozen):
    """Limit of the work of one run, at some sizes."""

    text: str
    shapes: Shapes
    macs: int
    """Multiply-accumulates."""

    @property
    def rule(self) -> Rule:
        """The limit as a line of a budget."""
        sizes = self.text.rpartition(":")[0].strip()
        return Rule(f"{_FLAG.removeprefix('--')} {sizes}".strip(), "macs", AtMost(self.macs), origin=_FLAG)


def parse_work_limit(text: str) -> WorkLimit:
    """Parse a limit: sizes of axes, a colon, and multiply-accumulates.

    >>> parse_work_limit("batch=1,sequence=128: 12G").macs
    12000000000

    Raises:
        UsageError: it has no number, or its sizes are malformed.
    """
    return WorkLimit(text, *parse_sized(_FLAG, text, Unit.MACS, "batch=1,sequence=128: 12G"))


def judge_work(limit: WorkLimit, path: str, ledger: Ledger) -> Verdict:
    """Compare the work of a run with a limit; unknown work is never within it.

    Args:
        limit: result of `parse_work_limit`.
        path: the model, as the user wrote it.
        ledger: the ledger of the model.
    """
    if not ledger.model.graphs:
        return _skipped_verdict(limit, path, "a saved report does not hold the graph; name the model")
    try:
        report = measure_cost(ledger, sizes=resolve_sizes(ledger, limit.shapes))
    except OnnxLedgerError as error:
        return _skipped_verdict(limit, path, name_flag(error, _FLAG))
    if report.refused is not None:
        return _skipped_verdict(
            limit,
            path,
            f"the model does not run at these sizes: {report.refused.node}: {report.refused.reason}",
        )
    observed = report.at(report.total.macs)
    if observed is None:
        free = ", ".join(axis.stored_name or axis.where for axis in report.axes if axis.bound is None)
        return _skipped_verdict(
            limit, path, f"{text_of(report.total.macs)} MACs: give a size of {free or 'the unknown axes'}"
        )
    if not report.is_complete and observed <= limit.macs:
        first = report.unknown[0]
        many = format_many(len(report.unknown), "node")
        return _skipped_verdict(limit, path, f"the work of {many} is not known: {first.node}, {first.reason}")
    exceeded = observed - limit.macs
    has_failed = exceeded > 0
    message = f"{short_count(observed)} multiply-accumulates"
    if has_failed:
        least = "" if report.is_complete else "at least "  # the work of the other nodes comes on top
        message = (
            f"{format_count(observed)} multiply-accumulates are {least}{format_count(exceeded)} more than the "
            f"{format_count(limit.macs)} allowed"
        )
    return Verdict(
        limit.rule,
        path,
        Status.FAIL if has_failed else Status.PASS,
        Unit.MACS,
        observed=observed,
        limit=limit.macs,
        exceeded_by=exceeded if has_failed else None,
        contributors=tuple(_contributors(report)) if has_failed else (),
        message=message,
    )


def _contributors(report: CostReport) -> list[Contributor]:
    known = [(group.name, report.at(group.sums.macs) or 0) for group in report.groups]
    known.sort(key=lambda item: (-item[1], item[0]))
    return [Contributor(name, macs, None) for name, macs in known[:_MOST] if macs]


def _skipped_verdict(limit: WorkLimit, path: str, why: str) -> Verdict:
    return Verdict(
        limit.rule,
        path,
        Status.SKIP,
        Unit.MACS,
        limit=limit.macs,
        skipped=Skipped.NOT_EVALUATED,
        message=why,
    )
