"""`onnxledger compare`: two models, or their saved reports, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from analyzer.commands import time
from analyzer.commands.reading import audit, check_artifact, group_ledger, list_inputs
from analyzer.options import (
    Bounded,
    Grouped,
    Output,
    Written,
    bounding,
    grouping,
    reporting,
    writing,
)
from analyzer.terminal import (
    check_outputs,
    emit,
)

if TYPE_CHECKING:  # what `--help` does not need
    pass

__all__ = ["compare"]


@click.command()
@click.argument("a")
@click.argument("b")
@grouping
@bounding
@writing
@reporting
def compare(a: str, b: str, grouped: Grouped, bounded: Bounded, written: Written, output: Output) -> None:
    """Models A and B side by side, or their saved JSON reports.

    Two reports of time are compared by the groups that they were timed in.
    """
    grouped.check()
    sides = (a, b)
    check_artifact(bounded, sides)
    check_outputs(written, [path for side in sides for path in list_inputs(side)])
    from analyzer.compare import compare_ledgers, group_alike
    from analyzer.saved import is_saved_report, load_report
    from analyzer.timing.saved import is_saved_timing

    if any(map(is_saved_timing, sides)):
        time.compare_saved(a, b, grouped, written, output)
        return
    ours, theirs = (
        load_report(side) if is_saved_report(Path(side)) else audit(side, bounded, quiet=output.quiet)
        for side in sides
    )
    if grouped.has_own:
        groupings = group_ledger(ours, grouped), group_ledger(theirs, grouped)
    else:
        groupings = group_alike(ours, theirs, grouped.by, grouped.depth)
    emit(compare_ledgers(ours, theirs, *groupings), output, written)
