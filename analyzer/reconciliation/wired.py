"""Reconciliation -> whether the file still computes with its weights what the export did, and from which module on not.

The digest of `analyzer.fingerprint`, with each weight under its PyTorch name. It says something of files as they were
exported: whoever optimizes a file, or encodes its weights, changes it, and then nothing is compared.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from analyzer.fingerprint import Fingerprint, take_fingerprint
from analyzer.manifest import Manifest, Wired, save_manifest
from analyzer.model import Key
from analyzer.reconciliation.lines import RETYPED, Line, Reads, Reconciliation

__all__ = ["compare_wiring", "keep_wiring", "wiring_of"]


def wiring_of(result: Reconciliation) -> Wired | None:
    """What the file computes with the parameters that it holds; None where that is more than one look can tell."""
    taken = _take(result)
    if taken is None:
        return None
    return Wired(taken.outputs, taken.scopes, result.ledger.model.producer, _domains(result))


def keep_wiring(result: Reconciliation, path: Path) -> None:
    """Write into the manifest at `path` what the file computes, so that `reconcile` can tell what changed since."""
    wired = wiring_of(result)
    if wired is not None:
        save_manifest(replace(result.manifest, wiring=wired), path)


def compare_wiring(result: Reconciliation) -> tuple[Reads, str | None]:
    """Whether the file reads its weights as the manifest's export did, and the first module that does not.

    The module is "" where none can be named.
    """
    known = result.manifest.wiring
    taken = _take(result) if known is not None else None
    if known is None or taken is None:
        return "not-compared", None
    if taken.outputs == known.outputs:
        return "as-exported", None
    if _is_rewritten(result, known):
        return "not-compared", None
    return "differs", Fingerprint(known.outputs, known.scopes).first_difference(taken) or ""


def _is_rewritten(result: Reconciliation, known: Wired) -> bool:
    """Whether a tool says that it made another file of it: by its name, its operators, its types, or lost notes."""
    ledger = result.ledger
    return (
        ledger.model.producer != known.producer
        or not set(_domains(result)) <= set(known.domains)
        or any(line.line in RETYPED for line in result.parameters)
        or (bool(known.scopes) and not ledger.traced_scopes)
    )


def _domains(result: Reconciliation) -> tuple[str, ...]:
    return tuple(sorted({node.domain for node in result.ledger.model.nodes()}))


def _take(result: Reconciliation) -> Fingerprint | None:
    ledger = result.ledger
    if ledger.live is None or ledger.model.traffic is not None:
        return None
    return take_fingerprint(
        ledger.model, ledger.wiring, ledger.live, _name_weights(result), ledger.traced_scopes
    )


def _name_weights(result: Reconciliation) -> dict[Key, str]:
    """What stands for each stored tensor that holds parameters or a buffer: their names, and how they stand in it.

    Parameters of equal content have one name, so that merging them, which changes nothing, changes no digest.
    """
    names = _canonical_names(result.manifest)
    words: dict[Key, set[str]] = defaultdict(set)
    for settled in result.parameters:
        name = names.get(settled.name, settled.name)
        for piece in settled.pieces:
            rule = "" if piece.computed is None else piece.computed.rule
            words[piece.key].add(f"{name} {piece.axes} {piece.taken} {piece.put} {piece.viewed} {rule}")
        pieces = {piece.key for piece in settled.pieces}
        for key in settled.entries:
            if key not in pieces:
                words[key].add(name)
    for entry in result.entries:
        if entry.line is Line.BUFFER and entry.parameter is not None and entry.piece is not None:
            words[entry.key].add(f"{entry.parameter} {entry.piece.axes}")
    shapes = {entry.tensor.key: entry.tensor.shape for entry in result.ledger.entries}
    return {key: f"{shapes[key]} {sorted(found)}" for key, found in words.items()}


def _canonical_names(manifest: Manifest) -> dict[str, str]:
    first: dict[tuple[tuple[int, ...], str], str] = {}
    return {
        parameter.name: first.setdefault((parameter.shape, parameter.content.digest), parameter.name)
        for parameter in manifest.parameters
        if parameter.content is not None
    }
