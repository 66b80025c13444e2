"""`onnxledger verify`: whether a file computes the same as PyTorch or another file, and the first difference."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from analyzer.commands.help import command, complete_files
from analyzer.commands.options import SourceOptions, sourcing, stamping, time_stamp
from analyzer.commands.pytorch import (
    check_there,
    import_exporter,
    manifest_at,
    refuse_code_of_others,
    require_beside,
)
from analyzer.commands.run import Run, answering, list_inputs
from analyzer.errors import SourceError, UsageError
from analyzer.records import Frozen, replace
from analyzer.text import format_many, printable
from analyzer.timing.request import Optimization

if TYPE_CHECKING:  # `--help` does not need these
    from analyzer.account.ledger import Ledger
    from analyzer.process.child import Limits
    from analyzer.reconciliation import Reconciliation
    from analyzer.verify.inputs import GivenInputs
    from analyzer.verify.messages import Execution
    from analyzer.verify.record import VerifyReport

_PURPOSE = "running PyTorch's side"
_LEVELS = click.Choice([level.value for level in Optimization])


@command(
    "verify",
    examples=(
        "onnxledger verify build/model.onnx",
        "onnxledger verify int8.onnx --against fp32.onnx",
        "onnxledger verify build/model.onnx --static",
        "onnxledger verify model.onnx --against mine:factory -o r.xml -o r.sarif",
    ),
)
@click.argument("model", shell_complete=complete_files)
@click.option(
    "--against",
    metavar="SOURCE|MODEL",
    help="Compare MODEL with PyTorch's side or with another file.  [manifest.json, else config.json, beside MODEL]",
)
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="AXIS=N",
    help="Set sizes of axes: batch=2,sequence=32.  [small sizes, as in time]",
)
@click.option(
    "--seed",
    "seeds",
    type=click.IntRange(0),
    multiple=True,
    metavar="N",
    help="Draw inputs from this seed. Repeatable.  [0, 1, 2]",
)
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="FILE",
    help="Read inputs from FILE.npz, one array for each name, or NAME=FILE.npy. Repeatable.",
)
@click.option(
    "--optimization",
    type=_LEVELS,
    help="Compare a run at this optimization level with an unoptimized run of MODEL.",
)
@click.option(
    "--provider",
    metavar="NAME",
    help="Compare a run on this execution provider with a run of MODEL on cpu.",
)
@click.option(
    "--against-optimization",
    type=_LEVELS,
    help="Optimization level of the other run.  [none]",
)
@click.option(
    "--against-provider",
    metavar="NAME",
    help="Execution provider of the other run.  [cpu]",
)
@click.option(
    "--static",
    "is_static",
    is_flag=True,
    help="Run nothing; compare every operator with PyTorch's program, or with another file.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    default=600.0,
    metavar="S",
    help="Stop after S seconds.  [600]",
)
@sourcing
@click.option("--random-weights", is_flag=True, help="Give SOURCE random weights, made from --weights-seed.")
@click.option("--weights-seed", type=int, default=0, metavar="N", help="Seed of the random weights.  [0]")
@stamping
@answering("VerifyReport")
def verify(
    model: str,
    against: str | None,
    shapes: tuple[str, ...],
    seeds: tuple[int, ...],
    inputs: tuple[str, ...],
    optimization: str | None,
    provider: str | None,
    against_optimization: str | None,
    against_provider: str | None,
    is_static: bool,
    timeout: float,
    sourced: SourceOptions,
    random_weights: bool,
    weights_seed: int,
    stamp: bool,
    run: Run,
) -> None:
    """Does MODEL compute the same as PyTorch, or as another file?

    Both run on the same inputs. Outputs differ if they are further apart than
    rounding explains; the report then names the first module, or inner value,
    that differs, and the cause. The exit code is 1 if they differ, and 2 if there
    is no answer.
    """
    from analyzer.process.child import Limits
    from analyzer.timing.inputs.sizes import parse_shapes
    from analyzer.verify.executions import verify_executions
    from analyzer.verify.files import verify_files
    from analyzer.verify.inputs import gather_inputs

    if Path(model).is_dir() or not model.endswith(".onnx"):
        raise UsageError(f"{model}: verify runs one .onnx file; name the file")
    check_there(model)
    execution_pair = _read_executions((optimization, provider), (against_optimization, against_provider))
    if execution_pair is not None and (against is not None or is_static):
        other = "--static: runs nothing" if is_static else "--against: names another side"
        raise UsageError(
            f"{other}, but --optimization and --provider compare two runs of MODEL; leave one of the two out"
        )
    source = (
        model if execution_pair is not None else against if against is not None else require_beside(model)
    )
    requested, drawn_seeds, stamped = (
        parse_shapes(shapes),
        seeds or (0, 1, 2),
        time_stamp() if stamp else None,
    )
    run.guard(*list_inputs(model), source, *(text.rpartition("=")[2] for text in inputs))
    if is_static:
        if shapes or inputs:
            raise UsageError("--static: runs nothing; leave --shape and --input out")
        weights = Weights(random_weights, weights_seed)
        report = account(model, source, sourced, weights, run, stamped)
        run.finish(
            report, failed=not report.same and report.is_answered, answered=report.same or report.is_answered
        )
        return
    with tempfile.TemporaryDirectory(prefix="onnxledger-") as folder:
        given_inputs = gather_inputs(inputs, Path(folder))
        if execution_pair is not None:
            ledger = run.audit(model, content="none")
            report = verify_executions(
                ledger, *execution_pair, requested, drawn_seeds, Limits(timeout), stamped, given_inputs
            )
        elif source.endswith(".onnx"):
            ours, theirs = (
                run.audit(side) for side in (model, source)
            )  # contents show which tensors are copies
            report = verify_files(
                ours, theirs, requested, drawn_seeds, Limits(timeout), stamped, given_inputs
            )
        else:
            if shapes:
                raise UsageError("--shape: the sizes come from PyTorch's example inputs; leave it out")
            weights = Weights(random_weights, weights_seed)
            ledger = run.audit(model)
            if given_inputs is not None:
                given_inputs.arrays(ledger)  # inputs that do not fit are refused before the module is built
            report = verify_source(
                ledger, source, sourced, weights, drawn_seeds, Limits(timeout), run, stamped, given_inputs
            )
    run.finish(
        report, failed=not report.same and report.is_answered, answered=report.same or report.is_answered
    )


def account(
    model: str, source: str, sourced: SourceOptions, weights: Weights, run: Run, stamp: str | None
) -> VerifyReport:
    """Account for every operator of two files, or of a file and PyTorch's program, without running anything.

    A manifest has the program; the module of any other SOURCE is built and traced.

    Raises:
        SourceError: no module can be built from SOURCE.
        UsageError: there is no program, or it takes other inputs.
        MissingExtraError: torch is not installed, and SOURCE is no manifest.
    """
    if source.endswith(".onnx"):
        from analyzer.verify.accounting import account_files

        ours, theirs = (run.audit(side, content="none") for side in (model, source))
        return account_files(ours, theirs, stamp)
    from analyzer.verify.algebra.account import account_program
    from analyzer.verify.originals import reconcile_original

    found = manifest_at(source)
    if found is not None:
        result = _reconcile_manifest(run.audit(model), found, run)
        return account_program(result, Path(model).name, f"PyTorch's program, {found}", stamp)
    exporter = import_exporter("tracing PyTorch's side")
    from analyzer.checkpoints import Original
    from analyzer.verify.proved import with_known_values
    from exporter.fitting import tracer_of

    resolved, is_made_up = _resolve(exporter, source, sourced, weights, run.notify)
    ledger = run.audit(model)
    manifest = exporter.take_census(resolved.model, {}, evidence=False)
    run.notify("tracing PyTorch's program")
    trace = tracer_of(resolved.model, resolved.config, resolved.example_inputs)
    traced = trace(manifest, ledger.model.fixed_inputs, ledger.model.salt)
    values = None if is_made_up else exporter.weights_of(resolved.model, without=resolved.missing)
    result = reconcile_original(ledger, Original(traced, values), None, run)
    result = replace(result, manifest=with_known_values(result.manifest, values))
    return account_program(result, Path(model).name, f"{resolved.class_name}, {source}", stamp)


def _reconcile_manifest(ledger: Ledger, manifest: Path, run: Run) -> Reconciliation:
    from analyzer.manifest import load_manifest
    from analyzer.reconciliation import reconcile_ledger

    with run.progress("comparing contents") as tick:
        return reconcile_ledger(ledger, load_manifest(manifest), None, progress=tick)


def _read_executions(
    ours: tuple[str | None, str | None], theirs: tuple[str | None, str | None]
) -> tuple[Execution, Execution] | None:
    """Return the two ways to run one file, each with optimization and provider; None if no option asks for them.

    Raises:
        UsageError: there is no such provider.
    """
    from analyzer.timing.running.providers import provider_name
    from analyzer.verify.messages import Execution

    if not any((*ours, *theirs)):
        return None
    first, second = (
        Execution(Optimization(level or "none"), provider_name(name or "cpu"))
        for level, name in (ours, theirs)
    )
    return first, second


class Weights(Frozen):
    """Options for the weights of a SOURCE that has none."""

    random: bool
    seed: int


def verify_source(
    ledger: Ledger,
    source: str,
    sourced: SourceOptions,
    weights: Weights,
    seeds: Sequence[int],
    limits: Limits,
    run: Run,
    stamp: str | None,
    given_inputs: GivenInputs | None = None,
) -> VerifyReport:
    """Run PyTorch's module and the file on the same inputs.

    If the file holds other numbers than the module, such as quantized ones, or SOURCE has no weights, the module
    computes with weights that are recovered from the file.

    Raises:
        SourceError: no module can be built from SOURCE.
        UsageError: the weights cannot be recovered, or inputs of the file cannot be matched to the module's.
        ExportError: forward fails.
        TimingError: the file does not run, or not within the limits.
        MissingExtraError: torch is not installed.
    """
    exporter = import_exporter(_PURPOSE)
    from analyzer.checkpoints import Original
    from analyzer.verify.against import verify_module
    from analyzer.verify.originals import reconcile_original
    from analyzer.verify.weights import find_lost, known_of, load_file_weights
    from exporter.fitting import tracer_of
    from exporter.running import run_beside

    resolved, is_made_up = _resolve(exporter, source, sourced, weights, run.notify)
    graph = ledger.model.graphs[0]
    for entry in graph.signature:
        if entry.each is not None:
            raise UsageError(
                f"input {printable(entry.name)}: is a sequence, and PyTorch's module gets only tensors; compare two "
                "files with --against FILE.onnx, or export with tensors"
            )
    side = run_beside(resolved, [(value.name, value.sizes) for value in graph.signature])
    manifest = exporter.take_census(resolved.model, {}, evidence=False)
    values = None if is_made_up else exporter.weights_of(resolved.model, without=resolved.missing)
    trace = tracer_of(resolved.model, resolved.config, resolved.example_inputs)
    result = reconcile_original(ledger, Original(manifest, values, trace=trace), None, run)
    notes = [] if result.balanced else [f"the weights of {source}: the file does not balance against them"]
    lost = find_lost(result) if is_made_up else []
    lost_names = f"{format_many(len(lost), 'parameter')}, such as {', '.join(lost[:3])}"
    if lost:
        notes.append(
            f"the values of {lost_names}: neither {source} nor the file has them; random ones were used"
        )
    exchange = load_file_weights(result, side, is_all=is_made_up)
    run.notify("running both sides")
    against = f"{resolved.class_name}, {source}"
    known = known_of(result)
    report = verify_module(ledger, side, against, seeds, limits, notes, known, exchange, stamp, given_inputs)
    if lost and not report.same:
        raise UsageError(
            f"{source}: has no weights, and {lost_names}, cannot be recovered from the file; "
            "put its checkpoint beside the model, or name it with `verify --against`"
        )
    return _check_against_program(report, ledger, source, run)


def _check_against_program(report: VerifyReport, ledger: Ledger, source: str, run: Run) -> VerifyReport:
    """Return the report; if the runs agree, check the file also against the program in SOURCE's manifest."""
    from analyzer.verify.proved import compare_with_program

    found = manifest_at(source)
    if found is None or not report.same:
        return report
    run.notify("comparing the file with PyTorch's program")
    return compare_with_program(report, _reconcile_manifest(ledger, found, run), Path(ledger.model.path).name)


