"""`onnxledger cost`: how much work a model is, per subgraph, as formulas in the axes of its inputs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from analyzer.commands.options import (
    Bounded,
    Grouped,
    Output,
    Written,
    bounding,
    bundle,
    grouping,
    parse_size,
    reporting,
    stamping,
    time_stamp,
    writing,
)
from analyzer.commands.reading import audit, check_artifact, list_inputs
from analyzer.commands.terminal import EXIT_FINDING, EXIT_NO_ANSWER, check_outputs, emit
from analyzer.errors import UsageError

if TYPE_CHECKING:  # what `--help` does not need
    from analyzer.memory.answer import Asked
    from analyzer.timing.inputs.shapes import Shapes

__all__ = ["cost"]


@dataclass(frozen=True, slots=True)
class _Roomy:
    """What is asked of the memory of a run."""

    memory: str | None
    device: str | None
    past: int | None
    optimization: str | None
    measured: bool

    def asked(self, shapes: Shapes) -> Asked | None:
        """What is asked, in the library's terms; None where nothing is.

        Raises:
            UsageError: the options contradict each other, or say no size and no device.
        """
        if self.memory is None and self.device is None:
            if self.optimization is not None:
                raise UsageError("--optimization is for --memory; give that too")
            if self.past is not None and not self.measured:
                raise UsageError("--past is for --memory and --measured; give one of them")
            return None
        if self.memory and self.device is not None:
            raise UsageError("--memory SIZE and --device: give one of them")
        from analyzer.memory.answer import Asked
        from analyzer.memory.devices import find_device

        device = None if self.device is None else find_device(self.device)
        there = None if device is None else device.nbytes
        return Asked(
            shapes,
            self.past,
            parse_size("--memory", self.memory) if self.memory else there,
            self.optimization,
            is_gpu=device is not None and device.is_gpu,
        )


_roomy = bundle(
    "roomy",
    _Roomy,
    click.option(
        "--memory",
        metavar="[SIZE]",
        is_flag=False,
        flag_value="",
        help="What a run takes; and whether it fits SIZE, as 8GiB.",
    ),
    click.option("--device", metavar="NAME", help="The memory of a device, as h100-80gb or m2-16gb."),
    click.option("--past", type=click.IntRange(0), metavar="N", help="Tokens in a decoder's cache."),
    click.option(
        "--optimization",
        type=click.Choice(["none", "basic", "extended", "all"]),
        help="Of the graph that onnxruntime makes, loading MODEL.  [MODEL as it stands]",
    ),
    click.option(
        "--measured",
        is_flag=True,
        help="Run MODEL once in onnxruntime, and compare shapes, MACs and memory.",
    ),
)


@click.command()
@click.argument("model")
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="AXIS=N",
    help="Sizes of axes, as batch=1,sequence=128.  [formulas in all axes]",
)
@_roomy
@grouping
@stamping
@bounding
@writing
@reporting
def cost(
    model: str,
    shapes: tuple[str, ...],
    roomy: _Roomy,
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
    --memory also tells what a run takes on onnxruntime's CPU provider, whose
    planner is replayed, and the largest sizes that fit. --measured runs MODEL
    once; the exit code is then 1 where a shape, the MACs or the memory differ.
    """
    from analyzer.collapse.own import label_own
    from analyzer.cost.account import measure_cost
    from analyzer.cost.sizing import resolve_sizes
    from analyzer.timing.inputs.shapes import parse_shapes

    grouped.check()
    wanted = parse_shapes(shapes)
    asked = roomy.asked(wanted)
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

        report = replace(report, memory=answer_memory(ledger, asked))
    if roomy.measured:
        from analyzer.cost.measured import Agreement, measure_run
        from analyzer.memory.answer import Asked

        report = replace(report, measured=measure_run(ledger, report, asked or Asked(wanted, roomy.past)))
    emit(report, output, written)
    if report.measured is not None and report.measured.verdict is not Agreement.AGREES:
        is_wrong = report.measured.verdict is Agreement.DIFFERS
        raise click.exceptions.Exit(EXIT_FINDING if is_wrong else EXIT_NO_ANSWER)
