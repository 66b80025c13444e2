"""SOURCE on the command line -> PyTorch's side of a comparison, for several commands."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from analyzer.commands.help import complete_from
from analyzer.commands.options import GroupOptions, SourceOptions
from analyzer.commands.run import Run, group_ledger
from analyzer.commands.terminal import print_message
from analyzer.errors import MissingExtraError, UsageError
from analyzer.text import printable

if TYPE_CHECKING:  # `--help` does not need these
    from analyzer.checkpoints import Original
    from analyzer.reconciliation import Reconciliation
    from analyzer.reports import ReconcileReport


def _list_presets() -> list[str]:
    from exporter.presets import preset_names

    return list(preset_names())


complete_presets = complete_from(_list_presets, files=True)
"""Shell completion of a SOURCE: files, and names of presets."""


def read_original(
    source: str,
    sourced: SourceOptions,
    run: Run,
    *,
    random_weights: bool,
    seed: int,
    parts: Sequence[str] = (),
) -> Original:
    """Return PyTorch's side; a manifest and the names in a safetensors file need no PyTorch, any other SOURCE does.

    With `parts` it is that of these modules, or of one of several state dicts in a file of torch.save.
    """
    from analyzer.checkpoints import Original
    from analyzer.checkpoints.checkpoint import checkpoint_kind, lacks_class, open_checkpoint
    from analyzer.checkpoints.part import take_parts
    from analyzer.checkpoints.statedict import add_reason
    from analyzer.manifest import is_manifest, load_manifest

    is_built = random_weights or sourced.model_class is not None
    path, notify = Path(source) if is_built else _manifest_of(Path(source)), run.notify
    kind = checkpoint_kind(path)
    if kind is None and path.is_file() and is_manifest(path):
        if random_weights:
            raise UsageError(
                f"--random-weights: {source} describes weights; name a config, preset or factory with --against"
            )
        return take_parts(Original(load_manifest(path)), parts)
    needs_class = kind is None or kind.is_pickle or is_built
    reason = None if needs_class else lacks_class(path)
    if reason is not None:
        original = take_parts(add_reason(open_checkpoint(path), path, reason), parts)
    else:
        exporter = import_exporter("a SOURCE that is neither a manifest.json nor a .safetensors file")
        options = {
            "random_weights": random_weights,
            "seed": seed,
            "parts": parts,
            **dataclasses.asdict(sourced),
        }
        original = cast("Original", exporter.census_source(source, say=notify, **options))
    for note in original.notes:
        notify(note)
    return original


def _manifest_of(path: Path) -> Path:
    """Return the manifest in a folder without a checkpoint; else the path itself.

    A manifest has digests of the weights and PyTorch's program, and the config beside it has neither.
    """
    from analyzer.checkpoints.checkpoint import checkpoint_kind

    found = manifest_at(str(path))
    if found is None or found == path:
        return path
    has_checkpoint = any(checkpoint_kind(file) is not None for file in path.iterdir() if file != found)
    return path if has_checkpoint else found


def manifest_at(source: str) -> Path | None:
    """Return the manifest that a SOURCE is, or that its folder has; None if there is none."""
    from analyzer.manifest import MANIFEST_FILE, is_manifest

    found = Path(source) / MANIFEST_FILE if Path(source, MANIFEST_FILE).is_file() else Path(source)
    return found if found.is_file() and is_manifest(found) else None


def refuse_code_of_others(source: str, manifest: Path) -> None:
    """Refuse to import a module that only a manifest names, unless it is the user's own: data may not choose what runs.

    The user's own code is in the working folder or on PYTHONPATH, and not in the folder of the manifest, which may be
    a download.

    Raises:
        UsageError: the module is not the user's own.
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
            f"{manifest}: names {printable(source)}, and that Python code would run; if you trust it, give "
            f"--against {printable(source)}, or --trust-remote-code"
        )


def find_beside(model: str) -> str | None:
    """Return PyTorch's side beside a model, where `export` and others put it; None if absent, or for a remote model."""
    from analyzer.checkpoints.checkpoint import CONFIG_FILE
    from analyzer.manifest import MANIFEST_FILE
    from analyzer.model.ranges import is_url

    folder = Path(model) if Path(model).is_dir() else Path(model).parent
    beside = [folder / name for name in (MANIFEST_FILE, CONFIG_FILE)] if not is_url(model) else []
    return next((str(path) for path in beside if path.is_file()), None)


def check_there(model: str) -> None:
    """Refuse a missing model before PyTorch's side is built.

    Raises:
        ModelReadError: the model is missing.
    """
    from analyzer.model.ranges import is_url
    from analyzer.read.source import LocalFile

    if not is_url(model) and not os.path.exists(model):  # noqa: PTH110  of any text, without an error
        LocalFile.at(Path(model))


def require_beside(model: str) -> str:
    """Return PyTorch's side beside a model, as `find_beside`.

    Raises:
        UsageError: there is none.
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
        "name PyTorch's side with --against SOURCE, such as a checkpoint folder or module:factory"
    )


def read_names(
    source: str | None, sourced: SourceOptions, run: Run, *, is_requested: bool
) -> Original | None:
    """Return PyTorch's side for `recover`, or None: without a SOURCE, or if packages for an unasked one are missing."""
    if source is None:
        return None
    try:
        return read_original(source, sourced, run, random_weights=False, seed=0)
    except MissingExtraError as error:
        if is_requested:
            raise
        print_message(f"{source}: not used, names come from the model file itself: {error}")
        return None


def files_of(source: str | None) -> list[Path]:
    """Return the path of a SOURCE, and those of its checkpoint files on this machine."""
    from analyzer.checkpoints.checkpoint import checkpoint_files

    if source is None:
        return []
    path = Path(source)
    return [path, *(path.glob("*.safetensors") if path.is_dir() else checkpoint_files(path))]


def import_exporter(purpose: str) -> Any:
    """Return the package that imports torch.

    Raises:
        MissingExtraError: torch or another package that it needs is not installed.
        UsageError: Python finds another package called `exporter` first.
    """
    check_exporter()
    try:
        import exporter
        import exporter.export
    except ModuleNotFoundError as error:
        raise MissingExtraError("export", error.name or "torch", purpose) from error
    return exporter


def check_exporter() -> None:
    """Refuse another package that hides our `exporter`, such as one in the working folder.

    Raises:
        UsageError: Python finds another one first.
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


def report_reconciliation(
    result: Reconciliation, grouped: GroupOptions, stamp: str | None
) -> ReconcileReport:
    """Return the report of a reconciliation, grouped in PyTorch's terms."""
    from analyzer.reports import ReconcileReport

    groups = group_ledger(result.in_pytorch_terms(), grouped, result.trainability)
    return ReconcileReport(result, groups, stamp)
