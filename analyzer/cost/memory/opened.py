"""A file -> the account of its memory: as it stands, or as onnxruntime would optimize it."""

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
"""Levels of optimization, with onnxruntime's names."""


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
    """Plan the memory of a file, which can be asked for at any sizes for as long as the context lasts.

    Args:
        path: path of the main file.
        level: level of optimization of the graph that onnxruntime writes, for which it loads the model; None plans the
            file as it stands, without onnxruntime.
        version: version of onnxruntime whose table of kernels is used.
        by_priority: whether ready nodes run by priority, which is not onnxruntime's default.
        walked: sizes in the file as it stands that inference cannot tell; not for a graph of a level.
        on_gpu: whether kernels are a GPU's, which compute in FLOAT16 where it is stored, and pack no weights as the
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
        described, uncertain_halves = inference.described, 0
        if halves is not None:
            described, uncertain_halves = with_casts_of_halves(described, halves)
        program = as_loaded(described)
        plan = plan_buffers(program, order(program.steps), reuses)
        yield Account(
            replace(inference, described=described), program, plan, walked, uncertain_halves, on_gpu
        )
