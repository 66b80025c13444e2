"""`onnxledger check`: is a model within its budgets?"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from analyzer.commands.help import command, complete_files
from analyzer.commands.options import (
    FindingOptions,
    ReadOptions,
    bounding,
    bundle,
    configuring,
    judging,
    time_stamp,
)
from analyzer.commands.run import Run, answering, check_artifact, list_inputs, search_clock
from analyzer.errors import OnnxLedgerError, UsageError
from analyzer.process import load_numpy
from analyzer.records import Frozen, replace
from analyzer.text import printable

if TYPE_CHECKING:  # `--help` does not need these
    from analyzer.account.ledger import Ledger
    from analyzer.budget.config import Config
    from analyzer.budget.record import BudgetReport, Rule, Verdict
    from analyzer.cost.judged import WorkLimit
    from analyzer.cost.memory.judged import MemoryLimit
    from analyzer.model.content import ContentMode
    from analyzer.verify.judged import DriftLimit


class _LimitOptions(Frozen):
    """Options that make rules: the budget on the command line."""

    max_parameters: str | None
    max_bytes: str | None
    max_metadata_bytes: str | None
    max_nodes: str | None
    max_opaque: str | None
    max_calls: str | None
    min_opset: str | None
    allowed_ops: Path | None
    allowed_domains: str | None
    allowed_dtypes: str | None
    no_external_outside: bool
    no_unattributed: bool
    no_duplicates: bool
    no_unused: bool

    def rules(self) -> tuple[Rule, ...]:
        """Return a rule for each flag that the user gave."""
        from analyzer.budget.flags import make_rules

        names = [each.name for each in dataclasses.fields(self)]
        values = {f"--{name.replace('_', '-')}": getattr(self, name) for name in names}
        return make_rules({flag: value for flag, value in values.items() if value not in (None, False)})


class _ConfigOptions(Frozen):
    """Options for the project's config, and for the baseline of its rules."""

    baseline: str | None
    baseline_any: bool
    config: Path | None
    no_config: bool

    def read(self) -> Config:
        """Return the project's config.

        Raises:
            UsageError: the options contradict each other.
            ConfigError: the config is wrong.
        """
        from analyzer.budget.config import Config, load_config

        if self.config is not None and self.no_config:
            raise UsageError("--config and --no-config: give only one of them")
        return Config() if self.no_config else load_config(self.config, needs_baseline=self.baseline is None)

    @property
    def where(self) -> str:
        """Tell where rules were looked for, without success."""
        from analyzer.budget.config import FILE, PROJECT

        if self.no_config:
            return "--no-config reads no [[rules]]"
        if self.config is not None:
            return f"{self.config} has no [[rules]]"
        return (
            f"neither {FILE} nor [tool.onnxledger] of {PROJECT} in this folder, {Path.cwd()}, has [[rules]]"
        )


def _limit(name: str, text: str, metavar: str = "LIMIT") -> Callable[[Any], Any]:
    return click.option(name, metavar=metavar, help=text)


_limit_options = bundle(
    "limited",
    _LimitOptions,
    _limit("--max-parameters", "Limit the parameters: 110M, or '+2 % over main.json'."),
    _limit("--max-bytes", "Limit the bytes of all files: 450MiB, or '+5 MB over main.json'."),
    _limit("--max-metadata-bytes", "Limit the bytes of strippable metadata, such as stack traces on nodes."),
    _limit("--max-nodes", "Limit the nodes of all graphs and functions."),
    _limit("--max-opaque", "Limit the elements of tensors that nodes compute with and no rule explains."),
    _limit("--max-calls", "Limit the number of function bodies after all calls are inlined."),
    _limit("--min-opset", "Require at least opset N of ONNX's own operators.", "N"),
    click.option(
        "--allowed-ops",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Allow only the operators in FILE, one on each line.",
    ),
    _limit("--allowed-domains", "Allow only these operator domains, such as ai.onnx,com.microsoft.", "A,B"),
    _limit("--allowed-dtypes", "Allow only these types of stored tensors, such as FLOAT16,INT64.", "A,B"),
    click.option("--no-external-outside", is_flag=True, help="Refuse external data outside MODEL's folder."),
    click.option("--no-unattributed", is_flag=True, help="Refuse a tensor that no rule explains."),
    click.option("--no-duplicates", is_flag=True, help="Refuse stored copies of a parameter."),
    click.option("--no-unused", is_flag=True, help="Refuse initializers that no output depends on."),
)

