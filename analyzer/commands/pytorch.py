"""SOURCE on the command line -> PyTorch's side of a comparison: what several commands do first."""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from analyzer.commands.help import complete_from
from analyzer.commands.options import Grouped, Sourced
from analyzer.commands.run import Run, group_ledger
from analyzer.commands.terminal import say
from analyzer.errors import MissingExtraError, UsageError
from analyzer.text import printable

if TYPE_CHECKING:  # what `--help` does not need
    from analyzer.account.ledger import Ledger
    from analyzer.checkpoints import Original
    from analyzer.model.content import ContentMode
    from analyzer.reconciliation import Reconciliation
    from analyzer.reports import ReconcileReport


def _list_presets() -> list[str]:
    from exporter.presets import preset_names

    return list(preset_names())


complete_presets = complete_from(_list_presets, files=True)
"""What a shell completes of a SOURCE: files, and the models that ship as presets."""


def read_original(source: str, sourced: Sourced, run: Run, *, random_weights: bool, seed: int) -> Original:
    """PyTorch's side: a manifest needs no PyTorch, nor do the names in a safetensors file; any other SOURCE does."""
    from analyzer.checkpoints import Original
    from analyzer.checkpoints.checkpoint import checkpoint_kind, lacks_class, open_checkpoint
    from analyzer.checkpoints.statedict import because
    from analyzer.manifest import is_manifest, load_manifest

    path, told = _manifest_of(Path(source)), run.tell
    kind = checkpoint_kind(path)
    if kind is None and path.is_file() and is_manifest(path):
        if random_weights:
            raise UsageError(
                f"--random-weights: {source} describes weights; name a config, preset or factory with --against"
            )
        return Original(load_manifest(path))
    needs_class = kind is None or kind.is_pickle or random_weights or sourced.model_class is not None
    reason = None if needs_class else lacks_class(path)
    if reason is not None:
        original = because(open_checkpoint(path), path, reason)
    else:
        exporter = import_exporter("a SOURCE that is neither a manifest.json nor a .safetensors file")
        made = {"random_weights": random_weights, "seed": seed, **dataclasses.asdict(sourced)}
        original = cast("Original", exporter.census_source(source, say=told, **made))
    for note in original.notes:
        told(note)
    return original


def _manifest_of(path: Path) -> Path:
    """The manifest in a folder that has one, and no config from which the model itself could be made."""
    from analyzer.checkpoints.checkpoint import CONFIG_FILE
    from analyzer.manifest import MANIFEST_FILE

    found = path / MANIFEST_FILE
    return found if found.is_file() and not (path / CONFIG_FILE).is_file() else path


def manifest_at(source: str) -> Path | None:
    """The manifest that a SOURCE is, or has; None where it has none."""
    from analyzer.manifest import MANIFEST_FILE, is_manifest

    found = Path(source) / MANIFEST_FILE if Path(source, MANIFEST_FILE).is_file() else Path(source)
    return found if found.is_file() and is_manifest(found) else None


