"""Fault x honest file -> one case: whether outputs change, and the report of `verify`."""

from __future__ import annotations

import copy
import shutil
import tempfile
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from tools.faults.causes import is_named
from tools.faults.quantizing import FAULTS, GROUP
from tools.faults.truth import find_modules, is_right
from tools.matrix.isolated import first_line
from tools.suite.apart import map_isolated
from tools.suite.bases import Base
from tools.suite.running import Runner, distance, open_base
from tools.suite.surgery import NoPlaceError, Seen, Surgery

Status = Literal[
    "detected", "silent", "unknown", "same", "alarm", "unchanged", "no place", "does not run", "failed"
]
CLEAN = "clean"
"""Name of the case without a fault."""
CHANGED = 1e-4
"""Smallest change that counts, relative to the largest output: smaller changes are rounding."""
_SECONDS = 300.0
_EACH = 40.0
"""Seconds for each case, after which the process is killed."""


@dataclass(frozen=True, slots=True)
class Case:
    """Result of one file."""

    base: Base
    kind: str
    status: Status
    reason: str = ""
    change: float = 0.0
    module: str = ""
    """Module that the report names."""
    modules: tuple[str, ...] = ()
    """Modules that have the fault."""
    is_placed: bool = False
    is_explained: bool = False
    seconds: float = 0.0

    @property
    def name(self) -> str:
        return f"{self.base.name}/{self.kind}"


def run_isolated(
    folder: Path,
    base: Base,
    kinds: Sequence[str],
    seed: int,
    judge: Callable[[Path, Base], Callable[[Path], Any]] | None = None,
) -> list[Case]:
    """Do the same as `run_cases` in a separate process; a crash costs one case."""
    return map_isolated(
        partial(run_cases, judge=judge),
        kinds,
        folder,
        base,
        seed,
        killed=lambda kind, why: Case(base, kind, "failed", why),
        each=_EACH,
    )


def run_cases(
    kinds: Sequence[str],
    folder: Path,
    base: Base,
    seed: int,
    judge: Callable[[Path, Base], Callable[[Path], Any]] | None = None,
) -> list[Case]:
    """Put these faults into one honest file, each time from the start; `clean` is no fault."""
    from analyzer.account.audit import audit_model

    try:
        model, runner, seen = open_base(folder, base)
        before = runner.run(model)
    except Exception as error:  # noqa: BLE001  a tool has made a file that does not run
        return [Case(base, kind, "does not run", first_line(error)) for kind in kinds]
    ledger = audit_model(base.path(folder))
    case_judge = (judge or _Judge)(folder, base)
    place = Path(tempfile.mkdtemp(prefix="faults-"))
    path = place / "model.onnx"
    try:
        return [
            _run(model, runner, seen, before, case_judge, ledger, path, base, kind, seed) for kind in kinds
        ]
    finally:
        shutil.rmtree(place, ignore_errors=True)


class _Judge:
    """Verifies against PyTorch's module of one architecture, built once."""

    def __init__(self, folder: Path, base: Base) -> None:
        import exporter

        if base.architecture == "net":
            from tools.suite import net

            self.resolved = exporter.resolve_source(net.SOURCE, exporter.SourceOptions())
        else:
            config = base.checkpoint(folder).with_name("config.json")
            self.resolved = exporter.resolve_source(str(config), exporter.SourceOptions(random_weights=True))
        self.manifest = exporter.take_census(self.resolved.model, {}, evidence=False)
        self.weights = exporter.weights_of(self.resolved.model)

    def __call__(self, path: Path) -> Any:
        import dataclasses

        from analyzer.account.audit import audit_model
        from analyzer.process.child import Limits
        from analyzer.reconciliation import reconcile_ledger
        from analyzer.verify.against import verify_module
        from analyzer.verify.weights import known_of, load_file_weights
        from exporter.running import run_beside

        ledger = audit_model(path)
        resolved = dataclasses.replace(self.resolved, model=copy.deepcopy(self.resolved.model))
        inputs = [(value.name, value.dims or ()) for value in ledger.model.graphs[0].signature]
        side = run_beside(resolved, inputs)
        result = reconcile_ledger(ledger, self.manifest, "full", weights=self.weights)
        load_file_weights(result, side)
        return verify_module(ledger, side, "PyTorch", (0, 1, 2), Limits(_SECONDS), (), known_of(result))


