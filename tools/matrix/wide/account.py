"""The files of one architecture -> results against each form of PyTorch's side, and of the file alone."""

from __future__ import annotations

import contextlib
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tools.matrix.wide.extras  # noqa: F401  before transformers is imported
from tools.matrix.cells import Residue, residue_of
from tools.matrix.isolated import first_line
from tools.matrix.wide.exports import (
    MANIFEST,
    MODEL,
    PRETRAINED,
    build,
    checkpoint_path,
    save_state,
    state_path,
)
from tools.matrix.wide.plan import AS_EXPORTED, OWN, OWN_LEGACY, SIDES, Cell

if TYPE_CHECKING:
    from analyzer import Ledger, Reconciliation
    from analyzer.checkpoints import Original

Status = Literal["made", "not run", "not exported", "not rewritten", "failed"]
Alone = Literal["exact", "range", "unattributed", "wrong", "unknown"]
"""Verdict on the file's own count, compared with the number of parameters that PyTorch reads.

Exact: equal. Range: the file's range includes the number. Unattributed: it does not, but the file has unattributed
entries. Wrong: it does not. Unknown: no export says which parameters are read.
"""


@dataclass(frozen=True, slots=True)
class SideOutcome:
    """Result of reconciling one file with one form of PyTorch's side."""

    side: str
    balanced: bool
    residue: tuple[Residue, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class Negative:
    """A PyTorch side that the file does not match, and whether the result was `balanced` nevertheless."""

    kind: Literal["other weights", "one made anew"]
    side: str
    changed: str
    """Parameter that was initialized anew; empty if all were."""
    balanced: bool
    error: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of making and reconciling a cell."""

    cell: Cell
    status: Status
    reason: str = ""
    """Reason why there is no file, or no result."""
    sides: tuple[SideOutcome, ...] = ()
    negatives: tuple[Negative, ...] = ()
    alone: Alone = "unknown"
    parameters: int = 0
    at_least: int = 0
    at_most: int | None = 0
    """Upper bound of the parameters; None if the file has none."""
    read: int = 0
    """Elements of PyTorch's parameters that its forward reads."""

    @property
    def is_balanced(self) -> bool:
        """Whether it balances against each side that exists."""
        return self.status == "made" and bool(self.sides) and all(side.balanced for side in self.sides)


def model_path(folder: Path, cell: Cell) -> Path:
    home = folder / cell.architecture / cell.export
    return home / (MODEL if cell.tool == AS_EXPORTED else f"{cell.tool}.onnx")


def run_cells(folder: Path, cells: Sequence[Cell]) -> list[Outcome]:
    """Reconcile cells of one architecture, whose files exist."""
    sides = _Sides(folder, cells[0].architecture)
    return [sides.run(cell) for cell in cells]


@dataclass
class _Sides:
    """PyTorch's sides of one architecture, read once."""

    folder: Path
    architecture: str
    originals: dict[Any, Original] = field(default_factory=dict)

    def run(self, cell: Cell) -> Outcome:
        from analyzer import audit_model

        try:
            ledger = audit_model(model_path(self.folder, cell))
        except Exception as error:  # noqa: BLE001  any error is this cell's outcome
            return Outcome(cell, "failed", first_line(error))
        results = {side: self._reconcile(ledger, side) for side in SIDES if self._has(side)}
        sides = tuple(_outcome(side, result) for side, result in results.items())
        matching = [r for r in results.items() if not isinstance(r[1], str) and r[1].balanced]
        negatives = tuple(self._negatives(cell, ledger, *_choose_side(cell, matching))) if matching else ()
        read = self._parameters_read()
        return Outcome(cell, "made", "", sides, negatives, *_judge_alone(ledger, read))

    def _has(self, side: str) -> bool:
        home = self.folder / self.architecture
        if side == "manifest":
            return self._manifest() is not None
        return side == "state" or checkpoint_path(home / PRETRAINED) is not None

    def _manifest(self) -> Path | None:
        home = self.folder / self.architecture
        paths = (home / export / MANIFEST for export in (OWN, OWN_LEGACY))
        return next((path for path in paths if path.is_file()), None)

    def _original(self, side: str) -> Original:
        if side not in self.originals:
            self.originals[side] = self._load(side)
        return self.originals[side]

    def _load(self, side: str) -> Original:
        from analyzer import load_manifest
        from analyzer.checkpoints import Original
        from exporter import census_source

        if side == "manifest":
            path = self._manifest()
            assert path is not None
            return Original(load_manifest(path), None)
        if side == "state":
            return census_source(str(state_path(self.folder, self.architecture)))
        return census_source(str(checkpoint_path(self.folder / self.architecture / PRETRAINED)))

    def _reconcile(self, ledger: Ledger, side: str) -> Reconciliation | str:
        """Return the result, or the first line of the error."""
        try:
            return _against(ledger, self._original(side))
        except Exception as error:  # noqa: BLE001  it is this side's outcome
            return first_line(error)

    def _parameters_read(self) -> int | None:
        if not self._has("manifest"):
            return None
        return sum(p.numel for p in self._original("manifest").manifest.parameters if p.read is not False)

    def _negatives(self, cell: Cell, ledger: Ledger, side: str, result: Reconciliation) -> Iterator[Negative]:
        if ("other", side) not in self.originals:
            with contextlib.suppress(Exception):  # reported below
                self.originals["other", side] = self._original_of(side, self._other_seed().model)
        yield _negative("other weights", side, "", lambda: _against(ledger, self.originals["other", side]))
        changed = _choose_parameter(cell, result)
        if changed is not None:
            yield _negative(
                "one made anew",
                side,
                changed,
                lambda: _against(ledger, self._with_one_reinitialized(side, changed)),
            )

    def _other_seed(self) -> Any:
        return build(self.folder, self.architecture, seed=1)

    def _with_one_reinitialized(self, side: str, name: str) -> Original:
        import torch

        model = build(self.folder, self.architecture).model
        fresh = dict(self._other_seed().model.named_parameters(remove_duplicate=False))
        with torch.no_grad():
            dict(model.named_parameters(remove_duplicate=False))[name].copy_(fresh[name])
        return self._original_of(side, model)

    def _original_of(self, side: str, model: Any) -> Original:
        """Return this form of PyTorch's side for another module."""
        from analyzer.checkpoints import Original
        from exporter import census_source, take_census, with_reads
        from exporter.reads import Reads

        with tempfile.TemporaryDirectory() as folder:
            if side == "state":
                path = Path(folder) / state_path(self.folder, self.architecture).name
                save_state(model, path)
                return _in_memory(census_source(str(path)))
            if side == "config":
                model.save_pretrained(folder)
                return _in_memory(census_source(str(checkpoint_path(Path(folder)))))
        manifest = self._original("manifest").manifest
        fresh = take_census(model, manifest.source)
        known = [t.read is not None for t in manifest.buffers]
        reads = Reads(
            parameters=frozenset(t.name for t in manifest.parameters if t.read is not False),
            buffers=frozenset(t.name for t in manifest.buffers if t.read is not False)
            if any(known)
            else None,
            trace=manifest.trace,
        )
        return Original(with_reads(fresh, reads), None)


def _in_memory(original: Original) -> Original:
    """Read all values now, because their file will be deleted before they are used."""
    import dataclasses

    weights = original.weights
    if weights is None:
        return original
    names = [name for tensor in original.manifest.tensors for name in tensor.names]
    return dataclasses.replace(
        original, weights=_MemoryWeights({name: weights.array(name) for name in names})
    )


@dataclass(frozen=True, slots=True)
class _MemoryWeights:
    arrays: dict[str, Any]

    def array(self, name: str) -> Any:
        return self.arrays.get(name)


def _against(ledger: Ledger, original: Original) -> Reconciliation:
    """Reconcile as the command does."""
    from analyzer.verify.originals import judge_original

    return judge_original(ledger, original, "full")


def _outcome(side: str, result: Reconciliation | str) -> SideOutcome:
    if isinstance(result, str):
        return SideOutcome(side, balanced=False, error=result)
    return SideOutcome(side, result.balanced, residue_of(result))


def _choose_side(cell: Cell, matching: Sequence[tuple[str, Any]]) -> tuple[str, Any]:
    """Choose one of the sides that balance, determined by the cell's name."""
    return random.Random(cell.name).choice(matching)


def _choose_parameter(cell: Cell, result: Reconciliation) -> str | None:
    """Choose a parameter that the file holds, determined by the cell's name."""
    sizes = {parameter.name: parameter.numel for parameter in result.manifest.parameters}
    stored = [p.name for p in result.parameters if p.line not in ("unused", "outside") and sizes[p.name]]
    return random.Random(f"{cell.name} anew").choice(stored) if stored else None


def _negative(kind: Any, side: str, changed: str, reconcile: Callable[[], Any]) -> Negative:
    try:
        return Negative(kind, side, changed, reconcile().balanced)
    except Exception as error:  # noqa: BLE001  it is not `balanced`, and the error is reported
        return Negative(kind, side, changed, balanced=False, error=first_line(error))


def _judge_alone(ledger: Ledger, read: int | None) -> tuple[Alone, int, int, int | None, int]:
    least, most = ledger.parameters_at_least, ledger.parameters_at_most
    counts = (ledger.parameters, least, most, read or 0)
    if read is None:
        return ("unknown", *counts)
    if ledger.parameters == read:
        return ("exact", *counts)
    if least <= read and (most is None or read <= most):
        return ("range", *counts)
    unattributed = any(entry.role == "unattributed" for entry in ledger.entries)
    return ("unattributed" if unattributed else "wrong", *counts)
