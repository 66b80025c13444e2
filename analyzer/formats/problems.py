"""A report's JSON document -> what of it somebody must see who reads no report: the lines of CI logs and of SARIF."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from analyzer.account.ledger import Severity

_T = TypeVar("_T")

BUDGET = "budget/"
"""What the id of a budget's rule begins with; the rule's name follows."""

UNREADABLE = "unreadable"
"""The id of a model that cannot be read."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A finding, a rule that failed, or what could not be answered."""

    id: str
    """A finding's id, `budget/` and a rule's name, or `unreadable`."""
    severity: Severity
    message: str
    """As the document has it: names in it are not escaped."""
    path: str | None
    """The model."""
    subjects: tuple[str, ...] = ()
    nbytes: int | None = None
    is_answered: bool = True
    """Whether the file is at fault; else the question could not be answered."""
    rule: Mapping[str, Any] = field(default_factory=dict)
    """The rule's row in the document, where it is about a rule."""


def list_problems(document: Mapping[str, Any]) -> tuple[Problem, ...]:
    """Errors first, then warnings, then notes; those of one severity in the document's order.

    What keeps a reconciliation from balancing is among its findings. Other kinds of documents have nothing of the kind.
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
                _say(rule),
                rule["model"],
                tuple(each["name"] for each in rule["contributors"]),
                is_answered=is_failed,
                rule=rule,
            )


def _say(rule: Mapping[str, Any]) -> str:
    """What is wrong, which part of the model has most of it, and what the project wants to be said."""
    parts = rule["contributors"]
    is_counted = parts and isinstance(rule["observed"], int)
    most = f" (most of it in {parts[0]['name']})" if is_counted else ""
    return f"{rule['message']}{most}. {rule['advice']}" if rule["advice"] else f"{rule['message']}{most}"


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


def _unreadable(path: str, error: str) -> Problem:
    return Problem(UNREADABLE, Severity.ERROR, error, path, is_answered=False)


def worst_first(found: Iterable[_T], severity: Callable[[_T], str]) -> list[_T]:
    """Errors, then warnings, then notes; those of one severity as they were.

    >>> worst_first([("a", "note"), ("b", "error"), ("c", "note")], lambda each: each[1])
    [('b', 'error'), ('a', 'note'), ('c', 'note')]
    """
    ranks = {each.value: rank for rank, each in enumerate(_WORST_FIRST)}
    return sorted(found, key=lambda each: ranks.get(severity(each), len(ranks)))


_WORST_FIRST = (Severity.ERROR, Severity.WARNING, Severity.NOTE)
