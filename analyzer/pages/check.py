"""The page of `check`: whether models are within their budgets, the rules that fail, and the room that is left."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from analyzer.budget.record import HIDDEN, UNSUMMED, Skipped, Unit
from analyzer.budget.record import Status as RuleStatus
from analyzer.documents.check import CheckDocument, Contributor, ModelFinding, Verdict
from analyzer.pages.page import (
    Block,
    Cell,
    Column,
    Detail,
    Findings,
    Formatted,
    Kind,
    Notes,
    Page,
    Problem,
    Row,
    Table,
    Tone,
)
from analyzer.pages.shared import count_severities, list_findings, natural_list
from analyzer.text import (
    format_bytes,
    format_count,
    format_many,
    format_percent,
    format_signed,
    format_signed_bytes,
    short_share,
)


def describe_check(document: CheckDocument) -> Page:
    """Describe a check: the verdict, failures, each rule with its room, and the largest parts behind a failed rule."""
    return Page(
        kind="check",
        question="Is it within its budgets?",
        subject=natural_list(document.models),
        answer=_answer(document),
        tone=Tone.GOOD if document.passed else Tone.BAD,
        blocks=tuple(_blocks(document)),
    )


def _is_unevaluated(rule: Verdict) -> bool:
    """Whether a rule should have been evaluated and could not be: no pass."""
    return rule.skipped is Skipped.NOT_EVALUATED


def _answer(document: CheckDocument) -> str:
    """Return PASS, FAIL or NO ANSWER, with the counts behind it."""
    failed, passed, skipped = (
        sum(rule.status is status for rule in document.rules)
        for status in (RuleStatus.FAIL, RuleStatus.PASS, RuleStatus.SKIP)
    )
    unknown, unread = sum(map(_is_unevaluated, document.rules)), len(document.unreadable)
    counts = [f"{format_count(failed)} failed"] if failed else []
    counts.append(f"{format_count(passed)} passed")
    counts += [f"{format_count(unknown)} not evaluated"] if unknown else []
    counts += [f"{format_count(skipped - unknown)} skipped"] if skipped > unknown else []
    counts += [f"{format_many(unread, 'model')} cannot be read"] if unread else []
    word = "FAIL" if failed else "PASS" if document.passed else "NO ANSWER (not a pass)"
    return f"{word}: {', '.join(counts)}"


def _blocks(document: CheckDocument) -> Iterator[Block]:
    errors = [each for each in document.findings if each.severity == "error"]
    wrong = (*_wrong(document), *_found(errors, document))
    if wrong:
        yield Findings(wrong, title="what is wrong")
    yield Notes(tuple(_remarks(document)), detail=Detail.FIRST)
    yield _rules(document)
    failed = [rule for rule in document.rules if rule.status is RuleStatus.FAIL and rule.contributors]
    most = 1 if len(document.models) > _FEW else _TABLES
    shown = [rule for rule in failed if not _is_in_message(rule)][:most]
    for rule in failed:
        yield _contributors(rule, Detail.SHOWN if rule in shown else Detail.MORE, document)
    yield _definitions(document)
    others = [each for each in document.findings if each.severity != "error"]
    heading = f"findings: {count_severities(others)}" if others else ""
    yield Findings(_found(others, document), title=heading, detail=Detail.MORE)


_TABLES = 3
"""Number of failed rules whose largest parts are shown without `-v`."""


def _is_in_message(rule: Verdict) -> bool:
    """Whether the message already says as much as the table of parts: its only part is all that was observed."""
    return len(rule.contributors) == 1 and rule.observed in (
        rule.contributors[0].value,
        [rule.contributors[0].name],
    )


# problems


def _wrong(document: CheckDocument) -> Iterator[Problem]:
    """Yield failed rules, unreadable models, rules without an answer; models with the same message share one."""
    unevaluated = Counter(rule.model for rule in document.rules if _is_unevaluated(rule))
    unreadable_models = {each.model: each.error for each in document.unreadable}
    failed: dict[tuple[str, str], list[Verdict]] = defaultdict(list)
    unknown: dict[tuple[str, str], list[Verdict]] = defaultdict(list)
    for rule in document.rules:
        text = f"{rule.message}. {rule.advice}" if rule.advice else rule.message
        if rule.status is RuleStatus.FAIL:
            failed[rule.name, text].append(rule)
        elif _is_unevaluated(rule) and rule.model not in unreadable_models:
            unknown[rule.name, f"not evaluated: {rule.message}"].append(rule)
    yield from _shared(failed, document)
    for model, error in unreadable_models.items():
        rules = f" ({format_many(unevaluated[model], 'rule')} not evaluated)" if unevaluated[model] else ""
        yield Problem(
            "unreadable", "error", f"{error}{rules}", model=model if len(document.models) > 1 else ""
        )
    yield from _shared(unknown, document)


def _shared(found: Mapping[tuple[str, str], Sequence[Verdict]], document: CheckDocument) -> Iterator[Problem]:
    several = len(document.models) > 1
    for (name, message), rules in found.items():
        models = natural_list([_model_name(rule.model) for rule in rules]) if several else ""
        yield Problem(f"budget/{name}", "error", message, model=models)


def _model_name(model: str | None) -> str:
    return model or ""


def _found(findings: Sequence[ModelFinding], document: CheckDocument) -> tuple[Problem, ...]:
    """Return the findings of all models, the worst first."""
    several = len(document.models) > 1
    problems = [
        problem
        for model in document.models
        for problem in list_findings(
            [each for each in findings if each.model == model], model if several else ""
        ).problems
    ]
    ranks = {"error": 0, "warning": 1}
    return tuple(sorted(problems, key=lambda each: ranks.get(each.severity, 2)))


def _remarks(document: CheckDocument) -> Iterator[str]:
    """Tell possible mistakes in the budget, and findings that no rule judges."""
    count = sum(rule.skipped is Skipped.NOT_MATCHED for rule in document.rules)
    if count:
        verb, globs = ("matches", "the glob is") if count == 1 else ("match", "the globs are")
        yield f"{format_many(count, 'rule')} {verb} no model that was checked: see whether {globs} right"
    covered = {rule.model for rule in document.rules}
    uncovered = [model for model in document.models if model not in covered]
    if uncovered:
        yield f"no rule applies to {natural_list(uncovered)}"
    planned = [rule for rule in document.rules if rule.metric == "memory" and rule.status is RuleStatus.PASS]
    for rule in planned[:_TABLES]:
        of = f" of {rule.model}" if len(document.models) > 1 else ""
        yield f"{rule.name}{of}: {rule.message}"
    others = [each for each in document.findings if each.severity != "error"]
    if others:
        yield f"also found: {count_severities(others)}"


# the rules


def _rules(document: CheckDocument) -> Table:
    """Return a row for each verdict; failed and unevaluated rules come first."""
    several = len(document.models) > 1
    has_baseline = any(rule.baseline is not None for rule in document.rules)
    columns = (
        Column("rules", Kind.NAME),
        *([Column("model", Kind.NAME, room=9)] if several else []),
        Column("status", room=9),
        Column("observed", Kind.AMOUNT, room=9),
        Column("limit", Kind.AMOUNT, room=9),
        *([Column("baseline", Kind.AMOUNT, room=1), Column("change", Kind.AMOUNT, room=2)] * has_baseline),
        Column("room", Kind.AMOUNT, room=8),
    )
    rows = [
        Row(
            (
                rule.name,
                *([_model_name(rule.model)] if several else []),
                str(rule.status),
                _observed(rule),
                _limit(rule),
                *([_baseline(rule), _change(rule)] * has_baseline),
                _room(rule),
            ),
            tone=Tone.BAD if _rank(rule) < _RANKS[RuleStatus.PASS] else Tone.PLAIN,
        )
        for rule in sorted(document.rules, key=_rank)
    ]
    notes = tuple(_skipped(document))
    if len(document.models) > _FEW:  # the errors above have the failures
        return Table(columns, tuple(rows), title="rules", notes=notes, brief=_FEW, ample=4)
    return Table(columns, tuple(rows), title="rules", notes=notes, ample=4)


_FEW = 5
"""Number of verdicts that are shown at first, if there are more models."""


_RANKS = {RuleStatus.FAIL: 0, RuleStatus.PASS: 2, RuleStatus.SKIP: 3}


def _rank(rule: Verdict) -> int:
    return 1 if _is_unevaluated(rule) else _RANKS[rule.status]


def _amount(rule: Verdict, value: int | Sequence[str] | None) -> Cell:
    """Return a number in the rule's unit, or the number of names."""
    if value is None:
        return Formatted(None, "")
    if not isinstance(value, int):
        return Formatted(len(value), format_many(len(value), rule.unit.removesuffix("s")))
    return Formatted(value, _number(rule, value))


