"""`onnxledger time`: milliseconds per group on an execution provider."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from analyzer.commands.help import command, complete_files
from analyzer.commands.options import Grouped, bundle, grouping, parse_size, stamping, time_stamp
from analyzer.commands.run import Run, answering, group_ledger, list_inputs
from analyzer.errors import OnnxLedgerError, UsageError
from analyzer.timing.request import Optimization, Schedule

if TYPE_CHECKING:  # numpy and the whole analyzer, which `--help` does not need
    from analyzer.process.child import Limits
    from analyzer.timing.record import TimingSettings

_USUAL = Schedule()


@dataclass(frozen=True, slots=True)
class _Fed:
    """What the model is fed."""

    shapes: tuple[str, ...]
    past: int | None
    npz: Path | None


@dataclass(frozen=True, slots=True)
class _Measured:
    """Where it runs, how often, and what it may take."""

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
        """What is to be measured, in the library's terms.

        Raises:
            UsageError: there is no such provider, or an option of it is wrong.
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
        """What that may take.

        Raises:
            UsageError: the memory limit is no size.
        """
        from analyzer.process.child import Limits

        return Limits(
            self.timeout, None if self.memory is None else parse_size("--memory-limit", self.memory)
        )


feeding = bundle(
    "fed",
    _Fed,
    click.option(
        "--shape",
        "shapes",
        multiple=True,
        metavar="AXIS=N",
        help="Set sizes of axes: batch=8,sequence=128; sweep over one: sequence=16:512:x2.",
    ),
    click.option(
        "--past", type=click.IntRange(0), metavar="N", help="Put N tokens into a decoder's key-value cache."
    ),
    click.option(
        "--input",
        "npz",
        type=click.Path(path_type=Path),
        metavar="FILE.npz",
        help="Read inputs from FILE.npz, an array for each name; make the others.",
    ),
)


def _finite(context: click.Context, parameter: click.Parameter, seconds: float) -> float:
    """Seconds, unless they are NaN or infinite, which would be no limit."""
    if not math.isfinite(seconds):
        raise click.BadParameter(f"{seconds} is no time.", context, parameter)
    return seconds


def _seconds(name: str, most: float, text: str) -> Callable[[Any], Any]:
    positive = click.FloatRange(0, min_open=True)
    return click.option(name, type=positive, callback=_finite, default=most, metavar="S", help=text)


_MOST_SEED = (1 << 63) - 1
"""What onnxruntime takes."""

measuring = bundle(
    "measured",
    _Measured,
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
        help="Let onnxruntime optimize the graph this far.  [all]",
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
    _seconds("--timeout", 600.0, "Give up after S seconds.  [600]"),
    click.option(
        "--memory-limit",
        "memory",
        metavar="SIZE",
        help="Give up above this much memory, as 8GiB.  [nine tenths of what is free]",
    ),
)


@command(
    "time",
    examples=(
        "onnxledger time model.onnx --shape batch=1,sequence=128",
        "onnxledger time model.onnx --shape sequence=16:512:x2 -o growth.svg",
        "onnxledger time model.onnx --provider cuda --format json -o after.json",
    ),
)
@click.argument("model", shell_complete=complete_files)
@feeding
@measuring
@grouping
@stamping
@answering("Timing")
def time(model: str, fed: _Fed, measured: _Measured, grouped: Grouped, stamp: bool, run: Run) -> None:
    """How many milliseconds does each group of MODEL take?

    onnxruntime runs MODEL, by turns as it is and with its profiler, which tells
    how long each kernel takes. Each kernel's time goes to the group whose nodes
    it computes. A sweep over an axis also tells how the groups grow. -o draws
    .svg and .png too.
    """
    from analyzer.timing.inputs.sizes import parse_shapes

    grouped.check()
    settings, limits, shapes = measured.settings(), measured.limits(), parse_shapes(fed.shapes)
    path = find_model(model)
    run.guard(*list_inputs(model), path, *([] if fed.npz is None else [fed.npz]), *measured.libraries)
    ledger = run.audit(path)
    from analyzer.cost.timed import with_work
    from analyzer.timing.timer import time_model

    with run.stages(f"timing {path.name}") as tell:
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
            progress=tell,
            stamp=time_stamp() if stamp else None,
        )
    try:
        timing = with_work(timing, ledger)
    except OnnxLedgerError as error:  # what was measured is told all the same
        run.tell(f"multiply-accumulates are not counted: {error}")
    run.emit(timing)


def find_model(model: str) -> Path:
    """The one file that is meant: MODEL, or the only model file of a folder.

    Raises:
        UsageError: it is a URL, nothing, or a folder with several models.
    """
    from analyzer.account.artifact import find_components
    from analyzer.model.ranges import is_url

    if not model:
        raise UsageError("MODEL: an empty name names nothing; give a file or a folder")
    if is_url(model):
        raise UsageError(
            f"{model}: onnxruntime runs local files; download it, with its external data, and name that"
        )
    path = Path(model)
    if not path.is_dir():
        return path
    files = find_components(path)
    if len(files) > 1:
        raise UsageError(f"{model}: holds {len(files)} models; name one of {', '.join(files.values())}")
    return path / next(iter(files.values()))
