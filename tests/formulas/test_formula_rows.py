"""Rows of a formula hold all parts of both sides, each once, and add up."""

from __future__ import annotations

from collections.abc import Callable

import formula_reports
import pytest

from analyzer.formulas.record import FormulaReport
from analyzer.formulas.rows import make_rows


@pytest.mark.parametrize("make", formula_reports.REPORTS)
def test_rows_add_up_to_what_each_side_has(make: Callable[[], FormulaReport]) -> None:
    report = make()
    rows, checked = make_rows(report), report.checked
    assert sum(row.value for row in rows) == report.formula.total
    for side, found in ((checked.census, "census"), (checked.model, "model")):
        if side is not None:
            assert sum(getattr(row, found) for row in rows) == sum(side.counts.values())
        else:
            assert {getattr(row, found) for row in rows} == {None}
    if report.before is not None:
        assert sum(row.before or 0 for row in rows) == report.before.total
    keys = [part.key for row in rows for part in row.parts]
    assert len(set(keys)) == len(keys)


def test_a_part_that_only_the_file_has_is_a_row_of_nothing() -> None:
    rows = {row.name: row for row in make_rows(formula_reports.compared())}
    (pooler,) = rows["pooler"].parts
    assert (pooler.count, pooler.value, pooler.census, pooler.model) == (None, 0, 0, 590_592)
    assert pooler.differs
    assert rows["pooler"].is_compared
    assert [part.name for part in rows["embeddings"].parts if part.differs] == ["word embeddings"]


def test_a_part_that_set_takes_away_keeps_its_place() -> None:
    now, before = formula_reports.what_if().before, formula_reports.what_if().formula
    assert now is not None
    report = FormulaReport(formula_reports.Checked(now), before=before)
    rows = {row.name: row for row in make_rows(report)}
    assert [part.name for part in rows["blocks"].parts] == [
        "self-attention",
        "cross-attention",
        "feed-forward",
        "norms",
    ]
    assert [part.name for part in rows["masked LM head"].parts if part.count is None] == [
        "output bias",
        "output matrix",
    ]
