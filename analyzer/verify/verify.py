"""Two ledgers -> a verification of their files: the same inputs, outputs first, then where they part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from analyzer.account.ledger import Ledger
from analyzer.errors import TimingError, UsageError
from analyzer.model import Graph, Node
from analyzer.model.content import Array
from analyzer.process.child import Limits
from analyzer.text import printable
from analyzer.timing.inputs.feeds import plan_feeds
from analyzer.timing.inputs.sizes import Shapes
from analyzer.timing.request import Feed, Fill
from analyzer.verify.agreement import compare_values, worst
from analyzer.verify.record import Agreement, Difference, Fed, First, Pairing, Verdict, VerifyReport
from analyzer.verify.running import Runner, Subject
from analyzer.verify.static import count_alike, find_differences

_PLAIN, _OTHER = "ORT_DISABLE_ALL", "ORT_ENABLE_ALL"
_AT_ONCE = 64
"""Inner values that one run hands out, so that memory is bounded by the model and so many values."""


@dataclass(frozen=True, slots=True)
class _Run:
    feeds: tuple[Feed, ...]
    seed: int


def verify_files(
    ours: Ledger,
    theirs: Ledger,
    shapes: Shapes | None = None,
    seeds: Sequence[int] = (0, 1, 2),
    limits: Limits | None = None,
    stamp: str | None = None,
) -> VerifyReport:
    """Run two files on the same inputs, and compare outputs, then inner values that have one name.

    Rounding is measured: the first file is run with all optimizations too, whose kernels sum in another order.

    Raises:
        TimingError: a file does not run, or not within the limits.
        UsageError: inputs cannot be made, or the two do not take the same ones.
    """
    paths = (local_path(ours), local_path(theirs))
    graph, other = ours.model.graphs[0], theirs.model.graphs[0]
    feeds = plan_feeds(ours, shapes)[0].feeds
    _check_alike(ours, theirs, feeds)
    runs = [_Run(feeds, seed) for seed in seeds]
    depths = measure_depths(graph)
    with Runner(limits or Limits()) as runner:
        pairs = list(zip(graph.outputs, other.outputs, strict=False))
        outputs = _compare(runner, paths, pairs, runs, depths)
        is_apart = len(graph.outputs) != len(other.outputs) or any(
            each.verdict is not Verdict.SAME for each in outputs.values()
        )
        shared = _shared(graph, other) if is_apart else []
        inner: dict[tuple[str, str], Agreement] = {}
        for start in range(0, len(shared), _AT_ONCE):
            inner |= _compare(runner, paths, shared[start : start + _AT_ONCE], runs[:1], depths)
    pairings = [_pairing(ours, graph, pair, found) for pair, found in outputs.items()]
    lost = Agreement(None, None, None, Verdict.NOT_COMPARED)
    pairings += [_pairing(ours, graph, (name, ""), lost) for name in graph.outputs[len(pairs) :]]
    pairings += [Pairing("", name, "", "", None, lost) for name in other.outputs[len(pairs) :]]
    differences = tuple(find_differences(ours, theirs))
    values = [_pairing(ours, graph, pair, found) for pair, found in inner.items()]
    return VerifyReport(
        path=str(ours.model.path),
        against=str(theirs.model.path),
        outputs=tuple(pairings),
        values=tuple(values),
        first=_first(values, differences),
        checked=count_alike(ours, theirs),
        differences=differences,
        inputs=tuple(
            Fed(feed.name, feed.dtype, tuple(feed.shape), run.seed) for run in runs for feed in run.feeds
        ),
        uncovered=tuple(_uncovered(graph, feeds)),
        stamp=stamp,
    )


def local_path(ledger: Ledger) -> Path:
    """The one file of a model.

    Raises:
        UsageError: it is remote, or of components.
    """
    model = ledger.model
    if model.traffic is not None or model.components:
        raise UsageError(f"{printable(str(model.path))}: verify runs one local file; name an .onnx file")
    path = Path(model.path)
    return path / model.files[0].path if path.is_dir() else path


def _check_alike(ours: Ledger, theirs: Ledger, feeds: Sequence[Feed]) -> None:
    a, b = ({given.name for given in each.model.graphs[0].signature} for each in (ours, theirs))
    if a != b:
        odd = ", ".join(printable(name) for name in sorted(a ^ b)[:5])
        raise UsageError(
            f"{printable(str(theirs.model.path))}: takes other inputs than the first file: {odd}"
        )


def _compare(
    runner: Runner,
    paths: tuple[Path, Path],
    pairs: Sequence[tuple[str, str]],
    runs: Sequence[_Run],
    depths: dict[str, int],
) -> dict[tuple[str, str], Agreement]:
    """The worst of all runs, for each pair of values."""
    found: dict[tuple[str, str], Agreement] = {}
    names, others = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    for run in runs:
        mine = runner.run(Subject(paths[0]), names, None, run.feeds, run.seed, _PLAIN)
        again = _again(runner, paths[0], run, names)
        yours = runner.run(Subject(paths[1]), others, None, run.feeds, run.seed, _PLAIN)
        for name, other in pairs:
            made = compare_values(mine.get(name), yours.get(other), again.get(name), depths.get(name, 1))
            found[name, other] = worst(found.get((name, other)), made)
    return found


def _again(runner: Runner, path: Path, run: _Run, names: Sequence[str]) -> dict[str, Array]:
    """The values as other kernels make them; nothing where these do not run."""
    try:
        return runner.run(Subject(path), names, None, run.feeds, run.seed, _OTHER)
    except TimingError:
        return {}


def measure_depths(graph: Graph) -> dict[str, int]:
    """How many nodes lead to each value, along the longest way."""
    depths: dict[str, int] = {}
    for node in graph.nodes:
        depth = 1 + max((depths.get(name, 0) for name in node.inputs), default=0)
        depths.update(dict.fromkeys(node.outputs, depth))
    return depths


def _shared(graph: Graph, other: Graph) -> list[tuple[str, str]]:
    """Inner values that have one name in both, in the order of the first."""
    theirs = {name for node in other.nodes for name in node.outputs if name}
    ours = [name for node in graph.nodes if node.op_type != "Constant" for name in node.outputs if name]
    return [(name, name) for name in ours if name in theirs]


def _pairing(ledger: Ledger, graph: Graph, pair: tuple[str, str], found: Agreement) -> Pairing:
    node = next((node for node in graph.nodes if pair[0] in node.outputs), None)
    if node is None:
        return Pairing(pair[0], pair[1], "", "", None, found)
    return Pairing(pair[0], pair[1], name_node(node), node.op_type, ledger.node_scopes.get(node.place), found)


def name_node(node: Node) -> str:
    """A node's name, or what it makes, or where it stands."""
    return node.name or next(filter(None, node.outputs), "") or f"node {node.position}"


