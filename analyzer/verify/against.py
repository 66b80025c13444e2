"""Ledger and PyTorch's side -> a verification: outputs on the same inputs, first module that parts, and cause."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from analyzer.account.ledger import Ledger
from analyzer.errors import ExportError, TimingError
from analyzer.model import Graph, GraphPath, Node, Place, StoredTensor
from analyzer.model.content import Array
from analyzer.model.dtypes import DType, round_to_half
from analyzer.model.wiring import NAMED
from analyzer.process.child import Limits
from analyzer.records import Frozen, field, replace
from analyzer.text import format_many, printable, shorten
from analyzer.verify.agreement import Tolerance, compare_values, decibel, worst
from analyzer.verify.arrays import as_array
from analyzer.verify.causes import NORMS, find_cause
from analyzer.verify.choices import (
    COMPARING,
    Bend,
    Choice,
    ConstantNodes,
    find_bends,
    find_choices,
    find_single_output_nodes,
    find_thresholds,
    find_unread,
    is_bent_there,
    is_chosen_there,
    is_constant_there,
    is_explained,
    keeps_order,
)
from analyzer.verify.costs import Exchange, Sides, drift_between, measure_costs
from analyzer.verify.inputs import GivenInputs
from analyzer.verify.messages import COARSE, PLAIN, QuantizerAnswer, TwinAnswer
from analyzer.verify.parting import (
    Cause,
    Parted,
    Pass,
    Seen,
    find_parted,
    makers_of,
    mark_bad_calls,
    record_pass,
)
from analyzer.verify.prints import (
    HUGE,
    Finder,
    Print,
    is_like,
    noise_between,
    print_of,
    scale_between,
)
from analyzer.verify.quantizers import Judge, combine_runs, contradicted, find_odd_biases, find_shared_biases
from analyzer.verify.reading import PRODUCTS, Edge, Odd, Reader
from analyzer.verify.record import (
    LACKING,
    Agreement,
    Costs,
    Difference,
    Fed,
    First,
    Pairing,
    Verdict,
    VerifyReport,
)
from analyzer.verify.running import Runner, Subject
from analyzer.verify.side import Call, Side, Value
from analyzer.verify.verify import local_path, measure_depths, name_node

_LOST = Agreement(None, None, None, Verdict.NOT_COMPARED)
_HALF = ("FLOAT16", "BFLOAT16")
_EPSILON = 1e-5
"""Default epsilon of a norm, for nodes without one, in all versions of ONNX."""
_OFF = Verdict.DIFFERS
_INNER: Mapping[str, tuple[float, ...]] = {
    "gelu": (math.sqrt(2), math.sqrt(0.5), math.sqrt(2 / math.pi), 0.044715),
    "log2": (math.log(2),),
    "log10": (math.log(10),),
    "rad2deg": (180 / math.pi,),
    "deg2rad": (math.pi / 180,),
}
"""Numbers inside functions of PyTorch that exporters write as constants."""
_DOUBT = 12.0
"""Decibels (two bits) that a quantizer must lose before it is reported as one that cannot be judged."""
_NOTHING = 1.0
"""Signal to error, in dB, of an output of which nothing is left: zeros in its place have 0 dB."""
_WEAK = 3
"""Number of judged calls from which a tried cause must explain two to outweigh a cause that is read from the graph."""
WEIGHED = 3
"""Number of runs whose values quantizers are compared with."""
DEAD = "no output depends on it"
"""Text for a parameter that the file holds without use; the reason must still be found."""
SWAPPED = "it is read in place of another tensor"
"""Text for a parameter whose values the file has, but reads in another's place."""
NOWHERE = "[nowhere]"
"""Name for a value that the file does not have."""
ROOT = "[root]"
"""Name for the whole module, where no submodule is meant."""


class Known(Frozen):
    """Facts of the reconciliation that help to judge outputs."""

    suspects: Mapping[str, str] = field(default_factory=dict)
    """Parameters and buffers whose values in the file are not PyTorch's, each with the reason."""
    unexplained: Mapping[str, str] = field(default_factory=dict)
    """Stored tensors that nothing in PyTorch explains, each with the reason."""
    stored_names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Stored tensors of each parameter and buffer."""


def verify_module(
    ledger: Ledger,
    side: Side,
    against: str,
    seeds: Sequence[int] = (0, 1, 2),
    limits: Limits | None = None,
    notes: Sequence[str] = (),
    known: Known | None = None,
    exchange: Exchange | None = None,
    stamp: str | None = None,
    given: GivenInputs | None = None,
) -> VerifyReport:
    """Run a file and its module on the same inputs, and compare outputs; where they differ, find where and why.

    A file with codes or half precision runs as its float twin, which is then compared with the file as it is. Rounding
    is measured: the module also computes in double precision.

    Args:
        ledger: ledger of the file.
        side: the module, with the weights that the file holds.
        against: name of the module, for the report.
        seeds: seeds of inputs, a run each; the last run has a batch of one, and shorter inputs.
        limits: limits of all runs of the file.
        notes: further sentences about cases that these runs do not show.
        known: facts of the reconciliation.
        exchange: the file's tensors that the module was given; None where costs of rounding are not measured.
        stamp: time of the report.
        given: inputs that are read; None where they are made.

    Raises:
        ExportError: forward fails.
        TimingError: the file does not run, or not within the limits.
        UsageError: the model is not one local file.
    """
    with Runner(limits or Limits()) as runner:
        bench = Bench(ledger, side, runner, local_path(ledger), known or Known())
        bench.use_inputs(given)
        bench.open_twin()
        return bench.verify(against, seeds, notes, exchange, stamp)


class Reading(Frozen):
    """One possible meaning of a file with codes or half precision."""

    rectifies: bool
    """Whether a quantizer whose codes begin at zero cuts off negative numbers."""
    rounds: str
    """Type that numbers in the module's code are rounded to; empty where none are."""
    exact: frozenset[float] = frozenset()
    """Numbers that stay unrounded all the same."""


def _nearness(outputs: Mapping[str, Agreement]) -> tuple[int, float]:
    """Return how near outputs are: the number that are the same, then the least signal to error of the others."""
    same = sum(found.verdict is Verdict.SAME for found in outputs.values())
    errors = [
        found.signal_to_error_db or 0.0 for found in outputs.values() if found.verdict is not Verdict.SAME
    ]
    return same, min(errors, default=math.inf)