def refuse_code_of_others(source: str, manifest: Path) -> None:
    """Refuse to import what only a manifest names, unless it is the user's own code: data may not choose what runs.

    Own is what lies in the working folder, or on PYTHONPATH, and not in the manifest's folder, as a download would.

    Raises:
        UsageError: it is none.
    """
    from importlib.machinery import PathFinder

    package = source.partition(":")[0].partition(".")[0]
    own = [str(Path.cwd()), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    spec = None if package in sys.stdlib_module_names else PathFinder.find_spec(package, own)
    places = [] if spec is None else [spec.origin, *(spec.submodule_search_locations or ())]
    found = [Path(place).resolve() for place in places if place is not None]
    folder = manifest.resolve().parent
    if not found or any(place.is_relative_to(folder) for place in found):
        raise UsageError(
            f"{manifest}: names {printable(source)}, Python code that would be run; if you trust it, say "
            f"--against {printable(source)}, or --trust-remote-code"
        )


def find_beside(model: str) -> str | None:
    """PyTorch's side where `export` and others put it; None where it is not there, or the model is remote."""
    from analyzer.checkpoints.checkpoint import CONFIG_FILE
    from analyzer.manifest import MANIFEST_FILE
    from analyzer.model.ranges import is_url

    folder = Path(model) if Path(model).is_dir() else Path(model).parent
    beside = [folder / name for name in (MANIFEST_FILE, CONFIG_FILE)] if not is_url(model) else []
    return next((str(path) for path in beside if path.is_file()), None)


def check_there(model: str) -> None:
    """Refuse a model that is not there, before anything is built to hold it against.

    Raises:
        ModelReadError: as said.
    """
    from analyzer.model.ranges import is_url
    from analyzer.read.source import LocalFile

    if not is_url(model) and not os.path.exists(model):  # noqa: PTH110  of any text, without an error
        LocalFile.at(Path(model))


def require_beside(model: str) -> str:
    """The same, where it has to be there.

    Raises:
        UsageError: it is not.
    """
    from analyzer.model.ranges import is_url

    if is_url(model):
        raise UsageError(f"{model}: name PyTorch's side of a remote model with --against SOURCE")
    found = find_beside(model)
    if found is not None:
        return found
    where = "in it" if Path(model).is_dir() else "beside it"
    raise UsageError(
        f"{model}: neither manifest.json nor config.json is {where}; "
        "name PyTorch's side with --against SOURCE, such as weights.pt or module:factory"
    )


def read_names(source: str | None, sourced: Sourced, run: Run, *, is_asked: bool) -> Original | None:
    """PyTorch's side for `recover`, which can do without: None where nobody named it, or nothing here can read it."""
    if source is None:
        return None
    try:
        return read_original(source, sourced, run, random_weights=False, seed=0)
    except MissingExtraError as error:
        if is_asked:
            raise
        say(f"{source}: not used, names come from the model file itself: {error}")
        return None


def files_of(source: str | None) -> list[Path]:
    """The files that a SOURCE stands for, as far as they are checkpoints on this machine."""
    from analyzer.checkpoints.checkpoint import checkpoint_files

    if source is None:
        return []
    path = Path(source)
    return [path, *(path.glob("*.safetensors") if path.is_dir() else checkpoint_files(path))]


def import_exporter(purpose: str) -> Any:
    """The package that imports torch.

    Raises:
        MissingExtraError: torch or what else it needs is not installed.
        UsageError: another package called `exporter` stands before it.
    """
    check_exporter()
    try:
        import exporter
        import exporter.export
    except ModuleNotFoundError as error:
        raise MissingExtraError("export", error.name or "torch", purpose) from error
    return exporter


def check_exporter() -> None:
    """Find out that Python takes another package for our `exporter`, as one of the user's in the working folder.

    Raises:
        UsageError: it does.
    """
    import importlib.util

    import analyzer

    ours = Path(analyzer.__file__).parent.with_name("exporter")
    spec = importlib.util.find_spec("exporter")
    places = [] if spec is None else [spec.origin, *(spec.submodule_search_locations or ())]
    found = next((Path(place) for place in places if place is not None), None)
    if found is not None and found not in (ours, ours / "__init__.py"):
        raise UsageError(
            f"{found}: this package called `exporter` hides onnxledger's own, {ours}; "
            "rename yours, or run onnxledger where Python does not find it first"
        )


def reconcile_with(
    ledger: Ledger, original: Original, content: ContentMode | None, run: Run
) -> Reconciliation:
    """The reconciliation of a ledger, with a bar while contents are read.

    Where something is left that nothing explains, and PyTorch's class is at hand, its program is traced and asked.
    """
    from analyzer.reconciliation import reconcile_ledger

    with run.progress("comparing contents") as tick:
        result = reconcile_ledger(ledger, original.manifest, content, weights=original.weights, progress=tick)
    if result.balanced or original.trace is None or result.content == "none":
        return result
    run.tell("tracing PyTorch's program")
    manifest = original.trace(original.manifest, ledger.model.fixed_inputs, ledger.model.salt)
    for note in () if manifest.program is None else manifest.program.notes:
        run.tell(f"PyTorch's program: {note}")
    if manifest.trace is None and (manifest.program is None or not manifest.program.values):
        return result
    with run.progress("comparing contents") as tick:
        return reconcile_ledger(ledger, manifest, content, weights=original.weights, progress=tick)


def settle_with(result: Reconciliation, original: Original, run: Run) -> Reconciliation:
    """The reconciliation, with what PyTorch's program has to say.

    A manifest has it, or not. A class is traced where of some parameter nobody knows whether it is read in its place,
    where something is computed of one before it is stored or used, or where a layer computes otherwise than others.
    """
    from analyzer.reconciliation import reconcile_ledger
    from analyzer.verify.proved import may_be_held, settle_by_program

    ledger = result.ledger
    is_computed = any(piece.computed for parameter in result.parameters for piece in parameter.pieces)
    is_odd = any(finding.id in ("changed-alike", "odd-layer") for finding in result.findings)
    is_open = result.balanced and (is_computed or is_odd or result.checked_places < len(result.parameters))
    if original.trace is not None and is_open and not result.manifest.calls and may_be_held(result):
        run.tell("tracing PyTorch's program")
        manifest = original.trace(result.manifest, ledger.model.fixed_inputs, ledger.model.salt)
        if manifest.calls:
            with run.progress("comparing contents") as tick:
                result = reconcile_ledger(
                    ledger, manifest, result.content, weights=original.weights, progress=tick
                )
    return settle_by_program(result, original.weights)


def report_reconciliation(result: Reconciliation, grouped: Grouped, stamp: str | None) -> ReconcileReport:
    """The report, with the subgraphs in PyTorch's terms."""
    from analyzer.reports import ReconcileReport

    groups = group_ledger(result.in_pytorch_terms(), grouped, result.trainability)
    return ReconcileReport(result, groups, stamp)
