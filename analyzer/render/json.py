"""Reports -> JSON documents: exact integers, sorted keys, byte-identical on a second run.

The schema of each is in `analyzer/schemas`, the meaning of each key in `docs/report-format.md`.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from typing import Any

from analyzer.compare import Comparison, GroupPair, Pair
from analyzer.components import ComponentTotals
from analyzer.ledger import Entry, Evidence, Finding, Group, Grouping, Ledger, Role
from analyzer.model import label
from analyzer.ranges import Traffic
from analyzer.recover import Lost, StateTensor, Unnamed
from analyzer.report import ExportReport, Inspection, ReconcileReport, RecoverReport, Report, SurveyReport
from analyzer.survey import Row, Unreadable
from analyzer.version import version

__all__ = ["SCHEMA_VERSION", "render_json", "to_document"]

SCHEMA_VERSION = 1

Document = dict[str, Any]


def render_json(report: Report) -> str:
    """The report as JSON text with a final newline; indented, with each row of a list on a line of its own."""
    parts: list[str] = []
    _write(to_document(report), "", parts)
    return "".join(parts) + "\n"


_DEPTH = 2 * "  "
"""Objects are spread over lines down to here; what is deeper stands on one line, so that a tensor is one line."""


def _write(value: Any, indent: str, parts: list[str]) -> None:
    """Append a value's text. The compact form is written by json's C encoder, ten times as fast as its indented one."""
    if isinstance(value, dict) and value and len(indent) < len(_DEPTH):
        inner = indent + "  "
        separator = "{\n"
        for key in sorted(value):
            parts.append(f"{separator}{inner}{_compact(key)}: ")
            _write(value[key], inner, parts)
            separator = ",\n"
        parts.append(f"\n{indent}}}")
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        inner = indent + "  "
        rows = f",\n{inner}".join(map(_compact, value))
        parts.append(f"[\n{inner}{rows}\n{indent}]")
    else:
        parts.append(_compact(value))


_compact = json.JSONEncoder(sort_keys=True, ensure_ascii=True, allow_nan=False).encode


def to_document(report: Report) -> Document:
    """The report as plain dicts and lists, as its JSON Schema describes it."""
    match report:
        case Inspection():
            return _inspection(report)
        case SurveyReport():
            return _survey(report)
        case ReconcileReport():
            return _reconciliation(report)
        case ExportReport():
            return {
                **_head("export"),
                "files": list(report.files),
                "reconcile": _reconciliation(report.reconcile),
            }
        case RecoverReport():
            return _recovery(report)
        case Comparison():
            return _comparison(report)


def _head(command: str, stamp: str | None = None) -> Document:
    head: Document = {
        "schema_version": SCHEMA_VERSION,
        "command": command,
        "tool": {"name": "onnxledger", "version": version()},
    }
    return head if stamp is None else {**head, "generated_at": stamp}


def _inspection(report: Inspection) -> Document:
    ledger = report.ledger
    basis = ledger.basis
    return {
        **_head("inspect", report.stamp),
        "model": _model(ledger, report.digests),
        "totals": {
            "parameters": ledger.parameters,
            "basis": {evidence.value: basis.get(evidence, 0) for evidence in Evidence},
            "stored_tensors": len(ledger.entries),
            "stored_elements": ledger.stored_elements,
            "stored_bytes": ledger.stored_nbytes,
            "shared_bytes": ledger.shared_nbytes,
            "duplicated_bytes": ledger.duplicated_nbytes,
            "file_bytes": ledger.file_nbytes,
        },
        "components": list(map(_component, report.components)),
        "content": ledger.content,
        "roles": {role.value: _role(ledger, role) for role in Role},
        "accounts": [{"account": account.name, "bytes": account.nbytes} for account in ledger.accounts],
        "dtypes": _dtypes(ledger),
        **_grouping(report.grouping, ledger.parameters),
        "tensors": sorted(map(_tensor, ledger.entries), key=lambda item: (item["graph_path"], item["name"])),
        "findings": _findings(report.findings),
    }


def _model(ledger: Ledger, digests: dict[str, str]) -> Document:
    model = ledger.model
    files: list[Document] = [{"path": file.path, "bytes": file.nbytes} for file in model.files]
    for file in files:
        if file["path"] in digests:
            file["sha256"] = digests[file["path"]]
    return {
        "path": str(model.path),
        "files": files,
        "ir_version": model.ir_version,
        "opsets": dict(model.opsets),
        "producer": model.producer,
        "nodes": sum(1 for _ in model.nodes()),
        "functions": len(model.functions),
        "nested_graphs": model.nested_graphs,
        "calls": [
            {"function": "/".join(call.function.path), "sites": call.sites, "calls": call.calls}
            for call in ledger.calls
        ],
        "remote": None if model.traffic is None else _traffic(model.traffic),
    }


def _component(totals: ComponentTotals) -> Document:
    part = totals.component
    return {
        "component": part.name,
        "path": _utf8(totals.file),
        "ir_version": part.ir_version,
        "opsets": dict(part.opsets),
        "producer": part.producer,
        "nodes": totals.nodes,
        "parameters": totals.parameters,
        "stored_tensors": totals.stored_tensors,
        "stored_elements": totals.stored_elements,
        "stored_bytes": totals.stored_nbytes,
        "duplicated_bytes": totals.duplicated_nbytes,
        "file_bytes": totals.file_nbytes,
    }


def _traffic(traffic: Traffic) -> Document:
    return {
        "requests": traffic.requests,
        "bytes_read": traffic.nbytes,
        "redirected_to": traffic.redirected_to,
    }


def _role(ledger: Ledger, role: Role) -> Document:
    entries = [entry for entry in ledger.entries if entry.role is role]
    return {
        "tensors": len(entries),
        "stored_elements": sum(entry.tensor.numel for entry in entries),
        "parameters": sum(entry.parameters for entry in entries),
        "bytes": sum(entry.tensor.nbytes for entry in entries),
    }


def _dtypes(ledger: Ledger) -> list[Document]:
    by_dtype: dict[str, list[Entry]] = defaultdict(list)
    for entry in ledger.entries:
        by_dtype[entry.tensor.dtype.name].append(entry)
    return [
        {
            "dtype": dtype,
            "tensors": len(entries),
            "stored_elements": sum(entry.tensor.numel for entry in entries),
            "bytes": sum(entry.tensor.nbytes for entry in entries),
        }
        for dtype, entries in sorted(by_dtype.items())
    ]


def _grouping(grouping: Grouping, parameters: int) -> Document:
    """Groups, and what the user's own have in common and leave out (`overlap` and `ungrouped` in stored elements)."""
    return {
        "by": grouping.by,
        "depth": grouping.depth,
        "groups": [_group(group, parameters) for group in grouping.groups],
        "overlap": grouping.overlap.stored_elements,
        "ungrouped": grouping.ungrouped.stored_elements,
        "group_balance": {
            "overlap": _group(grouping.overlap, parameters),
            "ungrouped": _group(grouping.ungrouped, parameters),
        },
    }


