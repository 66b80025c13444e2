"""Documents of `check` -> a section: every rule with its verdict."""

from __future__ import annotations

from analyzer.render.html.blocks import (
    Answer,
    Block,
    Cell,
    Column,
    Findings,
    Section,
    Table,
    Verdict,
    Verdicts,
)
from analyzer.render.html.parts import Beside, list_findings, name
from analyzer.render.html.reading import View
from analyzer.render.html.wording import amount, bytes_of, cell, show, show_all
from analyzer.units import format_others

__all__ = ["describe_check"]

_ORDER = {"FAIL": 0, "SKIP": 1, "PASS": 2}


def describe_check(view: View, beside: Beside) -> Section:
    """Whether the models are within their budgets, rule by rule."""
    passed = view.flag("passed")
    verdicts = sorted(map(_verdict, view.rows("rules")), key=lambda each: _ORDER.get(each.status, 1))
    counts = {status: sum(each.status == status for each in verdicts) for status in _ORDER}
    said = ", ".join(f"{amount(count)} {status}" for status, count in counts.items())
    blocks: tuple[Block, ...] = (
        Answer(bool(passed), f"{'Within budget' if passed else 'Not within budget'}: {said}."),
        *_unreadable(view),
        Verdicts(tuple(verdicts)),
        Findings(list_findings(view.rows("findings"))),
    )
    return Section("check", "Is it within its budgets?", show_all(view.names("models")), blocks, view.missing)


def _unreadable(view: View) -> tuple[Block, ...]:
    rows = view.rows("unreadable") if view.has("unreadable") else ()
    cells = tuple((show(row.text("model")), show(row.text("error"), 4000)) for row in rows)
    return (
        (Table("Models that cannot be read", (name("model"), Column("why", is_prose=True)), cells),)
        if rows
        else ()
    )


def _verdict(row: View) -> Verdict:
    unit = row.text("unit") or ""
    what = [row.text("metric"), *([f"of {row.text('group')}"] if row.has("group") else [])]
    return Verdict(
        status=show(row.text("status")),
        name=show(row.text("name")),
        model=show(row.text("model")),
        what=show(" ".join(each for each in what if each)),
        observed=_measured(row, "observed", unit),
        limit=_limit(row, unit),
        exceeded_by=_measured(row, "exceeded_by", unit) if row.has("exceeded_by") else "",
        message=show(row.text("message"), 4000),
        advice=show(row.text("advice"), 4000) if row.has("advice") else "",
        origin=show(row.text("origin")),
        contributors=_contributors(row.rows("contributors")),
    )


def _limit(row: View, unit: str) -> str:
    """What is allowed, and on which side of it."""
    limit, bound = _measured(row, "limit", unit), row.text("bound") if row.has("bound") else None
    return f"at {bound} {limit}" if bound in ("most", "least") and row.has("limit") else limit


def _measured(row: View, key: str, unit: str) -> str:
    """A number with its unit, or names."""
    found = row.either(key)
    if isinstance(found, tuple):
        return show_all(found) or "none"
    if found is None or unit == "bytes":
        return bytes_of(found)
    return amount(found) if unit == "version" else f"{amount(found)} {show(unit)}"


def _contributors(rows: tuple[View, ...]) -> tuple[tuple[Cell, ...], ...]:
    """The largest, and the sum of the others where there are very many."""
    found = [(show(row.text("name")), row.count("value"), row.count("baseline")) for row in rows]
    left = found[_SHOWN:]
    if left:
        known = [before for _, _, before in left if before is not None]
        value = sum(value or 0 for _, value, _ in left)
        found[_SHOWN:] = [(format_others(len(left)), value, sum(known) if known else None)]
    return tuple((title, cell(value), cell(before)) for title, value, before in found)


_SHOWN = 100
"""Contributors of a rule that a page has; the JSON has all."""
