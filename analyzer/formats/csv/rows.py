"""A report and its JSON document -> the rows of its CSV, by the names of columns."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from analyzer.account.group.members import list_groups
from analyzer.documents.base import Head, Record
from analyzer.documents.compare import TensorPair, TensorSide
from analyzer.documents.compare_time import TimePair
from analyzer.documents.cost import CostGroup
from analyzer.formats.csv.cells import join_shape
from analyzer.formats.csv.columns import COLUMNS, nested, plain, spread
from analyzer.formats.json.parts import Document
from analyzer.model import label
from analyzer.reports import ExportReport, Inspection, ReconcileReport, Report
from analyzer.schemas import schema_name

Row = Mapping[str, object]


def list_rows(report: Report | Head, document: Document) -> Iterator[Row]:
    """Yield every row, in the order of the document."""
    kind = schema_name(document)
    if kind == "inspect":
        yield from _tensors(_groups_of_tensors(report), document)
    elif kind in ("reconcile", "export"):
        reconciliation = document if kind == "reconcile" else document["reconcile"]
        yield from _parameters(_groups_of_entries(report), reconciliation)
    else:
        yield from _MAKERS[kind](document)


def _groups_of_tensors(report: Report | Head) -> list[tuple[str, ...]] | None:
    """Return the groups of each tensor, in the document's order; None for a document, which does not list them."""
    if not isinstance(report, Inspection):
        return None
    ledger = report.ledger
    labels = zip(ledger.entries, list_groups(ledger, report.grouping), strict=True)
    keyed = (("/".join(entry.tensor.graph_path), entry.tensor.key[1], names) for entry, names in labels)
    return [names for _, _, names in sorted(keyed, key=lambda item: item[:2])]


def _tensors(groups: list[tuple[str, ...]] | None, document: Document) -> Iterator[Row]:
    """Yield the tensors with their groups."""
    tensors = document["tensors"]
    for tensor, names in zip(tensors, [()] * len(tensors) if groups is None else groups, strict=True):
        yield {**tensor, "shape": join_shape(tensor["shape"]), "group": names}


def _groups_of_entries(report: Report | Head) -> Mapping[str, tuple[str, ...]]:
    """Return the groups of each entry by its label, in PyTorch's terms; empty for a document."""
    inner = report.reconcile if isinstance(report, ExportReport) else report
    if not isinstance(inner, ReconcileReport):
        return {}
    ledger = inner.reconciliation.in_pytorch_terms()
    found = zip(ledger.entries, list_groups(ledger, inner.grouping), strict=True)
    return {label(entry.tensor.key): names for entry, names in found}


def _parameters(groups: Mapping[str, tuple[str, ...]], document: Document) -> Iterator[Row]:
    """Yield PyTorch's parameters with the groups of the tensors that hold them."""
    for parameter in document["parameters"]:
        found_in = itertools.chain.from_iterable(groups.get(entry, ()) for entry in parameter["entries"])
        names = tuple(dict.fromkeys(found_in))
        yield {**parameter, "shape": join_shape(parameter["shape"]), "group": names}


def _values(document: Document) -> Iterator[Row]:
    """Yield the outputs, then inner values."""
    for output in document["outputs"]:
        yield {**output, "module": None, "class": None, "value": output["name"], "kind": "output"}
    for module in document["modules"]:
        yield {**module, "kind": "value"}


def _costs(document: Document) -> Iterator[Row]:
    for group in document["groups"]:
        yield {**group, **_flat(group, CostGroup)}


def _flat(row: Mapping[str, Any], record: type[Record]) -> dict[str, object]:
    """Return the objects of a row, each value in a column of its own."""
    return {
        column: row[key][name]
        for key, inner in nested(record).items()
        if row[key] is not None
        for column, name in spread(key, inner).items()
    }


def _models(document: Document) -> Iterator[Row]:
    for model in document["models"]:
        row = dict.fromkeys(COLUMNS["survey"]) | model | model.get("totals", {})
        yield row | {
            "dtypes": [each["dtype"] for each in model.get("dtypes", ())],
            "findings": list(dict.fromkeys(each["id"] for each in model.get("findings", ()))),
        }


