"""A report's JSON document -> the problems to show without the report: lines of CI logs, results of SARIF."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from analyzer.account.ledger import Severity
from analyzer.records import Frozen, field

_T = TypeVar("_T")

BUDGET = "budget/"
"""Prefix of the id of a budget's rule; the rule's name follows."""

UNREADABLE = "unreadable"
"""Id of a model that cannot be read."""


class Question(Frozen):
    """One check of `verify`, as a rule with an id and fixed texts."""

    id: str
    severity: Severity
    title: str
    meaning: str
    mend: str


DIFFERS = Question(
    "verify/differs",
    Severity.ERROR,
    "an output differs by more than rounding",
    "Both sides got the same inputs, and an output differs by more than rounding can explain. "
    "The message names the first module that differs, and the difference if it is known.",
    "Look at the node in the message. If the change is intended, compare with the file that has it.",
)
CHANGED = Question(
    "verify/changed",
    Severity.WARNING,
    "a node differs from the node of the same name",
    "A node has another operator, attribute, constant or input than the node of the same name on the other side.",
    "If the outputs are the same, these inputs may not show the difference: give others with --input.",
)
MISSING_VALUES = Question(
    "verify/behind",
    Severity.NOTE,
    "a module whose values are missing",
    "The file has no values like the outputs of this module. If another module is the first that differs, "
    "that module may be the only fault.",
    "Fix the first module that differs, and verify again.",
)
NOT_COMPARED = Question(
    "verify/not-compared",
    Severity.ERROR,
    "an output that could not be compared",
    "An output is of another shape, type or code than on the other side, or only one side has it.",
    "Name the file it was made from with --against, or run without --static.",
)
QUESTIONS = (DIFFERS, CHANGED, MISSING_VALUES, NOT_COMPARED)
"""Checks of `verify`, worst first."""


class Problem(Frozen):
    """A finding, a rule that failed, or a question that could not be answered."""

    id: str
    """Id of a finding or of a check of `verify`; `budget/` and a rule's name; or `unreadable`."""
    severity: Severity
    message: str
    """Message as the document has it: names in it are not escaped."""
    path: str | None
    """Path of the model."""
    subjects: tuple[str, ...] = ()
    nbytes: int | None = None
    is_answered: bool = True
    """Whether the file is at fault; otherwise the question could not be answered."""
    rule: Mapping[str, Any] = field(default_factory=dict)
    """Row of the rule in the document, if the problem is about a rule."""


def list_problems(document: Mapping[str, Any]) -> tuple[Problem, ...]:
    """Return errors first, then warnings, then notes; problems of one severity in the document's order.

    The findings of a reconciliation include those that keep it from balancing. Other kinds of documents have no
    problems.
    """
    match document["command"]:
        case "check":
            unread = (_unreadable(row["model"], row["error"]) for row in document["unreadable"])
            found = [*_of_rules(document["rules"]), *unread, *_of_findings(document["findings"])]
        case "inspect" if "models" in document:
            found = [each for row in document["models"] for each in _of_row(row)]
        case "inspect" | "reconcile":
            found = [*_of_findings(document["findings"], document["model"]["path"])]
        case "export":
            return list_problems(document["reconcile"])
        case "verify":
            found = [*_of_verification(document)]
        case _:
            return ()
    return tuple(worst_first(found, lambda problem: problem.severity))


def _of_rules(rules: list[dict[str, Any]]) -> Iterator[Problem]:
    for rule in rules:
        is_failed = rule["status"] == "FAIL"
        if is_failed or rule["skipped"] == "not-evaluated":
            yield Problem(
                BUDGET + rule["name"],
                Severity.ERROR,
                _format_message(rule),
                rule["model"],
                tuple(each["name"] for each in rule["contributors"]),
                is_answered=is_failed,
                rule=rule,
            )


