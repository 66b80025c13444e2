"""A saved `inspect` report -> Ledger, so that a model can be compared without its file."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from analyzer import model as models
from analyzer.account.ledger import Account, Blocks, Entry, Finding, Hides, Ledger, Member, Role, Run, Stages
from analyzer.documents.base import Head
from analyzer.documents.inspect import Component, InspectDocument, Tensor, Totals
from analyzer.documents.shared import Group
from analyzer.errors import UsageError
from analyzer.json_files import load_json
from analyzer.model import File, Function, Key, Model, NoPayload, StoredTensor
from analyzer.model.dtypes import DType
from analyzer.model.functions import Calls
from analyzer.model.wiring import Wiring
from analyzer.near import near_name
from analyzer.schemas import SCHEMAS, schema_name
from analyzer.text import printable, printable_name, shorten, shown

__all__ = [
    "decode",
    "is_report",
    "load_report",
    "read_any_report",
    "read_report",
    "rebuild",
    "to_typed",
]


_MOST_BITS = 512
"""Largest number of bits in a number: no file has more of anything, and ratios of such numbers stay finite."""


def find_contradiction(document: InspectDocument) -> str | None:
    """Return the first contradiction in an `inspect` report on one model; None if totals are sums of their parts."""
    return next(_find_wrong(document), None)


def _find_wrong(document: InspectDocument) -> Iterator[str]:
    """Yield the defects of a report: impossible values first, then totals that are not the sums of their parts."""
    yield from _find_misfits(document)
    model, totals, tensors = document.model, document.totals, document.tensors
    yield from _check_total("stored_tensors", totals, len(tensors))
    yield from _check_total("parameters", totals, sum(tensor.parameters for tensor in tensors))
    yield from _check_total("stored_elements", totals, sum(tensor.stored_elements for tensor in tensors))
    yield from _check_total("stored_bytes", totals, sum(tensor.bytes for tensor in tensors))
    yield from _check_total("file_bytes", totals, sum(file.bytes for file in model.files))
    yield from _check_total("file_bytes", totals, sum(account.bytes for account in document.accounts))
    counted = sum(operator.nodes for operator in document.operators)
    if document.operators and model.nodes and counted != model.nodes:  # older releases lack one or both
        yield f"model, nodes: {shown(model.nodes)}, and its operators are {shown(counted)}"
    if model.functions > totals.file_bytes:
        yield f"model, functions: {shown(model.functions)}, in fewer bytes"


def _check_total(name: str, totals: Totals, found: int) -> Iterator[str]:
    if getattr(totals, name) != found:
        yield f"totals, {name}: {shown(getattr(totals, name))}, and its parts are {shown(found)}"


def _find_misfits(document: InspectDocument) -> Iterator[str]:
    model = document.model
    numbers = [model.ir_version, *model.opsets.values(), model.functions, model.nodes]
    numbers += [*(file.bytes for file in model.files), *(account.bytes for account in document.accounts)]
    for tensor in document.tensors:
        numbers += [*tensor.shape, tensor.uses, tensor.applications]
        numbers += [tensor.parameters, tensor.stored_elements, tensor.bytes]
        if tensor.dtype not in DType.__members__:
            yield f"{shown(tensor.dtype)}: no element type"
        if document.blocks is not None:
            if tensor.block is None:
                yield f"{shown(tensor.name)}: in no block"
            if tensor.layer_role is None and tensor.role is Role.PARAMETER:
                yield f"{shown(tensor.name)}: does nothing in its block"
    yield from (f"{shown(number)}: too large" for number in numbers if number.bit_length() > _MOST_BITS)


def is_report(path: Path) -> bool:
    """Whether a JSON file names the command that wrote it, as reports do and a manifest does not."""
    try:
        document = load_json(path)
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(document, dict) and "command" in document


def load_report(path: Path | str) -> Ledger:
    """Rebuild the ledger that an `inspect --format json` report describes, except its nodes and contents.

    Raises:
        UsageError: the file cannot be read, is no `inspect` report of this schema, or contradicts itself. Totals are
            checked against their parts, because gates rest on them.
    """
    document = read_report(path, "inspect")
    if "models" in document:
        raise UsageError(f"{path}: a report on several models; inspect one of them, and name its report")
    return rebuild(path, document)


def rebuild(path: Path | str, document: Mapping[str, Any]) -> Ledger:
    """Return the ledger that a document of `inspect` on one model describes.

    Args:
        path: name of the document in messages.
        document: as its schema describes it, or as an older release wrote it.

    Raises:
        UsageError: the document is incomplete, or contradicts itself.
    """
    typed = decode(path, _completed(path, document), InspectDocument)
    contradiction = find_contradiction(typed)
    if contradiction is not None:
        raise UsageError(f"{path}: not a whole report ({contradiction}); make it again")
    return _ledger(typed, has_nodes="nodes" in document["model"])


def to_typed(document: Mapping[str, Any]) -> Head:
    """Return the typed document of any saved report, with defaults for keys that an older release did not write.

    Raises:
        UsageError: a key is missing, or its value is invalid; the message has the path of the key.
    """
    from analyzer.documents.kinds import DOCUMENTS

    kind = schema_name(document)
    name = f"the saved report of {kind}"
    check_numbers(name, document)
    return decode(name, _filled(document) if kind == "inspect" else document, DOCUMENTS[kind])


def check_numbers(path: Path | str, document: object) -> None:
    """Refuse numbers that no report has and Python's reader accepts: NaN, infinity, and integers over 300 digits.

    Raises:
        UsageError: the document has such a number.
    """
    waiting = [document]
    while waiting:
        value = waiting.pop()
        if isinstance(value, float) and not math.isfinite(value):
            raise UsageError(f"{path}: not a whole report ({value!r}: not a number); make it again")
        if isinstance(value, int) and abs(value) >= _ENDLESS:
            raise UsageError(f"{path}: not a whole report (a number of over 300 digits); make it again")
        if isinstance(value, dict | list):
            waiting.extend(value.values() if isinstance(value, dict) else value)


_ENDLESS = 10**300


def decode(path: Path | str, document: Mapping[str, Any], kind: type[_D]) -> _D:
    """Return the typed document of a report, each value of its declared type.

    Raises:
        UsageError: a key is missing, or its value is invalid; the message has the path of the key.
    """
    try:
        return msgspec.convert(document, kind)
    except (msgspec.ValidationError, RecursionError, UnicodeError) as error:
        reason = shorten(printable(str(error)), 300)
        raise UsageError(f"{path}: not a whole report ({reason}); make it again") from error


_D = TypeVar("_D")

_ADDED: Mapping[str, Mapping[str, Any]] = {
    "": {
        "blocks": None,
        "stages": None,
        "components": [],
        "content": "sampled",
        "operators": [],
        "quantization": [],
    },
    "model": {"calls": [], "remote": None, "nodes": 0, "inputs": [], "outputs": []},
    "totals": {
        "shared_bytes": 0,
        "duplicated_bytes": 0,
        "opaque_elements": 0,
        "parameters_at_least": 0,
        "parameters_at_most": None,
        "parameters_unsettled": [],
        "wasted_bytes": 0,
    },
    "tensors": {
        "applications": 1,
        "shared_with": [],
        "opaque": False,
        "hides": None,
        "computed_by": "",
        "stage": None,
    },
    "findings": {"bytes": None},
}
"""Keys that later releases of this schema version added, by the object or list of objects that has them, with the
values that stand for their absence."""

_IN_BLOCKS = {"block": None, "part": None, "layer_role": None}
"""Keys of a tensor that are null in a report without blocks."""

_GROUPING_DEFAULTS: Mapping[str, Any] = {
    "by": "scope",
    "depth": None,
    "match": None,
    "groups_from": None,
    "groups": [],
    "tree": [],
    "overlap": 0,
    "ungrouped": 0,
}
"""Neutral values of keys that are not read, because a ledger is grouped anew."""


def _completed(path: Path | str, document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document with the keys that an older release of the schema version lacks, and neutral groups."""
    whole = _filled({**document, **_GROUPING_DEFAULTS})
    empty_group: dict[str, Any] = dict.fromkeys(Group.__struct_fields__, 0) | {
        "group": "",
        "keys": [],
        "share": None,
        "applications": 1,
    }
    whole["group_balance"] = {"overlap": empty_group, "ungrouped": empty_group}
    return whole


