"""The JSON document of `check` -> JUnit XML, which CI servers show: a suite for each model, a case for each rule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from analyzer.budget.record import UNSUMMED, Contributor
from analyzer.documents.base import Head
from analyzer.formats.json import to_document
from analyzer.formats.options import RenderOptions
from analyzer.formats.problems import worst_first
from analyzer.text import format_amount, format_count, format_others, printable

if TYPE_CHECKING:
    from analyzer.reports import Report

_NO_MODEL = "no model"
"""The suite of rules that are about none."""

_UNKNOWN_TIME = "1970-01-01T00:00:00"
"""The schema asks for a time; two runs are to write the same bytes."""

_SHOWN = 20
"""Contributors below a failure."""


def render_junit(report: Report | Head, options: RenderOptions | None = None) -> str:
    """The report as JUnit XML, with a final newline: valid for Jenkins' schema and for Windy Road's of Ant's.

    A rule that failed is a `failure`; one that should have been evaluated and could not be, or a model that cannot be
    read, is an `error`; one that does not apply is `skipped`. There are no times: rules are not timed.
    """
    document = to_document(report)
    root = ET.Element("testsuites")
    for number, (model, rules) in enumerate(_suites(document)):
        _add_suite(root, number, model, rules, document)
    ET.indent(root)
    text = ET.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _suites(document: dict[str, Any]) -> list[tuple[str | None, list[dict[str, Any]]]]:
    """Rules by model, in the order of the models; at the end those of none."""
    models: list[str | None] = [*document["models"], None]
    suites = [(model, [rule for rule in document["rules"] if rule["model"] == model]) for model in models]
    return [(model, rules) for model, rules in suites if model is not None or rules]


def _add_suite(
    root: ET.Element,
    number: int,
    model: str | None,
    rules: Sequence[dict[str, Any]],
    document: dict[str, Any],
) -> None:
    errors = {row["model"]: row["error"] for row in document["unreadable"]}
    name = _NO_MODEL if model is None else _text(model)
    suite = ET.SubElement(root, "testsuite", name=name, package="onnxledger.check", id=str(number))
    properties = ET.SubElement(suite, "properties")
    for key, value in _properties(document, model):
        ET.SubElement(properties, "property", name=key, value=_text(value))
    if model in errors:
        case = ET.SubElement(suite, "testcase", name="can be read", classname=name, time="0")
        ET.SubElement(case, "error", type="unreadable", message=_text(errors[model]))
    for rule in rules:
        _add_case(suite, name, rule)
    ET.SubElement(suite, "system-out")
    ET.SubElement(suite, "system-err")
    counts = {tag: sum(1 for _ in suite.iter(tag)) for tag in ("failure", "error", "skipped", "testcase")}
    suite.attrib |= {
        "tests": str(counts["testcase"]),
        "failures": str(counts["failure"]),
        "errors": str(counts["error"]),
        "skipped": str(counts["skipped"]),
        "time": "0",
        "timestamp": document.get("generated_at", _UNKNOWN_TIME)[: len(_UNKNOWN_TIME)],
        "hostname": "localhost",
    }


def _properties(document: dict[str, Any], model: str | None) -> list[tuple[str, str]]:
    findings = worst_first(document["findings"], lambda finding: finding["severity"])
    found = [finding for finding in findings if finding["model"] == model]
    tool = document["tool"]
    return [
        ("tool", f"{tool['name']} {tool['version']}"),
        ("schema_version", str(document["schema_version"])),
        ("passed", str(document["passed"]).lower()),
        *(("finding", f"{finding['severity']}: {finding['message']} [{finding['id']}]") for finding in found),
    ]


def _add_case(suite: ET.Element, model: str, rule: dict[str, Any]) -> None:
    case = ET.SubElement(suite, "testcase", name=_text(rule["name"]), classname=model, time="0")
    if rule["status"] == "FAIL":
        failure = ET.SubElement(case, "failure", type=rule["metric"], message=_text(_headline(rule)))
        failure.text = "\n".join(map(_text, _details(rule)))
    elif rule["skipped"] == "not-evaluated":
        ET.SubElement(case, "error", type="not-evaluated", message=_text(rule["message"]))
    elif rule["status"] != "PASS":
        ET.SubElement(case, "skipped", message=_text(rule["message"] or str(rule["skipped"])))


def _headline(rule: dict[str, Any]) -> str:
    """What is wrong, and what the project says to it."""
    return " ".join(filter(None, [f"{rule['message']}.", rule["advice"]]))


def _details(rule: dict[str, Any]) -> list[str]:
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


def _text(text: str) -> str:
    r"""Without the characters that XML forbids, and those that a terminal obeys: they are escaped.

    >>> _text("a\x00b\ud800\ufffe"), _text(" ")
    ('a\\x00b\\ud800\\ufffe', "' '")
    """
    return printable(text) if text.strip(" ") or not text else repr(text)
