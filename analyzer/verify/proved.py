"""Verdict on a file, and PyTorch's program -> the same verdict, unless the file is certainly another program.

Runs tell two programs apart only beyond rounding: an epsilon of 1.1e-6 in place of 1e-6 is the same to them. An account
of weights does not tell which node uses which weight in a file that a tool has rewritten. The program in the manifest
of an export does.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from analyzer.account.ledger import Finding, Severity
from analyzer.errors import OnnxLedgerError
from analyzer.manifest import Buffer, Content, Manifest, Parameter
from analyzer.model import Key
from analyzer.model.content import digest, encode_values, is_constant_filled, sample
from analyzer.reconciliation import UNBALANCED, Line, Reconciliation, reconcile_ledger
from analyzer.reconciliation.verdict import remark_program
from analyzer.records import replace
from analyzer.verify.algebra.account import NO_SIZE, QUOTIENTS, account_program
from analyzer.verify.record import LACKING, Difference, First, Verdict, VerifyReport

if TYPE_CHECKING:
    from analyzer.checkpoints import Weights

_Tensor = TypeVar("_Tensor", Parameter, Buffer)

_MOST_KNOWN = 1 << 16
"""Most elements of a buffer whose numbers a manifest gets: as many as of a value that its program computes."""
_MOST_ELEMENTS = 1 << 28
"""Most parameter elements of a file that is compared with the program: random values of 5 bytes each are drawn."""


def compare_with_program(report: VerifyReport, result: Reconciliation, file: str) -> VerifyReport:
    """Compare a file with PyTorch's program after its runs agree, and report any difference, however small.

    Nothing changes where the runs disagree, there is no program, or no difference is certain. In the last case other
    divisors and decisions by sizes are still reported, as runs at these sizes and on numbers without a zero do not test
    them; not of rounded numbers, whose cost is reported instead.

    Args:
        report: report of the runs.
        result: the file, reconciled with a manifest that has the calls of PyTorch's program.
        file: the name that it was exported under.
    """
    if not report.same or not result.balanced:
        return report
    found = _account(result, file)
    if found is None:
        return report
    if found.first is None:
        if report.costs is not None:
            return report
        unproven = [
            each.removeprefix("not proven: ")
            for each in found.uncovered
            if QUOTIENTS in each or NO_SIZE in each
        ]
        return replace(report, uncovered=(*report.uncovered, *unproven))
    differing = {each.name for each in found.outputs if each.agreement.verdict is Verdict.DIFFERS}
    outputs = tuple(
        replace(each, agreement=replace(each.agreement, verdict=Verdict.DIFFERS))
        if each.name in differing
        else each
        for each in report.outputs
    )
    reason = f"{found.first.reason}, by its program: in these runs it shows no more than rounding"
    first = First(found.first.module, found.first.node, reason)
    return replace(report, outputs=outputs, first=first, differences=found.differences, costs=None)


def is_comparable_with_program(result: Reconciliation) -> bool:
    """Whether a file can be compared with a program: it is local, its values were compared, and it is small enough."""
    is_compared = result.content != "none" and result.ledger.model.traffic is None
    return is_compared and sum(entry.logical_numel for entry in result.ledger.entries) <= _MOST_ELEMENTS


def settle_by_program(result: Reconciliation, weights: Weights | None = None) -> Reconciliation:
    """Compare a file that was rewritten or changed with PyTorch's program, if the manifest has it.

    A file that is this program uses each weight as PyTorch does, whatever was reported of the weight's place. If it is
    certainly another program, the parameters that are read where it parts are `misplaced`, and the books do not
    balance. If it parts without parameters, as at an epsilon, only a warning is added. Nothing changes where no
    answer is certain.

    Args:
        result: the file's reconciliation with a manifest.
        weights: PyTorch's values, as `reconcile_ledger` had them.

    Raises:
        UsageError: the manifest has no values, though the reconciliation compared some.
    """
    if result.reads == "as-exported" or not is_comparable_with_program(result):
        return result
    lines = {row.line for row in result.bridge if row.tensors and row.line in UNBALANCED}
    if not result.manifest.calls or lines - {Line.MISPLACED}:
        return result
    without_places = result
    if lines:
        without_places = reconcile_ledger(
            result.ledger, result.manifest, result.content, weights=weights, places=False
        )
    manifest = with_known_values(without_places.manifest, weights)
    found = _account(replace(without_places, manifest=manifest), Path(result.ledger.model.path).name)
    if found is None:
        return result
    if found.same:
        if any(LACKING in each for each in found.uncovered):
            return result
        return replace(without_places, computes="same", findings=_without_doubts(without_places))
    if found.first is None or lines:
        return result
    first = found.first
    difference = next(each for each in found.differences if each.node == first.node)
    names, tables = _parameters_at(without_places, difference), _tables_at(without_places, difference)
    severity = Severity.ERROR if names or tables else Severity.WARNING
    reason = first.reason.removeprefix(f"{first.node}: ")
    remark = remark_program(first.module, first.node, reason, severity)
    if names or tables:
        without_places = reconcile_ledger(
            result.ledger,
            result.manifest,
            result.content,
            weights=weights,
            misplaced=names,
            exchanged=tables,
        )
    return replace(without_places, computes="differs", findings=(*_without_doubts(without_places), remark))


_DOUBTS = ("changed-alike", "odd-layer", "wiring-differs")


def _without_doubts(result: Reconciliation) -> tuple[Finding, ...]:
    """Return the findings without doubts about the file's wiring, once its program is known."""
    return tuple(each for each in result.findings if each.id not in _DOUBTS)


