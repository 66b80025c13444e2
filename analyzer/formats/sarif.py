"""A report's findings and failed budgets -> SARIF 2.1.0, within the limits of GitHub's code scanning."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from analyzer.account.findings.catalog import EXPLANATIONS, Explanation
from analyzer.account.ledger import Severity
from analyzer.documents.base import Head
from analyzer.formats.json import to_document
from analyzer.formats.options import RenderOptions
from analyzer.formats.problems import BUDGET, QUESTIONS, Problem, Question, list_problems
from analyzer.reports import Report
from analyzer.text import format_many, printable, printable_name, shorten

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_MOST_RESULTS = 25_000
"""Largest number of results; GitHub refuses a file with more."""
_MOST_SUBJECTS = 10
_LONGEST_DESCRIPTION = 1_024
_LONGEST_NAME = 255

Object = dict[str, Any]


def render_sarif(report: Report | Head, options: RenderOptions | None = None) -> str:
    """Render the report as SARIF: a result for each finding, each rule that failed, and each module that differs.

    A question that could not be answered, such as a rule without its baseline, is a notification and no result, and the
    invocation was not successful.
    """
    document = to_document(report)
    problems = list_problems(document)
    run = _run(document, problems)
    return (
        json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2, sort_keys=True) + "\n"
    )


def _run(document: Mapping[str, Any], problems: Sequence[Problem]) -> Object:
    answers = [problem for problem in problems if problem.is_answered]
    shown = answers[:_MOST_RESULTS]
    if document["command"] == "verify":
        rules = [*map(_describe_question, QUESTIONS)]
    else:
        rules = [*map(_describe, EXPLANATIONS.values()), *_describe_budgets(problems)]
    numbers = {rule["id"]: number for number, rule in enumerate(rules)}
    notes = [_notify(problem, numbers) for problem in problems if not problem.is_answered]
    if len(answers) > len(shown):
        more = format_many(len(answers) - len(shown), "more result")
        text = f"{more}, which GitHub would not take: see the JSON report"
        notes.append({"level": "warning", "message": {"text": text}})
    return {
        "tool": {"driver": _driver(document["tool"], rules)},
        "automationDetails": {"id": f"onnxledger/{document['command']}/"},
        "invocations": [_invocation(document, notes, is_successful=len(answers) == len(problems))],
        "results": _results(shown, numbers),
    }


def _driver(tool: Mapping[str, str], rules: list[Object]) -> Object:
    version = tool["version"]
    is_semantic = re.fullmatch(r"\d+\.\d+\.\d+(?:-[0-9A-Za-z.-]+)?(?:\+[0-9A-Za-z.-]+)?", version)
    return {
        "name": tool["name"],
        "version": version,
        **({"semanticVersion": version} if is_semantic else {}),
        "rules": rules,
    }


def _invocation(document: Mapping[str, Any], notes: list[Object], *, is_successful: bool) -> Object:
    stamp = document.get("generated_at")
    return {
        "executionSuccessful": is_successful,
        "toolExecutionNotifications": notes,
        **({"endTimeUtc": stamp.replace("+00:00", "Z")} if stamp else {}),
    }


# rules


_LEVELS = {
    each.value: number for number, each in enumerate((Severity.NOTE, Severity.WARNING, Severity.ERROR))
}


def _describe(finding: Explanation) -> Object:
    parts = (
        ("What it means", finding.meaning),
        ("What it costs", finding.cost),
        ("How to fix it", finding.mend),
    )
    return {
        "id": finding.id,
        "name": finding.id,
        "shortDescription": {"text": shorten(finding.title, _LONGEST_DESCRIPTION)},
        "fullDescription": {"text": shorten(finding.meaning, _LONGEST_DESCRIPTION)},
        "defaultConfiguration": {"level": max(finding.severities, key=_LEVELS.__getitem__)},
        "help": {
            "text": "\n\n".join(f"{title}:\n{text}" for title, text in parts),
            "markdown": "\n\n".join(f"**{title}**\n\n{text}" for title, text in parts),
        },
    }


def _describe_question(question: Question) -> Object:
    return {
        "id": question.id,
        "name": question.id,
        "shortDescription": {"text": question.title},
        "fullDescription": {"text": question.meaning},
        "defaultConfiguration": {"level": question.severity.value},
        "help": {"text": f"{question.meaning} {question.mend}"},
    }


def _describe_budgets(problems: Sequence[Problem]) -> list[Object]:
    rules = {problem.id: problem.rule for problem in problems if problem.id.startswith(BUDGET)}
    return [_describe_budget(id_, rule) for id_, rule in rules.items()]


def _describe_budget(id_: str, rule: Mapping[str, Any]) -> Object:
    name = _unlinked(printable_name(rule["name"]))
    group = f" of {printable_name(rule['group'])}" if rule["group"] else ""
    meaning = (
        f"The project's budget for {rule['metric']}{group}, set by {printable_name(rule['origin']) or name}."
    )
    mend = "Change the model so that it meets the limit. If the model is right, change the limit or its baseline."
    return {
        "id": printable_name(id_),
        "name": shorten(name, _LONGEST_NAME),
        "shortDescription": {"text": shorten(f"budget {name}", _LONGEST_DESCRIPTION)},
        "fullDescription": {"text": shorten(_unlinked(meaning), _LONGEST_DESCRIPTION)},
        "defaultConfiguration": {"level": "error"},
        "help": {"text": f"{_unlinked(meaning)} {mend}"},
    }


# results


def _results(problems: Sequence[Problem], numbers: Mapping[str, int]) -> list[Object]:
    seen: Counter[str] = Counter()
    results = []
    for problem in problems:
        mark = _fingerprint(problem)
        seen[mark] += 1
        results.append(_result(problem, numbers, f"{mark}:{seen[mark]}"))
    return results


def _result(problem: Problem, numbers: Mapping[str, int], mark: str) -> Object:
    id_ = printable_name(problem.id)
    known = {"ruleIndex": numbers[id_]} if id_ in numbers else {}
    return {
        "ruleId": id_,
        **known,
        "level": problem.severity.value,
        "message": {"text": _format_message(problem)},
        "locations": [_locate(problem)],
        "partialFingerprints": {"primaryLocationLineHash": mark},
        "properties": _properties(problem),
        **_relate(problem),
    }


def _fingerprint(problem: Problem) -> str:
    """Return a hash that stays while the problem does: without its numbers, and for a budget without contributors."""
    subjects = () if problem.rule else problem.subjects
    text = json.dumps([problem.id, problem.path, *subjects])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _format_message(problem: Problem) -> str:
    """Return the message, and at its end the number of subjects that the locations leave out."""
    rest = len(problem.subjects) - _MOST_SUBJECTS
    others = f" ({format_many(rest, 'other')} not shown)" if rest > 0 else ""
    return _unlinked(printable(problem.message or problem.id)) + others


def _unlinked(text: str) -> str:
    """Return the text with an escape before each bracket that a viewer would take for a link."""
    return re.sub(r"\[(?=[^\]]*\]\()", r"\\[", text)


def _locate(problem: Problem) -> Object:
    subjects = problem.subjects[:_MOST_SUBJECTS]
    location: Object = {
        "logicalLocations": [{"fullyQualifiedName": printable_name(name)} for name in subjects]
    }
    if not subjects:
        location = {}
    if problem.path is not None:
        location["physicalLocation"] = _point_at(problem.path)
    return location


def _point_at(path: str, line: int = 1) -> Object:
    """Return a place in a file as GitHub expects it: for a binary file, its first character."""
    region = {"startLine": line, "startColumn": 1, "endLine": line, "endColumn": 1}
    return {"artifactLocation": {"uri": _to_uri(path)}, "region": region}


def _to_uri(path: str) -> str:
    """Return a URI reference: relative for a relative path, and an address as it is.

    >>> _to_uri("models/größe 1#.onnx"), _to_uri("/tmp/m.onnx"), _to_uri("a:b.onnx")
    ('models/gr%C3%B6%C3%9Fe%201%23.onnx', 'file:///tmp/m.onnx', 'a%3Ab.onnx')
    >>> _to_uri("hf://owner/name/model.onnx"), _to_uri("./m.onnx"), _to_uri("file:///m o.onnx")
    ('hf://owner/name/model.onnx', 'm.onnx', 'file:///m%20o.onnx')
    """
    scheme = re.match(r"[A-Za-z][\w.+-]*://", path)
    if scheme:
        return scheme[0] + quote(path[scheme.end() :], safe="/:?&=%@+,;~!$'()*-._", errors="replace")
    path = os.path.normpath(path)
    return ("file://" if path.startswith("/") else "") + quote(path, errors="surrogateescape")


_FACTS = (
    "metric", "unit", "observed", "observed_least", "observed_most", "limit", "baseline", "exceeded_by",
)  # fmt: skip


def _properties(problem: Problem) -> Object:
    facts: Object = {"subjects": len(problem.subjects)}
    if problem.nbytes is not None:
        facts["bytes"] = problem.nbytes
    for key in _FACTS:
        if problem.rule.get(key) is not None:
            facts[key] = problem.rule[key]
    return facts


def _relate(problem: Problem) -> Object:
    """Return the location of a budget's rule, if it has a line in a file."""
    place = re.fullmatch(r"(.+):(\d+)", str(problem.rule.get("origin") or ""), re.DOTALL)
    if not place or place[2] == "0":
        return {}
    message = {"text": "the rule"}
    return {
        "relatedLocations": [{"physicalLocation": _point_at(place[1], int(place[2])), "message": message}]
    }


def _notify(problem: Problem, numbers: Mapping[str, int]) -> Object:
    id_ = printable_name(problem.id)
    rule = {"associatedRule": {"id": id_, "index": numbers[id_]}} if id_ in numbers else {}
    return {
        "level": problem.severity.value,
        "message": {"text": _format_message(problem)},
        "descriptor": {"id": "not-evaluated" if problem.rule else problem.id},
        **({"locations": [_locate(problem)]} if problem.path is not None else {}),
        **rule,
    }
