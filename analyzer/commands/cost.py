"""`onnxledger cost`: how much work a model is, per subgraph, as formulas in the axes of its inputs."""

from __future__ import annotations

import click

from analyzer.commands.options import (
    Bounded,
    Grouped,
    Output,
    Written,
    bounding,
    grouping,
    reporting,
    stamping,
    time_stamp,
    writing,
)
from analyzer.commands.reading import audit, check_artifact, list_inputs
from analyzer.commands.terminal import check_outputs, emit

__all__ = ["cost"]


@click.command()
@click.argument("model")
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="AXIS=N",
    help="Sizes of axes, as batch=1,sequence=128.  [formulas in all axes]",
)
@grouping
@stamping
@bounding
@writing
@reporting
def cost(
    model: str,
    shapes: tuple[str, ...],
    grouped: Grouped,
    stamp: bool,
    bounded: Bounded,
    written: Written,
    output: Output,
) -> None:
    """How much work is MODEL, per subgraph?

    Counts multiply-accumulates, flops and bytes moved without running MODEL
    or reading a weight. Without --shape the answers are polynomials in the
    axes of its inputs. What is not known is told by node, and never 0.
    """
    from analyzer.collapse.own import label_own
    from analyzer.cost.account import measure_cost
    from analyzer.cost.sizing import resolve_sizes
    from analyzer.timing.inputs.shapes import parse_shapes

    grouped.check()
    wanted = parse_shapes(shapes)
    check_artifact(bounded, [model])
    check_outputs(written, list_inputs(model))
    ledger = audit(model, bounded, "none", quiet=output.quiet)
    check_outputs(written, ledger.model.paths)
    own = grouped.own_groups(ledger)
    report = measure_cost(
        ledger,
        grouped.by,
        grouped.depth,
        resolve_sizes(ledger, wanted),
        labels=label_own(ledger, own.patterns) if own is not None else None,
        stamp=time_stamp() if stamp else None,
    )
    emit(report, output, written)
