"""The command line: arguments, files, exit codes; no counting.

Exit codes: 0 answered and clean, 1 a finding, 2 could not answer.
"""

from __future__ import annotations

import os
import re
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from analyzer.errors import MissingExtraError, OnnxLedgerError, UsageError
from analyzer.options import grouping, judging, reporting, sourcing, writing
from analyzer.terminal import emit, progress, say

if TYPE_CHECKING:
    from analyzer.ledger import Finding, Grouping, Ledger
    from analyzer.manifest import Manifest
    from analyzer.reconcile import ContentMode, Reconciliation
    from analyzer.report import ReconcileReport

__all__ = ["main"]

EXIT_FINDING = 1
EXIT_NO_ANSWER = 2


def main() -> None:
    """Run the command; the only place that turns an exception into an exit code."""
    try:
        # Not standalone: click hands back the code of an Exit, and None after a command that ran to its end.
        sys.exit(command(prog_name="onnxledger", standalone_mode=False) or 0)
    except click.ClickException as error:
        error.show()
        sys.exit(EXIT_NO_ANSWER)
    except (click.Abort, KeyboardInterrupt):
        say("interrupted")
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our output has left; without this Python complains once more while it shuts down.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_NO_ANSWER)
    except OnnxLedgerError as error:
        _explain(f"onnxledger: {error}")
    except Exception as error:  # noqa: BLE001 - a defect of ours must not look like a finding, nor print a traceback
        _explain(
            f"onnxledger: internal error: {type(error).__name__}: {error}; run with --verbose and report it"
        )
    sys.exit(EXIT_NO_ANSWER)


def _explain(message: str) -> None:
    say(message)
    if "--verbose" in sys.argv:
        click.echo(traceback.format_exc(), err=True)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80})
@click.version_option(package_name="onnxledger", message="%(prog)s %(version)s")
def command() -> None:
    """Account for every parameter and every byte of an exported ONNX model."""


_MODEL = click.Path(path_type=Path)


@command.command()
@click.argument("source")
@click.option("-o", "directory", type=_MODEL, required=True, metavar="DIR", help="Folder that is written.")
@sourcing
@click.option(
    "--random-weights", is_flag=True, help="Random weights, every value different; needs no download."
)
@click.option("--fresh-init", is_flag=True, help="The model's own initialisation: equal biases, equal gains.")
@click.option("--seed", type=int, default=0, help="Of the random weights.  [0]")
@click.option(
    "--dtype", type=click.Choice(["fp32", "fp16", "bf16"]), default="fp32", help="Of the weights.  [fp32]"
)
@click.option("--static", is_flag=True, help="Fixed axes; default are dynamic batch and sequence.")
@click.option("--opset", type=click.IntRange(1), help="ONNX opset version.")
@click.option(
    "--via",
    type=click.Choice(["transformers", "dynamo", "torchscript"]),
    help="The exporter: transformers' own (default), torch.onnx, or its legacy tracer.",
)
@grouping
@reporting
def export(
    source: str,
    directory: Path,
    by: str,
    depth: int | None,
    groups: tuple[str, ...],
    rows: int,
    style: str,
    quiet: bool,
    verbose: bool,
    **options: Any,
) -> None:
    """Export SOURCE to ONNX, count it, and reconcile the two.

    SOURCE is a hub id, a checkpoint folder, a config.json, a preset (such as
    bert-base-uncased) or package.module:factory.
    """
    exporter = _import_exporter("export")
    patterns = _patterns(groups)
    files = exporter.export_source(source, directory, say=_hush if quiet else say, **options)
    from analyzer.audit import audit_model
    from analyzer.report import ExportReport

    with progress("reading", quiet) as tick:
        ledger = audit_model(files.model, progress=tick)
    result = _reconcile(ledger, files.manifest, None, quiet)
    report = ExportReport(tuple(map(str, files.files)), _reconcile_report(result, by, depth, patterns, None))
    emit(report, style, rows, (), quiet=quiet, verbose=verbose)
    if not result.balanced:
        raise click.exceptions.Exit(EXIT_FINDING)


@command.command()
@click.argument("model", type=_MODEL)
@grouping
@judging
@click.option("--digest", is_flag=True, help="Put the SHA-256 of every file into the JSON report.")
@writing
@reporting
def inspect(
    model: Path,
    by: str,
    depth: int | None,
    groups: tuple[str, ...],
    stamp: bool,
    strict: bool,
    ignore: tuple[str, ...],
    digest: bool,
    outputs: tuple[Path, ...],
    rows: int,
    style: str,
    quiet: bool,
    verbose: bool,
) -> None:
    """What is in MODEL: totals, subgraphs, bytes, largest tensors, findings."""
    patterns = _patterns(groups)
    from analyzer.audit import audit_model, file_digests
    from analyzer.report import Inspection

    with progress("reading", quiet) as tick:
        ledger = audit_model(model, progress=tick)
    report = Inspection(
        ledger=ledger,
        grouping=_group(ledger, by, depth, patterns),
        digests=file_digests(ledger.model) if digest else {},
        stamp=_now() if stamp else None,
    )
    emit(report, style, rows, outputs, quiet=quiet, verbose=verbose)
    _judge(ledger.findings, strict, ignore)


