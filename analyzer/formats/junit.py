"""Suites of cases -> JUnit XML, which CI servers show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from analyzer.documents.base import Head
from analyzer.formats.cases import Case, Outcome, Suite, list_suites
from analyzer.formats.json import to_document
from analyzer.formats.options import RenderOptions
from analyzer.text import printable

if TYPE_CHECKING:
    from analyzer.reports import Report

_NO_MODEL = "no model"
"""Name of the suite for rules that are about no model."""

_UNKNOWN_TIME = "1970-01-01T00:00:00"
"""Placeholder for the time that the schema requires, so that two runs write the same bytes."""


def render_junit(report: Report | Head, options: RenderOptions | None = None) -> str:
    """Render the report as JUnit XML with a final newline, valid for Jenkins' schema and Windy Road's schema of Ant's.

    A rule that failed, or a value that differs, is a `failure`; a question that could not be answered is an `error`; a
    question that does not apply, or was not tried, is `skipped`. Cases are not timed.
    """
    document = to_document(report)
    root = ET.Element("testsuites")
    for number, suite in enumerate(list_suites(document)):
        _add_suite(root, number, suite, document)
    ET.indent(root)
    text = ET.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _add_suite(root: ET.Element, number: int, suite: Suite, document: dict[str, Any]) -> None:
    name = _NO_MODEL if suite.model is None else _text(suite.model)
    package = f"onnxledger.{document['command']}"
    testsuite = ET.SubElement(root, "testsuite", name=name, package=package, id=str(number))
    properties = ET.SubElement(testsuite, "properties")
    for key, value in suite.properties:
        ET.SubElement(properties, "property", name=key, value=_text(value))
    for case in suite.cases:
        _add_case(testsuite, name, case)
    ET.SubElement(testsuite, "system-out")
    ET.SubElement(testsuite, "system-err")
    counts = {tag: sum(1 for _ in testsuite.iter(tag)) for tag in ("failure", "error", "skipped", "testcase")}
    testsuite.attrib |= {
        "tests": str(counts["testcase"]),
        "failures": str(counts["failure"]),
        "errors": str(counts["error"]),
        "skipped": str(counts["skipped"]),
        "time": "0",
        "timestamp": document.get("generated_at", _UNKNOWN_TIME)[: len(_UNKNOWN_TIME)],
        "hostname": "localhost",
    }


def _add_case(suite: ET.Element, model: str, case: Case) -> None:
    testcase = ET.SubElement(suite, "testcase", name=_text(case.name), classname=model, time="0")
    if case.outcome is Outcome.SKIPPED:
        ET.SubElement(testcase, "skipped", message=_text(case.message))
    elif case.outcome is not Outcome.PASSED:
        element = ET.SubElement(testcase, case.outcome.value, type=case.kind, message=_text(case.message))
        if case.lines:
            element.text = "\n".join(map(_text, case.lines))


def _text(text: str) -> str:
    r"""Return the text with escapes for characters that XML forbids or that a terminal obeys.

    >>> _text("a\x00b\ud800\ufffe"), _text(" ")
    ('a\\x00b\\ud800\\ufffe', "' '")
    """
    return printable(text) if text.strip(" ") or not text else repr(text)
