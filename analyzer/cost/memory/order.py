"""The steps of a program -> the order in which onnxruntime runs them."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Protocol


class Reader(Protocol):
    """Node with its inputs and outputs."""

    @property
    def op_type(self) -> str: ...
    @property
    def inputs(self) -> tuple[str, ...]: ...
    @property
    def outputs(self) -> tuple[str, ...]: ...
    @property
    def implicit(self) -> tuple[str, ...]: ...


def default_order(steps: Sequence[Reader]) -> tuple[int, ...]:
    """Return the order of `ExecutionOrder::DEFAULT`: depth first from the steps whose outputs no step reads."""
    sources, readers = _edges(steps)
    stack = [(index, False) for index in range(len(steps)) if not readers[index]]
    seen = [False] * len(steps)
    order = []
    while stack:
        index, leave = stack.pop()
        if leave:
            order.append(index)
        elif not seen[index]:
            seen[index] = True
            stack.append((index, True))
            stack.extend((source, False) for source in sorted(sources[index]) if not seen[source])
    return tuple(order)


def priority_order(steps: Sequence[Reader]) -> tuple[int, ...]:
    """Return the order of `ExecutionOrder::PRIORITY_BASED`: ready steps, Shape and Size first, else in file order."""
    sources, readers = _edges(steps)
    missing = [len(each) for each in sources]
    ready = [(_rank(steps[index]), index) for index in range(len(steps)) if not missing[index]]
    heapq.heapify(ready)
    order = []
    while ready:
        _, index = heapq.heappop(ready)
        order.append(index)
        for reader in readers[index]:
            missing[reader] -= 1
            if not missing[reader]:
                heapq.heappush(ready, (_rank(steps[reader]), reader))
    return tuple(order)


def _rank(step: Reader) -> bool:
    return step.op_type not in ("Shape", "Size")


def _edges(steps: Sequence[Reader]) -> tuple[list[set[int]], list[set[int]]]:
    """Return the steps that each step reads from, and the steps that read from it."""
    maker = {name: index for index, step in enumerate(steps) for name in step.outputs if name}
    sources: list[set[int]] = [set() for _ in steps]
    readers: list[set[int]] = [set() for _ in steps]
    for index, step in enumerate(steps):
        for name in (*step.inputs, *step.implicit):
            source = maker.get(name)
            if name and source is not None:
                sources[index].add(source)
                readers[source].add(index)
    return sources, readers
