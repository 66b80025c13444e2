"""`onnxledger verify`: whether a file computes what another one does, and if not, from where on."""

from __future__ import annotations

from pathlib import Path

import click

from analyzer.commands.options import (
    Output,
    Sourced,
    Written,
    reporting,
    sourcing,
    stamping,
    time_stamp,
    writing,
)
from analyzer.commands.pytorch import require_beside
from analyzer.commands.reading import audit, list_inputs
from analyzer.commands.terminal import EXIT_FINDING, EXIT_NO_ANSWER, check_outputs, emit
from analyzer.errors import UsageError

__all__ = ["verify"]


@click.command()
@click.argument("model")
@click.option(
    "--against",
    metavar="SOURCE|MODEL",
    help="PyTorch's side, or another .onnx file.  [manifest.json, else config.json, beside MODEL]",
)
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
@sourcing
@click.option("--random-weights", is_flag=True, help="SOURCE has weights made up from --weights-seed.")
@click.option("--weights-seed", type=int, default=0, metavar="N", help="Of --random-weights.  [0]")
@stamping
@writing
@reporting
def verify(
    model: str,
    against: str | None,
    shapes: tuple[str, ...],
    seeds: tuple[int, ...],
    timeout: float,
    sourced: Sourced,
    random_weights: bool,
    weights_seed: int,
    stamp: bool,
    written: Written,
    output: Output,
) -> None:
    """Does MODEL compute what PyTorch, or another file, does?

    Both run on the same inputs. Outputs that are further apart than rounding
    differ; then the first module, or inner value, that parts is told, and what
    it differs in. The exit code is 1 where they differ, 2 where nobody knows.
    """
    from analyzer.commands.verifying import Weights, verify_source
    from analyzer.process.child import Limits
    from analyzer.timing.inputs.shapes import parse_shapes
    from analyzer.verify.verify import verify_files

    if Path(model).is_dir() or not model.endswith(".onnx"):
        raise UsageError(f"{model}: verify runs one .onnx file; name the file")
    source = against if against is not None else require_beside(model)
    wanted, drawn, told = parse_shapes(shapes), seeds or (0, 1, 2), time_stamp() if stamp else None
    check_outputs(written, [*list_inputs(model), Path(source)])
    if source.endswith(".onnx"):
        ours, theirs = (audit(side, content="none", quiet=output.quiet) for side in (model, source))
        report = verify_files(ours, theirs, wanted, drawn, Limits(timeout), stamp=told)
    else:
        if shapes:
            raise UsageError("--shape: sizes are those of PyTorch's example inputs; leave it out")
        weights = Weights(random_weights, weights_seed)
        ledger = audit(model, quiet=output.quiet)
        report = verify_source(ledger, source, sourced, weights, drawn, Limits(timeout), output, told)
    emit(report, output, written)
    if not report.same:
        raise click.exceptions.Exit(EXIT_FINDING if report.is_answered else EXIT_NO_ANSWER)
