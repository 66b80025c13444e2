"""Formula beside a census and a model -> Checked: every term on all sides, and the reasons for what differs."""

from __future__ import annotations

from collections.abc import Iterable

from analyzer.formulas.derived import part_finder
from analyzer.formulas.family import load_family
from analyzer.formulas.reasons import find_reasons
from analyzer.formulas.record import Checked, Formula, Side
from analyzer.formulas.sides import (
    Finder,
    family_finder,
    settle_ties,
    side_of_ledger,
    side_of_manifest,
    side_of_reconciliation,
)
from analyzer.ledger import Ledger
from analyzer.manifest import Manifest
from analyzer.reconciliation import Reconciliation, reconcile_ledger

__all__ = ["check_formula"]


def check_formula(
    formula: Formula, manifest: Manifest | None = None, model: Ledger | Reconciliation | None = None
) -> Checked:
    """Count the same parts on PyTorch's side and in a file.

    Args:
        formula: what is to be proved.
        manifest: PyTorch's side: a census of the meta device, an export's manifest, or the names of a checkpoint.
        model: a file's ledger, whose tensors have the names that the exporter left, or else are found by the shapes of
            the manifest; or its reconciliation, in which they have PyTorch's names.

    Raises:
        LedgerError: the bridge to `manifest` does not lead to the file, a defect of onnxledger.
    """
    find = _finder(formula)
    census = None if manifest is None else _settle(formula, side_of_manifest(manifest, find, _name(manifest)))
    file = None
    if isinstance(model, Ledger):
        file = _settle(formula, side_of_ledger(model, find))
        if file.unmatched and manifest is not None:
            model = reconcile_ledger(model, manifest, "none")
    if isinstance(model, Reconciliation):
        file = _settle(formula, side_of_reconciliation(model, find))
    judged = file or census
    return Checked(formula, census, file, () if judged is None else find_reasons(formula, judged))


def _finder(formula: Formula) -> Finder:
    return part_finder(formula) if formula.key is None else family_finder(load_family(formula.key))


def _settle(formula: Formula, side: Side) -> Side:
    return side if formula.key is None else settle_ties(side, formula, load_family(formula.key))


def _name(manifest: Manifest) -> str:
    told: Iterable[str | None] = (manifest.source.get("class"), manifest.source.get("source"))
    return next((name for name in told if name), "PyTorch")
