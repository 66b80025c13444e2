"""Ledger -> its repeated blocks: the entries and nodes in each, and the parts before and after.

Names are not needed. The nodes that all data flows through cut a graph into sections (`sections`); consecutive sections
with equal weights are blocks (`units`, `repeats`); operators give the function of the weights (`roles`). If names give
more, they are used for the modules of blocks, and for the number of blocks (`lists`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from analyzer.account.blocks.assemble import (
    Arrangement,
    Modules,
    NamedBlocks,
    Spot,
    ancestors,
    arrange,
    assign_block_scopes,
    correct_spots,
    gather_copies,
    merge_runs,
    name_blocks,
)
from analyzer.account.blocks.flow import Flow, weigh
from analyzer.account.blocks.lists import MOST, Lists, Numbered, find_lists, has_matrix
from analyzer.account.blocks.roles import (
    ATTENTION,
    CONVOLUTION,
    FEED_FORWARD,
    LINEAR,
    OTHER,
    RECURRENT,
    Roles,
)
from analyzer.account.blocks.units import OUTSIDE, GraphLayout, Owner
from analyzer.account.ledger import Blocks, ByEntry, Entry, Ledger, Member, Role, Run
from analyzer.model import GraphPath
from analyzer.model.places import ByNode, in_order
from analyzer.model.wiring import Reader

__all__ = ["assign_block_scopes", "find_blocks"]

STEM, BETWEEN, HEAD = "stem", "between", "head"


def find_blocks(ledger: Ledger) -> Blocks:
    """Find the repeated blocks of a model, whatever its names, and the function of each learned tensor in them.

    A tensor that several blocks read belongs to the first; one that is not learned and read by several is outside,
    before them. The part before the first run of blocks is `stem`, the part between it and the second `between.1`, the
    part after the last `head`. Without repeated blocks everything is `stem`.
    """
    entries, wiring = ledger.entries, ledger.wiring
    # This comes before the flows, each of which takes as much memory as all data read so far.
    numbered = find_lists(entries)
    weights = weigh(ledger.model, entries, wiring)
    flows = {graph.path: Flow.of(graph, wiring, weights) for graph in ledger.model.graphs}
    layouts: dict[GraphPath, GraphLayout] = {}
    found = arrange(ledger.model, entries, wiring, flows, layouts)
    found, modules = merge_runs(found, name_blocks(found, entries))
    named_blocks = _find_named_blocks(ledger, _choose_numbered(entries, found, numbered), modules)
    if named_blocks is not None:
        arranged = arrange(ledger.model, entries, wiring, flows, layouts, named_blocks)
        found, modules = merge_runs(arranged, tuple(named_blocks.lists[number] for number in arranged.lists))
    spots = gather_copies(correct_spots(found, entries, modules), entries)
    roles = _roles(entries, spots, found.readers, flows)
    members = _Members(found.counts, _parts(spots, roles))
    return Blocks(
        runs=tuple(
            Run(first, count, names, _NUMBERED if named_blocks else _REPEATED)
            for first, count, names in zip(members.firsts, found.counts, modules, strict=True)
        ),
        entries=ByEntry(entries, [members[spot] for spot in spots]),
        nodes=ByNode(
            ledger.model, [members[spot] for graph in ledger.model.graphs for spot in found.nodes[graph.path]]
        ),
        roles=ByEntry(entries, [role or None for role in roles]),
    )


_REPEATED, _NUMBERED = "structure:tandem-repeat", "name:numbered-modules"

_LEAST_SHARE = 0.05
"""Least share of the learned elements that numbered modules must hold to replace fewer blocks found by structure."""


def _choose_numbered(entries: Sequence[Entry], found: Arrangement, numbered: Numbered) -> Lists:
    """Return the blocks given by names, if they hold as many learned elements as those found by structure.

    Half as many are enough if the numbers of blocks differ. If they are equal, a tool has removed some names, and
    structure places unnamed tensors better.
    """
    share = min(MOST, max(_LEAST_SHARE, _share_in_blocks(entries, found.entries)))
    lists = numbered.at(share)
    if not lists:
        fewer = numbered.at(max(_LEAST_SHARE, share / 2))
        lists = fewer if sorted(map(len, fewer)) != sorted(found.counts) else ()
    return lists


def _share_in_blocks(entries: Sequence[Entry], spots: Sequence[Spot]) -> float:
    """Return the share of the learned elements in the blocks that structure has found."""
    sizes = [entry.logical_numel if entry.role is Role.PARAMETER else 0 for entry in entries]
    elements = sum(size for size, spot in zip(sizes, spots, strict=True) if spot.block != OUTSIDE)
    return elements / max(1, sum(sizes))


def _is_used_again(lists: Lists, entries: Sequence[Entry]) -> bool:
    """Whether names give one block that the file computes with several times, like ALBERT's layer."""
    if sum(map(len, lists)) != 1:
        return False
    module = lists[0][0]
    return any(
        entry.applications > 1 and has_matrix(entry) and f"{entry.scope}.".startswith(f"{module}.")
        for entry in entries
    )


