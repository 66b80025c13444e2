"""Blocks and Truth -> the number of layers that were found, and the misplaced tensors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tools.subgraphs.truth import OUTSIDE, Truth

if TYPE_CHECKING:
    from analyzer.account.ledger import Blocks, Ledger

__all__ = ["Misplaced", "Score", "fold_counts", "score_blocks"]


@dataclass(frozen=True, slots=True)
class Misplaced:
    """A learned tensor in a wrong block."""

    tensor: str
    parameters: tuple[str, ...]
    blocks: tuple[str, ...]
    """Blocks that it may be in."""
    found: str
    elements: int
    """Number of stored elements."""


@dataclass(frozen=True, slots=True)
class Score:
    """The blocks of one file, compared with the truth."""

    found: int
    true: int
    exact: int
    """Number of layers whose learned tensors are exactly those of the block with the same number."""
    parameters: tuple[int, ...]
    """Parameters of each block found, as the file alone shows them."""
    true_parameters: tuple[int, ...]
    """Parameters of each layer of the PyTorch model."""
    misplaced: tuple[Misplaced, ...]
    """Tensors misplaced by the blocks' own numbers."""
    misaligned: tuple[Misplaced, ...]
    """Tensors that are still misplaced when each layer is matched to the block that holds most of it."""
    extra: tuple[str, ...]
    """Tensors that the file shows as learned in a block, but that hold no PyTorch parameter."""
    unplaced: tuple[str, ...]
    """PyTorch parameters without a known stored tensor: nothing is known of their blocks."""
    traced: int = 0
    """Number of nodes that PyTorch traced in a layer, according to the named file."""
    traced_there: int = 0
    """Number of those nodes that are in the layer's block."""

    @property
    def is_exact(self) -> bool:
        return self.found == self.true == self.exact and not self.misplaced and not self.unplaced


def score_blocks(ledger: Ledger, blocks: Blocks, truth: Truth) -> Score:
    """Compare by position, so that the file may have other names than the one of the truth."""
    found = [_place(blocks.entries[entry.tensor.key].block) for entry in ledger.entries]
    counted: Counter[str] = Counter()
    for entry, block in zip(ledger.entries, found, strict=True):
        counted[block] += entry.parameters
    misplaced = _misplaced(ledger, found, truth, {})
    wrong = {tensor.found for tensor in misplaced} | {b for tensor in misplaced for b in tensor.blocks}
    numbers = range(truth.count)
    present = {*found}
    return Score(
        found=blocks.count,
        true=truth.count,
        exact=sum(
            f"block.{n}" not in wrong and (f"block.{n}" in present or n < blocks.count) for n in numbers
        ),
        parameters=tuple(counted[f"block.{n}"] for n in range(blocks.count)),
        true_parameters=truth.parameters,
        misplaced=misplaced,
        misaligned=_misplaced(ledger, found, truth, _aligned(ledger, found, truth)),
        extra=tuple(
            entry.tensor.name
            for index, entry in enumerate(ledger.entries)
            if entry.role == "parameter" and index not in truth.tensors and found[index] not in OUTSIDE
        ),
        unplaced=truth.unplaced,
        traced=sum(bool(block) for block in truth.nodes.values()),
        traced_there=sum(
            blocks.nodes[node.place].block == truth.nodes.get(index)
            for index, node in enumerate(ledger.model.nodes())
        ),
    )


def _place(block: str) -> str:
    """Return the block; one between two runs of blocks counts as `stem`."""
    return "stem" if block.startswith("between.") else block


def _misplaced(
    ledger: Ledger, found: Sequence[str], truth: Truth, aligned: dict[str, str]
) -> tuple[Misplaced, ...]:
    wrong = []
    for index, tensor in truth.tensors.items():
        if found[index] not in {aligned.get(block, block) for block in tensor.blocks}:
            stored = ledger.entries[index].tensor
            wrong.append(Misplaced(stored.name, tensor.parameters, tensor.blocks, found[index], stored.numel))
    return tuple(wrong)


def _aligned(ledger: Ledger, found: Sequence[str], truth: Truth) -> dict[str, str]:
    """Return, for each layer, the block that holds most of it; each block is used for one layer."""
    common: Counter[tuple[str, str]] = Counter()
    for index, tensor in truth.tensors.items():
        if len(tensor.blocks) == 1 and found[index] not in OUTSIDE and tensor.blocks[0] not in OUTSIDE:
            common[tensor.blocks[0], found[index]] += ledger.entries[index].tensor.numel
    aligned: dict[str, str] = {f"block.{n}": "none" for n in range(truth.count)}
    taken: set[str] = set()
    for (layer, block), _ in common.most_common():
        if aligned[layer] == "none" and block not in taken:
            aligned[layer] = block
            taken.add(block)
    return aligned


def fold_counts(counts: Sequence[int]) -> str:
    """Fold equal neighbours: `12 x 7,087,872`.

    >>> fold_counts([5, 5, 1000])
    '2 x 5, 1,000'
    """
    runs: list[list[int]] = []
    for count in counts:
        if runs and runs[-1][1] == count:
            runs[-1][0] += 1
        else:
            runs.append([1, count])
    return ", ".join(f"{times} x {count:,}" if times > 1 else f"{count:,}" for times, count in runs)
