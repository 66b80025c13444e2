"""Ledger + a run by onnxruntime in a separate process -> the time of each group (`time`).

There are two measurements, which are never mixed: whole runs with profiling off, and each kernel with profiling on.
"""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from analyzer.account.group.patterns import OwnGroups
from analyzer.account.ledger import Grouping, Ledger
from analyzer.errors import LedgerError, TimingError
from analyzer.process.child import Limits
from analyzer.read import read_model
from analyzer.records import Frozen
from analyzer.text import printable
from analyzer.timing.attribution import (
    Membership,
    Origin,
    find_membership,
    find_origins,
    match_kernels,
    split_time,
    time_kernels,
    trace_compiled,
)
from analyzer.timing.inputs.feeds import Inputs, plan_feeds
from analyzer.timing.inputs.sizes import Shapes
from analyzer.timing.record import Point, Timing, TimingSettings
from analyzer.timing.request import Reply, Request, Run
from analyzer.timing.running.devices import environment
from analyzer.timing.running.isolated import Progress, run_isolated
from analyzer.timing.running.measure import summarize
from analyzer.timing.running.providers import provider_name

_REFUSED = {
    "external-escapes": "points outside of its folder",
    "external-missing": "is missing",
    "external-short": "is too short",
}
"""Findings on external data that keep a model from onnxruntime."""


def time_model(
    ledger: Ledger,
    grouping: Grouping,
    settings: TimingSettings | None = None,
    *,
    own: OwnGroups | None = None,
    shapes: Shapes | None = None,
    past: int | None = None,
    npz: Path | None = None,
    inputs: Sequence[Inputs] | None = None,
    libraries: Sequence[Path] = (),
    limits: Limits | None = None,
    progress: Progress | None = None,
    stamp: str | None = None,
) -> Timing:
    """Run a model, and measure the time of each of its groups.

    Args:
        ledger: the account of a model that is one local file.
        grouping: its groups by scope, block, stage or op; or by the user's patterns, which are then `own`.
        settings: provider, threads, optimization level, and when to stop.
        shapes: sizes of axes, and the axis that is swept.
        past: length of the key-value cache of a decoder.
        npz: a file with inputs; inputs that it lacks are made up.
        inputs: inputs of each point, if they were planned before.
        libraries: shared libraries of custom operators.
        limits: time and memory that running it may take.

    Raises:
        UsageError: the groups do not cover nodes, or the inputs cannot be made.
        TimingError: the model cannot be run, or not on the provider.
        LedgerError: the times of the groups do not sum up, a defect of onnxledger itself.
        MissingExtraError: onnxruntime is not installed.
    """
    settings, shapes = settings or TimingSettings(provider="cpu"), shapes or Shapes()
    membership = find_membership(ledger, grouping, own)
    if inputs is None:
        inputs = plan_feeds(ledger, shapes, past, npz)
    task = _Task(ledger, grouping, settings, own, membership, inputs)
    with tempfile.TemporaryDirectory(prefix="onnxledger-") as folder:
        reply = run_isolated(task.request(folder, npz, libraries), limits or Limits(), progress)
        points = task.points(reply)
    return task.timing(reply, points, None if shapes.sweep is None else shapes.sweep.key, stamp)