class StaticJudge:
    """Verifies against the record of PyTorch's program in the manifest."""

    def __init__(self, folder: Path, base: Base) -> None:
        from analyzer.manifest import load_manifest

        self.manifest = load_manifest(base.manifest(folder))

    def __call__(self, path: Path) -> Any:
        from analyzer.account.audit import audit_model
        from analyzer.reconciliation import reconcile_ledger
        from analyzer.verify.algebra.account import account_program

        result = reconcile_ledger(audit_model(path), self.manifest)
        return account_program(result, "model.onnx", "the manifest")


class FileJudge:
    """Verifies against the export that a file was made from."""

    def __init__(self, folder: Path, base: Base) -> None:
        from analyzer.account.audit import audit_model

        self.other = audit_model(base.manifest(folder).with_name("model.onnx"))

    def __call__(self, path: Path) -> Any:
        from analyzer.account.audit import audit_model
        from analyzer.process.child import Limits
        from analyzer.verify.files import verify_files

        return verify_files(audit_model(path), self.other, limits=Limits(_SECONDS))


def _without_codes(runner: Runner, model: Any, faulty: Any, change: float) -> float:
    """Return the change of the float twins: with codes, any noise flips some code, and so moves all later values."""
    import onnx

    from analyzer.verify.twin import RefusedError, make_twin

    try:
        twins = [make_twin(onnx.ModelProto.FromString(each.SerializeToString())) for each in (model, faulty)]
    except RefusedError:
        return change
    if not any(each.activations or each.products for each in twins):
        return change
    return distance(runner.run(twins[0].model), runner.run(twins[1].model))


def _run(
    model: Any,
    runner: Runner,
    seen: Mapping[str, Seen],
    before: Any,
    judge: Callable[[Path], Any],
    ledger: Any,
    path: Path,
    base: Base,
    kind: str,
    seed: int,
) -> Case:
    import numpy as np
    import onnx

    from analyzer.errors import OnnxLedgerError

    change, modules = 0.0, frozenset[str]()
    start = time.perf_counter()
    faulty = onnx.ModelProto.FromString(model.SerializeToString())
    if kind != CLEAN:
        random = np.random.default_rng([seed, zlib.crc32(f"{base.name}/{kind}".encode())])
        surgery = Surgery(faulty, seen, random)
        try:
            FAULTS[kind].make(surgery)
            faulty = surgery.finish()
            change = distance(before, runner.run(faulty))
            if change >= CHANGED and FAULTS[kind].group != GROUP:
                change = _without_codes(runner, model, faulty, change)
        except NoPlaceError as error:
            return Case(base, kind, "no place", str(error))
        except Exception as error:  # noqa: BLE001  no one can deploy a file that onnxruntime refuses
            return Case(base, kind, "does not run", first_line(error))
        if change < CHANGED:
            return Case(base, kind, "unchanged", change=change)
        modules = find_modules(model, faulty, ledger)
    path.write_bytes(faulty.SerializeToString())
    try:
        report = judge(path)
    except OnnxLedgerError as error:  # exit 2: no answer, and no pass either
        return Case(base, kind, "unknown", f"refused: {first_line(error)}", change)
    except Exception as error:  # noqa: BLE001  a defect of the analyzer, to be seen in the table
        return Case(base, kind, "failed", f"{type(error).__name__}: {first_line(error)}", change)
    seconds = time.perf_counter() - start
    first = report.first
    reason = "" if first is None else f"{first.module}: {first.reason}"
    if kind == CLEAN:
        status: Status = "same" if report.same else "alarm" if report.is_answered else "unknown"
        return Case(base, kind, status, reason or "; ".join(report.uncovered), seconds=seconds)
    status = "silent" if report.same else "detected" if report.is_answered else "unknown"
    reported = "" if first is None or first.module is None else first.module
    kinds = tuple(each.kind for each in report.differences)
    return Case(
        base,
        kind,
        status,
        reason,
        change,
        reported,
        tuple(sorted(modules)),
        status == "detected" and is_right(reported, modules),
        status == "detected" and is_named(kind, reason, kinds),
        seconds,
    )