def _group(group: Group, parameters: int) -> Document:
    document: Document = {
        "group": group.name,
        "parameters": group.parameters,
        "stored_elements": group.stored_elements,
        "bytes": group.nbytes,
        "tensors": group.tensors,
        "nodes": group.nodes,
        "share": group.parameters / parameters if parameters else None,
    }
    if group.trainable is not None:
        document |= {"trainable": group.trainable, "frozen": group.frozen}
    return document


def _tensor(entry: Entry) -> Document:
    tensor = entry.tensor
    return {
        "name": tensor.key[1],
        "graph_path": "/".join(tensor.graph_path),
        "carrier": tensor.carrier.value,
        "dtype": tensor.dtype.name,
        "shape": list(tensor.shape),
        "stored_elements": tensor.numel,
        "parameters": entry.parameters,
        "bytes": tensor.nbytes,
        "logical_bytes": tensor.logical_nbytes,
        "role": entry.role.value,
        "scope": entry.scope if entry.has_scope else None,
        "scoped_by": entry.scoped_by,
        "decided_by": entry.decided_by,
        "sources": list(entry.sources),
        "uses": entry.uses,
        "read_by": entry.read_by,
        "copy_of": None if entry.copy_of is None else label(entry.copy_of),
    }


def _findings(findings: tuple[Finding, ...]) -> list[Document]:
    return [
        {
            "id": finding.id,
            "severity": finding.severity.value,
            "message": finding.message,
            "subjects": list(finding.subjects),
        }
        for finding in findings
    ]