@command.command()
@click.argument("model", type=_MODEL)
@click.option(
    "--against", metavar="SOURCE", help="PyTorch's side.  [manifest.json, else config.json, beside MODEL]"
)
@click.option(
    "--content",
    type=click.Choice(["none", "sampled", "full"]),
    help="How far values are compared.  [full if known]",
)
@sourcing
@grouping
@judging
@writing
@reporting
def reconcile(
    model: Path,
    against: str | None,
    content: ContentMode | None,
    model_class: str | None,
    trust_remote_code: bool,
    by: str,
    depth: int | None,
    groups: tuple[str, ...],
    stamp: bool,
    strict: bool,
    ignore: tuple[str, ...],
    outputs: tuple[Path, ...],
    rows: int,
    style: str,
    quiet: bool,
    verbose: bool,
) -> None:
    """Does MODEL hold the PyTorch model's parameters, all and nothing else?"""
    patterns = _patterns(groups)
    from analyzer.audit import audit_model

    with progress("reading", quiet) as tick:
        ledger = audit_model(model, progress=tick)
    manifest = _manifest(model, against, model_class, trust_remote_code, quiet)
    result = _reconcile(ledger, manifest, content, quiet)
    report = _reconcile_report(result, by, depth, patterns, _now() if stamp else None)
    emit(report, style, rows, outputs, quiet=quiet, verbose=verbose)
    if not result.balanced:
        raise click.exceptions.Exit(EXIT_FINDING)
    _judge(ledger.findings, strict, ignore)


@command.command()
@click.argument("a", type=_MODEL)
@click.argument("b", type=_MODEL)
@grouping
@writing
@reporting
def compare(
    a: Path,
    b: Path,
    by: str,
    depth: int | None,
    groups: tuple[str, ...],
    outputs: tuple[Path, ...],
    rows: int,
    style: str,
    quiet: bool,
    verbose: bool,
) -> None:
    """Models A and B side by side, or their saved JSON reports."""
    patterns = _patterns(groups)
    from analyzer.compare import compare_ledgers

    sides = [_load_side(path, quiet) for path in (a, b)]
    if depth is None and by == "scope" and not patterns:
        depth = min(_group(side, by, None, patterns).depth or 1 for side in sides)
    groupings = [_group(side, by, depth, patterns) for side in sides]
    report = compare_ledgers(sides[0], sides[1], groupings[0], groupings[1])
    emit(report, style, rows, outputs, quiet=quiet, verbose=verbose)


def _load_side(path: Path, quiet: bool) -> Ledger:
    from analyzer.audit import audit_model
    from analyzer.saved import is_saved_report, load_report

    if is_saved_report(path):
        return load_report(path)
    with progress(f"reading {path.name}", quiet) as tick:
        return audit_model(path, progress=tick)


def _manifest(
    model: Path, against: str | None, model_class: str | None, trust_remote_code: bool, quiet: bool
) -> Manifest:
    """PyTorch's side: a manifest needs no PyTorch, any other SOURCE does."""
    from analyzer.manifest import is_manifest, load_manifest

    source = against if against is not None else _beside(model)
    path = Path(source)
    if path.is_file() and is_manifest(path):
        return load_manifest(path)
    exporter = _import_exporter("reconciling against anything but a manifest.json")
    manifest = exporter.census_source(
        source,
        model_class=model_class,
        trust_remote_code=trust_remote_code,
        say=_hush if quiet else say,
    )
    return cast("Manifest", manifest)


def _beside(model: Path) -> str:
    for name in ("manifest.json", "config.json"):
        if (model.parent / name).is_file():
            return str(model.parent / name)
    raise UsageError(
        f"{model}: neither manifest.json nor config.json is beside it; name PyTorch's side with --against SOURCE"
    )


def _import_exporter(purpose: str) -> Any:
    try:
        import exporter
        import exporter.export
    except ModuleNotFoundError as error:
        raise MissingExtraError("export", error.name or "torch", purpose) from error
    return exporter


def _reconcile(
    ledger: Ledger, manifest: Manifest, content: ContentMode | None, quiet: bool
) -> Reconciliation:
    from analyzer.reconcile import reconcile_ledger

    with progress("comparing contents", quiet) as tick:
        return reconcile_ledger(ledger, manifest, content, progress=tick)


def _reconcile_report(
    result: Reconciliation,
    by: str,
    depth: int | None,
    patterns: dict[str, re.Pattern[str]],
    stamp: str | None,
) -> ReconcileReport:
    from analyzer.group import group_by, group_by_patterns
    from analyzer.report import ReconcileReport

    ledger, known = result.in_pytorch_terms(), result.trainability
    grouping = group_by_patterns(ledger, patterns, known) if patterns else group_by(ledger, by, depth, known)
    return ReconcileReport(result, grouping, stamp)


def _group(ledger: Ledger, by: str, depth: int | None, patterns: dict[str, re.Pattern[str]]) -> Grouping:
    from analyzer.group import group_by, group_by_patterns

    return group_by_patterns(ledger, patterns) if patterns else group_by(ledger, by, depth)


def _patterns(groups: tuple[str, ...]) -> dict[str, re.Pattern[str]]:
    from analyzer.group import parse_patterns

    return parse_patterns(groups)


def _judge(findings: tuple[Finding, ...], strict: bool, ignore: tuple[str, ...]) -> None:
    if strict and any(finding.id not in ignore for finding in findings):
        raise click.exceptions.Exit(EXIT_FINDING)


def _now() -> str:
    from datetime import UTC, datetime

    return datetime.now(UTC).isoformat(timespec="seconds")


def _hush(message: str) -> None:
    """Progress that nobody wants to read."""
