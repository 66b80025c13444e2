"""A file -> the account of its memory: as it stands, or as onnxruntime would run it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from analyzer.cost.memory.account import Account
from analyzer.cost.memory.halves import with_casts_of_halves
from analyzer.cost.memory.inference import open_inference, open_optimized
from analyzer.cost.memory.kernels import NEWEST, halves_of, reuses_of
from analyzer.cost.memory.order import default_order, priority_order
from analyzer.cost.memory.planner import plan_buffers
from analyzer.cost.memory.prepared import as_it_stands, as_loaded
from analyzer.cost.memory.walked import Walked
from analyzer.records import replace

LEVELS: Mapping[str, str] = {
    "none": "ORT_DISABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
    "all": "ORT_ENABLE_ALL",
}
"""Levels of optimization, and what onnxruntime calls them."""


@contextmanager
def open_account(
    path: Path,
    *,
    level: str | None = None,
    version: str = NEWEST,
    by_priority: bool = False,
    walked: Walked | None = None,
    on_gpu: bool = False,
) -> Iterator[Account]:
    """Plan the memory of a file, of which any number of sizes may be asked for as long as the context lasts.

    Args:
        path: of the main file.
        level: of the optimizations with which onnxruntime makes the graph that it would run, which takes its loading;
            without, the file as it stands, of which onnxruntime is asked nothing.
        version: of onnxruntime, whose kernels' table is taken.
        by_priority: whether it runs what is ready by priority, which is not its default.
        walked: what tells sizes of the file as it stands that inference does not; not for a graph of a level.
        on_gpu: kernels are a GPU's, which compute in FLOAT16 what is stored in it, and pack no weights as the
            processor's do.

    Raises:
        CostError: inference ends its process, or takes more time or memory than it may.
        MissingExtraError: a level is asked for, and onnxruntime is not installed.
    """
    _, reuses = reuses_of(version)
    order = priority_order if by_priority else default_order
    if level is not None:
        with open_optimized(path, LEVELS[level]) as inference:
            program = as_it_stands(inference.described)
            yield Account(
                inference, program, plan_buffers(program, order(program.steps), reuses), on_gpu=on_gpu
            )
        return
    halves = None if on_gpu else halves_of(version)
    own, functions = (None, frozenset[str]()) if halves is None else (halves.own, halves.functions)
    with open_inference(path, halves=own, functions=functions) as inference:
        described, untold = inference.described, 0
        if halves is not None:
            described, untold = with_casts_of_halves(described, halves)
        program = as_loaded(described)
        plan = plan_buffers(program, order(program.steps), reuses)
        yield Account(replace(inference, described=described), program, plan, walked, untold, on_gpu)
