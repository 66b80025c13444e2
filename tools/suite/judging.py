"""A file, its manifest and its checkpoint -> whether `reconcile` lets the file pass."""

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
    """Result of reconciling with a manifest or a checkpoint."""

    balanced: bool
    lines: tuple[tuple[str, int, str], ...]
    """Bridge lines that unbalance: line, elements, and the first names on it."""
    reads: str | None
    """Comparison of the wiring digests; None if the reconciliation has none."""
    sampled: int = 0
    """PyTorch's elements that were compared only at sampled positions and by sums, according to the report."""

    def reason(self) -> str:
        return "; ".join(f"{elements:,} {line}: {names}" for line, elements, names in self.lines)


@dataclass(frozen=True, slots=True)
class Judgement:
    """Results against the manifest of the export, and against the checkpoint."""

    manifest: Side
    checkpoint: Side
    bare: Side | None
    """Result against the checkpoint without its class; None if the honest file does not balance there either."""
    seconds: float

    @property
    def sides(self) -> dict[str, Side]:
        """Results by the name of the PyTorch side."""
        sides = {"manifest": self.manifest, "checkpoint": self.checkpoint}
        return sides if self.bare is None else {**sides, "checkpoint alone": self.bare}

    @property
    def balanced(self) -> bool:
        """Whether it passes on every side."""
        return all(side.balanced for side in self.sides.values())

    @property
    def is_refused(self) -> bool:
        """Whether every side refuses it."""
        return not any(side.balanced for side in self.sides.values())

    @property
    def is_refused_on_all_values(self) -> bool:
        """Whether every side that compared all values refuses it, and there is one."""
        whole = [side for side in self.sides.values() if not side.sampled]
        return bool(whole) and not any(side.balanced for side in whole)

    @property
    def differs(self) -> bool:
        """Whether the wiring digest differs from the manifest's; no other side has a digest."""
        return self.manifest.reads == "differs"


@dataclass(frozen=True, slots=True)
class Judge:
    """Reconciles files of one architecture and export."""

    manifest: Path
    checkpoint: Path
    bare: Path | None = None

    def __call__(self, path: Path) -> Judgement:
        """Reconcile a file in this process; whole contents are compared.

        Raises:
            Exception: any error of the analyzer.
        """
        from analyzer import Original, audit_model, load_manifest
        from analyzer.verify.originals import judge_original

        start = time.perf_counter()
        ledger = audit_model(path)
        manifest = _side(judge_original(ledger, Original(load_manifest(self.manifest)), "full"))
        checkpoint = _against(ledger, self.checkpoint)
        bare = None if self.bare is None else _against(ledger, self.bare)
        return Judgement(manifest, checkpoint, bare, time.perf_counter() - start)

    @classmethod
    def of(cls, base: Base, folder: Path) -> tuple[Judge, Judgement]:
        """Return the judge of files like this one, and its judgement of the honest file."""
        judge = cls(base.manifest(folder), base.checkpoint(folder), base.bare(folder))
        honest = judge(base.path(folder))
        if honest.bare is not None and not honest.bare.balanced:
            judge = cls(base.manifest(folder), base.checkpoint(folder))
            honest = judge(base.path(folder))
        return judge, honest


def _against(ledger: Ledger, checkpoint: Path) -> Side:
    from analyzer.verify.originals import judge_original

    return _side(judge_original(ledger, _original(checkpoint), "full"))


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
