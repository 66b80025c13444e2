"""JSON Schemas (draft 2020-12) of what onnxledger writes: one for each command's report, one for `manifest.json`."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any, cast

__all__ = ["SCHEMAS", "load_schema"]

SCHEMAS = ("compare", "export", "inspect", "manifest", "reconcile")
"""Names that `load_schema` knows: a report's `command`, or `manifest`."""


def load_schema(name: str) -> dict[str, Any]:
    """The schema of a command's JSON report, or of `manifest.json`. Each stands alone: it refers to no other file.

    Raises:
        ValueError: there is no such schema.
    """
    if name not in SCHEMAS:
        raise ValueError(f"no schema {name!r}; choose one of {', '.join(SCHEMAS)}")
    text = resources.files(__name__).joinpath(f"{name}.schema.json").read_text(encoding="utf-8")
    return cast("dict[str, Any]", json.loads(text))