def _find_named_blocks(ledger: Ledger, lists: Lists, modules: Modules) -> NamedBlocks | None:
    """Return the blocks given by names, if structure has found others; None if it has found the same."""
    if not lists or _is_used_again(lists, ledger.entries):
        return None
    if lists == modules:  # structure does not know the order of several
        return None
    owners = {name: (number, block) for number, names in enumerate(lists) for block, name in enumerate(names)}
    model = ledger.model
    scopes, traced = in_order(model, ledger.node_scopes), in_order(model, ledger.traced_scopes)
    by_node = _find_owners(scopes, owners)
    # A common scope of neighbours may be the module around all blocks, which does not tell the block.
    parents = {"", *(part for name in owners for part in ancestors(name.rpartition(".")[0]))}
    used_lists = {owner[0] for owner in by_node if owner is not None}
    if len(used_lists) < len(lists):
        return None
    placed = [
        (scope is not None and scope not in parents) or own is not None
        for scope, own in zip(scopes, traced, strict=True)
    ]
    numbers = model.numbers().items()
    return NamedBlocks(
        lists,
        owners={path: by_node[each.start : each.stop] for path, each in numbers},
        placed={path: placed[each.start : each.stop] for path, each in numbers},
    )


def _find_owners(scopes: Iterable[str | None], owners: Mapping[str, Owner]) -> list[Owner | None]:
    """Return, for each scope, the owner of the innermost module around it that has one; the scope itself counts too."""
    around: dict[str, Owner | None] = {}
    found: list[Owner | None] = []
    for scope in scopes:
        if scope is None or scope in owners:
            found.append(None if scope is None else owners[scope])
            continue
        module = scope.rpartition(".")[0]
        if module not in around:
            around[module] = next((owners[each] for each in ancestors(module) if each in owners), None)
        found.append(around[module])
    return found


def _roles(
    entries: Sequence[Entry],
    spots: Sequence[Spot],
    readers: Sequence[Reader | None],
    flows: Mapping[GraphPath, Flow],
) -> list[str]:
    """Return the function of each learned tensor; "" for the others."""
    roles_by_graph = {path: Roles(flow) for path, flow in flows.items()}
    roles = []
    for entry, spot, reader in zip(entries, spots, readers, strict=True):
        role = "" if entry.role is not Role.PARAMETER else OTHER
        if role and reader is not None:
            role = roles_by_graph[reader.node.graph_path].of(reader, entry.tensor, spot.block != OUTSIDE)
        roles.append(role)
    return roles


_MAIN = (ATTENTION, RECURRENT, CONVOLUTION, FEED_FORWARD, LINEAR)
"""Functions after which a unit is named, the first that any of its weights has."""


def _parts(spots: Sequence[Spot], roles: Sequence[str]) -> dict[tuple[int, int], str]:
    """Return the names of units in the blocks of a run: `attention`, then `attention-2`; a single unit has no name."""
    unit_roles: dict[tuple[int, int], set[str]] = defaultdict(set)
    for spot, role in zip(spots, roles, strict=True):
        if spot.block != OUTSIDE and role:
            unit_roles[spot.run, spot.unit].add(role)
    kinds = {
        unit: next((role for role in _MAIN if role in found), OTHER)
        for unit, found in sorted(unit_roles.items())
    }
    units = Counter(run for run, _ in kinds)
    seen: Counter[tuple[int, str]] = Counter()
    parts = {}
    for (run, unit), kind in kinds.items():
        if units[run] > 1:
            seen[run, kind] += 1
            parts[run, unit] = kind if seen[run, kind] == 1 else f"{kind}-{seen[run, kind]}"
    return parts


class _Members(dict[Spot, Member]):
    """Members by their spots, each made when it is first asked for."""

    def __init__(self, counts: Sequence[int], parts: Mapping[tuple[int, int], str]) -> None:
        self.firsts = [end - count for end, count in zip(accumulate(counts), counts, strict=True)]
        self._parts = parts

    def __missing__(self, spot: Spot) -> Member:
        member = self[spot] = self._make(spot)
        return member

    def _make(self, spot: Spot) -> Member:
        if spot.block == OUTSIDE:
            return Member(HEAD if spot.is_after else f"{BETWEEN}.{spot.run}" if spot.run else STEM)
        name = f"block.{self.firsts[spot.run] + spot.block}"
        return Member(name, self._parts.get((spot.run, spot.unit), ""))