_config_options = bundle(
    "settled",
    _ConfigOptions,
    click.option(
        "--baseline",
        metavar="FILE",
        help="Measure growth such as '+2 %' from FILE, a saved JSON report or a model; {stem} in FILE stands for "
        "MODEL's name.",
    ),
    click.option("--baseline-any", is_flag=True, help="Also accept a baseline of another model."),
    *configuring,
)


@command(
    "check",
    examples=(
        "onnxledger check model.onnx --max-bytes 450MiB --no-duplicates",
        "onnxledger check model.onnx --baseline main.json --max-parameters '+2 %'",
        "onnxledger check models/ --config onnxledger.toml -o report.sarif",
    ),
)
@click.argument("models", nargs=-1, required=True, metavar="MODEL...", shell_complete=complete_files)
@_limit_options
@click.option(
    "--max-memory",
    multiple=True,
    metavar="LIMIT",
    help="Limit the memory of one run: 'batch=8,sequence=512: 6GiB'. Repeatable.",
)
@click.option(
    "--optimization",
    type=click.Choice(["none", "basic", "extended", "all"]),
    help="Apply --max-memory to the graph after onnxruntime's optimization at this level.  [MODEL as it is]",
)
@click.option(
    "--max-macs",
    multiple=True,
    metavar="LIMIT",
    help="Limit the multiply-accumulates of one run: 'batch=1,sequence=128: 12G'. Repeatable.",
)
@click.option(
    "--max-drift",
    metavar="DB",
    help="Run MODEL and PyTorch's side in its folder, and require this signal-to-error ratio: 40dB. "
    "'40dB against fp32.onnx' compares with that file instead.",
)
@_config_options
@judging
@click.option(
    "--content",
    type=click.Choice(["none", "sampled", "full"]),
    help="Read none, samples or all of the values, to find copies and broken weights.  [sampled; none for a URL]",
)
@bounding
@answering("BudgetReport", rows=5)
def check(
    models: tuple[str, ...],
    limited: _LimitOptions,
    max_memory: tuple[str, ...],
    optimization: str | None,
    max_macs: tuple[str, ...],
    max_drift: str | None,
    settled: _ConfigOptions,
    judged: FindingOptions,
    content: ContentMode | None,
    bounded: ReadOptions,
    run: Run,
) -> None:
    """Is MODEL within its budgets?

    Budgets are the flags below and the config's [[rules]]; a flag replaces a rule
    of the same kind (at most, or at least) on the same metric of the whole model.
    MODEL is a model, a folder of models, a saved JSON report, or a lake that survey
    has written. The --baseline of a lake is an earlier lake. The exit code is 1 if
    a rule fails, and 2 if a rule cannot be evaluated.
    """
    load_numpy()
    from analyzer.budget.flags import override
    from analyzer.fleet import is_lake

    check_artifact(bounded, models if len(models) == 1 else ())
    config = settled.read()
    rules = override(config.rules, limited.rules())
    room, work, drift = _room(max_memory, optimization), _work(max_macs), _drift(max_drift)
    if not rules and not judged.strict and not room and not work and drift is None:
        raise UsageError(f"no rules: {printable(settled.where)}; give one, such as --max-bytes 450MiB")
    if any(map(is_lake, models)):
        if drift is not None:
            raise UsageError("--max-drift: a lake has no models to run; name an .onnx file")
        for option, limits in (("--max-memory", room), ("--max-macs", work)):
            if limits:
                raise UsageError(
                    f"{option}: a lake holds no graphs; name the models, or query macs and memory_bytes with `sql` in "
                    "a lake that was surveyed with --shape"
                )
        _check_lake(models, rules, config, settled, judged, bounded, content, run)
        return
    baseline = settled.baseline or config.baseline
    _check_baselines(rules, baseline, settled)
    names, unreadable = _find_models(models, bounded)
    _refuse_units(models)
    _check_baselines_exist(rules, names, baseline)
    inputs = [
        *models,
        *names,
        *_baselines(rules, names, baseline),
        baseline,
        config.origin,
        limited.allowed_ops,
        None if drift is None else drift.against,
    ]
    run.guard(*(path for name in filter(None, inputs) for path in list_inputs(str(name))))
    reader = _Reader(run, bounded, content)
    ledgers = reader.read_all(names, unreadable)
    run.guard(*(path for ledger in ledgers.values() for path in ledger.model.paths))
    is_any = settled.baseline_any or config.baseline_any
    report = _check_budgets(
        rules, ledgers, unreadable, baseline, config, reader, judged, is_any_baseline=is_any
    )
    run_verdicts = (*_judge_runs(room, ledgers, unreadable), *_judge_runs(work, ledgers, unreadable))
    if drift is not None:
        run_verdicts += tuple(_judge_drift(drift, ledgers, unreadable, run))
    _finish_check(replace(report, verdicts=(*report.verdicts, *run_verdicts)), judged, run)