def _first(values: Sequence[Pairing], differences: Sequence[Difference]) -> First | None:
    """The first inner value that differs, and what its node differs in."""
    for each in values:
        if each.agreement.verdict is Verdict.DIFFERS:
            causes = [found for found in differences if found.node == each.node]
            if causes:
                said = f"{each.op_type} {each.node}: {causes[0].found}, and {causes[0].expected} in the other"
                return First(each.group, each.node, said)
            error = each.agreement.max_abs_error
            off = "is not finite in one of them" if error is None else f"is off by {error:.3g}"
            return First(each.group, each.node, f"{each.op_type} {each.node}: {each.name} {off}")
    return None


def _uncovered(graph: Graph, feeds: Sequence[Feed]) -> list[str]:
    """What was not tried, as far as the graph tells."""
    told = [f"other sizes than {', '.join(_size(feed) for feed in feeds)}"] if feeds else []
    branches = sum(node.op_type == "If" for node in graph.nodes)
    if branches:
        told.append(f"branches of {branches} If that these inputs do not take")
    if any(feed.fill is Fill.INTEGERS for feed in feeds):
        told.append("rows of tables that these ids do not look up")
    return told


def _size(feed: Feed) -> str:
    return f"{printable(feed.name)} {'x'.join(map(str, feed.shape)) or 'scalar'}"
