"""A file at three sets of sizes -> its predicted shapes and multiply-accumulates, compared with a run."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from analyzer.account.audit import audit_model
from analyzer.account.ledger import Ledger
from analyzer.cost.account import measure_cost
from analyzer.cost.algebra import evaluate
from analyzer.cost.measured import Compared, compare_run, sizes_at, trace_apart
from analyzer.cost.walk import Walk
from analyzer.errors import OnnxLedgerError
from analyzer.model.dtypes import DType
from analyzer.read import read_model
from analyzer.timing.inputs.feeds import Inputs, plan_feeds
from analyzer.timing.inputs.sizes import Shapes
from analyzer.timing.running.traced import Tracing

_SIZES = ((1, None), (2, 11), (3, 6))
"""Batches and lengths; the first are those of `time`. Files without free axes have only their own sizes."""


class Verdict(StrEnum):
    """Result of a file."""

    EXACT = "exact"
    """Every node is known, and all shapes and the sum equal those of the run, at all sizes."""
    NAMED = "named"
    """Unknown nodes are reported with the reason, and all other results are right."""
    WRONG = "wrong"
    """A shape or the sum differs from that of a run."""
    NOT_RUN = "not run"
    """Onnxruntime does not run the file."""


@dataclass(frozen=True, slots=True)
class Point:
    """One run of a file."""

    at: Mapping[str, int]
    macs: int | None
    """Multiply-accumulates of the run."""
    predicted: int | None
    compared: Compared


@dataclass(frozen=True, slots=True)
class Cell:
    """One file."""

    file: str
    verdict: Verdict
    points: tuple[Point, ...] = ()
    inputs: Mapping[str, tuple[str, tuple[int, ...]]] | None = None
    """NumPy types and shapes of the first run's inputs, by name."""
    axes: Mapping[str, int] | None = None
    """Sizes of the first run's axes, by the file's names."""
    why: str = ""


def compare_file(path: Path, name: str) -> Cell:
    """Compare a file with three runs of it."""
    try:
        ledger = audit_model(path)
        report = measure_cost(ledger)
        points = _points(ledger)
    except OnnxLedgerError as error:
        return Cell(name, Verdict.NOT_RUN, why=str(error))
    why = "" if report.is_complete else f"{report.unknown[0].op_type}: {report.unknown[0].reason}"
    with tempfile.TemporaryDirectory() as folder:
        tracing = Tracing(str(path.absolute()), folder, tuple(point.feeds for point in points))
        try:
            traced = trace_apart(tracing, name)
        except OnnxLedgerError as error:
            return Cell(name, Verdict.NOT_RUN, why=str(error)[:200])
        if isinstance(traced, str):
            return Cell(name, Verdict.NOT_RUN, why=traced[:200])
        ran = read_model(traced.ran)
        found = []
        for inputs, run in zip(points, traced.runs, strict=True):
            if run.why:
                continue
            walk = _walk(ledger, inputs)
            at = sizes_at(walk, inputs.axes)
            compared = compare_run(walk, at, ran, run)
            places = {f"{a.input}.{a.position}": at[a.name] for a in walk.axes if a.name in at}
            predicted = evaluate(measure_cost(ledger, sizes=places).total.macs, at)
            found.append(Point(at, compared.macs, predicted, compared))
    if not found:
        return Cell(name, Verdict.NOT_RUN, why=traced.runs[0].why[:200])
    verdict = Verdict.EXACT if report.is_complete else Verdict.NAMED
    for point in found:
        if point.compared.differing:
            row = point.compared.differing[0]
            verdict, why = Verdict.WRONG, f"{row.op_type} {row.value}: {row.predicted} said, {row.found} ran"
        elif report.is_complete and point.macs is None:
            verdict, why = Verdict.NAMED, f"the run cannot be counted: {point.compared.why}"
        elif report.is_complete and point.macs != point.predicted:
            verdict, why = Verdict.WRONG, f"{point.predicted} multiply-accumulates said, {point.macs} ran"
    feeds = {feed.name: (_kind(feed.dtype), feed.shape) for feed in points[0].feeds}
    axes = {axis.name: axis.size for axis in points[0].axes if axis.name is not None}
    return Cell(name, verdict, tuple(found), feeds, axes, why)


def _kind(dtype: str) -> str:
    element = DType[dtype].to_numpy()
    return "object" if element is None else element.name


def _walk(ledger: Ledger, inputs: Inputs) -> Walk:
    walk = Walk(ledger.model)
    list(walk.run())
    if walk.is_contradicted(sizes_at(walk, inputs.axes)):
        walk = Walk(ledger.model, is_strict=True)
        list(walk.run())
    return walk


def _points(ledger: Ledger) -> list[Inputs]:
    usual = plan_feeds(ledger)[0]
    free = {axis.role: axis.size for axis in usual.axes if axis.name is not None}
    points = []
    for batch, length in _SIZES:
        sizes = [("batch", batch)] if "batch" in free else []
        if "sequence" in free and length is not None:
            sizes.append(("sequence", length))
        try:
            points.append(plan_feeds(ledger, Shapes(tuple(sizes)))[0])
        except OnnxLedgerError:
            continue
        if not sizes:
            break
    return points or [usual]
