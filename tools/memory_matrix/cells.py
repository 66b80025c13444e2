"""A file, sizes and an optimization level -> planned memory, compared with requested memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from analyzer.account.audit import audit_model
from analyzer.account.ledger import Ledger
from analyzer.cost.memory.account import Account
from analyzer.cost.memory.opened import open_account
from analyzer.cost.memory.planner import live_nbytes
from analyzer.cost.memory.walked import walk_values
from analyzer.errors import OnnxLedgerError
from analyzer.timing.inputs.arrays import make_array
from analyzer.timing.inputs.feeds import Inputs, plan_feeds
from analyzer.timing.inputs.sizes import Shapes
from tools.memory_matrix.truth import Truth, run

__all__ = ["WAYS", "Cell", "compare_file", "points_of"]

WAYS: Mapping[str, tuple[str | None, str]] = {
    "the file as it stands, optimizations off": (None, "none"),
    "onnxruntime's graph, optimizations off": ("none", "none"),
    "onnxruntime's graph, optimizations on": ("all", "all"),
}
"""Optimization levels of the planned graph (None for the file itself) and of the run."""

_SCALES = (1, 2, 3)
"""Batches; a file without a free batch axis has only its own sizes."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One file at one set of sizes, planned in one way."""

    file: str
    way: str
    sizes: str
    nodes: int
    equal: int | None
    """Number of nodes after which the bytes are equal; None if the graphs differ, or sizes are unknown."""

    planned: int | None
    """Bytes at the peak."""

    requested: int | None
    first: str = ""
    """First node after which they differ; or the reason why there is no comparison."""

    @property
    def is_equal(self) -> bool:
        return self.equal == self.nodes


def compare_file(path: Path, name: str) -> Iterator[Cell]:
    """Yield the cells of a file: each way at each set of sizes."""
    try:
        ledger = audit_model(path)
        points = list(points_of(ledger))
    except OnnxLedgerError as error:
        yield Cell(name, "", "", 0, None, None, None, f"not run: {error}")
        return
    for way, (planned, level) in WAYS.items():
        try:
            walked = walk_values(ledger.model, points[0].axes) if planned is None and points else None
            with open_account(path, level=planned, walked=walked) as account:
                for inputs in points:
                    yield _cell(path, name, way, level, inputs, account)
        except OnnxLedgerError as error:
            yield Cell(name, way, "", 0, None, None, None, f"not run: {error}")


def points_of(ledger: Ledger) -> Iterator[Inputs]:
    """Yield three sets of sizes with other batches; only the file's own sizes if the batch axis is not free."""
    usual = plan_feeds(ledger)[0]
    free = {axis.role for axis in usual.axes if axis.name is not None}
    if "batch" not in free:
        yield usual
        return
    for scale in _SCALES:
        sizes = [("batch", scale)]
        length = next((axis.size for axis in usual.axes if axis.role == "sequence" and axis.name), None)
        if length is not None and scale > 1:
            sizes.append(("sequence", max(1, length // scale - 1)))
        try:
            yield plan_feeds(ledger, Shapes(tuple(sizes)))[0]
        except OnnxLedgerError:
            continue


def _cell(path: Path, name: str, way: str, level: str, inputs: Inputs, account: Account) -> Cell:
    sizes = {axis.name: axis.size for axis in inputs.axes if axis.name is not None}
    sizes_text = ", ".join(f"{axis}={size}" for axis, size in sizes.items())
    try:
        truth = run(path, {feed.name: make_array(feed, 0) for feed in inputs.feeds}, level)
    except Exception as error:  # noqa: BLE001 - onnxruntime's classes have no base of their own
        return Cell(name, way, sizes_text, 0, None, None, None, f"not run: {str(error)[:120]}")
    requested = max((node.live for node in truth.nodes), default=0)
    steps = [account.program.steps[index] for index in account.plan.order]
    if [step.op_type for step in steps] != [node.op_type for node in truth.nodes]:
        why = f"{len(steps)} nodes are planned, in an order of theirs, and {len(truth.nodes)} ran"
        return Cell(name, way, sizes_text, len(truth.nodes), None, None, requested, why)
    needed = account.needed(sizes)
    if needed.peak is None:
        why = f"sizes of {len(needed.unknown)} buffers are not known"
        return Cell(name, way, sizes_text, len(truth.nodes), None, None, requested, why)
    return _compare(name, way, sizes_text, account, sizes, truth)


def _compare(
    name: str, way: str, sizes_text: str, account: Account, sizes: Mapping[str, int], truth: Truth
) -> Cell:
    planned = _planned_live(account, sizes)
    differing = [place for place, node in enumerate(truth.nodes) if node.live != planned[place]]
    first = ""
    if differing:
        place = differing[0]
        step = account.program.steps[account.plan.order[place]]
        first = (
            f"{step.op_type} {step.name}: {planned[place]:,} planned, {truth.nodes[place].live:,} asked for"
        )
    requested = max((node.live for node in truth.nodes), default=0)
    return Cell(
        name, way, sizes_text, len(planned), len(planned) - len(differing), max(planned), requested, first
    )


def _planned_live(account: Account, sizes: Mapping[str, int]) -> Sequence[int]:
    nbytes = account.sizes(sizes)
    return live_nbytes(account.plan, {name: size or 0 for name, size in nbytes.items()})
