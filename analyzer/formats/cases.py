"""JSON document of `check` or `verify` -> suites of cases: the questions about each model, and their outcomes."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from analyzer.budget.record import UNSUMMED, Contributor
from analyzer.formats.problems import worst_first
from analyzer.records import Frozen
from analyzer.text import format_amount, format_count, format_others

Document = Mapping[str, Any]


class Outcome(enum.StrEnum):
    """Outcome of a question."""

    PASSED = "passed"
    FAILURE = "failure"
    """The model is at fault."""
    ERROR = "error"
    """The question should have been answered, and could not be."""
    SKIPPED = "skipped"
    """The question was not asked, or does not apply."""


class Case(Frozen):
    """One question about a model."""

    name: str
    outcome: Outcome
    kind: str = ""
    """Kind of the failure or error."""
    message: str = ""
    lines: tuple[str, ...] = ()
    """Details below the message."""


class Suite(Frozen):
    """Questions about one model."""

    model: str | None
    """Path of the model; None for questions about no model."""
    cases: tuple[Case, ...]
    properties: tuple[tuple[str, str], ...]


def list_suites(document: Document) -> tuple[Suite, ...]:
    """Return the suites of a document of `check` or `verify`."""
    return _of_verify(document) if document["command"] == "verify" else tuple(_of_check(document))


def _head(document: Document, key: str) -> list[tuple[str, str]]:
    tool = document["tool"]
    return [
        ("tool", f"{tool['name']} {tool['version']}"),
        ("schema_version", str(document["schema_version"])),
        (key, str(document[key]).lower()),
    ]


# check


_SHOWN = 20
"""Number of contributors that are listed below a failure."""


def _of_check(document: Document) -> Iterator[Suite]:
    """Yield a suite for each model, in order, with a case for each rule; at the end, the rules about no model."""
    errors = {row["model"]: row["error"] for row in document["unreadable"]}
    found = worst_first(document["findings"], lambda finding: finding["severity"])
    for model in (*document["models"], None):
        unread = (Case("can be read", Outcome.ERROR, "unreadable", errors[model]),) if model in errors else ()
        rules = tuple(_of_rule(rule) for rule in document["rules"] if rule["model"] == model)
        if model is not None or rules:
            properties = [
                ("finding", f"{finding['severity']}: {finding['message']} [{finding['id']}]")
                for finding in found
                if finding["model"] == model
            ]
            yield Suite(model, (*unread, *rules), (*_head(document, "passed"), *properties))


def _of_rule(rule: Mapping[str, Any]) -> Case:
    if rule["status"] == "FAIL":
        message = " ".join(filter(None, [f"{rule['message']}.", rule["advice"]]))
        return Case(rule["name"], Outcome.FAILURE, rule["metric"], message, tuple(_details(rule)))
    if rule["skipped"] == "not-evaluated":
        return Case(rule["name"], Outcome.ERROR, "not-evaluated", rule["message"])
    if rule["status"] != "PASS":
        return Case(rule["name"], Outcome.SKIPPED, message=rule["message"] or str(rule["skipped"]))
    return Case(rule["name"], Outcome.PASSED)


def _details(rule: Mapping[str, Any]) -> list[str]:
    part = f" of {rule['group']}" if rule["group"] else ""
    lines = [f"metric: {rule['metric']}{part}", f"rule: {rule['origin']}"]
    if isinstance(rule["observed"], int) and isinstance(rule["limit"], int):
        observed, limit = (format_amount(rule[key], rule["unit"]) for key in ("observed", "limit"))
        lines += [f"observed: {observed}", f"limit: at {rule['bound']} {limit}"]
    if rule["baseline"] is not None:
        lines.append(f"baseline: {format_amount(rule['baseline'], rule['unit'])}")
    if rule["exceeded_by"] is not None:
        lines.append(f"exceeded by: {format_count(rule['exceeded_by'])}")
    contributors = [Contributor(**each) for each in rule["contributors"]]
    lines += map(_part, contributors[:_SHOWN])
    if left := contributors[_SHOWN:]:
        others = Contributor(format_others(len(left)), sum(each.value for each in left), _sum_before(left))
        lines.append(f"  {others.name}" if rule["metric"] in UNSUMMED else _part(others))
    return lines


def _sum_before(left: Sequence[Contributor]) -> int | None:
    known = [each.baseline for each in left if each.baseline is not None]
    return sum(known) if known else None


def _part(each: Contributor) -> str:
    before = "" if each.baseline is None else f", was {format_count(each.baseline)}"
    return f"  {each.name}: {format_count(each.value)}{before}"


# verify


_DIFFERS, _NOT_COMPARED = "differs", "not-compared"


def _of_verify(document: Document) -> tuple[Suite]:
    """Return a case for each output, and for each module if outputs differ; cases that no run tried are skipped."""
    first = document["first"]
    cases = [
        _of_value(f"output {row['name'] or '[only there]'}", row, document) for row in document["outputs"]
    ]
    if not cases:
        cases.append(Case("outputs", Outcome.ERROR, _NOT_COMPARED, "there is no output to compare"))
    where = first and _place(first["module"], f"node {first['node']}")
    rows = [(_place(row["module"], f"value {row['value']}"), row) for row in document["modules"]]
    if first is not None and not any(name == where and row["verdict"] == _DIFFERS for name, row in rows):
        cases.append(Case(where, Outcome.FAILURE, _DIFFERS, first["reason"]))
    cases += [_of_value(name, row, document, where or "") for name, row in rows]
    properties = [*_head(document, "same"), ("against", document["against"])]
    if document["inputs"]:
        cases += [Case(f"not tried: {each}", Outcome.SKIPPED, message=each) for each in document["uncovered"]]
    else:
        properties += [("account", each) for each in document["uncovered"]]
    properties += [
        ("difference", f"{each['node']}: {each['found']}, and {each['expected']} in {document['against']}")
        for each in document["wiring"]["differences"]
    ]
    return (Suite(document["model"], tuple(cases), tuple(properties)),)


def _place(module: str | None, otherwise: str) -> str:
    return f"module {module}" if module else otherwise


def _of_value(name: str, row: Mapping[str, Any], document: Document, where: str = "") -> Case:
    """Return the case of one value of both sides; only the first module that differs, and outputs, give the cause."""
    first = document["first"]
    if row["verdict"] == _DIFFERS:
        if first is not None:
            state = "are not there" if row["signal_to_error_db"] is None else "are others"
            why = first["reason"] if where in ("", name) else f"its values {state}; the two part in {where}"
        else:
            why = "differs by more than rounding, at an unknown node"
        return Case(name, Outcome.FAILURE, _DIFFERS, why, tuple(_distances(row)))
    if row["verdict"] == _NOT_COMPARED:
        message = f"not compared with {document['against']}: of another shape, type or code, or not there"
        return Case(name, Outcome.ERROR, _NOT_COMPARED, message)
    return Case(name, Outcome.PASSED)


def _distances(row: Mapping[str, Any]) -> Iterator[str]:
    for key, label, unit in (
        ("max_abs_error", "largest difference", ""),
        ("signal_to_error_db", "signal to error", " dB"),
        ("noise_db", "signal to rounding", " dB"),
    ):
        if row[key] is not None:
            yield f"{label}: {row[key]:.3g}{unit}"
