"""The order of the stages, read -> connect -> classify -> copies -> bytes -> values -> findings; known here alone."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable
from pathlib import Path

from analyzer.bytes import book_bytes
from analyzer.classify import classify, scope_nodes
from analyzer.collector import uncollected
from analyzer.content import ContentMode
from analyzer.copies import find_copies
from analyzer.errors import LedgerError, UsageError
from analyzer.findings import Evidence, find
from analyzer.functions import count_calls
from analyzer.ledger import Ledger, Role
from analyzer.model import Model
from analyzer.read import MAX_OBJECTS, read_model
from analyzer.values import look_at_values
from analyzer.wiring import connect

__all__ = ["audit_model", "file_digests"]


def audit_model(
    path: Path | str,
    *,
    content: ContentMode | None = None,
    max_objects: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Ledger:
    """Account for every stored tensor and every byte of the model at `path`.

    Args:
        path: an .onnx file or a URL; its external data is found beside it.
        content: how far contents are looked at, to find copies, constant and broken weights. `sampled`, the default
            for local files: large tensors at 64 positions, and whole where two may be copies; `full`: every element;
            `none`, the default for URLs: nothing, so that copies count.
        max_objects: nodes and tensors that the model may have (`analyzer.read.MAX_OBJECTS`).
        progress: told (done, total) while contents are looked at.

    Raises:
        ModelReadError: the file cannot be read as an ONNX model.
        LedgerError: an identity of the account does not hold, a defect of onnxledger.
    """
    with uncollected():
        model = read_model(path, max_objects=MAX_OBJECTS if max_objects is None else max_objects)
        content = content or ("sampled" if model.traffic is None else "none")
        wiring = connect(model)
        scopes = scope_nodes(model)
        entries = classify(model, wiring, scopes)
        if content != "none":
            entries = find_copies(entries, progress)
        booked = book_bytes(model, entries)
        values = look_at_values(entries, content, progress)
        calls = count_calls(model)
        if model.traffic is not None and content != "none":
            main = model.sources[model.files[0].key]
            main.check()  # contents were read after the reader had made sure that the file is what it was
            model = dataclasses.replace(model, traffic=main.traffic)
        ledger = Ledger(
            model=model,
            entries=entries,
            accounts=booked.accounts,
            findings=find(Evidence(model, entries, wiring, booked, values, calls)),
            wiring=wiring,
            node_scopes={position: scope for position, (scope, _) in scopes.items()},
            shared_nbytes=booked.shared,
            content=content,
            calls=calls,
        )
    _check(ledger)
    return ledger


def _check(ledger: Ledger) -> None:
    """The identities that no file may break."""
    booked = sum(account.nbytes for account in ledger.accounts)
    if booked != ledger.file_nbytes:
        raise LedgerError(
            f"{ledger.model.path}: accounts hold {booked:,} bytes, the files {ledger.file_nbytes:,}"
        )
    claimed = sum(account.nbytes for account in ledger.accounts[: len(Role)]) + ledger.shared_nbytes
    if claimed != ledger.stored_nbytes:
        raise LedgerError(
            f"{ledger.model.path}: payload accounts and what is shared hold {claimed:,} bytes, the tensors "
            f"{ledger.stored_nbytes:,}"
        )
    if sum(ledger.basis.values()) != ledger.stored_elements:
        raise LedgerError(f"{ledger.model.path}: the evidence does not cover every stored element")


def file_digests(model: Model) -> dict[str, str]:
    """SHA-256 of each of the model's files, in hexadecimal, by its path in `model.files`."""
    if model.traffic is not None:
        raise UsageError(f"{model.path}: a digest needs every byte; download the file and name it")
    digests = {}
    for file, path in zip(model.files, model.paths, strict=True):
        with path.open("rb") as stream:
            digests[file.path] = hashlib.file_digest(stream, "sha256").hexdigest()
    return digests
