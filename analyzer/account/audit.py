"""Stages of an audit in their order, which only this module knows: from reading, wiring and classifying to blocks."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

from analyzer.account.applications import count_applications
from analyzer.account.artifact import find_components, is_artifact
from analyzer.account.blocks import assign_block_scopes, find_blocks
from analyzer.account.bytes import book_bytes
from analyzer.account.classify import classify, find_companions
from analyzer.account.classify.constants import settle_constants, settle_fillers, settle_masks
from analyzer.account.copies import find_copies
from analyzer.account.decoding import CODES
from analyzer.account.decoding.encodings import find_encoding
from analyzer.account.findings.facts import Facts, check_values
from analyzer.account.findings.rules import find
from analyzer.account.hidden import find_hidden
from analyzer.account.ledger import ByEntry, Entry, Ledger, Opaque, Role
from analyzer.account.opaque import find_opaque
from analyzer.account.scopes import known_modules
from analyzer.account.scopes.owners import settle_scopes
from analyzer.account.scopes.paths import NodeScopes, scope_nodes
from analyzer.account.stages import find_stages
from analyzer.errors import LedgerError, ModelReadError, UsageError
from analyzer.model import Carrier, Model
from analyzer.model.content import ContentMode
from analyzer.model.dataflow import follow_data
from analyzer.model.functions import count_calls
from analyzer.model.liveness import Live, find_live
from analyzer.model.places import ByNode
from analyzer.model.wiring import Wiring, connect
from analyzer.process import uncollected
from analyzer.read import MAX_OBJECTS, read_model
from analyzer.records import replace


def audit_model(
    path: Path | str,
    *,
    artifact: bool = False,
    content: ContentMode | None = None,
    max_objects: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Ledger:
    """Account for every stored tensor and every byte of the model at `path`.

    Args:
        path: an .onnx file or a URL, whose external data is found beside it; or the folder of an artifact, whose
            components are entered in one ledger, where a tensor that several of them hold counts once.
        artifact: `path` is an artifact's folder though it has no `export.json`.
        content: how much of the contents is read to find copies, constants and broken weights. `sampled`, the default
            for local files: 256 positions of large tensors, and all of a tensor that may be a copy; `full`: every
            element; `none`, the default for URLs: nothing, so that copies count.
        max_objects: limit for the nodes and tensors of the model (`analyzer.read.MAX_OBJECTS`).
        progress: called with (done, total) while contents are read.

    Raises:
        ModelReadError: the file, or a component, cannot be read as an ONNX model.
        UsageError: the artifact has no component.
        MissingExtraError: `path` is a URL, and the package that reads URLs is not installed.
        LedgerError: an identity of the account does not hold, which is a defect of onnxledger.
    """
    with uncollected():
        limit = MAX_OBJECTS if max_objects is None else max_objects
        is_folder = artifact or is_artifact(path)
        model = (_read_artifact if is_folder else read_model)(path, max_objects=limit)
        with model.kept_open():
            ledger = _enter(model, content or ("sampled" if model.traffic is None else "none"), progress)
            blocks = find_blocks(ledger)
            ledger = replace(
                ledger,
                entries=assign_block_scopes(ledger.entries, blocks),
                blocks=blocks,
                stages=find_stages(model, ledger.wiring, ledger.computing),
            )
    _check(ledger)
    return ledger


def _enter(model: Model, content: ContentMode, progress: Callable[[int, int], None] | None) -> Ledger:
    """Run the stages between reading and blocks."""
    salt = "" if content == "none" else model.salt
    wiring = connect(model)
    companions = find_companions(model, wiring)
    computing = wiring.computing(list(model.tensors()))
    entries = classify(model, wiring, companions, computing)
    if content != "none":
        entries = settle_fillers(tuple(settle_masks(entries)), wiring)
    entries = find_copies(model, entries, wiring, content, progress, salt)
    entries = settle_constants(model, entries, wiring)
    flow = follow_data(model, wiring)
    modules = known_modules(model)
    traced = scope_nodes(model, modules)
    entries, all_scopes = settle_scopes(model, entries, wiring, flow, traced, companions, modules)
    traced_paths, scopes = (_without_rules(model, found) for found in (traced, all_scopes))
    calls = count_calls(model)
    live = find_live(model, wiring)
    entries = count_applications(model, entries, wiring, flow, scopes, calls)
    booked = book_bytes(model, entries)
    values = check_values(entries, content, progress, salt)
    reads = content != "none" and model.traffic is None
    opaque = _find_opaque(model, entries, wiring, live, reads=reads)
    # Matrices are read whole: for a URL only `full` allows that.
    hidden = find_hidden(
        model, entries, wiring, opaque.tensors, reads=model.traffic is None or content == "full"
    )
    if model.traffic is not None and content != "none":
        main = model.sources[model.files[0].key]
        main.check()  # contents were read after the reader had checked that the file has not changed
        model = replace(model, traffic=main.traffic)
    return Ledger(
        model=model,
        entries=entries,
        accounts=booked.accounts,
        findings=find(Facts(model, entries, wiring, booked, values, live, opaque if reads else None, calls)),
        wiring=wiring,
        node_scopes=scopes,
        traced_scopes=traced_paths,
        shared_nbytes=booked.shared,
        content=content,
        calls=calls,
        computing=ByEntry(entries, [None if reader is None else reader[0].place for reader in computing]),
        live=live,
        made=opaque.made,
        hidden=hidden,
        opaque=tuple(sorted(opaque.tensors)),
    )


def _without_rules(model: Model, found: NodeScopes) -> ByNode[str]:
    return ByNode(model, [None if scope is None else scope[0] for scope in found.in_order])


def _find_opaque(
    model: Model, entries: Sequence[Entry], wiring: Wiring, live: Live, *, reads: bool
) -> Opaque:
    """Find data that flows into arithmetic beside the parameters, as far as the file alone tells.

    Three kinds of data count as explained: companions that decode a parameter's codes, the statistics of a
    BatchNormalization, and the other attribute lists of a learned tree.
    """
    explained = {key for _, key, _ in model.unread}  # an error already says that its content cannot be known
    trees = {
        (entry.tensor.graph_path, entry.tensor.node)
        for entry in entries
        if entry.role is Role.PARAMETER and entry.tensor.carrier is Carrier.ATTRIBUTE_LIST
    }
    for entry in entries:
        tensor = entry.tensor
        is_explained = (
            entry.role is Role.PARAMETER
            or (entry.role is Role.BUFFER and entry.read_by == "BatchNormalization")
            or (tensor.carrier is Carrier.ATTRIBUTE_LIST and (tensor.graph_path, tensor.node) in trees)
        )
        if is_explained:
            explained.add(tensor.key)
            if tensor.dtype in CODES and (encoded := find_encoding(tensor, wiring)) is not None:
                explained.update(companion.key for companion in encoded.companions)
    return find_opaque(model, wiring, live, lambda tensor: tensor.key in explained, reads=reads)


def _read_artifact(folder: Path | str, *, max_objects: int) -> Model:
    """Read all components of an artifact; if it has only one, return the model in that file."""
    found = find_components(folder)
    if len(found) == 1:
        return read_model(Path(folder, *found.values()), max_objects=max_objects)
    models: dict[str, Model] = {}
    count = 0
    for name, file in found.items():
        try:
            models[name] = read_model(Path(folder, file), max_objects=max_objects)
        except ModelReadError as error:
            raise ModelReadError(f"{error} (component {name} of {folder})") from error
        count += sum(len(graph.nodes) + len(graph.tensors) for graph in models[name].graphs)
        if count > max_objects:
            raise ModelReadError(
                f"{folder}: its components hold more than {max_objects:,} nodes and tensors, which would take too "
                "much memory; if you trust the files, raise the limit with --max-objects N"
            )
    from analyzer.account.artifact.merge import merge_models  # a single file does not need it

    return merge_models(folder, models)


def _check(ledger: Ledger) -> None:
    """Check the identities that must hold for every file."""
    booked = sum(account.nbytes for account in ledger.accounts)
    if booked != ledger.file_nbytes:
        raise LedgerError(
            f"{ledger.model.path}: the accounts hold {booked:,} bytes, but the files have "
            f"{ledger.file_nbytes:,}"
        )
    claimed = sum(account.nbytes for account in ledger.accounts[: len(Role)]) + ledger.shared_nbytes
    if claimed != ledger.stored_nbytes:
        raise LedgerError(
            f"{ledger.model.path}: the payload accounts and shared bytes are {claimed:,} bytes, but the "
            f"tensors have {ledger.stored_nbytes:,}"
        )
    if sum(ledger.basis.values()) != ledger.stored_elements:
        raise LedgerError(f"{ledger.model.path}: the evidence does not cover every stored element")


def file_digests(model: Model) -> dict[str, str]:
    """Return the SHA-256 of each of the model's files, in hexadecimal, by its path in `model.files`.

    Raises:
        UsageError: the model is remote, and not all of it was read.
        OSError: a file cannot be read any more.
    """
    if model.traffic is not None:
        raise UsageError(f"{model.path}: a digest needs every byte; download the file and name it")
    digests = {}
    for file, path in zip(model.files, model.paths, strict=True):
        with path.open("rb") as stream:
            digests[file.path] = hashlib.file_digest(stream, "sha256").hexdigest()
    return digests
