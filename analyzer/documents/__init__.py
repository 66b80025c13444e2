"""What each command answers, as typed records: one a kind of report, whose fields are the keys of its JSON.

JSON, its schemas, the tables of docs/reference/report-format.md and the reader of saved reports all follow from them.
"""

from __future__ import annotations

from pathlib import Path


def is_saved_report(path: Path) -> bool:
    """Whether a path names a saved report and no model."""
    return path.suffix == ".json"
