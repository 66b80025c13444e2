"""`onnxledger reconcile`: whether a model holds the PyTorch model's parameters, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from analyzer.commands.help import command, complete_files
from analyzer.commands.options import (
    FindingOptions,
    GroupOptions,
    ReadOptions,
    SourceOptions,
    bounding,
    grouping,
    judging,
    randomizing,
    seeding,
    sourcing,
    time_stamp,
)
from analyzer.commands.pytorch import (
    check_there,
    read_original,
    report_reconciliation,
    require_beside,
)
from analyzer.commands.run import Run, answering, check_artifact, list_inputs

if TYPE_CHECKING:  # `--help` does not need this
    from analyzer.model.content import ContentMode


@command(
    "reconcile",
    examples=(
        "onnxledger reconcile build/model.onnx",
        "onnxledger reconcile int8.onnx --against model.safetensors --content full",
        "onnxledger reconcile model.onnx --against mine:factory",
    ),
)
@click.argument("model", shell_complete=complete_files)
@click.option(
    "--against",
    metavar="SOURCE",
    help="Compare MODEL with SOURCE.  [manifest.json, else config.json, beside MODEL]",
)
@click.option(
    "--part",
    "parts",
    metavar="NAME",
    multiple=True,
    help="Compare with this module of SOURCE alone (encoder), or with this state dict of a .pt file; may be repeated.",
)
@click.option(
    "--content",
    type=click.Choice(["none", "sampled", "full"]),
    help="Compare none, samples or all of the values.  [full; sampled for a URL against weights]",
)
@sourcing
@randomizing
@seeding
@grouping
@judging
@bounding
@answering("ReconcileReport")
def reconcile(
    model: str,
    against: str | None,
    parts: tuple[str, ...],
    content: ContentMode | None,
    sourced: SourceOptions,
    grouped: GroupOptions,
    judged: FindingOptions,
    bounded: ReadOptions,
    run: Run,
    **weight_options: Any,
) -> None:
    """Does MODEL hold the PyTorch model's parameters, all of them and nothing else?

    SOURCE is a manifest.json, a .safetensors file, a .bin/.pt file of
    torch.save (or the index of several), or any SOURCE of export. verify tests
    whether MODEL also computes the same as PyTorch.
    """
    from analyzer.verify.originals import judge_original

    grouped.check()
    check_artifact(bounded, [model])
    check_there(model)
    source = against if against is not None else require_beside(model)
    run.guard(*list_inputs(model), source)
    original = read_original(source, sourced, run, parts=parts, **weight_options)
    result = judge_original(run.audit(model, bounded), original, content, run)
    report = report_reconciliation(result, grouped, time_stamp() if judged.stamp else None)
    run.finish(report, judged, report.findings, failed=not result.balanced)
