"""A saved `inspect` report -> Ledger, so that a model can be compared without its file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast, get_args

from analyzer.content import ContentMode
from analyzer.dtypes import DType
from analyzer.errors import UsageError
from analyzer.functions import Calls
from analyzer.ledger import (
    Account,
    Blocks,
    Entry,
    Evidence,
    Finding,
    HiddenBy,
    Hides,
    Ledger,
    Member,
    Role,
    Run,
    Severity,
)
from analyzer.model import Carrier, Component, File, Function, Key, Model, NoPayload, StoredTensor
from analyzer.saved.wholeness import find_contradiction
from analyzer.schemas import SCHEMAS, schema_name
from analyzer.units import printable_name
from analyzer.wiring import Wiring

__all__ = ["is_report", "is_saved_report", "load_report", "read_any_report", "read_report"]


def is_saved_report(path: Path) -> bool:
    """Whether a path names a saved report and no model."""
    return path.suffix == ".json"


def is_report(path: Path) -> bool:
    """Whether a JSON file says which command wrote it, as reports do, and a manifest does not."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(document, dict) and "command" in document


def load_report(path: Path | str) -> Ledger:
    """Rebuild the ledger that an `inspect --format json` report describes: all but its nodes and contents.

    Raises:
        UsageError: the file cannot be read, is no `inspect` report of this schema, or contradicts itself: gates rest
            on it, so that its totals are held against their parts.
    """
    document = read_report(path, "inspect")
    if "models" in document:
        raise UsageError(
            f"{path}: a report on many models; inspect the one that is meant, and take its report"
        )
    try:
        wrong = find_contradiction(document)
        if wrong is not None:
            raise UsageError(f"{path}: not a whole report ({wrong}); make it again")
        return _ledger(document)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{path}: not a whole report ({error!r}); make it again") from error


def read_report(path: Path | str, command: str) -> dict[str, Any]:
    """The JSON document that a command wrote.

    Raises:
        UsageError: the file cannot be read, or another command or version wrote it.
    """
    document = _parse(path)
    found = (document.get("command"), document.get("schema_version")) if isinstance(document, dict) else ()
    if found != (command, 1):
        raise UsageError(f"{path}: not a report of `onnxledger {command} --format json` of schema version 1")
    assert isinstance(document, dict)
    return document


def read_any_report(path: Path | str) -> dict[str, Any]:
    """The JSON document that any command wrote, as its schema describes it.

    Raises:
        UsageError: the file cannot be read, or is no report of schema version 1.
    """
    document = _parse(path)
    if not isinstance(document, dict) or (document.get("schema_version"), "command" in document) != (1, True):
        raise UsageError(f"{path}: not a report of onnxledger in JSON, of schema version 1")
    if schema_name(document) not in set(SCHEMAS) - _NO_REPORTS:
        command = printable_name(str(document["command"]))
        raise UsageError(f"{path}: what {command!r} wrote is no report that can stand beside another")
    return document


_NO_REPORTS = {"explain", "graph", "manifest"}
"""What has a schema, and is no report on a model."""


def _parse(path: Path | str) -> object:
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: not JSON ({error})") from error


def _ledger(document: dict[str, Any]) -> Ledger:
    model, totals = document["model"], document["totals"]
    entries = tuple(_entry(item) for item in document["tensors"])
    return Ledger(
        model=Model(
            path=_text(model["path"]),
            files=tuple(File(file["path"], _number(file["bytes"])) for file in model["files"]),
            ir_version=model["ir_version"],
            opsets=tuple(sorted(model["opsets"].items())),
            producer=model["producer"],
            graphs=(),
            functions=(Function("", "", "", ()),) * _number(model["functions"]),
            components=tuple(map(_component, document.get("components", ()))),
        ),
        entries=entries,
        accounts=tuple(Account(item["account"], _number(item["bytes"])) for item in document["accounts"]),
        findings=tuple(_findings(document)),
        wiring=Wiring({}),
        shared_nbytes=_number(totals.get("shared_bytes", 0)),
        content=_content(document.get("content", "sampled")),
        blocks=_blocks(document, entries),
        told_nodes=_number(model["nodes"]) if "nodes" in model else None,
        calls=tuple(map(_calls, model.get("calls", ()))),
        hidden={
            entry.tensor.key: _hides(item["hides"])
            for entry, item in zip(entries, document["tensors"], strict=True)
            if item.get("hides") is not None
        },
        opaque=tuple(
            entry.tensor.key
            for entry, item in zip(entries, document["tensors"], strict=True)
            if item.get("opaque") is True
        ),
    )


