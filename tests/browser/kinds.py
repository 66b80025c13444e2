"""One small report of each kind, and documents beside it: the pages that all general tests of pages check."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import formula_reports
import models
import onnx
import pages
import reports
import timings
from onnx import numpy_helper
from samples import sampled

from analyzer.account.group import group_by
from analyzer.account.ledger import Finding, Severity
from analyzer.budget.record import AtMost, BudgetReport, Contributor, Rule, Skipped, Status, Unit, Verdict
from analyzer.comparison import compare_ledgers
from analyzer.formats import to_document
from analyzer.reports import Inspection, ReconcileReport, Report, SurveyReport
from analyzer.survey import survey_models
from analyzer.timing.request import Optimization
from analyzer.timing.side_by_side import compare_timings
from analyzer.verify.record import Agreement, Executed, First, Pairing, VerifyReport
from analyzer.verify.record import Verdict as Verified

__all__ = ["PAGES", "TOGETHER", "make_page", "make_report"]


def make_page(folder: Path, kind: str) -> Path:
    """Write one of `PAGES`."""
    report, beside = make_report(folder, kind)
    return pages.write(folder, report, *beside, name=f"{kind}.html")


def make_report(folder: Path, kind: str) -> _Made:
    """Return the report of one of `PAGES`, and the documents beside it."""
    if kind != TOGETHER:
        return KINDS[kind](folder)
    (report, beside), *others = (KINDS[each](folder) for each in KINDS if each not in ALONE)
    documents = [document for other, more in others for document in (to_document(other), *more)]
    return report, (*beside, *documents)


_Made = tuple[Report, tuple[dict[str, object], ...]]


def _inspected(folder: Path) -> _Made:
    return pages.inspect(folder, pages.layers(12)), ()


def _beside(folder: Path) -> _Made:
    """Return a model with its own timing, and a formula of another model."""
    ledger = timings.audit_net(folder)
    report = Inspection(ledger, group_by(ledger, "scope", 2))
    return report, (to_document(timings.make_timing(folder)), to_document(formula_reports.compared()))


def _reconciled(folder: Path) -> _Made:
    """Return a report in which most parameters match; one is transposed, one missing, one unexpected, one twice."""
    proto = pages.layers(3)
    weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}
    weights["encoder.layer.0.up.weight"] = weights["encoder.layer.0.up.weight"].T.copy()
    weights["encoder.pooler.weight"] = models.ramp(4, 4)
    del weights["head.weight"]
    result = models.reconcile(folder, proto, models.manifest_of(*models.parameters_of(weights)))
    return ReconcileReport(result, group_by(result.in_pytorch_terms(), known=result.trainability)), ()


def _compared(folder: Path) -> _Made:
    a, b = (pages.inspect(folder, pages.layers(count), f"{count}.onnx") for count in (3, 5))
    return compare_ledgers(a.ledger, b.ledger, a.grouping, b.grouping), ()


def _surveyed(folder: Path) -> _Made:
    (folder / "many").mkdir(exist_ok=True)
    for count in (1, 2, 3):
        onnx.save(pages.layers(count), folder / "many" / f"{count}.onnx")
    (folder / "many" / "broken.onnx").write_bytes(b"not a model")
    return SurveyReport(survey_models([str(folder / "many")], processes=1)), ()


def _checked(_: Path) -> _Made:
    def verdict(status: Status, number: int, skipped: Skipped | None = None) -> Verdict:
        rule = Rule(f"rule-{number}", "parameters", AtMost(100), message="the device has no more")
        failed = status is Status.FAIL
        return Verdict(
            rule,
            "model.onnx",
            status,
            Unit.PARAMETERS,
            observed=None if skipped else 90 + number,
            limit=100,
            exceeded_by=number if failed else None,
            contributors=(Contributor("encoder", 80, 70), Contributor("head", 15)) if failed else (),
            skipped=skipped,
            message="more than allowed" if failed else "",
        )

    verdicts = (
        verdict(Status.PASS, 1),
        verdict(Status.FAIL, 20),
        verdict(Status.SKIP, 3, Skipped.DISABLED),
        verdict(Status.SKIP, 4, Skipped.NOT_EVALUATED),
    )
    finding = Finding("duplicate-content", Severity.WARNING, "two tensors are equal", ("a", "b"), 1024)
    return BudgetReport(("model.onnx",), verdicts, {"model.onnx": (finding,)}), ()


def _timed(folder: Path) -> _Made:
    return timings.make_timing(folder), ()


def _swept(folder: Path) -> _Made:
    return timings.make_sweep(folder), ()


def _generated(folder: Path) -> _Made:
    return timings.make_generation(folder), ()


def _times_compared(folder: Path) -> _Made:
    slow, fast = (timings.make_timing(folder, factor=factor) for factor in (1.0, 0.5))
    return compare_timings(slow, fast), ()


def _counted(_: Path) -> _Made:
    return formula_reports.compared(), ()


def _verified(folder: Path) -> _Made:
    """Return a report of right layers, a wrong one, and those behind it; names are as long as real ones."""
    report = reports.verification(folder)
    assert isinstance(report, VerifyReport)
    values = tuple(
        Pairing(f"{name}.out", name, "", "Linear", name, Agreement(10 ** (-db / 20), db, 126.0, verdict))
        for at in range(12)
        for name, db, verdict in [
            (f"encoder.layer.{at}.feed_forward.output", 130.0, Verified.SAME)
            if at < 8
            else (f"encoder.layer.{at}.feed_forward.output", 30.0 - at, Verified.DIFFERS)
        ]
    )
    first = First(
        "encoder.layer.8.feed_forward.output", "norm", "norm: epsilon 0.05, and epsilon 1e-05 in the other"
    )
    return replace(report, values=values, first=first), ()


def _the_same(folder: Path) -> _Made:
    """Return a report of two runs of one file that are the same."""
    report, _ = _verified(folder)
    assert isinstance(report, VerifyReport)
    same = replace(report.outputs[0], agreement=report.values[0].agreement)
    runs = (Executed(Optimization.ALL, "cpu", 113), Executed(Optimization.NONE, "cpu", None))
    return replace(report, outputs=(same,), values=report.values[:8], first=None, executions=runs), ()


KINDS: Mapping[str, Callable[[Path], _Made]] = {
    "inspect": _inspected,
    "beside": _beside,
    "reconcile": _reconciled,
    "compare": _compared,
    "survey": _surveyed,
    "check": _checked,
    "time": _timed,
    "sweep": _swept,
    "generation": _generated,
    "compare_time": _times_compared,
    "formula": _counted,
    "verify": _verified,
    "same": _the_same,
}

ALONE = ("beside", "formula")
"""Kinds that change the sections of others: a formula adds a table or a column to them."""
TOGETHER = "together"
"""All other kinds on one page, a section each, so that one page is opened to check them all."""
PAGES = sampled([*KINDS, TOGETHER], [*ALONE, TOGETHER])
"""Pages that together have every kind; `make whole` also opens each kind by itself."""
