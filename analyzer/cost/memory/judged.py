"""`--max-memory 'batch=8,sequence=512: 6GiB'` -> a verdict for each model: does a run at these sizes fit?"""

from __future__ import annotations

from analyzer.account.ledger import Ledger
from analyzer.budget.record import AtMost, Contributor, Rule, Skipped, Status, Unit, Verdict
from analyzer.cost.memory.answer import MemoryQuery, answer_memory
from analyzer.cost.sizing import name_flag, parse_sized
from analyzer.errors import OnnxLedgerError
from analyzer.records import Frozen
from analyzer.text import format_bytes
from analyzer.timing.inputs.sizes import Shapes
from analyzer.timing.record import Axis

_FLAG = "--max-memory"


class MemoryLimit(Frozen):
    """Limit of the memory of one run, at some sizes."""

    text: str
    shapes: Shapes
    nbytes: int
    level: str | None = None
    """Level of optimization of the run, one of `LEVELS`; None: the file as it stands."""

    @property
    def rule(self) -> Rule:
        """The limit as a line of a budget."""
        sizes = self.text.rpartition(":")[0].strip()
        name = f"{_FLAG.removeprefix('--')} {sizes}".strip()
        return Rule(name, "memory", AtMost(self.nbytes), origin=_FLAG)


def parse_memory_limit(text: str, level: str | None = None) -> MemoryLimit:
    """Parse a limit: sizes of axes, a colon, and bytes; bytes alone are at the sizes that `time` would take.

    `level` is the level of optimization of the graph that is judged.

    >>> parse_memory_limit("batch=8: 6GiB").nbytes
    6442450944

    Raises:
        UsageError: it has no bytes, or its sizes are malformed.
    """
    return MemoryLimit(text, *parse_sized(_FLAG, text, Unit.BYTES, "batch=8,sequence=512: 6GiB"), level)


def judge_memory(limit: MemoryLimit, path: str, ledger: Ledger) -> Verdict:
    """Compare the memory of a run with a limit; unknown memory is never within it.

    Args:
        limit: result of `parse_memory_limit`.
        path: the model, as the user wrote it.
        ledger: the ledger of the model.
    """
    if not ledger.model.graphs:
        return _skipped_verdict(limit, path, "a saved report does not hold the graph; name the model")
    try:
        answer = answer_memory(ledger, MemoryQuery(limit.shapes, level=limit.level))
    except OnnxLedgerError as error:
        return _skipped_verdict(limit, path, name_flag(error, _FLAG))
    needed = answer.needed
    if needed.total is None:
        why = next((line.note for line in needed.lines if line.line == "activations"), "")
        return _skipped_verdict(limit, path, f"{why}; the memory of a run is unknown")
    known = sorted((line for line in needed.lines if line.value), key=lambda line: -(line.value or 0))
    exceeded = needed.total - limit.nbytes
    unmodelled = ", ".join(line.line for line in needed.lines if line.value is None)
    has_failed = exceeded > 0
    if not has_failed:
        most = answer.most
        if most is None or most > limit.nbytes:
            amount = "an unknown amount" if most is None else f"up to {format_bytes(most - needed.total)}"
            why = f"{format_bytes(needed.total)} are modelled, and bodies of If, Loop and Scan need {amount} more"
            return _skipped_verdict(limit, path, why)
    at = ", ".join(f"{axis.name}={axis.size}" for axis in _named_axes(answer.axes))
    graph = (
        "the file as it stands, not optimized (--optimization)"
        if limit.level is None
        else f"onnxruntime's graph of it ({limit.level})"
    )
    summary = f"{format_bytes(needed.total)} at {at or 'fixed sizes'}, {graph}; not modelled: {unmodelled}"
    if has_failed:
        summary = (
            f"{format_bytes(needed.total)} are {format_bytes(exceeded)} more than the "
            f"{format_bytes(limit.nbytes)} allowed. The run is at {at or 'fixed sizes'}, on {graph}; "
            f"not modelled: {unmodelled}"
        )
    return Verdict(
        limit.rule,
        path,
        Status.FAIL if has_failed else Status.PASS,
        Unit.BYTES,
        observed=needed.total,
        limit=limit.nbytes,
        exceeded_by=exceeded if has_failed else None,
        contributors=tuple(Contributor(line.line, line.value or 0, None) for line in known)
        if has_failed
        else (),
        message=summary,
    )


def _named_axes(axes: tuple[Axis, ...]) -> list[Axis]:
    """Return the named axes, each name once."""
    return list({axis.name: axis for axis in axes if axis.name is not None}.values())


def _skipped_verdict(limit: MemoryLimit, path: str, why: str) -> Verdict:
    return Verdict(
        limit.rule,
        path,
        Status.SKIP,
        Unit.BYTES,
        limit=limit.nbytes,
        skipped=Skipped.NOT_EVALUATED,
        message=why,
    )
