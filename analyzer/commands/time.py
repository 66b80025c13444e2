"""`onnxledger time`: milliseconds for each group on an execution provider."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from analyzer.commands.help import command, complete_files
from analyzer.commands.options import (
    GroupOptions,
    ReadOptions,
    bundle,
    grouping_nodes,
    parse_size,
    stamping,
    time_stamp,
)
from analyzer.commands.run import Run, answering, group_ledger, list_inputs, search_clock
from analyzer.errors import OnnxLedgerError, UsageError
from analyzer.records import Frozen, replace
from analyzer.timing.request import Optimization, Schedule

if TYPE_CHECKING:  # these need numpy and the whole analyzer, and `--help` does not
    from analyzer.account.group.patterns import OwnGroups
    from analyzer.account.ledger import Grouping, Ledger
    from analyzer.process.child import Limits
    from analyzer.timing.generation import GenerationTiming
    from analyzer.timing.record import Timing, TimingSettings

_USUAL = Schedule()
_MOST_TOKENS = 1 << 30


class _InputOptions(Frozen):
    """Options for the inputs of the model."""

    shapes: tuple[str, ...]
    new_tokens: int | None
    past: int | None
    npz: Path | None

    def check_loop(self) -> None:
        """Refuse options that make sense for a single model only, not for a generation loop.

        Raises:
            UsageError: there is such an option.
        """
        if self.past is not None:
            raise UsageError(
                "--past: a loop's cache is as long as its prompt and the tokens so far; give --shape sequence=N and "
                "--new-tokens N, or name one of its files"
            )
        if self.npz is not None:
            raise UsageError(
                f"--input {self.npz}: has the inputs of one model, but this is a loop; name one of its files"
            )


class _RunOptions(Frozen):
    """Options for the provider, the number of runs, and their limits."""

    provider: str
    provider_options: tuple[str, ...]
    threads: int | None
    optimization: str
    libraries: tuple[Path, ...]
    runs: int | None
    warmup: int
    seconds: float
    seed: int
    timeout: float
    memory: str | None

    def settings(self) -> TimingSettings:
        """Return the settings of the measurement, as the library takes them.

        Raises:
            UsageError: there is no such provider, or one of its options is wrong.
        """
        from analyzer.timing.record import TimingSettings
        from analyzer.timing.running.providers import parse_options, provider_name, short_name

        name = provider_name(self.provider)
        return TimingSettings(
            provider=short_name(name),
            provider_options=parse_options(name, self.provider_options),
            threads=self.threads,
            optimization=Optimization(self.optimization),
            seed=self.seed,
            schedule=Schedule(runs=self.runs, warmup=self.warmup, seconds=self.seconds),
        )

    def limits(self) -> Limits:
        """Return the limits of time and memory.

        Raises:
            UsageError: the memory limit is no size.
        """
        from analyzer.process.child import Limits

        return Limits(
            self.timeout, None if self.memory is None else parse_size("--memory-limit", self.memory)
        )


feeding = bundle(
    "fed",
    _InputOptions,
    click.option(
        "--shape",
        "shapes",
        multiple=True,
        metavar="AXIS=N",
        help="Set sizes of axes: batch=8,sequence=128; sweep over one: sequence=16:512:x2.",
    ),
    click.option(
        "--new-tokens",
        type=click.IntRange(1, _MOST_TOKENS),
        metavar="N",
        help="Time a generation loop of N tokens.  [128 for a folder with the files of a loop]",
    ),
    click.option(
        "--past", type=click.IntRange(0), metavar="N", help="Fill a decoder's key-value cache with N tokens."
    ),
    click.option(
        "--input",
        "npz",
        type=click.Path(path_type=Path),
        metavar="FILE.npz",
        help="Read inputs from FILE.npz, one array for each name; generate the others.",
    ),
)


def _finite(context: click.Context, parameter: click.Parameter, seconds: float) -> float:
    """Return the seconds; refuse NaN and infinity, which would be no limit."""
    if not math.isfinite(seconds):
        raise click.BadParameter(f"{seconds} is not a time.", context, parameter)
    return seconds


def _seconds(name: str, most: float, text: str) -> Callable[[Any], Any]:
    positive = click.FloatRange(0, min_open=True)
    return click.option(name, type=positive, callback=_finite, default=most, metavar="S", help=text)


_MOST_SEED = (1 << 63) - 1
"""Largest seed that onnxruntime takes."""

measuring = bundle(
    "measured",
    _RunOptions,
    click.option(
        "--provider",
        default="cpu",
        metavar="NAME",
        help="Run on this execution provider: cpu, cuda, tensorrt, openvino, ...  [cpu]",
    ),
    click.option(
        "--provider-option",
        "provider_options",
        multiple=True,
        metavar="K=V",
        help="Set an option of the provider. Repeatable.",
    ),
    click.option(
        "--threads", type=click.IntRange(1), metavar="N", help="Compute in N threads.  [one for each core]"
    ),
    click.option(
        "--optimization",
        type=click.Choice([level.value for level in Optimization]),
        default="all",
        help="Optimize the graph in onnxruntime to this level.  [all]",
    ),
    click.option(
        "--custom-ops",
        "libraries",
        multiple=True,
        type=click.Path(path_type=Path),
        metavar="LIB",
        help="Load and run a library of custom operators. Repeatable.",
    ),
    click.option(
        "--runs",
        type=click.IntRange(1),
        metavar="N",
        help="Time N runs for each measurement.  [until the median is stable]",
    ),
    click.option(
        "--warmup",
        type=click.IntRange(0),
        default=_USUAL.warmup,
        metavar="N",
        help="Run N times first, untimed.  [3]",
    ),
    _seconds("--seconds", _USUAL.seconds, "Measure for at most S seconds at each size.  [10]"),
    click.option(
        "--seed", type=click.IntRange(0, _MOST_SEED), default=0, metavar="N", help="Seed of the inputs.  [0]"
    ),
    _seconds("--timeout", 600.0, "Stop after S seconds.  [600]"),
    click.option(
        "--memory-limit",
        "memory",
        metavar="SIZE",
        help="Stop above this much memory, such as 8GiB.  [90 % of free memory]",
    ),
)


@command(
    "time",
    examples=(
        "onnxledger time model.onnx --shape batch=1,sequence=128",
        "onnxledger time model.onnx --shape sequence=16:512:x2 -o growth.svg",
        "onnxledger time model.onnx --provider cuda --format json -o after.json",
        "onnxledger time exported/ --shape sequence=512 --new-tokens 256",
    ),
)
@click.argument("model", shell_complete=complete_files)
@feeding
@measuring
@grouping_nodes
@stamping
@answering("Timing")
def time(
    model: str, fed: _InputOptions, measured: _RunOptions, grouped: GroupOptions, stamp: bool, run: Run
) -> None:
    """How many milliseconds does each group of MODEL take?

    onnxruntime runs MODEL alternately without and with its profiler, which
    measures each kernel. Each kernel's time goes to the group whose nodes it
    computes. A sweep over an axis also shows how the groups grow. -o draws .svg
    and .png too. For a folder with the files of a generation loop (encoder,
    prefill, decode; or decoder_model, decoder_with_past_model), each file is
    timed alone: the time to the first token, and of each further one.
    """
    from analyzer.timing.inputs.sizes import parse_shapes

    grouped.check(of_nodes=True)
    settings, limits, shapes = measured.settings(), measured.limits(), parse_shapes(fed.shapes)
    files = find_models(model)
    is_loop = fed.new_tokens is not None or len(files) > 1
    if is_loop:
        fed.check_loop()
        run = replace(run, report=None)  # a loop has no picture
    run.guard(
        *list_inputs(model), *files.values(), *([] if fed.npz is None else [fed.npz]), *measured.libraries
    )
    stamped = time_stamp() if stamp else None
    if is_loop:
        run.emit(_time_loop(Path(model), files, fed, measured, grouped, stamped, run))
        return
    (path,) = files.values()
    ledger = run.audit(path)
    from analyzer.timing.timer import time_model

    with run.stages(f"timing {path.name}") as show_stage:
        timing = time_model(
            ledger,
            group_ledger(ledger, grouped),
            settings,
            own=grouped.own_groups(ledger),
            shapes=shapes,
            past=fed.past,
            npz=fed.npz,
            libraries=measured.libraries,
            limits=limits,
            progress=show_stage,
            stamp=stamped,
        )
    run.emit(_with_work(timing, ledger, run))


def _with_work(timing: Timing, ledger: Ledger, run: Run) -> Timing:
    from analyzer.cost.timed import with_work

    try:
        return with_work(timing, ledger)
    except OnnxLedgerError as error:  # the measured times are reported all the same
        run.notify(f"multiply-accumulates are not counted: {error}")
        return timing


def _time_loop(
    path: Path,
    files: Mapping[str, Path],
    input_options: _InputOptions,
    run_options: _RunOptions,
    grouped: GroupOptions,
    stamp: str | None,
    run: Run,
) -> GenerationTiming:
    """Time the files of a generation loop, one after the other.

    Raises:
        UsageError: the files are no loop, or their inputs cannot be made.
    """
    from analyzer.timing.generation import time_generation
    from analyzer.timing.inputs.sizes import parse_shapes

    ledgers = {name: run.audit(file) for name, file in files.items()}
    if len(files) == 1:
        (artifact,) = ledgers.values()
    else:
        artifact = run.audit(path, ReadOptions(artifact=True, max_objects=None))
    own = grouped.own_groups(artifact)
    grouping = group_ledger(artifact, grouped)
    with run.stages(f"timing {path.name}") as show_stage:
        timing = time_generation(
            artifact,
            ledgers,
            {name: _group_alike(ledger, grouping, own) for name, ledger in ledgers.items()},
            run_options.settings(),
            own=own,
            shapes=parse_shapes(input_options.shapes),
            new_tokens=input_options.new_tokens,
            libraries=run_options.libraries,
            limits=run_options.limits(),
            progress=show_stage,
            stamp=stamp,
        )
    components = (
        replace(each, timing=_with_work(each.timing, ledgers[each.name], run)) for each in timing.components
    )
    return replace(timing, components=tuple(components))


def _group_alike(ledger: Ledger, grouping: Grouping, own: OwnGroups | None) -> Grouping:
    """Group one file in the same way as all files together.

    Raises:
        UsageError: a regex takes too long.
    """
    from analyzer.account.group import group_by
    from analyzer.account.group.patterns import group_by_patterns

    if own is None:
        return group_by(ledger, grouping.by, grouping.depth)
    with search_clock(own.origin):
        return group_by_patterns(ledger, own.patterns, match=own.match, origin=own.origin)


def find_models(model: str) -> dict[str, Path]:
    """Return the files to time, by the names of their components: MODEL, or the files of a folder.

    Raises:
        UsageError: MODEL is a URL, has no models, or is a folder with several models that are no generation loop.
    """
    from analyzer.account.artifact import find_components
    from analyzer.model.ranges import is_url

    if is_url(model):
        raise UsageError(
            f"{model}: onnxruntime runs local files; download it, with its external data, and name that"
        )
    path = Path(model)
    if not path.is_dir():
        return {path.stem: path}
    files = find_components(path)
    if len(files) > 1:
        from analyzer.timing.generation import find_loop

        listed = f"name one of {', '.join(files.values())}"
        try:
            steps = find_loop(list(files))
        except UsageError as error:
            raise UsageError(f"{model}: {error}, or {listed}") from error
        if steps is None:
            raise UsageError(
                f"{model}: holds {len(files)} models; {listed}; they are not timed as a generation loop, because their "
                "names show no model for the prompt (prefill, decoder_model) and one for each token (decode, "
                "decoder_with_past_model)"
            )
    return {name: path / file for name, file in files.items()}
