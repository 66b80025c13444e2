"""Runs of blocks + scopes -> the PyTorch module that each block is, and entries put right by their names.

Structure says how many blocks there are; where names tell, they say what belongs to which.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from analyzer.blocks.assemble import OUTSIDE, Arrangement, Spot
from analyzer.ledger import Blocks, Entry, Role
from analyzer.model import Key

__all__ = ["Modules", "ancestors", "gather_copies", "lend_scopes", "merge_runs", "name_blocks", "put_right"]

_MOST = 0.9
"""Share of a block's elements that lie in one module, for the block to be that module."""

_DEEPEST = 32
"""Parts of a scope that are looked at."""

Modules = tuple[tuple[str, ...], ...]
"""For each run the module of each block, or nothing."""

_Weights = Mapping[str, int]
"""Elements by scope."""


def name_blocks(found: Arrangement, entries: Sequence[Entry]) -> Modules:
    """The module of each block of each run: the shortest that tells the blocks of the run apart.

    Blocks that all use one module's weights (ALBERT) are that module each.
    """
    weights: dict[tuple[int, int], Counter[str]] = defaultdict(Counter)
    for entry, spot in zip(entries, found.entries, strict=True):
        if spot.block != OUTSIDE and entry.role is Role.PARAMETER and entry.has_scope:
            weights[spot.run, spot.block][entry.scope] += entry.logical_numel
    return tuple(
        _name_run([weights.get((run, block), Counter()) for block in range(count)])
        for run, count in enumerate(found.counts)
    )


def _name_run(blocks: Sequence[_Weights]) -> tuple[str, ...]:
    known = [block for block in blocks if block]
    if len(known) == 1 and blocks[0]:
        module = _deepest_common(blocks[0])
        return (module,) * len(blocks) if module else ()
    if len(known) < len(blocks):
        return ()
    for depth in range(1, _DEEPEST):
        names: dict[str, None] = {}  # in order
        for block in blocks:
            name = _module_at(block, depth)
            if not name:
                return ()
            if name in names:
                break
            names[name] = None
        else:
            return tuple(names)
    return ()


def _module_at(block: _Weights, depth: int) -> str:
    """The module of a depth in which most of a block lies; "" where none is."""
    totals: Counter[str] = Counter()
    for scope, elements in block.items():
        if scope.count(".") + 1 >= depth:
            totals[".".join(scope.split(".", depth)[:depth])] += elements
    module, elements = max(totals.items(), key=lambda item: item[1], default=("", 0))
    return module if elements >= _MOST * sum(block.values()) else ""


def _deepest_common(block: _Weights) -> str:
    module = ""
    for depth in range(1, _DEEPEST):
        deeper = _module_at(block, depth)
        if not deeper:
            break
        module = deeper
    return module


def merge_runs(found: Arrangement, modules: Modules) -> tuple[Arrangement, Modules]:
    """Runs whose blocks are the same modules as one: the files of an artifact may hold one decoder twice."""
    kept: dict[object, int] = {}
    numbers = [kept.setdefault(names or run, len(kept)) for run, names in enumerate(modules)]
    if len(kept) == len(modules):
        return found, modules
    firsts: dict[int, int] = {}
    for run, number in enumerate(numbers):
        firsts.setdefault(number, run)
    numbers.append(len(kept))  # of what comes after the last

    def renumber(spot: Spot) -> Spot:
        return spot._replace(run=numbers[spot.run])

    merged = replace(
        found,
        counts=tuple(found.counts[run] for run in firsts.values()),
        nodes={path: list(map(renumber, spots)) for path, spots in found.nodes.items()},
        entries=tuple(map(renumber, found.entries)),
    )
    return merged, tuple(modules[run] for run in firsts.values())


def put_right(found: Arrangement, entries: Sequence[Entry], modules: Modules) -> tuple[Spot, ...]:
    """The spots of the entries: a learned tensor whose name puts it in the module of a block is in that block.

    One that structure puts there, and that has a name in no such module, is outside: after the last block of the last
    run, if it was found in that, else before the run.
    """
    owners = {
        name: (run, block)
        for run, names in reversed(list(enumerate(modules)))
        for block, name in reversed(list(enumerate(names)))
    }
    if not owners:
        return found.entries
    shared = {run for run, names in enumerate(modules) if len(set(names)) == 1}
    parents = {part for name in owners for part in ancestors(name)}
    wanted: dict[str, tuple[int, int] | None] = {}
    spots = []
    for entry, spot in zip(entries, found.entries, strict=True):
        if entry.role is Role.PARAMETER and entry.has_scope:
            scope = entry.scope
            if scope not in wanted:
                wanted[scope] = next((owners[part] for part in ancestors(scope) if part in owners), None)
            owner = wanted[scope]
            if owner is None:
                if spot.block != OUTSIDE and modules[spot.run] and scope not in parents:
                    spot = _outside(found, spot)
            elif spot[:2] != owner and not (
                spot.run == owner[0] and spot.run in shared and spot.block != OUTSIDE
            ):
                spot = Spot(*owner, spot.unit if spot.block != OUTSIDE else 0)
        spots.append(spot)
    return tuple(spots)


def gather_copies(spots: Sequence[Spot], entries: Sequence[Entry]) -> tuple[Spot, ...]:
    """The tensor that counts for its copies is where the first of them is read: in the first block that uses it."""
    firsts: dict[Key, Spot] = {}
    for entry, spot in zip(entries, spots, strict=True):
        if entry.copy_of is not None:
            firsts[entry.copy_of] = min(firsts.get(entry.copy_of, spot), spot)
    if not firsts:
        return tuple(spots)
    return tuple(
        min(spot, firsts.get(entry.tensor.key, spot)) for entry, spot in zip(entries, spots, strict=True)
    )


def _outside(found: Arrangement, spot: Spot) -> Spot:
    is_last = spot.run == len(found.counts) - 1 and spot.block == found.counts[spot.run] - 1
    return Spot(spot.run + is_last, is_after=is_last)


def ancestors(scope: str) -> Iterator[str]:
    """A scope, and the modules around it, the deepest first."""
    if scope.count(".") >= _DEEPEST:
        scope = ".".join(scope.split(".", _DEEPEST)[:_DEEPEST])
    while scope:
        yield scope
        scope = scope.rpartition(".")[0]


def lend_scopes(entries: Sequence[Entry], blocks: Blocks) -> tuple[Entry, ...]:
    """Give entries without a scope the module of their block, where other names tell which that is.

    The last rung of the ladder of `analyzer.scopes.owners`.
    """
    modules = {
        f"block.{run.first + number}": module
        for run in blocks.runs
        for number, module in enumerate(run.modules)
    }
    if not modules or all(entry.has_scope for entry in entries):
        return tuple(entries)
    found = []
    for entry in entries:
        module = "" if entry.has_scope else modules.get(blocks.entries[entry.tensor.key].block, "")
        found.append(replace(entry, scope=module, scoped_by="structure:block") if module else entry)
    return tuple(found)