def _recovered(document: Document) -> Iterator[Row]:
    """Yield recovered tensors, lost ones, and stored tensors without a PyTorch name."""
    blank = dict.fromkeys(COLUMNS["recover"])
    reasons = {each["name"]: each["reason"] for each in document["lossy"]}
    for kind, key in (("parameter", "parameters"), ("buffer", "buffers")):
        for each in document[key]:
            fields = {"kind": kind, "status": "recovered", "reason": reasons.get(each["name"])}
            yield blank | each | fields | {"shape": join_shape(each["shape"])}
    for each in document["lost"]:
        kind = "buffer" if each["buffer"] else "parameter"
        yield blank | each | {"kind": kind, "status": "lost", "shape": join_shape(each["shape"])}
    for each in document["unnamed"]:
        yield blank | each | {"status": "unnamed", "shape": join_shape(each["shape"])}


def _tensor_pairs(document: Document) -> Iterator[Row]:
    for pair in document["tensors"]:
        row = {**pair, **_flat(pair, TensorPair)}
        for side in "ab":
            tensor = pair[side] or {}
            row |= {f"{key}_{side}": tensor.get(key) for key in plain(TensorSide, *nested(TensorPair))}
            row[f"shape_{side}"] = join_shape(tensor["shape"]) if tensor else None
        yield row


def _verdicts(document: Document) -> Iterator[Row]:
    for rule in document["rules"]:
        parts = [f"{each['name']}={each['value']}" for each in rule["contributors"]]
        yield {**rule, "contributors": parts}


def _times(document: Document) -> Iterator[Row]:
    """Yield the groups, and the time in none: together they take the profiled run, except for overlaps."""
    blank = dict.fromkeys(COLUMNS["time"])
    yield from document["groups"]
    if document["by"] == "group":
        yield document["group_balance"]["ungrouped"]
    for name in ("unattributed", "overhead"):
        yield blank | {"group": f"[{name}]", "ms": document[f"{name}_ms"]}


def _time_pairs(document: Document) -> Iterator[Row]:
    """Yield the groups of two timings, and the time in none."""
    blank = dict.fromkeys(COLUMNS["compare_time"])
    for pair in document["groups"]:
        yield {**pair, **_flat(pair, TimePair)}
    names = ["ungrouped"] if document["by"] == "group" else []
    for name in (*names, "unattributed", "overhead"):
        pair = dict.fromkeys(nested(TimePair)) | {"ms": document[f"{name}_ms"]}
        yield blank | {"group": f"[{name}]", **_flat(pair, TimePair)}


def _at_each_point(rows: Callable[[Document], Iterable[Row]]) -> Callable[[Document], Iterator[Row]]:
    """Return a maker of rows that lists those of each length of a sweep."""

    def list_points(document: Document) -> Iterator[Row]:
        for point in document["points"]:
            place = {"axis": document["axis"], "value": point["value"]}
            for row in rows({**document, **point}):
                yield {**row, **place}

    return list_points


def _parts(document: Document) -> Iterator[Row]:
    for term in document["terms"]:
        for part in term["parts"]:
            yield {**part, "term": term["term"]}


def _steps(document: Document) -> Iterator[Row]:
    """Yield the groups of each measurement of a generation loop."""
    for component in document["components"]:
        for point in component["points"]:
            place = {
                **{key: component[key] for key in ("component", "step", "times")},
                "cache": point["cache"],
            }
            for row in _times(point["timing"]):
                yield {**row, **place}


_MAKERS: Mapping[str, Callable[[Document], Iterator[Row]]] = {
    "survey": _models,
    "recover": _recovered,
    "compare": _tensor_pairs,
    "compare_time": _time_pairs,
    "compare_sweep": _at_each_point(_time_pairs),
    "verify": _values,
    "check": _verdicts,
    "cost": _costs,
    "time": _times,
    "sweep": _at_each_point(_times),
    "generation": _steps,
    "formula": _parts,
}
