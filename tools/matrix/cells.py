"""One cell of the matrix, made if its file is missing -> the result of reconciling its file."""

from __future__ import annotations

import functools
import shutil
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from tools.matrix.architectures import ARCHITECTURES, WITH_BATCHNORM
from tools.matrix.exports import (
    CONFIG,
    EXPORTS,
    WEIGHTS,
    is_prepared,
    make_export,
    prepare_architecture,
    refresh_manifest,
)
from tools.matrix.isolated import CellError, call_isolated, first_line, make_once
from tools.matrix.recovered import check_recovery
from tools.matrix.transforms import AS_EXPORTED, KEEPS_VALUES, TRANSFORMS, transform_model

if TYPE_CHECKING:
    from analyzer import Ledger, Reconciliation
    from analyzer.checkpoints import Original

__all__ = [
    "Cell",
    "Outcome",
    "Residue",
    "cells_of",
    "make_and_run",
    "residue_of",
    "run_cells",
    "unlike_another_seed",
]

Status = Literal["balanced", "residue", "failed", "not exported", "not transformed"]

Recovered = Literal["whole", "in part", "wrong"]
"""Whole: all bit by bit. In part: missing or changed tensors are reported. Wrong: some differ unreported."""
MODEL, MANIFEST = "model.onnx", "manifest.json"
_EXPORT_SECONDS, _TRANSFORM_SECONDS, _RECONCILE_SECONDS = 300, 300, 120
_preparing = threading.Lock()


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """One file: an architecture, an export and a transform."""

    architecture: str
    export: str
    transform: str

    @property
    def name(self) -> str:
        return f"{self.architecture}/{self.export}/{self.transform}"

    def model_path(self, folder: Path) -> Path:
        home = folder / self.architecture / self.export
        return home / (MODEL if self.transform == AS_EXPORTED else f"{self.transform}.onnx")

    def manifest_path(self, folder: Path) -> Path:
        return folder / self.architecture / self.export / MANIFEST


@dataclass(frozen=True, slots=True)
class Residue:
    """A line of the bridge that must be empty and is not."""

    line: str
    tensors: int
    elements: int
    names: tuple[str, ...]
    """PyTorch's names of the parameters, and the file's names of the entries."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of making and reconciling a cell."""

    cell: Cell
    status: Status
    reason: str = ""
    """Reason why the file does not exist, or could not be reconciled."""
    residue: tuple[Residue, ...] = ()
    """Residue against the manifest of the export."""
    checkpoint_residue: tuple[Residue, ...] | None = None
    """Residue against `model.safetensors`; None if not compared."""
    recovered: Recovered | None = None
    """State dict recovered from the file, compared with the checkpoint; None if not compared."""
    alone: int = 0
    """Number of parameters that the file shows without the PyTorch side."""
    pytorch: int = 0
    seconds: float = 0.0

    @property
    def exists(self) -> bool:
        return self.status not in ("not exported", "not transformed")

    @property
    def counts_agree(self) -> bool:
        return self.exists and self.alone == self.pytorch

    @property
    def elements(self) -> dict[str, int]:
        """Elements of each line that should be empty, against the manifest."""
        return {residue.line: residue.elements for residue in self.residue}

    @property
    def checkpoint_elements(self) -> dict[str, int]:
        """The same against the checkpoint if that was compared, else against the manifest."""
        residues = self.residue if self.checkpoint_residue is None else self.checkpoint_residue
        return {residue.line: residue.elements for residue in residues}


def cells_of(patterns: tuple[str, ...] = ()) -> tuple[Cell, ...]:
    """Return the cells whose names match any of the patterns, all without patterns; in the order of the tables.

    >>> [cell.name for cell in cells_of(("bert/static/int8*",))]
    ['bert/static/int8', 'bert/static/int8-channel']
    """
    everything = (Cell(a, e, t) for a in ARCHITECTURES for e in EXPORTS for t in TRANSFORMS)
    return tuple(
        cell
        for cell in everything
        if not patterns or any(fnmatchcase(cell.name, pattern) for pattern in patterns)
    )


def make_and_run(folder: Path, cells: Sequence[Cell], *, again: bool = False) -> list[Outcome]:
    """Make the missing files of the cells in `folder`, and reconcile them; this raises nothing.

    A failure is kept beside the files, and the cell is not tried again unless `again`. The cells of one export are
    fastest together, because the checkpoint is then read once.
    """
    failures = {cell: _make_file(folder, cell, again) for cell in cells}
    made = [cell for cell in cells if failures[cell] is None]
    outcomes = {outcome.cell: outcome for outcome in _run_together(folder, made)} if made else {}
    return [failures[cell] or outcomes[cell] for cell in cells]


def _make_file(folder: Path, cell: Cell, again: bool) -> Outcome | None:
    """Make the cell's file. Return None if it exists, else the reason."""
    source = Cell(cell.architecture, cell.export, AS_EXPORTED).model_path(folder)
    target = cell.model_path(folder)
    try:
        with _preparing:
            _prepare(folder, cell.architecture)
        make_once(source, again, _EXPORT_SECONDS, make_export, folder, cell.architecture, cell.export)
    except CellError as error:
        return Outcome(cell, "not exported", str(error))
    try:
        make_once(target, again, _TRANSFORM_SECONDS, transform_model, cell.transform, source, target)
    except CellError as error:
        return Outcome(cell, "not transformed", str(error))
    return None


