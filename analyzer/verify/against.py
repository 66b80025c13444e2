"""A ledger and PyTorch's side -> a verification: outputs on the same inputs, then the first module that parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from analyzer.content import Array
from analyzer.errors import ExportError, TimingError
from analyzer.ledger import Ledger
from analyzer.model import Graph, Node
from analyzer.process.child import Limits
from analyzer.units import format_many
from analyzer.verify.agreement import compare_values, worst
from analyzer.verify.causes import find_cause
from analyzer.verify.record import Agreement, Difference, Fed, First, Pairing, Verdict, VerifyReport
from analyzer.verify.running import Runner
from analyzer.verify.side import Boundary, Side
from analyzer.verify.verify import local_path, measure_depths, name_node

__all__ = ["verify_module"]

_PLAIN = "ORT_DISABLE_ALL"
_AT_ONCE = 64
"""Values that one run hands out."""
_LOST = Agreement(None, None, None, Verdict.NOT_COMPARED)
_HALF = ("FLOAT16", "BFLOAT16")


def verify_module(
    ledger: Ledger,
    side: Side,
    against: str,
    seeds: Sequence[int] = (0, 1, 2),
    limits: Limits | None = None,
    notes: Sequence[str] = (),
    stamp: str | None = None,
) -> VerifyReport:
    """Run a file and its module on the same inputs, and compare outputs; where they differ, the values of modules.

    Rounding is measured: the module computes in double precision too, and in half where the file does.

    Args:
        ledger: of the file.
        side: the module, with the weights that the file holds.
        against: what the module is called.
        seeds: of inputs, a run each; the last run is of a batch of one, and shorter.
        limits: of all runs of the file.
        notes: what else is to be said of what these runs do not show.
        stamp: when.

    Raises:
        ExportError: forward fails.
        TimingError: the file does not run, or not within the limits.
        UsageError: it is not one local file.
    """
    graph = ledger.model.graphs[0]
    with Runner(limits or Limits()) as runner:
        bench = _Bench(
            ledger, graph, side, runner, local_path(ledger), measure_depths(graph), _is_half(ledger)
        )
        outputs = bench.compare_outputs(seeds)
        is_apart = any(found.verdict is Verdict.DIFFERS for found in outputs.values())
        values, first, cause = bench.find_first() if is_apart else ((), None, None)
    return VerifyReport(
        path=str(ledger.model.path),
        against=against,
        outputs=tuple(bench.pair(name, found) for name, found in outputs.items()),
        values=tuple(values),
        first=first,
        checked=len(values),
        differences=() if cause is None else (cause,),
        inputs=tuple(bench.fed),
        uncovered=(*notes, *bench.uncovered(), *(f"a run that failed: {each}" for each in bench.failed)),
        stamp=stamp,
    )


def _is_half(ledger: Ledger) -> bool:
    return any(entry.tensor.dtype.name in _HALF and entry.parameters for entry in ledger.entries)


@dataclass
class _Bench:
    ledger: Ledger
    graph: Graph
    side: Side
    runner: Runner
    path: Path
    depths: Mapping[str, int]
    is_half: bool
    fed: list[Fed] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def compare_outputs(self, seeds: Sequence[int]) -> dict[str, Agreement]:
        """The worst of all runs, by output; a later run that fails on either side is told and left out."""
        found: dict[str, Agreement] = {}
        for at, seed in enumerate(seeds):
            is_small = 0 < at == len(seeds) - 1
            feeds = self.side.feeds(seed, is_small=is_small)
            try:
                made = self._compare_once(feeds)
            except (ExportError, TimingError) as error:
                if not at:
                    raise
                self.failed.append(str(error))
                continue
            self.fed += [Fed(name, each.dtype.name, tuple(each.shape), seed) for name, each in feeds.items()]
            found = {name: worst(found.get(name), each) for name, each in made.items()}
        return found

    def _compare_once(self, feeds: Mapping[str, Array]) -> dict[str, Agreement]:
        ours = self.side.run(feeds)
        exact = self._again(feeds)
        theirs = self.runner.run(self.path, (), 0, _PLAIN, self.graph.outputs, feeds)
        places = _match_outputs([*self.graph.outputs], theirs, ours)
        made = {}
        for name in self.graph.outputs:
            place = places.get(name)
            if place is None or name not in theirs:
                made[name] = _LOST
                continue
            other = exact[place][1] if len(exact) == len(ours) else None
            made[name] = self._judge(ours[place][1], theirs[name], other, self.depths.get(name, 1))
        return made

    def _judge(self, ours: Array, theirs: Array, other: Array | None, depth: int) -> Agreement:
        found = compare_values(ours, theirs, other, depth)
        is_unknown = (other is None and self.is_half) or self._rounds_activations()
        if is_unknown and found.verdict is Verdict.DIFFERS:  # nobody knows what that rounds off
            return replace(found, verdict=Verdict.NOT_COMPARED)
        return found

    def _rounds_activations(self) -> bool:
        return any(node.op_type in _ROUNDED for node in self.graph.nodes)

    def _again(self, feeds: Mapping[str, Array]) -> list[tuple[str, Array]]:
        """The outputs in another precision, whose difference is rounding; none where the module cannot."""
        try:
            return self.side.run(feeds, "half" if self.is_half else "double")
        except ExportError:
            return []

    def pair(self, name: str, found: Agreement) -> Pairing:
        """An output with the node that makes it."""
        node = next((node for node in self.graph.nodes if name in node.outputs), None)
        if node is None:
            return Pairing(name, name, "", "", None, found)
        return Pairing(
            name, name, name_node(node), node.op_type, self.ledger.node_scopes.get(node.place), found
        )

    def find_first(self) -> tuple[list[Pairing], First | None, Difference | None]:
        """The values of modules beside those of the file, and the first that has none like it."""
        feeds = self.side.feeds(0)
        boundaries = self.side.boundaries(feeds)
        known = self._look_at_file(feeds)
        found: list[Pairing] = []
        parted: list[_Parted] = []
        for start in range(0, len(boundaries), _AT_ONCE):
            some = boundaries[start : start + _AT_ONCE]
            for boundary, agreement, name in self._compare_modules(feeds, some, known):
                if agreement.verdict is Verdict.SAME:
                    found.append(Pairing(name, name, "", boundary.class_name, boundary.module, agreement))
                    # What is right as a whole is right in its parts, and what has no place may only not be found.
                    inside = f"{boundary.module.partition('#')[0]}."
                    parted = [
                        each for each in parted if each.name and not each.boundary.module.startswith(inside)
                    ]
                else:
                    parted.append(_Parted(boundary, name, agreement))
        return self._tell(found, parted)

    def _compare_modules(
        self, feeds: Mapping[str, Array], some: Sequence[Boundary], known: Mapping[str, _Print]
    ) -> Iterator[tuple[Boundary, Agreement, str]]:
        """What each module gives beside the value of its scope, else beside any that holds the same."""
        wanted = [each.module for each in some]
        values = self.side.values(feeds, wanted)
        try:
            again = self.side.values(feeds, wanted, "half" if self.is_half else "double")
        except ExportError:
            again = {}
        tied = {each.module: self._tie(each, known) for each in some}
        names = sorted({name for name in tied.values() if name is not None})
        held = self.runner.run(self.path, (), 0, _PLAIN, names, feeds) if names else {}
        for boundary in some:
            ours = values.get(boundary.module)
            if ours is None or ours.dtype.kind != "f" or ours.size < _LEAST:
                continue
            name = tied[boundary.module]
            other = again.get(boundary.module)
            agreement = Agreement(None, None, None, Verdict.DIFFERS)
            if name is not None and name in held:
                agreement = self._judge(ours, _as_shaped(held[name], ours), other, self.depths.get(name, 1))
            if agreement.verdict is not Verdict.SAME:
                like = _find_like(_Print.of(ours), known, self._slack())
                if like is not None:
                    name, agreement = like, Agreement(None, None, None, Verdict.SAME)
            yield boundary, agreement, name or ""

    def _slack(self) -> float:
        return 1e-2 if self.is_half else 1e-5

    def _look_at_file(self, feeds: Mapping[str, Array]) -> dict[str, _Print]:
        names = [
            name for node in self.graph.nodes if node.op_type != "Constant" for name in node.outputs if name
        ]
        known: dict[str, _Print] = {}
        for start in range(0, len(names), _AT_ONCE):
            made = self.runner.run(self.path, (), 0, _PLAIN, names[start : start + _AT_ONCE], feeds)
            known |= {name: _Print.of(value) for name, value in made.items() if value.dtype.kind == "f"}
        return known

    def _nodes_of(self, module: str) -> list[Node]:
        """The nodes whose scope is a module's, or within it."""
        path = module.partition("#")[0]
        scopes = self.ledger.node_scopes
        return [
            node
            for node in self.graph.nodes
            if (scope := scopes.get(node.place)) is not None
            and (scope == path or scope.startswith(f"{path}."))
        ]

    def _tie(self, boundary: Boundary, known: Mapping[str, _Print]) -> str | None:
        """The last value of a module's nodes that is as large as what the module gives."""
        for node in reversed(self._nodes_of(boundary.module)):
            for name in node.outputs:
                if name in known and known[name].numel == boundary.numel:
                    return name
        return None

    def _tell(
        self, found: list[Pairing], parted: Sequence[_Parted]
    ) -> tuple[list[Pairing], First | None, Difference | None]:
        if not parted:
            return found, None, None
        first = next((each for each in parted if each.name), parted[0])
        boundary, agreement = first.boundary, first.agreement
        found.append(Pairing(first.name, first.name, "", boundary.class_name, boundary.module, agreement))
        nodes = self._nodes_of(boundary.module)
        node = next((each for each in nodes if first.name in each.outputs), nodes[-1] if nodes else None)
        said = name_node(node) if node is not None else boundary.module
        cause = find_cause(boundary, nodes, {tensor.name: tensor for tensor in self.graph.tensors})
        if cause is not None:
            kind, expected, held = cause
            told = Difference(boundary.module, None, said, kind, expected, held)
            return found, First(boundary.module, said, f"{held}, and {expected} in PyTorch"), told
        off = "" if agreement.max_abs_error is None else f" is off by {agreement.max_abs_error:.3g}"
        reason = f"what {boundary.class_name} gives{off or ' is nowhere in the file'}"
        return found, First(boundary.module, said, reason), None

    def uncovered(self) -> Iterator[str]:
        """What was not tried, as far as the graph tells."""
        sizes = sorted({f"{fed.name} {'x'.join(map(str, fed.shape)) or 'scalar'}" for fed in self.fed})
        yield f"other sizes than {', '.join(sizes)}"
        branches = sum(node.op_type == "If" for node in self.graph.nodes)
        if branches:
            yield f"branches of {branches} If that these inputs do not take"
        looked = sum(node.op_type == "Gather" for node in self.graph.nodes)
        if looked and any(fed.dtype.startswith("int") for fed in self.fed):
            yield "rows of tables that these ids do not look up"
        rounded = sum(node.op_type in _ROUNDED for node in self.graph.nodes)
        if rounded:
            yield f"the same without codes: {format_many(rounded, 'node')} round activations, which counts as error"


