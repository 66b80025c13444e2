"""JSON Schemas (draft 2020-12) of what onnxledger writes: one for each kind of report, one for `manifest.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import resources
from typing import Any, cast

__all__ = ["SCHEMAS", "load_schema", "schema_name"]

SCHEMAS = ("compare", "export", "graph", "inspect", "manifest", "reconcile", "recover", "survey")
"""Names that `load_schema` knows: a report's `command`, `survey` for `inspect` of many models, or `manifest`."""


def schema_name(report: Mapping[str, Any]) -> str:
    """The schema that a report was written for: that of its command; `survey` for `inspect` of many models.

    >>> schema_name({"command": "inspect", "models": []}), schema_name({"command": "inspect", "model": {}})
    ('survey', 'inspect')
    """
    return "survey" if "models" in report else str(report["command"])


def load_schema(name: str) -> dict[str, Any]:
    """The schema of a JSON report, or of `manifest.json`. Each stands alone: it refers to no other file.

    Raises:
        ValueError: there is no such schema.
    """
    if name not in SCHEMAS:
        raise ValueError(f"no schema {name!r}; choose one of {', '.join(SCHEMAS)}")
    text = resources.files(__name__).joinpath(f"{name}.schema.json").read_text(encoding="utf-8")
    return cast("dict[str, Any]", json.loads(text))