def _refuse_units(models: Iterable[str]) -> None:
    """Refuse a model that is only the unit of a limit: `--max-bytes 2 MB` names a model MB.

    Raises:
        UsageError: a missing model has the name of a unit.
    """
    for name in models:
        if name.casefold() in _UNITS and not Path(name).exists():
            raise UsageError(
                f"{name}: there is no such model; write a limit as one word, such as --max-bytes 2{name}"
            )


_UNITS = {*"bkmgt", *(f"{each}{unit}" for each in "kmgt" for unit in ("b", "ib")), "%"}


def _room(texts: Iterable[str], level: str | None) -> tuple[MemoryLimit, ...]:
    """Parse each `--max-memory`; the parser is imported only if there are any.

    Raises:
        UsageError: a limit is malformed, or there is an optimization level without a limit.
    """
    if not texts:
        if level is not None:
            raise UsageError("--optimization is for --max-memory; give that too")
        return ()
    from analyzer.cost.memory.judged import parse_memory_limit

    return tuple(parse_memory_limit(text, level) for text in texts)


def _work(texts: Iterable[str]) -> tuple[WorkLimit, ...]:
    """Parse each `--max-macs`."""
    if not texts:
        return ()
    from analyzer.cost.judged import parse_work_limit

    return tuple(map(parse_work_limit, texts))


def _drift(text: str | None) -> DriftLimit | None:
    """Parse `--max-drift`."""
    if text is None:
        return None
    from analyzer.verify.judged import parse_drift_limit

    return parse_drift_limit(text)


def _judge_drift(
    limit: DriftLimit, ledgers: Iterable[str], unreadable: Iterable[str], run: Run
) -> Iterator[Verdict]:
    """Yield a verdict for each model, which runs beside the PyTorch side in its folder, or beside another file."""
    from analyzer.commands.options import SourceOptions
    from analyzer.commands.pytorch import find_beside
    from analyzer.commands.verify import Weights, verify_source
    from analyzer.process.child import Limits
    from analyzer.verify.files import verify_files
    from analyzer.verify.judged import judge_drift, skip_drift

    other = None if limit.against is None else run.audit(limit.against, content="none")

    for name in ledgers:
        if not name.endswith(".onnx") or Path(name).is_dir():
            yield skip_drift(limit, name, "only a single .onnx file can run; name it")
            continue
        beside = find_beside(name)
        if other is None and beside is None:
            yield skip_drift(
                limit,
                name,
                f"neither manifest.json nor config.json is beside it; name a file to compare with: '{_BESIDE}'",
            )
            continue
        try:
            if other is not None:
                ours = run.audit(name, content="none")
                report = verify_files(ours, other, seeds=_SEEDS, limits=Limits(_MOST_SECONDS))
            else:
                report = verify_source(
                    run.audit(name),
                    beside or "",
                    SourceOptions(None, False),
                    Weights(False, 0),
                    _SEEDS,
                    Limits(_MOST_SECONDS),
                    run,
                    None,
                )
        except OnnxLedgerError as error:
            yield skip_drift(limit, name, str(error))
        else:
            yield judge_drift(limit, name, report)
    for name in unreadable:
        yield skip_drift(limit, name, "the model cannot be read")


_BESIDE = "40dB against fp32.onnx"
_SEEDS = (0, 1, 2)
_MOST_SECONDS = 600.0
"""Most seconds for the runs of one model, as in `verify`."""


