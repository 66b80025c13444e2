"""An account + available bytes -> whether a run fits, and the largest sizes at which it does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Literal

from analyzer.cost.memory.account import Account, Item
from analyzer.errors import LedgerError
from analyzer.records import Frozen

_MOST = 1 << 24
"""Largest size that is tried."""

_BATCH = "batch"


class Room(Frozen):
    """Whether a run at the requested sizes fits."""

    memory: int
    """Available bytes."""
    needed: int | None
    """Required bytes; None where they are not known."""

    fits: bool | None
    line: str
    """First line, in their order, that no longer fits; the largest line if all fit."""


class Fit(Frozen):
    """Largest size of an axis that fits, with fixed sizes of the others."""

    memory: int
    """Available bytes."""
    axis: str
    at: tuple[tuple[str, int], ...]
    """Sizes of the other axes."""

    largest: int | None
    """Largest size; 0 where not even 1 fits; None where all tried sizes fit, or the memory is not known."""

    reason: Literal["memory", "shapes", "none", "unknown"]
    """Limit of the size: `memory`; `shapes` where larger sizes contradict the graph's own shapes; `none`; `unknown`."""


def find_room(lines: tuple[Item, ...], total: int | None, memory: int) -> Room:
    """Return whether the required memory fits, and the line that decides.

    Raises:
        LedgerError: the lines do not sum up to the total, a defect of onnxledger itself.
    """
    known = [line for line in lines if line.value is not None]
    largest = max(known, key=lambda line: line.value or 0, default=None)
    if total is None:
        certain = sum(line.value or 0 for line in known)
        if certain > memory:  # unknown lines can only add to it
            return Room(memory, None, False, _overflowing(known, memory))
        return Room(memory, None, None, "" if largest is None else largest.line)
    if total <= memory:
        return Room(memory, total, True, "" if largest is None else largest.line)
    return Room(memory, total, False, _overflowing(known, memory))


def _overflowing(lines: list[Item], memory: int) -> str:
    total = 0
    for line in lines:
        total += line.value or 0
        if total > memory:
            return line.line
    raise LedgerError("the lines of memory do not sum up to what is needed")


def find_fits(
    account: Account,
    beyond: Callable[[Mapping[str, int]], int | None],
    sizes: Mapping[str, int],
    groups: Mapping[str, str],
    memory: int,
) -> Iterator[Fit]:
    """Yield the largest size that fits for each group of axes, verified at that size and at one more.

    Args:
        account: account of the model.
        beyond: function that bounds the bytes of a run beyond the plan, at given sizes; None where it is not known.
        sizes: sizes of all axes.
        groups: role of each axis; axes of one role share a size, and the name of the first.
        memory: available bytes.

    Raises:
        CostError: the process that infers shapes has ended.
        LedgerError: an answer fails its verification, a defect of onnxledger itself.
    """
    labels: dict[str, str] = {}
    for axis, group in groups.items():
        labels.setdefault(group, axis)
    for name in labels:
        others = {group: sizes[axis] for axis, group in groups.items() if group != name}
        if _BATCH in others:
            others[_BATCH] = 1

        def needed(size: int, name: str = name, others: Mapping[str, int] = others) -> int | None:
            point = {axis: size if group == name else others[group] for axis, group in groups.items()}
            at = {**sizes, **point}
            planned, more = account.needed(at).total, beyond(at)
            return None if planned is None or more is None else planned + more

        largest, reason = _largest(needed, memory)
        at = tuple((labels[group], size) for group, size in others.items())
        yield Fit(memory, labels[name], at, largest, reason)


def _largest(
    needed: Callable[[int], int | None], memory: int
) -> tuple[int | None, Literal["memory", "shapes", "none", "unknown"]]:
    """Return the largest size whose memory is known and fits, and its limit; memory is assumed to grow with size."""

    def fits(size: int) -> bool:
        total = needed(size)
        return total is not None and total <= memory

    first = needed(1)
    if first is None:
        return None, "unknown"
    if first > memory:
        return 0, "memory"
    low, high = 1, 2
    while fits(high):
        low, high = high, high * 2
        if high > _MOST:
            return None, "none"
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    beyond = needed(low + 1)
    if not fits(low) or (beyond is not None and beyond <= memory):
        raise LedgerError(
            f"the largest size that fits is not {low}: {needed(low)} and {beyond} of {memory} bytes"
        )
    return low, "shapes" if beyond is None else "memory"
