"""The rows of a lake -> the ledger of each model, as a saved report gives it: all but its nodes and contents."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from analyzer.documents.inspect import InspectDocument, Model, Totals
from analyzer.errors import UsageError
from analyzer.fleet.lake import Lake
from analyzer.fleet.record import TABLES
from analyzer.ledger import Ledger
from analyzer.saved import rebuild

__all__ = ["EarlierLedgers", "read_ledgers"]

Row = dict[str, Any]


def read_ledgers(lake: Lake) -> Iterator[tuple[str, Ledger | str]]:
    """Each model of a lake with its ledger, or with why there is none; one shard is in memory at a time."""
    for shard in lake.shards:
        for name, rows in _read_shard(lake, shard).items():
            yield name, _ledger(name, rows)


class EarlierLedgers:
    """The models of an earlier lake, each found by its name."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._shards = {
            name: shard
            for shard in lake.shards
            for name in lake.read("models", shard, ["model"])["model"].to_pylist()
        }
        self._load = functools.lru_cache(maxsize=2)(functools.partial(_read_shard, lake))

    def find(self, name: str) -> Ledger:
        """The ledger of a model.

        Raises:
            UsageError: it is not there, or could not be read then.
        """
        if name not in self._shards:
            raise UsageError(f"{name} is not in {self._lake.path}")
        found = _ledger(name, self._load(self._shards[name])[name])
        if isinstance(found, str):
            raise UsageError(f"in {self._lake.path}: {found}")
        return found


Rows = Mapping[str, list[Row]]


def _read_shard(lake: Lake, shard: str) -> dict[str, Rows]:
    """The rows of each model of a shard, by the name of their table."""
    found: dict[str, dict[str, list[Row]]] = {}
    for table in TABLES:  # models first
        for row in lake.read(table, shard).to_pylist():
            found.setdefault(row["model"], defaultdict(list))[table].append(row)
    return dict(found)


def _ledger(name: str, rows: Rows) -> Ledger | str:
    (row,) = rows["models"]
    if row["error"] is not None:
        return str(row["error"])
    try:
        return rebuild(name, _document(name, row, rows))
    except UsageError as error:
        return str(error)


def _document(name: str, row: Row, rows: Rows) -> Row:
    """What `inspect` wrote of the model."""
    told = {key: row[key] for key in InspectDocument.__struct_fields__ if key in row}
    model = {key: row[key] for key in Model.__struct_fields__ if key in row and key != "path"}
    model["opsets"] = dict(model["opsets"] or ())
    for end in ("inputs", "outputs"):
        model[end] = [{**value, "shape": _shape(value["shape"])} for value in model[end] or ()]
    files = [row for row in rows.get("files", ()) if row["bytes"] is not None]
    components = [{**each, "opsets": dict(each["opsets"] or ())} for each in row["components"] or ()]
    return {
        **told,
        "schema_version": 1,
        "command": "inspect",
        "tool": {"name": "onnxledger", "version": "lake"},
        "model": {
            **model,
            "path": name,
            "files": [{"path": each["path"], "bytes": each["bytes"]} for each in files],
        },
        "totals": {key: row[key] for key in Totals.__struct_fields__},
        "components": components,
        **{table: rows.get(table, []) for table in ("tensors", "operators", "findings")},
    }


def _shape(shape: list[str | None] | None) -> list[int | str | None] | None:
    """Sizes as numbers again, which a table has as text beside names of axes."""
    if shape is None:
        return None
    return [int(size) if size is not None and size.lstrip("-").isdigit() else size for size in shape]