def _judge_runs(
    limits: Iterable[MemoryLimit | WorkLimit], ledgers: dict[str, Ledger], unreadable: dict[str, str]
) -> Iterator[Verdict]:
    """Yield a verdict for each limit on each model, also for models that cannot be read."""
    for limit in limits:
        from analyzer.budget.evaluate import skip
        from analyzer.budget.record import Skipped, Unit
        from analyzer.cost.judged import WorkLimit, judge_work
        from analyzer.cost.memory.judged import judge_memory

        for name, ledger in ledgers.items():
            if isinstance(limit, WorkLimit):
                yield judge_work(limit, name, ledger)
            else:
                yield judge_memory(limit, name, ledger)
        for name in unreadable:
            unit = Unit.MACS if isinstance(limit, WorkLimit) else Unit.BYTES
            yield skip(limit.rule, unit, name, Skipped.NOT_EVALUATED, "the model cannot be read")


def _check_lake(
    models: Sequence[str],
    rules: Sequence[Rule],
    config: Config,
    settled: _ConfigOptions,
    judged: FindingOptions,
    bounded: ReadOptions,
    content: ContentMode | None,
    run: Run,
) -> None:
    """Check all models of a lake, with relative rules against an earlier lake.

    Raises:
        UsageError: there are more models than the lake, or the baseline is no lake.
    """
    from analyzer.fleet.checking import check_lake
    from analyzer.fleet.lake import open_lake

    if len(models) > 1:
        raise UsageError("MODEL: a lake is checked alone; name no other model")
    baseline = settled.baseline or config.baseline
    _check_baselines(rules, baseline, settled)
    earlier = None if baseline is None else open_lake(baseline)
    run.guard(models[0])
    report = check_lake(
        rules,
        open_lake(models[0]),
        earlier=earlier,
        read=_Reader(run, bounded, content).read,
        groups=config.groups,
        is_any_baseline=settled.baseline_any or config.baseline_any,
        strict=judged.strict,
        ignore=judged.ignore,
        content=content,
        stamp=time_stamp() if judged.stamp else None,
    )
    _finish_check(report, judged, run)


def _baselines(rules: Iterable[Rule], models: Iterable[str], baseline: str | None) -> list[str]:
    """Return all baselines that the rules compare with."""
    from analyzer.budget.evaluate import applies_to, name_baseline
    from analyzer.budget.record import Over

    over = [(rule, rule.limit) for rule in rules if isinstance(rule.limit, Over) and rule.is_asked]
    pairs = ((limit, model) for model in models for rule, limit in over if applies_to(rule, model))
    found = (name_baseline(limit, baseline, model) for limit, model in pairs)
    return list(dict.fromkeys(filter(None, found)))


def _check_baselines_exist(rules: Iterable[Rule], models: Sequence[str], baseline: str | None) -> None:
    """Refuse a missing baseline even if no rule needs it now: the user would believe that it guards the model.

    A missing baseline that a rule needs is reported in its verdict.

    Raises:
        UsageError: such a baseline is missing.
    """
    from analyzer.budget.evaluate import name_baseline
    from analyzer.budget.record import Over
    from analyzer.model.ranges import is_url

    needed = set(_baselines(rules, models, baseline))
    limits = [Over((), baseline), *(rule.limit for rule in rules if rule.is_asked)]
    over = [limit for limit in limits if isinstance(limit, Over)]
    for name in (name_baseline(limit, baseline, model) for model in models for limit in over):
        if name is not None and name not in needed and not is_url(name) and not Path(name).exists():
            raise UsageError(f"{name}: the baseline does not exist; create it, or name none")


def _check_baselines(rules: Sequence[Rule], baseline: str | None, settled: _ConfigOptions) -> None:
    """Refuse a rule on growth without a baseline; the config's own rules were checked on loading.

    Raises:
        UsageError: a rule lacks its baseline, or no rule limits growth over `--baseline`, which would have no effect.
    """
    from analyzer.budget.record import Over

    if settled.baseline is not None and not any(
        isinstance(rule.limit, Over) and rule.is_asked for rule in rules
    ):
        raise UsageError(
            "--baseline: no rule limits growth over it; add one, such as --max-bytes '+2 %', or leave --baseline out"
        )
    for rule in rules:
        if rule.is_asked and isinstance(rule.limit, Over) and not (rule.limit.baseline or baseline):
            raise UsageError(
                f"{rule.origin}: the limit on growth has no baseline; end it in 'over main.json', or give "
                "--baseline main.json"
            )


