"""A file and both of PyTorch's sides -> whether `reconcile` lets it pass."""

from __future__ import annotations

import functools
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.suite.bases import Base

if TYPE_CHECKING:
    from analyzer import Ledger, Reconciliation
    from analyzer.checkpoints import Original

__all__ = ["Judge", "Judgement", "Side"]


@dataclass(frozen=True, slots=True)
class Side:
    """What was said against one of PyTorch's sides."""

    balanced: bool
    lines: tuple[tuple[str, int, str], ...]
    """The lines that unbalance: line, elements, and the first names that stand there."""
    reads: str | None
    """What the wiring digest says; None where the reconciliation has none."""
    sampled: int = 0
    """PyTorch's elements of which the report says that they were compared at positions and by sums alone."""

    def reason(self) -> str:
        return "; ".join(f"{elements:,} {line}: {names}" for line, elements, names in self.lines)


@dataclass(frozen=True, slots=True)
class Judgement:
    """Against the manifest of the export, and against the checkpoint."""

    manifest: Side
    checkpoint: Side
    bare: Side | None
    """Against the checkpoint without its class; None where the honest file does not balance there either."""
    seconds: float

    @property
    def sides(self) -> dict[str, Side]:
        """By what it was held against."""
        sides = {"manifest": self.manifest, "checkpoint": self.checkpoint}
        return sides if self.bare is None else {**sides, "checkpoint alone": self.bare}

    @property
    def balanced(self) -> bool:
        """Whether it passes on every side."""
        return all(side.balanced for side in self.sides.values())

    @property
    def told(self) -> bool:
        """Whether every side refuses it."""
        return not any(side.balanced for side in self.sides.values())

    @property
    def is_told_of_all(self) -> bool:
        """Whether every side refuses it that compared all values; there is one."""
        whole = [side for side in self.sides.values() if not side.sampled]
        return bool(whole) and not any(side.balanced for side in whole)

    @property
    def differs(self) -> bool:
        """Whether the wiring digest says so against the manifest, which alone can know."""
        return self.manifest.reads == "differs"


@dataclass(frozen=True, slots=True)
class Judge:
    """Reconciles files of one architecture and export."""

    manifest: Path
    checkpoint: Path
    bare: Path | None = None

    def __call__(self, path: Path) -> Judgement:
        """Reconcile a file in process, whole contents compared.

        Raises:
            Exception: whatever the analyzer raises.
        """
        from analyzer import audit_model, load_manifest, reconcile_ledger

        start = time.perf_counter()
        ledger = audit_model(path)
        manifest = _side(reconcile_ledger(ledger, load_manifest(self.manifest), "full"))
        checkpoint = _against(ledger, self.checkpoint)
        bare = None if self.bare is None else _against(ledger, self.bare)
        return Judgement(manifest, checkpoint, bare, time.perf_counter() - start)

    @classmethod
    def of(cls, base: Base, folder: Path) -> tuple[Judge, Judgement]:
        """The judge of files like this one, and what it says of the honest file."""
        judge = cls(base.manifest(folder), base.checkpoint(folder), base.bare(folder))
        honest = judge(base.path(folder))
        if honest.bare is not None and not honest.bare.balanced:
            judge = cls(base.manifest(folder), base.checkpoint(folder))
            honest = judge(base.path(folder))
        return judge, honest


def _against(ledger: Ledger, checkpoint: Path) -> Side:
    from analyzer import reconcile_ledger

    original = _original(checkpoint)
    return _side(reconcile_ledger(ledger, original.manifest, "full", weights=original.weights))


@functools.cache
def _original(path: Path) -> Original:
    from exporter import census_source

    return census_source(str(path))


def _side(result: Reconciliation) -> Side:
    from analyzer.model import label
    from analyzer.reconciliation import UNBALANCED

    names: dict[str, list[str]] = {line: [] for line in UNBALANCED}
    for parameter in result.parameters:
        if parameter.line in names:
            names[parameter.line].append(parameter.name)
    for entry in result.entries:
        if entry.line in names:
            names[entry.line].append(label(entry.key))
    lines = tuple(
        (str(row.line.value), row.elements, ", ".join([*dict.fromkeys(names[row.line])][:3]))
        for row in result.bridge
        if row.line in UNBALANCED and row.tensors
    )
    reads: Any = getattr(result, "reads", None)
    sampled = result.compared["sampled"]
    return Side(
        result.balanced, lines, None if reads is None else str(getattr(reads, "value", reads)), sampled
    )
