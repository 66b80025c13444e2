"""Ledger + Manifest -> Reconciliation: where every PyTorch parameter went, where every stored tensor came from.

The rules run in the order of `RULES`, each in a file of its own; the sums are checked before anything is returned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from analyzer.classify.constants import as_read
from analyzer.errors import LedgerError, UsageError
from analyzer.ledger import Finding, Ledger, Severity
from analyzer.manifest import Manifest
from analyzer.model import Key, Place, StoredTensor, label
from analyzer.reconciliation.added_rows import match_added_rows
from analyzer.reconciliation.blocked import find_tiles, mark_tiles
from analyzer.reconciliation.books import Books
from analyzer.reconciliation.by_content import (
    match_by_content,
    match_by_reader,
    match_copies,
    match_deduplicated,
    match_numbers,
)
from analyzer.reconciliation.by_name import match_by_name
from analyzer.reconciliation.by_shape import match_by_shape
from analyzer.reconciliation.changed import settle_changed
from analyzer.reconciliation.computing import settle_opaque
from analyzer.reconciliation.concatenated import match_concatenated, match_packed_copies
from analyzer.reconciliation.contents import ContentMode, Contents
from analyzer.reconciliation.evaluated import match_evaluated
from analyzer.reconciliation.folded_batchnorm import match_folded_batchnorm
from analyzer.reconciliation.folded_pointwise import match_folded_pointwise
from analyzer.reconciliation.folded_weightnorm import match_folded_weightnorm
from analyzer.reconciliation.frozen_batchnorm import match_frozen_batchnorm
from analyzer.reconciliation.layer_scale import match_layer_scale
from analyzer.reconciliation.leftovers import (
    mark_ties,
    settle_dead,
    settle_entries,
    settle_fillers,
    settle_not_compared,
    settle_parameters,
    settle_suspects,
)
from analyzer.reconciliation.lines import (
    MEANINGS,
    UNBALANCED,
    WHY,
    BridgeRow,
    EntryLine,
    Line,
    ParameterLine,
    Reconciliation,
    why_differing,
)
from analyzer.reconciliation.moved_gain import match_moved_gain
from analyzer.reconciliation.names import align
from analyzer.reconciliation.nearest import find_nearest
from analyzer.reconciliation.normalized import match_spectralnorm, match_standardized
from analyzer.reconciliation.orientation import settle_turned
from analyzer.reconciliation.originals import Originals
from analyzer.reconciliation.outside import settle_outside
from analyzer.reconciliation.placement import settle_misplaced
from analyzer.reconciliation.recurrent import match_recurrent
from analyzer.reconciliation.remarks import find_remarks, remark_wiring
from analyzer.reconciliation.roots import with_roots
from analyzer.reconciliation.rotary import match_rotary, settle_untuned
from analyzer.reconciliation.rows import match_rows
from analyzer.reconciliation.split import match_split, match_split_copies, match_split_tables
from analyzer.reconciliation.wired import compare_wiring
from analyzer.units import format_many

if TYPE_CHECKING:
    from analyzer.checkpoints.weights import Weights

__all__ = [
    "RULES",
    "BridgeRow",
    "ContentMode",
    "EntryLine",
    "Line",
    "ParameterLine",
    "Reconciliation",
    "reconcile_ledger",
]

RULES: tuple[Callable[[Books], None], ...] = (
    find_tiles,
    match_by_name,
    match_folded_batchnorm,
    match_folded_weightnorm,
    match_spectralnorm,
    match_moved_gain,
    match_recurrent,
    match_split_tables,
    match_rows,
    match_by_content,
    match_numbers,
    match_concatenated,
    match_split,
    match_frozen_batchnorm,
    match_folded_pointwise,
    match_added_rows,
    match_standardized,
    match_layer_scale,
    match_by_reader,
    match_by_shape,
    match_copies,
    match_packed_copies,
    match_split_copies,
    match_deduplicated,
    match_rotary,
    match_evaluated,
    settle_untuned,
    settle_turned,
    settle_fillers,
    settle_suspects,
    settle_outside,
    settle_parameters,
    settle_entries,
    settle_not_compared,
    settle_changed,
    settle_misplaced,
    settle_dead,
    settle_opaque,
    mark_tiles,
    mark_ties,
)
"""The order in which the rules are asked."""


def reconcile_ledger(
    ledger: Ledger,
    manifest: Manifest,
    content: ContentMode | None = None,
    *,
    weights: Weights | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Reconciliation:
    """Prove, or refute, that the file holds the PyTorch model's parameters, all of them and nothing else.

    Args:
        ledger: the file's side, from `analyzer.audit`.
        manifest: PyTorch's side.
        content: how far values are compared; None compares all of them, or all that the manifest describes, but
            samples of a remote file where `weights` are at hand.
        weights: PyTorch's values, where a checkpoint or a module is at hand.
        progress: told (done, total) in bytes while contents are read.

    Raises:
        UsageError: contents are to be compared and the manifest has none.
        LedgerError: the bridge does not lead from one side to the other, a defect of onnxledger.
    """
    originals = Originals(manifest, weights, manifest.salt if manifest.has_content else ledger.model.salt)
    if content is None:
        is_cheap = ledger.model.traffic is None or weights is None
        content = ("full" if is_cheap else "sampled") if originals.has_content else "none"
    if content != "none" and not originals.has_content:
        raise UsageError(
            f"--content {content}: the PyTorch side was described without weights; reconcile against a checkpoint or "
            "the manifest that `onnxledger export` wrote, or pass --content none"
        )
    names = [name for entry in ledger.entries for name in (entry.sources or (entry.tensor.name,))]
    known = [name for tensor in manifest.tensors for name in tensor.names]
    is_local = ledger.model.traffic is None
    contents = Contents(content, originals, ledger.wiring, progress, ledger.stored_nbytes, is_local)
    read = replace(ledger, entries=as_read(ledger.entries, ledger.wiring))
    books = Books(with_roots(read, manifest), manifest, contents, align(names, known))
    for rule in RULES:
        rule(books)
    return _close(books, ledger)


def _close(books: Books, ledger: Ledger) -> Reconciliation:
    manifest = books.manifest
    parameters = tuple(books.parameters[parameter.name] for parameter in manifest.parameters)
    entries = tuple(books.entries[entry.tensor.key] for entry in ledger.entries)
    bridge = _bridge(books)
    trainable = {parameter.name: parameter.trainable for parameter in manifest.parameters}
    result = Reconciliation(
        ledger=ledger,
        manifest=manifest,
        content=books.contents.mode,
        bridge=bridge,
        parameters=parameters,
        entries=entries,
        onnx_parameters=_count_parameters(books),
        findings=(*_findings(books), *find_remarks(books)),
        nearest=find_nearest(books),
        trainability={
            line.key: (line.parameter, trainable[line.parameter])
            for line in entries
            if line.parameter is not None and line.parameter in trainable
        },
        checked_places=books.checked_places,
    )
    _check(result)
    reads, first = compare_wiring(result)
    told = (remark_wiring(first),) if first is not None else ()
    return replace(result, reads=reads, differs_from=first, findings=(*result.findings, *told))


def _bridge(books: Books) -> tuple[BridgeRow, ...]:
    """Sum the lines. A held parameter carries its share of a tensor to the other side; the rest adds or takes away."""
    rows = {line: [0, 0, 0, 0, 0] for line in Line}
    numels = {parameter.name: parameter.numel for parameter in books.manifest.parameters}
    held: dict[Key, int] = Counter()
    for settled in books.parameters.values():
        numel = numels[settled.name]
        learned, stored, nbytes = 0, 0, 0
        for holding in books.holdings.get(settled.name, ()):
            learned, stored = learned + holding.learned, stored + holding.stored
            nbytes += _share(books.entry(holding.key).tensor, held[holding.key], holding.stored)
            held[holding.key] += holding.stored
        _add(rows[settled.line], 1, numel, learned - numel, stored - numel, nbytes)
    for line in books.entries.values():
        tensor = books.entry(line.key).tensor
        if line.key not in held:
            _add(rows[line.line], 1, tensor.numel, line.learned, tensor.numel, tensor.nbytes)
        elif held[line.key] < tensor.numel:  # what fills up a tensor beside the parameters in it
            rest = tensor.numel - held[line.key]
            _add(rows[Line.ADDED], 0, rest, 0, rest, _share(tensor, held[line.key], rest))
    for numel in books.made.values():  # in no file, so that they change no count
        _add(rows[Line.OPAQUE], 1, numel, 0, 0, 0)
    return tuple(BridgeRow(line, *rows[line]) for line in Line)


def _share(tensor: StoredTensor, start: int, count: int) -> int:
    """Bytes of a run of a tensor's elements; those of all runs sum to the tensor's."""
    size = max(tensor.numel, 1)
    return tensor.nbytes * (start + count) // size - tensor.nbytes * start // size


def _add(row: list[int], *numbers: int) -> None:
    """Tensors, elements, parameter_delta, stored_delta, bytes."""
    for index, number in enumerate(numbers):
        row[index] += number


def _count_parameters(books: Books) -> int:
    """Learned elements in the file with the PyTorch side known, counted on the file's side alone.

    Each entry that some parameter is held in, once; copies, buffers and what the exporter made, never.
    """
    return sum(line.learned for line in books.entries.values())


def _check(result: Reconciliation) -> None:
    parameters = result.manifest.numel + sum(row.parameter_delta for row in result.bridge)
    stored = result.manifest.numel + sum(row.stored_delta for row in result.bridge)
    if (parameters, stored) != (result.onnx_parameters, result.ledger.stored_elements):
        raise LedgerError(
            f"{result.ledger.model.path}: the bridge leads to {parameters:,} parameters and {stored:,} stored "
            f"elements, the file has {result.onnx_parameters:,} and {result.ledger.stored_elements:,}"
        )


def _name_of(books: Books, place: Place) -> str:
    """What a node makes, as findings name it."""
    graph = next(graph for graph in books.ledger.model.graphs if graph.path == place[0])
    node = graph.nodes[place[1]]
    return label((place[0], node.outputs[0] if node.outputs else node.name))


def _findings(books: Books) -> Iterator[Finding]:
    """One finding for each line that unbalances the account, with the culprits; of `differing` one for each why."""
    numels = {parameter.name: parameter.numel for parameter in books.manifest.parameters}
    told = [(line, None) for line in UNBALANCED]
    reasons: list[tuple[Line, str | None]] = [*told, *((Line.DIFFERING, why) for why in sorted(WHY))]
    for line, why in sorted(reasons, key=lambda reason: UNBALANCED.index(reason[0])):
        found = {
            each.name: numels[each.name]
            for each in books.parameters.values()
            if each.line is line and why_differing(line, each.decided_by) == why
        }
        for entry in books.entries.values():
            if entry.line is line and why_differing(line, entry.decided_by) == why:
                name = label(entry.key) if line is Line.OPAQUE else entry.parameter or label(entry.key)
                found.setdefault(name, books.entry(entry.key).tensor.numel)
        if line is Line.OPAQUE:
            found.update((_name_of(books, place), numel) for place, numel in books.made.items())
        if found:
            size = f"{format_many(len(found), 'tensor')}, {format_many(sum(found.values()), 'element')}"
            words = MEANINGS[line].unbalanced if why is None else WHY[why]
            message = f"{size}: {words[len(found) > 1]}"
            yield Finding(line.value, Severity.ERROR, message, tuple(sorted(found)))