def _hides(item: dict[str, Any]) -> Hides:
    least, most = item["at_least"], item["at_most"]
    if type(least) is not int or item["why"] not in get_args(HiddenBy):
        raise TypeError(f"{item!r}: not what a tensor hides")
    return Hides(least, None if most is None else _number(most), item["why"])


def _calls(item: dict[str, Any]) -> Calls:
    path = tuple(_text(item["function"]).split("/"))
    called = item["calls"]
    return Calls(
        Function("", "", "", path), _number(item["sites"]), None if called is None else _number(called)
    )


def _component(item: dict[str, Any]) -> Component:
    """One file of an artifact; which external files it refers to is not told."""
    name = _text(item["component"])
    return Component(
        name=name,
        path=(name,),
        files=(_text(item["path"]),),
        ir_version=item["ir_version"],
        opsets=tuple(sorted(item["opsets"].items())),
        producer=_text(item["producer"]),
    )


def _findings(document: dict[str, Any]) -> Iterator[Finding]:
    """Those of the model: what the report's groups have in common is found anew, of other groups."""
    for item in document.get("findings", ()):
        saved = item.get("bytes")
        found = Finding(
            id=_text(item["id"]),
            severity=Severity(item["severity"]),
            message=_text(item["message"]),
            subjects=tuple(map(_text, item["subjects"])),
            nbytes=None if saved is None else _number(saved),
        )
        if found.id != _OF_GROUPS:
            yield found


_OF_GROUPS = "overlapping-groups"


def _content(value: object) -> ContentMode:
    if value not in get_args(ContentMode):
        raise TypeError(f"{value!r}: not how far contents are looked at")
    return cast("ContentMode", value)


def _blocks(document: dict[str, Any], entries: Sequence[Entry]) -> Blocks | None:
    """The blocks of a report, without nodes; None where it has none: an older version wrote it."""
    if document.get("blocks") is None:
        return None
    placed = list(zip((entry.tensor.key for entry in entries), document["tensors"], strict=True))
    return Blocks(
        runs=tuple(
            Run(
                first=_number(run["first"]),
                count=_number(run["count"]),
                modules=tuple(map(_text, run["modules"])),
                rule=_text(run["decided_by"]),
            )
            for run in document["blocks"]
        ),
        entries={key: Member(_text(item["block"]), _text(item["part"] or "")) for key, item in placed},
        nodes={},
        roles={key: _text(item["layer_role"]) for key, item in placed if item["role"] == Role.PARAMETER},
    )


def _number(value: object) -> int:
    if type(value) is not int or value < 0:
        raise TypeError(f"{value!r}: not a count")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r}: not a text")
    return value


def _entry(item: dict[str, Any]) -> Entry:
    Evidence(item["decided_by"].partition(":")[0])
    path = _text(item["graph_path"])
    tensor = StoredTensor(
        name=_text(item["name"]),
        graph_path=tuple(path.split("/")) if path else (),
        carrier=Carrier(item["carrier"]),
        dtype=DType[item["dtype"]],
        shape=tuple(item["shape"]),
        numel=_number(item["stored_elements"]),
        nbytes=_number(item["bytes"]),
        payload=NoPayload(),
    )
    copied: Key | None = None if item["copy_of"] is None else ((), item["copy_of"])
    return Entry(
        tensor=tensor,
        role=Role(item["role"]),
        decided_by=item["decided_by"],
        scope=_text(item["scope"] or ""),
        scoped_by=_text(item["scoped_by"]),
        sources=tuple(map(_text, item["sources"])),
        uses=item["uses"],
        read_by=_text(item["read_by"]),
        parameters=_number(item["parameters"]),
        logical_numel=item["parameters"] or item["stored_elements"],
        applications=_number(item.get("applications", 1)),
        shared_with=tuple(map(_text, item.get("shared_with", ()))),
        copy_of=copied,
    )
