"""`onnxledger formula`: the closed form of a model's count, and the terms in which a file or a census differs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from analyzer.commands.help import command
from analyzer.commands.options import (
    ReadOptions,
    SourceOptions,
    bounding,
    bundle,
    sourcing,
    stamping,
    time_stamp,
)
from analyzer.commands.pytorch import (
    check_exporter,
    complete_presets,
    find_beside,
    import_exporter,
    read_original,
)
from analyzer.commands.run import Run, answering, check_artifact, list_inputs
from analyzer.errors import UsageError
from analyzer.records import Frozen, replace

if TYPE_CHECKING:  # `--help` does not need these
    from analyzer.account.ledger import Ledger
    from analyzer.formulas.family import Family
    from analyzer.formulas.language import Value
    from analyzer.formulas.origin import SourceFiles
    from analyzer.formulas.record import Formula
    from analyzer.manifest import Manifest
    from analyzer.reconciliation import Reconciliation


class _FormulaOptions(Frozen):
    """Options for the content of the report."""

    against: str | None
    census: bool
    changes: tuple[str, ...]
    symbolic: bool
    block: int
    tokens: int | None

    def check(self) -> None:
        """Refuse options that contradict each other, before any work.

        Raises:
            UsageError: some do.
        """
        if self.symbolic and (self.against is not None or self.census or self.changes):
            raise UsageError(
                "--symbolic: prints no numbers to compare; leave out --against, --census and --set"
            )


_formula_options = bundle(
    "asked",
    _FormulaOptions,
    click.option(
        "--against", metavar="MODEL", help="Compare each term with the count in MODEL or in a checkpoint."
    ),
    click.option(
        "--census", is_flag=True, help="Compare each term with the class, built on the meta device."
    ),
    click.option(
        "--set",
        "changes",
        multiple=True,
        metavar="KEY=VALUE",
        help="Change a field of the config. Repeatable.",
    ),
    click.option("--symbolic", is_flag=True, help="Print the expressions alone, without numbers."),
    click.option(
        "--block",
        type=click.IntRange(1, 1 << 20),
        default=32,  # as record.BLOCK, which `--help` does not import
        metavar="N",
        help="Assume one scale for every N elements at 8 and 4 bits.  [32]",
    ),
    click.option(
        "--tokens",
        type=click.IntRange(1, 1 << 40),
        metavar="N",
        help="Size the key-value cache for N tokens.  [the model's longest sequence]",
    ),
)


@command(
    "formula",
    examples=(
        "onnxledger formula bert-base-uncased",
        "onnxledger formula config.json --against model.onnx",
        "onnxledger formula llama --symbolic",
        "onnxledger formula gpt2 --set num_hidden_layers=24",
    ),
)
@click.argument("source", shell_complete=complete_presets)
@_formula_options
@sourcing
@bounding
@stamping
@answering("FormulaReport")
def formula(
    source: str,
    asked: _FormulaOptions,
    sourced: SourceOptions,
    bounded: ReadOptions,
    stamp: bool,
    run: Run,
) -> None:
    """How many parameters does the config of SOURCE stand for, term by term?

    SOURCE is a config.json, a checkpoint folder, a preset (such as gpt2), the
    name of a family (such as llama), or any SOURCE of export. For a family
    without a closed form, the class is counted on the meta device, and its terms
    are derived.
    """
    from analyzer.formulas.check import check_formula
    from analyzer.formulas.origin import find_files
    from analyzer.formulas.record import FormulaReport

    asked.check()
    files = find_files(source)
    check_artifact(bounded, [asked.against] if asked.against is not None else [])
    run.guard(*files.paths, *_files_beside(asked.against))
    counted = _count_source(files, asked, sourced, run)
    manifest, model = _read_against(asked.against, sourced, bounded, run)
    checked = check_formula(counted.formula, manifest or counted.census, model)
    report = FormulaReport(
        checked=checked,
        before=counted.before,
        is_symbolic=asked.symbolic,
        block=asked.block,
        tokens=asked.tokens,
        stamp=time_stamp() if stamp else None,
    )
    run.finish(report, failed=not checked.agrees)


def _files_beside(against: str | None) -> list[Path]:
    """Return the paths that are read for `--against`, including PyTorch's side of the model."""
    if against is None:
        return []
    beside = find_beside(against)
    return [*list_inputs(against), *([Path(beside)] if beside is not None else [])]


class _Counted(Frozen):
    """A formula, and other counts beside it."""

    formula: Formula
    before: Formula | None = None
    """The formula without the changes of `--set`; None without changes."""
    census: Manifest | None = None


def _count_source(files: SourceFiles, options: _FormulaOptions, sourced: SourceOptions, run: Run) -> _Counted:
    """Return the closed form of SOURCE if its family has one, else a derived formula."""
    from analyzer.formulas.counting import choose_family, count_config, parse_changes

    config = _read_config(files, run)
    family = choose_family(config) if config is not None else None
    before = count_config(config, sourced.model_class, source=files.name) if config is not None else None
    if config is None or family is None or before is None:
        return _derive(files, config, options, sourced, run)
    changes = parse_changes(family, options.changes, before.class_name)
    changed = count_config(config, sourced.model_class, changes, files.name) if changes else None
    census = _names_in(files, sourced, run)
    if options.census:
        # The class by its present name: a config may have the name of an earlier version.
        with_class = replace(sourced, model_class=before.class_name)
        census = _census(files, _change(config, family, changes), with_class, run)
    return _Counted(changed or before, before if changed else None, census)


