"""A file -> the account of its memory, as onnxruntime would run it with its optimizations off."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from analyzer.memory.account import Account
from analyzer.memory.inference import open_inference
from analyzer.memory.inplace import NEWEST, reuses_of
from analyzer.memory.order import default_order, priority_order
from analyzer.memory.planner import plan_buffers
from analyzer.memory.prepared import as_loaded

__all__ = ["open_account"]


@contextmanager
def open_account(path: Path, *, version: str = NEWEST, by_priority: bool = False) -> Iterator[Account]:
    """Plan the memory of a file, of which any number of sizes may be asked for as long as the context lasts.

    Args:
        path: of the main file.
        version: of onnxruntime, whose kernels' table is taken.
        by_priority: whether it runs what is ready by priority, which is not its default.

    Raises:
        CostError: inference ends its process, or takes more time or memory than it may.
    """
    _, reuses = reuses_of(version)
    with open_inference(path) as inference:
        program = as_loaded(inference.described)
        order = (priority_order if by_priority else default_order)(program.steps)
        yield Account(inference, program, plan_buffers(program, order, reuses))
