"""The command line: arguments, files, exit codes; no counting.

Exit codes: 0 answered and clean, 1 a finding, 2 could not answer.
"""

from __future__ import annotations

import dataclasses
import io
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from analyzer.collector import uncollected
from analyzer.commands import formula, graph, time
from analyzer.commands.pytorch import (
    files_of,
    find_beside,
    hush,
    import_exporter,
    read_names,
    read_original,
    reconcile_with,
    require_beside,
)
from analyzer.commands.reading import audit, check_artifact, group_ledger, list_inputs
from analyzer.errors import ConfigError, OnnxLedgerError, UsageError
from analyzer.options import (
    Bounded,
    Grouped,
    Judged,
    Output,
    Sourced,
    bounding,
    grouping,
    judging,
    randomizing,
    reporting,
    seeding,
    sourcing,
    time_stamp,
    writing,
)
from analyzer.terminal import EXIT_FINDING, check_outputs, check_state_file, emit, progress, say
from analyzer.version import version

if TYPE_CHECKING:
    from analyzer.ledger import Finding, Ledger
    from analyzer.model import Key
    from analyzer.reconcile import ContentMode, Reconciliation
    from analyzer.report import ReconcileReport

__all__ = ["main"]

EXIT_NO_ANSWER = 2


def main() -> None:
    """Run the command; the only place that turns an exception into an exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # An encoding that lacks a character is no reason to fail.
            stream.reconfigure(errors="backslashreplace")
    try:
        # Not standalone: click hands back the code of an Exit, and None after a command that ran to its end.
        sys.exit(command(prog_name="onnxledger", standalone_mode=False) or 0)
    except click.ClickException as error:
        error.show()
        sys.exit(EXIT_NO_ANSWER)
    except (click.Abort, KeyboardInterrupt):
        say("interrupted")
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our output has left; without this Python complains once more while it shuts down.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_NO_ANSWER)
    except ConfigError as error:
        _explain(*(f"onnxledger: {mistake}" for mistake in error.mistakes))
    except OnnxLedgerError as error:
        _explain(f"onnxledger: {error}")
    except OSError as error:
        _explain(f"onnxledger: {error.filename or 'the report'}: {error.strerror or error}")
    except Exception as error:  # noqa: BLE001 - a defect of ours must not look like a finding, nor print a traceback
        _explain(
            f"onnxledger: internal error: {type(error).__name__}: {error}; run with --verbose and report it"
        )
    sys.exit(EXIT_NO_ANSWER)


def _explain(*messages: str) -> None:
    for message in messages:
        say(message)
    if "--verbose" in sys.argv:
        click.echo(traceback.format_exc(), err=True)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80})
@click.version_option(version(), message="%(prog)s %(version)s")
def command() -> None:
    """Account for every parameter and every byte of an exported ONNX model."""


command.add_command(formula.formula)
command.add_command(graph.graph)
command.add_command(time.time)

_MODEL = click.Path(path_type=Path)


@command.command()
@click.argument("source")
@click.option("-o", "directory", type=_MODEL, required=True, metavar="DIR", help="Folder that is written.")
@sourcing
@randomizing
@click.option("--fresh-init", is_flag=True, help="The model's own initialisation: equal biases, equal gains.")
@seeding
@click.option(
    "--dtype", type=click.Choice(["fp32", "fp16", "bf16"]), default="fp32", help="Of the weights.  [fp32]"
)
@click.option("--static", is_flag=True, help="Fixed axes; default are dynamic batch and sequence.")
@click.option("--opset", type=click.IntRange(1), help="ONNX opset version.")
@click.option(
    "--via",
    type=click.Choice(["transformers", "dynamo", "torchscript"]),
    help="The exporter: transformers' own (default), torch.onnx, or its legacy tracer.",
)
@click.option(
    "--no-optimize",
    "optimize",
    is_flag=True,
    flag_value=False,
    default=True,
    help="Leave the graph as traced.",
)
@click.option(
    "--fuse", type=click.Choice(["cpu", "cuda"]), help="Use onnxruntime's own operators for that provider."
)
@click.option(
    "--generation",
    is_flag=True,
    help="The parts of a generation loop (encoder, prefill, decode), a file each.",
)
@grouping
@reporting
def export(
    source: str, directory: Path, sourced: Sourced, grouped: Grouped, output: Output, **options: Any
) -> None:
    """Export SOURCE to ONNX, count it, and reconcile the two.

    SOURCE is a hub id, a checkpoint folder, a config.json, a preset (such as
    bert-base-uncased) or package.module:factory.
    """
    exporter = import_exporter("export")
    grouped.check()  # before minutes are spent
    files = exporter.export_source(
        source, directory, say=hush if output.quiet else say, **dataclasses.asdict(sourced), **options
    )
    from analyzer.report import ExportReport
    from analyzer.weights import Original

    result = reconcile_with(audit(files.artifact, quiet=output.quiet), Original(files.manifest), None, output)
    report = ExportReport(tuple(map(str, files.files)), _reconcile_report(result, grouped, None))
    emit(report, output)
    if not result.balanced:
        raise click.exceptions.Exit(EXIT_FINDING)


@command.command()
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@grouping
@judging
@click.option("--digest", is_flag=True, help="Put the SHA-256 of every file into the JSON report.")
@click.option(
    "--content",
    type=click.Choice(["none", "sampled", "full"]),
    help="How far values are read, to find copies and broken weights.  [sampled; of a URL none]",
)
@bounding
@writing
@reporting
def inspect(
    models: tuple[str, ...],
    grouped: Grouped,
    judged: Judged,
    digest: bool,
    content: ContentMode | None,
    bounded: Bounded,
    outputs: tuple[Path, ...],
    output: Output,
) -> None:
    """What is in MODEL: totals, subgraphs, bytes, largest tensors, findings.

    Several models, or a folder, which stands for every .onnx file below it, get
    a row each; one that cannot be read costs only its own row. A folder with an
    export.json is one artifact: what several of its files hold counts once.
    """
    from analyzer.artifact import is_artifact

    grouped.check()
    if "" in models:  # an unset variable, which must not mean the working directory
        raise UsageError("MODEL: an empty name names nothing; give a file, a folder or a URL")
    check_artifact(bounded, models if len(models) == 1 else ())
    is_one = bounded.artifact or is_artifact(models[0]) or not Path(models[0]).is_dir()
    if len(models) > 1 or not is_one:
        _inspect_many(models, content, bounded, judged, outputs, output)
        return
    check_outputs(outputs, list_inputs(models[0]))
    with uncollected():
        _inspect_one(
            audit(models[0], bounded, content, quiet=output.quiet), grouped, judged, digest, outputs, output
        )


def _inspect_one(
    ledger: Ledger, grouped: Grouped, judged: Judged, digest: bool, outputs: tuple[Path, ...], output: Output
) -> None:
    from analyzer.audit import file_digests
    from analyzer.report import Inspection

    check_outputs(outputs, ledger.model.paths)
    report = Inspection(
        ledger=ledger,
        grouping=group_ledger(ledger, grouped),
        digests=file_digests(ledger.model) if digest else {},
        stamp=time_stamp() if judged.stamp else None,
    )
    emit(report, output, outputs)
    _judge(report.findings, judged)


def _inspect_many(
    models: tuple[str, ...],
    content: ContentMode | None,
    bounded: Bounded,
    judged: Judged,
    outputs: tuple[Path, ...],
    output: Output,
) -> None:
    _refuse_what_needs_one_model()
    from analyzer.report import SurveyReport
    from analyzer.survey import find_models, survey_models

    check_outputs(outputs, [Path(model) for model in find_models(models) if isinstance(model, str)])
    with progress("reading models", output.quiet) as tick:
        survey = survey_models(models, content=content, max_objects=bounded.max_objects, progress=tick)
    check_outputs(outputs, [Path(file.path) for row in survey.readable for file in row.files])
    emit(SurveyReport(survey, time_stamp() if judged.stamp else None), output, outputs)
    if survey.unreadable:
        say(f"onnxledger: {len(survey.unreadable)} of {len(survey.rows)} cannot be read")
        raise click.exceptions.Exit(EXIT_NO_ANSWER)
    _judge(survey.findings, judged)


def _refuse_what_needs_one_model() -> None:
    """Options that a row has no room for must not be passed over in silence.

    Raises:
        UsageError: one of them was given.
    """
    context = click.get_current_context()
    for option in context.command.params:
        given = context.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE
        if given and option.name in ("by", "depth", "groups", "match", "preset", "digest"):
            raise UsageError(f"{option.opts[0]}: says something of one model; name one .onnx file")


@command.command()
@click.argument("model")
@click.option(
    "--against", metavar="SOURCE", help="PyTorch's side.  [manifest.json, else config.json, beside MODEL]"
)
@click.option(
    "--content",
    type=click.Choice(["none", "sampled", "full"]),
    help="How far values are compared.  [sampled; full with a manifest]",
)
@sourcing
@randomizing
@seeding
@grouping
@judging
@bounding
@writing
@reporting
def reconcile(
    model: str,
    against: str | None,
    content: ContentMode | None,
    sourced: Sourced,
    grouped: Grouped,
    judged: Judged,
    bounded: Bounded,
    outputs: tuple[Path, ...],
    output: Output,
    **made: Any,
) -> None:
    """Does MODEL hold the PyTorch model's parameters, all and nothing else?

    SOURCE is a manifest.json, a .safetensors file or a .bin/.pt state dict (or
    the index of several), or whatever export takes.
    """
    grouped.check()
    check_artifact(bounded, [model])
    source = against if against is not None else require_beside(model)
    check_outputs(outputs, [*list_inputs(model), Path(source)])
    original = read_original(source, sourced, output, **made)
    ledger = audit(model, bounded, quiet=output.quiet)
    check_outputs(outputs, ledger.model.paths)
    result = reconcile_with(ledger, original, content, output)
    report = _reconcile_report(result, grouped, time_stamp() if judged.stamp else None)
    emit(report, output, outputs)
    if not result.balanced:
        raise click.exceptions.Exit(EXIT_FINDING)
    _judge(report.findings, judged)


@command.command()
@click.argument("model")
@click.option(
    "-o",
    "outputs",
    type=click.Path(path_type=Path, dir_okay=False),
    multiple=True,
    required=True,
    metavar="PATH",
    help="The state dict, a .safetensors file; with another suffix the report. Repeatable.",
)
@click.option(
    "--against",
    metavar="SOURCE",
    help="Whose names it is given.  [manifest.json, else config.json, beside MODEL; else MODEL's own]",
)
@click.option("--lossless", is_flag=True, help="Write nothing if any tensor was rounded or quantized.")
@click.option(
    "--content",
    type=click.Choice(["none", "sampled", "full"]),
    help="How far values are compared, to know which is which.  [full if known]",
)
@sourcing
@bounding
@reporting
def recover(
    model: str,
    outputs: tuple[Path, ...],
    against: str | None,
    lossless: bool,
    content: ContentMode | None,
    sourced: Sourced,
    bounded: Bounded,
    output: Output,
) -> None:
    """Write the PyTorch state dict that MODEL holds.

    Unfolded, transposed back, split, dequantized. Every value comes from MODEL,
    only names, shapes, types and ties from SOURCE. What MODEL does not hold is
    listed, and the exit code is 1.
    """
    from analyzer.ownnames import read_own_names
    from analyzer.recover import recover_state, save_state
    from analyzer.report import RecoverReport

    check_artifact(bounded, [model])
    path, reports = _state_file(outputs)
    source = against if against is not None else find_beside(model)
    read = [*list_inputs(model), *files_of(source)]
    check_state_file(path, read)
    check_outputs(reports, [*read, path])
    original = read_names(source, sourced, output, is_asked=against is not None)
    ledger = audit(model, bounded, quiet=output.quiet)
    check_state_file(path, ledger.model.paths)
    check_outputs(reports, ledger.model.paths)
    refused: Mapping[Key, str] = {}
    if original is None:
        original, refused = read_own_names(ledger)
    recovery = recover_state(reconcile_with(ledger, original, content, output), refused)
    is_written = bool(recovery.tensors) and not (lossless and recovery.lossy)
    if is_written:
        with progress(f"writing {path.name}", output.quiet) as tick:
            save_state(recovery, path, tick)
    emit(RecoverReport(recovery, str(path) if is_written else None, lossless), output, reports)
    if not is_written or not recovery.is_whole:
        raise click.exceptions.Exit(EXIT_FINDING)


@command.command()
@click.argument("a")
@click.argument("b")
@grouping
@bounding
@writing
@reporting
def compare(
    a: str, b: str, grouped: Grouped, bounded: Bounded, outputs: tuple[Path, ...], output: Output
) -> None:
    """Models A and B side by side, or their saved JSON reports.

    Two reports of time are compared by the groups that they were timed in.
    """
    grouped.check()
    sides = (a, b)
    check_artifact(bounded, sides)
    check_outputs(outputs, [path for side in sides for path in list_inputs(side)])
    from analyzer.compare import compare_ledgers, group_alike
    from analyzer.saved import is_saved_report, load_report
    from analyzer.timing.saved import is_saved_timing

    if any(map(is_saved_timing, sides)):
        time.compare_saved(a, b, grouped, outputs, output)
        return
    ours, theirs = (
        load_report(side) if is_saved_report(Path(side)) else audit(side, bounded, quiet=output.quiet)
        for side in sides
    )
    if grouped.has_own:
        groupings = group_ledger(ours, grouped), group_ledger(theirs, grouped)
    else:
        groupings = group_alike(ours, theirs, grouped.by, grouped.depth)
    emit(compare_ledgers(ours, theirs, *groupings), output, outputs)


def _state_file(outputs: Sequence[Path]) -> tuple[Path, list[Path]]:
    """The one file for the state dict, and those for the report.

    Raises:
        UsageError: there are none or several for the state dict.
    """
    states = [path for path in outputs if path.suffix == ".safetensors"]
    if len(states) != 1:
        raise UsageError(f"-o: name one .safetensors file for the state dict, not {len(states)}")
    return states[0], [path for path in outputs if path not in states]


def _reconcile_report(result: Reconciliation, grouped: Grouped, stamp: str | None) -> ReconcileReport:
    from analyzer.report import ReconcileReport

    return ReconcileReport(
        result, group_ledger(result.in_pytorch_terms(), grouped, result.trainability), stamp
    )


def _judge(findings: tuple[Finding, ...], judged: Judged) -> None:
    if judged.strict and any(finding.id not in judged.ignore for finding in findings):
        raise click.exceptions.Exit(EXIT_FINDING)
