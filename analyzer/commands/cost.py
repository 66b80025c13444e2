"""`onnxledger cost`: how much work a model is, per subgraph, as formulas in the axes of its inputs."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

from analyzer.commands.options import (
    Bounded,
    Grouped,
    Output,
    Written,
    bounding,
    grouping,
    parse_size,
    reporting,
    stamping,
    time_stamp,
    writing,
)
from analyzer.commands.reading import audit, check_artifact, list_inputs
from analyzer.commands.terminal import check_outputs, emit
from analyzer.errors import UsageError

if TYPE_CHECKING:  # what `--help` does not need
    from analyzer.memory.answer import Asked
    from analyzer.timing.inputs.shapes import Shapes

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
@click.option("--memory", metavar="SIZE", help="Does a run fit so much, as 8GiB? Tells what it takes.")
@click.option("--device", metavar="NAME", help="The same of a device, such as t4 or h100-80gb.")
@click.option("--past", type=click.IntRange(0), metavar="N", help="Tokens in the cache, for --memory.")
@grouping
@stamping
@bounding
@writing
@reporting
def cost(
    model: str,
    shapes: tuple[str, ...],
    memory: str | None,
    device: str | None,
    past: int | None,
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
    asked = _ask_memory(memory, device, past, wanted)
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
    if asked is not None:
        from analyzer.memory.answer import answer_memory

        report = dataclasses.replace(report, memory=answer_memory(ledger, asked))
    emit(report, output, written)


def _ask_memory(memory: str | None, device: str | None, past: int | None, shapes: Shapes) -> Asked | None:
    """What is asked of memory; None where nothing is.

    Raises:
        UsageError: both a size and a device are given, or one is malformed.
    """
    if memory is None and device is None:
        if past is not None:
            raise UsageError("--past: is for what a run takes; add --memory SIZE or --device NAME")
        return None
    if memory is not None and device is not None:
        raise UsageError("--memory and --device: each says how much there is; give one of them")
    from analyzer.memory.answer import Asked
    from analyzer.memory.devices import find_device

    if memory is not None:
        return Asked(shapes, past, parse_size("--memory", memory))
    found = find_device(device or "")
    return Asked(shapes, past, found.nbytes, is_gpu=found.is_gpu)
