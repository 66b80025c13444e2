"""BudgetReport -> blocks, a comment on a pull request: what failed, by how much, and what made it so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from analyzer.budget.record import AtLeast, BudgetReport, Contributor, Skipped, Status, Unit, Verdict
from analyzer.render.markdown.parts import columns, cut, name, others, show_findings
from analyzer.render.options import RenderOptions
from analyzer.render.pieces import Block, Cell, Code, Column, Heading, Items, Line, Piece, Row, Strong, Table
from analyzer.render.sentences.budget import (
    count_unit,
    sum_others,
    tell_exceeded,
    tell_observed,
    tell_unmatched,
)
from analyzer.units import (
    format_bytes,
    format_count,
    format_many,
    format_percent,
    format_signed,
    format_signed_bytes,
)

__all__ = ["show_budget"]


def show_budget(report: BudgetReport, options: RenderOptions) -> Iterator[Block]:
    """From top to bottom; the first line answers."""
    limit = options.rows
    ample = _AMPLE * limit
    yield Heading((f"onnxledger check: {_answer(report)}",))
    if len(report.models) == 1:
        yield Line((Code(report.models[0]),))
    for unmatched in tell_unmatched(report):
        yield Line((Strong(unmatched),))
    if report.verdicts:
        yield _rules(report, ample)
    for verdict in cut(report.failed, ample)[0]:
        yield from _failure(verdict, limit, has_models=len(report.models) > 1)
    told = [*_unreadable(report), *map(_unevaluated, report.unevaluated)]
    shown, left = cut(told, ample)
    if shown:
        yield Items((*shown, *([(others(left),)] if left else [])))
    yield from _findings(report, limit)


_AMPLE = 4
"""Rules that are shown, for each row that a rule's parts may have: what is asked matters more than why."""


def _answer(report: BudgetReport) -> str:
    """The verdict on all, and how many of them decided it."""
    counts = Counter(verdict.status for verdict in report.verdicts)
    what = "rule" if len(report.models) <= 1 else "verdict"
    asked = format_many(len(report.verdicts), what)
    lost = [f"{format_many(len(report.unreadable), 'model')} cannot be read"] if report.unreadable else []
    if report.failed:
        unknown = len(report.unevaluated)
        lost = [f"{format_count(unknown)} not evaluated", *lost] if unknown else lost
        return ", ".join([f"FAIL, {format_count(len(report.failed))} of {asked}", *lost])
    if lost:
        return f"NO ANSWER, {lost[0]}"
    if report.unevaluated:
        return f"NO ANSWER, {format_count(len(report.unevaluated))} of {asked} not evaluated"
    if not report.passed:
        return "NO ANSWER, no rule was evaluated"
    skipped = f", {format_count(counts[Status.SKIP])} skipped" if counts[Status.SKIP] else ""
    return f"PASS, {format_many(counts[Status.PASS], what)}{skipped}"


def _unreadable(report: BudgetReport) -> Iterator[Cell]:
    for path, reason in report.unreadable.items():
        yield (Strong("unreadable"), " ", Code(path), f": {reason}")


def _unevaluated(verdict: Verdict) -> Cell:
    return (Strong("not evaluated"), " ", Code(verdict.rule.name), f": {verdict.message}")


# the rules


def _rules(report: BudgetReport, limit: int) -> Table:
    """A row for each verdict; what decided comes first."""
    ordered = sorted(report.verdicts, key=_rank)
    shown, left = cut(ordered, limit)
    has_models = len(report.models) > 1
    has_baseline = any(verdict.baseline is not None for verdict in report.verdicts)
    rows = [_rule(verdict, has_models=has_models, has_baseline=has_baseline) for verdict in shown]
    titles = ["rule", *(["model"] if has_models else []), "status"]
    numbers = ["observed", "limit", *(["baseline", "change"] if has_baseline else []), "exceeded by"]
    if left:
        counts = Counter(verdict.status for verdict in left)
        told = ", ".join(f"{format_count(counts[each])} {each.value}" for each in Status if counts[each])
        blank: list[Cell] = [()] * (len(titles) + len(numbers) - 2)
        rows.append(Row(((others(left),), *blank[: len(titles) - 2], (told,), *blank[len(titles) - 2 :])))
    return Table(columns(*titles, *numbers, words=len(titles)), tuple(rows))


def _rank(verdict: Verdict) -> int:
    if verdict.skipped is Skipped.NOT_EVALUATED:
        return 1
    return {Status.FAIL: 0, Status.PASS: 2, Status.SKIP: 3}[verdict.status]


def _rule(verdict: Verdict, *, has_models: bool, has_baseline: bool) -> Row:
    called: Cell = (Code(verdict.rule.name),)
    if verdict.rule.group is not None:
        called = (*called, " of ", Code(verdict.rule.group))
    model: list[Cell] = [() if verdict.model is None else (Code(verdict.model),)] if has_models else []
    before = [_baseline(verdict), _change(verdict)] if has_baseline else []
    numbers = (tell_observed(verdict, _number), _limit(verdict), *before, tell_exceeded(verdict, _number))
    return Row((called, *model, _status(verdict), *((number,) for number in numbers)))


