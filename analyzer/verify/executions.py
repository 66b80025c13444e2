"""Ledger and two ways to run its file -> a verification: whether both agree, and if not, where they part.

onnxruntime rewrites a graph before it runs it, by its level of optimization and for each execution provider. Values
whose names both graphs still have are compared directly, in the order of the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from analyzer.account.ledger import Ledger
from analyzer.errors import TimingError, UsageError
from analyzer.model.content import Array
from analyzer.process.child import Limits
from analyzer.records import replace
from analyzer.text import format_many, printable
from analyzer.timing.inputs.sizes import Shapes
from analyzer.timing.request import CPU
from analyzer.timing.running.providers import short_name
from analyzer.verify.against import Bench, Known, Reading, half_of, is_coded
from analyzer.verify.agreement import Tolerance, decibel
from analyzer.verify.files import edges_of
from analyzer.verify.inputs import GivenInputs
from analyzer.verify.messages import PLAIN, Execution, OptimizedAnswer, ValueDifference
from analyzer.verify.record import (
    Agreement,
    Difference,
    Executed,
    First,
    Pairing,
    Verdict,
    VerifyReport,
)
from analyzer.verify.reference import FileSide, subgraphs_of
from analyzer.verify.running import Runner, Subject
from analyzer.verify.verify import local_path, name_node

_HALF = Tolerance(margin=4.0, step=2.0**-10)
_CODED = Tolerance(margin=4.0)
_SHAKEN_CODES = 2.0**-18
"""Relative amount by which each number is moved where values are rounded to codes: 32 units in the last place, so that
at least as many codes flip as between two orders of a sum."""


def verify_executions(
    ledger: Ledger,
    ours: Execution,
    theirs: Execution = PLAIN,
    shapes: Shapes | None = None,
    seeds: Sequence[int] = (0, 1, 2),
    limits: Limits | None = None,
    stamp: str | None = None,
    given: GivenInputs | None = None,
) -> VerifyReport:
    """Run one file in two ways on the same inputs, and compare outputs; where they differ, find the first module.

    The file runs as it is: with its codes and its half precision.

    Args:
        ledger: ledger of the file.
        ours: how MODEL runs.
        theirs: how the other side runs.
        shapes: sizes of axes.
        seeds: seeds of inputs, a run each.
        limits: limits of all runs together.
        stamp: time of the report.
        given: inputs that are read; those that it lacks are made.

    Raises:
        TimingError: a provider is not there, or the file does not run on it, or not within the limits.
        UsageError: inputs cannot be made, or the two ways are the same.
    """
    if ours == theirs:
        raise UsageError(
            f"both runs of the file have {ours.description}; name another --optimization or --provider"
        )
    own = Subject(local_path(ledger))
    with Runner(limits or Limits()) as runner:
        ways = [_Way(runner, own, execution) for execution in (ours, theirs)]
        npz = None if given is None else given.npz
        side = FileSide(ledger, runner, own, own, edges_of(ledger), shapes, npz)
        side.execution = theirs
        side.perturbation = _SHAKEN_CODES if is_coded(ledger) else side.perturbation
        bench = _WayBench(ledger, side, runner, ways)
        if given is not None:
            bench.files = given.files
            if side.is_given:
                bench.use_inputs(given)
        path = str(ledger.model.path)
        report = bench.verify(f"{path} with {theirs.description}", seeds, [*bench.notes()], None, stamp)
    return replace(report, executions=(ways[0].executed, ways[1].executed))


class _Way:
    """One way to run the file."""

    def __init__(self, runner: Runner, own: Subject, execution: Execution) -> None:
        self.execution, self._own = execution, own
        self.inner, self.inside = own, execution
        """File that gives inner values, and how it runs: if possible onnxruntime's rewritten graph, run plainly."""
        self.graph = OptimizedAnswer([], is_written=False, assigned={})
        if execution != PLAIN:
            subject, self.graph = runner.optimize(own, execution)
            if self.graph.is_written and execution.provider == CPU:
                self.inner, self.inside = subject, PLAIN

    def use_original(self) -> None:
        """Take inner values from the original file, with these values made outputs."""
        self.inner, self.inside = self._own, self.execution

    @property
    def is_rewritten(self) -> bool:
        """Whether inner values come from the graph that runs, and not from the file with these values made outputs."""
        return self.inside == PLAIN

    @property
    def names(self) -> frozenset[str] | None:
        """Names of the values in that graph; None where it has all values of the file."""
        if self.inside != PLAIN or not self.graph.is_written:
            return None
        return frozenset(name for _, outputs, _ in self.graph.edges for name in outputs if name)

    def maker(self, name: str) -> str:
        """Return the operator that makes a value in the graph that runs; empty where unknown."""
        return next((op_type for _, outputs, op_type in self.graph.edges if name in outputs), "")

    @property
    def executed(self) -> Executed:
        """Record of this execution for the report."""
        nodes = len(self.graph.edges) if self.graph.is_written else None
        return Executed(self.execution.optimization, short_name(self.execution.provider), nodes)


