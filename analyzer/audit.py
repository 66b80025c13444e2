"""The order of the stages, read -> graph -> classify -> copies -> bytes -> findings; the only file that knows it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from analyzer.bytes import book_bytes
from analyzer.classify import classify, scope_nodes
from analyzer.copies import find_copies
from analyzer.errors import LedgerError
from analyzer.findings import find
from analyzer.graph import build_graph
from analyzer.ledger import Ledger
from analyzer.model import Model
from analyzer.read import read_model

__all__ = ["audit_model", "file_digests"]


def audit_model(path: Path | str, *, progress: Callable[[int, int], None] | None = None) -> Ledger:
    """Account for every stored tensor and every byte of the model at `path`.

    Args:
        path: an .onnx file; its external data is found beside it.
        progress: told (done, total) while contents are compared.

    Raises:
        ModelReadError: the file cannot be read as an ONNX model.
        LedgerError: an identity of the account does not hold, a defect of onnxledger.
    """
    model = read_model(Path(path))
    graph = build_graph(model)
    scopes = scope_nodes(model)
    entries = find_copies(classify(model, graph, scopes), progress)
    ledger = Ledger(
        model=model,
        entries=entries,
        accounts=book_bytes(model, entries),
        findings=find(model, entries),
        graph=graph,
        node_scopes={position: scope for position, (scope, _) in scopes.items()},
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
    if sum(ledger.basis.values()) != ledger.stored_elements:
        raise LedgerError(f"{ledger.model.path}: the evidence does not cover every stored element")


def file_digests(model: Model) -> dict[str, str]:
    """SHA-256 of each of the model's files, in hexadecimal, by its path in `model.files`."""
    digests = {}
    for file, path in zip(model.files, model.paths, strict=True):
        with path.open("rb") as stream:
            digests[file.path] = hashlib.file_digest(stream, "sha256").hexdigest()
    return digests