def _survey(report: SurveyReport) -> Document:
    survey = report.survey
    return {
        **_head("inspect", report.stamp),
        "models": list(map(_surveyed, survey.rows)),
        "totals": {
            "models": len(survey.rows),
            "readable": len(survey.readable),
            "parameters": survey.parameters,
            "stored_elements": survey.stored_elements,
            "stored_bytes": survey.stored_nbytes,
            "file_bytes": survey.file_nbytes,
        },
    }


def _surveyed(row: Row) -> Document:
    if isinstance(row, Unreadable):
        return {"path": _utf8(row.path), "readable": False, "error": _utf8(row.error)}
    roles = {group.name: group for group in row.roles}
    return {
        "path": _utf8(row.path),
        "readable": True,
        "nodes": row.nodes,
        "totals": {
            "parameters": row.parameters,
            "basis": {evidence.value: row.basis.get(evidence, 0) for evidence in Evidence},
            "stored_tensors": row.stored_tensors,
            "stored_elements": row.stored_elements,
            "stored_bytes": row.stored_nbytes,
            "shared_bytes": row.shared_nbytes,
            "duplicated_bytes": 0,  # of one file alone
            "file_bytes": row.file_nbytes,
        },
        "roles": {
            role.value: {**_sums(group), "parameters": group.parameters}
            for role in Role
            for group in (roles.get(role.value) or Group(role.value),)
        },
        "dtypes": [
            {"dtype": group.name, **_sums(group)}
            for group in sorted(row.dtypes, key=lambda group: group.name)
        ],
        "findings": [
            {"id": finding.id, "severity": finding.severity.value, "message": finding.message}
            for finding in row.findings
        ],
    }


def _sums(group: Group) -> Document:
    return {"tensors": group.tensors, "stored_elements": group.stored_elements, "bytes": group.nbytes}


def _utf8(text: str) -> str:
    r"""A path, or a sentence with one, with `\x..` escapes for the bytes that are not UTF-8.

    Python has half a surrogate pair for each of them, which other readers of JSON refuse.
    """
    return re.sub("[\udc80-\udcff]", lambda found: f"\\x{ord(found[0]) - 0xDC00:02x}", text)


def _reconciliation(report: ReconcileReport) -> Document:
    result = report.reconciliation
    manifest, ledger = result.manifest, result.ledger
    known = {parameter.name: parameter for parameter in manifest.parameters}
    return {
        **_head("reconcile", report.stamp),
        "model": {"path": str(ledger.model.path)},
        "against": dict(manifest.source),
        "balanced": result.balanced,
        "content": result.content,
        "compared": dict(result.compared),
        "pytorch": {
            "parameters": manifest.numel,
            "trainable": manifest.trainable,
            "buffers": manifest.buffer_numel,
            "tied": [list(p.names) for p in manifest.parameters if p.tied],
        },
        "onnx": {
            "parameters": result.onnx_parameters,
            "parameters_alone": ledger.parameters,
            "stored_elements": ledger.stored_elements,
        },
        "bridge": [
            {
                "line": row.line.value,
                "tensors": row.tensors,
                "elements": row.elements,
                "parameter_delta": row.parameter_delta,
                "stored_delta": row.stored_delta,
                "bytes": row.nbytes,
            }
            for row in result.bridge
        ],
        "parameters": [
            {
                "name": settled.name,
                "shape": list(known[settled.name].shape),
                "elements": known[settled.name].numel,
                "trainable": known[settled.name].trainable,
                "line": settled.line.value,
                "chain": [line.value for line in settled.chain],
                "entries": [label(key) for key in settled.entries],
                "decided_by": settled.decided_by,
                "max_abs_error": settled.max_abs_error,
                "compared": settled.compared,
            }
            for settled in result.parameters
        ],
        "tensors": sorted(
            (
                {
                    "name": line.key[1],
                    "graph_path": "/".join(line.key[0]),
                    "line": line.line.value,
                    "parameter": line.parameter,
                    "decided_by": line.decided_by,
                }
                for line in result.entries
            ),
            key=lambda item: (str(item["graph_path"]), str(item["name"])),
        ),
        "nearest": [
            {
                "tensor": label(nearest.key),
                "parameter": nearest.name,
                "equal": nearest.equal,
                "compared": nearest.compared,
                "max_abs_error": nearest.max_abs_error,
            }
            for nearest in result.nearest
        ],
        **_grouping(report.grouping, result.onnx_parameters),
        "findings": _findings(report.findings),
    }