def _observed(rule: Verdict) -> Cell:
    """Return the observed number, or its range."""
    if rule.observed_least is None or not isinstance(rule.observed, int):
        return _amount(rule, rule.observed)
    most = "more" if rule.observed_most is None else _number(rule, rule.observed_most)
    return Formatted(
        rule.observed, f"{_number(rule, rule.observed_least)} {'or' if most == 'more' else 'to'} {most}"
    )


def _number(rule: Verdict, value: int) -> str:
    """Format a number in the rule's unit; bytes in short form, unless limit and observed would then read the same."""
    if rule.unit is Unit.DECIBELS:
        return f"{format_count(value)} dB"
    if rule.unit is not Unit.BYTES:
        return format_count(value)
    ends = [end for end in (rule.observed, rule.limit) if isinstance(end, int)]
    is_close = len(set(map(format_bytes, ends))) < len(set(ends))
    return format_count(value) if is_close else format_bytes(value)


def _limit(rule: Verdict) -> Cell:
    if rule.limit is None:
        return Formatted(None, "")
    if not isinstance(rule.limit, int):
        return Formatted(len(rule.limit), f"{format_count(len(rule.limit))} allowed")
    sign = ">=" if rule.bound == "least" else "<="
    return Formatted(rule.limit, f"{sign} {_number(rule, rule.limit)}")