def with_known_values(manifest: Manifest, weights: Weights | None) -> Manifest:
    """Return the manifest with values that it lacks, as when made of a class, if they are at hand.

    Buffers may be known numbers; equal tensors may be stored once, and zeros left out.
    """
    if weights is None:
        return manifest
    at_hand, values = weights, dict(manifest.values)
    buffer_names = {buffer.name for buffer in manifest.buffers}

    def completed(tensor: _Tensor) -> _Tensor:
        array = at_hand.array(tensor.name) if tensor.content is None else None
        if array is None or array.shape != tensor.shape or array.dtype != tensor.dtype.to_numpy():
            return tensor
        if tensor.name in buffer_names and array.size <= _MOST_KNOWN:
            values[tensor.name] = encode_values(array)
        text = encode_values(sample(array, manifest.salt))
        return replace(tensor, content=Content(digest(array), None, is_constant_filled(array), text))

    parameters = tuple(map(completed, manifest.parameters))
    buffers = tuple(map(completed, manifest.buffers))
    return replace(manifest, parameters=parameters, buffers=buffers, values=values)


def _parameters_at(result: Reconciliation, difference: Difference) -> list[str]:
    """Return the parameters that are read where a file differs; none where nodes use them in another way."""
    # Brackets hold the settings of nodes: the difference is how these use their inputs.
    if difference.kind == "attribute" and "(" in difference.found:
        return []
    keys = {((), name) for name in difference.reads}
    return [line.name for line in result.parameters if not keys.isdisjoint(line.entries)]


def _tables_at(result: Reconciliation, difference: Difference) -> list[Key]:
    """Return the tables, computed from a buffer in advance, such as cosines, that are read where a file differs."""
    if difference.kind != "input":
        return []
    keys = {((), name) for name in difference.reads}
    lines = (Line.BUFFER, Line.EVALUATED)
    return [
        line.key
        for line in result.entries
        if line.key in keys and line.line in lines and line.value is not None
    ]


def _account(result: Reconciliation, file: str) -> VerifyReport | None:
    """Return the account of every operator; None without a program, with other inputs, or if the file is too large.

    None too where the algebra fails, as on an invalid graph: each caller has a fallback.
    """
    if not is_comparable_with_program(result):
        return None
    try:
        return account_program(result, file, "PyTorch's program")
    except (
        OnnxLedgerError,
        ArithmeticError,
        LookupError,
        MemoryError,
        RecursionError,
        TypeError,
        ValueError,
    ):
        return None
