"""`onnxledger export`: a PyTorch model -> ONNX files, counted and reconciled."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from analyzer.commands.help import command
from analyzer.commands.options import GroupOptions, SourceOptions, grouping, randomizing, seeding, sourcing
from analyzer.commands.pytorch import complete_presets, import_exporter, report_reconciliation
from analyzer.commands.run import (
    Run,
    answering,
    print_text,
    screen_options,
    write_files,
)
from analyzer.commands.terminal import EXIT_FINDING, EXIT_NO_ANSWER
from analyzer.errors import UsageError

if TYPE_CHECKING:  # `--help` does not need this
    from analyzer.verify.record import VerifyReport

_FOLDER = click.Path(path_type=Path)

VERIFY_FILE = "verify.json"
_SEEDS = (0, 1, 2)
_MOST_SECONDS = 600.0
"""Most seconds for the runs of `--verify`, as in `verify`."""


@command(
    "export",
    examples=(
        "onnxledger export bert-base-uncased -o build/bert",
        "onnxledger export config.json --random-weights -o build/mine",
        "onnxledger export mine:factory -o build/mine --opset 20",
    ),
)
@click.argument("source", shell_complete=complete_presets)
@click.option(
    "-o",
    "directory",
    type=_FOLDER,
    required=True,
    metavar="DIR",
    help="Write the model and its manifest to DIR.",
)
@sourcing
@randomizing
@click.option(
    "--fresh-init", is_flag=True, help="Keep the model's own initialization: equal biases, equal gains."
)
@seeding
@click.option(
    "--dtype",
    type=click.Choice(["fp32", "fp16", "bf16"]),
    default="fp32",
    help="Export weights of this type.  [fp32]",
)
@click.option("--static", is_flag=True, help="Fix all axes.  [dynamic batch and sequence]")
@click.option("--opset", type=click.IntRange(1), metavar="N", help="Export to opset N of ONNX.")
@click.option(
    "--via",
    type=click.Choice(["transformers", "dynamo", "torchscript"]),
    help="Export with transformers' own exporter, torch.onnx, or its legacy tracer.  [transformers]",
)
@click.option(
    "--no-optimize",
    "optimize",
    is_flag=True,
    flag_value=False,
    default=True,
    help="Do not optimize the traced graph.",
)
@click.option(
    "--fuse",
    type=click.Choice(["cpu", "cuda"]),
    help="Fuse nodes into onnxruntime's own operators for this provider.",
)
@click.option(
    "--generation",
    is_flag=True,
    help="Export the parts of a generation loop (encoder, prefill, decode), one file for each.",
)
@click.option(
    "--verify",
    "verifies",
    is_flag=True,
    help="Also run the file and PyTorch, compare them, and write DIR/verify.json.",
)
@grouping
@answering(writes=False)
def export(
    source: str,
    directory: Path,
    sourced: SourceOptions,
    grouped: GroupOptions,
    verifies: bool,
    run: Run,
    **options: Any,
) -> None:
    """Export SOURCE to ONNX, count it, and reconcile the two.

    SOURCE is a hub id, a checkpoint folder, a config.json, a preset (such as
    bert-base-uncased) or package.module:factory.
    """
    exporter = import_exporter("export")
    grouped.check()  # now, because the export takes minutes
    if verifies and options["generation"]:
        raise UsageError(
            "--verify: runs one file, but --generation makes several; run verify on each of them"
        )
    files = exporter.export_source(
        source, directory, say=run.notify, **dataclasses.asdict(sourced), **options
    )
    (directory / VERIFY_FILE).unlink(missing_ok=True)  # from an earlier export
    from analyzer.checkpoints import Original
    from analyzer.manifest import MANIFEST_FILE
    from analyzer.reconciliation.verdict import keep_wiring
    from analyzer.reports import ExportReport
    from analyzer.verify.originals import judge_original

    result = judge_original(run.audit(files.artifact), Original(files.manifest), None, run)
    keep_wiring(result, directory / MANIFEST_FILE)
    report = ExportReport(tuple(map(str, files.files)), report_reconciliation(result, grouped, None))
    if not verifies:
        run.finish(report, failed=not result.balanced)
        return
    run.emit(report)
    verified = _verify(files.artifact, directory, sourced, run)
    if not (result.balanced and verified.same):
        is_bad = not result.balanced or verified.is_answered
        raise click.exceptions.Exit(EXIT_FINDING if is_bad else EXIT_NO_ANSWER)


def _verify(model: Path, directory: Path, sourced: SourceOptions, run: Run) -> VerifyReport:
    """Run the file beside PyTorch; write the report to DIR/verify.json, and print it after the other as text."""
    from analyzer.commands.verify import Weights, verify_source
    from analyzer.formats import RenderOptions, render_report
    from analyzer.process.child import Limits

    limits = Limits(_MOST_SECONDS)
    beside = str(directory)
    verified = verify_source(run.audit(model), beside, sourced, Weights(False, 0), _SEEDS, limits, run, None)
    write_files([(directory / VERIFY_FILE, render_report(verified, "json"))])
    if not run.quiet and run.output.style in ("text", "markdown"):
        plain = RenderOptions(rows=run.output.rows, verbose=run.output.verbose)
        print_text("\n" + str(render_report(verified, run.output.style, screen_options(plain))))
    return verified
