"""An inspection -> its JSON document."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter
from typing import Any

from msgspec import UNSET

from analyzer.account.artifact.components import ComponentTotals
from analyzer.account.doubt import find_doubt
from analyzer.account.ledger import Entry, Evidence, Hidden, Ledger, Role, Run, in_entry_order
from analyzer.account.summary import count_operators, count_quantized, count_wasted
from analyzer.documents import inspect as inspect_records
from analyzer.formats.json.groups import document_grouping, document_macs
from analyzer.formats.json.parts import head, list_findings, utf8
from analyzer.model import Graph, Model, ValueType, label
from analyzer.model.dtypes import DType
from analyzer.model.ranges import Traffic
from analyzer.reports import Inspection


def document_inspection(report: Inspection, *, has_tree: bool = True) -> inspect_records.InspectDocument:
    """Return the document of `inspect` on one model or artifact; without a tree of groups if nobody reads it."""
    ledger = report.ledger
    doubt = find_doubt(ledger)
    basis = ledger.basis
    return inspect_records.InspectDocument(
        **head(report.stamp),
        model=_model(ledger, report.digests),
        totals=inspect_records.Totals(
            parameters=ledger.parameters,
            parameters_at_least=doubt.least,
            parameters_at_most=doubt.most,
            parameters_unsettled=list(doubt.reasons),
            opaque_elements=ledger.opaque_elements,
            basis={evidence: basis.get(evidence, 0) for evidence in Evidence},
            stored_tensors=len(ledger.entries),
            stored_elements=ledger.stored_elements,
            stored_bytes=ledger.stored_nbytes,
            shared_bytes=ledger.shared_nbytes,
            duplicated_bytes=ledger.duplicated_nbytes,
            wasted_bytes=count_wasted(ledger),
            file_bytes=ledger.file_nbytes,
        ),
        components=list(map(_component, report.components)),
        content=ledger.content,
        roles={role: _role(ledger, role) for role in Role},
        operators=[
            inspect_records.Operator(
                op_type=row.op_type, domain=row.domain, nodes=row.nodes, parameters=row.parameters
            )
            for row in count_operators(ledger)
        ],
        quantization=[
            inspect_records.Quantization(
                scheme=row.scheme,
                bits=row.bits,
                block_size=row.block_size,
                tensors=row.tensors,
                parameters=row.parameters,
            )
            for row in count_quantized(ledger)
        ],
        accounts=[
            inspect_records.Account(account=account.name, bytes=account.nbytes) for account in ledger.accounts
        ],
        dtypes=_dtypes(ledger),
        **document_grouping(report.grouping, ledger.parameters, has_tree=has_tree),
        blocks=None if ledger.blocks is None else list(map(_run, ledger.blocks.runs)),
        stages=None if ledger.stages is None else list(ledger.stages.names),
        tensors=_tensors(ledger, doubt.hidden),
        findings=list_findings(report.findings),
        macs=document_macs(ledger.macs),
    )


def _model(ledger: Ledger, digests: dict[str, str]) -> inspect_records.Model:
    model = ledger.model
    return inspect_records.Model(
        path=str(model.path),
        files=[
            inspect_records.File(path=file.path, bytes=file.nbytes, sha256=digests.get(file.path, UNSET))
            for file in model.files
        ],
        ir_version=model.ir_version,
        opsets=dict(model.opsets),
        producer=model.producer,
        inputs=list(_values(model, lambda graph: graph.signature)),
        outputs=list(_values(model, lambda graph: graph.results)),
        nodes=sum(len(graph.nodes) for graph in model.graphs),
        functions=len(model.functions),
        nested_graphs=model.nested_graphs,
        calls=[
            inspect_records.Call(function="/".join(call.function.path), sites=call.sites, calls=call.calls)
            for call in ledger.calls
        ],
        remote=None if model.traffic is None else _traffic(model.traffic),
    )


def _values(model: Model, of: Callable[[Graph], Iterable[ValueType]]) -> Iterator[inspect_records.Value]:
    """Yield the inputs, or the outputs, of the main graphs."""
    graphs = {graph.path: graph for graph in model.graphs}
    for part in model.parts:
        for value in of(graphs[part.path]) if part.path in graphs else ():
            yield inspect_records.Value(
                name="/".join((*part.path, value.name)),
                dtype=value.dtype.name,
                shape=None if value.dims is None else list(value.dims),
            )


def _component(totals: ComponentTotals) -> inspect_records.Component:
    part = totals.component
    return inspect_records.Component(
        component=part.name,
        path=utf8(totals.file),
        ir_version=part.ir_version,
        opsets=dict(part.opsets),
        producer=part.producer,
        nodes=totals.nodes,
        parameters=totals.parameters,
        stored_tensors=totals.stored_tensors,
        stored_elements=totals.stored_elements,
        stored_bytes=totals.stored_nbytes,
        duplicated_bytes=totals.duplicated_nbytes,
        file_bytes=totals.file_nbytes,
    )


def _traffic(traffic: Traffic) -> inspect_records.Remote:
    return inspect_records.Remote(
        requests=traffic.requests, bytes_read=traffic.nbytes, redirected_to=traffic.redirected_to
    )


def _role(ledger: Ledger, role: Role) -> inspect_records.RoleTotals:
    entries = [entry for entry in ledger.entries if entry.role is role]
    return inspect_records.RoleTotals(
        tensors=len(entries),
        stored_elements=sum([entry.tensor.numel for entry in entries]),
        parameters=sum([entry.parameters for entry in entries]),
        bytes=sum([entry.tensor.nbytes for entry in entries]),
    )


def _dtypes(ledger: Ledger) -> list[inspect_records.DtypeTotals]:
    by_type: dict[DType, list[Entry]] = defaultdict(list)
    for entry in ledger.entries:
        by_type[entry.tensor.dtype].append(entry)
    return [
        inspect_records.DtypeTotals(
            dtype=name,
            tensors=len(entries),
            stored_elements=sum([entry.tensor.numel for entry in entries]),
            bytes=sum([entry.tensor.nbytes for entry in entries]),
        )
        for name, entries in sorted((dtype.name, entries) for dtype, entries in by_type.items())
    ]


class _Lists(dict[tuple[Any, ...], list[Any]]):
    """Lists made of tuples, one for all rows with equal tuples: there may be a million rows."""

    def __missing__(self, values: tuple[Any, ...]) -> list[Any]:
        found = self[values] = list(values)
        return found


def _tensors(ledger: Ledger, hidden: Hidden) -> list[inspect_records.Tensor]:
    """Return a row for each entry; in one loop, as there may be a million."""
    opaque, lists = frozenset(ledger.opaque), _Lists()
    blocks, stages = ledger.blocks, ledger.stages
    entries = ledger.entries
    members = in_entry_order(entries, blocks.entries if blocks is not None else {})
    roles = in_entry_order(entries, blocks.roles if blocks is not None else {})
    staged = stages.entries if stages is not None else {}
    unscoped = Evidence.NONE
    rows = []
    for entry, member, role in zip(entries, members, roles, strict=True):
        tensor = entry.tensor
        key, numel = tensor.key, tensor.numel
        hides = hidden.get(key) if hidden else None
        rows.append(
            inspect_records.Tensor(
                name=key[1],
                graph_path="/".join(key[0]),
                carrier=tensor.carrier,
                dtype=tensor.dtype.name,
                shape=lists[tensor.shape],
                stored_elements=numel,
                parameters=entry.parameters,
                bytes=tensor.nbytes,
                logical_bytes=tensor.logical_nbytes,
                role=entry.role,
                scope=entry.scope if entry.scoped_by != unscoped else None,
                scoped_by=entry.scoped_by,
                decided_by=entry.decided_by,
                sources=list(entry.sources),
                uses=entry.uses,
                read_by=entry.read_by,
                computed_by=entry.computed_by,
                applications=entry.applications,
                shared_with=lists[entry.shared_with],
                block=member and member.block,
                part=(member and member.part) or None,
                stage=staged.get(key) if staged else None,
                layer_role=role,
                copy_of=None if entry.copy_of is None else label(entry.copy_of),
                opaque=bool(opaque) and key in opaque,
                hides=None
                if hides is None
                else inspect_records.Hides(at_least=hides.least, at_most=hides.most, why=hides.why),
            )
        )
    rows.sort(key=attrgetter("graph_path", "name"))
    return rows


def _run(run: Run) -> inspect_records.Block:
    return inspect_records.Block(
        first=run.first, count=run.count, modules=list(run.modules), decided_by=run.rule
    )