def _check_budgets(
    rules: Sequence[Rule],
    ledgers: dict[str, Ledger],
    unreadable: dict[str, str],
    baseline: str | None,
    config: Config,
    reader: _Reader,
    judged: FindingOptions,
    *,
    is_any_baseline: bool,
) -> BudgetReport:
    from analyzer.budget.evaluate import check_models, judge_findings

    reader.read_all(
        _baselines(rules, ledgers, baseline), {}
    )  # read now, so that the clock below measures regexes only
    with search_clock(config.origin, len(ledgers) + 1) if config.groups else nullcontext():
        report = check_models(
            rules,
            ledgers,
            unreadable,
            baseline=baseline,
            read=reader.read,
            groups=config.groups,
            is_any_baseline=is_any_baseline,
            stamp=time_stamp() if judged.stamp else None,
        )
    if not judged.strict:
        return report
    strict = [judge_findings(name, ledger, judged.ignore) for name, ledger in ledgers.items()]
    return replace(report, verdicts=(*report.verdicts, *strict))


def _finish_check(report: BudgetReport, judged: FindingOptions, run: Run) -> None:
    """Emit the report, and leave with its exit code.

    Raises:
        Exit: unless every model is within its budget.
    """
    try:
        run.finish(
            report,
            FindingOptions(False, False, judged.ignore),
            failed=bool(report.failed),
            answered=report.passed,
        )
    finally:
        if report.unreadable:
            run.notify(f"onnxledger: {len(report.unreadable):,} of {len(report.models):,} cannot be read")


class _Reader:
    """Reader of models and saved reports, which reads each once."""

    def __init__(self, run: Run, bounded: ReadOptions, content: ContentMode | None) -> None:
        self._run, self._bounded, self._content = run, bounded, content
        self._known: dict[str, Ledger | OnnxLedgerError] = {}

    def read(self, name: str) -> Ledger:
        """Return the ledger of a model, or of a saved report.

        Raises:
            OnnxLedgerError: it cannot be read.
        """
        if name not in self._known:
            self._known[name] = self._try(name)
        found = self._known[name]
        if isinstance(found, OnnxLedgerError):
            raise found
        return found

    def read_all(self, names: Iterable[str], unreadable: dict[str, str]) -> dict[str, Ledger]:
        """Return the ledgers of all models; add the errors of unreadable ones to `unreadable`."""
        ledgers = {}
        for name in names:
            try:
                ledgers[name] = self.read(name)
            except OnnxLedgerError as error:
                unreadable[name] = str(error).removeprefix(f"{name}: ")
        return ledgers

    def _try(self, name: str) -> Ledger | OnnxLedgerError:
        from analyzer.budget.evaluate import find_content_shortfall
        from analyzer.documents import is_saved_report

        try:
            if is_saved_report(Path(name)) and not Path(name).is_dir():
                from analyzer.documents.saved import load_report

                ledger = load_report(name)
                shortfall = find_content_shortfall(ledger, self._content)
                return UsageError(f"{name}: {shortfall}; make the report again so") if shortfall else ledger
            return self._run.read(name, self._bounded, self._content)
        except OnnxLedgerError as error:
            return error
        except OSError as error:
            return UsageError(f"{name}: cannot be read: {error.strerror or error}")


def _find_models(models: Sequence[str], bounded: ReadOptions) -> tuple[list[str], dict[str, str]]:
    """Return the models that the arguments name, each once, and the errors of folders or names without models."""
    from analyzer.account.artifact import is_artifact
    from analyzer.survey import find_models

    names: dict[str, None] = {}
    unreadable: dict[str, str] = {}
    for model in models:
        is_one = bounded.artifact or is_artifact(model)
        for found in [model] if is_one else find_models([model], every_name=True):
            if isinstance(found, str):
                names[found] = None
            else:
                unreadable[found.path] = found.error.removeprefix(f"{found.path}: ")
    return list(names), unreadable