class Bench:
    """File and the side that it is compared with, at work."""

    there = "PyTorch"
    """Name of the other side in messages."""

    def __init__(self, ledger: Ledger, side: Side, runner: Runner, path: Path, known: Known) -> None:
        self.ledger, self.side, self.runner, self.known = ledger, side, runner, known
        self.graph: Graph = ledger.model.graphs[0]
        self.own = Subject(path)
        self.subject = self.own
        """Subject that is compared with PyTorch: the file, or its float twin."""
        self.twin: TwinAnswer | None = None
        self.refused = ""
        self.depths = measure_depths(self.graph)
        self.half = half_of(ledger)
        self.fed: list[Fed] = []
        self.failed: list[str] = []
        self.lacking = 0
        """Number of PyTorch's outputs that the file does not have."""
        self.unfit: list[str] = []
        """Sizes that the file declares and the other side takes, each with the reason why the file does not run."""
        self.emptied: list[str] = []
        """Outputs of which dynamic quantizers leave nothing, each with the signal to error."""
        self.feeds: list[dict[str, Array]] = []
        self.worst_run = 0
        self.makers = {name: node for node in self.graph.nodes for name in node.outputs}
        self.readers: dict[str, list[Node]] = {}
        for node in self.graph.nodes:
            for name in node.inputs:
                self.readers.setdefault(name, []).append(node)
        self.is_apart = False
        self.read_inputs: Mapping[str, Array] = {}
        """Inputs that are read from files, all of them; empty where inputs are made."""
        self.files: Mapping[str, str] = {}
        """File that each of these inputs was read from."""
        self.differing_outputs = set[str]()
        """Names of the outputs that differ."""
        self.codes: list[str] = []
        """Sentences about cases that remain untested: quantizers, choices, inner values."""
        self.reading = Reading(rectifies=True, rounds="")
        """Current reading of the file."""
        self.restored: tuple[float, ...] = ()
        """Numbers that the float twin has in place of their roundings."""
        self.execution = PLAIN
        self.tolerance = Tolerance()
        self.side.carrier = self.half
        self._collect_unexplained()
        self.finder = Finder({})
        self.is_between = False
        """Whether the unexplained tensor stands between right values and the weights of the calls that part."""
        self.odd: Odd | None = None
        """Oddity before the weights of the call that parts, as far as the graph alone shows it."""

    def use_inputs(self, given: GivenInputs | None) -> None:
        """Use inputs that were read from files.

        Raises:
            UsageError: inputs are missing, or not the file's.
        """
        if given is not None:
            self.read_inputs, self.files = given.arrays(self.ledger), given.files

    def verify(
        self,
        against: str,
        seeds: Sequence[int],
        notes: Sequence[str],
        exchange: Exchange | None,
        stamp: str | None,
    ) -> VerifyReport:
        """Compare outputs, and where they differ, find where and why; arguments and errors as of `verify_module`."""
        outputs = self.compare_outputs(seeds)
        is_apart = any(found.verdict is Verdict.DIFFERS for found in outputs.values())
        if is_apart and self.twin is not None and (restored := self.find_inner_numbers()):
            self.restored = restored
            self.open_twin(rectify=self.reading.rectifies)
            self.fed, self.worst_run = [], 0
            outputs = self.compare_outputs(seeds)
            is_apart = any(found.verdict is Verdict.DIFFERS for found in outputs.values())
        for other in self.other_readings() if is_apart else ():
            outputs = self.compare_again(seeds, outputs, other)
            is_apart = any(found.verdict is Verdict.DIFFERS for found in outputs.values())
            if not is_apart:
                break
        self.is_apart = is_apart
        self.differing_outputs = {name for name, found in outputs.items() if found.verdict is Verdict.DIFFERS}
        values, first, cause = self.look_inside(is_apart=is_apart)
        differences: tuple[Difference, ...] = () if cause is None else (cause,)
        if not is_apart and self.twin is not None:
            outputs, first, differences = self.look_at_codes(outputs)
        if all(found.verdict is Verdict.SAME for found in outputs.values()):
            outputs, first, differences = self.look_at_choices(outputs, first, differences)
        costs = None if is_apart or exchange is None else self.measure_costs(exchange)
        drift = None if exchange is None or exchange.is_made_up else self.measure_drift(exchange)
        if exchange is not None and exchange.tensors and (costs is None or exchange.original is None):
            self.codes.append(
                f"the cost of rounded weights: {self.there} computes with the file's, not those of {against}"
            )
        return VerifyReport(
            path=str(self.ledger.model.path),
            against=against,
            outputs=tuple(self.pair(name, found) for name, found in outputs.items()),
            values=tuple(values),
            first=first,
            checked=len(values),
            differences=differences,
            inputs=tuple(self.fed),
            costs=costs,
            drift_db=drift,
            unfit=tuple(dict.fromkeys(self.unfit)),
            emptied=tuple(self.emptied),
            uncovered=(
                *notes,
                *self.uncovered(),
                *(f"a run that failed: {each}" for each in dict.fromkeys(self.failed)),
            ),
            stamp=stamp,
        )

    def look_inside(self, *, is_apart: bool) -> tuple[Sequence[Pairing], First | None, Difference | None]:
        """Return the result of `find_first` where outputs differ, else nothing."""
        return self.find_first() if is_apart else ((), None, None)

    # The twin

    def open_twin(self, *, rectify: bool = True) -> None:
        """Make the float twin, if the file has codes or half precision."""
        if not is_coded(self.ledger) and not self.half:
            return
        subject, twin = self.runner.make_twin(
            self.own.path, self.half, rectify=rectify, restored=self.restored
        )
        if twin.refused:
            self.refused = twin.refused
            return
        self.subject, self.twin = subject, twin
        depths: dict[str, int] = {}
        for inputs, outputs, _ in twin.edges:
            depth = 1 + max((depths.get(name, 0) for name in inputs), default=0)
            depths.update(dict.fromkeys(outputs, depth))
        self.depths = depths
        self._collect_unexplained_twin()

    def other_readings(self) -> Iterator[Reading]:
        """Yield the other possible readings: quantizers that cut nothing, numbers rounded as the file's are."""
        if self.twin is None:
            return
        cuts = (True, False) if self.twin.rectified else (True,)
        for rounds, exact in (("", frozenset[float]()), *self._roundings()):
            for rectifies in cuts:
                if (rectifies, rounds) != (True, ""):
                    yield Reading(rectifies, rounds, exact)

    def _roundings(self) -> tuple[tuple[str, frozenset[float]], ...]:
        """Return how a half-precision file may hold the numbers in the module's code: all rounded, but for some.

        An epsilon may be an attribute, which no tool rounds, beside a scale that is stored and rounded. Where the file
        has a number both ways, it is unknown which of them is the module's.
        """
        if not self.half:
            return ()
        exact, rounded = self._exact_numbers()
        doubtful = {n for n in exact if (near := round_to_half(n, self.half)) != n and near in rounded}
        return tuple((self.half, kept) for kept in dict.fromkeys((exact, exact - doubtful)))

    def _exact_numbers(self) -> tuple[frozenset[float], frozenset[float]]:
        """Return the scalars that the file has in single precision (attributes too), and those in half precision."""
        exact, rounded = set[float](), set[float]()
        for graph in self.ledger.model.graphs:
            for node in graph.nodes:
                exact.update(value for value in node.settings.values() if isinstance(value, float))
                if node.op_type in NORMS and "epsilon" not in node.settings:
                    exact.add(_EPSILON)
            for tensor in graph.tensors:
                array = tensor.payload.array() if tensor.numel == 1 and tensor.dtype.is_floating else None
                if array is not None:
                    number = float(array.reshape(-1)[0])
                    (rounded if tensor.dtype.name in _HALF else exact).add(number)
        finite = {n for n in exact if abs(n) < HUGE}
        return frozenset(float(np.float32(n)) for n in finite), frozenset(rounded)

    def find_inner_numbers(self) -> tuple[float, ...]:
        """Return the numbers inside functions that PyTorch calls, such as the root of 2 in GELU, that the file rounds.

        Only the file has them as numbers, so that PyTorch cannot compute with their roundings. A rounding that is also
        an argument of a call stays.
        """
        stored = self._exact_numbers()[1] if self.half else frozenset[float]()
        numbers = {each for inner in _INNER.values() for each in inner}
        if stored.isdisjoint(round_to_half(each, self.half) for each in numbers):
            return ()
        operators, arguments = set[str](), set[float]()

        def note(call: Call, _: Sequence[Value]) -> None:
            operators.add(call.operator)
            arguments.update(call.numbers)

        self.side.record(self.feeds[0], note)
        return tuple(
            number
            for operator in sorted(operators & _INNER.keys())
            for number in _INNER[operator]
            if (near := round_to_half(number, self.half)) in stored and near not in arguments
        )

    def compare_again(
        self, seeds: Sequence[int], before: dict[str, Agreement], reading: Reading
    ) -> dict[str, Agreement]:
        """Compare under another reading of the file; keep the old reading unless the new one is nearer."""
        kept = self.subject, self.twin, self.depths, list(self.fed), self.worst_run, self.reading, self.feeds
        self.read_as(reading)
        self.fed, self.worst_run = [], 0
        outputs = self.compare_outputs(seeds)
        if _nearness(outputs) <= _nearness(before):
            self.subject, self.twin, self.depths, self.fed, self.worst_run, self.reading, self.feeds = kept
            self._round(self.reading.rounds, self.reading.exact)
            return before
        return outputs

    def read_as(self, reading: Reading) -> None:
        """Take up a reading of the file."""
        if self.twin is not None and self.twin.rectified:
            self.open_twin(rectify=reading.rectifies)
        self.reading = reading
        self._round(reading.rounds, reading.exact)

    def _round(self, half: str, exact: frozenset[float]) -> None:
        self.side.round_numbers(half, exact, self._exact_numbers()[1] if half else ())

    # Outputs

    def compare_outputs(self, seeds: Sequence[int]) -> dict[str, Agreement]:
        """Return the worst result of all runs, by output; report and skip a later run that fails on either side."""
        found: dict[str, Agreement] = {}
        self.feeds = []
        start = time.monotonic()
        for at, (seed, planned) in enumerate(self._plan(seeds)):
            if at > len(seeds) and (time.monotonic() - start) / at * (at + 1) > _MOST_SECONDS:
                self.failed.append(f"run {at + 1} would bring all runs beyond {_MOST_SECONDS:.0f} s")
                break
            if at and not self._is_declared(planned):
                continue
            try:
                feeds, made = self._compare_either(seed, planned)
            except _RefusedSizesError as error:
                if not at:
                    raise
                self.unfit.append(f"{_sizes(planned)}: {error}")
                continue
            except (ExportError, TimingError) as error:
                if not at:
                    raise
                self.failed.append(f"{_sizes(planned)}: {error}")
                continue
            self.feeds.append(feeds)
            self.fed += [
                Fed(name, each.dtype.name, tuple(each.shape), seed, self.files.get(name))
                for name, each in feeds.items()
            ]
            for name, each in made.items():
                before = found.get(name)
                found[name] = worst(before, each)
                is_new = before is not None and before.verdict is Verdict.SAME
                if is_new and each.verdict is Verdict.DIFFERS and not self.worst_run:
                    self.worst_run = len(self.feeds) - 1
        if self.unfit:
            for name, each in found.items():
                if each.verdict is Verdict.SAME:
                    found[name] = replace(each, verdict=Verdict.NOT_COMPARED)
        return found

    def _is_declared(self, feeds: Mapping[str, Array]) -> bool:
        """Whether the file declares inputs of these sizes: its fixed dims, and one size for all axes of the same name.

        A name that already has two sizes in the first run tells nothing.
        """
        first, current = self._named_sizes(self.feeds[0] if self.feeds else {}), self._named_sizes(feeds)
        if any(len(sizes) > 1 and len(first.get(name, ())) <= 1 for name, sizes in current.items()):
            return False
        return all(
            len(shape) == len(value.sizes)
            and not any(
                isinstance(dim, int) and dim != size for dim, size in zip(value.sizes, shape, strict=True)
            )
            for value in self.graph.signature
            if value.dims is not None and value.name in feeds
            for shape in [feeds[value.name].shape]
        )

    def _named_sizes(self, feeds: Mapping[str, Array]) -> dict[str, set[int]]:
        """Return the sizes that each axis name stands for."""
        found: dict[str, set[int]] = {}
        for value in self.graph.signature:
            if value.dims is not None and value.name in feeds:
                for dim, size in zip(value.sizes, feeds[value.name].shape, strict=False):
                    if isinstance(dim, str) and dim:
                        found.setdefault(dim, set()).add(size)
        return found

    def _plan(self, seeds: Sequence[int]) -> Iterator[tuple[int, dict[str, Array]]]:
        """Yield the seed and the inputs of each run: each seed, the last one with other sizes.

        With several seeds, runs with length one, with the greatest length, and with unseen rows of tables follow.
        """
        if self.read_inputs:
            yield seeds[0], dict(self.read_inputs)
            return
        kinds = self.side.kinds
        for at, seed in enumerate(seeds):
            is_small = 0 < at == len(seeds) - 1 and "small" in kinds
            yield seed, self.side.feeds(seed, "small" if is_small else "example")
        if len(seeds) > 1:
            for kind in ("single", "long"):
                if kind in kinds:
                    yield seeds[1], self.side.feeds(seeds[1], kind)
        at = 0 if len(seeds) > 1 else _NEVER
        while (feeds := self.side.make_covering_inputs(at)) is not None:
            yield seeds[0], feeds
            at += 1

    def _compare_either(
        self, seed: int, feeds: dict[str, Array]
    ) -> tuple[dict[str, Array], dict[str, Agreement]]:
        """Compare on these inputs, or, where forward fails on them, with the integers of the example."""
        try:
            return feeds, self._compare_once(feeds)
        except ExportError:
            whole = {} if self.read_inputs else self.side.feeds(seed, "whole")
            shapes = {name: each.shape for name, each in feeds.items()}
            if shapes != {name: each.shape for name, each in whole.items()} or all(
                np.array_equal(each, whole[name]) for name, each in feeds.items()
            ):
                raise
            return whole, self._compare_once(whole)

    def _compare_once(self, feeds: Mapping[str, Array]) -> dict[str, Agreement]:
        ours = self.side.run(feeds)
        exact = self._again(feeds)
        try:
            theirs = self.runner.run(self.subject, self.graph.outputs, feeds, execution=self.execution)
        except TimingError as error:
            message = str(error)
            if _DOES_NOT_RUN in message and not any(each in message.lower() for each in _OF_MEMORY):
                node = _AT_NODE.search(message)
                rest = shorten(message.partition(_DOES_NOT_RUN)[2], _NODE)
                where = rest if node is None else f"{node[2]} node {node[1]}"
                raise _RefusedSizesError(where) from error
            raise
        places = match_outputs([*self.graph.outputs], theirs, ours)
        self.lacking = len(ours) - len(places)
        agreements = {}
        coarse: dict[str, Array] = {}
        for name in self.graph.outputs:
            place = places.get(name)
            if place is None or name not in theirs:
                agreements[name] = _LOST
                continue
            other = exact[place][1] if len(exact) == len(ours) else None
            expected, actual = ours[place][1], theirs[name]
            if expected.dtype != actual.dtype and expected.dtype.kind == actual.dtype.kind == "f":
                actual = actual.astype(expected.dtype)
            depth = self.depths.get(name, 1)
            found = compare_values(expected, actual, other, depth, self.tolerance)
            if found.verdict is Verdict.DIFFERS and self.is_coarse:
                coarse = coarse or self._coarse(feeds)
                found = compare_values(expected, actual, other, depth, self.tolerance, coarse.get(name))
            if self.refused and found.verdict is Verdict.DIFFERS:  # how much the codes round off is unknown
                found = Agreement(
                    found.max_abs_error, found.signal_to_error_db, found.noise_db, Verdict.NOT_COMPARED
                )
            agreements[name] = replace(found, max_abs_error=None) if name in self.texts else found
        return agreements

    @cached_property
    def texts(self) -> frozenset[str]:
        """Outputs that are texts: the numbers that stand for them have no distance."""
        return frozenset(value.name for value in self.graph.results if value.dtype is DType.STRING)

    def _coarse(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Return the outputs of kernels with their largest possible error."""
        outputs = self.graph.outputs
        return self.runner.run(self.subject, outputs, feeds, execution=self.execution, coarse=True)

    @property
    def is_coarse(self) -> bool:
        """Whether kernels may be off by more than rounding."""
        return any(op_type in COARSE for *_, op_type in self._edges())

    def _find_in(self, known: Mapping[str, Print], feeds: Mapping[str, Array]) -> Finder:
        """Return a finder of the file's values, which allows for the errors of its kernels."""
        finder = Finder(known)
        if self.is_coarse:
            coarse = self.runner.prints(self.subject, [*known], feeds, coarse=True)
            finder.kernels = {
                name: noise_between(each, coarse[name]) for name, each in known.items() if name in coarse
            }
        return finder

    def _again(self, feeds: Mapping[str, Array]) -> list[tuple[str, Array]]:
        """Return the outputs in double precision, to measure rounding; none where the module cannot compute so."""
        try:
            return self.side.run(feeds, "double")
        except ExportError:
            return []

    def pair(self, name: str, found: Agreement) -> Pairing:
        """Return an output, with the node that makes it."""
        node = next((node for node in self.graph.nodes if name in node.outputs), None)
        if node is None:
            return Pairing(name, name, "", "", None, found)
        scope = self.ledger.node_scopes.get(node.place)
        return Pairing(name, name, name_node(node), node.op_type, scope, found)

    # Where they part

    def find_first(self) -> tuple[list[Pairing], First | None, Difference | None]:
        """Return the values of modules with those of the file, the first call that parts, and its difference."""
        feeds = self.feeds[self.worst_run]
        known = self.runner.prints(self.subject, self._names(), feeds)
        self.finder = self._find_in(known, feeds)
        passed = self._record(feeds)
        mark_bad_calls(passed, self.finder)
        if self._is_behind_all(passed, known):
            return [*self._rows(passed, known, None)], *self._describe_outputs(passed, known)
        parted = find_parted(self.side, feeds, passed, self.finder, self._numbers(), self._is_known)
        rows = [*self._rows(passed, known, None if parted is None else parted.call.number)]
        if parted is None:
            return rows, *self._describe_outputs(passed, known)
        return rows, *self._describe_parting(passed, parted, known)

    def _is_behind_all(self, passed: Pass, known: Mapping[str, Print]) -> bool:
        """Whether the file has the right value of each output that differs, and puts out something computed from it."""
        theirs = passed.recording.outputs
        places = match_outputs([*self.graph.outputs], known, theirs)
        for name in self.differing_outputs:
            place = places.get(name)
            wanted = None if place is None else print_of(theirs[place][1])
            made = next((s for s in reversed(passed.seen) if s.is_identifiable and wanted in s.prints), None)
            if made is None or made.found is None or not made.found.is_ordered or made.found.name == name:
                return False
            if name in known and is_like(made.prints[0], known[name], max(made.noises)):
                return False
        return bool(self.differing_outputs)

    def _record(self, feeds: Mapping[str, Array]) -> Pass:
        """Record the module's pass; for half precision, round its numbers so that most of it is in the file."""
        passed = record_pass(self.side, feeds)
        if not self.half or self.reading.rounds:
            return passed
        found = {("", frozenset[float]()): passed}
        for rounds, exact in self._roundings():
            self._round(rounds, exact)
            found[rounds, exact] = record_pass(self.side, feeds)
        for each in found.values():
            mark_bad_calls(each, self.finder)
        best = min(found, key=lambda one: sum(seen.found is None for seen in found[one].seen))
        self._round(*best)
        return found[best]

    def _is_known(self, parted: Parted, passed: Pass) -> bool:
        """Whether the cause is known already, from the reconciliation or the graph, so that nothing has to be tried."""
        reasons = [self.known.suspects.get(name) for name in parted.call.parameters]
        if any(each is not None and each != DEAD for each in reasons) or self._find_swapped_call(
            passed, parted
        ):
            return True
        if self._find_unexplained(passed, parted) is not None:
            return True
        self.odd = self._find_oddity(passed, parted)
        return self.odd is not None and self.odd.is_sure

    def _find_past_dead(self, passed: Pass, parted: Parted) -> Odd | None:
        """Return an oddity in the inputs of the first call that the file has, if the calls before it are left out."""
        call = next((each for each in parted.later if self.reader.anchor(each) is not None), None)
        if call is None or call is parted.call:
            return None
        right, makers = self.right_values(passed), makers_of(call, passed)
        odd = self.reader.look_before(call, makers, right, lambda n: _describe_call(passed.seen[n].call))
        return (
            odd
            if odd is not None and odd.kind == "input"
            else self._find_early_input(call, passed, parted, right)
        )

    def _find_skipped_calls(self, passed: Pass, parted: Parted) -> Odd | None:
        """Return the oddity of a call that reads too early a value, if parameters and the parting call are left out."""
        reasons = self.known.suspects
        if (
            DEAD not in reasons.values()
            or self.known.unexplained
            or self.reader.anchor(parted.call) is not None
        ):
            return None
        odd = self._find_past_dead(passed, parted)
        wrong = [name for name in reasons if reasons[name] != DEAD and self.reader.is_read(name)]
        place = odd and (odd.module or _path(odd.call.module))
        return odd if all(name.rpartition(".")[0] == place for name in wrong) else None

    def _find_early_input(
        self, call: Call, passed: Pass, parted: Parted, right: Mapping[str, Collection[int]]
    ) -> Odd | None:
        """Return an oddity in the inputs of the first module after the calls that are left out; the file has `call`."""
        reads, names = self.reader.way_to(call, right)
        owners = [name.rpartition(".")[0] for name in names]
        firsts = {_path(each.module): each.number for each in reversed(parted.later)}
        if not reads or any(owner not in firsts for owner in owners):
            return None
        module = owners[0] if owners else _path(call.module)
        before = [each for each in parted.later if each.number < firsts[module]]
        if not before:
            return None
        wanted = f"the result of {_describe_call(before[-1])}"
        actual = f"it reads the result of {_describe_call(passed.seen[min(reads)].call)}"
        return Odd(call, "input", wanted, actual, module=module)

    def _find_swapped_call(self, passed: Pass, parted: Parted) -> Call | None:
        """Return a call whose result the parting call needs, and whose weight the file reads elsewhere."""
        needed_calls = (passed.seen[number].call for number in reversed(parted.expected or ()))
        return next(
            (
                call
                for call in needed_calls
                if any(self.known.suspects.get(n) == SWAPPED for n in call.parameters)
            ),
            None,
        )

    def _find_oddity(self, passed: Pass, parted: Parted) -> Odd | None:
        """Return an oddity before the weights of the first calls that part, which no sibling layer has."""
        right = self.right_values(passed)
        reader, found = self.reader, None
        if parted.expected is not None:
            look = reader.look_before if reader.anchor(parted.call) is not None else reader.look_beside
            found = look(parted.call, parted.expected, right, lambda n: _describe_call(passed.seen[n].call))
            if found is not None and (found.kind != "operator" or found.is_sure):
                return found
        names = {
            value: {f"{_path(passed.seen[n].call.module)}: {passed.seen[n].call.operator}" for n in calls}
            for value, calls in right.items()
        }
        paths = {_path(module.module) for module in passed.recording.modules}
        weighted_call = next((call for call in parted.chain if reader.anchor(call) is not None), None)
        if weighted_call is None:
            return found
        if weighted_call is not parted.call and parted.expected is not None:
            frontier_calls = {number for name in parted.frontier for number in right.get(name, ())}
            oddity_between = reader.look_between(weighted_call, parted.chain, frontier_calls, right)
            if oddity_between is not None:
                return oddity_between
        if reader.has_sibling(weighted_call, paths):
            return reader.beside_sibling(weighted_call, paths, names)
        return found

    @cached_property
    def reader(self) -> Reader:
        """Graph that runs, indexed by the nodes that read each of PyTorch's weights."""
        tensors = {tensor.name: tensor for tensor in self.graph.tensors}
        stored_names = self.known.stored_names
        return Reader(self._edges(), self._takes, self.graph.outputs, self.makers, tensors, stored_names)

    def right_values(self, passed: Pass) -> dict[str, set[int]]:
        """Return the file's values that equal results of calls, with the numbers of these calls."""
        right, reordered, ordered = dict[str, set[int]](), set[str](), set[str]()
        for each in passed.seen:
            if each.found is None:
                continue
            for print_, noise in zip(each.prints, each.noises, strict=True):
                for like in self.finder.all_like(print_, noise) if print_.is_identifiable else ():
                    right.setdefault(like.name, set()).add(each.call.number)
                    (ordered if like.is_ordered else reordered).add(like.name)
        return self.reader.without_reordered(right, reordered - ordered)

    def _names(self) -> list[str]:
        """Return the names of the running values that outputs depend on, in their order."""
        edges = self._edges()
        live = {*self.graph.outputs}
        for inputs, outputs, _ in reversed(edges):
            if live.intersection(outputs):
                live.update(inputs)
        return [
            name for _, outputs, op_type in edges if op_type != "Constant" for name in outputs if name in live
        ]

    def _edges(self) -> list[tuple[list[str], list[str], str]]:
        """Return each node's inputs (also those of its bodies), outputs and operator."""
        if self.twin is not None:
            return self.twin.edges
        inner: dict[Place, set[str]] = {}
        for graph in reversed(self.ledger.model.graphs):  # a body comes after the graph that holds it
            if graph.parent is not None:
                names = {name for node in graph.nodes for name in node.inputs} | {*graph.outputs}
                names |= {name for node in graph.nodes for name in inner.get(node.place, ())}
                inner.setdefault(graph.parent, set()).update(names)
        return [
            ([*node.inputs, *inner.get(node.place, ())], [*node.outputs], node.op_type)
            for node in self.graph.nodes
        ]

    def _rows(self, passed: Pass, known: Mapping[str, Print], until: int | None) -> Iterator[Pairing]:
        """Yield a row for each module up to the first that parts; later ones differ because it does."""
        for module in passed.recording.modules:
            if module.made is None:
                continue
            seen = passed.seen[module.made]
            if not any(each.is_identifiable for each in seen.prints):
                continue
            if seen.found is None:
                if not seen.is_bad:
                    continue
                agreement = Agreement(None, None, None, Verdict.DIFFERS)
                yield Pairing(NOWHERE, "", "", module.class_name, module.module, agreement)
                if until is not None and module.made >= until:
                    return
                continue
            at = next(i for i, each in enumerate(seen.prints) if each.is_identifiable)
            off = noise_between(seen.prints[at], known[seen.found.name]) if seen.found.is_ordered else None
            size, noise = seen.prints[at].size, seen.noises[at]
            error = None if off is None else decibel(size, off)
            agreement = Agreement(None, error, decibel(size, noise), Verdict.SAME)
            name = seen.found.name
            yield Pairing(name, name, "", module.class_name, module.module, agreement)

    def _numbers(self) -> list[float]:
        """Return numbers of the file that may be an epsilon, a scale or a slope."""
        found: dict[float, None] = {}
        for graph in self.ledger.model.graphs:
            for node in graph.nodes:
                for value in node.settings.values():
                    if isinstance(value, float):
                        found[value] = None
            for tensor in graph.tensors:
                if tensor.numel == 1 and (tensor.dtype.name in ("FLOAT", "DOUBLE", *_HALF)):
                    array = tensor.payload.array()
                    if array is not None:
                        found[float(array.reshape(-1)[0])] = None
        kept = [each for each in found if each and math.isfinite(each) and 1e-15 < abs(each) < 1e6]
        return [float(np.float32(each)) for each in kept[:48]]

    def _describe_parting(
        self, passed: Pass, parted: Parted, known: Mapping[str, Print]
    ) -> tuple[First, Difference | None]:
        """Describe where the two sides part, and why."""
        node = self._node_after(passed, parted)
        node_name = name_node(node) if node is not None else ""
        cause = parted.cause
        if cause is not None and (self.odd is None or cause.explained > 1 or cause.of < _WEAK):
            module = _path(cause.module)
            what = "" if cause.kind in ("weight", "layer") else f"{self.name_part(passed, cause)}: "
            reason = f"{what}{cause.found}, and {cause.expected} in {self.there}"
            difference = Difference(
                module, None, node_name or module, cause.kind, cause.expected, cause.found
            )
            return First(module, node_name or module, reason), difference
        module, call = _path(parted.call.module), parted.call
        if (odd := self._find_skipped_calls(passed, parted)) is not None:
            module = odd.module or _path(odd.call.module)
            difference = Difference(module, None, node_name or module, odd.kind, odd.expected, odd.found)
            return First(module, node_name or module, odd.describe(self.there)), difference
        swapped_call = self._find_swapped_call(passed, parted)
        for each in (*parted.chain[:1], *([swapped_call] if swapped_call else ()), *parted.chain[1:6]):
            wrong = [name for name in each.parameters if name in self.known.suspects]
            if (
                wrong
                and self.known.suspects[wrong[0]] == DEAD
                and (odd := self._find_past_dead(passed, parted))
            ):
                module = _path(odd.call.module)
                difference = Difference(module, None, node_name or module, odd.kind, odd.expected, odd.found)
                return First(module, node_name or module, odd.describe(self.there)), difference
            if wrong:
                module = _path(each.module)
                actual = self.known.suspects[wrong[0]]
                reads = self._reader_of(wrong[0]) or node_name or module
                difference = Difference(
                    module, wrong[0], reads, "weight", f"{wrong[0]} of {self.there}", actual
                )
                return First(module, reads, f"{wrong[0]}: {actual}"), difference
        unexplained = self._find_unexplained(passed, parted)
        if unexplained is not None:
            name, where = unexplained
            lost = self.reader.is_replaced(call, where.op_type, where.outputs[0])
            if not lost and self._is_in_place(call, where, passed, parted):
                lost = next((each for each in call.parameters if each.endswith("weight")), "")
            if not lost:
                near = self._find_maker_module if self.is_between else self._find_module
                module = near(where, passed) or self._find_module(where, passed) or module
            instead = f" for {lost}" if lost else ""
            actual = f"{where.op_type} with {name}{instead}, which {self.there} does not have"
            difference = Difference(module, name, name_node(where), "planted", "no such node", actual)
            return First(module, name_node(where), actual), difference
        expected = passed.seen[call.number].prints
        for print_ in expected:
            for name, other in Finder(known).of_size(print_.numel):
                factor = scale_between(print_, other)
                if factor is not None and abs(factor - 1) > 1e-4:
                    actual = f"{factor:g} times the value in {self.there} ({name})"
                    difference = Difference(
                        module, None, node_name or module, "constant", "scale 1", f"scale {factor:g}"
                    )
                    return First(module, node_name or module, actual), difference
        if self.odd is not None:
            odd = self.odd
            module = odd.module or (_path(odd.call.module) if call.parameters else module)
            difference = Difference(module, None, node_name or module, odd.kind, odd.expected, odd.found)
            return First(module, node_name or module, odd.describe(self.there)), difference
        for bias, (least, most) in find_shared_biases(self.graph).items():
            own = next(
                (each for each in call.parameters if bias in self.known.stored_names.get(each, ())), None
            )
            if own is not None:
                actual = (
                    f"its codes are read with scales from {least:.4g} to {most:.4g}; only one can be right"
                )
                difference = Difference(
                    module, bias, node_name or module, "quantizer", "codes of one scale", actual
                )
                return First(module, node_name or module, f"{own}: {actual}"), difference
        reason = f"the file lacks the result of {self.name_missing_call(call)}"
        static = self._static(passed, parted)
        if static is not None:
            module, (kind, wanted, actual) = static
            difference = Difference(module, None, node_name or module, kind, wanted, actual)
            return First(module, node_name or module, f"{actual}, and {wanted} in {self.there}"), difference
        return First(module, node_name or module, reason), None

    def _reader_of(self, parameter: str) -> str:
        """Return the name of the first node that reads a tensor of a parameter, or of its name; "" where none does."""
        names = {parameter, *self.known.stored_names.get(parameter, ())}
        return next((name_node(node) for node in self.graph.nodes if not names.isdisjoint(node.inputs)), "")

    def _is_in_place(self, call: Call, node: Node, passed: Pass, parted: Parted) -> bool:
        """Whether a product replaces that of a call: it has the call's inputs, and makes as many elements.

        A product before the call's own, which the file still has, does not count: it leads to that without other
        weights.
        """
        made = self.finder.known.get(node.outputs[0])
        right = {*parted.frontier}
        return (
            node.op_type in PRODUCTS
            and made is not None
            and made.numel == passed.seen[call.number].prints[0].numel
            and any(self.reader.past(name, right) in right for name in node.inputs)
            and not self.reader.leads_to(node.outputs[0], call)
        )

    def name_part(self, passed: Pass, cause: Cause) -> str:
        """Return the name, for messages, of the part that the file replaces."""
        return _class_of(passed, cause.module)

    def name_missing_call(self, call: Call) -> str:
        """Return the name, for messages, of a call whose value is nowhere in the file."""
        return f"{call.operator} of {call.class_name}"

    def _static(self, passed: Pass, parted: Parted) -> tuple[str, tuple[str, str, str]] | None:
        """Return a cause from the classes and settings of the modules there, as far as the file names their nodes."""
        tensors = {tensor.name: tensor for tensor in self.graph.tensors}
        for call in parted.chain[:4]:
            path = _path(call.module)
            module = next((m for m in passed.recording.modules if m.module == call.module), None)
            if module is None:
                continue
            cause = find_cause(module, self._nodes_of(path), tensors, self.half)
            if cause is not None:
                return path, cause
        return None

    def _nodes_of(self, path: str) -> list[Node]:
        """Return the nodes whose scope is a module's, or within it."""
        scopes = self.ledger.node_scopes
        return [
            node
            for node in self.graph.nodes
            if (scope := scopes.get(node.place)) is not None
            and (scope == path or scope.startswith(f"{path}."))
        ]

    def _node_after(self, passed: Pass, parted: Parted) -> Node | None:
        """Return the first node that reads an input of the call, and whose outputs are no call's results."""
        found = {each.found.name for each in passed.seen if each.found is not None}
        near = [*self._region(parted, found)]
        return near[0] if near else None

    def _region(self, parted: Parted, found: set[str]) -> Iterator[Node]:
        """Yield the nodes after the right values, as long as PyTorch has no value of theirs."""
        reached = {*parted.frontier}
        if not reached:
            reached = {*self.graph.inputs}
        for node in self.graph.nodes:
            if reached.intersection(node.inputs):
                if any(name in found for name in node.outputs):
                    continue
                yield node
                reached.update(node.outputs)

    def _find_unexplained(self, passed: Pass, parted: Parted) -> tuple[str, Node] | None:
        """Return a stored tensor that nothing in PyTorch explains, and the node that reads it before the parting calls.

        The search ends at the node that reads the weights of the first of these calls with weights in the file.
        """
        suspect_names = {
            name for name, reason in self.known.suspects.items() if reason not in (DEAD, SWAPPED)
        }
        if not self.unexplained_values and not self.unexplained_nodes and not suspect_names:
            return None
        right = self.right_values(passed)
        weighted_calls = [call for call in parted.chain if self.reader.anchor(call) is not None]
        frontier_calls = {number for name in parted.frontier for number in right.get(name, ())}
        self.is_between = True
        first: tuple[str, Node] | None = None
        for call in weighted_calls[:1]:
            suspect_names -= {name for each in parted.chain for name in each.parameters}
            for edge in self.reader.between(call, frontier_calls, right):
                # The last one in this order is the first of the way.
                first = self._find_unexplained_input(edge, suspect_names) or first
        if first is not None:
            return first
        self.is_between = False
        found = {each.found.name for each in passed.seen if each.found is not None}
        for node in [*self._region(parted, found)][: 3 if weighted_calls else 24]:
            name = next(
                (self.unexplained_values[each] for each in node.inputs if each in self.unexplained_values),
                None,
            )
            name = name or self.unexplained_nodes.get(node.place)
            if name is not None:
                return name, node
        return None

    def _find_unexplained_input(self, edge: Edge, suspect_names: set[str]) -> tuple[str, Node] | None:
        """Return a node's input that PyTorch lacks, or has elsewhere under this name, with the node."""
        inputs, outputs, _ = edge
        if not self.reader.before(edge):
            return None
        node = self.makers.get(outputs[0])
        name = next(
            (self.unexplained_values[each] for each in inputs if each in self.unexplained_values), None
        )
        if name is not None:
            readers = (
                n for n in self.graph.nodes if {*n.inputs} & ({*inputs} & {*self.unexplained_values} | {name})
            )
            node = node or next(readers, None)
            return None if node is None else (name, node)
        suspect_inputs = sorted(self.reader.parameters_of(edge) & suspect_names)
        if suspect_inputs and node is not None:
            return f"a tensor named {suspect_inputs[0]}", node
        return (
            (self.unexplained_nodes[node.place], node)
            if node is not None and node.place in self.unexplained_nodes
            else None
        )

    def _find_maker_module(self, node: Node, passed: Pass) -> str | None:
        """Return the module that makes the right value which a node reads, across nodes that only move it."""
        right = self.right_values(passed)
        made = (right.get(self.reader.past(name, right)) for name in node.inputs)
        number = next((min(calls) for calls in made if calls), None)
        return (passed.seen[number].call.module.partition("#")[0] or None) if number is not None else None

    def _find_module(self, node: Node, passed: Pass) -> str | None:
        """Return the module of a node, from the file's metadata and names, or from the call whose value it reads.

        The name of a stored tensor that PyTorch lacks tells nothing.
        """
        own = self.ledger.node_scopes.get(node.place)
        if own in {name.rpartition(".")[0] for name in node.inputs if name in self.known.unexplained}:
            own = None
        calls_by_value = {each.found.name: each.call for each in passed.seen if each.found is not None}
        found = next(
            (_path(calls_by_value[name].module) for name in node.inputs if name in calls_by_value), None
        )
        is_known = own is not None and own in {_path(module.module) for module in passed.recording.modules}
        is_within = found is not None and found.startswith(f"{own}.")
        return own if is_known and not is_within else found

    def _collect_unexplained(self) -> None:
        """Collect the values that come from unexplained tensors and from no input: each with the name of its tensor."""
        self.unexplained_values = dict[str, str]()
        self.unexplained_nodes = dict[Place, str]()
        stored = {}
        for entry in self.ledger.entries:
            tensor = entry.tensor
            if tensor.name not in self.known.unexplained:
                continue
            # A tensor elsewhere belongs to the node that holds the body, or to those that call the function.
            if tensor.graph_path != self.graph.path:
                holder = self._holder(tensor.graph_path)
                callers = self._callers(tensor.graph_path) if holder is None else [holder]
                self.unexplained_nodes.update(dict.fromkeys(callers, tensor.name))
            elif tensor.node is not None and tensor.carrier not in NAMED:
                self.unexplained_nodes[tensor.graph_path, tensor.node] = tensor.name
            else:
                stored[tensor.name] = tensor.name
        self.unexplained_values |= stored | {
            name: name for name in self.known.unexplained if name in self.makers
        }
        numbers = {tensor.name: tensor for tensor in self.graph.tensors if tensor.numel == 1}
        dependent = {*self.graph.inputs} - {tensor.name for tensor in self.graph.tensors}
        for node in self.graph.nodes:
            if _draws(node, numbers):
                self.unexplained_nodes[node.place] = f"random numbers from {node.op_type}"
            if dependent.intersection(node.inputs):
                dependent.update(node.outputs)
                continue
            name = next(
                (self.unexplained_values[each] for each in node.inputs if each in self.unexplained_values),
                None,
            )
            name = name or self.unexplained_nodes.get(node.place)
            if name is not None:
                self.unexplained_values.update((each, name) for each in node.outputs if each)
        self._collect_unexplained_twin()

    def _collect_unexplained_twin(self) -> None:
        """Collect values from unexplained tensors that only the twin has, such as a product's decoded codes."""
        dependent = {*self.graph.inputs} - {tensor.name for tensor in self.graph.tensors}
        for inputs, outputs, _ in () if self.twin is None else self.twin.edges:
            if dependent.intersection(inputs):
                dependent.update(outputs)
                continue
            name = next(
                (self.unexplained_values[each] for each in inputs if each in self.unexplained_values), None
            )
            if name is not None:
                self.unexplained_values.update((each, name) for each in outputs if each)

    def _callers(self, path: GraphPath) -> list[Place]:
        """Return the nodes of the main graph that call a function, given the path of its body."""
        return [
            node.place
            for function in self.ledger.model.functions
            if function.path == path[: len(function.path)]
            for node in self.graph.nodes
            if (node.domain, node.op_type) == (function.domain, function.name)
        ]

    def _holder(self, path: GraphPath) -> Place | None:
        """Return the node of the main graph whose bodies contain a graph; None for a function's."""
        parents = {graph.path: graph.parent for graph in self.ledger.model.graphs}
        while (place := parents.get(path)) is not None:
            path = place[0]
            if path == self.graph.path:
                return place
        return None

    def _describe_outputs(
        self, passed: Pass, known: Mapping[str, Print]
    ) -> tuple[First | None, Difference | None]:
        """Describe an output that is another value, though the file has everything that PyTorch computes."""
        differing = [name for name in self.graph.outputs if name in self.differing_outputs]
        for name in differing:
            output_print = known.get(name)
            if output_print is None or not output_print.is_identifiable:
                continue
            for seen in passed.seen:
                if seen.found is not None and seen.found.name == name:
                    module = _path(seen.call.module)
                    reason = f"the output {printable(name)} is the result of {seen.call.operator} in {module}"
                    difference = Difference(
                        module, None, name, "output", f"{self.there}'s output {name}", reason
                    )
                    return First(module, name, reason), difference
        for name in differing:
            output_print = known.get(name)
            if output_print is None or not output_print.is_identifiable:
                continue
            for seen in reversed(passed.seen):
                factor = next((f for one in seen.prints if (f := scale_between(one, output_print))), None)
                if factor is not None:
                    module = _path(seen.call.module)
                    reason = (
                        f"the output {printable(name)} is {factor:g} times the result of {seen.call.operator}"
                    )
                    difference = Difference(module, None, name, "constant", "scale 1", f"scale {factor:g}")
                    return First(module, name, reason), difference
        right = self.right_values(passed)
        for name in differing:
            behind, reached = self.reader.look_behind(name, right) if name not in right else ([], "")
            if behind:
                made = passed.seen[min(right[reached])].call if reached else None
                module = ROOT if made is None else _path(made.module)
                reason = f"the output {printable(name)} goes through {', '.join(behind)}"
                difference = Difference(module, None, name, "output", f"{self.there}'s output {name}", reason)
                return First(module, name, f"{reason}, which {self.there} does not have"), difference
        name = next(iter(differing), "")
        reason = f"the file has every value of {self.there}, but one of its outputs is another value"
        return First(ROOT, name, reason), None

    # Choices

    def look_at_choices(
        self, outputs: dict[str, Agreement], first: First | None, differences: tuple[Difference, ...]
    ) -> tuple[dict[str, Agreement], First | None, tuple[Difference, ...]]:
        """Check what equal outputs do not show: values by which the file chooses, and nodes that had no effect here.

        An output still differs if the file chooses by a value that the other side lacks, and not by the value by which
        the other side chooses, unless both lead to the same choice on any input.
        """
        unchanged = outputs, first, differences
        feeds = self.feeds[0]
        if self.refused:
            return unchanged
        every = self.runner.prints(self.subject, self._names(), feeds)
        choices, ineffective, constant = (
            self._choices(every),
            self._find_ineffective(every),
            self._find_constant(every),
        )
        if not choices and not ineffective and not constant:
            return unchanged
        self.finder = self._find_in(every, feeds)
        passed = self._record(feeds)
        mark_bad_calls(passed, self.finder, through_choices=False)
        known = self.finder.known
        kernels = self.finder.kernels
        by = {each: (known[each.operand], kernels.get(each.operand, 0.0)) for each in choices}
        unread = [*find_unread(passed, [*by.values()])]
        odd = [each for each, (value, off) in by.items() if not is_explained(value, passed, off)]
        for seen, choice in unread if odd else ():
            found = self._find_replacement(seen, odd, feeds)
            if found is None:
                continue
            first, cause = self._describe_choice(found, choice, passed, feeds)
            names = self._behind({*found.outputs})
            outputs = {
                name: replace(each, verdict=_OFF) if name in names else each for name, each in outputs.items()
            }
            return outputs, first, differences if cause is None else (*differences, cause)
        self._report_ineffective([each for each in ineffective if not is_bent_there(each, known, passed)])
        reported = {each.output for each in ineffective}
        unexplained = [
            (node, number)
            for node, number in constant
            if node.output not in reported and not is_constant_there(node, known, passed)
        ]
        for node, number in unexplained[:_MOST_NAMED]:
            name = printable(self._maker_of(node.output))
            self.codes.append(
                f"other results of {node.operator} {name} than {number + 0.0:g}: it gave this in all runs, and "
                f"nothing in {self.there} did"
            )
        masking = [each for each in odd if self._finds_none(each)]
        if masking:
            others = f" and {format_many(len(masking) - 1, 'other node')}" if len(masking) > 1 else ""
            self.codes.append(f"fully masked rows, checked by {self._name_choice(masking[0])}{others}")
        odd = [each for each in odd if each not in masking]
        for each in odd[:_MOST_NAMED]:
            self.codes.append(
                f"other results of {self._name_choice(each)}, computed from {printable(each.operand)}, a value that "
                f"{self.there} does not have"
            )
        if len(odd) > _MOST_NAMED:
            self.codes.append(f"other results of {format_many(len(odd) - _MOST_NAMED, 'other choice')}")
        self._report_thresholds(
            {each: made for each, made in by.items() if each not in odd and each not in masking}, passed
        )
        return unchanged

    def _report_thresholds(self, by: Mapping[Choice, tuple[Print, float]], passed: Pass) -> None:
        """Report comparisons with a stored number that give one result in all runs, and that the other side lacks."""
        waiting = [each for each in find_thresholds(by) if not self._holds_infinite(each)]
        waiting = [each for each in waiting if not is_chosen_there(by[each][0], passed, by[each][1])]
        results: dict[str, set[float]] = {each.outputs[0]: set() for each in waiting}
        for feeds in self.feeds if results else ():
            for name, made in self.runner.prints(self.subject, [*results], feeds).items():
                results[name].update((made.low, made.high))
        waiting = [each for each in waiting if len(results[each.outputs[0]]) == 1]
        for each in waiting[:_MOST_NAMED]:
            self.codes.append(
                f"other results of {self._name_choice(each)}, computed from {printable(each.operand)}, by which "
                f"{self.there} makes no choice"
            )
        if len(waiting) > _MOST_NAMED:
            self.codes.append(
                f"other results of {format_many(len(waiting) - _MOST_NAMED, 'other comparison')}"
            )

    def _holds_infinite(self, choice: Choice) -> bool:
        """Whether a value is compared with an infinite number, as in an exported IsInf."""
        node = self.makers.get(choice.outputs[0])
        names = () if node is None else node.inputs
        stored = [tensor for tensor in self.graph.tensors if tensor.name in names and tensor.numel <= _FEW]
        arrays = [array for tensor in stored if (array := tensor.payload.array()) is not None]
        return any(each.dtype.kind == "f" and bool(np.isinf(each).any()) for each in arrays)

    def _finds_none(self, choice: Choice) -> bool:
        """Whether a choice asks if a row of booleans has no true element: their sum is less than 1."""
        node = self.makers.get(choice.outputs[0])
        counted = self.makers.get(choice.operand)
        if node is None or counted is None or choice.operator != "Less" or counted.op_type != "ReduceSum":
            return False
        cast = self.makers.get(counted.inputs[0])
        truth = self.makers.get(cast.inputs[0]) if cast is not None and cast.op_type == "Cast" else None
        ones = [
            tensor for tensor in self.graph.tensors if tensor.name in node.inputs[1:] and tensor.numel == 1
        ]
        one = ones[0].payload.array() if ones else None
        is_true = truth is not None and truth.op_type in _TRUTHS
        return (
            is_true
            and node.inputs[0] == choice.operand
            and one is not None
            and float(one.reshape(-1)[0]) == 1
        )

    def _describe_choice(
        self, found: Choice, choice: Seen, passed: Pass, feeds: Mapping[str, Array]
    ) -> tuple[First, Difference | None]:
        """Describe where the value by which the file chooses is another one, and why."""
        parted = find_parted(
            self.side, feeds, passed, self.finder, self._numbers(), self._is_known, through_choices=False
        )
        remark = f"{self._name_choice(found)} chooses the same on these inputs"
        if parted is not None:
            first, cause = self._describe_parting(passed, parted, self.finder.known)
            return replace(first, reason=f"{first.reason}; {remark}"), cause
        right = self.right_values(passed)
        way, reached = [], {found.operand}
        for inputs, outputs, op_type in reversed(self._edges()):
            if reached.intersection(outputs) and not reached.intersection(right).intersection(outputs):
                reached.update(name for name in inputs if name not in right)
                way.append((inputs, outputs, op_type))
        inputs, outputs, op_type = way[-1]
        stored = next(
            (self.unexplained_values[name] for name in inputs if name in self.unexplained_values), None
        )
        node_name = self._maker_of(outputs[0])
        actual = f"{op_type}{'' if stored is None else f' with {stored}'} in front of {found.operator}"
        module = _path(choice.call.module)
        difference = Difference(module, stored, node_name, "planted", "no such node", actual)
        return First(module, node_name, f"{actual}, which {self.there} does not have; {remark}"), difference

    def _find_replacement(
        self, seen: Seen, odd: Sequence[Choice], feeds: Mapping[str, Array]
    ) -> Choice | None:
        """Return the file's choice that replaces one by a call's value; None if one is as good, or none is like it."""
        alike = [each for each in odd if self.finder.known[each.operand].numel == seen.prints[0].numel]
        ours = self.side.value(feeds, seen.call.number) if alike else None
        if ours is None:
            return None
        operand_values = self.runner.run(self.subject, [each.operand for each in alike], feeds)
        found = None
        for each in alike:
            order = (
                keeps_order(ours, operand_values[each.operand], self._axis(each))
                if each.operand in operand_values
                else None
            )
            if order:
                return None
            found = each if order is False and found is None else found
        return found

    def _choices(self, known: Mapping[str, Print]) -> list[Choice]:
        """Return the choices by numbers that depend on inputs."""
        choices = find_choices(self._edges(), self._takes, {*self._names()})
        return [each for each in choices if each.is_choice(known)]

    def _find_constant(self, first: Mapping[str, Print]) -> list[tuple[Bend, float]]:
        """Return the nodes that depend on inputs and give one number in all runs, with that number."""
        nodes = find_single_output_nodes(self._edges(), self._takes, {*self._names()})
        constant_nodes = ConstantNodes(each for each in nodes if each.output in self.makers)
        constant_nodes.add_run(first)
        for feeds in self.feeds[1:]:
            if needed_names := constant_nodes.needed_names:
                constant_nodes.add_run(self.runner.prints(self.subject, needed_names, feeds))
        return constant_nodes.found()

    def _find_ineffective(self, first: Mapping[str, Print]) -> list[Bend]:
        """Return the bending nodes that depend on inputs and crossed no bound in any run."""
        first = {**first, **self._prints_of_inputs(self.feeds[0])}
        bends = [
            each
            for each in find_bends(self._edges(), self._takes, {*self._names()})
            if each.output in self.makers and each.has_no_effect(first)
        ]
        for feeds in self.feeds[1:]:
            if not bends:
                break
            needed_names = dict.fromkeys(name for each in bends for name in (*each.operands, each.output))
            input_prints = self._prints_of_inputs(feeds)
            known = self.runner.prints(
                self.subject, [each for each in needed_names if each not in input_prints], feeds
            )
            known = {**known, **input_prints}
            bends = [each for each in bends if each.has_no_effect(known)]
        return bends

    def _prints_of_inputs(self, feeds: Mapping[str, Array]) -> dict[str, Print]:
        """Return the prints of the graph's inputs."""
        found = {name: as_array(feeds[name]) for name in self._takes if name in feeds}
        return {name: print_of(array) for name, array in found.items() if array is not None}

    @property
    def _takes(self) -> set[str]:
        """Names of the graph's inputs, without initializers."""
        return {*self.graph.inputs} - {tensor.name for tensor in self.graph.tensors}

    def _report_ineffective(self, bends: Sequence[Bend]) -> None:
        """Report bending nodes that had no effect here, and that the other side lacks."""
        if bends:
            name = name_node(self.makers[bends[0].output])
            others = f" and of {format_many(len(bends) - 1, 'other node')}" if len(bends) > 1 else ""
            self.codes.append(
                f"numbers beyond the bounds of {bends[0].operator} {printable(name)}{others}, which {self.there} does "
                "not have"
            )

    def _axis(self, choice: Choice) -> int | None:
        """Return the axis along which a node chooses; None where it judges each element by itself."""
        node = self.makers.get(choice.outputs[0])
        if node is None or choice.operator not in _ALONG:
            return None
        axis = node.settings.get("axis", _ALONG[choice.operator])
        return axis if isinstance(axis, int) else None

    def _name_choice(self, choice: Choice) -> str:
        return f"{choice.operator} {printable(self._maker_of(choice.outputs[0]))}"

    def _maker_of(self, name: str) -> str:
        """Return the name, for messages, of the node that makes a value; a value of the twin alone names itself."""
        node = self.makers.get(name)
        return name if node is None else name_node(node)

    def _behind(self, names: Collection[str]) -> set[str]:
        """Return all values that are computed from some values, and these."""
        found = {*names}
        for inputs, outputs, _ in self._edges():
            if found.intersection(inputs):
                found.update(outputs)
        return found

    # Codes

    def look_at_codes(
        self, outputs: dict[str, Agreement]
    ) -> tuple[dict[str, Agreement], First | None, tuple[Difference, ...]]:
        """Compare the file with its twin: find nodes that overflow, and quantizers that do not fit their inputs."""
        assert self.twin is not None
        feeds = self.feeds[0]
        names = [name for name in self._names() if name in self.depths and not name.startswith("twin/")]
        own = {name for node in self.graph.nodes for name in node.outputs if name}
        names = [name for name in names if name in own]
        for name, distance in self.runner.compare_values(self.own, self.subject, names, feeds).items():
            if distance.lost:
                node = next(node for node in self.graph.nodes if name in node.outputs)
                module = self.ledger.node_scopes.get(node.place) or ROOT
                reason = (
                    f"{node.op_type} {name_node(node)} overflows: {distance.lost:,} numbers of up to "
                    f"{distance.largest:.3g} are infinite or NaN in {self.half or 'the file'}"
                )
                difference = Difference(module, None, name_node(node), "overflow", "finite numbers", reason)
                if not all(self._survives(each, feeds) for each in self.graph.outputs):
                    lost = {each: Agreement(None, None, None, Verdict.DIFFERS) for each in outputs}
                    return lost, First(module, name_node(node), reason), (difference,)
        outputs, first, differences = self._look_at_quantizers(outputs)
        return self._look_for_emptied(outputs), first, differences

    def _look_at_quantizers(
        self, outputs: dict[str, Agreement]
    ) -> tuple[dict[str, Agreement], First | None, tuple[Difference, ...]]:
        """Measure the quantizers' effect on the values of the twin, and find those that are certainly wrong."""
        assert self.twin is not None
        factors = dict(find_odd_biases(self.graph))
        runs = [
            self.runner.measure(self.subject, self.twin.quantizers, feeds) for feeds in self.usual_feeds()
        ]
        effects = combine_runs(self.twin.quantizers, runs)
        judge = Judge(effects, self.twin.edges, self._takes)
        wrong = {each.quantizer.place: each for each in judge.find()}
        for each in effects:
            factor = factors.get(each.quantizer.scale)
            if factor is not None:
                wrong.setdefault(each.quantizer.place, contradicted(each, factor))
        self._report_quantizers(judge, list(wrong))
        if not wrong:
            return outputs, None, ()
        differences = []
        reached = self._behind(wrong)
        for bad in wrong.values():
            module = self.module_of(bad.quantizer.value)
            differences.append(
                Difference(module, None, bad.quantizer.node, "quantizer", bad.expected, bad.found)
            )
        distances = self.runner.compare_values(self.own, self.subject, self.graph.outputs, self.feeds[0])
        affected = {
            name: Agreement(
                distances[name].worst,
                decibel(distances[name].size, distances[name].error),
                found.noise_db,
                _OFF,
            )
            if name in distances and not distances[name].lost
            else Agreement(None, None, found.noise_db, _OFF)
            for name, found in outputs.items()
            if name in reached
        }
        if not affected:
            return outputs, None, tuple(differences)
        first = next(iter(wrong.values()))
        reason = f"{printable(first.quantizer.value)} is rounded to {first.found}, and holds {first.expected}"
        return (
            outputs | affected,
            First(differences[0].module, first.quantizer.node, reason),
            tuple(differences),
        )

    def _look_for_emptied(self, outputs: dict[str, Agreement]) -> dict[str, Agreement]:
        """Compare no output of which dynamic quantizers leave nothing in any run.

        The ranges of these fit all inputs, so that other values than those of a calibration are no explanation.
        """
        assert self.twin is not None
        dynamic = [each for each in self.twin.quantizers if not each.scale]
        best: dict[str, float] = {}
        for feeds in self.usual_feeds() if dynamic else ():
            whole = self.runner.run(self.subject, self.graph.outputs, feeds)
            made = self.runner.run(self.subject, self.graph.outputs, feeds, rounds=dynamic)
            for name, value in whole.items():
                left = drift_between({name: value}, made) if np.any(value) else None
                best[name] = max(best.get(name, -math.inf), math.inf if left is None else left)
        emptied = [
            name
            for name, each in outputs.items()
            if each.verdict is Verdict.SAME and best.get(name, math.inf) <= _NOTHING
        ]
        self.emptied += [
            f"{printable(name)}, whose error is as large as its signal ({best[name]:.0f} dB at best)"
            for name in emptied
        ]
        return outputs | {name: replace(outputs[name], verdict=Verdict.NOT_COMPARED) for name in emptied}

    def usual_feeds(self) -> Sequence[Mapping[str, Array]]:
        """Return inputs such as a calibration may have had."""
        return self.feeds[:WEIGHED]

    # Costs

    def measure_costs(self, exchange: Exchange) -> Costs | None:
        """Measure the cost of rounding; None where nothing is rounded, or where the twin is refused."""
        if self.refused or (self.twin is None and not exchange.tensors):
            return None
        quantizers: dict[str, list[QuantizerAnswer]] = {}
        for each in () if self.twin is None else self.twin.quantizers:
            quantizers.setdefault(self.module_of(each.value), []).append(each)
        sides = Sides(
            runner=self.runner,
            own=self.own,
            twin=self.subject,
            quantizers=quantizers,
            exchange=exchange,
            outputs=self.graph.outputs,
            feeds=self.feeds[0],
            match=self._matched,
            is_coded=is_coded(self.ledger),
        )
        return measure_costs(sides)

    def _matched(self, ours: Sequence[tuple[str, Array]], theirs: Mapping[str, Array]) -> dict[str, Array]:
        """Return PyTorch's outputs, under their names in the file."""
        places = match_outputs([*self.graph.outputs], theirs, ours)
        return {name: ours[place][1] for name, place in places.items()}

    def measure_drift(self, exchange: Exchange) -> float | None:
        """Return the file's signal to error, in dB, against the module with its own weights, in the worst run."""
        side = exchange.original or self.side
        found = []
        for feeds in self.feeds[:WEIGHED]:
            theirs = self.runner.run(self.own, self.graph.outputs, feeds)
            found.append(drift_between(self._matched(side.run(feeds), theirs), theirs))
        return None if None in found else min((each for each in found if each is not None), default=None)

    def _report_quantizers(self, judge: Judge, wrong: Sequence[str]) -> None:
        """Report quantizers that cannot be judged, and quantizers that lose a mask."""
        assert self.twin is not None
        unsure = [each for each in judge.doubtful(_DOUBT) if each.quantizer.place not in wrong]
        if unsure:
            worst_one = max(unsure, key=lambda each: each.lost_db)
            why = (
                "" if judge.is_alike else "; the file was calibrated on values other than those of these runs"
            )
            self.codes.append(
                f"whether {format_many(len(unsure), 'quantizer')} {'fits' if len(unsure) == 1 else 'fit'}: up to "
                f"{worst_one.lost_db:.0f} dB more are lost than with a range fitted to these runs "
                f"({printable(worst_one.quantizer.value)}), which may be intended{why}"
            )
        masks = [each for each in judge.effects.values() if each.masks]
        if masks:
            self.codes.append(
                f"masks: {format_many(len(masks), 'quantizer')} cut off mask values, the first at "
                f"{printable(masks[0].quantizer.value)}, whose codes begin at {masks[0].least:.3g}"
            )
        widened = [each for each in judge.effects.values() if each.holds_mask]
        if widened:
            self.codes.append(
                f"values beside masks: codes of {format_many(len(widened), 'quantizer')} reach "
                f"{min(each.least for each in widened):.3g} to hold a mask, and round all other values to 0, the first "
                f"at {printable(widened[0].quantizer.value)}"
            )
        unmeasured = self.twin.unmeasured + len(self.twin.quantizers) - len(judge.effects)
        if unmeasured:
            self.codes.append(
                f"the cost of {format_many(unmeasured, 'quantizer')} in bodies, in operators or with computed scales"
            )

    def module_of(self, value: str) -> str:
        """Return the module of a value: that of its maker, or else of the nearest node before it."""
        waiting, done = [value], {value}
        while waiting:
            maker = self.makers.get(waiting.pop(0))
            if maker is None:
                continue
            scope = self.ledger.node_scopes.get(maker.place)
            if scope:
                return scope
            new = [each for each in maker.inputs if each not in done]
            done.update(new)
            waiting += new
        scopes = [self.ledger.node_scopes.get(node.place) for node in self.readers.get(value, ())]
        return next(filter(None, scopes), ROOT)

    def _survives(self, name: str, feeds: Mapping[str, Array]) -> bool:
        distance = self.runner.compare_values(self.own, self.subject, [name], feeds).get(name)
        return distance is None or not distance.lost

    def uncovered(self) -> Iterator[str]:
        """Yield sentences about cases that were not tried, as far as the graph tells."""
        if self.refused:
            yield f"a comparison without codes: there is no float twin, as {self.refused}"
        fixed = {
            value.name
            for value in self.graph.signature
            if value.dims is not None and all(isinstance(dim, int) for dim in value.dims)
        }
        shapes: dict[str, set[tuple[int, ...]]] = {}
        for fed in self.fed if self.read_inputs else (each for each in self.fed if each.name not in fixed):
            shapes.setdefault(fed.name, set()).add(fed.shape)
        alike: dict[str, list[str]] = {}  # inputs that were tried at the same sizes are listed together
        for name in sorted(shapes):
            sizes = ", ".join("x".join(map(str, shape)) or "scalar" for shape in sorted(shapes[name]))
            alike.setdefault(sizes, []).append(name)
        tried = "; ".join(f"{sizes} of {', '.join(names)}" for sizes, names in alike.items())
        if tried:
            yield f"{'inputs' if self.read_inputs else 'sizes'} other than {tried}"
        if self.lacking:
            yield f"{LACKING}: {self.lacking:,}"
        branches = sum(node.op_type == "If" for node in self.graph.nodes)
        if branches:
            yield f"branches of {branches} If that these inputs do not take"
        inside = sum(node.op_type in _ALONG for graph in self.ledger.model.graphs[1:] for node in graph.nodes)
        if inside:
            yield f"the choices of {format_many(inside, 'node')} in bodies of If, Loop, Scan or functions"
        for path, rows, reached in self.side.rows():
            if reached < rows:
                yield f"{rows - reached:,} of {rows:,} rows of {path}, which no id here looks up"
        yield from self._triggers()
        yield from self.codes
        if self.twin is not None and self.twin.activations and self.is_apart:
            places = format_many(self.twin.activations, "place")
            yield f"the cost of codes: these runs do not round activations to codes, at {places} of the file"

    def _triggers(self) -> Iterator[str]:
        """Yield comparisons of an unprocessed input with a stored number: the branches behind them may be rare."""
        stored = {tensor.name: tensor for tensor in self.graph.tensors if tensor.numel <= _FEW}
        origins = {name: name for name in self.graph.inputs if name not in stored}
        fixed = {tensor.name for tensor in self.graph.tensors} | {""}
        for node in self.graph.nodes:
            if node.op_type in _SIZED or fixed.issuperset(node.inputs):
                fixed.update(node.outputs)
            operands = [name for name in node.inputs if name not in fixed]
            if node.op_type in _PASSING_ON and operands and all(name in origins for name in operands):
                origins.update((name, origins[operands[0]]) for name in node.outputs)
            if node.op_type not in COMPARING or len(node.inputs) < 2:
                continue
            for name, other in (node.inputs[:2], node.inputs[1::-1]):
                array = stored[other].payload.array() if other in stored else None
                if name in origins and array is not None:
                    numbers = ", ".join(f"{each:g}" for each in np.asarray(array).reshape(-1).tolist())
                    yield (
                        f"both results of {node.op_type} {printable(name_node(node))}, which compares "
                        f"{printable(origins[name])} with {numbers}"
                    )


class _RefusedSizesError(TimingError):
    """Sizes that the other side takes, and on which onnxruntime does not run the file."""


_DOES_NOT_RUN = "onnxruntime does not run it: "
_AT_NODE = re.compile(r'node "([^"]*)" \((\w+)\)')
_NODE = 100
"""Most characters of onnxruntime's message that are shown where it names no node."""
_OF_MEMORY = ("alloc", "memory")
_MOST_SECONDS = 120.0
"""Seconds for all runs together, within which runs beyond those of the seeds may start."""
_NEVER = 1 << 20
_ALONG = {"ArgMax": 0, "ArgMin": 0, "TopK": -1, "Hardmax": -1}
"""Operators that choose along an axis, with the default of that axis."""
_MOST_NAMED = 3
"""Most nodes of one kind that are listed by name."""
_FEW = 8
"""Most elements of a stored tensor that an input is compared with."""
_PASSING_ON = frozenset(
    {
        *("Cast", "Reshape", "Unsqueeze", "Squeeze", "Expand", "Slice", "Identity", "Flatten", "Gather"),
        *(
            "Add",
            "Sub",
            "Mul",
            "Div",
            "Mod",
            "Neg",
            "Abs",
            "Sign",
            "Pow",
            "Sum",
            "Max",
            "Min",
            "CumSum",
            "Transpose",
        ),
        *("ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceMean", "ReduceSumSquare", "ReduceL1"),
        *("Concat", "Tile", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitShift", "MatMulInteger"),
    }
)
"""Operators that pass an input on, or compute with it and stored numbers."""
_SIZED = frozenset({"Shape", "Size", "Constant"})
_TRUTHS = frozenset({"And", "Or", "Xor", "Not", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"})
"""Operators whose results are booleans."""


def _sizes(feeds: Mapping[str, Array]) -> str:
    return ", ".join(f"{name} {'x'.join(map(str, each.shape)) or 'scalar'}" for name, each in feeds.items())


CODED = frozenset(
    {
        *("DynamicQuantizeLinear", "DynamicQuantizeLSTM", "DynamicQuantizeMatMul", "QAttention"),
        *("QuantizeLinear", "QLinearMatMul", "QLinearConv", "QGemm", "MatMulInteger", "ConvInteger"),
        *("MatMulIntegerToFloat", "MatMulNBits", "QLinearAdd", "QMoE", "QEmbedLayerNormalization"),
    }
)
"""Operators that round activations to codes at run time, or may."""


def is_coded(ledger: Ledger) -> bool:
    """Whether a file may round activations to codes at run time."""
    return any(node.op_type in CODED for node in ledger.model.nodes())


def half_of(ledger: Ledger) -> str:
    """Return the half-precision type of a file's weights; empty where it has none."""
    types = (entry.tensor.dtype.name for entry in ledger.entries if entry.parameters)
    return next((each for each in types if each in _HALF), "")


def _draws(node: Node, scalars: Mapping[str, StoredTensor]) -> bool:
    """Whether a node makes random numbers; Dropout does in training mode."""
    if node.op_type == "Dropout" and len(node.inputs) > 2:
        training_mode = scalars[node.inputs[2]].payload.array() if node.inputs[2] in scalars else None
        return training_mode is not None and bool(training_mode.any())
    return node.op_type.startswith("Random") or node.op_type in ("Bernoulli", "Multinomial")


def _describe_call(call: Call) -> str:
    """Return the operator and the module of a call."""
    return f"{call.operator} of {_path(call.module)}"


def _path(label: str) -> str:
    return label.partition("#")[0] or ROOT


def _class_of(passed: Pass, label: str) -> str:
    return next((m.class_name for m in passed.recording.modules if m.module == label), "") or next(
        (each.call.class_name for each in passed.seen if each.call.module == label), ROOT
    )


def match_outputs(
    names: Sequence[str], theirs: Mapping[str, Array] | Mapping[str, Print], ours: Sequence[tuple[str, Array]]
) -> dict[str, int]:
    """Return the place of PyTorch's output for each output of the file: by name, else the first with the same shape."""
    by_name = {name: at for at, (name, _) in enumerate(ours) if name}
    found = {name: by_name[name] for name in names if name in by_name}
    left = [at for at in range(len(ours)) if at not in found.values()]
    for name in names:
        if name in found or name not in theirs:
            continue
        place = next((at for at in left if ours[at][1].shape == theirs[name].shape), None)
        if place is not None:
            found[name] = place
            left.remove(place)
    return found
