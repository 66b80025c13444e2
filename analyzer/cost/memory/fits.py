"""An account and so many bytes -> whether a run fits, and the largest sizes at which it does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Literal

from analyzer.cost.memory.account import Account, Item
from analyzer.errors import LedgerError
from analyzer.records import Frozen

_MOST = 1 << 24
"""The largest size that is tried."""

_BATCH = "batch"


class Room(Frozen):
    """Whether a run at the sizes that were asked for fits."""

    memory: int
    """Bytes to fit into."""
    needed: int | None
    """Bytes; None where somebody would have to guess."""

    fits: bool | None
    line: str
    """The line with which it no longer fits, going through them in order; else the largest."""


class Fit(Frozen):
    """The largest size of an axis that fits, with the others as they are."""

    memory: int
    """Bytes to fit into."""
    axis: str
    at: tuple[tuple[str, int], ...]
    """The sizes of the other axes."""

    largest: int | None
    """0 where not even 1 fits; None where nothing that was tried is too much, or nobody knows."""

    reason: Literal["memory", "shapes", "none", "unknown"]
    """`memory`; `shapes` where the graph's own shapes contradict each other beyond it; `none` where nothing ends it;
    `unknown`."""


def find_room(lines: tuple[Item, ...], total: int | None, memory: int) -> Room:
    """Return whether what is needed fits, and by which line.

    Raises:
        LedgerError: the lines do not sum up to what is needed, a defect of onnxledger itself.
    """
    known = [line for line in lines if line.value is not None]
    largest = max(known, key=lambda line: line.value or 0, default=None)
    if total is None:
        certain = sum(line.value or 0 for line in known)
        if certain > memory:  # what is not known can only add to it
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
    """Yield for each group of axes the largest size that fits, checked at it and at one more.

    Args:
        account: of the model.
        beyond: the most that a run of such sizes may ask for beyond the plan; None where nobody knows.
        sizes: of every axis.
        groups: for each axis what it is for; those for the same have one size, and the name of the first.
        memory: bytes.

    Raises:
        CostError: the process that infers shapes has ended.
        LedgerError: an answer does not hold at itself and at one more, a defect of onnxledger itself.
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
    """The largest size of which what is needed is known and fits; what is needed is taken to grow with it."""

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
