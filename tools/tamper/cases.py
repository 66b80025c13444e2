"""Kind x honest file -> one case: whether outputs change, and whether `reconcile` reports it."""

from __future__ import annotations

import shutil
import tempfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tools.matrix.isolated import first_line
from tools.suite.apart import map_isolated
from tools.suite.bases import Base
from tools.suite.judging import Judge, Judgement
from tools.suite.running import Runner, distance, open_base
from tools.suite.surgery import NoPlaceError, Seen, Surgery
from tools.tamper.catalog import KINDS

__all__ = ["CHANGED", "Case", "run_cases", "run_isolated"]

Status = Literal["detected", "silent", "unchanged", "no place", "does not run", "failed"]
CHANGED = 1e-4
"""Smallest change that counts, relative to the largest output: smaller changes are rounding."""


@dataclass(frozen=True, slots=True)
class Case:
    """Result of one tampered file."""

    base: Base
    kind: str
    status: Status
    reason: str = ""
    """Reason why it is no case; or the report of the reconciliation."""
    change: float = 0.0
    judgement: Judgement | None = None

    @property
    def name(self) -> str:
        return f"{self.base.name}/{self.kind}"

    @property
    def is_at_positions(self) -> bool:
        """Whether it passes only on sides that compared codes at positions: against a manifest alone."""
        return (
            self.status == "silent" and self.judgement is not None and self.judgement.is_refused_on_all_values
        )

    @property
    def counts(self) -> bool:
        return self.status in ("detected", "silent", "failed")


def run_isolated(folder: Path, base: Base, kinds: Sequence[str], seed: int) -> list[Case]:
    """Do the same as `run_cases` in a separate process; a crash costs one case."""
    return map_isolated(
        run_cases, kinds, folder, base, seed, killed=lambda kind, why: Case(base, kind, "does not run", why)
    )


def run_cases(kinds: Sequence[str], folder: Path, base: Base, seed: int) -> list[Case]:
    """Tamper with one honest file in these ways, each time from the start."""
    model, runner, seen = open_base(folder, base)
    before = runner.run(model)
    judge, honest = Judge.of(base, folder)
    place = Path(tempfile.mkdtemp(prefix="tamper-"))
    try:
        if not honest.balanced:
            return [Case(base, kind, "no place", "the honest file does not balance") for kind in kinds]
        return [
            _run(model, runner, seen, before, judge, place / "model.onnx", base, kind, seed) for kind in kinds
        ]
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _run(
    model: Any,
    runner: Runner,
    seen: dict[str, Seen],
    before: Any,
    judge: Judge,
    path: Path,
    base: Base,
    kind: str,
    seed: int,
) -> Case:
    import numpy as np
    import onnx

    random = np.random.default_rng([seed, zlib.crc32(f"{base.name}/{kind}".encode())])
    surgery = Surgery(onnx.ModelProto.FromString(model.SerializeToString()), seen, random)
    try:
        KINDS[kind].make(surgery)
        tampered = surgery.finish()
    except NoPlaceError as error:
        return Case(base, kind, "no place", str(error))
    except Exception as error:  # noqa: BLE001  a defect of the kind itself, to be seen in the table
        return Case(base, kind, "failed", f"tampering: {first_line(error)}")
    try:
        change = distance(before, runner.run(tampered))
    except Exception as error:  # noqa: BLE001  no one can deploy a file that onnxruntime refuses
        return Case(base, kind, "does not run", first_line(error))
    if change < CHANGED:
        return Case(base, kind, "unchanged", change=change)
    path.write_bytes(tampered.SerializeToString())
    return judge_case(base, kind, change, judge, path)


def judge_case(base: Base, kind: str, change: float, judge: Judge, path: Path) -> Case:
    from analyzer import OnnxLedgerError

    try:
        judgement = judge(path)
    except OnnxLedgerError as error:  # exit 2: no answer, and no pass either
        return Case(base, kind, "detected", f"refused: {first_line(error)}", change)
    except Exception as error:  # noqa: BLE001  a defect of the analyzer, to be seen in the table
        return Case(base, kind, "failed", first_line(error), change)
    status: Status = "detected" if judgement.is_refused else "silent"
    return Case(base, kind, status, judgement.manifest.reason(), change, judgement)