def _filled(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document with the keys that an older release lacks, and its own groups."""
    whole = {**_ADDED[""], **document}
    in_blocks = _IN_BLOCKS if whole["blocks"] is None else {}
    for key, added in _ADDED.items():
        part = whole.get(key)
        if key and isinstance(part, dict):
            whole[key] = {**added, **part}
        elif key and isinstance(part, list):
            more = {**added, **(in_blocks if key == "tensors" else {})}
            whole[key] = [{**more, **row} if isinstance(row, dict) else row for row in part]
    return whole


def read_report(path: Path | str, command: str) -> dict[str, Any]:
    """Return the JSON document that a command wrote.

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
    """Return the JSON document that any command wrote, as its schema describes it.

    Raises:
        UsageError: the file cannot be read, or is no report of schema version 1.
    """
    document = _parse(path)
    if not isinstance(document, dict) or (document.get("schema_version"), "command" in document) != (1, True):
        raise UsageError(
            f"{path}: not a report of onnxledger in JSON, of schema version 1; write one with -o report.json"
        )
    if schema_name(document) not in set(SCHEMAS) - _NO_REPORTS:
        command = printable_name(str(document["command"]))
        raise UsageError(f"{path}: a report of {command!r}, which cannot be compared or shown beside another")
    return document


_NO_REPORTS = {"explain", "graph", "manifest"}
"""Documents that have a schema and are no report on a model."""


def _parse(path: Path | str) -> object:
    try:
        return load_json(path)
    except OSError as error:
        near = near_name(Path(path)) if isinstance(error, FileNotFoundError) else ""
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}{near}") from error
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path}: not JSON, as a saved report is; of a model `onnxledger inspect` makes one"
        ) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"{path}: not JSON, as a saved report is ({error}); a command writes one with -o FILE.json"
        ) from error


