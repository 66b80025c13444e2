"""Ledger -> the blocks that it repeats: which entries and nodes are in each, and what comes before and after.

Names are not needed. What everything flows through cuts a graph into sections (`sections`), sections with equal
weights that follow each other are blocks (`units`, `repeats`), and operators say what their weights do (`roles`).
Where names tell more, they do (`modules`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from analyzer.blocks.assemble import OUTSIDE, Spot, arrange
from analyzer.blocks.flow import Flow, weigh
from analyzer.blocks.modules import name_blocks, put_right
from analyzer.blocks.roles import ATTENTION, CONVOLUTION, FEED_FORWARD, LINEAR, OTHER, RECURRENT, Roles
from analyzer.ledger import Blocks, Entry, Ledger, Member, Role, Run
from analyzer.model import GraphPath, Key
from analyzer.wiring import Reader

__all__ = ["find_blocks"]

STEM, HEAD = "stem", "head"


def find_blocks(ledger: Ledger) -> Blocks:
    """Find the repeated blocks of a model, whatever its names, and the role of each learned tensor in them.

    A tensor that several blocks read is the first's; what is not learned and read by several is before them. What comes
    between two runs of blocks is before the second (`stem`), what comes after the last is `head`. Without repeated
    blocks all of it is `stem`.
    """
    entries, wiring = ledger.entries, ledger.wiring
    weights = weigh(ledger.model, entries, wiring)
    flows = {graph.path: Flow.of(graph, wiring, weights) for graph in ledger.model.graphs}
    found = arrange(ledger.model, entries, wiring, flows)
    modules = name_blocks(found, entries)
    spots = put_right(found, entries, modules)
    roles = _roles(entries, spots, found.readers, flows)
    parts = _parts(entries, spots, roles)
    firsts = [sum(found.counts[:run]) for run in range(len(found.counts))]
    return Blocks(
        runs=tuple(map(Run, firsts, found.counts, modules)),
        entries={
            entry.tensor.key: _member(spot, firsts, parts) for entry, spot in zip(entries, spots, strict=True)
        },
        nodes={place: _member(spot, firsts, parts) for place, spot in found.nodes.items()},
        roles=roles,
    )


def _roles(
    entries: Sequence[Entry],
    spots: Sequence[Spot],
    readers: Sequence[Reader | None],
    flows: Mapping[GraphPath, Flow],
) -> dict[Key, str]:
    asked = {path: Roles(flow) for path, flow in flows.items()}
    roles = {}
    for entry, spot, reader in zip(entries, spots, readers, strict=True):
        if entry.role is Role.PARAMETER:
            is_inside = spot.block != OUTSIDE
            roles[entry.tensor.key] = (
                OTHER if reader is None else asked[reader.node.graph_path].of(reader, entry.tensor, is_inside)
            )
    return roles


_MAIN = (ATTENTION, RECURRENT, CONVOLUTION, FEED_FORWARD, LINEAR)
"""What a unit is called after, if any of its weights do it."""


def _parts(
    entries: Sequence[Entry], spots: Sequence[Spot], roles: Mapping[Key, str]
) -> dict[tuple[int, int], str]:
    """What each unit of the blocks of a run is called; units of one kind are numbered. A lone unit has no name."""
    doing: dict[tuple[int, int], set[str]] = defaultdict(set)
    for entry, spot in zip(entries, spots, strict=True):
        if spot.block != OUTSIDE and entry.role is Role.PARAMETER:
            doing[spot.run, spot.unit].add(roles[entry.tensor.key])
    kinds = {
        unit: next((role for role in _MAIN if role in found), OTHER) for unit, found in sorted(doing.items())
    }
    totals = Counter((run, kind) for (run, _), kind in kinds.items())
    units = Counter(run for run, _ in kinds)
    seen: Counter[tuple[int, str]] = Counter()
    parts = {}
    for (run, unit), kind in kinds.items():
        if units[run] > 1:
            number = f".{seen[run, kind]}" if totals[run, kind] > 1 else ""
            parts[run, unit] = f"{kind}{number}"
            seen[run, kind] += 1
    return parts


def _member(spot: Spot, firsts: Sequence[int], parts: Mapping[tuple[int, int], str]) -> Member:
    if spot.block == OUTSIDE:
        return Member(HEAD if spot.is_after else STEM)
    return Member(f"block.{firsts[spot.run] + spot.block}", parts.get((spot.run, spot.unit), ""))