class _WayBench(Bench):
    """One file, run in two ways."""

    there = "the other run"
    side: FileSide

    def __init__(self, ledger: Ledger, side: FileSide, runner: Runner, ways: Sequence[_Way]) -> None:
        super().__init__(ledger, side, runner, side.own.path, Known())
        self._ours, self._theirs = ways
        self.execution = self._ours.execution
        self.tolerance = _HALF if half_of(ledger) else _CODED if is_coded(ledger) else Tolerance()

    def notes(self) -> Iterator[str]:
        """Yield sentences about gaps of the two runs, whatever their result."""
        for way in (self._ours, self._theirs):
            provider, assigned = way.execution.provider, way.graph.assigned
            if provider != CPU and assigned and not assigned.get(provider):
                elsewhere = ", ".join(map(short_name, sorted(assigned)))
                yield f"{short_name(provider)}: it took no node of this file, and all nodes ran on {elsewhere}"
            if not way.is_rewritten:
                yield (
                    f"inner values as in a plain run on {short_name(provider)}: the compared values were made outputs, "
                    "and onnxruntime fuses nothing across outputs"
                )

    def other_readings(self) -> Iterator[Reading]:
        """Yield no other reading: both runs are of one file."""
        yield from ()

    def look_inside(self, *, is_apart: bool) -> tuple[list[Pairing], First | None, Difference | None]:
        """Compare the values that both graphs have, by module; where outputs differ, add the first that differs."""
        feeds = self.feeds[self.worst_run]
        try:
            found = dict(self._compare_inner(self._shared(), feeds))
        except TimingError:  # onnxruntime cannot load every graph that it has written
            for way in (self._ours, self._theirs):
                way.use_original()
            found = dict(self._compare_inner(self._shared(), feeds))
            self.codes.append(
                "inner values as in a plain run: onnxruntime does not run the graph that it wrote, so the compared "
                "values were made outputs, and it fuses nothing across outputs"
            )
        first = next((name for name, each in found.items() if each.verdict is Verdict.DIFFERS), None)
        modules = [each for each in subgraphs_of(self.side.calls) if each.made is not None]
        rows, missing = [], 0
        for module in modules:
            assert module.made is not None
            name = self.side.calls[module.made].outputs[0]
            if name in found:
                rows.append(Pairing(name, name, "", module.class_name, module.module, found[name]))
            missing += name not in found
        if missing:
            many = format_many(len(modules), "module")
            self.codes.append(
                f"results of {missing} of {many}: onnxruntime fused these modules, so their values do not exist"
            )
        return rows, self._describe_first(first, found[first]) if is_apart and first else None, None

    def look_at_choices(
        self, outputs: dict[str, Agreement], first: First | None, differences: tuple[Difference, ...]
    ) -> tuple[dict[str, Agreement], First | None, tuple[Difference, ...]]:
        """Return the arguments: both runs share the file's choices, and inner values show their results."""
        return outputs, first, differences

    def _shared(self) -> list[str]:
        """Return the names of the values that both runs have."""
        known = [way.names for way in (self._ours, self._theirs)]
        return [name for name in self._names() if all(each is None or name in each for each in known)]

    def _compare_inner(
        self, names: Sequence[str], feeds: Mapping[str, Array]
    ) -> Iterator[tuple[str, Agreement]]:
        ours, theirs = self._ours, self._theirs
        differences = self.runner.compare_values(
            ours.inner, theirs.inner, names, feeds, (ours.inside, theirs.inside)
        )
        perturbed = self.runner.rewrite(theirs.inner, {}, perturbation=self.side.perturbation)
        ways = (theirs.inside, theirs.inside)
        noise = self.runner.compare_values(perturbed, theirs.inner, names, feeds, ways)
        kernels = (
            self.runner.compare_values(theirs.inner, theirs.inner, names, feeds, ways, coarse=True)
            if self.is_coarse
            else {}
        )
        for name in names:
            if name in differences:
                yield (
                    name,
                    self._judge(
                        differences[name], noise.get(name), kernels.get(name), self.depths.get(name, 1)
                    ),
                )

    def _judge(
        self,
        difference: ValueDifference,
        perturbation: ValueDifference | None,
        coarse: ValueDifference | None,
        depth: int,
    ) -> Agreement:
        noise = max(
            self.tolerance.noise(difference.size, depth), 0.0 if perturbation is None else perturbation.error
        )
        kernels = 0.0 if coarse is None else coarse.error
        is_near = difference.error <= self.tolerance.margin * noise + 2 * kernels
        is_same = not difference.lost and not difference.gained and is_near
        noise = max(noise, kernels)
        verdict = Verdict.SAME if is_same else Verdict.DIFFERS
        if difference.lost or difference.gained:
            return Agreement(None, None, None, verdict)
        return Agreement(
            difference.worst,
            decibel(difference.size, difference.error),
            decibel(difference.size, noise),
            verdict,
        )

    def _describe_first(self, name: str, found: Agreement) -> First:
        node = self.makers[name]
        detail = "numbers are finite in one of the two runs only"
        if found.signal_to_error_db is not None and found.noise_db is not None:
            detail = f"{found.signal_to_error_db:.0f} dB signal to error, where rounding leaves {found.noise_db:.0f} dB"
        operators = [
            f"{maker} at {way.execution.description}"
            for way in (self._ours, self._theirs)
            if (maker := way.maker(name)) and maker != node.op_type
        ]
        replacement = f"; made by {' and '.join(operators)}" if operators else ""
        reason = f"{node.op_type} {printable(name_node(node))}: {detail}{replacement}"
        return First(self.ledger.node_scopes.get(node.place) or None, name_node(node), reason)
