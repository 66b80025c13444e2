"""Functions that answer `inspect`, `compare` and `reconcile`, each as one call on paths."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from analyzer.account.audit import audit_model
from analyzer.errors import UsageError

if TYPE_CHECKING:  # each call loads what it needs
    from analyzer.account.ledger import Ledger
    from analyzer.checkpoints import Original
    from analyzer.comparison import Comparison
    from analyzer.manifest import Manifest
    from analyzer.model.content import ContentMode
    from analyzer.reconciliation import Reconciliation
    from analyzer.reports import Inspection


def inspect(
    model: Path | str, *, by: str | None = None, depth: int | None = None, content: ContentMode | None = None
) -> Inspection:
    """Account for a model, and group its account.

    Args:
        model: a file, a folder with an `export.json`, or a URL.
        by: the key of groups, as for `--by`; None chooses one.
        depth: number of parts of a name that make a group; None chooses one.
        content: amount of values that are read to find copies; None reads samples of a local file, and none of a URL.

    Returns:
        The ledger and its groups, for `render_report` and `save_report`.

    Raises:
        ModelReadError: the model cannot be read.
        MissingExtraError: the model is a URL, and `[remote]` is not installed.
        UsageError: `by` is no key.
    """
    from analyzer.account.group import group_by
    from analyzer.reports import Inspection

    ledger = audit_model(model, content=content)
    return Inspection(ledger=ledger, grouping=group_by(ledger, by, depth))


def compare(
    a: Path | str,
    b: Path | str,
    *,
    by: str | None = None,
    depth: int | None = None,
    content: ContentMode | None = None,
) -> Comparison:
    """Compare two models, or their saved JSON reports.

    `content` says how many values are compared in pairs of tensors that are otherwise alike. None compares no values of
    these pairs, but follows tensors that differ otherwise; "none" does neither.

    Raises:
        ModelReadError: a model cannot be read.
        MissingExtraError: a model is a URL, and `[remote]` is not installed.
        UsageError: values are to be compared, and a side is a saved report; or `by` is no key.
    """
    from analyzer.comparison import compare_ledgers, group_alike
    from analyzer.comparison.following import follow_changed
    from analyzer.documents import is_saved_report
    from analyzer.documents.saved import load_report

    def read(side: Path | str) -> Ledger:
        if not is_saved_report(Path(side)):
            return audit_model(side, content=content)
        if content not in (None, "none"):
            raise UsageError(f"{side}: a saved report has no values to compare; name the model itself")
        return load_report(side)

    ours, theirs = read(a), read(b)
    followed = follow_changed(ours, theirs, content)
    groupings = group_alike(ours, theirs, by, depth)
    return compare_ledgers(ours, theirs, *groupings, content=content or "none", followed=followed)


def reconcile(
    model: Path | str,
    against: Path | str | Manifest | Original | None = None,
    content: ContentMode | None = None,
) -> Reconciliation:
    """Reconcile a model with its PyTorch original.

    Args:
        model: a file, a folder with an `export.json`, or a URL.
        against: a manifest, or the path of a manifest or of a safetensors checkpoint; None takes the `manifest.json`
            beside the model. `exporter.census_source` reads sources that need a PyTorch class.
        content: amount of values that are compared; None compares all values of local checkpoints.

    Raises:
        ModelReadError: the model cannot be read.
        ManifestError: PyTorch's side cannot be read.
        MissingExtraError: the model is a URL, and `[remote]` is not installed.
        UsageError: there is no PyTorch side, or only PyTorch can read it.
    """
    from analyzer.verify.originals import judge_original

    return judge_original(audit_model(model), _read_original(model, against), content)


def _read_original(model: Path | str, against: Path | str | Manifest | Original | None) -> Original:
    from analyzer.checkpoints import Original
    from analyzer.checkpoints.checkpoint import checkpoint_kind, open_checkpoint
    from analyzer.manifest import MANIFEST_FILE, Manifest, load_manifest

    if isinstance(against, Original):
        return against
    if isinstance(against, Manifest):
        return Original(against)
    folder = Path(model) if Path(model).is_dir() else Path(model).parent
    path = Path(against) if against is not None else folder / MANIFEST_FILE
    if path.is_dir() and (path / MANIFEST_FILE).is_file():
        path = path / MANIFEST_FILE
    if against is None and not path.is_file():
        raise UsageError(f"{model}: no {MANIFEST_FILE} is beside it; name PyTorch's side with `against`")
    kind = checkpoint_kind(path)
    if kind is None and path.is_file():
        return Original(load_manifest(path))
    if kind is None or kind.is_pickle:
        raise UsageError(f"{path}: only PyTorch can read this; pass the result of `exporter.census_source`")
    return open_checkpoint(path)