def _baseline(rule: Verdict) -> Cell:
    return _amount(rule, rule.baseline)


def _change(rule: Verdict) -> Cell:
    if rule.baseline is None or not isinstance(rule.observed, int):
        return Formatted(None, "")
    return _growth(rule.observed, rule.baseline, is_bytes=rule.unit is Unit.BYTES)


def _growth(now: int, before: int, *, is_bytes: bool = False) -> Formatted:
    """Return the growth, also in percent of the earlier number.

    >>> _growth(103, 100).text, _growth(5, 0, is_bytes=True).text, _growth(7, 7).text
    ('+3 (+3.00 %)', '+5 B', '0')
    """
    signed = format_signed_bytes(now - before) if is_bytes else format_signed(now - before)
    if not before or now == before:
        return Formatted(now - before, signed)
    percent = format_percent((now - before) / before)
    return Formatted(now - before, f"{signed} ({'+' if now > before else ''}{percent})")


def _room(rule: Verdict) -> Cell:
    """Return the room up to the limit; the excess over it if the rule failed; the reason if the rule was skipped."""
    if rule.exceeded_by is not None:
        if not isinstance(rule.observed, int):
            return Formatted(-rule.exceeded_by, f"{format_count(rule.exceeded_by)} not allowed")
        is_short = isinstance(rule.limit, int) and rule.observed < rule.limit
        return Formatted(
            -rule.exceeded_by, f"{_number(rule, rule.exceeded_by)} {'too low' if is_short else 'over'}"
        )
    if rule.skipped is not None:
        return Formatted(None, _SKIPPED[rule.skipped])
    if (
        rule.status is not RuleStatus.PASS
        or not isinstance(rule.observed, int)
        or not isinstance(rule.limit, int)
    ):
        return Formatted(None, "")
    room = abs(rule.limit - rule.observed)
    has_share = rule.limit > 0 and rule.unit not in (Unit.VERSION, Unit.DECIBELS)  # decibels are logarithms
    share = f" ({short_share(room / rule.limit)})" if has_share else ""
    return Formatted(room, f"{_number(rule, room)}{share}")


_SKIPPED = {
    Skipped.NOT_EVALUATED: "not evaluated",
    Skipped.DISABLED: "disabled",
    Skipped.OVERRIDDEN: "overridden",
    Skipped.NOT_MATCHED: "matches no model",
}


def _skipped(document: CheckDocument) -> Iterator[str]:
    """Tell the rules that judged no model, and why."""
    reasons: dict[str, list[str]] = defaultdict(list)
    for rule in document.rules:
        if rule.status is RuleStatus.SKIP and not _is_unevaluated(rule):
            reasons[rule.message].append(rule.name)
    if reasons:
        lists = "; ".join(f"{', '.join(names)} ({reason})" for reason, names in reasons.items())
        yield f"applied to no model: {lists}"


