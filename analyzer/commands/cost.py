"""`onnxledger cost`: the work of a model, for each subgraph, as formulas in the axes of its inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from analyzer.commands.help import command, complete_files
from analyzer.commands.options import (
    GroupOptions,
    ReadOptions,
    bounding,
    bundle,
    grouping_nodes,
    parse_size,
    stamping,
    time_stamp,
)
from analyzer.commands.run import Run, answering, check_artifact
from analyzer.errors import UsageError
from analyzer.process import load_numpy
from analyzer.records import Frozen, replace

if TYPE_CHECKING:  # `--help` does not need these
    from analyzer.cost.memory.answer import MemoryQuery
    from analyzer.timing.inputs.sizes import Shapes


class _MemoryOptions(Frozen):
    """Options for the memory of a run."""

    memory: str | None
    device: str | None
    past: int | None
    optimization: str | None
    measured: bool

    def asked(self, shapes: Shapes) -> MemoryQuery | None:
        """Return the question about memory, as the library takes it; None if there is none.

        Raises:
            UsageError: the options contradict each other, the size is malformed, or the device is unknown.
        """
        if self.memory is None and self.device is None:
            if self.optimization is not None:
                raise UsageError("--optimization is for --memory; give that too")
            if self.past is not None and not self.measured:
                raise UsageError("--past is for --memory and --measured; give one of them")
            return None
        if self.memory and self.device is not None:
            raise UsageError("--memory SIZE and --device: give one of them")
        from analyzer.cost.memory.answer import MemoryQuery
        from analyzer.cost.memory.devices import find_device

        device = None if self.device is None else find_device(self.device)
        capacity = None if device is None else device.nbytes
        return MemoryQuery(
            shapes,
            self.past,
            parse_size("--memory", self.memory) if self.memory else capacity,
            self.optimization,
            is_gpu=device is not None and device.is_gpu,
        )


_memory_options = bundle(
    "roomy",
    _MemoryOptions,
    click.option(
        "--memory",
        metavar="[SIZE]",
        is_flag=False,
        flag_value="",
        help="Also report the memory of a run, and whether it fits SIZE, such as 8GiB.",
    ),
    click.option(
        "--device",
        metavar="NAME",
        help="Report whether a run fits this device, such as h100-80gb or m2-16gb.",
    ),
    click.option(
        "--past", type=click.IntRange(0), metavar="N", help="Fill a decoder's key-value cache with N tokens."
    ),
    click.option(
        "--optimization",
        type=click.Choice(["none", "basic", "extended", "all"]),
        help="Plan memory for the graph after onnxruntime's optimization at this level.  [MODEL as it is]",
    ),
    click.option(
        "--measured",
        is_flag=True,
        help="Run MODEL once in onnxruntime, and compare its shapes, MACs and memory.",
    ),
)


@command(
    "cost",
    examples=(
        "onnxledger cost model.onnx --shape batch=1,sequence=128",
        "onnxledger cost model.onnx --shape batch=8,sequence=512 --memory 8GiB",
        "onnxledger cost model.onnx --by block",
    ),
)
@click.argument("model", shell_complete=complete_files)
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="AXIS=N",
    help="Set sizes of axes: batch=1,sequence=128.  [formulas in all axes]",
)
@click.option(
    "--against",
    metavar="SOURCE",
    help="Compare the MACs with the closed form of a config: a config.json, a folder or a preset.",
)
@_memory_options
@grouping_nodes
@stamping
@bounding
@answering("CostReport")
def cost(
    model: str,
    shapes: tuple[str, ...],
    against: str | None,
    roomy: _MemoryOptions,
    grouped: GroupOptions,
    stamp: bool,
    bounded: ReadOptions,
    run: Run,
) -> None:
    """How much work and memory does MODEL take, per subgraph?

    Counts multiply-accumulates, flops and bytes moved without running MODEL
    or reading a weight. Without --shape the answers are polynomials in the
    axes of its inputs. Nodes of unknown work are listed, and never counted as 0.
    --memory also reports the memory of a run on onnxruntime's CPU provider,
    whose planner is replayed, and the largest sizes that fit. --measured runs
    MODEL once, --against counts the MACs of a config's closed form; the exit code
    is then 1 if MODEL differs from the run, or from the config.
    """
    load_numpy()
    from analyzer.cost.account import measure_cost
    from analyzer.cost.sizing import resolve_sizes, with_past
    from analyzer.graph.collapse import label_own
    from analyzer.timing.inputs.sizes import parse_shapes

    grouped.check(of_nodes=True)
    requested = parse_shapes(shapes)
    question = roomy.asked(requested)
    check_artifact(bounded, [model])
    ledger = run.audit(model, bounded, "none")
    own = grouped.own_groups(ledger)
    report = measure_cost(
        ledger,
        grouped.by,
        grouped.depth,
        resolve_sizes(ledger, with_past(requested, roomy.past)),
        labels=label_own(ledger, own.patterns) if own is not None else None,
        stamp=time_stamp() if stamp else None,
    )
    if against is not None:
        from analyzer.commands.formula import read_source_config
        from analyzer.cost.against import compare_work

        report = replace(report, against=compare_work(ledger, *read_source_config(against, run)))
    if question is not None:
        from analyzer.cost.memory.answer import answer_memory

        report = replace(report, memory=answer_memory(ledger, question))
    if roomy.measured:
        from analyzer.cost.measured import measure_run
        from analyzer.cost.memory.answer import MemoryQuery

        report = replace(
            report, measured=measure_run(ledger, report, question or MemoryQuery(requested, roomy.past))
        )
    run.finish(report, failed=report.has_parted, answered=report.is_compared)
