"""Typed records of each command's answer: one for each kind of report, whose fields are the keys of its JSON.

The JSON, its schemas, the tables of docs/reference/report-format.md and the reader of saved reports all follow from
them.
"""

from __future__ import annotations

from pathlib import Path


def is_saved_report(path: Path) -> bool:
    """Whether a path names a saved report rather than a model."""
    return path.suffix == ".json"
