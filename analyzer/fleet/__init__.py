"""Thousands of models -> a lake: Parquet tables of what `inspect` says of each, which one can ask in SQL.

`find` names the models, an engine hands shards of them to `shard.survey_shard`, `lake` writes each shard complete or
not at all, `sql` asks.
"""

from __future__ import annotations

import os
from pathlib import Path

NOTE = "lake.json"
"""The file that says of a folder that it is a lake, and which shards it is made of."""


def is_lake(path: Path | str) -> bool:
    """Whether a path is a folder that `survey` has written."""
    return os.path.isfile(os.path.join(path, NOTE))  # noqa: PTH113, PTH118 - unlike Path's, it never raises
