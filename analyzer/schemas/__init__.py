"""JSON Schemas (draft 2020-12) of onnxledger's output: one for each kind of report, one for `manifest.json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

__all__ = ["SCHEMAS", "load_schema", "schema_name"]

SCHEMAS = (
    "check",
    "compare",
    "compare_sweep",
    "compare_time",
    "cost",
    "explain",
    "export",
    "formula",
    "generation",
    "graph",
    "inspect",
    "lake",
    "manifest",
    "reconcile",
    "recover",
    "survey",
    "sweep",
    "time",
    "verify",
)
"""Names for `load_schema`: a report's `command`, or the result of `schema_name`, or `manifest`."""


def schema_name(report: Mapping[str, Any]) -> str:
    """Return the name of a report's schema: its command, except for six kinds.

    `survey` is `inspect` of many models, `lake` is the report of `survey`, `sweep` is `time` at several lengths,
    `generation` is `time` of the files of a generation loop; `compare_time` and `compare_sweep` are `compare` of two
    saved reports of `time`.

    >>> schema_name({"command": "inspect", "models": []}), schema_name({"command": "inspect", "model": {}})
    ('survey', 'inspect')
    >>> schema_name({"command": "time", "points": []}), schema_name({"command": "compare", "kind": "time"})
    ('sweep', 'compare_time')
    """
    is_sweep = "points" in report
    if report.get("command") == "time" and "loop" in report:
        return "generation"
    is_survey = report.get("command") == "inspect" and "models" in report
    if report.get("command") == "compare" and "kind" in report:
        return "compare_sweep" if is_sweep else "compare_time"
    if report.get("command") == "survey":
        return "lake"
    return "survey" if is_survey else "sweep" if is_sweep else str(report["command"])


def load_schema(name: str) -> dict[str, Any]:
    """Return the schema of a JSON report, or of `manifest.json`; it refers to no other file.

    Raises:
        ValueError: there is no such schema.
    """
    if name not in SCHEMAS:
        raise ValueError(f"no schema {name!r}; choose one of {', '.join(SCHEMAS)}")
    import json  # slow to import, and not needed to write a report
    from importlib import resources

    text = resources.files(__name__).joinpath(f"{name}.schema.json").read_text(encoding="utf-8")
    return cast("dict[str, Any]", json.loads(text))
