"""A ledger + sizes of axes -> the memory of a run, the tensors at its peak, and the largest sizes that fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from analyzer.account.group import group_by
from analyzer.account.group.keys import label_members
from analyzer.account.ledger import Ledger
from analyzer.cost.memory.account import WEIGHTS, Account, Basis, Item, Needed
from analyzer.cost.memory.bodies import find_bound
from analyzer.cost.memory.fits import Fit, Room, find_fits, find_room
from analyzer.cost.memory.inference import check_calls
from analyzer.cost.memory.kernels import reuses_of
from analyzer.cost.memory.opened import open_account
from analyzer.cost.memory.steps import Step
from analyzer.cost.memory.walked import walk_values
from analyzer.cost.values import MOST_AXES
from analyzer.errors import CostError
from analyzer.model import Model
from analyzer.records import Frozen, field, replace
from analyzer.text import printable
from analyzer.timing.inputs.feeds import plan_feeds
from analyzer.timing.inputs.sizes import Shapes
from analyzer.timing.record import Axis


class MemoryQuery(Frozen):
    """Question about a model's memory."""

    shapes: Shapes = field(default_factory=Shapes)
    past: int | None = None
    """Length of a decoder's key-value cache."""

    memory: int | None = None
    """Available bytes; None asks for no sizes that fit."""

    level: str | None = None
    """Level of optimization, one of `LEVELS`, of the graph that onnxruntime writes; None: the file as it stands."""

    is_gpu: bool = False
    """Whether the memory is a GPU's, with kernels of its own, and a provider that takes more than is modelled."""


class MemoryAnswer(Frozen):
    """Memory of a run of a model."""

    axes: tuple[Axis, ...]
    """Axes of the inputs, with the origin of each size."""

    needed: Needed
    peak_group: str | None
    """Subgraph of the node at the peak; None where there is no peak, or the file lacks that node."""

    kernels: str
    """Version of onnxruntime whose table of kernels was used."""

    level: str | None
    room: Room | None
    fits: tuple[Fit, ...]
    most: int | None = None
    """Maximum bytes of a run, including the bodies of If, Loop and Scan; None where they are not known."""

    steps: tuple[LiveStep, ...] = ()
    """Live bytes after each node, in the order of the run; empty where the peak is not known."""


class LiveStep(Frozen):
    """Executed node, and the bytes that are live after it."""

    node: str
    op_type: str
    group: str | None
    """Subgraph of the node; None where the file lacks it."""
    nbytes: int
    """Bytes in use."""


def answer_memory(ledger: Ledger, query: MemoryQuery) -> MemoryAnswer:
    """Return the memory of a run of a model.

    Raises:
        CostError: the model is no single local file, or its shapes cannot be inferred.
        UsageError: sizes contradict each other, or name nothing.
        MissingExtraError: a level is asked for, and onnxruntime is not installed.
    """
    path = file_of(ledger)
    check_calls(ledger)
    axes = plan_feeds(ledger, query.shapes, query.past)[0].axes
    sizes = {axis.name: axis.size for axis in axes if axis.name is not None}
    groups = {axis.name: axis.role for axis in axes if axis.name is not None}
    if larger := _too_large(ledger.model):
        return _unplanned(ledger.model, axes, query, larger)
    walked = walk_values(ledger.model, axes) if query.level is None else None
    with open_account(path, level=query.level, walked=walked, on_gpu=query.is_gpu) as account:
        needed = account.needed(sizes, formulas=True)
        needed = replace(needed, lines=(*needed.lines, *_of_provider(query)))
        fits: tuple[Fit, ...] = ()
        room = None
        groups_of = _grouper(ledger)
        beyond = find_bound(needed, ledger, axes)
        more = None if needed.total is None else beyond({})
        most = None if needed.total is None or more is None else needed.total + more
        if query.memory is not None:
            room = find_room(needed.lines, needed.total, query.memory)
            if room.fits and (most is None or most > query.memory):
                room = replace(room, fits=None)
            fits = tuple(find_fits(account, beyond, sizes, groups, query.memory))
        return MemoryAnswer(
            axes=axes,
            needed=needed,
            peak_group=None if needed.peak is None else groups_of(needed.peak.step),
            kernels=reuses_of()[0],
            level=query.level,
            room=room,
            fits=fits,
            most=most,
            steps=tuple(_steps(account, needed, groups_of)),
        )


