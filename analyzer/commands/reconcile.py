"""`onnxledger reconcile`: does a model hold the PyTorch model's parameters?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from analyzer.commands.judging import judge, report_reconciliation
from analyzer.commands.options import (
    Bounded,
    Grouped,
    Judged,
    Output,
    Sourced,
    Written,
    bounding,
    grouping,
    judging,
    randomizing,
    reporting,
    seeding,
    sourcing,
    time_stamp,
    writing,
)
from analyzer.commands.pytorch import (
    read_original,
    reconcile_with,
    require_beside,
)
from analyzer.commands.reading import audit, check_artifact, list_inputs
from analyzer.commands.terminal import (
    EXIT_FINDING,
    check_outputs,
    emit,
)

if TYPE_CHECKING:  # what `--help` does not need
    from analyzer.reconciliation import ContentMode

__all__ = ["reconcile"]


@click.command()
@click.argument("model")
@click.option(
    "--against", metavar="SOURCE", help="PyTorch's side.  [manifest.json, else config.json, beside MODEL]"
)
@click.option(
    "--content",
    type=click.Choice(["none", "sampled", "full"]),
    help="How far values are compared.  [full; of a URL against weights sampled]",
)
@sourcing
@randomizing
@seeding
@grouping
@judging
@bounding
@writing
@reporting
def reconcile(
    model: str,
    against: str | None,
    content: ContentMode | None,
    sourced: Sourced,
    grouped: Grouped,
    judged: Judged,
    bounded: Bounded,
    written: Written,
    output: Output,
    **made: Any,
) -> None:
    """Does MODEL hold the PyTorch model's parameters, all and nothing else?

    SOURCE is a manifest.json, a .safetensors file or a .bin/.pt state dict (or
    the index of several), or whatever export takes.
    """
    grouped.check()
    check_artifact(bounded, [model])
    source = against if against is not None else require_beside(model)
    check_outputs(written, [*list_inputs(model), Path(source)], report="ReconcileReport")
    original = read_original(source, sourced, output, **made)
    ledger = audit(model, bounded, quiet=output.quiet)
    check_outputs(written, ledger.model.paths, report="ReconcileReport")
    result = reconcile_with(ledger, original, content, output)
    report = report_reconciliation(result, grouped, time_stamp() if judged.stamp else None)
    emit(report, output, written, judged.ignore)
    if not result.balanced:
        raise click.exceptions.Exit(EXIT_FINDING)
    judge(report.findings, judged)