def _definitions(document: CheckDocument) -> Table:
    """Return the table of what each rule measures, and of the place that defines it."""
    rules = {rule.name: rule for rule in document.rules}.values()
    columns = (
        Column("rule definition", Kind.NAME),
        Column("metric", room=8),
        Column("of", Kind.NAME, room=6),
        Column("models", Kind.NAME, room=5),
        Column("names", Kind.PROSE, room=4),
        Column("from", Kind.NAME, room=7),
        Column("advice", Kind.PROSE, room=3),
    )
    rows = tuple(
        Row(
            (
                rule.name,
                rule.metric,
                rule.group or "",
                rule.match or "",
                "" if rule.limit is None or isinstance(rule.limit, int) else ", ".join(rule.limit),
                rule.origin,
                rule.advice,
            )
        )
        for rule in rules
    )
    empty = [at for at in range(len(columns)) if at > 1 and not any(row.cells[at] for row in rows)]
    kept = [at for at in range(len(columns)) if at not in empty]
    return Table(
        tuple(columns[at] for at in kept),
        tuple(Row(tuple(row.cells[at] for at in kept)) for row in rows),
        title="rule definition",
        detail=Detail.MORE,
        ample=4,
    )


# the largest parts of what failed

_COUNTED_BY = {Unit.OPERATORS: "nodes", Unit.DOMAINS: "nodes", Unit.DTYPES: "tensors"}
"""Column title for the counts of names, by the unit of the rule."""


def _contributors(rule: Verdict, detail: Detail, document: CheckDocument) -> Table:
    """Return the table of the largest parts, or changes; with a row for the rest they sum to the total, if they can."""
    has_baseline = any(each.baseline is not None for each in rule.contributors)
    total = _total(rule)
    adds = rule.metric not in UNSUMMED
    rows = [
        Row(_part(each, has_baseline=has_baseline, adds=adds), stays=each.name == HIDDEN)
        for each in rule.contributors
    ]
    if total is not None:
        rest = _rest(total, rule.contributors)
        cells = _part(rest, has_baseline=has_baseline)
        rows += [Row(cells, stays=True)] if rest.value or rest.baseline else []
    unit = Column("now" if has_baseline else _COUNTED_BY.get(rule.unit, str(rule.unit)), Kind.COUNT, room=9)
    before = [Column("baseline", Kind.COUNT, room=5)] if has_baseline else []
    change = [Column("change", Kind.SIGNED, room=9)] if has_baseline else []
    columns = (
        Column("part", Kind.NAME),
        *before,
        unit,
        *change,
    )
    where = f" in {rule.model}" if len(document.models) > 1 else ""
    return Table(
        columns,
        tuple(rows),
        title=f"{rule.name}{where}: largest {'changes' if has_baseline else 'parts'}",
        total=_part(total, has_baseline=has_baseline) if total is not None else (),
        detail=detail,
        is_long=len(rows) > _SHORT,
    )


_SHORT = 20
"""Most rows that an HTML page shows on one page of a table."""


def _part(each: Contributor, *, has_baseline: bool, adds: bool = True) -> tuple[Cell, ...]:
    value: Cell = each.value if adds else Formatted(None, format_count(each.value))
    if not has_baseline:
        return (each.name, value)
    return (each.name, each.baseline or 0, value, _growth(each.value, each.baseline or 0))


def _total(rule: Verdict) -> Contributor | None:
    """Return the total of the parts; None if it is not a number, or the parts exceed it."""
    if not isinstance(rule.observed, int) or rule.metric in UNSUMMED:
        return None
    total = Contributor(name="total", value=rule.observed, baseline=rule.baseline)
    rest = _rest(total, rule.contributors)
    return None if rest.value < 0 or (rest.baseline or 0) < 0 else total


def _rest(total: Contributor, parts: Sequence[Contributor]) -> Contributor:
    """Return the rest of the total beside the parts, named `[unchanged]` if it equals the rest of the baseline."""
    value = total.value - sum(each.value for each in parts)
    if total.baseline is None:
        return Contributor(name="[others]", value=value, baseline=None)
    baseline = total.baseline - sum(each.baseline or 0 for each in parts)
    name = "[unchanged]" if value == baseline else "[others]"
    return Contributor(name=name, value=value, baseline=baseline)
