"""`onnxledger export`: a PyTorch model -> ONNX files, counted and reconciled."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import click

from analyzer.commands.judging import report_reconciliation
from analyzer.commands.options import (
    Grouped,
    Output,
    Sourced,
    grouping,
    randomizing,
    reporting,
    seeding,
    sourcing,
)
from analyzer.commands.pytorch import (
    hush,
    import_exporter,
    reconcile_with,
)
from analyzer.commands.reading import audit
from analyzer.commands.terminal import (
    EXIT_FINDING,
    emit,
    say,
)

__all__ = ["export"]


_FOLDER = click.Path(path_type=Path)


@click.command()
@click.argument("source")
@click.option("-o", "directory", type=_FOLDER, required=True, metavar="DIR", help="Folder that is written.")
@sourcing
@randomizing
@click.option("--fresh-init", is_flag=True, help="The model's own initialisation: equal biases, equal gains.")
@seeding
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
@click.option(
    "--no-optimize",
    "optimize",
    is_flag=True,
    flag_value=False,
    default=True,
    help="Leave the graph as traced.",
)
@click.option(
    "--fuse", type=click.Choice(["cpu", "cuda"]), help="Use onnxruntime's own operators for that provider."
)
@click.option(
    "--generation",
    is_flag=True,
    help="The parts of a generation loop (encoder, prefill, decode), a file each.",
)
@grouping
@reporting
def export(
    source: str, directory: Path, sourced: Sourced, grouped: Grouped, output: Output, **options: Any
) -> None:
    """Export SOURCE to ONNX, count it, and reconcile the two.

    SOURCE is a hub id, a checkpoint folder, a config.json, a preset (such as
    bert-base-uncased) or package.module:factory.
    """
    exporter = import_exporter("export")
    grouped.check()  # before minutes are spent
    files = exporter.export_source(
        source, directory, say=hush if output.quiet else say, **dataclasses.asdict(sourced), **options
    )
    from analyzer.checkpoints import Original
    from analyzer.manifest import MANIFEST_FILE
    from analyzer.reconciliation.verdict import keep_wiring
    from analyzer.report import ExportReport

    result = reconcile_with(audit(files.artifact, quiet=output.quiet), Original(files.manifest), None, output)
    keep_wiring(result, directory / MANIFEST_FILE)
    report = ExportReport(tuple(map(str, files.files)), report_reconciliation(result, grouped, None))
    emit(report, output)
    if not result.balanced:
        raise click.exceptions.Exit(EXIT_FINDING)
