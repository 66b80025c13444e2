"""A reconciliation, an export, or a recovery -> its JSON document."""

from __future__ import annotations

from typing import Literal, cast

from analyzer.documents import reconcile as reconcile_records
from analyzer.documents import recover as recover_records
from analyzer.formats.json.groups import document_grouping
from analyzer.formats.json.parts import head, list_findings, utf8
from analyzer.manifest import Manifest, Parameter
from analyzer.model import label
from analyzer.reconciliation.lines import BridgeRow, EntryLine, Nearest, ParameterLine, why_differing
from analyzer.recover import Lost, StateTensor, Unnamed
from analyzer.reports import ExportReport, ReconcileReport, RecoverReport


def document_export(report: ExportReport) -> reconcile_records.ExportDocument:
    """Return the document of `export`."""
    return reconcile_records.ExportDocument(
        **head(), files=list(report.files), reconcile=document_reconciliation(report.reconcile)
    )


def document_reconciliation(report: ReconcileReport) -> reconcile_records.ReconcileDocument:
    """Return the document of `reconcile`."""
    result = report.reconciliation
    ledger = result.ledger
    known = {parameter.name: parameter for parameter in result.manifest.parameters}
    places = ((line, "/".join(line.key[0])) for line in result.entries)
    return reconcile_records.ReconcileDocument(
        **head(report.stamp),
        model=reconcile_records.ReconcileModel(path=str(ledger.model.path)),
        against=dict(result.manifest.source),
        balanced=result.balanced,
        content=result.content,
        compared=reconcile_records.ComparedElements(**result.compared),
        reads=result.reads,
        wiring=reconcile_records.WiringRead(
            checked=result.checked_places,
            misplaced=result.misplaced,
            first=result.differs_from or None,
            program=result.computes,
        ),
        pytorch=_pytorch(result.manifest),
        onnx=reconcile_records.Onnx(
            parameters=result.onnx_parameters,
            parameters_alone=ledger.parameters,
            stored_elements=ledger.stored_elements,
        ),
        bridge=list(map(_row, result.bridge)),
        parameters=[
            _settled(settled, known[settled.name], result.expression(settled))
            for settled in result.parameters
        ],
        tensors=[
            _stored(line, path)
            for line, path in sorted(places, key=lambda place: (place[1], place[0].key[1]))
        ],
        nearest=list(map(_nearest, result.nearest)),
        **document_grouping(report.grouping, result.onnx_parameters),
        findings=list_findings(report.findings),
    )


def _pytorch(manifest: Manifest) -> reconcile_records.Pytorch:
    return reconcile_records.Pytorch(
        parameters=manifest.numel,
        trainable=manifest.trainable,
        buffers=manifest.buffer_numel,
        tied=[list(p.names) for p in manifest.parameters if p.tied],
    )


def _row(row: BridgeRow) -> reconcile_records.BridgeLine:
    return reconcile_records.BridgeLine(
        line=row.line,
        tensors=row.tensors,
        elements=row.elements,
        parameter_delta=row.parameter_delta,
        stored_delta=row.stored_delta,
        bytes=row.nbytes,
    )


def _settled(
    settled: ParameterLine, parameter: Parameter, expression: str | None
) -> reconcile_records.Parameter:
    return reconcile_records.Parameter(
        name=settled.name,
        shape=list(parameter.shape),
        elements=parameter.numel,
        trainable=parameter.trainable,
        line=settled.line,
        chain=list(settled.chain),
        entries=[label(key) for key in settled.entries],
        decided_by=settled.decided_by,
        max_abs_error=settled.max_abs_error,
        compared=settled.compared,
        why=why_differing(settled.line, settled.decided_by),
        expression=expression,
    )


def _stored(line: EntryLine, path: str) -> reconcile_records.ReconcileTensor:
    return reconcile_records.ReconcileTensor(
        name=line.key[1],
        graph_path=path,
        line=line.line,
        parameter=line.parameter,
        decided_by=line.decided_by,
        expression=line.expression,
    )


def _nearest(nearest: Nearest) -> reconcile_records.NearestMatch:
    return reconcile_records.NearestMatch(
        tensor=label(nearest.key),
        parameter=nearest.name,
        equal=nearest.equal,
        compared=nearest.compared,
        max_abs_error=nearest.max_abs_error,
    )


def document_recovery(report: RecoverReport) -> recover_records.RecoverDocument:
    """Return the document of `recover`."""
    recovery = report.recovery
    result = recovery.reconciliation
    return recover_records.RecoverDocument(
        **head(report.stamp),
        model=reconcile_records.ReconcileModel(path=str(result.ledger.model.path)),
        against=dict(result.manifest.source),
        content=result.content,
        output=None if report.output is None else utf8(report.output),
        lossless=report.lossless,
        recovered=recover_records.Recovered(
            tensors=len(recovery.tensors), elements=recovery.numel, bytes=recovery.nbytes
        ),
        lossy=[
            recover_records.Lossy(name=t.name, shape=list(t.shape), line=t.line, reason=t.loss or "")
            for t in recovery.lossy
        ],
        lost=list(map(_lost, recovery.lost)),
        unnamed=sorted(map(_unnamed, recovery.unnamed), key=lambda item: (item.graph_path, item.name)),
        guessed=list(recovery.guessed),
        tied=[[t.name, *t.tied] for t in recovery.tensors if t.tied],
        parameters=[_recovered(t) for t in recovery.tensors if not t.is_buffer],
        buffers=[_recovered(t) for t in recovery.tensors if t.is_buffer],
    )


def _recovered(tensor: StateTensor) -> recover_records.StateTensor:
    return recover_records.StateTensor(
        name=tensor.name,
        shape=list(tensor.shape),
        dtype=tensor.dtype.name,
        line=tensor.line,
        chain=list(tensor.chain),
        entries=[label(key) for key in tensor.entries],
        decided_by=tensor.decided_by,
        max_abs_error=tensor.max_abs_error,
        lossy=tensor.loss is not None,
    )


def _lost(lost: Lost) -> recover_records.Lost:
    return recover_records.Lost(
        name=lost.name,
        shape=list(lost.shape),
        buffer=lost.is_buffer,
        line=lost.line,
        reason=lost.reason,
    )


def _unnamed(unnamed: Unnamed) -> recover_records.Unnamed:
    return recover_records.Unnamed(
        name=unnamed.key[1],
        graph_path="/".join(unnamed.key[0]),
        shape=list(unnamed.shape),
        dtype=unnamed.dtype.name,
        line=cast("Literal['unexpected', 'unexplained']", unnamed.line.value),
        reason=unnamed.reason,
    )