def _change(config: Mapping[str, Any], family: Family, changes: Mapping[str, Value]) -> dict[str, Any]:
    """Return the config for transformers, with each field of `--set` once, under its own name."""
    set_names = {
        each for name in changes for each in (*family.fields[name].aliases, family.fields[name].length_of)
    }
    kept = {name: value for name, value in config.items() if name not in set_names}
    listed = {name: list(value) if isinstance(value, tuple) else value for name, value in changes.items()}
    return {**kept, "model_type": config.get("model_type") or family.model_types[0], **listed}


def _read_config(files: SourceFiles, run: Run) -> Mapping[str, Any] | None:
    """Return the config of SOURCE; None if it has none."""
    from analyzer.formulas.origin import family_config

    if files.is_known:
        return files.config
    check_exporter()
    from exporter.presets import preset_config, preset_name

    preset = preset_name(files.name)
    known = preset_config(preset) if preset is not None else family_config(files.name)
    if known is not None:
        return known
    exporter = import_exporter(f"finding the config of {files.name}")
    config: Mapping[str, Any] | None = exporter.read_source_config(files.name, say=run.notify)
    return config


def read_source_config(source: str, run: Run) -> tuple[Mapping[str, Any], str]:
    """Return the config of SOURCE, and its name.

    Raises:
        UsageError: SOURCE has no config.
    """
    from analyzer.formulas.origin import find_files

    files = find_files(source)
    run.guard(*files.paths)
    config = _read_config(files, run)
    if config is None:
        raise UsageError(
            f"--against {source}: has no config; give a config.json, a folder that has one, or a preset"
        )
    return config, files.name


def _names_in(files: SourceFiles, sourced: SourceOptions, run: Run) -> Manifest | None:
    """Return PyTorch's side if SOURCE has it: a manifest, or the header of a safetensors file."""
    from analyzer.checkpoints.checkpoint import checkpoint_kind, open_checkpoint

    path = files.parameters
    kind = checkpoint_kind(path) if path is not None else None
    if path is None or (kind is not None and kind.is_pickle):
        return None  # only torch can read a pickle, and torch is used only if nothing else helps
    if kind is None:
        return read_original(str(path), sourced, run, random_weights=False, seed=0).manifest
    return open_checkpoint(path).manifest


def _census(
    files: SourceFiles, config: Mapping[str, Any] | None, sourced: SourceOptions, run: Run
) -> Manifest:
    """Count the class of SOURCE on the meta device."""
    exporter = import_exporter("a census on the meta device")
    trust = sourced.trust_remote_code
    manifest: Manifest
    if config is not None and "model_type" in config:
        manifest = exporter.census_config(config, model_class=sourced.model_class, trust_remote_code=trust)
    else:
        manifest = exporter.census_source(
            files.name, model_class=sourced.model_class, meta=True, trust_remote_code=trust, say=run.notify
        ).manifest
    return manifest


def _derive(
    files: SourceFiles,
    config: Mapping[str, Any] | None,
    options: _FormulaOptions,
    sourced: SourceOptions,
    run: Run,
) -> _Counted:
    """Derive terms from the names of SOURCE's parameters, or from a census of its class."""
    from analyzer.formulas.counting import parse_config_changes
    from analyzer.formulas.derived import derive_formula

    manifest = _names_in(files, sourced, run)
    if manifest is None or options.census:
        manifest = _census(files, config, sourced, run)
    formula = derive_formula(manifest, files.name)
    if not options.changes:
        return _Counted(formula)
    if not config:
        raise UsageError(f"--set: {files.name} has no config whose fields could be set")
    names = import_exporter("a census on the meta device").field_names(config)
    known = [name for name in names if name not in ("model_type", "architectures")]  # --class sets these
    changes = parse_config_changes(known, options.changes)
    changed = derive_formula(_census(files, {**config, **changes}, sourced, run), files.name)
    return _Counted(changed, formula)


def _read_against(
    against: str | None, sourced: SourceOptions, bounded: ReadOptions, run: Run
) -> tuple[Manifest | None, Ledger | Reconciliation | None]:
    """Read `--against`: PyTorch's side alone, or a model, with PyTorch's side if a manifest stands beside the file."""
    from analyzer.checkpoints.checkpoint import checkpoint_kind, open_checkpoint
    from analyzer.documents import is_saved_report
    from analyzer.documents.saved import is_report, load_report
    from analyzer.manifest import is_manifest
    from analyzer.verify.originals import reconcile_original

    if against is None:
        return None, None
    path = Path(against)
    kind = checkpoint_kind(path)
    if kind is not None and not kind.is_pickle:
        return open_checkpoint(path).manifest, None
    if kind is not None or (path.suffix == ".json" and not is_report(path) and is_manifest(path)):
        return read_original(against, sourced, run, random_weights=False, seed=0).manifest, None
    if is_saved_report(path):
        return None, load_report(path)
    ledger = run.audit(against, bounded)
    beside = find_beside(against)
    if beside is None or not is_manifest(Path(beside)):
        return None, ledger
    original = read_original(beside, sourced, run, random_weights=False, seed=0)
    return original.manifest, reconcile_original(ledger, original, None, run)
