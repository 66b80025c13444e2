"""A lake -> what stands on its page, asked of it."""

from __future__ import annotations

from pathlib import Path

from analyzer.answer import Answer
from analyzer.fleet.families import find_families
from analyzer.fleet.lake import Lake, open_lake
from analyzer.fleet.questions import answer_question, load_questions
from analyzer.fleet.sql import ask_lake
from analyzer.render import FORMATS

__all__ = ["render_lake"]

_MODELS = """
WITH found AS (
    SELECT model, string_agg(id || CASE WHEN n > 1 THEN ' (' || n || ')' ELSE '' END, ', ' ORDER BY id) AS findings
    FROM (SELECT model, id, count(*) AS n FROM findings GROUP BY model, id) GROUP BY model
)
SELECT model, parameters, file_bytes, nodes,
       [each.dtype FOR each IN dtypes IF each.bytes > 0] AS dtypes,
       wasted_bytes, findings, replace(error, model || ': ', '') AS error
FROM models LEFT JOIN found USING (model)
ORDER BY models.error IS NULL, file_bytes DESC NULLS LAST, model
"""

_TOTALS = """
SELECT count(*) AS models, count(error) AS unreadable, sum(parameters) AS parameters, sum(file_bytes) AS file_bytes
FROM models
"""

_BESIDE = ("findings", "duplicates", "precision", "operators")
"""The ready questions that stand there too."""


def render_lake(lake: Path | str | Lake) -> str:
    """One page of a lake that needs nothing but itself.

    Raises:
        UsageError: there is no such lake.
        MissingExtraError: what makes pages or reads lakes is not installed.
    """
    FORMATS["html"].check()
    from analyzer.render.html.lake import page_of_lake  # after the check: it needs jinja2

    opened = lake if isinstance(lake, Lake) else open_lake(lake)
    families = find_families(opened, says=load_questions()["families"]["says"])
    copied = sum(row["copied_bytes"] for row in families.records)
    totals = ask_lake(opened, _TOTALS)
    totals = Answer((*totals.columns, "copied_bytes"), [(*totals.rows[0], copied)])
    models = ask_lake(opened, _MODELS)
    return page_of_lake(
        str(opened.path),
        totals,
        Answer(models.columns, models.rows, "Models"),
        families,
        [answer_question(opened, name) for name in _BESIDE],
    )