def _status(verdict: Verdict) -> Cell:
    """A word; what keeps the gate shut is strong."""
    if verdict.status is Status.FAIL:
        return (Strong("FAIL"),)
    if verdict.skipped is Skipped.NOT_EVALUATED:
        return (Strong("SKIP"), ", not evaluated")
    told = {
        Skipped.DISABLED: ", disabled",
        Skipped.NOT_MATCHED: ", matches no model",
        Skipped.OVERRIDDEN: ", overridden",
    }
    return (verdict.status.value + (told.get(verdict.skipped, "") if verdict.skipped else ""),)


def _limit(verdict: Verdict) -> str:
    limit = verdict.limit
    if limit is None:
        return ""
    if isinstance(limit, tuple):
        return f"{format_count(len(limit))} allowed"
    word = "at least " if isinstance(verdict.rule.limit, AtLeast) else ""
    return word + _number(limit, verdict.unit)


def _number(number: int, unit: Unit) -> str:
    return format_bytes(number) if unit is Unit.BYTES else format_count(number)


def _baseline(verdict: Verdict) -> str:
    return "" if verdict.baseline is None else _number(verdict.baseline, verdict.unit)


def _change(verdict: Verdict) -> str:
    if verdict.baseline is None or not isinstance(verdict.observed, int):
        return ""
    return _growth(verdict.observed, verdict.baseline, verdict.unit)


def _growth(now: int, before: int, unit: Unit) -> str:
    """How much more it is, and in percent of what it was.

    >>> _growth(103, 100, Unit.PARAMETERS), _growth(5, 0, Unit.BYTES), _growth(7, 7, Unit.NODES)
    ('+3 (+3.00 %)', '+5 B', '0')
    """
    signed = format_signed_bytes(now - before) if unit is Unit.BYTES else format_signed(now - before)
    if not before or now == before:
        return signed
    percent = format_percent((now - before) / before)
    return f"{signed} ({'+' if now > before else ''}{percent})"


# what failed


def _failure(verdict: Verdict, limit: int, *, has_models: bool) -> Iterator[Block]:
    """What is wrong, what the project has to say of it, and the largest parts."""
    where: list[Piece] = [" in ", Code(verdict.model)] if has_models and verdict.model is not None else []
    told = f": {verdict.message}" if verdict.message else ""
    yield Line((Strong("FAIL"), " ", Code(verdict.rule.name), *where, told))
    if verdict.rule.message:
        yield Line((verdict.rule.message,))
    if verdict.contributors:
        yield _contributors(verdict, limit)


def _contributors(verdict: Verdict, limit: int) -> Table:
    """The largest parts, or changes, the largest first; they and the others sum to the total where they can."""
    shown, left = cut(verdict.contributors, limit)
    has_baseline = any(each.baseline is not None for each in verdict.contributors)
    rows = [_contributor(each, verdict.unit, has_baseline=has_baseline) for each in shown]
    if left:
        title, together = sum_others(left, verdict.rule.metric)
        if together is None:
            rows.append(Row(((title,), (), *([(), ()] if has_baseline else []))))
        else:
            rows.append(_contributor(together, verdict.unit, has_baseline=has_baseline))
    total = _total(verdict)
    if total is not None:
        rest = _rest(total, verdict.contributors)
        if rest.value or rest.baseline:
            rows.append(_contributor(rest, verdict.unit, has_baseline=has_baseline))
        rows.append(_contributor(total, verdict.unit, has_baseline=has_baseline, is_total=True))
    before = [Column("baseline", is_number=True)] if has_baseline else []
    change = [Column("change", is_number=True)] if has_baseline else []
    now = Column("now" if has_baseline else count_unit(verdict.unit), is_number=True)
    title = "largest changes" if has_baseline else "largest parts"
    return Table((Column(title), *before, now, *change), tuple(rows))


def _contributor(each: Contributor, unit: Unit, *, has_baseline: bool, is_total: bool = False) -> Row:
    called = each.name if is_total else name(each.name)
    now: Cell = (format_count(each.value),)
    if not has_baseline:
        return Row(((called,), now), is_total=is_total)
    baseline = each.baseline or 0
    change = _growth(each.value, baseline, _exact(unit))
    return Row(((called,), (format_count(baseline),), now, (change,)), is_total=is_total)


def _exact(unit: Unit) -> Unit:
    """Columns are to add up, so that bytes are not rounded in them."""
    return Unit.ELEMENTS if unit is Unit.BYTES else unit


def _total(verdict: Verdict) -> Contributor | None:
    """What the parts are parts of; None where that is no number, or they are more than it."""
    if not isinstance(verdict.observed, int) or verdict.unit is Unit.VERSION:
        return None
    total = Contributor("total", verdict.observed, verdict.baseline)
    rest = _rest(total, verdict.contributors)
    return None if rest.value < 0 or (rest.baseline or 0) < 0 else total


def _rest(total: Contributor, parts: Sequence[Contributor]) -> Contributor:
    """What no part is: beside a baseline what is as it was there, which is no change."""
    value = total.value - sum(each.value for each in parts)
    if total.baseline is None:
        return Contributor("[others]", value)
    baseline = total.baseline - sum(each.baseline or 0 for each in parts)
    return Contributor("[unchanged]" if value == baseline else "[others]", value, baseline)


# findings


def _findings(report: BudgetReport, limit: int) -> Iterator[Block]:
    """Of each model a fold."""
    found = [(model, findings) for model, findings in report.findings.items() if findings]
    shown, left = cut(found, limit)
    for model, findings in shown:
        if len(report.models) > 1:
            yield Line((Code(model),))
        yield from show_findings(findings, limit)
    if left:
        yield Line((f"{others(left)} with findings",))
