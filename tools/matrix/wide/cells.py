"""Cells of one architecture -> their files, made if missing, and their outcomes; nothing is raised."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

from tools.matrix.isolated import CellError, call_isolated, make_once
from tools.matrix.wide import exports, tools
from tools.matrix.wide.account import Outcome, model_path, run_cells
from tools.matrix.wide.extras import missing
from tools.matrix.wide.plan import ARCHITECTURES, AS_EXPORTED, OWN, OWN_LEGACY, Cell

_PREPARE_SECONDS, _EXPORT_SECONDS, _TOOL_SECONDS, _ACCOUNT_SECONDS = 120, 180, 120, 120


def make_and_run(folder: Path, cells: Sequence[Cell], *, again: bool = False) -> list[Outcome]:
    """Make the missing files of one architecture's cells in `folder`, and reconcile them."""
    failures = {cell: _make_file(folder, cell, again) for cell in cells}
    made = [cell for cell in cells if failures[cell] is None]
    if made:
        _make_manifest(folder, made[0].architecture, again)
    outcomes = {outcome.cell: outcome for outcome in _run_together(folder, made)} if made else {}
    return [failures[cell] or outcomes[cell] for cell in cells]


def is_tried(folder: Path, cell: Cell) -> bool:
    """Whether the cell's file exists, or is known to be impossible."""
    exported = model_path(folder, Cell(cell.architecture, cell.export, AS_EXPORTED))
    target = model_path(folder, cell)
    return any(
        path.exists() for path in (target, *(p.with_suffix(".failed.txt") for p in (exported, target)))
    )


def _make_file(folder: Path, cell: Cell, again: bool) -> Outcome | None:
    """Make the cell's file. Return None if it exists, else the reason."""
    spec = ARCHITECTURES[cell.architecture]
    needed = (spec.library, *exports.PACKAGES.get(cell.export, ()), *tools.PACKAGES.get(cell.tool, ()))
    missing_package = missing(*needed)
    if missing_package is not None:
        return Outcome(cell, "not run", f"{missing_package} is not installed")
    home = folder / cell.architecture
    source = model_path(folder, Cell(cell.architecture, cell.export, AS_EXPORTED))
    try:
        make_once(home / "prepared", again, _PREPARE_SECONDS, exports.prepare, folder, cell.architecture)
        make_once(source, again, _EXPORT_SECONDS, exports.make_export, folder, cell.architecture, cell.export)
    except CellError as error:
        is_missing = "ModuleNotFoundError" in str(error) or "requires the " in str(error)
        return Outcome(cell, "not run" if is_missing else "not exported", str(error))
    target = model_path(folder, cell)
    try:
        make_once(target, again, _TOOL_SECONDS, tools.run_tool, cell.tool, source, target)
    except CellError as error:
        return Outcome(cell, "not rewritten", str(error))
    return None


def _make_manifest(folder: Path, architecture: str, again: bool) -> None:
    """Export with onnxledger itself, if no cell did, to get a manifest; if that fails, there is no manifest side."""
    own = [export for export in ARCHITECTURES[architecture].exports if export in (OWN, OWN_LEGACY)]
    for export in dict.fromkeys((*own, OWN, OWN_LEGACY)):
        target = model_path(folder, Cell(architecture, export, AS_EXPORTED))
        try:
            make_once(target, again, _EXPORT_SECONDS, exports.make_export, folder, architecture, export)
        except CellError:
            continue
        return


def _run_together(folder: Path, cells: Sequence[Cell]) -> list[Outcome]:
    try:
        outcomes = call_isolated(run_cells, folder, cells, seconds=_ACCOUNT_SECONDS + 30 * len(cells))
    except CellError:  # one of them crashes, or takes too long: find it
        return [_run_alone(folder, cell) for cell in cells]
    return cast("list[Outcome]", outcomes)


def _run_alone(folder: Path, cell: Cell) -> Outcome:
    try:
        (outcome,) = call_isolated(run_cells, folder, [cell], seconds=_ACCOUNT_SECONDS)
    except CellError as error:
        return Outcome(cell, "failed", str(error))
    return cast("Outcome", outcome)
