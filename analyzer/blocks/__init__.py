"""Ledger -> the blocks that it repeats: which entries and nodes are in each, and what comes before and after."""

from __future__ import annotations

from collections.abc import Sequence

from analyzer.blocks.assemble import Arrangement, Spot, arrange
from analyzer.blocks.flow import Flow, weigh
from analyzer.blocks.units import OUTSIDE
from analyzer.ledger import Blocks, Ledger, Member, Run

__all__ = ["find_blocks"]

STEM, HEAD = "stem", "head"


def find_blocks(ledger: Ledger) -> Blocks:
    """Find the repeated blocks of a model, whatever its names."""
    model, wiring = ledger.model, ledger.wiring
    weights = weigh(model, ledger.entries, wiring)
    flows = {graph.path: Flow.of(graph, wiring, weights) for graph in model.graphs}
    found = arrange(model, ledger.entries, wiring, flows)
    firsts = [sum(found.counts[:run]) for run in range(len(found.counts))]
    return Blocks(
        runs=tuple(Run(first, count) for first, count in zip(firsts, found.counts, strict=True)),
        entries={
            entry.tensor.key: _member(spot, firsts)
            for entry, spot in zip(ledger.entries, found.entries, strict=True)
        },
        nodes={place: _member(spot, firsts) for place, spot in found.nodes.items()},
        roles={entry.tensor.key: "other" for entry in ledger.entries},
    )


def _member(spot: Spot, firsts: Sequence[int]) -> Member:
    if spot.block == OUTSIDE:
        return Member(HEAD if spot.is_after else STEM)
    return Member(f"block.{firsts[spot.run] + spot.block}")
