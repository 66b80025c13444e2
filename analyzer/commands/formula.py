"""`onnxledger formula`: the closed form of a model's count, and which term a file or a census differs in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from analyzer.commands.counted import Asked, count_source, read_against
from analyzer.commands.options import (
    Bounded,
    Output,
    Sourced,
    Written,
    bounding,
    bundle,
    formula_reporting,
    sourcing,
    stamping,
    time_stamp,
    writing,
)
from analyzer.commands.pytorch import find_beside
from analyzer.commands.reading import check_artifact, list_inputs
from analyzer.commands.terminal import EXIT_FINDING, check_outputs, emit

if TYPE_CHECKING:  # what `--help` does not need
    pass

__all__ = ["formula"]


asking = bundle(
    "asked",
    Asked,
    click.option(
        "--against", metavar="MODEL", help="A model, or PyTorch's side, whose terms are counted beside."
    ),
    click.option("--census", is_flag=True, help="Build the class on the meta device and count it beside."),
    click.option(
        "--set",
        "changes",
        multiple=True,
        metavar="KEY=VALUE",
        help="A field that is to be other than the config says. Repeatable.",
    ),
    click.option("--symbolic", is_flag=True, help="The expressions alone, no numbers."),
    click.option(
        "--block",
        type=click.IntRange(1, 1 << 20),
        default=32,  # record.BLOCK, which is not loaded for `--help`
        metavar="N",
        help="Elements that share a scale in 8 and 4 bits.  [32]",
    ),
    click.option(
        "--tokens",
        type=click.IntRange(1, 1 << 40),
        metavar="N",
        help="Length of the sequence that is cached.  [the model's]",
    ),
)


@click.command()
@click.argument("source")
@asking
@sourcing
@bounding
@stamping
@writing
@formula_reporting
def formula(
    source: str,
    asked: Asked,
    sourced: Sourced,
    bounded: Bounded,
    stamp: bool,
    written: Written,
    output: Output,
) -> None:
    """The count of SOURCE from its config alone, as symbols and numbers.

    SOURCE is a config.json, a checkpoint folder, a preset (such as gpt2), the
    name of a family (such as llama), or whatever export takes. A family that
    has no closed form is counted on the meta device, and its terms are found.
    """
    from analyzer.formulas.check import check_formula
    from analyzer.formulas.origin import find_files
    from analyzer.formulas.record import FormulaReport

    asked.check()
    files = find_files(source)
    check_artifact(bounded, [asked.against] if asked.against is not None else [])
    check_outputs(written, [*files.paths, *_files_beside(asked.against)], report="FormulaReport")
    counted = count_source(files, asked, sourced, output)
    manifest, model = read_against(asked.against, sourced, bounded, output)
    checked = check_formula(counted.formula, manifest or counted.census, model)
    report = FormulaReport(
        checked=checked,
        before=counted.before,
        is_symbolic=asked.symbolic,
        block=asked.block,
        tokens=asked.tokens,
        stamp=time_stamp() if stamp else None,
    )
    emit(report, output, written)
    if not checked.agrees:
        raise click.exceptions.Exit(EXIT_FINDING)


def _files_beside(against: str | None) -> list[Path]:
    """What is read of the model that is counted beside, PyTorch's side of it too."""
    if against is None:
        return []
    beside = find_beside(against)
    return [*list_inputs(against), *([Path(beside)] if beside is not None else [])]
