"""`--max-drift 40dB` -> a verdict on each model: is the file, as it runs, no further off its reference than that?"""

from __future__ import annotations

import math
import re
from typing import Any, TypeGuard

from analyzer.budget.record import AtLeast, Contributor, Rule, Skipped, Status, Unit, Verdict
from analyzer.errors import UsageError
from analyzer.records import Frozen
from analyzer.text import shown
from analyzer.verify.record import VerifyReport

_FLAG = "--max-drift"
_MOST = 10
"""Most modules that are listed as contributors."""
_AMOUNT = re.compile(
    r"(?P<number>\d{1,4})\s*(?:db)?(?:\s+against\s+(?P<against>\S.*))?", re.ASCII | re.IGNORECASE | re.DOTALL
)


class DriftLimit(Frozen):
    """Limit on how far outputs may be off."""

    decibels: int
    """Least signal to error, in dB."""
    against: str | None = None
    """Path of the .onnx file that the model is compared with; None for the PyTorch side in its folder."""

    @property
    def rule(self) -> Rule:
        """Line of a budget that states the limit."""
        return Rule(_FLAG.removeprefix("--"), "drift", AtLeast(self.decibels), origin=_FLAG)


def parse_drift_limit(text: str) -> DriftLimit:
    """Read a limit: whole decibels of signal over error, and the file that outputs are compared with.

    >>> parse_drift_limit("40dB").decibels, parse_drift_limit("40").decibels
    (40, 40)
    >>> parse_drift_limit("40dB against fp32.onnx").against
    'fp32.onnx'

    Raises:
        UsageError: the text has another form.
    """
    found = _AMOUNT.fullmatch(text.strip())
    if found is None:
        raise UsageError(
            f"{_FLAG} {shown(text)}: no whole number of decibels; write it as 40dB, or '40dB against fp32.onnx'"
        )
    against = found["against"]
    if against is not None and not against.endswith(".onnx"):
        raise UsageError(
            f"{_FLAG} {shown(text)}: {shown(against)} is no .onnx file; name one, or leave 'against' out for the "
            "PyTorch side in the model's folder"
        )
    return DriftLimit(int(found["number"]), against)


def judge_drift(limit: DriftLimit, path: str, report: VerifyReport) -> Verdict:
    """Compare the measured drift with a limit; an unknown drift is never within it.

    Args:
        limit: result of `parse_drift_limit`.
        path: the model, as the user named it.
        report: result of `verify_module` with an exchange, which measures what rounding costs, or of `verify_files`.
    """
    drift = report.drift_db
    reference = "PyTorch's" if limit.against is None else f"those of {shown(limit.against)}"
    if not report.is_answered:
        return skip_drift(limit, path, "an output could not be compared")
    if drift is None:
        reason = "has no weights of its own" if limit.against is None else "has no float outputs"
        return skip_drift(limit, path, f"{report.against} {reason}")
    if drift == -math.inf:
        return _verdict(
            limit, path, Status.FAIL, message="an output is lost: its numbers are infinite or NaN"
        )
    if drift == math.inf:
        return _verdict(limit, path, Status.PASS, message=f"outputs equal {reference}, bit for bit")
    observed = math.floor(drift)
    missing = limit.decibels - observed
    contributors: tuple[Contributor, ...] = ()
    if missing > 0 and report.costs is not None:
        module_costs = [(each.module, each.signal_to_error_db) for each in report.costs.layers]
        contributors = tuple(
            Contributor(name, math.floor(db)) for name, db in module_costs[:_MOST] if _is_number(db)
        )
    return _verdict(
        limit,
        path,
        Status.FAIL if missing > 0 else Status.PASS,
        observed=observed,
        exceeded_by=missing if missing > 0 else None,
        contributors=contributors,
        message=f"outputs have {drift:.1f} dB signal to error beside {reference}"
        + (f", and at least {limit.decibels} are required" if missing > 0 else ""),
    )


def skip_drift(limit: DriftLimit, path: str, reason: str) -> Verdict:
    """Return the verdict for a drift that could not be measured: not a pass."""
    return _verdict(limit, path, Status.SKIP, skipped=Skipped.NOT_EVALUATED, message=reason)


def _verdict(limit: DriftLimit, path: str, status: Status, **fields: Any) -> Verdict:
    return Verdict(limit.rule, path, status, Unit.DECIBELS, limit=limit.decibels, **fields)


def _is_number(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value)
