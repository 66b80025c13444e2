"""`onnxledger verify`: whether a file computes what another one does, and if not, from where on."""

from __future__ import annotations

from pathlib import Path

import click

from analyzer.commands.options import Output, Written, reporting, stamping, time_stamp, writing
from analyzer.commands.reading import audit, list_inputs
from analyzer.commands.terminal import EXIT_FINDING, EXIT_NO_ANSWER, check_outputs, emit
from analyzer.errors import UsageError

__all__ = ["verify"]


@click.command()
@click.argument("model")
@click.option("--against", required=True, metavar="MODEL", help="The other file, an .onnx file.")
@click.option(
    "--shape", "shapes", multiple=True, metavar="AXIS=N", help="Sizes, as batch=2,sequence=32.  [as time]"
)
@click.option(
    "--seed",
    "seeds",
    type=click.IntRange(0),
    multiple=True,
    metavar="N",
    help="Of inputs. Repeatable.  [0, 1, 2]",
)
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    default=600.0,
    metavar="S",
    help="Of all runs, in seconds.  [600]",
)
@stamping
@writing
@reporting
def verify(
    model: str,
    against: str,
    shapes: tuple[str, ...],
    seeds: tuple[int, ...],
    timeout: float,
    stamp: bool,
    written: Written,
    output: Output,
) -> None:
    """Does MODEL compute what another file does?

    Both run on the same inputs. Outputs that are further apart than rounding
    differ; then the first inner value that parts is told, with what its node
    differs in. The exit code is 1 where they differ, and 2 where nobody knows.
    """
    from analyzer.process.child import Limits
    from analyzer.timing.inputs.shapes import parse_shapes
    from analyzer.verify.verify import verify_files

    for side in (model, against):
        if Path(side).is_dir() or not side.endswith(".onnx"):
            raise UsageError(f"{side}: verify compares two .onnx files; name the file")
    wanted = parse_shapes(shapes)
    check_outputs(written, [*list_inputs(model), *list_inputs(against)])
    ours, theirs = (audit(side, content="none", quiet=output.quiet) for side in (model, against))
    report = verify_files(
        ours,
        theirs,
        wanted,
        seeds or (0, 1, 2),
        Limits(timeout),
        stamp=time_stamp() if stamp else None,
    )
    emit(report, output, written)
    if not report.same:
        raise click.exceptions.Exit(EXIT_FINDING if report.is_answered else EXIT_NO_ANSWER)
