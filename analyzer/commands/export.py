"""`onnxledger export`: a PyTorch model -> ONNX files, counted and reconciled."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import click

from analyzer.commands.help import command
from analyzer.commands.options import Grouped, Sourced, grouping, randomizing, seeding, sourcing
from analyzer.commands.pytorch import complete_presets, import_exporter, reconcile_with, report_reconciliation
from analyzer.commands.run import Run, answering

_FOLDER = click.Path(path_type=Path)


@command(
    short="Export a PyTorch model to ONNX, count it, and reconcile the two.",
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
    "--fresh-init", is_flag=True, help="Keep the model's own initialisation: equal biases, equal gains."
)
@seeding
@click.option(
    "--dtype",
    type=click.Choice(["fp32", "fp16", "bf16"]),
    default="fp32",
    help="Export weights of this type.  [fp32]",
)
@click.option("--static", is_flag=True, help="Fix all axes.  [dynamic batch and sequence]")
@click.option("--opset", type=click.IntRange(1), metavar="N", help="Export to version N of ONNX's operators.")
@click.option(
    "--via",
    type=click.Choice(["transformers", "dynamo", "torchscript"]),
    help="Export by transformers' own exporter, torch.onnx, or its legacy tracer.  [transformers]",
)
@click.option(
    "--no-optimize",
    "optimize",
    is_flag=True,
    flag_value=False,
    default=True,
    help="Leave the graph as it was traced.",
)
@click.option(
    "--fuse",
    type=click.Choice(["cpu", "cuda"]),
    help="Fuse nodes into onnxruntime's own operators for this provider.",
)
@click.option(
    "--generation",
    is_flag=True,
    help="Export the parts of a generation loop (encoder, prefill, decode), a file each.",
)
@grouping
@answering(writes=False)
def export(
    source: str, directory: Path, sourced: Sourced, grouped: Grouped, run: Run, **options: Any
) -> None:
    """Export SOURCE to ONNX, count it, and reconcile the two.

    SOURCE is a hub id, a checkpoint folder, a config.json, a preset (such as
    bert-base-uncased) or package.module:factory.
    """
    exporter = import_exporter("export")
    grouped.check()  # before minutes are spent
    files = exporter.export_source(source, directory, say=run.tell, **dataclasses.asdict(sourced), **options)
    from analyzer.checkpoints import Original
    from analyzer.manifest import MANIFEST_FILE
    from analyzer.reconciliation.verdict import keep_wiring
    from analyzer.reports import ExportReport

    result = reconcile_with(run.audit(files.artifact), Original(files.manifest), None, run)
    keep_wiring(result, directory / MANIFEST_FILE)
    report = ExportReport(tuple(map(str, files.files)), report_reconciliation(result, grouped, None))
    run.finish(report, failed=not result.balanced)
