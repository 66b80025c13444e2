"""SOURCE and what it is held against -> a formula, and the sides that are counted beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analyzer.commands.options import Bounded, Output, Sourced
from analyzer.commands.pytorch import find_beside, hush, import_exporter, read_original, reconcile_with
from analyzer.commands.reading import audit
from analyzer.commands.terminal import say
from analyzer.errors import UsageError

if TYPE_CHECKING:  # what `--help` does not need
    from analyzer.formulas.closed_form import Family
    from analyzer.formulas.language import Value
    from analyzer.formulas.origin import SourceFiles
    from analyzer.formulas.record import Formula
    from analyzer.ledger import Ledger
    from analyzer.manifest import Manifest
    from analyzer.reconciliation import Reconciliation

__all__ = ["Asked", "Counted", "count_source", "read_against"]


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked of the formula."""

    against: str | None
    census: bool
    changes: tuple[str, ...]
    symbolic: bool
    block: int
    tokens: int | None

    def check(self) -> None:
        """Find options that contradict each other before any work.

        Raises:
            UsageError: as said.
        """
        if self.against == "":
            raise UsageError("--against: an empty name names nothing; give a file, a folder or a URL")
        if self.symbolic and (self.against is not None or self.census or self.changes):
            raise UsageError(
                "--symbolic: prints no numbers, and so compares none; leave the other options out"
            )


@dataclass(frozen=True, slots=True)
class Counted:
    """A formula, and what is known beside it without being asked for."""

    formula: Formula
    before: Formula | None = None
    """Without the changes of `--set`, where there are some."""
    census: Manifest | None = None


def count_source(files: SourceFiles, asked: Asked, sourced: Sourced, output: Output) -> Counted:
    """The closed form of SOURCE where there is one, else one that is derived."""
    from analyzer.formulas.configs import choose_family, parse_changes
    from analyzer.formulas.counting import count_config

    config = _read_config(files, output)
    family = choose_family(config) if config is not None else None
    before = count_config(config, sourced.model_class, source=files.name) if config is not None else None
    if config is None or family is None or before is None:
        return _derive(files, config, asked, sourced, output)
    changes = parse_changes(family, asked.changes, before.class_name)
    changed = count_config(config, sourced.model_class, changes, files.name) if changes else None
    census = _names_in(files, sourced, output)
    if asked.census:
        # By the name that the class has now: a config may have that of an earlier version.
        named = replace(sourced, model_class=before.class_name)
        census = _census(files, _change(config, family, changes), named, output)
    return Counted(changed or before, before if changed else None, census)


def _change(config: Mapping[str, Any], family: Family, changes: Mapping[str, Value]) -> dict[str, Any]:
    """The config as transformers is to read it: a field that was set stands there once, by its own name."""
    set_names = {
        each for name in changes for each in (*family.fields[name].aliases, family.fields[name].length_of)
    }
    kept = {name: value for name, value in config.items() if name not in set_names}
    listed = {name: list(value) if isinstance(value, tuple) else value for name, value in changes.items()}
    return {**kept, "model_type": config.get("model_type") or family.model_types[0], **listed}


def _read_config(files: SourceFiles, output: Output) -> Mapping[str, Any] | None:
    """The config that SOURCE means; None where it has none."""
    from analyzer.formulas.origin import family_config
    from exporter.presets import preset_config, preset_name

    if files.is_known:
        return files.config
    preset = preset_name(files.name)
    known = preset_config(preset) if preset is not None else family_config(files.name)
    if known is not None:
        return known
    exporter = import_exporter(f"finding the config of {files.name}")
    told = hush if output.quiet else say
    config: Mapping[str, Any] | None = exporter.read_source_config(files.name, say=told)
    return config


def _names_in(files: SourceFiles, sourced: Sourced, output: Output) -> Manifest | None:
    """PyTorch's side where SOURCE brings it: a manifest, or the header of a safetensors file."""
    from analyzer.checkpoints.checkpoint import checkpoint_kind, open_checkpoint

    path = files.parameters
    kind = checkpoint_kind(path) if path is not None else None
    if path is None or (kind is not None and kind.is_pickle):
        return None  # torch alone reads that, and is not asked unless it has to be
    if kind is None:
        return read_original(str(path), sourced, output, random_weights=False, seed=0).manifest
    return open_checkpoint(path).manifest


def _census(
    files: SourceFiles, config: Mapping[str, Any] | None, sourced: Sourced, output: Output
) -> Manifest:
    """The class that SOURCE means, as the meta device has it."""
    exporter = import_exporter("a census on the meta device")
    told = hush if output.quiet else say
    trust = sourced.trust_remote_code
    manifest: Manifest
    if config is not None and "model_type" in config:
        manifest = exporter.census_config(config, model_class=sourced.model_class, trust_remote_code=trust)
    else:
        manifest = exporter.census_source(
            files.name, model_class=sourced.model_class, meta=True, trust_remote_code=trust, say=told
        ).manifest
    return manifest


def _derive(
    files: SourceFiles,
    config: Mapping[str, Any] | None,
    asked: Asked,
    sourced: Sourced,
    output: Output,
) -> Counted:
    """Terms that are found in the names of SOURCE's parameters, or in a census of its class."""
    from analyzer.formulas.configs import parse_config_changes
    from analyzer.formulas.derived import derive_formula

    manifest = _names_in(files, sourced, output)
    if manifest is None or asked.census:
        manifest = _census(files, config, sourced, output)
    formula = derive_formula(manifest, files.name)
    if not asked.changes:
        return Counted(formula)
    if not config:
        raise UsageError(f"--set: {files.name} has no config whose fields could be set")
    names = import_exporter("a census on the meta device").field_names(config)
    known = [name for name in names if name not in ("model_type", "architectures")]  # --class chooses those
    changes = parse_config_changes(known, asked.changes)
    changed = derive_formula(_census(files, {**config, **changes}, sourced, output), files.name)
    return Counted(changed, formula)


def read_against(
    against: str | None, sourced: Sourced, bounded: Bounded, output: Output
) -> tuple[Manifest | None, Ledger | Reconciliation | None]:
    """What is counted beside: PyTorch's side alone, or a model with it where a manifest stands beside the file."""
    from analyzer.checkpoints.checkpoint import checkpoint_kind, open_checkpoint
    from analyzer.manifest import is_manifest
    from analyzer.saved import is_report, is_saved_report, load_report

    if against is None:
        return None, None
    path = Path(against)
    kind = checkpoint_kind(path)
    if kind is not None and not kind.is_pickle:
        return open_checkpoint(path).manifest, None
    if kind is not None or (path.suffix == ".json" and not is_report(path) and is_manifest(path)):
        return read_original(against, sourced, output, random_weights=False, seed=0).manifest, None
    if is_saved_report(path):
        return None, load_report(path)
    ledger = audit(against, bounded, quiet=output.quiet)
    beside = find_beside(against)
    if beside is None or not is_manifest(Path(beside)):
        return None, ledger
    original = read_original(beside, sourced, output, random_weights=False, seed=0)
    return original.manifest, reconcile_with(ledger, original, None, output)
