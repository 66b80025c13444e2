"""`onnxledger compare`: two models, or their saved reports, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from analyzer.commands import time
from analyzer.commands.options import (
    Bounded,
    Grouped,
    Output,
    Written,
    bounding,
    grouping,
    reporting,
    writing,
)
from analyzer.commands.reading import audit, check_artifact, group_ledger, list_inputs
from analyzer.commands.terminal import (
    check_outputs,
    emit,
)
from analyzer.errors import UsageError

if TYPE_CHECKING:  # what `--help` does not need
    from analyzer.content import ContentMode
    from analyzer.ledger import Grouping, Ledger

__all__ = ["compare"]


@click.command()
@click.argument("a")
@click.argument("b")
@grouping
@click.option(
    "--content",
    type=click.Choice(["none", "sampled", "full"]),
    help="How far values are compared, of two models.  [none]",
)
@bounding
@writing
@reporting
def compare(
    a: str,
    b: str,
    grouped: Grouped,
    content: ContentMode | None,
    bounded: Bounded,
    written: Written,
    output: Output,
) -> None:
    """Models A and B side by side, or their saved JSON reports.

    Two reports of time are compared by the groups that they were timed in.
    """
    grouped.check()
    sides = (a, b)
    check_artifact(bounded, sides)
    check_outputs(written, [path for side in sides for path in list_inputs(side)])
    from analyzer.comparison import compare_ledgers
    from analyzer.saved import is_saved_report, load_report
    from analyzer.saved.timing import is_saved_timing

    saved = [side for side in sides if is_saved_report(Path(side))]
    if saved and content not in (None, "none"):
        raise UsageError(
            f"--content {content}: {saved[0]} is a saved report, which has no values to compare; name the model "
            "itself, or leave --content out"
        )
    if any(map(is_saved_timing, sides)):
        time.compare_saved(a, b, grouped, written, output)
        return
    ours, theirs = (
        load_report(side) if side in saved else audit(side, bounded, content, quiet=output.quiet)
        for side in sides
    )
    groupings = _group(ours, theirs, grouped)
    emit(compare_ledgers(ours, theirs, *groupings, content=content or "none"), output, written)


def _group(ours: Ledger, theirs: Ledger, grouped: Grouped) -> tuple[Grouping, Grouping]:
    """Both by the same keys at the same depth, or in the user's groups."""
    from analyzer.comparison import group_alike

    if grouped.has_own:
        return group_ledger(ours, grouped), group_ledger(theirs, grouped)
    return group_alike(ours, theirs, grouped.by, grouped.depth)