_ROUNDED = frozenset(
    (
        "DynamicQuantizeLinear",
        "DynamicQuantizeLSTM",
        "DynamicQuantizeMatMul",
        "QAttention",
        "QuantizeLinear",
    )
)
"""What makes codes of activations at run time."""
_LEAST = 4
"""Elements of a value that may be told from others by what it holds."""


@dataclass(frozen=True, slots=True)
class _Parted:
    """A module whose value is not the file's."""

    boundary: Boundary
    name: str
    """The value of its scope; empty where there is none as large."""
    agreement: Agreement


def _as_shaped(theirs: Array, ours: Array) -> Array:
    """The file's value in the module's shape, where only axes of one element differ."""
    is_alike = theirs.size == ours.size and theirs.squeeze().shape == ours.squeeze().shape
    return theirs.reshape(ours.shape) if is_alike else theirs


@dataclass(frozen=True, slots=True)
class _Print:
    """What of a value stays as it is in any layout."""

    numel: int
    total: float
    power: float
    low: float
    high: float

    @staticmethod
    def of(value: Array) -> _Print:
        flat = value.astype(np.float64).reshape(-1)
        if not flat.size:
            return _Print(0, 0.0, 0.0, 0.0, 0.0)
        return _Print(flat.size, float(flat.sum()), float(flat @ flat), float(flat.min()), float(flat.max()))


def _find_like(wanted: _Print, known: Mapping[str, _Print], slack: float) -> str | None:
    """A value with the same elements, in whatever order; None where none has."""
    if not np.isfinite(wanted.power) or not wanted.power:
        return None
    size = float(np.sqrt(wanted.power / wanted.numel))  # root mean square
    for name, each in known.items():
        if each.numel == wanted.numel and (
            abs(each.power - wanted.power) <= 2 * slack * wanted.power
            and abs(each.total - wanted.total) <= slack * size * wanted.numel
            and abs(each.low - wanted.low) <= 10 * slack * size
            and abs(each.high - wanted.high) <= 10 * slack * size
        ):
            return name
    return None


def _match_outputs(
    names: Sequence[str], theirs: Mapping[str, Array], ours: Sequence[tuple[str, Array]]
) -> dict[str, int]:
    """Which of PyTorch's outputs each of the file is: by name, else in their order where these have one shape."""
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
