"""Ledger + Manifest -> Reconciliation: the fate of every PyTorch parameter, and the origin of every stored tensor.

The rules run in the order of `RULES`; the sums are checked before anything is returned.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

import numpy as np

from analyzer.account.classify.constants import as_read
from analyzer.account.ledger import Ledger
from analyzer.errors import UsageError
from analyzer.manifest import Manifest
from analyzer.model import Key
from analyzer.model.content import ContentMode
from analyzer.reconciliation.anchors import match_anchors
from analyzer.reconciliation.batchnorm import match_folded_batchnorm, match_frozen_batchnorm, settle_rescaled
from analyzer.reconciliation.blocked import find_tiles, mark_tiles
from analyzer.reconciliation.books import Books
from analyzer.reconciliation.branches import match_branches
from analyzer.reconciliation.changed import settle_changed
from analyzer.reconciliation.contents import Contents, Originals
from analyzer.reconciliation.cosines import match_unit_rows
from analyzer.reconciliation.factors import match_layer_scale, match_moved_gain
from analyzer.reconciliation.leftovers import (
    mark_ties,
    settle_dead,
    settle_entries,
    settle_fillers,
    settle_not_compared,
    settle_outside,
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
    Nearest,
    ParameterLine,
    Piece,
    Reconciliation,
)
from analyzer.reconciliation.matching import (
    match_by_content,
    match_by_name,
    match_by_reader,
    match_by_shape,
    match_cast_buffers,
    match_copies,
    match_deduplicated,
)
from analyzer.reconciliation.names import align, with_lists, with_roots
from analyzer.reconciliation.normalized import match_folded_weightnorm, match_spectralnorm, match_standardized
from analyzer.reconciliation.numbers import match_computed_numbers, match_numbers, match_read_numbers
from analyzer.reconciliation.orientation import settle_turned
from analyzer.reconciliation.packed import match_concatenated, match_packed_copies, match_recurrent
from analyzer.reconciliation.placement import settle_misplaced, settle_misplaced_by_program
from analyzer.reconciliation.pointwise import match_folded_pointwise
from analyzer.reconciliation.program import match_cut_values, match_evaluated, settle_opaque
from analyzer.reconciliation.split import match_split, match_split_copies, match_split_tables
from analyzer.reconciliation.tables import (
    match_added_rows,
    match_repeated_copies,
    match_rotary,
    match_rows,
    settle_untuned,
)
from analyzer.reconciliation.verdict import close_books, keep_wiring, wiring_of
from analyzer.records import replace

if TYPE_CHECKING:
    from analyzer.checkpoints import Weights

__all__ = [
    "MEANINGS",
    "RULES",
    "UNBALANCED",
    "WHY",
    "BridgeRow",
    "ContentMode",
    "EntryLine",
    "Line",
    "Nearest",
    "ParameterLine",
    "Piece",
    "Reconciliation",
    "keep_wiring",
    "reconcile_ledger",
    "wiring_of",
]

RULES: tuple[Callable[[Books], None], ...] = (
    find_tiles,
    match_by_name,
    match_folded_batchnorm,
    match_branches,
    match_folded_weightnorm,
    match_spectralnorm,
    match_moved_gain,
    match_recurrent,
    match_cut_values,
    match_split_tables,
    match_rows,
    match_by_content,
    match_numbers,
    match_read_numbers,
    match_concatenated,
    match_split,
    match_frozen_batchnorm,
    match_folded_pointwise,
    match_computed_numbers,
    match_added_rows,
    match_standardized,
    match_unit_rows,
    match_layer_scale,
    match_by_reader,
    match_by_shape,
    match_copies,
    match_packed_copies,
    match_split_copies,
    match_repeated_copies,
    match_deduplicated,
    match_rotary,
    match_cast_buffers,
    match_anchors,
    match_evaluated,
    settle_untuned,
    settle_turned,
    settle_fillers,
    settle_rescaled,
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
"""Rules in the order in which they run."""


_READER_RULES = (settle_turned, settle_changed, settle_misplaced, settle_dead, settle_opaque)
"""Rules that compare the readers of a value with PyTorch's modules."""


def reconcile_ledger(
    ledger: Ledger,
    manifest: Manifest,
    content: ContentMode | None = None,
    *,
    weights: Weights | None = None,
    progress: Callable[[int, int], None] | None = None,
    is_file: bool = False,
    places: bool = True,
    misplaced: Collection[str] = (),
    exchanged: Collection[Key] = (),
) -> Reconciliation:
    """Prove, or refute, that the file holds the PyTorch model's parameters, all of them and nothing else.

    Args:
        ledger: the file's side, from `analyzer.account.audit`.
        manifest: PyTorch's side.
        content: mode in which values are compared; None compares all of them, or all that the manifest describes, but
            samples of a remote file if `weights` are at hand.
        weights: PyTorch's values, if a checkpoint or a module is at hand.
        progress: called with (done, total) in bytes while contents are read.
        is_file: whether the other side is a file too, so that PyTorch's reads are unknown: then only values are
            compared, and not their readers.
        places: whether to check the places where weights are read; False if PyTorch's program decides that.
        misplaced: parameters that, according to the program, the file reads where others belong.
        exchanged: tables computed from a buffer that, according to the program, the file reads where others belong.

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
    ledger_as_read = replace(ledger, entries=as_read(ledger.entries, ledger.wiring))
    aligned = align(names, known)
    books = Books(with_lists(with_roots(ledger_as_read, manifest), aligned), manifest, contents, aligned)
    with np.errstate(
        invalid="ignore", over="ignore"
    ):  # contents may have any bit pattern, even a signalling NaN
        for rule in RULES:
            if not (is_file and rule in _READER_RULES) and (places or rule is not settle_misplaced):
                rule(books)
            if is_file:  # the other file may hold a packed recurrent weight in the same layout
                books.misfits.clear()
        settle_misplaced_by_program(books, misplaced, exchanged)
        return close_books(books, ledger)
