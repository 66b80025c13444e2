"""Thousands of models -> a lake: Parquet tables of the results of `inspect`, which SQL can query.

`find` lists the models, an engine hands shards of them to `reading.survey_shard`, `lake` writes each shard completely
or not at all, `sql` queries it.
"""

from __future__ import annotations

import os
from pathlib import Path

NOTE = "lake.json"
"""Name of the file that marks a folder as a lake, and lists its shards."""


def is_lake(path: Path | str) -> bool:
    """Whether a path is a folder that `survey` has written."""
    return os.path.isfile(os.path.join(path, NOTE))  # noqa: PTH113, PTH118 - unlike Path's, it never raises