def _of_provider(query: MemoryQuery) -> Iterator[Item]:
    if query.is_gpu:
        note = "not modelled: copies that a GPU's kernels make of their weights, in another order or type"
        yield Item("prepacked weights", None, Basis.MODELLED, note=note)
        note = "not modelled: the context, libraries and workspaces of the GPU provider"
        yield Item("context and workspaces of the GPU", None, Basis.MODELLED, note=note)


def file_of(ledger: Ledger) -> Path:
    """Return the one file of a model from which its memory can be planned.

    Raises:
        CostError: the model is not local, or has several files.
    """
    model = ledger.model
    name = printable(str(model.path))
    if model.traffic is not None:
        raise CostError(f"{name}: memory is planned from a local file; download it, and name that")
    if len(ledger.model.components) > 1:
        raise CostError(f"{name}: has several models, each with its own memory; name one of its files")
    path = Path(model.path)
    return path / model.files[0].path if path.is_dir() else path


_MOST_NODES = 50_000
"""Maximum number of planned nodes, in all graphs together."""


def _too_large(model: Model) -> str:
    """Return a phrase on the number of nodes or axes that is too large to plan; empty where none is."""
    nodes = sum(len(graph.nodes) for graph in model.graphs)
    if nodes > _MOST_NODES:
        return f"{nodes:,} nodes, of which at most {_MOST_NODES:,} are planned"
    ranks = [len(tensor.shape) for graph in model.graphs for tensor in graph.tensors]
    ranks += [
        len(value.dims) for graph in model.graphs for value in graph.signature if value.dims is not None
    ]
    axes = max(ranks, default=0)
    return (
        f"a tensor of {axes:,} axes, of which at most {MOST_AXES:,} are followed" if axes > MOST_AXES else ""
    )


def _unplanned(model: Model, axes: tuple[Axis, ...], query: MemoryQuery, larger: str) -> MemoryAnswer:
    """Return the answer without a plan: only the weights are known."""
    stored = {True: 0, False: 0}
    for graph in model.graphs:
        for tensor in graph.tensors:
            stored[tensor.extent is not None] += tensor.logical_nbytes
    note = f"not modelled: the graph has {larger}"
    lines = (
        *(Item(line, stored[where], Basis.EXACT) for where, line in WEIGHTS if stored[where]),
        Item("activations", None, Basis.MODELLED, note=note),
        *_of_provider(query),
    )
    return MemoryAnswer(
        axes=axes,
        needed=Needed(lines, None, ()),
        peak_group=None,
        kernels=reuses_of()[0],
        level=query.level,
        room=None if query.memory is None else find_room(lines, None, query.memory),
        fits=(),
    )


def _grouper(ledger: Ledger) -> Callable[[Step], str | None]:
    """Return a function from a step to the group of the file's node with the same output."""
    nodes = label_members(ledger, *_by(ledger)).nodes or {}
    made = {
        name: " / ".join(nodes[node.place])
        for node in ledger.model.graphs[0].nodes
        if node.place in nodes
        for name in filter(None, node.outputs)
    }
    return lambda step: next((made[name] for name in step.outputs if name in made), None)


def _steps(account: Account, needed: Needed, groups_of: Callable[[Step], str | None]) -> Iterator[LiveStep]:
    if needed.peak is None:
        return
    for index, nbytes in zip(account.plan.order, needed.peak.lives, strict=True):
        step = account.program.steps[index]
        yield LiveStep(
            step.name or next(filter(None, step.outputs), ""), step.op_type, groups_of(step), nbytes
        )


def _by(ledger: Ledger) -> tuple[str, int | None]:
    grouping = group_by(ledger, None, None)
    return grouping.by, grouping.depth
