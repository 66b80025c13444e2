"""Survey -> what its models have in common, and the rows and words by which they are told apart."""

from __future__ import annotations

import itertools
from collections import Counter

from analyzer.render.sentences.findings import count_severities
from analyzer.survey import Survey
from analyzer.units import format_others

__all__ = ["common_folder", "count_findings", "main_dtype", "name_rows"]


def common_folder(survey: Survey) -> str:
    """What all names begin with, which the table then leaves out; "" where they have no folder in common."""
    folders = [row.path.split("/")[:-1] for row in survey.rows]
    together = itertools.takewhile(lambda names: len(set(names)) == 1, zip(*folders, strict=False))
    return "/".join(names[0] for names in together)


def name_rows(survey: Survey, folder: str, rows: int) -> list[tuple[str, Survey]]:
    """The largest models in their own order, the others together, all together: each with its name."""
    models = survey.readable
    order = sorted(range(len(models)), key=lambda i: (-models[i].parameters, -models[i].file_nbytes, i))
    shown = sorted(order[: rows or None])
    named = [(models[i].path.removeprefix(f"{folder}/"), Survey((models[i],))) for i in shown]
    if left := [models[i] for i in order[len(shown) :]]:
        named.append((format_others(len(left)), Survey(tuple(left))))
    return [*named, ("total", survey)]


def count_findings(survey: Survey) -> str:
    """How many of each severity, the worst first; "-" where there are none."""
    return count_severities(survey.findings) or "-"


def main_dtype(survey: Survey) -> str:
    """The element type of most parameters, and how many others there are."""
    parameters: Counter[str] = Counter()
    for row in survey.readable:
        parameters.update({group.name: group.parameters for group in row.dtypes if group.parameters})
    first, *others = sorted(parameters, key=lambda name: (-parameters[name], name)) or ["-"]
    return f"{first} +{len(others)}" if others else first
