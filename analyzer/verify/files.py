"""Two ledgers -> a verification of their files: does MODEL compute the other file's function of MODEL's weights?

The other file takes the place of PyTorch's module: it runs as its float twin, with MODEL's rounded weights, and its
nodes' values are looked for among MODEL's values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from analyzer.account.ledger import Ledger
from analyzer.errors import ModelReadError, UsageError
from analyzer.model import Place
from analyzer.model.content import Array
from analyzer.process.child import Limits
from analyzer.reconciliation.lines import Line
from analyzer.records import replace
from analyzer.text import printable, shorten
from analyzer.timing.inputs.sizes import Shapes
from analyzer.verify.against import (
    ROOT,
    WEIGHED,
    Bench,
    Reading,
    half_of,
    is_coded,
    match_outputs,
)
from analyzer.verify.costs import Exchange, drift_between, load_tensors
from analyzer.verify.inputs import GivenInputs
from analyzer.verify.messages import ReplacedTensor
from analyzer.verify.parting import Cause, Parted, Pass
from analyzer.verify.prints import Print
from analyzer.verify.record import Agreement, Costs, Difference, First, Pairing, Verdict, VerifyReport
from analyzer.verify.reference import Edges, FileSide, Slot
from analyzer.verify.rounded import Rounding, find_rounding, holds_same_codes
from analyzer.verify.running import Runner, Subject
from analyzer.verify.side import Call
from analyzer.verify.static import count_alike, find_differences
from analyzer.verify.verify import local_path, name_node
from analyzer.verify.weights import REASONS

_NOT_COMPARED = Agreement(None, None, None, Verdict.NOT_COMPARED)
_NEAR = 6
"""Number of nodes after the last right values that are searched for a difference."""
_ALIKE = 0.9
"""Share of nodes with a common name from which one file counts as the other, changed in places."""


def verify_files(
    ours: Ledger,
    theirs: Ledger,
    shapes: Shapes | None = None,
    seeds: Sequence[int] = (0, 1, 2),
    limits: Limits | None = None,
    stamp: str | None = None,
    given: GivenInputs | None = None,
) -> VerifyReport:
    """Run two files on the same inputs, and compare outputs; where they differ, find where and why.

    Each runs as its float twin, if it has codes or half precision. Where one holds the other's tensors rounded, the
    other computes with these rounded values. Rounding is measured: the other file also runs with every stored number
    moved by a unit in its last place.

    Args:
        ours: ledger of MODEL.
        theirs: ledger of the other file.
        shapes: sizes of axes.
        seeds: seeds of inputs, a run each.
        limits: limits of all runs together.
        stamp: time of the report.
        given: inputs that are read; those that it lacks are made.

    Raises:
        TimingError: a file does not run, or not within the limits.
        UsageError: inputs cannot be made, or the two do not take the same ones.
    """
    paths = (local_path(ours), local_path(theirs))
    _check_alike(ours, theirs)
    with Runner(limits or Limits()) as runner:
        side = _Reference(theirs, runner, paths[1], shapes, None if given is None else given.npz)
        bench = _FileBench(ours, side, runner, paths[0])
        bench.use_inputs(given)
        bench.exchange()
        report = bench.verify(str(theirs.model.path), seeds, bench.notes, bench.exchanged, stamp)
    here, there = (each.model.graphs[0].outputs for each in (ours, theirs))
    only_there = [name for name in there if name not in here][: max(0, len(there) - len(here))]
    missing = tuple(Pairing("", name, "", "", None, _NOT_COMPARED) for name in only_there)
    return replace(
        report,
        outputs=(*report.outputs, *missing),
        differences=(*report.differences, *bench.other_differences(report.differences)),
        checked=count_alike(ours, theirs),
        uncovered=(*bench.hidden(report), *report.uncovered),
    )


def _check_alike(ours: Ledger, theirs: Ledger) -> None:
    a, b = ({value.name: value for value in each.model.graphs[0].signature} for each in (ours, theirs))
    where = printable(str(theirs.model.path))
    if a.keys() != b.keys():
        unshared = ", ".join(printable(name) for name in sorted(a.keys() ^ b.keys())[:5])
        raise UsageError(
            f"{where}: takes other inputs than the first file: {unshared}; name two files with the same inputs"
        )
    for name, value in a.items():
        our_dims, their_dims = value.dims, b[name].dims
        if our_dims is not None and their_dims is not None and not _are_compatible(our_dims, their_dims):
            raise UsageError(
                f"{where}: input {printable(name)} is {_sizes(their_dims)}, and {_sizes(our_dims)} in the first file; "
                "name two files with the same inputs"
            )


def _are_compatible(a: Sequence[int | str | None], b: Sequence[int | str | None]) -> bool:
    """Whether one array can have both shapes; a dim that is a name or negative may have any size."""
    fixed = (
        (x, y)
        for x, y in zip(a, b, strict=False)
        if isinstance(x, int) and isinstance(y, int) and min(x, y) >= 0
    )
    return len(a) == len(b) and all(x == y for x, y in fixed)


def _sizes(dims: Sequence[int | str | None]) -> str:
    return shorten(printable(f"[{', '.join('?' if dim is None else str(dim) for dim in dims)}]"), 60)


class _Reference(FileSide):
    """Other file, with its twin."""

    def __init__(
        self, ledger: Ledger, runner: Runner, path: Path, shapes: Shapes | None, npz: Path | None
    ) -> None:
        self.ledger, self._path = ledger, path
        self.half = half_of(ledger)
        self.refused = ""
        self.rectified = 0
        own = Subject(path)
        subject, edges = own, edges_of(ledger)
        self.has_twin = is_coded(ledger) or bool(self.half)
        if self.has_twin:
            made, twin = runner.make_twin(path, self.half, rectify=True)
            self.refused, self.rectified = twin.refused, twin.rectified
            if not twin.refused:
                subject, edges = made, twin.edges
        super().__init__(ledger, runner, own, subject, edges, shapes, npz)

    def rectify(self, *, cuts: bool) -> None:
        """Set whether quantizers whose codes begin at zero cut off negative numbers."""
        if self.rectified:
            self._base, _ = self._runner.make_twin(self._path, self.half, rectify=cuts)
            self._rewritten = {}


def edges_of(ledger: Ledger) -> Edges:
    """Return the inputs (also of bodies), outputs and operator of each node of the main graph."""
    inner: dict[Place, set[str]] = {}
    for graph in reversed(ledger.model.graphs):
        if graph.parent is not None:
            names = {name for node in graph.nodes for name in node.inputs} | {*graph.outputs}
            names |= {name for node in graph.nodes for name in inner.get(node.place, ())}
            inner.setdefault(graph.parent, set()).update(names)
    return [
        ([*node.inputs, *inner.get(node.place, ())], [*node.outputs], node.op_type)
        for node in ledger.model.graphs[0].nodes
    ]


_MOST_LISTED = 3
"""Most weights that a line names."""


class _FileBench(Bench):
    """MODEL and another file, at work."""

    there = "the other file"
    side: _Reference

    def __init__(self, ledger: Ledger, side: _Reference, runner: Runner, path: Path) -> None:
        self.rounding = Rounding()
        self.state: dict[ReplacedTensor, Array] = {}
        """Weights that MODEL computes with, if the other file is the rounded one."""
        self.rounded_to = ""
        self.notes: list[str] = []
        self.exchanged: Exchange | None = None
        super().__init__(ledger, side, runner, path, self.rounding.known)
        self.open_twin()
        side.carrier = self.half or side.half
        self.refused = self.refused or side.refused

    def use_inputs(self, given: GivenInputs | None) -> None:
        """Use inputs that were read from files; the other side makes the rest."""
        self.files = {} if given is None else given.files
        if given is not None and self.side.is_given:
            super().use_inputs(given)

    def hidden(self, report: VerifyReport) -> Iterator[str]:
        """Yield a line about weights whose values differ though no output shows it; the verdict stays."""
        suspects = self.rounding.known.suspects
        others = [name for name, why in suspects.items() if why == REASONS[Line.DIFFERING]]
        if others and report.same:
            more = f" and {len(others) - _MOST_LISTED} more" if len(others) > _MOST_LISTED else ""
            listed = ", ".join(map(printable, others[:_MOST_LISTED])) + more
            yield f"inputs that show a difference in weights: {listed} differ from the other file's"

    # Rounded weights that one file holds of the other's

    def exchange(self) -> None:
        """Load the weights that one file holds rounded into the finer file."""
        try:
            self.rounding = find_rounding(self.ledger, self.side.ledger)
        except (UsageError, ModelReadError) as error:
            self.notes.append(f"a comparison with the weights of one file in the other: {error}")
            return
        for_other, for_model = self.rounding.for_finer, self.rounding.for_rounded
        if self.rounding.is_other_rounded:
            for_other, for_model = for_model, for_other
        for each in for_model:
            for label, value in each.tensors.items():
                slot = Slot.of(label)
                self.state[ReplacedTensor(slot.name, slot.reader)] = value
        if for_model:
            self.open_twin()
        original = self.side.apart()
        load_tensors(self.side, for_other)
        if self.rounding.is_other_rounded:
            if for_model:
                self.notes.append(
                    "the cost of rounding by module: the rounded file is the other one, not MODEL"
                )
            self.exchanged = Exchange(original=original)
            return
        self.exchanged = Exchange(for_other, original)
        self.known = self.rounding.known
        self._collect_unexplained()

    def open_twin(self, *, rectify: bool = True) -> None:
        """Make the float twin, if there has to be one, with the weights that MODEL is to compute with."""
        super().open_twin(rectify=rectify)
        if self.state or self.rounded_to:
            base = self.own if self.twin is None else self.subject
            self.subject = self.runner.rewrite(base, self.state, self.rounded_to)

    def _roundings(self) -> tuple[tuple[str, frozenset[float]], ...]:
        """Return the only rounding: the other file's numbers are stored, and rounded with everything else."""
        return ((self.half, frozenset()),) if self.half else ()

    def find_inner_numbers(self) -> tuple[float, ...]:
        """Return nothing: what one file rounds is a stored number of the other."""
        return ()

    def other_readings(self) -> Iterator[Reading]:
        """Yield the other possible readings of either file."""
        yield from super().other_readings()
        if self.twin is not None:
            return
        if self.side.rectified:
            yield Reading(rectifies=False, rounds="")
        if self.side.half:
            yield Reading(rectifies=True, rounds=self.side.half)

    def read_as(self, reading: Reading) -> None:
        """Take up a reading of both files."""
        self.side.rectify(cuts=reading.rectifies)
        if self.half or not self.side.half:
            super().read_as(reading)
            return
        self.reading, self.rounded_to = reading, reading.rounds
        self.open_twin(rectify=reading.rectifies)

    def compare_again(
        self, seeds: Sequence[int], before: dict[str, Agreement], reading: Reading
    ) -> dict[str, Agreement]:
        """Compare under another reading; keep the old reading unless the new one is nearer."""
        outputs = super().compare_again(seeds, before, reading)
        if outputs is before:
            self.side.rectify(cuts=True)
            self.rounded_to = ""
        return outputs

    def compare_outputs(self, seeds: Sequence[int]) -> dict[str, Agreement]:
        """Compare as with PyTorch; a difference is no verdict where both files hold codes, and different ones."""
        found = super().compare_outputs(seeds)
        is_apart = any(each.verdict is Verdict.DIFFERS for each in found.values())
        if is_apart and self.rounding.is_unknown and not holds_same_codes(self.ledger, self.side.ledger):
            note = "a comparison without codes: both files hold rounded weights, but not the same ones"
            if note not in self.notes:
                self.notes.append(note)
            found = {
                name: replace(each, verdict=Verdict.NOT_COMPARED) if each.verdict is Verdict.DIFFERS else each
                for name, each in found.items()
            }
        return found

    def _matched(self, ours: Sequence[tuple[str, Array]], theirs: Mapping[str, Array]) -> dict[str, Array]:
        places = match_outputs([*self.graph.outputs], theirs, ours)
        return {name: ours[place][1] for name, place in places.items()}

    def usual_feeds(self) -> Sequence[Mapping[str, Array]]:
        """Return inputs such as a calibration may have had: those without padding, if there are any."""
        found = [feeds for feeds in self.feeds if not self.side.has_padding(feeds)]
        return (found or self.feeds)[:WEIGHED]

    # Where they part

    def find_first(self) -> tuple[list[Pairing], First | None, Difference | None]:
        """Find the first difference as with PyTorch; where the other file names no modules, name MODEL's."""
        rows, first, cause = super().find_first()
        if first is not None and first.module == ROOT:
            node = next((each for each in self.graph.nodes if first.node in (each.name, *each.outputs)), None)
            module = None if node is None else self.ledger.node_scopes.get(node.place)
            first = replace(first, module=module)
            if cause is not None:
                cause = replace(cause, module=module)
        return rows, first, cause

    def _is_known(self, parted: Parted, passed: Pass) -> bool:
        difference = self._find_named_difference(parted, passed)
        return (difference is not None and difference.kind != "input") or super()._is_known(parted, passed)

    def _describe_parting(
        self, passed: Pass, parted: Parted, known: Mapping[str, Print]
    ) -> tuple[First, Difference | None]:
        """Describe where the two part, and why, also from nodes of the same name, if nearly all names are in both."""
        difference = self._find_named_difference(parted, passed)
        first, cause = super()._describe_parting(passed, parted, known)
        if difference is None or (difference.kind == "input" and cause is not None):
            return first, cause
        module = difference.module or parted.call.module or ROOT
        reason = f"{difference.node}: {difference.found}, and {difference.expected} in {self.there}"
        if difference.kind == "planted":
            reason = f"{difference.found}, which {self.there} does not have"
        return First(module, difference.node, reason), replace(difference, module=module)

    def _find_named_difference(self, parted: Parted, passed: Pass) -> Difference | None:
        """Return the difference of the first differing node after the right values from the node of its name."""
        if not self._is_one_file():
            return None
        found = {each.found.name for each in passed.seen if each.found is not None}
        near = [name_node(node) for node, _ in zip(self._region(parted, found), range(_NEAR), strict=False)]
        differences = {
            each.node: each for each in reversed([*find_differences(self.ledger, self.side.ledger)])
        }
        difference = next((differences[name] for name in near if name in differences), None)
        return (
            difference if difference is None or difference.kind != "input" else self._as_inserted(difference)
        )

    def _as_inserted(self, difference: Difference) -> Difference:
        """Turn a difference of inputs into an inserted node, if only MODEL has the node that makes the input."""
        maker = self.makers.get(difference.parameter or "")
        others = {name for node in self.side.graph.nodes for name in node.outputs}
        if maker is None or others.intersection(maker.outputs):
            return difference
        changed_inputs = [name for name in maker.inputs if name in self.unexplained_values]
        description = f"{maker.op_type} {name_node(maker)}" + (
            f" with {self.unexplained_values[changed_inputs[0]]}" if changed_inputs else ""
        )
        return replace(difference, kind="planted", expected="no such node", found=description)

    def name_part(self, passed: Pass, cause: Cause) -> str:
        """Return the operator, as the name of the replaced part."""
        return cause.operator

    def name_missing_call(self, call: Call) -> str:
        """Return the operator and the node, as the name of a call."""
        node = self.side.calls[call.number].node
        return f"{call.operator} {printable(node)}"

    def other_differences(self, reported: Sequence[Difference]) -> Iterator[Difference]:
        """Yield further differences of nodes with the same name, except those that rounding and optimizing cause."""
        known = {each.node for each in reported}
        is_one = self._is_one_file()
        for each in find_differences(self.ledger, self.side.ledger):
            if each.node not in known and (is_one or each.kind == "attribute"):
                yield each

    def _is_one_file(self) -> bool:
        """Whether nearly all nodes of both files have the same names, so that one is the other, changed in places."""
        many = max(len(self.graph.nodes), len(self.side.graph.nodes))
        return count_alike(self.ledger, self.side.ledger) >= _ALIKE * many

    # Costs

    def measure_costs(self, exchange: Exchange) -> Costs | None:
        """Measure the cost of rounding; None if the other file is the rounded one, or both are."""
        return (
            None
            if self.rounding.is_other_rounded or self.rounding.is_unknown
            else super().measure_costs(exchange)
        )

    def measure_drift(self, exchange: Exchange) -> float | None:
        """Return the signal to error, in dB, of both files as they stand, in the worst of several runs."""
        found = []
        for feeds in self.feeds[:WEIGHED]:
            theirs = self.runner.run(self.own, self.graph.outputs, feeds)
            found.append(drift_between(self._matched(self.side.run_as_stored(feeds), theirs), theirs))
        return None if None in found else min((each for each in found if each is not None), default=None)