def _resolve(
    exporter: Any, source: str, sourced: SourceOptions, weights: Weights, notify: Any
) -> tuple[Any, bool]:
    """Return the module, and whether its weights are made up."""
    from analyzer.manifest import load_manifest

    found = manifest_at(source)
    options: dict[str, Any] = {
        "model_class": sourced.model_class,
        "random_weights": weights.random,
        "seed": weights.seed,
        "trust_remote_code": sourced.trust_remote_code,
    }
    if found is not None:
        provenance = load_manifest(found).source
        if "source" not in provenance:
            raise UsageError(
                f"{source}: does not name the SOURCE of the export; name it with --against SOURCE"
            )
        source = provenance["source"]
        from exporter.sources import is_factory

        if is_factory(source) and not sourced.trust_remote_code:
            refuse_code_of_others(source, found)
        is_class = provenance.get("kind") != "factory"
        options |= {
            "model_class": sourced.model_class or (provenance.get("class") if is_class else None),
            "random_weights": provenance.get("weights") == "random",
            "fresh_init": provenance.get("weights") == "fresh",
            "seed": int(provenance.get("seed", "0")),
            "dtype": provenance.get("dtype", "fp32"),
        }
    try:
        return exporter.resolve_source(source, exporter.SourceOptions(**options), notify), False
    except SourceError as error:
        if "without weights" not in str(error):
            raise
        options["random_weights"] = True
        return exporter.resolve_source(source, exporter.SourceOptions(**options), notify), True
