"""`onnxledger inspect`: the contents of a model, or of each of many."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from analyzer.commands.help import command, complete_files
from analyzer.commands.options import (
    FindingOptions,
    GroupOptions,
    ReadOptions,
    bounding,
    grouping,
    judging,
    time_stamp,
)
from analyzer.commands.run import Run, answering, check_artifact, group_ledger, with_macs
from analyzer.commands.terminal import print_message
from analyzer.errors import OnnxLedgerError, UsageError
from analyzer.process import load_numpy, uncollected
from analyzer.records import replace

if TYPE_CHECKING:  # `--help` does not need these
    from collections.abc import Sequence

    from analyzer.account.ledger import Finding, Ledger
    from analyzer.model.content import ContentMode
    from analyzer.reports import Inspection, SurveyReport


@command(
    "inspect",
    examples=(
        "onnxledger inspect model.onnx",
        "onnxledger inspect model.onnx --by block,role -v",
        "onnxledger inspect models/ -o table.csv",
        "onnxledger inspect model.onnx -o report.html",
    ),
)
@click.argument("models", nargs=-1, required=True, metavar="MODEL...", shell_complete=complete_files)
@grouping
@judging
@click.option("--digest", is_flag=True, help="Put the SHA-256 of every file into the JSON report.")
@click.option(
    "--content",
    type=click.Choice(["none", "sampled", "full"]),
    help="Read none, samples or all of the values, to find copies and broken weights.  [sampled; none for a URL]",
)
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="AXIS=N",
    help="Also count the MACs of a run at these sizes, by group: batch=1,sequence=128.",
)
@bounding
@answering()
def inspect(
    models: tuple[str, ...],
    grouped: GroupOptions,
    judged: FindingOptions,
    digest: bool,
    content: ContentMode | None,
    shapes: tuple[str, ...],
    bounded: ReadOptions,
    run: Run,
) -> None:
    """What is in MODEL: parameters, subgraphs, bytes, findings?

    Several models, or a folder with all .onnx files below it, get a row each,
    even models that cannot be read. A folder with an export.json is one artifact:
    a tensor in several of its files counts once.
    """
    load_numpy()
    from analyzer.account.artifact import is_artifact

    grouped.check()
    check_artifact(bounded, models if len(models) == 1 else ())
    is_one = bounded.artifact or is_artifact(models[0]) or not Path(models[0]).is_dir()
    if len(models) > 1 or not is_one:
        _inspect_many(models, content, bounded, judged, replace(run, report="SurveyReport"))
        return
    with (
        uncollected()
    ):  # reference counts free the call's objects on return, so the collector need not scan them
        _inspect_one(models[0], grouped, judged, bounded, run, content=content, digest=digest, shapes=shapes)


def _inspect_one(
    model: str,
    grouped: GroupOptions,
    judged: FindingOptions,
    bounded: ReadOptions,
    run: Run,
    *,
    content: ContentMode | None,
    digest: bool,
    shapes: tuple[str, ...],
) -> None:
    from analyzer.account.audit import file_digests
    from analyzer.reports import Inspection

    ledger = replace(run, report="Inspection").audit(model, bounded, content)
    ledger = _count_macs(ledger, shapes, run)
    report = Inspection(
        ledger=ledger,
        grouping=group_ledger(ledger, grouped),
        digests=file_digests(ledger.model) if digest else {},
        stamp=time_stamp() if judged.stamp else None,
    )
    _finish(run, report, judged, report.findings, seen=ledger.content != "none")


def _finish(
    run: Run,
    report: Inspection | SurveyReport,
    judged: FindingOptions,
    findings: Sequence[Finding],
    *,
    seen: bool,
    answered: bool = True,
) -> None:
    """Call `Run.finish`; if contents were not read, --strict has no answer unless there is a finding anyway."""
    is_found = any(finding.id not in judged.ignore for finding in findings)
    is_unseen = judged.strict and not seen and not is_found
    try:
        run.finish(report, judged, findings, answered=answered and not is_unseen)
    finally:
        if is_unseen:
            reason = "contents were not read, and may have findings; give --content sampled"
            print_message(f"onnxledger: --strict: {reason}")


_FEW_NODES = 20_000
"""Most nodes of a model whose MACs `-v` counts without `--shape`."""


def _count_macs(ledger: Ledger, shapes: tuple[str, ...], run: Run) -> Ledger:
    """Return the ledger with the MACs of a run if `--shape` is given; with `-v` always, if they can be counted.

    Raises:
        OnnxLedgerError: `--shape` is given, and they cannot be counted.
    """
    if shapes:
        return with_macs(ledger, shapes)
    if run.output.verbose and (ledger.nodes or 0) <= _FEW_NODES:
        with suppress(OnnxLedgerError):
            return with_macs(ledger, ())
    return ledger


def _inspect_many(
    models: tuple[str, ...],
    content: ContentMode | None,
    bounded: ReadOptions,
    judged: FindingOptions,
    run: Run,
) -> None:
    _refuse_what_needs_one_model()
    from analyzer.model.ranges import is_url
    from analyzer.reports import SurveyReport
    from analyzer.survey import find_models, survey_models

    run.guard(*(model for model in find_models(models) if isinstance(model, str)))
    with run.progress("reading models") as tick:
        survey = survey_models(models, content=content, max_objects=bounded.max_objects, progress=tick)
    run.guard(*(file.path for row in survey.readable for file in row.files))
    report = SurveyReport(survey, time_stamp() if judged.stamp else None)
    seen = content != "none" and (content is not None or not any(map(is_url, models)))
    try:
        _finish(run, report, judged, survey.findings, seen=seen, answered=not survey.unreadable)
    finally:
        if survey.unreadable:
            print_message(f"onnxledger: {len(survey.unreadable):,} of {len(survey.rows):,} cannot be read")


def _refuse_what_needs_one_model() -> None:
    """Refuse options that a report on many models would ignore without a word.

    Raises:
        UsageError: such an option was given.
    """
    context = click.get_current_context()
    for option in context.command.params:
        is_given = context.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE
        if is_given and option.name in ("by", "depth", "groups", "match", "preset", "digest", "shapes"):
            raise UsageError(f"{option.opts[0]}: applies to a single model; name one .onnx file")