def _run_together(folder: Path, cells: Sequence[Cell]) -> list[Outcome]:
    try:
        outcomes = call_isolated(run_cells, folder, cells, seconds=_RECONCILE_SECONDS * len(cells))
    except CellError:  # one of them crashes, or takes too long: find it
        return [_run_alone(folder, cell) for cell in cells]
    return cast("list[Outcome]", outcomes)


def _run_alone(folder: Path, cell: Cell) -> Outcome:
    try:
        (outcome,) = call_isolated(run_cells, folder, [cell], seconds=_RECONCILE_SECONDS)
    except CellError as error:
        return Outcome(cell, "failed", str(error))
    return cast("Outcome", outcome)


def _prepare(folder: Path, architecture: str) -> None:
    """Write the architecture's config and checkpoint; first delete files that were made from another config."""
    home = folder / architecture
    if not is_prepared(folder, architecture):
        shutil.rmtree(home, ignore_errors=True)
        call_isolated(prepare_architecture, folder, architecture, seconds=_EXPORT_SECONDS)


def run_cells(folder: Path, cells: Sequence[Cell]) -> list[Outcome]:
    """Reconcile cells whose files exist; whole contents are compared."""
    return [_run(folder, cell) for cell in cells]


def _run(folder: Path, cell: Cell) -> Outcome:
    try:
        return _reconcile(folder, cell)
    except Exception as error:  # noqa: BLE001  any error is this cell's outcome
        return Outcome(cell, "failed", first_line(error))


def _reconcile(folder: Path, cell: Cell) -> Outcome:
    from analyzer import Original, audit_model, load_manifest
    from analyzer.verify.originals import reconcile_original, settle_original

    start = time.perf_counter()
    refresh_manifest(folder, cell.architecture, cell.export)
    ledger = audit_model(cell.model_path(folder))
    original = Original(load_manifest(cell.manifest_path(folder)))
    account = reconcile_original(ledger, original, "full")
    result = settle_original(account, original)
    residue = residue_of(result)
    return Outcome(
        cell,
        "balanced" if result.balanced else "residue",
        residue=residue,
        checkpoint_residue=against_checkpoint(ledger, folder / cell.architecture / WEIGHTS),
        recovered=recover(account, cell, folder / cell.architecture / WEIGHTS),
        alone=ledger.parameters,
        pytorch=result.manifest.numel,
        seconds=time.perf_counter() - start,
    )


def against_checkpoint(ledger: Ledger, checkpoint: Path) -> tuple[Residue, ...]:
    """Return the residue against the checkpoint, read as the class that the `config.json` beside it names."""
    from analyzer.verify.originals import judge_original

    try:
        original = _read_checkpoint(checkpoint)
        result = judge_original(ledger, original, "full")
    except Exception as error:  # noqa: BLE001  the manifest's result holds, whatever fails here
        return (Residue("failed", 0, 0, (first_line(error),)),)
    return residue_of(result)


@functools.cache
def _read_checkpoint(path: Path) -> Original:
    from exporter import census_source

    return census_source(str(path))


def recover(result: Reconciliation, cell: Cell, checkpoint: Path) -> Recovered | None:
    """Compare the recovered state dict with the checkpoint; None after transforms or folding that change values."""
    if cell.transform not in KEEPS_VALUES or cell.architecture in WITH_BATCHNORM:
        return None
    check = check_recovery(result, checkpoint)
    if check.wrong:
        return "wrong"
    return "whole" if check.is_whole and not check.near else "in part"


def unlike_another_seed(folder: Path, cell: Cell) -> float:
    """Return the share of parameters that the file lacks, compared with the same architecture with other weights.

    The share must be nearly one: a file must balance by its values.
    """
    from analyzer import audit_model, reconcile_ledger
    from exporter import census_source

    config = folder / cell.architecture / CONFIG
    other = census_source(str(config), random_weights=True, seed=1)
    result = reconcile_ledger(
        audit_model(cell.model_path(folder)), other.manifest, "full", weights=other.weights
    )
    absent = sum(row.elements for row in result.bridge if row.line in ("differing", "missing"))
    return absent / result.manifest.numel


def residue_of(result: Reconciliation) -> tuple[Residue, ...]:
    """Return the lines that must be empty and are not."""
    from analyzer.model import label
    from analyzer.reconciliation import UNBALANCED

    names: dict[str, list[str]] = {line: [] for line in UNBALANCED}
    for parameter in result.parameters:
        if parameter.line in names:
            names[parameter.line].append(parameter.name)
    for entry in result.entries:
        if entry.line in names:
            names[entry.line].append(label(entry.key))
    return tuple(
        Residue(row.line.value, row.tensors, row.elements, tuple(dict.fromkeys(names[row.line])))
        for row in result.bridge
        if row.line in UNBALANCED and row.tensors
    )
