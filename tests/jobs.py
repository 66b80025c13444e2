"""Jobs for the process that runs onnxruntime: a small model, fed at several lengths."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from models import save, text_model

from analyzer.timing.request import Feed, Fill, Job, Reply, Request, Schedule
from analyzer.timing.running.child import answer

NET = "g (float[n,64] x) => (float[n,64] y) { [mm] h = MatMul(x, w) [act] y = Softmax(h) }"
SHORT = Schedule(runs=4, warmup=2)


def feeds(length: int) -> tuple[Feed, ...]:
    return (Feed("x", "FLOAT", (length, 64), Fill.UNIFORM, -1, 1),)


def job(folder: Path, *lengths: int, schedule: Schedule = SHORT, **changes: Any) -> Job:
    model = save(folder, text_model(NET, {"w": np.ones((64, 64), np.float32)}))
    points = tuple(feeds(length) for length in lengths or (3,))
    request = Request(str(model), points, "CPUExecutionProvider", str(folder), threads=1, schedule=schedule)
    return Job(request, **changes)


def answered(job: Job, folder: Path) -> tuple[Reply, list[str]]:
    stages: list[str] = []
    return answer(job, folder, stages.append), stages