def _ledger(document: InspectDocument, *, has_nodes: bool) -> Ledger:
    model, totals = document.model, document.totals
    entries = tuple(map(_entry, document.tensors))
    keyed = list(zip((entry.tensor.key for entry in entries), document.tensors, strict=True))
    return Ledger(
        model=Model(
            path=model.path,
            files=tuple(File(file.path, file.bytes) for file in model.files),
            ir_version=model.ir_version,
            opsets=_opsets(document, model.opsets),
            producer=model.producer,
            graphs=(),
            functions=(Function("", "", "", ()),) * model.functions,
            components=tuple(_component(document, each) for each in document.components),
        ),
        entries=entries,
        accounts=tuple(Account(account.account, account.bytes) for account in document.accounts),
        findings=tuple(_findings(document)),
        wiring=Wiring({}),
        shared_nbytes=totals.shared_bytes,
        content=document.content,
        blocks=_blocks(document, keyed),
        stages=_stages(document, keyed),
        told_nodes=model.nodes if has_nodes else None,
        told_operators=_operators(document) if has_nodes else None,
        calls=tuple(
            Calls(Function("", "", "", tuple(call.function.split("/"))), call.sites, call.calls)
            for call in model.calls
        ),
        hidden={
            key: Hides(item.hides.at_least, item.hides.at_most, item.hides.why)
            for key, item in keyed
            if item.hides is not None
        },
        opaque=tuple(sorted(key for key, item in keyed if item.opaque)),
    )


def _operators(document: InspectDocument) -> dict[tuple[str, str], int] | None:
    """Return the number of nodes of each operator, without function calls; None if the report lacks some nodes."""
    counts = {(each.domain, each.op_type): each.nodes for each in document.operators if each.nodes}
    if sum(counts.values()) != document.model.nodes:
        return None
    for call in document.model.calls:
        _, _, qualified_name = call.function.partition(":")
        domain, _, name = qualified_name.partition(":")
        key = (domain, name.partition(":")[0])
        if key in counts:
            counts[key] -= min(call.sites, counts[key])
    return {key: count for key, count in counts.items() if count}


def _component(document: InspectDocument, item: Component) -> models.Component:
    """Return one file of an artifact, without the external files it refers to, which a report does not tell."""
    return models.Component(
        name=item.component,
        path=(item.component,),
        files=(item.path,),
        ir_version=item.ir_version,
        opsets=_opsets(document, item.opsets),
        producer=item.producer,
    )


def _opsets(document: InspectDocument, opsets: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """Return all imported opset versions: an object has room for one per domain, but a finding names all of several."""
    found = set(opsets.items())
    for finding in document.findings:
        for subject in finding.subjects if finding.id == "invalid-version" else ():
            domain, _, versions = subject.partition(" ")
            if domain in opsets:
                found |= {(domain, int(each)) for each in versions.split(", ") if each.lstrip("-").isdigit()}
    return tuple(sorted(found))


def _findings(document: InspectDocument) -> Iterator[Finding]:
    """Yield the model's findings, except the one about shared entries of groups, which a new grouping finds anew."""
    for item in document.findings:
        if item.id != _OF_GROUPS:
            yield Finding(item.id, item.severity, item.message, tuple(item.subjects), item.bytes)


_OF_GROUPS = "overlapping-groups"


def _blocks(document: InspectDocument, keyed: Sequence[tuple[Key, Tensor]]) -> Blocks | None:
    """Return the blocks of a report, without nodes; None if an older version wrote the report without blocks."""
    if document.blocks is None:
        return None
    return Blocks(
        runs=tuple(Run(run.first, run.count, tuple(run.modules), run.decided_by) for run in document.blocks),
        entries={key: Member(item.block or "", item.part or "") for key, item in keyed},
        nodes={},
        roles={key: item.layer_role or "" for key, item in keyed if item.role is Role.PARAMETER},
    )


def _stages(document: InspectDocument, keyed: Sequence[tuple[Key, Tensor]]) -> Stages | None:
    """Return the stages of a report, without nodes; None if it has none."""
    if document.stages is None:
        return None
    entries = {key: item.stage for key, item in keyed if item.stage is not None}
    return Stages(tuple(document.stages), entries, {})


def _entry(item: Tensor) -> Entry:
    tensor = StoredTensor(
        name=item.name,
        graph_path=tuple(item.graph_path.split("/")) if item.graph_path else (),
        carrier=item.carrier,
        dtype=DType[item.dtype],
        shape=tuple(item.shape),
        numel=item.stored_elements,
        nbytes=item.bytes,
        payload=NoPayload(),
    )
    copied: Key | None = None if item.copy_of is None else ((), item.copy_of)
    return Entry(
        tensor=tensor,
        role=item.role,
        decided_by=item.decided_by,
        scope=item.scope or "",
        scoped_by=item.scoped_by,
        sources=tuple(item.sources),
        uses=item.uses,
        read_by=item.read_by,
        computed_by=item.computed_by,
        parameters=item.parameters,
        logical_numel=item.parameters or item.stored_elements,
        applications=item.applications,
        shared_with=tuple(item.shared_with),
        copy_of=copied,
    )