def _format_message(rule: Mapping[str, Any]) -> str:
    """Return the rule's message, the part of the model that has most of it, and the project's advice."""
    parts = rule["contributors"]
    observed, limit = rule["observed"], rule["limit"]
    is_short = isinstance(limit, int | float) and isinstance(observed, int) and observed < limit
    is_counted = parts and isinstance(observed, int) and rule["unit"] != _VERSION and not is_short
    most = f" (most of it in {parts[0]['name']})" if is_counted else ""
    return f"{rule['message']}{most}. {rule['advice']}" if rule["advice"] else f"{rule['message']}{most}"


_VERSION = "version"
"""Unit of opsets, which are no sum."""


def _of_findings(findings: list[dict[str, Any]], path: str | None = None) -> Iterator[Problem]:
    for finding in findings:
        yield Problem(
            finding["id"],
            Severity(finding["severity"]),
            finding["message"],
            finding.get("model", path),
            tuple(finding.get("subjects", ())),
            finding.get("bytes"),
        )


def _of_row(row: dict[str, Any]) -> Iterator[Problem]:
    if row["readable"]:
        yield from _of_findings(row["findings"], row["path"])
    else:
        yield _unreadable(row["path"], row["error"])


def _of_verification(document: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield the first module that differs, with its cause; then other differences; then outputs not compared."""
    path, against, first = document["model"], document["against"], document["first"]
    differing = [row for row in document["outputs"] if row["verdict"] == "differs"]
    if first is not None:
        outputs = ", ".join(_measure(row) for row in differing)
        where = f" in {first['module']}" if first["module"] else ""
        message = f"differs from {against} from {first['node']}{where} on: {first['reason']}; {outputs}"
        yield _problem(DIFFERS, message, path, _names(first["module"], first["node"]))
    for row in differing if first is None else ():
        message = f"differs from {against}, at an unknown node: {_measure(row)}"
        yield _problem(DIFFERS, message, path, (row["name"],))
    for each in document["wiring"]["differences"]:
        if first is None or each["node"] != first["node"]:
            message = f"{each['node']}: {each['found']}, and {each['expected']} in {against}"
            names = _names(each["module"], each["node"])
            yield _problem(CHANGED, message, path, names)
    for row in document["modules"]:
        if row["verdict"] == "differs" and first is not None and row["module"] not in (None, first["module"]):
            message = f"{row['module']}: its values are not there; the two part in {first['module'] or first['node']}"
            yield _problem(MISSING_VALUES, message, path, (row["module"],))
    for row in document["outputs"]:
        if row["verdict"] == "not-compared":
            message = f"output {row['name'] or 'that only the other side has'}: not compared with {against}"
            yield _problem(NOT_COMPARED, message, path, _names(row["name"]))
    if not document["outputs"]:
        yield _problem(NOT_COMPARED, f"there is no output to compare with {against}", path, ())


def _problem(question: Question, message: str, path: str, names: tuple[str, ...]) -> Problem:
    return Problem(
        question.id, question.severity, message, path, names, is_answered=question is not NOT_COMPARED
    )


def _measure(row: Mapping[str, Any]) -> str:
    """Return the name of an output, and its error."""
    decibels = row["signal_to_error_db"]
    return (
        f"output {row['name']}"
        if decibels is None
        else f"output {row['name']} at {decibels:.0f} dB signal to error"
    )


def _names(*found: str | None) -> tuple[str, ...]:
    return tuple(each for each in found if each)


def _unreadable(path: str, error: str) -> Problem:
    return Problem(UNREADABLE, Severity.ERROR, error, path, is_answered=False)


def worst_first(found: Iterable[_T], severity: Callable[[_T], str]) -> list[_T]:
    """Return errors, then warnings, then notes; those of one severity keep their order.

    >>> worst_first([("a", "note"), ("b", "error"), ("c", "note")], lambda each: each[1])
    [('b', 'error'), ('a', 'note'), ('c', 'note')]
    """
    ranks = {each.value: rank for rank, each in enumerate(_WORST_FIRST)}
    return sorted(found, key=lambda each: ranks.get(severity(each), len(ranks)))


_WORST_FIRST = (Severity.ERROR, Severity.WARNING, Severity.NOTE)
