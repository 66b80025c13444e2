"""CostReport -> its JSON document."""

from __future__ import annotations

from collections import Counter

from analyzer.cost.against import WorkAgainst
from analyzer.cost.algebra import Size, text_of
from analyzer.cost.measured import Measured
from analyzer.cost.record import CostReport, GroupCost, OperatorCost, Sums, UnknownNode
from analyzer.cost.work import CONVENTION, may_have_macs
from analyzer.documents import cost as records
from analyzer.documents.memory import MeasuredMemory
from analyzer.formats.json.memory import (
    document_fits,
    document_lines,
    document_live,
    document_peak,
    document_room,
    document_sizes,
)
from analyzer.formats.json.parts import Fields, head


def document_cost(report: CostReport) -> records.CostDocument:
    """Return the document of `cost`."""
    summing = [row for row in report.unknown if row.group and may_have_macs(row.op_type, row.domain)]
    by_group = Counter(row.group for row in summing)
    by_operator = Counter((row.op_type, row.domain) for row in summing)
    return records.CostDocument(
        **head(report.stamp),
        model=records.CostModel(path=report.path),
        complete=report.is_complete,
        convention=CONVENTION,
        axes=[
            records.CostAxis(name=axis.name, axis=axis.stored_name, input=axis.where, bound=axis.bound)
            for axis in report.axes
        ],
        totals=records.CostTotals(**_sums(report, report.total), intensity=_intensity(report)),
        by=report.by,
        depth=report.depth,
        groups=[_group(report, group, by_group[group.name]) for group in report.groups],
        operators=[_operator(report, row, by_operator[row.op_type, row.domain]) for row in report.operators],
        unknown=[_unknown(row) for row in report.unknown],
        refused=None if report.refused is None else _unknown(report.refused),
        memory=[] if report.memory is None else document_lines(report.memory),
        memory_at={} if report.memory is None else document_sizes(report.memory),
        peak=None if report.memory is None else document_peak(report.memory),
        live=[] if report.memory is None else document_live(report.memory),
        room=None if report.memory is None else document_room(report.memory),
        fits=[] if report.memory is None else document_fits(report.memory),
        assumed=list(report.assumed),
        against=None if report.against is None else _against(report, report.against),
        measured=None if report.measured is None else _measured(report.measured),
    )


def _unknown(row: UnknownNode) -> records.CostUnknown:
    return records.CostUnknown(node=row.node, op_type=row.op_type, domain=row.domain, reason=row.reason)


def _against(report: CostReport, against: WorkAgainst) -> records.CostAgainst:
    return records.CostAgainst(
        agrees=against.agrees,
        source=against.source,
        family=against.family,
        class_name=against.class_name,
        said=_amount(report, against.predicted),
        found=_amount(report, against.found),
        other=_amount(report, against.other),
        terms=[
            records.CostTerm(
                term=term.name,
                formula=term.expression,
                said=_amount(report, term.predicted),
                found=_amount(report, term.found),
                difference=_amount(report, term.difference),
            )
            for term in against.terms
        ],
    )


def _measured(measured: Measured) -> records.CostMeasured:
    compared = measured.compared
    return records.CostMeasured(
        verdict=measured.verdict.value,
        version=measured.version,
        at=dict(measured.at),
        calls=compared.calls,
        shapes=compared.values,
        unknown_shapes=compared.unpredicted,
        differing=[
            records.CostDiffering(
                value=row.value,
                node=row.node,
                op_type=row.op_type,
                expression=row.expression,
                said=list(row.predicted),
                found=list(row.found),
            )
            for row in compared.differing
        ],
        macs=records.MeasuredMacs(
            verdict=measured.macs.value,
            said=measured.predicted,
            unknown=measured.unknown,
            measured=compared.macs,
            why=compared.why,
            operators=dict(compared.operators),
        ),
        memory=[
            MeasuredMemory(
                line=line.line, modelled=line.modelled, measured=line.measured, unexplained=line.unexplained
            )
            for line in measured.memory
        ],
    )


def _amount(report: CostReport, size: Size) -> records.Amount:
    return records.Amount(expression=text_of(size), value=report.at(size))


def _sums(report: CostReport, sums: Sums) -> Fields:
    return {
        "macs": _amount(report, sums.macs),
        "flops": _amount(report, sums.flops),
        "read_bytes": _amount(report, sums.read),
        "written_bytes": _amount(report, sums.written),
        "useful_macs": _amount(report, sums.useful),
    }


def _intensity(report: CostReport) -> float | None:
    flops, read, written = (
        report.at(each) for each in (report.total.flops, report.total.read, report.total.written)
    )
    if flops is None or read is None or written is None or not read + written:
        return None
    return flops / (read + written)


def _group(report: CostReport, group: GroupCost, unknown: int) -> records.CostGroup:
    own, whole = report.at(group.sums.macs), report.at(report.total.macs)
    if group.sums.macs == 0:
        own = 0
    share = own / whole if own is not None and whole else None
    if share is None and group.sums.macs == report.total.macs != 0:
        share = 1.0
    return records.CostGroup(
        group=group.name,
        keys=list(group.keys),
        **_sums(report, group.sums),
        share=share,
        nodes=group.nodes,
        nodes_without_macs=unknown,
    )


def _operator(report: CostReport, row: OperatorCost, unknown: int) -> records.CostOperator:
    return records.CostOperator(
        op_type=row.op_type,
        domain=row.domain,
        nodes=row.nodes,
        nodes_without_macs=unknown,
        macs=_amount(report, row.sums.macs),
        flops=_amount(report, row.sums.flops),
    )
