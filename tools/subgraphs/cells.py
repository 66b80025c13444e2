"""One cell, an architecture in a form, with names or without -> its files, made once and kept, and its score."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

from tools.matrix.exports import CONFIG, make_export
from tools.matrix.isolated import CellError, call_isolated, first_line
from tools.matrix.transforms import AS_EXPORTED
from tools.subgraphs.anonymize import strip_names
from tools.subgraphs.architectures import ARCHITECTURES, uses_of
from tools.subgraphs.forms import FORMS, NAMED, NAMELESS, write_form
from tools.subgraphs.score import Score, score_blocks
from tools.subgraphs.truth import find_truth, from_source, load_truth, save_truth

__all__ = ["Cell", "Outcome", "cells_of", "make_and_score", "make_form", "score_cell"]

Status = Literal["scored", "failed", "not made"]

_MODEL = "model.onnx"
_EXPORT_SECONDS, _TRANSFORM_SECONDS, _TRUTH_SECONDS = 900, 900, 300


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """One file: an architecture in a form, with its names or without."""

    architecture: str
    form: str
    naming: str = NAMED

    @property
    def name(self) -> str:
        return f"{self.architecture}/{self.form}/{self.naming}"

    def home(self, folder: Path) -> Path:
        return folder / self.architecture / FORMS[self.form][0]

    def path(self, folder: Path, suffix: str = "") -> Path:
        """Return the path of the named file; with a suffix, of a file beside it."""
        transform = FORMS[self.form][1]
        stem = "model" if transform == AS_EXPORTED else transform
        return self.home(folder) / f"{stem}{suffix or '.onnx'}"

    def scored_path(self, folder: Path) -> Path:
        return self.path(folder, ".nameless.onnx" if self.naming == NAMELESS else "")


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of making and scoring a cell."""

    cell: Cell
    status: Status
    reason: str = ""
    """Reason why the file does not exist, or why finding blocks failed."""
    score: Score | None = None
    seconds: float = 0.0
    """Processor time for finding the blocks alone."""


def cells_of(patterns: tuple[str, ...] = ()) -> tuple[Cell, ...]:
    """Return the cells whose names match any of the patterns, all without patterns.

    >>> [cell.name for cell in cells_of(("bert/int8",))]
    ['bert/int8/named', 'bert/int8/nameless']
    """
    everything = (
        Cell(a, form, naming) for a in ARCHITECTURES for form in FORMS for naming in (NAMED, NAMELESS)
    )
    return tuple(
        cell
        for cell in everything
        if not patterns
        or any(fnmatchcase(cell.name, p) or fnmatchcase(cell.name, f"{p}/*") for p in patterns)
    )


def make_and_score(
    folder: Path, cell: Cell, configs: Mapping[str, Mapping[str, Any]] = ARCHITECTURES, *, again: bool = False
) -> Outcome:
    """Make the missing files of the cell in `folder`, and compare its blocks with its layers; this raises nothing.

    A failure to make a file is kept beside the files, and the file is not tried again unless `again`.
    """
    try:
        make_form(folder, cell, configs[cell.architecture], again=again)
    except CellError as error:
        return Outcome(cell, "not made", str(error))
    return score_cell(folder, cell)


def make_form(folder: Path, cell: Cell, config: Mapping[str, Any], *, again: bool = False) -> None:
    """Make the cell's file, its truth, and the nameless file beside it.

    Raises:
        CellError: one of them cannot be made.
    """
    _prepare(folder / cell.architecture, config)
    export, transform = FORMS[cell.form]
    source = cell.home(folder) / _MODEL
    target = cell.path(folder)
    nameless = cell.path(folder, ".nameless.onnx")
    _make(source, (), again, _EXPORT_SECONDS, make_export, folder, cell.architecture, export)
    _make(target, (source,), again, _TRANSFORM_SECONDS, write_form, transform, source, target)
    for model in dict.fromkeys((source, target)):
        truth = model.with_suffix(".truth.json")
        older = (model, *_code("truth"))
        _make(truth, older, again, _TRUTH_SECONDS, write_truth, model, truth, uses_of(config))
    _make(nameless, (target, *_code("anonymize")), again, _TRUTH_SECONDS, strip_names, target, nameless)


def _code(module: str) -> tuple[Path, ...]:
    return (Path(__file__).with_name(f"{module}.py"),)


def _prepare(home: Path, config: Mapping[str, Any]) -> None:
    """Write the architecture's config; first delete files that were made from another config."""
    text = json.dumps(config, indent=2) + "\n"
    path = home / CONFIG
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        path.write_text(text, encoding="utf-8")


def _make(
    target: Path, older: Sequence[Path], again: bool, seconds: float, make: Callable[..., None], *args: Any
) -> None:
    """Call `make` in a separate process, unless `target` is newer than `older`, or known to be impossible.

    Raises:
        CellError: the target cannot be made.
    """
    failure_path = target.with_suffix(".failed.txt")
    newest = max((path.stat().st_mtime_ns for path in older), default=0)
    if target.exists() and target.stat().st_mtime_ns >= newest:
        return
    if failure_path.exists() and not again and failure_path.stat().st_mtime_ns >= newest:
        raise CellError(failure_path.read_text(encoding="utf-8"))
    try:
        call_isolated(make, *args, seconds=seconds)
    except CellError as error:
        target.parent.mkdir(parents=True, exist_ok=True)
        failure_path.write_text(str(error), encoding="utf-8")
        raise
    failure_path.unlink(missing_ok=True)


def write_truth(model: Path, target: Path, uses: int) -> None:
    """Write the truth of a named file whose manifest is beside it."""
    from analyzer import audit_model, load_manifest, reconcile_ledger

    ledger = audit_model(model)
    truth = find_truth(
        reconcile_ledger(ledger, load_manifest(model.with_name("manifest.json")), "full"), uses
    )
    if truth.unplaced and model.name != _MODEL:
        source = model.with_name(_MODEL)
        truth = from_source(truth, ledger, load_truth(source.with_suffix(".truth.json")), audit_model(source))
    save_truth(truth, target)


def score_cell(folder: Path, cell: Cell) -> Outcome:
    """Find the blocks of a cell whose files exist, and compare them with its layers."""
    from analyzer import audit_model
    from analyzer.account.blocks import find_blocks

    truth = load_truth(cell.path(folder, ".truth.json"))
    try:
        ledger = audit_model(cell.scored_path(folder))
        start = time.process_time()
        blocks = find_blocks(ledger)
        seconds = time.process_time() - start
        return Outcome(cell, "scored", score=score_blocks(ledger, blocks, truth), seconds=seconds)
    except Exception as error:  # noqa: BLE001  any error is this cell's outcome
        return Outcome(cell, "failed", first_line(error))