class _Task(Frozen):
    """One timing: a model, its groups, the settings and the inputs."""

    ledger: Ledger
    grouping: Grouping
    settings: TimingSettings
    own: OwnGroups | None
    membership: Membership
    inputs: Sequence[Inputs]

    def request(self, folder: str, npz: Path | None, libraries: Sequence[Path]) -> Request:
        """Return the request to the child process."""
        ledger, settings = self.ledger, self.settings
        return Request(
            model=str(_local_file(ledger)),
            name=str(ledger.model.path),
            points=tuple(planned.feeds for planned in self.inputs),
            provider=provider_name(settings.provider),
            folder=folder,
            npz=None if npz is None else str(npz.absolute()),
            seed=settings.seed,
            provider_options=settings.provider_options,
            threads=settings.threads,
            optimization=settings.optimization,
            libraries=tuple(str(library.absolute()) for library in libraries),
            schedule=settings.schedule,
            file_nbytes=ledger.file_nbytes,
        )

    def points(self, reply: Reply) -> tuple[Point, ...]:
        """Return the measurements of each length; the file of the optimized graph must still exist."""
        origins = _trace(self.ledger, reply)
        runs = zip(self.inputs, reply.runs, strict=True)
        return tuple(self._point(planned, run, reply, origins) for planned, run in runs)

    def _point(self, planned: Inputs, run: Run, reply: Reply, origins: Sequence[Origin | None]) -> Point:
        shape = len(run.kernels_us), len(reply.kernels)
        runs = np.array(run.kernels_us, dtype=np.float64).reshape(shape) / 1e3
        kernels = time_kernels(reply.kernels, runs.mean(axis=0).tolist(), origins, self.membership)
        split = split_time(kernels, runs, self.grouping, is_own=self.own is not None)
        latency, profiled = (
            summarize(times, self.settings.schedule.precision) for times in (run.latency_ns, run.profiled_ns)
        )
        point = Point(
            feeds=planned.feeds,
            latency=latency,
            profiled=profiled,
            parts=split.parts,
            unattributed_ms=split.unattributed_ms,
            overhead_ms=profiled.mean - float(runs.sum(axis=1).mean()),
            kernels=kernels,
            value=planned.value,
            axes=planned.axes,
            overlap_ms=split.overlap_ms,
            ungrouped=split.ungrouped,
            held_nbytes=run.held_nbytes,
            clock=reply.kernel_clock,
        )
        _check_sum(point)
        return point

    def timing(self, reply: Reply, points: tuple[Point, ...], axis: str | None, stamp: str | None) -> Timing:
        """Return the report; `axis` is the swept one."""
        ledger, provider = self.ledger, provider_name(self.settings.provider)
        return Timing(
            ledger=ledger,
            path=str(ledger.model.path),
            grouping=self.grouping,
            settings=self.settings,
            environment=environment(self.settings, reply, provider, _precision(ledger)),
            points=points,
            axis=axis,
            parameters=ledger.parameters,
            file_nbytes=ledger.file_nbytes,
            stamp=stamp,
        )


def _local_file(ledger: Ledger) -> Path:
    """Return the file that onnxruntime may open.

    Raises:
        TimingError: it is remote, or its external data is missing or must not be opened.
    """
    model = ledger.model
    name = printable(str(model.path))
    if model.traffic is not None:
        raise TimingError(
            f"{name}: runs only from a local file; download it with its external data, and name that"
        )
    for finding in ledger.findings:
        if finding.id in _REFUSED:
            raise TimingError(
                f"{name}: cannot be run: external data {_REFUSED[finding.id]}: {printable(finding.message)} "
                f"[{finding.id}]; put the files that it needs beside it"
            )
    path = Path(model.path)
    return (path / model.files[0].path if path.is_dir() else path).absolute()


def _trace(ledger: Ledger, reply: Reply) -> list[Origin | None]:
    """Return the nodes of the file that each kernel computes; None if it is in no graph that could be read."""
    if reply.optimized is None:
        return list(trace_compiled(ledger.model, reply.kernels, reply.assigned))
    ran = read_model(reply.optimized)
    origins = find_origins(ledger.model, ran)
    places = match_kernels(reply.kernels, ran.graphs[0].nodes)
    return [None if place is None else origins[place] for place in places]


def _check_sum(point: Point) -> None:
    """Raise an error unless the lines sum up to the profiled run."""
    ungrouped = point.ungrouped.ms if point.ungrouped is not None else 0.0
    found = math.fsum((*(part.ms for part in point.parts), -point.overlap_ms, ungrouped))
    found += point.unattributed_ms + point.overhead_ms
    if not math.isclose(found, point.profiled.mean, rel_tol=1e-6, abs_tol=1e-6):
        raise LedgerError(
            f"times of groups do not sum up to the run's: {found} ms, not {point.profiled.mean}"
        )


def _precision(ledger: Ledger) -> list[tuple[str, float]]:
    """Return the dtypes that the parameters are stored in, and the share of each."""
    counts: Counter[str] = Counter()
    for entry in ledger.entries:
        counts[entry.tensor.dtype.name] += entry.parameters
    return [(dtype, count / ledger.parameters) for dtype, count in counts.most_common() if count]