def _recovery(report: RecoverReport) -> Document:
    recovery = report.recovery
    result = recovery.reconciliation
    return {
        **_head("recover", report.stamp),
        "model": {"path": str(result.ledger.model.path)},
        "against": dict(result.manifest.source),
        "content": result.content,
        "output": None if report.output is None else _utf8(report.output),
        "lossless": report.lossless,
        "recovered": {
            "tensors": len(recovery.tensors),
            "elements": recovery.numel,
            "bytes": recovery.nbytes,
        },
        "lossy": [
            {"name": t.name, "shape": list(t.shape), "line": t.line.value, "reason": t.loss}
            for t in recovery.lossy
        ],
        "lost": list(map(_lost, recovery.lost)),
        "unnamed": sorted(
            map(_unnamed, recovery.unnamed), key=lambda item: (item["graph_path"], item["name"])
        ),
        "guessed": list(recovery.guessed),
        "tied": [[t.name, *t.tied] for t in recovery.tensors if t.tied],
        "parameters": [_recovered(t) for t in recovery.tensors if not t.is_buffer],
        "buffers": [_recovered(t) for t in recovery.tensors if t.is_buffer],
    }


def _recovered(tensor: StateTensor) -> Document:
    return {
        "name": tensor.name,
        "shape": list(tensor.shape),
        "dtype": tensor.dtype.name,
        "line": tensor.line.value,
        "chain": [line.value for line in tensor.chain],
        "entries": [label(key) for key in tensor.entries],
        "decided_by": tensor.decided_by,
        "max_abs_error": tensor.max_abs_error,
        "lossy": tensor.loss is not None,
    }


def _lost(lost: Lost) -> Document:
    return {
        "name": lost.name,
        "shape": list(lost.shape),
        "buffer": lost.is_buffer,
        "line": lost.line.value,
        "reason": lost.reason,
    }


def _unnamed(unnamed: Unnamed) -> Document:
    return {
        "name": unnamed.key[1],
        "graph_path": "/".join(unnamed.key[0]),
        "shape": list(unnamed.shape),
        "dtype": unnamed.dtype.name,
        "line": unnamed.line.value,
        "reason": unnamed.reason,
    }


def _comparison(report: Comparison) -> Document:
    return {
        **_head("compare"),
        "a": report.a,
        "b": report.b,
        "totals": {"parameters": _pair(report.parameters), "bytes": _pair(report.file_nbytes)},
        "groups": [_group_pair(group) for group in report.groups],
        "overlap": _group_pair(report.overlap),
        "ungrouped": _group_pair(report.ungrouped),
    }


def _group_pair(group: GroupPair) -> Document:
    return {
        "group": group.name,
        "status": group.status.value,
        "parameters": _pair(group.parameters),
        "bytes": _pair(group.nbytes),
    }


def _pair(pair: Pair) -> Document:
    return {"a": pair.a, "b": pair.b, "difference": pair.difference, "ratio": pair.ratio}
