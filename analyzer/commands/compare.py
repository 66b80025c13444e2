"""`onnxledger compare`: two models, or their saved reports, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from analyzer.commands.help import command, complete_files
from analyzer.commands.options import GroupOptions, ReadOptions, bounding, grouping
from analyzer.commands.run import Run, answering, check_artifact, group_ledger, list_inputs, with_macs
from analyzer.errors import UsageError
from analyzer.process import load_numpy

if TYPE_CHECKING:  # `--help` does not need these
    from analyzer.account.ledger import Grouping, Ledger
    from analyzer.model.content import ContentMode


@command(
    "compare",
    examples=(
        "onnxledger compare main.onnx branch.onnx",
        "onnxledger compare main.json branch.onnx --content sampled",
        "onnxledger compare before.json after.json   # two reports of time",
    ),
)
@click.argument("a", metavar="OLD", shell_complete=complete_files)
@click.argument("b", metavar="NEW", shell_complete=complete_files)
@grouping
@click.option(
    "--content",
    type=click.Choice(["none", "sampled", "full"]),
    help="Compare none, samples or all of the values of the models.  [none]",
)
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="AXIS=N",
    help="Also compare the MACs of a run at these sizes, by group: batch=1,sequence=128.",
)
@bounding
@answering()
def compare(
    a: str,
    b: str,
    grouped: GroupOptions,
    content: ContentMode | None,
    shapes: tuple[str, ...],
    bounded: ReadOptions,
    run: Run,
) -> None:
    """What changed from OLD to NEW, group by group, tensor by tensor?

    Each is a model or a saved JSON report. Two reports of time are compared by
    the groups that they were timed in.
    """
    load_numpy()
    grouped.check()
    sides = (a, b)
    check_artifact(bounded, sides)
    run.guard(*(path for side in sides for path in list_inputs(side)))
    from analyzer.comparison import compare_ledgers
    from analyzer.documents import is_saved_report
    from analyzer.documents.saved import load_report
    from analyzer.documents.saved.timing import is_saved_timing

    saved = [side for side in sides if is_saved_report(Path(side))]
    if saved and content not in (None, "none"):
        raise UsageError(
            f"--content {content}: {saved[0]} is a saved report, which has no values to compare; name the model "
            "itself, or leave --content out"
        )
    if saved and shapes:
        raise UsageError(f"--shape: {saved[0]} is a saved report, which has no nodes; name the model itself")
    if any(map(is_saved_timing, sides)):
        _compare_timings(a, b, grouped, run)
        return
    ours, theirs = (
        load_report(side) if side in saved else run.audit(side, bounded, content) for side in sides
    )
    if shapes:
        ours, theirs = with_macs(ours, shapes), with_macs(theirs, shapes)
    groupings = _group(ours, theirs, grouped)
    from analyzer.comparison.following import follow_changed

    with run.progress("following tensors") as tick:
        followed = follow_changed(ours, theirs, content, tick)
    run.emit(compare_ledgers(ours, theirs, *groupings, content=content or "none", followed=followed))


def _group(ours: Ledger, theirs: Ledger, grouped: GroupOptions) -> tuple[Grouping, Grouping]:
    """Group both sides by the same keys at the same depth, or in the user's groups."""
    from analyzer.comparison import group_alike

    if grouped.has_own:
        return group_ledger(ours, grouped), group_ledger(theirs, grouped)
    return group_alike(ours, theirs, grouped.by, grouped.depth)


def _compare_timings(a: str, b: str, grouped: GroupOptions, run: Run) -> None:
    """Compare two saved timings, by the groups that they were timed in.

    Raises:
        UsageError: one of them is no timing, or the two cannot be compared.
    """
    from analyzer.documents.saved.timing import is_saved_timing, load_timing
    from analyzer.timing.side_by_side import compare_timings

    for side, other in ((a, b), (b, a)):
        if not is_saved_timing(side):
            raise UsageError(
                f"{side}: not a report of time, but {other} is one; compare two reports of "
                "`onnxledger time --format json`"
            )
    if grouped.by or grouped.depth or grouped.groups or grouped.preset:
        raise UsageError(
            "saved timings keep the groups that they were timed in; leave out --by, --depth, --group and --preset"
        )
    run.emit(compare_timings(load_timing(a), load_timing(b), (a, b)))
