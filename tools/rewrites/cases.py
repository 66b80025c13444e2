"""Rewrite x honest file -> one case: whether it computes the same, and whether it still balances."""

from __future__ import annotations

import shutil
import tempfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tools.matrix.isolated import first_line
from tools.rewrites.rewriting import REWRITES
from tools.suite.apart import map_isolated
from tools.suite.bases import Base
from tools.suite.judging import Judge, Judgement
from tools.suite.running import Runner, distance, open_base
from tools.suite.surgery import NoPlaceError, Seen, Surgery

__all__ = ["Case", "run_cases", "run_isolated"]

Status = Literal["balanced", "red", "failed", "computes otherwise", "no place", "does not run"]


@dataclass(frozen=True, slots=True)
class Case:
    """Result of one rewritten file."""

    base: Base
    rewrite: str
    status: Status
    reason: str = ""
    """Reason why it is no case; or the lines that do not balance."""
    change: float = 0.0
    judgement: Judgement | None = None

    @property
    def name(self) -> str:
        return f"{self.base.name}/{self.rewrite}"

    @property
    def counts(self) -> bool:
        return self.status in ("balanced", "red", "failed")


def run_isolated(folder: Path, base: Base, rewrites: Sequence[str], seed: int) -> list[Case]:
    """Do the same as `run_cases` in a separate process; a crash costs one case."""
    return map_isolated(
        run_cases,
        rewrites,
        folder,
        base,
        seed,
        killed=lambda name, why: Case(base, name, "does not run", why),
    )


def run_cases(rewrites: Sequence[str], folder: Path, base: Base, seed: int) -> list[Case]:
    """Rewrite one honest file in these ways, each time from the start."""
    model, runner, seen = open_base(folder, base)
    before = runner.run(model)
    judge, honest = Judge.of(base, folder)
    if not honest.balanced:
        return [Case(base, name, "no place", "the honest file does not balance") for name in rewrites]
    cases = []
    for name in rewrites:
        place = Path(tempfile.mkdtemp(prefix="rewrite-"))
        try:
            cases.append(_run(model, runner, seen, before, judge, place, base, name, seed))
        finally:
            shutil.rmtree(place, ignore_errors=True)
    return cases


def _run(
    model: Any,
    runner: Runner,
    seen: dict[str, Seen],
    before: Any,
    judge: Judge,
    place: Path,
    base: Base,
    name: str,
    seed: int,
) -> Case:
    import numpy as np
    import onnx

    rewrite = REWRITES[name]
    random = np.random.default_rng([seed, zlib.crc32(f"{base.name}/{name}".encode())])
    surgery = Surgery(onnx.ModelProto.FromString(model.SerializeToString()), seen, random)
    try:
        path = _written(
            rewrite.make(surgery, place), surgery, place, keeps_order="order" in name or "late" in name
        )
    except NoPlaceError as error:
        return Case(base, name, "no place", str(error))
    except Exception as error:  # noqa: BLE001  a defect of the rewrite itself or of a tool, to be seen in the table
        return Case(base, name, "does not run", f"rewriting: {first_line(error)}")
    try:
        change = distance(before, runner.run(onnx.load(path)))
    except Exception as error:  # noqa: BLE001  any error of onnxruntime
        return Case(base, name, "does not run", first_line(error))
    if change > rewrite.tolerance:
        return Case(base, name, "computes otherwise", change=change)
    try:
        judgement = judge(path)
    except Exception as error:  # noqa: BLE001  any error of the analyzer is this case's outcome
        return Case(base, name, "failed", first_line(error), change)
    if judgement.balanced:
        return Case(base, name, "balanced", "", change, judgement)
    reasons = {side: result.reason() for side, result in judgement.sides.items() if not result.balanced}
    if len(set(reasons.values())) == 1 and len(reasons) == len(judgement.sides):
        reason = next(iter(reasons.values()))
    else:
        reason = "; ".join(f"{side}: {text}" for side, text in reasons.items())
    return Case(base, name, "red", reason, change, judgement)


def _written(made: Any, surgery: Surgery, place: Path, *, keeps_order: bool) -> Path:
    """Return the file of a rewrite that changed the model in place, made another, or wrote one itself."""
    import onnx

    if isinstance(made, Path):
        return made
    if made is None:
        made = surgery.model if keeps_order else surgery.finish()
    path = place / "model.onnx"
    onnx.save(made, path)
    return path
